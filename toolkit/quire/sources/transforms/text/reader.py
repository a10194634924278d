"""Files of text that hold rows: one reader for each kind.

content → UTF-8 → rows in the columns of the plan; records that do not fit stand alone, and the others count (see `rejects`)
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Self, TypeVar

import pyarrow as pa

from quire.sources import magic
from quire.sources.transforms.columns import LARGEST
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import encodings
from quire.sources.transforms.text.chunks import chunks
from quire.sources.transforms.text.rejects import DoesNotFitError, Span, told


class Rejected(NamedTuple):
    """A record that does not fit: where it begins in the content, its bytes with its end, and why."""

    offset: int
    record: bytes
    reason: str


R = TypeVar("R")  # a record that does not fit, as whoever takes it knows it


class Parsed(NamedTuple, Generic[R]):
    """Some records of a stream: their rows, or lines, those that do not fit, and the byte of the file behind them."""

    made: list[Any]
    rejected: list[R]
    end: int


@dataclass(frozen=True)
class Reader(ABC):
    """Reads one kind of text; travels to the tasks.

    columns  of the rows; None: not known yet
    beside   the beginning of the file, where only a record of it is read
    rescued  the column that takes, as one JSON object, fields that are not among the columns and values that do not fit; "": none does
    """

    encoding: str = encodings.AUTO
    columns: pa.Schema | None = None
    beside: bytes = b""
    rescued: str = ""

    name: ClassVar[str]
    split: ClassVar[str]  # as `quire.process` calls it
    format: ClassVar[str] = "parquet"  # of the data files: rows, or lines as bytes

    # --------------------------------------------------------------------------------------------------------- of each kind
    @abstractmethod
    def head(self, text: bytes) -> tuple[Any, int]:
        """The words of a text's beginning about the rest, and where that begins; BadContent where they are of no use."""

    @abstractmethod
    def parse(self, head: Any, text: bytes) -> Any:
        """The rows of whole records, or their lines; DoesNotFitError where one of them does not fit."""

    @abstractmethod
    def records(self, text: bytes, start: int) -> list[Span]:
        """Where each record of a text begins and ends, from byte `start` on; none of what is empty."""

    @abstractmethod
    def ended(self, text: bytes) -> int:
        """How many bytes of a text that begins with a record are records that end in it, whatever follows."""

    @abstractmethod
    def why(self, head: Any, record: bytes, error: DoesNotFitError) -> str:
        """Why a record does not fit."""

    @abstractmethod
    def rescue(self, head: Any, record: bytes) -> pa.RecordBatch:
        """The row of a record that does not fit, whose values go to the column `rescued`; DoesNotFitError where that does not help."""

    @abstractmethod
    def joined(self, head: Any, texts: Sequence[bytes]) -> tuple[Any, list[int]]:
        """The rows of several texts with the same head, parsed together, and how many each has; DoesNotFitError if in doubt.

        The lines of each, where data files hold lines.
        """

    @abstractmethod
    def infer(self, text: bytes, *, whole: bool = True) -> pa.Schema:
        """The columns that some records show, of which without `whole` the last one may be cut off: null where a column has no value.

        BadContent where they show none.
        """

    def check(self, content: bytes) -> None:
        """BadContent for a file of another kind, where its first bytes say so."""
        magic.check(content, self.name)

    # ------------------------------------------------------------------------------------------------------------------- for all
    def of(self, columns: pa.Schema | None) -> Self:
        """The same with the columns that are known now."""
        return dataclasses.replace(self, columns=columns)

    def following(self, beginning: bytes) -> Self:
        """The same for a record alone of a file that begins like this."""
        return dataclasses.replace(self, beside=beginning)

    @property
    def headline(self) -> bytes:
        """The beginning of each data file."""
        return b""

    @property
    def own(self) -> pa.Schema:
        """The columns that fields of the text have."""
        assert self.columns is not None
        return _without(self.columns, self.rescued) if self.rescued in self.columns.names else self.columns

    def rows(self, columns: Sequence[pa.Array], rescued: Sequence[str | None] = ()) -> pa.RecordBatch:
        """Rows of values of the own columns, and of what was rescued of each; DoesNotFitError where one value is too long."""
        assert self.columns is not None
        own = self.own
        if own is not self.columns:
            n = len(columns[0]) if columns else len(rescued)
            there = dict(zip(own.names, columns, strict=True)) | {self.rescued: pa.array(rescued or [None] * n, pa.string())}
            columns = [there[name] for name in self.columns.names]
        return check_length(pa.record_batch(columns, schema=self.columns))

    @property
    def wide(self) -> bool:
        """Whether no line can be found from the middle of a file."""
        return self.encoding != encodings.AUTO and encodings.is_wide(b"", self.encoding)

    def read(self, content: bytes, *, begins: bool) -> tuple[list[Any], list[Rejected]]:
        """The rows of a content, or its lines, and the records that do not fit, each alone. `begins`: the file begins with it."""
        if begins:
            self.check(content)
        text = self._text(content)
        head, start = self.head(text.content)
        return self._told(text, head, start, 1 if begins else 0)

    def stream(self, pieces: Iterator[bytes], most: int, start: int = 0) -> Iterator[Parsed[Rejected]]:
        """The same of what is too long to be held, chunk by chunk, from byte `start` of a file on: all offsets are those of the file.

        A record has up to `most` bytes. BadContent at any time.
        """
        head, line, records, out = None, int(not start), 0, 0
        for text in chunks(pieces, self.encoding, self.ended, most, start):
            first = 0
            if not head:  # the first one, unless empty lines come before what a file begins with
                head, first = self.head(text.content)
            made, rejected = self._told(text, head, first, line, (records, out))
            yield Parsed(made, rejected, text.end)
            line, out = line and line + text.content.count(b"\n"), out + len(rejected)
            records += sum(each.count(b"\n") if isinstance(each, bytes) else each.num_rows for each in made) + len(rejected)

    def _told(
        self, text: encodings.Text, head: Any, start: int, line: int, before: tuple[int, int] = (0, 0)
    ) -> tuple[list[Any], list[Rejected]]:
        """The rows of a text, or its lines, and the records that do not fit; `line`: the number of its first one, or 0: none is told."""
        try:
            return [self.parse(head, text.content[start:] if start else text.content)], []
        except DoesNotFitError as e:
            records = self.records(text.content, start)
            if not records:
                raise BadContent(str(e)) from None
        fitting, rejected = told(
            text.content, records, lambda part: self.parse(head, part), lambda part, e: self.why(head, part, e),
            functools.partial(self.rescue, head) if self.rescued else None, before,
        )  # fmt: skip
        places = text.places({at for span, _ in rejected for at in span})
        found, at, counted = list[Rejected](), line, 0
        for (first, end), reason in rejected:
            at, counted = at + text.content.count(b"\n", counted, first), first
            found.append(Rejected(places[first], text.stored(first, end), f"line {at:,}: {reason}" if line else reason))
        return fitting, found

    def key(self, content: bytes) -> Any:
        """Files of the same key may be parsed together; None: this one is parsed alone."""
        return self.name if encodings.of(content, self.encoding) == (encodings.UTF8, 0) else None

    def together(self, contents: Sequence[bytes]) -> tuple[Any, list[int]]:
        """The rows of files of the same key, one after the other, and how many each has; BadContent: parse fewer."""
        for content in contents:
            self.check(content)
        try:
            return self.joined(self.head(contents[0])[0], contents)
        except DoesNotFitError as e:
            raise BadContent(str(e)) from None

    def sampled(self, content: bytes, *, whole: bool) -> pa.Schema:
        """The columns of a file, or of its beginning; BadContent where it shows none."""
        self.check(content)
        try:
            return self.infer(encodings.text(content, self.encoding, cut=not whole).content, whole=whole)
        except DoesNotFitError as e:
            raise BadContent(f"it shows no columns: {e}") from None

    def _text(self, content: bytes) -> encodings.Text:
        encoding = encodings.of(self.beside, self.encoding)[0] if self.beside else self.encoding
        return encodings.text(content, encoding)


@functools.lru_cache(100)
def _without(columns: pa.Schema, name: str) -> pa.Schema:
    return pa.schema([field for field in columns if field.name != name])


def check_utf8(text: bytes) -> None:
    """DoesNotFitError where a text is not UTF-8."""
    if not text.isascii():
        try:
            text.decode()
        except UnicodeDecodeError as e:
            raise DoesNotFitError(f"not valid UTF-8 at its byte {e.start:,}: say encoding=") from None


def check_length(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same rows; DoesNotFitError where one value is longer than a value may be."""
    if batch.nbytes > LARGEST:
        raise DoesNotFitError(f"its values have {batch.nbytes:,} bytes, and {LARGEST:,} can be held")
    return batch
