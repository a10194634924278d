"""The store of a table: quire's own objects, which are named `_quire/…` everywhere, lie below `.hoodie/_quire/` in it.

Readers of Hudi take Parquet in any other directory for rows of the table, and look at nothing of quire's there. All above this store speaks
of `_quire/…` as it does elsewhere. Each object has one name: `.hoodie/_quire/…` itself is refused, so that a forged entry of a log cannot
mean by it, as a data file, an object of quire's; and what somebody puts into a `_quire/` beside the table is neither seen nor touched.

The URL of such a destination has a mark before its scheme, `table+s3://bucket/trips`, wherever it is handed on. People never need to write
it (`quire.storage.destination`), and the store's own `url` is the one that they know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from quire.errors import FormatError
from quire.storage.base import STATE, Content, Entry, Folder, ReadRequest, Sink, Store, Trouble, Upload

MARK = "table+"
HOME = ".hoodie"
PLACE = f"{HOME}/{STATE}"
PROPERTIES = f"{HOME}/hoodie.properties"  # makes a directory a table

_OF_ONE_NAME = ("check_name", "remove_if", "put_if", "sync")  # what a store may lack, by its arguments
_OF_TWO_NAMES = ("give_back", "copy")
_OF_NAMES = ("remove_all",)


def plain(url: str) -> str:
    """The URL without the mark of a table."""
    return url.removeprefix(MARK)


def marked(url: str) -> str:
    """The URL with it."""
    return MARK + plain(url)


def is_marked(url: str) -> bool:
    """Whether it has one."""
    return url.startswith(MARK)


def state_of(url: str) -> str:
    """Where quire's own objects lie below a destination."""
    return PLACE if is_marked(url) else STATE


def is_table(store: Store) -> bool:
    """Whether a store is that of a table."""
    return getattr(store, "state", STATE) == PLACE


def _at(name: str) -> str:
    """Where an object or a directory lies in the store."""
    if name.startswith(STATE) and (name == STATE or name[len(STATE)] == "/"):
        return f"{HOME}/{name}"
    if name.startswith(PLACE) and (name == PLACE or name[len(PLACE)] == "/"):
        raise FormatError(f"the name {name[:200]!r} means what is quire's own as the table's: nothing was touched. Look who wrote it.")
    return name


def _to_change(name: str) -> str:
    """The same, of what is written or removed: never the directory that holds the timeline and all that is quire's."""
    if name == HOME:
        raise FormatError(f"{name!r} is the directory of a table's timeline: nothing was touched. Look who wrote that name.")
    return _at(name)


def _named(folder: str, there: str) -> str | None:
    """The name of what the store lists somewhere below `folder`; None: it is not to be seen there."""
    if there.startswith(PLACE) and (there == PLACE or there[len(PLACE)] == "/"):
        return None if folder == HOME else there[len(HOME) + 1 :]
    return None if there == STATE or there.startswith(f"{STATE}/") else there


