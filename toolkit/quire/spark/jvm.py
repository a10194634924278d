"""The JVM that Spark runs in: how much memory it gets, where its messages go, how it starts, and how it is let go of."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from quire import interrupts
from quire.errors import QuireError, UsageError, scrub
from quire.spark.java import Java, private_temp

if TYPE_CHECKING:
    from py4j.clientserver import ClientServerConnection
    from pyspark import SparkContext

GIB = 1 << 30


def driver_memory() -> str:
    """Return the JVM's heap: a quarter of what this process may use, from 1 to 4 GiB, on a tiny machine less."""
    if said := os.environ.get("QUIRE_DRIVER_MEMORY"):
        if not re.fullmatch(r"[1-9]\d*\s*[kmgt]b?", said.strip(), re.IGNORECASE):
            raise UsageError(f"QUIRE_DRIVER_MEMORY is {scrub(repr(said))}, which is not an amount of memory: write it as 1g or 1500m")
        return "".join(said.split())
    memory = _memory()
    return f"{max(min(memory // 4, 4 * GIB), min(GIB, memory // 2), GIB // 2) >> 20}m"


def _memory() -> int:
    """Bytes of memory that this process may use: the machine's, or less if a container or a batch system sets a limit."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limit_files():
        with contextlib.suppress(OSError, ValueError):  # "max" means unlimited
            limits.append(int(file.read_text()))
    return min(limits)


def _limit_files() -> Iterator[Path]:
    """The files that may hold a limit for this process's control group, or one of those around it (cgroup v2, then v1)."""
    root = Path("/sys/fs/cgroup")
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            base, name = (root, "memory.max") if not controllers else (root / "memory", "memory.limit_in_bytes")
            if not controllers or "memory" in controllers.split(","):
                for path in (Path(group), *Path(group).parents):
                    yield base / path.relative_to("/") / name


def warehouse() -> Path:
    """Return where this process's Spark keeps tables that have no place of their own; it goes when the process ends."""
    return private_temp() / f"warehouse-{os.getpid()}"


def forget() -> None:
    """Let go of the JVM of a session that has ended, or that was killed: it would pass its settings on to the next session."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None:
        return
    while (context := SparkContext._active_spark_context) is not None:
        # If the JVM is gone, the first stop() forgets it and fails or warns, and the second does the rest.
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            context.stop()
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()  # at the end of its input the JVM ends
        with contextlib.suppress(Exception):
            process.wait(10)
    SparkContext._gateway = SparkContext._jvm = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None


@contextlib.contextmanager
def starting(java: Java | None, on_loopback: bool) -> Iterator[None]:
    """Let Spark start in here: on `java`, quietly, and with one QuireError that says why it does not.

    The JVM's stderr goes into a log file for as long as it runs. With `java` None a JVM already runs.
    """
    log = _new_log()
    try:
        with _environment(java, on_loopback), _stderr_to(log), warnings.catch_warnings():
            # Python 3.12 and newer warns of the fork with which pyspark starts Java.
            warnings.simplefilter("ignore", DeprecationWarning)
            # A local Connect server has been started with the settings that its client then fails to set.
            warnings.filterwarnings("ignore", "Failed to set spark")
            yield
    except Exception as error:
        raise QuireError(_why(error, log, java)) from error
    atexit.register(_tidy, log, log.stat().st_size)


@contextlib.contextmanager
def _environment(java: Java | None, on_loopback: bool) -> Iterator[None]:
    """Give the JVM that starts in here its JAVA_HOME and, if all of Spark is on this machine, the loopback address."""
    change: dict[str, str] = {}
    if java is not None:
        change["JAVA_HOME"] = str(java.home)
        # Else Java says on stdout, in the midst of the user's own output, why it does not start.
        change["JDK_JAVA_OPTIONS"] = f"{os.environ.get('JDK_JAVA_OPTIONS', '')} -XX:+DisplayVMOutputToStderr".strip()
    if on_loopback and "SPARK_LOCAL_IP" not in os.environ:
        change["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = {name: os.environ.get(name) for name in change}
    os.environ.update(change)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Point file descriptor 2 at `log`; a process that is started in here keeps it."""
    target = os.open(log, os.O_WRONLY | os.O_APPEND)
    try:
        before = os.dup(2)
    except OSError:  # without stderr, as in a daemon
        before = None
    try:
        os.dup2(target, 2)
        yield
    finally:
        os.close(target)
        if before is None:
            os.close(2)
        else:
            os.dup2(before, 2)
            os.close(before)


