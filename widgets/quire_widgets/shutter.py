"""A part that opens on request and stays as it is while its content changes, unlike what a browser opens by itself."""

from __future__ import annotations

from collections.abc import Callable

import ipywidgets as widgets

from quire_widgets.fields import button, place, shown

__all__ = ["Shutter"]


class Shutter(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A button, and below it what `draw()` gives as HTML, made only while it is open. Where there is nothing to show there is no button."""

    def __init__(self, name: str, label: str, draw: Callable[[], str]) -> None:
        self._draw, self._label, self.opened = draw, label, False
        self._button = button(
            f"Show {label}", f"quire-{name}-button", self.turn, layout={"width": "auto", "align_self": "flex-start", "display": "none"}
        )
        self._inside = place(f"quire-{name}")
        super().__init__([self._button, self._inside])

    def turn(self) -> None:
        """Open it, or close it."""
        self.opened = not self.opened
        self._button.description = f"{'Hide' if self.opened else 'Show'} {self._label}"
        self.show(True)

    def show(self, there: bool) -> None:
        """Draw it anew if it is open; `there`: whether there is anything to show."""
        self._button.layout.display = None if there else "none"
        shown(self._inside, self._draw() if there and self.opened else "")
