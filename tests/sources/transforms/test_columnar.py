"""Small files that hold columns become few large ones, of equal columns or of columns that grow."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import os
import random
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import duckdb
import fastavro
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

import quire
from gathering import gather, look, refused, write
from quire import Ledger
from quire.errors import QuireError, RefusedError, UsageError
from quire.formats.parquet import checksum, checksums
from quire.sources.transforms import BadContent, apart, columnar
from quire.sources.transforms.columns import DiffersError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

LOCAL: dict[str, Any] = {"spark": quire.LocalRunner()}


def packed(table: pa.Table, kind: str = "parquet", **how: Any) -> bytes:
    sink = io.BytesIO()
    if kind == "avro":
        return of_records(table.to_pylist(), avro_schema(table.schema), **how)
    if kind == "orc":
        pyarrow.orc.write_table(table, sink, **how)
    else:
        pq.write_table(table, sink, **how)
    return sink.getvalue()


def avro_schema(schema: pa.Schema) -> dict[str, Any]:
    names = {"int64": "long", "int32": "int", "double": "double", "string": "string", "bool": "boolean"}
    fields = [{"name": f.name, "type": ["null", names[str(f.type)]]} for f in schema]
    return {"type": "record", "name": "row", "fields": fields}


def of_records(rows: Iterable[Any], schema: Any, codec: str = "deflate", **how: Any) -> bytes:
    """An Avro file, in blocks of some 4 KB."""
    sink = io.BytesIO()
    fastavro.writer(sink, schema, rows, codec=codec, sync_interval=4000, **how)
    return sink.getvalue()


def gathered(dest: Path) -> pa.Table:
    """All rows, as whoever lists the directory finds them."""
    return ds.dataset(sorted(map(str, dest.glob("part-*.parquet")))).to_table()


def reasons(dest: Path) -> dict[str, str]:
    return {row.path.rpartition("/")[2]: row.reason for row in Ledger(dest).inspect.quarantined().itertuples()}


def some(first: int, n: int = 10) -> pa.Table:
    ids = range(first, first + n)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids], "x": [i / 2 for i in ids]})


# -------------------------------------------------------------------------------------------------------------------- one schema
@pytest.mark.parametrize("kind", columnar.NAMES)
def test_small_files_become_one_that_all_readers_read(kind: str, tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"d{i % 3}/{i:03}.{kind}": packed(some(10 * i), kind) for i in range(60)})
    dest = tmp_path / "out"
    report = gather(source, dest, transform=kind, exports=("delta",))
    assert (report.files, report.data_files) == (60, 1)
    want = pa.concat_tables([some(10 * i) for i in range(60)]).sort_by("id")
    assert gathered(dest).sort_by("id") == want
    assert deltalake.DeltaTable(str(dest)).to_pyarrow_table().sort_by("id").equals(want)
    assert duckdb.sql(f"select count(*), sum(id), sum(x) from '{dest}/*.parquet'").fetchone() == (600, 179_700, 89_850.0)
    assert pd.read_parquet(dest).shape == (600, 3)
    ledger = Ledger(dest)
    (found,) = ledger.locate(source / f"d1/001.{kind}")
    assert (found.records, found.start, found.reason) == (10, 0, None)
    assert ledger.verify(**LOCAL).ok
    assert gather(source, dest, transform=kind).files == 0


def test_a_later_run_brings_the_same_columns_and_files_can_leave(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"{i}.parquet": packed(some(10 * i)) for i in range(5)}), tmp_path / "out"
    gather(source, dest, transform="parquet")
    write(source, {"later.parquet": packed(some(100)), "empty.parquet": packed(some(0, 0))})
    assert gather(source, dest, transform="parquet").files == 2
    Ledger(dest).forget(source / "0.parquet", progress=False, **LOCAL)
    Ledger(dest).compact(progress=False, **LOCAL)
    assert sorted(gathered(dest)["id"].to_pylist()) == [*range(10, 50), *range(100, 110)]
    assert Ledger(dest).verify(**LOCAL).ok


def test_partitions_of_directories_stay(tmp_path: Path) -> None:
    files = {f"dt=2026-01-0{i % 2 + 1}/{i}.parquet": packed(some(10 * i)) for i in range(8)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform="parquet", layout="directories")
    found = duckdb.sql(
        f"select dt::varchar, count(*), sum(id) from read_parquet('{dest}/dt=*/*.parquet', hive_partitioning=true) group by 1"
    )
    assert sorted(found.fetchall()) == [("2026-01-01", 40, 1380), ("2026-01-02", 40, 1780)]


# --------------------------------------------------------------------------------------------------------------- columns that grow
def test_columns_are_one_by_name_and_wide_enough_for_all(tmp_path: Path) -> None:
    one = pa.table(
        {
            "a": pa.array([1], pa.int32()),
            "b": pa.array([1.5], pa.float32()),
            "c": ["x"],
            "s": [{"p": 1}],
            "l": pa.array([[1, 2]], pa.list_(pa.int32())),
        }
    )
    two = pa.table(
        {
            "c": ["y"],
            "a": pa.array([2**40], pa.int64()),
            "b": pa.array([2.25]),
            "new": pa.array([True]),
            "s": [{"q": "z", "p": 2}],
            "l": [[3.5]],
        }
    )
    source, dest = write(tmp_path / "in", {"1.parquet": packed(one), "2.parquet": packed(two), "0.parquet": packed(one)}), tmp_path / "out"
    assert gather(source, dest, transform="parquet").quarantined_count == 0
    rows = gathered(dest).sort_by("a").to_pylist()
    first = {"a": 1, "b": 1.5, "c": "x", "s": {"p": 1, "q": None}, "l": [1.0, 2.0], "new": None}
    assert rows == [first, first, {"a": 2**40, "b": 2.25, "c": "y", "s": {"p": 2, "q": "z"}, "l": [3.5], "new": True}]
    assert Ledger(dest).verify(**LOCAL).ok


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (pa.int8(), pa.int64(), pa.int64()), (pa.uint8(), pa.int8(), pa.int16()), (pa.uint32(), pa.int32(), pa.int64()),
        (pa.uint8(), pa.uint32(), pa.uint32()), (pa.int16(), pa.float32(), pa.float64()), (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(5, 2), pa.decimal128(10, 4), pa.decimal128(10, 4)), (pa.decimal128(6, 0), pa.decimal128(5, 3), pa.decimal128(9, 3)),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")), (pa.null(), pa.string(), pa.string()),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.float64()), pa.map_(pa.string(), pa.float64())),
        (pa.struct([("a", pa.int8())]), pa.struct([("b", pa.string())]), pa.struct([("a", pa.int8()), ("b", pa.string())])),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_holds_both(one: pa.DataType, other: pa.DataType, both: pa.DataType) -> None:
    for first, second in ((one, other), (other, one)):
        found = columnar.widened(pa.schema([("c", first)]), pa.schema([("c", second)]))
        assert found.field("c").type.num_fields == both.num_fields
        if not pa.types.is_struct(both):
            assert found.field("c").type == both


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int64(), pa.string()), (pa.uint64(), pa.int64()), (pa.int64(), pa.float64()), (pa.bool_(), pa.int8()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")), (pa.date32(), pa.timestamp("us", "UTC")),
        (pa.decimal128(38, 0), pa.decimal128(38, 10)),
        (pa.list_(pa.int32()), pa.int32()), (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.string())])), (pa.binary(), pa.string()),
    ],
    ids=str,
)  # fmt: skip
def test_types_that_no_type_holds(one: pa.DataType, other: pa.DataType) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(DiffersError, match="the column 'c"):
            columnar.widened(pa.schema([("c", first)]), pa.schema([("c", second)]))


def test_a_file_that_does_not_fit_is_quarantined_with_the_columns_name(tmp_path: Path) -> None:
    files = {f"{i}.parquet": packed(some(i * 10)) for i in range(6)}
    files |= {
        "text.parquet": packed(pa.table({"id": ["5"], "name": ["b"], "x": [1.0]})),
        "case.parquet": packed(pa.table({"ID": [1], "name": ["b"]})),
    }
    nano = pa.table({"id": pa.array([1]), "name": ["t"], "x": [1.0], "at": pa.array([1], pa.timestamp("ns"))})
    files |= {"nano.parquet": packed(nano), "span.parquet": packed(pa.table({"id": [1], "span": pa.array([1], pa.duration("us"))}))}
    files["number.parquet"] = packed(pa.table({"id": [1], "name": [7], "x": [1.0]}))
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    assert gather(source, dest, transform="parquet").files == 6
    why = reasons(dest)
    assert "the column 'name' is int64, and string in other files" in why.pop("number.parquet")
    assert why.keys() == {"text.parquet", "case.parquet", "nano.parquet", "span.parquet"}
    assert "the column 'id' is string, and int64 in other files" in why["text.parquet"]
    assert "the column 'ID' is called 'id' in other files" in why["case.parquet"]
    assert "the column 'at'" in why["nano.parquet"]
    assert "the column 'span' is duration[us]" in why["span.parquet"]
    assert gathered(dest).num_rows == 60


def test_a_column_without_any_value_hinders_nothing(tmp_path: Path) -> None:
    files = {f"{i}.parquet": packed(some(i * 10).append_column("note", pa.nulls(10))) for i in range(3)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    assert gather(source, dest, transform="parquet").quarantined_count == 0
    assert gathered(dest).num_rows == 30
    assert "note" not in gathered(dest).column_names
    write(source, {"typed.parquet": packed(some(50).append_column("note", pa.array(["x"] * 10)))})
    gather(source, tmp_path / "other", transform="parquet")
    assert sorted(gathered(tmp_path / "other")["note"].to_pylist(), key=str) == [None] * 30 + ["x"] * 10


def test_a_destination_gets_no_new_column_in_silence(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"1.parquet": packed(some(0))}), tmp_path / "out"
    gather(source, dest, transform="parquet")
    write(source, {"2.parquet": packed(some(10).append_column("new", pa.array([1] * 10)))})
    with refused(RefusedError, 2, "the column 'new' (int64) is not there", "Nothing was changed"):
        gather(source, dest, transform="parquet")
    assert gathered(dest).num_rows == 10
    write(source, {"2.parquet": packed(some(10).set_column(2, "x", pa.array(range(10), pa.int32())))})
    assert gather(source, dest, transform="parquet").files == 1, "what is narrower fits"
    assert gathered(dest).num_rows == 20


def test_rows_of_any_schema_come_back_as_they_were() -> None:
    """Drawn columns, in files that have some of them, in narrower types."""
    draw = random.Random(7)
    new_year, some_seconds = dt.datetime(2026, 1, 1, tzinfo=dt.UTC), lambda: dt.timedelta(seconds=draw.randrange(9_999))
    few, texts = (lambda: range(draw.randrange(3))), pa.string()
    kinds: dict[str, tuple[list[pa.DataType], Any]] = {
        "i": ([pa.int8(), pa.int16(), pa.int32(), pa.int64()], lambda: draw.randrange(-100, 100)),
        "f": ([pa.float32(), pa.float64()], lambda: draw.randrange(1000) / 8),
        "d": ([pa.decimal128(6, 2), pa.decimal128(12, 4)], lambda: decimal.Decimal(draw.randrange(10_000)) / 100),
        "t": ([pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")], lambda: new_year + some_seconds()),
        "s": ([texts, pa.dictionary(pa.int8(), texts), pa.large_string()], lambda: f"s{draw.randrange(9)}"),
        "l": ([pa.list_(pa.int8()), pa.list_(pa.int64()), pa.large_list(pa.int16())], lambda: [draw.randrange(9) for _ in few()]),
        "m": ([pa.map_(texts, pa.int16()), pa.map_(texts, pa.int64())], lambda: [(f"k{i}", i) for i in few()]),
        "r": ([pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int64())])], lambda: {"a": draw.randrange(9)}),
    }
    for _ in range(40):
        tables = []
        for _ in range(draw.randrange(1, 6)):
            columns = {}
            for name in draw.sample(sorted(kinds), draw.randrange(1, len(kinds) + 1)):
                types, value = kinds[name]
                columns[name] = pa.array([None if draw.random() < 0.2 else value() for _ in range(7)], draw.choice(types))
            tables.append(pa.table(columns))
        contents = [packed(table) for table in tables]
        schemas = [columnar.schema_of("parquet", pa.BufferReader(content)) for content in contents]
        together = columnar.common([(schema, 1) for schema in schemas])
        assert together is not None
        for table, content in zip(tables, contents, strict=True):
            found = columnar.rows("parquet", content, together)
            found.validate(full=True)
            for name in together.names:
                want = table[name].to_pylist() if name in table.column_names else [None] * 7
                assert found.column(name).to_pylist() == want, (name, table.schema, together)
        # The same rows made in one go, with the checksums that each file's own rows have.
        rows, counts = columnar.together("parquet", contents, together)
        alone = [columnar.rows("parquet", content, together) for content in contents]
        assert counts == [7] * len(tables)
        assert rows.to_pylist() == [row for one in alone for row in one.to_pylist()]
        assert checksums(rows, counts) == [checksum(one) for one in alone]


@pytest.mark.parametrize("kind", columnar.NAMES)
def test_a_wrong_file_among_many_is_told_from_them(kind: str, tmp_path: Path) -> None:
    files = {f"{i:03}": packed(some(10 * i, 4).slice(0, i % 4), kind) for i in range(120)}
    files |= {"007": files["007"][:-9], "050": packed(pa.table({"id": ["x"]}), kind), "051": b"", "119": packed(some(0), kind)[9:]}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, transform=kind)
    assert (report.files, set(reasons(dest))) == (116, {"007", "050", "051", "119"})
    ledger = Ledger(dest)
    assert ledger.verify(**LOCAL).ok
    want = {10 * i + k for i in range(119) for k in range(i % 4) if i not in (7, 50, 51)}
    assert set(gathered(dest)["id"].to_pylist()) == want
    for i in (1, 6, 8, 49, 118):
        (found,) = ledger.locate(source / f"{i:03}")
        assert found.records == i % 4
        if found.records:
            part = pq.read_table(dest / str(found.data_file)).slice(found.offset, found.records)
            assert part["id"].to_pylist() == [*range(10 * i, 10 * i + i % 4)]


def test_spark_and_quire_read_what_was_gathered(tmp_path: Path, spark: SparkSession) -> None:
    more = some(10).append_column("more", pa.array([[{"k": i}] for i in range(10)]))
    source, dest = write(tmp_path / "in", {"1.parquet": packed(some(0)), "2.parquet": packed(more)}), tmp_path / "out"
    gather(source, dest, transform="parquet", spark=spark)
    for frame in (quire.read(dest, spark=spark), spark.read.parquet(str(dest))):
        assert frame.selectExpr("count(*)", "sum(id)", "count(more)", "sum(more[0].k)").head() == (20, 190, 10, 45)
    assert quire.read(dest, spark=spark).where("id = 3").head().name == "n3"  # type: ignore[union-attr]


def test_rows_of_small_files_go_into_a_table(tmp_path: Path) -> None:
    one, two = (pa.table({"id": ids, "ts": [n, n], "v": [f"{n}"] * 2}) for n, ids in ((1, [1, 2]), (2, [2, 3])))
    source = write(tmp_path / "in", {"1.parquet": packed(one), "2.parquet": packed(two.append_column("w", pa.array([0.5, 1.5])))})
    table = quire.Table.create(tmp_path / "t", key="id", ordering="ts")
    quire.consolidate(source, table, transform="parquet", progress=False, **LOCAL)
    Ledger(tmp_path / "t").export("delta")
    rows = deltalake.DeltaTable(str(tmp_path / "t")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["v"], row["w"]) for row in rows) == [(1, "1", None), (2, "2", 0.5), (3, "2", 1.5)]


# ------------------------------------------------------------------------------------------------------------------ other writers
@pytest.mark.parametrize(("kind", "files"), [("parquet", 4), ("orc", 4)])
def test_files_of_other_writers_are_read(kind: str, files: int) -> None:
    """Those that come with pyarrow: of its first versions, and of the ORC writer in Java."""
    there = sorted((Path(pa.__file__).parent / "tests/data" / kind).glob(f"*.{kind}"))
    assert len(there) >= files
    for path in there:
        found = columnar.rows(kind, path.read_bytes(), None)
        found.validate(full=True)
        want = pq.read_table(path) if kind == "parquet" else pyarrow.orc.read_table(path)
        assert found.to_pylist() == want.cast(found.schema).to_pylist(), path


@pytest.mark.parametrize("kind", columnar.NAMES)
def test_a_file_of_few_bytes_that_means_many_values_is_quarantined(kind: str, tmp_path: Path) -> None:
    if kind == "avro":
        bomb = of_records([{"s": "x" * (80 << 20)}], {"type": "record", "name": "r", "fields": [{"name": "s", "type": "string"}]})
        said = "a block of it decodes to more than 67,108,864 bytes"
    else:
        bomb = packed(pa.table({f"c{i}": pa.nulls(3_000_000, pa.int32()) for i in range(100)}), kind)
        said = "it holds some 2.2 GiB of values"
    source, dest = write(tmp_path / "in", {"bomb": bomb, "1": packed(some(0), kind)}), tmp_path / "out"
    assert (source / "bomb").stat().st_size < 2 << 20
    gather(source, dest, transform=kind)
    assert said in reasons(dest)["bomb"]


def test_int96_is_an_instant_as_spark_reads_it(tmp_path: Path) -> None:
    at = dt.datetime(2026, 11, 27, 5, tzinfo=dt.UTC)
    old = packed(pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))}), use_deprecated_int96_timestamps=True)
    new = packed(pa.table({"at": pa.array([at], pa.timestamp("ms", "UTC"))}))
    source, dest = write(tmp_path / "in", {"old.parquet": old, "new.parquet": new}), tmp_path / "out"
    assert gather(source, dest, transform="parquet").quarantined_count == 0
    assert gathered(dest)["at"].to_pylist() == [at, at]
    assert gathered(dest).schema.field("at").type == pa.timestamp("us", "UTC")


def test_a_time_without_a_zone_is_not_an_instant(tmp_path: Path) -> None:
    at = dt.datetime(2026, 11, 27, 5, tzinfo=dt.UTC)
    tables = {
        "1": pa.table({"at": [at]}),
        "2": pa.table({"at": [at]}),
        "3": pa.table({"at": pa.array([at.replace(tzinfo=None)], pa.timestamp("us"))}),
    }
    source, dest = write(tmp_path / "in", {f"{name}.parquet": packed(table) for name, table in tables.items()}), tmp_path / "out"
    gather(source, dest, transform="parquet")
    assert reasons(dest).keys() == {"3.parquet"}
    assert gathered(dest)["at"].to_pylist() == [at, at]


def test_days_of_sparks_older_calendar_are_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "_WRITERS", columnar._Writers())  # that of other tests has learnt all that it may
    tables = {day.year: pa.table({"day": [day]}) for day in (dt.date(1500, 1, 1), dt.date(2020, 1, 1))}
    legacy = {year: table.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}) for year, table in tables.items()}
    files = {f"{year}.parquet": packed(table) for year, table in legacy.items()} | {"plain.parquet": packed(tables[1500])}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform="parquet")
    assert "the column 'day' holds days before 1900" in reasons(dest).pop("1500.parquet")
    assert gathered(dest).num_rows == 2


@pytest.mark.parametrize("kind", columnar.NAMES)
def test_what_is_damaged_or_of_another_kind_is_quarantined(kind: str, tmp_path: Path) -> None:
    good = packed(some(0, 1000), kind)
    files = {
        "good": good,
        "half": good[: len(good) // 2],
        "empty": b"",
        "text": b"no columns\n",
        "middle": good[:50] + b"\xff" * 300 + good[350:],
    }
    files["other"] = packed(some(0), "orc" if kind == "parquet" else "parquet")
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, transform=kind)
    why = reasons(dest)
    assert {"half", "empty", "text", "other"} <= why.keys()
    assert all(f"not readable as {kind}" in each for each in why.values()), why
    assert gathered(dest).num_rows == 1000


def test_an_orc_file_that_its_reader_dies_of_is_quarantined_and_no_other_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, deadly = apart._answer, packed(some(7), "orc")

    def dies(request: bytes) -> bytes:
        if request[1:] == deadly:
            apart._pipes()
            os.kill(apart._CHILDREN[os.getpid()].pid, signal.SIGKILL)
        return asked(request)

    monkeypatch.setattr(apart, "_answer", dies)
    source, dest = (
        write(tmp_path / "in", {**{f"{i}.orc": packed(some(10 * i), "orc") for i in range(9)}, "bad.orc": deadly}),
        tmp_path / "out",
    )
    report = gather(source, dest, transform="orc")
    assert report.files == 9
    assert reasons(dest) == {"bad.orc": "not readable as orc (its reader has died of it: the file is damaged)"}
    # A reader that has died of something else is replaced, and the file is read.
    columnar.rows("orc", packed(some(0), "orc"), None)
    os.kill(apart._CHILDREN[os.getpid()].pid, signal.SIGKILL)
    assert columnar.rows("orc", packed(some(0), "orc"), None).num_rows == 10


def test_where_no_process_reads_orc_no_file_is_quarantined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {f"{i}.orc": packed(some(10 * i), "orc") for i in range(3)}), tmp_path / "out"
    apart._end()
    for python, words in (("/nowhere/python", "could not be started"), ("/bin/false", "ended before it read any")):
        monkeypatch.setattr(apart.sys, "executable", python)
        with pytest.raises(QuireError, match=words):
            gather(source, dest, transform="orc")
    monkeypatch.undo()
    assert gather(source, dest, transform="orc").files == 3


@pytest.mark.parametrize("kind", columnar.NAMES)
def test_small_files_of_many_values_are_not_held_together(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columnar, "TOGETHER", 40_000)
    most, made = list[int](), columnar._one
    monkeypatch.setattr(columnar, "_one", lambda table, *more: (most.append(table.nbytes), made(table, *more))[1])
    files = {f"{i:02}.{kind}": packed(pa.table({"id": pa.array([i] * 2_000, pa.int64())}), kind) for i in range(20)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    assert gather(source, dest, transform=kind).files == 20
    assert max(most) <= 40_000
    assert sorted(gathered(dest)["id"].to_pylist()) == [i for i in range(20) for _ in range(2_000)]
    assert Ledger(dest).verify(**LOCAL).ok


@pytest.mark.parametrize("kind", columnar.NAMES)
def test_data_files_of_many_small_files_are_as_large_as_asked_for(kind: str, tmp_path: Path) -> None:
    """Columns of many files take a part of what those of each take, which is measured before tasks are made."""
    ids = [range(i * 200, i * 200 + 200) for i in range(400)]
    rows = [pa.table({f"c{k}": [f"name {k} {n * 7919 % 100_003}" for n in some] for k in range(3)}) for some in ids]
    source = write(tmp_path / "in", {f"{i:03}.{kind}": packed(table, kind) for i, table in enumerate(rows)})
    dest, target = tmp_path / "out", 128 << 10
    report = gather(source, dest, transform=kind, target_size=target, **LOCAL)
    sizes = sorted(path.stat().st_size for path in dest.glob("part-*"))
    assert report.files == 400
    assert len(sizes) <= 2.5 * sum(sizes) / target  # 36 in the place of 14, where each file is taken for what it is
    assert sizes[-1] <= 1.2 * target


def test_avro_files_of_every_type_and_codec(tmp_path: Path) -> None:
    new_year, moment = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, 5, tzinfo=dt.UTC)
    long, money = {"type": "long"}, {"type": "fixed", "name": "money", "size": 9, "precision": 18, "scale": 3}
    inner = [{"name": "x", "type": "int"}, {"name": "c", "type": "color"}]
    kinds: dict[str, tuple[Any, Any]] = {
        "b": ("boolean", True),
        "i": ("int", 7),
        "l": (["null", "long"], None),
        "f": (["float", "null"], 0.5),
        "d": ("double", 1.5),
        "s": ("string", "é"),
        "y": ("bytes", b"\xff"),
        "z": ("null", None),
        "day": ({"type": "int", "logicalType": "date"}, new_year),
        "ms": ({**long, "logicalType": "timestamp-millis"}, moment),
        "us": (["null", {**long, "logicalType": "timestamp-micros"}], moment),
        "ntz": ({**long, "logicalType": "local-timestamp-micros"}, moment.replace(tzinfo=None)),
        "dec": ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, decimal.Decimal("1.50")),
        "fix": ({"type": "fixed", "name": "four", "size": 4}, b"abcd"),
        "fd": ({**money, "logicalType": "decimal"}, decimal.Decimal("-2.125")),
        "id": ({"type": "string", "logicalType": "uuid"}, "00000000-0000-0000-0000-000000000001"),
        "e": ({"type": "enum", "name": "color", "symbols": ["red", "blue"]}, "blue"),
        "e2": ("color", "red"),
        "a": ({"type": "array", "items": ["null", "int"]}, [1, None]),
        "m": ({"type": "map", "values": "long"}, {"k": 1}),
        "r": ({"type": "record", "name": "in", "fields": inner}, {"x": 1, "c": "red"}),
    }
    schema = {"type": "record", "name": "row", "namespace": "n", "fields": [{"name": k, "type": t} for k, (t, _) in kinds.items()]}
    row = {name: value for name, (_, value) in kinds.items()}
    codecs = ("null", "deflate", "snappy", "bzip2", "xz")
    files = {f"{codec}.avro": of_records([row] * 500, schema, codec) for codec in codecs}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    assert gather(source, dest, transform="avro").quarantined_count == 0
    found = gathered(dest).to_pylist()
    assert len(found) == 500 * len(codecs)
    want = {name: value for name, value in row.items() if name != "z"} | {"m": [("k", 1)]}
    assert all(each == want for each in found)


def zstandard_blocks(content: bytes) -> bytes:
    """An Avro file without a codec as one of zstd."""
    import zstandard

    reader = fastavro.block_reader(io.BytesIO(content))
    head = {"avro.schema": reader.metadata["avro.schema"].encode(), "avro.codec": b"zstandard"}
    sink = io.BytesIO(b"Obj\x01")
    sink.seek(4)
    fastavro.schemaless_writer(sink, fastavro.parse_schema({"type": "map", "values": "bytes"}), head)
    sync = b"0123456789abcdef"
    sink.write(sync)
    for block in reader:
        rows = io.BytesIO()
        for row in block:
            fastavro.schemaless_writer(rows, reader.writer_schema, row)
        data = zstandard.compress(rows.getvalue())
        for number in (block.num_records, len(data)):
            fastavro.schemaless_writer(sink, "long", number)
        sink.write(data + sync)
    return sink.getvalue()


def test_an_avro_file_that_is_damaged_between_its_blocks() -> None:
    content = packed(some(0, 2000), "avro", codec="null")
    at = content.rindex(content[-16:], 0, len(content) - 16)
    with pytest.raises(BadContent, match=r"it is damaged before byte \d"):
        columnar.rows("avro", content[:at] + b"?" + content[at + 1 :], None)


def test_a_file_that_has_only_become_longer_is_known_as_such(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"{i}.parquet": packed(some(10 * i)) for i in range(4)}), tmp_path / "out"
    gather(source, dest, transform="parquet", on_append="reprocess")
    write(source, {"1.parquet": packed(some(10)) + b"and what is no Parquet"})
    report = gather(source, dest, transform="parquet", on_append="reprocess")
    assert report.changed_count == 0
    assert "its new version cannot be taken, and what was gathered before stays: not readable as parquet" in str(report)
    assert gathered(dest).num_rows == 40


def test_avro_in_zstandard() -> None:
    content = packed(some(0, 1000), "avro", codec="null")
    assert columnar.rows("avro", zstandard_blocks(content), None).to_pylist() == some(0, 1000).to_pylist()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (["int", "string"], "a column is a union of several types"),
        ("row", "columns do not hold themselves"),
        ({"type": "array", "items": "row"}, "columns do not hold themselves"),
        ({"type": "array", "items": "null"}, "a list of it has items without any value"),
        (
            {"type": "map", "values": {"type": "record", "name": "none", "fields": [{"name": "n", "type": "null"}]}},
            "items without any value",
        ),
        ({"type": "int", "logicalType": "time-millis"}, None),  # Avro says: a logical type that is not known is its plain type
    ],
)
def test_avro_schemas_that_no_column_holds(kind: Any, why: str | None) -> None:
    schema = {"type": "record", "name": "row", "fields": [{"name": "c", "type": kind}]}
    content = of_records([], schema)
    if why is None:
        assert columnar.schema_of("avro", pa.BufferReader(content)) == pa.schema([("c", pa.int32())])
        return
    with pytest.raises(BadContent, match=why):
        columnar.schema_of("avro", pa.BufferReader(content))


def test_an_avro_block_that_lies_about_its_records() -> None:
    """Records without a byte could be there any number of times."""
    schema = {"type": "record", "name": "row", "fields": [{"name": "n", "type": "null"}]}
    content = of_records([{"n": None}] * 1000, schema, "null")
    with pytest.raises(BadContent, match="more records than bytes"):
        columnar.rows("avro", content, None)


def test_any_damage_is_one_line_and_ends() -> None:
    good = {kind: packed(some(0, 200), kind) for kind in columnar.NAMES}
    draw = random.Random(5)
    for kind in columnar.NAMES:
        for _ in range(150):
            at = draw.randrange(len(good[kind]))
            broken = good[kind][:at] + draw.randbytes(draw.randrange(1, 30)) + good[kind][at + draw.randrange(30) :]
            for ask in (
                lambda k=kind, b=broken: columnar.rows(k, b, None),
                lambda k=kind, b=broken: columnar.schema_of(k, pa.BufferReader(b)),
            ):
                try:
                    ask()
                except BadContent as e:
                    said = e.reason
                else:
                    said = ""
                assert "\n" not in said


def test_what_does_not_go_with_it_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"1.parquet": packed(some(0))})
    for wrong in ({"format": "lines"}, {"decompress": "gzip"}, {"on_append": "tail"}):
        with refused(UsageError, 2):
            gather(source, tmp_path / "out", transform="parquet", **wrong)
    plan = look(source, tmp_path / "out", transform="parquet")
    assert 0 < plan.estimate < plan.bytes, "without the footers"


def test_what_was_quarantined_is_retried_in_the_columns_that_are_there(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{i}.parquet": packed(some(i * 10)) for i in range(3)} | {"big.parquet": packed(some(100, 50_000))})
    dest = tmp_path / "out"
    gather(source, dest, transform="parquet", max_file_size="100 KB")
    assert "larger than max_file_size" in reasons(dest)["big.parquet"]
    assert Ledger(dest).retry(source, progress=False, **LOCAL).gathered == 1
    assert gathered(dest).num_rows == 50_030
    with refused(RefusedError, 2, "derived=True"):
        Ledger(dest).purge_sources(source, **LOCAL)
