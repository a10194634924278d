"""HDFS over WebHDFS, the namenode's HTTP interface: Hadoop 3 or newer, whose RENAME takes options and whose LISTSTATUS has pages.

Whatever readers must see whole or not at all is written to a file below `_quire/tmp` and renamed, which the namenode does in one
step; where a name must be free, it is renamed without OVERWRITE, which fails if the name is taken, so that one writer wins. Files are
never created under a final name: a file that is being written is seen.

A file that is closed has been taken by the datanodes and stands in the namenode's journal, so it outlives the loss of any one
machine. Whether it outlives a power cut of all at once is a setting of the cluster (`dfs.datanode.synconclose`).

The version of a file is its time of change (ms), its length and the id of its inode, which is another one after each rewriting.
HDFS has no conditional read: versions are compared after reading with what was listed before. This misses a file that is truncated
and appended to its former length within one ms, or whose time of change is set back. A file that somebody still writes is listed as
long as its finished blocks are; when it is closed, it has another version.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import quote

from quire.errors import NotFoundError, StorageError, TransientError
from quire.storage import aside, window
from quire.storage.base import (
    Content,
    Entry,
    Folder,
    ReadRequest,
    Sink,
    Trouble,
    WithoutUploads,
    fits,
    instant,
    leaves_room,
    safe,
    walked,
)
from quire.storage.hdfs import read as hdfs_read
from quire.storage.hdfs.access import canonical, normalise, parts
from quire.storage.hdfs.errors import said
from quire.storage.hdfs.read import version_of
from quire.storage.hdfs.rest import WebHdfsResponse, rest
from quire.storage.message import Answer
from quire.storage.objects import whole
from quire.storage.retry import again

__all__ = ["HdfsStore", "canonical", "normalise", "opened"]

LONGEST = 3500  # bytes of a quoted path: with the rest of the request, a datanode takes 4,096
PIECE = 16 << 20  # bytes that are appended at once
TRIES = 20  # to write what clean-ups take away at the same time

_NOT_THERE = ("FileNotFoundException", "ParentNotDirectoryException")
_TAKEN = "FileAlreadyExistsException"
_DENIED = "AccessControlException"
_NOT_EMPTY = "PathIsNotEmptyDirectoryException"


def opened(url: str, options: Mapping[str, object] | None) -> HdfsStore:
    """The store at a normalised URL."""
    return HdfsStore(url, options)


class _Denied(StorageError):
    """A directory that may not be listed."""


class HdfsSink:
    """A file that is written piece by piece: created with the first one, appended to by each further one."""

    def __init__(self, store: HdfsStore, name: str) -> None:
        self.store, self.name = store, name
        self._held, self._sent = bytearray(), 0

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view:
            taken = min(len(view), PIECE - len(self._held))
            self._held += view[:taken]
            view = view[taken:]
            if len(self._held) == PIECE:
                self._send()

    def _send(self) -> None:
        piece, store, name = bytes(self._held), self.store, self.name
        if self._sent:
            # Not tried again: without an answer it is not known whether a piece was appended, and it must not be there twice.
            location = again(partial(store.asked, "POST", "APPEND", name, "write")).location
            store.rest.at("POST", store.path(name), location, f"cannot write {store.shown(name)}", data=piece)
        elif not again(partial(store.written, name, piece)):
            # What an earlier try has left may be a part of it, and may still grow: the attempt begins again, under another name.
            raise TransientError(f"cannot write {store.shown(name)}: a try that was not answered has begun it")
        self._sent += len(piece)
        self._held.clear()

    def close(self) -> None:
        if self._held or not self._sent:
            self._send()
        found = again(lambda: self.store.stat(self.name))
        if found is None or found.size != self._sent:
            there = "it is gone" if found is None else f"it has {found.size:,} bytes"
            raise TransientError(f"cannot write {self.store.shown(self.name)}: {there} after {self._sent:,} were written")

    def discard(self) -> None:
        self._held.clear()


class HdfsStore(WithoutUploads):
    """Files below one directory of HDFS."""

    can_rename = True
    shared = True

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.url = url
        netloc, self.root = parts(url)
        self.rest = rest(netloc, options)
        self.flight = window.flight(options, hdfs_read.FLIGHT)

    def path(self, name: str) -> str:
        """Where an object lies in HDFS."""
        return f"{self.root}/{safe(name)}" if name else self.root

    def _new(self, name: str) -> None:
        """Refuse a name that cannot be written; the namenode's own words name no reason."""
        if ":" in safe(name):
            raise StorageError(f"cannot write {self.shown(name)}: HDFS takes no ':' in names. Use another name.")
        if len(quote(self.path(name))) > LONGEST:
            raise StorageError(f"cannot write {self.shown(name)}: a datanode takes no path of more than {LONGEST:,} bytes in a URL.")

    def asked(self, method: str, op: str, name: str, doing: str, answers: tuple[str, ...] = (), **query: object) -> WebHdfsResponse:
        """One request to the namenode about an object."""
        return self.rest.ask(method, op, self.path(name), f"cannot {doing} {self.shown(name)}", answers, query=query)

    # ---------------------------------------------------------------------------------------------------------- reading
    def _status(self, name: str) -> Any:
        if ":" in name:
            return None
        answer = self.asked("GET", "GETFILESTATUS", name, "look up", _NOT_THERE)
        return None if answer.refused else answer.said["FileStatus"]

    def stat(self, name: str) -> Entry | None:
        found = self._status(name)
        return _entry(name, found) if found and found["type"] == "FILE" else None

    def is_folder(self, name: str = "") -> bool:
        found = self._status(name)
        return bool(found) and found["type"] == "DIRECTORY"

    def _pages(self, folder: str) -> Iterator[list[Any]]:
        """The pages of a listing; one that fails is asked for again, not those before it."""
        last = ""

        def ask() -> Any:
            # Written in both ways: Hadoop 3.5 knows the small letters alone, the gateway the documented ones alone.
            more = {"startafter": last, "startAfter": last} if last else {}
            answer = self.asked("GET", "LISTSTATUS_BATCH", folder, "list", (*_NOT_THERE, _DENIED), **more)
            if answer.refused == _DENIED:
                raise _Denied(said(403, answer.answer.body).words)
            return None if answer.refused else answer.said["DirectoryListing"]

        page = ask()
        while page is not None:  # else it was deleted since its parent was listed
            found = page["partialListing"]["FileStatuses"]["FileStatus"]
            yield found
            if not page["remainingEntries"] or not found:
                return
            last = found[-1]["pathSuffix"]
            page = again(ask)
            if page and any(item["pathSuffix"] <= last for item in page["partialListing"]["FileStatuses"]["FileStatus"]):
                raise StorageError(
                    f"cannot list {self.shown(folder)}: {self.rest.access.netloc} gives its first page again. Update Hadoop."
                )

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        below = f"{folder}/" if folder else ""
        try:
            for page in self._pages(folder):
                for found in page:
                    name, kind = found["pathSuffix"], found["type"]
                    if not name:
                        continue  # a file took the directory's place
                    if kind == "DIRECTORY":
                        yield Folder(below + name)
                    elif kind != "FILE":
                        yield Trouble(below + name, "link", "a symbolic link, not followed")
                    elif name >= after and (not until or name < until):
                        yield _entry(below + name, found)
        except _Denied as e:
            yield Trouble(folder, "unreadable", f"cannot list the directory: {e}")

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        for item in self.scan(folder):
            if isinstance(item, Trouble) and item.kind == "unreadable":
                raise StorageError(f"{self.shown(item.name)}: {item.reason}. Ask for the right to read it.")
            yield item.name.rsplit("/", 1)[-1], isinstance(item, Folder)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        return walked(self.scan, folder, self.shown)

    def _open(self, name: str, most: int, **query: int) -> Answer:
        what = f"cannot read {self.shown(name)}"
        found = self.rest.sent_on("GET", "OPEN", self.path(name), what, _NOT_THERE, most=most, query=query)
        if found.refused in _NOT_THERE:
            raise NotFoundError(f"{what}: it is not there")
        return found.answer

    def get(self, name: str) -> bytes:
        return whole(self.shown(name), partial(self._open, name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        found = self.stat(name)
        if found is None:
            raise NotFoundError(f"cannot read {self.shown(name)}: it is not there")
        length = min(length, found.size - start)  # the namenode refuses a range that begins behind the end
        return self._open(name, length, offset=start, length=length).body if length > 0 else b""

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        return window.read(requests, lambda: hdfs_read.opened(self.rest, self.root, self.url), self.flight)

    # ---------------------------------------------------------------------------------------------------------- writing
    def written(self, name: str, data: bytes, on_behalf: str = "") -> bool:
        """Write a file under a name that nobody else uses; False: an earlier try has left something there.

        Never over it: a request that arrives late, after the one that repeats it, would cut off what was appended meanwhile.
        """
        what = f"cannot write {self.shown(on_behalf or name)}"
        return not self.rest.sent_on("PUT", "CREATE", self.path(name), what, (_TAKEN,), data=data, query={"overwrite": "false"}).refused

    def _placed(self, name: str, data: bytes, how: str) -> bool:
        """Write a temporary file and rename it; False: the name is taken."""
        self._new(name)
        fits(self.shown(name), data)
        for _ in range(TRIES):
            temporary = f"{self.temporary}/{uuid.uuid4().hex}"
            try:
                if not self.written(temporary, data, name):
                    continue
                moved = self._moved(temporary, name, how, "write")
            except NotFoundError:
                continue  # a sweep took the temporary file: write it again
            if not moved:
                self._deleted(temporary)
            return moved
        raise TransientError(f"cannot write {self.shown(name)}: clean-ups took it away {TRIES} times")

    def _moved(self, old: str, new: str, how: str, doing: str) -> bool:
        """Rename in one step; False: the name is taken. NotFoundError: `old` is not there."""
        target = self.path(new)
        what = f"cannot {doing} {self.shown(new)}"
        for _ in range(TRIES):
            query = {"destination": target, "renameoptions": how}
            answer = self.rest.ask("PUT", "RENAME", self.path(old), what, ("FileNotFoundException", _TAKEN), query=query)
            if answer.refused == _TAKEN:
                return False
            if not answer.refused and answer.said.get("boolean", True):
                return True
            # The one is not there, or the directory of the other; a gateway that knows no options says no more than "no".
            if self._status(old) is None:
                raise NotFoundError(f"{what}: {old} is not there")
            if not answer.refused and self._status(new) is not None:
                return False
            self.asked("PUT", "MKDIRS", new.rpartition("/")[0], doing)
        raise TransientError(f"{what}: clean-ups took its directory away {TRIES} times")

    def put(self, name: str, data: bytes) -> None:
        while not self._placed(name, data, "OVERWRITE"):
            self._deleted(name)  # through a gateway that knows no options

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._placed(name, data, "NONE")

    def create(self, name: str) -> Sink:
        self._new(name)
        return HdfsSink(self, name)

    def rename(self, old: str, new: str) -> None:
        self._new(new)
        if not self._moved(old, new, "NONE", "publish"):
            if self._status(old) is None:
                raise NotFoundError(f"cannot publish {self.shown(new)}: {old} is not there")
            raise StorageError(f"cannot publish {self.shown(new)}: something else has its name. Look who made it, and move it away.")

    def check_name(self, name: str) -> None:
        self._new(name)

    def check_writable(self) -> None:
        leaves_room(self.url, len(quote(self.root)), LONGEST)
        path = self.root
        what = f"cannot write below {self.url}"
        while True:
            answer = self.rest.ask("GET", "CHECKACCESS", path, what, ("FileNotFoundException",), query={"fsaction": "-wx"})
            if not answer.refused or not path:
                break
            path = path.rpartition("/")[0]
        found = self.rest.ask("GET", "GETFILESTATUS", path, what).said["FileStatus"]
        if found["type"] != "DIRECTORY":
            raise StorageError(f"{what}: {path} is not a directory. Choose another destination.")

    def _deleted(self, name: str) -> bool:
        """Delete a file or an empty directory; False: there is none, or there is something in it."""
        answer = self.asked("DELETE", "DELETE", name, "remove", (*_NOT_THERE, _NOT_EMPTY), recursive="false")
        return not answer.refused and bool(answer.said["boolean"])

    def remove(self, name: str) -> None:
        if ":" in safe(name):
            return
        self._deleted(name)
        folder = name.rpartition("/")[0]
        while folder.startswith(f"{self.state}/") and self._deleted(folder):  # what has become empty; writers make theirs again
            folder = folder.rpartition("/")[0]

    def remove_if(self, name: str, version: str) -> bool:
        folder, slash, last = safe(name).rpartition("/")
        return aside.remove_if(_HdfsDirectory(self, folder + slash), last, version, self.shown(name))

    def give_back(self, private: str, name: str) -> bool:
        folder, slash, last = safe(name).rpartition("/")
        return _HdfsDirectory(self, folder + slash).give(private.rpartition("/")[2], last)

    def remove_tree(self, folder: str) -> None:
        if ":" not in safe(folder):
            self.asked("DELETE", "DELETE", folder, "remove", _NOT_THERE, recursive="true")

    def sweep(self, folder: str) -> None:
        """Temporary files lie in one directory and their writers write them again if they are gone: all can go.

        So can the directories of jobs that are empty, as a writer leaves one that is killed before its first file.
        """
        if not f"{folder}/".startswith(f"{self.state}/"):
            return
        self.remove_tree(self.temporary)
        self._prune(f"{self.state}/jobs")

    def _prune(self, folder: str) -> None:
        for item in list(self.scan(folder)):
            if isinstance(item, Folder):
                self._prune(item.name)
                self._deleted(item.name)


class _HdfsDirectory:
    """A directory, for `storage.aside`. The work of an earlier try whose answer was lost counts as done."""

    def __init__(self, store: HdfsStore, folder: str) -> None:
        self._store, self._folder = store, folder

    def version(self, name: str) -> str | None:
        found = self._store._status(self._folder + name)
        return found and (version_of(found) if found["type"] == "FILE" else found["type"])

    def take(self, name: str, private: str) -> None:
        with suppress(NotFoundError):
            self._store._new(self._folder + private)
            self._store._moved(self._folder + name, self._folder + private, "NONE", "remove")

    def give(self, private: str, name: str) -> bool:
        try:
            return self._store._moved(self._folder + private, self._folder + name, "NONE", "put back")
        except NotFoundError:
            return True

    def drop(self, private: str) -> None:
        self._store._deleted(self._folder + private)


def _entry(name: str, status: Any) -> Entry:
    return Entry(name, status["length"], version_of(status), instant(status["modificationTime"] * 1_000_000))
