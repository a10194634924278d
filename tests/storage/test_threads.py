"""Threads of generators that are left before their end: nobody waits for them, whichever thread lets such a generator go. And calls that
block, many at once.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from quire.errors import StorageError
from quire.storage import threads
from quire.storage.threads import Pool
from quire.table import timeline


def test_a_generator_that_one_of_its_own_threads_lets_go_ends_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the garbage collector may do it, which runs in whichever thread makes enough objects."""
    held, left, ended = list[Iterator[int]](), threading.Event(), threading.Event()
    ignored, called = list[Any](), list[int]()
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ignored.append(told.exc_value))

    def call(number: int) -> int:
        called.append(number)
        if number:
            left.wait()
            held.clear()
            ended.set()
        return number

    held.append(timeline.ahead(call, [0, *range(1, 1000)]))
    assert next(held[0]) == 0
    left.set()
    assert ended.wait(10)
    assert ignored == []
    assert len(called) < 1000, "those that had not begun never did"


def test_a_pool_that_is_left_by_an_error_does_not_wait_and_one_that_ends_does() -> None:
    begun, go, done = threading.Semaphore(0), threading.Event(), list[int]()

    def call(number: int) -> None:
        begun.release()
        go.wait(10)
        done.append(number)

    coming = list[Future[None]]()

    def leave() -> None:
        with Pool(2) as pool:
            coming.extend(pool.submit(call, number) for number in range(5))
            assert begun.acquire(timeout=10)
            assert begun.acquire(timeout=10)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        leave()
    assert not done
    assert [each.cancelled() for each in coming] == [False, False, True, True, True]
    go.set()
    with Pool(2) as pool:
        pool.submit(call, 7)
    assert 7 in done


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


def test_no_earlier_call_begins_after_the_error_of_a_later_one() -> None:
    begun, failed = list[int](), threading.Event()

    def work(i: int) -> int:
        if i == 500:
            failed.set()
            raise StorageError("cannot delete 500")
        begun.append(i)
        assert i or failed.wait(20)
        return i

    with pytest.raises(StorageError, match="cannot delete 500"):
        threads.each(work, range(1_000), 2)
    assert not {*range(1, 16)} & {*begun}, "of the part whose first call was under way"
