"""The first files of a source in the order of their names: what a call looks at before it plans."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from quire.coverage.antijoin import remaining
from quire.planning.among import Among
from quire.planning.deleted import Blind, ListedNames
from quire.planning.listing import Listed, Listing, _chunks, _entries, _shown, _table, _taker
from quire.planning.pieces import Piece
from quire.sources.files import Root, Selection
from quire.storage import Entry, Folder, connect

LOOKS = 100_000  # files that are looked at for a new one
TOGETHER = 32  # files that are looked up at once, where names are given
EMPTY_FOLDERS = 10_000  # that are looked at before it is given up


def first_files(roots: tuple[Root, ...], selection: Selection, most: int) -> Iterator[tuple[Root, Entry]]:
    """At most so many wanted files that are not empty: the same ones as long as the source does not change."""
    looks = 0
    for root in roots:
        store, takes, seen = root.store(), _taker(root, selection, Listed()), ListedNames(root, selection, Piece(0, "", below=True))
        waiting = [""]
        while waiting and most > 0 and looks < EMPTY_FOLDERS:
            looks += 1
            here, folders = waiting.pop(), list[str]()
            found = heapq.nsmallest(most, _files(_noting(_shown(store, selection, here, "", "", seen, Listed()), folders), takes))
            for entry in found:
                yield root, entry
            most -= len(found)
            waiting += sorted(folders, reverse=True)


def some_files(roots: tuple[Root, ...], selection: Selection, most: int) -> Iterator[tuple[Root, Entry]]:
    """At most so many wanted files, as the source lists them, directory by directory."""
    for root in roots:
        store, takes, seen = root.store(), _taker(root, selection, Listed()), ListedNames(root, selection, Piece(0, "", below=True))
        waiting = [""]
        while waiting and most > 0:
            here, folders = waiting.pop(), list[str]()
            for item in _noting(_shown(store, selection, here, "", "", seen, Listed()), folders):
                if isinstance(item, Entry) and (takes is None or takes(item)):
                    yield root, item
                    if (most := most - 1) <= 0:
                        return
            waiting += sorted(folders, reverse=True)


def new_files(listing: Listing, most: int, among: Among | None = None) -> Iterator[tuple[Root, Entry]]:
    """At most so many wanted files that are not empty, and that the ledger does not cover; none where they come late in a large source.

    `among`: of those that a run looks at.
    """
    looks, store = 0, connect(listing.dest, listing.dest_options)
    every = [Piece(number, "", below=True) for number, _ in enumerate(listing.roots)]
    for piece in every if among is None else among.pieces(TOGETHER):
        root = listing.roots[piece.root]
        for files in _chunks(listing, piece, Listed(), Blind(root, listing.selection, piece)):
            left = set(remaining(_table(root.url, files), listing.fold, store).files.column("path").to_pylist())
            for entry in _entries(files):
                if most > 0 and entry.size and f"{root.url.rstrip('/')}/{entry.name}" in left:
                    most -= 1
                    yield root, entry
            looks += files.num_rows
            if most <= 0 or looks >= LOOKS:
                return


def _noting(shown: Iterator[object], folders: list[str]) -> Iterator[object]:
    for item in shown:
        if isinstance(item, Folder) and len(folders) < EMPTY_FOLDERS:
            folders.append(item.name)
        yield item


def _files(shown: Iterator[object], takes: object) -> Iterator[Entry]:
    for item in shown:
        if isinstance(item, Entry) and item.size and (takes is None or takes(item)):  # type: ignore[operator]
            yield item
