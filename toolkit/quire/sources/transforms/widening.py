"""Columns that grow: which columns hold the rows of two schemas, and rows in the wider ones.

Columns are known by their names. One that is lacking is null; whole numbers, fractions, decimals and days widen to what holds both, within
structs, lists and maps, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.sources.transforms.functions import WrongTypeError

_EXACT = 1 << 53  # from there on a fraction stands for several whole numbers
_BITS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


class DiffersError(WrongTypeError):
    """Rows have other columns than those that they are to lie beside; the message says which, and their types."""


# ------------------------------------------------------------------------------------------------------------------------- columns
def widened(one: pa.Schema, other: pa.Schema, *, of_text: bool = False) -> pa.Schema:
    """The columns of both, in the order of the first; DiffersError names the column of which no type holds both."""
    return pa.schema(_fields(list(one), list(other), "", of_text))


def _fields(one: list[pa.Field], other: list[pa.Field], within: str, of_text: bool) -> list[pa.Field]:
    theirs, lower = {f.name: f for f in other}, {f.name.lower(): f.name for f in one}
    for field in other:
        if (near := lower.get(field.name.lower(), field.name)) != field.name:
            raise DiffersError(f"the column {within + field.name!r} is called {within + near!r} in other files")
    found = [pa.field(f.name, wider(f.type, theirs[f.name].type, within + f.name, of_text) if f.name in theirs else f.type) for f in one]
    return found + [pa.field(f.name, f.type) for f in other if f.name.lower() not in lower]


def wider(one: Any, other: Any, at: str, of_text: bool = False) -> pa.DataType:
    """The type that holds both; DiffersError where none does. `at`: the column."""
    of = pa.types
    if one == other or of.is_null(other):
        return one
    if of.is_null(one):
        return other
    for like, widen in _WIDENING:
        if like(one) and like(other) and (kind := widen(one, other)) is not None:
            return kind
    if of_text and {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if of.is_struct(one) and of.is_struct(other):
        return pa.struct(_fields([*one], [*other], f"{at}.", of_text))
    if of.is_list(one) and of.is_list(other):
        return pa.list_(wider(one.value_type, other.value_type, f"{at}[]", of_text))
    if of.is_map(one) and of.is_map(other):
        return pa.map_(wider(one.key_type, other.key_type, f"{at}.key"), wider(one.item_type, other.item_type, f"{at}.value"))
    raise DiffersError(f"the column {at!r} is {other}, and {one} in other files")


def _whole(one: Any, other: Any) -> pa.DataType | None:
    """The smallest signed type that holds both, where they are not both unsigned."""
    signs = [pa.types.is_signed_integer(kind) for kind in (one, other)]
    if not any(signs):
        return max(one, other, key=lambda kind: kind.bit_width)
    bits = max(kind.bit_width * (1 if signed else 2) for kind, signed in zip((one, other), signs, strict=True))
    return _BITS.get(bits)


def _number(one: Any, other: Any) -> pa.DataType | None:
    """A fraction that holds both: a whole number of up to 32 bits fits into a double."""
    of = pa.types
    if of.is_floating(one) and of.is_floating(other):
        return max(one, other, key=lambda kind: kind.bit_width)
    whole = one if of.is_integer(one) else other
    return pa.float64() if whole.bit_width <= 32 else None


def _decimal(one: Any, other: Any) -> pa.DataType | None:
    scale, before = max(one.scale, other.scale), max(one.precision - one.scale, other.precision - other.scale)
    return pa.decimal128(before + scale, scale) if before + scale <= 38 else None


def _time(one: Any, other: Any) -> pa.DataType | None:
    """A date becomes a time without a zone; times with and without a zone are not the same."""
    of = pa.types
    if of.is_timestamp(one) and of.is_timestamp(other):
        return None
    kind = one if of.is_timestamp(one) else other
    return kind if kind.tz is None else None


def _any_of(*tests: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda kind: any(test(kind) for test in tests)


_WIDENING: tuple[tuple[Callable[[Any], bool], Callable[[Any, Any], pa.DataType | None]], ...] = (
    (pa.types.is_integer, _whole),
    (_any_of(pa.types.is_floating, pa.types.is_integer), _number),
    (pa.types.is_decimal, _decimal),
    (_any_of(pa.types.is_timestamp, pa.types.is_date), _time),
)


def difference(there: pa.Schema, now: pa.Schema) -> str:
    """The columns that are new or wider in a schema which has grown."""
    said = [f"the column {f.name!r} ({f.type}) is not there" for f in now if f.name not in there.names]
    said += [f"{f.name!r} is {f.type} there, and {now.field(f.name).type} would hold both" for f in there if now.field(f.name) != f]
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


# ---------------------------------------------------------------------------------------------------------------------------- rows
def as_wider(column: pa.ChunkedArray | pa.Array, kind: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """A column of type `kind`, as it is stored, in a wider one; ArrowInvalid where a value does not fit."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return filled(column if column.type == kind else column.cast(kind), wanted)


def rounded(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether a column of whole numbers would get fractions that may have been other whole numbers, before they were read beside others."""
    of = pa.types
    if of.is_struct(kind) and of.is_struct(column.type):
        theirs = {column.type.field(i).name: child for i, child in enumerate(column.flatten())}
        return any(rounded(theirs[f.name], f.type) for f in map(kind.field, range(kind.num_fields)) if f.name in theirs)
    if of.is_list(kind) and of.is_list(column.type):
        return rounded(column.flatten(), kind.value_type)
    if of.is_map(kind) and of.is_map(column.type):
        return rounded(column.items, kind.item_type)
    return of.is_integer(kind) and of.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) >= _EXACT


def in_columns(rows: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Rows in wider columns: what they lack is null."""
    there = {name: rows.column(name) for name in rows.schema.names}
    found = [filled(there[f.name], f.type) if f.name in there else pa.nulls(rows.num_rows, f.type) for f in columns]
    return pa.record_batch(found, schema=columns)


def filled(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same, where structs may have fields more: these are null."""
    of = pa.types
    if column.type == kind:
        return column
    if of.is_null(column.type):
        return pa.nulls(len(column), kind)
    if of.is_struct(kind) and of.is_struct(column.type):
        theirs = {column.type.field(i).name: child for i, child in enumerate(column.flatten())}
        if unknown := next((name for name in theirs if kind.get_field_index(name) < 0), None):
            raise pa.ArrowInvalid(f"its field {unknown!r} is not there")
        fields = [kind.field(i) for i in range(kind.num_fields)]
        children = [filled(theirs[f.name], f.type) if f.name in theirs else pa.nulls(len(column), f.type) for f in fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null() if column.null_count else None)
    if of.is_list(kind) and of.is_list(column.type):
        offsets = _offsets(column)
        return pa.ListArray.from_arrays(offsets, filled(column.flatten(), kind.value_type), type=kind, mask=_mask(column))
    if of.is_map(kind) and of.is_map(column.type):
        column = pa.concat_arrays([column]) if column.offset else column  # from_arrays takes no nulls beside an offset
        keys, items = filled(column.keys, kind.key_type), filled(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=_mask(column))
    return column.cast(kind)


def _offsets(column: Any) -> pa.Array:
    """Where each list begins among the values of `flatten`, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]) if len(column) else pa.array([0], pa.int32())


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None
