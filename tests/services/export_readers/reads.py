"""Runs in a Spark that has Delta's and Iceberg's jars: what it reads of each place, as JSON on the last line.

python reads.py JARS TASK …        a task: delta|iceberg|refused=PLACE
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession


def rows(spark: Any, format: str, place: str) -> list[list[Any]]:
    frame = spark.read.format(format).load(f"{place}/_iceberg" if format == "iceberg" else place)
    columns = [column for column in ("path", "content", "id", "city", "fare") if column in frame.columns]
    return sorted([str(value) for value in row] for row in frame.select(columns).collect())


def refused(spark: Any, place: str) -> str:
    """The words with which Delta refuses to write."""
    try:
        spark.read.format("delta").load(place).limit(1).write.format("delta").mode("append").save(place)
    except Exception as e:
        return str(e)[:2000]
    return ""


def main(jars: str, *tasks: str) -> None:
    builder: Any = SparkSession.builder
    spark = (
        builder.master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false").config("spark.driver.memory", "1g")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )  # fmt: skip
    found = {}
    for task in tasks:
        what, _, place = task.partition("=")
        found[task] = refused(spark, place) if what == "refused" else rows(spark, what, place)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
