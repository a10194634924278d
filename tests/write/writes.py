"""Writes of rows in this process, as Spark's processes make them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from quire.commit.entries import Task
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.read.content import content
from quire.read.rows import Reading, pieces
from quire.storage import connect, destination
from quire.write import writing as steps
from quire.write.asked import asked
from quire.write.attempt import Writing, attempt


def rows(*ids: int, k: str = "a") -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "k": pa.array([k] * len(ids), pa.string())})


def begin(
    dest: Any, columns: pa.Schema | None = None, *, overwrite: bool = False, by: tuple[str, ...] = (), mode: str = "", **options: str
) -> Writing | None:  # fmt: skip
    if mode:
        overwrite, options = True, {**options, "overwrite": mode}
    schema: Any = from_arrow_schema(rows(1).schema if columns is None else columns)
    return steps.begin(destination(dest), None, schema, asked(options, by or None, overwrite=overwrite, streaming=False))


def end(writing: Writing, tasks: Sequence[Task]) -> None:
    steps.end(writing, writing.head.intent["rows"], tasks)


def write(dest: Any, *tasks: Sequence[pa.RecordBatch], **how: Any) -> None:
    """All of a write: each task has some batches."""
    if (begun := begin(dest, **how)) is not None:
        end(begun, [attempt(begun, i, batches) for i, batches in enumerate(tasks)])


def there(dest: Any) -> list[int]:
    """The ids that count, by the log."""
    store = connect(destination(dest), None)
    log = Log(store).refresh()
    files = [pq.read_table(pa.BufferReader(store.get(f.name))) for f in live(log, fold(log, reader=True), reader=True)]
    return sorted(x for table in files for x in table.column("id").to_pylist())


def listed(dest: Any) -> list[int]:
    """The ids that a reader of the directory sees."""
    store = connect(destination(dest), None)
    names = [e.name for e in store.walk() if e.name.endswith(".parquet") and not e.name.startswith("_quire/")]
    return sorted(x for name in names for x in pq.read_table(pa.BufferReader(store.get(name))).column("id").to_pylist())


def read(dest: Any) -> list[dict[str, Any]]:
    """The rows as `quire.read` gives them, with the columns of their directories."""
    held = content(connect(destination(dest), None), destination(dest))
    own, made = held.columns()
    reading = Reading(
        held.url, None, held.version, "parquet", held.spec.compression, pa.schema([*own, *made.items()]), made, kept=held.kept
    )
    return [row for piece in pieces(held) for batch in reading.rows(piece) for row in batch.to_pylist()]
