"""A file whose content cannot be used is quarantined with a reason, and the run continues."""

from __future__ import annotations

from quire.errors import scrub


class BadContent(Exception):
    """The content cannot be parsed: its file is quarantined.

    reason    class of error and place (line and column from 1, or byte offset from 0), one line of at most 300 characters
              without control characters and secrets
    differs   which other columns its rows have than those of the destination: where all have, that is not a matter of single files
    """

    def __init__(self, reason: str, *, differs: str = "") -> None:
        self.reason, self.differs = scrub(reason), differs
        super().__init__(self.reason)


HELD = 2 << 30  # bytes of values that one file may have


def check_size(encoded: int, rows: int, columns: int) -> None:
    """BadContent for a file of which few bytes mean more values than a task may hold."""
    if (most := max(encoded, 8 * rows * columns)) > HELD:
        raise BadContent(
            f"it holds some {most / 2**30:,.1f} GiB of values, and {HELD >> 30} GiB can be held. Write smaller files at its source"
        )
