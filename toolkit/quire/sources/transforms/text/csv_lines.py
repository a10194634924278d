"""Delimited text that stays text: the records of many files as lines below one header, which each data file has once.

A record of a file with the same columns and marks stays as its bytes, less its line end, which becomes a newline. The record of any other
file is written anew: each value keeps its text, and has quotes where it needs them; a column that the file lacks is empty.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import UsageError, about
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text.csv import Csv, Names, one
from quire.sources.transforms.text.rejects import DoesNotFitError


@dataclass(frozen=True)
class CsvLines(Csv):
    """Reads delimited text, and gives lines.

    dialect  the delimiter of the data files, and their quote if there is one
    headed   whether data files begin with a header
    """

    dialect: str = ',"'
    headed: bool = True

    format: ClassVar[str] = "lines"

    @property
    def headline(self) -> bytes:
        """The names of the columns; empty where they are not known, or have no header."""
        return self._joined([pa.array([name]) for name in self.columns.names]) if self.headed and self.columns else b""

    def check_columns(self) -> None:
        """UsageError for names that no header of one line can hold."""
        for name in self.columns.names if self.headed and self.columns else ():
            if not self._is_plain(name):
                with about("schema"):
                    raise UsageError(f"the column {name!r} does not go into a header of one line: call it otherwise in schema=.")

    def parse(self, head: Names, text: bytes) -> bytes:
        """The lines of some records."""
        if not text.strip(b"\r\n"):
            return b""
        super().parse(head, text)
        return self._lines(head, text)

    def joined(self, head: Names, texts: Sequence[bytes]) -> tuple[list[bytes], list[int]]:
        """The lines of several files."""
        _, counts = super().joined(head, texts)
        return [self._lines(head, body) if n else b"" for body, n in zip(self._bodies(texts), counts, strict=True)], counts

    def _lines(self, head: Names, text: bytes) -> bytes:
        """The lines of records that fit."""
        assert self.columns is not None
        if head == tuple(self.columns.names) and self.delimiter + self.quote == self.dialect:
            return self._as_they_are(text)
        table = self._table(text, head)
        empty = pa.nulls(table.num_rows, pa.string())
        return self._joined([one(table.column(f.name)) if f.name in head else empty for f in self.columns])

    def infer(self, text: bytes, *, whole: bool = True) -> pa.Schema:
        """The columns, whose values stay texts."""
        return pa.schema([pa.field(name, pa.string()) for name in super().infer(text, whole=whole).names])

    def _named(self, text: bytes) -> tuple[Names, int]:
        names, start = super()._named(text)
        if odd := next((name for name in names if not self._is_plain(name)), None):
            raise BadContent(f"the column {odd[:100]!r} of its header has a line end, and the header of a data file is one line")
        return names, start

    def _is_plain(self, name: str) -> bool:
        return not re.search(r"[\r\n]", name) and bool(self.dialect[1:] or self.dialect[0] not in name)

    def _as_they_are(self, text: bytes) -> bytes:
        if b"\r" in text or b"\n\n" in text or text.startswith(b"\n"):
            return b"".join(text[first:end].rstrip(b"\r\n") + b"\n" for first, end in self._spans(text))
        return text if text.endswith(b"\n") else text + b"\n"

    def _joined(self, columns: Sequence[pa.Array]) -> bytes:
        lines = pc.binary_join_element_wise(*map(self._spelled, columns), self.dialect[0])
        return b"".join(pc.binary_join_element_wise(lines, "", "\n").cast(pa.binary()).to_pylist())

    def _spelled(self, column: pa.Array) -> pa.Array:
        """The values of a column as they stand in a line; null is empty, and an empty text has quotes."""
        delimiter, quote = self.dialect[0], self.dialect[1:]
        if quote:
            odd = pc.match_substring_regex(column, rf"[{re.escape(delimiter + quote)}\r\n]|^\s|\s$|^$")
            quoted = pc.binary_join_element_wise(quote, pc.replace_substring(column, quote, 2 * quote), quote, "")
            column = pc.if_else(odd, quoted, column)
        elif pc.any(pc.match_substring_regex(column, rf"[{re.escape(delimiter)}\r\n]")).as_py():
            raise DoesNotFitError(f"a value of it has a {delimiter!r} or a line end, and data files have no quotes")
        return pc.fill_null(column, "")
