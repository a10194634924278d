"""One call over several topics, each of which has a destination of its own, `/data/{topic}`, with its own ledger.

Each topic is loaded as by a call of its own, some of them side by side, so each is exact by itself, and what fails for one stops none of
the others. In a loop a topic that has failed is tried again, with growing pauses; the call goes on while one of them does.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from quire.commit import names
from quire.engine import loop, outages, upkeep
from quire.engine.by_schema import added_up
from quire.engine.driver import check_above
from quire.engine.loader import LoadCall, none_matches
from quire.engine.report import LoadReport, Report
from quire.engine.request import Request
from quire.errors import AllQuarantined, Interrupted, QuireError, RefusedError, TopicsFailed, UsageError, about, hide, scrub
from quire.progress import Listener, Part, Phase, Progress, ProgressEvent
from quire.sources.kafka.client import cluster_of
from quire.sources.kafka.topics import Key, Topics
from quire.spark.runner import OnSpark, Runner, runner_of
from quire.storage import Patience, connect, normalise

HOLE = "{topic}"
EXAMPLE = "topic"  # in the place of the topic, where a call is checked before any is known
AT_ONCE = 4  # topics that are loaded side by side
LOOK = 0.2  # seconds between two looks at how far they are
_LIKE = re.compile(r"\{[^{}/]*topic[^{}/]*\}|\{\}|\$topic", re.IGNORECASE)


def is_for_each(dest: object) -> bool:
    """Whether a destination is one for each topic; UsageError where that is misspelt."""
    if not isinstance(dest, str | os.PathLike):
        return False
    text = os.fspath(dest)
    if not isinstance(text, str) or HOLE in text:
        return isinstance(text, str)
    if found := _LIKE.search(text):
        with about("dest"):
            raise UsageError(f"the destination has {found[0]!r}: each topic has a destination of its own by {HOLE!r}. Write that.")
    return False


def dest_of(dest: str | os.PathLike[str], topic: str) -> str:
    """The destination of a topic; UsageError for one whose name would lead elsewhere."""
    if topic.strip(".") == "" or topic.casefold() == names.STATE:
        raise UsageError(f"the topic {topic!r} names no directory of its own. Load it by another call, into a destination that you name.")
    return os.fspath(dest).replace(HOLE, topic)


@dataclass(frozen=True)
class TopicsReport(LoadReport):
    """The result of `quire.load` into a destination for each topic: the numbers of all together, and the report of each.

    reports   by topic: the report of its destination, of the last run that it had a part in
    errors    by topic: why it failed in that run, in one line; the others went on, and the next call goes on with it
    codes     by topic: the exit code that a call of its own would have had

        report = quire.load("kafka://host:9092/orders,users", "/data/{topic}")    # a quire.TopicsReport
        for topic, mine in report.reports.items():
            print(topic, mine.records)
        report.complete()                       # raises quire.TopicsFailed where a topic has failed, as the call itself does
    """

    reports: Mapping[str, LoadReport] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def next(self) -> str:
        """The command to go on with: of the first destination that has something in quarantine, else of the first one."""
        first = next((report for report in self.reports.values() if report.quarantined_count), next(iter(self.reports.values()), None))
        return "" if first is None else first.next

    def complete(self) -> TopicsReport:
        """The report itself; TopicsFailed, which carries it, where a topic has failed."""
        if self.errors:
            raise _failed(self)
        return self

    def _facts(self) -> dict[str, object]:
        rows: dict[str, object] = (
            {"FAILED": f"{len(self.errors):,} of {len(self.reports.keys() | self.errors.keys()):,} topics"} if self.errors else {}
        )
        rows |= {name: value for name, value in super()._facts().items() if name != "version"}
        for topic in sorted(self.reports.keys() | self.errors.keys()):
            report = self.reports.get(topic)
            taken = [] if report is None else [f"{report.taken}, {report.quarantined_count:,} quarantined; version {report.version}"]
            rows[topic] = "; ".join([*([f"FAILED: {self.errors[topic]}"] if topic in self.errors else []), *taken])
        return rows

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        own = {"reports": {topic: report.as_dict() for topic, report in self.reports.items()}, "errors": dict(self.errors)}
        return {**{name: value for name, value in super().as_dict().items() if name != "codes"}, **own}


def _failed(report: TopicsReport) -> TopicsFailed:
    topic, why = next(iter(report.errors.items()))
    n, every = len(report.errors), len(report.reports.keys() | report.errors.keys())
    # Where another try may help with any, it may help with all of the call.
    code = QuireError.exit_code if QuireError.exit_code in report.codes.values() else report.codes[topic]
    rest = "nothing of them was loaded" if n == every else "the others were loaded"
    return TopicsFailed(f"{n:,} of {every:,} topics failed, and {rest}. First, {topic}: {why}", report=report, exit_code=code)


@dataclass
class _Topic(Listener):
    """A topic, and how it fares. `due`: when it is tried again after an error; `done`: percent of the run under way.

    since   the ends that it had when the call began: none, where it has appeared later
    load    the checked call of its runs
    """

    name: str
    call: ByTopic = field(repr=False)
    since: Mapping[Key, int] | None = field(default=None, repr=False)
    load: LoadCall | None = field(default=None, repr=False)
    run: Callable[[bool], Report] | None = None
    report: LoadReport | None = None
    error: QuireError | None = None
    patience: Patience | None = None
    due: float = 0.0
    done: int = 0

    def __call__(self, step: ProgressEvent) -> None:
        """In its thread, several times a second while it is loaded: what ends the call ends it here."""
        if self.call.ended.is_set():
            raise Interrupted
        self.call.told(self, step)

    def say(self, text: str, *, always: bool = False) -> None:
        """A line of it."""
        with self.call.lock:
            self.call.bars.say(f"{self.name}: {text}", always=always)


class ByTopic:
    """The runs of a call: each asks which topics there are, and loads some of them side by side, each in a thread.

    asked   the brokers, and the topics that are asked for
    make    the checked call of one topic
    quarantines   whether a topic may have all of its records quarantined
    maintain      how each destination is maintained (see `upkeep.wanted`)
    """

    def __init__(
        self, asked: Topics, dest: str | os.PathLike[str], make: Callable[[str], LoadCall], bars: Progress, *, quarantines: bool,
        maintain: Any = None,
    ) -> None:  # fmt: skip
        self.asked, self.dest, self.make, self.bars, self.quarantines, self.maintain = asked, dest, make, bars, quarantines, maintain
        self.topics, self.began = dict[str, _Topic](), False
        self.lock, self.ended = threading.RLock(), threading.Event()
        # As long as the call lasts: a thread keeps its connections to the brokers.
        self._pool, self._phase = ThreadPoolExecutor(AT_ONCE, "quire-topic"), Phase(ProgressEvent(""), lambda _: None)

    def __enter__(self) -> ByTopic:
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self._pool.shutdown(wait=False)

    def run(self, request: Request, runner: Runner, _: Progress, *, waits: bool) -> TopicsReport:
        """Load what is new in each topic. `waits`: topics may come later. TopicsFailed where every one of them has failed."""
        began = time.monotonic()
        if not self.began:
            self._check_above(request.dest_options)
        there = self._there(waits=waits)
        mine = [self.topics.setdefault(topic, _Topic(topic, self, {} if self.began else None)) for topic in there]
        self.began = True
        due = [one for one in mine if not 0 < one.due - outages.clock() <= outages.LONGEST]  # further off, the clock was put back
        with self._shown(due):
            self._wait([self._pool.submit(self._load, one, runner, waits) for one in due], due)
        report = self._report(time.monotonic() - began)
        if report.errors and all(one.error for one in mine):
            raise _failed(report)
        return report

    def _check_above(self, options: Any) -> None:
        """Refuse topics below another destination, where there is a directory above them all, and the call may look at it."""
        scheme, _, place = os.fspath(self.dest).partition(HOLE)[0].rpartition("://")
        if "/" in place or not scheme:
            above = place[: place.rfind("/") + 1] or "."
            with suppress(RefusedError):  # by the store: rights may end at the topics' own directories
                check_above(connect(normalise(f"{scheme}://{above}" if scheme else above), options), repr(HOLE))

    def _there(self, *, waits: bool) -> list[str]:
        """The topics that are asked for: those that are named, and those that match now."""
        cluster = cluster_of(self.asked.servers, self.asked.options)
        with about("source"):
            if not self.topics:
                cluster.reach()
            _, there = cluster.topics(self.bars.again)
            found = sorted({*self.asked.names, *(name for name in there if self.asked.matches(name))})
            if not found and not waits:
                raise none_matches(self.asked, there)
        for name in {*self.asked.names} - there.keys():
            self.topics.setdefault(name, _Topic(name, self, {}))
        return found

    # --------------------------------------------------------------------------------------------------------------- side by side
    @contextmanager
    def _shown(self, due: Sequence[_Topic]) -> Iterator[None]:
        """One bar for all of them; a function of the user's is told of each instead."""
        for one in due:
            one.done = 0
        if callable(self.bars.show) or not due:
            self._phase = Phase(ProgressEvent(""), lambda _: None)
            yield
            return
        with self.bars.phase("loading", len(due), "topic") as self._phase:
            yield

    def told(self, one: _Topic, step: ProgressEvent) -> None:
        """Where a topic is, in its thread."""
        with self.lock:
            if step.phase == "gathering" and step.total:
                one.done = min(99, 100 * step.done // step.total)
            if callable(self.bars.show):
                self.bars.show(replace(step, topic=one.name))
            elif step.waits:
                self._phase.again(f"{one.name}: {step.waits}")

    def _wait(self, work: Sequence[Future[None]], due: Sequence[_Topic]) -> None:
        """Until all of them have ended. Whatever is not the failure of a topic ends the others, too, and is raised."""
        open_ = set(work)
        try:
            while open_:
                over, open_ = wait(open_, LOOK)
                for one in over:
                    one.result()
                with self.lock:
                    parts = tuple(Part(one.name, one.done, 100) for one in due) if len(due) > 1 else ()
                    self._phase.to(len(work) - len(open_), parts=parts)
        except BaseException:
            self.ended.set()
            for each in work:
                each.cancel()
            wait(open_)
            raise

    def _load(self, one: _Topic, runner: Runner, waits: bool) -> None:
        """One run of a topic, in its thread. An error is kept beside it; an interrupt passes."""
        if self.bars.stopping or self.ended.is_set():
            return
        before = one.error
        try:
            one.run = one.run or self._runs(one, runner)
            report = one.run(waits)
            assert isinstance(report, LoadReport)
            one.report = report
            if not self.quarantines:
                one.report.checked()
        except QuireError as e:
            one.error = e
            one.run = None  # nothing that was read before is believed
            one.patience = one.patience or Patience(lasts=math.inf, longest=outages.LONGEST)
            pausing = one.patience.pausing() if waits and not isinstance(e, AllQuarantined) else None
            one.due = outages.clock() + (pausing or 0.0)
            if before is None or str(before) != str(e):
                one.say(f"{scrub(str(e), 500)} The other topics go on.", always=True)
        else:
            one.error, one.patience, one.due, one.done = None, None, 0.0, 100
            if before is not None:
                one.say("it goes on.", always=True)

    def _runs(self, one: _Topic, runner: Runner) -> Callable[[bool], Report]:
        """The runs of a topic, each with the upkeep of its destination; `waits` is their argument."""
        call, bars = self.make(one.name), Progress(one, self.bars.what)
        call.since = one.since if one.load is None else one.load.since
        one.load = call
        bars.stop = self.bars.stop
        mine = runner_of(runner.spark, call.request.store(), call.request.roots) if isinstance(runner, OnSpark) else runner
        run = loop.one(partial(call.decided, bars), call.told)
        keep_up = upkeep.beside(self.maintain, call.request, mine, bars)
        return lambda waits: keep_up(run(call.request, mine, bars, waits=waits))

    def _report(self, took: float) -> TopicsReport:
        """The numbers of all together, but for the seconds: topics were loaded side by side."""
        reports = {topic: one.report for topic, one in self.topics.items() if one.report is not None}
        failed = {topic: one.error for topic, one in self.topics.items() if one.error is not None}
        every, sums = [*reports.values()], added_up([*reports.values()])
        bad = [each for each in every if each.failure]
        failure = bad[0].failure if bad and len(bad) == len(every) else ""
        return TopicsReport(
            **{**sums, "source": self.asked.shown, "dest": hide(os.fspath(self.dest)), "failure": failure, "seconds": took},
            reports=reports, errors={topic: scrub(str(e), 500) for topic, e in failed.items()},
            codes={topic: e.exit_code for topic, e in failed.items()},
        )  # fmt: skip
