"""`quire committer …`: advice about committers for users' own Spark jobs, and what such jobs have left."""

from __future__ import annotations

import sys
from typing import Any

import click

from quire.cli.show import AS_JSON, MASTER, show, spark_of
from quire.committers import advise, inspect_success, sweep
from quire.committers.advice.checking import FORMATS
from quire.committers.advice.knowledge import NEEDS

HIERARCHICAL = click.option(
    "--hierarchical/--flat", default=None, help="Of an Azure account: whether it has a hierarchical namespace; default: not known."
)


@click.command("advise")
@click.argument("url")
@click.argument("needs", nargs=-1)
@HIERARCHICAL
@click.option("--defaults", is_flag=True, help="Print the lines for spark-defaults.conf alone.")
@click.option("--mapreduce", is_flag=True, help="Print the options for MapReduce jobs alone (read, not measured).")
@AS_JSON
def advise_command(
    url: str, needs: tuple[str, ...], hierarchical: bool | None, defaults: bool, mapreduce: bool, as_json: bool
) -> None:  # fmt: skip
    """Say which committer Spark jobs should use that write below URL and have NEEDS…, with the settings to paste."""
    found = advise(url, needs, hierarchical=hierarchical)
    if defaults or mapreduce:
        click.echo(found.defaults * defaults + found.mapreduce_options * mapreduce, nl=False)
    else:
        show(found, as_json)


advise_command.help = f"{advise_command.help}\n\nNEEDS are words: {', '.join(NEEDS)}."


@click.command("check")
@click.argument("url")
@click.option("--format", "format_", default="parquet", show_default=True, help=f"{', '.join(FORMATS)}.")
@HIERARCHICAL
@click.option("--conf", multiple=True, help="A setting of Spark's, key=value (again for more); else those of spark-defaults.conf count.")
@MASTER
@AS_JSON
def check_command(url: str, format_: str, hierarchical: bool | None, conf: tuple[str, ...], master: str | None, as_json: bool) -> None:
    """Start a session as a job would, and say which committer it would use at URL and what is wrong; exit code 2 if anything is."""
    with _session(conf, master) as spark:
        found = advise.check(spark, url, format_, hierarchical=hierarchical)
    show(found, as_json)
    if not found.ok:
        sys.exit(2)


def _session(conf: tuple[str, ...], master: str | None) -> Any:
    if not conf:
        return spark_of(master)
    wrong = next((number for number, pair in enumerate(conf, 1) if "=" not in pair), None)
    if wrong is not None:  # which may be a secret
        raise click.BadParameter(f"number {wrong} is not a setting: write key=value.", param_hint="--conf")
    return spark_of(master, dict(pair.split("=", 1) for pair in conf))


@click.command("inspect")
@click.argument("url")
@AS_JSON
def inspect_command(url: str, as_json: bool) -> None:
    """Say which committer wrote below URL, what it has left, and what is there twice."""
    show(inspect_success(url), as_json)


@click.command("sweep")
@click.argument("url")
@click.option("--yes", is_flag=True, help="Remove; else it is only said what would go.")
@click.option("--min-age", default="1 h", show_default=True, help="Refuse where anything changed within this time; 0: no job runs.")
@AS_JSON
def sweep_command(url: str, yes: bool, min_age: str, as_json: bool) -> None:
    """Remove what dead Spark jobs have left below URL: _temporary, staging and magic directories, and open uploads."""
    show(sweep(url, not yes, min_age=min_age), as_json)


COMMITTER = (advise_command, check_command, inspect_command, sweep_command)
