"""The interface of a store. Another store is another file beside this one that implements `Store`.

A store is rooted: it is opened at a URL, and every name it takes or gives is relative to that root, with `/` between its
parts. No name leads out of the root, whatever a log entry or a manifest says.

The protocol needs this from every store: a GET sees a PUT that was answered; `put_if_absent` shows the whole content or nothing
and lets exactly one writer win; a write may end as unknown (then it is repeated); a listing may miss what is created while it
runs. `rename` is atomic or is not offered (`can_rename`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol, runtime_checkable

from quire.errors import FormatError, StorageError
from quire.storage import threads

STATE = "_quire"  # below it lie quire's own objects, and above it data files
ENTRY = ".entry"  # ends the name of what decides between writers: it is put if absent, and never empty
LONGEST = 4096  # characters of a name, in any store
OURS = 200  # bytes of the longest name that quire gives below a destination, but for the source's directories
AT_ONCE = 16  # requests that are on their way together
LARGEST = 1 << 30  # bytes of an object that is held whole: far beyond any plan or segment, and a forged one must not fill the memory


class Entry(NamedTuple):
    """A file: its name below the store's root, bytes, version and last change (ns since 1970 UTC; 0: not known, or see `instant`).

    The version is empty where the store tells nothing by which one content differs from another: such files are known by content alone.
    """

    name: str
    size: int
    version: str
    modified: int


class Files(NamedTuple):
    """Files that a listing has shown together, column by column, as `Entry` has them: of millions, nothing is made of each."""

    names: list[str]
    sizes: list[int]
    versions: list[str]
    modified: list[int]

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> Files:
        """Those that came by themselves."""
        names, sizes, versions, modified = zip(*entries, strict=True) if entries else ((), (), (), ())
        return cls(list(names), list(sizes), list(versions), list(modified))

    def take(self, rows: Sequence[int]) -> Files:
        """Some of them."""
        names, sizes, versions, modified = self
        return Files([names[i] for i in rows], [sizes[i] for i in rows], [versions[i] for i in rows], [modified[i] for i in rows])

    def without(self, rows: Sequence[int]) -> Files:
        """The others."""
        gone = set(rows)
        return self.take([i for i in range(len(self.names)) if i not in gone])

    def add(self, more: Files) -> None:
        """Others, behind these."""
        self.names.extend(more.names)
        self.sizes.extend(more.sizes)
        self.versions.extend(more.versions)
        self.modified.extend(more.modified)

    def cut(self, most: int) -> Files:
        """Take the first ones out."""
        first = Files(self.names[:most], self.sizes[:most], self.versions[:most], self.modified[:most])
        del self.names[:most], self.sizes[:most], self.versions[:most], self.modified[:most]
        return first

    def entries(self) -> Iterator[Entry]:
        """Each by itself."""
        return map(Entry, *self)


class Folder(NamedTuple):
    """A directory below the one that was scanned."""

    name: str


class Trouble(NamedTuple):
    """Something that a scan met and cannot list: a directory without permission, a link, a device."""

    name: str
    kind: str  # "unreadable" | "link" | "special" | "busy": it may be looked up a moment later
    reason: str


class ReadRequest(NamedTuple):
    """Read `length` bytes from `start` of the file `name`, on condition that its version is still `version`."""

    name: str
    version: str
    size: int
    start: int
    length: int


class Vanished(Exception):
    """The file vanished, or is not the version that was planned: it is deferred, not quarantined."""


class Unreadable(Exception):
    """The store has the file and does not let it be read: it is quarantined."""


class Busy(Unreadable):
    """Not now: a moment later the same request may be answered."""


Stream = Iterator[bytes]
# The answer to a request: all its bytes, or a stream of them where they are many (which may still raise Vanished at its end).
Content = bytes | Stream | Vanished | Unreadable


class Sink(Protocol):
    """A new object that is being written and that no listing for readers shows."""

    def write(self, data: bytes | memoryview) -> None:
        """Append `data`."""
        ...

    def close(self) -> None:
        """Make what was written durable."""
        ...

    def discard(self) -> None:
        """Stop without making it durable; the object may stay until its attempt's folder is cleaned."""
        ...


