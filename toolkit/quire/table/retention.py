"""Which slices a clean deletes: those that a later one has superseded, and that neither a pin nor a savepoint holds.

A slice is read by whoever reads the table as of an instant from its own up to that of the next slice of its file group, or of the commit
that replaced the group.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quire.errors import RefusedError
from quire.storage import Entry, Store
from quire.table import file_groups, timeline
from quire.table.file_groups import Slice
from quire.table.format import cleaning, names
from quire.table.format.names import BaseFile, LogFile
from quire.table.timeline import PARALLEL, Timeline

Key = tuple[str, str]  # partition and file group


@dataclass(frozen=True)
class Keep:
    """The slices that stay beside the newest: those that were read after the instant `since`, or so many `versions` of each file group."""

    since: str = ""
    versions: int = 0

    def goes(self, superseded: str, newer: int) -> bool:
        """Whether a slice may go that was superseded at an instant, and after which its file group had so many."""
        return newer >= self.versions if self.versions else superseded <= self.since


@dataclass(frozen=True)
class Dead:
    """The files that a clean deletes; `readable`: the first instant as of which the table can be read after it, but for what is held."""

    files: Mapping[Key, tuple[Entry, ...]]
    slices: int
    readable: str

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(entry.size for entries in self.files.values() for entry in entries)

    def by_partition(self) -> dict[str, list[str]]:
        """Partition → names of the files in it."""
        return cleaning.names_of(
            (partition, entry.name.rpartition("/")[2]) for (partition, _), entries in self.files.items() for entry in entries
        )


def dead(store: Store, line: Timeline, keep: Keep, held: Iterable[str], pinned: str = "") -> Dead:
    """The files that may be deleted, by one listing.

    The table has to stay readable as of each instant that is `held`, and from the instant `pinned` on ("": there is none). Versions from
    the oldest pin on may be pinned, too, so all of these stay.
    """
    held, files, count, readable = sorted(held), dict[Key, tuple[Entry, ...]](), 0, ""
    every = file_groups.everything(store, line)
    ended = line.ends(file_groups.logged(every.values()))  # a slice was read until then, where the timeline says it
    for key, there in every.items():
        gone = list[Entry]()
        slices = list(_slices(there, ended))
        ends = [instant for instant, _ in slices[1:]] + [line.replaced.get(key, "")]
        newer = len(slices) - 1 + bool(ends[-1])
        for number, ((begun, entries), end) in enumerate(zip(slices, ends, strict=True)):
            if not end or (pinned and end > pinned) or not keep.goes(ended.get(end, end), newer - number) or _holds(held, begun, end):
                continue
            gone += entries
            count, readable = count + 1, max(readable, end)
        if gone:
            files[key] = tuple(gone)
    return Dead(files, count, readable)


def _holds(held: Sequence[str], begun: str, end: str) -> bool:
    """Whether one of these instants, which are in order, is from `begun` on and before `end`."""
    first = bisect.bisect_left(held, begun)
    return first < len(held) and held[first] < end


def _slices(there: Sequence[tuple[BaseFile | LogFile, Entry]], ends: Mapping[str, str]) -> Iterable[tuple[str, list[Entry]]]:
    """The slices of a file group, the oldest first: a base file's instant, and its files. Logs before any base file are a slice, too.

    Logs of a compaction that is still to run belong to the slice before: it is read until that has completed. `ends`: when instants ended,
    by which a log that is called by its own belongs to a slice.
    """
    timed = [(_since(file, ends), entry) for file, entry in there]
    begun = sorted({file.instant for file, _ in there if isinstance(file, BaseFile)})
    if not begun or min(since for since, _ in timed) < begun[0]:
        begun = ["", *begun]
    found: dict[str, list[Entry]] = {instant: [] for instant in begun}
    for since, entry in timed:
        found[begun[bisect.bisect_right(begun, since) - 1]].append(entry)
    return found.items()


def _since(file: BaseFile | LogFile, ends: Mapping[str, str]) -> str:
    """The time by which a file belongs to a slice: its instant, or of a log when that ended, where the timeline says it."""
    return ends.get(file.instant, file.instant) if isinstance(file, LogFile) else file.instant


def changed_at(name: str) -> str:
    """The instant of a change file."""
    return name.removeprefix(f"{names.CHANGES}/").partition("/")[0]


def cleaned(store: Store, ended: Callable[[], Mapping[Key, str]]) -> Callable[[str], bool]:
    """Whether a data file is gone as cleans take files: a later slice, or what replaced its file group, is there; as of now.

    `ended`: file group → the write that has replaced it, also of those that have left the timeline.
    """
    there, line = {entry.name for entry in store.walk() if isinstance(entry, Entry)}, timeline.current(store)
    newest = {(one.partition, one.group): one.instant for one in file_groups.newest(store, line, logs=True)} | line.replaced
    ends, archived = line.ends(()), dict[Key, str]()
    with ThreadPoolExecutor(PARALLEL) as pool:
        readable = max((cleaning.retained(*plan)[0] for plan in pool.map(line.clean_of, sorted(line.cleans))), default="")

    def gone(name: str) -> bool:
        if name in there:
            return False
        if name.startswith(f"{names.CHANGES}/"):
            return changed_at(name) <= readable or changed_at(name) < line.first  # whose clean may be archived, too
        file = names.file(name.rpartition("/")[2].removesuffix(names.CDC))
        if file is None:
            return False
        key = name.rpartition("/")[0], file.file_id
        if key not in newest and line.archived and not archived:
            archived.update(ended())
        return _since(file, ends) < newest.get(key, archived.get(key, ""))

    return gone


def check_not_archived(line: Timeline, instant: str) -> None:
    """RefusedError where nobody can tell any more what was there at an instant, as older ones have left the timeline."""
    if line.archived and instant < line.first and instant not in line.savepoints:
        raise RefusedError(
            f"{line.store.url} cannot be read as of {instant} any more: instants before {line.first} are archived. It can from that one "
            "on. table.savepoint(instant) keeps one readable before it is archived."
        )


def check_whole(line: Timeline, slices: Iterable[Slice], instant: str) -> None:
    """RefusedError where a clean has deleted what the table needs as of an instant; `slices`: those that are found."""
    there = {(one.partition, one.group): one.instant for one in slices}
    later = sorted(clean for clean in line.cleans if clean > instant)
    with ThreadPoolExecutor(PARALLEL) as pool:
        plans = list(pool.map(line.clean_of, later))
    if not all(data for data, _ in plans):
        check_not_archived(timeline.read(line.store, line.folder), instant)  # since it was listed
    since = [cleaning.retained(*plan)[0] for plan in plans]
    gone = (
        (file.instant, clean, names.path(partition, file.name))
        for clean, first, plan in zip(later, since, plans, strict=True)
        for partition, files in cleaning.planned(*plan).items()
        for file in files
        if there.get(key := (partition, file.file_id), "") < file.instant <= instant
        and key not in line.replaced
        and not (line.archived and key not in there and "" < first <= instant)  # what replaced its group has left the timeline
    )
    needed, clean, name = max(gone, default=("", "", ""))  # older ones of its file group have gone before, by cleans that did not matter
    if needed:
        first = max(since)
        raise RefusedError(
            f"{line.store.url} cannot be read as of {instant} any more: the clean {clean} has deleted {name}, and more. "
            + (f"It can from {first} on. " if first else "")
            + "table.savepoint(instant) keeps one readable before it is cleaned."
        )
