"""A table at one look, to be drawn: the instants of its timeline, a window of them at a time, and the slices of each file group.

The timeline and the files are listed once. The commits of a window are read when it is shown, and the keys of a slice when it is asked for.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.errors import NotFoundError, RefusedError
from quire.storage import Entry
from quire.table import file_groups, overview, reading, realtime
from quire.table.file_groups import Slice
from quire.table.format.names import ACTIONS, BaseFile, Instant, LogFile
from quire.table.format.schema import META
from quire.table.realtime import Merging
from quire.table.timeline import COMPACTION, REPLACE, Timeline

if TYPE_CHECKING:
    import pandas as pd

    from quire.table.table import Table

# The lanes in the order in which they are drawn; instants of other actions stand in lanes of their own below them.
LANES = ("commit", "deltacommit", REPLACE, COMPACTION, "clean", "rollback", "restore", "savepoint")
_COMPACTING = ("compact", "log_compact")  # operations of the commits by which compactions end
_KEY = META[2]
NOW = "~"  # later than every instant


@dataclass(frozen=True)
class Period:
    """A slice and how long it counts: `end` is the instant of the slice that has superseded it, or `NOW`."""

    slice: Slice
    end: str = NOW
    replaced: bool = False  # its group was ended at `end`, and another has taken its place
    sizes: tuple[int, ...] = ()  # of its logs

    @property
    def name(self) -> str:
        """The name that tells it from all others: of its base file, or of its first log."""
        return self.slice.name or self.slice.logs[0]

    @property
    def counts(self) -> bool:
        """Whether the newest snapshot reads it."""
        return self.end == NOW

    @property
    def files(self) -> tuple[str, ...]:
        """Its base file, where it has one, and its logs."""
        return (*filter(None, [self.slice.name]), *self.slice.logs)


@dataclass(frozen=True)
class Group:
    """A file group with its slices that are still there, the oldest first."""

    partition: str
    name: str
    periods: tuple[Period, ...]


@dataclass(frozen=True)
class Window:
    """Instants that follow one another, the oldest first, of all that are on the timeline.

    times   their times, each once: a savepoint has the time of the write that it holds
    rows    a row for each, as `Table.timeline` has them
    newer   how many times are later than these
    total   of the whole timeline
    last    how many rows `Table.timeline(last=…)` has from the first of these on
    """

    times: tuple[str, ...]
    rows: pd.DataFrame
    newer: int
    total: int
    last: int

    def told(self) -> list[dict[str, Any]]:
        """The rows as dictionaries; a number that nobody knows is None."""
        import pandas as pd

        return [{str(name): None if pd.isna(value) else value for name, value in row.items()} for row in self.rows.to_dict("records")]

    def columns(self, period: Period) -> tuple[int, int] | None:
        """The first of its times at which a slice counts, by number, and the one after the last; None: it counts at none of them."""
        if not self.times:
            return (0, 1) if period.counts and not self.newer else None
        begin = bisect_left(self.times, period.slice.instant)
        end = len(self.times) if period.counts else bisect_left(self.times, period.end)
        if begin == len(self.times) or period.end <= self.times[0]:
            return None
        return begin, max(end, begin + 1)


@dataclass(frozen=True)
class Drawn:
    """A table at one look."""

    table: Table = field(repr=False)
    line: Timeline = field(repr=False)
    instants: tuple[Instant, ...] = field(repr=False)
    groups: tuple[Group, ...] = field(repr=False)

    @property
    def url(self) -> str:
        """The table's place."""
        return self.table.url

    @property
    def has_options(self) -> bool:
        """Whether the table was opened with options of its store, which may hold secrets."""
        return bool(self.table._options)

    @property
    def as_of(self) -> str:
        """The instant that the table was opened at; "": it was opened as it is."""
        return self.table._instant

    def newer_than(self, time: str) -> int:
        """How many times of the timeline are later."""
        return len({one.time for one in self.instants if one.time > time})

    def window(self, size: int, newer: int = 0) -> Window:
        """At most `size` times, before the `newer` newest ones; one request for each write and clean among them."""
        times = sorted({one.time for one in self.instants})
        end = max(len(times) - newer, min(size, len(times)))
        chosen = times[max(0, end - size) : end]
        first = bisect_left(self.instants, chosen[0], key=lambda one: one.time) if chosen else 0
        there = [one for one in self.instants[first:] if one.time <= chosen[-1]]
        rows = overview.framed(overview.told(self.line, there))
        return Window(tuple(chosen), rows, len(times) - end, len(times), len(self.instants) - first)

    def period(self, name: str) -> Period | None:
        """The slice to which a file belongs, by its name below the table."""
        return next((one for group in self.groups for one in group.periods if name in one.files), None)

    def keys(self, period: Period, limit: int) -> list[str]:
        """The record keys of some rows of a slice: of the first ones in its base file, or in its logs where it has no base file.

        None where the table keeps no keys. Logs beside a base file are not read, so a key may be one that they delete. RefusedError where
        the file is gone.
        """
        table, one = self.table, replace(period.slice, logs=() if period.slice.name else period.slice.logs)
        if not table.config.meta_fields:
            return []
        columns, holds = table._columns(self.line), self.line.holds()
        merging = realtime.merging_of(table.config, self.line, columns, table.url) if one.logs else Merging(holds)
        batches = reading.rows_of(table._store, one, pa.schema([(_KEY, pa.string())]), merging)
        try:
            first = (key for batch in batches for key in batch.column(0).slice(0, limit).to_pylist() if key)
            return list(dict.fromkeys(itertools.islice(first, limit)))
        except NotFoundError as e:
            raise RefusedError(f"{table.url}/{period.name} was cleaned since the table was looked at. Refresh.") from e


