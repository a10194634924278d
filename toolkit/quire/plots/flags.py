"""Names on poles above a picture, so placed that no name covers another one or another one's pole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_GAP = 0.1  # inches between names, and between a name and a pole
_MOST_ROWS = 24


@dataclass(frozen=True)
class Flag:
    """Where a name goes: its pole's x in inches, its row (0 is the lowest), and to which side of the pole it is written."""

    x: float
    row: int
    leftwards: bool
    wide: float

    def span(self) -> tuple[float, float]:
        """From where to where the name reaches."""
        return (self.x - self.wide, self.x) if self.leftwards else (self.x, self.x + self.wide)


def place(poles: Sequence[tuple[float, float]], left: float, right: float) -> list[Flag]:
    """Return one flag for each (x, width of the name) in inches, in the same order, between `left` and `right`.

    A name is written to the right of its pole, or to the left where it would leave the page. Taken from the right, each goes
    into the lowest row in which it passes above the poles that it meets; so no pole of a later one crosses it either.
    """
    leftwards = [x + wide + _GAP > right and x - wide - _GAP >= left for x, wide in poles]
    order = sorted((i for i in range(len(poles)) if leftwards[i]), key=lambda i: poles[i][0])
    order += sorted((i for i in range(len(poles)) if not leftwards[i]), key=lambda i: -poles[i][0])
    found: dict[int, Flag] = {}
    for i in order:
        tried = [Flag(poles[i][0], row, leftwards[i], poles[i][1] + _GAP) for row in range(_MOST_ROWS)]
        free = [flag for flag in tried if not any(_covers(flag, other) for other in found.values())]
        clear = [flag for flag in free if not any(_crosses(flag, other) for other in found.values())]
        found[i] = (clear or free)[0]
    return [found[i] for i in range(len(poles))]


def _covers(flag: Flag, other: Flag) -> bool:
    """Return whether the names meet, or `flag`'s name the pole of `other`."""
    (a, b), (c, d) = flag.span(), other.span()
    if flag.row == other.row and a < d and c < b:
        return True
    return flag.row <= other.row and a - 1e-9 <= other.x <= b + 1e-9


def _crosses(flag: Flag, other: Flag) -> bool:
    """Return whether the pole of `flag` goes through the name of `other`."""
    start, end = other.span()
    return other.row <= flag.row and start < flag.x < end
