"""The calls that take writes of a table back: a rollback of one, and a restore to an instant, after which all that came later is gone.

take up the open job of the same call, or freeze a new one → close it in rounds (`taking_back`) → the ledger drops its splits → report
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

from quire import display
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import TABLE, UNSAID, Commit, PlanHead
from quire.commit.log import Log
from quire.engine.take_up import Identity, with_state
from quire.errors import UsageError
from quire.storage import plain
from quire.table import rounds, taking_back, timeline
from quire.table.rounds import BACK, CLUSTER, ROLLBACK, Round
from quire.table.service import Service
from quire.table.settings import opened
from quire.table.taking_back import NothingToTakeBack
from quire.table.write.commit import COMPACT
from quire.table.writing import SPEC


@dataclasses.dataclass(frozen=True, repr=False)
class RestoreReport(display.Shown):
    """The result of a call that takes writes of a table back.

    dest               the table
    instant            of the rollback or the restore, on the table's timeline; "" where nothing was to be taken back
    taken_back         the instants of the writes that are gone, the newest first
    files              how many base files and logs were deleted
    batches            how many of these writes were frames of a caller's: they can be committed again, also by name
    splits             how many splits (pieces of files, ranges of offsets, commits of another table) will be processed again,
    source_files       of so many files, where they are of files,
    records            and how many rows they had brought
    version, seconds   the log's number at the end; how long it took

        report = table.restore(instant)
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    instant: str = ""
    taken_back: tuple[str, ...] = ()
    files: int = 0
    batches: int = 0
    splits: int = 0
    source_files: int = 0
    records: int = 0
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"RestoreReport(taken_back={len(self.taken_back)}, files={self.files:,}, batches={self.batches:,}, splits={self.splits:,}, "
            f"records={self.records:,}, seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        shown = ", ".join(self.taken_back[:3]) + (f" and {len(self.taken_back) - 3:,} more" if len(self.taken_back) > 3 else "")
        rows: dict[str, object] = {"taken back": shown or "nothing", "files deleted": f"{self.files:,}"}
        if self.splits:
            rows["will be processed again"] = f"{self.splits:,} splits of {self.source_files:,} files, {self.records:,} records"
        if self.batches:
            rows["can be committed again"] = f"{self.batches:,} batches"
        return rows | {"version": self.version, "seconds": f"{self.seconds:.1f}"}


def take_back(service: Service, operation: str, instant: str | None) -> RestoreReport:
    """See `Table.rollback` and `Table.restore`."""
    began = time.monotonic()
    opened(service.store)
    with with_state("Call again: it completes what is committed."):
        begun = _unpublished(Log(service.store).refresh(), operation)
        service.log = protocol.recover(service.store)
        if instant is None and begun:  # a call that died: to take back the newest write now would be one too many
            return _report(service, began, begun[-1])
        at = instant if instant is not None else _newest(service)
        if operation == ROLLBACK and _taken_before(service.log, at):
            return _report(service, began, None)
        identity = Identity(
            {"verb": operation, "operation": operation, "dest": service.dest, "instant": at}, SPEC, choice("auto", service.store),
            closer=TABLE, empty=UNSAID,
        )  # fmt: skip

        def plan(log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
            taking_back.going(log, timeline.current(service.store), operation, at)  # what is refused leaves no job
            return identity.head(log.tip, objects.new_id(), 0), None

        try:
            done = service.run(identity, plan, operation, keep=False)
        except NothingToTakeBack:
            done = None
        if done is not None:
            taking_back.check_done(service.store, rounds.round_of(done.tasks[-1]))
            service.log = protocol.recover(service.store)  # from here on the ledger is without what was taken back
    return _report(service, began, done)


def _newest(service: Service) -> str:
    """The newest write."""
    if not (completed := timeline.current(service.store).completed):
        raise UsageError(f"nothing has been written into {plain(service.dest)} yet: there is nothing to roll back.")
    return completed[-1].time


def _unpublished(log: Log, operation: str) -> list[Commit]:
    """The rollbacks, or restores, that are committed and have not come into effect."""
    found = (commit for commit in log.unpublished() if commit.closer == TABLE)
    return [commit for commit in found if rounds.round_of(commit.tasks[-1]).operation == operation]


def _taken_before(log: Log, instant: str) -> bool:
    """Whether a write was rolled back before, by whomever."""
    there = timeline.current(log.store).completed
    return all(each.time != instant for each in there) and any(
        time == instant and undone for time, _, undone in log.instant_rows()
    )  # fmt: skip


def _report(service: Service, began: float, done: Commit | None) -> RestoreReport:
    assert service.log is not None
    log = service.log
    report = RestoreReport(plain(service.dest), version=log.tip)
    if done is not None:
        said = rounds.round_of(done.tasks[-1])
        batches, fed = _again(log, said)
        report = dataclasses.replace(
            report, instant=said.instant, taken_back=tuple(sorted(said.taken, reverse=True)), files=said.counts.get("files", 0),
            batches=len(batches), splits=sum(task.stats.rows for commit in fed for task in commit.tasks),
            source_files=sum(task.stats.files_in for commit in fed for task in commit.tasks),
            records=sum(commit.tasks[-1].records for commit in fed),
        )  # fmt: skip
    return dataclasses.replace(report, seconds=time.monotonic() - began)


def _again(log: Log, said: Round) -> tuple[Sequence[Commit], Sequence[Commit]]:
    """The commits of quire's that were taken back: of frames, and of what the ledger knows."""
    taken = set(said.taken)
    jobs = dict.fromkeys(job for instant, job, _ in log.instant_rows() if job and instant in taken)
    commits = [commit for job in jobs if isinstance(commit := log.outcome(job), Commit)]
    writes = [commit for commit in commits if rounds.round_of(commit.tasks[-1]).operation not in (*BACK, CLUSTER, COMPACT)]
    fed = [commit for commit in writes if any(task.coverage.segment for task in commit.tasks)]
    return [commit for commit in writes if commit not in fed], fed
