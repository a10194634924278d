"""Faults: what is planted in a job, and which damage is then counted. A fault is a small class: how it is injected, and which counts it
brings.

Each says by `happened` whether it really came about: one that did not says nothing about a committer, and counts for none.
"""

from __future__ import annotations

import signal
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from types import MappingProxyType
from typing import Any, ClassVar

from quire.committers.lab.bench import Bench, BenchJob, BenchRun
from quire.committers.lab.matrix import Found
from quire.committers.lab.processes import PATIENCE, Asleep, Ended, ancestor, members, process, send, wait_for
from quire.committers.lab.tested import VISIBLE
from quire.committers.lab.watch import Watcher
from quire.errors import QuireError, UsageError, about, choose

__all__ = ["FAULTS", "Fault", "Found", "NotHit", "chosen"]

OPEN = "gate"
GATE = ("wait=gate",)
VICTIM = 3  # the task that it happens to, where three others are done by then


class NotHit(QuireError):
    """The fault did not come about: nothing is said of the committer."""


class Fault(ABC):
    """One of them. `guarantee` is the one that it is about, `where` the kind of driver that it needs."""

    name: ClassVar[str]
    about: ClassVar[str]
    guarantee: ClassVar[str]
    where: ClassVar[str] = "local"

    @abstractmethod
    def run(self, bench: Bench) -> Found:
        """Do it, on a destination of its own."""


class Nothing(Fault):
    """Nothing is planted: what is visible while the last task has not ended, and how the rest comes."""

    name, about, guarantee = "none", "no fault; one task is held until the others are committed", "hidden"

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(disturb={VICTIM: GATE})
        with Watcher(run.place, bench.committer.logged) as seen:
            run.start(driver, job)
            run.wait_all_but_one(driver)
            early = len(run.place.visible())
            run.open(OPEN)
            said = run.end(driver)
        return _whole(run, job, said, early=early, partial=seen.partial(job.files), partial_log=_log(seen, job.files))


class Window(Fault):
    """Nothing is planted, with more and more files: how long readers see a part of them."""

    about, guarantee = "no fault; how long readers see a part", "visible"

    def __init__(self, files: int) -> None:
        self.files = files
        self.name = f"window_{files}"  # type: ignore[misc]  # there is one for each number

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(files=self.files, rows=10)
        with Watcher(run.place, bench.committer.logged) as seen:
            run.start(driver, job)
            said = run.end(driver)
        partial, logged = seen.partial(job.files), _log(seen, job.files)
        windows = {"window_ms": seen.window(job.files), "window_log_ms": seen.window_log(job.files)}
        return replace(_whole(run, job, said, partial=partial, partial_log=logged, **windows), remains=None)


class Retried(Fault):
    """The first attempt of a task ends in the middle of its rows; the second one writes other names."""

    guarantee = "one_copy"
    word: ClassVar[str]

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(disturb={VICTIM: (self.word,)}, alone=True, vary=True)
        run.start(driver, job)
        said = run.end(driver)
        victim = job.files * VICTIM // 4 if bench.committer.pipeline else VICTIM
        if run.began(victim, 1) is None:
            raise NotHit(f"no second attempt was started: {said}")
        return _whole(run, job, said)


class TaskRaises(Retried):
    name, about, word = "task_raises", "a task's first attempt raises in the middle", "raise"


class WorkerDies(Retried):
    name, about, word = "worker_dies", "the Python worker of a task's first attempt dies in the middle", "exit"


class TaskFails(Fault):
    """A task fails at each attempt, after the others are committed."""

    name, about, guarantee = "task_fails", "a task fails at every attempt; the other three are committed", "clean"

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(disturb={VICTIM: (*GATE, "fail")}, alone=False)
        run.start(driver, job)
        run.wait_all_but_one(driver)
        early = len(run.place.visible())
        run.open(OPEN)
        said = run.end(driver)
        if said is None:
            raise NotHit("the job did not fail")
        after = run.count()
        return Found(files=job.files, early=early, left=after.files, remains=after.remains, said=said)


