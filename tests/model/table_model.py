"""The protocol of tables, checked in every order: who closes a job, which instant it has, when it appears on the timeline.

The steps before it (plan, attempts, manifests, clean) are those of `model.py`. Here are only those that a table adds, for one partition:

    closing run   read the log (version v), publish what stands in it; read the timeline's newest slices; draw an instant later than all
                  known ones; write new slices where nobody sees them; put the manifest of this round if absent
    commit        at the log's tip: the same instant or a later one, or a commit since v that touched a file group of the run, or that inserted as it did,
                  ends the round, and the next closing run follows; else the commit takes the slot
    publish       in log order: the slices get their places, then the completed instant appears, then `published` is in the log; a commit
                  that lost a slice is void: no instant appears

Each `yield` is one operation of the store, and an actor may pause there for ever. Another program (`foreign`) may write by Hudi's rules at any
moment: it reads, writes and completes its instant in one step. It may also roll the newest instant back, when that is ours: the instant and its
slices go in one step, and whoever looks next enters that into the log (`undone`), so that the batch is committed again. It takes turns then: it
does so while no commit of ours is between its last look at the timeline and its publication, and while no publisher has yet to put its instant.
The search goes over all orders, breadth first; from every state that was reached all actors are killed and one run without faults follows.

A batch "over…" replaces all rows, and "drop…" takes them away: the file groups that are there end with its instant. So they do with that of a
batch "cluster", which brings their rows into a new one.

Of a merge-on-read table (`Case.appends`) a batch puts its updates into logs, and two more jobs are there:

    schedule      a round without files, which names file groups and their logs; its publication puts the plan on the timeline
    compact       the run of a plan, at the plan's instant: base files with what the logs of the plan say, which nobody changes any more

Other programs may then take time to write, schedule, run a plan and take one back; listings may not show a plan yet. A file group may be of logs
alone (`Case.alone`), which another program has begun.

Three more are there in a copy-on-write table, none of which writes a file:

    clean         deletes the slices that later ones have superseded, but for those that a pin or a savepoint holds
    save          a savepoint of the last instant but one; another program may make one, too (`saves`)
    pin           an entry of the log: a reader wants the table as of the last instant but one

And these, after which readers find less on the timeline, or in the partition:

    back<n>       a restore to the instant n: the later ones go, the newest first, then their slices; whoever looks next enters that into the
                  log (`undone`), as if another program had done it
    archive       the instants before the last one leave the timeline, as far as nothing holds them; their slices stay. Readers list instants
                  first and archives then, in two steps; other programs take each slice for committed that is older than the timeline
    chain         hands the table's writes on to a second one, in their order, each with its mark; it ends where one was taken back

In a table of version 9 (`Case.nine`) an instant also ends: ours a step after it, that of a program which takes time when it completes, which it does
in its turn, too, as by a lock. Readers of changes follow the ends, and a log is of the slice that was begun last when it ended; so a plan may be laid
beside such a program.

Not modelled: `.inflight`, and `.requested` of writes; more partitions; the time for which a clean keeps what was superseded; the updates that
other programs lose.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Generator
from itertools import pairwise
from typing import Any

Store = dict[tuple[Any, ...], Any]
Op = tuple[Any, ...]
Actor = Generator[Op, Any, Any]
BUDGET = ("foreign", "slow", "expire", "undo", "checkpoints", "plans", "runs", "lags", "saves")  # of a case: how often each may happen
ENDED = "ended"  # of a slice in a commit: its file group ends, and readers pass over all files of it
ROUNDS = 4  # of one driver, after which it would give up
SEED = ("seed", (("g0", None, True, None),))  # an instant: its writer, and its files, as a commit has them
ALONE = ("seed", (("g1", None, True, 1),))  # the same, of logs without a base file


@dataclasses.dataclass(frozen=True)
class Case:
    """Who acts: the drivers with their batches, each of which upserts keys ("-k1" deletes k1); and what may happen to them."""

    name: str
    drivers: tuple[tuple[Any, ...], ...]  # batch and keys; and the batch that the same driver closes first
    appends: bool = False  # merge-on-read: updates go into logs, and "schedule" and "compact" are drivers, too
    nine: bool = False  # version 9: instants have ends
    alone: bool = False  # another program has begun a file group of logs alone, with k2, which an index of buckets names by the key
    before: tuple[tuple[Any, ...], ...] = ()  # who was there first, undisturbed
    last: tuple[tuple[Any, ...], ...] = ()  # whom the run without faults calls, in this order; (): all, as they came
    foreign: int = 0  # writes of another program, each of which updates k1
    slow: int = 0  # of them that take time, or never complete
    plans: int = 0  # compactions that another program schedules
    runs: int = 0  # plans that another program runs
    lags: int = 0  # how often listings do not show a plan yet
    saves: int = 0  # savepoints that another program makes
    expire: int = 0  # slices that the store loses before they are published
    undo: int = 0  # instants of ours that another program rolls back
    checkpoints: int = 0  # that stand for all that the log says by then
    clocks: tuple[int, ...] = (0, 1)  # how far each driver's clock is ahead: equal ones draw the same instants
    bug: str = ""

    @property
    def archives(self) -> bool:
        """Whether instants may leave the timeline for the archive, so that to look at it takes two steps."""
        return any("archive" in one for one in self.before + self.drivers)

    @property
    def everybody(self) -> dict[str, tuple[str, ...]]:
        """Batch → its keys."""
        every = self.before + self.drivers + self.last
        return {batch: keys for batch, keys, *_ in every} | {first: () for *_, first in every if replaces(str(first))}


# ------------------------------------------------------------------------------------------------------------- what a log says
def commits(log: tuple[Any, ...]) -> list[Any]:
    """("commit", batch, round, run, instant, version, slices).

    Of a slice its file group, the base on which it was built, whether the group is new, and what is written: None, a base file; an instant,
    a log of the slice that begins there; logs, nothing but the plan of a compaction, which names them; ENDED, nothing.
    """
    return [entry for entry in log if entry[0] == "commit"]


def files_of(run: Any, instant: int, slices: tuple[Any, ...]) -> dict[str, Op]:
    """File group → the place of the file that a run writes."""
    return {
        group: ("slice", group, instant, run) if begun is None else ("logfile", group, begun, instant, run)
        for group, _, _, begun in slices
        if not isinstance(begun, tuple) and begun != ENDED
    }


def replaces(batch: str) -> bool:
    """Whether a batch replaces all rows that are there."""
    return batch.startswith(("over", "drop"))


def ended(timeline: Shown) -> set[str]:
    """The file groups that have ended, whatever comes into them later."""
    return {group for _, slices in timeline.values() for group, _, _, begun in slices if begun == ENDED}


def moves(batch: str) -> bool:
    """Whether a batch lays rows out anew: it inserts none, whatever file groups it begins."""
    return batch.startswith("cluster")


def runs_plan(batch: str) -> bool:
    """Whether a batch is the run of a plan: its name is the plan's instant."""
    return batch.startswith("compact")


def keeps(batch: str) -> bool:
    """Whether a batch writes no row: a clean, a savepoint, a restore or an archive."""
    return batch.startswith(("clean", "save", "back", "archive"))


def taken_by(entry: Any) -> set[int]:
    """The instants that a commit takes back."""
    return {t for _, t, _, begun in entry[6] if begun[0] == "taken"} if entry[1].startswith("back") else set()


def published(log: tuple[Any, ...], run: Any) -> Any:
    return next((entry for entry in log if entry[0] == "published" and entry[1] == run), None)


def ours(log: tuple[Any, ...]) -> dict[Any, bool]:
    """The runs whose instants appeared, and whether another program has rolled them back: by the last checkpoint and what came after it."""
    found = dict[Any, bool]()
    for entry in log:
        if entry[0] == "checkpoint":
            found = dict(entry[1])
        elif entry[0] == "published" and not entry[2]:
            found.setdefault(entry[1], False)
        elif entry[0] == "undone":
            found[entry[1]] = True
    return found


def counts(log: tuple[Any, ...], entry: Any) -> bool:
    """Whether a commit is neither void nor rolled back, as far as the log knows."""
    said = published(log, entry[3])
    return (said is None or not said[2]) and not ours(log).get(entry[3], False)


def done(case: Case, log: tuple[Any, ...], batch: str) -> bool:
    """Whether the ledger has the splits of a batch."""
    if case.bug == "undone_keeps_splits":
        log = tuple(entry for entry in log if entry[0] != "undone")
    if case.bug == "undone_by_batch" and any(entry[0] == "undone" and entry[1][0] == batch for entry in log):
        return False
    return any(entry[1] == batch and (counts(log, entry) or case.bug == "void_keeps_splits") for entry in commits(log))


def plan_of(batch: str) -> int:
    return int(batch.removeprefix("compact").partition(".")[0])


def end_of(case: Case, entry: Any) -> int:
    """When what an entry brings ends: a commit of ours, or the instant of another program; a plan and its run bring nothing."""
    if entry[0] == "foreign":
        return int(entry[1] if case.bug == "end_ignored" else entry[3])
    return int(entry[4]) + (case.nine and entry[1] != "schedule" and not runs_plan(entry[1]))


def unknown(case: Case, log: tuple[Any, ...], timeline: Shown) -> Any:
    """The entry that the log needs for what another program has done to the timeline; None: it says it all."""
    # A plan of ours that another program has run is a write of theirs.
    said = {entry[4] for entry in commits(log) if entry[1] != "schedule"} | {entry[1] for entry in log if entry[0] == "foreign"}
    strange = sorted(t for t in timeline if t not in said)
    if strange and case.bug != "foreign_no_conflict":
        return ("foreign", strange[0], tuple(group for group, *_ in timeline[strange[0]][1]), timeline.end(strange[0]))
    there = ours(log)
    for _, batch, _, run, instant, _, slices in (entry for entry in commits(log) if not keeps(entry[1])):
        on = instant in timeline or instant in timeline.named if batch == "schedule" else timeline.get(instant, ("",))[0] == run
        if not there.get(run, True) and not on:
            return ("undone", run, tuple(group for group, *_ in slices))
    return None


