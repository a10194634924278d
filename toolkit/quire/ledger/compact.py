"""Compaction: the small data files of many commits become few large ones; coverage and lineage stay, in one commit."""

from __future__ import annotations

from collections.abc import Callable

from quire.commit.log import Log
from quire.ledger.job import Change, Changed, Dest, PlannedChange, spec_of
from quire.planning.pack import PlannedTask
from quire.planning.rewriting import live_files, packed

SMALL = 0.5  # of the target: a file below it is worth writing again


def compact(dest: Dest, target: int, writes: str = "") -> Changed:
    """Merge data files below half of `target` bytes with others of their directory, into files of about `target` bytes.

    `writes`: how Parquet files are written, as JSON; "": as the last call has said it.

    Files that hold rows of all splits of a commit stay as they are: the ledger does not say whose bytes are where, so nothing in them
    could be compared on the way.
    """

    def plan(log: Log, base: int, _: Callable[[str], str]) -> PlannedChange:
        small = [file for file in live_files(log, base).values() if file.size < target * SMALL] if spec_of(log).traced else []
        return PlannedChange([PlannedTask(folder, 0, removes=files) for folder, files in packed(small, target) if len(files) > 1])

    said = {"writes": writes} if writes else {}
    return Change(dest, {"verb": "compact", **said}, plan, target=target, writes=writes).run()
