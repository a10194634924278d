"""A session of Spark 3.5 with JVM Hudi, in a process and an environment of its own.

    python session.py BUNDLE.jar SETTINGS        the latter as JSON

Takes questions from its input and answers each by a line of JSON; rows go both ways as Parquet files, which keep their types.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

from pyspark.sql import SparkSession

SETTINGS = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # Instants are of the table's time zone, wherever the writer is.
    "spark.driver.extraJavaOptions": "-Duser.timezone=Asia/Tokyo -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


# If the test is killed itself, the kernel ends this, too, and the JVM ends with its input: at work it would not look whether anybody waits.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def read(spark: Any, url: str, options: dict[str, str], to: str) -> dict[str, object]:
    """The rows of a query, in a file at `to`."""
    spark.read.format("hudi").options(**options).load(url).coalesce(1).write.parquet(to)
    return {}


def write(spark: Any, url: str, options: dict[str, str], rows: str) -> dict[str, object]:
    """The rows of a file, into a table; options of Parquet's are Hadoop's."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.unset("parquet.avro.write-old-list-structure")
    for name in [name for name in options if name.startswith("parquet.")]:
        hadoop.set(name, options.pop(name))
    spark.read.parquet(rows).write.format("hudi").options(**options).mode("append").save(url)
    return {}


def sql(spark: Any, query: str, to: str) -> dict[str, object]:
    """The rows of a query in SQL, in a file at `to`; statements before it are divided by semicolons."""
    *before, last = query.split(";")
    for each in before:
        spark.sql(each)
    spark.sql(last).coalesce(1).write.parquet(to)
    return {}


def archived(spark: Any, url: str) -> dict[str, object]:
    """The instants that have left the timeline, and of each how many bytes are known about it."""
    hudi = spark._jvm.org.apache.hudi
    conf = hudi.storage.hadoop.HadoopStorageConfiguration(spark.sparkContext._jsc.hadoopConfiguration())
    table = hudi.common.table.HoodieTableMetaClient.builder().setConf(conf).setBasePath(url).build()
    timeline = table.getArchivedTimeline()
    timeline.loadCompletedInstantDetailsInMemory()
    found = {}
    for instant in timeline.getInstants():
        time = instant.requestedTime() if "requestedTime" in dir(instant) else instant.getTimestamp()
        found[time] = len(timeline.getInstantDetails(instant).get())
    return {"archived": found}


def main(bundle: str, settings: str) -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    builder = SparkSession.builder.master("local[2]").config("spark.jars", bundle)
    for name, value in (SETTINGS | json.loads(settings)).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        asked = json.loads(line)
        number = asked.pop("number")
        try:
            said = {"read": read, "sql": sql, "write": write, "archived": archived}[asked.pop("do")](spark, **asked)
        except Exception as e:  # the one who asked hears of it
            said = {"failed": f"{type(e).__name__}: {e}"[:4000]}
        print(json.dumps({"of": number, **said}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
