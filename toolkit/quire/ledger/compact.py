"""Compaction: the small data files of many commits become few large ones; coverage and lineage stay, in one commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from quire.commit.entries import CLAIM, COMPACT, UNSAID, Spec
from quire.commit.log import Log
from quire.engine.closers import sorting
from quire.engine.request import writes
from quire.errors import UsageError
from quire.formats import parquet
from quire.ledger.job import Change, Changed, Dest, PlannedChange, spec_of
from quire.planning.pack import PlannedTask
from quire.planning.rewriting import Live, live_files, packed
from quire.sources.transforms import columnar

SMALL = 0.5  # of the target: a file below it is worth writing again
FULL = 0.85  # of the target: one that was merged grows until it is so long
TOGETHER = 4  # times the target: so much is read by a task of an upkeep, that of its files but the last are full
AT_REST = 200  # entries of the log since the newest file of a directory: nothing more may come there


def asked(dest: Dest, target: int, parquet_options: Mapping[str, Any] | None, sort_by: Any) -> Changed:
    """The same as a user asks for it; UsageError for what is not an order, or an option."""
    written = writes(parquet_options, spec_of(dest.log(), UNSAID).format).said if parquet_options else ""
    return compact(dest, target, written, sort_by=() if sort_by is None else sorting.sorting(sort_by, target).columns)


def compact(dest: Dest, target: int, written: str = "", most: int | None = None, sort_by: Sequence[str] = ()) -> Changed:
    """Merge data files below half of `target` bytes with others of their directory, into files of about `target` bytes.

    `written`: how Parquet files are written, as JSON; "": as the last call has said it. `most`: of an upkeep, which goes on with another
    job: so many tasks, and a file waits for others that are as large together, so that each byte is written few times again.

    The ledger does not say whose bytes are where in files that hold rows of all splits of a commit: they are merged as they are, and stay
    rows of their commits. `sort_by`: columns by which such rows are sorted in each file.
    """

    def plan(log: Log, base: int, _: Callable[[str], str]) -> PlannedChange:
        spec = spec_of(log)
        if sort_by and (spec.traced or spec.format != "parquet"):
            raise UsageError(
                f"sort_by= is for Parquet whose rows belong to their commit, and the ledger of {log.store.url} says where the rows of each "
                f"file lie: sorting would part them. Leave it out, or gather with sort_by= into another destination."
            )
        if most is not None:
            found = mergeable(log, base, target, held=bool(sort_by))[:most]
        else:
            found = [each for each in packed(small(log, live_files(log, base).values(), target), target) if len(each[1]) > 1]
        if spec.kind == CLAIM:
            found = [(folder, _plain(log, files)) for folder, files in found]
        return PlannedChange([PlannedTask(folder, 0, removes=files) for folder, files in found if len(files) > 1])

    def by(spec: Spec | None) -> list[str]:
        said = sorting.stored(spec.reduce, target).columns if spec is not None and sorting.is_said(spec.reduce) else ()
        return list(sort_by or said)

    said: dict[str, Any] = {"writes": written} if written else {}
    said |= {"upkeep": True} if most is not None else {}
    said |= {"sort_by": order} if (order := by(dest.log().spec())) else {}
    return Change(dest, {"verb": COMPACT, **said}, plan, target=target, writes=written).run()


def _plain(log: Log, files: dict[str, int]) -> dict[str, int]:
    """Those of files of a user's own job that can be written again as they are."""
    return {name: size for name, size in files.items() if not columnar.peculiar(parquet.stored(log.store, name))}


def small(log: Log, files: Iterable[Live], target: int) -> list[Live]:
    """The data files that are worth writing again, once there are others. Nobody knows the header of text of a user's own job."""
    spec = spec_of(log)
    return [] if spec.kind == CLAIM and spec.format != "parquet" else [file for file in files if file.size < target * SMALL]


def mergeable(
    log: Log, version: int, target: int, files: Iterable[Live] | None = None, *, held: bool = False
) -> list[tuple[str, dict[str, int]]]:  # fmt: skip
    """The data files that an upkeep merges, those of a task together, with the directory.

    One that is larger than all smaller ones of its directory together waits for more, until the directory is at rest: then all of it
    becomes as few files as its volume allows. A file that was merged, and is not full, joins small ones that fill it, one a directory each
    time: so a byte that comes has few others written again, whatever the files can be divided into. `held`: a task sorts what it reads.
    """
    files = list(live_files(log, version).values() if files is None else files)
    by_folder, growing, newest = dict[str, list[Live]](), dict[str, list[Live]](), dict[str, int]()
    for file in files:
        newest[file.folder] = max(newest.get(file.folder, 0), file.number)
    for file in small(log, files, target):
        by_folder.setdefault(file.folder, []).append(file)
    for file in files:
        if file.verb == COMPACT and target * SMALL <= file.size < target * FULL:
            growing.setdefault(file.folder, []).append(file)
    chosen = set[str]()
    for folder, mine in by_folder.items():
        left, size = sorted(mine, key=lambda file: file.size), sum(file.size for file in mine)
        while left and left[-1].size > size - left[-1].size and version - newest[folder] < AT_REST:
            size -= left.pop().size
        filled = [file for file in growing.get(folder, ()) if file.size + size >= target]
        left += [max(filled, key=lambda file: file.size)] if left and filled else []
        chosen |= {file.name for file in left}
    together = target if held or sorting.is_said(spec_of(log).reduce) else target * TOGETHER  # what is sorted is held
    return [(folder, its) for folder, its in packed([file for file in files if file.name in chosen], together) if len(its) > 1]
