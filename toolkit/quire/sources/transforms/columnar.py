"""Files that hold columns: their rows as they are, in the columns that all files of a job have together.

    parquet, orc   small files become few large ones; Arrow decodes and encodes, and no row becomes an object of Python's
    avro           the same, of records (see `avro`)

Columns are known by their names. One that a file lacks is null there; whole numbers, fractions, decimals, dates and times widen to what
holds both, within structs, lists and maps, too. The columns are frozen with the plan (see `common`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.formats.damage import ARROW
from quire.sources.transforms import apart
from quire.sources.transforms.columns import DiffersError, nullable, storable, stored
from quire.sources.transforms.content import BadContent, check_size
from quire.sources.transforms.functions import WrongTypeError

NAMES = ("parquet", "orc", "avro")
TOGETHER = 128 << 20  # bytes of values of files whose rows are made together
_DAMAGED = (*ARROW, OSError, ValueError, KeyError)
_BITS = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}


# -------------------------------------------------------------------------------------------------------------------- one file
def schema_of(kind: str, file: Any) -> pa.Schema:
    """The columns of a file, as they are stored; BadContent where it is damaged, or has a column that is not taken."""
    try:
        return _taken(_SCHEMAS[kind](file))
    except _DAMAGED as e:
        raise _not_read(kind, e) from None


def rows(kind: str, content: bytes, columns: pa.Schema | None) -> pa.RecordBatch:
    """All rows of a file in `columns`, or in its own; BadContent says which column does not fit."""
    return _one(_table(kind, content, columns), "it")


def together(kind: str, contents: Sequence[bytes], columns: pa.Schema) -> tuple[pa.RecordBatch, list[int]]:
    """The rows of several files, one after the other, and how many each has; BadContent where one of them does not fit."""
    tables, held = list[pa.Table](), 0
    for content in contents:
        tables.append(_table(kind, content, columns))
        held += tables[-1].nbytes
        if held > TOGETHER and len(tables) > 1:  # small files may hold many values: fewer at once
            raise BadContent(f"they hold more than {TOGETHER:,} bytes of values")
    return _one(pa.concat_tables(tables), "all of them together"), [table.num_rows for table in tables]


def _table(kind: str, content: bytes, columns: pa.Schema | None) -> pa.Table:
    try:
        table = _TABLES[kind](content)
        columns = _taken(table.schema) if columns is None else columns
        return pa.Table.from_arrays(table.columns, schema=columns) if table.schema.equals(columns) else _widened(table, columns)
    except _DAMAGED as e:
        raise _not_read(kind, e) from None


def _one(table: pa.Table, what: str) -> pa.RecordBatch:
    arrays = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    if any(isinstance(each, pa.ChunkedArray) and each.num_chunks > 1 for each in arrays):
        raise BadContent(f"a column of {what} holds more than 2 GiB, in {table.num_rows:,} rows. Write smaller files at its source")
    arrays = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in arrays]
    return pa.record_batch(arrays, schema=table.schema)


def _parquet(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, pre_buffer=False, coerce_int96_timestamp_unit="us")


def _schema_of_parquet(source: Any) -> pa.Schema:
    file = _parquet(source)
    return _instants(file, file.schema_arrow)


def _read(content: bytes) -> pa.Table:
    file = _parquet(pa.BufferReader(content))
    encoded = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    check_size(encoded, file.metadata.num_rows, file.metadata.num_columns)
    table = file.read(use_threads=False)
    said = file.metadata.metadata or {}
    if any(key in said for key in _LEGACY):
        _check_legacy(table)
    schema = _instants(file, table.schema)
    return table if schema is table.schema else table.cast(schema)


def _schema_of_orc(file: Any) -> pa.Schema:
    if isinstance(file, pa.BufferReader):
        return apart.ask(apart.SCHEMA, file.read()).schema
    from pyarrow.orc import ORCFile  # of a long file: only its footer is read

    return ORCFile(file).schema


def _avro() -> ModuleType:
    from quire.sources.transforms import avro  # where it is needed: every task would start later

    return avro


_SCHEMAS: dict[str, Callable[[Any], pa.Schema]] = {
    "parquet": _schema_of_parquet,
    "orc": _schema_of_orc,
    "avro": lambda file: _avro().schema_of(file),
}
_TABLES: dict[str, Callable[[bytes], pa.Table]] = {
    "parquet": _read,
    "orc": functools.partial(apart.ask, apart.ROWS),
    "avro": lambda content: _avro().table(content),
}


def _instants(file: pq.ParquetFile, schema: pa.Schema) -> pa.Schema:
    """The same, where INT96 is an instant, as Spark, Hive and Impala read it: Arrow takes it for a time without a zone."""
    plain = [f.name for f in schema if pa.types.is_timestamp(f.type) and f.type.tz is None]
    if not plain:
        return schema
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    old = {leaf.path for leaf in leaves if leaf.physical_type == "INT96"}
    if old.isdisjoint(plain):
        return schema
    return pa.schema([f.with_type(pa.timestamp("us", "UTC")) if f.name in plain and f.name in old else f for f in schema])


# Spark writes so where its days and times before the Gregorian calendar are to be read by the older one.
_LEGACY = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_GREGORIAN = (-25_567, -25_567 * 86_400_000_000)  # from 1900 on both calendars, and all zones, agree: days, microseconds


def _check_legacy(table: pa.Table) -> None:
    for field, column in zip(table.schema, table.columns, strict=True):
        days = pa.types.is_date32(field.type)
        if days or pa.types.is_timestamp(field.type):
            number = column.cast(pa.int32()) if days else column.cast(pa.timestamp("us", field.type.tz)).cast(pa.int64())
            least = pc.min(number).as_py()
            if least is not None and least < _GREGORIAN[not days]:
                raise BadContent(
                    f"the column {field.name!r} holds days before 1900 in Spark's older calendar, which no other reader knows. Write them "
                    f"anew with spark.sql.parquet.datetimeRebaseModeInWrite=CORRECTED"
                )


def _widened(table: pa.Table, columns: pa.Schema) -> pa.Table:
    own = _taken(table.schema)
    # A column without any value may be left out: nothing says its type, and nothing is lost.
    if unknown := next((f.name for f in own if f.name not in columns.names and not pa.types.is_null(f.type)), None):
        raise BadContent(_new(unknown, own.field(unknown).type))
    found = []
    for field in columns:
        if field.name not in own.names:
            found.append(pa.nulls(table.num_rows, field.type))
            continue
        mine = own.field(field.name).type
        try:
            if _wider(field.type, mine, field.name) != field.type:  # Arrow would cast more than that: texts to numbers, and back
                raise pa.ArrowInvalid(f"only {_wider(field.type, mine, field.name)} would hold both")
            found.append(_as(table.column(field.name), mine, field.type))
        except DiffersError as e:
            raise BadContent(f"{e}, whose columns the destination has") from None
        except (*ARROW, ValueError) as e:
            raise BadContent(f"the column {field.name!r} is {mine} and does not fit into {field.type} ({_line(e)})") from None
    return pa.table(found, schema=columns)


def _as(column: pa.ChunkedArray, kind: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """A column of type `kind`, as it is stored, in a wider one; ArrowInvalid where a value does not fit."""
    whole = pa.concat_arrays(column.chunks) if column.num_chunks else pa.nulls(0, column.type)
    return _filled(whole if whole.type == kind else whole.cast(kind), wanted)


def _filled(column: pa.Array, kind: pa.DataType) -> pa.Array:
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
        children = [_filled(theirs[f.name], f.type) if f.name in theirs else pa.nulls(len(column), f.type) for f in fields]
        return pa.StructArray.from_arrays(children, fields=fields, mask=column.is_null() if column.null_count else None)
    if of.is_list(kind) and of.is_list(column.type):
        offsets = _offsets(column)
        return pa.ListArray.from_arrays(offsets, _filled(column.flatten(), kind.value_type), type=kind, mask=_mask(column))
    if of.is_map(kind) and of.is_map(column.type):
        keys, items = _filled(column.keys, kind.key_type), _filled(column.items, kind.item_type)
        return pa.MapArray.from_arrays(column.offsets, keys, items, type=kind, mask=_mask(column))
    return column.cast(kind)


def _offsets(column: Any) -> pa.Array:
    """Where each list begins among the values of `flatten`, and where the last one ends."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).cast(pa.int32())
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)]) if len(column) else pa.array([0], pa.int32())


