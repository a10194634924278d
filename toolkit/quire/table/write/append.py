"""A log file of a merge-on-read table: the rows and deletes that a commit brings for a slice, as blocks. Its base file is not read.

Source: Hudi's `HoodieAppendHandle`. Deletes carry the value of the ordering field, so that a later row of greater ordering outlives them.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import RefusedError
from quire.table.format import log_content, schema
from quire.table.format.log_content import Delete
from quire.table.format.log_file import Block
from quire.table.format.schema import META
from quire.table.write.blocks import PIECE
from quire.table.write.merge import Brought

_DIGITS, _PLACES = 30, 15  # of a decimal in a delete
_DECIMAL = decimal.Context(prec=_DIGITS, traps=[decimal.InvalidOperation])
_EPOCH = dt.date(1970, 1, 1)


@dataclass(frozen=True)
class Appending:
    """The same for all blocks of a log file; `task`: a number for the names of rows."""

    instant: str
    task: str
    partition: str
    group: str
    columns: pa.Schema  # of the table, without the meta columns
    table: str
    ordering: str
    as_avro: bool = False

    def blocks(self, parts: Iterable[Brought]) -> Iterator[tuple[Block, int, int]]:
        """The blocks with the numbers of their rows and of their deletes; a few megabytes of rows are in each."""
        begun, kinds = 0, schema.storable(self.columns)
        value = ordering_value(kinds.field(self.ordering))
        avro = schema.to_avro(kinds, self.table, meta=True)
        for some in _gathered(parts):
            goes = pa.concat_arrays([each.deletes for each in some])
            keys = pa.concat_arrays([each.keys for each in some])
            rows = pa.concat_tables([each.rows for each in some])
            if stays := len(goes) - (deletes := pc.sum(goes).as_py()):
                kept = pc.invert(goes)
                whole = self._whole(rows.filter(kept), keys.filter(kept), begun)
                yield log_content.of_rows(self.instant, whole, self.table, as_avro=self.as_avro), stays, 0
                begun += stays
            if deletes:
                orderings = rows.column(self.ordering).filter(goes).cast(kinds.field(self.ordering).type)
                said = [
                    Delete(key, self.partition, value(each))
                    for key, each in zip(keys.filter(goes).to_pylist(), _plain(orderings), strict=True)
                ]
                yield log_content.of_deletes(self.instant, avro, said), 0, deletes

    def _whole(self, rows: pa.Table, keys: pa.Array, begun: int) -> pa.Table:
        """Rows with the meta columns; a row in a log has the id of its file group where others have the name of their file."""
        n = rows.num_rows
        numbers = pa.array(np.arange(begun, begun + n)).cast(pa.string())
        meta = [
            pa.repeat(pa.scalar(self.instant), n), pc.binary_join_element_wise(f"{self.instant}_{self.task}", numbers, "_"), keys,
            pa.repeat(pa.scalar(self.partition), n), pa.repeat(pa.scalar(self.group), n),
        ]  # fmt: skip
        return pa.table([*meta, *(rows.column(f.name) for f in self.columns)], [*META, *self.columns.names])


def _gathered(parts: Iterable[Brought]) -> Iterator[list[Brought]]:
    """Rows that stand in one block: an index gives many small pieces."""
    some, size = list[Brought](), 0
    for each in parts:
        if some and size + each.rows.nbytes > PIECE:
            yield some
            some, size = [], 0
        some.append(each)
        size += each.rows.nbytes
    if some:
        yield some


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The values as a delete has them: times as numbers of microseconds."""
    values: list[Any] = (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def ordering_value(of: pa.Field) -> Callable[[Any], tuple[str, Any]]:
    """Makes the ordering of a delete, as JVM Hudi's is compared with the rows'; RefusedError for columns of which it makes none."""
    kind, name = of.type, of.name
    for is_kind, word in (
        (pa.types.is_int64, "Long"), (pa.types.is_timestamp, "Long"), (pa.types.is_float32, "Float"), (pa.types.is_float64, "Double"),
        (pa.types.is_string, "String"),
    ):  # fmt: skip
        if is_kind(kind):
            return lambda value: (word, value)
    if pa.types.is_int32(kind):
        return lambda value: ("Int", _not_zero(value, name))
    if pa.types.is_date32(kind):
        return lambda value: ("Date", (value - _EPOCH).days)
    if pa.types.is_decimal(kind):
        return lambda value: ("Decimal", _scaled(value, name))
    raise RefusedError(
        f"the ordering field {name!r} is of the type {kind}, by which Hudi orders no deletes in logs. Order by a number, a time or text."
    )


def _not_zero(value: int, name: str) -> int:
    if value == 0:
        raise RefusedError(
            f"a row that deletes has 0 in the ordering field {name!r}, an int: Hudi would take that for a delete of any row. Give another "
            "value, or order by a bigint."
        )
    return value


def _scaled(value: decimal.Decimal, name: str) -> decimal.Decimal:
    try:
        return value.quantize(decimal.Decimal(1).scaleb(-_PLACES), context=_DECIMAL)
    except decimal.InvalidOperation:
        raise RefusedError(
            f"a row that deletes has {str(value)[:60]} in the ordering field {name!r}, and Hudi has room for {_DIGITS - _PLACES} digits "
            f"before the point and {_PLACES} behind it."
        ) from None
