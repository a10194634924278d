"""Columns of a destination that grow: new ones are null for older rows, wider ones hold both, for each reader of the directory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import delta_log
import duckdb
import iceberg_readers
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, look, refused, write
from loading import load, topic
from quire.commit import names, protocol
from quire.commit.log import Log
from quire.engine.exports import columns as columns_file
from quire.errors import RefusedError, UsageError
from quire.read import first_rows
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import FEWER, MORE, fit, together
from quire.sources.transforms.widening import DiffersError, in_columns
from quire.storage import connect, normalise
from services.kafka import Mock, mock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock() as cluster:
        yield cluster


def parquet(folder: Path, name: str, *rows: dict[str, Any], **kinds: pa.DataType) -> Path:
    """A Parquet file of some rows, with columns of some types."""
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(list(rows))
    fields = [pa.field(f.name, kinds.get(f.name, f.type)) for f in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), folder / name)
    return folder


def lines(*rows: dict[str, Any]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def of_lines(content: bytes, file: Any) -> pa.RecordBatch:
    """A function that gives the columns which a file has."""
    return pa.RecordBatch.from_pylist([json.loads(line) for line in content.splitlines()])


def of_split(split: quire.Split, content: bytes) -> Rows:
    return [json.loads(line) for line in content.splitlines()]


def of_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A function of Kafka's records that fails with one which is not JSON."""
    return pa.RecordBatch.from_pylist([json.loads(value) for value in batch.column("value").to_pylist()])


def ordered(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: json.dumps(row, default=str, sort_keys=True))


def agree(dest: Path) -> Rows:
    """The rows that pyarrow, DuckDB and, but for columns that directories make, quire's reader find; the ledger has checked them."""
    ours = ordered(ds.dataset(dest, partitioning="hive").to_table().to_pylist())
    found = list(first_rows(connect(normalise(dest)), 10_000))
    assert ordered([{k: v for k, v in row.items() if k != "day"} for row in found]) == ordered(
        [{k: v for k, v in row.items() if k != "day"} for row in ours]
    )
    shown = duckdb.sql(f"from read_parquet('{dest}/**/*.parquet', union_by_name = true, hive_partitioning = true)").to_arrow_table()
    assert ordered(shown.to_pylist()) == ours
    assert quire.Ledger(dest).verify(spark=LOCAL["spark"]).ok
    return ours


# -------------------------------------------------------------------------------------------------------------- files with columns
def test_new_and_wider_columns_are_refused_with_the_difference_and_added_where_one_says_so(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"id": 1, "x": "a"}, id=pa.int32()), dest, transform="parquet")
    parquet(source, "b.parquet", {"id": 1 << 40, "x": "b", "price": 1.5})
    for _ in range(2):
        with refused(RefusedError, 2, "'price' (double) is not there", "'id' is int32 there, and int64", "schema_evolution='add'"):
            gather(source, dest, transform="parquet")
    assert agree(dest) == [{"id": 1, "x": "a"}]
    plan = look(source, dest, transform="parquet", schema_evolution="add")
    assert plan.columns == "`id` bigint, `x` string, `price` double"
    assert gather(source, dest, transform="parquet", schema_evolution="add").files == 1
    assert agree(dest) == ordered([{"id": 1, "x": "a", "price": None}, {"id": 1 << 40, "x": "b", "price": 1.5}])
    # From now on files with fewer columns, or narrower ones, need no word.
    gather(parquet(source, "c.parquet", {"id": 3}, id=pa.int32()), dest, transform="parquet")
    assert {"id": 3, "x": None, "price": None} in agree(dest)
    assert quire.Ledger(dest).compact(**LOCAL).written == 1
    assert len(agree(dest)) == 3
    quire.Ledger(dest).forget(source / "b.parquet", **LOCAL)
    assert agree(dest) == ordered([{"id": 1, "x": "a", "price": None}, {"id": 3, "x": None, "price": None}])


