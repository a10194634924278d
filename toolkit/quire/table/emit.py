"""The changes of a table as a topic of Kafka, in Debezium's envelope: at least once, with keys by which a repeated record replaces itself.

how far the topic has come → the next commits → tasks: records, acknowledged by the brokers → the topic has come so far
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from quire import display
from quire.arguments import flag, format_size
from quire.commit.entries import COMMITS
from quire.engine.loop import again, until_signal
from quire.engine.outages import Outages
from quire.engine.report import Gap
from quire.errors import NotFoundError, RefusedError, UsageError, about, quoted
from quire.interrupts import interruptible
from quire.progress import Progress, ProgressEvent
from quire.sources.files import Options
from quire.sources.kafka import topics
from quire.sources.kafka.client import cluster_of, library
from quire.spark.runner import Failure, Runner, runner_of
from quire.storage import Store
from quire.table import changes, emitted
from quire.table.changes import Look
from quire.table.emitted import State, Target
from quire.table.envelope import Envelope, keys_of
from quire.table.format.change_file import DELETE, OP
from quire.table.services import check_instant
from quire.table.source import BEGIN, Commits, Window, columns_of, window
from quire.table.table import Table
from quire.table.timeline import Timeline
from quire.table.window import archived_since, counts_from

if TYPE_CHECKING:
    import pyarrow as pa

ANEW = "emit the table to another topic, or make this one anew: it then begins with the rows that are there."
SHARES = 4  # groups of runs for each task that runs at once


@dataclass(frozen=True, repr=False)
class EmitReport(display.Shown):
    """The result of a call that emits a table's changes.

    source, dest    the table and the topic
    commits         how many commits were emitted
    records, bytes  how many records the brokers have acknowledged, tombstones among them, and their bytes (keys and values)
    instant         the newest one that the topic has; "" where nothing has been written yet
    snapshot        the topic was new: the rows that were there were emitted
    seconds         how long it took
    gaps            outages that the call has outlived, each a `quire.Gap`, and `gap_count`, as in `quire.Report`

        report = quire.emit(table, "kafka://broker:9092/trips")
        print(report), json.dumps(report.as_dict())
    """

    source: str
    dest: str
    commits: int = 0
    records: int = 0
    bytes: int = 0
    instant: str = ""
    snapshot: bool = False
    seconds: float = 0.0
    gaps: tuple[Gap, ...] = ()
    gap_count: int = 0

    def __repr__(self) -> str:
        return (
            f"EmitReport(commits={self.commits:,}, records={self.records:,}, bytes={self.bytes:,}, instant={self.instant!r}, "
            f"seconds={self.seconds:.1f})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {"table": self.source, "commits": f"{self.commits:,}{' (a snapshot)' * self.snapshot}"}
        rows |= {"records": f"{self.records:,} ({format_size(self.bytes)})", "up to": self.instant or "nothing"}
        rows |= {"outages outlived": f"{self.gap_count:,}, the last one {self.gaps[-1]}"} if self.gaps else {}
        return rows | {"seconds": f"{self.seconds:.1f}"}


@interruptible
def emit(
    source: Any, dest: str, *, key: Sequence[str] | None = None, since: str | None = None, tombstones: bool = False, spark: Any = None,
    every: str | float | None = None, max_runs: int | None = None, outage: str | float | None = None,
    producer_options: Mapping[str, Any] | None = None, storage_options: Mapping[str, Any] | None = None,
    progress: bool | Callable[[ProgressEvent], object] = True,
) -> EmitReport:  # fmt: skip
    """Write what the commits of a table have changed into a topic of Kafka, in Debezium's envelope (JSON), at least once.

        report = quire.emit(table, "kafka://broker:9092/trips", every="10 s")

    The first call emits the rows that are there, as `"op": "r"`; later ones go on with each change of each commit, c, u or d. How far the
    topic has come is kept beside the table, after the brokers have acknowledged the records: a call that dies repeats some of them.

    source            a `quire.Table`, or where one lies
    dest              "kafka://host:9092[,host:9092…]/topic", a topic that is there
    key               the columns of the record's key, a list (default: those of the table's key, and its partitions): one key lies in one
                      partition of the topic, and its changes keep their order
    since             of a topic that is new to the table: begin after this instant, and not with the rows that are there
    tombstones        True: a record without a value follows each delete, so that a compacted topic forgets the key
    spark             a SparkSession; left out: `quire.session()`; or `quire.LocalRunner()`
    every, max_runs   again and again, "10 s" apart, until a signal (after the commits under way) or `max_runs`
    outage            how long brokers or the table's store may be away before the call ends, "1 h": as in `quire.consolidate`
    producer_options  by librdkafka's names: {"security.protocol": "SASL_SSL", "sasl.password": quire.secret("PW"), …}
    storage_options   of the table's store
    progress          True: bars | False | function(step), as in `quire.consolidate`

    Returns an `EmitReport` of all its runs. Raises UsageError, RefusedError where commits are gone that the topic lacks or has,
    StorageError for brokers that do not take the records, or another QuireError, each in one line.
    """
    times, bars = again(every, max_runs, outage), Progress(progress, "part")
    call = check(
        source, dest, key=key, since=since, tombstones=tombstones, producer_options=producer_options, storage_options=storage_options
    )
    runner = runner_of(spark, call.store)
    with until_signal(None) if times.pause is not None else nullcontext(threading.Event()) as stopped:
        bars.stop = stopped
        left, away, last = times.runs, Outages(times.allowed, bars, call.shown), None
        so_far = EmitReport(call.commits.url, call.shown)

        def once() -> EmitReport:
            nonlocal so_far
            before = so_far
            with bars.run("emit", call.shown, COMMITS) as run:
                for so_far in call.run(runner, bars, before):  # what is emitted counts, also where the run fails after it
                    run.report = _since(before, so_far)
            return so_far

        while True:
            last, over = away.outlived(once, stopped, last)
            left = None if left is None else left - 1
            if over or times.pause is None or left == 0 or stopped.wait(times.pause):
                return away.noted(so_far)


def _until(report: EmitReport, done: Iterable[str], seconds: float) -> EmitReport:
    """The report once the topic has these instants."""
    newest = max(done, default="")
    return replace(report, instant="" if newest == BEGIN else newest, seconds=seconds)


def _since(before: EmitReport, report: EmitReport) -> EmitReport:
    """The report of one run: how much it has added to that of those before it."""
    counts = {name: getattr(report, name) - getattr(before, name) for name in ("commits", "records", "bytes")}
    return replace(report, **counts)


def check(
    source: Any, dest: str, *, key: Sequence[str] | None = None, since: str | None = None, tombstones: bool = False,
    producer_options: Mapping[str, Any] | None = None, storage_options: Mapping[str, Any] | None = None,
) -> Emitting:  # fmt: skip
    """Check the arguments of `quire.emit`, with no broker asked yet; every wrong one is a UsageError of one line."""
    with about("storage_options"):
        if storage_options is not None and not isinstance(storage_options, Mapping):
            raise UsageError(f"storage_options is a dictionary of options for the table's store, not {type(storage_options).__name__}.")
    with about("source"):
        if not isinstance(source, Table | str | os.PathLike):
            raise UsageError(f"the source is a table, or where one lies, not {quoted(source)}.")
        table = source if isinstance(source, Table) else Table(source, storage_options=storage_options)
        if table._instant:
            raise UsageError(f"{table.url} as of {table._instant} does not change. Give the table itself.")
        changes.check(table.config, table.url)
    with about("dest"):
        topic = topics.topic_asked(dest)
    with about("key"):
        if key is not None and (
            isinstance(key, str) or not isinstance(key, Sequence) or not key or not all(isinstance(name, str) for name in key)
        ):
            raise UsageError(f"key takes a list of columns, as ['id'], and not {quoted(key)}.")
    options = topics.producer_options(producer_options)
    start = None if since is None else check_instant(since, "since")
    library()  # where the client is missing, that is said before Spark is started
    wanted = tuple(dict.fromkeys(key if key is not None else (*table.config.key, *table.config.partition_by)))
    stored = {**(storage_options or {}), **(table._options or {})} or None
    return Emitting(
        Commits(table.url, options=stored), topic.servers, topic.asked[0], options, Envelope(table.config.name, wanted),
        set(table.config.partition_by) <= set(wanted), flag(tombstones, "tombstones"), start, key is not None,
    )  # fmt: skip


@dataclass(frozen=True)
class Emitting:
    """A call, checked. `apart`: a key lies in one partition of the table, so that these are emitted side by side."""

    commits: Commits = field(repr=False)
    servers: str
    topic: str
    options: Options = field(repr=False)
    envelope: Envelope
    apart: bool
    tombstones: bool
    since: str | None
    said: bool  # the columns of the key

    @property
    def store(self) -> Store:
        """The table's store."""
        return self.commits.store()

    def line(self, store: Store) -> Timeline:
        """The table's timeline as it is now."""
        return Table(self.commits.url, storage_options=self.commits.options)._timeline(store)

    @property
    def shown(self) -> str:
        """The topic as the user has written it."""
        return f"{topics.SCHEME}{self.servers}/{self.topic}"

    def target(self) -> Target:
        """The topic as it is now. Raises NotFoundError where it is not there, StorageError where no broker answers."""
        with about("dest"):
            cluster = cluster_of(self.servers, self.options)
            cluster.reach()
            name, there = cluster.topics()
            if self.topic not in there:
                raise NotFoundError(f"the topic {self.topic!r} is not at {self.servers}: nothing was emitted. Create it, and call again.")
            return Target(name, self.topic, cluster.versions([self.topic]).get(self.topic, topics.named(self.topic)))

    def run(self, runner: Runner, bars: Progress, report: EmitReport) -> Iterator[EmitReport]:
        """Emit what is new, until nothing is, or the call is to end; reports of what was before and this so far, the last one of all."""
        before, began, store, target = report.seconds, time.monotonic(), self.commits.store(bars.again), self.target()
        state = emitted.read(store, target)
        if self.since is not None and not state.number:
            state = self._begun(store, target)
        done = state.instants
        while True:
            found = window(self.commits, done, self.shown, ANEW)
            if not found.commits:
                break
            records, size = self._sent(runner, bars, found, snapshot=not done)
            marked = emitted.mark(store, target, state, found.commits, self.line(store))
            # Where another call has emitted at the same time, older changes may stand behind newer ones: `done` stays, and all since
            # comes again.
            state = emitted.read(store, target) if marked is None else marked
            count = sum(instant != BEGIN for instant in found.commits)
            report = replace(
                report, commits=report.commits + count, records=report.records + records, bytes=report.bytes + size,
                snapshot=report.snapshot or not done,
            )  # fmt: skip
            bars.say(f"{count:,} commits were emitted as {records:,} records")
            done = done.union(found.commits)
            yield _until(report, done, before + time.monotonic() - began)
            if bars.stopping:
                break
        yield _until(report, done, before + time.monotonic() - began)

    def _begun(self, store: Store, target: Target) -> State:
        """The state of a topic that begins after an instant."""
        assert self.since is not None
        line = self.line(store)
        if archived_since(line, since := counts_from(line, self.since)):
            raise RefusedError(
                f"{store.url} has archived instants before {line.first}, so changes since {self.since} are not all known: nothing was "
                "emitted. Leave since= out, and the topic begins with the rows that are there."
            )
        before = (BEGIN, *(instant.time for instant in line.completed if instant.counts[0] <= since))
        return emitted.mark(store, target, State(), before, line) or emitted.read(store, target)

    def _sent(self, runner: Runner, bars: Progress, found: Window, *, snapshot: bool) -> tuple[int, int]:
        """Emit a window; how many records, and bytes. Raises the error of the first task that failed: then nothing is marked."""
        columns = columns_of(found.columns, f"the schema of {self.commits.url}")
        key = keys_of(columns, self.envelope.key)
        if found.runs and (len(key) < len(self.envelope.key) if self.said else not key):
            missing = next(name for name in self.envelope.key if name not in key)
            with about("key"):
                raise UsageError(f"{self.commits.url} has no column {missing!r}. It has: {', '.join(columns.names)[:400]}.")
        runs = found.runs if self.apart or snapshot else (tuple(look for run in found.runs for look in run),)
        envelope = self.envelope._replace(key=key, snapshot=snapshot, tombstones=self.tombstones)
        work = partial(
            _emitted, commits=self.commits, columns=columns, servers=self.servers, topic=self.topic, options=self.options, envelope=envelope
        )
        items = [run for run in runs if run]
        most = max(1, runner.parallelism * SHARES)
        groups = [group for start in range(most) if (group := list(range(start, len(items), most)))]
        with bars.phase("emitting", total=len(items), unit="part") as bar:
            outcomes = runner.run(work, items, groups=groups, watch=partial(bar.update, 0))
            bar.to(len(items))
        failed = next((one for one in outcomes if isinstance(one, Failure)), None)
        if failed is not None:
            raise failed.kind_of_error(f"{failed.text.rstrip('.')}. Nothing of these commits is marked as emitted: call again.")
        done = [one for one in outcomes if not isinstance(one, Failure)]
        return sum(one["records"] for one in done), sum(one["bytes"] for one in done)


