"""The state at a version, from the log and its checkpoint: the live data files, and totals. No segment is read, and no old entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.checkpoints import FILES, Totals
from quire.commit.entries import Stats, Task
from quire.commit.log import Log
from quire.coverage.fold import Fold


@dataclass(frozen=True)
class LiveFile:
    """A data file that counts: the number of its commit, what that did, the task, and the directory of the source it was kept apart for.

    `first` and `last`: the smallest and the greatest path of its task.
    """

    name: str
    size: int
    records: int
    number: int
    verb: str
    task: int
    directory: str
    first: str
    last: str


def live(log: Log, folded: Fold, *, reader: bool = False) -> Iterator[LiveFile]:
    """The data files that count at the fold's version, in the log's order."""
    log = log.at(folded.version)
    if log.base:
        for table in log.base.tables(log.store, "files", FILES):
            for row in zip(*(table.column(c).to_pylist() for c in FILES.names), strict=True):
                if row[0] not in folded.removed and row[3] not in folded.undone:
                    yield LiveFile(*row)
    for number, commit in log.recent(folded.version):
        for t in log.in_effect(commit, folded.version, reader=reader):
            for f in t.data_files:
                if f.name not in folded.removed:
                    yield LiveFile(f.name, f.size, f.records, number, commit.verb, t.task, t.folder, t.coverage.first, t.coverage.last)


def totals(log: Log, folded: Fold) -> Totals:
    """The sum of the published commits at the fold's version."""
    log = log.at(folded.version)
    before = log.base.totals if log.base else Totals()
    count, size, records = before.data_files, before.bytes_written, before.records
    if log.base and folded.removed:
        # Of what the checkpoint counts, some has left since.
        gone = pa.array(list(folded.removed), pa.string())
        for table in log.base.tables(log.store, "files", FILES, ["data_file", "bytes", "records"]):
            left = table.filter(pc.is_in(table.column("data_file"), gone))
            sums = [pc.sum(left.column(column)).as_py() or 0 for column in ("bytes", "records")]
            count, size, records = count - left.num_rows, size - sums[0], records - sums[1]
    out = [task for number in folded.undone for task in log.kept(log.commit(number))]
    taken = added(out)
    undone = [f for t in out for f in t.data_files]
    count, size, records = count - len(undone), size - sum(f.size for f in undone), records - sum(f.records for f in undone)
    commits, tasks, last = before.commits - len(folded.undone), list[Task](), before.last_commit
    for _, commit in log.recent(folded.version):
        there = log.in_effect(commit, folded.version, reader=True)
        tasks += there
        commits, last = commits + bool(there), commit.time if there else last
    files = [f for t in tasks for f in t.data_files if f.name not in folded.removed]
    uncovered, stats = sum(len(u.ranges) for t in tasks for u in t.coverage.uncovers), added(tasks)
    return Totals(
        commits=commits, last_commit=last,
        files=before.files + stats.files_in - stats.files_out - taken.files_in,
        bytes_read=before.bytes_read + stats.bytes_in - stats.bytes_out - taken.bytes_in,
        quarantined=before.quarantined + stats.quarantined - stats.quarantined_out - taken.quarantined,
        held_back=before.held_back + stats.held - stats.held_out - taken.held,
        data_files=count + len(files), bytes_written=size + sum(f.size for f in files), records=records + sum(f.records for f in files),
        ledger_rows=before.ledger_rows + stats.rows - stats.carried - uncovered - taken.rows,
        duplicates=before.duplicates + stats.duplicates - taken.duplicates,
    )  # fmt: skip


def added(tasks: Iterable[Task], before: Stats | None = None) -> Stats:
    """The counts of tasks, and of those `before`, together."""
    found = [before or Stats(), *(task.stats for task in tasks)]
    return Stats(**{name: sum(getattr(each, name) for each in found) for name in Stats.__struct_fields__ if name != "written"})
