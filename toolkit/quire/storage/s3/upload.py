"""Writing an object of S3 part by part: nobody sees the parts before the upload is completed."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple, Protocol

from quire.errors import FormatError, StorageError
from quire.storage.retry import again

PART = 8 << 20  # bytes; the service takes no part below 5 MiB but the last
SAME = 1000  # parts of one size, then the next so many are twice as long: few services take parts of different sizes, and few need to
PARTS = 10_000
SENDING = 4  # parts of one object on their way at once

_ID = re.compile(r"[A-Za-z0-9._~+=-]{1,1024}")
_ETAG = re.compile(r"[A-Za-z0-9-]{1,64}")


class Pieces(NamedTuple):
    """The content of a handle: the upload's id, its parts' etags in their order, the bytes of all of them."""

    upload: str
    parts: tuple[str, ...] = ()
    size: int = -1

    def handle(self) -> str:
        return json.dumps({"upload": self.upload, "size": self.size, "parts": self.parts}, separators=(",", ":"))

    @classmethod
    def read(cls, handle: str, of: str) -> Pieces:
        """Take a handle apart; FormatError if it is none, for a log's entry may be damaged or forged."""
        try:
            told = json.loads(handle)
            upload, size, etags = told["upload"], told["size"], told["parts"]
            fits = _ID.fullmatch(upload) and type(size) is int and size >= -1 and isinstance(etags, list) and len(etags) <= PARTS
            if fits and all(_ETAG.fullmatch(etag) for etag in etags):
                return cls(upload, tuple(etags), size)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise FormatError(f"{handle[:80]!r} is not the handle of an upload of {of}: nothing was touched. Look who wrote it.")


class Parts(Protocol):
    """The part of its store that an upload uses."""

    def shown(self, name: str) -> str: ...
    def put(self, name: str, data: bytes) -> None: ...
    def begin(self, name: str) -> str: ...
    def send(self, name: str, upload: str, number: int, data: bytes) -> str: ...
    def complete(self, name: str, handle: str) -> bool: ...
    def give_up(self, name: str, handle: str) -> None: ...


class S3Upload:
    """An object whose parts are sent while it is written, some at once. It begins with its first part."""

    def __init__(self, store: Parts, name: str, *, commit: bool) -> None:
        self.store, self.name, self.commit = store, name, commit
        self.handle = ""
        self._upload, self._size = "", 0
        self._waiting, self._held = list[bytes](), 0
        self._pool: ThreadPoolExecutor | None = None
        self._sent = deque[Future[str]]()
        self._etags, self._number = list[str](), 0

    @property
    def held(self) -> int:
        """See `quire.storage.held`."""
        return self._held + self._length() * sum(not part.done() for part in self._sent)

    def write(self, data: bytes | memoryview) -> None:
        self._waiting.append(bytes(data))
        self._held += len(data)
        while self._held >= self._length():
            self._take(self._length())

    def _length(self) -> int:
        return PART << self._number // SAME

    def _take(self, length: int) -> None:
        """Send so much of what waits."""
        data = b"".join(self._waiting)
        self._waiting, self._held = [data[length:]], len(data) - min(length, len(data))
        self._part(data[:length])

    def _part(self, part: bytes) -> None:
        if self._number >= PARTS:
            raise StorageError(f"cannot write {self.store.shown(self.name)}: more than {PARTS:,} parts. Use a smaller target_size.")
        if not self._upload:
            self._upload = again(lambda: self.store.begin(self.name))
        self._number, self._size = self._number + 1, self._size + len(part)
        upload, number = self._upload, self._number
        self._pool = self._pool or ThreadPoolExecutor(SENDING, "quire-parts")
        while len(self._sent) >= SENDING:
            self._etags.append(self._sent.popleft().result())
        # The same part again takes the place of the first one, so it is tried again.
        send: Callable[[], str] = lambda: self.store.send(self.name, upload, number, part)  # noqa: E731 - a name for its type
        self._sent.append(self._pool.submit(again, send))

    def close(self) -> None:
        if self.commit and not self._upload:
            again(lambda: self.store.put(self.name, b"".join(self._waiting)))
            self._waiting = []
            return
        try:
            if self._held or not self._upload:
                self._take(self._held)  # also of nothing: an upload has one part at least
            while self._sent:
                self._etags.append(self._sent.popleft().result())
        finally:
            self._end()
        self.handle = Pieces(self._upload, tuple(self._etags), self._size).handle()
        if self.commit and not again(lambda: self.store.complete(self.name, self.handle)):
            raise StorageError(f"cannot write {self.store.shown(self.name)}: the service has dropped its parts. Call again.")

    def discard(self) -> None:
        self._end()
        if self._upload:
            self.store.give_up(self.name, Pieces(self._upload).handle())

    def _end(self) -> None:
        self._waiting, self._held = [], 0
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self._sent.clear()
