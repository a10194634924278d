"""`quire table …`: tables that take updates, in a shell: created, written, read, and asked what has changed."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click
import pyarrow as pa

import quire
from quire.cli.hive import sync_metastore
from quire.cli.show import (
    AS_JSON,
    LIMIT,
    MASTER,
    MOST_ROWS,
    OUTAGE,
    QUIET,
    TABLE_STORE,
    as_line,
    frame,
    show,
    show_upkeep,
    spark_of,
)  # fmt: skip
from quire.errors import UsageError, choose
from quire.spark.shipping import portable
from quire.storage import connect
from quire.storage.within import marked
from quire.table import compacting, overview, timeline
from quire.table.changes import IMAGES
from quire.table.doctor import OLD
from quire.table.reading import as_python
from quire.table.services import check_instant
from quire.table.settings import opened
from quire.table.view import there
from quire.table.write.columns import after, brought
from quire.table.writing import check_batch

POLITE = 10  # niceness of a loop beside writers
Options = dict[str, Any] | None  # of the table's store
_JSON = click.option("--json", is_flag=True, expose_value=False, help="Each row is a JSON object, also without it.")


def _listed(given: Sequence[str]) -> list[str] | None:
    """Names as they are typed: one after another with commas, or by the same option again."""
    return [name.strip() for text in given for name in text.split(",") if name.strip()] or None


@click.command()
@click.argument("url")
@click.option("--key", multiple=True, required=True, help="The column by which a row is known (again, or with commas, for more).")
@click.option("--partition-by", multiple=True, help="The column whose values name the directories (again, or with commas, for more).")
@click.option("--ordering", help="A column whose greatest value wins where a key comes again; default: the later call wins.")
@click.option(
    "--type",
    default="copy_on_write",
    show_default=True,
    help="copy_on_write, or merge_on_read: updates go into logs, and it needs --ordering.",
)
@click.option("--index", default="bloom", show_default=True, help="bloom, simple or bucket: how the file of a key is found.")
@click.option("--buckets", type=int, help="File groups in each partition, for the bucket index, for ever.")
@click.option("--hive-style/--flat", default=True, help="Directories are called city=sf (default), or sf.")
@click.option("--change-files/--no-change-files", default=True, help="Keep what each commit changed beside the data (default), or not.")
@click.option("--target-size", default="120 MiB", show_default=True, help="Size of a base file, with its unit.")
@click.option("--log-format", default="parquet", show_default=True, help="Of rows in logs: parquet, or avro, which Trino reads too.")
@click.option("--cdc", help="Also write Hudi's CDC logs: data_before_after, data_before or op_key_only; default: none.")
@click.option("--version", type=int, default=6, show_default=True, help="Of the table's format: 6, or 9, as JVM Hudi 1.x writes it.")
@click.option("--name", help="As catalogs show it; default: that of its directory.")
@TABLE_STORE
@AS_JSON
def create(url: str, storage_options: Options, as_json: bool, **given: Any) -> None:
    """Create an empty table at URL; one that is there with the same settings stays as it is."""
    given |= {name: _listed(given[name]) for name in ("key", "partition_by")}
    show(overview.overview(quire.Table.create(url, **given, storage_options=storage_options), storage_options), as_json)


@click.command("show")
@click.argument("url")
@TABLE_STORE
@AS_JSON
def show_command(url: str, storage_options: Options, as_json: bool) -> None:
    """The settings of a table, its files and rows by partition, and its last instants; no base file is read."""
    show(overview.overview(quire.Table(url, storage_options=storage_options), storage_options), as_json)


@click.command()
@click.argument("url")
@TABLE_STORE
@AS_JSON
def stats(url: str, storage_options: Options, as_json: bool) -> None:
    """The health of a table: small files, logs, skew by partition, what a clean could take, what its commits have cost."""
    table = quire.Table(url, storage_options=storage_options)
    show(table.stats(), as_json)


@click.command("doctor")
@click.argument("url")
@click.option("--records", is_flag=True, help="Also compare the keys of all rows, on Spark.")
@TABLE_STORE
@MASTER
@AS_JSON
def doctor_command(url: str, records: bool, storage_options: Options, master: str | None, as_json: bool) -> None:
    """Say what is wrong with a table, and the call that mends it; nothing is changed. Exit code 2 where anything is wrong."""
    table = quire.Table(url, storage_options=storage_options)
    if records:
        with spark_of(master) as spark:
            found = table.doctor(records=True, spark=spark)
    else:
        found = table.doctor()
    show(found, as_json)
    if not found.healthy:
        sys.exit(2)


@click.command("remove-leftovers")
@click.argument("url")
@click.option("--older-than", default=OLD, show_default=True, help="How long ago a file was written, at least.")
@TABLE_STORE
@AS_JSON
def remove_leftovers(url: str, older_than: str, storage_options: Options, as_json: bool) -> None:
    """Delete files of writes that never completed, as `quire table doctor` lists them."""
    count = quire.Table(url, storage_options=storage_options).remove_leftovers(older_than=older_than)
    click.echo(as_line({"deleted": count}) if as_json else f"deleted: {count:,} files")


@click.command("timeline")
@click.argument("url")
@click.option("--last", type=click.IntRange(1), help="Only so many at the end.")
@TABLE_STORE
@AS_JSON
def timeline_command(url: str, last: int | None, storage_options: Options, as_json: bool) -> None:
    """The instants of a table, the oldest first, and what each has changed."""
    table = quire.Table(url, storage_options=storage_options)
    frame(overview.instants(table, storage_options, last=last), as_json, "nothing has been written yet")


@click.command("history")
@click.argument("url")
@click.argument("key")
@click.option("--partition", help="Look there alone: its path (city=sf), or its value where one column names it (sf).")
@TABLE_STORE
@_JSON
def history_command(url: str, key: str, partition: str | None, storage_options: Options) -> None:
    """Print each version of the record KEY that is still there, the oldest first, as JSON; a key of several columns is id:7,name:Bob."""
    table = quire.Table(url, storage_options=storage_options)
    history = table.history(key, partition=partition)
    print_rows(history.rows())
    click.echo(history.known, err=True)


def _writing(operation: str, does: str) -> click.Command:
    @click.command(operation.replace("_", "-"), help=does)
    @click.argument("url")
    @click.argument("files", metavar="FILE...", nargs=-1, required=True)
    @click.option("--batch", help="A name: the same batch is committed once, however often it is called, and goes on after a kill.")
    @click.option("--utc", is_flag=True, help="Times without a zone are UTC; else they are refused.")
    @TABLE_STORE
    @MASTER
    @AS_JSON
    @QUIET
    def write(
        url: str, files: tuple[str, ...], storage_options: Options, batch: str | None, utc: bool, master: str | None, as_json: bool,
        quiet: bool,
    ) -> None:  # fmt: skip
        table = quire.Table(url, storage_options=storage_options)
        check_batch(batch)
        store = connect(marked(table.url), storage_options)
        known = there(timeline.current(store), opened(store)[0])
        from quire.cli.rows import rows_of  # which brings Arrow's readers and pandas: other commands start without them

        rows = rows_of(files, known, utc=utc)
        named = (*table.config.key, *table.config.partition_by)
        after(known, brought(rows.schema, table.config, operation), operation, named=named)  # said at once, not after Spark's start
        with spark_of(master) as spark:
            show(getattr(table, operation)(rows, batch=batch, spark=spark, progress=not quiet), as_json)

    return write


@click.command()
@click.argument("url")
@click.option("--schedule-only", is_flag=True, help="Lay one plan, and let another call carry it out.")
@click.option("--pending-only", is_flag=True, help="Carry out the plans that are there, and lay none.")
@click.option("--time-limit", help="Begin nothing more after so long, as '10 min'; a plan under way is finished.")
@click.option("--strategy", default="log_size", show_default=True, help="Which file groups come first: log_size, logs or oldest.")
@click.option("--plan-size", default="4 GiB", show_default=True, help="Bytes of base files and logs that one plan reads, with their unit.")
@TABLE_STORE
@MASTER
@AS_JSON
@QUIET
def compact(
    url: str, schedule_only: bool, pending_only: bool, time_limit: str | None, master: str | None, as_json: bool, quiet: bool, **given: Any
) -> None:  # fmt: skip
    """Write the base files of a merge-on-read table anew with what their logs say, beside whoever writes."""
    if schedule_only and (pending_only or time_limit is not None):
        raise UsageError("--schedule-only lays a plan alone: leave --pending-only and --time-limit out.")
    storage_options = given.pop("storage_options")
    table = quire.Table(url, storage_options=storage_options)
    compacting.Wanted.of(**given, time_limit=time_limit)  # a wrong argument is said at once, not after Spark's start
    compacting.check(connect(marked(table.url), storage_options))
    if schedule_only:
        show(table.schedule_compaction(**given), as_json)
        return
    with spark_of(master) as spark:
        show(table.compact(schedule=not pending_only, time_limit=time_limit, **given, spark=spark, progress=not quiet), as_json)


_FILES = "FILE: .parquet; or .csv (with a header), .jsonl, .ndjson or .json (an object a line), which may end in .gz or .zst."
upsert = _writing(
    "upsert",
    f"Insert the rows of FILE… whose key is not there, update the others; a true _hoodie_is_deleted deletes.\n\n{_FILES}",
)
insert = _writing("insert", f"Add the rows of FILE… without a look whether their keys are there; small files are filled first.\n\n{_FILES}")
bulk_insert = _writing("bulk_insert", f"Add the rows of FILE… in new files alone, for the first load.\n\n{_FILES}")
delete = _writing("delete", f"Delete by key: FILE… need the columns of key, partition and ordering.\n\n{_FILES}")
insert_overwrite = _writing(
    "insert_overwrite", f"Replace all rows of the partitions to which rows of FILE… belong; the other partitions stay.\n\n{_FILES}"
)


@click.command("delete-partitions")
@click.argument("url")
@click.argument("partitions", metavar="PARTITION...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Take them away; else it is only said what would go.")
@click.option("--batch", help="A name: the same batch is committed once, however often it is called, and goes on after a kill.")
@TABLE_STORE
@AS_JSON
@QUIET
def delete_partitions(
    url: str, partitions: tuple[str, ...], storage_options: Options, yes: bool, batch: str | None, as_json: bool, quiet: bool
) -> None:  # fmt: skip
    """Take all rows of PARTITION… away: paths (city=sf), or values where one column names them (sf). Older instants keep them."""
    table = quire.Table(url, storage_options=storage_options)
    if yes:
        show(table.delete_partitions(list(partitions), batch=batch, progress=not quiet), as_json)
        return
    check_batch(batch)
    frame(overview.partitions(table, storage_options, list(partitions)), as_json, "nothing")
    click.echo("Nothing was changed: with --yes these partitions go.", err=True)


@click.command()
@click.argument("url")
@click.option("--as-of", help="The rows at this instant, as 20261122103000000 (UTC).")
@click.option("--columns", multiple=True, help="Only this column (again, or with commas, for more).")
@click.option("--where", help="A condition in SQL, computed on Spark: \"city = 'sf'\".")
@click.option("--read-optimized", is_flag=True, help="Of a merge-on-read table the base files alone, without what is in logs.")
@LIMIT
@TABLE_STORE
@MASTER
@_JSON
def snapshot(
    url: str, as_of: str | None, columns: tuple[str, ...], where: str | None, read_optimized: bool, limit: int, master: str | None,
    storage_options: Options,
) -> None:  # fmt: skip
    """Print the first rows of a table as JSON, one a line."""
    table = quire.Table(url, storage_options=storage_options)
    table = table if as_of is None else table.as_of(as_of)
    if where is None:
        print_rows(first_rows(table, limit, _listed(columns), read_optimized=read_optimized))
        return
    overview.rows(table, _listed(columns))  # a wrong argument is said at once, not after Spark's start
    with spark_of(master) as spark:
        print_rows(_rows(table.snapshot(spark=spark, columns=_listed(columns), where=where, read_optimized=read_optimized), limit))


@click.command()
@click.argument("url")
@click.option("--since", required=True, help="Changes after this instant, as 20261122103000000 (UTC); 00000000000000: all.")
@click.option("--until", help="Up to this instant; default: the newest.")
@click.option("--images", default="after", show_default=True, help="after or both: also the rows as they were before.")
@click.option("--net/--no-net", default=True, help="One change for each key (default), or each change of each commit.")
@click.option("--limit", "-n", type=click.IntRange(0), help="Rows at most; default: all.")
@TABLE_STORE
@MASTER
@_JSON
def changes(url: str, limit: int | None, master: str | None, storage_options: Options, **given: Any) -> None:
    """Print what commits have changed, deleted rows among them, as JSON, one change a line."""
    table = quire.Table(url, storage_options=storage_options)
    for name in ("since", "until"):  # a wrong argument is said at once, not after Spark's start
        if given[name] is not None:
            check_instant(given[name], name)
    choose(given["images"], IMAGES, "images")
    with spark_of(master) as spark:
        print_rows(_rows(table.changes(**given, spark=spark), limit))


def first_rows(
    table: quire.Table, limit: int, columns: Sequence[str] | None = None, *, read_optimized: bool = False
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """The first rows of a table, without Spark."""
    return itertools.islice(overview.rows(table, columns, read_optimized=read_optimized), min(limit, sys.maxsize))


def _rows(found: Any, limit: int | None) -> Iterator[dict[str, Any]]:
    """The rows of a frame of Spark's or Arrow's; of Spark's a partition at a time."""
    most = None if limit is None else min(limit, MOST_ROWS)
    if isinstance(found, pa.Table):
        batches: Iterable[pa.RecordBatch] = found.slice(0, most).to_batches()
    else:
        some = found if most is None else found.limit(most)
        packed = some.mapInArrow(portable(found.sparkSession, _packed), "rows binary").toLocalIterator()
        batches = (batch for row in packed for batch in pa.ipc.open_stream(row["rows"]))
    return (row for batch in batches for row in as_python(batch, "the table"))