def held(sink: Sink) -> int:
    """Bytes that a sink keeps in memory until they are sent; one that says nothing of it keeps none."""
    return int(getattr(sink, "held", 0))


class Upload(Sink, Protocol):
    """A new object whose pieces wait in the store, seen by nobody, until somebody completes it; `discard` gives them up."""

    handle: str  # empty until it is closed; then all that `complete` and `give_up` need beside the name, in any process; no secret


class Store(Protocol):
    """A storage system, opened at a URL."""

    url: str  # normalised root, without a slash at its end and without secrets
    can_rename: bool  # rename is one atomic step
    can_upload: bool  # pieces wait unseen under their final name: upload, complete, give_up and pending are there
    pieces_expire: bool  # nobody can drop an upload's pieces: `give_up` does nothing, the service does it after some days
    shared: bool  # other processes see it

    # reading
    def stat(self, name: str) -> Entry | None:
        """The file of that name, or None."""
        ...

    def is_folder(self, name: str = "") -> bool:
        """Whether there is a directory of that name (a store without directories: anything below it)."""
        ...

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        """One level below `folder` as a stream, in the store's own order; files only of names in [after, until) where given.

        `until=""` means no upper bound. Every directory with a name in [after, until) is given, and others may be.
        """
        ...

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        """The last parts of the names one level below `folder`, with whether each is a directory; sizes are not looked up.

        A name that no path can express (`a//b`) is there as `.`, for it is to be told where the directory is scanned.
        """
        ...

    def walk(self, folder: str = "") -> Iterator[Entry]:
        """Every file below `folder`, also in its directories; nothing where there is none."""
        ...

    def get(self, name: str) -> bytes:
        """The whole object; NotFoundError if there is none."""
        ...

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """At most `length` bytes from `start` (fewer at the end of the object)."""
        ...

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        """Answer the requests in their order; an answer that is a stream is used up before the next one is asked for."""
        ...

    # writing
    def put(self, name: str, data: bytes) -> None:
        """Write a whole object under a name that no other writer uses."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write a whole object unless the name is taken; False: it is taken. Whoever reads it sees all of it."""
        ...

    def create(self, name: str) -> Sink:
        """Begin an object that is written piece by piece."""
        ...

    def upload(self, name: str) -> Upload:
        """Begin an object that is written piece by piece, and that is not there until it is completed."""
        ...

    def complete(self, name: str, handle: str) -> bool:
        """Let an upload become its object in one step, as often as you like; False: its pieces are gone, and no object is there."""
        ...

    def give_up(self, name: str, handle: str) -> None:
        """Drop the pieces of an upload, if there are any; a completed object stays."""
        ...

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        """The uploads below `folder` that are neither completed nor given up, as (name, a handle that `give_up` takes)."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Move an object in one step; NotFoundError if `old` is not there."""
        ...

    def check_writable(self) -> None:
        """Raise StorageError if it is plain beforehand that nothing can be written here."""
        ...

    def remove(self, name: str) -> None:
        """Delete an object; nothing happens if there is none."""
        ...

    def remove_tree(self, folder: str) -> None:
        """Delete everything below a directory, and the directory where the store has such a thing."""
        ...

    def sweep(self, folder: str) -> None:
        """Delete what dead writers left below `folder` that never was an object; a living writer makes its own again."""
        ...


@runtime_checkable
class Seeking(Protocol):
    """Optional: listings come in the order of names, and begin at any of them.

    A directory of millions of names is then cut into slices that nobody has to look at beforehand, and `scan` of a slice asks for no more
    than the slice. A store without it is looked at from the beginning to the end.
    """

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        """The first names one level below `folder`, from `after` on, with whether each is a directory; fewer than `most`: that is all.

        None: it cannot be had here. A service may begin elsewhere than it was asked to: compare what comes with a name that is there.
        """
        ...


