"""Files that hold columns: their rows as they are, in the columns that all files of a job have together.

    parquet, orc   small files become few large ones; Arrow decodes and encodes, and no row becomes an object of Python's
    avro           the same, of records (see `avro`)

Columns are known by their names. One that a file lacks is null there; whole numbers, fractions, decimals, dates and times widen to what
holds both, within structs, lists and maps, too. The columns are frozen with the plan (see `common`).
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.formats import footer, joined
from quire.formats.damage import ARROW
from quire.formats.shapes import COLUMNS, Shape, Told
from quire.sources.transforms import apart
from quire.sources.transforms.columns import nullable, storable, stored
from quire.sources.transforms.content import BadContent, check_size
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.widening import DiffersError, as_wider, widened, wider

NAMES = ("parquet", "orc", "avro")
TOGETHER = 128 << 20  # bytes of values of files whose rows are made together
_DAMAGED = (*ARROW, OSError, ValueError, KeyError)

Rows = tuple[pa.Table, pa.Schema]  # of a file, and their columns: a table makes an object of them each time that it is asked


# -------------------------------------------------------------------------------------------------------------------- one file
def schema_of(kind: str, file: Any) -> pa.Schema:
    """The columns of a file, as they are stored; BadContent where it is damaged, or has a column that is not taken."""
    try:
        return _SCHEMAS[kind](file)
    except _DAMAGED as e:
        raise _not_read(kind, e) from None


def rows(kind: str, content: bytes, columns: pa.Schema | None) -> pa.RecordBatch:
    """All rows of a file in `columns`, or in its own; BadContent says which column does not fit."""
    table = _table(kind, content, columns)
    return _one(table, "it", _taken(table.schema) if columns is None else columns)


def together(kind: str, contents: Sequence[bytes], columns: pa.Schema) -> tuple[pa.RecordBatch, list[int]]:
    """The rows of several files, one after the other, and how many each has; BadContent where one of them does not fit."""
    tables, counts, pool, held = list[pa.Table](), list[int](), pa.default_memory_pool(), 0
    before, own = pool.bytes_allocated(), _taken(columns)
    own = own if own.equals(columns) else columns  # the schema that files of such columns have is then the same object
    parts = _joined(contents, own) if kind == "parquet" else (_alone(kind, content, own) for content in contents)
    for table, rows in parts:
        tables.append(table)
        counts += rows
        # To ask a table takes a tenth of the time of reading one; rows of other kinds lie where the pool does not count them.
        held = pool.bytes_allocated() - before if kind == "parquet" else held + table.get_total_buffer_size()
        if held > TOGETHER and len(counts) > 1:  # small files may hold many values: fewer at once
            raise BadContent(f"they hold more than {TOGETHER:,} bytes of values")
    try:
        return _one(pa.concat_tables(tables), "all of them together", columns), counts
    except _DAMAGED as e:
        raise _not_read(kind, e) from None


def _alone(kind: str, content: bytes, columns: pa.Schema) -> tuple[pa.Table, list[int]]:
    table = _table(kind, content, columns)
    return table, [table.num_rows]


def _joined(contents: Sequence[bytes], columns: pa.Schema) -> Iterator[tuple[pa.Table, list[int]]]:
    """The rows of Parquet files in their order, those of a writer in one call, with how many each has."""
    begin = 0
    if _WRITERS.find(footer.held(contents[0])) is None:  # the first of its kind, by which others are known
        yield _alone("parquet", contents[0], columns)
        begin = 1
    found = [_WRITERS.find(footer.held(content)) for content in contents[begin:]]
    frames = Counter(known.frame for known, _ in filter(None, found) if known.joins)
    frame = max(frames, key=frames.__getitem__, default=None)
    told = [each[1] if each and each[0].joins and each[0].frame == frame else None for each in found]
    schema = next((known.schema for known, _ in filter(None, found) if known.joins and known.frame == frame), None)
    try:
        of_all, read = joined.join(contents[begin:], told, TOGETHER), 0
        file = _parquet(pa.BufferReader(of_all.data)) if of_all.data else None
        if file and schema and not _same(file.schema_arrow, schema):
            raise BadContent("their footers do not say one thing")
        for first, rows in of_all.parts:
            if not (rows and file and schema):
                yield _alone("parquet", contents[begin + first], columns)
                continue
            table = file.read_row_groups(range(read, read + len(rows)), use_threads=False)
            if table.num_rows != sum(rows):
                raise BadContent(f"they hold {table.num_rows:,} rows and claim {sum(rows):,}")
            read += len(rows)
            yield _fitted(pa.Table.from_arrays(table.columns, schema=schema), schema, columns), rows
    except _DAMAGED as e:
        raise _not_read("parquet", e) from None


def _table(kind: str, content: bytes, columns: pa.Schema | None) -> pa.Table:
    try:
        table, own = _TABLES[kind](content)
        return _fitted(table, own, _taken(own) if columns is None else columns)
    except _DAMAGED as e:
        raise _not_read(kind, e) from None


def _fitted(table: pa.Table, own: pa.Schema, columns: pa.Schema) -> pa.Table:
    return table if own is columns or own.equals(columns) else _widened(table, columns)


def _one(table: pa.Table, what: str, columns: pa.Schema) -> pa.RecordBatch:
    arrays = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in table.columns]
    if any(isinstance(each, pa.ChunkedArray) and each.num_chunks > 1 for each in arrays):
        raise BadContent(f"a column of {what} holds more than 2 GiB, in {table.num_rows:,} rows. Write smaller files at its source")
    arrays = [each.chunk(0) if isinstance(each, pa.ChunkedArray) else each for each in arrays]
    return pa.record_batch(arrays, schema=columns)


class _File(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """One whose columns are read all together: a tenth of the time of opening it goes into an index of their names."""

    def _build_nested_paths(self) -> dict[str, list[int]]:
        return {}


def _parquet(source: Any) -> pq.ParquetFile:
    return _File(source, pre_buffer=False, coerce_int96_timestamp_unit="us")


def rows_of(source: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file, a row group at a time. BadContent, before any of them, for one that cannot be written again as it is."""
    file = _parquet(source)
    if why := _peculiar(file):
        raise BadContent(why)
    schema = _instants(file, file.schema_arrow).remove_metadata()
    for number in range(file.num_row_groups):
        table = file.read_row_group(number, use_threads=False)
        yield from pa.Table.from_arrays(table.columns, table.schema.names).cast(schema).to_batches()


