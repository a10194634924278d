"""The upkeep of a destination: small files are merged, old versions end, the ledger is merged, and old entries of the log are archived.

what is due (the log alone) → each service, while there is time → report; of a loop after a run, as far as it has a tenth of the time
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from quire.arguments import flag, format_size, parse_target, seconds
from quire.commit import archiving, protocol, retire
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.engine import outages
from quire.engine.closers import sorting
from quire.engine.loop import Again, again
from quire.engine.maintenance import Maintenance, carry_out, limit_of, repeat
from quire.engine.report import Report
from quire.engine.request import Request
from quire.errors import QuireError, UsageError, about, choose, quoted
from quire.interrupts import all_interruptible
from quire.ledger import compact
from quire.ledger.expire import ExpireReport, expire, swept
from quire.ledger.job import Changed, Dest
from quire.planning.rewriting import live_files
from quire.progress import Progress, ProgressEvent
from quire.spark.runner import Runner, runner_of
from quire.storage import Store, plain
from quire.storage.within import is_table
from quire.table.maintaining import Maintaining as MaintainingTable
from quire.table.maintaining import Wanted as OfTable
from quire.table.table import Table

COMPACT, CHECKPOINT, EXPIRE, ARCHIVE = "compact", "checkpoint", "expire", "archive"
VERSIONS = 1_000  # that can end are worth a look at all that is there
TASKS = 8  # of a job that merges files, or one for each core: so long it takes until the time is looked at
SHARE = 0.1  # of a loop's time, for its upkeep
SETTINGS = ("small_files", "small_share", "target_size", "sort_by", "grace", "time_limit", "log_ratio", "keep")  # of `maintain=`
LOOK = 3600.0  # seconds until a loop looks again, also where it has committed little


@dataclasses.dataclass(frozen=True, repr=False)
class UpkeepReport(Maintenance):
    """The result of a call that maintains a destination.

    dest        the destination
    due         what was due when it began: "compact", "checkpoint", "expire", "archive", each with the reason
    compaction  the `Changed` of all small files that were merged; None: nothing was due
    checkpoint  the version that the new checkpoint stands for; 0: none was due
    expired     the `ExpireReport`, as of `Ledger.expire`
    archived    how many entries of the log have moved into its archive
    hindered    what was due and could not be done, each with the reason: the next call tries again
    left        what was due and was not begun, or not ended, as the time was over
    dry_run     nothing was done
    seconds     how long it took
    gaps        outages that the call has outlived, each a `quire.Gap`, and `gap_count`, as in `quire.Report`

        report = ledger.maintain(dry_run=True)
        print(report), report.due, json.dumps(report.as_dict())
    """

    compaction: Changed | None = None
    checkpoint: int = 0
    expired: ExpireReport | None = None
    archived: int = 0

    def _done(self) -> Mapping[str, object]:
        rows = dict[str, object]()
        if self.compaction is not None:
            done = self.compaction
            files = f"{done.removed:,} data files ({format_size(done.removed_bytes)}, {done.removed_records:,} records)"
            rows["compacted"] = f"{files}, which became {done.written:,}"
        if self.checkpoint:
            rows["checkpoint"] = f"stands for version {self.checkpoint:,}"
        if self.expired is not None:
            rows["expired"] = f"versions before {self.expired.before_version:,}; {self.expired.data_files:,} data files are deleted"
            rows["segments and checkpoints"] = f"{self.expired.merged:,} are deleted"
        if self.archived:
            rows["archived"] = f"{self.archived:,} entries of the log"
        return rows


class Budget:
    """The time that upkeep has beside a call: a share of the call's own, whatever number of destinations it has."""

    def __init__(self) -> None:
        self._last, self._time, self.spent = outages.clock(), 0.0, 0.0

    def tick(self) -> float:
        """The time of the clock, from which the call's is counted on."""
        now = outages.clock()
        self._time += max(0.0, now - self._last)  # a clock may be set back
        self._last = now
        return now

    @property
    def spare(self) -> float:
        """Seconds that are left."""
        return SHARE * self._time - self.spent


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The arguments of a call, checked: spans in seconds, sizes in bytes (0: that of the last run).

    table   how the files of a table are maintained beside a loop
    """

    small_files: int = 20
    small_share: float = 0.1
    target: int = 0
    order: tuple[str, ...] = ()
    grace: float = checkpoint.GRACE
    limit: float | None = None
    table: OfTable = dataclasses.field(default_factory=lambda: OfTable(0.1, 20, checkpoint.GRACE, 100, None, younger=True))
    budget: Budget = dataclasses.field(default_factory=Budget, compare=False, repr=False)

    @classmethod
    def of(
        cls, small_files: int = 20, small_share: float = 0.1, target_size: str | int | None = None, grace: str | float = "1 day",
        time_limit: str | float | None = None, sort_by: Any = None, log_ratio: float = 0.1, keep: int = 100,
    ) -> Wanted:  # fmt: skip
        """UsageError for what is not an argument."""
        if type(small_files) is not int or small_files < 2:
            raise UsageError(f"small_files takes how many small files are worth a compaction, 2 or more, and not {quoted(small_files)}")
        if isinstance(small_share, bool) or not isinstance(small_share, int | float) or not 0 <= small_share < float("inf"):
            raise UsageError(f"small_share takes small files by data files, such as 0.1, and not {quoted(small_share)}")
        target = 0 if target_size is None else parse_target(target_size)
        order = () if sort_by is None else sorting.sorting(sort_by, target).columns
        span = seconds(grace, "grace")
        table = dataclasses.replace(OfTable.of(log_ratio, small_files, span, keep, None), younger=True)
        return cls(small_files, float(small_share), target, order, span, limit_of(time_limit), table)


@dataclasses.dataclass(frozen=True)
class Maintaining:
    """A call that maintains the destination `dest`."""

    dest: Dest
    wanted: Wanted

    def due(self, log: Log | None = None) -> dict[str, str]:
        """The services that are due, and why: by the log, after what dead calls have left is gone, or as it is given."""
        store = self.dest.store()
        return dict(self._due(store, protocol.recover(store) if log is None else log.refresh()))

    def _due(self, store: Store, log: Log) -> Iterator[tuple[str, str]]:
        before, files = log.expired(), not is_table(store)  # of a table's files its own services take care
        if files and (why := self._small(log)):
            yield COMPACT, why
        if files and log.tip - before >= VERSIONS and (gone := retire.expiring(log, self.wanted.grace) - before) >= VERSIONS:
            yield EXPIRE, f"{gone:,} versions are older than what is kept"
        elif merged := checkpoint.outdated(log, self.wanted.grace):
            yield EXPIRE, f"{merged:,} checkpoints, and what they have merged, are older than what is kept"
        if checkpoint.due(log):
            yield CHECKPOINT, f"{log.tip - log.merged:,} entries since the last one"
        if entries := archiving.due(log):
            yield ARCHIVE, f"{entries:,} entries of the log are older than what is kept"

    def _small(self, log: Log) -> str:
        """Why small files are worth a compaction; "": they are not."""
        if log.saying() is None:
            return ""
        version = log.settled_version()
        live = live_files(log, version)
        groups = compact.mergeable(log, version, self._target(log), live.values(), held=bool(self.wanted.order))
        before = sum(len(files) for _, files in groups)
        size, target = sum(sum(files.values()) for _, files in groups), self._target(log)
        saved = before - max(len(groups), size // target)
        if before < self.wanted.small_files or saved <= self.wanted.small_share * (len(live) - saved):
            return ""
        return f"{before:,} of {len(live):,} data files are small ({format_size(size)}), and can become {before - saved:,}"

    def _target(self, log: Log) -> int:
        return self.wanted.target or log.target() or 256 << 20

    def plan(self) -> UpkeepReport:
        """The report of a dry run."""
        began = time.monotonic()
        return UpkeepReport(self.dest.url, self.due(), dry_run=True, seconds=time.monotonic() - began)

    def run(self, due: Mapping[str, str] | None = None, limit: float | None = None) -> UpkeepReport:
        """Do what is due; what one service refuses hinders no other. `due` and `limit` are those of a loop."""
        began, due = time.monotonic(), self.due() if due is None else due
        limit = min((each for each in (self.wanted.limit, limit) if each is not None), default=None)
        done, hindered, left = carry_out(due, self._services(left_over := list[str]()), limit, began)
        return UpkeepReport(
            self.dest.url, due, hindered, (*left, *left_over), compaction=done.get(COMPACT), checkpoint=done.get(CHECKPOINT, 0),
            expired=done.get(EXPIRE), archived=done.get(ARCHIVE, 0), seconds=time.monotonic() - began,
        )  # fmt: skip

    def _services(self, left: list[str]) -> dict[str, Callable[[float | None], Any]]:
        store = self.dest.store()

        def merged(limit: float | None) -> Changed:
            goes_on, found, most = _until(limit), list[Changed](), max(TASKS, self.dest.runner.parallelism)
            log = self.dest.log()
            while not found or (found[-1].jobs and self._small(log := self.dest.log())):
                if found and not goes_on():
                    left.append(COMPACT)
                    break
                found.append(compact.compact(self.dest, self._target(log), most=most, sort_by=self.wanted.order))
            return _sum(found)

        def archived(limit: float | None) -> int:
            log = self.dest.log()
            moved = archiving.move(log, _until(limit))
            if archiving.due(log):
                left.append(ARCHIVE)
            return moved

        def checkpointed(_: float | None) -> int:
            found = checkpoint.write(self.dest.runner, self.dest.url, self.dest.options, store)
            return found.version if found else 0

        def expired(_: float | None) -> ExpireReport:
            if is_table(store):
                return swept(store, self.wanted.grace)
            return expire(store, retire.expiring(self.dest.log(), self.wanted.grace), self.wanted.grace)

        return {COMPACT: merged, CHECKPOINT: checkpointed, EXPIRE: expired, ARCHIVE: archived}

    def repeat(self, times: Again) -> UpkeepReport:
        """Run once, or again and again: what goes wrong in a run is told, and the next one tries again. The last report."""
        return repeat(self.run, lambda why: UpkeepReport(self.dest.url, hindered={"all": why}), times, self.dest.bars.show, self.dest.url)


def _until(limit: float | None) -> Callable[[], bool]:
    end = None if limit is None else time.monotonic() + limit
    return lambda: end is None or time.monotonic() < end


def _sum(found: list[Changed]) -> Changed:
    """The changes of several jobs, one after the other."""
    kinds = [f"{which}{what}" for which in ("removed", "written") for what in ("", "_bytes", "_records")]
    counts = (*kinds, "carried", "superseded")
    sums = {name: sum(getattr(each, name) for each in found) for name in counts}
    return dataclasses.replace(
        found[-1], jobs=tuple(job for each in found for job in each.jobs), seconds=sum(each.seconds for each in found), **sums
    )  # fmt: skip


class Upkeep:
    """The upkeep beside a loop, by its name (see `engine.upkeep`)."""

    def wanted(self, maintain: object, *, loops: bool) -> Wanted | None:
        """The settings of `maintain=`: True, False, or a few; left out it is True of a loop."""
        if maintain is None or isinstance(maintain, bool):
            return Wanted() if (loops if maintain is None else maintain) else None
        with about("maintain"):
            if not isinstance(maintain, Mapping):
                raise UsageError(
                    f"maintain takes True, False, or a mapping with some of {', '.join(SETTINGS)}, and not {quoted(maintain)}."
                )
            for key in maintain:
                choose(key, SETTINGS, "key of maintain")
            return Wanted.of(**maintain)

    def beside(self, wanted: Wanted, request: Request, runner: Runner, bars: Progress) -> Beside:
        """The work after each run."""
        return Beside(request, runner, bars, wanted)


class Beside:
    """The upkeep of a call that runs again and again: after a run, where enough was committed since the last look.

    It is given a tenth of the time that the call has taken. Whatever goes wrong in it is told, in the progress and in the report, and the
    run stands.
    """

    def __init__(self, request: Request, runner: Runner, bars: Progress, wanted: Wanted) -> None:
        dest = Dest(request.dest, request.dest_options, runner, bars, request.identity.committer, held=request.held)
        self._work, self._bars = Maintaining(dest, wanted), bars
        self._budget = wanted.budget
        self._looked, self._jobs = float("-inf"), 0
        self._left = True  # whether something may be due that no commit of this call will tell of: a call before it may have died
        self._told = tuple[str, ...]()

    def __call__(self, report: Report) -> Report:
        """The report of a run, with what upkeep could not do since the last time that it was tried."""
        self._jobs += len(report.jobs)
        now = self._budget.tick()
        if self._looked > now:
            self._looked = float("-inf")  # the clock was set back
        enough = self._jobs >= self._work.wanted.small_files or (self._jobs and now - self._looked >= LOOK)
        if (enough or self._left) and not self._bars.stopping and self._budget.spare > 0:
            self._jobs, self._looked, self._left = 0, now, False
            self._told = self._tried()
        return dataclasses.replace(report, upkeep=self._told) if self._told else report

    def _tried(self) -> tuple[str, ...]:
        hindered = list[str]()
        for look in (self._of_files, self._of_log):  # which look anew, as each changes what there is
            began = time.monotonic()
            try:
                if (found := look()) is not None:
                    self._left = self._left or bool(found.left)
                    hindered += [f"{name}: {why}" for name, why in found.hindered.items()]
            except Exception as e:  # whatever it is: the run that came before has gone well
                hindered.append(str(e) if isinstance(e, QuireError) else f"{type(e).__name__}: {e}")
            finally:
                self._budget.spent += time.monotonic() - began
        for why in hindered:
            self._bars.say(f"upkeep was hindered: {why} The run stands, and the next upkeep tries again.", always=True)
        return tuple(hindered)

    def _of_files(self) -> Maintenance | None:
        """The upkeep of a table's files, and of its timeline; None: nothing is due."""
        dest = self._work.dest
        if not is_table(dest.store()):
            return None
        table = Table(plain(dest.url), storage_options=dest.options)
        work = MaintainingTable(table, dest.options, self._work.wanted.table, dest.runner, False)
        return work.run(due, self._rest) if (due := work.due()) else None

    def _of_log(self) -> Maintenance | None:
        """The upkeep of all else."""
        due = self._work.due(self._work.dest.log())
        return self._work.run(due, self._rest) if due else None

    @property
    def _rest(self) -> float:
        """Seconds that are left: some, as what is due is told where it cannot be done."""
        return max(0.001, self._budget.spare)


