"""`quire.read`: exactly the committed files of a version, as a Spark DataFrame. All of a commit or none, at any moment."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Expired, Task, Words
from quire.commit.log import Log
from quire.coverage.fold import Fold, Source, fold
from quire.errors import UsageError
from quire.formats import lines, parquet
from quire.options import whole
from quire.storage import Store, connect, normalise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 8 << 20  # bytes of rows that travel to Spark at once


def read(
    spark: SparkSession, dest: str | os.PathLike[str], version: int | None = None, storage_options: Mapping[str, Any] | None = None
) -> DataFrame:
    """The rows of the committed data files at `version` (default: now).

    Format lines gives `value: binary`, one row a line without its newline; raw gives `path: string, content: binary`, one row a
    file (of a file longer than target_size: one a range, in order); Parquet gives its own columns. With layout="directories",
    the directories `name=value` are columns too, as Spark would infer them. Raises UsageError for a version that is not there.
    """
    url = normalise(dest)
    store = connect(url, storage_options)
    words, tasks, folded = live(store, version)
    if words is None:
        raise UsageError(
            f"there is nothing to read in {url}: no commit is published{f' at version {version}' if version is not None else ''}."
        )
    files = [file.name for task in tasks for file in task.files if file.name not in folded.removed]
    partitions = _partitions(files) if words.layout == "directories" else {}
    if words.format == "parquet":
        return _parquet(spark, store, files, words)
    items: list[Any] = list(files)
    if words.format == "raw":
        with_rows = [t for t in tasks if t.segment]
        items = [(source, f"{task.folder}/") for source, task in zip(folded.sources, with_rows, strict=True)]
    columns = "".join(f", `{name}` {kind}" for name, (kind, _) in partitions.items())
    of_lines, compression = words.format == "lines", words.compression

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = connect(url, storage_options)
        for batch in batches:
            for i in batch.column(0).to_pylist():
                found = _lines(store, items[i], compression) if of_lines else _raw(store, items[i], compression, folded)
                for name, made in found:
                    yield _with_partitions(made, name, partitions)

    schema = ("value binary" if of_lines else "path string, content binary") + columns
    n = len(items)
    return spark.range(0, n, 1, max(n, 1)).mapInArrow(work, schema)


def live(store: Store, version: int | None = None) -> tuple[Words | None, list[Task], Fold]:
    """What a destination holds at a version: its words, the tasks of the published commits, and the fold."""
    log = Log(store).refresh()
    if version is not None:
        whole(version, "version", 0, max(log.tip, 1))
        if version > log.tip:
            raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
        if any(isinstance(e, Expired) and e.below > version for e in log.entries):
            raise UsageError(f"version {version} of {store.url} has expired. Read a later one; ledger.history() lists them.")
    commits = [(c, log.in_effect(c, version, reader=True)) for _, c in log.commits(until=version)]
    tasks = [t for _, found in commits for t in found]
    words = next((c.words for c, found in commits if found), None)
    return words, tasks, fold(log, version, reader=True)


def _lines(store: Store, name: str, compression: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The lines of a data file as batches; nothing is decoded."""
    rest = b""
    for piece in lines.contents(store, name, compression):
        end = piece.rfind(b"\n") + 1
        if end:
            yield name, _split(rest + piece[:end])
            rest = piece[end:]
        else:
            rest += piece
    if rest:
        yield name, _split(rest + b"\n")


def _split(data: bytes) -> pa.RecordBatch:
    """Bytes that end with a newline → a batch of `value`, in one pass and without a copy of the bytes for each line."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == 10)
    starts = np.concatenate(([0], ends[:-1] + 1))
    keep = np.ones(len(data), bool)
    keep[ends] = False
    offsets = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int32)
    values = np.frombuffer(data, np.uint8)[keep]
    array = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    return pa.record_batch([array], ["value"])


def _raw(store: Store, item: tuple[Source, str], compression: str, folded: Fold) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of a task's data files, cut by the ledger."""
    source, folder = item
    rows = folded.of(source).rows(store, ["path", "state", "data_file", "offset", "skip", "written"])
    cursors: dict[str, Any] = {}
    paths, contents, size = list[str](), list[bytes](), 0
    for row in rows.filter(pc.equal(rows.column("state"), "done")).to_pylist():
        name, data = row["data_file"], b""
        if name:
            if name not in cursors:
                cursors[name] = lines.cursor(store, name, compression)
            data = b"".join(cursors[name].take(row["offset"], row["skip"], row["written"]))
        if paths and size + len(data) > BATCH:
            yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])
            paths, contents, size = [], [], 0
        paths.append(row["path"])
        contents.append(data)
        size += len(data)
    if paths:
        yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])


def _parquet(spark: SparkSession, store: Store, files: list[str], words: Words) -> DataFrame:
    if not files:
        raise UsageError(f"there is nothing to read in {store.url}: no data file is committed yet.")
    reader = spark.read
    if words.layout == "directories":
        reader = reader.option("basePath", store.url)
    return reader.parquet(*[f"{store.url}/{name}" for name in files])


def first_rows(store: Store, limit: int) -> Iterator[Any]:
    """The first rows of a destination, without Spark: bytes a line, or a dict a row or file (for the shell)."""
    words, tasks, folded = live(store)
    for task in tasks:
        for file in task.files:
            if words is None or file.name in folded.removed:
                continue
            for row in _rows_of(store, file.name, words):
                if limit <= 0:
                    return
                limit -= 1
                yield row


def _rows_of(store: Store, name: str, words: Words) -> Iterator[Any]:
    if words.format == "parquet":
        file = parquet.open_file(store, name)
        for batch in file.iter_batches(batch_size=100):
            yield from batch.to_pylist()
    elif words.format == "lines":
        for _, batch in _lines(store, name, words.compression):
            yield from batch.column(0).to_pylist()
    else:
        yield from lines.contents(store, name, words.compression)


# ---------------------------------------------------------------------------------------------------------- partition columns
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


def _values(name: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if key and equals:
            text = _ESCAPED.sub(lambda m: chr(int(m[1], 16)), value)
            found[key] = None if value == _NULL else text
    return found


def _partitions(files: list[str]) -> dict[str, tuple[str, pa.DataType]]:
    """The columns that directories `name=value` make, with the types that Spark infers; none if not all files have them."""
    found = [_values(name) for name in files]
    if not found or any(f.keys() != found[0].keys() for f in found):
        return {}
    return {key: _kind([f[key] for f in found if f[key] is not None]) for key in found[0]}


def _kind(values: list[Any]) -> tuple[str, pa.DataType]:
    if values and all(re.fullmatch(r"-?[0-9]{1,18}", v) for v in values):
        small = all(-(2**31) <= int(v) < 2**31 for v in values)
        return ("int", pa.int32()) if small else ("long", pa.int64())
    if values and all(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", v) and _is_date(v) for v in values):
        return "date", pa.date32()
    if values and all(re.fullmatch(r"-?[0-9]*\.[0-9]+", v) for v in values):
        return "double", pa.float64()
    return "string", pa.string()


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _with_partitions(batch: pa.RecordBatch, name: str, partitions: Mapping[str, tuple[str, pa.DataType]]) -> pa.RecordBatch:
    if not partitions:
        return batch
    values = _values(name)
    arrays, header = list(batch.columns), list(batch.schema.names)
    for key, (_, kind) in partitions.items():
        value = pa.array([values.get(key)], pa.string()).cast(kind)
        arrays.append(value.take(pa.array(np.zeros(batch.num_rows, np.int64))))
        header.append(key)
    return pa.record_batch(arrays, header)


__all__ = ["first_rows", "live", "read"]
