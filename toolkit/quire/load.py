"""Kafka topics into data files, exactly once: ranges of offsets are splits of the same ledger, and committed together with their data."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from quire.arguments import ROWS, count, flag, parse_target, refuse_needless
from quire.commit.committers import choice
from quire.commit.entries import OFFSETS, Spec
from quire.coverage.deduplicate import Deduplicate
from quire.engine import request
from quire.engine.by_topic import EXAMPLE, ByTopic, TopicsReport, dest_of, is_for_each
from quire.engine.exports import step as exporting
from quire.engine.loader import LoadCall, LoadRequest
from quire.engine.loop import again, check_stop, repeat
from quire.engine.report import LoadReport
from quire.engine.request import shows
from quire.engine.retrying import MAX_ATTEMPTS, Retries
from quire.engine.take_up import Identity
from quire.errors import UsageError, about, choose, quoted
from quire.formats import compression_for
from quire.formats.parquet import RECORDS
from quire.interrupts import interruptible
from quire.planning.listing import Cut
from quire.progress import Progress, ProgressEvent
from quire.sources import decoders, transforms
from quire.sources.kafka import records
from quire.sources.kafka import topics as kafka
from quire.sources.kafka.client import library
from quire.sources.kafka.deduplicate import check_column, parsed
from quire.sources.kafka.records import BatchFunction, Loading
from quire.sources.kafka.start import Start
from quire.sources.kafka.topics import is_kafka
from quire.sources.kafka.until import Until
from quire.sources.partition_by import check_seen
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import MORE
from quire.sources.transforms.convert import Convert
from quire.spark.runner import runner_of
from quire.storage import connect, destination
from quire.table.into import into, place

LARGEST = 1.5  # times the target a data file may become, as tasks are cut by a guess: else each would end in a tiny second file


class LoadSettings(TypedDict, total=False):
    """The keyword arguments of `quire.load` that say what to do; `check` has their defaults."""

    start: Any
    until: Any
    format: str | None
    schema: Any
    partition_by: str | None
    newlines: str
    compression: str | None
    target_size: str | int
    max_bytes: str | int | None
    on_data_loss: str
    retry_quarantined: str | float | None
    max_attempts: int
    max_quarantined: int | None
    keep_messages: bool
    consumer_group: str | None
    function_version: str | None
    committer: str
    operation: str | None
    allow_nonempty: bool
    storage_options: Mapping[str, Any] | None
    source_options: Mapping[str, Any] | None
    dest_options: Mapping[str, Any] | None
    keep_versions: int | str | None
    exports: str | Iterable[str] | None
    parquet_options: Mapping[str, Any] | None
    schema_evolution: str
    decode: str | None
    columns: Mapping[str, str] | None
    registry: str | None
    registry_options: Mapping[str, Any] | None
    message: str | None
    metadata: str | Iterable[str] | Mapping[str, str] | None
    decode_key: str | None
    deduplicate: str | None
    within: str | float | None


def check(
    source: str | Iterable[str], dest: Any, transform: BatchFunction | None = None, *, start: Any = "earliest", until: Any = None,
    every: Any = None, format: str | None = None, schema: Any = None, partition_by: str | None = None, newlines: str = "quarantine",
    compression: str | None = None,
    target_size: str | int = "256 MiB", max_bytes: str | int | None = None, on_data_loss: str = "fail",
    retry_quarantined: str | float | None = None, max_attempts: int = MAX_ATTEMPTS,
    max_quarantined: int | None = None, keep_messages: bool = False, consumer_group: str | None = None, function_version: str | None = None,
    committer: str = "auto", operation: str | None = None, allow_nonempty: bool = False, storage_options: Any = None,
    source_options: Any = None, dest_options: Any = None, keep_versions: int | str | None = None, exports: Any = None,
    parquet_options: Any = None, schema_evolution: str = "refuse",
    decode: str | None = None, columns: Any = None, registry: str | None = None, registry_options: Any = None, message: str | None = None,
    metadata: Any = None, decode_key: str | None = None, deduplicate: str | None = None, within: str | float | None = None,
) -> LoadCall:  # fmt: skip
    """Check the arguments of `quire.load`, with nobody asked yet; every wrong one is a UsageError of one line.

    Where each topic has a destination, the arguments of one are checked.
    """
    request.check_options(storage_options, source_options, dest_options)
    dest, dest_options = place(dest, dest_options)
    dest = dest_of(dest, EXAMPLE) if is_for_each(dest) else dest
    with about("source"):
        topics = kafka.parsed(source, kafka.client_options(storage_options, source_options))
    library()  # where the client is missing, that is said before Spark is started
    words = {"columns": columns, "registry": registry, "registry_options": registry_options, "message": message, "metadata": metadata,
             "decode_key": decode_key}  # fmt: skip
    transform, schema = _decoding(transform, decode, {"schema": schema, **words})
    laid_out = _format(transform, format)
    choose(newlines, records.NEWLINES, "newlines")
    if newlines == "escape" and laid_out != "lines":
        raise UsageError("newlines='escape' is for format='lines'. In Parquet a value stays as it is.")
    choose(on_data_loss, ("fail", "record"), "on_data_loss")
    count(max_quarantined, "max_quarantined")
    if until is not None and every is not None:
        raise UsageError("until= says where a call ends, and every= that it does not end. Leave one of them out.")
    if consumer_group is not None and (not isinstance(consumer_group, str) or not consumer_group):
        raise UsageError(f"consumer_group={quoted(consumer_group)} is not a group's name.")
    keep_messages, of_function = flag(keep_messages, "keep_messages"), {"transform=function": transform is not None}
    refuse_needless({"function_version": function_version, "keep_messages": keep_messages, "schema": schema}, of_function)
    adds = choose(schema_evolution, request.EVOLUTION, "schema_evolution") == "add"
    refuse_needless({"schema_evolution": schema_evolution}, {ROWS: transform is not None and laid_out == "parquet"})
    with about("compression"):
        compression = compression_for(laid_out, compression)
    written = request.writes(parquet_options, laid_out)
    with about("dest"):
        if is_kafka(dest):
            raise UsageError(f"the destination {quoted(dest, 100)} is Kafka, and quire.load writes files and tables. Give a directory.")
        to_options = {**(storage_options or {}), **(dest_options or {})} or None
        to = destination(dest, to_options)
        there = connect(to, to_options)
        by = choice(committer, there)
    target, of_rows = parse_target(target_size), None if schema is None else schemas.canonical(schema)
    if partition_by is not None:
        _check_by(partition_by, RECORDS if transform is None and of_rows is None else of_rows)
    same = _same(deduplicate, within, transform, of_rows)
    loading = Loading(laid_out, transform, of_rows, newlines, partition_by or "", keep_messages, on_data_loss == "record", deduplicate=same)
    name = records.RECORDS if laid_out == "parquet" else records.VALUES if newlines == "quarantine" else records.ESCAPED
    identity = name if transform is None else transforms.identity(transform, function_version)
    spec = Spec(
        transform=identity.rpartition("@")[0] if transform else identity, format=laid_out, compression=compression,
        layout="directories" if partition_by else "flat", kind=OFFSETS, by=partition_by or "",
    )  # fmt: skip
    begin, end = Start.parsed(start), None if until is None else Until.parsed(until)
    intent: dict[str, Any] = {
        "topics": list(topics.asked), "dest": to, "transform": identity, "format": laid_out, "compression": compression, "target": target,
        "committer": by, "partition_by": partition_by or "", "planner": "balanced", "parts": 1, **({"until": str(end)} if end else {}),
        **({"writes": written.said} if written.said else {}), **({"start": str(begin)} if begin != Start() else {}),
        **request.evolution(adds=adds),
    }  # fmt: skip
    kind = "callable" if transform else name
    convert = Convert(
        kind, laid_out, compression, int(LARGEST * target), target, loading=loading, parquet=written, evolves=MORE if adds else ""
    )  # fmt: skip
    made = LoadRequest(
        (topics,), to, to_options, Identity(intent, spec, by, source=topics.shown), convert,
        Cut("balanced", "flat", 1, "xxh64", target, True), max_quarantined=max_quarantined,
        allow_nonempty=flag(allow_nonempty, "allow_nonempty"), most=None if max_bytes is None else parse_target(max_bytes, "max_bytes"),
        start=begin, pace=request.Pace(retries=Retries.parsed(retry_quarantined, max_attempts)),
        wishes=request.Wishes(request.keep(keep_versions, there), exporting.wanted(exports, laid_out, there)),
    )  # fmt: skip
    return LoadCall(_into(made, operation), end, consumer_group)


@shows(check)
@interruptible
def load(
    source: str | Iterable[str], dest: Any, transform: BatchFunction | None = None, *, spark: Any = None, every: str | float | None = None,
    max_runs: int | None = None, outage: str | float | None = None, progress: bool | Callable[[ProgressEvent], object] = True,
    stop: threading.Event | None = None, maintain: bool | Mapping[str, Any] | None = None,
    **settings: Unpack[LoadSettings],
) -> LoadReport:  # fmt: skip
    r"""Load what `source` holds and the ledger does not cover into data files below `dest`: no record is lost, and none is there twice.

    A call ends at the stable end that the topics have when it begins: what no open transaction can change any more. Partitions that are
    new to the ledger begin at their earliest record. A second call loads what is new; one that was killed is gone on with; of two at once
    one wins, and the other loads the rest.

    source        "kafka://host:9092[,host:9092…]/topic[,topic…]"; what is not a topic's name is a regular expression for whole names; a
                  list of such, of one cluster
    dest          a directory of quire's own, or a table (`quire.Table`, or where one lies); "/data/{topic}": each topic has one of its own
    transform     function(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch, which makes columns of records; left out: the records as
                  they are: key, value, headers, topic, partition, offset, timestamp, timestamp_type. Records for which it raises are
                  quarantined, each with its offset and the reason; so it should say the same of a record whatever stands beside it
    spark         a SparkSession; left out: `quire.session()`
    decode        "json" | "avro" | "protobuf" | "xml": columns of what the values hold, instead of a function. With it go schema, columns,
                  registry, registry_options, message, metadata and decode_key, as in `quire.decoder`
    start         where a topic begins that the ledger does not know yet: "earliest" | "latest": what comes from now on | a time, as in
                  `until`: the first record from then on. All before it is marked as done elsewhere, and no later call loads it
    until         load up to here and no further: an offset, {partition: offset}, {(topic, partition): offset}, or a time (datetime, or a
                  text as "2026-11-22T08:00:00+01:00"; without a zone it is UTC): the first record from then on is not loaded
    every, max_runs   again and again, "10 s" apart, until a signal (which lets the commit under way end) or `max_runs`
    outage        how long brokers or the store may be away before the call ends, "1 h": as in `quire.consolidate`
    format        "parquet" | "lines": the values, each ended by a newline
    newlines      with format="lines", of a value that holds one: "quarantine" | "escape" (newline as \n, backslash as \\)
    schema        of the function's columns, as in `quire.process`; left out: those of the destination, else those that it gives for the
                  first records (into a table: the first new ones). It is frozen; what does not fit is quarantined
    schema_evolution  of records with other columns than the destination's: "refuse" | "add": as in `quire.consolidate`
    partition_by  a column, by whose values files lie in directories; "date", where no column has this name, is the timestamp's day (UTC)
    compression   "none" | "gzip" | "zstd"
    target_size   bytes of a data file
    max_bytes     of records in one commit, as far as can be guessed before they are read; left out: as much as there is
    on_data_loss  of records that retention has removed before they were read: "fail" | "record": the loss is written into the ledger
    operation     into a table: "upsert" (left out), "insert", "bulk_insert"; the rows and the offsets are one commit
    retry_quarantined, max_attempts   records in quarantine are tried again by runs, as in `quire.consolidate`
    max_quarantined, keep_messages, function_version, committer, allow_nonempty, keep_versions, exports, parquet_options   as in
                  `quire.consolidate`
    deduplicate, within   records of which one of the same value was kept are left out: "key" | "header:NAME" | a column of decode=, within
                  a time of their own, "1 day" (it is kept for later calls, which may leave both out; "off" ends it)
    consumer_group  its committed offsets follow the ledger after each commit, for tools that watch them (the report says where they do not)
    source_options  for Kafka's client, by librdkafka's names: {"security.protocol": "SASL_SSL", "sasl.password": quire.secret("PW"), …}
    storage_options, dest_options   for the destination; what has a dot in its name is for Kafka, too
    stop          a threading.Event: once it is set, the call ends after the commit under way, in whatever thread it runs
    maintain      whether the destination is maintained after runs: as in `quire.consolidate`

    Returns the report (of the last run; with a destination for each topic a `TopicsReport`). Raises UsageError, DataLossError,
    TooManyQuarantined, AllQuarantined (no record could be loaded), TopicsFailed or another QuireError, each in one line.
    """
    request.check_names(settings, LoadSettings)
    call = check(source, dest, transform, every=every, **settings)
    check_stop(stop)
    times, bars = again(every, max_runs, outage, maintain), Progress(progress, "range")
    runner = runner_of(spark, call.request.store(), call.request.roots)
    if is_for_each(dest):
        asked = call.request.topics

        def one(topic: str) -> LoadCall:
            return check(f"{kafka.SCHEME}{asked.servers}/{topic}", dest_of(dest, topic), transform, every=every, **settings)

        quarantines = call.request.max_quarantined is not None
        with ByTopic(asked, dest, one, bars, quarantines=quarantines, maintain=times.maintain) as topics:
            found = repeat(call.request, runner, bars, replace(times, maintain=None), stop=stop, run=topics.run)
        assert isinstance(found, TopicsReport)
        return found.complete()
    found = repeat(call.request, runner, bars, times, functools.partial(call.decided, bars), call.told, stop)
    assert isinstance(found, LoadReport)
    return found


def _decoding(transform: Any, decode: Any, words: Mapping[str, Any]) -> tuple[Any, Any]:
    """The function that makes columns of records, with its columns as far as the call says them."""
    if decode is None:
        if isinstance(transform, decoders.Decoder):
            if words["schema"] is not None:
                with about("schema"):
                    raise UsageError("schema= and a decoder both say the columns. Give schema= to quire.decoder.")
            words = {**words, "schema": None}
        refuse_needless({name: value for name, value in words.items() if name != "schema"}, {"decode=": False})
        return transform, transform.all_columns if isinstance(transform, decoders.Decoder) else words["schema"]
    if transform is not None:
        with about("decode"):
            raise UsageError("decode= and transform= both make columns of records. Leave one of them out.")
    made = decoders.decoder(decode, **words)
    return made, made.all_columns


def _check_by(given: Any, columns: Any) -> None:
    """Refuse a column that makes no directories, as far as it is known before any record was read."""
    with about("partition_by"):
        if not isinstance(given, str) or not given:
            raise UsageError(f"partition_by={quoted(given)} is not a column's name.")
        check_seen(given)
        if columns is not None:
            records.check_by(given, columns)


def _same(deduplicate: Any, within: Any, transform: Any, columns: Any) -> Deduplicate | None:
    """Which records are the same, as far as the call says it; `columns`: of the rows, where they are known."""
    found = parsed(deduplicate, within, decodes=isinstance(transform, decoders.Decoder))
    if found is not None and columns is not None:
        with about("deduplicate"):
            check_column(found.column, columns)
    return found


def _into(made: LoadRequest, operation: str | None) -> LoadRequest:
    """The call as one into a table, where its destination is one."""
    found = into(made, operation)
    loading = made.convert.loading
    if found.takes is not None and loading is not None and loading.deduplicate is not None:
        with about("deduplicate"):
            raise UsageError("a table knows its rows by its key: operation='upsert' keeps one of each. Leave deduplicate= and within= out.")
    return found


def _format(transform: BatchFunction | None, format: str | None) -> str:
    if transform is not None and not callable(transform):
        with about("transform"):
            raise UsageError(f"transform={quoted(transform)} is not a function. It is given a pyarrow.RecordBatch, and returns one.")
    laid_out = "parquet" if format is None else choose(format, ("parquet", "lines"), "format")
    if transform is not None and laid_out != "parquet":
        with about("format"):
            raise UsageError("a function makes columns, and format='lines' takes values as they are. Leave one of them out.")
    return laid_out
