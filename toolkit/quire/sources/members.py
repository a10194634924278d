"""The members of archives: what they are called, which of them are documents, and how a tar archive is read as it comes.

Nothing is ever written under a member's name: it only tells, in the ledger, which document of an archive a row stands for. Sources:
APPNOTE.TXT (zip), POSIX pax and the GNU tar manual; of the headers Python's `tarfile` and `zipfile` know all there is to know.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from quire.sources.compression import PIECE, Source
from quire.sources.transforms.content import BadContent

BLOCK = tarfile.BLOCKSIZE
NAME = 4_096  # bytes of a name, as file systems allow
_EXTENSION = 1 << 20  # bytes of a header that says more of the next member
_ENDED = bytes(BLOCK)
_UNSAFE = re.compile("[\x00-\x1f\x7f%!\ud800-\udfff]")
_SPARSE = "a sparse file, of which the holes are not stored. Unpack it, and gather what comes out"
_LINKS = {tarfile.LNKTYPE: "a hard link", tarfile.SYMTYPE: "a symbolic link"}
_DEVICES = {tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a pipe"}
_FILES = (*tarfile.REGULAR_TYPES, tarfile.GNUTYPE_SPARSE)
_SKIPPED = (tarfile.DIRTYPE, b"D", b"V")  # directories, what GNU tar says of their names, and the label of a volume


class BrokenArchive(BadContent):
    """The archive itself cannot be read to its end: all of it is quarantined, and no single member."""


@dataclass(slots=True)
class Member:
    """One document of an archive, or what stands where one should be.

    number   its place among them, from 0 on: directories are none
    name     as the ledger has it (see `escaped`)
    size     bytes, as the archive says
    why      the reason for which it is quarantined; "": it is a document
    """

    number: int
    name: str
    size: int
    why: str
    pieces: Callable[[], Iterator[bytes]]  # its content, once; raises BadContent

    def whole(self, most: int) -> bytes:
        """All of it; BadContent where it is more than `most` bytes, or damaged."""
        if self.size > most:
            raise BadContent(f"larger than max_file_size: {self.size:,} bytes, allowed are {most:,}")
        return b"".join(self.pieces())


def escaped(name: str) -> str:
    """A member's name as part of an identifier `path!member`: `!` as `%21`, `%` as `%25`, and likewise all that cannot be shown.

    Parts that say nothing (`./a`, `a//b`) go, and those that lead out of a directory are escaped, too: a name never means a place.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    found = "/".join("%2E%2E" if part == ".." else _UNSAFE.sub(_as_bytes, part) for part in parts)
    return ("%2F" if name.startswith("/") else "") + found if len(found) <= NAME else f"{found[:NAME]}…"


def identified(path: str, member: str | None) -> str:
    """The name of a document: `path!member`, or the path of a file that is not in an archive."""
    return f"{path}!{member}" if member else path


def _as_bytes(match: re.Match[str]) -> str:
    code = ord(match[0])
    data = bytes([code & 0xFF]) if 0xDC80 <= code <= 0xDCFF else match[0].encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in data)


def refused(name: str) -> str:
    """Why a member of this name is quarantined; "" where the name is harmless."""
    parts = re.split(r"[/\\]", name)
    if ".." in parts:
        return "its name leads out of the archive, with '..'. Pack it again under a name below the archive's top"
    if not parts[0] or re.match(r"[A-Za-z]:", name):
        return "its name is absolute, or empty. Pack it again under a name below the archive's top"
    if "\0" in name or len(name) > NAME:
        return f"its name has a null, or more than {NAME:,} characters. Pack it again under another one"
    return ""


def is_tar(beginning: bytes) -> bool:
    """Whether a file begins as a tar archive does; one that is older than POSIX has nothing but the sum of its first header."""
    block = beginning[:BLOCK]
    if len(block) < BLOCK or not block[0]:
        return False
    if block.startswith(b"ustar", 257):
        return True
    said = block[148:156].strip(b" \0")
    return said.isdigit() and not said.strip(b"01234567") and int(said, 8) == sum(block) - sum(block[148:156]) + 8 * 32


