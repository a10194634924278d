"""A table's schema as Arrow and as Avro, in which Hudi keeps it: in commits without, in base files with the meta fields.

Source: Avro's specification of schemas and logical types; names as Spark's and Hudi's converters draw them. Every nested record and fixed
stands where it is used, under a full name of its own, as some readers follow no reference to a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from quire.errors import FormatError, UsageError
from quire.formats.damage import ARROW
from quire.table.format import filled

META = ("_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name")
LARGEST = 16 << 20  # bytes of a schema
DEEP, MANY = 50, 20_000  # levels within each other, and types in all: references to names may mean exponentially many
WIDE = 38  # digits of a decimal
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_UTC = pa.timestamp("us", "UTC")
_of = pa.types

# How a type of Arrow's lies in a base file, where it is not as it is.
_STORED: list[tuple[Callable[[pa.DataType], bool], pa.DataType]] = [
    (lambda t: _of.is_large_string(t) or str(t) == "string_view", pa.string()),
    (lambda t: _of.is_large_binary(t) or _of.is_fixed_size_binary(t) or str(t) == "binary_view", pa.binary()),
    (lambda t: _of.is_int8(t) or _of.is_int16(t) or _of.is_uint8(t) or _of.is_uint16(t), pa.int32()),
    (_of.is_uint32, pa.int64()),
    (_of.is_float16, pa.float32()),
    (_of.is_date, pa.date32()),
]
_PLAIN: dict[Any, Any] = {
    pa.bool_(): "boolean", pa.int32(): "int", pa.int64(): "long", pa.float32(): "float", pa.float64(): "double", pa.string(): "string",
    pa.binary(): "bytes", pa.date32(): {"type": "int", "logicalType": "date"}, _UTC: {"type": "long", "logicalType": "timestamp-micros"},
}  # fmt: skip
_PRIMITIVE = {name: kind for kind, name in _PLAIN.items() if isinstance(name, str)}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(), ("long", "timestamp-micros"): _UTC, ("long", "timestamp-millis"): pa.timestamp("ms", "UTC"),
    ("int", "time-millis"): pa.time32("ms"), ("long", "time-micros"): pa.time64("us"),
}  # fmt: skip


# ------------------------------------------------------------------------------------------------------------------- Arrow to Avro
def storable(schema: pa.Schema) -> pa.Schema:
    """The columns in which rows of a schema lie in base files, without metadata; UsageError names the column that has no place there."""
    fields = [pa.field(f.name, _storable(f.type, f.name, 1), f.nullable) for f in schema]
    _check_names([f.name for f in fields], "")
    if taken := [f.name for f in fields if f.name.lower() in META]:
        raise UsageError(f"the column {taken[0]!r} has a name that Hudi gives to a column of its own: give it another name")
    return pa.schema(fields)


def to_avro(schema: pa.Schema, table: str, *, meta: bool = False) -> str:
    """The Avro schema of `storable` columns, as one line of JSON; with the meta fields where it is for a base file."""
    name = _sanitised(table)
    space = f"hoodie.{name}"
    fields = [{"name": each, "type": ["null", "string"], "doc": "", "default": None} for each in META] if meta else []
    fields += [_field(f, f"{space}.{name}_record") for f in storable(schema)]
    return msgspec.json.encode({"type": "record", "name": f"{name}_record", "namespace": space, "fields": fields}).decode()


def with_meta(schema: pa.Schema) -> pa.Schema:
    """The same columns behind the five meta columns."""
    return pa.schema([pa.field(name, pa.string()) for name in META] + list(schema))


def without_meta(schema: pa.Schema) -> pa.Schema:
    """The same columns without the meta columns."""
    return pa.schema([f for f in schema if f.name not in META])


def conform(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows in the columns that their table has now: one that came later is null. Arrow's error, or a ValueError, where that cannot be."""
    there = rows.column_names
    columns = [filled.cast(rows.column(f.name), f.type) if f.name in there else filled.nulls(rows.num_rows, f.type) for f in schema]
    return pa.table(columns, schema.names).cast(schema)


