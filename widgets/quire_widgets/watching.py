"""Looking again and again in a thread of its own, and at once when somebody asks."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Watch"]


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
