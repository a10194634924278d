"""Columns of users' rows: whatever a destination accepts can be read and written again, and what it does not accept is one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import quire
from gathering import gather, not_taken, refused, write
from quire import FileInfo
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError
from quire.formats.parquet import ParquetWriter, RowReader, checksum
from quire.read import first_rows
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import DiffersError, fit, nullable, unify
from quire.sources.transforms.functions import WrongTypeError
from quire.storage import connect, normalise

QUIET: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def giving(rows: dict[str, pa.Table]) -> Any:
    """A function that gives a table for a file, by the file's name."""
    return lambda content, file: rows[file.name]


def column(kind: pa.DataType, *values: Any, null: bool = True) -> pa.Table:
    return pa.table([pa.array(values, kind)], schema=pa.schema([pa.field("a", kind, null)]))


def found(dest: Path) -> list[Any]:
    return list(first_rows(connect(normalise(dest)), 99))


# ------------------------------------------------------------------------------------------------------------------- one decision
@pytest.mark.parametrize("first", [True, False])
def test_runs_that_differ_in_whether_a_value_may_be_missing_are_compacted_forgotten_and_reprocessed(tmp_path: Path, first: bool) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    rows = {name: column(pa.int64(), i, null=null) for i, (name, null) in enumerate([("f0", first), ("f1", not first)])}
    for name in rows:
        gather(write(source, {name: b"x"}), dest, transform=giving(rows), format="parquet", function_version="1")
    ledger = quire.Ledger(dest)
    assert ledger.compact(**QUIET).removed == 2
    rows["f0"] = column(pa.int64(), 7, null=first)
    write(source, {"f0": b"longer"})
    assert gather(source, dest, transform=giving(rows), format="parquet", function_version="1", on_change="reprocess").files == 1
    assert sorted(row["a"] for row in found(dest)) == [1, 7]
    ledger.forget(source / "f0", **QUIET)
    assert found(dest) == [{"a": 1}]
    assert ledger.verify(spark=QUIET["spark"]).ok


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (pa.table({"a": ["x"]}), ("'a' is string, and int64 in the destination",)),
        (pa.table({"A": [1]}), ("'A' is called 'a' in the destination",)),
        (pa.table({"a": [1], "b": [1.5]}), ("'b' (double) is not in the destination",)),
        (pa.table({"b": [1]}), ("'b' (int64) is not", "'a' (int64) is missing")),
    ],
)
def test_a_run_of_other_columns_is_refused_with_the_difference_and_the_file_and_leaves_no_job(
    tmp_path: Path, rows: pa.Table, words: tuple[str, ...]
) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    function = giving({"f0": pa.table({"a": [1]}), "f1": rows, "f2": pa.table({"a": [2]})})
    gather(write(source, {"f0": b"x"}), dest, transform=function, format="parquet", function_version="1")
    write(source, {"f1": b"x"})
    for _ in range(2):
        with refused(RefusedError, 2, "two schemas", "in/f1", *words):
            gather(source, dest, transform=function, format="parquet", function_version="1")
        store = connect(normalise(dest))
        assert list(protocol.open_jobs(store, Log(store).refresh())) == []
    # Beside a file that fits it is quarantined, and stops nobody.
    report = gather(write(source, {"f2": b"x"}), dest, transform=function, format="parquet", function_version="1")
    assert (report.files, not_taken(report)) == (1, 1)
    assert all(word in report.quarantined[0][1] for word in words)


def test_two_tasks_of_a_first_run_that_differ_are_refused_with_the_file(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"x", "b": b"y"})
    function = giving({"a": pa.table({"n": [{"x": 1}]}), "b": pa.table({"n": [{"x": "1"}]})})
    with refused(RefusedError, 2, "in/", "'n.x' is "):
        gather(source, tmp_path / "out", transform=function, format="parquet", function_version="1", target_size="1 B")
    store = connect(normalise(tmp_path / "out"))
    assert list(protocol.open_jobs(store, Log(store).refresh())) == []


