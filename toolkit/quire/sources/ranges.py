"""Lines of a part of a file: a line belongs to the range in which it begins, as in Hadoop.

Whoever reads a range looks one byte back, where a newline says that a line begins with the range, and reads on to the end of its last
line. So ranges that touch hold each line once, however a file was cut.
"""

from __future__ import annotations

from collections.abc import Iterator

from quire.sources.content import BadContent
from quire.storage import Content, Gone, Request, Store, Unreadable

__all__ = ["lines_in", "lines_of", "read", "request"]

AHEAD = 64 << 10  # bytes behind a range that are read with it, since its last line ends there


# ------------------------------------------------------------------------------------------------------------------ held whole
def request(name: str, version: str, size: int, start: int, length: int) -> Request:
    """What to read for the lines that begin in a range: from one byte before it to a little behind it."""
    begin = max(start - 1, 0)
    return Request(name, version, size, begin, min(size, start + length + AHEAD) - begin)


def lines_in(store: Store, asked: Request, content: Content, start: int, length: int, most: int) -> tuple[int, bytes]:
    """Where in the file the first line begins that begins in [start, start + length), and these lines; `content` is what was `asked`.

    Raises BadContent for lines of more than `most` bytes, Gone and Unreadable.
    """
    data, end = _bytes(content), start + length
    first = start
    if asked.start < start:
        newline = data.find(b"\n", 0, end - 1 - asked.start)
        if newline < 0:
            return end, b""
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
            raise BadContent(f"a line that begins before byte {end:,} is longer than max_file_size: {most:,} bytes")
        if newline >= 0 or at >= asked.size:
            break
        step = min(2 * step, most, asked.size - at)
        pieces.append(read(store, Request(asked.name, asked.version, asked.size, at, step)))
    return first, b"".join(pieces)[first - asked.start :]


def read(store: Store, asked: Request) -> bytes:
    """The bytes of one request; raises Gone and Unreadable."""
    if not asked.length:
        return b""
    for _, content in store.read_many([asked]):
        return _bytes(content)
    raise Gone("not read")


def _bytes(content: Content) -> bytes:
    if isinstance(content, bytes):
        return content
    if isinstance(content, Gone | Unreadable):
        raise content
    return b"".join(content)


# -------------------------------------------------------------------------------------------------------------------- streamed
def lines_of(content: Iterator[bytes], at: int, start: int, end: int, size: int) -> Iterator[bytes]:
    """The lines that begin in [start, end) of a stream that begins at `at`, the last one ended by a newline."""
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
                yield part[: newline + 1]
                return
        if part:
            at += len(part)
            yield part if at < size or part.endswith(b"\n") else part + b"\n"
