"""The order of a listing that waits on the driver's disk, and its cuts, against the simplest way to do the same in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from quire.planning import ordered
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, TaskRun
from quire.planning.ordered import Bound, Ordered
from quire.storage import connect
from quire.storage.local import LocalStore

COLUMNS = ["path", "modified", "start", "length", "root"]
Row = tuple[str, int, int, int, int]  # path, modified, start, length, root


def expected(rows: list[Row], bound: Bound) -> list[list[Row]]:
    """Commits, one file after the other."""
    sign = {"oldest": 1, "newest": -1, "name": 0}[bound.order]
    files = dict[tuple[int, str], list[Row]]()
    for row in sorted(rows, key=lambda r: (sign * r[1], r[0], r[2])):
        files.setdefault((sign * row[1], row[0]), []).append(row)
    found, count, size = list[list[Row]](), 0, 0
    for file in files.values():
        length = sum(row[3] for row in file)
        if not found or count + 1 > (bound.files or 1 << 60) or size + length > (bound.bytes or 1 << 60):
            found.append([])
            count = size = 0
        found[-1] += file
        count, size = count + 1, size + length
    return found


def planned(store: LocalStore, rows: list[Row], pieces: int) -> list[TaskRun]:
    """The rows as pieces of a listing have them: each sorted by path, in several runs."""
    runs = list[TaskRun]()
    for i in range(pieces):
        mine = sorted((row for row in rows if hash(row[0]) % pieces == i), key=lambda r: (r[4], r[0], r[2]))
        for root in sorted({row[4] for row in mine}):
            these = [row for row in mine if row[4] == root]
            values = [dict(zip(("path", "modified", "start", "length"), row, strict=False)) for row in these]
            table = pa.Table.from_pylist([{**row, "size": row["length"], "version": "1"} for row in values], PLAN)
            put_table(store, f"plan-{i}-{root}.rows", table)
            half = len(these) // 2
            runs += [TaskRun("", 0, f"plan-{i}-{root}.rows", root, at, n, 0) for at, n in ((0, half), (half, len(these) - half)) if n]
    return runs


@pytest.mark.parametrize("order", ordered.ORDERS)
@pytest.mark.parametrize("seed", range(12))
def test_commits_are_those_of_a_sort_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str, seed: int) -> None:
    rng = random.Random(seed)
    monkeypatch.setattr(ordered, "SORTED", rng.choice((1, 7, 50, 10_000)))
    monkeypatch.setattr(ordered, "BATCH", rng.choice((1, 3, 20)))
    monkeypatch.setattr(ordered, "CHUNK", rng.choice((1, 10, 1000)))
    rows = list[Row]()
    for i in range(rng.choice((1, 30, 200))):
        path, modified, root = f"file:///in/{rng.choice('abc')}/é{i}", rng.randrange(5), rng.randrange(2)
        for n in range(rng.choice((1, 1, 1, 9))):  # ranges of a long file
            rows.append((path, modified, 100 * n, rng.choice((0, 1, 100)), root))
    bound = Bound(rng.choice((None, 1, 150, 2_000)), rng.choice((1, 3, 40, 10**9)), order)
    store: Any = connect(f"file://{tmp_path}")
    found = Ordered(planned(store, rows, rng.choice((1, 4))), store, bound)
    wanted = expected(rows, bound)
    assert found.commits == len(wanted)
    for i, mine in enumerate(wanted):
        got = [tuple(row.values()) for table in found.commit(i) for row in table.select(COLUMNS).to_pylist()]
        assert got == mine, i
        later = [row for one in wanted[i + 1 :] for row in one]
        assert found.after(i) == (len({row[0] for row in later}), sum(row[3] for row in later))
    assert sum(table.num_rows for table in found.commit(0)) == len(wanted[0]), "a commit can be planned once more"
