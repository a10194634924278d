"""The main job: gather a tree of small files into few large ones, each byte once.

recover → (an open job of this intent | list → take out what is done → plan → freeze) → tasks → commit → publish → clean
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Unpack

from quire import display, jobs, options
from quire.attempt import Work
from quire.commit import names, protocol
from quire.commit.entries import Commit, PlanHead, Task
from quire.commit.log import Log
from quire.coverage import segments
from quire.errors import RefusedError, UsageError, printable
from quire.options import Options, Settings, seconds, shows_settings, whole
from quire.planning import pack
from quire.planning import plan as planning
from quire.planning.listing import EXAMPLES
from quire.planning.skew import SkewResult
from quire.progress import Progress
from quire.report import Report
from quire.runner import InProcess, OnSpark, Runner
from quire.sizes import format_size
from quire.storage import Store

if TYPE_CHECKING:
    import pandas as pd  # below, it is imported where it is used: Spark's workers start without it

__all__ = ["Plan", "consolidate", "plan"]

TWICE = 2  # a call takes a path up at most this often, so it ends though a file changes for ever


# -------------------------------------------------------------------------------------------------------------------- public
@shows_settings
def consolidate(
    source: Any, dest: Any, *, spark: Any = None, every: str | float | None = None, max_runs: int | None = None, progress: bool = True,
    **settings: Unpack[Settings],
) -> Report:  # fmt: skip
    """Gather the files below `source` into large files below `dest`, and remember each of them.

    A second call gathers only what is new. A call that was killed anywhere is rolled forward or taken up by the next one.

    source       a directory's path or URL, a glob, a list of them, or of (url, options) pairs
    dest         a directory of quire's own (made if it is not there)
    spark        a SparkSession; left out: `quire.session()`
    transform    "lines" (each ended by one newline) | "raw" | "xml" | "json" (one line a document) | function(content, file)
    format       "lines" | "raw" | "parquet"; left out: what fits the transform
    compression  "none" | "gzip" | "zstd"
    target_size  bytes of a data file, "256 MiB"
    planner      "balanced" | "hash" (with `parts` and `hash_function`) | "directory"
    committer    "auto" | "rename" | "rename_v2"
    layout       "flat" | "directories": the source's directories (`dt=2026-11-21/`) stay
    include, exclude   globs; one without a slash is about the file's name
    hidden, follow_links   take names that start with _ or . too; follow symbolic links
    min_age      leave files that changed within this time ("5 min") for another run
    on_error     "quarantine" | "fail" (the same as max_failures=0)
    on_change    "error" (a file gathered before in another version is reported) | "ignore"
    max_failures give up, with nothing committed, if more files have to be set aside
    max_file_size  files above it are set aside where the transform has to hold them whole, "256 MiB"
    keep_messages  keep the text of what a function raises (it may hold data); its class and place are kept anyway
    version      names the edition of a function instead of a hash of its source
    append       allow a destination that holds other files
    every, max_runs   again and again, "1 min" apart, until a signal (which lets the commit under way end) or `max_runs`
    storage_options, source_options, dest_options   for the stores

    Returns the report (of the last run). Raises UsageError, TooManyFailures or another QuireError, each in one line.
    """
    options.check_names(settings)
    made = options.build(source, dest, **settings)
    runner = _runner(spark, made)
    bars = Progress(progress)
    if every is None:
        if max_runs is not None:
            raise UsageError("max_runs goes with every=: how often to run, and how far apart.")
        return _gather(made, runner, bars)
    pause = seconds(every, "every")
    runs = whole(max_runs, "max_runs", 1) if max_runs is not None else None
    with _until_signal() as stopped:
        while True:
            report = _gather(made, runner, bars)
            bars.say(f"{report.files:,} files gathered, {report.set_aside_count:,} set aside; version {report.version}")
            runs = None if runs is None else runs - 1
            if runs == 0 or stopped.wait(pause):
                return report


@shows_settings
def plan(source: Any, dest: Any, *, spark: Any = None, progress: bool = True, **settings: Unpack[Settings]) -> Plan:
    """Look before you run: what `consolidate` with the same arguments would do. Nothing that a later run would pick up is left."""
    options.check_names(settings)
    made = options.build(source, dest, **settings)
    runner = _runner(spark, made)
    store = made.store()
    _check_destination(store, made)
    log = Log(store).refresh()
    _check_words(log, made)
    base = log.settled_version()
    found = planning.make(runner, store, log, base, _job(made, base), made.wanted(), Progress(progress))
    return Plan(made, runner, found)


class Plan:
    """What would be done: `.tasks` (a DataFrame), `.files()`, `.bytes`, `.skew()`, `.estimate`, and `.run()` to do it."""

    def __init__(self, made: Options, runner: Runner, planned: planning.Planned) -> None:
        self._options, self._runner, self._planned = made, runner, planned
        self._discarded = False

    @property
    def tasks(self) -> pd.DataFrame:
        """One row a task: task, directory, part, files, bytes."""
        import pandas as pd

        rows = [(i, t.folder, t.part, t.files, t.bytes) for i, t in enumerate(self._planned.tasks)]
        return pd.DataFrame(rows, columns=["task", "directory", "part", "files", "bytes"])

    def files(self, limit: int | None = None) -> pd.DataFrame:
        """The files to read in their order: task, path, start, length, size, modified (UTC); at most `limit` rows."""
        import pandas as pd

        tables, left = [], limit
        store = self._options.store()
        for i, task in enumerate(self._planned.tasks):
            for rows in pack.read_rows(store, task.runs, ["path", "start", "length", "size", "modified"]):
                part = rows
                if left is not None:
                    part = rows.slice(0, left)
                    left -= part.num_rows
                found = part.to_pandas()
                found.insert(0, "task", i)
                tables.append(found)
                if left == 0:
                    break
            if left == 0:
                break
        columns = ["task", "path", "start", "length", "size", "modified"]
        files = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
        return files.assign(modified=pd.to_datetime(files["modified"], utc=True))

    @property
    def bytes(self) -> int:
        """To be read."""
        return self._planned.listed.split_bytes

    @property
    def estimate(self) -> int:
        """Bytes that will be written, as guessed from a few files."""
        return int(self.bytes * self._planned.ratio)

    def skew(self) -> SkewResult:
        """Whether the tasks are even: hash plans by files within each directory, others by bytes."""
        return self._planned.skew()

    def run(self, progress: bool = True) -> Report:
        """Do it. If the destination has moved on meanwhile, what is left is planned anew."""
        return _gather(self._options, self._runner, Progress(progress), None if self._discarded else self._planned)

    def discard(self) -> None:
        """Delete what looking has written, if it was not run; `run` then plans anew."""
        self._discarded = True
        store = self._options.store()
        if protocol.plan_head(store, self._planned.job) is None:
            planning.discard(store, self._planned)

    def _facts(self) -> dict[str, object]:
        listed = self._planned.listed
        rows: dict[str, object] = {
            "files listed": f"{listed.files:,}",
            "already done": f"{listed.done:,}",
            "to gather": f"{listed.new:,} ({format_size(self.bytes)})",
            "tasks": f"{len(self._planned.tasks):,}",
            "estimated output": format_size(self.estimate),
            "skew": self.skew().verdict,
        }
        if listed.changed:
            rows["rewritten since gathered"] = f"{listed.changed:,}"
        if listed.young:
            rows["too young (min_age)"] = f"{listed.young:,}"
        return rows

    def as_dict(self) -> dict[str, Any]:
        """All of it but the files, as JSON takes it."""
        listed = self._planned.listed
        return {
            "dest": self._options.dest, "listed": listed.files, "done": listed.done, "files": listed.new, "bytes": self.bytes,
            "estimate": self.estimate, "changed": listed.changed, "young": listed.young, "links": listed.links,
            "troubles": [list(t) for t in listed.troubles], "skew": self.skew().as_dict(), "tasks": self.tasks.to_dict("records"),
        }  # fmt: skip

    def __str__(self) -> str:
        note = "\n".join(printable(f"{path}: {reason}") for path, reason in self._planned.listed.troubles[:5])
        return display.lines(f"plan for {self._options.dest}", self._facts(), note)

    def __repr__(self) -> str:
        return f"Plan({self._options.dest!r}, files={self._planned.listed.new:,}, bytes={self.bytes:,}, tasks={len(self._planned.tasks)})"

    def _repr_html_(self) -> str:
        return display.facts(f"plan for {self._options.dest}", self._facts())


# ----------------------------------------------------------------------------------------------------------------- the rounds
def _gather(made: Options, runner: Runner, bars: Progress, planned: planning.Planned | None = None) -> Report:
    """Rounds until nothing is left; each round ends a job, ours or another's."""
    started, store = time.monotonic(), made.store()
    _check_destination(store, made)
    call = _Call(made, bars)
    while True:
        log = protocol.recover(store)
        _check_words(log, made)
        head = _open_job(store, log, made, call)
        fresh = head is None
        if head is None:
            base = log.tip
            if not log.settled():
                continue
            if planned is None:
                planned = planning.make(runner, store, log, base, _job(made, base), made.wanted(call.tired()), bars)
            call.saw(planned)
            if not planned.tasks:
                break
            head = _freeze(store, made, planned)
            planned = None
        if head is None or log.refresh().outcome(head.job) is not None:
            protocol.clean(log.refresh(), head.job) if head else None
            planned = None
            continue
        work = Work(made.dest, made.dest_options, made.roots, head, made.convert)
        jobs.run(runner, log, work, bars, made.max_failures)
        if call.ended(log.refresh(), head.job, store) and fresh:
            break
    return call.report(log, time.monotonic() - started)


