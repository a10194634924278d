"""`df.write.format("quire")` and `df.writeStream` as a user calls them; a wrong call is one line."""

from __future__ import annotations

import datetime as dt
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import quire

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def session(spark: SparkSession) -> None:
    """Spark looks for a format to write in the JVM thread's session, and another test's Ctrl-C has made this thread another one."""
    assert quire.session() is spark


def write(frame: DataFrame, dest: Path, mode: str = "append", **given: str) -> None:
    frame.write.format("quire").mode(mode).options(**given).save(str(dest))


def said(work: Any) -> str:
    """The line that a user finds in Spark's error."""
    with pytest.raises(Exception) as failed:  # noqa: PT011
        work()
    return next(line for line in reversed(str(failed.value).splitlines()) if "quire.errors" in line or "requirement" in line)


@pytest.mark.seldom
def test_all_types_come_back_and_every_reader_counts_each_row_once(tmp_path: Path, spark: SparkSession) -> None:
    dest = tmp_path / "out"
    frame = spark.range(0, 100, 1, 3).selectExpr(
        "id", "cast(id as string) text", "id % 2 = 0 even", "id / 3 third", "cast(id as decimal(20, 2)) price", "current_date() day",
        "timestamp'2026-11-26 10:00:00' at", "timestamp_ntz'2026-11-26 10:00:00' wall", "array(id, null) list",
        "named_struct('x', id, 'y', 'z') pair", "map('a', id) map", "cast(null as string) nothing", "cast('x' as binary) bytes",
    )  # fmt: skip
    frame = frame.cache()
    write(frame, dest, batch="monday")
    write(frame, dest, batch="monday")
    assert sorted(map(repr, quire.read(dest, spark=spark).collect())) == sorted(map(repr, frame.collect()))
    assert spark.read.format("quire").load(str(dest)).count() == spark.read.parquet(str(dest)).count() == 100
    write(frame.limit(7), dest, "overwrite")
    assert spark.read.format("quire").load(str(dest)).count() == spark.read.parquet(str(dest)).count() == 7
    ledger = quire.Ledger(dest)
    assert ledger.verify(spark=quire.LocalRunner()).ok
    ledger.forget(where="commit = 3")
    assert not [p for p in dest.iterdir() if p.suffix == ".parquet"]


def test_partitions(tmp_path: Path, spark: SparkSession) -> None:
    dest = tmp_path / "out"
    frame = spark.range(0, 90, 1, 2).selectExpr("id", "date'2026-11-20' + cast(id % 3 as int) day", "id % 2 as odd")
    write(frame, dest, partition_by="day, odd")
    write(frame.where("id < 3"), dest, "overwrite", partition_by="day, odd", overwrite="partitions")
    for found in (spark.read.parquet(str(dest)), quire.read(dest, spark=spark), spark.read.format("quire").load(str(dest))):
        counts = {(row["day"], row["odd"]): row["count"] for row in found.groupBy("day", "odd").count().collect()}
        days = [dt.date(2026, 11, 20 + i) for i in range(3)]
        assert counts == {(days[i], odd): 1 if odd == i % 2 else 15 for i in range(3) for odd in range(2)}


def test_values_of_partitions_keep_their_types(tmp_path: Path, spark: SparkSession) -> None:
    dest = tmp_path / "out"
    frame = spark.createDataFrame([(1, "007", 5, True), (2, "7", 6, False)], "v int, text string, long bigint, yes boolean")
    for mode in ("append", "overwrite"):
        write(frame, dest, mode, partition_by="text,long,yes")
    for found in (quire.read(dest, spark=spark), spark.read.format("quire").load(str(dest))):
        assert found.schema.simpleString() == "struct<v:int,text:string,long:bigint,yes:boolean>"
        assert sorted(found.collect()) == sorted(frame.collect())
    renamed = frame.withColumnRenamed("text", "day")
    assert "in directories by day, long, yes" in said(lambda: write(renamed, dest, partition_by="day,long,yes"))


def test_another_thread_writes_once_it_has_asked_for_the_session(tmp_path: Path, spark: SparkSession) -> None:
    def work(n: int) -> None:
        quire.session()
        write(spark.range(n), tmp_path / f"out{n}")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(work, 3).result()
    assert quire.read(tmp_path / "out3", spark=spark).count() == 3


def test_wrong_calls(tmp_path: Path, spark: SparkSession) -> None:
    frame, dest = spark.range(3), tmp_path / "out"
    assert "Did you mean 'batch'?" in said(lambda: write(frame, dest, bach="x"))
    assert "partitioning" in said(lambda: frame.write.format("quire").mode("append").partitionBy("id").save(str(dest)))
    assert 'df.write.format("quire").save("/data/out")' in said(lambda: frame.write.format("quire").mode("append").save())
    assert "goes with mode('overwrite')" in said(lambda: write(frame, dest, overwrite="partitions"))
    assert "needs option('partition_by', 'dt')" in said(lambda: write(frame, dest, "overwrite", overwrite="partitions"))
    assert "partition_by='id,' are not names" in said(lambda: write(frame, dest, partition_by="id,"))
    with pytest.raises(Exception, match='Please use either the "Append" or "Overwrite" mode'):
        write(frame, dest, "error")
    assert not dest.exists()
    failing = frame.selectExpr("id", "raise_error('broken here') x").selectExpr("id", "cast(x as string) x")
    with pytest.raises(Exception, match="broken here"):
        write(failing, dest)
    assert quire.Ledger(dest).open_jobs() == ()
    assert not list(dest.rglob("*.staged"))


def test_a_secret_is_never_shown(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"secret.account_key": "QUIRE_NO_SUCH_VARIABLE"}
    text = said(lambda: spark.range(1).write.format("quire").mode("append").options(**given).save("abfs://box@account/out"))
    assert "the variable 'QUIRE_NO_SUCH_VARIABLE'" in text


def stream(frame: DataFrame, dest: Path, checkpoint: Path, **given: str) -> None:
    writer = frame.writeStream.format("quire").options(**given).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(dest))
    query.awaitTermination(120)
    assert query.exception() is None


def test_a_batch_of_a_stream_counts_once(tmp_path: Path, spark: SparkSession) -> None:
    """The driver dies between the commit here and Spark's own: Spark does the batch again."""
    source, dest, checkpoint = tmp_path / "in", tmp_path / "out", tmp_path / "checkpoint"
    spark.range(50).write.mode("append").json(str(source))
    frame = spark.readStream.schema("id long").json(str(source))
    stream(frame, dest, checkpoint)
    assert quire.read(dest, spark=spark).count() == 50
    shutil.rmtree(checkpoint / "commits")
    stream(frame, dest, checkpoint)
    assert quire.read(dest, spark=spark).count() == spark.read.parquet(str(dest)).count() == 50
    spark.range(7).write.mode("append").json(str(source))
    stream(frame, dest, checkpoint)
    assert quire.read(dest, spark=spark).count() == spark.read.parquet(str(dest)).count() == 57
    assert quire.Ledger(dest).open_jobs() == ()
    paths = sorted(set(quire.Ledger(dest).inspect.splits()["path"]))
    assert [path[:7] + path.rpartition("/")[2] for path in paths] == ["stream:0", "stream:1"]
    with pytest.raises(Exception, match=r"option 'batch' is of df.write"):
        stream(frame, dest, tmp_path / "other", batch="x")
