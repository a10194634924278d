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

Not modelled: `.requested` and `.inflight`, more partitions, services (clean, compaction).
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
ROUNDS = 4  # of one driver, after which it would give up
SEED = ("seed", ("g0",), (("g0", 0),))  # an instant: its writer, its file groups, and the slice on which each was built


@dataclasses.dataclass(frozen=True)
class Case:
    """Who acts: the drivers with their batches, each of which upserts keys ("-k1" deletes k1); and what may happen to them."""

    name: str
    drivers: tuple[tuple[str, tuple[str, ...]], ...]
    foreign: int = 0  # writes of another program, each of which updates k1
    expire: int = 0  # slices that the store loses before they are published
    undo: int = 0  # instants of ours that another program rolls back
    checkpoints: int = 0  # that stand for all that the log says by then
    clocks: tuple[int, ...] = (0, 1)  # how far each driver's clock is ahead: equal ones draw the same instants
    bug: str = ""


# ------------------------------------------------------------------------------------------------------------- what a log says
def commits(log: tuple[Any, ...]) -> list[Any]:
    """("commit", batch, round, run, instant, version, slices): of a slice its file group, its base, and whether it is a new group."""
    return [entry for entry in log if entry[0] == "commit"]


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
    return any(entry[1] == batch and counts(log, entry) for entry in commits(log))


def unknown(case: Case, log: tuple[Any, ...], timeline: dict[int, Any]) -> Any:
    """The entry that the log needs for what another program has done to the timeline; None: it says it all."""
    strange = sorted(t for t in timeline if t not in known(log))
    if strange and case.bug != "foreign_no_conflict":
        return ("foreign", strange[0], timeline[strange[0]][1])
    there = ours(log)
    for _, _, _, run, instant, _, slices in commits(log):
        if not there.get(run, True) and (instant not in timeline or timeline[instant][0] != run):
            return ("undone", run, tuple(group for group, *_ in slices))
    return None


def unpublished(log: tuple[Any, ...]) -> list[Any]:
    return [entry for entry in commits(log) if published(log, entry[3]) is None]


def known(log: tuple[Any, ...]) -> set[int]:
    return {entry[4] for entry in commits(log)} | {entry[1] for entry in log if entry[0] == "foreign"}


def ends_round(case: Case, manifest: Any, log: tuple[Any, ...]) -> bool:
    """Whether a closing run must be repeated: once true it stays so, as the log only grows; so all drivers agree."""
    _, instant, version, slices = manifest
    groups, inserts = {group for group, _, new in slices if not new}, any(new for *_, new in slices)
    for entry in log[len(log) if case.bug == "conflict_since_restart" else version :]:
        if entry[0] == "foreign":
            other, touched, inserted = entry[1], set(entry[2]), False
            if case.bug == "foreign_no_conflict":
                continue
        elif entry[0] == "undone" and case.bug != "undone_no_conflict":
            # What it had deleted is in older slices again: to find no key in its slices says nothing any more.
            other, touched, inserted = -1, set(entry[2]), case.bug != "undone_allows_inserts"
        elif entry[0] == "commit" and counts(log, entry):
            other, touched, inserted = entry[4], {g for g, _, new in entry[6] if not new}, any(new for *_, new in entry[6])
        else:
            continue
        if case.bug != "later_instant_allowed" and (other > instant or (other == instant and case.bug != "same_instant_allowed")):
            return True
        if touched & groups and case.bug != "group_no_conflict":
            return True
        if inserts and inserted and case.bug != "insert_no_conflict":
            return True
    return False


