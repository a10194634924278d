"""Work in threads of its own, so that the kernel stays free: a call that is watched and stopped on request, and what became of its job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import quire
from quire import ProgressEvent
from quire.arguments import format_size
from quire_widgets import as_code

_PAUSE = 0.1  # seconds between two messages to the browser
_UNITS = {
    "file": (" file", " files"),
    "dir": (" directory", " directories"),
    "partition": (" partition", " partitions"),
    "segment": (" part of the ledger", " parts of the ledger"),
}  # one, many
_STEADY = 0.5  # seconds after which a speed can be told


class Stopped(BaseException):
    """Raised by the progress function to end a call, as an interrupt would."""


class Call:
    """`act(progress)` in a thread, then `ended(answer, error)` there; `show(done, total, words)` meanwhile."""

    def __init__(
        self,
        act: Callable[[Callable[[ProgressEvent], None]], Any],
        ended: Callable[[Any, BaseException | None], None],
        show: Callable[..., None],
    ) -> None:
        self._act, self._ended, self._show = act, ended, show
        self._stop, self._over = threading.Event(), threading.Event()
        self._shown = 0.0
        self._first: tuple[float, int] | None = None  # when the first tasks were done, and how many files they had
        self.phase = ""
        self._thread = threading.Thread(target=self._run, name="quire-widget", daemon=True)

    def start(self) -> None:
        """Begin, once."""
        self._thread.start()

    def stop(self) -> None:
        """End at the next sign of life, which is several times a second."""
        self._stop.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over, `ended` included; False if it is not yet."""
        return self._over.wait(timeout)

    def _run(self) -> None:
        answer, error = None, None
        try:
            answer = self._act(self._progress)
        except BaseException as e:  # whatever it is, it is told in the widget; a thread has nobody else to tell
            error = e
        try:
            self._ended(answer, error)
        finally:
            self._over.set()

    def _progress(self, step: ProgressEvent) -> None:
        now = time.monotonic()
        if step.phase != self.phase:
            self.phase, self._first, self._shown = step.phase, None, 0.0
        if self._first is None and step.tasks:
            self._first = (now, step.files)  # tasks of an earlier call, which this one resumes, are not its own work
        if self._stop.is_set():
            raise Stopped
        if now - self._shown >= _PAUSE or step.done == step.total or step.waits:
            self._shown = now
            self._show(step.done, step.total, self._words(step, now))

    def _words(self, step: ProgressEvent, now: float) -> str:
        amount = format_size if step.unit == "B" else "{:,}".format
        total = f" of {amount(step.total)}" if step.total is not None else ""
        unit = _UNITS.get(step.unit, ("", ""))[step.done != 1 if step.total is None else step.total != 1]
        parts = [f"{step.phase}: {amount(step.done)}{total}{unit}"]
        if step.parts:
            parts.append(step.accounts)
        if step.tasks:
            parts += [f"tasks done: {step.tasks:,}", f"{step.what}s: {step.files:,}"]
        if step.what == "file" and self._first is not None and now - self._first[0] > _STEADY:
            parts.append(f"{(step.files - self._first[1]) / (now - self._first[0]):,.0f} files/s")
        if step.waits:
            parts.append(step.waits)
        elif step.retries:
            parts.append(f"retries: {step.retries:,}")
        return ", ".join(parts)


