"""Splits that a user's own job reads: the tasks write them into the ledger, as done elsewhere, and read nothing of them."""

from __future__ import annotations

from typing import Any

import pyarrow.compute as pc

from quire.engine.attempt import Attempt
from quire.engine.kinds.listing import OfFiles
from quire.planning.listing import TaskRun
from quire.planning.pack import read_rows


class ClaimKind(OfFiles):
    """Marks splits."""

    name, phase = "claim", "marking"

    def attempt(self, attempt: Attempt, source: Any, runs: list[TaskRun]) -> None:
        """Add a row for each split of one source, and let what it replaces give way."""
        tally = attempt.tally
        for rows in read_rows(attempt.store, runs, ["path", "version", "start", "length", "replaces"]):
            given = rows.filter(pc.is_valid(rows.column("replaces"))).select(["path", "start", "replaces"])
            for path, start, text in zip(*(column.to_pylist() for column in given.columns), strict=True):
                if text:
                    attempt.replace((path, start), text)
            attempt.rows.put(rows.drop_columns(["replaces"]).sort_by([("path", "ascending"), ("start", "ascending")]), state="mark")
            tally.gathered += rows.num_rows
            tally.files_in += pc.sum(pc.equal(rows.column("start"), 0)).as_py() or 0
            tally.bytes_in += pc.sum(rows.column("length")).as_py() or 0
