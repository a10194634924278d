"""The rounds of a clean and of a savepoint, and how they come into effect.

A clean plans from one look at the log and the timeline; before it takes its slot, the log says which versions cannot be pinned any more.
Publication lays the plan on the timeline, then deletes. See docs/protocol.md, section 10.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quire.commit import protocol
from quire.commit.entries import TABLE, Expired, Task
from quire.commit.log import Log
from quire.errors import RefusedError, UsageError
from quire.storage import Entry, Store
from quire.table import file_groups, retention, rounds, timeline
from quire.table.file_groups import Slice
from quire.table.format import cleaning, names
from quire.table.format.config import VERSION, TableConfig
from quire.table.format.names import Instant
from quire.table.retention import Keep
from quire.table.rounds import Round
from quire.table.timeline import CLEAN, SAVEPOINT, Timeline
from quire.table.view import View
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

DELETING = 32  # requests at once
BY = "quire"


class NothingToClean(RefusedError):
    """No slice may go."""


@dataclass(frozen=True)
class Clean:
    """The round that deletes the slices that `keep` lets go."""

    keep: Keep

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`."""
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`. Raises NothingToClean."""
        line, saved = view.line, sorted(view.line.savepoints)
        found = retention.dead(closing.store, line, self.keep, {*saved, *pinned(view.log)})
        if not found.files:
            raise NothingToClean(f"no slice of {closing.store.url} may go.")
        counts = {"slices": found.slices, "files": sum(map(len, found.files.values())), "bytes": found.size}
        said = Round(
            instant=view.drawn, action=CLEAN, version=view.version, operation=CLEAN, inserts=(), counts=counts, held=tuple(saved),
            readable=found.readable,
        )  # fmt: skip
        first = next(instant for instant in line.completed if instant.time >= found.readable)
        newest = line.completed[-1].time
        return said, cleaning.plan(closing.store.url, found.by_partition(), (first.time, first.action), newest)


def keep_of(intent: Mapping[str, object]) -> Keep:
    """The slices that a frozen job keeps, from now on."""
    versions, span = intent.get("versions"), intent.get("keep_for")
    if isinstance(versions, int) and versions > 0:
        return Keep(versions=versions)
    return Keep(since=names.next_instant((), dt.datetime.now(dt.UTC) - dt.timedelta(seconds=float(str(span)))))


def pinned(log: Log) -> set[str]:
    """The newest instants of the versions that are pinned; of one that is not settled also the newest that readers see."""
    versions = {each for version in log.pins().values() for each in (version, log.settled_version(version))}
    return {max((instant for instant, *_ in log.cut(version).instant_rows()), default="") for version in versions}


def expired(log: Log, done: Task) -> Expired | None:
    """The entry that says which versions nobody may pin any more, before a clean takes their slices; None: the log says so."""
    said = rounds.round_of(done)
    if said.operation != CLEAN:
        return None
    versions = [
        number for number, commit in log.recent()
        if commit.closer == TABLE and log.in_effect(commit) and rounds.leaves_instant(commit.tasks[-1])
        and rounds.round_of(commit.tasks[-1]).instant >= said.readable
    ]  # fmt: skip
    below = min([*(versions or [said.version]), *log.pins().values()])
    return Expired(below=below, time=protocol.now()) if log.expired() < below else None


@dataclass(frozen=True)
class Savepoint:
    """The round that makes a savepoint of the table as of an instant."""

    instant: str
    comment: str

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`."""
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`. Raises UsageError for an instant of nothing, RefusedError if a clean has taken what it would hold."""
        line = view.line
        check_instant(line, self.instant, closing.store.url)
        slices = held(closing.store, line, self.instant)
        files = cleaning.names_of(
            (one.partition, name.rpartition("/")[2]) for one in slices for name in (one.name, *one.logs) if name
        )  # fmt: skip
        said = Round(instant=self.instant, action=SAVEPOINT, version=view.version, operation=SAVEPOINT, inserts=(), counts={})
        return said, cleaning.savepoint(files, BY, int(dt.datetime.now(dt.UTC).timestamp() * 1000), self.comment)


def check_instant(line: Timeline, instant: str, url: str) -> None:
    """UsageError where no write has completed at an instant."""
    if not any(each.time == instant for each in line.completed):
        last = f" The newest is {line.completed[-1].time}." if line.completed else " Nothing has been written yet."
        raise UsageError(f"{url} has no completed write at {instant}: table.timeline() lists them.{last}")


def held(store: Store, line: Timeline, instant: str) -> list[Slice]:
    """The slices of a table as of an instant; RefusedError where a clean has taken one."""
    slices = file_groups.newest(store, line.as_of(instant), logs=True)
    retention.check_whole(line.as_of(instant), slices, instant)
    return slices


# ------------------------------------------------------------------------------------------------------------------- publication
def carry_out(store: Store, said: Round, content: bytes, where: str) -> None:
    """Let a clean or a savepoint come into effect; anybody may, again and again.

    Nothing happens where another program has upgraded the table, or keeps a metadata table of it, which would name what is gone.
    """
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    completed = f"{names.FOLDER}/{Instant(said.instant, said.action).name}"
    if has.version != VERSION or has.metadata or store.stat(completed) is not None:
        return
    under_way = f"{names.FOLDER}/{Instant(said.instant, said.action, 'inflight').name}"
    if said.operation == SAVEPOINT:
        store.put(under_way, b"")
        store.put_if_absent(completed, content)
        return
    planned = cleaning.planned(content, where)
    store.put_if_absent(f"{names.FOLDER}/{Instant(said.instant, said.action, 'requested').name}", content)
    store.put(under_way, content)
    files = _delete(store, planned, said.readable)
    store.put_if_absent(completed, cleaning.completed(files, said.instant, *cleaning.retained(content, where)))


def _delete(store: Store, planned: dict[str, list[names.BaseFile | names.LogFile]], readable: str) -> dict[str, list[str]]:
    """Delete the files of a plan, and what commits up to the instant `readable` have kept of changes; partition → the names of those files.

    A file that is read by now stays: a commit that superseded it may have been rolled back since, or somebody has forged the plan.
    """
    newest = file_groups.newest(store, timeline.read(store), logs=True)
    current = {name for one in newest for name in (one.name, *one.logs)}
    gone = [(partition, file.name) for partition, files in planned.items() for file in files]
    gone = [(partition, name) for partition, name in gone if names.path(partition, name) not in current]
    kept = (entry.name for entry in store.walk(names.CHANGES) if isinstance(entry, Entry))
    # They hold rows as they were before, also rows that are deleted.
    changes = [name for name in kept if retention.changed_at(name) <= readable]
    with ThreadPoolExecutor(DELETING) as pool:
        list(pool.map(store.remove, [*(names.path(partition, name) for partition, name in gone), *changes]))
    return cleaning.names_of(gone)
