"""Archives as many documents: their members come one by one, on their way from a store to a transform.

A zip or tar archive, the latter compressed or not, is known by its content first, and by its name second; where the two disagree, one of
them is damaged, and the file is quarantined. An archive is one split, however long, and its ledger rows speak of its stored bytes: the
byte with a member's number stands for that member (see `engine.kinds.archived`).

A zip archive tells at its end what it holds, so of a long one that directory is held, and its members are read by ranges. A tar archive
is read as it comes. As far as an archive is held, it is checked before a member of it is taken.
"""

from __future__ import annotations

import io
import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any

from quire.formats.parquet import Seekable
from quire.sources import compression, magic
from quire.sources.compression import AUTO, CODECS, FREE, HELD, NONE, PIECE, RATIO, Decoded, codec_of, decode
from quire.sources.members import BLOCK, BrokenArchive, Member, escaped, is_tar, of_tar, refused, structure
from quire.sources.ranges import read
from quire.sources.transforms.content import BadContent
from quire.storage import Content, ReadRequest, Store, Unreadable, Vanished

__all__ = ["Answer", "Archive", "BrokenArchive", "Member", "is_archive", "looks", "uncut", "unpacking"]

_NAMES = {
    "zip": (".zip",),
    "tar": (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst", *(f".tar{ending}" for ending in compression.ENDINGS)),
}
ENDINGS = tuple(ending for endings in _NAMES.values() for ending in endings)
NAMED = "(?i:" + "|".join(map(re.escape, ENDINGS)) + r")\z"  # the same as a pattern
DIRECTORY = 32 << 20  # bytes of a zip archive's directory, which is held
_AHEAD = 1 << 20  # bytes that are read at once of a zip archive that is not held
_STEP = 4 << 10  # stored bytes that a decoder without a limit of its own is given at once
_METHODS = {9: "deflate64", 93: "zstd", 95: "xz", 98: "PPMd", 99: "AES"}
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, OSError, EOFError, ValueError, RuntimeError)
_BOMB = f"more than {RATIO} times its bytes, as a bomb does: nothing of it was taken. Unpack it at its source"


