"""The rows of a table's slices, with the columns that the table has now: a column that came later is null in files that are older.

Where a slice has logs, they are merged with its base file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, RefusedError, UsageError, quoted, scrub
from quire.formats import parquet
from quire.formats.damage import ARROW
from quire.spark.releases import from_arrow_schema
from quire.spark.runner import frame_of
from quire.spark.visibility import is_literal
from quire.storage import Store, connect
from quire.table import realtime
from quire.table.file_groups import Slice
from quire.table.format.schema import conform
from quire.table.realtime import Merging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def batches(store: Store, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a base file, a row group at a time, in the columns of `schema`; FormatError where they are of other types."""
    where = f"{store.url}/{name}"
    with reading_of(where):
        file = parquet.open_file(store, name)
    for group in range(file.num_row_groups):
        yield from row_group(file, group, schema, where).to_batches()


def row_group(file: parquet.ParquetFile, number: int, schema: pa.Schema, where: str) -> pa.Table:
    """The rows of one row group of a base file, likewise."""
    with reading_of(where):
        there = [column for column in schema.names if column in file.schema_arrow.names]
        return conform(file.read_row_group(number, there), schema)


def rows_of(store: Store, one: Slice, schema: pa.Schema, merging: Merging) -> Iterator[pa.RecordBatch]:
    """The rows of a slice in the columns of `schema`: a row group is in memory, and all its logs."""
    if not one.logs:
        return batches(store, one.name, schema)
    return _merged(store, one, schema, merging)


def _merged(store: Store, one: Slice, schema: pa.Schema, merging: Merging) -> Iterator[pa.RecordBatch]:
    reads = merging.reads(schema)
    base = batches(store, one.name, reads) if one.name else iter(())
    for batch in realtime.merged(base, store, one, reads, merging):
        with reading_of(f"{store.url}/{one.name or one.logs[0]}"):
            rows = batch.select(schema.names).cast(schema)
        yield rows


def deleted(store: Store, one: Slice, merging: Merging) -> pa.Array:
    """The keys that the base file of a slice has, and its logs delete: keys and orderings are read, of the base file where logs delete."""
    reads = merging.reads(pa.schema([]))
    changes = realtime.changes_of(store, one, reads, merging)
    if changes is None or not one.name or not changes.deletes.any():
        return pa.array([], pa.string())
    # A delete that is older than the row of the base file deletes nothing.
    alive = [merging.keys(rows) for rows in realtime.applied(batches(store, one.name, reads), changes, merging)]
    gone = changes.keys.filter(pa.array(changes.deletes))
    return gone.filter(pc.invert(pc.is_in(gone, value_set=pa.chunked_array(alive, pa.string()))))


def as_python(rows: Any, where: str) -> list[Any]:
    """Rows, or values, as Python has them; RefusedError for one that it does not have, as JVM writers may have stored it."""
    try:
        found: list[Any] = rows.to_pylist()
    except (OverflowError, ValueError) as e:
        raise RefusedError(
            f"{where} holds a value that Python does not have, such as a time outside of the years 1 to 9999 ({scrub(str(e), 100)}): "
            "read it with table.snapshot."
        ) from e
    return found


@contextmanager
def reading_of(where: str) -> Iterator[None]:
    """Let a damaged base file, or one with other types, be a FormatError."""
    try:
        yield
    except (*ARROW, OSError, ValueError) as e:  # OSError for a footer that says nothing, ValueError for a null where there is none
        raise FormatError(
            f"the base file {where} cannot be read with the columns of its table: {scrub(str(e), 200)}. Look who wrote it."
        ) from e


def table(
    store: Store, slices: Sequence[Slice], schema: pa.Schema, columns: Sequence[str], where: Any, merging: Merging
) -> pa.Table:  # fmt: skip
    """The rows in this process, in the order of partitions and file groups."""
    if where is not None and not isinstance(where, pc.Expression):
        raise UsageError(f"without Spark where is a condition of pyarrow, as pyarrow.compute.field('id') > 7, and not {quoted(where)}")
    found = pa.Table.from_batches((batch for one in slices for batch in rows_of(store, one, schema, merging)), schema)
    try:
        return (found if where is None else found.filter(where)).select(columns)
    except ARROW as e:
        raise UsageError(f"where cannot be computed from the columns of {store.url}: {scrub(str(e), 200)}") from e


def frame(
    spark: SparkSession, store: Store, options: Mapping[str, Any] | None, slices: Sequence[Slice], schema: pa.Schema,
    columns: Sequence[str], where: Any, merging: Merging,
) -> DataFrame:  # fmt: skip
    """The rows as a Spark DataFrame: by Spark's own reader, where it reaches the store and slices have no logs, else by quire's tasks."""
    from pyspark.errors import PySparkException

    url = store.url
    if where is None and columns:
        schema = pa.schema([schema.field(name) for name in dict.fromkeys(columns)])  # Spark does not tell tasks what it needs
    try:
        kinds = from_arrow_schema(schema)
    except Exception as e:  # of pyspark
        raise UsageError(f"Spark has no such columns as {url} has: {scrub(str(e), 200)}. Read it with spark=quire.LocalRunner().") from e
    names = [one.name for one in slices if not one.logs]
    plain = bool(names) and all(is_literal(f"{url}/{name}") for name in names)
    rest = [one for one in slices if one.logs or not plain]

    def read(i: int) -> Iterator[pa.RecordBatch]:
        return rows_of(connect(url, options), rest[i], schema, merging)

    parts: list[DataFrame] = []
    if plain:
        # The directories do not become columns: the base files have these, too.
        parts.append(spark.read.schema(kinds).option("recursiveFileLookup", True).parquet(*[f"{url}/{name}" for name in names]))
    if rest or not plain:
        parts.append(frame_of(spark, len(rest), read, kinds, "", [url]))
    found = parts[0] if len(parts) == 1 else parts[0].unionAll(parts[1])
    try:
        rows = found if where is None else found.where(where)
    except PySparkException as e:
        raise UsageError(f"where={quoted(where)} is not a condition on the columns of {url} ({scrub(str(e), 200)}).") from e
    return rows.select(*[found[f"`{name}`"] for name in columns])
