"""All rows of a call go through one function together: its output and the ledger's rows are one commit, or there is none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import quire
from gathering import documents, refused, write
from quire import Report, options, rounds
from quire.errors import QuireError
from quire.options import Options
from quire.progress import Progress
from quire.runner import OnSpark

HERE: dict[str, Any] = {"spark": quire.InProcess(), "progress": False}


def _splitting() -> Any:
    def words(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        """A row a word."""
        found = content.decode().split()
        return pa.record_batch({"word": pa.array(found, pa.string()), "file": pa.array([file.name] * len(found), pa.string())})

    return words


words = _splitting()  # not importable, so that Spark's workers are sent it


def count(rows: pa.Table) -> pa.Table:
    """How often each word is there."""
    return rows.group_by("word", use_threads=False).aggregate([("word", "count")]).sort_by("word").rename_columns(["word", "n"])


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("word", "descending"), ("file", "ascending")])


def made(source: Any, dest: Any, reduce: Any = count, **settings: Any) -> Options:
    settings = {"transform": words, "format": "parquet", **settings}
    return options.reducing(options.build(source, dest, **settings), reduce)


def gather(source: Any, dest: Any, reduce: Any = count, runner: Any = None, **settings: Any) -> Report:
    return rounds.gather(made(source, dest, reduce, **settings), runner or quire.InProcess(), Progress(False))


def counted(files: dict[str, bytes]) -> Counter[str]:
    return Counter(word for content in files.values() for word in content.decode().split())


def rows(dest: Path) -> list[dict[str, Any]]:
    """What readers of the log see, in the files' order."""
    return [row for name in quire.Ledger(dest).files()["data_file"] for row in pq.ParquetFile(dest / name).read().to_pylist()]


def test_the_output_of_all_files_together_is_one_commit(tmp_path: Path) -> None:
    files = documents(20)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, target_size=64)
    assert {row["word"]: row["n"] for row in rows(dest)} == counted(files)
    assert (report.files, len(report.jobs)) == (20, 1)
    ledger = quire.Ledger(dest)
    assert ledger.history()["kind"].tolist() == ["commit", "published"]
    assert ledger.summary().files == 20
    assert len(ledger.tasks()) > 2, "several tasks before it, and the shuffle"
    assert not list((dest / "_quire" / "jobs").glob("*")), "what the tasks made has gone"
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*ledger.files()["data_file"]}
    again = gather(source, dest, target_size=64)
    assert (again.files, again.done, again.jobs) == (0, 20, ())


def test_what_is_new_goes_through_the_function_for_itself(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    gather(source, dest)
    write(source, {"d9/new.txt": b"line line line"})
    assert gather(source, dest).files == 1
    assert rows(dest)[-1] == {"word": "line", "n": 3}
    assert quire.Ledger(dest).summary().commits == 2


# ------------------------------------------------------------------------------------------------------------------ on Spark
def test_on_spark_a_function_groups_sorts_and_joins(tmp_path: Path, spark: Any) -> None:
    files = documents(30)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    names = spark.createDataFrame([(word, word.upper()) for word in counted(files)], "word string, shout string")

    def joined(found: Any) -> Any:
        return found.groupBy("word").count().join(names, "word").orderBy("shout")

    report = gather(source, dest, joined, OnSpark(spark), target_size=64)
    expected = counted(files)
    found = [row.asDict() for row in quire.read(spark, dest).collect()]
    assert {row["word"]: row["count"] for row in found} == expected
    assert [row["shout"] for row in rows(dest)] == sorted(word.upper() for word in expected), "sorted, as the function has sorted"
    assert (report.files, len(report.jobs)) == (30, 1)
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*quire.Ledger(dest).files()["data_file"]}
    assert gather(source, dest, joined, OnSpark(spark), target_size=64).done == 30


def test_a_function_that_fails_on_spark_ends_the_call_in_one_line_and_its_tasks_stay_done(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    with refused(QuireError, 3, "reduce failed", "no_such_column", "call again", "recover(dest, abort="):
        gather(source, dest, lambda found: found.select("no_such_column"), OnSpark(spark))
    with refused(QuireError, 3, "the shuffle failed", "call again"):
        gather(source, dest, lambda found: found.selectExpr("raise_error(word) as word"), OnSpark(spark))
    assert rows(dest) == []
    assert {p.name for p in dest.iterdir()} == {"_quire"}
