"""Drivers, Spark's processes and a small cluster, all in sessions of their own: started, found, stopped and killed by their ids.

All that they write, temporary directories of the JVM too, lies below one directory, which goes with the test.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire.java import find_java

DRIVER = """
import json, sys, quire
said = json.loads(sys.argv[1])
spark = quire.session(said["confs"], master=said["master"]) if said["master"] else quire.InProcess()
report = quire.consolidate(said["source"], said["dest"], spark=spark, progress=False, **said["settings"])
print(report.files, report.set_aside_count, len(report.left_out))
"""
SPARK = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}


# ------------------------------------------------------------------------------------------------------------- what /proc says
@dataclass(frozen=True)
class Seen:
    """A process."""

    pid: int
    parent: int
    session: int
    state: str
    kind: str


KINDS = (
    ("executor JVM", "CoarseGrainedExecutorBackend"),
    ("JVM", "org.apache.spark.deploy.SparkSubmit"),
    ("Python daemon", "pyspark.daemon"),
)


def process(pid: int) -> Seen | None:
    """What a process is, unless it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if stat[0] in "ZX":
        return None
    kind = next((kind for kind, word in KINDS if word in command), "other")
    return Seen(pid, int(stat[1]), int(stat[3]), stat[0], kind)


def members(session: int) -> list[Seen]:
    """The processes of a session: the driver, its JVM, and Spark's Python workers (which make a process group of their own)."""
    seen = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    found = [p for p in seen if p and p.session == session]
    daemons = {p.pid for p in found if p.kind == "Python daemon"}
    # A worker is a fork of the daemon, which is a child of a JVM.
    return [Seen(*[*vars(p).values()][:4], "Python worker") if p.parent in daemons else p for p in found]


def end_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill all of a session at one moment, as far as that goes, and reap its leader."""
    if leader.returncode is not None and not members(leader.pid):
        return  # it is over, and its number may be another's by now
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    for _ in range(500):
        left = members(leader.pid)
        for p in left:
            send(p.pid, signal.SIGKILL)
        if not left and leader.poll() is not None:
            break
        time.sleep(0.01)
    leader.wait(30)
    assert not members(leader.pid)


def send(pid: int, what: signal.Signals) -> None:
    """A signal, unless the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


def wait_until(true: Callable[[], object], seconds: float, what: str) -> None:
    """Wait until it is true; an AssertionError says what was not."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.02)


# ---------------------------------------------------------------------------------------------------------------- where it lies
@dataclass
class Place:
    """A source, a destination, and room for all that the processes write beside."""

    base: Path
    hooked: bool = True
    source: Path = field(init=False)
    dest: Path = field(init=False)

    def __post_init__(self) -> None:
        self.source, self.dest, self.hook, self.temp = (self.base / name for name in ("in", "out", "hook", "tmp"))
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
                "CHAOS_SOURCE": str(self.source), "CHAOS_DEST": str(self.dest),
            }  # fmt: skip
        return found


class Driver:
    """A driver in a session of its own; without a master it works in its own process alone."""

    count = 0

    def __init__(self, place: Place, settings: dict[str, Any], master: str = "", confs: dict[str, Any] | None = None) -> None:
        Driver.count += 1
        self.log = place.base / f"driver-{Driver.count}.log"
        said = {
            "source": str(place.source), "dest": str(place.dest), "master": master, "confs": SPARK | (confs or {}), "settings": settings,
        }  # fmt: skip
        with self.log.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", DRIVER, json.dumps(said)], env=place.environment(), cwd=place.temp,
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
class Cluster:
    """A standalone Spark: a master and workers on loopback, each in a session of its own."""

    def __init__(self, place: Place, hosts: tuple[str, ...] = ("127.0.0.2", "127.0.0.3")) -> None:
        import pyspark

        java, self.place, self.started = find_java(), place, list[subprocess.Popen[bytes]]()
        self.command = [f"{Path(pyspark.__file__).parent}/bin/spark-class"]
        self.environment = place.environment() | {
            "JAVA_HOME": str(java.home) if java else "", "SPARK_DAEMON_MEMORY": "512m",
            "SPARK_DAEMON_JAVA_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        }  # fmt: skip
        self.hosts = hosts
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"

    def start(self) -> None:
        host, port = self.url.removeprefix("spark://").split(":")
        self._start("Master", host, "--host", host, "--port", port, "--webui-port", "0")
        wait_until(lambda: "New state: ALIVE" in self._said("Master"), 60, "the master is up")
        for i, at in enumerate(self.hosts):
            folder = f"{self.place.temp}/work{i}"
            self._start("Worker", at, "--host", at, "--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", folder, self.url)
        wait_until(lambda: self._said("Master").count("Registering worker") == len(self.hosts), 60, "the workers are up")

    def _start(self, what: str, host: str, *arguments: str) -> None:
        # If the test is killed itself, the kernel kills these too: they keep the wish when they become a JVM.
        wish = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
        with (self.place.base / f"{what}.log").open("ab") as out:
            self.started.append(
                subprocess.Popen(
                    [sys.executable, "-c", wish, *self.command, f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments],
                    env=self.environment | {"SPARK_LOCAL_IP": host},
                    cwd=self.place.temp,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )

    def _said(self, what: str) -> str:
        assert all(p.poll() is None for p in self.started), (self.place.base / f"{what}.log").read_text(errors="replace")[-4000:]
        return (self.place.base / f"{what}.log").read_text(errors="replace")

    def confs(self) -> dict[str, Any]:
        """For its drivers: one failed task ends no job, and slow tasks are started a second time elsewhere."""
        return {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
            "spark.cores.max": len(self.hosts), "spark.task.maxFailures": 4, "spark.default.parallelism": len(self.hosts),
            "spark.speculation": True, "spark.speculation.interval": "100ms", "spark.speculation.multiplier": 1.5,
            "spark.speculation.quantile": 0.3, "spark.speculation.minTaskRuntime": "500ms",
            "spark.speculation.task.duration.threshold": "1500ms",
            # Executors fetch from one another: who asks one that is asleep waits so long for it.
            "spark.network.timeout": "30s", "spark.network.timeoutInterval": "5s", "spark.executor.heartbeatInterval": "5s",
            # Spark would kill the worker of a task that is not needed any more: let it sleep and wake up.
            "spark.python.task.killTimeout": "600s",
        }  # fmt: skip

    def find(self, kind: str) -> list[int]:
        return sorted(p.pid for leader in self.started for p in members(leader.pid) if p.kind == kind)

    def stop(self) -> None:
        for leader in reversed(self.started):
            end_session(leader)


@contextmanager
def cluster(place: Place) -> Iterator[Cluster]:
    made = Cluster(place)
    try:
        made.start()
        yield made
    finally:
        made.stop()


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
