"""The shapes of footers: of Parquet files that one writer has written, numbers and statistics alone differ from file to file.

A footer that was looked at closely, token by token, is a pattern by which those of other files are read in a few calls. Source: Thrift's
compact protocol, and the structs of `parquet.thrift`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from quire.formats import footer

WIDTH = 6  # bytes of a number at most: as many bits as any offset needs
VALUES, DECODED, STORED, DATA, DICTIONARY = 5, 6, 7, 9, 11  # what a column's chunk tells: values, bytes, and where its pages begin

_NUMBER = rb"[\x80-\xff]{0,%d}[\x00-\x7f]" % (WIDTH - 1)
_FALSE, _BYTE, _I64, _BINARY, _LIST, _STRUCT = 2, 3, 6, 8, 9, 12
# Where something stands in a row group: the field in it, the field in that one, and so on; the rows of the file stand before it.
_FILE, _CHUNKS, _SIZE, _ROWS, _META = (0,), (1,), (2,), (3,), (1, 3)
_TYPE, _ENCODINGS, _PATH, _CODEC, _STATISTICS = ((*_META, field) for field in (1, 2, 3, 4, 12))
_TOLD = {_FILE, _SIZE, _ROWS, *((*_META, field) for field in (VALUES, DECODED, STORED, DATA, DICTIONARY))}
_ELSEWHERE = {(1, 1), (1, 8), (1, 9)}  # a chunk in another file, or encrypted
_BYTE_ARRAY, _FIXED = 6, 7
_LENGTHS = {0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8}  # bytes of the values of other types
_ONE_BY_ONE = {0, 3, 4}  # encodings by which the bytes of values follow one another: PLAIN, RLE, BIT_PACKED
_COLUMNS = 200  # with more it takes a tenth of a second to make a pattern

Where = tuple[int, ...]


class Chunk(NamedTuple):
    """A column of a shape.

    head     the bytes of its type, encodings, path and codec
    told     the fields whose numbers it tells, in their order
    repeats  whether a value of any length may stand there once for many rows
    """

    head: bytes
    told: tuple[int, ...]
    repeats: bool


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
                if (match := part.match(said, _past(said, at) if n else at)) is None:
                    return None
                found += match.groups()
                at = match.end()
        except (IndexError, ValueError):
            return None
        return Told(self, found, len(said)) if at == end else None


def _past(said: bytes, at: int) -> int:
    """Where statistics end, whose values may have any length; IndexError or ValueError for what is none."""
    while head := said[at]:
        at, kind = at + 1, head & 15
        if head < 16:
            raise ValueError("its footer is of another order")
        if kind == _BINARY:
            size, at = said[at], at + 1
            if size > 127:
                size, at = size & 127 | said[at] << 7, at + 1
                if size >> 14:
                    raise ValueError("a value of it is long")
            at += size
        elif kind == _I64:
            while said[at] > 127:
                at += 1
            at += 1
        elif kind > _FALSE or not kind:
            raise ValueError(f"its footer is of another order: a value of kind {kind}")
    return at + 1


def _statistics(length: int) -> bytes:
    """The pattern of statistics whose values have this length: any of them may be there, for example none where all is null."""
    heads = (b"".join(re.escape(bytes([delta << 4 | kind])) for delta in range(1, 16)) for kind in (1, 2, _I64, _BINARY))
    true, false, number, value = heads
    return rb"(?:[%s%s]|[%s]%s|[%s]%s.{%d})*\x00" % (true, false, number, _NUMBER, value, re.escape(bytes([length])), length)


class _Walk:
    """Goes through a footer, and writes the parts of its pattern: between any two of them stand statistics with values of any length."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at, self.parts, self.chunks = data, at, [list[bytes]()], list[Chunk]()
        self._seen = dict[Where, list[int]]()  # the numbers of the chunk that it is in, and of what stands before it
        self._head = self._codec = 0  # where the type of this chunk begins, and its codec ends

    def whole(self) -> None:
        """The file's rows, and a list of one row group."""
        self._literal(1, b"\x16")
        self._number(_FILE)
        self._literal(2, b"\x19\x1c")
        self._struct(())
        if not self._seen.keys() >= {_SIZE, _ROWS} or not 0 < len(self.chunks) <= _COLUMNS:
            raise ValueError("its row group does not tell what it holds")

    def _struct(self, where: Where) -> None:
        field = 0
        while head := self.data[self.at]:
            field += head >> 4
            here, kind = (*where, field), head & 15
            if not head >> 4 or here in _ELSEWHERE:
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
            self._number(where)
        elif kind == _BINARY:
            self._bytes(where)
        elif kind == _STRUCT and where == _CHUNKS:
            self._chunk()
        elif kind == _STRUCT and where == _STATISTICS:
            self._ends()
        elif kind == _STRUCT:
            self._struct(where)
        elif kind == _LIST:
            self._list(where)
        else:
            raise ValueError(f"its footer is of another order: a value of kind {kind}")

    def _list(self, where: Where) -> None:
        head = self.data[self.at]
        self._literal(1)
        size = head >> 4
        if size == 15:
            begin = self.at
            size = self._varint()
            self.at, end = begin, self.at
            self._literal(end - begin)
        for _ in range(size):
            self._value(head & 15, where)

    def _chunk(self) -> None:
        self._seen, before = {}, self._seen
        self._struct(_CHUNKS)
        seen, self._seen = self._seen, before
        told = tuple(where[-1] for where in seen if where in _TOLD)
        if told[:4] != (VALUES, DECODED, STORED, DATA) or not seen.keys() >= {_TYPE, _ENCODINGS, _CODEC}:
            raise ValueError("a chunk of it does not tell what it holds")
        repeats = seen[_TYPE][0] in (_BYTE_ARRAY, _FIXED) and not set(seen[_ENCODINGS]) <= _ONE_BY_ONE
        self.chunks.append(Chunk(self.data[self._head : self._codec], told, repeats))

    def _number(self, where: Where) -> None:
        begin = self.at
        value = self._varint()
        self._seen.setdefault(where, []).append(value >> 1)
        if where in (_TYPE, _ENCODINGS, _CODEC):
            self.at, end = begin, self.at
            self._literal(end - begin)
        else:
            self.parts[-1].append(b"(%s)" % _NUMBER if where in _TOLD else _NUMBER)

    def _bytes(self, where: Where) -> None:
        if where != _PATH:
            raise ValueError("its footer is of another order: a text of it is not a name")
        begin = self.at
        size = self._varint()
        self.at, end = begin, self.at
        self._literal(end - begin + size)

    def _ends(self) -> None:
        end, (kind,) = _past(self.data, self.at), self._seen[_TYPE]
        if kind in _LENGTHS:
            self._any(end - self.at, _statistics(_LENGTHS[kind]))
        else:
            self.at = end
            self.parts.append([])

    def _varint(self) -> int:
        found = 0
        for shift in range(0, 7 * WIDTH, 7):
            byte = self.data[self.at]
            self.at += 1
            found |= (byte & 127) << shift
            if byte < 128:
                return found
        raise ValueError("a number of it is long")

    def _literal(self, size: int, expected: bytes | None = None) -> None:
        found = self.data[self.at : self.at + size]
        if len(found) < size or (expected is not None and found != expected):
            raise ValueError("its footer is of another order")
        self._any(size, re.escape(found))

    def _any(self, size: int, pattern: bytes) -> None:
        self.parts[-1].append(pattern)
        self.at += size
