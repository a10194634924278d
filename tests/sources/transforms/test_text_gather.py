"""CSV files and JSON lines become Parquet: what is inferred is shown and frozen, what does not fit is quarantined, and all else counts."""

from __future__ import annotations

import bz2
import gzip
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import quire
from gathering import gather, look, refused, write
from quire import Ledger
from quire.errors import AllQuarantined, RefusedError, UsageError
from quire.sources.transforms.text import Csv

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}
COLUMNS = "`id` bigint, `name` string, `price` double"


def rows_of(dest: Path) -> list[dict[str, Any]]:
    """All rows, as whoever lists the directory finds them."""
    found = ds.dataset(sorted(map(str, dest.rglob("part-*.parquet")))).to_table().to_pylist()
    return sorted(found, key=lambda row: (row["id"] is None, row["id"], str(row)))


def text(kind: str, first: int, n: int = 3, extra: bytes = b"") -> bytes:
    """Rows `first` to `first + n`, of three columns, and more as it is."""
    if kind == "csv":
        return b"id,name,price\n" + b"".join(b'%d,"n, %d",%d.5\n' % (i, i, i) for i in range(first, first + n)) + extra
    return b"".join(json.dumps({"id": i, "name": f"n, {i}", "price": i + 0.5}).encode() + b"\n" for i in range(first, first + n)) + extra


def want(*ids: int) -> list[dict[str, Any]]:
    return [{"id": i, "name": f"n, {i}", "price": i + 0.5} for i in ids]


def tree(kind: str, n: int = 40) -> dict[str, bytes]:
    return {f"d{i % 3}/{i:03}.{kind}": text(kind, 3 * i) for i in range(n)}


WRONG = {"csv": b'x,"y\nz",1\n', "jsonl": b'{"id": "x"}\n'}
REASON = {"csv": "the column 'id' is bigint, and a value of it is not", "jsonl": "the column 'id' is bigint, and here it is text"}
KINDS = pytest.mark.parametrize("kind", ["csv", "jsonl"])


@KINDS
def test_small_files_become_one_that_all_readers_read(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(kind)), tmp_path / "out"
    plan = look(source, dest, transform=kind)
    assert plan.columns == COLUMNS
    assert COLUMNS in str(plan)
    assert plan.as_dict()["columns"] == COLUMNS
    plan.discard()
    report = gather(source, dest, transform=kind, exports="delta")
    assert (report.files, report.data_files, report.quarantined_count) == (40, 1, 0)
    assert rows_of(dest) == want(*range(120))
    assert duckdb.sql(f"select count(*), sum(id), sum(price) from '{dest}/*.parquet'").fetchone() == (120, 7140, 7200.0)
    assert pd.read_parquet(dest).shape == (120, 3)
    ledger = Ledger(dest)
    (found,) = ledger.locate(source / f"d1/001.{kind}")
    assert (found.records, found.start, found.length, found.reason) == (3, 0, len(text(kind, 3)), None)
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest, transform=kind).files == 0
    write(source, {f"new.{kind}": text(kind, 200)})
    assert gather(source, dest, transform=kind).files == 1
    ledger.compact(progress=False, **LOCAL)
    assert rows_of(dest) == want(*range(120), 200, 201, 202)


@KINDS
def test_a_wrong_record_is_quarantined_alone_and_retried_alone(kind: str, tmp_path: Path) -> None:
    files = tree(kind, 8)
    files[f"d0/003.{kind}"] = (
        text(kind, 9, 2) + WRONG[kind] + text(kind, 11, 1).partition(b"\n")[2 if kind == "csv" else 0] + (b"" if kind == "csv" else b"\n")
    )
    schema = "id long, name string, price double"
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema=schema)
    assert (report.files, report.quarantined_count) == (8, 1)
    assert rows_of(dest) == want(*range(24))
    ledger = Ledger(dest)
    (record,) = ledger.inspect.quarantined_records().itertuples()
    line = 4 if kind == "csv" else 3
    assert (record.error, record.content) == (f"line {line}: {REASON[kind]}", WRONG[kind])
    assert files[f"d0/003.{kind}"][record.offset : record.offset + record.length] == WRONG[kind]
    done = ledger.retry(source, max_quarantined=9, progress=False, **LOCAL)
    assert (done.gathered, done.quarantined) == (0, 1)
    (row,) = ledger.inspect.quarantined().itertuples()
    assert (row.reason, row.start, row.length) == (REASON[kind], record.offset, record.length)
    ledger.forget(paths=[source / f"d0/003.{kind}"], progress=False, **LOCAL)
    assert rows_of(dest) == want(*range(9), *range(12, 24))
    assert ledger.verify(**LOCAL).ok


