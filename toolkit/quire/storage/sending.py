"""Pieces of objects on their way, several at once: how uploads send blocks and parts, as `window` reads.

Connections are a `Wire`'s. While a task reads and compresses, its output goes out by a thread of this module's own, which is there as long
as any piece is on its way. Its connections stay for the next thread, so that one data file after the other goes by the same.

- Pieces on their way are bounded in bytes, whatever the number of uploads: whoever has one more waits. The first is always sent.
- A piece that fails for the moment is sent again, by the rules of `retry`: the same piece again does no harm.
- A service that is throttled gets fewer pieces at once, none before the time that it names, and slowly more again.
- A piece that is given up is not begun any more, and is waited for if it has begun: no piece comes after the end of its upload.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from quire.errors import StorageError, TransientError
from quire.storage.message import Answer
from quire.storage.retry import Patience
from quire.storage.window import LOOK, Pace
from quire.storage.wire import Wire

FLIGHT = 16  # pieces on their way at most
BUDGET = 64 << 20  # bytes on their way: eight pieces of the usual length
KEPT = 20.0  # seconds for which connections stay without a thread

# A try, which gives what its wire sends, is sent the answers, and ends with what the service calls the piece.
Steps = Generator[Any, Any, Any]
Begin = Callable[[], Steps]


class Parcel:
    """A piece on its way, and in the end what came of it."""

    __slots__ = ("begin", "done", "dropped", "error", "found", "patience", "size", "steps")

    def __init__(self, begin: Begin, size: int) -> None:
        self.begin, self.size, self.patience = begin, size, Patience()
        self.steps: Steps  # of this try
        self.done = self.dropped = False
        self.found: Any = None
        self.error: BaseException | None = None


class Sending:
    """The pieces of one store's uploads, in one process; its methods may be called by any thread."""

    def __init__(self, opened: Callable[[], Wire]) -> None:
        self.opened, self.process = opened, os.getpid()
        self._changed = threading.Condition()
        self._coming = deque[Parcel]()
        self._open = set[Parcel]()  # what is not done yet
        self._held = 0  # their bytes
        self._bell = _Bell()
        self._thread: threading.Thread | None = None
        self._wire: Wire | None = None  # the thread's, and the next one's
        self._left = 0.0  # when the last thread ended
        self._close: Callable[[], object]  # the wire

    def send(self, begin: Begin, size: int) -> Parcel:
        """Send a piece of `size` bytes; wait while too many are on their way."""
        self._own()
        with self._changed:
            while self._held and self._held + size > BUDGET:
                self._changed.wait()
            parcel = Parcel(begin, size)
            self._held += size
            self._open.add(parcel)
            self._coming.append(parcel)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="quire-pieces", daemon=True)
                self._thread.start()
            self._bell.ring()
        return parcel

    def result(self, parcel: Parcel) -> Any:
        """The service's name for the piece, once it is there; its error is raised if it is not."""
        self._wait([parcel])
        if parcel.error is not None:
            raise parcel.error
        return parcel.found

    def drop(self, parcels: Collection[Parcel]) -> None:
        """Give pieces up, and wait for what has begun."""
        if self.process != os.getpid():
            return  # they are the parent's
        with self._changed:
            for parcel in parcels:
                parcel.dropped = True
            self._bell.ring()
        self._wait(parcels)

    def _wait(self, parcels: Collection[Parcel]) -> None:
        self._own()
        with self._changed:
            while not all(parcel.done for parcel in parcels):
                self._changed.wait()
            ending = None if self._open else self._thread
        if ending is not None:
            ending.join()

    def _own(self) -> None:
        if self.process != os.getpid():
            raise StorageError("an upload cannot go on in a process that was forked meanwhile: begin it there.")

    # ------------------------------------------------------------------------------------------------------------ the thread's
    def _run(self) -> None:
        try:
            _Thread(self, self._connections()).run()
        except BaseException as e:  # whatever it is, those who wait are to hear of it
            with self._changed:
                self._hang_up()
                self._thread = None
                self._coming.clear()
                for parcel in list(self._open):
                    self._ended(parcel, error=e)

    def _connections(self) -> Wire:
        if self._wire is not None and time.monotonic() - self._left > KEPT:
            self._hang_up()
        if self._wire is None:
            self._wire = wire = self.opened()
            wire.selector.register(self._bell.heard, selectors.EVENT_READ, self._bell)
            self._close = weakref.finalize(self, wire.close)
        return self._wire

    def _hang_up(self) -> None:
        if self._wire is not None:
            self._wire = None
            self._close()

    def _taken(self) -> list[Parcel] | None:
        """The pieces that have come since; None: nothing is on its way, and the thread is over."""
        with self._changed:
            if not self._open:
                self._thread, self._left = None, time.monotonic()
                return None
            found = list(self._coming)
            self._coming.clear()
        return found

    def _end(self, parcel: Parcel, found: Any = None, error: BaseException | None = None) -> None:
        with self._changed:
            self._ended(parcel, found, error)

    def _ended(self, parcel: Parcel, found: Any = None, error: BaseException | None = None) -> None:
        parcel.done, parcel.found, parcel.error = True, found, error
        del parcel.begin  # with the bytes
        self._open.discard(parcel)
        self._held -= parcel.size
        self._changed.notify_all()


