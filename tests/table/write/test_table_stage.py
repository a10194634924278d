"""A frame is computed once, and what is not a row of the table is one line that leaves nothing behind."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from staging import HERE, closing, rows, staged

from gathering import refused, snapshot
from quire.commit.entries import check_task
from quire.errors import QuireError, RefusedError, UsageError
from quire.sources.transforms import schemas
from quire.spark.runner import OnSpark
from quire.table.write import sort as sorting
from quire.table.write import stage as staging
from quire.table.write.columns import OPERATIONS
from quire.table.write.sort import sort
from quire.table.write.stage import stage

TABLE = pa.table({"id": ["b", "a"], "city": ["x", None], "at": pa.array([2, 1], pa.int64()), "v": [1.5, None]})
THERE = pa.schema([pa.field("id", pa.string(), False), ("city", pa.string()), ("at", pa.int64()), pa.field("v", pa.float64(), True)])


def read(place: Path, files: Any) -> list[dict[str, Any]]:
    return [row for file in files for row in pq.ParquetFile(place / file.handle).read().to_pylist()]


@pytest.mark.parametrize("frame", [TABLE, TABLE.to_pandas(), TABLE.to_batches()[0], pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)])])
def test_a_frame_of_arrow_or_pandas_is_staged_as_it_is(frame: Any, tmp_path: Path) -> None:
    files, schema = stage(HERE, closing(tmp_path, 0), frame, None, "upsert")
    assert read(tmp_path, files) == TABLE.to_pylist()
    assert schemas.parse(schema) == TABLE.schema
    (file,) = files
    assert (file.records, file.size) == (2, (tmp_path / file.handle).stat().st_size)
    (task,) = staged(tmp_path / "other", [frame])
    check_task(closing(tmp_path).job, task)


def test_rows_are_staged_in_the_types_of_the_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"v": [None, None], "id": pd.Categorical(["a", "b"]), "city": ["x", "y"], "at": np.array([1, 2], np.int32)})
    files, schema = stage(HERE, closing(tmp_path, 0), frame, THERE, "upsert")
    assert {f.name: f.type for f in schemas.parse(schema)} == {f.name: f.type for f in THERE}
    assert read(tmp_path, files) == [{"v": None, "id": "a", "city": "x", "at": 1}, {"v": None, "id": "b", "city": "y", "at": 2}]


def test_a_delete_stages_what_it_needs(tmp_path: Path) -> None:
    files, schema = stage(HERE, closing(tmp_path, 0), TABLE.append_column("other", [[1, 2]]), THERE, "delete")
    assert schemas.parse(schema).names == ["id", "city", "at"]
    assert len(read(tmp_path, files)) == 2


def test_a_large_frame_becomes_files_and_row_groups_that_tasks_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "TARGET", 15_000)
    monkeypatch.setattr(staging, "GROUP", 8_000)
    frame = pa.table(
        {"id": [f"{i}" for i in range(5_000)], "city": ["x"] * 5_000, "at": np.arange(5_000), "t": np.random.default_rng(1).bytes(5_000)}
    )
    files, _ = stage(HERE, closing(tmp_path, 0), frame, None, "insert")
    assert len(files) > 2
    assert sum(file.records for file in files) == 5_000
    assert [row["id"] for row in read(tmp_path, files)] == frame["id"].to_pylist()


@pytest.mark.parametrize("frame", [TABLE.slice(0, 0), TABLE.to_pandas().iloc[:0], pa.table({"id": pa.nulls(0), "city": [], "at": []})])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_frame_without_rows_is_no_file_at_all(frame: Any, operation: str, tmp_path: Path) -> None:
    assert stage(HERE, closing(tmp_path, 0), frame, THERE, operation) == ((), "")
    assert snapshot(tmp_path) == {}


def of(**columns: Any) -> pa.Table:
    """Two rows, of which some columns are other ones."""
    return pa.table({name: column for name, column in ({n: TABLE[n] for n in TABLE.column_names} | columns).items() if column is not None})


BAD: list[tuple[Any, type[QuireError], str]] = [
    (of(id=["a", None]), RefusedError, "1 of 2 rows have no record key in id"),
    (of(id=["a", ""]), RefusedError, "no record key in id"),
    (of(id=None), UsageError, "no column 'id'"),
    (of(id=["a", "x" * 40_000]), RefusedError, "a record key of id has 40,000 bytes"),
    (of(id=[1.5, 2.5]), UsageError, "the column 'id' is double"),
    (of(at=pa.array([1, None], pa.int64())), RefusedError, "1 of 2 rows have no value in the ordering field 'at'"),
    (of(at=[1.0, float("nan")]), RefusedError, "1 of 2 rows have NaN in the ordering field 'at'"),
    (of(city=["a/b", "x"]), RefusedError, "'a/b' of 'city' makes no partition"),
    (of(city=["x" * 300, "x"]), RefusedError, "of 'city' makes no partition"),
    (of(v=pa.array([1, 2], pa.timestamp("s"))), UsageError, "local timestamps"),
    (TABLE.to_pandas().assign(v=pd.Timestamp("2026-01-01")), UsageError, "local timestamps"),
    (TABLE.to_pandas().assign(v=[1, "x"]), UsageError, "no columns as Arrow knows them"),
    (TABLE.to_pandas().set_axis(["id", "city", "at", "at"], axis=1), UsageError, "no columns as Arrow knows them"),
    (of(v=pa.nulls(2)), RefusedError, "'v' has no value"),
    (of(v=pa.array([b"\xff", b"x"]).view(pa.string())), RefusedError, "not valid"),
    (of(v=pa.array([2**62, 1]).view(pa.timestamp("us", "UTC"))), RefusedError, "the years 1 to 9999"),
    (of(v=pa.array([Decimal(10) ** 40, 1], pa.decimal256(50, 2))), UsageError, "38 digits"),
    (pa.table({}), UsageError, "no column"),
    (pd.DataFrame(), UsageError, "no column"),
    ([{"id": "a"}], UsageError, "a DataFrame of Spark or pandas, or an Arrow table"),
    ("s3://a/b", UsageError, "a DataFrame of Spark or pandas, or an Arrow table"),
]


@pytest.mark.parametrize(("frame", "kind", "said"), BAD, ids=[said for *_, said in BAD])
def test_a_frame_that_makes_no_rows_of_the_table_is_one_line_and_leaves_nothing(
    frame: Any, kind: type[QuireError], said: str, tmp_path: Path
) -> None:
    with refused(kind, 2, said):
        stage(HERE, closing(tmp_path, 0), frame, None, "upsert")
    assert [name for name in snapshot(tmp_path) if "tmp" not in name] == []


def test_a_value_that_the_table_must_have_may_be_missing_in_rows_that_delete_alone(tmp_path: Path) -> None:
    there = pa.schema([f.with_nullable(f.name != "v") for f in THERE])
    with refused(RefusedError, 2, "1 of 2 rows have no value in 'v'"):
        stage(HERE, closing(tmp_path, 0), TABLE, there, "upsert")
    files, _ = stage(HERE, closing(tmp_path, 0), of(_hoodie_is_deleted=[False, True]), there, "upsert")
    assert len(read(tmp_path, files)) == 2


def test_rows_with_one_bad_among_many_are_refused_as_a_whole(tmp_path: Path) -> None:
    n = 200_000
    frame = pa.table({"id": [*(f"{i:090}" for i in range(n - 1)), None], "city": ["x"] * n, "at": np.arange(n)})
    with refused(RefusedError, 2, "no record key"):
        stage(HERE, closing(tmp_path, 0), frame, None, "upsert")
    assert [name for name in snapshot(tmp_path) if "tmp" not in name] == []


def test_a_frame_of_spark_is_refused_where_there_is_none(tmp_path: Path) -> None:
    class Frame:
        mapInArrow = None  # noqa: N815  # Spark's name

    with refused(UsageError, 2, "runs without Spark"):
        stage(HERE, closing(tmp_path, 0), Frame(), None, "upsert")


# ------------------------------------------------------------------------------------------------------------------------ on Spark
def test_on_spark_a_frame_that_is_different_each_time_is_computed_once(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "SHARE", 10_000)  # so that several tasks sort
    frame = spark.sql("select cast(id % 500 as string) id, cast(id % 3 as string) city, id at, rand() v from range(0, 2000, 1, 2)")
    tasks = staged(tmp_path, [frame], runner=OnSpark(spark))
    there = {(row["id"], row["at"]): row["v"] for row in read(tmp_path, tasks[0].data_files)}
    assert len(there) == sum(file.records for file in tasks[0].data_files) == 2_000
    found = sort(OnSpark(spark), closing(tmp_path), tasks, "upsert")
    kept = rows(tmp_path, found)
    assert {(row["id"], row["at"]): row["v"] for *_, row in kept}.items() <= there.items()
    last = {(i % 500, i % 3): i for i in range(2_000)}  # of each key in each partition
    assert sorted(row["at"] for *_, row in kept) == sorted(last.values())
    assert found.duplicates == 2_000 - len(last)
    assert len(sorting.staged.parts(closing(tmp_path).job, tasks, sorting.SHARE)) > 3


def test_on_spark_times_are_those_of_the_table_whatever_zone_the_session_has(spark: Any, tmp_path: Path) -> None:
    t, u = ("timestamp '2026-11-22 10:00:00+00:00'", "timestamp '2026-11-22 11:00:00+00:00'")
    query = f"select 'a' id, 'x' city, 1L at, {t} t, named_struct('u', {u}) s"
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        tasks = staged(tmp_path, [spark.sql(query)], runner=OnSpark(spark))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    (found,) = read(tmp_path, tasks[0].data_files)
    assert found["t"] == dt.datetime(2026, 11, 22, 10, tzinfo=dt.UTC)
    assert found["s"] == {"u": dt.datetime(2026, 11, 22, 11, tzinfo=dt.UTC)}


def test_on_spark_what_makes_no_rows_is_the_same_line(spark: Any, tmp_path: Path) -> None:
    bad = {
        "select cast(null as string) id, 'x' city, 1L at": "no record key",
        "select 'a' id, 'a/b' city, 1L at": "makes no partition",
        "select 'a' id, 'x' city, 1L at, timestamp_ntz '2026-01-01 00:00:00' v": "local timestamps",
        "select 'a' id, 'x' city, 1L at, cast(raise_error('computed by a user') as string) v": "computed by a user",
        "select 'a' id, 'x' city": "no column 'at'",
        "select 'a' id, 'x' city, 1L at, interval '1' month v": "v",
    }
    for query, said in bad.items():
        with pytest.raises(QuireError) as caught:
            stage(OnSpark(spark), closing(tmp_path, 0), spark.sql(query), None, "upsert")
        assert said in str(caught.value)
        assert len(str(caught.value)) < 700
        assert isinstance(caught.value, UsageError) or said == "computed by a user"
    assert [name for name in snapshot(tmp_path) if "tmp" not in name] == []
    assert stage(OnSpark(spark), closing(tmp_path, 0), spark.sql("select 'a' id, 'x' city, 1L at where false"), None, "upsert")[0] == ()
