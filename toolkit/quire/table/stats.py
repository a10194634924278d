"""The health of a table in numbers: sizes, small files, logs, skew, what a clean could take, and what its commits cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from quire import display
from quire.arguments import format_size
from quire.errors import printable
from quire.table import file_groups, retention, settings
from quire.table.overview import totals
from quire.table.retention import Keep
from quire.table.write.targets import SMALL

if TYPE_CHECKING:
    import pandas as pd

    from quire.storage import Store
    from quire.table.timeline import Timeline

_COLUMNS = ["partition", "rows", "files", "bytes", "small_files", "logs", "log_bytes", "times_mean"]
_LATEST = "9" * 17


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class TableStats(display.Shown):
    """The health of a table now.

    dest                 the table
    files, bytes         base files that count, and their bytes
    small_files          of them below the size up to which new rows fill them
    logs, log_bytes      logs that count: `Table.compact` takes them into base files
    superseded           slices that later ones have superseded: readers of older instants need them, until `Table.clean` deletes them
    superseded_bytes     of their files
    rows                 of the table; None where a commit that knows it has been archived, or logs change a base file
    commits, written     completed writes on the timeline, and bytes of the base files and logs that they have written
    changed              rows that they have inserted, updated and deleted
    partitions           a pandas DataFrame: partition, rows, files, bytes, small_files, logs, log_bytes, and times_mean: its bytes in
                         those of the mean partition

        stats = table.stats()  # a quire.TableStats
        stats.partitions.plot.bar("partition", "bytes"); stats.write_amplification, stats.log_ratio
    """

    dest: str
    files: int
    bytes: int
    small_files: int
    logs: int
    log_bytes: int
    superseded: int
    superseded_bytes: int
    rows: int | None
    commits: int
    written: int
    changed: int
    partitions: pd.DataFrame

    @property
    def log_ratio(self) -> float:
        """Bytes of logs by bytes of base files: what readers have to merge."""
        return self.log_bytes / self.bytes if self.bytes else 0.0

    @property
    def write_amplification(self) -> float | None:
        """Bytes written by those of the rows that were changed, as large as a row of the base files is; None: nobody knows.

        Commits that have left the timeline do not count.
        """
        own = self.changed * self.bytes / self.rows if self.rows else 0
        return self.written / own if own else None

    def as_dict(self) -> dict[str, Any]:
        """Returns it as JSON takes it, partitions as a list of dictionaries.

            json.dumps(table.stats().as_dict())

        A number that nobody knows is None.
        """
        shown = {**super().as_dict(), "log_ratio": self.log_ratio, "write_amplification": self.write_amplification}
        return shown | {"partitions": [_plain(row) for row in self.partitions.to_dict("records")]}

    def __repr__(self) -> str:
        rows = "not known" if self.rows is None else f"{self.rows:,}"
        return f"TableStats(rows={rows}, files={self.files:,}, small_files={self.small_files:,}, logs={self.logs:,}, bytes={self.bytes:,})"

    def _facts(self) -> Mapping[str, object]:
        amplification = self.write_amplification
        return {
            "rows": "not known" if self.rows is None else f"{self.rows:,}",
            "base files": f"{self.files:,} ({format_size(self.bytes)}), {self.small_files:,} small",
            "logs": f"{self.logs:,} ({format_size(self.log_bytes)}), {self.log_ratio:.0%} of the base files",
            "superseded": f"{self.superseded:,} slices ({format_size(self.superseded_bytes)})",
            "commits": f"{self.commits:,}, which wrote {format_size(self.written)} for {self.changed:,} changed rows",
            "write amplification": "not known" if amplification is None else f"{amplification:.1f} ×",
            "partitions": f"{len(self.partitions):,}",
        }

    def _note(self) -> str:
        if len(self.partitions) < 2:
            return ""
        heaviest = self.partitions.loc[self.partitions["times_mean"].idxmax()]
        return printable(f"The heaviest partition is {heaviest['partition']!r}: {heaviest['times_mean']:.1f} times the mean.")


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    import pandas as pd

    return {str(name): None if pd.isna(value) else value for name, value in row.items()}


def stats(store: Store, line: Timeline, dest: str) -> TableStats:
    """See `Table.stats`: by listings and commits alone, no base file is read."""
    import pandas as pd

    slices = file_groups.newest(store, line, logs=True)
    small = SMALL * settings.read(store).target
    counts, written, changed = totals(line, slices, line.completed)
    parts = dict[str, dict[str, Any]]()
    for one, rows in zip(slices, counts, strict=True):
        part = parts.setdefault(one.partition, dict.fromkeys(_COLUMNS, 0) | {"partition": one.partition})
        part["rows"] = None if rows is None or part["rows"] is None else part["rows"] + rows
        part["files"] += bool(one.name)
        part["bytes"] += one.size
        part["small_files"] += bool(one.name) and one.size < small
        part["logs"] += len(one.logs)
        part["log_bytes"] += one.logged
    mean = sum(part["bytes"] + part["log_bytes"] for part in parts.values()) / len(parts) if parts else 0
    for part in parts.values():
        part["times_mean"] = (part["bytes"] + part["log_bytes"]) / mean if mean else 1.0
    frame = pd.DataFrame(list(parts.values()), columns=_COLUMNS).astype({"rows": "Int64", "times_mean": "float64"})
    old = retention.dead(store, line, Keep(since=_LATEST), ())
    total = {name: int(frame[name].sum()) for name in ("files", "bytes", "small_files", "logs", "log_bytes")}
    known = None if None in counts else sum(filter(None, counts))
    return TableStats(
        dest, **total, superseded=old.slices, superseded_bytes=old.size, rows=known, commits=len(line.completed), written=written,
        changed=changed, partitions=frame,
    )  # fmt: skip
