"""Columns of text as columns of types: what a call says of them, or what a sample shows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.formats.damage import ARROW
from quire.sources.transforms.schemas import type_text
from quire.sources.transforms.text.rejects import DoesNotFitError

_WHOLE = r"^[+-]?(0|[1-9][0-9]{0,17})$"  # a number with leading zeros is a name, as of a postal code
_FRACTION = r"^[+-]?((0|[1-9][0-9]{0,14})(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?$"  # a double holds 15 digits
_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
_INFERRED: tuple[tuple[str, pa.DataType], ...] = (
    (r"^(?i:true|false)$", pa.bool_()),
    (_WHOLE, pa.int64()),
    (_FRACTION, pa.float64()),
    (_DAY, pa.date32()),
    (_TIME + "$", pa.timestamp("us")),
    (_TIME + r"(Z|[+-][0-9]{2}(:?[0-9]{2})?)$", pa.timestamp("us", "UTC")),
)
# Which type holds the texts of two: any other pair is text.
_BOTH = {(pa.int64(), pa.float64()): pa.float64(), (pa.date32(), pa.timestamp("us")): pa.timestamp("us")}


def typed(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """The texts of a column as values of a type; DoesNotFitError names the column. Null stays null."""
    if column.type == kind:
        return column
    try:
        return (pc.utf8_trim_whitespace(column) if pa.types.is_string(column.type) else column).cast(kind)
    except (*ARROW, ValueError):
        raise DoesNotFitError(f"the column {name!r} is {type_text(kind, name)}, and a value of it is not") from None


def inferred(column: pa.Array) -> pa.DataType:
    """The type of the texts of a column; null: it has no value."""
    values = pc.utf8_trim_whitespace(column.drop_null())
    if not len(values):
        return pa.null()
    for like, kind in _INFERRED:
        if pc.all(pc.match_substring_regex(values, like)).as_py():
            try:
                values.cast(kind)
            except (*ARROW, ValueError):
                break  # a month 13, or a number of too many digits
            return kind
    return pa.string()


def holds(one: Any, other: Any) -> pa.DataType:
    """The type of a column that is of two types in two files."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    return _BOTH.get((one, other)) or _BOTH.get((other, one)) or pa.string()