def _open_job(store: Store, log: Log, made: Options, call: _Call) -> PlanHead | None:
    """The open job of this intent; those of others are named to the user."""
    ours = None
    for head in protocol.open_jobs(store, log):
        if head.intent == made.intent:
            ours = ours or head
        else:
            call.other(head.job)
    return ours


def _freeze(store: Store, made: Options, planned: planning.Planned) -> PlanHead | None:
    head = PlanHead(
        job=planned.job, base=planned.base, plan=planned.plan, tasks=len(planned.tasks), committer=made.committer, words=made.words,
        intent=made.intent,
    )  # fmt: skip
    if store.stat(names.plan_parquet(planned.job, planned.plan)) is None:
        return None  # it was discarded, or another driver has ended the job and cleaned
    protocol.freeze(store, head)
    there = protocol.plan_head(store, planned.job)
    if there is not None and store.stat(names.plan_parquet(there.job, there.plan)) is None:
        return None  # the job ended between the two looks
    return there


class _Call:
    """What this call has seen so far. It decides only when the call ends; what is done stands in the log."""

    def __init__(self, made: Options, bars: Progress) -> None:
        self.made, self.bars = made, bars
        self.taken_up = Counter[str]()  # paths that were left out, or replaced in quarantine
        self.left: dict[str, str] = {}
        self.jobs: list[str] = []
        self.others: list[str] = []
        self.listed: planning.Planned | None = None
        self.skew: SkewResult | None = None
        self.files = self.bytes = self.written = self.data_files = self.bad = 0
        self.bad_examples: list[tuple[str, str]] = []

    def tired(self) -> frozenset[str]:
        """The paths that this call does not take up again."""
        return frozenset(path for path, n in self.taken_up.items() if n >= TWICE)

    def saw(self, planned: planning.Planned) -> None:
        """A listing."""
        self.listed = planned
        if planned.tasks:
            self.skew = planned.skew()

    def other(self, job: str) -> None:
        """An open job of another intent."""
        if job not in self.others:
            self.others.append(job)
            self.bars.say(
                f"job {job} of another call is unfinished; give it up with recover(dest, abort={job!r}) if nobody goes on with it"
            )

    def ended(self, log: Log, job: str, store: Store) -> bool:
        """Count a job that is over; True: all that was listed for it is settled."""
        outcome = log.outcome(job)
        if outcome is None:
            return False
        left = list(outcome.left)
        if isinstance(outcome, Commit):
            self.jobs.append(job)
            tasks = log.in_effect(outcome)
            lost = len(tasks) < len(outcome.tasks)
            for task in tasks:
                left += task.left
                self._gathered_after_all(task, store)
                self.files += task.files_in
                self.bytes += task.bytes_in
                self.bad += task.bad
                self.data_files += len(task.files)
                self.written += sum(file.size for file in task.files)
                self.taken_up.update({u.path for u in task.uncovers})
                if task.bad and len(self.bad_examples) < EXAMPLES and task.segment:
                    rows = segments.read(store, task.segment, ["path", "state", "reason"]).to_pylist()
                    self.bad_examples += [(r["path"], r["reason"]) for r in rows if r["state"] == "bad"]
        self.taken_up.update({item.path for item in left})
        self.left.update({item.path: item.why for item in left})
        return isinstance(outcome, Commit) and not left and not outcome.dropped and not lost

    def _gathered_after_all(self, task: Task, store: Store) -> None:
        """Take what was left out before, and is in a later task's segment, from the list of what is left out."""
        before = [path for path in self.left if task.first <= path <= task.last]
        if before and task.segment:
            for path in segments.read(store, task.segment, ["path"], min(before), max(before)).column("path").to_pylist():
                self.left.pop(path, None)

    def report(self, log: Log, took: float) -> Report:
        """For the user."""
        made, listed = self.made, self.listed.listed if self.listed else None
        changed: list[tuple[str, str]] = []
        count = 0
        troubles: list[tuple[str, str]] = []
        if listed is not None:
            troubles = list(listed.troubles)
            if made.on_change == "error":
                why = "rewritten since it was gathered: the old content stays, the new one was not read"
                changed = [(path, why) for path in listed.changed_examples]
                count = listed.changed
        return Report(
            source=", ".join(r.url for r in made.roots), dest=made.dest, files=self.files, bytes=self.bytes, written=self.written,
            data_files=self.data_files, set_aside=(*self.bad_examples[:EXAMPLES], *changed, *troubles),
            set_aside_count=self.bad + count + len(troubles),
            left_out=tuple(self.left.items()), done=listed.done if listed else 0,
            young=listed.young if listed else 0, links=listed.links if listed else 0, jobs=tuple(self.jobs), version=log.tip,
            seconds=took, skew=self.skew, others=tuple(self.others),
        )  # fmt: skip


