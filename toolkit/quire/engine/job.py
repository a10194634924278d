"""Runs the tasks of a frozen plan until each has a manifest, then commits, publishes and cleans.

Everything that decides is in the store: a second driver on the same job, or this one after a restart, does what is still to do.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from quire.commit import names, protocol
from quire.commit.closers import locked
from quire.commit.closers import step as finishing
from quire.commit.entries import FILES, OFFSETS, SPLITS, Commit, Deferred, PlanHead, Task
from quire.commit.log import Log
from quire.coverage.conflicts import TWO, conflicts, same_columns
from quire.coverage.superseded import not_taken
from quire.engine import closers, kinds
from quire.engine.attempt import Work, attempt
from quire.engine.closers import Reduce
from quire.engine.exports import step as exports
from quire.errors import (
    DataLossError,
    FormatError,
    NotFoundError,
    QuireError,
    RefusedError,
    StorageError,
    TooManyQuarantined,
    TransientError,
    UsageError,
    scrub,
)
from quire.planning.pack import FEW, SMALL, PlannedTask, read_head
from quire.progress import Part, Phase, Progress
from quire.sources.members import identified
from quire.sources.transforms import columns, schemas
from quire.sources.transforms.widening import DiffersError
from quire.spark.runner import Failure, Runner
from quire.storage import Patience

ATTEMPTS = 3  # of a task in one call, beyond those that the engine makes by itself
LOSSES = 5  # jobs of one call of which the store may lose output: uploads expire, and not again and again
# What max_quarantined counts, by the kind of the input and how it is split.
_COUNTED = {(FILES, ""): "files", (SPLITS, "file"): "files or records", (OFFSETS, ""): "records"}
LOOKS = 20  # manifests that are read each time the bar moves


def run(runner: Runner, log: Log, work: Work, progress: Progress, max_quarantined: int | None = None, reduce: Reduce | None = None) -> None:
    """Bring an open job to its end. Afterwards the log has its outcome, by whomever. `reduce`: for the closer of the job.

    Raises TooManyQuarantined (the job is given up, nothing is committed), or QuireError if tasks keep failing: then the job stays
    open and the next run goes on with it.
    """
    head = work.head
    found = results(runner, log, work, progress)
    if found is None:
        settle(log, head.job, progress)
        return
    planned, tasks = found
    if head.verb == "run" and any(task.drops for task in planned) and (stays := _not_taken(log, head, tasks)):
        # Half of such a job would take rows out for files that are not good: it is given up, and planned again without these.
        more = replace(tasks[0].coverage, left=(*tasks[0].coverage.left, *stays))
        protocol.commit(log, head, [replace(tasks[0], coverage=more), *tasks[1:]], conflicts)
        settle(log, head.job, progress)
        return
    _check_schema(log, tasks, head, alone=bool(head.closer))
    quarantined = sum(task.stats.quarantined for task in tasks)
    if max_quarantined is not None and quarantined > max_quarantined:
        first, what = _first_quarantined(log, tasks), _COUNTED.get((head.spec.kind, head.spec.split), "splits or records")
        protocol.abort(log, head.job, f"{quarantined} {what} were to be quarantined, more than max_quarantined={max_quarantined}")
        if isinstance(log.outcome(head.job), Commit):  # another driver of the job allows more
            settle(log, head.job, progress)
            return
        raise TooManyQuarantined(
            f"{quarantined:,} {what} were to be quarantined, and max_quarantined is {max_quarantined:,}: nothing was committed. "
            f"First: {first}. Repair them, or call again with a larger max_quarantined."
        )
    if head.closer:
        close(runner, log, work, tasks, reduce, progress)
    else:
        protocol.commit(log, head, tasks, functools.partial(conflicts, agree=agree))
        settle(log, head.job, progress)


def close(runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress) -> None:
    """Bring a job whose planned tasks are done to its end: rounds of its closer, until the log has its outcome; then publish and clean."""
    head, closer = work.head, closers.of(work.head)
    while (closed := _closed(runner, log, work, tasks, reduce, progress)) is not None:
        _check_schema(log, closed, head)
        ready = functools.partial(closer.ready, closed[-1]) if isinstance(closer, closers.Rounds) else lambda _: True
        with locked(log.store):
            protocol.commit(log, head, closed, functools.partial(conflicts, agree=agree), ready)
            if log.outcome(head.job) is not None:
                _show(log, head.job, progress)
                break
    settle(log, head.job, progress)


def _closed(
    runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress
) -> list[Task] | None:  # fmt: skip
    """All results of a job. One whose closer refuses the rows is given up: no other try would end otherwise."""
    try:
        return closers.of(work.head).close(runner, log, work, tasks, reduce, progress)
    except RefusedError as e:
        protocol.abort(log, work.head.job, scrub(str(e), 200))
        if not isinstance(log.outcome(work.head.job), Commit):
            raise
        return None


def results(runner: Runner, log: Log, work: Work, progress: Progress) -> tuple[list[PlannedTask], list[Task]] | None:
    """The tasks of a plan with the result of each, from attempts that were made before or are made now; None: the job is over."""
    planned = _read_plan(log, work.head)
    tasks = None if planned is None else _manifests(runner, log, work, planned, progress)
    if planned is None or tasks is None:
        return None
    _check(tasks, planned, work.head.job)
    return planned, tasks


def _read_plan(log: Log, head: PlanHead) -> list[PlannedTask] | None:
    """The tasks of a frozen plan; None: the job is over, and cleaned. Raises QuireError for a plan that is missing or damaged."""
    store = log.store
    try:
        planned = read_head(store, names.plan_parquet(head.job, head.plan), head.tasks)
    except NotFoundError:
        if log.refresh().outcome(head.job) is None and protocol.plan_head(store, head.job) is not None:
            raise QuireError(
                f"the plan of job {head.job} in {store.url} is missing: somebody deleted below _quire/. Give the job up with "
                f"recover(dest, abort={head.job!r}) and call again: nothing of it is visible."
            ) from None
        return None
    if len(planned) != head.tasks:
        raise FormatError(
            f"the plan of job {head.job} in {store.url} says {head.tasks:,} tasks and holds {len(planned):,}: it is damaged. Give the job "
            f"up with recover(dest, abort={head.job!r}) and call again."
        )
    return planned


def _not_taken(log: Log, head: PlanHead, tasks: list[Task]) -> tuple[Deferred, ...]:
    """The files whose old rows have to stay; none where another driver has ended the job and cleaned meanwhile."""
    try:
        return not_taken(log.store, tasks)
    except FormatError:
        if log.refresh().outcome(head.job) is None:
            raise
        return ()


def settle(log: Log, job: str, progress: Progress) -> None:
    """Publish and clean a job that has its outcome, whoever brought it about: its files are visible when the call returns.

    Commits with a step before `published` are published in the order of the log, so those before this job's are published, too.
    """
    _show(log, job, progress)
    protocol.clean(log, job)
    exports.keep_up(log, progress.say_once)


def _show(log: Log, job: str, progress: Progress) -> None:
    """Publish a job that has its outcome, unless that is done."""
    waiting = log.unpublished()  # as whoever comes here has just read it
    mine = next((i for i, entry in enumerate(waiting) if entry.job == job), -1)
    for i, entry in enumerate(waiting[: mine + 1]):
        if i == mine or finishing(waiting[mine]):
            with progress.phase("publishing", total=sum(len(t.data_files) for t in entry.tasks)) as bar:
                protocol.publish(log, entry, lambda done, _: bar.to(done))


def check_losses(losses: int, job: str, dest: str) -> None:
    """Raises StorageError where the store loses what was written, each time: the next try would end no other way."""
    if losses >= LOSSES:
        raise StorageError(
            f"the store of {dest} has lost data files of {losses} jobs of this call before they were published, the last ones of job "
            f"{job}: they were written and are gone. What was read is still at its source. Look for a rule that ends unfinished uploads, "
            f"and for whoever deletes below _quire/"
        )


def _manifests(
    runner: Runner, log: Log, work: Work, planned: list[PlannedTask], progress: Progress
) -> list[Task] | None:  # fmt: skip
    """Start attempts until each task has a manifest; None: the job has an outcome."""
    store, job = log.store, work.head.job
    total, shares = sum(t.bytes for t in planned), _Shares(planned, [root.account for root in work.roots])
    with progress.phase(kinds.of(work.head).phase, total=total, unit="B") as bar:
        watch = functools.partial(_watch, log, job, planned, shares, bar, retries := dict[int, int]())
        tries, patience = 0, Patience(progress.again)
        while tries < ATTEMPTS:
            missing = sorted(set(range(len(planned))) - protocol.finished(store, job))
            if not missing or log.read_on().outcome(job) is not None:
                break
            groups = _groups([planned[i] for i in missing], runner.parallelism, [shares.accounts(i) for i in missing])
            outcomes = runner.run(functools.partial(attempt, work), missing, groups=groups, watch=watch)
            failed = [(task, o) for task, o in zip(missing, outcomes, strict=True) if isinstance(o, Failure)]
            if failed and all(failure.transient for _, failure in failed):
                patience.wait(TransientError(_said(failed, len(planned))))
                continue
            if refused := next((failure for _, failure in failed if failure.kind_of_error is RefusedError), None):
                _refuse(log, job, refused)
                return None
            tries += 1
            if failed and tries < ATTEMPTS:
                progress.say(f"{_said(failed, len(planned))}: trying again")
            elif failed and set(missing) - protocol.finished(store, job) and log.refresh().outcome(job) is None:
                _give_up(failed, len(planned), job, log.store.url)
        with ThreadPoolExecutor(protocol.PARALLEL) as pool:
            found = list(pool.map(lambda task: protocol.get_manifest(store, job, task), range(len(planned))))
        again = sum(task.stats.retries for task in found if task is not None and task.task not in retries)
        everything = shares.parts({i: t.bytes for i, t in enumerate(planned)})
        bar.to(total, tasks=len(planned), files=sum(t.files for t in planned), retries=again, parts=everything)
    if log.read_on().outcome(job) is not None:
        return None
    if any(task is None for task in found):
        if log.refresh().outcome(job) is None:
            raise QuireError(f"manifests of job {job} in {store.url} are missing: somebody deletes below _quire/. Call again to go on.")
        return None
    return [task for task in found if task is not None]


def _refuse(log: Log, job: str, refused: Failure) -> None:
    """Give up a job of which a task says that it can never be done, and raise that, unless another driver has committed it."""
    protocol.abort(log, job, scrub(refused.text, 200))
    if not isinstance(log.outcome(job), Commit):
        raise RefusedError(f"{refused.text} Nothing was committed, and nothing is left open.")


def _watch(log: Log, job: str, planned: list[PlannedTask], shares: _Shares, bar: Phase, retries: dict[int, int]) -> None:
    """Move the bar by what the store shows: finished tasks (their `retries` are kept), and the output of those under way."""
    told = sum(retries.values())
    try:
        done, under_way = protocol.finished(log.store, job), list(log.store.walk(names.attempts(job)))
        for number in sorted(done - retries.keys())[:LOOKS]:
            if (manifest := protocol.get_manifest(log.store, job, number)) is not None:
                retries[number] = manifest.stats.retries
    except StorageError:
        bar.update(0)  # only the bar stands still; a store that stays away is said by those who need it
        return
    sizes = {i: planned[i].bytes for i in done if i < len(planned)}
    files = sum(planned[i].files for i in sizes)
    for e in under_way:
        task = e.name.removeprefix(names.attempts(job) + "/").partition("-")[0]
        if task.isascii() and task.isdigit() and int(task) not in done:
            sizes[int(task)] = sizes.get(int(task), 0) + e.size
    bar.to(sum(sizes.values()), tasks=len(done), files=files, retries=sum(retries.values()) - told, parts=shares.parts(sizes))


class _Shares:
    """The bytes of each account in each task, for a progress line that shows them apart."""

    def __init__(self, planned: Sequence[PlannedTask], accounts: Sequence[str]) -> None:
        self.totals = dict[str, int]()
        self.tasks = list[dict[str, int]]()  # account → bytes, in the order in which a task reads them
        for task in planned:
            found = dict[str, int]()
            for run in task.runs:
                name = accounts[run.root] if run.root < len(accounts) else ""  # of a damaged plan: the attempt says so
                found[name] = found.get(name, 0) + run.bytes
            self.tasks.append(found)
            for name, size in found.items():
                self.totals[name] = self.totals.get(name, 0) + size

    def accounts(self, task: int) -> tuple[str, ...]:
        """Those that a task reads."""
        return tuple(sorted(self.tasks[task]))

    def parts(self, sizes: Mapping[int, int]) -> tuple[Part, ...]:
        """The parts of a progress line, of what each task has come to in bytes; none where there is one account."""
        if len(self.totals) < 2:
            return ()
        done = dict.fromkeys(self.totals, 0)
        for task, size in sizes.items():
            left = size
            for name, share in self.tasks[task].items() if task < len(self.tasks) else ():
                done[name] += min(left, share)
                left -= min(left, share)
        return tuple(Part(name, done[name], total) for name, total in sorted(self.totals.items()))


def _groups(tasks: Sequence[PlannedTask], parallelism: int, accounts: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Which tasks share a task of the engine: small ones of the same accounts do, as long as everybody has work.

    They are in the order in which they should begin: those of each account spread over the whole time, so that all are read at once.
    """
    weights = [max(t.bytes / SMALL, t.files / FEW) for t in tasks]
    limit = min(1.0, sum(weights) / (2 * parallelism))
    groups = dict[tuple[str, ...], list[list[int]]]()
    room = dict.fromkeys(accounts, 0.0)
    for i, (of, weight) in enumerate(zip(accounts, weights, strict=True)):
        mine = groups.setdefault(of, [])
        if not mine or weight > room[of]:
            mine.append([])
            room[of] = limit
        mine[-1].append(i)
        room[of] -= weight
    turns = [((turn + 0.5) / len(mine), group[0], group) for mine in groups.values() for turn, group in enumerate(mine)]
    return [group for *_, group in sorted(turns)]


