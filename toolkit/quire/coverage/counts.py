"""How much a row of the ledger counts: of these sums are the totals of a destination made, when rows come and when they leave.

Rows of files count what was gathered of them, and a file counts where its first byte was: gathered, or in a record that was quarantined
while the rest was read. A file that is quarantined as a whole does not count, nor does one whose first range is. A partition of a topic is
not a file: there all offsets count that were seen to, also those that are quarantined or were lost, but for those that another loader has
done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.entries import Commit, Task
from quire.coverage.finished import GATHERED

_TOPIC = "kafka://"  # a row's path begins with it where its numbers are offsets
COUNTED = (*GATHERED, "mark")  # the states of a file's rows that count as gathered, here or elsewhere


class Counts(NamedTuple):
    """Files, bytes (of topics: offsets), rows in quarantine, and last lines that are held back."""

    files: int
    bytes: int
    quarantined: int
    held: int


def counts(rows: Iterable[Mapping[str, Any]]) -> Counts:
    """The total of rows (path, start, length, state, records)."""
    files = size = quarantined = held = 0
    for row in rows:
        state, topic = row["state"], row["path"].startswith(_TOPIC)
        files += begins(row["path"], row["start"]) and (state in COUNTED or (state == "quarantined" and row["records"] == 1))
        if state != "mark" if topic else state in COUNTED:
            size += row["length"]
        quarantined += state == "quarantined"
        held += state == "held"
    return Counts(files, size, quarantined, held)


def begins(path: str, start: int) -> bool:
    """Whether a file's first byte is in a row that starts here."""
    return start == 0 and not path.startswith(_TOPIC)


def batch(path: str, start: int, length: int) -> int:
    """A number that the rows of one record have, and no other's of its path, where its parts lie in several data files.

    Rows of topics begin together, rows of files end together.
    """
    return start if path.startswith(_TOPIC) else max(1, start + length)


def marked(rows: pa.Table) -> Counts:
    """The same, of very many rows that are all in state `mark` (columns path, start, length)."""
    rows = rows.filter(pc.invert(pc.starts_with(rows.column("path"), _TOPIC)))
    return Counts(pc.sum(pc.equal(rows.column("start"), 0)).as_py() or 0, pc.sum(rows.column("length")).as_py() or 0, 0, 0)


def files_out(commit: Commit, tasks: Iterable[Task]) -> int:
    """Files that leave by a commit: by a `forget` in whatever state they are, by another one those that it replaces.

    A retry swaps what is in quarantine: nothing of it leaves.
    """
    if commit.verb != "forget":
        return sum(t.stats.files_out for t in tasks)
    return sum(begins(u.path, start) for t in tasks for u in t.coverage.uncovers for start, _ in u.ranges)
