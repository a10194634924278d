"""The steps that end a job: freeze its plan, commit, publish, abort, clean, recover. Anyone may run any of them at any time,
several at once; the log decides, and each step does what the log says there is still to do.

    freeze → (attempts put manifests) → commit → publish → clean            abort → clean
                                        recover = publish and clean what others left
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import archiving, closers, names
from quire.commit import retire as retiring
from quire.commit.checkpoints import MERGED
from quire.commit.committers import Committer, Marking, committer, serving
from quire.commit.entries import (
    WRITE,
    Abort,
    Commit,
    Deferred,
    Entry,
    Keep,
    Manifest,
    PlanHead,
    Published,
    Settings,
    Task,
    check_head,
    check_task,
    decode,
    encode,
)
from quire.commit.held import Held
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError, QuireError, UsageError
from quire.storage import Entry as File
from quire.storage import Folder, Store, remove_all
from quire.storage.within import is_table

# Which tasks must be dropped because of what was committed since the job's base; what is kept, and why a job cannot commit.
Conflicts = Callable[[Log, PlanHead, list[Task]], "set[int] | str"]
# Of a job that is closed in rounds: whether this one may be committed at the log's tip (False: it is over, and another follows), or the
# entry that has to stand in the log first.
Ready = Callable[[Log], "bool | Entry"]
Progress = Callable[[int, int], None]
ON_REQUEST = "given up on request"  # why a job ended that a user gave up
PARALLEL = 16  # requests at once, where a job's objects are published or deleted one by one


def _silent(_done: int, _total: int) -> None:
    """Nobody watches."""


def now() -> str:
    """For people who read the history; no decision looks at it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


# ---------------------------------------------------------------------------------------------------------------- a job's plan
def freeze(store: Store, head: PlanHead) -> None:
    """Put plan.entry if absent: the caller goes on with whatever plan is there."""
    store.put_if_absent(names.plan_head(head.job), encode(head))


def plan_head(store: Store, job: str) -> PlanHead | None:
    """The plan that counts, or None: there is none, or the job is over and cleaned."""
    name = names.plan_head(job)
    try:
        head: PlanHead = decode(store.get(name), PlanHead, f"{store.url}/{name}")
    except NotFoundError:
        return None
    check_head(head, f"{store.url}/{name}")
    committer(head.committer, store)
    return head if head.job == job else None


def jobs(store: Store) -> dict[str, set[str]]:
    """The jobs that have left anything in jobs/ (at least a directory), with the names of it; what others have put there is not a job."""
    found = defaultdict[str, set[str]](set)
    for item in store.scan(names.JOBS):
        if isinstance(item, Folder):
            found[item.name.rsplit("/", 1)[-1]] = set()
    for e in store.walk(names.JOBS):
        found[e.name.removeprefix(f"{names.JOBS}/").split("/")[0]].add(e.name)
    return {job: left for job, left in found.items() if names.base_of(job) is not None}


def open_jobs(store: Store, log: Log, there: dict[str, set[str]] | None = None) -> list[PlanHead]:
    """The frozen plans whose job has no outcome. The listing must be older than the log, which is read on in between.

    `there`: such a listing, as of `jobs`.
    """
    listed = [job for job, left in (jobs(store) if there is None else there).items() if names.plan_head(job) in left]
    log.read_on()
    heads = (plan_head(store, job) for job in sorted(listed) if log.outcome(job) is None)
    return [head for head in heads if head is not None]


# ------------------------------------------------------------------------------------------------------------------ manifests
def put_manifest(store: Store, job: str, task: Task) -> bool:
    """Put the manifest if absent; True: the one that is there is ours, False: another attempt has won."""
    if store.put_if_absent(names.manifest(job, task.task), encode(Manifest(job=job, task=task))):
        return True
    there = get_manifest(store, job, task.task)
    # Gone: the job was committed and cleaned in the meantime, perhaps with our manifest. So nothing of ours may be touched.
    return there is None or there.attempt == task.attempt


def get_manifest(store: Store, job: str, task: int) -> Task | None:
    """The result of the attempt that won the task; None: nobody has won yet, or the job is over."""
    name = names.manifest(job, task)
    try:
        manifest: Manifest = decode(store.get(name), Manifest, f"{store.url}/{name}")
    except NotFoundError:
        return None
    return check_task(job, manifest.task)


def finished(store: Store, job: str) -> set[int]:
    """The tasks that have a manifest."""
    stems = (e.name.rsplit("/", 1)[-1].removesuffix(names.ENTRY) for e in store.walk(names.manifests(job)))
    return {int(stem) for stem in stems if stem.isascii() and stem.isdigit()}


