"""Each form by itself: frames of a registry, types of Avro, Protobuf and JSON Schema, rows brought from one schema to another."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from quire.errors import UsageError
from quire.sources.decoders import decoder, protoc
from quire.sources.decoders.avro import AvroForm
from quire.sources.decoders.avro import checked as avro_checked
from quire.sources.decoders.frames import Frame, unframed
from quire.sources.decoders.json import JsonDecoder
from quire.sources.decoders.projected import projected
from quire.sources.decoders.protobuf import ProtobufForm, checked, messages
from quire.sources.decoders.registry import Found, Registry
from quire.sources.transforms.content import BadContent, told_apart

HEAD = b"\0\0\0\0\7"


# ------------------------------------------------------------------------------------------------------------------------- frames
@pytest.mark.parametrize(
    ("value", "indexed", "found"),
    [
        (HEAD + b"x", False, (Frame(7), b"x")),
        (HEAD, False, (Frame(7), b"")),
        (b"\0\xff\xff\xff\xffx", False, (Frame((1 << 32) - 1), b"x")),
        (HEAD + b"\0x", True, (Frame(7, (0,)), b"x")),
        (HEAD + b"\2\0x", True, (Frame(7, (0,)), b"x")),
        (HEAD + b"\4\2\4x", True, (Frame(7, (1, 2)), b"x")),
        (HEAD + b"\2\x80\x02", True, (Frame(7, (128,)), b"")),
    ],
)
def test_a_frame_says_the_schema_and_the_message(value: bytes, indexed: bool, found: Any) -> None:
    assert unframed(value, indexed=indexed) == found


@pytest.mark.parametrize(
    ("value", "indexed", "words"),
    [
        (b"", False, "it has 0 bytes"),
        (b"\0\0\0\0", False, "it has 4 bytes"),
        (b"\1" * 20, False, "its first byte is 1"),
        (HEAD, True, "cut off"),
        (HEAD + b"\4\2", True, "cut off"),
        (HEAD + b"\2\xff", True, "cut off"),
        (HEAD + b"\xff" * 9, True, "cut off, or damaged"),
        (HEAD + b"\1x", True, "-1 levels deep"),
        (HEAD + b"\xfe\xff\xff\xff\x0f", True, "levels deep"),
        (HEAD + b"\2\1", True, "below 0"),
    ],
)
def test_what_is_not_a_frame_is_told(value: bytes, indexed: bool, words: str) -> None:
    with pytest.raises(BadContent) as caught:
        unframed(value, indexed=indexed)
    assert words in caught.value.reason


def test_what_fails_is_told_from_what_does_not_by_halves() -> None:
    asked = list[tuple[int, int]]()

    def make(first: int, end: int) -> list[int]:
        asked.append((first, end))
        if any(i in (3, 70) for i in range(first, end)):
            raise BadContent("bad")
        return [*range(first, end)]

    found = list(told_apart(100, make))
    assert [i for _, _, each in found if not isinstance(each, BadContent) for i in each] == [i for i in range(100) if i not in (3, 70)]
    assert [first for first, _, each in found if isinstance(each, BadContent)] == [3, 70]
    assert len(asked) < 32
    assert list(told_apart(0, make)) == []


# --------------------------------------------------------------------------------------------------------------------------- Avro
def avro(schema: Any, record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return out.getvalue()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def test_a_schema_of_avro_that_imports_others() -> None:
    city = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "zip", "type": "string"}]}
    order = record(("id", "int"), ("to", "geo.City"), ("by", ["null", "geo.City"]))
    form = AvroForm(json.dumps(order), {"geo.City": json.dumps(city)}, "")
    whole = record(("id", "int"), ("to", city), ("by", ["null", "geo.City"]))
    made = form.batch([form.row(avro(whole, {"id": 1, "to": {"zip": "01"}, "by": {"zip": "02"}}))], form.columns)
    assert made.to_pylist() == [{"id": 1, "to": {"zip": "01"}, "by": {"zip": "02"}}]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (record(("a", ["int", "string"])), "a union of several types"),
        (record(("a", ["null", "R"])), "do not hold themselves"),
        (record(("a", {"type": "array", "items": "null"})), "items without any value"),
        (record(("a", {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}})), "has no bytes"),
        (record(("a", "nothing")), "'nothing'"),
        ({"type": "record", "name": "R", "fields": []}, "no column"),
        ([], "a union has no type"),
    ],
)
def test_schemas_of_avro_that_no_columns_hold(schema: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        avro_checked(json.dumps(schema))
    assert words in str(caught.value)


def test_a_value_of_avro_that_is_no_record_has_a_column_of_its_own() -> None:
    form = AvroForm('"long"', {}, "")
    assert (form.bare, form.columns) == (True, pa.schema([("value", pa.int64())]))
    assert form.batch([form.row(avro("long", 5))], form.columns).to_pylist() == [{"value": 5}]


# ----------------------------------------------------------------------------------------------------------------------- Protobuf
TYPES = """syntax = "proto3";
import "google/protobuf/struct.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
message Empty {}
message Inner { int32 x = 1; }
enum E { option allow_alias = true; ZERO = 0; NULL = 0; ONE = 1; }
message T {
  int32 a = 1; sint64 b = 2; uint32 c = 3; fixed64 d = 4; float e = 5; double f = 6; bool g = 7; string h = 8; bytes i = 9; E j = 10;
  google.protobuf.Struct k = 11; google.protobuf.Int64Value l = 12; repeated google.protobuf.Timestamp m = 13; Empty n = 14;
  map<int32, Inner> o = 15; repeated E p = 16; google.protobuf.Duration q = 17; repeated Inner r = 18; optional uint32 s = 19;
  repeated uint64 t = 20;
}
message Loop { int32 x = 1; Loop next = 2; }
"""


def of(text: str, name: str, **fields: Any) -> dict[str, Any]:
    form = ProtobufForm(protoc.compiled(text), name)
    document = form.made(**fields).SerializeToString()
    (row,) = form.batch([form.row(document)], form.columns).to_pylist()
    return dict(row)


def test_types_of_protobuf() -> None:
    columns = ProtobufForm(protoc.compiled(TYPES), "T").columns
    kinds = {f.name: str(f.type) for f in columns}
    assert kinds == {
        "a": "int32", "b": "int64", "c": "int64", "d": "decimal128(20, 0)", "e": "float", "f": "double", "g": "bool", "h": "string",
        "i": "binary", "j": "string", "k": "string", "l": "int64", "m": "list<item: timestamp[us, tz=UTC]>", "n": "bool",
        "o": "map<int32, struct<x: int32>>", "p": "list<item: string>", "q": "struct<seconds: int64, nanos: int32>",
        "r": "list<item: struct<x: int32>>", "s": "int64", "t": "list<item: decimal128(20, 0)>",
    }  # fmt: skip
    empty = of(TYPES, "T")
    assert empty == {
        "a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "f": 0, "g": False, "h": "", "i": b"", "j": "ZERO",
        **dict.fromkeys("klnqs"), **{name: [] for name in "moprt"},
    }  # fmt: skip
    full = of(
        TYPES, "T", c=2**32 - 1, d=2**64 - 1, j=1, k={"x": [1, None, "y"]}, l={"value": 0}, m=[{"seconds": -1}], n={}, o={1: {"x": 2}},
        p=[0, 7], q={"seconds": 3}, r=[{"x": 1}, {}], s=0, t=[2**64 - 1],
    )  # fmt: skip
    assert (full["c"], int(full["d"]), full["j"], json.loads(full["k"]), full["l"]) == (
        2**32 - 1,
        2**64 - 1,
        "ONE",
        {"x": [1, None, "y"]},
        0,
    )
    assert (str(full["m"][0]), full["n"], full["o"], full["p"]) == ("1969-12-31 23:59:59+00:00", True, [(1, {"x": 2})], ["ZERO", "7"])
    assert (full["q"], full["r"], full["s"], int(full["t"][0])) == ({"seconds": 3, "nanos": 0}, [{"x": 1}, {"x": 0}], 0, 2**64 - 1)


def test_presence_in_proto2() -> None:
    text = """syntax = "proto2";
    message M { required int32 a = 1; optional int32 b = 2 [default = 7]; optional group G = 3 { optional int32 x = 4; } }"""
    assert of(text, "M", a=0) == {"a": 0, "b": None, "g": None}
    form = ProtobufForm(protoc.compiled(text), "M")
    with pytest.raises(BadContent, match="lacks what the schema requires"):
        form.row(b"")


def test_times_of_protobuf_outside_of_the_calendar_are_told() -> None:
    made = decoder("protobuf", schema=protoc.compiled(TYPES), message="T")
    form = ProtobufForm(protoc.compiled(TYPES), "T")
    values = [form.made(m=[{"seconds": seconds}]).SerializeToString() for seconds in (0, 1 << 60, 5)]
    found = made.decoded(pa.record_batch({"value": pa.array(values, pa.binary())}))
    assert (found.places, [i for i, _ in found.wrong]) == ([0, 2], [1])


def test_a_message_within_itself_needs_columns() -> None:
    with pytest.raises(UsageError, match="holds messages of Loop without an end"):
        checked(protoc.compiled(TYPES), "Loop")
    form = ProtobufForm(protoc.compiled(TYPES), "Loop")
    columns = pa.schema([("x", pa.int32()), ("next", pa.struct([("x", pa.int32())]))])
    document = form.made(x=1, next={"x": 2, "next": {"x": 3}}).SerializeToString()
    assert form.batch([form.row(document)], columns).to_pylist() == [{"x": 1, "next": {"x": 2}}]


def test_files_that_import_others_are_compiled_and_no_name_leads_elsewhere() -> None:
    main = """syntax = "proto3"; import "geo/city.proto"; import "google/type/money.proto";
    message M { geo.City c = 1; google.type.Money m = 2; }"""
    city = ("geo/city.proto", 'syntax = "proto3"; package geo; message City { string zip = 1; }')
    files = protoc.compiled(main, (city,))
    assert "M" in messages(files)
    assert ProtobufForm(files, "M").columns.names == ["c", "m"]
    for name in ("../x.proto", "/etc/x.proto", "a/../../x.proto", "x", "schema.proto", "a//b.proto"):
        with pytest.raises(BadContent, match="not a file's name"):
            protoc.compiled(main, ((name, city[1]),))
    for text in ("syntax = nothing", 'syntax = "proto3"; import "gone.proto";', 'import "/etc/passwd";'):
        with pytest.raises(BadContent, match="does not compile"):
            protoc.compiled(text)


# -------------------------------------------------------------------------------------------------------------------- JSON Schema
def columns_of(schema: Any) -> pa.Schema:
    made = JsonDecoder(registry=Registry("http://nowhere"))
    return made.form(Frame(1), Found("JSON", schema if isinstance(schema, str) else json.dumps(schema))).columns


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "no objects"),
        ({"properties": {"a": {}}}, "'a' has no type"),
        ({"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "integer"}]}}}, "several types"),
        ({"properties": {"a": {"type": ["string", "integer"]}}}, "'a' has no type"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "'#/nowhere'"),
        ({"properties": {"a": {"$ref": "#"}}}, "'a' holds itself"),
        ({"properties": {"a": {"type": "array", "items": {"properties": {"b": {"type": "object"}}}}}}, "'a[].b' has no type"),
        ("{nope", "not a JSON Schema"),
        ([], "nothing says the type"),
    ],
)
def test_json_schemas_that_no_columns_hold(schema: Any, words: str) -> None:
    with pytest.raises(BadContent) as caught:
        columns_of(schema)
    assert words in caught.value.reason.replace("are not objects", "no objects")


def test_types_of_a_json_schema() -> None:
    found = columns_of({"properties": {
        "a": {"type": "integer"}, "b": {"type": ["null", "number"]}, "c": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
        "d": {"type": "string", "format": "date"}, "e": {"enum": ["x", None]}, "f": {"type": "array", "items": {"type": "string"}},
        "g": {"type": "object", "properties": {"h": {"type": "integer"}}},
    }})  # fmt: skip
    assert found == pa.schema([
        ("a", pa.int64()), ("b", pa.float64()), ("c", pa.bool_()), ("d", pa.date32()), ("e", pa.string()), ("f", pa.list_(pa.string())),
        ("g", pa.struct([("h", pa.int64())])),
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------------- from one schema to another
def test_rows_are_brought_into_other_columns_by_name() -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.string())])
    schema = pa.schema([("a", inner), ("b", pa.list_(inner)), ("c", pa.map_(pa.string(), inner)), ("d", pa.int32())])
    rows = [
        {"a": {"x": 1, "y": "p"}, "b": [{"x": 2, "y": "q"}, None], "c": [("k", {"x": 3, "y": "r"})], "d": 4},
        {"a": None, "b": None, "c": None, "d": None},
        {"a": {"x": None, "y": "s"}, "b": [], "c": [], "d": 5},
        {"a": {"x": 6, "y": "t"}, "b": [{"x": 7, "y": "u"}], "c": [("l", {"x": 8, "y": "v"})], "d": 6},
    ]
    less = pa.struct([("z", pa.string()), ("x", pa.int32())])
    into = pa.schema([("new", pa.date32()), ("c", pa.map_(pa.string(), less)), ("b", pa.list_(less)), ("a", less)])
    want = [
        {"new": None, "c": [("k", {"z": None, "x": 3})], "b": [{"z": None, "x": 2}, None], "a": {"z": None, "x": 1}},
        {"new": None, "c": None, "b": None, "a": None},
        {"new": None, "c": [], "b": [], "a": {"z": None, "x": None}},
        {"new": None, "c": [("l", {"z": None, "x": 8})], "b": [{"z": None, "x": 7}], "a": {"z": None, "x": 6}},
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema)
    for first in range(4):
        assert projected(batch.slice(first), into).to_pylist() == want[first:], "also of a part of an array"
    with pytest.raises(BadContent, match="none of the columns"):
        projected(batch, pa.schema([("other", pa.int32())]))
