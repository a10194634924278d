"""Delimited text: one record a line, or over several where a quoted value has line ends; its first record names the columns.

Arrow parses, each value as a text; `typed` makes values of the columns' types of them.
"""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from quire.formats.damage import ARROW
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import encodings
from quire.sources.transforms.text.reader import Reader, check_utf8
from quire.sources.transforms.text.rejects import DoesNotFitError, Span
from quire.sources.transforms.text.typed import inferred, typed

_EXPECTED = re.compile(r"Expected (\d+) columns, got (\d+)")
_END = secrets.token_hex(16)  # a record of this text ends a file among others that are parsed with it
_DELIMITERS = (",", ";", "\t", "|")
Names = tuple[str, ...]  # of a file's columns, in its order


@dataclass(frozen=True)
class Csv(Reader):
    """Reads delimited text.

    delimiter  one character between values
    quote      one character around values; doubled it stands for itself; "": there is none
    header     whether the first record names the columns; else they are those of the destination or `columns`, in their order
    nulls      texts that stand for null where they have no quotes
    """

    delimiter: str = ","
    quote: str = '"'
    header: bool = True
    nulls: tuple[str, ...] = ("",)

    name: ClassVar[str] = "csv"
    split: ClassVar[str] = "file"

    def of(self, columns: pa.Schema | None) -> Csv:
        """The same with the columns that are known now."""
        return dataclasses.replace(self, columns=columns)

    # ------------------------------------------------------------------------------------------------------------------ the head
    def head(self, text: bytes) -> tuple[Names, int]:
        """The names of the file's columns, and where its records begin; BadContent for one that is not among the job's."""
        if self.beside and self.header:
            return self._checked(self._named(encodings.text(self.beside, self.encoding, cut=True).content)[0]), 0
        names, start = self._named(text) if self.header else (self._unnamed(text), 0)
        return self._checked(names), start

    def _named(self, text: bytes) -> tuple[Names, int]:
        for first, end in self._spans(text):
            if not text[first:end].strip():
                continue
            if _record(self.delimiter, self.quote).match(text, first).lastindex:  # type: ignore[union-attr]  # it has matched there
                raise BadContent("a quoted value of its header has no end")
            values = [value.strip() for value in self.values(text[first:end])]
            names = tuple(value or f"_c{i}" for i, value in enumerate(values))
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise BadContent(f"its header names a column twice: {twice[:100]!r}")
            return names, end
        return (), len(text)  # an empty file

    def _unnamed(self, text: bytes) -> Names:
        if self.columns is not None:
            return tuple(self.own.names)
        first = next(self._spans(text), None)
        return tuple(f"_c{i}" for i in range(len(self.values(text[first[0] : first[1]])))) if first else ()

    def _checked(self, names: Names) -> Names:
        known = dict.fromkeys(names if self.columns is None else self.own.names)
        if self.rescued:
            return names  # values of other columns are rescued
        if unknown := next((name for name in names if name not in known), None):
            near = next((name for name in known if name.lower() == unknown.lower()), None)
            called = f", where it is called {near!r}" if near else ""
            raise BadContent(f"the column {unknown[:100]!r} of its header is not among the columns of the job, or its destination{called}")
        return names

    def values(self, record: bytes) -> list[str]:
        """The texts of one record; BadContent where it is none."""
        try:
            check_utf8(record)
            record = record.rstrip(b"\r\n") + b"\n"  # without which Arrow counts no columns
            table = self._table(record, tuple(f"f{i}" for i in range(record.count(self.delimiter.encode()) + 1)), unnamed=True)
            return [column[0].as_py() or "" for column in table.columns]
        except DoesNotFitError as e:
            raise BadContent(f"its first record is not readable: {e}") from None

    # --------------------------------------------------------------------------------------------------------------- the records
    def parse(self, head: Names, text: bytes) -> pa.RecordBatch:
        """The rows of some records."""
        return self._parsed(head, [text])[0]

    def records(self, text: bytes, start: int) -> list[Span]:
        """Records that are not empty lines."""
        return list(self._spans(text, start))

    def ended(self, text: bytes) -> int:
        """Records that end; a carriage return at the end of a text may be half of a line end."""
        if self.quote and self.quote.encode() in text:
            found = _records(self.delimiter, self.quote).match(text)
            return found.end() if found else 0
        return max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1

    def why(self, head: Names, record: bytes, error: DoesNotFitError) -> str:
        """Why a record does not fit."""
        found = _record(self.delimiter, self.quote).match(record)
        return "a quoted value of it has no end" if found and found.lastindex else str(error)

    def rescue(self, head: Names, record: bytes) -> pa.RecordBatch:
        """A record whose values that do not fit, or that are too many, become one JSON object; one with too few values stays out."""
        check_utf8(record)
        values = self.values(record)
        names = (*head, *(f"_c{i}" if f"_c{i}" not in head else f"_c{i}_more" for i in range(len(head), len(values))))
        (row,) = self._table(record.rstrip(b"\r\n") + b"\n", names).to_pylist()
        rescued, columns = {name: row[name] for name in row if name not in self.own.names and row[name] is not None}, list[pa.Array]()
        for field in self.own:
            text = pa.array([row.get(field.name)], pa.string())
            try:
                columns.append(typed(text, field.type, field.name))
            except DoesNotFitError:
                columns.append(pa.nulls(1, field.type))
                rescued[field.name] = row[field.name]
        return self.rows(columns, [json.dumps(rescued, ensure_ascii=False) if rescued else None])

    def key(self, content: bytes) -> Any:
        """Files with the same header may be parsed together."""
        if encodings.of(content, self.encoding) != (encodings.UTF8, 0):
            return None
        return content[: next(self._spans(content), (0, 0))[1]].rstrip(b"\r\n") if self.header else b""

    def joined(self, head: Names, texts: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]]:
        """The rows of several files."""
        return self._parsed(head, self._bodies(texts))

    def _bodies(self, texts: Sequence[bytes]) -> Sequence[bytes]:
        """Texts without their headers."""
        return [text[next(self._spans(text), (0, 0))[1] :] for text in texts] if self.header else texts

    def _parsed(self, head: Names, bodies: Sequence[bytes]) -> tuple[pa.RecordBatch, list[int]]:
        """The rows of some bodies: a record that none of them can hold ends each, unless a quoted value in it has no end."""
        if not head:  # of empty files
            return self._typed(pa.table({})), [0] * len(bodies)
        end = _END.encode() + self.delimiter.encode() * (len(head) - 1) + b"\n"
        whole = b"".join(part for body in bodies for part in (body, b"" if body[-1:] in (b"\n", b"") else b"\n", end))
        check_utf8(whole)
        table = self._table(whole, head)
        is_end = pc.fill_null(pc.equal(one(table.column(0)), _END), False)
        ends = np.flatnonzero(is_end.to_numpy(zero_copy_only=False))
        if len(ends) != len(bodies):
            raise DoesNotFitError("a quoted value has no end")
        rows = table.slice(0, int(ends[0])) if len(bodies) == 1 else table.filter(pc.invert(is_end))
        return self._typed(rows), (np.diff(ends, prepend=-1) - 1).tolist()

    def infer(self, text: bytes, *, whole: bool = True) -> pa.Schema:
        """The columns of some records; those that have too many values, or too few, show nothing."""
        names, start = self._named(text) if self.header else (self._unnamed(text), 0)
        spans = list(self._spans(text, start))
        if not names or not (whole or spans):
            raise BadContent("it is empty")
        others = [mark for mark in _DELIMITERS if mark != self.delimiter and mark in names[0]]
        if len(names) == 1 and others and self.columns is None:
            raise BadContent(f"its only column is {names[0][:100]!r}: say delimiter={others[0]!r}")
        body = text[start : spans[-1][0 if not whole else 1] if spans else start]
        table = self._table(body, names, lenient=True)
        return pa.schema([pa.field(name, inferred(one(column))) for name, column in zip(names, table.columns, strict=True)])

    # ------------------------------------------------------------------------------------------------------------------- parsing
    def _spans(self, text: bytes, start: int = 0) -> Iterator[Span]:
        for found in _record(self.delimiter, self.quote).finditer(text, start):
            if found[0].strip(b"\r\n"):
                yield found.span()

    def _table(self, text: bytes, names: Names, *, lenient: bool = False, unnamed: bool = False) -> pa.Table:
        """The records as columns of texts; `unnamed`: these are Arrow's own names, and there may be fewer columns."""
        if not text.strip(b"\r\n"):
            return pa.table([pa.array([], pa.string())] * len(names), list(names))
        read: dict[str, Any] = {"autogenerate_column_names": True} if unnamed else {"column_names": list(names)}
        one_block, convert = arrow_csv.ReadOptions(use_threads=False, block_size=len(text) + 1, **read), _converting(self.nulls, names)
        try:
            return arrow_csv.read_csv(pa.BufferReader(text), one_block, _parsing(self, lenient), convert)
        except (*ARROW, ValueError) as e:
            raise DoesNotFitError(_reason(e)) from None

    def _typed(self, table: pa.Table) -> pa.RecordBatch:
        there, own = set(table.column_names), self.own
        found = [typed(one(table.column(f.name)), f.type, f.name) if f.name in there else pa.nulls(table.num_rows, f.type) for f in own]
        others = [name for name in table.column_names if name not in own.names]
        if not others:
            return self.rows(found)
        extra = [{name: value for name, value in row.items() if value is not None} for row in table.select(others).to_pylist()]
        return self.rows(found, [json.dumps(each, ensure_ascii=False) if each else None for each in extra])


