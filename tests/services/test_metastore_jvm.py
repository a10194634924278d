"""A real Hive metastore: JVM Hudi reads by their names the tables that quire registers there, and finds nothing to mend."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import quire
from services import hive, jvm_hudi
from services.jvm_hudi import Session

pytestmark = pytest.mark.nightly

COLUMNS = pa.schema([("id", pa.string()), ("city", pa.string()), ("at", pa.timestamp("us", "UTC")), ("Fare", pa.decimal128(8, 2))])


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with hive.metastore(tmp_path_factory.mktemp("hive")) as found:
        yield found


@pytest.fixture(scope="module")
def sessions(uri: str) -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions({"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uri}) as found:
        yield found


def upsert(table: quire.Table, *rows: tuple[str, str, int, int], seats: int | None = None) -> None:
    """Rows of id, city, minute and fare."""
    found = pa.Table.from_pylist(
        [
            {"id": key, "city": city, "at": datetime(2026, 11, 25, 10, at, tzinfo=UTC), "Fare": Decimal(fare)}
            for key, city, at, fare in rows
        ],
        COLUMNS,
    )
    if seats is not None:
        found = found.append_column("seats", pa.array([seats] * len(rows), pa.int32()))
    table.upsert(found, spark=quire.LocalRunner(), progress=False)


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_registered_table_is_read_by_its_names(uri: str, sessions: dict[str, Session], tmp_path: Path, kind: str) -> None:
    table = quire.Table.create(tmp_path / kind, key="id", partition_by="city", ordering="at", type=kind)
    upsert(table, ("a", "sf", 1, 1), ("b", "new york =%ä", 1, 2))
    upsert(table, ("a", "sf", 2, 9))
    table.sync_metastore(uri)
    assert table.sync_metastore(uri).changed == ()
    for version, session in sessions.items():
        assert rows(session, kind) == [("a", "sf", 9, None), ("b", "new york =%ä", 2, None)], version
    upsert(table, ("c", "la", 1, 3), seats=7)
    table.delete_partitions("city=new york =%ä", progress=False)
    report = table.sync_metastore(uri)
    names = 1 if kind == "copy_on_write" else 3
    assert (len(report.changed), report.added, report.dropped) == (names, names, names)
    for version, session in sessions.items():
        assert rows(session, kind, "seats") == [("a", "sf", 9, None), ("c", "la", 3, 7)], version
        if names > 1:
            assert rows(session, f"{kind}_ro", "seats") == [("a", "sf", 1, None), ("c", "la", 3, 7)], version
            assert rows(session, f"{kind}_rt", "seats") == [("a", "sf", 9, None), ("c", "la", 3, 7)], version


def rows(session: Session, name: str, seats: str = "null") -> list[tuple[Any, ...]]:
    found = session.sql(
        f"REFRESH TABLE {name}; SELECT id, city, cast(fare AS int) fare, cast({seats} AS int) seats, at FROM {name} ORDER BY id"
    )
    assert pa.types.is_timestamp(found.schema.field("at").type)
    return [tuple(row.values())[:4] for row in found.to_pylist()]
