"""Users' own functions on a file's content: how they are called, what they may return, and how one is told from its next edition."""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import os
import signal
import site
import sysconfig
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import Any

import pyarrow as pa

from quire.errors import NotFoundError, StorageError, UsageError, about
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent, NotDecoded

__all__ = ["Buffer", "UserFunction", "alone", "call", "check_call", "identity", "passes"]

CAME_BACK = 70  # the exit code of such a child

Buffer = bytes | bytearray | memoryview
UserFunction = Callable[[bytes, FileInfo], Buffer | Iterable[Buffer] | pa.RecordBatch | pa.Table]

_ALLOWED = "allowed are bytes, an iterable of bytes, a pyarrow.RecordBatch or a pyarrow.Table"
# Of the process: what their handlers raise, wherever they do, is not about the file at hand. A user's own time limit is (SIGALRM).
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


# --- calling --------------------------------------------------------------------------------------------------------------


def call(function: UserFunction, content: bytes, file: FileInfo, keep_messages: bool = False) -> list[bytes] | pa.RecordBatch:
    """Return what `function(content, file)` makes of a file: its records as bytes, or one batch.

    `bytes`, `bytearray` and `memoryview` give a list of one; an iterable of them gives one record each, and is used up here,
    so that what a generator raises is the function's error; a Table becomes one batch.

    Raises BadContent if the function raises or returns anything else. The reason holds the exception's class and the place in
    the user's code; its message only if `keep_messages`, as it may hold data. SystemExit is the file's as well: many a parser
    ends its process where it meets what it does not know. Errors that do not concern the file pass through (`passes`).
    """
    try:
        with alone():
            return _records(function(content, file))
    except WrongTypeError as error:
        raise BadContent(f"TypeError: the function returned {error}; {_ALLOWED}") from None
    except NotDecoded:
        raise
    except BaseException as error:
        if passes(error):
            raise
        raise BadContent(reason(function, error, keep_messages)) from None


@contextmanager
def alone() -> Iterator[None]:
    """Let nothing but this process come back from a user's function.

    A child that the function has forked and that returns from it, or raises, would go on as quire does, in the files that are open here.
    """
    here = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != here:
            with suppress(OSError):
                os.write(2, b"quire: a process that the function has forked came back from it, and was ended: end it with os._exit()\n")
            os._exit(CAME_BACK)


def passes(error: BaseException) -> bool:
    """Whether what a user's function has raised is not about its file.

    It is a lack of memory, an interrupt, a signal that asks to end, or a store or registry that is of no use now.
    """
    if isinstance(error, (MemoryError, KeyboardInterrupt)) or (isinstance(error, StorageError) and not isinstance(error, NotFoundError)):
        return True
    asked = [handler for number in _ENDING if callable(handler := signal.getsignal(number))]
    handlers = {id(code) for handler in asked if (code := _code(handler)) is not None}
    trace = error.__traceback__
    while trace is not None:
        if id(trace.tb_frame.f_code) in handlers:
            return True
        trace = trace.tb_next
    return False


class WrongTypeError(Exception):
    """The result is not of a type that is taken; the message says what it is."""


def _records(result: object) -> list[bytes] | pa.RecordBatch:
    if isinstance(result, pa.RecordBatch):
        return owned(result)
    if isinstance(result, pa.Table):
        return _one_batch(result)
    if isinstance(result, (bytes, bytearray, memoryview)):
        return [bytes(result)]
    if inspect.iscoroutine(result):
        result.close()
    if isinstance(result, (str, Mapping)) or not isinstance(result, Iterable):
        raise WrongTypeError(type_name(result))
    return [_record(item, number) for number, item in enumerate(result, 1)]


