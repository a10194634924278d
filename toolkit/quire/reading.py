"""`quire.read`: exactly the committed files of a version, as a Spark DataFrame. All of a commit or none, at any moment."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Words
from quire.commit.log import Log
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold, Source, fold
from quire.coverage.live import LiveFile
from quire.coverage.live import live as live_files
from quire.errors import QuireError, StorageError, UsageError
from quire.formats import lines, parquet
from quire.interrupts import interruptible
from quire.options import whole
from quire.runner import guarded
from quire.storage import Store, connect, normalise
from quire.storage.sight import Landmarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CURSORS = 16  # data files that are being read at once in a task
BATCH = 8 << 20  # bytes of rows that travel to Spark at once


@interruptible
def read(
    spark: SparkSession, dest: str | os.PathLike[str], version: int | None = None, storage_options: Mapping[str, Any] | None = None
) -> DataFrame:
    """The rows of the committed data files at `version` (default: now).

    Format lines gives `value: binary`, one row a line without its newline; raw gives `path: string, content: binary`, one row a
    file (of a file longer than target_size: one a range, in order); Parquet gives its own columns. With layout="directories",
    the directories `name=value` are columns too, where all files have the same ones: int, long, double, date or string, as Spark
    infers them (Parquet: whatever Spark infers). Raises UsageError for a version that is not there.
    """
    url = normalise(dest)
    store = connect(url, storage_options)
    words, files, folded, folders = _holding(store, version)
    if words is None:
        raise _nothing(store, version)
    if words.format == "parquet":
        return _parquet(spark, store, storage_options, files, words)
    items: list[Any] = list(files)
    places = files
    if words.format == "raw":
        items = [(source, f"{folders.get(source.segment, '')}/") for source in folded.sources]
        places = [f"{folder}/" for folder in _places(store, files, folded, folders)] if words.layout == "directories" else []
    partitions = _partitions(places, ["value"] if words.format == "lines" else ["path", "content"]) if words.layout == "directories" else {}
    columns = "".join(f", {_quoted(name)} {kind}" for name, (kind, _) in partitions.items())
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
    return spark.range(0, n, 1, max(n, 1)).mapInArrow(guarded(spark, work, Landmarks([], url)), schema)


def _log(store: Store, version: int | None) -> tuple[Log, int]:
    """The log for a reader of a version, and that version; UsageError if it cannot be read."""
    log = Log(store).refresh()
    if version is None:
        return log, log.tip
    whole(version, "version", 0)
    if version > log.tip:
        raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
    if log.expired() > version:
        raise UsageError(f"version {version} of {store.url} has expired. Read a later one; ledger.history() lists them.")
    return log.at(version), version


def live(store: Store, version: int | None = None) -> tuple[Words | None, list[LiveFile], Fold]:
    """What a destination holds at a version: its words, the data files that count, and the fold."""
    log, version = _log(store, version)
    folded = fold(log, version, reader=True)
    return log.words(version, reader=True), list(live_files(log, folded, reader=True)), folded


def _holding(store: Store, version: int | None = None) -> tuple[Words | None, list[str], Fold, dict[str, str]]:
    """What a destination holds at a version: its words, its data files, the fold, and the directories of the segments."""
    log, version = _log(store, version)
    folded = fold(log, version, reader=True)
    folders = {t.segment: t.folder for _, c in log.recent(version) for t in log.in_effect(c, version, reader=True) if t.segment}
    files = [file.name for file in live_files(log, folded, reader=True)]
    return log.words(version, reader=True), files, folded, folders


def _places(store: Store, files: list[str], folded: Fold, folders: dict[str, str]) -> list[str]:
    """The directories that raw content was kept apart for, as far as rows of them count; of empty files there is no data file."""
    found = dict.fromkeys(name.rpartition("/")[0] for name in files)
    for source in folded.sources:
        if source.piece:
            rows = folded.of(source).rows(store, ["state", "folder"])
            empty = rows.filter(pc.and_(gathered(rows), pc.is_valid(rows.column("folder"))))
            found |= dict.fromkeys(pc.unique(empty.column("folder")).to_pylist())
        elif source.rows > source.bad + source.held and folders[source.segment] not in found:
            rows = folded.of(source).rows(store, ["state"])
            if pc.any(gathered(rows)).as_py():
                found[folders[source.segment]] = None
    return list(found)


def _nothing(store: Store, version: int | None = None) -> UsageError:
    at = "" if version is None else f" at version {version}"
    advice = "Look for a typing mistake, or run quire consolidate first." if version is None else "ledger.history() lists them."
    return UsageError(f"there is nothing to read in {store.url}: no commit is published{at}. {advice}")


def _lines(store: Store, name: str, compression: str) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The lines of a data file as batches; nothing is decoded."""
    return ((name, batch) for batch in lines.batches(store, name, compression))


