"""A file whose content cannot be used is quarantined with a reason, and the run continues."""

from __future__ import annotations

from quire.errors import scrub


class BadContent(Exception):
    """The content cannot be parsed: its file is quarantined.

    reason    class of error and place (line and column from 1, or byte offset from 0), one line of at most 300 characters
              without control characters and secrets
    """

    def __init__(self, reason: str) -> None:
        self.reason = scrub(reason)
        super().__init__(self.reason)
