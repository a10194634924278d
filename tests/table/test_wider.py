"""Columns become wider with rows of a type that holds more: what is older is cast by whoever reads it, and no value changes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_writes import LOCAL, ours, theirs, together, write

import quire
from gathering import refused
from quire.errors import RefusedError
from quire.table.table import Table

PART = {"x": pa.int32(), "y": pa.list_(pa.int32()), "z": pa.map_(pa.string(), pa.float32())}
NARROW = pa.schema(
    {
        "id": pa.string(), "city": pa.string(), "ts": pa.int32(), "n": pa.int32(), "m": pa.int32(), "f": pa.float32(),
        "d": pa.decimal128(6, 2), "s": pa.struct(list(PART.items())),
    }
)  # fmt: skip
PARTS = {"x": pa.int64(), "y": pa.list_(pa.int64()), "z": pa.map_(pa.string(), pa.float64())}
WIDE = pa.schema(
    {
        "id": pa.string(), "city": pa.string(), "ts": pa.int64(), "n": pa.int64(), "m": pa.float64(), "f": pa.float64(),
        "d": pa.decimal128(12, 2), "s": pa.struct(list(PARTS.items())),
    }
)  # fmt: skip
TYPES = ("copy_on_write", "merge_on_read")


def row(key: str, city: str, n: int) -> dict[str, Any]:
    part = {"x": n, "y": [n, None], "z": [("k", n / 4)]} if n % 2 else None
    return {"id": key, "city": city, "ts": n, "n": n, "m": n % 1000, "f": n / 4, "d": Decimal(n % 1000), "s": part}


def rows(columns: pa.Schema, *those: tuple[str, str, int]) -> pa.Table:
    return pa.Table.from_pylist([row(*each) for each in those], columns)


def known(*those: tuple[str, str, int]) -> dict[str, dict[str, Any]]:
    return {each[0]: row(*each) for each in those}


def table_of(folder: Path, type: str, **more: Any) -> Table:
    table = Table.create(folder, key="id", partition_by="city", ordering="ts", type=type, **more)
    write(table, "upsert", rows(NARROW, ("a", "sf", 1), ("b", "sf", 2), ("c", "la", 3)))
    write(table, "upsert", rows(NARROW, ("b", "sf", 5)))
    if type == "merge_on_read":
        with refused(RefusedError, 2, f"logs of {table.url} have it", "Call table.compact(), then write again"):
            write(table, "upsert", rows(WIDE, ("a", "sf", LARGE)))
        table.compact(spark=LOCAL, progress=False)
    return table


LARGE = 2**33 + 1


@pytest.mark.nth(4)
@pytest.mark.parametrize("index", ["bloom", "simple"])
@pytest.mark.parametrize("type", TYPES)
def test_a_wider_type_becomes_the_tables_and_older_rows_stay_what_they_were(tmp_path: Path, type: str, index: str) -> None:
    table = table_of(tmp_path / "t", type, index=index)
    before = table._timeline(table._store).completed[-1].time
    write(table, "upsert", rows(WIDE, ("a", "sf", LARGE)))
    assert table.snapshot(spark=LOCAL).schema.field("s").type == pa.struct(
        [("x", pa.int64()), ("y", pa.list_(pa.field("element", pa.int64()))), ("z", pa.map_(pa.string(), pa.float64()))]
    )
    assert ours(table) == known(("a", "sf", LARGE), ("b", "sf", 5), ("c", "la", 3))
    write(table, "upsert", rows(NARROW, ("c", "la", 7)))  # a narrower one is cast
    now = known(("a", "sf", LARGE), ("b", "sf", 5), ("c", "la", 7))
    assert ours(table) == theirs(tmp_path / "t") == now
    assert table.as_of(before).snapshot(spark=LOCAL).schema.field("n").type == pa.int32(), "as it was then"
    found = table.changes("0" * 14, images="both", net=False, spark=LOCAL).to_pylist()
    assert sorted((each["op"], each["_hoodie_record_key"], (each["before"] or {}).get("n"), each["after"]["n"]) for each in found) == [
        ("i", "a", None, 1), ("i", "b", None, 2), ("i", "c", None, 3), ("u", "a", 1, LARGE), ("u", "b", 2, 5), ("u", "c", 3, 7),
    ]  # fmt: skip
    write(table, "delete", rows(WIDE, ("b", "sf", LARGE)))
    if type == "merge_on_read":
        table.compact(spark=LOCAL, progress=False)
    del now["b"]
    assert ours(table) == theirs(tmp_path / "t") == now


@pytest.mark.nth(2)
@pytest.mark.parametrize("type", TYPES)
def test_spark_reads_files_of_both_types(spark: Any, tmp_path: Path, type: str) -> None:
    table = table_of(tmp_path / "t", type)
    write(table, "upsert", rows(WIDE, ("a", "sf", LARGE)))
    found = {each["id"]: (each["n"], each["m"], each["f"], each["d"]) for each in table.snapshot(spark=spark).collect()}
    assert found == {key: (v["n"], v["m"], v["f"], v["d"]) for key, v in ours(table).items()}
    assert [each["id"] for each in table.snapshot(spark=spark, where="n = 3 and f < 1").collect()] == ["c"]
    assert table.snapshot(spark=spark, where=f"n >= {LARGE}").count() == 1
    got = {each["id"]: each["s"] and each["s"].asDict(True) for each in table.snapshot(spark=spark, columns=["id", "s"]).collect()}
    assert got["c"] == {"x": 3, "y": [3, None], "z": {"k": 0.75}}


@pytest.mark.parametrize("type", TYPES)
def test_a_type_that_would_lose_values_or_that_names_depend_on_is_one_line_and_nothing_changes(tmp_path: Path, type: str) -> None:
    table = Table.create(tmp_path / "t", key="id", partition_by="city", ordering="ts", type=type)
    columns = pa.schema([("id", pa.int32()), ("city", pa.int32()), ("ts", pa.int64()), ("n", pa.int64()), ("d", pa.decimal128(6, 2))])
    one = pa.table([[1], [1], [1], [1], [Decimal(1)]], schema=columns)
    write(table, "upsert", one)
    for name, kind, said in (
        ("n", pa.float64(), "n' is double, and int64 in the table: cast it"), ("n", pa.string(), "n' is string"),
        ("d", pa.decimal128(9, 4), "d' is decimal128"), ("id", pa.int64(), "keys and partitions are made of it"),
        ("city", pa.int64(), "keys and partitions are made of it"),
    ):  # fmt: skip
        other = one.set_column(columns.get_field_index(name), name, one[name].cast(kind))
        with refused(RefusedError, 2, said):
            write(table, "upsert", other)
        with refused(RefusedError, 2, said):
            write(table, "insert_overwrite", other)
    assert ours(table) == {1: one.to_pylist()[0]}


@pytest.mark.nth(2)
@pytest.mark.parametrize("type", TYPES)
def test_a_column_that_became_wider_meanwhile_stays_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str) -> None:
    """Though the instant of a writer that began with the narrow one is the later one."""
    table = table_of(tmp_path / "t", type)
    first, second = together(
        monkeypatch,
        lambda: write(Table(tmp_path / "t"), "upsert", rows(WIDE, ("a", "sf", LARGE))),
        lambda: write(Table(tmp_path / "t"), "upsert", rows(NARROW, ("c", "la", 9))),
    )
    assert first.instant < second.instant
    assert ours(table) == known(("a", "sf", LARGE), ("b", "sf", 5), ("c", "la", 9))
    assert quire.Table(tmp_path / "t").doctor().healthy
