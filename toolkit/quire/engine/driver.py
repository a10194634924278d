"""The rounds of a call: each ends a job, ours or another's, until nothing that was listed is left.

(take up an open job | list → take out what is done → plan → freeze) → tasks → commit → publish → clean
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from quire.commit import names, protocol
from quire.commit.entries import TABLE, Abort, Commit, PlanHead, Spec, Stats, Task
from quire.commit.log import Log
from quire.commit.retire import superseded
from quire.coverage import checkpoint, segments
from quire.coverage.fold import fold
from quire.coverage.live import added
from quire.engine import job as jobs
from quire.engine import kinds
from quire.engine.attempt import Work
from quire.engine.closers import sorting
from quire.engine.exports import step as exports
from quire.engine.kinds.distinct import windowed
from quire.engine.report import Report
from quire.engine.request import Request
from quire.engine.take_up import Identity, take_up, with_state
from quire.errors import QuireError, RefusedError, UsageError, about, quoted
from quire.formats import partitions
from quire.planning import plan as planning
from quire.planning.backlog import Backlog
from quire.planning.listing import EXAMPLES, Listed
from quire.planning.misspelt import check_listed, unmatched
from quire.planning.rewriting import refuse_missing
from quire.progress import Progress, ProgressEvent
from quire.skew import SkewResult
from quire.sources.files import Root
from quire.sources.members import identified
from quire.sources.transforms import schemas
from quire.sources.transforms.convert import Convert
from quire.spark.runner import Runner
from quire.storage import Store, plain
from quire.storage.within import PROPERTIES, is_table

TWICE = 2  # a call takes a path up at most this often, so it ends though a file changes for ever


def gather(
    request: Request, runner: Runner, bars: Progress, planned: planning.Planned | None = None, *, waits: bool = False,
    backlog: Backlog | None = None,
) -> Report:  # fmt: skip
    """Rounds until nothing is left; each round ends a job, ours or another's.

    `planned`: the plan of the first one, which `backlog` has made before. `waits`: a source in which nothing has the names that are asked
    for may have it later, and is not a mistake.
    A store that does not do what it should ends the call with one line: what was done, what was not, and how to go on.
    """
    call = _Call(request, bars)
    backlog = backlog or Backlog(call.kind.plan, request.pace.bound)
    bars.commit = backlog.place
    with bars.run("run", request.shown, request.spec.kind) as run, with_state(call.state):
        run.report = found = _rounds(call, request, runner, bars, backlog, planned, waits=waits)
        return found


def _rounds(
    call: _Call, request: Request, runner: Runner, bars: Progress, backlog: Backlog, planned: planning.Planned | None, *, waits: bool
) -> Report:  # fmt: skip
    started, retries, store = time.monotonic(), bars.retries, request.store(bars.again)
    supersede = False  # the round takes what was gathered in another version: a job of its own, since it is all or nothing
    with about("dest"):
        check_destination(store, request.allow_nonempty)

    def identify(log: Log) -> Identity:
        with about("dest"):
            check_spec(log, request)
        return request.identity

    def plan(log: Log, identity: Identity) -> tuple[PlanHead, planning.Planned] | None:
        nonlocal planned, supersede
        while True:
            found, planned = planned, None
            if found is None:
                wanted = request.wanted(call.tired(1 if supersede else TWICE), supersede=supersede)
                found = planning.make(backlog.plan, runner, log, log.tip, identity.job(log.tip), wanted, bars)
            if not supersede and call.saw(found, listed=backlog.fresh):
                some = request.pace.among is not None  # names, of which nothing follows for the source as a whole
                check_found(log, request, found, waits=waits or some, again=some or bool(call.taken_up))
            if found.tasks:
                return identity.head(found.base, found.plan, len(found.tasks)), found
            if supersede or not call.outdated():
                return None
            supersede = True

    while True:
        taken = take_up(store, identify, plan, held=request.held, other=call.other)
        log, head = taken.log, taken.head
        if head is not None or log.tip:  # nothing is written into a destination in which nothing is to be done
            protocol.keep(log, request.wishes.keep)
            request.ask_once(log.tip, partial(exports.want, log))
        if head is None:
            break
        work = Work(request.dest, request.dest_options, request.roots, head, _convert(request.convert, log, head))
        call.takes_up(head)
        ours, bars.commit = taken.planned is not None, backlog.place
        jobs.run(runner, log, work, bars, request.max_quarantined, request.reduce)
        settled = backlog.ended(head.job, ours=ours, settled=call.ended(log.read_on(), head.job, store) and ours)
        jobs.check_losses(call.done.losses, head.job, request.shown)
        if bars.stopping or (settled and not call.more() and (supersede or not call.outdated())):
            break  # where it is to stop, the next call takes what is left
        supersede = settled and (supersede or not call.more())  # first what did not fit into that job
        checkpoint.keep_up(runner, request.dest, request.dest_options, log, bars.say, request.near)  # a call may make very many commits
    exports.catch_up(log, bars.say_once)
    checkpoint.keep_up(runner, request.dest, request.dest_options, log, bars.say, request.near)
    return call.report(log, time.monotonic() - started, bars.retries - retries)


def _convert(convert: Convert, log: Log, head: PlanHead) -> Convert:
    """A user's function gives rows that are to lie beside those that are there; after a shuffle, they are others.

    Records of topics are looked up among those that are there.
    """
    if convert.loading is not None:
        convert = replace(convert, loading=windowed(convert.loading, log, head.base))
    if not convert.function or head.closer:
        return convert
    return convert.beside(schemas.there(log), schemas.evolving(log, convert.evolves))


@dataclass
class _Done:
    """The sum of the tasks of a call that count."""

    stats: Stats = field(default_factory=Stats)
    data_files: int = 0
    written: int = 0  # bytes in them
    records: int = 0
    instant: str = ""  # of the last of them that changed a table
    losses: int = 0  # jobs of which the store has lost output before it was published
    examples: list[tuple[str, str]] = field(default_factory=list)  # of what was quarantined

    def add(self, tasks: Sequence[Task]) -> None:
        # The change files of a table lie beside its data files.
        files = [file for task in tasks for file in task.data_files if not names.is_changes(file.name)]
        self.stats = added(tasks, self.stats)
        self.data_files += len(files)
        self.written += sum(file.size for file in files)
        self.records += sum(task.records for task in tasks)
        self.instant = next((task.instant for task in reversed(tasks) if task.instant and task.data_files), self.instant)


class _Call:
    """The state of this call so far. It decides only when the call ends; what is done stands in the log."""

    def __init__(self, request: Request, bars: Progress) -> None:
        self.request, self.bars, self.kind = request, bars, kinds.named(request.spec.kind)
        self.taken_up = Counter[str]()  # paths that were deferred, or replaced in quarantine
        self.left: dict[str, str] = {}
        self.head: PlanHead | None = None  # of the job under way
        self.before = bars.last  # the phase that was the last one when it was taken up
        self.jobs: list[str] = []
        self.others: list[str] = []
        self.listed: planning.Planned | None = None
        self.skew: SkewResult | None = None
        self.quarantined = 0  # files that were in quarantine when the call began
        self.skipped = 0  # files that were done before
        self.held = 0  # last lines that were held back since the last listing
        self.done = _Done()

    @property
    def stats(self) -> Stats:
        """The counts of the tasks that count."""
        return self.done.stats

    def tired(self, most: int) -> frozenset[str]:
        """The paths that this call does not take up again, having done so `most` times.

        Once is enough where one file that changes while it is read lets all of a job wait.
        """
        return frozenset(path for path, n in self.taken_up.items() if n >= most)

    def saw(self, planned: planning.Planned, *, listed: bool) -> bool:
        """A plan; `listed`: of a new listing, and not of the rest of the one before."""
        self.listed = planned
        if not listed:
            return False
        self.held = 0  # what is held back since before is in the listing
        # What this call has gathered in rounds before is found done, and was not done before.
        self.skipped = max(0, planned.listed.done - self.stats.files_in - self.stats.quarantined_files)
        if not self.jobs and self.request.pace.among is None:  # which would say that of all that is there
            self.quarantined = planned.listed.quarantined
        if planned.tasks:
            self.skew = planned.skew()
        return True

    def outdated(self) -> bool:
        """Whether files are there in another version than the ledger's, and the user wants the new one."""
        return self.listed is not None and self.listed.listed.differing.outdated > 0

    def more(self) -> bool:
        """Whether the last plan has left something, as a job may only be so large."""
        return self.listed is not None and self.listed.listed.later.commits > 0

    def other(self, job: str) -> None:
        """An open job of another intent."""
        if job not in self.others:
            self.others.append(job)
            self.bars.say(
                f"job {job} of another call is unfinished; give it up with recover(dest, abort={job!r}) if nobody goes on with it"
            )

    def ended(self, log: Log, job: str, store: Store) -> bool:
        """Count a job that is over; True: all that was listed for it is settled."""
        outcome, self.head = log.outcome(job), None
        if outcome is None:
            return False
        if isinstance(outcome, Abort):
            refuse_missing(log, outcome.left)
        left = list(outcome.left)
        if isinstance(outcome, Commit):
            self.jobs.append(job)
            self.request.ended(outcome)
            tasks = log.in_effect(outcome)
            lost = len(tasks) < len(outcome.tasks)
            self.done.losses += lost
            self.done.add(tasks)
            for task in tasks:
                left += task.coverage.left
                self._gathered_after_all(task, store)
                self.held += task.stats.held
                self.taken_up.update({u.path for u in task.coverage.uncovers})
                if task.stats.quarantined and len(examples := self.done.examples) < EXAMPLES and task.coverage.segment:
                    rows = segments.read(store, task.coverage.segment, ["path", "start", "state", "reason", "member"]).to_pylist()
                    aside = [r for r in rows if r["state"] == "quarantined"]
                    examples += [(identified(self.kind.split(r["path"], r["start"]), r["member"]), r["reason"]) for r in aside]
        self.taken_up.update({item.path for item in left})
        self.left.update({item.path: item.why for item in left})
        return isinstance(outcome, Commit) and not left and not outcome.dropped and not lost

    def _gathered_after_all(self, task: Task, store: Store) -> None:
        """Remove what was deferred before, and is in a later task's segment, from the list of what is deferred."""
        before = [path for path in self.left if task.coverage.first <= path <= task.coverage.last]
        if before and task.coverage.segment:
            rows = segments.read(store, task.coverage.segment, ["path", "carried"], min(before), max(before)).to_pylist()
            for path in (row["path"] for row in rows if not row["carried"]):  # of what is carried over, the old version stays
                self.left.pop(path, None)

    def takes_up(self, head: PlanHead) -> None:
        """A job, ours or one that is open."""
        self.head, self.before = head, self.bars.last

    def state(self) -> str:
        """How far this call has come, for an error that ends it: from what it knows, since the store may not answer."""
        taken = self.kind.taken(self.stats.files_in, self.done.records)
        before = f"{taken} by this call and stay; " if self.stats.files_in or self.done.records else ""
        dest = self.request.shown
        if self.head is None:
            return f"{before or 'Nothing of this call is visible; '}call again to go on."
        step = ProgressEvent("") if self.bars.last is self.before else self.bars.last.step  # the phases before were of other jobs
        if step.phase == "publishing":
            return (
                f"{before}job {self.head.job} is committed and {step.done:,} of its {step.total or 0:,} data files are in their places: "
                f"call again, or recover({dest!r}), to move the others."
            )
        done = f"{step.tasks:,} of the {self.head.tasks:,} tasks of job {self.head.job} are done and kept, nothing of it is visible"
        return f"{before}{done}: call again to go on, or give it up with recover({dest!r}, abort={self.head.job!r})."

    def report(self, log: Log, took: float, retries: int) -> Report:
        """For the user."""
        request, stats, done = self.request, self.stats, self.done
        listed = self.listed.listed if self.listed else Listed()
        differing, gone = listed.differing, superseded(log, self.jobs)
        return Report(
            **self.kind.report(request.roots, self, log), dest=request.shown, files=stats.files_in, bytes=stats.bytes_in,
            written=done.written, records=done.records, lost=stats.lost, data_files=done.data_files,
            quarantined=tuple(done.examples[:EXAMPLES]), quarantined_count=stats.quarantined,
            changed=differing.reported.pairs, changed_count=differing.reported.count, longer_count=differing.longer,
            unreadable=listed.unreadable.pairs, unreadable_count=listed.unreadable.count, deferred=tuple(self.left.items()),
            skipped=self.skipped, hidden=listed.hidden, young=listed.young, links=listed.links, jobs=tuple(self.jobs), version=log.tip,
            held_back=self.held + differing.held, seconds=took, skew=self.skew, others=tuple(self.others), retries=retries,
            deleted=listed.deleted.count, deleted_examples=tuple(listed.deleted.examples), reduce=request.spec.reduce,
            outstanding=listed.later.files if self.bars.stopping else 0, quarantined_before=self.quarantined, instant=done.instant,
            superseded=gone.files, superseded_held=gone.held, pins=gone.pins, exports=exports.told(log, request.wishes.exports),
            early=stats.early, duplicates=stats.duplicates,
            gaps=(), gap_count=0, retried=0, retried_taken=0, given_up=(), given_up_count=0, upkeep=(), events=None,
        )  # fmt: skip


