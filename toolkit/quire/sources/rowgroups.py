"""Row groups of a part of a Parquet file: a row group belongs to the range in which its first byte lies.

So a listing needs no footer, and ranges that touch hold each row group once, however a file was cut. Of the file the footer is read and
the row groups that are wanted, each in one piece, on condition of the planned version.
"""

from __future__ import annotations

import io

import pyarrow as pa

from quire.errors import QuireError
from quire.formats.parquet import DAMAGED, ParquetFile
from quire.sources.content import BadContent
from quire.sources.ranges import read
from quire.storage import Content, Gone, Request, Store, Unreadable

__all__ = ["request", "row_groups"]

TAIL = 64 << 10  # bytes at a file's end that are read first: nearly always all of its footer


def request(name: str, version: str, size: int) -> Request:
    """What to read first of a file: its end."""
    begin = max(size - TAIL, 0)
    return Request(name, version, size, begin, size - begin)


def row_groups(store: Store, asked: Request, content: Content, start: int, length: int, most: int) -> pa.Table | None:
    """The rows of the row groups that begin in [start, start + length), or None if there are none; `content` is what was `asked`.

    Raises BadContent for a file that is no Parquet, or damaged, or whose rows are more than `most` bytes; Gone and Unreadable.
    """
    if isinstance(content, Gone | Unreadable):
        raise content
    tail = content if isinstance(content, bytes) else b"".join(content)
    source = _Ranges(store, asked, tail)
    try:
        file = ParquetFile(source)
        spans = [_span(file.metadata.row_group(i), asked.size) for i in range(file.num_row_groups)]
        mine = [i for i, (first, _, _) in enumerate(spans) if start <= first < start + length]
        if not mine:
            return None
        if (held := sum(spans[i][2] for i in mine)) > most:
            raise BadContent(f"its row groups are larger than max_file_size: {held:,} bytes, allowed are {most:,}")
        tables = []
        for i in mine:
            source.fetch(*spans[i][:2])
            tables.append(file.read_row_group(i))
        return pa.concat_tables(tables)
    except QuireError:
        raise
    except (*DAMAGED, pa.ArrowException) as e:
        if source.failed is not None:
            raise source.failed from None
        raise BadContent(f"{type(e).__name__}: not a Parquet file, or damaged") from None


def _span(group: object, size: int) -> tuple[int, int, int]:
    """Where a row group begins and ends, and its bytes when unpacked; ValueError where that cannot be."""
    chunks = [group.column(i) for i in range(group.num_columns)]  # type: ignore[attr-defined]  # pyarrow has no types
    starts = [min(x for x in (c.dictionary_page_offset, c.data_page_offset) if x) for c in chunks]
    first = min(starts)
    end = max(at + c.total_compressed_size for at, c in zip(starts, chunks, strict=True))
    if not 0 < first <= end <= size:
        raise ValueError("a row group that lies outside of the file")  # nobody would read it
    return first, end, sum(c.total_uncompressed_size for c in chunks)


class _Ranges(io.RawIOBase):
    """A file as pyarrow wants it, of which the end is here and other ranges are fetched."""

    def __init__(self, store: Store, asked: Request, tail: bytes) -> None:
        self.store, self.asked, self.at = store, asked, 0
        self.tail, self.held = (asked.start, tail), (0, b"")
        self.failed: BaseException | None = None  # pyarrow may have its own words for it

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.asked.size)[whence]
        return self.at

    def fetch(self, start: int, end: int) -> None:
        """Hold a range, in place of the one before."""
        if start < self.tail[0]:
            self.held = start, self._fetched(start, end - start)

    def read(self, n: int = -1) -> bytes:
        n = self.asked.size - self.at if n is None or n < 0 else min(n, self.asked.size - self.at)
        for start, data in (self.tail, self.held):
            if start <= self.at and self.at + n <= start + len(data):
                found = data[self.at - start : self.at - start + n]
                break
        else:
            found = self._fetched(self.at, n)
        self.at += len(found)
        return found

    def _fetched(self, start: int, length: int) -> bytes:
        try:
            return read(self.store, self.asked._replace(start=start, length=length))
        except Exception as e:
            self.failed = e
            raise
