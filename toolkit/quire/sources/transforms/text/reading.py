"""Splits of files of text that hold rows, read by a reader in the place of a user's function."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import pyarrow as pa

from quire.sources.kafka.rows import as_batch
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import Made, Processing, QuarantinedRecord
from quire.sources.transforms.text import chunks, encodings
from quire.sources.transforms.text.reader import Parsed, Reader, Rejected
from quire.storage import ReadRequest


@dataclass(frozen=True)
class Reading(Processing):
    """The same as `Processing`, of which nothing is a user's."""

    reader: Reader | None = None

    streams: ClassVar[bool] = True

    @classmethod
    def by(cls, reader: Reader, most: int, ends: tuple[str, ...] = ()) -> Reading:
        """The reading of a call; `ends`: of names of files that are not cut."""
        return cls(_never, reader.split, reader.format, most=most, uncut=("",) if reader.wide else ends, reader=reader)

    def call(self, content: bytes | pa.Table, file: FileInfo, span: tuple[int, int], attempt: int, end: int | None = None) -> Made:
        """The rows of a split, and its records that do not fit; BadContent where the file cannot be read at all."""
        assert self.reader is not None
        assert isinstance(content, bytes)
        self._check_columns(content, whole=True)
        batches, rejected = self.reader.read(content, begins=not span[0])
        rows = b"".join(batches) if self.format == "lines" else batches[0] if batches else b""
        if self.format != "lines" and len(batches) > 1:
            rows = as_batch(pa.Table.from_batches(batches))
        return Made(rows, tuple(map(_aside, rejected)))

    @property
    def longest(self) -> int:
        """The bytes of a range of lines that is parsed as a whole; of a longer one, as a file that grew has it, nothing is held."""
        return min(chunks.RANGE, self.most)

    def request(self, name: str, version: str, size: int, start: int, length: int) -> ReadRequest:
        """A whole file as a stream, however long it is, and a long range likewise, from one byte before it on; else as for a function."""
        if length == size:
            return ReadRequest(name, version, size, 0, size)
        if length > self.longest and not self.whole(name):
            begin = max(start - 1, 0)
            return ReadRequest(name, version, size, begin, size - begin)
        return super().request(name, version, size, start, length)

    def stream(self, pieces: Iterator[bytes], start: int = 0) -> Iterator[Parsed[QuarantinedRecord]]:
        """The same as `call` of what is not held, some records at a time, from byte `start` of a file on; BadContent, too, at any of them.

        All offsets are those of the file.
        """
        assert self.reader is not None
        beginning = next(pieces, b"")
        if not start:
            self.reader.check(beginning)
        self._check_columns(beginning, whole=False)
        for made, rejected, end in self.reader.stream(chain((beginning,), pieces), self.most, start):
            yield Parsed([each for each in made if len(each)], [*map(_aside, rejected)], end)

    def check_followed(self, beginning: bytes) -> None:
        """BadContent for a file that begins like this, if its new lines cannot be told from the others."""
        assert self.reader is not None
        if encodings.is_wide(beginning, self.reader.encoding):
            raise BadContent(
                f"its text is {encodings.of(beginning, self.reader.encoding)[0]}, in which no line's end stands alone, so that its new "
                f"lines cannot be told: write it as UTF-8, or gather it without on_append='tail'"
            )

    def _check_columns(self, content: bytes, *, whole: bool) -> None:
        assert self.reader is not None
        if self.columns is None:
            self.reader.sampled(content, whole=whole)  # says what is wrong with it, unless others are wrong, and it is not
            raise BadContent(
                "its columns are not known, as no file that was looked at could be read: forget it, and run again with schema="
            )

    @property
    def columns(self) -> pa.Schema | None:
        """Those of the rows; None: nothing says them."""
        assert self.reader is not None
        return self.reader.columns

    @property
    def header(self) -> bytes:
        """The beginning of each data file."""
        assert self.reader is not None
        return self.reader.headline

    def key(self, content: bytes) -> Any:
        """See `Reader.key`."""
        assert self.reader is not None
        return self.reader.key(content)

    def together(self, contents: Sequence[bytes]) -> tuple[Any, list[int]]:
        """See `Reader.together`."""
        assert self.reader is not None
        return self.reader.together(contents)

    def needs_beginning(self, record: bytes) -> bool:
        """Whether a record can be read only beside the beginning of its file, which names the columns, or tells an encoding."""
        assert self.reader is not None
        return getattr(self.reader, "header", False) or b"\0" in record

    def following(self, beginning: bytes) -> Reading:
        """The same for a record alone of a file that begins like this."""
        assert self.reader is not None
        return dataclasses.replace(self, reader=self.reader.following(beginning))

    def of(self, columns: pa.Schema | None) -> Reading:
        """The same with the columns that are known now."""
        assert self.reader is not None
        return dataclasses.replace(self, reader=self.reader.of(columns))


def _aside(r: Rejected) -> QuarantinedRecord:
    return QuarantinedRecord(r.offset, r.record, len(r.record), r.reason, None, len(r.record))


def _never(*_: object) -> None:
    raise AssertionError("a reader reads, and no function")
