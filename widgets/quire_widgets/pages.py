"""Plans, reports, ledgers and committers below the forms: as HTML and as text."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from quire import Plan, Report, Sniffed
from quire.arguments import format_size

if TYPE_CHECKING:
    from quire.ledger.browse import Page


from typing import TYPE_CHECKING

from quire.committers.guarantees import BESIDE, FOUR, MARKS, WORDS
from quire_widgets import html

if TYPE_CHECKING:
    from quire.committers import Advice, Check
    from quire.committers.lab import Matrix
    from quire.committers.lab.advised import Marked

_LONGEST = 120  # characters of a reason
COMMITS = 50  # in their table
RANGES = 100
_COUNTS = ("files", "forgotten", "quarantined", "data_files")
EXAMPLE = 72  # characters of a path in the table of reasons


@dataclass(frozen=True)
class Grid:
    """A table with a caption, to be shown in a browser or as text."""

    caption: str
    header: Sequence[str]
    rows: Sequence[Sequence[Any]]
    numbers: Sequence[str] = ()
    below: str = ""  # the directory that its paths are below
    short: Sequence[str] = ()  # columns of words that do not break

    def html(self) -> str:
        """As HTML, everything escaped."""
        title = f'<p style="margin:8px 0 0"><strong>{html.text(self.caption)}</strong>'
        title += f", below {html.text(self.below)}</p>" if self.below else "</p>"
        return html.block(title, html.table("", self.header, self.rows, self.numbers, short=self.short) if self.rows else "")

    def text(self) -> str:
        """As lines of text."""
        return "\n".join(
            [
                f"{self.caption}, below {self.below}" if self.below else self.caption,
                *([html.columns(self.header, self.rows, self.numbers)] if self.rows else []),
            ]
        )


def folder_of(paths: Sequence[str]) -> str:
    """The directory that all the paths are below, with the `/` at its end."""
    if not paths:
        return ""
    shared = posixpath.commonprefix(list(paths))
    shared = shared[: shared.rfind("/") + 1]
    return shared if shared.count("/") > 2 else ""  # more than file:// or s3://


def rows(page: Page) -> Grid:
    """A page of the ledger. The names of data files are not in it: `of_file` tells them."""
    table = page.table
    folder = folder_of(table["path"].tolist())
    header = ["path", "status", "from", "bytes", "commit", "reason"]
    found = [
        (path.removeprefix(folder) + (f"!{member}" if member else ""), state, f"{start:,}", format_size(length), commit, _cut(reason))
        for path, member, state, start, length, commit, reason in zip(
            *(table[c].tolist() for c in ("path", "member", "state", "start", "length", "commit", "reason")), strict=True
        )
    ]
    header, found = _without(header, found, "from", "0")
    header, found = _without(header, found, "reason", "")
    return Grid(page.words, header, found, ("from", "bytes", "commit"), folder)


def reasons(found: pd.DataFrame, quarantined: int) -> Grid:
    """Why files were quarantined."""
    counted = int(found["files"].sum())
    what = f"Quarantined: {html.more_than(counted, quarantined, 'file')}, by reason" if quarantined else "Nothing is quarantined."
    table = [
        (_cut(reason), f"{files:,}", tries, _end(example)) for reason, files, tries, example in found.itertuples(index=False, name=None)
    ]
    return Grid(what, ("reason", "files", "times read", "for example"), table, ("files", "times read"))


def commits(found: pd.DataFrame, total: int) -> Grid:
    """When each commit was made, and what it did; the last ones."""
    table = [(row["version"], row["verb"], row["time"], *(f"{row[c]:,}" for c in _COUNTS), row["note"]) for row in found.to_dict("records")]
    caption = f"{html.more_than(len(found), total, 'commit')}, with their times"
    header, table = _without(["commit", "verb", "time", *(c.replace("_", " ") for c in _COUNTS), "note"], table, "note", "")
    return Grid(caption, header, table, ("commit", *(c.replace("_", " ") for c in _COUNTS)))


def of_file(path: str, coverage: pd.DataFrame) -> Grid:
    """The ranges of one file: where each lies, or why it was quarantined."""
    table = [
        (f"{start:,}", f"{length:,}", state, "" if pd.isna(commit) else int(commit), data_file or "", _cut(reason))
        for start, length, state, commit, data_file, reason in zip(
            *(coverage[c].tolist() for c in ("start", "length", "state", "commit")),
            *([None if pd.isna(x) else x for x in coverage[c].tolist()] for c in ("data_file", "reason")), strict=True
        )
    ]  # fmt: skip
    header, table = _without(["from", "bytes", "status", "commit", "data file", "reason"], table, "data file", "")
    header, table = _without(header, table, "reason", "")
    return Grid(path, header, table[:RANGES], ("from", "bytes", "commit"))


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


TASKS = 10  # in the table
FILES = 100  # of those that were quarantined


def found(looked: Sniffed) -> str:
    """The facts, and the kinds of files with an example of each."""
    columns, kinds = ("kind", "codec", "transform", "files", "example"), looked.as_dict()["kinds"][:TASKS]
    rows = [tuple(kind[column] for column in columns) for kind in kinds]
    return html.block(looked._repr_html_(), html.table("Kinds of files among those that were looked at", columns, rows, ("files",)))


def plan(found: Plan) -> str:
    """The facts, and the heaviest tasks."""
    tasks = found.tasks
    facts = found._repr_html_()
    if not len(tasks):
        return html.block(facts, "<p>There is nothing to do.</p>")
    heavy = tasks.sort_values("bytes", ascending=False, kind="stable").head(TASKS)
    caption = f"Heaviest: {html.more_than(len(heavy), len(tasks), 'task')}"
    rows = [(t["task"], t["directory"] or ".", t["part"], f"{t['files']:,}", format_size(t["bytes"])) for t in heavy.to_dict("records")]
    return html.block(facts, html.table(caption, [*map(str, heavy.columns)], rows, ("task", "part", "files", "bytes")))


def report(done: Report) -> str:
    """The facts; on request, each file that was not gathered, with the reason."""
    lists = []
    for what, files, total in (
        ("Quarantined", done.quarantined, done.quarantined_count),
        ("Changed since, not read", done.changed, done.changed_count),
        ("Could not be read or planned", done.unreadable, done.unreadable_count),
        ("Deferred", done.deferred, len(done.deferred)),
    ):
        if files:
            caption = f"{what}: {html.more_than(min(len(files), FILES), total, 'file')}"
            lists.append(html.details(caption, html.table("", ("file", "reason"), files[:FILES])))
    return html.block(done._repr_html_(), *lists)


_STATES = {"ok": "✔ right", "wrong": "✘ wrong", "beware": "! beware", "unseen": "? not seen"}
_NAMES = (*FOUR, *BESIDE)
SHORT = ("committer", "evidence", "state", "what")  # columns of words that would break letter by letter beside long sentences
CHOSEN = "▶ "  # before the name of the marked row: nothing is told by colour alone


def advice(found: Advice, *, live: bool = True) -> str:
    """The committer, why, what it does not promise; on request, what else would be safe, and what would not. `live`: with a kernel."""
    about = html.text(f"{found.title} ({found.evidence}), for {found.kind}: {found.url}")
    head = f'<p style="margin:8px 0 4px"><strong>{html.text(found.committer)}</strong>: {about}</p>'
    others = [(one.committer, one.price, one.evidence) for one in found.alternatives]
    refused = [(one.committer, one.reason, one.source) for one in found.refused]
    more = (
        html.details(f"Safe too: {_several(len(others))}", html.table("", ("committer", "its price", "evidence"), others, short=SHORT))
        if others
        else ""
    )
    never = html.details(
        f"Refused here: {_several(len(refused))}", html.table("", ("committer", "why not", "source"), refused, short=SHORT)
    )
    return html.block(
        head,
        "How to write:",
        html.copyable(found.usage, "how to write") if live else html.code(found.usage),
        _listed("Why", found.why),
        _listed("Not guaranteed", found.not_guaranteed),
        more,
        never if refused else "",
        html.details("Sources", _items(found.sources)),
    )


def _agreement(advised: Advice | None, found: Check) -> tuple[bool | None, str]:
    """Whether a session would write with what is advised, and that in words; None: its settings do not decide that."""
    if advised is None:
        return None, f"This session would write with {found.committer}."
    if advised.committer == "quire":
        return None, f"df.write of this session would take {found.committer}; what is advised is quire's own, which no setting decides."
    if advised.committer == found.committer and found.ok:
        return True, f"This session would write with {found.committer}, as advised."
    if advised.committer == found.committer:
        return False, f"This session would write with {found.committer}, as advised, but not all of it is right."
    return False, f"This session would write with {found.committer}, and {advised.committer} is advised: start one with the settings above."


def check(advised: Advice | None, found: Check) -> str:
    """The committer that a session would use, and each check."""
    agrees, said = _agreement(advised, found)
    rows = [(_STATES[one.state], one.what, one.said, one.do) for one in found.findings]
    return html.block(
        f'<p style="margin:8px 0 0"><strong>{MARKS[agrees]} {html.text(said)}</strong></p>',
        f'<p style="margin:4px 0">{html.text(found.title)}. {html.text(found.will)}</p>',
        html.table(f"Looked at for {found.format}: {found.seen}", ("state", "what", "found", "what to do"), rows, short=SHORT),
    )


def check_text(advised: Advice | None, found: Check) -> str:
    """The same as text."""
    agrees, said = _agreement(advised, found)
    return f"{MARKS[agrees]} {said}\n{found}"


def matrix(found: Matrix, marked: Marked | None) -> str:
    """Committer × guarantee, the row of the advice marked, and the counts behind its marks."""
    at = found.committers.index(marked.committer) if marked is not None and marked.committer else None
    notes = "".join(f'<p style="margin:4px 0">{html.text(line)}</p>' for line in _notes(found, marked))
    reasons = [(name, key, why) for name in found.committers for key in _NAMES if (why := found.why(name, key))]
    means = html.table("", ("guarantee", "means"), [(name, WORDS[name]) for name in _NAMES])
    return html.block(
        html.table(_caption(found), ("committer", *_NAMES, "how", "tried on"), _marks(found, at), marked=at, short=("how", "tried on")),
        notes,
        html.details("What the guarantees mean", means),
        html.details("What was counted", html.table("", ("committer", "guarantee", "counted"), reasons)) if reasons else "",
    )


def matrix_text(found: Matrix, marked: Marked | None) -> str:
    """The same as text."""
    at = found.committers.index(marked.committer) if marked is not None and marked.committer else None
    table = html.columns(("committer", *_NAMES, "how", "tried on"), _marks(found, at))
    return "\n".join([_caption(found), table, *_notes(found, marked)])


def _caption(found: Matrix) -> str:
    made = ", ".join(str(found.made[name]) for name in ("date", "machine") if found.made.get(name))
    return f"What the lab has found{f' ({made})' if made else ''}"


def _marks(found: Matrix, at: int | None) -> list[Sequence[str]]:
    rows = list[Sequence[str]]()
    for number, (name, guarantees) in enumerate(found.guarantees.items()):
        marks = guarantees.as_dict()
        stores = ", ".join(dict.fromkeys(row.store for row in found.of(name) if row.how == "measured"))
        rows.append((f"{CHOSEN if number == at else ''}{name}", *(MARKS[marks[key]] for key in _NAMES), found.how(name), stores or "–"))
    return rows


def _notes(found: Matrix, marked: Marked | None) -> list[str]:
    """Notes on the marked row, and the counts behind the guarantees that it does not keep."""
    if marked is None:
        return []
    notes = [marked.note] if marked.note else []
    if marked.committer:
        notes += [f"{key}: {why}." for key in _NAMES if (why := found.why(marked.committer, key))]
    return notes


def _several(n: int) -> str:
    return html.more_than(n, n, "committer")


def _listed(title: str, items: Sequence[str]) -> str:
    return f'<p style="margin:8px 0 0"><strong>{html.text(title)}</strong></p>{_items(items)}' if items else ""


def _items(items: Sequence[str]) -> str:
    return f'<ul style="margin:2px 0 4px;padding-left:1.5em">{"".join(f"<li>{html.text(item)}</li>" for item in items)}</ul>'