# -------------------------------------------------------------------------------------------------------------------- helpers
def _runner(spark: Any, made: Options) -> Runner:
    if isinstance(spark, InProcess | OnSpark):
        runner: Runner = spark
    elif not all(store.shared for store in (made.store(), *(r.store() for r in made.roots))):
        raise UsageError(
            "a memory:// store lives in one process, and Spark's workers are others. Use a directory, or spark=quire.InProcess()."
        )
    elif spark is None:
        from quire.session import session

        runner = OnSpark(session())
    elif hasattr(spark, "newSession"):
        runner = OnSpark(spark)
    else:
        raise UsageError(f"spark= takes a SparkSession, not {type(spark).__name__}. Leave it out, or pass quire.session().")
    return runner


def _job(made: Options, base: int) -> str:
    return f"{base}-{made.intent_hash}"


def _check_destination(store: Store, made: Options) -> None:
    """Refuse a destination that holds somebody else's files, or ours in another form."""
    store.check_writable()
    if not store.is_folder():
        return
    if not store.is_folder(names.STATE) and not made.append:
        for name, _ in store.peek():
            if store.is_folder(names.STATE):
                return  # another driver has just begun here
            raise RefusedError(
                f"the destination {store.url} is not empty and not quire's (it holds {name!r}): nothing was touched. "
                f"Choose another, or say append=True."
            )


def _check_words(log: Log, made: Options) -> None:
    """Refuse to mix two transforms or formats in one destination."""
    for _, commit in log.commits():
        if commit.words != made.words:
            there, ours = commit.words, made.words
            raise RefusedError(
                f"the destination {made.dest} holds transform {there.transform!r}, format {there.format!r}, compression "
                f"{there.compression!r}, layout {there.layout!r}; this call says {ours.transform!r}, {ours.format!r}, "
                f"{ours.compression!r}, {ours.layout!r}. Say the same, or choose another destination."
            )
        break


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: the run under way ends whole. A second signal interrupts at once."""
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def stop(*_: Any) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        stopped.set()

    before = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
