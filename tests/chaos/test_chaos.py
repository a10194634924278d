"""Drivers on Spark that are killed with all their processes, or race each other; then an independent count of every byte.

Here no hook is at work: which phase a driver is in is seen from outside, in `_quire/`. `make chaos` runs the long one, with
60,000 files, and what is in the other files of this directory.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from moments import PHASES, look, wait_for
from processes import Driver, Place, driver
from tale import Tale, count

import checker
import quire

SPARK = "local[2]"
MOMENTS = {"many task commits": "task commit", "published": "clean-up"}  # of the table, for what is seen from outside


class Run:
    """A source that grows, a destination, and drivers that are killed."""

    def __init__(self, base: Path, target: int, tale: Tale) -> None:
        self.place, self.target, self.tale = Place(base / "run", hooked=False), target, tale
        self.source, self.dest = self.place.source, self.place.dest
        self.files = self.waves = self.kills = 0

    def add(self, files: int) -> None:
        """New files, also in a directory of their own."""
        quire.populate(self.source / f"wave{self.waves}", files, 512, 5, seed=self.waves, progress=False)
        self.waves += 1
        self.files += files

    def kill_in(self, phase: str) -> bool:
        """Start a driver, kill it in the phase; False: it was faster."""
        before = look(self.dest)
        started = Driver(self.place, {"target_size": f"{self.target} B"}, SPARK)
        try:
            seen = wait_for(phase, started, self.dest, before)
        finally:
            started.kill()
        if seen is None:
            assert started.popen.returncode == 0, started.said()[-4000:]
            self.tale.say(f"     too late for {phase}")
            return False
        self.kills += 1
        lay = look(self.dest)
        self.tale.struck("ten kills", "driver and all its processes", MOMENTS.get(phase, phase), "seen from outside", lay, pid=started.pid)
        return True

    def finish(self) -> None:
        """A last run, and the count: by lines, by the ledger, byte for byte, and by the sizes of what is there."""
        with driver(self.place, {"target_size": f"{self.target} B"}, SPARK) as last:
            last.end()
        found = count(self.source, self.dest)
        self.tale.recovered("ten kills", "the next driver", found)
        assert (found.lost, found.double) == (0, 0)
        wanted = checker.tree(self.source)
        assert len(wanted) == self.files
        checker.check(wanted, self.dest)
        written = sum(p.stat().st_size for p in self.dest.iterdir() if p.is_file())
        assert written == sum(len(checker.with_newline(content)) for content in wanted.values())
        empty = list((self.dest / "_quire/jobs").rglob("*"))
        assert not empty, f"left over: {empty[:5]}"


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.nightly
@pytest.mark.timeout(900)  # on a busy machine
def test_three_kills(base: Path, tale: Tale) -> None:
    """3,000 files; killed while tasks commit, at the job's commit, and after it is published."""
    run = Run(base, 64_000, tale)
    run.add(2_400)
    for phase in ("task commit", "job commit"):
        assert run.kill_in(phase)
    run.add(600)
    assert run.kill_in("published")
    run.finish()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_ten_kills(base: Path, tale: Tale) -> None:
    """60,000 files, ten kills, spread over listing, tasks, task commit, job commit, publish and clean-up."""
    run = Run(base, 96_000, tale)
    run.add(30_000)
    phases = ["listing", "plan frozen", "in a task", "task commit", "many task commits", "job commit"]
    assert set(phases) <= set(PHASES)
    for phase in phases:
        assert run.kill_in(phase)
    for phase in ("publish", "published", "clean-up", "in a task"):
        run.add(6_000)
        for _ in range(5):
            if run.kill_in(phase):
                break
            run.add(500)
    run.add(60_000 - run.files)
    run.finish()
    assert run.kills >= 10


@pytest.mark.chaos
def test_two_drivers_on_spark(base: Path) -> None:
    """Two processes gather the same source into the same destination at once, both to a good end."""
    place = Place(base / "run", hooked=False)
    quire.populate(place.source, 2_000, 512, 5, seed=0, progress=False)
    settings = {"target_size": "64000 B"}
    with driver(place, settings, SPARK) as a, driver(place, settings, SPARK) as b:
        counts = [int(d.end().split()[0]) for d in (a, b)]
    assert max(counts) <= 2_000
    checker.check(place.source, place.dest)


@pytest.mark.chaos
def test_three_drivers_while_files_arrive(base: Path) -> None:
    """Three processes without Spark, with different targets (so jobs of their own) or the same, again and again, as files arrive."""
    place, waves = Place(base / "run", hooked=False), 1
    quire.populate(place.source / "wave0", 100, 512, 5, seed=0, progress=False)
    again = {"every": 0.02, "max_runs": 25}
    with (
        driver(place, {"target_size": "20000 B", **again}) as a,
        driver(place, {"target_size": "20000 B", **again}) as b,
        driver(place, {"target_size": "30000 B", **again}) as c,
    ):
        while any(d.running() for d in (a, b, c)):
            if waves < 30:
                quire.populate(place.source / f"wave{waves}", 50, 512, 5, seed=waves, progress=False)
                waves += 1
            time.sleep(0.05)
        for each in (a, b, c):
            each.end()
    quire.consolidate(place.source, place.dest, spark=quire.LocalRunner(), target_size="20000 B", progress=False)
    checker.check(place.source, place.dest)
