"""Tasks that remove data files: which ones a change touches, and which go into one task together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from quire.commit.entries import Deferred
from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.coverage.live import live
from quire.errors import FormatError
from quire.planning.pack import HEADROOM, PlannedTask


@dataclass(frozen=True)
class Live:
    """A data file that counts, and where the plan that made it kept it apart."""

    name: str
    size: int
    folder: str
    number: int  # of the commit
    verb: str = ""  # of that


def live_files(log: Log, version: int, folded: Fold | None = None) -> dict[str, Live]:
    """The data files that count at a settled version, in the log's order."""
    folded = folded or fold(log, version)
    return {f.name: Live(f.name, f.size, f.name.rpartition("/")[0], f.number, f.verb) for f in live(log, folded)}


def refuse_missing(log: Log, left: Iterable[Deferred]) -> None:
    """FormatError where a job was given up because a data file is gone that still counts: somebody deletes data files."""
    found = list(left)
    there = live_files(log, log.settled_version()) if found else {}
    for item in found:
        if item.path in there:
            raise FormatError(
                f"{item.why}, and the ledger says that files are in it: nothing was changed. Put back a good copy, or give it up "
                f"with ledger.forget(file={item.path!r}); the next run then reads its sources again."
            )


def rewriting(drops: Iterable[tuple[str, str]], live: dict[str, Live], target: int) -> list[PlannedTask]:
    """The tasks that take rows out: data files are written again without them, some in one task.

    `drops`: objects of the plan that hold such rows, each with each data file of its rows. A task reads those of its own files alone.
    """
    objects = defaultdict[str, list[str]](list)
    for name, file in drops:
        objects[file].append(name)
    if unknown := objects.keys() - live.keys() - {""}:
        raise FormatError(f"rows that are to leave name the data file {min(unknown)[:200]!r}, which does not count. Look who wrote it.")
    files = [file for name, file in live.items() if name in objects]
    found = [*packed(files, target), *([("", dict[str, int]())] if "" in objects else [])]  # of empty files, marks, and in quarantine
    return [
        PlannedTask(folder, 0, removes=removes, drops=tuple(dict.fromkeys(name for file in removes or [""] for name in objects[file])))
        for folder, removes in found
    ]


def packed(files: Iterable[Live], target: int) -> list[tuple[str, dict[str, int]]]:
    """Data files of one directory each, in their order, as many together as fit the target."""
    by_folder = defaultdict[str, list[Live]](list)
    for file in files:
        by_folder[file.folder].append(file)
    found = list[tuple[str, dict[str, int]]]()
    for folder, mine in sorted(by_folder.items()):
        room = -1.0
        for file in mine:
            if file.size > room:
                found.append((folder, {}))
                room = target * HEADROOM
            found[-1][1][file.name] = file.size
            room -= file.size
    return found
