"""A ledger to look into: its commits, its rows page by page, one file's coverage, and what failed, to be retried or forgotten."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets as widgets
import pandas as pd
import traitlets

import quire
from quire import AllQuarantined, ProgressEvent, display, plots
from quire.errors import RefusedError, choose, printable
from quire.ledger.browse import OTHERS, STATES, Page
from quire.ledger.forget import TOLD
from quire_widgets import as_code, html, pages
from quire_widgets.as_code import Chosen
from quire_widgets.call import Call, Stopped, after_change
from quire_widgets.form import Field, Form, Question, Running, Turners, button, line, place, shown

ANY = "any"
TOO_LATE = "It was over before it could be cancelled."
IN_VAIN = "Read once more, and none of it could be processed: all of it stays quarantined. Repair it, or the function, and retry again."
BUSY = ("looking", "retrying", "forgetting", "cancelling")
SHOWN = 3  # examples in the question whether to forget
LEFT = 100  # files in the list of those that a change left as they are
ALL = "\0"  # in the list of reasons; None would be no choice at all
_CHOSEN = 90  # characters of a path in the list of files


@dataclass(frozen=True)
class _Asked:
    """The open question is about: what to forget; the reason, once it was given; what would lose its last copy, once that is known."""

    those: Chosen
    why: str | None = None
    last: dict[str, Any] | None = None


class LedgerInspector(Form):
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

    The calls return at once; one at a time is under way. Observers are called in the thread that does the
    work. Raises UsageError without a ledger.
    """

    path = traitlets.Unicode(help="how paths begin, or a part of them")
    status = traitlets.Unicode(ANY, help="the rows' state")
    state = traitlets.Enum(("idle", *BUSY, "done", "failed", "cancelled"), "idle", help="where it is")
    result = traitlets.Any(help="what the last call gave")
    error = traitlets.Instance(BaseException, allow_none=True, help="why the last call failed")
    code = traitlets.Unicode(help="the last call as Python")

    def __init__(
        self, dest: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, spark: Any = None, *,
        source: Any = None, function: Callable[..., Any] | None = None, source_options: Mapping[str, Any] | None = None,
        page_size: int = 20,
    ) -> None:  # fmt: skip
        self._dest, self._options, self._spark, self._page_size = os.fsdecode(dest), storage_options, spark, page_size
        self._retry_with: dict[str, Any] = {"source": source, "function": function, "storage_options": source_options}
        self._ledger = quire.Ledger(dest, storage_options)
        self._call: Call | None = None
        self._begin_lock = threading.RLock()  # an observer of the state may cancel
        self._rows: Page | None = None
        self._searched = ("", ANY)  # what the page is of: the fields may have changed since
        self._overview: tuple[Any, pd.DataFrame, pd.DataFrame] | None = None  # summary, commits, reasons: as the page, of one version
        self._reasons = pd.DataFrame({"reason": [], "files": [], "tries": [], "example": []})
        self._file: tuple[str, pd.DataFrame] | None = None
        self._asked: _Asked | None = None
        self._changed: Any = None  # what the last change has done
        self._changes = False  # whether it is a change that is under way, or was
        self._build()
        super().__init__("quire-inspector", self._parts())
        self._show_found(*self._look_at_all(self._searched, None))

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        self._head, self._timeline, self._table, self._coverage, self._why, self._outcome, self._code = map(
            place, ("summary", "timeline", "rows", "coverage", "reasons", "result", "code")
        )
        self._refresh_button = button("Refresh", "quire-refresh-button", self.refresh, tooltip="Read the log to its end")
        self._search = Field(widgets.Text, "path", "path", placeholder="/data/in/dt=2026-11-21, or any part of a name")
        self._status = Field(widgets.Dropdown, "status", "status", options=[ANY, *STATES])
        self._search.on_enter(self.find)
        self._find_button = button("Find", "quire-find-button", self.find, button_style="primary")
        self._turners = Turners(self.turn)
        self._chosen = Field(widgets.Dropdown, "file", "file", options=[("", "")])
        self._chosen.input.layout.width = "auto"
        self._look_button = button(
            "Look", "quire-look-button", lambda: self.look(self._chosen.input.value), tooltip="Which bytes of it are done"
        )
        self._looking, self._changing = Running("look", self.cancel), Running("change", self.cancel)
        self._reason = Field(widgets.Dropdown, "reason", "reason", options=[("every reason", ALL)])
        self._reason.input.layout.width = "auto"
        self._reason.input.observe(lambda _: self.answer(False), "value")
        named = self._retry_with["source"]
        self._source = Field(widgets.Text, "source", "source", placeholder="where they are read once more: /data/in")
        self._source.input.value = os.fsdecode(named) if isinstance(named, str | os.PathLike) else ""
        self._retry_button = button(
            "Retry", "quire-retry-button", lambda: self.retry(self._chosen_reason()), tooltip="Read these files once more"
        )
        self._forget_button = button(
            "Forget",
            "quire-forget-button",
            lambda: self.forget(self._chosen_reason()),
            tooltip="Take them out of the ledger; asks first",
        )
        self._note = Field(widgets.Text, "why", "why", placeholder="stands in the log")
        self._ask = Question("", "Yes, forget", "No, keep", self.answer, self._note)
        self._ask_last = Question("last-", "Yes, delete the last copy", "No, keep", lambda yes: self.answer(yes, last_copy=yes))
        for name, given in (("path", self._search.input), ("status", self._status.input)):
            traitlets.link((given, "value"), (self, name))

    def _parts(self) -> list[Any]:
        row = {"margin": "4px 0"}
        return [
            self._head,
            self._refresh_button,
            self._timeline,
            self._search,
            self._status,
            widgets.HBox([self._find_button, self._turners], layout=row),
            self._looking,
            self._table,
            self._chosen,
            self._look_button,
            self._coverage,
            self._why,
            self._reason,
            self._source,
            widgets.HBox([self._retry_button, self._forget_button], layout=row),
            self._ask,
            self._ask_last,
            self._changing,
            self._outcome,
            self._code,
        ]

    @traitlets.validate("status")
    def _check_status(self, proposal: Mapping[str, Any]) -> str:
        return choose(proposal["value"], (ANY, *STATES), "status")

    # ----------------------------------------------------------------------------------------------------------------- to look
    def find(self) -> None:
        """The first page of the rows that `path` and `status` choose, in the ledger as it is now."""
        searched = (self.path.strip(), self.status)
        self._begin("looking", lambda progress: self._look_at_all(searched, progress), self._show_found)

    def refresh(self) -> None:
        """The same, and all the rest of what is shown, too, whether or not anything was committed since."""
        if self.state not in BUSY:
            self._overview = None
        self.find()

    def turn(self, pages: int | None) -> None:
        """So many pages on, or back if it is negative; None: the first one. The pages are those of the version that was searched."""
        page = self._rows
        if page is None:
            return
        offset = 0 if pages is None else max(page.offset + pages * page.limit, 0)

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Page]:
            found = page.at(offset, progress)
            return (found if len(found.table) or not offset else page,)

        self._begin("looking", act, self._show_turned)

    def look(self, path: str) -> None:
        """Which bytes of a file are done, quarantined, held back or missing, and where they lie."""
        if path:
            self._begin("looking", lambda _: (path, self._ledger.inspect.coverage(path)), self._show_file)

    def _look_at_all(self, searched: tuple[str, str], progress: Callable[[ProgressEvent], object] | None) -> tuple[Any, ...]:
        """The search and its page, after the overview, which is read again only after a new commit."""
        ledger, (path, status) = self._ledger.refresh(), searched
        page = ledger.rows(path, None if status == ANY else status, limit=self._page_size, progress=progress)
        overview = self._overview
        if overview is None or overview[0].version != ledger.version:
            overview = (ledger.summary(), ledger.inspect.commits(last=pages.COMMITS), ledger.inspect.reasons(progress=progress))
        return overview, searched, page

    # --------------------------------------------------------------------------------------------------------------- to change
    def retry(self, reason: str | None = None) -> None:
        """Read what was quarantined once more, and nothing else; its state is swapped in one commit."""
        self.answer(False)
        those, typed = Chosen(reason, "", self._spark), self._source.input.value.strip()
        given = self._retry_with | ({"source": typed} if typed else {})

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Any, str]:
            named, in_vain = those.named(self._ledger), False
            try:
                done = self._ledger.retry(**named, **given, spark=self._spark, progress=progress)
            except AllQuarantined as e:  # that is committed: what came of it is shown, and said to be in vain
                done, in_vain = e.report, True
            return done, self._written("retry", those.before, in_vain=in_vain, **those.told, **given)

        self._begin("retrying", act, self._show_changed)

    def _chosen_reason(self) -> str | None:
        chosen: str = self._reason.input.value
        return None if chosen == ALL else chosen

    def forget(self, reason: str | None = None) -> None:
        """Ask whether to take what was quarantined out of the ledger; `answer` says it."""
        chosen = self._reasons if reason is None else self._reasons[self._reasons["reason"] == reason]
        if self.state in BUSY or not len(chosen):
            return
        self.answer(False)
        self._asked = _Asked(Chosen(reason, "state = 'quarantined'", self._spark))
        files = self._summary.quarantined if reason is None else int(chosen["files"].sum())
        what = f"Forget {_files(files)}{f' ({reason})' if reason else ''}?"
        then = "They leave the ledger in one commit, and the next run reads them as new if the source still has them."
        if isinstance(self._spark, quire.LocalRunner):  # only SQL chooses single rows
            then = f"{then} Without Spark a file leaves whole, with the good records that it has."
        self._ask.ask(f"{what} {then} Among them: {', '.join(chosen['example'].tolist()[:SHOWN])}")

    def answer(self, yes: bool, *, last_copy: bool = False) -> None:
        """Answer the open question: True forgets, False leaves everything as it is.

        last_copy   answers the second question, whether the last copy of what was purged is meant, too; it counts only when that was asked
        """
        if self.state in BUSY:
            return
        asked, self._asked = self._asked, None
        for question in (self._ask, self._ask_last):
            question.ask("")
        if not yes or asked is None:
            return
        those, why = asked.those, asked.why
        if why is None:
            why, self._note.input.value = self._note.input.value, ""

        def act(progress: Callable[[ProgressEvent], object]) -> tuple[Any, Any]:
            named = those.named(self._ledger)
            last = last_copy and named == asked.last  # what has come since was in no question
            try:
                done = self._ledger.forget(**named, reason=why, last_copy=last, spark=self._spark, progress=progress)
            except RefusedError as e:
                if not e.last_copies:
                    raise
                return replace(asked, why=why, last=named), e.last_copies
            return done, self._written("forget", those.before, **those.told, reason=why, last_copy=last or None)

        self._begin("forgetting", act, self._show_forgotten)

    def cancel(self) -> None:
        """Stop what is under way; nothing is lost."""
        with self._begin_lock:
            if self._call is not None and self.state in BUSY and self.state != "cancelling":
                self._call.stop()
                self._running().show(0, None, "cancelling")
                self._set_state("cancelling")

    # -------------------------------------------------------------------------------------------------------- a call's course
    def _begin(self, state: str, act: Callable[[Callable[[ProgressEvent], object]], Any], show: Callable[..., str | None]) -> None:
        with self._begin_lock:  # a double click begins one call
            if self.state in BUSY:
                return
            self.error = None
            self._changes = state != "looking"
            for place_of in (self._looking, self._changing):
                place_of.say("")
            self._call = Call(act, lambda answer, error: self._ended(state, show, answer, error), self._show_progress)
            self._running().show(0, None, "starting")
            self._set_state(state)
            self._call.start()

    def _running(self) -> Running:
        return self._changing if self._changes else self._looking

    def _ended(self, state: str, show: Callable[..., str | None], answer: Any, error: BaseException | None) -> None:
        """Show what a call has given, in its thread; `show` says the state where it is not "done"."""
        stopping = self.state == "cancelling"
        try:
            if isinstance(error, Stopped):
                words = ("Cancelled: what was shown before stays.", "")
                if self._changes:
                    words = after_change(self._ledger, self._dest, self._options, "retry" if state == "retrying" else "forget")
                self._running().say(*words)
                self._set_state("cancelled")
            elif error is not None:
                self._fail(error)
            else:
                reached = show(*answer) or "done"
                self._running().say(TOO_LATE if stopping else "")
                self._set_state(reached)
        except Exception as e:  # an observer of the user's, a picture, or the look after a change: one line too
            self._fail(e)

    def _fail(self, error: BaseException) -> None:
        """One line below the buttons; never a traceback."""
        self.error = error
        self._running().say(line(error), wrong=True)
        self._set_state("failed")

    def _show_progress(self, done: int, total: int | None, told: str) -> None:
        if self.state != "cancelling":
            self._running().show(done, total, told)

    def _set_state(self, state: str) -> None:
        busy = state in BUSY
        self._running().busy(busy, stoppable=state != "cancelling")
        # While it only looks, buttons stay as they are: one that is disabled for a moment loses the keyboard's focus.
        held = busy and self._changes
        for one in (self._refresh_button, self._find_button, self._ask.yes, self._ask_last.yes):
            one.disabled = held
        self._look_button.disabled = held or len(self._chosen.input.options) < 2
        for one in (self._retry_button, self._forget_button):
            one.disabled = held or not len(self._reasons)
        page = self._rows
        self._turners.allow(not held and page is not None and page.offset > 0, not held and page is not None and page.more)
        self.state = state

    # ------------------------------------------------------------------------------------------------------------- what it shows
    def _show_found(self, overview: tuple[Any, pd.DataFrame, pd.DataFrame], searched: tuple[str, str], page: Page) -> None:
        self._show_all(overview)
        self._searched = searched
        self._show_turned(page)

    def _show_turned(self, page: Page) -> None:
        self._show_page(page)
        path, status = self._searched
        state = None if status == ANY else status
        self._give(page, self._written("rows", path=path, state=state, offset=page.offset or None, limit=page.limit))

    def _show_all(self, overview: tuple[Any, pd.DataFrame, pd.DataFrame]) -> None:
        if overview is self._overview:
            return
        self._overview = overview
        summary, commits, reasons = overview
        self._summary, self._reasons = summary, reasons
        self._commits, self._log = plots.commits(commits), pages.commits(commits, summary.commits)
        shown(self._head, html.block(summary._repr_html_()))
        picture = html.picture(self._commits.svg(), html.said(self._commits), self._timeline.model_id)
        shown(
            self._timeline,
            html.block(picture, html.details(self._log.caption, html.table("", self._log.header, self._log.rows, self._log.numbers))),
        )
        self._told = pages.reasons(reasons, summary.quarantined)
        shown(self._why, self._told.html())
        options = [(f"every reason: {_files(summary.quarantined)}", ALL)]
        counted = zip(reasons["reason"].tolist(), reasons["files"].tolist(), strict=True)
        options += [(f"{_shortened(reason or '(none)')}: {_files(n)}", reason) for reason, n in counted if reason != OTHERS]
        _fill(self._reason.input, options, ALL)
        for part in (self._reason, self._source, self._retry_button, self._forget_button):
            part.layout.display = None if len(reasons) else "none"

    def _show_page(self, page: Page) -> None:
        self._rows = page
        shown(self._table, pages.rows(page).html())
        paths = list(dict.fromkeys(page.table["path"].tolist()))
        folder = pages.folder_of(paths)
        choices = [("choose one of this page", ""), *((_shortened(path.removeprefix(folder)), path) for path in paths)]
        _fill(self._chosen.input, choices, "")
        self._set_state(self.state)

    def _show_file(self, path: str, coverage: pd.DataFrame) -> None:
        self._file = (path, coverage)
        picture = plots.coverage(coverage, path)
        drawn = html.picture(picture.svg(), html.said(picture), self._coverage.model_id)
        shown(self._coverage, html.block(drawn, pages.of_file(path, coverage).html()))
        self._give(coverage, self._written("inspect.coverage", path=path))

    def _show_changed(self, changed: Any, code: str) -> None:
        self._changed, self._file = changed, None
        left = html.details(f"Left as it is: {_files(len(changed.left))}", html.table("", ("file", "why"), changed.left[:LEFT]))
        in_vain = html.alert(IN_VAIN) if changed.all_quarantined else ""
        shown(self._outcome, html.block(in_vain, changed._repr_html_(), left if changed.left else ""))
        shown(self._coverage, "")
        self._give(changed, code)
        overview, _, page = self._look_at_all(self._searched, None)
        self._show_all(overview)
        self._show_page(page)

    def _show_forgotten(self, changed: Any, code: Any) -> str | None:
        if not isinstance(changed, _Asked):
            self._show_changed(changed, code)
            return None
        self._asked = changed
        many = f"{len(code):,} or more files" if len(code) == TOLD else _files(len(code))
        why = "The sources were purged, so this destination holds the last copy, and to forget it deletes it. Nothing was changed so far."
        self._ask_last.ask(f"Delete the last copy of {many}? {why} Among them: {', '.join(code[:SHOWN])}")
        return "idle"

    def _give(self, result: Any, code: str) -> None:
        self.code = code
        shown(self._code, html.same(code, "The last call as Python:"))
        self.result = result

    def _written(self, call: str, before: str = "", **named: Any) -> str:
        return as_code.ledger(self._dest, self._options is not None, self._spark, call, before, **named)

    def _messages(self) -> str:
        return "\n".join(running.message for running in (self._looking, self._changing) if running.message)

    def __repr__(self) -> str:
        parts = [str(self._summary), f"{self._commits.title}\n{self._commits.note}"]
        parts += [pages.rows(self._rows).text()] if self._rows is not None else []
        parts += [plots.coverage(self._file[1], self._file[0]).__repr__()] if self._file else []
        parts += [self._told.text(), self._messages(), "" if self._changed is None else str(self._changed), self.code]
        return "\n\n".join(part for part in parts if part)

    def _page(self) -> str:
        covered = plots.coverage(self._file[1], self._file[0]) if self._file else None
        return html.block(
            self._head.value,
            display.chart(self._commits.svg(), html.said(self._commits)),
            self._table.value,
            display.chart(covered.svg(), html.said(covered)) if covered else "",
            self._why.value,
            html.note(self._messages()),
            self._outcome.value,
            html.code(self.code),
        )


# ------------------------------------------------------------------------------------------------------------------------- helpers
def _fill(given: Any, options: list[tuple[str, Any]], otherwise: Any) -> None:
    """Give a list other options; what was chosen stays, if it is among them."""
    before = given.value
    given.options = options
    given.value = before if before in [value for _, value in options] else otherwise


def _files(n: int) -> str:
    return f"{n:,} {'file' if n == 1 else 'files'}"


def _shortened(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _CHOSEN else f"{text[: _CHOSEN // 3]}…{text[-2 * _CHOSEN // 3 :]}"
