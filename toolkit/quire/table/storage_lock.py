"""Hudi's storage lock, which writers on the JVM hold from their look for conflicts until their instant has completed: an object beside
the timeline that is replaced on condition of its version.

Whoever holds it has written `expired: false`, an owner and a time until which that counts; it is renewed before, and `expired: true` lets
it go. Without such an object programs do not use the lock, and quire's own writers need none.
Source: Hudi 1.1's `StorageBasedLockProvider` (RFC-91).
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

import msgspec

from quire.errors import FormatError, NotFoundError, QuireError, StorageError, printable
from quire.storage import Replacing, Store, plain, silent
from quire.storage.retry import FIRST
from quire.table.format import names

NAME = f"{names.FOLDER}/.locks/table_lock.json"
VALID, RENEWED = 300.0, 30.0  # seconds that a lock counts, and after which it is renewed, as Hudi has them
DRIFT = 2.0  # seconds that clocks may be apart; Hudi's writers allow half a second
PATIENCE = 600.0  # seconds that a call waits: twice as long as a writer holds the lock that has died
_LONGEST = 5.0  # seconds between two looks

# By these names, so that a simulated clock can stand in their place.
clock, pause = time.time, time.sleep


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the lock, as Hudi writes it; `validUntil`: ms since 1970."""

    expired: bool
    validUntil: int  # noqa: N815 - Hudi's name
    owner: str

    def holds(self) -> bool:
        """Whether somebody may still hold it."""
        return not self.expired and clock() <= self.validUntil / 1000 + DRIFT


_DECODER, _ENCODER = msgspec.json.Decoder(Lock), msgspec.json.Encoder()
_held: ContextVar[dict[str, Hold | None] | None] = ContextVar("quire_storage_lock", default=None)


@contextmanager
def held(store: Store) -> Iterator[None]:
    """Hold the lock of the table at `store`, if programs use it there; within a block that has looked, nothing is done.

    Raises QuireError where another program holds it for longer than a call waits, FormatError where it is damaged.
    """
    before = _held.get() or {}
    if store.url in before or not isinstance(store, Replacing):
        yield
        return
    hold = _taken(store)
    token = _held.set({**before, store.url: hold})
    try:
        yield
    finally:
        _held.reset(token)
        if hold:
            hold.release()


def check(store: Store) -> None:
    """QuireError where the lock that this call holds has run out, as it was stopped for too long: another program may have it."""
    hold = (_held.get() or {}).get(store.url)
    if hold and not hold.counts():
        raise QuireError(
            f"this call was stopped for so long that its lock of {plain(store.url)} has run out, and another program may be writing: "
            "call again to go on."
        )


def _taken(store: Store) -> Hold | None:
    """The lock, once it is ours; None: nobody uses it."""
    owner, began, told, wait = f"quire-{uuid.uuid4()}", clock(), "", FIRST
    while (found := _read(store)) is not None:
        version, there = found
        if there.owner == owner:  # a write of ours that came late
            return Hold(store, there, version)
        if not there.holds():
            until = clock() + VALID
            mine = Lock(expired=False, validUntil=int(until * 1000), owner=owner)
            _replaced(store, mine, version)
            # Who has won is what is there: the answer to a write may be lost, and the write tried again.
            if (now := _read(store)) is not None and now[1] == mine:
                return Hold(store, mine, now[0])
        elif there.owner != told:
            told = there.owner
            _on_retry(store)(f"waits: {_said(store, there)}")
        if clock() - began > PATIENCE:
            raise QuireError(
                f"{_said(store, there)}, and renews it for longer than {PATIENCE:,.0f} s: nothing was committed or published. "
                "Call again when that program is done."
            )
        pause(wait)
        wait = min(2 * wait, _LONGEST)
    return None


class Hold:
    """The lock while it is ours: a thread renews it."""

    def __init__(self, store: Store, lock: Lock, version: str) -> None:
        self._store, self._lock, self._version = store, lock, version
        self._until, self._mine = lock.validUntil / 1000, threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="quire-storage-lock", daemon=True)
        self._thread.start()

    def counts(self) -> bool:
        """Whether nobody else can have it yet, as this process's clock has it."""
        with self._mine:
            return clock() < self._until

    def release(self) -> None:
        """Let it go; where the store cannot, it runs out by itself."""
        self._ended.set()
        self._thread.join()
        with suppress(StorageError):
            _replaced(self._store, msgspec.structs.replace(self._lock, expired=True), self._version)

    def _renew(self) -> None:
        while not self._ended.wait(RENEWED):
            with suppress(StorageError, FormatError):  # it counts until its time: then `check` says so
                self.renew()

    def renew(self) -> None:
        """Let it count from now on; nothing happens where another program has it."""
        until = clock() + VALID
        if not self.counts():
            return
        mine = msgspec.structs.replace(self._lock, validUntil=int(until * 1000))
        _replaced(self._store, mine, self._version)
        now = _read(self._store)
        with self._mine:
            if now is not None and now[1] == mine:
                self._version, self._lock, self._until = now[0], mine, until
            elif now is None or now[1].owner != mine.owner:
                self._until = 0.0


def _replaced(store: Store, lock: Lock, version: str) -> None:
    assert isinstance(store, Replacing)
    store.put_if(NAME, _ENCODER.encode(lock), version)


def _read(store: Store) -> tuple[str, Lock] | None:
    """The version and the content of the lock; None: nobody uses it."""
    found = store.stat(NAME)  # first: content that came after this version is not replaced by it
    if found is None:
        return None
    try:
        return found.version, _DECODER.decode(store.get(NAME))
    except NotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise FormatError(
            f"{store.url}/{NAME} is not a lock of Hudi's: {str(e)[:200]}. While no program writes into the table, delete it."
        ) from e


def _said(store: Store, lock: Lock) -> str:
    """The holder of the lock, and until when it counts, in a few words."""
    try:
        until = f"{dt.datetime.fromtimestamp(lock.validUntil / 1000, dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        until = str(lock.validUntil)
    return f"{printable(lock.owner)[:80]!r} holds the lock {plain(store.url)}/{NAME} until {until}"


def _on_retry(store: Store) -> Callable[[str], object]:
    told: Callable[[str], object] = getattr(store, "on_retry", silent)
    return told
