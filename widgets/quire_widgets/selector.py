"""Which committer for Spark's own jobs: a URL and needs to tick, and the advice; the same looked up in a live session."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

import ipywidgets as widgets
import traitlets

from quire.committers import Advice, Check, advise
from quire.committers.advice.advise import known_needs
from quire.committers.advice.checking import FORMATS
from quire.committers.advice.knowledge import NEEDS
from quire.committers.advice.places import SCHEMES
from quire.committers.lab import Matrix
from quire.committers.lab.advised import Marked, advised
from quire.errors import UsageError, quoted, scrub
from quire_widgets import as_code, html, pages
from quire_widgets.form import Boxes, Choice, Field, Form

NAMESPACES: dict[bool | None, str] = {None: "not known", True: "hierarchical", False: "flat"}
SETTINGS = "Settings to copy, for spark-defaults.conf, before a session starts:"
STALE = "The URL has changed since this advice. Enter or Advise takes it."
NO_SESSION = "The selector needs a session for this: pass spark=."


class CommitterSelector(Form):
    """The committer for Spark jobs that write below a URL: why, settings to copy, what the session would do, what the lab has found.

    url, needs, hierarchical    as for `quire.committers.advise`; traits, and a change of one is a new advice at once.
                                `hierarchical` counts for Azure storage alone
    format                      what `check` asks for: parquet, orc, json, csv, text or avro
    spark                       the session that is advised and checked; without one, the Spark that is installed here is advised
    matrix                      results of `quire.committers.lab`; left out: those that come with quire

    .advice         the Advice, None while there is none
    .check()        look into the session, in the background; .wait(timeout) waits for it
    .checked        the Check; None after a change of what it was of
    .marked         the matrix's row that is of the advice, and what is to be known of it
    .state          "idle" | "checking" | "done" | "failed"; .error is why the last advice or check failed, else None
    .code           the same as Python

        selector = CommitterSelector("s3a://lake/events", {"append"})
        selector.advise(); selector.check(); selector.wait(60), selector.advice

    A wrong URL or need is one line beside it and `.error`; words that no need, format or namespace is called
    raise UsageError, as a wrong matrix does.
    """

    url = traitlets.Unicode(help="the destination's URL or path")
    needs = traitlets.Any((), help="what the job must be able to do: keys of quire.committers.advice.knowledge.NEEDS")
    hierarchical = traitlets.Any(None, allow_none=True, help="whether an account of Azure storage has a hierarchical namespace")
    format = Choice(FORMATS, "what the session is asked to write")
    state = traitlets.Enum(("idle", "checking", "done", "failed"), "idle", help="where it is")
    advice = traitlets.Instance(Advice, allow_none=True, help="what is advised")
    checked = traitlets.Instance(Check, allow_none=True, help="what the session would do")

    def __init__(
        self, url: str | os.PathLike[str] = "", needs: Iterable[str] = (), spark: Any = None, hierarchical: bool | None = None, *,
        format: str = "parquet", matrix: Matrix | None = None,
    ) -> None:  # fmt: skip
        if matrix is not None and not isinstance(matrix, Matrix):
            raise UsageError(f"matrix= takes results of quire.committers.lab, not {quoted(matrix)}: a Matrix of lab.run or Matrix.load.")
        if not isinstance(url, str | os.PathLike):
            raise UsageError(f"url= takes one URL or path, not {quoted(url)}: for example 's3a://bucket/path' or '/data/out'.")
        super().__init__("quire-selector")
        self._spark, self._matrix = spark, matrix if matrix is not None else Matrix.example()
        self.marked: Marked | None = None
        self._ready = False  # the first values come one by one, and are one question
        self._build()
        self.url, self.needs, self.hierarchical, self.format = os.fsdecode(url), needs, hierarchical, format
        self._ready = True
        self._follow()

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        self._url = Field(widgets.Text, "URL", "url", placeholder="s3a://bucket/path, /data/out")
        self._url.on_enter(self.advise)
        self._url.input.observe(lambda _: self._typed(), "value")
        self._needs = Boxes("What the job needs", "needs", NEEDS, self.advise)
        self._namespace = Field(widgets.Dropdown, "namespace", "namespace", options=[*NAMESPACES.values()])
        self._namespace.input.tooltip = "Of an account of Azure storage"
        tip = NO_SESSION if self._spark is None else "Which committer would write; nothing is written"
        verbs = [
            self._button("Advise", self.advise, button_style="primary"),
            self._button("Check the session", self.check, tooltip=tip, layout={"width": "auto"}),
        ]
        self._namespace.input.observe(lambda change: setattr(self, "hierarchical", _said(change["new"])), "value")
        form = Field(widgets.Dropdown, "format", "format", options=FORMATS)
        traitlets.link((form.input, "value"), (self, "format"))
        self._fields |= {"url": self._url, "needs": self._needs}
        parts = ("advice", "settings", "check", "matrix", "code")
        self._lay_out(self._url, self._namespace, self._needs, form, verbs, self._running, *parts)

    @traitlets.validate("needs")
    def _check_needs(self, proposal: Mapping[str, Any]) -> tuple[str, ...]:
        wanted = known_needs(proposal["value"])
        return tuple(need for need in NEEDS if need in wanted)

    @traitlets.validate("hierarchical")
    def _check_namespace(self, proposal: Mapping[str, Any]) -> bool | None:
        value: bool | None = proposal["value"]
        if value is not None and not isinstance(value, bool):
            raise UsageError(f"hierarchical= takes True, False or None, not {quoted(value)}: None is where it is not known.")
        return value

    # ---------------------------------------------------------------------------------------------------------------- the advice
    def advise(self) -> None:
        """Take the fields as they are: what was typed counts from now on."""
        before = (self.url, self.needs)
        self._ready = False
        try:
            self.url, self.needs = self._url.input.value.strip(), self._needs.words
        finally:
            self._ready = True
        if self.checked is not None and self.url != before[0]:
            self.checked = None
        self._follow()

    @traitlets.observe("url", "needs", "hierarchical", "format")
    def _change(self, change: Mapping[str, Any]) -> None:
        if change["name"] == "url":
            self._url.input.value = self.url
        self._needs.fill(self.needs)
        self._namespace.input.value = NAMESPACES[self.hierarchical]
        if change["name"] != "needs" and self._ready:
            self.checked = None
        if self._ready:
            self._follow()

    def _typed(self) -> None:
        """A URL that is half typed is none; what is shown stays, and says so."""
        if self._ready and self.advice is not None and self.state != "checking":
            self._running.say(STALE if self._url.input.value != self.url else "")

    def _namespace_that_counts(self) -> bool | None:
        return self.hierarchical if self._azure() else None

    def _azure(self) -> bool:
        scheme, colon, _ = self.url.partition(":")
        return bool(colon) and SCHEMES.get(scheme.lower()) == "abfs"

    def _follow(self) -> None:
        """Ask anew, and show what came of it. Nothing is asked over a network."""
        self._namespace.input.disabled = not self._azure()
        for part in (self._url, self._needs):
            part.say("")
        self._running.say("")
        self.error = None
        found = None
        if self.url.strip():
            try:
                found = advise(self.url, self.needs, self._spark, self._namespace_that_counts())
            except Exception as e:  # a session that is over, too: one line
                self._tell(e)
        self._show(found)
        if self.state != "checking":
            self._set_state("failed" if self.error is not None else "done" if found is not None else "idle")

    # ------------------------------------------------------------------------------------------------------------ the live session
    def check(self) -> None:
        """Ask the session what it would do. Nothing is written."""
        with self._begin_lock:  # a double click begins one call
            if self.state == "checking":
                return
            if self._url.input.value.strip() != self.url:
                self.advise()
            if self._spark is None or not self.url.strip():
                missing = NO_SESSION if self._spark is None else "The URL is empty. Say where the job writes: s3a://bucket/path, /data/out."
                self._fail(UsageError(missing))
                return
            self.error, asked = None, (self.url, self.format, self._namespace_that_counts())
            self._running.say("")
            url, kind, hierarchical = asked
            self._start(
                "checking",
                lambda _: advise.check(self._spark, url, kind, hierarchical=hierarchical),
                lambda answer, error: self._ended(asked, answer, error),
            )

    def _show_progress(self, done: int, total: int | None, told: str) -> None:
        self._running.show(0, None, "looking into the session")

    def _ended(self, asked: tuple[Any, ...], answer: Check | None, error: BaseException | None) -> None:
        """Show what a check has found, in its thread."""
        self._running.quiet()
        try:
            if error is not None:
                self.checked = None  # what was found before is not what this check was to tell
                self._show(self.advice)
                self._tell(error)
            elif asked == (self.url, self.format, self._namespace_that_counts()):
                self.checked = answer
                self._show(self.advice)
            else:
                self._running.say("The fields have changed since the check began: check again.")
        except Exception as e:  # an observer of the user's: one line too
            self._tell(e)
        self._set_state("failed" if self.error is not None else "done")

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _set_state(self, state: str) -> None:
        self._buttons["check"].disabled = self._spark is None  # while it looks, one that is disabled would lose the keyboard's focus
        super()._set_state(state)

    def _show(self, found: Advice | None) -> None:
        self.marked = advised(self._matrix, found) if found is not None else None
        self._put("advice", pages.advice(found) if found is not None else "")
        self._put("settings", html.block(SETTINGS, html.copyable(found.defaults.rstrip(), "settings")) if found is not None else "")
        self._put("check", pages.check(found, self.checked) if self.checked is not None else "")
        self._put("matrix", pages.matrix(self._matrix, self.marked))
        self._show_code(self._written())
        self.advice = found

    def _written(self) -> str:
        if not self.url.strip():
            return ""
        namespace = self._namespace_that_counts()
        code = as_code.advise(self.url, self.needs, namespace, self._spark)
        return f"{code}\n{as_code.check(self.url, self.format, namespace)}" if self.checked is not None else code

    def _lines(self) -> list[str]:
        head = str(self.advice) if self.advice is not None else f"CommitterSelector: {scrub(self.url, 2000) or 'no URL yet'}"
        checked = pages.check_text(self.advice, self.checked) if self.checked is not None else ""
        return [head, self._running.message, checked, pages.matrix_text(self._matrix, self.marked), self.code]

    def _page(self) -> str:
        found = self.advice
        return html.block(
            html.note(self._running.message),
            pages.advice(found, live=False) if found is not None else "",
            html.block(SETTINGS, html.code(found.defaults.rstrip())) if found is not None else "",
            self._places["check"].value,
            self._places["matrix"].value,
            html.code(self.code) if self.code else "",
        )


# ------------------------------------------------------------------------------------------------------------------------- helpers
def _said(namespace: str) -> bool | None:
    return next(value for value, name in NAMESPACES.items() if name == namespace)
