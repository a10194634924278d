"""The shapes of footers: of Parquet files that one writer has written, numbers and statistics alone differ from file to file.

A footer that was looked at closely, token by token, is a pattern by which those of other files are read in a few calls. Source: Thrift's
compact protocol, and the structs of `parquet.thrift`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from quire.formats import footer

WIDTH = 6  # bytes of a number at most: as many bits as any offset needs
COLUMNS = 200  # of more it takes a tenth of a second to make a pattern
VALUES, DECODED, STORED, DATA, DICTIONARY = 5, 6, 7, 9, 11  # what a column's chunk tells: values, bytes, and where its pages begin

_NUMBER = rb"[\x80-\xff]{0,%d}[\x00-\x7f]" % (WIDTH - 1)
_FALSE, _BYTE, _I32, _I64, _BINARY, _LIST, _STRUCT = 2, 3, 5, 6, 8, 9, 12
# Where something stands in a row group: the field in it, the field in that one, and so on; the rows of the file stand before it.
_FILE, _CHUNKS, _SIZE, _ROWS, _META = (0,), (1,), (2,), (3,), (1, 3)
_TYPE, _ENCODINGS, _PATH, _CODEC, _STATISTICS, _SIZES = ((*_META, field) for field in (1, 2, 3, 4, 12, 16))
_TOLD = {_FILE, _SIZE, _ROWS, *((*_META, field) for field in (VALUES, DECODED, STORED, DATA, DICTIONARY))}
_ELSEWHERE = {(1, 1), (1, 8), (1, 9)}  # a chunk in another file, or encrypted
# Arrow takes these fields for this whatever their heads say of what is in them, and it looks at no other list.
_LISTS = {_CHUNKS: _STRUCT, _ENCODINGS: _I32, _PATH: _BINARY, (4,): _STRUCT, (*_META, 13): _STRUCT, (*_SIZES, 2): _I64, (*_SIZES, 3): _I64}
_KINDS = dict.fromkeys(_LISTS, _LIST) | dict.fromkeys(_TOLD, _I64) | {_META: _STRUCT, _TYPE: _I32, _CODEC: _I32, _STATISTICS: _STRUCT}
_FEW, _DEEPEST = 32, 8  # fields of a struct, and elements of a list but that of columns; structs in one another
_LENGTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of the values of types, but for those whose values are bytes

Where = tuple[int, ...]


class Chunk(NamedTuple):
    """A column of a shape.

    head     the bytes of its type, encodings, path and codec
    told     the fields whose numbers it tells, in their order
    of_text  whether its values are bytes, of any length
    """

    head: bytes
    told: tuple[int, ...]
    of_text: bool


class Told(NamedTuple):
    """The numbers of a footer that is of a shape.

    numbers  as they are stored: the file's rows, those told of each chunk, and the row group's bytes and rows
    size     bytes of the footer
    """

    shape: Shape
    numbers: list[bytes]
    size: int


class Shape:
    """The tokens of a footer that has one row group, as a pattern.

    before, behind  its bytes before what it says of rows (see `footer.frame`), and behind that
    chunks          its columns
    Raises ValueError for other footers.
    """

    def __init__(self, said: bytes) -> None:
        if (frame := footer.frame(said)) is None:
            raise ValueError("its footer is damaged")
        self.before, self.behind = frame
        walk = _Walk(said, len(self.before))
        try:
            _check(said, len(self.before), len(said) - len(self.behind))
            walk.whole()
        except IndexError as e:
            raise ValueError("its footer is damaged") from e
        if walk.at != len(said) - len(self.behind):
            raise ValueError("its footer is of another order")
        self.chunks = walk.chunks
        self._parts = [re.compile(b"".join(part), re.DOTALL) for part in walk.parts]

    def read(self, said: bytes) -> Told | None:
        """The numbers of a footer; None: it is of another shape."""
        if not (said.startswith(self.before) and said.endswith(self.behind)):
            return None
        found, at, end = list[bytes](), len(self.before), len(said) - len(self.behind)
        try:
            for n, part in enumerate(self._parts):
                if (match := part.match(said, _flat(said, at) if n else at)) is None:
                    return None
                found += match.groups()
                at = match.end()
        except (IndexError, ValueError):
            return None
        return Told(self, found, len(said)) if at == end else None


def _flat(data: bytes, at: int, depth: int = 0) -> int:
    """Where a struct ends that has no lists, which Arrow reads without a look at what they say that they hold; ValueError for another."""
    field = 0
    while head := data[at]:
        at, kind, field = at + 1, head & 15, field + (head >> 4)
        if head < 16 or field > _FEW or depth > _DEEPEST:
            raise ValueError("its footer is of another order")
        if _BYTE < kind <= _I64:
            at = _number(data, at)[1]
        elif kind == _BINARY:
            size, at = _number(data, at)
            at += size
        elif kind == _STRUCT:
            at = _flat(data, at, depth + 1)
        elif kind == _BYTE:
            at += 1
        elif kind > _FALSE or not kind:
            raise ValueError(f"its footer is of another order: a value of kind {kind}")
    return at + 1


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number as it is stored, and where it ends."""
    found = 0
    for shift in range(0, 7 * WIDTH, 7):
        byte = data[at]
        at += 1
        found |= (byte & 127) << shift
        if byte < 128:
            return found, at
    raise ValueError("a number of it is long")


