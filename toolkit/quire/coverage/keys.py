"""The keys of the records that loads have kept, by which a later record of the same key is known: objects of the ledger, and which count.

A task puts one object beside its segment, and the commit that names the segment names it, too: keys, rows and offsets count together, or
none of them does. A checkpoint names those that are in effect at its version, of which many small ones become few (`merged`).

An object is binary, in little-endian: a header of 64 bytes, the partitions as JSON, `bounds`, `heads` and `rows`. The rows stand in the
order of the first halves of their fingerprints; bounds[b] is the first one whose fingerprint has the bits of b or later ones, behind the
bits that all of them begin with (of eight at most: an object of a range of fingerprints has as fine bounds as one of all).
`heads` repeats bits 8 to 39 of each: with the first eight, which follow from its place, they are all that a process holds of a key.
"""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from quire.commit import names
from quire.commit.checkpoints import KeyRun
from quire.commit.entries import Task, Uncover
from quire.commit.log import Log
from quire.coverage.deduplicate import Prints, stored
from quire.coverage.uncovered import Uncovered
from quire.errors import FormatError, NotFoundError
from quire.storage import Store
from quire.storage.base import Scattered, Sink

Array = npt.NDArray[Any]
# A record that was kept: its fingerprint, its time in milliseconds since 1970, and where it lies: a partition of the object, an offset.
ROW = np.dtype([("high", "<u8"), ("low", "<u8"), ("at", "<i8"), ("offset", "<i8"), ("part", "<u4"), ("spare", "<u4")])
# Format, bits of the bounds, rows, bytes of the partitions, first and last time, how many bits all fingerprints begin with, and which.
_HEADER = struct.Struct("<8sIIQQqqBB14x")
_MAGIC = b"quirekey"
FORMAT = 2
IN_BUCKET = 64  # rows between two bounds, about
PIECE = 32 << 20  # bytes that are asked for at once
GAP = 16 << 10  # bytes between two places that are rather read than asked for anew, of a store that reads one place a request
ASKED = 16  # requests that are under way at once there
AT_ONCE = 2_000  # fingerprints whose rows are held at once
SOME = 1 << 19  # rows that are put in their places at once


class Place(Protocol):
    """A store, as far as objects of keys need one."""

    @property
    def url(self) -> str: ...

    def create(self, name: str) -> Sink: ...

    def get_range(self, name: str, start: int, length: int) -> bytes: ...


class Window(NamedTuple):
    """The keys that are known at a version: plain data that travels to the tasks."""

    by: str
    within: int  # milliseconds
    runs: tuple[KeyRun, ...]
    uncovered: Uncovered


# ------------------------------------------------------------------------------------------------------------------- one object
def put(store: Place, name: str, rows: Array, paths: Sequence[tuple[str, str]]) -> int:
    """Write an object of rows in their order, under a name that no other writer uses.

    `paths`: partitions, each with its topic's id, by their numbers. Returns the latest time of a row.
    """
    shared = min(8, 64 - (int(rows["high"][0]) ^ int(rows["high"][-1])).bit_length()) if len(rows) else 0
    begin = int(rows["high"][0]) >> (64 - shared) if shared else 0
    return put_parts(store, name, lambda: [rows], len(rows), paths, (shared, begin))