def unpublished(log: tuple[Any, ...]) -> list[Any]:
    return [entry for entry in commits(log) if published(log, entry[3]) is None]


def known(log: tuple[Any, ...]) -> set[int]:
    return {entry[4] for entry in commits(log)} | {entry[1] for entry in log if entry[0] == "foreign"}


def ends_round(case: Case, batch: str, manifest: Any, log: tuple[Any, ...], timeline: Shown) -> bool:
    """Whether a closing run must be repeated: once true it stays so, as the log only grows; so all drivers agree."""
    _, instant, version, slices = manifest
    groups, inserts = {group for group, _, new, _ in slices if not new}, any(new for _, _, new, _ in slices) and not moves(batch)
    backs = (entry for entry in commits(log[version:]) if entry[1].startswith("back"))
    if any(counts(log, entry) for entry in backs) and case.bug != "back_no_conflict":
        return True
    if keeps(batch):
        return outdated(case, batch, manifest, log, timeline)
    if case.bug in ("ended_no_conflict", "moved_no_conflict"):
        groups -= {group for group, _, _, begun in slices if begun == ENDED}
    if runs_plan(batch):
        at = plan_of(batch)
        undone = any(entry[0] == "undone" and set(entry[2]) & groups for entry in log[version:])
        return at in timeline or at not in timeline.named or (undone and case.bug != "run_despite_undone")
    for group, _, _, begun in slices:
        # No log of the slice before is in a plan that came since, and no group in two plans.
        begins = [at for at, plan in timeline.asked if group in plan]
        # Since version 9 a log is of the slice that was begun last when it ended.
        past = case.nine and isinstance(begun, int) and begins and begins[-1] <= instant + 1
        if begun is not None and begins and begins[-1] != begun and not past:
            if case.bug not in ("foreign_plan_ignored", "logs_in_old_slice", "later_plan_ignored"):
                return True
    for entry in log[len(log) if case.bug == "conflict_since_restart" else version :]:
        if entry[0] == "foreign":
            other, touched, inserted = end_of(case, entry), set(entry[2]), False
            if case.bug == "foreign_no_conflict":
                continue
        elif entry[0] == "undone" and case.bug != "undone_no_conflict":
            # What it had deleted is in older slices again: to find no key in its slices says nothing any more.
            other, touched, inserted = -1, set(entry[2]), case.bug != "undone_allows_inserts"
        elif entry[0] == "commit" and keeps(entry[1]):
            if entry[1].startswith("clean") and entry[4] == instant:
                return True
            continue
        elif entry[0] == "commit" and counts(log, entry):
            other, touched = end_of(case, entry), {g for g, _, new, _ in entry[6] if not new}
            inserted = any(new for _, _, new, _ in entry[6]) and not moves(entry[1])
            if case.bug in ("ended_no_conflict", "moved_no_conflict"):
                touched -= {group for group, _, _, begun in entry[6] if begun == ENDED}
            elif entry[1] != "schedule" and not runs_plan(entry[1]) and case.bug != "replace_no_conflict":
                if replaces(batch) or replaces(entry[1]):
                    return True  # whatever it has written, also new file groups
            if runs_plan(entry[1]) or (case.bug == "schedule_no_conflict" and entry[1] == "schedule"):
                touched = set()  # the slice that a run completes was begun when its plan was laid
        else:
            continue
        if entry[0] == "undone" and replaces(batch):
            return True
        if case.bug != "later_instant_allowed" and (other > instant or (other == instant and case.bug != "same_instant_allowed")):
            return True
        if touched & groups and case.bug != "group_no_conflict":
            return True
        if inserts and inserted and case.bug != "insert_no_conflict":
            return True
    return False


def outdated(case: Case, batch: str, manifest: Any, log: tuple[Any, ...], timeline: Shown) -> bool:
    """Whether what a clean, a savepoint, a restore or an archive has seen does not hold any more."""
    _, instant, version, slices = manifest
    clean, since, saved = batch.startswith("clean"), log[version:], {*timeline.saved} - {*slices[0][1]}
    if batch.startswith("back"):
        kinds = {"foreign", "undone"} | {kind for kind in ("commit", "pin") if case.bug != f"back_despite_{kind}"}
        return any(entry[0] in kinds for entry in since) or bool(saved and case.bug != "back_despite_savepoint")
    if batch.startswith("archive"):
        held = any(entry[0] == "pin" or (entry[0] == "commit" and entry[1].startswith(("save", "archive"))) for entry in since)
        undone = any(entry[0] == "undone" for entry in since) and case.bug != "archive_despite_undone"
        # Beside another program: an older write, if it is void and leaves a file, would be one of before the timeline.
        older = (
            any(entry[0] == "commit" and not keeps(entry[1]) and entry[4] < instant for entry in since)
            and case.bug != "archive_despite_older"
        )
        return undone or older or ((held or any(at < instant for at in saved)) and case.bug != "archive_despite_pin")
    for entry in log[version:]:
        if entry[0] == "undone" and case.bug != "clean_despite_undone":
            return True
        if entry[0] == "pin" and clean and case.bug != "pin_beside_clean":
            return True
        if entry[0] == "commit" and clean and entry[4] == instant:
            return True
        if entry[0] == "commit" and keeps(entry[1]) and (clean or entry[1].startswith("clean")) and case.bug != "saved_beside_clean":
            return True
        if entry[0] == "commit" and entry[1].startswith("archive") and not clean and entry[4] > instant:
            return True
    return clean and case.bug != "saved_by_others" and bool(saved)


def as_of(timeline: Shown, instant: int) -> dict[str, int]:
    """File group → the instant of its slice as of an instant."""
    found = {group: (t, begun) for t in sorted(timeline) if t <= instant for group, _, _, begun in timeline[t][1]}
    return {group: t for group, (t, begun) in found.items() if begun != ENDED}


def superseded(timeline: Shown, held: set[int], pins: set[int]) -> list[tuple[str, int, int]]:
    """File group, instant of the slice and of the one after it, of all that nobody reads as of an instant that is held, or after a pin."""
    found, last = list[tuple[str, int, int]](), dict[str, int]()
    for t in sorted(timeline):
        for group, *_ in timeline[t][1]:
            if group in last and t <= min(pins, default=t) and not any(last[group] <= one < t for one in held):
                found.append((group, last[group], t))
            last[group] = t
    return found


# ------------------------------------------------------------------------------------------------------------------- the actors
def driver(case: Case, me: int, batch: str, keys: tuple[str, ...], first: str = "") -> Actor:
    """One call of `upsert`, of the schedule of a compaction, or of its run: recover, then closing runs until one is committed."""
    if first:
        yield from driver(case, me, first, ())
    if batch == "pin":
        return (yield from pin(case, me))
    if batch == "chain":
        return (yield from chain(case))
    yield from recover(case)
    if batch == "compact":
        timeline = yield ("timeline",)
        if not timeline.asked:
            return
        batch = f"compact{timeline.asked[0][0]}" + (f".{me}" if case.bug == "run_by_any_name" else "")
    backs = sum(other.startswith("back") for other in case.everybody)
    for number in range(ROUNDS * (1 + case.expire + case.undo + case.plans + backs)):
        log = yield ("log",)
        if done(case, log, batch):
            yield from recover(case)
            log = yield ("log",)
            if done(case, log, batch):
                return
            continue  # it was void, or rolled back: the rows are upserted again
        void = sum(entry[1] == batch for entry in commits(log))
        manifest = yield ("get", ("manifest", batch, void, number))
        if manifest is None:
            run = (batch, void, number, me)
            made = yield from closing(case, run, keys, batch, void)
            if made == "failed":
                return "failed"  # with a line that says so: whoever calls again goes on
            if made == "nothing":
                return
            if made is None:
                continue  # a driver of the same batch was quicker
            yield ("absent", ("manifest", batch, void, number), made)
            manifest = yield ("get", ("manifest", batch, void, number))
        while True:
            log = yield ("log",)
            if sum(entry[1] == batch for entry in commits(log)) > void:
                break
            timeline = yield from looked(case, log)
            if (entry := unknown(case, log, timeline)) is not None:
                yield from enter(case, log, entry)
                continue
            if ends_round(case, batch, manifest, log, timeline):
                break
            if batch == "schedule" and timeline.pending and case.bug not in ("pending_ignored", "pending_read_early"):
                return "failed"
            run, instant, version, slices = manifest
            if batch.startswith(("clean", "archive")) and case.bug != (
                "not_expired" if batch.startswith("clean") else "archive_not_expired"
            ):
                gone = instant if batch.startswith("archive") else max(end for *_, (_, _, end) in slices[1:])
                if not any(entry[0] == "expired" and entry[1] >= gone for entry in log):
                    yield ("slot", len(log), ("expired", gone))
                    continue
            if (yield ("slot", len(log), ("commit", batch, number, run, instant, version, slices))):
                break
    return "gave up"


