"""The possible results of a user's function, as the rows or bytes that are written: one batch of the destination's columns, or lines."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.formats.damage import ARROW
from quire.sources.transforms.columns import DEEP, MORE, check_cast, check_names, nullable
from quire.sources.transforms.functions import WrongTypeError, owned, type_name
from quire.sources.transforms.widening import DiffersError

# Lines (each ended) as bytes, a table, or dicts that become one; None without output.
Rows = Any

_ALLOWED = "allowed are a pyarrow Table or RecordBatch, a pandas DataFrame, a list of dicts, bytes, or None"


def made(result: object) -> Rows:
    """A function's result; an iterable is exhausted here, so that an exception in a generator is the function's error."""
    if result is None:
        return None
    if isinstance(result, bytes | bytearray | memoryview):
        return _lines([bytes(result)])
    table = _table(result)
    if table is not None:
        return pa.Table.from_batches(map(owned, table.to_batches()), table.schema) if table.num_rows else None
    if inspect.iscoroutine(result):
        result.close()
    if isinstance(result, str | Mapping) or not isinstance(result, Iterable):
        raise WrongTypeError(f"the function returned {type_name(result)}; {_ALLOWED}")
    items = list(result)
    if items and all(isinstance(item, bytes | bytearray | memoryview) for item in items):
        return _lines([bytes(item) for item in items])
    for number, item in enumerate(items, 1):
        if not isinstance(item, Mapping):
            raise WrongTypeError(f"the function returned an iterable whose item {number} is {type_name(item)}; {_ALLOWED}")
        for name in item:
            if not isinstance(name, str):
                raise WrongTypeError(
                    f"the function returned a dict (item {number}) with a key that is {type_name(name)}: columns have text for names"
                )
    return _Dicts(items) if items else None


def _table(result: object) -> pa.Table | None:
    if isinstance(result, pa.RecordBatch):
        return pa.Table.from_batches([result])
    if isinstance(result, pa.Table):
        return result
    pandas = sys.modules.get("pandas")  # who returns its frames has imported it
    if pandas is not None and isinstance(result, pandas.DataFrame):
        for values in (values for _, values in result.items() if values.dtype == object):
            _check_depth(values)
        try:
            return pa.Table.from_pandas(result, preserve_index=False)
        except (*ARROW, ValueError, TypeError) as e:
            raise WrongTypeError(f"the function returned a DataFrame that Arrow does not take ({type(e).__name__})") from None
    return None


def _lines(records: list[bytes]) -> bytes | None:
    """Records as lines, each with one newline at its end."""
    return b"".join(record if record.endswith(b"\n") else record + b"\n" for record in records if record) or None


# A value for which Arrow finds no type, by what it raises.
_WHY: dict[type[BaseException], str] = {
    OverflowError: "holds a whole number of more than 64 bits: let the function give text or a decimal",
    UnicodeEncodeError: "holds text with half of a surrogate pair, which is not valid Unicode: let the function replace it",
    Exception: "holds values of several types, or of one that Arrow does not know",
}
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Dicts:
    """Rows as dicts: what type they become is known with the schema."""

    def __init__(self, rows: list[Mapping[str, Any]]) -> None:
        self.rows = rows

    def table(self, schema: pa.Schema | None, evolves: str = "") -> pa.Table:
        names = dict.fromkeys(name for row in self.rows for name in row)
        if schema is not None:
            if evolves != MORE:
                _check_known(names, schema)
            names = dict.fromkeys([*schema.names, *names])
        for name in names:
            if not name.isascii() and _SURROGATE.search(name):
                raise WrongTypeError(f"the rows have the column {name!r}, whose name is not valid Unicode (half of a surrogate pair)")
        columns = {}
        for name in names:
            kind = None if schema is None or name not in schema.names else schema.field(name).type
            values = [row.get(name) for row in self.rows]
            try:
                columns[name] = _array_or_wider(values, kind) if evolves == MORE else _array(values, kind)
            except (*ARROW, ValueError, TypeError, OverflowError) as e:
                what = _WHY.get(type(e), _WHY[Exception]) if kind is None else f"holds a value that is not of type {kind}"
                raise WrongTypeError(f"the column {name!r} {what} ({type(e).__name__})") from None
        return pa.table(columns)


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """Values as an array of a type. Left alone, Arrow cuts 3.5 to 3 and a time to its day where it is told the type."""
    if kind is None or not pa.types.is_nested(kind):
        _check_depth(values)
    if kind is None or not _cuts(kind):
        if kind is None or not pa.types.is_nested(kind):
            return pa.array(values, kind)
        _check_cuts(values, kind, _cut_to_fit)
        made = pa.array(values, kind)
        if _infinite(made):
            _check_cuts(values, kind, pa.types.is_floating)
        return made
    try:
        found = pa.array(values)
    except (pa.ArrowInvalid, OverflowError):
        if not all(value is None or isinstance(value, int) for value in values):
            raise
        return pa.array(values, kind)  # beyond 63 bits
    return _cast(found, kind)


def _array_or_wider(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    """The same, or as Arrow finds them, where the type may grow and does not hold them."""
    try:
        return _array(values, kind)
    except (*ARROW, ValueError, TypeError, OverflowError):
        return _array(values, None)


def _check_known(names: Iterable[str], schema: pa.Schema) -> None:
    if unknown := next((name for name in names if name not in schema.names), None):
        raise DiffersError(f"the rows have the column {unknown!r}, which the schema does not: {', '.join(schema.names)}")


def _check_depth(values: Iterable[Any]) -> None:
    """WrongTypeError for too many lists and dicts within each other: Arrow looks into them by recursion, which ends the process."""
    for _ in range(DEEP):
        within = (value for value in values if isinstance(value, list | tuple | Mapping))
        values = [item for value in within for item in (value.values() if isinstance(value, Mapping) else value)]
        if not values:
            return
    raise WrongTypeError(f"the rows hold more than {DEEP} lists or dicts within each other")


def _cast(column: Any, kind: pa.DataType) -> Any:
    """An array in another type; ArrowInvalid where something is lost, also what Arrow's safe cast lets pass: the time of a day."""
    found = column.cast(kind)
    if pa.types.is_timestamp(column.type) and (pa.types.is_time(kind) or (pa.types.is_date(kind) and found.cast(column.type) != column)):
        raise pa.ArrowInvalid("a time of a day would be lost")
    if _infinite(found) > _infinite(column):
        raise pa.ArrowInvalid("too large")
    return found


