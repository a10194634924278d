"""The same calls on a standalone cluster and over Spark Connect, on executors where quire is not installed: nothing is lost or doubled
by an executor that is killed, a directory that another host does not see is refused, and no secret shows up in any log."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import checker
import quire
from gathering import documents, gather, write
from quire.storage import bare
from services import s3
from services.kafka import Mock, Record
from services.kafka_witness import account, look, parquet
from services.ports import free_port
from services.spark import (
    OURS,
    PATIENCE,
    ConnectServer,
    Driver,
    Failed,
    Standalone,
    bare_python,
    environment,
    process,
    running,
    wait_until,
)

VARIABLE = "TESTS_ACCESS"  # in the environment of the driver and of all workers
LOUD = """
rootLogger.level = debug
rootLogger.appenderRef.all.ref = all
appender.all.type = Console
appender.all.name = all
appender.all.target = SYSTEM_ERR
appender.all.layout.type = PatternLayout
appender.all.layout.pattern = %p %c{1}: %m%n%ex
"""


@dataclass
class Cluster:
    """What runs for all tests here."""

    base: Path
    environment: dict[str, str]
    standalone: Standalone
    server: ConnectServer
    drivers: dict[str, Driver]


pytestmark = [pytest.mark.services, pytest.mark.timeout(900)]  # the first test starts a cluster, a Connect server and drivers


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers, a Connect server on them, and a driver of each kind; everything says all that it can say."""
    base = tmp_path_factory.mktemp("spark")
    for name in ("events", "conf"):
        (base / name).mkdir()
    (base / "conf" / "log4j2.properties").write_text(LOUD)
    env = environment(base / "tmp", bare_python(base / "python"))
    env |= {"SPARK_CONF_DIR": str(base / "conf"), "SPARK_CONNECT_LOG_LEVEL": "debug", VARIABLE: s3.SECRET}
    events = {
        "spark.eventLog.enabled": True, "spark.eventLog.dir": f"file://{base}/events", "spark.eventLog.compress": False,
        "spark.ui.enabled": True, "spark.ui.port": 0, "spark.driver.memory": "600m",
    }  # fmt: skip
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        standalone = stack.enter_context(running(Standalone(base / "standalone", env, cores=2)))
        server = ConnectServer(base / "connect", env, standalone.url, standalone.confs() | events | {"spark.ui.port": free_port()})
        classic = Driver(base / "classic", env, standalone.url, standalone.confs() | events | {"spark.log.level": None})
        stack.callback(server.stop)
        stack.callback(classic.stop)
        list(pool.map(lambda one: one.start(), (server, classic)))
        connect = stack.enter_context(running(Driver(base / "client", env, server.url, {})))
        drivers = {"classic": classic, "connect": connect}
        for driver in drivers.values():
            driver("import os, sys, time; from pathlib import Path")
        yield Cluster(base, env, standalone, server, drivers)


@pytest.fixture(params=["classic", "connect"])
def driver(request: pytest.FixtureRequest, cluster: Cluster) -> Driver:
    return cluster.drivers[request.param]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write(tmp_path / "in", documents(60))
    return tmp_path


def call(source: Path | str, dest: Path | str, more: str = "") -> str:
    return f"quire.consolidate({str(source)!r}, {str(dest)!r}, spark=spark, progress=False, target_size='400 B', {more})"


# ------------------------------------------------------------------------------------------------------------------ the main job


def test_the_main_job_runs_unchanged(driver: Driver, place: Path) -> None:
    """Gathered, gathered again, read, looked at and verified; functions of a notebook's own go along."""
    driver(call(place / "in", place / "out"))
    write(place / "in", {"d0/new.txt": b"late"})
    said = driver(f"""
        report = {call(place / "in", place / "out")}
        ledger = quire.Ledger({str(place / "out")!r})
        print(report.files, ledger.inspect.splits(as_="spark", spark=spark).count(), ledger.verify(spark=spark).ok)
        print(quire.read({str(place / "out")!r}, spark=spark).count())
    """)
    assert said.split() == ["1", "61", "True", "121"]
    checker.check(place / "in", place / "out")


