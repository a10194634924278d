"""Removal where the ledger does not say in which file a split's rows are: whole commits, with all of their files.

After a shuffle, and in what a user's own job has written, a file holds something of every split of its commit. So no single split can
leave: what it gave would stay, and would be there twice after the next run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names
from quire.commit.entries import COMPACT, Commit
from quire.commit.log import Log
from quire.coverage.fold import Fold
from quire.errors import FormatError, RefusedError
from quire.planning.drops import put_drops
from quire.planning.pack import PlannedTask
from quire.planning.rewriting import Live

_KEY = ["path", "version", "start", "length"]


def leaving(log: Log, folded: Fold, drops: pa.Table, live: dict[str, Live], named: Callable[[str], str]) -> list[PlannedTask]:
    """The tasks by which the rows `drops` leave, and all files of their commits; RefusedError if others of a commit's rows would stay.

    Quarantined or held-back rows have no output, and leave alone.
    """
    keys, gone, staying = _keys(drops), Counter[int](), dict[int, str]()
    counts = Counter[int]()
    for source in folded.sources:
        rows = folded.of(source).rows(log.store, [*_KEY, "state"])
        rows = rows.filter(pc.is_in(rows.column("state"), pa.array(["done", "mark"])))
        out = pc.is_in(_keys(rows), keys.combine_chunks())
        # A checkpoint's piece has rows of many commits.
        counts.update(rows.column("commit").to_pylist())
        gone.update(rows.filter(out).column("commit").to_pylist())
        rest = rows.filter(pc.invert(out))
        for first in rest.group_by("commit").aggregate([("path", "min")]).to_pylist():
            staying.setdefault(first["commit"], first["path_min"])
    groups = together(log, live.values())
    touched = {number for number, count in gone.items() if count and number in groups}  # marks from elsewhere have none, and leave alone
    for number in sorted(touched):
        if stay := sorted(groups[number].commits & staying.keys()):
            n, out = (sum(found[each] for each in groups[number].commits) for found in (counts, gone))
            raise RefusedError(
                f"{groups[number]} of {log.store.url} {'hold' if len(groups[number].commits) > 1 else 'holds'} {n:,} splits together, and "
                f"{out:,} of them cannot leave alone ({staying[stay[0]]} would stay, for one): nothing was changed. Forget all of it: "
                f"ledger.forget(where={groups[number].where!r})."
            )
    tasks = [PlannedTask("", 0, removes=dict(files)) for files in sorted({tuple(groups[n].files.items()) for n in touched})]
    objects = dict.fromkeys(name for name, _ in put_drops(log.store, drops, named))
    return [*tasks, PlannedTask("", 0, drops=tuple(objects))]


@dataclass(frozen=True)
class Group:
    """Commits whose rows lie in the same data files, since a compaction has merged these: they leave together."""

    commits: frozenset[int]
    files: dict[str, int]

    def __str__(self) -> str:
        first, *more = sorted(self.commits)
        return f"commits {', '.join(map(str, [first, *more]))}" if more else f"commit {first}"

    @property
    def where(self) -> str:
        """The condition that means their rows."""
        first, *more = sorted(self.commits)
        return f"commit in {(first, *more)}" if more else f"commit = {first}"


def together(log: Log, live: Iterable[Live]) -> dict[int, Group]:
    """Commit → the commits that have rows in the same files, with these."""
    found, known = dict[int, Group](), dict[str, frozenset[int]]()
    for file in live:
        own = _commits(log, file.name, known) if file.verb == COMPACT else frozenset([file.number])
        groups = {id(found[number]): found[number] for number in own if number in found}.values()
        files = {name: size for group in groups for name, size in group.files.items()}
        one = Group(own.union(*(group.commits for group in groups)), {**files, file.name: file.size})
        found |= dict.fromkeys(one.commits, one)
    return found


def _commits(log: Log, file: str, known: dict[str, frozenset[int]]) -> frozenset[int]:
    """The commits whose rows a data file holds: that which has written it, or those of the files that it has merged."""
    if file not in known:
        decided = log.decided(names.job_of_data_file(file) or "")
        commit = decided[1] if decided else None
        if decided is None or not isinstance(commit, Commit):
            raise FormatError(f"{file[:200]!r} counts in {log.store.url}, and no commit has written it: look who wrote that into its log.")
        task = next((task for task in commit.tasks if any(each.name == file for each in task.data_files)), None)
        merged = task.coverage.removes if task is not None and commit.verb == COMPACT else ()
        known[file] = frozenset().union(*(_commits(log, each, known) for each in merged)) if merged else frozenset([decided[0]])
    return known[file]


def refuse_file(log: Log, file: str, live: dict[str, Live]) -> None:
    """A single file of such a commit cannot leave either: nobody knows which splits it is of."""
    if file in live:
        group = next(group for group in together(log, live.values()).values() if file in group.files)
        raise RefusedError(
            f"{file} holds rows of all splits of {group} of {log.store.url}, and cannot leave alone: nothing was changed. Forget all of "
            f"it: ledger.forget(where={group.where!r}); the next run then reads its sources again."
        )


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(rows.column(name).cast(pa.string()) for name in _KEY), "\0")
