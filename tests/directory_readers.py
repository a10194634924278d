"""Readers that list a directory of Parquet and know nothing of quire: DuckDB, pyarrow and pandas, which must agree, and Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds

from quire.storage import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def values(directory: Path, column: str) -> list[Any]:
    """The values of a column in all rows, sorted; AssertionError where the readers see different ones."""
    if not any(directory.rglob("*.parquet")):
        return []
    with duckdb.connect() as db:
        seen = {"DuckDB": [row[0] for row in db.sql(f"select {column} from read_parquet('{directory}/**/*.parquet')").fetchall()]}
    seen["pyarrow"] = ds.dataset(str(directory), format="parquet").to_table([column]).column(column).to_pylist()
    seen["pandas"] = pd.read_parquet(directory, columns=[column])[column].tolist()
    found = {reader: sorted(each) for reader, each in seen.items()}
    assert found["DuckDB"] == found["pyarrow"] == found["pandas"], found
    return found["DuckDB"]


def values_in_spark(spark: SparkSession, directory: Path, column: str) -> list[Any]:
    """The same as Spark sees them."""
    if not any(directory.rglob("*.parquet")):
        return []
    seen = [row[0] for row in spark.read.parquet(f"file://{directory}").select(column).collect()]
    return sorted(bytes(each) if isinstance(each, bytearray) else each for each in seen)


def copied(store: Store, to: Path) -> Path:
    """All Parquet files that somebody finds in a store who lists it, in a directory of the same names."""
    for entry in store.walk():
        if entry.name.endswith(".parquet"):
            path = to / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(store.get(entry.name))
    return to
