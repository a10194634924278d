"""Rows of small or unsorted files laid out anew: sorted spills of the old files, and new files that each take a range out of all of these.

    slices → spills (sorted, about a block each) → files, range by range of half a block

No task holds more than a few blocks, whatever the size of the files, and rows never pass through the driver. Rows keep the instant and the
number of the commit that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from quire.commit.entries import DataFile
from quire.errors import FormatError
from quire.formats import parquet
from quire.spark.runner import Runner
from quire.storage import Store
from quire.table import reading
from quire.table.file_groups import Slice
from quire.table.format import base_file, names
from quire.table.format.schema import META
from quire.table.realtime import Merging
from quire.table.write.blocks import BLOCK, KEY, laid
from quire.table.write.failures import answers
from quire.table.write.layout import LINEAR, Layout, scaled, shortened
from quire.table.write.merge import Merged
from quire.table.write.output import Output, Work, filter_for
from quire.table.write.rows import PARTITION, bytes_of, in_order
from quire.table.write.spills import PARALLEL, Batch, Place, Range, Spill, between, spill_of
from quire.table.write.targets import Target

PLACE = "_quire_place"  # a column of spilled rows: where the layout has them
SHARE = 48 << 20  # bytes of files that one task reads
LOOK = 64  # row groups of which a part says how the values of a column are spread,
SOME = 2048  # of each so many rows,
AT_ONCE = 4  # and not more of them in memory
_FAILING = "the rows of the old files could not be sorted"
_TIME, _SEQNO = META[:2]


def scales(work: Work, layout: Layout, slices: Sequence[Slice]) -> Layout:
    """The layout with what some rows of the files say of its columns: of row groups that are spread over all files, and over each."""
    store, based = work.closing.store, [one for one in slices if one.name]
    if layout.curve == LINEAR:
        return layout
    wanted = pa.schema([work.columns.field(name).with_nullable(True) for name in layout.sort])
    chosen = [based[i] for i in _spread(len(based), LOOK)]

    def some(one: Slice) -> list[pa.Table]:
        where = f"{store.url}/{one.name}"
        file, found = base_file.open_base_file(parquet.stored(store, one.name), where), list[pa.Table]()
        for number in _spread(file.num_row_groups, max(1, LOOK // len(chosen))):
            rows = reading.row_group(file, number, wanted, where)
            found.append(shortened(rows.take(pa.array(_spread(rows.num_rows, SOME), pa.int64()))))
        return found

    with ThreadPoolExecutor(AT_ONCE) as pool:
        tables = [rows for found in pool.map(some, chosen) for rows in found]
    return scaled(layout, pa.concat_tables([shortened(wanted.empty_table()), *tables]))


def _spread(count: int, most: int) -> list[int]:
    """At most so many numbers below a count, as far apart as they can be."""
    return sorted({int(i) for i in np.linspace(0, count - 1, most)}) if count else []


def sort(runner: Runner, work: Work, layout: Layout, slices: Sequence[Slice], merging: Merging) -> tuple[tuple[Spill, ...], int]:
    """The rows of the slices in spills, and how many they are."""
    found = answers(runner.run(partial(_spilled, work, layout, merging), list(_shares(slices))), _FAILING)
    return tuple(Spill(s["name"], tuple(Batch(**b) for b in s["batches"])) for each in found for s in each["spills"]), sum(
        each["rows"] for each in found
    )


def _shares(slices: Sequence[Slice]) -> Iterator[list[Slice]]:
    """Slices that follow one another, of about `SHARE` bytes together."""
    share, size = list[Slice](), 0
    for one in slices:
        if share and size + one.size + one.logged > SHARE:
            yield share
            share, size = [], 0
        share.append(one)
        size += one.size + one.logged
    yield share


def _spilled(work: Work, layout: Layout, merging: Merging, share: Sequence[Slice]) -> dict[str, Any]:
    closing, spills, waiting, size, count = work.closing, list[Spill](), list[pa.RecordBatch](), 0, 0

    def flush() -> None:
        rows = in_order(pa.Table.from_batches(waiting), None, by=PLACE, every=True)
        waiting.clear()
        spills.append(spill_of(closing, rows, by=PLACE))

    for one in share:
        for batch in reading.rows_of(closing.store, one, work.reads, merging):
            if not batch.num_rows:
                continue
            waiting.append(_laid(batch, work, layout, one))
            count += batch.num_rows
            size += bytes_of(waiting[-1])
            if size >= BLOCK:
                flush()
                size = 0
    if waiting:
        flush()
    return {"rows": count, "spills": [asdict(spill) for spill in spills]}


def _laid(batch: pa.RecordBatch, work: Work, layout: Layout, one: Slice) -> pa.RecordBatch:
    """Rows as they stand in a spill."""
    keys, n = batch.column(KEY), batch.num_rows
    if keys.null_count:
        raise FormatError(f"{work.closing.store.url}/{one.name} has rows without a key: look who wrote it")
    paths = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([one.partition]))
    rows = batch.select([*work.columns.names, _TIME, _SEQNO]).append_column(PARTITION, paths)
    return laid(keys, pa.array(np.zeros(n, bool)), rows.append_column(PLACE, layout.places(batch, keys)))


def targets(spills: Sequence[Spill], files: Mapping[str, int]) -> list[Target]:
    """The new files: of each partition as many as `files` says, each of about as many rows, as ranges of about half a block."""
    found, order = list[Target](), sorted(files)
    places = sorted(((Place(b.partition, b.key), b.rows, b.size) for spill in spills for b in spill.batches), key=lambda each: each[0])
    batches = {partition: list(some) for partition, some in groupby(places, lambda each: each[0].partition)}
    for partition, following in zip(order, [*order[1:], None], strict=True):
        end = None if following is None else Place(following, "")
        for ranges in _cut(batches.get(partition, []), Place(partition, ""), end, files[partition]):
            found.append(Target(partition, names.new_file_id(), None, (), ranges=tuple(ranges)))
    return found


def _cut(batches: Sequence[tuple[Place, int, int]], begin: Place, end: Place | None, files: int) -> Iterator[list[Range]]:
    """The ranges of each file of a partition."""
    whole, seen, ranges, size = sum(rows for _, rows, _ in batches), 0, list[Range](), 0
    done = 0
    for place, rows, more in batches:
        new_file = seen * files >= whole * (done + 1) and done + 1 < files
        if place != begin and (new_file or (size and size + more > BLOCK // 2)):
            ranges.append(Range(begin, place))
            begin, size = place, 0
            if new_file:
                yield ranges
                ranges, done = [], done + 1
        seen, size = seen + rows, size + more
    yield [*ranges, Range(begin, end)]


def clustered(work: Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, ...]:
    """The new base file of some ranges; nothing where no row is in them."""
    output: Output | None = None
    try:
        for within in target.ranges:
            rows = _rows_of(work, store, within)
            for batch in rows.to_batches() if rows is not None else ():
                if output is None:
                    output = Output(work, store, target, filter_for(_most(work.spills, target.ranges)))
                keys, times, seqnos = (batch.column(name) for name in (KEY, _TIME, _SEQNO))
                with reading.reading_of(f"a spill of {store.url}"):
                    piece = batch.select(work.columns.names).cast(work.columns)
                output.writer.write(piece, keys, times, seqnos)
                counts.kept += batch.num_rows
        return output.close() if output is not None else ()
    except BaseException:
        if output is not None:
            output.discard()
        raise


def _rows_of(work: Work, store: Store, within: Range) -> pa.Table | None:
    with ThreadPoolExecutor(PARALLEL) as pool:
        found = [batch for some in pool.map(lambda spill: list(between(store, spill, within, PLACE)), work.spills) for batch in some]
    return in_order(pa.Table.from_batches(found), None, by=PLACE, every=True) if found else None


def _most(spills: Sequence[Spill], ranges: Sequence[Range]) -> int:
    """How many rows may be in ranges that follow one another."""
    begin, end = ranges[0].begin, ranges[-1].end
    total = 0
    for spill in spills:
        places = [Place(batch.partition, batch.key) for batch in spill.batches]
        last = [*places[1:], None]
        total += sum(
            batch.rows for batch, first, after in zip(spill.batches, places, last, strict=True)
            if (end is None or first < end) and (begin is None or after is None or begin <= after)
        )  # fmt: skip
    return total
