"""A Parquet file's own claims, read from its bytes: the places of its row groups, and the content of a column's pages.

The headers of pages decide what decoding costs, and Arrow gives no access to them. If a footer contradicts itself, Arrow's own metadata
ends the process when it is asked for a column. Both are structs in Thrift's compact protocol (parquet-format, `FileMetaData` and
`PageHeader`), of which numbers, texts, lists and structs are read, and everything else is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

DELTAS = 7  # the encoding DELTA_BYTE_ARRAY, in which each value repeats the beginning of the one before
_DEEPEST = 16  # structs and lists within each other; a footer has some ten
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # kinds of pages
_DETAILS = {_DATA: (5, 2), _DICTIONARY: (7, 2), _DATA_2: (8, 4)}  # where the header of a kind is, and in it the encoding


class Chunk(NamedTuple):
    """The column of a row group: where it begins and ends in the file, and its bytes when unpacked, as the footer has them."""

    first: int
    end: int
    unpacked: int


class Group(NamedTuple):
    """A row group."""

    rows: int
    chunks: list[Chunk]


class ParquetPage(NamedTuple):
    """One page: bytes when unpacked, values (also those that are null), its encoding, and whether it is a dictionary."""

    unpacked: int
    values: int
    encoding: int
    dictionary: bool


def footer(data: bytes | memoryview) -> tuple[str, list[Group]]:
    """A file's writer and row groups, by the bytes of its footer; ValueError if the footer is impossible."""
    found = _read(memoryview(data), 0)[0]
    made = found.get(6, b"")
    groups = [
        Group(_whole(group, 3), [_chunk(_of(chunk, 3, dict)) for chunk in _of(group, 1, list)]) for group in _of(found, 4, list)
    ]  # fmt: skip
    return (bytes(made).decode("utf-8", "replace") if isinstance(made, memoryview) else ""), groups


def _chunk(said: dict[int, Any]) -> Chunk:
    first = min(at for at in (_whole(said, 9), _whole(said, 11, 0)) if at)
    packed, unpacked = _whole(said, 7), _whole(said, 6)
    if first <= 0 or packed < 0 or unpacked < 0:
        raise ValueError("a column that lies outside of the file")
    return Chunk(first, first + packed, unpacked)


def pages(data: memoryview) -> Iterator[ParquetPage]:
    """The pages that follow one another in the bytes of a column; ValueError for what is not a header."""
    at = 0
    while at < len(data):
        header, at = _read(data, at)
        kind, unpacked, packed = (_whole(header, i) for i in (1, 2, 3))
        detail, encoding = _DETAILS.get(kind, (0, 0))
        found = _of(header, detail, dict) if detail else {}
        values = _whole(found, 1) if kind in (_DATA, _DATA_2) else 0
        if min(unpacked, packed, values) < 0:
            raise ValueError("a page of fewer than no bytes")
        at += packed
        yield ParquetPage(unpacked, values, _whole(found, encoding, -1), kind == _DICTIONARY)


def _whole(found: Any, field: int, absent: int | None = None) -> int:
    value = found.get(field, absent) if isinstance(found, dict) else None
    if not isinstance(value, int):
        raise ValueError(f"the field {field} is not a number")
    return value


def _of(found: Any, field: int, kind: type) -> Any:
    value = found.get(field) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise ValueError(f"the field {field} is not a {kind.__name__}")
    return value


# ------------------------------------------------------------------------------------------------------- Thrift's compact protocol
def _read(data: memoryview, at: int) -> tuple[dict[int, Any], int]:
    """A struct that begins at `at`: its fields by their ids, and where it ends."""
    try:
        return _struct(data, at, 0)
    except IndexError:
        raise ValueError("a struct that does not end") from None


def _struct(data: memoryview, at: int, depth: int) -> tuple[dict[int, Any], int]:
    if depth > _DEEPEST:
        raise ValueError("structs within structs without end")
    found, field = dict[int, Any](), 0
    while True:
        head = data[at]
        at += 1
        if not head:
            return found, at
        if head >> 4:
            field += head >> 4
        else:
            field, at = _number(data, at)
        found[field], at = _value(data, at, head & 15, depth, inside=False)


def _value(data: memoryview, at: int, kind: int, depth: int, *, inside: bool) -> tuple[Any, int]:
    """A value of a kind, and where it ends; None for what nobody asks for. `inside`: of a list, where a truth value has a byte."""
    if kind in (4, 5, 6):
        return _number(data, at)
    if kind == 8:
        length, at = _unsigned(data, at)
        return data[at : at + length], at + length
    if kind == 12:
        return _struct(data, at, depth + 1)
    if kind in (9, 10):
        return _list(data, at, depth + 1)
    if kind in (1, 2):
        return None, at + inside
    if kind in (3, 7):
        return None, at + (1 if kind == 3 else 8)
    raise ValueError(f"a field of the kind {kind}")


def _list(data: memoryview, at: int, depth: int) -> tuple[list[Any], int]:
    if depth > _DEEPEST:
        raise ValueError("lists within lists without end")
    head, at, found = data[at], at + 1, list[Any]()
    count = head >> 4
    if count == 15:
        count, at = _unsigned(data, at)
    for _ in range(count):
        value, at = _value(data, at, head & 15, depth, inside=True)
        if at > len(data):
            raise IndexError
        found.append(value)
    return found, at


def _number(data: memoryview, at: int) -> tuple[int, int]:
    found, at = _unsigned(data, at)
    return (found >> 1) ^ -(found & 1), at


def _unsigned(data: memoryview, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
