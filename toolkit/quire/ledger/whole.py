"""Removal where the ledger does not say in which file a split's rows are: whole commits, with all of their files.

After a shuffle, and in what a user's own job has written, a file holds something of every split of its commit. So no single split can
leave: what it gave would stay, and would be there twice after the next run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.log import Log
from quire.coverage.fold import Fold
from quire.errors import RefusedError
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
    files = defaultdict[int, dict[str, int]](dict)
    for file in live.values():
        files[file.number][file.name] = file.size
    touched = {number for number, count in gone.items() if count and number in files}  # marks from elsewhere have none, and leave alone
    for number in sorted(touched & staying.keys()):
        raise RefusedError(
            f"commit {number} of {log.store.url} holds {counts[number]:,} splits together, and {gone[number]:,} of them cannot leave alone "
            f"({staying[number]} would stay, for one): nothing was changed. Forget all of it: ledger.forget(where='commit = {number}')."
        )
    tasks = [PlannedTask("", 0, removes=files[number]) for number in sorted(touched)]
    objects = dict.fromkeys(name for name, _ in put_drops(log.store, drops, named))
    return [*tasks, PlannedTask("", 0, drops=tuple(objects))]


def refuse_file(url: str, file: str, live: dict[str, Live]) -> None:
    """A single file of such a commit cannot leave either: nobody knows which splits it is of."""
    if file in live:
        number = live[file].number
        raise RefusedError(
            f"{file} holds rows of all splits of commit {number} of {url}, and cannot leave alone: nothing was changed. Forget all of it: "
            f"ledger.forget(where='commit = {number}'); the next run then reads its sources again."
        )


def _keys(rows: pa.Table) -> pa.ChunkedArray:
    return pc.binary_join_element_wise(*(rows.column(name).cast(pa.string()) for name in _KEY), "\0")
