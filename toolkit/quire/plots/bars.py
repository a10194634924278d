"""Are the parts of a plan even? A bar for each part, what it should have, and the names of those that stand out.

Up to 54 parts each have their number and their name, upright where they would not fit side by side. More are one outline, and
only the parts that stand out are named, at most eight of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from quire import skew
from quire.errors import UsageError, scrub
from quire.plots.flags import Flag, place
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, drawing
from quire.plots.words import amount, distinct, line_height, name, plural, shorten, tick, width
from quire.skew.result import PartRows, SkewResult

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

# flag → colour (Okabe and Ito's, which colour-blind people tell apart), hatch, marker
MARKS = {"heavy": ("#D55E00", "////", "^"), "light": ("#F0E442", "\\\\\\\\", "v"), "doubled": ("#CC79A7", "xxxx", "D")}
_PLAIN, _FEW, _BAND = "#56B4E9", "#C8C8C8", "#555555"

_ROOM = WIDTH - LEFT - RIGHT
_SINGLE = 54  # parts: so many upright numbers stand side by side
_NAMED = 8  # of the parts that stand out, where not all are named
_HIGH = 2.5  # inches


def partitions(what: Any) -> Picture:
    """Draw how many files (or bytes) each part has, and mark the parts that stand out.

    `what` is a SkewResult, a Plan, a Ledger, a Report, or the files of each part as `quire.skew.check` takes them: a sequence,
    a dict, a Series. The grey band is what each part should have: for files 4 standard deviations up and down, which chance
    hardly leaves; for bytes and records, which have no such test, a quarter up and down. Marked are parts outside of it that are
    off by more than a quarter: heavy, light, or doubled if abs() is missing.

    The table has one row a part: group (where there are several), part, files or bytes, expected, ratio, flag; of more than 20
    parts those that are farthest off. Returns a `Picture`. Raises UsageError for what has no parts.
    """
    result = _result(what)
    rows, unit = result.rows, result.unit
    title = f"{result.verdict[:1].upper()}{result.verdict[1:]}: {plural(result.parts, 'part')}, {_total(result)}"
    standing_out = [i for i in _farthest_first(rows, unit) if rows.flag[i] in MARKS]
    note = result.explanation
    if len(rows.part) > _SINGLE and len(standing_out) > _NAMED:
        others = f"{len(standing_out) - _NAMED:,} more"
        note += f" {plural(len(standing_out), 'part')} stand out: named are the {_NAMED} that are farthest off, and {others} are marked."
    with drawing():
        if not rows.part:
            page = Sheet(title, note, 1.2)
            figure = page.empty("no parts")
        elif len(rows.part) <= _SINGLE:
            figure = _single(title, note, rows, unit).figure
        else:
            figure = _outline(title, note, rows, unit, standing_out[:_NAMED]).figure
    table, more = _table(rows, unit)
    return Picture(title, note, table, figure, more)


def _result(what: Any) -> SkewResult:
    found = what
    if not isinstance(what, SkewResult | Iterable | type) and hasattr(what, "skew"):  # a Series has its own .skew()
        found = what.skew() if callable(what.skew) else what.skew
        if found is None:
            raise UsageError("there was nothing to do in this run, so it has no parts to draw: draw quire.Ledger(dest) instead")
    elif isinstance(what, Iterable):
        found = skew.check(cast("Any", what))
    if isinstance(found, SkewResult):
        return found
    raise UsageError(
        f"partitions draws a SkewResult, Plan, Ledger or Report, or the files of each part in a list or dict, not {scrub(repr(what), 60)}"
    )


def _total(result: SkewResult) -> str:
    if result.unit == "bytes":
        return amount(result.total, "bytes")
    return f"{amount(result.total, result.unit)} {result.unit.removesuffix('s')}{'' if result.total == 1 else 's'}"


def _band(rows: PartRows, unit: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (parts,) lowest and highest of what each part should have."""
    off = 4 * np.sqrt(rows.expected) if unit == "files" else rows.expected / 4
    return np.maximum(rows.expected - off, 0), rows.expected + off


def _farthest_first(rows: PartRows, unit: str) -> list[int]:
    """Return the parts' places, the one that is farthest off first."""
    scale = np.sqrt(rows.expected) if unit == "files" else rows.expected
    off = np.divide(np.abs(rows.count - rows.expected), scale, out=np.zeros(len(scale)), where=scale > 0)
    return cast("list[int]", np.argsort(-off, kind="stable").tolist())


