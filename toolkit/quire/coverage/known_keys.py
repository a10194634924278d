"""Which records are known by their keys: a process holds a few bytes of each key of a window, and reads the rest where these match.

Of each key it holds 40 bits of the fingerprint and the object that it is in, sorted by ranges of the first eight bits. What is not there
is new, for sure. Of what is there, nearly always a key that comes again, the object's rows say it exactly: all 128 bits, the time, and
whether the ledger still covers the record.

Objects never change, so a process keeps what it has read of a window for its next task: it reads new objects alone. They become levels,
each at least twice as large as the next one, so that there are few of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """The heads of some objects' keys: those of range r are [starts[r], starts[r + 1]), sorted, each with the number of its object."""

    starts: Array
    heads: Array
    objects: Array


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
        """Which records of the fingerprints are in the window: one of their key was kept, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        order = np.argsort(wanted.high)
        order = order[wanted.told[order]]
        candidates = dict[int, list[Array]]()
        cuts = wanted.high[order].searchsorted(np.arange(RANGES, dtype=np.uint64) << np.uint64(56))
        heads = heads_of(wanted.high)[order]
        for level in self.levels:
            for places, objects in _hits(level, heads, [*cuts.tolist(), len(order)]):
                for number in np.unique(objects).tolist():
                    candidates.setdefault(number, []).append(order[places[objects == number]])
        numbers = {run.name: run.number for run in window.runs}
        for number, some in candidates.items():
            one, places = self.objects[number], np.unique(np.concatenate(some))
            if one.name not in numbers:
                continue
            places = places[~found[places]]
            places = places[np.argsort(wanted.high[places], kind="stable")]
            for rows, mine in one.among(wanted.high[places]) if len(places) else ():
                counting = rows[one.counts(rows, numbers[one.name], window.uncovered)]
                here = places[mine]
                found[here] |= matching(counting, wanted.take(here), window.within)
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
                yield open_ + first, level.objects[low:high][at]
            at = at + 1


def _of_objects(objects: Sequence[KeyObject], first: int) -> _Level:
    """A level of new objects, numbered from `first` on: the heads of one are held at a time, beside all."""
    return _placed([one.starts() for one in objects], [one.heads for one in objects], [*range(first, first + len(objects))])


def _together(levels: Sequence[_Level]) -> _Level:
    return _placed([level.starts for level in levels], [lambda level=level: level.heads for level in levels],
                   [level.objects for level in levels])  # fmt: skip


def _placed(starts: Sequence[Array], heads: Sequence[Any], numbers: Sequence[Any]) -> _Level:
    counts = np.stack([np.diff(each) for each in starts])
    begins = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    within = begins[:-1] + np.concatenate([np.zeros((1, RANGES), np.int64), np.cumsum(counts, axis=0)[:-1]])
    total = int(begins[-1])
    made, objects = np.empty(total, np.uint32), np.empty(total, np.uint32 if _largest(numbers) >= 1 << 16 else np.uint16)
    for i, (at, read, number) in enumerate(zip(starts, heads, numbers, strict=True)):
        mine = read()
        for r in np.flatnonzero(counts[i]).tolist():
            place, n = int(within[i, r]), int(counts[i, r])
            made[place : place + n] = mine[at[r] : at[r] + n]
            objects[place : place + n] = number[at[r] : at[r] + n] if isinstance(number, np.ndarray) else number
    for r in np.flatnonzero((counts > 0).sum(axis=0) > 1).tolist():
        part = slice(int(begins[r]), int(begins[r + 1]))
        order = np.argsort(made[part], kind="stable")
        made[part], objects[part] = made[part][order], objects[part][order]
    return _Level(begins, made, objects)


def _largest(numbers: Sequence[Any]) -> int:
    return max((int(each.max(initial=0)) if isinstance(each, np.ndarray) else each for each in numbers), default=0)


# -------------------------------------------------------------------------------------------------- what a process holds of windows
_HELD = dict[tuple[str, str], KnownKeys]()


def held(store: Store, window: Window) -> KnownKeys:
    """The keys of a window, read as far as this process does not hold them."""
    key, wanted = (store.url, window.by), {run.name for run in window.runs if run.count}
    found = _HELD.pop(key, None)
    if found is None or not found.names.keys() <= wanted:
        found = KnownKeys()
    found.add(store, window)  # what fails half-way is not held
    _HELD[key] = found
    while len(_HELD) > 1 and sum(each.size for each in [*_HELD.values()]) > MOST:
        _HELD.pop(next(iter(_HELD)), None)
    return found


# -------------------------------------------------------------------------------------------------------------- what a task has kept
class OwnKeys:
    """The keys of the records that a task keeps itself, in sorted parts, each at least twice as large as the next one."""

    def __init__(self) -> None:
        self.parts = list[Array]()

    def add(self, rows: Array) -> None:
        """Records that are kept."""
        if len(rows):
            self.parts.append(sorted_rows([rows]))
        while len(self.parts) > 1 and len(self.parts[-2]) < 2 * len(self.parts[-1]):
            self.parts[-2:] = [sorted_rows(self.parts[-2:])]

    def known(self, wanted: Prints, within: int) -> Array:
        """Which of the fingerprints are those of kept records, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        for part in self.parts:
            found |= matching(part, wanted, within)
        return found

    def all(self) -> Array:
        """All of them, in the order in which an object has them."""
        return sorted_rows(self.parts)


def rows_of(wanted: Prints, offsets: Array, part: int) -> Array:
    """The rows of records that are kept."""
    rows = np.zeros(len(offsets), ROW)
    rows["high"], rows["low"], rows["at"], rows["offset"], rows["part"] = wanted.high, wanted.low, wanted.at, offsets, part
    return rows
