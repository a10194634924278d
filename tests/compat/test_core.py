"""The verbs from end to end through Spark, as users call them: what has to hold on each release of Spark that quire is made for."""

from __future__ import annotations

import datetime as dt
import re
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quire
from quire.errors import UsageError
from quire.spark import releases
from quire.spark.jobs import SparkJob
from quire.spark.runner import collected
from services.kafka import Mock, Record, mock

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]
SPARK4 = releases.release() >= (4, 0)
# Older Sparks leave sockets to the garbage collector, and 3.5 imports what Python warns of.
OWN = ("distutils Version classes:DeprecationWarning", "unclosed <socket:ResourceWarning", "Exception ignored in. <socket")
pytestmark = [] if releases.release() >= (4, 3) else [pytest.mark.filterwarnings(f"ignore:{each}") for each in OWN]
AT = dt.datetime(2026, 11, 22, 10, 30, tzinfo=dt.UTC)
WALL = AT.replace(tzinfo=None)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Forty files of text in two directories; one of XML is broken."""
    for i in range(40):
        file = tmp_path / "in" / f"dt=2026-11-{21 + i % 2}" / f"{i:02}.xml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"<device id='{i}'><value>{i * i}</value></device>" if i != 7 else "<device")
    return tmp_path / "in"


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock() as cluster:
        yield cluster


@pytest.fixture
def numbers() -> Any:
    """A function that gives a row with a value of each type that differs between releases; one that travels, as users' do."""
    at, wall = AT, WALL

    def numbers(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
        if b"value" not in content:
            raise ValueError("no value")
        n = int(re.findall(rb"id='(\d+)'", content)[0])
        hours = dt.timedelta(hours=n)
        return [{"n": n, "at": at + hours, "wall": wall + hours, "of": [n, None], "raw": b"\xff%d" % n}]

    return numbers


COLUMNS = "n long, at timestamp, wall timestamp_ntz, of array<long>, raw binary"


# ------------------------------------------------------------------------------------------------------------------------- files
def test_gathered_once_and_looked_at_in_each_form(tree: Path, tmp_path: Path, spark: SparkSession) -> None:
    dest = tmp_path / "out"
    report = quire.consolidate(tree, dest, transform="xml", format="parquet", spark=spark, progress=False, layout="directories")
    assert (report.files, report.quarantined_count) == (39, 1)
    again = quire.consolidate(tree, dest, transform="xml", format="parquet", spark=spark, progress=False, layout="directories")
    assert (again.files, again.skipped) == (0, 40)
    found = quire.read(dest, spark=spark)
    assert found.count() == found.select("path").distinct().count() == 39
    assert {row["dt"] for row in found.select("dt").distinct().collect()} == {dt.date(2026, 11, 21), dt.date(2026, 11, 22)}
    ledger = quire.Ledger(dest)
    some = str(next(tree.rglob("12.xml")))
    assert ledger.read(some) == Path(some).read_bytes()
    tables = ledger.inspect
    for call in (tables.tasks, tables.splits):  # a table of the log, and one that Spark computes
        arrow, frame = call(as_="arrow", spark=spark), call(as_="spark", spark=spark)
        assert sorted(map(repr, releases.to_arrow(frame).to_pylist())) == sorted(map(repr, arrow.to_pylist())), call.__name__
        assert len(call(spark=spark)) == arrow.num_rows > 0
    assert tables.splits(where="state = 'quarantined'", as_="arrow", spark=spark).num_rows == 1
    assert tables.splits(where="state = 'lost'", as_="arrow", spark=spark).num_rows == 0
    assert tables.tasks(as_="spark", spark=spark).select("started").first()["started"].year >= 2026
    with pytest.raises(UsageError, match=r"^where='nowhere = 1' is not a condition on the ledger's columns"):
        tables.splits(where="nowhere = 1", spark=spark)
    assert ledger.verify(spark=spark).ok


@pytest.mark.seldom
def test_quarantined_retried_forgotten_compacted_and_purged(tree: Path, tmp_path: Path, spark: SparkSession) -> None:
    dest = tmp_path / "out"

    def gather() -> quire.Report:
        return quire.consolidate(tree, dest, transform="xml", spark=spark, progress=False, keep_versions=5)

    gather()
    ledger = quire.Ledger(dest)
    ledger.retry(tree, where="path like '%07.xml'", max_quarantined=1, spark=spark, progress=False)
    assert [row["tries"] for row in ledger.refresh().inspect.quarantined(as_="arrow").to_pylist()] == [2]
    next(tree.rglob("07.xml")).write_text("<device id='7'/>")
    (tree / "dt=2026-11-21" / "new.xml").write_text("<device id='99'/>")
    assert gather().files == 2
    assert ledger.refresh().summary().quarantined == 0
    before = ledger.refresh().version
    ledger.compact(spark=spark, progress=False)
    assert quire.read(dest, version=before, spark=spark).count() == 41
    ledger.forget(where="path like '%dt=2026-11-22%'", reason="a test", spark=spark)
    assert quire.read(dest, spark=spark).count() == 21
    assert gather().files == 20
    ledger.refresh().expire()
    assert ledger.purge_sources(tree, dry_run=False, min_age=0, spark=spark).files == 41
    assert not list(tree.rglob("*.xml"))
    assert ledger.verify(spark=spark).ok


def test_lines_and_raw_come_back_byte_for_byte(tmp_path: Path, spark: SparkSession) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for i in range(30):
        (source / f"{i:02}.txt").write_bytes(b"line %d\n\xff\xfe binary\n" % i)
    quire.consolidate(source, tmp_path / "lines", transform="lines", spark=spark, progress=False)
    quire.consolidate(source, tmp_path / "raw", transform="raw", spark=spark, progress=False)
    lines = quire.read(tmp_path / "lines", spark=spark)
    assert sorted(bytes(row["value"]) for row in lines.collect()) == sorted([b"line %d" % i for i in range(30)] + [b"\xff\xfe binary"] * 30)
    raw = {row["path"]: bytes(row["content"]) for row in quire.read(tmp_path / "raw", spark=spark).collect()}
    assert raw == {str(file): file.read_bytes() for file in source.iterdir()} or set(raw.values()) == {
        f.read_bytes() for f in source.iterdir()
    }


# --------------------------------------------------------------------------------------------------------------------- functions
def test_a_function_makes_rows_of_each_type_and_its_errors_are_quarantined(
    tree: Path, tmp_path: Path, spark: SparkSession, numbers: Any
) -> None:
    dest = tmp_path / "out"
    report = quire.process(tree, dest, numbers, schema=COLUMNS, spark=spark, progress=False)
    assert (report.files, report.quarantined_count) == (39, 1)
    found = quire.read(dest, spark=spark)
    assert [field.dataType.simpleString() for field in found.schema] == ["bigint", "timestamp", "timestamp_ntz", "array<bigint>", "binary"]
    rows = {row["n"]: row for row in found.selectExpr("n", "unix_micros(at) at", "wall", "of", "raw").collect()}
    assert set(rows) == {i for i in range(40) if i != 7}
    assert rows[3]["at"] == int((AT + dt.timedelta(hours=3)).timestamp()) * 10**6
    assert (rows[3]["wall"], rows[3]["of"], bytes(rows[3]["raw"])) == (WALL + dt.timedelta(hours=3), [3, None], b"\xff3")


def test_rows_of_all_splits_go_through_one_frame(tree: Path, tmp_path: Path, spark: SparkSession, numbers: Any) -> None:
    def evens(rows: DataFrame) -> DataFrame:
        return rows.where("n % 2 = 0").groupBy("wall").count().orderBy("wall")

    for function, failures in ((evens, 0), (lambda rows: rows.selectExpr("raise_error('broken here') x"), 1)):
        dest = tmp_path / f"out{failures}"
        if failures:
            with pytest.raises(quire.QuireError, match="broken here") as caught:
                quire.process(tree, dest, numbers, schema=COLUMNS, reduce=function, spark=spark, progress=False)
            assert "\n" not in str(caught.value)
        else:
            quire.process(tree, dest, numbers, schema=COLUMNS, reduce=function, spark=spark, progress=False)
            assert quire.read(dest, spark=spark).agg({"count": "sum"}).first()[0] == 20


def test_a_claim_commits_what_a_job_of_the_users_writes(tree: Path, tmp_path: Path, spark: SparkSession) -> None:
    ledger = quire.Ledger(tmp_path / "out", create=True)
    for expected in (40, 0):
        with ledger.claim(tree, spark=spark) as c:
            paths = [row["path"] for row in c.splits.collect()]
            assert (len(paths), c.files) == (expected, expected)
            if paths:
                spark.read.text(paths).write.parquet(c.path)
    assert quire.read(tmp_path / "out", spark=spark).count() == 40


# -------------------------------------------------------------------------------------------------------------------------- Kafka
def test_a_topic_is_loaded_once(kafka: Mock, tmp_path: Path, spark: SparkSession) -> None:
    kafka.create("events", 3)
    for first in (0, 300):
        kafka.produce("events", [Record(b"v%d" % i, b"k", partition=i % 3) for i in range(first, first + 300)])
        url = f"kafka://{kafka.address}/events"
        report = quire.load(url, tmp_path / "out", source_options=dict(kafka.settings), spark=spark, progress=False)
        assert report.records == 300
    found = quire.read(tmp_path / "out", spark=spark)
    assert found.count() == found.select("partition", "offset").distinct().count() == 600


# ------------------------------------------------------------------------------------------------------------------------- tables
@pytest.mark.parametrize("type", [pytest.param("copy_on_write", marks=pytest.mark.seldom), "merge_on_read"])
def test_a_table_takes_updates_from_a_frame(tmp_path: Path, spark: SparkSession, type: str) -> None:
    table = quire.Table.create(str(tmp_path / "table"), key="id", ordering="at", partition_by="city", type=type)

    def rows(first: int, n: int, hour: int) -> DataFrame:
        at = f"timestamp'2026-11-22 {hour}:00:00'"
        return spark.range(first, first + n, 1, 2).selectExpr(
            "id", f"{at} at", "concat('c', id % 2) city", "array(id, null) of", f"{hour} hour",
            "named_struct('x', id, 'y', 'z') pair", "cast(id as decimal(20, 2)) price",
        )  # fmt: skip

    assert table.upsert(rows(0, 100, 10), spark=spark, progress=False).inserted == 100
    report = table.upsert(rows(50, 100, 11), spark=spark, progress=False)
    assert (report.inserted, report.updated) == (50, 50)
    found = table.snapshot(spark=spark)
    assert {row["hour"]: row["count"] for row in found.groupBy("hour").count().collect()} == {10: 50, 11: 100}
    kinds = {field.name: field.dataType.simpleString() for field in found.schema}
    assert (kinds["at"], kinds["of"], kinds["price"]) == ("timestamp", "array<bigint>", "decimal(20,2)")
    assert table.changes(report.instant, spark=spark).count() == 0
    assert table.delete(rows(0, 10, 12), spark=spark, progress=False).deleted == 10
    assert {row[0] for row in table.changes(report.instant, spark=spark).select("op").collect()} == {"d"}
    if type == "merge_on_read":
        table.compact(spark=spark, progress=False)
    assert table.snapshot(spark=spark).where("city = 'c1'").count() == 70
    health = table.doctor(records=True, spark=spark)
    assert (health.healthy, health.records) == (True, 140)


# ---------------------------------------------------------------------------------------------------------------- format("quire")
@pytest.mark.skipif(not SPARK4, reason="Spark 3.5 has no Python data sources: the next test is its")
def test_the_format_reads_and_writes(tmp_path: Path, spark: SparkSession) -> None:
    dest = str(tmp_path / "out")
    assert quire.session() is spark
    frame = spark.range(0, 90, 1, 2).selectExpr("id", "id % 2 as odd", "timestamp'2026-11-22 10:00:00' at")
    frame.write.format("quire").mode("append").option("partition_by", "odd").save(dest)
    # A frame anew for each query: up to Spark 4.3 a frame keeps what a filter has pruned (docs/readers.md).
    assert spark.read.format("quire").load(dest).where("odd = 1").count() == 45
    found = spark.read.format("quire").load(dest).select("id", "odd", "at")
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, frame.collect()))
    query = (
        spark.readStream.format("quire").load(dest).writeStream.format("memory").queryName("compat_rows").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    )  # fmt: skip
    assert query.awaitTermination(120)
    assert spark.table("compat_rows").count() == 90
    (tmp_path / "csv").mkdir()
    (tmp_path / "csv" / "a.csv").write_text("1\n2\n3\n")
    rows = spark.readStream.schema("n long").csv(str(tmp_path / "csv")).writeStream.format("quire").trigger(availableNow=True)
    writing = rows.option("checkpointLocation", str(tmp_path / "checkpoint2"))
    if releases.release() < (4, 1):
        with pytest.raises(Exception, match=r"Install pyspark 4\.1 or later"):
            writing.start(str(tmp_path / "stream")).awaitTermination(120)
    else:
        assert writing.start(str(tmp_path / "stream")).awaitTermination(120)
        assert quire.read(tmp_path / "stream", spark=spark).count() == 3


