"""The history of a log: one row an entry, as checkpoints and archives keep it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from quire.commit.entries import Abort, Commit, Entry, Expired, Export, Foreign, Pin, Published, Retired, Settings, Unpin

HISTORY = pa.schema(
    [
        pa.field(name, pa.string() if name in ("kind", "verb", "job", "time", "note") else pa.int64(), False)
        for name in ("version", "kind", "verb", "job", "time", "tasks", "files", "bytes", "data_files", "quarantined", "deferred", "note")
    ]
)


def history_row(number: int, entry: Entry) -> tuple[Any, ...]:
    """An entry as a row of `HISTORY`."""
    tasks = entry.tasks if isinstance(entry, Commit) else ()
    note = entry.why if isinstance(entry, Abort | Commit) else ""
    if isinstance(entry, Commit) and entry.spec.reduce and entry.whole:
        note = f"through {entry.spec.reduce}" + (f": {note}" if note else "")
    if isinstance(entry, Published) and entry.lost:
        note = f"lost tasks: {', '.join(map(str, entry.lost))}"
    if isinstance(entry, Expired):
        note = f"versions before {entry.below} can no longer be read"
        note += f"; files superseded up to {entry.away} leave the directory" if entry.away else ""
    if isinstance(entry, Retired):
        note = f"files superseded up to {entry.away} have left the directory"
    if isinstance(entry, Settings):
        note = f"keep_versions={entry.keep.versions if entry.keep.seconds is None else f'{entry.keep.seconds:g} s'}"
    if isinstance(entry, Export):
        note = f"{entry.name} {f'offers version {entry.version}' if entry.version else 'is wanted' if entry.version == 0 else 'has ended'}"
    if isinstance(entry, Foreign):
        found = [f"instants of other programs, up to {max(entry.instants)}"] if entry.instants else []
        found += [f"rolled back: {job}" for job in entry.undone]
        note = "; ".join([*found, *(f"updates of {lost.lost} lost by {lost.by}" for lost in entry.lost)])
    if isinstance(entry, Pin | Unpin):
        note = f"version {entry.version}{pinned(entry.id)}"
    return (
        number, type(entry).__name__.lower(), getattr(entry, "verb", ""), getattr(entry, "job", ""), entry.time, len(tasks),
        sum(t.stats.files_in for t in tasks), sum(t.stats.bytes_in for t in tasks), sum(len(t.data_files) for t in tasks),
        sum(t.stats.quarantined for t in tasks),
        sum(len(t.coverage.left) for t in tasks) + len(getattr(entry, "left", ())), note,
    )  # fmt: skip


def pinned(pin: str) -> str:
    """The end of the note of a pin."""
    return f", pin {pin}"
