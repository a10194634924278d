"""Google Cloud Storage, by its JSON interface.

The version of an object is its generation, on which every read of many is conditioned, and every write that must not replace another:
`ifGenerationMatch=0` asks for a name that is free. It has no rename: a copy and a delete are not a rename. An object that is long is
uploaded in pieces that no listing shows (`gcs.upload`); `create` composes them when it is closed, `upload` leaves it to whoever completes
the upload, in any process. Noncurrent and soft-deleted versions of objects are not listed. An empty object whose name ends in `/` stands
for a directory, and is not a file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from quire.errors import FormatError, NotFoundError, StorageError
from quire.storage import slices, window
from quire.storage.base import Content, Entry, Folder, ReadRequest, Trouble, fits, leaves_room
from quire.storage.gcs import read as gcs_read
from quire.storage.gcs.account import account, normalise, parts
from quire.storage.gcs.rest import SILENCE, GcsRest, described
from quire.storage.gcs.upload import OVERHEAD, TOGETHER, GcsUpload, Pieces, owner
from quire.storage.message import Answer
from quire.storage.objects import DELETING, Objects, part, whole
from quire.storage.retry import again
from quire.storage.sending import Begin
from quire.storage.wire import Wire, bundled

__all__ = ["GcsStore", "normalise", "opened"]

LONGEST = 1024  # bytes of a key
COMPOSING = 8  # requests at once that compose pieces of one object
MARK = "quire-upload"  # of an object's metadata: the upload that it was composed of
_JSON = "application/json"


def opened(url: str, options: Mapping[str, object] | None) -> GcsStore:
    """The store at a normalised URL."""
    return GcsStore(url, options)


def named(url: str, options: Mapping[str, object] | None) -> str:
    """The bucket of a URL, with whose it is, unless it is Google's."""
    bucket, found = parts(url)[0], account(options)
    return bucket if found.host == "storage.googleapis.com" else f"{bucket}@{found.host}"


