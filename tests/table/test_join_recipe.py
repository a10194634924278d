"""The recipe of docs/table.md that joins a stream with a table, as it stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quire
from loading import topic
from services.kafka import Mock, Record, mock

PAGE = (Path(__file__).parents[2] / "docs" / "table.md").read_text()
LOCAL = quire.LocalRunner()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def recipe(**settings: Any) -> dict[str, Any]:
    """All names of the recipe's block."""
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def of_payments(" in block)
    made: dict[str, Any] = {"__name__": "recipe", "json": json, "pa": pa, "pc": pc, "quire": quire}
    exec(compile(block, "recipe.py", "exec"), made)
    made.update(settings)
    return made


@pytest.mark.seldom
def test_either_side_may_come_first_and_a_late_one_still_joins(kafka: Mock, tmp_path: Path) -> None:
    where = {name.upper(): str(tmp_path / name) for name in ("trips", "payments", "joined")}
    trips, payments, joined = (quire.Table.create(url, key="id") for url in where.values())
    made, name = recipe(**where), topic(kafka, 1, [])
    sent, cities = dict[str, tuple[str, float, int]](), dict[str, str]()

    def pay(*those: tuple[str, str, float, int]) -> None:
        sent.update({key: (trip, amount, at) for key, trip, amount, at in those})
        kafka.produce(name, [Record(json.dumps({"id": a, "trip": b, "amount": c, "at": d}).encode()) for a, b, c, d in those])

    def drive(**those: str) -> None:
        cities.update(those)
        trips.upsert(pa.table({"id": list(those), "city": list(those.values())}), spark=LOCAL, progress=False)

    def check() -> None:
        made["step"](f"kafka://{kafka.address}/{name}", spark=LOCAL, progress=False)
        found = joined.snapshot(spark=LOCAL).to_pylist()
        there = {row["id"]: (row["trip"], row["amount"], row["at"], row["city"]) for row in found}
        assert there == {key: (*row, cities.get(row[0])) for key, row in sent.items()}, "as if both were joined anew"

    def overdue() -> list[str]:
        return sorted(made["overdue"](1000)["id"].to_pylist())

    pay(("p1", "t1", 1.0, 0), ("p2", "t2", 2.0, 10))
    check()
    assert overdue() == [], "a trip may still come in time"
    drive(t1="sf", t3="la")
    pay(("p3", "t3", 3.0, 20), ("p4", "t1", 4.0, 5000))
    check()
    assert overdue() == ["p2"], "its trip has not come within the watermark"
    drive(t2="ny", t1="rome")
    check()
    assert overdue() == []
    trips.delete(pa.table({"id": ["t3"]}), spark=LOCAL, progress=False)
    del cities["t3"]
    payments.delete(pa.table({"id": ["p1"]}), spark=LOCAL, progress=False)
    del sent["p1"]
    check()
    assert overdue() == ["p3"]
