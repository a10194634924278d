"""`quire run`: several loops in one process, with one Spark session and a thread a job; each goes its own way.

The main thread alone hears signals. It runs no job, so it answers at once: SIGHUP reads the file again, SIGTERM and SIGINT let each job
end its commit under way, and a second one interrupts them.
"""

from __future__ import annotations

import math
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import click

import quire
from quire.cli.jobs import Job, Jobs, listed, read
from quire.cli.show import AS_JSON, QUIET, show, spark_of
from quire.errors import Interrupted, QuireError, UsageError, printable, scrub
from quire.progress import Listener, ProgressEvent
from quire.storage import Patience

ENDS = (signal.SIGTERM, signal.SIGINT)
ENDING = 15.0  # seconds in which jobs that are interrupted may end
LOOK = 0.5  # seconds: a signal that another thread was sent, or that came just before a wait, does not end that wait
# One pool in which jobs share the cores, where Spark's default lets the one that came first have all of them.
FAIR = '<allocations><pool name="default"><schedulingMode>FAIR</schedulingMode></pool></allocations>'


Heard: TypeAlias = "queue.SimpleQueue[Running | int]"  # jobs that have ended, and signals


@dataclass(eq=False)
class Running(Listener):
    """A job and its thread. Once `stop` is set it ends after its commit, and `then` begins in its place; None: nothing does."""

    job: Job
    supervisor: Supervisor = field(repr=False)
    stop: threading.Event = field(default_factory=threading.Event)
    then: Job | None = None
    patience: Patience | None = None  # of the errors in a row
    due: float = math.inf  # when it begins again after an error
    began: float = 0.0
    alive: bool = True
    report: quire.Report | None = None
    error: BaseException | None = None

    def __call__(self, step: ProgressEvent) -> None:
        """In the thread of the job, several times a second while it works: an interrupt ends it here."""
        if self.supervisor.interrupted.is_set():
            raise Interrupted

    def say(self, text: str, *, always: bool = True) -> None:
        """A line of the job."""
        if always or not self.supervisor.quiet:
            self.supervisor.tell(f"{self.job.name}: {text}")

    def work(self) -> None:
        """In a thread of its own. However it ends, the main thread hears of it."""
        try:
            self.report = self.job.run(spark=self.supervisor.spark, progress=self, stop=self.stop)
        except BaseException as e:
            self.error = e
        finally:
            self.supervisor.heard.put(self)

    @property
    def code(self) -> int:
        """As a command of its own would end."""
        return 0 if self.error is None else getattr(self.error, "exit_code", QuireError.exit_code)

    def as_dict(self) -> dict[str, Any]:
        """How it has ended: its exit code, and the report of its last run or its error."""
        why = None if self.error is None else said(self.error)
        return {"exit_code": self.code, "error": why, "report": self.report.as_dict() if self.report else None}


def said(e: BaseException) -> str:
    """An error in one line, as a command says it."""
    return scrub(str(e), 1000) if isinstance(e, QuireError | Interrupted) else f"{type(e).__name__}: {scrub(str(e), 500)}"