@pytest.mark.nth(2)
def test_a_destination_is_read_by_sparks_own_door_there_too(driver: Driver, place: Path) -> None:
    """Also as a stream: neither the planner nor the executors have a quire of their own."""
    gather(place / "in", place / "out", layout="directories")
    said = driver(f"""
        frame = spark.read.format("quire").load({str(place / "out")!r})
        print(frame.count(), frame.where("value = 'line 7'").count())
        rows = spark.readStream.format("quire").option("startingVersion", 0).load({str(place / "out")!r})
        query = rows.writeStream.format("parquet").option("path", {str(place / "copy")!r})
        query = query.option("checkpointLocation", {str(place / "at")!r}).trigger(availableNow=True).start()
        query.awaitTermination(120)
        print(spark.read.parquet({str(place / "copy")!r}).count())
    """)
    assert said.split() == ["120", "1", "120"]


@pytest.mark.nth(2)
@pytest.mark.services
def test_a_shuffle_and_a_claim_run_there_too(driver: Driver, place: Path) -> None:
    """The user's function gets the session's own frame, and a job of the user's own the splits as one."""
    source, counts, claimed = (str(place / name) for name in ("in", "counts", "claimed"))
    said = driver(f"""
        from quire.engine import driver, request
        from quire.progress import Progress
        from quire.spark.runner import OnSpark
        def words(content, file):
            import pyarrow as pa
            return pa.record_batch({{"word": pa.array(content.decode().split(), pa.string())}})
        def count(rows):
            return rows.groupBy("word").count().orderBy("word")
        made = request.build({source!r}, {counts!r}, transform=words, format="parquet", target_size="400 B")
        report = driver.gather(request.reducing(made, count), OnSpark(spark), Progress(False))
        print(report.files, quire.read({counts!r}, spark=spark).where("word = 'line'").first()["count"])
        ledger = quire.Ledger({claimed!r}, create=True)
        with ledger.claim({source!r}, include="d1/*", progress=False, spark=spark) as c:
            c.splits.select("path").write.parquet(c.path)
        print(c.files, quire.read({claimed!r}, spark=spark).count(), ledger.inspect.unprocessed({source!r}, "spark", spark=spark).count())
    """)
    assert said.split() == ["60", "60", "20", "20", "40"]


@pytest.mark.nightly
def test_a_table_is_a_view_there_too(driver: Driver, tmp_path: Path) -> None:
    """Base files by Spark's reader and logs by tasks, under one name; a commit that comes later is in it once the view is made again."""
    table = quire.Table.create(tmp_path / "t", key="id", ordering="at", type="merge_on_read")

    def upsert(**fares: int) -> None:
        rows = [{"id": key, "at": fare, "fare": fare} for key, fare in fares.items()]
        table.upsert(pa.Table.from_pylist(rows), spark=quire.LocalRunner(), progress=False)

    def shown(renewed: str = "") -> str:
        return driver(f"""
            {renewed}
            print({{row.id: row.fare for row in spark.sql("SELECT id, fare FROM trips ORDER BY id").collect()}})
        """)

    upsert(a=1, b=2)
    upsert(a=9)
    view = f"quire.Table({str(tmp_path / 't')!r}).create_view('trips', spark=spark"
    assert shown(f"{view})").strip() == "{'a': 9, 'b': 2}"
    upsert(c=3)
    assert shown().strip() == "{'a': 9, 'b': 2}"
    assert shown(f"{view})").strip() == "{'a': 9, 'b': 2, 'c': 3}"
    assert shown(f"{view}, read_optimized=True)").startswith("{'a': 1, 'b': 2")


