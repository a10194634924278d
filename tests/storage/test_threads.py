"""Calls that block, many at once."""

from __future__ import annotations

import threading
import time

import pytest

from quire.errors import StorageError
from quire.storage import threads


@pytest.mark.parametrize("n", [0, 1, 2, 7, 64, 1_001])
def test_results_come_in_the_order_of_the_items(n: int) -> None:
    assert threads.each(lambda i: 2 * i, range(n), 8) == [2 * i for i in range(n)]


def test_as_many_calls_as_are_wanted_are_under_way_together() -> None:
    together, most = threading.Barrier(8), [0]

    def work(i: int) -> int:
        most[0] = max(most[0], threading.active_count())
        return together.wait(timeout=20) * 0 + i

    before = threading.active_count()
    assert threads.each(work, range(64), 8) == list(range(64))
    assert most[0] <= before + 8


def test_the_first_error_is_raised_and_no_call_begins_after_it() -> None:
    begun = list[int]()

    def work(i: int) -> int:
        begun.append(i)
        if i == 3:
            raise StorageError(f"cannot delete {i}")
        time.sleep(0.01)
        return i

    with pytest.raises(StorageError, match="cannot delete 3"):
        threads.each(work, range(1_000), 2)
    assert len(begun) < 10


@pytest.mark.parametrize("n", [5_000, 9_000])
def test_more_than_may_wait(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "WAITING", 1_000)
    assert threads.each(str, range(n), 3) == [str(i) for i in range(n)]