def test_a_column_without_values_takes_the_type_that_the_destination_has_and_order_is_no_difference(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    rows = {"f0": pa.table({"a": [1], "b": [["x"]]}), "f1": pa.table({"b": pa.array([[]], pa.list_(pa.null())), "a": pa.nulls(1)})}
    for name in rows:
        assert gather(write(source, {name: b"x"}), dest, transform=giving(rows), format="parquet", function_version="1").files == 1
    assert found(dest) == [{"a": 1, "b": ["x"]}, {"a": None, "b": []}]


def test_a_schema_that_lets_values_be_missing_goes_together_with_one_that_does_not(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"f0": b"1"}), tmp_path / "out"

    def function(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
        return [{"id": int(content) if content.isdigit() else None}]

    def run(schema: str | None) -> quire.Report:
        return quire.process(source, dest, function, schema=schema, function_version="1", max_quarantined=9, **QUIET)

    assert run("id long not null").files == 1
    write(source, {"f1": b"none"})
    assert not_taken(run(None)) == 1
    write(source, {"f2": b"none"})
    assert run("id long").files == 1
    write(source, {"f3": b"none"})
    assert run(None).files == 1, "what was said last counts"
    assert quire.Ledger(dest).compact(**QUIET).removed == 3
    with refused(RefusedError, 2, "'id' is string, and int64 in the destination"):
        run("id string")


# ------------------------------------------------------------------------------------------------------------- types and values
DAY, NOON = dt.date(2026, 11, 22), dt.datetime.fromisoformat("2026-11-22T12:00")


@pytest.mark.nth(4)
@pytest.mark.parametrize(
    ("kind", "value", "back"),
    [
        (pa.timestamp("s"), NOON, None), (pa.timestamp("ns", "Europe/Berlin"), NOON.replace(tzinfo=dt.UTC), None),
        (pa.date64(), DAY, None), (pa.large_string(), "x", None), (pa.string_view(), "x", None), (pa.binary_view(), b"x", None),
        (pa.dictionary(pa.int8(), pa.string()), "x", None), (pa.float16(), 0.5, None), (pa.binary(3), b"abc", None),
        (pa.list_(pa.int64(), 2), [1, 2], None), (pa.large_list(pa.float16()), [0.5], None), (pa.uint64(), 2**64 - 1, None),
        (pa.decimal256(40, 2), None, "38 digits"), (pa.decimal256(38, 2), Decimal("1.50"), None), (pa.time32("s"), dt.time(1), "time32"),
        (pa.duration("us"), dt.timedelta(1), "duration"), (pa.month_day_nano_interval(), None, "no place in Parquet"),
        (pa.null(), None, "no value"), (pa.list_(pa.null()), [], "'a[]' has no value"), (pa.struct([]), {}, "without fields"),
        (pa.struct([("x", pa.int8()), ("X", pa.int8())]), {"x": 1}, "a column twice"), (pa.timestamp("ns"), 1, "would lose data"),
        (pa.timestamp("s"), 2**40, "the years 1 to 9999"), (pa.list_(pa.date32()), [10**7], "the years 1 to 9999"),
    ],
    ids=str,
)  # fmt: skip
def test_what_parquet_or_spark_would_not_give_back_is_written_so_that_they_do_or_quarantined(
    tmp_path: Path, kind: pa.DataType, value: Any, back: str | None
) -> None:
    source, dest = write(tmp_path / "in", {"a": b"x"}), tmp_path / "out"
    report = gather(source, dest, transform=giving({"a": column(kind, value)}), format="parquet", function_version="1")
    if back is not None:
        assert (report.files, not_taken(report)) == (0, 1)
        assert back in report.quarantined[0][1]
        return
    assert found(dest) == [{"a": value}]
    assert quire.Ledger(dest).verify(spark=QUIET["spark"]).ok


@pytest.mark.parametrize("names", [["a", "a"], ["a", "A"], ["a", "b"]])
def test_a_column_twice_also_by_its_case_is_quarantined_and_names_no_file_cannot_hold_pass(tmp_path: Path, names: list[str]) -> None:
    source = write(tmp_path / "in", {"f": b"x", "g": b"y"})

    def function(content: bytes, file: FileInfo) -> pa.Table:
        return pa.table([pa.array([1]), pa.array([2])], names=names if file.name == "f" else ["a", "b"])

    report = gather(source, tmp_path / "out", transform=function, format="parquet", function_version="1")
    assert (report.files, not_taken(report)) == ((2, 0) if names == ["a", "b"] else (1, 1))


def test_rows_that_are_not_valid_or_called_like_quires_own_columns_stop_nobody(tmp_path: Path) -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    source = write(tmp_path / "in", {"broken": b"x", "whole": b"y"})
    rows = {"broken": pa.table({"a": broken}), "whole": pa.table({"a": ["x"]})}
    report = gather(source, tmp_path / "out", transform=giving(rows), format="parquet", function_version="1")
    assert (report.files, not_taken(report)) == (1, 1)
    alike = {name: pa.table({"path": ["p"], "modified": [1], "content": [None]}).cast(ALIKE) for name in rows}
    assert gather(source, tmp_path / "alike", transform=giving(alike), format="parquet", function_version="1").files == 2
    assert quire.Ledger(tmp_path / "alike").verify(spark=QUIET["spark"]).ok


ALIKE = pa.schema([("path", pa.string()), ("modified", pa.timestamp("us", "UTC")), ("content", pa.string())])


# --------------------------------------------------------------------------------------------------- whatever is accepted, by chance
LEAVES = st.sampled_from(
    [pa.int8(), pa.int64(), pa.uint32(), pa.float16(), pa.float64(), pa.string(), pa.large_string(), pa.binary(), pa.binary(2), pa.bool_(),
     pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"), pa.date32(), pa.date64(), pa.decimal128(9, 2),
     pa.decimal256(20, 3), pa.null(), pa.time64("us"), pa.dictionary(pa.int8(), pa.string()), pa.string_view(), pa.duration("s")]
)  # fmt: skip
NAMES = st.sampled_from(["a", "A", "b", "", "c d", "ß"])


def field(name: str, kind: pa.DataType, null: bool, metadata: Any = None) -> pa.Field:
    return pa.field(name, kind, null or pa.types.is_null(kind), metadata)


def fields(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[list[pa.Field]]:
    one = st.builds(field, NAMES, kinds, st.booleans(), st.sampled_from([None, {"k": "v"}]))
    return st.lists(one, max_size=3, unique_by=lambda one: one.name)


KINDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda kind, null: pa.list_(field("element", kind, null)), inner, st.booleans()), st.builds(pa.large_list, inner),
        st.builds(pa.map_, st.sampled_from([pa.string(), pa.int32()]), inner), st.builds(pa.struct, fields(inner)),
    ),
    max_leaves=4,
)  # fmt: skip
SCHEMAS = st.builds(pa.schema, fields(KINDS), st.sampled_from([None, {"made": "by"}]))