def _check(tasks: list[Task], planned: list[PlannedTask], job: str) -> None:
    """Gathered, quarantined and deferred must be what the plan assigned, before anything is committed."""
    for task, plan in zip(tasks, planned, strict=True):
        stats, left = task.stats, [x for x in task.coverage.left if x.path not in plan.removes]
        accounted = stats.gathered + stats.quarantined_files + stats.waiting + len(left)
        if not accounted == stats.assigned == plan.files or set(task.coverage.removes) - plan.removes.keys():
            raise QuireError(
                f"task {task.task} of job {job} was given {plan.files:,} files and accounts for {task.stats.gathered:,} gathered, "
                f"{task.stats.quarantined_files:,} quarantined and {len(task.coverage.left):,} deferred: nothing was committed. "
                f"Give it up with recover(dest, abort={job!r})."
            )


def _check_schema(log: Log, tasks: list[Task], head: PlanHead, *, alone: bool = False) -> None:
    """Give up a job whose function gave rows of two schemas, or none that fit to those that are there: nobody could read both.

    `alone`: what the tasks have made is not shown beside what is there, since a shuffle comes after it.
    """
    why = _differing(log, tasks, head, alone=alone)
    if not why and "verb" not in head.intent and not any(task.schema for task in tasks):
        # Where others fit, what does not is in quarantine; where none does, the function has changed, or what it is given.
        why = next((task.differs for task in tasks if task.differs), "")
    if why:
        protocol.abort(log, head.job, "rows of two schemas")
        grows = "" if head.intent.keys() & {"verb", "schema_evolution"} else schemas.GROWS
        raise RefusedError(
            f"the function gave rows of two schemas: {scrub(why, 400)}. Nothing was committed. Let it give the same columns for "
            f"every file, or gather into another destination.{grows}"
        )


