"""The round of an archive, and how it comes into effect: the oldest completed instants leave the timeline, and their files stay.

Every reader takes a file that is older than the timeline's first write for committed, so an archive never passes an instant of which a file
may be there that does not count, or of which one counts no more. See docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quire.commit import names as objects
from quire.commit.entries import TABLE
from quire.commit.log import Log
from quire.errors import NotFoundError, RefusedError
from quire.storage import Entry, Store, plain
from quire.table import cleaning, file_groups
from quire.table.format import archive as stored
from quire.table.format import names
from quire.table.format.archive import Archived
from quire.table.format.config import VERSION, TableConfig
from quire.table.format.names import Instant
from quire.table.rounds import ARCHIVE, Round
from quire.table.timeline import CLEAN, PARALLEL, SAVEPOINT, WRITES, Timeline
from quire.table.view import View
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

MOST = 10_000  # writes of one archive, which is held in memory


class NothingToArchive(RefusedError):
    """No instant may go."""


@dataclass(frozen=True)
class Stop:
    """The first write that stays on the timeline, and why no later one may be the first; "": all stay."""

    horizon: str
    why: str


@dataclass(frozen=True)
class Archive:
    """The round that takes all instants off the timeline but the last `keep` writes, as far as they may go; see `stop`."""

    keep: int

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`."""
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`. Raises NothingToArchive."""
        store, line = closing.store, view.line
        found = stop(view.log, line, self.keep)
        going = [instant for instant in line.completed if instant.time < found.horizon]
        if not going:
            raise NothingToArchive(f"no instant of {store.url} may be archived: {found.why}.")
        number = stored.numbered(entry.name for entry in store.walk(stored.FOLDER))[0] + 1
        said = Round(
            instant=found.horizon, action=ARCHIVE, version=view.version, operation=ARCHIVE, inserts=(),
            counts={"instants": len(going), "number": number}, held=tuple(sorted(line.savepoints)),
        )  # fmt: skip
        with ThreadPoolExecutor(PARALLEL) as pool:
            writes = [Archived(i.time, i.action, c) for i, c in zip(going, pool.map(line.commit, going), strict=True)]
            cleans = pool.map(lambda time: _clean(store, time), (time for time in line.cleans if time < found.horizon))
            others = [Archived(time, CLEAN, clean=said_then) for time, said_then in cleans]
        return said, stored.encode(sorted([*writes, *others], key=lambda each: (each.instant, each.action)))


def _clean(store: Store, time: str) -> tuple[str, dict[str, object] | None]:
    name = f"{names.FOLDER}/{Instant(time, CLEAN).name}"
    try:
        return time, stored.clean_of(store.get(name), f"{store.url}/{name}")
    except NotFoundError:
        return time, None


def stop(log: Log, line: Timeline, keep: int) -> Stop:
    """How far an archive may go by one look."""
    writes = [instant.time for instant in line.completed]
    if len(writes) <= keep:
        return Stop("", f"the last {keep:,} writes stay")
    stops = [Stop(writes[-keep], f"the last {keep:,} writes stay"), *(Stop(each, "more may go") for each in writes[MOST : MOST + 1])]
    stops += [Stop(saved, f"the savepoint {saved} holds it") for saved in line.savepoints]
    stops += [Stop(i.time, f"{i.time}.{i.action} has not completed") for i in line.pending]
    if pinned := cleaning.pinned(log):
        stops.append(Stop(pinned, "a pin of the ledger holds it"))
    stops += _files(line)
    stops += _void(log)
    first = min(stops, key=lambda each: each.horizon)
    # A write that has completed is the first one that stays: what lies between two of them would be older than the timeline.
    return Stop(max((time for time in writes if time <= first.horizon), default=""), first.why)


def _files(line: Timeline) -> Iterator[Stop]:
    """Instants of which there are files that would be read, or read again, if the timeline began later."""
    holds, compactions, ended = line.holds(), line.compactions(), dict(line.replaced)
    for folder, file, entry in file_groups.files(line.store):
        if at := ended.get((folder, file.file_id)):
            if file.instant <= at:
                yield Stop(at, f"{entry.name} was replaced at {at}, and is still there: table.clean() deletes it")
        elif not holds(file.instant) and file.instant not in compactions:
            yield Stop(file.instant, f"{entry.name} belongs to no completed write: a program that died has left it")


def _void(log: Log) -> Iterator[Stop]:
    """Instants of commits that do not count, of which somebody who was asleep may still bring a file."""
    for _, commit in log.recent():
        if commit.closer != TABLE or log.in_effect(commit):
            continue
        done, folder = commit.tasks[-1], objects.job_folder(commit.job)
        there = any(isinstance(each, Entry) for each in log.store.walk(folder))
        if there or any(log.store.stat(file.name) is not None for file in done.data_files):
            yield Stop(
                done.instant, f"files of the commit {done.instant}, which does not count, may be there: quire.recover() removes them"
            )


# ------------------------------------------------------------------------------------------------------------------- publication
def carry_out(store: Store, said: Round, content: bytes) -> None:
    """Take the instants before the horizon off the timeline; anybody may, again and again.

    The archive is there first: from then on quire's readers take all instants before the horizon for archived. Others see writes go one by
    one, the oldest first. Nothing happens where another program has upgraded the table, or keeps a metadata table of it.
    """
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    if has.version != VERSION or has.metadata:
        return
    store.put_if_absent(stored.name(said.counts.get("number", 1), said.instant), content)
    there = [found for found in _instants(store) if found.time < said.instant]
    held = [found.time for found in there if found.action == SAVEPOINT]  # another program has made one since
    going = [found for found in there if not held or found.time < min(held)]
    writes, rest = list[Instant](), list[Instant]()
    for each in sorted(going):
        if each.state == "completed" and each.action in WRITES:
            writes.append(each)
        elif each.action != CLEAN:
            rest.append(each)
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda instant: _remove(store, instant), rest))  # a write without these is still a completed one
        for instant in writes:
            _remove(store, instant)
        list(pool.map(lambda instant: _remove(store, instant), [i for i in going if i.action == CLEAN]))


def _instants(store: Store) -> Iterator[Instant]:
    found = (names.instant(entry.name.rpartition("/")[2]) for entry in store.scan(names.FOLDER) if isinstance(entry, Entry))
    return (each for each in found if each is not None and not each.ended)


def _remove(store: Store, instant: Instant) -> None:
    store.remove(f"{names.FOLDER}/{instant.name}")


def check_done(store: Store, said: Round) -> None:
    """RefusedError where an archive that was committed has changed nothing."""
    if stored.numbered(entry.name for entry in store.walk(stored.FOLDER))[1] < said.instant:
        raise RefusedError(
            f"the archive of {plain(store.url)} before {said.instant} has changed nothing: another program has upgraded the table "
            "meanwhile, or keeps a metadata table of it. table.adopt() drops a metadata table; then call again."
        )
