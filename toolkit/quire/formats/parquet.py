"""Data files in Parquet: one row a record (`path, modified, content`), or the columns that a user's function gives."""

from __future__ import annotations

import io
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as held_in
from itertools import accumulate
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash

from quire.formats import dictionaries, footer
from quire.formats.bloom import Filter
from quire.formats.damage import ARROW
from quire.formats.footer import Chunk
from quire.formats.parquet_options import LARGEST, ParquetOptions
from quire.storage import Sink, Store, held
from quire.storage.once import once

GROUP = 8 << 20  # bytes of content in a row group
WHOLE = 128 << 10  # bytes of a file that is read in one request, rather than by its footer and its columns
CONTENT = pa.schema(
    [pa.field("path", pa.string(), False), pa.field("modified", pa.timestamp("us", "UTC")), pa.field("content", pa.binary(), False)]
)
# A record of Kafka's. Its headers are a list, as a name may come twice.
RECORDS = pa.schema(
    [
        ("key", pa.binary()), ("value", pa.binary()), ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.string()),
    ]
)  # fmt: skip
# Of which a dictionary is worth its making: the other columns' values are all different.
_ALIKE = ["topic", "partition", "timestamp_type"]
PASSING = "passing"  # a compression for files that one task reads once: written and read in half the time, and a third larger
USUAL = ParquetOptions()
COUNTS = struct.Struct("<qq")
COUNTED, THERE = "#", "?"
_LOSSLESS = {"none": "NONE", "gzip": "GZIP", "zstd": "ZSTD", PASSING: "LZ4"}

# What decoding quire's own Parquet may make of it; a segment of ours means some 30 times its bytes.
_FREE, _GROWTH = 64 << 20, 1_000
_ANY_SIGN = ("modified",)  # a time may lie before 1970; all other whole numbers count something
DAMAGED = (*ARROW, OSError, ValueError, KeyError, TypeError)


class Writable(Protocol):
    """Something that takes bytes, such as a store's sink."""

    def write(self, data: bytes | memoryview) -> Any:
        """Append `data`."""
        ...


W = TypeVar("W", bound=Writable)


class SinkFile(io.RawIOBase, Generic[W]):
    """A sink as Arrow wants a file; it is neither closed nor given up here. Once `given_up` is set, nothing reaches it any more."""

    def __init__(self, sink: W) -> None:
        self.sink, self.at, self.given_up = sink, 0, False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        view = memoryview(data)
        if not self.given_up:
            self.sink.write(view)
        self.at += view.nbytes
        return view.nbytes

    def tell(self) -> int:
        return self.at


@dataclass(slots=True)
class _Waiting:
    """Rows for the next row group."""

    batches: list[pa.RecordBatch] = held_in(default_factory=list)
    bytes: int = 0
    rows: int = 0


