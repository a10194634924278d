"""Hadoop's OutputCommitter over quire's commit log: the article's calls, each of them a step of the protocol.

    setup_job → setup_task → (write) → needs_task_commit → commit_task | abort_task → … → commit_job | abort_job

Each call may be made again, by anyone, in any process: it reads the store and does the remaining work. `quire.commit.committers`
defines committers (how output waits and is published); when a job is over, the log alone says.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from quire import display
from quire.arguments import flag, whole
from quire.commit import names, protocol
from quire.commit.committers import choice, committer
from quire.commit.entries import UNSAID, WRITE, Abort, Commit, PlanHead
from quire.commit.log import Log
from quire.committers.output.attempts import TaskAttempt
from quire.committers.output.rules import in_the_way, of_name, spec_of
from quire.coverage import checkpoint
from quire.engine import driver, own_files
from quire.engine import job as jobs
from quire.engine.take_up import Identity, take_up, with_state
from quire.errors import FormatError, QuireError, RefusedError, UsageError, about, quoted, scrub
from quire.progress import Progress
from quire.spark.runner import LocalRunner, Runner
from quire.storage import Store, canonical, connect

MOST = 100_000  # tasks of a job: each is a manifest, and all of them stand in one entry
SHOWN = 5  # of the tasks that are missing


@dataclass(frozen=True)
class Job:
    """A job's name and size: plain data that travels to its tasks.

    id         the job's name in the log: give it to `quire.recover(dest, abort=…)`, or to `OutputCommitter.job` in another process
    name       what the user calls it; a name is committed once in a destination
    tasks      how many there are; `committer`: how they write
    restarted  whether setup_job found it: another process has begun it
    """

    dest: str
    id: str
    tasks: int
    committer: str
    name: str
    restarted: bool = field(default=False, compare=False)


class LostError(QuireError):
    """The store has dropped a job's output (uploads expire) after it was committed and before it was published.

        try:
            committer.commit_job(job)
        except quire.committers.LostError:
            job = committer.setup_job(tasks=8)    # again, from its first task

    None of the job counts.
    """


@dataclass(frozen=True)
class Committed(display.Shown):
    """A `job` that is committed and published: its `data_files`, `records` (rows of Parquet; text is not counted) and `bytes`.

    version   from which on `quire.read(dest, version=…)` sees it
    """

    dest: str
    job: str
    data_files: int
    records: int
    bytes: int
    version: int

    def _facts(self) -> dict[str, object]:
        return {
            "job": self.job, "data files": f"{self.data_files:,}", "rows of Parquet": f"{self.records:,}", "bytes": f"{self.bytes:,}",
            "version": self.version,
        }  # fmt: skip


class OutputCommitter:
    """Lets a program of your own write a job's files: all of them become visible by commit_job, or none.

    dest       URL or path; its log is the one of quire's own jobs, and `quire.Ledger(dest)` and `quire.read` take what was committed
    committer  "auto", "rename", "rename_v2" (for comparison: readers of the directory see output early), "upload", "copy", or the name
               of one that another package brings
    allow_nonempty     allow a destination that holds other files
    storage_options    of its store
    job, task, attempt, tasks, name    a `Job`, the number of a task, a `TaskAttempt`; how many tasks a job has, and how the user calls it

        committer = quire.committers.OutputCommitter("/data/orders")
        job = committer.setup_job(tasks=8, name="orders 2026-11-22")      # committer.job(job.id) in another process
        attempt = committer.setup_task(job, 0)
        with attempt.create("orders.json") as file:                       # attempt.work_path: the same for other writers
            file.write(data)
        if committer.needs_task_commit(attempt):
            committer.commit_task(attempt)                                # or committer.abort_task(attempt)
        committer.commit_job(job)                                         # or committer.abort_job(job, why="a wrong day")
        committer.state(job), committer.is_commit_job_repeatable(job)
        if committer.is_recovery_supported(job):
            committer.recover_task(job, 1)

    Calls raise UsageError for wrong arguments, and QuireError or one of its children where a job is over or a store fails.

    It travels to tasks as it is (options by `quire.secret`, so that they hold no secret), and is made anew in each process.
    """

    def __init__(
        self, dest: str | os.PathLike[str], committer: str = "auto", *, allow_nonempty: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        with about("dest"):
            self.dest = canonical(dest, storage_options)
        self.allow_nonempty, self._options = flag(allow_nonempty, "allow_nonempty"), storage_options
        self._opened: tuple[int, Log, threading.Lock] | None = None
        self.committer = choice(committer, self._store)
        self._runner: Runner = LocalRunner()  # of what keeps the ledger short: whoever has Spark gives that

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": None, "_runner": LocalRunner()}

    def __repr__(self) -> str:
        return f"OutputCommitter({self.dest!r}, {self.committer!r})"

    @property
    def _store(self) -> Store:
        """Opened once in each process, also in forks."""
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), Log(connect(self.dest, self._options)), threading.Lock()
        return self._opened[1].store

    def _read(self) -> Log:
        """The log to its tip, for a look at single jobs; what was read before never changes. Several threads may ask."""
        assert self._store is not None
        assert self._opened is not None
        _, log, lock = self._opened
        with lock:
            return log.refresh()

    # ------------------------------------------------------------------------------------------------------------------- the job
    def setup_job(self, tasks: int, name: str | None = None) -> Job:
        """Begin a job of so many tasks and return it, or the one of this name that was begun before, or is committed.

        Whatever others have left in the destination is published and cleaned first. A name that was given up may be used again; no
        name: a new one. Raises UsageError and RefusedError for what does not go together, before anything is written.
        """
        whole(tasks, "tasks", 1, MOST)
        if name is not None and not (isinstance(name, str) and 0 < len(name) <= 200 and name.isprintable()):
            with about("name"):
                raise UsageError(f"name={quoted(name, 60)} is not a name of a job, in one line. Write for example 'orders 2026-11-22'.")
        intent = {"verb": WRITE, "name": name or names.new_id(), "committer": self.committer, "reason": name}
        name, store = str(intent["name"]), self._store
        driver.check_destination(store, self.allow_nonempty)
        identity = Identity(intent, UNSAID, self.committer, named={"verb": WRITE, "name": name})
        done: Commit | None = None

        def identify(log: Log) -> Identity:
            nonlocal done
            own_files.check_kind(log)
            done = of_name(log, identity.hash)
            return identity

        def plan(log: Log, identity: Identity) -> tuple[PlanHead, str] | None:
            return None if done else (identity.head(log.tip, names.new_id(), tasks), name)

        taken = take_up(store, identify, plan, resume=lambda *_: done is None)
        if done is not None:
            return Job(self.dest, done.job, len(done.tasks), done.committer, name, restarted=True)
        head = taken.head
        assert head is not None
        if (head.tasks, head.committer) != (tasks, self.committer):
            raise RefusedError(
                f"job {head.job} ({quoted(name, 60)}) of {self.dest} was begun with {head.tasks:,} tasks and the committer "
                f"{head.committer!r}, and this call says {tasks:,} and {self.committer!r}. Say the same, or give it up: "
                f"quire.recover(dest, abort={head.job!r})."
            )
        return Job(self.dest, head.job, head.tasks, head.committer, name, restarted=taken.planned is None)

    def job(self, id: str) -> Job:
        """The job of this `id`, begun by whatever process; UsageError for one that nobody knows here."""
        if not isinstance(id, str):
            with about("id"):
                raise UsageError(f"id={quoted(id)} is not the id of a job. Give that of a job that setup_job has begun.")
        store = self._store
        try:
            head = _plan(store, id)
        except FormatError as e:
            raise UsageError(f"{e}.") from e
        if head is not None:
            return Job(self.dest, id, head.tasks, head.committer, str(head.intent.get("name")), restarted=True)
        outcome = self._read().outcome(id)
        if outcome is None or (isinstance(outcome, Commit) and outcome.verb != WRITE):
            raise UsageError(f"{self.dest} knows no job {quoted(id, 80)} that setup_job has begun. ledger.summary().open_jobs lists them.")
        tasks, name = (len(outcome.tasks), outcome.why) if isinstance(outcome, Commit) else (0, "")
        return Job(self.dest, id, tasks, outcome.committer, name, restarted=True)

    def state(self, job: Job) -> str:
        """The state of a job: open, committed, published, lost (its output was, before it was published), aborted or unknown."""
        return self._state(self._read(), _job(job))

    def _state(self, log: Log, job: Job) -> str:
        outcome = log.outcome(job.id)
        if outcome is None:
            if protocol.plan_head(log.store, job.id) is not None:
                return "open"
            log = self._read()  # it may have ended in the meantime
            return "unknown" if log.outcome(job.id) is None else self._state(log, job)
        if isinstance(outcome, Abort):
            return "aborted"
        if log.published(job.id) is None:
            return "committed"
        return "published" if log.in_effect(outcome) else "lost"

    def is_commit_job_repeatable(self, job: Job) -> bool:
        """Whether commit_job may be called, though an earlier call may have died anywhere: unless the job has ended without output."""
        return self.state(job) in ("open", "committed", "published")

    def is_recovery_supported(self, job: Job) -> bool:
        """Whether recover_task may find tasks that an earlier process has committed: unless the job has ended without output."""
        return self.state(job) in ("open", "committed", "published")

    def commit_job(self, job: Job) -> Committed:
        """Make the output of all tasks visible: one entry in the log decides, then the files appear in their places.

        Returns what was `Committed`.

        Call it again after any failure, in any process. RefusedError while tasks are missing, or if what they have written does not go
        together (the job stays open); QuireError if the job was given up, or others have committed one of its name.
        """
        log = Log(self._store).refresh()
        if log.outcome(_job(job).id) is None:
            with with_state(f"Nothing of job {job.id} is visible, or all of it will be: call again."):
                self._commit(log, job)
        with with_state(f"Job {job.id} is committed: call again, or recover(dest), to move its files to their places."):
            jobs.settle(log, job.id, Progress(False))
        outcome, state = log.refresh().outcome(job.id), self._state(log, job)
        if isinstance(outcome, Abort):
            raise QuireError(f"job {job.id} of {self.dest} was given up ({outcome.why}): nothing of it is visible. Begin another.")
        if state == "lost":
            raise LostError(
                f"the store has lost output of job {job.id} in {self.dest} before it was published (uploads expire), so nothing of the job "
                f"counts, and nothing of it is visible. Begin another of the same name."
            )
        assert isinstance(outcome, Commit)
        files = [file for task in outcome.tasks for file in task.data_files]
        version = log.published_at(job.id)
        checkpoint.keep_up(self._runner, self.dest, self._options, log, warnings.warn)
        return Committed(self.dest, job.id, len(files), sum(f.records for f in files), sum(f.size for f in files), version)

    def _commit(self, log: Log, job: Job) -> None:
        head = _plan(log.store, job.id)
        with ThreadPoolExecutor(protocol.PARALLEL) as pool:
            tasks = list(pool.map(lambda n: protocol.get_manifest(log.store, job.id, n), range(head.tasks if head else 0)))
        if log.refresh().outcome(job.id) is not None:
            return
        if head is None:
            raise self._unknown(job.id)
        missing = [number for number, task in enumerate(tasks) if task is None]
        if missing:
            some = ", ".join(map(str, missing[:SHOWN])) + (f" and {len(missing) - SHOWN:,} more" if len(missing) > SHOWN else "")
            raise RefusedError(
                f"job {job.id} of {self.dest} has {head.tasks:,} tasks, and of these {some} {'is' if len(missing) == 1 else 'are'} not "
                f"committed: nothing is visible. Run them and call commit_job again, or give the job up with abort_job."
            )
        done = [task for task in tasks if task is not None]
        protocol.commit(log, replace(head, spec=spec_of(log, done, job.id)), done, in_the_way)

    def abort_job(self, job: Job | str, why: str = "given up") -> None:
        """Give a job up, by its id: nothing of it will be visible, and what it has left is deleted. Nothing happens if it was before.

        `why` stands in the log.

        RefusedError if it is committed; UsageError for an id that nobody knows here.
        """
        name = job if isinstance(job, str) else _job(job).id
        log = Log(self._store).refresh()
        if log.outcome(name) is None and not self._begun(name) and log.refresh().outcome(name) is None:
            raise self._unknown(name)
        protocol.abort(log, name, scrub(str(why), 200))
        if isinstance(log.refresh().outcome(name), Commit):
            raise RefusedError(f"job {name} of {self.dest} is committed, and cannot be given up any more: its files stay.")

    def _begun(self, name: str) -> bool:
        """Whether a job has a plan, be it damaged."""
        try:
            return self._store.stat(names.plan_head(name)) is not None
        except FormatError as e:
            raise UsageError(f"{e}.") from e

    def _unknown(self, id: str) -> UsageError:
        return UsageError(
            f"{self.dest} knows no job {quoted(id, 80)}: begin one with setup_job. ledger.summary().open_jobs has the open ones."
        )

    # ------------------------------------------------------------------------------------------------------------------ its tasks
    def setup_task(self, job: Job, task: int) -> TaskAttempt:
        """Begin an attempt of a task, here, and return it. The first of several counts whose commit_task arrives.

        QuireError if the job is over.
        """
        store = self._store
        head = _plan(store, _job(job).id)
        if head is None:
            raise self._over(job.id)
        return TaskAttempt(store, committer(head.committer, store), job.id, whole(task, "task", 0, head.tasks - 1))

    def _over(self, id: str) -> QuireError:
        outcome = self._read().outcome(id)
        if outcome is None:
            return self._unknown(id)
        how = "committed already" if isinstance(outcome, Commit) else f"given up ({outcome.why})"
        return QuireError(f"job {id} of {self.dest} is {how}: no task of it counts any more.")

    def needs_task_commit(self, attempt: TaskAttempt) -> bool:
        """Whether this attempt may still be the one that counts: False once its task or its job has ended.

        A task without output needs it, too: what says that it was done is the same as for any other.
        """
        if _attempt(attempt).state not in ("open", "unknown"):
            return False
        won = protocol.get_manifest(attempt.store, attempt.job, attempt.task)
        return won is None and protocol.plan_head(attempt.store, attempt.job) is not None

    def commit_task(self, attempt: TaskAttempt) -> bool:
        """Let the attempt be the one of its task that counts, and return True.

        False: another one was first, and this one's output is removed.

        All of its files must be closed. Nothing becomes visible (but with rename_v2). If it raises, the attempt may count or not: call it
        again, or abort_task, which removes nothing that counts.
        """
        if _attempt(attempt).state in ("committed", "lost"):
            return attempt.state == "committed"
        if attempt.state == "aborted":
            raise UsageError(f"attempt {attempt.id} of task {attempt.task} is aborted: it cannot be committed. Set up another attempt.")
        with with_state("Call again: the attempt is not lost."):
            done = attempt.finish()
            if protocol.plan_head(attempt.store, attempt.job) is None:
                won = self._came_first(attempt)
            else:
                attempt.state = "unknown"
                attempt.by.commit_task(attempt.store, attempt.job, done)
                won = protocol.put_manifest(attempt.store, attempt.job, done)
            if not won:
                attempt.discard()
            attempt.state = "committed" if won else "lost"
        return won

    def _came_first(self, attempt: TaskAttempt) -> bool:
        """Whether an attempt without an answer counts, whose job is committed by now. QuireError if no attempt can any more."""
        outcome = self._read().outcome(attempt.job)
        if attempt.state != "unknown" or not isinstance(outcome, Commit):
            raise self._over(attempt.job)
        return any(task.attempt == attempt.id for task in outcome.tasks)

    def abort_task(self, attempt: TaskAttempt) -> None:
        """Remove what the attempt has written. Nothing happens if it was removed before.

        RefusedError if it is committed. Where commit_task got no answer, only what provably does not count is removed; the rest goes with
        the end of the job.
        """
        if _attempt(attempt).state == "committed":
            raise RefusedError(f"attempt {attempt.id} of task {attempt.task} is committed: abort_job gives up all of its job.")
        if attempt.state == "unknown":
            won = protocol.get_manifest(attempt.store, attempt.job, attempt.task)
            if won is None or won.attempt == attempt.id:
                return
        if attempt.state in ("open", "unknown"):
            attempt.discard()
            attempt.state = "aborted"

    def recover_task(self, job: Job, task: int) -> bool:
        """Whether an attempt of the task is committed already, by whatever process, so that the task need not run again."""
        whole(task, "task", 0, max(_job(job).tasks - 1, 0))
        if protocol.get_manifest(self._store, job.id, task) is not None:
            return True
        log = self._read()
        outcome = log.outcome(job.id)
        return isinstance(outcome, Commit) and any(done.task == task for done in log.in_effect(outcome))


def _job(job: object) -> Job:
    """UsageError for what is not a job."""
    if not isinstance(job, Job):
        with about("job"):
            raise UsageError(f"job={quoted(job)} is not a job of this committer. Pass what setup_job, or job(id), has returned.")
    return job


def _attempt(attempt: object) -> TaskAttempt:
    """UsageError for what is not an attempt."""
    if not isinstance(attempt, TaskAttempt):
        with about("attempt"):
            raise UsageError(f"attempt={quoted(attempt)} is not an attempt of a task. Pass what setup_task has returned.")
    return attempt


def _plan(store: Store, id: str) -> PlanHead | None:
    """The plan of a job that setup_job has begun; None: there is none, or the job is over and cleaned."""
    head = protocol.plan_head(store, id)
    if head is None or head.verb != WRITE:
        return None
    if not 1 <= head.tasks <= MOST:
        raise FormatError(f"the plan of job {id} in {store.url} names {head.tasks:,} tasks: it is damaged or forged. Look who wrote it.")
    return head
