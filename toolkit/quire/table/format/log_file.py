"""Log files of merge-on-read tables: blocks of rows, deletes and commands, one after another.

Source: Hudi's storage format, `HoodieLogFormat` and `HoodieLogFileReader`. Numbers are big-endian:

    #HUDI#  int64: bytes that follow  int32: 1  int32: kind  words  int64: bytes of content  content  words  int64: bytes before it
    words: int32: how many, and of each  int32: key  int32: bytes  UTF-8

A writer that died leaves a part of a block. Readers look for the next `#HUDI#` then, and go on there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from quire.errors import FormatError

MAGIC, VERSION = b"#HUDI#", 1
COMMAND, DELETES, CORRUPT, AVRO, HFILE, PARQUET, CDC = range(7)  # kinds of blocks
INSTANT, TARGET, SCHEMA, COMMAND_TYPE, COMPACTED = range(5)  # keys of the words; Hudi has more
PARTIAL = 7
ROLLBACK = "0"  # the only command
_HEAD, _LENGTH, _INT, _TWO = struct.Struct(">qii"), struct.Struct(">q"), struct.Struct(">i"), struct.Struct(">ii")
_LEAST = 8 + 4 + 8 + 4 + 8  # bytes behind the first length


@dataclass(frozen=True)
class Block:
    """A block: its kind, its words in their order, and its content as it is stored."""

    kind: int
    words: dict[int, str]
    content: bytes | memoryview = field(default=b"", repr=False)
    foot: dict[int, str] = field(default_factory=dict)

    @property
    def instant(self) -> str:
        """The instant of the commit that wrote it, of a rollback its own."""
        return self.words.get(INSTANT, "")


def rollback(instant: str, target: str) -> Block:
    """The command at `instant` that takes back all blocks of the instant `target` before it."""
    return Block(COMMAND, {INSTANT: instant, TARGET: target, COMMAND_TYPE: ROLLBACK})


def encode(block: Block) -> bytes:
    """A block as it stands in a file; one behind another is a log file."""
    content = bytes(block.content)
    inner = _words(block.words) + _LENGTH.pack(len(content)) + content + _words(block.foot)
    size = 8 + len(inner) + 8
    return MAGIC + _HEAD.pack(size, VERSION, block.kind) + inner + _LENGTH.pack(len(MAGIC) + size)


def decode(data: bytes, where: str) -> Iterator[Block]:
    """The blocks of a log file, in their order; one that is not whole is a block of the kind CORRUPT.

    Contents are views of `data`. FormatError for a file that does not begin with a block, and for a whole block that makes no sense.
    """
    view, at = memoryview(data), 0
    if len(data) >= len(MAGIC) and not data.startswith(MAGIC):
        raise FormatError(f"{where} is not a log file: it does not begin with {MAGIC.decode()}. Look who wrote it.")
    while at >= 0 and len(data) - at >= len(MAGIC):  # less is a word that was cut
        end = _end(data, at)
        if end is None:
            yield Block(CORRUPT, {})
            at = data.find(MAGIC, at + 1)
        else:
            try:
                yield _block(view[at + len(MAGIC) + 8 : end - 8])
            except (struct.error, ValueError) as e:
                raise FormatError(f"{where} has a damaged block at byte {at:,}: {str(e)[:200]}. Restore it from a copy.") from e
            at = end


def _end(data: bytes, at: int) -> int | None:
    """Where the block ends that begins there; None: it was cut."""
    start = at + len(MAGIC) + 8
    if not data.startswith(MAGIC, at) or len(data) < start + _LEAST:
        return None
    size: int = _LENGTH.unpack_from(data, at + len(MAGIC))[0]
    end = start + size
    if not _LEAST <= size <= len(data) - start or _LENGTH.unpack_from(data, end - 8)[0] != size + len(MAGIC):
        return None
    return end


def _block(inner: memoryview) -> Block:
    version, kind = _TWO.unpack_from(inner)
    if version != VERSION:
        raise ValueError(f"it is of version {version}, and not {VERSION}")
    words, at = _read_words(inner, 8)
    (length,) = _LENGTH.unpack_from(inner, at)
    at += 8
    if not 0 <= length <= len(inner) - at:
        raise ValueError(f"it says that its content has {length:,} bytes")
    content = inner[at : at + length]
    foot, end = _read_words(inner, at + length)
    if end != len(inner):
        raise ValueError(f"it has {len(inner) - end:,} bytes too many")
    return Block(kind, words, content, foot)


def _words(words: dict[int, str]) -> bytes:
    texts = {key: text.encode() for key, text in words.items()}
    return _INT.pack(len(texts)) + b"".join(_TWO.pack(key, len(text)) + text for key, text in texts.items())


def _read_words(data: memoryview, at: int) -> tuple[dict[int, str], int]:
    (count,) = _INT.unpack_from(data, at)
    at += 4
    if not 0 <= count <= (len(data) - at) // 8:
        raise ValueError(f"it says that it has {count:,} words")
    found = dict[int, str]()
    for _ in range(count):
        key, length = _TWO.unpack_from(data, at)
        at += 8
        if not 0 <= length <= len(data) - at or key in found:
            raise ValueError(f"its word {key} has {length:,} bytes, or stands there twice")
        found[key] = str(data[at : at + length], "utf-8")
        at += length
    return found, at
