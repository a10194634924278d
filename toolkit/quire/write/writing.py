"""How a write begins and ends, on the driver: one commit in the log for all tasks, with a row in the ledger by which it counts once.

    begin → (attempts, in Spark's tasks) → end | give_up

Rows that came from a frame cannot be read again, so nobody else goes on with the job of a driver that died: nothing of it is visible, and
`recover(dest, abort=…)` cleans it, or the next write of the same batch or stream, or any write after a week.
"""

from __future__ import annotations

import dataclasses
import sys
import warnings
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from msgspec.structs import replace

from quire.commit import names, protocol
from quire.commit.committers import choice
from quire.commit.entries import UNSAID, WRITE, Abort, Commit, Coverage, PlanHead, Spec, Stats, Task
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.coverage.conflicts import TWICE, conflicts
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.coverage.segments import SCHEMA, SegmentWriter
from quire.engine import driver, own_files
from quire.engine import job as jobs
from quire.engine.exports import step as exports
from quire.engine.request import evolution, keep
from quire.engine.take_up import Identity, with_state
from quire.errors import QuireError, quoted
from quire.progress import Progress
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import MORE
from quire.spark.runner import LocalRunner
from quire.storage import Store, connect
from quire.write import columns
from quire.write.asked import ROWS, Asked
from quire.write.attempt import Writing

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

STALE = timedelta(days=7)  # the age at which stores drop what was uploaded and never completed: such a write can commit no more


class _MovedError(Exception):
    """The log has grown since it was looked at which files are to leave."""


def source(kind: str, name: str) -> str:
    """The path by which the ledger knows the rows of a write."""
    return f"{kind}:{name}"


def begin(dest: str, options: Any, schema: StructType, asked: Asked) -> Writing | None:
    """Look whether the destination takes such rows, and name a job for them; None: the batch is committed already.

    Raises UsageError and RefusedError before anything is written.
    """
    store = connect(dest, options)
    driver.check_destination(store, asked.allow_nonempty)
    by, kept = choice(asked.committer, store), keep(asked.keep_versions, store)
    exports.wanted(asked.exports, "parquet", store)
    own, made = columns.of_frame(schema, asked.by)
    log = protocol.recover(store)
    own_files.check_kind(log)
    spec = _settled(log, asked, made)
    exports.check_new(log, asked.exports)
    own = columns.as_there(log, own, asked.by, MORE if asked.adds else "")
    protocol.keep(log, kept)
    _give_up_old(log)
    path = source("batch", asked.batch) if asked.batch else source("rows", names.new_id())
    if asked.batch and covered(log, path):
        exports.want(log, asked.exports)  # whoever committed the batch may have died before it said so
        exports.catch_up(log, _say)
        _say(f"batch {quoted(asked.batch)} was committed before: skipped")
        return None
    # The job is this call's alone: tasks of two drivers may hold the rows of one batch in different orders.
    intent = {"verb": WRITE, "rows": path, "name": names.new_id(), "committer": by, "begun": protocol.now(), **evolution(adds=asked.adds)}
    identity = Identity(intent, spec, by)
    return Writing(dest, options, identity.head(log.tip, names.new_id(), 0), asked, own, made)


def of_stream(writing: Writing, stream: str) -> Writing:
    """The same for a batch of a stream, whose name only its tasks and its end know."""
    return dataclasses.replace(writing, head=replace(writing.head, intent={**writing.head.intent, "rows": stream}))


def covered(log: Log, path: str) -> bool:
    """Whether the rows of a batch are committed."""
    return bool(fold(log).rows(log.store, ["path"], path, path).num_rows)


def _settled(log: Log, asked: Asked, made: pa.Schema) -> Spec:
    """The log's words for the write's files, with the columns of its directories; RefusedError where the destination holds others."""
    ours = replace(own_files.UNWRITTEN, layout="directories" if asked.by else "flat", by=schemas.text(made))
    there = own_files.spec_there(log)
    by = ",".join(schemas.written_by(there))
    if there.format != "parquet":
        advice = "Write into another destination."
    elif there.layout != "directories":
        advice = "Leave partition_by out, or into another destination."
    elif by and by == ",".join(asked.by):
        advice = "Cast the columns of partition_by, or write into another destination."
    else:
        advice = f"Say option('partition_by', {repr(by) if by else '…'}) as before, or into another destination."
    return own_files.settled(log, ours, (), ", and this write would give", f". {advice}")


