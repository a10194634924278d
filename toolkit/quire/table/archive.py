"""The round of an archive, and how it comes into effect: the oldest completed instants leave the timeline, and their files stay.

Every reader takes a file that is older than the timeline's first write for committed, so an archive never passes an instant of which a file
may be there that does not count, or of which one counts no more. See docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quire.commit import names as objects
from quire.commit.entries import TABLE
from quire.commit.log import Log
from quire.errors import NotFoundError, RefusedError, TransientError
from quire.storage import Entry, Store, plain
from quire.table import archived_timeline, cleaning, file_groups, rounds, timeline
from quire.table.format import archive as stored
from quire.table.format import lsm, names
from quire.table.format.archive import Archived
from quire.table.format.config import TableConfig
from quire.table.format.lsm import Left
from quire.table.format.names import Instant
from quire.table.rounds import ARCHIVE, Round
from quire.table.timeline import CLEAN, PARALLEL, REPLACE, SAVEPOINT, WRITES, Timeline
from quire.table.view import View
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

LIMIT = 8 << 20  # bytes of what instants say, of which one archive takes no more: it is held in memory, and the next one goes on
FULL = "full"  # of the counts of a round: 1 where its archive has ended there


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
        if not any(instant.time < found.horizon for instant in line.completed):
            raise NothingToArchive(f"no instant of {store.url} may be archived: {found.why}.")
        number = stored.numbered(entry.name for entry in store.walk(stored.FOLDER))[0] + 1
        try:
            full, content = (_left if line.folder == names.TIMELINE else _archived)(store, line, found.horizon)
        except NotFoundError as e:
            raise TransientError(
                f"instants of {store.url} have left the timeline since it was read: they are archived, or taken back"
            ) from e
        horizon = full or found.horizon
        counts = {"instants": sum(each.time < horizon for each in line.completed), "number": number, FULL: int(bool(full))}
        said = Round(
            instant=horizon, action=ARCHIVE, version=view.version, operation=ARCHIVE, inserts=(), counts=counts,
            ended=next(each.ended for each in line.completed if each.time == horizon), held=tuple(sorted(line.savepoints)),
        )  # fmt: skip
        return said, content


def _archived(store: Store, line: Timeline, horizon: str) -> tuple[str, bytes]:
    """The archive of layout 1 with the writes, and the cleans, before the horizon; first where it is full, as `_read` has it."""
    going = [each for each in line.completed if each.time < horizon]
    going += [Instant(time, CLEAN) for time in line.cleans if time < horizon]

    def leaving(each: Instant) -> Left:
        try:
            return Left(each.time, "", each.action, store.get(f"{line.folder}/{each.name}"))
        except NotFoundError:
            if each.action != CLEAN:
                raise
            return Left(each.time, "", CLEAN, b"")  # it has not completed

    full, left = _read(sorted(going), leaving)
    return full, stored.encode(Archived.of(each, f"{store.url}/{line.folder}/{each.time}.{each.action}") for each in left)


def _left(store: Store, line: Timeline, horizon: str) -> tuple[str, bytes]:
    """The same as a file of the archived timeline of layout 2, with all that has completed."""
    archived_timeline.newest(store)  # what is damaged there is said before the slot, and not by each writer after it
    there = [each for each in timeline.states(store, line.folder) if line.horizon <= each.time < horizon]
    writes = {each.name for each in line.completed}
    plans = {(each.time, names.ACTIONS[each.action]): each for each in there if each.state == "requested"}
    going = [each for each in there if each.state == "completed" and each.action != SAVEPOINT]
    going = [each for each in going if each.action not in WRITES or each.name in writes]

    def leaving(each: Instant) -> Left:
        plan = plans.get((each.time, each.action)) if each.action in (CLEAN, REPLACE) else None
        said = store.get(f"{line.folder}/{each.name}")
        return Left(each.time, each.ended, each.action, said, store.get(f"{line.folder}/{plan.name}") if plan else b"")

    full, left = _read(sorted(going), leaving)
    before = line.left.last() if line.left is not None else ""
    return full, lsm.encode(left, max([before, *(each.ended for each in left if each.action in WRITES)]))


def _read(going: Sequence[Instant], leaving: Callable[[Instant], Left]) -> tuple[str, list[Left]]:
    """The words of instants, in their order, up to the first write that does not fit; first its time, "" where all of them do."""
    found, size = list[Left](), 0
    with ThreadPoolExecutor(PARALLEL) as pool:
        for at in range(0, len(going), PARALLEL):
            for each in pool.map(leaving, going[at : at + PARALLEL]):
                if size >= LIMIT and each.action in WRITES and each.time > found[-1].time:
                    return each.time, found
                found.append(each)
                size += len(each.said) + len(each.plan)
    return "", found


def stop(log: Log, line: Timeline, keep: int) -> Stop:
    """How far an archive may go by one look."""
    writes = [instant.time for instant in line.completed]
    if len(writes) <= keep:
        return Stop("", f"the last {keep:,} writes stay")
    stops = [Stop(writes[-keep], f"the last {keep:,} writes stay")]
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
        if not holds(file.instant) and file.instant not in compactions:
            yield Stop(file.instant, f"{entry.name} belongs to no completed write: a program that died has left it")
        elif at := ended.get((folder, file.file_id)):  # also what another program has written into it since
            yield Stop(at, f"{entry.name} was replaced at {at}, and is still there: table.clean() deletes it")


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
def carry_out(store: Store, said: Round, content: bytes, where: str) -> None:
    """Take the instants before the horizon off the timeline; anybody may, again and again.

    The archive is there first: from then on quire's readers take all instants before the horizon for archived. Others see writes go one by
    one, the oldest first. Nothing happens where another program has upgraded the table, or keeps a metadata table of it.
    """
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    if not rounds.fits(has, said) or has.metadata:
        return
    folder = rounds.folder_of(said)
    if folder == names.TIMELINE:
        archived_timeline.add(store, said.instant, content, where)
    else:
        store.put_if_absent(stored.name(said.counts.get("number", 1), said.instant), content)
    timeline.leave(store, folder, said.instant)


def check_done(store: Store, said: Round) -> None:
    """RefusedError where an archive that was committed has changed nothing."""
    if timeline.read(store, rounds.folder_of(said)).horizon < said.instant:
        raise RefusedError(
            f"the archive of {plain(store.url)} before {said.instant} has changed nothing: another program has upgraded the table "
            "meanwhile, or keeps a metadata table of it. table.adopt() drops a metadata table; then call again."
        )
