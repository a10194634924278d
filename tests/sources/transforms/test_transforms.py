"""Lines, raw, JSON, users' functions and their identity."""

# A function of the user's takes both arguments whether it needs them or not.

from __future__ import annotations

import asyncio
import functools
import importlib.util
import json as stdlib_json
import pickle
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gathering import gather, not_taken, write
from quire.errors import QuireError, UsageError
from quire.sources.splits import FileInfo
from quire.sources.transforms import NAMES, BadContent, call, identity, json, lines, raw

FILE = FileInfo("file:///in/a.bin", 3, "1-3")


def reason(content: bytes) -> str:
    with pytest.raises(BadContent) as caught:
        json(content)
    return caught.value.reason


# --- the reason -----------------------------------------------------------------------------------------------------------


def test_a_reason_is_one_short_scrubbed_line_that_survives_pickling() -> None:
    bad = BadContent("a\nb password=hunter2 " + "x" * 500)
    assert len(bad.reason) == 300
    assert "\n" not in bad.reason
    assert "hunter2" not in bad.reason
    assert pickle.loads(pickle.dumps(bad)).reason == bad.reason
    assert not isinstance(bad, QuireError)


# --- lines, raw -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"", b""), (b"a", b"a\n"), (b"a\n", b"a\n"), (b"a\r\nb", b"a\r\nb\n"), (b"\n", b"\n"), (b"\xff\0", b"\xff\0\n"), (b"a\r", b"a\r\n")],
)
def test_lines_are_bytes_each_ended_by_one_newline(content: bytes, expected: bytes) -> None:
    assert lines(content) == expected


@given(st.binary())
def test_raw_is_the_content_and_lines_adds_one_newline_at_most(content: bytes) -> None:
    assert raw(content) is content
    assert lines(content) in (content, content + b"\n")
    assert lines(lines(content)) == lines(content)


def test_the_names() -> None:
    assert NAMES == ("lines", "raw", "xml", "json")


def test_a_batch_of_a_function_is_a_copy_as_it_may_use_its_buffer_again() -> None:
    numbers = np.zeros(1, np.int64)

    def again(content: bytes, file: FileInfo) -> Any:
        numbers[:] = len(content)
        return pa.record_batch({"n": pa.array(numbers)})

    first, second = (call(again, content, FILE) for content in (b"a", b"ab"))
    assert isinstance(first, pa.RecordBatch)
    assert isinstance(second, pa.RecordBatch)
    assert (first["n"].to_pylist(), second["n"].to_pylist()) == ([1], [2])


# --- json -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{ "a" : 1 }', [b'{"a":1}']),
        (b'\n{\r\n  "b": [1, 2 ],\n\t"a": "x  y"\n}\n', [b'{"b":[1,2],"a":"x  y"}']),
        (b"[\n1,\n2\n]", [b"[1,2]"]),
        (b'{"a": 1}\n\n  \n{"a": 2}\r\n[3]\n', [b'{"a":1}', b'{"a":2}', b"[3]"]),
        (b'{"a": 1, "a": 2}', [b'{"a":1,"a":2}']),
        (b"[1.10, 1E400, 0.10000000000000000000001, -0, 1e-7]", [b"[1.10,1E400,0.10000000000000000000001,-0,1e-7]"]),
        (b"1" * 10_000, [b"1" * 10_000]),
        (b'["\\\\", " \\" , ", "\\\\\\"  ", "\\u0041 \\n"]', [b'["\\\\"," \\" , ","\\\\\\"  ","\\u0041 \\n"]']),
        ("\ufeff{ }".encode(), [b"{}"]),
        ('{"ü": "\u2028\u0085"}'.encode(), ['{"ü":"\u2028\u0085"}'.encode()]),
        (b'"a"\nnull\n1', [b'"a"', b"null", b"1"]),
    ],
)
def test_json_takes_out_white_space_and_nothing_else(content: bytes, expected: list[bytes]) -> None:
    assert json(content) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
def test_json_in_other_unicode_encodings(encoding: str) -> None:
    assert json('{"é": 1}\n{"é": 2}\n'.encode(encoding)) == ['{"é":1}'.encode(), '{"é":2}'.encode()]


