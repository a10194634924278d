"""S3, of AWS or of any service that speaks it and honours `If-None-Match: *` and multipart uploads.

Single requests go through boto3, which tries nothing again by itself: `Retrying` does that for all stores. Many reads at once have
connections of their own (`s3_read`). The version of an object is its etag, on which every read of many is conditioned.

There is no rename: a copy and a delete are not one. An object that is long is uploaded in parts that nobody sees; `create` completes
them when it is closed, `upload` leaves it to whoever completes the upload, in any process. Parts that nobody completes or gives up
stay, and cost, until a life-cycle rule of the bucket takes them. Earlier versions of objects are not listed.
An empty object whose name ends in `/` stands for a directory, and is no file.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

from quire.errors import FormatError, NotFoundError, StorageError, TransientError
from quire.storage import s3_read, window
from quire.storage.base import Content, Entry, Folder, Request, Sink, Trouble, Upload, safe
from quire.storage.retry import again
from quire.storage.s3_account import account, normalise, parts
from quire.storage.s3_errors import code_of, explained
from quire.storage.s3_upload import Pieces, S3Upload

__all__ = ["S3Store", "normalise", "opened"]

LARGEST = 1 << 30  # bytes of an object that is held whole, as on local disk
DELETING = 16
_MARKED = "an empty part, '.' or '..' in the name, which no path can say: copy it to another name"


def opened(url: str, options: Mapping[str, object] | None) -> S3Store:
    """The store at a normalised URL."""
    return S3Store(url, options)


class S3Store:
    """Objects below a path of one bucket."""

    can_rename = False
    can_upload = True
    pieces_expire = False
    shared = True

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.url = url
        self.bucket, path = parts(url)
        self.root = path + "/" if path else ""
        self.account = account(options)

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def shown(self, name: str) -> str:
        """As errors name it."""
        return f"{self.url}/{name}" if name else self.url

    def _key(self, name: str) -> str:
        return self.root + safe(name)

    def _below(self, folder: str) -> str:
        return f"{self._key(folder)}/" if folder else self.root

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
            found = self._do("head_object", "look up", name, Key=self._key(name))
        except NotFoundError:
            return None
        return Entry(name, found["ContentLength"], found["ETag"].strip('"'), _moment(found["LastModified"]))

    def is_folder(self, name: str = "") -> bool:
        found = self._do("list_objects_v2", "look up", name, Prefix=self._below(name), MaxKeys=1)
        return bool(found.get("Contents"))

    def _pages(self, folder: str, delimiter: str = "") -> Iterator[Any]:
        """The pages of a listing; one that fails is asked for again, not those before it."""
        kwargs: dict[str, Any] = {"Prefix": self._below(folder)} | ({"Delimiter": delimiter} if delimiter else {})

        def ask() -> Any:
            return self._do("list_objects_v2", "list", folder, **kwargs)

        page = ask()
        yield page
        while page.get("IsTruncated"):
            kwargs["ContinuationToken"] = page["NextContinuationToken"]
            page = again(ask)
            yield page

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        start, cut = len(self._below(folder)), len(self.root)
        for page in self._pages(folder, "/"):
            for found in page.get("CommonPrefixes", ()):
                prefix = found["Prefix"]
                if prefix[start:-1] in ("", ".", ".."):
                    yield Trouble(prefix[cut:], "unreadable", _MARKED)
                else:
                    yield Folder(prefix[cut:-1])
            for found in page.get("Contents", ()):
                last = found["Key"][start:]
                if not last and not found["Size"]:
                    continue
                if last in ("", ".", ".."):
                    yield Trouble(found["Key"][cut:], "unreadable", _MARKED)
                elif last >= after and (not until or last < until):
                    yield self._entry(found)

    def _entry(self, found: Any) -> Entry:
        return Entry(found["Key"][len(self.root) :], found["Size"], found["ETag"].strip('"'), _moment(found["LastModified"]))

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        for item in self.scan(folder):
            if not isinstance(item, Trouble):
                yield item.name.rsplit("/", 1)[-1], isinstance(item, Folder)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        for page in self._pages(folder):
            for found in page.get("Contents", ()):
                if found["Size"] or not found["Key"].endswith("/"):
                    yield self._entry(found)

    def get(self, name: str) -> bytes:
        found = self._do("get_object", "read", name, Key=self._key(name))
        if found["ContentLength"] > LARGEST:
            found["Body"].close()
            raise FormatError(f"{self.shown(name)} is longer than {LARGEST:,} bytes, as no object of quire's is: it was not read.")
        return self._body(name, found)

    def _body(self, name: str, found: Any) -> bytes:
        try:
            data: bytes = found["Body"].read()
        except Exception as e:  # of boto3, urllib3 or the socket
            raise TransientError(f"cannot read {self.shown(name)}: the connection was lost ({type(e).__name__})") from None
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            self._do("head_object", "read", name, Key=self._key(name))
            return b""
        asked = f"bytes={start}-{start + length - 1}"
        found = self._do("get_object", "read", name, ("InvalidRange", "416"), Key=self._key(name), Range=asked)
        # A service may answer a range of an empty object with all of it.
        return b"" if isinstance(found, str) else self._body(name, found)[:length]

    def read_many(self, requests: Iterable[Request]) -> Iterator[tuple[Request, Content]]:
        try:
            place = self.account.place(self.bucket)
            if not self.account.anonymous:
                self.account.credentials()
        except StorageError:
            raise
        except Exception as e:  # of boto3
            raise explained(f"cannot read {self.url}", e, self.account.host, self.bucket) from None
        answers = window.read(requests, lambda: s3_read.opened(self.account, place, self.bucket, self.root, self.url))
        with closing(answers):  # type: ignore[type-var]
            yield from answers

    # ---------------------------------------------------------------------------------------------------------- writing
    def _fits(self, name: str, data: bytes) -> None:
        if len(data) > LARGEST:
            raise StorageError(
                f"cannot write {self.shown(name)}: {len(data):,} bytes, of which {LARGEST:,} can be read back. Use a smaller target_size."
            )

    def put(self, name: str, data: bytes) -> None:
        key = self._key(name)
        self._fits(name, data)
        self._do("put_object", "write", name, Key=key, Body=data, **self.account.of_writes)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        key = self._key(name)
        self._fits(name, data)
        taken = ("PreconditionFailed", "412")
        answer = self._do("put_object", "write", name, taken, Key=key, Body=data, IfNoneMatch="*", **self.account.of_writes)
        return not isinstance(answer, str)

    def create(self, name: str) -> Sink:
        safe(name)
        return S3Upload(self, name, commit=True)

    def upload(self, name: str) -> Upload:
        safe(name)
        return S3Upload(self, name, commit=False)

    def begin(self, name: str) -> str:
        """Begin an upload; its id."""
        return str(self._do("create_multipart_upload", "write", name, Key=self._key(name), **self.account.of_writes)["UploadId"])

    def send(self, name: str, upload: str, number: int, data: bytes) -> str:
        """Send one part; its etag."""
        kwargs: dict[str, Any] = {"Key": self._key(name), "UploadId": upload, "PartNumber": number}
        return str(self._do("upload_part", "write", name, Body=data, **kwargs)["ETag"]).strip('"')

    def complete(self, name: str, handle: str) -> bool:
        pieces, key = Pieces.read(handle, self.shown(name)), self._key(name)
        if not pieces.parts:
            raise FormatError(f"the handle of an upload of {self.shown(name)} names no parts: nothing was touched. Look who wrote it.")
        listed = {"Parts": [{"PartNumber": i, "ETag": f'"{etag}"'} for i, etag in enumerate(pieces.parts, 1)]}
        kwargs: dict[str, Any] = {"Key": key, "UploadId": pieces.upload, "MultipartUpload": listed}
        if not isinstance(self._do("complete_multipart_upload", "publish", name, ("NoSuchUpload",), **kwargs), str):
            return True
        # Completed by a call before this one, whose answer may not have arrived, or dropped: look what is there.
        there = self.stat(name)
        if there is not None and there.size != pieces.size:
            raise StorageError(
                f"cannot publish {self.shown(name)}: another object has taken its name. Look who wrote it, and move it away."
            )
        return there is not None

    def give_up(self, name: str, handle: str) -> None:
        pieces = Pieces.read(handle, self.shown(name))
        self._do("abort_multipart_upload", "give up", name, ("NoSuchUpload",), Key=self._key(name), UploadId=pieces.upload)

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        below = self._below(folder)
        kwargs: dict[str, Any] = {"Prefix": below}

        def ask() -> Any:
            return self._do("list_multipart_uploads", "list the uploads of", folder, **kwargs)

        page = ask()
        while True:
            for found in page.get("Uploads", ()):
                if found["Key"].startswith(below):
                    yield found["Key"][len(self.root) :], Pieces(found["UploadId"]).handle()
            if not page.get("IsTruncated"):
                return
            kwargs |= {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
            page = again(ask)

    def rename(self, old: str, new: str) -> None:
        raise StorageError(f"cannot rename {self.shown(old)}: S3 copies instead. Use the committer 'upload'.")

    def check_writable(self) -> None:
        self._do("list_objects_v2", "write below", "", Prefix=self.root, MaxKeys=1)

    def remove(self, name: str) -> None:
        self._delete(self._key(name))

    def _delete(self, key: str) -> None:
        self._do("delete_object", "remove", key[len(self.root) :], ("NoSuchKey", "404"), Key=key)

    def remove_tree(self, folder: str) -> None:
        own, below = self._key(folder) + "/", {self._key(folder) + "/"}
        with ThreadPoolExecutor(DELETING) as pool:
            for page in self._pages(folder):
                keys = [found["Key"] for found in page.get("Contents", ())]
                list(pool.map(self._delete_surely, keys))
                for key in keys:
                    while len(key := key.rstrip("/").rpartition("/")[0] + "/") > len(own):
                        below.add(key)
        # Where the service has directories, an empty one is listed until it is deleted by its own name. Deeper ones first.
        for key in sorted(below, key=len, reverse=True):
            self._delete_surely(key)

    def _delete_surely(self, key: str) -> None:
        again(lambda: self._delete(key))

    def sweep(self, folder: str) -> None:
        """Nothing to do: an object appears whole or not at all."""


def _moment(at: Any) -> int:
    """A time as boto3 gives it → ns since 1970, in whole seconds: looks at single objects tell no more."""
    return calendar.timegm(at.utctimetuple()) * 1_000_000_000
