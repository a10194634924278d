"""A long text that holds rows, in chunks of whole records: no more of it is held than a chunk, or one record that is longer."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator

from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import encodings
from quire.sources.transforms.text.encodings import UTF8, Text

HELD = 32 << 20  # bytes of a text that is parsed as a whole; one that is longer is parsed chunk by chunk
RANGE = 64 << 20  # bytes of the ranges into which a long file is cut, of which each is parsed as a whole
CHUNK = 8 << 20  # bytes of records that are parsed together


def held(pieces: Iterator[bytes], most: int) -> bytes | Iterator[bytes]:
    """All of a content, where it has up to `most` bytes; else its pieces."""
    found, size = list[bytes](), 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if size > most:
            return _resumed(found, pieces)
    return b"".join(found)


def _resumed(found: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    found.reverse()
    while found:
        yield found.pop()
    yield from rest


def chunks(pieces: Iterator[bytes], encoding: str, ended: Callable[[bytes], int], most: int, start: int = 0) -> Iterator[Text]:
    """The text of a file in chunks of some records each, at least one; `mark` of a chunk is the byte of the file with which it begins.

    ended  how many bytes of a text, which begins with a record, are records that end in it
    most   bytes that a record may have: BadContent for a longer one
    start  the byte of the file with which the text begins
    """
    found, encoding, at = _decoded(pieces, encoding, start)
    step = wanted = max(1, min(CHUNK, most))
    waiting, size, line = list[bytes](), 0, 1
    for piece in found:
        for first in range(0, len(piece), step):
            waiting.append(piece[first : first + step])
            size += len(waiting[-1])
            if size < wanted:
                continue
            text = b"".join(waiting)
            end = ended(text)
            if end:
                chunk = Text(text[:end], encoding, at)
                yield chunk
                at, line = chunk.place(end), line + chunk.content.count(b"\n")
            waiting, size = [text[end:]], len(text) - end
            if size > most:
                raise BadContent(
                    f"its record that begins at {f'byte {at:,}' if start else f'line {line:,}'} is longer than max_file_size, {most:,} "
                    f"bytes, or a quoted value of it has no end: break it at its source, or raise max_file_size"
                )
            wanted = max(step, 2 * size)  # so that no byte is looked at more than twice
    yield Text(b"".join(waiting), encoding, at)


def _decoded(pieces: Iterator[bytes], encoding: str, start: int) -> tuple[Iterator[bytes], str, int]:
    """The pieces of a text as UTF-8, without its byte order mark; with its encoding, and the byte of the file behind that mark."""
    beginning = b""
    for piece in pieces:
        beginning += piece
        if len(beginning) >= encodings.MARK:
            break
    encoding, mark = encodings.of(beginning, encoding)
    rest, at = _resumed([beginning[mark:]], pieces), start + mark
    return (rest if encoding == UTF8 else _as_utf8(rest, encoding, at)), encoding, at


def _as_utf8(pieces: Iterator[bytes], encoding: str, at: int) -> Iterator[bytes]:
    decoder, ended = codecs.getincrementaldecoder(encoding)(), False
    while not ended:
        piece = next(pieces, None)
        ended = piece is None
        before = at - len(decoder.getstate()[0])  # the beginning of a character waits for its end
        try:
            yield decoder.decode(piece or b"", final=ended).encode()
        except UnicodeDecodeError as e:
            raise encodings.invalid(encoding, before + e.start) from None
        except UnicodeEncodeError:
            raise encodings.halved(encoding) from None
        at += len(piece or b"")
