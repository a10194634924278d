"""`quire ledger rows|reasons|commits`: quick looks into a ledger, without Spark and a page at a time."""

from __future__ import annotations

import difflib
import shlex

import click

import quire
from quire.cli.show import AS_JSON, frame
from quire.errors import UsageError, printable
from quire.ledger.browse import STATES

LOOKED_AT = 1_000  # rows among which a near name is looked for


@click.command()
@click.argument("dest")
@click.argument("path", default="")
@click.option("--state", type=click.Choice(STATES), help="Only rows in this state; default: any.")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0), help="Rows before the page.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="Rows of the page.")
@AS_JSON
def rows(dest: str, path: str, state: str | None, offset: int, limit: int, as_json: bool) -> None:
    """A page of the ledger's rows, the newest commits first; PATH: how their paths begin, or any part of them.

    A PATH with a slash in it that no row has is an error, which names the nearest one.
    """
    opened = quire.Ledger(dest)
    page = opened.rows(path, state, offset=offset, limit=limit)
    if "/" in path and page.complete and not page.total and (state is None or not opened.rows(path, limit=1).total):
        raise UsageError(_absent(opened, dest, path))
    frame(page.table, as_json, page.words)
    if not as_json and len(page.table):
        click.echo(page.words)


def _absent(opened: quire.Ledger, dest: str, path: str) -> str:
    """The line for a path that no row has, with the nearest one among the newest rows."""
    paths = set(opened.rows(limit=LOOKED_AT).table["path"])
    paths |= {path.rpartition("/")[0] for path in paths}
    parts = path.strip("/").count("/") + 1  # what was given may be the end of a path, or a part of it
    known = {"/".join(name.split("/")[-parts:]): name for name in sorted(paths, key=len)}
    near = difflib.get_close_matches(path.strip("/").rpartition("://")[2], known, n=1)
    hint = f"Did you mean {known[near[0]]}?" if near else f"Look at: quire ledger rows {shlex.quote(dest)}"
    return printable(f"the ledger of {dest} holds no path with {path!r} in it. {hint}")


@click.command()
@click.argument("dest")
@AS_JSON
def reasons(dest: str, as_json: bool) -> None:
    """Why files are quarantined, how many for each reason, and one of them."""
    frame(quire.Ledger(dest).inspect.reasons(), as_json, "nothing is quarantined")


@click.command()
@click.argument("dest")
@click.option("--last", type=click.IntRange(1), help="Only so many at the end.")
@AS_JSON
def commits(dest: str, last: int | None, as_json: bool) -> None:
    """Show each commit's added and removed files and rows, and the number of data files after it."""
    frame(quire.Ledger(dest).inspect.commits(last=last), as_json, "no commit")


PAGES = (rows, reasons, commits)
