"""`quire.session()`: a SparkSession that works here, in a notebook, a script, a test or a container, with nothing set up before.

Settings of the machine or the user (a running session, spark-submit, `spark-defaults.conf`, `PYSPARK_SUBMIT_ARGS`) win
over quire's defaults; the caller's arguments win over both.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import re
import shlex
import socket
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from quire.errors import QuireError, UsageError, scrub
from quire.interrupts import interruptible
from quire.progress import waiting
from quire.spark import daemon, jvm, releases
from quire.spark.java import find_java
from quire.spark.shipping import install_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"
# A first call would wait for these; by their names, since some stand above this room.
CALLS = ("quire.consolidate", "quire.engine.kinds.files", "pyarrow.pandas_compat", "tqdm.asyncio")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

_lock = threading.RLock()
_doors = weakref.WeakSet["SparkSession"]()  # the sessions that know format("quire")


@interruptible
def session(
    conf: Mapping[str, object] | None = None,
    /,
    *,
    master: str | None = None,
    app_name: str | None = None,
    **confs: object,
) -> SparkSession:
    """Return a running SparkSession: the active one if there is one, else a new one that fits this machine.

    Settings are Spark's own, in the dict `conf` or as keywords (`**confs`), with dots or, after `spark_`, with underscores:
    `session(spark_sql_shuffle_partitions=4)`, `session({"spark.ui.enabled": True})`. None leaves out one of quire's defaults.
    `app_name` and `master` are Spark's, as `spark://host:7077`, or `sc://host:15002` of a Spark Connect server.

    A new session is `local[*]` unless something says otherwise; it finds a Java (see `quire.spark.java`), keeps the JVM's messages in a
    log file that errors name, and has UTC as its time zone, Arrow on, the UI and console progress off, and a quarter of the
    memory, 1 to 4 GiB, for the driver (the variable QUIRE_DRIVER_MEMORY says otherwise). On this machine alone, its Python workers begin
    with what quire's tasks load.

    Raises UsageError for a setting that a running session cannot take any more, QuireError if Java or Spark does not start.
    """
    named = {"spark.remote" if master and master.startswith("sc://") else "spark.master": master, "spark.app.name": app_name}
    wanted = _wanted([*(conf or {}).items(), *confs.items(), *((key, value) for key, value in named.items() if value is not None)])
    with _lock:
        releases.check()
        running = _running()
        if running is None:
            running = _start(wanted)
        else:
            _apply(running, {key: value for key, value in wanted.items() if value is not None})
            _make_active(running)
        _open_door(running)
        return running


def _wanted(given: Iterable[tuple[str, object]]) -> dict[str, str | None]:
    """Return what the caller asks for as Spark's keys and texts."""
    wanted: dict[str, str | None] = {}
    for name, value in given:
        key, text = _key(name), _text(name, value)
        if wanted.setdefault(key, text) != text:
            raise UsageError(f"session() was given {key} twice, as {scrub(repr(wanted[key]))} and as {scrub(repr(text))}: pass it once")
    return wanted


def _key(name: str) -> str:
    if "." in name:
        return name
    if name.startswith("spark_"):
        return name.replace("_", ".")
    raise UsageError(
        f"session() knows no setting {scrub(repr(name))}: pass master=, app_name= or a key of Spark's, as spark_ui_enabled=True"
    )


def _text(name: str, value: object) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None or isinstance(value, str | int | float | Path):
        return None if value is None else str(value)
    raise UsageError(f"session() cannot pass {scrub(repr(value))} as {name}: a setting of Spark's is a text, a number, True or False")


# --- a session that runs already -------------------------------------------------------------------------------------------------


