"""Rows on their way through a closing run: Arrow files in the attempt's folder, of which each record batch is found by its number.

Nobody but the run's own tasks reads them, and they go with the folder when the job is over. Each try of a task writes files of its own.
The columns of a batch are those of the rows, then `KEY`, the record key, and `DELETES`, whether the row deletes it; neither is null. The
others may be: a row that deletes need not say more than its key. `laid` makes such batches, and `taken` takes them apart.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from quire.commit import names
from quire.errors import FormatError
from quire.formats import parquet
from quire.formats.damage import ARROW
from quire.storage import Sink, Store, connect
from quire.storage.once import once
from quire.table.format.config import TableConfig
from quire.table.format.schema import META

KEY, DELETES = META[2], "_quire_deletes"  # text and booleans
BLOCK = 64 << 20  # bytes of rows, as Arrow has them, that one task takes
PIECE = 16 << 20  # bytes of rows in one record batch
BUFFER = 1 << 20  # bytes of a block that are written at once


@dataclass(frozen=True)
class Closing:
    """One run of a task that closes a job: whose output it is. It travels to the executors."""

    dest: str
    options: Mapping[str, Any] | None = field(repr=False)
    job: str
    task: int
    attempt: str
    committer: str
    config: TableConfig

    @once
    def store(self) -> Store:
        """The table's store, opened where it is used."""
        return connect(self.dest, self.options)

    def new_block(self) -> str:
        """The name of a block file that nobody else writes."""
        return names.staged(self.job, self.task, self.attempt, f"{names.new_id()}.arrow")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "store"}


@dataclass(frozen=True)
class Run:
    """Rows of one partition in a record batch of a block file, sorted by key; each key once, unless an insert gave it twice.

    group   the file group that holds their keys; "" where none does, or nobody has looked yet
    size    bytes of the rows as Arrow has them
    """

    name: str
    batch: int
    partition: str
    rows: int
    deletes: int
    size: int
    first: str
    last: str
    group: str = ""


def laid(keys: pa.Array, deletes: pa.Array, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as they stand in a block."""
    fields = [*(f.with_nullable(True) for f in rows.schema), pa.field(KEY, pa.string()), pa.field(DELETES, pa.bool_())]
    return pa.record_batch([*rows.columns, keys, deletes], schema=pa.schema(fields))


def taken(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array, pa.RecordBatch]:
    """The keys, which of them delete, and the rows of a batch of a block."""
    return batch.column(KEY), batch.column(DELETES), batch.select(batch.schema.names[:-2])


class BlockWriter:
    """Writes a block file: record batches of one schema."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._sink, self.batches = sink, 0
        self._file = parquet.SinkFile(sink)
        self._buffer = io.BufferedWriter(self._file, BUFFER)  # Arrow writes each buffer of each column by itself
        self._writer = pa.ipc.new_file(self._buffer, schema, options=pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False))

    def add(self, batch: pa.RecordBatch) -> int:
        """Append a batch; its number."""
        self._writer.write_batch(batch)
        self.batches += 1
        return self.batches - 1

    def close(self) -> None:
        """Make it durable."""
        self._writer.close()
        self._buffer.flush()
        self._sink.close()

    def discard(self) -> None:
        """Give up what was written."""
        self._file.given_up = True
        self._sink.discard()


class Blocks:
    """A block file that is read."""

    def __init__(self, store: Store, name: str, columns: Sequence[str] | None = None) -> None:
        """`columns`: read no others."""
        self._where = f"{store.url}/{name}"
        source, options = parquet.stored(store, name), pa.ipc.IpcReadOptions(use_threads=False)
        try:
            self._file = pa.ipc.open_file(source, options=options)
            last = [(f.name, f.type) for f in list(self.schema)[-2:]]
            if columns is not None:
                options.included_fields = sorted(self.schema.names.index(column) for column in columns)
                self._file = pa.ipc.open_file(source, options=options)
        except (*ARROW, OSError, ValueError) as e:
            raise self._damaged(e) from e
        if last != [(KEY, pa.string()), (DELETES, pa.bool_())]:
            raise FormatError(f"{self._where} is not a block of sorted rows. Call again, with another attempt.")

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return self._file.schema

    def batch(self, number: int, rows: int) -> pa.RecordBatch:
        """A record batch, of so many rows; FormatError where it is not that."""
        try:
            found = self._file.get_batch(number)
            found.validate(full=True)
        except (*ARROW, OSError, ValueError, OverflowError) as e:
            raise self._damaged(e) from e
        if found.num_rows != rows:
            raise FormatError(
                f"{self._where} holds {found.num_rows:,} rows in batch {number}, and its task counted {rows:,}: look who writes there"
            )
        return found

    def _damaged(self, e: Exception) -> FormatError:
        return FormatError(f"{self._where} is damaged ({type(e).__name__}). Call again, with another attempt.")
