"""The timeline of a table: which instants have completed, and what their commits say.

Source: Hudi's timeline: one object for each state of an instant, directly in `.hoodie/` (layout 1, of table version 6), or in
`.hoodie/timeline/` (layout 2, of versions 8 and 9), whose completed instants also say when they completed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from quire.errors import FormatError, NotFoundError
from quire.storage import Entry, Store
from quire.storage.once import once
from quire.storage.threads import Pool
from quire.table import archived_timeline
from quire.table.archived_timeline import ArchivedTimeline
from quire.table.format import archive, commits, compaction, lsm, names
from quire.table.format.commits import CommitMetadata
from quire.table.format.config import TableConfig
from quire.table.format.names import FOLDER, Instant

PARALLEL = 16  # requests at once
LOOKS = 3  # at a timeline that is archived meanwhile
COMPACTION, CLEAN, SAVEPOINT, CLUSTERING = "compaction", "clean", "savepoint", "clustering"
REPLACE = "replacecommit"  # brings files, and ends file groups
WRITES = names.WRITES
A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True)
class Holds:
    """Whether files and log blocks of an instant are part of the table: it has completed, or it is older than all that the timeline has.

    Archiving takes the oldest instants off the timeline, so every reader of Hudi takes older files for completed ones.

    until   those up to it count
    ends    instant → when it ended, where `until` is such a time
    """

    completed: frozenset[str] = field(repr=False)
    pending: frozenset[str]
    first: str
    until: str
    ends: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __call__(self, instant: str) -> bool:
        return self.ends.get(instant, instant) <= self.until and (
            instant in self.completed or (instant < self.first and instant not in self.pending)
        )


@dataclass(frozen=True)
class Timeline:
    """The instants of a table at one look, or those of them up to an instant, as they were then."""

    store: Store = field(repr=False)
    completed: tuple[Instant, ...]  # the writes among them, in their order
    pending: tuple[Instant, ...]  # of every action; one that has been requested and is in flight stands once
    first: str = ""  # of all completed writes
    until: str = "~"  # later than every instant
    folder: str = FOLDER
    cleans: frozenset[str] = frozenset()  # in whatever state: each takes files of older slices away, from when it was asked for
    archived: bool = False  # instants have left it: files of writes before the first one count
    horizon: str = ""  # all before it have left it by an archive of quire's, whatever a sleeper has put there since
    savepoints: frozenset[str] = frozenset()  # instants of which no clean takes a file, also where one is just being made
    others: tuple[Instant, ...] = ()  # the completed ones of other actions, in their order: rollbacks, restores, savepoints, …
    left: ArchivedTimeline | None = None  # of layout 2, where instants have left it
    again: tuple[Instant, ...] = ()  # the writes before the horizon, in their order: still there, or put there again by a sleeper

    def as_of(self, instant: str) -> Timeline:
        """The same up to an instant."""
        return replace(self, completed=tuple(i for i in self.completed if i.time <= instant), until=instant)

    def holds(self, *, by_end: bool = False) -> Holds:
        """Whether an instant's files are part of the table; `by_end`: as of a time at which instants end, where layout 2 says it."""
        completed = {i.time for i in self.completed} | (self.left.writes if self.left else set())
        return Holds(frozenset(completed), frozenset(i.time for i in self.pending), self.first, self.until, self.ends(()) if by_end else {})

    def compactions(self) -> frozenset[str]:
        """The instants of compactions that have been asked for and have not completed: since then logs are of the slices they begin."""
        return frozenset(i.time for i in self.pending if i.action == COMPACTION and i.time <= self.until)

    def compacting(self) -> dict[tuple[str, str], str]:
        """(partition, file group) → the instant of the compaction that has been asked for and will rewrite it."""
        found = dict[tuple[str, str], str]()
        for instant in sorted(self.compactions()):
            name = self.plan_of(instant)
            try:
                plan = self.store.get(name)
            except NotFoundError:
                continue  # it was taken back since
            for each in compaction.groups(plan, f"{self.store.url}/{name}"):
                found[each] = instant
        return found

    def has_compacted(self, compaction: str) -> bool:
        """Whether a compaction has been carried out, as the timeline says."""
        return any(each.time == compaction for each in self.completed)

    def plan_of(self, compaction: str) -> str:
        """The name of the plan of a compaction."""
        return f"{self.folder}/{Instant(compaction, COMPACTION, 'requested').name}"

    def clean_of(self, clean: str) -> tuple[bytes, str]:
        """The plan of a clean, and where it is; b"" where it is about to be laid, or was archived since."""
        name = f"{self.folder}/{Instant(clean, CLEAN, 'requested').name}"
        where = f"{self.store.url}/{name}"
        try:
            return self.store.get(name), where
        except NotFoundError:
            return b"", where

    def ends(self, instants: Collection[str]) -> dict[str, str]:
        """Instant → when it completed, of those among some of which it is known, also archived ones; of layout 1 nothing says it."""
        found = {i.time: i.ended for i in self.completed if i.ended}
        if self.left is not None and (unknown := {each for each in instants if each not in found}):
            found |= self.left.ends(unknown)
        return found

    def commit(self, instant: Instant) -> CommitMetadata:
        """The content of a completed write."""
        name = f"{self.folder}/{instant.name}"
        decode = commits.decode if self.folder == FOLDER else commits.decode_avro
        return decode(self.store.get(name), f"{self.store.url}/{name}")

    def commits(self, instants: Iterable[Instant]) -> Iterator[CommitMetadata]:
        """The contents of completed writes, in their order; only a few are held at once, however many there are."""
        return ahead(self.commit, instants)

    @once
    def replaced(self) -> dict[tuple[str, str], str]:
        """(partition, file group) → the instant at which another took its place."""
        ended = [i for i in self.completed if i.action == REPLACE]
        ends = ((i.time, c.replaced) for i, c in zip(ended, self.commits(ended), strict=True))
        return {(partition, group): time for time, replaced in ends for partition, ids in replaced.items() for group in ids}

    def schema(self) -> str:
        """The Avro schema of the newest write that gives one; "": none does."""
        return next((text for i in reversed(self.completed) if (text := self.commit(i).schema)), "")