def look(table: Table) -> Drawn:
    """List the timeline and the files of a table. RefusedError for one of a kind that quire does not read."""
    store = table._store
    line = table._timeline(store)
    there = file_groups.everything(store, line)
    ends = line.ends(file_groups.logged(there.values()))
    groups = (Group(*key, tuple(_periods(key, files, ends, line.replaced.get(key, NOW)))) for key, files in sorted(there.items()))
    return Drawn(table, line, tuple(overview.every(line)), tuple(groups))


def lane(row: Mapping[str, Any]) -> str:
    """The lane of a row of `Table.timeline`: its action, but a compaction that has ended is a commit."""
    if row["operation"] in _COMPACTING:
        return COMPACTION
    return COMPACTION if row["action"] in (COMPACTION, "logcompaction") else ACTIONS.get(row["action"], row["action"])


def lanes(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The lanes of some rows, in the order in which they are drawn."""
    there = {lane(row) for row in rows}
    return [*(name for name in LANES if name in there), *sorted(there - {*LANES})]


def _periods(
    key: tuple[str, str], files: Collection[tuple[BaseFile | LogFile, Entry]], ends: Mapping[str, str], replaced: str
) -> Iterable[Period]:  # fmt: skip
    """The slices of a file group: a base file, and the logs since it was begun, up to the next one."""
    bases = {file.instant: entry for file, entry in files if isinstance(file, BaseFile)}
    logs = [(ends.get(file.instant, file.instant), file, entry) for file, entry in files if isinstance(file, LogFile)]
    logs.sort(key=lambda one: (one[0], one[1].number, one[1].token))
    begun = sorted(bases)
    if logs and (not begun or logs[0][0] < begun[0]):
        begun.insert(0, logs[0][1].instant)
    for instant, end in zip(begun, [*begun[1:], replaced], strict=True):
        own = [entry for time, _, entry in logs if (instant <= time or instant == begun[0]) and (time < end or end == replaced)]
        yield _period(key, instant, bases.get(instant), own, end, replaced)


def _period(
    key: tuple[str, str], instant: str, base: Entry | None, logs: Sequence[Entry], end: str, replaced: str
) -> Period:  # fmt: skip
    sizes = tuple(entry.size for entry in logs)
    name, size = (base.name, base.size) if base else ("", 0)
    one = Slice(*key, instant, name, size, tuple(entry.name for entry in logs), sum(sizes))
    return Period(one, end, end == replaced != NOW, sizes)
