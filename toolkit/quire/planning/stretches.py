"""Stretches of the ledger: some 20,000 of its paths, as a piece of a checkpoint has them in a row group.

A piece never changes, so what was found in a stretch is the same as long as nothing is listed there and no later commit says anything of
it. A loop, whose old files have gone, looks through such a stretch once, and not again in each of its runs, nor after each checkpoint
that has a copy of the piece.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.coverage import segments
from quire.coverage.fold import NEAR, Fold, Source, after
from quire.coverage.remembered import Remembered
from quire.storage import Store

if TYPE_CHECKING:
    import numpy as np

PIECES = 256  # of which a process remembers where their row groups begin
HELD = 4_096  # stretches that a process remembers: 80 million paths, by some 5 KB each


class Stretch(NamedTuple):
    """The paths in [first, end) of a piece."""

    first: str
    end: str


class Gone(NamedTuple):
    """Files that have gone from a stretch: how many, some of their paths, and the data files that its rows name, as hashes in order.

    It holds while rows have moved away from `moved` of these data files, and from no other one.
    """

    files: int
    examples: tuple[str, ...]
    data_files: np.ndarray
    moved: np.ndarray


class Spans:
    """Ranges of paths, both ends included: whether a stretch meets one of them."""

    def __init__(self, ranges: Iterable[tuple[str, str]]) -> None:
        self._firsts, self._lasts = list[str](), list[str]()
        for first, last in sorted(ranges):
            if self._lasts and first <= self._lasts[-1]:
                self._lasts[-1] = max(self._lasts[-1], last)
            else:
                self._firsts.append(first)
                self._lasts.append(last)

    def meet(self, stretch: Stretch) -> bool:
        """Whether one of them has a path of the stretch."""
        at = bisect_left(self._lasts, stretch.first)
        return at < len(self._lasts) and self._firsts[at] < stretch.end

    def hold(self, stretch: Stretch) -> bool:
        """Whether one of them has all paths that there may be in the stretch."""
        at = bisect_left(self._lasts, stretch.end)
        return at < len(self._lasts) and self._firsts[at] <= stretch.first


def below(path: str) -> tuple[str, str]:
    """The range of a path, and of all that lies below it as a directory."""
    return path, after(f"{path}/")


def said_later(fold: Fold) -> Spans:
    """The paths of which commits since the checkpoint say what has become of their rows; but for rows that have moved to other files."""
    laid: dict[str, Spans] = fold.uncovered.__dict__  # once, and not for each piece of a listing: there may be very many
    if "said" not in laid:
        laid["said"] = Spans([*((path, path) for path in fold.uncovered), *((said.first, said.last) for said in fold.said)])
    return laid["said"]


def lasts(fold: Fold, source: Source) -> bool:
    """Whether the rows of a source stay as they are until something is said of them: those of a checkpoint's piece."""
    return source.piece and source.segment != NEAR and not fold.undone


def cut(store: Store, source: Source, first: str, last: str) -> list[Stretch]:
    """The stretches of a piece that have paths in [first, last]."""
    whole = Stretch(max(first, source.first), min(last, source.last) + "\0")  # the next string there is
    steps = STEPS.of(store.url, source.segment, None, source.content)
    if not steps:
        steps[:] = segments.steps(store, source.segment)
    return divided(whole, [path for path, _ in steps])


def divided(stretch: Stretch, bounds: Iterable[str]) -> list[Stretch]:
    """A stretch in parts, of which some begin at those of the bounds that lie within; none, where it has no path."""
    inner = sorted({path for path in bounds if stretch.first < path < stretch.end})
    return [Stretch(*each) for each in pairwise([stretch.first, *inner, stretch.end])] if stretch.first < stretch.end else []


class Memory:
    """The place of what was found in one stretch, for those who look for the same.

    gone    the files that have gone, where nothing is listed
    parts   where something is, small parts of it: in most of them nothing may be
    """

    gone: Gone | None = None
    parts: list[Stretch] | None = None


class Alike:
    """The place of what is known of paths that lie together, in whichever checkpoint: how many of them are meant, and some of these."""

    meant: tuple[int, tuple[str, ...]] | None = None


STEPS = Remembered(list[tuple[str, int]], PIECES)
MEMORY = Remembered(Memory, HELD)  # by a piece's stretch, and by what of it is asked
# By what is asked, and by the paths: nearly all stretches of a new checkpoint are in the one before it, too.
ALIKE = Remembered(Alike, HELD)


def fingerprint(paths: pa.ChunkedArray) -> bytes:
    """A hash of the paths, in their order: two stretches that have the same one have the same paths."""
    all_of_them = pa.ListArray.from_arrays(
        pa.array([0, len(paths)], pa.int32()), pa.concat_arrays(paths.chunks or [pa.array([], pa.string())])
    )
    found: bytes = xxhash.xxh3_128_digest(pc.binary_join(all_of_them, "\0")[0].as_buffer())
    return found
