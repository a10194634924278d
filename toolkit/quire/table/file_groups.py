"""The file groups of a table and their slices: which base file holds the rows of a group at an instant.

Source: Hudi's `HoodieFileGroup` and file system view: a listing of the partitions, filtered by the timeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from quire.errors import FormatError
from quire.storage import Store
from quire.table.format import names
from quire.table.format.names import FOLDER
from quire.table.timeline import Timeline


@dataclass(frozen=True, order=True)
class Slice:
    """The base file of a file group at an instant."""

    partition: str
    group: str
    instant: str
    name: str  # below the table
    size: int


def newest(store: Store, timeline: Timeline) -> list[Slice]:
    """The slice of each file group that is part of the table, in the order of partitions and groups."""
    found = dict[tuple[str, str], Slice]()
    holds, replaced = timeline.holds(), timeline.replaced()
    for entry in store.walk():
        folder, _, last = entry.name.rpartition("/")
        if entry.name.startswith(f"{FOLDER}/") or (base := names.base_file(last)) is None:
            continue
        key = folder, base.file_id
        if not holds(base.instant) or base.instant <= replaced.get(key, ""):
            continue
        if key not in found or found[key].instant < base.instant:
            found[key] = Slice(folder, base.file_id, base.instant, entry.name, entry.size)
        elif found[key].instant == base.instant:
            raise _twice(store, found[key].name, entry.name)
    return sorted(found.values())


def _twice(store: Store, one: str, other: str) -> FormatError:
    return FormatError(
        f"{store.url}/{one} and {other} are of one file group and instant: an attempt that did not count has left one of them. Delete "
        f"the one that the commit does not name."
    )