@pytest.mark.nth(2)
def test_topics_are_loaded_there_too(driver: Driver, kafka_mock: Mock, tmp_path: Path) -> None:
    """Each record once, by the client on the executors; a function of the notebook's own goes along; what comes later is a second load."""
    name = f"t{uuid.uuid4().hex}"
    kafka_mock.create(name, 3)
    kafka_mock.produce(name, [Record(b"%d" % i, b"key", partition=i % 3) for i in range(600)])
    cell = f"""
        def known(batch):
            import pyarrow.compute as pc
            if pc.any(pc.match_substring(batch.column("value"), b"13")).as_py():
                raise ValueError("it brings bad luck")
            return batch.select(["topic", "partition", "offset", "key", "value"])
        source, dest = "kafka://{kafka_mock.address}/{name}", {str(tmp_path / "out")!r}
        report = quire.load(source, dest, known, spark=spark, progress=False, target_size="200 KiB", function_version="1")
        print(report.records, report.quarantined_count, report.data_files)
    """
    unlucky = {i for i in range(650) if "13" in str(i)}
    first, aside, files = map(int, driver(cell).split())
    assert (first, aside) == (600 - len([i for i in unlucky if i < 600]), len([i for i in unlucky if i < 600]))
    assert files > 2, "several tasks, on executors of several processes"
    kafka_mock.produce(name, [Record(b"%d" % i, b"key", partition=i % 3) for i in range(600, 650)])
    assert driver(cell).split()[0] == str(50 - len([i for i in unlucky if i >= 600]))
    must = {position: what for position, what in look(kafka_mock, name).items() if int(what.value or b"") not in unlucky}
    assert account(must, parquet(tmp_path / "out")).exact
    said = driver(
        "ledger = quire.Ledger(dest)\nprint(*ledger.inspect.offsets()['offset'], ledger.verify(spark=spark).ok, "
        "quire.read(dest, spark=spark).count())"
    )
    assert said.split() == ["217", "217", "216", "True", str(len(must))]


@pytest.mark.nth(2)
def test_values_are_decoded_there_too(driver: Driver, kafka_mock: Mock, tmp_path: Path) -> None:
    """A decoder of quire's own, and one for whole files, travel to executors that have no quire."""
    name = f"t{uuid.uuid4().hex}"
    kafka_mock.create(name, 3)
    values = [b'{"id": %d, "name": "n%d"}' % (i, i) if i % 50 else b"no JSON" for i in range(300)]
    kafka_mock.produce(name, [Record(value, partition=i % 3) for i, value in enumerate(values)])
    write(tmp_path / "in", {f"{i}.json": b'{"id": %d}' % i for i in range(9)})
    said = driver(f"""
        source, dest, here = "kafka://{kafka_mock.address}/{name}", {str(tmp_path / "out")!r}, dict(spark=spark, progress=False)
        report = quire.load(source, dest, decode="json", schema="id long, name string", **here)
        print(report.records, report.quarantined_count, *sorted(quire.read(dest, spark=spark).groupBy().sum("id").first()))
        made = quire.process({str(tmp_path / "in")!r}, {str(tmp_path / "rows")!r}, quire.decoder("json", schema="id long"),
                             split="file", **here)
        print(made.files, made.records, quire.Ledger({str(tmp_path / "rows")!r}).verify(spark=spark).ok)
    """)
    ids = [i for i in range(300) if i % 50]
    assert said.split() == [str(len(ids)), "6", str(sum(ids)), "9", "9", "True"]


@pytest.mark.nth(2)
def test_executors_without_quire_run_the_drivers(driver: Driver, place: Path) -> None:
    """Tasks, and functions of the user's own after `quire.install_on`, in an interpreter that does not know quire by itself."""
    said = driver(f"""
        def where(content, file):
            import quire, sys
            return f"{{sys.prefix}} {{quire.__file__}}".encode()
        def mine(batches):
            import pyarrow as pa
            for batch in batches:
                yield pa.RecordBatch.from_pydict({{"said": [where(b"", None).decode()]}})
        {call(place / "in", place / "out", "transform=where")}
        quire.install_on(spark)
        quire.install_on(spark)
        seen = {{row.said for row in spark.range(0, 4, 1, 4).mapInArrow(mine, "said string").collect()}}
        seen |= {{row.value.decode() for row in quire.read({str(place / "out")!r}, spark=spark).collect()}}
        print(*seen, sep="\\n")
    """)
    for line in said.splitlines():
        python, file = line.split(" ")
        assert python.endswith("python/venv")
        assert re.search(r"/quire-[0-9a-f]{16}\.zip/quire/__init__\.pyc?$", file)


def test_another_quire_on_the_executors_is_not_used(cluster: Cluster, place: Path) -> None:
    """Though the worker has imported it before any task."""
    python = bare_python(place / "other")
    (site,) = (place / "other/venv/lib").glob("python*/site-packages")
    (site / "quire").mkdir()
    (site / "quire" / "__init__.py").write_text("raise_if_used = 1\n")
    (site / "first.pth").write_text("import quire\n")
    found = subprocess.run([python, "-c", "import sys; print(sys.modules['quire'].__file__)"], capture_output=True, text=True, cwd=place)
    assert str(site) in found.stdout
    with_python(cluster, python, call(place / "in", place / "out"))
    checker.check(place / "in", place / "out")