class ExecutorInTask(Fault):
    """The executor of a task's first attempt is killed before the attempt has ended."""

    name, about, guarantee, where = "executor_in_task", "an executor is killed while it works on a task", "one_copy", "cluster"

    def run(self, bench: Bench) -> Found:
        run, driver, job = (
            BenchRun(bench, self.name),
            bench.driver(self.where),
            BenchJob(disturb={0: ("first=gate",)}, alone=True, vary=True),
        )
        run.start(driver, job)
        _kill(_executor(run.wait_waiting()))
        run.open(OPEN)
        said = run.end(driver)
        if run.began(0, 1) is None:
            raise NotHit(f"no second attempt was started: {said}")
        return _whole(run, job, said)


class ExecutorInCommit(Fault):
    """The executor of a task's first attempt is stopped at the first sign of commitTask, then killed."""

    name, about, guarantee, where = "executor_in_commit", "an executor is killed in commitTask", "one_copy", "cluster"

    def run(self, bench: Bench) -> Found:
        run, driver, sign = BenchRun(bench, self.name), bench.driver(self.where), bench.committer.sign
        if sign is None:
            raise NotHit("nothing in the destination shows when a task is committed")
        # All other tasks wait, so that the first sign is this task's.
        others = {1: GATE, 2: GATE, 3: GATE}
        job = BenchJob(files=400, rows=10, disturb={0: ("first=hold",), **others}, vary=True)
        run.start(driver, job)
        executor = _executor(run.wait_waiting())

        def stop() -> int:
            over.callback(Asleep(executor).forget)
            return len(run.place.visible())

        with ExitStack() as over, Watcher(run.place, sign=sign, then=stop) as seen:
            run.open("hold")
            try:
                wait_for(seen.met.is_set, PATIENCE, "a sign that the task is being committed")
                partial: int | None = seen.caught
            except QuireError:
                raise NotHit("no sign of commitTask was seen") from None
            finally:
                send(executor, signal.SIGKILL)
                run.open(OPEN)
        said = run.end(driver)
        found = _whole(run, job, said)
        found.partial = partial if sign == VISIBLE else None
        return found


class Speculation(Fault):
    """A task's first attempt waits until Spark has started a second one on another host; then both go on."""

    name, about, guarantee, where = "speculation", "a slow task runs twice at once, on two hosts", "one_copy", "speculation"

    def run(self, bench: Bench) -> Found:
        run, driver = BenchRun(bench, self.name), bench.driver(self.where)
        victim = 40 * VICTIM // 4 if bench.committer.pipeline else VICTIM
        job = BenchJob(disturb={VICTIM: (f"first=began-{victim}-1",)}, alone=True, vary=True)
        run.start(driver, job)
        try:
            wait_for(lambda: run.began(victim, 1), 60, "a second attempt")
        except QuireError:
            (run.marks / f"began-{victim}-1").touch()  # the first one goes on alone
            run.end(driver)
            raise NotHit("Spark has started no second attempt: with two executors on two hosts it should") from None
        return _whole(run, job, run.end(driver))


class DriverInJob(Fault):
    """The driver is killed with all its processes when three of four tasks are committed; then the job is run again, appending."""

    name, about, guarantee = "driver_in_job", "the driver is killed in mid-job, and the job run again", "restart"

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(disturb={VICTIM: GATE})
        run.start(driver, job)
        run.wait_all_but_one(driver)
        bench.kill("local")
        dead = run.count()
        found = _again(run, bench, BenchJob())
        found.left, found.early, found.remains = dead.files, dead.files, dead.remains
        return found


class DriverInCommit(Fault):
    """The driver is stopped when the first file is visible, then killed with all its processes; then the job is run again, appending."""

    name, about, guarantee = "driver_in_commit", "the driver is stopped at the first visible file, killed, and the job run again", "restart"

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(files=800, rows=50)

        def stop() -> tuple[int, int | None]:
            driver.freeze()
            return len(run.place.visible()), run.place.logged() if bench.committer.logged else None

        with Watcher(run.place, sign=VISIBLE, then=stop) as seen:
            run.start(driver, job)
            wait_for(lambda: seen.met.is_set() or driver.popen.poll() is not None or not driver.said.empty(), 240, "a file is visible")
        if seen.caught is None:
            said = run.end(driver)
            raise NotHit(f"no file was visible: {said}")
        bench.kill("local")
        dead = run.count()
        found = _again(run, bench, job)
        found.partial, found.partial_log = seen.caught
        found.left, found.remains = dead.files, dead.remains
        return found


