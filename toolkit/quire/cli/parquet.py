"""How Parquet files are written, as a shell says it: `--parquet-options row_group_size=100_000 --parquet-options bloom_filters=a,b`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from quire.errors import UsageError, about, quoted
from quire.formats.parquet_options import WORDS

PARQUET = click.option(
    "--parquet-options", multiple=True,
    help="row_group_size=ROWS or SIZE, statistics=true, false or COLUMN,COLUMN, bloom_filters=COLUMN,COLUMN (again for more).",
)  # fmt: skip
_BOTH = {"true": True, "false": False}


def parquet_options(given: Iterable[str]) -> dict[str, Any] | None:
    """The words as a dictionary; None where there is none."""
    found = dict[str, Any]()
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name not in WORDS:
            with about("parquet_options"):
                raise UsageError(f"--parquet-options takes {', '.join(f'{word}=…' for word in WORDS)}, and not {quoted(text)}.")
        columns = [column for column in value.split(",") if column]
        found[name] = value if name == "row_group_size" else _BOTH.get(value.lower(), columns) if name == "statistics" else columns
    return found or None
