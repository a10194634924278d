"""Loops that maintain their destinations, over files and over topics at once, killed every twenty seconds on average while both grow.

CHAOS_MINUTES says how long, instead of half an hour.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from processes import Driver
from story import Story, story
from topics import Loaded, loaded

import quire
from quire.commit import archive
from services.kafka_broker import Cluster, broker
from services.kafka_witness import Content, Position

if TYPE_CHECKING:
    from tale import Tale

# So little is due at once that each service of the upkeep has work in a minute: an archive has few entries, and not ten thousand.
BLOCK, GROUP = 20, 4  # entries in an archive, and in a group of its rows
SOON = f"""
from quire.commit import archive
from quire.coverage import checkpoint
from quire.ledger import maintaining
archive.BLOCK = {BLOCK}
archive.GROUP = {GROUP}
checkpoint.ENTRIES = 30
checkpoint.SOON = 10
maintaining.VERSIONS = 5
maintaining.LOOK = 0.5
maintaining.SHARE = 0.5
"""
PROGRAM = """
import json, sys, quire
said = json.loads(sys.argv[1])
loop = getattr(quire, said["settings"].pop("call"))
loop(said["source"], said["dest"], spark=quire.LocalRunner(), progress=False, **said["settings"])
"""
LOOP = {"every": "50 ms", "keep_versions": 1, "maintain": {"small_files": 4, "small_share": 0.2, "grace": "1 s"}}
BETWEEN = 20.0  # seconds from kill to kill, on average
WAVE = 1.0  # seconds from one wave of files and records to the next


@dataclass
class Loop:
    """A story, and the process that runs a loop over its source."""

    story: Story
    settings: dict[str, Any]
    driver: Driver | None = None
    kills: int = 0

    def run(self) -> Driver:
        self.driver = Driver(self.story.place, {**self.settings, **LOOP}, program=SOON + PROGRAM)
        return self.driver

    def kill(self) -> None:
        """Anywhere; a loop that has ended by itself has failed."""
        assert self.driver is not None
        assert self.driver.running(), f"the loop has ended:\n{self.driver.said()[-3000:]}"
        self.driver.kill()
        assert self.driver.popen.returncode == -signal.SIGKILL
        self.kills += 1
        self.story.tale.struck(self.story.name, "loop", "anywhere", "", self.story.lies(), pid=self.driver.pid)

    def _is_done(self) -> bool:
        return self.story.count().lost == 0 and not _due(self.story.dest)

    def end(self) -> None:
        """Let the last one take all that is there and look after it, and hold the destination against its source."""
        driver = self.run()
        try:
            _wait(self._is_done, driver)
        finally:
            driver.kill()
        call, settings = self.settings["call"], {k: v for k, v in self.settings.items() if k != "call"}
        getattr(quire, call)(*self.story.place.urls, spark=quire.LocalRunner(), progress=False, **settings)
        found = self.story.count()  # by those who know neither ledger nor log, whose segments are merged and gone
        self.story.tale.recovered(self.story.name, f"quire.{call}", found)
        assert (found.lost, found.double) == (0, 0), f"{self.story.name}, seed {self.story.tale.seed}: {found}"
        ledger = quire.Ledger(self.story.dest)
        assert ledger.verify(spark=quire.LocalRunner()).ok
        history = ledger.inspect.history()
        assert history["version"].tolist() == list(range(1, ledger.version + 1)), "the history is whole"
        log = self.story.dest / "_quire/log"
        assert list((log / "archive").iterdir()), "nothing was archived"
        assert len(list(log.glob("*.entry"))) < 200, "entries stay where archives should have them"
        assert "compact" not in _due(self.story.dest), "small files are above their share"


class Live(Loaded):
    """Topics that are counted while a loop takes files away."""

    def held(self) -> Counter[tuple[Position, Content]]:
        while True:
            with suppress(FileNotFoundError):
                return super().held()


def _due(dest: Path) -> dict[str, str]:
    wanted = {k: v for k, v in LOOP["maintain"].items() if k != "grace"}
    due = quire.Ledger(dest).maintain(dry_run=True, spark=quire.LocalRunner(), progress=False, **wanted).due
    return {kind: why for kind, why in due.items() if kind == "compact"}


def _wait(seen: Any, driver: Driver) -> None:
    end = time.monotonic() + 180
    while not seen():
        assert driver.running(), driver.said()[-3000:]
        assert time.monotonic() < end, f"not all is gathered and merged after three minutes; {driver.said()[-2000:]}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    with broker() as cluster:
        yield cluster


def _play(kafka: Cluster, base: Path, tale: Tale, seconds: float) -> int:
    rng = tale.rng("loops")
    files = {"call": "consolidate", "target_size": "12000 B", "max_files": 40, "retry_quarantined": "1 s"}
    records = {"call": "load", "target_size": "12000 B", "on_data_loss": "record"}
    with story("loop over files", base, tale) as a, loaded("loop over topics", base, tale, kafka, kind=Live) as b:
        loops = [Loop(a, files), Loop(b, records)]
        for loop in loops:
            loop.story.add(20)
            loop.run()
        end, due = time.monotonic() + seconds, [time.monotonic() + rng.expovariate(1 / BETWEEN) for _ in loops]
        try:
            while (now := time.monotonic()) < end:
                for i, loop in enumerate(loops):
                    if now >= due[i]:
                        loop.kill()
                        loop.run()
                        due[i] = now + rng.expovariate(1 / BETWEEN)
                    loop.story.add(rng.randint(1, 12))
                time.sleep(WAVE)
            for loop in loops:
                loop.kill()
                loop.end()
        finally:
            for loop in loops:
                if loop.driver is not None:
                    loop.driver.kill()
    return sum(loop.kills for loop in loops)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_loops_with_upkeep_that_are_killed_for_half_an_hour(
    kafka: Cluster, tmp_path: Path, tale: Tale, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(archive, "BLOCK", BLOCK)
    monkeypatch.setattr(archive, "GROUP", GROUP)
    seconds = 60 * float(os.environ.get("CHAOS_MINUTES") or 30)
    assert _play(kafka, tmp_path, tale, seconds) >= seconds / BETWEEN, "two loops, each killed that often"
