"""How Parquet files are written: row groups, statistics and Bloom filters, as a call says it and as what comes after keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, refused, write
from quire import Ledger
from quire.errors import RefusedError, UsageError
from quire.formats import parquet_options
from quire.formats.parquet_options import ParquetOptions

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
ROWS = 400  # of a file


def tree(folder: Path, files: int = 6, first: int = 0) -> Path:
    found = dict[str, bytes]()
    for i in range(first, first + files):
        numbers = range(ROWS * i, ROWS * (i + 1))
        sink = pa.BufferOutputStream()
        rows = {"id": list(numbers), "user": [f"u{n}" for n in numbers], "at": [{"x": n, "y": [n]} for n in numbers], "ok": [True] * ROWS}
        pq.write_table(pa.table(rows), sink)
        found[f"{i:03}.parquet"] = sink.getvalue().to_pybytes()
    return write(folder, found)


def files_of(dest: Path) -> list[pq.ParquetFile]:
    return [pq.ParquetFile(path) for path in sorted(dest.glob("part-*.parquet"))]


def groups(dest: Path) -> list[int]:
    """The rows of each row group."""
    found = (file.metadata for file in files_of(dest))
    return [each.row_group(i).num_rows for each in found for i in range(each.num_row_groups)]


def chunks(dest: Path, what: str) -> set[str]:
    """The columns, as Parquet names them, whose chunks have it."""
    found = [file.metadata.row_group(0).column(i) for file in files_of(dest) for i in range(len(file.schema))]
    return {chunk.path_in_schema for chunk in found if getattr(chunk, what)}


OPTIONS = {"row_group_size": 900, "statistics": ["id", "at"], "bloom_filters": ["user", "at"]}


def check(dest: Path, rows: int, most: int = 900) -> None:
    assert sum(groups(dest)) == rows
    assert [*{*groups(dest)} - {most}] in ([], [rows % most])
    assert chunks(dest, "is_stats_set") == {"id", "at.x", "at.y.list.element"}
    assert chunks(dest, "bloom_filter_offset") == {"user", "at.x", "at.y.list.element"}
    assert duckdb.sql(f"select count(*), sum(id) from '{dest}/*.parquet' where user = 'u7'").fetchone() == (1, 7)


def test_files_are_written_as_said_and_a_compaction_keeps_it(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    gather(source, dest, transform="parquet", parquet_options=OPTIONS)
    check(dest, 2400)
    tree(source, 2, first=6)
    gather(source, dest, transform="parquet", parquet_options=OPTIONS)
    ledger = Ledger(dest)
    ledger.checkpoint(spark=HERE["spark"])
    ledger.refresh().compact(**HERE)
    assert len(files_of(dest)) == 1
    check(dest, 3200)
    ledger.forget(source / "003.parquet", **HERE)
    check(dest, 2800)
    assert ledger.verify(spark=HERE["spark"]).ok
    tree(source, 1, first=20)
    gather(source, dest, transform="parquet")  # as usual, and no other columns
    ledger.refresh().compact(parquet_options={"row_group_size": "64 KiB", "statistics": False}, **HERE)
    assert len(groups(dest)) == 2
    assert chunks(dest, "is_stats_set") == set() == chunks(dest, "bloom_filter_offset")
    assert ledger.verify(spark=HERE["spark"]).ok


def test_a_killed_job_that_is_taken_up_writes_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = tree(tmp_path / "in"), tmp_path / "out"
    more: dict[str, Any] = {"transform": "parquet", "parquet_options": OPTIONS}
    with monkeypatch.context() as patch:
        patch.setattr("quire.engine.attempt.Attempt.run", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest, **more)
    assert gather(source, dest, **more).files == 6
    check(dest, 2400)
    assert [*Ledger(dest).inspect.history()["kind"]] == ["commit", "published"]


def test_of_a_function_and_in_each_size_of_a_group(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"x\n" * 70_000})

    def rows(split: quire.Split, content: bytes) -> pa.Table:
        return pa.table({"n": range(content.count(b"\n"))})

    for size, wanted in (("64 KiB", [70_000]), (20_000, [20_000] * 3 + [10_000]), ("20_000", [20_000] * 3 + [10_000])):
        dest = tmp_path / str(size)
        quire.process(source, dest, rows, parquet_options={"row_group_size": size}, **HERE)
        assert groups(dest) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"row_groups": 3}, "row_group_size, statistics, bloom_filters, and not 'row_groups'"),
        ("x", "is a dictionary of"),
        ({"row_group_size": 0}, "row_group_size"),
        ({"row_group_size": "1 KiB"}, "from 64 KiB to 256 MiB"),
        ({"row_group_size": "1 GiB"}, "A number alone is rows"),
        ({"row_group_size": "many"}, "row_group_size"),
        ({"row_group_size": True}, "row_group_size"),
        ({"statistics": 3}, "statistics is True, False or a list of columns, and not 3"),
        ({"bloom_filters": [""]}, "bloom_filters is a list of columns"),
    ],
)
def test_wrong_options(options: Any, words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words):
        gather(tree(tmp_path / "in", 1), tmp_path / "out", transform="parquet", parquet_options=options)


def test_what_cannot_be_is_refused_and_nothing_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = tree(tmp_path / "in", 1), tmp_path / "out"
    for options, words in (
        ({"bloom_filters": ["usr"]}, "bloom_filters names the column 'usr', and the rows have id, user, at, ok"),
        ({"statistics": ["x"]}, "statistics names the column 'x'"),
        ({"bloom_filters": "ok"}, "bloom_filters names 'ok', which holds true and false"),
    ):
        with refused(RefusedError, 2, words, "Nothing was committed"):
            gather(source, dest, transform="parquet", parquet_options=options)
        assert not Ledger(dest).summary().open_jobs
    with refused(UsageError, 2, "this call writes format 'lines'"):
        gather(source, tmp_path / "lines", parquet_options={"statistics": False})
    monkeypatch.setattr(parquet_options, "CAN_FILTER", False)
    with refused(UsageError, 2, "bloom_filters needs pyarrow 26 or newer"):
        gather(source, dest, transform="parquet", parquet_options={"bloom_filters": ["id"]})
    table = tmp_path / "table"
    quire.Table.create(table.as_uri(), key="id")
    with refused(UsageError, 2, "a table writes its files in its own way"):
        gather(source, table, transform="parquet", parquet_options={"statistics": False})


def test_what_a_log_says_is_checked() -> None:
    said = ParquetOptions(bytes=1 << 20, statistics=("a",), bloom_filters=("b",)).said
    assert parquet_options.stored(said, "x").said == said
    assert parquet_options.stored("", "x") == ParquetOptions()
    for wrong in ("{", "[]", '{"rows": 1}', '{"statistics": 1}'):
        with pytest.raises(quire.QuireError, match="is damaged"):
            parquet_options.stored(wrong, "x")