class Within:
    """A store with quire's own objects below `.hoodie/_quire/`; it offers what the `inner` one does."""

    state = PLACE

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        if hasattr(inner, "state"):
            inner.state = PLACE  # its own temporary files, if it makes any
        self.url, self.shared = inner.url, inner.shared
        self.can_rename, self.can_upload, self.pieces_expire = inner.can_rename, inner.can_upload, inner.pieces_expire
        for names, function in ((_OF_ONE_NAME, self._one), (_OF_TWO_NAMES, self._two), (_OF_NAMES, self._many), (("first",), self._first)):
            for name in names:
                if hasattr(inner, name):
                    setattr(self, name, partial(function, getattr(inner, name)))
        self.check_writable = inner.check_writable

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner!r})"

    @staticmethod
    def _one(function: Any, name: str, *args: Any) -> Any:
        return function(_to_change(name), *args)

    @staticmethod
    def _two(function: Any, one: str, other: str, *args: Any, **kwargs: Any) -> Any:
        return function(_to_change(one), _to_change(other), *args, **kwargs)

    @staticmethod
    def _many(function: Any, names: Iterable[str]) -> Any:
        return function([_to_change(name) for name in names])

    # ---------------------------------------------------------------------------------------------------------- listing
    def _state(self, follow: bool) -> Entry | Folder | Trouble | None:
        """The directory of quire's objects as the root shows it; as a trouble, where a link took its place or it cannot be listed."""
        for item in self.inner.scan(HOME, after=STATE, until=f"{STATE}0", follow=follow):
            if item.name == PLACE or (isinstance(item, Trouble) and item.name == HOME):
                return item._replace(name=STATE)
        return None

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        state = None if folder else self._state(follow)
        if isinstance(state, Entry) and not (after <= STATE and (not until or until > STATE)):
            state = None
        for item in self.inner.scan(_at(folder), after=after, until=until, follow=follow):
            name = _named(folder, item.name)
            if state is not None and item.name > STATE:  # in its place, where the store lists by name
                yield state
                state = None
            if name is not None:
                yield item if name == item.name else item._replace(name=name)
        if state is not None:
            yield state

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        hides = folder in ("", HOME)
        for name, is_folder in self.inner.peek(_at(folder), follow=follow):
            if not (hides and name == STATE):
                yield name, is_folder
        if not folder and (state := self._state(follow)) is not None:
            yield STATE, isinstance(state, Folder)

    def _first(self, first: Any, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        if folder not in ("", HOME):
            found: list[tuple[str, bool]] | None = first(_at(folder), after, most)
            return found
        there = first(folder, after, most + 1)  # one of them may be hidden
        if there is None:
            return None
        found = [item for item in there if item[0] != STATE]
        if not folder and after <= STATE and (state := self._state(follow=False)) is not None:
            found = sorted([*found, (STATE, isinstance(state, Folder))])
        return found[:most]

    def walk(self, folder: str = "") -> Iterator[Entry]:
        for entry in self.inner.walk(_at(folder)):
            name = _named(folder, entry.name)
            if name is not None:
                yield entry if name == entry.name else entry._replace(name=name)

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        for there, handle in self.inner.pending(_at(folder)):
            name = _named(folder, there)
            if name is not None:
                yield name, handle

    # ---------------------------------------------------------------------------------------------------------- reading
    def stat(self, name: str) -> Entry | None:
        entry = self.inner.stat(_at(name))
        return entry and entry._replace(name=name)

    def is_folder(self, name: str = "") -> bool:
        return self.inner.is_folder(_at(name))

    def get(self, name: str) -> bytes:
        return self.inner.get(_at(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.inner.get_range(_at(name), start, length)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        asked = deque[ReadRequest]()  # the store may look some requests ahead, and answers them in their order

        def there() -> Iterator[ReadRequest]:
            for request in requests:
                asked.append(request)
                name = _at(request.name)
                yield request if name is request.name else request._replace(name=name)

        for _, content in self.inner.read_many(there()):
            yield asked.popleft(), content

    # ---------------------------------------------------------------------------------------------------------- writing
    def put(self, name: str, data: bytes) -> None:
        self.inner.put(_to_change(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.inner.put_if_absent(_to_change(name), data)

    def create(self, name: str) -> Sink:
        return self.inner.create(_to_change(name))

    def upload(self, name: str) -> Upload:
        return self.inner.upload(_to_change(name))

    def complete(self, name: str, handle: str) -> bool:
        return self.inner.complete(_to_change(name), handle)

    def give_up(self, name: str, handle: str) -> None:
        self.inner.give_up(_to_change(name), handle)

    def rename(self, old: str, new: str) -> None:
        self.inner.rename(_to_change(old), _to_change(new))

    def remove(self, name: str) -> None:
        self.inner.remove(_to_change(name))

    def remove_tree(self, folder: str) -> None:
        self.inner.remove_tree(_to_change(folder))

    def sweep(self, folder: str) -> None:
        self.inner.sweep(_to_change(folder))
