"""Many reads in flight: the engine with which stores behind a network answer `read_many`.

A round trip to an object store takes 5 to 150 ms, so a reader that asks for one small file after the other gets 7 to 200 of them a
second, whatever the machine. Here hundreds are asked for at once and answered in the order in which they were asked for.

- Held memory is bounded in bytes: a long object is asked for in pieces, and pieces are not asked for while those that wait for
  their reader fill the budget. The first in the row is always asked for, so nothing waits for ever.
- A service that is throttled (429, 503) gets fewer requests at once, none before the time that it names, and slowly more again.
- A piece that fails for the moment is retried with exponential backoff. After `PATIENCE` seconds the file is `Unreadable`,
  in the service's words, if others could be read meanwhile; if none could, it is the service that is away, and that is raised.

A store gives `opened`: its connections (a `Wire`), and how a request is read by them: a generator that gives one `Ask` after the other,
is sent the answer to each or has its error raised, and returns the bytes. It raises `Vanished`
or `Unreadable` (both are answers), `TransientError` (is tried again; as `Throttled` it slows all of them down) or any other error (ends
the reading). It needs neither a thread nor an event loop: the reader drives the connections while it waits for an answer, and what comes
while it works lies in the system's buffers. So a process may fork before and after, and a notebook's own loop is not in the way.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from http.client import HTTPException
from itertools import count
from typing import Any, Protocol

from quire.errors import StorageError, TransientError, UsageError, scrub
from quire.storage.base import Content, ReadRequest, Unreadable, Vanished
from quire.storage.message import Answer

Steps = Generator[Any, Any, bytes]  # it gives what its connections send (of a `wire.Wire` an `Ask`), and is sent what they answer
Fetch = Callable[[ReadRequest], Steps]


class Wire(Protocol):
    """Connections, as `wire.Wire` has them."""

    now: float

    def send(self, ask: Any, token: Any) -> None: ...
    def wait(self, seconds: float) -> list[tuple[Any, Answer | Exception]]: ...
    def cancel(self, token: Any) -> None: ...
    def close(self) -> None: ...


Opened = Callable[[], tuple[Wire, Fetch]]
UNANSWERED = (OSError, HTTPException, ValueError)  # what is raised in place of an answer

FLIGHT = 256  # reads in flight at most: 250 times what one after the other gives at 140 ms
MOST = 4096  # that may be asked for
FEWEST = 4  # reads in flight that a busy service still gets
PIECE = 4 << 20  # bytes that are asked for at once; what is longer comes as a stream of such pieces
BUDGET = 128 << 20  # bytes that are in flight or wait for their reader
AHEAD = 8  # so many times FLIGHT requests are known in advance: answers that wait behind a slow one hold no place in flight
TRY = 60.0  # seconds that one try may take
FIRST, LONGEST = 0.2, 15.0  # seconds between two tries, as in `retry`
PATIENCE = 60.0  # seconds from the first failure on until no further try begins
AT_MOST_EACH = 1.0  # seconds: all the answers of one moment that say "busy" slow down once
TURN = 0.001  # seconds without a look at the connections while answers are taken, or requests come
LOOK = 0.25  # seconds between two looks for tries that take too long

Result = bytes | Vanished | Unreadable


class Throttled(TransientError):
    """The service asks for fewer requests."""


def failure(what: str, error: StorageError, *, busy: bool, everywhere: bool) -> Exception:
    """The error that a fetch raises for a refusal: one that others would get, too, ends the reading, else the file is unreadable.

    `busy`: fewer requests would help.
    """
    if isinstance(error, TransientError):
        return Throttled(str(error), wait=error.wait) if busy else error
    # Without `what`, as in 'cannot read s3://bucket/x': the name stands beside it in the ledger.
    return error if everywhere else Unreadable(str(error).removeprefix(f"{StorageError(what)}: "))


def flight(options: Mapping[str, object] | None, usual: int = FLIGHT) -> int:
    """How many reads of an account a task has in flight at most: its option `max_concurrency`."""
    found = (options or {}).get("max_concurrency")
    if found is None:
        return usual
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= MOST:
        raise UsageError(f"max_concurrency={scrub(repr(found), 60)} is not a whole number from 1 to {MOST:,}: reads in flight in a task.")
    return found


def read(requests: Iterable[ReadRequest], opened: Opened, flight: int = FLIGHT) -> Iterator[tuple[ReadRequest, Content]]:
    """Answer `requests` in their order: bytes, or a stream of them for what is longer than a piece."""
    engine = _Engine(opened, flight, iter(requests))
    try:
        yield from engine.answers()
    finally:
        engine.stop()


class _Slot:
    """A request, and the pieces of its answer that were asked for and not taken, in their order."""

    __slots__ = ("dropped", "left", "pieces", "request", "start")

    def __init__(self, request: ReadRequest) -> None:
        self.request = request
        self.start = request.start  # of the next piece to be asked for
        self.left = max(1, -(-request.length // PIECE))  # pieces that were not asked for yet
        self.pieces: list[_Piece] = []
        self.dropped = False  # its reader has left it

    @property
    def long(self) -> bool:
        return self.request.length > PIECE


class _Piece:
    """Bytes of a request that are asked for at once."""

    __slots__ = ("began", "found", "request", "since", "slot", "steps", "tries")

    def __init__(self, slot: _Slot, request: ReadRequest) -> None:
        self.slot, self.request = slot, request
        self.found: Result | None = None
        self.steps: Steps  # of this try
        self.since = 0.0  # when it began
        self.tries, self.began = 0, 0.0  # those that failed, and when the first one did


class Pace:
    """How many requests are in flight: fewer while the service is throttled, and slowly more again."""

    def __init__(self, flight: int) -> None:
        self.most, self.limit = flight, float(flight)  # at all, and now
        self.running = 0
        self.slowed = -AT_MOST_EACH  # when the limit was last brought down
        self.not_before = 0.0  # when the service is to be asked again
        self.succeeded = -1.0  # when one has come last

    def failed(self, e: TransientError, now: float) -> None:
        """One has failed for the moment."""
        if e.wait:
            self.not_before = max(self.not_before, now + e.wait + random.uniform(0, 0.1))
        if isinstance(e, Throttled) and now - self.slowed > AT_MOST_EACH:
            self.slowed, self.limit = now, max(min(FEWEST, self.most), min(self.limit, self.running) * 0.7)

    def came(self, now: float) -> None:
        """One has come."""
        self.succeeded = now
        if self.limit < self.most:
            self.limit += 1 / self.limit  # one more for each round of all


class _Engine:
    def __init__(self, opened: Opened, flight: int, requests: Iterator[ReadRequest]) -> None:
        self.pace = Pace(flight)
        self.opened, self.requests = opened, requests
        self.process = os.getpid()
        self.wire: Wire
        self.fetch: Fetch | None = None
        self.waiting = deque[_Slot]()  # what was asked for and not answered yet
        self.asking: _Slot | None = None  # what has pieces that were not asked for yet
        self.resting = list[tuple[float, int, _Piece]]()  # by when they are tried again
        self.flying = set[_Piece]()
        self.held = 0  # bytes that are in flight or wait for their reader
        self.order = count()
        self.ended = False  # whether all requests are known
        self.turned = self.looked = 0.0

    # --------------------------------------------------------------------------------------------------------- the reader's side
    def answers(self) -> Iterator[tuple[ReadRequest, Content]]:
        """Hand out what comes, in its order."""
        while True:
            if not self.waiting:
                self._pump()
            while not self.waiting:
                if self.ended:
                    return
                self._turn(LOOK)
            slot = self.waiting.popleft()
            if slot.long:
                yield slot.request, self._stream(slot)
                self._drop(slot)
            else:
                yield slot.request, self._piece(slot)
            if time.monotonic() - self.turned > TURN:
                self._turn(0)

    def _piece(self, slot: _Slot) -> Result:
        """The next piece of a slot, when it has come."""
        while not slot.pieces or slot.pieces[0].found is None:
            self._turn(LOOK)
        found = slot.pieces.pop(0).found
        assert found is not None
        if isinstance(found, bytes):
            self.held -= len(found)
        return found

    def _stream(self, slot: _Slot) -> Iterator[bytes]:
        for _ in range(-(-slot.request.length // PIECE)):
            if slot.dropped:
                raise RuntimeError(f"the stream of {slot.request.name!r} ended when the next answer was asked for: read it before")
            found = self._piece(slot)
            if not isinstance(found, bytes):
                raise found
            yield found

    def _drop(self, slot: _Slot) -> None:
        """Its reader has left it, at its end or before: what is still to come is not wanted."""
        slot.dropped, slot.left = True, 0
        self.held -= sum(len(piece.found) for piece in slot.pieces if isinstance(piece.found, bytes))
        slot.pieces.clear()

    def stop(self) -> None:
        """Close the connections; what is in flight is cancelled."""
        if self.fetch is not None:
            self.wire.close()

    # -------------------------------------------------------------------------------------------------- the connections' side
    def _turn(self, most: float) -> None:
        """Take what has come, and ask for more; wait `most` seconds for it."""
        if os.getpid() != self.process:
            raise StorageError("a reading cannot go on in a process that was forked meanwhile: begin it there.")
        wire, more = self.wire, self._pump()
        if more:
            most = 0
        elif self.pace.not_before > wire.now:
            most = min(most, self.pace.not_before - wire.now)
        elif self.resting:
            most = min(most, max(0.0, self.resting[0][0] - wire.now))
        for piece, found in wire.wait(most):
            self._step(piece, found)
        now = wire.now
        while self.resting and self.resting[0][0] <= now and self.pace.not_before <= now:
            self._try(heappop(self.resting)[2])
        if now - self.looked > min(LOOK, TRY / 4):
            self.looked = now
            for piece in [each for each in self.flying if now - each.since > TRY]:
                wire.cancel(piece)
                # A thin line that carries too much at once, perhaps.
                self._again(piece, Throttled(f"no answer in {TRY:.0f} s"))
        self._pump()
        self.turned = time.monotonic()

    def _pump(self) -> bool:
        """Ask for what may be asked for now; whether there may be more."""
        pace, began = self.pace, time.monotonic()
        if self.fetch is not None and pace.not_before > self.wire.now:
            return False
        while pace.running < int(pace.limit):
            slot = self.asking
            if slot is None or not slot.left:
                slot = self.asking = self._next()
                if slot is None:
                    return False
            request = slot.request
            size = min(PIECE, request.start + request.length - slot.start)
            if self.held + size > BUDGET and self.held:
                return False
            piece = _Piece(slot, request if size == request.length else request._replace(start=slot.start, length=size))
            slot.pieces.append(piece)
            slot.start += size
            slot.left -= 1
            self.held += size
            pace.running += 1
            self._try(piece)
            if time.monotonic() - began > TURN:
                return True
        return False

    def _next(self) -> _Slot | None:
        """The next request, unless too many wait already."""
        if self.ended or len(self.waiting) >= AHEAD * self.pace.most:
            return None
        request = next(self.requests, None)
        if request is None:
            self.ended = True
            return None
        if self.fetch is None:
            self.wire, self.fetch = self.opened()
        slot = _Slot(request)
        self.waiting.append(slot)
        return slot

    def _try(self, piece: _Piece) -> None:
        assert self.fetch is not None
        piece.since, piece.steps = self.wire.now, self.fetch(piece.request)
        self.flying.add(piece)
        self._step(piece, None)

    def _step(self, piece: _Piece, answer: Answer | Exception | None) -> None:
        """Go on with a piece, to its next request or to its end."""
        try:
            # None begins it.
            ask = piece.steps.throw(answer) if isinstance(answer, Exception) else piece.steps.send(answer)
        except StopIteration as e:
            self._came(piece, e.value)
        except (Vanished, Unreadable) as e:
            self._came(piece, e)
        except TransientError as e:
            self._again(piece, e)
        else:
            self.wire.send(ask, piece)

    def _again(self, piece: _Piece, e: TransientError) -> None:
        """It has failed for the moment, and keeps its place in flight."""
        now = self.wire.now
        self.flying.discard(piece)
        piece.tries += 1
        piece.began = piece.began if piece.tries > 1 else now
        self.pace.failed(e, now)
        wait = max(e.wait, min(FIRST * 2 ** min(piece.tries - 1, 30), LONGEST) * random.uniform(0.5, 1))
        if now + wait - piece.began > PATIENCE or piece.slot.dropped:
            said = f"{e} (tried {piece.tries} times in {now - piece.began:.0f} s)"
            if self.pace.succeeded <= piece.began and not piece.slot.dropped:
                raise TransientError(said) from e
            self._came(piece, Unreadable(scrub(said)))
        else:
            heappush(self.resting, (now + wait, next(self.order), piece))

    def _came(self, piece: _Piece, found: Result) -> None:
        pace, slot = self.pace, piece.slot
        self.flying.discard(piece)
        pace.running -= 1
        if isinstance(found, bytes):
            pace.came(self.wire.now)
            if len(found) != piece.request.length:
                found = Vanished("changed while it was read")
        if slot.dropped or not isinstance(found, bytes):
            self.held -= piece.request.length
            slot.left = 0  # the rest of the object is not asked for
        piece.found = found
