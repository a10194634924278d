"""The archived timeline of layout 2: which files hold the instants that have left the timeline.

Source: Hudi's `LSMTimeline`, of table versions 8 and 9, in `.hoodie/timeline/history/`:

    _version_                                 the number of the newest manifest; a writer deletes it and puts it again
    manifest_<n>                              JSON: the files that count
    <instant>_<instant>_<layer>.parquet       a row for each instant between these two; a layer is merged from files of the one below it
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.errors import FormatError
from quire.table.format import names

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = f"{names.TIMELINE}/history"
VERSION = f"{FOLDER}/_version_"
INSTANT, ENDED, ACTION = "instantTime", "completionTime", "action"
COLUMNS = [INSTANT, ENDED, ACTION]
_MANIFEST = re.compile(r"manifest_(\d{1,9})", re.ASCII)
_TIME = re.compile(r"\d{17}|\d{14}", re.ASCII)
_FILE = re.compile(r"(\d{17}|\d{14})_(\d{17}|\d{14})_\d\.parquet", re.ASCII)


@dataclass(frozen=True)
class HistoryFile:
    """A file of the archived timeline: its name below the table, and the first and the last instant in it."""

    name: str
    first: str
    last: str


def manifest(number: int) -> str:
    """The name of a manifest below the table."""
    return f"{FOLDER}/manifest_{number}"


def number_in(version: bytes | None) -> int | None:
    """The number of the newest manifest; None where the file is not there, or is just being written."""
    text = (version or b"").strip()
    return int(text) if text.isdigit() and len(text) <= 9 else None


def newest(there: Iterable[str]) -> int | None:
    """The greatest number of the manifests among some names; None: there is none."""
    found = (_MANIFEST.fullmatch(each.rpartition("/")[2]) for each in there)
    return max((int(each[1]) for each in found if each), default=None)


def files(data: bytes, where: str) -> tuple[HistoryFile, ...]:
    """The files that a manifest names; FormatError where it is damaged."""
    try:
        listed = [str(each["fileName"]) for each in json.loads(data)["files"]]
        found = [(each, _FILE.fullmatch(each)) for each in listed]
        if wrong := next((each for each, parts in found if parts is None), None):
            raise ValueError(f"it names {wrong[:80]!r}")
    except (ValueError, KeyError, TypeError, RecursionError) as e:
        raise FormatError(f"{where} is damaged ({type(e).__name__}: {str(e)[:200]}). Restore it from a copy.") from e
    return tuple(HistoryFile(f"{FOLDER}/{each}", parts[1], parts[2]) for each, parts in found if parts)


def completed(rows: pa.Table) -> list[tuple[str, str]]:
    """The instant of each write in the rows of a file, and when it completed; ValueError where one lacks its instant.

    A savepoint has the instant of the write that it holds, and a time of its own, so other actions are left out.
    """
    found = list[tuple[str, str]]()
    for row in rows.select(COLUMNS).to_pylist():
        time = row[INSTANT]
        if not isinstance(time, str) or not _TIME.fullmatch(time):
            raise ValueError(f"it has a row of the instant {str(time)[:80]!r}")
        if row[ACTION] in names.WRITES:
            found.append((time, str(row[ENDED] or time)))  # as for Hudi: where nothing says it, it completed at once
    return found
