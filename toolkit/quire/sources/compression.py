"""Compressed files, which are decoded on their way from a store to a transform.

A codec is known by a file's content first, and by its name second: where the two disagree, one of them is damaged, and the file is
quarantined. The ledger speaks of the stored bytes alone, so a compressed file is one split, and never grows by a tail.

Members and frames that follow one another are one content, as for every tool. Sources: RFC 1952 (gzip), RFC 8878 (zstd), and the
specifications of bzip2, xz, the lz4 frame and the snappy framing format.
"""

from __future__ import annotations

import io
import lzma
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from typing import Any, NamedTuple, cast

import pyarrow as pa

from quire.coverage.finished import DECODED
from quire.errors import UsageError, about, choose
from quire.formats.damage import ARROW
from quire.sources import magic
from quire.sources.transforms.columnar import NAMES as COLUMNAR
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import NAMES as TEXT
from quire.storage import Content, ReadRequest, Store, Unreadable, Vanished

AUTO, NONE = "auto", "none"
CONTENT = "content"  # as AUTO, whatever names say
_NAMES = {
    "gzip": (".gz", ".gzip"), "bzip2": (".bz2", ".bz"), "xz": (".xz",), "zstd": (".zst", ".zstd"), "lz4": (".lz4",),
    "snappy": (".snappy", ".sz"),
}  # fmt: skip
CODECS = tuple(_NAMES)
MODES = (AUTO, NONE, *CODECS)
ENDINGS = tuple(ending for endings in _NAMES.values() for ending in endings)  # of the names of compressed files

HELD = 4 << 20  # decoded bytes that are held; what is longer comes as a stream, where it may
PIECE, STORED = 1 << 20, 64 << 10  # decoded and stored bytes at once
MEMORY = 256 << 20  # bytes that a decoder may take
RATIO, FREE = 500, 64 << 20  # a file may decode to so many times its bytes, and to so many bytes in any case
_DAMAGED = (OSError, EOFError, ValueError, lzma.LZMAError, *ARROW)


