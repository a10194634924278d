"""Writing an object of S3 part by part: nobody sees the parts before the upload is completed."""

from __future__ import annotations

import hashlib
import json
import re
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from quire.errors import StorageError
from quire.storage.base import not_a_handle
from quire.storage.objects import PiecewiseUpload
from quire.storage.retry import again
from quire.storage.s3.read import Signer, part
from quire.storage.sending import Begin

if TYPE_CHECKING:
    from quire.storage.s3.store import S3Store

PART = 8 << 20  # bytes; the service takes no part below 5 MiB but the last
SAME = 1000  # parts of one size, then the next so many are twice as long: few services take parts of different sizes, and few need to
PARTS = 10_000

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
        raise not_a_handle(handle, of)


class S3Upload(PiecewiseUpload):
    """An object that is uploaded in parts. The upload begins with its first part."""

    store: S3Store
    most, limit = PARTS, f"{PARTS:,} parts"
    _upload, _size = "", 0
    _signer: Signer | None = None

    def _length(self) -> int:
        return PART << self._number // SAME

    def _piece(self, piece: bytes | memoryview) -> None:
        self._upload = self._upload or again(lambda: self.store.begin(self.name))
        self._size += len(piece)
        super()._piece(piece)

    def _deliver(self, number: int, piece: bytes | memoryview) -> Begin:
        store, what = self.store, f"cannot write {self.store.shown(self.name)}"
        if self._signer is None:
            self._signer = Signer.of(store.account, store.bucket, what)
        query = f"partNumber={number + 1}&uploadId={quote(self._upload, safe='-_.~')}"
        digest = hashlib.sha256(piece).hexdigest()
        return partial(part, self._signer, store.root + self.name, query, piece, digest, what)

    def close(self) -> None:
        if self.commit and not self._upload:
            data = bytes(self._taken())
            again(lambda: self.store.put(self.name, data))
            return
        self._finish(least=1)
        self.handle = Pieces(self._upload, tuple(self._answers), self._size).handle()
        if self.commit and not again(lambda: self.store.complete(self.name, self.handle)):
            raise StorageError(f"cannot write {self.store.shown(self.name)}: the service has dropped its parts. Call again.")

    def discard(self) -> None:
        super().discard()
        if self._upload:
            self.store.give_up(self.name, Pieces(self._upload).handle())
