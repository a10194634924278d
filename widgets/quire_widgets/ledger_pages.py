"""What of a ledger stands in tables: a page of rows, why files were set aside, one file's ranges; as HTML and as text."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from quire.arguments import format_size
from quire_widgets import html, words

if TYPE_CHECKING:
    from quire.ledger.browse import Page

__all__ = ["Table", "commits", "folder_of", "of_file", "reasons", "rows"]

_LONGEST = 120  # characters of a reason
COMMITS = 50  # in their table
RANGES = 100
_COUNTS = ("files", "forgotten", "set_aside", "data_files")
EXAMPLE = 72  # characters of a path in the table of reasons


@dataclass(frozen=True)
class Table:
    """A table with a caption, to be shown in a browser or as text."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: Sequence[str] = ()
    below: str = ""  # the directory that its paths are below

    def html(self) -> str:
        """As HTML, everything escaped."""
        title = f'<p style="margin:8px 0 0"><strong>{html.text(self.caption)}</strong>'
        title += f", below {html.text(self.below)}</p>" if self.below else "</p>"
        return html.block(title, html.table("", self.header, self.rows, self.numbers) if self.rows else "")

    def text(self) -> str:
        """As lines of text."""
        return "\n".join(
            [
                f"{self.caption}, below {self.below}" if self.below else self.caption,
                *([words.columns(self.header, self.rows, self.numbers)] if self.rows else []),
            ]
        )


def folder_of(paths: Sequence[str]) -> str:
    """The directory that all the paths are below, with the `/` at its end."""
    if not paths:
        return ""
    shared = posixpath.commonprefix(list(paths))
    shared = shared[: shared.rfind("/") + 1]
    return shared if shared.count("/") > 2 else ""  # more than file:// or s3://


def rows(page: Page) -> Table:
    """A page of the ledger. The names of data files are not in it: `of_file` tells them."""
    table = page.table
    folder = folder_of(table["path"].tolist())
    header = ["path", "status", "from", "bytes", "commit", "reason"]
    found = [
        (path.removeprefix(folder), state, f"{start:,}", format_size(length), commit, _cut(reason))
        for path, state, start, length, commit, reason in zip(
            *(table[c].tolist() for c in ("path", "state", "start", "length", "commit", "reason")), strict=True
        )
    ]
    header, found = _without(header, found, "from", "0")
    header, found = _without(header, found, "reason", "")
    return Table(page.words, header, found, ("from", "bytes", "commit"), folder)


def reasons(found: pd.DataFrame, set_aside: int) -> Table:
    """Why files were set aside."""
    counted = int(found["files"].sum())
    what = f"Set aside: {words.more_than(counted, set_aside, 'file')}, by reason" if set_aside else "Nothing is set aside."
    table = [
        (_cut(reason), f"{files:,}", tries, _end(example)) for reason, files, tries, example in found.itertuples(index=False, name=None)
    ]
    return Table(what, ("reason", "files", "times read", "for example"), table, ("files", "times read"))


def commits(found: pd.DataFrame, total: int) -> Table:
    """When each commit was made, and what it did; the last ones."""
    table = [(row["version"], row["verb"], row["time"], *(f"{row[c]:,}" for c in _COUNTS), row["note"]) for row in found.to_dict("records")]
    caption = f"{words.more_than(len(found), total, 'commit')}, with their times"
    header, table = _without(["commit", "verb", "time", *(c.replace("_", " ") for c in _COUNTS), "note"], table, "note", "")
    return Table(caption, header, table, ("commit", *(c.replace("_", " ") for c in _COUNTS)))


def of_file(path: str, coverage: pd.DataFrame) -> Table:
    """The ranges of one file: where each lies, or why it was set aside."""
    table = [
        (f"{start:,}", f"{length:,}", state, "" if pd.isna(commit) else int(commit), data_file or "", _cut(reason))
        for start, length, state, commit, data_file, reason in zip(
            *(coverage[c].tolist() for c in ("start", "length", "state", "commit")),
            *([None if pd.isna(x) else x for x in coverage[c].tolist()] for c in ("data_file", "reason")), strict=True
        )
    ]  # fmt: skip
    header, table = _without(["from", "bytes", "status", "commit", "data file", "reason"], table, "data file", "")
    header, table = _without(header, table, "reason", "")
    return Table(path, header, table[:RANGES], ("from", "bytes", "commit"))


def _without(header: list[str], rows: list[tuple[Any, ...]], name: str, value: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Leave a column out where it says the same everywhere."""
    at = header.index(name)
    if any(row[at] != value for row in rows):
        return header, rows
    return header[:at] + header[at + 1 :], [row[:at] + row[at + 1 :] for row in rows]


def _cut(reason: str | None) -> str:
    text = reason or ""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _end(path: str) -> str:
    """The last two names of a path, and no more than there is room for."""
    parts = path.split("/")
    text = path if len(parts) <= 3 else f"…/{'/'.join(parts[-2:])}"
    return text if len(text) <= EXAMPLE else f"…{text[1 - EXAMPLE :]}"
