"""A file without rows for who reads the directory: its name is the first one, and its columns are those that all data files have together.

Spark, pandas and pyarrow take the columns of the first file that they list for those of all, so a column that came later would be left
out where the first file is an older one. The log says the columns; whoever dies before this file is written is repeated by the next call.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit import names
from quire.commit.entries import TABLE
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.errors import NotFoundError
from quire.formats import parquet
from quire.sources.transforms import schemas
from quire.storage import Store


def keep_up(log: Log) -> None:
    """Write the file, where columns have grown and it does not say so yet."""
    written = None
    while (columns := _of(log)) is not None and columns != written:
        name = _name(log)
        said = _said(log.store, name)
        if said is not None and (said.metadata.num_rows or said.schema_arrow == columns):  # one with rows is somebody's own
            return
        sink = io.BytesIO()
        pq.write_table(columns.empty_table(), sink)
        log.store.put(name, sink.getvalue())
        written = columns
        log.refresh()  # somebody who was slower may have written an older one meanwhile


def _of(log: Log) -> pa.Schema | None:
    """The columns in the files; None: each data file has all of them."""
    spec = log.spec(reader=True)
    if spec is None or spec.format != "parquet" or spec.reduce == TABLE:
        return None
    return schemas.grown(log)


def _name(log: Log) -> str:
    """Beside the first data file: in a directory of its own it would have no part of the columns that directories make."""
    spec = log.spec()
    if spec is None or spec.layout != "directories":
        return names.COLUMNS
    folders = (file.name.rpartition("/")[0] for file in live(log, fold(log, reader=True), reader=True))
    folder = min(folders, default="")
    return f"{folder}/{names.COLUMNS}" if folder else names.COLUMNS


def _said(store: Store, name: str) -> parquet.ParquetFile | None:
    try:
        return parquet.open_file(store, name)
    except NotFoundError:
        return None
    except parquet.DAMAGED:
        return None  # a write of it was cut off
