"""The ways in which a job of the matrix is disturbed. Each yields scenarios: what befalls whom, and what must hold afterwards."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import sums
from quire.commit import protocol
from quire.coverage import fold as ledger
from quire.errors import QuireError
from sim import tables, wire
from sim.drivers import run
from sim.kinds import Kind
from sim.witness import OF_LOG, Deletions, Log, Observer, Tree, check, forget_all
from sim.witness import fold as witness_fold
from sim.world import DEST, POWER, SOURCE, Actor, Crash, Endless, Seen, World, first_writes

CHANGES = {
    "put", "put_if_absent", "create", "write", "close", "rename", "copy half", "copy", "remove", "remove_tree",
    "upload", "complete", "give_up", "mkdir", "fsync", "link", "replace", "unlink", "rmdir", "remove_if",
}  # fmt: skip


def changing(op: str) -> bool:
    """Whether an operation may change something."""
    return op in CHANGES or wire.changes(op)


class Finding(AssertionError):
    """A promise that did not hold, and how that came about."""


def same(there: Mapping[str, bytes], log: Log, store: Any) -> None:
    """With a checkpoint the ledger says what the segments say; and its totals are those of its rows."""
    sums.check(store)
    if any(name.startswith("_quire/checkpoints/") for name in there):
        rows = ledger.fold(ledger.Log(store).refresh()).rows(store, ["path", "version", "start", "data_file", "state"]).to_pylist()
        told = sorted((r["path"], r["version"], r["start"], r["data_file"] or "", r["state"]) for r in rows)
        seen = [
            (p, r["version"], r["start"], r["data_file"] or "", r["state"]) for p, found in witness_fold(there, log).items() for r in found
        ]
        assert told == sorted(seen), "with a checkpoint the ledger says another thing than the segments"


@dataclass(frozen=True)
class Pipeline:
    """A job: what lies in the source, how it is gathered, and what must come of it."""

    name: str
    transform: str  # what the witness expects of a file's content
    fill: Callable[[Tree], None]
    work: Callable[[str, str, str], object]  # source, destination, committer → one whole call of a user
    committers: tuple[str, ...] = ()  # those that it works with; none named: all
    edits: bool = False  # it changes its source, which begins anew with each destination
    grows: bool = False  # it appends to its source, which begins anew with each destination, and takes last lines at its end
    states: Callable[[Tree], tables.States] | None = None  # it writes into a table, of which readers see these, one after the other


@dataclass(frozen=True, repr=False)
class By:
    """A committer: what it needs of a store, and whether readers of the directory see what is not committed."""

    name: str
    needs: str
    leaks: bool = False

    def __repr__(self) -> str:
        return f"COMMITTERS[{self.name!r}]"


@dataclass
class Case:
    """A line of the matrix."""

    pipeline: Pipeline
    by: By
    kind: Kind
    tree: Tree = field(default_factory=Tree)
    leaked: int = 0

    def __str__(self) -> str:
        return f"{self.pipeline.name} × {self.by.name} × {self.kind.name}"

    def fill(self) -> Case:
        forget_all()
        self.tree = Tree()  # what a test before has put there is gone, and quire has deleted none of it
        self.pipeline.fill(self.tree)
        return self

    @contextmanager
    def world(self, seed: int = 0) -> Iterator[World]:
        """An empty destination."""
        forget_all(DEST)
        if self.pipeline.grows or self.pipeline.edits:
            self.tree.clear()
            self.pipeline.fill(self.tree)
        world = World(seed, kind=self.kind)
        states = self.pipeline.states
        world.watched[DEST] = observer = tables.Readers(states(self.tree)) if states else Observer(leaks=self.by.leaks)
        world.watched[SOURCE] = Deletions(self.tree, observer)
        with world.installed():
            yield world
        self.leaked += observer.leaked

    def work(self, world: World) -> Callable[[], object]:
        return functools.partial(self.pipeline.work, SOURCE, world.dest, self.by.name)

    def recover(self, world: World, abort: str | None = None) -> Callable[[], object]:
        return lambda: protocol.recover(world.store(world.dest), abort)

    def check(self, world: World, **how: Any) -> Log:
        there = world.there()
        if self.pipeline.states:
            log = tables.check(self.pipeline.states(self.tree), there, world.folders(), world.waiting(), **how)
            sums.check(world.store(world.dest))
            return log
        log = check(
            self.tree,
            self.pipeline.transform,
            there=there,
            folders=world.folders(),
            uploads=world.waiting(),
            leaks=self.by.leaks,
            grows=self.pipeline.grows,
            flushed=self.pipeline.grows and how.get("all_taken", True),
            all_purged=self.pipeline.edits and how.get("all_taken", True),
            **how,
        )
        same(there, log, world.store(world.dest))
        return log

    def must(self, world: World, name: str, work: Callable[[], object]) -> None:
        """A process that nothing befalls: it has to come to its end."""
        world.settle()
        with world.acting(Actor(name)):
            work()

    def steps(self) -> list[tuple[str, str]]:
        """The operations of a run that nothing befalls, and that this run is right."""
        with self.world() as world:
            actor = Actor()
            assert run(world, actor, self.work(world)) is None
            log = self.check(world)
            assert sum(len(e.get("tasks", ())) for e in log.outcome.values()) >= 2, "too small a job to tell anything"
            return [(op, name) for who, op, name, _ in world.history if who == actor.name]

    def changed(self) -> list[str]:
        """The changes of a run of which a crash tells anything."""
        counts = first_writes()
        return [op for op, name in self.steps() if changing(op) and counts(op, name)]

    def changes(self) -> int:
        return len(self.changed())


@dataclass
class Scenario:
    """One disturbed run."""

    case: Case
    said: str
    play: Callable[[World, Scenario], None]
    seed: int = 0
    hit: bool | None = None  # whether what should befall it did; None: it was not played

    def __call__(self) -> None:
        with self.case.world(self.seed) as world:
            try:
                self.play(world, self)
            except (Exception, Crash, Endless, Seen) as e:
                raise Finding(f"{self.case}: {self.said}: {type(e).__name__}: {e}\n{world.told()}") from e


Scenarios = Iterator[Scenario]


def _dies(case: Case, world: World, actor: Actor, work: Callable[[], object] | None = None) -> bool:
    ended = run(world, actor, work or case.work(world))
    assert ended is None or isinstance(ended, Crash), f"{actor.name} ended with {ended!r}"
    return ended is not None


def _ends_well(case: Case, world: World, *, give_up: bool = False) -> None:
    """Whatever was left: recovering and one more run make it good. Or the user gives up what is open, and then runs."""
    if give_up:
        case.must(world, "recover", case.recover(world, "open"))
        log = case.check(world, all_taken=False)
        left = [name for name in world.there() if not name.startswith(OF_LOG) and name not in tables.SETTINGS]
        counts = any(True for _ in log.tasks())
        assert left or not counts, "what was committed is gone"
        assert counts or not left, f"left of what was given up: {left}"
    case.must(world, "next", case.work(world))
    case.check(world)


# ------------------------------------------------------------------------------------------------------------------- crashes
def crashes(case: Case, reads: bool = True) -> Scenarios:
    """The process dies at each operation, before, in and after it; then another run, or giving up and a run."""
    steps, counts = case.steps(), first_writes()
    for k, (op, name) in enumerate(steps, 1):
        if not reads and not (changing(op) and counts(op, name)):
            continue
        in_pieces = ("torn",) if op == "write" else ("begun", "torn") if wire.tears(op) else ()
        for how in ("before", *in_pieces, "after"):
            if how != "after" and not reads and k > 1 and not in_pieces:
                continue  # as after the change before
            yield _crash(case, k, how, f"{op} {name}", give_up=False)
            if changing(op) and how == "after":
                yield _crash(case, k, how, f"{op} {name}", give_up=True)


def _crash(case: Case, k: int, how: str, what: str, *, give_up: bool) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        scenario.hit = _dies(case, world, Actor("dead", {k: how}, of_changes=False))
        _ends_well(case, world, give_up=give_up)

    return Scenario(case, f"dies {how} operation {k} ({what}), then {'giving up and ' if give_up else ''}a run", play)


def pairs(case: Case, hows: tuple[str, ...] = ("after",)) -> Scenarios:
    """The process dies at each change, and the one that makes it good dies at each of its own; a third one ends it."""
    for k in range(1, case.changes() + 1):
        for how in hows:
            for by in ("run", "recover"):
                for j in range(1, 1_000):
                    scenario = pair(case, k, j, how, how, by)
                    yield scenario
                    if scenario.hit is False:
                        break  # the second one has come to its end


def pair(case: Case, k: int, j: int, first: str, second: str, by: str) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        _dies(case, world, Actor("first", {k: first}, only=first_writes()))
        world.settle()
        again = Actor("second", {j: second}, only=first_writes())
        scenario.hit = _dies(case, world, again, case.work(world) if by == "run" else case.recover(world, "open"))
        _ends_well(case, world)

    return Scenario(case, f"dies: {first} change {k}; {by} dies: {second} change {j}; then a run", play, seed=k * 1000 + j)


def some_pairs(case: Case, n: int, seed: int) -> Scenarios:
    """So many of them, drawn; on a disk with power cuts among them."""
    rng, changes = random.Random(seed), case.changes()
    hows = ("after", "torn", *POWER) if case.kind.disk else ("after", "torn")
    for _ in range(n):
        k, j = rng.randint(1, changes), rng.randint(1, changes)
        yield pair(case, k, j, rng.choice(hows), rng.choice(hows), rng.choice(("run", "recover")))


# ------------------------------------------------------------------------------------------------- answers, space and power
AGAIN = ("ambiguous", "transient", "late")  # answers after which one tries again
LASTING = ("away", "refused")


def answers(case: Case) -> Scenarios:
    """A change is answered by an error, though it happened, did not, or happens later (a disk has no later), once or for ever."""
    for k in range(1, case.changes() + 1):
        for fault in (*AGAIN, *LASTING):
            if not ((fault == "late" and case.kind.disk) or (fault == "refused" and case.kind.service)):
                yield _answer(case, k, fault)


def _answer(case: Case, k: int, fault: str) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        actor, said = Actor("unlucky", {k: fault}, only=first_writes()), ""
        with world.acting(actor):
            try:
                case.work(world)()
            except QuireError as e:
                said = str(e)
        assert not said or fault in LASTING, f"it was not tried again: {said}"
        assert not said or "call again" in said.lower(), f"it does not say how to go on: {said}"
        scenario.hit = bool(actor.hit)
        world.land(everything=True)
        case.must(world, "next", case.work(world))
        world.land(everything=True)
        case.check(world)

    return Scenario(case, f"{fault} answer to change {k}, then a run", play, seed=k)


def expiries(case: Case) -> Scenarios:
    """The process dies after each change, and what it has uploaded is dropped by the store before anybody goes on: lost, and done again."""
    if not case.kind.uploads:
        return
    for k, op in enumerate(case.changed(), 1):
        yield _expiry(case, k, op)


def _expiry(case: Case, k: int, op: str) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        scenario.hit = _dies(case, world, Actor("dead", {k: "after"}, only=first_writes()))
        world.expire()
        if k % 2:
            case.must(world, "recover", case.recover(world))
        _ends_well(case, world, give_up=k % 3 == 0)

    return Scenario(case, f"dies after change {k} ({op}), the uploads expire, then a run", play, seed=k)


def full(case: Case, n: int = 24) -> Scenarios:
    """The store is full from some byte on: the call says so, readers see nothing of it; then there is space again."""
    if case.kind.service:
        return
    with case.world() as world:
        world.space = everything = 1 << 30
        case.must(world, "measure", case.work(world))
        needed = everything - world.space
    for i in range(n):
        yield _full(case, needed * i // n)


def _full(case: Case, space: int) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        world.space = space
        for _ in range(2):  # it stays full
            try:
                with world.acting(Actor("unlucky")):
                    case.work(world)()
            except QuireError:
                scenario.hit = True
            case.check(world, all_taken=not scenario.hit, clean=False)
        assert scenario.hit, "a full store was not noticed"
        world.space = None
        _ends_well(case, world)

    return Scenario(case, f"full after {space} bytes, then space again and a run", play)


def power(case: Case) -> Scenarios:
    """The machine stops before each change."""
    if not case.kind.disk:
        return
    for k in range(1, case.changes() + 1):
        for left in POWER:
            yield _crash_by_power(case, k, left)


def lasting(case: Case, after: Container[str] = CHANGES) -> Scenarios:
    """One process is killed (after changes of some kinds), another one ends its work, and then the machine stops."""
    if not case.kind.disk:
        return
    yield _lasting(case, 0)
    for k, op in enumerate(case.changed(), 1):
        if op in after:
            yield _lasting(case, k)


def _crash_by_power(case: Case, k: int, left: str) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        scenario.hit = _dies(case, world, Actor("dead", {k: left}, only=first_writes()))
        _ends_well(case, world, give_up=k % 3 == 0)

    return Scenario(case, f"{left} at change {k}, then a run", play, seed=k)


def _lasting(case: Case, k: int) -> Scenario:
    def play(world: World, scenario: Scenario) -> None:
        scenario.hit = _dies(case, world, Actor("dead", {k: "after"}, only=first_writes()))
        case.must(world, "next", case.work(world))
        world.power_cut("lost")
        case.must(world, "recover", case.recover(world))
        case.check(world)

    killed = f"killed after change {k}, " if k else ""
    return Scenario(case, f"{killed}a run comes to its end, power cut: what it promised is there", play, seed=k)
