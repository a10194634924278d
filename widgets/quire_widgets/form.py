"""The parts of forms: fields with their label and their error, buttons, places, questions, running calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import ipywidgets as widgets
import traitlets

from quire.errors import QuireError, choose, scrub
from quire_widgets import html
from quire_widgets.call import Call, Watch, Watches

SETTLED = 0.25  # seconds
FIRST = 3.0  # seconds that a first look may take before the widget is there without it
_LABEL = "7em"


class Choice(traitlets.Unicode):  # type: ignore[type-arg]  # it holds text alone
    """A trait that is one of some words, at first the first one; UsageError for another."""

    def __init__(self, words: Iterable[str], help: str) -> None:
        self.words = tuple(words)
        super().__init__(self.words[0], help=help)

    def validate(self, obj: Any, value: Any) -> str:
        return choose(super().validate(obj, value), self.words, self.name or "")


class Form(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """The base of widgets over quire's calls: one call at a time in a thread of its own, and a static page without a kernel.

    A widget has a trait `state` beside these, and lays out its parts: places for HTML by their names, fields, buttons.
    """

    error = traitlets.Instance(BaseException, allow_none=True, help="why the last call failed")
    code = traitlets.Unicode(help="the same as Python, without secrets")

    def __init__(self, css: str) -> None:
        super().__init__()
        self.add_class(css)
        self._call: Call | None = None
        self._begin_lock = threading.RLock()  # an observer of the state may cancel
        self._places = dict[str, Any]()
        self._fields = dict[str, Field | Boxes]()
        self._buttons = dict[str, Any]()
        self._running = Running("")

    # --------------------------------------------------------------------------------------------------------------------- parts
    def _lay_out(self, *parts: Any) -> None:
        """Put parts below one another: a text is a place for HTML of that name, and a list stands side by side."""
        self.children = [self._laid(part) for part in parts]

    def _laid(self, part: Any) -> Any:
        if isinstance(part, list):
            return widgets.HBox(part, layout={"margin": "4px 0", "flex_flow": "row wrap"})
        return self._places.setdefault(part, place(part)) if isinstance(part, str) else part

    def _put(self, name: str, content: str) -> None:
        shown(self._places[name], content)

    def _button(self, label: str, act: Callable[[], object], **settings: Any) -> Any:
        """A button, which is found by the first word of its label."""
        name = label.lower().partition(" ")[0]
        self._buttons[name] = made = button(label, f"quire-{name}-button", act, **settings)
        return made

    def _show_code(self, code: str, before: str = "The same as Python:") -> None:
        self.code = code
        self._put("code", html.same(code, before))

    # ---------------------------------------------------------------------------------------------------------------------- calls
    def _start(self, state: str, act: Callable[..., Any], ended: Callable[[Any, BaseException | None], None]) -> None:
        """Begin a call, whose `ended` is called in its thread."""
        self._call = Call(act, ended, self._show_progress)
        self._show_progress(0, None, "starting")
        try:
            self._set_state(state)
            self._call.start()
        except Exception as e:  # an observer of the user's, or one thread too many: else it would be under way for ever
            self._call = None
            self._running.quiet()
            self._fail(e)

    def _show_progress(self, done: int, total: int | None, told: str) -> None:
        if self.state != "cancelling":
            self._running.show(done, total, told)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until nothing is under way, at most `timeout` seconds; return whether that is so."""
        return self._call is None or self._call.wait(timeout)

    def _tell(self, error: BaseException) -> None:
        """One line, beside the field that the error is about or below the buttons; never a traceback."""
        self.error = error
        field = self._fields.get(getattr(error, "argument", None) or "")
        if field is None or field.off:
            self._running.say(line(error), wrong=True)
        else:
            self._running.message = line(error)
            field.say(line(error))

    def _fail(self, error: BaseException) -> None:
        self._tell(error)
        self._set_state("failed")

    def _set_state(self, state: str) -> None:
        self.state = state

    # ---------------------------------------------------------------------------------------------------------- without a kernel
    def _lines(self) -> Iterable[str]:
        """The present state as paragraphs of text; empty ones count for nothing."""
        raise NotImplementedError

    def _page(self) -> str:
        """The present state as HTML, for a page without a kernel."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n\n".join(filter(None, self._lines()))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        """The widget, and what stands in its place without a kernel: the present state as a page, and as text."""
        return {**super()._repr_mimebundle_(**kwargs), "text/plain": repr(self), "text/html": self._page()}


class WatchForm(Form):
    """The base of those that look again by themselves, as long as somebody sees them."""

    watching = traitlets.Bool(True, help="whether it looks again by itself")

    def __init__(self, css: str, watch: Watch | Watches, pause: float) -> None:
        super().__init__(css)
        self._watch, self._pause = watch, pause
        self._unseen = False  # it was shown, and is not any more

    def _watch_box(self) -> Any:
        """The box to tick for it."""
        box = widgets.Checkbox(description=f"look every {self._pause:g} s", indent=False, layout={"width": "auto"})
        box.add_class("quire-watch")
        traitlets.link((box, "value"), (self, "watching"))
        return box

    def _begin(self, watch: bool) -> None:
        """Look for the first time, and go on with it where `watch` says so."""
        self._watch.ask()
        self._watch.wait(FIRST)
        self.watching = watch
        self._follow_watching()
        self._view_count = 0  # so that the browser says how many views there are
        self.observe(self._viewed, "_view_count")

    def refresh(self) -> None:
        """Look now, in the background; `wait` waits for it."""
        self._watch.ask()

    @traitlets.observe("watching")
    def _follow_watching(self, _: object = None) -> None:
        self._watch.on(self._looks())

    def _looks(self) -> bool:
        """Whether it has to look by itself now."""
        return self.watching and not self._unseen

    def _viewed(self, change: Mapping[str, Any]) -> None:
        """Where nobody sees it any more, it does not look; where somebody does again, at once."""
        gone, back = change["new"] == 0, self._unseen and change["new"]
        self._unseen = gone
        self._follow_watching()
        if back and self.watching:
            self.refresh()

    def close(self) -> None:
        """Look no more."""
        if watch := getattr(self, "_watch", None):  # else its arguments were wrong
            watch.on(False)
        super().close()


class CancelForm(Form):
    """The base of those whose calls can be cancelled."""

    BUSY: tuple[str, ...]  # states in which a call is under way, "cancelling" among them
    CANCELLING = "cancelling"  # what is said until the call has stopped

    def cancel(self) -> None:
        """Stop what is under way; nothing is lost. A job that was begun stays open, and the same call resumes it."""
        with self._begin_lock:
            if self._call is not None and self.state in self.BUSY and self.state != "cancelling":
                self._call.stop()
                self._running.show(0, None, self.CANCELLING)
                self._set_state("cancelling")


class Saying(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """The base of fields: a message about what was entered, right below it."""

    def __init__(self, parts: Iterable[Any], **layout: str) -> None:
        self._message = widgets.HTML(layout={"display": "none", **layout})
        super().__init__([*parts, self._message], layout={"max_width": "56em"})

    @property
    def off(self) -> bool:
        """Whether nothing can be entered."""
        return False

    def say(self, message: str) -> None:
        """Say what is wrong, or with "" nothing."""
        shown(self._message, html.alert(message) if message else "")


class Field(Saying):
    """An input with its label, which a click or a screen reader connects, and a message that goes when the value changes."""

    def __init__(self, kind: type[Any], label: str, name: str, **settings: Any) -> None:
        # The whole width for a text, so that a path is seen; the label is as wide in every field.
        width = "auto" if issubclass(kind, widgets.Text) else "18em"
        style = {"description_width": _LABEL}
        self.input = kind(description=label, style=style, layout={"width": width}, **settings)
        self.input.add_class(f"quire-{name}")
        super().__init__([self.input], margin=f"0 2px 0 calc({_LABEL} + 6px)")
        self.input.observe(lambda _: self.say(""), "value")

    @property
    def off(self) -> bool:
        return bool(self.input.disabled)

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


class Boxes(Saying):
    """A check-box for each of some words, with what it means, and right below them what is wrong with what was ticked."""

    def __init__(self, label: str, name: str, words: Mapping[str, str], ticked: Callable[[], object]) -> None:
        self._ticked, self._filling = ticked, False
        self._boxes = {word: widgets.Checkbox(description=f"{word}: {means}", indent=False) for word, means in words.items()}
        for word, box in self._boxes.items():
            box.layout.width = "auto"
            box.add_class(f"quire-{name}-{word}")
            box.observe(self._changed, "value")
        title = widgets.HTML(html.block(f"<strong>{html.text(label)}</strong>"))
        super().__init__([title, *self._boxes.values()])
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


class Turners(widgets.HBox):  # type: ignore[misc]  # ipywidgets is published without types
    """Buttons that call `turn` with None for the first page, -1 and 1."""

    def __init__(self, turn: Callable[[int | None], object]) -> None:
        pages = (("First", None), ("Previous", -1), ("Next", 1))
        super().__init__(
            [button(label, f"quire-{label.lower()}-button", partial(turn, by)) for label, by in pages], layout={"flex_flow": "row wrap"}
        )

    def allow(self, back: bool, on: bool) -> None:
        """Whether there are pages before and behind."""
        for one, possible in zip(self.children, (back, back, on), strict=True):
            one.disabled = not possible


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


def place(name: str) -> Any:
    """A place for HTML of the class `quire-name`, which takes no room while it is empty."""
    made = widgets.HTML(layout={"display": "none"})
    made.add_class(f"quire-{name}")
    return made


class Question(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """Its buttons call `answer` with True or False; `prefix` is in the classes that tell it from others, `fields` stand above them."""

    def __init__(self, prefix: str, yes: str, no: str, answer: Callable[[bool], object], *fields: Any) -> None:
        self._words = place(f"{prefix}question")
        self.yes = button(yes, f"quire-{prefix}yes-button", lambda: answer(True), button_style="danger")
        refuse = button(no, f"quire-{prefix}no-button", lambda: answer(False))
        super().__init__([self._words, *fields, widgets.HBox([self.yes, refuse], layout={"margin": "4px 0"})])
        self.add_class(f"quire-{prefix}ask")
        self.ask("")

    def ask(self, words: str) -> None:
        """Open it with these words, or with "" close it."""
        shown(self._words, html.alert(words) if words else "")
        self.layout.display = None if words else "none"


class Shutter(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A button, and below it what `draw()` gives as HTML, made only while it is open. Without anything to show the button is missing."""

    def __init__(self, name: str, label: str, draw: Callable[[], str]) -> None:
        self._draw, self._label, self.opened = draw, label, False
        self._button = button(
            f"Show {label}", f"quire-{name}-button", self.turn, layout={"width": "auto", "align_self": "flex-start", "display": "none"}
        )
        self._inside = place(name)
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


