"""Shared by all commands: options that mean the same everywhere, and printing results."""

from __future__ import annotations

import functools
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

import quire
from quire.engine.maintenance import Maintenance
from quire.errors import AllQuarantined, QuireError, TopicsFailed, UsageError, printable

MOST_ROWS = (1 << 31) - 1  # that Spark counts to
WIDE = 120  # characters of a column, at most
_FLAGS: dict[str, Any] = {"true": True, "false": False}

AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
OUTAGE = click.option("--outage", help="How long a store may be away before the call ends ('1 h'); default: with --every 1 d, else not.")
RETRIES = (
    click.option("--retry-quarantined", help="Runs read again what has waited in quarantine for so long ('1 h'), then twice as long, …"),
    click.option("--max-attempts", type=int, default=5, show_default=True, help="With --retry-quarantined: how often a file is read."),
)
MAINTAIN = click.option("--maintain/--no-maintain", default=None, help="Maintain DEST beside the runs; default: with --every.")
QUIET = click.option("--quiet", is_flag=True, help="No progress bars.")
MASTER = click.option("--master", help="Spark's master; default: local[*].")
KAFKA_OPTION = click.option(
    "--option", "options", multiple=True, help="For Kafka's client, NAME=VALUE by librdkafka's names (again for more); see --secret."
)
KAFKA_SECRET = click.option(
    "--secret", "secrets", multiple=True, help="Likewise NAME=VARIABLE: the value is looked up in this variable of the environment."
)


PLACE_OPTION = click.option("--store-option", "options", multiple=True, help="For the store, NAME=VALUE (again for more).")
PLACE_SECRET = click.option("--store-secret", "secrets", multiple=True, help="Likewise NAME=VARIABLE, looked up in the environment.")
# Of a call that reads one place and writes another: for both of them, or for each its own.
SIDES = [
    PLACE_OPTION, PLACE_SECRET,
    click.option("--source-option", "source_options", multiple=True, help="For the source's store alone, such as profile=NAME of S3."),
    click.option("--source-secret", "source_secrets", multiple=True, help="Likewise NAME=VARIABLE."),
    click.option("--dest-option", "dest_options", multiple=True, help="For the destination's store alone."),
    click.option("--dest-secret", "dest_secrets", multiple=True, help="Likewise NAME=VARIABLE."),
    click.option("--store-profile", help="The options of both stores, by the name of a profile (docs/shell.md); others override them."),
    click.option("--source-profile", help="Those of the source's store alone."),
    click.option("--dest-profile", help="Those of the destination's store alone."),
]  # fmt: skip
LIMIT = click.option("--limit", "-n", default=20, show_default=True, type=click.IntRange(0), help="Rows at most.")