def _packed(batches: Iterable[Any]) -> Iterator[Any]:
    """The same rows as bytes, of the types that Arrow has for them: Spark's own rows have times without a zone."""
    for batch in batches:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        yield pa.RecordBatch.from_pydict({"rows": [sink.getvalue().to_pybytes()]})


def print_rows(rows: Iterable[dict[str, Any]]) -> None:
    """A row a line, as JSON."""
    for row in rows:
        click.echo(as_line(row))


@click.command()
@click.argument("url")
@click.option("--keep-for", help="The table stays readable as of each instant of so long, as '7 days'.  [default: 24 h]")
@click.option("--versions", type=int, help="Or: so many slices of each file group stay, the newest among them.")
@click.option("--dry-run", is_flag=True, help="Delete nothing, and say what would be deleted.")
@TABLE_STORE
@AS_JSON
@QUIET
def clean(url: str, storage_options: Options, as_json: bool, quiet: bool, **given: Any) -> None:
    """Delete the files of slices that later ones have superseded, but for what savepoints and pins hold."""
    table = quire.Table(url, storage_options=storage_options)
    show(table.clean(**given, progress=not quiet), as_json)


@click.command()
@click.argument("url")
@click.option("--sort", multiple=True, help="By this column (again, or with commas, for more); default: as the newest clustering.")
@click.option("--curve", default="linear", show_default=True, help="linear: by one column after the other; z-order, hilbert: by all alike.")
@click.option("--partition", "partitions", multiple=True, help="Cluster this partition alone (again for more): its path, or its value.")
@click.option("--time-limit", help="Begin nothing more after so long, as '10 min'.")
@click.option("--plan-size", default="1 GiB", show_default=True, help="Bytes of files that one job reads, with their unit.")
@click.option("--dry-run", is_flag=True, help="Do nothing, and say what would be clustered.")
@TABLE_STORE
@MASTER
@AS_JSON
@QUIET
def cluster(
    url: str, sort: tuple[str, ...], partitions: tuple[str, ...], dry_run: bool, master: str | None, as_json: bool, quiet: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Lay rows out anew in fewer, larger, sorted files, beside whoever writes; no row changes."""
    table = quire.Table(url, storage_options=given.pop("storage_options"))
    given |= {"sort": _listed(sort), "partitions": list(partitions) or None}
    foreseen = table.cluster(**given, dry_run=True, progress=False)  # a wrong argument is said at once, not after Spark's start
    if dry_run:
        show(foreseen, as_json)
        return
    with spark_of(master) as spark:
        show(table.cluster(**given, spark=spark, progress=not quiet), as_json)


@click.command()
@click.argument("url")
@click.option("--log-ratio", type=float, default=0.1, show_default=True, help="Compact once logs have this share of base files' bytes.")
@click.option("--small-files", type=int, default=20, show_default=True, help="Cluster once so many small files can become fewer.")
@click.option("--keep-for", default="24 h", show_default=True, help="Clean what was superseded so long ago.")
@click.option("--keep", type=int, default=100, show_default=True, help="Archive all but so many completed writes.")
@click.option("--time-limit", help="Begin nothing more after so long, as '10 min'.")
@click.option("--every", help="Again and again, this far apart ('10 min'), until Ctrl-C.")
@click.option("--max-runs", type=int, help="With --every: how often.")
@OUTAGE
@click.option("--dry-run", is_flag=True, help="Do nothing, and say what is due.")
@TABLE_STORE
@AS_JSON
@QUIET
def maintain(url: str, storage_options: Options, as_json: bool, quiet: bool, **given: Any) -> None:
    """Do what is due at a table: compact, cluster, clean, archive, each only where it is worth its time.

    With --every it leaves the processor to others on this machine (nice 10), such as writers.
    """
    table = quire.Table(url, storage_options=storage_options)
    if given["every"] is not None and hasattr(os, "nice"):
        os.nice(POLITE)
    show_upkeep(table.maintain(**given, progress=not quiet), as_json)


@click.command()
@click.argument("url")
@click.option("--keep", type=int, default=30, show_default=True, help="So many completed writes stay on the timeline.")
@click.option("--dry-run", is_flag=True, help="Archive nothing, and say what would be archived.")
@TABLE_STORE
@AS_JSON
@QUIET
def archive(url: str, storage_options: Options, as_json: bool, quiet: bool, **given: Any) -> None:
    """Take the oldest instants off the timeline into an archive; no row and no file goes."""
    table = quire.Table(url, storage_options=storage_options)
    show(table.archive(**given, progress=not quiet), as_json)


@click.command()
@click.argument("url")
@click.option("--instant", help="The instant of a completed write; default: the newest.")
@click.option("--comment", default="", help="Why it is held.")
@click.option("--delete", is_flag=True, help="Delete the savepoint at --instant: the next clean takes what it has held.")
@TABLE_STORE
@AS_JSON
def savepoint(url: str, instant: str | None, comment: str, delete: bool, storage_options: Options, as_json: bool) -> None:
    """Hold the table as it was at an instant, and print that instant: no clean takes its files."""
    table = quire.Table(url, storage_options=storage_options)
    if not delete:
        held = table.savepoint(instant, comment=comment)
        click.echo(as_line({"instant": held}) if as_json else held)
    elif instant is None or comment:
        raise UsageError("--delete takes --instant, that of the savepoint, and nothing else.")
    else:
        table.delete_savepoint(instant)
        if as_json:
            click.echo(as_line({"deleted": instant}))


@click.command()
@click.argument("url")
@TABLE_STORE
@_JSON
def savepoints(url: str, storage_options: Options) -> None:
    """Print the savepoints, as JSON, one a line."""
    table = quire.Table(url, storage_options=storage_options)
    print_rows({str(name): value for name, value in row.items()} for row in table.savepoints().to_dict("records"))


@click.command()
@click.argument("url")
@click.argument("instant", required=False)
@TABLE_STORE
@AS_JSON
@QUIET
def rollback(url: str, instant: str | None, storage_options: Options, as_json: bool, quiet: bool) -> None:
    """Take the write at INSTANT (default: the newest) back; what it has read is processed again."""
    table = quire.Table(url, storage_options=storage_options)
    show(table.rollback(instant, progress=not quiet), as_json)


@click.command()
@click.argument("url")
@click.argument("instant")
@TABLE_STORE
@AS_JSON
@QUIET
def restore(url: str, instant: str, storage_options: Options, as_json: bool, quiet: bool) -> None:
    """Take every write after INSTANT back; what they have read is processed again."""
    table = quire.Table(url, storage_options=storage_options)
    show(table.restore(instant, progress=not quiet), as_json)


TABLE = (
    create,
    show_command,
    upsert,
    insert,
    bulk_insert,
    insert_overwrite,
    delete,
    delete_partitions,
    snapshot,
    changes,
    compact,
    cluster,
    archive,
    maintain,
    clean,
    savepoint,
    savepoints,
    rollback,
    restore,
    stats,
    doctor_command,
    remove_leftovers,
    timeline_command,
    history_command,
    sync_metastore,
)