class Archive:
    """An archive, opened: its members can be asked for once.

    kind         zip, tar, or tar.gzip and the like
    size         its stored bytes
    decompress   how members are decoded that are compressed files themselves
    """

    def __init__(self, kind: str, size: int, members: Callable[[], Iterator[Member]], decompress: str, stored: Any = b"") -> None:
        self.kind, self.size, self.members, self.decompress, self._stored = kind, size, members, decompress, stored
        self._spent = 0  # bytes that its members decoded to

    def content(self, member: Member, most: int | None) -> Decoded:
        """The content of a member, decoded if it is a compressed file: as a stream where it is long and need not be held (`most`: None).

        BadContent where it is damaged, or larger than `most` bytes. A stream may raise it at any time.
        """
        if member.why:
            raise BadContent(member.why)
        stored: Any
        if most is None and member.size > HELD:
            if self.kind == "zip":  # it can be read twice, and is whole before any of it is taken
                for _ in member.pieces():
                    pass
            beginning, stored = compression.begun(member.pieces())
        else:
            stored = member.whole(HELD if most is None else most)
            beginning = stored[: magic.BEGINNING]
        codec = codec_of(member.name, beginning, self.decompress)
        if codec is None:
            return Decoded("", stored)
        return compression.bounded(codec, self._counted(compression.quickly(codec, stored)), most)

    def _counted(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """A member's decoded content; BrokenArchive where all of them together have more than an archive may have."""
        for piece in pieces:
            self._spent += len(piece)
            if self._spent > FREE + RATIO * self.size:
                raise BrokenArchive(f"its members decode to {_BOMB}")
            yield piece

    def close(self) -> None:
        """Leave the rest of it unread."""
        _close(self._stored)


Answer = compression.Answer | Archive


def uncut(*, archives: bool) -> tuple[str, ...]:
    """The ends of names of files that are one split, however long."""
    return ENDINGS if archives else ()


def looks(beginning: bytes) -> bool:
    """Whether a file that begins like this is an archive, or may be a compressed one."""
    return magic.kind(beginning) in ("zip", "tar", *CODECS) or is_tar(beginning)


def is_archive(store: Store, asked: ReadRequest) -> bool:
    """Whether a file, of which a part is asked for, is an archive; Vanished and Unreadable where it cannot be read."""
    beginning = read(store, asked._replace(start=0, length=min(asked.size, compression.STORED)))
    kind = magic.kind(beginning)
    return kind == "zip" or is_tar(_peeked(kind, beginning)[0] if kind in CODECS else beginning)


def members(kind: str, content: Any) -> Iterator[Member]:
    """The members of an archive, or of the beginning of a tar archive, which is held, or a file that can be sought in."""
    held = isinstance(content, bytes)
    if kind == "tar":
        yield from of_tar(iter((content if held else content.read(_AHEAD),)))
        return
    yield from _of_zip(_opened(_Guarded(content) if held else content))


def unpacking(store: Store, mode: str, most: int | None = None, *, archives: bool) -> Any:
    """A store whose answers for whole files are decoded, as `compression.decoding` does; with `archives` those for archives are such."""
    return _Unpacking(store, mode, most) if archives else compression.decoding(store, mode, most)


class _Unpacking:
    def __init__(self, store: Store, mode: str, most: int | None) -> None:
        self.store, self.mode = store, mode
        self.decoding = compression.Decoding(store, mode, most)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Answer]]:
        """See `Store.read_many`."""
        with closing(self.store.read_many(requests)) as answers:  # type: ignore[type-var]  # a store's answers are a generator
            for request, content in answers:
                part = request.length != request.size or not request.size
                yield request, content if part or isinstance(content, Vanished | Unreadable) else self._answer(request, content)

    def _answer(self, request: ReadRequest, content: Content) -> Answer:
        stored: Any = content
        try:
            beginning, stored = compression.begun(content, BLOCK)  # type: ignore[arg-type]  # it is there
            kind = magic.kind(beginning)
            codec, decoded = kind if kind in CODECS else "", beginning
            if codec:
                decoded, stored = _peeked(codec, stored)
            tar = is_tar(decoded) or (not any(decoded) and len(decoded) == BLOCK and _named(request.name) == "tar")
            found = "zip" if kind == "zip" else "tar" if tar else ""
            said = "" if self.mode == compression.CONTENT else _named(request.name)
            if said and said != found:
                holds = f"{kind}, which holds no tar archive" if codec else kind or "no archive"
                raise BrokenArchive(f"its name says {said}, and its content is {found or holds}. Rename it, or look who wrote it")
            if not found:
                return self.decoding.answer(request.name, stored) if self.mode != NONE else stored
            codec_of(request.name, beginning, compression.CONTENT if self.mode == compression.CONTENT else AUTO)
            return self._zip(request, stored) if found == "zip" else self._tar(request, codec, stored)
        except (Vanished, Unreadable, BadContent) as e:
            _close(stored)
            return e

    def _zip(self, request: ReadRequest, stored: Any) -> Archive:
        _close(stored)
        file = _Guarded(stored) if isinstance(stored, bytes) else _Ranges(self.store, request)
        archive = _opened(file)
        if sum(info.file_size for info in archive.infolist()) > FREE + RATIO * request.size:
            raise BrokenArchive(f"its zip unpacks to {_BOMB}")
        return Archive("zip", request.size, partial(_of_zip, archive), self.mode)

    def _tar(self, request: ReadRequest, codec: str, stored: Any) -> Archive:
        pieces = structure(decode(codec, stored) if codec else iter((stored,)) if isinstance(stored, bytes) else stored)
        held, size = list[bytes](), 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size > HELD:
                break
        else:  # it is here, so that it is known to be whole before a member of it is taken
            content = b"".join(held)
            for _ in of_tar(iter((content,))):
                pass
            held, pieces = [content], iter(())
        name = f"tar.{codec}" if codec else "tar"
        return Archive(name, request.size, lambda: of_tar(chain(held, pieces)), self.mode, stored)


def _close(stored: Any) -> None:
    if not isinstance(stored, bytes):
        stored.close()  # a stream is a generator


def _named(name: str) -> str:
    """The kind of archive that a file's name says."""
    return next((kind for kind, endings in _NAMES.items() if name.lower().endswith(endings)), "")


