"""Rows of one schema in the columns of another, by name: what only the first has is left out, what only the second has is null."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from quire.sources.transforms.content import BadContent


def projected(rows: pa.RecordBatch, into: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns of `into`, whose types are left to `fitted`; BadContent where the two have no column in common."""
    if not set(rows.schema.names) & set(into.names):
        raise BadContent(f"it has none of the columns: its fields are {', '.join(rows.schema.names)[:150]}")
    columns = [_column(rows, field) for field in into]
    return pa.record_batch(columns, names=into.names)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    at = rows.schema.get_field_index(field.name)
    return pa.nulls(rows.num_rows, field.type) if at < 0 else _like(rows.column(at), field.type)


def _like(column: Any, kind: Any) -> pa.Array:
    of, has = pa.types, column.type
    if has == kind or not of.is_nested(kind) or not of.is_nested(has):
        return column
    if of.is_struct(has) and of.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        inner = pa.RecordBatch.from_arrays(column.flatten(), [f.name for f in has])
        made = [_column(inner, field) for field in fields]
        return pa.StructArray.from_arrays(made, [f.name for f in fields], mask=column.is_null())
    if of.is_list(has) and of.is_list(kind):
        return pa.ListArray.from_arrays(_offsets(column), _like(column.flatten(), kind.value_type), mask=column.is_null())
    if of.is_map(has) and of.is_map(kind):
        offsets = pa.array(column.offsets.to_numpy())  # of a part of an array they say which of its items are meant
        return pa.MapArray.from_arrays(offsets, column.keys, _like(column.items, kind.item_type), mask=column.is_null())
    return column


def _offsets(column: Any) -> pa.Array:
    """Where lists begin and end among their flattened items."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
