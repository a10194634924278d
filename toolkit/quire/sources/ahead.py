"""Lets who makes items work in a thread of its own, a little ahead of who takes them: reading goes on while what was read is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing
from queue import SimpleQueue
from typing import TypeVar

__all__ = ["ahead"]

T = TypeVar("T")


def ahead(make: Callable[[Callable[[], bool]], Generator[T, None, None]], most: int = 1) -> Generator[T, None, None]:
    """The items of `make(stopped)`, in their order, with its exception where it has one; up to `most` are there before they are asked for.

    When this generator is closed, the other one is, too, and its thread has ended: it has to end soon once `stopped()` is true.
    """
    made = SimpleQueue[tuple[T | None, BaseException | None]]()
    room, over = threading.Semaphore(most), threading.Event()

    def work() -> None:
        failed: BaseException | None = None
        try:
            with closing(make(over.is_set)) as items:
                for item in items:
                    made.put((item, None))
                    room.acquire()
                    if over.is_set():
                        return
        except BaseException as e:
            failed = e
        made.put((None, failed or StopIteration()))

    thread = threading.Thread(target=work, name="quire-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, failed = made.get()
            if isinstance(failed, StopIteration):
                return
            if failed is not None:
                raise failed
            yield item  # type: ignore[misc]  # without an exception it is an item
            room.release()
    finally:
        over.set()
        room.release()
        thread.join()