@runtime_checkable
class Paging(Protocol):
    """Optional: listings whose files come column by column, a page at a time."""

    def scan_pages(
        self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False
    ) -> Iterator[Files | Entry | Folder | Trouble]:  # fmt: skip
        """As `Store.scan`; most files come together."""
        ...


@runtime_checkable
class Looking(Protocol):
    """Optional: many objects are looked up at once, sooner than one by one."""

    def look_at(self, names: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
        """Each name as `Store.stat` has it; a name that cannot be looked up so is left out, and `stat` says why."""
        ...


@runtime_checkable
class Limited(Protocol):
    """Optional: the store says beforehand that no object can be written under a name."""

    def check_name(self, name: str) -> None:
        """Raise StorageError, or FormatError, for a name that is too long, or that the service does not take."""
        ...


@runtime_checkable
class Scattered(Protocol):
    """Optional: many places of one object are read by one call, each of them as quickly as if it stood alone."""

    def get_ranges(self, name: str, places: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes at each (start, length), as `Store.get_range` gives them."""
        ...


@runtime_checkable
class Conditional(Protocol):
    """Optional: deleting an object in one step on condition of its version."""

    def remove_if(self, name: str, version: str) -> bool:
        """Delete an object if it has this version; True: it is not there any more, False: it has another one, and stays."""
        ...


@runtime_checkable
class Batching(Protocol):
    """Optional, for a store that deletes many objects by one request."""

    def remove_all(self, names: Sequence[str]) -> None:
        """Delete objects; those that are not there do no harm."""
        ...


def remove_all(store: Store, names: Sequence[str]) -> None:
    """Delete objects, many at once."""
    if isinstance(store, Batching):
        store.remove_all(names)
        return
    threads.each(store.remove, names, AT_ONCE)


def at_once(*calls: Callable[[], object]) -> None:
    """Make requests of which none needs another, together; the first error of any is raised once all have ended."""
    if len(calls) < 2:
        for call in calls:
            call()
        return
    with ThreadPoolExecutor(min(AT_ONCE, len(calls))) as pool:
        coming = [pool.submit(call) for call in calls]
    for each in coming:
        each.result()


@runtime_checkable
class Replacing(Protocol):
    """Optional: replacing an object in one step on condition of its version, as locks of other programs need it."""

    def put_if(self, name: str, data: bytes, version: str) -> bool:
        """Write a whole object in the place of the one that has this version; False: it has another one, or is gone, and stays so."""
        ...


@runtime_checkable
class Beside(Protocol):
    """Optional, for a store that renames a file before it deletes it (`storage.aside`): the way back."""

    def give_back(self, private: str, name: str) -> bool:
        """Give a file its name back, in the same directory, if it is there; False: something else has the name, and both stay."""
        ...


def remove_version(store: Store, name: str, version: str) -> bool:
    """`remove_if`, in a store without it: a look just before. A file rewritten between the two is deleted (docs/ledger.md says so)."""
    if isinstance(store, Conditional):
        return store.remove_if(name, version)
    entry = store.stat(name)
    if entry is not None and entry.version != version:
        return False
    store.remove(name)
    return True


@runtime_checkable
class Copying(Protocol):
    """Optional, for a store without a rename: it copies a whole object by itself, so that no byte passes through the client.

    With it, what a user's own job has written as objects can be published there (the committer `copy`).
    """

    def copy(self, old: str, new: str, version: str = "") -> bool:
        """Let `new` be a copy of `old`, as often as you like; who reads it sees all of it, once this is answered.

        False: `old` does not exist, or it has another version than `version` (if given); then nothing was done.
        """
        ...


@runtime_checkable
class Syncing(Protocol):
    """Optional, for a store whose objects others can write, too: it makes their files survive a power cut."""

    def sync(self, name: str) -> None:
        """Make an object durable that somebody else has written."""
        ...


@runtime_checkable
class Lasting(Protocol):
    """Optional, for a store whose deletions a power cut may undo: it makes them last."""

    def sync_folder(self, folder: str) -> None:
        """Make last what was deleted one level below a directory, also where that is gone itself."""
        ...


def walked(scan: Callable[[str], Iterable[Entry | Folder | Trouble]], folder: str, shown: Callable[[str], str]) -> Iterator[Entry]:
    """`walk`, for a store that lists one directory after the other: what cannot be listed is an error, not left out."""
    waiting = [folder]
    while waiting:
        for item in scan(waiting.pop()):
            if isinstance(item, Folder):
                waiting.append(item.name)
            elif isinstance(item, Entry):
                yield item
            elif item.kind == "unreadable":
                raise StorageError(f"{shown(item.name)}: {item.reason}. Ask for the right to read it.")


class Rooted:
    """The base of a store: how it is shown, and where it makes temporary files of its own, if it makes any."""

    url: str
    state: str = STATE  # another one in a table (`storage.within`)

    @property
    def temporary(self) -> str:
        """The directory of those files; whoever sweeps it may take all of them at any time."""
        return f"{self.state}/tmp"  # noqa: S108 - below the root

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def shown(self, name: str) -> str:
        """The URL of an object, as errors name it."""
        return f"{self.url}/{name}" if name else self.url


class WithoutUploads(Rooted):
    """The base of a store that cannot hold uploads. No committer asks for them where `can_upload` is False."""

    can_upload = pieces_expire = False

    def upload(self, name: str) -> Upload:
        raise self._refused(name)

    def complete(self, name: str, handle: str) -> bool:
        raise self._refused(name)

    def give_up(self, name: str, handle: str) -> None:
        raise self._refused(name)

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        raise self._refused(folder)

    def _refused(self, name: str) -> StorageError:
        return StorageError(f"{self!r} holds no uploads, so not one of {name[:200]!r} either. Use the committer 'rename'.")


def fits(shown: str, data: bytes) -> None:
    """Refuse to write an object that `get` would not read; `shown` is its URL."""
    if len(data) > LARGEST:
        raise StorageError(f"cannot write {shown}: {len(data):,} bytes, of which {LARGEST:,} can be read back. Use a smaller target_size.")


def leaves_room(url: str, length: int, limit: int) -> None:
    """Refuse a destination whose path, of `length` bytes, leaves no room for names below it where a store takes `limit` of them."""
    if length + OURS > limit:
        raise StorageError(
            f"cannot write below {url[:200]}…: the path has {length:,} bytes, and names of {limit:,} are the longest here, of which quire "
            f"needs {OURS} below it. Choose a shorter one."
        )


def not_a_handle(handle: str, shown: str) -> FormatError:
    """The error for a handle that no upload has: a log's entry may be damaged or forged."""
    return FormatError(f"{handle[:80]!r} is not the handle of an upload of {shown}: nothing was touched. Look who wrote it.")


def too_long(shown: str) -> FormatError:
    """The error for an object that is not held whole."""
    return FormatError(f"{shown} is longer than {LARGEST:,} bytes, as no object of quire's is: it was not read.")


def instant(ns: int) -> int:
    """A time as a store tells it, in ns since 1970, if 64 bits hold it (years 1678 to 2261); else 0, not known, and never another time."""
    return ns if -(1 << 63) < ns < 1 << 63 else 0


def safe(name: str) -> str:
    """Return `name` if it stays below the root, else raise FormatError: names come from logs that somebody may have forged."""
    if len(name) > LONGEST:
        raise FormatError(f"the name {name[:200]!r}… has {len(name):,} characters: nothing was touched. Look who wrote it.")
    if not is_safe(name):
        raise FormatError(f"the name {name[:200]!r} leads out of its store: nothing was touched. Look who wrote it.")
    return name


def is_safe(name: str) -> bool:
    """Whether a name stays below the root of its store."""
    return len(name) <= LONGEST and "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))