def closing(case: Case, run: Any, keys: tuple[str, ...], batch: str, void: int) -> Actor:
    """One closing run; its manifest; None where the batch has been committed by now; "failed" where a slice is gone."""
    timeline = None
    if case.bug == "version_read_late":
        timeline = yield ("timeline",)
    while True:
        log = yield ("log",)
        if sum(entry[1] == batch for entry in commits(log)) > void:
            return None
        if not unpublished(log) or case.bug == "built_on_unpublished" or (case.bug == "plan_on_unpublished" and batch == "schedule"):
            break
        yield from recover(case)
    version = len(log)
    if timeline is None:
        timeline = yield from looked(case, log)
    while case.bug != "listing_trusted" and any(hidden(entry, log, timeline) for entry in commits(log)):
        timeline = yield ("timeline",)
    taken = [*timeline, *known(log), *timeline.named, *timeline.pending]
    if case.nine and case.bug != "drawn_before_ends":
        taken += [*map(timeline.end, timeline), *(end_of(case, entry) for entry in log if entry[0] in ("commit", "foreign"))]
    instant = max(taken) + 1 + case.clocks[run[3] % 10 % len(case.clocks)]
    if keeps(batch):
        return (yield from keeping(case, run, batch, (log, timeline, instant)))
    if case.appends:
        return (yield from merging(case, run, keys, batch, (log, timeline, instant)))
    newest = {}
    for t in sorted(timeline):
        for group, *_ in timeline[t][1]:
            newest[group] = t
    newest = {group: t for group, t in newest.items() if group not in ended(timeline)}
    if replaces(batch):
        return (yield from replacing(run, keys, (instant, version), newest))
    if moves(batch):
        return (yield from moving(run, (instant, version), newest, timeline))
    held = {}
    for group, t in sorted(newest.items()):
        rows = yield ("get", ("slice", group, t, timeline[t][0]))
        if rows is None:
            return "failed"
        for key, _ in rows:
            held[key] = (group, t)
    slices, written = [], {}
    for key in keys:
        deletes, key = key.startswith("-"), key.removeprefix("-")
        if deletes and key not in held:
            continue
        group, base = held.get(key, (f"{run[0]}{run[1]}{run[2]}{run[3]}", None))
        if group not in written:
            rows = (yield ("get", ("slice", group, base, timeline[base][0]))) if base is not None else ()
            if rows is None:
                return "failed"
            written[group] = dict(rows)
            slices.append((group, base, base is None, None))
        if deletes:
            del written[group][key]
        else:
            written[group][key] = (*written[group].get(key, ()), batch)
    for group, rows in sorted(written.items()):
        where = ("slice", group, instant, run) if case.bug == "written_in_place" else ("waits", group, instant, run)
        yield ("put", where, tuple(sorted(rows.items())))
    return (run, instant, version, tuple(slices))


def replacing(run: Any, keys: tuple[str, ...], at: tuple[int, int], newest: dict[str, int]) -> Actor:
    """The rest of a closing run that replaces all rows."""
    instant, version = at
    slices: list[Any] = [(group, base, False, ENDED) for group, base in sorted(newest.items())]
    if keys:
        group = f"{run[0]}{run[1]}{run[2]}{run[3]}"
        yield ("put", ("waits", group, instant, run), tuple((key, (run[0],)) for key in keys))
        slices.append((group, None, True, None))
    return (run, instant, version, tuple(slices))


def moving(run: Any, at: tuple[int, int], newest: dict[str, int], timeline: Shown) -> Actor:
    """The rest of a closing run that lays all rows out anew; "nothing" where there is none."""
    instant, version = at
    found: dict[str, tuple[str, ...]] = {}
    for group, base in sorted(newest.items()):
        rows = yield ("get", ("slice", group, base, timeline[base][0]))
        if rows is None:
            return "failed"
        found.update(rows)
    if not newest:
        return "nothing"
    into = f"{run[0]}{run[1]}{run[2]}{run[3]}"
    yield ("put", ("waits", into, instant, run), tuple(sorted(found.items())))
    return (run, instant, version, (*((group, base, False, ENDED) for group, base in sorted(newest.items())), (into, None, True, None)))


def hidden(entry: Any, log: tuple[Any, ...], timeline: Shown) -> bool:
    """Whether a listing does not show yet the plan that a commit of the log has put, which is there when it is asked for by name."""
    plan, at = entry[1] == "schedule" and published(log, entry[3]) is not None, entry[4]
    return plan and at in timeline.named and at not in timeline and all(at != asked for asked, _ in timeline.asked)


def merging(case: Case, run: Any, keys: tuple[str, ...], batch: str, seen: Any) -> Actor:
    """The rest of a closing run of a merge-on-read table; "nothing" where a plan is run already, or has nothing to name."""
    log, timeline, instant = seen
    plans, files = dict(timeline.asked), (yield ("files",))
    table = slices_of(timeline, dict(files), by_end=case.bug != "log_by_instant")
    if table is None:
        return "failed"
    slices, written = list[Any](), dict[str, Any]()
    if replaces(batch):
        if any(group in table for plan in plans.values() for group in plan):
            return "failed"  # with a line that says so: compact first
        return (yield from replacing(run, keys, (instant, len(log)), {group: one.base for group, one in table.items()}))
    if batch == "schedule":
        if timeline.pending and case.bug == "pending_read_early":
            return "failed"
        busy = {group for plan in plans.values() for group in plan}
        slices = [(group, one.base, False, one.logs) for group, one in sorted(table.items()) if one.logs and group not in busy]
    elif runs_plan(batch):
        at = plan_of(batch)
        if at not in plans:
            return "nothing"
        instant = instant if case.bug == "run_draws_instant" else at
        for entry in commits(log):
            if entry[1] == batch and not counts(log, entry) and case.bug != "void_run_left":
                for place in files_of(entry[3], entry[4], entry[6]).values():
                    yield ("del", place)
        for group, (base, logs) in sorted(plans[at].items()):
            if base is None and case.bug == "run_needs_base":
                continue
            logs = table[group].logs if case.bug == "plan_at_run" else logs
            slices.append((group, base, False, None))
            written[group] = merged(dict(files), timeline, base_of(timeline, group, base), logs)
    else:
        held = {key: group for group, one in table.items() for key in one.keys} | ({"k2": "g1"} if case.alone else {})
        for at, plan in plans.items() if case.bug != "deleted_in_plan_found" else ():
            for group, (base, logs) in plan.items():  # what logs of a plan delete is in no base file from its run on
                if group in table and table[group].base == base:
                    stays = merged(dict(files), timeline, base_of(timeline, group, base), logs)
                    held = {key: there for key, there in held.items() if there != group or key in stays}
        for key in keys:
            deletes, name = key.startswith("-"), key.removeprefix("-")
            if deletes and name not in held:
                continue
            group = held.get(name, f"{run[0]}{run[1]}{run[2]}{run[3]}")
            if group not in written:
                base, last = (table[group].base, table[group].begun) if name in held else (None, None)
                begun = max([last or 0, *(at for at, plan in plans.items() if group in plan and case.bug != "logs_in_old_slice")])
                if case.nine or (base is None and case.bug == "log_begins_slice"):
                    begun = instant
                slices.append((group, base, last is None, None if last is None else begun))
            written[group] = {**written.get(group, {}), name: None if deletes else (batch,)}
    if not slices and (batch == "schedule" or runs_plan(batch)):
        return "nothing"
    for group, rows in sorted(written.items()):
        yield ("put", ("waits", group, instant, run), tuple(sorted(rows.items())))
    return (run, instant, len(log), tuple(slices))


def keeping(case: Case, run: Any, batch: str, seen: Any) -> Actor:
    """The rest of a closing run of a clean, of a savepoint, of a restore or of an archive."""
    log, timeline, instant = seen
    saved = tuple(timeline.saved)
    pins = {entry[1] for entry in log if entry[0] == "pin"}
    if batch.startswith("back"):
        at = int(batch.removeprefix("back"))
        taken = sorted(t for t in timeline if t > at)
        if not taken:
            return "nothing"
        if at not in timeline or at < timeline.horizon or max([*pins, *saved], default=-1) >= taken[0]:
            return "failed"
        for group, t in sorted(as_of(timeline, at).items()):
            if (yield ("get", ("slice", group, t, timeline[t][0]))) is None and case.bug != "back_to_cleaned":
                return "failed"
        gone = [(group, t, False, ("taken", timeline[t][0])) for t in taken for group, *_ in timeline[t][1]]
        return (run, instant, len(log), (("saved", saved, False, ("saved",)), *gone))
    if batch.startswith("archive"):
        stops = [max(timeline), *([] if case.bug == "archive_past_pin" else pins), *saved]
        for _, _, _, other, at, _, slices in (
            entry for entry in commits(log) if not counts(log, entry) and case.bug != "archive_past_void"
        ):
            for group, place in files_of(other, at, slices).items():
                if (yield ("get", place)) is not None or (yield ("get", ("waits", group, at, other))) is not None:
                    stops.append(at)
        for t in sorted(timeline) if case.bug != "archive_past_replaced" else ():
            for group, base, _, begun in timeline[t][1]:
                if begun == ENDED and (yield ("get", ("slice", group, base, timeline[base][0]))) is not None:
                    stops.append(t)
        first = max((t for t in timeline if t <= min(stops)), default=0)
        going = tuple((t, timeline[t]) for t in sorted(timeline) if timeline.horizon <= t < first)
        return (
            (run, first, len(log), (("saved", saved, False, ("saved",)), ("archived", going, False, ("archived",)))) if going else "nothing"
        )
    if batch.startswith("clean"):
        there = superseded(timeline, {*saved}, pins if case.bug != "pins_ignored" else set())
        gone = []
        for group, t, end in there:
            if (yield ("get", ("slice", group, t, timeline[t][0]))) is not None:
                gone.append((group, t, False, ("gone", timeline[t][0], end)))
        return (run, instant, len(log), (("saved", saved, False, ("saved",)), *gone)) if gone else "nothing"
    at = sorted(timeline)[-2] if len(timeline) > 1 else max(timeline)
    for group, t in sorted(as_of(timeline, at).items()):
        if (yield ("get", ("slice", group, t, timeline[t][0]))) is None:
            return "failed"
    return (run, at, len(log), (("saved", saved, False, ("saved",)),))


def pin(case: Case, me: int) -> Actor:
    """Keep the table readable as of the last instant but one, unless that has expired."""
    while True:
        log = yield ("log",)
        if any(entry[:1] == ("pin",) and entry[2] == me for entry in log):
            return None
        instants = sorted(entry[4] for entry in commits(log) if not keeps(entry[1]) and published(log, entry[3]))
        at = instants[-2]
        if any(entry[0] == "expired" and entry[1] > at for entry in log):
            return "failed"
        if any(at in taken_by(entry) for entry in commits(log)) and case.bug != "pin_of_taken_back":
            return "failed"
        yield ("slot", len(log), ("pin", at, me))


