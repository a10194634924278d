"""The rows of a slice that has logs: its base file as a stream, in which what the logs say of a key takes the place of its row.

Source: Hudi's file group reader and `BaseHoodieLogRecordReader`. The blocks of all logs count in their order, but for those of instants
that have not completed and those that a later rollback takes back. A log that was compacted into a block takes the place of what it holds.
For each key the row of the last block counts, or by event time the one with the greatest ordering, of equal ones the last; then the same
against the base file. Where an ordering is missing, as in a delete that takes any row, the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, scrub
from quire.formats.damage import ARROW
from quire.storage import Store
from quire.table.file_groups import Slice
from quire.table.format import keys, log_content, log_file, schema
from quire.table.format.log_file import Block
from quire.table.timeline import Holds

KEY = schema.META[2]
_DELETED, _OPERATION = "_hoodie_is_deleted", "_hoodie_operation"  # columns that say of a row that it deletes
_ROWS = (log_file.AVRO, log_file.HFILE, log_file.PARQUET)
_PASSED_OVER = (log_file.CORRUPT, log_file.CDC)
_Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Merging:
    """How the logs of a table are merged: whose instants count, by which fields a row is known, and which one orders.

    key        the columns of the record key in a table without meta fields; else empty
    ordering   by event time: the column; None: the later one counts
    """

    holds: Holds
    key: tuple[pa.Field, ...] = ()
    ordering: pa.Field | None = None

    def reads(self, wanted: pa.Schema) -> pa.Schema:
        """The columns that have to be read for those that are wanted; those of a row that does not count may lack a value."""
        more = [*(self.key or [pa.field(KEY, pa.string())]), *([self.ordering] if self.ordering else [])]
        every = {f.name: f.with_nullable(True) for f in (*wanted, *more)}
        return pa.schema(list(every.values()))

    def keys(self, rows: pa.RecordBatch | pa.Table) -> Any:
        """The key of each row."""
        return keys.record_keys(rows, [f.name for f in self.key]) if self.key else rows.column(KEY)


@dataclass(frozen=True)
class _Changes:
    """The logs say of each key once: its row, or that it is deleted."""

    keys: pa.Array
    rows: pa.Table = field(repr=False)
    deletes: npt.NDArray[np.bool_] = field(repr=False)
    orderings: Any = field(repr=False)  # of the type of the ordering column; null: it counts whatever was there


def merged(
    base: Iterable[pa.RecordBatch], store: Store, one: Slice, reads: pa.Schema, merging: Merging
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The rows of a slice in the columns that `Merging.reads` names, in which `base` is the base file.

    A row group of the base file is in memory, and all logs of the slice. FormatError for a damaged log, RefusedError for one with rows of
    a kind that quire does not read.
    """
    changes = _changes(store, one, reads, merging)
    if changes is None:
        yield from base
        return
    met = np.zeros(len(changes.keys), bool)
    for batch in base:
        yield from _step(batch, changes, met, merging)
    left = np.flatnonzero(~met & ~changes.deletes)
    yield from changes.rows.take(pa.array(left)).to_batches()


def _step(batch: pa.RecordBatch, changes: _Changes, met: npt.NDArray[np.bool_], merging: Merging) -> Iterator[pa.RecordBatch]:
    """Rows of the base file with what the logs say of them; of a key that comes again, as Hudi does it, the first row alone changes."""
    at = pc.index_in(merging.keys(batch), value_set=changes.keys)
    hits: _Places = np.flatnonzero(np.asarray(pc.is_valid(at)))
    found, first = np.unique(np.asarray(at.take(pa.array(hits)), np.int64), return_index=True)
    hits, found = hits[first][~met[found]], found[~met[found]]
    met[found] = True
    if merging.ordering is not None:
        after, before = changes.orderings.take(pa.array(found)), batch.column(merging.ordering.name).take(pa.array(hits))
        wins = np.asarray(pc.fill_null(pc.greater_equal(after, before), True), bool)
        hits, found = hits[wins], found[wins]
    if not len(hits):
        yield batch
        return
    n = batch.num_rows
    taken, stays = np.arange(n), np.ones(n, bool)
    taken[hits], stays[hits] = n + found, ~changes.deletes[found]
    both = pa.concat_tables([pa.Table.from_batches([batch]), changes.rows])
    yield from both.take(pa.array(taken[stays])).to_batches()


# ------------------------------------------------------------------------------------------------------------------------ the logs
def _changes(store: Store, one: Slice, reads: pa.Schema, merging: Merging) -> _Changes | None:
    """All that the logs of a slice say, each key once; None: nothing."""
    found = [_part(block, reads, merging, where) for where, block in _blocks(store, one, merging)]
    found = [part for part in found if len(part.keys)]
    if not found:
        return None
    all_keys = pa.chunked_array([chunk for part in found for chunk in _chunks(part.keys)], pa.string())
    orderings = pa.chunked_array([chunk for part in found for chunk in _chunks(part.orderings)])
    rows, deletes = pa.concat_tables([part.rows for part in found]), np.concatenate([part.deletes for part in found])
    if all_keys.null_count:
        raise FormatError(f"the logs of {store.url}/{one.partition} ({one.group}) have rows without a key: look who wrote them.")
    # One dictionary for all chunks: a number for each key.
    encoded = all_keys.combine_chunks().dictionary_encode() if all_keys.num_chunks != 1 else all_keys.chunk(0).dictionary_encode()
    wins = _winners(np.asarray(encoded.indices, np.int64), len(encoded.dictionary), None if merging.ordering is None else orderings)
    which = pa.array(wins)
    return _Changes(encoded.dictionary, rows.take(which), deletes[wins], orderings.take(which))


