r"""Java's properties as text: `hoodie.properties` and a partition's `.hoodie_partition_metadata`.

Source: the documentation of java.util.Properties, `load(InputStream)` and `store(OutputStream)`: ISO 8859-1, everything else as `\uXXXX`
of UTF-16; a backslash at the end of a line continues it; `#` and `!` begin a comment; `=`, `:` or a blank ends a key.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from quire.errors import FormatError

LARGEST = 16 << 20  # bytes: a schema of some ten thousand columns
_LINE = re.compile(r"\r\n|\r|\n")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_HEX = re.compile(r"u[0-9A-Fa-f]{4}")
_WORDS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ODD = re.compile(r"[^\x20-\x7e]|[\\=:#!]")
_ESCAPED = {"\t": r"\t", "\n": r"\n", "\r": r"\r", "\f": r"\f"} | {c: "\\" + c for c in "\\=:#!"}


def parse(data: bytes, where: str) -> dict[str, str]:
    """Names → values, as Java loads them: of a name that is there twice, the last. FormatError for an escape that is not one."""
    if len(data) > LARGEST:
        raise FormatError(f"{where} has {len(data):,} bytes, and properties have {LARGEST:,} at most: look who wrote it")
    found = {}
    for line in _logical(data.decode("latin-1")):
        key = _KEY.match(line)
        assert key is not None
        found[_plain(key[1], where)] = _plain(line[key.end() :], where)
    return found


def render(values: Mapping[str, str], comments: Iterable[str] = ()) -> bytes:
    """The same as bytes, by name, so that equal values are equal bytes; each comment must be one line."""
    lines = [f"#{_escaped(comment, comment=True)}" for comment in comments]
    lines += [f"{_key(name)}={_value(value)}" for name, value in sorted(values.items())]
    return "".join(f"{line}\n" for line in lines).encode("latin-1")


def _logical(text: str) -> Iterator[str]:
    """Lines without comments, with their continuations."""
    parts: list[str] = []
    for raw in _LINE.split(text):
        line = raw.lstrip(" \t\f")
        if not parts and (not line or line[0] in "#!"):
            continue
        if _CONTINUED.search(line):
            parts.append(line[:-1])
            continue
        yield "".join((*parts, line))
        parts = []
    if parts:
        yield "".join(parts)


def _plain(text: str, where: str) -> str:
    if "\\" not in text:
        return text

    def one(found: re.Match[str]) -> str:
        word = found[1]
        if word[0] != "u":
            return _WORDS.get(word, word)
        if not _HEX.fullmatch(word):
            raise FormatError(f"{where} is damaged: \\{word!r} is not an escape of four hexadecimal digits. Put back a good copy.")
        return chr(int(word[1:], 16))

    text = _ESCAPE.sub(one, text)
    # A character beyond the first 65,536 is two escapes; half of one is nothing that can be written again.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "\ufffd" in whole and "\ufffd" not in text:
        raise FormatError(f"{where} is damaged: it holds half of a character. Put back a good copy.")
    return whole


def _key(name: str) -> str:
    return _escaped(name).replace(" ", "\\ ")


def _value(value: str) -> str:
    text = _escaped(value)
    return "\\" + text if text.startswith(" ") else text  # Java escapes the first blank, and drops those that are not


def _escaped(text: str, *, comment: bool = False) -> str:
    def one(found: re.Match[str]) -> str:
        c = found[0]
        if c in _ESCAPED:
            return c if comment and c in "\\=:#!" else _ESCAPED[c]
        units = c.encode("utf-16-be")
        return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))

    return _ODD.sub(one, text)