def put_parts(
    store: Place, name: str, parts: Callable[[], Iterable[Array]], count: int, paths: Sequence[tuple[str, str]],
    shared: tuple[int, int] = (0, 0),
) -> int:  # fmt: skip
    """The same of so many rows that come in parts; they are asked for twice. `shared`: how many bits all begin with, and which."""
    bits = min(26, max(8, (count // IN_BUCKET).bit_length()))
    sizes, heads, at, times = np.zeros((1 << bits) + 1, np.int64), np.empty(count, "<u4"), 0, list[int]()
    for rows in parts():
        if not len(rows):
            continue
        high = np.ascontiguousarray(rows["high"])
        buckets = _buckets(high, shared[0], bits)
        here = np.bincount(buckets - buckets[0])
        sizes[buckets[0] + 1 : buckets[0] + 1 + len(here)] += here
        heads[at : at + len(rows)] = heads_of(high)
        at += len(rows)
        times += [int(rows["at"].min()), int(rows["at"].max())]
    text = json.dumps(paths).encode()
    text += b" " * (-len(text) % 8)
    header = _HEADER.pack(_MAGIC, FORMAT, bits, count, len(text), min(times, default=0), max(times, default=0), *shared)
    sink = store.create(name)
    try:
        for part in (np.frombuffer(header + text, np.uint8), np.cumsum(sizes).astype("<u8"), heads):
            _write(sink, part)
        for rows in parts():
            _write(sink, rows)
        sink.close()
    except BaseException:
        sink.discard()
        raise
    return max(times, default=0)


def _write(sink: Sink, part: Array) -> None:
    data = part.view(np.uint8)
    for at in range(0, len(data), PIECE):
        sink.write(data[at : at + PIECE].data)


def _buckets(high: Array, shared: int, bits: int) -> Array:
    """Where fingerprints stand among the bounds."""
    found: Array = ((high << np.uint64(shared)) >> np.uint64(64 - bits)).astype(np.int64)
    return found


def heads_of(high: Array) -> Array:
    """Bits 8 to 39 of fingerprints."""
    return (high >> np.uint64(24)).astype("<u4")


class KeyObject:
    """An object of keys, of which only what is asked for is read. FormatError for one that is damaged, or not there."""

    def __init__(self, store: Place, name: str, count: int) -> None:
        self.name, self.count = name, count
        self.through(store)
        magic, form, self.bits, rows, length, self.first, self.last, *shared = _HEADER.unpack(self._read(0, _HEADER.size))
        self._shared, self._begin = shared
        of_range = self._shared <= 8 and not self._begin >> self._shared
        if magic == _MAGIC and form > FORMAT:
            raise FormatError(f"{store.url}/{name} was written by a newer quire (format {form}; this one reads up to {FORMAT}).")
        if magic != _MAGIC or rows != count or not 8 <= self.bits <= 26 or length > 64 << 20 or not of_range:
            raise self._damaged("its header is not that of an object with so many keys")
        try:
            self.paths = [(str(path), str(version)) for path, version in json.loads(self._read(_HEADER.size, length))]
        except (ValueError, RecursionError) as e:
            raise self._damaged("its partitions are not readable") from e
        at = _HEADER.size + length
        self.bounds = np.frombuffer(self._read(at, 8 * ((1 << self.bits) + 1)), "<u8").astype(np.int64)
        if self.bounds[0] or self.bounds[-1] != count or (np.diff(self.bounds) < 0).any():
            raise self._damaged("its bounds are not in order")
        self._heads = at + 8 * len(self.bounds)
        self._rows = self._heads + 4 * count

    def through(self, store: Place) -> None:
        """Let it be read with this store from now on."""
        self.store, self._scattered = store, store if isinstance(store, Scattered) else None

    def heads(self) -> Array:
        """Those of all rows."""
        return np.frombuffer(self._read(self._heads, 4 * self.count), "<u4")

    def starts(self) -> Array:
        """The first row of each value of a fingerprint's first eight bits, and how many there are in all."""
        mine = np.arange(257) - (self._begin << (8 - self._shared))
        found: Array = self.bounds[np.clip(mine, 0, 256 >> self._shared) << (self.bits - 8 + self._shared)]
        return found

    def rows(self, first: int, end: int) -> Array:
        """The rows [first, end)."""
        return self._checked(self._read(self._rows + ROW.itemsize * first, ROW.itemsize * (end - first)))

    def among(self, high: Array) -> Iterator[tuple[Array, slice]]:
        """The rows that may be those of fingerprints in their order, some at a time, each time with the places of these fingerprints."""
        gap = GAP if self._scattered is None else 0
        for at in range(0, len(high), AT_ONCE):
            some = slice(at, at + AT_ONCE)
            buckets = _buckets(high[some], self._shared, self.bits)
            first, end = self.bounds[buckets], self.bounds[buckets + 1]
            apart = np.ones(len(first) + 1, np.bool_)
            apart[1:-1] = (first[1:] - end[:-1]) * ROW.itemsize > gap  # what lies near to one another is read at once
            begins, ends = first[apart[:-1]], end[apart[1:]]
            places, sizes = self._rows + ROW.itemsize * begins, ROW.itemsize * (ends - begins)
            yield self._checked(self._read_all([*zip(places.tolist(), sizes.tolist(), strict=True)])), some

    def _checked(self, data: bytes) -> Array:
        found = np.frombuffer(data, ROW)
        if len(found) and int(found["part"].max()) >= len(self.paths):
            raise self._damaged("a row of it names a partition that it has not")
        return found

    def counting(self, rows: Array, number: int, uncovered: Uncovered) -> Array:
        """The rows that still count: no commit after `number` has uncovered their records."""
        if not any(path in uncovered for path, _ in self.paths):  # nearly always
            return rows
        stays = self.counts(rows, number, uncovered)
        return rows if stays.all() else picked(rows, stays)

    def counts(self, rows: Array, number: int, uncovered: Uncovered) -> Array:
        """Which of them these are."""
        found = np.ones(len(rows), np.bool_)
        for part, (path, version) in enumerate(self.paths):
            if path in uncovered and (mine := np.flatnonzero(rows["part"] == part)).size:
                found[mine] = ~_out(uncovered, number, path, version, rows["offset"][mine])
        return found

    def _read(self, start: int, length: int) -> bytes:
        pieces = [self._pieces([(at, min(PIECE, start + length - at))])[0] for at in range(start, start + length, PIECE)]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _read_all(self, places: Sequence[tuple[int, int]]) -> bytes:
        """The bytes at some places, together."""
        places = [place for place in places if place[1]]
        if any(length > PIECE for _, length in places):
            return b"".join(self._read(*place) for place in places)
        return b"".join(self._pieces(places)) if places else b""

    def _pieces(self, places: Sequence[tuple[int, int]]) -> Sequence[bytes]:
        """The bytes at each of them."""
        try:
            if self._scattered is not None:
                pieces = self._scattered.get_ranges(self.name, places)
            elif len(places) == 1:
                pieces = [self.store.get_range(self.name, *places[0])]
            else:
                with ThreadPoolExecutor(min(ASKED, len(places))) as pool:
                    pieces = [*pool.map(lambda place: self.store.get_range(self.name, *place), places)]
        except NotFoundError as e:
            raise FormatError(
                f"{self.store.url}/{self.name}, keys of the ledger, is missing: somebody deleted below _quire/. Put it back: without it "
                f"records that are loaded would come again."
            ) from e
        if any(len(piece) != length for piece, (_, length) in zip(pieces, places, strict=True)):
            raise self._damaged("it is too short")
        return pieces

    def _damaged(self, why: str) -> FormatError:
        return FormatError(f"{self.store.url}/{self.name}, keys of the ledger, is damaged: {why}. Put back a good copy.")


def _out(uncovered: Uncovered, number: int, path: str, version: str, offsets: Array) -> Array:
    """Which offsets a commit after `number` has uncovered."""
    ranges = sorted((s, s + n) for by, u in uncovered[path] if by > number and u.version == version for s, n in u.ranges if n)
    if not ranges:
        return np.zeros(len(offsets), np.bool_)
    starts, ends = np.array(ranges, np.int64).T
    at = starts.searchsorted(offsets, side="right") - 1
    found: Array = (at >= 0) & (offsets < np.maximum.accumulate(ends)[at])
    return found


def matching(rows: Array, wanted: Prints, within: int) -> Array:
    """Which of the fingerprints stand in rows that are in order, with a time at most `within` away."""
    found: Array = np.zeros(len(wanted.high), np.bool_)
    high = np.ascontiguousarray(rows["high"])
    open_ = np.flatnonzero(wanted.told)
    at = high.searchsorted(wanted.high[open_])
    there = high.take(at, mode="clip") == wanted.high[open_] if len(high) else np.zeros(len(open_), np.bool_)
    there &= at < len(high)
    open_, at = open_[there], at[there]
    several = (high.take(at + 1, mode="clip") == wanted.high[open_]) & (at + 1 < len(high))
    one, row = open_[~several], at[~several]
    found[one] = (rows["low"][row] == wanted.low[one]) & (np.abs(rows["at"][row] - wanted.at[one]) <= within)
    if several.any():
        found[open_[several]] = _among_several(rows, high, at[several], wanted.take(open_[several]), within)
    return found


def _among_several(rows: Array, high: Array, at: Array, wanted: Prints, within: int) -> Array:
    """The same of fingerprints whose first half begins at rows `at`, and has others behind: however often a key is there, in few steps."""
    starts = np.unique(at)
    ends = high.searchsorted(high[starts], side="right")
    mine = picked(rows, np.concatenate([np.arange(start, end) for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]))
    mine = picked(mine, np.lexsort((mine["at"], mine["low"], mine["high"])))
    new = (np.diff(mine["high"]) != 0) | (np.diff(mine["low"]) != 0)
    first = np.append(0, np.flatnonzero(new) + 1)  # rows of each key, in the order of their times
    end = np.append(first[1:], len(mine))
    keys = mine["high"][first]
    found, open_ = np.zeros(len(at), np.bool_), np.arange(len(at))
    key = keys.searchsorted(wanted.high)
    while len(open_):  # keys of one first half are as rare as two keys of one hash
        same = mine["low"][first[key]] == wanted.low[open_]
        is_, of = open_[same], key[same]
        nearest = lower_bound(mine["at"], wanted.at[is_] - within, first[of], end[of])
        there = nearest < end[of]
        found[is_[there]] = mine["at"][nearest[there]] <= wanted.at[is_[there]] + within
        open_, key = open_[~same], key[~same] + 1
        there = keys.take(key, mode="clip") == wanted.high[open_]
        there &= key < len(keys)
        open_, key = open_[there], key[there]
    return found


def lower_bound(values: Array, wanted: Array, first: Array, end: Array) -> Array:
    """For each wanted value the first place in [first, end), where values are in order, of one that is not below it; else `end`."""
    at = first.astype(np.int64)
    for bit in range(int((end - first).max(initial=0)).bit_length() - 1, -1, -1):
        further = at + (1 << bit)
        below = values.take(further - 1, mode="clip") < wanted
        below &= further <= end
        at += below * np.int64(1 << bit)
    return at


# --------------------------------------------------------------------------------------------------------------- what is in effect
def window(log: Log, by: str, within: int, base: int) -> Window:
    """The keys that records planned at a settled version are looked up in."""
    return Window(by, within, tuple(run for run in in_effect(log, base) if run.by == by), out_of_effect(log, base))


def in_effect(log: Log, until: int) -> Iterator[KeyRun]:
    """The objects whose keys count at a settled version, or at the newest checkpoint's, where that is a later one."""
    if log.base:
        yield from log.base.keys
    for number, commit in log.recent(max(until, log.merged)):
        for task in log.in_effect(commit, until):
            if keys := task.coverage.keys:
                yield KeyRun(keys.name, keys.count, keys.by, keys.last, number, _moment(commit.time))


def out_of_effect(log: Log, until: int) -> Uncovered:
    """The ranges that have left the ledger since the newest checkpoint, up to that version, alone or with data files.

    A retry takes out only what was quarantined, of which no key was kept.
    """
    found = defaultdict[str, list[tuple[int, Uncover]]](list)
    for number, commit in log.recent(max(until, log.merged)):
        for task in () if commit.verb == "retry" else log.in_effect(commit, until):
            for uncover in task.coverage.uncovers:
                found[uncover.path].append((number, uncover))
    return Uncovered((path, tuple(each)) for path, each in found.items())


def _moment(text: str) -> int:
    """Milliseconds since 1970; of an entry that says no time, the newest that there is: what it brought is kept."""
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 1 << 60


# ---------------------------------------------------------------------------------------------------------------------- conflicts
def clashing(store: Store, tasks: Sequence[Task], others: Iterable[Task]) -> set[int]:
    """The tasks of a job that keep a record which one before them keeps, or one of `others`, which are committed since the job's base.

    Keys are compared by ranges of their fingerprints, so that few are held at once. An object of others that is swept by now has been
    merged: then all of the tasks are dropped and planned again.
    """
    ours = [(task.task, task.coverage.keys) for task in tasks if task.coverage.keys]
    if not ours:
        return set()
    by, within = ours[0][1].by, max(keys.within for _, keys in ours)
    theirs = [keys for task in others if (keys := task.coverage.keys) and keys.by == by]
    if len(ours) + len(theirs) < 2:
        return set()
    mine = [KeyObject(store, keys.name, keys.count) for _, keys in ours]
    try:
        all_ = [*(KeyObject(store, keys.name, keys.count) for keys in theirs), *mine]
        pairs = _pairs(all_, within)
    except FormatError:
        if all(store.stat(keys.name) is not None for keys in theirs):
            raise
        return {number for number, _ in ours}
    kept = set(range(len(theirs)))
    for i in range(len(theirs), len(all_)):
        if not any(first in kept for first in pairs.get(i, ())):
            kept.add(i)
    return {number for i, (number, _) in enumerate(ours, len(theirs)) if i not in kept}


HELD = 4 << 20  # rows that are compared at once, about


def _pairs(objects: Sequence[KeyObject], within: int) -> dict[int, set[int]]:
    """For each object those before it that hold one of its keys, at a time that is not further away."""
    found = dict[int, set[int]]()
    total = sum(each.count for each in objects)
    step = max(1, min(256, 256 * HELD // max(1, total)))
    for start in range(0, 256, step):
        end = min(256, start + step)
        some = [each.rows(int(each.starts()[start]), int(each.starts()[end])) for each in objects]
        rows = joined(some)
        of = np.repeat(np.arange(len(objects)), [len(each) for each in some])
        order = np.lexsort((rows["at"], rows["low"], rows["high"]))
        rows, of = picked(rows, order), of[order]
        for away in range(1, len(rows)):  # ends with the most rows of one key within the time
            same = (rows["high"][away:] == rows["high"][:-away]) & (rows["low"][away:] == rows["low"][:-away])
            same &= rows["at"][away:] - rows["at"][:-away] <= within
            at = np.flatnonzero(same)
            if not at.size:
                break
            pairs = np.unique(np.sort(np.stack([of[at], of[at + away]]), axis=0), axis=1)
            for first, second in pairs.T.tolist():
                if first != second:
                    found.setdefault(second, set()).add(first)
    return found


# ---------------------------------------------------------------------------------------------------------------------- merging
@dataclass(frozen=True)
class Merge:
    """Objects that become others: pieces by ranges of fingerprints, without what has left the ledger, and what no record looks up."""

    runs: tuple[KeyRun, ...]
    uncovered: Uncovered
    before: int  # keys with an older time leave, where their record was committed `until` then
    until: int
    version: int
    pieces: int
    id: str


ROWS = 2_000_000  # in a merged object: some 200 MB of a task's memory
LESS = 2  # times as many rows as all smaller groups together may a group have that is merged with them


def merge(log: Log, made: str, now: int) -> tuple[list[KeyRun], Merge | None]:
    """The objects that a checkpoint names as they are, and those that it is to merge; None: there are not enough of them."""
    said = stored(log.deduplicates())
    runs = [run for run in in_effect(log, log.tip) if said is not None and run.by == said.by]
    if said is None or not runs:
        return [], None
    # Late records find their like: the window of one that comes `within` after newer ones is there, too.
    before, until = min(now, max(run.last for run in runs)) - 2 * said.within, now - said.within
    runs = [run for run in runs if run.last >= before or run.time > until]
    groups = dict[str, list[KeyRun]]()
    for run in runs:
        groups.setdefault(_group(run), []).append(run)
    chosen, total = list[KeyRun](), 0
    for mine in sorted(groups.values(), key=lambda group: sum(run.count for run in group)):
        size = sum(run.count for run in mine)
        if size > max(LESS * total, ROWS // 8) and chosen:
            break
        chosen, total = chosen + mine, total + size
    chosen = chosen if len({_group(run) for run in chosen}) > 1 else []
    uncovered = out_of_effect(log, log.tip)
    # Who reads this checkpoint sees what is uncovered after it, and not what was before.
    chosen += [run for run in runs if run not in chosen and _is_touched(log.store, run, uncovered)]
    if not chosen:
        return runs, None
    pieces = 1 << min(8, max(0, (sum(run.count for run in chosen) - 1) // ROWS).bit_length())
    return [run for run in runs if run not in chosen], Merge(tuple(chosen), uncovered, before, until, log.tip, pieces, made)


def _is_touched(store: Store, run: KeyRun, uncovered: Uncovered) -> bool:
    """Whether a part of a partition that an object has keys of was uncovered since."""
    newer = {path for path, found in uncovered.items() if any(number > run.number for number, _ in found)}
    return bool(newer) and any(path in newer for path, _ in KeyObject(store, run.name, run.count).paths)


def _group(run: KeyRun) -> str:
    """Merged objects of one id are one group; each other one is a group of its own."""
    return names.merged_group(run.name) or run.name


def merged(store: Store, work: Merge, piece: int) -> KeyRun | None:
    """Put one piece of merged objects; None: no row is left for it."""
    paths, tables = dict[tuple[str, str], int](), list[Array]()
    each = 256 // work.pieces
    for run in work.runs:
        one = KeyObject(store, run.name, run.count)
        starts = one.starts()
        rows = one.rows(int(starts[piece * each]), int(starts[(piece + 1) * each]))
        stays = one.counts(rows, run.number, work.uncovered)
        if run.time <= work.until:
            stays &= rows["at"] >= work.before
        rows = picked(rows, stays)
        if len(rows):
            numbers = np.array([paths.setdefault(path, len(paths)) for path in one.paths], "<u4")
            rows["part"] = numbers[rows["part"]]
            tables.append(rows)
    if not tables:
        return None
    rows = sorted_rows(tables)
    name = names.merged_keys(work.version, work.id, piece)
    put(store, name, rows, [*paths])
    return KeyRun(name, len(rows), work.runs[0].by, int(rows["at"].max()), work.version, max(run.time for run in work.runs))


def joined(tables: Sequence[Array]) -> Array:
    """All rows, one table after the other: as bytes, since numpy compares the fields of each table with those of the next one."""
    found: Array = np.concatenate([np.zeros(0, np.uint8), *(np.ascontiguousarray(rows).view(np.uint8) for rows in tables)]).view(ROW)
    return found


def sorted_rows(tables: Sequence[Array]) -> Array:
    """All rows in the order in which an object has them."""
    rows = tables[0] if len(tables) == 1 else joined(tables)
    return picked(rows, np.argsort(rows["high"], kind="stable"))  # quick where the tables are in order already


def picked(rows: Array, which: Array) -> Array:
    """Some of the rows, in that order: as numbers, since numpy takes rows of fields one by one, ten times as slowly."""
    found: Array = rows.view("<u8").reshape(len(rows), ROW.itemsize // 8)[which].reshape(-1).view(ROW)
    return found
