"""Ledger segments: the rows that one attempt adds to the ledger, in Parquet.

A row says that a range of a version of a file is covered, how (`done`, `quarantined`, `mark`: done elsewhere), and where
its record lies: data file, `offset` (of the frame; in Parquet the row's number), `skip` (bytes within the decompressed frame),
`written` bytes, `records` (lines or rows) and their xxh3-64. `carried`: it was taken over from a data file that this attempt's job
removes. `tries`: how often a file that is quarantined was read. `fingerprint`: of the source's bytes (see `tails`), where
files may be appended to. `member`: of an archive, the document for which the row stands, "" where it stands for the archive itself
(see `engine.kinds.archived`). A row in state `held` stands for a last line without newline that was not taken.

A piece of a checkpoint (`PIECE`) holds the rows of many segments that have paths of a range, each with its commit and attempt; `folder`:
the directory that its task was kept apart for, where no data file's name says it; `quarantine`: of a record that a function has
quarantined, the file of its attempt that holds it.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import checkpoints, names
from quire.coverage.remembered import Remembered
from quire.errors import FormatError, NotFoundError
from quire.formats.bloom import Filter
from quire.formats.parquet import DAMAGED, End, OwnParquet, decode_together, stored
from quire.formats.parquet_options import CAN_FILTER, NEW
from quire.storage import Store

SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("version", pa.string(), False),
        pa.field("start", pa.int64(), False),
        pa.field("length", pa.int64(), False),
        pa.field("state", pa.string(), False),
        pa.field("reason", pa.string()),
        pa.field("data_file", pa.string()),
        pa.field("offset", pa.int64()),
        pa.field("skip", pa.int64()),
        pa.field("written", pa.int64()),
        pa.field("records", pa.int64()),
        pa.field("checksum", pa.uint64()),
        pa.field("carried", pa.bool_(), False),
        pa.field("tries", pa.int64()),
        pa.field("fingerprint", pa.uint64()),
        pa.field("member", pa.string()),
    ]
)
PIECE = pa.schema(
    [
        *SCHEMA,
        pa.field("commit", pa.int64(), False),
        pa.field("attempt", pa.string(), False),
        pa.field("folder", pa.string()),
        pa.field("quarantine", pa.string()),
    ]
)
FEW = 10_000  # paths that may well lie in few row groups of a long piece
PIECES = 64  # of which a process holds the ends: of 500,000 rows each, some 200 KB
FILTERS = 256  # of row groups that a process holds: of 20,000 rows each, 32 KB
HOT = 4  # row groups that a process holds decoded: of 20,000 rows each, some 3 MB
LATER = ("member",)  # columns that segments had not from the beginning
# Row groups are small enough to be skipped by their smallest and greatest path.
ROW_GROUP = 20_000
# Sorted paths share long beginnings, offsets and versions grow: deltas, not dictionaries.
_ENCODING = {
    "path": "DELTA_BYTE_ARRAY", "version": "DELTA_BYTE_ARRAY", "start": "DELTA_BINARY_PACKED", "length": "DELTA_BINARY_PACKED",
    "offset": "DELTA_BINARY_PACKED", "skip": "DELTA_BINARY_PACKED", "written": "DELTA_BINARY_PACKED",
    "records": "DELTA_BINARY_PACKED", "checksum": "PLAIN", "fingerprint": "PLAIN", "tries": "DELTA_BINARY_PACKED",
    "member": "DELTA_BYTE_ARRAY",
}  # fmt: skip
_DICTIONARY = ["state", "reason", "data_file", "commit", "attempt", "folder", "quarantine"]


class SegmentWriter:
    """Collects rows, and keeps them compressed: a task of millions of files needs little memory."""

    def __init__(self, schema: pa.Schema = SCHEMA) -> None:
        self.schema = schema
        self._out = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self.first = ""
        self.last = ""
        self.rows = 0

    def add(self, rows: pa.Table) -> None:
        """Append rows of the schema."""
        if not rows.num_rows:
            return
        if self._writer is None:
            encoding = {name: how for name, how in _ENCODING.items() if name in self.schema.names}
            level = 3
            if self.schema is not SCHEMA:
                # A piece is read more often than it is written: as plain text paths are a third longer, and read five times as fast.
                encoding, level = encoding | {"path": "PLAIN", "version": "PLAIN", "member": "PLAIN"}, 1
            # A few new paths among many are found not to be there without a look at rows, by 1.6 bytes a row.
            filters = self.schema is PIECE and rows.num_rows > ROW_GROUP and CAN_FILTER
            self._writer = pq.ParquetWriter(
                self._out, self.schema, compression="zstd", compression_level=level, column_encoding=encoding, write_statistics=["path"],
                use_dictionary=[c for c in _DICTIONARY if c in self.schema.names],
                **({NEW: {"path": {"ndv": ROW_GROUP, "fpp": 0.01}}} if filters else {}),
            )  # fmt: skip
        self._writer.write_table(rows, row_group_size=ROW_GROUP)
        ends = pc.min_max(rows.column("path")).as_py()
        self.first = min(self.first or ends["min"], ends["min"])
        self.last = max(self.last, ends["max"])
        self.rows += rows.num_rows

    def finish(self) -> bytes | None:
        """The segment, or None if it has no rows."""
        if self._writer is None:
            return None
        self._writer.close()
        data: bytes = self._out.getvalue().to_pybytes()
        return data


def read(
    store: Store, name: str, columns: Sequence[str], first: str = "", last: str = "", of: str = "", among: pa.Array | None = None,
    get: Callable[[str], bytes] | None = None,
) -> pa.Table:  # fmt: skip
    """The rows of a segment, or of a checkpoint's piece, with paths in [first, last] (all where not given), or of `among` (sorted).

    One that is missing is an error, never empty. `of`: how the log names it, for that error. `get`: gives the bytes in the store's place.
    """
    piece = names.head_of_piece(name) is not None
    try:
        # A piece is long: for a few paths, only the row groups that may hold them are read.
        some = piece and first and (first == last or (among is not None and len(among) <= FEW))
        known = piece and _SEEN.of(store.url, name).end is not None  # its rows may be, too
        here = not some and not known
        file = _opened(store, name, (get or store.get)(name) if here else None)
        groups = [i for i in range(len(file.groups)) if _may_hold(file, i, first, last, among)]
        if some and among is not None:
            groups = _not_ruled_out(store, name, file, groups, among)
        rows = _rows(store, name, file, groups, here=here, whole=not some)
        table = rows.read(columns, groups) if among is None else _among(rows, columns, groups, among)
        _check_places(table)
    except (NotFoundError, *DAMAGED) as e:
        raise _damaged(store, name, of, e) from e
    return _within(table, first, last)


def read_part(store: Store, name: str, columns: Sequence[str], first: str, last: str) -> pa.Table:
    """The same of a checkpoint's piece, of which [first, last] is a small part: the rest of its bytes is not asked for."""
    try:
        file = _opened(store, name)
        groups = [i for i in range(len(file.groups)) if _may_hold(file, i, first, last, None)]
        table = _rows(store, name, file, groups, here=False, whole=False).read(columns, groups)
        _check_places(table)
    except (NotFoundError, *DAMAGED) as e:
        raise _damaged(store, name, "", e) from e
    return _within(table, first, last)