class Running(widgets.VBox):  # type: ignore[misc]  # ipywidgets is published without types
    """A message, a bar, and with `cancel` a button that calls it; `prefix` is in the classes that tell it from others."""

    def __init__(self, prefix: str, cancel: Callable[[], object] = lambda: None) -> None:
        self._said, self._bar = place(f"{prefix}message"), place(f"{prefix}progress")
        self._cancel = button("Cancel", f"quire-{prefix}cancel-button", cancel, tooltip="Stop; nothing is lost", layout={"display": "none"})
        self.message = ""
        super().__init__([self._said, self._bar, *([self._cancel] if prefix else [])])

    def say(self, message: str, code: str = "", *, wrong: bool = False) -> None:
        """Words, and Python to copy."""
        self.message = "\n".join(part for part in (message, code) if part)
        then = html.copyable(code, "Python to copy") if code else ""
        shown(self._said, (html.alert if wrong else html.status)(message, then=then) if message else "")

    def show(self, done: int, total: int | None, told: str) -> None:
        """How far it is."""
        shown(self._bar, html.progress(done, total, told))

    def quiet(self) -> None:
        """Nothing is under way."""
        shown(self._bar, "")

    def busy(self, going: bool, *, stoppable: bool = True) -> None:
        """Whether something is under way, and whether it can be cancelled."""
        self._cancel.layout.display = None if going else "none"
        self._cancel.disabled = not (going and stoppable)
        if not going:
            self.quiet()


def line(error: BaseException) -> str:
    """An error in one line, without secrets."""
    return str(error) if isinstance(error, QuireError) else scrub(f"{type(error).__name__}: {error}".removesuffix(": "), 600)