def _storable(kind: Any, at: str, depth: int) -> pa.DataType:  # noqa: C901  # a case for each kind of type
    if depth > DEEP:
        raise UsageError(
            f"the column {at.partition('.')[0].rstrip('[]')!r} holds more than {DEEP} lists, structs or maps within each other"
        )
    if isinstance(kind, pa.BaseExtensionType) or _of.is_dictionary(kind):
        return _storable(kind.value_type if _of.is_dictionary(kind) else kind.storage_type, at, depth + 1)
    if found := next((to for like, to in _STORED if like(kind)), None):
        return found
    if _of.is_timestamp(kind):
        if kind.tz is None:
            raise _no(kind, at, "readers of Hudi fail on local timestamps. Give it a time zone, such as UTC")
        return _UTC
    if _of.is_decimal(kind):
        if kind.precision > WIDE or not 0 <= kind.scale <= kind.precision:
            raise _no(kind, at, f"a decimal has up to {WIDE} digits, of which some are its scale. Give fewer, or text")
        return pa.decimal128(kind.precision, kind.scale)
    if _of.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        _check_names([f.name for f in fields], f"{at}.")
        return pa.struct([pa.field(f.name, _storable(f.type, f"{at}.{f.name}", depth + 1), f.nullable) for f in fields])
    if _of.is_list(kind) or _of.is_large_list(kind) or _of.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _storable(kind.value_type, f"{at}[]", depth + 1), kind.value_field.nullable))
    if _of.is_map(kind):
        if _storable(kind.key_type, f"{at}.key", depth + 1) != pa.string():
            raise _no(kind, at, "a map's keys are text in Avro. Give text, or a list of structs")
        return pa.map_(pa.string(), pa.field("value", _storable(kind.item_type, f"{at}.value", depth + 1), kind.item_field.nullable))
    if kind not in _PLAIN:
        raise _no(kind, at, "Avro has no such type. Give another one")
    return kind


def _field(field: pa.Field, space: str) -> dict[str, Any]:
    kind = _avro(field.type, field.name, space)
    return {"name": field.name, "type": ["null", kind], "default": None} if field.nullable else {"name": field.name, "type": kind}


def _avro(kind: Any, name: str, space: str) -> Any:
    """The Avro type of a storable one in the field `name`, whose record has the full name `space`."""
    if _of.is_decimal(kind):
        return {
            "type": "fixed", "name": "fixed", "namespace": f"{space}.{name}", "size": _bytes(kind.precision), "logicalType": "decimal",
            "precision": kind.precision, "scale": kind.scale,
        }  # fmt: skip
    if _of.is_struct(kind):
        fields = [_field(kind.field(i), f"{space}.{name}") for i in range(kind.num_fields)]
        return {"type": "record", "name": name, "namespace": space, "fields": fields}
    if _of.is_list(kind):
        return {"type": "array", "items": _union(kind.value_field, name, space)}
    if _of.is_map(kind):
        return {"type": "map", "values": _union(kind.item_field, name, space)}
    return _PLAIN[kind]


def _union(field: pa.Field, name: str, space: str) -> Any:
    kind = _avro(field.type, name, space)
    return ["null", kind] if field.nullable else kind


def _bytes(digits: int) -> int:
    """The bytes of the smallest two's complement that holds so many digits."""
    return (int("9" * digits).bit_length() + 8) // 8


def _check_names(found: list[str], within: str) -> None:
    seen = dict[str, str]()
    for name in found:
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"the column {within + name!r} has a name that Avro does not take: use letters, digits and _, and no digit first"
            )
        if (other := seen.setdefault(name.lower(), name)) is not name:
            raise UsageError(f"the columns {within + other!r} and {within + name!r} are one to Spark: give one of them another name")
    if not found:
        raise UsageError(f"{f'the struct {within[:-1]!r}' if within else 'the table'} has no column: give it one")


def _sanitised(table: str) -> str:
    """A table's name as part of a record's name: Hudi writes two underscores for what Avro does not take there."""
    first = table[:1] if re.match(r"[A-Za-z_]", table) else "__"
    return first + re.sub(r"[^A-Za-z0-9_]", "__", table[1:])


def _no(kind: pa.DataType, at: str, why: str) -> UsageError:
    return UsageError(f"the column {at!r} is {str(kind)[:200]}, and {why}")


# ------------------------------------------------------------------------------------------------------------------- Avro to Arrow
_SchemaError = (KeyError, TypeError, ValueError, AttributeError, OverflowError)


