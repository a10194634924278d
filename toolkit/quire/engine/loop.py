"""All calls that read a source share this: how they are repeated, and what their report raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from types import FrameType
from typing import Any

import pyarrow as pa

from quire.arguments import refuse_needless, seconds, whole
from quire.engine import upkeep
from quire.engine.driver import gather
from quire.engine.listening import Listening
from quire.engine.outages import A_DAY, NONE, Allowed, Outages
from quire.engine.report import Report
from quire.engine.request import Request
from quire.engine.retrying import Retried, Retrying
from quire.errors import AllQuarantined, QuireError, UsageError, quoted
from quire.interrupts import raised
from quire.progress import Progress
from quire.sources.events import Asked, asked
from quire.spark.runner import Runner

Run = Callable[..., Report]  # (request, runner, bars, waits=…)


@dataclass(frozen=True)
class Again:
    """How a call is repeated: `pause` seconds between two runs (None: one run), and how many runs there are (None: until a signal).

    `allowed` says how long an outage may last, `maintain` how the destination is maintained beside it (None: it is not), `events` which
    queue names the files (None: each run lists).
    """

    pause: float | None = None
    runs: int | None = None
    allowed: Allowed = NONE
    maintain: Any = None
    events: Asked | None = None

    def check(self, roots: Sequence[Any]) -> None:
        """UsageError where the queue that names files cannot be one for these roots; nothing is asked for."""
        if self.events is not None:
            self.events.opened(roots)


def again(
    every: str | float | None, max_runs: int | None, outage: str | float | None = None, maintain: object = False, events: Any = None,
    relist: str | float | None = None,
) -> Again:  # fmt: skip
    """The same of a call's arguments; UsageError for a wrong one, which is said before Spark starts."""
    refuse_needless({"max_runs": max_runs}, {"every=": every is not None})
    allowed = None if outage is None else Allowed(seconds(outage, "outage"))
    kept = upkeep.wanted(maintain, loops=every is not None)
    named = asked(events, relist, loops=every is not None)
    if every is None:
        return Again(allowed=allowed or NONE, maintain=kept, events=named)
    runs = None if max_runs is None else whole(max_runs, "max_runs", 1)
    return Again(seconds(every, "every"), runs, allowed or Allowed(A_DAY, proven=True), kept, named)


def one(decide: Callable[[Request], Request], told: Callable[[Report], Report], listening: Listening | None = None) -> Run:
    """The runs of a call into one destination: what is quarantined is tried again, then what is new is read."""
    retrying, listening = Retrying(), listening or Listening(None)

    def run(request: Request, runner: Runner, bars: Progress, *, waits: bool) -> Report:
        def work(made: Request) -> Report:
            return told(gather(made, runner, bars, waits=waits))

        if not listening.goes_by_events:
            made = decide(request)
            return retrying.run(made, runner, bars).noted(work(made))
        # What completes the call may look at files, and so is asked once it is known which ones the run is about.
        retried = Retried() if request.pace.retries is None else retrying.run(decide(request), runner, bars)
        return retried.noted(listening.run(lambda given: work(decide(given)), request, runner, bars))

    return run


def check_stop(stop: object) -> None:
    """UsageError for what cannot end a call."""
    if stop is not None and not isinstance(stop, threading.Event):
        raise UsageError(f"stop={quoted(stop)} is not a threading.Event, which ends the call after a commit once it is set.")


def repeat(
    request: Request, runner: Runner, bars: Progress, again: Again,
    decide: Callable[[Request], Request] = lambda request: request, told: Callable[[Report], Report] = lambda report: report,
    stop: threading.Event | None = None, run: Run | None = None,
) -> Report:  # fmt: skip
    """Run a call once, or again and again; `decide` completes it before each run, `told` does so with its report. The last report.

    Raises AllQuarantined if nothing of the input could be processed; of a call that runs again and again that is said, and it goes on.
    A failure after which the next run goes on (exit code 3) is an outage, which is waited for as long as `again` allows.

    `run` does all of a run, where it is of several destinations.

    `stop`: where it is set, the call ends after the commit under way, as after a signal.
    """
    bars.stop, loops, runs = stop, again.pause is not None, again.runs
    away, listening = Outages(again.allowed, bars, request.shown), Listening(again.events)
    report: Report | None = None
    work = run or one(decide, told, listening)
    keep_up = upkeep.beside(again.maintain, request, runner, bars)

    def once() -> Report:
        nonlocal request
        try:
            return work(request, runner, bars, waits=loops)
        except QuireError:
            request = request.anew()
            raise

    with closing(listening), until_signal(stop) if loops else nullcontext(stop or threading.Event()) as stopped:
        bars.stop = stopped if loops else stop
        while True:
            report, over = away.outlived(once, stopped, report)
            if over:
                return report
            if again.pause is None:
                return checked(request, keep_up(report))
            _say(request, report, bars)
            report = keep_up(report)
            runs = None if runs is None else runs - 1
            if runs == 0 or rest(stopped, again.pause):
                return report


def _say(request: Request, report: Report, bars: Progress) -> None:
    """A line of a run; of one that found nothing new there is nothing to say."""
    if not report.jobs:
        return
    version = f"; version {report.version}" if report.version else ""  # several destinations have none together
    bars.say(f"{report.taken}, {report.quarantined_count:,} quarantined{version}")
    try:
        checked(request, report)
    except AllQuarantined as e:
        bars.say(f"{e} The next run goes on.", always=True)


def checked(request: Request, report: Report) -> Report:
    """The report; AllQuarantined if nothing of the input could be processed, and the call does not say how much of that it allows."""
    return report if request.max_quarantined is not None else report.checked()


def rest(stopped: threading.Event, seconds: float) -> bool:
    """Wait for the next run; True: there is none. Memory that Arrow keeps, as of a checkpoint, goes back first: it may be hours."""
    pa.default_memory_pool().release_unused()
    return stopped.wait(seconds)


@contextmanager
def until_signal(stop: threading.Event | None) -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set: the commit under way ends whole. A second signal interrupts at once."""
    stopped = stop or threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def heard(_: int, frame: FrameType | None) -> None:
        if stopped.is_set():
            raised(signal.SIGINT, frame)
        stopped.set()

    before = {s: signal.signal(s, heard) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