def read_together(
    data: Sequence[bytes], columns: Sequence[str], first: str, last: str, among: pa.Array | None
) -> tuple[pa.Table, pa.Array]:  # fmt: skip
    """The same of some small segments, of which there are the bytes; and of each row the number of its segment among them."""
    table, counts = decode_together([OwnParquet(each, SCHEMA, LATER) for each in data], columns, SCHEMA)
    _check_places(table)
    at = pa.array(np.repeat(np.arange(len(counts), dtype=np.int32), counts))
    if not last or not table.num_rows:
        return table, at
    path = table.column("path")
    if among is not None:
        mine = pc.is_in(path, _between(among, *pc.min_max(path).as_py().values()))
    else:
        mine = pc.and_(pc.greater_equal(path, first), pc.less_equal(path, last))
    return table.filter(mine), at.filter(mine.combine_chunks())


def _within(table: pa.Table, first: str, last: str) -> pa.Table:
    if not last or not table.num_rows:
        return table
    path = table.column("path")
    return table.filter(pc.and_(pc.greater_equal(path, first), pc.less_equal(path, last)))


def _rows(store: Store, name: str, file: OwnParquet, groups: list[int], *, here: bool, whole: bool) -> _Rows:
    """The rows of some groups. `here`: the file's bytes are; `whole`: else all of them come by one request, as for many groups."""
    many = 4 * len(groups) > len(file.groups) > 4
    hot = names.head_of_piece(name) is not None and len(groups) <= HOT
    return _Rows(file, (store, name), hot=hot, whole=not here and (whole or many))