@pytest.mark.skipif(SPARK4, reason="Spark 4 has Python data sources")
def test_the_format_is_refused_with_what_to_use_instead(tmp_path: Path, spark: SparkSession) -> None:
    assert quire.session() is spark
    stream = spark.readStream.format("rate").load()
    for door, call, instead in (
        (spark.read, "spark.read", "quire.read(dest)"), (spark.range(1).write, "df.write", "quire.Table.create"),
        (spark.readStream, "spark.readStream", "quire.read(dest)"), (stream.writeStream, "df.writeStream", "foreachBatch"),
    ):  # fmt: skip
        with pytest.raises(UsageError) as caught:
            door.format("quire")
        assert re.match(re.escape(f"{call}.format('quire') needs Spark 4, and this is Spark 3.5"), str(caught.value))
        assert instead in str(caught.value)
        assert "\n" not in str(caught.value)
        door.format("parquet")
    with pytest.raises(UsageError, match="needs Spark 4"):
        spark.read.load(str(tmp_path), format="quire")
    with pytest.raises(UsageError, match=r"^quire.DataSource, which is format\('quire'\), needs Spark 4"):
        quire.DataSource  # noqa: B018


# ------------------------------------------------------------------------------------------------------------- jobs and executors
@pytest.mark.parametrize("within", [pytest.param(False, marks=pytest.mark.seldom), True])
def test_a_job_is_interrupted_alone(spark: SparkSession, within: bool) -> None:
    def endless(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(600)
            yield batch

    def brief(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            time.sleep(5)
            yield batch

    jobs, other = spark.sparkContext.statusTracker(), list[Any]()
    mine = threading.Thread(target=lambda: other.extend(spark.range(0, 1, 1, 1).mapInArrow(brief, "id long").collect()))
    mine.start()
    until = time.monotonic() + 60
    while not jobs.getActiveJobsIds() and time.monotonic() < until:
        time.sleep(0.1)
    job, looks = SparkJob(spark, within=within), list[int]()

    def watch() -> None:
        looks.append(len(jobs.getActiveJobsIds()))
        if looks[-1] > 1:
            raise KeyboardInterrupt

    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        collected(job, job.session.range(0, 1, 1, 1).mapInArrow(endless, "id long"), watch)
    assert time.monotonic() - began < 30
    mine.join(60)
    assert len(other) == 1, "the user's own job has gone on"
    while jobs.getActiveJobsIds() and time.monotonic() < until + 30:
        time.sleep(0.1)
    assert not jobs.getActiveJobsIds()


CLUSTER = """
import sys
import quire
spark = quire.session(master="local-cluster[1,1,640]", spark_executor_memory="640m")
def where(batches):
    import quire
    for batch in batches:
        yield batch.from_pydict({"at": [quire.__file__]})
quire.install_on(spark)
assert "quire-" in spark.range(0, 1, 1, 1).mapInArrow(where, "at string").first()["at"].split("/quire/")[0].rpartition("/")[2]
report = quire.consolidate(sys.argv[1], sys.argv[2], transform="xml", spark=spark, progress=False)
assert report.files == 39, report
assert quire.read(sys.argv[2], spark=spark).count() == 39
assert quire.Ledger(sys.argv[2]).inspect.splits(as_="spark", spark=spark).count() == 40
print("all of it")
"""


def test_executors_get_this_quire(tree: Path, tmp_path: Path) -> None:
    """In a cluster of one executor, which is a process of its own."""
    assert script(CLUSTER, tree, tmp_path / "out", cwd=tmp_path) == "all of it\n"


def script(text: str, *arguments: object, cwd: Path) -> str:
    command = [sys.executable, "-c", textwrap.dedent(text), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# ------------------------------------------------------------------------------------------------------------------- what is said
def test_a_spark_that_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    import pyspark

    monkeypatch.setattr(pyspark, "__version__", "3.4.4")
    for call in (quire.session, lambda: quire.Ledger("/nowhere", create=True).inspect.splits(spark=spark)):
        with pytest.raises(UsageError, match=r"^this is Spark 3\.4\.4, and quire needs 3\.5 or newer: pip install") as caught:
            call()
        assert "\n" not in str(caught.value)
    monkeypatch.setattr(pyspark, "__version__", "3.5.9")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"^this is Spark 3\.5\.9 on Python 3\.1\d, and it runs on 3\.11 and older: use Python 3\.11, or"):
        releases.check()


def test_settings_that_came_too_late_are_found(spark: SparkSession) -> None:
    own = spark.newSession()
    own.conf.set("spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version", "2")
    assert releases.settings(own)["spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"] == "2"
    found = quire.committers.advise.check(own, url="/data/out", format="parquet").findings
    (late,) = (each for each in found if each.what == "set too late")
    assert "algorithm.version=2" in late.said


def test_rows_of_arrow_become_a_frame_and_come_back(spark: SparkSession) -> None:
    table = pa.table({
        "n": pa.array([1, None], pa.int64()), "s": pa.array([None, "é"]), "at": pa.array([AT, None], pa.timestamp("us", "UTC")),
        "x": pa.array([0.5, None]), "raw": pa.array([b"\xff", None]), "of": pa.array([[1, None], None], pa.list_(pa.int64())),
    })  # fmt: skip
    for some in (table, table.slice(0, 0)):
        assert releases.to_arrow(releases.from_arrow(spark, some)).to_pylist() == some.to_pylist()
    schema = pa.schema([("a", pa.large_string()), ("b", pa.binary(4)), ("c", pa.large_list(pa.int32())), ("d", pa.timestamp("us"))])
    kinds = [field.dataType.simpleString() for field in releases.from_arrow_schema(schema)]
    assert kinds == ["string", "binary", "array<int>", "timestamp_ntz"]


# ---------------------------------------------------------------------------------------------------------------------- the pairs
def test_each_pair_pins_the_spark_of_its_name_and_the_newest_is_the_one_of_the_project() -> None:
    files = sorted(Path(__file__).parent.glob("*.txt"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pythons = {found[1] for line in project["classifiers"] if (found := re.search(r"Python :: (3\.\d+)$", line))}
    pairs = set[tuple[str, str]]()
    for file in files:
        named = re.fullmatch(r"py(3\.\d+)-spark(\d\.\d)\.txt", file.name)
        assert named, file.name
        pins = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[\w-]+==[\w.]+", pin) for pin in pins), file.name
        assert [pin for pin in pins if pin.startswith(f"pyspark=={named[2]}.")], file.name
        pairs.add((named[1], named[2]))
    assert pairs == {("3.11", "3.5")} | {(python, spark) for python in pythons for spark in ("4.0", "4.1", "4.2", "4.3")}
    assert "pyspark>=3.5" in "".join(project["dependencies"])
    (newest,) = re.findall(r"(?m)^pyspark==(\d\.\d)", (ROOT / "constraints.txt").read_text())
    assert max(spark for _, spark in pairs) == newest