def _peeked(codec: str, stored: Any) -> tuple[bytes, Any]:
    """The first bytes of what a content decodes to, and the content, as it is stored, from its beginning on."""
    seen = list[bytes]()

    def pieces() -> Iterator[bytes]:
        for piece in (stored,) if isinstance(stored, bytes) else stored:
            seen.append(piece)
            yield piece

    found = b""
    try:
        for piece in decode(codec, pieces()):
            found += piece
            if len(found) >= BLOCK:
                break
    except BadContent:  # whoever takes it says so
        pass
    return found[:BLOCK], stored if isinstance(stored, bytes) else compression.Resumed(seen, stored)


# ----------------------------------------------------------------------------------------------------------------------------- zip
class _Guarded(io.BytesIO):
    """A zip archive that is held; as `_Ranges`, it gives no directory that is too long."""

    def read(self, n: int | None = -1) -> bytes:
        return super().read(_few(n))


class _Ranges(Seekable):
    """A zip archive in a store, on condition of its version; some of it is read ahead."""

    def __init__(self, store: Store, asked: ReadRequest) -> None:
        self.store, self.asked, self.size = store, asked, asked.size
        self._held = 0, b""

    def seek(self, offset: int, whence: int = 0) -> int:
        if super().seek(offset, whence) < 0:
            raise ValueError("a place before its beginning")
        return self.at

    def read(self, n: int = -1) -> bytes:
        n = _few(n)
        n = max(0, self.size - self.at if n < 0 else min(n, self.size - self.at))
        start, data = self._held
        if not start <= self.at <= self.at + n <= start + len(data):
            length = min(max(n, _AHEAD), self.size - self.at)
            start, data = self._held = self.at, read(self.store, self.asked._replace(start=self.at, length=length))
        found = data[self.at - start : self.at - start + n]
        self.at += len(found)
        return found


def _opened(file: Any) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(file)
    except _DAMAGED as e:
        raise BrokenArchive(f"its zip is damaged or cut off: {str(e) or type(e).__name__}") from None


def _few(n: int | None) -> int:
    if n is not None and n > DIRECTORY:
        raise BrokenArchive(f"its zip has a directory of {n:,} bytes, and {DIRECTORY >> 20} MiB are held. Pack it as several archives")
    return -1 if n is None else n


def _of_zip(archive: zipfile.ZipFile) -> Iterator[Member]:
    number = 0
    for info in archive.infolist():
        name, mode = _name(info), info.external_attr >> 16 if info.create_system == 3 else 0
        if (info.is_dir() or stat.S_ISDIR(mode)) and not info.file_size:
            continue
        yield Member(number, escaped(name), info.file_size, _why(info, name, mode), partial(_content, archive, info))
        number += 1


def _name(info: zipfile.ZipInfo) -> str:
    """The name that its writer has meant: many write UTF-8 and do not say so."""
    if info.flag_bits & 0x800:
        return info.orig_filename
    try:
        return info.orig_filename.encode("cp437").decode()
    except UnicodeError:
        return info.orig_filename


def _why(info: zipfile.ZipInfo, name: str, mode: int) -> str:
    """Why a member is quarantined."""
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        return f"it is {'a symbolic link' if stat.S_ISLNK(mode) else 'a device or a pipe'}, and no file"
    if why := refused(name.removesuffix("/")):
        return why
    if info.flag_bits & 1 or info.compress_type == 99:
        return "it is encrypted. Unpack it with its password, and gather what comes out"
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        method = _METHODS.get(info.compress_type, str(info.compress_type))
        return f"it is compressed by the method {method}, which is not read. Pack it with deflate"
    return ""


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[bytes]:
    step, size = PIECE if info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) else _STEP, 0
    try:
        with archive.open(info) as file:
            while piece := file.read(step):
                size += len(piece)
                yield piece
    except MemoryError:
        if info.compress_type != zipfile.ZIP_LZMA:  # of which a few bytes may ask for any amount
            raise
        raise BadContent("its zip asks for more memory than there is to decode it. Pack it with deflate") from None
    except _DAMAGED as e:
        raise BadContent(f"it is damaged in its zip: {str(e) or type(e).__name__}") from None
    if size != info.file_size:
        raise BadContent(f"it is damaged in its zip: {size:,} bytes of {info.file_size:,}")
