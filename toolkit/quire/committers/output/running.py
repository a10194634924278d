"""A whole job, in the article's order of calls: where each of them belongs in a driver and its tasks."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from quire.commit import protocol
from quire.committers.output.attempts import TaskAttempt
from quire.committers.output.interface import Committed, Job, LostError, OutputCommitter
from quire.engine.job import ATTEMPTS
from quire.engine.take_up import with_state
from quire.errors import QuireError, UsageError, quoted
from quire.interrupts import interruptible
from quire.spark.runner import Failure, Runner, runner_of
from quire.storage import connect

Write = Callable[[TaskAttempt], object]


@interruptible
def run(
    write: Write, dest: str | os.PathLike[str], tasks: int, *, spark: Any = None, name: str | None = None, committer: str = "auto",
    allow_nonempty: bool = False, storage_options: Mapping[str, Any] | None = None,
) -> Committed:  # fmt: skip
    """Call `write(attempt)` once for each of so many `tasks`, on Spark, commit what they have written together, and return that.

        def write(task):
            with task.create("orders.json") as file:
                file.write(orders_of(task.task))

        quire.committers.run(write, "/data/orders", tasks=8, name="orders 2026-11-22")

    A task that raises is tried again, three times in all; then the job is given up (QuireError) and nothing of it is visible. Called again
    with the same name after the process was killed, it runs only the tasks that are missing; after it was committed, none.
    `spark`: a session, or `quire.LocalRunner()`. `dest`, `committer`, `allow_nonempty` and `storage_options` are those of
    `OutputCommitter`, `name` that of `setup_job`.
    """
    if not callable(write):
        raise UsageError(f"write={quoted(write)} is not a function. Give one that takes a task attempt.")
    by = OutputCommitter(dest, committer, allow_nonempty=allow_nonempty, storage_options=storage_options)
    by._runner = runner = runner_of(spark, connect(by.dest, storage_options))
    return drive(by, runner, write, tasks, name)


def drive(by: OutputCommitter, runner: Runner, write: Write, tasks: int, name: str | None = None) -> Committed:
    """The driver's part; once more from the beginning where the store has dropped a dead job's uploads before they were published."""
    try:
        job = _begin(by, runner, write, tasks, name)
        return by.commit_job(job)
    except LostError:
        return by.commit_job(_begin(by, runner, write, tasks, name))


def _begin(by: OutputCommitter, runner: Runner, write: Write, tasks: int, name: str | None) -> Job:
    """A job all of whose tasks are committed, or that is over."""
    with with_state("Nothing of this job is visible: call again, with the same name to go on."):
        job = by.setup_job(tasks, name)
        if job.restarted and not by.is_commit_job_repeatable(job):
            raise QuireError(f"job {job.id} of {job.dest} was given up in the meantime: call again.")
        try:
            _run_tasks(by, runner, write, job)
        except BaseException as e:
            if name is None or isinstance(e, _Failed):  # nobody could go on with it
                with suppress(QuireError):  # the store may be away: then it stays open, and whoever wants to gives it up
                    by.abort_job(job, str(e) if isinstance(e, _Failed) else f"its driver ended with {type(e).__name__}")
            if not isinstance(e, _Failed):
                raise
            raise e.error(f"{e}. Nothing of job {job.id} is visible in {job.dest}: look what is wrong, and call again.") from None
    return job


class _Failed(Exception):
    """A task failed as often as it may."""

    def __init__(self, said: str, error: type[QuireError]) -> None:
        super().__init__(said)
        self.error = error


def _run_tasks(by: OutputCommitter, runner: Runner, write: Write, job: Job) -> None:
    """Start attempts until each task is committed, or the job is over."""
    for last in (*[False] * (ATTEMPTS - 1), True):
        missing = _missing(by, job)
        outcomes = runner.run(functools.partial(task_of, by, job, write), missing) if missing else []
        failed = [(task, outcome) for task, outcome in zip(missing, outcomes, strict=True) if isinstance(outcome, Failure)]
        if not failed:
            return
        if last and by.state(job) == "open":
            task, failure = failed[0]
            raise _Failed(f"{len(failed)} of {job.tasks} tasks failed {ATTEMPTS} times; task {task}: {failure}", failure.kind_of_error)


def task_of(by: OutputCommitter, job: Job, write: Write, task: int) -> dict[str, Any]:
    """One attempt of a task, where the runner put it."""
    attempt = by.setup_task(job, task)
    try:
        write(attempt)
        if by.needs_task_commit(attempt):
            by.commit_task(attempt)
        else:
            by.abort_task(attempt)
    except BaseException:
        with suppress(QuireError):  # what went wrong before is what the user should hear of; the end of the job removes the rest
            by.abort_task(attempt)
        raise
    return {"task": task}


def _missing(by: OutputCommitter, job: Job) -> list[int]:
    """The tasks that nobody has committed yet; none where the job is over."""
    if by.state(job) != "open":
        return []
    there = sorted(protocol.finished(by._store, job.id) & {*range(job.tasks)})
    if not there or not by.is_recovery_supported(job):
        return [*range(job.tasks)]
    with ThreadPoolExecutor(protocol.PARALLEL) as pool:
        done = dict(zip(there, pool.map(functools.partial(by.recover_task, job), there), strict=True))
    return [task for task in range(job.tasks) if not done.get(task)]