def ahead(call: Callable[[A], B], given: Iterable[A]) -> Iterator[B]:
    """`map` with a few calls at once, whose results are not held beyond these few, as those of a pool are."""
    asked = deque[Future[B]]()
    with Pool(PARALLEL) as pool:
        for each in given:
            asked.append(pool.submit(call, each))
            if len(asked) == PARALLEL:
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()


def read(store: Store, folder: str = FOLDER) -> Timeline:
    """The timeline as it is now. Raises FormatError where two actions have one instant: no reader could order them.

    `folder`: where it lies, `names.TIMELINE` in layout 2.
    """
    for _ in range(LOOKS):
        found = _look(store, folder)
        # A write stays behind each archive: a slow listing may end before the first one of these.
        if found.completed or not found.horizon:
            return found
    archived = lsm.FOLDER if folder == names.TIMELINE else archive.FOLDER
    raise FormatError(
        f"{store.url}/{archived} says that all writes before {found.horizon} are archived, and no later one is on the timeline: an "
        f"archive was forged, or another program has rolled back what stayed. Restore {store.url}/{folder} from a copy."
    )


def current(store: Store) -> Timeline:
    """The timeline of a table that quire writes, where its settings say that it lies."""
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    return read(store, has.written)


def _listed(store: Store, folder: str) -> Iterator[tuple[str, bool]]:
    """The names on a timeline, and whether each is a directory: nobody needs their sizes, which take a disk longer than the names."""
    try:
        yield from store.peek(folder)
    except NotFoundError:
        return  # nothing has been written yet


def _look(store: Store, folder: str) -> Timeline:
    archived, there = lsm.FOLDER if folder == names.TIMELINE else f"{folder}/{archive.FOLDER.rpartition('/')[2]}", False
    writes, pending, done, cleans, saved = dict[str, Instant](), dict[str, Instant](), set[tuple[str, str]](), set[str](), set[str]()
    others = list[Instant]()
    for name, is_folder in _listed(store, folder):
        there = there or (is_folder and f"{folder}/{name}" == archived)
        found = None if is_folder else names.instant(name)
        if found is None or (found.state == "completed" and bool(found.ended) != (folder == names.TIMELINE)):
            continue
        action = names.ACTIONS[found.action]
        if found.state == "completed" and action not in (*WRITES, CLEAN):
            others.append(found)
        if action == SAVEPOINT:
            saved.add(found.time)
            continue  # it has the instant of the write that it holds
        if action == CLEAN:
            cleans.add(found.time)
        if found.state != "completed":
            if found.state == "inflight" or found.time not in pending:
                pending[found.time] = found
            continue
        done.add((found.time, action))
        if action in WRITES and (other := writes.setdefault(found.time, found)) != found:
            raise FormatError(
                f"{store.url}/{folder} has two writes at the instant {found.time}, {other.action} and {found.action}: no reader can tell "
                f"which came first. Look who wrote them, and take one away."
            )
    # An archive comes before its instants go, so this look tells of all that went while they were listed.
    left, kept = None, list[str]()
    if there and folder == names.TIMELINE:
        left = archived_timeline.look(store, writes)
    elif there:
        kept = [entry.name for entry in store.walk(archived)]
    horizon = left.horizon if left else archive.numbered(kept)[1]
    completed = tuple(writes[time] for time in sorted(writes) if time >= horizon)  # texts: instants themselves take longer to sort
    waiting = (i for i in pending.values() if i.time >= horizon and (i.time, names.ACTIONS[i.action]) not in done)
    return Timeline(
        store, completed, tuple(sorted(waiting)), completed[0].time if completed else "", folder=folder, cleans=frozenset(cleans),
        savepoints=frozenset(saved), archived=any(map(archive.is_archive, kept)) or bool(left and left.files), horizon=horizon,
        others=tuple(sorted(others)), left=left, again=tuple(writes[time] for time in sorted(writes) if time < horizon),
    )  # fmt: skip


def states(store: Store, folder: str) -> Iterator[Instant]:
    """The instants on a timeline, in whatever state, and as a table of its version has them."""
    found = (names.instant(entry.name.rpartition("/")[2]) for entry in store.scan(folder) if isinstance(entry, Entry))
    there = (each for each in found if each is not None)
    return (each for each in there if each.state != "completed" or bool(each.ended) == (folder == names.TIMELINE))


def leave(store: Store, folder: str, horizon: str) -> None:
    """Let all before a horizon leave the timeline, as they are archived, the oldest write first; anybody may, again and again.

    A publisher that has slept may put a write there again: other programs would take those between it and the first for writes that have
    not completed. A savepoint that another program has made since holds its own, and those after it.
    """
    there = [found for found in states(store, folder) if found.time < horizon]
    held = min((found.time for found in there if found.action == SAVEPOINT), default=horizon)
    going = sorted(found for found in there if found.time < held)
    writes = [each for each in going if each.state == "completed" and each.action in WRITES]
    others = [each for each in going if each.action != CLEAN and (each.state != "completed" or each.action not in WRITES)]

    def remove(instant: Instant) -> None:
        store.remove(f"{folder}/{instant.name}")

    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(remove, others))  # a write without these is still a completed one
        for instant in writes:
            remove(instant)
        list(pool.map(remove, [each for each in going if each.action == CLEAN]))
