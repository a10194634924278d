"""The job of a call that writes a frame into a table: `Table.upsert` and its like.

take up the batch's open job, or freeze a new one → stage the frame, once → close (`closer`) → report
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from quire import display
from quire.arguments import format_size
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import TABLE, UNSAID, Abort, Commit, Coverage, PlanHead, Spec, Stats, Task
from quire.commit.log import Log
from quire.commit.protocol import get_manifest, put_manifest
from quire.coverage import checkpoint
from quire.coverage.conflicts import TWICE
from quire.engine import job as jobs
from quire.engine.attempt import Work
from quire.engine.take_up import Identity, take_up, with_state
from quire.errors import QuireError, TransientError, UsageError, encodable, quoted
from quire.progress import Progress
from quire.sources.transforms.convert import Convert
from quire.spark.runner import Runner
from quire.storage import Patience, connect, plain
from quire.table import file_groups, replacing, rounds, timeline
from quire.table.closer import STAGED
from quire.table.settings import opened
from quire.table.view import there
from quire.table.write import stage, write
from quire.table.write.blocks import Closing

SPEC = Spec(transform="table", format="parquet", compression="zstd", layout="flat", reduce="table")
_COUNTS = {"inserts": "inserted", "updates": "updated", "deletes": "deleted", "stale": "stale", "duplicates": "duplicates"}
LONGEST = 200  # characters of a batch's name
NO_ROWS = "no rows came"
NO_TASKS = Convert("raw", "parquet", "zstd", 0, 0)  # of a job without planned tasks nobody looks at it


@dataclasses.dataclass(frozen=True, repr=False)
class TableReport(display.Shown):
    """The result of a call that wrote into a table.

    inserted, updated, deleted   rows by what happened to them; `stale` rows came too late for their key, or deleted what is not there
    duplicates                   rows that came beside a later one of the same key in one call, and were left out
    instant                      of the commit, on the table's timeline; "" where nothing changed
    dest, operation, batch       the table, and what was asked for
    data_files, written          base files and logs of the commit, and their bytes
    replaced                     file groups whose rows the commit has replaced, or taken away with their partitions
    version, seconds             the log's number at the end; how long it took
    again                        the batch was committed by an earlier call: nothing was done, and the counts are that call's

        report = table.upsert(df)
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    operation: str
    instant: str = ""
    batch: str | None = None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    stale: int = 0
    duplicates: int = 0
    data_files: int = 0
    written: int = 0
    replaced: int = 0
    again: bool = False
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        counts = "".join(f"{name}={getattr(self, name):,}, " for name in _COUNTS.values())
        return (
            f"TableReport({self.operation}, {'again=True, ' * self.again}{counts}data_files={self.data_files:,}, "
            f"seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {self.operation: f"instant {self.instant}" if self.instant else "nothing changed in the table"}
        for name in ("inserted", "updated", "deleted", "stale", "duplicates"):
            if count := getattr(self, name):
                rows[name] = f"{count:,}"
        rows["files"] = f"{self.data_files:,} ({format_size(self.written)})"
        if self.replaced:
            rows["file groups replaced"] = f"{self.replaced:,}"
        if self.batch is not None:
            rows["batch"] = self.batch + (", committed before" if self.again else "")
        return rows | {"version": self.version, "seconds": f"{self.seconds:.1f}"}


def check_batch(batch: object) -> str | None:
    """The name of a batch; UsageError for what is not one."""
    if batch is None:
        return None
    if not isinstance(batch, str) or not 0 < len(batch) <= LONGEST or not encodable(batch):
        raise UsageError(f"batch takes a name of 1 to {LONGEST} characters, as '2026-11-22', and not {quoted(batch)}")
    return batch


@dataclasses.dataclass
class Writing:
    """A call that writes a frame into the table at `dest` (the URL with a table's mark), in one commit."""

    dest: str
    options: Any = dataclasses.field(repr=False)
    operation: str
    frame: Any = dataclasses.field(repr=False)
    batch: str | None
    runner: Runner
    bars: Progress
    log: Log | None = None  # as it was read last, with the job under way
    head: PlanHead | None = None

    def run(self) -> TableReport:
        """Bring it to its end. Raises QuireError; what that says is visible, and what not."""
        with self.bars.run(self.operation, plain(self.dest)) as run:
            run.report = found = self._run()
            return found

    def _run(self) -> TableReport:
        began, store = time.monotonic(), connect(self.dest, self.options, self.bars.again)
        config, _ = opened(store)
        # A day's upserts and its deletes may have one name, and are two batches.
        batch = self.batch if self.batch is not None else f"unnamed {objects.new_id()}"
        intent = {"verb": self.operation, "operation": self.operation, "dest": self.dest, "batch": batch}
        named = intent if self.operation == rounds.DROP else None  # its plan also says which partitions
        identity = Identity(intent, SPEC, choice("auto", store), closer=TABLE, named=named, empty=UNSAID)
        with with_state(self._state):
            for losses in range(jobs.LOSSES + 1):
                taken = take_up(store, lambda _: identity, self._plan)
                self.log, self.head = taken.log, taken.head
                if self.head is None:
                    return self._report(_committed(self.log, identity), began, again=True)
                closing = Closing(self.dest, self.options, self.head.job, STAGED, objects.new_id(), self.head.committer, config)
                outcome = self._once(closing)
                checkpoint.keep_up(self.runner, self.dest, self.options, self.log, self.bars.say)
                if isinstance(outcome, Commit) and self.log.in_effect(outcome):
                    return self._report(outcome, began)
                if isinstance(outcome, Abort):
                    if outcome.why == TWICE:
                        continue
                    if outcome.why != NO_ROWS:
                        raise QuireError(f"{self.operation} into {plain(self.dest)} was given up: {outcome.why}. Nothing of it is visible.")
                    return self._report(None, began)
                jobs.check_losses(losses + 1, self.head.job, plain(self.dest))
        raise AssertionError("check_losses ends it")

    def _once(self, closing: Closing) -> Commit | Abort | None:
        """Stage the frame and close the job; its outcome."""
        assert self.log is not None
        assert self.head is not None
        try:
            if self._ready(closing):
                jobs.close(self.runner, self.log, Work(self.dest, self.options, (), self.head, NO_TASKS), [], None, self.bars)
        except (Exception, KeyboardInterrupt):
            if self.batch is None:  # nobody can go on with a frame that has no name
                with suppress(QuireError):  # what goes wrong now is not what the user should hear of
                    protocol.abort(self.log.refresh(), self.head.job, "its call failed")
            raise
        return self.log.refresh().outcome(self.head.job)

    def _ready(self, closing: Closing) -> bool:
        """Whether there is something to close: the frame is staged, and has rows."""
        assert self.log is not None
        staged = self._staged(closing)
        if staged is not None and not any(file.records for file in staged.data_files):
            protocol.abort(self.log, closing.job, NO_ROWS)
            return False
        return staged is not None

    def _plan(self, log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
        """A job of no planned tasks; None: the batch is committed."""
        return None if _committed(log, identity) else (identity.head(log.tip, objects.new_id(), 0), None)

    def _staged(self, closing: Closing) -> Task | None:
        """The staged frame, of this call or an earlier one of the batch; None: the job is over."""
        assert self.log is not None
        store, patience = self.log.store, Patience(self.bars.again)
        while (staged := get_manifest(store, closing.job, closing.task)) is None:
            if self.log.refresh().outcome(closing.job) is not None:
                return None
            try:
                now = there(timeline.current(store), closing.config)
                files, schema = stage.stage(self.runner, closing, self.frame, now, self.operation)
                done = Task(task=closing.task, attempt=closing.attempt, data_files=files, coverage=Coverage(), stats=Stats(), schema=schema)
            except BaseException as e:
                write.abort(closing, ())
                if not isinstance(e, TransientError):
                    raise
                patience.wait(e)
                closing = dataclasses.replace(closing, attempt=objects.new_id())  # what was sent before may still arrive
                continue
            if not put_manifest(store, closing.job, done):
                write.abort(closing, ())
        return staged

    def _state(self) -> str:
        """How far it has come, from the log as it was read last: the store may not answer now."""
        job = self.head.job if self.head else ""
        if self.log is not None and job and isinstance(self.log.outcome(job), Commit):
            return f"It is committed as job {job}, which recover({plain(self.dest)!r}) completes: do not call again."
        return f"Nothing of this call is visible: call again{' with the same batch to go on' if self.batch is not None else ''}."

    def _report(self, commit: Commit | None, began: float, *, again: bool = False) -> TableReport:
        assert self.log is not None
        found = TableReport(plain(self.dest), self.operation, batch=self.batch, version=self.log.tip, seconds=time.monotonic() - began)
        if commit is None:
            return found
        said = rounds.round_of(commit.tasks[-1])
        files = [file for file in commit.tasks[-1].data_files if not objects.is_changes(file.name)]
        counts: dict[str, Any] = {told: said.counts.get(name, 0) for name, told in _COUNTS.items()}
        return dataclasses.replace(
            found, operation=said.operation, instant=said.instant if rounds.leaves_instant(commit.tasks[-1]) else "", again=again,
            data_files=len(files), written=sum(file.size for file in files), replaced=sum(map(len, said.replaced.values())), **counts,
        )  # fmt: skip


@dataclasses.dataclass
class Dropping(Writing):
    """A call that takes partitions away, as users name them in `frame`; the first call of a batch says which."""

    def _plan(self, log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
        """The job, which names the partitions by their paths. UsageError for one that the table does not have."""
        if _committed(log, identity):
            return None
        config, line = opened(log.store)[0], timeline.current(log.store)
        known = {one.partition for one in file_groups.newest(log.store, line, logs=True)}
        columns = there(line, config) or pa.schema([])
        found = replacing.paths(self.frame, config, columns, known, plain(self.dest))
        return dataclasses.replace(identity, intent={**identity.intent, "partitions": found}).head(log.tip, objects.new_id(), 0), None

    def _ready(self, closing: Closing) -> bool:
        """A job without rows has nothing to stage."""
        return True


def _committed(log: Log, identity: Identity) -> Commit | None:
    """The commit of the same batch, where there is one that counts."""
    return next((commit for commit in log.ending(identity.hash) if log.in_effect(commit)), None)
