"""The same verbs and words as in Python, from a shell: `quire consolidate IN OUT`, `quire ledger summary OUT`, …

Exit codes: 0 done (files that were quarantined are reported), 1 more than max_quarantined (nothing committed), 2 wrong use,
3 failed, but the next run goes on, 4 all of the input was quarantined (committed as such), 130 interrupted.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import select
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

import quire
from quire.cli import table
from quire.cli.committer import COMMITTER
from quire.cli.decoding import COLUMN, columns_of
from quire.cli.function import function_of
from quire.cli.lab import LAB
from quire.cli.load import OFFSETS, emit, load, without_secrets
from quire.cli.pages import PAGES
from quire.cli.parquet import PARQUET, parquet_options
from quire.cli.run import run
from quire.cli.show import (
    AS_JSON,
    LIMIT,
    MAINTAIN,
    MASTER,
    MOST_ROWS,
    OUTAGE,
    PLACE,
    QUIET,
    RETRIES,
    SIDES,
    as_line,
    frame,
    show,
    shown,
    sides,
    spark_of,
)
from quire.cli.status import status
from quire.cli.upkeep import UPKEEP, maintain
from quire.engine.loop import again
from quire.engine.report import named
from quire.engine.request import LAYOUTS, PLANNERS, Request
from quire.errors import QuireError, UsageError, choose, printable, scrub
from quire.planning.changes import Changes
from quire.planning.hashing import FUNCTIONS
from quire.process import check
from quire.read import first_rows
from quire.sniff import settled
from quire.spark.shipping import one_line
from quire.storage import connect, destination
from quire.storage.within import is_marked
from quire.table.into import into

F = TypeVar("F", bound=Callable[..., Any])

# The options of consolidate and plan, with the names and defaults that they have in Python.
_JOB = [
    click.option(
        "--transform",
        default="lines",
        show_default=True,
        help="lines, raw, xml, json, parquet, orc, avro, csv, jsonl or auto: as sniff suggests.",
    ),
    click.option("--format", help="lines, raw or parquet; default: what fits the transform."),
    click.option("--compression", help="none, gzip or zstd; default: none, in Parquet zstd."),
    click.option("--target-size", default="256 MiB", show_default=True, help="Size of a data file, with its unit."),
    click.option("--planner", default="balanced", show_default=True, help=f"{', '.join(PLANNERS)}."),
    click.option("--parts", default=8, show_default=True, help="Parts a directory, for the hash planner."),
    click.option("--hash-function", default="xxh64", show_default=True, help=f"{', '.join(FUNCTIONS)}."),
    click.option("--committer", default="auto", show_default=True, help="auto, rename, rename_v2, upload or copy."),
    click.option("--layout", default="flat", show_default=True, help=f"{', '.join(LAYOUTS)}: the source's directories stay."),
    click.option(
        "--partition-by",
        multiple=True,
        help="Directories by path.dt, 'path[0] as site' or 'day(modified)'; of process also a column (again: within each other).",
    ),
    click.option("--include", multiple=True, help="Only files that match this glob (again for more)."),
    click.option("--exclude", multiple=True, help="Not the files that match this glob (again for more)."),
    click.option("--hidden", is_flag=True, help="Also names that start with _ or a dot."),
    click.option("--follow-links", is_flag=True, help="Follow symbolic links."),
    click.option("--min-age", help="Leave files that changed within this time: '5 min'."),
    click.option("--max-bytes", help="Size of the files in one commit, with its unit; default: one commit takes all."),
    click.option("--max-files", type=int, help="Files in one commit; default: one commit takes all."),
    click.option("--order", default="oldest", show_default=True, help="oldest, newest or name: the files that the first commits take."),
    *RETRIES,
    click.option(
        "--max-quarantined",
        type=int,
        help="Commit nothing if more is to be quarantined (files; with a function also splits and records); up to it, also all.",
    ),
    click.option("--on-change", default="report", show_default=True, help="report, reprocess or ignore: files that were rewritten since."),
    click.option("--on-append", default="report", show_default=True, help="report, tail or reprocess: files that only became longer."),
    click.option("--change-detection", default="store", show_default=True, help="store or content: how a file is known to be another one."),
    click.option("--partial-lines", default="hold", show_default=True, help="hold or take a last line without newline (tail)."),
    click.option("--max-file-size", default="256 MiB", show_default=True, help="Larger files are quarantined, if they must be held whole."),
    click.option("--decompress", help="auto, none or a codec (gzip, zstd, …); default: auto, but none for raw and functions."),
    click.option("--archives", is_flag=True, help="Take the members of zip and tar archives as files of their own, path!member."),
    PARQUET,
    click.option(
        "--schema-evolution", default="refuse", show_default=True, help="refuse or add: columns that the destination does not have yet."
    ),
    click.option("--keep-versions", help="Older versions that stay readable from now on: 3, or '1 day'."),
    click.option("--exports", multiple=True, help="delta, iceberg or symlinks: from now on in this format, too, over the same files."),
    click.option("--allow-nonempty", is_flag=True, help="Allow a destination that holds other files."),
    click.option("--operation", help="Into a table: upsert (default), insert or bulk_insert."),
    *SIDES,
    MASTER,
]


# How files are read that hold rows, and what becomes of these.
_ROWS = [
    COLUMN,
    click.option("--schema", help="Columns of CSV files or JSON lines: 'id long, price decimal(10, 2)'; default: what a sample shows."),
    click.option("--encoding", default="auto", show_default=True, help="Of CSV files and JSON lines: latin-1, utf-16 …"),
    click.option("--delimiter", default=",", show_default=True, help="Of CSV files: one character (tab: $'\\t')."),
    click.option("--quote", default='"', show_default=True, help="Of CSV files: one character, or '' where values have none."),
    click.option("--header/--no-header", default=True, show_default=True, help="Whether CSV files name their columns."),
    click.option("--partition-columns", help="directories: those of a file's path, name=value, make columns of its rows."),
    click.option("--sort-by", multiple=True, help="Sort all rows of the run by this column (again for more)."),
    click.option("--rescued", help="Of CSV files and JSON lines: a column for what does not fit, as JSON, such as _rescued."),
    click.option("--null-values", multiple=True, help="Of CSV files: a text that stands for null (again for more); default: an empty one."),
]
# The commands that may run again and again take these, too.
_AGAIN = [
    click.option("--every", help="Again and again, this far apart ('1 min'), until Ctrl-C."),
    click.option("--max-runs", type=int, help="With --every: how often."),
    OUTAGE,
    MAINTAIN,
    click.option("--events", help="A queue that names the files which have come: sqs://…, azure-queue://…, pubsub://…, or inotify."),
    click.option("--relist", help="With --events: how long after a full listing the next one follows; default: 1 day."),
    AS_JSON,
    QUIET,
]
_PLACES = [click.argument("source", nargs=-1, required=True), click.argument("dest")]


SPLIT = click.option("--split-by-schema", is_flag=True, help="A destination for each schema, below DEST; looks at every file's columns.")


def _options(*options: Any) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _settings(given: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
    master = given.pop("master")
    given |= sides(given)
    given["parquet_options"] = parquet_options(given.get("parquet_options", ()))
    given |= {"columns": columns_of(given["columns"])} if "columns" in given else {}
    return {k: (list(v) or None) if isinstance(v, tuple) else v for k, v in given.items()}, master


class _NobodyReads(Exception):
    """The reader of the output has gone."""


def _nobody_reads() -> bool:
    """Whether the output is a pipe whose reader has gone (another broken pipe is a failure)."""
    look = select.poll()
    look.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in look.poll(0))


class _Commands(click.Group):
    """Commands, of which an unknown one is answered with those that there are."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-"):
            choose(args[0], self.list_commands(ctx), "command")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as e:
            if _nobody_reads():
                raise _NobodyReads from e  # click would end with 1, which is said for max_quarantined
            raise QuireError("a connection was lost. Call again: what was committed is safe.") from e


