"""The footer of a Parquet file as its columns' chunks tell of themselves, read in Python.

Arrow ends the process when it is asked for a chunk of which the footer is damaged (in its size statistics, say): that is an
exception in C++ which nobody catches. Reading rows is safe. Source: Thrift's compact protocol, and the structs of `parquet.thrift`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_DEEPEST = 16  # structs in one another: those of Parquet are 6
_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
_ONE_BY_ONE = {0, 3, 4}  # encodings by which the bytes of values follow one another: PLAIN, RLE, BIT_PACKED


class Chunk(NamedTuple):
    """A column in a row group.

    size          bytes that it claims to mean
    repeats       whether a value may stand there once for many rows
    least, most   its values at the ends, as the file has them; None: it does not say
    filter        where its Bloom filter lies (first byte, bytes); None: it has none
    """

    size: int
    repeats: bool
    least: bytes | None
    most: bytes | None
    filter: tuple[int, int] | None = None

    @property
    def ends(self) -> tuple[bytes, bytes] | None:
        """Both of them, where both are told."""
        return None if self.least is None or self.most is None else (self.least, self.most)


def chunks(footer: bytes) -> list[dict[str, Chunk]]:
    """For each row group the chunks of its columns, by path. ValueError for bytes that are not the metadata of a Parquet file."""
    try:
        return [dict(_chunk(column) for column in _typed(group[1], list)) for group in _typed(_Thrift(footer).struct(0)[4], list)]
    except (IndexError, KeyError, TypeError, AttributeError) as e:
        raise ValueError(f"its footer is damaged ({type(e).__name__})") from e


def frame(footer: bytes) -> tuple[bytes, bytes] | None:
    """The bytes before what a footer says of rows, and those behind: files that share both have the same columns. None: it is damaged.

    Before stand the columns as Parquet has them, and behind what writers add to that, such as Arrow's own schema.
    """
    thrift = _Thrift(footer)
    try:
        before = thrift.past(2)
        return footer[:before], footer[thrift.past(4) :]
    except (IndexError, ValueError):
        return None


def header(data: bytes) -> tuple[dict[int, Any], int]:
    """The struct with which bytes begin, and where it ends; ValueError where there is none."""
    thrift = _Thrift(data)
    try:
        return thrift.struct(0), thrift.at
    except IndexError:
        raise ValueError("its header is damaged") from None


def held(content: bytes | memoryview) -> bytes:
    """The footer of a file that is in memory; empty where it has none."""
    length, most = int.from_bytes(content[-8:-4], "little"), len(content) - 8
    return bytes(content[most - length : most]) if length <= most and content[-4:] == b"PAR1" else b""


def _chunk(column: dict[int, Any]) -> tuple[str, Chunk]:
    told = column[3]
    path = ".".join(part.decode() for part in _typed(told[3], list))
    said = told.get(12, {})
    least, most = (None if end is None else _typed(end, bytes) for end in (said.get(6), said.get(5)))
    encodings = set(_typed(told[2], list))
    place = (_typed(told[14], int), _typed(told[15], int)) if 14 in told and 15 in told else None
    return path, Chunk(_typed(told[6], int), told[1] == 6 and not encodings <= _ONE_BY_ONE, least, most, place)


def _typed(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{kind.__name__} was expected")
    return value


class _Thrift:
    """Values one after the other; each takes at least one byte, so no claim of a length costs more than the bytes that are there."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.fields = data, 0, 0

    def struct(self, depth: int) -> dict[int, Any]:
        """The fields by their numbers."""
        if depth > _DEEPEST:
            raise ValueError("its footer is damaged: structs in structs without end")
        found, field, data = dict[int, Any](), 0, self.data
        while head := data[self.at]:
            self.at += 1
            field = field + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found[field] = kind == _TRUE if kind <= _FALSE else self._value(kind, depth)
        self.at += 1
        return found

    def past(self, last: int) -> int:
        """Where the field of this number ends; ValueError where a field before it is missing."""
        for field in range(self.fields + 1, last + 1):
            head = self._byte()
            if head >> 4 != 1:
                raise ValueError(f"its footer is of another order: {field} is missing")
            self._value(head & 15, 0)
            self.fields = field
        return self.at

    def _value(self, kind: int, depth: int) -> Any:
        if _I16 <= kind <= _I64:
            return self._signed()
        if kind == _BINARY:
            return self._bytes(self._number())
        if kind == _STRUCT:
            return self.struct(depth + 1)
        if kind in (_LIST, _SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._number()
            return [self._value(head & 15, depth + 1) for _ in range(size)]
        if kind in (_TRUE, _FALSE, _BYTE):  # in a list; a field has its truth in its head
            return self._byte()
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _MAP and (size := self._number()):
            kinds = self._byte()
            return [(self._value(kinds >> 4, depth + 1), self._value(kinds & 15, depth + 1)) for _ in range(size)]
        if kind == _MAP:
            return []
        raise ValueError(f"its footer is damaged: a value of kind {kind}")

    def _byte(self) -> int:
        found = self.data[self.at]
        self.at += 1
        return found

    def _bytes(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) < size:
            raise IndexError("the end")
        self.at += size
        return found

    def _number(self) -> int:
        if (byte := self.data[self.at]) < 128:  # as most are
            self.at += 1
            return byte
        found, shift = 0, 0
        while True:
            byte = self._byte()
            found |= (byte & 127) << shift
            if byte < 128:
                return found
            shift += 7
            if shift > 63:
                raise ValueError("its footer is damaged: a number without end")

    def _signed(self) -> int:
        found = self._number()
        return (found >> 1) ^ -(found & 1)
