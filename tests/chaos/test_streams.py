"""A stream from one destination into another whose driver is killed again and again: each row comes once."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import quire
from gathering import write
from services.spark import end_session

LOCAL = quire.LocalRunner()
SEED = int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000))


class Stream:
    """The two destinations, and what was put into the first one."""

    def __init__(self, base: Path) -> None:
        self.base, self.source, self.first, self.second = base, base / "in", base / "first", base / "second"
        self.sent = Counter[str]()
        self.commits = 0

    def add(self) -> None:
        """A commit of some lines."""
        lines = [f"commit {self.commits} line {n}" for n in range(self.commits % 7 + 1)]
        write(self.source, {f"f{self.commits}": "".join(f"{line}\n" for line in lines).encode()})
        quire.process(self.source, self.first, rows, split="lines", schema="line string", function_version="1", spark=LOCAL, progress=False)
        self.sent.update(lines)
        self.commits += 1

    def start(self, how: str) -> subprocess.Popen[bytes]:
        script, places = Path(__file__).with_name("streaming.py"), (self.first, self.second, self.base / "streaming")
        command = [sys.executable, "-W", "ignore", str(script), *map(str, places), how]
        with (self.base / "driver.log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def found(self) -> Counter[str]:
        """The rows that somebody counts who lists the second directory."""
        if not list(self.second.glob("*.parquet")):
            return Counter()
        return Counter(line for (line,) in duckdb.sql(f"select line from '{self.second}/*.parquet'").fetchall())


def rows(split: quire.Split, content: bytes) -> list[dict[str, str]]:
    return [{"line": line} for line in content.decode().splitlines()]


def play(base: Path, kills: int) -> None:
    stream, draw = Stream(base), random.Random(SEED)
    stream.add()
    for _ in range(kills):
        for _ in range(draw.randrange(1, 4)):
            stream.add()
        driver, before = stream.start("follow"), sum(stream.found().values())
        end = time.monotonic() + 120
        # Somewhere between its first batch and its last one; now and then before either.
        while sum(stream.found().values()) <= before and time.monotonic() < end and draw.random() > 0.002:
            time.sleep(0.05)
        time.sleep(draw.random() * 2)
        assert driver.poll() is None, (base / "driver.log").read_text()[-4000:]
        end_session(driver)
        assert not stream.found() - stream.sent, f"CHAOS_SEED={SEED}: rows that are there twice"
    assert stream.start("once").wait(280) == 0, (base / "driver.log").read_text()[-4000:]
    assert stream.found() == stream.sent, f"CHAOS_SEED={SEED}"
    assert quire.Ledger(stream.second).verify(spark=LOCAL).ok


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_a_stream_whose_driver_is_killed_three_times(tmp_path: Path) -> None:
    play(tmp_path, 3)


@pytest.mark.chaos
@pytest.mark.timeout(5_400)
def test_a_stream_whose_driver_is_killed_thirty_times(tmp_path: Path) -> None:
    play(tmp_path, 30)
