"""Progress: bars in a terminal and in JupyterLab, silent where nobody looks, or told to a function of the caller's."""

from __future__ import annotations

import html
import sys
import threading
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from quire import interrupts
from quire.errors import UsageError, hide, printable
from quire.progress.runs import NOBODY, About, Run

SHOWN = 6  # accounts that a line names
LONGEST = 24  # characters of an account's name in it


@dataclass(frozen=True)
class Part:
    """The progress of reading one account: `done` of `total` bytes. `name` is the account's, a bucket's or a host's."""

    name: str
    done: int
    total: int


@dataclass(frozen=True)
class ProgressEvent:
    """Where a call is: `phase` is "listing", "planning", "gathering", into a table "sorting" and "writing", "publishing", or, of
    `ledger.export`, "exporting"; `done` of `total` (None: not known) in `unit`s.

    While gathering, `unit` is "B", `tasks` and `files` are those that are done, and `parts` has one `Part` for each account where there
    are several. `retries`: how often this call has tried again what a store could not do; `waits` says why it does so at this moment.
    `what` the `files` are: "file", of a load "range" (of offsets), of a table's commits "part" (of their changes). `commit` of `commits`
    that the call's listing makes is under way (max_bytes=, max_files=). `topic`: the one that it is about, where several are loaded side by
    side into destinations of their own.
    """

    phase: str
    done: int = 0
    total: int | None = None
    unit: str = "file"
    tasks: int = 0
    files: int = 0
    retries: int = 0
    waits: str = ""
    parts: tuple[Part, ...] = ()
    what: str = "file"
    commit: int = 1
    commits: int = 1
    topic: str = ""

    @property
    def accounts(self) -> str:
        """How far each account has come, in a few words: `logs1 45 %, logs2 80 %`."""
        shown = self.parts if len(self.parts) <= SHOWN else self.parts[: SHOWN - 1]
        told = [f"{printable(part.name)[:LONGEST]} {_share((part,))}" for part in shown]
        if rest := self.parts[len(shown) :]:
            told.append(f"{len(rest)} others {_share(rest)}")
        return ", ".join(told)


def _share(parts: Sequence[Part]) -> str:
    done, total = sum(part.done for part in parts), sum(part.total for part in parts)
    return f"{100 * done // total if total else 100} %"


class Phase:
    """One phase under way."""

    def __init__(self, step: ProgressEvent, show: Callable[[ProgressEvent], object]) -> None:
        self.step, self._show = step, show
        show(step)

    def to(self, done: int, *, tasks: int = 0, files: int = 0, retries: int = 0, parts: tuple[Part, ...] = ()) -> None:
        """It has come so far; never back, and never beyond its total. `retries` are those of tasks, beyond those told before."""
        interrupts.check()
        done = max(self.step.done, done if self.step.total is None else min(done, self.step.total))
        retries += self.step.retries
        if before := self.step.parts:
            parts = tuple(replace(a, done=max(a.done, b.done)) for a, b in zip(before, parts or before, strict=True))
        self.step = replace(self.step, done=done, tasks=tasks, files=files, retries=retries, waits="", parts=parts)
        self._show(self.step)

    def again(self, why: str) -> None:
        """A store could not do something, and it is tried again in a moment."""
        self.step = replace(self.step, retries=self.step.retries + 1, waits=why)
        self._show(self.step)

    def update(self, n: int = 1) -> None:
        """It has come so much further; 0 only looks whether the caller wants to stop."""
        self.to(self.step.done + n, tasks=self.step.tasks, files=self.step.files)


class Listener(ABC):
    """A `progress` function that is also told each line that the user should know, in whatever thread the call runs."""

    @abstractmethod
    def __call__(self, step: ProgressEvent) -> object:
        """Where the call is."""

    @abstractmethod
    def say(self, text: str, *, always: bool) -> None:
        """One line; `always`: also where nobody looks."""