def one(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return (
        column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    )


def _reason(error: Exception) -> str:
    if found := _EXPECTED.search(str(error)):
        return f"it has {int(found[2]):,} values, and there are {int(found[1]):,} columns"
    return f"not a record of delimited text ({type(error).__name__})"


@lru_cache(100)
def _record(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """A record with its end, as Arrow takes it: after the second quote a value goes on as one without quotes."""
    mark, q = re.escape(delimiter.encode()), re.escape(quote.encode())
    rest = rb"[^" + mark + rb"\r\n]*+"
    inner = rb"[^" + q + rb"]*+(?:" + q + q + rb"[^" + q + rb"]*+)*+"
    value = rb"(?:" + q + inner + rb"(?:" + q + rest + rb"|(\Z))|" + rest + rb")" if quote else rest  # the group: it has no end
    return re.compile(value + rb"(?:" + mark + value + rb")*+(?:\r\n?|\n|\Z)")


@lru_cache(100)
def _records(delimiter: str, quote: str) -> re.Pattern[bytes]:
    """As many records as end in a text, in one match: half of a quoted value is none, nor is a line end of which half may follow."""
    mark, q = re.escape(delimiter.encode()), re.escape(quote.encode())
    rest = rb"[^" + mark + rb"\r\n]*+"
    inner = rb"[^" + q + rb"]*+(?:" + q + q + rb"[^" + q + rb"]*+)*+"
    value = rb"(?:" + q + inner + q + rest + rb"|(?!" + q + rb")" + rest + rb")"
    return re.compile(rb"(?:" + value + rb"(?:" + mark + value + rb")*+(?:\r\n|\n|\r(?!\n|\Z)))*+")


@lru_cache(100)
def _converting(nulls: tuple[str, ...], names: Names) -> arrow_csv.ConvertOptions:
    """Each value stays a text, or is null."""
    how = {"null_values": list(nulls), "strings_can_be_null": True, "quoted_strings_can_be_null": False}
    return arrow_csv.ConvertOptions(column_types={name: pa.string() for name in names}, **how)


def _parsing(csv: Csv, lenient: bool) -> arrow_csv.ParseOptions:
    """`lenient`: records with too many values, or too few, are left out."""
    skip = {"invalid_row_handler": lambda _: "skip"} if lenient else {}
    return arrow_csv.ParseOptions(delimiter=csv.delimiter, quote_char=csv.quote or False, newlines_in_values=bool(csv.quote), **skip)
