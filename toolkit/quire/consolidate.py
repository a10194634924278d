"""The main job: gather a tree of small files into few large ones, each byte once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow.compute as pc

from quire import display
from quire.arguments import format_size
from quire.commit import protocol
from quire.commit.log import Log
from quire.engine import kinds, request
from quire.engine.by_schema import gather_by_schema
from quire.engine.driver import check_destination, check_found, check_spec, gather
from quire.engine.loop import again, check_stop, checked, repeat
from quire.engine.report import Report, changed_since, hidden_names
from quire.engine.request import Request, Settings, build, shows
from quire.errors import UsageError, about, printable
from quire.interrupts import all_interruptible, interruptible
from quire.ledger import tables as inspection
from quire.planning import pack
from quire.planning import plan as planning
from quire.planning.backlog import Backlog
from quire.planning.changes import Changes
from quire.progress import Progress, ProgressEvent
from quire.skew import SkewResult
from quire.sniff import settled
from quire.spark.runner import Runner, runner_of
from quire.table.into import into, place

if TYPE_CHECKING:
    import pandas as pd  # below, it is imported where it is used: Spark's workers start without it


SHOWN = 300  # characters of columns that a plan shows


# -------------------------------------------------------------------------------------------------------------------- public
@shows(build, "waits", "of_splits")
@interruptible
def consolidate(
    source: Any, dest: Any, *, spark: Any = None, every: str | float | None = None, max_runs: int | None = None,
    outage: str | float | None = None, progress: bool | Callable[[ProgressEvent], object] = True, stop: threading.Event | None = None,
    operation: str | None = None, maintain: bool | Mapping[str, Any] | None = None,
    events: str | tuple[str, Mapping[str, Any]] | None = None, relist: str | float | None = None, **settings: Unpack[Settings],
) -> Report:  # fmt: skip
    """Gather the files below `source` into large files below `dest`, and remember each of them.

    A second call gathers only what is new. A call that was killed anywhere is rolled forward or taken up by the next one.

    source       a directory's path or URL, a glob, a list of them, or of (url, options) pairs
    dest         a directory of quire's own (made if it is not there), or a table (`quire.Table`, or where one lies)
    spark        a SparkSession; left out: `quire.session()`
    transform    "lines" (each ended by one newline) | "raw" | "xml" | "json" (one line a document) | "parquet" | "orc" | "avro" (rows of
                 many small files in few large Parquet files; their columns are one by name, frozen with the plan) | "csv" | "jsonl" (the
                 same of delimited text, and of one JSON object a line; what does not fit is quarantined alone) | "auto" (as
                 `quire.sniff` suggests) | function(content, file)
    format       "lines" | "raw" | "parquet"; left out: what fits the transform. CSV files in "lines" are text still, with one header for
                 each data file
    compression  "none" | "gzip" | "zstd"
    target_size  bytes of a data file, "256 MiB"
    planner      "balanced" | "hash" (with `parts` and `hash_function`) | "directory"
    committer    "auto" (what the destination can do) | "rename" | "rename_v2" | "upload" | "copy"
    layout       "flat" | "directories": the source's directories (`dt=2026-11-21/`) stay
    partition_by  directories by "path.dt" (the value of `dt=…` in a file's path), "path[0] as site" (the first directory below the source;
                 path[-1]: the last one) or "day(modified)" (of a file's last change, UTC; year, month, hour likewise), or by a column of
                 the rows that a function gives, "country", which stands in their names alone; a list: within each other. A file, or a
                 row, without such a value goes where Hive puts missing ones
    include, exclude   globs; one without a slash is about the file's name
    hidden, follow_links   take names that start with _ or . too; follow symbolic links
    min_age      leave files that changed within this time ("5 min") for another run
    on_change    what to do when a gathered file has changed: "report" (its old content stays) |
                 "reprocess" (the new content takes the old one's place, in one commit; the old one stays where nothing of the new one
                 can be processed) | "ignore"
    on_append    what to do when a gathered file has only become longer: "report" | "tail" (its new lines are gathered; a last line
                 without newline is held back until it is whole, or taken by `partial_lines`) | "reprocess"
    change_detection  how a file's version is known: "store" (its etag, or time and size) | "content" (a hash of its content: every listed
                 file is read, also by another call; what `rsync -t` has changed is seen, and a mere copy does not count)
    partial_lines  "hold" | "take": last lines without newline
    max_bytes, max_files   how much one commit takes: stored bytes ("10 GiB"), and files. One listing serves all commits of the call, each
                 is visible at once, and a file that is larger is a commit of its own. Left out: one commit takes all. Files that replace
                 older rows (on_change="reprocess") are one commit, whatever they say
    order        which files come first then: "oldest" | "newest" (both by the time of their last change) | "name" (by path)
    retry_quarantined, max_attempts   each run first reads again what is quarantined and has waited for so long ("1 h"; then 2 h, 4 h, …,
                 64 times that), until it was read `max_attempts` times (5). Left out: it waits for `Ledger.retry`, or another version
    max_quarantined  give up, with nothing committed, if more files are to be quarantined. Left out: as many as there are, but if all are,
                 that is committed and AllQuarantined is raised
    max_file_size  files above it are quarantined where the transform has to hold them whole, "256 MiB"; of a compressed file what it
                 decodes to counts. CSV files and JSON lines of any length are taken: it bounds a record of theirs
    decompress   "auto": gzip, bzip2, xz, zstd, lz4 and snappy frames are decoded on their way, known by their content first and their names
                 second | "none": as they are (left out of transform="raw" and of a function) | the name of the codec that all have
    archives     True: the members of zip and tar archives (compressed or not) are documents, path!member; those with unsafe names, links
                 and encrypted ones are quarantined alone, a damaged archive as a whole
    schema       of CSV files and JSON lines: the columns, a pyarrow Schema or a text as "id long, price decimal(10, 2)". Left out: those of
                 the destination, else what a sample of the files shows (`quire.plan(…).columns`)
    columns      of transform="json" and "xml": columns of their documents by expressions, each with its type, instead of lines: {"id":
                 "$.order.id: long not null", "skus": "$.lines[*].sku: array<string>"}, in XML {"id": "/order/@id: long"} (docs/decoders.md)
    encoding     of CSV files and JSON lines: "auto" (by a file's byte order mark, else UTF-8) | "latin-1", "utf-16" or another one that
                 Python knows
    delimiter, quote   of CSV files: the character between values, and that around them ("": none)
    header       of CSV files: True: the first record of each names its columns | False: they are those of `schema`, in its order
    null_values  of CSV files: the texts that stand for no value where they have no quotes, as ["", "NULL"]; left out: the empty one
    partition_columns  "directories": each directory `name=value` of a file's path makes a column of its rows (of transform="parquet",
                 "orc", "avro", "csv" or "jsonl"), of the type that Spark infers for its values; a file without one has null there
    sort_by      a column or several, by which all rows of a run are sorted together into Parquet: each file is, and no two overlap. Such
                 files belong to their commit, not to single source files (see docs/together.md)
    split_by_schema  True: each schema (columns of the same names, whose types one type may hold) gets a destination of its own below
                 `dest`, which is named after it; what cannot be read is quarantined in `unreadable`. Returns a `SplitReport`. For
                 transform="parquet", "orc" and "avro"
    parquet_options  of Parquet files: {"row_group_size": rows (100_000), or the bytes that they have in memory ("64 MiB"), "statistics":
                 True | False | [columns], "bloom_filters": [columns]}; what is written again later, as by a compaction, has the same
    rescued      of CSV files and JSON lines: a column, as "_rescued", that takes as one JSON object the fields of a record which are not
                 among the columns, and the values that do not fit into theirs; left out: such a record is quarantined
    schema_evolution  of rows with columns that the destination does not have, or wider ones: "refuse": nothing is gathered, and the
                 difference is said | "add": the destination gets them, and older rows have null there
    keep_messages  keep the text of what a function raises (it may hold data); its class and place are kept anyway
    function_version  names the edition of a function instead of a hash of its source
    operation    into a table: "upsert" (left out), "insert", "bulk_insert" of the columns that a function gives
    allow_nonempty       allow a destination that holds other files
    keep_versions  how many older versions of the destination stay readable from now on: a number of versions, or a time ("1 day"). Left
                 out: as before; at first "1 hour", in S3 and in Azure without directories none
    exports      ("delta", "iceberg"): from now on it is a table of these formats, too, over the same files, in step with each commit
    every, max_runs   again and again, "1 min" apart, until a signal (which lets the commit under way end) or `max_runs`
    outage       how long a store may be away before the call ends, "1 h": until then it tries again, with pauses of at most a minute,
                 and the report tells of the `gaps`. Left out: with `every` "1 d" once a first run has gone well, else not at all
    stop         a threading.Event: once it is set, the call ends after the commit under way, in whatever thread it runs
    maintain     whether the destination is maintained after runs, as by `Ledger.maintain`, in a tenth of the call's time: True | False |
                 {"small_files": 20, "small_share": 0.1, "target_size": …, "sort_by": …, "grace": "1 day", "time_limit": …}, of a table
                 also {"log_ratio": 0.1, "keep": 100}, as in `Table.maintain`. Left out: with `every`
    events       a queue that names the files which have come, so that runs do not list: "sqs://sqs.region.amazonaws.com/account/queue" (or
                 its ARN), "azure-queue://account/queue", "pubsub://project/subscription", or "inotify" on local disk, with `every`. An
                 event is a hint alone: each file is looked up in its store and in the ledger (docs/loops.md). Options are those of the
                 source; of another account: (queue, options)
    relist       with `events`: how long after a full listing the next one follows, "1 day"; the first run lists, too
    storage_options, source_options, dest_options   for the stores
    progress     True: bars | False | function(step), called several times a second with a `quire.ProgressEvent`; what it raises ends the
                 call as an interrupt does: nothing is lost, and the next call goes on with the job

    Returns the report (of the last run). Raises UsageError, TooManyQuarantined, AllQuarantined or another QuireError, each in one line.
    """
    request.check_names(settings)
    settings = settled(source, settings)
    check_stop(stop)
    times, bars = again(every, max_runs, outage, maintain, events, relist), Progress(progress)
    dest, settings["dest_options"] = place(dest, settings.get("dest_options"))
    made = into(build(source, dest, waits=every is not None, **settings), operation)
    times.check(made.roots)
    if made.selection.schema and events is not None:
        with about("events"):
            raise UsageError("split_by_schema=True looks at the columns of all files, and so lists them. Leave events= out.")
    runner = runner_of(spark, made.store(), made.roots)
    if made.selection.schema:
        return checked(made, gather_by_schema(made, runner, bars, times.maintain))
    return repeat(made, runner, bars, times, stop=stop)


@shows(build, "waits", "of_splits", "split_by_schema")
@interruptible
def plan(
    source: Any,
    dest: Any,
    *,
    spark: Any = None,
    progress: bool | Callable[[ProgressEvent], object] = True,
    operation: str | None = None,
    **settings: Unpack[Settings],
) -> Plan:
    """Look before you run: return the `Plan` of what `quire.consolidate` with the same arguments would do, and its errors.

    Nothing that a later run would pick up is left.
    """
    request.check_names(settings)
    settings = settled(source, settings)
    bars = Progress(progress)
    dest, settings["dest_options"] = place(dest, settings.get("dest_options"))
    made = into(build(source, dest, **settings), operation)
    if made.selection.schema:
        with about("split_by_schema"):
            raise UsageError("a plan is of one destination. Leave split_by_schema= out, or look with quire.sniff(source).schemas().")
    runner = runner_of(spark, made.store(), made.roots)
    store = made.store()
    with about("dest"):
        check_destination(store, made.allow_nonempty)
        log = Log(store).refresh()
        check_spec(log, made)
    base = log.settled_version()
    backlog = Backlog(kinds.named(made.spec.kind).plan, made.pace.bound)
    found = planning.make(backlog.plan, runner, log, base, made.identity.job(base), made.wanted(), bars)
    check_found(log, made, found)
    return Plan(made, runner, found, backlog)


@all_interruptible
class Plan:
    """The work that would be done: `.tasks` (a DataFrame), `.files()`, `.bytes`, `.skew()`, `.estimate`, and `.run()` to do it.

        plan = quire.plan("/data/in", "/data/out")
        plan.tasks.nlargest(5, "bytes"), plan.files(limit=10), plan.sizes(), plan.skew().verdict
        json.dumps(plan.as_dict())
        report = plan.run()                     # or plan.discard()

    Calls raise UsageError for wrong arguments, and the errors of `quire.consolidate`.
    """

    def __init__(self, made: Request, runner: Runner, planned: planning.Planned, backlog: Backlog) -> None:
        self._options, self._runner, self._planned, self._backlog = made, runner, planned, backlog
        self._discarded = False

    @property
    def tasks(self) -> pd.DataFrame:
        """One row a task: task, directory, part, files, bytes; of several commits, those of the first one."""
        import pandas as pd

        rows = [(i, t.folder, t.part, t.files, t.bytes) for i, t in enumerate(self._planned.tasks)]
        return pd.DataFrame(rows, columns=["task", "directory", "part", "files", "bytes"])

    def files(self, limit: int | None = None) -> pd.DataFrame:
        """The files to read in their order: task, path, start, length, size, modified (UTC); at most `limit` rows.

        Where there are several commits (`commits`), they are those of the first one.
        """
        import pandas as pd

        tables, left = [], limit
        store = self._options.store()
        for i, task in enumerate(self._planned.tasks):
            for rows in pack.read_rows(store, task.runs, ["path", "start", "length", "size", "modified"]):
                part = rows
                if left is not None:
                    part = rows.slice(0, left)
                    left -= part.num_rows
                found = part.to_pandas(use_threads=False)
                found.insert(0, "task", i)
                tables.append(found)
                if left == 0:
                    break
            if left == 0:
                break
        columns = ["task", "path", "start", "length", "size", "modified"]
        files = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)
        return files.assign(modified=pd.to_datetime(files["modified"], utc=True))

    @property
    def bytes(self) -> int:
        """To be read, by all commits."""
        return self._planned.listed.written.bytes + self._planned.listed.later.bytes

    @property
    def commits(self) -> int:
        """How many commits that makes: one, or as many as max_bytes= and max_files= ask for."""
        return 1 + self._planned.listed.later.commits

    @property
    def estimate(self) -> int:
        """Bytes that will be written, as guessed from a few files."""
        return int(self.bytes * self._planned.ratio)

    @property
    def columns(self) -> str:
        """The columns that the rows will have, as `schema=` takes them; "" where the files hold no rows, or none could be read."""
        return self._planned.listed.written.columns

    def sizes(self) -> pd.DataFrame:
        """How large files are, and would be, one row a class: up_to (bytes, a power of two), files_before, bytes_before, files_after, …"""
        found: Any = None
        for task in self._planned.tasks:
            for rows in pack.read_rows(self._options.store(), task.runs, ["start", "size"]):
                first = rows.filter(pc.equal(rows.column("start"), 0))
                found = inspection.classed(first.column("size").to_numpy(), into=found)
        guessed = [int(task.bytes * self._planned.ratio) for task in self._planned.tasks]
        target = self._planned.cut.target
        after = [size for n in guessed for size in [target] * (n // target) + ([n % target] if n % target else [])]
        return inspection.size_classes(found or inspection.classed([]), inspection.classed(after))

    def skew(self) -> SkewResult:
        """Whether the tasks are even: hash plans by files within each directory, others by bytes."""
        return self._planned.skew()

    def run(self, progress: bool | Callable[[ProgressEvent], object] = True) -> Report:
        """Do it, and return the `Report`, as `quire.consolidate` does.

        If the destination has moved on meanwhile, what is left is planned anew.
        """
        made = (None, None) if self._discarded else (self._planned, self._backlog)
        found = gather(self._options, self._runner, Progress(progress), made[0], backlog=made[1])
        return checked(self._options, found)

    def discard(self) -> None:
        """Delete what looking has written, if it was not run; `run` then plans anew."""
        self._discarded = True
        store = self._options.store()
        if protocol.plan_head(store, self._planned.job) is None:
            planning.discard(store, self._planned.job, self._planned.plan)

    def _facts(self) -> dict[str, object]:
        listed, differing = self._planned.listed, self._planned.listed.differing
        rows: dict[str, object] = {
            "files listed": f"{listed.files:,}",
            "skipped (already processed)": f"{listed.done:,}",
            "to gather": f"{listed.new + listed.later.files:,} ({format_size(self.bytes)})",
            **self._commits(),
            "tasks": f"{len(self._planned.tasks):,}" + (", so that each core has one" if self._planned.spread else ""),
            "estimated output": format_size(self.estimate),
            "skew": self.skew().verdict,
        }
        if by := self._options.convert.by:
            rows["directories by"] = f"{by} ({len({t.folder for t in self._planned.tasks}):,})"
        if self.columns:
            rows["columns"] = self.columns if len(self.columns) <= SHOWN else f"{self.columns[:SHOWN].rpartition(', ')[0]}, …"
        if differing.reported.count:
            rows["changed since, not read"] = str(Changes(differing.reported.count, differing.longer))
        if differing.outdated:
            rows["changed since, read again"] = f"{differing.outdated:,}"
        if listed.young:
            rows["too young (min_age)"] = f"{listed.young:,}"
        if listed.hidden:
            rows["hidden, ignored"] = hidden_names(listed.hidden)
        return rows

    def _commits(self) -> dict[str, object]:
        if self.commits == 1:
            return {}
        first = self._planned.listed
        return {"commits": f"{self.commits:,}, the first of {first.new:,} ({format_size(first.written.bytes)}), in these tasks"}

    def as_dict(self) -> dict[str, Any]:
        """All of it but the files, as JSON takes it."""
        listed, differing = self._planned.listed, self._planned.listed.differing
        return {
            "dest": self._options.shown, "listed": listed.files, "skipped": listed.done,
            "files": listed.new + listed.later.files, "bytes": self.bytes, "commits": self.commits,
            "estimate": self.estimate, "changed": differing.reported.count, "longer": differing.longer, "outdated": differing.outdated,
            "young": listed.young, "hidden": listed.hidden, "links": listed.links, "unreadable": listed.unreadable.count,
            "columns": self.columns, "troubles": [list(t) for t in listed.unreadable.examples],
            "skew": self.skew().as_dict(), "tasks": self.tasks.to_dict("records"),
        }  # fmt: skip

    def _note(self) -> str:
        listed = self._planned.listed
        parts = [f"{path}: {reason}" for path, reason in (*listed.unreadable.examples[:5], *listed.written.strange[:5])]
        if self._planned.listed.differing.reported.count:
            made = self._options
            parts.append(changed_since(made.shown, ", ".join(root.url for root in made.roots), reduce=bool(made.spec.reduce)))
        return "\n".join(map(printable, parts))

    def __str__(self) -> str:
        listed = self._planned.listed
        if not (listed.files or listed.young or listed.links or listed.hidden or listed.deleted.count or listed.unreadable.count):
            return printable(f"plan for {self._options.shown}: nothing is there to gather.")
        return display.lines(f"plan for {self._options.shown}", self._facts(), self._note())

    def __repr__(self) -> str:
        listed = self._planned.listed
        files = listed.new + listed.later.files
        return f"Plan({self._options.shown!r}, files={files:,}, bytes={self.bytes:,}, tasks={len(self._planned.tasks)})"

    def _repr_html_(self) -> str:
        return display.facts(f"plan for {self._options.shown}", self._facts(), self._note())