class Progress:
    """One line a phase, in a notebook one for all: `with progress.phase("listing", unit="file") as phase: phase.update(3)`.

    `show` is True, False, or a function that is called with a `ProgressEvent` several times a second. An exception in the function ends the
    call as an interrupt does: nothing is lost, and an unfinished job stays open.
    """

    def __init__(self, show: bool | Callable[[ProgressEvent], object] = True, what: str = "file") -> None:
        if not isinstance(show, bool) and not callable(show):
            raise UsageError(f"progress= takes True, False or a function of a quire.ProgressEvent, not {type(show).__name__}.")
        self.show, self.what = show, what
        self.commit = (1, 1)  # which commit is under way, of how many
        self.stop: threading.Event | None = None  # set: the call ends after the commit under way
        self._widget: Any = None  # of a notebook: shown once, however many phases and rounds there are
        self.last = Phase(ProgressEvent(""), lambda _: None)
        self._run = NOBODY
        self._told = set[str]()  # what a run has said that it says once

    @property
    def retries(self) -> int:
        """How often something was tried again so far."""
        return self.last.step.retries

    @property
    def stopping(self) -> bool:
        """Whether the call is to end after the commit under way."""
        return self.stop is not None and self.stop.is_set()

    def again(self, why: str) -> None:
        """A store could not do something, and it is tried again in a moment."""
        self.last.again(why)
        self._run.retried(why)

    @contextmanager
    def run(self, verb: str, dest: str, kind: str = "") -> Iterator[Run]:
        """A run, of which those are told who follow it (see `runs`); its report goes to `report`. One within another is a part of that."""
        if self._run is not NOBODY:
            yield Run(None, lambda _: None)
            return
        before = self.retries
        self._told.clear()
        self._run = run = Run(About(verb, printable(hide(dest)), kind), lambda text: self.say(text, always=True))
        try:
            yield run
        except BaseException as e:
            run.ended(self.retries - before, e)
            raise
        else:
            run.ended(self.retries - before)
        finally:
            self._run = NOBODY

    @contextmanager
    def phase(self, name: str, total: int | None = None, unit: str = "file") -> Iterator[Phase]:
        """A bar for one phase; it stays when the phase ends well."""
        number, commits = self.commit
        step = ProgressEvent(name, total=total, unit=unit, retries=self.retries, what=self.what, commit=number, commits=commits)
        with self._shown(step) as phase, self._run.phase(phase):
            yield phase

    @contextmanager
    def _shown(self, step: ProgressEvent) -> Iterator[Phase]:
        if callable(self.show):
            self.last = Phase(step, self.show)
            yield self.last
            return
        bar = self._bar(step)

        def move(step: ProgressEvent) -> None:
            if words := _words(step):
                bar.set_postfix_str(words, refresh=bool(step.waits))
            bar.update(step.done - bar.n)

        try:
            self.last = Phase(step, move)
            yield self.last
        finally:
            if self._widget is not None:
                bar.refresh()
            elif not bar.disable:
                if time.time() - bar.start_t >= bar.delay:  # else it was too quick to be shown
                    bar.delay = 0  # it is shown, so it ends its line
                    bar.refresh()
                bar.close()

    def say(self, text: str, *, always: bool = False) -> None:
        """One line about something that the user should know while it runs; `always`: also where nobody looks, as in a service's log."""
        self._run.said(text)
        if isinstance(self.show, Listener):
            self.show.say(text, always=always)
        elif always or (self.show is True and (sys.stderr.isatty() or _in_kernel())):
            from tqdm import tqdm

            tqdm.write(text, file=sys.stderr)

    def say_once(self, text: str) -> None:
        """A line for whoever looks, or nobody, that a run says once, however often the same thing happens in it."""
        if text not in self._told:
            self._told.add(text)
            self.say(text, always=True)

    def _bar(self, step: ProgressEvent) -> Any:
        if self._widget is not None:
            self._widget.total, self._widget.unit = step.total, step.unit
            self._widget.reset(step.total)
            self._widget.set_postfix_str("", refresh=False)
            self._widget.set_description_str(step.phase)
            return self._widget
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # tqdm warns where ipywidgets are missing, and falls back to text
            from tqdm.auto import tqdm

            widget = tqdm.__mro__[1].__module__ == "tqdm.notebook"
            bar = tqdm(
                total=step.total, desc=step.phase, unit=step.unit, unit_scale=True, leave=True, dynamic_ncols=not widget,
                disable=not self.show or (False if _in_kernel() else None),  # None: only where somebody looks
                # A widget is always shown, however fast its phase: a run's outputs must not depend on its speed.
                delay=0 if widget else 0.3,
            )  # fmt: skip
        if widget:
            self._widget = bar
        return bar


@contextmanager
def waiting(doing: str, done: str) -> Iterator[None]:
    """A line for as long as something takes that cannot say how far it is; in a notebook it becomes `done`, in a terminal it goes."""
    if threading.current_thread() is not threading.main_thread():
        yield  # of a widget, which has words of its own
    elif _in_kernel():
        with _cell_line(doing, done):
            yield
    elif sys.stderr is not None and sys.stderr.isatty():
        doing += " …"
        sys.stderr.write(doing)
        sys.stderr.flush()
        try:
            yield
        finally:
            sys.stderr.write(f"\r{' ' * len(doing)}\r")
            sys.stderr.flush()
    else:
        yield


@contextmanager
def _cell_line(doing: str, done: str) -> Iterator[None]:
    from IPython.display import display

    def shown(text: str) -> dict[str, str]:
        return {"text/plain": text, "text/html": f'<span style="color: var(--jp-ui-font-color2, inherit)">{html.escape(text)}</span>'}

    show: Any = display  # which is published without types
    began, line = time.monotonic(), show(shown(f"{doing} …"), raw=True, display_id=True)
    try:
        yield
    except BaseException:
        line.update(shown(f"{doing}: it did not work"), raw=True)
        raise
    line.update(shown(f"{done} in {time.monotonic() - began:.0f} s"), raw=True)


def _words(step: ProgressEvent) -> str:
    if step.waits:
        return printable(step.waits)
    parts = [f"commit {step.commit:,} of {step.commits:,}"] if step.commits > 1 else []
    parts += [step.accounts] if step.parts else []
    parts += [f"{step.tasks:,} tasks, {step.files:,} {step.what}s"] if step.tasks else []
    if step.retries:
        parts.append(f"{step.retries:,} {'retry' if step.retries == 1 else 'retries'}")
    return ", ".join(parts)


def _in_kernel() -> bool:
    """Whether this is a notebook's kernel, whose output is not a terminal, although somebody looks at it."""
    kernel = sys.modules.get("ipykernel.kernelapp")
    return kernel is not None and bool(kernel.IPKernelApp.initialized())
