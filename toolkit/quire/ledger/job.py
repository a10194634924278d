"""One job that changes what a destination holds: planned from a settled version, frozen, run and committed as any other.

A call that was killed is taken up by the next one with the same arguments: the plan it had frozen is ended first. Where others
commit what a job touches, it is given up whole and planned again from what is there now.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, cast

from quire import display
from quire.arguments import format_size
from quire.commit import names, protocol
from quire.commit.committers import choice
from quire.commit.entries import CLAIM, OFFSETS, UNSAID, Commit, PlanHead, Spec
from quire.commit.held import Held
from quire.commit.log import Log
from quire.commit.retire import Superseded, superseded
from quire.coverage import checkpoint
from quire.coverage.counts import files_out
from quire.coverage.fold import fold
from quire.coverage.live import added, live
from quire.engine import job as jobs
from quire.engine.attempt import Work
from quire.engine.closers import Reduce
from quire.engine.kinds.distinct import windowed
from quire.engine.take_up import Identity, take_up, with_state
from quire.errors import AllQuarantined, FormatError, QuireError, RefusedError, UsageError, printable
from quire.formats import parquet_options
from quire.planning.pack import PlannedTask, write_head
from quire.planning.plan import discard
from quire.planning.rewriting import refuse_missing
from quire.progress import Progress
from quire.sources import partition_by, transforms
from quire.sources.files import Root
from quire.sources.kafka.records import ESCAPED, BatchFunction, Loading
from quire.sources.transforms import UserFunction, schemas, text
from quire.sources.transforms.columnar import NAMES as COLUMNAR
from quire.sources.transforms.convert import Convert
from quire.sources.transforms.processing import ProcessFunction, Processing
from quire.sources.transforms.text.reading import Reading
from quire.spark.runner import Runner
from quire.storage import Store, connect

TRIES = 20  # plans that others may thwart until this call gives up


@dataclass(frozen=True)
class Changed(display.Shown):
    """The result of a change: what left the ledger, data files removed and written instead, their bytes and records (rows or lines).

    files_out        files that a `forget` took out, gathered or quarantined; each counts once, where its first byte was
    quarantined_out  what left the quarantine: files, parts of files and single records, one each, as `Summary.quarantined` counts them.
                     A retry takes out all that it reads again; where it is still bad, it comes back as `quarantined`
    left   (path, reason) of what could not be taken: it is gone at its source, or has another version by now; `left_count` of them in
           all (of very many, only the first stand in `left`)
    known  markers of what the ledger covered before
    vain   of what was `gathered` that of which all records were quarantined once more
    """

    dest: str
    verb: str
    jobs: tuple[str, ...] = ()
    files_out: int = 0
    quarantined_out: int = 0
    gathered: int = 0
    quarantined: int = 0
    removed: int = 0
    removed_bytes: int = 0
    removed_records: int = 0
    written: int = 0
    written_bytes: int = 0
    written_records: int = 0
    carried: int = 0
    left: tuple[tuple[str, str], ...] = field(default=())
    left_count: int = 0
    known: int = 0
    vain: int = 0
    version: int = 0
    seconds: float = 0.0
    superseded: int = 0
    superseded_held: int = 0
    pins: tuple[str, ...] = ()
    exports_behind: tuple[str, ...] = ()

    @property
    def all_quarantined(self) -> bool:
        """Whether a retry has read something, and nothing of it could be processed."""
        return self.verb == "retry" and self.gathered == self.vain and self.quarantined + self.vain > 0

    def checked(self) -> Changed:
        """The report itself; AllQuarantined, which carries it, if nothing of what was read once more could be processed."""
        if not self.all_quarantined:
            return self
        dest = shlex.quote(self.dest.removeprefix("file://"))
        raise AllQuarantined(
            f"nothing that was read once more could be processed: it is still quarantined in {self.dest}. Look at: quire ledger "
            f"quarantined {dest} - and retry again when it is repaired; max_quarantined allows it.", report=self
        )  # fmt: skip

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {"jobs": ", ".join(self.jobs) or "nothing to do"}
        if self.all_quarantined:
            rows = {"ALL QUARANTINED": "nothing that was read once more could be processed"} | rows
        if self.verb == "retry":
            rows |= {"gathered now": f"{self.gathered:,}", "still quarantined": f"{self.quarantined:,}"}
        if self.verb == "mark":
            rows |= {"splits marked": f"{self.gathered:,}", "known before": f"{self.known:,}"}
        if self.left_count:
            rows["not taken"] = f"{self.left_count:,}"
        if self.verb == "forget":
            rows["files forgotten"] = f"{self.files_out:,}"
            if self.quarantined_out:
                rows["quarantined forgotten"] = f"{self.quarantined_out:,}"
        if self.removed or self.written:
            rows["data files before"] = f"{self.removed:,} ({format_size(self.removed_bytes)}, {self.removed_records:,} records)"
            rows["data files now"] = f"{self.written:,} ({format_size(self.written_bytes)}, {self.written_records:,} records)"
        if self.superseded:
            rows["superseded data files"] = str(Superseded(self.superseded, self.superseded_held, self.pins, self.exports_behind))
        return rows | {"version": self.version, "seconds": f"{self.seconds:.1f}"}

    def _note(self) -> str:
        more = [f"… {self.left_count - 5:,} more"] if self.left_count > 5 else []
        return "\n".join([*(printable(f"{path}: {why}") for path, why in self.left[:5]), *more])


@dataclass(frozen=True)
class Dest:
    """A destination to change, and with what."""

    url: str
    options: Any = field(repr=False)
    runner: Runner
    bars: Progress
    committer: str = "auto"
    max_quarantined: int | None = None
    held: Held = field(default_factory=Held, repr=False, compare=False)

    def store(self) -> Store:
        """Its store; what is tried again is told to the bars."""
        return connect(self.url, self.options, self.bars.again)

    def log(self) -> Log:
        """Its log, read to the tip: what was read before is not read again."""
        return self.held.read(self.store())


@dataclass(frozen=True)
class PlannedChange:
    """A planned change, not frozen yet."""

    tasks: list[PlannedTask]
    roots: tuple[Root, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    left_count: int = 0  # where `left` does not hold all of them
    known: int = 0  # what was done already


# Makes a plan of a settled version: (log, version, name for an object of the plan) → tasks; no tasks: nothing is to be done.
Plan = Callable[[Log, int, Callable[[str], str]], PlannedChange]


@dataclass(frozen=True)
class Change:
    """A change of a destination, and how it is made: `target` bytes a data file, with the `function` and `reduce` of the destination.

    fresh    a plan that a killed call has left is given up instead of ended, since it is older than a repair
    spec     what a destination without any commit is said to hold; left out: such a one is refused
    repeat   what of the plan others have committed meanwhile is planned again, till nothing of it is left
    reads    how text is read, as JSON; left out: as in the last run
    writes   how Parquet files are written, as JSON; left out: as the last call has said it
    evolves  how the columns of a function's rows go together with those that are there (see `columns.together`)
    """

    dest: Dest
    intent: Mapping[str, Any]
    plan: Plan
    target: int
    function: UserFunction | None = None
    fresh: bool = False
    max_file_size: int = 256 << 20
    spec: Spec | None = None
    repeat: bool = False
    reduce: Reduce | None = None
    reads: str = ""
    writes: str = ""
    evolves: str = ""

    def run(self) -> Changed:
        """Make it, to its end. Raises QuireError if others keep committing what it touches, or its tasks keep failing."""
        stays = f"What {self.intent['verb']} has committed stays, and nothing else is visible: call again to go on."
        with self.dest.bars.run(str(self.intent["verb"]), self.dest.url) as run, with_state(stays):
            run.report = found = _run(self)
            return found


def _run(change: Change) -> Changed:
    dest, intent = change.dest, change.intent
    began, store = time.monotonic(), dest.store()
    said = {**intent, "dest": dest.url, "target": change.target}
    found = Changed(dest.url, str(intent["verb"]))
    why, before, losses = "", 0, 0
    planned: PlannedChange | None = None
    tried = 0
    by, closer = choice(dest.committer, store), "shuffle" if change.reduce else ""

    def identify(log: Log) -> Identity:
        return Identity(said, _spec(log, change.spec) or UNSAID, by, closer, empty=UNSAID)

    def planning(log: Log, identity: Identity) -> tuple[PlanHead, PlannedChange] | None:
        nonlocal before, planned
        before = found.gathered  # by this call: it was not known before
        head, planned = _plan(store, log, identity, change, ended=bool(found.jobs))
        return None if head is None else (head, planned)

    def resume(log: Log, head: PlanHead) -> bool:
        if change.fresh and not tried:
            protocol.abort(log, head.job, "it was planned by a call that ended, before what it retries was repaired")
        return not change.fresh  # of a call beside this one: each goes on with its own, and one of them wins

    for tried in range(TRIES):  # noqa: B007  # `resume` looks at it
        planned = None
        taken = take_up(store, identify, planning, held=dest.held, resume=resume)
        log, head = taken.log, taken.head
        if head is None:
            return _told(found, planned, before, log, began)
        # The plan that counts may be that of another driver of the same job, which reads from the same places.
        work = Work(dest.url, dest.options, planned.roots if planned else (), head, _convert(log, head, change))
        jobs.run(dest.runner, log, work, dest.bars, dest.max_quarantined, change.reduce)
        outcome = log.refresh().outcome(head.job)
        if isinstance(outcome, Commit) and log.in_effect(outcome):
            found = _counted(found, log, outcome)
            if planned is not None and not (change.repeat and outcome.dropped):
                checkpoint.keep_up(dest.runner, dest.url, dest.options, log, dest.bars.say)
                return _told(found, planned, before, log, began)
        elif outcome is not None:
            losses += isinstance(outcome, Commit)
            jobs.check_losses(losses, head.job, dest.url)
            refuse_missing(log, outcome.left)
            gone = [f"{item.path}: {item.why}" for item in outcome.left[:1]]
            why = "; ".join(gone) or getattr(outcome, "why", "its output was lost")
    raise QuireError(f"{intent['verb']} of {dest.url} gave up after {TRIES} tries, the last reason: {why or 'others kept committing'}. "
                     f"Nothing is lost: call again.")  # fmt: skip


def not_named(url: str, what: str, there: str, verb: str) -> RefusedError:
    """The error for a verb that would read or delete outside of a destination, where its call does not say where."""
    return RefusedError(
        f"{what}, and the call names no source. Whoever can write into {url} says what its ledger holds, so nothing is done by its word. "
        f"It speaks of {there}. If these are yours, name them: ledger.{verb}(source=…), in a shell quire ledger "
        f"{verb.replace('_', '-')} --source …"
    )


def spec_of(log: Log, empty: Spec | None = None) -> Spec:
    """The destination's spec; if it is empty, `empty`, or UsageError."""
    if spec := _spec(log, empty):
        return spec
    raise UsageError(f"there is nothing in {log.store.url} to change: no commit is in its log. Check the spelling.")


