"""Runs as records of Python's `logging`: the logger is `quire`, and each number is a field of its own, `quire_files`, `quire_records`, …

Nothing is logged where no handler would get it, nor where nobody has asked for INFO: a notebook has a handler of its own, which would
repeat what its cells show.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.progress import ProgressEvent
    from quire.progress.runs import About, Outcome

LOGGER = logging.getLogger("quire")
LEVELS = {"done": logging.INFO, "quarantined": logging.WARNING, "interrupted": logging.WARNING, "failed": logging.ERROR}


def follow(run: About) -> Logging | None:
    """Log a run, where somebody has asked for that."""
    return Logging(run) if LOGGER.isEnabledFor(logging.INFO) and LOGGER.hasHandlers() else None


class Logging:
    """The records of one run. Fields have a prefix, since a record has names of its own, and refuses others for them."""

    def __init__(self, run: About) -> None:
        self._run = run
        self._fields = {"quire_verb": run.verb, "quire_dest": run.dest, "quire_kind": run.kind}
        self._log(logging.DEBUG, "began", "%s of %s began", run.verb, run.dest)

    def _log(self, level: int, event: str, text: str, *words: object, **more: object) -> None:
        if LOGGER.isEnabledFor(level):
            found = {f"quire_{name}": value for name, value in more.items()}
            LOGGER.log(level, text, *words, extra={"quire_event": event, **self._fields, **found})

    def phase_began(self, name: str) -> None:
        """Its end says it."""

    def phase_ended(self, step: ProgressEvent, seconds: float) -> None:
        done = {"phase": step.phase, "done": step.done, "total": step.total, "unit": step.unit, "tasks": step.tasks}
        self._log(logging.DEBUG, "phase", "%s: %s %s in %.1f s", step.phase, step.done, step.unit, seconds, **done, seconds=seconds)

    def retried(self, why: str) -> None:
        self._log(logging.INFO, "retry", "%s", why, why=why)

    def said(self, text: str) -> None:
        self._log(logging.WARNING, "said", "%s", text)

    def ended(self, outcome: Outcome) -> None:
        level = LEVELS[outcome.outcome] if outcome.new else logging.DEBUG  # of a run that found nothing new there is nothing to say
        why = f": {outcome.error}" if outcome.error else ""
        more = {
            "outcome": outcome.outcome,
            **outcome.numbers,
            "seconds": outcome.seconds,
            "phases": dict(outcome.phases),
            **({"error": outcome.error} if why else {}),
        }
        words = (self._run.verb, self._run.dest, outcome.outcome, outcome.seconds, why)
        self._log(level, "ended", "%s of %s: %s in %.1f s%s", *words, **more)
