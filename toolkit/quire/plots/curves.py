"""The cost of more files: curves of committers over the number of files, both axes logarithmic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, drawing
from quire.plots.words import line_height, name, plural, tick

if TYPE_CHECKING:
    import pandas as pd

_HIGH = 2.2  # inches of each of the axes
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000", "#7F7F7F")
_MARKS = "osD^vPX*"
_LINES = ("-", "--", "-.", ":")


def windows(what: Any) -> Picture:
    """Draw how long readers see a part of a job's files, against the number of files, both axes logarithmic.

    `what` is a table with the columns committer, files (1 or more) and seconds, as `lab.Matrix.windows`. A window of less than a
    millisecond, also one that nobody has seen, is drawn as one.

    The table is the same, of at most 20 rows. Returns a `Picture`. Raises UsageError for anything else.
    """
    found = _checked(frame(what, "windows", "the windows of a lab's matrix", ["committer", "files", "seconds"]), "windows", ["seconds"])
    note = "The time from the first look that sees a file of the job to the first that sees them all. At the bottom: a millisecond or less."
    return _picture("How long readers see a part of the files", note, found, [("seconds", "seconds (log)", 1e-3)])


def costs(what: Any) -> Picture:
    """Draw what a job costs on a store: requests, bytes that the store copies, and the window, against the number of files.

    `what` is a table with the columns committer, files (1 or more), requests, copied (bytes) and window (seconds), as
    `lab.Costs.table`. Both axes are logarithmic; nothing is drawn at the lowest line.

    The table is the same, of at most 20 rows. Returns a `Picture`. Raises UsageError for anything else.
    """
    columns = ["requests", "copied", "window"]
    found = _checked(frame(what, "costs", "the costs that a lab has measured", ["committer", "files", *columns]), "costs", columns)
    note = "All requests of a job and those that a store copies by, as a proxy before the store has counted them."
    panels = [("requests", "requests (log)", 1.0), ("copied", "bytes copied (log)", 1.0), ("window", "window, s (log)", 1e-3)]
    return _picture("What committers cost", note, found, panels)


def _checked(found: pd.DataFrame, verb: str, columns: list[str]) -> pd.DataFrame:
    import pandas as pd

    found = found[["committer", "files", *columns]].reset_index(drop=True)
    made = found.assign(files=amounts(found, verb, "files"))
    for column in columns:
        values = pd.Series(pd.to_numeric(found[column], errors="coerce"), dtype="float64")
        wrong = ~(np.isfinite(values) & (values >= 0))
        if wrong.any() or (made["files"] < 1).any():
            at = int(np.argmax(wrong)) if wrong.any() else int(np.argmax(made["files"] < 1))
            which = column if wrong.any() else "files"
            raise UsageError(
                f"{verb}: {which} is {scrub(repr(found[which].tolist()[at]), 60)} in a row of the table: it is a number, not below 0"
            )
        made[column] = values
    return made


def _picture(title: str, note: str, found: pd.DataFrame, panels: list[tuple[str, str, float]]) -> Picture:
    names = list(dict.fromkeys(found["committer"].tolist()))
    title = f"{title}: {plural(len(names), 'committer')}" if names else f"{title}: nothing was measured"
    with drawing():
        figure = _draw(title, note, found, names, panels).figure
    chosen = found.head(ROWS)
    return Picture(title, note, chosen, figure, len(found) - len(chosen))


def _look(i: int) -> dict[str, Any]:
    """The style of a committer's line: colour alone never distinguishes two."""
    again = i // 8
    found = {"color": _COLOURS[i % 8], "marker": _MARKS[i % 8], "linestyle": _LINES[(i + again) % 4], "markersize": 4.5, "linewidth": 1.2}
    return {**found, "markerfacecolor": "white"} if again % 2 else found


def _draw(title: str, note: str, found: pd.DataFrame, names: list[Any], panels: list[tuple[str, str, float]]) -> Sheet:
    if not names:
        page = Sheet(title, note, 1.2)
        page.empty("nothing was measured")
        return page
    legend = [(Line2D([], [], **_look(i)), name(one)) for i, one in enumerate(names)]
    bottom = EDGE + 2 * line_height() + 0.16
    gap = 0.25
    page = Sheet(title, note, bottom + len(panels) * (_HIGH + gap), legend)
    page.text(LEFT + (WIDTH - LEFT - RIGHT) / 2, EDGE, "files of the job (log)", ha="center")
    files = sorted(set(found["files"].tolist()))
    for k, (column, label, least) in enumerate(reversed(panels)):
        low = bottom + k * (_HIGH + gap)
        ax = page.axes(low, _HIGH)
        page.name_axis(label, low + _HIGH / 2)
        values = found[column].clip(lower=least)
        powers = range(
            math.floor(math.log10(least) + 1e-9), max(math.ceil(math.log10(values.max()) - 1e-9), math.floor(math.log10(least)) + 1) + 1
        )
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(files[0] / 1.35, files[-1] * 1.35)
        ax.set_ylim(10.0 ** powers[0] / 1.3, 10.0 ** powers[-1] * 1.3)
        shown = [10.0**p for p in powers][:: max(1, len(powers) // 6)]
        ax.set_yticks(shown, [tick(y, "files") if y >= 1 else f"{y:g}" for y in shown])
        ax.set_xticks(files, [f"{n:,}" for n in files] if not k else ["" for _ in files])
        ax.minorticks_off()
        ax.grid(color="#E4E4E4", linewidth=0.6)
        ax.set_axisbelow(True)
        for i, one in enumerate(names):
            of = found[found["committer"] == one].sort_values("files")
            ax.plot(of["files"], of[column].clip(lower=least), clip_on=False, **_look(i))
    return page