def _infinite(column: Any) -> int:
    """How many of the numbers in a column, also within lists, maps and structs, are infinite."""
    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return sum(map(_infinite, column.chunks))
    if pa.types.is_floating(kind):
        wide = column.cast(pa.float32()) if pa.types.is_float16(kind) else column
        return pc.sum(pc.is_inf(wide)).as_py() or 0
    if pa.types.is_struct(kind):
        return sum(map(_infinite, column.flatten()))
    if pa.types.is_map(kind):
        return _infinite(column.keys) + _infinite(column.items)
    return _infinite(column.flatten()) if pa.types.is_list(kind) or pa.types.is_large_list(kind) else 0


def _cuts(kind: pa.DataType) -> bool:
    return _cut_to_fit(kind) or bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))  # in which 1e300 is infinite


def _cut_to_fit(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def _check_cuts(value: Any, kind: pa.DataType, cuts: Callable[[pa.DataType], bool]) -> None:
    """ValueError for what would be cut within lists, maps and structs."""
    if value is None:
        return
    if isinstance(value, list):
        inner = kind.value_type if pa.types.is_list(kind) or pa.types.is_large_list(kind) else kind
        for item in value:
            _check_cuts(item, inner, cuts)
    elif isinstance(value, tuple) and pa.types.is_map(kind):
        for item, of in zip(value, (kind.key_type, kind.item_type), strict=True):
            _check_cuts(item, of, cuts)
    elif isinstance(value, Mapping) and pa.types.is_struct(kind):
        for field in kind:
            _check_cuts(value.get(field.name), field.type, cuts)
    elif not isinstance(value, Mapping) and cuts(kind):
        _cast(pa.array([value]), kind)


def fitted(rows: Any, schema: pa.Schema | None, evolves: str = "") -> pa.Table:
    """Rows in the columns of a schema, cast so that nothing is lost; without one as they are.

    WrongTypeError says which column does not fit. `evolves`: columns may be FEWER, or MORE and wider (see `columns.together`).
    Arrow's safe cast decides what is lost: digits, a time of day, a number that is too large, text that is not a number.
    """
    table: pa.Table = rows.table(schema, evolves) if isinstance(rows, _Dicts) else rows
    names = table.schema.names
    check_names(table.schema)
    if schema is None:
        return table.replace_schema_metadata(None)
    if names != schema.names:
        if not evolves and (missing := [name for name in schema.names if name not in names]):
            raise DiffersError(f"the rows lack the column {missing[0]!r}: they have {', '.join(names)}")
        if evolves != MORE:
            _check_known(names, schema)
    columns = dict[str, Any]()
    for field in schema:
        if field.name not in names and evolves:
            continue
        column = table.column(field.name)
        if column.type != field.type:
            check_cast(column.type, field.name)
            try:
                column = _cast(column, field.type)
            except ARROW as e:
                if evolves == MORE:
                    columns[field.name] = column
                    continue
                raise WrongTypeError(
                    f"the column {field.name!r} is {column.type}, and not all of it fits into {field.type} ({type(e).__name__})"
                ) from None
        if not field.nullable and column.null_count:
            raise WrongTypeError(f"the column {field.name!r} is not null by the schema, and {column.null_count:,} rows have no value in it")
        columns[field.name] = column
    if evolves:
        return pa.table({**columns, **{name: table.column(name) for name in names if name not in columns}})
    return pa.table([*columns.values()], schema=nullable(schema))


def as_batch(table: pa.Table) -> pa.RecordBatch:
    """All of a table as one batch."""
    batches = table.combine_chunks().to_batches()
    if len(batches) > 1:
        raise WrongTypeError("the function returned rows that do not fit into one batch. Split the input smaller, split_size=")
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
