"""Prefetches from a producer thread, a few items ahead of the consumer: reading continues while items are written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import TypeVar

from quire.errors import TransientError

T = TypeVar("T")
LOOK = 5.0  # seconds between two looks at whether the thread is still there


class _Finished:
    """All items were made: nothing but this says so, so an end that nobody has meant is never taken for it."""


def ahead(make: Callable[[Callable[[], bool]], Generator[T, None, None]], most: int = 1) -> Generator[T, None, None]:
    """The items of `make(stopped)`, in their order, with its exception where it has one; up to `most` are there before they are asked for.

    When this generator is closed, the other one is, too, and its thread has ended: it has to end soon once `stopped()` is true.
    """
    made = SimpleQueue[tuple[T | None, BaseException | _Finished | None]]()
    room, over = threading.Semaphore(most), threading.Event()

    def work() -> None:
        ended: BaseException | _Finished = _Finished()
        try:
            with closing(make(over.is_set)) as items:
                for item in items:
                    made.put((item, None))
                    room.acquire()
                    if over.is_set():
                        return
        except BaseException as e:
            ended = e
        made.put((None, ended))

    thread = threading.Thread(target=work, name="quire-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, ended = _next(made, thread)
            if isinstance(ended, _Finished):
                return
            if ended is not None:
                raise ended
            yield item  # type: ignore[misc]  # without an exception it is an item
            room.release()
    finally:
        over.set()
        room.release()
        thread.join()


def _next(made: SimpleQueue[T], thread: threading.Thread) -> T:
    while True:
        alive = thread.is_alive()
        try:
            return made.get(timeout=LOOK if alive else 0)
        except Empty:
            if not alive:
                raise TransientError("the thread that reads ahead has ended before all was read") from None
