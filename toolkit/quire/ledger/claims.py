"""The remaining input of a source for a user's own Spark job: the splits that are not done, and a claim on them.

    ledger.inspect.unprocessed(source)    the splits that no commit covers; with as_="spark" found when the frame is computed
    with ledger.claim(source) as c:       the same, for this block: it reads c.splits, and writes files below c.path

A claim is a job as any other. Its plan holds the splits, frozen; tasks write them into the ledger in state `mark`, since quire itself
reads nothing of them; its last task is the block, whose files wait below the job until one commit names them together with all splits.
The first that ends the job decides: a block that ends well commits, one that raises gives up. A claim that was killed leaves its job
open, and the next claim of the same sources goes on with the same splits, in a folder of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from quire.arguments import flag
from quire.commit import names, protocol
from quire.commit.committers import committer
from quire.commit.entries import CLAIM, PlanHead, Task
from quire.commit.log import Log
from quire.coverage import checkpoint
from quire.coverage.conflicts import conflicts
from quire.coverage.fold import fold
from quire.engine import driver, kinds, request
from quire.engine import job as jobs
from quire.engine.attempt import Work
from quire.engine.own_files import (
    UNWRITTEN,
    check_kind,
    files_below,
    hadoop_url,
    rows_and_columns,
    spec_there,
)
from quire.engine.request import Request
from quire.engine.take_up import Identity, take_up, with_state
from quire.errors import NotFoundError, QuireError, UsageError
from quire.interrupts import all_interruptible
from quire.ledger.elsewhere import AGAIN, Committed, asked, check_known, check_there, open_of, token_of
from quire.ledger.ending import check_ours, commit, empty, written
from quire.ledger.refusals import not_of_tables
from quire.ledger.tables import computed
from quire.planning import plan as planning
from quire.planning.changes import APPENDED, Changes
from quire.planning.listing import Cut, Listing, TaskRun, list_changed
from quire.planning.pack import PlannedTask, read_rows
from quire.planning.pieces import pieces
from quire.planning.undone import COLUMNS, shown, undone
from quire.progress import Progress, ProgressEvent
from quire.spark.runner import LocalRunner, OnSpark, Runner, runner_of
from quire.spark.shipping import one_line
from quire.storage import Copying, Store, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOGETHER = 16 << 30  # bytes of splits that one task marks: it reads their names alone


@dataclass
class Claim:
    """The splits of one claim, and where their output goes.

    splits   what to process: path, start, length, size, version, modified; a Spark DataFrame (with `LocalRunner` a pyarrow.Table)
    path     where to write: a directory that is not there yet, spelled as Spark takes it; empty where the block writes `elsewhere`
    files, bytes   how much that is; no file: there is nothing to do, and what is written then is refused
    job      the job's name in the log
    changed, longer   how many files were rewritten or appended to since they were done, and are not in `splits`, and how many of them are
             longer now; `ledger.inspect.changed(source)` has them with their commits, and after `ledger.forget(where="commit = 7")` the
             next claim has their new content
    version, data_files, written   afterwards: the log's last number, how many files were committed, and their bytes
    commit_token, commit_number    with `committed`: what the block stores beside its rows, in one transaction; each number is there once
    """

    splits: Any = field(repr=False)
    path: str
    files: int
    bytes: int
    job: str
    changed: int = 0
    longer: int = 0
    version: int = 0
    data_files: int = 0
    written: int = 0
    commit_token: str = ""
    commit_number: int = 0

    def __repr__(self) -> str:
        told = ", ".join(
            f"{name}={getattr(self, name)!r}" for name in ("path", "files", "bytes", "job", "version", "data_files", "written")
        )
        return f"Claim({told})" + (
            f"\nchanged since they were done, and not in it: {Changes(self.changed, self.longer)}. ledger.inspect.changed(source) names "
            f"them with their commits, and after ledger.forget(where='commit = …') the next claim has their new content"
            if self.changed else ""
        )  # fmt: skip


class _Begun(NamedTuple):
    """A claim's job that is open, and whose splits are marked."""

    log: Log
    head: PlanHead
    planned: list[PlannedTask]
    marks: list[Task]
    changes: Changes
    number: int  # of its rows, where a database keeps them


