"""A file whose content cannot be used is quarantined with a reason, and the run continues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from quire.errors import scrub

T = TypeVar("T")


class BadContent(Exception):
    """The content cannot be parsed: its file is quarantined.

    reason    class of error and place (line and column from 1, or byte offset from 0), one line of at most 300 characters
              without control characters and secrets
    differs   which other columns its rows have than those of the destination: where all have, that is not a matter of single files
    """

    def __init__(self, reason: str, *, differs: str = "") -> None:
        self.reason, self.differs = scrub(reason), differs
        super().__init__(self.reason)


class NotDecoded(BadContent):
    """The same, of a decoder: its words say no value, and stay as they are."""


HELD = 2 << 30  # bytes of values that one file may have


def check_size(encoded: int, rows: int, columns: int) -> None:
    """BadContent for a file of which few bytes mean more values than a task may hold."""
    if (most := max(encoded, 8 * rows * columns)) > HELD:
        raise BadContent(
            f"it holds some {most / 2**30:,.1f} GiB of values, and {HELD >> 30} GiB can be held. Write smaller files at its source"
        )


def told_apart(n: int, make: Callable[[int, int], T]) -> Iterator[tuple[int, int, T | BadContent]]:
    """The results of `make(first, end)` for ranges of `n` items, in their order: halved, until what raises BadContent stands alone."""
    ahead = [(0, n)] if n else []
    while ahead:
        first, end = ahead.pop()
        try:
            yield first, end, make(first, end)
        except BadContent as e:
            if end - first == 1:
                yield first, end, e
            else:
                middle = (first + end) // 2
                ahead += [(middle, end), (first, middle)]