class ZombieRestart(Fault):
    """The driver falls asleep in mid-job and is thought dead; the job is run again, appending; then the first driver wakes up."""

    name, about, guarantee = "zombie_restart", "the driver is only asleep while the job is run again, and goes on afterwards", "restart"

    def run(self, bench: Bench) -> Found:
        run, driver, job = BenchRun(bench, self.name), bench.driver(), BenchJob(disturb={VICTIM: GATE})
        run.start(driver, job)
        run.wait_all_but_one(driver)
        driver.freeze()
        with bench.beside() as other:
            run.start(other, BenchJob())
            second = run.end(other)
        driver.wake()
        run.open(OPEN)
        try:
            first = run.end(driver)
        except Ended as e:
            first = str(e)
        return _two(run, [BenchJob()] if None in (first, second) else [], {"the first driver": first, "the second": second})


class TwoJobs(Fault):
    """While one job is in its middle, another one appends to the same destination, and ends."""

    name, about, guarantee = "two_jobs", "another job appends to the same destination while one is in its middle", "concurrent"

    def run(self, bench: Bench) -> Found:
        run, driver = BenchRun(bench, self.name), bench.driver()
        one, two = BenchJob(disturb={VICTIM: GATE}), BenchJob(first=1_000_000)
        run.start(driver, one)
        run.wait_all_but_one(driver)
        run.start(driver, two)
        second = run.end(driver)
        run.open(OPEN)
        first = run.end(driver)
        well = [job for job, said in ((one, first), (two, second)) if said is None]
        return _two(run, well, {"the first job": first, "the second": second})


# ------------------------------------------------------------------------------------------------------------------------- parts
def _log(seen: Watcher, files: int) -> int | None:
    return seen.partial_log(files) if seen.logged else None


def _whole(run: BenchRun, job: BenchJob, said: str | None, **more: Any) -> Found:
    """The rows and files after a job that should have succeeded."""
    return Found(**asdict(run.count(*([job] if said is None else []))), said=said or "", **more)


def _two(run: BenchRun, well: Iterable[BenchJob], said: Mapping[str, str | None]) -> Found:
    """The same after two jobs, of which those in `well` said that all is well."""
    words = "; ".join(f"{who}: {text}" for who, text in said.items() if text)
    return Found(**asdict(run.count(*well)), jobs=2, said=words)


def _again(run: BenchRun, bench: Bench, job: BenchJob) -> Found:
    """Run the job once more, as somebody does who finds it dead."""
    driver = bench.driver()
    run.start(driver, job)
    said = run.end(driver)
    return _whole(run, job, said, jobs=2)


def _executor(worker: int) -> int:
    found = ancestor(worker, "executor")
    if found is None:
        raise NotHit("the task's Python worker has no executor above it")
    return found


def _kill(executor: int) -> None:
    """With the Python below it: a worker that outlives its executor may end its task, if quire does the work."""
    found = process(executor)
    below = [p.pid for p in members(found.session) if ancestor(p.parent, "executor") == executor] if found else []
    for pid in (executor, *below):
        send(pid, signal.SIGKILL)


SIZES = (10, 100, 1000)
_ALL: tuple[Fault, ...] = (
    Nothing(), TaskRaises(), WorkerDies(), TaskFails(), *(Window(files) for files in SIZES), TwoJobs(), ZombieRestart(), DriverInJob(),
    DriverInCommit(), ExecutorInTask(), ExecutorInCommit(), Speculation(),
)  # fmt: skip
FAULTS: Mapping[str, Fault] = MappingProxyType({one.name: one for one in _ALL})


def chosen(faults: Iterable[str | Fault] | str | Fault | None) -> list[Fault]:
    """The faults that a call means, in the lab's own order; None: all."""
    if faults is None:
        return list(_ALL)
    given = [faults] if isinstance(faults, str | Fault) else list(faults)
    with about("faults"):
        if not given:
            raise UsageError(f"the lab was given no fault. Name some of {', '.join(FAULTS)}.")
        for one in given:
            if not isinstance(one, Fault):
                choose(one, FAULTS, "fault")
    found = [one if isinstance(one, Fault) else FAULTS[one] for one in given]
    order = list(FAULTS)
    return sorted({one.name: one for one in found}.values(), key=lambda one: order.index(one.name) if one.name in order else len(order))
