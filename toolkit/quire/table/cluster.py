"""The call that clusters a table: candidates, a piece of them at a time, each piece a job.

jobs of calls that died → files that are small, or not sorted as asked → pieces of at most `plan_size` → a job each → … until none is
left, or the time is over
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from quire import display
from quire.arguments import format_size, parse_size, seconds
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import TABLE, UNSAID, Commit, PlanHead
from quire.commit.log import Log
from quire.engine.take_up import Identity, with_state
from quire.errors import RefusedError, UsageError, choose, quoted
from quire.formats import parquet
from quire.storage import Store, plain
from quire.storage.threads import Pool
from quire.table import clustering, file_groups, replacing, rounds, timeline
from quire.table import index as indexes
from quire.table.clustering import NothingToCluster
from quire.table.file_groups import Slice
from quire.table.format import base_file
from quire.table.rounds import CLUSTER
from quire.table.service import Service
from quire.table.settings import opened
from quire.table.timeline import PARALLEL, REPLACE, Timeline
from quire.table.view import there
from quire.table.write.layout import LAYOUTS, LINEAR, MOST, Layout, possible, sortable
from quire.table.write.targets import SMALL
from quire.table.writing import SPEC

if TYPE_CHECKING:
    import pyarrow as pa

MOST_FILES = 10_000  # of one piece
LOOKS = 3  # at what there is to do, where others have been quicker
ASKED = 16  # files that say how they are sorted, where no commit on the timeline says it


@dataclasses.dataclass(frozen=True, repr=False)
class ClusterReport(display.Shown):
    """The result of a call that clusters a table.

    dest              the table
    instants          of the commits, on the table's timeline
    file_groups       how many file groups have ended, whose rows are in
    files             so many new ones
    rows              that were laid out anew
    read, written     bytes of the old files, and of the new ones
    sort, curve       how rows are sorted
    left              file groups that could still be clustered
    dry_run           nothing was done: `file_groups` and `read` say what would be
    version, seconds  the log's number at the end; how long it took

        report = table.cluster(sort=["city", "ts"], curve="hilbert")
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    instants: tuple[str, ...] = ()
    file_groups: int = 0
    files: int = 0
    rows: int = 0
    read: int = 0
    written: int = 0
    sort: tuple[str, ...] = ()
    curve: str = LINEAR
    left: int = 0
    dry_run: bool = False
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"ClusterReport({'dry_run=True, ' * self.dry_run}file_groups={self.file_groups:,}, files={self.files:,}, rows={self.rows:,}, "
            f"left={self.left:,}, seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        if self.dry_run:
            rows: dict[str, object] = {"would be clustered": f"{self.file_groups:,} file groups ({format_size(self.read)})"}
        else:
            rows = {
                "clustered": f"{self.file_groups:,} file groups ({format_size(self.read)})",
                "written": f"{self.files:,} files ({format_size(self.written)}) of {self.rows:,} rows",
            }
        by = ", ".join(self.sort) or "record key"
        rows["sorted by"] = by if self.curve == LINEAR else f"{by} ({self.curve})"
        return rows | {"file groups left": f"{self.left:,}", "version": self.version, "seconds": f"{self.seconds:.1f}"}


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The arguments of a call, checked.

    `layout` None: as the newest clustering has it. `size`: bytes that a piece reads; `limit`: seconds.
    """

    layout: Layout | None
    size: int
    limit: float | None
    partitions: Any = None

    @classmethod
    def of(
        cls, sort: str | Sequence[str] | None = None, curve: str = LINEAR, partitions: Any = None, plan_size: str | int = "1 GiB",
        time_limit: str | float | None = None,
    ) -> Wanted:  # fmt: skip
        """UsageError for what is not an argument."""
        columns = () if sort is None else (sort,) if isinstance(sort, str) else tuple(sort) if isinstance(sort, list | tuple) else None
        if columns is None or not all(isinstance(name, str) for name in columns):
            raise UsageError(f"sort takes the name of a column, or a list of names, and not {quoted(sort)}")
        if len(set(columns)) != len(columns):
            raise UsageError(f"sort={quoted(list(columns))} names a column twice.")
        choose(curve, LAYOUTS, "curve")
        if curve != LINEAR and not 2 <= len(columns) <= MOST:
            raise UsageError(f"curve={quoted(curve)} goes through 2 to {MOST} columns, and sort names {len(columns)}.")
        size, limit = parse_size(plan_size, "plan_size"), None if time_limit is None else seconds(time_limit, "time_limit")
        if limit == 0:
            raise UsageError("time_limit is 0, and has to be longer: write for example '10 min'.")
        return cls(None if sort is None else Layout(columns, curve), size, limit, partitions)


def check(store: Store) -> None:
    """RefusedError for a table whose keys say their file groups, and for one that quire may not write."""
    has = opened(store)[0]
    if indexes.named(index := indexes.of(has)).computes:
        raise RefusedError(
            f"{plain(store.url)} has the index {index}, by which the key says the file group: its file groups cannot be laid out anew."
        )


@dataclasses.dataclass(kw_only=True)
class Clustering(Service):
    """A call that clusters a table."""

    asked: Wanted
    _marks: dict[str, str | None] = dataclasses.field(default_factory=dict, init=False, repr=False)  # file → what it says, once read

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.store)
        self.config, self.settings = opened(self.store)

    def plan(self) -> ClusterReport:
        """Do nothing, and say what is to be done."""
        began = time.monotonic()
        self.log = protocol.recover(self.store)
        line = timeline.current(self.store)
        layout = self._layout(line)
        found = self._all(line, layout)
        return dataclasses.replace(
            self._report(began, layout, []), file_groups=len(found), read=sum(one.size + one.logged for one in found),
            left=len(found), dry_run=True,
        )  # fmt: skip

    def cluster(self) -> ClusterReport:
        """Cluster what was there when the call began."""
        began, done = time.monotonic(), list[Commit]()
        with with_state("What was clustered stays so; call again to go on."):
            self.log = protocol.recover(self.store)
            self._layout(timeline.current(self.store))  # what is wrong is said before anything is done
            for head in unfinished(self.store, self.log):
                self._carry_out(*clustering.asked_for(head.intent), done)
            layout = self._layout(timeline.current(self.store))  # which one of these may have set
            for _ in range(LOOKS):
                missed = False
                for piece in self._pieces(timeline.current(self.store), layout):
                    if self.asked.limit is not None and done and time.monotonic() - began >= self.asked.limit:
                        return self._report(began, layout, done)
                    missed |= not self._carry_out([(one.partition, one.group) for one in piece], layout, done)
                if not missed:
                    break
            return self._report(began, layout, done)

    def _layout(self, line: Timeline) -> Layout:
        """How rows are to be sorted; UsageError for a column by which they cannot be."""
        columns = there(line, self.config)
        if self.asked.layout is None:
            return Layout() if columns is None else self._newest(line, columns)
        for name in self.asked.layout.sort if columns is not None else ():
            if columns is None or name not in columns.names:
                raise UsageError(f"sort names {quoted(name)}, which is not a column of {plain(self.dest)}: {_some(columns)}.")
            if not sortable(columns.field(name).type):
                raise UsageError(f"sort names {quoted(name)}, and rows cannot be sorted by {columns.field(name).type}: choose another one.")
        return self.asked.layout

    # ------------------------------------------------------------------------------------------------------------- what is worth it
    def _all(self, line: Timeline, layout: Layout) -> list[Slice]:
        return [one for piece in self._pieces(line, layout) for one in piece]

    def _pieces(self, line: Timeline, layout: Layout) -> Iterator[list[Slice]]:
        """The slices that are to be clustered, as many at a time as one job reads; of small files two at least, else none became fewer."""
        most = self.asked.size if self.asked.layout is not None else max(self.asked.size, 2 * self.settings.target)
        piece, size = list[tuple[Slice, bool]](), 0
        for one, sorts in self._candidates(line, layout):
            more = one.size + one.logged
            if piece and (size + more > most or len(piece) == MOST_FILES):
                yield from self._worth(piece)
                piece, size = [], 0
            piece.append((one, sorts))
            size += more
        yield from self._worth(piece)

    def _worth(self, piece: Sequence[tuple[Slice, bool]]) -> Iterator[list[Slice]]:
        """A piece without the partitions in which nothing is to be sorted, and no file would be saved."""
        found = list[Slice]()
        for _, some in groupby(piece, lambda each: each[0].partition):
            those = list(some)
            slices = [one for one, _ in those]
            if any(sorts for _, sorts in those) or sum(clustering.files_of(slices, self.settings.target).values()) < len(slices):
                found += slices
        if found:
            yield found

    def _candidates(self, line: Timeline, layout: Layout) -> Iterator[tuple[Slice, bool]]:
        """In the order of partitions: small files, and where a sort was asked for, what is not sorted so (True)."""
        planned, wanted = line.compacting(), self._partitions(line)
        slices = [
            one for one in file_groups.newest(self.store, line, logs=True)
            if (one.partition, one.group) not in planned and (wanted is None or one.partition in wanted)
        ]  # fmt: skip
        small = SMALL * self.settings.target
        asked = slices if self.asked.layout is not None else []
        unsorted = {(one.partition, one.group) for one in self._unsorted(asked, layout)}
        for one in slices:
            sorts = (one.partition, one.group) in unsorted
            if sorts or one.size + one.logged < small:
                yield one, sorts

    def _unsorted(self, slices: Sequence[Slice], layout: Layout) -> Iterator[Slice]:
        """Those that do not say of themselves that their rows are sorted so: files that were written since, or have logs."""
        said = clustering.mark(layout)
        with Pool(PARALLEL) as pool:
            for one, its in zip(slices, pool.map(self._mark, slices), strict=True):
                if its != said:
                    yield one

    def _newest(self, line: Timeline, columns: pa.Schema) -> Layout:
        """The layout of the newest clustering; by record keys, where there was none, or it says what cannot be.

        Where its instant was archived, the files of the table say it, each of itself.
        """
        replaces = [instant for instant in reversed(line.completed) if instant.action == REPLACE]
        said = [(content.extra_metadata or {}).get(clustering.LAYOUT) for content in line.commits(replaces)]
        if not any(said):
            slices = file_groups.newest(self.store, line, logs=True)
            chosen = sorted({int(i) for i in np.linspace(0, len(slices) - 1, ASKED)}) if slices else []
            with ThreadPoolExecutor(PARALLEL) as pool:
                marks = Counter(mark for mark in pool.map(self._mark, [slices[i] for i in chosen]) if mark)
            said = [mark for mark, _ in marks.most_common(1)]
        found = next((clustering.marked(mark) for mark in said if mark), None)
        return found if found and possible(found, columns) else Layout()

    def _mark(self, one: Slice) -> str | None:
        if one.logs or not one.name:
            return None
        if one.name not in self._marks:
            self._marks[one.name] = base_file.read_footer(parquet.stored(self.store, one.name), f"{self.store.url}/{one.name}").layout
        return self._marks[one.name]

    def _partitions(self, line: Timeline) -> Collection[str] | None:
        """The partitions that were named; None: all."""
        if self.asked.partitions is None:
            return None
        named = replacing.check(self.asked.partitions, self.config, plain(self.dest))
        known = {one.partition for one in file_groups.newest(self.store, line)}
        columns = there(line, self.config)
        assert columns is not None or not known
        return set(replacing.paths(named, self.config, columns, known, plain(self.dest))) if columns is not None else ()

    # ------------------------------------------------------------------------------------------------------------------- the jobs
    def _carry_out(self, groups: Sequence[tuple[str, str]], layout: Layout, done: list[Commit]) -> bool:
        """Cluster some file groups; False: others have ended them meanwhile."""
        intent = {
            "verb": CLUSTER, "operation": CLUSTER, "dest": self.dest, "sort": list(layout.sort), "curve": layout.curve,
            "groups": [list(each) for each in groups],
        }  # fmt: skip
        identity = Identity(intent, SPEC, choice("auto", self.store), closer=TABLE, empty=UNSAID)
        with suppress(NothingToCluster):
            commit = self.run(identity, lambda log, identity: (identity.head(log.tip, objects.new_id(), 0), None), "clustering", keep=False)
            done += [commit] if commit is not None else []
            return commit is not None
        return False

    def _report(self, began: float, layout: Layout, done: Sequence[Commit]) -> ClusterReport:
        assert self.log is not None
        said = [rounds.round_of(commit.tasks[-1]) for commit in done]
        files = [file for commit in done for file in commit.tasks[-1].data_files]
        left = len(self._all(timeline.current(self.store), layout))
        return ClusterReport(
            plain(self.dest), tuple(each.instant for each in said), sum(len(ids) for each in said for ids in each.replaced.values()),
            len(files), sum(each.counts.get("rows", 0) for each in said), sum(each.counts.get("read", 0) for each in said),
            sum(file.size for file in files), layout.sort, layout.curve, left, version=self.log.tip, seconds=time.monotonic() - began,
        )  # fmt: skip


def unfinished(store: Store, log: Log) -> list[PlanHead]:
    """The open jobs of clusterings, of calls that died, or are under way."""
    return [head for head in protocol.open_jobs(store, log) if head.closer == TABLE and head.verb == CLUSTER]


def _some(columns: Any) -> str:
    names = columns.names if columns is not None else []
    return f"it has {', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
