"""Azure Blob storage, flat or with directories, by its REST interface.

An object is written in blocks that nobody sees until a list of them is put: `create` puts the list when it is closed, `upload` leaves
it to whoever completes the upload. Blocks that no list names are dropped by the service after a week, and by nobody else: to drop them
one would have to put something under the object's name. So `give_up` has nothing to do, and `pending` tells an upload for a week.

The version of a blob is its etag, on which every read of many is conditioned. It has no rename: the service copies.
Snapshots and earlier versions of blobs are not listed. A blob that stands for a directory (`hdi_isfolder`, or an empty one whose name
ends in `/`) is not a file.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from quire.errors import NotFoundError, StorageError, TransientError
from quire.storage import slices, window
from quire.storage.azure import read as azure_read
from quire.storage.azure.account import account, canonical, normalise, parts
from quire.storage.azure.rest import SILENCE, BlobPage, BlobRest, in_columns, moment, parsed
from quire.storage.base import (
    Content,
    Entry,
    Files,
    Folder,
    ReadRequest,
    Trouble,
    fits,
    leaves_room,
    not_a_handle,
    safe,
)
from quire.storage.objects import DELETING, Objects, PiecewiseUpload, part, whole
from quire.storage.retry import again
from quire.storage.sending import Begin
from quire.storage.wire import Wire, bundled

__all__ = ["AzureStore", "canonical", "normalise", "opened"]

BLOCK = 8 << 20  # bytes of a block: 50,000 of them make 390 GiB
BLOCKS = 50_000
COPYING = 600  # seconds until a copy within the account is asked about no more
LONGEST, DEEPEST = 1024, 254  # characters of a name, and its parts

_HANDLE = re.compile(r"[0-9a-f]{32}")


def _prefixes(pages: Iterable[BlobPage]) -> Iterator[tuple[list[str], BlobPage]]:
    """Pages, each with the directories that it is the first to show: what lies below one may go on, and the next page begins with it."""
    before = ""
    for page in pages:
        yield [prefix for prefix in page.prefixes if prefix != before], page
        before = page.prefixes[-1] if page.prefixes else before


def _block(prefix: str, number: int) -> str:
    """The id of a block: all of them have one length, as the service asks, and none is another writer's."""
    return base64.b64encode(f"{prefix}-{number:05}".encode()).decode()


def _listed(prefix: str, count: int) -> bytes:
    blocks = "".join(f"<Uncommitted>{_block(prefix, i)}</Uncommitted>" for i in range(count))
    return f'<?xml version="1.0" encoding="utf-8"?><BlockList>{blocks}</BlockList>'.encode()


def opened(url: str, options: Mapping[str, object] | None) -> AzureStore:
    """The store at a normalised URL."""
    return AzureStore(url, options)


def named(url: str, options: Mapping[str, object] | None) -> str:
    """The account of a URL, as a user knows it: its containers share what it allows."""
    found = account(parts(url)[1], options)
    return found.name or found.host


class AzureUpload(PiecewiseUpload):
    """An object that is uploaded in blocks: it is there once somebody puts their list."""

    most, limit = BLOCKS, f"{BLOCKS * BLOCK >> 30} GiB"

    def __init__(self, store: AzureStore, name: str, *, commit: bool) -> None:
        super().__init__(store, name, commit=commit)
        self._prefix = uuid.uuid4().hex

    def _length(self) -> int:
        return BLOCK

    def _deliver(self, number: int, piece: bytes | memoryview) -> Begin:
        store: AzureStore = self.store
        return store.stage(self.name, _block(self._prefix, number), piece)

    def close(self) -> None:
        self._finish(least=0)
        if self.commit:
            again(lambda: self.store.put_list(self.name, self._prefix, self._number))
        self.handle = json.dumps({"blocks": self._number, "prefix": self._prefix})