def _table(rows: PartRows, unit: str) -> tuple[pd.DataFrame, int]:
    import pandas as pd

    chosen = range(len(rows.part)) if len(rows.part) <= ROWS else _farthest_first(rows, unit)[:ROWS]
    columns: dict[str, Any] = {"group": [rows.group[i] for i in chosen]} if len(set(rows.group)) > 1 else {}
    columns["part"] = [rows.part[i] for i in chosen]
    for heading, values in ((unit, rows.count), ("expected", rows.expected), ("ratio", rows.ratio)):
        columns[heading] = values[list(chosen)]
    columns["flag"] = [rows.flag[i] for i in chosen]
    return pd.DataFrame(columns), len(rows.part) - len(chosen)


# --- what both kinds share ---


def _legend(rows: PartRows, unit: str, markers: bool) -> list[tuple[Any, str]]:
    found: list[tuple[Any, str]] = [(Patch(facecolor=_PLAIN), f"{unit} of a part")] if "" in rows.flag else []
    if "few" in rows.flag:
        found.append((Patch(facecolor=_FEW), f"too few to say: {rows.flag.count('few'):,}"))
    for flag, (colour, hatch, marker) in MARKS.items():
        if number := rows.flag.count(flag):
            mark: Any = Patch(facecolor=colour, hatch=hatch, edgecolor="black", linewidth=0.6)
            if markers:
                mark = Line2D([], [], linestyle="", marker=marker, markersize=6, markerfacecolor=colour, markeredgecolor="black")
            found.append((mark, f"{flag}: {number:,}"))
    band = "4 standard deviations" if unit == "files" else "a quarter"
    return [*found, ((Patch(facecolor=_BAND, alpha=0.3), f"expected, ± {band}"))]


def _draw_band(ax: Axes, rows: PartRows, unit: str) -> None:
    low, high = _band(rows, unit)
    (expected, high, low), edges = _merged(rows.expected, high, low)
    ax.stairs(high, edges, baseline=low, fill=True, color=_BAND, alpha=0.3, linewidth=0, zorder=3)
    ax.stairs(expected, edges, baseline=None, color="black", linestyle=(0, (4, 2)), linewidth=0.9, zorder=4)


def _merged(*values: NDArray[np.float64]) -> tuple[list[NDArray[np.float64]], NDArray[np.int64]]:
    """Return steps, (parts,) each, and their edges with equal neighbours as one step: a small picture for many parts."""
    changes = np.any([step[1:] != step[:-1] for step in values], axis=0)
    starts = np.concatenate([[0], np.flatnonzero(changes) + 1])
    return [step[starts] for step in values], np.append(starts, len(values[0])).astype(np.int64)


def _axis(ax: Axes, most: float, share: float, unit: str, parts: int) -> float:
    """Set the axes up so that `most` fills `share` of their height; return what the whole height stands for."""
    whole = max(most, 1.0 if unit == "files" else 0.0, 1e-300) / share
    ax.set_xlim(0, parts)
    ax.set_ylim(0, whole)
    ax.set_xticks([])
    places = _round_numbers(most, unit)
    ax.set_yticks(places, [tick(place, unit) for place in places])
    ax.set_axisbelow(True)
    ax.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    return whole


def _round_numbers(most: float, unit: str) -> list[float]:
    """Return up to 6 numbers from 0 to `most`: round ones, of bytes in their unit of 1024s."""
    base = 1024.0 ** min(int(np.log2(most) / 10), 5) if unit == "bytes" and 1 <= most < 2**63 else 1.0
    if most <= 0:
        return [0.0]
    step = 10.0 ** np.floor(np.log10(most / base / 5))
    step = next(step * k for k in (1, 2, 5, 10, 20) if most / base / (step * k) < 6)
    if unit == "files":
        step = max(step, 1.0)
    return [k * step * base for k in range(int(most / base / step) + 1)]


def _groups(rows: PartRows) -> list[tuple[str, int, int]]:
    """Return (group, start, end): the parts of a group stand side by side."""
    starts = [i for i, group in enumerate(rows.group) if i == 0 or rows.group[i - 1] != group]
    return [(rows.group[a], a, b) for a, b in zip(starts, [*starts[1:], len(rows.group)], strict=True)]