def _running() -> SparkSession | None:
    """Return this process's session if it still works."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.getActiveSession() or getattr(SparkSession, "_instantiatedSession", None)
        return found if found is not None and alive(found) else None
    except Exception:  # py4j has many ways to say that the JVM is gone
        return None


def alive(found: SparkSession) -> bool:
    """Whether a session was not stopped."""
    if hasattr(found, "is_stopped"):  # Spark Connect
        return not found.is_stopped
    return found._sc._jsc is not None and not found._sc._jsc.sc().isStopped()


def _make_active(running: SparkSession) -> None:
    """Let Spark find what is registered, as format("quire"), in this thread, too: to write, it looks into the JVM thread's session.

    Another Python thread has a JVM thread of its own; so has this one after a Ctrl-C that met a call of the JVM's.
    """
    connected = hasattr(running, "is_stopped")  # over Spark Connect it is the server that looks
    if not connected and running.getActiveSession() is None:
        running.createDataFrame([], "made_active int")  # sets it


def _apply(running: SparkSession, wanted: Mapping[str, str]) -> None:
    """Give a running session the settings that it can still take; UsageError, and nothing is changed, if there is another."""
    from pyspark.errors import PySparkException

    before = {key: running.conf.get(key, None) for key in wanted}
    changes = {key: value for key, value in wanted.items() if before[key] != value}
    for key, value in changes.items():
        if key.startswith("spark.") and not key.startswith("spark.sql.") and not running.conf.isModifiable(key):
            raise _too_late(key, before[key], value)
    done: list[str] = []
    for key, value in changes.items():
        try:
            running.conf.set(key, value)
        except PySparkException:
            for earlier in done:
                _reset(running, earlier, before[earlier])
            raise _too_late(key, before[key], value) from None
        done.append(key)


def _open_door(running: SparkSession) -> None:
    """Let a session of Spark 4 know `format("quire")`, and (since 4.1) hand filters to it, unless somebody has said otherwise."""
    from pyspark.errors import PySparkException

    if running in _doors:
        return
    if not hasattr(running, "dataSource"):
        releases.lock_doors(running)
        return
    install_on(running)  # first: what is registered takes along what the session has by then
    with contextlib.suppress(PySparkException):  # of an old server: only this format is missing there, and Spark says so
        # By its name: reading stands above this room.
        running.dataSource.register(importlib.import_module("quire.read.source").DataSource)
        if running.conf.get(PUSHDOWN, None) is None:
            running.conf.set(PUSHDOWN, "true")
    _doors.add(running)


def _reset(running: SparkSession, key: str, value: str | None) -> None:
    if value is None:
        running.conf.unset(key)
    else:
        running.conf.set(key, value)


def _too_late(key: str, has: str | None, asked: str) -> UsageError:
    started = "without it" if has is None else f"with {scrub(repr(has))}"
    return UsageError(
        f"{key} cannot become {scrub(repr(asked))}: the running session was started {started}; "
        "leave the setting out, or stop that session first: `quire.session().stop()`"
    )


# --- a new session ---------------------------------------------------------------------------------------------------------------


def _start(wanted: Mapping[str, str | None]) -> SparkSession:
    remote = wanted.get("spark.remote") or ("spark.master" not in wanted and os.environ.get("SPARK_REMOTE"))
    if remote and not remote.startswith("local"):
        return _connect(remote, wanted)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit has started the JVM already
    if not submitted:
        jvm.forget()
    settings = _settings(wanted, _configured(submitted))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    on_loopback = settings.get("spark.driver.host") == LOOPBACK
    java = None if submitted else find_java()
    with waiting("Starting Spark", "Spark started"), jvm.starting(java, on_loopback), _loading():
        started = _builder().config(map=dict(settings)).getOrCreate()
    if hasattr(started, "_sc"):  # not so with spark.api.mode=connect
        jvm.make_interruptible(started.sparkContext)
    _hush()
    return started


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Load the modules of quire's calls meanwhile: Java has the other core, and the first call need not wait for them."""
    # It sets up what is done before and after a fork: loaded in the midst of the one that starts Java, only the second half of it is done.
    importlib.import_module("concurrent.futures.thread")
    loading = threading.Thread(target=daemon.load, args=CALLS, name="quire-loads", daemon=True)
    loading.start()
    yield
    loading.join()


def _builder() -> SparkSession.Builder:
    """Return pyspark's builder, which is one object for all, without what an earlier session was built with."""
    from pyspark.sql import SparkSession

    SparkSession.builder._options = {}
    return SparkSession.builder


