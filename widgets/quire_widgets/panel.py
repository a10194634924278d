"""The main job as a form: look, run, watch, cancel; and the same call as Python."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import ipywidgets as widgets
import traitlets

import quire
from quire import AllQuarantined, Plan, ProgressEvent, QuireError, Report, Sniffed, UsageError, display
from quire.engine.request import PLANNERS, check_names
from quire.errors import choose, scrub
from quire.formats import TRANSFORMS
from quire_widgets import as_code, html, pages
from quire_widgets.call import Stopped, what_now
from quire_widgets.form import CancelForm, Choice, Field
from quire_widgets.skew_view import SkewView, page_of

TOO_LATE = "It was over before it could be cancelled."
BUSY = ("looking", "planning", "running", "cancelling")
_NAMES = {
    "source": "source",
    "dest": "destination",
    "planner": "planner",
    "parts": "parts",
    "transform": "transform",
    "target_size": "target size",
}


class ConsolidationPanel(CancelForm):
    """`quire.consolidate` as a form. *Look* says what lies at the source, and fills in the transform that takes it; *Plan* shows what a run
    would do, *Run* does it in the background, *Cancel* stops it and loses nothing.

    source, dest, planner, parts, transform, target_size    the fields; traits that can be set and observed
    spark, **settings      as for `quire.consolidate`, unchanged

    .look() .plan() .run() .cancel()    what the buttons do; they return at once. While one call is under way, another is not begun
    .wait(timeout)         wait for the end; False if the time was too short
    .state                 "idle" | "looking" | "planning" | "running" | "cancelling" | "done" | "failed" | "cancelled"
    .found .planned .result .error    the Sniffed, the Plan, the Report or the exception of the last call, else None
    .code                  the same call as Python, without secrets

        panel = ConsolidationPanel("/data/in", "/data/out", compression="zstd")
        panel.look(); panel.wait(60), panel.found.call
        panel.plan(); panel.wait(60)
        panel.run(); panel.cancel(); panel.wait(60), panel.result

    Observers are called in the thread that does the work. Raises UsageError for `settings` that do not exist.
    """

    BUSY = BUSY
    CANCELLING = "cancelling: what is done is kept"

    source = traitlets.Unicode(help="what to gather: a directory's path or URL, or a glob")
    dest = traitlets.Unicode(help="where to")
    planner = Choice(PLANNERS, "how files are dealt out to tasks")
    parts = traitlets.Int(8, help="parts of a directory, for the planner hash")
    transform = traitlets.Any(TRANSFORMS[0], help="what becomes of a file's content")
    target_size = traitlets.Unicode("256 MiB", help="size of a data file, with its unit")
    found = traitlets.Instance(Sniffed, allow_none=True, help="what the last look has found at the source")
    planned = traitlets.Instance(Plan, allow_none=True, help="the plan that was looked at, until it is run")
    result = traitlets.Instance(Report, allow_none=True, help="what the last run did")
    state = traitlets.Enum(("idle", *BUSY, "done", "failed", "cancelled"), "idle", help="where it is")

    def __init__(
        self, source: str | os.PathLike[str] = "", dest: str | os.PathLike[str] = "", *, spark: Any = None, planner: str = "balanced",
        parts: int = 8, transform: str | Callable[..., Any] = "lines", target_size: str | int = "256 MiB", **settings: Any,
    ) -> None:  # fmt: skip
        _check_settings(settings)
        first = {
            "source": _path(source, "source"), "dest": _path(dest, "dest"), "planner": planner, "parts": parts, "transform": transform,
            "target_size": str(target_size),
        }  # fmt: skip
        super().__init__("quire-panel")
        self._spark, self._settings = spark, settings
        self._looked: list[str] = []  # the settings that a look has filled in
        self._planned_for: dict[str, Any] | None = None  # the arguments that `planned` is of
        self._build()
        for name, value in first.items():
            self._connect(name)
            setattr(self, name, value)
            _fill(self._fields[name].input, getattr(self, name))  # nothing follows where a value is the default
        self._follow()

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        text, choice = widgets.Text, widgets.Dropdown
        self._fields = {
            "source": Field(text, "source", "source", placeholder="/data/in, or a glob"),
            "dest": Field(text, "destination", "dest", placeholder="/data/out"),
            "planner": Field(choice, "planner", "planner", options=PLANNERS),
            "parts": Field(widgets.IntText, "parts", "parts", value=8),
            "transform": Field(choice, "transform", "transform", options=TRANSFORMS),
            "target_size": Field(text, "target size", "target-size"),
        }
        for name in ("source", "dest", "target_size"):
            self._fields[name].on_enter(self.plan)
        verbs = [
            self._button("Look", self.look, tooltip="Read the beginnings of some files: which kinds they are, and what takes them"),
            self._button("Plan", self.plan, tooltip="Look first: nothing is gathered"),
            self._button("Run", self.run, button_style="primary", tooltip="Gather, in the background"),
            self._button("Cancel", self.cancel, disabled=True, tooltip="Stop; nothing is lost"),
        ]
        self._skew = SkewView()
        self._lay_out(*self._fields.values(), verbs, self._running, "look", "code", "plan", "result", self._skew)

    def _connect(self, name: str) -> None:
        """Field and trait follow each other."""
        given = self._fields[name].input
        given.observe(lambda change: self._typed(name, change["new"]), "value")
        self.observe(lambda change: _fill(given, change["new"]), name)

    def _typed(self, name: str, value: Any) -> None:
        """Take what a field holds; a space that was pasted with a path is not part of its name."""
        if value != getattr(self, name):
            setattr(self, name, value.strip() if isinstance(value, str) else value)

    @traitlets.validate("transform")
    def _check_transform(self, proposal: Mapping[str, Any]) -> Any:
        value = proposal["value"]
        return value if callable(value) else choose(value, TRANSFORMS, "transform")

    @traitlets.observe(*_NAMES)
    def _follow(self, _: object = None) -> None:
        """The parts that depend on the fields."""
        self._fields["parts"].input.disabled = self.planner != "hash"
        self._show_code(as_code.consolidate(self.source, self.dest, self._spark, self._arguments()), "The same call as Python:")
        if self.planned is not None and self.state not in BUSY:
            self._running.say(self._stale())

    def _stale(self) -> str:
        same = self._planned_for == self._what()
        return "" if same else "The fields have changed since this plan. Plan looks again; Run goes by the fields."

    def _arguments(self) -> dict[str, Any]:
        """The panel's arguments, besides source and destination."""
        dealt = {"planner": self.planner, **({"parts": self.parts} if self.planner == "hash" else {})}
        return {**dealt, "transform": self.transform, "target_size": self.target_size, **self._settings}

    def _what(self) -> dict[str, Any]:
        """All of a call's arguments."""
        return {"source": self.source, "dest": self.dest, **self._arguments()}

    # ----------------------------------------------------------------------------------------------------------------- the verbs
    def look(self) -> None:
        """Look at some files of the source; the transform, with its settings, becomes the one that takes most of them."""
        what = self._what()
        options = {**(self._settings.get("storage_options") or {}), **(self._settings.get("source_options") or {})} or None
        which = {name: self._settings[name] for name in ("include", "exclude", "hidden") if name in self._settings}
        self._begin("looking", lambda _: quire.sniff(self.source, storage_options=options, **which), what, ("source",))

    def plan(self) -> None:
        """Look at what `run` would do: how much there is, its tasks, and whether they are even."""
        what, before = self._what(), self.planned

        def look(progress: Callable[[ProgressEvent], None]) -> Plan:
            if before is not None:
                before.discard()
            return quire.plan(spark=self._spark, progress=progress, **what)

        self._begin("planning", look, what)

    def run(self) -> None:
        """Do it: the plan that was looked at if the fields are the same, else what the fields say."""
        what, before = self._what(), self.planned
        seen = self._planned_for == what

        def gather(progress: Callable[[ProgressEvent], None]) -> Report:
            try:
                if before is not None and seen:
                    return before.run(progress=progress)
                return quire.consolidate(spark=self._spark, progress=progress, **what)
            finally:
                if before is not None:  # what was not begun is not needed any more; what was begun stays
                    with suppress(QuireError):
                        before.discard()

        self._begin("running", gather, what)

    def _begin(
        self, state: str, act: Callable[[Callable[[ProgressEvent], None]], Any], what: dict[str, Any],
        needs: Sequence[str] = ("source", "dest"),
    ) -> None:  # fmt: skip
        with self._begin_lock:  # a double click begins one call
            if self.state in BUSY:
                return
            for field in self._fields.values():
                field.say("")
            self._running.say("")
            self.error = None
            if not self._complete(needs):
                return
            self.result = None
            self._put("result", "")
            if state == "looking":
                self.found = None
                self._put("look", "")
            self._start(state, act, lambda answer, error: self._ended(state, what, answer, error))

    def _complete(self, needs: Sequence[str]) -> bool:
        """Say beside each field what is missing."""
        empty = [name for name in needs if not getattr(self, name).strip()]
        for name in reversed(empty):
            wanted = {"source": "what to gather: a directory, its URL, or a glob", "dest": "where to gather: a directory of quire's own"}
            missing = UsageError(f"The {_NAMES[name]} is empty. Say {wanted[name]}.")
            missing.argument = name
            self._fail(missing)
        return not empty

    # ------------------------------------------------------------------------------------------- what a call ends with (its thread)
    def _ended(self, state: str, what: dict[str, Any], answer: Any, error: BaseException | None) -> None:
        planning, stopping = state == "planning", self.state == "cancelling"
        phase = self._call.phase if self._call else ""
        self._running.quiet()
        try:
            if error is None and state == "looking":
                self._show_found(answer)
                self._set_state("idle")
            elif error is None and planning:
                self._show_plan(answer, what)
                self._running.say(TOO_LATE if stopping else self._stale())
                self._set_state("idle")
            elif error is None:
                self._show_plan(None, None)
                self._show_result(answer)
                self._running.say(TOO_LATE if stopping else "")
                self._set_state("done")
            else:
                self._show_plan(None, None)
                if isinstance(error, Stopped):
                    self._running.say(*what_now(what["dest"], self._settings, phase, planning=planning))
                    self._set_state("cancelled")
                else:
                    if isinstance(error, AllQuarantined):
                        self._show_result(error.report)
                    self._fail(error)
        except Exception as e:  # an observer of the user's, or a picture: one line too
            self._fail(e)

    def _show_found(self, found: Sniffed) -> None:
        for name in self._looked:  # what an earlier look has set
            self._settings.pop(name, None)
        self._looked = [name for name in found.settings if name not in self._settings]
        self._settings |= {name: found.settings[name] for name in self._looked}
        if found.transform:
            self.transform = found.transform
        self._put("look", pages.found(found))
        self.found = found
        self._follow()

    def _show_plan(self, plan: Plan | None, what: dict[str, Any] | None) -> None:
        self._planned_for = what
        self._skew.what = plan if plan is not None and len(plan.tasks) else None
        self._put("plan", "" if plan is None else pages.plan(plan))
        self.planned = plan

    def _show_result(self, report: Report) -> None:
        self._put("result", pages.report(report))
        self._skew.what = report if report.skew else None
        self.result = report

    # ------------------------------------------------------------------------------------------------------------ what it shows
    def _set_state(self, state: str) -> None:
        for name in ("look", "plan", "run"):
            self._buttons[name].disabled = state in BUSY
        self._buttons["cancel"].disabled = state not in ("planning", "running")
        super()._set_state(state)

    def _told_fields(self) -> dict[str, object]:
        """The fields as text, those that mean nothing left out."""
        names = [name for name in _NAMES if name != "parts" or self.planner == "hash"]
        values = {name: getattr(self, name) for name in names}
        return {_NAMES[n]: getattr(v, "__name__", "a function") if callable(v) else scrub(str(v), 2000) for n, v in values.items()}

    def _lines(self) -> list[str]:
        parts = [display.lines(f"ConsolidationPanel: {self.state}", self._told_fields())]
        parts += ["" if found is None else str(found) for found in (self.found, self.planned)]
        parts += [repr(self._skew) if self._skew.result is not None else "", "" if self.result is None else repr(self.result)]
        return [*parts, self._running.message, self.code]

    def _page(self) -> str:
        return html.block(
            display.facts("quire.consolidate", {**self._told_fields(), "state": self.state}),
            html.note(self._running.message),
            self._places["look"].value,
            html.code(self.code),
            self._places["plan"].value,
            self._places["result"].value,
            page_of(self._skew.result) if self._skew.result is not None else "",
        )


# ------------------------------------------------------------------------------------------------------------------------- helpers
def _check_settings(settings: Mapping[str, Any]) -> None:
    for name in ("every", "max_runs", "outage", "progress", "stop"):
        if name in settings:
            raise UsageError(f"{name}= is not for a panel, which runs once and shows how far it is. Call quire.consolidate with it.")
    check_names(settings)


def _path(value: Any, name: str) -> str:
    if isinstance(value, str | os.PathLike):
        return os.fsdecode(value)
    with_argument = UsageError(f"{name} is one path, URL or glob for a panel, not {type(value).__name__}. Call quire.consolidate with it.")
    with_argument.argument = name
    raise with_argument


def _fill(given: Any, value: Any) -> None:
    """Show a value in its input, where a space that is being typed stays; a function becomes a choice of its own."""
    if isinstance(given.value, str) and given.value.strip() == value:
        return
    if callable(value) and value not in [v for _, v in _choices(given)]:
        given.options = [*_choices(given), (f"{getattr(value, '__name__', 'function')}()", value)]
    given.value = value


def _choices(given: Any) -> list[tuple[str, Any]]:
    return [choice if isinstance(choice, tuple) else (choice, choice) for choice in given.options]