def _check(said: bytes, before: int, behind: int) -> None:
    """ValueError for a footer in which something before its rows, or behind them, is not what Arrow takes it for."""
    at = _number(said, 1)[1]
    if said[0] != 0x15 or said[at] != 0x19 or _structs(said, at + 1) != before:
        raise ValueError("its footer is of another order")
    at = behind
    while head := said[at]:
        at += 1
        if head < 16:  # its number follows, and Arrow would read on behind that
            raise ValueError("its footer is of another order")
        if head & 15 == _LIST:
            at = _structs(said, at)
        elif head & 15 == _BINARY:
            size, at = _number(said, at)
            at += size
        else:
            raise ValueError("its footer is of another order")
    if at + 1 != len(said):
        raise ValueError("its footer goes on behind its end")


def _structs(data: bytes, at: int) -> int:
    """Where a list of structs ends."""
    head = data[at]
    size, at = (head >> 4, at + 1) if head < 0xF0 else _number(data, at + 1)
    if head & 15 != _STRUCT or size > len(data):
        raise ValueError("its footer is of another order")
    for _ in range(size):
        at = _flat(data, at)
    return at


def _statistics(length: int) -> bytes:
    """The pattern of statistics whose values have this length: any of them may be there, for example none where all is null."""
    true, false, number, value = (
        b"".join(re.escape(bytes([delta << 4 | kind])) for delta in range(1, 16)) for kind in (1, 2, _I64, _BINARY)
    )
    return rb"(?:[%s%s]|[%s]%s|[%s]%s.{%d}){0,8}\x00" % (true, false, number, _NUMBER, value, re.escape(bytes([length])), length)


class _Walk:
    """Goes through a footer, and writes the parts of its pattern: between any two of them stand statistics with values of any length."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.parts, self.chunks = data, at, [list[bytes]()], list[Chunk]()
        self._seen = dict[Where, int]()  # the numbers of the chunk that it is in, and of what stands before it
        self._head = self._codec = 0  # where the type of this chunk begins, and its codec ends

    def whole(self) -> None:
        """The file's rows, and a list of one row group."""
        self._literal(1, b"\x16")
        self._count(_FILE)
        self._literal(2, b"\x19\x1c")
        self._struct(())
        if not self._seen.keys() >= {_SIZE, _ROWS} or not self.chunks:
            raise ValueError("its row group does not tell what it holds")

    def _struct(self, where: Where) -> None:
        field = 0
        while head := self.data[self.at]:
            field += head >> 4
            here, kind = (*where, field), head & 15
            if head < 16 or here in _ELSEWHERE or field > _FEW or len(here) > _DEEPEST or _KINDS.get(here, kind) != kind:
                raise ValueError("its footer is of another order")
            if here == _TYPE:
                self._head = self.at
            if kind <= _FALSE:  # a truth stands in its head
                self._any(1, b"[%s%s]" % (re.escape(bytes([head & ~3 | 1])), re.escape(bytes([head & ~3 | 2]))))
            else:
                self._literal(1)
                self._value(kind, here)
            if here == _CODEC:
                self._codec = self.at
        self._literal(1)

    def _value(self, kind: int, where: Where) -> None:
        if _BYTE < kind <= _I64:
            self._count(where)
        elif kind == _BINARY and where == _PATH:
            size, end = _number(self.data, self.at)
            self._literal(end - self.at + size)
        elif kind == _STRUCT and where == _CHUNKS:
            self._chunk()
        elif kind == _STRUCT and where == _STATISTICS:
            self._ends()
        elif kind == _STRUCT:
            self._struct(where)
        elif kind == _LIST and where in _LISTS:
            self._list(where)
        else:
            raise ValueError(f"its footer is of another order: a value of kind {kind}")

    def _list(self, where: Where) -> None:
        head, end = self.data[self.at], self.at + 1
        size, end = (head >> 4, end) if head < 0xF0 else _number(self.data, end)
        if head & 15 != _LISTS[where] or size > (COLUMNS if where == _CHUNKS else _FEW):
            raise ValueError("its footer is of another order: a list of other values, or of many")
        self._literal(end - self.at)
        for _ in range(size):
            self._value(head & 15, where)

    def _chunk(self) -> None:
        self._seen, before = {}, self._seen
        self._struct(_CHUNKS)
        seen, self._seen = self._seen, before
        told = tuple(where[-1] for where in seen if where in _TOLD)
        if told[:4] != (VALUES, DECODED, STORED, DATA) or not seen.keys() >= {_TYPE, _ENCODINGS, _CODEC}:
            raise ValueError("a chunk of it does not tell what it holds")
        self.chunks.append(Chunk(self.data[self._head : self._codec], told, seen[_TYPE] not in _LENGTHS))

    def _count(self, where: Where) -> None:
        value, end = _number(self.data, self.at)
        self._seen[where] = value >> 1
        if where in (_TYPE, _ENCODINGS, _CODEC):
            self._literal(end - self.at)
        else:
            self._any(end - self.at, b"(%s)" % _NUMBER if where in _TOLD else _NUMBER)

    def _ends(self) -> None:
        end = _flat(self.data, self.at)
        if (length := _LENGTHS.get(self._seen[_TYPE])) is not None:
            self._any(end - self.at, _statistics(length))
        else:
            self.at = end
            self.parts.append([])

    def _literal(self, size: int, expected: bytes | None = None) -> None:
        found = self.data[self.at : self.at + size]
        if len(found) < size or (expected is not None and found != expected):
            raise ValueError("its footer is of another order")
        self._any(size, re.escape(found))

    def _any(self, size: int, pattern: bytes) -> None:
        self.parts[-1].append(pattern)
        self.at += size
