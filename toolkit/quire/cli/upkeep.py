"""`quire ledger …`: what changes a ledger, and what there is to change; what the log alone answers stands in `cli`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

import quire
from quire.cli.decoding import decoder_of, decoding
from quire.cli.function import function_of
from quire.cli.parquet import PARQUET
from quire.cli.parquet import parquet_options as written
from quire.cli.show import (
    AS_JSON,
    KAFKA_OPTION,
    KAFKA_SECRET,
    MASTER,
    OUTAGE,
    QUIET,
    as_line,
    frame,
    kafka_options,
    show,
    show_upkeep,
    shown,
    spark_of,
)
from quire.engine.loop import again
from quire.errors import UsageError, about, choose, printable
from quire.ledger.identifiers import PARSERS
from quire.ledger.inspect import Inspect


@click.command()
@click.argument("dest")
@click.argument("paths", nargs=-1)
@click.option("--where", help="Instead of paths: a condition in SQL about the ledger's columns.")
@click.option("--file", help="Instead of paths: a data file, lost or damaged.")
@click.option("--reason", default="", help="Stands in the log.")
@click.option("--last-copy", is_flag=True, help="Also what was purged: nobody else has it any more.")
@MASTER
@AS_JSON
@QUIET
def forget(dest: str, paths: tuple[str, ...], master: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Take source files PATHS…, or directories of them, out of DEST; the next run reads what the source still has."""
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        show(ledger.forget(list(paths) or None, spark=spark, progress=not quiet, **given), as_json)


@click.command()
@click.argument("dest")
@click.option("--source", multiple=True, help="Where it is read: a directory, a glob or kafka://… (again for more).")
@click.option("--follow-links", is_flag=True, help="Also what was reached through symbolic links, as in the run.")
@click.option("--where", help="A condition in SQL about the ledger's columns: \"reason like '%max_file_size%'\".")
@click.option("--max-attempts", default=5, show_default=True, help="Files that were read so often are left alone.")
@click.option("--max-file-size", default="256 MiB", show_default=True, help="Larger files stay quarantined.")
@click.option("--decompress", help="auto, none or a codec: how compressed files are taken; default: as before.")
@click.option("--archives", is_flag=True, help="Also unpack archives that the run has not taken as such.")
@click.option("--text-options", help='How CSV files or JSON lines are read, as JSON: \'{"delimiter": ";"}\'; default: as before.')
@click.option("--max-quarantined", type=int, help="Change nothing if more than this would stay in quarantine; up to it, also all.")
@click.option("--function", help="The function of the destination, module:name or file.py:name, where it was made with one.")
@decoding
@click.option("--schema", help="With --decode: as in the load.")
@click.option("--reduce", help="Likewise, the function that all rows went through together, where there was one.")
@KAFKA_OPTION
@KAFKA_SECRET
@MASTER
@AS_JSON
@QUIET
def retry(
    dest: str, source: tuple[str, ...], options: tuple[str, ...], secrets: tuple[str, ...],
    master: str | None, as_json: bool, quiet: bool, **given: Any,
) -> None:  # fmt: skip
    """Read what is in the quarantine of DEST once more, and nothing else."""
    decoder = decoder_of(given)
    if decoder is not None and given["function"] is not None:
        with about("decode"):
            raise UsageError("--decode and --function both make columns of records. Leave one of them out.")
    ledger = quire.Ledger(dest)
    given["source"] = source[0] if len(source) == 1 else list(source) or None
    given["storage_options"] = kafka_options(options, secrets)
    if given["text_options"] is not None:
        with about("text_options"):
            try:
                given["text_options"] = json.loads(given["text_options"])
            except ValueError as e:
                raise UsageError(f'--text-options is JSON, such as \'{{"delimiter": ";"}}\', and this is not: {e}.') from None
    given |= {name: given[name] and function_of(given[name]) for name in ("function", "reduce")}
    given["function"] = decoder or given["function"]
    with spark_of(master) as spark, shown(as_json):
        show(ledger.retry(spark=spark, progress=not quiet, **given), as_json)