def test_a_package_that_executors_lack_is_named(cluster: Cluster, place: Path) -> None:
    python = bare_python(place / "poor", without=(*OURS, "msgspec"))
    with pytest.raises(Failed) as caught:
        with_python(cluster, python, call(place / "in", place / "out"))
    assert caught.value.kind == "UsageError"
    assert caught.value.text == (
        "the executors' Python has no module 'msgspec', which the tasks need. Install there what is installed here: pip install msgspec."
    )


def with_python(cluster: Cluster, python: Path, cell: str) -> None:
    """Run a cell while another interpreter runs the tasks."""
    driver = cluster.drivers["classic"]
    before = driver(f"print(spark.sparkContext.pythonExec); spark.sparkContext.pythonExec = {str(python)!r}").strip()
    try:
        driver(cell)
    finally:
        driver(f"spark.sparkContext.pythonExec = {before!r}")


@pytest.mark.nth(2)
def test_a_module_of_the_users_own_that_executors_lack_is_named_and_can_be_sent(driver: Driver, cluster: Cluster, place: Path) -> None:
    name, own = f"own{uuid.uuid4().hex}", cluster.base / "own"  # as long as the session: executors that come later fetch it, too
    own.mkdir(exist_ok=True)
    (own / f"{name}.py").write_text("def loud(content, file):\n    return content.upper()\n")
    cell = call(place / "in", place / "out", f"transform={name}.loud")
    with pytest.raises(Failed, match=rf"UsageError: .*no module '{name}'.* spark\.addArtifacts\('{own}/{name}.py', pyfile=True\)"):
        driver(f"sys.path.insert(0, {str(own)!r})\nimport {name}\n{cell}")
    driver(f"spark.addArtifacts({str(own / name)!r} + '.py', pyfile=True)\n{cell}")
    checker.check(place / "in", place / "out", lambda content: content.upper() + b"\n")


def test_an_interrupt_ends_quires_tasks_and_no_others(driver: Driver, place: Path) -> None:
    """The user's own job goes on; the tasks give their cores back; the next call goes on with the job."""
    began = time.monotonic()
    said = driver(f"""
        import threading
        class Stop(Exception): pass
        def slow(content, file):
            time.sleep(0 if Path({str(place / "fast")!r}).exists() else 20)
            return content
        def mine(batches):
            time.sleep(4)
            yield from batches
        def stop(step):
            if step.phase == "gathering":
                time.sleep(2)
                raise Stop
        counts = []
        other = threading.Thread(target=lambda: counts.append(spark.range(0, 1, 1, 1).mapInArrow(mine, "id long").count()))
        other.start()
        try:
            {call(place / "in", place / "out", "transform=slow, function_version='1'").replace("progress=False", "progress=stop")}
        except Stop:
            other.join()
            print(*counts, spark.range(0, 2, 1, 2).mapInArrow(lambda batches: batches, "id long").count())
    """)
    assert said.split() == ["1", "2"]
    assert time.monotonic() - began < 100
    (place / "fast").touch()
    driver(call(place / "in", place / "out", "transform=slow, function_version='1'"))
    checker.check(place / "in", place / "out")


# ------------------------------------------------------------------------------------------------------------------------ stores


def options(seaweedfs: str, secret: str) -> str:
    """The options of S3 as Python, with the secret as it is given there."""
    return f"{{**{ ({**s3.options(seaweedfs), 'secret': None})!r}, 'secret': {secret}}}"


def copied(url: str, endpoint: str, to: Path) -> Path:
    """What lies in S3, on disk."""
    store = bare(url, s3.options(endpoint))
    assert not list(store.pending())
    for entry in store.walk():
        (to / entry.name).parent.mkdir(parents=True, exist_ok=True)
        (to / entry.name).write_bytes(store.get(entry.name))
    return to


