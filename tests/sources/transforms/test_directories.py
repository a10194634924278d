"""Directories `year=2024` of a source become columns of the rows that lie in them, of the types that Spark gives them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, look, refused, write
from quire import Ledger
from quire.errors import RefusedError, UsageError
from quire.planning.pieces import Piece
from quire.sources.transforms import directories

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
MADE: dict[str, Any] = {"partition_columns": "directories"}


def content(kind: str, **columns: list[Any]) -> bytes:
    if kind == "csv":
        lines = zip(*columns.values(), strict=True)
        return (",".join(columns) + "\n" + "".join(",".join(map(str, line)) + "\n" for line in lines)).encode()
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue().to_pybytes())


def tree(folder: Path, kind: str, files: int = 12) -> Path:
    places = ("year=2024/city=K%C3%B6ln", "year=2025/city=__HIVE_DEFAULT_PARTITION__", "year=2025/city=01")
    return write(folder, {f"{places[i % 3]}/{i:03}.{kind}": content(kind, id=[i, i + 100]) for i in range(files)})


def rows_of(dest: Path) -> list[tuple[Any, ...]]:
    return duckdb.sql(f"select id, year, city from read_parquet('{dest}/part-*.parquet', hive_partitioning=false) order by id").fetchall()


def want(*ids: int) -> list[tuple[Any, ...]]:
    place = [(2024, "Köln"), (2025, None), (2025, "01")]
    return [(i, *place[i % 100 % 3]) for i in ids]


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_directories_become_columns(kind: str, tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in", kind), tmp_path / "out"
    plan = look(source, dest, transform=kind, **MADE)
    assert plan.columns == "`id` bigint, `city` string, `year` int"
    plan.discard()
    report = gather(source, dest, transform=kind, **MADE)
    assert (report.files, report.quarantined_count, report.data_files) == (12, 0, 1)
    every = [*range(12), *range(100, 112)]
    assert rows_of(dest) == want(*every)
    tree(source, kind, 15)
    gather(source, dest, transform=kind, **MADE, **({"schema": "id long"} if kind == "csv" else {}))
    ledger = Ledger(dest)
    ledger.compact(**HERE)
    assert rows_of(dest) == want(*range(15), *range(100, 115))
    assert ledger.verify(spark=HERE["spark"]).ok
    ledger.forget(source / "year=2024", **HERE)
    gather(source, dest, transform=kind, **MADE)
    assert rows_of(dest) == want(*range(15), *range(100, 115))
    with refused(RefusedError, 2, "partition_columns 'directories'"):
        gather(source, dest, transform=kind)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_many_directories_of_one_part_of_a_listing_stay_apart(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.planning.plan.pieces", lambda roots, *_, **__: [Piece(0, "", below=True)])
    source = write(tmp_path / "in", {f"day={i}/1.{kind}": content(kind, id=[i]) for i in range(9)})
    gather(source, tmp_path / "out", transform=kind, **MADE)
    found = duckdb.sql(f"select id, day from read_parquet('{tmp_path}/out/part-*.parquet', hive_partitioning=false) order by id").fetchall()
    assert found == [(i, i) for i in range(9)]


def test_what_is_read_again_knows_its_directories(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in", "csv", 3), tmp_path / "out"
    write(source, {"year=2024/city=x/9.csv": b"id\n9\ny\n", "year=2024/city=x/8.csv.gz": gzip.compress(content("csv", id=[8]))})
    gather(source, dest, transform="csv", schema="id string", **MADE)
    ledger = Ledger(dest)
    write(source, {"year=2024/city=x/9.csv": b"id\n19\n"})
    gather(source, dest, transform="csv", schema="id string", on_change="reprocess", **MADE)
    assert ("19", 2024, "x") in rows_of(dest)
    write(source, {"year=2024/city=x/10.csv": b"id\n20,x\n"})
    gather(source, dest, transform="csv", schema="id string", **MADE)
    ledger.refresh().retry(source, text_options={"delimiter": ";"}, **HERE)
    assert ("20,x", 2024, "x") in rows_of(dest)
    assert ledger.verify(spark=HERE["spark"]).ok


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    source, dest = tree(tmp_path / "in", "parquet", 3), tmp_path / "out"
    gather(source, dest, transform="parquet", **MADE)
    write(source, {"year=soon/city=x/1.parquet": content("parquet", id=[1]), "2.parquet": content("parquet", id=[2])})
    gather(source, dest, transform="parquet", **MADE)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert row.reason == "its directory year=soon is not int, which the column is"
    assert (2, None, None) in rows_of(dest)
    write(source, {"year=2024/city=x/3.parquet": content("parquet", id=[3], Year=["x"])})
    with refused(RefusedError, 2, "a column 'Year' of their own", "year=…"):
        gather(source, tmp_path / "other", transform="parquet", **MADE)
    files = {f"year=2024/{i:03}.csv": content("csv", id=[i]) for i in range(100)} | {"year=2024/050.csv": content("csv", id=[1], year=[7])}
    gather(write(tmp_path / "text", files), tmp_path / "third", transform="csv", schema="id long, year int", **MADE)
    (row,) = Ledger(tmp_path / "third").inspect.quarantined().itertuples()
    assert row.reason == "it has values of its own in the column 'year', which its directory names, too"
    new = tree(tmp_path / "new", "parquet", 3)
    gather(new, tmp_path / "fourth", transform="parquet", **MADE)
    write(new, {"year=2024/city=x/day=2/1.parquet": content("parquet", id=[1])})
    with refused(RefusedError, 2, "the column 'day' (int32) is not there"):
        gather(new, tmp_path / "fourth", transform="parquet", **MADE)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transform": "lines"}, "beside those of files with rows (parquet, orc, avro, csv, jsonl, into Parquet)"),
        ({"transform": "csv", "format": "lines"}, "into Parquet"),
        ({"transform": "csv", "header": False, "schema": "id long"}, "header=False"),
        ({"transform": "parquet", "layout": "directories"}, "layout='directories' keeps the directories"),
        ({"transform": "parquet", "partition_columns": "directory"}, "directories"),
    ],
)
def test_wrong_words(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words):
        gather(tree(tmp_path / "in", "parquet", 1), tmp_path / "out", **{**MADE, **settings})


def test_types_of_all_listings_are_one() -> None:
    def types(*values: str) -> pa.Schema:
        found = directories.seen(f"/in/a={value}/x" for value in values)
        assert found is not None
        return found

    of = pa.schema([("id", pa.int64())])
    for listings, wanted in (
        ([types("1"), types("3000000000")], pa.int64()),
        ([types("1", "2.5"), types("2")], pa.float64()),
        ([types("2024-01-01")], pa.date32()),
        ([types("2024-01-01"), types("1")], pa.string()),
        ([types("3000000000"), types("2.5")], pa.string()),
        ([types("__HIVE_DEFAULT_PARTITION__"), types("7")], pa.int32()),
        ([types("__HIVE_DEFAULT_PARTITION__")], pa.string()),
    ):
        assert directories.beside(of, [], listings) == pa.schema([*of, ("a", wanted)]) == directories.beside(of, [], listings[::-1])
    assert directories.seen(["/in/x", "/in/=1/y"]) is None
