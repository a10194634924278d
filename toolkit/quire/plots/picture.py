"""The result of every function of `quire.plots` returns, and the page that it is drawn on."""

from __future__ import annotations

import io
import math
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from matplotlib import style
from matplotlib.figure import Figure

from quire.display import chart
from quire.errors import UsageError, scrub
from quire.plots.words import SMALL, line_height, name, width, wrap

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.text import Text

WIDTH = 9.0  # inches: what a notebook shows without scaling it down
LEFT, RIGHT = 0.95, 0.2  # inches beside the axes: room for the numbers at the left
EDGE = 0.15
ROWS = 20  # of a picture's table
_NUMBERED = ("commit", "task")  # columns whose numbers are names: no commas in them
_ROW = 0.2  # inches: a row of the legend

_STYLE: dict[str, Any] = {
    "font.size": SMALL,
    "font.sans-serif": ["DejaVu Sans", "sans-serif"],  # Matplotlib has it; a browser without it takes its own
    "text.parse_math": False,  # a $ in a name is a $
    "svg.fonttype": "none",  # text stays text: it can be found and read aloud, and the browser has the letters
    "svg.hashsalt": "quire",  # else each process would name its clip paths differently
    "hatch.linewidth": 0.6,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_METADATA: dict[str, dict[str, Any]] = {
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_LOCK = threading.RLock()


@contextmanager
def drawing() -> Iterator[None]:
    """Matplotlib's own defaults and ours, whatever the user has set, and only until the end of the block."""
    with _LOCK, style.context(["default", _STYLE]), warnings.catch_warnings():
        # A letter that the font lacks is a box in a PNG; in SVG the browser finds another font.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .*missing from font", category=UserWarning)
        yield


@dataclass(frozen=True, repr=False, eq=False)
class Picture:
    """A picture that shows itself in a notebook.

    title, note   what it says, in words
    table         what is drawn, in numbers: at most 20 rows, the most telling ones; `more` rows are not among them
    figure        matplotlib's Figure, to change or to draw elsewhere

        picture = plots.sizes(ledger)           # a plots.Picture
        picture.save("sizes.svg")               # UsageError for another ending
        text = picture.svg()
    """

    title: str
    note: str
    table: pd.DataFrame
    figure: Figure
    more: int = 0

    _ENDINGS: ClassVar[tuple[str, ...]] = tuple(_METADATA)

    def svg(self) -> str:
        """Return the picture as SVG: the same bytes for the same data, in every process."""
        return self._render("svg").decode("utf-8")

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to `path`, as its ending says (.svg, .png or .pdf), and return the path."""
        try:
            target = Path(path)
        except TypeError:
            raise UsageError(f"a picture is saved to a path that ends with {_endings()}, not to {scrub(repr(path), 60)}") from None
        kind = target.suffix.lower().removeprefix(".")
        if kind not in self._ENDINGS:
            raise UsageError(f"{name(path)} ends with {name(target.suffix) or 'nothing'!r}: a picture is saved as {_endings()}")
        content = self._render(kind)
        try:
            target.write_bytes(content)
        except OSError as e:
            raise UsageError(f"{name(path)} cannot be written: {e.strerror}. Look at its directory.") from e
        return target

    def _render(self, kind: str) -> bytes:
        buffer = io.BytesIO()
        with drawing():
            self.figure.savefig(buffer, format=kind, dpi=144 if kind == "png" else 72, metadata=_METADATA[kind])
        return buffer.getvalue()

    def __repr__(self) -> str:
        rows = as_text(self.table) if len(self.table) else ""
        more = f"… {self.more:,} more" if self.more else ""
        return "\n".join(part for part in (self.title, self.note, rows, more) if part)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        # JupyterLab takes the first, in its theme; what shows no HTML, as LaTeX, takes the second.
        svg = self.svg()
        return {"text/html": chart(svg, f"{self.title}. {self.note}"), "image/svg+xml": svg, "text/plain": repr(self)}


def _endings() -> str:
    *first, last = (f".{kind}" for kind in _METADATA)
    return f"{', '.join(first)} or {last}"


def as_text(table: pd.DataFrame) -> str:
    """Return a table as lines of text; unlike pandas' own, they do not depend on its options or on the terminal's width."""
    columns = []
    for heading in table.columns:
        named = heading in _NUMBERED
        values = [name(value) if named else _cell(value) for value in table[heading].tolist()]
        room = max(len(heading), *map(len, values))
        numbers = table[heading].dtype.kind in "iuf"
        columns.append([value.rjust(room) if numbers else value.ljust(room) for value in (heading, *values)])
    return "\n".join("  ".join(row).rstrip() for row in zip(*columns, strict=True))


def _cell(value: object) -> str:
    if isinstance(value, bool | str) or value is None:
        text = name(value)
        return text if len(text) <= 48 else f"{text[:24]}…{text[-23:]}"
    if isinstance(value, float):
        whole = value.is_integer() and abs(value) < 1e15
        return (
            ""
            if math.isnan(value)
            else f"{value:.2g}"
            if 0 < abs(value) < 0.1
            else f"{value:,.0f}"
            if whole
            else f"{value:,.2f}"
            if abs(value) < 1e15
            else f"{value:.3g}"
        )
    return f"{value:,}" if isinstance(value, int) else name(value)


class Sheet:
    """A figure with a title and a note at its top. Below, everything is placed in inches from its lower left corner.

    `top` is where there is still nothing: what is placed from the top lowers it.
    """

    def __init__(self, title: str, note: str, height: float, legend: Sequence[tuple[Artist, str]] = ()) -> None:
        """`height` is that of what comes below the title, the note and the legend, in inches."""
        room = WIDTH - 2 * EDGE
        lines = [(text, 12.0, "bold") for text in wrap(title, room, 12, 2, "bold")]
        lines += [(text, 9.0, "normal") for text in wrap(note, room, 9, 5)]
        places = _in_rows([width(text) + 0.65 for _, text in legend])
        rows = places[-1][0] + 1 if places else 0
        self.height = height + EDGE + sum(line_height(size) for _, size, _ in lines) + 0.1 + rows * _ROW
        self.figure = Figure(figsize=(WIDTH, self.height), facecolor="white")
        self.top = self.height - EDGE
        for text, size, weight in lines:
            self.text(EDGE, self.top, text, size=size, weight=weight, va="top")
            self.top -= line_height(size)
        self.top -= 0.1
        for (handle, text), (row, x) in zip(legend, places, strict=True):
            self.figure.legend(
                handles=[handle], labels=[text], loc="center left", fontsize=SMALL, frameon=False, borderaxespad=0, borderpad=0,
                handlelength=2.2, handletextpad=0.6, bbox_to_anchor=(x / WIDTH, (self.top - (row + 0.5) * _ROW) / self.height),
            )  # fmt: skip
        self.top -= rows * _ROW

    def text(self, x: float, y: float, text: str, **options: Any) -> Text:
        """Write `text` at (x, y) inches."""
        options.setdefault("size", SMALL)
        return self.figure.text(x, y, text, transform=self.figure.dpi_scale_trans, parse_math=False, **options)

    def axes(self, bottom: float, height: float) -> Axes:
        """Axes over the page's width; `bottom` and `height` in inches."""
        return self.figure.add_axes(
            (LEFT / WIDTH, bottom / self.height, (WIDTH - LEFT - RIGHT) / WIDTH, height / self.height), facecolor="white"
        )

    def name_axis(self, text: str, y: float) -> None:
        """Write what an axis shows, upright, at its left."""
        self.text(EDGE + 0.06, y, text, rotation=90, ha="center", va="center")

    def name_ticks(self, ticks: Iterable[tuple[float, str]], y: float, gap: float, taken: float = -math.inf) -> list[bool]:
        """Write (x in inches, label) from the left, where there is room for it beside the one before; which were written."""
        written = []
        for place, text in ticks:
            x, half = min(place, WIDTH - EDGE - width(text) / 2), width(text) / 2
            written.append(x - half > taken)
            if written[-1]:
                self.text(x, y, text, ha="center", va="top")
                taken = x + half + gap
        return written

    def empty(self, text: str) -> Figure:
        """Say in the middle that there is nothing to draw."""
        self.text(WIDTH / 2, self.top / 2, text, size=11, color="#444444", ha="center", va="center")
        return self.figure


def _in_rows(widths: Sequence[float]) -> list[tuple[int, float]]:
    """Return (row, x in inches) of entries side by side, on as many rows as they need."""
    found, row, x = [], 0, LEFT
    for wide in widths:
        if x > LEFT and x + wide > WIDTH - EDGE:
            row, x = row + 1, LEFT
        found.append((row, x))
        x += wide
    return found


def blank(title: str, note: str, text: str, room: float = 1.2) -> Sheet:
    """A picture of nothing, which says so; `room` in inches."""
    page = Sheet(title, note, room)
    page.empty(text)
    return page
