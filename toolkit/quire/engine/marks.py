"""Rows of a task for which nothing is read or written: what was done elsewhere, and what became of files that are purged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.counts import marked
from quire.coverage.finished import PURGED, SAID
from quire.planning.pack import read_rows

if TYPE_CHECKING:
    from quire.engine.attempt import Attempt


def mark(attempt: Attempt) -> None:
    """Add a row for each split that was done elsewhere."""
    tally = attempt.tally
    for table in read_rows(attempt.store, attempt.planned.marks, ["path", "version", "start", "length"]):
        attempt.rows.put(table, state="mark")
        tally.gathered += table.num_rows
        counted = marked(table)
        tally.files_in, tally.bytes_in = tally.files_in + counted.files, tally.bytes_in + counted.bytes


def say(attempt: Attempt) -> None:
    """Add rows that say what is the state of rows that are there: of files that are purged. They add nothing, and nothing leaves."""
    tally = attempt.tally
    for table in read_rows(attempt.store, attempt.planned.marks, schema=SAID):
        known = {name: table.column(name) for name in ("data_file", "reason")}
        attempt.rows.put(table, **{name: pc.if_else(pc.equal(c, ""), pa.scalar(None, c.type), c) for name, c in known.items()})
        tally.gathered, tally.restated = tally.gathered + table.num_rows, tally.restated + table.num_rows
        gone = table.filter(pc.equal(table.column("state"), PURGED))
        # As many are in it afterwards as before: the history tells of them.
        files, size = pc.sum(pc.equal(gone.column("start"), 0)).as_py() or 0, pc.sum(gone.column("length")).as_py() or 0
        tally.files_in, tally.files_out = tally.files_in + files, tally.files_out + files
        tally.bytes_in, tally.bytes_out = tally.bytes_in + size, tally.bytes_out + size
