"""Do more reads in flight help? Files a second against reads in flight, beside what the round trip allows."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D

from quire.arguments import seconds
from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import amount, line_height, tick, width

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLUMNS = ["in_flight", "files", "seconds"]
_ROOM = WIDTH - LEFT - RIGHT
_HIGH = 2.9  # inches
_BELOW = 0.3  # inches of them below the lowest decade, for a point's number
_COLOUR = "#0072B2"
_BOUND: dict[str, Any] = {"color": "#777777", "linestyle": "--", "linewidth": 1.2}
_POINTS: dict[str, Any] = {"color": _COLOUR, "linewidth": 1.0, "marker": "o", "markersize": 6}


def rates(what: Any, round_trip: str | float | None = None) -> Picture:
    """Draw how many files a second were read with so many reads in flight, both axes logarithmic.

    `what` is a table with the columns in_flight (reads in flight, 1 or more), files (how many were read) and seconds (it took).
    `round_trip` is how long one read takes to come back ("140 ms", or seconds); with it a line shows the most that n reads in flight
    can bring, n / round_trip. A point below the line is limited by something else: the service, or this machine.

    The table has a row for each measurement, in the order of in_flight, with files_per_second, and at_most where the round trip is
    given; of more than 20 the first and the last ones. Returns a `Picture`. Raises UsageError for anything else.
    """
    trip = None if round_trip is None else seconds(round_trip, "round_trip")
    if trip == 0:
        raise UsageError("round_trip is 0: no read comes back at once. Leave it out if it is not known.")
    table = _checked(frame(what, "rates", "a table of measurements", _COLUMNS))
    title = "Files a second against reads in flight" if len(table) else "No measurements"
    if trip is not None:
        table.insert(2, "at_most", table["in_flight"] / trip)
    note = _note(len(table), trip)
    with drawing():
        figure = _draw(title, note, table, trip).figure if len(table) else blank(title, note, "no measurements").figure
    few = len(table) <= ROWS
    chosen = table if few else table.iloc[[*range(ROWS // 2), *range(len(table) - ROWS // 2, len(table))]]
    return Picture(title, note, chosen.reset_index(drop=True), figure, len(table) - len(chosen))


def _checked(found: pd.DataFrame) -> pd.DataFrame:
    """Return the measurements in the order of in_flight, with files_per_second."""
    import pandas as pd

    took = pd.Series(pd.to_numeric(found["seconds"], errors="coerce"), dtype="float64")
    checked = pd.DataFrame({column: amounts(found, "rates", column) for column in _COLUMNS[:2]}).assign(seconds=took)
    for column, wrong in (
        ("in_flight", checked["in_flight"] < 1),
        ("files", checked["files"] < 1),
        ("seconds", ~(took > 0) | np.isinf(took)),
    ):
        if wrong.any():
            value = found[column].tolist()[int(np.argmax(wrong))]
            raise UsageError(f"rates: {column} is {scrub(repr(value), 60)} in a row of the table: it is a number above 0")
    checked["files_per_second"] = checked["files"] / checked["seconds"]
    return checked.sort_values("in_flight", kind="stable").reset_index(drop=True)


def _note(number: int, trip: float | None) -> str:
    if not number:
        return "Nothing was measured."
    if trip is None:
        return "Each point was measured."
    return (
        f"Each read takes {_time(trip)} to come back, so n reads in flight bring at most n / {_time(trip)} (line). "
        "The points were measured: one far below the line was held up by the service or by this machine."
    )


def _time(span: float) -> str:
    return f"{span:,.3g} s" if span >= 1 else f"{span * 1e3:.3g} ms"


def _draw(title: str, note: str, table: pd.DataFrame, trip: float | None) -> Sheet:
    bottom = EDGE + 2 * line_height() + 0.16
    legend = [(Line2D([], [], **_POINTS), "measured")]
    if trip is not None:
        legend.append((Line2D([], [], **_BOUND), f"at most: n / {_time(trip)}"))
    page = Sheet(title, note, bottom + _HIGH + 0.12, legend)
    ax = page.axes(bottom, _HIGH)
    page.name_axis("files a second (log)", bottom + _HIGH / 2)
    page.text(LEFT + _ROOM / 2, EDGE, "n: reads in flight (log)", ha="center")

    flights = table["in_flight"].to_numpy()
    bound = [] if trip is None else table["at_most"].tolist()
    _axes(ax, flights, [*table["files_per_second"].tolist(), *bound])
    ax.grid(color="#E4E4E4", linewidth=0.6)
    ax.set_axisbelow(True)
    _name_flights(page, ax, np.unique(flights), bottom - 0.07)
    if trip is not None:
        ax.plot(flights, bound, zorder=2, **_BOUND)
    _measured(page, ax, table, bottom)
    return page


def _axes(ax: Axes, flights: Any, values: list[float]) -> None:
    """Whole decades of files a second, with room below for a number; ticks at the powers of ten."""
    low, high = math.floor(math.log10(min(values)) + 1e-9), math.ceil(math.log10(max(values)) - 1e-9)
    high = max(high, low + 1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(flights.min() / 1.35, flights.max() * 1.35)
    ax.set_ylim(10.0 ** (low - (high - low) * _BELOW / (_HIGH - _BELOW)), 10.0**high)
    powers = range(low, high + 1, max(1, math.ceil((high - low) / 8)))
    ax.set_yticks([10.0**p for p in powers], [tick(10.0**p, "files") if -1 <= p < 15 else f"{10.0**p:.0e}" for p in powers])
    ax.minorticks_off()


def _place(ax: Axes, flight: float) -> float:
    """Inches from the page's left edge."""
    first, last = ax.get_xlim()
    return LEFT + math.log(flight / first) / math.log(last / first) * _ROOM


def _name_flights(page: Sheet, ax: Axes, flights: Any, y: float) -> None:
    """Write the numbers in flight that have room, from the left."""
    places = flights.tolist()
    written = page.name_ticks([(_place(ax, flight), tick(flight, "files")) for flight in places], y, 0.08)
    named = list(itertools.compress(places, written))
    ax.set_xticks(named, ["" for _ in named])


def _measured(page: Sheet, ax: Axes, table: pd.DataFrame, bottom: float) -> None:
    """Draw the points on axes of their own, which are a group of that name in the SVG: what differs from run to run is there alone."""
    own = page.axes(bottom, _HIGH)
    own.set_gid("measured")
    own.set_zorder(2)
    own.set_axis_off()
    own.set_xscale("log")
    own.set_yscale("log")
    own.set_xlim(ax.get_xlim())
    own.set_ylim(ax.get_ylim())
    own.plot(table["in_flight"], table["files_per_second"], clip_on=False, **_POINTS)
    taken = -math.inf
    for flight, rate in zip(table["in_flight"].tolist(), table["files_per_second"].tolist(), strict=True):
        text = f"{rate:.2g}" if rate < 10 else amount(round(rate), "files")
        x = min(_place(ax, flight), WIDTH - EDGE - width(text) / 2)
        if x - width(text) / 2 > taken:
            own.annotate(text, (flight, rate), ((x - _place(ax, flight)) * 72, -8), textcoords="offset points", ha="center", va="top")
            taken = x + width(text) / 2 + 0.06
