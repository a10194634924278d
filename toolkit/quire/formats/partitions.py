"""Directories `name=value`, by the values of a column: how a value is written there, and read back.

As Hive and Spark have it: what has a meaning of its own in a path is escaped as `%XX`, letters of any script stay as they are, and a
missing value is `__HIVE_DEFAULT_PARTITION__`. The convention has no name for empty text: quire puts it into a directory `empty` below the
one of missing values, so that other readers take it for missing, and quire tells both apart.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

NULL = "__HIVE_DEFAULT_PARTITION__"
EMPTY = "empty"
LONGEST = 255  # bytes of a directory's name, on every file system that we know
# Spark's own list, and what some stores drop at the end of a name or take for a hidden one at its beginning.
_SPECIAL = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{}\[\]^<>|]|^[ .]|[ .]$|^_(?=_HIVE_DEFAULT_PARTITION__$)")
_CODED = re.compile(r"%([0-9A-Fa-f]{2})")


def directory(name: str, value: str | None) -> str:
    """The directory of the rows that have a value in a column."""
    if not value:
        return f"{_escaped(name)}={NULL}" + (f"/{EMPTY}" if value == "" else "")
    return f"{_escaped(name)}={_escaped(value)}"


def as_others_see(folder: str) -> str:
    """The directory in which other readers find the rows of one: to them, empty text is a missing value."""
    parts = folder.split("/")
    return "/".join(part for part, above in zip(parts, ["", *parts], strict=False) if part != EMPTY or not above.endswith(f"={NULL}"))


def length(name: str, value: str | None) -> int:
    """Bytes of the name of a value's directory."""
    return len(directory(name, value).partition("/")[0].encode())


def values(path: str) -> dict[str, str | None]:
    """The values in a file's directories: name → value, as text."""
    found: dict[str, str | None] = {}
    parts = path.split("/")[:-1]
    for part, below in zip(parts, [*parts, ""][1:], strict=True):
        name, equals, value = part.partition("=")
        if name and equals:
            found[_plain(name)] = ("" if below == EMPTY else None) if value == NULL else _plain(value)
    return found


def typed(value: str | None, kind: pa.DataType) -> pa.Array:
    """A value as an array of one, of the column's type; ValueError (also Arrow's) where it is not of that type."""
    if value is not None and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return pa.array([int(value) if pa.types.is_integer(kind) else float(value)], kind)  # Spark takes "+5" for 5, and Arrow does not
    return pc.cast(pa.array([value], pa.string()), kind)


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), text)


def _plain(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:  # somebody else's directory, of another encoding
        return _CODED.sub(lambda found: chr(int(found[1], 16)), text)
