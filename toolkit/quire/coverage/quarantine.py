"""Quarantine files: the records that were quarantined in one attempt, in Parquet, named by the commit of its good output.

Each stands for a row of the attempt's segment in state `quarantined` with `records` = 1: the record begins where the row does. The row
covers its bytes as far as they lie in the split; `length` is the record's own. Records of more than 1 MiB are kept by reference alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import names
from quire.commit.entries import Commit
from quire.commit.log import Log
from quire.coverage.fold import Fold, Source, fold
from quire.errors import FormatError, NotFoundError
from quire.formats.parquet import DAMAGED, OwnParquet, stored
from quire.storage import Store

KEPT = 1 << 20  # bytes of a record that is kept whole
GROUP = 4 << 20  # bytes of records in a row group
LOOKING = 32  # files at once of which the length is asked
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
        """The file, or None without any record."""
        if self._rows:
            self._flush()
        if self._writer is None:
            return None
        self._writer.close()
        data: bytes = self._out.getvalue().to_pybytes()
        return data


def read(store: Store, name: str, columns: list[str] | None = None) -> pa.Table:
    """The records of a quarantine file. One that is missing is an error, never empty."""
    return pa.concat_tables(_groups(store, name, columns, whole=True))


def _groups(store: Store, name: str, columns: list[str] | None = None, *, whole: bool = False) -> Iterator[pa.Table]:
    """The same row group by row group, so that whoever wants a few records reads no more than they need; `whole`: all in one."""
    try:
        file = OwnParquet(store.get(name) if whole else stored(store, name), SCHEMA)
        for groups in [None] if whole else [[i] for i in range(len(file.groups))]:
            yield file.read(columns, groups)
    except NotFoundError as e:
        raise FormatError(
            f"the quarantine file {store.url}/{name} is missing, and the log names it: put it back from a backup. Nothing was changed."
        ) from e
    except DAMAGED as e:
        raise FormatError(f"the quarantine file {store.url}/{name} is damaged ({type(e).__name__}): put back a good copy.") from e


class Shelf:
    """Records of quarantine files, one after the other: the file that was read last is kept, as a task takes most of its records."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._name, self._records, self._at = "", SCHEMA.empty_table(), dict[tuple[str, str, int], int]()

    def one(self, name: str, path: str, version: str, offset: int) -> dict[str, Any] | None:
        """One record of a quarantine file; None if the file has gone, or the record is not in it."""
        if not name.startswith(f"{names.QUARANTINE}/") or names.job_of_segment(name) is None:
            raise FormatError(f"a plan names the quarantine file {name[:200]!r}, which is none: nothing was read. Look who wrote it.")
        if name != self._name:
            try:
                self._records = read(self._store, name)
            except FormatError:
                if self._store.stat(name) is not None:
                    raise
                self._records = SCHEMA.empty_table()
            self._name = name
            keys = zip(*(self._records.column(c).to_pylist() for c in ("path", "version", "offset")), strict=True)
            self._at = {key: i for i, key in reversed(list(enumerate(keys)))}
        i = self._at.get((path, version, offset))
        return None if i is None else dict(self._records.slice(i, 1).to_pylist()[0])


def records(store: Store, folded: Fold, limit: int | None = None) -> pa.Table:
    """The records that are in quarantine at a version, as their files tell of them, with `attempt` and `commit`.

    `limit`: so many of the newest commits, of which only the files that hold them are read.
    """
    empty = SCHEMA.empty_table().append_column("attempt", pa.array([], pa.string())).append_column("commit", pa.array([], pa.int64()))
    tables, left = [empty], limit
    for source in folded.sources if limit is None else sorted(folded.sources, key=lambda s: -s.number):
        if left is not None and left <= 0:
            break
        rows = _records(store, folded, source, ["path", "version", "start", "attempt"])
        if left is not None:  # of a checkpoint, too, the newest first
            rows = rows.sort_by([("commit", "descending"), ("path", "ascending"), ("start", "ascending")]).slice(0, left)
            left -= rows.num_rows
        for name in pc.unique(rows.column("quarantine")).to_pylist():
            tables += _those(store, name, rows.filter(pc.equal(rows.column("quarantine"), name)), whole=limit is None)
    return pa.concat_tables(tables).sort_by([("path", "ascending"), ("offset", "ascending")])


