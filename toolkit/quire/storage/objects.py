"""Shared by stores of objects (S3, Azure): keys below the root, neither directories nor a rename, and uploads in pieces."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from quire.errors import StorageError
from quire.storage import slices
from quire.storage.base import Entry, Folder, Rooted, Sink, Trouble, Upload, safe
from quire.storage.retry import again

SENDING = 4  # pieces of one object on their way at once
DELETING = 16  # objects at once


class Objects(Rooted, ABC):
    """The base of a store of objects below a path of a bucket or container."""

    can_rename = False
    can_upload = True
    shared = True
    service: str  # as errors name it
    uploads: type[PiecewiseUpload]

    def __init__(self, url: str, path: str) -> None:
        self.url, self.root = url, f"{path}/" if path else ""

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
        self._waiting, self._held = list[bytes](), 0
        self._number, self._answers = 0, list[Any]()  # pieces that were sent, and the service's answers in their order
        self._pool: ThreadPoolExecutor | None = None
        self._sent = deque[Future[Any]]()

    @abstractmethod
    def _length(self) -> int:
        """Bytes of the next piece."""

    @abstractmethod
    def _deliver(self, number: int, piece: bytes) -> Any:
        """Send one piece, in a thread of its own: the same piece again does no harm, so it is tried again."""

    @property
    def held(self) -> int:
        """See `quire.storage.held`."""
        return self._held + self._length() * sum(not piece.done() for piece in self._sent)

    def write(self, data: bytes | memoryview) -> None:
        self._waiting.append(bytes(data))
        self._held += len(data)
        if self._held >= self._length():
            self._send()

    def _send(self) -> None:
        """Send all but what fills no piece."""
        data, start = b"".join(self._waiting), 0
        while len(data) - start >= (length := self._length()):
            self._piece(data[start : start + length])
            start += length
        self._waiting, self._held = [data[start:]], len(data) - start

    def _piece(self, piece: bytes) -> None:
        """Send it; wait while too many are on their way."""
        if self._number >= self.most:
            raise StorageError(f"cannot write {self.store.shown(self.name)}: more than {self.limit}. Use a smaller target_size.")
        self._pool = self._pool or ThreadPoolExecutor(SENDING, "quire-pieces")
        while len(self._sent) >= SENDING:
            self._answers.append(self._sent.popleft().result())
        self._sent.append(self._pool.submit(self._deliver, self._number, piece))
        self._number += 1

    @abstractmethod
    def close(self) -> None:
        """See `Sink`."""

    def _finish(self, least: int) -> None:
        """Send the rest, also an empty one where there were fewer pieces than `least`, and wait for all of them."""
        try:
            rest = b"".join(self._waiting)
            if rest or self._number < least:
                self._piece(rest)
            while self._sent:
                self._answers.append(self._sent.popleft().result())
        finally:
            self._end()

    def discard(self) -> None:
        self._end()

    def _end(self) -> None:
        self._waiting, self._held = [], 0
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._sent.clear()
