"""Bloom filters in a Parquet file: which values are certainly not in a row group, without a look at its rows.

Source: "Parquet Bloom Filter" in the specification of the format: blocks of 256 bits, xxh64 of a value's bytes with seed 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xxhash

from quire.formats.footer import header

_SALT = np.array(
    [0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31], np.uint32
)  # fmt: skip
_BLOCK = 32  # bytes
_KNOWN: dict[int, Any] = {2: {1: {}}, 3: {1: {}}, 4: {1: {}}}  # kinds of blocks, hash and compression: the specification has one of each


class Filter:
    """The filter of one column in one row group; ValueError for bytes that are none."""

    def __init__(self, data: bytes) -> None:
        told, at = header(data)
        size = len(data) - at
        if told != {1: size, **_KNOWN} or not size or size % _BLOCK:
            raise ValueError("a Bloom filter is damaged")
        self._words = np.frombuffer(data, "<u4", offset=at).reshape(-1, 8)

    def may_hold(self, values: Sequence[bytes]) -> np.ndarray:
        """For each value whether it may be there; False: it certainly is not."""
        hashes = np.fromiter(map(xxhash.xxh64_intdigest, values), np.uint64, len(values))
        blocks = ((hashes >> np.uint64(32)) * np.uint64(len(self._words))) >> np.uint64(32)
        low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        bits = (low[:, None] * _SALT) >> np.uint32(27)
        found: np.ndarray = ((self._words[blocks.astype(np.int64)] >> bits) & np.uint32(1)).all(axis=1)
        return found
