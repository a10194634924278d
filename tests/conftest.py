"""What all tests share: one small Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from quire.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# No deadline for an example: the first one also imports, and machines are busy.
settings.register_profile("quire", deadline=None)
settings.load_profile("quire")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark of two threads for the whole run; `quire.session()` returns the same one."""
    started = session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}, master="local[2]", app_name="quire tests")
    yield started
    started.stop()
