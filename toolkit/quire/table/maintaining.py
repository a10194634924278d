"""The call that does what is due at a table: compact, cluster, clean, archive, in this order, each only where it is worth its time.

what is due (listings alone) → each service, while there is time → report; with `every` again and again
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from quire.arguments import format_size, seconds
from quire.commit import protocol
from quire.engine.loop import Again
from quire.engine.maintenance import Maintenance, carry_out, limit_of, repeat
from quire.errors import UsageError, quoted
from quire.storage import Store, connect
from quire.storage.within import marked
from quire.table import archive, cleaning, retention, timeline
from quire.table import index as indexes
from quire.table import stats as health
from quire.table.cluster import ClusterReport, unfinished
from quire.table.compacting import CompactionReport
from quire.table.format import config
from quire.table.settings import opened
from quire.table.timeline import Timeline
from quire.table.upkeep import ArchiveReport, CleanReport

if TYPE_CHECKING:
    from quire.table.services import Services

COMPACT, CLUSTER, CLEAN, ARCHIVE = "compact", "cluster", "clean", "archive"
SLACK = 1.5  # times `keep`: so many writes are on the timeline before it is worth an archive


@dataclasses.dataclass(frozen=True, repr=False)
class MaintenanceReport(Maintenance):
    """The result of a call that maintains a table.

    dest        the table
    due         what was due when it began: "compact", "cluster", "clean", "archive", each with the reason
    compaction  the `CompactionReport` of what was done; None: nothing was due
    clustering  the `ClusterReport`, likewise
    clean       the `CleanReport`, likewise
    archive     the `ArchiveReport`, likewise
    hindered    what was due and could not be done, each with the reason: the next call tries again
    left        what was due and was not begun, as the time was over
    dry_run     nothing was done
    seconds     how long it took
    gaps        outages that the call has outlived, each a `quire.Gap`, and `gap_count`, as in `quire.Report`

        report = table.maintain(dry_run=True)
        print(report), report.due, json.dumps(report.as_dict())
    """

    compaction: CompactionReport | None = None
    clustering: ClusterReport | None = None
    clean: CleanReport | None = None
    archive: ArchiveReport | None = None

    def _done(self) -> Mapping[str, object]:
        rows = dict[str, object]()
        if self.compaction is not None:
            rows["compacted"] = f"{self.compaction.file_groups:,} file groups"
        if self.clustering is not None:
            rows["clustered"] = f"{self.clustering.file_groups:,} file groups, which became {self.clustering.files:,}"
        if self.clean is not None:
            rows["deleted"] = f"{self.clean.files:,} files ({format_size(self.clean.bytes)})"
        if self.archive is not None:
            rows["archived"] = f"{self.archive.instants:,} instants"
        return rows


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The arguments of a call, checked: spans in seconds."""

    log_ratio: float
    small_files: int
    keep_for: float
    keep: int
    limit: float | None
    younger: bool = False  # keep all writes on the timeline that are not older than `keep_for`, too

    @classmethod
    def of(cls, log_ratio: float, small_files: int, keep_for: str | float, keep: int, time_limit: str | float | None) -> Wanted:
        """UsageError for what is not an argument."""
        if isinstance(log_ratio, bool) or not isinstance(log_ratio, int | float) or not 0 <= log_ratio < float("inf"):
            raise UsageError(f"log_ratio takes bytes of logs by bytes of base files, such as 0.1, and not {quoted(log_ratio)}")
        if type(small_files) is not int or small_files < 1:
            raise UsageError(f"small_files takes how many small files are worth a clustering, 1 or more, and not {quoted(small_files)}")
        if type(keep) is not int or keep < 1:
            raise UsageError(f"keep takes how many completed writes stay on the timeline, 1 or more, and not {quoted(keep)}")
        return cls(float(log_ratio), small_files, seconds(keep_for, "keep_for"), keep, limit_of(time_limit))


