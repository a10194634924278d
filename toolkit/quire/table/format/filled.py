"""Columns in the types of a table, in which a part of a struct may have to have a value: a null struct is null, whatever its parts.

Arrow and Parquet keep values for the parts of a null struct, which nobody sees. Where these are null, Arrow neither casts them to a type
that has to have values, nor writes them, so they are filled.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_of = pa.types


def cast(column: Any, kind: Any) -> Any:
    """An array in another type; ArrowInvalid for a value that does not fit, or that is missing where nothing around it is null."""
    if isinstance(column, pa.ChunkedArray):
        return pa.chunked_array([cast(chunk, kind) for chunk in column.chunks], kind)
    if not _requires(kind) or column.type.equals(kind, check_metadata=True):
        return column.cast(kind)
    if _of.is_null(column.type):
        return nulls(len(column), kind)
    there = column.drop_null()
    if _of.is_struct(kind) and _of.is_struct(column.type):
        return _around(column, _struct(there, kind))
    if _of.is_list(kind) and _of.is_list(column.type):
        return pa.ListArray.from_arrays(_offsets(column), _part(there.flatten(), kind.value_field), kind, mask=column.is_null())
    if _of.is_map(kind) and _of.is_map(column.type):
        keys, items = there.keys.cast(kind.key_type), _part(there.items, kind.item_field)
        return pa.MapArray.from_arrays(_offsets(column), keys, items, kind, mask=column.is_null())
    return column.cast(kind)


def nulls(rows: int, kind: Any) -> pa.Array:
    """So many nulls of a type."""
    empty = pa.nulls(rows, kind)
    return _around(empty, empty.slice(0, 0)) if _of.is_struct(kind) and _requires(kind) else empty


def _requires(kind: Any) -> bool:
    """Whether something within a type has to have a value."""
    if _of.is_struct(kind):
        return any(not f.nullable or _requires(f.type) for f in kind)
    if _of.is_list(kind):
        return not kind.value_field.nullable or _requires(kind.value_type)
    return bool(_of.is_map(kind) and (not kind.item_field.nullable or _requires(kind.item_type)))


def _struct(there: pa.StructArray, kind: Any) -> pa.StructArray:
    """Structs of which none is null, in another type: a part that they do not have is null."""
    parts = dict(zip([f.name for f in there.type], there.flatten(), strict=True))
    if unknown := parts.keys() - {f.name for f in kind}:
        raise pa.ArrowInvalid(f"a struct has the field {min(unknown)!r}, which {str(kind)[:200]} does not have")
    return pa.StructArray.from_arrays([_part(parts.get(f.name, pa.nulls(len(there))), f) for f in kind], fields=list(kind))


def _part(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.null_count and not field.nullable:
        raise pa.ArrowInvalid(f"{column.null_count:,} values are missing in {field.name!r}, which has to have them")
    return cast(column, field.type)


def _around(column: pa.Array, there: pa.StructArray) -> pa.StructArray:
    """The structs `there` in the places where `column` has one; elsewhere null, with values for their parts that nobody sees."""
    if not column.null_count:
        return there
    whole = pa.concat_arrays([_one(there.type), there])
    places = pc.if_else(column.is_valid(), pc.cumulative_sum(column.is_valid().cast(pa.int64())), 0)
    parts = whole.take(places).flatten()
    return pa.StructArray.from_arrays(parts, fields=list(there.type), mask=column.is_null())


def _one(kind: Any) -> pa.Array:
    """One value of a type."""
    if _of.is_struct(kind):
        return pa.StructArray.from_arrays([_one(f.type) for f in kind], fields=list(kind))
    if _of.is_list(kind) or _of.is_map(kind):
        return pa.array([[]], kind)
    if _of.is_string(kind) or _of.is_binary(kind) or _of.is_fixed_size_binary(kind):
        return pa.array([b"\0" * getattr(kind, "byte_width", 0)] if _of.is_fixed_size_binary(kind) else [b""], pa.binary()).cast(kind)
    return pa.array([Decimal(0) if _of.is_decimal(kind) else False if _of.is_boolean(kind) else 0], kind)


def _offsets(column: Any) -> pa.Array:
    """Where the lists of a column end, of which the null ones have nothing."""
    lengths = np.where(column.is_valid().to_numpy(zero_copy_only=False), np.diff(column.offsets.to_numpy()), 0)
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
