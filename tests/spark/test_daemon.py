"""Spark's workers on this machine begin with what quire's tasks load, and draw numbers of their own."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from quire.spark import daemon
from quire.spark import session as sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

KEY = "spark.python.daemon.module"


def test_a_worker_has_what_its_tasks_load_before_the_first_of_them(spark: SparkSession) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        there = "quire.engine.attempt" in sys.modules and "pandas" in sys.modules
        import pyarrow as pa

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"there": [there] * batch.num_rows})

    assert spark.conf.get(KEY) == "quire.spark.daemon"
    assert {row["there"] for row in spark.range(0, 2, 1, 2).mapInArrow(look, "there boolean").collect()} == {True}


def test_workers_take_pyspark_from_where_its_bytecode_is_kept(spark: SparkSession) -> None:
    """Spark's archive of the same comes first as it starts the daemon, and is compiled anew each time."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        import pyarrow as pa

        places = [sys.modules[name].__file__ or "" for name in ("pyspark", "pyspark.worker", "py4j")]
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"places": [places] * batch.num_rows})

    (found,) = spark.range(0, 1, 1, 1).mapInArrow(look, "places array<string>").collect()
    assert not [place for place in found["places"] if ".zip" in place]


def test_archives_of_another_spark_stay_first(tmp_path: Path) -> None:
    """Only the package manager's own pyspark is the same as its archive; and nothing is lost where a part is not installed."""
    archive = tmp_path / "site/pyspark/python/lib/pyspark.zip"
    archive.parent.mkdir(parents=True)
    for name in ("pyspark.zip", "py4j-0.10-src.zip"):
        (archive.parent / name).touch()
    (tmp_path / "site/pyspark/__init__.py").touch()
    ours, site = [str(archive), str(archive.parent / "py4j-0.10-src.zip")], str(tmp_path / "site")
    assert daemon.installed_first([*ours, "a", site, "b"]) == ["a", site, "b", *ours]
    assert daemon.installed_first([*ours, "a"]) == [*ours, "a"], "that pyspark cannot be imported"
    (tmp_path / "another/pyspark").mkdir(parents=True)
    (tmp_path / "another/pyspark/__init__.py").touch()
    before = [*ours, str(tmp_path / "another"), site]
    assert daemon.installed_first(before) == before, "another pyspark would be imported"
    other = ["/opt/spark/python/lib/pyspark.zip", "/opt/spark/python/lib/py4j-0.10-src.zip", site]
    assert daemon.installed_first(other) == other


def test_workers_draw_numbers_of_their_own() -> None:
    said = (
        "import os, random, sys, numpy\n"
        "from quire.spark import daemon\n"
        "import pyspark.daemon\n"
        "def manager():\n"
        "    for _ in range(2):\n"
        "        if not os.fork():\n"
        "            print(numpy.random.rand(), random.random(), flush=True)\n"
        "            os._exit(0)\n"
        "        os.wait()\n"
        "numpy.random.rand()\n"
        "pyspark.daemon.manager = manager\n"
        "daemon.main()\n"
    )
    first, second = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True).stdout.splitlines()
    assert all(one != other for one, other in zip(first.split(), second.split(), strict=True))


@pytest.mark.parametrize(
    ("wanted", "configured"),
    [
        ({"spark.master": "spark://elsewhere:7077"}, {}),
        ({"spark.master": "local-cluster[2,1,512]"}, {}),
        ({"spark.pyspark.python": "/usr/bin/another"}, {}),
        ({}, {"spark.pyspark.python": "/usr/bin/another"}),
        ({KEY: None}, {}),
    ],
    ids=["a cluster", "a cluster of this machine", "another Python", "another Python of the machine's settings", "left out"],
)
def test_workers_that_may_have_no_quire_begin_as_ever(wanted: dict[str, str | None], configured: dict[str, str]) -> None:
    assert KEY not in sessions._settings(wanted, configured)
    assert sessions._settings({"spark.master": "local[2]"}, {})[KEY] == "quire.spark.daemon"
    assert sessions._settings({KEY: "mine"}, {})[KEY] == "mine"


def test_what_does_not_load_is_left_to_who_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = list[str](), importlib.import_module

    def broken(name: str, *package: str) -> Any:
        if name not in daemon.MODULES:  # boto3 loads parts of itself so, if nothing before has let it
            return real(name, *package)
        asked.append(name)
        raise RuntimeError(name)

    monkeypatch.setattr(daemon.importlib, "import_module", broken)
    daemon.load()
    assert asked == list(daemon.MODULES)
