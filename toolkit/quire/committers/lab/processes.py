"""The processes of the lab: drivers and a small cluster, each in a session of its own, stopped and killed by their ids alone.

All of them end with this process, however it ends: a guard beside each session reads a pipe of ours, and kills the session when the
pipe ends. A member that starts, waits or sleeps just then could not see it by itself.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.errors import QuireError, UsageError, scrub
from quire.spark.java import find_java

HOSTS = ("127.0.0.2", "127.0.0.3")  # two hosts to Spark: it runs a speculative copy on another host only
PATIENCE = 180.0  # seconds until something has started
KINDS = (
    ("executor", "CoarseGrainedExecutorBackend"),
    ("JVM", "org.apache.spark.deploy.SparkSubmit"),
    ("daemon", "pyspark.daemon"),
)


class Ended(QuireError):
    """A driver of the lab has ended by itself."""


# ------------------------------------------------------------------------------------------------------------- what /proc says
@dataclass(frozen=True)
class RunningProcess:
    """A process."""

    pid: int
    parent: int
    session: int
    kind: str


def process(pid: int) -> RunningProcess | None:
    """A process's facts, unless it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return None
    if stat[0] in "ZX":
        return None
    return RunningProcess(pid, int(stat[1]), int(stat[3]), next((kind for kind, word in KINDS if word in command), "other"))


