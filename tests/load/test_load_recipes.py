"""The recipes of docs/kafka.md, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from loading import load, rows, topic
from services.kafka import Mock, mock

PAGE = (Path(__file__).parents[2] / "docs" / "kafka.md").read_text()


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def recipe(name: str, **settings: Any) -> Any:
    """The function of this name that a block of the page defines."""
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if f"def {name}(" in block)
    made: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(block, "recipe.py", "exec"), made)
    made.update(settings)
    return made[name]


def check(kafka: Mock, values: list[bytes | None], function: Any, dest: Path) -> None:
    """Two records are loaded, and the third is quarantined."""
    name = topic(kafka, 1, values)
    report = load(kafka, name, dest, function, function_version="1")
    assert (report.records, report.quarantined_count) == (2, 1)
    assert [(r["id"], r["name"]) for r in rows(dest).to_pylist()] == [(1, "one"), (2, None)]
    assert quire.Ledger(dest).inspect.quarantined_records()["offset"].tolist() == [2]


def test_json(kafka: Mock, tmp_path: Path) -> None:
    check(kafka, [b'{"id": 1, "name": "one"}', b'{"id": 2}', b"{broken"], recipe("of_json"), tmp_path / "out")