class ParquetWriter:
    """Writes batches into data files of about `target` bytes; `files` and `offsets` (the first row's number) are a value a batch.

    `group`: bytes of rows in a row group, where `options` say no size. Each has its own dictionaries, so of columns larger ones are smaller
    and made in less time. The first rows of a file say which columns have none.
    """

    group = GROUP

    def __init__(self, create: Callable[[int], Sink], target: int, compression: str, options: ParquetOptions = USUAL) -> None:
        self.create, self.target, self.compression, self.options = create, target, _LOSSLESS[compression], options
        self.schema: pa.Schema | None = None
        self.sizes: list[int] = []
        self.files: list[int] = []
        self.offsets: list[int] = []
        self.skips: list[int] = []  # a row is found by its number alone
        self._file: SinkFile[Sink] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        self._waiting = _Waiting()
        self._taken = self._packed = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append the rows of one input file; they stay together. Where columns have grown, they begin a data file."""
        self._begin(batch.schema, batch.nbytes)
        self._append(batch)

    def add_stream(self, batches: Iterable[pa.RecordBatch], expected: int) -> None:
        """Append those of one that come in batches with the same columns, of about `expected` bytes: they stay together, too."""
        for i, batch in enumerate(batches):
            if i == 0:
                self._begin(batch.schema, max(expected, batch.nbytes))
            self._append(batch)

    def _begin(self, schema: pa.Schema, n: int) -> None:
        """The place of rows of `n` bytes: here if they fit, else in the next file."""
        if self.schema is None or not self.schema.equals(schema):
            self._close_file()
            self.schema = schema
        ratio = self._packed / self._taken if self._taken else 1.0
        if (
            self._file is not None and self._rows and self._file.at + (self._waiting.bytes + n) * ratio > self.target
        ) or self._file is None:
            self._next_file()
        self.files.append(len(self.sizes) - 1)
        self.offsets.append(self._rows)
        self.skips.append(0)

    def _append(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        self._waiting.batches.append(batch)
        self._waiting.bytes += batch.nbytes
        self._waiting.rows += batch.num_rows
        most = self.options.bytes or (LARGEST if self.options.rows else self.group)
        if self._waiting.bytes >= most or 0 < self.options.rows <= self._waiting.rows:
            self._flush(whole=self._waiting.bytes < most)

    def add_many(self, batch: pa.RecordBatch, counts: Sequence[int]) -> None:
        """Append the rows of several input files, which stay together; `counts`: how many rows each has, none of them 0."""
        if counts:
            self.add(batch)
            first, more = self.offsets.pop(), len(counts) - 1
            self.files += [self.files[-1]] * more
            self.skips += [0] * more
            self.offsets += accumulate(counts[:-1], initial=first)

    def _flush(self, *, whole: bool = False) -> None:
        """Write the rows that wait; `whole`: those that fill their row groups."""
        if self._waiting.batches and self._file is not None:
            before = self._file.at
            table = pa.Table.from_batches(self._waiting.batches)
            rest = table.slice(table.num_rows - table.num_rows % self.options.rows if whole else table.num_rows)
            table = table.slice(0, table.num_rows - rest.num_rows)
            self._writer = self._writer or self._opened(table)
            if table.num_rows:
                self._writer.write_table(table, row_group_size=self.options.rows or table.num_rows)
            self._taken += self._waiting.bytes - rest.nbytes
            self._packed += self._file.at - before
            self._waiting = _Waiting(rest.to_batches(), rest.nbytes, rest.num_rows)

    @property
    def held(self) -> int:
        """Bytes in memory: rows that wait for their row group, and what the sink has not sent."""
        return self._waiting.bytes + (held(self._file.sink) if self._file is not None else 0)

    def spill(self) -> None:
        """End the row group, so that no rows wait."""
        self._flush()

    def _next_file(self) -> None:
        self._close_file()
        self._file = SinkFile(self.create(len(self.sizes)))
        self.sizes.append(0)
        self._rows = 0

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        """A file whose first row group holds these rows."""
        assert self.schema is not None
        kept = self.compression != _LOSSLESS[PASSING]
        alike = dictionaries.worth(first) if kept else []
        if of_records(self.schema):
            alike = [name for name in _ALIKE if name in self.schema.names]
        more = self.options.writer(first) if kept else {"write_statistics": False}
        return pq.ParquetWriter(self._file, self.schema, compression=self.compression, use_dictionary=alike, store_schema=True, **more)

    def _close_file(self) -> None:
        if self._file is not None:
            self._flush()
            assert self._writer is not None  # something was added
            self._writer.close()
            self._file.sink.close()
            self.sizes[-1] = self._file.at
            self._file = self._writer = None

    def close(self) -> None:
        """Make everything durable."""
        self._close_file()

    def discard(self) -> None:
        """Give up what was written."""
        if self._file is not None:
            file = self._file
            file.given_up = True  # first, and also if discarding fails: pyarrow's writer ends its file when it is collected
            self._file = self._writer = None
            file.sink.discard()


class Seekable(io.RawIOBase):
    """The interface that pyarrow needs of a file that it reads; `size` is its length."""

    at = 0
    size: int

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at


class _StoredFile(Seekable):
    """An object in a store as pyarrow wants a file; it reads only what is asked for, and a small one whole: a request costs more.

    `size`: its length, where that is known.
    """

    def __init__(self, store: Store, name: str, size: int | None = None) -> None:
        if size is None and (found := store.stat(name)) is None:
            store.get(name)  # says that it is not there
        self.store, self.name, self.size = store, name, found.size if size is None and found else size or 0
        self._whole: bytes | None = None

    def read(self, n: int = -1) -> bytes:
        wanted = self.size - self.at if n is None or n < 0 else n
        if self._whole is None and 0 <= self.size <= WHOLE:
            self._whole = self.store.get_range(self.name, 0, self.size)
        data = self.store.get_range(self.name, self.at, wanted) if self._whole is None else self._whole[self.at : self.at + wanted]
        self.at += len(data)
        return data


def stored(store: Store, name: str, end: End | None = None) -> _StoredFile:
    """An object of which only what is asked for is read; NotFoundError if there is none. `end`: its end, as it was read before."""
    return _StoredFile(store, name, None if end is None else end.size)


class End(NamedTuple):
    """The end of a file in a store, which need not be read again: a name of ours means one content for ever."""

    size: int  # of the file, in bytes
    metadata: Any  # as Arrow has it
    chunks: list[dict[str, Chunk]]


class ParquetFile(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file that is read in the calling thread alone.

    Arrow's own threads may still hold a Python object when the interpreter ends; letting it go needs the interpreter, and the
    process aborts after its work is done (seen in 1 of 20 short runs). Each task has one core anyway.
    """

    def __init__(self, source: Any, **more: Any) -> None:
        super().__init__(source, pre_buffer=False, **more)
        self._bytes = source

    @once
    def chunks(self) -> list[dict[str, Chunk]]:
        """For each row group the chunks of its columns, by path; ValueError for a damaged footer, of which Arrow must not be asked."""
        size, end = self.metadata.serialized_size, 8  # bytes behind it, of which the first four are its length
        tail = self._end(size + end)
        if (length := int.from_bytes(tail[-end:][:4], "little")) != size:  # some writers fill it up
            tail = self._end(length + end)
        return footer.chunks(tail[:-end])

    def filters(self, column: str, groups: Sequence[int]) -> dict[int, Filter]:
        """The Bloom filters of a column in some row groups, by one request; none where the file has none. ValueError for damaged ones."""
        places = {i: place for i in groups if (place := self.chunks[i][column].filter)}
        if not places or len(places) < len(groups):
            return {}
        start, longest = min(at for at, _ in places.values()), max(size for _, size in places.values())
        span = max(at + size for at, size in places.values()) - start
        if not 0 <= start <= start + span <= self._end_at or span > len(self.chunks) * longest:  # they lie together
            raise ValueError("its footer is damaged: Bloom filters lie anywhere")
        self._bytes.seek(start)
        data = self._bytes.read(span)
        return {i: Filter(data[at - start : at - start + size]) for i, (at, size) in places.items()}

    @property
    def _end_at(self) -> int:
        self._bytes.seek(0, io.SEEK_END)
        return int(self._bytes.tell())

    def _end(self, size: int) -> bytes:
        self._bytes.seek(-size, io.SEEK_END)
        found: bytes = self._bytes.read(size)
        return found

    def read(self, columns: list[str] | None = None) -> pa.Table:
        """See pyarrow."""
        return super().read(columns, use_threads=False)

    def read_row_group(self, i: int, columns: list[str] | None = None) -> pa.Table:
        """See pyarrow."""
        return super().read_row_group(i, columns, use_threads=False)

    def read_row_groups(self, row_groups: list[int], columns: list[str] | None = None) -> pa.Table:
        """See pyarrow."""
        return super().read_row_groups(row_groups, columns, use_threads=False)

    def iter_batches(self, batch_size: int, groups: list[int] | None = None, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """See pyarrow."""
        return super().iter_batches(batch_size, groups, columns, use_threads=False)  # type: ignore[no-any-return]  # pyarrow has no types


class OwnParquet:
    """A plan, a segment or the tasks of an entry: quire's own Parquet, which somebody may have forged.

    Its columns are those of `schema`, else ValueError; rows are decoded a little at a time, so that a file of a few bytes that
    means a few gigabytes is noticed before these are there. Columns that came `later` have no values in files that are older.
    """

    def __init__(self, data: bytes | _StoredFile, schema: pa.Schema, later: Sequence[str] = (), end: End | None = None) -> None:
        self._size = len(data) if isinstance(data, bytes) else data.size
        self.schema, self._left = schema, _FREE + _GROWTH * self._size
        self.file = ParquetFile(pa.BufferReader(data) if isinstance(data, bytes) else data, metadata=None if end is None else end.metadata)
        if end is not None:
            self.file.chunks = end.chunks
        self.groups = [self.file.metadata.row_group(i) for i in range(self.file.num_row_groups)]
        found, self._lacking = self.file.schema_arrow, set[str]()
        if found.equals(schema):  # as a rule, and it is sooner seen than a difference
            return
        self._lacking = {name for name in later if name not in found.names}
        for field in (field for field in schema if field.name not in self._lacking):
            if found.names.count(field.name) != 1 or found.field(field.name).type != field.type:
                raise ValueError(f"it has no column {field.name!r} of {field.type}")
        if found.names != [self.file.metadata.schema.column(i).path for i in range(len(self.file.metadata.schema))]:
            raise ValueError("its columns are nested")

    @property
    def end(self) -> End:
        """For whoever opens it again."""
        return End(self._size, self.file.metadata, self.file.chunks)

    def read(self, columns: Sequence[str] | None = None, groups: Iterable[int] | None = None) -> pa.Table:
        """Rows of some columns and row groups; ValueError for what no writer of ours has written."""
        columns = self.schema.names if columns is None else columns
        batches = list(self.batches(columns, range(len(self.groups)) if groups is None else groups))
        return pa.Table.from_batches(batches, self._of(columns)).combine_chunks()

    def batches(self, columns: Sequence[str], groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The same, up to 20,000 rows at a time."""
        wanted = self._of(columns)
        for batch in self.unchecked(columns, groups):
            yield _checked(batch, wanted)

    def unchecked(self, columns: Sequence[str], groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
        """The same, as the file has them: `_checked` looks at the values."""
        groups = list(groups)
        there = [name for name in columns if name not in self._lacking] or self.schema.names[:1]
        for batch in self.file.iter_batches(self._at_once(there, groups), groups, there):
            self._left -= batch.nbytes
            if self._left < 0:
                raise ValueError("it means many times the bytes that it has")
            n, types = batch.num_rows, self.schema.field
            yield pa.record_batch([pa.nulls(n, types(c).type) if c in self._lacking else batch.column(c) for c in columns], columns)

    def _at_once(self, wanted: Sequence[str], groups: Sequence[int]) -> int:
        """How many rows may be decoded together: one value may be as long as its column, and stand in every row."""
        if all(0 <= self.groups[i].total_byte_size * self.groups[i].num_rows <= min(_FREE, self._left) for i in groups):
            return 20_000  # all of it is small, and its chunks need no look
        chunks = [self.file.chunks[i][name] for i in groups for name in wanted]
        if max((c.size for c in chunks), default=0) > self._left:
            raise ValueError("it means many times the bytes that it has")
        # Unless the bytes of the rows follow one another.
        widest = max((c.size for c in chunks if c.repeats), default=0)
        return max(1, min(20_000, _FREE // max(1, widest)))

    def _of(self, columns: Sequence[str]) -> pa.Schema:
        return pa.schema([self.schema.field(name).remove_metadata() for name in columns])


def decode_together(files: Sequence[OwnParquet], columns: Sequence[str], schema: pa.Schema) -> tuple[pa.Table, list[int]]:
    """The rows of small files, whose values are looked at once for all of them; and how many each has. Errors as of one of them."""
    found = [list(file.unchecked(columns, range(len(file.groups)))) for file in files]
    wanted = pa.schema([schema.field(name).remove_metadata() for name in columns])
    table = pa.Table.from_batches([batch for batches in found for batch in batches]).combine_chunks()
    return pa.Table.from_batches([_checked(batch, wanted) for batch in table.to_batches()]), [sum(b.num_rows for b in of) for of in found]


def _checked(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    for field, column in zip(wanted, batch.columns, strict=True):
        if pa.types.is_int64(field.type) and field.name not in _ANY_SIGN:
            least, most = (end or 0 for end in pc.min_max(column).as_py().values())
            if least < 0 or most > 1 << 62:
                raise ValueError(f"the column {field.name!r} holds {least if least < 0 else most:,}")
    batch = batch.cast(wanted)  # which fails where a value is missing that has to be there
    batch.validate(full=True)  # text that is not UTF-8, say
    return batch


def open_file(store: Store, name: str) -> ParquetFile:
    """A Parquet file in a store, of which only what is asked for is read."""
    return ParquetFile(_StoredFile(store, name))


class RowReader:
    """Takes rows out of a Parquet data file, a row group at a time."""

    def __init__(self, store: Store, name: str) -> None:
        self.file = open_file(store, name)
        counts = [self.file.metadata.row_group(i).num_rows for i in range(self.file.num_row_groups)]
        self.starts = [0, *accumulate(counts)]
        self._group, self._table = -1, pa.table({})

    def take(self, start: int, n: int) -> pa.Table:
        """The rows [start, start + n)."""
        found = list(self.pieces(start, n))
        return pa.concat_tables(found) if found else self.file.schema_arrow.empty_table()

    def pieces(self, start: int, n: int) -> Iterator[pa.Table]:
        """The same, those of one row group after the other."""
        for group in range(max(0, bisect_right(self.starts, start) - 1), bisect_left(self.starts, start + n, hi=len(self.starts) - 1)):
            first, end = max(start, self.starts[group]), min(start + n, self.starts[group + 1])
            if first < end:
                if self._group != group:
                    self._group, self._table = group, self.file.read_row_group(group)
                yield self._table.slice(first - self.starts[group], end - first)


def of_records(schema: pa.Schema) -> bool:
    """Whether all columns are those of `RECORDS`."""
    return all(field.name in RECORDS.names and field.type == RECORDS.field(field.name).type for field in schema)


def checksum(rows: pa.Table | pa.RecordBatch, expected: int | None = None) -> int:
    """xxh3-64 of the rows: of the content where that is what they hold, else of the values, however Parquet laid them out.

    `expected`: what a ledger says of them, which an earlier quire may have made of the values' texts; that is returned where it is right.
    """
    digest = xxhash.xxh3_64()
    if not rows.num_rows:  # a piece of a split whose rows stand with another piece
        return digest.intdigest()
    if rows.schema.types == CONTENT.types and rows.schema.names == CONTENT.names and not rows.column("content").null_count:
        for content in _values(rows, "content"):
            digest.update(content)
    elif of_records(rows.schema):
        for name in rows.schema.names:
            digest.update(name.encode())
            for part in _plain(rows.column(name)):
                digest.update(part)
    else:
        for name in rows.schema.names:
            digest.update(name.encode())
            for part in _parts(_whole(rows.column(name))):
                digest.update(part)
        if expected is not None and digest.intdigest() != expected and _of_texts(rows) == expected:
            return expected
    return digest.intdigest()


def checksums(rows: pa.RecordBatch, counts: Sequence[int]) -> list[int]:
    """`checksum` of each of some parts that follow one another; `counts`: the rows of each, none of them 0."""
    starts = list(accumulate(counts, initial=0))[:-1]
    if of_records(rows.schema) or rows.schema.types == CONTENT.types:
        return [checksum(rows.slice(start, n)) for start, n in zip(starts, counts, strict=True)]
    columns = [(name.encode(), _parted(rows.column(name))) for name in rows.schema.names]
    found = []
    for start, n in zip(starts, counts, strict=True):
        digest = xxhash.xxh3_64()
        for name, parts in columns:
            digest.update(name)
            for part in parts(start, n):
                digest.update(part)
        found.append(digest.intdigest())
    return found


def _parted(column: Any) -> Callable[[int, int], Iterable[Any]]:
    """The same as `_parts` gives of some rows of a column (first, how many), whose buffers are looked up once."""
    of, kind = pa.types, column.type
    if column.null_count or not (of.is_string(kind) or of.is_binary(kind) or of.is_primitive(kind)) or of.is_boolean(kind):
        return lambda start, n: _parts(column.slice(start, n))
    if of.is_primitive(kind):
        width, plain = kind.bit_width // 8, memoryview(column.buffers()[1])[column.offset * kind.bit_width // 8 :]
        return lambda start, n: (COUNTS.pack(n, 0), plain[start * width : (start + n) * width])
    ends, data = _ends(column), memoryview(column.buffers()[2] or b"")
    lengths, places = memoryview(np.diff(ends).tobytes()), ends.tolist()
    return lambda start, n: (COUNTS.pack(n, 0), lengths[4 * start : 4 * (start + n)], data[places[start] : places[start + n]])


def _of_texts(rows: pa.Table | pa.RecordBatch) -> int:
    digest = xxhash.xxh3_64()
    for name in rows.schema.names:
        digest.update(repr((name, list(_values(rows, name)))).encode())
    return digest.intdigest()


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column


def _parts(column: Any) -> Iterator[Any]:
    """The values of a column as bytes, so that none becomes an object of Python's: how many, which are there, and those that are."""
    return (part for _, part in parts(column, ""))


def parts(column: Any, at: str) -> Iterator[tuple[str, Any]]:
    """The same, each with what it is of the column `at`: those of one kind, of rows that follow one another, may be joined.

    COUNTED  how many values there are, and how many of them are null; THERE: which are there, where some are not
    """
    kind, of, n = column.type, pa.types, len(column)
    yield at + COUNTED, COUNTS.pack(n, column.null_count)
    if column.null_count:
        yield at + THERE, pc.is_valid(column).to_numpy(zero_copy_only=False).tobytes()
        column = column if of.is_struct(kind) else column.drop_null()  # what lies behind a null may be anything
    if of.is_null(kind) or not len(column):
        return
    if of.is_struct(kind):
        for i, child in enumerate(column.flatten()):
            yield from parts(child, f"{at}.{i}")
    elif of.is_list(kind) or of.is_map(kind):
        column = column.take(pa.array(np.arange(len(column)))) if of.is_map(kind) else column  # the keys of a part are those of all
        yield at + "[", np.diff(_ends(column)).tobytes()
        for i, child in enumerate((column.keys, column.items) if of.is_map(kind) else (column.flatten(),)):
            yield from parts(child, f"{at}[{i}")
    elif of.is_string(kind) or of.is_binary(kind):
        ends = _ends(column)
        yield at + ":", np.diff(ends).tobytes()
        yield at + "=", memoryview(column.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
    elif of.is_boolean(kind):
        yield at + "=", column.to_numpy(zero_copy_only=False).tobytes()
    else:
        width = kind.bit_width // 8
        yield at + "=", memoryview(column.buffers()[1])[column.offset * width : (column.offset + len(column)) * width]


def _ends(column: Any) -> Any:
    """Where each value of a column begins in what holds all of them, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _plain(column: pa.Array | pa.ChunkedArray) -> Iterator[Any]:
    """The values of a column of records as bytes, so that none becomes an object of Python's: which are there, lengths, contents."""
    column = _whole(column)
    yield np.array([len(column), column.null_count]).tobytes()
    if column.null_count == len(column):
        return
    if pa.types.is_list(column.type):
        yield repr(column.to_pylist()).encode()
        return
    if column.null_count:
        yield pc.is_valid(column).to_numpy(zero_copy_only=False).tobytes()
    if pa.types.is_binary(column.type) or pa.types.is_string(column.type):
        column = column.cast(pa.binary())
        column = column.fill_null(b"") if column.null_count else column
        yield pc.binary_length(column).to_numpy().tobytes()
        ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
        yield memoryview(column.buffers()[2] or b"")[int(ends[0]) : int(ends[-1])]
    else:
        whole = column.cast(pa.int64())
        yield (whole.fill_null(0) if column.null_count else whole).to_numpy().tobytes()


def _values(rows: pa.Table | pa.RecordBatch, name: str) -> Iterator[Any]:
    yield from rows.column(name).to_pylist()
