"""The changes of a commit of a merge-on-read table: the slices before it and after it, each merged with its logs, are compared.

Where a commit has brought logs alone, these say which keys may have changed: only their rows are compared, and row groups of the base
file without any of them are passed over. A row that came too late by its ordering is the same on both sides, so it has changed nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError
from quire.formats import parquet
from quire.storage import Store
from quire.table import file_groups, reading, realtime
from quire.table.file_groups import Slice
from quire.table.format import cleaning, names
from quire.table.format.change_file import DELETE, INSERT, UPDATE
from quire.table.format.commits import CommitMetadata, WriteStat
from quire.table.format.names import BaseFile, Instant, LogFile
from quire.table.format.schema import META, with_meta
from quire.table.realtime import Merging
from quire.table.timeline import PARALLEL, Holds, Timeline
from quire.table.write.commit import replaces

TIME, _, KEY = META[:3]
_MOVES = ("CLUSTER", "COMPACT", "LOG_COMPACT")  # operations that move rows, and change none
_UNKNOWN = (None, "", "UNKNOWN")
Found = Iterator[tuple[Any, Any, Any, Any]]  # op, keys, before, after: rows or None
Group = tuple[str, str]  # partition and file group


@dataclass(frozen=True)
class Sides:
    """The slices before and after a commit; `since`, `until`: the times as of which their logs count: instants, or when these ended.

    merging   how logs are merged; None: a plan has been read, and whoever reads the rows looks at the timeline
    logged    whether the commit has brought logs alone
    instant   of the commit, where `until` is not that
    """

    before: tuple[Slice, ...]
    after: tuple[Slice, ...]
    since: str
    until: str
    merging: Merging | None
    logged: bool = False
    instant: str = ""

    @property
    def size(self) -> int:
        """Bytes of the files, at most, in which rows that changed may be."""
        return sum(one.logged + (0 if self.logged else one.size) for one in (*self.before, *self.after))


def moves(instant: Instant, commit: CommitMetadata) -> bool:
    """Whether a write of such a table changes no row: of one whose operation nobody knows, a `commit` is a compaction there."""
    word = commit.operation_type
    return word in _MOVES or commit.compacted or (instant.action == "commit" and word in _UNKNOWN)


def cleaned(line: Timeline) -> dict[Group, list[BaseFile | LogFile]]:
    """Partition and file group → the files of it that cleans have taken, as far as their plans are on the timeline."""
    found = dict[Group, list[BaseFile | LogFile]]()
    with ThreadPoolExecutor(PARALLEL) as pool:
        plans = list(pool.map(line.clean_of, sorted(line.cleans)))
    for partition, files in ((p, f) for data, where in plans for p, f in cleaning.planned(data, where).items()):
        for file in files:
            found.setdefault((partition, file.file_id), []).append(file)
    return found


class Past:
    """The slices of a table as of any of its writes, by one listing. `gone(instant, what)` makes the error for what was cleaned.

    Writes count in the order in which they ended, where the timeline says it.
    """

    def __init__(self, store: Store, line: Timeline, gone: Callable[[str, str], Exception]) -> None:
        self._there = file_groups.everything(store, line)
        self._names = {entry.name for entries in self._there.values() for _, entry in entries}
        self._holds, self._compactions = line.holds(by_end=True), line.compactions()
        self._ends = line.ends(file_groups.logged(self._there.values()))
        self._counts = sorted(instant.counts[0] for instant in line.completed)
        self._gone, self._cleaned = gone, cleaned(line)

    def before(self, instant: Instant) -> str:
        """When the write before another one counts; "": it is the first one. A compaction counts, so no slice before it is needed."""
        at = bisect_left(self._counts, instant.counts[0])
        return self._counts[at - 1] if at else ""

    def slice(self, group: Group, until: str, of: str) -> Slice | None:
        """The slice of a file group as of a time; None: it had none. `of`: the commit whose changes it is needed for."""
        if not until:
            return None
        holds = replace(self._holds, until=until)
        one = file_groups.slice_at(group, self._there.get(group, ()), holds, self._compactions, self._ends)
        begun = one.instant if one and one.name else ""
        if any(begun <= self._since(file) and holds(file.instant) for file in self._cleaned.get(group, ())):
            raise self._gone(of, f"a file of {group[1]} in {group[0]!r}")
        return one

    def _since(self, file: BaseFile | LogFile) -> str:
        """A time that tells in which slice a file belongs."""
        return self._ends.get(file.instant, file.instant) if isinstance(file, LogFile) else file.instant

    def sides(self, instant: Instant, group: Group, stats: Sequence[WriteStat], merging: Merging) -> Sides:
        """The slices to compare of one file group that a commit has written."""
        since, until = self.before(instant), instant.counts[0]
        before, after = self.slice(group, since, instant.time), self.slice(group, until, instant.time)
        for stat in stats:
            self._check(instant, group, stat, before)
        logged = all(names.log_file(str(stat.path).rpartition("/")[2]) for stat in stats)
        logged = logged and before is not None
        return Sides((before,) if before else (), (after,) if after else (), since, until, self._timed(merging), logged, instant.time)

    def replaced(self, instant: Instant, partition: str, groups: Sequence[str], ended: Sequence[str], merging: Merging) -> Sides:
        """The slices to compare of a partition in which file groups have ended: all of them together, as rows move."""
        since, until = self.before(instant), instant.counts[0]
        before = [self.slice((partition, group), since, instant.time) for group in dict.fromkeys((*ended, *groups))]
        if any(one is None for one in before[: len(set(ended))]):
            raise self._gone(instant.time, f"a file of {partition!r} before it")
        after = [self.slice((partition, group), until, instant.time) for group in dict.fromkeys(groups)]
        was, now = (tuple(one for one in some if one) for some in (before, after))
        return Sides(was, now, since, until, self._timed(merging), False, instant.time)

    def _timed(self, merging: Merging) -> Merging:
        """The same with logs that count as of a time."""
        return replace(merging, holds=self._holds)

    def _check(self, instant: Instant, group: Group, stat: WriteStat, before: Slice | None) -> None:
        """Whether the files that a commit names are there: cleans may have left the timeline."""
        path, base = str(stat.path), stat.base_file
        needed = [path, *([names.path(group[0], base.rpartition("/")[2])] if isinstance(base, str) and base else [])]
        lacking = next((name for name in needed if name not in self._names), "")
        if not lacking and names.base_file(path.rpartition("/")[2]) and (at := replaces(stat)) is not None:
            lacking = "" if before and before.name and before.instant == at else f"the file of {group[1]} in {group[0]!r} before it"
        if lacking:
            raise self._gone(instant.time, lacking)


# -------------------------------------------------------------------------------------------------------------------- the rows of both
def rows(store: Store, sides: Sides, columns: pa.Schema) -> Found:
    """Each key whose row differs between both sides, once."""
    whole = pa.schema([f for f in with_meta(columns) if f.name in columns.names or f.name in (KEY, TIME)])
    assert sides.merging is not None
    then, now = (replace(sides.merging, holds=replace(sides.merging.holds, until=until)) for until in (sides.since, sides.until))
    if not sides.before:
        for one in sides.after:
            for batch in reading.rows_of(store, one, whole, now):
                found = pa.Table.from_batches([batch])
                yield INSERT, found.column(KEY), None, found
        return
    keys = _brought(store, sides, now) if sides.logged else _changed(store, sides, then, now)
    if not len(keys):
        return
    old, new = _read(store, sides.before, whole, then, keys), _read(store, sides.after, whole, now, keys)
    met, same = _met(old, new)
    there = met >= 0
    gone = ~np.asarray(pc.is_in(old.column(KEY), value_set=new.column(KEY)), bool)  # also of a key that was there twice
    updated = there & ~same
    yield UPDATE, new.column(KEY).filter(pa.array(updated)), old.take(pa.array(met[updated])), new.filter(pa.array(updated))
    inserted, deleted = new.filter(pa.array(~there)), old.filter(pa.array(gone))
    yield INSERT, inserted.column(KEY), None, inserted
    yield DELETE, deleted.column(KEY), deleted, None


def _met(old: pa.Table, new: pa.Table) -> tuple[Any, Any]:
    """For each row of `new` the place of its key in `old` (-1: it is not there), and whether no commit has touched it since."""
    at = pc.index_in(new.column(KEY), value_set=old.column(KEY))
    met = np.asarray(pc.fill_null(at, -1).combine_chunks(), np.int64)
    same = np.zeros(new.num_rows, bool)
    there = np.flatnonzero(met >= 0)
    times = pc.equal(new.column(TIME).take(pa.array(there)), old.column(TIME).take(pa.array(met[there])))
    same[there] = np.asarray(pc.fill_null(times, False), bool)
    return met, same


def _brought(store: Store, sides: Sides, now: Merging) -> pa.Array:
    """The keys that the blocks of a commit have brought."""
    (one,) = sides.after
    instant = sides.instant or sides.until
    own = replace(now, holds=Holds(frozenset([instant]), frozenset(), "", instant))
    said = realtime.changes_of(store, one, own.reads(pa.schema([])), own)
    return pa.array([], pa.string()) if said is None else said.keys


def _changed(store: Store, sides: Sides, then: Merging, now: Merging) -> pa.Array:
    """The keys of rows that differ between both sides."""
    narrow = pa.schema([(KEY, pa.string()), (TIME, pa.string())])
    old, new = (
        pa.Table.from_batches((b for one in some for b in reading.rows_of(store, one, narrow, merging)), narrow)
        for some, merging in ((sides.before, then), (sides.after, now))
    )
    if old.column(KEY).null_count or new.column(KEY).null_count:
        raise FormatError(f"{store.url}/{sides.before[0].name or sides.before[0].logs[0]} has rows without a key: look who wrote it.")
    met, same = _met(old, new)
    gone = np.ones(old.num_rows, bool)
    gone[met[met >= 0]] = False
    parts = [new.column(KEY).filter(pa.array(~same)), old.column(KEY).filter(pa.array(gone))]
    return pa.concat_arrays([chunk for part in parts for chunk in part.chunks] or [pa.array([], pa.string())])


def _read(store: Store, slices: Sequence[Slice], whole: pa.Schema, merging: Merging, keys: pa.Array) -> pa.Table:
    """The rows of slices that have some keys."""
    reads, found = merging.reads(whole), list[pa.RecordBatch]()
    for one in slices:
        base = _of_base(store, one.name, reads, keys) if one.name else iter(())
        said = realtime.changes_of(store, one, reads, merging) if one.logs else None
        with reading.reading_of(f"{store.url}/{one.name or one.logs[0]}"):
            for batch in base if said is None else realtime.applied(base, realtime.only(said, keys), merging):
                found.append(batch.select(whole.names).cast(whole))
    return pa.Table.from_batches(found, whole)


def _of_base(store: Store, name: str, reads: pa.Schema, keys: pa.Array) -> Iterator[pa.RecordBatch]:
    """Rows of a base file that have some keys: of a row group without any the keys alone are read."""
    where, narrow = f"{store.url}/{name}", pa.schema([reads.field(KEY)])
    with reading.reading_of(where):
        file = parquet.open_file(store, name)
    for group in range(file.num_row_groups):
        hits = pc.is_in(reading.row_group(file, group, narrow, where).column(KEY), value_set=keys)
        if pc.any(hits).as_py():
            yield from reading.row_group(file, group, reads, where).filter(hits).to_batches()
