"""Row groups of a part of a Parquet file: a row group belongs to the range in which its first byte lies.

So a listing needs no footer, and ranges that touch hold each row group once, however a file was cut. A task reads the footer and
the needed row groups, each in one piece, on condition of the planned version.

A few bytes of Parquet may mean any number of gigabytes, so nothing is decoded before it is known what that can cost: the footer by its
length, unpacking and values by the headers of the pages (`pages`), texts by the lengths of those in a dictionary. Texts are decoded as
numbers into their dictionary, a batch at a time, and written out while all of it stays within the limit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import QuireError
from quire.formats.parquet import DAMAGED, ParquetFile, Seekable
from quire.sources.pages import DELTAS, Group, footer, pages
from quire.sources.ranges import read
from quire.sources.transforms.content import BadContent
from quire.storage import Content, ReadRequest, Store, Unreadable, Vanished

TAIL = 64 << 10  # bytes at a file's end that are read first: nearly always all of its footer
FOOTER = 64  # the footer has at most this part of the limit: a byte of it may take 230 of memory
COLUMNS = 100_000  # and as many row groups, of a file
BATCH = 1 << 16  # rows that are decoded at once
_BYTES = {"BOOLEAN": 0.125, "INT32": 4, "FLOAT": 4, "BYTE_ARRAY": 4}  # of a value in memory, beside a text itself
# Of older writers Arrow reads some bytes behind a column, as they did not count the header of its dictionary.
_SHORT, _BEHIND = re.compile(r"parquet-mr(?! version (1\.(?:[3-9]|\d\d|2\.(?:9|\d\d))|[2-9]|\d\d))"), 100


def request(name: str, version: str, size: int) -> ReadRequest:
    """The first bytes to read of a file: its end."""
    begin = max(size - TAIL, 0)
    return ReadRequest(name, version, size, begin, size - begin)


def row_groups(store: Store, asked: ReadRequest, content: Content, start: int, length: int, most: int) -> pa.Table | None:
    """The rows of the row groups that begin in [start, start + length), or None if there are none; `content` is what was `asked`.

    Raises BadContent for a file that is not Parquet, or damaged, or whose rows are more than `most` bytes; Vanished and Unreadable.
    """
    if isinstance(content, Vanished | Unreadable):
        raise content
    tail = content if isinstance(content, bytes) else b"".join(content)
    source = _Ranges(store, asked, tail)
    try:
        made, groups = footer(source.footer(most))
        spans = [_span(group, asked.size) for group in groups]
        mine = [i for i, span in enumerate(spans) if start <= span.first < start + length]
        if not mine:
            return None
        if (held := sum(spans[i].bytes for i in mine)) > most:
            raise _TooLargeError(f"unpacked they have {held:,} bytes")
        file = ParquetFile(source, thrift_container_size_limit=COLUMNS)
        behind = _BEHIND if _SHORT.match(made) else 0
        batches, left = list[pa.RecordBatch](), most
        for i in mine:
            for batch in _decoded(file, source, (i, groups[i]), behind, left):
                left -= batch.nbytes
                batches.append(batch)
        return pa.Table.from_batches(batches, file.schema_arrow)
    except (QuireError, MemoryError):
        raise
    except _TooLargeError as e:
        raise BadContent(f"its row groups are larger than max_file_size: {e}, allowed are {most:,}") from None
    except (*DAMAGED, IndexError) as e:
        if source.failed is not None:
            raise source.failed from None
        raise BadContent(f"{type(e).__name__}: not a Parquet file, or damaged") from None


class _TooLargeError(Exception):
    """Decoding it may need more memory than is allowed; the message says how much."""


class _Span(NamedTuple):
    """A row group: where it begins and ends, and what it takes in memory unless its pages lie."""

    first: int
    end: int
    bytes: int


def _span(group: Group, size: int) -> _Span:
    """ValueError where it cannot be."""
    first, end = min(chunk.first for chunk in group.chunks), max(chunk.end for chunk in group.chunks)
    if end > size:
        raise ValueError("a row group that lies outside of the file")  # nobody would read it
    return _Span(first, end, max(sum(chunk.unpacked for chunk in group.chunks), end - first))


# ----------------------------------------------------------------------------------------------------------------- decoding
def _decoded(file: ParquetFile, source: _Ranges, which: tuple[int, Group], behind: int, left: int) -> Iterator[pa.RecordBatch]:
    """The rows of a row group, a batch at a time; _TooLargeError before they take more than `left` bytes."""
    (number, group), size = which, source.asked.size
    first, end, _ = _span(group, size)
    source.fetch(first, min(end + behind, size))
    schema, types = file.metadata.schema, file.schema_arrow.types
    views = any("view" in str(kind) for kind in types)  # into which Arrow casts no dictionary
    texts, unpacked, least, widest = list[str](), 0, 0.0, 0
    for i, chunk in enumerate(group.chunks):
        column = schema.column(i)
        found = list(pages(source.view(chunk.first, min(chunk.end + behind, size))))
        values = sum(page.values for page in found)
        if group.rows > values:
            raise ValueError("a column of fewer values than rows")
        unpacked += max(chunk.unpacked, sum(page.unpacked for page in found))
        least += values * (_width(column) + 4 * column.max_repetition_level)
        if column.physical_type != "BYTE_ARRAY":
            continue
        dictionary = max((page.unpacked for page in found if page.dictionary), default=0)
        if dictionary and not views:
            texts.append(column.path)
        # Texts that cannot be counted before they are decoded: each may be as long as what it repeats.
        repeated = [(page.unpacked, page.values) for page in found if page.encoding == DELTAS]
        repeated += [(dictionary, values)] if dictionary and views else []
        widest += max((size for size, _ in repeated), default=0)
        if column.max_repetition_level and (might := sum(size * n for size, n in repeated)) > left:  # all of them in one row
            raise _TooLargeError(f"the lists of texts in its column {column.path} are encoded so that they may have {might:,} bytes")
    if (might := max(unpacked, int(least))) > left:
        raise _TooLargeError(f"its rows have at least {might:,} bytes")
    reader = ParquetFile(source, metadata=file.metadata, read_dictionary=texts) if texts else file
    for batch in reader.iter_batches(max(1, min(BATCH, left // max(1, widest))), [number]):
        left -= sum(map(_spread, batch.columns))
        if left < 0:
            raise _TooLargeError("its rows have more bytes, as few as they are in the file")
        yield batch.cast(file.schema_arrow) if texts else batch


def _width(column: Any) -> float:
    if column.physical_type == "FIXED_LEN_BYTE_ARRAY":
        return max(int(column.length), 16)
    return 16 if column.logical_type.type == "DECIMAL" else _BYTES.get(column.physical_type, 8)


def _spread(column: pa.Array) -> int:
    """Bytes of an array once its dictionaries are written out."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        lengths = pc.binary_length(column.dictionary).cast(pa.int64())
        return 5 * len(column) + (pc.sum(lengths.take(column.indices)).as_py() or 0)
    if pa.types.is_map(kind):
        return 5 * len(column) + _spread(column.keys) + _spread(column.items)
    if pa.types.is_struct(kind):
        return len(column) + sum(map(_spread, column.flatten()))
    if pa.types.is_nested(kind):
        return 9 * len(column) + _spread(column.flatten())
    return int(column.nbytes)


