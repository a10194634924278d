"""Which committer keeps which guarantee? A field for each, with a sign and the counts behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.patches import Rectangle

from quire.errors import UsageError, scrub
from quire.plots.frames import frame
from quire.plots.picture import EDGE, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import name, plural, shorten, width

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["committer", "guarantee", "holds", "why", "how"]
_SIGNS = {True: ("✔ holds", "#CFE8F6"), False: ("✘ does not", "#F8DDB0"), None: ("– not known", "#F2F2F2")}
_HIGH = 0.52  # inches of a committer's row
_NAMES = 1.35  # inches for the committers' names


def guarantees(what: Any) -> Picture:
    """Draw a field for each committer and guarantee: a sign, and below it what was counted.

    `what` is a table with the columns committer, guarantee, holds (True, False, or nothing where it is not known), why (words, for a
    short line) and how ("measured", "read", "not run"), as `lab.Matrix.marks`. Cells that were read and not measured are hatched.

    The table is the same, of at most 20 rows. Returns a `Picture`. Raises UsageError for anything else.
    """
    found = frame(what, "guarantees", "the marks of a lab's matrix", _COLUMNS)[_COLUMNS].reset_index(drop=True)
    known = found["holds"].notna()
    if bad := [x for x in found["holds"][known].tolist() if not isinstance(x, bool)]:
        raise UsageError(f"guarantees: holds is {scrub(repr(bad[0]), 60)} in a row of the table: it is True, False or nothing")
    rows, columns = (list(dict.fromkeys(found[column].tolist())) for column in ("committer", "guarantee"))
    title = f"{plural(len(rows), 'committer')}, {plural(len(columns), 'guarantee')}" if rows else "No committers"
    measured = sorted(set(found["committer"][found["how"] == "measured"]))
    note = (
        f"{len(measured)} of {len(rows)} were measured; what was only read in documentation is hatched." if rows else "Nothing was tried."
    )
    with drawing():
        figure = _draw(title, note, found, rows, columns).figure if rows else blank(title, note, "no committers").figure
    chosen = found.head(ROWS)
    return Picture(title, note, chosen, figure, len(found) - len(chosen))


def _draw(title: str, note: str, found: pd.DataFrame, rows: list[Any], columns: list[Any]) -> Sheet:
    page = Sheet(title, note, _HIGH * len(rows) + 0.3 + EDGE)
    wide = (WIDTH - EDGE - _NAMES - RIGHT) / len(columns)
    top = page.top - 0.3
    for i, column in enumerate(columns):
        page.text(EDGE + _NAMES + (i + 0.5) * wide, top + 0.08, shorten(name(column), wide), ha="center", weight="bold")
    for j, row in enumerate(rows):
        y = top - (j + 1) * _HIGH
        page.text(EDGE, y + _HIGH / 2, shorten(name(row), _NAMES - 0.1), va="center", weight="bold")
        of = found[found["committer"] == row].set_index("guarantee")
        for i, column in enumerate(columns):
            if column not in of.index:
                continue
            one = of.loc[column]
            _field(page, EDGE + _NAMES + i * wide, y, wide, one)
    return page


def _field(page: Sheet, x: float, y: float, wide: float, one: Any) -> None:
    import pandas as pd

    holds = None if pd.isna(one["holds"]) else bool(one["holds"])
    sign, colour = _SIGNS[holds]
    hatch = "////" if one["how"] == "read" else None
    page.figure.add_artist(
        Rectangle(
            (x + 0.02, y + 0.02), wide - 0.04, _HIGH - 0.04, facecolor=colour, edgecolor="#BBBBBB", linewidth=0.6, hatch=hatch,
            transform=page.figure.dpi_scale_trans,
        )
    )  # fmt: skip
    why = str(one["why"])
    page.text(x + wide / 2, y + _HIGH * (0.68 if why else 0.5), sign, ha="center", va="center")
    if why:
        page.text(x + wide / 2, y + _HIGH * 0.3, _fitted(why, wide - 0.1), ha="center", va="center", size=6.5, color="#444444")


def _fitted(text: str, room: float) -> str:
    """As much of a text as has room in small letters."""
    first = text.partition("; ")[0].rpartition(": ")[2] + (" …" if "; " in text else "")
    return shorten(first, room * 8 / 6.5) if width(first) * 6.5 / 8 > room else first
