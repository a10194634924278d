"""Cuts a tree into pieces for the tasks: directories first, large directories in slices, so that the driver never holds a file's name.

The driver looks at the upper directories (names only, no sizes) until there is work for everybody. Where a store lists in order and
begins anywhere, it looks at the first names of a directory alone, at several directories at once, and lets `cuts` say where to cut: the
first piece is worked on after seconds, however many names there are.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import itemgetter
from typing import NamedTuple

import xxhash

from quire.errors import StorageError
from quire.planning.cuts import cuts
from quire.sources.files import Root, Selection
from quire.storage import Entry, OnRetry, Seeking, Store, silent
from quire.storage.slices import plain

ENOUGH_NAMES = 300_000  # that the driver looks at before it lets the tasks do the rest
SLICE = 50_000  # files of one directory listed by one task, if there are tasks enough
LARGEST_SLICE = 500_000
FOLDERS = 10_000  # of more directories in one, the driver holds no list: they are sliced as files are
GLANCE = 5_000  # first names of a directory, where a look at all of them can be spared
SLICES = 512  # of a directory whose names nobody has counted
LOOKING, ASKING = 8, 24  # directories and single questions at once, where they are little but waiting


@dataclass(frozen=True)
class Piece:
    """A part of the tree that one task lists: a directory with or without what lies below, a slice of its names, or some files by name."""

    root: int
    folder: str
    below: bool = False
    after: str = ""
    until: str = ""
    names: tuple[str, ...] = ()  # of files below the root, which alone are looked at (see `among`)
    seen: tuple[tuple[str, Entry | None], ...] = ()  # what a look at some of them has found, which will do


class _Seen(NamedTuple):
    """The result of a look at a directory."""

    files: int = 0
    folders: Sequence[str] = ()
    sample: Sequence[tuple[int, str]] = ()  # (rank, name)
    cuts: Sequence[str] | None = None  # of a directory that was not looked at to its end


# A directory that could not be looked at, all of it: the task that lists it says what is wrong, or finds that nothing is any more.
_LEFT = _Seen(cuts=())


def pieces(
    roots: tuple[Root, ...], selection: Selection, parallelism: int, on_retry: OnRetry = silent, *, every: bool = False
) -> Iterator[Piece]:  # fmt: skip
    """Cut the trees into pieces, breadth first; what is not looked at any more is a piece with all that lies below it.

    `every`: also directories in which no file is, for who wants to know what has gone.
    """
    names = 0
    enough = max(32, 16 * parallelism)
    for index, root in enumerate(roots):
        waiting, found = deque([""]), 0
        with _Looks(root.store(on_retry), selection, parallelism) as looks:
            while waiting:
                folder = waiting.popleft()
                if folder and (names >= ENOUGH_NAMES or found + len(waiting) >= enough):
                    yield Piece(index, folder, below=True)
                    continue
                seen = looks.at(folder, waiting)
                names += seen.files + len(seen.folders)
                many = len(seen.folders) > FOLDERS
                waiting += [] if many else seen.folders
                if seen.cuts is not None:
                    found += 1
                    for after, until in pairwise(("", *seen.cuts, "")):
                        yield Piece(index, folder, True, after, until)
                elif seen.files or many or every:
                    found += 1
                    yield from _slices(index, folder, seen.files + len(seen.folders), seen.sample, parallelism, below=many)


class _Looks:
    """Looks at directories; where a store begins anywhere, at their first names, and at some of those that wait, too."""

    def __init__(self, store: Store, selection: Selection, parallelism: int) -> None:
        self.store, self.selection = store, selection
        self.wanted = min(8 * parallelism, SLICES)
        self.looking, self.asking = ThreadPoolExecutor(LOOKING, "quire-look"), ThreadPoolExecutor(ASKING, "quire-ask")
        self.begun = dict[str, Future[_Seen]]()

    def __enter__(self) -> _Looks:
        return self

    def __exit__(self, *_: object) -> None:
        self.looking.shutdown(wait=True, cancel_futures=True)
        self.asking.shutdown(wait=True, cancel_futures=True)

    def at(self, folder: str, waiting: deque[str]) -> _Seen:
        """The entries of a directory; `waiting` are those that will be asked for next."""
        if not isinstance(self.store, Seeking):
            return _look(self.store, folder, self.selection, root_folder=not folder)
        for one in (folder, *islice(waiting, LOOKING - 1)):
            if one not in self.begun:
                # The slices that are wanted are shared among the directories that are there: of many, each is a piece.
                wanted = self.wanted // (1 + len(waiting))
                self.begun[one] = self.looking.submit(self._glance, self.store, one, wanted)
        return self.begun.pop(folder).result()

    def _glance(self, store: Seeking, folder: str, wanted: int) -> _Seen:
        """Look at the first names, and cut where there are more; look at all of them if the service does not begin where it is asked to."""
        try:
            found = store.first(folder, "", GLANCE)
            if found is not None and len(found) < GLANCE:
                return _seen(folder, self.selection, found)
            if found is not None and wanted < 2:
                return _Seen(cuts=())
            if found is not None and _begins(store, folder, found):
                known = [name for name, _ in found if name != "."]
                return _Seen(cuts=cuts(lambda after, most: _names(store, folder, after, most), known, wanted, self.asking))
        except StorageError:
            if not folder:
                raise
            return _LEFT
        return _look(self.store, folder, self.selection, root_folder=not folder)


def _names(store: Seeking, folder: str, after: str, most: int) -> list[str]:
    return [name for name, _ in store.first(folder, after, most) or () if name != "."]  # which stands for what no path can say


def _begins(store: Seeking, folder: str, found: list[tuple[str, bool]]) -> bool:
    """Whether the service begins where it is asked to: at a name that is there, which it must give then."""
    half = sorted(found[len(found) // 2 :], key=itemgetter(1))  # files first: what stands before a directory is less certain
    middle = [name for name, _ in half if plain(name) and name != "."]
    return bool(middle) and _names(store, folder, middle[0], 1) == middle[:1]


def _look(store: Store, folder: str, selection: Selection, root_folder: bool) -> _Seen:
    """Look at all names of a directory."""
    try:
        return _seen(folder, selection, store.peek(folder, follow=selection.links))
    except StorageError:
        if root_folder:
            raise
        return _LEFT


def _seen(folder: str, selection: Selection, found: Iterable[tuple[str, bool]]) -> _Seen:
    """Count a directory's files and name its directories; of the files' names keep those with the smallest hashes, as a sample."""
    files, folders = 0, set[str]()
    sample: list[tuple[int, str]] = []
    for name, is_folder in found:
        if is_folder:
            # Of more than FOLDERS nobody asks for the names; they count as files do, for the slices.
            if selection.shows(name) and len(folders) <= FOLDERS:
                folders.add(f"{folder}/{name}" if folder else name)
            elif selection.shows(name):
                files += 1
        else:
            files += 1
        rank = -xxhash.xxh3_64_intdigest(name.encode())
        if len(sample) < 512:
            heapq.heappush(sample, (rank, name))
        elif rank > sample[0][0]:
            heapq.heapreplace(sample, (rank, name))
    return _Seen(files, sorted(folders), sample)


def _slices(index: int, folder: str, count: int, sample: Sequence[tuple[int, str]], parallelism: int, below: bool) -> Iterator[Piece]:
    n = max(1, min(-(-count // (SLICE if not below else 100)), parallelism * (8 if below else 1)), -(-count // LARGEST_SLICE))
    ordered = sorted(name for _, name in sample)
    bounds = [ordered[len(ordered) * i // n] for i in range(1, n)] if len(ordered) >= n else []
    for after, until in pairwise(("", *bounds, "")):
        yield Piece(index, folder, below, after, until)


def ranges(store: Store, folder: str, selection: Selection) -> list[tuple[str, str]]:
    """The ranges of names in which one task lists a directory that the driver has not looked at."""
    with suppress(StorageError):  # listing it tells the reason
        if next(islice(store.peek(folder, follow=selection.links), LARGEST_SLICE, None), None) is not None:
            seen = _look(store, folder, selection, root_folder=False)
            return [(p.after, p.until) for p in _slices(0, folder, seen.files, seen.sample, 1, below=False)]
    return [("", "")]  # nearly always: counting its names is sooner done than taking a sample of them