class AzureStore(Objects):
    """Blobs below a path of one container."""

    service, uploads = "Azure Blob storage", AzureUpload
    pieces_expire = True  # nobody can drop an upload's pieces: the service does, after a week

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        container, host, path = parts(url)
        super().__init__(url, path)
        self.rest = BlobRest(account(host, options), container)
        self.flight = window.flight(options)

    def _new(self, name: str) -> str:
        """The path of an object that is to be written."""
        path = self._key(name)
        if "\\" in name:
            raise StorageError(f"cannot write {self.shown(name)}: the service takes a backslash for a slash. Choose another name.")
        if len(path) > LONGEST or path.count("/") >= DEEPEST:
            limits = f"{LONGEST:,} characters and {DEEPEST} parts"
            raise StorageError(f"cannot write {self.shown(name)[:200]}…: a name has at most {limits} there. Choose a shorter one.")
        return path

    def _head(self, name: str) -> Mapping[str, str] | None:
        """The headers of a blob; None: it is not there."""
        try:
            return self.rest.send("HEAD", f"cannot look up {self.shown(name)}", self._key(name)).headers
        except NotFoundError:
            return None

    # ---------------------------------------------------------------------------------------------------------- reading
    def stat(self, name: str) -> Entry | None:
        headers = self._head(name)
        if headers is None or _is_marker(headers):
            return None
        return _described(f"cannot look up {self.shown(name)}: {self.rest.account.host}", name, headers)

    def is_folder(self, name: str = "") -> bool:
        below = self._below(name)
        for page in self.rest.pages(f"cannot look up {self.shown(name)}", below, include="", most=1):
            if page.blobs or page.prefixes:
                return True
        headers = self._head(name) if name else None
        return headers is not None and _is_marker(headers)

    def _pages(self, folder: str, after: str, parse: Callable[[bytes], BlobPage] = parsed) -> Iterator[BlobPage]:
        """The pages of one level from `after` on; from the beginning where it cannot be told that the service begins there."""
        what, below = f"cannot list {self.shown(folder)}", self._below(folder)
        if after and slices.plain(after):
            pages = self.rest.pages(what, below, "/", start=below + after, parse=parse)
            for page in pages:
                if page.blobs or page.files.names or page.prefixes:
                    # A service that passes over `start` shows earlier names; one that misunderstands it, others than this one.
                    least = min([blob[0] for blob in page.blobs[:1]] + page.files.names[:1] + page.prefixes[:1])
                    if least <= below + after or least == f"{below}{after}/":
                        yield page
                        yield from pages
                        return
                    break
        yield from self.rest.pages(what, below, "/", parse=parse)

    def _items(self, pages: Iterable[BlobPage], folder: str) -> Iterator[list[tuple[str, slices.Item]]]:
        """Pages of one level: the last parts of names, and what they are."""
        below = self._below(folder)
        for prefixes, page in _prefixes(pages):
            files = ((blob[0], self._entry(*blob[:4])) for blob in page.blobs if not blob[4])
            yield slices.level(below, len(self.root), prefixes, files)

    def _entry(self, name: str, size: int, etag: str, modified: str) -> Entry:
        return Entry(name[len(self.root) :], size, etag, moment(modified))

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        return slices.within(self._items(self._pages(folder, after), folder), folder, after, until, self.is_folder)

    def scan_pages(
        self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False
    ) -> Iterator[Files | Entry | Folder | Trouble]:  # fmt: skip
        below, cut, pages = self._below(folder), len(self.root), _prefixes(self._pages(folder, after, in_columns))
        shown = ([*slices.level(below, cut, prefixes, ()), *slices.columns(below, cut, page.files)] for prefixes, page in pages)
        return slices.within(shown, folder, after, until, self.is_folder)

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        below = self._below(folder)
        pages = self.rest.pages(f"cannot list {self.shown(folder)}", below, "/", most=most, start=below + after if after else "")
        return slices.first_of(self._items(pages, folder), "", most)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        cut = len(self.root)
        for page in self.rest.pages(f"cannot list {self.shown(folder)}", self._below(folder)):
            for name, size, etag, modified, is_folder in page.blobs:
                if not is_folder and slices.UNSAYABLE.isdisjoint(name[cut:].split("/")):
                    yield self._entry(name, size, etag, modified)

    def get(self, name: str) -> bytes:
        return whole(self.shown(name), lambda most: self.rest.send("GET", f"cannot read {self.shown(name)}", self._key(name), most=most))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        what, path = f"cannot read {self.shown(name)}", self._key(name)
        if length <= 0:
            self.rest.send("HEAD", what, path)
            return b""
        asked = {"Range": f"bytes={start}-{start + length - 1}"}
        answer = self.rest.send("GET", what, path, headers=asked, answers=(416,), most=length)
        return part(what, answer, start, length)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        rest = self.rest
        return window.read(requests, lambda: azure_read.opened(rest.account, rest.container, self.root, self.url), self.flight)

    # ---------------------------------------------------------------------------------------------------------- writing
    def put(self, name: str, data: bytes) -> None:
        path = self._new(name)
        fits(self.shown(name), data)
        self.rest.send("PUT", f"cannot write {self.shown(name)}", path, headers={"x-ms-blob-type": "BlockBlob"}, body=data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._new(name)
        fits(self.shown(name), data)
        headers = {"x-ms-blob-type": "BlockBlob", "If-None-Match": "*"}
        answer = self.rest.send("PUT", f"cannot write {self.shown(name)}", path, headers=headers, body=data, answers=_TAKEN)
        return answer.status < 300

    def put_if(self, name: str, data: bytes, version: str) -> bool:
        path = self._new(name)
        fits(self.shown(name), data)
        if not (version.isascii() and version.isprintable()):
            return False  # no blob has such a version
        headers = {"x-ms-blob-type": "BlockBlob", "If-Match": f'"{version}"'}
        answers = (*_TAKEN, "BlobNotFound")
        return self.rest.send("PUT", f"cannot write {self.shown(name)}", path, headers=headers, body=data, answers=answers).status < 300

    def stage(self, name: str, block: str, data: bytes | memoryview) -> Begin:
        """How one block is sent; the same block again does no harm."""
        rest, what = self.rest, f"cannot write {self.shown(name)}"
        return partial(azure_read.staged, rest.account, rest.container, self._key(name), block, data, what)

    def _wire(self) -> Wire:
        return bundled(SILENCE)

    def put_list(self, name: str, prefix: str, count: int, *, absent: bool = False) -> str:
        """Make the blocks an object; with `absent`, unless there is one. Returns the service's code where that was not done."""
        answer = self.rest.send(
            "PUT",
            f"cannot write {self.shown(name)}",
            self._key(name),
            {"comp": "blocklist"},
            {"If-None-Match": "*"} if absent else {},
            _listed(prefix, count),
            answers=(*_TAKEN, "InvalidBlockList") if absent else (),
        )
        return "" if answer.status < 300 else answer.headers.get("x-ms-error-code", "")

    def complete(self, name: str, handle: str) -> bool:
        prefix, count = self._pieces(name, handle)
        if not self.put_list(name, prefix, count, absent=True):
            return True
        # It is taken, or its blocks are gone: both are so after a first call whose answer did not arrive. Look what is there.
        query = {"comp": "blocklist", "blocklisttype": "committed"}
        try:
            found = self.rest.send("GET", f"cannot look up {self.shown(name)}", self._key(name), query).body
        except NotFoundError:
            return False
        there = re.findall(rb"<Name>([^<]*)</Name>", found)
        if there != [_block(prefix, i).encode() for i in range(count)]:
            raise StorageError(
                f"cannot publish {self.shown(name)}: another object has taken its name. Look who wrote it, and move it away."
            )
        return True

    def _pieces(self, name: str, handle: str) -> tuple[str, int]:
        try:
            told = json.loads(handle)
            prefix, count = told["prefix"], told["blocks"]
            if _HANDLE.fullmatch(prefix) and type(count) is int and 0 <= count <= BLOCKS:
                return prefix, count
        except (ValueError, TypeError, KeyError):
            pass
        raise not_a_handle(handle, self.shown(name))

    def give_up(self, name: str, handle: str) -> None:
        """Nothing to do: the service drops blocks that no list names after a week, and what is completed must stay."""
        safe(name)

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        """Uploads below `folder` of the last week; those that were given up, too. The handle is empty: `give_up` needs none."""
        what = f"cannot list the uploads of {self.shown(folder)}"
        for page in self.rest.pages(what, self._below(folder), include="uncommittedblobs"):
            for name, size, _, _, _ in page.blobs:
                below = name[len(self.root) :]
                if not size and slices.UNSAYABLE.isdisjoint(below.split("/")) and self._head(below) is None:
                    yield below, ""  # an empty blob of a listing that is none yet

    def copy(self, old: str, new: str, version: str = "") -> bool:
        what, path, began = f"cannot publish {self.shown(new)}", self._new(new), time.monotonic()
        source = self.rest.account.source(f"/{self.rest.container}/{self._key(old)}")
        while True:
            # Within an account the service copies at once, or nearly so; until it has, the name shows what cannot be read yet.
            state, etag = self._copied(new)
            if state == "success":
                return True
            there = self.stat(old)
            if there is None or (version and there.version != version):
                return False
            if time.monotonic() - began > COPYING:
                raise TransientError(f"{what}: the service is still copying after {COPYING} s")
            if state == "pending":
                time.sleep(1)
                continue
            # A copy that has failed has left its name. What was refused since the source or the name has changed is looked at again.
            headers = {"x-ms-copy-source": source, "x-ms-source-if-match": f'"{there.version}"'}
            headers |= {"If-Match": etag} if etag else {"If-None-Match": "*"}
            refused = (*_TAKEN, "BlobNotFound", "CannotVerifyCopySource", "SourceConditionNotMet", "PendingCopyOperation")
            self.rest.send("PUT", what, path, headers=headers, answers=refused)

    def _copied(self, new: str) -> tuple[str, str]:
        """How far a copy has come, and the etag of what is there: "" none, success, pending, or failed."""
        headers = self._head(new)
        return ("", "") if headers is None else (headers.get("x-ms-copy-status") or "success", headers["ETag"])

    def check_writable(self) -> None:
        leaves_room(self.url, len(self.root), LONGEST)
        what = f"cannot write below {self.url}"
        may = self.rest.account.may
        if may and not set("cw") & set(may):
            raise StorageError(f"{what}: the SAS permits {may!r} alone. Ask for one that may create and write, too (sp=racwdl).")
        for _ in self.rest.pages(what, self._below(""), include="", most=1):
            return

    def remove_if(self, name: str, version: str) -> bool:
        """The service refuses it for a blob with snapshots: they may belong to somebody else."""
        what, headers = f"cannot remove {self.shown(name)}", {"If-Match": f'"{version}"'}
        answer = self.rest.send("DELETE", what, self._key(name), headers=headers, answers=("BlobNotFound", "ConditionNotMet"))
        return answer.status != 412 or self.stat(name) is None

    def _delete(self, path: str) -> None:
        headers = {"x-ms-delete-snapshots": "include"}
        self.rest.send("DELETE", f"cannot remove {self.shown(path[len(self.root) :])}", path, headers=headers, answers=("BlobNotFound",))

    def remove_tree(self, folder: str) -> None:
        below = self._key(folder) + "/"
        folders = list[str]()
        with ThreadPoolExecutor(DELETING) as pool:
            for page in self.rest.pages(f"cannot remove {self.shown(folder)}", below):
                folders += [blob[0] for blob in page.blobs if blob[4]]
                list(pool.map(self._delete_surely, [blob[0] for blob in page.blobs if not blob[4]]))
        for path in sorted(folders, reverse=True):  # what is deeper first
            self._delete_surely(path)

    def create_container(self) -> None:
        """Make the container, unless it is there."""
        what = f"cannot create the container of {self.url}"
        self.rest.send("PUT", what, query={"restype": "container"}, answers=("ContainerAlreadyExists",))


_TAKEN = ("BlobAlreadyExists", "ConditionNotMet")


def _described(who: str, name: str, headers: Mapping[str, str]) -> Entry:
    """A blob, as the answer to a HEAD describes it."""
    try:
        return Entry(name, int(headers["Content-Length"]), headers["ETag"].strip('"'), moment(headers["Last-Modified"]))
    except (AttributeError, LookupError, TypeError, ValueError):
        raise StorageError(f"{who} did not answer as the service does. Check account_host.") from None


def _is_marker(headers: Mapping[str, str]) -> bool:
    """Whether a blob stands for a directory."""
    if headers.get("x-ms-resource-type") == "directory":
        return True
    return headers.get("Content-Length") == "0" and headers.get("x-ms-meta-hdi_isfolder", "").lower() == "true"
