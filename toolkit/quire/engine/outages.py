"""Outages of stores and brokers, which a loop outlives: it tries again with backoff, and ends where one lasts too long.

Nothing that was read before an outage is believed after it: the next run reads the log again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from quire.arguments import format_span
from quire.engine.report import Gap
from quire.errors import QuireError
from quire.progress import Progress
from quire.storage import Patience

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

R = TypeVar("R", bound="DataclassInstance")  # a report with `gaps` and `gap_count`

A_DAY = 86400.0  # seconds that an outage may last where a loop does not say how long
LONGEST = 60.0  # seconds between two tries
KEPT = 100  # gaps that a report tells of, the last ones

# By these names, so that a simulated clock can stand in their place.
clock = time.time


def pause(stopped: threading.Event, seconds: float) -> bool:
    """Wait; True: the call is to end."""
    return stopped.wait(seconds)


@dataclass(frozen=True)
class Allowed:
    """How long an outage may last, in seconds; `proven`: only once a first run has gone well, so that a mistake is said at once."""

    seconds: float = 0.0
    proven: bool = False


NONE = Allowed()


class Outages:
    """The outages of one call: the one under way, and those that it has outlived."""

    def __init__(self, allowed: Allowed, bars: Progress, dest: str) -> None:
        self._allowed, self._bars, self._dest = allowed, bars, dest
        self._patience, self._began, self._why = Patience(), 0.0, ""
        self._gaps, self._count = deque[Gap](maxlen=KEPT), 0

    def outlived(self, run: Callable[[], R], stopped: threading.Event, last: R | None) -> tuple[R, bool]:
        """The report of a run, which is tried again while an outage may last; or, True: `stopped` has ended the call with `last`.

        `last`: of the run before, None where none has gone well yet. Raises what is not an outage, or has lasted too long.
        """
        while True:
            began = clock()
            try:
                report = run()
            except QuireError as e:
                if not pause(stopped, self.met(e, worked=last is not None)):
                    continue
                if last is None:
                    raise
                return self.noted(last), True
            self.over(began)
            return self.noted(report), False

    def met(self, e: QuireError, *, worked: bool) -> float:
        """The seconds until the next try after a run that has failed; `worked`: one before has gone well.

        Raises the error where it is not an outage, or where the outage has lasted too long.
        """
        if e.exit_code != QuireError.exit_code or not self._allowed.seconds or (self._allowed.proven and not worked):
            raise e
        new = not self._why
        if new:
            self._patience, self._began, self._why = Patience(lasts=self._allowed.seconds, longest=LONGEST), clock(), str(e)
        pausing = self._patience.pausing()
        if pausing is None:
            raise type(e)(
                f"{str(e).rstrip('.')}. So it has been since {_utc(self._began)} UTC, and outage={format_span(self._allowed.seconds)!r} "
                f"allows no more: call again when that is mended, or allow more."
            ) from e
        if new:
            with self._bars.phase("waiting", unit="s") as phase:
                phase.again(self._why)
            self._bars.say(
                f"{_utc(self._began)} UTC: {self._dest} waits, for {format_span(self._allowed.seconds)} at most: {self._why}", always=True
            )
        return pausing

    def over(self, tried: float) -> None:
        """A run has gone well that began at `tried`."""
        if not self._why:
            return
        gap = self._gap(tried)
        self._gaps.append(gap)
        self._count, self._why = self._count + 1, ""
        self._bars.say(f"{_utc(clock())} UTC: {self._dest} goes on, after {gap}", always=True)

    def _gap(self, until: float) -> Gap:
        """The outage under way; the clock may have been set back in it."""
        return Gap(_utc(self._began), max(0.0, round(until - self._began, 3)), self._why)

    def noted(self, report: R) -> R:
        """The report, with the gaps so far; one that is not over has lasted until now."""
        if not self._count and not self._why:
            return report
        last = [self._gap(clock())] if self._why else []
        return replace(report, gaps=(*self._gaps, *last)[-KEPT:], gap_count=self._count + len(last))


def _utc(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S")
