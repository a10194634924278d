"""What of each path is covered, as ranges that have been joined: of sources that go on and on, however many rows say so."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.fold import Fold
from quire.storage import Store

__all__ = ["LOST", "Covered", "Known", "covered"]

LOST = "lost"  # the state of a range that was removed at its source before it was read
_COLUMNS = ["path", "version", "start", "length", "state"]


@dataclass
class Covered:
    """The rows of a path: their versions, their ranges [start, end) joined and in order, and how much of them is in which state."""

    versions: set[str] = field(default_factory=set)
    ranges: list[tuple[int, int]] = field(default_factory=list)
    states: dict[str, int] = field(default_factory=dict)

    def add(self, other: Covered) -> None:
        """What other rows say of the same path."""
        self.versions |= other.versions
        self.ranges = _joined([*self.ranges, *other.ranges])
        for state, length in other.states.items():
            self.states[state] = self.states.get(state, 0) + length

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
    """What a loop has read of the ledger so far, and goes on with: a segment never changes, so each is read once.

    Where a later commit has taken rows away since, or a checkpoint stands for segments, all is read anew.
    """

    of: tuple[object, ...] = ()  # which paths, and what takes rows away
    sources: tuple[str, ...] = ()  # those that were read
    found: dict[str, Covered] = field(default_factory=dict)


def covered(fold: Fold, store: Store, first: str, last: str, known: Known | None = None) -> dict[str, Covered]:
    """What is covered of the paths in [first, last]; the rows of one source of the fold are held at a time.

    `known`: of a call that asks again. What is given then is its own, and not to be changed.
    """
    known = Known() if known is None else known
    of = first, last, fold.removed, fold.uncovered
    names = tuple(source.segment for source in fold.sources)
    read = len(known.sources)
    if known.of != of or names[:read] != known.sources:
        known.of, known.sources, known.found, read = of, (), {}, 0
    for source in fold.sources[read:]:
        if source.first <= last and source.last >= first:
            mine = dict[str, Covered]()
            for batch in fold.of(source).rows(store, _COLUMNS, first, last).combine_chunks().to_batches():
                _take(batch, mine)
            for path, one in mine.items():
                known.found.setdefault(path, Covered()).add(one)
        known.sources += (source.segment,)
    return known.found


def _take(rows: pa.RecordBatch, found: dict[str, Covered]) -> None:
    """Join the rows of a batch to what was found before."""
    paths = rows.column("path").dictionary_encode()
    codes = paths.indices.to_numpy()
    starts = rows.column("start").to_numpy()
    ends = starts + rows.column("length").to_numpy()
    order = np.lexsort((starts, codes))
    bounds = np.flatnonzero(np.diff(codes[order], prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        mine = order[low:high]
        one = found.setdefault(paths.dictionary[int(codes[mine[0]])].as_py(), Covered())
        some = rows.take(pa.array(mine)) if len(mine) < rows.num_rows else rows
        one.versions.update(pc.unique(some.column("version")).to_pylist())
        for entry in pa.table([some.column("state"), some.column("length")], ["state", "length"]).group_by(
            "state", use_threads=False
        ).aggregate([("length", "sum")]).to_pylist():  # fmt: skip
            one.states[entry["state"]] = one.states.get(entry["state"], 0) + entry["length_sum"]
        one.ranges = _joined([*one.ranges, *_merged(starts[mine], ends[mine])])


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
