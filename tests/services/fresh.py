"""A Spark that a user has just started with pasted settings: what its jobs show, leave and count. Prints one line of JSON.

    python fresh.py '{"url": …, "format": …, "folder": …, "conf": {…}}'        SPARK_CONF_DIR: where spark-defaults.conf lies

`folder` is on local disk, for signs between tasks and this process.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import quire

ROWS, TASKS = 1000, 4
ACTS = ("gate", "fails", "retry", "beside0", "beside1")


def work(folder: str, act: str) -> Any:
    """A function for mapInArrow: task 3 waits for a gate, raises once, or raises always."""

    def run(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task, attempt = context.partitionId(), context.attemptNumber()
        yield from batches
        Path(folder, f"{act}-{task}-{attempt}").touch()
        if task == TASKS - 1 and act == "gate":
            while not Path(folder, "open").exists():
                time.sleep(0.05)
        if task == TASKS - 1 and (act == "fails" or (act == "retry" and attempt == 0)):
            time.sleep(1)  # the others commit meanwhile
            raise ValueError("planted")

    return run


def visible(spark: Any, url: str) -> int:
    """Data files that a reader of the directory sees."""
    path = spark._jvm.org.apache.hadoop.fs.Path(url)
    fs = path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    if not fs.exists(path):
        return 0
    found, seen = fs.listFiles(path, True), 0
    while found.hasNext():
        name = found.next().getPath().toString().removeprefix(url)
        seen += not any(part.startswith(("_", ".")) for part in name.split("/"))
    return seen


def main() -> None:
    told = json.loads(sys.argv[1])
    url, kind, folder = told["url"], told["format"], told["folder"]
    builder = SparkSession.builder.master("local[4,2]")
    for key, value in told["conf"].items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    found: dict[str, Any] = {}
    checked = quire.committers.advise.check(spark, url, kind, hierarchical=told.get("hierarchical"))
    found |= {"ok": checked.ok, "committer": checked.committer, "wrong": [str(item) for item in checked.wrong]}

    def write(act: str) -> None:
        first = ACTS.index(act) * ROWS
        rows = spark.range(first, first + ROWS, 1, TASKS).mapInArrow(work(folder, act), "id long")
        rows.write.mode("append").format(kind).save(url)

    job = threading.Thread(target=write, args=("gate",))
    job.start()
    while job.is_alive() and len(list(Path(folder).glob("gate-*"))) < TASKS:
        time.sleep(0.1)
    time.sleep(2)  # three tasks commit
    found["during"] = visible(spark, url)
    Path(folder, "open").touch()
    job.join()
    found["after"] = visible(spark, url)
    try:
        write("fails")
    except Exception as e:
        found["failed"] = "planted" in str(e)
    found["after the failed one"] = visible(spark, url)
    write("retry")
    found["rows"] = spark.read.format(kind).schema("id long").load(url).count()
    found["distinct"] = spark.read.format(kind).schema("id long").load(url).distinct().count()
    if "concurrent" in told:
        jobs = [threading.Thread(target=write, args=(f"beside{i}",)) for i in range(2)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()
        found["rows of all"] = spark.read.format(kind).schema("id long").load(url).count()
    found["jars"] = spark.conf.get("spark.jars", "").count(".jar")
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
