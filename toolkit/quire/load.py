"""Kafka topics into data files, exactly once: ranges of offsets are splits of the same ledger, and committed together with their data."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from quire import options
from quire.calls import repeat, runner_of
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import OFFSETS, Words
from quire.commit.log import Log
from quire.errors import RefusedError, UsageError, about, choose, quoted
from quire.formats import compression_for
from quire.formats.measure import written
from quire.formats.parquet import RECORDS
from quire.options import Options, flag
from quire.planning.changes import Policy
from quire.planning.listing import Cut
from quire.planning.offsets import Offsets
from quire.planning.plan import Wanted
from quire.progress import Progress, Step
from quire.report import LoadReport, Report
from quire.rounds import check_destination, check_words
from quire.sizes import parse_size
from quire.sources import kafka, offsets, records, schemas, transforms
from quire.sources.content import BadContent
from quire.sources.convert import Convert
from quire.sources.files import Selection
from quire.sources.kafka import Key, Topics, is_kafka, named
from quire.sources.kafka_client import Cluster, cluster_of
from quire.sources.positions import mirror
from quire.sources.records import BatchFunction, Loading
from quire.sources.until import Until
from quire.storage import connect, normalise

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check", "load"]

LARGEST = 1.5  # times the target a data file may become, as tasks are cut by a guess: else each would end in a tiny second file
LOOKED_AT = 64 << 10  # bytes of records by which a function shows its columns


def load(
    source: str, dest: Any, transform: BatchFunction | None = None, *, spark: Any = None, until: Any = None,
    every: str | float | None = None, max_runs: int | None = None, format: str | None = None, schema: Any = None,
    partition_by: str | None = None, newlines: str = "quarantine", compression: str | None = None, target_size: str | int = "256 MiB",
    max_bytes: str | int | None = None, on_data_loss: str = "fail", on_error: str = "quarantine", max_failures: int | None = None,
    keep_messages: bool = False, consumer_group: str | None = None, version: str | None = None, committer: str = "auto",
    append: bool = False, storage_options: Mapping[str, Any] | None = None, source_options: Mapping[str, Any] | None = None,
    dest_options: Mapping[str, Any] | None = None, progress: bool | Callable[[Step], object] = True,
) -> LoadReport:  # fmt: skip
    r"""Load what `source` holds and the ledger does not cover into data files below `dest`: no record is lost, and none is there twice.

    A call ends at the stable end that the topics have when it begins: what no open transaction can change any more. Partitions that are
    new to the ledger begin at their earliest record. A second call loads what is new; one that was killed is gone on with; of two at once
    one wins, and the other loads the rest.

    source        "kafka://host:9092[,host:9092…]/topic[,topic…]"; what is no name of a topic is a regular expression for whole names
    dest          a directory of quire's own
    transform     function(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch, which makes columns of records; left out: the records as
                  they are: key, value, headers, topic, partition, offset, timestamp, timestamp_type. Records for which it raises are
                  set aside, each with its offset and the reason; so it should say the same of a record whatever stands beside it
    spark         a SparkSession; left out: `quire.session()`
    until         load up to here and no further: an offset, {partition: offset}, {(topic, partition): offset}, or a time (datetime, or a
                  text as "2026-11-22T08:00:00+01:00"; without a zone it is UTC): the first record from then on is not loaded
    every, max_runs   again and again, "10 s" apart, until a signal (which lets the commit under way end) or `max_runs`
    format        "parquet" | "lines": the values, each ended by a newline
    newlines      with format="lines", of a value that holds one: "quarantine" | "escape" (newline as \n, backslash as \\)
    schema        of the function's columns, as in `quire.process`; left out: those of the destination, else those that it gives for the
                  first records. It is frozen; what does not fit is set aside
    partition_by  a column, by whose values files lie in directories; "date", where no column has this name, is the timestamp's day (UTC)
    compression   "none" | "gzip" | "zstd"
    target_size   bytes of a data file
    max_bytes     of records in one commit, as far as can be guessed before they are read; left out: as much as there is
    on_data_loss  of records that retention has removed before they were read: "fail" | "record": the loss is written into the ledger
    on_error, max_failures, keep_messages, version, committer, append   as in `quire.consolidate`
    consumer_group  its committed offsets follow the ledger after each commit, for tools that watch them (the report says where they do not)
    source_options  for Kafka's client, by librdkafka's names: {"security.protocol": "SASL_SSL", "sasl.password": quire.secret("PW"), …}
    storage_options, dest_options   for the destination; what has a dot in its name is for Kafka, too

    Returns the report (of the last run). Raises UsageError, DataLossError, TooManyFailures or another QuireError, each in one line.
    """
    call = check(
        source, dest, transform, until=until, every=every, format=format, schema=schema, partition_by=partition_by, newlines=newlines,
        compression=compression, target_size=target_size, max_bytes=max_bytes, on_data_loss=on_data_loss, on_error=on_error,
        max_failures=max_failures, keep_messages=keep_messages, consumer_group=consumer_group, version=version, committer=committer,
        append=append, storage_options=storage_options, source_options=source_options, dest_options=dest_options,
    )  # fmt: skip
    bars = Progress(progress)
    runner = runner_of(spark, call.made)
    with about("source"):
        cluster_of(call.made.topics.servers, call.made.topics.options).reach()
    found = repeat(call.made, runner, bars, every, max_runs, functools.partial(call.decided, bars), call.told)
    assert isinstance(found, LoadReport)
    return found


def check(
    source: str, dest: Any, transform: BatchFunction | None = None, *, until: Any = None, every: Any = None, format: str | None = None,
    schema: Any = None, partition_by: str | None = None, newlines: str = "quarantine", compression: str | None = None,
    target_size: str | int = "256 MiB", max_bytes: str | int | None = None, on_data_loss: str = "fail", on_error: str = "quarantine",
    max_failures: int | None = None, keep_messages: bool = False, consumer_group: str | None = None, version: str | None = None,
    committer: str = "auto", append: bool = False, storage_options: Any = None, source_options: Any = None, dest_options: Any = None,
) -> Call:  # fmt: skip
    """Check the arguments of `quire.load`, with nobody asked yet; every wrong one is a UsageError of one line."""
    options.check_options(storage_options, source_options, dest_options)
    with about("source"):
        topics = kafka.parsed(source, kafka.client_options(storage_options, source_options))
    laid_out = _format(transform, format)
    choose(newlines, records.NEWLINES, "newlines")
    if newlines == "escape" and laid_out != "lines":
        raise UsageError("newlines='escape' is for format='lines'. In Parquet a value stays as it is.")
    choose(on_data_loss, ("fail", "record"), "on_data_loss")
    choose(on_error, ("quarantine", "fail"), "on_error")
    if max_failures is not None:
        options.whole(max_failures, "max_failures", 0)
    if until is not None and every is not None:
        raise UsageError("until= says where a call ends, and every= that it does not end. Leave one of them out.")
    if consumer_group is not None and (not isinstance(consumer_group, str) or not consumer_group):
        raise UsageError(f"consumer_group={quoted(consumer_group)} is no group's name.")
    if schema is not None and transform is None:
        raise UsageError("schema= is for the columns of a function, transform=; records have their own.")
    with about("compression"):
        compression = compression_for(laid_out, compression)
    with about("dest"):
        if is_kafka(dest):
            raise UsageError(f"the destination {quoted(dest, 100)} is Kafka, which quire only reads. Give a directory.")
        to = normalise(dest)
        to_options = {**(storage_options or {}), **(dest_options or {})} or None
        by = choice(committer, connect(to, to_options))
    target, columns = parse_size(target_size, "target_size"), None if schema is None else schemas.canonical(schema)
    if partition_by is not None:
        with about("partition_by"):
            if not isinstance(partition_by, str) or not partition_by:
                raise UsageError(f"partition_by={quoted(partition_by)} is no column's name.")
            if transform is None or columns is not None:
                records.check_by(partition_by, columns if columns is not None else RECORDS)
    loading = Loading(
        laid_out, transform, columns, newlines, partition_by or "", flag(keep_messages, "keep_messages"), on_data_loss == "record"
    )
    name = records.RECORDS if laid_out == "parquet" else records.VALUES if newlines == "quarantine" else records.ESCAPED
    identity = name if transform is None else transforms.identity(transform, version)
    words = Words(
        transform=identity.rpartition("@")[0] if transform else identity, format=laid_out, compression=compression,
        layout="directories" if partition_by else "flat", split=OFFSETS, by=partition_by or "",
    )  # fmt: skip
    end = None if until is None else Until.parsed(until)
    intent: dict[str, Any] = {
        "topics": list(topics.asked), "dest": to, "transform": identity, "format": laid_out, "compression": compression, "target": target,
        "committer": by, "partition_by": partition_by or "", "planner": "balanced", "parts": 1, **({"until": str(end)} if end else {}),
    }  # fmt: skip
    convert = Convert("callable" if transform else name, laid_out, compression, int(LARGEST * target), target, loading=loading)
    made = Job(
        roots=(topics,), dest=to, dest_options=to_options, convert=convert, words=words,
        cut=Cut("balanced", "flat", 1, "xxh64", target, True), committer=by, include=(), exclude=(), hidden=False, follow_links=False,
        min_age=None, max_failures=0 if on_error == "fail" else max_failures, policy=Policy(), append=flag(append, "append"), intent=intent,
        most=None if max_bytes is None else parse_size(max_bytes, "max_bytes"),
    )  # fmt: skip
    return Call(made, end, consumer_group)


def _format(transform: BatchFunction | None, format: str | None) -> str:
    if transform is not None and not callable(transform):
        with about("transform"):
            raise UsageError(f"transform={quoted(transform)} is no function. It is given a pyarrow.RecordBatch, and returns one.")
    laid_out = "parquet" if format is None else choose(format, ("parquet", "lines"), "format")
    if transform is not None and laid_out != "parquet":
        with about("format"):
            raise UsageError("a function makes columns, and format='lines' takes values as they are. Leave one of them out.")
    return laid_out


@dataclass(frozen=True)
class Job(Options):
    """A call as a job. `ends` are of the run under way."""

    ends: Mapping[Key, int] = field(default_factory=dict)
    most: int | None = None

    @property
    def topics(self) -> Topics:
        """What is loaded."""
        (found,) = self.roots
        assert isinstance(found, Topics)
        return found

    @property
    def source(self) -> str:
        """What stands in the log, and in the report."""
        return self.topics.shown

    def wanted(self, without: frozenset[str] = frozenset(), *, supersede: bool = False) -> Wanted:
        """What to plan; nothing is gathered in two versions."""
        loading = self.convert.loading
        assert loading is not None
        measure = functools.partial(_written, loading, self.convert.compression)
        wanted = Offsets(self.topics, {} if supersede else self.ends, measure, self.most, loading.record_loss, without)
        return Wanted(self.roots, Selection(), self.cut, self.dest, self.dest_options, None, None, self.policy, wanted)


def _written(loading: Loading, compression: str, some: pa.Table) -> int:
    """Bytes that records become in a data file."""
    parts = [part.made for batch in some.to_batches() for part in loading.made(batch)[0]]
    return written(loading.format, compression, parts)


@dataclass
class Call:
    """A call, checked. Before each run it asks the brokers what there is."""

    made: Job
    until: Until | None
    group: str | None
    unnamed: set[str] = field(default_factory=set)  # topics whose ids no broker has told this call
    notes: list[str] = field(default_factory=list)
    job: Job | None = None  # of the run under way

    def decided(self, bars: Progress, _: Options) -> Job:
        """The job of a run: topics with their ids, the stable ends, and the columns of the rows."""
        made, self.notes = self.made, []
        store = made.store()
        with about("dest"):
            check_destination(store, made.append)
            log = Log(store).refresh()
            self._check_owner(log)
        cluster = cluster_of(made.topics.servers, made.topics.options)
        with about("source"):
            topics, keys = self._found(cluster, bars)
            _check_cluster(log, topics, made.dest)
            ends = cluster.ends(keys, bars.again)
        if self.until is not None:
            with about("until"):
                ends = self.until.ends(cluster, ends, bars.again, first=not log.source())
        self.job = replace(made, roots=(topics,), ends=ends, intent={"cluster": topics.cluster, **made.intent})
        if made.convert.of_user:
            self.job = self._with_columns(self.job, log, cluster)
        return self.job

    def _found(self, cluster: Cluster, bars: Progress) -> tuple[Topics, list[Key]]:
        """The topics as they are now, and their partitions."""
        asked = self.made.topics
        identity, there = cluster.topics(bars.again)
        found = {name: n for name, n in there.items() if asked.matches(name)}
        for name in asked.names:
            if name not in there:
                _missing(cluster, name, list(there))
        if not found:
            raise UsageError(f"no topic of {asked.servers} matches {', '.join(map(repr, asked.asked))}: it has {_some(list(there))}.")
        versions = {name: named(name) for name in found if name in self.unnamed}
        versions |= cluster.versions(found.keys() - versions.keys(), bars.again)
        unnamed = {name for name, version in versions.items() if version == named(name)}
        if new := unnamed - self.unnamed:
            self.unnamed |= new
            warnings.warn(
                f"no broker of {asked.servers} tells the id of {', '.join(sorted(new)[:3])}: the ledger knows it by its name, and would "
                f"not see that it was deleted and made again.", UserWarning, stacklevel=6,
            )  # fmt: skip
        if self.unnamed:
            self.notes.append(f"known by name, as no broker tells the id: {', '.join(sorted(self.unnamed)[:5])}")
        topics = replace(asked, url=kafka.SCHEME + identity, versions=versions)
        return topics, [Key(name, i) for name, n in found.items() if name in versions for i in range(n)]

    def _check_owner(self, log: Log) -> None:
        """Refuse a destination that holds files, or topics that this call does not load."""
        made, words = self.made, log.words()
        if words is not None and words.split != OFFSETS:
            raise RefusedError(
                f"the destination {made.dest} holds what was made of files ({words.transform} → {words.format}), and this call loads "
                f"topics: nothing was read. Choose another destination."
            )
        before = log.source()
        if not before or made.append:
            return
        theirs = kafka.parsed(before)
        others = [one for one in theirs.asked if one not in made.topics.asked and not (one in theirs.names and made.topics.matches(one))]
        if others:
            raise RefusedError(
                f"the destination {made.dest} holds topic {', '.join(others)}, and this call loads {', '.join(made.topics.asked)}: "
                f"nothing was read. Name all of them, choose another destination, or say append=True to bring them together."
            )

    def _with_columns(self, made: Job, log: Log, cluster: Cluster) -> Job:
        """With the columns of the rows as the destination has them, or an open job of the same call, or as the function gives them."""
        loading = made.convert.loading
        assert loading is not None
        columns, there = loading.schema, None
        if log.words() is not None:
            with about("dest"):
                check_words(log, made)
            there = schemas.frozen(log)
        if columns is not None and there is not None and columns != there:
            raise RefusedError(
                f"the destination {made.dest} holds rows of the columns {schemas.text(there)}; schema= says {schemas.text(columns)}. Say "
                f"the same, leave schema= out, or choose another destination."
            )
        columns = columns or there or _of_open_job(made, log) or _of_first_records(made, loading, cluster)
        if columns is None:
            return made  # there is no record yet
        with about("partition_by"):
            records.check_by(loading.by, columns)
        convert = dataclasses.replace(made.convert, loading=replace(loading, schema=columns))
        return replace(made, convert=convert, intent={**made.intent, "schema": schemas.text(columns)})

    def told(self, report: Report) -> LoadReport:
        """The report of a run; after it, the consumer group follows."""
        assert self.job is not None
        if self.group is not None:
            self.notes.append(mirror(self.job.topics, self.job.store(), self.group))
        return LoadReport.of(report, self.notes)


def _check_cluster(log: Log, topics: Topics, dest: str) -> None:
    """Refuse another cluster's topics: what the ledger knows of offsets would not be about them."""
    from quire.coverage.fold import fold

    for source in fold(log).sources:
        for path in (source.first, source.last):
            if is_kafka(path) and not path.startswith(f"{topics.url}/"):
                other = path.removeprefix(kafka.SCHEME).partition("/")[0]
                raise RefusedError(
                    f"{topics.servers} is cluster {topics.cluster}, and the destination {dest} holds topics of cluster {other}: their "
                    f"offsets mean other records. Nothing was read. Choose another destination."
                )


def _of_open_job(made: Job, log: Log) -> pa.Schema | None:
    """The columns that an unfinished job of the same call has frozen."""
    for head in protocol.open_jobs(made.store(), log):
        if {k: v for k, v in head.intent.items() if k != "schema"} == made.intent and head.intent.get("schema"):
            return schemas.parse(str(head.intent["schema"]))
    return None


def _of_first_records(made: Job, loading: Loading, cluster: Cluster) -> pa.Schema | None:
    """What the function gives for some of the first records; None where there is none yet."""
    starts = cluster.starts(made.ends)
    spans = [offsets.Span(key, starts[key], end) for key, end in sorted(made.ends.items()) if starts[key] < end]
    some, _ = offsets.sample(cluster, spans[: offsets.AT_ONCE], LOOKED_AT)
    for batch in some.to_batches():
        parts = [batch, *(batch.slice(i, 1) for i in range(min(batch.num_rows, 100)))]
        for part in parts:
            try:
                return schemas.canonical(loading.call(part).schema)
            except BadContent:
                continue  # of records that are set aside nobody learns the columns
    return None


def _missing(cluster: Cluster, name: str, there: list[str]) -> None:
    """Say that a topic is not there, with the nearest one that is, or why it cannot be seen."""
    import difflib

    try:
        cluster.look(name)
    except UsageError:
        raise
    except Exception as e:
        if "no permission" in str(e):
            raise
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else f" It has {_some(there)}."
    raise UsageError(f"{cluster.servers} has no topic {name!r} that we may see.{hint}")


def _some(names: list[str]) -> str:
    return (", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")) if names else "none"
