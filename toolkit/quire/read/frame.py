"""`quire.read`: exactly the committed files of a version, as a Spark DataFrame. All of a commit or none, at any moment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.errors import UsageError
from quire.formats import partition_columns
from quire.interrupts import interruptible
from quire.read.content import Content, content
from quire.read.rows import Piece, Reading, pieces
from quire.spark.releases import from_arrow_schema
from quire.spark.runner import OnSpark, frame_of
from quire.spark.visibility import is_literal
from quire.storage import connect, destination
from quire.storage.within import is_marked, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@interruptible
def read(
    dest: str | os.PathLike[str], *, spark: SparkSession | None = None, version: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of the committed data files of `dest` at `version` (default: now), in the session `spark` (default: `quire.session()`).

    Format lines gives `value: binary`, one row a line without its newline; raw gives `path: string, content: binary`, one row a
    file (of a file longer than target_size: one a range, in order); Parquet gives its own columns. With layout="directories",
    the directories `name=value` are columns too, where all files have the same ones: of the column's own type where quire has made them
    (`partition_by`), else int, long, double, date or string, as Spark infers them (Parquet: whatever Spark
    infers). Parquet that Spark can open is Spark's own scan: of directories, columns and row groups only those are read that a query needs;
    elsewhere `format("quire")` does the same. `storage_options` are those of the store. Raises UsageError for a version that is not there.

    A table gives its rows at the newest instant, whoever has written them (`quire.Table.snapshot`); it has no versions.
    """
    url = destination(dest, storage_options)
    if is_marked(url):
        return _table(plain(url), spark, version, storage_options)
    held = content(connect(url, storage_options), url, storage_options, version)
    if spark is None:
        from quire.spark.session import session

        spark = session()
    spark = OnSpark(spark).spark  # which says so if it is none, or was stopped
    own, made = held.columns()
    return _parquet(spark, held, own, made) if held.spec.format == "parquet" else _by_tasks(spark, held, own, made, pieces(held))


def _table(url: str, spark: Any, version: int | None, options: Mapping[str, Any] | None) -> DataFrame:
    if version is not None:
        raise UsageError(
            f"{url} is a table, which has instants and no versions: quire.Table({url!r}).as_of('20261122103000000').snapshot()"
        )
    from quire.table.table import Table  # much code, which tasks of format("quire") are spared

    found: DataFrame = Table(url, storage_options=options).snapshot(spark=spark)
    return found


def _parquet(spark: SparkSession, held: Content, own: pa.Schema, made: Mapping[str, pa.DataType]) -> DataFrame:
    """By Spark's own scan the files whose names it takes as they are, and the others by quire's tasks.

    Spark's Java opens some names only in some locales, and it does not see every directory as a partition.
    """
    url, names = held.url, [file.name for file in held.files]
    plain = {
        name for name in names
        if name not in held.kept and is_literal(f"{url}/{name}") and (not made or partition_columns.alone(name, made))
    }  # fmt: skip
    reader = spark.read.option("ignoreMissingFiles", False)  # whatever the session says: never a part of the rows
    reader = reader.option("basePath", url) if made else reader.option("recursiveFileLookup", True)
    frames = list["DataFrame"]()
    if plain:
        if held.by or held.grown or len(plain) < len(names):  # else Spark may guess the types of the values
            reader = reader.schema(_for_spark(own, made))
        frames.append(reader.parquet(*[f"{url}/{name}" for name in names if name in plain]))
    if len(plain) < len(names):
        frames.append(_by_tasks(spark, held, own, made, [p for p in pieces(held) if p.name not in plain]))
    return reduce(lambda one, other: one.unionAll(other), frames)


def _by_tasks(spark: SparkSession, held: Content, own: pa.Schema, made: Mapping[str, pa.DataType], parts: list[Piece]) -> DataFrame:
    columns = pa.schema([*own, *(pa.field(name, kind) for name, kind in made.items())])
    folded = held.folded if held.spec.format == "raw" else None
    reading = Reading(
        held.url, held.options, held.version, held.spec.format, held.spec.compression, columns, made, folded=folded, kept=held.kept,
        headed=held.spec.header,
    )  # fmt: skip

    def read(i: int) -> Iterator[pa.RecordBatch]:
        return reading.rows(parts[i])

    return frame_of(spark, len(parts), read, _for_spark(own, made), held.url)


def _for_spark(own: pa.Schema, made: Mapping[str, pa.DataType]) -> Any:
    return from_arrow_schema(pa.schema([*own, *(pa.field(name, kind) for name, kind in made.items())]))
