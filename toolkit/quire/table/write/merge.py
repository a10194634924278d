"""A base file merged with the rows that a commit brings for its file group: a stream, of which a row group is in memory.

Source: Hudi's merge handle of copy-on-write tables, and its payloads: `OverwriteWithLatestAvroPayload` takes the row that comes later,
`DefaultHoodieRecordPayload` the one with the greater value of the ordering field, and of equal ones the one that comes later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError
from quire.table.format.schema import META

TIME, SEQNO, KEY, *_ = META


@dataclass(frozen=True)
class Brought:
    """The rows that a commit brings for one file group, each key once: their keys, and which of them delete."""

    rows: pa.RecordBatch = field(repr=False)  # in the table's columns, without the meta columns
    keys: pa.Array = field(repr=False)
    deletes: pa.Array = field(repr=False)  # of booleans


@dataclass
class Merged:
    """The counts of a merge: rows of the new file by what happened to them; `stale` came too late for their key and changed nothing."""

    kept: int = 0
    updates: int = 0
    inserts: int = 0
    deletes: int = 0
    stale: int = 0


@dataclass(frozen=True)
class Rewritten:
    """Rows of the new file; `times` and `seqnos` are those of the commits that wrote them, null for rows of this one."""

    rows: pa.RecordBatch = field(repr=False)
    keys: pa.Array = field(repr=False)
    times: pa.Array = field(repr=False)
    seqnos: pa.Array = field(repr=False)


def merge(base: Iterable[pa.RecordBatch], brought: Brought, ordering: str | None, counts: Merged, where: str) -> Iterator[Rewritten]:
    """The rows of the new file. First those of the base file in its order, then those whose key it does not have.

    `base`: with the meta columns, and the columns of `brought.rows`. `ordering`: the field of event time; None: the later commit wins.
    Raises FormatError for a row of the base file without a key, and for a key that it has twice.
    """
    met = np.zeros(len(brought.keys), bool)
    for batch in base:
        keys = batch.column(KEY)
        if keys.null_count:
            raise FormatError(f"{where} has rows without a key: no commit could find them again. Look who wrote it.")
        at = pc.index_in(keys, value_set=brought.keys)
        hits = np.flatnonzero(np.asarray(pc.is_valid(at)))
        found = np.asarray(at.take(pa.array(hits)), dtype=np.int64)
        if met[found].any() or len(np.unique(found)) < len(found):
            raise FormatError(f"{where} has a key twice, which a commit updates: look who wrote it, and delete one of the rows.")
        met[found] = True
        yield from _batch(batch, brought, ordering, hits, found, counts)
    new = pa.array(~met)
    counts.stale += pc.sum(pc.and_(new, brought.deletes)).as_py() or 0  # a delete of what is not there
    new = pc.and_not(new, brought.deletes)
    rows, keys = brought.rows.filter(new), brought.keys.filter(new)
    counts.inserts += rows.num_rows
    if rows.num_rows:
        yield Rewritten(rows, keys, pa.nulls(rows.num_rows, pa.string()), pa.nulls(rows.num_rows, pa.string()))


def _batch(
    batch: pa.RecordBatch, brought: Brought, ordering: str | None, hits: np.ndarray, found: np.ndarray, counts: Merged
) -> Iterator[Rewritten]:  # fmt: skip
    """One batch of the base file; `hits`: its rows whose keys come, `found`: where they stand in what is brought."""
    if ordering is not None and len(hits):
        before, after = batch.column(ordering).take(pa.array(hits)), brought.rows.column(ordering).take(pa.array(found))
        wins = np.asarray(pc.fill_null(pc.greater_equal(after, before), True))
        counts.stale += int((~wins).sum())
        hits, found = hits[wins], found[wins]
    own = batch.select(brought.rows.schema.names)
    pieces, changed = [own], 0
    keys, times, seqnos = (batch.column(name) for name in (KEY, TIME, SEQNO))
    if len(hits):
        # Rows of both after one another, and for each row of the file the one that takes its place.
        taken, ours = np.arange(batch.num_rows), np.zeros(batch.num_rows, bool)
        taken[hits], ours[hits] = batch.num_rows + found, True
        goes = np.zeros(batch.num_rows, bool)
        goes[hits] = np.asarray(brought.deletes.take(pa.array(found)))
        stays = pa.array(~goes)
        both = pa.Table.from_batches([own, brought.rows.cast(own.schema)]).take(pa.array(taken[~goes]))
        pieces, new = both.to_batches(), pa.array(ours[~goes])
        nothing = pa.scalar(None, pa.string())
        keys = keys.filter(stays)
        times, seqnos = (pc.if_else(new, nothing, each.filter(stays)) for each in (times, seqnos))
        counts.deletes += int(goes.sum())
        changed = len(hits) - int(goes.sum())
    counts.updates += changed
    counts.kept += len(keys) - changed
    start = 0
    for rows in pieces:  # several, where text is longer than one array can hold
        if n := rows.num_rows:
            yield Rewritten(rows, *(each.slice(start, n) for each in (keys, times, seqnos)))
        start += n
