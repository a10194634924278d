"""Directories that `partition_by` makes are the same column, with the same values, for each reader of the directory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

import quire
from loading import load, topic
from services.kafka import Mock, mock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TEXTS = ["plain", "a b", "12:30", "100%", "Süd", "it's", "1=x", "x+y", "a/b", "<>", "tab\there", ".hidden", "_below", "C:\\d", "x" * 200]
VALUES: dict[str, list[Any]] = {
    "text": [*TEXTS, None],
    "number": [1, 2, -3, 40_000_000_000, None],
    "day": ["2026-11-21", "2026-11-22", None],
}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def seen(rows: Any, values: Any) -> Counter[tuple[str, str | None]]:
    return Counter((row.decode(), None if pd.isna(value) else str(value)) for row, value in zip(rows, values, strict=True))


@pytest.mark.nth(3)
@pytest.mark.parametrize("kind", VALUES)
def test_each_reader_finds_the_same_column_in_the_directories(kafka: Mock, tmp_path: Path, spark: SparkSession, kind: str) -> None:
    values, dest = VALUES[kind], tmp_path / "out"
    types = {"text": pa.string(), "number": pa.int64(), "day": pa.date32()}

    def by(batch: pa.RecordBatch) -> pa.RecordBatch:
        keys = pa.array([values[int(v)] for v in batch.column("value").to_pylist()])
        return pa.record_batch([batch.column("value"), keys.cast(types[kind])], ["value", "key"])

    load(kafka, topic(kafka, 1, [b"%d" % i for i in range(len(values))]), dest, by, partition_by="key")
    wanted = Counter((str(i), None if v is None else str(v)) for i, v in enumerate(values))
    frame = quire.read(dest, spark=spark).collect()
    assert seen([bytes(row.value) for row in frame], [row.key for row in frame]) == wanted, "quire"
    frame = spark.read.parquet(str(dest)).collect()
    assert seen([bytes(row.value) for row in frame], [row.key for row in frame]) == wanted, "Spark"
    with duckdb.connect() as db:
        rows = db.sql(f"select value, key from read_parquet('{dest}/**/*.parquet', hive_partitioning=true)").fetchall()
    assert seen([row[0] for row in rows], [row[1] for row in rows]) == wanted, "DuckDB"
    table = pa.dataset.dataset(str(dest), format="parquet", partitioning="hive").to_table()
    assert seen(table.column("value").to_pylist(), table.column("key").to_pylist()) == wanted, "pyarrow"
    # pandas gives up on a directory of missing values, whoever has written it
    there = [i for i, v in enumerate(values) if v is not None]
    load(kafka, topic(kafka, 1, [b"%d" % i for i in there]), tmp_path / "all there", by, partition_by="key")
    frame = pd.read_parquet(tmp_path / "all there")
    assert seen(frame["value"], frame["key"].astype(object)) == Counter((str(i), str(values[i])) for i in there), "pandas"
