"""Which records are known by their keys: a process holds a few bytes of each key of a window, and reads the rest where these match.

It holds 40 bits of each key's fingerprint and the object that the key is in, in order. A record whose bits are not there is new, for sure.
Where they are, which nearly always is a key that comes again, the object's rows say it exactly: all 128 bits, the time, and whether the
ledger still covers the record.

Objects never change, so a process keeps what it has read of a window for its next task: it reads new objects alone. They become levels,
each at least twice as large as the next one, so that there are few of them.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from quire.commit import names
from quire.commit.checkpoints import KeyRun
from quire.coverage.deduplicate import Prints
from quire.coverage.keys import (
    ROW,
    SOME,
    KeyObject,
    Place,
    Window,
    heads_of,
    joined,
    lower_bound,
    matching,
    picked,
    put,
    put_parts,
    sorted_rows,
)
from quire.coverage.uncovered import Uncovered
from quire.storage import Store
from quire.storage.scratch import on_disk

Array = npt.NDArray[Any]
RANGES = 256
MOST = 1 << 30  # bytes that a process holds of windows beside the one that it uses
OPENED = 16  # objects that are asked for at once
BETWEEN = 16  # heads between two fences, about


class _Level(NamedTuple):
    """The heads of some objects' keys in the order of their fingerprints, each with the number of its object.

    Those of fingerprints that begin with the bits of b are [fences[b], fences[b + 1]); there are `bits` of these. Merged objects have
    ranges of their own: then there is one number for each first eight bits.
    """

    fences: Array
    bits: int
    heads: Array
    objects: Array
    apart: bool

    def starts(self) -> Array:
        """The first head of each value of a fingerprint's first eight bits, and how many there are in all."""
        return self.fences[:: 1 << (self.bits - 8)].astype(np.int64)

    def each(self) -> Array:
        """The objects of all heads."""
        return np.repeat(self.objects, np.diff(self.starts())) if self.apart else self.objects

    def hits(self, high: Array) -> Iterable[tuple[Array, Array]]:
        """The places of fingerprints in their order whose heads are here, with the numbers of the objects; one a time of several."""
        fence, heads = (high >> np.uint64(64 - self.bits)).astype(np.int64), heads_of(high)
        end = self.fences[fence + 1].astype(np.int64)
        at = lower_bound(self.heads, heads, self.fences[fence].astype(np.int64), end)
        open_ = np.flatnonzero((self.heads.take(at, mode="clip") == heads) & (at < end))
        if self.apart:
            yield open_, self.objects[(high[open_] >> np.uint64(56)).astype(np.int64)]
            return
        # However often a head is there, those of an object stand together, and objects in their order.
        at, end = at[open_], lower_bound(self.heads, heads[open_].astype(np.int64) + 1, at[open_], end[open_])
        while len(open_):
            objects = self.objects[at]
            yield open_, objects
            at = lower_bound(self.objects, objects.astype(np.int64) + 1, at, end)
            there = at < end
            open_, at, end = open_[there], at[there], end[there]


