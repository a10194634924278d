"""A stream of commits whose whole Spark is killed in the middle, again and again: what it writes holds each commit's rows once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gathering import gather, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.chaos

COMMITS = 6
QUERY = """
import sys, quire
spark = quire.session({"spark.driver.memory": "600m"}, master="local[2]")
dest, copy, at = sys.argv[1:]
rows = spark.readStream.format("quire").option("startingVersion", 0).option("maxCommitsPerTrigger", 1).load(dest)
query = rows.writeStream.format("parquet").option("path", copy).option("checkpointLocation", at).trigger(availableNow=True).start()
query.awaitTermination()
"""


def begun(place: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", QUERY, str(place / "out"), str(place / "copy"), str(place / "at")]
    return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ended(place: Path) -> int:
    """Batches that Spark has noted as done, or begun."""
    return sum(1 for kind in ("offsets", "commits") for file in (place / "at" / kind).glob("[0-9]*") if file.name.isdigit())


def test_a_stream_that_is_killed_and_begins_again_writes_each_commit_once(tmp_path: Path, spark: SparkSession) -> None:
    dice, wanted = random.Random(int(os.environ.get("CHAOS_SEED", "7"))), Counter[bytes]()
    for i in range(COMMITS):
        write(tmp_path / "in", {f"r{i}/f{j}": b"%d %d\n" % (i, j) for j in range(3)})
        gather(tmp_path / "in", tmp_path / "out")
        wanted.update(b"%d %d" % (i, j) for j in range(3))
    for kill in range(3):
        query, before = begun(tmp_path), ended(tmp_path)
        until = time.monotonic() + 120
        while ended(tmp_path) < before + 2 + kill and query.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(dice.random() / 2)
        os.killpg(query.pid, signal.SIGKILL)
        query.wait(30)
    assert begun(tmp_path).wait(240) == 0
    rows = spark.read.parquet(str(tmp_path / "copy")).collect()
    assert Counter(bytes(row.value) for row in rows) == wanted
