"""Messages that are held while a run works on them: a thread tells the queue in time, so that it gives them to nobody else meanwhile.

A message that is not held, since the queue was away or allows no more, comes again, which does no harm.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quire.errors import QuireError
from quire.sources.events import EventQueue, Message

OFTEN = 3  # times within the time for which the queue hides a message

Waiting = dict[str, tuple[Message, float]]  # by its id, a message and the time since when the queue hides it


@contextmanager
def held(queue: EventQueue, waiting: Waiting, clock: Callable[[], float], say: Callable[[str], object]) -> Iterator[None]:
    """Hold messages until the end of the block; then `waiting` has them as the queue knows them.

    A failure of the queue is told to `say`, once. Whatever else ends the thread is raised at the end of the block.
    """
    if not waiting or queue.hidden == math.inf:
        yield
        return
    keeper = _Keeper(queue, dict(waiting), clock, say)
    try:
        yield
    finally:
        waiting.update(keeper.end())
    if keeper.failed is not None:
        raise keeper.failed


class _Ended(Exception):
    """The block is over, so a request is not tried again."""


class _Keeper:
    def __init__(self, queue: EventQueue, waiting: Waiting, clock: Callable[[], float], say: Callable[[str], object]) -> None:
        self._queue, self._waiting, self._clock, self._say = queue, waiting, clock, say
        self._ended = threading.Event()
        self.failed: Exception | None = None
        self._thread = threading.Thread(target=self._keep, name="quire-events-held", daemon=True)
        self._thread.start()

    def end(self) -> Waiting:
        """The messages, which nobody holds any more."""
        self._ended.set()
        self._thread.join()
        return self._waiting

    def _keep(self) -> None:
        try:
            while not self._ended.wait(self._queue.hidden / OFTEN):
                self._hold()
        except _Ended:
            pass
        except Exception as e:
            self.failed = e

    def _hold(self) -> None:
        now = self._clock()
        try:
            kept = self._queue.hold([one for one, _ in self._waiting.values()], self._again)
        except QuireError as e:
            say, self._say = self._say, lambda _: None
            say(f"{self._queue.shown}: its messages are not held, so it may give them again, which does no harm: {e}")
        else:
            self._waiting.update((one.id, (one, now)) for one in kept)

    def _again(self, _: str) -> None:
        if self._ended.is_set():
            raise _Ended
