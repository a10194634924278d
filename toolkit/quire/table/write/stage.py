"""A frame of a user's as staged rows: it is computed once, and what every later step reads is what was written here."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire import errors
from quire.commit.committers import Committer
from quire.commit.entries import DataFile
from quire.commit.names import data_file
from quire.commit.rename import Rename
from quire.errors import QuireError, RefusedError, TransientError, UsageError, quoted, scrub
from quire.formats.damage import ARROW
from quire.formats.parquet import GROUP, PASSING, ParquetWriter
from quire.sources.transforms import columns as values
from quire.sources.transforms import schemas
from quire.sources.transforms.functions import WrongTypeError
from quire.spark.collector import settle
from quire.spark.jobs import SparkJob
from quire.spark.releases import to_arrow_schema
from quire.spark.runner import OnSpark, Runner, Watch, collected, first_line, guarded
from quire.spark.shipping import missing_module
from quire.storage import Sink
from quire.table.write import columns
from quire.table.write.blocks import Closing
from quire.table.write.rows import cut, prepare

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

TARGET = 128 << 20  # bytes of a staged file
_WAITING: Committer = Rename()  # staged rows wait as plain objects, whatever the committer


def stage(
    runner: Runner, closing: Closing, df: Any, there: pa.Schema | None, operation: str, watch: Watch = lambda: None
) -> tuple[tuple[DataFile, ...], str]:  # fmt: skip
    """Write a frame as the files of the task `closing`; what its manifest says of them: data files and the text of their columns.

    df      of Spark, where `runner` is Spark's; of pandas or Arrow on any: of a dataset of Arrow's a few row groups are held at once
    there   the columns of the table; None: nothing has been written yet

    Raises UsageError or RefusedError for a frame that does not fit the table, or rows without a key, say; then nothing is left.
    """
    on_spark = hasattr(df, "mapInArrow")
    if on_spark and not isinstance(runner, OnSpark):
        raise UsageError("this is a Spark DataFrame, and the call runs without Spark: leave spark=quire.LocalRunner() out, or give Arrow.")
    rows = None if on_spark else _table(df)
    brought = columns.brought(_schema(df) if rows is None else rows.schema, closing.config, operation)
    if rows is not None and not (rows.num_rows if isinstance(rows, pa.Table) else rows.count_rows()):
        return (), ""
    named = (*closing.config.key, *closing.config.partition_by)
    wanted = _staged(brought, columns.after(there, brought, operation, named=named))
    must = pa.schema([f for f in there or [] if f.name in wanted.names])
    write = partial(_write, closing, wanted, must, operation)
    try:
        found = _spread(df, closing, brought.names, write, watch) if rows is None else write(0, _read(rows))
    except BaseException:
        _WAITING.abort_task(closing.store, closing.job, closing.task, closing.attempt, {})
        raise
    return tuple(DataFile(**each) for each in found), schemas.text(wanted)


def _table(df: Any) -> pa.Table | Dataset:
    """The rows of a frame of Arrow or pandas, which can be read again."""
    if isinstance(df, pa.RecordBatch):
        return pa.Table.from_batches([df])
    dataset = sys.modules.get("pyarrow.dataset")  # whoever has one has imported it; it brings pandas, which takes a while
    if isinstance(df, pa.Table) or (dataset is not None and isinstance(df, dataset.Dataset)):
        return df
    if hasattr(df, "iloc") and hasattr(df, "columns"):
        try:
            return pa.Table.from_pandas(df, preserve_index=False).replace_schema_metadata(None)
        except (*ARROW, ValueError, TypeError) as e:
            raise UsageError(f"the pandas DataFrame has no columns as Arrow knows them: {scrub(str(e).rstrip('.'), 300)}.") from None
    raise UsageError(f"df is a DataFrame of Spark or pandas, or an Arrow table or dataset, and not {quoted(df)}")


def _read(rows: pa.Table | Dataset) -> Iterator[pa.RecordBatch]:
    """The rows in their order; of a dataset, a little ahead of whoever writes them."""
    if isinstance(rows, pa.Table):
        yield from rows.to_batches()
        return
    try:
        yield from rows.to_batches(batch_readahead=1, fragment_readahead=1)
    except (*ARROW, OSError) as e:
        raise UsageError(f"the Arrow dataset cannot be read: {scrub(str(e).rstrip('.'), 300)}. Nothing was written.") from e


def _schema(df: Any) -> pa.Schema:
    try:
        return to_arrow_schema(df.schema)
    except Exception as e:  # of pyspark
        raise UsageError(f"the frame has a column that Arrow does not take: {scrub(str(e).rstrip('.'), 300)}. Cast it, or drop it.") from e


def _staged(brought: pa.Schema, after: pa.Schema) -> pa.Schema:
    """The columns of the staged files: those that rows bring, in the types of the table where it has them."""
    kinds = {f.name: f.type for f in after} | {columns.DELETED: pa.bool_()}
    return pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in brought])


# ------------------------------------------------------------------------------------------------------------------------- the files
def _write(
    closing: Closing, wanted: pa.Schema, must: pa.Schema, operation: str, first: int, batches: Iterable[pa.RecordBatch]
) -> list[dict[str, Any]]:  # fmt: skip
    """Write rows into files with numbers from `first` on; what a manifest needs of each."""
    store, owner = closing.store, (closing.job, closing.task, closing.attempt)
    sinks, records, counts = dict[str, Sink](), list[int](), list[int]()

    def create(index: int) -> Sink:
        final = data_file("", *owner, first + index, "parquet")
        records.append(0)
        sinks[final] = sink = _WAITING.create(store, *owner, final)
        return sink

    writer = ParquetWriter(create, TARGET, PASSING)
    try:
        for batch in batches:
            for piece in cut(_fit(batch, wanted), GROUP):
                prepared = prepare(piece, wanted, closing.config, operation)  # so that a row that cannot be sorted is refused here
                columns.check_values(prepared, must)
                writer.add(piece)
                counts.append(piece.num_rows)
        writer.close()
    except BaseException:
        writer.discard()
        raise
    for file, count in zip(writer.files, counts, strict=True):
        records[file] += count
    return [
        {"name": final, "size": writer.sizes[i], "records": records[i], "handle": _WAITING.handle(*owner, final, sink)}
        for i, (final, sink) in enumerate(sinks.items())
    ]


def _fit(rows: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    try:
        return values.fit(columns.fit(rows, wanted))
    except WrongTypeError as e:
        raise RefusedError(f"{e}.") from None


# -------------------------------------------------------------------------------------------------------------------------- on Spark
def _spread(
    df: Any, closing: Closing, names: list[str], write: Callable[[int, Iterator[pa.RecordBatch]], list[dict[str, Any]]], watch: Watch
) -> list[dict[str, Any]]:  # fmt: skip
    """Let Spark's tasks write the frame, which is computed once for that; the files that Spark answers for, in the frame's order."""
    spark = df.sparkSession
    job = SparkJob(spark, within=True)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        # Names that no other try of the same part uses, which an engine may make at the same time.
        files = write(((10**6 + part) * 10**12 + secrets.randbelow(10**12)) * 10**4, batches)
        yield pa.RecordBatch.from_pydict({"part": [part], "files": [json.dumps(files)]})
        settle()

    picked = df.select(*[df[f"`{name}`"] for name in names])
    try:
        answers = collected(job, picked.mapInArrow(guarded(spark, task, closing.dest), "part long, files string"), watch)
    except Exception as e:
        raise _error(e) from e
    parts = [int(row["part"]) for row in answers]
    if len(set(parts)) < len(parts):
        raise QuireError("Spark has answered twice for a part of the frame: nothing was written. Call again.")
    return [file for row in sorted(answers, key=lambda row: int(row["part"])) for file in json.loads(row["files"])]


def _error(e: Exception) -> QuireError:
    """The error of one of Spark's tasks: quire's own as it was, any other as one of Spark's."""
    if error := missing_module(str(e)):
        return error
    if isinstance(e, QuireError):
        return e
    said = scrub(first_line(str(e)), 600)
    name, _, text = said.partition(": ")
    kind = getattr(errors, name.removeprefix("quire.errors."), None) if name.startswith("quire.errors.") else None
    if isinstance(kind, type) and issubclass(kind, UsageError | TransientError | errors.FormatError):
        return kind(text)
    return QuireError(f"the frame could not be computed: {said.rstrip('.')}. Nothing was written.")
