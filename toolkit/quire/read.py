"""`quire.read`: exactly the committed files of a version, as a Spark DataFrame. All of a commit or none, at any moment."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.arguments import whole
from quire.commit.entries import Spec
from quire.commit.log import Log
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold, Source, fold
from quire.coverage.live import LiveFile
from quire.coverage.live import live as live_files
from quire.errors import FormatError, QuireError, RefusedError, StorageError, UsageError
from quire.formats import lines, parquet, partitions
from quire.formats.damage import ARROW
from quire.interrupts import interruptible
from quire.sources.transforms import schemas
from quire.spark.runner import OnSpark, frame_of
from quire.spark.visibility import is_literal
from quire.storage import Store, connect, destination
from quire.storage.within import is_marked, is_table, plain
from quire.table.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CURSORS = 16  # data files that are being read at once in a task
BATCH = 8 << 20  # bytes of rows that travel to Spark at once


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
    infers). `storage_options` are those of the store. Raises UsageError for a version that is not there.

    A table gives its rows at the newest instant, whoever has written them (`quire.Table.snapshot`); it has no versions.
    """
    url = destination(dest, storage_options)
    if is_marked(url):
        return _table(plain(url), spark, version, storage_options)
    store = connect(url, storage_options)
    log, spec, files, folded, folders = _holding(store, version)
    if spec is None:
        raise _nothing(store, version)
    if spark is None:
        from quire.spark.session import session

        spark = session()
    spark = OnSpark(spark).spark  # which says so if it is none, or was stopped
    if spec.format == "parquet":
        return _parquet(spark, store, storage_options, files, spec, _by(log, spec))
    items: list[Any] = list(files)
    places = files
    if spec.format == "raw":
        items = [(source, f"{folders.get(source.segment, '')}/") for source in folded.sources]
        places = [f"{folder}/" for folder in _places(store, files, folded, folders)] if spec.layout == "directories" else []
    own, apart = ["value"] if spec.format == "lines" else ["path", "content"], spec.layout == "directories"
    made = _partitions(places, own, _by(log, spec)) if apart else {}
    columns = "".join(f", {_quoted(name)} {schemas.type_text(kind, name)}" for name, kind in made.items())
    of_lines, compression = spec.format == "lines", spec.compression

    def read(i: int) -> Iterator[pa.RecordBatch]:
        store = connect(url, storage_options)
        for name, rows in _lines(store, items[i], compression) if of_lines else _raw(store, items[i], compression, folded):
            yield _with_partitions(rows, name, made)

    schema = ("value binary" if of_lines else "path string, content binary") + columns
    return frame_of(spark, len(items), read, schema, url)


def _table(url: str, spark: Any, version: int | None, options: Mapping[str, Any] | None) -> DataFrame:
    if version is not None:
        raise UsageError(
            f"{url} is a table, which has instants and no versions: quire.Table({url!r}).as_of('20261122103000000').snapshot()"
        )
    found: DataFrame = Table(url, storage_options=options).snapshot(spark=spark)
    return found


def _log(store: Store, version: int | None) -> tuple[Log, int]:
    """The log for a reader of a version, and that version; UsageError if it cannot be read."""
    log = Log(store).refresh()
    if version is None:
        return log, log.tip
    whole(version, "version", 0)
    if version > log.tip:
        raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
    if log.expired() > version:
        raise UsageError(f"version {version} of {store.url} has expired. Read a later one; ledger.inspect.history() lists them.")
    return log.at(version), version


def live(store: Store, version: int | None = None) -> tuple[Spec | None, list[LiveFile], Fold]:
    """The content of a destination at a version: its words, the data files that count, and the fold."""
    log, version = _log(store, version)
    folded = fold(log, version, reader=True)
    return log.spec(version, reader=True), list(live_files(log, folded, reader=True)), folded


