"""The ledger rows of one attempt, on their way into its segment: those of records wait until the writer tells where each record lies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import xxhash

from quire.coverage.segments import ROW_GROUP, SCHEMA, SegmentWriter
from quire.engine.output import DataFiles
from quire.formats.parquet import CONTENT, checksum, checksums
from quire.formats.running import Running

P = TypeVar("P", bytes, pa.RecordBatch)


class Record(NamedTuple):
    """A record that the writer was given."""

    records: int  # lines or rows
    written: int  # bytes
    checksum: int

    @classmethod
    def of(cls, made: bytes | pa.RecordBatch) -> Record:
        """A record that is held as a whole."""
        if isinstance(made, bytes):
            return cls(made.count(b"\n"), len(made), xxhash.xxh3_64_intdigest(made))
        size = sum(map(len, made.column("content").to_pylist())) if made.schema.equals(CONTENT) else made.nbytes
        return cls(made.num_rows, size, checksum(made))

    @classmethod
    def of_many(cls, made: pa.RecordBatch, counts: Sequence[int]) -> Iterator[Record]:
        """The records of several files that follow one another, of so many rows each; of their bytes each has its share."""
        size = made.nbytes / max(1, made.num_rows)
        for n, found in zip(counts, checksums(made, counts), strict=True):
            yield cls(n, int(size * n), found)


class Growing:
    """A record that the writer is given piece by piece: rows, or lines as bytes."""

    def __init__(self) -> None:
        self.records, self.written = 0, 0
        self._digest: Any = None

    def add(self, piece: P) -> P:
        """The next piece, counted."""
        if isinstance(piece, bytes):
            self._digest = self._digest or xxhash.xxh3_64()
            self.records, self.written = self.records + piece.count(b"\n"), self.written + len(piece)
        else:
            self._digest = self._digest or Running()
            self.records, self.written = self.records + piece.num_rows, self.written + piece.nbytes
        self._digest.update(piece)
        return piece

    @property
    def record(self) -> Record | None:
        """The record as far as it was written; None: nothing was."""
        return Record(self.records, self.written, self._digest.intdigest()) if self._digest is not None else None


class LedgerRow(NamedTuple):
    """The columns of a segment, in an order in which one says no more than one has to; without a record of its own it has the last ones."""

    path: str
    version: str
    start: int
    length: int
    state: str = "done"
    reason: str | None = None
    tries: int | None = None
    fingerprint: int | None = None
    records: int = 0
    written: int = 0
    checksum: int = xxhash.xxh3_64_intdigest(b"")
    data_file: str | None = None
    offset: int | None = None
    skip: int | None = None
    member: str | None = None


class SegmentRows:
    """The ledger rows of an attempt; `carried`: of rows that were there, and whose data file goes."""

    def __init__(self, output: DataFiles, *, carried: bool) -> None:
        self.output, self.carried = output, carried
        self.written: list[LedgerRow] = []  # those with a record, in the writer's order
        self.bare: list[LedgerRow] = []  # those without
        self.segment = SegmentWriter()
        self._riders: dict[tuple[str, str, int], list[LedgerRow]] = {}  # by path, version and start of a written row

    def add(self, parts: list[LedgerRow], record: Record | None) -> None:
        """The parts of a split for which one record stands, or none: the first one has it, and the others ride with it.

        They name its place, and that nothing was written for them alone: so all of them leave the ledger together.
        """
        if record is None or not parts:
            self.bare += parts
            return
        first, *rest = parts
        self.written.append(LedgerRow(*first[:8], *record, member=first.member))
        if rest:
            self._riders[first[:3]] = rest

    def put(self, rows: pa.Table, **columns: Any) -> None:
        """Add rows to the segment that no record stands behind; `columns`, or a value for all of them, in place of theirs."""
        own = {name: rows.column(name) for name in rows.column_names}
        self.segment.add(self._table({**own, "carried": False, **columns}, rows.num_rows))

    def flush(self, last: bool = False) -> None:
        """Move the rows whose records have their place into the segment, where there are enough of them."""
        n = len(self.output.writer.files)
        if not last and n < ROW_GROUP:
            return
        rows, self.written = self.written[:n], self.written[n:]
        tables = list[pa.Table]()
        if rows:
            places = self.output.places([row.records for row in rows])
            for row, *place in zip(rows, *places, strict=True) if self._riders else ():
                self.bare += (LedgerRow(*rider[:11], *place)._replace(member=rider.member) for rider in self._riders.pop(row[:3], ()))
            unknown = {"written": None, "checksum": None} if self.output.waits else {}
            tables.append(self._table({**_columns(rows), **dict(zip(LedgerRow._fields[11:14], places, strict=True)), **unknown}, n))
        if self.bare:
            tables.append(self._table(_columns(self.bare), len(self.bare)))
            self.bare = []
        if tables:
            table = pa.concat_tables(tables)
            self.segment.add(table.sort_by([("path", "ascending"), ("start", "ascending")]) if len(tables) > 1 else table)

    def _table(self, columns: Mapping[str, Any], n: int) -> pa.Table:
        """`n` rows of a segment: of each column its values, or one for all of them; without either its values are missing."""
        columns = {"carried": self.carried, **columns}
        return pa.table([_column(columns.get(f.name), f.type, n) for f in SCHEMA], schema=SCHEMA)


def _columns(rows: list[LedgerRow]) -> dict[str, Any]:
    return dict(zip(LedgerRow._fields, zip(*rows, strict=True), strict=True))


def _column(found: Any, kind: pa.DataType, n: int) -> Any:
    if isinstance(found, Iterable) and not isinstance(found, str):
        return found if isinstance(found, pa.ChunkedArray) else pa.array(found, kind)
    return pa.repeat(pa.scalar(found, kind), n)
