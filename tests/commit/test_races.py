"""Drivers at once, in orders drawn from seeds (see `sim/races.py`), over all committers and kinds of stores.

A failing seed prints itself and the shortest history that still fails: `pytest tests/commit/test_races.py -k "[40]"`, or
QUIRE_RACE_SEEDS=1000:2000 for others. `make matrix RACES=10000` plays many.
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from matrix import COMMITTERS, KINDS, fit
from sim.races import Driver, Race, Step, draw, play

FIRST, LAST = map(int, os.environ.get("QUIRE_RACE_SEEDS", "0:240").split(":"))
SHRINK = os.environ.get("QUIRE_SHRINK", "1") != "0"
BATCH = 40
__all__ = ["Driver", "Step"]  # for the lines of KEPT
# Of the usual ones a third is for the lane of what takes long, and a third for the nightly one.
THIRD = LAST if "QUIRE_RACE_SEEDS" in os.environ else (LAST - FIRST) // 3
MARKS: list[list[pytest.MarkDecorator]] = [[], [pytest.mark.services], [pytest.mark.nightly]]
SEEDS = [pytest.param(seed, marks=MARKS[min(2, (seed - FIRST) // max(THIRD, 1))]) for seed in range(FIRST, LAST, BATCH)]
FITTING = [(by, kind) for by in COMMITTERS.values() for kind in KINDS.values() if fit(by, kind)]
KEPT: list[Race] = []  # what has failed once: Race(…, drivers=(Driver(…, steps=(Step(…),)),))


@pytest.mark.nth(2)
@pytest.mark.parametrize("seed", SEEDS)
def test_races(seed: int) -> None:
    """Each file exactly once, nothing left, whatever the order."""
    for number in range(seed, min(seed + BATCH, LAST)):
        play(draw(number, FITTING), SHRINK)


def test_kept() -> None:
    for race in KEPT:
        play(race, shrink=False)


@pytest.mark.nth(2)
@pytest.mark.parametrize("change", ["append", "rewrite"])
def test_a_source_that_changes_just_before_a_purge_looks_at_it(change: str) -> None:
    """Whichever operation it is: neither what was gathered is lost, nor what has come."""
    one = Race(
        1, "lines", COMMITTERS["rename"], KINDS["objects"], (Driver("A", (Step("purge", path="/d0/f00*"),)),), on_append="tail",
        on_change="reprocess", begun=(Step("run", ("/d0",)),),
    )  # fmt: skip
    operations = [name for who, _, name, _ in play(one).history if who == "A"]
    looks = [i for i, name in enumerate(operations) if name == "f00"]
    assert len(looks) >= 4, "it is looked up and read, and looked up and deleted"
    for i in looks:
        play(replace(one, drivers=(replace(one.drivers[0], sleeps=i + 1),), edits=((2 * i, 0, change),)), SHRINK)


def test_a_seed_can_be_repeated() -> None:
    """The same seed gives the same history, but for the random ids."""
    race = next(found for found in (draw(seed, FITTING) for seed in range(7, 99)) if found.kind.name == "hdfs")
    first, second = (play(race).history for _ in range(2))
    assert [(who, op, fault) for who, op, _, fault in first] == [(who, op, fault) for who, op, _, fault in second]
