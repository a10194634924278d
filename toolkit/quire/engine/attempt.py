"""One attempt of a task, where the runner put it: read the splits, write what nobody lists, then the segment, then the manifest.

The order is the promise: the attempt whose manifest is there has won, and by then its output and its ledger rows are durable. How splits
are read is a matter of the kind of input (see `kinds`).
"""

from __future__ import annotations

import dataclasses
import json
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from quire.commit import names
from quire.commit.entries import COMPACT, PURGE, Coverage, Deferred, Keys, PlanHead, Stats, Task, Uncover
from quire.commit.protocol import get_manifest, put_manifest
from quire.coverage.carry import dropped
from quire.engine import kinds
from quire.engine.carry import carry
from quire.engine.marks import mark, say
from quire.engine.output import DataFiles
from quire.engine.rewrite import rewrite
from quire.engine.rows import SegmentRows
from quire.engine.tally import At, Quarantined, Replaced, Tally
from quire.errors import FormatError, NotFoundError
from quire.planning.columns import frozen
from quire.planning.pack import PlannedTask, read_drops, read_task
from quire.sources.files import Root
from quire.sources.transforms.convert import Convert
from quire.spark.collector import without_collector
from quire.storage import Store, Vanished, at_once, connect


@dataclass(frozen=True)
class Work:
    """A frozen plan and what its tasks need to know; travels to them."""

    dest: str
    dest_options: Any = field(repr=False)
    roots: tuple[Root, ...]
    head: PlanHead
    convert: Convert


class Again(Exception):
    """A part of something was written already and must not count: the attempt starts again, and knows what is said here of `key`."""

    def __init__(self, key: Any, known: Any) -> None:
        super().__init__(key)
        self.key, self.known = key, known


def attempt(work: Work, task: int) -> dict[str, Any]:
    """Do one task, unless it has a manifest. The answer is for the progress line; what counts is in the store."""
    retries = list[str]()
    store, job = connect(work.dest, work.dest_options, retries.append), work.head.job
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(read_task, store, names.plan_parquet(job, work.head.plan), task)
        if get_manifest(store, job, task) is not None:
            return {"task": task}
        try:
            planned = coming.result()
        except NotFoundError:
            return {"task": task}  # the job is over and cleaned
    if work.convert.has_columns:  # a plan that reads again what is in quarantine has none of its own
        work = dataclasses.replace(work, convert=work.convert.of(frozen(store, job, work.head.plan) or work.convert.columns))
    memo: dict[Any, Any] = {}
    while True:
        one = Attempt(work, store, task, planned, memo, retries)
        try:
            with nullcontext() if work.convert.of_user else without_collector():
                done = one.run()
        except BaseException as e:
            one.output.abort()
            if not isinstance(e, Again):
                raise
            memo[e.key] = e.known
            if isinstance(e.known, Exception):
                e.known.with_traceback(None)  # which would hold on to all that the attempt had opened
        else:
            if not put_manifest(store, job, done):
                one.output.abort()
            return {"task": task}


class Attempt:
    """The output of an attempt, its ledger rows, its quarantine and the numbers of all that: a kind of input fills them."""

    def __init__(
        self, work: Work, store: Store, task: int, planned: PlannedTask, memo: dict[Any, Any], retries: list[str]
    ) -> None:  # fmt: skip
        self.work, self.store, self.task, self.planned, self.memo, self.retries = work, store, task, planned, memo, retries
        self.id = names.new_id()
        self.tally, self.left = Tally(), list[Deferred]()
        self.output = DataFiles(work, store, task, self.id, planned)
        self.rows = SegmentRows(self.output, carried=bool(planned.removes))
        self.quarantined = Quarantined(store, self.rows, self.tally)
        self.dropped = dropped(read_drops(store, planned.drops), planned.removes or [""])
        self.replaced = Replaced(self.dropped, self.tally)
        self.keys: Keys | None = None  # of the records that were kept, where a load leaves out what is known by its key

    def replace(self, at: At, text: str) -> list[Uncover]:
        """Let rows give way to a split, as the plan tells it."""
        given = json.loads(text)
        self.quarantined.tried[at] = max([0, *(each[2] for each in given)])
        self.quarantined.names.update((at, each[3]) for each in given if len(each) > 3 and each[3])
        self.quarantined.members.update((at, each[4]) for each in given if len(each) > 4 and each[4])
        return self.replaced.add(at, given)

    def defer(self, at: At, e: Vanished) -> None:
        """Leave a split that changed or vanished to the next call, with what it takes out of the ledger."""
        self.left.append(Deferred(at[0], str(e)))
        self.replaced.withdraw(at)

    def run(self) -> Task:
        """Read, write, make durable; the manifest's content."""
        began, started = time.time(), time.monotonic()
        head, planned = self.work.head, self.planned
        for root, runs in groupby(planned.runs, key=lambda run: run.root):
            if root >= len(self.work.roots):
                raise FormatError(f"the plan of job {head.job} reads from a source that the job does not have: it is damaged.")
            kinds.of(head).attempt(self, self.work.roots[root], list(runs))
        if planned.marks:
            (say if head.verb == PURGE else mark)(self)
        if planned.removes:
            (carry if head.spec.traced or head.verb != COMPACT else rewrite)(self)
        self.output.writer.close()
        self.rows.flush(last=True)
        rows, tally = self.rows.segment, self.tally
        segment, quarantined = rows.finish(), self.quarantined.writer.finish()
        name = names.segment(head.job, self.task, self.id) if segment else None
        aside = names.quarantine(head.job, self.task, self.id) if quarantined else None
        done = Task(
            task=self.task, attempt=self.id, data_files=self.output.files, folder=planned.folder, part=planned.part,
            schema=self.output.schema, schema_of=self.output.schema_of, differs=self.quarantined.differs,
            coverage=Coverage(
                segment=name, quarantine=aside, first=rows.first, last=rows.last, removes=tuple(planned.removes),
                uncovers=self.replaced.uncovers, left=tuple(self.left), keys=self.keys,
            ),
            stats=Stats(
                assigned=planned.files, **asdict(tally), carried=rows.rows if planned.removes else 0,
                early=getattr(self.output.writer, "early", 0),
                pieces=0 if planned.removes else rows.rows - tally.gathered - tally.quarantined_files - tally.held,
                started=round(began, 3), seconds=round(time.monotonic() - started, 3),
            ),
        )  # fmt: skip
        at_once(*(partial(self.store.put, at, data) for at, data in ((aside, quarantined), (name, segment)) if at and data))
        self.output.committer.commit_task(self.store, head.job, done)
        return replace(done, stats=replace(done.stats, retries=len(self.retries)))