def chain(case: Case) -> Actor:
    """Hand on what has been written, one write after the other, each with its mark; "failed" where one was taken back."""
    for _ in range(3):
        second = yield ("get", ("second",))
        yield from recover(case)
        log = yield ("log",)
        timeline = yield from looked(case, log)
        if case.bug != "chain_ignores_undone" and any(entry[0] == "undone" and entry[1] in second for entry in log):
            return "failed"
        following = [entry[3] for entry in commits(log) if counts(log, entry) and not keeps(entry[1]) and entry[4] in timeline]
        if not (left := [run for run in following if run not in second]):
            return None
        yield ("mark", second, (*second, left[-1 if case.bug == "chain_newest_first" else 0]))
    return None


def looked(case: Case, log: tuple[Any, ...]) -> Actor:
    """The timeline as a reader has it who has read the log. What a restore has taken back, and a publisher who slept has put again, goes."""
    if case.archives:
        parts = yield ("part", "archived") if case.bug == "archives_first" else ("part", "instant")
        parts += yield ("part", "instant") if case.bug == "archives_first" else ("part", "archived")
        timeline = Shown(dict(parts))
    else:
        timeline = yield ("timeline",)
    taken = {t for entry in commits(log) if entry[1].startswith("back") and published(log, entry[3]) for t in taken_by(entry)}
    for t in sorted(taken & {*timeline}):
        if case.bug != "put_again_stays":
            yield ("del", ("instant", t))
    return timeline.without(taken) if taken & {*timeline} else timeline


def recover(case: Case) -> Actor:
    """Enter what others have written, and publish in log order."""
    while True:
        timeline = None
        if case.bug == "timeline_before_log":
            timeline = yield ("timeline",)
        log = yield ("log",)
        if timeline is None:
            timeline = yield from looked(case, log)
        if (entry := unknown(case, log, timeline)) is None:
            break
        yield from enter(case, log, entry)
    waiting = unpublished(log)
    for entry in reversed(waiting) if case.bug == "published_out_of_order" else waiting:
        yield from publish(case, entry)


def enter(case: Case, log: tuple[Any, ...], entry: Any) -> Actor:
    """Say what another program has done, in the slot after the log that was read; whoever was slower reads it again."""
    put = yield ("slot", len(log), entry)
    if not put and case.bug == "undone_blind_retry":
        log = yield ("log",)
        yield ("slot", len(log), entry)


def publish(case: Case, entry: Any) -> Actor:
    _, batch, _, run, instant, _, slices = entry
    if batch.startswith("clean"):
        yield ("absent", ("cleaning", instant), slices[1:])
        for group, t, _, (_, by, _) in slices[1:]:
            yield ("del", ("slice", group, t, by))
    if batch.startswith("save"):
        yield ("absent", ("saved", instant), True)
    if batch.startswith("back") and (yield ("get", ("back", instant))) is None:
        instants = [("instant", t) for t in sorted(taken_by(entry), reverse=case.bug != "back_oldest_first")]
        files = [("slice", group, t, by) for group, t, _, (_, by) in slices[1:]]
        yield ("absent", ("backing", instant), tuple(sorted(taken_by(entry))))
        for one in [*files, *instants] if case.bug == "back_files_first" else [*instants, *files]:
            yield ("del", one)
        yield ("absent", ("back", instant), True)
    if batch.startswith("archive"):
        going = [t for t, _ in slices[1][1]]
        if case.bug != "archive_comes_last":
            yield ("absent", ("archived", instant), slices[1][1])
        for t in reversed(going) if case.bug == "archive_newest_first" else going:
            yield ("del", ("instant", t))
        yield ("absent", ("archived", instant), slices[1][1])
    if keeps(batch):
        while published(log := (yield ("log",)), run) is None and not (yield ("slot", len(log), ("published", run, False))):
            pass
        return
    places, shown = files_of(run, instant, slices), (("asked" if batch == "schedule" else "instant", instant), (run, slices))
    if case.bug == "instant_first":
        yield ("absent", *shown)
    gone = list[str]()
    for group, place in places.items():
        if not (yield ("move", ("waits", group, instant, run), place)):
            gone.append(group)
    if gone and case.bug == "lost_log_alone":
        shown, gone = (shown[0], (run, tuple(one for one in slices if one[0] not in gone))), []
    lost = bool(gone)
    if not places and case.bug != "late_publisher":
        # No file would tell that the instant was there before, and was rolled back.
        if published((yield ("log",)), run) is not None:
            return
    if not lost or case.bug == "void_appears":
        yield ("absent", *shown)
    while True:
        log = yield ("log",)
        if published(log, run) is not None or (yield ("slot", len(log), ("published", run, lost))):
            break
    if lost:
        for place in places.values():
            yield ("del", place)


def last(case: Case) -> Actor:
    """Without faults: each batch is called once more."""
    for me, one in enumerate(case.last or case.before + case.drivers):
        if (yield from driver(case, 10 + me, *one)) == "gave up":
            return "gave up"
    yield from recover(case)


# -------------------------------------------------------------------------------------------------------------------- the store
class Shown(dict[int, Any]):
    """A listing of the timeline, as an answer that a state can hold: completed instants, and what is pending.

    asked     (instant, file group → base and logs) of plans that have not been run
    named     instants of all that are there when they are asked for by name; a listing may not show the newest ones yet
    pending   instants of writes of other programs that have not completed
    horizon   the first instant that is not archived; those before are in the archive, and count
    ends      when writes of other programs have ended, in version 9
    """

    def __init__(self, d: Store, *, listed: bool = False) -> None:
        super().__init__({key[1]: value for key, value in d.items() if key[0] == "instant"})
        self.horizon = max((key[1] for key in d if key[0] == "archived"), default=0)
        self.update(one for key, going in d.items() if key[0] == "archived" for one in going)
        asked = {key[1]: value[1] for key, value in d.items() if key[0] == "asked" and key[1] not in self}
        late = {key[1] for key in d if key[0] == "hidden" and listed}
        self.asked = [(at, {one[0]: (one[1], one[3]) for one in plan}) for at, plan in sorted(asked.items()) if at not in late]
        self.named = sorted(asked)
        self.pending = sorted(key[1] for key in d if key[0] == "pending")
        self.saved = sorted(key[1] for key in d if key[0] == "saved")
        self.nine, self.ends = ("nine",) in d, {key[1]: value for key, value in d.items() if key[0] == "end"}
        self._name()

    def end(self, instant: int) -> int:
        """When an instant has ended, by which it is ordered."""
        return self.ends.get(instant, instant + self.nine)

    def _name(self) -> None:
        self._all = (
            tuple(sorted(self.items())),
            repr(self.asked),
            tuple(self.named),
            tuple(self.pending),
            (*self.saved, -1, self.horizon),
            tuple(sorted(self.ends.items())),
        )

    def without(self, times: set[int]) -> Shown:
        """The same without some instants."""
        found = Shown({})
        found.update({t: said for t, said in self.items() if t not in times})
        found.asked, found.named, found.pending, found.saved, found.horizon = self.asked, self.named, self.pending, self.saved, self.horizon
        found.nine, found.ends = self.nine, self.ends
        found._name()
        return found

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(self._all)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shown) and self._all == other._all

    def __repr__(self) -> str:
        return repr(self._all)


def timeline_of(d: Store) -> Shown:
    """What counts; without what a restore has taken off the timeline, and a publisher who slept has put there again."""
    again = {t for key, taken in d.items() if key[0] == "backing" for t in taken if ("gone", t) in d}
    return Shown(d).without(again) if again else Shown(d)


@dataclasses.dataclass(frozen=True)
class Slice:
    """What readers of a merge-on-read table see of a file group: its base file, the logs that count, and the rows; `keys`: of the base file.

    `begun`: the instant at which it begins: that of its base file, or the one that its logs name, where it has none.
    """

    base: int | None
    begun: int
    logs: tuple[Op, ...]
    rows: dict[str, tuple[str, ...]]
    keys: frozenset[str]


def slices_of(timeline: Shown, files: Store, *, by_end: bool = True) -> dict[str, Slice] | None:
    """The newest slice of each file group; None: a file is gone.

    A log counts in the slice that its name says, and while a compaction is to begin this slice, on top of the slice before. In version 9 it
    counts on top of each base file that was begun before it ended (not `by_end`: before its instant).
    """
    bases, logs = dict[str, Any](), dict[str, list[Op]]()
    for t in sorted(timeline):
        run, slices = timeline[t]
        for group, place in files_of(run, t, slices).items():
            if group in ended(timeline):
                continue
            if place[0] == "slice":
                bases[group] = place
            else:
                logs.setdefault(group, []).append(place)
    begins, found = {*timeline, *(at for at, _ in timeline.asked)}, dict[str, Slice]()
    for group in bases | logs:
        base = bases.get(group)
        # Without a base file the newest logs that somebody has begun are the slice: an older one is not looked at.
        begun = base[2] if base else max(log[2] for log in logs[group] if log[2] in timeline)
        on = tuple(sorted((log for log in logs.get(group, ()) if log[2] >= begun and log[2] in begins), key=lambda log: log[2:4]))
        if timeline.nine:
            ends = {log: timeline.end(log[3]) if by_end else log[3] for log in logs.get(group, ())}
            on = tuple(sorted((log for log in ends if ends[log] >= begun), key=lambda log: ends[log]))
        if any(place not in files for place in ((base, *on) if base else on)):
            return None
        keys = frozenset(key for key, _ in files[base]) if base else frozenset[str]()
        found[group] = Slice(base[2] if base else None, begun, on, merged(files, timeline, base, on), keys)
    return found


