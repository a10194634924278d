"""The rows of a slice that has logs: its base file as a stream, in which what the logs say of a key takes the place of its row.

Source: Hudi's file group reader and `BaseHoodieLogRecordReader`. The blocks of all logs count in their order, but for those of instants
that have not completed and those that a later rollback takes back. A log that was compacted into a block takes the place of what it holds.
For each key the row of the last block counts, or by event time the one with the greatest ordering, of equal ones the last; then the same
against the base file. Where an ordering is missing, as in a delete that takes any row, the later one counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, RefusedError, scrub
from quire.formats.damage import ARROW
from quire.storage import Store
from quire.table.file_groups import Slice
from quire.table.format import config, keys, log_content, log_file, schema
from quire.table.format.config import TableConfig
from quire.table.format.log_file import Block
from quire.table.timeline import Holds, Timeline

if TYPE_CHECKING:
    from quire.table.write.merge import Merged

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
        return keys.record_keys(rows, [f.name for f in self.key], stored=True) if self.key else rows.column(KEY)


def merging_of(has: TableConfig, line: Timeline, rows: pa.Schema, url: str) -> Merging:
    """How the logs of a table are merged; RefusedError where quire cannot do as the table says."""
    ordered = has.mode == config.EVENT_TIME
    fields = ([] if has.meta_fields else [*has.key]) + ([has.ordering or ""] if ordered else [])
    if has.mode not in config.MODES:
        raise RefusedError(f"{url} merges its logs by {has.mode[:200]}, which quire does not know: read it with read_optimized=True.")
    if (lacks := [name for name in fields if name not in rows.names]) or not (has.meta_fields or has.key):
        raise RefusedError(
            f"{url} needs the column {(lacks or ['of its key'])[0]!r} to merge its logs, and does not have it: read it with "
            "read_optimized=True."
        )
    key = () if has.meta_fields else tuple(rows.field(name) for name in has.key)
    return Merging(line.holds(), key, rows.field(has.ordering) if ordered else None)


@dataclass(frozen=True)
class Changes:
    """The logs say of each key once: its row, or that it is deleted. `said`, `blocks`: how often, and in how many blocks, they say it."""

    keys: pa.Array
    rows: pa.Table = field(repr=False)
    deletes: npt.NDArray[np.bool_] = field(repr=False)
    orderings: Any = field(repr=False)  # of the type of the ordering column; null: it counts whatever was there
    said: int = 0
    blocks: int = 0


def merged(
    base: Iterable[pa.RecordBatch], store: Store, one: Slice, reads: pa.Schema, merging: Merging
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The rows of a slice in the columns that `Merging.reads` names, in which `base` is the base file.

    A row group of the base file is in memory, and all logs of the slice. FormatError for a damaged log, RefusedError for one with rows of
    a kind that quire does not read.
    """
    changes = changes_of(store, one, reads, merging)
    yield from base if changes is None else applied(base, changes, merging)


def applied(
    base: Iterable[pa.RecordBatch], changes: Changes, merging: Merging, *, in_order: bool = False, counts: Merged | None = None
) -> Iterator[pa.RecordBatch]:  # fmt: skip
    """The rows of a base file with what logs say of them, and the rows that only logs have.

    in_order   the keys of `base` ascend, and so do those of what comes; else what only logs have comes last
    counts     is told what became of the rows
    """
    met, order = np.zeros(len(changes.keys), bool), np.asarray(pc.sort_indices(changes.keys))
    keys, begin, last = changes.keys.take(pa.array(order)), 0, len(order)
    for batch in base:
        rows = _step(batch, changes, met, merging, counts)
        if in_order and batch.num_rows:
            bound = str(merging.keys(batch)[-1].as_py())
            end = bisect_right(range(last), bound, lo=begin, key=lambda i: str(keys[i].as_py()))
            if (more := _only_in_logs(changes, met, order[begin:end], counts)).num_rows:
                whole = pa.concat_tables([rows, more])
                rows = whole.take(pc.sort_indices(merging.keys(whole)))
            begin = end
        yield from rows.to_batches()
    yield from _only_in_logs(changes, met, order[begin:], counts).to_batches()


def _only_in_logs(changes: Changes, met: npt.NDArray[np.bool_], among: _Places, counts: Merged | None) -> pa.Table:
    """Rows of logs, in the order of `among`, whose key no base file has."""
    found = among[~met[among] & ~changes.deletes[among]]
    if counts is not None:
        counts.inserts += len(found)
        counts.stale += int((~met[among] & changes.deletes[among]).sum())
    return changes.rows.take(pa.array(found))


