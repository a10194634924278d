"""Shared by stores of objects (S3, Azure): keys below the root, neither directories nor a rename, and uploads in pieces."""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from quire.errors import StorageError
from quire.storage import slices
from quire.storage.asking import MOST
from quire.storage.base import LARGEST, Entry, Folder, Rooted, Sink, Trouble, Upload, safe, too_long
from quire.storage.message import Answer
from quire.storage.retry import again
from quire.storage.sending import Begin, Parcel, Sending
from quire.storage.wire import Wire

DELETING = 16  # objects at once


def whole(shown: str, get: Callable[[int], Answer]) -> bytes:
    """An object that is held whole, by a request that takes so many of its bytes, and one more. FormatError for one that is too long."""
    found = get(MOST)
    if len(found.body) > MOST:  # hardly any is so long
        told = int(found.headers.get("Content-Length") or 0)
        found = get(LARGEST) if told <= LARGEST else found
        if told > LARGEST or len(found.body) > LARGEST:
            raise too_long(shown)
    return found.body


def part(what: str, answer: Answer, start: int, length: int) -> bytes:
    """The bytes of an answer to a request for a part; `what` is like 'cannot read s3://bucket/x'. StorageError where others came."""
    if answer.status == 416:
        return b""
    # A service may answer a range of an empty object with all of it.
    if start and answer.status != 206 and answer.body:
        raise StorageError(f"{what}: a part was asked for, and the answer is all of it. Look at the service, and the proxy between.")
    if not begun(what, answer, start).reaches(start + length):
        raise StorageError(f"{what}: fewer bytes came than were asked for. Look at the service, and the proxy between.")
    return answer.body[:length]


def begun(what: str, answer: Answer, start: int) -> Answer:
    """An answer with bytes from `start` on; StorageError where it says that they are others."""
    if not answer.begins(start):
        raise StorageError(f"{what}: another part came than was asked for. Look at the service, and the proxy between.")
    return answer


class Objects(Rooted, ABC):
    """The base of a store of objects below a path of a bucket or container."""

    can_rename = False
    can_upload = True
    shared = True
    service: str  # as errors name it
    uploads: type[PiecewiseUpload]

    def __init__(self, url: str, path: str) -> None:
        self.url, self.root = url, f"{path}/" if path else ""
        self._lock = threading.Lock()
        self._sending: Sending | None = None

    @abstractmethod
    def _wire(self) -> Wire:
        """Connections on which pieces are sent."""

    def sending(self) -> Sending:
        """The way of this process's pieces; a fork has its own."""
        with self._lock:
            if self._sending is None or self._sending.process != os.getpid():
                self._sending = Sending(self._wire)
            return self._sending

    def _key(self, name: str) -> str:
        return self.root + safe(name)

    @abstractmethod
    def _new(self, name: str) -> str:
        """The key of an object that is to be written; StorageError for a name that the service does not take."""

    @abstractmethod
    def _delete(self, key: str) -> None:
        """Delete an object, if it is there."""

    @abstractmethod
    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        """See `Store`."""

    def _below(self, folder: str) -> str:
        return f"{self._key(folder)}/" if folder else self.root

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        return slices.names(self.scan(folder))

    def rename(self, old: str, new: str) -> None:
        raise StorageError(f"cannot rename {self.shown(old)}: {self.service} copies instead. Use the committer 'upload'.")

    def create(self, name: str) -> Sink:
        self._new(name)
        return self.uploads(self, name, commit=True)

    def upload(self, name: str) -> Upload:
        self._new(name)
        return self.uploads(self, name, commit=False)

    def check_name(self, name: str) -> None:
        self._new(name)

    def remove(self, name: str) -> None:
        self._delete(self._key(name))

    def _delete_surely(self, key: str) -> None:
        again(lambda: self._delete(key))

    def sweep(self, folder: str) -> None:
        """Nothing to do: an object appears whole or not at all."""


class PiecewiseUpload(ABC):
    """An object whose pieces are sent while it is written, some at once; nobody sees it before they are made one."""

    most: int  # pieces of an object
    limit: str  # the same, as errors say it

    def __init__(self, store: Any, name: str, *, commit: bool) -> None:
        """`commit`: make it an object when it is closed."""
        self.store, self.name, self.commit = store, name, commit
        self.handle = ""
        self._waiting, self._held = list[bytes | memoryview](), 0
        self._number, self._answers = 0, list[Any]()  # pieces that were sent, and the service's answers in their order
        self._sending: Sending | None = None
        self._sent = deque[Parcel]()

    @abstractmethod
    def _length(self) -> int:
        """Bytes of the next piece."""

    @abstractmethod
    def _deliver(self, number: int, piece: bytes | memoryview) -> Begin:
        """Make a piece ready to be sent: how it is, as often as it takes."""

    @property
    def held(self) -> int:
        """See `quire.storage.held`."""
        return self._held + sum(piece.size for piece in self._sent if not piece.done)

    def write(self, data: bytes | memoryview) -> None:
        left = memoryview(bytes(data))
        while self._held + len(left) >= (length := self._length()):
            room = length - self._held
            self._waiting.append(left[:room])
            self._held += room
            self._piece(self._taken())
            left = left[room:]
        if left:
            self._waiting.append(left if len(left) == len(data) else bytes(left))  # else the rest would keep all of it
            self._held += len(left)

    def _taken(self) -> bytes | memoryview:
        """All that waits."""
        waiting, self._waiting, self._held = self._waiting, [], 0
        return waiting[0] if len(waiting) == 1 else b"".join(waiting)

    def _piece(self, piece: bytes | memoryview) -> None:
        """Send it; wait while too many are on their way."""
        if self._number >= self.most:
            raise StorageError(f"cannot write {self.store.shown(self.name)}: more than {self.limit}. Use a smaller target_size.")
        self._sending = sending = self._sending or self.store.sending()
        while self._sent and self._sent[0].done:
            self._answers.append(sending.result(self._sent.popleft()))
        self._sent.append(sending.send(self._deliver(self._number, piece), len(piece)))
        self._number += 1

    @abstractmethod
    def close(self) -> None:
        """See `Sink`."""

    def _finish(self, least: int) -> None:
        """Send the rest, also an empty one where there were fewer pieces than `least`, and wait for all of them."""
        try:
            if self._held or self._number < least:
                self._piece(self._taken())
            while self._sent:
                assert self._sending is not None
                self._answers.append(self._sending.result(self._sent.popleft()))
        finally:
            self._end()

    def discard(self) -> None:
        self._end()

    def _end(self) -> None:
        self._waiting, self._held = [], 0
        if self._sending is not None:
            self._sending.drop(self._sent)
        self._sent.clear()