def _raw(store: Store, item: tuple[Source, str], compression: str, folded: Fold) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of a task's data files, cut by the ledger, with the task's directory; of a checkpoint's piece, with each row's."""
    source, folder = item
    rows = folded.of(source).rows(store, ["path", "state", "data_file", "offset", "skip", "written", "folder"])
    cursors: dict[str, Any] = {}
    paths, contents, size = list[str](), list[bytes](), 0
    for row in rows.filter(gathered(rows)).to_pylist():
        name, data = row["data_file"], b""
        if name:
            if name not in cursors:
                if len(cursors) >= CURSORS:  # a piece has rows of many tasks
                    cursors.pop(next(iter(cursors)))
                cursors[name] = lines.cursor(store, name, compression)
            data = b"".join(cursors[name].take(row["offset"], row["skip"], row["written"]))
        here = folder if not source.piece else f"{name.rpartition('/')[0] if name else row['folder'] or ''}/"
        if paths and (size + len(data) > BATCH or here != folder):
            yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])
            paths, contents, size = [], [], 0
        folder = here
        paths.append(row["path"])
        contents.append(data)
        size += len(data)
    if paths:
        yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])


def _parquet(spark: SparkSession, store: Store, options: Mapping[str, Any] | None, files: list[str], words: Words) -> DataFrame:
    if not files:
        raise UsageError(f"there is nothing to read in {store.url}: no data file is committed yet.")
    found = parquet.open_file(store, files[0]).schema_arrow
    partitions = _partitions(files, found.names) if words.layout == "directories" else {}
    if all(_PLAIN.fullmatch(f"{store.url}/{name}") for name in files) and (not partitions or _only(files, partitions)):
        reader = spark.read.option("basePath", store.url) if partitions else spark.read.option("recursiveFileLookup", True)
        return reader.parquet(*[f"{store.url}/{name}" for name in files])

    # Names that Spark takes for globs, or its Java cannot open, and directories that it refuses to see as partitions
    from pyspark.sql.pandas.types import from_arrow_schema

    url = store.url
    schema = from_arrow_schema(pa.schema([*found, *(pa.field(key, kind) for key, (_, kind) in partitions.items())]))

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        store = connect(url, options)
        for batch in batches:
            for i in batch.column(0).to_pylist():
                file = parquet.open_file(store, files[i])
                for group in range(file.num_row_groups):
                    for rows in file.read_row_group(group).cast(found).to_batches():
                        yield _with_partitions(rows, files[i], partitions)

    return spark.range(0, len(files), 1, len(files)).mapInArrow(guarded(spark, work, Landmarks([], url)), schema)


def first_rows(store: Store, limit: int) -> Iterator[Any]:
    """The first rows of a destination, without Spark: bytes a line, or a dict a row or file (for the shell)."""
    words, files, folded, _ = _holding(store)
    if words is None:
        raise _nothing(store)
    if words.format == "raw":
        found: Iterator[Any] = (row for source in folded.sources for row in _files_of(store, source, words, folded))
    else:
        found = (row for name in files for row in _rows_of(store, name, words))
    try:
        yield from itertools.islice(found, max(limit, 0))
    except QuireError:
        raise
    except lines.UNREADABLE as e:
        raise StorageError(f"a data file of {store.url} is damaged ({type(e).__name__}). See which with quire ledger verify.") from e


def _files_of(store: Store, source: Source, words: Words, folded: Fold) -> Iterator[Any]:
    for _, batch in _raw(store, (source, ""), words.compression, folded):
        yield from batch.to_pylist()


def _rows_of(store: Store, name: str, words: Words) -> Iterator[Any]:
    if words.format == "parquet":
        file = parquet.open_file(store, name)
        for batch in file.iter_batches(batch_size=100):
            yield from batch.to_pylist()
    else:
        for _, batch in _lines(store, name, words.compression):
            yield from batch.column(0).to_pylist()


# ---------------------------------------------------------------------------------------------------------- partition columns
_PLAIN = re.compile(r"file:///[A-Za-z0-9_./=+@,~-]*")
_NULL = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


def _values(name: str) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for part in name.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if key and equals:
            found[_unescaped(key)] = None if value == _NULL else _unescaped(value)
    return found


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)), text)


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _partitions(files: list[str], columns: list[str]) -> dict[str, tuple[str, pa.DataType]]:
    """The columns that directories `name=value` make, with the types that Spark infers; none if not all files have them.

    A directory that is called like one of the data's own `columns` makes none.
    """
    found = [_values(name) for name in files]
    if not found or any(f.keys() != found[0].keys() for f in found):
        return {}
    taken = {c.lower() for c in columns}
    return {key: _kind([f[key] for f in found if f[key] is not None]) for key in found[0] if key.lower() not in taken}


def _only(files: list[str], partitions: Mapping[str, object]) -> bool:
    """Whether the files' directories are the partitions, in one order, and nothing else: what Spark asks for."""
    return all([part.partition("=")[0] for part in name.split("/")[:-1]] == [*partitions] for name in files)


def _kind(values: list[Any]) -> tuple[str, pa.DataType]:
    small = [re.fullmatch(r"[+-]?[0-9]{1,19}", v) is not None and -(2**31) <= int(v) < 2**31 for v in values]
    if values and all(small):
        return "int", pa.int32()
    if values and all(re.fullmatch(r"[+-]?[0-9]{1,19}", v) and -(2**63) <= int(v) < 2**63 for v in values):
        return "long", pa.int64()
    if values and all(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", v) and _is_date(v) for v in values):
        return "date", pa.date32()
    if values and all(i or re.fullmatch(r"[+-]?[0-9]*\.[0-9]+", v) for i, v in zip(small, values, strict=True)):
        return "double", pa.float64()
    return "string", pa.string()


_OF_KIND: dict[str, Callable[[str], Any]] = {
    "int32": int, "int64": int, "double": float, "date32[day]": dt.date.fromisoformat, "string": str,
}  # fmt: skip


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
        text = values.get(key)
        value = pa.array([None if text is None else _OF_KIND[str(kind)](text)], kind)
        arrays.append(value.take(pa.array(np.zeros(batch.num_rows, np.int64))))
        header.append(key)
    return pa.record_batch(arrays, header)


__all__ = ["first_rows", "live", "read"]
