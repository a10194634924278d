"""Readers of Iceberg that others have made: pyiceberg, and DuckDB's `iceberg_scan`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
from pyiceberg.table import StaticTable

if TYPE_CHECKING:
    import pyarrow as pa


def table(dest: Path) -> StaticTable:
    return StaticTable.from_metadata(str(dest / "_iceberg"))


@functools.cache
def database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        (found,) = Path(str(extension.__file__)).parent.rglob("*.duckdb_extension")
        db.execute(f"load '{found}'")
    return db


def seen(dest: Path) -> pa.Table:
    """The rows that pyiceberg finds; DuckDB finds as many."""
    found = table(dest).scan().to_arrow()
    place = str(dest / "_iceberg").replace("'", "''")
    ((count,),) = database().sql(f"select count(*) from iceberg_scan('{place}')").fetchall()
    assert count == found.num_rows
    return found
