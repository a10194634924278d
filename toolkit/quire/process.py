"""Any function, once on each split of the source's files: its rows and the ledger are committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from msgspec.structs import replace as replace_words

from quire.arguments import format_size, parse_target, refuse_needless
from quire.commit import entries, protocol
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import live
from quire.engine import request
from quire.engine.closers import Reduce
from quire.engine.driver import check_destination, check_spec
from quire.engine.loop import again, check_stop, repeat
from quire.engine.report import Report
from quire.engine.request import Request, shows
from quire.errors import NotFoundError, UsageError, about, choose
from quire.formats import parquet, partition_columns
from quire.interrupts import interruptible
from quire.planning.first import first_files, new_files
from quire.planning.listing import Listing
from quire.progress import Progress, ProgressEvent
from quire.sources import compression
from quire.sources.archives import Archive, unpacking
from quire.sources.decoders import Decoder
from quire.sources.files import Root
from quire.sources.partition_by import columns_of
from quire.sources.splits import FileInfo
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import storable, unify
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.functions import WrongTypeError, check_call
from quire.sources.transforms.processing import SPLITS, UNCUT, ProcessFunction, Processing
from quire.sources.transforms.text import WORDS
from quire.sources.transforms.widening import DiffersError
from quire.spark.runner import runner_of
from quire.storage import Entry, Store, Unreadable, Vanished
from quire.table import chain
from quire.table.into import into, place

LOOKED_AT = 8  # files whose rows may show what the columns are
SAMPLE = 1 << 20  # bytes of lines that are given to the function for that


@shows(request.build, "transform", "waits", "of_splits", "columns", "partition_columns", "sort_by", "split_by_schema", *WORDS)
@interruptible
def process(
    source: Any, dest: Any, function: ProcessFunction, *, spark: Any = None, split: str = "file", split_size: str | int = "64 MiB",
    schema: Any = None, format: str | None = None, reduce: Reduce | None = None, every: str | float | None = None,
    max_runs: int | None = None, outage: str | float | None = None, progress: bool | Callable[[ProgressEvent], object] = True,
    stop: threading.Event | None = None, operation: str | None = None, maintain: bool | Mapping[str, Any] | None = None,
    events: str | tuple[str, Mapping[str, Any]] | None = None, relist: str | float | None = None, **settings: Any,
) -> Report:  # fmt: skip
    """Call `function(split, content)` once for each split of the files below `source`, and gather what it returns below `dest`.

    A second call does what is new and nothing twice; one that was killed is gone on with. All of a call's rows and what the ledger says
    of its splits appear in one commit.

    source      a directory's path or URL, a glob, a list of them, or of (url, options) pairs; or a table (`quire.Table`, or where one lies
                if `dest` is a table): then content is a pyarrow Table of what its commits have changed, as `Table.changes` gives it with
                images="both", each commit is passed on once, and the settings below that speak of files are not for it (docs/table.md)
    function    is given a `quire.Split` and its content; returns a pyarrow Table or RecordBatch, a pandas DataFrame, an iterable of dicts,
                bytes (lines), or None. All that it gives for a split is held in memory before it is written: a generator without
                an end fills that until the job is interrupted, and nothing of it is visible.
                An exception of it quarantines the split; `split.quarantine(record, error)` quarantines one record
    dest        a directory of quire's own, or a table (`quire.Table`, or where one lies)
    spark       a SparkSession; left out: `quire.session()`
    split       "file": content is a file's bytes | "lines": the bytes of the lines that begin in a range of about `split_size` (a
                compressed file is not cut) | "row_groups": a pyarrow Table of the row groups of a
                Parquet file that begin in such a range
    decompress  "auto" (where split="lines": gzip, bzip2, xz, zstd, lz4 and snappy frames are decoded, each file being one split) | "none"
                (where split="file": content is what is stored) | a codec's name
    archives    True: the function is given each member of zip and tar archives, whole (split.path is path!member)
    split_size  bytes; the ledger counts ranges, so another size later repeats nothing
    schema      the columns of the rows: a pyarrow Schema, or a text as `"id long, price decimal(10, 2), tags array<string>"`. Left out:
                those of the destination, else those of the first rows that the function gives for the first files (into a table, or by
                events: the first new ones), for which it is called once more on the driver. It is frozen with the plan. Rows are cast to
                it; a split whose rows lose something by that, or have other columns, is quarantined
    format      "parquet" (rows) | "lines" (bytes); left out: what the function gives
    partition_by  directories by a column of the rows, "country", which stands in their names alone; else as in `quire.consolidate`
    reduce      a function from a DataFrame to a DataFrame (a group, a sort, a join): all rows of a job go through it together, and what
                it gives is written; its files and all splits are one commit. See docs/together.md
    function_version  names the edition of the functions instead of a hash of their source
    operation   into a table: "upsert" (left out), "insert", "bulk_insert"; the rows and the splits are one commit
    events, relist   a queue that names the files which have come, as in `quire.consolidate`

    The other settings are those of `quire.consolidate`; `max_quarantined` counts quarantined records too, `on_append="tail"` goes with
    split="lines". Returns the report (of the last run). Raises UsageError, TooManyQuarantined, AllQuarantined (also where all
    records were quarantined, and no row came) or another QuireError, each in one line.
    """
    if "transform" in settings:
        raise UsageError("process takes a function, and no transform. Use quire.consolidate for transforms.")
    request.check_names(settings)
    settings["waits"] = every is not None
    check_stop(stop)
    times, bars = again(every, max_runs, outage, maintain, events, relist), Progress(progress)
    call = check(
        source, dest, function, split=split, split_size=split_size, schema=schema, format=format, reduce=reduce, operation=operation,
        **settings,
    )  # fmt: skip
    made = call.request
    if events is not None and isinstance(call, chain.ChainCall):
        with about("events"):
            raise UsageError("a table's commits are read by its timeline, and no event names them. Leave events= out.")
    times.check(made.roots)
    bars.what = call.what
    return repeat(made, runner_of(spark, made.store(), made.roots), bars, times, call.decided, stop=stop)


def check(
    source: Any, dest: Any, function: ProcessFunction, *, split: str = "file", split_size: str | int = "64 MiB", schema: Any = None,
    format: str | None = None, reduce: Reduce | None = None, **settings: Any,
) -> ProcessCall | chain.ChainCall:  # fmt: skip
    """Check the arguments of `quire.process`; every wrong one is a UsageError of one line."""
    if not callable(function):
        with about("function"):
            raise UsageError("process takes a function, which it calls as function(split, content).")
    check_call(function, "function", "split", "content")
    choose(split, SPLITS, "split")
    if format is not None:
        choose(format, ("parquet", "lines"), "format")
    longest = parse_target(split_size, "split_size")
    columns = _decoded(function, split, format) if schema is None else schemas.canonical(schema)
    dest, settings["dest_options"] = place(dest, settings.get("dest_options"))
    if (table := chain.source_of(source, dest, settings)) is not None:
        others = {
            "split": split != "file",
            "split_size": longest != parse_target("64 MiB"),
            "format": format is not None,
            "reduce": reduce is not None,
        }
        return chain.check(table, dest, function, columns, settings.pop("operation", None), settings, needless=others)
    if columns is not None and format == "lines":
        with about("schema"):
            raise UsageError("schema= is for rows, and format='lines' takes bytes. Leave one of them out.")
    on_append, partial_lines = settings.pop("on_append", "report"), settings.pop("partial_lines", "hold")
    if on_append == "tail" and split != "lines":
        with about("on_append"):
            raise UsageError(f"on_append='tail' takes new lines of files, split='lines', and this is {split!r}. Use 'reprocess'.")
    flush = choose(partial_lines, request.PARTIAL_LINES, "partial_lines") == "take"
    refuse_needless(
        {"partial_lines": partial_lines, "split_size": split_size},
        {"on_append='tail'": on_append == "tail", "split='lines' or 'row_groups'": split != "file"},
    )
    if split == "row_groups" and settings.get("archives"):
        with about("archives"):
            raise UsageError("split='row_groups' reads parts of files, and with archives=True each member comes whole. Say split='file'.")
    call = ProcessCall(
        source, function, dest, split, longest, columns, format or (columns and "parquet"), on_append, flush, reduce, settings,
        settings.pop("operation", None),
    )  # fmt: skip
    most = call.request.convert.max_file_size
    if split == "lines" and longest > most:
        with about("split_size"):
            raise UsageError(f"split_size is larger than max_file_size, {format_size(most)}, and no split would be read. Say another one.")
    return call


def _decoded(function: ProcessFunction, split: str, format: str | None) -> pa.Schema | None:
    """The columns of a decoder, as far as it says them; UsageError for what does not go with one."""
    if not isinstance(function, Decoder):
        return None
    if (function.metadata or function.key) and split != "row_groups":
        with about("function"):
            raise UsageError(
                "metadata= and decode_key= of a decoder are for Kafka's records, as split='row_groups' of a load's files gives them."
            )
    if format == "lines":
        with about("format"):
            raise UsageError("a decoder makes columns, and format='lines' takes bytes. Leave format= out.")
    return function.all_columns


@dataclass(frozen=True)
class ProcessCall:
    """A call, checked. It may leave open (None) the format and the columns of the rows."""

    source: Any = field(repr=False)
    function: ProcessFunction
    dest: Any = field(repr=False)
    split: str
    longest: int
    columns: pa.Schema | None
    format: str | None
    on_append: str
    flush: bool
    reduce: Reduce | None
    settings: dict[str, Any] = field(repr=False)
    operation: str | None = None
    what = "file"  # of a progress line

    @property
    def request(self) -> Request:
        """The call as a job, as far as it is known."""
        return self.options(self.format or "parquet", self.columns)

    def options(self, format: str, columns: pa.Schema | None) -> Request:
        """The call as a job, with this format and these columns (None: the first rows of each task say them)."""
        tail = self.on_append == "tail"
        how = compression.mode(self.settings.get("decompress"), "callable", self.split)
        made = request.build(
            self.source, self.dest, transform=self.function, of_splits=True, format=format,
            on_append="reprocess" if tail else self.on_append, **{**self.settings, "decompress": how},
        )  # fmt: skip
        holds, most = tail and not self.flush, made.convert.max_file_size
        whole = UNCUT + made.cut.uncut if self.split == "lines" else ()
        processing = Processing(self.function, self.split, format, columns, made.convert.keep_messages, most, whole)
        # A file that may grow is one split, and then each of its new ends: no line of it is cut.
        cut = replace(
            made.cut, streams=self.split != "file" and not holds, longest=self.longest, uncut=whole
        )  # fmt: skip
        intent = {
            "split": self.split, "split_size": self.longest, "schema": "" if columns is None else schemas.text(columns),
            **({"on_append": self.on_append, "flush": self.flush} if self.on_append != "report" else {}),
        }  # fmt: skip
        said = compression.by_spec(how, "callable", self.split)
        if made.convert.by.columns and format == "lines":
            with about("partition_by"):
                raise UsageError(
                    f"partition_by={made.convert.by.columns[0]!r} is a column, and bytes have none: let the function give rows, or go by "
                    f"'path.dt', 'path[0] as site' or 'day(modified)'."
                )
        job = replace(
            made.named(replace_words(made.spec, kind=entries.SPLITS, split=self.split, decompress=said), **intent), cut=cut,
            convert=replace(made.convert, holds=holds, process=processing),
            policy=replace(made.policy, on_append=self.on_append, flush=self.flush),
        )  # fmt: skip
        job = job if self.reduce is None else request.reducing(job, self.reduce, self.settings.get("function_version"))
        return into(job, self.operation)

    def decided(self, made: Request) -> Request:
        """With format and columns as the destination has them, or an open job of the same call, or else as the function gives them."""
        found = self._decided(made)
        return replace(found, pace=made.pace, near=made.near)

    def _decided(self, made: Request) -> Request:
        store, kind, columns = made.store(), self.format, self.columns
        with about("dest"):
            check_destination(store, made.allow_nonempty)
            log = made.held.read(store)
            spec = log.spec()
            if spec is not None:
                check_spec(log, self.options(kind or spec.format, columns))
                kind = spec.format
                if made.takes is None:
                    evolves = schemas.evolving(log, made.convert.evolves)
                    if evolves and columns is None and (found := _of_open_job(store, log, made)) is not None:
                        return self.options(*found)  # columns that have grown since it was planned make it no other job
                    columns = schemas.agreed(_columns_of(store, log), columns, made.shown, evolves)
        if kind is None or (kind == "parquet" and columns is None):
            found = _of_open_job(store, log, made)
            kind, columns = found or self._of_first_rows(made, kind, log)
            if found is not None:
                return self.options(kind, columns)
        if made.takes and columns is not None:
            with about("schema"):
                columns = made.takes(columns)
        if columns is not None:
            with about("partition_by"):
                made.convert.by.check(columns)
        return self.options(kind, columns)

    def _of_first_rows(self, made: Request, format: str | None, log: Log) -> tuple[str, pa.Schema | None]:
        """The columns that the function gives for the first files; of a table, or by events, for the first new ones.

        The first rows name them, later ones type those without a value.
        """
        processing, first, wrong = made.convert.process, None, None  # the columns so far, and why they do not do
        assert processing is not None
        wanted = made.wanted()
        if made.takes is None and wanted.among is None:
            files = first_files(made.roots, wanted.selection, LOOKED_AT)
        else:
            listing = Listing(made.dest, made.dest_options, "", "", made.roots, wanted.selection, fold(log), made.cut)
            files = new_files(listing, LOOKED_AT, wanted.among)
        for root, entry in files:
            found = _given(processing, root, entry)
            if found is None:
                continue
            gives = "lines" if isinstance(found, bytes) else "parquet"
            if format is not None and gives != format:
                what = "bytes" if isinstance(found, bytes) else "rows"
                raise UsageError(
                    f"the function returned {what} for {root.url}/{entry.name}, and the format is {format!r}: nothing was read or written. "
                    f"Say format={gives!r}, at another destination if this one holds something already."
                )
            if isinstance(found, bytes):
                return "lines", None
            try:
                first = unify(first, found.schema)
                return "parquet", storable(made.takes(first) if made.takes else first)
            except DiffersError:  # the first rows say the columns
                pass
            except WrongTypeError as e:
                wrong = e
        if wrong is None:
            return format or "parquet", None
        with about("schema"):
            raise UsageError(f"{wrong}, or say the columns: schema='id long, name string, …'.")


def _given(processing: Processing, root: Root, entry: Entry) -> bytes | pa.Table | None:
    """The function's return for the beginning of a file; None also where it raises, which the job will tell of."""
    length = entry.size if processing.whole(entry.name) else min(entry.size, SAMPLE)
    store = root.store()
    try:
        asked = processing.request(entry.name, entry.version, entry.size, 0, length)
        answers: Any = unpacking(store, root.decompress, processing.most, archives=root.archives).read_many([asked])
        _, answer = next(answers, (asked, b""))
        if isinstance(answer, Archive):
            return _first_member(processing, answer, root, entry)
        answers.close()
        _, content, _ = processing.content(store, asked, answer, 0, length)
        if content is None:
            return None
        file = FileInfo(f"{root.url.rstrip('/')}/{entry.name}", entry.size, entry.version, entry.modified)
        return processing.sample(content, file, (0, length))
    except (BadContent, Vanished, Unreadable):
        return None


