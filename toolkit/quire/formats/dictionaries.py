"""Which columns of a Parquet file are worth a dictionary: one of values that hardly come twice is given up when it is made."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

# Where so many of the first rows differ a file has some 250,000 values, and a dictionary of them is larger than Parquet's writers allow.
SAMPLE, DIFFERENT = 10_000, 0.98


def worth(first: pa.Table) -> list[str]:
    """The columns by the names of their leaves, as Parquet calls them; `first`: the rows with which a file begins."""
    columns = zip(first.schema, first.columns, strict=True)
    return [leaf for each, values in columns if not _differs(values) for leaf in _leaves(each, each.name)]


def _differs(column: pa.ChunkedArray) -> bool:
    """Whether a dictionary of its values would be given up when it is made: text and numbers that hardly come twice in a file."""
    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return False
    some = column.slice(0, SAMPLE)
    try:
        return bool(pc.count_distinct(some).as_py() > DIFFERENT * len(some))
    except pa.ArrowNotImplementedError:  # intervals of months, say
        return False


def _leaves(column: pa.Field, at: str) -> Iterator[str]:
    """The paths of a column's leaves."""
    kind = column.type
    if pa.types.is_struct(kind):
        for i in range(kind.num_fields):
            yield from _leaves(kind.field(i), f"{at}.{kind.field(i).name}")
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield from _leaves(kind.value_field, f"{at}.list.element")
    elif pa.types.is_map(kind):
        yield f"{at}.key_value.key"
        yield from _leaves(kind.item_field, f"{at}.key_value.value")
    else:
        yield at