class Watch:
    """`look()` in one thread: each time it is asked for, and while it is on, so many seconds after the last time.

    The thread ends where nothing is to be done, and begins again when something is. One thread, since clients stay open in it.
    """

    def __init__(self, look: Callable[[], object], pause: float) -> None:
        self._look, self._pause = look, pause
        self._state = threading.Condition()
        self._on, self._asked, self._done = False, 0, 0
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Look once more, as soon as the look under way is over."""
        with self._state:
            self._asked += 1
            self._go_on()

    def on(self, going: bool) -> None:
        """Whether to look by itself."""
        with self._state:
            self._on = going
            self._go_on()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for what was asked for until now; False if it has not come in time."""
        with self._state:
            asked = self._asked
            return self._state.wait_for(lambda: self._done >= asked, timeout)

    def _go_on(self) -> None:
        self._state.notify_all()
        if self._thread is None and (self._on or self._asked != self._done):
            self._thread = threading.Thread(target=self._run, name="quire-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._state:
                if self._asked == self._done:
                    self._state.wait_for(lambda: self._asked != self._done or not self._on, self._pause)
                if self._asked == self._done and not self._on:
                    self._thread = None
                    return
                number = self._asked
            try:
                self._look()
            except BaseException:
                with self._state:
                    self._thread = None  # another one begins when somebody asks; what was raised is told as of any thread
                raise
            finally:
                with self._state:
                    self._done = number
                    self._state.notify_all()


class Watches:
    """Several of them as one: none waits for another."""

    def __init__(self, watches: Iterable[Watch]) -> None:
        self._all = tuple(watches)

    def ask(self) -> None:
        """See `Watch`."""
        for each in self._all:
            each.ask()

    def on(self, going: bool) -> None:
        """See `Watch`."""
        for each in self._all:
            each.on(going)

    def wait(self, timeout: float | None = None) -> bool:
        """See `Watch`; all of them have the time together."""
        end = None if timeout is None else time.monotonic() + timeout
        return all(each.wait(None if end is None else max(0.0, end - time.monotonic())) for each in self._all)


def options_of(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The options of a call's destination."""
    return {**(settings.get("storage_options") or {}), **(settings.get("dest_options") or {})} or None


def what_now(dest: str, settings: Mapping[str, Any], phase: str, *, planning: bool) -> tuple[str, str]:
    """Return words for the user, and Python to copy ("" if there is nothing to do). `phase` is where the call was stopped."""
    if planning:
        return "Cancelled while looking: nothing was changed.", ""
    found = None
    with suppress(quire.QuireError):  # no ledger yet, or the store is away: then the words go by the phase
        found = quire.Ledger(dest, options_of(settings)).summary()
    if found.unpublished if found else phase == "publishing":
        words = "Cancelled after the commit: the files are committed, and not all of them are published yet. Run again publishes the rest"
        return f"{words}, and so does:", as_code.recover(dest, settings, abort=False)
    if found.open_jobs if found else phase == "gathering":
        all_of_them = f" (all {len(found.open_jobs)} open jobs there)" if found and len(found.open_jobs) > 1 else ""
        words = (
            f"Cancelled: what is done is kept, and none of it is visible. Run again goes on where it stopped. To give it up{all_of_them}:"
        )
        return words, as_code.recover(dest, settings, abort=True)
    if found and found.commits:
        return f"Cancelled: no job is open, and what was committed stays ({found.files:,} files, version {found.version}).", ""
    return "Cancelled before anything was gathered: no job is open. Run again begins anew.", ""


def _left(
    ledger: quire.Ledger, dest: str, settings: Mapping[str, Any], unpublished: str, unfinished: str, otherwise: str
) -> tuple[str, str]:
    """One of three sentences: not all is published, a job is open, or nothing is left to do."""
    found = ledger.refresh().summary()
    if found.unpublished:
        return f"{unpublished}, and so does:", as_code.recover(dest, settings, abort=False)
    if found.open_jobs:
        return f"{unfinished} To give it up:", as_code.recover(dest, settings, abort=True)
    return otherwise.format(version=found.version), ""


def after_change(ledger: quire.Ledger, dest: str, options: Mapping[str, Any] | None, verb: str) -> tuple[str, str]:
    """The same after a change of a ledger, which a retry or a forget is."""
    return _left(
        ledger, dest, {"storage_options": options},
        f"Cancelled after the commit: the {verb} counts, and not all of it is published yet. The next call publishes it",
        f"Cancelled: nothing of the {verb} is visible, and nothing is lost. The same again goes on.",
        "Cancelled: no job is open, and what was committed stays.",
    )  # fmt: skip


def after_load(ledger: quire.Ledger, dest: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """The same after a load that was stopped in the middle of a commit."""
    return _left(
        ledger, dest, settings,
        "Stopped after the commit: its records count, and not all of its files are published yet. Resume publishes the rest",
        "Stopped at once: what is done is kept, and none of it is visible. Resume goes on with its plan.",
        "Stopped at once: no job is open, and what was committed stays (version {version}).",
    )  # fmt: skip
