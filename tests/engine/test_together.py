"""Drivers at once on jobs whose files hold rows of many splits: a shuffle, and claims. In orders that seeds repeat."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest

import sim
from matrix import KINDS, claims, shuffles
from quire.commit import protocol
from quire.errors import QuireError
from sim import DEST, SOURCE, Actor, Observer, Scheduler, Tree, World, check

SEEDS = range(24)
PLACES = [("rename", "hdfs"), ("copy", "s3"), ("upload", "azure"), ("rename", "nfs"), ("copy", "azure"), ("upload", "s3")]
WORK = {"shuffle": shuffles, "claim": claims}
FOLDERS = [("",), ("/d0", "/d1"), ("/d1", "/d2"), ("",)]


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def _play(kind: str, seed: int) -> set[str]:
    """Two drivers on sources that overlap, one of which may sleep or die; afterwards one call more. What the drivers ended with."""
    sim.forget_all()
    by, place = PLACES[seed % len(PLACES)]
    world, tree = World(seed, kind=KINDS[place]), Tree()
    for i in range(6):
        tree.put(f"d{i % 3}/f{i}", b"" if i == 4 else b"file %d" % i)
    world.watched[DEST] = Observer()
    sleeps = {"AB"[seed % 2]: world.random.randint(20, 120)} if seed % 3 else {}
    scheduler = Scheduler(world, (0.0, 0.5, 0.9)[seed % 3], sleeps)
    work = functools.partial(WORK[kind], committer="rename" if kind == "claim" else by)
    for name in "AB":
        source: Any = [f"{SOURCE}{folder}" for folder in world.random.choice(FOLDERS)]
        faults = {world.random.randint(5, 40): "after"} if name == "A" and seed % 4 == 0 else {}
        scheduler.add(Actor(name, faults), functools.partial(work, source, world.dest))
    with world.installed():
        ended = scheduler.run()
        for name, how in ended.items():
            dead = bool(scheduler.scripts[name][0].hit) and isinstance(how, sim.Crash)
            lost = kind == "claim" and isinstance(how, QuireError) and "is visible" in str(how)
            assert how is None or dead or lost, f"{name} ended with {how!r}\n{world.told()}"
        world.settle()
        with world.acting(Actor("last")):
            work(SOURCE, world.dest)
            protocol.recover(world.store(world.dest), "open")
            try:
                check(tree, kind, there=world.there(), uploads=world.waiting())
            except AssertionError as e:
                raise AssertionError(f"{e}\n{world.told()}") from e
    return {str(how).partition(":")[0] for how in ended.values() if how is not None}


@pytest.mark.nth(2)
@pytest.mark.parametrize("kind", ["shuffle", "claim"])
def test_each_split_is_in_one_commit_whoever_comes_first(kind: str) -> None:
    for seed in SEEDS:
        try:
            _play(kind, seed)
        except AssertionError as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def test_claims_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them come second, and are told so: else this would show nothing."""
    said = set[str]().union(*(_play("claim", seed) for seed in SEEDS))
    assert any("another claim" in text or "others have processed" in text for text in said), said
