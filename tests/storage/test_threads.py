"""Threads of generators that are left before their end: nobody waits for them, whichever thread lets such a generator go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

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
