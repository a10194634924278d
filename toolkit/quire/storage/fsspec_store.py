"""Any file system that fsspec knows, as a source: read, and never written.

No read here is on condition of a version: a file is looked up before and after it is read, and what it says then of its size, time of
change and checksums must be what was listed. An archive's own file is looked at, too, so that its directory and its bytes are of
one content. Where a file system says nothing that tells one content from another, the version is empty, and its files are known by their
content alone.

Nothing is written: fsspec promises of no file system that of many writers of one name one wins and that readers never see a part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from functools import partial
from itertools import groupby
from typing import Any, NoReturn
from urllib.parse import urlsplit

from quire.errors import NotFoundError, RefusedError, StorageError, TransientError, encodable, printable
from quire.storage import window
from quire.storage.base import (
    LARGEST,
    Content,
    Entry,
    Folder,
    ReadRequest,
    Sink,
    Trouble,
    Unreadable,
    Vanished,
    WithoutUploads,
    is_safe,
    safe,
    too_long,
    walked,
)
from quire.storage.fsspec_access import Changed, FileSystems, Unusable, as_url, by_url, entry, looked_up, normalise, parts, real
from quire.storage.retry import again
from quire.storage.threads import Pool, Threads

__all__ = ["FsspecStore", "named", "normalise", "opened"]

FLIGHT = 4  # files at once: many servers of SFTP and FTP take few connections of one client
LOOKING = 16  # files that are looked up at once where the file system is asynchronous
_IN_PARTS = ("sftp", "ssh")  # whose files are read by short parts, each of which takes a round trip unless all are asked for at once


def opened(url: str, options: Mapping[str, object] | None) -> FsspecStore:
    """The store at a normalised URL."""
    return FsspecStore(url, options)


def named(url: str, _: Mapping[str, object] | None) -> str:
    """The host or archive of a URL."""
    scheme, at = parts(url)[:2]
    return at.partition("://")[2].removeprefix("::").rpartition("@")[2].strip("/") or scheme


def _sayable(name: str) -> bool:
    """Whether a name can be stored, and stays below its root."""
    return is_safe(name) and encodable(name)


def _spelled(name: str) -> str:
    """Such a name as it may be told, with the slash at its end that it has in reports."""
    text = printable(name.encode(errors="backslashreplace").decode())
    return f"{text if len(text) < 300 else text[:299] + '…'}/"


class _Denied(StorageError):
    """A directory that may not be listed."""


class SourceAlone(WithoutUploads):
    """The base of a store that is read and never written."""

    can_rename = False
    shared = True

    def check_writable(self) -> None:
        self._refuse()

    def _refuse(self, *_: object) -> NoReturn:
        scheme = self.url.partition(":")[0]
        raise RefusedError(
            f"{self.url} can be a source alone: {scheme}:// promises neither that one of two writers of a name wins, nor that readers "
            f"never see a part of a file. Choose a destination on a disk, HDFS, S3, Azure or Google Cloud Storage."
        )

    def put(self, name: str, data: bytes) -> None:
        self._refuse()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._refuse()

    def create(self, name: str) -> Sink:
        self._refuse()

    def rename(self, old: str, new: str) -> None:
        self._refuse()

    def remove(self, name: str) -> None:
        self._refuse()

    def remove_tree(self, folder: str) -> None:
        self._refuse()

    def sweep(self, folder: str) -> None:
        self._refuse()


class Listed(SourceAlone):
    """Files below one directory of a file system of fsspec, as they are listed and looked up."""

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.url = url
        self.flight = window.flight(options, FLIGHT)
        self.systems = FileSystems(url, options or {})
        self._scheme, _, self._root = parts(url)
        self._by_url = by_url(self._scheme)
        self._listed_as_looked: bool | None = None  # whether a listing says of a file what a look at it says

    def _path(self, base: str, name: str) -> str:
        below = "/".join(part for part in (self._root, safe(name) if name else "") if part)
        return base + below

    def _look(self, name: str, doing: str = "look up") -> Mapping[str, Any] | None:
        try:
            with self.systems.one(f"cannot {doing} {self.shown(name)}") as (fs, base):
                return looked_up(self._scheme, fs, self._path(base, name))
        except NotFoundError:
            return None

    def stat(self, name: str) -> Entry | None:
        found = self._look(name)
        if found is None or found.get("type") not in ("file", "link"):
            return None
        known = entry(name, found)
        if known is None:
            raise StorageError(f"cannot look up {self.shown(name)}: the server does not tell how long it is. Copy it to another place.")
        return known

    def is_folder(self, name: str = "") -> bool:
        if self._by_url:  # a page that names files is a directory
            return next(iter(self._items(name)), None) is not None
        found = self._look(name)
        return found is not None and found.get("type") == "directory"

    def _items(self, folder: str) -> list[tuple[str, Mapping[str, Any]]]:
        """The items of a directory: the last parts of names, and what the listing says of them; none where it does not exist."""
        try:
            with self.systems.one(f"cannot list {self.shown(folder)}") as (fs, base):
                path = self._path(base, folder)
                path = f"{path.rstrip('/')}/" if self._by_url else path
                found = fs.ls(path, detail=True)
                # Members of an archive that no listing of it shows, as `/a` or `a//b`; one stands for all of them.
                members = getattr(fs, "dir_cache", None) or {} if self.systems.chained and not path else {}
                astray = next(((name, members[name]) for name in members if "//" in f"/{name}" and len(name) > 1), None)
        except NotFoundError:
            # Some servers say so of a directory that may not be listed.
            if not self._by_url and folder and (there := self._look(folder)) is not None and there.get("type") == "directory":
                raise _Denied(f"cannot list {self.shown(folder)}: it is there, and the server does not list it") from None
            return []
        items = [*self._below(path, found), *([astray] if astray else [])]
        if folder and [last for last, _ in items] == [folder.rpartition("/")[2]] and self.stat(folder) is not None:
            return []  # a file in the directory's place, which the listing shows below itself
        return items

    def _below(self, path: str, found: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The items that a listing of `path` shows below it: not itself, a file in its place, or a link to somewhere else."""
        here, seen = self._parts(path), set[str]()
        for info in found:
            whole = str(info["name"])
            parts = self._parts(whole)
            last = parts[len(here)] if len(parts) > len(here) and parts[: len(here)] == here else ""
            if not last or last in seen or (self._by_url and ("?" in whole or "#" in whole)):  # as a link has them that sorts the page
                continue
            seen.add(last)
            yield last, info if len(parts) == len(here) + 1 else {**info, "type": "directory"}

    def _parts(self, path: str) -> list[str]:
        if self._by_url:
            return [as_url(part) for part in urlsplit(path).path.strip("/").split("/") if part]
        return [part for part in path.split("/") if part]

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        below = f"{folder}/" if folder else ""
        try:
            items = again(partial(self._items, folder))
        except TransientError:
            raise
        except _Denied as e:
            yield Trouble(folder, "unreadable", str(e))
            return
        files, links = list[tuple[str, Mapping[str, Any]]](), list[str]()
        for last, info in items:
            name, kind = below + last, info.get("type")
            if not _sayable(name):
                yield Trouble(_spelled(name), "unreadable", "a name that no path can say: copy it to another name")
            elif kind == "directory":
                yield Folder(name)
            elif kind == "link" and not follow:
                yield Trouble(name, "link", "a symbolic link, not followed")
            elif kind not in ("file", "link"):
                yield Trouble(name, "special", f"is neither a file nor a directory ({kind})")
            elif last >= after and (not until or last < until):
                links.append(name) if kind == "link" else files.append((name, info))
        yield from self._entries(files)
        for name, found in self._looked(links):  # a listing tells of the links themselves
            if found is not None:
                yield found if isinstance(found, Trouble) else self._led(name, found)
            else:
                yield Trouble(name, "unreadable", "a symbolic link to what is not there")

    def _entries(self, files: list[tuple[str, Mapping[str, Any]]]) -> Iterator[Entry | Trouble]:
        """Files as `stat` says them; one by one where the listing says less, or the same otherwise."""
        if files and self._listed_as_looked is None and not self._sure(*files[0]):
            self._listed_as_looked = False
        if self._listed_as_looked:
            yield from (entry(name, info) or self._endless(name) for name, info in files)
            return
        for name, found in self._looked([name for name, _ in files]):
            if found is not None:  # else it was deleted since
                yield found if isinstance(found, Trouble) else entry(name, found) or self._endless(name)

    def _looked(self, names: list[str]) -> Iterator[tuple[str, Mapping[str, Any] | Trouble | None]]:
        """Names with what a look at each says, many at once; Trouble where one may not be looked at."""
        with Pool(LOOKING if self._by_url else self.flight) as pool:
            yield from zip(names, pool.map(self._allowed, names), strict=True)

    def _allowed(self, name: str) -> Mapping[str, Any] | Trouble | None:
        try:
            return again(partial(self._look, name))
        except Unusable as e:
            return Trouble(name, "unreadable", str(e))

    def _led(self, name: str, found: Mapping[str, Any]) -> Entry | Folder | Trouble:
        """The end of a link, as a look at it tells of it."""
        if found.get("type") != "directory":
            return entry(name, found) or self._endless(name)
        with self.systems.one(f"cannot look up {self.shown(name)}") as (fs, base):
            path = self._path(base, name)
            leads = real(self._scheme, fs, path)
            if leads in ("", path):
                return Trouble(name, "link", "a symbolic link to a directory, and the server does not tell to which")
            above = [self._path(base, name[:at]) for at in (0, *(at for at, c in enumerate(name) if c == "/"))]
            places = [real(self._scheme, fs, each) for each in above]
        if leads in places or f"{places[0]}/".startswith(f"{leads.rstrip('/')}/"):
            return Trouble(name, "link", "a symbolic link to a directory above it")
        return Folder(name)

    def _sure(self, name: str, info: Mapping[str, Any]) -> bool:
        found = self._allowed(name)
        listed = entry(name, info)
        if found is not None and not isinstance(found, Trouble) and listed is not None and entry(name, found) == listed:
            self._listed_as_looked = True
        return bool(self._listed_as_looked)

    def _endless(self, name: str) -> Trouble:
        return Trouble(name, "unreadable", "the server does not tell how long it is: copy it to another place")

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        for last, info in self._items(folder):
            name, kind = f"{folder}/{last}" if folder else last, info.get("type")
            if not _sayable(name):
                yield ".", False
            elif kind == "link" and follow:
                found = self._allowed(name)
                yield last, found is not None and not isinstance(found, Trouble) and isinstance(self._led(name, found), Folder)
            else:
                yield last, kind == "directory"

    def walk(self, folder: str = "") -> Iterator[Entry]:
        return walked(self.scan, folder, self.shown)


