"""Real processes on local disk that are killed with SIGKILL, or race each other; then an independent count of every byte.

`make chaos` runs the long one: 60,000 files, ten kills. Which phase a process is in is seen from outside, in `_quire/`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import checker
import quire

DRIVER = """
import sys, quire
source, dest, target, runner = sys.argv[1:5]
spark = quire.InProcess() if runner == "in process" else quire.session(master="local[2]", spark_driver_memory="1g")
more = {"every": 0.02, "max_runs": int(sys.argv[5])} if len(sys.argv) > 5 else {}
report = quire.consolidate(source, dest, spark=spark, target_size=int(target), progress=False, **more)
print(report.files, report.set_aside_count, len(report.left_out))
"""


# ------------------------------------------------------------------------------------------------------------------- processes
def members(session: int) -> list[int]:
    """The processes of a session: the driver, its JVM, and Spark's Python workers (which make a process group of their own)."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                fields = Path(entry.path, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


class Process:
    """A driver in a session of its own."""

    def __init__(self, *arguments: object, log: Path) -> None:
        self.log = log
        with log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", DRIVER, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def running(self) -> bool:
        return self.popen.poll() is None

    def kill(self) -> None:
        """Kill all of it at one moment, as far as that goes, and reap it."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        for _ in range(200):
            left = members(self.popen.pid)
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left and not self.running():
                break
            time.sleep(0.01)
        self.popen.wait(30)

    def end(self, seconds: float = 240) -> str:
        """Wait for its end, which must be a good one."""
        try:
            code = self.popen.wait(seconds)
        finally:
            self.kill()
        said = self.log.read_text(errors="replace")
        assert code == 0, f"exit code {code}:\n{said[-4000:]}"
        return said


@contextmanager
def driver(*arguments: object, log: Path) -> Iterator[Process]:
    process = Process(*arguments, log=log)
    try:
        yield process
    finally:
        process.kill()
        assert not members(process.popen.pid)


# ------------------------------------------------------------------------------------------------------------ seen from outside
@dataclass
class Seen:
    """What lies in a destination at a moment."""

    pieces: set[str] = field(default_factory=set)
    plans: set[str] = field(default_factory=set)
    attempts: set[str] = field(default_factory=set)
    manifests: set[str] = field(default_factory=set)
    entries: dict[str, str] = field(default_factory=dict)
    visible: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        return (
            f"{len(self.pieces)} plan pieces, {len(self.plans)} plans, {len(self.attempts)} attempts, {len(self.manifests)} manifests, "
            f"{len(self.entries)} log entries, {len(self.visible)} data files"
        )


def names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def look(dest: Path) -> Seen:
    seen, state = Seen(), dest / "_quire"
    for entry in names(state / "log"):
        if entry.endswith(".json"):
            try:
                seen.entries[entry] = json.loads((state / "log" / entry).read_bytes())["kind"]
            except OSError:
                continue
    for job in names(state / "jobs"):
        for name in names(state / "jobs" / job):
            if name.startswith("plan-"):
                seen.pieces.add(f"{job}/{name}")
            elif name == "plan.json":
                seen.plans.add(job)
        seen.attempts |= {f"{job}/{name}" for name in names(state / "jobs" / job / "attempts")}
        seen.manifests |= {f"{job}/{name}" for name in names(state / "jobs" / job / "tasks")}
    seen.visible = {name for name in names(dest) if name != "_quire"}
    return seen


def _new_entry(kind: str) -> Callable[[Seen, Seen], bool]:
    return lambda now, before: any(k == kind for name, k in now.entries.items() if name not in before.entries)


PHASES: dict[str, Callable[[Seen, Seen], bool]] = {
    "listing": lambda now, before: bool(now.pieces - before.pieces),
    "plan frozen": lambda now, before: bool(now.plans - before.plans),
    "tasks": lambda now, before: bool(now.attempts - before.attempts),
    "task commit": lambda now, before: len(now.manifests - before.manifests) >= 1,
    "many task commits": lambda now, before: len(now.manifests - before.manifests) >= 10,
    "job commit": _new_entry("commit"),
    "publish": lambda now, before: bool(now.visible - before.visible),
    "published": _new_entry("published"),
    "clean-up": lambda now, before: _new_entry("published")(now, before) and len(now.manifests) < len(before.manifests | now.manifests),
}


def wait_for(phase: str, process: Process, dest: Path, before: Seen) -> Seen | None:
    """Look until the process is in the phase; None: it ended first."""
    most = before
    while process.running():
        now = look(dest)
        if phase == "clean-up":
            if _new_entry("published")(now, before) and len(now.manifests) < len(most.manifests):
                return now
            most = now if len(now.manifests) > len(most.manifests) else most
        elif PHASES[phase](now, before):
            return now
        time.sleep(0.003)
    return None


# ------------------------------------------------------------------------------------------------------------------- the tests
class Run:
    """A source that grows, a destination, drivers that are killed, and the tale of it."""

    def __init__(self, base: Path, target: int) -> None:
        self.base, self.target = base, target
        self.source, self.dest = base / "in", base / "out"
        self.source.mkdir()
        self.files = self.waves = self.kills = 0
        self.began = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:7.1f} s  {text}", flush=True)

    def add(self, files: int) -> None:
        """New files, also in a directory of their own."""
        quire.populate(self.source / f"wave{self.waves}", files, 512, 5, seed=self.waves, progress=False)
        self.waves += 1
        self.files += files

    def start(self) -> Process:
        return Process(self.source, self.dest, self.target, "on Spark", log=self.base / "driver.log")

    def kill_in(self, phase: str) -> bool:
        """Start a driver, kill it in the phase; False: it was faster."""
        before = look(self.dest)
        process = self.start()
        try:
            seen = wait_for(phase, process, self.dest, before)
        finally:
            process.kill()
        if seen is None:
            assert process.popen.returncode == 0, process.log.read_text(errors="replace")[-4000:]
            self.tell(f"too late for {phase}")
            return False
        self.kills += 1
        self.tell(f"kill {self.kills} in {phase}: {look(self.dest)}")
        return True

    def finish(self) -> None:
        """A last run, and the count: by the ledger, byte for byte, and by the sizes of what is there."""
        with driver(self.source, self.dest, self.target, "on Spark", log=self.base / "driver.log") as process:
            self.tell(f"last run: files gathered, set aside, left out = {process.end().splitlines()[-1]}")
        wanted = checker.tree(self.source)
        assert len(wanted) == self.files
        checker.check(wanted, self.dest)
        written = sum(p.stat().st_size for p in self.dest.iterdir() if p.is_file())
        assert written == sum(len(checker.with_newline(content)) for content in wanted.values())
        empty = list((self.dest / "_quire/jobs").rglob("*"))
        assert not empty, f"left over: {empty[:5]}"
        self.tell(f"{self.files:,} files, {written:,} bytes, each once; {len(list((self.dest / '_quire/log').glob('*.json')))} log entries")


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_three_kills(base: Path) -> None:
    """3,000 files; killed while tasks commit, at the job's commit, and after it is published."""
    run = Run(base, target=64_000)
    run.add(2_400)
    for phase in ("task commit", "job commit"):
        assert run.kill_in(phase)
    run.add(600)
    for phase in ("published",):
        assert run.kill_in(phase)
    run.finish()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_ten_kills(base: Path) -> None:
    """60,000 files, ten kills, spread over listing, tasks, task commit, job commit, publish and clean-up."""
    run = Run(base, target=96_000)
    run.add(30_000)
    phases = ["listing", "plan frozen", "tasks", "task commit", "many task commits", "job commit"]
    for phase in phases:
        assert run.kill_in(phase)
    for phase in ("publish", "published", "clean-up", "tasks"):
        run.add(6_000)
        for _ in range(5):
            if run.kill_in(phase):
                break
            run.add(500)
    run.add(60_000 - run.files)
    run.finish()
    assert run.kills >= 10


