"""Small Parquet files as one: their bytes one after the other, and a footer by which Arrow reads the rows of all of them in one call.

To open a file and to read a few rows takes Arrow three times as long as to read these rows among those of others. A file goes together
with others where

    its footer is of a shape that is known (see `shapes`): one row group, and each number in its place
    each column has as many values as there are rows
    each column is one data page, behind its dictionary where it has one, and this page claims as many values, too

so no file can shift the rows of those behind it: Arrow refuses a page that holds less than it claims. All others are read alone. Footers
and headers are taken only as far as they say one thing: Arrow takes the last of two fields, cuts long numbers off, and does not look at
what a list says of its elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from quire.formats.shapes import DATA, DECODED, DICTIONARY, STORED, VALUES, WIDTH, Shape, Told

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]

_MAGIC = b"PAR1"
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_ONE_BY_ONE = (0, 3, 4)  # encodings by which the bytes of values follow one another: PLAIN, RLE, BIT_PACKED


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
    data, groups = b"".join(contents), dict[int, _Group]()
    for shape in {each.shape: None for each in told if each}:
        some = [(i, each) for i, each in enumerate(told) if each and each.shape is shape]
        numbers = _decoded([number for _, each in some for number in each.numbers], len(some))
        ends = np.array([begins[i + 1] - each.size - 8 for i, each in some])
        made = _groups(shape, numbers, np.array([begins[i] for i, _ in some]), ends, data, most)
        groups |= {i: group for (i, _), group in zip(some, made, strict=True) if group is not None}
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


def _groups(shape: Shape, numbers: Numbers, begins: Numbers, ends: Numbers, data: bytes, most: int) -> list[_Group | None]:
    """The row groups of files of a shape, at these places of the data; None: it does not go together with others."""
    fields = [field for chunk in shape.chunks for field in chunk.told]

    def all_of(*wanted: int) -> list[int]:
        return [1 + n for n, field in enumerate(fields) if field in wanted]  # behind the rows of the file

    rows, size = numbers[:, 0], numbers[:, -2]
    numbers[:, all_of(DATA, DICTIONARY)] += begins[:, None]
    pages, stored = numbers[:, all_of(DATA)], numbers[:, all_of(STORED)]
    has = np.array([DICTIONARY in chunk.told for chunk in shape.chunks])
    firsts = pages.copy()
    firsts[:, has] = numbers[:, all_of(DICTIONARY)]
    fits = (rows > 0) & (numbers[:, -1] == rows) & (size >= 0) & (np.maximum(rows, size) <= most)
    fits &= (
        (numbers[:, all_of(VALUES)] == rows[:, None]) & (numbers[:, all_of(DECODED)] >= 0) & (firsts >= begins[:, None] + len(_MAGIC))
        & (stored > 0) & (firsts + stored <= ends[:, None]) & (pages < firsts + stored) & ((firsts < pages) | ~has)
    ).all(axis=1)  # fmt: skip
    some = np.flatnonzero(fits)
    raw, rows_of, pages, firsts, stored = np.frombuffer(data, np.uint8), rows[some, None], pages[some], firsts[some], stored[some]
    page, dictionary = _data_pages(raw, pages), _dictionaries(raw, firsts[:, has])
    good = page.good & (page.values == rows_of) & (page.end + page.stored == firsts + stored)
    good[:, has] &= dictionary.good & (dictionary.end + dictionary.stored == pages[:, has])
    fits[some] = good.all(axis=1)
    # A value of any length may stand once for many rows where it is in a dictionary, or in an encoding that is not one after the other.
    held, repeats = page.decoded.astype(float), ~np.isin(page.encoding, _ONE_BY_ONE) | has
    held[:, has] += dictionary.decoded
    sizes = np.where(repeats & np.array([chunk.of_text for chunk in shape.chunks]), held * rows_of, held + 8 * rows_of).sum(axis=1)
    made, found = _filled(shape, numbers[some, 1:]), list[_Group | None]([None] * len(rows))
    for n, i in enumerate(some.tolist()):
        if fits[i] and sizes[n] <= most:
            found[i] = _Group(made[n].tobytes(), int(rows[i]), float(sizes[n]))
    return found


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
    found[:, holes] = raw.reshape(len(numbers), len(holes))
    return found


# --------------------------------------------------------------------------------------------------------------------- headers
class _Page(NamedTuple):
    """The headers of pages: what each claims, and where it ends; one that is not `good` is of another kind, or of another order."""

    good: Truths
    values: Numbers
    encoding: Numbers
    decoded: Numbers
    stored: Numbers
    end: Numbers


def _data_pages(raw: Bytes, at: Numbers) -> _Page:
    """The data pages of the first version that begin there."""
    read = _Cursor(raw, at)
    decoded, stored, crc = read.sizes(_DATA_PAGE)
    read.byte(np.where(crc, 0x1C, 0x2C))
    values, encoding, *_ = (read.field() for _ in range(4))
    read.statistics()
    read.byte(0)
    read.byte(0)
    return _Page(read.good, values, encoding, decoded, stored, read.at)


def _dictionaries(raw: Bytes, at: Numbers) -> _Page:
    """The dictionaries that begin there."""
    read = _Cursor(raw, at)
    decoded, stored, crc = read.sizes(_DICTIONARY_PAGE)
    read.byte(np.where(crc, 0x3C, 0x4C))
    values, encoding = read.field(), read.field()
    read.maybe(0x11, 0x12)  # whether it is sorted
    read.byte(0)
    read.byte(0)
    return _Page(read.good, values, encoding, decoded, stored, read.at)


class _Cursor:
    """Places in some bytes, of which each reads on as long as it finds what it looks for (`good`), and only what Arrow reads there, too."""

    def __init__(self, raw: Bytes, at: Numbers) -> None:
        self.raw, self.at, self.good = raw, at.copy(), np.ones(at.shape, bool)

    def byte(self, wanted: int | Numbers) -> None:
        self.good &= self.raw[self.at] == wanted
        self._on(np.ones(self.at.shape, bool))

    def maybe(self, *wanted: int) -> Truths:
        """Where one of these stands; the others stay."""
        there = np.isin(self.raw[self.at], wanted)
        self._on(there)
        return there

    def field(self) -> Numbers:
        """The number of the next field, of 32 bits."""
        self.byte(0x15)
        return self.number(self.good)

    def sizes(self, kind: int) -> tuple[Numbers, Numbers, Truths]:
        """The bytes of pages of a kind, decoded and stored, and whether they have a checksum, which is passed over."""
        self.good &= self.field() == kind
        decoded, stored, crc = self.field(), self.field(), self.maybe(0x15)
        self.number(crc)
        self.good &= (decoded >= 0) & (stored >= 0)
        return decoded, stored, crc

    def statistics(self) -> None:
        """Pass over a struct of ends and counts, where one stands."""
        inside = self.maybe(0x1C)
        for _ in range(9):
            inside &= self.good
            if not inside.any():
                return
            head = np.where(inside, self.raw[self.at], 0)
            kind = head & 15
            self._on(inside)
            inside &= head > 0
            self.good &= ~inside | ((head > 15) & np.isin(kind, (1, 2, 6, 8)))
            long = self.number(inside & ((kind == 6) | (kind == 8)), signed=False)
            self._on(np.where(inside & (kind == 8), long, 0))
        self.good &= ~inside

    def number(self, where: Truths, *, signed: bool = True) -> Numbers:
        """The numbers that stand at some of the places."""
        found, on = np.zeros(self.at.shape, np.int64), where.copy()
        for shift in range(0, 7 * 5, 7):
            byte = self.raw[self.at]
            found |= np.where(on, (byte & 127).astype(np.int64) << shift, 0)
            self._on(on)
            on &= byte > 127
            if not on.any():
                break
        self.good &= ~on & (found < 1 << 32)  # Arrow reads longer ones, and takes a part of them
        return found >> 1 ^ -(found & 1) if signed else found

    def _on(self, by: Truths | Numbers) -> None:
        self.at = np.minimum(self.at + by, len(self.raw) - 1)


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
