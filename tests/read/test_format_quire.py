"""`spark.read.format("quire")`: the rows of the ledger's version, for each format, layout and verb; a wrong option is one line."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

import quire
from gathering import documents, gather, refused, write
from quire.errors import UsageError
from quire.read import first_rows, options
from quire.read.source import DataSource
from quire.sources.splits import FileInfo
from quire.spark.session import PUSHDOWN
from quire.storage import connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def own(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return pa.record_batch({"name": [file.name], "size": pa.array([len(content)], pa.uint16()), "text": [content[:9]]})


SHAPES: list[dict[str, Any]] = [
    {"transform": "lines", "compression": "none"},
    {"transform": "lines", "layout": "directories"},
    {"transform": "raw", "compression": "zstd"},
    {"transform": "raw", "layout": "directories"},
    {"transform": "raw", "format": "parquet"},
    {"transform": own, "format": "parquet", "layout": "directories"},
]


def door(spark: SparkSession, dest: Path, **given: str) -> DataFrame:
    return spark.read.format("quire").options(**given).load(str(dest))


def counted(rows: list[Any]) -> Counter[str]:
    return Counter(repr([bytes(v) if isinstance(v, bytearray) else v for v in row]) for row in rows)


def shell(dest: Path, columns: list[str]) -> Counter[str]:
    """What the ledger says, without Spark; without the columns of directories, which the shell adds where quire has made them."""
    found = first_rows(connect(f"file://{dest}"), 10_000)
    return counted([[row[c] for c in columns] if isinstance(row, dict) else [row] for row in found])


@pytest.mark.nth(6)
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: " ".join(getattr(v, "__name__", str(v)) for v in s.values())[:40])
def test_the_rows_are_those_of_the_ledger_after_each_verb(tmp_path: Path, spark: SparkSession, shape: dict[str, Any]) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {f"k={n[1]}/{n}": c for n, c in documents(6).items()})
    gather(source, dest, **shape)
    own = ["value"] if shape["transform"] == "lines" else ["path", "content"] if shape["transform"] == "raw" else ["name", "size", "text"]
    seen = dict[int, Counter[str]]()

    def look() -> None:
        version = quire.Ledger(dest).version
        now = door(spark, dest)
        rows = now.select(*own).collect()
        assert counted(rows) == shell(dest, own)
        if shape.get("layout"):
            assert now.columns[-1] == "k"
            assert counted(now.collect()) == counted(quire.read(dest, spark=spark).collect())
        seen[version] = counted(rows)

    look()
    write(source, {"k=0/new": b"new\n", "k=1/also": b"also\n"})
    gather(source, dest, **shape)
    look()
    write(source, {"k=0/d0/f0000.txt": b"another\n"})
    gather(source, dest, on_change="reprocess", **shape)
    look()
    ledger = quire.Ledger(dest)
    ledger.compact(spark=quire.LocalRunner())
    look()
    assert len(seen) == 4
    for version, rows in seen.items():
        assert counted(door(spark, dest, version=str(version)).select(*own).collect()) == rows, "and so it stays"
    before = ledger.version
    ledger.forget([f"{source}/k=1/also"], spark=quire.LocalRunner())
    look()
    with pytest.raises(Exception, match=rf"version {before} of .* has expired"):
        door(spark, dest, version=str(before))


def test_a_frame_holds_its_version(tmp_path: Path, spark: SparkSession) -> None:
    gather(write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out")
    frame = door(spark, tmp_path / "out")
    gather(write(tmp_path / "in", {"b": b"2\n"}), tmp_path / "out")
    assert frame.count() == 1
    assert door(spark, tmp_path / "out").count() == 2


def test_a_version_that_expires_under_a_reader_is_one_line(tmp_path: Path, spark: SparkSession) -> None:
    for name in "ab":
        gather(write(tmp_path / "in", {name: b"1\n"}), tmp_path / "out")
    frames = [door(spark, tmp_path / "out"), quire.read(tmp_path / "out", spark=spark)]
    ledger = quire.Ledger(tmp_path / "out")
    ledger.compact(spark=quire.LocalRunner())
    assert [frame.count() for frame in frames] == [2, 2]
    ledger.expire()
    for frame in frames:
        with pytest.raises(Exception, match=r"version 4 of .* has expired"):
            frame.count()


def test_columns_are_chosen_by_name(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", {f"dt=2026-11-{d}/f": b"%d" % d for d in (21, 22)})
    gather(source, tmp_path / "out", transform=own, format="parquet", layout="directories")
    assert door(spark, tmp_path / "out", columns="dt, `size`").dtypes == [("dt", "date"), ("size", "int")]
    frame = spark.read.format("quire").schema("size int, dt date").load(str(tmp_path / "out"))
    assert {tuple(map(str, row)) for row in frame.collect()} == {("2", "2026-11-21"), ("2", "2026-11-22")}
    for wrong, said in (("size string, dt date", "is int, and not 'string'"), ("sizes int", "unknown column")):
        with pytest.raises(Exception, match=said):
            spark.read.format("quire").schema(wrong).load(str(tmp_path / "out")).collect()


@pytest.mark.nth(4)
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"colums": "a"}, "unknown option 'colums'.*Did you mean 'columns'"),
        ({"version": "99"}, "version 99 of .* is not there yet"),
        ({"version": "-1"}, "version=-1 is not a whole number"),
        ({"version": "two"}, "version='two' is not a whole number"),
        ({"columns": "valu"}, "unknown column of .* 'valu'.*Did you mean 'value'"),
        ({"columns": "a,,b"}, "are not names between commas"),
        ({"secret.account_key": "not a name"}, "takes the name of a variable"),
        ({"pushdown": "yes"}, "pushdown='yes' is neither true nor false"),
    ],
)
def test_a_wrong_option_is_one_line(tmp_path: Path, spark: SparkSession, given: dict[str, str], said: str) -> None:
    gather(write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out")
    with pytest.raises(Exception, match=rf"quire\.errors\.UsageError: [^\n]*{said}"):
        door(spark, tmp_path / "out", **given)


@pytest.mark.parametrize("given", [{"startingVersion": "0"}, {"maxCommitsPerTrigger": "x"}, {"MAXBYTESPERTRIGGER": "1"}, {"changes": "?"}])
def test_an_option_of_a_stream_is_refused_and_not_passed_over(tmp_path: Path, given: dict[str, str]) -> None:
    gather(write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out")
    source = DataSource(CaseInsensitiveDict({"path": str(tmp_path / "out"), **given}))
    with refused(UsageError, 2, "is an option of spark.readStream", "leave it out"):
        source.reader(source.schema())  # type: ignore[arg-type]  # a StructType


def test_a_table_is_refused_with_what_to_call(tmp_path: Path, spark: SparkSession) -> None:
    quire.Table.create(tmp_path / "trips", key="id").upsert(pa.table({"id": [1]}), spark=quire.LocalRunner(), progress=False)
    with pytest.raises(Exception, match=r"RefusedError: [^\n]*is a table[^\n]*quire\.Table\(.*\.snapshot\(\)"):
        door(spark, tmp_path / "trips")


def test_no_path_is_one_line(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="needs the destination"):
        spark.read.format("quire").load()


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[1], SHAPES[5]], ids=["flat", "directories", "parquet"])
def test_a_filter_takes_no_rows_from_later_queries_of_the_same_frame(tmp_path: Path, spark: SparkSession, shape: dict[str, Any]) -> None:
    gather(write(tmp_path / "in", {f"k={i % 2}/{i}": b"%d\n" % i for i in range(20)}), tmp_path / "out", **shape)
    frame = door(spark, tmp_path / "out")
    half = "k = 1" if "k" in frame.columns else "value >= x'35'"
    expected = frame.where(half).count()
    assert 0 < expected < 20
    assert frame.count() == 20
    assert frame.where(f"not ({half})").count() == 20 - expected
    assert (frame.where(half).count(), frame.count()) == (expected, 20)


def test_where_filters_are_not_handed_over_spark_says_what_to_set(tmp_path: Path, spark: SparkSession) -> None:
    gather(write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out")
    spark.dataSource.register(quire.DataSource)  # the one line elsewhere
    spark.conf.set(PUSHDOWN, "false")
    try:
        with pytest.raises(Exception, match=r"spark\.sql\.python\.filterPushdown\.enabled' is false. Set it to true"):
            door(spark, tmp_path / "out", pushdown="true").count()
        assert door(spark, tmp_path / "out").count() == 1
        assert quire.session().conf.get(PUSHDOWN) == "false", "what somebody has said stays"
    finally:
        spark.conf.set(PUSHDOWN, "true")
    assert door(spark, tmp_path / "out").count() == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [("a", ["a"]), (" a , b ", ["a", "b"]), ("`a, b`,c", ["a, b", "c"]), ("`we``ird`", ["we`ird"]), ("two words,dt", ["two words", "dt"])],
)
def test_names_of_columns_are_read_as_spark_writes_them(text: str, names: list[str]) -> None:
    assert options.columns({"columns": text}) == names


@pytest.mark.parametrize("text", ["", ",", "a,", "`", "a,,b", "`a`b"])
def test_other_texts_are_not_names(text: str) -> None:
    with refused(UsageError, 2, "columns", "names between commas"):
        options.columns({"columns": text})


def test_options_of_the_store_go_there_and_secrets_by_their_name(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"path": "x", "storage.endpoint_url": "http://x", "storage.anon": "true", "secret.account_key": "KEY_OF_A_TEST"}
    options.check(given)
    found = options.of_store(given)
    assert found is not None
    assert (found["endpoint_url"], found["anon"]) == ("http://x", True)
    monkeypatch.setenv("KEY_OF_A_TEST", "sesame")
    assert found["account_key"].value() == "sesame"
    assert not re.search("sesame", repr(found))
