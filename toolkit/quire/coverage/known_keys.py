"""Which records are known by their keys: a process holds a few bytes of each key of a window, and reads the rest where these match.

It holds 40 bits of each key's fingerprint and the object that the key is in, sorted by ranges of the first eight bits. A record whose bits
are not there is new, for sure. Where they are, which nearly always is a key that comes again, the object's rows say it exactly: all 128
bits, the time, and whether the ledger still covers the record.

Objects never change, so a process keeps what it has read of a window for its next task: it reads new objects alone. They become levels,
each at least twice as large as the next one, so that there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quire.coverage.deduplicate import Prints
from quire.coverage.keys import ROW, KeyObject, Window, heads_of, matching, sorted_rows
from quire.storage import Store

Array = npt.NDArray[Any]
RANGES = 256
MOST = 1 << 30  # bytes that a process holds of windows beside the one that it uses
OPENED = 16  # objects that are asked for at once


class _Level(NamedTuple):
    """The heads of some objects' keys: those of range r are [starts[r], starts[r + 1]), sorted, each with the number of its object.

    Merged objects have ranges of their own: then there is one number for each range.
    """

    starts: Array
    heads: Array
    objects: Array
    apart: bool

    def of(self, r: int, at: Array) -> Array:
        """The objects of some heads of a range."""
        return np.repeat(self.objects[r], len(at)) if self.apart else self.objects[int(self.starts[r]) + at]

    def each(self) -> Array:
        """The objects of all heads."""
        return np.repeat(self.objects, np.diff(self.starts)) if self.apart else self.objects


class KnownKeys:
    """The keys of a window, as a process holds them."""

    def __init__(self) -> None:
        self.objects = list[KeyObject]()
        self.names = dict[str, int]()
        self.levels = list[_Level]()

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(level.heads.nbytes + level.objects.nbytes for level in self.levels) + sum(one.bounds.nbytes for one in self.objects)

    def add(self, store: Store, window: Window) -> None:
        """Take in the objects that are not held yet."""
        new = [run for run in window.runs if run.name not in self.names and run.count]
        with ThreadPoolExecutor(OPENED) as pool:
            opened = [*pool.map(lambda run: KeyObject(store, run.name, run.count), new)]
        first = len(self.objects)
        self.objects += opened
        self.names.update({one.name: i for i, one in enumerate(opened, first)})
        if opened:
            self.levels.append(_of_objects(opened, first))
        while len(self.levels) > 1 and len(self.levels[-2].heads) < 2 * len(self.levels[-1].heads):
            self.levels[-2:] = [_together(self.levels[-2:])]

    def known(self, window: Window, wanted: Prints) -> Array:
        """Which of the fingerprints, in their order, are in the window, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        open_ = np.flatnonzero(wanted.told)
        high = wanted.high[open_]
        cuts = [*high.searchsorted(np.arange(RANGES, dtype=np.uint64) << np.uint64(56)).tolist(), len(high)]
        hits = [hit for level in self.levels for hit in _hits(level, heads_of(high), cuts)]
        if not hits:
            return found
        places, objects = open_[np.concatenate([places for places, _ in hits])], np.concatenate([objects for _, objects in hits])
        order = np.lexsort((places, objects))
        places, objects = places[order], objects[order]
        numbers = {run.name: run.number for run in window.runs}
        for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(objects)) + 1):
            one, mine = self.objects[int(objects[some[0]])], np.unique(places[some])
            mine = mine[~found[mine]]
            for rows, which in one.among(wanted.high[mine]) if len(mine) else ():
                here = mine[which]
                found[here] |= matching(one.counting(rows, numbers[one.name], window.uncovered), wanted.take(here), window.within)
        return found


def _hits(level: _Level, heads: Array, cuts: Sequence[int]) -> Iterable[tuple[Array, Array]]:
    """The places of heads that the level has, with the numbers of the objects; a place as often as it has it."""
    for r in range(RANGES):
        first, end = cuts[r], cuts[r + 1]
        if first == end:
            continue
        low, high = int(level.starts[r]), int(level.starts[r + 1])
        there, wanted = level.heads[low:high], heads[first:end]
        at = there.searchsorted(wanted)
        open_ = np.arange(len(wanted))
        while len(open_):
            inside = at < len(there)
            open_, at = open_[inside], at[inside]
            same = there[at] == wanted[open_]
            open_, at = open_[same], at[same]
            if len(open_):
                yield open_ + first, level.of(r, at)
            at = at + 1