def peculiar(source: Any) -> str:
    """Why a Parquet file cannot be written again so that all readers find the same in it; "": it can."""
    return _peculiar(_parquet(source))


def _peculiar(file: pq.ParquetFile) -> str:
    leaves = (file.schema.column(i) for i in range(len(file.schema)))
    if nested := next((leaf.path for leaf in leaves if leaf.physical_type == "INT96" and "." in leaf.path), ""):
        return f"{nested} is an INT96 in a column that is nested"
    return "its days and times are of Spark's older calendar" if _is_legacy(file) else ""


class _Known(NamedTuple):
    """Files of one writer, whose footers are of one shape.

    schema  their columns as they are stored
    plain   whether Arrow reads rows in those, so that nothing has to be looked at in each file
    joins   whether the rows of several files can be read in one call: no column has lists, and Arrow reads these types, required or not
    """

    shape: Shape
    schema: pa.Schema
    plain: bool
    joins: bool

    @property
    def frame(self) -> tuple[bytes, bytes]:
        """The bytes of the footers before their rows and behind them: one footer can be that of all files that share these."""
        return self.shape.before, self.shape.behind


class _Writers:
    """Most small files of a tree are as one of these, and to find their columns takes a fifth of the time of opening one."""

    def __init__(self) -> None:
        self._known: deque[_Known] = deque(maxlen=16)
        self._tries = 32.0  # left to learn, which takes as long as some files that are known save

    def find(self, said: bytes) -> tuple[_Known, Told] | None:
        for known in tuple(self._known):
            if told := known.shape.read(said):
                self._tries += 0.1
                return known, told
        self._tries += 0.01  # a process that meets other files after days learns them, too
        return None

    def learn(self, said: bytes, file: pq.ParquetFile, schema: pa.Schema) -> None:
        """Know files with such a footer (empty: it is not at hand) from now on, by the columns of one of them, which Arrow takes."""
        if self._tries < 0 or not said or file.metadata.num_row_groups != 1 or file.metadata.num_columns > COLUMNS:
            return
        self._tries -= 1 + file.metadata.num_columns / 25
        file.metadata.row_group(0)  # looks at what opening does not
        with suppress(ValueError):
            own, legacy = file.schema_arrow, _is_legacy(file)
            lists = any(file.schema.column(i).max_repetition_level for i in range(len(file.schema)))
            joins = _same(own, schema) and not legacy and not lists
            self._known.appendleft(_Known(Shape(said), schema, schema.equals(own) and not legacy, joins))


