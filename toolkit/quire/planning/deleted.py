"""Gathered files that have gone at their source: what a task has listed of its piece, against the ledger's rows for that piece.

Nothing is told of what was just not listed: what lies behind a link that is not followed, below a directory that cannot be read, in a
hidden one, or is not meant by the call. A file that is there and not taken (too young, say) is there. A task keeps 8 bytes of each name.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Hashable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.coverage import segments
from quire.coverage.fold import Fold, Source, after
from quire.coverage.uncovered import Uncovered
from quire.planning import stretches
from quire.planning.pieces import Piece
from quire.planning.stretches import Gone, Spans, Stretch
from quire.sources.files import Root, Selection
from quire.storage import Store
from quire.storage.once import once

DELETED = pa.schema([("path", pa.string()), ("version", pa.string()), ("commit", pa.int64())])
COUNTED = ["path", "start", "state"]
HELD, RANGE = 100_000, 1_000  # names that are held as such; of these, how many are one range
NARROW = 10 * segments.ROW_GROUP  # rows of a piece of which not all are asked for
PART, FEW = 1_000, 20  # files in a part of a stretch; names that are remembered of one


class ListedNames:
    """The listing of a piece, whether it was wanted or not."""

    def __init__(self, root: Root, selection: Selection, piece: Piece) -> None:
        self.root, self.selection, self.piece = root, selection, piece
        self.blind = list[str]()  # what could not be listed, with all that lies below it
        self._folders = set[str]()  # below a piece without its directories: others list them
        self._names, self._hashes = list[str](), list[np.ndarray]()
        self._looked_at: tuple[str | None, bool] = (None, False)  # the last directory, and whether its files are meant
        self._ranges = list[tuple[str, str]]()  # of names that were listed, some of them in each

    def file(self, name: str) -> None:
        """A file, by its name below the root."""
        self._names.append(name)
        if len(self._names) >= HELD:
            self._pack()

    def files(self, names: list[str]) -> None:
        """Several files."""
        self._names.extend(names)
        if len(self._names) >= HELD:
            self._pack()

    def folder(self, name: str) -> None:
        """A directory."""
        if not self.piece.below:
            self._folders.add(name)

    def _pack(self) -> None:
        self._hashes.append(_hashes(self._names))
        self._names.sort()
        self._ranges += [(some[0], some[-1]) for i in range(0, len(self._names), RANGE) if (some := self._names[i : i + RANGE])]
        self._names.clear()

    @once
    def _listed(self) -> np.ndarray:
        """The hashes of all names, in order."""
        return np.unique(np.concatenate(self._hashes))

    def gone(self, fold: Fold, store: Store) -> Iterator[pa.Table]:
        """The files that the ledger has in this piece and that were not listed, as `DELETED` has them; one row a file."""
        self._pack()
        for source, first, last in self._sources(fold):
            rows = _whole(fold.of(source).rows(store, ["path", "version", "start", "state"], first, last))
            if found := self._missing(rows.column("path").to_pylist()):
                yield rows.take(found).select(DELETED.names).cast(DELETED)

    def tally(self, fold: Fold, store: Store, most: int) -> Iterator[tuple[int, list[str]]]:
        """How many files have gone, and the paths of some of them; each number and some `most` paths at a time."""
        self._pack()
        busy = Spans(self._spans()), stretches.said_later(fold)
        moved = np.unique(_hashes(list(fold.removed)))
        for source, first, last in self._sources(fold):
            if not stretches.lasts(fold, source):
                paths = _whole(fold.of(source).rows(store, COUNTED, first, last)).column("path").to_pylist()
                missing = self._missing(paths)
                yield len(missing), [paths[at] for at in missing[:most]]
                continue
            unknown = list[tuple[Stretch, bool]]()
            for stretch in stretches.cut(store, source, first, last):
                for each in [stretch] if self._still(stretch, *busy) else self._memory(store, source, stretch).parts or [stretch]:
                    if self._others.hold(each):
                        continue
                    known = self._memory(store, source, each).gone if (still := self._still(each, *busy)) else None
                    if known and np.array_equal(moved[_there(known.data_files, moved)], known.moved):
                        yield known.files, list(known.examples[:most])
                    else:
                        unknown.append((each, still))
            for still, some in _together(unknown):
                yield from self._looked_through(fold, store, source, some, most, still=still)

    @staticmethod
    def _still(stretch: Stretch, *busy: Spans) -> bool:
        """Whether nothing is listed in a stretch, and nothing said of it."""
        return not any(spans.meet(stretch) for spans in busy)

    def _looked_through(
        self, fold: Fold, store: Store, source: Source, some: list[Stretch], most: int, *, still: bool
    ) -> Iterator[tuple[int, list[str]]]:
        """The files that have gone from stretches that follow one another."""
        of, columns = fold.of(source), COUNTED
        if still:  # what has moved to other data files is taken out by the stretch
            of, columns = replace(of, removed={}, uncovered=Uncovered(), said=()), [*COUNTED, "data_file"]
        rows = of.rows(store, columns, some[0].first, some[-1].end, narrow=source.rows > NARROW)
        rows = _whole(rows.filter(pc.less(rows.column("path"), some[-1].end)))
        paths = rows.column("path").to_pylist()
        ends = [0, *(bisect_left(paths, stretch.end) for stretch in some)]  # they come in order
        if still:
            for i, stretch in enumerate(some):
                yield self._remembered(fold, store, source, stretch, rows.slice(ends[i], ends[i + 1] - ends[i]), most)
            return
        missing = self._missing(paths)
        for i, stretch in enumerate(some):
            if bisect_left(missing, ends[i + 1]) - bisect_left(missing, ends[i]) > PART or self._others.meet(stretch):
                self._memory(store, source, stretch).parts = stretches.divided(stretch, paths[ends[i] : ends[i + 1] : PART])
        yield len(missing), [paths[at] for at in missing[:most]]

    def _remembered(self, fold: Fold, store: Store, source: Source, stretch: Stretch, rows: pa.Table, most: int) -> tuple[int, list[str]]:
        """The files of a stretch in which nothing is listed, for the next runs, too, until more rows move to other data files."""
        files = frozenset(file for file in pc.unique(rows.column("data_file")).to_pylist() if file)
        if moved := [file for file in files if file in fold.removed]:
            rows = rows.filter(pc.invert(pc.is_in(rows.column("data_file"), pa.array(moved, pa.string()))))
        alike = stretches.ALIKE.of(store.url, "", (stretches.fingerprint(rows.column("path")), *self._asked))
        if alike.meant is None:
            paths = [path for path in rows.column("path").to_pylist() if self._meant(path[self._prefix :])]
            alike.meant = len(paths), tuple(paths[:FEW])
        n, some = alike.meant
        known = Gone(n, some, np.unique(_hashes(list(files))), np.unique(_hashes(moved)))
        self._memory(store, source, stretch).gone = known
        return n, list(some[:most])

    def _memory(self, store: Store, source: Source, stretch: Stretch) -> stretches.Memory:
        return stretches.MEMORY.of(store.url, source.segment, (stretch, *self._asked), source.content)

    @property
    def _asked(self) -> tuple[Hashable, ...]:
        """Which files are asked for, as far as that does not go by what was listed."""
        root, chosen, piece = self.root, self.selection, self.piece
        meant = (root.url, root.wanted, chosen.include, chosen.exclude, chosen.hidden)
        return meant, (piece.folder, piece.below, piece.after, piece.until)

    def _sources(self, fold: Fold) -> Iterator[tuple[Source, str, str]]:
        """The sources that may have files of this piece, and the first and the last path that these may have."""
        folder = f"{self.root.url.rstrip('/')}/{self.piece.folder}{'/' if self.piece.folder else ''}"
        first, last = folder + self.piece.after, folder + _end(self.piece.until) if self.piece.until else after(folder)
        for source in fold.sources:
            if not (source.first > last or source.last < first or self._below_another(source, folder, self._prefix)):
                yield source, first, last

    def _spans(self) -> Iterator[tuple[str, str]]:
        """The ranges of paths of which anything was listed, or of which nobody knows."""
        url = self.root.url.rstrip("/")
        yield from ((f"{url}/{first}", f"{url}/{last}") for first, last in self._ranges)
        yield from (stretches.below(f"{url}/{name}" if name else url) for name in (*self._folders, *self.blind))

    @once
    def _others(self) -> Spans:
        """The ranges of paths below directories that are there, of which other pieces tell."""
        below = (f"{self.root.url.rstrip('/')}/{name}/" for name in self._folders)
        return Spans((folder, after(folder)) for folder in below)

    @once
    def _prefix(self) -> int:
        return len(self.root.url.rstrip("/")) + 1

    def _missing(self, paths: list[str]) -> list[int]:
        """Which of some gathered files would have been listed, were they there; by their places."""
        there = _there(self._listed, _hashes([path[self._prefix :] for path in paths]))
        return [at for at in np.flatnonzero(~there).tolist() if self._meant(paths[at][self._prefix :])]

    def _below_another(self, source: Source, folder: str, prefix: int) -> bool:
        """Whether all of a segment's files lie below one directory that is there: then other pieces are about them, and it is not read."""
        if self.piece.below or not source.first.startswith(folder):
            return False
        top = folder + source.first[len(folder) :].partition("/")[0]
        return top[prefix:] in self._folders and source.last.startswith(f"{top}/")

    def _meant(self, name: str) -> bool:
        """Whether a file of that name would have been listed here, were it there. Names come in order, so those of a directory together."""
        leaf = name.rpartition("/")[2]
        folder = name[: len(name) - len(leaf)]
        if folder != self._looked_at[0]:
            self._looked_at = folder, self._goes_into(folder)
        if not self._looked_at[1] or not name or not self.selection.shows(leaf) or name in self.blind:
            return False
        if folder == self._own and not self._between(leaf):
            return False
        return self._everything or self._chooser.match(name) is not None

    def _goes_into(self, folder: str) -> bool:
        """Whether the files of a directory, whose name ends with a slash, would have been listed here."""
        own = self._own
        if folder != own:
            top = folder[len(own) :].partition("/")[0]
            # What does not begin so lies beside the directory, where a range of its paths ends.
            if not folder.startswith(own) or not self._between(top) or (not self.piece.below and own + top in self._folders):
                return False
        return all(map(self.selection.shows, folder.split("/")[:-1])) and not any(folder.startswith(f"{b}/") or not b for b in self.blind)

    @once
    def _own(self) -> str:
        return f"{self.piece.folder}/" if self.piece.folder else ""

    def _between(self, top: str) -> bool:
        """Whether a name right below the piece's directory is one of those that the piece is about."""
        return top >= self.piece.after and not (self.piece.until and top >= self.piece.until)

    @once
    def _chooser(self) -> re.Pattern[str]:
        return self.selection.chooser(self.root)

    @once
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

    def tally(self, fold: Fold, store: Store, most: int) -> Iterator[tuple[int, list[str]]]:
        """Nothing is known."""
        yield from ()