def base_of(timeline: Shown, group: str, base: int | None) -> Op | None:
    """The base file of an instant; None: of a file group of logs alone."""
    return None if base is None else ("slice", group, base, timeline[base][0])


def merged(files: Store, timeline: Shown, base: Op | None, logs: tuple[Op, ...]) -> dict[str, tuple[str, ...]]:
    """The rows of a base file and of logs: a log's None deletes. Blocks of an instant that has not completed do not count."""
    rows = dict(files[base]) if base else {}
    for log in logs:
        for key, batches in files.get(log, ()) if log[3] in timeline else ():
            rows[key] = None if batches is None else (*(rows.get(key) or ()), *batches)
    return {key: batches for key, batches in rows.items() if batches is not None}


def execute(case: Case, d: Store, op: Op) -> tuple[Any, Store]:
    """An operation's answer and what it leaves."""
    kind, *rest = op
    log = d[("log",)]
    if kind == "log":
        return log, d
    if kind == "timeline":
        return Shown(d, listed=True), d
    if kind == "part":
        kinds = ("archived",) if rest[0] == "archived" else ("instant", "asked", "pending", "saved")
        return tuple(sorted((item for item in d.items() if item[0][0] in kinds), key=repr)), d
    if kind == "mark":
        return (True, {**d, ("second",): rest[1]}) if d[("second",)] == rest[0] else (False, d)
    if kind == "files":
        return tuple(sorted((item for item in d.items() if item[0][0] in ("slice", "logfile")), key=repr)), d
    if kind == "get":
        return d.get(rest[0]), d
    if kind == "slot":
        at, entry = rest
        return (True, {**d, ("log",): (*log, entry)}) if len(log) == at else (False, d)
    if kind == "put" or (kind == "absent" and rest[0] not in d):
        return True, {**d, rest[0]: rest[1]}
    if kind == "absent":
        return False, d
    if kind == "move":
        old, new = rest
        if old in d:
            return True, {**{key: value for key, value in d.items() if key != old}, new: d[old]}
        return new in d, d
    assert kind == "del", op
    if rest[0][0] == "instant" and rest[0] in d:
        d = {**d, ("gone", rest[0][1]): True}
    return True, {key: value for key, value in d.items() if key != rest[0]}


def turn(case: Case, d: Store, ops: list[Op | None]) -> bool:
    """Whether another program may roll back, where all take turns: no commit of ours is looked for or waits, no instant is about to be put."""
    committing = unpublished(d[("log",)]) or any(op and op[0] == "slot" and op[2][0] == "commit" for op in ops)
    publishing = any(op and (op == ("part", "archived") or (op[0] == "absent" and op[1][0] in ("instant", "asked"))) for op in ops)
    return not (committing and case.bug != "rolled_back_beside_commit") and not (publishing and case.bug != "rolled_back_beside_publisher")


def environment(case: Case, d: Store, ops: list[Op | None]) -> list[tuple[str, Store]]:
    """What others may do now, while the actors are about to do `ops`."""
    found = []
    log, newest = d[("log",)], max(timeline_of(d))
    # To roll a commit back needs the slices before it, and is refused where it has a savepoint.
    may = all(("slice", group, base, timeline_of(d)[base][0]) in d for group, base, new, _ in timeline_of(d)[newest][1] if base is not None)
    may = (case.appends or may) and ("saved", newest) not in d and sum(key[0] == "instant" for key in d) > 1
    if d.get(("undo",)) and may and any(entry[4] == newest for entry in commits(log)) and turn(case, d, ops):
        gone = {("instant", newest), ("asked", newest), *files_of(timeline_of(d)[newest][0], newest, timeline_of(d)[newest][1]).values()}
        left = {k: v for k, v in d.items() if k not in gone}
        found.append((f"another program rolls {newest} back", {**left, ("undo",): d[("undo",)] - 1, ("rolled back", newest): True}))
    if d.get(("checkpoints",)) and not unpublished(log) and log[-1][0] != "checkpoint":
        rows = ours(log)
        if case.bug == "checkpoint_forgets_undone":
            rows = dict.fromkeys(rows, False)
        if case.bug == "checkpoint_forgets_instants":
            rows = {run: undone for run, undone in rows.items() if undone}
        entry = ("checkpoint", tuple(sorted(rows.items())))
        found.append(("a checkpoint is written", {**d, ("checkpoints",): d[("checkpoints",)] - 1, ("log",): (*log, entry)}))
    if d.get(("saves",)) and turn(case, d, ops) and len(timeline_of(d)) > 1:
        line = timeline_of(d)
        at = sorted(line)[-2]
        if all(("slice", group, t, line[t][0]) in d for group, t in as_of(line, at).items()):
            found.append((f"another program saves {at}", {**d, ("saves",): d[("saves",)] - 1, ("saved", at): True}))
    if case.appends:
        return [*found, *beside_logs(case, d, ops)]
    if d.get(("foreign",)) and "g0" not in ended(timeline_of(d)):
        timeline = timeline_of(d)
        newest = max(t for t in timeline if any(group == "g0" for group, *_ in timeline[t][1]))
        # Not the millisecond of a commit that is not on the timeline yet: no rule of quire's could tell these two apart.
        instant = max([*timeline, *known(d[("log",)]), *(key[2] for key in d if key[0] in ("waits", "slice"))]) + 1
        rows = dict(d[("slice", "g0", newest, timeline[newest][0])])
        rows["k1"] = (*rows["k1"], f"foreign{d[('foreign',)]}")
        made = ("foreign", (("g0", newest, False, None),))
        seen = {("slice", "g0", instant, "foreign"): tuple(sorted(rows.items())), ("instant", instant): made}
        found.append(("another program writes", {**d, ("foreign",): d[("foreign",)] - 1, **seen}))
    return [*found, *losses(d)]


def losses(d: Store) -> list[tuple[str, Store]]:
    """What the store may lose."""
    left = {**d, ("expire",): d.get(("expire",), 0) - 1}
    lost = [key for key in d if key[0] == "waits"] if left[("expire",)] >= 0 else []
    return [(f"the store loses {one}", {key: value for key, value in left.items() if key != one}) for one in lost]


def beside_logs(case: Case, d: Store, ops: list[Op | None]) -> list[tuple[str, Store]]:
    """What others may do to a merge-on-read table. Only what they have begun may go on while it is not their turn."""
    timeline, found, log = timeline_of(d), losses(d), d[("log",)]

    def less(name: str) -> Store:
        return {**d, (name,): d[(name,)] - 1}

    for key in d:
        if key[0] == "asked" and d.get(("lags",)) and ("hidden", key[1]) not in d:
            found.append((f"listings do not show the plan {key[1]} yet", {**less("lags"), ("hidden", key[1]): True}))
        if key[0] == "hidden":
            found.append((f"listings show the plan {key[1]}", {k: v for k, v in d.items() if k != key}))
        if key[0] == "pending" and (not case.nine or turn(case, d, ops)):
            drawn = (key[2] for key in d if key[0] == "waits")
            ended = max([*timeline.named, *timeline.pending, *known(log), *drawn, *map(timeline.end, timeline)]) + 2 + max(case.clocks)
            done = {("instant", key[1]): d[key], **({("end", key[1]): ended} if case.nine else {})}
            found.append((f"another program completes {key[1]}", {**{k: v for k, v in d.items() if k != key}, **done}))
    if not turn(case, d, ops):
        return found
    table = slices_of(timeline, d)
    assert table is not None
    if "g0" not in table:
        return found
    # Not the millisecond of a round under way, either.
    drawn = (key[2] for key in d if key[0] == "waits")
    instant = (
        max([*timeline, *timeline.named, *timeline.pending, *known(d[("log",)]), *drawn, *map(timeline.end, timeline)])
        + 2
        + max(case.clocks)
    )
    begun = max([table["g0"].base, *(at for at, plan in timeline.asked if "g0" in plan)])
    if d.get(("slow",)):
        who = f"foreign{d[('slow',)]}"
        begun = instant if case.nine else begun
        made = {
            ("logfile", "g0", begun, instant, who): (("k1", (who,)),),
            ("pending", instant): (who, (("g0", table["g0"].base, False, begun),)),
        }
        found.append(("another program begins to write", {**less("slow"), **made}))
    if d.get(("plans",)) and not timeline.asked and (case.nine or not timeline.pending) and table["g0"].logs:
        plan = ("foreign", (("g0", table["g0"].base, False, table["g0"].logs),))
        found.append(("another program schedules a compaction", {**less("plans"), ("asked", instant): plan}))
    for at, plan in timeline.asked:
        if d.get(("runs",)):
            files = {
                ("slice", group, at, "foreign"): tuple(sorted(merged(d, timeline, base_of(timeline, group, base), logs).items()))
                for group, (base, logs) in plan.items()
            }
            made = {("instant", at): ("foreign", tuple((group, base, False, None) for group, (base, _) in plan.items()))}
            found.append((f"another program runs the plan {at}", {**less("runs"), **files, **made}))
        if d.get(("undo",)) and not any(key[0] == "logfile" and key[2] == at for key in d):
            left = {k: v for k, v in less("undo").items() if k != ("asked", at)}
            found.append((f"another program takes the plan {at} back", {**left, ("rolled back", at): True}))
    return found


# ------------------------------------------------------------------------------------------------------------------ the promises
def lost_updates(d: Store) -> list[str]:
    """What recover and `doctor` report: a slice that was not built on the one before it."""
    before: dict[str, int | str | None] = {}
    found = []
    for instant, (_, slices) in sorted(timeline_of(d).items()):
        for group, base, _, begun in slices:
            if instant and begun in (None, ENDED) and before.get(group) != base:
                found.append(f"{group} at {instant} was built on {base}, and {before.get(group)} was the newest")
            before[group] = instant if begun is None else ENDED if begun == ENDED else before.get(group)
    return found