def _spec(log: Log, empty: Spec | None) -> Spec | None:
    return log.spec() or next((commit.spec for _, commit in log.commits()), empty)


def _plan(
    store: Store, log: Log, identity: Identity, change: Change, *, ended: bool
) -> tuple[PlanHead | None, PlannedChange]:  # fmt: skip
    """Plan; None: nothing is to be done. `ended`: this call has ended the same job, which a killed one had begun."""
    base, plan_id = log.tip, names.new_id()
    job = identity.job(base)
    try:
        planned = change.plan(log, base, lambda kind: names.plan_parquet(job, plan_id, f"{kind}-{names.new_id()}"))
        if not planned.tasks:
            return None, planned
        spec_of(log, change.spec)
        write_head(store, names.plan_parquet(job, plan_id), planned.tasks)
    except BaseException as e:
        with suppress(QuireError):  # what goes wrong now is not what the user should hear of
            discard(store, job, plan_id)
        if ended and isinstance(e, UsageError):
            return None, PlannedChange([])  # what it names is not there any more: that was done
        raise
    return identity.head(base, plan_id, len(planned.tasks)), planned


def _words(reads: str, log: Log) -> dict[str, Any]:
    """How text is read; FormatError for what no writer of ours has written."""
    try:
        found = json.loads(reads)
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    raise FormatError(f"the log of {log.store.url} does not say how its text was read: it is damaged. Say text_options=.")


