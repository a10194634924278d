"""Text in any encoding as UTF-8, and where each byte of that lies in the file."""

from __future__ import annotations

import codecs
from collections.abc import Iterable
from dataclasses import dataclass

from quire.errors import UsageError, about, quoted
from quire.sources.transforms.content import BadContent

AUTO, UTF8 = "auto", "utf-8"
# UTF-32 first: its mark begins as that of UTF-16 does.
_MARKS = (
    (codecs.BOM_UTF8, UTF8), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)  # fmt: skip
# What a name may mean: the mark says which, and without one it is the first.
_FAMILY = {"utf-16": ("utf-16-le", "utf-16-be"), "utf-32": ("utf-32-le", "utf-32-be"), "utf-8-sig": (UTF8,)}
_ASCII = bytes(range(128))
MARK = 4  # bytes of the longest mark


@dataclass(frozen=True)
class Text:
    """The content of a file, or a part of it, as UTF-8 without a byte order mark."""

    content: bytes
    encoding: str  # of the file
    mark: int  # the byte of the file with which the content begins: behind the mark of a whole file

    def places(self, offsets: Iterable[int]) -> dict[int, int]:
        """Where each of some bytes of `content`, that begin characters, lies in the file."""
        if self.encoding == UTF8:
            return {at: at + self.mark for at in offsets}
        found, before, place = dict[int, int](), 0, self.mark
        for at in sorted(offsets):
            place += len(self.content[before:at].decode().encode(self.encoding))
            found[at], before = place, at
        return found

    def place(self, offset: int) -> int:
        """The same of one byte."""
        return self.places([offset])[offset]

    @property
    def end(self) -> int:
        """The byte of the file behind it."""
        return self.place(len(self.content))

    def stored(self, first: int, end: int) -> bytes:
        """Some bytes of `content`, whole characters, as they stand in the file."""
        part = self.content[first:end]
        return part if self.encoding == UTF8 else part.decode().encode(self.encoding)


def text(content: bytes, encoding: str, *, cut: bool = False) -> Text:
    """A file's content, or (`cut`) its beginning; BadContent where it is not what its encoding allows.

    Whether UTF-8 is valid is seen where it is parsed.
    """
    encoding, mark = of(content, encoding)
    content = content[mark:] if mark else content
    if encoding == UTF8:
        return Text(content, UTF8, mark)
    try:
        decoded = codecs.getincrementaldecoder(encoding)().decode(content, final=not cut)
        return Text(decoded.encode(), encoding, mark)
    except UnicodeDecodeError as e:
        raise invalid(encoding, mark + e.start) from None
    except UnicodeEncodeError:
        raise halved(encoding) from None


def invalid(encoding: str, at: int) -> BadContent:
    """Why a file is not read that is not valid at a byte of it."""
    return BadContent(f"not valid {encoding} at byte {at:,}: say its encoding=")


def halved(encoding: str) -> BadContent:
    """The same of one that is not valid Unicode."""
    return BadContent(f"it holds half of a surrogate pair, which is not valid {encoding}")


def of(beginning: bytes, encoding: str) -> tuple[str, int]:
    """The encoding of a file that begins like this, and the length of its byte order mark; `encoding`: what the call says."""
    family = _FAMILY.get(encoding, (encoding,))
    for mark, marked in _MARKS:
        if beginning.startswith(mark) and (encoding == AUTO or marked in family):
            return marked, len(mark)
    return UTF8 if encoding == AUTO else family[0], 0


def is_wide(beginning: bytes, encoding: str = AUTO) -> bool:
    """Whether the bytes of a newline may be within a character: so no line can be found from the middle of the file."""
    return not _of_ascii(of(beginning, encoding)[0])


def checked(encoding: object) -> str:
    """The name of an encoding, as Python spells it; UsageError for another one, or one that no byte can be found in again."""
    if encoding == AUTO:
        return AUTO
    try:
        name = codecs.lookup(encoding).name if isinstance(encoding, str) else ""
        if name in _FAMILY or (name and "a\n".encode(name) * 2 == "a\na\n".encode(name)):  # each character's bytes are the same anywhere
            return name
    except (LookupError, ValueError, UnicodeError, AttributeError, TypeError):
        pass
    with about("encoding"):
        raise UsageError(
            f"encoding is 'auto' (by a file's byte order mark, else UTF-8), or the name of one that Python knows, such as 'latin-1', "
            f"'cp1252' or 'utf-16', not {quoted(encoding)}."
        )


def _of_ascii(encoding: str) -> bool:
    try:
        return _ASCII.decode(encoding).encode() == _ASCII
    except UnicodeError:
        return False