class Decoded(NamedTuple):
    """The content of a compressed file, or (without a codec) of a member of an archive.

    As a stream it may raise BadContent at any time, beside what a store's may raise.
    """

    codec: str
    content: bytes | Iterator[bytes]

    @property
    def said(self) -> str | None:
        """How the ledger tells that a record holds what a file decodes to, and not its bytes; None: it holds these."""
        return DECODED + self.codec if self.codec else None

    @property
    def whole(self) -> bytes:
        """All of it; raises BadContent, Vanished and Unreadable."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)


Answer = Content | Decoded | BadContent


def mode(asked: str | None, transform: str, split: str = "") -> str:
    """How a call takes compressed files; UsageError for anything else. `asked`: None is what fits the transform."""
    if asked is None:
        return AUTO if _is_text(transform, split) else NONE
    choose(asked, MODES, "decompress")
    if (split == "row_groups" or transform in COLUMNAR) and asked != NONE:
        with about("decompress"):
            raise UsageError("files that hold row groups have their columns compressed one by one. Leave decompress out.")
    return asked


def by_spec(mode: str, transform: str, split: str = "") -> str:
    """The words of a destination about it: none where its files hold the same in any case, or what is usual."""
    return "" if mode == NONE or (_is_text(transform, split) and not split) or (split == "lines" and mode == AUTO) else mode


def of_spec(said: str, transform: str, split: str = "") -> str:
    """How the files of a destination are read again."""
    return said or (AUTO if _is_text(transform, split) else NONE)


def _is_text(transform: str, split: str) -> bool:
    return transform in ("lines", "xml", "json", *TEXT) or split == "lines"


def uncut(mode: str) -> tuple[str, ...]:
    """The ends of names of files that are one split, however long."""
    return () if mode == NONE else ENDINGS if mode == AUTO else ("",)


def named(mode: str) -> str:
    """The same as a pattern."""
    return "(?:" + "|".join(map(re.escape, uncut(mode))) + r")\z"


def looks(beginning: bytes, mode: str) -> bool:
    """Whether a file that begins like this is decoded."""
    return mode != NONE and magic.kind(beginning) in CODECS


def decoding(store: Store, mode: str, most: int | None = None) -> Store:
    """A store whose answers for whole files are decoded; all others are as they are.

    most    decoded bytes of a file that has to be held as a whole: BadContent above it. None: it may come as a stream
    """
    return store if mode == NONE else cast("Store", Decoding(store, mode, most))


class Decoding:
    """See `decoding`."""

    def __init__(self, store: Store, mode: str, most: int | None) -> None:
        self.store, self.mode, self.most = store, mode, most

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Answer]]:
        """See `Store.read_many`."""
        first, decoded, by_content = magic.FIRST, self.answer, self.mode in (AUTO, CONTENT)
        with closing(self.store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
            for request, content in answers:
                plain = by_content and content.__class__ is bytes and (not content or content[0] not in first)
                if (plain and not request.name.endswith(ENDINGS)) or request.length != request.size or not request.size:
                    yield request, content  # nearly always
                else:
                    yield request, decoded(request.name, content)

    def answer(self, name: str, content: Content) -> Answer:
        """The answer for a whole file of this name and content."""
        if isinstance(content, Vanished | Unreadable):
            return content
        try:
            beginning, stored = begun(content)
            codec = codec_of(name, beginning, self.mode)
            if codec is None:
                return cast("Answer", stored)
            return bounded(codec, quickly(codec, stored), self.most)
        except (Vanished, Unreadable, BadContent) as e:
            return e


def bounded(codec: str, pieces: Iterator[bytes], most: int | None) -> Decoded:
    """A decoded content: held where it is short, and where it has to be. `most`: see `decoding`."""
    found, size = list[bytes](), 0
    for piece in pieces:
        found.append(piece)
        size += len(piece)
        if most is None and size > HELD:
            return Decoded(codec, Resumed(found, pieces))
        if most is not None and size > most:
            raise BadContent(f"larger than max_file_size: its {codec} decodes to more than {most:,} bytes, which are allowed")
    return Decoded(codec, b"".join(found))


def quickly(codec: str, content: bytes | Iterator[bytes]) -> Iterator[bytes]:
    """The same as `decode`, of which a short gzip file comes at once."""
    quick = _one_member(content) if codec == "gzip" and isinstance(content, bytes) else None
    return decode(codec, content) if quick is None else iter((quick,))


def begun(content: bytes | Iterator[bytes], n: int = magic.BEGINNING) -> tuple[bytes, Any]:
    """The first `n` bytes of a content, and all of it."""
    if isinstance(content, bytes):
        return content[:n], content
    found = list[bytes]()
    for piece in content:
        found.append(piece)
        if sum(map(len, found)) >= n:
            break
    return b"".join(found)[:n], Resumed(found, content)


class Resumed:
    """A stream of which the first pieces were looked at."""

    def __init__(self, held: list[bytes], rest: Any) -> None:
        self._pieces: Iterator[bytes] = chain(held, rest)
        self._rest = rest

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        self._rest.close()


def by_name(name: str) -> str | None:
    """The codec that a file's name says."""
    return next((each for each, endings in _NAMES.items() if name.endswith(endings)), None)


def codec_of(name: str, beginning: bytes, mode: str) -> str | None:
    """The codec of a file; None: it is not compressed, or not decoded. BadContent where what is expected is not there."""
    kind = magic.kind(beginning)
    codec = kind if kind in CODECS else None
    if mode == NONE:
        return None
    if mode == AUTO:
        named = by_name(name)
        if named in (None, codec):
            return codec
        says, way = f"its name says {named}", "Rename it, or say decompress='none' or the codec"
    else:
        if mode in (codec, CONTENT):
            return codec
        says, way = f"decompress={mode!r} says {mode}", "Say decompress='auto', or leave such files out"
    raise BadContent(f"{says}, and its content {f'is {kind}' if kind else 'is not compressed'}. {way}")


