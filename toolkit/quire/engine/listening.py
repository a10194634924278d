"""Runs that go by events: full listings as often as they are due, and between them a look at the names alone that a queue has told.

    receive → (list in full, where that is due | plan from the names) → commit → look again → delete what is settled

A message is deleted once the ledger, at a version that cannot change any more, has its files as they are there, or they are not there,
or are not meant. One that a kill has left comes again. The store says when the last full listing was: a mark is put after all that it
has found is committed, with the time and the log's version at which it began.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from quire.commit import names
from quire.commit.entries import Commit, Foreign, Published
from quire.commit.entries import Entry as LogEntry
from quire.engine.holding import Waiting, held
from quire.engine.report import EventCounts, Report, together
from quire.engine.request import Request
from quire.errors import StorageError
from quire.planning import plan
from quire.planning.among import Among, lies_in
from quire.progress import Progress
from quire.sources.events import Asked, EventQueue, Finder, Found, Message
from quire.spark.runner import Runner
from quire.storage import Entry

MOST = 50_000  # messages that are worked on together
TURNS = 20  # in which a run takes so many: a queue without an end does not hold it up for ever
FREEING = ("forget", "rollback", "restore")  # the verbs of commits after which files that were done may be to be done again
Work = Callable[[Request], Report]

# By this name, so that a simulated clock can stand in its place.
clock = time.time


@dataclass(frozen=True)
class Meant:
    """The files and directories below the roots of a call that the messages which wait mean, and which message says which."""

    found: Found
    of: dict[str, list[tuple[int, str]]]

    @classmethod
    def by(cls, messages: Iterable[Message], request: Request) -> Meant:
        """The same of messages that are understood."""
        finder, found = Finder(request.roots), Found()
        return cls(found, {one.id: [where for event in one.events or () for where in finder.find(event, found)] for one in messages})

    @property
    def among(self) -> Among:
        """To be looked at."""
        return Among(self.found.files, self.found.folders)


class Listening:
    """The events of a call's runs; of one that names no queue (`asked` is None) there are none."""

    def __init__(self, asked: Asked | None) -> None:
        self._asked = asked
        self._queue: EventQueue | None = None
        # Messages that are not settled, and the ids of those that are not understood, each with the time at which it came.
        self._waiting, self._strange = Waiting(), dict[str, float]()
        self._answered = False  # the queue did so once, so it is not a mistake in the call
        self._owed = False  # events were lost, and the listing that makes up for it has not come to its end
        self._marks = list[str]()  # that the last look at the store has found
        self._looked = 0  # the version up to which no file is new again
        self._too_young: float | None = None  # when the listing began that has found files which no event may name: they were too young

    @property
    def goes_by_events(self) -> bool:
        """Whether the call has named a queue."""
        return self._asked is not None

    def close(self) -> None:
        """The call is over."""
        if self._queue is not None:
            self._queue.close()

    def run(self, work: Work, request: Request, runner: Runner, bars: Progress) -> Report:
        """A run, in which `work` lists and gathers, or gathers what the request looks at alone."""
        assert self._asked is not None
        queue = self._opened(self._asked, request)
        report, counts, failed = None, EventCounts(), None
        for turn in range(TURNS):
            self._owed |= queue.lost()
            full = not turn and self._due(self._asked, request, bars)
            try:
                new, strange = self._receive(queue, bars)
            except StorageError as e:
                if turn or not (full and self._answered):
                    raise
                failed, new, strange = e, [], []
            part, came = self._turn(work, request, runner, bars, full=full)
            report = part if report is None else together(report, part)
            counts = _sum(counts, dataclasses.replace(came, received=len(new) + len(strange), not_understood=len(strange)))
            _tell(queue, strange, bars)
            if len(new) + len(strange) < MOST or bars.stopping:
                break
        if failed is not None:
            raise failed
        assert report is not None
        return dataclasses.replace(report, events=dataclasses.replace(counts, waiting=len(self._waiting)))

    def _opened(self, asked: Asked, request: Request) -> EventQueue:
        """The queue; one that is elsewhere is opened anew, as its options may have newer values."""
        if self._queue is None or self._queue.hidden < math.inf:
            self._queue = asked.opened(request.roots)
        return self._queue

    def _receive(self, queue: EventQueue, bars: Progress) -> tuple[list[Message], list[Message]]:
        """The messages that have come, and those of them that are not understood."""
        now = clock()  # what has waited for longer the queue gives to others again
        self._waiting = {name: one for name, one in self._waiting.items() if abs(now - one[1]) < queue.hidden}
        self._strange = {name: at for name, at in self._strange.items() if abs(now - at) < queue.hidden}
        came = queue.receive(max(1, MOST - len(self._waiting)), bars.again)
        self._answered = True
        new = [one for one in came if one.events is not None]
        strange = [one for one in came if one.events is None and one.id not in self._strange]
        self._waiting.update((one.id, (one, now)) for one in new)
        self._strange.update((one.id, now) for one in strange)
        return new, strange

    def _turn(self, work: Work, request: Request, runner: Runner, bars: Progress, *, full: bool) -> tuple[Report, EventCounts]:
        """List, or look at what the messages name, and delete those that are settled by then."""
        assert self._queue is not None
        meant = Meant.by((one for one, _ in self._waiting.values()), request)
        looking = request.looking_at(meant.among)
        with held(self._queue, self._waiting, clock, partial(bars.say, always=True)):
            if full:
                report = self._listed(work, request, bars)
                counts = EventCounts(lists=1)
            else:
                report = work(looking)
                counts = _counts(looking.pace.among, meant.found)
            if not self._waiting:
                return report, counts
            log = request.held.read(request.store(bars.again))
            left, missing = plan.unsettled(runner, log, looking.wanted())
        settled = [one for one, _ in self._waiting.values() if not any(lies_in(where, left) for where in meant.of[one.id])]
        if full:
            named = len({*meant.found.files})
            counts = dataclasses.replace(counts, known=max(0, named - missing - len(left)), gone=missing, outside=meant.found.outside)
        self._queue.delete(settled, bars.again)
        for one in settled:
            del self._waiting[one.id]
        return report, counts

    # ----------------------------------------------------------------------------------------------------- full listings
    def _listed(self, work: Work, request: Request, bars: Progress) -> Report:
        """List in full, and mark in the store that it was done, once all that was found is committed.

        Nobody else may tell of files that were too young: they came before the queue was there. So another listing follows once they are
        old enough, and is marked; what is too young for that one has come since.
        """
        began, version, before = int(clock() * 1000), request.held.read(request.store(bars.again)).tip, self._marks
        report = work(request)
        if bars.stopping:
            return report  # part of it may be left
        self._owed, follows, self._too_young = False, self._too_young is not None, None
        if report.young and not follows:
            self._too_young, self._looked = began / 1000, version
            return report
        store = request.store(bars.again)
        if report.version:  # else nothing is written into a destination that holds nothing
            mark = names.listing(request.identity.hash, began, version)
            store.put_if_absent(mark, b"listed\n")
            for old in before:
                if old != mark:
                    store.remove(old)
        return report

    def _due(self, asked: Asked, request: Request, bars: Progress) -> bool:
        """Whether a full listing is due, by what the store says.

        A mark whose time lies as far ahead, since a clock was wrong, does not count: nobody would list for as long.
        """
        store, intent, now = request.store(bars.again), request.identity.hash, clock()
        found = store.scan(names.LISTINGS, after=f"{intent}-", until=f"{intent}.")
        marks = {item.name: mark for item in found if isinstance(item, Entry) and (mark := names.of_listing(item.name))}
        self._marks = list(marks)
        log = request.held.read(store)
        versions = [version for at, version in marks.values() if abs(now - at / 1000) < asked.relist and version <= log.tip]
        waits = self._too_young is not None and 0 <= now - self._too_young <= (request.pace.min_age or 0.0)
        if self._owed or (not waits and (self._too_young is not None or not versions)):
            return True
        since = max([*versions, self._looked if self._looked <= log.tip else 0])
        if any(map(_is_new_again, log.since(since))):
            return True
        self._looked = log.tip
        return False