def from_avro(text: str | bytes, where: str) -> pa.Schema:
    """The columns of a record's Avro schema, meta fields too; FormatError where it is damaged, or has a type that no table of ours has."""
    if len(text) > LARGEST:
        raise FormatError(f"{where} has a schema of {len(text):,} characters, and one has {LARGEST:,} at most: look who wrote it")
    try:
        kind = _Reader(where).kind(msgspec.json.decode(text), "", 0)
        if not _of.is_struct(kind):
            raise ValueError("it is not a record")
        return pa.schema([kind.field(i) for i in range(kind.num_fields)])
    except FormatError:
        raise
    except (msgspec.MsgspecError, RecursionError, UnicodeError, *ARROW, *_SchemaError) as e:
        raise FormatError(f"{where} has a damaged schema ({type(e).__name__}: {str(e)[:200]}). Restore it from a copy.") from e


class _Reader:
    """Reads one schema; it knows the names that were given so far."""

    def __init__(self, where: str) -> None:
        self.where, self.named, self.left = where, dict[str, tuple[pa.DataType, int]](), MANY

    def kind(self, avro: Any, space: str, depth: int) -> pa.DataType:
        self.left -= 1
        if depth > DEEP or self.left < 0:
            raise ValueError(f"it has more than {DEEP} levels or {MANY:,} types")
        if isinstance(avro, str):
            return _PRIMITIVE.get(avro) or self._known(avro, space)
        name = avro["type"]
        if not isinstance(name, str):
            return self.kind(name, space, depth + 1)
        return self._complex(avro, name, space, depth)

    def _complex(self, avro: Any, name: str, space: str, depth: int) -> pa.DataType:
        logical = str(avro.get("logicalType", ""))
        if logical.startswith("local-timestamp"):
            raise FormatError(f"{self.where} has a column of {logical[:80]}, which readers of Hudi fail on: quire does not read it")
        if logical == "decimal" and name in ("bytes", "fixed"):
            return self._name(avro, space, _decimal(avro)) if name == "fixed" else _decimal(avro)
        match name:
            case "record":
                return self._record(avro, space, depth)
            case "array":
                return pa.list_(self.field("element", avro["items"], space, depth + 1))
            case "map":
                return pa.map_(pa.string(), self.field("value", avro["values"], space, depth + 1))
            case "enum":
                return self._name(avro, space, pa.string())
            case "fixed":
                return self._name(avro, space, pa.binary(_size(avro["size"])))
            case _:
                return _LOGICAL.get((name, logical)) or self.kind(name, space, depth + 1)

    def field(self, name: str, avro: Any, space: str, depth: int) -> pa.Field:
        if not isinstance(avro, list):
            return pa.field(name, self.kind(avro, space, depth), False)
        kinds = [each for each in avro if each != "null"]
        if len(kinds) != 1 or len(avro) > 2:
            raise ValueError(f"the field {name[:80]!r} is a union of several types")
        return pa.field(name, self.kind(kinds[0], space, depth), len(avro) == 2)

    def _record(self, avro: Any, space: str, depth: int) -> pa.DataType:
        full = _full(avro, space)
        inner, before = full.rpartition(".")[0], self.left
        fields = []
        for each in avro["fields"]:
            if not isinstance(each["name"], str) or not each["name"]:
                raise ValueError("a field has no name")
            fields.append(self.field(each["name"], each["type"], inner, depth + 1))
        names = [f.name for f in fields]
        if len(set(names)) != len(names):
            raise ValueError("a field is there twice")
        found = pa.struct(fields)
        self.named[full] = (found, before - self.left)
        return found

    def _name(self, avro: Any, space: str, kind: pa.DataType) -> pa.DataType:
        self.named[_full(avro, space)] = (kind, 1)
        return kind

    def _known(self, name: str, space: str) -> pa.DataType:
        kind, types = self.named[name if "." in name or not space else f"{space}.{name}"]
        self.left -= types
        if self.left < 0:
            raise ValueError(f"it has more than {MANY:,} types")
        return kind


def _full(avro: Any, space: str) -> str:
    name, own = avro["name"], avro.get("namespace", space)
    if not isinstance(name, str) or not isinstance(own, str) or not name:
        raise ValueError("a type has no name")
    return name if "." in name or not own else f"{own}.{name}"


def _decimal(avro: Any) -> pa.DataType:
    precision, scale = avro["precision"], avro.get("scale", 0)
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision <= WIDE or precision < 1:
        raise ValueError(f"a decimal has {precision!r:.40} digits")
    return pa.decimal128(precision, scale)


def _size(size: Any) -> int:
    if type(size) is not int or not 1 <= size < 1 << 20:
        raise ValueError(f"a fixed has {size!r:.40} bytes")
    return size
