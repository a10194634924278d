"""A ledger to look into: its commits, its rows page by page, one file's coverage, and what failed, to be retried or forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
import traitlets

import quire
from quire import AllQuarantined, ProgressEvent
from quire.errors import RefusedError
from quire.ledger.browse import STATES, Page
from quire.ledger.forget import TOLD
from quire_widgets import html, pages
from quire_widgets.as_code import Chosen
from quire_widgets.call import Stopped, after_change
from quire_widgets.form import CancelForm, Choice, Field, Question, Running, Turners
from quire_widgets.ledger_pages import ALL, ANY, LedgerView, Opened, Options, Overview, Searched, files, reason_of

if TYPE_CHECKING:
    import pandas as pd

TOO_LATE = "It was over before it could be cancelled."
BUSY = ("looking", "retrying", "forgetting", "cancelling")
SHOWN = 3  # examples in the question whether to forget


@dataclass(frozen=True)
class _Asked:
    """The open question is about: what to forget; the reason, once it was given; what would lose its last copy, once that is known."""

    those: Chosen
    why: str | None = None
    last: dict[str, Any] | None = None


class _Questions:
    """The questions before a ledger forgets: whether that is meant at all, and whether the last copy of what was purged is meant, too."""

    def __init__(self, answer: Callable[..., object], why: Field) -> None:
        self.first = Question("", "Yes, forget", "No, keep", answer, why)
        self.last = Question("last-", "Yes, delete the last copy", "No, keep", lambda yes: answer(yes, last_copy=yes))
        self.both, self._why = (self.first, self.last), why.input
        self._open: _Asked | None = None

    def forget(self, those: Chosen, of: str, examples: list[str], *, whole: bool) -> None:
        """Ask whether to forget `those`; `whole`: only whole files can be chosen."""
        self._open = _Asked(those)
        then = "They leave the ledger in one commit, and the next run reads them as new if the source still has them."
        if whole:
            then = f"{then} Without Spark a file leaves whole, with the good records that it has."
        self.first.ask(f"Forget {of}? {then} Among them: {', '.join(examples[:SHOWN])}")

    def last_copy(self, asked: _Asked, of: list[str]) -> None:
        """Ask once more, since the last copy `of` these files would go."""
        self._open = asked
        many = f"{len(of):,} or more files" if len(of) == TOLD else files(len(of))
        why = "The sources were purged, so this destination holds the last copy, and to forget it deletes it. Nothing was changed so far."
        self.last.ask(f"Delete the last copy of {many}? {why} Among them: {', '.join(of[:SHOWN])}")

    def closed(self) -> _Asked | None:
        """Close the open question, and return it."""
        asked, self._open = self._open, None
        for question in self.both:
            question.ask("")
        return asked

    def why(self) -> str:
        """The reason that was typed, once."""
        typed, self._why.value = self._why.value, ""
        return str(typed)


class LedgerInspector(CancelForm):
    """The ledger of a destination. It is read page by page, so it can be as large as it likes.

    dest, storage_options    as for `quire.Ledger`
    spark                    a session, or quire.LocalRunner(), for retry and forget; left out: quire's own
    source, function, source_options    as for `Ledger.retry`: where files are read again (there is a field for it, too), the job's
                             function, and options of the sources' store (default: the destination's)
    page_size                rows of a page

    path, status             what is searched for: how paths begin, or any part of them; "any" or a state as in the ledger
    .find() .turn(pages)     the first page of what is searched for; so many pages on, or back
    .look(path)              which bytes of one file are accounted for
    .retry(reason) .forget(reason)    read again, or take out, what was quarantined, all of it or for one reason; `forget` asks first,
                             and `.answer(True)` is the button that says yes. Where that would delete the last copy of what was purged,
                             nothing is done, it is "idle" and asks once more: `.answer(True, last_copy=True)`
    .cancel() .refresh() .wait(timeout)
    .state                   "idle" | "looking" | "retrying" | "forgetting" | "cancelling" | "done" | "failed" | "cancelled"
    .result                  what the last call gave: a Page, a table of ranges, or a `Changed`; .code is the same call as Python
    .error                   why the last call failed, else None

        inspector = LedgerInspector("/data/out", source="/data/in")
        inspector.path = "/data/in/dt=2026"
        inspector.find(); inspector.turn(1); inspector.look("/data/in/dt=2026/a.xml"); inspector.refresh()
        inspector.retry(); inspector.forget(); inspector.answer(True); inspector.cancel()
        inspector.wait(60), inspector.result

    The calls return at once; one at a time is under way. Observers are called in the thread that does the
    work. Raises UsageError without a ledger.
    """

    BUSY = BUSY

    path = traitlets.Unicode(help="how paths begin, or a part of them")
    status = Choice((ANY, *STATES), "the rows' state")
    state = traitlets.Enum(("idle", *BUSY, "done", "failed", "cancelled"), "idle", help="where it is")
    result = traitlets.Any(help="what the last call gave")

    def __init__(
        self, dest: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, spark: Any = None, *,
        source: Any = None, function: Callable[..., Any] | None = None, source_options: Mapping[str, Any] | None = None,
        page_size: int = 20,
    ) -> None:  # fmt: skip
        self._page_size = page_size
        self._retry_with: dict[str, Any] = {"source": source, "function": function, "storage_options": source_options}
        self._of = Opened(os.fsdecode(dest), storage_options, spark, quire.Ledger(dest, storage_options))
        super().__init__("quire-inspector")
        self._build()
        self._view = LedgerView(*self._of.look(("", None), page_size, None, None))
        self._show_all()
        self._show_turned(self._view.page)

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        text, choice = widgets.Text, widgets.Dropdown
        named = os.fsdecode(given) if isinstance(given := self._retry_with["source"], str | os.PathLike) else ""
        self._fields |= {
            "path": Field(text, "path", "path", placeholder="/data/in/dt=2026-11-21, or any part of a name"),
            "status": Field(choice, "status", "status", options=[ANY, *STATES]),
            "file": Field(choice, "file", "file", options=[("", "")]),
            "reason": Field(choice, "reason", "reason", options=[("every reason", ALL)]),
            "source": Field(text, "source", "source", value=named, placeholder="where they are read once more: /data/in"),
            "why": Field(text, "why", "why", placeholder="stands in the log"),
        }
        self._inputs = {name: field.input for name, field in self._fields.items()}
        self._fields["path"].on_enter(self.find)
        for name in ("file", "reason"):
            self._inputs[name].layout.width = "auto"
        for name in ("path", "status"):
            traitlets.link((self._inputs[name], "value"), (self, name))
        self._inputs["reason"].observe(lambda _: self.answer(False), "value")
        self._turners = Turners(self.turn)
        self._looking, self._changing = Running("look-", self.cancel), Running("change-", self.cancel)
        self._running = self._looking
        self._questions = _Questions(self.answer, self._fields["why"])
        refresh = self._button("Refresh", self.refresh, tooltip="Read the log to its end")
        find = self._button("Find", self.find, button_style="primary")
        look = self._button("Look", lambda: self.look(self._inputs["file"].value), tooltip="Which bytes of it are done")
        change = [
            self._button("Retry", lambda: self.retry(reason_of(self._inputs["reason"].value)), tooltip="Read these files once more"),
            self._button(
                "Forget", lambda: self.forget(reason_of(self._inputs["reason"].value)), tooltip="Take them out of the ledger; asks first"
            ),
        ]
        path, status, file, reason, source, _ = self._fields.values()
        rows = "summary", refresh, "timeline", path, status, [find, self._turners], self._looking, "rows", file, look, "coverage"
        self._lay_out(*rows, "reasons", reason, source, change, *self._questions.both, self._changing, "result", "code")

    # ----------------------------------------------------------------------------------------------------------------- to look
    def find(self) -> None:
        """The first page of the rows that `path` and `status` choose, in the ledger as it is now."""
        self._find(self._view.overview)

    def _find(self, known: Overview | None) -> None:
        searched, look = (self.path.strip(), None if self.status == ANY else self.status), self._of.look
        self._begin("looking", lambda progress: look(searched, self._page_size, known, progress), self._show_found)

    def refresh(self) -> None:
        """The same, and all the rest of what is shown, too, whether or not anything was committed since."""
        self._find(None)

    def turn(self, pages: int | None) -> None:
        """So many `pages` on, or back if it is negative; None: the first one. The pages are those of the version that was searched."""
        page = self._view.page
        offset = 0 if pages is None else max(page.offset + pages * page.limit, 0)

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Page]:
            found = page.at(offset, progress)
            return (found if len(found.table) or not offset else page,)

        self._begin("looking", act, self._show_turned)

    def look(self, path: str) -> None:
        """Which bytes of a file are done, quarantined, held back or missing, and where they lie."""
        if path:
            self._begin("looking", lambda _: (path, self._of.ledger.inspect.coverage(path)), self._show_file)

    # --------------------------------------------------------------------------------------------------------------- to change
    def retry(self, reason: str | None = None) -> None:
        """Read what was quarantined once more (for one `reason`, or all), and nothing else; its state is swapped in one commit."""
        self.answer(False)
        those, typed = Chosen(reason, "", self._of.spark), self._inputs["source"].value.strip()
        given = self._retry_with | ({"source": typed} if typed else {})

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Any, str]:
            named, in_vain = those.named(self._of.ledger), False
            try:
                done = self._of.ledger.retry(**named, **given, spark=self._of.spark, progress=progress)
            except AllQuarantined as e:  # that is committed: what came of it is shown, and said to be in vain
                done, in_vain = e.report, True
            return done, self._of.code("retry", those.before, in_vain=in_vain, **those.told, **given)

        self._begin("retrying", act, self._show_changed)

    def forget(self, reason: str | None = None) -> None:
        """Ask whether to take what was quarantined (for one `reason`, or all) out of the ledger; `answer` says it."""
        overview = self._view.overview
        chosen = overview.reasons if reason is None else overview.reasons[overview.reasons["reason"] == reason]
        if self.state in BUSY or not len(chosen):
            return
        self.answer(False)
        n = overview.summary.quarantined if reason is None else int(chosen["files"].sum())
        those = Chosen(reason, "state = 'quarantined'", self._of.spark)
        whole = isinstance(self._of.spark, quire.LocalRunner)  # only SQL chooses single rows
        self._questions.forget(those, f"{files(n)}{f' ({reason})' if reason else ''}", chosen["example"].tolist(), whole=whole)

    def answer(self, yes: bool, *, last_copy: bool = False) -> None:
        """Answer the open question: `yes` forgets, False leaves everything as it is.

        last_copy   answers the second question, whether the last copy of what was purged is meant, too; it counts only when that was asked
        """
        if self.state in BUSY:
            return
        asked = self._questions.closed()
        if not yes or asked is None:
            return
        those, why = asked.those, self._questions.why() if asked.why is None else asked.why

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Any, Any]:
            named = those.named(self._of.ledger)
            last = last_copy and named == asked.last  # what has come since was in no question
            try:
                done = self._of.ledger.forget(**named, reason=why, last_copy=last, spark=self._of.spark, progress=progress)
            except RefusedError as e:
                if not e.last_copies:
                    raise
                return replace(asked, why=why, last=named), e.last_copies
            return done, self._of.code("forget", those.before, **those.told, reason=why, last_copy=last or None)

        self._begin("forgetting", act, self._show_forgotten)

    # -------------------------------------------------------------------------------------------------------- a call's course
    def _begin(self, state: str, act: Callable[[Callable[[ProgressEvent], object]], Any], show: Callable[..., str | None]) -> None:
        with self._begin_lock:  # a double click begins one call
            if self.state in BUSY:
                return
            self.error = None
            self._running = self._looking if state == "looking" else self._changing
            for running in (self._looking, self._changing):
                running.say("")
            self._start(state, act, lambda answer, error: self._ended(state, show, answer, error))

    def _ended(self, state: str, show: Callable[..., str | None], answer: Any, error: BaseException | None) -> None:
        """Show what a call has given, in its thread; `show` says the state where it is not "done"."""
        stopping = self.state == "cancelling"
        try:
            if isinstance(error, Stopped):
                words = ("Cancelled: what was shown before stays.", "")
                if state != "looking":
                    words = after_change(self._of.ledger, self._of.dest, self._of.options, "retry" if state == "retrying" else "forget")
                self._running.say(*words)
                self._set_state("cancelled")
            elif error is not None:
                self._fail(error)
            else:
                reached = show(*answer) or "done"
                self._running.say(TOO_LATE if stopping else "")
                self._set_state(reached)
        except Exception as e:  # an observer of the user's, a picture, or the look after a change: one line too
            self._fail(e)

    def _set_state(self, state: str) -> None:
        busy = state in BUSY
        self._running.busy(busy, stoppable=state != "cancelling")
        # While it only looks, buttons stay as they are: one that is disabled for a moment loses the keyboard's focus.
        held, buttons = busy and self._running is self._changing, self._buttons
        for one in (buttons["refresh"], buttons["find"], *(question.yes for question in self._questions.both)):
            one.disabled = held
        buttons["look"].disabled = held or len(self._inputs["file"].options) < 2
        buttons["retry"].disabled = buttons["forget"].disabled = held or not len(self._view.overview.reasons)
        page = self._view.page
        self._turners.allow(not held and page.offset > 0, not held and page.more)
        super()._set_state(state)

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _show_found(self, overview: Overview, searched: Searched, page: Page) -> None:
        known, self._view.overview = self._view.overview, overview
        if overview is not known:
            self._show_all()
        self._view.searched = searched
        self._show_turned(page)

    def _show_turned(self, page: Page) -> None:
        self._show_page(page)
        path, state = self._view.searched
        self._give(page, self._of.code("rows", path=path, state=state, offset=page.offset or None, limit=page.limit))

    def _show_all(self) -> None:
        overview = self._view.overview
        self._put("summary", html.block(overview.summary._repr_html_()))
        self._put("timeline", overview.timeline(self._places["timeline"].model_id))
        self._put("reasons", overview.quarantined.html())
        _fill(self._inputs["reason"], overview.choices(), ALL)
        for part in (self._fields["reason"], self._fields["source"], self._buttons["retry"], self._buttons["forget"]):
            part.layout.display = None if len(overview.reasons) else "none"

    def _show_page(self, page: Page) -> None:
        self._view.page = page
        self._put("rows", pages.rows(page).html())
        _fill(self._inputs["file"], self._view.paths(), "")
        self._set_state(self.state)

    def _show_file(self, path: str, coverage: pd.DataFrame) -> None:
        self._view.file = (path, coverage)
        self._put("coverage", self._view.covered(self._places["coverage"].model_id))
        self._give(coverage, self._of.code("inspect.coverage", path=path))

    def _show_changed(self, changed: Any, code: str) -> None:
        view = self._view
        view.changed, view.file = changed, None
        self._put("result", view.result())
        self._put("coverage", "")
        self._give(changed, code)
        view.overview, _, page = self._of.look(view.searched, self._page_size, view.overview, None)
        self._show_all()
        self._show_page(page)

    def _show_forgotten(self, changed: Any, code: Any) -> str | None:
        if not isinstance(changed, _Asked):
            self._show_changed(changed, code)
            return None
        self._questions.last_copy(changed, code)
        return "idle"

    def _give(self, result: Any, code: str) -> None:
        self._show_code(code, "The last call as Python:")
        self.result = result

    def _messages(self) -> str:
        return "\n".join(running.message for running in (self._looking, self._changing) if running.message)

    def _lines(self) -> list[str]:
        return self._view.lines(self._messages(), self.code)

    def _page(self) -> str:
        return self._view.html(self._messages(), self.code, self._places)


# ------------------------------------------------------------------------------------------------------------------------- helpers
def _fill(given: Any, options: Options, otherwise: Any) -> None:
    """Give a list other options; what was chosen stays, if it is among them."""
    before = given.value
    given.options = options
    given.value = before if before in [value for _, value in options] else otherwise
