"""Spark beyond one process: a standalone cluster and a Connect server, on free loopback ports, each process in a session of its own.

They are found, stopped and killed by their ids. All that they write, temporary directories of the JVM too, lies below one directory.
The executors' Python is one in which everything is installed that quire needs, and quire is not.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
import venv
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from quire.spark.java import find_java
from services.ports import free_port

HOSTS = ("127.0.0.2", "127.0.0.3")
PATIENCE = 120.0  # seconds until a process is up


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


# ------------------------------------------------------------------------------------------------------------- Spark's processes
class Processes:
    """Processes of Spark's own, started from the pip package, and what they say."""

    def __init__(self, base: Path, environment: Mapping[str, str]) -> None:
        """`base`: for their logs and all else that they write below `tmp`; `environment`: of each of them."""
        self.base, self.temp, self.started = base, base / "tmp", list[subprocess.Popen[bytes]]()
        self.temp.mkdir(parents=True, exist_ok=True)
        self.environment = {**environment, "JAVA_HOME": str(find_java().home), "SPARK_DAEMON_MEMORY": "512m"}
        self.home = Path(pyspark.__file__).parent

    def run(self, log: str, host: str, *command: str, before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """Start one; `before` stands before its command."""
        # If the test is killed itself, the kernel kills these too: they keep the wish when they become a JVM.
        wish = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"
        with (self.base / f"{log}.log").open("ab") as out:
            made = subprocess.Popen(
                [sys.executable, "-c", wish, *before, *command], env=self.environment | {"SPARK_LOCAL_IP": host}, cwd=self.temp,
                stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.started.append(made)
        return made

    def said(self, log: str) -> str:
        """What it has said so far; all must still be running."""
        text = (self.base / f"{log}.log").read_text(errors="replace")
        assert all(p.poll() is None for p in self.started), text[-4000:]
        return text

    def find(self, kind: str) -> list[int]:
        """The processes of a kind among them and what they have started."""
        return sorted(p.pid for leader in self.started for p in members(leader.pid) if p.kind == kind)

    def stop(self) -> None:
        for leader in reversed(self.started):
            end_session(leader)


class Standalone(Processes):
    """A master and workers."""

    def __init__(self, base: Path, environment: Mapping[str, str], hosts: Sequence[str] = HOSTS, cores: int = 1) -> None:
        super().__init__(base, environment)
        self.environment["SPARK_DAEMON_JAVA_OPTS"] = "-Dspark.deploy.maxExecutorRetries=-1"
        self.hosts, self.cores, self.port = hosts, cores, free_port()
        self.url = f"spark://127.0.0.1:{self.port}"

    def start(self) -> None:
        name = f"{self.home}/bin/spark-class", "org.apache.spark.deploy.master.Master"
        self.run("Master", "127.0.0.1", *name, "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        wait_until(lambda: "New state: ALIVE" in self.said("Master"), PATIENCE, "the master is up")
        for i, host in enumerate(self.hosts):
            self.add_worker(host, self.temp / f"work{i}")
        wait_until(lambda: self.workers() == len(self.hosts), PATIENCE, "the workers are up")

    def add_worker(self, host: str, folder: Path, memory: str = "", before: Sequence[str] = ()) -> None:
        """Start a worker; it registers a moment later."""
        name = f"{self.home}/bin/spark-class", "org.apache.spark.deploy.worker.Worker"
        room = "--cores", str(self.cores), "--memory", memory or f"{self.cores}g", "--work-dir", str(folder)
        self.run("Worker", host, *name, "--host", host, "--webui-port", "0", *room, self.url, before=before)

    def workers(self) -> int:
        """How many have registered."""
        return self.said("Master").count("Registering worker")

    def confs(self) -> dict[str, Any]:
        """For its drivers: one core on each worker."""
        n = len(self.hosts)
        return {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
            "spark.executor.cores": 1, "spark.cores.max": n, "spark.default.parallelism": n, "spark.task.maxFailures": 4,
        }  # fmt: skip


class ConnectServer(Processes):
    """A Connect server on a master."""

    def __init__(self, base: Path, environment: Mapping[str, str], master: str, confs: Mapping[str, Any]) -> None:
        super().__init__(base, environment)
        self.master, self.port = master, free_port()
        self.confs = {
            "spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": self.port, "spark.ui.enabled": False,
            "spark.driver.memory": "600m", **confs,
        }  # fmt: skip
        self.url = f"sc://127.0.0.1:{self.port}"

    def start(self) -> None:
        said = {key: str(value).lower() if isinstance(value, bool) else value for key, value in self.confs.items()}
        confs = [text for key, value in said.items() for text in ("--conf", f"{key}={value}")]
        name = "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"
        self.run("Connect", "127.0.0.1", f"{self.home}/bin/spark-submit", "--master", self.master, *confs, *name)
        wait_until(self._answers, PATIENCE, "the Connect server is up")

    def _answers(self) -> bool:
        self.said("Connect")
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            return True
        return False


@contextmanager
def running(what: Any) -> Iterator[Any]:
    """Start it, and end it by its processes' ids."""
    try:
        what.start()
        yield what
    finally:
        what.stop()


# ------------------------------------------------------------------------------------------------------------------------ drivers
_LOOP = """
import contextlib, io, json, sys, traceback
import quire
spark = quire.session(json.loads(sys.argv[2]), master=sys.argv[1])
print("up", flush=True)
for line in sys.stdin:
    said, error = io.StringIO(), None
    try:
        with contextlib.redirect_stdout(said):
            exec(compile(json.loads(line), "<cell>", "exec"))
    except BaseException as e:
        error = [type(e).__name__, str(e), traceback.format_exc()]
    print(json.dumps([said.getvalue(), error]), flush=True)
"""


class Failed(Exception):
    """A cell has raised: the error's class, its text and its traceback."""

    def __init__(self, kind: str, text: str, trace: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind, self.text, self.trace = kind, text, trace


class Driver:
    """A Python with a session of Spark's in it, `spark`, that runs one cell after the other, as a notebook does."""

    def __init__(self, base: Path, environment: Mapping[str, str], master: str, confs: Mapping[str, Any]) -> None:
        base.mkdir(parents=True, exist_ok=True)
        self.log = base / "driver.log"
        with self.log.open("wb") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _LOOP, master, json.dumps(confs)], env=dict(environment), cwd=base,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start(self) -> None:
        assert self._line().strip() == b"up"

    def ask(self, cell: str) -> None:
        """Begin a cell; `answer` waits for its end."""
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps(textwrap.dedent(cell)).encode() + b"\n")
        self.popen.stdin.flush()

    def answer(self) -> str:
        """What the cell has printed; raises Failed."""
        said, error = json.loads(self._line())
        if error:
            raise Failed(*error)
        return str(said)

    def __call__(self, cell: str) -> str:
        self.ask(cell)
        return self.answer()

    def _line(self) -> bytes:
        assert self.popen.stdout is not None
        line = self.popen.stdout.readline()
        assert line, f"the driver has ended: {self.log.read_text(errors='replace')[-4000:]}"
        return line

    def stop(self) -> None:
        end_session(self.popen)
        for pipe in (self.popen.stdin, self.popen.stdout):
            assert pipe is not None
            pipe.close()


# ----------------------------------------------------------------------------------------------------------- the executors' Python
OURS = ("quire", "quire_widgets")


def bare_python(folder: Path, without: Collection[str] = OURS) -> Path:
    """An interpreter that has what this one has, but for the packages `without`."""
    venv.create(folder / "venv", symlinks=True, with_pip=False)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    for path in (Path(p) for p in sys.path if p.endswith("site-packages")):
        for item in path.iterdir():
            name = item.name.partition("-")[0].partition(".")[0].lstrip("_")
            if name not in without and item.suffix != ".pth" and not (site / item.name).exists():
                (site / item.name).symlink_to(item)
    python = folder / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for package in without:
        done = subprocess.run([python, "-c", f"import {package}"], capture_output=True, text=True, env=environment, cwd=folder)
        assert f"No module named '{package}'" in done.stderr, done.stderr
    return python


def environment(temp: Path, python: Path | None = None) -> dict[str, str]:
    """For processes of Spark's: nothing of this one's paths, all temporary files below `temp`; `python` runs the tasks."""
    spoils = ("SPARK_", "PYSPARK_", "PYTHONPATH", "QUIRE_", "MASTER", "JAVA_HOME", "AWS_", "AZURE_")
    found = {name: value for name, value in os.environ.items() if not name.startswith(spoils)}
    java = f"-Djava.io.tmpdir={temp} -XX:-UsePerfData {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip()
    found |= {"TMPDIR": str(temp), "SPARK_LOCAL_DIRS": str(temp), "JDK_JAVA_OPTIONS": java}
    return found | ({"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": sys.executable} if python else {})