def _holding(store: Store, version: int | None = None) -> tuple[Log, Spec | None, list[str], Fold, dict[str, str]]:
    """The content of a destination at a version: its log, its words, its data files, the fold, and the directories of the segments."""
    log, version = _log(store, version)
    folded = fold(log, version, reader=True)
    tasks = (t for _, c in log.recent(version) for t in log.in_effect(c, version, reader=True))
    folders = {segment: t.folder for t in tasks if (segment := t.coverage.segment)}
    files = [file.name for file in live_files(log, folded, reader=True)]
    return log, log.spec(version, reader=True), files, folded, folders


def _places(store: Store, files: list[str], folded: Fold, folders: dict[str, str]) -> list[str]:
    """The directories that raw content was kept apart for, as far as rows of them count; an empty file has no data file."""
    found = dict.fromkeys(name.rpartition("/")[0] for name in files)
    for source in folded.sources:
        if source.piece:
            rows = folded.of(source).rows(store, ["state", "folder"])
            empty = rows.filter(pc.and_(gathered(rows), pc.is_valid(rows.column("folder"))))
            found |= dict.fromkeys(pc.unique(empty.column("folder")).to_pylist())
        elif source.rows > source.quarantined + source.held and folders[source.segment] not in found:
            rows = folded.of(source).rows(store, ["state"])
            if pc.any(gathered(rows)).as_py():
                found[folders[source.segment]] = None
    return list(found)


def _nothing(store: Store, version: int | None = None) -> UsageError:
    at = "" if version is None else f" at version {version}"
    advice = "Check the spelling, or run quire consolidate first." if version is None else "ledger.inspect.history() lists them."
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


def _parquet(
    spark: SparkSession, store: Store, options: Mapping[str, Any] | None, files: list[str], spec: Spec, by: Mapping[str, pa.DataType]
) -> DataFrame:  # fmt: skip
    if not files:
        raise UsageError(f"there is nothing to read in {store.url}: no data file is committed yet.")
    found = parquet.open_file(store, files[0]).schema_arrow
    made = _partitions(files, found.names, by) if spec.layout == "directories" else {}
    url, reader = store.url, spark.read.option("basePath", store.url) if made else spark.read.option("recursiveFileLookup", True)
    plain = all(is_literal(f"{url}/{name}") for name in files) and (not made or _only(files, made))
    if plain and not by:
        return reader.parquet(*[f"{url}/{name}" for name in files])
    from pyspark.sql.pandas.types import from_arrow_schema

    found = pa.schema([f.with_type(_for_spark(f.type)) for f in found])
    schema = from_arrow_schema(pa.schema([*found, *made.items()]), prefer_timestamp_ntz=True)
    if plain:
        return reader.schema(schema).parquet(*[f"{url}/{name}" for name in files])  # else Spark guesses the types of the values

    # Names that Spark takes for globs, or its Java cannot open, and directories that it refuses to see as partitions

    def read(i: int) -> Iterator[pa.RecordBatch]:
        file = parquet.open_file(connect(url, options), files[i])
        for group in range(file.num_row_groups):
            for rows in file.read_row_group(group).cast(found).to_batches():
                yield _with_partitions(rows, files[i], made)

    return frame_of(spark, len(files), read, schema, url)


def first_rows(store: Store, limit: int) -> Iterator[Any]:
    """The first rows of a destination, without Spark: bytes a line, or a dict a row or file (for the shell)."""
    if is_table(store):
        raise RefusedError(f"{store.url} is a table: read it with quire.Table({store.url!r}).snapshot(), or any reader of Hudi.")
    log, spec, files, folded, _ = _holding(store)
    if spec is None:
        raise _nothing(store)
    if spec.format == "raw":
        found: Iterator[Any] = (row for source in folded.sources for row in _files_of(store, source, spec, folded))
    else:
        by = _by(log, spec)
        found = (row for name in files for row in _rows_of(store, name, spec, by))
    try:
        yield from itertools.islice(found, max(limit, 0))
    except QuireError:
        raise
    except lines.UNREADABLE as e:
        raise StorageError(f"a data file of {store.url} is damaged ({type(e).__name__}). See which with quire ledger verify.") from e


