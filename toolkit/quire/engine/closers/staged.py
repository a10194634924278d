"""The rows that a job's tasks have staged for its last one: shares of files, each of which one task reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from quire.commit import names
from quire.commit.entries import Task
from quire.errors import FormatError, UsageError, scrub
from quire.formats import lines, parquet
from quire.sources.transforms.columns import stored
from quire.spark.releases import from_arrow_schema
from quire.spark.runner import frame_of
from quire.storage import Store, connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

PIECE = 32 << 20  # bytes of the tasks' output in one share
MOST = 1_000  # shares of a file, whatever its size is said to be
ROWS = 10_000  # that are held at once


@dataclass(frozen=True)
class Part:
    """A share of a file that waits: of a Parquet file its row groups number `share`, `share + 1`, … of `shares` equal parts."""

    name: str
    parquet: bool
    size: int  # bytes of the share, about
    records: int  # of the whole file, as its task has counted them
    share: int = 0
    shares: int = 1


def parts(job: str, tasks: Iterable[Task], piece: int = PIECE) -> list[Part]:
    """The files of tasks, in shares of about `piece` bytes; in the order of tasks, files and rows."""
    found = list[Part]()
    for task in tasks:
        for file in task.data_files:
            # Where it lies is computed, not read: a manifest may be forged.
            where = names.staged(job, task.task, task.attempt, file.name)
            of_rows = file.name.endswith(".parquet")
            shares = max(1, min(-(-file.size // piece), MOST)) if of_rows else 1
            found += [Part(where, of_rows, file.size // shares, file.records, share, shares) for share in range(shares)]
    return found


def batches(store: Store, part: Part, compression: str) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises FormatError where its file does not hold as many as its task has staged."""
    if not part.parquet:
        rows = 0
        for batch in lines.batches(store, part.name, compression):
            rows += batch.num_rows
            yield batch
        _check_rows(store, part, rows)
        return
    file = parquet.open_file(store, part.name)
    _check_rows(store, part, file.metadata.num_rows)
    n = file.num_row_groups
    for group in range(n * part.share // part.shares, n * (part.share + 1) // part.shares):
        table = file.read_row_group(group)
        yield from table.cast(stored(table.schema)).to_batches(max_chunksize=ROWS)


def _check_rows(store: Store, part: Part, rows: int) -> None:
    if rows != part.records:
        raise FormatError(
            f"{store.url}/{part.name} holds {rows:,} rows, and the task that has written it counted {part.records:,}: look who writes there"
        )


def frame(spark: SparkSession, url: str, options: Any, found: list[Part], compression: str) -> DataFrame:
    """The rows of some parts, at least one, as a Spark DataFrame; UsageError where Spark has no such columns."""
    schema: Any = "value binary"
    if found[0].parquet:
        columns = parquet.open_file(connect(url, options), found[0].name).schema_arrow
        try:
            schema = from_arrow_schema(stored(columns))
        except Exception as e:  # of pyspark
            raise UsageError(f"Spark has no such columns ({scrub(str(e).rstrip('.'), 200)}): let the function give others") from e

    def read(i: int) -> Iterator[pa.RecordBatch]:
        return batches(connect(url, options), found[i], compression)

    return frame_of(spark, len(found), read, schema, url)
