"""The rounds of a clean and of a savepoint, and how they come into effect.

A clean plans from one look at the log and the timeline; before it takes its slot, the log says which versions cannot be pinned any more.
Publication lays the plan on the timeline, then deletes. See docs/protocol.md, section 10.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quire.commit import protocol
from quire.commit.entries import TABLE, Commit, Entry, Expired, Foreign, Task
from quire.commit.exports import needed
from quire.commit.log import Log
from quire.errors import RefusedError, StorageError, TransientError, UsageError
from quire.storage import Entry as File
from quire.storage import Store, plain
from quire.table import file_groups, retention, rounds, timeline
from quire.table.file_groups import Slice
from quire.table.format import cleaning, names
from quire.table.format.config import TableConfig
from quire.table.format.names import Instant
from quire.table.retention import Keep
from quire.table.rounds import Round
from quire.table.timeline import CLEAN, SAVEPOINT, Timeline
from quire.table.view import View
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

DELETING = 32  # requests at once
BY = "quire"
Planned = Mapping[str, Sequence[names.BaseFile | names.LogFile]]  # partition → files


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
        found = retention.dead(closing.store, line, self.keep, saved, pinned(view.log))
        if not found.files:
            raise NothingToClean(f"no slice of {closing.store.url} may go.")
        counts = {"slices": found.slices, "files": sum(map(len, found.files.values())), "bytes": found.size}
        said = Round(
            instant=view.drawn, action=CLEAN, version=view.version, operation=CLEAN, inserts=(), counts=counts, held=tuple(saved),
            readable=found.readable, ended=view.ended,
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


def pinned(log: Log) -> str:
    """The newest instant that readers of the oldest version see which a pin holds or an export offers; "": there is none."""
    versions = needed(log)
    return max(seen(log, min(versions)), default="0") if versions else ""


def seen(log: Log, version: int) -> set[str]:
    """The instants that readers of a version see."""
    return {instant for instant, _, undone in log.cut(log.settled_version(version)).instant_rows() if not undone}


def expired(log: Log, done: Task) -> Expired | None:
    """The entry that says which versions nobody may pin any more, before a clean takes their slices, or an archive their instants.

    None: the log says so.
    """
    said = rounds.round_of(done)
    first = {CLEAN: said.readable, rounds.ARCHIVE: said.instant}.get(said.operation)
    if first is None:
        return None
    entries = enumerate(log.since(log.merged), log.merged + 1)
    # Where none of these has so new an instant, a version has it that a checkpoint stands for.
    brings = next((number for number, entry in entries if _newest(log, entry) >= first), log.merged)
    # Readers see a commit from the version on at which it, and each before it, is published.
    below = next((each for each in range(brings, log.tip + 1) if log.settled_version(each) >= brings), log.tip)
    below = min([below, *needed(log)])
    return Expired(below=below, time=protocol.now()) if log.expired() < below else None


def _newest(log: Log, entry: Entry) -> str:
    """The newest instant of a write that an entry of the log brings; "": it brings none."""
    if isinstance(entry, Foreign):
        return max(entry.instants, default="")
    if not isinstance(entry, Commit) or entry.closer != TABLE or not log.in_effect(entry) or not rounds.leaves_instant(entry.tasks[-1]):
        return ""
    return rounds.round_of(entry.tasks[-1]).instant


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
        said = Round(
            instant=self.instant, action=SAVEPOINT, version=view.version, operation=SAVEPOINT, inserts=(), counts={}, ended=view.ended
        )  # fmt: skip
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
    if not rounds.fits(has, said) or has.metadata or _done(store, said):
        return
    folder = rounds.folder_of(said)
    completed = f"{folder}/{Instant(said.instant, said.action, ended=said.ended).name}"
    under_way = f"{folder}/{Instant(said.instant, said.action, 'inflight').name}"
    if said.operation == SAVEPOINT:
        store.put(under_way, b"")
        store.put_if_absent(completed, content)
        return
    planned = cleaning.planned(content, where)
    store.put_if_absent(f"{folder}/{Instant(said.instant, said.action, 'requested').name}", content)
    store.put(under_way, content)
    going, changes = _going(store, planned), _changes(store, said.readable)
    there = [names.path(*each) for each in going]
    with ThreadPoolExecutor(DELETING) as pool:
        gone = list(
            pool.map(lambda name: _remove(store, name), [*there, *(file_groups.cdc_logs(store, there) if has.cdc else ()), *changes])
        )
    files = cleaning.names_of(each for each, ok in zip(going, gone, strict=False) if ok)
    refused = cleaning.names_of(each for each, ok in zip(going, gone, strict=False) if not ok)
    store.put_if_absent(completed, cleaning.completed(files, refused, said.instant, *cleaning.retained(content, where)))


def _done(store: Store, said: Round) -> bool:
    """Whether a clean or a savepoint has come into effect; another savepoint of its instant is as good."""
    if said.operation == SAVEPOINT:
        return bool(saved_at(store, rounds.folder_of(said), said.instant))
    return store.stat(f"{rounds.folder_of(said)}/{Instant(said.instant, said.action, ended=said.ended).name}") is not None


def saved_at(store: Store, folder: str, instant: str = "") -> list[Instant]:
    """The savepoints that are made, of an instant or all of them, in their order."""
    there = (names.instant(entry.name.rpartition("/")[2]) for entry in store.scan(folder) if isinstance(entry, File))
    made = (each for each in there if each and each.action == SAVEPOINT and each.state == "completed")
    return sorted(each for each in made if instant in ("", each.time) and bool(each.ended) == (folder == names.TIMELINE))


def _remove(store: Store, name: str) -> bool:
    """Delete a file; False: the store refuses, which must not hinder writers, who publish this clean before they begin."""
    try:
        store.remove(name)
    except TransientError:
        raise
    except StorageError:
        return False
    return True


def _going(store: Store, planned: Planned) -> list[tuple[str, str]]:
    """Partition and name of each file of a plan that nobody reads.

    A file that is read by now stays: a commit that superseded it may have been rolled back since, or somebody has forged the plan.
    """
    newest = file_groups.newest(store, timeline.current(store), logs=True)
    current = {name for one in newest for name in (one.name, *one.logs)}
    every = ((partition, file.name) for partition, files in planned.items() for file in files)
    return [each for each in every if names.path(*each) not in current]


def _changes(store: Store, readable: str) -> list[str]:
    """The change files of commits up to an instant: they hold rows as they were before, also rows that are deleted."""
    there = (entry.name for entry in store.walk(names.CHANGES) if isinstance(entry, File))
    return [name for name in there if retention.changed_at(name) <= readable]


def check_done(store: Store, said: Round) -> None:
    """See that a clean, or a savepoint, that was committed and published has come into effect.

    RefusedError where another program keeps the table differently by now; StorageError where the store has refused to delete files.
    """
    if not _done(store, said):
        raise RefusedError(
            f"the {said.operation} {said.instant} of {plain(store.url)} has changed nothing: another program has upgraded the table "
            "meanwhile, or keeps a metadata table of it. table.adopt() drops a metadata table; then call again."
        )
    if said.operation != CLEAN:
        return
    planned = cleaning.planned(*timeline.current(store).clean_of(said.instant))
    there = {entry.name for entry in store.walk() if isinstance(entry, File)}
    going = [names.path(*each) for each in _going(store, planned)]
    if left := [name for name in (*going, *names.cdc_logs(there, going)) if name in there] + _changes(store, said.readable):
        raise StorageError(
            f"the store refuses to delete {len(left):,} files that the clean {said.instant} of {plain(store.url)} was to delete, as "
            f"{left[0]}; the others are gone. Look whether it lets quire delete there, and call again."
        )