def _files_of(store: Store, source: Source, spec: Spec, folded: Fold) -> Iterator[Any]:
    for _, batch in _raw(store, (source, ""), spec.compression, folded):
        yield from batch.to_pylist()


def _rows_of(store: Store, name: str, spec: Spec, by: Mapping[str, pa.DataType]) -> Iterator[Any]:
    if spec.format == "parquet":
        file = parquet.open_file(store, name)
        for batch in file.iter_batches(batch_size=100):
            yield from _with_partitions(batch, name, {key: kind for key, kind in by.items() if key not in batch.schema.names}).to_pylist()
    else:
        for _, batch in _lines(store, name, spec.compression):
            yield from batch.column(0).to_pylist()


# ---------------------------------------------------------------------------------------------------------- partition columns
def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _by(log: Log, spec: Spec) -> dict[str, pa.DataType]:
    """The column by whose values quire has put rows into directories, with the type that it had; none without such a column."""
    if not spec.by:
        return {}
    columns = schemas.frozen(log) or parquet.RECORDS
    return {spec.by: columns.field(spec.by).type if spec.by in columns.names else pa.date32()}


def _partitions(files: list[str], columns: list[str], by: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    """The columns that directories `name=value` make; none if not all files have them.

    `by`: those whose type is known; of others it is what Spark infers. A directory that is called like one of the data's own `columns`
    makes none.
    """
    if by:
        return {key: _for_spark(kind) for key, kind in by.items() if key not in columns}
    found = [partitions.values(name) for name in files]
    if not found or any(f.keys() != found[0].keys() for f in found):
        return {}
    taken = {c.lower() for c in columns}
    return {key: _kind([f[key] for f in found if f[key] is not None]) for key in found[0] if key.lower() not in taken}


def _only(files: list[str], made: Mapping[str, object]) -> bool:
    """Whether the files' directories are the partitions, in one order, and nothing else: what Spark asks for."""
    return all([part.partition("=")[0] for part in name.split("/")[:-1]] == [*made] for name in files)


def _kind(values: list[Any]) -> pa.DataType:
    small = [re.fullmatch(r"[+-]?[0-9]{1,19}", v) is not None and -(2**31) <= int(v) < 2**31 for v in values]
    if values and all(small):
        return pa.int32()
    if values and all(re.fullmatch(r"[+-]?[0-9]{1,19}", v) and -(2**63) <= int(v) < 2**63 for v in values):
        return pa.int64()
    if values and all(re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", v) and _is_date(v) for v in values):
        return pa.date32()
    if values and all(i or re.fullmatch(r"[+-]?[0-9]*\.[0-9]+", v) for i, v in zip(small, values, strict=True)):
        return pa.float64()
    return pa.string()


def _is_date(text: str) -> bool:
    try:
        dt.date.fromisoformat(text)
    except ValueError:
        return False
    return True


_SPARK = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}


def _for_spark(kind: Any) -> pa.DataType:
    """The type as which Spark reads a column of Parquet; it has no whole numbers without a sign."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _for_spark(f.type), f.nullable) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(_for_spark(kind.key_type), _for_spark(kind.item_type))
    return pa.list_(_for_spark(kind.value_type)) if pa.types.is_list(kind) else _SPARK.get(kind, kind)


def _with_partitions(batch: pa.RecordBatch, name: str, made: Mapping[str, pa.DataType]) -> pa.RecordBatch:
    if not made:
        return batch
    values = partitions.values(name)
    arrays, header = list(batch.columns), list(batch.schema.names)
    for key, kind in made.items():
        try:
            value = partitions.typed(values.get(key), kind)
        except (ValueError, OverflowError, *ARROW) as e:
            raise FormatError(
                f"the data file {name} lies in a directory that is not of a column {key!r} of {kind}: look who put it there."
            ) from e
        arrays.append(value.take(pa.array(np.zeros(batch.num_rows, np.int64))))
        header.append(key)
    return pa.record_batch(arrays, header)
