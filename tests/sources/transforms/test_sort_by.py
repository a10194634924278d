"""Rows of many small files, sorted together: each data file is in order, no two of a commit overlap, and a commit is exactly once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, refused, write
from quire import Ledger
from quire.engine.closers import sorting
from quire.errors import QuireError, RefusedError, UsageError

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
SORTED: dict[str, Any] = {"transform": "parquet", "sort_by": ["at", "id"]}


def packed(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def tree(folder: Path, files: range = range(20)) -> Path:
    found = {
        f"{i:03}.parquet": packed(id=[i * 100 + n for n in range(50)], at=[f"{(i * 7 + n * 13) % 97:02}" for n in range(50)]) for i in files
    }
    return write(folder, found)


def rows_of(dest: Path) -> list[list[tuple[str, int]]]:
    """The rows of each data file, in the order of the ledger."""
    files = (pq.read_table(dest / name) for name in Ledger(dest).inspect.files()["data_file"])
    return [list(zip(table["at"].to_pylist(), table["id"].to_pylist(), strict=True)) for table in files]


def want(files: range) -> list[tuple[str, int]]:
    return sorted((f"{(i * 7 + n * 13) % 97:02}", i * 100 + n) for i in files for n in range(50))


def test_all_rows_of_a_run_are_in_order_and_belong_to_its_commit(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    report = gather(source, dest, **SORTED, target_size="2 KiB", parquet_options={"row_group_size": 100})
    assert report.files == 20
    files = rows_of(dest)
    assert len(files) > 1
    assert [row for rows in files for row in rows] == want(range(20))
    groups = [pq.ParquetFile(path).metadata.row_group(0).num_rows for path in dest.glob("part-*")]
    assert max(groups) == 100, "the last file may have fewer rows"
    assert gather(source, dest, **SORTED, target_size="2 KiB").files == 0
    tree(source, range(20, 25))
    gather(source, dest, **SORTED)
    assert rows_of(dest)[-1] == want(range(20, 25))
    ledger = Ledger(dest)
    assert ledger.verify(spark=HERE["spark"]).ok
    ledger.compact(**HERE)
    with refused(QuireError, 2, "commit"):
        ledger.forget(source / "001.parquet", **HERE)
    with refused(RefusedError, 2, 'went through sort_by=["at", "id"]', "went through no shuffle"[5:]):
        gather(source, dest, transform="parquet")


def test_a_retry_sorts_what_it_reads(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": b"id,at\n2,b\n1,a,x\n", "2.csv": b"id,at\n4,c\n3;d;1\n"}), tmp_path / "out"
    gather(source, dest, transform="csv", schema="id long, at string", sort_by="id")
    assert rows_of(dest) == [[("b", 2), ("c", 4)]]
    ledger = Ledger(dest)
    assert len(ledger.inspect.quarantined()) == 2
    done = ledger.retry(source, max_quarantined=9, text_options={"header": False}, **HERE)
    assert (done.gathered, done.quarantined) == (0, 2)
    assert ledger.verify(spark=HERE["spark"]).ok


def test_content_is_sorted_by_its_path(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {name: name.encode() for name in "cab"}), tmp_path / "out"
    gather(source, dest, transform="raw", format="parquet", sort_by="content")
    (table,) = (pq.read_table(path) for path in dest.glob("part-*"))
    assert table["content"].to_pylist() == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transform": "lines", "sort_by": "x"}, "sorts rows of files into Parquet"),
        ({"transform": "csv", "format": "lines", "sort_by": "x"}, "sorts rows of files into Parquet"),
        (
            {"transform": "raw", "format": "parquet", "sort_by": "x"},
            "names the column 'x', and the rows have path, modified, content",
        ),
        ({"transform": lambda content, file: None, "format": "parquet", "sort_by": "x"}, "quire.process(…, reduce=function)"),
        ({"transform": "parquet", "sort_by": []}, "a column or a list of columns"),
        ({"transform": "parquet", "sort_by": ["a", "a"]}, "each once"),
        ({"transform": "parquet", "sort_by": 3}, "and not 3"),
        ({"transform": "parquet", "sort_by": "at", "layout": "directories"}, "sort_by= brings rows of all directories together"),
        ({"transform": "parquet", "sort_by": "at", "on_change": "reprocess"}, "with sort_by= leave on_change"),
    ],
)
def test_wrong_words(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words):
        gather(tree(tmp_path / "in", range(1)), tmp_path / "out", **settings)


def test_columns_without_an_order_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.parquet": packed(id=[1], at=[[1]], n=pa.array([1], pa.uint32()))})
    for names, words in (
        ("it", "and the rows have id, at, n"),
        ("at", "which has no order"),
        ("id", "Spark sorts the rows, and has no uint32"),
    ):
        with refused(RefusedError, 2, words):
            gather(source, tmp_path / "out", transform="parquet", sort_by=names)
    assert not Ledger(tmp_path / "out", create=True).summary().open_jobs


def test_an_order_that_a_log_says_is_checked() -> None:
    assert sorting.stored(sorting.sorting(["a", "ü"], 5).said, 5) == sorting.Sorting(("a", "ü"), 5)
    for wrong in ("sort_by=", "sort_by=[]", 'sort_by={"a"', "sort_by=[1]"):
        with pytest.raises(QuireError, match="is damaged"):
            sorting.stored(wrong, 5)


@pytest.mark.seldom
def test_on_spark_files_are_in_order_and_do_not_overlap(tmp_path: Path, spark: Any) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    gather(source, dest, **SORTED, target_size="4 KiB", spark=spark)
    files = rows_of(dest)
    assert len(files) > 1
    assert [row for rows in sorted(files) for row in rows] == want(range(20))
    assert pq.read_schema(next(dest.glob("part-*"))).names == ["id", "at"]
    tree(source, range(20, 22))
    gather(source, dest, **SORTED, spark=spark)
    assert rows_of(dest)[-1] == want(range(20, 22))
