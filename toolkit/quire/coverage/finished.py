"""Files whose source was deleted by a purge: their version is finished, and what a later file of that name holds is new.

A purge writes no record again. A commit of its own says of rows that are there what their state is now: `purging` before a source is
deleted, `purged` when it is gone. Path, version, data file and place stay, so whatever looks for a record finds it where it was.

`purging` means that a call may be deleting the file. Should it end there, the file is still there as it was (then it is done), or gone,
or something else has its name; `purged` is final. Rows in both states are never uncovered by a later version of the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

PURGING, PURGED = "purging", "purged"
FINISHED = (PURGING, PURGED)
GATHERED = ("done", *FINISHED)  # a record of them lies in the destination, unless there was nothing to write
KEY = ("path", "version", "start", "length")
# What a commit says of rows that are there. `data_file` (which it was verified in) and `reason` are "" where a row has none.
SAID = pa.schema(
    [
        ("path", pa.string()), ("version", pa.string()), ("start", pa.int64()), ("length", pa.int64()), ("state", pa.string()),
        ("reason", pa.string()), ("data_file", pa.string()), ("fingerprint", pa.uint64()),
    ]
)  # fmt: skip
DELETING = "its source is deleted since version "  # and the version that the purge was planned from
DECODED = "decoded from "  # and the codec of the file, of whose stored bytes the record is not
UNENDED = "its last line had no newline"  # of a member of an archive: its record has one


def gathered(rows: pa.Table) -> pa.ChunkedArray:
    """Which rows stand for what was gathered here, whether its source is still there or not (column state)."""
    return pc.is_in(rows.column("state"), pa.array(GATHERED))


def ordinal(row: dict[str, Any]) -> int:
    """The purge that a row belongs to, by the version that it was planned from; -1: none."""
    number = (row["reason"] or "").removeprefix(DELETING).partition(";")[0]
    return int(number) if row["state"] in FINISHED and number.isascii() and number.isdigit() else -1


def how_made(row: dict[str, Any]) -> str:
    """How the record of a gathered row was made, as `reason` says it, whatever a purge says there of its source."""
    before, _, after = (row["reason"] or "").partition("; ")
    return "" if row["state"] not in GATHERED else after if before.startswith(DELETING) else row["reason"] or ""


def how_decoded(row: dict[str, Any]) -> str:
    """How the record of a gathered row came out of its file, as `reason` says it; empty: it holds the file's own bytes, or of them."""
    found = how_made(row)
    return found if found.startswith(DECODED) else ""


def generations(rows: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The rows of a path by the files that have had its name: those that were purged, in their order, and the one that is there now."""
    found = dict[float, list[dict[str, Any]]]()
    for row in rows:
        found.setdefault(ordinal(row) if row["state"] in FINISHED else float("inf"), []).append(row)
    return [sorted(mine, key=lambda row: (row["start"], row["length"])) for _, mine in sorted(found.items())]


def keys(rows: pa.Table) -> pa.Array:
    """One text a row, by which rows are compared."""
    found = pc.binary_join_element_wise(*(rows.column(name).cast(pa.string()) for name in KEY), "\0")
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def restated(rows: pa.Table, said: pa.Table) -> pa.Table:
    """Rows with the state, reason and fingerprint (where they have such columns) that a later commit says of them."""
    at = pc.index_in(keys(rows), keys(said))
    hit = pc.is_valid(at)
    if not pc.any(hit).as_py():
        return rows
    for name in ("state", "reason", "fingerprint"):
        if name in rows.schema.names:
            new = pc.if_else(hit, said.column(name).combine_chunks().take(at), rows.column(name).combine_chunks())
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), new)
    return rows
