"""Bloom filters: the bits that Hudi's own would have, no key ever missed, and no size believed that the bytes do not bear out."""

from __future__ import annotations

import base64
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.errors import FormatError
from quire.table.format.bloom import DYNAMIC, LARGEST, SIMPLE, Filter, parse

KEYS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40), min_size=1, max_size=30)
M = 0x5BD1E995


def murmur(key: bytes, seed: int) -> int:
    """Hadoop's 32-bit MurmurHash, a number after the other, as its description has it."""
    h = seed ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * M & 0xFFFFFFFF
        k = (k ^ k >> 24) * M & 0xFFFFFFFF
        h = h * M & 0xFFFFFFFF ^ k
    rest = key[whole:]
    for i, byte in enumerate(reversed(rest)):
        h ^= (byte - 256 * (byte > 127)) << 8 * i & 0xFFFFFFFF
    if rest:
        h = h * M & 0xFFFFFFFF
    h = (h ^ h >> 13) * M & 0xFFFFFFFF
    return h ^ h >> 15


def places(key: bytes, hashes: int, bits: int) -> set[int]:
    found, h = set(), 0
    for _ in range(hashes):
        h = murmur(key, h)
        found.add(abs(h - (1 << 32) * (h >> 31)) % bits)
    return found


def expected(keys: list[str], hashes: int, bits: int) -> str:
    filled = bytearray((bits + 7) // 8)
    for place in set().union(*(places(key.encode(), hashes, bits) for key in keys)):
        filled[place // 8] |= 1 << place % 8
    return base64.b64encode(struct.pack(">iibi", -1, hashes, 1, bits) + filled).decode()


@given(KEYS, st.sampled_from([1, 7, 1000, 1e-3, 1e-9]))
@settings(max_examples=80, deadline=None)
def test_a_filter_is_the_one_that_hudi_makes_of_the_same_keys(keys: list[str], size: float) -> None:
    bloom = Filter.sized(int(size), 1e-6) if size >= 1 else Filter.sized(len(keys), size)
    bloom.add(pa.array(keys))
    assert bloom.serialise() == expected(keys, bloom.hashes, bloom.bits)
    back = parse(bloom.serialise(), SIMPLE, "it")
    assert (back.bits, back.hashes, back.serialise()) == (bloom.bits, bloom.hashes, bloom.serialise())
    assert back.might_contain(pa.array(keys)).all()
    others = pa.array([key + "x" for key in keys])
    wanted = [all(bloom.rows[0][p] for p in places(key.encode(), bloom.hashes, bloom.bits)) for key in others.to_pylist()]
    assert back.might_contain(others).tolist() == wanted


@given(KEYS, st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_a_growing_filter_begins_a_row_when_one_is_full(keys: list[str], per_row: int) -> None:
    bloom = Filter.dynamic(per_row, 1e-3)
    bloom.add(pa.array(keys[:1]))
    bloom.add(pa.array(keys[1:], pa.string()))
    rows = [keys[i : i + per_row] for i in range(0, len(keys), per_row)]
    head = struct.pack(">iibiiii", -1, bloom.hashes, 1, bloom.bits, per_row, len(rows[-1]), len(rows))
    whole = head + b"".join(base64.b64decode(expected(row, bloom.hashes, bloom.bits)) for row in rows)
    assert bloom.serialise() == base64.b64encode(whole).decode()
    back = parse(bloom.serialise(), DYNAMIC, "it")
    assert back.serialise() == bloom.serialise()
    assert back.might_contain(pa.array(keys)).all()
    assert (back.room, Filter.dynamic(5, 1e-3).room) == (per_row - len(rows[-1]), 5)


def test_sizes_are_hudi_s() -> None:
    jvm = Filter.sized(60_000, 1e-9)
    assert (jvm.bits, jvm.hashes, len(jvm.serialise())) == (2_587_966, 30, 431_348)  # the numbers in files of JVM Hudi's defaults
    assert (Filter.sized(60, 1e-6).bits, Filter.sized(60, 1e-6).hashes) == (1726, 20)
    assert Filter.sized(0).bits == Filter.sized(1).bits
    with pytest.raises(ValueError, match="between 0 and 1"):
        Filter.sized(1, 0)


def test_false_positives_are_as_few_as_asked_for_and_room_says_how_many_keys_still_fit() -> None:
    bloom = Filter.sized(20_000, 1e-2)
    assert 18_500 <= bloom.room <= 20_000
    bloom.add(pa.array([f"key-{i}" for i in range(10_000)]))
    assert 8_500 <= bloom.room <= 10_000
    bloom.add(pa.array([f"key-{i}" for i in range(10_000, 20_000)]))
    assert bloom.room < 500
    assert bloom.might_contain(pa.array([f"key-{i}" for i in range(20_000)])).all()
    assert 0.002 < bloom.might_contain(pa.array([f"other-{i}" for i in range(20_000)])).mean() < 0.02


def test_the_keys_given_stay_as_they_are_also_in_a_slice_and_in_one_of_many_lengths() -> None:
    keys = pa.array(["x", "one", "four", "fivefive", "é" * 9, "a" * 1000, "four"])
    for given_keys in (keys, keys.slice(2, 3), keys.slice(1, 1), keys.cast(pa.large_string()), pa.array(["four"])):
        before = given_keys.to_pylist()
        bloom = Filter.sized(10)
        bloom.add(given_keys)
        assert bloom.might_contain(given_keys).all()
        assert given_keys.to_pylist() == before
        assert bloom.serialise() == expected(before, bloom.hashes, bloom.bits)
    assert Filter.sized(1).might_contain(pa.array([], pa.string())).tolist() == []
    assert not Filter.sized(5).might_contain(keys).any()


@pytest.mark.parametrize("key", [None, ""])
def test_a_key_that_says_nothing_is_not_added(key: Any) -> None:
    with pytest.raises(ValueError, match="a record key is"):
        Filter.sized(1).add(pa.array(["a", key], pa.string()))


def made(*numbers: int, rest: bytes = b"", shape: str = ">iibi") -> str:
    return base64.b64encode(struct.pack(shape, *numbers) + rest).decode()


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("", SIMPLE, "damaged bloom filter"), ("AAA", SIMPLE, "damaged"), ("é", SIMPLE, "damaged"), ("AAAA\n", SIMPLE, "damaged"),
        (made(-1, 20, 1, 8), SIMPLE, "has 13 bytes for 8 bits"), (made(-1, 20, 1, 8, rest=b"xx"), SIMPLE, "15 bytes for 8 bits"),
        (made(-1, 20, 1, 2**31 - 1, rest=b"x"), SIMPLE, "14 bytes for 2,147,483,647 bits"),
        (made(-1, 20, 1, -8, rest=b"x"), SIMPLE, "-8 bits"),
        (made(-1, 2**30, 1, 8, rest=b"x"), SIMPLE, "1,073,741,824 hashes"), (made(-1, 0, 1, 8, rest=b"x"), SIMPLE, "0 hashes"),
        (made(-1, 20, 0, 8, rest=b"x"), SIMPLE, "hash 0"), (made(1, 20, 1, 8, rest=b"x"), SIMPLE, "version 1"),
        (made(-1, 20, 1, 8, rest=b"x"), DYNAMIC, "damaged"), (made(-1, 20, 1, 8, rest=b"x"), "OTHER", "the kind 'OTHER'"),
        (made(-1, 20, 1, 8, 5, 1, 2**30, shape=">iibiiii"), DYNAMIC, "1,073,741,824 rows"),
        (made(-1, 20, 1, 8, 5, 6, 0, shape=">iibiiii"), DYNAMIC, "rows"),
        (made(-1, 20, 1, 8, 5, 1, 1, shape=">iibiiii", rest=struct.pack(">iibi", -1, 20, 1, 16) + b"x"), DYNAMIC, "differ"),
        (" " * (LARGEST + 1), SIMPLE, "33,554,433 characters"),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_a_damaged_filter_is_one_line(text: str, kind: str, why: str) -> None:
    with pytest.raises(FormatError, match=rf"^it has a .*{why}"):
        parse(text, kind, "it")


def test_the_largest_filter_can_be_read_back() -> None:
    bloom = Filter.sized(1 << 40)
    assert len(bloom.serialise()) <= LARGEST
    assert bloom.hashes == 1
    assert isinstance(bloom.rows[0], np.ndarray)
