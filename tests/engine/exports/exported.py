"""The formats of exports, each with the options of a store of no known address, and what its readers would find: name → its size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import delta_log
import iceberg_table
from test_retire import History, rows

from quire import Ledger

LAKE = "s3://lake/out"
OPTIONS: dict[str, dict[str, Any]] = {"delta": {}, "iceberg": {"location": LAKE}, "symlinks": {"location": LAKE}}


def offered(format: str, there: Mapping[str, bytes]) -> dict[str, int | None]:
    """The data files that an export offers; AssertionError where it is broken."""
    if format == "delta":
        return {name: said["size"] for name, said in delta_log.offered(there).items()}
    if format == "iceberg":
        return {name: said["file_size_in_bytes"] for name, said in iceberg_table.offered(there).items()}
    lines = [
        line
        for name, data in there.items()
        if name.startswith("_symlinks/") and name.endswith("/manifest")
        for line in data.decode().splitlines()
    ]
    assert len(set(lines)) == len(lines), "a file is named twice"
    assert all(line.startswith(f"{LAKE}/") for line in lines)
    return dict.fromkeys(line.removeprefix(f"{LAKE}/") for line in lines)


def play(history: History, format: str, contents: Callable[[Path], list[str]], steps: list[str], seed: int) -> None:
    """A history of superseded files, with an export that each call keeps in step."""
    for i, step in enumerate(["run", *steps]):
        getattr(history, step)(i, (seed + i) % 5)
        if i == 0:
            Ledger(history.dest).export(format)
        if step != "killed" or history.pinned is None:
            assert contents(history.dest) == rows(history.dest) == sorted(history.gathered.values()), f"after {step}"