def _mask(column: pa.Array) -> pa.Array | None:
    return column.is_null() if column.null_count else None


def _taken(schema: pa.Schema) -> pa.Schema:
    return _stored(schema.remove_metadata())


@functools.lru_cache(1_000)  # most files of a tree have the columns of another one
def _stored(schema: pa.Schema) -> pa.Schema:
    try:
        return nullable(stored(schema))
    except WrongTypeError as e:
        raise BadContent(f"it is not taken: {e}") from None


def _not_read(kind: str, error: Exception) -> BadContent:
    return BadContent(f"not readable as {kind} ({_line(error)})")


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:150]


def _new(name: str, kind: pa.DataType) -> str:
    return f"the column {name!r} ({kind}) is not among the columns that the job, or its destination, has"


# ------------------------------------------------------------------------------------------------------------------- many files
def common(found: Iterable[tuple[pa.Schema, int]], there: pa.Schema | None = None) -> pa.Schema | None:
    """The columns that hold the rows of all files: those of schemas that very many files have go first (schema, how many).

    A schema that does not go together with those before it is left out: its files are quarantined. `there`: the destination's columns.
    """
    columns = merged(found, there)
    typed = [field for field in columns or () if _is_typed(field)]
    return pa.schema(typed) if typed else None


def merged(found: Iterable[tuple[pa.Schema, int]], there: pa.Schema | None = None, *, of_text: bool = False) -> pa.Schema | None:
    """The same, also with columns of which nothing says their type (null); None where no schema is found.

    of_text  numbers are what they look like in a text: 1 and 1.5 are of one column
    """
    columns = there
    for schema, _ in sorted(found, key=lambda each: (-each[1], -len(each[0]), str(each[0]))):
        try:
            columns = schema if columns is None else widened(columns, schema, of_text=of_text)
        except DiffersError:
            continue
    return columns