def _differing(log: Log, tasks: list[Task], head: PlanHead, *, alone: bool = False) -> str:
    """The first file whose rows do not go together with those of others, or of the destination, and which columns these are."""
    of_rows = [task for task in tasks if task.schema]
    evolves = columns.MORE if head.intent.get("schema_evolution") == "add" and not alone else ""
    found = None
    if of_rows and not alone:
        found, evolves = schemas.there(log), schemas.evolving(log, evolves)
    for task in of_rows:
        try:
            found = columns.nullable(columns.together(found, schemas.parse(task.schema), evolves))
        except DiffersError as e:
            return f"{task.schema_of}: {e}" if task.schema_of else str(e)
    return ""


def agree(log: Log, head: PlanHead, tasks: list[Task]) -> str:
    """Why the rows of a job cannot lie beside those that others have committed meanwhile; "" where they can."""
    if not same_columns(log, head, tasks):  # nearly always
        return ""
    try:
        why = _differing(log, tasks, head)
    except UsageError:  # columns that others have written, of types without a name here
        return TWO
    return f"{TWO}: {scrub(why, 200)}" if why else ""


def _first_quarantined(log: Log, tasks: list[Task]) -> str:
    from quire.coverage.segments import read

    for task in tasks:
        if task.stats.quarantined and task.coverage.segment:
            try:
                rows = read(log.store, task.coverage.segment, ["path", "state", "reason", "member"]).to_pylist()
            except FormatError:  # another driver has given the job up, or dropped the task, and cleaned
                continue
            return next((f"{identified(r['path'], r['member'])}: {r['reason']}" for r in rows if r["state"] == "quarantined"), "")
    return ""


def _said(failed: list[tuple[int, Failure]], total: int) -> str:
    task, failure = failed[0]
    return f"{len(failed)} of {total} tasks failed; task {task}: {failure}"


def _give_up(failed: list[tuple[int, Failure]], total: int, job: str, dest: str) -> None:
    kind = failed[0][1].kind_of_error
    if kind is DataLossError:  # to call again in the same words brings nothing back
        raise kind(f"{failed[0][1].text.rstrip('.')}. Or give job {job} up with recover({dest!r}, abort={job!r}).")
    raise kind(
        f"{_said(failed, total)} ({ATTEMPTS} times). Nothing of job {job} is visible in {dest}, and what is done is kept: call again to go "
        f"on, or give it up with recover(dest, abort={job!r})."
    )
