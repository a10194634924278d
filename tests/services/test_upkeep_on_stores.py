"""Upkeep on stores behind a network, in Spark's tasks: what many runs have left becomes few files, beside readers and a kill."""

from __future__ import annotations

import io
import os
import threading
import uuid
from collections import Counter
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire import Ledger
from quire.commit import protocol
from quire.ledger import maintaining
from quire.sources.files import is_shown
from quire.storage import bare
from services import s3
from services.azurite import connection_string
from services.hdfs import HOME, USER

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
SOON: dict[str, Any] = {"small_files": 3, "small_share": 0.0, "grace": 0}
RUNS, EACH = 4, 5
SERVICES = pytest.mark.parametrize("service", ["azurite", "seaweedfs", pytest.param("hdfs", marks=pytest.mark.services)])


def place(kind: str, request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    """A new place on a service."""
    name = uuid.uuid4().hex
    if kind == "azurite":
        return f"abfs://tests/{name}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))}
    if kind == "seaweedfs":
        return f"s3://{s3.BUCKET}/{name}", dict(s3.options(request.getfixturevalue("seaweedfs")))
    return f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{name}", {"user": USER}


def rows_of(content: bytes, file: Any) -> pa.RecordBatch:
    n = int(content)
    return pa.record_batch({"city": [f"c{i}" for i in range(3)], "n": pa.array([n, n, n], pa.int64()), "by": [str(os.getpid())] * 3})


def filled(url: str, options: dict[str, Any], **settings: Any) -> None:
    """Runs that leave a file in each directory."""
    store = bare(f"{url}/in", options)
    for run in range(RUNS):
        for i in range(EACH):
            store.put(f"{run}-{i}", b"%d" % (run * EACH + i))
        quire.consolidate(
            f"{url}/in",
            f"{url}/out",
            transform=rows_of,
            format="parquet",
            function_version="1",
            storage_options=options,
            **settings,
            **HERE,
        )


def there(url: str, options: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """By directory the numbers in each data file, as who lists the directory finds them."""
    store, found = bare(f"{url}/out", options), dict[str, list[list[Any]]]()
    for name in (entry.name for entry in store.walk() if is_shown(entry.name) and entry.name.endswith(".parquet")):
        found.setdefault(name.rpartition("/")[0], []).append(pq.read_table(io.BytesIO(store.get(name))).column("n").to_pylist())
    return found


WANTED = Counter(range(RUNS * EACH))


@SERVICES
def test_each_directory_is_compacted_by_tasks_of_spark(service: str, request: pytest.FixtureRequest, spark: Any) -> None:
    url, options = place(service, request)
    filled(url, options, partition_by="city")
    assert {folder: len(files) for folder, files in there(url, options).items()} == {f"city=c{i}": RUNS for i in range(3)}
    ledger, tasks = Ledger(f"{url}/out", storage_options=options), list[int]()
    done = ledger.maintain(spark=spark, progress=lambda step: tasks.append(step.tasks), **SOON)
    assert (list(done.due), done.hindered, done.left) == (["compact"], {}, ())
    assert done.compaction is not None
    assert (done.compaction.removed, done.compaction.written) == (3 * RUNS, 3)
    assert max(tasks) == 3, "a task of Spark for each directory"
    left = ledger.expire(grace=0)
    assert left.data_files in (0, 3 * RUNS), "retired with the commit, or kept for readers of older versions until now"
    found = there(url, options)
    assert {folder: [Counter(numbers) for numbers in files] for folder, files in found.items()} == {
        f"city=c{i}": [WANTED] for i in range(3)
    }
    assert ledger.verify(spark=spark).ok
    assert ledger.maintain(dry_run=True, **SOON, **HERE).due == {}


@SERVICES
def test_upkeep_that_is_killed_is_ended_by_the_next_one(
    service: str, request: pytest.FixtureRequest, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tasks are done, and the driver dies before it commits, or after that, before anything is in its place."""
    url, options = place(service, request)
    filled(url, options)
    ledger = Ledger(f"{url}/out", storage_options=options)
    for step in ("commit", "_publish"):
        with monkeypatch.context() as patch:
            patch.setattr(protocol, step, _killed)
            with pytest.raises(KeyboardInterrupt):
                ledger.maintain(spark=spark, progress=False, **SOON)
    assert "compact" in ledger.maintain(dry_run=True, **SOON, **HERE).due or sum(map(len, there(url, options).values())) == 1
    ledger.maintain(spark=spark, progress=False, **SOON)
    ledger.expire(grace=0)
    (numbers,) = there(url, options)[""]
    assert Counter(numbers) == Counter({n: 3 * count for n, count in WANTED.items()})
    assert ledger.summary().files == RUNS * EACH
    assert ledger.verify(spark=spark).ok


@pytest.mark.parametrize("service", ["seaweedfs"])
def test_a_loop_on_spark_maintains_its_destination_there(
    service: str, request: pytest.FixtureRequest, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintaining.Budget, "spare", property(lambda _: 99.0))
    url, options = place(service, request)
    store = bare(f"{url}/in", options)
    store.put("0", b"0")

    class Stop(threading.Event):
        runs = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.runs += 1
            store.put(f"{self.runs}", b"%d" % self.runs)
            return self.runs > 4

    report = quire.consolidate(
        f"{url}/in", f"{url}/out", transform="lines", storage_options=options, every=1, stop=Stop(), maintain=SOON, spark=spark,
        progress=False,
    )  # fmt: skip
    assert report.upkeep == ()
    verbs = list(Ledger(f"{url}/out", storage_options=options).inspect.history()["verb"])
    assert (verbs.count("run"), "compact" in verbs) == (5, True)
    assert sorted(quire.Ledger(f"{url}/out", storage_options=options).inspect.splits()["path"].str[-1]) == list("01234")


def _killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
