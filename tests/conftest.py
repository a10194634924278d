"""What all tests share: one small Spark, and which files begin first."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from quire.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


# Those that take longest, the longest first: so two processes, each of which takes a file at a time, end at about the same moment.
LONG = (
    "commit/test_crash.py", "test_security.py", "services/test_conformance.py", "test_read.py", "ledger/test_purged_names.py",
    "services/test_bad_input.py", "test_process.py", "services/test_bad_objects.py", "plots/test_plots.py", "coverage/test_checkpoints.py",
    "test_growth.py", "load/test_load_together.py", "storage/test_slices.py", "commit/test_races.py", "table/test_views.py",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the files; the tests of one keep theirs."""
    place = {Path(__file__).parent / name: i for i, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark of two threads for the whole run; `quire.session()` returns the same one."""
    started = session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}, master="local[2]", app_name="quire tests")
    yield started
    started.stop()