def end(writing: Writing, path: str, tasks: Sequence[Task]) -> None:
    """Commit the tasks of a write, and publish; RefusedError or QuireError where that is not possible, and then nothing is visible."""
    log = Log(writing.store).refresh()
    tasks = sorted(tasks, key=lambda task: task.task)
    if [task.task for task in tasks] != list(range(len(tasks))):
        raise QuireError(f"results of tasks of job {writing.job} are missing: nothing of it is visible. Write again.")
    with with_state(f"Job {writing.job} is not visible, or all of it is: ledger.inspect.history() of {writing.dest} says which."):
        if log.outcome(writing.job) is None and covered(log, path):  # by a commit before this job began; later ones conflict
            protocol.abort(log, writing.job, TWICE)
        elif log.outcome(writing.job) is None:
            _commit(log, writing, path, tasks)
        if isinstance(log.refresh().outcome(writing.job), Commit):
            exports.want(log, writing.asked.exports)
        jobs.settle(log, writing.job, Progress(False))
    outcome = log.refresh().outcome(writing.job)
    if isinstance(outcome, Commit) and log.in_effect(outcome):
        _clean_twins(log, writing)
        checkpoint.keep_up(LocalRunner(), writing.dest, writing.options, log, warnings.warn)
    elif isinstance(outcome, Commit):
        raise QuireError(f"the store has lost output of job {writing.job} before it was published (uploads expire). Write again.")
    elif covered(log, path):
        _say(f"{path} was committed before, or by another call: skipped")
    else:
        why = outcome.why if isinstance(outcome, Abort) else "nobody knows by whom"
        raise QuireError(f"job {writing.job} of {writing.dest} was given up ({why}): nothing of it is visible. Write again.")


def give_up(store: Store, job: str, why: str) -> None:
    """End a write that failed, and delete what it has left; nothing happens if it is committed."""
    protocol.abort(Log(store).refresh(), job, why)


def _commit(log: Log, writing: Writing, path: str, tasks: list[Task]) -> None:
    """Append the entry: the tasks, and one more that holds the row of the ledger, and the names of the files that leave."""
    files = [file.name for task in tasks for file in task.data_files]
    spec = writing.head.spec if files else UNSAID
    head = replace(writing.head, tasks=len(tasks) + 1, spec=spec, intent={**writing.head.intent, "reason": path})
    last = _row(log.store, head, path)
    while True:
        for entry in log.refresh().unpublished():  # what is not published may still be lost
            protocol.publish(log, entry)
        seen = log.refresh().tip
        gone = _leaving(log, writing.asked, files)
        closing = replace(last, coverage=replace(last.coverage, removes=gone))

        def unless_moved(log: Log, head: PlanHead, tasks: list[Task], seen: int = seen) -> set[int] | str:
            if writing.asked.leaves and log.tip != seen:
                raise _MovedError
            return own_files.in_the_way(log, head, tasks) or conflicts(log, head, tasks, jobs.agree)

        try:
            protocol.commit(log, head, [*tasks, closing], unless_moved)
        except _MovedError:
            continue
        return


def _leaving(log: Log, asked: Asked, files: Iterable[str]) -> tuple[str, ...]:
    """The data files whose rows the new ones supersede."""
    if not asked.leaves:
        return ()
    touched = {name.rpartition("/")[0] for name in files}
    return tuple(file.name for file in live(log, fold(log)) if asked.leaves == ROWS or file.name.rpartition("/")[0] in touched)


def _row(store: Store, head: PlanHead, path: str) -> Task:
    """The task that covers the write in the ledger: two of one batch touch the same path, so the second to commit is dropped whole."""
    number, attempt, segment = head.tasks - 1, names.new_id(), SegmentWriter()
    row = {"path": path, "version": "1", "start": 0, "length": 1, "state": "mark", "carried": False}
    segment.add(pa.Table.from_pylist([{name: row.get(name) for name in SCHEMA.names}], schema=SCHEMA))
    name, data = names.segment(head.job, number, attempt), segment.finish()
    assert data is not None
    store.put(name, data)
    coverage = Coverage(segment=name, first=path, last=path)
    return Task(task=number, attempt=attempt, data_files=(), coverage=coverage, stats=Stats(gathered=1))


def _clean_twins(log: Log, writing: Writing) -> None:
    """Give up other jobs of the same batch or stream: they can commit no more, and their drivers are dead, or find the batch covered."""
    wanted = writing.head.intent["rows"]
    for head in protocol.open_jobs(log.store, log):
        if head.verb == WRITE and head.job != writing.job and head.intent.get("rows") == wanted:
            protocol.abort(log, head.job, "another call has committed its rows")


def _give_up_old(log: Log) -> None:
    for head in protocol.open_jobs(log.store, log):
        if head.verb == WRITE and "rows" in head.intent and _old(str(head.intent.get("begun"))):
            protocol.abort(log, head.job, "its driver has not ended it for a week")


def _old(begun: str) -> bool:
    try:
        return datetime.now(UTC) - datetime.fromisoformat(begun) > STALE
    except (ValueError, TypeError):  # forged
        return False


def _say(line: str) -> None:
    """Spark shows on the driver what its Python processes print there."""
    print(f"quire: {line}", file=sys.stderr, flush=True)
