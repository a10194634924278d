"""Tasks that read small files from one account, request by request: how fast, what is refused, and what limits them.

Each task has a core and up to 256 requests in flight; the account admits so many requests a second and answers the others with 503.
How a task slows down, tries again and speeds up is what `quire.storage.window` does, with its constants. A task asks in batches, as
many files as it gives to one call of `read_many`; each call makes its connections anew and begins with all of its 256.

Of many tasks a few are looked at, with their share of the account. The same numbers give the same result.
"""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from quire.storage import window

SLOWER = 0.7  # of what is in flight, when the service is busy (`_Pace.failed`)
BURST = 1.0  # seconds of its limit that an idle account admits at once: assumed
GAP = 0.006  # seconds between two calls of `read_many`: a thread, a loop and a session (measured)
LINK = 240e-6  # seconds of a core for a new connection, without TLS (measured)


@dataclass(frozen=True)
class Line:
    """What lies between a task and its account."""

    latency: float = 0.145  # seconds from a request to its answer: the article's 140 ms, and 5 ms of a client's own (measured)
    slow: tuple[tuple[float, float], ...] = ((0.01, 3.0),)  # share of the answers that take so many times as long: assumed
    connect: float = 0.28  # seconds for a new connection, two round trips for TCP and TLS 1.3: assumed
    cpu: float = 240e-6  # seconds of a core for a file: 203 µs to read it and 37 µs for all else (measured)
    limit: float = 20_000  # requests a second that the account admits
    egress: float = 50e9  # bits a second that it sends
    flight: int = window.FLIGHT


@dataclass(frozen=True)
class Flow:
    """How tasks fare that read from one account together."""

    rate: float  # files a second and task
    refused: float  # requests answered with 503, for each that was answered with a file
    aside: float  # share of the files that were refused for `window.PATIENCE` seconds, and quarantined
    busy: float  # share of its core that a task used

    @property
    def by(self) -> str:
        """What limits it."""
        return "account" if self.refused > 0.0005 else "processor" if self.busy > 0.9 else "round trip"


class _Task:
    __slots__ = ("batch", "core", "left", "limit", "links", "running", "slowed", "used")

    def __init__(self) -> None:
        self.batch = self.left = self.running = self.links = 0
        self.limit = self.slowed = self.core = self.used = 0.0


class _Simulation:
    """One slice of an account: `share` of its tasks."""

    def __init__(self, tasks: int, line: Line, size: int, batches: Sequence[int], seed: int) -> None:
        self.line, self.batches = line, batches
        most = min(line.limit, line.egress / 8 / size)
        # Enough tasks that the account's answers are a stream, and few enough that all of it takes a second or two.
        self.tasks = [_Task() for _ in range(min(tasks, max(2, math.ceil(1500 * tasks / most))))]
        self.admitted = most * len(self.tasks) / tasks
        self.tokens, self.filled = self.admitted * BURST, 0.0
        self.chance, self.number = random.Random(seed), itertools.count()
        self.events: list[tuple[float, int, str, _Task, int, float]] = []
        self.done: list[float] = []  # when a file had come
        self.refused: list[float] = []
        self.aside: list[float] = []

    def begin(self, *, together: bool) -> float:
        """Let the tasks begin, and say when the first does."""
        for task in self.tasks:
            self._later(0.0 if together else self.chance.uniform(0, 5), "batch", task)
        return self.events[0][0]

    def run(self, files: int, seconds: float) -> float:
        """Until so many files have come or so much time has gone; returns the time."""
        now = 0.0
        while len(self.done) < files and now < seconds:
            now, _, kind, task, tries, began = heapq.heappop(self.events)
            if kind == "ask":
                self._ask(now, task, tries, began)
            elif kind == "batch":
                self._batch(now, task)
            else:
                task.core = max(now, task.core) + self.line.cpu
                task.used += self.line.cpu
                self._answer(task.core, kind, task, tries, began)
        return now

    def _later(self, at: float, kind: str, task: _Task, tries: int = 0, began: float = 0.0) -> None:
        heapq.heappush(self.events, (at, next(self.number), kind, task, tries, began))

    def _batch(self, now: float, task: _Task) -> None:
        """The next call of `read_many`: it knows nothing of the one before."""
        task.left, task.limit, task.links = self.batches[task.batch % len(self.batches)], float(self.line.flight), 0
        task.slowed = -window.AT_MOST_EACH
        task.batch += 1
        self._pump(now, task)

    def _pump(self, now: float, task: _Task) -> None:
        while task.left and task.running < int(task.limit):
            task.left -= 1
            task.running += 1
            if task.running > task.links:
                task.links += 1
                task.core = max(now, task.core) + LINK
                task.used += LINK
                self._later(task.core + self.line.connect, "ask", task)
            else:
                self._later(now, "ask", task)
        if not task.left and not task.running:
            self._later(now + GAP, "batch", task)

    def _ask(self, now: float, task: _Task, tries: int, began: float) -> None:
        self.tokens = min(self.admitted * BURST, self.tokens + (now - self.filled) * self.admitted)
        self.filled = now
        admitted = self.tokens >= 1
        self.tokens -= admitted
        at, times = self.chance.random(), 1.0
        for share, factor in self.line.slow:
            times = factor if at < share else times
        self._later(now + self.line.latency * times, "file" if admitted else "busy", task, tries, began)

    def _answer(self, now: float, kind: str, task: _Task, tries: int, began: float) -> None:
        if kind == "busy":
            self.refused.append(now)
            tries, began = tries + 1, began or now
            if now - task.slowed > window.AT_MOST_EACH:
                task.slowed, task.limit = now, max(window.FEWEST, min(task.limit, task.running) * SLOWER)
            wait = min(window.FIRST * 2 ** (tries - 1), window.LONGEST) * self.chance.uniform(0.5, 1)
            if now + wait - began <= window.PATIENCE:
                self._later(now + wait, "ask", task, tries, began)
                return
            self.aside.append(now)
        else:
            self.done.append(now)
            if task.limit < self.line.flight:
                task.limit += 1 / task.limit
        task.running -= 1
        self._pump(now, task)


def play(tasks: int, line: Line, size: int, batches: Sequence[int], files: int, seed: int = 1) -> tuple[float, int]:
    """Seconds until 99 of 100 files have come, from the first request on, and the requests that were refused until all had."""
    simulated = _Simulation(tasks, line, size, batches, seed)
    begins = simulated.begin(together=True)
    simulated.run(files, math.inf)
    return simulated.done[files * 99 // 100 - 1] - begins, len(simulated.refused)


@functools.lru_cache(maxsize=256)
def flow(tasks: int, line: Line, size: int, batches: tuple[int, ...], *, files: int = 50_000, seconds: float = 600, seed: int = 1) -> Flow:
    """How `tasks` at once fare; `batches` are the files of each call of `read_many` of a task, again and again."""
    simulated = _Simulation(tasks, line, size, batches, seed)
    simulated.begin(together=False)
    end = simulated.run(files, seconds)
    since = end * 0.3  # before that they find their pace
    done, refused, aside = (sum(at > since for at in found) for found in (simulated.done, simulated.refused, simulated.aside))
    n = len(simulated.tasks)
    return Flow(
        done / (end - since) / n, refused / max(1, done), aside / max(1, done + aside), sum(t.used for t in simulated.tasks) / n / end
    )