def _those(store: Store, name: str, mine: pa.Table, *, whole: bool) -> Iterator[pa.Table]:
    """The records of a file that rows stand for."""
    there = {tuple(row.values()) for row in mine.select(["path", "version", "start"]).to_pylist()}
    for found in _groups(store, name, whole=whole):
        keys = list(zip(*(found.column(c).to_pylist() for c in ("path", "version", "offset")), strict=True))
        some = found.take(pa.array([i for i, key in enumerate(keys) if key in there], pa.int64()))
        for column in ("attempt", "commit"):  # one attempt of one commit has written the file
            value = mine.column(column)
            some = some.append_column(column, pa.array([value[0].as_py()] * some.num_rows, value.type))
        yield some
        there.difference_update(keys)
        if not there:
            return


def dead(store: Store, log: Log, below: int) -> list[str]:
    """The quarantine files of which no record is in quarantine any more at a settled version: rows that left never come back."""
    return [name for name, count in _counts(store, log, below).items() if not count]


def _counts(store: Store, log: Log, version: int) -> dict[str, int]:
    """The quarantine files that commits up to a settled version name, and how many records of each are in quarantine there."""
    there = [e.name for e in store.walk(names.QUARANTINE)]
    if not there:
        return {}
    folded, live = fold(log, version), Counter[str]()
    for source in folded.sources:
        for each in pc.value_counts(_records(store, folded, source, []).column("quarantine")).to_pylist():
            live[each["values"]] += each["counts"]
    return {name: live[name] for name in there if _named(log, version, name)}


def forget(store: Store, log: Log) -> None:
    """Take records out of quarantine files that are not in quarantine any more, whatever versions are kept: they were forgotten.

    A file of which none is left stays, empty, for older versions; `expire` deletes it. Anybody may do it again, and several at once:
    whoever has put a file looks at all of them once more, by the log of then.
    """
    put = True
    while put:
        put, version = False, log.refresh().settled_version()
        counts = _counts(store, log, version)
        with ThreadPoolExecutor(LOOKING) as pool:
            lengths = pool.map(lambda name: _length(store, name), counts)
            longer = [name for (name, count), length in zip(counts.items(), lengths, strict=True) if length > count]
        for name, mine in _by_file(store, log, version, longer):
            store.put(name, _shortened(store, name, mine))
            put = True


def _length(store: Store, name: str) -> int:
    """How many records a quarantine file has."""
    try:
        return int(OwnParquet(stored(store, name), SCHEMA).file.metadata.num_rows)
    except (NotFoundError, *DAMAGED):
        return 0  # gone meanwhile; or `verify` and whoever reads its records says that it is damaged


def _by_file(store: Store, log: Log, version: int, files: list[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows that stand for records of some quarantine files at a version, file by file."""
    if not files:
        return
    folded = fold(log, version)
    rows = [_records(store, folded, source, ["path", "version", "start", "attempt"]) for source in folded.sources]
    mine = pa.concat_tables([some.filter(pc.is_in(some.column("quarantine"), pa.array(files, pa.string()))) for some in rows])
    mine, at = mine.sort_by("quarantine").combine_chunks(), 0
    for name in sorted(files):
        begin = at
        while at < mine.num_rows and mine.column("quarantine")[at].as_py() == name:
            at += 1
        yield name, mine.slice(begin, at - begin)


def _shortened(store: Store, name: str, mine: pa.Table) -> bytes:
    """A quarantine file without the records that no row stands for."""
    writer = QuarantineWriter()
    for found in _those(store, name, mine, whole=False) if mine.num_rows else ():
        for row in found.to_pylist():
            writer.add(*(row[c] for c in ("path", "version", "offset", "content", "length", "error", "message", "tries")))
    return writer.finish() or _nothing()


def _nothing() -> bytes:
    """A quarantine file without a record."""
    sink = pa.BufferOutputStream()
    pq.write_table(SCHEMA.empty_table(), sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _records(store: Store, folded: Fold, source: Source, columns: list[str]) -> pa.Table:
    """The rows of a source that stand for quarantined records, with `quarantine` and `commit`."""
    one = folded.of(source) if source.quarantined else replace(folded, sources=())
    rows = one.rows(store, [*columns, "quarantine"])
    return rows.filter(pc.is_valid(rows.column("quarantine")))


def _named(log: Log, below: int, name: str) -> bool:
    """Whether a commit up to a version names a quarantine file: nothing else is deleted."""
    job = names.job_of_segment(name)
    found = log.decided(job) if job else None
    if found is None or found[0] > below or not isinstance(found[1], Commit):
        return False
    return any(task.coverage.quarantine == name for task in found[1].tasks)