# --------------------------------------------------------------------------------------------------------------------- commit
def commit(log: Log, head: PlanHead, tasks: list[Task], conflicts: Conflicts, ready: Ready = lambda _: True) -> None:
    """Append the commit of a job: its whole tasks, less those that conflict with what was committed since its base.

    Afterwards the log has the job's outcome, unless `ready` said that this round is over.

    Raises QuireError unless there is a result of each of its tasks, and of the one that closes it.
    """
    if not head.complete([task.task for task in tasks]):
        raise QuireError(
            f"job {head.job} in {log.store.url} has {head.tasks + bool(head.closer):,} tasks, and {len(tasks):,} results have come: "
            f"nothing was committed. Call again to go on, or give it up with recover(dest, abort={head.job!r})."
        )

    def compute(log: Log) -> Entry | None:
        if log.outcome(head.job) is not None:
            return None
        try:
            found = conflicts(log, head, tasks)
        except FormatError:
            # A segment is not there. Either the job has ended since the log was read, and somebody cleaned, or a commit was
            # published since, and has lost the task: both stand in the log by now. If not, the segment is really missing.
            tip = log.tip
            if log.refresh().tip == tip:
                raise
            return compute(log)
        if isinstance(found, str):
            return Abort(job=head.job, why=found, time=now(), committer=head.committer, left=_left(tasks))
        kept = [t for t in tasks if t.task not in found and (t.coverage.segment or t.coverage.removes or t.coverage.uncovers)]
        if (head.verb == WRITE or not head.tasks) and not found:
            kept = tasks  # they cover nothing, and count all the same
        if head.closer:
            # The last task's files hold the rows of all others: with one of these missing, they would hold what is done elsewhere.
            kept = [t for t in tasks if t in kept or t is tasks[-1]] if kept and not found else []
        # A task that only takes rows out belongs to one that brings others in their place.
        removing = any(t.coverage.removes or (t.coverage.uncovers and not t.stats.assigned) for t in tasks)
        if not kept or (removing and (found or any(t.coverage.left for t in tasks))):
            # Half of a job that removes files would show old rows and new ones, or neither.
            why = "everything it holds was committed by others" if found and not kept else "nothing of it was left to commit"
            if kept or (found and head.closer):
                why = "others have committed what it touches" if found else "what it was to read has changed or is gone"
            return Abort(job=head.job, why=why, time=now(), committer=head.committer, left=_left(tasks))
        if (first := ready(log)) is not True:
            return first or None
        out = [t for t in tasks if t not in kept]
        return Commit(
            job=head.job, base=head.base, committer=head.committer, spec=head.spec, time=now(),
            planner=str(head.intent.get("planner", "")), hash_parts=int(head.intent.get("parts", 1)),
            target=int(head.intent.get("target", 0)), verb=head.verb, why=str(head.intent.get("reason") or ""),
            on_append=str(head.intent.get("on_append", "")), identity=str(head.intent.get("identity", "")),
            schema=str(head.intent.get("schema") or ""), source=head.source,
            reads=str(head.intent.get("reads") or ""), writes=str(head.intent.get("writes") or ""),
            deduplicate=str(head.intent.get("deduplicate") or ""),
            tasks=tuple(kept), dropped=tuple(sorted(found)), left=_left(out), parts=None,
            closer=head.closer,
        )  # fmt: skip

    log.append(compute)


def _left(tasks: Iterable[Task]) -> tuple[Deferred, ...]:
    return tuple(left for task in tasks for left in task.coverage.left)


def publish(log: Log, entry: Commit, progress: Progress = _silent) -> None:
    """Make a committed job's files visible, from the entry alone, then say so in the log."""
    with closers.locked(log.store):
        _publish(log, entry, progress)


def _publish(log: Log, entry: Commit, progress: Progress) -> None:
    if log.read_on().published(entry.job) is not None:
        return
    by, step = committer(entry.committer, log.store), closers.step(entry)
    files = [(task, file) for task in entry.tasks for file in task.data_files]
    if isinstance(step, closers.Guarding):
        step.before_moved(log.store, entry)
    lost = set[int]()
    with ThreadPoolExecutor(PARALLEL) as pool:
        done = pool.map(lambda x: by.publish(log.store, entry.job, *x), files)
        for i, ((task, _), ok) in enumerate(zip(files, done, strict=True)):
            if not ok:
                lost.add(task.task)
            progress(i + 1, len(files))
    if step and not lost:
        decided = log.decided(entry.job)
        step.before_published(log.store, entry, decided[0] if decided else 0)
    log.append(
        lambda log: None if log.published(entry.job) else Published(job=entry.job, time=now(), lost=tuple(sorted(lost)))
    )  # fmt: skip


