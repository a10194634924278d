"""The calls that look after a table; `Table` has them beside its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quire.arguments import flag
from quire.engine.loop import again
from quire.errors import UsageError, quoted
from quire.interrupts import interruptible
from quire.progress import Progress, ProgressEvent
from quire.spark.runner import LocalRunner, runner_of
from quire.storage import Store, connect
from quire.storage.within import marked
from quire.table import doctor, restoring, upkeep
from quire.table.cluster import Clustering, ClusterReport
from quire.table.cluster import Wanted as LayOut
from quire.table.compacting import Compacting, CompactionReport, Strategy, Wanted
from quire.table.doctor import OLD
from quire.table.format import names
from quire.table.format.config import TableConfig
from quire.table.maintaining import Maintaining, MaintenanceReport
from quire.table.maintaining import Wanted as Wants
from quire.table.restoring import RestoreReport
from quire.table.rounds import RESTORE, ROLLBACK
from quire.table.service import Service
from quire.table.upkeep import ArchiveReport, CleanReport

if TYPE_CHECKING:
    import pandas as pd

Watched = bool | Callable[[ProgressEvent], object]  # how a call shows its progress


class Services:
    """Calls about a table as a whole, beside whoever reads and writes."""

    url: str
    config: TableConfig
    _options: Mapping[str, Any] | None
    _instant: str

    @property
    def _store(self) -> Store:
        return connect(self.url, self._options)

    @interruptible
    def compact(
        self, *, schedule: bool = True, time_limit: str | float | None = None, strategy: str | Strategy = "log_size",
        plan_size: str | int = "4 GiB", spark: Any = None, progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> CompactionReport:  # fmt: skip
        """Write the base files of a merge-on-read table anew with what their logs say, beside whoever writes.

            report = table.compact(time_limit="10 min")

        Plans that are pending are carried out, whoever has laid them. Then each file group that has logs comes into a plan, and that is
        carried out.

        schedule    False: carry out pending plans alone
        time_limit  begin nothing more after so long ("10 min", or seconds); a plan under way is finished
        strategy    which file groups come first: "log_size" (bytes of logs), "logs" (how many), "oldest" (base file), or a function that
                    takes a list of `Candidate`s and returns those to compact, the most urgent first
        plan_size   bytes of base files and logs that one plan reads at most
        spark       the session (default: `quire.session()`), or `quire.LocalRunner()`
        progress    True: bars | False | function(step), as in `quire.consolidate`

        Each task holds the logs of a file group in memory. Returns a `CompactionReport`. Raises RefusedError for a copy-on-write table, and
        where another program writes, or compacts, at the same time; UsageError for a strategy that returns what it was not given.
        """
        return self._compacting(Wanted.of(strategy, plan_size, time_limit), spark, progress).compact(schedule=flag(schedule, "schedule"))

    @interruptible
    def schedule_compaction(self, *, strategy: str | Strategy = "log_size", plan_size: str | int = "4 GiB") -> CompactionReport:
        """Lay one plan of a compaction, which `compact`, or another program, carries out; new logs belong to the slices that it begins.

            report = table.schedule_compaction(strategy="oldest")

        `strategy` and `plan_size` are those of `compact`. Returns a `CompactionReport`, whose `scheduled` is empty where nothing has logs.
        Raises RefusedError for a copy-on-write table, and where another program is writing.
        """
        return self._compacting(Wanted.of(strategy, plan_size), LocalRunner(), False).schedule()

    def _compacting(self, asked: Wanted, spark: Any, progress: Any) -> Compacting:
        if self._instant:
            raise UsageError(f"{self.url} as of {self._instant} is read, not compacted. Open it with quire.Table.")
        to = marked(self.url)
        return Compacting(to, self._options, runner_of(spark, connect(to, self._options)), Progress(progress), asked=asked)

    @interruptible
    def cluster(
        self, *, sort: str | Sequence[str] | None = None, curve: str = "linear", partitions: Any = None,
        time_limit: str | float | None = None, plan_size: str | int = "1 GiB", dry_run: bool = False, spark: Any = None,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> ClusterReport:  # fmt: skip
        """Lay rows out anew in fewer, larger files, sorted by columns or along a curve, beside whoever writes; no row changes.

            table.cluster()
            report = table.cluster(sort=["city", "ts"], curve="hilbert")

        Small files of a partition become files of the table's target size. With `sort` all files are sorted, too, that are not yet.

        sort        a column, or several: readers that ask for few of their values pass over most row groups. Default: as the newest
                    clustering had it, else by record keys, which makes upserts look into fewer files
        curve       "linear": by the first column, then by the next; "z-order" or "hilbert": by all of them alike
        partitions  cluster these alone, named as in `delete_partitions`
        time_limit  begin nothing more after so long ("10 min", or seconds)
        plan_size   bytes of files that one job reads at most, and sorts together; of small files it reads two at least
        dry_run     True: do nothing, and say what would be clustered
        spark       the session (default: `quire.session()`), or `quire.LocalRunner()`
        progress    True: bars | False | function(step), as in `quire.consolidate`

        A writer that changes one of these files meanwhile comes first, and its job is repeated. Older instants keep the old files, until
        `clean`. Returns a `ClusterReport`. Raises UsageError for a column that is not there, or that has no order; RefusedError for a table
        with the index "bucket", and where another program is writing.
        """
        self._check_newest()
        asked = LayOut.of(sort, curve, partitions, plan_size, time_limit)
        to = marked(self.url)
        runner = LocalRunner() if flag(dry_run, "dry_run") else runner_of(spark, connect(to, self._options))
        call = Clustering(to, self._options, runner, Progress(progress), asked=asked)
        return call.plan() if dry_run else call.cluster()

    @interruptible
    def clean(
        self, *, keep_for: str | float | None = None, versions: int | None = None, dry_run: bool = False,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> CleanReport:  # fmt: skip
        """Delete the files of slices that later ones have superseded, beside whoever reads and writes.

            report = table.clean(keep_for="7 days", dry_run=True)

        keep_for    the table stays readable as of each instant of so long ("24 h", or seconds; default: 24 hours)
        versions    or: so many slices of each file group stay, the newest among them
        dry_run     True: delete nothing, and say what would be deleted
        progress    True: bars | False | function(step), as in `quire.consolidate`

        The newest slice of a file group always stays, and so does what a savepoint or a pin of the ledger holds. Readers of older slices
        should be done by then. Returns a `CleanReport`. Raises UsageError for other arguments, RefusedError for a table that quire may not
        write.
        """
        return upkeep.clean(self._service("cleaned", progress), keep_for, versions, dry_run=flag(dry_run, "dry_run"))

    @interruptible
    def maintain(
        self, *, log_ratio: float = 0.1, small_files: int = 20, keep_for: str | float = "24 h", keep: int = 100,
        time_limit: str | float | None = None, every: str | float | None = None, max_runs: int | None = None,
        outage: str | float | None = None, dry_run: bool = False, spark: Any = None,
        progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> MaintenanceReport:  # fmt: skip
        """Do what is due at the table, beside whoever reads and writes: `compact`, then `cluster`, `clean` and `archive`.

            table.maintain(dry_run=True).due
            table.maintain(every="10 min", time_limit="5 min")

        log_ratio        compact a merge-on-read table once logs have so many times the bytes of base files
        small_files      cluster once so many small files can become fewer; rows are sorted as the newest `cluster` has sorted them
        keep_for         clean what was superseded so long ago ("24 h", or seconds): the table stays readable as of instants since then
        keep             archive all but so many completed writes, once half as many more are on the timeline
        time_limit       begin nothing more after so long in a run ("10 min", or seconds)
        every, max_runs  again and again, "10 min" apart, until a signal or `max_runs`; a run that fails is told, and the next tries again
        outage           how long the store may be away before the call ends, "1 h": as in `quire.consolidate`
        dry_run          True: do nothing, and say what is due
        spark            the session of compactions and clusterings (default: `quire.session()`), or `quire.LocalRunner()`
        progress         True: bars | False | function(step), as in `quire.consolidate`

        A service that is refused, as while another program writes, hinders no other one, and is named in the report. Returns a
        `MaintenanceReport`. Raises UsageError for wrong arguments, RefusedError for a table that quire may not write.
        """
        self._check_newest()
        wanted, times = Wants.of(log_ratio, small_files, keep_for, keep, time_limit), again(every, max_runs, outage)
        work = Maintaining(self, self._options, wanted, spark, progress)
        return work.plan() if flag(dry_run, "dry_run") else work.repeat(times)

    @interruptible
    def archive(self, *, keep: int = 30, dry_run: bool = False, progress: Watched = True) -> ArchiveReport:
        """Take the oldest instants off the timeline into an archive, so that opening the table stays quick; no row and no file goes.

            report = table.archive(keep=100, dry_run=True)

        keep      so many completed writes stay: the table cannot be read as of older instants, nor give changes since them
        dry_run   True: archive nothing, and say what would be archived
        progress  True: bars | False | function(step), as in `quire.consolidate`

        An instant stays that a savepoint or a pin holds, that has not completed, or of which files are there that nobody may read any
        more (`clean` deletes those of replaced file groups). Returns an `ArchiveReport`, whose `held_by` says why no more have gone.
        Raises UsageError for another `keep`, RefusedError for a table that quire may not write.
        """
        return upkeep.archived(self._service("archived", progress), keep, dry_run=flag(dry_run, "dry_run"))

    @interruptible
    def savepoint(self, instant: str | None = None, *, comment: str = "") -> str:
        """Hold the table as it was at an instant (default: the newest): no clean takes its files until `delete_savepoint`.

            before = table.savepoint(comment="before the repair of fares")
            table.delete_savepoint(before)

        `instant` is that of a completed write, as reports give it; `comment` says why it is held. A second savepoint of it changes nothing.
        Returns the instant, for `as_of`. Raises UsageError for an instant without such a write, RefusedError if a clean has taken some of
        its files.
        """
        at = None if instant is None else _exact(instant)
        return upkeep.savepoint(self._service("held", False), at, comment)

    def savepoints(self) -> pd.DataFrame:
        """The savepoints, the oldest first.

            table.savepoints().tail()

        Returns a pandas DataFrame with the columns `instant`, `comment`, `made` (UTC) and `by`.
        """
        return upkeep.savepoints(self._store, self.config.timeline or names.FOLDER)

    @interruptible
    def delete_savepoint(self, instant: str) -> None:
        """Let the next clean take what a savepoint has held.

            table.delete_savepoint(before)

        `instant` is that of the savepoint. Raises UsageError where there is none.
        """
        upkeep.delete_savepoint(self._service("changed", False).store, _exact(instant))

    @interruptible
    def rollback(self, instant: str | None = None, *, progress: Watched = True) -> RestoreReport:
        """Take one write back, as if it had never been: its rows and files go, and what it has read is processed again.

            report = table.rollback()
            table.rollback("20261122093015123")

        instant   of the write (default: the newest). No later write may be in the same partitions: `restore` takes several back
        progress  True: bars | False | function(step), as in `quire.consolidate`

        The splits of a load leave the ledger, so the next call loads them again, and a batch can be committed again by its name. With
        `instant`, a second call changes nothing. Returns a `RestoreReport`. Raises UsageError for an instant without a write, RefusedError
        where a later write, a pending compaction, a savepoint or a pin needs it, or a clean has taken what it had superseded.
        """
        return restoring.take_back(self._service("rolled back", progress), ROLLBACK, None if instant is None else _exact(instant))

    @interruptible
    def restore(self, instant: str, *, progress: Watched = True) -> RestoreReport:
        """Take back every write after an instant, so that the table is what it was then.

            before = table.savepoint(comment="before the repair of fares")
            report = table.restore(before)

        instant   of a write, as reports and savepoints give it: all of its files have to be there
        progress  True: bars | False | function(step), as in `quire.consolidate`

        The later writes and their files are gone for good; the ledger forgets what they have read, as `rollback` says. Returns a
        `RestoreReport`. Raises UsageError for an instant without a write, RefusedError where it was cleaned or archived, or a later
        savepoint or a pin holds what would go.
        """
        return restoring.take_back(self._service("restored", progress), RESTORE, _exact(instant))

    def _service(self, done: str, progress: Any) -> Service:
        if self._instant:
            raise UsageError(f"{self.url} as of {self._instant} is read, not {done}. Open it with quire.Table.")
        return Service(marked(self.url), self._options, LocalRunner(), Progress(progress))

    @interruptible
    def remove_leftovers(self, *, older_than: str | float = OLD) -> int:
        """Delete files of writes that never completed, where the timeline knows nothing of these.

        older_than   how long ago a file was written, at least: another program that is asleep could complete its write yet

            table.remove_leftovers(older_than="7 days")

        `doctor` lists them. No reader counts them, and an archive stops before them. Returns how many were deleted. Raises RefusedError for
        a table that quire does not write.
        """
        self._check_newest()
        return doctor.remove_leftovers(self, self._options, older_than)

    def _check_newest(self) -> None:
        if self._instant:
            raise UsageError(f"{self.url} as of {self._instant} is read, not written. Open it with quire.Table to write.")


def _exact(instant: str) -> str:
    """An instant of a write, as its name has it."""
    check_instant(instant, "instant")
    return instant


def check_instant(instant: str, argument: str) -> str:
    """An instant that a user gives; of seconds, the last moment."""
    if not isinstance(instant, str) or not instant.isascii() or not instant.isdigit() or len(instant) not in (14, 17):
        raise UsageError(f"{argument} takes an instant of the timeline, as '20261122103000000' (UTC), and not {quoted(instant)}")
    return instant.ljust(17, "9")
