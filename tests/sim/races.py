"""Two or three drivers at once, in an order drawn from a seed that can be repeated: on one job, on overlapping ones, with sleepers
that go on when all others have ended, with crashes, wrong answers, sources that change, plans carried out late, jobs given up.

A race is plain data: what fails is made smaller while it still fails, and printed in a form that can be kept.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import quire
from quire.commit import protocol
from quire.coverage import checkpoint
from quire.errors import QuireError
from sim.drivers import Scheduler
from sim.kinds import Kind
from sim.ways import By, Finding
from sim.witness import Log, Observer, Tree, check, forget_all
from sim.world import DEST, SOURCE, Actor, Crash, Endless, World

SOURCES: list[tuple[str, ...]] = [
    ("",),
    ("",),
    ("/d0", "/d1"),
    ("/d1",),
    ("/d1", "/d2"),
]
SHRINK = 60.0  # seconds of CPU
TRIES = 25  # schedules in which a smaller race may fail


@dataclass(frozen=True)
class Step:
    """What a driver does: run, plan (and run it), discard (a plan), abort (all open jobs), recover."""

    kind: str
    sources: tuple[str, ...] = ("",)
    target: int = 250


@dataclass(frozen=True)
class Driver:
    """A process."""

    name: str
    steps: tuple[Step, ...]
    faults: tuple[tuple[int, str], ...] = ()
    sleeps: int = 0  # after so many operations, until all others have ended


@dataclass(frozen=True)
class Race:
    """All that decides a run, but for random ids."""

    seed: int
    transform: str
    by: By
    kind: Kind
    drivers: tuple[Driver, ...]
    edits: tuple[tuple[int, int, bool], ...] = ()  # of the source: operations to wait, file, whether it is removed
    sticky: float = 0.0  # how probable it is that the same driver goes on
    split_listings: bool = False
    expires: int = 0  # after so many operations of its own clock the store drops all open uploads


def draw(seed: int, fitting: Sequence[tuple[By, Kind]]) -> Race:
    """A race of that seed."""
    rng = random.Random(seed)
    split = rng.random() < 0.3
    transform = rng.choice(("lines", "lines", "xml", "raw"))
    by, kind = rng.choice([pair for pair in fitting if not pair[0].leaks] * 2 + [pair for pair in fitting if pair[0].leaks])
    length = 4 if kind.disk else 1  # system calls are shorter steps
    names = "ABC"[: rng.choice((2, 2, 3))]
    faulty = rng.random() < 0.4
    sticky = rng.choice((0.0, 0.5, 0.9, 0.97))
    drivers = []
    for name in names:
        steps = tuple(_step(rng) for _ in range(rng.choice((1, 1, 2))))
        sleeps = int(rng.triangular(1, 220, 60)) * length if rng.random() < 0.5 else 0
        faults: tuple[tuple[int, str], ...] = ()
        if faulty and rng.random() < 0.6:
            hows = ("after", "torn", "ambiguous", "transient", "refused", *(() if kind.disk else ("late",)))
            faults = tuple((rng.randint(1, 45 * length), rng.choice(hows)) for _ in range(rng.choice((1, 2))))
        drivers.append(Driver(name, steps, faults, sleeps))
    edits: tuple[tuple[int, int, bool], ...] = ()
    if rng.random() < 0.3:
        edits = tuple((rng.randint(5, 60), rng.randrange(14), rng.random() < 0.2) for _ in range(rng.randint(1, 3)))
    expires = rng.randint(20, 200) if kind.uploads and rng.random() < 0.2 else 0
    return Race(seed, transform, by, kind, tuple(drivers), edits, sticky, split, expires)


def _step(rng: random.Random) -> Step:
    kind = rng.choices(("run", "plan", "discard", "abort", "recover", "checkpoint"), (6, 2, 0.5, 1, 1, 1))[0]
    return Step(kind, rng.choice(SOURCES), rng.choice((250, 250, 400)))


def content(i: int, transform: str, edition: int = 0) -> bytes:
    if transform == "xml":
        return f"<d n='{i}'><v>{edition}</v></d>".encode() if (i + edition) % 4 else b"<d n='%d'>BROKEN %d" % (i, edition)
    return b"" if i == 4 else f"file {i:02} edition {edition}\n".encode() * (14 if i == 7 else 2)


def _act(race: Race, world: World, step: Step) -> None:
    source: Any = [f"{SOURCE}{folder}" for folder in step.sources]
    options: dict[str, Any] = {"transform": race.transform, "committer": race.by.name, "target_size": step.target}
    if step.kind == "run":
        quire.consolidate(source, world.dest, spark=quire.InProcess(), progress=False, **options)
    elif step.kind == "checkpoint":
        checkpoint.write(quire.InProcess(), world.dest, None, world.store(world.dest))
    elif step.kind in ("plan", "discard"):
        plan = quire.plan(source, world.dest, spark=quire.InProcess(), progress=False, **options)
        if step.kind == "plan":
            plan.run(progress=False)
        else:
            plan.discard()
    else:
        protocol.recover(world.store(world.dest), "open" if step.kind == "abort" else None)


def _drive(race: Race, world: World, driver: Driver) -> Callable[[], None]:
    def work() -> None:
        for step in driver.steps:
            _act(race, world, step)

    return work


def _edit(race: Race, world: World, tree: Tree) -> Callable[[], None]:
    """Somebody who writes into the source meanwhile."""

    def work() -> None:
        store = world.store(SOURCE)
        for edition, (wait, i, gone) in enumerate(race.edits, 1):
            for _ in range(wait):
                store.stat("clock")  # time passes
            name = f"d{i % 3}/f{i:02}"
            if gone and f"{SOURCE}/{name}" in tree.now:
                tree.remove(name)
            else:
                tree.put(name, content(i, race.transform, edition))

    return work


def _expire(race: Race, world: World) -> Callable[[], None]:
    """The store, which keeps open uploads for so long."""

    def work() -> None:
        store = world.store(SOURCE)
        for _ in range(race.expires):
            store.stat("clock")
        world.expire()

    return work


def once(race: Race) -> World:
    """Let it run; what must hold at its end."""
    forget_all()
    world, tree = World(race.seed, kind=race.kind), Tree()
    world.split_listings = race.split_listings
    for i in range(9):
        tree.put(f"d{i % 3}/f{i:02}", content(i, race.transform))
    world.watched[DEST] = Observer(leaks=race.by.leaks)
    scheduler = Scheduler(world, race.sticky, {d.name: d.sleeps for d in race.drivers if d.sleeps})
    for driver in race.drivers:
        scheduler.add(Actor(driver.name, dict(driver.faults)), _drive(race, world, driver))
    if race.edits:
        scheduler.add(Actor("source"), _edit(race, world, tree))
    if race.expires:
        scheduler.add(Actor("time"), _expire(race, world))

    def look(clean: bool) -> Log:
        folders = world.disk.folders("dest") if world.disk else ()
        leaks = not clean and race.by.leaks
        return check(tree, race.transform, there=world.there(), folders=folders, uploads=world.waiting(), clean=clean, leaks=leaks)

    try:
        with world.installed():
            for name, ended in scheduler.run().items():
                hit = scheduler.scripts[name][0].hit
                fine = ended is None or ((hit or race.expires) and isinstance(ended, Crash | QuireError))
                if not fine:
                    raise AssertionError(f"driver {name} ended with {type(ended).__name__}: {ended}") from ended
            world.land(everything=True)
            world.settle()
            with world.acting(Actor("last")):
                _act(race, world, Step("run"))
                look(clean=False)
                _act(race, world, Step("abort"))
                look(clean=True)
            if world.disk:
                world.power_cut("lost")
                with world.acting(Actor("after the power cut")):
                    _act(race, world, Step("abort"))  # a discarded plan may be back, and nobody knows whose it is
                    look(clean=True)
    except (Exception, Crash, Endless) as e:
        raise Finding(f"{e}\n{world.told(1000)}") from e
    finally:
        forget_all()
    return world


def play(race: Race, shrink: bool = True) -> World:
    """Let it run; what fails is made smaller, and told with the shortest history."""
    try:
        return once(race)
    except Finding as e:
        small, told = smaller(race, str(e)) if shrink else (race, str(e))
        raise Finding(
            f"seed {race.seed}: {told}\n\nThis is the smallest that fails ({told.count(chr(10))} operations). To keep it as a regression "
            f"test, add it to KEPT in tests/test_races.py:\n    {small!r},"
        ) from e


def smaller(race: Race, told: str, seconds: float = SHRINK) -> tuple[Race, str]:
    """Take away what is not needed for the failure: drivers, steps, faults, sleeps, edits, then changes of turn."""
    until = time.process_time() + seconds
    found = True
    while found and time.process_time() < until:
        found = False
        for less in _less(race):
            if hit := _fails(less, until):
                race, told = hit
                found = True
                break
    for seed in range(race.seed + 1, race.seed + 4 * TRIES):  # the shortest of some histories
        if time.process_time() > until:
            break
        hit = _fails(replace(race, seed=seed, sticky=0.97), until, 1)
        if hit and hit[1].count("\n") < told.count("\n"):
            race, told = hit
    return race, told


def _fails(race: Race, until: float, tries: int = TRIES) -> tuple[Race, str] | None:
    for seed in range(race.seed, race.seed + tries):
        if time.process_time() > until:
            return None
        try:
            once(again := replace(race, seed=seed))
        except Finding as e:
            return again, str(e)
    return None


def _less(race: Race) -> Iterator[Race]:
    for i, driver in enumerate(race.drivers):
        before, after = race.drivers[:i], race.drivers[i + 1 :]
        if len(race.drivers) > 1:
            yield replace(race, drivers=before + after)
        if len(driver.steps) > 1:
            for j in range(len(driver.steps)):
                yield replace(race, drivers=(*before, replace(driver, steps=driver.steps[:j] + driver.steps[j + 1 :]), *after))
        for j in range(len(driver.faults)):
            yield replace(race, drivers=(*before, replace(driver, faults=driver.faults[:j] + driver.faults[j + 1 :]), *after))
        if driver.sleeps:
            yield replace(race, drivers=(*before, replace(driver, sleeps=0), *after))
    for i in range(len(race.edits)):
        yield replace(race, edits=race.edits[:i] + race.edits[i + 1 :])
    if race.split_listings:
        yield replace(race, split_listings=False)
    if race.expires:
        yield replace(race, expires=0)