def _record(item: object, number: int) -> bytes:
    if isinstance(item, bytes):
        return item
    if isinstance(item, (bytearray, memoryview)):
        return bytes(item)
    raise WrongTypeError(f"an iterable whose item {number} is {type_name(item)}")


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise WrongTypeError("a pyarrow.Table that does not fit into one batch")
    return owned(batches[0]) if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def owned(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A copy: rows wait for their row group, and the function may fill the same buffers with what it returns next."""
    return batch.copy_to(pa.default_cpu_memory_manager())


def type_name(value: object) -> str:
    if value is None:
        return "None"
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def reason(function: object, error: BaseException, keep_messages: bool) -> str:
    kind = type(error).__qualname__
    message = f": {_message(error)}" if keep_messages else ""
    return f"{kind}{_place(function, error.__traceback__)}{message}"


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as wrong:
        if passes(wrong):
            raise
        return f"(no message: {type(wrong).__qualname__})"


def _place(function: object, trace: TracebackType | None) -> str:
    """` (file.py line 7)`: the innermost line of the user's own code, or nothing where there is none."""
    own = getattr(_code(function), "co_filename", None)
    found = ""
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if name == own or not (name.startswith(_library_roots()) or name.endswith((".pxi", ".pyx"))):  # of compiled code: no path at all
            found = f" ({os.path.basename(name)} line {trace.tb_lineno})"
        trace = trace.tb_next
    return found


@functools.cache
def _library_roots() -> tuple[str, ...]:
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {*site.getsitepackages(), site.getusersitepackages()}
    paths.add(str(Path(__file__).parents[2]))  # of quire
    return (*(os.path.join(path, "") for path in paths if path), "<frozen ")


def _code(function: object) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    function = function if callable(function) else None
    found = inspect.unwrap(function) if function is not None else None
    if not isinstance(found, (FunctionType, MethodType)):
        found = inspect.getattr_static(type(function), "__call__", None)
    code = getattr(found, "__code__", None)
    return code if isinstance(code, CodeType) else None


# --- identity -------------------------------------------------------------------------------------------------------------


def check_call(function: Callable[..., Any], option: str, *given: str) -> None:
    """Raise UsageError unless `function` can be called with these arguments: else all files would go into quarantine for it."""
    try:
        taken = inspect.signature(function)
    except (TypeError, ValueError):  # what is not written in Python may not say what it takes
        return
    try:
        taken.bind(*given)
    except TypeError as e:
        with about(option):
            raise UsageError(
                f"{option}= is called as {_qualified_name(function).rpartition('.')[2]}({', '.join(given)}), and it takes "
                f"({', '.join(taken.parameters)}): {e}."
            ) from None


def identity(function: Callable[..., Any], version: str | None = None) -> str:
    """Return `module.qualname@edition`, which changes when the function is edited and not when it is moved in its file.

    edition   `version` if given, else 32 hexadecimal digits of a hash, or `builtin` for what is not written in Python

    The hash is of the function's source, its default arguments and the variables that it closes over, as far as these are
    constants (None, numbers, texts, bytes, and tuples, lists, sets and dictionaries of such) or functions; of any other
    value only the type counts. A partial adds its arguments, and a callable object or a method its class's source and
    its attributes. Without source (a shell, exec, several lambdas on one line) it is of the bytecode, which is another one
    after an upgrade of Python.

    Not seen: an edit of what the function calls or reads as a global, of its class's bases, of its decorators. Give
    `version` where that matters. Raises UsageError if `function` cannot be called or `version` is not a word.
    """
    if not callable(function):
        raise UsageError(f"a transform is a name or a function, not {type_name(function)}")
    said: str | None = getattr(function, "__edition__", None)  # of a decoder of ours, which holds what is not to be told
    name = said.rpartition("@")[0] if said else _qualified_name(function)
    if said and version is None:
        return said
    if version is not None:
        word = str(version)
        if not word or not word.isprintable() or " " in word or "@" in word:
            raise UsageError("function_version is a word without spaces and '@', such as '3' or '2024-05-01'")
        return f"{name}@{word}"
    parts = list(_describe(function, []))
    if not parts:
        return f"{name}@builtin"
    return f"{name}@{hashlib.sha256(repr(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _qualified_name(function: object) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    module = getattr(named, "__module__", None) or "builtins"
    return f"{module}.{getattr(named, '__qualname__', type(named).__qualname__)}"


def _describe(function: object, seen: list[object]) -> list[object]:
    """A function's parts, as an object with a stable `repr`; empty for a function that is not written in Python."""
    if any(function is other for other in seen):
        return ["again"]
    seen = [*seen, function]
    if isinstance(function, functools.partial):
        bound = [_constant(function.args, seen), _constant(function.keywords, seen)]
        return [_qualified_name(function), _describe(function.func, seen), bound]
    if isinstance(function, MethodType):
        owner = function.__self__
        return [function.__name__, *_describe_function(function.__func__, seen), *_describe_object(owner, seen)]
    if isinstance(function, type):
        return _describe_class(function)
    inner = inspect.unwrap(function) if callable(function) else function
    if isinstance(inner, FunctionType):
        outer = [_state(function, seen)] if isinstance(function, FunctionType) and function is not inner else []
        return [*_describe_function(inner, seen), *outer]
    if inspect.isroutine(inner):
        return []
    return _describe_object(inner, seen)


def _describe_function(function: object, seen: list[object]) -> list[object]:
    if not isinstance(function, FunctionType):
        return []
    source = _lambda_source(function) if function.__name__ == "<lambda>" else _source(function)
    return [source or _bytecode(function.__code__), _state(function, seen)]


def _state(function: FunctionType, seen: list[object]) -> list[object]:
    """Default arguments and closed-over variables."""
    cells = []
    for cell in function.__closure__ or ():
        try:
            cells.append(_constant(cell.cell_contents, seen))
        except ValueError:  # not bound yet
            cells.append("unbound")
    return [_constant(function.__defaults__, seen), _constant(function.__kwdefaults__, seen), cells]


def _describe_object(value: object, seen: list[object]) -> list[object]:
    if isinstance(value, type):
        return _describe_class(value)
    slots = (name for kind in type(value).__mro__ for name in _slots(kind))
    attributes = {**{name: getattr(value, name) for name in slots if hasattr(value, name)}, **getattr(value, "__dict__", {})}
    kind = _describe_class(type(value))
    return [*kind, _constant(attributes, seen)] if kind else []


def _slots(kind: type) -> Iterable[str]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else (name for name in slots if name not in ("__dict__", "__weakref__"))


def _describe_class(kind: type) -> list[object]:
    source = _source(kind)
    if source:
        return [source]
    methods = {name: getattr(value, "__func__", value) for name, value in vars(kind).items()}
    return [(name, _bytecode(value.__code__)) for name, value in methods.items() if isinstance(value, FunctionType)]


def _constant(value: object, seen: list[object]) -> object:
    """A value as something whose `repr` is the same in every process."""
    if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
        return (type(value).__name__, repr(value))
    if any(value is other for other in seen):
        return "again"
    if isinstance(value, (tuple, list)):
        return (type(value).__name__, [_constant(item, [*seen, value]) for item in value])
    if isinstance(value, (set, frozenset)):
        return (type(value).__name__, sorted(repr(_constant(item, [*seen, value])) for item in value))
    if isinstance(value, dict):
        items = ((_constant(key, seen), _constant(item, [*seen, value])) for key, item in value.items())
        return ("dict", sorted(items, key=repr))
    if isinstance(value, (FunctionType, MethodType, functools.partial)):
        return ("function", _qualified_name(value), _describe(value, seen))
    return ("object", _qualified_name(type(value)))


def _source(value: FunctionType | type) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(value))
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


def _lambda_source(function: FunctionType) -> str | None:
    """The text of a lambda alone, without the statement around it; None if its line has several."""
    line = function.__code__.co_firstlineno
    try:
        text = "".join(inspect.findsource(function)[0])
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Lambda) and node.lineno == line]
    except (OSError, TypeError, SyntaxError, ValueError, IndexError, RecursionError):
        return None
    return ast.unparse(nodes[0]) if len(nodes) == 1 else None


def _bytecode(code: CodeType) -> list[object]:
    constants = [_bytecode(item) if isinstance(item, CodeType) else _constant(item, []) for item in code.co_consts]
    return [code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars]
