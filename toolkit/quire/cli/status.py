"""`quire status`: whether destinations are well, a line for each, and the same for Prometheus."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

import quire
from quire.arguments import seconds, whole
from quire.cli.show import AS_JSON, KAFKA_OPTION, KAFKA_SECRET, as_line, kafka_options
from quire.errors import QuireError, UsageError, hide, printable, scrub
from quire.ledger import prometheus
from quire.storage import canonical


@click.command()
@click.argument("dest", nargs=-1, required=True)
@click.option("--source", multiple=True, help="Of one DEST: its files, or kafka://host:9092/topic: also what waits there (again for more).")
@click.option("--include", multiple=True, help="Of the source, only files that match this glob (again for more).")
@click.option("--exclude", multiple=True, help="Not the files that match this glob (again for more).")
@click.option("--hidden", is_flag=True, help="Also names that start with _ or a dot.")
@click.option("--max-age", help="What is at the source may wait for so long, or else the last commit be so old: '1 h'.")
@click.option("--max-attempts", default=5, show_default=True, help="As its runs have it: what was read so often is given up.")
@click.option("--prometheus", "for_prometheus", is_flag=True, help="In Prometheus' text format.")
@click.option("--output", type=click.Path(dir_okay=False), help="With --prometheus: into this file, which appears whole.")
@KAFKA_OPTION
@KAFKA_SECRET
@AS_JSON
def status(
    dest: tuple[str, ...], source: tuple[str, ...], for_prometheus: bool, output: str | None, as_json: bool, options: tuple[str, ...],
    secrets: tuple[str, ...], **given: Any,
) -> None:  # fmt: skip
    """Say in a line for each DEST whether it is well, and what to do.

    Exit codes: 0 all are well, 1 something is to be done, 2 wrong use, 3 a store or a broker did not answer. All are looked at, whatever
    is wrong with one of them.
    """
    if source and len(dest) > 1:
        raise UsageError(f"--source is of one destination, and {len(dest)} are given. Call quire status for each of them.")
    if for_prometheus and as_json:
        raise UsageError("--prometheus and --json are two forms: say one of them.")
    if output is not None and not for_prometheus:
        raise UsageError("--output is for --prometheus. Say both, or send the lines elsewhere (> FILE).")
    _check(given, source)
    asked = kafka_options(options, secrets)
    chosen: dict[str, Any] = {name: (list(value) or None) if isinstance(value, tuple) else value for name, value in given.items()}
    at = None if not source else source[0] if len(source) == 1 else list(source)
    found, told, code = dict[str, quire.Status | None](), list[dict[str, Any]](), 0
    for name in dest:
        try:
            seen = found[name] = quire.status(name, at, **chosen, source_options=asked)
        except QuireError as e:
            found[_known_as(name)], code = None, max(code, e.exit_code)
            why = scrub(str(e), 1000)
            told.append({"dest": hide(name), "ok": False, "error": why})
            if not as_json:
                click.echo(printable(f"error: {hide(name)}: {why}"), err=True)
        else:
            code = max(code, int(not seen.ok))
            told.append(seen.as_dict())
            if not as_json and not for_prometheus:
                click.echo(seen.line)
    if as_json:
        click.echo(as_line(told))
    if for_prometheus:
        _write(prometheus.text(found), output)
    sys.stdout.flush()
    sys.exit(code)


def _check(given: dict[str, Any], source: tuple[str, ...]) -> None:
    """Refuse wrong words before a look: they are the call's, and no destination is out of reach for them."""
    if given["max_age"] is not None:
        seconds(given["max_age"], "max_age")
    whole(given["max_attempts"], "max_attempts", 1)
    if not source and (given["include"] or given["exclude"] or given["hidden"]):
        raise UsageError("--include, --exclude and --hidden choose from a source, and none is given. Say --source.")


def _known_as(name: str) -> str:
    """The spelling that a look which goes well gives a destination: a metric is of the same one whether or not its store answers."""
    with suppress(QuireError):
        return canonical(name)
    return name


def _write(text: str, output: str | None) -> None:
    """Print it, or let a file hold it: whoever reads that file sees the one before or all of this one."""
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        file = tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=Path(output).parent, prefix=".quire-", delete=False)  # noqa: SIM115
        try:
            with file:
                file.write(text)
            os.chmod(file.name, 0o644)  # the collector is another user
            os.replace(file.name, output)
        except OSError:
            with suppress(OSError):
                os.unlink(file.name)
            raise
    except OSError as e:
        raise UsageError(f"cannot write {output}: {e.strerror}. Give a file in a directory that is there.") from e