def _winners(ids: _Places, count: int, orderings: pa.ChunkedArray | None) -> _Places:
    """For each of the keys 0, 1, … the place of what counts among all that is said of it."""
    places, last = np.arange(len(ids)), np.full(count, -1)
    if orderings is None:
        last[ids] = places  # of places with one number the last is kept
        return last
    # Whatever came before something without an ordering does not count.
    resets = np.asarray(pc.is_null(orderings), bool)
    last[ids[resets]] = places[resets]
    alive = pa.array(np.flatnonzero(places >= last[ids]))
    said = pa.table({"id": ids, "ordered": pa.array(~resets), "ordering": orderings, "place": places}).take(alive)
    order = pc.sort_indices(said, [(name, "ascending") for name in said.column_names])
    sorted_ids = np.asarray(said.column("id").take(order), np.int64)
    ends = np.append(np.flatnonzero(sorted_ids[1:] != sorted_ids[:-1]), len(sorted_ids) - 1)
    wins: _Places = np.asarray(said.column("place").take(order), np.int64)[ends]
    return wins


def _blocks(store: Store, one: Slice, merging: Merging) -> list[tuple[str, Block]]:
    """The blocks of rows and deletes that count, with the names of their files, in their order."""
    found, rolled_back = list[tuple[str, Block]](), dict[str, int]()
    for name in one.logs:
        where = f"{store.url}/{name}"
        for block in log_file.decode(store.get(name), where):
            if block.kind == log_file.COMMAND:
                if block.words.get(log_file.COMMAND_TYPE) != log_file.ROLLBACK:
                    raise FormatError(f"{where} has a command that is not known: look who wrote it.")
                rolled_back[block.words.get(log_file.TARGET, "")] = len(found)
            elif block.kind in _ROWS or block.kind == log_file.DELETES:
                if not block.instant.isdecimal():
                    raise FormatError(f"{where} has a block without an instant: no reader can tell whether it counts. Look who wrote it.")
                found.append((where, block))
            elif block.kind not in _PASSED_OVER:
                raise FormatError(f"{where} has a block of the kind {block.kind}, which is not known: look who wrote it.")
    kept = [
        (where, block)
        for at, (where, block) in enumerate(found)
        if at >= rolled_back.get(block.instant, 0) and merging.holds(block.instant)
    ]
    return _uncompacted(kept)


def _uncompacted(blocks: list[tuple[str, Block]]) -> list[tuple[str, Block]]:
    """Without the blocks that others were made of: these stand where the last of those stood."""
    places, at_instant = dict[int, int](), dict[str, list[int]]()
    for i, (_, block) in enumerate(blocks):
        made_of = [at for instant in block.words.get(log_file.COMPACTED, "").split(",") for at in at_instant.pop(instant.strip(), [])]
        place = max((places.pop(at) for at in made_of), default=i)
        places[i] = place
        at_instant.setdefault(block.instant, []).append(i)
    return [blocks[i] for i in sorted(places, key=lambda i: (places[i], i))]


def _part(block: Block, reads: pa.Schema, merging: Merging, where: str) -> _Changes:
    """All that one block says, each key as often as it comes."""
    kind = merging.ordering.type if merging.ordering is not None else pa.null()
    if block.kind == log_file.DELETES:
        said = log_content.deletes(block, where)
    else:
        found = log_content.rows(block, [*dict.fromkeys((*reads.names, _DELETED, _OPERATION))], where)
    try:
        if block.kind == log_file.DELETES:
            key = pa.array([each.key for each in said], pa.string())
            orderings = [None if merging.ordering is None or each.always or each.ordering is None else each.ordering[1] for each in said]
            rows = pa.table([pa.nulls(len(said), f.type) for f in reads], schema=reads)
            return _Changes(key, rows, np.ones(len(said), bool), pa.array(orderings, kind))
        rows = schema.conform(found, reads)
        orderings = rows.column(merging.ordering.name) if merging.ordering is not None else pa.nulls(rows.num_rows)
        return _Changes(merging.keys(rows), rows, _deleting(found), orderings)
    except (*ARROW, ValueError, TypeError) as e:
        raise FormatError(
            f"the log file {where} cannot be read with the columns of its table: {scrub(str(e), 200)}. Look who wrote it."
        ) from e


def _deleting(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which rows say of themselves that they delete."""
    found = np.zeros(rows.num_rows, bool)
    for name, kind, word in ((_DELETED, pa.bool_(), True), (_OPERATION, pa.string(), "D")):
        if name in rows.column_names and rows.column(name).type == kind:
            found |= np.asarray(pc.fill_null(pc.equal(rows.column(name), word), False), bool)
    return found


def _chunks(values: Any) -> list[Any]:
    return values.chunks if isinstance(values, pa.ChunkedArray) else [values]