# ------------------------------------------------------------------------------------------------------------------ reading
class _Ranges(Seekable):
    """A file as pyarrow wants it, of which the end is here and other ranges are fetched."""

    def __init__(self, store: Store, asked: ReadRequest, tail: bytes) -> None:
        self.store, self.asked, self.size = store, asked, asked.size
        self.tail, self.held = (asked.start, tail), (0, b"")
        self.failed: BaseException | None = None  # pyarrow may have its own words for it

    def fetch(self, start: int, end: int) -> None:
        """Hold a range, in place of the one before."""
        if start < self.tail[0]:
            self.held = start, self._fetched(start, end - start)

    def footer(self, most: int) -> memoryview:
        """The bytes of the footer, if they are few enough for what they may mean."""
        data = self.tail[1]
        length, end = int.from_bytes(data[-8:-4], "little"), self.asked.size - 8
        if data[-4:] != b"PAR1" or length > end:
            raise ValueError("no footer")
        if length > max(TAIL, most // FOOTER):
            raise _TooLargeError(f"its footer may mean {FOOTER} times its {length:,} bytes")
        self.fetch(end - length, self.asked.size)
        return self.view(end - length, end)

    def view(self, start: int, end: int) -> memoryview:
        """A part of what is held."""
        at, data = self.tail if start >= self.tail[0] else self.held
        return memoryview(data)[start - at : end - at]

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
