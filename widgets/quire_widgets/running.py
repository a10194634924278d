"""What stands below a form's buttons while a call is under way and after it: how far it is, a button to cancel it, what came of it."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from quire_widgets import html
from quire_widgets.fields import button, place, shown

__all__ = ["Running"]


class Running(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A message, a bar, and a button that calls `cancel`; `name` is the class that tells it from others."""

    def __init__(self, name: str, cancel: Callable[[], object]) -> None:
        self._said, self._bar = place(f"quire-{name}-message"), place(f"quire-{name}-progress")
        self._cancel = button("Cancel", f"quire-{name}-cancel-button", cancel, tooltip="Stop; nothing is lost", layout={"display": "none"})
        self.message = ""
        super().__init__([self._said, self._bar, self._cancel])

    def say(self, message: str, code: str = "", *, wrong: bool = False) -> None:
        """Words, and Python to copy."""
        self.message = "\n".join(part for part in (message, code) if part)
        then = html.copyable(code, "Python to copy") if code else ""
        shown(self._said, (html.alert if wrong else html.status)(message, then=then) if message else "")

    def show(self, done: int, total: int | None, told: str) -> None:
        """How far it is."""
        shown(self._bar, html.progress(done, total, told))

    def busy(self, going: bool, *, stoppable: bool = True) -> None:
        """Whether something is under way, and whether it can be cancelled."""
        self._cancel.layout.display = None if going else "none"
        self._cancel.disabled = not (going and stoppable)
        if not going:
            shown(self._bar, "")
