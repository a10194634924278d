"""`quire committer lab`: real jobs, real faults, and what readers saw of them."""

from __future__ import annotations

from typing import Any

import click

import quire
from quire.cli.show import QUIET, escaped
from quire.committers import lab as labs
from quire.errors import UsageError, scrub


@click.command("lab")
@click.option("--committers", help=f"Some of {', '.join(labs.COMMITTERS)}, separated by commas; default: all.")
@click.option("--faults", help=f"Some of {', '.join(labs.FAULTS)}; default: all.")
@click.option("--store", help="An empty destination; default: a new local directory.")
@click.option(
    "--option", "options", multiple=True, metavar="NAME=VALUE",
    help="Of the store, as for s3fs or adlfs (again for more); a secret as NAME=env:VARIABLE.",
)  # fmt: skip
@click.option("--jars", type=click.Path(exists=True), help="A directory of jars that Spark's jobs need: hadoop-aws, hadoop-azure, …")
@click.option("--save", type=click.Path(dir_okay=False), help="Write the results there, as JSON.")
@click.option("--example", is_flag=True, help="Run nothing: show what was measured when this quire was made.")
@click.option("--details", is_flag=True, help="Also the counts of each fault.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
@QUIET
def LAB(example: bool, details: bool, as_json: bool, quiet: bool, **given: Any) -> None:  # noqa: N802  # as the lists of commands beside it
    """Try committers with faults on this machine, and say which guarantees hold."""
    if not example:
        committers, faults = (_names(given.pop(name)) for name in ("committers", "faults"))
        found = labs.run(committers, faults, storage_options=_options(given.pop("options")), progress=not quiet, **given)
    else:
        found = labs.Matrix.example()
        if given["save"]:
            found.save(given["save"])
    if as_json:
        click.echo("\n".join(map(escaped, found.json.splitlines())))
        return
    click.echo(str(found))
    if details:
        for row in found.rows:
            said = {key: value for key, value in vars(row).items() if value not in (None, "", {})}
            click.echo(scrub(", ".join(f"{key}={value}" for key, value in said.items()), 1000))


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _options(given: tuple[str, ...]) -> dict[str, Any] | None:
    if wrong := [one for one in given if not one.partition("=")[0] or "=" not in one]:
        raise UsageError(f"--option takes NAME=VALUE, as --option key=…: number {given.index(wrong[0]) + 1} has no name, or no '='.")
    parts = (one.partition("=")[::2] for one in given)
    return {name: quire.secret(value.removeprefix("env:")) if value.startswith("env:") else value for name, value in parts} or None
