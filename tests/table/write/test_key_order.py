"""The order of rows by their keys is Arrow's own, whatever the keys are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire.table.write.key_order import order

# Prefixes of one another, zeros at the end, text longer than what is compared at once, alike up to there.
KEYS = st.one_of(
    st.text("a\0é", max_size=4), st.text("ab", max_size=12), st.sampled_from(["abcdefgh", "abcdefgh\0", "abcdefghi", "\U0001f600", "ÿ"]),
    st.integers(0, 20).map(lambda i: f"user_{i:09d}"),
)  # fmt: skip


def expected(ranks: list[int], keys: list[str]) -> tuple[list[int], list[bool]]:
    places = sorted(range(len(keys)), key=lambda i: (ranks[i], keys[i].encode()))
    pairs = [(ranks[i], keys[i]) for i in places]
    return places, [one != other for one, other in zip(pairs, [*pairs[1:], None], strict=False)]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), KEYS), max_size=30), st.integers(0, 30))
@example([(0, ""), (0, ""), (1, ""), (0, "\0")], 2)
def test_rows_are_ordered_by_rank_and_by_the_bytes_of_their_keys(rows: list[tuple[int, str]], cut: int) -> None:
    ranks, keys = [rank for rank, _ in rows], [key for _, key in rows]
    chunks = pa.chunked_array([pa.array(keys[:cut], pa.string()), pa.array([None, *keys[cut:]], pa.string())[1:]])
    places, last = order(pa.array(ranks, pa.int32()), chunks)
    assert (places.tolist(), last.tolist()) == expected(ranks, keys)


@pytest.mark.parametrize("form", ["{:012d}", "user_{:09d}", "{:x}", "customers/2026/{:d}:order"])
def test_many_rows_are_ordered_as_arrow_orders_them(form: str) -> None:
    random = np.random.default_rng(3)
    numbers, ranks = random.integers(0, 3_000, 5_000), pa.array(random.integers(0, 3, 5_000), pa.int32())
    keys = pa.chunked_array([[form.format(n) for n in numbers]])
    places, last = order(ranks, keys)
    by = pa.table({"p": ranks, "k": keys})
    assert places.tolist() == pc.sort_indices(by, [("p", "ascending"), ("k", "ascending")]).to_pylist()
    assert last.sum() == len(set(zip(ranks.to_pylist(), numbers.tolist(), strict=True)))