@pytest.mark.parametrize("content", [b"", b" \r\n\t", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
def test_an_empty_json_file(content: bytes) -> None:
    assert reason(content) == "empty"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"{", "malformed JSON: Expecting property name enclosed in double quotes (line 1, column 2)"),
        (b'{"a": NaN}', "malformed JSON: NaN is not a JSON number (line 1, column 7)"),
        (b'{"NaN": 1}\n{"a": -Infinity}', "malformed JSON: -Infinity is not a JSON number (line 2, column 7)"),
        (b"{}\nInfinity", "malformed JSON: Infinity is not a JSON number (line 2, column 1)"),
        (b'{"a":\n [NaN]}', "malformed JSON: NaN is not a JSON number (line 2, column 3)"),
        (b'{"a": 1}\n\n{"a": 2\n{"a": 3}', "malformed JSON: Expecting ',' delimiter (line 3, column 8)"),
        (b'{"a": 1\n{"a": 2}\n', "malformed JSON: Expecting ',' delimiter (line 1, column 8)"),
        (b'{"a": 1}\n  {"a": x}\n', "malformed JSON: Expecting value (line 2, column 9)"),
        (b'{"a": 1} {"a": 2}\n', "malformed JSON: Extra data (line 1, column 10)"),
        (b'{\n"a": 1}\n{\n"a": 2}\n', "malformed JSON: a second document, and the first is not on one line (line 3, column 1)"),
        (b'{"a": "x\ny"}', "malformed JSON: Invalid control character at (line 1, column 9)"),
        (b"[01]", "malformed JSON: Expecting ',' delimiter (line 1, column 3)"),
        (b"['a']", "malformed JSON: Expecting value (line 1, column 2)"),
        (b"[1,]", None),
        (b'["\xff"]', "encoding: not valid UTF-8 (byte offset 2)"),
        (b'\xef\xbb\xbf["\xff"]', "encoding: not valid UTF-8 (byte offset 5)"),
        (b'["\xed\xa0\x80"]', "encoding: not valid UTF-8 (byte offset 2)"),
        (b"\xff\xfe\x00", "encoding: not valid UTF-16 (byte offset 2)"),
        (b"\0\0\0\0", None),
    ],
)
def test_bad_json_says_where(content: bytes, expected: str | None) -> None:
    found = reason(content)
    assert expected is None or found == expected


@pytest.mark.parametrize("content", [b"[" * 200_000, b"[" * 100_000 + b"]" * 100_000, b'{"a":' * 100_000, b"{}\n" + b"[" * 50_000])
def test_deep_json_is_bad_content(content: bytes) -> None:
    assert reason(content).startswith("nesting: ")


def test_no_reason_quotes_the_content() -> None:
    assert "s3cr3t" not in reason(b'{"s3cr3t": s3cr3t}')


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
blanks = st.text(" \t\r\n", max_size=3)


def written(value: Any, draw: Callable[[Any], Any]) -> str:
    """JSON with arbitrary white space, numbers in several spellings and escapes or not."""

    def gap() -> str:
        return str(draw(blanks))

    if isinstance(value, dict):
        items = [f"{gap()}{written(k, draw)}{gap()}:{written(v, draw)}" for k, v in value.items()]
        return f"{gap()}{{{','.join(items) or gap()}}}{gap()}"
    if isinstance(value, list):
        return f"{gap()}[{','.join(written(item, draw) for item in value) or gap()}]{gap()}"
    if isinstance(value, int) and not isinstance(value, bool):
        spelling = draw(st.sampled_from([str(value), f"{value}.10", f"{value}E+0020", f"{value}.123456789012345678901234567890"]))
        return f"{gap()}{spelling}{gap()}"
    text = stdlib_json.dumps(value, ensure_ascii=draw(st.booleans()))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = stdlib_json.dumps(value)
    return gap() + text + gap()


