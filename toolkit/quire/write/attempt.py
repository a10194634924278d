"""One attempt of a task: its rows go into data files that nobody lists, and the answer to the driver names them.

Which attempts of its tasks count is for Spark to say: of two attempts that have read a shuffle made twice, both are right only together
with those that have read the same one. So no manifest is put here; the entry in the log names one attempt of each task, and all others go.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names, protocol
from quire.commit.committers import committer
from quire.commit.entries import Coverage, DataFile, PlanHead, Stats, Task
from quire.errors import UsageError
from quire.formats import extension, partitions
from quire.formats.folders import FolderWriter
from quire.formats.parquet import ParquetWriter
from quire.sources.partition_by import unfit
from quire.sources.transforms.schemas import told
from quire.sources.transforms.widening import in_columns
from quire.storage import Sink, Store, connect
from quire.write.asked import Asked


@dataclass(frozen=True)
class Writing:
    """A write that has begun: plain data that travels to its tasks. `own`: the columns of files; `made`: those that make directories."""

    dest: str
    options: Any = field(repr=False)
    head: PlanHead
    asked: Asked
    own: pa.Schema
    made: pa.Schema

    @property
    def job(self) -> str:
        """The name of its job."""
        return self.head.job

    @property
    def store(self) -> Store:
        """Opened in this process."""
        return connect(self.dest, self.options)


def attempt(writing: Writing, task: int, batches: Iterable[pa.RecordBatch]) -> Task:
    """Write the rows of a task; the result as the log's entry will have it. Its files go again if anything fails."""
    store, began, started = writing.store, time.time(), time.monotonic()
    protocol.freeze(store, writing.head)  # there is a job from here on, which anybody can give up
    files = _Files(writing, store, task)
    try:
        for batch in batches:
            files.add(batch)
        files.writer.close()
        done = Task(
            task=task, attempt=files.id, data_files=files.written(), coverage=Coverage(),
            schema=told(writing.own) if files.sinks else "",
            stats=Stats(started=round(began, 3), seconds=round(time.monotonic() - started, 3)),
        )  # fmt: skip
        files.by.commit_task(store, writing.job, done)
    except BaseException:
        files.discard()
        raise
    return done


class _Writer(ParquetWriter):
    """A writer of columns."""

    group = 32 << 20


class _Files:
    """The data files of an attempt, and the writer that fills them."""

    def __init__(self, writing: Writing, store: Store, task: int) -> None:
        self.writing, self.store, self.task, self.id = writing, store, task, names.new_id()
        self.by = committer(writing.head.committer, store)
        self.sinks: dict[str, Sink] = {}
        self.rows: list[int] = []  # of each batch that the writer was given
        asked = writing.asked
        kind: Any = partial(FolderWriter, _Writer) if asked.by else _Writer
        self.writer = kind(self._create, asked.target, asked.compression)

    def _create(self, index: int, folder: str = "") -> Sink:
        job = self.writing.job
        final = names.data_file(folder, job, self.task, self.id, index, extension("parquet", self.writing.asked.compression))
        sink = self.sinks[final] = self.by.create(self.store, job, self.task, self.id, final)
        return sink

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        own = _cast(batch, self.writing.own)
        for folder, rows in _apart(batch, self.writing.made) if self.writing.asked.by else (("", None),):
            mine = own if rows is None else own.take(rows)
            self.rows.append(mine.num_rows)
            self.writer.add(mine, *([folder] if self.writing.asked.by else []))

    def written(self) -> tuple[DataFile, ...]:
        """The closed files, as the log's entry names them."""
        records, sizes = Counter[int](), self.writer.sizes
        for i, count in zip(self.writer.files, self.rows, strict=True):
            records[i] += count
        owner = self.writing.job, self.task, self.id
        return tuple(
            DataFile(final, sizes[i], records[i], self.by.handle(*owner, final, sink)) for i, (final, sink) in enumerate(self.sinks.items())
        )

    def discard(self) -> None:
        self.writer.discard()
        self.by.abort_task(self.store, self.writing.job, self.task, self.id, self.sinks)


def _cast(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    """The rows in the columns of the files; a value that does not fit is an error of Arrow's, which names it."""
    return in_columns(batch.select([f.name for f in wanted if f.name in batch.schema.names]), wanted)


def _apart(batch: pa.RecordBatch, made: pa.Schema) -> Iterator[tuple[str, pa.Array | None]]:
    """The directories of some rows, each with the numbers of its rows, in their order; None: all of them."""
    columns = [batch.column(batch.schema.get_field_index(name)) for name in made.names]
    for name, column in zip(made.names, columns, strict=True):
        if why := unfit(name, column):
            raise UsageError(f"{why}.")
    keys = pa.table([*columns, pa.array(range(batch.num_rows), pa.int64())], names=[*made.names, "\0row"])
    found = keys.group_by(made.names, use_threads=False).aggregate([("\0row", "list")])
    texts = [[_text(value) for value in found.column(name).combine_chunks()] for name in made.names]
    for i, rows in enumerate(found.column("\0row_list").combine_chunks()):
        # As Spark has it: empty text lies with what is missing.
        parts = [partitions.directory(name, values[i] or None) for name, values in zip(made.names, texts, strict=True)]
        yield "/".join(parts), None if found.num_rows == 1 else rows.values


def _text(value: Any) -> str | None:
    return None if not value.is_valid else str(pc.cast(value, pa.string()).as_py())