def abort(log: Log, job: str, why: str) -> None:
    """Give up a job, unless it is decided already; then clean up after it."""
    try:
        head = plan_head(log.store, job)
    except FormatError:
        head = None  # damaged or forged: giving it up must go all the same
    by = head.committer if head else ""
    log.append(lambda log: None if log.outcome(job) else Abort(job=job, why=why, time=now(), committer=by))
    clean(log, job)


def _committers_of(committer: str, store: Store) -> list[Committer]:
    """The committers that may have left output of a job: all that work here, where an abort came before the plan that names one."""
    return [by for by in serving(store, committer) if committer in ("", by.name)]


def clean(log: Log, job: str) -> None:
    """Delete what a job that is over has left; nothing happens while it is not."""
    outcome, published = log.outcome(job), log.published(job)
    if outcome is None or (isinstance(outcome, Commit) and published is None):
        return
    store = log.store
    segments, files, part = set[str](), set[str](), outcome.parts
    if isinstance(outcome, Commit):
        assert published is not None
        for task in log.kept(outcome):
            segments |= task.coverage.objects
            files.update(file.name for file in task.data_files)
    for by in _committers_of(outcome.committer, store):
        by.clean(store, job, files)
    if published is not None and published.lost:
        assert isinstance(outcome, Commit)
        for name in (file.name for task in outcome.tasks for file in task.data_files if file.name not in files):
            store.remove(name)  # whoever reads the directory would see rows of tasks that do not count
    for e in [e for folder in (names.LEDGER, names.QUARANTINE) for e in _of_job(store, folder, job)]:
        if names.job_of_segment(e.name) == job and e.name not in segments:
            store.remove(e.name)
    for e in list(_of_job(store, names.PARTS, job)):
        if names.job_of_part(e.name) == job and e.name != part:
            store.remove(e.name)
    store.remove_tree(names.manifests(job))
    # plan.entry goes last: while it is there, a driver that finds the job finds its plan too, or sees that the job is over.
    remove_all(store, [e.name for e in store.walk(names.job_folder(job)) if e.name != names.plan_head(job)])
    store.remove(names.plan_head(job))
    store.remove_tree(names.job_folder(job))


def _of_job(store: Store, folder: str, job: str) -> Iterator[File]:
    """The files in a folder under names that begin with a job's: a ledger has many more."""
    return (e for e in store.scan(folder, after=f"{job}-", until=f"{job}.") if isinstance(e, File))


# -------------------------------------------------------------------------------------------------------------------- recover
def recover(store: Store, abort_jobs: str | None = None, progress: Progress = _silent) -> Log:
    """Publish and clean what others left behind; see `recovered`."""
    return recovered(store, abort_jobs, progress)[0]


def recovered(
    store: Store, abort_jobs: str | None = None, progress: Progress = _silent, held: Held | None = None
) -> tuple[Log, dict[str, set[str]]]:  # fmt: skip
    """Publish and clean what others left behind; before that give up the job `abort_jobs`, or all open ones ("open").

    The log, and `jobs` as they were before it was read.

    Open jobs that nobody names are left alone: the next run of the same intent goes on with them. `held`: of a call that recovers again;
    it looks only now and then for what lies elsewhere than in the folders of jobs, which it has not left and which does no harm.
    """
    store.sweep(names.STATE)
    listed, held = jobs(store), held or Held()
    log = held.read(store)
    everywhere = held.looks()
    if new := not log.merged and next(log.outcomes(), None) is None:
        _check_not_lost(log, (e.name for e in store.walk(names.LEDGER)))  # first of all: a log that was begun again would hide it
    for job in _to_abort(abort_jobs, listed, log, store):
        abort(log, job, ON_REQUEST)
    for entry in log.unpublished():
        publish(log, entry, progress)
    if follower := closers.follower(store):
        log.append(follower.follow)
    if not new:  # else no job is over
        for job in sorted(_leftovers(store, log, listed, everywhere=everywhere)):
            clean(log, job)
        if everywhere:
            archiving.sweep(log)
        retire(log)
    return log, listed


