"""The rows of a table's slices, with the columns that the table has now: a column that came later is null in files that are older."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, UsageError, quoted, scrub
from quire.formats import parquet
from quire.formats.damage import ARROW
from quire.spark.runner import frame_of
from quire.storage import Store, connect
from quire.table.file_groups import Slice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLAIN = re.compile(r"file:///[A-Za-z0-9_./=+@,~-]*")  # names that Spark does not take for globs


def batches(store: Store, name: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a base file, a row group at a time, in the columns of `schema`; FormatError where they are of other types."""
    try:
        file = parquet.open_file(store, name)
        there = [column for column in schema.names if column in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, there)
            missing = [pa.nulls(rows.num_rows, f.type) if f.name not in there else rows.column(f.name) for f in schema]
            yield from pa.table(missing, schema.names).cast(schema).to_batches()
    except (*ARROW, ValueError) as e:  # the latter for a null in a column that has none
        raise FormatError(
            f"the base file {store.url}/{name} cannot be read with the columns of its table: {scrub(str(e), 200)}. Look who wrote it."
        ) from e


def table(
    store: Store, slices: Sequence[Slice], schema: pa.Schema, columns: Sequence[str], where: Any
) -> pa.Table:  # fmt: skip
    """The rows in this process, in the order of partitions and file groups."""
    if where is not None and not isinstance(where, pc.Expression):
        raise UsageError(f"without Spark where is a condition of pyarrow, as pyarrow.compute.field('id') > 7, and not {quoted(where)}")
    found = pa.Table.from_batches((batch for one in slices for batch in batches(store, one.name, schema)), schema)
    try:
        return (found if where is None else found.filter(where)).select(columns)
    except ARROW as e:
        raise UsageError(f"where cannot be computed from the columns of {store.url}: {scrub(str(e), 200)}") from e


def frame(
    spark: SparkSession, store: Store, options: Mapping[str, Any] | None, slices: Sequence[Slice], schema: pa.Schema,
    columns: Sequence[str], where: Any,
) -> DataFrame:  # fmt: skip
    """The rows as a Spark DataFrame: by Spark's own reader, where it reaches the store, else through quire's storage."""
    from pyspark.sql.pandas.types import from_arrow_schema

    url = store.url
    try:
        kinds = from_arrow_schema(schema)
    except Exception as e:  # of pyspark
        raise UsageError(f"Spark has no such columns as {url} has: {scrub(str(e), 200)}. Read it with spark=quire.LocalRunner().") from e
    names = [one.name for one in slices]
    if names and all(_PLAIN.fullmatch(f"{url}/{name}") for name in names):
        # The directories do not become columns: the base files have these, too.
        found = spark.read.schema(kinds).option("recursiveFileLookup", True).parquet(*[f"{url}/{name}" for name in names])
    else:

        def read(i: int) -> Iterator[pa.RecordBatch]:
            return batches(connect(url, options), names[i], schema)

        found = frame_of(spark, len(names), read, kinds, url)
    return (found if where is None else found.where(where)).select(*[found[f"`{name}`"] for name in columns])
