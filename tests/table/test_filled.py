"""A null struct is null, whatever its parts have to have: cast, written, updated, pulled as a change, and read by hudi-rs."""

from __future__ import annotations

import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_writes import LOCAL, ours, theirs

import quire
from quire.table.format import filled

X = pa.field("x", pa.int64(), False)
XS = pa.struct([X])
PARTS = [
    X, pa.field("s", pa.string(), False), pa.field("b", pa.binary(3), False), pa.field("d", pa.decimal128(9, 2), False),
    pa.field("t", pa.timestamp("us", "UTC"), False), pa.field("f", pa.bool_(), False), pa.field("may", XS), pa.field("in", XS, False),
    pa.field("l", pa.list_(pa.field("element", XS)), False), pa.field("m", pa.map_(pa.string(), pa.field("value", XS, False)), False),
]  # fmt: skip
WHOLE: dict[str, Any] = {
    "x": 1, "s": "a", "b": b"abc", "d": Decimal("1.50"), "t": None, "f": True, "may": None, "in": {"x": 3}, "l": [{"x": 1}, None],
    "m": [("k", {"x": 2})],
}  # fmt: skip


def loose(kind: Any) -> Any:
    """The same type, where everything may be missing."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, loose(f.type)) for f in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, loose(kind.item_type))
    return pa.list_(loose(kind.value_type)) if pa.types.is_list(kind) else kind


def test_null_structs_are_cast_and_written_whatever_their_parts() -> None:
    kind = pa.struct(PARTS)
    rows = [None, {**WHOLE, "t": 5}, None, {**WHOLE, "t": 7, "l": [], "m": [], "may": {"x": 4}}, None]
    for given in (kind, pa.list_(pa.field("element", kind)), pa.map_(pa.string(), pa.field("value", kind))):
        named = [("k", row) for row in rows] if pa.types.is_map(given) else rows
        values = rows if given is kind else [named, None, [], named[:1]]
        column = pa.array(values, loose(given)).slice(1)
        found = filled.cast(column, given)
        assert found.type == given
        assert found.to_pylist() == column.to_pylist()
        out = io.BytesIO()
        pq.write_table(pa.table({"c": found}), out)
        assert pq.read_table(io.BytesIO(out.getvalue())).column("c").to_pylist() == column.to_pylist()
    nulls = filled.nulls(3, kind)
    pq.write_table(pa.table({"c": nulls}), io.BytesIO())
    assert nulls.null_count == 3


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([{"x": None}], pa.struct([X])),
        ([None, {"y": {"x": None}}], pa.struct([pa.field("y", pa.struct([X]))])),
        ([[1, None]], pa.list_(pa.field("element", pa.int64(), False))),
        ([[("a", None)]], pa.map_(pa.string(), pa.field("value", pa.int64(), False))),
    ],
)
def test_a_value_that_is_missing_in_a_struct_that_is_there_is_refused(values: list[Any], kind: pa.DataType) -> None:
    with pytest.raises(pa.ArrowInvalid, match="missing"):
        filled.cast(pa.array(values, loose(kind)), kind)


def test_a_table_takes_null_structs_with_required_parts(tmp_path: Path) -> None:
    table = quire.Table.create(tmp_path / "t", key="id", ordering="at")
    at = pa.struct([X, pa.field("in", pa.struct([pa.field("y", pa.string(), False)]))])
    columns = pa.schema([("id", pa.string()), ("at", pa.int64()), ("place", at)])
    place = {"x": 1, "in": {"y": "b"}}
    first = [{"id": "a", "at": 1, "place": None}, {"id": "b", "at": 1, "place": place}]
    table.upsert(pa.Table.from_pylist(first, columns), spark=LOCAL, progress=False)
    free = pa.schema([("id", pa.string()), ("at", pa.int64()), ("place", loose(at))])
    report = table.upsert(
        pa.Table.from_pylist([{"id": "b", "at": 2, "place": None}, {"id": "c", "at": 2, "place": {"x": 7, "in": None}}], free), spark=LOCAL,
        progress=False,
    )  # fmt: skip
    assert ours(table) == theirs(tmp_path / "t") == {
        "a": first[0], "b": {"id": "b", "at": 2, "place": None}, "c": {"id": "c", "at": 2, "place": {"x": 7, "in": None}}
    }  # fmt: skip
    changed = table.changes("00000000000000", images="both", net=False, spark=LOCAL).to_pylist()
    now = {row["after"]["id"]: (row["before"] or {}).get("place") for row in changed if row["instant"] == report.instant}
    assert now == {"b": place, "c": None}