@all_interruptible
class Maintained:
    """The upkeep of a ledger's destination."""

    _url: str
    _options: Mapping[str, Any] | None
    _store: Store

    def refresh(self) -> Any:
        """Read the log to its tip."""
        raise NotImplementedError

    def maintain(
        self, *, small_files: int = 20, small_share: float = 0.1, target_size: str | int | None = None, sort_by: Any = None,
        grace: str | float = "1 day", time_limit: str | float | None = None, every: str | float | None = None,
        max_runs: int | None = None, outage: str | float | None = None, dry_run: bool = False, spark: Any = None, committer: str = "auto",
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> UpkeepReport:  # fmt: skip
        """Do what is due at the destination, beside whoever reads and writes. Loops (`every=`) do it by themselves, so this is for cron.

            ledger.maintain(dry_run=True).due
            ledger.maintain(time_limit="10 min")

        "compact" merges small files into files of `target_size`, "expire" ends versions that are older than what is kept and deletes what
        only they need, "checkpoint" merges the ledger, "archive" moves entries of the log that no version needs into objects of ten
        thousand. For a table, the last two: `Table.maintain` does the rest.

        small_files   compact once so many small files can become fewer,
        small_share   and these are more than so many times the others
        target_size   of a data file; left out: that of the last run
        sort_by       sorts the rows of each file that it writes, as in `compact`
        grace         versions that were the newest one within this time stay readable, and so do those that pins and exports hold, or
                      `keep_versions` keeps
        time_limit    begin nothing more after so long in a run ("10 min", or seconds)
        every, max_runs  again and again, "10 min" apart, until a signal or `max_runs`; a run that fails is told, and the next tries again
        outage        how long the store may be away before the call ends, "1 h": as in `quire.consolidate`
        dry_run       True: do nothing, and say what is due
        spark, committer, progress   as in `quire.consolidate`

        A service that is refused, or that a store cannot do, hinders no other, and is named in the report; the next call goes on with one
        that was killed. Returns an `UpkeepReport`. Raises UsageError for wrong arguments.
        """
        wanted, times = Wanted.of(small_files, small_share, target_size, grace, time_limit, sort_by), again(every, max_runs, outage)
        work = Maintaining(Dest(self._url, self._options, runner_of(spark, self._store), Progress(progress), committer), wanted)
        found = work.plan() if flag(dry_run, "dry_run") else work.repeat(times)
        self.refresh()
        return found
