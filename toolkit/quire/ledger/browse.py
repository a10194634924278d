"""The ledger a page at a time: its rows by path and state, why files were quarantined, and its commits in a row.

A page reads the segments that it needs, newest first, and no Spark. Its count beyond the page ends at a bound, so that the first
page of a ledger of many millions of rows comes as soon as that of a small one; then its total says "at least".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quire import display
from quire.arguments import whole
from quire.commit.log import Log
from quire.coverage.counts import files_out
from quire.coverage.finished import FINISHED
from quire.coverage.fold import Fold, Source, after
from quire.coverage.live import added
from quire.errors import UsageError, choose, printable, quoted
from quire.interrupts import all_interruptible
from quire.progress import ProgressEvent
from quire.reasons import kind
from quire.storage import Store
from quire.storage.threads import Pool

if TYPE_CHECKING:
    import pandas as pd

STATES = ("done", "quarantined", "held", "mark", "lost", *FINISHED)
COLUMNS = ["path", "version", "start", "length", "state", "reason", "data_file", "member"]
COUNTED = 1_000_000  # rows that are looked at beyond a page, only to count them
AT_ONCE = 8  # segments
ROWS_AT_ONCE = 1_000_000
KINDS = 200  # of reasons; what comes beyond them is counted as one
OTHERS = "(other reasons)"


@dataclass(frozen=True, repr=False)
class Page:
    """Some rows of a ledger, those of the newest commits first.

    table     one row each: path, version, start, length, state, reason, data_file, member (of an archive), commit
    offset    how many rows that match come before them
    total     how many match; where `complete` is False there are at least so many
    """

    table: pd.DataFrame
    offset: int
    limit: int
    total: int
    complete: bool
    _look: _Search = field(compare=False)

    def at(self, offset: int, progress: Callable[[ProgressEvent], object] | None = None) -> Page:
        """Another page of the same rows, in the same version of the ledger; what was counted before is not read again."""
        return self._look.page(whole(offset, "offset", 0), self.limit, progress)

    @property
    def more(self) -> bool:
        """Whether more rows come after these, or may come."""
        return not self.complete or self.offset + len(self.table) < self.total

    @property
    def words(self) -> str:
        """The page in words: '21–40 of 2,000 rows'."""
        total = f"{'' if self.complete else 'at least '}{self.total:,} {'row' if self.total == 1 else 'rows'}"
        if self.complete and not self.total:
            return "no rows"
        return f"{self.offset + 1:,}–{self.offset + len(self.table):,} of {total}" if len(self.table) else f"none of {total}"

    def __repr__(self) -> str:
        return "\n".join([self.words, *(" ".join(str(cell) for cell in row) for row in self._cells())])

    def _repr_html_(self) -> str:
        return display.table(self.words, [str(name) for name in self.table.columns], self._cells())

    def _cells(self) -> Iterator[list[str]]:
        for row in self.table.itertuples(index=False, name=None):
            yield ["" if cell is None else printable(str(cell)) for cell in row]


@all_interruptible
class Pages:
    """A ledger's rows and commits without Spark and without holding all of them."""

    _url: str
    _store: Store
    _fold: Fold
    _log: Log

    @property
    def version(self) -> int:
        """The version that is looked at."""
        raise NotImplementedError

    def _keys(self, path: str | os.PathLike[str]) -> list[str]:
        raise NotImplementedError

    def summary(self) -> Any:
        """The destination in numbers."""
        raise NotImplementedError

    def rows(
        self, path: str | os.PathLike[str] = "", state: str | None = None, *, offset: int = 0, limit: int = 100,
        progress: Callable[[ProgressEvent], object] | None = None,
    ) -> Page:  # fmt: skip
        """Return a page of the ledger's rows, those of the newest commits first; `.at(offset)` turns to others.

        Merged rows of a checkpoint come after later commits, in the order of the paths.

        path    how the paths begin, as a path from `/` or a URL: quick, whatever the ledger's size. Any other text is looked for
                anywhere in them, which reads one segment after the other until the page is full
        state   "done", "quarantined", "held" (a last line without newline), "mark" (done elsewhere) or "lost" (a range of offsets that was
                removed at its source before it was read), "purged" (gathered, and its source deleted since) or "purging" (a purge has
                begun with it, and not come to its end); None: any

        limit   rows of a page; `offset` rows that match come before it

        `progress` is told how many segments were read, and may raise to stop. UsageError for another state.
        """
        text = os.fspath(path) if isinstance(path, os.PathLike) else path
        if not isinstance(text, str):
            raise UsageError(f"path is {quoted(path)}: it is a text, the beginning of paths or a part of them.")
        if state is not None:
            choose(state, STATES, "state")
        begins = self._beginnings(text) if text.startswith("/") or "://" in text else ()
        sources = self._newest_first(state)
        known = None if text or state else self.summary().ledger_rows
        if text != text.encode("utf-8", "ignore").decode() and not begins:
            text = "\0"  # half a character, as Python shows names on disk, is in no path of the ledger; neither is this
        look = _Search(self._store, self._fold, sources, begins, "" if begins else text, state, known)
        return look.page(whole(offset, "offset", 0), whole(limit, "limit", 1), progress)

    def _newest_first(self, state: str | None) -> list[Source]:
        """The segments that may hold rows in a state."""
        may = {"quarantined": lambda s: s.quarantined, "held": lambda s: s.held}.get(state or "", lambda s: s.rows)
        return sorted(filter(may, self._fold.sources), key=lambda s: -s.number)

    def _beginnings(self, text: str) -> tuple[str, ...]:
        """The possible beginnings of the paths: as it was written, with the store's own spelling, with links above it resolved."""
        found = [text if "://" in text else f"file://{text}"]
        with suppress(UsageError):  # half a URL is still the beginning of one
            found += [key + "/" * text.endswith("/") for key in self._keys(text)]
        found = [key for key in dict.fromkeys(found) if key == key.encode("utf-8", "ignore").decode()]
        return tuple(key for key in found if not any(key != other and key.startswith(other) for other in found))


