"""Two or three drivers at once, in an order drawn from a seed that can be repeated: on one job, on overlapping ones, with sleepers
that go on when all others have ended, with crashes, wrong answers, sources that change and grow, plans carried out late, jobs given up,
and with all that changes a ledger: forget, compact, retry, expire, purge, checkpoints. Of files, or of topics.

A race is plain data: what fails is made smaller while it still fails, and printed in a form that can be kept.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import quire
import sums
from quire.commit import protocol
from quire.coverage import checkpoint
from quire.errors import QuireError, RefusedError, UsageError
from sim import loads
from sim.drivers import Scheduler
from sim.kinds import Kind
from sim.ways import By, Finding, same
from sim.witness import OF_TOPICS, Deletions, Log, Observer, Tree, check, forget_all
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


FILES = 9  # of the source, at its beginning
# What a verb says that finds nothing to do, and so ends without effect; nothing else is taken for an answer.
_NO_LEDGER = r"\S+ holds no ledger: nothing was gathered there\. Check the spelling, or run quire consolidate first\."
_NO_COMMIT = r"there is nothing in \S+ to change: no commit is in its log\. Check the spelling\."
_NOT_THERE = r"\S+ is not in the ledger of \S+, so there is nothing to forget\. Look with ledger\.inspect\.splits\(\)\."
SAID = {
    "forget": f"{_NO_LEDGER}|{_NO_COMMIT}|{_NOT_THERE}",
    "compact": f"{_NO_LEDGER}|{_NO_COMMIT}",
    "retry": f"{_NO_LEDGER}|{_NO_COMMIT}",
    "expire": _NO_LEDGER,
    "purge": f"{_NO_LEDGER}|{_NO_COMMIT}",
}


@dataclass(frozen=True)
class Step:
    """What a driver does: run, plan (and run it), discard (a plan), abort (all open jobs), recover, or a verb of the ledger."""

    kind: str
    sources: tuple[str, ...] = ("",)
    target: int = 250
    size: int = 40  # of the splits of a function
    flush: bool = False  # takes last lines without their end
    path: str = ""  # what is forgotten, below the source
    repaired: bool = False  # the function of a retry takes what it has rejected before
    most: int = 0  # files in a commit; 0: no bound


@dataclass(frozen=True)
class Driver:
    """A process."""

    name: str
    steps: tuple[Step, ...]
    faults: tuple[tuple[int, str], ...] = ()
    sleeps: int = 0  # after so many operations, until all others have ended


@dataclass(frozen=True)
class Race:
    """All that decides a run, but for random ids. `transform` "records" stands for a function that rejects some, "load" for topics,
    "distinct" for topics of which what is known by its key is left out.
    """

    seed: int
    transform: str
    by: By
    kind: Kind
    drivers: tuple[Driver, ...]
    edits: tuple[tuple[int, int, str], ...] = ()  # of the source: operations to wait, file, and what becomes of it
    sticky: float = 0.0  # how probable it is that the same driver goes on
    split_listings: bool = False
    expires: int = 0  # after so many operations of its own clock the store drops all open uploads
    on_append: str = "report"
    on_change: str = "report"
    begun: tuple[Step, ...] = ()  # what was done before


def troubled(rng: random.Random, kind: Kind, name: str, steps: tuple[Step, ...], faulty: bool) -> Driver:
    """A driver of these steps, who may fall asleep, and to whom a store may answer wrongly."""
    length = 4 if kind.disk else 1  # system calls are shorter steps
    sleeps = int(rng.triangular(1, 220, 60)) * length if rng.random() < 0.5 else 0
    faults: tuple[tuple[int, str], ...] = ()
    if faulty and rng.random() < 0.6:
        hows = ("after", "torn", "ambiguous", "transient", "refused", *(() if kind.disk else ("late",)))
        faults = tuple((rng.randint(1, 45 * length), rng.choice(hows)) for _ in range(rng.choice((1, 2))))
    return Driver(name, steps, faults, sleeps)


def draw(seed: int, fitting: Sequence[tuple[By, Kind]]) -> Race:
    """A race of that seed."""
    rng = random.Random(seed)
    split = rng.random() < 0.3
    transform = rng.choice(("lines", "lines", "xml", "raw", "records"))
    on_append = rng.choice(("report", "tail", "tail") if transform in ("lines", "records") else ("report", "report", "reprocess"))
    on_change = rng.choice(("report", "reprocess"))
    odds = OF_STEPS if rng.random() < 0.65 else OF_VERBS  # of what there is to change, or of what changes it
    by, kind = rng.choice([pair for pair in fitting if not pair[0].leaks] * 2 + [pair for pair in fitting if pair[0].leaks])
    names = "ABC"[: rng.choice((2, 2, 3))]
    faulty = rng.random() < 0.4
    sticky = rng.choice((0.0, 0.5, 0.9, 0.97))
    drivers = []
    for name in names:
        steps = tuple(_step(rng, odds, transform, on_append) for _ in range(rng.choice((1, 1, 2))))
        drivers.append(troubled(rng, kind, name, steps, faulty))
    tail = on_append == "tail"
    first = Step("run", ("",) if odds is OF_VERBS else rng.choice(SOURCES), rng.choice((100, 250)))
    begun = (first,) if odds is OF_VERBS or rng.random() < (0.7 if tail else 0.2) else ()
    changes = ("append", "append", "append", "half", "touch", "rewrite", "remove") if tail else ("rewrite", "rewrite", "touch", "remove")
    edits: tuple[tuple[int, int, str], ...] = ()
    if rng.random() < (0.9 if tail else 0.3):
        number, files = (rng.randint(2, 6), FILES) if tail else (rng.randint(1, 3), 14)
        edits = tuple((rng.randint(2, 50), rng.randrange(files), rng.choice(changes)) for _ in range(number))
    expires = rng.randint(20, 200) if kind.uploads and rng.random() < 0.2 else 0
    bounded = random.Random(f"bounded {seed}")  # of its own, so that each seed's race stays otherwise as it was
    drivers = [replace(d, steps=tuple(replace(s, most=bounded.choice((0, 0, 1, 3))) for s in d.steps)) for d in drivers]
    return Race(seed, transform, by, kind, tuple(drivers), edits, sticky, split, expires, on_append, on_change, begun)


OF_STEPS: dict[str, float] = {
    "run": 6, "plan": 2, "discard": 0.5, "abort": 1, "recover": 1, "checkpoint": 1, "forget": 1, "compact": 1, "retry": 1, "expire": 1,
    "purge": 1,
}  # fmt: skip
OF_VERBS: dict[str, float] = {"run": 1, "forget": 2, "compact": 2, "retry": 1, "expire": 1, "purge": 2}


def _step(rng: random.Random, odds: dict[str, float], transform: str, on_append: str) -> Step:
    kinds = dict(odds)
    if transform == "records":  # which have no plans, and something to retry
        kinds = {kind: n * (3 if kind == "retry" else 1) for kind, n in odds.items() if kind not in ("plan", "discard")}
    kind = rng.choices(list(kinds), list(kinds.values()))[0]
    sources, target = rng.choice(SOURCES), rng.choice((250, 250, 400))
    if kind == "forget":
        return Step(kind, path=rng.choice(("", "/d0", "/d1", "/d1", *(f"/d{i % 3}/f{i:02}" for i in range(FILES)))))
    if kind == "purge":  # in each directory a file stays: one without any is not there
        return Step(kind, path=rng.choice(("/*/f0[0-5]", "/d1/f0[0-5]", "/d0/f00*", "/d1/f04*")))
    if kind == "retry":
        return Step(kind, repaired=rng.random() < 0.5)
    if kind == "compact":
        return Step(kind, target=1_000)
    flush = on_append == "tail" and rng.random() < 0.2
    return Step(kind, sources, target, rng.choice((23, 40, 100)) if transform == "records" else Step.size, flush)


def content(i: int, transform: str, edition: int = 0) -> bytes:
    if transform == "xml":
        return f"<d n='{i}'><v>{edition}</v></d>".encode() if (i + edition) % 4 else b"<d n='%d'>BROKEN %d" % (i, edition)
    if transform == "records":
        lines = (f"file {i:02} edition {edition}\n", f"-rejected {i}\n" * (i % 3), "the last", "" if i % 2 else "\n")
        return b"" if i == 4 else "".join(lines).encode()
    return b"" if i == 4 else f"file {i:02} edition {edition}\n".encode() * (14 if i == 7 else 2)


def function(repaired: bool = False) -> Callable[[quire.Split, bytes], bytes]:
    """Lines in capitals; one that begins with a minus is rejected, until it is repaired."""

    def shouted(split: quire.Split, content: bytes) -> bytes:
        kept, at = list[bytes](), 0
        for line in content.splitlines(True):
            if line.startswith(b"-") and not repaired:
                split.quarantine(line.rstrip(b"\n"), "it begins with a minus", at)
            else:
                kept.append(line.rstrip(b"\n").upper() + b"\n")
            at += len(line)
        return b"".join(kept)

    return shouted


def _act(race: Race, world: World, step: Step) -> None:
    source: Any = [f"{SOURCE}{folder}" for folder in step.sources]
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False, "committer": race.by.name}
    allowed = {"max_quarantined": 1000}  # here a call is a step of a history: what it leaves is judged, not how it ends
    size = f"{step.target} B"
    taken = "take" if step.flush else "hold"
    options = here | allowed | {"target_size": size, "on_append": race.on_append, "on_change": race.on_change, "partial_lines": taken}
    options |= {"max_files": step.most} if step.most else {}
    if step.kind == "run" and race.transform in OF_TOPICS:
        said = loads.DISTINCT if race.transform == "distinct" else {}
        loads.load(world.dest, race.by.name, target_size=size, **({"max_bytes": f"{step.size} B"} if step.size else {}), **said)
    elif step.kind == "run" and race.transform == "records":
        quire.process(
            source, world.dest, function(), split="lines", split_size=f"{step.size} B", format="lines", function_version="1", **options
        )
    elif step.kind == "run":
        quire.consolidate(source, world.dest, transform=race.transform, **options)
    elif step.kind == "checkpoint":
        checkpoint.write(quire.LocalRunner(), world.dest, None, world.store(world.dest))
    elif step.kind in ("plan", "discard"):
        plan = quire.plan(source, world.dest, transform=race.transform, **options)
        if step.kind == "plan":
            plan.run(progress=False)
        else:
            plan.discard()
    elif step.kind in SAID:
        try:
            _verb(race, quire.Ledger(world.dest), step, here)
        except RefusedError as e:
            if step.kind != "forget" or not re.search("deletes the last copy|by a purge that has not ended", str(e)):
                raise
        except UsageError as e:
            if not re.fullmatch(SAID[step.kind], str(e)):
                raise
    else:
        protocol.recover(world.store(world.dest), "open" if step.kind == "abort" else None)


def _verb(race: Race, ledger: quire.Ledger, step: Step, here: dict[str, Any]) -> None:
    if step.kind == "forget":
        ledger.forget(step.path if race.transform in OF_TOPICS else f"{SOURCE}{step.path}", **here)
    elif step.kind == "compact":
        ledger.compact(f"{step.target} B", **here)
    elif step.kind == "purge":
        derived = race.transform == "records"
        ledger.purge_sources(f"{SOURCE}{step.path}", dry_run=False, min_age=0, derived=derived, spark=here["spark"])
    elif step.kind == "retry":
        repaired = {"records": function, "load": loads.checked, "distinct": loads.checked}.get(race.transform)
        ledger.retry(
            loads.ASKED if race.transform in OF_TOPICS else SOURCE,
            function=repaired(step.repaired) if repaired else None,
            max_quarantined=1000,
            **here,
        )
    else:
        ledger.expire(grace="30000 days")  # the witness folds from the segments


def _drive(race: Race, world: World, driver: Driver) -> Callable[[], None]:
    def work() -> None:
        for step in driver.steps:
            _act(race, world, step)

    return work


def _edit(race: Race, world: World, tree: Tree) -> Callable[[], None]:
    """Somebody who writes into the source meanwhile."""

    def work() -> None:
        store = world.store(SOURCE)
        for edition, (wait, i, change) in enumerate(race.edits, 1):
            for _ in range(wait):
                store.stat("clock")  # time passes
            if race.transform in OF_TOPICS:
                loads.happens(change, i, edition)
                continue
            name = f"d{i % 3}/f{i:02}"
            there = f"{SOURCE}/{name}" in tree.now
            if change in ("append", "half"):  # half a line, which the next one ends
                tree.put(name, tree.content(name) + f"{'-' * (edition % 2)}more {edition}{chr(10) * (change == 'append')}".encode())
            elif there and change == "remove":
                tree.remove(name)
            else:
                tree.put(name, tree.content(name) if there and change == "touch" else content(i, race.transform, edition))

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
    if race.transform in OF_TOPICS:
        loads.fill()
    else:
        for i in range(FILES):
            tree.put(f"d{i % 3}/f{i:02}", content(i, race.transform))
    world.watched[DEST] = observer = Observer(leaks=race.by.leaks)
    world.watched[SOURCE] = Deletions(tree, observer)
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
        there, grows, current = world.there(), race.on_append == "tail", race.on_change == "reprocess"
        log = check(
            tree, race.transform, there=there, folders=folders, uploads=world.waiting(), clean=clean, leaks=leaks, grows=grows,
            current=current,
        )  # fmt: skip
        same(there, log, world.store(world.dest))
        return log

    try:
        with world.installed():
            with world.acting(Actor("before")):
                for step in race.begun:
                    _act(race, world, step)
                    sums.check(world.store(world.dest))
            world.settle()
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
                _act(race, world, Step("expire"))  # what one that died has left, and what a slow one has brought back
                look(clean=True)
            if world.disk:
                world.power_cut("lost")
                with world.acting(Actor("after the power cut")):
                    _act(race, world, Step("abort"))  # a discarded plan may be back, and nobody knows whose it is
                    _act(race, world, Step("expire"))  # a deleted file, too
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
            f"test, add it to KEPT in tests/commit/test_races.py:\n    {small!r},"
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
    if race.begun:
        yield replace(race, begun=())
    if race.split_listings:
        yield replace(race, split_listings=False)
    if race.expires:
        yield replace(race, expires=0)
