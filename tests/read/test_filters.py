"""What is passed over by a filter holds no row that the filter lets through, whatever is known of the data."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from quire.read.filters import Bounds, condition, may_hold
from quire.read.rows import _bounds as bounds_of

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "number": st.integers(-3, 3),
    "text": st.text("ab\U0001f600é", max_size=3),
    "day": st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 4)),
    "moment": st.timedeltas(dt.timedelta(), dt.timedelta(1)).map(lambda t: dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + t),
    "flag": st.booleans(),
    "bytes": st.binary(max_size=2),
    "fraction": st.sampled_from([-1.5, -0.0, 0.0, 2.0, float("nan"), float("inf")]),
}
COMPARING = {
    EqualTo: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
}
TEXTS = {
    StringStartsWith: lambda a, b: a.startswith(b),
    StringEndsWith: lambda a, b: a.endswith(b),
    StringContains: lambda a, b: b in a,
}


def key(value: Any) -> Any:
    """As Spark orders it: NaN is the largest number, and itself."""
    return (math.isnan(value), 0.0 if math.isnan(value) else value) if isinstance(value, float) else value


def passes(one: Filter, value: Any) -> bool | None:
    """Whether a row passes, as Spark says it; None for what is null."""
    if isinstance(one, Not):
        inner = passes(one.child, value)
        return None if inner is None else not inner
    if isinstance(one, IsNull):
        return value is None
    if isinstance(one, IsNotNull):
        return value is not None
    if isinstance(one, EqualNullSafe):
        return (value is None and one.value is None) or (None not in (value, one.value) and key(value) == key(one.value))
    if value is None:
        return None
    if isinstance(one, In):
        return True if any(v is not None and key(v) == key(value) for v in one.value) else None if None in one.value else False
    return None if one.value is None else (COMPARING | TEXTS)[type(one)](key(value), key(one.value))


@st.composite
def cases(draw: Any) -> tuple[list[Any], Filter]:
    kind = draw(st.sampled_from(list(KINDS)))
    values = KINDS[kind]
    rows = draw(st.lists(st.none() | values, min_size=1, max_size=4))
    made: list[Any] = [st.builds(f, st.just(("c",)), values) for f in COMPARING]
    made += [st.just(IsNull(("c",))), st.just(IsNotNull(("c",)))]
    made += [st.builds(EqualNullSafe, st.just(("c",)), st.none() | values)]
    made += [st.builds(In, st.just(("c",)), st.lists(st.none() | values, max_size=3).map(tuple))]
    if kind == "text":
        made += [st.builds(f, st.just(("c",)), values) for f in TEXTS]
    one = draw(st.one_of(made))
    return rows, Not(one) if draw(st.booleans()) else one


@given(cases())
def test_a_row_that_passes_is_never_passed_over(case: tuple[list[Any], Filter]) -> None:
    rows, one = case
    found = condition(one)
    assert found is not None
    kind = pa.timestamp("us", "UTC") if any(isinstance(v, dt.datetime) for v in rows) else None
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": pa.array(rows, kind)}), sink)
    known = bounds_of(pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata, 0)
    if any(passes(one, value) for value in rows):
        assert may_hold([found], known.get), "by the statistics of a row group"
    for value in rows:  # as the value of a directory
        if passes(one, value):
            assert may_hold([found], {"c": Bounds(value, value, value is None, value is not None)}.get)


@pytest.mark.parametrize(
    ("one", "held"),
    [
        (EqualTo(("c",), 7), False),
        (EqualTo(("c",), 3), True),
        (GreaterThan(("c",), 5), False),
        (GreaterThanOrEqual(("c",), 5), True),
        (LessThan(("c",), 1), False),
        (In(("c",), (0, 9)), False),
        (In(("c",), (0, 4)), True),
        (IsNull(("c",)), False),
        (Not(IsNotNull(("c",))), False),
        (Not(LessThan(("c",), 6)), False),
        (EqualTo(("c", "inner"), 7), True),
        (EqualTo(("other",), 7), True),
        (EqualTo(("c",), "7"), True),
    ],
)
def test_what_cannot_pass_is_passed_over(one: Filter, held: bool) -> None:
    found = condition(one)
    assert may_hold([found] if found else [], {"c": Bounds(1, 5, nulls=False, others=True)}.get) == held


def test_all_filters_have_to_let_a_row_through() -> None:
    some = [condition(GreaterThan(("c",), 0)), condition(LessThan(("c",), 0))]
    assert not may_hold([one for one in some if one], {"c": Bounds(1, 5, nulls=False, others=True)}.get)


def test_times_finer_than_spark_has_them_are_not_looked_at() -> None:
    """Their greatest value would be cut to a microsecond, and so be less than it is."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": pa.array([1_000_000_001], pa.timestamp("ns", "UTC"))}), sink)
    known = bounds_of(pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata, 0)
    found = condition(GreaterThan(("c",), dt.datetime.fromtimestamp(1, dt.UTC)))
    assert found
    assert may_hold([found], known.get)


@pytest.mark.parametrize(
    "one", [GreaterThan(("c",), 0.0), EqualTo(("c",), float("nan")), Not(LessThan(("c",), 0.0)), Not(EqualTo(("c",), -1.5))]
)
def test_what_is_not_a_number_is_the_largest_to_spark_and_no_statistics_know_it(one: Filter) -> None:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"c": [-1.5, float("nan")]}), sink)
    known = bounds_of(pq.ParquetFile(pa.BufferReader(sink.getvalue())).metadata, 0)
    found = condition(one)
    assert found
    assert passes(one, float("nan"))
    assert may_hold([found], known.get)
