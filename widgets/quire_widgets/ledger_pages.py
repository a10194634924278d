"""An inspector's view of a ledger: the whole of it, a page of its rows, one file's coverage, the last change; as HTML and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import quire
from quire import ProgressEvent, display, plots
from quire.errors import printable
from quire.ledger.browse import OTHERS, Page
from quire.ledger.ledger import Summary
from quire.storage.once import once
from quire_widgets import as_code, html, pages

if TYPE_CHECKING:
    import pandas as pd

ANY = "any"
ALL = "\0"  # in the list of reasons; None would be no choice at all
IN_VAIN = "Read once more, and none of it could be processed: all of it stays quarantined. Repair it, or the function, and retry again."
LEFT = 100  # files in the list of those that a change left as they are
_CHOSEN = 90  # characters of a path in the list of files
Searched = tuple[str, str | None]  # how paths begin, or a part of them, and a state; None: any
Options = list[tuple[str, Any]]  # of a list to choose from: words, and what they stand for


@dataclass(frozen=True)
class Overview:
    """A ledger as a whole, at one version."""

    summary: Summary
    commits: pd.DataFrame
    reasons: pd.DataFrame

    @once
    def picture(self) -> plots.Picture:
        """The commits, drawn."""
        return plots.commits(self.commits)

    @property
    def quarantined(self) -> pages.Grid:
        """Why files are quarantined."""
        return pages.reasons(self.reasons, self.summary.quarantined)

    def timeline(self, model: str) -> str:
        """The commits as a picture, and as a table below it; `model` tells it from others on its page."""
        table = pages.commits(self.commits, self.summary.commits)
        picture = html.picture(self.picture.svg(), html.said(self.picture), model)
        return html.block(picture, html.details(table.caption, html.table("", table.header, table.rows, table.numbers)))

    def choices(self) -> Options:
        """The reasons, to choose one."""
        counted = zip(self.reasons["reason"].tolist(), self.reasons["files"].tolist(), strict=True)
        every = (f"every reason: {files(self.summary.quarantined)}", ALL)
        return [every, *((f"{_shortened(reason or '(none)')}: {files(n)}", reason) for reason, n in counted if reason != OTHERS)]


@dataclass(frozen=True)
class Opened:
    """A ledger, and how it was opened."""

    dest: str
    options: Mapping[str, Any] | None
    spark: Any
    ledger: quire.Ledger

    def look(
        self, searched: Searched, limit: int, before: Overview | None, progress: Callable[[ProgressEvent], object] | None
    ) -> tuple[Overview, Searched, Page]:
        """The search and its page, after the overview, which is read again only after a new commit."""
        ledger, (path, state) = self.ledger.refresh(), searched
        page = ledger.rows(path, state, limit=limit, progress=progress)
        if before is None or before.summary.version != ledger.version:
            before = Overview(ledger.summary(), ledger.inspect.commits(last=pages.COMMITS), ledger.inspect.reasons(progress=progress))
        return before, searched, page

    def code(self, call: str, before: str = "", **named: Any) -> str:
        """A call as Python."""
        return as_code.ledger(self.dest, self.options is not None, self.spark, call, before, **named)


@dataclass
class LedgerView:
    """All that is shown of a ledger. The page is of what was `searched`: the fields may have changed since."""

    overview: Overview
    searched: Searched
    page: Page
    file: tuple[str, pd.DataFrame] | None = None  # and its coverage
    changed: Any = None  # what the last change has done

    def paths(self) -> Options:
        """The files of the page, to choose one."""
        paths = list(dict.fromkeys(self.page.table["path"].tolist()))
        folder = pages.folder_of(paths)
        return [("choose one of this page", ""), *((_shortened(path.removeprefix(folder)), path) for path in paths)]

    @property
    def coverage(self) -> Any:
        """The coverage of the file, drawn; None where none was looked at."""
        return plots.coverage(self.file[1], self.file[0]) if self.file else None

    def covered(self, model: str) -> str:
        """The coverage as a picture and a table."""
        if self.file is None:
            return ""
        picture = self.coverage
        return html.block(html.picture(picture.svg(), html.said(picture), model), pages.of_file(*self.file).html())

    def result(self) -> str:
        """The last change."""
        left = self.changed.left
        told = html.details(f"Left as it is: {files(len(left))}", html.table("", ("file", "why"), left[:LEFT])) if left else ""
        return html.block(html.alert(IN_VAIN) if self.changed.all_quarantined else "", self.changed._repr_html_(), told)

    def lines(self, messages: str, code: str) -> list[str]:
        """All of it as text."""
        overview = self.overview
        commits = f"{overview.picture.title}\n{overview.picture.note}"
        covered, changed = (repr(self.coverage) if self.file else ""), ("" if self.changed is None else str(self.changed))
        rows, reasons = pages.rows(self.page).text(), overview.quarantined.text()
        return [str(overview.summary), commits, rows, covered, reasons, messages, changed, code]

    def html(self, messages: str, code: str, places: Mapping[str, Any]) -> str:
        """All of it as a page without a kernel, with what stands in its `places`."""
        charts = [display.chart(picture.svg(), html.said(picture)) for picture in (self.overview.picture, self.coverage) if picture]
        summary, rows, reasons, result = (places[name].value for name in ("summary", "rows", "reasons", "result"))
        return html.block(summary, charts[0], rows, *charts[1:], reasons, html.note(messages), result, html.code(code))


def files(n: int) -> str:
    """So many files, in words."""
    return f"{n:,} {'file' if n == 1 else 'files'}"


def reason_of(choice: str) -> str | None:
    """The reason that was chosen; None: every one."""
    return None if choice == ALL else choice


def _shortened(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _CHOSEN else f"{text[: _CHOSEN // 3]}…{text[-2 * _CHOSEN // 3 :]}"
