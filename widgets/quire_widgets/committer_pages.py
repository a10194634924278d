"""What of an advice, of a session's check and of a lab's matrix stands below the form; as HTML and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.committers.guarantees import BESIDE, FOUR, MARKS, WORDS
from quire_widgets import html, words

if TYPE_CHECKING:
    from quire.committers import Advice, Check
    from quire.committers.lab import Matrix
    from quire.committers.lab.advised import Marked

__all__ = ["advice", "check", "check_text", "matrix", "matrix_text"]

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
    """What a session would do, and each thing that was looked at."""
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
        html.table(_caption(found), ("committer", *_NAMES, "how", "tried on"), _rows(found, at), marked=at, short=("how", "tried on")),
        notes,
        html.details("What the guarantees mean", means),
        html.details("What was counted", html.table("", ("committer", "guarantee", "counted"), reasons)) if reasons else "",
    )


def matrix_text(found: Matrix, marked: Marked | None) -> str:
    """The same as text."""
    at = found.committers.index(marked.committer) if marked is not None and marked.committer else None
    table = words.columns(("committer", *_NAMES, "how", "tried on"), _rows(found, at))
    return "\n".join([_caption(found), table, *_notes(found, marked)])


def _caption(found: Matrix) -> str:
    made = ", ".join(str(found.made[name]) for name in ("date", "machine") if found.made.get(name))
    return f"What the lab has found{f' ({made})' if made else ''}"


def _rows(found: Matrix, at: int | None) -> list[Sequence[str]]:
    rows = list[Sequence[str]]()
    for number, (name, guarantees) in enumerate(found.guarantees.items()):
        marks = guarantees.as_dict()
        stores = ", ".join(dict.fromkeys(row.store for row in found.of(name) if row.how == "measured"))
        rows.append((f"{CHOSEN if number == at else ''}{name}", *(MARKS[marks[key]] for key in _NAMES), found.how(name), stores or "–"))
    return rows


def _notes(found: Matrix, marked: Marked | None) -> list[str]:
    """What is to be known of the marked row, and the counts behind what it does not keep."""
    if marked is None:
        return []
    notes = [marked.note] if marked.note else []
    if marked.committer:
        notes += [f"{key}: {why}." for key in _NAMES if (why := found.why(marked.committer, key))]
    return notes


def _several(n: int) -> str:
    return words.more_than(n, n, "committer")


def _listed(title: str, items: Sequence[str]) -> str:
    return f'<p style="margin:8px 0 0"><strong>{html.text(title)}</strong></p>{_items(items)}' if items else ""


def _items(items: Sequence[str]) -> str:
    return f'<ul style="margin:2px 0 4px;padding-left:1.5em">{"".join(f"<li>{html.text(item)}</li>" for item in items)}</ul>'