def _connect(remote: str, wanted: Mapping[str, str | None]) -> SparkSession:
    """Return a session of a Spark Connect server; what is static was settled when the server was started."""
    settings = {"spark.sql.session.timeZone": "UTC", **wanted, "spark.remote": None}
    _check_answers(remote)
    try:
        started = _builder().remote(remote).getOrCreate()
        for key, value in settings.items():
            if value is not None:
                started.conf.set(key, value)
    except Exception as error:
        raise QuireError(f"Spark Connect at {scrub(remote)} gives no session: {scrub(str(error))}") from error
    _hush()
    return started


def _check_answers(remote: str) -> None:
    """Say at once that nobody listens: Spark would try again for ten minutes."""
    from urllib.request import getproxies  # which brings TLS: tasks start without it

    try:
        host, port = urlsplit(remote).hostname, urlsplit(remote).port or 15002
    except ValueError:
        return  # Spark says what is wrong with it
    if not host or "grpc_proxy" in os.environ or getproxies():  # then it is not we who connect
        return
    try:
        socket.create_connection((host, port), timeout=20).close()
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise QuireError(f"no Spark Connect server answers at {host}:{port}: {why}. Look at the address, and whether it runs.") from error


def _settings(wanted: Mapping[str, str | None], configured: Mapping[str, str]) -> dict[str, str]:
    """Return quire's defaults where nobody has said anything else, and what the caller wants."""
    settings: dict[str, str | None] = {key: value for key, value in _defaults().items() if key not in configured}
    master = wanted.get("spark.master") or settings.get("spark.master") or configured["spark.master"]
    if re.match(r"local|spark://(127\.|localhost\b)", master):
        # Whatever this machine's name resolves to, if it does, all of this Spark is here.
        settings |= {key: LOOPBACK for key in ("spark.driver.host", "spark.driver.bindAddress") if key not in configured}
    if not master.startswith("local"):
        settings["spark.sql.warehouse.dir"] = None  # a place of this machine is none for a cluster
    said = wanted.get("spark.pyspark.python") or configured.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    if not re.match(r"local(\[|$)", master) or (said or sys.executable) != sys.executable:
        settings.pop("spark.python.daemon.module", None)  # quire need not be installed where these workers are
    if "spark.remote" in wanted or "SPARK_REMOTE" in os.environ:
        settings["spark.master"] = None  # Spark takes one of the two
    settings |= wanted
    settings.setdefault("spark.master", None if "spark.master" in configured else master)
    return {key: value for key, value in settings.items() if value is not None}


def _defaults() -> dict[str, str]:
    return {
        "spark.master": os.environ.get("MASTER") or "local[*]",
        "spark.app.name": "quire",
        "spark.driver.memory": jvm.driver_memory(),
        "spark.log.level": "ERROR",
        "spark.python.daemon.module": "quire.spark.daemon",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(jvm.warehouse()),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def _configured(submitted: bool) -> dict[str, str]:
    """Return what has been said outside of Python: by spark-submit, or by the files and variables that it would read."""
    if submitted:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        return dict(SparkConf().getAll())
    return {**_defaults_file(), **_submit_arguments(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))}


def _defaults_file() -> dict[str, str]:
    home = os.environ.get("SPARK_CONF_DIR") or (os.environ.get("SPARK_HOME") and f"{os.environ['SPARK_HOME']}/conf")
    if not home:
        return {}
    with contextlib.suppress(OSError):
        text = (Path(home) / "spark-defaults.conf").read_text("utf-8", "replace")
        return dict(re.findall(r"^[ \t]*(spark\.[^\s=:]+)[ \t]*[=: \t][ \t]*(\S.*?)[ \t]*$", text, re.MULTILINE))
    return {}


def _submit_arguments(text: str) -> dict[str, str]:
    flags = {"--master": "spark.master", "--name": "spark.app.name", "--driver-memory": "spark.driver.memory"}
    said: dict[str, str] = {}
    for flag, value in itertools.pairwise(shlex.split(text)):
        if flag in flags:
            said[flags[flag]] = value
        elif flag in ("--conf", "-c") and "=" in value:
            key, _, text = value.partition("=")
            said[key] = text
    return said


def _hush() -> None:
    """Keep pyspark from logging, as JSON, errors that are raised anyway."""
    with contextlib.suppress(ImportError):  # before pyspark 4 there was no such log
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel("CRITICAL")