def exactly(text: str | bytes) -> Any:
    return stdlib_json.loads(
        text, parse_int=lambda n: ("n", n), parse_float=lambda n: ("n", n), object_pairs_hook=lambda pairs: ("o", pairs)
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_document_keeps_its_values_and_its_numbers_texts(data: st.DataObject) -> None:
    text = written(data.draw(values), data.draw)
    (record,) = json(text.encode())
    assert exactly(record) == exactly(text)
    assert b"\n" not in record
    assert b"\r" not in record
    assert json(record) == [record]
    outside = re.sub(rb'"[^"\\]*(?:\\.[^"\\]*)*"', b"", record)
    assert not re.search(rb"\s", outside)


@settings(max_examples=80, deadline=None)
@given(st.lists(values, min_size=1, max_size=5), st.data())
def test_json_lines_give_one_record_a_line(records: list[Any], data: st.DataObject) -> None:
    texts = [re.sub(r"[\r\n]", " ", written(value, data.draw)) for value in records]
    end = data.draw(st.sampled_from(["\n", "\r\n", "\n \t\n"]))
    found = json((end.join(texts) + data.draw(st.sampled_from(["", end]))).encode())
    assert [exactly(record) for record in found] == [exactly(text) for text in texts]
    assert not any(b"\n" in record or b"\r" in record for record in found)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40) | st.text('{}[]",:\\ \n\r0123a.eE-', max_size=20).map(str.encode))
def test_anything_else_is_bad_content_or_really_json(content: bytes) -> None:
    try:
        records = json(content)
    except BadContent:
        return
    for record in records:
        stdlib_json.loads(record)
        assert b"\n" not in record


# --- calling a function ---------------------------------------------------------------------------------------------------


def failure(function: Any, keep_messages: bool = False) -> str:
    with pytest.raises(BadContent) as caught:
        call(function, b"abc", FILE, keep_messages)
    return caught.value.reason


def test_what_a_function_may_return() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2]})
    assert call(lambda content, file: content + file.name.encode(), b"x", FILE, False) == [b"xa.bin"]
    assert call(lambda content, file: bytearray(content), b"x", FILE, False) == [b"x"]
    assert call(lambda content, file: memoryview(content), b"x", FILE, False) == [b"x"]
    assert call(lambda content, file: [b"1", bytearray(b"2")], b"x", FILE, False) == [b"1", b"2"]
    assert call(lambda content, file: (b"%d" % i for i in range(2)), b"x", FILE, False) == [b"0", b"1"]
    assert call(lambda content, file: [], b"x", FILE, False) == []
    assert call(lambda content, file: batch, b"x", FILE, False) == batch


def test_a_table_becomes_one_batch() -> None:
    table = pa.concat_tables([pa.table({"a": [1]}), pa.table({"a": [2]})])
    found = call(lambda content, file: table, b"x", FILE, False)
    assert isinstance(found, pa.RecordBatch)
    assert found.to_pydict() == {"a": [1, 2]}
    empty = call(lambda content, file: table.schema.empty_table(), b"x", FILE, False)
    assert isinstance(empty, pa.RecordBatch)
    assert empty.num_rows == 0
    assert empty.schema == table.schema


async def _coroutine(content: bytes, file: FileInfo) -> bytes:
    return content


@pytest.mark.parametrize(
    ("function", "which"),
    [
        (lambda content, file: None, "returned None"),
        (lambda content, file: "text", "returned str"),
        (lambda content, file: 7, "returned int"),
        (lambda content, file: {b"a": 1}, "returned dict"),
        (lambda content, file: [b"a", "b"], "item 2 is str"),
        (lambda content, file: [None], "item 1 is None"),
        (lambda content, file: FILE, "returned quire.sources.splits.FileInfo"),
        (_coroutine, "returned coroutine"),
    ],
)
def test_a_wrong_result_says_which_type_came_and_which_may(function: Any, which: str) -> None:
    found = failure(function)
    assert which in found
    assert "allowed are bytes, an iterable of bytes, a pyarrow.RecordBatch or a pyarrow.Table" in found


def _raises(content: bytes, file: FileInfo) -> bytes:
    raise ValueError(f"row {content!r} has password=hunter2 " + "y" * 400)


def _raises_in_library(content: bytes, file: FileInfo) -> bytes:
    return bytes(stdlib_json.loads(b"{"))