class Supervisor:
    """The jobs of a file, each in a thread; `tell` is called with each line that is for people, `quiet`: but not for those of good runs."""

    def __init__(self, file: Path, spark: Any, tell: Callable[[str], object], *, quiet: bool = False, heard: Heard | None = None) -> None:
        self.file, self.spark, self.tell, self.quiet = file, spark, tell, quiet
        self.heard: Heard = heard or queue.SimpleQueue()  # whose `put` a signal's handler may call
        self.interrupted = threading.Event()
        self.running = dict[str, Running]()
        self._ending = False

    def run(self, jobs: Jobs) -> int:
        """Run the jobs until all have ended. The exit code: 0, that of the first job in the file that has failed, or 130."""
        with _signals(self.heard, *ENDS, signal.SIGHUP):
            for job in jobs.jobs.values():
                self._begin(job)
            while any(one.alive or one.due < math.inf for one in self.running.values()):
                wait = min((one.due for one in self.running.values()), default=math.inf) - time.monotonic()
                try:
                    found = self.heard.get(timeout=min(max(0.0, wait), LOOK))
                except queue.Empty:
                    self._begin_due()
                    continue
                if isinstance(found, Running):
                    self._ended(found)
                elif found == signal.SIGHUP:
                    self._reload(jobs.spark)
                elif self._ending:
                    return self._interrupt()
                else:
                    self._end()
        return next((one.code for one in self.running.values() if one.error is not None), 0)

    def _begin(self, job: Job, patience: Patience | None = None) -> None:
        self.running[job.name] = one = Running(job, self, patience=patience, began=time.monotonic())
        threading.Thread(target=one.work, name=f"quire-job-{job.name}", daemon=True).start()

    def _begin_due(self) -> None:
        for one in [one for one in self.running.values() if one.due <= time.monotonic()]:
            self._begin(one.job, one.patience)

    def _ended(self, one: Running) -> None:
        """A thread has ended: its job is told of, and what is to come after it begins."""
        one.alive = False
        if one.error is None:
            one.say("it has ended", always=False)
        if one.stop.is_set() and not self._ending:  # by a reload
            if one.error is not None:
                one.say(f"error: {said(one.error)}")
            del self.running[one.job.name]
            if one.then is not None:
                self._begin(one.then)
        elif one.error is not None:
            self._failed(one)

    def _failed(self, one: Running) -> None:
        again = ""
        if one.job.restart is not None and not self._ending:
            lasted = time.monotonic() - one.began
            if one.patience is None or lasted > one.job.restart:
                one.patience = Patience(lasts=math.inf, longest=one.job.restart)
            pausing = one.patience.pausing() or 0.0
            one.due, again = time.monotonic() + pausing, f" It begins again in {pausing:.1f} s."
        others = " The other jobs go on." if not again and any(other.alive for other in self.running.values()) else ""
        one.say(f"error: {said(one.error or Interrupted())}{again}{others}")

    def _reload(self, spark: Mapping[str, Any]) -> None:
        if self._ending:
            return
        try:
            found = read(self.file)
        except QuireError as e:
            self.tell(f"error: {said(e)} The jobs of before go on.")
            return
        counts = dict.fromkeys(("new", "changed", "begun again", "removed", "as before"), 0)
        for name, one in list(self.running.items()):
            job = found.jobs.get(name)
            same = job is not None and job.key == one.job.key
            if one.alive and (one.stop.is_set() or not same):
                one.stop.set()
                one.then = job
            elif not one.alive and (not same or one.error is not None):
                del self.running[name]
                if job is not None:
                    self._begin(job)
            counts["removed" if job is None else "changed" if not same else "begun again" if one.error is not None else "as before"] += 1
        for name, job in found.jobs.items():
            if name not in self.running:
                self._begin(job)
                counts["new"] += 1
        self.tell(f"{self.file} was read again: {', '.join(f'{n} {word}' for word, n in counts.items() if n)}.")
        if found.spark != spark:
            self.tell(f"{self.file}: the settings of [spark] have changed. They count from the next start on.")

    def _end(self) -> None:
        self._ending = True
        self.tell("ending: each job ends its commit under way. A second signal interrupts them.")
        for one in self.running.values():
            one.due = math.inf
            one.stop.set()

    def _interrupt(self) -> int:
        """End what runs at the next look at its progress; what is committed is safe, and the next start goes on with the rest."""
        self.interrupted.set()
        until = time.monotonic() + ENDING
        while any(one.alive for one in self.running.values()) and (left := until - time.monotonic()) > 0:
            try:
                found = self.heard.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(found, Running):
                self._ended(found)
        return Interrupted.exit_code


@contextmanager
def _signals(heard: Heard, *which: signal.Signals) -> Iterator[None]:
    before = {s: signal.signal(s, lambda number, _: heard.put(number)) for s in which}
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


@contextmanager
def _session(conf: Mapping[str, Any]) -> Iterator[Any]:
    """The session that all jobs share; on a Spark of our own they share its cores, too."""
    settings = dict(conf)
    master = settings.pop("master", None) or settings.pop("spark.master", None)
    with tempfile.TemporaryDirectory(prefix="quire-run-") as folder:
        if not str(master or "").startswith("sc://") and "spark.remote" not in settings:
            fair = Path(folder) / "fair.xml"
            fair.write_text(FAIR)
            settings = {"spark.scheduler.mode": "FAIR", "spark.scheduler.allocation.file": fair.as_uri(), **settings}
        with spark_of(master, settings) as spark:
            yield spark


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Check the file, and run nothing.")
@AS_JSON
@QUIET
def run(file: Path, check: bool, as_json: bool, quiet: bool) -> None:
    """Run the loops of FILE, a jobs.toml, in one process: consolidate, process and load, each independent of the others.

    SIGHUP reads FILE again; SIGTERM and Ctrl-C end each job after its commit under way, and a second one interrupts. Each table [jobs.NAME]
    says call, source, dest and the keywords that the call has in Python. The exit code is 0, or that of the first job that has failed.
    """
    heard: Heard = queue.SimpleQueue()
    with _signals(heard, signal.SIGHUP):  # it would end the process while Spark starts, which takes a while
        _run(file, check, as_json, quiet, heard)


def _run(file: Path, check: bool, as_json: bool, quiet: bool, heard: Heard) -> None:
    jobs = read(file)
    if check:
        if missing := next((job.missing for job in jobs.jobs.values() if job.missing), ""):
            raise UsageError(missing)
        if as_json:
            show({"jobs": {job.name: job.call for job in jobs.jobs.values()}}, True)
        else:
            click.echo(printable(f"{file}: no mistake in {listed(jobs.jobs.values())}"))
        return

    def tell(text: str) -> None:
        click.echo(printable(text), err=True)

    with _session(jobs.spark) as spark:
        supervisor = Supervisor(file, spark, tell, quiet=quiet, heard=heard)
        tell(f"running {listed(jobs.jobs.values())}")
        code = supervisor.run(jobs)
    if as_json:
        show({"exit_code": code, "jobs": {name: one.as_dict() for name, one in supervisor.running.items()}}, True)
    if code:
        sys.exit(code)