def make_interruptible(context: SparkContext) -> None:
    """Let Ctrl-C end Spark's running jobs, too, and not only Python's waiting for them.

    pyspark's own handler asks the JVM on the connection that is just being waited on, which fails, and the tasks run on.
    """
    if interrupts.origin(signal.getsignal(signal.SIGINT)) != "pyspark":
        return  # not in the main thread, or someone else has a say

    from py4j import clientserver

    def cancel() -> None:
        with contextlib.suppress(Exception):  # the session has ended
            context.cancelAllJobs()

    def interrupt(*_: object) -> None:
        asking = threading.Thread(target=cancel, daemon=True)
        asking.start()
        asking.join(5)
        raise KeyboardInterrupt

    interrupts.handle(interrupt)
    clientserver.ClientServerConnection.shutdown_socket = _let_go
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)


def _let_go(connection: ClientServerConnection, port: int, _java_port: int) -> None:
    """Close the connection that Ctrl-C met, which is the one of that `port` here; the idle ones of other threads stay.

    py4j's own way asks the JVM to, once that call is over there, and the JVM then closes all connections: also the one of the next call.
    """
    if connection.socket is not None and connection.socket.getsockname()[1] != port:
        connection.java_client.deque.appendleft(connection)  # from whose other end it was taken
    else:
        connection.close()


def _is_news(record: logging.LogRecord) -> bool:
    """Tell what is worth logging from py4j's account of a Ctrl-C, which is raised anyway."""
    return record.msg != "KeyboardInterrupt while sending command."


def _new_log() -> Path:
    """Return a new, empty file for the JVM's messages; those of a week ago are removed."""
    while True:
        with contextlib.suppress(FileNotFoundError):  # another process has just tidied up behind itself
            for old in private_temp().glob("spark-*.log"):
                with contextlib.suppress(OSError):
                    if old.stat().st_mtime < time.time() - 7 * 86400:
                        old.unlink()
            handle, name = tempfile.mkstemp(prefix=f"spark-{os.getpid()}-", suffix=".log", dir=private_temp())
            os.close(handle)
            return Path(name)


def _tidy(log: Path, size_at_start: int) -> None:
    """Remove what nobody needs after this process: the log if it holds no more than how Spark started, and the warehouse."""
    with contextlib.suppress(OSError):
        if log.stat().st_size == size_at_start:
            log.unlink()
    shutil.rmtree(warehouse(), ignore_errors=True)
    with contextlib.suppress(OSError):
        log.parent.rmdir()


def _why(error: Exception, log: Path, java: Java | None) -> str:
    """Say in one line why Spark has not started, and where to read on."""
    try:
        said = log.read_text("utf-8", "replace")
    except OSError:
        said = ""
    reason = _reason(str(error)) or _reason(said) or _first_line(said) or _first_line(str(error))
    runtime = f" on Java {java.version} ({java.found})" if java else ""
    return f"Spark did not start{runtime}: {scrub(reason)}; all that it said is in {log}"


# From the most to the least telling of what Java, spark-submit and the shell say; of exceptions, the last is the cause.
_REASONS = (
    r"^(?:Caused by: |: )([\w.$]+(?:Exception|Error)\b.*)$",
    r"^Exception in thread \"[^\"]*\" (.+)$",
    r"^Error occurred during initialization of VM\n(.+)$",
    r"^(?:\w+: )?((?:Error|Invalid|Unrecognized)\b.*)$",
    r"^(.*java: .*)$",
)


def _reason(text: str) -> str:
    """Return what `text` names as the cause, or nothing."""
    for pattern in _REASONS:
        if found := re.findall(pattern, text, re.MULTILINE):
            return str(found[-1])
    return ""


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip() and not line.startswith(("NOTE: ", "WARNING: "))), "")