def check_destination(store: Store, allow_nonempty: bool) -> None:
    """Refuse a destination that holds somebody else's files (`allow_nonempty` allows them)."""
    store.check_writable()
    if not store.is_folder() or is_table(store):  # a table says by its settings that it is one
        return
    if not store.is_folder(names.STATE):
        if store.stat(PROPERTIES) is not None:
            raise RefusedError(
                f"the destination {store.url} is a table, whose readers would take other files in it for its rows: nothing was touched. "
                f"Choose another, or write rows into it with quire.Table({store.url!r})."
            )
        if allow_nonempty:
            return
        for name, _ in store.peek():
            if store.is_folder(names.STATE):
                return  # another driver has just begun here
            raise RefusedError(
                f"the destination {store.url} is not empty and not quire's (it holds {name!r}): nothing was touched. "
                f"Choose another, or say allow_nonempty=True."
            )


def check_above(store: Store, what: str) -> None:
    """Refuse a place for several destinations that is one itself: whoever reads its directory would count theirs, too."""
    with about("dest"):
        if store.is_folder() and (store.is_folder(names.STATE) or is_table(store)):
            raise UsageError(f"{plain(store.url)} is a destination itself, and {what} makes destinations below it. Choose another place.")


def check_found(log: Log, request: Request, planned: planning.Planned, *, waits: bool = False, again: bool = False) -> None:
    """Refuse a source that cannot be listed and globs that match nothing (but if the call `waits`); what planning has written goes.

    `again`: files that this call has taken up before are not in the listing, so it does not say what is there.
    """
    try:
        if not again:
            check_listed(request.roots, planned.listed)
        if not waits:
            _check_names(log, request, planned.listed)
        _check_directories(log, request, planned.listed)
    except QuireError:
        with suppress(QuireError):  # what goes wrong now is not what the user should hear of
            planning.discard(log.store, planned.job, planned.plan)
        raise


