"""How a split is called where an empty file marks it as processed: `%2Fdata%2Fin%2Fa.txt@0@1048576`.

The path below the store's root, every byte of its UTF-8 escaped as `%2F` but for letters, digits, `.`, `_` and `-`, then the split's first
byte and its length. `@` stands in no escaped path, so each name means one split, and each split has one name. In an escaped path of more
than 200 characters every 200 make a directory in the one before, and all but the first of these begin with `+`: no name is ever longer
than 241 bytes, though most file systems stop at 255.

In Java, `getSplitIdentifier` of a `FileSplit` is

    String path = URLEncoder.encode(split.getPath().toUri().getPath(), "UTF-8").replace("+", "%20").replace("*", "%2A");
    path.replaceAll("(.{200})(?=.)", "$1/+") + "@" + split.getStart() + "@" + split.getLength()
"""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

STEP = 200  # characters of an escaped path in one name
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_ESCAPES = [chr(b) if b in _KEPT else f"%{b:02X}" for b in range(256)]
_IDENTIFIER = re.compile(r"([^@]+)@(0|[1-9][0-9]{0,17})@(0|[1-9][0-9]{0,17})")


def identifier(path: str, start: int, length: int) -> str:
    """The marker's name, with slashes where it is cut, of a split of the file at `path` (from `/` on)."""
    escaped = "".join(map(_ESCAPES.__getitem__, path.encode()))
    return f"{'/+'.join(escaped[i : i + STEP] for i in range(0, len(escaped), STEP))}@{start}@{length}"


def parsed(name: str) -> tuple[str, int, int]:
    """The split that a marker's name means: path, first byte, length; ValueError with the reason for any other name."""
    first, *more = name.split("/")
    if any(part[:1] != "+" for part in more):
        raise ValueError("it lies in a directory that no identifier makes")
    match = _IDENTIFIER.fullmatch("".join((first, *(part[1:] for part in more))))
    if match is None:
        raise ValueError("it does not end with @, the first byte, @ and the length")
    try:
        path = unquote_to_bytes(match[1]).decode()
    except UnicodeDecodeError as e:
        raise ValueError("its path is not UTF-8") from e
    start, length = int(match[2]), int(match[3])
    if not path.startswith("/") or identifier(path, start, length) != name:
        raise ValueError("its path is not escaped as in %2Fdata%2Fin%2Fa.txt@0@1048576")
    return path, start, length


_ARTICLES = re.compile(r"(.+)_(0|[1-9][0-9]{0,17})_(0|[1-9][0-9]{0,17})", re.DOTALL)


def articles(name: str) -> tuple[str, int, int]:
    """The split that the article's `path_offset_length` means: `data/in/a.txt_0_1048576`, or `%2Fdata%2Fin%2Fa.txt_0_1048576`.

    A path that begins with `%2F` is taken for an escaped one.
    """
    match = _ARTICLES.fullmatch(name)
    if match is None:
        raise ValueError("it does not end with _, the first byte, _ and the length")
    path = match[1]
    if path.startswith("%2F"):
        try:
            path = unquote_to_bytes(path).decode()
        except UnicodeDecodeError as e:
            raise ValueError("its path is not UTF-8") from e
    return f"/{path.lstrip('/')}", int(match[2]), int(match[3])


# How a marker's name is read, by the words that a call may say.
PARSERS: dict[str, Callable[[str], tuple[str, int, int]]] = {"path@offset@length": parsed, "path_offset_length": articles}


def place_of(key: str) -> tuple[str, str]:
    """A key of the ledger → where its store is ("file://", "s3://bucket"), and the path there."""
    scheme, _, rest = key.partition("://")
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}", f"/{path}"


def key_of(place: str, path: str) -> str:
    """The reverse."""
    return place + path
