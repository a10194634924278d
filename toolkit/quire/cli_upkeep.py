"""`quire ledger forget|retry|compact|expire|pins|unpin|files|coverage`: what changes a ledger, and what there is to change."""

from __future__ import annotations

from typing import Any

import click

import quire
from quire.cli_show import AS_JSON, MASTER, QUIET, as_line, frame, show, spark_of

__all__ = ["UPKEEP"]


@click.command()
@click.argument("dest")
@click.argument("paths", nargs=-1)
@click.option("--where", help="Instead of paths: a condition in SQL about the ledger's columns.")
@click.option("--file", help="Instead of paths: a data file, lost or damaged.")
@click.option("--reason", default="", help="Stands in the log.")
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
@click.option("--where", help="A condition in SQL about the ledger's columns: \"reason like '%max_file_size%'\".")
@click.option("--max-attempts", default=5, show_default=True, help="Files that were read so often are left alone.")
@click.option("--max-file-size", default="256 MiB", show_default=True, help="Larger files stay set aside.")
@MASTER
@AS_JSON
@QUIET
def retry(dest: str, master: str | None, as_json: bool, quiet: bool, **given: Any) -> None:
    """Read what was set aside in DEST once more, and nothing else."""
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        show(ledger.retry(spark=spark, progress=not quiet, **given), as_json)


@click.command()
@click.argument("dest")
@click.option("--target-size", help="Bytes of a data file; default: that of the last run.")
@MASTER
@AS_JSON
@QUIET
def compact(dest: str, target_size: str | None, master: str | None, as_json: bool, quiet: bool) -> None:
    """Merge the small data files of many commits; the old ones stay until expire."""
    ledger = quire.Ledger(dest)
    with spark_of(master) as spark:
        show(ledger.compact(target_size, spark=spark, progress=not quiet), as_json)


@click.command()
@click.argument("dest")
@click.option("--below", type=int, help="Versions before this one can no longer be read; default: the last one.")
@AS_JSON
def expire(dest: str, below: int | None, as_json: bool) -> None:
    """Delete the data files that no readable version needs."""
    show(quire.Ledger(dest).expire(below), as_json)


@click.command()
@click.argument("dest")
@AS_JSON
def pins(dest: str, as_json: bool) -> None:
    """The versions that readers keep readable, by the ids of their pins."""
    found = quire.Ledger(dest).pins()
    click.echo(as_line(found) if as_json else "\n".join(f"{pin}  version {version}" for pin, version in found.items()) or "no pin is open")


@click.command()
@click.argument("dest")
@click.argument("pin")
@AS_JSON
def unpin(dest: str, pin: str, as_json: bool) -> None:
    """End a pin that a dead reader has left."""
    quire.Ledger(dest).unpin(pin)
    click.echo(as_line({"unpinned": pin}) if as_json else f"{pin} is no pin any more")


@click.command()
@click.argument("dest")
@click.option("--as-of", type=int, help="At this version.")
@AS_JSON
def files(dest: str, as_of: int | None, as_json: bool) -> None:
    """The data files that count."""
    ledger = quire.Ledger(dest)
    frame((ledger if as_of is None else ledger.as_of(as_of)).files(), as_json, "no data file")


@click.command()
@click.argument("dest")
@click.argument("path")
@AS_JSON
def coverage(dest: str, path: str, as_json: bool) -> None:
    """Which bytes of the source file PATH are accounted for."""
    frame(quire.Ledger(dest).coverage(path), as_json, "nothing of it is covered")


UPKEEP = (forget, retry, compact, expire, pins, unpin, files, coverage)
