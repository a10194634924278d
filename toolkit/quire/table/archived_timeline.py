"""The archived timeline of a table of version 8 or 9: when the instants that have left the timeline completed, and how more come to it.

An object in it is put if absent, each manifest has all instants of the one before it, and the newest counts. See docs/protocol.md, section
10.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from quire.errors import FormatError, NotFoundError, scrub
from quire.formats import parquet
from quire.storage import Entry, Store
from quire.table.format import lsm
from quire.table.format.lsm import HistoryFile

if TYPE_CHECKING:
    import pyarrow as pa

LOOKS = 3  # while another program archives, and takes files away that it has merged
REQUESTS = 16  # at once
BATCH = 10  # files of a layer that become one of the next, as Hudi has it,
LARGE = 32 << 20  # if they have no more bytes together
KEPT = 3  # manifests, and horizons, that stay for readers that have looked at them
T = TypeVar("T")


@dataclass(frozen=True)
class ArchivedTimeline:
    """The files of an archived timeline, and what they have of the time that is on the timeline, too.

    writes   instants of writes from the first one of the timeline on: a listing has missed these that ended while they were archived, or
             a savepoint holds an older one on the timeline
    horizon  quire has archived all instants before it,
    ended    of which the last ended then
    """

    store: Store = field(repr=False)
    files: tuple[HistoryFile, ...] = ()
    writes: frozenset[str] = frozenset()
    horizon: str = ""
    ended: str = ""

    def last(self) -> str:
        """When the last one of all archived writes ended; "": there is none. FormatError for a damaged file."""

        def find(files: Collection[HistoryFile]) -> str:
            others = [file for file in files if file.last >= self.horizon]  # of what was before it `ended` says it
            return max([self.ended, *(ended for _, ended in _rows(self.store, others))])

        try:
            return find(self.files)
        except NotFoundError:
            return _looking(self.store, lambda: find(_files(self.store, _listed(self.store))))

    def ends(self, instants: Collection[str]) -> dict[str, str]:
        """Instant → when it completed, of those among some that are archived. FormatError for a damaged file."""

        def find(files: Collection[HistoryFile]) -> dict[str, str]:
            wanted = [file for file in files if any(file.first <= instant <= file.last for instant in instants)]
            return {time: ended for time, ended in _rows(self.store, wanted) if time in instants}

        try:
            return find(self.files)
        except NotFoundError:  # its rows have moved into another file since
            return _looking(self.store, lambda: find(_files(self.store, _listed(self.store))))


def look(store: Store, writes: Collection[str]) -> ArchivedTimeline:
    """The archived timeline as it is after a listing of the timeline, whose completed writes are given.

    Raises FormatError where it is damaged.
    """

    def find() -> ArchivedTimeline:
        there = _listed(store)
        horizon, ended = _horizon(there)
        first = min((time for time in writes if time >= horizon), default="")
        files = _files(store, there)
        late = _rows(store, [file for file in files if first and file.last >= first])
        return ArchivedTimeline(store, files, frozenset(time for time, _ in late if time >= first), horizon, ended)

    return _looking(store, find)


def _looking(store: Store, find: Callable[[], T]) -> T:
    lacking: NotFoundError | None = None
    for _ in range(LOOKS):
        try:
            return find()
        except NotFoundError as e:
            lacking = e
    raise FormatError(f"the archived timeline {store.url}/{lsm.FOLDER} lacks a file: {lacking} Restore it from a copy.") from lacking


def _listed(store: Store) -> list[str]:
    return [entry.name for entry in store.walk(lsm.FOLDER) if isinstance(entry, Entry)]


def _horizon(there: Sequence[str]) -> tuple[str, str]:
    return max(lsm.horizons(there), default=("", ""))


def _files(store: Store, there: Sequence[str]) -> tuple[HistoryFile, ...]:
    """The files that count, as readers see it."""
    number = None
    if lsm.VERSION in there:
        try:
            number = lsm.number_in(store.get(lsm.VERSION))
        except NotFoundError:
            number = None
    if number is None:
        number = max(lsm.numbers(there), default=0)
    return _named(store, number)


def _named(store: Store, number: int) -> tuple[HistoryFile, ...]:
    return lsm.files(store.get(lsm.manifest(number)), f"{store.url}/{lsm.manifest(number)}") if number else ()


def _rows(store: Store, files: Collection[HistoryFile]) -> list[tuple[str, str]]:
    """The writes in some files, and when they completed."""
    if not files:
        return []
    with ThreadPoolExecutor(REQUESTS) as pool:
        return [row for rows in pool.map(lambda file: _read(store, file.name), files) for row in rows]


def _read(store: Store, name: str) -> list[tuple[str, str]]:
    return _opened(store, name, lsm.COLUMNS, lsm.completed)


def _opened(store: Store, name: str, columns: list[str], made: Callable[[pa.Table], T]) -> T:
    """Columns of a file, and something made of them; FormatError where it is damaged."""
    try:
        return made(parquet.open_file(store, name).read(columns))
    except parquet.DAMAGED as e:
        raise FormatError(f"{store.url}/{name} is damaged ({type(e).__name__}: {scrub(str(e), 200)}). Restore it from a copy.") from e


# ------------------------------------------------------------------------------------------------------------------------ writing
def newest(store: Store) -> tuple[int, tuple[HistoryFile, ...]]:
    """The number of the newest manifest, and what it names, as writers see it: whatever `_version_` says. 0: there is none."""

    def find() -> tuple[int, tuple[HistoryFile, ...]]:
        number = max(lsm.numbers(_listed(store)), default=0)
        while store.stat(lsm.manifest(number + 1)) is not None:  # a listing may be an old one
            number += 1
        return number, _named(store, number)

    return _looking(store, find)


def add(store: Store, horizon: str, content: bytes, where: str) -> None:
    """Let the instants in a file be archived, before they leave the timeline; anybody may, again and again.

    A call that has slept finds that there is this horizon, or a later one, or that the newest manifest has its instants: also where their
    file was merged, and is gone. Nobody reads the objects that it has put by then. Readers list the manifests where `_version_` is not
    there; what it says would go back where a sleeper puts it, so it is deleted, and writers on the JVM put it again.
    """
    if _horizon(_listed(store))[0] >= horizon:
        return
    file, instants, ended = lsm.file_of(content, where)
    while True:
        number, there = newest(store)
        if file.name in {each.name for each in there} or instants <= _looking(store, lambda: _near(store, file)):
            break
        if not store.put_if_absent(file.name, content) and store.get(file.name) != content:
            store.put(file.name, content)  # no manifest names it: a program that died has left a part of it
        store.put_if_absent(lsm.manifest(number + 1), lsm.manifest_of([*there, file]))
    store.remove(lsm.VERSION)  # also where the one who has put the manifest has died since
    store.put_if_absent(lsm.horizon_name(horizon, ended), b"")


def _near(store: Store, file: HistoryFile) -> set[tuple[str, str]]:
    """The instants, with their actions, in files that may have some of another one's, as into these it may have been merged."""
    found = set[tuple[str, str]]()
    for each in newest(store)[1]:
        if each.first <= file.last and file.first <= each.last:
            found |= _opened(store, each.name, [lsm.INSTANT, lsm.ACTION], lsm.instants)
    return found