def _of_objects(objects: Sequence[KeyObject], first: int) -> _Level:
    """A level of new objects, numbered from `first` on: the heads of one are held at a time, beside all."""
    starts, reads = [one.starts() for one in objects], [one.heads for one in objects]
    return _placed(starts, reads, [np.array([i], np.uint32) for i in range(first, first + len(objects))])


def _together(levels: Sequence[_Level]) -> _Level:
    return _placed([level.starts for level in levels], [partial(_heads, level) for level in levels], [level.each() for level in levels])


def _heads(level: _Level) -> Array:
    return level.heads


def _placed(starts: Sequence[Array], reads: Sequence[Callable[[], Array]], numbers: Sequence[Array]) -> _Level:
    """A level of sorted heads that are read one after the other; `numbers`: of their objects, one for all or for each head."""
    counts = np.stack([np.diff(each) for each in starts])
    begins = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    places = begins[:-1] + np.concatenate([np.zeros((1, RANGES), np.int64), np.cumsum(counts, axis=0)[:-1]])
    apart = bool(((counts > 0).sum(axis=0) <= 1).all()) and all(len(number) == 1 for number in numbers)
    kind = np.uint16 if max(int(number.max(initial=0)) for number in numbers) < 1 << 16 else np.uint32
    heads, objects = np.empty(int(begins[-1]), np.uint32), np.zeros(RANGES if apart else int(begins[-1]), kind)
    for i, (at, read, number) in enumerate(zip(starts, reads, numbers, strict=True)):
        mine = read()
        for r in np.flatnonzero(counts[i]).tolist():
            place, n = int(places[i, r]), int(counts[i, r])
            heads[place : place + n] = mine[at[r] : at[r] + n]
            if apart:
                objects[r] = number[0]
            else:
                objects[place : place + n] = number if len(number) == 1 else number[at[r] : at[r] + n]
    for r in np.flatnonzero((counts > 0).sum(axis=0) > 1).tolist():
        part = slice(int(begins[r]), int(begins[r + 1]))
        order = np.argsort(heads[part], kind="stable")
        heads[part], objects[part] = heads[part][order], objects[part][order]
    return _Level(begins, heads, objects, apart)


# -------------------------------------------------------------------------------------------------- what a process holds of windows
_HELD = dict[tuple[str, str], KnownKeys]()


def held(store: Store, window: Window) -> KnownKeys:
    """The keys of a window, read as far as this process does not hold them."""
    key, wanted = (store.url, window.by), {run.name for run in window.runs if run.count}
    found = _HELD.pop(key, None)
    if found is None or not found.names.keys() <= wanted:
        found = KnownKeys()
    for one in found.objects:
        one.store = store  # of the task that asks now: the credentials of an earlier one may have expired
    found.add(store, window)  # what fails half-way is not held
    _HELD[key] = found
    while len(_HELD) > 1 and sum(each.size for each in [*_HELD.values()]) > MOST:
        _HELD.pop(next(iter(_HELD)), None)
    return found


# -------------------------------------------------------------------------------------------------------------- what a task has kept
class OwnKeys:
    """The keys of the records that a task keeps itself, in sorted parts, each at least twice as large as the next one."""

    def __init__(self) -> None:
        self.parts = list[tuple[Array, Array]]()  # the first halves of fingerprints, side by side, and the rows

    def add(self, rows: Array) -> None:
        """Records that are kept."""
        if len(rows):
            self.parts.append(_in_order([rows]))
        while len(self.parts) > 1 and len(self.parts[-2][0]) < 2 * len(self.parts[-1][0]):
            self.parts[-2:] = [_in_order([rows for _, rows in self.parts[-2:]])]

    def known(self, wanted: Prints, within: int) -> Array:
        """Which of the fingerprints, in their order, are those of kept records, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        for high, rows in self.parts:
            found |= matching(rows, wanted, within, high)
        return found

    def all(self) -> Array:
        """All of them, in the order in which an object has them; they are given away, as there may be many."""
        while len(self.parts) > 1:
            self.parts[-2:] = [_in_order([rows for _, rows in self.parts[-2:]])]
        return self.parts.pop()[1] if self.parts else np.zeros(0, ROW)


def _in_order(tables: Sequence[Array]) -> tuple[Array, Array]:
    rows = sorted_rows(tables)
    return np.ascontiguousarray(rows["high"]), rows


def rows_of(wanted: Prints, offsets: Array, part: int) -> Array:
    """The rows of records that are kept."""
    rows = np.zeros(len(offsets), ROW)
    rows["high"], rows["low"], rows["at"], rows["offset"], rows["part"] = wanted.high, wanted.low, wanted.at, offsets, part
    return rows
