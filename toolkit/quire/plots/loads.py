"""When was what loaded? The records of each commit of a topic's destination, at the time of the commit."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame, tables_of
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import line_height, plural, tick

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLUMNS = ["version", "verb", "time", "records", "quarantined", "lost"]
_COUNTS = ["records", "quarantined", "lost"]
_BROUGHT = ("run", "retry")  # what brings records; other verbs write them anew, or take them out
_MOST = 500  # commits that are drawn
_BAR, _ASIDE, _LOST, _OTHER = "#0072B2", "#D55E00", "black", "#009E73"
_ROOM = WIDTH - LEFT - RIGHT
_HIGH = 1.1  # inches
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)  # seconds between two labels
_DAY = 86_400


def loads(what: Any) -> Picture:
    """Draw how many records each commit of a load has brought, at its time, and mark those that quarantined or lost some.

    `what` is a Ledger, or a table with the columns version, verb, time, records, quarantined and lost, as
    `Ledger.inspect.commits()` gives it. The last 500 commits are drawn. Commits that bring nothing (compact, forget, …)
    stand on the axis. The table has the last 20. Returns a `Picture`. Raises UsageError for anything else.
    """
    commits = getattr(tables_of(what), "commits", None)
    found = frame(commits(last=_MOST) if callable(commits) else what, "loads", "a Ledger or a table of commits", _COLUMNS)
    table = found[["version", "verb"]].assign(time=_times(found), **{column: amounts(found, "loads", column) for column in _COUNTS})
    table.loc[~table["verb"].isin(_BROUGHT), "records"] = 0
    drawn = table.sort_values("version", kind="stable").tail(_MOST).reset_index(drop=True)
    title, note = _words(drawn)
    with drawing():
        figure = _draw(title, note, drawn).figure if len(drawn) else blank(title, note, "no commits", 0.8).figure
    shown = drawn.tail(ROWS).reset_index(drop=True)
    shown = shown.assign(time=shown["time"].dt.strftime("%Y-%m-%d %H:%M:%S")).rename(columns={"version": "commit"})
    return Picture(title, note, shown, figure, len(table) - len(shown))


def _times(found: pd.DataFrame) -> pd.Series[Any]:
    import pandas as pd

    try:
        times = pd.Series(pd.to_datetime(found["time"], utc=True, format="ISO8601"))
    except (TypeError, ValueError) as e:
        raise UsageError(f"loads: time takes times, and has another value: {scrub(str(e), 120)}") from None
    if times.isna().any():
        raise UsageError("loads: time is missing in a row of the table: when was that commit?")
    return times


def _words(drawn: pd.DataFrame) -> tuple[str, str]:
    if not len(drawn):
        return "No commits", "Nothing was loaded yet."
    records, last = int(drawn["records"].sum()), drawn["time"].iloc[-1]
    title = f"{plural(len(drawn), 'commit')}: {plural(records, 'record')}, the last one at {last:%Y-%m-%d %H:%M:%S} UTC"
    told = [f"{n:,} × {verb}" for verb, n in Counter(scrub(str(verb), 24) for verb in drawn["verb"]).items() if verb != "run"]
    for column, words in (("quarantined", "quarantined"), ("lost", "lost to retention")):
        if n := int(drawn[column].sum()):
            told.append(f"{n:,} {words}")
    largest = drawn.loc[drawn["records"].idxmax()]
    told.insert(0, f"At most {plural(int(largest['records']), 'record')} at once")
    return title, f"{', '.join(told)}."


def _draw(title: str, note: str, drawn: pd.DataFrame) -> Sheet:
    seconds = drawn["time"].astype("datetime64[us, UTC]").astype("int64").to_numpy() / 1e6
    first, last = float(seconds.min()), float(seconds.max())
    span = max(last - first, 1.0)
    bottom = EDGE + 2 * line_height() + 0.16
    page = Sheet(title, note, bottom + _HIGH + 0.16, _legend(drawn))
    ax = page.axes(bottom, _HIGH + 0.1)
    page.name_axis("records", bottom + _HIGH / 2)
    edge = span * 0.02
    ax.set_xlim(first - edge, first + span + edge)
    most = max(int(drawn["records"].max()), 1)
    ax.set_ylim(0, most * (_HIGH + 0.1) / (_HIGH - 0.1))
    ticks = [int(v) for v in MaxNLocator(3, integer=True, steps=[1, 2, 5, 10]).tick_values(0, most) if 0 <= v <= most]
    ax.set_yticks(ticks, [tick(value, "files") for value in ticks])
    ax.set_axisbelow(True)
    ax.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    _bars(ax, drawn, seconds, span)
    _name_times(page, ax, first, span, bottom)
    return page


def _legend(drawn: pd.DataFrame) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = [(Patch(facecolor=_BAR), "records of a commit")]
    for column, marker, colour, words in (("quarantined", "^", _ASIDE, "some quarantined"), ("lost", "X", _LOST, "some lost")):
        if drawn[column].any():
            found.append((_mark(marker, colour), words))
    if not drawn["verb"].isin(_BROUGHT).all():
        found.append((_mark("D", _OTHER), "no new records"))
    return found


def _mark(marker: str, colour: str) -> Line2D:
    return Line2D([], [], **_look(marker, colour))


def _look(marker: str, colour: str) -> dict[str, Any]:
    edge = {"markeredgecolor": "white", "markeredgewidth": 0.5}
    return {"linestyle": "", "marker": marker, "markersize": 6, "markerfacecolor": colour, "clip_on": False, **edge}


def _bars(ax: Axes, drawn: pd.DataFrame, seconds: np.ndarray, span: float) -> None:
    inch = span * 1.04 / _ROOM  # seconds of an inch
    records = drawn["records"].to_numpy()
    wide = min(0.12, max(0.015, 0.6 * _ROOM / max(len(drawn), 1))) * inch
    most = max(int(records.max()), 1)
    shown = np.where(records > 0, np.maximum(records, most * 0.02), 0)  # a few beside many show as a hair
    ax.bar(seconds, shown, width=wide, color=_BAR, linewidth=0, zorder=2)
    rise = most * 0.07  # a mark stands on its bar
    for column, marker, colour, off in (("quarantined", "^", _ASIDE, 1.0), ("lost", "X", _LOST, 2.2)):
        some = drawn[column].to_numpy() > 0
        if some.any():
            ax.plot(seconds[some], shown[some] + rise * off, zorder=4, **_look(marker, colour))
    other = ~drawn["verb"].isin(_BROUGHT).to_numpy()
    if other.any():
        ax.plot(seconds[other], np.zeros(other.sum()), zorder=3, **_look("D", _OTHER))


def _name_times(page: Sheet, ax: Axes, first: float, span: float, bottom: float) -> None:
    """Round times below the axis, and the days that they are of."""
    import pandas as pd

    step = next((s for s in _STEPS if span / s <= 6), _DAY * (1 + int(span / _DAY / 6)))
    places = np.arange(np.ceil(first / step) * step, first + span + 1e-9, step).tolist()
    form = "%Y-%m-%d" if step >= _DAY else "%H:%M" if step % 60 == 0 else "%H:%M:%S"
    ax.set_xticks(places, ["" for _ in places])
    inch = _ROOM / (span * 1.04)
    labels = [(LEFT + (place - first + span * 0.02) * inch, pd.Timestamp(place, unit="s").strftime(form)) for place in places]
    page.name_ticks(labels, bottom - 0.07, 0.1, -1.0)
    days = list(dict.fromkeys(pd.Timestamp(t, unit="s").strftime("%Y-%m-%d") for t in (first, first + span)))
    page.text(LEFT + _ROOM / 2, EDGE, "UTC" if step >= _DAY else f"UTC, {' to '.join(days)}", ha="center")