def invariant(case: Case, d: Store) -> str | None:
    """The promise that a state breaks."""
    log, timeline = d[("log",)], timeline_of(d)
    cleaned = {(group, t) for key in d if key[0] == "cleaning" for group, t, *_ in d[key]}
    for instant, (run, slices) in timeline.items():
        if any(place not in d and (group, instant) not in cleaned for group, place in files_of(run, instant, slices).items()):
            return f"instant {instant} is on the timeline, and a slice of it is missing"
    pins = {entry[1] for entry in log if entry[0] == "pin" and ("rolled back", entry[1]) not in d}  # by another program, which does not ask
    held = {key[1] for key in d if key[0] == "saved"} | pins | {max(timeline)}
    archived = [entry for entry in log if entry[0] == "commit" and entry[1].startswith("archive")]
    if early := [at[1] for entry in archived for at in log if at[0] == "pin" and at[1] < entry[4]]:
        return f"the table cannot be read as of {early[0]}, which was pinned, and is archived"
    if max(held) > max(timeline):
        return f"the table cannot be read as of {max(held)}, which is held"
    backed = {t for key, taken in d.items() if key[0] == "backing" for t in taken}
    for at in sorted(held & {*timeline}):
        if not case.appends and any(("slice", group, t, timeline[t][0]) not in d for group, t in as_of(timeline, at).items()):
            return f"the table cannot be read as of {at}, which is held"
    made = commits(log)
    named = {place for entry in made if ("rolled back", entry[4]) not in d for place in files_of(entry[3], entry[4], entry[6]).values()}
    named |= {place for instant, (run, slices) in timeline.items() for place in files_of(run, instant, slices).values()}
    if loose := [key for key in d if key[0] in ("slice", "logfile") and key not in named and ("pending", key[-2]) not in d]:
        return f"{loose[0]} lies in the partition, and nothing is committed"
    bases = [key[1:3] for key in d if key[0] == "slice" and key[2] in timeline]
    if twice := next((one for one in bases if bases.count(one) > 1), None):
        return f"{twice[0]} has two base files at {twice[1]}: readers fail"
    undone = [entry[1] for entry in log if entry[0] == "undone"]
    if len(set(undone)) < len(undone):
        return "the splits of a commit that was rolled back leave the ledger twice"
    for entry in made:
        on = timeline.get(entry[4])
        if entry[1] == "schedule" or keeps(entry[1]):
            continue
        if on and on[0] == entry[3] and entry[3] in undone:
            return f"the commit at {entry[4]} does not count, and is on the timeline"
        if on and on[0] == entry[3] and ("rolled back", entry[4]) in d:
            return f"the instant {entry[4]} was rolled back, and has appeared again"
        said = published(log, entry[3])
        if said and said[2] and on and on[0] == entry[3]:
            return f"a void commit is on the timeline at {entry[4]}"
        if said and not said[2] and (not on or on[0] != entry[3]) and ("rolled back", entry[4]) not in d and entry[4] not in backed:
            return f"the commit of {entry[3]} is published, and the timeline does not have it at {entry[4]}"
    # A compaction has the instant of its plan, later ones notwithstanding: it brings no change.
    standing = [
        entry for entry in made if counts(log, entry) and entry[1] != "schedule" and not runs_plan(entry[1]) and not keeps(entry[1])
    ]
    for one, two in pairwise(standing):
        if one[4] >= two[4]:
            return f"instant {one[4]} comes before {two[4]} in the log"
        if two[4] in timeline and one[4] not in timeline:
            return f"instant {two[4]} appeared before {one[4]}: who pulls changes never sees the older one"
    if case.nine:
        plain = dataclasses.replace(case, bug="")
        kept = [entry for entry in log if entry in standing or (entry[0] == "foreign" and not at_plan(d, entry[1]))]
        for one, two in pairwise(kept):
            if end_of(plain, one) >= end_of(plain, two):
                return f"{two} ends before {one}, which was there first: who pulls changes by their ends never sees it"
    if lost_updates(d):
        return None if case.foreign else "; ".join(lost_updates(d))
    table = slices_of(timeline, d)
    assert table is not None
    rows: dict[str, tuple[str, ...]] = {}
    for one in table.values():
        if both := sorted(rows.keys() & one.rows.keys()):
            return f"{both[0]} is in two file groups"
        rows.update(one.rows)
    if case.archives and (why := outside(d, rows)):
        return why
    second = d.get(("second",), ())
    if second != tuple(run for run in dict.fromkeys(entry[3] for entry in made) if run in second):
        return f"the second table has {second} in another order than the first one"
    if any(run in undone for run in second[: _last(second, undone)]):
        return f"{second} were handed on: what came after a write that was taken back, too"
    keys = case.everybody
    shown = [n for n, entry in enumerate(standing) if replaces(entry[1]) and timeline.get(entry[4], ("",))[0] == entry[3]]
    last = shown[-1] if shown else -1
    if shown and (old := [key for key, by in rows.items() if not set(by) & {entry[1] for entry in standing[last:]}]):
        return f"{old[0]} was replaced, and is there"
    for n, entry in enumerate(standing):
        on = timeline.get(entry[4])
        for key in keys[entry[1]] if on and on[0] == entry[3] else ():
            if not any(f"-{key.removeprefix('-')}" in of for of in keys.values()) and rows.get(key, ()).count(entry[1]) != (n >= last):
                return f"{key} has been upserted {rows.get(key, ()).count(entry[1])} times by {entry[1]}"
    writes = sum("foreign" in str(who) and not at_plan(d, t) for t, (who, _) in timeline.items())
    if sum(batch.startswith("foreign") for batch in rows.get("k1", ())) != writes:
        return "a write of another program is gone, and nothing reports it"
    return None


def _last(second: tuple[Any, ...], undone: list[Any]) -> int:
    """The place of the last one that was handed on and counts."""
    return max((n for n, run in enumerate(second) if run not in undone), default=0)


def outside(d: Store, rows: dict[str, tuple[str, ...]]) -> str | None:
    """How a reader of another program differs, who knows the timeline alone: each older slice is a committed one for him."""
    line = {key[1]: value for key, value in d.items() if key[0] == "instant"}
    first, newest, found = min(line, default=0), dict[str, Op](), dict[str, tuple[str, ...]]()
    gone = {(group, t) for t, (_, slices) in line.items() for group, _, _, begun in slices if begun == ENDED}
    for place in sorted((key for key in d if key[0] == "slice" and (key[2] in line or key[2] < first)), key=lambda key: key[2]):
        newest[place[1]] = place
    for group, place in newest.items():
        if not any(one == group and t > place[2] for one, t in gone):
            found.update(d[place])
    return None if found == rows else f"another program reads {found}, and quire {rows}"


def at_plan(d: Store, instant: int) -> bool:
    """Whether an instant is that of a compaction."""
    return ("asked", instant) in d


def promised(case: Case, d: Store) -> str | None:
    """After a run without faults: each batch counts once, is visible, and nothing else is there."""
    log = d[("log",)]
    if timeline_of(d).asked and "compact" in case.everybody:
        return "a plan was never run"
    for batch in case.everybody:
        if batch in ("schedule", "compact", "pin", "chain") or keeps(batch):
            continue
        found = [entry for entry in commits(log) if entry[1] == batch and counts(log, entry)]
        if len(found) != 1 or found[0][4] not in timeline_of(d):
            return f"{batch} counts {len(found)} times"
    for taken in (taken for key, taken in d.items() if key[0] == "backing"):
        if left := [key for key in d if (key[0] == "slice" and key[2] in taken) or (key[0] == "instant" and key[1] in taken)]:
            return f"{left[0]} was taken back, and is there"
        if still := [entry[4] for entry in commits(log) if entry[4] in taken and not keeps(entry[1]) and counts(log, entry)]:
            return f"the commit at {still[0]} was taken back, and counts"
    return None


# -------------------------------------------------------------------------------------------------------------------- the search
class Actors:
    """A generator's state is where it stands with its locals; equal ones share a number, so that orders meet again."""

    def __init__(self, case: Case) -> None:
        self.case, self.numbers, self.op, self.result = case, dict[Any, int](), list[Op | None](), list[Any]()
        self.history, self.after = list[tuple[Any, ...]](), dict[tuple[int, Any], int]()

    def start(self, make: Callable[..., Actor], *arguments: Any) -> int:
        return self._play((make, arguments))

    def step(self, actor: int, answer: Any) -> int:
        key = (actor, answer)
        if key not in self.after:
            self.after[key] = self._play((*self.history[actor], answer))
        return self.after[key]

    def _play(self, history: tuple[Any, ...]) -> int:
        make, arguments, *answers = history
        actor: Any = make(self.case, *arguments)
        op, result = None, None
        try:
            op = next(actor)
            for answer in answers:
                op = actor.send(answer)
        except StopIteration as stop:
            op, result = None, stop.value
        frames, inner = [], actor
        while inner is not None and inner.gi_frame is not None:
            held = {k: repr(v) for k, v in inner.gi_frame.f_locals.items() if k != "case"}
            frames.append((inner.gi_code.co_name, inner.gi_frame.f_lasti, tuple(sorted(held.items()))))
            inner = inner.gi_yieldfrom
        key = (make.__name__, tuple(frames), op, result)
        if key not in self.numbers:
            self.numbers[key] = len(self.op)
            self.op.append(op)
            self.result.append(result)
            self.history.append(history)
        return self.numbers[key]


def alone(case: Case, d: Store, actors: Actors, actor: int) -> tuple[Store, str | None]:
    """What an actor leaves whom nobody disturbs, and the promise that is broken, if any."""
    for _ in range(2_000):
        if (op := actors.op[actor]) is None:
            return d, "the run without faults gives up" if actors.result[actor] == "gave up" else None
        answer, d = execute(case, d, op)
        actor = actors.step(actor, answer)
        if why := invariant(case, d):
            return d, why
    return d, "the run without faults does not end"


