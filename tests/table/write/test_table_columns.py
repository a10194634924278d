"""Which columns a table has after a commit; each reason for which a frame does not fit is one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from staging import CONFIG

from gathering import refused
from quire.errors import QuireError, RefusedError, UsageError
from quire.table.format.schema import from_avro, to_avro
from quire.table.write.columns import OPERATIONS, after, brought, check_values, fit

THERE = pa.schema(
    [
        pa.field("id", pa.string(), False),
        ("city", pa.string()),
        ("at", pa.int64()),
        ("tags", pa.list_(pa.field("element", pa.string(), False))),
    ]
)
COMES = pa.schema([("id", pa.string()), ("city", pa.string()), ("at", pa.int64()), ("tags", pa.list_(pa.string()))])


def changed(name: str, kind: Any) -> pa.Schema:
    return pa.schema([f.with_type(kind) if f.name == name else f for f in COMES])


def without(*names: str) -> pa.Schema:
    return pa.schema([f for f in COMES if f.name not in names])


def now(there: pa.Schema | None, comes: pa.Schema, operation: str = "upsert") -> pa.Schema:
    return after(there, brought(comes, CONFIG, operation), operation)


def test_the_first_rows_give_a_table_its_columns_each_of_which_may_be_null() -> None:
    comes = pa.schema([pa.field("id", pa.large_string(), False), ("city", pa.string()), ("at", pa.int8()), ("extra", pa.date64())])
    wanted = pa.schema([("id", pa.string()), ("city", pa.string()), ("at", pa.int32()), ("extra", pa.date32())])
    assert now(None, comes) == now(pa.schema([]), comes) == wanted
    assert from_avro(to_avro(wanted, "t"), "there") == wanted


def test_a_column_is_added_at_the_end_and_may_be_null_whatever_the_order_of_a_frame() -> None:
    comes = pa.schema([pa.field("new", pa.decimal128(9, 2), False), *reversed(list(COMES))])
    assert now(THERE, comes) == pa.schema([*THERE, ("new", pa.decimal128(9, 2))])
    assert now(THERE, COMES) == THERE


def test_the_columns_that_hudi_keeps_do_not_come_back_with_a_snapshot() -> None:
    comes = pa.schema([("_hoodie_commit_time", pa.string()), ("_hoodie_record_key", pa.string()), *COMES])
    assert now(THERE, comes) == THERE


def test_the_mark_of_deleted_rows_is_stored_where_the_table_has_it() -> None:
    mark = pa.field("_hoodie_is_deleted", pa.bool_())
    assert now(THERE, COMES.append(mark)) == THERE
    assert now(None, COMES.append(mark)).names == COMES.names
    assert now(THERE.append(mark), COMES) == now(THERE.append(mark), COMES.append(mark)) == THERE.append(mark)


def test_a_delete_needs_the_fields_of_key_partition_and_ordering_alone() -> None:
    other = pa.schema([("at", pa.int64()), ("id", pa.string()), ("tags", pa.int64()), ("city", pa.string()), ("x", pa.timestamp("us"))])
    assert brought(other, CONFIG, "delete").names == ["at", "id", "city"]
    assert now(THERE, other, "delete") == THERE
    assert now(None, other, "delete").names == ["at", "id", "city"]


@pytest.mark.parametrize(
    ("comes", "there"),
    [
        (pa.int32(), pa.int64()),
        (pa.int8(), pa.int64()),
        (pa.null(), pa.int64()),
        (pa.int16(), pa.float64()),
        (pa.decimal128(9, 2), pa.decimal128(12, 2)),
    ],
)
def test_a_type_whose_values_the_tables_type_holds_is_taken(comes: pa.DataType, there: pa.DataType) -> None:
    table = pa.schema([f.with_type(there) if f.name == "at" else f for f in THERE])
    assert now(table, changed("at", comes)) == table


@pytest.mark.parametrize(
    ("comes", "there"),
    [
        (pa.int64(), pa.int32()), (pa.float64(), pa.int32()), (pa.float64(), pa.float32()), (pa.decimal128(12, 2), pa.decimal128(9, 2)),
    ],
)  # fmt: skip
def test_a_type_that_holds_more_becomes_the_tables(comes: pa.DataType, there: pa.DataType) -> None:
    table = pa.schema([f.with_type(there) if f.name == "at" else f for f in THERE])
    found = now(table, changed("at", comes))
    assert found.field("at").type == comes
    assert [f for f in found if f.name != "at"] == [f for f in table if f.name != "at"]


@pytest.mark.parametrize(
    ("comes", "there"),
    [
        (pa.decimal128(9, 1), pa.decimal128(12, 2)),
        (pa.decimal128(9, 3), pa.decimal128(12, 2)),
        (pa.decimal128(9, 2), pa.int64()),
        (pa.int64(), pa.float64()),
        (pa.int32(), pa.float32()),
    ],
)
def test_a_type_whose_values_the_tables_type_may_not_hold_is_refused_and_both_are_named(comes: pa.DataType, there: pa.DataType) -> None:
    table = pa.schema([f.with_type(there) if f.name == "at" else f for f in THERE])
    with refused(RefusedError, 2, f"the column 'at' is {comes}, and {there} in the table"):
        now(table, changed("at", comes))


BAD: list[tuple[pa.Schema, type[QuireError], str]] = [
    (pa.schema([]), UsageError, "no column"),
    (pa.schema([("_hoodie_file_name", pa.string())]), UsageError, "no column"),
    (without("id"), UsageError, "'id', which is the record key"),
    (without("city"), UsageError, "'city', which is a partition field"),
    (without("at"), UsageError, "'at', which is the ordering field"),
    (without("tags"), RefusedError, "'tags', which the table has"),
    (changed("at", pa.string()), RefusedError, "'at' is string, and int64 in the table"),
    (changed("at", pa.float64()), RefusedError, "'at' is double, and int64"),
    (changed("at", pa.list_(pa.int64())), UsageError, "no order"),
    (changed("tags", pa.list_(pa.int64())), RefusedError, "'tags' is list"),
    (changed("tags", pa.timestamp("us")), UsageError, "local timestamps"),
    (COMES.append(pa.field("new", pa.timestamp("ns"))), UsageError, "local timestamps"),
    (COMES.append(pa.field("new", pa.null())), RefusedError, "'new' has no value"),
    (COMES.append(pa.field("Tags", pa.string())), UsageError, "one to Spark"),
    (COMES.append(pa.field("a b", pa.string())), UsageError, "'a b'"),
    (pa.schema([f.with_name("TAGS") if f.name == "tags" else f for f in COMES]), RefusedError, "'TAGS' is called 'tags' in the table"),
    (COMES.append(pa.field("new", pa.time64("us"))), UsageError, "'new' is time64"),
    (COMES.append(pa.field("tags", pa.string())), UsageError, "'tags'"),
    (COMES.append(pa.field("_hoodie_is_deleted", pa.int32())), UsageError, "give a boolean"),
    (COMES.append(pa.field("new", pa.uint64())), UsageError, "'new' is uint64"),
]


@pytest.mark.parametrize(("comes", "kind", "said"), BAD)
def test_a_frame_that_does_not_fit_is_refused_in_one_line(comes: pa.Schema, kind: type[QuireError], said: str) -> None:
    with refused(kind, 2, said):
        now(THERE, comes)


@pytest.mark.parametrize("kind", [pa.timestamp("ms", "UTC"), pa.time64("us"), pa.binary(16)])
def test_a_table_with_a_column_that_quire_does_not_write_is_refused(kind: pa.DataType) -> None:
    with refused(RefusedError, 2, "'old' of the table", "does not write"):
        now(THERE.append(pa.field("old", kind)), COMES.append(pa.field("old", pa.string())))


def test_without_ordering_and_partitions_the_key_is_enough() -> None:
    config = replace(CONFIG, ordering=None, partition_by=(), mode="COMMIT_TIME_ORDERING")
    for operation in OPERATIONS:
        assert brought(pa.schema([("id", pa.int64())]), config, operation).names == ["id"]


def test_rows_are_fitted_by_name_and_lack_what_they_do_not_have() -> None:
    rows = pa.record_batch({"at": pa.array([1], pa.int32()), "more": ["x"], "id": ["a"]})
    found = fit(rows, THERE)
    assert found.schema.types == THERE.types
    assert found.to_pylist() == [{"id": "a", "city": None, "at": 1, "tags": None}]
    with refused(RefusedError, 2, "'at' is int64", "int32"):
        fit(pa.record_batch({"at": [2**40]}), pa.schema([("at", pa.int32())]))


def test_a_value_that_the_table_must_have_is_missing_in_rows_that_are_stored_alone() -> None:
    block = pa.record_batch({"id": pa.array([None, None, "a"], pa.string()), "_quire_deletes": [True, False, False]})
    with refused(RefusedError, 2, "1 of 3 rows have no value in 'id'"):
        check_values(block, THERE.remove(3).remove(2).remove(1))
    check_values(block.slice(2), THERE.remove(3).remove(2).remove(1))
    check_values(block.slice(0, 1), THERE.remove(3).remove(2).remove(1))
