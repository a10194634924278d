"""The closer of jobs that write into a table: sorts what was staged, once, and writes it in rounds as one instant of the timeline.

    staged rows → sorted, each key once → a round: tag → targets → write → manifest → commit, or the next round → publish: files, instant

Each arrow is objects in the job's folder, so a driver that finds the job goes on with what is there. See docs/protocol.md, section 10.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import msgspec
import pyarrow as pa

from quire.commit import names as objects
from quire.commit.committers import committer
from quire.commit.entries import TABLE, Commit, Coverage, Entry, Stats, Task
from quire.commit.log import Log
from quire.commit.protocol import get_manifest, put_manifest
from quire.engine.attempt import Work
from quire.engine.closers import Reduce
from quire.engine.exports import step as exports
from quire.errors import FormatError, NotFoundError, QuireError, RefusedError, TransientError, UsageError
from quire.progress import Progress
from quire.spark.runner import Runner
from quire.storage import Patience, Store, plain
from quire.table import (
    archive,
    cleaning,
    clustering,
    compaction,
    file_groups,
    pinning,
    realtime,
    replacing,
    retention,
    rounds,
    storage_lock,
    streamer,
    taking_back,
    timeline,
    turns,
)
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.format import commit_avro, commits, config, names
from quire.table.format.config import TableConfig
from quire.table.format.names import Instant
from quire.table.format.schema import storable, with_meta
from quire.table.rounds import ARCHIVE, BACK, CLUSTER, DROP, OVERWRITE, SCHEDULE, UPSERTS, Round
from quire.table.settings import Settings, opened
from quire.table.timeline import CLEAN, CLUSTERING, COMPACTION, REPLACE, SAVEPOINT
from quire.table.view import Body, View, look, there
from quire.table.write import columns, output, sort, tag, targets, write
from quire.table.write import commit as made
from quire.table.write.blocks import Closing
from quire.table.write.sort import Sorted
from quire.table.write.write import Written

ROUNDS = 20  # of one call: others keep committing what it touches
STAGED, SORTED, FIRST = range(3)  # tasks beyond those of the plan: rows of a frame, the rows sorted, the first round
_SORTED = "sorted.json"


class TableCloser:
    """Writes the rows of a job into a table."""

    name = TABLE

    def close(
        self, runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress
    ) -> list[Task] | None:
        """The tasks of a job with the round that closes it, ours or another driver's; None: the job is over."""
        try:
            return _Job(runner, log, work, progress).close(tasks)
        except RefusedError:
            raise
        except UsageError as e:  # of the rows that the tasks have made: no other call makes others of them, so the job is given up
            raise RefusedError(str(e)) from e

    def ready(self, done: Task, log: Log) -> bool | Entry:
        """Whether a round may be committed at the log's tip; first the entry of another program's instants, or of versions that expire."""
        if first := rounds.unknown(log):
            return first
        fits = not rounds.over(log, done) and (cleaning.expired(log, done) or True)
        storage_lock.check(log.store)
        return fits

    def locked(self, store: Store) -> AbstractContextManager[None]:
        """Hold Hudi's storage lock, where programs on the JVM use it."""
        return storage_lock.held(store)

    def follow(self, log: Log) -> Entry | None:
        """The entry of what other programs have done to the timeline."""
        return rounds.unknown(log)

    def cleaned(self, store: Store) -> Callable[[str], bool]:
        """Whether a file of a slice that others have superseded is gone."""
        return retention.cleaned(store, lambda: rounds.ended(store))

    def check_readable(self, log: Log, version: int) -> None:
        """RefusedError where the table cannot be read any more as it was at a version."""
        pinning.check_readable(log, version)

    def check_offered(self, store: Store) -> None:
        """RefusedError for a table whose base files alone do not hold its rows."""
        has = opened(store)[0]
        if has.type == config.MERGE_ON_READ or has.drops_partitions:
            why = "are logs, too" if has.type == config.MERGE_ON_READ else "lack the partition columns (drop.partition.columns=true)"
            raise RefusedError(
                f"the files of {plain(store.url)} {why}, which readers of other formats do not know. Read it by quire.Table or Hudi."
            )

    def data_files(self, log: Log) -> dict[str, int]:
        """The newest base files, and the bytes of each."""
        line = timeline.current(log.store)
        slices = file_groups.newest(log.store, line)
        rounds.check_listed(log, line, slices)
        return {one.name: one.size for one in slices}

    def columns(self, store: Store) -> pa.Schema:
        """The columns of now, with the meta fields where the table has them."""
        has = opened(store)[0]
        columns = there(timeline.current(store), has) or pa.schema([])
        return with_meta(columns) if has.meta_fields else columns

    def before_moved(self, store: Store, commit: Commit) -> None:
        """RefusedError where the instant cannot appear any more, as another program has upgraded the table."""
        if rounds.leaves_instant(commit.tasks[-1]):
            rounds.appeared(store, commit)

    def before_published(self, store: Store, commit: Commit, number: int) -> None:
        """Let the instant appear: partition metadata, `.requested`, `.inflight`, and last the completed one."""
        done = commit.tasks[-1]
        said = rounds.round_of(done)
        if said.operation in (CLEAN, SAVEPOINT, ARCHIVE, *BACK):
            if (content := self._content(store, commit)) is not None:
                _carry_out(store, said, content, f"{store.url}: the plan of job {commit.job}", number)
            return
        if not said.planned and not rounds.leaves_instant(done):
            return  # nothing of the table has changed
        pending = COMPACTION if said.operation == made.COMPACT else said.action
        if said.operation == CLUSTER and said.ended:
            pending = CLUSTERING  # as it is called until it has completed, since layout 2
        states = [Instant(said.instant, pending, state) for state in ("requested", "inflight")]
        states.append(Instant(said.instant, pending, ended=said.ended))
        asked, under_way, completed = (f"{rounds.folder_of(said)}/{instant.name}" for instant in states)
        if rounds.appeared(store, commit):
            return
        data = self._content(store, commit)
        # Only the log tells that a commit without files has appeared before, and that another program has rolled it back since.
        if data is None or (not done.data_files and Log(store).refresh().published(commit.job) is not None):
            return
        if said.planned:
            store.put_if_absent(asked, data)
            return
        where = f"{store.url}/{rounds.content_of(commit)}"
        written = commits.decode(data, where)
        ended = {partition: list(groups) for partition, groups in said.replaced.items() if groups}
        if made.named(written) != {file.name for file in done.data_files} or written.replaced != ended:
            raise FormatError(f"{where} names other files than the log's entry of job {commit.job}: it is damaged, or forged.")
        _mark(store, made.partitions({partition for partition, *_ in written.files()}, said.instant))
        if pending != COMPACTION:
            store.put(asked, commits.requested(pending))  # a compaction has its plan there
        store.put(under_way, b"")
        storage_lock.check(store)
        encoded = commit_avro.encode if said.ended else commits.encode
        store.put_if_absent(completed, encoded(made.numbered(written, number)))

    def _content(self, store: Store, commit: Commit) -> bytes | None:
        """The bytes that wait beside the files of a commit; None: another one has published it."""
        where = rounds.content_of(commit)
        try:
            return store.get(where)
        except NotFoundError:
            if Log(store).refresh().published(commit.job) is not None:
                return None  # and cleaned, and what came of the instant since is not ours to undo
            raise FormatError(
                f"{store.url}/{where}, which the log's entry of job {commit.job} needs to complete its instant, is gone: somebody deletes "
                f"below {names.FOLDER}/_quire. Put back a copy."
            ) from None


