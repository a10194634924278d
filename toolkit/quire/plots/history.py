"""The work of each commit: files that came and went, and the number of data files after it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from quire.errors import scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import amount, line_height, name, plural, tick, width

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLUMNS = ["version", "verb", "files", "forgotten", "quarantined", "written", "removed", "data_files"]
_COUNTS = [column for column in _COLUMNS if column not in ("version", "verb")]
_VERBS = {"run": ("#56B4E9", ""), "retry": ("#E69F00", "////"), "forget": ("#D55E00", "xxxx"), "compact": ("#009E73", "\\\\\\\\")}
_OTHER = ("#CC79A7", "....")  # colour, hatch
_ROOM = WIDTH - LEFT - RIGHT
_FEWEST = 6  # places for commits, so that one alone is not as wide as the page
_HIGH = (1.25, 0.75)  # inches of the two panels
_GAP = 0.14


def commits(what: Any) -> Picture:
    """Draw what each commit did, in their order: the files that came (up) and that were forgotten or replaced (down), and the data files.

    `what` is a Ledger, or a table with the columns version, verb, files, forgotten, quarantined, written, removed and data_files (how many
    count after the commit), as `Ledger.inspect.commits()` gives it. The last 20 commits are drawn; they stand side by side, and
    the time between them is left out. Each verb has its colour and its pattern. Returns a `Picture`. Raises UsageError for anything else.
    """
    found = frame(what, "commits", "a Ledger or a table of commits", _COLUMNS)
    table = found[["version", "verb"]].assign(**{column: amounts(found, "commits", column) for column in _COUNTS}).reset_index(drop=True)
    drawn = table.tail(ROWS).reset_index(drop=True)
    title, note = _words(drawn, len(table) - len(drawn))
    with drawing():
        figure = _draw(title, note, drawn).figure if len(drawn) else blank(title, note, "no commits").figure
    shown = drawn.rename(columns={"version": "commit"})
    return Picture(title, note, shown, figure, len(table) - len(drawn))


def _words(drawn: pd.DataFrame, more: int) -> tuple[str, str]:
    if not len(drawn):
        return "No commits", "Nothing was committed yet."
    first, now, most = drawn.iloc[0], int(drawn["data_files"].iloc[-1]), int(drawn["data_files"].max())
    earlier = more > 0 or first["data_files"] != first["written"] - first["removed"]
    number = f"The last {plural(len(drawn), 'commit')}" if earlier else plural(len(drawn), "commit")
    title = f"{number}: {plural(int(drawn['files'].sum()), 'file')} came, {plural(now, 'data file')} now"
    told = [f"{n:,} × {verb}" for verb, n in Counter(scrub(str(verb), 24) for verb in drawn["verb"]).items()]
    note = ", ".join(told)
    if gone := int(drawn["forgotten"].sum()):
        note += f"; {plural(gone, 'file')} forgotten or replaced"
    if most > now:
        note += f"; there were up to {plural(most, 'data file')}"
    return title, f"{note}."


def _draw(title: str, note: str, drawn: pd.DataFrame) -> Sheet:
    verbs = list(dict.fromkeys(drawn["verb"].map(str)))
    legend = [(_patch(verb), scrub(verb, 24)) for verb in [*(v for v in _VERBS if v in verbs), *(v for v in verbs if v not in _VERBS)][:8]]
    step = _ROOM / max(len(drawn), _FEWEST)
    fits = all(width(amount(n, "files")) + 0.08 <= step for column in _COUNTS for n in drawn[column].tolist())
    over = line_height() + 0.08 if fits else max(width(amount(n, "files")) for c in _COUNTS for n in drawn[c].tolist()) + 0.16
    under = over if drawn["forgotten"].any() else 0.0
    upper, lower = _HIGH[0] + over + under, _HIGH[1] + over
    bottom = EDGE + 2 * line_height() + 0.16
    heading = line_height(9) + 0.08
    page = Sheet(title, note, bottom + lower + heading + _GAP + upper + heading + 0.06, legend)
    data = _panel(page, drawn, ("data_files", ""), (bottom, lower, over, 0.0), step)
    files = _panel(page, drawn, ("files", "forgotten"), (bottom + lower + heading + _GAP, upper, over, under), step)
    page.text(LEFT, bottom + lower + 0.05, "Data files after it", size=9, weight="bold", va="bottom")
    heads = "Files that came (up), were forgotten or replaced (down)" if under else "Files that came"
    page.text(LEFT, bottom + lower + heading + _GAP + upper + 0.05, heads, size=9, weight="bold", va="bottom")
    _name_commits(page, drawn, bottom - 0.07, step)
    data.set_xticks(range(len(drawn)), ["" for _ in range(len(drawn))])
    files.set_xticks([])
    page.text(LEFT + _ROOM / 2, EDGE, "commits, by the version that each made", ha="center")
    return page


def _patch(verb: str) -> Patch:
    colour, hatch = _VERBS.get(verb, _OTHER)
    return Patch(facecolor=colour, hatch=hatch, edgecolor="white" if hatch else colour, linewidth=0.4)


def _panel(page: Sheet, drawn: pd.DataFrame, columns: tuple[str, str], place: tuple[float, float, float, float], step: float) -> Axes:
    """Bars up, and down where there is a second column, each with its number; a place is (bottom, height, room above, room below)."""
    low, high, over, under = place
    up = drawn[columns[0]].to_numpy()
    down = drawn[columns[1]].to_numpy() if columns[1] else np.zeros_like(up)
    most, least = max(int(up.max()), 1), int(down.max())
    inch = (high - over - under) / (most + least)  # of one file
    ax = page.axes(low, high)
    start = -under / inch - least
    ax.set_xlim(-0.5, _ROOM / step - 0.5)
    ax.set_ylim(start, start + high / inch)
    ticks = [int(v) for v in MaxNLocator(3, integer=True, steps=[1, 2, 5, 10]).tick_values(0, most) if 0 <= v <= most]
    ax.set_yticks(ticks, [tick(v, "files") for v in ticks])
    ax.set_axisbelow(True)
    ax.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    ax.axhline(0, color="black", linewidth=0.6)
    ax.spines["bottom"].set_visible(not least)
    for i, (verb, n, gone) in enumerate(zip(drawn["verb"].map(str), up.tolist(), down.tolist(), strict=True)):
        colour, hatch = _VERBS.get(verb, _OTHER)
        look: dict[str, Any] = {"color": colour, "hatch": hatch, "edgecolor": "white" if hatch else colour, "linewidth": 0.4, "zorder": 2}
        for value, sign in ((n, 1), (gone, -1)):
            if value:
                ax.bar([i], [sign * max(value, 0.02 / inch)], width=0.72, **look)  # a few beside many show as a hair
        x = LEFT + (i + 0.5) * step
        zero = low + (0 - start) * inch
        for value, sign, va in ((n, 1, "bottom"), (gone, -1, "top")):
            if value or (sign > 0 and not gone):
                text = ("−" if sign < 0 else "") + amount(value, "files")
                upright = 90 if width(text) + 0.08 > step else 0
                page.text(x, zero + sign * (value * inch + 0.05), text, ha="center", va=va, rotation=upright)
    return ax


def _name_commits(page: Sheet, drawn: pd.DataFrame, y: float, step: float) -> None:
    """Write each commit's number, and below it the verb, if all of them have room."""
    labels = [name(number) for number in drawn["version"].tolist()]
    verbs = [scrub(str(verb), 24) for verb in drawn["verb"].tolist()]
    if all(width(verb) + 0.08 <= step for verb in verbs):
        labels = [
            f"{number} {verb}" if width(f"{number} {verb}") + 0.08 <= step else number for number, verb in zip(labels, verbs, strict=True)
        ]
    taken = -1.0
    for i, label in enumerate(labels):
        x = LEFT + (i + 0.5) * step
        if x - width(label) / 2 > taken:
            page.text(x, y, label, ha="center", va="top")
            taken = x + width(label) / 2 + 0.06