def _whole(rows: pa.Table) -> pa.Table:
    """One row for each file that was gathered."""
    return rows.filter(pc.and_(pc.equal(rows.column("start"), 0), pc.equal(rows.column("state"), "done")))


def _together(found: list[tuple[Stretch, bool]]) -> Iterator[tuple[bool, list[Stretch]]]:
    """Stretches that follow one another and are alike: they are read together."""
    some = list[Stretch]()
    for i, (stretch, still) in enumerate(found):
        some.append(stretch)
        if i + 1 == len(found) or found[i + 1][1] != still or found[i + 1][0].first != stretch.end:
            yield still, some
            some = []


def _end(until: str) -> str:
    """The text that comes after all names whose first part comes before `until`: also below a directory that `until` begins with."""
    return max((until, *(after(f"{until[:i]}/") for i in range(1, len(until)))))


def _there(some: np.ndarray, hashes: np.ndarray) -> np.ndarray:
    """Which hashes are among some others, which come in order."""
    if not len(some):
        return np.zeros(len(hashes), bool)
    found: np.ndarray = some[np.minimum(np.searchsorted(some, hashes), len(some) - 1)] == hashes
    return found


def _hashes(names: list[str]) -> np.ndarray:
    return np.array([xxhash.xxh3_64_intdigest(name.encode()) for name in names], np.uint64)