def _mark(store: Store, partitions: Mapping[str, bytes]) -> None:
    """Put the partitions' own metadata where there are none yet; most are there, and each look is a request."""

    def mark(marker: str, content: bytes) -> None:
        if store.stat(marker) is None:
            store.put_if_absent(marker, content)

    with ThreadPoolExecutor(timeline.PARALLEL) as pool:
        list(pool.map(mark, partitions, partitions.values()))


def _carry_out(store: Store, said: Round, content: bytes, where: str, number: int) -> None:
    """Let what takes files or instants away, or holds them, come into effect."""
    if said.operation == ARCHIVE:
        archive.carry_out(store, said, content, where)
    elif said.operation in BACK:
        taking_back.carry_out(store, said, content, where, lambda: exports.move_off(Log(store).refresh(), number))
    else:
        cleaning.carry_out(store, said, content, where)


class _Job:
    """The closing of one job by this driver."""

    def __init__(self, runner: Runner, log: Log, work: Work, progress: Progress) -> None:
        self.runner, self.log, self.work, self.progress = runner, log, work, progress
        self.store, self.head = log.store, work.head
        self.config, self.settings = opened(log.store)
        self.index = indexes.of(self.config)
        self.operation = str(self.head.intent.get("operation", ""))

    def close(self, tasks: list[Task]) -> list[Task] | None:
        """See `TableCloser.close`."""
        body = self._body(tasks)
        if body is None:
            return None
        for number in range(self.head.tasks + FIRST, self.head.tasks + FIRST + ROUNDS):
            done = self._done(number, lambda number: self._round(number, body))
            if done is None:
                return None
            if not rounds.over(self.log.refresh(), done):
                return [*(msgspec.structs.replace(task, data_files=(), schema="", differs="") for task in tasks), done]
            if self.log.outcome(self.head.job) is not None:
                return None
            if number - self.head.tasks - FIRST + 1 >= turns.AFTER:
                turns.ask(self.log, self.head.job, done.stats.seconds)
        raise QuireError(
            f"job {self.head.job} in {self.store.url} was closed {ROUNDS} times, and each time others had committed what it touches: "
            f"nothing of it is visible, and its rows are kept. Call again to go on, or let the others write less often."
        )

    def _body(self, tasks: list[Task]) -> Body | None:
        """The work of each round; None: the job is over."""
        intent, runner, bars = self.head.intent, self.runner, self.progress
        instant = str(intent.get("instant", ""))
        services: dict[str, Callable[[], Body]] = {
            SCHEDULE: lambda: compaction.Schedule(self.config, compaction.asked_for(intent)),
            made.COMPACT: lambda: compaction.Run(runner, self.config, str(intent.get("batch", "")), bars),
            CLUSTER: lambda: clustering.Cluster(runner, self.config, self.settings.target, *clustering.asked_for(intent), bars),
            DROP: lambda: replacing.Drop(self.config, replacing.asked_for(intent)),
            CLEAN: lambda: cleaning.Clean(cleaning.keep_of(intent)),
            SAVEPOINT: lambda: cleaning.Savepoint(instant, str(intent.get("comment", ""))),
            ARCHIVE: lambda: archive.Archive(int(str(intent["keep"]))),
            **dict.fromkeys(BACK, lambda: taking_back.TakeBack(self.operation, instant)),
        }
        if self.operation in services:
            return services[self.operation]()
        found = self._done(self.head.tasks + SORTED, lambda number: self._sort(number, tasks))
        return (
            None if found is None else _Rows(self.runner, self.work, tasks, self._sorted(found), self.config, self.settings, self.progress)
        )

    def _done(self, number: int, make: object) -> Task | None:
        """The manifest of a task beyond the plan's, which an attempt makes where nobody has; None: the job is over."""
        patience = Patience(self.progress.again)
        while (done := get_manifest(self.store, self.head.job, number)) is None:
            if self.log.refresh().outcome(self.head.job) is not None:
                return None
            try:
                make(number)  # type: ignore[operator]
            except TransientError as e:
                patience.wait(e)
        return done

    def _closing(self, number: int) -> Closing:
        work = self.work
        return Closing(
            work.dest, work.dest_options, self.head.job, number, objects.new_id_of(self.head.job), self.head.committer, self.config
        )

    # ------------------------------------------------------------------------------------------------------------- the rows, sorted
    def _sort(self, number: int, tasks: list[Task]) -> None:
        """Sort what was staged: by a frame's one task, or by those of the plan."""
        closing = self._closing(number)
        if not tasks:
            frame = get_manifest(self.store, self.head.job, self.head.tasks + STAGED)
            tasks = [frame] if frame is not None else []
        try:
            with self.progress.phase("sorting", unit="row") as bar:
                rows = sort.sort(self.runner, closing, tasks, self.operation)
                bar.to(rows.rows_in)
            self.store.put(objects.staged(closing.job, number, closing.attempt, _SORTED), sort.encode(rows))
            done = Task(task=number, attempt=closing.attempt, data_files=(), coverage=Coverage(), stats=Stats())
        except BaseException:
            write.abort(closing, ())
            raise
        if not put_manifest(self.store, closing.job, done):
            write.abort(closing, ())

    def _sorted(self, done: Task) -> Sorted:
        name = objects.staged(self.head.job, done.task, done.attempt, _SORTED)
        return sort.decode(self.store.get(name), self.head.job, done, f"{self.store.url}/{name}")

    # ------------------------------------------------------------------------------------------------------------------ one round
    def _round(self, number: int, body: Body) -> None:
        """One closing run; at its end there is a manifest, ours or another's, or the job is over."""
        log, store, started = self.log, self.store, time.time()
        turns.wait(log, self.head.job, self.progress.again)
        view = look(log, logs=self.config.type == config.MERGE_ON_READ)
        closing = self._closing(number)
        written = list[Written]()
        try:
            written = body.write(view, closing)
            said, content = body.say(view, closing, written)
            if content:
                store.put(objects.staged(closing.job, number, closing.attempt, rounds.CONTENT), content)
            done = Task(
                task=number, attempt=closing.attempt, data_files=made.files(written), coverage=Coverage(),
                stats=Stats(written=said.as_dict(), started=round(started, 3), seconds=round(time.time() - started, 3)),
            )  # fmt: skip
            committer(self.head.committer, store).commit_task(store, closing.job, done)
        except BaseException as e:
            write.abort(closing, written)
            if isinstance(e, Exception) and log.refresh().outcome(closing.job) is not None:
                return  # another driver was quicker, and has cleaned away what this one was reading
            if isinstance(e, Exception) and rounds.cleaned(log, view.version):
                raise TransientError("others have written what this round was built on, and cleaned it since") from e
            raise
        if not put_manifest(store, closing.job, done):
            write.abort(closing, written)


