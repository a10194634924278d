"""The columns and rows of a small table, which several tests write."""

from __future__ import annotations

import pyarrow as pa

T1, T2, T3 = "20261122093015123", "20261122093016123", "20261122093017123"
GROUP, TOKEN = "88163884-fef0-4aab-865d-c72327a8a1d5-0", "3-8388607-16777215"
COLUMNS = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("fare", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("where", pa.struct([("x", pa.float64()), ("more", pa.map_(pa.string(), pa.int32()))])), ("city", pa.string()),
    ]
)  # fmt: skip


def rows(*ids: int, city: str = "sf", ts: int = 1) -> pa.RecordBatch:
    some = [
        {
            "id": f"key-{i:03d}",
            "ts": ts,
            "fare": None,
            "at": None,
            "tags": ["a", None],
            "where": {"x": i / 2, "more": [("m", i)]},
            "city": city,
        }
        for i in ids
    ]
    return pa.RecordBatch.from_pylist(some, COLUMNS)
