"""A base file merged with the rows that a commit brings for its file group: a stream, of which a row group is in memory.

Source: Hudi's merge handle of copy-on-write tables, and its payloads: `OverwriteWithLatestAvroPayload` takes the row that comes later,
`DefaultHoodieRecordPayload` the one with the greater value of the ordering field, and of equal ones the one that comes later.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError
from quire.table.format.schema import META

TIME, SEQNO, KEY, *_ = META
Op = Literal["i", "u", "d"]
_Places = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]
_NOWHERE: _Places = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Brought:
    """Rows that a commit brings for one file group, sorted by key, each key once: their keys, and which of them delete."""

    rows: pa.Table = field(repr=False)  # in the table's columns, without the meta columns
    keys: pa.Array = field(repr=False)
    deletes: pa.Array = field(repr=False)  # of booleans

    def slice(self, start: int, end: int) -> Brought:
        """The rows [start, end)."""
        return Brought(*(each.slice(start, end - start) for each in (self.rows, self.keys, self.deletes)))


@dataclass(frozen=True)
class Coming:
    """The same before it is read; `first`: no key is smaller."""

    first: str
    read: Callable[[], Brought] = field(repr=False)


@dataclass
class Merged:
    """The counts of a merge: rows of the new file by what happened to them; `stale` came too late for their key and changed nothing.

    `again`: how many of these had met another row of their key before, as the base file has it more than once.
    """

    kept: int = 0
    updates: int = 0
    inserts: int = 0
    deletes: int = 0
    stale: int = 0
    again: int = 0


@dataclass(frozen=True)
class Rewritten:
    """Rows of the new file; `times` and `seqnos` are those of the commits that wrote them, null for rows of this one."""

    rows: pa.RecordBatch = field(repr=False)
    keys: pa.Array = field(repr=False)
    times: pa.Array = field(repr=False)
    seqnos: pa.Array = field(repr=False)


@dataclass(frozen=True)
class Changed:
    """Rows that a commit has changed, all in one way: inserted, updated or deleted. An image that is None does not exist."""

    op: Op
    keys: pa.ChunkedArray = field(repr=False)
    before: pa.Table | None = field(repr=False)
    after: pa.Table | None = field(repr=False)


def merge(
    base: Iterable[pa.RecordBatch], coming: Sequence[Coming], ordering: str | None, counts: Merged, where: str, *,
    in_order: bool = False, changed: Callable[[Changed], None] | None = None,
) -> Iterator[Rewritten]:  # fmt: skip
    """The rows of the new file.

    `base`: with the meta columns, and the columns of what comes. `ordering`: the field of event time; None: the later commit wins.
    `in_order`: the keys of `base` ascend from its first row to its last, so do those of the new file, and no more than a batch of each of
    the runs that overlap is in memory. Else all that comes is, and inserts follow the rows of the base file, which keep their order.
    `changed` is told what changes. A key that the base file has twice is updated twice, as Hudi does it. Raises FormatError for a row of
    the base file without a key, and for keys out of an order that was promised.
    """
    one = _Merge(ordering, counts, where, changed)
    if in_order:
        for batch, brought in _windows(base, coming, where):
            yield from one.step(batch, brought, np.zeros(len(brought.keys) if brought else 0, bool), last=True)
        return
    everything = _joined([each.read() for each in coming]) if coming else None
    met = np.zeros(len(everything.keys) if everything else 0, bool)
    for batch in base:
        yield from one.step(_checked(batch, where), everything, met, last=False)
    if everything:
        yield from one.step(None, everything, met, last=True)


# ------------------------------------------------------------------------------------------------------------ what belongs together
def _windows(
    base: Iterable[pa.RecordBatch], coming: Sequence[Coming], where: str
) -> Iterator[tuple[pa.RecordBatch | None, Brought | None]]:  # fmt: skip
    """Rows of the base file, and those that come with keys up to the last one of these: nothing before or after has their keys."""
    waiting, batches = deque(sorted(coming, key=lambda each: each.first)), (_checked(b, where) for b in base if b.num_rows)
    current, came, last = next(batches, None), list[Brought](), ""
    while True:
        ends = [_key(brought.keys, -1) for brought in came]
        if current is not None:
            ends.append(_key(current.column(KEY), -1))
        if not ends:
            if not waiting:
                return
            came.append(waiting.popleft().read())
            continue
        bound = min(ends)
        while waiting and waiting[0].first <= bound:
            came.append(waiting.popleft().read())
            bound = min(bound, _key(came[-1].keys, -1))
        parts, came = _cut(came, bound)
        own = None
        if current is not None:
            n = _upto(current.column(KEY), bound)
            own, current = current.slice(0, n) if n else None, current.slice(n)
            if not current.num_rows:
                current, last = next(batches, None), bound
                if current is not None and _key(current.column(KEY), 0) <= last:
                    raise FormatError(f"{where} has keys out of the order that its footer says: look who wrote it.")
        yield own, _joined(parts) if parts else None


def _cut(came: list[Brought], bound: str) -> tuple[list[Brought], list[Brought]]:
    """The rows with keys up to a bound, and those that are left."""
    parts, left = list[Brought](), list[Brought]()
    for brought in came:
        n = _upto(brought.keys, bound)
        parts += [brought.slice(0, n)] if n else []
        left += [brought.slice(n, len(brought.keys))] if n < len(brought.keys) else []
    return parts, left


def _joined(parts: list[Brought]) -> Brought:
    """All of them, sorted by key."""
    if len(parts) == 1:
        return parts[0]
    keys = pa.concat_arrays([part.keys for part in parts])
    order = pc.sort_indices(keys)
    rows = pa.concat_tables([part.rows for part in parts]).take(order)
    return Brought(rows, keys.take(order), pa.concat_arrays([part.deletes for part in parts]).take(order))


def _checked(batch: pa.RecordBatch, where: str) -> pa.RecordBatch:
    if batch.column(KEY).null_count:
        raise FormatError(f"{where} has rows without a key: no commit could find them again. Look who wrote it.")
    return batch


def _key(keys: pa.Array, at: int) -> str:
    return str(keys[at].as_py())


def _upto(keys: pa.Array, bound: str) -> int:
    """How many of the sorted keys are not greater."""
    return bisect_right(range(len(keys)), bound, key=lambda i: _key(keys, i))


# ------------------------------------------------------------------------------------------------------------------------ one step
@dataclass(frozen=True)
class _Merge:
    """The rule by which rows win, and who is told what comes of it."""

    ordering: str | None
    counts: Merged
    where: str
    changed: Callable[[Changed], None] | None

    def step(self, batch: pa.RecordBatch | None, brought: Brought | None, met: _Flags, *, last: bool) -> Iterator[Rewritten]:
        """Rows of the base file with what comes for them; at the `last` step what came and was never `met` is inserted."""
        if brought is None:
            assert batch is not None
            self.counts.kept += batch.num_rows
            names = [name for name in batch.schema.names if name not in META]
            yield Rewritten(batch.select(names), *(batch.column(name) for name in (KEY, TIME, SEQNO)))
            return
        names = [*brought.rows.schema.names, KEY, TIME, SEQNO]
        new = _table(brought)
        own = pa.table([batch.column(name) for name in names], names) if batch else new.slice(0, 0)
        new = new.cast(own.schema) if new.schema != own.schema else new
        hits, found = self._hits(own, brought, met) if batch else (_NOWHERE, _NOWHERE)
        inserts = self._inserts(brought, met) if last else _NOWHERE
        goes = np.asarray(brought.deletes.take(pa.array(found)), bool)
        self._count(own.num_rows, len(hits), int(goes.sum()), len(inserts))
        if self.changed is not None:
            self._tell(own, new, (hits, found, goes), inserts)
        whole = own
        if len(hits) or len(inserts):
            # Rows of both after one another, and for each row of the file the one that takes its place.
            both, n = pa.concat_tables([own, new]), own.num_rows
            taken, stays = np.arange(n), np.ones(n, bool)
            taken[hits], stays[hits] = n + found, ~goes
            taken = np.concatenate([taken[stays], n + inserts])
            if n and len(inserts):
                taken = taken[np.asarray(pc.sort_indices(both.column(KEY).take(pa.array(taken))))]
            whole = both.take(pa.array(taken))
        for piece in whole.to_batches():  # several, where text is longer than one array can hold
            if piece.num_rows:
                yield Rewritten(piece.select(names[:-3]), *(piece.column(name) for name in names[-3:]))

    def _hits(self, own: pa.Table, brought: Brought, met: _Flags) -> tuple[_Places, _Places]:
        """The rows of the file that something wins against, and where that stands in what comes."""
        at = pc.index_in(own.column(KEY), value_set=brought.keys).combine_chunks()
        hits = np.flatnonzero(np.asarray(pc.is_valid(at)))
        found = np.asarray(at.take(pa.array(hits)), dtype=np.int64)
        known = np.count_nonzero(met)
        met[found] = True
        self.counts.again += len(found) - int(np.count_nonzero(met) - known)
        if self.ordering is not None and len(hits):
            before, after = own.column(self.ordering).take(pa.array(hits)), brought.rows.column(self.ordering).take(pa.array(found))
            wins = np.asarray(pc.fill_null(pc.greater_equal(after, before), True))
            self.counts.stale += int((~wins).sum())
            hits, found = hits[wins], found[wins]
        return hits, found

    def _inserts(self, brought: Brought, met: _Flags) -> _Places:
        """The rows that come and whose key is not there; to delete it is too late."""
        deletes = np.asarray(brought.deletes)
        self.counts.stale += int((~met & deletes).sum())
        return np.flatnonzero(~met & ~deletes)

    def _count(self, rows: int, hits: int, deletes: int, inserts: int) -> None:
        self.counts.kept += rows - hits
        self.counts.updates += hits - deletes
        self.counts.deletes += deletes
        self.counts.inserts += inserts

    def _tell(self, own: pa.Table, new: pa.Table, met: tuple[_Places, _Places, _Flags], inserts: _Places) -> None:
        assert self.changed is not None
        hits, found, goes = met
        ways: list[tuple[Op, _Places | None, _Places | None]] = [
            ("u", hits[~goes], found[~goes]), ("d", hits[goes], None), ("i", None, inserts),
        ]  # fmt: skip
        for op, before, after in ways:
            images = [None if at is None else table.take(pa.array(at)) for table, at in ((own, before), (new, after))]
            there = next(image for image in images if image is not None)
            if there.num_rows:
                self.changed(Changed(op, there.column(KEY), *(image and image.drop_columns([KEY, TIME, SEQNO]) for image in images)))


def _table(brought: Brought) -> pa.Table:
    """With the meta columns of rows that this commit writes."""
    nothing = pa.nulls(len(brought.keys), pa.string())
    return pa.table([*brought.rows.columns, brought.keys, nothing, nothing], [*brought.rows.schema.names, KEY, TIME, SEQNO])