def _first_member(processing: Processing, archive: Archive, root: Root, entry: Entry) -> bytes | pa.Table | None:
    """The same for the first document of an archive that holds anything."""
    with closing(archive):
        for member in archive.members():
            if member.size and not member.why:
                content = archive.content(member, processing.most).whole
                path = f"{root.url.rstrip('/')}/{entry.name}!{member.name}"
                return processing.sample(content, FileInfo(path, member.size, entry.version, entry.modified), (0, len(content)))
    return None


def _of_open_job(store: Store, log: Log, made: Request) -> tuple[str, pa.Schema | None] | None:
    """The format and columns that an unfinished job of the same call has frozen."""
    for head in protocol.open_jobs(store, log):
        ours, theirs = ({k: v for k, v in each.items() if k not in _LEFT_OPEN} for each in (made.identity.intent, head.intent))
        if ours == theirs:
            frozen = str(head.intent.get("schema") or "")
            return head.spec.format, schemas.parse(frozen) if frozen else None
    return None


_LEFT_OPEN = ("format", "schema", "compression")


def _columns_of(store: Store, log: Log) -> pa.Schema | None:
    """The columns of the rows that are there: as they were frozen, or else as a data file has them."""
    if (frozen := schemas.frozen(log)) is not None:
        return frozen
    tip = log.tip
    for file in live(log, fold(log)):
        spec = log.commit(file.number).spec
        if spec.traced and file.name.endswith(".parquet"):  # else its files do not hold what the function has given
            with suppress(NotFoundError):
                own = schemas.canonical(parquet.open_file(store, file.name).schema_arrow)
                made = partition_columns.of([file.name], own.names, {}) if columns_of(spec) else {}
                return pa.schema([*own, *made.items()])
    return None if log.refresh().tip == tip else _columns_of(store, log)  # another call has put them together meanwhile