def reasons(ledger: Pages, progress: Callable[[ProgressEvent], object] | None) -> list[tuple[str, int, int, str]]:
    """Why files are quarantined, as `quire.ledger.tables.TABLES["reasons"]` has it."""
    look = _Search(ledger._store, ledger._fold, ledger._newest_first("quarantined"), (), "", "quarantined", None)
    found = dict[str, tuple[int, int, str]]()
    for tables in look.tables(0, ["path", "reason", "tries", "state"], progress):
        for table in tables:
            for path, reason, tries in zip(*(table.column(c).to_pylist() for c in ("path", "reason", "tries")), strict=True):
                of = kind(reason)
                of = of if of in found or len(found) < KINDS else OTHERS
                files, most, example = found.get(of, (0, 0, path))
                found[of] = (files + 1, max(most, tries or 1), min(example, path))
    return sorted(((of, *told) for of, told in found.items()), key=lambda row: (-row[1], row[0]))


def commits(ledger: Pages, last: int | None) -> list[tuple[Any, ...]]:
    """The commits that count, as `quire.ledger.tables.TABLES["commits"]` has them; `last`: so many of them at the end."""
    rows, live = list[tuple[Any, ...]](), ledger.summary().data_files
    # From the last one back, so that a few of them cost as little in a long log as in a short one.
    for number, commit in ledger._log.backwards(ledger.version):
        tasks = ledger._log.in_effect(commit, ledger.version, reader=True)
        if not tasks:
            continue
        written, removed, stats = sum(len(t.data_files) for t in tasks), sum(len(t.coverage.removes) for t in tasks), added(tasks)
        rows.append(
            (number, commit.verb, commit.time, stats.files_in, files_out(commit, tasks), stats.quarantined, written, removed, live,
             sum(f.records for t in tasks for f in t.data_files), stats.bytes_in, stats.lost, stats.duplicates,
             commit.why)
        )  # fmt: skip
        if len(rows) == last:
            break
        live += removed - written
    return rows[::-1]