class _Thread:
    """The work of the thread: one piece after the other is begun, retried, and ended."""

    def __init__(self, sending: Sending, wire: Wire) -> None:
        self.sending, self.wire, self.pace = sending, wire, Pace(FLIGHT)
        self.waiting = deque[Parcel]()
        self.resting = list[tuple[float, int, Parcel]]()  # by when they are tried again
        self.order = count()

    def run(self) -> None:
        wire, pace = self.wire, self.pace
        while (taken := self.sending._taken()) is not None:
            self.waiting += taken
            self._leave()
            while self.waiting and pace.running < int(pace.limit) and pace.not_before <= wire.now:
                pace.running += 1
                self._try(self.waiting.popleft())
            most = min([LOOK, *(max(0.0, max(when, pace.not_before) - wire.now) for when, _, _ in self.resting[:1])])
            for parcel, answer in wire.wait(most):
                self._step(parcel, answer)
            while self.resting and self.resting[0][0] <= wire.now and pace.not_before <= wire.now:
                self._try(heappop(self.resting)[2])

    def _leave(self) -> None:
        """End what was given up and is not on its way."""
        resting = [parcel for _, _, parcel in self.resting if parcel.dropped]
        for parcel in [*resting, *(parcel for parcel in self.waiting if parcel.dropped)]:
            self.sending._end(parcel, error=StorageError("given up"))
        self.pace.running -= len(resting)
        self.waiting = deque(parcel for parcel in self.waiting if not parcel.dropped)
        self.resting = [each for each in self.resting if not each[2].dropped]
        heapify(self.resting)

    def _try(self, parcel: Parcel) -> None:
        parcel.steps = parcel.begin()
        self._step(parcel, None)

    def _step(self, parcel: Parcel, answer: Answer | Exception | None) -> None:
        pace, now = self.pace, self.wire.now
        try:
            ask = parcel.steps.throw(answer) if isinstance(answer, Exception) else parcel.steps.send(answer)
        except StopIteration as e:
            pace.running -= 1
            pace.came(now)
            self.sending._end(parcel, e.value)
        except TransientError as e:
            pace.failed(e, now)
            pausing = parcel.patience.pausing(e.wait)
            if pausing is None:
                pace.running -= 1
                self.sending._end(parcel, error=parcel.patience.over(e))
            else:
                heappush(self.resting, (now + pausing, next(self.order), parcel))
        except Exception as e:  # it belongs to who sends the piece
            pace.running -= 1
            self.sending._end(parcel, error=e)
        else:
            self.wire.send(ask, parcel)


class _Bell:
    """Ends the thread's wait, from any other one."""

    def __init__(self) -> None:
        self.heard, self._rung = socket.socketpair()
        weakref.finalize(self, _closed, self.heard, self._rung)
        self.heard.setblocking(False)
        self._rung.setblocking(False)

    def ring(self) -> None:
        with suppress(BlockingIOError):  # it rings already
            self._rung.send(b"x")

    def ready(self) -> None:
        with suppress(BlockingIOError):
            self.heard.recv(4096)


def _closed(*sockets: socket.socket) -> None:
    for each in sockets:
        each.close()