def test_a_record_is_retried_with_other_words(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1.csv": b"id,name,price\n1,a,1.5\n2,b,N/A\n"})
    dest = tmp_path / "out"
    gather(source, dest, transform="csv", schema="id long, name string, price double")
    ledger = Ledger(dest)
    assert len(ledger.inspect.quarantined()) == 1
    for wrong, words in (({"nulls": ""}, "'nulls'"), ({"delimiter": ""}, "delimiter"), ("x", "dictionary")):
        with refused(UsageError, 2, words):
            ledger.retry(source, text_options=wrong, progress=False, **LOCAL)  # type: ignore[arg-type]
    done = ledger.retry(source, text_options={"null_values": ["", "N/A"]}, progress=False, **LOCAL)
    assert (done.gathered, done.quarantined) == (1, 0)
    assert rows_of(dest) == [{"id": 1, "name": "a", "price": 1.5}, {"id": 2, "name": "b", "price": None}]
    assert ledger.verify(**LOCAL).ok
    source.joinpath("1.csv").unlink()
    assert len(rows_of(dest)) == 2
    other = tmp_path / "lines"
    gather(write(tmp_path / "in2", {"a": b"x\n"}), other)
    with refused(UsageError, 2, "text_options= is for CSV files"):
        Ledger(other).retry(text_options={}, progress=False, **LOCAL)


def test_a_retry_reads_as_the_last_run_did(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": b"id;name;price\n1;'a;b';1.5\n2;b;dear\n"}), tmp_path / "out"
    gather(source, dest, transform="csv", schema="id long, name string, price double", delimiter=";", quote="'")
    ledger = Ledger(dest)
    done = ledger.retry(source, max_quarantined=9, progress=False, **LOCAL)
    (row,) = ledger.inspect.quarantined().itertuples()
    assert (done.gathered, row.tries, row.reason) == (0, 2, "the column 'price' is double, and a value of it is not")
    ledger.checkpoint(**LOCAL)
    ledger.retry(source, max_quarantined=9, progress=False, **LOCAL)
    (row,) = ledger.inspect.quarantined().itertuples()
    assert (row.tries, row.reason) == (3, "the column 'price' is double, and a value of it is not")


def test_a_record_whose_file_is_gone_stays_with_the_reason(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1.csv": text("csv", 0, 3, WRONG["csv"]), "2.csv": text("csv", 3)})
    dest = tmp_path / "out"
    gather(source, dest, transform="csv", schema="id long, name string, price double")
    (source / "1.csv").unlink()
    ledger = Ledger(dest)
    done = ledger.retry(source, max_quarantined=9, progress=False, **LOCAL)
    assert (done.gathered, len(ledger.inspect.quarantined())) == (0, 1)
    with refused(RefusedError, 2, "names no source"):
        ledger.retry(progress=False, **LOCAL)


@KINDS
def test_compressed_files_and_texts_of_any_encoding_among_them(kind: str, tmp_path: Path) -> None:
    files = {
        f"a.{kind}.gz": gzip.compress(text(kind, 0, 3, WRONG[kind]), mtime=0),
        f"b.{kind}": bz2.compress(text(kind, 3)),
        f"c.{kind}": text(kind, 6).decode().encode("utf-16"),
        f"d.{kind}": b"\xef\xbb\xbf" + text(kind, 9),
        f"e.{kind}": text(kind, 12),
        f"f.{kind}": gzip.compress(text(kind, 15).decode().encode("utf-16"), mtime=0)[:-5],
    }
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind, schema="id long, name string, price double")
    assert report.files == 5
    assert rows_of(dest) == want(*range(15))
    ledger = Ledger(dest)
    told = {row.path.rpartition("/")[2][0]: row.reason for row in ledger.inspect.quarantined().itertuples()}
    assert set(told) == {"a", "f"}
    assert REASON[kind] in told["a"]
    assert "at byte" in told["a"]
    assert ledger.verify(**LOCAL).ok
    done = ledger.retry(source, max_quarantined=9, progress=False, **LOCAL)
    assert (done.gathered, done.quarantined) == (0, 2)
    assert rows_of(dest) == want(*range(15))


@KINDS
def test_columns_are_inferred_from_the_beginnings_of_long_compressed_files(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"1.{kind}.gz": gzip.compress(text(kind, 0, 20_000), mtime=0)}), tmp_path / "out"
    assert gather(source, dest, transform=kind).quarantined_count == 0
    assert len(rows_of(dest)) == 20_000


def test_a_retry_knows_the_columns_that_were_said_where_all_was_quarantined(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": b"id;name\n1;a\n"}), tmp_path / "out"
    gather(source, dest, transform="csv", schema="id long, name string")
    assert Ledger(dest).retry(source, text_options={"delimiter": ";"}, progress=False, **LOCAL).gathered == 1
    assert rows_of(dest) == [{"id": 1, "name": "a"}]


def test_long_json_lines_are_cut_and_long_csv_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.engine.request.RANGE", 2_000)
    long = text("jsonl", 0, 400, WRONG["jsonl"]) + text("jsonl", 400, 100)
    wide = text("jsonl", 500, 100).decode().encode("utf-16")
    source, dest = (
        write(tmp_path / "in", {"1.jsonl": long, "2.jsonl": wide, "3.jsonl.gz": gzip.compress(text("jsonl", 600, 100), mtime=0)}),
        tmp_path / "out",
    )
    report = gather(source, dest, transform="jsonl")
    assert (report.files, report.quarantined_count) == (3, 1)
    assert rows_of(dest) == want(*range(700))
    ledger = Ledger(dest)
    assert len(ledger.locate(source / "1.jsonl")) > len(long) // 2_000
    assert len(ledger.locate(source / "2.jsonl")) == len(ledger.locate(source / "3.jsonl.gz")) == 1
    (row,) = ledger.inspect.quarantined().itertuples()
    assert long[row.start : row.start + row.length] == WRONG["jsonl"]
    assert ledger.verify(**LOCAL).ok
    long = text("csv", 0, 200) + b'7,"' + b"x" * 5_000 + b'",1\n'
    source, dest = write(tmp_path / "in2", {"1.csv": long, "2.csv": text("csv", 400), "3.csv": text("csv", 600, 400)}), tmp_path / "out2"
    monkeypatch.setattr("quire.engine.kinds.together.BYTES", 1)
    assert gather(source, dest, transform="csv", max_file_size="4000 B").files == 2
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert "line 202 is longer than max_file_size" in row.reason
    Ledger(dest).retry(source, max_file_size="1 MB", progress=False, **LOCAL)
    assert len(rows_of(dest)) == 201 + 3 + 400


def test_new_lines_of_a_file_that_grows_are_taken(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.jsonl": text("jsonl", 0, 3, b'{"id": 3, "na')}), tmp_path / "out"
    how: dict[str, Any] = {"transform": "jsonl", "on_append": "tail", "schema": "id long, name string, price double"}
    report = gather(source, dest, **how)
    assert rows_of(dest) == want(0, 1, 2)
    assert report.held_back == 1
    write(source, {"1.jsonl": text("jsonl", 0, 6)})
    gather(source, dest, **how)
    assert rows_of(dest) == want(*range(6))
    assert Ledger(dest).verify(**LOCAL).ok
    with refused(UsageError, 2, "on_append='tail'", "utf-16-le"):
        gather(source, tmp_path / "x", **how, encoding="utf-16-le")
    with refused(UsageError, 2, "on_append='tail'", "'csv'"):
        gather(source, tmp_path / "x", **{**how, "transform": "csv"})


def test_where_files_have_only_grown_their_ends_say_the_columns(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"{i}.jsonl": text("jsonl", 3 * i, 3) for i in range(2)}), tmp_path / "out"
    how: dict[str, Any] = {"transform": "jsonl", "on_append": "tail"}
    gather(source, dest, **how)
    write(source, {"0.jsonl": text("jsonl", 0, 3) + text("jsonl", 6, 2)})
    gather(source, dest, **how)
    assert rows_of(dest) == want(*range(8))
    write(source, {"1.jsonl": text("jsonl", 3, 3) + b'{"id": 8, "size": 2}\n{"id": 9, "si'})
    with refused(RefusedError, 2, "'size'", "schema_evolution='add'"):
        gather(source, dest, **how)
    report = gather(source, dest, **how, schema_evolution="add")
    assert (report.held_back, report.quarantined_count) == (1, 0)
    sizes = f"select id, size from read_parquet('{dest}/*.parquet', union_by_name=true) where size is not null"
    assert duckdb.sql(sizes).fetchall() == [(8, 2)]
    with (source / "1.jsonl").open("ab") as file:
        file.write(b'\n{"id": 10}\n')
    gather(source, dest, **how)
    (row,) = Ledger(dest).inspect.quarantined().itertuples()
    assert (row.start, row.length) == (len(text("jsonl", 3, 3)) + 21, 14)
    assert rows_of(dest)[-1]["id"] == 10


@KINDS
def test_a_file_that_is_rewritten_takes_the_place_of_what_it_was(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(kind, 4)), tmp_path / "out"
    gather(source, dest, transform=kind, on_change="reprocess")
    write(source, {f"d0/000.{kind}": text(kind, 50, 4)})
    gather(source, dest, transform=kind, on_change="reprocess")
    assert rows_of(dest) == want(*range(3, 12), *range(50, 54))


@KINDS
def test_files_that_grow_are_read_again_whole(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(kind, 6)), tmp_path / "out"
    how: dict[str, Any] = {"transform": kind, "on_append": "reprocess"}
    gather(source, dest, **how)
    write(source, {f"d0/000.{kind}": text(kind, 0, 5)})
    report = gather(source, dest, **how)
    assert (report.files, report.changed_count) == (1, 0)
    assert rows_of(dest) == sorted(want(*range(18), 3, 4), key=lambda row: (row["id"], str(row)))
    assert Ledger(dest).verify(**LOCAL).ok


@KINDS
def test_a_destination_keeps_its_columns(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", tree(kind, 4)), tmp_path / "out"
    gather(source, dest, transform=kind)
    more = b"id,name,price,extra\n9,a,1.5,x\n" if kind == "csv" else b'{"id": 9, "name": "a", "price": 1.5, "extra": "x"}\n'
    write(source, {f"more.{kind}": more})
    before = sorted(dest.rglob("*"))
    with refused(RefusedError, 2, "the column 'extra' (string) is not there", "Nothing was changed"):
        gather(source, dest, transform=kind)
    assert [path for path in sorted(dest.rglob("*")) if path.is_file()] == [path for path in before if path.is_file()]
    with refused(RefusedError, 2, "schema= says"):
        gather(source, dest, transform=kind, schema="id string, name string, price double")
    # With the columns said, what has others is quarantined.
    report = gather(source, dest, transform=kind, schema="price double, id long, name string")
    assert report.quarantined_count == 1
    assert rows_of(dest) == want(*range(12))
    # Values alone refuse nothing.
    write(source, {f"text.{kind}": WRONG[kind] if kind == "jsonl" else b"id,name,price\n" + WRONG[kind]})
    assert gather(source, dest, transform=kind, exclude="more.*").quarantined_count == 1


@KINDS
def test_names_that_differ_in_their_case_alone(kind: str, tmp_path: Path) -> None:
    files = tree(kind, 4)
    other = text(kind, 50).replace(b"id,", b"ID,").replace(b'"id"', b'"ID"')
    source, dest = write(tmp_path / "in", {**files, f"other.{kind}": other}), tmp_path / "out"
    report = gather(source, dest, transform=kind)
    assert report.quarantined_count == (1 if kind == "csv" else 3)
    assert all("where it is called 'id'" in reason for _, reason in report.quarantined)
    assert rows_of(dest) == want(*range(12))


def test_a_header_of_very_many_columns_is_read_soon(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(20_000)]
    content = ",".join(names).encode() + b"\n" + b",".join([b"1"] * len(names)) + b"\n"
    reader = Csv(columns=pa.schema([(name, pa.int64()) for name in names]))
    began = time.process_time()
    for _ in range(3):
        reader.head(content)
    assert time.process_time() - began < 3


def test_where_nothing_that_is_looked_at_can_be_read(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.csv": b"a;b\n1;2\n", "2.csv": b"PK\x03\x04", "3.csv": b""}), tmp_path / "out"
    plan = look(source, dest, transform="csv")
    assert (plan.columns, "1.csv: its only column is 'a;b': say delimiter=';'" in str(plan)) == ("", True)
    plan.discard()
    with refused(AllQuarantined, 4, "its only column is 'a;b': say delimiter=';'"):
        quire.consolidate(source, dest, transform="csv", progress=False, exclude="3.csv", **LOCAL)
    (ledger := Ledger(dest)).forget(source, progress=False, **LOCAL)
    assert gather(source, dest, transform="csv", delimiter=";").files == 2
    assert rows_of_any(dest) == [{"a": 1, "b": 2}]
    assert len(ledger.refresh().inspect.quarantined()) == 1


def rows_of_any(dest: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ds.dataset(sorted(map(str, dest.glob("part-*.parquet")))).to_table().to_pylist()
    return found


def test_files_without_a_header_and_columns_by_directory(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"dt=2026-01-0{i}/a.csv": b"%d;x\n" % i for i in (1, 2)})
    gather(source, tmp_path / "out", transform="csv", delimiter=";", header=False, layout="directories")
    assert sorted(duckdb.sql(f"select * from read_parquet('{tmp_path}/out/dt=*/*.parquet', hive_types_autocast=0)").fetchall()) == [
        (1, "x", "2026-01-01"), (2, "x", "2026-01-02"),
    ]  # fmt: skip
    gather(
        source, tmp_path / "named", transform="csv", delimiter=";", header=False, schema=pa.schema([("id", pa.int32()), ("s", pa.string())])
    )
    assert rows_of_any(tmp_path / "named") == [{"id": 1, "s": "x"}, {"id": 2, "s": "x"}]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"transform": "csv", "delimiter": ";;"}, ["delimiter is one character of ASCII"]),
        ({"transform": "csv", "delimiter": "é"}, ["delimiter is one character of ASCII"]),
        ({"transform": "csv", "quote": "\n"}, ["quote is one character of ASCII", "quote"]),
        ({"transform": "csv", "quote": ","}, ["quote is the same as delimiter"]),
        ({"transform": "csv", "header": 1}, ["header=1 is neither True nor False"]),
        ({"transform": "csv", "null_values": 3}, ["null_values is a text or a list of texts"]),
        ({"transform": "csv", "encoding": "utf-99"}, ["encoding is 'auto'", "'utf-99'"]),
        ({"transform": "csv", "schema": "a array<int>"}, ["the column 'a' is list<item: int32>", "Say string"]),
        ({"transform": "jsonl", "schema": "a map<string, int>"}, ["the column 'a' is map<string, int32>"]),
        ({"transform": "jsonl", "schema": "a binary"}, ["the column 'a' is binary"]),
        ({"transform": "jsonl", "schema": "a ints"}, ["the schema 'a ints' is wrong at character 3"]),
        ({"transform": "jsonl", "delimiter": ";"}, ["without transform='csv' it does nothing"]),
        ({"transform": "lines", "encoding": "latin-1"}, ["without transform='csv' or 'jsonl' it does nothing"]),
        ({"transform": "lines", "schema": "a int"}, ["without transform='csv' or 'jsonl' it does nothing"]),
        ({"transform": "jsonl", "format": "lines"}, ["does not go into format 'lines'"]),
        ({"transform": "csv", "format": "lines", "null_values": "-"}, ["null_values", "each value stays its text"]),
        ({"transform": "csv", "format": "lines", "schema": "`a\nb` string"}, ["schema", "header of one line"]),
        ({"transform": "csv", "format": "lines", "schema": "`a,b` string", "quote": ""}, ["schema", "header of one line"]),
    ],
)
def test_wrong_words(settings: dict[str, Any], words: list[str], tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"a\n1\n"})
    with refused(UsageError, 2, *words):
        gather(source, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


@KINDS
def test_rows_go_into_a_table(kind: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"1.{kind}": text(kind, 0), f"2.{kind}": text(kind, 2, 3, WRONG[kind])})
    table = quire.Table.create(tmp_path / "t", key="id", ordering="price")
    quire.consolidate(source, table, transform=kind, schema="id long, name string, price double", progress=False, **LOCAL)
    Ledger(tmp_path / "t").export("delta")
    import deltalake

    rows = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().select(["id", "name", "price"]).to_pylist()
    assert sorted(rows, key=lambda row: row["id"]) == want(0, 1, 2, 3, 4)


@KINDS
def test_on_spark(kind: str, tmp_path: Path, spark: SparkSession) -> None:
    source, dest = write(tmp_path / "in", tree(kind, 12)), tmp_path / "out"
    gather(source, dest, transform=kind, spark=spark)
    for frame in (quire.read(dest, spark=spark), spark.read.parquet(str(dest))):
        assert frame.selectExpr("count(*)", "sum(id)", "sum(price)").head() == (36, 630, 648.0)


@KINDS
def test_sources_are_purged_once_their_rows_are_there(kind: str, tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"1.{kind}": text(kind, 0), f"2.{kind}": text(kind, 3, 3, WRONG[kind])}), tmp_path / "out"
    gather(source, dest, transform=kind, schema="id long, name string, price double")
    ledger, how = Ledger(dest), {"source": source, "dry_run": False, "min_age": 0, **LOCAL}
    with refused(RefusedError, 2, f"holds what {kind!r} has made of its files", "derived=True"):
        ledger.purge_sources(**how)
    ledger.purge_sources(derived=True, **how)
    assert [path.name for path in source.iterdir()] == [f"2.{kind}"]
    assert rows_of(dest) == want(*range(6))