class _Search:
    """A search and how far it has come: how many rows of each segment match, as far as they were read."""

    def __init__(
        self, store: Store, fold: Fold, sources: list[Source], begins: tuple[str, ...], part: str, state: str | None, known: int | None
    ) -> None:
        self._store, self._fold, self._begins, self._part, self._state, self._known = store, fold, begins, part, state, known
        if begins:
            sources = [s for s in sources if any(s.first < after(b) and s.last >= b for b in begins)]
        self._sources = sources
        self._counts = list[int]()

    def page(self, offset: int, limit: int, progress: Callable[[ProgressEvent], object] | None) -> Page:
        """The rows [offset, offset + limit)."""
        tables, before = list[pa.Table](), 0
        for i, source in enumerate(self._sources):
            if before >= offset + limit:
                break
            told = i < len(self._counts)
            if not told or before + self._counts[i] > offset:
                table = self._matching(source, COLUMNS)
                tables.append(table.slice(max(offset - before, 0), offset + limit - max(offset, before)))
                if not told:
                    self._counts.append(table.num_rows)
                self._tell(progress, i + 1)
            before += self._counts[i]
        if self._known is None:
            self._count(progress)
        return self._page(tables, offset, limit)

    def _page(self, tables: list[pa.Table], offset: int, limit: int) -> Page:
        empty = self._fold.rows(self._store, COLUMNS, "\0", "\0").slice(0, 0) if not tables else tables[0].slice(0, 0)
        table = pa.concat_tables([empty, *tables]).to_pandas(use_threads=False)
        total = sum(self._counts) if self._known is None else self._known
        return Page(table, offset, limit, total, self._known is not None or len(self._counts) == len(self._sources), self)

    def _count(self, progress: Callable[[ProgressEvent], object] | None) -> None:
        """Count what the segments hold that were not read, up to the bound."""
        for tables in self.tables(len(self._counts), ["state"], progress):
            self._counts += [table.num_rows for table in tables]

    def tables(self, start: int, columns: list[str], progress: Callable[[ProgressEvent], object] | None) -> Iterator[list[pa.Table]]:
        """The matching rows of the segments from `start` on, some segments at once, until the bound of rows was looked at."""
        looked = 0
        with Pool(AT_ONCE) as pool:
            at = start
            while at < len(self._sources):
                if looked >= COUNTED:
                    return
                some = self._together(at)
                read = list(pool.map(lambda source: self._read(source, columns), some))
                looked += sum(table.num_rows for table in read)
                yield [self._chosen(table) for table in read]
                at += len(some)
                self._tell(progress, at)

    def _together(self, at: int) -> list[Source]:
        """Segments from `at` on that are read at once: some, and no more rows than the memory has room for."""
        some, rows = self._sources[at : at + AT_ONCE], 0
        for n, source in enumerate(some):
            rows += source.rows
            if n and rows > ROWS_AT_ONCE:
                return some[:n]
        return some

    def _matching(self, source: Source, columns: list[str]) -> pa.Table:
        return self._chosen(self._read(source, columns))

    def _read(self, source: Source, columns: list[str]) -> pa.Table:
        """The rows of a segment that count; of a beginning, the row groups that may hold it."""
        needed = list(dict.fromkeys([*columns, *(["path"] if self._begins or self._part else [])]))
        one = self._fold.of(source)
        if not self._begins:
            return one.rows(self._store, needed)
        return pa.concat_tables([one.beginning(self._store, needed, b) for b in self._begins])

    def _chosen(self, table: pa.Table) -> pa.Table:
        if self._part:
            table = table.filter(pc.match_substring(table.column("path"), self._part))
        return table.filter(pc.equal(table.column("state"), self._state)) if self._state else table

    def _tell(self, progress: Callable[[ProgressEvent], object] | None, done: int) -> None:
        if progress:  # False, which means no bars elsewhere, is nobody to tell
            if not callable(progress):
                raise UsageError(
                    f"progress={quoted(progress)} is not a function. Leave it out, or give one that takes a quire.ProgressEvent."
                )
            progress(ProgressEvent("looking", done, len(self._sources), "segment"))
