"""A ledger to look into: its commits, its rows page by page, one file's coverage, and what failed, to be retried or forgotten."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import ipywidgets as widgets
import pandas as pd
import traitlets

import quire
from quire import AllQuarantined, ProgressEvent, display, plots
from quire.errors import RefusedError, printable
from quire.ledger.browse import OTHERS, STATES, Page
from quire.ledger.forget import TOLD
from quire_widgets import as_code, html, pages
from quire_widgets.as_code import Chosen
from quire_widgets.call import Stopped, after_change
from quire_widgets.form import CancelForm, Choice, Field, Question, Running, Turners

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
        self._dest, self._options, self._spark, self._page_size = os.fsdecode(dest), storage_options, spark, page_size
        self._retry_with: dict[str, Any] = {"source": source, "function": function, "storage_options": source_options}
        self._ledger = quire.Ledger(dest, storage_options)
        super().__init__("quire-inspector")
        self._rows: Page | None = None
        self._searched = ("", ANY)  # what the page is of: the fields may have changed since
        self._overview: tuple[Any, pd.DataFrame, pd.DataFrame] | None = None  # summary, commits, reasons: as the page, of one version
        self._reasons = pd.DataFrame({"reason": [], "files": [], "tries": [], "example": []})
        self._file: tuple[str, pd.DataFrame] | None = None
        self._asked: _Asked | None = None
        self._changed: Any = None  # what the last change has done
        self._build()
        self._show_found(*self._look_at_all(self._searched, None))

    # ------------------------------------------------------------------------------------------------------------ what it holds
    def _build(self) -> None:
        text, choice = widgets.Text, widgets.Dropdown
        named = self._retry_with["source"]
        self._fields |= {
            "path": Field(text, "path", "path", placeholder="/data/in/dt=2026-11-21, or any part of a name"),
            "status": Field(choice, "status", "status", options=[ANY, *STATES]),
            "file": Field(choice, "file", "file", options=[("", "")]),
            "reason": Field(choice, "reason", "reason", options=[("every reason", ALL)]),
            "source": Field(text, "source", "source", placeholder="where they are read once more: /data/in"),
            "why": Field(text, "why", "why", placeholder="stands in the log"),
        }
        self._inputs = {name: field.input for name, field in self._fields.items()}
        self._inputs["source"].value = os.fsdecode(named) if isinstance(named, str | os.PathLike) else ""
        self._fields["path"].on_enter(self.find)
        for name in ("file", "reason"):
            self._inputs[name].layout.width = "auto"
        for name in ("path", "status"):
            traitlets.link((self._inputs[name], "value"), (self, name))
        self._inputs["reason"].observe(lambda _: self.answer(False), "value")
        self._turners = Turners(self.turn)
        self._looking, self._changing = Running("look-", self.cancel), Running("change-", self.cancel)
        self._running = self._looking
        self._ask = Question("", "Yes, forget", "No, keep", self.answer, self._fields["why"])
        self._ask_last = Question("last-", "Yes, delete the last copy", "No, keep", lambda yes: self.answer(yes, last_copy=yes))
        refresh = self._button("Refresh", self.refresh, tooltip="Read the log to its end")
        find = self._button("Find", self.find, button_style="primary")
        look = self._button("Look", lambda: self.look(self._inputs["file"].value), tooltip="Which bytes of it are done")
        change = [
            self._button("Retry", lambda: self.retry(self._chosen_reason()), tooltip="Read these files once more"),
            self._button("Forget", lambda: self.forget(self._chosen_reason()), tooltip="Take them out of the ledger; asks first"),
        ]
        path, status, file, reason, source, _ = self._fields.values()
        self._lay_out(
            "summary", refresh, "timeline", path, status, [find, self._turners], self._looking, "rows", file, look, "coverage", "reasons",
            reason, source, change, self._ask, self._ask_last, self._changing, "result", "code",
        )  # fmt: skip

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
        """So many `pages` on, or back if it is negative; None: the first one. The pages are those of the version that was searched."""
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
        """Read what was quarantined once more (for one `reason`, or all), and nothing else; its state is swapped in one commit."""
        self.answer(False)
        those, typed = Chosen(reason, "", self._spark), self._inputs["source"].value.strip()
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
        chosen: str = self._inputs["reason"].value
        return None if chosen == ALL else chosen

    def forget(self, reason: str | None = None) -> None:
        """Ask whether to take what was quarantined (for one `reason`, or all) out of the ledger; `answer` says it."""
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
        """Answer the open question: `yes` forgets, False leaves everything as it is.

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
            why, self._inputs["why"].value = self._inputs["why"].value, ""

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
                    words = after_change(self._ledger, self._dest, self._options, "retry" if state == "retrying" else "forget")
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
        for one in (buttons["refresh"], buttons["find"], self._ask.yes, self._ask_last.yes):
            one.disabled = held
        buttons["look"].disabled = held or len(self._inputs["file"].options) < 2
        buttons["retry"].disabled = buttons["forget"].disabled = held or not len(self._reasons)
        page = self._rows
        self._turners.allow(not held and page is not None and page.offset > 0, not held and page is not None and page.more)
        super()._set_state(state)

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
        self._put("summary", html.block(summary._repr_html_()))
        picture = html.picture(self._commits.svg(), html.said(self._commits), self._places["timeline"].model_id)
        self._put(
            "timeline",
            html.block(picture, html.details(self._log.caption, html.table("", self._log.header, self._log.rows, self._log.numbers))),
        )
        self._failed = pages.reasons(reasons, summary.quarantined)
        self._put("reasons", self._failed.html())
        options = [(f"every reason: {_files(summary.quarantined)}", ALL)]
        counted = zip(reasons["reason"].tolist(), reasons["files"].tolist(), strict=True)
        options += [(f"{_shortened(reason or '(none)')}: {_files(n)}", reason) for reason, n in counted if reason != OTHERS]
        _fill(self._inputs["reason"], options, ALL)
        for part in (self._fields["reason"], self._fields["source"], self._buttons["retry"], self._buttons["forget"]):
            part.layout.display = None if len(reasons) else "none"

    def _show_page(self, page: Page) -> None:
        self._rows = page
        self._put("rows", pages.rows(page).html())
        paths = list(dict.fromkeys(page.table["path"].tolist()))
        folder = pages.folder_of(paths)
        choices = [("choose one of this page", ""), *((_shortened(path.removeprefix(folder)), path) for path in paths)]
        _fill(self._inputs["file"], choices, "")
        self._set_state(self.state)

    def _show_file(self, path: str, coverage: pd.DataFrame) -> None:
        self._file = (path, coverage)
        picture = plots.coverage(coverage, path)
        drawn = html.picture(picture.svg(), html.said(picture), self._places["coverage"].model_id)
        self._put("coverage", html.block(drawn, pages.of_file(path, coverage).html()))
        self._give(coverage, self._written("inspect.coverage", path=path))

    def _show_changed(self, changed: Any, code: str) -> None:
        self._changed, self._file = changed, None
        left = html.details(f"Left as it is: {_files(len(changed.left))}", html.table("", ("file", "why"), changed.left[:LEFT]))
        in_vain = html.alert(IN_VAIN) if changed.all_quarantined else ""
        self._put("result", html.block(in_vain, changed._repr_html_(), left if changed.left else ""))
        self._put("coverage", "")
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
        self._show_code(code, "The last call as Python:")
        self.result = result

    def _written(self, call: str, before: str = "", **named: Any) -> str:
        return as_code.ledger(self._dest, self._options is not None, self._spark, call, before, **named)

    def _messages(self) -> str:
        return "\n".join(running.message for running in (self._looking, self._changing) if running.message)

    def _lines(self) -> list[str]:
        rows = pages.rows(self._rows).text() if self._rows is not None else ""
        covered = repr(plots.coverage(self._file[1], self._file[0])) if self._file else ""
        changed = "" if self._changed is None else str(self._changed)
        commits = f"{self._commits.title}\n{self._commits.note}"
        return [str(self._summary), commits, rows, covered, self._failed.text(), self._messages(), changed, self.code]

    def _page(self) -> str:
        covered = plots.coverage(self._file[1], self._file[0]) if self._file else None
        return html.block(
            self._places["summary"].value,
            display.chart(self._commits.svg(), html.said(self._commits)),
            self._places["rows"].value,
            display.chart(covered.svg(), html.said(covered)) if covered else "",
            self._places["reasons"].value,
            html.note(self._messages()),
            self._places["result"].value,
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
