"""Transient errors of a store are retried with exponential backoff, for a minute. Only this module retries.

Only operations that may be repeated are: a second `put` writes the same, a second `put_if_absent` may find its own first one
there (whoever calls it reads what is there anyway), a second `rename` finds its file in the new place. A stream that is written or
read piece by piece is not retried as a whole: a store may try a single piece `again`, else the whole attempt starts again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

from quire.errors import NotFoundError, TransientError
from quire.storage.base import STATE, Busy, Content, Entry, Folder, Limited, Looking, Paging, ReadRequest, Store, Trouble

T = TypeVar("T")
OnRetry = Callable[[str], object]  # is called with what failed, and in how many seconds it is tried again

FIRST, LONGEST = 0.2, 15.0  # seconds between two tries; each pause is twice the one before, less a random part
PATIENCE = 60.0  # seconds from the first failure on until no further try begins

# By these names, so that a simulated clock can stand in their place.
clock, pause = time.monotonic, time.sleep


def silent(_: str) -> None:
    """Nobody wants to know."""


class Patience:
    """The backoff: waits after each failure in a row, and raises when they have lasted too long.

    `lasts`: seconds from the first failure on until no further try begins; `longest`: of a pause.
    """

    def __init__(self, on_retry: OnRetry = silent, lasts: float | None = None, longest: float = LONGEST) -> None:
        self.on_retry, self.lasts, self.longest = on_retry, PATIENCE if lasts is None else lasts, longest
        self.tries, self.began = 0, 0.0

    @property
    def took(self) -> float:
        """Seconds since the first failure."""
        return clock() - self.began if self.tries else 0.0

    def pausing(self, least: float = 0.0) -> float | None:
        """The seconds to wait after one more failure, `least` or more; None: no further try should begin."""
        self.tries += 1
        self.began = self.began if self.tries > 1 else clock()
        doubled = FIRST * 2 ** min(self.tries - 1, 30)
        pausing = max(least, min(doubled, self.longest) * random.uniform(0.5, 1))
        return None if self.took + pausing > self.lasts else pausing

    def over(self, e: TransientError) -> TransientError:
        """The error where no further try should begin, with what was tried."""
        found = TransientError(f"{e} (tried {self.tries} times in {self.took:.0f} s)")
        found.tried = True
        return found

    def wait(self, e: TransientError) -> None:
        """Wait before the next try. Raises TransientError, with what was tried, when there should be none."""
        pausing = self.pausing(e.wait)
        if pausing is None:
            raise self.over(e) from e
        self.on_retry(f"{e}: trying again in {pausing:.1f} s")
        pause(pausing)


def again(operation: Callable[[], T], on_retry: OnRetry = silent, unsure: Callable[[], T | None] | None = None) -> T:
    """Try until it is done, refused, or patience ends. `unsure`: what to answer when a try after the first finds nothing."""
    patience = Patience(on_retry)
    while True:
        try:
            return operation()
        except NotFoundError:
            if patience.tries and unsure is not None and (found := unsure()) is not None:
                return found
            raise
        except TransientError as e:
            if e.tried:  # by a part of the operation
                raise
            patience.wait(e)


# Operations that are tried again as they are; the last ones are optional, and a store may lack them.
_REPEATED = (
    "stat", "is_folder", "get", "get_range", "put", "put_if_absent", "create", "upload", "complete", "give_up", "check_writable", "remove",
    "remove_tree", "sweep", "get_ranges", "remove_if", "put_if", "give_back", "first", "sync", "copy", "sync_folder", "remove_all",
)  # fmt: skip
_LISTED = ("peek", "walk", "pending")  # listings, likewise


class Retrying:
    """A store whose transient errors are tried again, and told; one that lasts is raised with what was tried."""

    def __init__(self, inner: Store, on_retry: OnRetry = silent) -> None:
        self.inner, self.on_retry = inner, on_retry
        self.url, self.shared = inner.url, inner.shared
        self.state: str = getattr(inner, "state", STATE)
        self.can_rename, self.can_upload, self.pieces_expire = inner.can_rename, inner.can_upload, inner.pieces_expire
        for name in _REPEATED:
            if hasattr(inner, name):
                setattr(self, name, partial(self._repeated, name))
        for name in _LISTED:
            if hasattr(inner, name):
                setattr(self, name, partial(self._listed, name))
        if isinstance(inner, Paging):
            self.scan_pages = partial(self._scanned, "scan_pages")
        if isinstance(inner, Limited):
            self.check_name = inner.check_name
        if isinstance(inner, Looking):
            self.look_at = inner.look_at

    def __repr__(self) -> str:
        return repr(self.inner)

    def _repeated(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        return again(lambda: getattr(self.inner, name)(*args, **kwargs), self.on_retry)

    def _listed(self, name: str, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """A listing that fails before its first item begins again; a page further on is the store's own to ask for again."""
        found, first = again(lambda: _begun(getattr(self.inner, name)(*args, **kwargs)), self.on_retry)
        yield from first
        yield from found

    def scan(self, folder: str = "", **kwargs: Any) -> Iterator[Entry | Folder | Trouble]:
        return self._scanned("scan", folder, **kwargs)

    def _scanned(self, name: str, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """The listing of a directory, of which what was busy is looked up once more."""
        for item in self._listed(name, *args, **kwargs):
            if item.__class__ is Trouble and item.kind == "busy":
                found = self._repeated("stat", item.name)
                if found is not None:  # else it was deleted since
                    yield found
            else:
                yield item

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        for request, content in self.inner.read_many(requests):
            yield request, self._asked_again(request, content) if isinstance(content, Busy) else content

    def _asked_again(self, request: ReadRequest, answer: Content | None) -> Content:
        def read() -> Content:
            nonlocal answer
            found, answer = answer, None
            if found is None:
                ((_, found),) = self.inner.read_many([request])
            if isinstance(found, Busy):
                raise TransientError(f"cannot read {self.url}/{request.name}: {found}")
            return found

        return again(read, self.on_retry)

    def rename(self, old: str, new: str) -> None:
        def renamed() -> bool:
            self.inner.rename(old, new)
            return True

        again(renamed, self.on_retry, lambda: self._repeated("stat", new) is not None or None)


def _begun(items: Iterator[T]) -> tuple[Iterator[T], tuple[T, ...]]:
    for item in items:
        return items, (item,)
    return items, ()