def check(case: Case, limit: int = 2_000_000) -> tuple[str | None, list[str], int]:
    """The promise that is broken, if any, with the shortest way to it, and how many states there are."""
    actors, settled = Actors(case), dict[frozenset[Any], str | None]()
    d: Store = {("log",): (), ("instant", 0): SEED, ("slice", "g0", 0, "seed"): (("k1", ()),)}
    d[("log",)] = (("foreign", 0, ("g0",), int(case.nine)),)
    if case.nine:
        d[("nine",)] = True
    if case.alone:
        d |= {("instant", 1): ALONE, ("logfile", "g1", 1, 1, "seed"): (("k2", ()),), ("log",): (*d[("log",)], ("foreign", 1, ("g1",), 1))}
    for me, one in enumerate(case.before):
        d = alone(case, d, actors, actors.start(driver, me, *one))[0]
    if "chain" in case.everybody:
        d[("second",)] = ()
    budget = {name: n for name in BUDGET if (n := getattr(case, name))}
    d |= {(name,): n for name, n in budget.items()}

    def final(d: Store) -> str | None:
        """Kill everything, and let one run without faults follow."""
        d = {key: value for key, value in d.items() if key[0] not in (*BUDGET, "hidden")}
        first = frozenset(d.items())
        if first not in settled:
            d, why = alone(case, d, actors, actors.start(last))
            why = why or promised(case, d)
            settled[first] = why and f"in the run without faults: {why}"
        return settled[first]

    mine = enumerate(case.drivers, len(case.before))
    start = (frozenset(d.items()), tuple(actors.start(driver, me, *one) for me, one in mine))
    came: dict[Any, tuple[Any, str] | None] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        items, running = state
        d = dict(items)
        why = invariant(case, d) or final(d)
        following = [((frozenset(new.items()), running), label) for label, new in environment(case, d, [actors.op[i] for i in running])]
        for i, actor in enumerate(running):
            if (op := actors.op[actor]) is None:
                if actors.result[actor] == "gave up":
                    why = why or "a driver gives up"
                continue
            answer, new = execute(case, d, op)
            after = tuple(actors.step(actor, answer) if j == i else one for j, one in enumerate(running))
            following.append(((frozenset(new.items()), after), f"{case.drivers[i][0]} ({i}): {op} -> {answer}"))
        if why or len(came) > limit:
            way: list[str] = []
            while (step := came[state]) is not None:
                state, label = step
                way.append(label[:200])
            return why or f"LIMIT of {limit} states", way[::-1], len(came)
        for new, label in following:
            if new not in came:
                came[new] = (state, label)
                queue.append(new)
    return None, [], len(came)


