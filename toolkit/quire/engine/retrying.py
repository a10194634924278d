"""Quarantined files are tried again within runs: how long each file waits, and how often it is read.

Attempts and their times stand in the ledger and in the log; a clock decides nothing but when the next one is.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quire.arguments import format_span, refuse_needless, seconds, whole
from quire.engine.report import Report
from quire.packaging import Registry
from quire.progress import Progress
from quire.spark.runner import Runner

if TYPE_CHECKING:
    from quire.engine.request import Request

MAX_ATTEMPTS = 5
LONGEST = 64  # times the first wait: so far waits double
LOOKS = 8  # a loop looks so often in each wait, as a look reads what is quarantined
REGISTRY = Registry("quire.retries", "retry {!r}", {"quarantined": "quire.ledger.due:retry_due"}, needs=())
clock = time.monotonic


@dataclass(frozen=True)
class Retries:
    """A file that was read once waits `wait` seconds, and twice as long after each further time; one read `attempts` times stays."""

    wait: float
    attempts: int = MAX_ATTEMPTS

    @classmethod
    def parsed(cls, retry_quarantined: str | float | None, max_attempts: int) -> Retries | None:
        """The same of a call's arguments, or None; UsageError for wrong ones."""
        refuse_needless({"max_attempts": max_attempts}, {"retry_quarantined=": retry_quarantined is not None})
        most = whole(max_attempts, "max_attempts", 2)
        return None if retry_quarantined is None else cls(seconds(retry_quarantined, "retry_quarantined"), most)

    def after(self, tries: int) -> float:
        """How long a file waits that was read so often."""
        return self.wait * min(LONGEST, 1 << min(tries - 1, 60))

    def __str__(self) -> str:
        return format_span(self.wait)


@dataclass(frozen=True)
class Retried:
    """The retry of a run: how much it has read again, of how much something is gathered now, and what it has read for the last time."""

    count: int = 0
    taken: int = 0
    given_up: tuple[tuple[str, str], ...] = ()
    given_up_count: int = 0
    jobs: tuple[str, ...] = ()

    def noted(self, report: Report) -> Report:
        """The report of the run with it."""
        if not self.jobs:
            return report
        return dataclasses.replace(
            report, retried=self.count, retried_taken=self.taken, given_up=self.given_up, given_up_count=self.given_up_count,
            jobs=(*self.jobs, *report.jobs),
        )  # fmt: skip


class Retrying:
    """The retries of a call's runs. A loop does not look in each of its short runs: it would read the whole quarantine again and again."""

    def __init__(self) -> None:
        self._next = -math.inf

    def run(self, request: Request, runner: Runner, bars: Progress) -> Retried:
        """Try again what is due, as a job of its own."""
        if (retries := request.pace.retries) is None or bars.stopping or clock() < self._next:
            return Retried()
        found: Retried = REGISTRY.load("quarantined")(request, retries, runner, bars)
        self._next = clock() + retries.wait / LOOKS
        return found
