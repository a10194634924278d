"""The order of a clustering: text that sorts as columns do, and curves whose neighbours are neighbours."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.table.write import layout
from quire.table.write.layout import Layout

TIMES = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2200, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - the zone comes beside
DAYS = st.dates(dt.date(1900, 1, 1), dt.date(2200, 1, 1))
KINDS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "small": (pa.int8(), st.integers(-128, 127)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "text": (pa.string(), st.text(st.sampled_from("\x00\x01ab\U0001f600é"), max_size=4)),
    "truth": (pa.bool_(), st.booleans()),
    "decimal": (pa.decimal128(9, 2), st.decimals(-1_000_000, 1_000_000, places=2)),
    "large decimal": (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal)),
    "time": (pa.timestamp("us", "UTC"), TIMES),
    "day": (pa.date32(), DAYS),
}


def places(found: Layout, columns: dict[str, pa.Array]) -> list[str]:
    count = len(next(iter(columns.values())))
    rows = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    text: list[str] = found.places(rows, pa.array([f"{i:04}" for i in range(count)])).to_pylist()
    return text


def sorting(value: Any) -> tuple[Any, ...]:
    """Missing ones first; text by its bytes, minus zero as zero."""
    if value is None:
        return (0,)
    return (1, value.encode() if isinstance(value, str) else value + 0.0 if isinstance(value, float) else value)


@pytest.mark.nth(5)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_text_sorts_as_the_columns_do(kind: str, data: st.DataObject) -> None:
    of, values = KINDS[kind]
    rows = data.draw(st.lists(st.tuples(st.none() | values, st.none() | st.text("ab\x00", max_size=3)), min_size=1, max_size=12))
    text = places(Layout(("a", "b")), {"a": pa.array([a for a, _ in rows], of), "b": pa.array([b for _, b in rows], pa.string())})
    wanted = sorted(range(len(rows)), key=lambda i: (sorting(rows[i][0]), sorting(rows[i][1]), i))
    assert sorted(range(len(rows)), key=lambda i: text[i].encode()) == wanted


def test_numbers_that_are_none_come_last_and_large_ones_keep_their_order() -> None:
    floats = pa.array([float("nan"), float("inf"), -0.0, 0.0, float("-inf"), 5e-324])
    text = places(Layout(("a",)), {"a": floats})
    assert sorted(range(6), key=text.__getitem__) == [4, 2, 3, 5, 0, 1], "nan is as infinity, and minus zero as zero: their keys decide"
    unsigned = places(Layout(("a",)), {"a": pa.array([2**64 - 1, 0, 2**63], pa.uint64())})
    assert sorted(range(3), key=unsigned.__getitem__) == [1, 2, 0]


@pytest.mark.parametrize(("columns", "bits"), [(2, 4), (3, 3), (4, 2)])
def test_a_hilbert_curve_goes_through_each_point_once_by_steps_of_one(columns: int, bits: int) -> None:
    points = np.array(list(itertools.product(range(1 << bits), repeat=columns)), np.uint64)
    walked = layout.hilbert([points[:, i] for i in range(columns)], bits)
    assert sorted(walked.tolist()) == list(range(len(points)))
    steps = np.abs(np.diff(points[np.argsort(walked)].astype(np.int64), axis=0)).sum(axis=1)
    assert set(steps.tolist()) == {1}


def test_a_z_order_takes_the_bits_in_turn() -> None:
    x, y = np.array([0b00, 0b11, 0b10, 0b01], np.uint64), np.array([0b00, 0b00, 0b01, 0b11], np.uint64)
    assert layout.z_order([x, y], 2).tolist() == [0b0000, 0b1010, 0b1001, 0b0111]


@pytest.mark.nth(6)
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_steps_on_a_curve_ascend_with_the_values(kind: str, data: st.DataObject) -> None:
    of, values = KINDS[kind]
    seen = data.draw(st.lists(st.none() | values, max_size=20))
    all_of = sorted([*seen, *data.draw(st.lists(values, min_size=1, max_size=10))], key=sorting)
    found = layout.scaled(Layout(("a", "a"), layout.Z_ORDER), pa.table({"a": pa.array(seen, of)}))
    steps = layout._steps(pa.array(all_of, of), found.scales[0])
    assert steps.tolist() == sorted(steps.tolist())
    assert max(steps.tolist()) < 1 << found.bits
