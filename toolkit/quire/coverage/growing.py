"""What is covered of paths that go on and on, and what it became, kept up with a log that grows: what was read once is added to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow.compute as pc

from quire.coverage.fold import Fold
from quire.coverage.ranges import Covered, covered
from quire.storage import Store

__all__ = ["Growing"]

_COLUMNS = ["path", "state", "records", "written"]


class Growing:
    """What is covered of the paths in [first, last], and how many records and bytes of data files each path became.

    Of a log that has grown, only the new segments are read. Where a later commit has taken rows away, all of them are read anew.
    """

    def __init__(self, first: str, last: str) -> None:
        self._first, self._last = first, last
        self._forget()

    def _forget(self) -> None:
        self._read, self._gone = set[str](), tuple[object, ...]()
        self.covered = dict[str, Covered]()
        self.records, self.bytes = Counter[str](), Counter[str]()

    def upto(self, fold: Fold, store: Store) -> Growing:
        """The same at a version; an error leaves it as it was, or empty."""
        there, gone = {source.segment for source in fold.sources}, (fold.removed, fold.uncovered)
        if self._gone != gone or not self._read <= there:
            self._forget()
        new = replace(fold, sources=tuple(source for source in fold.sources if source.segment not in self._read))
        found, made = covered(new, store, self._first, self._last), _made(new, store, self._first, self._last)
        for path, one in found.items():
            self.covered.setdefault(path, Covered()).add(one)
        self.records.update(made[0])
        self.bytes.update(made[1])
        self._read, self._gone = there, gone
        return self


def _made(fold: Fold, store: Store, first: str, last: str) -> tuple[Counter[str], Counter[str]]:
    """Records and bytes by path; one source of the fold is held at a time."""
    records, size = Counter[str](), Counter[str]()
    for source in fold.sources:
        if source.first > last or source.last < first:
            continue
        rows = fold.of(source).rows(store, _COLUMNS, first, last)
        rows = rows.filter(pc.equal(rows.column("state"), "done"))
        for row in rows.group_by("path", use_threads=False).aggregate([("records", "sum"), ("written", "sum")]).to_pylist():
            records[row["path"]] += row["records_sum"] or 0
            size[row["path"]] += row["written_sum"] or 0
    return records, size
