"""The writers that Spark calls: `writer` and `streamWriter` of a Python data source, in processes of the driver and in tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from quire.commit.entries import Task
from quire.errors import UsageError
from quire.spark.datasource import ArrowWriter, StreamArrowWriter, datasource
from quire.spark.shipping import at_home
from quire.write import writing as steps
from quire.write.asked import asked
from quire.write.attempt import Writing, attempt

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a stream


@dataclass(frozen=True)
class Written(datasource.WriterCommitMessage):
    """The result of an attempt; None: the write was skipped. For a stream also its query, and the job, which Spark does not pass on."""

    task: Task | None
    query: str = ""
    writing: Writing | None = field(default=None, repr=False)


class BatchWriter(ArrowWriter or datasource.DataSourceWriter):  # type: ignore[misc]
    """For `df.write`."""

    def __init__(self, writing: Writing | None) -> None:
        self.writing = writing

    def __reduce__(self) -> tuple[Any, ...]:
        return at_home("quire.write.spark", "BatchWriter", self.writing)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task."""
        if self.writing is None:
            return Written(None)
        return Written(attempt(self.writing, _task(), iterator))

    def commit(self, messages: Sequence[Any]) -> None:
        """All tasks have written."""
        if self.writing is not None:
            steps.end(self.writing, str(self.writing.head.intent["rows"]), [one.task for one in messages if one is not None])

    def abort(self, messages: Sequence[Any]) -> None:
        """A task keeps failing, or the commit has."""
        if self.writing is not None:
            steps.give_up(self.writing.store, self.writing.job, "the job that wrote has failed")


class StreamWriter(StreamArrowWriter or datasource.DataSourceStreamWriter):  # type: ignore[misc]
    """For `df.writeStream`: Spark makes one for the tasks of each batch, and another one for its end."""

    def __init__(self, writing: Writing) -> None:
        self.writing = writing

    def __reduce__(self) -> tuple[Any, ...]:
        return at_home("quire.write.spark", "StreamWriter", self.writing)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """The rows of one task of a batch."""
        context: Any = TaskContext.get()
        query = context.getLocalProperty(_QUERY)
        mine = steps.of_stream(self.writing, steps.source("stream", query))
        return Written(attempt(mine, _task(), iterator), query, mine)

    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """All tasks of a batch have written; Spark may say so again after a restart."""
        found = [one for one in messages if one is not None]
        if found:
            steps.end(found[0].writing, steps.source("stream", f"{found[0].query}/{batchId}"), [one.task for one in found])

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """A batch has failed."""
        for job, store in {one.writing.job: one.writing.store for one in messages if one is not None}.items():
            steps.give_up(store, job, f"batch {batchId} of the stream has failed")


def writer(
    dest: str, store_options: Any, options: Mapping[str, str], columns: list[str] | None, schema: StructType,
    *, overwrite: bool, streaming: bool,
) -> Any:  # fmt: skip
    """The writer of a frame with a `schema`; UsageError and RefusedError where it cannot be written."""
    if (StreamArrowWriter if streaming else ArrowWriter) is None:
        raise UsageError(
            "this version of pyspark has no writer that takes Arrow, which format('quire') needs. Install pyspark 4.1 or later."
        )
    wanted = asked(options, None if columns is None else tuple(columns), overwrite=overwrite, streaming=streaming)
    begun = steps.begin(dest, store_options, schema, wanted)
    if not streaming:
        return BatchWriter(begun)
    assert begun is not None  # only a batch with a name may be done
    return StreamWriter(begun)


def _task() -> int:
    context: Any = TaskContext.get()
    return int(context.partitionId())
