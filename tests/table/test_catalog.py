"""A table under a name: a view in the catalog of a Spark session."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_writes import LOCAL, create, frame, write

from gathering import refused
from quire.errors import UsageError

FIRST = frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5))


@pytest.fixture
def name(spark: Any) -> Iterator[str]:
    """The name of a view that is dropped behind the test."""
    found = f"v_{uuid.uuid4().hex}"
    yield found
    spark.catalog.dropTempView(found)


def fares(spark: Any, name: str) -> dict[str, float]:
    return {row.id: row.fare for row in spark.sql(f"SELECT id, fare FROM {name}").collect()}


def test_a_view_has_the_rows_of_its_moment_until_it_is_made_again(tmp_path: Path, spark: Any, name: str) -> None:
    table = create(tmp_path / "t", type="merge_on_read")
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 9.0)))
    shown = table.create_view(name, spark=spark)
    assert fares(spark, name) == {"a": 9.0, "b": 2.5, "c": 3.5}
    assert spark.table(name).columns == shown.columns == table.snapshot(spark=LOCAL).column_names
    assert [view.isTemporary for view in spark.catalog.listTables() if view.name == name] == [True]
    write(table, "upsert", frame(("a", "sf", 3, 7.0), ("d", "sf", 1, 4.5)))
    assert fares(spark, name) == {"a": 9.0, "b": 2.5, "c": 3.5}
    table.create_view(name, read_optimized=True, spark=spark)
    assert fares(spark, name)["a"] == 1.5, "the log is left out"
    table.create_view(name, spark=spark)
    assert fares(spark, name) == {"a": 7.0, "b": 2.5, "c": 3.5, "d": 4.5}


def test_a_view_that_cannot_be_is_one_line_and_leaves_the_one_that_is_there(tmp_path: Path, spark: Any, name: str) -> None:
    table = create(tmp_path / "t")
    spark.range(3).createOrReplaceTempView(name)
    with refused(UsageError, 2, "nothing has been written yet"):
        table.create_view(name, spark=spark)
    for wrong in ("", "a.b", "a b", "2a", "a" * 129, "ä", "a`", "a\n"):
        with refused(UsageError, 2, "name takes a name of letters, digits and _"):
            table.create_view(wrong, spark=spark)
    with refused(UsageError, 2, "a view lives in a Spark session"):
        table.create_view(name, spark=LOCAL)
    assert spark.table(name).count() == 3
