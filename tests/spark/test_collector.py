"""The cyclic collector of a worker's process does not go through modules after each task."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Iterator

import pytest

from quire.spark import collector


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(collector, "_known", 0)
    yield
    gc.unfreeze()


def test_what_lives_at_the_end_of_a_task_is_set_aside_and_again_only_after_more_modules_came(monkeypatch: pytest.MonkeyPatch) -> None:
    collector.settle()
    assert (aside := gc.get_freeze_count()) > 10_000
    more = [[] for _ in range(1_000)]
    collector.settle()
    assert gc.get_freeze_count() <= aside
    monkeypatch.setitem(sys.modules, "quire_came_later", types.ModuleType("quire_came_later"))
    collector.settle()
    looked_at = {id(one) for one in gc.get_objects()}
    assert not looked_at & {id(one) for one in more}, "all of them are set aside: a count also tells what others have let go of"


def test_what_a_task_leaves_in_a_cycle_is_not_kept() -> None:
    class Rows:
        """They point to themselves."""

    rows = Rows()
    rows.own = rows  # type: ignore[attr-defined]
    gone = weakref.ref(rows)
    del rows
    collector.settle()
    assert gone() is None
