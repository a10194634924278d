"""The fold: what the log's commits make of an empty ledger, in order. The rows of each removed data file and of each uncovered
range leave, the segments' rows come.

It is computed without an order of its own: a row counts unless a later commit removed its data file or uncovered its range. So a
piece of the ledger (the paths from `first` to `last`) is folded from the few segments that may hold such paths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Task, Uncover
from quire.commit.log import Log
from quire.coverage import segments
from quire.storage import Store

__all__ = ["Fold", "Source", "fold", "overlap", "touched"]


@dataclass(frozen=True)
class Source:
    """A segment that counts, and the number of the commit that names it."""

    number: int
    segment: str
    first: str
    last: str


@dataclass(frozen=True)
class Fold:
    """What of the log decides the ledger at a version: plain data that travels to the tasks."""

    version: int
    sources: tuple[Source, ...]
    removed: dict[str, int]  # data file → number of the commit that removed it
    uncovered: dict[str, tuple[tuple[int, Uncover], ...]]  # path → what was uncovered of it, by which commit

    def rows(self, store: Store, columns: Sequence[str] = segments.SCHEMA.names, first: str = "", last: str = "") -> pa.Table:
        """The ledger's rows for the paths in [first, last], with the column `commit` added."""
        needed = list(dict.fromkeys([*columns, *self._also()]))
        tables = []
        for source in self.sources:
            if last and (source.first > last or source.last < first):
                continue
            table = segments.read(store, source.segment, needed, first, last)
            table = table.append_column("commit", pa.array([source.number], pa.int64()).take(pa.array([0] * table.num_rows, pa.int64())))
            tables.append(self._counting(table, source.number))
        if not tables:
            schema = pa.schema([segments.SCHEMA.field(c) for c in columns]).append(pa.field("commit", pa.int64()))
            return schema.empty_table()
        return pa.concat_tables(tables).select([*columns, "commit"])

    def of(self, source: Source) -> Fold:
        """The same, of one segment alone."""
        return Fold(self.version, (source,), self.removed, self.uncovered)

    def _also(self) -> list[str]:
        """The columns that deciding needs."""
        return (["data_file"] if self.removed else []) + (["path", "version", "start", "length"] if self.uncovered else [])

    def _counting(self, table: pa.Table, number: int) -> pa.Table:
        gone = [file for file, by in self.removed.items() if by > number]
        if gone:
            keep = pc.invert(pc.is_in(table.column("data_file"), pa.array(gone, pa.string())))
            table = table.filter(keep)
        later = [path for path, found in self.uncovered.items() if any(by > number for by, _ in found)]
        if later and table.num_rows:
            some = pc.indices_nonzero(pc.is_in(table.column("path"), pa.array(later, pa.string())))
            rows = table.select(["path", "version", "start", "length"]).take(some).to_pylist()
            out = [i for i, row in zip(some.to_pylist(), rows, strict=True) if self._uncovered(number, **row)]
            if out:
                table = table.filter(pc.invert(pc.is_in(pa.array(range(table.num_rows)), pa.array(out))))
        return table

    def _uncovered(self, number: int, path: str, version: str, start: int, length: int) -> bool:
        """Whether a commit after `number` has uncovered a row."""
        later = (u for by, u in self.uncovered[path] if by > number and u.version == version)
        return any(overlap(u.ranges, [(start, length)]) for u in later)


def fold(log: Log, version: int | None = None, *, reader: bool = False) -> Fold:
    """The ledger at a version: of all commits (for planning, at a settled version) or of the published ones (for readers)."""
    version = log.tip if version is None else version
    sources, removed = list[Source](), dict[str, int]()
    uncovered = defaultdict[str, list[tuple[int, Uncover]]](list)
    for number, commit in log.commits(until=version):
        for task in log.in_effect(commit, version, reader=reader):
            if task.segment:
                sources.append(Source(number, task.segment, task.first, task.last))
            for file in task.removes:
                removed.setdefault(file, number)
            # The rows that a task uncovers in files that it removes leave with these.
            for uncover in () if task.removes else task.uncovers:
                uncovered[uncover.path].append((number, uncover))
    return Fold(version, tuple(sources), removed, {path: tuple(found) for path, found in uncovered.items()})


def overlap(a: Iterable[tuple[int, int]], b: Iterable[tuple[int, int]]) -> bool:
    """Whether ranges (start, length) share a byte; an empty range is a point of its own that meets an equal one."""
    b = list(b)
    return any((s1 == s2 and n1 == n2 == 0) or (n1 > 0 and n2 > 0 and s1 < s2 + n2 and s2 < s1 + n1) for s1, n1 in a for s2, n2 in b)


def touched(store: Store, task: Task) -> dict[str, list[tuple[str, int, int]]]:
    """What a task covers or uncovers: path → [(version, start, length)]. Carried rows are no touch."""
    found = defaultdict[str, list[tuple[str, int, int]]](list)
    if task.segment:
        rows = segments.read(store, task.segment, ["path", "version", "start", "length", "carried"])
        rows = rows.filter(pc.invert(rows.column("carried")))
        for path, version, start, length in zip(*(rows.column(c).to_pylist() for c in ("path", "version", "start", "length")), strict=True):
            found[path].append((version, start, length))
    for uncover in task.uncovers:
        found[uncover.path].extend((uncover.version, start, length) for start, length in uncover.ranges)
    return found
