"""The columns that directories `name=value` make, with the types that Spark would give them where quire does not know them."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from quire.errors import FormatError
from quire.formats import partitions
from quire.formats.damage import ARROW


def of(files: Sequence[str], columns: Sequence[str], by: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns that directories `name=value` make; none if not all files have them.

    `by`: those whose type is known; of others it is what Spark infers. A directory that is called like one of the data's own `columns`
    makes none.
    """
    known = {key: for_spark(kind) for key, kind in by.items() if key not in columns}
    if by and (not files or partitions.values(files[0]).keys() <= by.keys()):
        return known
    found = [partitions.values(name) for name in files]
    if not found or any(f.keys() != found[0].keys() for f in found):
        return known
    taken = {c.lower() for c in columns}
    return {
        key: known[key] if key in known else _kind([v for f in found if (v := f[key]) is not None])
        for key in found[0] if key.lower() not in taken
    }  # fmt: skip


def inferred(values: Sequence[str]) -> pa.DataType:
    """The type that Spark infers for the values of a directory; null where there is none."""
    return _kind([*values]) if values else pa.null()


def both(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The same for the values of two types."""
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    return _BOTH.get(frozenset((one, other)), pa.string())


def alone(file: str, made: Mapping[str, object]) -> bool:
    """Whether a file's directories are the partitions, in their order, and nothing else: what Spark asks for."""
    return [part.partition("=")[0] for part in file.split("/")[:-1]] == [*made]


def _kind(values: list[Any]) -> pa.DataType:
    small = [re.fullmatch(r"[+-]?[0-9]{1,19}", v) is not None and -(2**31) <= int(v) < 2**31 for v in values]
    if values and all(small):
        return pa.int32()
    if values and all(re.fullmatch(r"[+-]?[0-9]{1,19}", v) and -(2**63) <= int(v) < 2**63 for v in values):
        return pa.int64()
    if values and all(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", v) and _is_date(v) for v in values):
        return pa.date32()
    if values and all(i or re.fullmatch(r"[+-]?[0-9]*\.[0-9]+", v) for i, v in zip(small, values, strict=True)):
        return pa.float64()
    return pa.string()


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


_BOTH = {frozenset((pa.int32(), pa.int64())): pa.int64(), frozenset((pa.int32(), pa.float64())): pa.float64()}
_SPARK = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def for_spark(kind: Any) -> pa.DataType:
    """The type as which Spark reads a column of Parquet; it has no whole numbers without a sign."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, for_spark(f.type), f.nullable) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(for_spark(kind.key_type), for_spark(kind.item_type))
    return pa.list_(for_spark(kind.value_type)) if pa.types.is_list(kind) else _SPARK.get(kind, kind)


def value(file: str, key: str, kind: pa.DataType) -> pa.Array:
    """The value that a file's directory gives its column, as an array of one; FormatError where it is not of the column's type."""
    try:
        return partitions.typed(partitions.values(file).get(key), kind)
    except (ValueError, OverflowError, *ARROW) as e:
        raise FormatError(
            f"the data file {file} lies in a directory that is not of a column {key!r} of {kind}: look who put it there."
        ) from e


def with_values(batch: pa.RecordBatch, file: str, made: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    """The rows of a file with the columns that its directories make."""
    if not made:
        return batch
    rows = pa.array(np.zeros(batch.num_rows, np.int64))
    arrays = [*batch.columns, *(value(file, key, kind).take(rows) for key, kind in made.items())]
    return pa.record_batch(arrays, [*batch.schema.names, *made])