def related(schema: pa.Schema) -> st.SearchStrategy[pa.Schema]:
    """A schema much like another: one that may go together with it."""
    change = st.sampled_from(["same", "null", "metadata", "order", "case", "type"])

    def made(what: str) -> pa.Schema:
        changed = list(schema)
        if what == "null":
            changed = [field(f.name, f.type, not f.nullable) for f in changed]
        elif what == "metadata":
            changed = [f.with_metadata({"other": "one"}) for f in changed]
        elif what == "order":
            changed.reverse()
        elif what == "case":
            changed = [f.with_name(f.name.swapcase()) for f in changed]
        elif what == "type":
            changed = [f.with_type(pa.int16()) for f in changed[:1]] + changed[1:]
        return pa.schema(changed, {"from": "another"} if what == "metadata" else None)

    return st.one_of(st.builds(made, change), SCHEMAS)


def value(kind: Any) -> Any:
    """Some value of a type, that nothing loses."""
    of = pa.types
    if of.is_struct(kind):
        return {f.name: value(f.type) for f in kind}
    if of.is_map(kind):
        return [(value(kind.key_type), value(kind.item_type))]
    if of.is_list(kind) or of.is_large_list(kind):
        return [value(kind.value_type)]
    if of.is_null(kind):
        return None
    if of.is_string(kind) or of.is_large_string(kind) or of.is_dictionary(kind) or str(kind) == "string_view":
        return "ab"
    if of.is_binary(kind) or of.is_fixed_size_binary(kind):
        return b"ab"
    return 86_400_000 if of.is_date64(kind) else Decimal(1) if of.is_decimal(kind) else of.is_boolean(kind) or 1


@settings(max_examples=60)
@given(SCHEMAS.flatmap(lambda schema: st.tuples(st.just(schema), related(schema))))
def test_every_pair_of_schemas_that_goes_together_can_be_written_read_and_written_again(pair: tuple[pa.Schema, pa.Schema]) -> None:
    store, there, batches = connect("memory://columns"), None, list[pa.RecordBatch]()
    for schema in pair:
        arrays = [pa.array([value(f.type)], f.type) for f in schema]
        try:
            batch = fit(pa.RecordBatch.from_arrays(arrays, schema=schema), there)
        except WrongTypeError as e:
            # Refused at the run.
            if there is not None and isinstance(e, DiffersError):
                with pytest.raises(DiffersError):
                    unify(there, schema)
            return
        there = there or batch.schema
        assert nullable(unify(there, schema)).equals(batch.schema, check_metadata=True), "one decision"
        assert schemas.parse(schemas.text(batch.schema)).equals(batch.schema), "the log can say it"
        batches.append(batch)

    def written(name: str, parts: list[pa.RecordBatch]) -> None:
        writer = ParquetWriter(lambda i: store.create(name), 1 << 30, "zstd")
        for part in parts:
            writer.add(part)
        writer.close()

    for i, batch in enumerate(batches):  # a run each
        written(f"{i}.parquet", [batch])
    back = [RowReader(store, f"{i}.parquet").take(0, 1).combine_chunks() for i in range(2)]
    assert [checksum(rows) for rows in back] == [checksum(batch) for batch in batches]
    first = fit(back[0].to_batches()[0])
    written("again.parquet", [first, fit(back[1].to_batches()[0], first.schema)])  # a rewrite
    assert [checksum(RowReader(store, "again.parquet").take(i, 1)) for i in range(2)] == [checksum(batch) for batch in batches]


def test_what_cannot_be_a_schema_is_said_with_what_to_do(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"x"})
    for schema in ("t time64(us)", "t duration(s)", "t decimal256(50, 2)", pa.schema([("t", pa.list_(pa.null()))])):
        with refused(QuireError, 2, "'t", "schema="):
            quire.process(source, tmp_path / "out", lambda split, content: None, schema=schema, **QUIET)
