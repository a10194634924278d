"""The archived timeline of a table of version 8 or 9: when the instants that have left the timeline completed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from quire.errors import FormatError, NotFoundError, scrub
from quire.formats import parquet
from quire.storage import Entry, Store
from quire.table.format import lsm
from quire.table.format.lsm import HistoryFile

LOOKS = 3  # while another program archives, and takes files away that it has merged
REQUESTS = 16  # at once
T = TypeVar("T")


@dataclass(frozen=True)
class ArchivedTimeline:
    """The files of an archived timeline, and what they have of the time that is on the timeline, too.

    writes   instants of writes from the first one of the timeline on: a listing has missed these that ended while they were archived, or
             a savepoint holds an older one on the timeline
    """

    store: Store = field(repr=False)
    files: tuple[HistoryFile, ...] = ()
    writes: frozenset[str] = frozenset()

    def last(self) -> str:
        """When the last one of all archived writes ended; "": there is none. FormatError for a damaged file."""

        def find(files: Collection[HistoryFile]) -> str:
            return max((ended for _, ended in _rows(self.store, files)), default="")

        try:
            return find(self.files)
        except NotFoundError:
            return _looking(self.store, lambda: find(_files(self.store)))

    def ends(self, instants: Collection[str]) -> dict[str, str]:
        """Instant → when it completed, of those among some that are archived. FormatError for a damaged file."""

        def find(files: Collection[HistoryFile]) -> dict[str, str]:
            wanted = [file for file in files if any(file.first <= instant <= file.last for instant in instants)]
            return {time: ended for time, ended in _rows(self.store, wanted) if time in instants}

        try:
            return find(self.files)
        except NotFoundError:  # its rows have moved into another file since
            return _looking(self.store, lambda: find(_files(self.store)))


def look(store: Store, first: str) -> ArchivedTimeline:
    """The archived timeline as it is after a listing of the timeline, whose `first` completed write is given; "": it has none.

    Raises FormatError where it is damaged.
    """

    def find() -> ArchivedTimeline:
        files = _files(store)
        late = _rows(store, [file for file in files if first and file.last >= first])
        return ArchivedTimeline(store, files, frozenset(time for time, _ in late if time >= first))

    return _looking(store, find)


def _looking(store: Store, find: Callable[[], T]) -> T:
    lacking: NotFoundError | None = None
    for _ in range(LOOKS):
        try:
            return find()
        except NotFoundError as e:
            lacking = e
    raise FormatError(f"the archived timeline {store.url}/{lsm.FOLDER} lacks a file: {lacking} Restore it from a copy.") from lacking


def _files(store: Store) -> tuple[HistoryFile, ...]:
    try:
        number = lsm.number_in(store.get(lsm.VERSION))
    except NotFoundError:
        number = None
    if number is None:
        number = lsm.newest(entry.name for entry in store.walk(lsm.FOLDER) if isinstance(entry, Entry))
    return () if number is None else lsm.files(store.get(lsm.manifest(number)), f"{store.url}/{lsm.manifest(number)}")


def _rows(store: Store, files: Collection[HistoryFile]) -> list[tuple[str, str]]:
    """The writes in some files, and when they completed."""
    if not files:
        return []
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [row for rows in pool.map(lambda file: _read(store, file.name), files) for row in rows]


def _read(store: Store, name: str) -> list[tuple[str, str]]:
    try:
        return lsm.completed(parquet.open_file(store, name).read(lsm.COLUMNS))
    except parquet.DAMAGED as e:
        raise FormatError(f"{store.url}/{name} is damaged ({type(e).__name__}: {scrub(str(e), 200)}). Restore it from a copy.") from e
