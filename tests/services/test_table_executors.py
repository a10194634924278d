"""An executor is killed while a frame that gives other rows each time is upserted into a table on a cluster: all that is visible is of one
computation of each of its parts, and after the frame was staged nothing of it is computed again."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hudi import HudiTableBuilder

import quire
from services.spark import PATIENCE, Driver, Standalone, environment, process, running, wait_until

pytestmark = pytest.mark.services
ROWS, PARTS, OLD = 120_000, 4, 10_000
FRAME = """
def made(batches):
    import random, time, uuid
    from pathlib import Path
    import pyarrow as pa
    for batch in batches:
        ids, token = batch.column("id").to_pylist(), uuid.uuid4().hex
        parts = [random.choice("ab") if i >= {OLD} else "a" for i in ids]
        Path({calls!r}, token).write_text("\\n".join(f"{{i}} {{part}}" for i, part in zip(ids, parts)))
        time.sleep({seconds})
        yield pa.record_batch({{
            "id": [str(i) for i in ids], "part": parts, "at": pa.array([1] * len(ids), pa.int64()), "computed": [token] * len(ids),
        }})
df = spark.range(0, {ROWS}, 1, {PARTS}).mapInArrow(made, "id string, part string, at long, computed string")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Standalone, Driver]]:
    """Two workers, and a driver."""
    base = tmp_path_factory.mktemp("executors")
    env = environment(base / "tmp", Path(sys.executable))
    with running(Standalone(base / "standalone", env)) as standalone:
        confs = standalone.confs() | {"spark.ui.enabled": False, "spark.driver.memory": "600m"}
        with running(Driver(base / "driver", env, standalone.url, confs)) as driver:
            yield standalone, driver


@pytest.mark.nth(2)
@pytest.mark.parametrize("during", ["the staging", "the closing run"])
def test_an_executor_is_lost_and_one_version_of_the_frame_is_visible(
    cluster: tuple[Standalone, Driver], tmp_path: Path, during: str
) -> None:  # fmt: skip
    standalone, driver = cluster
    place, calls = tmp_path / "trips", tmp_path / "calls"
    calls.mkdir()
    driver(f"table = quire.Table.create({str(place)!r}, key='id', partition_by='part', ordering='at')")
    driver(f"""
        old = spark.range({OLD}).selectExpr("cast(id as string) id", "'a' part", "0L at", "'old' computed")
        table.upsert(old, progress=False)
    """)
    driver(FRAME.format(ROWS=ROWS, PARTS=PARTS, OLD=OLD, calls=str(calls), seconds=0.2 if during == "the staging" else 0))
    wait_until(lambda: len(standalone.find("executor JVM")) == 2, PATIENCE, "both executors are there")
    executors = standalone.find("executor JVM")
    driver.ask("report = table.upsert(df, batch='one', progress=False)\nprint(report.inserted, report.updated, report.duplicates)")
    jobs, found = place / ".hoodie/_quire/jobs", "calls/*" if during == "the staging" else "trips/.hoodie/_quire/jobs/*/attempts/2-*/*"
    wait_until(lambda: list(tmp_path.glob(found)), PATIENCE, f"{during} has begun")
    os.kill(executors[0], signal.SIGKILL)
    under_way = "0" if during == "the staging" else "2"  # the number of the task that has no manifest yet
    assert not list(jobs.glob(f"*/tasks/{under_way}.*")), f"it was killed during {during}"
    assert driver.answer().split() == [str(ROWS - OLD), str(OLD), "0"]
    assert process(executors[0]) is None
    told = {path.name: path.read_text().splitlines() for path in calls.iterdir()}
    rows = quire.Table(place).snapshot(spark=quire.LocalRunner(), columns=["id", "part", "computed"]).to_pylist()
    assert sorted(int(row["id"]) for row in rows) == list(range(ROWS)), "each key once"
    seen = dict[str, list[str]]()
    for row in rows:
        seen.setdefault(row["computed"], []).append(f"{row['id']} {row['part']}")
    assert {token: sorted(lines) for token, lines in seen.items()} == {token: sorted(told[token]) for token in seen}, "whole batches"
    computed = Counter(line.partition(" ")[0] for lines in told.values() for line in lines)
    if during == "the closing run":
        assert set(computed.values()) == {1}, "nothing was computed twice"
    theirs = HudiTableBuilder.from_base_uri(str(place)).build().read()
    assert Counter(key for batch in theirs for key in batch.column("id").to_pylist()) == Counter(str(i) for i in range(ROWS))
