"""`quire.read`: exactly the committed files of a version, each line, file or row as it was, counted and compared through Spark."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import quire
from checker import tree
from gathering import documents, gather, refused, write
from quire.commit import protocol
from quire.errors import QuireError, UsageError
from quire.read import first_rows
from quire.sources.splits import FileInfo
from quire.storage import connect
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HARD = {
    "a/utf8": "Grüße\nzwei\n".encode(),
    "a/latin": b"Gr\xfc\xdfe\nhalf \xc3\n\xff\xfe\x00\n",
    "a/windows": b"one\r\ntwo\r\n\r\n",
    "b/empty lines": b"\n\n\nlast",
    "b/empty": b"",
    "b/no end": b"no end",
    "b/long": b"x" * 6_500_000 + b"\nshort",
    "c/separators": "v\x0bf\x0cu\u2028p\u2029n\x85c\rend\n".encode(),
    "c/zero": b"\x00\x00\n\x00",
}


def lines_of(files: dict[str, bytes]) -> Counter[bytes]:
    """What every line of the files is, each ended by \\n alone."""
    found = Counter[bytes]()
    for content in files.values():
        found.update((content.removesuffix(b"\n")).split(b"\n") if content else [])
    return found


def counted(frame: DataFrame, column: str = "value") -> Counter[bytes]:
    return Counter(bytes(row[column]) for row in frame.collect())


# ---------------------------------------------------------------------------------------------------------------- three formats


@pytest.mark.nth(3)
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_lines_come_back_as_the_bytes_that_they_are(tmp_path: Path, spark: SparkSession, compression: str) -> None:
    source = write(tmp_path / "in", HARD)
    gather(source, tmp_path / "out", compression=compression, target_size="1 MiB")
    frame = quire.read(tmp_path / "out", spark=spark)
    assert frame.dtypes == [("value", "binary")]
    assert counted(frame) == lines_of(HARD)
    shell = Counter(first_rows(connect(f"file://{tmp_path}/out"), 100))
    assert shell == lines_of(HARD), "the shell reads the same without Spark"


@pytest.mark.nth(2)
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_raw_comes_back_file_by_file(tmp_path: Path, spark: SparkSession, compression: str) -> None:
    source = write(tmp_path / "in", {**HARD, **documents(30)})
    gather(source, tmp_path / "out", transform="raw", compression=compression)
    frame = quire.read(tmp_path / "out", spark=spark)
    assert frame.dtypes == [("path", "string"), ("content", "binary")]
    rows = [(row.path.removeprefix("file://"), bytes(row.content)) for row in frame.collect()]
    assert len(rows) == len(HARD) + 30
    assert dict(rows) == tree(source)
    shell = {row["path"].removeprefix("file://"): row["content"] for row in first_rows(connect(f"file://{tmp_path}/out"), 1000)}
    assert shell == tree(source)


def test_a_raw_file_longer_than_the_target_comes_in_its_ranges(tmp_path: Path, spark: SparkSession) -> None:
    content = os.urandom(3_000_000)
    source = write(tmp_path / "in", {"long": content})
    gather(source, tmp_path / "out", transform="raw", target_size="1 MB")
    rows = quire.read(tmp_path / "out", spark=spark).collect()
    assert len(rows) == 3
    assert {row.path for row in rows} == {f"file://{source}/long"}
    assert b"".join(bytes(row.content) for row in rows) == content


def rows_of_my_own(content: bytes, file: FileInfo) -> pa.RecordBatch:
    n = len(content.splitlines())
    return pa.record_batch({"name": [file.name] * n, "n": list(range(n)), "bytes": pa.array([len(content)] * n, pa.int64())})


def test_parquet_has_its_own_columns(tmp_path: Path, spark: SparkSession) -> None:
    source = write(tmp_path / "in", documents(20))
    gather(source, tmp_path / "rows", transform=rows_of_my_own, format="parquet")
    frame = quire.read(tmp_path / "rows", spark=spark)
    assert frame.columns == ["name", "n", "bytes"]
    assert frame.count() == 40
    assert frame.where("n = 1").select("name").distinct().count() == 20
    gather(source, tmp_path / "raw", transform="raw", format="parquet")
    frame = quire.read(tmp_path / "raw", spark=spark)
    assert frame.dtypes == [("path", "string"), ("modified", "timestamp"), ("content", "binary")]
    assert {r.path.removeprefix("file://"): bytes(r.content) for r in frame.collect()} == tree(source)


@pytest.mark.nth(4)
@pytest.mark.parametrize("name", ["with space", "[ab]{c}*?", "Süd 100% \\ #", "dt=2026-11-21"])
@pytest.mark.parametrize(("transform", "format"), [("lines", "lines"), ("raw", "parquet")])
def test_a_destination_may_be_called_anything(tmp_path: Path, spark: SparkSession, name: str, transform: str, format: str) -> None:
    source = write(tmp_path / "in", documents(5))
    gather(source, tmp_path / name, transform=transform, format=format)
    frame = quire.read(tmp_path / name, spark=spark)
    assert frame.count() == (10 if format == "lines" else 5)
    assert "dt" not in frame.columns


# ---------------------------------------------------------------------------------------------------------- partition columns

PARTITIONS: list[list[str]] = [
    ["1", "007", "-3", "+5"],
    ["1", "99999999999", "-9223372036854775808"],
    ["2026-11-21", "2026-11-22"],
    ["2026-11-21", "2026-02-30"],
    ["2026-11-21", "7"],
    ["1.5", "2", ".5", "-.25"],
    ["1.5", "99999999999"],
    ["a%3Db", "two words", "x"],
    ["1", "__HIVE_DEFAULT_PARTITION__"],
    ["2026-11-21", "__HIVE_DEFAULT_PARTITION__"],
    ["1_000", "0x10", "2026-1-1"],
    ["true", "12:30", "--"],
]


@pytest.mark.nth(12)
@pytest.mark.parametrize("values", PARTITIONS, ids=lambda v: " ".join(v)[:30])
def test_partition_columns_are_those_that_spark_infers(tmp_path: Path, spark: SparkSession, values: list[str]) -> None:
    source = write(tmp_path / "in", {f"hour={i}/p={v}/f{i}": f"{i}\n".encode() for i, v in enumerate(values)})
    peer = spark.read.text(str(source))
    gather(source, tmp_path / "out", layout="directories")
    frame = quire.read(tmp_path / "out", spark=spark)
    assert frame.dtypes[1:] == peer.dtypes[1:]
    assert frame.columns == ["value", "hour", "p"]
    mine = [(bytes(r.value).decode(), r.hour, r.p) for r in frame.orderBy("value").collect()]
    assert mine == [tuple(r) for r in peer.orderBy("value").collect()]


@pytest.mark.nth(3)
@pytest.mark.parametrize(("transform", "format"), [("lines", "lines"), ("raw", "raw"), ("raw", "parquet")])
def test_partition_columns_of_each_format(tmp_path: Path, spark: SparkSession, transform: str, format: str) -> None:
    files = {f"dt=2026-11-{d}/n={n}/f": b"%d" % n for d in (21, 22) for n in (1, 2)}
    source = write(tmp_path / "in", {**files, "dt=2026-11-23/n=3/empty": b""})
    gather(source, tmp_path / "out", layout="directories", transform=transform, format=format)
    frame = quire.read(tmp_path / "out", spark=spark)
    assert dict(frame.dtypes)["dt"] == "date"
    assert dict(frame.dtypes)["n"] == "int"
    days = {str(r.dt): r["count"] for r in frame.groupBy("dt").count().collect()}
    assert days == {"2026-11-21": 2, "2026-11-22": 2, **({} if format == "lines" else {"2026-11-23": 1})}


@pytest.mark.nth(10)
@pytest.mark.parametrize("format", ["lines", "parquet"])
@pytest.mark.parametrize(
    ("folders", "columns"),
    [
        (["dt=1", "other"], []),
        (["dt=1", ""], []),
        (["x/dt=1", "y/dt=2"], [("dt", "int")]),
        (["a=1/b=x", "b=y/a=2"], [("a", "int"), ("b", "string")]),
        (["we`ird, name=1"], [("we`ird, name", "int")]),
        (["value=1/Content=3/k=2"], [("value", "int"), ("k", "int")]),
        (["Werk=Süd"], [("Werk", "string")]),
    ],
)
def test_directories_of_every_kind_can_be_read(
    tmp_path: Path, spark: SparkSession, folders: list[str], columns: list[tuple[str, str]], format: str
) -> None:
    source = write(tmp_path / "in", {f"{f}/x".strip("/"): b"one\n" for f in folders})
    gather(source, tmp_path / "out", layout="directories", transform="lines" if format == "lines" else "raw", format=format)
    frame = quire.read(tmp_path / "out", spark=spark)
    assert frame.count() == len(folders)
    own = ["value"] if format == "lines" else ["path", "modified", "content"]
    if format == "lines":
        columns = [("Content", "int") if c == ("value", "int") else c for c in columns]
    assert frame.columns[: len(own)] == own
    assert frame.dtypes[len(own) :] == columns
    for row in frame.select(*own[-1:]).collect():
        assert bytes(row[0]) == (b"one" if format == "lines" else b"one\n"), "a directory never hides the data"


# ------------------------------------------------------------------------------------------------------------------- versions


@pytest.mark.nth(3)
@pytest.mark.parametrize(("transform", "format"), [("lines", "lines"), ("raw", "raw"), ("raw", "parquet")])
def test_earlier_versions_give_exactly_the_earlier_commits(tmp_path: Path, spark: SparkSession, transform: str, format: str) -> None:
    source, seen = tmp_path / "in", {0: 0}
    for i in range(3):
        write(source, {f"r{i}/f{j}": b"x\n" for j in range(i + 2)})
        seen[gather(source, tmp_path / "out", transform=transform, format=format).version] = sum(k + 2 for k in range(i + 1))
    assert list(seen) == [0, 2, 4, 6]
    for version in range(1, 7):
        if version == 1:  # the commit is there, its `published` is not
            with refused(UsageError, 2, "nothing to read", "version 1"):
                quire.read(tmp_path / "out", version=version, spark=spark)
            continue
        assert quire.read(tmp_path / "out", version=version, spark=spark).count() == seen[version - version % 2]
    assert quire.read(tmp_path / "out", spark=spark).count() == 9


@pytest.mark.parametrize("version", [-1, 3, 10**30, True, 1.5, "2"])
def test_a_version_that_is_not_there_is_one_clear_line(tmp_path: Path, spark: SparkSession, version: Any) -> None:
    gather(write(tmp_path / "in", documents(3)), tmp_path / "out")
    with refused(UsageError, 2, "version"):
        quire.read(tmp_path / "out", version=version, spark=spark)
    with refused(UsageError, 2, "version 3", "not there yet", "2"):
        quire.read(tmp_path / "out", version=3, spark=spark)


def test_where_nothing_was_gathered_is_one_clear_line(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "empty").mkdir()
    for place in ("empty", "not there"):
        with refused(UsageError, 2, "nothing to read", place):
            quire.read(tmp_path / place, spark=spark)
    gather(write(tmp_path / "in", {}), tmp_path / "out")
    with refused(UsageError, 2, "nothing to read"):
        quire.read(tmp_path / "out", spark=spark)


def test_only_empty_or_only_bad_files_are_an_empty_frame(tmp_path: Path, spark: SparkSession) -> None:
    gather(write(tmp_path / "in", {"a/empty": b"", "b/empty": b""}), tmp_path / "lines")
    assert quire.read(tmp_path / "lines", spark=spark).count() == 0
    gather(tmp_path / "in", tmp_path / "raw", transform="raw")
    assert [bytes(r.content) for r in quire.read(tmp_path / "raw", spark=spark).collect()] == [b"", b""]
    gather(tmp_path / "in", tmp_path / "bad", transform="xml")
    assert quire.read(tmp_path / "bad", spark=spark).count() == 0
    gather(tmp_path / "in", tmp_path / "parquet", transform="xml", format="parquet")
    with refused(UsageError, 2, "no data file"):
        quire.read(tmp_path / "parquet", spark=spark)


# ----------------------------------------------------------------------------------------------------- what is not committed


@pytest.mark.nth(2)
@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_a_commit_is_seen_when_it_is_published_and_not_before(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, committer: str
) -> None:
    source = write(tmp_path / "in", documents(6))
    gather(source, tmp_path / "out", committer=committer)
    before = counted(quire.read(tmp_path / "out", spark=spark))
    write(source, {"late": b"late\n"})

    def stop(*_: Any, **__: Any) -> None:
        raise QuireError("stop")

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "commit", stop)
        with pytest.raises(QuireError, match="stop"):
            gather(source, tmp_path / "out", committer=committer)
        assert counted(quire.read(tmp_path / "out", spark=spark)) == before
        early = [p for p in (tmp_path / "out").glob("part-*") if b"late" in p.read_bytes()]
        assert len(early) == (committer == "rename_v2"), "the directory shows what rename_v2 has written, the log does not"
    with monkeypatch.context() as patch:
        patch.setattr(protocol, "publish", stop)
        with pytest.raises(QuireError, match="stop"):
            gather(source, tmp_path / "out", committer=committer)
    assert any(json.loads(p.read_bytes())["kind"] == "commit" for p in (tmp_path / "out/_quire/log").glob("*3.entry"))
    assert counted(quire.read(tmp_path / "out", spark=spark)) == before
    assert quire.Ledger(tmp_path / "out").summary().unpublished == 1
    quire.recover(tmp_path / "out")
    assert counted(quire.read(tmp_path / "out", spark=spark)) == before + Counter([b"late"])


@pytest.mark.parametrize(("transform", "format"), [("lines", "lines"), ("raw", "parquet")])
def test_stray_files_are_not_read(tmp_path: Path, spark: SparkSession, transform: str, format: str) -> None:
    source = write(tmp_path / "in", documents(6))
    gather(source, tmp_path / "out", transform=transform, format=format)
    n = quire.read(tmp_path / "out", spark=spark).count()
    (data,) = (tmp_path / "out").glob("part-*")
    (tmp_path / "out" / data.name.replace("-0.", "-1.")).write_bytes(data.read_bytes())
    (tmp_path / "out" / "stray.txt").write_bytes(b"stray\n")
    write(tmp_path / "out", {"dt=1/stray.parquet": data.read_bytes()})
    assert quire.read(tmp_path / "out", spark=spark).count() == n
    assert LocalStore(f"{tmp_path}/out").stat("stray.txt") is not None, "and nobody deletes them"


@pytest.mark.parametrize("spark", ["x", 5, quire.LocalRunner()])
def test_rows_are_read_on_a_session_alone(tmp_path: Path, spark: Any) -> None:
    gather(write(tmp_path / "in", {"a": b"1\n"}), tmp_path / "out")
    with refused(UsageError, 2, "spark= takes a SparkSession, not "):
        quire.read(tmp_path / "out", spark=spark)
