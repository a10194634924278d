"""Lines of a part of a file: a line belongs to the range in which it begins, as in Hadoop.

Whoever reads a range looks one byte back, where a newline says that a line begins with the range, and reads on to the end of its last
line. So ranges that touch hold each line once, however a file was cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quire.formats import lines
from quire.storage import Content, ReadRequest, Store, Unreadable, Vanished

AHEAD = 64 << 10  # bytes behind a range that are read with it, since its last line ends there
STEP = 4 << 20  # bytes in which the end of a line is looked for that is not held


class Long(NamedTuple):
    """A line that is too long to be held: where it begins in the file, and how long it is, in bytes."""

    start: int
    length: int

    def __str__(self) -> str:
        return f"a line of {self.length:,} bytes, which begins at byte {self.start:,},"


class TooLongError(Exception):
    """A stream has lines of more bytes than one value may have: `lines`, all of them."""

    def __init__(self, lines: Sequence[Long]) -> None:
        super().__init__(lines)
        self.lines = lines


# ------------------------------------------------------------------------------------------------------------------ held whole
def request(name: str, version: str, size: int, start: int, length: int) -> ReadRequest:
    """The bytes to read for the lines that begin in a range: from one byte before it to a little behind it."""
    begin = max(start - 1, 0)
    return ReadRequest(name, version, size, begin, min(size, start + length + AHEAD) - begin)


def lines_in(store: Store, asked: ReadRequest, content: Content, start: int, length: int, most: int) -> tuple[int, bytes, Long | None]:
    """Where in the file the first line begins that begins in [start, start + length), and these lines; `content` is what was `asked`.

    The last of them is left out, and told, where it ends more than `most` bytes behind the range. Raises Vanished and Unreadable.
    """
    data, end = _bytes(content), start + length
    first = start
    if asked.start < start:
        newline = data.find(b"\n", 0, end - 1 - asked.start)
        if newline < 0:
            return end, b"", None
        first = asked.start + newline + 1
    pieces, at, search = [data], asked.start, max(end - 1, first)
    step = AHEAD
    while True:
        # The last line begins before `end`: it ends with the first newline at or after end - 1.
        newline = pieces[-1].find(b"\n", max(search - at, 0))
        at += len(pieces[-1])
        if newline >= 0:
            at += newline + 1 - len(pieces[-1])
            pieces[-1] = pieces[-1][: newline + 1]
        if at - end > most:
            newline_before = data.rfind(b"\n", first - asked.start, end - 1 - asked.start)
            last = first if newline_before < 0 else asked.start + newline_before + 1
            pieces.clear()
            ended = at if newline >= 0 else _end(store, asked, at)
            return first, data[first - asked.start : last - asked.start], Long(last, ended - last)
        if newline >= 0 or at >= asked.size:
            break
        step = min(2 * step, most, asked.size - at)
        pieces.append(read(store, ReadRequest(asked.name, asked.version, asked.size, at, step)))
    return first, b"".join(pieces)[first - asked.start :], None


def _end(store: Store, asked: ReadRequest, at: int) -> int:
    """Where the line ends that goes on at byte `at`; nothing of it is held."""
    while at < asked.size:
        piece = read(store, ReadRequest(asked.name, asked.version, asked.size, at, min(STEP, asked.size - at)))
        newline = piece.find(b"\n") + 1
        at += newline or len(piece)
        if newline:
            break
    return at


def read(store: Store, asked: ReadRequest) -> bytes:
    """The bytes of one request; raises Vanished and Unreadable."""
    if not asked.length:
        return b""
    for _, content in store.read_many([asked]):
        return _bytes(content)
    raise Vanished("not read")


def _bytes(content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, Vanished | Unreadable):
        raise content
    return b"".join(content)


# -------------------------------------------------------------------------------------------------------------------- streamed
def lines_of(content: Iterator[bytes], at: int, start: int, end: int, size: int, without: Sequence[Long] = ()) -> Iterator[bytes]:
    """The lines that begin in [start, end) of a stream that begins at `at`, the last one ended by a newline; but for those of `without`.

    Raises TooLongError at the end, where another line has more bytes than one value may have: of it nothing is held.
    """
    found = begun(content, at, start, end, size)
    return _short(found, size, without) if size - start > lines.LONGEST else (piece for _, piece in found)


def up_to(content: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes of a stream."""
    for piece in content:
        if size < len(piece):
            if size:
                yield piece[:size]
            return
        size -= len(piece)
        yield piece


def _short(found: Iterator[tuple[int, bytes]], size: int, without: Sequence[Long]) -> Iterator[bytes]:
    known, too_long, begin, over = {line.start for line in without}, [*without], -1, False
    for at, piece in _parts(found):
        begin = at if begin < 0 else begin  # of the line that goes on
        first, last = piece.find(b"\n") + 1, piece.rfind(b"\n") + 1
        skip = (first or len(piece)) if begin in known else 0
        end = at + (first or len(piece))
        if not skip and end - begin > lines.LONGEST:
            over = True
            too_long += [Long(begin, min(end, size) - begin)] if first else []
        begin = at + last if last else begin
        part = piece[skip : last if last and begin in known else None]
        if part and not over:
            yield part
    if over:
        raise TooLongError(sorted(too_long))


def _parts(found: Iterator[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Pieces in which no line that is too long has both its ends."""
    for at, piece in found:
        for i in range(0, len(piece), lines.LONGEST):
            yield at + i, piece[i : i + lines.LONGEST]


def begun(content: Iterator[bytes], at: int, start: int, end: int, size: int) -> Iterator[tuple[int, bytes]]:
    """The lines that begin in a range, in pieces, and where in the file each piece begins."""
    begun = at == start  # else the line that begins before the range is another's
    for piece in content:
        part = piece
        if not begun:
            newline = piece.find(b"\n")
            if newline < 0:
                at += len(piece)
                if at >= end:
                    return
                continue
            begun, at, part = True, at + newline + 1, piece[newline + 1 :]
            if at >= end:
                return
        if at + len(part) >= end and end < size:
            # The last line begins before `end`: it ends with the first newline at or after end - 1.
            newline = part.find(b"\n", max(end - 1 - at, 0))
            if newline >= 0:
                yield at, part[: newline + 1]
                return
        if part:
            yield at, part if at + len(part) < size or part.endswith(b"\n") else part + b"\n"
            at += len(part)
