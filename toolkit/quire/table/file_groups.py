"""The file groups of a table and their slices: which base file and logs hold the rows of a group at an instant.

Source: Hudi's `HoodieFileGroup` and file system view: a listing of the partitions, filtered by the timeline.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from quire.errors import FormatError
from quire.storage import Entry, Folder, Store, Trouble
from quire.storage.base import STATE, walked
from quire.table.format import names
from quire.table.format.names import FOLDER, BaseFile, LogFile
from quire.table.timeline import Holds, Timeline


@dataclass(frozen=True, order=True)
class Slice:
    """The base file of a file group at an instant, and the logs that change it; a slice of logs alone has no base file."""

    partition: str
    group: str
    instant: str
    name: str  # of the base file, below the table; "": there is none
    size: int
    logs: tuple[str, ...] = ()  # names below the table, in the order in which they count
    logged: int = 0  # bytes of the logs


def newest(store: Store, timeline: Timeline, *, logs: bool = False) -> list[Slice]:
    """The slice of each file group that is part of the table, in the order of partitions and groups; `logs`: with those that change it.

    Since a compaction was asked for, logs belong to the slice that it begins. Until it completes, they change the slice before.
    """
    replaced, compactions, holds = timeline.replaced, timeline.compactions(), timeline.holds()
    found, changing = dict[tuple[str, str], Slice](), dict[tuple[str, str], list[tuple[LogFile, Entry]]]()
    for folder, file, entry in files(store):
        key, instant = (folder, file.file_id), file.instant
        if key in replaced or not (holds(instant) or (instant in compactions and isinstance(file, LogFile))):
            continue
        if isinstance(file, LogFile):
            changing.setdefault(key, []).append((file, entry))
        elif key not in found or found[key].instant < instant:
            found[key] = Slice(*key, instant, entry.name, entry.size)
        elif found[key].instant == instant:
            raise _twice(store, found[key].name, entry.name)
    if not logs:
        return sorted(found.values())
    ends = timeline.ends({log.instant for logs in changing.values() for log, _ in logs})
    return sorted(_with_logs(key, found.get(key), changing.get(key, []), ends) for key in found.keys() | changing.keys())


def _with_logs(key: tuple[str, str], base: Slice | None, logs: list[tuple[LogFile, Entry]], ends: Mapping[str, str]) -> Slice:
    """A slice with the logs since its base file was begun; where a log names its own instant, those that completed since then."""
    since = base.instant if base else ""
    timed = [(ends.get(log.instant, log.instant), log, entry) for log, entry in logs]
    kept = sorted((one for one in timed if one[0] >= since), key=lambda one: (one[0], one[1].number, one[1].token))
    logs = [(log, entry) for _, log, entry in kept]
    own = base or Slice(*key, logs[0][0].instant, "", 0)
    return replace(own, logs=tuple(entry.name for _, entry in logs), logged=sum(entry.size for _, entry in logs))


@dataclass(frozen=True)
class Place:
    """The place of the next log file of a file group: the instant of its name, and its number among those of this instant.

    planned   a compaction has been asked for that will rewrite the file group
    """

    begun: str
    number: int
    planned: bool = False


def places(slices: Iterable[Slice], compacting: Mapping[tuple[str, str], str], own: str = "") -> dict[tuple[str, str], Place]:
    """(partition, file group) → where its next log file goes. `compacting`: the slices that compactions begin which have been asked for.

    `own`: the instant of the write, by which logs are called where the timeline says when it ends; else they are by that of their slice.
    """
    found = dict[tuple[str, str], Place]()
    for one in slices:
        key = one.partition, one.group
        begun = own or compacting.get(key, one.instant)
        logs = (names.log_file(name.rpartition("/")[2]) for name in one.logs)
        number = max((log.number for log in logs if log and log.instant == begun), default=0) + 1
        found[key] = Place(begun, number, key in compacting)
    return found


def everything(store: Store, timeline: Timeline) -> dict[tuple[str, str], list[tuple[BaseFile | LogFile, Entry]]]:
    """(partition, file group) → its base files and logs that are part of the table, or were, in any order; no file of a pending write."""
    found, holds, compactions = dict[tuple[str, str], list[tuple[BaseFile | LogFile, Entry]]](), timeline.holds(), timeline.compactions()
    for folder, file, entry in files(store):
        if holds(file.instant) or (isinstance(file, LogFile) and file.instant in compactions):
            found.setdefault((folder, file.file_id), []).append((file, entry))
    return found


def history(store: Store, timeline: Timeline) -> dict[tuple[str, str], list[Slice]]:
    """(partition, file group) → its base files that are still there, the oldest first; also those of groups that were replaced."""
    found, holds = dict[tuple[str, str], list[Slice]](), timeline.holds()
    for folder, file, entry in files(store):
        if isinstance(file, BaseFile) and holds(file.instant):
            found.setdefault((folder, file.file_id), []).append(Slice(folder, file.file_id, file.instant, entry.name, entry.size))
    return {key: sorted(slices) for key, slices in found.items()}


def logged(there: Iterable[Iterable[tuple[BaseFile | LogFile, Entry]]]) -> set[str]:
    """The instants that the names of the logs among some files give."""
    return {file.instant for files in there for file, _ in files if isinstance(file, LogFile)}


def instants_of_logs(slices: Iterable[Slice]) -> set[str]:
    """The instants that the names of the logs of some slices give."""
    logs = (names.log_file(name.rpartition("/")[2]) for one in slices for name in one.logs)
    return {log.instant for log in logs if log}


def slice_at(
    key: tuple[str, str], there: Iterable[tuple[BaseFile | LogFile, Entry]], holds: Holds, compactions: Collection[str],
    ends: Mapping[str, str],
) -> Slice | None:  # fmt: skip
    """The slice of a file group as of the last instant that `holds` lets count, among all its files; None: it has none."""
    base, logs = None, list[tuple[LogFile, Entry]]()
    for file, entry in there:
        if isinstance(file, LogFile):
            if holds(file.instant) or (file.instant in compactions and file.instant <= holds.until):
                logs.append((file, entry))
        elif holds(file.instant) and (base is None or base.instant < file.instant):
            base = Slice(*key, file.instant, entry.name, entry.size)
    return _with_logs(key, base, logs, ends) if base or logs else None


def files(store: Store) -> Iterator[tuple[str, BaseFile | LogFile, Entry]]:
    """All base and log files with their partitions, in any order."""
    for entry in in_partitions(store):
        folder, _, last = entry.name.rpartition("/")
        file = None if entry.name.startswith(f"{FOLDER}/") else names.file(last)
        if file is not None:
            yield folder, file, entry


def cdc_logs(store: Store, of: Iterable[str]) -> list[str]:
    """The CDC logs that lie beside some files."""
    return names.cdc_logs((entry.name for entry in in_partitions(store)), of)


def in_partitions(store: Store) -> Iterator[Entry]:
    """All files, but not a timeline, which may have very many, where a store lists each directory by itself."""
    if not store.can_rename:  # a store of objects: all of them in one listing are fewer requests
        return store.walk()

    def scan(folder: str) -> Iterator[Entry | Folder | Trouble]:
        return (item for item in store.scan(folder) if not isinstance(item, Folder) or item.name not in (FOLDER, STATE))

    return walked(scan, "", lambda name: f"{store.url}/{name}")


def _twice(store: Store, one: str, other: str) -> FormatError:
    return FormatError(
        f"{store.url}/{one} and {other} are of one file group and instant: an attempt that did not count has left one of them. Delete "
        f"the one that the commit does not name."
    )