@dataclasses.dataclass(frozen=True)
class Maintaining:
    """A call that maintains a table."""

    table: Services
    options: Any = dataclasses.field(repr=False)
    wanted: Wanted
    spark: Any
    progress: Any

    def _store(self) -> Store:
        return connect(marked(self.table.url), self.options)

    def due(self) -> dict[str, str]:
        """The services that are due, and why; by listings and the log."""
        return dict(self._due())

    def _due(self) -> Iterator[tuple[str, str]]:
        store = self._store()
        has, _ = opened(store)
        log, wanted = protocol.recover(store), self.wanted
        line = timeline.current(store)
        if has.type == config.MERGE_ON_READ:
            stats = health.stats(store, line, self.table.url)
            if pending := line.compactions():
                yield COMPACT, f"{len(pending):,} plan{'s are' if len(pending) > 1 else ' is'} pending"
            elif stats.logs and stats.log_bytes >= wanted.log_ratio * stats.bytes:
                yield COMPACT, f"logs have {stats.log_ratio:.0%} of the bytes of base files, and may have {wanted.log_ratio:.0%}"
        if not indexes.named(indexes.of(has)).computes:  # else the key says the file group
            foreseen = self.table.cluster(dry_run=True, progress=False)
            if unfinished(store, log):
                yield CLUSTER, "a clustering has begun, and has not ended"
            elif foreseen.file_groups >= wanted.small_files:
                yield CLUSTER, f"{foreseen.file_groups:,} small files ({format_size(foreseen.read)}) can become fewer"
        keep = cleaning.keep_of({"keep_for": wanted.keep_for})
        dead = retention.dead(store, line, keep, line.savepoints, cleaning.pinned(log))
        if dead.files:
            yield CLEAN, f"{dead.slices:,} slices ({format_size(dead.size)}) were superseded more than {wanted.keep_for:,.0f} s ago"
        writes, stay = len(line.completed), self._stay(line)
        if writes > SLACK * stay and any(each.time < archive.stop(log, line, stay).horizon for each in line.completed):
            yield ARCHIVE, f"{writes:,} writes are on the timeline, and {stay:,} stay"

    def _stay(self, line: Timeline) -> int:
        """How many writes stay on the timeline."""
        since = cleaning.keep_of({"keep_for": self.wanted.keep_for}).since
        return max(self.wanted.keep, sum(each.time >= since for each in line.completed) if self.wanted.younger else 0)

    def plan(self) -> MaintenanceReport:
        """The report of a dry run."""
        began = time.monotonic()
        return MaintenanceReport(self.table.url, self.due(), dry_run=True, seconds=time.monotonic() - began)

    def run(self, due: Mapping[str, str] | None = None, limit: float | None = None) -> MaintenanceReport:
        """Do what is due; what one service refuses hinders no other. `due` and `limit` are those of a loop."""
        began, due = time.monotonic(), self.due() if due is None else due
        limit = min((each for each in (self.wanted.limit, limit) if each is not None), default=None)
        done, hindered, left = carry_out(due, self._services(), limit, began)
        return MaintenanceReport(
            self.table.url, due, hindered, left, compaction=done.get(COMPACT), clustering=done.get(CLUSTER), clean=done.get(CLEAN),
            archive=done.get(ARCHIVE), seconds=time.monotonic() - began,
        )  # fmt: skip

    def _services(self) -> dict[str, Callable[[float | None], Any]]:
        table, wanted = self.table, self.wanted
        return {
            COMPACT: lambda limit: table.compact(time_limit=limit, spark=self.spark, progress=self.progress),
            CLUSTER: lambda limit: table.cluster(time_limit=limit, spark=self.spark, progress=self.progress),
            CLEAN: lambda _: table.clean(keep_for=wanted.keep_for, progress=self.progress),
            ARCHIVE: lambda _: table.archive(keep=self._stay(timeline.current(self._store())), progress=self.progress),
        }

    def repeat(self, times: Again) -> MaintenanceReport:
        """Run once, or again and again: what goes wrong in a run is told, and the next one tries again. The last report."""
        return repeat(self.run, lambda why: MaintenanceReport(self.table.url, hindered={"all": why}), times, self.progress, self.table.url)
