"""How a ledger knows the markers that it has written: by what they hold, so that no step lies between a marker and the knowledge of it.

A marker of a Hadoop job is empty. One of a ledger's holds a line of 40 bytes: whose it is, and in which store its file lies, as hashes.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

from quire.errors import NotFoundError
from quire.storage import Store

SIZE = 40  # bytes
_LINE = re.compile(rb"quire ([0-9a-f]{16}) ([0-9a-f]{16})\n")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def token(dest: str, place: str) -> bytes:
    """The content of a marker by the ledger of `dest`, of a file in the store at `place`."""
    return f"quire {_hash(dest)} {_hash(place)}\n".encode()


def is_own(store: Store, name: str, dest: str = "", places: Iterable[str] | None = None) -> bool:
    """Whether a ledger has written a marker: that of `dest`, if it is given, and of files in one of the `places`, if any are."""
    try:
        line = _LINE.fullmatch(store.get(name))
    except NotFoundError:
        return False  # another call has removed it
    mine = line is not None and (not dest or line[1].decode() == _hash(dest))
    return mine and line is not None and (places is None or line[2].decode() in map(_hash, places))
