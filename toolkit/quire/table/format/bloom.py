"""Hudi's bloom filter of a base file's record keys, built, extended and probed for whole columns.

Source: `org.apache.hudi.common.bloom` (SimpleBloomFilter, HoodieDynamicBoundedBloomFilter), which go back to Hadoop's: base64 of
big-endian numbers and of bits, the lowest one first. A key's hashes are 32-bit MurmurHash2, each one the seed of the next; the last bytes
of a key are taken in reverse order, and signed. The mixing of a key's words does not depend on the seed: it is done once for each key.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quire.errors import FormatError

SIMPLE, DYNAMIC = "SIMPLE", "DYNAMIC_V0"
RATE = 1e-6  # false positives; Hudi's own default of 1e-9 for 60,000 keys costs each file 431,380 characters
LARGEST = 32 << 20  # characters: some 6 million keys, and 192 MiB in memory
_VERSION, _MURMUR = -1, 1
_HASHES, _MOST_ROWS = 128, 128  # far more than a rate or a number of keys asks for: a forged filter must not cost hours
_HEAD, _ROWS = struct.Struct(">iibi"), struct.Struct(">iii")
_M = np.uint32(0x5BD1E995)
_CHUNK = 1 << 14  # keys whose words stay in the processor's cache
_Words = npt.NDArray[np.uint32]
_Flags = npt.NDArray[np.bool_]


@dataclass
class Filter:
    """A filter: `rows` of `bits` each, of which a SIMPLE one has one; a DYNAMIC_V0 one begins another after `per_row` keys."""

    bits: int
    hashes: int
    rows: list[_Flags]
    kind: str = SIMPLE
    per_row: int = 0
    in_last: int = 0  # keys in the last row

    @classmethod
    def sized(cls, keys: int, rate: float = RATE) -> Filter:
        """An empty SIMPLE filter for so many keys, with so many false positives among those that are not there.

        Beyond some 7 million keys at the usual rate it grows no more, and false positives do.
        """
        bits, hashes = _sizes(max(1, keys), rate)
        return cls(bits, hashes, [np.zeros(bits, np.bool_)])

    @classmethod
    def dynamic(cls, per_row: int, rate: float) -> Filter:
        """An empty DYNAMIC_V0 filter, which grows."""
        bits, hashes = _sizes(per_row, rate)
        return cls(bits, hashes, [np.zeros(bits, np.bool_)], DYNAMIC, per_row)

    @property
    def room(self) -> int:
        """How many more keys it takes until false positives are more than it was made for; of a SIMPLE one, an estimate by its bits."""
        if self.kind == DYNAMIC:
            return max(0, self.per_row - self.in_last)
        full = min(float(np.count_nonzero(self.rows[0])) / self.bits, 1 - 1e-9)
        return max(0, int((self.bits * math.log(2) + self.bits * math.log1p(-full)) / self.hashes))

    def add(self, keys: pa.Array) -> None:
        """Add record keys, of which none is null or empty, in one pass."""
        if self.kind == SIMPLE:
            return self._add(keys)
        while len(keys):
            if self.in_last >= self.per_row:
                self.rows.append(np.zeros(self.bits, np.bool_))
                self.in_last = 0
            now = keys.slice(0, self.per_row - self.in_last)
            self._add(now)
            self.in_last += len(now)
            keys = keys.slice(len(now))
        return None

    def _add(self, keys: pa.Array) -> None:
        row, bits = self.rows[-1], np.uint32(self.bits)
        for _, words, tails, length in _mixed(keys):
            state = np.zeros(words.shape[1], np.uint32)
            for _ in range(self.hashes):
                state = _hash(state, words, tails, length)
                row[_place(state, bits)] = True

    def might_contain(self, keys: pa.Array) -> _Flags:
        """For each key whether it may be there: False is certain."""
        found, bits = np.zeros(len(keys), np.bool_), np.uint32(self.bits)
        for at, words, tails, length in _mixed(keys):
            alive = np.zeros(len(at), np.bool_)
            for row in self.rows:
                alive[_probed(row, bits, self.hashes, words, tails, length)] = True
            found[at] = alive
        return found

    def serialise(self) -> str:
        """The text of the footer's key `org.apache.hudi.bloomfilter`."""
        if self.kind == SIMPLE:
            return base64.b64encode(self._row(self.rows[0])).decode()
        head = _HEAD.pack(_VERSION, self.hashes, _MURMUR, self.bits) + _ROWS.pack(self.per_row, self.in_last, len(self.rows))
        return base64.b64encode(head + b"".join(map(self._row, self.rows))).decode()

    def _row(self, row: _Flags) -> bytes:
        return _HEAD.pack(_VERSION, self.hashes, _MURMUR, self.bits) + np.packbits(row, bitorder="little").tobytes()


def parse(text: str | bytes, kind: str, where: str) -> Filter:
    """The filter in a footer; FormatError where it is damaged: its sizes are checked against its length before anything is made of it."""
    if kind not in (SIMPLE, DYNAMIC):
        raise FormatError(f"{where} has a bloom filter of the kind {kind[:80]!r}, and quire reads {SIMPLE} and {DYNAMIC}")
    if len(text) > LARGEST:
        raise FormatError(f"{where} has a bloom filter of {len(text):,} characters, and one has {LARGEST:,} at most: look who wrote it")
    try:
        data = base64.b64decode(text, validate=True)
        return _simple(data) if kind == SIMPLE else _dynamic(data)
    except (binascii.Error, struct.error, ValueError) as e:
        raise FormatError(f"{where} has a damaged bloom filter ({str(e)[:200]}). Write the file again.") from e


