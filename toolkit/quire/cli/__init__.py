"""The same verbs from a shell, a file for each group of commands."""

from __future__ import annotations

import os

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """The console script, with memory from the system: Arrow's own allocator would keep some 30 MB of a loop that runs for months."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow reads it once, when it is loaded
    from quire.cli import app

    app.main(arguments)