def _name_groups(page: Sheet, ax: Axes, groups: list[tuple[str, int, int]], slot: float, y: float) -> bool:
    """Separate the groups, and write their names at `y` inches if all have room; return whether."""
    if len(groups) > 60:
        return False
    for _, start, _ in groups[1:]:
        ax.axvline(start, color="#777777", linewidth=0.7, linestyle=":", zorder=5)
    if min(end - start for _, start, end in groups) * slot < 0.45:
        return False
    for group, start, end in groups:
        page.text(
            LEFT + (start + end) / 2 * slot,
            y,
            shorten(name(group) or "(none)", (end - start) * slot - 0.1),
            ha="center",
            va="top",
            style="italic",
        )
    return True


# --- up to 54 parts: each has its number and its name ---


def _single(title: str, note: str, rows: PartRows, unit: str) -> Sheet:
    parts, slot = len(rows.part), _ROOM / len(rows.part)
    groups = _groups(rows)
    numbers = [_numbered(rows, unit, i) for i in range(parts)]
    flat = False
    for lines in (numbers, [[both[0], *" ".join(both[1:]).split()] for both in numbers]):
        if max(_bold(line) for both in lines for line in both) + 0.03 <= slot and not flat:
            numbers, flat = lines, True
    texts = ["\n".join(lines) if flat else "  ".join(lines) for lines in numbers]
    above = 0.08 + (line_height() * max(map(len, numbers)) if flat else max(map(_bold, texts)))
    labels = [_own_name(rows.part[i], rows.group[i], len(groups) > 1) for i in range(parts)]
    upright = max(map(_bold, distinct(labels, 1.4))) > slot - 0.1
    labels = distinct(labels, 1.4 if upright else slot - 0.06)
    below = 0.08 + (max(map(_bold, labels)) if upright else line_height())
    bottom = EDGE + line_height() + 0.04 + (line_height() + 0.04 if len(groups) > 1 else 0) + below
    high = _HIGH + above
    page = Sheet(title, note, bottom + high + 0.05, _legend(rows, unit, markers=False))

    ax = page.axes(bottom, high)
    page.name_axis(unit, bottom + high / 2)
    _, highest = _band(rows, unit)
    most = float(max(rows.count.max(), highest.max()))
    whole = _axis(ax, most, _HIGH / high, unit, parts)
    for flag in ("", "few", *MARKS):
        chosen = [i for i in range(parts) if rows.flag[i] == flag]
        colour, hatch, _ = MARKS.get(flag, (_PLAIN if not flag else _FEW, "", ""))
        edge: dict[str, Any] = {"edgecolor": "black", "linewidth": 0.6, "hatch": hatch} if hatch else {}
        if chosen:
            ax.bar([i + 0.5 for i in chosen], rows.count[chosen], width=0.8, color=colour, zorder=2, **edge)
    _draw_band(ax, rows, unit)

    for i in range(parts):
        x, heavy = LEFT + (i + 0.5) * slot, {"weight": "bold"} if rows.flag[i] in MARKS else {}
        # above the bar, and above the band where the bar ends in it or below
        y = bottom + float(rows.count[i]) / whole * high + 0.04
        behind = {"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.75}
        page.text(x, y, texts[i], ha="center", va="bottom", rotation=0 if flat else 90, bbox=behind, linespacing=1.1, **heavy)
        page.text(x, bottom - 0.06, labels[i], ha="center", va="top", rotation=90 if upright else 0, **heavy)
    if len(groups) > 1:
        named = _name_groups(page, ax, groups, slot, bottom - below - 0.04)
        page.text(LEFT + _ROOM / 2, EDGE, f"parts of {len(groups):,} groups{'' if named else ', group after group'}", ha="center")
    else:
        page.text(LEFT + _ROOM / 2, EDGE, "part", ha="center")
    return page


def _bold(text: str) -> float:
    return width(text, weight="bold")


def _numbered(rows: PartRows, unit: str, i: int) -> list[str]:
    number = amount(float(rows.count[i]), unit)
    return [number, f"{rows.flag[i]} {_times(rows, i)}"] if rows.flag[i] in MARKS else [number]


def _times(rows: PartRows, i: int) -> str:
    ratio = float(rows.ratio[i])
    return f"{ratio:,.2f}×" if ratio < 1e6 else f"{ratio:.3g}×"


def _own_name(part: str, group: str, grouped: bool) -> str:
    """Return the part's name without its group's, where that is written below."""
    rest = part.removeprefix(group)
    return name(rest[1:] if grouped and rest != part and rest[:1] in {"/", "#"} else part)


# --- more parts: an outline ---


def _outline(title: str, note: str, rows: PartRows, unit: str, named: list[int]) -> Sheet:
    parts, slot, groups = len(rows.part), _ROOM / len(rows.part), _groups(rows)
    texts = [
        f"{own}: {amount(float(rows.count[i]), unit)}, {rows.flag[i]} {_times(rows, i)}"
        for i, own in zip(named, distinct([name(rows.part[i]) for i in named], 1.6), strict=True)
    ]
    flags = place([(LEFT + (i + 0.5) * slot, _bold(text)) for i, text in zip(named, texts, strict=True)], LEFT, WIDTH - EDGE)
    strip = (max((flag.row for flag in flags), default=-1) + 1) * (line_height() + 0.04) + 0.12
    bottom = EDGE + 2 * line_height() + 0.14
    page = Sheet(title, note, bottom + _HIGH + strip, _legend(rows, unit, markers=True))

    ax = page.axes(bottom, _HIGH)
    page.name_axis(unit, bottom + _HIGH / 2)
    _, highest = _band(rows, unit)
    whole = _axis(ax, float(max(rows.count.max(), highest.max())), 0.95, unit, parts)
    flag_of = np.array(rows.flag, dtype=object)
    # One outline for each kind, however many parts: the picture stays small.
    for flag in ("", "few", *MARKS):
        if (flag_of == flag).any():
            colour = MARKS[flag][0] if flag in MARKS else _FEW if flag else _PLAIN
            (counts,), edges = _merged(np.where(flag_of == flag, rows.count, 0))
            ax.stairs(counts, edges, fill=True, color=colour, linewidth=0, zorder=2)
    _draw_band(ax, rows, unit)
    for flag, (colour, _, marker) in MARKS.items():
        chosen = np.flatnonzero(flag_of == flag)
        if 0 < len(chosen) <= 100:  # a bar may be thinner than a hair
            ax.vlines(chosen + 0.5, 0, rows.count[chosen], color=colour, linewidth=0.8, zorder=2.5)
        ax.plot(chosen + 0.5, rows.count[chosen], linestyle="", marker=marker, markersize=5 if len(chosen) <= 100 else 3,
                markerfacecolor=colour, markeredgecolor="black", markeredgewidth=0.5, clip_on=False, zorder=6)  # fmt: skip
    for i, text, above in zip(named, texts, flags, strict=True):
        _name_part(page, text, above, bottom + float(rows.count[i]) / whole * _HIGH, bottom + _HIGH + 0.06)

    if len(groups) > 1 and _name_groups(page, ax, groups, slot, bottom - 0.06):
        label = f"{parts:,} parts of {len(groups):,} groups"
    else:
        _name_some(page, ax, rows, slot, bottom - 0.07)
        label = f"{parts:,} parts" + (f" of {len(groups):,} groups, group after group" if len(groups) > 1 else "")
    page.text(LEFT + _ROOM / 2, EDGE, label, ha="center")
    return page


def _name_part(page: Sheet, text: str, flag: Flag, low: float, strip: float) -> None:
    """Write a part's name above the axes, on a pole that stands on its bar."""
    y = strip + flag.row * (line_height() + 0.04)
    pole = Line2D([flag.x, flag.x], [low, y + line_height()], transform=page.figure.dpi_scale_trans, color="#333333", linewidth=0.6)
    page.figure.add_artist(pole)
    page.text(flag.x + (-0.04 if flag.leftwards else 0.04), y, text, ha="right" if flag.leftwards else "left", va="bottom", weight="bold")


def _name_some(page: Sheet, ax: Axes, rows: PartRows, slot: float, y: float) -> None:
    """Name every hundredth part or so, where its name has room."""
    parts = len(rows.part)
    step = next(k for k in _steps() if parts / k <= 9)
    chosen = [i for i in range(0, parts, step) if parts - i > step / 2 or i == 0]
    ax.set_xticks([i + 0.5 for i in chosen], ["" for _ in chosen])
    for i, text in zip(chosen, distinct([name(rows.part[i]) for i in chosen], 0.8), strict=True):
        x = min(LEFT + (i + 0.5) * slot, WIDTH - EDGE - width(text) / 2)
        page.text(x, y, text, ha="center", va="top")


def _steps() -> Iterable[int]:
    power = 1
    while True:
        yield from (power, 2 * power, 5 * power // 2 if power > 1 else 3, 5 * power)
        power *= 10
