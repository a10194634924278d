"""Partitions with base files and keys, for the tests of indexes: the files as quire writes them, or as others do."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from trips import T1, TOKEN

from quire.storage import connect
from quire.table.file_groups import Slice
from quire.table.format import bloom, names, schema
from quire.table.format.base_file import BaseFileWriter
from quire.table.format.config import TableConfig
from quire.table.index import Partition

COLUMNS = pa.schema([("id", pa.string())])


def configured(others: Mapping[str, str], *key: str) -> TableConfig:
    """A table with these settings."""
    return TableConfig(name="t", key=key or ("id",), partition_by=("city",), others=tuple(sorted(others.items())))


CONFIG = configured({})


def text(keys: Iterable[str]) -> pa.Array:
    """Keys as an index takes them: sorted by their bytes, each once."""
    return pa.array(sorted(set(keys), key=str.encode), pa.string())


def group(number: int) -> str:
    """The id of a file group."""
    return f"{number:08d}-aaaa-0000-0000-000000000000-0"


def base_file(keys: Iterable[str], file_id: str, partition: str = "", rows: int = 1 << 30, **more: Any) -> bytes:
    """A base file with these keys, sorted, so many in a row group."""
    sink, wanted = io.BytesIO(), text(keys)
    writer = BaseFileWriter(
        sink, names.BaseFile(file_id, TOKEN, T1), partition, COLUMNS, table="t",
        keys_filter=bloom.Filter.sized(len(wanted)), group=1, **more,
    )  # fmt: skip
    for start in range(0, len(wanted), rows):
        some = wanted.slice(start, rows)
        writer.group = some.nbytes * 100  # all of them in one
        writer.write(pa.record_batch([some], COLUMNS), some)
        writer._flush()
    writer.close()
    return sink.getvalue()


def partition(folder: Path, files: Iterable[Iterable[str]], path: str = "", rows: int = 1 << 30) -> Partition:
    """A partition whose file groups number 0, 1, … hold these keys."""
    slices = [put(folder, base_file(keys, group(i), path, rows), group(i), path) for i, keys in enumerate(files)]
    return seen(folder, slices, path)


def seen(folder: Path, slices: Iterable[Slice], path: str = "", config: TableConfig = CONFIG) -> Partition:
    """As an index sees it."""
    return Partition(connect(f"file://{folder}"), config, path, sorted(slices))


def put(folder: Path, data: bytes, file_id: str, path: str = "") -> Slice:
    """A base file in its place."""
    name = f"{path}/{names.BaseFile(file_id, TOKEN, T1).name}".lstrip("/")
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return Slice(path, file_id, T1, name, len(data))


def plain(keys: Sequence[str], folder: Path, number: int, partition: str = "", meta: Sequence[str] = schema.META) -> Slice:
    """A base file as a writer that knows neither ranges nor filters leaves it; its rows are in no order."""
    sink = io.BytesIO()
    pq.write_table(pa.table({**dict.fromkeys(meta, keys), "id": keys}), sink)
    return put(folder, sink.getvalue(), group(number), partition)
