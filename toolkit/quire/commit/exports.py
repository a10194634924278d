"""The exports of a destination, as its log says them: which other formats offer it, and how far each has come."""

from __future__ import annotations

from quire.commit.entries import Export
from quire.commit.log import Log


def exports(log: Log) -> dict[str, Export]:
    """The exports that are wanted: name → the last entry of each."""
    entries = (*(log.base.exports if log.base else ()), *log.recent_of(Export))
    found = {entry.name: entry for entry in entries}
    return {name: entry for name, entry in found.items() if entry.version is not None}


def needed(log: Log) -> list[int]:
    """The versions of which no data file may leave its place: pins hold them, or readers of an export read them."""
    return [*log.pins().values(), *(entry.version or 0 for entry in exports(log).values())]