def _same(one: pa.Schema, other: pa.Schema) -> bool:
    """Whether columns have the same names and types."""
    return bool(one.names == other.names and one.types == other.types)


_WRITERS = _Writers()


def _schema_of_parquet(source: Any) -> pa.Schema:
    said = footer.held(memoryview(source.read_buffer())) if isinstance(source, pa.BufferReader) else b""
    if found := _WRITERS.find(said):
        return found[0].schema
    file = _parquet(source)
    schema = _taken(_instants(file, file.schema_arrow))
    _WRITERS.learn(said, file, schema)
    return schema


def _read(content: bytes) -> Rows:
    said, file = footer.held(content), _parquet(pa.BufferReader(content))
    found = _WRITERS.find(said)
    encoded = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
    check_size(encoded, file.metadata.num_rows, file.metadata.num_columns)
    table = file.read(use_threads=False)
    if found and found[0].plain:
        return table, found[0].schema
    if _is_legacy(file):
        _check_legacy(table)
    own = table.schema
    schema = _instants(file, own)
    if found is None:
        _WRITERS.learn(said, file, _taken(schema))
    return (table if schema is own else table.cast(schema)), schema


def _schema_of_orc(file: Any) -> pa.Schema:
    if isinstance(file, pa.BufferReader):
        return _taken(apart.ask(apart.SCHEMA, file.read()).schema)
    from pyarrow.orc import ORCFile  # of a long file: only its footer is read

    return _taken(ORCFile(file).schema)


def _told(table: pa.Table) -> Rows:
    return table, table.schema


def _avro() -> ModuleType:
    from quire.sources.transforms import avro  # where it is needed: every task would start later

    return avro


_SCHEMAS: dict[str, Callable[[Any], pa.Schema]] = {
    "parquet": _schema_of_parquet,
    "orc": _schema_of_orc,
    "avro": lambda file: _taken(_avro().schema_of(file)),
}
_TABLES: dict[str, Callable[[bytes], Rows]] = {
    "parquet": _read,
    "orc": lambda content: _told(apart.ask(apart.ROWS, content)),
    "avro": lambda content: _told(_avro().table(content)),
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
_LEGACY = frozenset((b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"))
_GREGORIAN = (-25_567, -25_567 * 86_400_000_000)  # from 1900 on both calendars, and all zones, agree: days, microseconds


def _is_legacy(file: pq.ParquetFile) -> bool:
    return not _LEGACY.isdisjoint(file.metadata.metadata or {})


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
        raise BadContent(_new(unknown, own.field(unknown).type, columns))
    found = []
    for field in columns:
        if field.name not in own.names:
            found.append(pa.nulls(table.num_rows, field.type))
            continue
        mine = own.field(field.name).type
        try:
            if wider(field.type, mine, field.name) != field.type:  # Arrow would cast more than that: texts to numbers, and back
                raise pa.ArrowInvalid(f"only {wider(field.type, mine, field.name)} would hold both")
            found.append(as_wider(table.column(field.name), mine, field.type))
        except DiffersError as e:
            raise BadContent(f"{e}, whose columns the destination has") from None
        except (*ARROW, ValueError) as e:
            raise BadContent(f"the column {field.name!r} is {mine} and does not fit into {field.type} ({_line(e)})") from None
    return pa.table(found, schema=columns)


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


def _new(name: str, kind: pa.DataType, columns: pa.Schema) -> str:
    if (near := next((other for other in columns.names if other.lower() == name.lower()), None)) is not None:
        return f"the column {name!r} is called {near!r} in other files"
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
