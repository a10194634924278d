"""Reading ahead: what one thread makes, another one takes, in its order, with its error; and nothing goes on behind who has stopped."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator

import pytest

from quire.errors import TransientError
from quire.sources.ahead import ahead


def test_items_come_in_their_order_from_another_thread() -> None:
    threads = set[int]()

    def make(_: Callable[[], bool]) -> Generator[int, None, None]:
        for i in range(100):
            threads.add(threading.get_ident())
            yield i

    assert [*ahead(make)] == [*range(100)]
    assert threads
    assert threading.get_ident() not in threads


def test_an_error_comes_behind_what_was_made_before_it() -> None:
    def make(_: Callable[[], bool]) -> Generator[int, None, None]:
        yield 1
        raise KeyError("of the reader")

    found = ahead(make)
    assert next(found) == 1
    with pytest.raises(KeyError, match="of the reader"):
        next(found)


def test_no_more_is_made_than_is_allowed_to_wait() -> None:
    made = list[int]()

    def make(_: Callable[[], bool]) -> Generator[int, None, None]:
        for i in range(100):
            made.append(i)
            yield i

    found = ahead(make, 2)
    for i in range(10):
        assert next(found) == i
        time.sleep(0.01)
        assert len(made) <= i + 4  # taken, two that wait, and one in the making
    found.close()


def test_closing_ends_the_thread_and_what_it_reads() -> None:
    ended = list[str]()

    def make(stopped: Callable[[], bool]) -> Generator[int, None, None]:
        try:
            yield 1
            while not stopped():  # a broker that is silent
                time.sleep(0.001)
        finally:
            ended.append(threading.current_thread().name)

    found = ahead(make)
    assert next(found) == 1
    found.close()
    assert ended == ["quire-ahead"]
    assert not [thread for thread in threading.enumerate() if thread.name == "quire-ahead"]


def test_an_end_that_nobody_meant_is_not_taken_for_the_last_item(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(_: Callable[[], bool]) -> Generator[int, None, None]:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(ahead(make))
    monkeypatch.setattr(threading.Thread, "run", lambda _: None)
    with pytest.raises(TransientError, match="ended before all was read"):
        list(ahead(make))
