"""A run, as those are told who follow it from outside: `logging`, OpenTelemetry, Prometheus.

Each follower is a module with `follow(run)`, which gives an object for one run, or None where nobody listens; it imports nothing that its
user has not imported. A failure in a follower, a handler or an exporter is said once, and the run goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import QuireError, hide, printable
from quire.progress import counters, logs, spans

if TYPE_CHECKING:
    from quire.progress import Phase, ProgressEvent

_told = set[str]()  # followers of which it was said that they fail


@dataclass(frozen=True)
class About:
    """A run that begins: its verb ("run", "retry", "compact", …), where to, without a secret, and what it reads ("files", "offsets", …;
    "": other verbs).
    """

    verb: str
    dest: str
    kind: str = ""


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    outcome   "done", "quarantined" (nothing of the input could be processed), "failed", "interrupted"
    numbers   of its report, by their names there: files, records, bytes, quarantined_count, …; and of any run `retries`
    seconds   it took, `phases` of them in each phase; `error` says why it failed
    new       whether it has committed anything
    """

    outcome: str
    numbers: Mapping[str, int]
    seconds: float
    phases: Mapping[str, float]
    error: str = ""
    new: bool = True


class Follower(Protocol):
    """Whoever is told of one run."""

    def phase_began(self, name: str) -> None:
        """A phase begins."""

    def phase_ended(self, step: ProgressEvent, seconds: float) -> None:
        """It is over, well or not: how far it came."""

    def retried(self, why: str) -> None:
        """A store could not do something, and it is tried again; from any thread."""

    def said(self, text: str) -> None:
        """A line that the user should know."""

    def ended(self, outcome: Outcome) -> None:
        """The run is over."""


FOLLOWERS: Mapping[str, Callable[[About], Follower | None]] = {
    "logging": logs.follow, "OpenTelemetry": spans.follow, "Prometheus": counters.follow,
}  # fmt: skip


class Run:
    """A run under way; `say` tells the user a line, and whoever has made its report sets `report`."""

    def __init__(self, about: About | None, say: Callable[[str], object]) -> None:
        self._say, self._began, self._followers = say, time.monotonic(), dict[str, Follower]()
        self._phases = dict[str, float]()
        self.report: Any = None
        for name, follow in FOLLOWERS.items() if about else ():
            assert about is not None
            try:
                follower = follow(about)
            except Exception as e:
                self._failed(name, e)
            else:
                if follower:
                    self._followers[name] = follower

    def _failed(self, name: str, error: Exception) -> None:
        if name not in _told:
            _told.add(name)
            with suppress(Exception):
                self._say(hide(printable(f"runs are not told to {name} as they should be ({type(error).__name__}: {error}), and go on.")))

    def _tell(self, act: Callable[[Follower], object]) -> None:
        for name, follower in self._followers.items():
            try:
                act(follower)
            except Exception as e:
                self._failed(name, e)

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """A phase of it."""
        began = time.monotonic()
        self._tell(lambda f: f.phase_began(phase.step.phase))
        try:
            yield
        finally:
            took = time.monotonic() - began
            self._phases[phase.step.phase] = self._phases.get(phase.step.phase, 0.0) + took
            self._tell(lambda f: f.phase_ended(phase.step, took))

    def retried(self, why: str) -> None:
        """A store could not do something, and it is tried again."""
        self._tell(lambda f: f.retried(hide(printable(why))))

    def said(self, text: str) -> None:
        """A line that the user should know."""
        self._tell(lambda f: f.said(hide(printable(text))))

    def ended(self, retries: int, error: BaseException | None = None) -> None:
        """It is over, with its report or an error."""
        if self._followers:
            found = self._outcome({"retries": retries}, error)
            self._tell(lambda f: f.ended(found))

    def _outcome(self, numbers: dict[str, int], error: BaseException | None) -> Outcome:
        took, report = time.monotonic() - self._began, self.report
        if error is not None:
            # Of another exception, which may be the user's own, the text may hold data.
            why = f"{type(error).__name__}: {error}" if isinstance(error, QuireError) else type(error).__name__
            how = "failed" if isinstance(error, Exception) else "interrupted"
            return Outcome(how, numbers, took, self._phases, hide(printable(why)))
        if is_dataclass(report):
            numbers |= {f.name: value for f in fields(report) if type(value := getattr(report, f.name)) is int}
        vain = bool(getattr(report, "all_quarantined", False))
        new = getattr(report, "jobs", any(count for name, count in numbers.items() if name != "version") or report is None)
        return Outcome("quarantined" if vain else "done", numbers, took, self._phases, new=bool(new))


NOBODY = Run(None, lambda _: None)
