"""The coverage of each path, as joined ranges: for sources that grow without end, however many rows they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quire.coverage.fold import Fold, after
from quire.storage import Store

LOST = "lost"  # the state of a range that was removed at its source before it was read
_COLUMNS = ["path", "version", "start", "length", "state", "records", "written"]


@dataclass
class Covered:
    """The rows of a path: their versions, their ranges [start, end) joined and in order, and how much of them is in which state.

    `records` and `written`: what those that are done have become in data files, the bytes before they were compressed.
    """

    versions: set[str] = field(default_factory=set)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)
    records: int = 0
    written: int = 0

    def add(self, other: Covered) -> None:
        """The other rows of the same path."""
        self.versions |= other.versions
        self.ranges = _joined([*self.ranges, *other.ranges])
        for state, length in other.states.items():
            self.states[state] = self.states.get(state, 0) + length
        self.records, self.written = self.records + other.records, self.written + other.written

    @property
    def end(self) -> int:
        """Where the ranges that begin at 0 have their first gap: everything before has been seen to."""
        return self.ranges[0][1] if self.ranges and self.ranges[0][0] == 0 else 0

    def gaps(self, end: int) -> list[tuple[int, int]]:
        """The ranges of [0, end) that no row covers."""
        found, at = list[tuple[int, int]](), 0
        for start, until in self.ranges:
            if at < min(start, end):
                found.append((at, min(start, end)))
            at = max(at, until)
        return [*found, (at, end)] if at < end else found


@dataclass
class Known:
    """The part of the ledger that a loop has read so far: a segment never changes, so each is read once.

    Where a later commit has taken rows away since, or a checkpoint stands for segments, all is read anew.
    """

    of: tuple[object, ...] = ()  # which paths, and what takes rows away
    sources: tuple[str, ...] = ()  # those that were read
    found: dict[str, Covered] = field(default_factory=dict)


def covered(fold: Fold, store: Store, beginning: str, known: Known | None = None) -> dict[str, Covered]:
    """The coverage of the paths that begin so; the rows of one source of the fold are held at a time.

    `known`: of a call that asks again. The returned ranges then belong to it, and must not be changed.
    """
    known = Known() if known is None else known
    of = beginning, fold.removed, fold.uncovered, fold.undone
    names = tuple(source.segment for source in fold.sources)
    read = len(known.sources)
    if known.of != of or names[:read] != known.sources:
        known.of, known.sources, known.found, read = of, (), {}, 0
    for source in fold.sources[read:]:
        if source.first < after(beginning) and source.last >= beginning:
            mine = dict[str, Covered]()
            for batch in fold.of(source).beginning(store, _COLUMNS, beginning).combine_chunks().to_batches():
                _take(batch, mine)
            for path, one in mine.items():
                known.found.setdefault(path, Covered()).add(one)
        known.sources += (source.segment,)
    return known.found


def _take(rows: pa.RecordBatch, found: dict[str, Covered]) -> None:
    """Join the rows of a batch to what was found before."""
    paths = rows.column("path").dictionary_encode()
    codes, names = paths.indices.to_numpy(), paths.dictionary.to_pylist()
    starts = rows.column("start").to_numpy()
    ends = starts + rows.column("length").to_numpy()
    order = np.lexsort((starts, codes))
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[low:high]
        one = found.setdefault(names[codes[mine[0]]], Covered())
        one.ranges = _joined([*one.ranges, *_merged(starts[mine], ends[mine])])
    # For all paths at once: of a topic with thousands of partitions, each has few rows.
    sums = [(column, "sum") for column in ("length", "records", "written")]
    table = pa.Table.from_batches([rows]).group_by(["path", "version", "state"], use_threads=False)
    for entry in table.aggregate(sums).to_pylist():
        one = found[entry["path"]]
        one.versions.add(entry["version"])
        one.states[entry["state"]] = one.states.get(entry["state"], 0) + entry["length_sum"]
        if entry["state"] == "done":
            one.records, one.written = one.records + (entry["records_sum"] or 0), one.written + (entry["written_sum"] or 0)


def _merged(starts: np.ndarray, ends: np.ndarray) -> Iterable[tuple[int, int]]:
    """Ranges in the order of their starts, joined where they touch; empty ones say nothing."""
    reach = np.maximum.accumulate(ends)
    new = np.flatnonzero(np.concatenate(([True], starts[1:] > reach[:-1])))
    last = np.append(new[1:], len(starts)) - 1
    return ((int(s), int(e)) for s, e in zip(starts[new], reach[last], strict=True) if e > s)


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found = list[tuple[int, int]]()
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found
