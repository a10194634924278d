"""Single requests, and one after another with the next one on its way while an answer is worked on: how listings ask for their pages.

Connections are a `Wire`'s, and who asks drives them, as `window` does; so there is neither a thread nor a fork's trouble. They stay for
whoever asks next.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from quire.errors import StorageError
from quire.storage.message import Answer
from quire.storage.window import LOOK
from quire.storage.wire import Wire

KEPT = 20.0  # seconds for which connections stay without a request
LASTS = 300.0  # seconds that one answer may take: a service looks through many deleted names before it has a page
THIN = 16 << 10  # bytes a second of a line that is thin: an answer that comes faster may take longer
MOST = 64 << 20  # bytes of an answer

# A try, which gives what its wire sends, is sent the answers, and ends with what was asked for.
Steps = Generator[Any, Any, Any]


class Asking:
    """Connections for single requests, in each process its own; each thread takes some for itself."""

    def __init__(self, opened: Callable[[], Wire], patience: float = 0.0) -> None:
        """`patience`: seconds that one answer may take, if these are more than `LASTS`."""
        self._opened, self._patience = opened, patience
        self._idle = deque[tuple[int, float, Wire]]()  # whose process's, since when
        weakref.finalize(self, _close, self._idle)

    @contextmanager
    def line(self) -> Iterator[Line]:
        """Connections for one listing."""
        line = Line(self._taken(), self._patience)
        try:
            yield line
        finally:
            if line.flying or line.process != os.getpid():  # an answer that comes later would be nobody's
                line.wire.close()
            else:
                self._idle.append((os.getpid(), time.monotonic(), line.wire))

    def once(self, begin: Callable[[], Steps]) -> Any:
        """The end of one request's steps."""
        with self.line() as line:
            return line.ask(begin)()

    def _taken(self) -> Wire:
        now = time.monotonic()
        while True:
            try:
                process, since, wire = self._idle.pop()
            except IndexError:
                return self._opened()
            if process == os.getpid() and now - since < KEPT:
                return wire
            wire.close()


class Onward:
    """The way of a listing, which refuses one that turns in a circle: it has no end.

    A single place of it is kept, in its stead another one after twice as many pages: so each circle, however long, comes by one.
    """

    def __init__(self, what: str) -> None:
        self.what, self._place, self._pages = what, "", 0

    def to(self, token: str) -> None:
        """A page says that the next one begins here (empty: that there is none)."""
        if token and token == self._place:
            raise StorageError(f"{self.what}: the service gives the same page again and again. Look at the service, and the proxy between.")
        self._pages += 1
        if not self._pages & (self._pages - 1):
            self._place = token


def _close(idle: deque[tuple[int, float, Wire]]) -> None:
    while idle:
        idle.pop()[2].close()


class Line:
    """Requests of one listing."""

    def __init__(self, wire: Wire, patience: float) -> None:
        self.wire, self.process, self.patience = wire, os.getpid(), patience
        self.flying = set[Asked]()

    def ask(self, begin: Callable[[], Steps]) -> Asked:
        """Send a request."""
        return Asked(self, begin)

    def own(self) -> None:
        """Raise StorageError in a process that was forked meanwhile: the connections are its parent's."""
        if self.process != os.getpid():
            raise StorageError("a listing cannot go on in a process that was forked meanwhile: begin it there.")


class Asked:
    """A request that is on its way before its answer is wanted. To call it gives what its steps end with, or raises their error; called
    once more, it is sent again.
    """

    __slots__ = ("_begin", "_found", "_line", "_since", "_steps")

    def __init__(self, line: Line, begin: Callable[[], Steps]) -> None:
        self._line, self._begin = line, begin
        self._steps: Steps | None = None  # of this try
        self._found: Any = None
        self._send()

    def __call__(self) -> Any:
        line, wire = self._line, self._line.wire
        if self._steps is None:
            self._send()
        line.own()
        while self in line.flying:
            for asked, answer in wire.wait(LOOK):
                asked._step(answer)
            if self in line.flying and wire.now - self._since > max(LASTS, line.patience) + wire.moved(self) / THIN:
                wire.cancel(self)
                self._step(TimeoutError("no answer in time"))
        self._steps, found, self._found = None, self._found, None
        if isinstance(found, Exception):
            raise found
        return found

    def _send(self) -> None:
        self._line.own()
        self._since, self._steps = self._line.wire.now, self._begin()
        self._line.flying.add(self)
        self._step(None)

    def _step(self, answer: Answer | Exception | None) -> None:
        """Go on to the next request, or to the end."""
        assert self._steps is not None
        try:
            ask = self._steps.throw(answer) if isinstance(answer, Exception) else self._steps.send(answer)
        except StopIteration as e:
            self._found = e.value
        except Exception as e:  # it belongs to who wants the answer
            self._found = e
        else:
            self._line.wire.send(ask, self)
            return
        self._line.flying.discard(self)