@click.command()
@click.argument("dest")
@click.option("--target-size", help="Size of a data file, with its unit; default: that of the last run.")
@click.option("--sort-by", multiple=True, help="Sort rows that belong to their commit by this column, in each file (again for more).")
@PARQUET
@MASTER
@AS_JSON
@QUIET
def compact(
    dest: str, target_size: str | None, sort_by: tuple[str, ...], parquet_options: tuple[str, ...], master: str | None, as_json: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """Merge the small data files of many commits."""
    options = written(parquet_options)
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        show(ledger.compact(target_size, spark=spark, progress=not quiet, parquet_options=options, sort_by=sort_by or None), as_json)


@click.command()
@click.argument("dest")
@click.option("--small-files", type=int, default=20, show_default=True, help="Merge small files once so many can become fewer.")
@click.option("--small-share", type=float, default=0.1, show_default=True, help="And are more than this share of the others.")
@click.option("--target-size", help="Size of a data file, with its unit; default: that of the last run.")
@click.option("--sort-by", multiple=True, help="Sort rows that belong to their commit by this column, in each file (again for more).")
@click.option("--grace", default="1 day", show_default=True, help="Versions that were the newest one within this time stay readable.")
@click.option("--time-limit", help="Begin nothing more after so long, as '10 min'.")
@click.option("--every", help="Again and again, this far apart ('10 min'), until Ctrl-C.")
@click.option("--max-runs", type=int, help="With --every: how often.")
@OUTAGE
@click.option("--dry-run", is_flag=True, help="Do nothing, and say what is due.")
@MASTER
@AS_JSON
@QUIET
def maintain(dest: str, master: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Do what is due at DEST: merge small files, end old versions, merge the ledger, archive old entries of its log.

    Loops (--every) do it by themselves.
    """
    again(given["every"], given["max_runs"], given["outage"])  # of which the look at what is due knows nothing
    ledger, given = quire.Ledger(dest), {**given, "sort_by": given["sort_by"] or None}
    planned = ledger.maintain(**{**given, "dry_run": True, "every": None, "max_runs": None}, spark=quire.LocalRunner(), progress=False)
    if given["dry_run"] or (given["every"] is None and not planned.due):
        show(planned, as_json)  # without Spark's start
        return
    with spark_of(master) as spark:
        done = ledger.maintain(**given, spark=spark, progress=not quiet)
    show_upkeep(done, as_json)


@click.command()
@click.argument("dest")
@click.option("--before-version", type=int, help="Versions before this one can no longer be read; default: the last one.")
@click.option("--grace", default="1 day", show_default=True, help="How long what a checkpoint has merged stays.")
@AS_JSON
def expire(dest: str, before_version: int | None, grace: str, as_json: bool) -> None:
    """Delete the data files that no readable version needs, and what a checkpoint has merged."""
    show(quire.Ledger(dest).expire(before_version, grace=grace), as_json)


@click.command("keep-versions")
@click.argument("dest")
@click.argument("keep")
@AS_JSON
def keep_versions(dest: str, keep: str, as_json: bool) -> None:
    """Keep so many older versions of DEST readable from now on: 3, or '1 day'; 0: none."""
    show(quire.Ledger(dest).keep_versions(keep), as_json)


@click.command()
@click.argument("dest")
@click.argument("format")
@click.option("--catalog", help="A catalog that shall know the table of iceberg, too, by its name in pyiceberg's configuration.")
@click.option("--table", help="Its name there, as db.events.")
@click.option("--location", help="The URL by which readers of iceberg and symlinks find DEST, as hdfs://host:8020/out.")
@click.option("--drop", is_flag=True, help="End the export, and delete its metadata.")
@click.option("--force", is_flag=True, help="With --drop: end it without its catalog, which is gone for good.")
@AS_JSON
@QUIET
def export(dest: str, format: str, drop: bool, force: bool, as_json: bool, quiet: bool, **given: str | None) -> None:
    """Offer DEST as a table of another format (delta, iceberg, symlinks), too, over the same files, in step with each later commit."""
    ledger = quire.Ledger(dest)
    if drop:
        ledger.drop_export(format, force=force)
        if as_json:
            click.echo(as_line({"dropped": format}))
    else:
        show(ledger.export(format, **given, progress=not quiet), as_json)


@click.command()
@click.argument("dest")
@MASTER
@AS_JSON
def checkpoint(dest: str, master: str | None, as_json: bool) -> None:
    """Merge the ledger of DEST into a checkpoint, as runs do when enough has gathered."""
    with spark_of(master) as spark:
        show(quire.Ledger(dest).checkpoint(spark=spark), as_json)


@click.command()
@click.argument("dest")
@AS_JSON
def pins(dest: str, as_json: bool) -> None:
    """The versions that readers keep readable, by the ids of their pins."""
    found = quire.Ledger(dest).pins()
    lines = [printable(f"{pin}  version {version}") for pin, version in found.items()]
    click.echo(as_line(found) if as_json else "\n".join(lines) or "no pin is open")


@click.command()
@click.argument("dest")
@click.argument("pin")
@AS_JSON
def unpin(dest: str, pin: str, as_json: bool) -> None:
    """End a pin that a dead reader has left."""
    quire.Ledger(dest).unpin(pin)
    click.echo(as_line({"unpinned": pin}) if as_json else printable(f"{pin} is not a pin any more"))


@click.command()
@click.argument("dest")
@click.option("--as-of", type=int, help="At this version.")
@AS_JSON
def files(dest: str, as_of: int | None, as_json: bool) -> None:
    """The data files that count."""
    ledger = quire.Ledger(dest)
    frame((ledger if as_of is None else ledger.as_of(as_of)).inspect.files(), as_json, "no data file")


@click.command()
@click.argument("dest")
@click.argument("path")
@AS_JSON
def coverage(dest: str, path: str, as_json: bool) -> None:
    """Which bytes of the source file PATH are accounted for."""
    frame(quire.Ledger(dest).inspect.coverage(path), as_json, "nothing of it is covered")


@click.command()
@click.argument("dest")
@AS_JSON
def tasks(dest: str, as_json: bool) -> None:
    """Show each task's work, and when it ran."""
    frame(quire.Ledger(dest).inspect.tasks(), as_json, "no task")


@click.command()
@click.argument("dest")
@AS_JSON
def sizes(dest: str, as_json: bool) -> None:
    """How large files were and are."""
    frame(quire.Ledger(dest).inspect.sizes(), as_json, "no file")


def _of_source(empty: str) -> Callable[[Callable[..., Any]], click.Command]:
    """A command that shows what `told` finds below SOURCE… now; `empty` is said where that is nothing."""

    def command(told: Callable[..., Any]) -> click.Command:
        @click.command(told.__name__, help=told.__doc__)
        @click.argument("dest")
        @click.argument("source", nargs=-1, required=True)
        @click.option("--include", multiple=True, help="Only files that match this glob (again for more).")
        @click.option("--exclude", multiple=True, help="Not the files that match this glob (again for more).")
        @click.option("--hidden", is_flag=True, help="Also names that start with _ or a dot.")
        @click.option("--follow-links", is_flag=True, help="Follow symbolic links.")
        @MASTER
        @AS_JSON
        def run(dest: str, source: tuple[str, ...], master: str | None, as_json: bool, **given: Any) -> None:
            chosen = {name: list(value) or None if isinstance(value, tuple) else value for name, value in given.items()}
            ledger = quire.Ledger(dest)
            with spark_of(master) as spark:
                frame(told(ledger.inspect, list(source), spark=spark, **chosen), as_json, empty)

        return run

    return command


@_of_source("nothing is gone")
def deleted(inspect: Inspect, source: list[str], **chosen: Any) -> Any:
    """The gathered files that are gone from SOURCE…; their output is kept."""
    return inspect.deleted(source, **chosen)


@_of_source("nothing has changed")
def changed(inspect: Inspect, source: list[str], **chosen: Any) -> Any:
    """The files at SOURCE… that were rewritten or appended to since they were processed; --on-change reprocess reads them."""
    return inspect.changed(source, **chosen)


@click.command("purge-sources")
@click.argument("dest")
@click.option("--yes", is_flag=True, help="Delete; else it is only said what would go.")
@click.option("--source", multiple=True, help="Of files below this place, and of no others (again for more).")
@click.option("--min-age", default="1 hour", show_default=True, help="Only files that have not changed for so long (0: any).")
@click.option("--derived", is_flag=True, help="Also where a function has made something else of the files.")
@MASTER
@AS_JSON
def purge_sources(
    dest: str, yes: bool, source: tuple[str, ...], min_age: str, derived: bool, master: str | None, as_json: bool
) -> None:  # fmt: skip
    """Delete the sources of what is done, only those whose bytes are verified in committed files now."""
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        found = ledger.purge_sources(list(source) or None, dry_run=not yes, derived=derived, min_age=min_age, spark=spark)
        show(found, as_json)


@click.command("import-markers")
@click.argument("dest")
@click.argument("directory")
@click.argument("source", nargs=-1, required=True)
@click.option("--parse", default=next(iter(PARSERS)), show_default=True, help=f"{', '.join(PARSERS)}, or module:name or file.py:name.")
@MASTER
@AS_JSON
@QUIET
def import_markers(
    dest: str, directory: str, source: tuple[str, ...], parse: str, master: str | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Take over what a Hadoop job has done of SOURCE…: empty files in DIRECTORY, named by the splits."""
    reads = function_of(parse) if ":" in parse else choose(parse, PARSERS, "parse")
    ledger = quire.Ledger(dest, create=True)
    with spark_of(master) as spark:
        show(ledger.import_markers(directory, list(source), parse=reads, spark=spark, progress=not quiet), as_json)


@click.command("export-markers")
@click.argument("dest")
@click.argument("directory")
@click.option("--source", multiple=True, help="Only of files below this place (again for more).")
@click.option("--split-size", default="128 MiB", show_default=True, help="The block size of the Hadoop job's input.")
@MASTER
@AS_JSON
def export_markers(dest: str, directory: str, source: tuple[str, ...], split_size: str, master: str | None, as_json: bool) -> None:
    """Write a file into DIRECTORY for each split that is done, as a Hadoop job looks for them; remove own ones of what is not."""
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        show(ledger.export_markers(directory, source=list(source) or None, split_size=split_size, spark=spark), as_json)


@click.command("quarantined-records")
@click.argument("dest")
@AS_JSON
def quarantined_records(dest: str, as_json: bool) -> None:
    """The single records in quarantine, with their bytes as far as they are text."""
    found = quire.Ledger(dest).inspect.quarantined_records()
    found["content"] = [None if data is None else data.decode("utf-8", "backslashreplace") for data in found["content"]]
    frame(found, as_json, "no record is quarantined")


UPKEEP = (
    forget, retry, compact, checkpoint, expire, keep_versions, export, pins, unpin, files, coverage, tasks, sizes, deleted, changed,
    purge_sources, import_markers, maintain,
    export_markers, quarantined_records,
)  # fmt: skip
