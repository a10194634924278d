"""What a split is: a piece of input that must be processed once, and the file it is a piece of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One source file as the listing saw it.

    path      the normalised URL, the ledger's key: `file:///data/in/a.xml`
    size      bytes
    version   what identifies the content as far as the store can tell (local: `<mtime in ns>-<size>`)
    modified  last change, nanoseconds since 1970 UTC (0 where the store does not tell)
    """

    path: str
    size: int
    version: str
    modified: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]