@all_interruptible
class Claims:
    """A ledger's calls for jobs that are not quire's."""

    _url: str
    _options: Mapping[str, Any] | None
    _store: Store
    _until: int | None

    def refresh(self) -> Any:
        """Read the log to its tip."""
        raise NotImplementedError

    @not_of_tables
    @contextmanager
    def claim(
        self, source: Any, *, spark: SparkSession | LocalRunner | OnSpark | None = None, include: Any = None, exclude: Any = None,
        hidden: bool = False, follow_links: bool = False, min_age: Any = None, allow_nonempty: bool = False, allow_empty: bool = False,
        elsewhere: bool = False, committed: Committed | None = None,
        source_options: Mapping[str, Any] | None = None, progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Iterator[Claim]:  # fmt: skip
        """Process what is not done with a job of your own: its files and the splits become visible in one commit, or not at all.

        `with` gives a `Claim` of what is not done in `source`.

            with ledger.claim("s3://raw/devices") as c:
                paths = [row.path for row in c.splits.collect()]
                spark.read.json(paths).groupBy("device").count().write.parquet(c.path)

        When the block ends, all files below `c.path` are committed, in Parquet, or as text, CSV or JSON, plain, .gz or .zst; all of one
        kind. Whatever would be left behind is refused with a line: symbolic links, devices, what no committer has committed
        (`_temporary`), and other ignored names, but for the markers and checksums of Hadoop and Spark (`_SUCCESS`, `.part-0.crc`, what is
        empty). When the block raises, the claim is given up, and the exception passes on.

        If two claims hold the same splits, the first that ends well gets them; the other one's block ends with a QuireError that names
        some, and nothing of it is visible. The block should read each file as it was listed: quire does not look again whether one was
        changed.

        allow_nonempty       allow a destination that holds other files
        allow_empty  allow a block that has left nothing, no `_SUCCESS` either: its splits are done, and gave no row
        elsewhere    the block writes into a database, or whatever else is not below `c.path`: the ledger commits after it, so a call
                     that was killed, or raises, may write the same rows again (at least once)
        committed    the same, exactly once: a function that gives the (number, token) that the database holds with the highest number,
                     or None. The block stores `c.commit_number` and `c.commit_token` in the transaction that writes its rows, in a
                     table in which each number is unique (docs/together.md has it for SQLite and PostgreSQL). quire asks the function
                     first: a claim whose rows are there is committed in the ledger, and its block does not run again. A block that
                     raises leaves the claim open, and the next one has the same splits and token
        """
        where = "elsewhere" * flag(elsewhere, "elsewhere") if committed is None else "committed"
        made = self._made(
            source, include=include, exclude=exclude, hidden=hidden, follow_links=follow_links, min_age=min_age,
            source_options=source_options, allow_nonempty=allow_nonempty, where=where,
        )  # fmt: skip
        allow_empty = flag(allow_empty, "allow_empty")
        runner, bars = runner_of(spark, made.store(), made.roots), Progress(progress)
        with bars.run(CLAIM, self._url):
            yield from _claimed(made, runner, bars, self.refresh, allow_empty=allow_empty, where=where, committed=committed)

    def _made(
        self, source: Any, *, source_options: Mapping[str, Any] | None, allow_nonempty: bool, where: str = "", **chosen: Any
    ) -> Request:  # fmt: skip
        made = request.build(
            source, self._url, transform="raw", format="raw", storage_options=self._options, source_options=source_options,
            allow_nonempty=allow_nonempty, **chosen,
        )  # fmt: skip
        by = "rename" if self._store.can_rename else "copy"
        cut = Cut("balanced", "flat", 1, "xxh64", TOGETHER, False)
        said = ("sources", "dest", "include", "exclude", "hidden", "follow_links", "min_age")
        intent = {"verb": CLAIM, "committer": by, "target": 0, **{key: made.identity.intent[key] for key in said}}
        intent |= {"where": where} if where else {}
        return dataclasses.replace(made, identity=Identity(intent, UNWRITTEN, by, closer=CLAIM), cut=cut)


def _claimed(
    made: Request, runner: Runner, bars: Progress, refresh: Callable[[], Any], *, allow_empty: bool, where: str, committed: Committed | None
) -> Iterator[Claim]:  # fmt: skip
    """The claim, once its arguments are checked; `where` its rows go, if not below its path."""
    while True:
        with with_state("Nothing of this claim is visible: call again."):
            begun = _begin(made, runner, bars, committed)
        if isinstance(begun, Changes):
            yield from _nothing(made, runner, begun)
            refresh()
            return
        log, head, planned, marks, changes, number = begun
        attempt, started = names.new_id(), time.time()
        runs = [run for task in planned for run in task.runs]
        try:
            splits = _table(runner, made, len(runs), functools.partial(_rows, made.dest, made.dest_options, runs))
            break
        except _Over:
            if log.refresh().outcome(head.job) is None:
                raise  # nobody has ended it: somebody has deleted below _quire/
    folder = names.attempt_folder(head.job, head.tasks, attempt)
    files, size = sum(t.stats.files_in for t in marks), sum(t.stats.bytes_in for t in marks)
    path = "" if where else hadoop_url(f"{made.dest}/{folder}")
    found = Claim(splits, path, files, size, head.job, *changes, commit_token=token_of(head), commit_number=number)
    try:
        yield found
        with with_state("Nothing that the block has written is visible: call again." if committed is None else AGAIN):
            if committed is not None:
                check_there(log, head, number, committed)
            task = empty(head, attempt, started) if where else written(log, head, attempt, started, allow_empty=allow_empty)
    except BaseException as e:
        if committed is None:  # else its rows may be in the database, or get there by a process that does not know of this one
            with suppress(QuireError):  # what goes wrong now is not what the user should hear of; the next claim goes on with the job
                protocol.abort(log, head.job, f"its block ended with {type(e).__name__}")
        raise
    with with_state("What the block has written is committed, or will be by the next claim: call again for what is left."):
        if not protocol.put_manifest(log.store, head.job, task):
            committer(head.committer, log.store).abort_task(log.store, head.job, head.tasks, attempt, {})
        taken = commit(log, head, marks, bars)
        checkpoint.keep_up(runner, made.dest, made.dest_options, log, bars.say)
        refresh()
    check_ours(log, head, marks, "" if committed is not None else attempt, taken, apart=bool(where))
    found.version, found.data_files, found.written = log.tip, len(task.data_files), sum(file.size for file in task.data_files)


# ------------------------------------------------------------------------------------------------------------------ the beginning
def _begin(made: Request, runner: Runner, bars: Progress, committed: Committed | None) -> _Begun | Changes:
    """An open job of this claim, ours or one that a killed claim has left; where nothing is left to do, how many files have changed.

    Commits of others since a job was planned end it: its splits are planned anew.
    """
    store = made.store(bars.again)
    if not store.can_rename and not isinstance(store, Copying):
        raise UsageError(
            f"{store.url} can neither rename nor copy an object, so a claim's output could not be published. Use another store."
        )
    driver.check_destination(store, made.allow_nonempty)
    changes = Changes(0, 0)

    def identify(log: Log) -> Identity:
        check_kind(log)
        return made.identity

    def plan(log: Log, identity: Identity) -> tuple[PlanHead, planning.Planned] | None:
        nonlocal changes
        found = planning.make(kinds.named(CLAIM).plan, runner, log, log.tip, identity.job(log.tip), made.wanted(), bars)
        changes = Changes(found.listed.differing.reported.count, found.listed.differing.longer)
        return (identity.head(found.base, found.plan, len(found.tasks)), found) if found.tasks else None

    while True:
        # First: what the database holds now is then in the log that the plan rests on, or that its splits are compared with.
        number = 0 if committed is None else 1 + _rolled_forward(made, store, runner, bars, committed)
        taken = take_up(store, identify, plan)
        if taken.head is None:
            return changes
        if taken.planned is None:
            changes = _changed(taken.log, made, runner)  # who has planned the job has told nobody
        begun = _marked(taken.log, made, taken.head, runner, bars, changes, number)
        if begun is not None:
            return begun


def _rolled_forward(made: Request, store: Store, runner: Runner, bars: Progress, committed: Committed) -> int:
    """The number of the last claim whose rows the database holds: the ledger holds its splits now, too."""
    log = Log(store).refresh()
    number, token = asked(committed)
    head = open_of(log, token)
    if head is not None:
        found = jobs.results(runner, log, Work(made.dest, made.dest_options, made.roots, head, made.convert), bars)
        if found is not None:
            protocol.put_manifest(store, head.job, empty(head, names.new_id(), time.time()))
            commit(log, head, found[1], bars)
    check_known(log.refresh(), token)
    return number


def _changed(log: Log, made: Request, runner: Runner) -> Changes:
    """How many files were rewritten or appended to since they were done."""
    wanted = made.wanted()
    listing = Listing(wanted.dest, wanted.dest_options, "", "", wanted.roots, wanted.selection, fold(log), wanted.cut)
    found = list(pieces(wanted.roots, wanted.selection, runner.parallelism))
    table = _table(runner, made, len(found), lambda i: list_changed(listing, found[i]), "changed")
    if isinstance(runner, OnSpark):
        with one_line():
            (row,) = table.selectExpr("count(*)", f"count_if(startswith(reason, '{APPENDED}'))").collect()
        return Changes(*row)
    return Changes(table.num_rows, pc.sum(pc.starts_with(table.column("reason"), APPENDED)).as_py() or 0)


def _marked(log: Log, made: Request, head: PlanHead, runner: Runner, bars: Progress, changes: Changes, number: int) -> _Begun | None:
    """The job with its splits marked; None: it is over now, and may have been before."""
    store, work = log.store, Work(made.dest, made.dest_options, made.roots, head, made.convert)
    found = jobs.results(runner, log, work, bars)
    if found is None:
        jobs.settle(log, head.job, bars)
        return None
    planned, marks = found
    if protocol.get_manifest(store, head.job, head.tasks) is not None:
        commit(log, head, marks, bars)  # a block has ended well, and its process died before it could say so
        return None
    if conflicts(log.refresh(), replace(head, spec=spec_there(log)), marks):
        protocol.abort(log, head.job, "others have processed splits of it")
        return None
    return _Begun(log, head, planned, marks, changes, number)


# ------------------------------------------------------------------------------------------------------------------------ the block
class _Over(QuireError):
    """The plan that holds the splits of a claim is gone."""


def _rows(dest: str, dest_options: Any, runs: list[TaskRun], i: int) -> Iterator[pa.Table]:
    """The splits of a run of the plan."""
    try:
        for rows in read_rows(connect(dest, dest_options), [runs[i]], COLUMNS):
            yield shown(rows)
    except NotFoundError as e:
        raise _Over(
            f"the list of this claim's splits in {dest} is gone: another claim has ended it meanwhile, or it was given up. Nothing that "
            f"this block has written below c.path is visible; claim again for what is left."
        ) from e


def unprocessed(
    ledger: Claims, what: str, source: Any, chosen: Mapping[str, Any], source_options: Any, spark: Any, *, changed: bool
) -> Any:  # fmt: skip
    """The table `what`: the splits of a source that are not done, with what has `changed` since."""
    made = ledger._made(source, **chosen, source_options=source_options, allow_nonempty=True)
    runner = runner_of(spark, made.store(), made.roots)
    log = Log(ledger._store).refresh()
    wanted = made.wanted()
    listing = Listing(wanted.dest, wanted.dest_options, "", "", wanted.roots, wanted.selection, fold(log, ledger._until), wanted.cut)
    found = list(pieces(wanted.roots, wanted.selection, runner.parallelism))
    return _table(runner, made, len(found), lambda i: undone(listing, found[i], changed=changed), what)


def _table(runner: Runner, made: Request, n: int, rows: Callable[[int], Iterator[pa.Table]], what: str = "unprocessed") -> Any:
    """The table `what` of what `rows` gives of each number below n."""
    return computed(what, runner, n, rows, made.dest, [root.url for root in made.roots], min(n, 8 * runner.parallelism))


def _nothing(made: Request, runner: Runner, changes: Changes) -> Iterator[Claim]:
    """A claim without a split. Files that its block writes all the same belong to no split, and are not kept."""
    store = made.store()
    job = made.identity.job(Log(store).refresh().tip)
    folder = names.attempt_folder(job, 0, names.new_id())
    splits = _table(runner, made, 0, lambda _: iter(()))
    try:
        yield Claim(splits, hadoop_url(f"{made.dest}/{folder}"), 0, 0, job, *changes)
        files = files_below(store, folder)[0]
        if sum(rows_and_columns(store, entry)[0] if entry.name.endswith(".parquet") else entry.size for entry in files):
            raise QuireError(
                f"there was nothing to claim in {', '.join(root.url for root in made.roots)}, and the block has written {len(files):,} "
                f"files: they were not kept. Look at c.files before."
            )
    finally:
        store.remove_tree(folder)
