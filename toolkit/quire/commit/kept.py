"""The store of a destination as readers of older versions see it: a data file that was superseded is read where it is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from quire.commit.retire import places
from quire.errors import NotFoundError
from quire.storage import Entry, Store

T = TypeVar("T")


class Kept:
    """A store that looks among the kept files for what is not in its place, and is any other store otherwise.

    A file may move between two of a reader's requests: each of them looks.
    """

    def __init__(self, store: Store, places: Mapping[str, str]) -> None:
        self._store, self._places = store, places

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)  # also while it is copied, when it has no store
        return getattr(self._store, name)

    def stat(self, name: str) -> Entry | None:
        try:
            return self._found(name, self._there)
        except NotFoundError:
            return None

    def get(self, name: str) -> bytes:
        return self._found(name, self._store.get)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._found(name, lambda place: self._store.get_range(place, start, length))

    def _there(self, name: str) -> Entry:
        found = self._store.stat(name)
        if found is None:
            raise NotFoundError(f"{self._store.url}/{name} does not exist")
        return found

    def _found(self, name: str, read: Callable[[str], T]) -> T:
        try:
            return read(self._places.get(name, name))
        except NotFoundError:
            self._places = places(self._store)
            if name not in self._places:
                raise
            return read(self._places[name])


def with_kept(store: Store, places: Mapping[str, str] | None = None) -> Store:
    """The same store, for a reader; `places` of kept files that are known already."""
    return cast("Store", Kept(store, places or {}))
