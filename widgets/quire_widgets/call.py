"""One call of quire's in a thread of its own, so that the kernel stays free: watched, and stopped on request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from quire import Step
from quire.arguments import format_size

__all__ = ["Call", "Stopped"]

_PAUSE = 0.1  # seconds between two messages to the browser
_UNITS = {
    "file": (" file", " files"),
    "dir": (" directory", " directories"),
    "partition": (" partition", " partitions"),
    "segment": (" part of the ledger", " parts of the ledger"),
}  # one, many
_STEADY = 0.5  # seconds after which a speed can be told


class Stopped(BaseException):
    """What the progress function raises to end a call, as an interrupt would."""


class Call:
    """`act(progress)` in a thread, then `ended(answer, error)` there; `show(done, total, words)` meanwhile."""

    def __init__(
        self, act: Callable[[Callable[[Step], None]], Any], ended: Callable[[Any, BaseException | None], None], show: Callable[..., None]
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

    def _progress(self, step: Step) -> None:
        now = time.monotonic()
        if step.phase != self.phase:
            self.phase, self._first, self._shown = step.phase, None, 0.0
        if self._first is None and step.tasks:
            self._first = (now, step.files)  # tasks of an earlier call, which this one goes on with, are no work of its own
        if self._stop.is_set():
            raise Stopped
        if now - self._shown >= _PAUSE or step.done == step.total or step.waits:
            self._shown = now
            self._show(step.done, step.total, self._words(step, now))

    def _words(self, step: Step, now: float) -> str:
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
            parts.append(f"tried again: {step.retries:,}")
        return ", ".join(parts)