# ------------------------------------------------------------------------------------------------------------------- the actors
def driver(case: Case, me: int, batch: str, keys: tuple[str, ...]) -> Actor:
    """One call of `upsert`: recover, then closing runs until one is committed."""
    yield from recover(case)
    for number in range(ROUNDS * (1 + case.expire + case.undo)):
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
            if made is None:
                continue  # a driver of the same batch was quicker
            yield ("absent", ("manifest", batch, void, number), made)
            manifest = yield ("get", ("manifest", batch, void, number))
        while True:
            log = yield ("log",)
            if sum(entry[1] == batch for entry in commits(log)) > void:
                break
            timeline = yield ("timeline",)
            if (entry := unknown(case, log, timeline)) is not None:
                yield from enter(case, log, entry)
                continue
            if ends_round(case, manifest, log):
                break
            run, instant, version, slices = manifest
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
        if not unpublished(log) or case.bug == "built_on_unpublished":
            break
        yield from recover(case)
    version = len(log)
    if timeline is None:
        timeline = yield ("timeline",)
    instant = max([*timeline, *known(log)]) + 1 + case.clocks[run[3] % 10]
    newest = {}
    for t in sorted(timeline):
        for group in timeline[t][1]:
            newest[group] = t
    held = {}
    for group, t in sorted(newest.items()):
        rows = yield ("get", ("slice", group, t))
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
            rows = (yield ("get", ("slice", group, base))) if base is not None else ()
            if rows is None:
                return "failed"
            written[group] = dict(rows)
            slices.append((group, base, base is None))
        if deletes:
            del written[group][key]
        else:
            written[group][key] = (*written[group].get(key, ()), batch)
    for group, rows in sorted(written.items()):
        where = ("slice", group, instant) if case.bug == "written_in_place" else ("waits", group, instant, run)
        yield ("put", where, tuple(sorted(rows.items())))
    return (run, instant, version, tuple(slices))


def recover(case: Case) -> Actor:
    """Enter what others have written, and publish in log order."""
    while True:
        timeline = None
        if case.bug == "timeline_before_log":
            timeline = yield ("timeline",)
        log = yield ("log",)
        if timeline is None:
            timeline = yield ("timeline",)
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
    _, _, _, run, instant, _, slices = entry
    shown = ("instant", instant), (run, tuple(group for group, *_ in slices), tuple((group, base) for group, base, _ in slices))
    if case.bug == "instant_first":
        yield ("absent", *shown)
    lost = False
    for group, *_ in slices:
        if not (yield ("move", ("waits", group, instant, run), ("slice", group, instant))):
            lost = True
    if not lost or case.bug == "void_appears":
        yield ("absent", *shown)
    while True:
        log = yield ("log",)
        if published(log, run) is not None or (yield ("slot", len(log), ("published", run, lost))):
            break
    if lost:
        for group, *_ in slices:
            yield ("del", ("slice", group, instant))


def last(case: Case) -> Actor:
    """Without faults: each batch is called once more."""
    for me, (batch, keys) in enumerate(case.drivers):
        if (yield from driver(case, 10 + me, batch, keys)) == "gave up":
            return "gave up"
    yield from recover(case)


# -------------------------------------------------------------------------------------------------------------------- the store
def timeline_of(d: Store) -> dict[int, Any]:
    return {key[1]: value for key, value in d.items() if key[0] == "instant"}


def execute(case: Case, d: Store, op: Op) -> tuple[Any, Store]:
    """An operation's answer and what it leaves."""
    kind, *rest = op
    log = d[("log",)]
    if kind == "log":
        return log, d
    if kind == "timeline":
        return Shown(timeline_of(d)), d
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
    return True, {key: value for key, value in d.items() if key != rest[0]}


