"""Drivers and a small cluster, all in sessions of their own: started, stopped and killed by their ids.

All that they write, temporary directories of the JVM too, lies below one directory, which goes with the test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.spark import Standalone, end_session, members, process, running, send, wait_until

__all__ = [
    "Cluster", "Driver", "Place", "ancestor", "cluster", "driver", "end_session", "members", "one_line", "process", "send", "wait_until",
]  # fmt: skip

DRIVER = """
import json, sys, quire
said = json.loads(sys.argv[1])
spark = quire.session(said["confs"], master=said["master"]) if said["master"] else quire.LocalRunner()
report = quire.consolidate(said["source"], said["dest"], spark=spark, progress=False, **said["settings"])
print(report.files, report.quarantined_count, len(report.deferred))
"""
SPARK = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}


# ---------------------------------------------------------------------------------------------------------------- where it lies
@dataclass
class Place:
    """A source, a destination, and room for all that the processes write beside."""

    base: Path
    hooked: bool = True
    program: str = DRIVER
    source: Path = field(init=False)
    dest: Path = field(init=False)
    urls: tuple[str, str] = field(init=False)  # what drivers are told of the two
    roots: tuple[str, str] = field(init=False)  # how they begin in calls and requests

    def __post_init__(self) -> None:
        self.source, self.dest, self.hook, self.temp = (self.base / name for name in ("in", "out", "hook", "tmp"))
        self.urls = self.roots = str(self.source), str(self.dest)
        for folder in (self.source, self.hook, self.temp):
            folder.mkdir(parents=True)

    def environment(self) -> dict[str, str]:
        """For every process: its temporary directory, and the hook."""
        java = f"-Djava.io.tmpdir={self.temp} -XX:-UsePerfData {os.environ.get('JDK_JAVA_OPTIONS', '')}"
        found = os.environ | {"TMPDIR": str(self.temp), "SPARK_LOCAL_DIRS": str(self.temp), "JDK_JAVA_OPTIONS": java.strip()}
        if self.hooked:
            path = os.pathsep.join(filter(None, (str(Path(__file__).parent / "hook"), os.environ.get("PYTHONPATH"))))
            found |= {
                "PYTHONPATH": path, "CHAOS_HOOK": str(self.hook), "CHAOS_PARENT": str(os.getpid()),
                "CHAOS_SOURCE": self.roots[0], "CHAOS_DEST": self.roots[1],
            }  # fmt: skip
        return found


class Driver:
    """A driver in a session of its own; without a master it works in its own process alone."""

    count = 0

    def __init__(
        self, place: Place, settings: dict[str, Any], master: str = "", confs: dict[str, Any] | None = None, program: str = ""
    ) -> None:  # fmt: skip
        Driver.count += 1
        self.log = place.base / f"driver-{Driver.count}.log"
        said = {
            "source": place.urls[0], "dest": place.urls[1], "master": master, "confs": SPARK | (confs or {}), "settings": settings,
        }  # fmt: skip
        with self.log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", "-W", "ignore", "-c", program or place.program, json.dumps(said)],
                env=place.environment(), cwd=place.temp,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self.popen.pid

    def running(self) -> bool:
        return self.popen.poll() is None

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def find(self, kind: str) -> list[int]:
        """Its processes of a kind."""
        return sorted(p.pid for p in members(self.pid) if p.kind == kind)

    def kill(self) -> None:
        end_session(self.popen)

    def end(self, seconds: float = 240) -> str:
        """Wait for its end, which must be a good one; the last line that it said."""
        try:
            code = self.popen.wait(seconds)
        finally:
            self.kill()
        said = self.said()
        assert code == 0, f"exit code {code}:\n{said[-4000:]}"
        return said.splitlines()[-1]

    def finish(self) -> str:
        """Ask a driver that goes on and on to end after the run under way."""
        send(self.pid, signal.SIGTERM)
        return self.end(60)


@contextmanager
def driver(*arguments: Any, **more: Any) -> Iterator[Driver]:
    started = Driver(*arguments, **more)
    try:
        yield started
    finally:
        started.kill()


# -------------------------------------------------------------------------------------------------------------------- a cluster
class Cluster(Standalone):
    """A small one, whose drivers start slow tasks a second time elsewhere."""

    def __init__(self, place: Place) -> None:
        super().__init__(place.base, place.environment())

    def confs(self) -> dict[str, Any]:
        return super().confs() | {
            "spark.speculation": True, "spark.speculation.interval": "100ms", "spark.speculation.multiplier": 1.5,
            "spark.speculation.quantile": 0.3, "spark.speculation.minTaskRuntime": "500ms",
            "spark.speculation.task.duration.threshold": "1500ms",
            # Executors fetch from one another: who asks one that is asleep waits so long for it.
            "spark.network.timeout": "30s", "spark.network.timeoutInterval": "5s", "spark.executor.heartbeatInterval": "5s",
            # Spark would kill the worker of a task that is not needed any more: let it sleep and wake up.
            "spark.python.task.killTimeout": "600s",
        }  # fmt: skip


@contextmanager
def cluster(place: Place) -> Iterator[Cluster]:
    with running(Cluster(place)) as made:
        yield made


def ancestor(pid: int, kind: str) -> int | None:
    """The process of a kind that started another, or the one that started that."""
    while (p := process(pid)) is not None and pid > 1:
        if p.kind == kind:
            return pid
        pid = p.parent
    return None


def one_line(text: str) -> str:
    """The error that ended a driver."""
    found = re.findall(r"^\S*(?:Error|Exception|Interrupt)\b.*$", text, re.MULTILINE)
    return found[-1][:300] if found else text[-300:]
