"""Expire: data files that a newer version has removed are deleted, once the log says that older versions are no longer readable.

A pin keeps a version readable. Only settled versions expire, so deadness is final, and a slow or repeated call does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from quire import display
from quire.commit import names, protocol
from quire.commit.entries import Entry, Expired, Pin, Unpin
from quire.commit.log import Log
from quire.coverage import quarantine
from quire.errors import StorageError, UsageError, quoted
from quire.planning.rewriting import live_files
from quire.sizes import format_size
from quire.storage import Store

__all__ = ["Gone", "expire", "pin", "pins", "unpin"]

DELETING = 16  # requests at once


@dataclass(frozen=True)
class Gone(display.Shown):
    """What `expire` did: versions before `below` can no longer be read; how many data files are deleted, and their bytes."""

    dest: str
    below: int
    data_files: int
    bytes: int
    pinned: tuple[int, ...] = ()

    def _facts(self) -> dict[str, object]:
        rows: dict[str, object] = {"readable from version": self.below, "deleted": f"{self.data_files:,} ({format_size(self.bytes)})"}
        return rows | ({"pinned versions": ", ".join(map(str, self.pinned))} if self.pinned else {})


def expired(log: Log) -> int:
    """The first version that can still be read."""
    return max((e.below for e in log.entries if isinstance(e, Expired)), default=0)


def pins(log: Log) -> dict[str, int]:
    """The open pins: id → version."""
    found = dict[str, int]()
    for entry in log.entries:
        if isinstance(entry, Pin):
            found[entry.id] = entry.version
        elif isinstance(entry, Unpin):
            found.pop(entry.id, None)
    return found


def expire(store: Store, below: int | None = None) -> Gone:
    """Delete the data files that no version from `below` on (default: the last one) needs, as far as pins allow."""
    try:
        return _expire(store, below)
    except StorageError as e:
        raise type(e)(f"{str(e).rstrip('.')}. Each call of expire deletes what it finds: call again to go on.") from e


def _expire(store: Store, below: int | None) -> Gone:
    log = protocol.recover(store)
    wanted = log.tip if below is None else below
    if wanted > log.tip:
        raise UsageError(f"version {wanted} of {store.url} is not there yet: the last one is {log.tip}.")

    def compute(log: Log) -> Entry | None:
        reached = log.settled_version(min([wanted, *pins(log).values()]))
        return None if expired(log) >= reached else Expired(below=reached, time=protocol.now())

    log.append(compute)
    # Clean every job before: nothing may be left from which a slow publisher could make a file again.
    log = protocol.recover(store)
    below = expired(log)
    live = live_files(log, below)
    named = {file.name for _, commit in log.commits(until=below) for task in commit.tasks for file in task.files}
    dead = {e.name: e.size for e in store.walk() if e.name in named and e.name not in live} if named - live.keys() else {}
    rejected = {e.name for e in store.walk(names.QUARANTINE)}
    done_with = rejected.intersection(quarantine.dead(store, log, below)) if rejected else set()
    with ThreadPoolExecutor(DELETING) as pool:
        list(pool.map(store.remove, [*dead, *done_with]))
    return Gone(store.url, below, len(dead), sum(dead.values()), tuple(sorted(set(pins(log).values()))))


@contextmanager
def pin(store: Store, version: int) -> Iterator[int]:
    """Keep a version readable while the block runs; UsageError if it is not there or has expired."""
    ours = uuid.uuid4().hex

    def begin(log: Log) -> Entry | None:
        if version > log.tip:
            raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
        if expired(log) > version:
            raise UsageError(f"version {version} of {store.url} has expired. Pin a later one; ledger.history() lists them.")
        return None if any(isinstance(e, Pin) and e.id == ours for e in log.entries) else Pin(version=version, id=ours, time=protocol.now())

    Log(store).append(begin)
    try:
        yield version
    finally:
        unpin(store, ours)


def unpin(store: Store, wanted: str) -> None:
    """End a pin, also one that a dead reader has left; UsageError if there is none."""

    def end(log: Log) -> Entry | None:
        found = next((e for e in log.entries if isinstance(e, Pin) and e.id == wanted), None)
        if found is None:
            raise UsageError(f"there is no pin {quoted(wanted, 80)} in {store.url}. ledger.pins() lists them.")
        return Unpin(version=found.version, id=wanted, time=protocol.now()) if wanted in pins(log) else None

    Log(store).append(end)