def _convert(log: Log, head: PlanHead, change: Change) -> Convert:
    function, most, spec = change.function, change.max_file_size, head.spec
    built_in = spec.transform in (*transforms.NAMES, *COLUMNAR, *text.NAMES) and function is None
    kind = spec.transform if built_in else "callable"
    # What is read now may be appended to later, as what the last run has read.
    on_append = log.on_append()
    marks, holds = on_append in ("tail", "reprocess"), on_append == "tail"
    process, loading = None, None
    evolves = schemas.evolving(log, change.evolves) if spec.format == "parquet" else ""
    if spec.kind == OFFSETS:
        newlines = "escape" if spec.transform == ESCAPED else "quarantine"
        made_of = Loading(spec.format, cast("BatchFunction | None", function), schemas.frozen(log), newlines, spec.by, evolves=evolves)
        loading = windowed(made_of, log, head.base) if head.verb == "retry" else made_of  # the others read no record
    elif spec.split and function is not None:
        process = Processing(cast("ProcessFunction", function), spec.split, spec.format, schemas.frozen(log), most=most)
    elif kind in text.NAMES:
        process = Reading.by(text.reader(kind, _words(change.reads or log.reads() or "{}", log), None, spec), most)
    rows = (function is not None and not spec.reduce) or kind in (*COLUMNAR, *text.NAMES)
    there = schemas.there(log) if rows else schemas.grown(log) if evolves else None
    compression = "zstd" if spec.kind == CLAIM and spec.format == "parquet" else spec.compression  # the files themselves say it
    made = Convert(
        kind, spec.format, compression, change.target, most, function, marks=marks, holds=holds, process=process, loading=loading,
        columns=there, by=replace(partition_by.of(spec), source=spec.partitions),
        parquet=parquet_options.stored(change.writes or log.writes(), log.store.url),
    )  # fmt: skip
    if kind in text.NAMES:
        return made.of(there or schemas.frozen(log))
    return made.beside(there, evolves) if evolves else made