class FsspecStore(Listed):
    """The same, and how they are read."""

    def _size(self, name: str) -> int:
        found = self._look(name, "read")
        if found is None or found.get("type") == "directory":
            raise NotFoundError(f"cannot read {self.shown(name)}: it is not there")
        return int(found.get("size") or 0)

    def get(self, name: str) -> bytes:
        if (size := self._size(name)) > LARGEST:
            raise too_long(self.shown(name))
        return self._read(name, 0, size, size)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        size = self._size(name)
        length = min(length, size - start)
        return self._read(name, start, length, size) if length > 0 else b""

    def _read(self, name: str, start: int, length: int, size: int) -> bytes:
        """Part of a file of `size` bytes, in the memory."""
        # A server that knows no ranges would send all of it at once, and one of SFTP a part of 32 KiB after the other.
        if self._scheme in _IN_PARTS or ((start, length) != (0, size) and self._by_url):
            return b"".join(self._pieces(name, start, length))
        with self.systems.one(f"cannot read {self.shown(name)}", reads=True) as (fs, base):
            path = self._path(base, name)
            return bytes(fs.cat_file(path) if (start, length) == (0, size) else fs.cat_file(path, start, start + length))

    def _pieces(self, name: str, start: int, length: int) -> Iterator[bytes]:
        """Part of a file, piece by piece; it ends early where the file does."""
        with self.systems.one(f"cannot read {self.shown(name)}", reads=True) as (fs, base), ExitStack() as opened:
            path = self._path(base, name)
            file = opened.enter_context(fs.open(path, "rb", block_size=window.PIECE))
            together = getattr(file, "readv", None)  # asks for all parts of a piece before the first one comes
            file.seek(start)
            left, ranges = length, True
            while left:
                most = min(window.PIECE, left)
                try:
                    piece = file.read(most) if together is None else b"".join(together([(start + length - left, most)]))
                except ValueError as e:
                    if not self._by_url or not ranges or "range" not in str(e):
                        raise
                    file, ranges = opened.enter_context(fs.open(path, "rb", block_size=0)), False  # from the beginning on, at once
                    passed = start + length - left
                    while passed and (piece := file.read(min(window.PIECE, passed))):
                        passed -= len(piece)
                    continue
                if not piece:
                    return
                left -= len(piece)
                yield bytes(piece)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        for is_long, some in groupby(requests, lambda request: request.length > window.PIECE):
            if is_long:
                for request in some:
                    yield request, self._stream(request)
            else:
                with closing(window.read(some, self._opened, self.flight)) as answers:  # type: ignore[type-var]  # it is a generator
                    yield from answers

    def _opened(self) -> tuple[Any, window.Fetch]:
        def fetch(request: ReadRequest) -> window.Steps:
            found: bytes = yield partial(self._whole, request)
            return found

        return Threads(self.flight), fetch

    def _whole(self, request: ReadRequest) -> bytes:
        """The bytes of a request, between two looks at its file."""
        try:
            self._check(request, "changed")
            found = self._read(request.name, request.start, request.length, request.size) if request.length else b""
            self._check(request, "changed while it was read")
        except NotFoundError:
            raise Vanished("vanished") from None
        except Changed:
            raise Vanished("changed while it was read") from None
        except StorageError as e:
            raise self._failed(e) from None
        return found

    def _failed(self, error: StorageError) -> Exception:
        """An archive's member that cannot be unpacked is unreadable, and so is a file that may not be read."""
        said = str(error).partition(": ")[2]
        return Unreadable(said) if isinstance(error, Unusable) or said.startswith("no permission") else error

    def _check(self, request: ReadRequest, said: str) -> None:
        found = self.stat(request.name)
        if found is None:
            raise Vanished("vanished")
        if (found.version, found.size) != (request.version, request.size):
            raise Vanished(said)

    def _stream(self, request: ReadRequest) -> Iterator[bytes]:
        """A long request, by one reading from its beginning to its end: not every server knows ranges."""
        left = request.length
        try:
            again(partial(self._check, request, "changed"))
            for piece in self._pieces(request.name, request.start, request.length):
                left -= len(piece)
                yield piece
        except NotFoundError:
            raise Vanished("vanished") from None
        except Changed:
            raise Vanished("changed while it was read") from None
        except StorageError as e:
            raise self._failed(e) from None
        if left:
            raise Vanished("changed: it is shorter than it was")
        again(partial(self._check, request, "changed while it was read"))