def members(session: int) -> list[RunningProcess]:
    """The processes of a session, which are all that its leader has started, and they in turn."""
    seen = (process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [p for p in seen if p and p.session == session]


def ancestor(pid: int, kind: str) -> int | None:
    """The process of a kind that has started another, directly or not."""
    while (found := process(pid)) is not None and pid > 1:
        if found.kind == kind:
            return pid
        pid = found.parent
    return None


def send(pid: int, what: signal.Signals) -> None:
    """A signal, unless the process has ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)


class Asleep:
    """Processes that are stopped where they are.

    Whoever is stopped reads the end of no pipe, so another process waits beside them, and kills them if this one ends meanwhile.
    """

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        command = ["sh", "-c", 'read -r _ || kill -KILL "$@" 2> /dev/null', "lab", *map(str, pids)]
        self.guard = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
        for pid in pids:
            send(pid, signal.SIGSTOP)

    def over(self, what: signal.Signals) -> None:
        """Let them go on (SIGCONT), or kill them."""
        for pid in self.pids:
            send(pid, what)
        self.forget()

    def forget(self) -> None:
        """Somebody else has dealt with them."""
        self.guard.communicate(b"\n")


class Session(subprocess.Popen[bytes]):
    """A process that leads a session of its own. If this process ends before `end`, a guard kills all of the session."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], **options: Any) -> None:
        super().__init__(command, env=environment, start_new_session=True, **options)
        program = f"from quire.committers.lab import processes; processes.guard({self.pid})"
        self.guard = subprocess.Popen(
            [sys.executable, "-c", program], env=environment, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def end(self) -> None:
        """Kill all of the session, and reap its leader."""
        end_session(self)
        self.guard.communicate(b"\n")


def guard(session: int) -> None:
    """Wait for a line of input; where the input ends without one, kill all of a session."""
    if not sys.stdin.readline():
        kill_members(session)


def kill_members(session: int, seconds: float = 10) -> None:
    """Kill all of a session, and those that they start meanwhile, until none is left."""
    end = time.monotonic() + seconds
    while (left := members(session)) and time.monotonic() < end:
        for p in left:
            send(p.pid, signal.SIGKILL)
        time.sleep(0.01)


def end_session(leader: subprocess.Popen[bytes]) -> None:
    """Kill all of a session of ours, and reap its leader."""
    if leader.returncode is not None and not members(leader.pid):
        return  # it is over, and its number may be another's by now
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    kill_members(leader.pid)
    leader.wait(30)


def wait_for(true: Callable[[], Any], seconds: float, what: str, between: float = 0.02) -> Any:
    """Wait until it is true, and return it; QuireError says what was not."""
    end = time.monotonic() + seconds
    while not (found := true()):
        if time.monotonic() > end:
            raise QuireError(f"the lab has waited {seconds:.0f} s in vain: {what}")
        time.sleep(between)
    return found


def environment(scratch: Path) -> dict[str, str]:
    """For the lab's processes: this Python and this quire, and all temporary files below `scratch`."""
    found = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    java = f"-Djava.io.tmpdir={scratch} -XX:-UsePerfData {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip()
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return found | {
        "TMPDIR": str(scratch), "SPARK_LOCAL_DIRS": str(scratch), "JDK_JAVA_OPTIONS": java, "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore",
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------------ drivers
class Driver:
    """A driver with a Spark session: it is told what to do in lines of JSON, and tells what happens in such lines."""

    def __init__(self, scratch: Path, name: str, master: str, conf: Mapping[str, str], hadoop: Mapping[str, str]) -> None:
        self.log = scratch / f"{name}.log"
        with self.log.open("wb") as log:
            self.popen = Session(
                [sys.executable, "-m", "quire.committers.lab.child"], environment(scratch), cwd=scratch, stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip
        self.said = queue.Queue[dict[str, Any] | None]()
        self.tasks = 0  # of the job under way, that are done
        self.jvm = 0
        self.asleep: Asleep | None = None
        self.reader = threading.Thread(target=self._read, name="lab-driver", daemon=True)
        self.reader.start()
        self.tell({"master": master, "conf": dict(conf), "hadoop": dict(hadoop)})  # by the pipe: secrets stand in no list of processes

    @property
    def pid(self) -> int:
        return self.popen.pid

    def start(self) -> None:
        """Until it has its session."""
        self.expect("up", PATIENCE)
        self.jvm = next((p.pid for p in members(self.pid) if p.kind == "JVM"), 0)

    def tell(self, what: Mapping[str, Any]) -> None:
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(json.dumps(what).encode() + b"\n")
            self.popen.stdin.flush()
        except BrokenPipeError:
            raise Ended(self._last()) from None

    def _read(self) -> None:
        assert self.popen.stdout is not None
        try:
            for line in self.popen.stdout:
                with suppress(ValueError):  # what somebody prints in between is not for us
                    found = json.loads(line)
                    if isinstance(found, dict) and found.get("event") == "tasks":
                        self.tasks = found["done"]
                    elif isinstance(found, dict):
                        self.said.put(found)
        finally:
            self.said.put(None)  # however this ends, nobody waits for more

    def expect(self, event: str, seconds: float) -> dict[str, Any]:
        """Wait for an event; Ended if the driver has ended."""
        try:
            found = self.said.get(timeout=seconds)
        except queue.Empty:
            raise QuireError(f"the lab has waited {seconds:.0f} s in vain for a driver's {event!r}: {self._last()}") from None
        if found is None:
            raise Ended(self._last())
        if found["event"] != event:
            raise QuireError(f"a driver of the lab said {found} where {event!r} was expected")
        return found

    def _last(self) -> str:
        text = self.log.read_text(errors="replace").strip().splitlines()
        return "a driver of the lab has ended: " + scrub(" ".join(text[-3:]) or "it said nothing", 500)

    def freeze(self) -> None:
        """Stop its JVM and its Python where they are."""
        self.asleep = Asleep(*filter(None, (self.jvm, self.pid)))

    def wake(self) -> None:
        """Let it go on."""
        if self.asleep is not None:
            self.asleep.over(signal.SIGCONT)
            self.asleep = None

    def kill(self) -> None:
        """End it and all that it has started, at one moment."""
        self.popen.end()
        if self.asleep is not None:
            self.asleep.forget()
            self.asleep = None
        self.reader.join(10)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


# ---------------------------------------------------------------------------------------------------------------------- a cluster
class SmallCluster:
    """A standalone master and two workers with a core each, on addresses of this machine."""

    def __init__(self, scratch: Path) -> None:
        import pyspark

        self.home, self.scratch = Path(pyspark.__file__).parent, scratch
        self.started = list[Session]()
        self.port = free_port(HOSTS[0])
        self.url = f"spark://127.0.0.1:{self.port}"
        self.log = scratch / "cluster.log"

    def start(self) -> None:
        """Until the workers have registered."""
        for host in HOSTS:
            free_port(host)
        package = "org.apache.spark.deploy"
        self._run("127.0.0.1", f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(self.port), "--webui-port", "0")
        wait_for(lambda: "New state: ALIVE" in self._said(), PATIENCE, "the master of a small cluster", 0.1)
        for host in HOSTS:
            room = "--cores", "1", "--memory", "1g", "--work-dir", str(self.scratch / f"work-{host}")
            self._run(host, f"{package}.worker.Worker", "--host", host, "--webui-port", "0", *room, self.url)
        wait_for(lambda: self._said().count("Registering worker") == len(HOSTS), PATIENCE, "the workers of a small cluster", 0.1)

    def _run(self, host: str, name: str, *arguments: str) -> None:
        more = {
            "SPARK_LOCAL_IP": host, "SPARK_DAEMON_JAVA_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
            "JAVA_HOME": str(find_java().home), "SPARK_DAEMON_MEMORY": "256m",
        }  # fmt: skip
        command = [str(self.home / "bin" / "spark-class"), name, *arguments]
        with self.log.open("ab") as log:
            made = Session(command, environment(self.scratch) | more, cwd=self.scratch, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(made)

    def _said(self) -> str:
        text = self.log.read_text(errors="replace")
        if any(p.poll() is not None for p in self.started):
            raise QuireError(f"a small cluster does not start here: {scrub(text[-300:])}")
        return text

    def conf(self) -> dict[str, str]:
        """For its drivers."""
        return {
            "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.executor.memory": "512m",
            "spark.executor.cores": "1", "spark.cores.max": "2", "spark.default.parallelism": "2", "spark.task.maxFailures": "4",
            "spark.network.timeout": "30s", "spark.executor.heartbeatInterval": "5s", "spark.network.timeoutInterval": "5s",
        }  # fmt: skip

    def stop(self) -> None:
        for leader in reversed(self.started):
            leader.end()


@contextmanager
def running(what: Any) -> Iterator[Any]:
    """Start it, and end it whatever happens."""
    try:
        what.start()
        yield what
    finally:
        what.stop()


def free_port(host: str) -> int:
    """A port of a loopback address that nobody listens on; UsageError without such an address."""
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError as e:
            raise UsageError(f"this machine has no address {host}, on which Spark would see another host: {e.strerror}.") from None
        return int(probe.getsockname()[1])
