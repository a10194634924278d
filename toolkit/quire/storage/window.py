"""Many reads in flight: the engine with which stores behind a network answer `read_many`.

A round trip to an object store takes 5 to 150 ms, so a reader that asks for one small file after the other gets 7 to 200 of them a
second, whatever the machine. Here hundreds are asked for at once and answered in the order in which they were asked for.

- Held memory is bounded in bytes: a long object is asked for in pieces, and pieces are not asked for while those that wait for
  their reader fill the budget. The first in the row is always asked for, so nothing waits for ever.
- A service that is throttled (429, 503) gets fewer requests at once, none before the time that it names, and slowly more again.
- A piece that fails for the moment is retried with exponential backoff. After `PATIENCE` seconds the file is `Unreadable`,
  in the service's words, if others could be read meanwhile; if none could, it is the service that is away, and that is raised.

A store gives `opened`, an asynchronous context with its connections, whose value fetches the bytes of one request. It raises `Vanished`
or `Unreadable` (both are answers), `TransientError` (is tried again; as `Throttled` it slows all of them down) or any other error (ends
the reading). All of it runs in an
event loop in a thread of its own, made for the call and gone with it: a process may fork before and after, and a notebook's own
loop is not in the way.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from itertools import islice

from quire.errors import StorageError, TransientError, UsageError, scrub
from quire.storage.base import Content, ReadRequest, Unreadable, Vanished

Fetch = Callable[[ReadRequest], Awaitable[bytes]]
Opened = Callable[[], AbstractAsyncContextManager[Fetch]]

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
    engine = _Engine(opened, flight)
    try:
        yield from engine.answers(iter(requests))
    finally:
        engine.stop()


class _Slot:
    """A request, and the pieces of its answer that have come."""

    __slots__ = ("dropped", "left", "left_behind", "pieces", "request", "start")

    def __init__(self, request: ReadRequest) -> None:
        self.request = request
        self.start = request.start  # of the next piece to be asked for
        self.left = max(1, -(-request.length // PIECE))  # pieces that were not asked for yet
        self.pieces: deque[list[Result | None]] = deque()  # in their order, each in a cell that is filled when it comes
        self.left_behind = False  # its reader has left it
        self.dropped = False  # the loop knows

    @property
    def long(self) -> bool:
        return self.request.length > PIECE


class _Pace:
    """How many reads are in flight: fewer while the service is throttled, and slowly more again."""

    def __init__(self, flight: int) -> None:
        self.most, self.limit = flight, float(flight)  # at all, and now
        self.running = 0
        self.slowed = 0.0  # when the limit was last brought down
        self.not_before = 0.0  # when the service is to be asked again
        self.succeeded = 0.0  # when something was read last

    @property
    def room(self) -> bool:
        """Whether one more may begin."""
        return self.running < int(self.limit)

    def pause(self, now: float) -> float:
        """Seconds until the service is to be asked."""
        return self.not_before - now + random.uniform(0, 0.1) if self.not_before > now else 0.0

    def failed(self, e: TransientError, now: float) -> None:
        """One has failed for the moment."""
        self.not_before = max(self.not_before, now + e.wait)
        if isinstance(e, Throttled) and now - self.slowed > AT_MOST_EACH:
            self.slowed, self.limit = now, max(min(FEWEST, self.most), min(self.limit, self.running) * 0.7)

    def came(self, now: float) -> None:
        """One has come."""
        self.succeeded = now
        if self.limit < self.most:
            self.limit += 1 / self.limit  # one more for each round of all


class _Engine:
    def __init__(self, opened: Opened, flight: int) -> None:
        self.pace = _Pace(flight)
        # Touched by the reader's thread alone:
        self.waiting = deque[_Slot]()  # what was asked for and not answered yet
        self.thread = threading.Thread(target=self._run, args=(opened,), name="quire-window", daemon=True)
        self.taken = 0  # bytes that the reader has got (or does not want), read by the loop
        # Touched by the loop's thread alone:
        self.queue = deque[_Slot]()  # what has pieces that were not asked for yet
        self.asked = 0  # bytes asked for, less those that failed
        self.tasks = set[asyncio.Task[None]]()
        # Between them:
        self.awaited: _Slot | None = None
        self.came = threading.Event()  # a piece of the awaited slot, or the end
        self.ready = threading.Event()
        self.loop: asyncio.AbstractEventLoop
        self.ending: asyncio.Event
        self.starved = False  # whether the loop waits for the reader to take something
        self.failure: BaseException | None = None

    # ------------------------------------------------------------------------------------------------- in the reader's thread
    def answers(self, requests: Iterator[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        """Feed the loop and hand out what it brings."""
        more, most = True, self.pace.most
        while True:
            while more and len(self.waiting) < AHEAD * most // 2:
                # At first a few, so that the first answers do not wait for a slow source of requests.
                size = most if self.thread.ident else 1
                batch = [_Slot(request) for request in islice(requests, size)]
                more = len(batch) == size
                self._feed(batch)
            if not self.waiting:
                return
            slot = self.waiting.popleft()
            if slot.long:
                yield slot.request, self._stream(slot)
                self._drop(slot)
            else:
                yield slot.request, self._piece(slot)

    def _feed(self, batch: list[_Slot]) -> None:
        if not batch:
            return
        self.waiting.extend(batch)
        if not self.thread.ident:
            self.thread.start()
            self.ready.wait()
            if self.failure is not None:
                raise self.failure
        self._tell(self._add, batch)

    def _tell(self, what: Callable[..., None], *args: object) -> None:
        try:
            self.loop.call_soon_threadsafe(self._guarded, what, *args)
        except RuntimeError:  # the loop has ended: its failure is raised where an answer is waited for
            if self.failure is None:
                raise

    def _piece(self, slot: _Slot) -> Result:
        """The next piece of a slot, when it has come."""
        while not slot.pieces or slot.pieces[0][0] is None:
            self.came.clear()
            self.awaited = slot
            if slot.pieces and slot.pieces[0][0] is not None:
                break  # it came between the two
            if self.failure is not None:
                raise self.failure
            self.came.wait()
        found = slot.pieces.popleft()[0]
        assert found is not None
        if isinstance(found, bytes):
            self._took(len(found))
        return found

    def _took(self, size: int) -> None:
        self.taken += size
        if self.starved:
            self.starved = False
            self._tell(self._pump)

    def _stream(self, slot: _Slot) -> Iterator[bytes]:
        for _ in range(-(-slot.request.length // PIECE)):
            if slot.left_behind:
                raise RuntimeError(f"the stream of {slot.request.name!r} ended when the next answer was asked for: read it before")
            found = self._piece(slot)
            if not isinstance(found, bytes):
                raise found
            yield found

    def _drop(self, slot: _Slot) -> None:
        """Its reader has left it, at its end or before: what is still to come is not wanted."""

        def drop() -> None:
            slot.dropped, slot.left = True, 0
            self.asked -= sum(len(cell[0]) for cell in slot.pieces if isinstance(cell[0], bytes))
            slot.pieces.clear()
            self._pump()

        slot.left_behind = True
        if slot.pieces or slot.left:
            self._tell(drop)

    def stop(self) -> None:
        """End the loop and its thread; what is in flight is cancelled."""
        if self.thread.ident:
            with suppress(RuntimeError):  # it has ended by itself
                self.loop.call_soon_threadsafe(self.ending.set)
            self.thread.join()

    # --------------------------------------------------------------------------------------------------- in the loop's thread
    def _run(self, opened: Opened) -> None:
        try:
            asyncio.run(self._serve(opened))
        except BaseException as e:  # whatever it is, it belongs to who waits for an answer
            self.failure = self.failure or e
        finally:
            self.failure = self.failure or TransientError("the reading has ended before all was read")  # nobody waits where it was stopped
            self.ready.set()
            self.came.set()

    def _guarded(self, what: Callable[..., None], *args: object) -> None:
        """Run the reader's work in the loop, and pass a failure on: the loop by itself would hide it."""
        try:
            what(*args)
        except BaseException as e:
            self._fail(e)

    def _fail(self, e: BaseException) -> None:
        self.failure = self.failure or e
        self.ending.set()
        self.came.set()

    async def _serve(self, opened: Opened) -> None:
        self.loop, self.ending = asyncio.get_running_loop(), asyncio.Event()
        async with opened() as self.fetch:
            self.ready.set()
            try:
                await self.ending.wait()
            finally:
                for task in self.tasks:
                    task.cancel()
                await asyncio.gather(*self.tasks, return_exceptions=True)

    def _add(self, batch: list[_Slot]) -> None:
        self.queue.extend(batch)
        self._pump()

    def _pump(self) -> None:
        """Ask for what may be asked for now."""
        while self.queue and self.pace.room:
            slot = self.queue[0]
            if not slot.left:
                self.queue.popleft()
                continue
            size = min(PIECE, slot.request.start + slot.request.length - slot.start)
            if self.asked - self.taken + size > BUDGET and self.asked > self.taken:
                self.starved = True
                if self.asked - self.taken + size > BUDGET and self.asked > self.taken:  # the reader took nothing between the two
                    return
                self.starved = False
            cell: list[Result | None] = [None]
            slot.pieces.append(cell)
            piece = slot.request._replace(start=slot.start, length=size)
            slot.start += size
            slot.left -= 1
            self.asked += size
            self.pace.running += 1
            task = self.loop.create_task(self._one(slot, cell, piece))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _one(self, slot: _Slot, cell: list[Result | None], piece: ReadRequest) -> None:
        try:
            found: Result
            try:
                found = await self._tried(slot, piece)
            except (Vanished, Unreadable) as e:
                found = e
            finally:
                self.pace.running -= 1
            self._came(slot, cell, piece, found)
        except asyncio.CancelledError as e:
            if self.ending.is_set():
                raise
            self._fail(TransientError(f"the reading of {piece.name!r} was cancelled ({e})"))  # by its client, and not by us
        except BaseException as e:
            self._fail(e)

    def _came(self, slot: _Slot, cell: list[Result | None], piece: ReadRequest, found: Result) -> None:
        if isinstance(found, bytes) and len(found) != piece.length:
            found = Vanished("changed while it was read")
        if slot.dropped or not isinstance(found, bytes):
            self.asked -= piece.length
            slot.left = 0  # the rest of the object is not asked for
        cell[0] = found
        if slot is self.awaited:
            self.came.set()
        self._pump()

    async def _tried(self, slot: _Slot, piece: ReadRequest) -> bytes:
        tries, began = 0, 0.0
        while True:
            if pause := self.pace.pause(self.loop.time()):
                await asyncio.sleep(pause)
            try:
                try:
                    async with asyncio.timeout(TRY):
                        found = await self.fetch(piece)
                except TimeoutError:
                    raise Throttled(f"no answer in {TRY:.0f} s") from None  # a thin line that carries too much at once, perhaps
            except TransientError as e:
                tries += 1
                now = self.loop.time()
                began = began or now
                self.pace.failed(e, now)
                wait = max(e.wait, min(FIRST * 2 ** (tries - 1), LONGEST) * random.uniform(0.5, 1))
                if now + wait - began > PATIENCE or slot.dropped:
                    if self.pace.succeeded > began:
                        raise Unreadable(scrub(f"{e} (tried {tries} times in {now - began:.0f} s)")) from e
                    raise TransientError(f"{e} (tried {tries} times in {now - began:.0f} s)") from e
                await asyncio.sleep(wait)
            else:
                self.pace.came(self.loop.time())
                return found