def _raises_late(content: bytes, file: FileInfo) -> Iterator[bytes]:
    yield b"a"
    raise KeyError("s3cr3t")


def test_an_exception_becomes_its_class_and_place() -> None:
    line = _raises.__code__.co_firstlineno + 1
    assert failure(_raises) == f"ValueError (test_transforms.py line {line})"
    kept = failure(_raises, keep_messages=True)
    assert kept.startswith(f"ValueError (test_transforms.py line {line}): row b'abc' has password=***")
    assert len(kept) <= 300
    assert failure(_raises_late) == f"KeyError (test_transforms.py line {_raises_late.__code__.co_firstlineno + 2})"


def test_the_place_is_in_the_users_code_and_not_in_a_library() -> None:
    line = _raises_in_library.__code__.co_firstlineno + 1
    assert failure(_raises_in_library) == f"JSONDecodeError (test_transforms.py line {line})"
    assert failure(functools.partial(_raises_in_library)) == f"JSONDecodeError (test_transforms.py line {line})"
    assert failure(lambda content, file: json(b"{")).startswith("BadContent (test_transforms.py line ")
    assert failure(int) == "TypeError"


def test_a_message_that_cannot_be_made_is_not_fatal() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def function(content: bytes, file: FileInfo) -> bytes:
        raise Odd

    assert "(no message: RuntimeError)" in failure(function, keep_messages=True)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, asyncio.CancelledError, BaseException])
