"""Quarantine files: the records that a function has rejected in one attempt, in Parquet, named by the commit of its good output.

Each stands for a row of the attempt's segment in state `bad` with `records` = 1: the record begins where the row does. The row covers its
bytes as far as they lie in the split; `length` is the record's own. Records of more than 1 MiB are kept by reference alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import names
from quire.commit.entries import Commit, Task
from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.errors import FormatError, NotFoundError
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.storage import Store

__all__ = ["QuarantineWriter", "dead", "is_record", "one", "read", "rejected"]

KEPT = 1 << 20  # bytes of a record that is kept whole
GROUP = 4 << 20  # bytes of records in a row group
SCHEMA = pa.schema(
    [
        pa.field("path", pa.string(), False),
        pa.field("version", pa.string(), False),
        pa.field("offset", pa.int64(), False),
        pa.field("length", pa.int64(), False),
        pa.field("error", pa.string(), False),
        pa.field("message", pa.string()),
        pa.field("tries", pa.int64(), False),
        pa.field("content", pa.binary()),
    ]
)


class QuarantineWriter:
    """Collects records, and keeps them compressed."""

    def __init__(self) -> None:
        self._out = pa.BufferOutputStream()
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[tuple[Any, ...]] = []
        self._held = 0

    def add(
        self, path: str, version: str, offset: int, record: bytes | None, length: int, error: str, message: str | None, tries: int
    ) -> None:
        """One record; None: it is not at hand, and too long to be kept anyway."""
        kept = record if record is not None and len(record) <= KEPT else None
        self._rows.append((path, version, offset, length, error, message, tries, kept))
        self._held += len(kept or b"") + 200
        if self._held >= GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._out, SCHEMA, compression="zstd", use_dictionary=["path", "version", "error"])
        columns = zip(*self._rows, strict=True)
        self._writer.write_table(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
        self._rows, self._held = [], 0

    def finish(self) -> bytes | None:
        """The file, or None if there is no record."""
        if self._rows:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        data: bytes = self._out.getvalue().to_pybytes()
        return data


def read(store: Store, name: str, columns: list[str] | None = None) -> pa.Table:
    """The records of a quarantine file. One that is missing is an error, never empty."""
    try:
        return OwnParquet(store.get(name), SCHEMA).read(columns)
    except NotFoundError as e:
        raise FormatError(
            f"the quarantine file {store.url}/{name} is missing, and the log names it: put it back from a backup. Nothing was changed."
        ) from e
    except DAMAGED as e:
        raise FormatError(f"the quarantine file {store.url}/{name} is damaged ({type(e).__name__}): put back a good copy.") from e


def one(store: Store, name: str, path: str, version: str, offset: int) -> dict[str, Any] | None:
    """One record of a quarantine file; None if the file has gone, or the record is not in it."""
    if not name.startswith(f"{names.QUARANTINE}/") or names.job_of_segment(name) is None:
        raise FormatError(f"a plan names the quarantine file {name[:200]!r}, which is none: nothing was read. Look who wrote it.")
    try:
        found = read(store, name)
    except FormatError:
        if store.stat(name) is not None:
            raise
        return None
    for column, value in (("path", path), ("version", version), ("offset", offset)):
        found = found.filter(pc.equal(found.column(column), value))
    row: dict[str, Any] | None = next(iter(found.to_pylist()), None)
    return row


def is_record(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows of a segment stand for one rejected record (columns state, records)."""
    return pc.and_(pc.equal(rows.column("state"), "bad"), pc.equal(pc.fill_null(rows.column("records"), 0), 1))


def rejected(store: Store, folded: Fold, tasks: Iterable[tuple[int, Commit, Task]]) -> pa.Table:
    """The records that are in quarantine at a version, as their files tell of them, with `attempt` and `commit`."""
    by_segment = {source.segment: source for source in folded.sources}
    tables = [SCHEMA.empty_table().append_column("attempt", pa.array([], pa.string())).append_column("commit", pa.array([], pa.int64()))]
    for number, _, task in tasks:
        if task.quarantine and task.segment in by_segment:
            rows = folded.of(by_segment[task.segment]).rows(store, ["path", "version", "start", "state", "records"])
            rows = rows.filter(is_record(rows)).select(["path", "version", "start"]).to_pylist()
            live = {tuple(row.values()) for row in rows}
            found = read(store, task.quarantine) if live else SCHEMA.empty_table()
            keys = zip(*(found.column(c).to_pylist() for c in ("path", "version", "offset")), strict=True)
            found = found.take(pa.array([i for i, key in enumerate(keys) if key in live], pa.int64()))
            found = found.append_column("attempt", pa.array([task.attempt] * found.num_rows, pa.string()))
            tables.append(found.append_column("commit", pa.array([number] * found.num_rows, pa.int64())))
    return pa.concat_tables(tables).sort_by([("path", "ascending"), ("offset", "ascending")])


def dead(store: Store, log: Log, below: int) -> list[str]:
    """The quarantine files of which no record is in quarantine any more at a settled version: rows that left never come back."""
    folded, found = fold(log, below), list[str]()
    named = {names.quarantine_of(source.segment): source for source in folded.sources}
    for name in [task.quarantine for _, commit in log.commits(until=below) for task in commit.tasks if task.quarantine]:
        source = named.get(name)
        rows = folded.of(source).rows(store, ["state", "records"]) if source is not None else None
        if rows is None or not pc.any(is_record(rows)).as_py():
            found.append(name)
    return found