@pytest.mark.parametrize(
    ("first", "second", "wide"),
    [
        (pa.int8(), pa.int64(), pa.int64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), pa.decimal128(9, 4)),
        (pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())]), None),
        (pa.list_(pa.struct([("a", pa.int32())])), pa.list_(pa.struct([("a", pa.int32()), ("b", pa.bool_())])), None),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int64())),
    ],
)  # fmt: skip
def test_each_type_that_widens_is_read_and_compacted(tmp_path: Path, first: pa.DataType, second: pa.DataType, wide: pa.DataType) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    values: dict[Callable[[Any], bool], Any] = {
        pa.types.is_struct: {"a": 7}, pa.types.is_list: [{"a": 7}, None], pa.types.is_map: [("k", 7)], lambda _: True: 7,
    }  # fmt: skip
    value = next(found for fits, found in values.items() if fits(first))
    source.mkdir()
    for i, kind in enumerate((first, second)):
        pq.write_table(pa.table({"x": pa.array([None, value, None], kind)}), source / f"{i}.parquet")
        gather(source, dest, transform="parquet", schema_evolution="add")
    for _ in range(2):
        assert len(agree(dest)) == 6
        assert ds.dataset(dest).schema.field("x").type == (wide or second)
        quire.Ledger(dest).compact(**LOCAL)


def test_columns_that_do_not_go_together_stay_in_quarantine_or_are_refused(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"id": 1, "x": "a"}), dest, transform="parquet")
    parquet(source, "b.parquet", {"id": "text"})
    parquet(source, "c.parquet", {"ID": 1})
    report = gather(source, dest, transform="parquet", schema_evolution="add")
    reasons = dict(report.quarantined)
    assert "'id' is string" in reasons[f"file://{source}/b.parquet"]
    assert "'ID' is called 'id'" in reasons[f"file://{source}/c.parquet"]
    assert agree(dest) == [{"id": 1, "x": "a"}]


# ------------------------------------------------------------------------------------------------------------------ text with rows
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_text_grows_by_what_its_sample_shows_and_by_schema(tmp_path: Path, kind: str) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"

    def text(**row: Any) -> bytes:
        return lines(row) if kind == "jsonl" else f"{','.join(row)}\n{','.join(map(str, row.values()))}\n".encode()

    gather(write(source, {"a": text(id=1)}), dest, transform=kind)
    write(source, {"b": text(id=2, price=1.5)})
    with refused(RefusedError, 2, "'price' (double) is not there", "schema_evolution='add'"):
        gather(source, dest, transform=kind)
    gather(source, dest, transform=kind, schema_evolution="add")
    write(source, {"c": text(id=3)})
    assert gather(source, dest, transform=kind).files == 1
    write(source, {"d": text(id=4, more="x")})
    with refused(RefusedError, 2, "'more' (string) is not there", "schema_evolution='add'"):
        gather(source, dest, transform=kind, schema="id long, more string")
    gather(source, dest, transform=kind, schema="id long, more string", schema_evolution="add")
    assert [tuple(row.values()) for row in agree(dest)] == [(1, None, None), (2, 1.5, None), (3, None, None), (4, None, "x")]


