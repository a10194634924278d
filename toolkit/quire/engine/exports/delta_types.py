"""Columns of Parquet as Delta's schema has them: Arrow types → the names and objects of its `schemaString`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from quire.errors import RefusedError, quoted

ARROW: dict[str, pa.DataType] = {
    "string": pa.string(), "long": pa.int64(), "integer": pa.int32(), "short": pa.int16(), "byte": pa.int8(), "float": pa.float32(),
    "double": pa.float64(), "boolean": pa.bool_(), "binary": pa.binary(), "date": pa.date32(),
    "decimal(20,0)": pa.decimal128(20, 0),
}  # fmt: skip
_NAMED = {kind: name for name, kind in ARROW.items()} | {
    pa.large_string(): "string", pa.string_view(): "string", pa.large_binary(): "binary", pa.binary_view(): "binary", pa.date64(): "date",
    pa.uint8(): "short", pa.uint16(): "integer", pa.uint32(): "long", pa.uint64(): "decimal(20,0)",
}  # fmt: skip
_FINEST = ("s", "ms", "us")


def fields(own: pa.Schema, made: Mapping[str, str], where: str) -> tuple[list[dict[str, Any]], bool]:
    """The fields of a table: a data file's own, and those that its directories make; and whether any has a time without a zone."""
    types = {field.name: of(field.type, field.name, where) for field in own} | dict(made)
    found = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in types.items()]
    return found, "timestamp_ntz" in str(list(types.values()))


def of(kind: pa.DataType, column: str, where: str) -> Any:
    """A type; RefusedError for one that Delta does not have."""
    if named := _NAMED.get(kind):
        return named
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind) and kind.unit in _FINEST:
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pa.types.is_fixed_size_binary(kind):
        return "binary"
    if pa.types.is_dictionary(kind):
        return of(kind.value_type, column, where)
    if pa.types.is_struct(kind):
        parts = [{"name": f.name, "type": of(f.type, f"{column}.{f.name}", where), "nullable": True, "metadata": {}} for f in kind]
        return {"type": "struct", "fields": parts}
    if pa.types.is_map(kind):
        key, value = (of(each, column, where) for each in (kind.key_type, kind.item_type))
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return {"type": "array", "elementType": of(kind.value_type, column, where), "containsNull": True}
    raise RefusedError(
        f"the column {quoted(column)} of {where} is {kind}, which Delta does not have: leave it out, or give it another type."
    )