class GcsStore(Objects):
    """Objects below a path of one bucket."""

    pieces_expire = False
    service, uploads = "Google Cloud Storage", GcsUpload

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        bucket, path = parts(url)
        super().__init__(url, path)
        self.rest = GcsRest(account(options), bucket)
        self.flight = window.flight(options)

    def _new(self, name: str) -> str:
        """The key of an object that is to be written."""
        key = self._key(name)
        if "\r" in name or "\n" in name:
            raise StorageError(f"cannot write {self.shown(name)[:200]!r}: the service takes no line's end in names. Choose another name.")
        if len(key.encode()) > LONGEST:
            raise StorageError(f"cannot write {self.shown(name)[:200]}…: a name has at most {LONGEST:,} bytes there. Choose a shorter one.")
        return key

    # ---------------------------------------------------------------------------------------------------------- reading
    def stat(self, name: str) -> Entry | None:
        what = f"cannot look up {self.shown(name)}"
        found = self.rest.look(what, self._key(name))
        try:
            return None if found is None else described(found, len(self.root))
        except (AttributeError, LookupError, TypeError, ValueError):
            raise StorageError(f"{what}: {self.rest.account.host} did not answer as the service does. Check endpoint_url.") from None

    def is_folder(self, name: str = "") -> bool:
        page = self.rest.page(f"cannot look up {self.shown(name)}", {"prefix": self._below(name), "maxResults": 1})
        return bool(page.objects)

    @property
    def _hidden(self) -> str:
        """The prefix of all pieces' keys."""
        return f"{self.root}{self.state}/pieces/"

    def _level(self, folder: str, after: str = "", most: int = 0) -> Iterator[list[tuple[str, slices.Item]]]:
        """The pages of one level from `after` on: the last parts of names, and what they are."""
        below, cut = self._below(folder), len(self.root)
        asked: dict[str, object] = {"prefix": below, "delimiter": "/"} | ({"maxResults": min(most, 1000)} if most else {})
        if after and slices.plain(after):
            asked["startOffset"] = below + after
        for page in self.rest.pages(f"cannot list {self.shown(folder)}", asked):
            files = ((found.name, found._replace(name=found.name[cut:])) for found in page.objects)
            prefixes = [prefix for prefix in page.prefixes if prefix != self._hidden]
            yield slices.level(below, cut, prefixes, (each for each in files if not each[0].startswith(self._hidden)))

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        return slices.within(self._level(folder, after), folder, after, until, self.is_folder)

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        return slices.first_of(self._level(folder, after, most + 1), after, most)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        cut = len(self.root)
        for found in self._objects(folder):
            name = found.name[cut:]
            marks = not found.size and name.endswith("/")
            if not marks and not found.name.startswith(self._hidden) and slices.UNSAYABLE.isdisjoint(name.split("/")):
                yield found._replace(name=name)

    def _objects(self, folder: str) -> Iterator[Entry]:
        """All objects below a directory, by their keys."""
        for page in self.rest.pages(f"cannot list {self.shown(folder)}", {"prefix": self._below(folder)}):
            yield from page.objects

    def get(self, name: str) -> bytes:
        return whole(self.shown(name), lambda most: self._media(name, {}, (), most))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            if self.stat(name) is None:
                raise NotFoundError(f"cannot read {self.shown(name)}: it is not there")
            return b""
        found = self._media(name, {"Range": f"bytes={start}-{start + length - 1}"}, (416,), length)
        return part(f"cannot read {self.shown(name)}", found, start, length)

    def _media(self, name: str, headers: Mapping[str, str], answers: tuple[int, ...], most: int) -> Answer:
        """An object's bytes as they lie there: what is stored with Content-Encoding: gzip comes so where it is asked for."""
        target, given = self.rest.target(self._key(name), {"alt": "media"}), {"Accept-Encoding": "gzip", **headers}
        return self.rest.send("GET", f"cannot read {self.shown(name)}", target, headers=given, answers=answers, most=most)

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        again(self.rest.account.authorization)  # here, where a token that cannot be had ends the call in one line
        yield from window.read(requests, lambda: gcs_read.opened(self.rest, self.root, self.url), self.flight)

    # ---------------------------------------------------------------------------------------------------------- writing
    def _insert(self, name: str, key: str, data: bytes, generation: str = "") -> bool:
        """Write an object; with a `generation` in the place of that one ("0": of none). False: there is another one."""
        asked = {"uploadType": "media", "name": key, "ifGenerationMatch": generation, "fields": "generation"}
        target = self.rest.target("", asked, before="/upload")
        answers = (412, 404) if generation not in ("", "0") else (412,)
        return self.rest.send("POST", f"cannot write {self.shown(name)}", target, data, answers=answers).status < 300

    def put(self, name: str, data: bytes) -> None:
        key = self._new(name)
        fits(self.shown(name), data)
        self._insert(name, key, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        key = self._new(name)
        fits(self.shown(name), data)
        return self._insert(name, key, data, "0")

    def put_if(self, name: str, data: bytes, version: str) -> bool:
        key = self._new(name)
        fits(self.shown(name), data)
        return version.isascii() and version.isdigit() and version != "0" and self._insert(name, key, data, version)

    def _piece(self, name: str, upload: str, level: int, number: int) -> str:
        return f"{self._hidden}{name}/{upload}/{level}-{number:05}"

    def stage(self, name: str, upload: str, number: int, data: bytes | memoryview) -> Begin:
        """How one piece is sent; the same piece again does no harm."""
        key = self._piece(name, upload, 0, number)
        if len(key.encode()) > LONGEST:
            raise StorageError(f"cannot write {self.shown(name)[:200]}…: with its pieces' its name is too long. Choose a shorter one.")
        target = self.rest.target("", {"uploadType": "media", "name": key, "fields": "generation"}, before="/upload")
        return partial(gcs_read.staged, self.rest, target, data, f"cannot write {self.shown(name)}")

    def _wire(self) -> Wire:
        return bundled(SILENCE)

    def compose(self, name: str, pieces: Pieces, *, absent: bool) -> bool:
        """Let pieces become their object, and delete them; False: they are gone, and it is not there. `absent`: nothing is replaced."""
        keys, level = [self._piece(name, pieces.upload, 0, number) for number in range(pieces.many)], 0
        while len(keys) > TOGETHER:
            level += 1
            some = [tuple(keys[at : at + TOGETHER]) for at in range(0, len(keys), TOGETHER)]
            groups = [(self._piece(name, pieces.upload, level, number), each) for number, each in enumerate(some)]
            with ThreadPoolExecutor(COMPOSING) as pool:
                done = list(pool.map(lambda group: again(partial(self._compose, name, *group)), groups))
            if not all(done):
                break
            keys = [key for key, _ in groups]
        else:
            if self._compose(name, self._new(name), tuple(keys), pieces.upload, absent=absent):
                self._drop(name, pieces.upload)
                return True
        # The name is taken, or pieces are gone: both are so after a first call whose answer did not arrive. Look what is there.
        what = f"cannot publish {self.shown(name)}"
        found = self.rest.look(what, self._key(name), "size,metadata")
        if found is not None and (found.get("metadata") or {}).get(MARK) != pieces.upload:
            raise StorageError(f"{what}: another object has taken its name. Look who wrote it, and move it away.")
        if found is not None:
            self._drop(name, pieces.upload)
        return found is not None

    def _compose(self, name: str, key: str, sources: tuple[str, ...], upload: str = "", *, absent: bool = False) -> bool:
        """Compose objects; False: one of them is gone, or (with `absent`) the name is taken."""
        told = {"sourceObjects": [{"name": source} for source in sources], "destination": {
            "contentType": "application/octet-stream", **({"metadata": {MARK: upload}} if upload else {})}}  # fmt: skip
        target = self.rest.target(key, {"ifGenerationMatch": "0" if absent else "", "fields": "generation"}, after="/compose")
        body = json.dumps(told).encode()
        return self.rest.send("POST", f"cannot publish {self.shown(name)}", target, body, _JSON, answers=(404, 412)).status < 300

    def complete(self, name: str, handle: str) -> bool:
        pieces = Pieces.read(handle, self.shown(name))
        if not pieces.many:
            raise FormatError(f"the handle of an upload of {self.shown(name)} names no pieces: nothing was touched. Look who wrote it.")
        return self.compose(name, pieces, absent=True)

    def give_up(self, name: str, handle: str) -> None:
        self._drop(name, Pieces.read(handle, self.shown(name)).upload)

    def _drop(self, name: str, upload: str) -> None:
        self._key(name)
        self._delete_all(f"{self._hidden}{name}/{upload}/")

    def _delete_all(self, prefix: str) -> None:
        with ThreadPoolExecutor(DELETING) as pool:
            for page in self.rest.pages(f"cannot list {self.url}", {"prefix": prefix}):
                list(pool.map(self._delete_surely, [found.name for found in page.objects]))

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        within, before = f"{folder}/" if folder else "", None
        for page in self.rest.pages(f"cannot list the uploads of {self.shown(folder)}", {"prefix": self._hidden + within}):
            for found in page.objects:
                mine = owner(found.name[len(self._hidden) :])
                if mine is not None and mine != before and mine[0].startswith(within):
                    yield mine[0], Pieces(mine[1]).handle()
                before = mine

    def copy(self, old: str, new: str, version: str = "") -> bool:
        there, key, token = self.stat(old), self._new(new), ""
        if there is None or (version and there.version != version):
            return False
        after, what = f"/rewriteTo/b/{self.rest.bucket}/o/{self.rest.quoted(key)}", f"cannot publish {self.shown(new)}"
        for _ in range((there.size >> 20) + 2):  # an object that is long is copied by requests for a MiB at least, and seen after the last
            target = self.rest.target(self._key(old), {"ifSourceGenerationMatch": there.version, "rewriteToken": token}, after=after)
            answer = again(partial(self.rest.send, "POST", what, target, answers=(404, 412)))
            if answer.status >= 300:
                return False
            told = self.rest.told(what, answer)
            if not isinstance(told, dict) or not (told.get("done") or told.get("rewriteToken")):
                break
            if told.get("done"):
                return True
            token = str(told["rewriteToken"])
        raise StorageError(f"{what}: {self.rest.account.host} did not answer as the service does. Check endpoint_url.")

    def check_writable(self) -> None:
        leaves_room(self.url, len(self.root.encode()), LONGEST - OVERHEAD - len(self.state))
        self.rest.page(f"cannot write below {self.url}", {"prefix": self.root, "maxResults": 1})

    def remove_if(self, name: str, version: str) -> bool:
        if not (version.isascii() and version.isdigit()):
            return self.stat(name) is None
        target = self.rest.target(self._key(name), {"ifGenerationMatch": version})
        return self.rest.send("DELETE", f"cannot remove {self.shown(name)}", target, answers=(404, 412)).status != 412

    def _delete(self, key: str) -> None:
        self.rest.send("DELETE", f"cannot remove {self.shown(key[len(self.root) :])}", self.rest.target(key), answers=(404,))

    def remove_tree(self, folder: str) -> None:
        self._delete_all(self._below(folder))
        self._delete_all(f"{self._hidden}{folder}/")  # those that nobody will complete any more
