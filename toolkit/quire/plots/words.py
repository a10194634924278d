"""Text in a picture: how wide it is, how it is cut and wrapped, how names and numbers are written."""

from __future__ import annotations

import itertools
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from quire.arguments import format_size
from quire.errors import printable, scrub

SMALL = 8.0  # points: the size of everything but the title and the note
_LONGEST = 200  # characters of a name that are looked at from each end; more never fits
_HINTED = 1.04  # how much wider letters are that are drawn on whole pixels


def width(text: str, size: float = SMALL, weight: str = "normal") -> float:
    """Return how wide `text` is, in inches, at `size` points."""
    # The font has no wide (Chinese, Japanese, Korean) letters, and a browser draws them one em wide.
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    rest = "".join(c for c in text if unicodedata.east_asian_width(c) not in "WF") if wide else text
    return (_narrow(rest, size, weight) * _HINTED + wide * size) / 72


@lru_cache(maxsize=20_000)
def _narrow(text: str, size: float, weight: str) -> float:
    if not text:
        return 0.0
    return float(text_to_path.get_text_width_height_descent(text, FontProperties(size=size, weight=weight), ismath=False)[0])


def line_height(size: float = SMALL) -> float:
    """Return the height of a line in inches, with a little air."""
    return size * 1.35 / 72


def name(text: object) -> str:
    """Return the name of a file, directory or part as one printable line."""
    given = str(text)
    if len(given) > 2 * _LONGEST:
        given = f"{given[:_LONGEST]}…{given[-_LONGEST:]}"
    return printable(given)


def shorten(text: str, room: float, size: float = SMALL, weight: str = "normal") -> str:
    """Return `text`, or its beginning and end around an ellipsis, so that it is at most `room` inches wide."""
    if width(text, size, weight) <= room:
        return text
    low, high = 0, len(text) - 1  # how many of its characters fit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if width(_ends(text, middle), size, weight) <= room else (low, middle - 1)
    return _ends(text, low)


def _ends(text: str, kept: int) -> str:
    tail = kept // 2
    return text[: kept - tail] + "…" + (text[-tail:] if tail else "")


def wrap(text: str, room: float, size: float, lines: int, weight: str = "normal") -> list[str]:
    """Return `text` in at most `lines` lines of at most `room` inches; what is too long for them ends with an ellipsis."""
    found, line = [], ""
    # a number stays beside its sign: "p = 0.27" is one word
    for word in re.sub(r" ([=<]) ", "\u00a0\\1\u00a0", scrub(text, 4000)).split(" "):
        for piece in _pieces(word, room, size, weight):
            longer = f"{line} {piece}" if line else piece
            if line and width(longer, size, weight) > room:
                found.append(line)
                line = piece
            else:
                line = longer
    found += [line] if line else []
    if len(found) > lines:
        last = found[lines - 1]
        while last and width(last + " …", size, weight) > room:
            last = last[:-1]
        found = [*found[: lines - 1], last + " …"]
    return [one.replace("\u00a0", " ") for one in found]


def _pieces(word: str, room: float, size: float, weight: str) -> list[str]:
    """Return a word, cut where it is wider than a line: names have no spaces."""
    if width(word, size, weight) <= room:
        return [word]
    most = max(1, int(len(word) * room / width(word, size, weight) * 0.8))
    return textwrap.wrap(word, most, break_on_hyphens=False)


def amount(value: float, unit: str) -> str:
    """Return a count of files, '12,345', or bytes, '4.9 KiB'."""
    if abs(value) >= 1e15 and not (unit == "bytes" and value < 2**63):
        return f"{value:.3g}" + (" B" if unit == "bytes" else "")
    if unit == "bytes":
        return format_size(round(value))
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def tick(value: float, unit: str) -> str:
    """Return `amount`, or fewer digits where it has no room beside an axis: '10M'."""
    text = amount(value, unit)
    return text if width(text) <= 0.6 else f"{value / 1e6:,g}M" if 1e6 <= value < 1e12 else f"{value:.0e}"


def plural(number: int, what: str) -> str:
    """Return '1 file', '2,000 files'."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def distinct(names: Sequence[str], room: float) -> list[str]:
    """Return `names`, each at most `room` inches wide in bold; where they have to be cut, what they have in common goes first.

    'part-00007-of-64.parquet' beside its like is '…00007…': cut in the middle, all of them would look alike.
    """
    if all(width(one, weight="bold") <= room for one in names):
        return list(names)
    start, end = _common(names)
    cut = [f"{'…' if start else ''}{one[start : len(one) - end]}{'…' if end else ''}" for one in names]
    return [shorten(one, room, weight="bold") for one in cut]


def _common(names: Sequence[str]) -> tuple[int, int]:
    """Return how many characters at their start and at their end all names share, whole words only."""
    if len(set(names)) < 2:
        return 0, 0
    start = _alike(names)
    return start, _alike([one[start:][::-1] for one in names])


def _alike(names: Sequence[str]) -> int:
    """Return how many first characters all names share, to the end of a word; 0 if an ellipsis would be as long."""
    columns = zip(*names)  # noqa: B905  # to the end of the shortest
    shared = sum(1 for _ in itertools.takewhile(lambda column: len(set(column)) == 1, columns))
    while shared and names[0][shared - 1].isalnum():
        shared -= 1
    return shared if shared > 1 else 0
