"""JSON lines: one object a line, whose fields are the columns.

Arrow parses; before that msgspec looks at each line, since Arrow's parser ends the process where it meets a lone null, or objects that
are nested 100,000 deep (seen in pyarrow 26), and since both together say how many lines there are.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import msgspec
import pyarrow as pa
import pyarrow.json as arrow_json

from quire.formats.damage import ARROW
from quire.sources.transforms.columnar import merged
from quire.sources.transforms.columns import stored
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.schemas import type_text
from quire.sources.transforms.text.reader import Reader, check_utf8
from quire.sources.transforms.text.rejects import DoesNotFitError, Span
from quire.sources.transforms.text.typed import typed

_EMPTY = re.compile(rb"^[ \t\r]*\n|^[ \t\r]+\Z", re.MULTILINE)
_BEGUN = (b"\n\n", b"\n\r", b"\n ", b"\n\t")  # quicker to find: only such a text has an empty line
_NOT_LINES = "not one JSON object a line"
_TWICE = "it names a field twice"


class _Object(msgspec.Struct):
    """Any object: its fields are looked at, and none is kept."""


_OBJECTS, _VALUES = msgspec.json.Decoder(_Object), msgspec.json.Decoder(dict[str, Any])
_FIELDS, _VALUE, _TEXTS = msgspec.json.Decoder(dict[str, msgspec.Raw]), msgspec.json.Decoder(), msgspec.json.Encoder()


@dataclass(frozen=True)
class JsonLines(Reader):
    """Reads JSON lines. `lenient`: fields that are not among the columns are left out."""

    lenient: bool = False

    name: ClassVar[str] = "jsonl"
    split: ClassVar[str] = "lines"

    def head(self, text: bytes) -> tuple[None, int]:
        """Each line stands for itself."""
        return None, 0

    def parse(self, head: None, text: bytes) -> pa.RecordBatch:
        """The rows of some lines."""
        check_utf8(text)
        return self._rows(text, _objects(text))

    def _rows(self, text: bytes, objects: int) -> pa.RecordBatch:
        own = self.own
        if not objects:
            return self.rows([pa.array([], field.type) for field in own])
        return self.rows(self._values(text, objects, own))

    def _values(self, text: bytes, objects: int, own: pa.Schema) -> list[pa.Array]:
        read, options = _options(own, self.lenient)
        one_block = arrow_json.ReadOptions(use_threads=False, block_size=len(text) + 1)
        try:
            table = arrow_json.read_json(pa.BufferReader(text), one_block, options)
        except (*ARROW, ValueError) as e:
            twice = "specified twice" in str(e)
            raise DoesNotFitError(_TWICE if twice else f"a value does not fit into its column ({type(e).__name__})") from None
        if table.num_rows != objects:
            raise DoesNotFitError(_NOT_LINES)
        columns = [_one(table.column(field.name)) for field in read]
        return [typed(column, field.type, field.name) for column, field in zip(columns, own, strict=True)]

    def records(self, text: bytes, start: int) -> list[Span]:
        """Lines that are not empty."""
        found, at = list[Span](), start
        while at < len(text):
            end = text.find(b"\n", at) + 1 or len(text)
            if not text[at:end].isspace():
                found.append((at, end))
            at = end
        return found

    def ended(self, text: bytes) -> int:
        """Lines that end."""
        return text.rfind(b"\n") + 1

    def why(self, head: None, record: bytes, error: DoesNotFitError) -> str:
        """Why a line does not fit; no value of it is said."""
        try:
            check_utf8(record)
            found = _VALUES.decode(record)
        except DoesNotFitError as e:
            return str(e)
        except RecursionError:
            return "its objects are nested too deeply"
        except msgspec.ValidationError as e:
            return f"not a JSON object: {e}"
        except msgspec.MsgspecError as e:
            return f"not valid JSON: {e}"
        return str(error) if str(error) == _TWICE else next(_misfits(found, [*self.own], "", self.lenient), str(error))

    def rescue(self, head: None, record: bytes) -> pa.RecordBatch:
        """A line whose fields that do not fit become one JSON object, as they stand there."""
        check_utf8(record)
        kinds, keep, rescued = {field.name: field.type for field in self.own}, dict[str, msgspec.Raw](), dict[str, msgspec.Raw]()
        try:
            pairs = json.loads(record, object_pairs_hook=list)
            fields = _FIELDS.decode(record)
            if len(fields) < len(pairs):
                raise DoesNotFitError(_TWICE)  # to rescue one of both would lose the other
            for name, raw in fields.items():
                value = _VALUE.decode(raw)
                fits = name in kinds and (value is None or next(_misfit(value, kinds[name], name), None) is None)
                (keep if fits else rescued)[name] = raw
        except (msgspec.MsgspecError, RecursionError, ValueError) as e:
            raise DoesNotFitError(_NOT_LINES) from e
        left = b"{" + b",".join(_named(name, raw) for name, raw in keep.items()) + b"}"
        values = self._values(left, 1, self.own)
        return self.rows(values, [(b"{" + b",".join(_named(name, raw) for name, raw in rescued.items()) + b"}").decode()])

    def joined(self, head: None, texts: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]]:
        """The rows of several files."""
        counts = [_objects(text) for text in texts]
        whole = b"".join(text if text.endswith(b"\n") else text + b"\n" for text in texts)
        check_utf8(whole)
        return self._rows(whole, sum(counts)), counts

    def infer(self, text: bytes, *, whole: bool = True) -> pa.Schema:
        """The columns of the lines; those that cannot be read, as one that is cut off, show nothing."""
        rows = list[dict[str, Any]]()
        for first, end in self.records(text, 0):
            with suppress(msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                rows.append(_VALUES.decode(text[first:end]))
        alone = [rows] if _schema(rows) is not None else [[row] for row in rows]
        found = Counter(schema for some in alone if (schema := _schema(some)) is not None)
        columns = merged(found.items(), of_text=True)
        if columns is None:
            raise BadContent("none of its lines is a JSON object" + (", but one array of all lines" if text.lstrip()[:1] == b"[" else ""))
        return columns


def _named(name: str, raw: msgspec.Raw) -> bytes:
    return _TEXTS.encode(name) + b":" + bytes(raw)


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _objects(text: bytes) -> int:
    """How many lines a text has that are not empty; DoesNotFitError where one of them is not one object."""
    try:
        objects = len(_OBJECTS.decode_lines(text))
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise DoesNotFitError(f"not valid JSON ({type(e).__name__})") from None
    lines = text.count(b"\n") + (text[-1:] != b"\n" and text != b"")
    if text[:1].isspace() or any(mark in text for mark in _BEGUN):
        lines -= len(_EMPTY.findall(text))
    if lines != objects:
        raise DoesNotFitError(_NOT_LINES)
    return objects


@lru_cache(100)
def _options(columns: pa.Schema, lenient: bool) -> tuple[pa.Schema, arrow_json.ParseOptions]:
    """The columns as Arrow reads them from JSON, and what it is told."""
    read = pa.schema([pa.field(f.name, read_as(f.type)) for f in columns])
    return read, arrow_json.ParseOptions(
        explicit_schema=read, newlines_in_values=False, unexpected_field_behavior="ignore" if lenient else "error"
    )


def read_as(kind: Any) -> pa.DataType:
    """The type as which Arrow reads one: days and times as texts, which `typed` takes as strictly as those of other texts."""
    of = pa.types
    if of.is_temporal(kind):
        return pa.string()
    if of.is_struct(kind):
        return pa.struct([pa.field(f.name, read_as(f.type)) for f in kind])
    return pa.list_(read_as(kind.value_type)) if of.is_list(kind) else kind


def _schema(rows: list[dict[str, Any]]) -> pa.Schema | None:
    """The columns of some objects; None where their values have several types."""
    try:
        return stored(pa.schema(list(pa.array(rows).type))) if rows else None
    except (*ARROW, OverflowError, ValueError, TypeError, WrongTypeError):
        return None


# ------------------------------------------------------------------------------------------------------------- why a line does not fit
SPOKEN = {bool: "true or false", int: "another number", float: "a fraction", str: "text", dict: "an object", list: "a list"}


def _misfits(found: dict[str, Any], fields: Iterable[pa.Field], within: str, lenient: bool = False) -> Iterator[str]:
    """The fields of an object that do not fit into columns, in words that say no value."""
    kinds = {field.name: field.type for field in fields}
    for name, value in found.items():
        at = within + name
        if name not in kinds:
            if lenient:
                continue
            near = next((known for known in kinds if known.lower() == name.lower()), None)
            yield f"the field {at[:100]!r} is not among the columns" + (f", where it is called {near!r}" if near else "")
        elif value is not None:
            yield from _misfit(value, kinds[name], at, lenient)


def _misfit(value: Any, kind: Any, at: str, lenient: bool = False) -> Iterator[str]:
    of = pa.types
    if of.is_struct(kind) and isinstance(value, dict):
        yield from _misfits(value, kind, f"{at}.", lenient)
    elif of.is_list(kind) and isinstance(value, list):
        for each in value:
            yield from _misfit(each, kind.value_type, f"{at}[]", lenient) if each is not None else ()
    elif not _fits(value, kind):
        like = " that is not one" if of.is_temporal(kind) and isinstance(value, str) else ""
        yield f"the column {at[:100]!r} is {type_text(kind, at)}, and here it is {SPOKEN[type(value)]}{like}"


def _fits(value: Any, kind: Any) -> bool:
    of = pa.types
    taken: Any = bool if of.is_boolean(kind) else int if of.is_integer(kind) else int | float
    if of.is_decimal(kind):
        taken = int | float | str
    elif of.is_string(kind) or of.is_temporal(kind):
        taken = str
    if not isinstance(value, taken) or (isinstance(value, bool) and taken is not bool):
        return False
    try:
        typed(pa.array([str(value)]), kind, "") if of.is_decimal(kind) or of.is_temporal(kind) else pa.array([value], kind)
    except (*ARROW, OverflowError, ValueError, TypeError, DoesNotFitError):
        return False
    return True
