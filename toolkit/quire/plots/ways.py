"""Several ways to do the same: the bytes that each moves, and the seconds that it takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Rectangle

from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import amount, line_height, name, plural, shorten

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = ["way", "bytes", "seconds"]
_HIGH = 0.4  # inches of a row
_BAR = 0.24
_NAMES = 2.6  # inches for the names
_NUMBER = 0.8  # inches behind the longest bar
_GAP = 0.15
_PANEL = (WIDTH - EDGE - _NAMES - RIGHT - _GAP) / 2
_THIN = 0.02  # inches: a little beside much still shows
# colour, hatch
_BYTES: dict[str, Any] = {"facecolor": "#56B4E9", "hatch": "", "edgecolor": "black", "linewidth": 0.5}
_SECONDS: dict[str, Any] = {"facecolor": "#E69F00", "hatch": "////", "edgecolor": "black", "linewidth": 0.5}


def ways(what: Any) -> Picture:
    """Draw what several ways to do the same cost: the bytes that each reads or writes, and the seconds that it takes.

    `what` is a table with the columns way (its name), bytes (a whole number) and seconds. The first way is the one that the others are
    compared with. In each column the longest bar is as wide as the column. Seconds were measured: they are a group of their own in the
    SVG, and stand behind ≈ in the table's last column, took. The first 20 rows are drawn. Returns a `Picture`. Raises UsageError for
    anything else.
    """
    table = _checked(frame(what, "ways", "a table of ways and what they cost", _COLUMNS))
    title, note = _words(table)
    drawn = table.head(ROWS)
    with drawing():
        figure = _draw(title, note, drawn).figure if len(drawn) else blank(title, note, "no ways").figure
    shown = drawn[["way", "bytes"]].assign(took=[_time(seconds) for seconds in drawn["seconds"].tolist()])
    return Picture(title, note, shown, figure, len(table) - len(drawn))


def _checked(found: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    took = pd.Series(pd.to_numeric(found["seconds"], errors="coerce"), dtype="float64")
    wrong = ~((took >= 0) & np.isfinite(took))
    if wrong.any():
        value = found["seconds"].tolist()[int(np.argmax(wrong))]
        raise UsageError(f"ways: seconds is {scrub(repr(value), 60)} in a row of the table: it is a number, 0 or more")
    return found[["way"]].assign(bytes=amounts(found, "ways", "bytes"), seconds=took).reset_index(drop=True)


def _words(table: pd.DataFrame) -> tuple[str, str]:
    if not len(table):
        return "Nothing to compare", "No way was measured."
    first, others = table.iloc[0], table.iloc[1:]
    if not len(others) or not first["bytes"]:
        title = f"{plural(len(table), 'way')}, at most {amount(int(table['bytes'].max()), 'bytes')}"
    else:
        least = others.loc[others["bytes"].idxmin()]
        share = 100 * int(least["bytes"]) / int(first["bytes"])
        told = f"{share:.2g}" if share < 99 else f"{share:,.0f}"
        title = f"{scrub(name(least['way']), 60)}: {told} % of the bytes of “{scrub(name(first['way']), 60)}”"
    return title, "Bytes are counted. Seconds are measured, and differ from run to run."


def _time(seconds: float) -> str:
    return f"≈ {seconds:,.0f} s" if seconds >= 100 else f"≈ {seconds:.2g} s"


def _draw(title: str, note: str, table: pd.DataFrame) -> Sheet:
    head = line_height(9) + 0.02
    page = Sheet(title, note, EDGE + _HIGH * len(table) + head)
    first = EDGE + _NAMES
    second = first + _PANEL + _GAP
    for x, text in ((first, "bytes"), (second, "seconds, measured")):
        page.text(x, page.top, text, size=9, weight="bold", va="top")
    middles = [page.top - head - (i + 0.5) * _HIGH for i in range(len(table))]
    room = _PANEL - _NUMBER
    most = max(1, int(table["bytes"].max()))
    for y, way, count in zip(middles, table["way"].tolist(), table["bytes"].tolist(), strict=True):
        page.text(EDGE, y, shorten(name(way), _NAMES - 0.15, weight="bold"), weight="bold", va="center")
        wide = max(count / most * room, _THIN)
        page.figure.add_artist(Rectangle((first, y - _BAR / 2), wide, _BAR, transform=page.figure.dpi_scale_trans, **_BYTES))
        page.text(first + wide + 0.07, y, shorten(amount(count, "bytes"), _NUMBER - 0.07), va="center")
    _measured(page, table, middles, second)
    return page


def _measured(page: Sheet, table: pd.DataFrame, middles: list[float], left: float) -> None:
    """Draw the seconds on axes of their own, which are a group of that name in the SVG: what differs from run to run is there alone."""
    own = page.figure.add_axes((0, 0, 1, 1))
    own.set_gid("measured")
    own.set_axis_off()
    own.set_xlim(0, WIDTH)
    own.set_ylim(0, page.height)
    room, most = _PANEL - _NUMBER, float(table["seconds"].max()) or 1.0
    for y, seconds in zip(middles, table["seconds"].tolist(), strict=True):
        wide = max(seconds / most * room, _THIN)
        own.add_patch(Rectangle((left, y - _BAR / 2), wide, _BAR, clip_on=False, **_SECONDS))
        own.text(left + wide + 0.07, y, shorten(_time(seconds), _NUMBER - 0.07), va="center", clip_on=False)