def test_days_become_times_where_a_text_has_both(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(write(source, {"a": b"d\n2020-01-01\n"}), dest, transform="csv")
    gather(write(source, {"b": b"d\n2020-01-01T10:00:00\n"}), dest, transform="csv", schema_evolution="add")
    assert [str(row["d"]) for row in agree(dest)] == ["2020-01-01 00:00:00", "2020-01-01 10:00:00"]


# ---------------------------------------------------------------------------------------------------------------- users' functions
def test_rows_of_a_function_grow_within_a_task_and_begin_few_files(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(write(source, {"a": lines({"id": 0, "n": "x"})}), dest, transform=of_lines, format="parquet")
    files = {f"b{i:03}": lines({"id": i, **({"p": i} if i % 2 else {"q": {"k": i}})}) for i in range(40)}
    gather(write(source, files), dest, transform=of_lines, format="parquet", schema_evolution="add")
    rows = agree(dest)
    assert [{*row} for row in rows] == [{"id", "n", "p", "q"}] * 41
    assert sum(row["p"] or 0 for row in rows) == sum(range(1, 40, 2))
    assert len(quire.Ledger(dest).inspect.files()) <= 4, "each new column begins a data file, and a row without it none"
    # Where columns have grown, rows may have fewer; more are still a matter of saying so.
    gather(write(source, {"c": lines({"id": 9})}), dest, transform=of_lines, format="parquet")
    write(source, {"d": lines({"id": 10, "new": 1})})
    with refused(RefusedError, 2, "'new' (int64) is not there", "schema_evolution='add'"):
        gather(source, dest, transform=of_lines, format="parquet")
    assert len(agree(dest)) == 42


def test_what_was_quarantined_for_its_columns_is_retried_with_them(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {"a": lines({"id": 1}), "b": lines({"id": 2, "p": 1})})
    report = gather(source, dest, transform=of_lines, format="parquet")
    assert len(report.quarantined) == 1
    ledger = quire.Ledger(dest)
    assert ledger.retry(source, function=of_lines, max_quarantined=1, **LOCAL).quarantined == 1
    assert ledger.retry(source, function=of_lines, schema_evolution="add", **LOCAL).gathered == 1
    assert agree(dest) == [{"id": 1, "p": None}, {"id": 2, "p": 1}]


def test_rows_of_process_grow_and_known_columns_keep_their_types(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    quire.process(write(source, {"a": lines({"id": 1, "x": 1.5})}), dest, of_split, **LOCAL)
    write(source, {"b": lines({"id": 2, "x": 2, "p": [1]})})
    with refused(RefusedError, 2, "in/b", "the column 'p'", "schema_evolution='add'"):
        quire.process(source, dest, of_split, **LOCAL)
    quire.process(source, dest, of_split, schema_evolution="add", **LOCAL)
    assert agree(dest) == [{"id": 1, "x": 1.5, "p": None}, {"id": 2, "x": 2.0, "p": [1]}]
    quire.process(write(source, {"c": lines({"id": 3})}), dest, of_split, **LOCAL)
    quire.process(write(source, {"d": lines({"id": 4})}), dest, of_split, schema="id long, day date", schema_evolution="add", **LOCAL)
    assert agree(dest)[-1] == {"id": 4, "x": None, "p": None, "day": None}
    assert quire.Ledger(dest).compact(**LOCAL).written == 1
    assert len(agree(dest)) == 4


def test_tasks_of_one_job_may_have_different_columns(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, {f"f{i}": lines({"id": i, "same": "." * 500, f"c{i}": i}) for i in range(4)})
    report = gather(source, dest, transform=of_lines, format="parquet", target_size="500 B", schema_evolution="add")
    assert report.data_files == 4
    rows = agree(dest)
    assert [[row.get(f"c{i}") for i in range(4)] for row in rows] == [[i if i == j else None for i in range(4)] for j in range(4)]


# --------------------------------------------------------------------------------------------------------------------------- Kafka
def test_records_of_a_topic_grow_and_what_does_not_fit_is_quarantined_alone(kafka: Mock, tmp_path: Path) -> None:
    dest, name = tmp_path / "out", topic(kafka, 1, [b'{"id": 1}'])
    load(kafka, name, dest, of_values)
    kafka.produce(name, [b'{"id": 2, "p": 1}', b'{"id": 3, "p": 2}'])
    with refused(RefusedError, 2, "the column 'p'", "schema_evolution='add'"):
        load(kafka, name, dest, of_values)
    load(kafka, name, dest, of_values, schema_evolution="add")
    kafka.produce(name, [b'{"id": 4}', b'{"id": "text"}', b"no JSON", b'{"q": {"k": 1}}', b'{"q": 1}'])
    report = load(kafka, name, dest, of_values, schema_evolution="add")
    assert (report.records, report.quarantined_count) == (2, 3)
    rows = agree(dest)
    assert {(row["id"], row["p"], json.dumps(row["q"])) for row in rows} == {
        (1, None, "null"), (2, 1, "null"), (3, 2, "null"), (4, None, "null"), (None, None, '{"k": 1}')
    }  # fmt: skip
    kafka.produce(name, [b'{"id": 5}'])
    assert load(kafka, name, dest, of_values).records == 1
    assert quire.Ledger(dest).compact(**LOCAL).removed
    assert len(agree(dest)) == 6


def test_records_grow_in_directories(kafka: Mock, tmp_path: Path) -> None:
    dest, name = tmp_path / "out", topic(kafka, 1, [b'{"id": 1, "day": "2"}', b'{"id": 2, "day": "1"}'])
    load(kafka, name, dest, of_values, partition_by="day")
    kafka.produce(name, [b'{"id": 3, "day": "1", "p": 7}', b'{"id": 4, "day": "3"}'])
    load(kafka, name, dest, of_values, partition_by="day", schema_evolution="add")
    assert (dest / "day=1" / names.COLUMNS).exists(), "it is beside data files, else it would have no day"
    rows = agree(dest)
    assert {(row["id"], int(row["day"]), row["p"]) for row in rows} == {(1, 2, None), (2, 1, None), (3, 1, 7), (4, 3, None)}


# ------------------------------------------------------------------------------------------------------------- what readers are told
def test_spark_and_pandas_find_all_columns_in_the_directory(tmp_path: Path, spark: SparkSession) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"id": 1, "s": {"a": 1}}, id=pa.int32()), dest, transform="parquet")
    gather(parquet(source, "b.parquet", {"id": 2, "s": {"a": 2, "b": "t"}, "p": 1.5}), dest, transform="parquet", schema_evolution="add")
    for frame in (quire.read(dest, spark=spark), spark.read.parquet(str(dest)), spark.read.format("quire").load(str(dest))):
        assert dict(frame.dtypes) == {"id": "bigint", "s": "struct<a:bigint,b:string>", "p": "double"}
        found = sorted((row.id, row.s.a, row.s.b, row.p) for row in frame.collect())
        assert found == [(1, 1, None, None), (2, 2, "t", 1.5)]
    assert quire.read(dest, spark=spark).where("p > 1").count() == 1
    assert list(pd.read_parquet(dest).columns) == ["id", "s", "p"]
    assert quire.read(dest, spark=spark, version=2).columns == ["id", "s"], "as the columns were"