# ------------------------------------------------------------------------------------------------------------------------ decoding
def decode(codec: str, content: bytes | Iterator[bytes]) -> Iterator[bytes]:
    """Decode a compressed content, in pieces of at most 1 MiB; BadContent where it is damaged, cut off or a bomb.

    Memory stays flat: no more is decoded than is asked for.
    """
    source = Source(iter((content,)) if isinstance(content, bytes) else content)
    size = 0
    try:
        for piece in _PIECES.get(codec, _by_arrow)(codec, source):
            size += len(piece)
            if size > FREE + RATIO * source.at:
                raise BadContent(
                    f"its {codec} decodes to more than {RATIO} times its bytes, as a bomb does (at byte {source.at:,}): nothing of it was "
                    f"taken. Decode it at its source, or keep its bytes with transform='raw'"
                )
            yield piece
    except _DAMAGED as e:
        large, cut = "emory" in str(e), isinstance(e, EOFError) or "runcated" in str(e)
        how = f"takes more than {MEMORY >> 20} MiB of memory to decode," if large else "is cut off" if cut else "is damaged"
        raise BadContent(f"its {codec} {how} at or before byte {source.at:,}") from e


class Source(io.RawIOBase):
    """Pieces as a file; `at` is how many bytes were taken."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest, self.at = pieces, memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def read(self, n: int = -1) -> bytes:
        """Up to `n` bytes."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._rest = memoryview(piece)
        n = len(self._rest) if n is None or n < 0 else n
        found, self._rest = bytes(self._rest[:n]), self._rest[n:]
        self.at += len(found)
        return found

    def exactly(self, n: int) -> bytes:
        """`n` bytes; EOFError where there are fewer, and some."""
        found = b""
        while len(found) < n and (piece := self.read(n - len(found))):
            found += piece
        if found and len(found) < n:
            raise EOFError
        return found


def _by_arrow(codec: str, source: Source) -> Iterator[bytes]:
    file = pa.CompressedInputStream(pa.PythonFile(source, "r"), {"bzip2": "bz2"}.get(codec, codec))
    size = 16 << 10  # so that a beginning which is cut off gives something
    while (piece := file.read_buffer(size)).size:  # what `read` gets ready stays for ever where it then raises (pyarrow 26)
        yield piece.to_pybytes()
        size = min(2 * size, PIECE)


def _xz(_: str, source: Source) -> Iterator[bytes]:
    """Stream by stream: `lzma.LZMAFile` would pass over whatever follows the last one."""
    data = source.read(STORED)
    while data:
        decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, MEMORY)
        while not decoder.eof:
            if piece := decoder.decompress(data, PIECE):
                yield piece
            data = b""
            if decoder.needs_input and not decoder.eof and not (data := source.read(STORED)):
                raise EOFError
        data = decoder.unused_data or source.read(STORED)
        while data and not (data := data.lstrip(b"\0")):  # which may stand between streams
            data = source.read(STORED)


_BEGIN = b"\xff\x06\x00\x00sNaPpY"  # of a snappy stream, whose other chunks have 64 KiB of content at most


def _snappy(_: str, source: Source) -> Iterator[bytes]:
    """Chunk by chunk, each with its checksum."""
    import cramjam  # where it is needed: every task would start later

    while head := source.exactly(4):
        chunk = head + source.exactly(int.from_bytes(head[1:], "little"))
        if len(chunk) < 4 + int.from_bytes(head[1:], "little"):
            raise EOFError
        if head[0] in (0x00, 0x01):
            try:
                piece = bytes(cramjam.snappy.decompress(_BEGIN + chunk))
            except cramjam.DecompressionError as e:
                raise ValueError(str(e)) from e
            yield piece
        elif head[0] < 0x80 or (head[0] == 0xFF and chunk != _BEGIN):
            raise ValueError("a chunk that no reader may pass over")


_PIECES: dict[str, Callable[[str, Source], Iterator[bytes]]] = {"xz": _xz, "snappy": _snappy}


def _one_member(content: bytes) -> bytes | None:
    """Decode a short gzip file; None where it is not one whole member, or long. Millions of files are such."""
    decoder = zlib.decompressobj(31)
    try:
        found: bytes = decoder.decompress(content, HELD)
    except zlib.error:
        return None  # the other way says where
    return found if decoder.eof and not decoder.unused_data else None
