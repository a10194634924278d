"""How large are the files? How many there are of each size, before and after, on one axis."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from quire.arguments import format_size
from quire.errors import UsageError
from quire.plots.frames import amounts, frame
from quire.plots.picture import EDGE, LEFT, RIGHT, ROWS, WIDTH, Picture, Sheet, blank, drawing
from quire.plots.words import amount, line_height, plural, tick, width

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_COLUMNS = ["up_to", "files_before", "bytes_before", "files_after", "bytes_after"]
_KINDS = {"before": ("#E69F00", ""), "after": ("#0072B2", "////")}  # colour, hatch
_ROOM = WIDTH - LEFT - RIGHT
_HIGH = 1.7  # inches, of each panel
_FEWEST = 8  # classes on the axis, so that a single one is not as wide as the page


def sizes(what: Any) -> Picture:
    """Draw how many files there are of each size, before and after they were gathered.

    `what` is a Ledger, a Plan (then what comes after is an estimate), or a table with the columns up_to (the class's largest size
    in bytes: a power of two, included, or 0 for empty files), files_before, bytes_before, files_after and bytes_after.
    Each bar has its number of files and, where there is room, their bytes. The counts' axis is logarithmic, so that 8 files
    show beside 400,000. The table has a row for each class in use. Returns a `Picture`. Raises UsageError for anything else.
    """
    table = _classes(frame(what, "sizes", "a Ledger, a Plan or a table of size classes", _COLUMNS))
    before, after = int(table["files_before"].sum()), int(table["files_after"].sum())
    guess = "about " if hasattr(what, "estimate") else ""  # what a plan would write is not known yet
    title = f"{plural(before, 'file')} before, {guess}{amount(after, 'files')} after" if before or after else "No files"
    note = _note(table) if before or after else "No files, neither before nor after."
    with drawing():
        figure = _draw(title, note, table).figure if before or after else blank(title, note, "no files").figure
    chosen = table if len(table) <= ROWS else table.loc[table["files_before"].add(table["files_after"]).nlargest(ROWS).index.sort_values()]
    shown = chosen.reset_index(drop=True)
    shown.insert(0, "size", [_class_name(up_to) for up_to in shown["up_to"].tolist()])
    return Picture(title, note, shown.drop(columns="up_to"), figure, len(table) - len(shown))


def _classes(found: pd.DataFrame) -> pd.DataFrame:
    """Return the classes in use, ascending, each once, as int64."""
    import pandas as pd

    checked = pd.DataFrame({column: amounts(found, "sizes", column) for column in _COLUMNS})
    for up_to in checked["up_to"].tolist():
        if up_to & (up_to - 1):
            raise UsageError(f"sizes: up_to is {up_to:,}: it is the largest size of its class, a power of two (…, 4096, 8192, …) or 0")
    added = checked.groupby("up_to", as_index=False).sum()
    return added[(added["files_before"] > 0) | (added["files_after"] > 0)].reset_index(drop=True)


def _class_name(up_to: int) -> str:
    return "empty" if up_to == 0 else f"≤ {format_size(up_to)}"


def _note(table: pd.DataFrame) -> str:
    """Say how large a file is in the middle of them all."""
    told = []
    for kind in _KINDS:
        files = table[f"files_{kind}"]
        if total := int(files.sum()):
            middle = int(table["up_to"][(files.cumsum() * 2 >= total).idxmax()])
            told.append(f"{kind}, half of the files have {'no bytes' if middle == 0 else f'at most {format_size(middle)}'}")
    text = "; ".join(told) + "."
    return text[0].upper() + text[1:]


def _draw(title: str, note: str, table: pd.DataFrame) -> Sheet:
    # A class covers one step of a base 2 logarithm, from edge - 1 to edge; empty files stand one step before the first.
    edges = [up_to.bit_length() - 1 for up_to in table["up_to"].tolist() if up_to]
    first, last = (min(edges) - 1, max(edges)) if edges else (9, 10)
    while last - first < _FEWEST:
        first, last = max(first - 1, -1), last + 1
    zero = first - 1.2 if 0 in table["up_to"].tolist() else None
    start = first if zero is None else zero - 0.6
    step = _ROOM / (last - start)
    most = max(int(table["files_before"].max()), int(table["files_after"].max()))

    flat = _numbers_fit(table, step)
    lines = 2 if flat == 2 else 1
    over = line_height() * lines + 0.1 if flat else max(width(amount(n, "files")) for n in (most,)) + 0.1
    panel, head = _HIGH + over, line_height(9) + 0.1
    page = Sheet(title, note, EDGE + 2 * line_height() + 0.16 + 2 * (panel + head) + 0.12)
    bottom = EDGE + 2 * line_height() + 0.12
    for kind, low in (("after", bottom), ("before", bottom + panel + head + 0.12)):
        ax = page.axes(low, panel)
        page.name_axis("files (log)", low + panel / 2)
        top = _axis(ax, most, panel, start, last)
        _bars(page, ax, table, kind, zero, flat, (low, panel, top))
        files, held = int(table[f"files_{kind}"].sum()), int(table[f"bytes_{kind}"].sum())
        each = f", {format_size(round(held / files))} each on average" if files else ""
        text = f"{kind.capitalize()}: {plural(files, 'file')}, {format_size(held)}{each}" if files else f"{kind.capitalize()}: no files"
        page.text(LEFT, low + panel + 0.06, text, size=9, weight="bold", va="bottom")
    _name_edges(page, (start, first, last), zero, step, bottom)
    page.text(LEFT + _ROOM / 2, EDGE, "size of a file (each bar: up to the size at its right)", ha="center")
    return page


def _axis(ax: Axes, most: int, panel: float, start: float, last: int) -> float:
    """Set a panel up; return the logarithm at its upper end. Its lower end is half a file, so that a single one shows."""
    bottom = math.log10(0.5)
    top = bottom + max(math.log10(most) - bottom, 0.5) * panel / _HIGH
    ax.set_xlim(start, last)
    ax.set_yscale("log")
    ax.set_ylim(10**bottom, 10**top)
    powers = range(int(math.log10(most) + 1e-9) + 1)
    powers = range(0, len(powers), max(1, math.ceil(len(powers) / 7)))
    ax.set_yticks([10**p for p in powers], [tick(10**p, "files") for p in powers])
    ax.minorticks_off()
    ax.set_xticks([])
    ax.set_axisbelow(True)
    ax.grid(axis="y", color="#E4E4E4", linewidth=0.6)
    return top


def _numbers_fit(table: pd.DataFrame, step: float) -> int:
    """Return 2 if the files and the bytes of a bar fit above it, 1 if the files alone do, 0 if some have to stand upright."""
    files = max(width(amount(n, "files")) for kind in _KINDS for n in table[f"files_{kind}"].tolist())
    held = max(width(format_size(n)) for kind in _KINDS for n in table[f"bytes_{kind}"].tolist())
    return 2 if max(files, held) + 0.06 <= step else 1 if files + 0.06 <= step else 0


def _bars(page: Sheet, ax: Axes, table: pd.DataFrame, kind: str, zero: float | None, flat: int, place: tuple[float, float, float]) -> None:
    low, panel, top = place
    colour, hatch = _KINDS[kind]
    start, last = ax.get_xlim()
    step, bottom = _ROOM / (last - start), math.log10(0.5)
    for row in table.to_dict("records"):
        files, held, up_to = row[f"files_{kind}"], row[f"bytes_{kind}"], row["up_to"]
        if not files:
            continue
        middle = zero if up_to == 0 and zero is not None else up_to.bit_length() - 1.5
        ax.bar([middle], [files], width=0.92, color=colour, edgecolor="white" if hatch else colour, hatch=hatch, linewidth=0.4, zorder=2)
        rotation = 0 if width(amount(files, "files")) + 0.06 <= step else 90
        text = amount(files, "files") + (f"\n{format_size(held)}" if flat == 2 else "")
        y = low + (math.log10(files) - bottom) / (top - bottom) * panel + 0.04
        page.text(LEFT + (middle - start) * step, y, text, ha="center", va="bottom", rotation=rotation, linespacing=1.1)


def _name_edges(page: Sheet, ends: tuple[float, int, int], zero: float | None, step: float, bottom: float) -> None:
    """Write the sizes at the edges between classes, every second or fourth of them where they are close."""
    start, first, last = ends
    named = range(max(first, 0), last + 1)
    room = max(width(format_size(2**edge)) for edge in named) + 0.12
    every = next(k for k in (1, 2, 4, 5, 10, 20, 64) if k * step >= room)
    for panel in page.figure.axes:
        panel.set_xticks([edge for edge in named if edge % every == 0], ["" for edge in named if edge % every == 0])
    taken = -math.inf
    if zero is not None:
        x = LEFT + (zero - start) * step
        page.text(x, bottom - 0.07, "empty", ha="center", va="top")
        taken = x + width("empty") / 2 + 0.06
    edges = [(LEFT + (edge - start) * step, format_size(2**edge)) for edge in named if edge % every == 0]
    page.name_ticks(edges, bottom - 0.07, 0.04, taken)
