"""Topics of thousands of partitions: what the driver holds while it plans them is some numbers of each, and no record."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import quire
from quire.commit import protocol
from quire.planning import plan as planning
from quire.progress import Progress
from quire.sources.kafka.topics import Key

if TYPE_CHECKING:
    import pytest

MOST = 2_000  # bytes a partition
ASKING = [import_module(f"quire.{name}") for name in ("engine.loader", "planning.offsets")]


class Many:
    """A cluster with so many partitions, of a thousand records each, that answers what a planner asks."""

    servers = "127.0.0.1:1"

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    def reach(self) -> None:
        """It is there."""

    def topics(self, *_: Any) -> tuple[str, dict[str, int]]:
        return "cluster", {"t": self.partitions}

    def versions(self, topics: Iterable[str], *_: Any) -> dict[str, str]:
        return dict.fromkeys(topics, "id")

    def starts(self, keys: Iterable[Key], *_: Any) -> dict[Key, int]:
        return dict.fromkeys(keys, 0)

    def ends(self, keys: Iterable[Key], *_: Any) -> dict[Key, int]:
        return dict.fromkeys(keys, 1_000)


def peak(partitions: int, dest: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """The most bytes that deciding and planning hold at a time."""
    for module in ASKING:
        monkeypatch.setattr(module, "cluster_of", lambda *_: Many(partitions))
    monkeypatch.setattr("quire.sources.kafka.offsets.sample", lambda *_: (None, 0))
    call, bars = import_module("quire.load").check("kafka://127.0.0.1:1/t", dest), Progress(False)
    tracemalloc.start()
    try:
        made = call.decided(bars, call.request)
        log, _ = protocol.recovered(made.store(), held=made.held)
        planned = planning.make(planning.list_offsets, quire.LocalRunner(), log, 0, "0-0123456789abcdef", made.wanted(), bars)
        assert planned.listed.files == partitions
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_plan_of_many_partitions_takes_little_of_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peak(10, tmp_path / "warm", monkeypatch)  # what is imported once is no growth
    few, many = peak(100, tmp_path / "few", monkeypatch), peak(4_000, tmp_path / "many", monkeypatch)
    assert many - few < 3_900 * MOST