def _step(
    batch: pa.RecordBatch, changes: Changes, met: npt.NDArray[np.bool_], merging: Merging, counts: Merged | None
) -> pa.Table:  # fmt: skip
    """Rows of the base file with what the logs say of them; of a key that comes again, as Hudi does it, the first row alone changes."""
    at = pc.index_in(merging.keys(batch), value_set=changes.keys)
    hits: _Places = np.flatnonzero(np.asarray(pc.is_valid(at)))
    found, first = np.unique(np.asarray(at.take(pa.array(hits)), np.int64), return_index=True)
    hits, found = hits[first][~met[found]], found[~met[found]]
    met[found], came = True, len(found)
    if merging.ordering is not None:
        after, before = changes.orderings.take(pa.array(found)), batch.column(merging.ordering.name).take(pa.array(hits))
        wins = np.asarray(pc.fill_null(pc.greater_equal(after, before), True), bool)
        hits, found = hits[wins], found[wins]
    if counts is not None:
        deletes = int(changes.deletes[found].sum())
        counts.kept += batch.num_rows - len(hits)
        counts.updates += len(hits) - deletes
        counts.deletes += deletes
        counts.stale += came - len(hits)
    if not len(hits):
        return pa.Table.from_batches([batch])
    n = batch.num_rows
    taken, stays = np.arange(n), np.ones(n, bool)
    taken[hits], stays[hits] = n + found, ~changes.deletes[found]
    both = pa.concat_tables([pa.Table.from_batches([batch]), changes.rows])
    return both.take(pa.array(taken[stays]))


# ------------------------------------------------------------------------------------------------------------------------ the logs
def changes_of(store: Store, one: Slice, reads: pa.Schema, merging: Merging) -> Changes | None:
    """All that the logs of a slice say, each key once; None: nothing."""
    found = [_part(block, reads, merging, where) for where, block in _blocks(store, one, merging)]
    return together(found, merging, f"{store.url}/{one.partition} ({one.group})")


def said_of(store: Store, one: Slice, keys: pa.Array, reads: pa.Schema, merging: Merging) -> list[tuple[str, str, Changes]]:
    """All that the logs of a slice say of some keys, in the order in which it counts: its instant, its log below the table, and it.

    Where others were made of blocks, it is these that say who has written what, and when.
    """
    blocks = _first_written(_all_blocks(store, one, merging))
    parts = [
        (block.instant, where.removeprefix(f"{store.url}/"), only(_part(block, reads, merging, where), keys)) for where, block in blocks
    ]
    return [part for part in parts if len(part[2].keys)]


def only(said: Changes, keys: pa.Array) -> Changes:
    """All that logs say of some keys."""
    hits = pc.is_in(said.keys, value_set=keys)
    return Changes(said.keys.filter(hits), said.rows.filter(hits), said.deletes[np.asarray(hits, bool)], said.orderings.filter(hits))


def together(parts: Iterable[Changes], merging: Merging, where: str) -> Changes | None:
    """All that several blocks say, each key once; None: nothing. `where`: whose logs they are, for an error."""
    found = [part for part in parts if len(part.keys)]
    if not found:
        return None
    all_keys = pa.chunked_array([chunk for part in found for chunk in _chunks(part.keys)], pa.string())
    orderings = pa.chunked_array([chunk for part in found for chunk in _chunks(part.orderings)])
    rows, deletes = pa.concat_tables([part.rows for part in found]), np.concatenate([part.deletes for part in found])
    if all_keys.null_count:
        raise FormatError(f"the logs of {where} have rows without a key: look who wrote them.")
    # One dictionary for all chunks: a number for each key.
    encoded = all_keys.combine_chunks().dictionary_encode() if all_keys.num_chunks != 1 else all_keys.chunk(0).dictionary_encode()
    wins = _winners(np.asarray(encoded.indices, np.int64), len(encoded.dictionary), None if merging.ordering is None else orderings)
    which = pa.array(wins)
    return Changes(encoded.dictionary, rows.take(which), deletes[wins], orderings.take(which), len(all_keys), len(found))


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
    return _uncompacted(_all_blocks(store, one, merging))


def _all_blocks(store: Store, one: Slice, merging: Merging) -> list[tuple[str, Block]]:
    """The same, and those that others were made of."""
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
    return [
        (where, block)
        for at, (where, block) in enumerate(found)
        if at >= rolled_back.get(block.instant, 0) and merging.holds(block.instant)
    ]


def _made_of(block: Block) -> list[str]:
    """The instants of the blocks that one was made of."""
    return [instant.strip() for instant in block.words.get(log_file.COMPACTED, "").split(",") if instant.strip()]


def _first_written(blocks: list[tuple[str, Block]]) -> list[tuple[str, Block]]:
    """Without the blocks that were made of others, as long as these are there."""
    there = {block.instant for _, block in blocks}
    if all(instant in there for _, block in blocks for instant in _made_of(block)):
        return [(where, block) for where, block in blocks if not _made_of(block)]
    return _uncompacted(blocks)


def _uncompacted(blocks: list[tuple[str, Block]]) -> list[tuple[str, Block]]:
    """Without the blocks that others were made of: these stand where the last of those stood."""
    places, at_instant = dict[int, int](), dict[str, list[int]]()
    for i, (_, block) in enumerate(blocks):
        made_of = [at for instant in _made_of(block) for at in at_instant.pop(instant, [])]
        place = max((places.pop(at) for at in made_of), default=i)
        places[i] = place
        at_instant.setdefault(block.instant, []).append(i)
    return [blocks[i] for i in sorted(places, key=lambda i: (places[i], i))]


def _part(block: Block, reads: pa.Schema, merging: Merging, where: str) -> Changes:
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
            return Changes(key, rows, np.ones(len(said), bool), pa.array(orderings, kind))
        rows = schema.conform(found, reads)
        orderings = rows.column(merging.ordering.name) if merging.ordering is not None else pa.nulls(rows.num_rows)
        return Changes(merging.keys(rows), rows, _deleting(found), orderings)
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