class KnownKeys:
    """The keys of a window, as a process holds them."""

    def __init__(self) -> None:
        self.objects = list[KeyObject]()
        self.names = dict[str, int]()
        self.levels = list[_Level]()

    @property
    def size(self) -> int:
        """Bytes that are held."""
        levels = sum(level.heads.nbytes + level.objects.nbytes + level.fences.nbytes for level in self.levels)
        return levels + sum(one.bounds.nbytes for one in self.objects)

    def add(self, store: Place, window: Window) -> None:
        """Take in the objects that are not held yet."""
        new = [run for run in window.runs if run.name not in self.names and run.count]
        with ThreadPoolExecutor(OPENED) as pool:
            opened = [*pool.map(lambda run: KeyObject(store, run.name, run.count), new)]
        groups = dict[str, list[KeyObject]]()
        for one in opened:  # those that were merged together have ranges of their own, and need no number for each key
            groups.setdefault(names.merged_group(one.name), []).append(one)
        for mine in sorted(groups.values(), key=lambda group: -sum(one.count for one in group)):
            self.names.update({one.name: i for i, one in enumerate(mine, len(self.objects))})
            self.levels.append(_of_objects(mine, len(self.objects)))
            self.objects += mine
            while len(self.levels) > 1 and len(self.levels[-2].heads) < 2 * len(self.levels[-1].heads):
                self.levels[-2:] = [_together(self.levels[-2:])]

    def known(self, window: Window, wanted: Prints) -> Array:
        """Which of the fingerprints, in their order, are in the window, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        open_ = np.flatnonzero(wanted.told)
        hits = [hit for level in self.levels for hit in level.hits(wanted.high[open_]) if len(hit[0])]
        if not hits:
            return found
        places, objects = open_[np.concatenate([places for places, _ in hits])], np.concatenate([objects for _, objects in hits])
        order = np.lexsort((places, objects))
        places, objects = places[order], objects[order]
        numbers = {run.name: run.number for run in window.runs}
        waiting, size = list[tuple[Array, Array]](), 0  # rows of objects whose ranges follow one another, and who looks for them

        def look() -> None:
            here = np.concatenate([here for _, here in waiting])
            found[here] |= matching(joined([rows for rows, _ in waiting]), wanted.take(here), window.within)
            waiting.clear()

        for some in np.split(np.arange(len(places)), np.flatnonzero(np.diff(objects)) + 1):
            one, mine = self.objects[int(objects[some[0]])], places[some]  # each once: those of an object are in one level
            for there, which in one.among(wanted.high[mine]):
                rows = one.counting(there, numbers[one.name], window.uncovered)
                if not len(rows):
                    continue
                if waiting and (size > SOME or rows["high"][0] <= waiting[-1][0]["high"][-1]):
                    look()
                    size = 0
                waiting.append((rows, mine[which]))
                size += len(rows)
        if waiting:
            look()
        return found


def _of_objects(objects: Sequence[KeyObject], first: int) -> _Level:
    """A level of new objects, numbered from `first` on: the heads of one are held at a time, beside all."""
    starts, reads = [one.starts() for one in objects], [one.heads for one in objects]
    return _placed(starts, reads, [np.array([i], np.uint32) for i in range(first, first + len(objects))])


def _together(levels: Sequence[_Level]) -> _Level:
    return _placed([level.starts() for level in levels], [partial(_heads, level) for level in levels], [level.each() for level in levels])


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
    bits = min(26, max(8, (len(heads) // BETWEEN).bit_length()))
    edges = np.arange(1 << (bits - 8), dtype=np.uint64) << np.uint64(40 - bits)
    fences = np.empty((1 << bits) + 1, np.uint32 if len(heads) < 1 << 32 else np.int64)
    for r in range(RANGES):
        part = slice(r << (bits - 8), (r + 1) << (bits - 8))
        fences[part] = begins[r] + heads[begins[r] : begins[r + 1]].searchsorted(edges.astype(np.uint32))
    fences[-1] = len(heads)
    return _Level(fences, bits, heads, objects, apart)


# -------------------------------------------------------------------------------------------------- what a process holds of windows
_HELD = dict[tuple[str, str], KnownKeys]()


def held(store: Store, window: Window) -> KnownKeys:
    """The keys of a window, read as far as this process does not hold them."""
    key, wanted = (store.url, window.by), {run.name for run in window.runs if run.count}
    found = _HELD.pop(key, None)
    if found is None or not found.names.keys() <= wanted:
        found = KnownKeys()
    for one in found.objects:
        one.through(store)  # of the task that asks now: the credentials of an earlier one may have expired
    found.add(store, window)  # what fails half-way is not held
    _HELD[key] = found
    while len(_HELD) > 1 and sum(each.size for each in [*_HELD.values()]) > MOST:
        _HELD.pop(next(iter(_HELD)), None)
    return found


# -------------------------------------------------------------------------------------------------------------- what a task has kept
HELD = 1 << 21  # rows of what a task has kept that are in memory
_SLOTS = 22  # bits of their table's size, twice as many
_SPREAD = np.uint64(0x9E3779B97F4A7C15)


class OwnKeys:
    """The keys of the records that a task keeps itself: the newest ones in memory, those before them on this machine's disk.

    A table has the number of each row in memory, from the place on that its fingerprint and its time say: times are cut into spans, and a
    key is kept once in each at most. Those on the disk are like the objects of a window, and are looked up likewise.
    """

    def __init__(self, within: int) -> None:
        self.within, self.count, self.first, self.last = within, 0, 0, 0  # rows in memory, and the spans that they are of
        self._rows, self._table = np.empty(HELD, ROW), np.zeros(1 << _SLOTS, np.int32)
        self._disk, self._runs, self._spilled = _Disk(), list[KeyRun](), KnownKeys()

    def __len__(self) -> int:
        return self.count + sum(run.count for run in self._runs)

    def add(self, rows: Array) -> None:
        """Records that are kept."""
        while len(rows):
            some, rows = rows[: HELD - self.count], rows[HELD - self.count :]
            spans = self._spans(some["at"])
            ends = (int(spans.min()), int(spans.max()))
            self.first, self.last = (min(self.first, ends[0]), max(self.last, ends[1])) if self.count else ends
            self._rows[self.count : self.count + len(some)] = some
            slots, numbers = _slots(some["high"], spans), np.arange(self.count + 1, self.count + len(some) + 1, dtype=np.int32)
            while len(slots):
                free = self._table[slots] == 0
                self._table[slots[free]] = numbers[free]
                left = self._table[slots] != numbers
                slots, numbers = _next(slots[left]), numbers[left]
            self.count += len(some)
            if self.count == HELD:
                self._spill()

    def known(self, wanted: Prints) -> Array:
        """Which of the fingerprints, in their order, are those of kept records, at a time that is near enough."""
        found = np.zeros(len(wanted.high), np.bool_)
        if self._runs:
            found |= self._spilled.known(self._window(), wanted)
        if self.count:
            spans, rows = self._spans(wanted.at), self._rows.view("<u8").reshape(HELD, -1)
            for beside in (-1, 0, 1):
                of = spans + beside
                open_ = np.flatnonzero(wanted.told & ~found & (of >= self.first) & (of <= self.last))
                slots = _slots(wanted.high[open_], of[open_])
                while len(open_):
                    at = self._table[slots]
                    there = at > 0
                    open_, slots, at = open_[there], slots[there], at[there]
                    row = rows.take(at - 1, axis=0)
                    same = (row[:, 0] == wanted.high[open_]) & (row[:, 1] == wanted.low[open_])
                    same &= np.abs(row[:, 2].view(np.int64) - wanted.at[open_]) <= self.within
                    found[open_[same]] = True
                    open_, slots = open_[~same], _next(slots[~same])
        return found

    def put(self, store: Store, name: str, paths: Sequence[tuple[str, str]]) -> int:
        """Write all of them into an object, and return the latest time of a record. Nothing can be added after it."""
        if not self._runs:
            return put(store, name, self._in_order(), paths)
        self._spill()
        return put_parts(store, name, self._merged, len(self), paths)

    def _in_order(self) -> Array:
        """The rows in memory."""
        return picked(self._rows, np.argsort(np.ascontiguousarray(self._rows["high"][: self.count])))

    def _spill(self) -> None:
        """Let rows in memory go to the disk."""
        if not self.count:
            return
        name, n = str(len(self._runs)), self.count
        put(self._disk, name, self._in_order(), [("", "")] * (int(self._rows["part"][:n].max()) + 1))
        self._runs.append(KeyRun(name, n, "", 0, 0, 0))
        self.count = 0
        self._table[:] = 0
        self._spilled.add(self._disk, self._window())

    def _merged(self) -> Iterator[Array]:
        """All rows on the disk in their order, some at a time."""
        objects, starts = self._spilled.objects, [one.starts() for one in self._spilled.objects]
        step = max(1, RANGES * SOME // len(self))
        for first in range(0, RANGES, step):
            end = min(RANGES, first + step)
            yield sorted_rows([one.rows(int(at[first]), int(at[end])) for one, at in zip(objects, starts, strict=True)])

    def _spans(self, at: Array) -> Array:
        return at // (self.within + 1)

    def _window(self) -> Window:
        return Window("", self.within, tuple(self._runs), Uncovered())


def _slots(high: Array, spans: Array) -> Array:
    """Where a row's number is looked for first; fingerprints of one span keep their order."""
    found: Array = ((high + spans.astype(np.uint64) * _SPREAD) >> np.uint64(64 - _SLOTS)).astype(np.int64)
    return found