def keep(log: Log, wanted: Keep | None) -> None:
    """Let the destination keep so many older versions from now on; None: as before."""
    if wanted is not None and wanted != retiring.wish(log):
        before = log.tip  # two calls that wish otherwise say so once each

        def say(log: Log) -> Entry | None:
            said = any(isinstance(entry, Settings) and entry.keep == wanted for entry in log.since(before))
            return None if said or wanted == retiring.wish(log) else Settings(keep=wanted, time=now())

        log.append(say)
        retire(log, asked=True)


def retire(log: Log, *, asked: bool = False) -> None:
    """Let data files leave the directory that a commit has superseded, as far as pins allow; each call does what others left undone.

    `asked`: a user has just said how many versions are kept.
    """
    if is_table(log.store):
        return  # its clean does that
    if not log.settled() and retiring.waiting(log):
        for entry in log.unpublished():  # of calls that are under way, or died: nothing leaves before they are published
            publish(log, entry)
    if retiring.due(log, now(), asked=asked):  # else the log is not read once more
        log.append(lambda log: retiring.due(log, now(), asked=asked))
    if retiring.open_since(log):
        for job in sorted(_leftovers(log.store, log, jobs(log.store), everywhere=False)):
            clean(log, job)  # else somebody who is slow could publish again what goes
        retiring.carry_out(log, now())


def _check_not_lost(log: Log, segments: Iterable[str]) -> None:
    """FormatError where the ledger has segments of a job whose commit is gone from the log: it would be done again, beside what is there.

    A segment is written after its job's plan, the plan names a version that the log has reached, and it is deleted after the log has the
    outcome. So the segments are listed before the plans are looked at, and the log is read last.
    """
    unknown = {job for name in segments if (job := names.job_of_segment(name)) and log.outcome(job) is None}
    fresh = next(log.recent(), None) is None
    planless = {job for job in unknown if fresh and log.store.stat(names.plan_head(job)) is None}
    if unknown:
        log.refresh()
    lost = {job for job in unknown if (names.base_of(job) or 0) > log.tip or (job in planless and log.outcome(job) is None)}
    if lost:
        raise FormatError(
            f"entries are gone from the log {log.store.url}/{names.LOG}: it ends with entry {log.tip:,}, and the ledger beside it has rows "
            f"of job {min(lost)}, which is not in it. A call would gather again what is there, so nothing was touched: put the log back, "
            f"or choose another destination."
        )


def _to_abort(wanted: str | None, listed: dict[str, set[str]], log: Log, store: Store) -> list[str]:
    has_plan = [job for job, left in listed.items() if any("/plan" in name for name in left)]
    undecided = sorted(job for job in has_plan if log.outcome(job) is None)
    if wanted is None:
        return []
    if wanted == "open":
        return undecided
    if wanted not in undecided:
        state = "is over already" if log.outcome(wanted) else "is not known"
        open_now = f"Open: {', '.join(undecided)}." if undecided else "No job is open."
        raise UsageError(f"job {wanted!r} {state} in {store.url}: there is nothing to give up. {open_now}")
    return [wanted]


def _leftovers(store: Store, log: Log, listed: Iterable[str], *, everywhere: bool) -> set[str]:
    """The jobs with an outcome that have left anything which clean() would delete, in their folders (as `listed`) or everywhere."""
    found = set(listed)
    if not everywhere:
        return {job for job in found if log.outcome(job) is not None}
    named, parts = set[str](), {part for part, _ in log.parts()}
    for _, c in log.recent():
        named |= {name for t in log.kept(c) for name in t.coverage.objects}
    left = [e.name for e in store.walk(names.LEDGER) if e.name not in named]
    left += [e.name for e in store.walk(names.QUARANTINE) if e.name not in named]
    left += [e.name for e in store.walk(names.PARTS) if e.name not in parts]
    if left and log.base:  # what a checkpoint has merged is there until it is expired; first, as each of the others is looked up
        for table in log.base.tables(store, "merged", MERGED, ["name"]):
            left = pa.array(left, pa.string()).filter(pc.invert(pc.is_in(pa.array(left, pa.string()), table.column("name")))).to_pylist()
    _check_not_lost(log, left)
    found |= {names.job_of_segment(name) or names.job_of_part(name) or "" for name in left}
    for by in {by.name: by for c in log.committers() for by in _committers_of(c, store)}.values():
        found |= by.leftovers(store, (file.name for _, c in log.commits() for t in log.kept(c) for file in t.data_files))
        if isinstance(by, Marking) and (marks := by.marks(store)):
            found |= {outcome.job for outcome in log.outcomes() if names.mark(outcome.job) in marks}
    return {job for job in found if job and log.outcome(job) is not None}
