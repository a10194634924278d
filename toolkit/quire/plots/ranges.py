"""Which bytes of a file are accounted for? One bar from its first byte to its last, each range by its state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from matplotlib.patches import Patch, Rectangle

from quire.arguments import format_size
from quire.errors import UsageError, choose
from quire.plots.frames import amounts, frame, tables_of
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import line_height, name, plural, shorten, width

if TYPE_CHECKING:
    import os

    import pandas as pd

_COLUMNS = ["start", "length", "state", "commit"]
# state → colour, hatch, what it means
_STATES = {
    "done": ("#56B4E9", "", "gathered"),
    "quarantined": ("#D55E00", "xxxx", "quarantined"),
    "held": ("#F0E442", "....", "held back: no newline yet"),
    "mark": ("#009E73", "////", "done elsewhere"),
    "purging": ("#0072B2", "....", "gathered, its source is being deleted"),
    "purged": ("#0072B2", "", "gathered, its source was purged"),
    "lost": ("#000000", "", "lost at its source"),
    "gap": ("white", "", "not yet"),
}
_ROOM = WIDTH - LEFT - RIGHT
_HIGH = 0.5  # inches
_THIN = 0.02  # inches: a range as thin as a hair is still seen


def coverage(what: Any, path: str | os.PathLike[str] | None = None) -> Picture:
    """Draw which bytes of a source file are done, quarantined, held back, done elsewhere, or not covered yet ("gap").

    `what` is a Ledger and `path` the file; or a table with the columns start, length (bytes), state and commit, as
    `Ledger.inspect.coverage(path)` gives it. Each state has its colour, its pattern and its word; neighbours of one state and one
    commit are drawn as one. Returns a `Picture`. Raises UsageError for a path that the ledger does not know, and for anything else.
    """
    given = what
    if not hasattr(what, "columns") and hasattr(tables_of(what), "coverage"):
        if path is None:
            raise UsageError("coverage draws one file of a Ledger: say which, plots.coverage(ledger, path).")
        given = tables_of(what).coverage(path)
    table = _merged(frame(given, "coverage", "a Ledger and a path, or a table of ranges", _COLUMNS))
    title, note = _words(table, "" if path is None else name(path))
    with drawing():
        figure = _draw(title, note, table).figure if len(table) else blank(title, note, "no ranges").figure
    shown = table if len(table) <= ROWS else table.loc[table["length"].nlargest(ROWS).index.sort_values()]
    shown = shown.assign(commit=["" if one is None else str(one) for one in shown["commit"]])
    return Picture(title, note, shown[_COLUMNS].reset_index(drop=True), figure, len(table) - len(shown))


def _merged(found: pd.DataFrame) -> pd.DataFrame:
    """Return the ranges in their order, neighbours of one state and commit as one; gaps have no commit."""
    import pandas as pd

    checked = pd.DataFrame({column: amounts(found, "coverage", column) for column in ("start", "length")})
    checked["state"] = [choose(state, _STATES, "state") for state in found["state"].tolist()]
    checked["commit"] = [None if pd.isna(one) else int(one) for one in found["commit"].tolist()]
    rows = list[dict[str, Any]]()
    for row in checked.sort_values(["start", "length"], kind="stable").to_dict("records"):
        commit = None if pd.isna(row["commit"]) else int(row["commit"])
        last = rows[-1] if rows else None
        if last and (last["state"], last["commit"]) == (row["state"], commit) and last["start"] + last["length"] == row["start"]:
            last["length"] += row["length"]
        else:
            rows.append({"start": row["start"], "length": row["length"], "state": row["state"], "commit": commit})
    frame = pd.DataFrame({column: pd.Series([row[column] for row in rows], dtype=object) for column in _COLUMNS})
    return frame.astype({"start": "int64", "length": "int64"})


def _words(table: pd.DataFrame, path: str) -> tuple[str, str]:
    total = int((table["start"] + table["length"]).max()) if len(table) else 0
    of = shorten(path, 5.0, 12, "bold") if path else "The file"
    if not len(table):
        return f"{of}: nothing is covered", "The ledger has no range of it."
    told = []
    for state, (_, _, meaning) in _STATES.items():
        mine = table[table["state"] == state]
        if len(mine):
            named = meaning if meaning == state else f"{meaning} ({state})"
            told.append(f"{named}: {format_size(int(mine['length'].sum()))} in {plural(len(mine), 'range')}")
    text = "; ".join(told) + "."
    return f"{of}: {format_size(total)}, {_verdict(table)}", text[0].upper() + text[1:]


def _verdict(table: pd.DataFrame) -> str:
    states = set(table["state"])
    if states <= {"done", "mark", "purging", "purged"}:
        return "done elsewhere" if states == {"mark"} else "all of it done"
    kinds = {"quarantined": "some of it quarantined", "gap": "with gaps", "held": "its last line held back", "lost": "some of it lost"}
    return "quarantined" if states == {"quarantined"} else ", ".join(words for state, words in kinds.items() if state in states)


def _draw(title: str, note: str, table: pd.DataFrame) -> Sheet:
    legend = [(_patch(state), f"{state}: {_STATES[state][2]}") for state in _STATES if state in set(table["state"])]
    bottom = EDGE + 2 * line_height() + 0.16
    page = Sheet(title, note, bottom + _HIGH + 0.06, legend)
    ax = page.axes(bottom, _HIGH)
    end = int((table["start"] + table["length"]).max())
    inch = _ROOM / max(end, 1)
    ax.set_xlim(0, _ROOM)
    ax.set_ylim(0, 1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    edges, taken, hairs = list[float](), -1.0, set[tuple[int, str]]()
    for row in table.to_dict("records"):
        left, wide = row["start"] * inch, row["length"] * inch if end else _ROOM
        if wide < _THIN:  # one hair of a state stands for all that begin in its width: a loop's topic has 100,000 ranges a year
            if (hair := (int(left / _THIN), row["state"])) in hairs:
                continue
            hairs.add(hair)
        shown = min(max(wide, _THIN), _ROOM)
        left = min(left, _ROOM - shown)
        colour, hatch, _ = _STATES[row["state"]]
        line = {"linestyle": "--", "linewidth": 0.8} if row["state"] == "gap" else {"linewidth": 0.4}
        ax.add_patch(Rectangle((left, 0.04), shown, 0.92, facecolor=colour, hatch=hatch, edgecolor="black", zorder=2, **line))
        _label(page, row, bottom, left, shown)
        text = format_size(row["start"])
        x = LEFT + left
        if x - width(text) / 2 > taken and x + width(text) / 2 < LEFT + _ROOM - width(format_size(end)):
            page.text(x, bottom - 0.07, text, ha="center", va="top")
            edges.append(left)
            taken = x + width(text) / 2 + 0.08
    page.text(min(LEFT + _ROOM, WIDTH - EDGE - width(format_size(end)) / 2), bottom - 0.07, format_size(end), ha="center", va="top")
    ax.set_xticks([*edges, _ROOM], ["" for _ in range(len(edges) + 1)])
    page.text(LEFT + _ROOM / 2, EDGE, "bytes from the file's beginning", ha="center")
    return page


def _patch(state: str) -> Patch:
    colour, hatch, _ = _STATES[state]
    return Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.4, linestyle="--" if state == "gap" else "-")


def _label(page: Sheet, row: Mapping[Any, Any], bottom: float, left: float, wide: float) -> None:
    """Write state and commit into a range, as far as there is room."""
    full = row["state"] if row["commit"] is None else f"{row['state']}, commit {row['commit']}"
    for text in (full, row["state"]):
        if width(text) + 0.12 <= wide:
            box = {"boxstyle": "square,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
            page.text(LEFT + left + wide / 2, bottom + _HIGH / 2, text, ha="center", va="center", bbox=box)
            return