def _is_new_again(entry: LogEntry) -> bool:
    """Whether files that were done may be to be done again after an entry of the log."""
    if isinstance(entry, Commit):
        return entry.verb in FREEING
    return bool((isinstance(entry, Foreign) and entry.undone) or (isinstance(entry, Published) and entry.lost))


def _sum(one: EventCounts, other: EventCounts) -> EventCounts:
    return EventCounts(*map(operator.add, dataclasses.astuple(one), dataclasses.astuple(other)))


def _counts(among: Among | None, found: Found) -> EventCounts:
    first = None if among is None else among.first
    if first is None:  # the call has gone on with a job, and was stopped then
        return EventCounts(outside=found.outside)
    differing = first.differing
    return EventCounts(
        new=first.new + differing.outdated, known=first.done + differing.reported.count, gone=first.differing.missing,
        outside=found.outside + first.unwanted.count + first.hidden + first.links,
    )  # fmt: skip


def _tell(queue: EventQueue, strange: Sequence[Message], bars: Progress) -> None:
    if strange:
        n = len(strange)
        many = "1 message is" if n == 1 else f"{n:,} messages are"
        bars.say(
            f"{queue.shown}: {many} not understood and stay{'s' * (n == 1)} there, for the queue's dead-letter rule or whoever it is for. "
            f"For example: {strange[0].said}", always=True,
        )  # fmt: skip