@pytest.mark.parametrize(
    "secret", [f"quire.secret({VARIABLE!r})", f"quire.secret(lambda: os.environ[{VARIABLE!r}])"], ids=["name", "function"]
)
def test_secrets_by_name_are_found_on_the_executors(driver: Driver, place: Path, seaweedfs: str, secret: str) -> None:
    url = f"s3://{s3.BUCKET}/{uuid.uuid4().hex}"
    given = options(seaweedfs, secret)
    said = driver(f"""
        {call(place / "in", url, f"dest_options={given}")}
        print(quire.read({url!r}, storage_options={given}, spark=spark).count())
    """)
    assert said.split() == ["120"]
    checker.check(place / "in", copied(url, seaweedfs, place / "copy"))


def test_a_secret_that_an_executor_does_not_have_is_named(driver: Driver, place: Path, seaweedfs: str) -> None:
    given = options(seaweedfs, "quire.secret('TESTS_NOWHERE')")
    cell = call(place / "in", f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", f"dest_options={given}")
    with pytest.raises(Failed, match=r"UsageError: the variable 'TESTS_NOWHERE' .* is not set on the driver"):
        driver(cell)
    with pytest.raises(Failed, match=r"UsageError: the variable 'TESTS_NOWHERE' .* is not set on the executor \S+\. ") as caught:
        driver(f"os.environ['TESTS_NOWHERE'] = os.environ[{VARIABLE!r}]\n{cell}")
    assert "\n" not in caught.value.text
    driver("del os.environ['TESTS_NOWHERE']")


def test_an_executor_is_killed_in_the_middle(cluster: Cluster, place: Path, seaweedfs: str) -> None:
    """Its tasks are done elsewhere; each file is there once."""
    url, driver = f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", cluster.drivers["classic"]
    app = driver("print(spark.sparkContext.applicationId)").strip()
    given = options(seaweedfs, f"quire.secret({VARIABLE!r})")
    driver("""
        def slow(content, file):
            time.sleep(0.1)
            return content
    """)
    driver.ask(call(place / "in", url, f"transform=slow, dest_options={given}") + "\nprint('done')")
    store = bare(url, s3.options(seaweedfs))
    wait_until(lambda: list(store.pending()), 60, "a task has written")
    executors = [pid for pid in cluster.standalone.find("executor JVM") if app.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert len(executors) == 2
    os.kill(executors[0], signal.SIGKILL)
    assert driver.answer().split() == ["done"]
    assert process(executors[0]) is None
    checker.check(place / "in", copied(url, seaweedfs, place / "copy"))


# ----------------------------------------------------------------------------------------------------------------- another host


def behind_a_wall(hidden: Path) -> list[str]:
    """What to put before a command so that it has mounts of its own, and another, empty directory in a place, as another host has."""
    for way in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        before = [*way, "sh", "-c", f'mount -t tmpfs none "{hidden}" && exec "$@"', "sh"]
        if shutil.which("unshare") and subprocess.run([*before, "true"], capture_output=True).returncode == 0:
            return before
    raise RuntimeError("this user may make no namespaces, so there is no other host here: allow user namespaces, or run as root")


@pytest.fixture(scope="module")
def abroad(cluster: Cluster) -> Iterator[tuple[Driver, Path, Path]]:
    """A driver whose only executor has mounts of its own: a directory that it shares, and one that it does not."""
    shared, hidden = cluster.base / "shared", cluster.base / "hidden"
    for folder in (shared, hidden):
        write(folder / "in", documents(60))
    known = cluster.standalone.workers()
    cluster.standalone.add_worker("127.0.0.4", cluster.base / "tmp" / "abroad", memory="4g", before=behind_a_wall(hidden))
    wait_until(lambda: cluster.standalone.workers() > known, PATIENCE, "the third worker is up")
    confs = cluster.standalone.confs() | {"spark.executor.memory": "3g", "spark.cores.max": 1}  # so much only the third one has
    with running(Driver(cluster.base / "abroad", cluster.environment, cluster.standalone.url, confs)) as driver:
        yield driver, shared, hidden


@pytest.mark.parametrize(("source", "dest"), [("hidden", "shared"), ("shared", "hidden")])
def test_a_directory_that_another_host_does_not_see_is_refused(abroad: tuple[Driver, Path, Path], source: str, dest: str) -> None:
    driver, shared, hidden = abroad
    places = {"shared": shared, "hidden": hidden}
    wrong = hidden / ("in" if source == "hidden" else "refused")
    with pytest.raises(Failed) as caught:
        driver(call(places[source] / "in", places[dest] / "refused"))
    assert caught.value.kind == "UsageError"
    assert re.fullmatch(
        rf"file://{wrong} is a directory of this machine's, and the executor on \S+ does not see it\. Use a store .*local\[\*\]'\)\.",
        caught.value.text,
    )
    assert [p for p in (places[dest] / "refused").rglob("*") if p.is_file()] == [], "something was left"


def test_a_directory_that_another_host_has_mounted_is_as_good_as_any(abroad: tuple[Driver, Path, Path]) -> None:
    driver, shared, _ = abroad
    driver(call(shared / "in", shared / "out"))
    write(shared / "in", {"d0/new.txt": b"late"})
    said = driver(f"""
        {call(shared / "in", shared / "out")}
        ledger = quire.Ledger({str(shared / "out")!r})
        rows = ledger.inspect.splits(as_="spark", spark=spark)
        print(rows.count(), ledger.verify(spark=spark).ok, quire.read({str(shared / "out")!r}, spark=spark).count())
    """)
    assert said.split() == ["61", "True", "121"]
    checker.check(shared / "in", shared / "out")


def test_what_another_host_does_not_see_cannot_be_read_either(abroad: tuple[Driver, Path, Path]) -> None:
    driver, _, hidden = abroad
    gather(hidden / "in", hidden / "out")
    for what in (
        "quire.read({0!r}, spark=spark).count()",
        "quire.Ledger({0!r}).inspect.splits(as_='spark', spark=spark).count()",
        "quire.Ledger({0!r}).verify(spark=spark)",
    ):
        with pytest.raises(Failed, match=r"hidden/out is a directory of this machine's"):
            driver(what.format(str(hidden / "out")))


# ------------------------------------------------------------------------------------------------------------------------ secrets


def test_no_secret_is_in_any_log_event_page_or_file(cluster: Cluster, place: Path) -> None:
    """Given as they are, with everything at its loudest: driver, client, server, master, workers, executors, event logs and the UI."""
    secret = f"{uuid.uuid4().hex}+/=="
    for name, driver in cluster.drivers.items():
        said = driver(f"""
            given = {{"account_key": {secret!r}, "nested": {{"token": {secret!r}}}}}
            def stuck(content, file):
                raise MemoryError
            {call(place / "in", place / name, "storage_options=given")}
            try:
                {call(place / "in", place / f"{name}2", "storage_options=given, transform=stuck")}
            except quire.QuireError as e:
                print(e)
            frame = quire.read({str(place / name)!r}, storage_options=given, spark=spark)
            frame.explain(True)
            print(frame.count(), spark.sql("SET").collect())
        """)
        assert "MapInArrow read(" in said
        assert secret not in said
    page = cluster.drivers["classic"]("print(spark.sparkContext.uiWebUrl, spark.sparkContext.applicationId)").split()
    pages = [
        f"{page[0]}/api/v1/applications/{page[1]}/{name}" for name in ("sql?details=true&length=100000", "environment", "jobs", "stages")
    ]
    ui = f"http://127.0.0.1:{cluster.server.confs['spark.ui.port']}"
    pages += [f"{page[0]}/SQL/", f"{ui}/connect/", f"{ui}/SQL/"]
    seen = {url: urllib.request.urlopen(url, timeout=20).read() for url in pages}
    for folder in (cluster.base, place):
        seen |= {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}
    loud = [name for name, data in seen.items() if b"DEBUG" in data]
    assert {"driver.log", "Connect.log", "Master.log", "Worker.log", "stderr"} <= {name.rpartition("/")[2] for name in loud}
    assert any(name.startswith(f"{cluster.base}/events/") and len(data) > 10_000 for name, data in seen.items())
    assert any(b"ExecuteAndFetchAsIterator. Request" in data for data in seen.values()), "the client has not logged its requests"
    for name, data in seen.items():
        for form in forms(secret):
            assert form not in data, name


def forms(secret: str) -> list[bytes]:
    """How it may look: plain, in wide characters, or within something in base64."""
    data = secret.encode()
    return [data, json.dumps(secret).encode(), secret.encode("utf-16-le"), *(base64.b64encode(b"x" * n + data)[4:-4] for n in range(3))]
