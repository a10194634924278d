"""Which new versions of files take the old ones' place: those of which anything could be processed.

A file may be in several splits, and these in several tasks, so what each task's segment says is brought together, and no task decides
alone. Manifests name the segments, and both never change: every driver of a job, and each that goes on with it, finds the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from quire.commit.entries import Deferred, Task
from quire.coverage import segments
from quire.storage import Store

NOT_TAKEN = "its new version cannot be taken, and what was gathered before stays"  # begins the reason of what is deferred


def not_taken(store: Store, tasks: Sequence[Task]) -> tuple[Deferred, ...]:
    """The files of which something is quarantined and nothing was written, with the first reason: their old rows have to stay.

    A file without records is a good one. FormatError where a segment is not there.
    """
    found = dict[str, list[Any]]()  # path → the first reason, and how many there are
    # The others write again what was gathered before.
    read = [task for task in tasks if task.coverage.segment and not task.coverage.removes]
    for task in (task for task in read if task.stats.quarantined):
        rows = segments.read(store, task.coverage.segment or "", ["path", "state", "reason"])
        for row in rows.filter(pc.equal(rows.column("state"), "quarantined")).select(["path", "reason"]).to_pylist():
            found.setdefault(row["path"], [row["reason"], 0])[1] += 1
    for task in read if found else ():
        first, last = min(found, default=""), max(found, default="")
        if task.coverage.first <= last and first <= task.coverage.last:
            rows = segments.read(store, task.coverage.segment or "", ["path", "data_file"], first, last)
            for path in pc.unique(rows.column("path").filter(pc.is_valid(rows.column("data_file")))).to_pylist():
                found.pop(path, None)
    more = {path: f" (and {n - 1:,} more)" if n > 1 else "" for path, (_, n) in found.items()}
    return tuple(Deferred(path, f"{NOT_TAKEN}: {why}{more[path]}") for path, (why, _) in sorted(found.items()))