def of_tar(pieces: Iterator[bytes]) -> Iterator[Member]:
    """The members of a tar archive, one after the other: what of one is not read when the next one is asked for is passed over.

    BrokenArchive where it is damaged, or ends without the block of zeros which says that it is whole.
    """
    source, ended, number = Source(pieces), False, 0
    extended, everywhere = dict[str, str](), dict[str, str]()
    while block := _block(source):
        if block == _ENDED:
            ended = True
            continue
        ended, at = False, source.at - BLOCK
        try:
            info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError as e:
            raise BrokenArchive(f"its tar is damaged at byte {at:,}: {e}") from None
        if info.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE):
            said = _records(_extension(source, info.size))
            (everywhere if info.type == tarfile.XGLTYPE else extended).update(said)
            continue
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
            text = _extension(source, info.size).partition(b"\0")[0].decode("utf-8", "surrogateescape")
            extended |= {"path": text} if info.type == tarfile.GNUTYPE_LONGNAME else {}
            continue
        told, extended = {**everywhere, **extended}, {}
        sparse = info.type == tarfile.GNUTYPE_SPARSE or any(key.startswith("GNU.sparse.") for key in told)
        more = block[482] if info.type == tarfile.GNUTYPE_SPARSE else 0
        while more:
            more = (_block(source) or _cut_off(source))[504]
        name, size = told.get("path", info.name), _size(told.get("size"), info.size, at)
        left = [size if info.type in _FILES or info.type not in tarfile.SUPPORTED_TYPES else 0]
        end = -(-left[0] // BLOCK) * BLOCK - left[0]
        if info.type not in _SKIPPED and not (name.endswith("/") and not size):
            why = _LINKS.get(info.type) or _DEVICES.get(info.type) or ("" if info.type in _FILES else f"of the type {info.type!r}")
            why = f"it is {why}, and no file" if why else refused(name) or (f"it is {_SPARSE}" if sparse else "")
            yield Member(number, escaped(name), left[0], why, partial(_content, source, left))
            number += 1
        for _ in _content(source, left):
            pass
        left[0] = end
        for _ in _content(source, left):
            pass
    if not ended:
        _cut_off(source)


def structure(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The bytes of an archive: damage to them is damage to all of it."""
    try:
        yield from pieces
    except BadContent as e:
        raise BrokenArchive(e.reason) from e


def _block(source: Source) -> bytes:
    try:
        return source.exactly(BLOCK)
    except EOFError:
        return _cut_off(source)


def _cut_off(source: Source) -> bytes:
    raise BrokenArchive(f"its tar is cut off at byte {source.at:,}, before the block that ends it")


def _content(source: Source, left: list[int]) -> Iterator[bytes]:
    while left[0]:
        piece = source.read(min(left[0], PIECE)) or _cut_off(source)
        left[0] -= len(piece)
        yield piece


def _extension(source: Source, size: int) -> bytes:
    if not 0 <= size <= _EXTENSION:
        raise BrokenArchive(f"its tar has a header of {size:,} bytes at byte {source.at:,}, and {_EXTENSION:,} are taken")
    found = b"".join(_content(source, [-(-size // BLOCK) * BLOCK]))
    return found[:size]


def _records(data: bytes) -> dict[str, str]:
    """The records of a pax header, `<length> <key>=<value>` and a newline each."""
    found, at = dict[str, str](), 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + 20)
        digits = data[at : max(space, at)]
        end = at + (int(digits) if digits.isdigit() else 0)
        if end <= space + 1 or end > len(data):
            raise BrokenArchive("its tar is damaged: a pax header that cannot be read")
        key, _, value = data[space + 1 : end - 1].partition(b"=")
        found[key.decode("utf-8", "replace")] = value.decode("utf-8", "surrogateescape")
        at = end
    return found


def _size(said: str | None, usual: int, at: int) -> int:
    size = usual if said is None else int(said) if said.isascii() and said.isdigit() and len(said) < 20 else -1
    if size < 0:
        raise BrokenArchive(f"its tar is damaged at byte {at:,}: a member's size that is none")
    return size
