"""Calls that block, in threads: many at once, those of a generator, and those by which `window` reads where a store's client knows no
better way.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")
WAITING, TOGETHER = 4_096, 16  # calls that wait for a thread, each of which takes some memory; and that are handed over together


def each(work: Callable[[A], B], items: Sequence[A], most: int) -> list[B]:
    """The results of `work`, in the order of the items, by `most` threads at once; the first error of any, and no call begins after it.

    Many are handed over together: to hand over one takes as long as a short call.
    """
    if len(items) < 2:
        return [work(item) for item in items]
    found, over = list[B](), threading.Event()

    def of_part(part: Sequence[A]) -> list[B]:
        try:
            return [work(item) for item in part if not over.is_set()]
        except BaseException:
            over.set()
            raise

    with ThreadPoolExecutor(min(most, len(items))) as pool:
        try:
            for first in range(0, len(items), WAITING):
                some = items[first : first + WAITING]
                size = min(TOGETHER, max(1, len(some) // (4 * most)))  # some take longer than others
                found += chain.from_iterable(pool.map(of_part, (some[at : at + size] for at in range(0, len(some), size))))
        finally:
            over.set()
    return found


class Pool(ThreadPoolExecutor):
    """Threads of a generator, which may be left before its end: what has not begun then never does, and nobody waits for the rest.

    Python lets such a generator go in whichever thread it likes, also in one of these, and a thread cannot wait for itself.
    """

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.shutdown(wait=error is None, cancel_futures=True)


class Threads:
    """Calls in `most` threads, in place of a `Wire`: a store's generator gives a function without arguments, and is sent its result.

    `lambda request: (yield partial(read, request))` reads a request by the function `read`.
    """

    def __init__(self, most: int) -> None:
        self._pool, self._came = ThreadPoolExecutor(most, "quire-reads"), SimpleQueue[tuple[Any, object, Any]]()
        self._asked = dict[object, object]()  # by token: its call, which is the one whose result is wanted

    @property
    def now(self) -> float:
        return time.monotonic()

    def send(self, ask: Callable[[], object], token: object) -> None:
        self._asked[token] = call = object()
        self._pool.submit(self._call, ask, token, call)

    def _call(self, ask: Callable[[], object], token: object, call: object) -> None:
        try:
            found: object = ask()
        except Exception as e:  # whatever it is, it belongs to who asked
            found = e
        self._came.put((token, call, found))

    def wait(self, seconds: float) -> list[tuple[Any, Any]]:
        came = list[tuple[Any, object, Any]]()
        with suppress(Empty):
            came.append(self._came.get(timeout=seconds) if seconds else self._came.get_nowait())
            while True:
                came.append(self._came.get_nowait())
        return [(token, found) for token, call, found in came if self._asked.get(token) is call and self._asked.pop(token)]

    def cancel(self, token: object) -> None:
        """Forget a call: it goes on, and its result is nobody's."""
        self._asked.pop(token, None)

    def close(self) -> None:
        """Begin no more calls, and wait for those that have begun."""
        self._pool.shutdown(wait=True, cancel_futures=True)