def keep_small(store: Store) -> None:
    """Merge files of a layer into one of the next, and delete what no reader looks at; anybody may, again and again.

    A file goes that no manifest names but those which go with it; one that was put, and is not named yet, stays.
    """
    layer = 0
    while _merge(store, layer):
        while _merge(store, layer):
            pass
        layer += 1
    there = _listed(store)
    numbers = lsm.numbers(there)
    kept = {file.name for number in numbers[-KEPT:] for file in _named(store, number)}
    if numbers[:-KEPT]:
        store.remove(lsm.VERSION)  # which a call that has died may have left behind the newest one
    for number in numbers[:-KEPT]:
        for file in _named(store, number):
            if file.name not in kept:
                store.remove(file.name)
        store.remove(lsm.manifest(number))
    for horizon in lsm.horizons(there)[:-KEPT]:
        store.remove(lsm.horizon_name(*horizon))


def _merge(store: Store, layer: int) -> bool:
    """Merge the oldest files of a layer; False: they are few, or large."""
    number, there = newest(store)
    of = sorted(file for file in there if file.layer == layer)[:BATCH]
    if len(of) < BATCH or layer + 1 >= lsm.LAYERS or sum(file.size for file in of) > LARGE:
        return False
    content = lsm.merged((store.get(file.name) for file in of), f"{store.url}/{lsm.manifest(number)}")
    file = HistoryFile(min(each.first for each in of), max(each.last for each in of), layer + 1, len(content))
    if not store.put_if_absent(file.name, content):
        store.put(file.name, content)  # no manifest names it, as its files are still there
    store.put_if_absent(lsm.manifest(number + 1), lsm.manifest_of([*(each for each in there if each not in of), file]))
    store.remove(lsm.VERSION)
    return True