# The columns of a piece's row group that were decoded, for the next run of a loop, which looks where this one has looked.
_DECODED = Remembered(dict[str, pa.Array], HOT)


class _Rows:
    """The rows of a segment or a piece, which lies at a `place`: a store and its name there.

    hot    few row groups are wanted, and of a piece: they are decoded once
    whole  of what is not decoded yet, all bytes come by one request
    """

    def __init__(self, file: OwnParquet, place: tuple[Store, str], *, hot: bool, whole: bool) -> None:
        self.file, self.place, self.hot, self.whole = file, place, hot, whole

    def _opened(self) -> OwnParquet:
        """The file, of which rows are wanted."""
        if self.whole:
            store, name = self.place
            self.file, self.whole = _opened(store, name, store.get(name)), False
        return self.file

    def read(self, columns: Sequence[str], groups: list[int]) -> pa.Table:
        """See `OwnParquet`."""
        if not self.hot or not groups:
            return (self._opened() if groups else self.file).read(columns, groups)
        return pa.Table.from_batches(list(self.batches(columns, groups))).combine_chunks()

    def batches(self, columns: Sequence[str], groups: list[int]) -> Iterator[pa.RecordBatch]:
        """See `OwnParquet`."""
        if not self.hot:
            yield from self._opened().batches(columns, groups)
            return
        store, piece = self.place
        for group in groups:
            held = _DECODED.of(store.url, piece, group)
            if lacking := [name for name in columns if name not in held]:
                found = self._opened().read(lacking, [group])
                held.update((name, found.column(name).combine_chunks()) for name in lacking)
            schema = pa.schema([self.file.schema.field(name).remove_metadata() for name in columns])
            yield pa.RecordBatch.from_arrays([held[name] for name in columns], schema=schema)


def _among(rows: _Rows, columns: Sequence[str], groups: list[int], among: pa.Array) -> pa.Table:
    """The rows of some paths, which are sorted: what else is known of a row is read only where the row group holds one of them.

    Arrow looks up by a 64-bit hash and compares the whole path where it hits. Some 20,000 rows at a time, among the few paths that may
    be there: all of it stays in the processor's cache.
    """
    found, hits = list[pa.Array](), list[pa.Array]()
    for batch in rows.batches(["path"], groups):
        path = batch.column("path")
        hits.append(pc.is_in(path, _between(among, *pc.min_max(path).as_py().values())))
        found.append(path.filter(hits[-1]))
    others = [c for c in columns if c != "path"]
    if not others:
        return pa.table([pa.chunked_array(found, pa.string())], schema=pa.schema([rows.file.schema.field("path")]))
    hit, at = pa.chunked_array(hits, pa.bool_()), 0
    some, masks = list[int](), list[pa.ChunkedArray]()
    for i in groups:
        here = hit.slice(at, rows.file.groups[i].num_rows)
        if pc.any(here).as_py():
            some.append(i)
            masks += here.chunks
        at += rows.file.groups[i].num_rows
    mask, at, rest = pa.chunked_array(masks, pa.bool_()), 0, list[pa.RecordBatch]()
    for batch in rows.batches(others, some):
        rest.append(batch.filter(mask.slice(at, batch.num_rows).combine_chunks()))
        at += batch.num_rows
    table = pa.Table.from_batches(rest) if rest else rows.read(others, [])
    return table.append_column(rows.file.schema.field("path"), pa.chunked_array(found, pa.string())).select(columns)


def holds_any(among: pa.Array, first: str, last: str) -> bool:
    """Whether one of sorted texts lies in [first, last]."""
    return len(_between(among, first, last)) > 0


def _between(among: pa.Array, first: str, last: str) -> pa.Array:
    """Those of sorted texts that lie in [first, last]."""
    low = bisect.bisect_left(among, first, key=pa.StringScalar.as_py)
    return among.slice(low, bisect.bisect_right(among, last, key=pa.StringScalar.as_py) - low)


# The Bloom filters of a piece's row group, by column.
_FILTERS = Remembered(dict[str, Filter], FILTERS)