def test_a_stream_ends_where_columns_have_grown_and_goes_on_with_them(tmp_path: Path, spark: SparkSession) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    spark.dataSource.register(quire.DataSource)
    gather(parquet(source, "a.parquet", {"id": 1}), dest, transform="parquet")

    def drain() -> Any:
        asked = spark.readStream.format("quire").load(str(dest)).writeStream.format("parquet").option("mergeSchema", True)
        query = asked.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start(str(tmp_path / "copy"))
        query.awaitTermination()

    drain()
    from quire.read.source import DataSource

    source_of = DataSource({"path": str(dest)})  # type: ignore[arg-type]
    stream = source_of.streamReader(source_of.schema())
    named = DataSource({"path": str(dest), "columns": "id"})  # type: ignore[arg-type]
    other = named.streamReader(named.schema())
    gather(parquet(source, "b.parquet", {"id": 2, "p": 1.5}), dest, transform="parquet", schema_evolution="add")
    with refused(RefusedError, 2, "have grown since this stream began", "'p' is double"):
        stream.latestOffset({"version": 2})
    assert other.latestOffset({"version": 2})["version"] > 2, "its columns are named"
    drain()
    rows = spark.read.option("mergeSchema", True).parquet(str(tmp_path / "copy")).collect()
    assert sorted((row.id, row.p) for row in rows if row.id) == [(1, None), (2, 1.5)]


