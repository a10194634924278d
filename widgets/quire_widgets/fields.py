"""What forms are made of: a field with its label and right below it what is wrong with what was typed; check-boxes; buttons; places."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import ipywidgets as widgets

from quire_widgets import html

__all__ = ["Boxes", "Field", "button", "place", "shown"]

SETTLED = 0.25  # seconds
_LABEL = "7em"


class Field(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """An input with its label, which a click or a screen reader connects, and a message that goes when the value changes."""

    def __init__(self, kind: type[Any], label: str, name: str, **settings: Any) -> None:
        # The whole width for a text, so that a path is seen; the label is as wide in every field.
        width = "auto" if issubclass(kind, widgets.Text) else "18em"
        style = {"description_width": _LABEL}
        self.input = kind(description=label, style=style, layout={"width": width}, **settings)
        self.input.add_class(f"quire-{name}")
        self._message = widgets.HTML(layout={"display": "none", "margin": f"0 2px 0 calc({_LABEL} + 6px)"})
        super().__init__([self.input, self._message], layout={"max_width": "56em"})
        self.input.observe(lambda _: self.say(""), "value")

    def say(self, message: str) -> None:
        """Say what is wrong, or with "" nothing."""
        shown(self._message, html.alert(message) if message else "")

    def on_enter(self, act: Callable[[], object]) -> None:
        """Call `act` when Enter is pressed in a text."""

        # on_submit is deprecated, and what takes its place says the value only when the field is left. The browser holds the last
        # letters back until the kernel has answered the first ones, and Enter overtakes them: so wait for them.
        def pressed(_: object, content: dict[str, Any], __: object) -> None:
            if content.get("event") == "submit":
                timer = threading.Timer(SETTLED, act)
                timer.daemon = True
                timer.start()

        self.input.on_msg(pressed)


class Boxes(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A check-box for each of some words, with what it means, and right below them what is wrong with what was ticked."""

    def __init__(self, label: str, name: str, words: Mapping[str, str], ticked: Callable[[], object]) -> None:
        self._ticked, self._filling = ticked, False
        self._boxes = {word: widgets.Checkbox(description=f"{word}: {means}", indent=False) for word, means in words.items()}
        for word, box in self._boxes.items():
            box.layout.width = "auto"
            box.add_class(f"quire-{name}-{word}")
            box.observe(self._changed, "value")
        title = widgets.HTML(html.block(f"<strong>{html.text(label)}</strong>"))
        self._message = widgets.HTML(layout={"display": "none"})
        super().__init__([title, *self._boxes.values(), self._message], layout={"max_width": "56em"})
        self.add_class(f"quire-{name}")

    @property
    def words(self) -> tuple[str, ...]:
        """Those that are ticked, in their order."""
        return tuple(word for word, box in self._boxes.items() if box.value)

    def fill(self, words: Iterable[str]) -> None:
        """Tick these and no others; nobody is told."""
        self._filling, chosen = True, set(words)
        try:
            for word, box in self._boxes.items():
                box.value = word in chosen
        finally:
            self._filling = False

    def _changed(self, _: object) -> None:
        if not self._filling:
            self._ticked()

    def say(self, message: str) -> None:
        """Say what is wrong, or with "" nothing."""
        shown(self._message, html.alert(message) if message else "")


def shown(place: Any, content: str) -> None:
    """Put HTML into a widget; an empty one takes no room."""
    place.value = content
    place.layout.display = None if content else "none"


def button(label: str, css: str, act: Callable[[], object], **settings: Any) -> Any:
    """A button that calls `act`; `css` is the class that tells it from others."""
    made = widgets.Button(description=label, **settings)
    made.add_class(css)
    made.on_click(lambda _: act())
    return made


def place(css: str) -> Any:
    """A place for HTML, which takes no room while it is empty."""
    made = widgets.HTML(layout={"display": "none"})
    made.add_class(css)
    return made
