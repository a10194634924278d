"""S3, of AWS or of any service that speaks it and honours `If-None-Match: *` and multipart uploads.

All requests go by connections of quire's own. Reads, looks, writes and listings are signed here (`s3.read`); other changes, and writes that
have options of the user's, are made and signed by boto3 (`s3.transport`), which tries nothing again: `Retrying` does that for all stores.
The version of an object is its etag, on which every read of many is conditioned.

It has no rename: a copy and a delete are not a rename. An object that is long is uploaded in parts that nobody sees; `create` completes
them when it is closed, `upload` leaves it to whoever completes the upload, in any process. Parts that nobody completes or gives up
stay, and cost, until a life-cycle rule of the bucket takes them. Earlier versions of objects are not listed.
An empty object whose name ends in `/` stands for a directory, and is not a file.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

from quire.errors import FormatError, NotFoundError, StorageError
from quire.storage import base, slices, window
from quire.storage.asking import Onward
from quire.storage.base import Content, Entry, Files, Folder, ReadRequest, Trouble, fits, instant, leaves_room
from quire.storage.objects import Objects, part, whole
from quire.storage.retry import again
from quire.storage.s3 import delete as batches
from quire.storage.s3 import read as s3_read
from quire.storage.s3.account import SILENCE, account, normalise, parts
from quire.storage.s3.errors import code_of, explained
from quire.storage.s3.listing import S3Page, in_columns, pages, parsed
from quire.storage.s3.read import Signer
from quire.storage.s3.single import NOT_MET, Single
from quire.storage.s3.upload import Pieces, S3Upload
from quire.storage.wire import Wire

__all__ = ["S3Store", "normalise", "opened"]

EMPTY = "d41d8cd98f00b204e9800998ecf8427e"  # the etag of nothing
PAGE = 1000  # names, the most that the service gives at once
LONGEST = 1024  # bytes of a key
WHOLE, SHARE = 4 << 30, 1 << 30  # bytes that are copied by one request, of which the service takes 5 GiB, and those of a part beyond
COPYING = 4  # parts of one object at once
_TAKEN, _GONE, _CHANGED = ("PreconditionFailed", "412"), ("NoSuchKey", "404"), NOT_MET
_HEADERS = {"IfNoneMatch": "if-none-match", "IfMatch": "if-match"}
# Where the next page of a listing begins: the arguments, each of which is in the page before as `Next…`.
_MARKS = {
    "list_multipart_uploads": ("KeyMarker", "UploadIdMarker"), "list_parts": ("PartNumberMarker",),
}  # fmt: skip


def opened(url: str, options: Mapping[str, object] | None) -> S3Store:
    """The store at a normalised URL."""
    return S3Store(url, options)


def named(url: str, options: Mapping[str, object] | None) -> str:
    """The bucket of a URL, with whose it is, unless it is AWS."""
    bucket, found = parts(url)[0], account(options)
    return f"{bucket}@{found.host}" if found.endpoint else bucket


class S3Store(Objects):
    """Objects below a path of one bucket."""

    pieces_expire = False
    service, uploads = "S3", S3Upload

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.bucket, path = parts(url)
        super().__init__(url, path)
        self.account = account(options)
        self.single, self.flight = Single(self.account, self.bucket), window.flight(options)
        self._in_order = not self.bucket.endswith("--x-s3")  # a directory bucket lists in an order of its own

    def _new(self, name: str) -> str:
        """The key of an object that is to be written."""
        key = self._key(name)
        if len(key.encode()) > LONGEST:
            raise StorageError(f"cannot write {self.shown(name)[:200]}…: a name has at most {LONGEST:,} bytes there. Choose a shorter one.")
        return key

    def _do(self, operation: str, doing: str, name: str, answers: tuple[str, ...] = (), **kwargs: Any) -> Any:
        """One request of boto3. A refusal with one of the codes `answers` is the answer (that code); others are explained."""
        # boto3 is there, or the client was refused in one line; so its errors are known by what they carry, not by their class.
        client = self.account.client()
        try:
            return getattr(client, operation)(Bucket=self.bucket, **kwargs)
        except Exception as e:
            if (code := code_of(e)) in answers and code:
                return code
            raise explained(f"cannot {doing} {self.shown(name)}", e, self.account.host, self.bucket) from None

    # ---------------------------------------------------------------------------------------------------------- reading
    def stat(self, name: str) -> Entry | None:
        try:
            headers = self.single.read(f"cannot look up {self.shown(name)}", self._key(name), "HEAD").headers
        except NotFoundError:
            return None
        try:
            changed = _moment(parsedate_to_datetime(headers["Last-Modified"]))
            entry = Entry(name, int(headers["Content-Length"]), headers["ETag"].strip('"'), changed)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise _strange("look up", self, name) from None
        return None if self._cut_off(entry) else entry

    def is_folder(self, name: str = "") -> bool:
        return bool(next(self._pages(name, doing="look up", most=1)).objects)

    def _paged(self, operation: str, doing: str, name: str, **asked: Any) -> Iterator[Any]:
        """The pages of a listing; one that fails is asked for again, not those before it. They end where an upload is gone."""

        def ask() -> Any:
            return self._do(operation, doing, name, ("NoSuchUpload",), **asked)

        page, way = ask(), Onward(f"cannot {doing} {self.shown(name)}")
        while not isinstance(page, str):
            yield page
            if not page.get("IsTruncated"):
                return
            asked |= _further(f"{way.what}: {self.account.host}", page, _MARKS[operation], asked)
            way.to(repr(asked))
            page = again(ask)

    def _pages(
        self, folder: str, parse: Callable[[bytes], S3Page] = parsed, *, doing: str = "list", most: int = 0, level: bool = False,
        start: str = "",
    ) -> Iterator[S3Page]:  # fmt: skip
        """The pages of what is below a directory, or of one level; `start`: a key behind which to begin."""
        wanted = {"prefix": self._below(folder), "delimiter": "/" if level else "", "start-after": start}
        wanted["max-keys"] = str(min(most, PAGE)) if most else ""
        given = {name: value for name, value in wanted.items() if value}
        return pages(self.account, self.bucket, f"cannot {doing} {self.shown(folder)}", given, parse)

    def _level(self, folder: str, after: str = "", most: int = 0, parse: Callable[[bytes], S3Page] = parsed) -> Iterator[Any]:
        """The pages of one level from about `after` on: the last parts of names, and what they are."""
        below, cut = self._below(folder), len(self.root)
        begin = self._in_order and slices.plain(after) and slices.just_before(after)
        for page in self._pages(folder, parse, most=most, level=True, start=below + begin if begin else ""):
            objects = ((found.name, self._entry(found)) for found in page.objects)
            yield [*slices.level(below, cut, page.prefixes, objects), *slices.columns(below, cut, page.files)]

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        if self._in_order:
            return slices.within(self._level(folder, after), folder, after, until, self.is_folder)
        return (item for page in self._level(folder) for last, item in page if last >= after and (not until or last < until))

    def scan_pages(
        self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False
    ) -> Iterator[Files | Entry | Folder | Trouble]:  # fmt: skip
        pages = self._level(folder, after, parse=in_columns)
        return slices.within(pages, folder, after, until, self.is_folder) if self._in_order else self.scan(folder, after=after, until=until)

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        return slices.first_of(self._level(folder, after, most), after, most) if self._in_order else None

    def _entry(self, found: Entry) -> Entry:
        return Entry(found.name[len(self.root) :], found.size, found.version, found.modified)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        for page in self._pages(folder):
            for found in page.objects:
                entry = self._entry(found)
                if not self._cut_off(entry) and (entry.size or not found.name.endswith("/")):  # that of the root has no name here
                    yield entry

    def _cut_off(self, entry: Entry) -> bool:
        """Whether an object is none: SeaweedFS keeps an empty one of a write that was cut off before its first byte.

        Only of what decides between writers can this be told: it is never written empty.
        """
        return not entry.size and entry.name.startswith(f"{self.state}/") and entry.name.endswith(base.ENTRY)

    def get(self, name: str) -> bytes:
        data = whole(self.shown(name), lambda most: self.single.read(f"cannot read {self.shown(name)}", self._key(name), most=most))
        if not data and self._cut_off(Entry(name, 0, "", 0)):
            raise NotFoundError(f"cannot read {self.shown(name)}: it was never written")
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        what, key = f"cannot read {self.shown(name)}", self._key(name)
        if length <= 0:
            self.single.read(what, key, "HEAD")
            return b""
        found = self.single.read(what, key, part=f"bytes={start}-{start + length - 1}", answers=(416,), most=length)
        return part(what, found, start, length)

    def look_at(self, names: Sequence[str]) -> Iterator[tuple[str, Entry | None]]:
        signer = Signer.of(self.account, self.bucket, f"cannot look up {self.url}")
        for name, size, tag, at in s3_read.heads(signer, self.root, self.url, names, self.flight):
            entry = None if tag is None else Entry(name, size, tag, _moment(at))
            yield name, None if entry is None or self._cut_off(entry) else entry

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        signer = Signer.of(self.account, self.bucket, f"cannot read {self.url}")
        yield from window.read(requests, lambda: s3_read.opened(signer, self.root, self.url), self.flight)

    # ---------------------------------------------------------------------------------------------------------- writing
    def put(self, name: str, data: bytes) -> None:
        self._written(name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self._written(name, data, IfNoneMatch="*"):
            return True
        # Where there is none, it was removed since, or is what a write has left that was cut off: of those who replace that, one wins.
        return self.stat(name) is None and self.put_if(name, data, EMPTY)

    def put_if(self, name: str, data: bytes, version: str) -> bool:
        return version.isascii() and version.isprintable() and self._written(name, data, IfMatch=f'"{version}"')

    def _written(self, name: str, data: bytes, **condition: str) -> bool:
        """Write an object; False: a condition is not met (IfNoneMatch or IfMatch)."""
        key, what, more = self._new(name), f"cannot write {self.shown(name)}", self.account.of_writes
        fits(self.shown(name), data)
        if more:  # boto3 knows how these are spelled
            return not isinstance(self._do("put_object", "write", name, _CHANGED, Key=key, Body=data, **condition, **more), str)
        return self.single.write(what, key, data, {_HEADERS[each]: value for each, value in condition.items()})

    def begin(self, name: str) -> str:
        """Begin an upload; its id."""
        begun = self._do("create_multipart_upload", "write", name, Key=self._key(name), **self.account.of_writes)
        return _told("write", self, name, begun.get("UploadId"))

    def _wire(self) -> Wire:
        return self.account.wire(SILENCE)

    def complete(self, name: str, handle: str) -> bool:
        pieces, key = Pieces.read(handle, self.shown(name)), self._key(name)
        if not pieces.parts:
            raise FormatError(f"the handle of an upload of {self.shown(name)} names no parts: nothing was touched. Look who wrote it.")
        listed = {"Parts": [{"PartNumber": i, "ETag": f'"{etag}"'} for i, etag in enumerate(pieces.parts, 1)]}
        kwargs: dict[str, Any] = {"Key": key, "UploadId": pieces.upload, "MultipartUpload": listed}
        found = self._do("complete_multipart_upload", "publish", name, ("NoSuchUpload",), **kwargs)
        if not isinstance(found, str) and found.get("ETag"):
            return True
        # Completed by a call before this one, whose answer may not have arrived, or dropped: look what is there.
        there = self.stat(name)
        if there is not None and there.size != pieces.size:
            raise StorageError(
                f"cannot publish {self.shown(name)}: another object has taken its name. Look who wrote it, and move it away."
            )
        if there is None and not isinstance(found, str):
            raise _strange("publish", self, name)
        return there is not None

    def give_up(self, name: str, handle: str) -> None:
        pieces = Pieces.read(handle, self.shown(name))
        self._do("abort_multipart_upload", "give up", name, ("NoSuchUpload",), Key=self._key(name), UploadId=pieces.upload)

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        return ((name, handle) for name, handle, _ in self._begun(folder))

    def _begun(self, folder: str) -> Iterator[tuple[str, str, int]]:
        """The open uploads: names, handles, and when they began (ns since 1970)."""
        below = self._below(folder)
        for page in self._paged("list_multipart_uploads", "list the uploads of", folder, Prefix=below):
            for found in page.get("Uploads", ()):
                if found["Key"].startswith(below):
                    yield found["Key"][len(self.root) :], Pieces(found["UploadId"]).handle(), _moment(found["Initiated"])

    def waiting(self, folder: str = "") -> Iterator[tuple[str, str, int, int, int]]:
        """`pending`, with what each upload holds: (name, handle, parts, their bytes, ns since 1970 when the last one came or it began)."""
        for name, handle, begun in self._begun(folder):
            upload = Pieces.read(handle, self.shown(name)).upload
            pages = list(self._paged("list_parts", "list the parts of", name, Key=self._key(name), UploadId=upload))
            if pages and not pages[-1].get("IsTruncated"):  # else it was completed or aborted meanwhile
                parts = [part for page in pages for part in page.get("Parts", ())]
                newest = max((_moment(part["LastModified"]) for part in parts), default=begun)
                yield name, handle, len(parts), sum(part["Size"] for part in parts), max(begun, newest)

    def copy(self, old: str, new: str, version: str = "") -> bool:
        there, key = self.stat(old), self._new(new)
        if there is None or (version and there.version != version):
            return False
        source: dict[str, Any] = {"CopySource": {"Bucket": self.bucket, "Key": self._key(old)}, "CopySourceIfMatch": f'"{there.version}"'}
        if there.size > WHOLE:
            return self._copy_parts(new, there.size, source)
        found = self._do("copy_object", "publish", new, _CHANGED, Key=key, **source, **self.account.of_writes)
        return not isinstance(found, str) and bool(_told("publish", self, new, found.get("CopyObjectResult", {}).get("ETag")))

    def _copy_parts(self, new: str, size: int, source: dict[str, Any]) -> bool:
        """Copy what is too long for one request: in parts that nobody sees before all of them are there."""
        upload, key = again(lambda: self.begin(new)), self._key(new)

        def part(number: int) -> str | None:
            span = f"bytes={number * SHARE}-{min(size, (number + 1) * SHARE) - 1}"
            kwargs = {"Key": key, "UploadId": upload, "PartNumber": number + 1, "CopySourceRange": span, **source}
            answer = again(lambda: self._do("upload_part_copy", "publish", new, _CHANGED, **kwargs))
            copied = None if isinstance(answer, str) else answer.get("CopyPartResult", {}).get("ETag")
            return None if isinstance(answer, str) else _told("publish", self, new, copied).strip('"')

        try:
            with ThreadPoolExecutor(COPYING) as pool:
                etags = list(pool.map(part, range(-(-size // SHARE))))
            if None not in etags:
                return self.complete(new, Pieces(upload, tuple(etag or "" for etag in etags), size).handle())
        except BaseException:
            with suppress(StorageError):  # else the clean-up of its job finds it
                self.give_up(new, Pieces(upload).handle())
            raise
        self.give_up(new, Pieces(upload).handle())
        return False

    def check_writable(self) -> None:
        leaves_room(self.url, len(self.root.encode()), LONGEST)
        next(self._pages("", doing="write below", most=1))

    def remove_if(self, name: str, version: str) -> bool:
        """A look before, too: not every service that speaks S3 knows the condition. In a bucket with versions the object is only hidden."""
        found = self.stat(name)
        if found is None or found.version != version:
            return found is None
        return self._do("delete_object", "remove", name, _CHANGED, Key=self._key(name), IfMatch=f'"{version}"') not in _TAKEN

    def _delete(self, key: str) -> None:
        self._do("delete_object", "remove", key[len(self.root) :], _GONE, Key=key)

    def remove_all(self, names: Sequence[str]) -> None:
        batches.delete([self._key(name) for name in names], self._batch, self._delete_surely)

    def _batch(self, asked: dict[str, Any]) -> Any:
        return self._do("delete_objects", "remove", "", batches.UNKNOWN, Delete=asked)

    def remove_tree(self, folder: str) -> None:
        batches.delete_below(self._pages(folder), self._key(folder) + "/", self._batch, self._delete_surely)


def _told(doing: str, store: S3Store, name: str, found: object) -> str:
    """A part of an answer; StorageError where it is missing: the answer is not the service's, so nothing may have been done."""
    if not found:
        raise _strange(doing, store, name)
    return str(found)


def _strange(doing: str, store: S3Store, name: str) -> StorageError:
    return StorageError(f"cannot {doing} {store.shown(name)}: {store.account.host} did not answer as S3 does. Check endpoint_url.")


def _moment(at: Any) -> int:
    """A time as boto3 gives it → ns since 1970, in whole seconds: looks at single objects tell no more."""
    return instant(calendar.timegm(at.utctimetuple()) * 1_000_000_000)


def _further(who: str, page: Mapping[str, Any], marks: Iterable[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the page behind this one, which was `asked` for so."""
    found = {mark: page.get(f"Next{mark}") for mark in marks}
    if None in found.values() or found.items() <= asked.items():
        raise StorageError(f"{who} does not say where its list goes on. Look at the service, and the proxy between.")
    return found