def test_exports_get_the_columns_and_each_keeps_its_id(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for day in ("1", "2"):
        parquet(source / f"day={day}", "a.parquet", {"id": int(day), "s": {"a": 1}})
    more: dict[str, Any] = {"transform": "parquet", "layout": "directories", "exports": ("delta", "iceberg")}
    gather(source, dest, **more)
    before = {field.name: field.field_id for field in iceberg_readers.table(dest).schema().fields}
    parquet(source / "day=2", "b.parquet", {"id": 3, "s": {"a": 1, "b": "t"}, "p": 1.5})
    gather(source, dest, schema_evolution="add", **more)
    now = {field.name: field.field_id for field in iceberg_readers.table(dest).schema().fields}
    assert now.items() >= before.items()
    assert len({*now.values()}) == len(now) == 4
    rows = ordered(iceberg_readers.seen(dest).to_pylist())
    assert {(row["id"], row["day"], row["p"], json.dumps(row["s"])) for row in rows} == {
        (1, 1, None, '{"a": 1, "b": null}'), (2, 2, None, '{"a": 1, "b": null}'), (3, 2, 1.5, '{"a": 1, "b": "t"}'),
    }  # fmt: skip
    from deltalake import DeltaTable

    table = DeltaTable(str(dest))
    assert [field.name for field in table.schema().fields][:3] == ["id", "s", "p"]
    assert ordered(table.to_pyarrow_table().to_pylist()) == rows
    said = [a["metaData"] for actions in delta_log.commits(_files(dest)) for a in actions if "metaData" in a]
    assert len(said) == 2, "they are told again only where they have changed"
    gather(write_more(source), dest, **more)
    assert len([a for actions in delta_log.commits(_files(dest)) for a in actions if "metaData" in a]) == 2
    agree(dest)


def _files(dest: Path) -> dict[str, bytes]:
    return {str(p.relative_to(dest)): p.read_bytes() for p in dest.rglob("*") if p.is_file()}


def write_more(source: Path) -> Path:
    parquet(source / "day=1", "c.parquet", {"id": 4})
    return source


# ------------------------------------------------------------------------------------------------------------- death, and two at once
def test_the_file_with_the_columns_is_written_by_the_next_call_where_one_dies_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"id": 1}), dest, transform="parquet")
    parquet(source, "b.parquet", {"id": 2, "p": 1.5})

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(columns_file, "keep_up", dies)
        with pytest.raises(KeyboardInterrupt):
            gather(source, dest, transform="parquet", schema_evolution="add")
    assert not (dest / names.COLUMNS).exists()
    quire.recover(dest)
    assert agree(dest) == [{"id": 1, "p": None}, {"id": 2, "p": 1.5}]
    (dest / names.COLUMNS).write_bytes(b"")  # cut off
    gather(source, dest, transform="parquet")
    assert len(agree(dest)) == 2


def test_a_file_of_somebodys_own_that_has_this_name_stays(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    parquet(dest, names.COLUMNS, {"mine": 1})
    before = (dest / names.COLUMNS).read_bytes()
    gather(parquet(source, "a.parquet", {"id": 1}), dest, transform="parquet", allow_nonempty=True)
    parquet(source, "b.parquet", {"id": 2, "p": 1.5})
    gather(source, dest, transform="parquet", schema_evolution="add", allow_nonempty=True)
    assert (dest / names.COLUMNS).read_bytes() == before
    assert len(list(first_rows(connect(normalise(dest)), 10))) == 2


def test_a_slower_call_does_not_leave_older_columns_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"id": 1}), dest, transform="parquet")
    gather(parquet(source, "b.parquet", {"id": 2, "p": 1.5}), dest, transform="parquet", schema_evolution="add")
    slow = Log(connect(normalise(dest))).refresh()
    gather(parquet(source, "c.parquet", {"id": 3, "q": 1.5}), dest, transform="parquet", schema_evolution="add")
    (dest / names.COLUMNS).unlink()
    columns_file.keep_up(slow)
    assert pq.read_schema(dest / names.COLUMNS).names == ["id", "p", "q"]


def test_of_two_calls_that_add_one_column_of_two_types_one_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, dest = tmp_path / "one", tmp_path / "two", tmp_path / "out"
    gather(write(one, {"a": lines({"id": 1})}), dest, transform=of_lines, format="parquet")
    write(one, {"b": lines({"id": 2, "p": 1})})
    write(two, {"b": lines({"id": 3, "p": "text"})})
    commit, calls = protocol.commit, list[int]()

    def meanwhile(*args: Any, **more: Any) -> None:
        calls.append(1)
        if len(calls) == 1:  # between the other one's check of its columns and its commit
            gather(two, dest, transform=of_lines, format="parquet", schema_evolution="add")
        commit(*args, **more)

    monkeypatch.setattr(protocol, "commit", meanwhile)
    with refused(RefusedError, 2, "'p' is int64, and string"):
        gather(one, dest, transform=of_lines, format="parquet", schema_evolution="add")
    assert agree(dest) == [{"id": 1, "p": None}, {"id": 3, "p": "text"}]
    assert quire.Ledger(dest).summary().open_jobs == ()