_Commands.group_class = type  # groups in groups are of this class too


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(quire.__version__, prog_name="quire")
def cli() -> None:
    """Gather millions of small files into a few large ones, exactly once.

    Exit codes: 0 done, 1 more than max_quarantined (nothing committed), 2 wrong use, 3 failed but the next run goes on, 4 all of the input
    was quarantined (committed as such), 130 interrupted.
    """


@cli.command()
@_options(*_PLACES, *_JOB, *_ROWS, SPLIT, *_AGAIN)
def consolidate(
    source: tuple[str, ...], dest: str, every: str | None, max_runs: int | None, outage: str | None, as_json: bool, quiet: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Gather the files below SOURCE… into large files below DEST."""
    times: dict[str, Any] = {"every": every, "max_runs": max_runs, "outage": outage}
    times |= {name: given.pop(name) for name in ("maintain", "events", "relist")}
    settings, master = _settings(given)
    settings = settled(_source(source), settings)
    again(**times).check(_check_first(source, dest, {**settings, "waits": every is not None}).roots)
    with spark_of(master) as spark, shown(as_json):
        show(quire.consolidate(_source(source), dest, spark=spark, progress=not quiet, **times, **settings), as_json)


@cli.command()
@click.argument("source", nargs=-1, required=True)
@click.option("--include", multiple=True, help="Only files that match this glob (again for more).")
@click.option("--exclude", multiple=True, help="Not the files that match this glob (again for more).")
@click.option("--hidden", is_flag=True, help="Also names that start with _ or a dot.")
@click.option("--sample", default=200, show_default=True, help="How many files to look at.")
@PLACE
@AS_JSON
def sniff(source: tuple[str, ...], storage_options: dict[str, Any] | None, as_json: bool, **given: Any) -> None:
    """Look at some files below SOURCE…: which kinds lie there, and which call takes them."""
    which: dict[str, Any] = {name: list(found) or None if isinstance(found, tuple) else found for name, found in given.items()}
    show(quire.sniff(_source(source), storage_options=storage_options, **which), as_json)


@cli.command()
@_options(*_PLACES, *_JOB, *_ROWS, AS_JSON, QUIET)
def plan(source: tuple[str, ...], dest: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Say what consolidate would do; nothing of it is done or left."""
    settings, master = _settings(given)
    settings = settled(_source(source), settings)
    _check_first(source, dest, settings)
    with spark_of(master) as spark:
        found = quire.plan(_source(source), dest, spark=spark, progress=not quiet, **settings)
        try:
            show(found, as_json)
        finally:
            found.discard()


@cli.command()
@click.argument("source", nargs=-1, required=True)
@click.argument("function")
@click.argument("dest")
@click.option("--split", default="file", show_default=True, help="file, lines (ranges of them) or row_groups (of Parquet).")
@click.option("--split-size", default="64 MiB", show_default=True, help="Size of a range, with its unit.")
@click.option("--schema", help="Columns of the rows: 'id long, name string'; default: those of the first rows.")
@click.option("--format", help="parquet or lines; default: what the function gives.")
@click.option("--reduce", help="Likewise, a function from a DataFrame to a DataFrame: all rows go through it together.")
@click.option("--function-version", help="Names the edition of the function instead of a hash of its source.")
@click.option("--keep-messages", is_flag=True, help="Keep the text of what the function raises (it may hold data).")
@_options(*_JOB[2:], *_AGAIN)  # without transform and format
def process(
    source: tuple[str, ...], function: str, dest: str, every: str | None, max_runs: int | None, outage: str | None, as_json: bool,
    quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Call FUNCTION (module:name or file.py:name) once for each split of the files below SOURCE…; gather its rows below DEST."""
    times: dict[str, Any] = {"every": every, "max_runs": max_runs, "outage": outage}
    times |= {name: given.pop(name) for name in ("maintain", "events", "relist")}
    settings, master = _settings(given)
    work = function_of(function)
    settings["reduce"] = function_of(settings["reduce"]) if settings.get("reduce") else None
    again(**times).check(check(_source(source), dest, work, waits=every is not None, **settings).request.roots)
    with spark_of(master) as spark, shown(as_json):
        report = quire.process(_source(source), dest, work, spark=spark, progress=not quiet, **times, **settings)
        show(report, as_json)


def _check_first(source: tuple[str, ...], dest: str, settings: Mapping[str, Any]) -> Request:
    """A wrong argument is said at once, not after Spark's start."""
    from quire.engine import request

    return into(request.build(_source(source), dest, **{k: v for k, v in settings.items() if k != "operation"}), settings["operation"])


def _source(source: tuple[str, ...]) -> str | list[str]:
    return source[0] if len(source) == 1 else list(source)


@cli.command()
@click.argument("dest")
@click.option("--abort", help="Give up this unfinished job, or all of them: open.")
@AS_JSON
def recover(dest: str, abort: str | None, as_json: bool) -> None:
    """Publish and clean what others left behind in DEST; with --abort give up unfinished work."""
    show(quire.recover(dest, abort=abort), as_json)


@cli.command()
@click.argument("what")
@click.option("--by", help="records or bytes: of the partitions of a destination, which are its directories, or those of topics.")
@AS_JSON
def skew(what: str, by: str | None, as_json: bool) -> None:
    """Say whether partitions are even: of a destination's last commit, or of counts in a JSON file (- reads them from the input).

    The JSON is a list of counts, or an object from name to count, or {"counts": …, "groups": …, "expected": …, "listed": …}.
    """
    if what == "-" or what.endswith(".json"):
        if by is not None:
            raise UsageError("--by is of a destination, and these are counts. Leave it out.")
        found = _counts(sys.stdin.buffer.read() if what == "-" else _content(what))
    else:
        ledger = quire.Ledger(what)
        found = ledger.skew() if by is None else ledger.partition_skew(by=by)
    if as_json:
        show(found, True)
        return
    click.echo(f"{found.verdict}: {found.explanation}")
    for name, count, ratio in found.heaviest:
        click.echo(f"  {printable(name)}: {count:,.0f} ({ratio:.2f} of its share)")


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as e:
        raise UsageError(f"cannot read {path}: {e.strerror}. Give a destination, a JSON file, or - for the input.") from e


def _counts(text: bytes) -> quire.skew.SkewResult:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise UsageError(f'the counts are not JSON ({e}). Give for example [12, 13, 11] or {{"a": 12, "b": 13}}.') from e
    arguments = found if isinstance(found, dict) and "counts" in found else {"counts": found}
    unknown = set(arguments) - {"counts", "groups", "expected", "listed", "unit"}
    if unknown:
        raise UsageError(f"unknown in the JSON: {', '.join(sorted(unknown))}. Known: counts, groups, expected, listed, unit.")
    return quire.skew.check(**arguments)


@cli.command()
@click.argument("directory")
@click.option("--files", default=400_000, show_default=True, help="How many.")
@click.option("--size", default="5KB", show_default=True, help="Bytes of a file, on average.")
@click.option("--dirs", default=20, show_default=True, help="Directories.")
@click.option("--shape", default="even", show_default=True, help="even, skewed, deep or flat.")
@click.option("--dirty", default=0.01, show_default=True, help="Share of broken, empty or wrongly encoded files.")
@click.option("--seed", default=7, show_default=True, help="Another number, other files.")
@click.option("--processes", type=int, help="Default: as many as there are processors.")
@PLACE
@AS_JSON
@QUIET
def populate(directory: str, as_json: bool, quiet: bool, **given: Any) -> None:
    """Fill DIRECTORY, a new or empty one or a URL, with small device files to try things on."""
    report = quire.populate(directory, progress=not quiet, **given)
    if as_json:
        from dataclasses import asdict

        show(asdict(report), True)
    else:
        click.echo(repr(report))


@cli.command()
@click.argument("dest")
@LIMIT
@AS_JSON
def read(dest: str, limit: int, as_json: bool) -> None:
    """Print the first rows of what DEST holds, a destination or a table: lines as they are, others as JSON."""
    url = destination(dest)
    for row in table.first_rows(quire.Table(url), limit) if is_marked(url) else first_rows(connect(url), min(limit, sys.maxsize)):
        if as_json:
            click.echo(as_line({"value": row} if isinstance(row, bytes) else row))
        elif isinstance(row, bytes):
            sys.stdout.buffer.write(row + b"\n")
        else:
            click.echo(as_line(row))


# ------------------------------------------------------------------------------------------------------------------------ ledger
@cli.group()
def ledger() -> None:
    """Look into what has been gathered, where it lies, and what is quarantined."""


@ledger.command()
@click.argument("dest")
@AS_JSON
def summary(dest: str, as_json: bool) -> None:
    """The destination in numbers."""
    show(quire.Ledger(dest).summary(), as_json)


@ledger.command()
@click.argument("dest")
@AS_JSON
def quarantined(dest: str, as_json: bool) -> None:
    """The quarantined files and records, with the reasons."""
    frame(quire.Ledger(dest).inspect.quarantined(), as_json, "nothing is quarantined")


@ledger.command()
@click.argument("dest")
@AS_JSON
def history(dest: str, as_json: bool) -> None:
    """The entries of the log."""
    frame(quire.Ledger(dest).inspect.history(), as_json, "the log is empty")


@ledger.command()
@click.argument("dest")
@click.argument("path")
@AS_JSON
def locate(dest: str, path: str, as_json: bool) -> None:
    """Where the source file PATH lies now."""
    found = quire.Ledger(dest).locate(path)
    if as_json:
        click.echo(as_line([vars(x) for x in found]))
        return
    for x in found:
        where = f"{x.data_file} at {x.offset:,}+{x.skip:,}, {x.written:,} bytes" if x.data_file else (x.reason or "empty")
        click.echo(printable(f"{x.document} [{x.start:,}, {x.start + x.length:,}) {x.state}: {where} (commit {x.commit})"))


@ledger.command("read")
@click.argument("dest")
@click.argument("path")
def read_one(dest: str, path: str) -> None:
    """Write the content of the gathered source file PATH to the output."""
    out = sys.stdout.buffer
    with quire.Ledger(dest).open(path) as stream:
        while data := stream.read(1 << 20):
            out.write(data)


@ledger.command()
@click.argument("dest")
@click.option("--where", help="A condition in SQL: \"state = 'quarantined'\".")
@LIMIT
@MASTER
@AS_JSON
def splits(dest: str, where: str | None, limit: int, master: str | None, as_json: bool) -> None:
    """The ledger's rows, read on Spark."""
    found = quire.Ledger(dest)
    with spark_of(master) as spark:
        with one_line():
            rows = found.inspect.splits(where, "spark", spark=spark).limit(min(limit, MOST_ROWS)).toPandas()
        frame(rows, as_json, "no row")


@ledger.command()
@click.argument("dest")
@click.argument("source", nargs=-1, required=True)
@click.option("--include", multiple=True, help="Only files that match this glob (again for more).")
@click.option("--exclude", multiple=True, help="Not the files that match this glob (again for more).")
@click.option("--min-age", help="Not files that changed within this time: '5 min'.")
@MASTER
@AS_JSON
def unprocessed(dest: str, source: tuple[str, ...], master: str | None, as_json: bool, **given: Any) -> None:
    """The names of the files below SOURCE… that DEST has not done, one a line; DEST need not be there yet.

    How many were rewritten or appended to since they were done, and are not among them, is said on stderr.
    """
    opened = quire.Ledger(dest, create=True)
    chosen: dict[str, Any] = {k: (list(v) or None) if isinstance(v, tuple) else v for k, v in given.items()}
    with spark_of(master) as spark:
        found, changed = opened.inspect.unprocessed(_source(source), "spark", changed=True, **chosen, spark=spark), list[str]()
        names = (name for name, _ in itertools.groupby(_undone(found.toLocalIterator(), changed)))  # of a file in pieces once
        if as_json:
            click.echo(as_line(list(names)))
        else:
            for name in names:
                click.echo(printable(name))
        if (changes := Changes.of(changed)).files:
            click.echo(f"not among them, changed since they were done: {changes}; {named(dest, ', '.join(source))}", err=True)


def _undone(rows: Iterable[Any], changed: list[str]) -> Iterator[str]:
    """The paths of rows that are not done, as they come; of the others the reasons are noted."""
    for row in rows:
        if row["reason"] is None:
            yield row["path"]
        else:
            changed.append(row["reason"])


@ledger.command()
@click.argument("dest")
@MASTER
@AS_JSON
def verify(dest: str, master: str | None, as_json: bool) -> None:
    """Read every data file again and compare the checksums, on Spark."""
    opened = quire.Ledger(dest)
    with spark_of(master) as spark:
        found = opened.verify(spark=spark)
    show(found, as_json)
    if not found.ok:
        sys.exit(3)


cli.add_command(load)
cli.add_command(run)
cli.add_command(emit)
cli.add_command(status)
cli.add_command(maintain)
for command in (*UPKEEP, *PAGES, *OFFSETS):
    ledger.add_command(command)


# ------------------------------------------------------------------------------------------------------------------------- table
@cli.group("table")
def tables() -> None:
    """Tables that take updates by key, in the format of Apache Hudi."""


for command in table.TABLE:
    tables.add_command(command)


# --------------------------------------------------------------------------------------------------------------------- committer
@cli.group()
def committer() -> None:
    """Which committer users' own Spark jobs should use, and what such jobs have left behind."""


for command in (*COMMITTER, LAB):
    committer.add_command(command)


def main(arguments: list[str] | None = None) -> None:
    """The console script: one line for each error, and the exit code for it."""
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name or an arrow that the terminal's encoding lacks
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warned  # type: ignore[assignment]  # it is called by place
            cli.main(arguments, prog_name="quire", standalone_mode=False)
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        _end("interrupted: what was committed is safe, and the next run goes on", 130)
    except click.ClickException as e:
        _end(_said(e), 2)
    except QuireError as e:
        command = scrub(shlex.join(without_secrets(sys.argv[1:])), 400)
        again = f" The same command: quire {command}" if e.exit_code == QuireError.exit_code else ""
        _end(f"error: {scrub(str(e), 1000)}{again}", e.exit_code)
    except (_NobodyReads, BrokenPipeError):
        # The reader of a pipe has gone: nothing is left to say.
        _let_go_of_output()
        sys.exit(0)
    except Exception as e:  # of Spark, say: a line of text and a code that is not that of max_quarantined
        place = traceback.extract_tb(e.__traceback__)[-1]
        if isinstance(e, OSError) and place.filename in (click.utils.__file__, __file__):
            _let_go_of_output()
            _end(
                f"error: the output cannot be written: {e.strerror}. Free some space there, or send it elsewhere (> FILE), and call again: "
                f"what was committed is safe.", 3
            )  # fmt: skip
        _end(f"error: {type(e).__name__}: {scrub(str(e), 500)} (at {Path(place.filename).name}:{place.lineno})", 3)


def _let_go_of_output() -> None:
    """Nothing can be written there any more, and the interpreter must not try at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_streams() -> None:
    """Let nothing stand for a stream that was closed (`>&-`): else the next file that is opened, data perhaps, gets what is printed."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w"))  # noqa: SIM115 - for as long as the process lives


def _warned(message: Warning | str, *_: object) -> None:
    """One line, as of an error; where in the code it was said means nothing to who types commands."""
    click.echo(f"warning: {scrub(str(message), 1000)}", err=True)


def _said(e: click.ClickException) -> str:
    """The problem with the arguments, and where to look, in one line; the list of commands where none was given."""
    if type(e).__name__ == "NoArgsIsHelpError":
        return e.format_message()
    context = getattr(e, "ctx", None)
    if context is None:
        return f"error: {scrub(e.format_message(), 1000)}"
    words = [scrub(e.format_message(), 1000)]
    if isinstance(e, click.MissingParameter):  # of SOURCE… DEST, click takes the one that is there for the last
        words.append(f"It is called as: {' '.join(context.get_usage().split()[1:])}.")
    return f"error: {' '.join(words)} Look at: {context.command_path} --help"


def _end(text: str, code: int) -> None:
    with suppress(OSError):  # of a stream that is full, too, the code tells
        click.echo(text, err=True)
    sys.exit(code)