CASES = [
    Case("one batch, two drivers", (("a", ("k1",)), ("a", ("k1",)))),
    Case("two batches update one file group", (("a", ("k1",)), ("b", ("k1",)))),
    Case("two batches insert the same key", (("a", ("k2",)), ("b", ("k2",)))),
    Case("one updates, one inserts", (("a", ("k1",)), ("b", ("k2",)))),
    Case("one updates, one inserts, at the same time", (("a", ("k1",)), ("b", ("k2",))), clocks=(0, 0)),
    Case("a slice is lost", (("a", ("k1", "k2")),), expire=1),
    Case("a slice is lost, two batches", (("a", ("k1",)), ("b", ("k2",))), expire=1),
    Case("another program writes", (("a", ("k1",)),), foreign=1),
    Case("another program writes beside two batches", (("a", ("k1",)), ("b", ("k2",))), foreign=1),
    Case("another program rolls back", (("a", ("k1",)),), undo=1, checkpoints=1),
    Case("another program rolls back twice", (("a", ("k1", "k2")),), undo=2, checkpoints=2),
    Case("another program rolls back beside two drivers of a batch", (("a", ("k1",)), ("a", ("k1",))), undo=1, checkpoints=1),
    Case("another program rolls back beside two batches", (("a", ("k1",)), ("b", ("k1",))), undo=1),
    Case("another program rolls back beside two batches that insert", (("a", ("k2",)), ("b", ("k2",))), undo=1),
    Case("another program rolls a delete back beside another batch", (("a", ("-k1",)), ("b", ("k1",))), undo=1),
    Case("rows are replaced beside an update", (("over", ("k1", "k3")), ("a", ("k1",)))),
    Case("rows are replaced beside an insert", (("over", ("k1", "k2")), ("a", ("k2",)))),
    Case("rows are taken away beside an update", (("drop", ()), ("a", ("k1",)))),
    Case("rows are taken away beside an insert", (("drop", ()), ("a", ("k2",))), clocks=(1, 0)),
    Case("rows are replaced by two batches", (("over1", ("k1",)), ("over2", ("k1",)))),
    Case("another program brings back what was taken away", (("drop", ()),), undo=1, checkpoints=1),
    Case("another program brings back what was taken away beside a batch", (("drop", ()), ("a", ("k2",))), undo=1),
]
SCHEDULE, RUN, LOGGED, GONE = ("schedule", ()), ("compact", ()), ("x", ("k1",)), ("x", ("-k1",))
ALONG = ("x", ("k2",))
DROP, OVER = ("drop", ()), ("over", ("k1", "k2"))
LOGS = {
    one.name: dataclasses.replace(one, appends=True)
    for one in (
        Case("logs: a schedule beside a batch", (("a", ("k1",)), SCHEDULE), before=(LOGGED,), last=(LOGGED, ("a", ("k1",)), SCHEDULE, RUN)),
        Case("logs: two schedules", (SCHEDULE, SCHEDULE), before=(LOGGED,), last=(LOGGED, SCHEDULE, RUN)),
        Case("logs: a run beside a batch", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE)),
        Case("logs: two runs", (RUN, RUN), before=(LOGGED, SCHEDULE), last=(LOGGED, SCHEDULE, RUN)),
        Case("logs: two runs, a file is lost", (RUN, RUN), before=(("w", ("k2",)), ("x", ("k1", "k2")), SCHEDULE), expire=1),
        Case("logs: deleted and there again, a run, then a batch", (("b", ("k1",), "compact"),), before=(GONE, SCHEDULE, ("a", ("k1",)))),
        Case("logs: a run of a delete, then a batch, beside a batch", (("a", ("k1",)), ("b", ("k1",), "compact")), before=(GONE, SCHEDULE)),
        Case("logs: a batch and a run, undone", (RUN,), before=(LOGGED, SCHEDULE), undo=1),
        Case("logs: a batch beside a run, undone", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE), undo=1),
        Case("logs: another program is slow beside a schedule", (SCHEDULE, RUN), before=(LOGGED,), slow=1),
        Case("logs: another program is slow beside a run", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE), slow=1),
        Case("logs: another program schedules", (("a", ("k1",)), SCHEDULE), before=(LOGGED,), plans=1, last=(LOGGED, ("a", ("k1",)), SCHEDULE, RUN)),
        Case("logs: another program runs the plan", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE), runs=1),
        Case("logs: listings lag", (("a", ("k1",)),), before=(LOGGED, SCHEDULE), last=(LOGGED, SCHEDULE, ("a", ("k1",)), RUN), lags=1),
        Case("logs: rows are taken away beside a batch", (DROP, ("a", ("k1",))), before=(LOGGED,)),
        Case("logs: rows are replaced beside a schedule", (OVER, SCHEDULE), before=(LOGGED,), last=(LOGGED, SCHEDULE, RUN, OVER)),
        Case("logs: rows are taken away beside a run", (DROP, RUN), before=(LOGGED, SCHEDULE), last=(LOGGED, SCHEDULE, RUN, DROP)),
        Case("logs: a log is lost", (("a", ("k1", "k2")),), before=(LOGGED,), alone=True, expire=1),
        Case("logs: a log is lost beside a schedule", (("a", ("k1",)), SCHEDULE), before=(LOGGED,), last=(LOGGED, ("a", ("k1",)), SCHEDULE, RUN), expire=1),
        Case("logs: two drivers of a batch, a log is lost", (("a", ("k1",)), ("a", ("k1",))), before=(LOGGED,), expire=1),
        Case("logs: a group of logs alone", (("a", ("k2",)),), before=(ALONG,), alone=True),
        Case("logs: a schedule beside a group of logs alone", (("a", ("k2",)), SCHEDULE), before=(ALONG,), alone=True, last=(ALONG, ("a", ("k2",)), SCHEDULE, RUN)),
        Case("logs: a run beside a group of logs alone", (("a", ("k2",)), RUN), before=(("x", ("k1", "k2")), SCHEDULE), alone=True),
        Case("logs: a batch, a schedule, a run", (("a", ("k1",)), SCHEDULE, RUN), before=(LOGGED,)),
    )
}  # fmt: skip
CASES += LOGS.values()
ENDS = {
    one.name: dataclasses.replace(one, appends=one.appends or bool(one.before), nine=True)
    for one in (
        Case("version 9: two batches update one file group", (("a", ("k1",)), ("b", ("k1",)))),
        Case("version 9: one updates, one inserts, at the same time", (("a", ("k1",)), ("b", ("k2",))), clocks=(0, 0)),
        Case("version 9: another program is slow beside a batch", (("a", ("k2",)),), before=(LOGGED,), slow=1),
        Case("version 9: another program is slow beside two batches", (("a", ("k1",)), ("b", ("k2",))), before=(LOGGED,), slow=1),
        Case("version 9: another program is slow beside a run", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE), slow=1),
        Case("version 9: another program schedules", (("a", ("k1",)),), before=(LOGGED,), plans=1, last=(LOGGED, ("a", ("k1",)), RUN)),
        Case(
            "version 9: another program schedules beside a slow one", (RUN,), before=(LOGGED,), slow=1, plans=1,
            last=(LOGGED, RUN, ("a", ("k1",)), SCHEDULE, RUN),
        ),
        Case("version 9: a schedule beside a batch", (("a", ("k1",)), SCHEDULE), before=(LOGGED,), last=(LOGGED, ("a", ("k1",)), SCHEDULE, RUN)),
        Case("version 9: a run beside a batch", (("a", ("k1",)), RUN), before=(LOGGED, SCHEDULE)),
    )
}  # fmt: skip
CASES += ENDS.values()
TWICE = (("x", ("k1",)), ("y", ("k1",)))
CLEAN, SAVE, PIN = ("clean", ()), ("save", ()), ("pin", ())
CLEANS = {
    one.name: dataclasses.replace(one, before=TWICE)
    for one in (
        Case("a clean beside a batch", (("a", ("k1",)), CLEAN)),
        Case("a clean beside a batch, at the same time", (("a", ("k1",)), CLEAN), clocks=(0, 0)),
        Case("a clean by two drivers", (CLEAN, CLEAN)),
        Case("two cleans", (CLEAN, ("clean again", ()))),
        Case("a clean beside a pin", (CLEAN, PIN)),
        Case("a clean beside a savepoint", (CLEAN, SAVE)),
        Case("a clean beside a batch and a pin", (("a", ("k1",)), CLEAN, PIN)),
        Case("a clean beside another program's savepoint", (("a", ("k1",)), CLEAN), saves=1),
        Case("a clean, and a commit is rolled back", (CLEAN,), undo=1),
        Case("a clean after a pin", (("clean", (), "pin"),)),
        Case("a clean beside rows that are taken away", (DROP, CLEAN)),
        Case("a clean beside rows that are taken away, and rolled back", (DROP, CLEAN), undo=1),
    )
}
CASES += CLEANS.values()
BACK, ALL, ARCHIVE, CHAIN = ("back1", ()), ("back0", ()), ("archive", ()), ("chain", ())
APART = (("x", ("k2",)), ("y", ("k1",)))
UNDONE = {
    one.name: dataclasses.replace(
        one,
        before=one.before or TWICE,
        last=tuple(sorted((one.before or TWICE) + one.drivers, key=lambda each: not keeps(each[0]))),
    )
    for one in (
        Case("a restore beside a batch", (("a", ("k1",)), BACK)),
        Case("a restore by two drivers", (BACK, BACK)),
        Case("a restore of two writes", (ALL,)),
        Case("a restore beside a driver of a batch that it takes back", (TWICE[1], BACK), before=TWICE[:1]),
        Case("a restore beside a pin", (ALL, PIN)),
        Case("a restore beside a clean", (ALL, CLEAN)),
        Case("a restore beside another program's savepoint", (ALL,), saves=1),
        Case("a restore beside a chain", (CHAIN, BACK)),
        Case("a chain beside a batch", (CHAIN, ("a", ("k1",)))),
        Case("an archive beside a batch", (("a", ("k1",)), ARCHIVE), before=APART),
        Case("an archive by two drivers", (ARCHIVE, ARCHIVE)),
        Case("an archive beside a pin", (ARCHIVE, PIN)),
        Case("an archive after a pin", (("archive", (), "pin"),)),
        Case("an archive beside a batch that loses a slice", (("a", ("k1", "k2")), ARCHIVE), before=TWICE[:1], expire=1),
        Case("an archive beside rows that are taken away", (("b", ("k2",), "drop"), ARCHIVE), before=TWICE[:1]),
        Case("an archive, and a commit is rolled back", (ARCHIVE,), undo=1),
        Case("an archive beside a restore", (ARCHIVE, BACK)),
    )
}
CASES += UNDONE.values()
CLUSTER, BESIDE = ("cluster", ()), (("x", ("k2",)),)
MOVED = {
    one.name: dataclasses.replace(one, before=BESIDE, last=BESIDE + tuple(sorted(one.drivers, key=lambda each: not keeps(each[0]))))
    for one in (
        Case("rows are laid out anew beside an update", (CLUSTER, ("a", ("k1",)))),
        Case("rows are laid out anew beside a delete", (CLUSTER, ("a", ("-k1",)))),
        Case("rows are laid out anew beside an insert", (CLUSTER, ("a", ("k3",))), clocks=(1, 0)),
        Case("rows are laid out anew by two drivers", (CLUSTER, CLUSTER)),
        Case("rows are laid out anew twice", (CLUSTER, ("cluster again", ()))),
        Case("rows are laid out anew beside another program's write", (CLUSTER,), foreign=1),
        Case("rows are laid out anew, and a slice is lost", (CLUSTER,), expire=1),
        Case("rows are laid out anew, and rolled back", (CLUSTER,), undo=1, checkpoints=1),
        Case("rows are laid out anew beside a clean", (CLUSTER, CLEAN)),
    )
}
CASES += MOVED.values()
# With a write of another program there are too many states to take all orders: mistakes are found long before.
LATER = dataclasses.replace(UNDONE["an archive beside a batch that loses a slice"], foreign=1)
BUGS = {
    "later_instant_allowed": CASES[3],
    "same_instant_allowed": CASES[4],
    "group_no_conflict": CASES[1],
    "insert_no_conflict": CASES[2],
    "conflict_since_restart": CASES[1],
    "version_read_late": CASES[1],
    "built_on_unpublished": CASES[1],
    "written_in_place": CASES[0],
    "instant_first": CASES[5],
    "void_appears": CASES[5],
    "published_out_of_order": CASES[3],
    "foreign_no_conflict": CASES[7],
    "undone_keeps_splits": CASES[9],
    "undone_by_batch": CASES[9],
    "undone_blind_retry": CASES[11],
    "undone_no_conflict": CASES[12],
    "undone_allows_inserts": CASES[14],
    "timeline_before_log": CASES[11],
    "checkpoint_forgets_undone": CASES[11],
    "checkpoint_forgets_instants": CASES[9],
    "rolled_back_beside_commit": CASES[12],
    "rolled_back_beside_publisher": CASES[11],
    "replace_no_conflict": CASES[18],
    "ended_no_conflict": CASES[17],
    "late_publisher": CASES[21],
    "moved_no_conflict": MOVED["rows are laid out anew beside an update"],
    "lost_log_alone": LOGS["logs: a log is lost"],
    "void_keeps_splits": LOGS["logs: two drivers of a batch, a log is lost"],
    "log_begins_slice": LOGS["logs: a group of logs alone"],
    "run_needs_base": LOGS["logs: a run beside a group of logs alone"],
    "schedule_no_conflict": LOGS["logs: a schedule beside a batch"],
    "plan_on_unpublished": LOGS["logs: a schedule beside a batch"],
    "logs_in_old_slice": LOGS["logs: a run beside a batch"],
    "run_draws_instant": LOGS["logs: a run beside a batch"],
    "plan_at_run": LOGS["logs: a run beside a batch"],
    "run_by_any_name": LOGS["logs: two runs"],
    "void_run_left": LOGS["logs: two runs, a file is lost"],
    "deleted_in_plan_found": LOGS["logs: deleted and there again, a run, then a batch"],
    "run_despite_undone": LOGS["logs: a batch and a run, undone"],
    "pending_ignored": LOGS["logs: another program is slow beside a schedule"],
    "pending_read_early": LOGS["logs: another program is slow beside a schedule"],
    "foreign_plan_ignored": LOGS["logs: another program schedules"],
    "listing_trusted": LOGS["logs: listings lag"],
    "drawn_before_ends": ENDS["version 9: another program is slow beside a batch"],
    "end_ignored": ENDS["version 9: another program is slow beside a batch"],
    "log_by_instant": ENDS["version 9: another program schedules beside a slow one"],
    "later_plan_ignored": ENDS["version 9: another program schedules"],
    "pins_ignored": CLEANS["a clean after a pin"],
    "pin_beside_clean": CLEANS["a clean beside a pin"],
    "not_expired": CLEANS["a clean beside a pin"],
    "saved_beside_clean": CLEANS["a clean beside a savepoint"],
    "saved_by_others": CLEANS["a clean beside another program's savepoint"],
    "clean_despite_undone": CLEANS["a clean, and a commit is rolled back"],
    "back_no_conflict": UNDONE["a restore beside a batch"],
    "back_despite_commit": UNDONE["a restore beside a batch"],
    "back_despite_pin": UNDONE["a restore beside a pin"],
    "pin_of_taken_back": UNDONE["a restore beside a pin"],
    "back_despite_savepoint": UNDONE["a restore beside another program's savepoint"],
    "back_to_cleaned": UNDONE["a restore beside a clean"],
    "back_oldest_first": UNDONE["a restore of two writes"],
    "back_files_first": UNDONE["a restore of two writes"],
    "put_again_stays": UNDONE["a restore beside a driver of a batch that it takes back"],
    "chain_ignores_undone": UNDONE["a restore beside a chain"],
    "chain_newest_first": UNDONE["a chain beside a batch"],
    "archive_past_pin": UNDONE["an archive after a pin"],
    "archive_despite_pin": UNDONE["an archive beside a pin"],
    "archive_not_expired": UNDONE["an archive beside a pin"],
    "archive_past_void": LATER,
    "archive_despite_older": LATER,
    "archive_past_replaced": UNDONE["an archive beside rows that are taken away"],
    "archive_newest_first": UNDONE["an archive beside a batch"],
    "archive_comes_last": UNDONE["an archive beside a batch"],
    "archives_first": UNDONE["an archive beside a batch"],
    "archive_despite_undone": UNDONE["an archive, and a commit is rolled back"],
}

if __name__ == "__main__":
    import sys
    import time

    for one in CASES + [dataclasses.replace(case, name=f"{name} in: {case.name}", bug=name) for name, case in BUGS.items()]:
        began = time.time()
        why, way, states = check(one)
        print(f"{one.name}: {why or 'holds'} ({states:,} states, {time.time() - began:.1f} s)", flush=True)
        if why and (not one.bug or "-v" in sys.argv):
            print(*(f"    {line}" for line in way), sep="\n")
