"""The base of forms that look: one call at a time, and of those that were asked for meanwhile the last one follows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from quire_widgets.form import Form

Act = Callable[[], tuple[Any, ...]]


class QueuedForm(Form):
    """A form whose calls only look, so that one more can be asked for at any time; it is shown in the thread of its call."""

    BUSY: tuple[str, ...]  # states in which a call is under way

    def __init__(self, css: str) -> None:
        super().__init__(css)
        self._next: tuple[str, Act, Callable[..., None]] | None = None

    def _begin(self, state: str, act: Act, show: Callable[..., None]) -> None:
        with self._begin_lock:
            if self.state in self.BUSY:
                self._next = (state, act, show)
                return
            self.error = None
            self._running.say("")
            for field in self._fields.values():
                field.say("")
            self._start(state, lambda _: act(), lambda answer, error: self._ended(show, answer, error))

    def _ended(self, show: Callable[..., None], answer: Any, error: BaseException | None) -> None:
        """Show what a call has given, in its thread, and begin the one that was asked for meanwhile."""
        try:
            if error is None:
                show(*answer)
            else:
                self._tell(error)
            with self._begin_lock:
                self._running.quiet()
                self._set_state("done" if error is None else "failed")
                after, self._next = self._next, None
                if after is not None:
                    self._begin(*after)
        except Exception as e:  # an observer of the user's: one line too
            self._next = None
            self._running.quiet()
            self._fail(e)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way, at most `timeout` seconds; return whether that is so."""
        end = None if timeout is None else time.monotonic() + timeout
        while (call := self._call) is not None:
            if not call.wait(None if end is None else max(end - time.monotonic(), 0)):
                return False
            if call is self._call:
                break
        return True
