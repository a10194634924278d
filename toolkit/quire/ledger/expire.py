"""Expire: data files that a newer version has removed are deleted, once the log says that older versions cannot be read any more.

A pin keeps a version readable. Only settled versions expire, so deadness is final, and a slow or repeated call does no harm.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from quire import display
from quire.arguments import format_size
from quire.commit import closers, names, protocol, retire
from quire.commit.entries import Commit, Entry, Expired, Keep, Pin, Unpin
from quire.commit.exports import needed
from quire.commit.held import Held
from quire.commit.log import Log
from quire.coverage import quarantine
from quire.coverage.checkpoint import GRACE, sweep
from quire.errors import StorageError, UsageError, about, quoted
from quire.planning.rewriting import live_files
from quire.storage import Store, remove_all


@dataclass(frozen=True)
class ExpireReport(display.Shown):
    """The result of `expire`: versions before `before_version` can no longer be read; how many data files are deleted, and their bytes."""

    dest: str
    before_version: int
    data_files: int
    bytes: int
    pinned: tuple[int, ...] = ()
    merged: int = 0  # segments and checkpoints that a newer checkpoint stands for

    def _facts(self) -> dict[str, object]:
        rows: dict[str, object] = {
            "readable from version": self.before_version,
            "deleted": f"{self.data_files:,} ({format_size(self.bytes)})",
        }
        rows |= {"segments and checkpoints": f"{self.merged:,}"} if self.merged else {}
        return rows | ({"pinned versions": ", ".join(map(str, self.pinned))} if self.pinned else {})


def expire(store: Store, before_version: int | None = None, grace: float = GRACE) -> ExpireReport:
    """Delete the data files that no version from `before_version` on (default: the last one) needs, as far as pins allow.

    And segments that a checkpoint stands for since `grace` seconds.
    """
    try:
        return _expire(store, before_version, grace)
    except StorageError as e:
        raise type(e)(f"{str(e).rstrip('.')}. Each call of expire deletes what it finds: call again to go on.") from e


def _expire(store: Store, before_version: int | None, grace: float) -> ExpireReport:
    log = protocol.recover(store)
    wanted = log.tip if before_version is None else before_version
    if wanted > log.tip:
        raise UsageError(f"version {wanted} of {store.url} is not there yet: the last one is {log.tip}.")

    def compute(log: Log) -> Entry | None:
        reached = log.settled_version(min([wanted, *needed(log)]))
        # Up to there: what was superseded later may have to be forgotten at once.
        return None if log.expired() >= reached else Expired(below=reached, away=max(reached, retire.away(log)), time=protocol.now())

    log.append(compute)
    below = log.expired()
    live = live_files(log, below)
    dead = {e.name: e.size for e in store.walk() if e.name not in live and _superseded(log, below, e.name)}
    # Cleans every job before: nothing may be left from which a slow publisher could make a file again. Then what is named in the log goes,
    # and here what a slow store has brought back.
    log = protocol.recover(store)
    remove_all(store, [*dead, *quarantine.dead(store, log, below)])
    return _swept(store, log, grace, dead)


def swept(store: Store, grace: float) -> ExpireReport:
    """Delete what the checkpoints of a table's ledger stand for since `grace` seconds; which versions end, its clean has said.

    Its quarantine stays: a restore may take back the commit by which a record has left it.
    """
    return _swept(store, protocol.recover(store), grace, {})


def _swept(store: Store, log: Log, grace: float, dead: Mapping[str, int]) -> ExpireReport:
    pinned = tuple(sorted(set(log.pins().values())))
    return ExpireReport(store.url, log.expired(), len(dead), sum(dead.values()), pinned, sweep(store, grace))


def keep(store: Store, wanted: Keep) -> ExpireReport:
    """Let so many older versions stay readable from now on, and delete what only others need."""
    log = protocol.recover(store)
    before = _sizes(store)
    protocol.keep(log, wanted)
    gone = before.keys() - _sizes(store).keys()
    size = sum(before[name] for name in gone)
    return ExpireReport(store.url, log.expired(), len(gone), size, tuple(sorted(set(log.pins().values()))))


def _sizes(store: Store) -> dict[str, int]:
    """Data file → bytes, wherever it lies."""
    found = ((kept[1] if (kept := names.kept_at(e.name)) else e.name, e.size) for e in store.walk())
    return {name: size for name, size in found if names.job_of_data_file(name) and not name.startswith(f"{names.STATE}/")}


def _superseded(log: Log, below: int, name: str) -> bool:
    """Whether a file is kept for expired versions, or a commit up to a version names it: nothing else is deleted."""
    if kept := names.kept_at(name):
        return kept[0] <= below
    job = names.job_of_data_file(name)
    if job and (names.base_of(job) or 0) >= below:
        return False  # its commit is younger
    found = log.decided(job) if job and not name.startswith(f"{names.STATE}/") else None
    if found is None or found[0] > below or not isinstance(found[1], Commit):
        return False
    return any(file.name == name for task in found[1].tasks for file in task.data_files)


@contextmanager
def pin(store: Store, version: int | None, spare: list[Held]) -> Iterator[int]:
    """Keep a version (None: the last one) readable while the block runs; UsageError if it is not there or has expired.

    `spare`: logs that pins before have held, one of which is read on here, so that a reader's thousandth pin costs no more than its first.
    """
    ours, held = uuid.uuid4().hex, spare.pop() if spare else Held()  # nobody else has it meanwhile
    log = held.read(store)
    version = log.tip if version is None else version

    def begin(log: Log) -> Entry | None:
        if version > log.tip:
            raise UsageError(f"version {version} of {store.url} is not there yet: the last one is {log.tip}.")
        if log.expired() > version:
            raise UsageError(
                f"version {version} of {store.url} has expired: its data files are gone. Pin a later one (ledger.inspect.history() lists "
                f"them); keep_versions keeps older ones."
            )
        if any(e.id == ours for e in log.recent_of(Pin)):  # also if somebody has ended it already
            return None
        closers.check_readable(log, version)
        return Pin(version=version, id=ours, time=protocol.now())

    log.append(begin)
    try:
        protocol.retire(log)  # what has begun to leave has left before the reader looks for its files
        yield version
    finally:
        spare.append(held)
        _unpin(log, ours)


def unpin(store: Store, wanted: str) -> None:
    """End a pin, also one that a dead reader has left; UsageError if there is none."""
    if not isinstance(wanted, str):
        with about("pin"):
            raise UsageError(f"pin={quoted(wanted)} is not the id of a pin. ledger.pins() lists them.")
    _unpin(Log(store), wanted)


def _unpin(log: Log, wanted: str) -> None:
    def end(log: Log) -> Entry | None:
        if wanted in log.pins():
            return Unpin(version=log.pins()[wanted], id=wanted, time=protocol.now())
        if not log.began(wanted):  # else it was ended already
            raise UsageError(f"no pin {quoted(wanted, 80)} in {log.store.url}. ledger.pins() lists them.")
        return None

    log.append(end)
    protocol.retire(log, asked=True)  # what it has held