def test_a_function_that_would_end_its_process_is_one_files_fault(kind: type[BaseException], tmp_path: Path) -> None:
    def function(content: bytes, file: FileInfo) -> bytes:
        if file.path.endswith("7"):
            raise kind("cannot parse")
        return content

    report = gather(
        write(tmp_path / "in", {f"f{i}": b"%d\n" % i for i in range(9)}), tmp_path / "out", transform=function, function_version="1"
    )
    assert (report.files, not_taken(report)) == (8, 1)
    assert report.quarantined[0][1].startswith(f"{kind.__qualname__} (test_transforms.py line ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGALRM])
def test_a_signal_that_asks_to_end_is_not_the_files_fault_and_a_time_limit_is(number: signal.Signals) -> None:
    def handler(_number: int, _frame: object) -> None:
        sys.exit(15)

    def function(content: bytes, file: FileInfo) -> bytes:
        signal.raise_signal(number)
        return content

    before = signal.signal(number, handler)
    try:
        with pytest.raises(SystemExit if number == signal.SIGTERM else BadContent):
            call(function, b"", FILE, False)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
def test_what_is_not_the_files_fault_passes_through(kind: type[BaseException]) -> None:
    def function(content: bytes, file: FileInfo) -> bytes:
        raise kind

    with pytest.raises(kind):
        call(function, b"", FILE, False)


# --- identity -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def edition(tmp_path: Path) -> Callable[[str], ModuleType]:
    """Import the given source as a module `users`, each time from a file of its own."""
    count = 0

    def load(source: str) -> ModuleType:
        nonlocal count
        count += 1
        path = tmp_path / str(count) / "users.py"
        path.parent.mkdir()
        path.write_text(source)
        spec = importlib.util.spec_from_file_location("users", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


PLAIN = "def f(content, file):\n    return content\n"


def test_an_identity_is_the_name_and_a_hash(edition: Callable[[str], ModuleType]) -> None:
    found = identity(edition(PLAIN).f)
    assert re.fullmatch(r"users\.f@[0-9a-f]{32}", found)
    assert identity(edition(PLAIN).f) == found
    assert identity(edition("import os\n\n\n" + PLAIN).f) == found
    assert identity(edition(PLAIN.replace("return content", "return content[1:]")).f) != found
    assert identity(edition(PLAIN).f, version="7") == "users.f@7"


def test_moving_a_function_deeper_does_not_change_its_hash(edition: Callable[[str], ModuleType]) -> None:
    deeper = edition("if True:\n    def f(content, file):\n        return content\n")
    assert identity(deeper.f) == identity(edition(PLAIN).f)


def test_defaults_and_closed_over_constants_count() -> None:
    def make(value: Any, default: Any = 1) -> Callable[..., bytes]:
        def f(content: bytes, file: FileInfo, extra: Any = default) -> bytes:
            return content + value + extra  # type: ignore[no-any-return]

        return f

    same = identity(make(b"a"))
    assert identity(make(b"a")) == same
    assert identity(make({"b": {1, 2, 3}, "a": [1]})) == identity(make({"a": [1], "b": {3, 1, 2}}))
    others = [make(b"b"), make(b"a", 2), make(make(b"a")), make(make(b"b")), make(object()), make(True), make(1), make("1")]
    assert len({same, *map(identity, others)}) == len(others) + 1
    assert identity(make(object())) == identity(make(object()))


def test_lambdas_and_functions_without_source() -> None:
    a, b = (lambda content, file: content), (lambda content, file: content[1:])
    assert identity(a) != identity(b)
    namespace: dict[str, Any] = {}
    exec("f = lambda c, x: c\ng = lambda c, x: c + b'1'\nh = lambda c, x: c + b'2'\ndef k(c, x): return c", namespace)
    assert len({identity(namespace[name]) for name in "fgh"}) == 3
    assert re.search(r"\.k@[0-9a-f]{32}$", identity(namespace["k"]))


def test_a_lambda_alone_on_its_line_is_told_by_its_own_text(edition: Callable[[str], ModuleType]) -> None:
    first = edition("f = dict(\n    a=1, f=lambda c, x: c)['f']\n").f
    moved = edition("f = [lambda c,   x: c][0]  # elsewhere\n").f
    assert identity(first) == identity(moved)
    assert identity(first) != identity(edition("f = lambda c, x: c + b''\n").f)


class Tagger:
    def __init__(self, tag: bytes) -> None:
        self.tag = tag

    def __call__(self, content: bytes, file: FileInfo) -> bytes:
        return self.tag + content

    def method(self, content: bytes, file: FileInfo) -> bytes:
        return content


class Slotted:
    __slots__ = ("tag",)

    def __init__(self, tag: bytes) -> None:
        self.tag = tag

    def __call__(self, content: bytes, file: FileInfo) -> bytes:
        return self.tag + content


def test_callable_objects_methods_and_partials() -> None:
    assert re.fullmatch(r"test_transforms\.Tagger@[0-9a-f]{32}", identity(Tagger(b"a")))
    assert identity(Tagger(b"a")) == identity(Tagger(b"a"))
    assert identity(Tagger(b"a")) != identity(Tagger(b"b"))
    assert identity(Slotted(b"a")) != identity(Slotted(b"b"))
    assert identity(Tagger(b"a").method) != identity(Tagger(b"b").method)
    assert "Tagger.method@" in identity(Tagger(b"a").method)
    one, two = functools.partial(_raises, b"1"), functools.partial(_raises, b"2")
    assert identity(one) != identity(two)
    assert identity(one) == identity(functools.partial(_raises, b"1"))
    assert identity(one).startswith("test_transforms._raises@")
    assert identity(Tagger).startswith("test_transforms.Tagger@")


def test_wrapped_functions_builtins_and_cycles() -> None:
    assert identity(functools.lru_cache(_raises)).startswith("test_transforms._raises@")
    assert identity(bytes.upper) == "builtins.bytes.upper@builtin"
    assert identity(len) == "builtins.len@builtin"
    assert identity(bytes) == "builtins.bytes@builtin"

    def recursive(content: bytes, file: FileInfo) -> bytes:
        return recursive(content[1:], file) if content else b""

    assert identity(recursive) == identity(recursive)
    odd = Tagger(b"")
    odd.tag = [odd, odd.method]  # type: ignore[assignment]
    assert identity(odd) == identity(odd)


def test_what_has_no_identity() -> None:
    with pytest.raises(UsageError, match="a transform is a name or a function, not int"):
        identity(7)  # type: ignore[arg-type]
    for version in ("", "a b", "a@b", "a\n"):
        with pytest.raises(UsageError, match="function_version is a word"):
            identity(_raises, version=version)
