"""Small Parquet files as one: their bytes one after the other, and a footer by which Arrow reads the rows of all of them in one call.

To open a file and to read a few rows takes Arrow three times as long as to read these rows among those of others. A file goes together
with others where

    its footer is of a shape that is known (see `shapes`): one row group, and each number in its place
    each column has as many values as there are rows
    each column is one data page, behind its dictionary where it has one, and this page claims as many values, too

so no file can shift the rows of those behind it: Arrow refuses a page that holds less than it claims. All others are read alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.formats.shapes import DATA, DECODED, DICTIONARY, STORED, VALUES, WIDTH, Shape, Told

Numbers = NDArray[np.int64]

_MAGIC = b"PAR1"
_PAST = 128  # bytes behind the last file, for a header that is cut off


class Part(NamedTuple):
    """Files that follow one another: the first one of them, and how many rows each has; none: it is one that is read alone."""

    first: int
    rows: list[int]


class Joined(NamedTuple):
    """Files as one.

    data   a Parquet file with a row group for each of those that go together, in their order
    parts  all files, in their order
    """

    data: bytes
    parts: list[Part]


class _Group(NamedTuple):
    """A row group of all: its bytes, its rows, and the bytes that its values take at most."""

    data: bytes
    rows: int
    size: float


def join(contents: Sequence[bytes], told: Sequence[Told | None], most: int) -> Joined:
    """Files as one, by what their footers tell: these have the same bytes before their rows and behind them. Files without are read alone.

    `most`: bytes of values that the files of a part mean together.
    """
    if not any(told):
        return Joined(b"", [Part(i, []) for i in range(len(contents))])
    begins = [0, *accumulate(map(len, contents))]
    data, groups = b"".join([*contents, bytes(_PAST)]), dict[int, _Group]()
    for shape in {each.shape: None for each in told if each}:
        some = [(i, each) for i, each in enumerate(told) if each and each.shape is shape]
        numbers = _decoded([number for _, each in some for number in each.numbers], len(some))
        ends = np.array([begins[i + 1] - each.size - 8 for i, each in some])
        made = _groups(shape, numbers, np.array([begins[i] for i, _ in some]), ends, data)
        groups |= {i: group for (i, _), group in zip(some, made, strict=True) if group is not None and group.size <= most}
    if not groups:
        return Joined(b"", [Part(i, []) for i in range(len(contents))])
    shape = next(each.shape for each in told if each)
    footer = b"".join(
        [shape.before, b"\x16", _varint(2 * sum(group.rows for group in groups.values())), b"\x19", _list(len(groups)),
         *(groups[i].data for i in sorted(groups)), shape.behind]
    )  # fmt: skip
    return Joined(b"".join([data, footer, len(footer).to_bytes(4, "little"), _MAGIC]), _parts(len(contents), groups, most))


def _parts(files: int, groups: dict[int, _Group], most: int) -> list[Part]:
    parts, room = list[Part](), 0.0
    for i in range(files):
        if (group := groups.get(i)) is None:
            parts.append(Part(i, []))
            room = 0.0
            continue
        if group.size > room:
            parts.append(Part(i, []))
            room = most
        parts[-1].rows.append(group.rows)
        room -= group.size
    return parts


def _groups(shape: Shape, numbers: Numbers, begins: Numbers, ends: Numbers, data: bytes) -> list[_Group | None]:
    """The row groups of files of a shape, at these places of the data; None: it does not go together with others."""
    fields = [field for chunk in shape.chunks for field in chunk.told]

    def all_of(wanted: int) -> list[int]:
        return [1 + n for n, field in enumerate(fields) if field == wanted]

    rows, size = numbers[:, 0], numbers[:, -2]
    places = [1 + n for n, field in enumerate(fields) if field in (DATA, DICTIONARY)]
    numbers[:, places] += begins[:, None]
    pages, stored, decoded = numbers[:, all_of(DATA)], numbers[:, all_of(STORED)], numbers[:, all_of(DECODED)]
    has = np.array([DICTIONARY in chunk.told for chunk in shape.chunks])
    firsts = pages.copy()
    firsts[:, has] = numbers[:, all_of(DICTIONARY)]
    fits = (rows > 0) & (numbers[:, -1] == rows) & (size >= 0)
    fits &= (
        (numbers[:, all_of(VALUES)] == rows[:, None]) & (firsts >= begins[:, None] + len(_MAGIC)) & (stored > 0) & (decoded >= 0)
        & (firsts + stored <= ends[:, None]) & (pages < firsts + stored) & ((firsts < pages) | ~has)
    ).all(axis=1)  # fmt: skip
    raw, some = np.frombuffer(data, np.uint8), np.flatnonzero(fits)
    fits[some] &= (_values(raw, pages[some]) == rows[some, None]).all(axis=1)
    some = np.flatnonzero(fits)
    fits[some] &= (_behind(raw, firsts[some][:, has]) == pages[some][:, has]).all(axis=1)
    repeats = np.array([chunk.repeats for chunk in shape.chunks])
    sizes = np.where(repeats, decoded * rows[:, None].astype(float), decoded + 8 * rows[:, None]).sum(axis=1)  # past 64 bits, perhaps
    made = _filled(shape, numbers[:, 1:])
    return [
        _Group(made[i].tobytes(), n, size) if good else None
        for i, (good, n, size) in enumerate(zip(fits.tolist(), rows.tolist(), sizes.tolist(), strict=True))
    ]


def _filled(shape: Shape, numbers: Numbers) -> NDArray[np.uint8]:
    """The bytes of row groups, with numbers that have all the same length."""
    hole = bytes(WIDTH)
    made, holes = bytearray(b"\x19" + _list(len(shape.chunks))), list[int]()

    def put(head: bytes) -> None:
        made.extend(head)
        holes.extend(range(len(made), len(made) + WIDTH))
        made.extend(hole)

    for chunk in shape.chunks:
        made += b"\x26\0\x1c" + chunk.head
        for before, field in zip((VALUES - 1, *chunk.told), chunk.told, strict=False):
            put(bytes([field - before << 4 | 6]))
        made += b"\0\0"
    put(b"\x16")
    put(b"\x16")
    made += b"\0"
    found = np.tile(np.frombuffer(bytes(made), np.uint8), (len(numbers), 1))
    raw = (numbers[:, :, None] << 1 >> np.arange(0, 7 * WIDTH, 7)) & 127
    raw[:, :, :-1] |= 128
    found[:, holes] = raw.reshape(len(numbers), -1)
    return found


# --------------------------------------------------------------------------------------------------------------------- headers
def _values(raw: NDArray[np.uint8], at: Numbers) -> Numbers:
    """How many values data pages claim to have; -1 for what is not a data page of the first version."""
    at, crc = _sizes(raw, at, 0)[1:]
    good = (at >= 0) & (raw[at] == np.where(crc, 0x1C, 0x2C)) & (raw[at + 1] == 0x15)
    return np.where(good, _number(raw, at + 2)[0], -1)


def _behind(raw: NDArray[np.uint8], at: Numbers) -> Numbers:
    """Where dictionaries end; -1 for what is not one."""
    size, at, crc = _sizes(raw, at, 4)
    good = (at >= 0) & (raw[at] == np.where(crc, 0x3C, 0x4C)) & (raw[at + 1] == 0x15)
    at = _number(raw, at + 2)[1]
    good &= raw[at] == 0x15
    at = _number(raw, at + 1)[1]
    at += (raw[at] == 0x11) | (raw[at] == 0x12)  # whether it is sorted
    good &= (raw[at] == 0) & (raw[at + 1] == 0)
    return np.where(good, at + 2 + size, -1)


def _sizes(raw: NDArray[np.uint8], at: Numbers, kind: int) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """The stored bytes of pages, where their headers go on behind that and a checksum (-1: of another kind), and whether they have one."""
    good = (raw[at] == 0x15) & (raw[at + 1] == kind) & (raw[at + 2] == 0x15)
    at = _number(raw, at + 3)[1]
    good &= raw[at] == 0x15
    size, at = _number(raw, at + 1)
    crc = raw[at] == 0x15
    return size, np.where(good, np.where(crc, _number(raw, at + 1)[1], at), -1), crc


def _number(raw: NDArray[np.uint8], at: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers at some places, and where they end."""
    found, on = np.zeros(at.shape, np.int64), np.ones(at.shape, bool)
    for shift in range(0, 7 * WIDTH, 7):
        byte = raw[at]
        found |= np.where(on, (byte & 127).astype(np.int64) << shift, 0)
        at = at + on
        on &= byte > 127
        if not on.any():
            break
    return found >> 1 ^ -(found & 1), at


# --------------------------------------------------------------------------------------------------------------------- numbers
def _decoded(numbers: Sequence[bytes], files: int) -> Numbers:
    """Numbers as they are stored, those of a file in a row."""
    raw = np.frombuffer(b"".join(numbers), np.uint8)
    ends = np.flatnonzero(raw < 128) + 1
    begins = np.concatenate([[0], ends[:-1]])
    place = np.arange(len(raw)) - np.repeat(begins, ends - begins)
    found: Numbers = np.add.reduceat((raw & 127).astype(np.int64) << 7 * place, begins)
    return (found >> 1 ^ -(found & 1)).reshape(files, -1)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _list(size: int) -> bytes:
    """The head of a list of structs."""
    return bytes([size << 4 | 12]) if size < 15 else b"\xfc" + _varint(size)
