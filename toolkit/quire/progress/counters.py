"""The runs of this process, as counters of `prometheus_client`, where the process has imported it: it serves them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quire.progress import ProgressEvent
    from quire.progress.runs import About, Outcome

# Of a run's numbers: its metric → the name in a report, and what it counts.
NUMBERS = {
    "quire_run_files": (("files", "gathered"), "Files that were gathered, or read once more."),
    "quire_run_rows": (("records",), "Rows or lines that were written."),
    "quire_run_bytes": (("bytes",), "Bytes that were read; of topics, offsets."),
    "quire_run_quarantined": (("quarantined_count", "quarantined"), "Files and records that were quarantined."),
    "quire_run_duplicates": (("duplicates",), "Records of topics that were left out, as one of their key was kept."),
    "quire_run_retries": (("retries",), "How often a store was tried again."),
}
_made = dict[str, Any]()


def follow(run: About) -> Counting | None:
    """Count a run, where the process has a registry."""
    client = sys.modules.get("prometheus_client")
    return None if client is None else Counting(client, run)


def _counters(client: Any) -> dict[str, Any]:
    if not _made:
        labels = ("verb", "dest")
        found = {
            "runs": client.Counter("quire_runs", "Runs, by how they ended.", (*labels, "outcome")),
            "seconds": client.Counter("quire_run_seconds", "Seconds of runs.", labels),
            "phases": client.Counter("quire_phase_seconds", "Seconds of runs by their phases.", (*labels, "phase")),
            **{name: client.Counter(name, said, labels) for name, (_, said) in NUMBERS.items()},
        }
        _made.update(found)
    return _made


class Counting:
    """The counters of one run."""

    def __init__(self, client: Any, run: About) -> None:
        self._of, self._labels = _counters(client), (run.verb, run.dest.replace("://***@", "://"))

    def phase_began(self, name: str) -> None:
        """Its end says it."""

    def phase_ended(self, step: ProgressEvent, seconds: float) -> None:
        self._of["phases"].labels(*self._labels, step.phase).inc(seconds)

    def retried(self, why: str) -> None:
        """The report counts them."""

    def said(self, text: str) -> None:
        """No number tells it."""

    def ended(self, outcome: Outcome) -> None:
        self._of["runs"].labels(*self._labels, outcome.outcome).inc()
        self._of["seconds"].labels(*self._labels).inc(outcome.seconds)
        for name, (keys, _) in NUMBERS.items():
            self._of[name].labels(*self._labels).inc(next((outcome.numbers[key] for key in keys if key in outcome.numbers), 0))
