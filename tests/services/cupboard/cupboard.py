"""A store that somebody else could have written: objects in one SQLite file, at `cupboard:///data/my.cupboard/path/in/it`.

It imports nothing of quire but the interface. `cupboard-1.0.dist-info`, which an installer would write, makes its scheme known.
"""

from __future__ import annotations

import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing

from quire.errors import NotFoundError, StorageError, TransientError, UsageError
from quire.storage import Content, Entry, Folder, ReadRequest, Sink, Trouble, Vanished
from quire.storage.base import WithoutUploads, fits, safe

SUFFIX = ".cupboard"
TABLE = "CREATE TABLE IF NOT EXISTS objects (name TEXT PRIMARY KEY, content BLOB, version TEXT, modified INTEGER) WITHOUT ROWID"


def normalise(scheme: str, rest: str) -> str:
    """One URL for one place: quire calls it with what the user wrote, and with what it has given itself."""
    parts = [part for part in rest.split("/") if part]
    if not rest.startswith("///") or ".." in parts or not any(part.endswith(SUFFIX) for part in parts):
        raise UsageError(f"{scheme}:{rest} names no cupboard. Write cupboard:///data/my{SUFFIX}/path.")
    return "cupboard:///" + "/".join(parts)


def opened(url: str, options: Mapping[str, object] | None) -> Cupboard:
    """The store at a normalised URL. The one option is `durable`: whether what was written outlives a power cut."""
    return Cupboard(url, durable=bool((options or {}).get("durable", True)))


class Piled:
    """An object that is held until it is closed."""

    def __init__(self, store: Cupboard, name: str) -> None:
        self.store, self.name, self.pieces = store, name, list[bytes]()

    def write(self, data: bytes | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        self.store.put(self.name, b"".join(self.pieces))

    def discard(self) -> None:
        self.pieces.clear()


class Cupboard(WithoutUploads):
    """Objects whose names begin alike in one table. A transaction shows all of a write or nothing, so it can rename."""

    can_rename = True
    shared = True

    def __init__(self, url: str, *, durable: bool) -> None:
        self.url, self.durable = url, durable
        file, _, path = url.removeprefix("cupboard://").partition(SUFFIX)
        self.file, self.root = file + SUFFIX, path.strip("/") + "/" if path.strip("/") else ""

    def _sql(self, text: str, *values: object) -> list[tuple[bytes, ...]]:
        """One transaction, in a connection of its own: a store is used from many threads, and in forks."""
        os.makedirs(os.path.dirname(self.file), exist_ok=True)
        try:
            with closing(sqlite3.connect(self.file, timeout=60, isolation_level=None)) as base:
                base.execute(f"PRAGMA synchronous = {'FULL' if self.durable else 'OFF'}")
                base.execute(TABLE)
                return base.execute(text, values).fetchall()
        except sqlite3.OperationalError as e:
            kind = TransientError if "locked" in str(e) or "busy" in str(e) else StorageError
            raise kind(f"cannot use {self.url}: {e}. Look at the file and its disk.") from e

    def _name(self, name: str) -> str:
        return self.root + safe(name)

    def _below(self, folder: str) -> Iterator[Entry]:
        start = f"{self._name(folder)}/" if folder else self.root
        after, cut = start, len(self.root)
        while True:
            # A page at a time, so that a listing of millions is no list of millions.
            page = self._sql(
                "SELECT name, length(content), version, modified FROM objects "
                "WHERE name > ? AND substr(name, 1, ?) = ? ORDER BY name LIMIT 1000",
                after, len(start), start,
            )  # fmt: skip
            for name, size, version, modified in page:
                yield Entry(str(name)[cut:], size, version, modified)  # type: ignore[arg-type]
            if not page:
                return
            after = str(page[-1][0])

    # reading
    def stat(self, name: str) -> Entry | None:
        for size, version, modified in self._sql("SELECT length(content), version, modified FROM objects WHERE name = ?", self._name(name)):
            return Entry(name, size, version, modified)  # type: ignore[arg-type]
        return None

    def is_folder(self, name: str = "") -> bool:
        return next(self._below(name), None) is not None

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        start, last = len(folder) + 1 if folder else 0, ""
        for entry in self._below(folder):
            head, slash, _ = entry.name[start:].partition("/")
            if slash and head != last:
                last = head
                yield Folder(entry.name[:start] + head)
            elif not slash and head >= after and (not until or head < until):
                yield entry

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        for item in self.scan(folder):
            yield item.name.rsplit("/", 1)[-1], isinstance(item, Folder)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        yield from self._below(folder)

    def get(self, name: str) -> bytes:
        for (content,) in self._sql("SELECT content FROM objects WHERE name = ?", self._name(name)):
            return content
        raise NotFoundError(f"cannot read {self.url}/{name}: it is not there")

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.get(name)[start : start + length]

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        for request in requests:
            found = self.stat(request.name)
            if found is None:
                yield request, Vanished("vanished")
                continue
            wanted = "SELECT coalesce(substr(content, ?, ?), zeroblob(0)) FROM objects WHERE name = ? AND version = ?"
            rows = self._sql(wanted, request.start + 1, request.length, self._name(request.name), request.version)
            yield request, rows[0][0] if rows else Vanished("changed")

    # writing
    def _put(self, how: str, name: str, data: bytes) -> bool:
        fits(f"{self.url}/{name}", data)
        values = self._name(name), data, uuid.uuid4().hex, time.time_ns()
        return bool(self._sql(f"INSERT OR {how} INTO objects VALUES (?, ?, ?, ?) RETURNING 1", *values))  # two fixed words

    def put(self, name: str, data: bytes) -> None:
        self._put("REPLACE", name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._put("IGNORE", name, data)

    def create(self, name: str) -> Sink:
        safe(name)
        return Piled(self, name)

    def rename(self, old: str, new: str) -> None:
        if not self._sql("UPDATE OR REPLACE objects SET name = ? WHERE name = ? RETURNING 1", self._name(new), self._name(old)):
            raise NotFoundError(f"cannot publish {self.url}/{new}: {old} is not there")

    def check_writable(self) -> None:
        self._sql("BEGIN IMMEDIATE")

    def remove(self, name: str) -> None:
        self._sql("DELETE FROM objects WHERE name = ?", self._name(name))

    def remove_tree(self, folder: str) -> None:
        start = self._name(folder) + "/"
        self._sql("DELETE FROM objects WHERE substr(name, 1, ?) = ?", len(start), start)

    def sweep(self, folder: str) -> None:
        """Nothing to do: an object appears whole or not at all."""
