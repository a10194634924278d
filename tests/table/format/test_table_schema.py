"""A table's schema: Arrow's types and Avro's, there and back, and one line for a type that no reader of Hudi takes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import FormatError, UsageError
from quire.table.format.schema import DEEP, META, from_avro, storable, to_avro, with_meta, without_meta

UTC = pa.timestamp("us", "UTC")
TRIPS = pa.schema(
    [
        pa.field("id", pa.int64(), False), ("fare", pa.decimal128(10, 2)), ("at", UTC), ("day", pa.date32()), ("raw", pa.binary()),
        ("tags", pa.list_(pa.struct([("name", pa.string())]))), ("more", pa.map_(pa.string(), pa.struct([("fare", pa.decimal128(38, 0))]))),
    ]
)  # fmt: skip
SPACE = "hoodie.trips.trips_record"
# By Avro's specification, in names as Spark draws them.
AVRO = {
    "type": "record", "name": "trips_record", "namespace": "hoodie.trips",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "fare", "type": ["null", {"type": "fixed", "name": "fixed", "namespace": f"{SPACE}.fare", "size": 5,
        "logicalType": "decimal",
                                           "precision": 10, "scale": 2}], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "raw", "type": ["null", "bytes"], "default": None},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", {"type": "record", "name": "tags", "namespace": SPACE,
        "fields": [
            {"name": "name", "type": ["null", "string"], "default": None}]}]}], "default": None},
        {"name": "more", "type": ["null", {"type": "map", "values": ["null", {"type": "record", "name": "more", "namespace": SPACE,
        "fields": [
            {"name": "fare", "type": ["null", {"type": "fixed", "name": "fixed", "namespace": f"{SPACE}.more.fare", "size": 16,
                                               "logicalType": "decimal", "precision": 38, "scale": 0}], "default": None}]}]}],
                                               "default": None},
    ],
}  # fmt: skip


def kinds() -> st.SearchStrategy[pa.DataType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    plain = [pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), UTC]
    names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)

    def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        structs = st.lists(st.tuples(names, inner, st.booleans()), min_size=1, max_size=3, unique_by=lambda f: f[0].lower())
        lists = st.tuples(inner, st.booleans()).map(lambda f: pa.list_(pa.field("element", *f)))
        maps = st.tuples(inner, st.booleans()).map(lambda f: pa.map_(pa.string(), pa.field("value", *f)))
        return structs.map(lambda fields: pa.struct([pa.field(*f) for f in fields])) | lists | maps

    return st.recursive(st.sampled_from(plain) | decimals, nested, max_leaves=6)


def test_a_schema_is_avro_s_with_everything_in_its_place_under_a_name_of_its_own() -> None:
    assert to_avro(TRIPS, "trips") == json.dumps(AVRO, separators=(",", ":"))
    assert from_avro(to_avro(TRIPS, "trips"), "it") == storable(TRIPS)


def test_meta_fields_come_first() -> None:
    fields = json.loads(to_avro(TRIPS, "trips", meta=True))["fields"]
    assert fields[:5] == [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META]
    assert fields[5:] == AVRO["fields"]
    assert from_avro(to_avro(TRIPS, "trips", meta=True), "it") == with_meta(storable(TRIPS))
    assert without_meta(with_meta(TRIPS)) == TRIPS


@given(kinds(), st.booleans())
@settings(max_examples=80, deadline=None)
def test_any_type_is_read_back_and_no_name_is_given_twice(kind: pa.DataType, nullable: bool) -> None:
    columns = pa.schema([pa.field("a", kind, nullable), pa.field("fixed", kind, nullable)])
    text = to_avro(columns, "t")
    assert from_avro(text, "it") == columns
    assert (given := list(named(json.loads(text)))) == list(dict.fromkeys(given))


def named(avro: Any) -> list[str]:
    """The full names that a schema gives."""
    if isinstance(avro, list):
        return [name for each in avro for name in named(each)]
    if not isinstance(avro, dict):
        return []
    own = [f"{avro['namespace']}.{avro['name']}"] if "namespace" in avro else []
    return own + [name for each in ("type", "fields", "items", "values") for name in named(avro.get(each))]


def test_types_that_lie_otherwise_in_a_base_file_say_how() -> None:
    given = [pa.int8(), pa.uint16(), pa.uint32(), pa.large_string(), pa.large_binary(), pa.binary(3), pa.date64(), pa.float16(),
             pa.timestamp("ns", "Europe/Berlin"), pa.dictionary(pa.int8(), pa.string()), pa.decimal256(20, 3),
             pa.large_list(pa.int16())]  # fmt: skip
    stored = [pa.int32(), pa.int32(), pa.int64(), pa.string(), pa.binary(), pa.binary(), pa.date32(), pa.float32(), UTC, pa.string(),
              pa.decimal128(20, 3), pa.list_(pa.field("element", pa.int32()))]  # fmt: skip
    assert storable(pa.schema([(f"c{i}", kind) for i, kind in enumerate(given)])).types == stored


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ([("a", pa.timestamp("us"))], r"'a' is timestamp\[us\], and readers of Hudi fail on local timestamps"),
        ([("a", pa.struct([("b", pa.list_(pa.timestamp("s")))]))], r"'a.b\[\]' is timestamp\[s\]"), ([("a", pa.uint64())], "'a' is uint64"),
        ([("a", pa.time64("us"))], "Avro has no such type"), ([("a", pa.null())], "'a' is null"),
        ([("a", pa.decimal256(40, 2))], "38 digits"),
        ([("a", pa.map_(pa.int32(), pa.int32()))], "keys are text"), ([("a b", pa.int32())], "'a b' has a name that Avro does not take"),
        ([("é", pa.int32())], "letters, digits"), ([("1a", pa.int32())], "no digit first"),
        ([("a", pa.struct([("b-c", pa.int32())]))], "'a.b-c'"),
        ([("a", pa.int32()), ("A", pa.int32())], "'a' and 'A' are one to Spark"),
        ([("_hoodie_record_key", pa.string())], "a column of its own"),
        ([], "the table has no column"), ([("a", pa.struct([]))], "the struct 'a' has no column"), ([("a", pa.duration("s"))], "duration"),
    ],
    ids=str,
)  # fmt: skip
def test_a_type_that_no_reader_takes_is_one_line(columns: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        to_avro(pa.schema(columns), "t")


def test_nothing_is_nested_without_end() -> None:
    kind: pa.DataType = pa.int32()
    for _ in range(DEEP + 1):
        kind = pa.list_(kind)
    with pytest.raises(UsageError, match="within each other"):
        storable(pa.schema([("a", kind)]))


def test_a_table_s_name_may_be_any() -> None:
    assert json.loads(to_avro(pa.schema([("a", pa.int32())]), "my trips-2"))["name"] == "my__trips__2_record"
    assert json.loads(to_avro(pa.schema([("a", pa.int32())]), "2é"))["namespace"] == "hoodie.____"


def record(*fields: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": f"f{i}", "type": kind} for i, kind in enumerate(fields)]})


def test_what_other_writers_give_is_read() -> None:
    inner = {"type": "record", "name": "inner", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}
    found = from_avro(
        record(["int", "null"], ["string"], inner, "n.inner", {"type": "enum", "name": "e", "symbols": ["A"]},
               {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1}, {"type": "long", "logicalType": "timestamp-millis"},
               {"type": "string", "logicalType": "uuid"}, {"type": {"type": "string"}}, {"type": "fixed", "name": "x", "size": 3}),
        "it",
    )  # fmt: skip
    assert found.types == [pa.int32(), pa.string(), pa.struct([pa.field("x", pa.int32(), False)]),
    pa.struct([pa.field("x", pa.int32(), False)]),
                           pa.string(), pa.decimal128(5, 1), pa.timestamp("ms", "UTC"), pa.string(), pa.string(), pa.binary(3)]  # fmt: skip
    assert [f.nullable for f in found][:3] == [True, False, False]


def exponential() -> str:
    levels: list[Any] = [{"type": "record", "name": "a0", "fields": [{"name": "x", "type": "int"}]}]
    levels += [{"type": "record", "name": f"a{i}", "fields": [{"name": c, "type": f"a{i - 1}"} for c in "xy"]} for i in range(1, 40)]
    return record(*levels)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "damaged schema"), ("{", "damaged schema"), ('"int"', "it is not a record"), ("[]", "damaged"), ("null", "damaged"),
        ("\ud800", "damaged"),
        (record("nothing"), "damaged"), (record({"type": "record", "name": "r2", "fields": [{"name": "x", "type": "r2"}]}), "damaged"),
        (record(["int", "string"]), "a union of several types"), (record({"type": "fixed", "name": "x", "size": 2**40}), "fixed"),
        (record({"type": "bytes", "logicalType": "decimal", "precision": 99}), "a decimal has 99 digits"),
        (record({"type": "array"}), "damaged"),
        (record({"type": "long", "logicalType": "local-timestamp-micros"}), "local-timestamp-micros, which readers of Hudi fail on"),
        ('{"type":' * 60 + '"int"' + "}" * 60, "levels"), ('{"type":' * 5000 + '"int"' + "}" * 5000, "damaged"), (exponential(), "types"),
        ('{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}', "there twice"),
        (" " * (16 << 20) + "{}", "at most"),
    ],
    ids=lambda each: str(each)[:30],
)  # fmt: skip
def test_a_damaged_schema_is_one_line(text: str, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        from_avro(text, "it")
