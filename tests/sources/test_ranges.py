"""What is covered of a path, however many rows say it, and in whatever order they come."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from quire.coverage.ranges import Covered, _take


@pytest.mark.parametrize("seed", range(50))
def test_gaps_are_what_no_row_covers(seed: int) -> None:
    rng = random.Random(seed)
    there: dict[str, set[int]] = {"a": set(), "b": set(), "c": set()}
    found = dict[str, Covered]()
    lost, made = dict.fromkeys(there, 0), dict.fromkeys(there, 0)
    for _ in range(rng.randint(1, 5)):  # segments
        rows = []
        for _ in range(rng.randint(0, 12)):
            path, start, length = rng.choice("abc"), rng.randint(0, 40), rng.randint(0, 8)
            state = rng.choice(["done", "lost"])
            records = length if state == "done" else None
            row = {"path": path, "version": "v", "start": start, "length": length, "state": state, "records": records, "written": 7}
            rows.append(row)
            made[path] += records or 0
            there[path] |= set(range(start, start + length))
            lost[path] += length if state == "lost" else 0
        for batch in pa.Table.from_pylist(rows, pa.schema(_SCHEMA)).to_batches():
            _take(batch, found)
    for path, offsets in there.items():
        one = found.get(path, Covered())
        assert {i for start, end in one.ranges for i in range(start, end)} == offsets
        assert all(a[1] < b[0] for a, b in zip(one.ranges, one.ranges[1:], strict=False)), "joined, and in order"
        assert {i for start, end in one.gaps(45) for i in range(start, end)} == set(range(45)) - offsets
        assert one.end == next(i for i in range(60) if i not in offsets)
        assert one.states.get("lost", 0) == lost[path]
        assert (one.records, one.written % 7) == (made[path], 0)


_SCHEMA = [
    ("path", pa.string()), ("version", pa.string()), ("start", pa.int64()), ("length", pa.int64()), ("state", pa.string()),
    ("records", pa.int64()), ("written", pa.int64()),
]  # fmt: skip