def _not_ruled_out(store: Store, name: str, file: OwnParquet, groups: list[int], among: pa.Array) -> list[int]:
    """The row groups that may hold one of sorted paths, as their Bloom filters tell."""
    if len(file.groups) == 1:
        return groups
    filters = {group: _FILTERS.of(store.url, name, group) for group in groups}
    lacking = [group for group in groups if "path" not in filters[group]]
    for group, found in file.file.filters("path", lacking).items():
        filters[group]["path"] = found

    def may_hold(group: int) -> bool:
        ends, known = file.file.chunks[group]["path"].ends, filters[group].get("path")
        if known is None or ends is None:
            return True
        paths = _between(among, ends[0].decode(), ends[1].decode()).to_pylist()
        return bool(known.may_hold([path.encode() for path in paths]).any())

    return [group for group in groups if may_hold(group)]


class _Seen:
    """The end of a piece, once a process has read it: some thousand chunks, which take longer to tell apart than to be asked for."""

    end: End | None = None


_SEEN = Remembered(_Seen, PIECES)


def _opened(store: Store, name: str, data: bytes | None = None) -> OwnParquet:
    """A segment or a piece; without its bytes only what is asked for is read."""
    if names.head_of_piece(name) is None:
        return OwnParquet(stored(store, name) if data is None else data, SCHEMA, LATER)
    seen = _SEEN.of(store.url, name)
    if seen.end is not None and data is not None and len(data) != seen.end.size:
        seen.end = None  # it was damaged, or is
    file = OwnParquet(stored(store, name, seen.end) if data is None else data, PIECE, LATER, seen.end)
    seen.end = seen.end or file.end
    return file


def steps(store: Store, name: str) -> list[tuple[str, int]]:
    """The smallest path and the rows of each row group of a segment or a piece, as its end tells them."""
    try:
        file, found = _opened(store, name), list[tuple[str, int]]()
        for i, group in enumerate(file.groups):
            least = file.file.chunks[i]["path"].least
            found.append((pc.min(file.read(["path"], [i]).column("path")).as_py() if least is None else least.decode(), group.num_rows))
    except (NotFoundError, *DAMAGED) as e:
        raise _damaged(store, name, "", e) from e
    return found


def is_record(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows stand for one quarantined record (columns state, records)."""
    return pc.and_(pc.equal(rows.column("state"), "quarantined"), pc.equal(pc.fill_null(rows.column("records"), 0), 1))


def _damaged(store: Store, name: str, of: str, why: BaseException) -> FormatError:
    """The error for a segment or a piece, of which nothing is remembered: it may be mended before the next call."""
    if names.head_of_piece(name) is None:
        return lacking(store, name, of, why)
    _SEEN.of(store.url, name).end = None
    return checkpoints.damaged(store, name, why)


def lacking(store: Store, name: str, of: str, why: BaseException) -> FormatError:
    """The error for a segment that does not hold what it should: how to go on, and whose it is (last, as a message is cut at its end)."""
    here = f"the ledger segment {store.url}/{name}"
    if isinstance(why, NotFoundError):
        what = "is missing, and the log names it: put it back from a backup; of a version that has expired, look at a later one"
    else:
        what = f"is damaged ({type(why).__name__}): put back a good copy"
    return FormatError(
        f"{here} {what}. Nothing was changed, and quire.read needs it not. Nobody can tell what is done of {of or 'its files'}."
    )


def _check_places(table: pa.Table) -> None:
    """A row that names a data file says where in it its record is."""
    if "data_file" in table.schema.names:
        named = pc.is_valid(table.column("data_file"))
        for name in {"offset", "skip", "written", "records", "checksum"} & set(table.schema.names):
            if pc.any(pc.and_(named, pc.is_null(table.column(name)))).as_py():
                raise ValueError(f"a row names a data file and no {name}")


def _may_hold(file: OwnParquet, group: int, first: str, last: str, among: pa.Array | None) -> bool:
    if not last or len(file.groups) == 1:  # of which its name in the log says the range
        return True
    ends = file.file.chunks[group]["path"].ends
    if ends is None or not (ends[0] <= last.encode() and ends[1] >= first.encode()):
        return ends is None
    return among is None or holds_any(among, ends[0].decode(), ends[1].decode())
