"""Gathered files that have gone at their source: what a task has listed of its piece, against the ledger's rows for that piece.

Nothing is told of what was just not listed: what lies behind a link that is not followed, below a directory that cannot be read, in a
hidden one, or is not meant by the call. A file that is there and not taken (too young, say) is there. A task keeps 8 bytes of each name.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.coverage.fold import Fold, Source
from quire.planning.pieces import Piece
from quire.sources.files import Root, Selection
from quire.storage import Store

DELETED = pa.schema([("path", pa.string()), ("version", pa.string()), ("commit", pa.int64())])
HELD = 100_000  # names that are held as such
_LAST = "\U0010ffff"


class ListedNames:
    """The listing of a piece, whether it was wanted or not."""

    def __init__(self, root: Root, selection: Selection, piece: Piece) -> None:
        self.root, self.selection, self.piece = root, selection, piece
        self.blind = list[str]()  # what could not be listed, with all that lies below it
        self._folders = set[str]()  # below a piece without its directories: others list them
        self._names, self._hashes = list[str](), list[np.ndarray]()

    def file(self, name: str) -> None:
        """A file, by its name below the root."""
        self._names.append(name)
        if len(self._names) >= HELD:
            self._pack()

    def files(self, names: list[str]) -> None:
        """Several files."""
        for name in names:
            self.file(name)

    def folder(self, name: str) -> None:
        """A directory."""
        if not self.piece.below:
            self._folders.add(name)

    def _pack(self) -> None:
        self._hashes.append(_hashes(self._names))
        self._names.clear()

    def gone(self, fold: Fold, store: Store) -> Iterator[pa.Table]:
        """The files that the ledger has in this piece and that were not listed, as `DELETED` has them; one row a file."""
        self._pack()
        listed = np.unique(np.concatenate(self._hashes))
        self._hashes = [listed]
        prefix = len(self.root.url.rstrip("/")) + 1
        folder = f"{self.root.url.rstrip('/')}/{self.piece.folder}{'/' if self.piece.folder else ''}"
        first, last = folder + self.piece.after, folder + _end(self.piece.until)
        for source in fold.sources:
            if source.first > last or source.last < first or self._below_another(source, folder, prefix):
                continue
            rows = fold.of(source).rows(store, ["path", "version", "start", "state"], first, last)
            rows = rows.filter(pc.and_(pc.equal(rows.column("start"), 0), pc.equal(rows.column("state"), "done")))
            names = [path[prefix:] for path in rows.column("path").to_pylist()]
            missing = np.flatnonzero(~np.isin(_hashes(names), listed))
            found = [i for i in missing.tolist() if self._meant(names[i])]
            if found:
                yield rows.take(found).select(DELETED.names).cast(DELETED)

    def _below_another(self, source: Source, folder: str, prefix: int) -> bool:
        """Whether all of a segment's files lie below one directory that is there: then other pieces are about them, and it is not read."""
        if self.piece.below or not source.first.startswith(folder):
            return False
        top = folder + source.first[len(folder) :].partition("/")[0]
        return top[prefix:] in self._folders and source.last.startswith(f"{top}/")

    def _meant(self, name: str) -> bool:
        """Whether a file of that name would have been listed here, were it there."""
        inside = name[len(self.piece.folder) + 1 if self.piece.folder else 0 :]
        top, slash, _ = inside.partition("/")
        if top < self.piece.after or (self.piece.until and top >= self.piece.until):
            return False
        if slash and not self.piece.below and name[: len(name) - len(inside) + len(top)] in self._folders:
            return False
        if not all(map(self.selection.shows, name.split("/"))) or any(name == b or name.startswith(f"{b}/") or not b for b in self.blind):
            return False
        return self._everything or self.selection.chooser(self.root).match(name) is not None

    @property
    def _everything(self) -> bool:
        return self.root.wanted == ("",) and not self.selection.include and not self.selection.exclude


class Blind(ListedNames):
    """In the place of `ListedNames` where nobody asks what is gone."""

    def file(self, name: str) -> None:
        """Nothing is kept."""

    def files(self, names: list[str]) -> None:
        """Nothing is kept."""

    def folder(self, name: str) -> None:
        """Nothing is kept."""

    def gone(self, fold: Fold, store: Store) -> Iterator[pa.Table]:
        """Nothing is known."""
        yield from ()


def _end(until: str) -> str:
    """The last name whose first part comes before `until`: also below a directory that `until` begins with."""
    return max((until, *(until[:i] + "/" + _LAST for i in range(1, len(until))))) if until else _LAST


def _hashes(names: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], np.uint64)
