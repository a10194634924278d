"""What all tests share: one small Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd  # noqa: F401  # Arrow imports it when it is first needed: no example of a property test is to pay for that
import pytest

from quire.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A Spark of two threads for the whole run; `quire.session()` returns the same one."""
    started = session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": 2}, master="local[2]", app_name="quire tests")
    yield started
    started.stop()