def _next(slots: Array) -> Array:
    found: Array = (slots + 1) & ((1 << _SLOTS) - 1)
    return found


class _Disk:
    """Objects in files of this process that have no name: however it ends, nothing of them stays."""

    def __init__(self) -> None:
        self._files, opened = dict[str, IO[bytes]](), ExitStack()
        self._opened = opened
        weakref.finalize(self, opened.close)

    @property
    def url(self) -> str:
        """Where they are, for messages."""
        return f"file://{tempfile.gettempdir()}"

    def create(self, name: str) -> _File:
        with _on_disk():
            file = self._files[name] = self._opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # it is read as long as this is there
        return _File(file)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get_ranges(name, [(start, length)])[0]

    def get_ranges(self, name: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
        with _on_disk():
            fd, read = self._files[name].fileno(), os.pread
            return [read(fd, length, start) for start, length in places]


class _File:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> None:
        with _on_disk():
            self._file.write(data)

    def close(self) -> None:
        with _on_disk():
            self._file.flush()

    def discard(self) -> None:
        self._file.close()


def _on_disk() -> AbstractContextManager[None]:
    return on_disk("the keys of what a task has kept wait", "nothing of the task counts")


def rows_of(wanted: Prints, offsets: Array, part: int) -> Array:
    """The rows of records that are kept."""
    rows = np.zeros(len(offsets), ROW)
    rows["high"], rows["low"], rows["at"], rows["offset"], rows["part"] = wanted.high, wanted.low, wanted.at, offsets, part
    return rows
