"""Uncovered ranges of commits, indexed so that a row is looked up and not compared with each of them: a retry uncovers as many ranges as
it has rows, perhaps of one path.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np

from quire.commit.entries import Uncover


class Uncovered(dict[str, tuple[tuple[int, Uncover], ...]]):
    """Path → what was uncovered of it, by which commit."""

    def __reduce__(self) -> tuple[type, tuple[dict[str, tuple[tuple[int, Uncover], ...]]]]:
        return Uncovered, (dict(self),)  # it travels to tasks without what was laid out here

    def since(self, number: int, path: str, version: str, start: int, length: int) -> bool:
        """Whether a commit after `number` has uncovered a part of a row."""
        found = self._laid.get((path, version))
        if found is None:
            found = self._laid[path, version] = _LaidRanges(
                (by, r) for by, u in self.get(path, ()) if u.version == version for r in u.ranges
            )
        return found.newest(start, length) > number

    @property
    def _laid(self) -> dict[tuple[str, str], _LaidRanges]:
        found: dict[tuple[str, str], _LaidRanges] = self.__dict__.setdefault("laid", {})
        return found


class _LaidRanges:
    """Ranges of one version of a file, each by a commit: for each place the newest commit that has uncovered it."""

    def __init__(self, ranges: Iterable[tuple[int, tuple[int, int]]]) -> None:
        self.empty = dict[int, int]()
        long = list[tuple[int, int, int]]()
        for by, (start, length) in ranges:
            if length:
                long.append((start, start + length, by))
            else:
                self.empty[start] = max(by, self.empty.get(start, -1))
        long.sort()
        self.bounds = sorted({at for start, end, _ in long for at in (start, end)})
        newest, open_, i = list[int](), list[tuple[int, int]](), 0
        for at in self.bounds:
            while i < len(long) and long[i][0] <= at:
                heapq.heappush(open_, (-long[i][2], long[i][1]))
                i += 1
            while open_ and open_[0][1] <= at:
                heapq.heappop(open_)
            newest.append(-open_[0][0] if open_ else -1)
        self.by = np.array(newest, dtype=np.int64)  # of what lies between a bound and the next one

    def newest(self, start: int, length: int) -> int:
        """The newest commit that has uncovered a part of a range; -1: none has."""
        if not length:
            return self.empty.get(start, -1)
        first, end = max(0, bisect_right(self.bounds, start) - 1), bisect_left(self.bounds, start + length)
        return int(self.by[first:end].max(initial=-1))


def overlap(a: Iterable[tuple[int, int]], b: Iterable[tuple[int, int]]) -> bool:
    """Whether ranges (start, length) share a byte; an empty range is a point of its own that meets an equal one."""
    sides = list(a), list(b)
    points = [{start for start, length in side if not length} for side in sides]
    if not points[0].isdisjoint(points[1]):
        return True
    reach = [-1, -1]  # how far the ranges of each side go that have begun so far
    for start, length, side in sorted((s, n, i) for i, ranges in enumerate(sides) for s, n in ranges if n > 0):
        if start < reach[1 - side]:
            return True
        reach[side] = max(reach[side], start + length)
    return False
