"""`quire load`, `quire emit`, and `quire ledger offsets | lag`: Kafka's topics in a shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

import quire
from quire.cli.decoding import decoding, words
from quire.cli.function import function_of
from quire.cli.parquet import PARQUET, parquet_options
from quire.cli.show import (
    AS_JSON,
    KAFKA_OPTION,
    KAFKA_SECRET,
    MAINTAIN,
    MASTER,
    OUTAGE,
    QUIET,
    RETRIES,
    frame,
    kafka_options,
    show,
    shown,
    spark_of,
    store_options,
)
from quire.engine.loop import again
from quire.errors import hide
from quire.load import check
from quire.sources.kafka.topics import hides
from quire.table.emit import check as check_emit

_HOLD = ("--option", "--store-option", "--source-option", "--dest-option", "--conf", "--registry-options")  # NAME=VALUE


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """A command's arguments as they may be shown again."""
    shown = list[str]()
    for before, text in zip(["", *arguments], arguments, strict=False):
        begins = next((option for option in _HOLD if text.startswith(f"{option}=")), "")
        name, equals, _ = text.removeprefix(f"{begins}=").partition("=")
        hidden = hides(name) or hide(f"{name}=x") != f"{name}=x" or "--registry-options" in (before, begins)
        secret = (before in _HOLD or begins) and equals and hidden
        shown.append(f"{text[: text.index(name)]}{name}=***" if secret else text)
    return shown


def _until(text: str | None) -> Any:
    return int(text) if text is not None and text.removeprefix("-").isdecimal() else text


