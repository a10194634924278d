"""Tasks over time, packed into as few lanes as tasks ran at once."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.patches import Patch, PathPatch, Polygon
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator

from quire.arguments import format_size
from quire.errors import UsageError, scrub
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, drawing
from quire.plots.words import amount, line_height, name, plural, shorten, width

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_COLUMNS = ["commit", "task", "directory", "part", "files", "bytes", "started", "seconds"]
_COLOURS = (("#56B4E9", "#2F8FC4"), ("#E69F00", "#B97F00"))  # of every other commit; of every other task in a lane
_LONG = 2.0  # times the median: from there a task that takes longest is worth a mark
_ROOM = WIDTH - LEFT - RIGHT
_LABELLED = 300  # tasks: of more, none has its number of files
_APART = 0.04  # of the width: between commits
_MOST_COMMITS = 8


def tasks(what: Any, commit: Any = None) -> Picture:
    """Draw when each task ran: a lane for each task that ran at once, seconds from the first start to the right.

    `what` is a Ledger, or a table with the columns commit, task, directory, part, files, bytes, started (a time, UTC) and seconds.
    `commit` is the number of one, or "all" (of more than 8 the last 8), which are drawn side by side, each from its own start:
    the time between them is left out; default: the last one. The number on a task is that of its files.

    The table has a row for each task, in the order of their starts (`start` in seconds from the commit's first); of more than
    20 those that took longest. Returns a `Picture`. Raises UsageError for what was not run, and for anything else.
    """
    hint = "Call the plan's .run(), then draw quire.Ledger(dest)."
    if _is_plan(what):
        raise UsageError(f"tasks: this plan was not run yet, so it has no times to draw. {hint}")
    found = frame(what, "tasks", "a Ledger or a table of tasks", _COLUMNS, f"A plan was not run yet. {hint} ")
    if not len(found):
        return _nothing("No tasks", "Nothing was run.")
    drawn, note = _chosen(_checked(found), commit)
    untimed = len(drawn)
    drawn = drawn[drawn["started"].notna() & drawn["seconds"].ge(0)]
    untimed -= len(drawn)
    if untimed:
        note += f" {plural(untimed, 'task')} without a time {'is' if untimed == 1 else 'are'} left out."
    if not len(drawn):
        return _nothing("No tasks with a time", note.strip())
    stretches = _stretches(drawn)
    title = _title(stretches)
    note = f"{_told(drawn, stretches)}{note}"
    with drawing():
        figure = _draw(title, note, stretches).figure
    rows = _rows(stretches)
    chosen = rows if len(rows) <= ROWS else rows.sort_values("seconds", ascending=False, kind="stable").head(ROWS)
    return Picture(title, note, chosen.reset_index(drop=True), figure, len(rows) - len(chosen))


@dataclass(frozen=True)
class _Stretch:
    """The tasks of one commit in the order of their starts, with start (s) and lane, and how long they took together."""

    commit: Any
    rows: pd.DataFrame
    span: float
    lanes: int


def _is_plan(what: Any) -> bool:
    """Return whether `what` has its tasks as a table without times, as a plan has."""
    import pandas as pd

    if isinstance(what, pd.DataFrame | type):
        return False
    found = getattr(what, "tasks", None)
    return isinstance(found, pd.DataFrame) and "started" not in found.columns


def _nothing(title: str, note: str) -> Picture:
    import pandas as pd

    with drawing():
        page = Sheet(title, note, 1.2)
        page.empty("no tasks")
    return Picture(title, note, pd.DataFrame(columns=[*_COLUMNS[:6], "start", "seconds"]), page.figure)


def _checked(found: pd.DataFrame) -> pd.DataFrame:
    """Return the table with int64 files and bytes, times in UTC (NaT: not known) and float64 seconds."""
    import pandas as pd

    try:
        started = pd.to_datetime(found["started"], utc=True, format="ISO8601")
        seconds = pd.to_numeric(found["seconds"]).astype("float64")
    except (TypeError, ValueError) as e:
        raise UsageError(f"tasks: started takes times and seconds takes numbers: {scrub(str(e), 120)}") from None
    # Logs of before times were kept say 0, which reads as 1970.
    started = started.where(started > pd.Timestamp(0, tz="UTC"))
    seconds = seconds.where(np.isfinite(seconds))
    counts = {column: amounts(found, "tasks", column) for column in ("files", "bytes")}
    return found[_COLUMNS].assign(started=started, seconds=seconds, **counts).reset_index(drop=True)


def _chosen(found: pd.DataFrame, commit: Any) -> tuple[pd.DataFrame, str]:
    """Return the tasks of the commits to draw, and a word about those that are not."""
    there = list(dict.fromkeys(found["commit"].tolist()))
    first = found.groupby("commit", sort=False)["started"].min()
    there.sort(key=lambda one: first[one].value if first.notna()[one] else 0)
    if commit is None:
        drawn, rest = there[-1:], len(there) - 1
        note = f" {plural(rest, 'earlier commit')} not drawn: say commit=… or commit='all'." if rest else ""
    elif isinstance(commit, str) and commit == "all":
        drawn, rest = there[-_MOST_COMMITS:], max(len(there) - _MOST_COMMITS, 0)
        note = f" {plural(rest, 'earlier commit')} not drawn." if rest else ""
    else:
        if commit not in there:
            some = ", ".join(name(one) for one in there[-10:])
            raise UsageError(f"tasks: no commit {scrub(repr(commit), 60)} with tasks: the last ones are {some}, or commit='all'")
        drawn, note = [commit], ""
    return found[found["commit"].isin(drawn)], note


def _stretches(drawn: pd.DataFrame) -> list[_Stretch]:
    found = []
    for commit, rows in drawn.groupby("commit", sort=False):
        ordered = rows.sort_values("started", kind="stable")
        start = (ordered["started"] - ordered["started"].iloc[0]).dt.total_seconds()
        ends = start + ordered["seconds"]
        lanes = _lanes(start.to_numpy(), ends.to_numpy())
        placed = ordered.assign(start=start, lane=lanes)
        found.append((ordered["started"].iloc[0], _Stretch(commit, placed, max(float(ends.max()), 1e-3), int(lanes.max()) + 1)))
    return [stretch for _, stretch in sorted(found, key=lambda pair: pair[0])]


def _lanes(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return (tasks,) the lowest lane that is free at each start; starts ascend."""
    free, busy = list[int](), list[tuple[float, int]]()
    found, used = [], 0
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        while busy and busy[0][0] <= a:
            heapq.heappush(free, heapq.heappop(busy)[1])
        lane = heapq.heappop(free) if free else used
        used = max(used, lane + 1)
        heapq.heappush(busy, (b, lane))
        found.append(lane)
    return np.array(found, dtype=np.int64)


def _title(stretches: list[_Stretch]) -> str:
    number = plural(sum(len(s.rows) for s in stretches), "task")
    if len(stretches) > 1:
        return f"{len(stretches)} commits: {number} in {_time(sum(s.span for s in stretches))}"
    one = stretches[0]
    return f"Commit {name(one.commit)}: {number} in {_time(one.span)}, {one.lanes:,} at once"


def _told(drawn: pd.DataFrame, stretches: list[_Stretch]) -> str:
    seconds = drawn["seconds"]
    busy = float(seconds.sum()) / sum(s.span * s.lanes for s in stretches)
    middle, longest = float(seconds.median()), float(seconds.max())
    times = f", {longest / middle:.1f} times the median" if middle > 0 and len(seconds) > 2 else ""
    at = seconds.idxmax()
    of = f" of commit {name(drawn['commit'][at])}" if len(stretches) > 1 else ""
    files, held = int(drawn["files"].sum()), int(drawn["bytes"].sum())
    return (
        f"{plural(files, 'file')}, {format_size(held)}. The lanes were busy for {busy:.0%} of the time; "
        f"the longest task, {name(drawn['task'][at])}{of}, took {_time(longest)}{times}."
    )


def _time(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds >= 100 else f"{seconds:.3g} s"


def _rows(stretches: list[_Stretch]) -> pd.DataFrame:
    import pandas as pd

    columns = [*_COLUMNS[:6], "start", "seconds"]
    return pd.concat([s.rows[columns] for s in stretches], ignore_index=True)


# --- drawing ---


def _draw(title: str, note: str, stretches: list[_Stretch]) -> Sheet:
    lanes, number = max(s.lanes for s in stretches), sum(len(s.rows) for s in stretches)
    high = min(max(lanes * 0.28, 0.84), 4.2)
    longest = _longest(stretches)
    legend = []
    if longest is not None:
        handle = Patch(facecolor="white", hatch="////", edgecolor="black", linewidth=0.8)
        legend = [(handle, f"the longest task, more than {_LONG:.0f} times the median")]
    bottom = EDGE + 2 * line_height() + 0.16
    heads = line_height() + 0.08 if len(stretches) > 1 else 0.0
    page = Sheet(title, note, bottom + high + heads + 0.05, legend)
    ax = page.axes(bottom, high)
    page.name_axis("tasks at once", bottom + high / 2)

    total = sum(s.span for s in stretches)
    scale = (1 - _APART * (len(stretches) - 1)) / total  # of the width, for a second
    ax.set_xlim(0, 1)
    ax.set_ylim(0, lanes)
    places = [int(p) for p in MaxNLocator(min(6, max(lanes, 1)), integer=True).tick_values(1, lanes) if 1 <= p <= lanes]
    ax.set_yticks([p - 0.5 for p in places], [f"{p:,}" for p in places])
    offset, ticks = 0.0, list[tuple[float, str]]()
    for k, stretch in enumerate(stretches):
        _stretch(page, ax, stretch, offset, scale, k, (bottom, high / lanes, number <= _LABELLED, longest))
        if len(stretches) > 1:
            _head(page, ax, stretch, offset, scale, bottom + high + 0.05)
        ticks += _ticks(stretch, offset, scale)
        offset += stretch.span * scale + _APART
    ax.set_xticks([x for x, _ in ticks], ["" for _ in ticks])
    page.name_ticks([(LEFT + x * _ROOM, shorten(text, 1.0)) for x, text in ticks], bottom - 0.07, 0.06, -1.0)
    each = "each commit's first start; the time between them is left out" if len(stretches) > 1 else "the first start"
    page.text(LEFT + _ROOM / 2, EDGE, f"seconds since {each}", ha="center")
    return page


def _longest(stretches: list[_Stretch]) -> int | None:
    """Return the row of the task that took longest, if it stands out."""
    import pandas as pd

    seconds = pd.concat([s.rows["seconds"] for s in stretches])
    return int(seconds.idxmax()) if len(seconds) > 2 and seconds.max() > _LONG * seconds.median() else None


def _stretch(
    page: Sheet, ax: Axes, stretch: _Stretch, offset: float, scale: float, k: int, place: tuple[float, float, bool, int | None]
) -> None:
    bottom, lane_high, labelled, longest = place
    rows = stretch.rows
    left, lane = offset + rows["start"].to_numpy() * scale, rows["lane"].to_numpy()
    right = left + np.maximum(rows["seconds"].to_numpy() * scale, 0.02 / _ROOM)  # what took no time shows as a hair
    gap = 0.1 if lane_high > 0.1 else 0.0
    corners = np.stack(
        [
            np.stack([left, lane + gap], 1),
            np.stack([right, lane + gap], 1),
            np.stack([right, lane + 1 - gap], 1),
            np.stack([left, lane + 1 - gap], 1),
        ],
        axis=1,
    )
    # Neighbours in a lane have two shades: so they can be told apart where an edge between them would cover them.
    turn = rows.groupby("lane").cumcount().to_numpy() % 2
    for shade, colour in enumerate(_COLOURS[k % 2]):
        if (turn == shade).any():
            outline = Path.make_compound_path(*(Path(box, closed=True) for box in corners[turn == shade][:, [0, 1, 2, 3, 0]]))
            edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.5} if labelled else {"linewidth": 0}
            ax.add_patch(PathPatch(outline, facecolor=colour, zorder=2, **edge))
    if longest in rows.index:
        at = rows.index.tolist().index(longest)
        mark = Polygon(corners[at], closed=True, facecolor="none", edgecolor="black", linewidth=0.8, hatch="////", zorder=3)
        ax.add_patch(mark)
    if not labelled or lane_high < 0.16:
        return
    for x, y, wide, files in zip(left, lane, right - left, rows["files"].tolist(), strict=True):
        text = amount(files, "files")
        if width(text) + 0.06 <= wide * _ROOM:
            box = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8}
            page.text(LEFT + (x + wide / 2) * _ROOM, bottom + (y + 0.5) * lane_high, text, ha="center", va="center", bbox=box)


def _head(page: Sheet, ax: Axes, stretch: _Stretch, offset: float, scale: float, y: float) -> None:
    """Name a commit above its stretch, and separate it from the one before."""
    if offset:
        ax.axvline(offset - _APART / 2, color="#777777", linestyle=":", linewidth=0.8)
    room = (stretch.span * scale + _APART) * _ROOM - 0.06
    for text in (f"commit {name(stretch.commit)}", name(stretch.commit)):
        if width(text, weight="bold") <= room:
            page.text(LEFT + offset * _ROOM, y, text, va="bottom", weight="bold")
            return


def _ticks(stretch: _Stretch, offset: float, scale: float) -> list[tuple[float, str]]:
    """Return (place on the axis, label) of round seconds of a stretch, about one an inch."""
    wanted = max(1, int(stretch.span * scale * _ROOM))
    values = MaxNLocator(wanted, steps=[1, 2, 5, 10]).tick_values(0, stretch.span)
    return [(offset + float(v) * scale, f"{round(float(v), 6):,g}" if v < 1e5 else f"{v:,.0f}") for v in values if 0 <= v <= stretch.span]
