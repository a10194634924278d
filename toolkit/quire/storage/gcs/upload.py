"""Writing an object of Google Cloud Storage piece by piece.

The service has no pieces that wait unseen under a name but those of a resumable session, whose address is a credential, and could not
stand in a log. So pieces are objects of their own below quire's directory, which no listing shows, and are composed onto the final name:
32 at once, which is the most that the service takes, and what came of 32 again.

    <state>/pieces/<name of the object>/<upload>/<level>-<number>
"""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING, NamedTuple

from quire.errors import StorageError
from quire.storage.base import not_a_handle
from quire.storage.objects import PiecewiseUpload
from quire.storage.retry import again
from quire.storage.sending import Begin

if TYPE_CHECKING:
    from quire.storage.gcs.store import GcsStore

PIECE = 8 << 20  # bytes
TOGETHER = 32  # objects that one request composes, the most that the service takes
PIECES = TOGETHER**3
OVERHEAD = 50  # bytes of a piece's name beside those of its object's and the state's directory

_ID = re.compile(r"[0-9a-f]{32}")
_PIECE = re.compile(r"(.+)/([0-9a-f]{32})/[0-9]-[0-9]{5}", re.DOTALL)


class Pieces(NamedTuple):
    """The content of a handle: the upload's id, how many pieces it has, and the bytes of all of them."""

    upload: str
    many: int = 0
    size: int = -1

    def handle(self) -> str:
        return json.dumps({"upload": self.upload, "size": self.size, "pieces": self.many}, separators=(",", ":"))

    @classmethod
    def read(cls, handle: str, of: str) -> Pieces:
        """Take a handle apart; FormatError if it is none, for a log's entry may be damaged or forged."""
        try:
            told = json.loads(handle)
            upload, size, count = told["upload"], told["size"], told["pieces"]
            if _ID.fullmatch(upload) and type(size) is int and size >= -1 and type(count) is int and 0 <= count <= PIECES:
                return cls(upload, count, size)
        except (ValueError, TypeError, KeyError, RecursionError):
            pass
        raise not_a_handle(handle, of)


def owner(below: str) -> tuple[str, str] | None:
    """The object and the upload of a piece, by its name below the directory of pieces; None for anything else."""
    found = _PIECE.fullmatch(below)
    return (found[1], found[2]) if found else None


class GcsUpload(PiecewiseUpload):
    """An object that is uploaded in pieces."""

    store: GcsStore
    most, limit = PIECES, f"{PIECES * PIECE >> 30} GiB"

    def __init__(self, store: GcsStore, name: str, *, commit: bool) -> None:
        super().__init__(store, name, commit=commit)
        self._upload, self._size = uuid.uuid4().hex, 0

    def _length(self) -> int:
        return PIECE

    def _piece(self, piece: bytes | memoryview) -> None:
        self._size += len(piece)
        super()._piece(piece)

    def _deliver(self, number: int, piece: bytes | memoryview) -> Begin:
        return self.store.stage(self.name, self._upload, number, piece)

    def close(self) -> None:
        if self.commit and not self._number:
            again(lambda: self.store.put(self.name, b"".join(self._waiting)))
            self._waiting = []
            return
        self._finish(least=1)
        pieces = Pieces(self._upload, self._number, self._size)
        self.handle = pieces.handle()
        if self.commit and not again(lambda: self.store.compose(self.name, pieces, absent=False)):
            raise StorageError(f"cannot write {self.store.shown(self.name)}: its pieces were deleted. Call again.")

    def discard(self) -> None:
        super().discard()
        if self._number:
            self.store.give_up(self.name, Pieces(self._upload).handle())
