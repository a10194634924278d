"""The tasks of a sort: the first write their shares as sorted spills, the others take a range of keys out of all of these, as runs."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.engine.closers import staged
from quire.storage import Store
from quire.storage.once import once
from quire.table.write.blocks import BLOCK, DELETES, KEY, PIECE, Blocks, BlockWriter, Closing, Run
from quire.table.write.rows import INSERTS, PARTITION, bytes_of, cut, in_order, prepare

STEP = 512 << 10  # bytes of a batch of a spill: the grain of the ranges
PARALLEL = 16  # requests at once


@dataclass(frozen=True)
class Batch:
    """A batch of a spill: its first row, and bytes."""

    partition: str
    key: str
    rows: int
    size: int


@dataclass(frozen=True)
class Spill:
    """A sorted file of some rows, which come later than those of the spills before it."""

    name: str
    batches: tuple[Batch, ...]

    @once
    def firsts(self) -> list[tuple[str, str]]:
        return [(each.partition, each.key) for each in self.batches]


@dataclass(frozen=True, order=True)
class Place:
    """The first key of a batch of a spill."""

    partition: str
    key: str


@dataclass(frozen=True)
class Range:
    """The rows from `begin` to just before `end`; None: from the first, to the last."""

    begin: Place | None
    end: Place | None


def spilled(closing: Closing, wanted: pa.Schema, operation: str, alone: bool, share: list[staged.Part]) -> dict[str, Any]:
    """The rows of a share, in spills; where they are all that there is, and fit into a block, in runs at once."""
    counts, spills, runs = {"rows_in": 0, "duplicates": 0, "left_out": 0}, list[Spill](), list[Run]()
    waiting, size = list[pa.RecordBatch](), 0

    def flush(last: bool) -> None:
        if not waiting:
            return
        rows = in_order(pa.Table.from_batches(waiting), closing.config.ordering)
        counts["duplicates"] += sum(batch.num_rows for batch in waiting) - rows.num_rows
        waiting.clear()
        if last and alone and not spills:
            runs.extend(_runs(closing, rows))
        else:
            spills.append(spill_of(closing, rows))

    for part in share:
        for batch in staged.batches(closing.store, part, ""):
            rows = prepare(batch, wanted, closing.config, operation)
            counts["rows_in"] += rows.num_rows
            if operation in INSERTS:
                rows = rows.filter(pc.invert(rows.column(DELETES)))
                counts["left_out"] += batch.num_rows - rows.num_rows
            if rows.num_rows:
                waiting.append(rows)
                size += bytes_of(rows)
            if size >= BLOCK:
                flush(False)
                size = 0
    flush(True)
    return {**counts, "spills": [asdict(spill) for spill in spills], "runs": [asdict(run) for run in runs]}


def taken(closing: Closing, spills: Sequence[Spill], within: Range) -> dict[str, Any]:
    """The rows of a range, out of all spills, in runs."""
    store = closing.store
    rows, size, given = list[pa.RecordBatch](), 0, 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        for first in range(0, len(spills), PARALLEL):
            some = range(first, min(first + PARALLEL, len(spills)))
            for found in pool.map(lambda i: list(between(store, spills[i], within)), some):
                rows += found
                given += sum(batch.num_rows for batch in found)
                size += sum(map(bytes_of, found))
            if size > 2 * BLOCK:  # large rows whose key comes again and again
                rows = in_order(pa.Table.from_batches(rows), closing.config.ordering).to_batches()
                size = sum(map(bytes_of, rows))
    if not rows:
        return {"runs": [], "duplicates": 0}
    table = in_order(pa.Table.from_batches(rows), closing.config.ordering)
    del rows
    return {"runs": [asdict(run) for run in _runs(closing, table)], "duplicates": given - table.num_rows}


def between(store: Store, spill: Spill, within: Range, by: str = KEY) -> Iterator[pa.RecordBatch]:
    """The rows of a spill that are in a range; all rows of a key are in one. `by`: the column that is the key here."""
    begin, end = within.begin, within.end
    first = max(0, bisect_left(spill.firsts, (begin.partition, begin.key)) - 1) if begin else 0
    last = bisect_left(spill.firsts, (end.partition, end.key)) if end else len(spill.batches)
    blocks = Blocks(store, spill.name) if first < last else None
    for at in range(first, last):
        assert blocks is not None
        rows = blocks.batch(at, spill.batches[at].rows)
        start = _rows_before(begin, rows, by) if begin else 0
        stop = _rows_before(end, rows, by) if end else rows.num_rows
        if start < stop:
            found = rows.slice(start, stop - start)
            yield found if 2 * found.num_rows > rows.num_rows else found.take(pa.array(np.arange(found.num_rows)))  # lets go of the others


def _rows_before(place: Place, rows: pa.RecordBatch, by: str) -> int:
    """How many rows of a batch of a spill come before a place."""
    paths, keys = rows.column(PARTITION), rows.column(by)
    return bisect_left(range(rows.num_rows), (place.partition, place.key), key=lambda i: (paths[i].as_py(), keys[i].as_py()))


def spill_of(closing: Closing, rows: pa.Table, by: str = KEY) -> Spill:
    """Write sorted rows as a spill. `by`: the column by which they are sorted."""
    name, batches = closing.new_block(), list[Batch]()
    writer = BlockWriter(closing.store.create(name), rows.schema)
    try:
        for batch in rows.to_batches():
            # Spills whose keys lie alike would else begin their batches at the same keys, and no range could end in between.
            shift = int(random.random() * batch.num_rows * STEP / max(STEP, bytes_of(batch)))
            for piece in (*cut(batch.slice(0, shift), STEP), *cut(batch.slice(shift), STEP)):
                writer.add(piece)
                batches.append(Batch(piece.column(PARTITION)[0].as_py(), piece.column(by)[0].as_py(), piece.num_rows, bytes_of(piece)))
        writer.close()
    except BaseException:
        writer.discard()
        raise
    return Spill(name, tuple(batches))


def _runs(closing: Closing, rows: pa.Table) -> list[Run]:
    """Write sorted rows as a block, in a run or several for each partition."""
    name, runs = closing.new_block(), list[Run]()
    paths, rows = rows.column(PARTITION), rows.drop_columns([PARTITION])
    writer = BlockWriter(closing.store.create(name), rows.schema)
    try:
        start = 0
        for batch in rows.to_batches():
            path = paths.slice(start, batch.num_rows).combine_chunks()
            start += batch.num_rows
            ends = [*(np.flatnonzero(np.diff(np.asarray(path.indices))) + 1).tolist(), batch.num_rows]
            for begin, end in zip([0, *ends], ends, strict=False):
                for piece in cut(batch.slice(begin, end - begin), PIECE):
                    keys, deletes = piece.column(KEY), pc.sum(piece.column(DELETES)).as_py()
                    runs.append(
                        Run(
                            name, writer.add(piece), path[begin].as_py(), piece.num_rows, deletes, piece.nbytes,
                            keys[0].as_py(), keys[-1].as_py(),
                        )
                    )  # fmt: skip
        writer.close()
    except BaseException:
        writer.discard()
        raise
    return runs