def _check_names(log: Log, request: Request, listed: Listed) -> None:
    """Refuse globs that match none of the names that are there.

    Where a job of the same call was committed, what matched may have gone since.
    """
    roots = [root for root in request.roots if isinstance(root, Root)]
    found = unmatched(roots, request.selection.include, listed)
    if found and not any(True for _ in log.ending(request.identity.hash)):
        found.refuse(request.selection.exclude)


def _check_directories(log: Log, request: Request, listed: Listed) -> None:
    """Refuse directories of which the first files have no value at all: a name is misspelt."""
    asked = [each for each in request.cut.by.of_files if not each.unit]
    if not asked or not listed.written.runs or log.spec() is not None:
        return
    groups = {*listed.later.groups} | {run["group"] for run in listed.written.runs}
    found = [partitions.values(f"{folder}/") for folder in groups]
    if each := next((each for each in asked if all(values.get(each.name) is None for values in found)), None):
        there = ", ".join(root.url for root in request.roots)
        raise UsageError(
            f"partition_by={str(each)!r}: no new file of {there} lies in such a directory, and nothing was read. Check the spelling."
        )


def check_spec(log: Log, request: Request) -> None:
    """Refuse to mix two transforms or formats in one destination."""
    commit = log.saying()
    if commit is None or request.identity.closer == TABLE:
        _check_marks(log, request)
        return
    if commit.verb == "run" and commit.identity != (identity := request.identity.intent.get("identity", "")):
        raise RefusedError(
            f"the destination {request.shown} knows its files by change_detection={commit.identity or 'store'!r}, and this call says "
            f"{identity or 'store'!r}: every file would look rewritten. Say the same, or choose another destination."
        )
    if commit.spec != request.spec:
        there, ours = commit.spec, request.spec
        if there.reduce != ours.reduce:
            went = [w.reduce if sorting.is_said(w.reduce) else f"reduce={w.reduce!r}" if w.reduce else "no shuffle" for w in (there, ours)]
            mixed = [f"went through {each}" for each in went]
            raise RefusedError(
                f"the rows of the destination {request.shown} {mixed[0]}, and those of this call {mixed[1].replace('went', 'would go')}: "
                f"mixing them is not supported. Say the same, or choose another destination."
            )
        raise RefusedError(
            f"the destination {request.shown} holds transform {there.transform!r}, format {there.format!r}, compression "
            f"{there.compression!r}, layout {there.layout!r}{_split(there)}; this call says {ours.transform!r}, {ours.format!r}, "
            f"{ours.compression!r}, {ours.layout!r}{_split(ours)}. Say the same, or choose another destination."
        )


def _check_marks(log: Log, request: Request) -> None:
    """Refuse files where offsets are marked as done elsewhere, and topics where files are."""
    kind = kinds.named(request.spec.kind)
    if other := next((source.first for source in fold(log).sources if not kind.owns(source.first)), None):
        raise RefusedError(
            f"the ledger of {request.shown} has marks of {quoted(other, 100)}, which another tool has done, and this call reads "
            f"{kind.noun}: nothing was read. Choose another destination."
        )


def _split(spec: Spec) -> str:
    said = {"split": spec.split, "partition_by": spec.by, "decompress": spec.decompress, "archives": spec.archives,
            "delimiter": spec.dialect[:1], "quote": spec.dialect[1:], "header": spec.header,
            "partition_columns": "directories" if spec.partitions else ""}  # fmt: skip
    return "".join(f", {name} {value!r}" for name, value in said.items() if value)