def _told(found: Changed, planned: PlannedChange | None, before: int, log: Log, began: float) -> Changed:
    planned = planned or PlannedChange([])
    left = (*planned.left, *found.left)
    count = len(found.left) + (planned.left_count or len(planned.left))
    gone = superseded(log, found.jobs)
    return replace(
        found, left=left, left_count=count, known=max(0, planned.known - before), version=log.tip, seconds=time.monotonic() - began,
        superseded=gone.files, superseded_held=gone.held, pins=gone.pins, exports_behind=gone.exports,
    )  # fmt: skip


def _counted(found: Changed, log: Log, commit: Commit) -> Changed:
    tasks = log.in_effect(commit)
    stats = added(tasks)
    removed = {name for task in tasks for name in task.coverage.removes}
    # Just before the commit they counted.
    number = log.decided(commit.job)
    gone = [file for file in live(log, fold(log, number[0] - 1)) if file.name in removed] if removed and number else []
    written = [file for task in tasks for file in task.data_files]
    left = [(item.path, item.why) for item in (*commit.left, *(item for task in tasks for item in task.coverage.left))]
    return replace(
        found, jobs=(*found.jobs, commit.job), files_out=found.files_out + files_out(commit, tasks),
        quarantined_out=found.quarantined_out + stats.quarantined_out,
        gathered=found.gathered + stats.gathered, vain=found.vain + stats.vain, quarantined=found.quarantined + stats.quarantined,
        removed=found.removed + len(removed), removed_bytes=found.removed_bytes + sum(file.size for file in gone),
        removed_records=found.removed_records + sum(file.records for file in gone), written=found.written + len(written),
        written_bytes=found.written_bytes + sum(file.size for file in written),
        written_records=found.written_records + sum(file.records for file in written),
        carried=found.carried + stats.carried, left=(*found.left, *left),
    )  # fmt: skip