def test_a_job_that_was_planned_before_the_columns_grew_is_taken_up_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, dest = tmp_path / "one", tmp_path / "two", tmp_path / "out"
    quire.process(write(one, {"a": lines({"id": 1})}), dest, of_split, **LOCAL)
    write(one, {"b": lines({"id": 2})})

    def dies(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            quire.process(one, dest, of_split, **LOCAL)
    (job,) = quire.Ledger(dest).summary().open_jobs
    quire.process(write(two, {"c": lines({"id": 3, "p": 1})}), dest, of_split, schema_evolution="add", **LOCAL)
    assert quire.process(one, dest, of_split, **LOCAL).jobs == (job,)
    assert agree(dest) == [{"id": 1, "p": None}, {"id": 2, "p": None}, {"id": 3, "p": 1}]


# -------------------------------------------------------------------------------------------------------------------- words and parts
def test_words_that_do_not_go_together_are_refused_before_anything_is_read(tmp_path: Path) -> None:
    write(tmp_path / "in", {"a": b"x\n"})
    with refused(UsageError, 2, "unknown schema_evolution 'ad'", "refuse, add"):
        gather(tmp_path / "in", tmp_path / "out", transform="parquet", schema_evolution="ad")
    for settings in ({"transform": "lines"}, {"transform": "json", "format": "parquet"}, {"transform": of_lines, "format": "lines"}):
        with refused(UsageError, 2, "schema_evolution='add'", "rows with columns of their own"):
            gather(tmp_path / "in", tmp_path / "out", schema_evolution="add", **settings)
    gather(tmp_path / "in", tmp_path / "out")
    with refused(UsageError, 2, "schema_evolution='add'"):
        quire.Ledger(tmp_path / "out").retry(tmp_path / "in", schema_evolution="add", **LOCAL)


def test_columns_go_together_as_they_may() -> None:
    there, new = pa.schema([("a", pa.int32()), ("b", pa.string())]), pa.schema([("c", pa.bool_()), ("a", pa.int64()), ("n", pa.null())])
    assert together(there, new, MORE) == pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.bool_())])
    with pytest.raises(DiffersError, match=r"'c' \(bool\) is not there; 'a' is int32 there"):
        together(there, new, FEWER)
    assert together(there, pa.schema([("a", pa.int8())]), FEWER) == there
    with pytest.raises(DiffersError, match="'b' \\(string\\) is missing"):
        together(there, pa.schema([("a", pa.int32())]))
    rows = fit(pa.record_batch({"a": pa.array([1], pa.int8())}), there, FEWER)
    assert rows.to_pylist() == [{"a": 1, "b": None}]
    assert rows.schema == there


def test_parts_of_rows_are_brought_into_wider_columns() -> None:
    kind, wide = pa.map_(pa.string(), pa.list_(pa.int32())), pa.map_(pa.string(), pa.list_(pa.int64()))
    rows = pa.record_batch({"m": pa.array([None, [("a", [1])], None, [("b", None), ("c", [])]], kind)}).slice(1)
    found = in_columns(rows, pa.schema([("m", wide), ("new", pa.string())]))
    found.validate(full=True)
    assert found.to_pylist() == [{"m": each, "new": None} for each in rows.column("m").to_pylist()]


def test_columns_that_only_stand_in_another_order_have_not_grown(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    gather(parquet(source, "a.parquet", {"a": 1, "b": 2}), dest, transform="parquet")
    gather(parquet(source, "b.parquet", {"b": 1, "a": 2}), dest, transform="parquet", schema_evolution="add")
    assert schemas.grown(Log(connect(normalise(dest))).refresh()) is None
    assert not (dest / names.COLUMNS).exists()
