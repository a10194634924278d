"""A question with a button for each answer, in a form: what it is about, and it takes no room while it is not open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

from quire_widgets import html
from quire_widgets.fields import button, place, shown

__all__ = ["Question"]


class Question(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """Its buttons call `answer` with True or False; `prefix` is in the classes that tell it from others, `fields` stand above them."""

    def __init__(self, prefix: str, yes: str, no: str, answer: Callable[[bool], object], *fields: Any) -> None:
        self._words = place(f"quire-{prefix}question")
        self.yes = button(yes, f"quire-{prefix}yes-button", lambda: answer(True), button_style="danger")
        refuse = button(no, f"quire-{prefix}no-button", lambda: answer(False))
        super().__init__([self._words, *fields, widgets.HBox([self.yes, refuse], layout={"margin": "4px 0"})])
        self.add_class(f"quire-{prefix}ask")
        self.ask("")

    def ask(self, words: str) -> None:
        """Open it with these words, or with "" close it."""
        shown(self._words, html.alert(words) if words else "")
        self.layout.display = None if words else "none"
