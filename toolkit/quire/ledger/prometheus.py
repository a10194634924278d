"""The metrics of destinations in Prometheus' text format, version 0.0.4, as node_exporter's textfile collector takes it.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/. Times are seconds since 1970, so a file that nobody writes any more
shows its age, and a number that nobody knows has no sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from quire.errors import hide, printable
from quire.ledger.status import KINDS, Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_Value = float | int | None


def _at(status: Status, age: float | None) -> float | None:
    return None if age is None else round(datetime.fromisoformat(status.time).timestamp() - age, 3)


# Name → its help, and the number of a status. All are gauges: rows may be forgotten, and a table rolled back.
METRICS: Mapping[str, tuple[str, Callable[[Status], _Value]]] = {
    "quire_ok": ("Whether there is nothing to do at the destination.", lambda s: int(s.ok)),
    "quire_looked_timestamp_seconds": ("When quire status looked at it.", lambda s: _at(s, 0.0)),
    "quire_version": ("The last entry of its log.", lambda s: s.version),
    "quire_commits": ("Commits that count.", lambda s: s.commits),
    "quire_last_commit_timestamp_seconds": ("The time of the last commit.", lambda s: _at(s, s.last_commit_age)),
    "quire_last_commit_retries": ("How often its tasks tried a store again.", lambda s: s.last_retries),
    "quire_last_commit_task_seconds": ("Seconds of its tasks, together.", lambda s: s.last_seconds),
    "quire_files": ("Files that were gathered (of a table as source, commits passed on).", lambda s: s.files),
    "quire_rows": ("Rows or lines in the data files.", lambda s: s.records),
    "quire_read_bytes": ("Bytes that were read (of topics, offsets).", lambda s: s.bytes_read),
    "quire_data_files": ("Data files that count.", lambda s: s.data_files),
    "quire_data_file_bytes": ("Their bytes.", lambda s: s.bytes_written),
    "quire_small_files": ("Data files below half of the target size.", lambda s: s.small_files),
    "quire_small_file_share": ("Small files by data files, 0 to 1.", lambda s: round(s.small_share, 6)),
    "quire_quarantined": ("Files and records in quarantine.", lambda s: s.quarantined),
    "quire_quarantined_share": ("What is in quarantine by what was read, 0 to 1.", lambda s: round(s.quarantined_share, 6)),
    "quire_quarantined_since_timestamp_seconds": ("When the oldest of it came.", lambda s: _at(s, s.quarantined_age)),
    "quire_given_up": ("Of it, what was read so often that no run tries it again.", lambda s: s.given_up),
    "quire_held_back": ("Last lines without a newline.", lambda s: s.held_back),
    "quire_duplicates": ("Records of topics that were left out, as one of their key was kept.", lambda s: s.duplicates),
    "quire_open_jobs": ("Jobs without an outcome.", lambda s: len(s.open_jobs)),
    "quire_open_job_timestamp_seconds": ("When the oldest of them was planned.", lambda s: _at(s, s.open_job_age)),
    "quire_unpublished_commits": ("Commits that readers do not see whole yet.", lambda s: s.unpublished),
    "quire_unpublished_since_timestamp_seconds": ("The time of the oldest of them.", lambda s: _at(s, s.unpublished_age)),
    "quire_pins": ("Pins of readers that are open.", lambda s: s.pins),
    "quire_pinned_since_timestamp_seconds": ("When the oldest of them began.", lambda s: _at(s, s.pin_age)),
    "quire_exports_behind": ("Exports whose readers see an older version.", lambda s: len(s.exports_behind)),
    "quire_log_entries": ("Entries of the log since the last checkpoint.", lambda s: s.log_entries),
    "quire_superseded_files": ("Data files in the directory that count no more.", lambda s: s.superseded),
    "quire_lag_offsets": ("Offsets of the topics that are not loaded yet.", lambda s: s.lag),
    "quire_unprocessed_splits": ("Splits at the source that are not done.", lambda s: s.unprocessed),
    "quire_oldest_unprocessed_timestamp_seconds": ("When the oldest of them was written.", lambda s: _at(s, s.unprocessed_age)),
}  # fmt: skip
REACHABLE = "quire_reachable"
FINDING = "quire_finding"


def text(found: Mapping[str, Status | None]) -> str:
    """The metrics of destinations, by their names; None of one that could not be looked at."""
    looks = {label(status.dest if status else name): status for name, status in found.items()}  # one that was named twice has one sample
    lines = _metric(REACHABLE, "Whether it could be looked at.", ((f'{{dest="{d}"}}', int(s is not None)) for d, s in looks.items()))
    for name, (said, of) in METRICS.items():
        lines += _metric(name, said, ((f'{{dest="{d}"}}', of(s)) for d, s in looks.items() if s))
    lines += _metric(FINDING, "Whether this is to be looked at: quire status says what to do.", _findings(looks))
    return "".join(f"{line}\n" for line in lines)


def _findings(looks: Mapping[str, Status | None]) -> Iterator[tuple[str, int]]:
    for dest, status in looks.items():
        wrong = {each.kind for each in status.findings} if status else set()
        yield from ((f'{{dest="{dest}",kind="{label(kind)}"}}', int(kind in wrong)) for kind in KINDS if status)


def _metric(name: str, said: str, samples: Iterable[tuple[str, _Value]]) -> list[str]:
    there = [f"{name}{labels} {value!r}" for labels, value in samples if value is not None]
    return [f"# HELP {name} {said}", f"# TYPE {name} gauge", *there] if there else []


def label(value: str) -> str:
    """A label's value: one line that can be stored, without secrets or who signs in, its quotes and backslashes escaped."""
    shown = printable(hide(value).replace("://***@", "://"))
    return shown.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
