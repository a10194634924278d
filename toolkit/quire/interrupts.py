"""Ctrl-C in a terminal, ■ in a notebook: an interrupt always ends the call of quire's that it meets.

Python raises it wherever the main thread is at that moment. Inside of a `__del__`, or of the callback of a weak reference (py4j has one
for each object in the JVM), the exception is printed and forgotten, and the call would run on. So quire's own handler notes it
before it raises, and whatever waits or goes round looks at the note.
"""

from __future__ import annotations

import functools
import inspect
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from quire.errors import Interrupted

P = ParamSpec("P")
T = TypeVar("T")
Class = TypeVar("Class", bound=type)
Handler = Callable[[int, FrameType | None], Any]

# Where the handlers come from that do no more than to end what runs: Python's, pyspark's, quire's for sessions, and that of a cell
# with `await` in it, which waits for a loop that does not turn meanwhile. Any other one has a say: it decides whether to raise.
PLAIN = ("_signal", "pyspark", "quire.spark.jvm", "ipykernel.ipkernel")
# What is raised below these is printed and forgotten: a function of that name, or any of that module.
UNHEARD, UNHEARD_IN = ("__del__", "_garbage_collect_object"), ("weakref", "_weakrefset", "py4j.finalizer")


class _Watched:
    """The outermost call of quire's in the main thread."""

    def __init__(self, outside: Handler) -> None:
        self.outside = outside  # the handler of before, and of afterwards
        self.noted: BaseException | None = None


_under_way: _Watched | None = None  # of the main thread, which alone is sent signals


def interruptible(function: Callable[P, T]) -> Callable[P, T]:
    """Let an interrupt end this call with one line, whatever it meets; in a thread other than the main one nothing changes."""

    # One frame sets and resets: between two, as those of a context manager, an interrupt would leave the handler behind.
    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        global _under_way  # noqa: PLW0603  # a process has one handler
        if threading.current_thread() is not threading.main_thread() or _under_way is not None:
            return function(*args, **kwargs)
        outside = signal.getsignal(signal.SIGINT)
        if not callable(outside):  # it is ignored, as below nohup, or is not Python's
            return function(*args, **kwargs)
        mine = _Watched(outside)
        try:
            _under_way = mine
            signal.signal(signal.SIGINT, raised)
            result = function(*args, **kwargs)
        except Exception as e:
            if mine.noted is not None:  # of what was cut off something else may fail: the user has interrupted it
                raise mine.noted from e
            raise
        finally:
            _under_way = None
            signal.signal(signal.SIGINT, mine.outside)
        if mine.noted is not None:
            raise mine.noted
        return result

    return call


def all_interruptible(kind: Class) -> Class:
    """Let an interrupt end each public method of a class with one line."""
    for name, member in list(vars(kind).items()):
        if inspect.isfunction(member) and not name.startswith("_"):
            setattr(kind, name, interruptible(member))
    return kind


def check() -> None:
    """Raise the interrupt that was noted, should it not have been heard. For whatever waits or goes round; quick."""
    if _under_way is not None and _under_way.noted is not None and threading.current_thread() is threading.main_thread():
        raise _under_way.noted


def handle(outside: Handler) -> None:
    """Let this be the handler from now on, outside of quire's calls."""
    if _under_way is None:
        signal.signal(signal.SIGINT, outside)
    else:
        _under_way.outside = outside
        signal.signal(signal.SIGINT, raised)


def raised(number: int, frame: FrameType | None) -> None:
    """The handler: note an interrupt, and raise it unless nobody would hear of it here."""
    call = _under_way
    if call is None:
        raise KeyboardInterrupt
    if origin(call.outside) not in PLAIN:
        try:
            call.outside(number, frame)
        except KeyboardInterrupt:
            pass
        except BaseException as e:
            call.noted = e
            raise
        else:
            return
    call.noted = Interrupted()
    if not _unheard(frame):
        raise call.noted


def origin(handler: Any) -> str:
    """The module that a handler comes from; of pyspark's, whichever it is, the package."""
    module = str(getattr(handler, "__module__", ""))
    return "pyspark" if module.startswith("pyspark.") else module


def _unheard(frame: FrameType | None) -> bool:
    while frame is not None:
        name, module = frame.f_code.co_name, frame.f_globals.get("__name__")
        if name in UNHEARD or module in UNHEARD_IN or (name == "<lambda>" and module == "py4j.java_gateway"):
            return True
        frame = frame.f_back
    return False