def of_store(spelled: str, of: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of a command for one store, which it gets together as `storage_options`.

    spelled   how they are called, as "store-{}"; of: whose store it is, for the help
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        option, secret = spelled.format("option"), spelled.format("secret")

        @click.option(f"--{option}", "options", multiple=True, help=f"For {of} store, NAME=VALUE (again for more); see --{secret}.")
        @click.option(f"--{secret}", "secrets", multiple=True, help="Likewise NAME=VARIABLE: the value is looked up in the environment.")
        @click.option("--store-profile", help="The name of a profile that holds the store's options (docs/shell.md); others override them.")
        @functools.wraps(command)
        def run(*, options: tuple[str, ...], secrets: tuple[str, ...], store_profile: str | None, **given: Any) -> None:
            command(storage_options=store_options(options, secrets, spelled, store_profile), **given)

        return run

    return decorate


PLACE, TABLE_STORE = of_store("store-{}", "the"), of_store("{}", "the table's")


def kafka_options(options: tuple[str, ...], secrets: tuple[str, ...]) -> dict[str, Any] | None:
    """A command's options for Kafka's client, or nothing."""
    return named(options, secrets, "sasl.mechanism=PLAIN") or None


def store_options(
    options: tuple[str, ...], secrets: tuple[str, ...], spelled: str = "{}", profile: str | None = None
) -> dict[str, Any] | None:
    """A command's options for a store, and those of a profile that they do not override, or nothing; a flag's value is true or false."""
    found = named(options, secrets, "endpoint_url=http://127.0.0.1:9000", spelled)
    own = {name: _FLAGS.get(value, value) if isinstance(value, str) else value for name, value in found.items()}
    return {**(quire.profile(profile) if profile is not None else {}), **own} or None


def sides(given: dict[str, Any]) -> dict[str, Any]:
    """The options of both stores of a call, as Python takes them, out of a command's own words."""
    found = dict[str, Any]()
    for name, options, secrets, side in (
        ("storage_options", "options", "secrets", "store"),
        ("source_options", "source_options", "source_secrets", "source"),
        ("dest_options", "dest_options", "dest_secrets", "dest"),
    ):
        found[name] = store_options(given.pop(options), given.pop(secrets), f"{side}-{{}}", given.pop(f"{side}_profile"))
    return found


def named(options: tuple[str, ...], secrets: tuple[str, ...], example: str, spelled: str = "{}") -> dict[str, Any]:
    """Options of a command by their names, and those whose values are in the environment; `spelled`: how the command calls both."""
    found = dict[str, Any]()
    for text, secret in [*((text, False) for text in options), *((text, True) for text in secrets)]:
        name, equals, value = text.partition("=")
        if not name or not equals:
            what = spelled.format("secret" if secret else "option")
            raise UsageError(f"--{what} takes NAME={'VARIABLE' if secret else 'VALUE'}, as {example}.")
        found[name] = quire.secret(value) if secret else value
    return found


def show(result: Any, as_json: bool) -> None:
    """Print a result, for people or as JSON."""
    if not as_json:
        click.echo(str(result))
        return
    click.echo(as_line(result.as_dict() if hasattr(result, "as_dict") else result))


def show_upkeep(found: Maintenance, as_json: bool) -> None:
    """Print a report of upkeep. Exit code 3 where something that was due could not be done, since nobody reads what cron has printed."""
    show(found, as_json)
    if found.hindered:
        sys.exit(QuireError.exit_code)


@contextmanager
def shown(as_json: bool) -> Iterator[None]:
    """A call that returns a report: where it raises an error that carries it, the report is printed all the same."""
    try:
        yield
    except (AllQuarantined, TopicsFailed) as e:
        show(e.report, as_json)
        raise


def as_line(found: Any) -> str:
    """One line of JSON in which a name cannot speak to the terminal: what is not printable is escaped, other letters are not."""
    try:
        text = json.dumps(found, default=plain, ensure_ascii=False, allow_nan=False)
    except ValueError:  # JSON cannot express NaN or infinity: null, as in tables
        text = json.dumps(_finite(found), default=plain, ensure_ascii=False)
    return escaped(text)


def _finite(found: Any) -> Any:
    if isinstance(found, Mapping):
        return {key: _finite(value) for key, value in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(value) for value in found]
    return None if isinstance(found, float) and not math.isfinite(found) else found


def escaped(text: str) -> str:
    """JSON in which every character that is not printable is escaped."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 1 << 16 else json.dumps(c)[1:-1] for c in text)
    )


def plain(value: Any) -> str:
    """A value without a type in JSON, as text."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def frame(found: Any, as_json: bool, empty: str) -> None:
    """Print a table; `empty` is said where it has no rows."""
    whole = {name: "Int64" for name in found.columns if _lacking(found[name])}
    if as_json:
        click.echo(escaped(found.astype(whole).to_json(orient="records", date_format="iso")))
    else:
        shown = found.map(lambda value: _short(printable(value)) if isinstance(value, str) else value).astype(whole)
        click.echo(shown.to_string(index=False, max_colwidth=WIDE) if len(found) else empty)


def _lacking(column: Any) -> bool:
    """Whether it has whole numbers, and rows without one, for which pandas makes fractions of all: a program that reads 7 stops at 7.0."""
    return column.dtype.kind == "f" and bool(column.isna().any()) and bool((column.dropna() % 1 == 0).all())


def _short(text: str) -> str:
    """Without its middle if it is long: what tells paths apart stands at their ends."""
    return text if len(text) <= WIDE else f"{text[: WIDE // 3]}…{text[len(text) + WIDE // 3 + 1 - WIDE :]}"


@contextmanager
def spark_of(master: str | None, conf: Mapping[str, object] | None = None) -> Iterator[Any]:
    """A Spark of its own for a command, stopped at its end."""
    spark = quire.session(conf, master=master)
    try:
        yield spark
    finally:
        spark.stop()