class Shown(dict[int, Any]):
    """A timeline as an answer, which a state can hold."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(sorted(self.items())))


def turn(case: Case, d: Store, ops: list[Op | None]) -> bool:
    """Whether another program may roll back, where all take turns: no commit of ours is looked for or waits, no instant is about to be put."""
    committing = unpublished(d[("log",)]) or any(op and op[0] == "slot" and op[2][0] == "commit" for op in ops)
    publishing = any(op and op[0] == "absent" and op[1][0] == "instant" for op in ops)
    return not (committing and case.bug != "rolled_back_beside_commit") and not (publishing and case.bug != "rolled_back_beside_publisher")


def environment(case: Case, d: Store, ops: list[Op | None]) -> list[tuple[str, Store]]:
    """What others may do now, while the actors are about to do `ops`."""
    found = []
    log, newest = d[("log",)], max(timeline_of(d))
    if d.get(("undo",)) and any(entry[4] == newest for entry in commits(log)) and turn(case, d, ops):
        left = {k: v for k, v in d.items() if k != ("instant", newest) and (k[0] != "slice" or k[2] != newest)}
        found.append((f"another program rolls {newest} back", {**left, ("undo",): d[("undo",)] - 1, ("rolled back", newest): True}))
    if d.get(("checkpoints",)) and not unpublished(log) and log[-1][0] != "checkpoint":
        rows = ours(log)
        if case.bug == "checkpoint_forgets_undone":
            rows = dict.fromkeys(rows, False)
        if case.bug == "checkpoint_forgets_instants":
            rows = {run: undone for run, undone in rows.items() if undone}
        entry = ("checkpoint", tuple(sorted(rows.items())))
        found.append(("a checkpoint is written", {**d, ("checkpoints",): d[("checkpoints",)] - 1, ("log",): (*log, entry)}))
    if d.get(("foreign",)):
        timeline = timeline_of(d)
        newest = max(t for t in timeline if "g0" in timeline[t][1])
        # Not the millisecond of a commit that is not on the timeline yet: no rule of quire's could tell these two apart.
        instant = max([*timeline, *known(d[("log",)]), *(key[2] for key in d if key[0] in ("waits", "slice"))]) + 1
        rows = dict(d[("slice", "g0", newest)])
        rows["k1"] = (*rows["k1"], f"foreign{d[('foreign',)]}")
        seen = {("slice", "g0", instant): tuple(sorted(rows.items())), ("instant", instant): ("foreign", ("g0",), (("g0", newest),))}
        found.append(("another program writes", {**d, ("foreign",): d[("foreign",)] - 1, **seen}))
    if d.get(("expire",)):
        for key in d:
            if key[0] == "waits":
                left = {k: v for k, v in d.items() if k != key}
                found.append((f"the store loses {key}", {**left, ("expire",): d[("expire",)] - 1}))
    return found


# ------------------------------------------------------------------------------------------------------------------ the promises
def lost_updates(d: Store) -> list[str]:
    """What recover and `doctor` report: a slice that was not built on the one before it."""
    before: dict[str, int | None] = {}
    found = []
    for instant, (_, _, bases) in sorted(timeline_of(d).items()):
        for group, base in bases:
            if instant and before.get(group) != base:
                found.append(f"{group} at {instant} was built on {base}, and {before.get(group)} was the newest")
            before[group] = instant
    return found


def invariant(case: Case, d: Store) -> str | None:
    """The promise that a state breaks."""
    log, timeline = d[("log",)], timeline_of(d)
    for instant, (_, groups, _) in timeline.items():
        if any(("slice", group, instant) not in d for group in groups):
            return f"instant {instant} is on the timeline, and a slice of it is missing"
    made = commits(log)
    named = {("slice", group, entry[4]) for entry in made if ("rolled back", entry[4]) not in d for group, *_ in entry[6]}
    named |= {("slice", group, instant) for instant, (_, groups, _) in timeline.items() for group in groups}
    if loose := [key for key in d if key[0] == "slice" and key not in named]:
        return f"{loose[0]} lies in the partition, and nothing is committed"
    undone = [entry[1] for entry in log if entry[0] == "undone"]
    if len(set(undone)) < len(undone):
        return "the splits of a commit that was rolled back leave the ledger twice"
    for entry in made:
        on = timeline.get(entry[4])
        if on and on[0] == entry[3] and entry[3] in undone:
            return f"the commit at {entry[4]} does not count, and is on the timeline"
        if on and on[0] == entry[3] and ("rolled back", entry[4]) in d:
            return f"the instant {entry[4]} was rolled back, and has appeared again"
        said = published(log, entry[3])
        if said and said[2] and on and on[0] == entry[3]:
            return f"a void commit is on the timeline at {entry[4]}"
        if said and not said[2] and (not on or on[0] != entry[3]) and ("rolled back", entry[4]) not in d:
            return f"the commit of {entry[3]} is published, and the timeline does not have it at {entry[4]}"
    standing = [entry for entry in made if counts(log, entry)]
    for one, two in pairwise(standing):
        if one[4] >= two[4]:
            return f"instant {one[4]} comes before {two[4]} in the log"
        if two[4] in timeline and one[4] not in timeline:
            return f"instant {two[4]} appeared before {one[4]}: who pulls changes never sees the older one"
    if lost_updates(d):
        return None if case.foreign else "; ".join(lost_updates(d))
    newest: dict[str, int] = {}
    for instant in sorted(timeline):
        newest.update(dict.fromkeys(timeline[instant][1], instant))
    rows: dict[str, tuple[str, ...]] = {}
    for group, instant in newest.items():
        for key, batches in d[("slice", group, instant)]:
            if key in rows:
                return f"{key} is in two file groups"
            rows[key] = batches
    keys = dict(case.drivers)
    for entry in standing:
        on = timeline.get(entry[4])
        for key in keys[entry[1]] if on and on[0] == entry[3] else ():
            if not any(f"-{key.removeprefix('-')}" in of for of in keys.values()) and rows.get(key, ()).count(entry[1]) != 1:
                return f"{key} has been upserted {rows.get(key, ()).count(entry[1])} times by {entry[1]}"
    writes = sum(who == "foreign" for who, *_ in timeline.values())
    if sum(batch.startswith("foreign") for batch in rows.get("k1", ())) != writes:
        return "a write of another program is gone, and nothing reports it"
    return None


def promised(case: Case, d: Store) -> str | None:
    """After a run without faults: each batch counts once, is visible, and nothing else is there."""
    log = d[("log",)]
    for batch, _ in case.drivers:
        found = [entry for entry in commits(log) if entry[1] == batch and counts(log, entry)]
        if len(found) != 1 or found[0][4] not in timeline_of(d):
            return f"{batch} counts {len(found)} times"
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


def check(case: Case, limit: int = 2_000_000) -> tuple[str | None, list[str], int]:
    """The promise that is broken, if any, with the shortest way to it, and how many states there are."""
    actors, settled = Actors(case), dict[frozenset[Any], str | None]()
    d: Store = {("log",): (), ("instant", 0): SEED, ("slice", "g0", 0): (("k1", ()),)}
    d[("log",)] = (("foreign", 0, ("g0",)),)
    d |= {
        (name,): n
        for name, n in (("foreign", case.foreign), ("expire", case.expire), ("undo", case.undo), ("checkpoints", case.checkpoints))
        if n
    }

    def final(d: Store) -> str | None:
        """Kill everything, and let one run without faults follow."""
        d = {key: value for key, value in d.items() if key not in (("foreign",), ("expire",), ("undo",), ("checkpoints",))}
        first = frozenset(d.items())
        if first not in settled:
            actor, why = actors.start(last), None
            for _ in range(2_000):
                if (op := actors.op[actor]) is None:
                    why = "the run without faults gives up" if actors.result[actor] == "gave up" else promised(case, d)
                    break
                answer, d = execute(case, d, op)
                actor = actors.step(actor, answer)
                if why := invariant(case, d):
                    break
            else:
                why = "the run without faults does not end"
            settled[first] = why and f"in the run without faults: {why}"
        return settled[first]

    start = (frozenset(d.items()), tuple(actors.start(driver, me, *one) for me, one in enumerate(case.drivers)))
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
]
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