@click.command()
@click.argument("source")
@click.argument("dest")
@click.option("--start", default="earliest", show_default=True, help="Where a topic begins that is new: earliest, latest, or a time.")
@click.option("--until", help="Load up to this offset, or up to this time: '2026-11-22T08:00:00+01:00'.")
@click.option("--transform", help="A function from a batch to a batch of columns: module:name or file.py:name.")
@decoding
@click.option("--format", help="parquet or lines (of values); default: parquet.")
@click.option(
    "--schema", help="Columns of the rows: 'id long, name string', or a file (.avsc, .desc); default: those of the first records."
)
@click.option("--partition-by", help="Directories by the values of this column; date: the day of the timestamp.")
@click.option("--newlines", default="quarantine", show_default=True, help="quarantine or escape: values that are to be one line each.")
@click.option("--compression", help="none, gzip or zstd; default: zstd in Parquet, else none.")
@click.option("--target-size", default="256 MiB", show_default=True, help="Size of a data file, with its unit.")
@click.option("--max-bytes", help="Size of the records in one commit, with its unit; default: as much as there is.")
@RETRIES[0]
@RETRIES[1]
@click.option("--deduplicate", help="Leave out records that are known: key, header:NAME, a column of --decode; off ends it.")
@click.option("--within", help="With --deduplicate: the time between two records of one key, with its unit: '1 day'.")
@click.option("--on-data-loss", default="fail", show_default=True, help="fail or record: what retention removed before it was read.")
@click.option("--max-quarantined", type=int, help="Commit nothing if more records are to be quarantined; up to it, also all of them.")
@click.option("--keep-messages", is_flag=True, help="Keep the text of what the function raises (it may hold data).")
@click.option("--consumer-group", help="Its committed offsets follow the ledger, for tools that watch them.")
@click.option("--function-version", help="Names the edition of the function instead of a hash of its source.")
@click.option("--committer", default="auto", show_default=True, help="auto, rename, rename_v2, upload or copy.")
@click.option("--exports", multiple=True, help="delta, iceberg or symlinks: from now on in this format, too, over the same files.")
@click.option(
    "--schema-evolution", default="refuse", show_default=True, help="refuse or add: columns that the destination does not have yet."
)
@click.option("--keep-versions", help="Older versions that stay readable from now on: 3, or '1 day'.")
@click.option("--allow-nonempty", is_flag=True, help="Allow a destination that holds other files or topics.")
@click.option("--operation", help="Into a table: upsert (default), insert or bulk_insert.")
@PARQUET
@click.option("--every", help="Again and again, this far apart ('10 s'), until Ctrl-C.")
@click.option("--max-runs", type=int, help="With --every: how often.")
@OUTAGE
@MAINTAIN
@KAFKA_OPTION
@KAFKA_SECRET
@MASTER
@AS_JSON
@QUIET
def load(source: str, dest: str, master: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Load the topics of SOURCE, kafka://host:9092/topic[,topic…], into data files below DEST, each record once."""
    options = kafka_options(given.pop("options"), given.pop("secrets"))
    function = None if (transform := given.pop("transform")) is None else function_of(transform)
    times = {name: given.pop(name) for name in ("max_runs", "outage", "maintain")}
    settings = {**words(given), **given, "until": _until(given["until"]), "source_options": options}
    settings["parquet_options"] = parquet_options(given["parquet_options"])
    again(given["every"], **times)
    check(source, dest, function, **settings)  # a wrong argument is said at once, not after Spark's start
    with spark_of(master) as spark, shown(as_json):
        show(quire.load(source, dest, function, spark=spark, progress=not quiet, **times, **settings), as_json)


@click.command()
@click.argument("source", metavar="URL")
@click.argument("dest", metavar="TOPIC")
@click.option("--key", multiple=True, help="A column of the records' key (again for more); default: the table's key and partitions.")
@click.option("--since", help="Of a topic that is new to the table: begin after this instant, not with the rows that are there.")
@click.option("--tombstones", is_flag=True, help="A record without a value follows each delete.")
@click.option("--every", help="Again and again, this far apart ('10 s'), until Ctrl-C.")
@click.option("--max-runs", type=int, help="With --every: how often.")
@OUTAGE
@click.option("--store-option", "stored", multiple=True, help="For the table's store, NAME=VALUE (again for more); see --store-secret.")
@click.option("--store-secret", "store_secrets", multiple=True, help="Likewise NAME=VARIABLE, looked up in the environment.")
@click.option("--store-profile", help="The name of a profile that holds the store's options (docs/shell.md); others override them.")
@KAFKA_OPTION
@KAFKA_SECRET
@MASTER
@AS_JSON
@QUIET
def emit(
    source: str, dest: str, stored: tuple[str, ...], store_secrets: tuple[str, ...], master: str | None, as_json: bool, quiet: bool,
    **given: Any,
) -> None:  # fmt: skip
    """Write what the commits of the table at URL have changed into TOPIC, kafka://host:9092/topic, in Debezium's envelope."""
    options = kafka_options(given.pop("options"), given.pop("secrets"))
    times = {name: given.pop(name) for name in ("every", "max_runs", "outage")}
    at = store_options(stored, store_secrets, "store-{}", given.pop("store_profile"))
    settings = {**given, "key": list(given["key"]) or None, "producer_options": options, "storage_options": at}
    again(**times)
    check_emit(source, dest, **settings)
    with spark_of(master) as spark:
        show(quire.emit(source, dest, spark=spark, progress=not quiet, **times, **settings), as_json)


@click.command()
@click.argument("dest")
@AS_JSON
def offsets(dest: str, as_json: bool) -> None:
    """How far each partition is loaded, without a gap; and what was lost."""
    frame(quire.Ledger(dest).inspect.offsets(), as_json, "no topic was loaded")


@click.command()
@click.argument("dest")
@click.option("--source", help="Brokers and topics, kafka://host:9092/topic.")
@KAFKA_OPTION
@KAFKA_SECRET
@AS_JSON
def lag(dest: str, source: str | None, options: tuple[str, ...], secrets: tuple[str, ...], as_json: bool) -> None:
    """How far each partition is behind the end that its topic has now."""
    frame(quire.Ledger(dest).inspect.lag(source, source_options=kafka_options(options, secrets)), as_json, "no partition")


OFFSETS = (offsets, lag)