def _emitted(
    looks: Sequence[Look], *, commits: Commits, columns: pa.Schema, servers: str, topic: str, options: Options, envelope: Envelope
) -> dict[str, Any]:
    """Emit the changes of some places, in the order of their instants; all of them are acknowledged when it returns."""
    store, sender = commits.store(), cluster_of(servers, options).sender(topic)
    records = size = 0
    try:
        for batch in _ordered(store, looks, columns):
            for one in envelope.messages(batch):
                sender.send(one.key, one.value)
                records, size = records + 1, size + len(one.key) + len(one.value or b"")
        sender.flush()
    except BaseException:
        sender.drop()
        raise
    return {"records": records, "bytes": size}


def _ordered(store: Store, looks: Sequence[Look], columns: pa.Schema) -> Any:
    """The changes of some places, instant by instant as they count; of one with several its deletes come first, as a row may have moved."""
    import pyarrow.compute as pc

    for _, instant in sorted({(look.ended, look.instant) for look in looks}):
        own = [look for look in looks if look.instant == instant]
        for deletes in (True, False) if len(own) > 1 else (None,):
            for look in own:
                for batch in map(changes.told, changes.batches(store, look, columns, "both")):
                    if deletes is None:
                        yield batch
                    elif batch.num_rows:
                        gone = pc.equal(batch.column(OP), DELETE)
                        yield batch.filter(gone if deletes else pc.invert(gone))