def _is_typed(field: pa.Field) -> bool:
    try:
        storable(pa.schema([field]))
    except WrongTypeError:
        return False
    return True


def widened(one: pa.Schema, other: pa.Schema, *, of_text: bool = False) -> pa.Schema:
    """The columns of both, in the order of the first; DiffersError names the column of which no type holds both."""
    return pa.schema(_fields(list(one), list(other), "", of_text))


def _fields(one: list[pa.Field], other: list[pa.Field], within: str, of_text: bool) -> list[pa.Field]:
    theirs, lower = {f.name: f for f in other}, {f.name.lower(): f.name for f in one}
    for field in other:
        if (near := lower.get(field.name.lower(), field.name)) != field.name:
            raise DiffersError(f"the column {within + field.name!r} is called {within + near!r} in other files")
    found = [pa.field(f.name, _wider(f.type, theirs[f.name].type, within + f.name, of_text) if f.name in theirs else f.type) for f in one]
    return found + [pa.field(f.name, f.type) for f in other if f.name.lower() not in lower]


def _wider(one: Any, other: Any, at: str, of_text: bool = False) -> pa.DataType:
    of = pa.types
    if one == other or of.is_null(other):
        return one
    if of.is_null(one):
        return other
    for like, wider in _WIDENING:
        if like(one) and like(other) and (kind := wider(one, other)) is not None:
            return kind
    if of_text and {one, other} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if of.is_struct(one) and of.is_struct(other):
        return pa.struct(_fields([*one], [*other], f"{at}.", of_text))
    if of.is_list(one) and of.is_list(other):
        return pa.list_(_wider(one.value_type, other.value_type, f"{at}[]", of_text))
    if of.is_map(one) and of.is_map(other):
        return pa.map_(_wider(one.key_type, other.key_type, f"{at}.key"), _wider(one.item_type, other.item_type, f"{at}.value"))
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
