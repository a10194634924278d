"""Deletes a file on condition of its version in a store that knows no such condition: a disk, HDFS.

A look and then a deletion would delete whatever has taken the file's name in between. So it is renamed first, to a private name beside it
that nobody else uses; what lies there then cannot be exchanged any more. It is compared, and deleted or given its name back, unless
somebody has put another file there meanwhile: then both stay. Private names are hidden, and no listing takes them for a source. One that
a call has left which died in between gets its name back from the next purge (`left_in`, `give_back`).

A writer that holds the file open the whole time writes into it wherever it lies, and is not seen: for that a purge has its `min_age`.
"""

from __future__ import annotations

import re
import uuid
from typing import Protocol

import xxhash

from quire.errors import StorageError, TransientError
from quire.storage.base import Entry, Store

TRIES = 20  # each is undone by another call that puts the file back
_PRIVATE = re.compile(r"\.quire-purge-([0-9a-f]{16})-[0-9a-f]{32}")


class Directory(Protocol):
    """A directory, by the last parts of names."""

    def version(self, name: str) -> str | None:
        """The version of a file; None: it is not there. For anything else there, a text that is never a file's version."""
        ...

    def take(self, name: str, private: str) -> None:
        """Rename a file in one step, if it is there."""
        ...

    def give(self, private: str, name: str) -> bool:
        """Rename it back in one step, if it is there; False: something else has the name."""
        ...

    def drop(self, private: str) -> None:
        """Delete it, if it is there."""
        ...


def remove_if(place: Directory, name: str, version: str, shown: str) -> bool:
    """Delete a file if it has this version; True: it is not there any more, False: it has another one, and stays.

    `shown`: its URL, for errors.
    """
    for _ in range(TRIES):
        found = place.version(name)
        if found is None:
            return True
        if found != version:
            return False
        private = f".quire-purge-{mark(name)}-{uuid.uuid4().hex}"
        place.take(name, private)
        try:
            found = place.version(private)
            if found == version:
                place.drop(private)
                return True
        except BaseException:
            place.give(private, name)
            raise
        if found is not None:
            if not place.give(private, name):
                raise StorageError(
                    f"{shown} was rewritten twice in the moment in which it was to be deleted: the last one has the name, and the one "
                    f"before lies beside it as {private}. Nothing is deleted: look which of the two you need, and rename or delete it."
                )
            return False
    raise TransientError(f"cannot remove {shown}: other calls of purge_sources have put it back {TRIES} times")


def left_in(store: Store, folder: str) -> dict[str, list[str]]:
    """By what they are marked with, the private names in a directory: of calls under way, and of those that died in between."""
    found = dict[str, list[str]]()
    for item in store.scan(folder):
        if isinstance(item, Entry) and (private := _PRIVATE.fullmatch(item.name.rpartition("/")[2])):
            found.setdefault(private[1], []).append(item.name)
    return found


def is_private(name: str) -> bool:
    """Whether the last part of a name is such a private one."""
    return name.startswith(".quire-purge-") and _PRIVATE.fullmatch(name) is not None


def mark(name: str) -> str:
    """The part of a private name that identifies its owner, made from the last part of a name."""
    return f"{xxhash.xxh3_64_intdigest(name.encode('utf-8', 'surrogateescape')):016x}"
