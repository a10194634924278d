"""Accounts of records: a bar for each way to load or to read them: there once, lost, and there once too often."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from matplotlib.patches import Patch, Rectangle

from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import line_height, name, plural, shorten, tick, width

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["loader", "killed", "expected", "lost", "double"]
_COUNTS = _COLUMNS[2:]
# what → colour, hatch, outline
_KINDS: dict[str, tuple[str, str, Literal["-", "--"]]] = {
    "once": ("#56B4E9", "", "-"),
    "lost": ("white", "////", "--"),
    "double": ("#D55E00", "xxxx", "-"),
}
_HIGH = 0.5  # inches of a row
_BAR = 0.26
_NAMES = 2.75  # inches for the names
_VERDICT = 1.25  # inches behind the bars
_ROOM = WIDTH - EDGE - _NAMES - _VERDICT - RIGHT
_THIN = 0.04  # inches: a few beside many are still seen


def accounts(what: Any) -> Picture:
    """Draw for each way to load records how many of them are there once, lost, or there once too often.

    `what` is a table with the columns loader, killed (where it was killed, in a few words, or nothing), expected (records that were sent),
    lost (of them) and double (rows too many: a record that is there three times counts twice). Each has its colour and its pattern; the
    line is at what was expected. With `reader` for loader and without killed, it is what each reader finds. The first 20 rows are drawn.
    Returns a `Picture`. Raises UsageError for anything else.
    """
    word = "reader" if "reader" in getattr(what, "columns", ()) else "load"
    if word == "reader":
        found = (
            frame(what, "accounts", "a table of what was read", ["reader", *_COUNTS]).rename(columns={"reader": "loader"}).assign(killed="")
        )
    else:
        found = frame(what, "accounts", "a table of what was loaded", _COLUMNS)
    counts = {column: amounts(found, "accounts", column) for column in _COUNTS}
    table = found[_COLUMNS[:2]].fillna("").assign(**counts).reset_index(drop=True)
    if (table["lost"] > table["expected"]).any():
        row = table[table["lost"] > table["expected"]].iloc[0]
        raise UsageError(f"accounts: lost is {row['lost']:,} in a row of the table, and only {row['expected']:,} were expected")
    drawn = table.head(ROWS)
    title, note = _words(table, word)
    with drawing():
        figure = _draw(title, note, drawn).figure if len(drawn) else blank(title, note, "no records").figure
    told = drawn.drop(columns="killed").rename(columns={"loader": word}) if word == "reader" else drawn
    return Picture(title, note, told, figure, len(table) - len(drawn))


def _words(table: pd.DataFrame, word: str) -> tuple[str, str]:
    if not len(table):
        return "No records were counted", f"Nothing was {'read' if word == 'reader' else 'loaded'}."
    exact = int(((table["lost"] == 0) & (table["double"] == 0)).sum())
    title = f"Each record once: {exact} of {plural(len(table), word)}"
    worst = []
    for column, words in (("lost", "lost"), ("double", "there once too often")):
        if most := int(table[column].max()):
            who = table.loc[table[column].idxmax(), "loader"]
            worst.append(f"at most {most:,} {words} ({scrub(str(who), 40)})")
    told = "; ".join(worst)
    return title, f"{told[0].upper()}{told[1:]}." if worst else "Nothing is lost, and nothing is there twice."


def _draw(title: str, note: str, table: pd.DataFrame) -> Sheet:
    bottom = EDGE + 2 * line_height() + 0.1
    legend = [(_patch("once"), "there once"), (_patch("lost"), "lost"), (_patch("double"), "there once too often")]
    page = Sheet(title, note, bottom + _HIGH * len(table), legend)
    most = max(1, int((table["expected"] + table["double"]).max()))
    inch = _ROOM / most
    left = EDGE + _NAMES
    for i, row in enumerate(table.to_dict("records")):
        _row(page, row, page.top - (i + 0.5) * _HIGH, inch)
    _scale(page, sorted(set(table["expected"].tolist())), left, bottom, inch)
    page.text(left + _ROOM / 2, EDGE, "records expected (line), rows there (bar)", ha="center")
    return page


def _row(page: Sheet, row: dict[Any, Any], y: float, inch: float) -> None:
    """Name, bar and verdict of one load; `y` is the row's middle."""
    killed = name(row["killed"])
    page.text(EDGE, y + (0.02 if killed else 0), shorten(name(row["loader"]), _NAMES - 0.15, weight="bold"), weight="bold",
              va="bottom" if killed else "center")  # fmt: skip
    if killed:
        page.text(EDGE, y - 0.02, shorten(f"killed {killed}", _NAMES - 0.15), va="top", color="#444444")
    left, expected, lost, double = EDGE + _NAMES, row["expected"], row["lost"], row["double"]
    at = left
    for kind, count in (("once", expected - lost), ("lost", lost), ("double", double)):
        if count:
            wide = max(count * inch, _THIN)
            page.figure.add_artist(_bar(page, kind, at, y - _BAR / 2, wide))
            at += wide
    end = left + expected * inch
    page.figure.add_artist(Rectangle((end - 0.01, y - 0.2), 0.02, 0.4, facecolor="black", transform=page.figure.dpi_scale_trans, zorder=5))
    told = [f"{count:,} {word}" for word, count in (("lost", lost), ("double", double)) if count] or ["✔ each once"]
    x = max(at, end) + 0.08
    for j, text in enumerate(told):
        place = y + (len(told) / 2 - j - 0.5) * line_height()
        page.text(x, place, shorten(text, WIDTH - EDGE - x), va="center", weight="normal" if text[0] == "✔" else "bold")


def _scale(page: Sheet, expected: list[int], left: float, bottom: float, inch: float) -> None:
    """Numbers below the lines, as far as they have room."""
    taken = -1.0
    for value in expected[-1:] + expected[:-1][::-1]:
        text = tick(value, "files")
        x = left + value * inch
        if taken < 0 or x + width(text) / 2 < taken:
            page.text(x, bottom - 0.04, text, ha="center", va="top")
            taken = x - width(text) / 2 - 0.08


def _bar(page: Sheet, kind: str, x: float, y: float, wide: float) -> Rectangle:
    colour, hatch, line = _KINDS[kind]
    return Rectangle(
        (x, y), wide, _BAR, facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, linestyle=line,
        transform=page.figure.dpi_scale_trans,
    )  # fmt: skip


def _patch(kind: str) -> Patch:
    colour, hatch, line = _KINDS[kind]
    return Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.5, linestyle=line)
