"""Rows that a condition chooses and that are to leave: the tasks that find them write them, and the driver holds their names alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from quire.coverage.finished import FINISHED
from quire.coverage.fold import Fold
from quire.ledger.forget import RowChooser, finished, refuse_finished, with_riders
from quire.planning.drops import DROPS, filled, put_drops
from quire.spark.releases import to_arrow
from quire.spark.runner import guarded
from quire.spark.shipping import one_line
from quire.storage import connect

TOGETHER = 500_000  # rows that leave, of which one task writes so many at once


def dropped(url: str, options: Any, chosen: Callable[[Fold], Any], *, last_copy: bool) -> RowChooser:
    """Rows that leave are written by the tasks that find them; here come the names of these objects, and of the data files.

    `last_copy`: also what was purged; else RefusedError for it, whether it was chosen or rides with what was. Where a file must not
    leave, they tell its state and path instead.
    """

    def rows(folded: Fold, named: Callable[[str], str]) -> list[tuple[str, str]]:
        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = connect(url, options)
            for drops in _pieces(batches):
                leaving = with_riders(store, folded, drops)
                found = finished(leaving, last_copy=last_copy) or put_drops(store, leaving, named)
                yield pa.RecordBatch.from_pydict({"object": [name for name, _ in found], "of": [of for _, of in found]})

        frame = chosen(folded)
        work = guarded(frame.sparkSession, write, url)
        with one_line():
            found = to_arrow(frame.select(*DROPS.names).mapInArrow(work, "object string, of string")).to_pylist()
        refuse_finished(url, list(dict.fromkeys((row["object"], row["of"]) for row in found if row["object"] in FINISHED)))
        return [(row["object"], row["of"]) for row in found]

    return rows


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Rows that leave, as a plan has them, some at a time."""
    waiting, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= TOGETHER:
            yield filled(pa.Table.from_batches(waiting))
            waiting, rows = [], 0
    if rows:
        yield filled(pa.Table.from_batches(waiting))
