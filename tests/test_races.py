"""Two or three drivers at once, in an order drawn from a seed that can be repeated: on one job, on overlapping ones, with sleepers
that go on when all others have ended, with crashes, wrong answers, sources that change, plans carried out late and jobs given up.

A failing seed prints itself and what happened: `pytest tests/test_races.py -k "[17-"`, or QUIRE_RACE_SEEDS=1000:2000 for others.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import quire
import sim
from quire.commit import protocol
from quire.errors import QuireError

FIRST, LAST = map(int, os.environ.get("QUIRE_RACE_SEEDS", "0:400").split(":"))
BATCH = 40

SOURCES: list[Any] = [
    sim.SOURCE,
    sim.SOURCE,
    [f"{sim.SOURCE}/d0", f"{sim.SOURCE}/d1"],
    f"{sim.SOURCE}/d1",
    [f"{sim.SOURCE}/d1", f"{sim.SOURCE}/d2"],
]


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def gather(source: Any, transform: str, committer: str, target: int) -> quire.Report:
    return quire.consolidate(
        source, sim.DEST, spark=quire.InProcess(), progress=False, transform=transform, committer=committer, target_size=target
    )


def look_then_run(source: Any, transform: str, committer: str, target: int, keep: bool) -> None:
    plan = quire.plan(
        source, sim.DEST, spark=quire.InProcess(), progress=False, transform=transform, committer=committer, target_size=target
    )
    if keep:
        plan.run(progress=False)
    else:
        plan.discard()


def script(rng: random.Random, world: sim.World, tree: sim.Tree, transform: str, committer: str) -> Callable[[], None]:
    """What one driver does."""
    steps: list[Callable[[], object]] = []
    for _ in range(rng.choice((1, 1, 2))):
        source, target = rng.choice(SOURCES), rng.choice((250, 250, 400))
        kind = rng.choices(("run", "plan", "discard", "abort", "recover"), (6, 2, 0.5, 1, 1))[0]
        if kind == "run":
            steps.append(lambda s=source, t=target: gather(s, transform, committer, t))
        elif kind in ("plan", "discard"):
            steps.append(lambda s=source, t=target, k=kind == "plan": look_then_run(s, transform, committer, t, k))
        else:
            steps.append(lambda k=kind: protocol.recover(world.store(sim.DEST), "open" if k == "abort" else None))

    def work() -> None:
        for step in steps:
            step()

    return work


def content(i: int, transform: str, edition: int = 0) -> bytes:
    if transform == "xml":
        return f"<d n='{i}'><v>{edition}</v></d>".encode() if (i + edition) % 4 else b"<d n='%d'>BROKEN %d" % (i, edition)
    return b"" if i == 4 else f"file {i:02} edition {edition}\n".encode() * (14 if i == 7 else 2)


def changer(rng: random.Random, world: sim.World, tree: sim.Tree, transform: str) -> Callable[[], None]:
    """Somebody who writes into the source meanwhile."""

    def work() -> None:
        store = world.store(sim.SOURCE)
        for edition in range(1, rng.randint(2, 4)):
            for _ in range(rng.randint(5, 60)):
                store.stat("clock")  # time passes
            i = rng.randrange(14)
            if rng.random() < 0.2 and f"{sim.SOURCE}/d{i % 3}/f{i:02}" in tree.now:
                tree.remove(f"d{i % 3}/f{i:02}")
            else:
                tree.put(f"d{i % 3}/f{i:02}", content(i, transform, edition))

    return work


def race(seed: int) -> tuple[sim.World, int]:
    """One run of the scheduler, and what must hold at its end."""
    sim.forget_all()
    rng = random.Random(seed)
    world, tree = sim.World(seed), sim.Tree()
    world.split_listings = rng.random() < 0.3
    transform, committer = rng.choice(("lines", "lines", "xml", "raw")), rng.choice(("rename", "rename", "rename_v2"))
    for i in range(9):
        tree.put(f"d{i % 3}/f{i:02}", content(i, transform))
    world.watched[sim.DEST] = sim.Observer(sim.DEST, leaks=committer == "rename_v2")
    names = "ABC"[: rng.choice((2, 2, 3))]
    sleeps = {name: int(rng.triangular(1, 220, 60)) for name in names if rng.random() < 0.5}
    scheduler = sim.Scheduler(world, rng.choice((0.0, 0.5, 0.9, 0.97)), sleeps)
    faulty = rng.random() < 0.4
    for name in names:
        faults = {}
        if faulty and rng.random() < 0.6:
            faults = {
                rng.randint(1, 45): rng.choice(("after", "torn", "ambiguous", "late", "transient")) for _ in range(rng.choice((1, 2)))
            }
        scheduler.add(sim.Actor(name, faults), script(rng, world, tree, transform, committer))
    if rng.random() < 0.3:
        scheduler.add(sim.Actor("source"), changer(rng, world, tree, transform))
    try:
        with world.installed():
            for name, ended in scheduler.run().items():
                hit = scheduler.scripts[name][0].hit
                fine = ended is None or (hit and isinstance(ended, sim.Crash | QuireError))
                if not fine:
                    raise AssertionError(f"driver {name} ended with {type(ended).__name__}: {ended}") from ended
            world.land(everything=True)
            with world.acting(sim.Actor("last")):
                gather(sim.SOURCE, transform, committer, 250)
                sim.check(tree, transform, clean=False, leaks=committer == "rename_v2")
                protocol.recover(world.store(sim.DEST), "open")
                log = sim.check(tree, transform)
    except BaseException as e:
        raise AssertionError(f"seed {seed} ({transform}, {committer}, sleeps {sleeps}): {e}\n{world.told(1000)}") from e
    return world, len(log.entries)


@pytest.mark.parametrize("seed", range(FIRST, LAST, BATCH))
def test_races(seed: int) -> None:
    """Each file exactly once, nothing left, whatever the order."""
    for number in range(seed, min(seed + BATCH, LAST)):
        race(number)


def test_a_seed_can_be_repeated() -> None:
    """The same seed gives the same history, but for the random ids."""
    first, second = (race(7)[0].history for _ in range(2))
    assert [(who, op, fault) for who, op, _, fault in first] == [(who, op, fault) for who, op, _, fault in second]
