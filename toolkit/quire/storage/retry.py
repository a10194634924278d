"""Transient errors of a store are retried with exponential backoff, for a minute. Only this module retries.

Only operations that may be repeated are: a second `put` writes the same, a second `put_if_absent` may find its own first one
there (whoever calls it reads what is there anyway), a second `rename` finds its file in the new place. A stream that is written or
read piece by piece is not retried as a whole: a store may try a single piece `again`, else the whole attempt starts again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from quire.errors import NotFoundError, TransientError
from quire.storage.base import (
    Beside,
    Busy,
    Conditional,
    Content,
    Copying,
    Entry,
    Folder,
    Limited,
    Request,
    Seeking,
    Sink,
    Store,
    Syncing,
    Trouble,
    Upload,
)

T = TypeVar("T")
Told = Callable[[str], object]  # is called with what failed, and in how many seconds it is tried again

FIRST, LONGEST = 0.2, 15.0  # seconds between two tries; each pause is twice the one before, less a random part
PATIENCE = 60.0  # seconds from the first failure on until no further try begins

# By these names, so that a simulated clock can stand in their place.
clock, pause = time.monotonic, time.sleep


def silent(_: str) -> None:
    """Nobody wants to know."""


class Patience:
    """The backoff: waits after each failure in a row, and raises when they have lasted too long."""

    def __init__(self, told: Told = silent) -> None:
        self.told = told
        self.tries, self.began = 0, 0.0

    def wait(self, e: TransientError) -> None:
        """Wait before the next try. Raises TransientError, with what was tried, when there should be none."""
        self.tries += 1
        self.began = self.began if self.tries > 1 else clock()
        pausing = max(e.wait, min(FIRST * 2 ** (self.tries - 1), LONGEST) * random.uniform(0.5, 1))
        took = clock() - self.began
        if took + pausing > PATIENCE:
            raise TransientError(f"{e} (tried {self.tries} times in {took:.0f} s)") from e
        self.told(f"{e}: trying again in {pausing:.1f} s")
        pause(pausing)


def again(operation: Callable[[], T], told: Told = silent, unsure: Callable[[], T | None] | None = None) -> T:
    """Try until it is done, refused, or patience ends. `unsure`: what to answer when a try after the first finds nothing."""
    patience = Patience(told)
    while True:
        try:
            return operation()
        except NotFoundError:
            if patience.tries and unsure is not None and (found := unsure()) is not None:
                return found
            raise
        except TransientError as e:
            patience.wait(e)


class Retrying:
    """A store whose transient errors are tried again, and told; one that lasts is raised with what was tried."""

    def __init__(self, inner: Store, told: Told = silent) -> None:
        self.inner, self.told = inner, told
        self.url, self.shared = inner.url, inner.shared
        self.can_rename, self.can_upload, self.pieces_expire = inner.can_rename, inner.can_upload, inner.pieces_expire
        if isinstance(inner, Conditional):
            self.remove_if = lambda name, version: self._again(lambda: inner.remove_if(name, version))
        if isinstance(inner, Beside):
            self.give_back = lambda private, name: self._again(lambda: inner.give_back(private, name))
        if isinstance(inner, Limited):
            self.check_name = inner.check_name
        if isinstance(inner, Seeking):
            self.first = lambda folder, after, most: self._again(lambda: inner.first(folder, after, most))
        if isinstance(inner, Syncing):
            self.sync = lambda name: self._again(lambda: inner.sync(name))
        if isinstance(inner, Copying):
            self.copy = lambda old, new, version="": self._again(lambda: inner.copy(old, new, version))

    def __repr__(self) -> str:
        return repr(self.inner)

    def _again(self, operation: Callable[[], T], unsure: Callable[[], T | None] | None = None) -> T:
        return again(operation, self.told, unsure)

    # reading
    def stat(self, name: str) -> Entry | None:
        return self._again(lambda: self.inner.stat(name))

    def is_folder(self, name: str = "") -> bool:
        return self._again(lambda: self.inner.is_folder(name))

    def get(self, name: str) -> bytes:
        return self._again(lambda: self.inner.get(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._again(lambda: self.inner.get_range(name, start, length))

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        for item in self._listing(lambda: self.inner.scan(folder, after=after, until=until, follow=follow)):
            if item.__class__ is Trouble and item.kind == "busy":
                found = self.stat(item.name)
                if found is not None:  # else it was deleted since
                    yield found
            else:
                yield item

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        return self._listing(lambda: self.inner.peek(folder, follow=follow))

    def walk(self, folder: str = "") -> Iterator[Entry]:
        return self._listing(lambda: self.inner.walk(folder))

    def _listing(self, listing: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """A listing that fails before its first item begins again; a page further on is the store's own to ask for again."""
        found, first = self._again(lambda: _begun(listing()))
        yield from first
        yield from found

    def read_many(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Content]]:
        for request, content in self.inner.read_many(requests):
            yield request, self._asked_again(request, content) if isinstance(content, Busy) else content

    def _asked_again(self, request: Request, answer: Content | None) -> Content:
        def read() -> Content:
            nonlocal answer
            found, answer = answer, None
            if found is None:
                ((_, found),) = self.inner.read_many([request])
            if isinstance(found, Busy):
                raise TransientError(f"cannot read {self.url}/{request.name}: {found}")
            return found

        return self._again(read)

    # writing
    def put(self, name: str, data: bytes) -> None:
        self._again(lambda: self.inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._again(lambda: self.inner.put_if_absent(name, data))

    def create(self, name: str) -> Sink:
        return self._again(lambda: self.inner.create(name))

    def upload(self, name: str) -> Upload:
        return self._again(lambda: self.inner.upload(name))

    def complete(self, name: str, handle: str) -> bool:
        return self._again(lambda: self.inner.complete(name, handle))

    def give_up(self, name: str, handle: str) -> None:
        self._again(lambda: self.inner.give_up(name, handle))

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        return self._listing(lambda: self.inner.pending(folder))

    def rename(self, old: str, new: str) -> None:
        def renamed() -> bool:
            self.inner.rename(old, new)
            return True

        self._again(renamed, lambda: self.stat(new) is not None or None)

    def check_writable(self) -> None:
        self._again(self.inner.check_writable)

    def remove(self, name: str) -> None:
        self._again(lambda: self.inner.remove(name))

    def remove_tree(self, folder: str) -> None:
        self._again(lambda: self.inner.remove_tree(folder))

    def sweep(self, folder: str) -> None:
        self._again(lambda: self.inner.sweep(folder))


def _begun(items: Iterator[T]) -> tuple[Iterator[T], tuple[T, ...]]:
    for item in items:
        return items, (item,)
    return items, ()