def _simple(data: bytes) -> Filter:
    bits, hashes = _head(data)
    if len(data) != _HEAD.size + (bits + 7) // 8:
        raise ValueError(f"it has {len(data):,} bytes for {bits:,} bits")
    return Filter(bits, hashes, [_flags(data, 0, bits)])


def _dynamic(data: bytes) -> Filter:
    bits, hashes = _head(data)
    per_row, in_last, count = _ROWS.unpack_from(data, _HEAD.size)
    first, step = _HEAD.size + _ROWS.size, _HEAD.size + (bits + 7) // 8
    if per_row < 1 or not 0 <= in_last <= per_row or not 1 <= count <= _MOST_ROWS or len(data) != first + count * step:
        raise ValueError(f"it has {len(data):,} bytes for {count:,} rows of {bits:,} bits, the last with {in_last:,} of {per_row:,} keys")
    starts = range(first, len(data), step)
    if any(_head(data, at) != (bits, hashes) for at in starts):
        raise ValueError("its rows differ")
    return Filter(bits, hashes, [_flags(data, at, bits) for at in starts], DYNAMIC, per_row, in_last)


def _head(data: bytes, at: int = 0) -> tuple[int, int]:
    version, hashes, murmur, bits = _HEAD.unpack_from(data, at)
    if (version, murmur) != (_VERSION, _MURMUR) or not 1 <= hashes <= _HASHES or bits < 1:
        raise ValueError(f"its head is version {version}, hash {murmur}, {hashes:,} hashes, {bits:,} bits")
    return bits, hashes


def _flags(data: bytes, at: int, bits: int) -> _Flags:
    packed = np.frombuffer(data, np.uint8, (bits + 7) // 8, at + _HEAD.size)
    return np.unpackbits(packed, count=bits, bitorder="little").view(np.bool_)


def _sizes(keys: int, rate: float) -> tuple[int, int]:
    """Bits and hashes, in the order of operations of the JVM's, which rounds up."""
    if not 0 < rate < 1:
        raise ValueError(f"the rate of false positives is {rate}, and lies between 0 and 1")
    wanted = math.ceil(keys * (-math.log(rate) / (math.log(2) * math.log(2))))
    bits = min(wanted, 6 * (LARGEST - 100))  # base64 has six bits a character
    return bits, math.ceil(math.log(2) * bits / keys)


# ------------------------------------------------------------------------------------------------------------------------- hashes
def _mixed(keys: pa.Array) -> Iterator[tuple[npt.NDArray[np.int64], _Words, _Words | None, int]]:
    """Keys of one length at a time: their places, mixed words (a row a word), what their last bytes add, and the length."""
    if keys.null_count:
        raise ValueError("a record key is null")
    if not len(keys):
        return
    keys = keys.cast(pa.large_string())
    offsets = np.frombuffer(keys.buffers()[1], np.int64, len(keys) + 1, keys.offset * 8)
    lengths = np.diff(offsets)
    data = np.frombuffer(keys.buffers()[2] or b"", np.uint8)
    order = np.argsort(lengths, kind="stable")
    sizes, firsts = np.unique(lengths[order], return_index=True)
    for length, places in zip(sizes.tolist(), np.split(order, firsts[1:]), strict=True):
        if not length:
            raise ValueError("a record key is empty")
        for start in range(0, len(places), _CHUNK):
            at = places[start : start + _CHUNK]
            yield at, *_words(data, offsets[at], length), length


def _words(data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], length: int) -> tuple[_Words, _Words | None]:
    whole = length // 4 * 4
    words = np.empty((whole // 4, len(starts)), np.uint32)
    if len(data) >= 4:
        at_each_byte = np.ndarray(len(data) - 3, "<u4", data, strides=(1,))
        for i, word in enumerate(words):
            np.multiply(at_each_byte[starts + 4 * i], _M, out=word)
    words ^= words >> np.uint32(24)
    words *= _M
    if whole == length:
        return words, None
    tails = np.zeros(len(starts), np.int32)
    for i in range(length - whole):  # the last byte stands lowest, and each has a sign
        tails ^= data[starts + (length - 1 - i)].view(np.int8).astype(np.int32) << np.int32(8 * i)
    return words, tails.view(np.uint32)


def _hash(seed: _Words, words: _Words, tails: _Words | None, length: int) -> _Words:
    state = seed ^ np.uint32(length)
    for word in words:
        state *= _M
        state ^= word
    if tails is not None:
        state ^= tails
        state *= _M
    state ^= state >> np.uint32(13)
    state *= _M
    state ^= state >> np.uint32(15)
    return state


def _place(state: _Words, bits: np.uint32) -> _Words:
    """The bit of a hash: the remainder of its absolute value, as a signed number."""
    found: _Words = np.abs(state.view(np.int32)).view(np.uint32) % bits
    return found


def _probed(row: _Flags, bits: np.uint32, hashes: int, words: _Words, tails: _Words | None, length: int) -> npt.NDArray[np.int64]:
    """Which of the keys may be in a row: those that are not there are left behind soon."""
    left, state = np.arange(words.shape[1]), np.zeros(words.shape[1], np.uint32)
    for _ in range(hashes):
        state = _hash(state, words, tails, length)
        hit = row[_place(state, bits)]
        if not hit.all():
            left, state, words = left[hit], state[hit], words[:, hit]
            tails = tails[hit] if tails is not None else None
        if not len(left):
            break
    return left