def test_two_drivers_on_spark(base: Path) -> None:
    """Two processes gather the same source into the same destination at once, both to a good end."""
    run = Run(base, target=64_000)
    run.add(2_000)
    with (
        driver(run.source, run.dest, run.target, "on Spark", log=base / "a.log") as a,
        driver(run.source, run.dest, run.target, "on Spark", log=base / "b.log") as b,
    ):
        counts = [int(p.end().splitlines()[-1].split()[0]) for p in (a, b)]
    assert max(counts) <= run.files
    wanted = checker.tree(run.source)
    checker.check(wanted, run.dest)


def test_three_drivers_while_files_arrive(base: Path) -> None:
    """Three processes without Spark, with different targets (so jobs of their own) or the same, again and again, as files arrive."""
    run = Run(base, target=20_000)
    run.add(100)
    logs = [base / f"{i}.log" for i in range(3)]
    with (
        driver(run.source, run.dest, 20_000, "in process", 25, log=logs[0]) as a,
        driver(run.source, run.dest, 20_000, "in process", 25, log=logs[1]) as b,
        driver(run.source, run.dest, 30_000, "in process", 25, log=logs[2]) as c,
    ):
        while any(p.running() for p in (a, b, c)):
            if run.files < 1500:
                run.add(50)
            time.sleep(0.05)
        for process in (a, b, c):
            process.end()
    quire.consolidate(run.source, run.dest, spark=quire.InProcess(), target_size=20_000, progress=False)
    checker.check(checker.tree(run.source), run.dest)
