"""`quire ledger rows|reasons|commits`: quick looks into a ledger, without Spark and a page at a time."""

from __future__ import annotations

import click

import quire
from quire.cli.show import AS_JSON, frame
from quire.ledger.browse import STATES

__all__ = ["PAGES"]


@click.command()
@click.argument("dest")
@click.argument("path", default="")
@click.option("--state", type=click.Choice(STATES), help="Only rows in this state; default: any.")
@click.option("--offset", default=0, show_default=True, type=click.IntRange(0), help="Rows before the page.")
@click.option("--limit", default=100, show_default=True, type=click.IntRange(1), help="Rows of the page.")
@AS_JSON
def rows(dest: str, path: str, state: str | None, offset: int, limit: int, as_json: bool) -> None:
    """A page of the ledger's rows, the newest commits first; PATH: how their paths begin, or any part of them."""
    page = quire.Ledger(dest).rows(path, state, offset=offset, limit=limit)
    frame(page.table, as_json, page.words)
    if not as_json and len(page.table):
        click.echo(page.words)


@click.command()
@click.argument("dest")
@AS_JSON
def reasons(dest: str, as_json: bool) -> None:
    """Why files were set aside, how many for each reason, and one of them."""
    frame(quire.Ledger(dest).reasons(), as_json, "nothing is set aside")


@click.command()
@click.argument("dest")
@click.option("--last", type=click.IntRange(1), help="Only so many at the end.")
@AS_JSON
def commits(dest: str, last: int | None, as_json: bool) -> None:
    """What each commit brought and took, and how many data files there were after it."""
    frame(quire.Ledger(dest).commits(last), as_json, "no commit")


PAGES = (rows, reasons, commits)