@dataclass
class _Rows:
    """A round of rows that were sorted: those whose key is there go into its file group, the others where there is room.

    An overwrite takes the file groups of its rows' partitions for ended.
    """

    runner: Runner
    work: Work
    tasks: Sequence[Task]
    rows: Sorted
    config: TableConfig
    settings: Settings
    progress: Progress
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]))  # of the table after the last round,
    saw: str = ""  # the name of those before it,
    vain: int = 0  # how many rows deleted what is not there, and came to no file,
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # and partition → the file groups that end

    @property
    def _operation(self) -> str:
        return str(self.work.head.intent.get("operation", ""))

    @property
    def _appends(self) -> bool:
        return self.config.type == config.MERGE_ON_READ

    @property
    def _action(self) -> str:
        if self._operation == OVERWRITE:
            return REPLACE
        return "deltacommit" if self._appends else "commit"

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`."""
        line, operation, index = view.line, self._operation, indexes.of(self.config)
        now = there(view.line, self.config)  # once: another program may roll the commit back that says them
        self.columns, self.saw = self._columns(view, now or pa.schema([])), rounds.columns_id(now)
        compacting = line.compacting() if self._appends else {}
        slices, ended, tagged = view.slices, set(line.replaced), self.rows.runs
        if operation == OVERWRITE:
            self.replaced = replacing.ending(view, {run.partition for run in tagged})
            slices = [one for one in slices if one.partition not in self.replaced]
            ended |= {(partition, group) for partition, groups in self.replaced.items() for group in groups}
        own = view.drawn if view.ended else ""  # since layout 2 a log has its own instant, and belongs to a slice by when that ended
        places = file_groups.places(slices, compacting, own) if self._appends else None
        if operation in UPSERTS or indexes.named(index).computes:
            _check_bases(index, slices, closing.store.url)
            planned = None
            if compacting:
                merging = realtime.merging_of(self.config, line, there(line, self.config) or self.columns, closing.store.url)
                planned = tag.Planned(compacting, merging, line.ends(file_groups.instants_of_logs(slices)))
            tagged = tag.tag(self.runner, closing, self.rows.runs, slices, index, ended, planned)
        fill, length = operation not in ("bulk_insert", OVERWRITE), targets.row_size(line)
        aims = targets.targets(tagged, slices, self.settings.target, length, fill=fill, logs=places)
        self.vain = sum(run.rows for run in tagged) - sum(aim.rows for aim in aims)
        if not aims:
            return []
        kept = msgspec.structs.replace(self.settings, change_files=self.settings.change_files and not self._appends)
        return write.write(self.runner, output.Work(closing, view.drawn, storable(self.columns), kept), aims, progress=self.progress)

    def _columns(self, view: View, now: pa.Schema) -> pa.Schema:
        """The columns of the table after the commit."""
        if not self.rows.runs:
            return now  # all that was read is quarantined, and brings no columns
        named = (*self.config.key, *self.config.partition_by)
        found = columns.after(now, self.rows.columns, self._operation, lacking=self.work.head.tasks > 0, named=named)
        wider = [f.name for f in now if f.name in found.names and found.field(f.name).type != f.type]
        if wider and (logs := sum(len(one.logs) for one in view.slices)):
            raise RefusedError(
                f"the column {wider[0]!r} would become {found.field(wider[0]).type}, and {logs:,} logs of {plain(self.work.dest)} have it "
                f"as {now.field(wider[0]).type}: no program but quire reads both. Call table.compact(), then write again."
            )
        return found

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`."""
        counts = made.totals(written)
        said = Round(
            instant=view.drawn, action=self._action, version=view.version, operation=self._operation, replaced=self.replaced,
            ended=view.ended,
            inserts=tuple(sorted({each.partition for each in written if each.counts.inserts})),
            counts={**counts, "stale": counts["stale"] + self.vain + self.rows.left_out, "duplicates": self.rows.duplicates},
        )  # fmt: skip
        if not made.files(written):
            return said, b""
        said = msgspec.structs.replace(said, saw=self.saw, columns=rounds.columns_id(self.columns))
        extra = {made.JOB: closing.job, **streamer.checkpoint(view.log, self.work.head.spec.kind, self.tasks)}
        ended = self.replaced if self._operation == OVERWRITE else None
        content = made.metadata(written, self.config.name, self.columns, self._operation, extra, view.slices, ended)
        return said, commits.encode(content)


def _check_bases(index: str, slices: Sequence[Slice], url: str) -> None:
    """RefusedError where an index that reads base files cannot find all keys."""
    lacks = [] if indexes.named(index).computes else [one for one in slices if not one.name]
    if lacks:
        raise RefusedError(
            f"{url} has {len(lacks):,} file groups without a base file, as {lacks[0].group} in {lacks[0].partition!r}, and its index "
            f"({index}) looks for keys in these: let the program that wrote them compact the table first."
        )
