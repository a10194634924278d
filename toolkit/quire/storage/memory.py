"""A store in this process's memory: for tests and for trying things out. Spark's workers cannot see it."""

from __future__ import annotations

import itertools
import re
import threading
import uuid
from collections.abc import Iterable, Iterator

from quire.errors import NotFoundError, StorageError
from quire.storage import slices
from quire.storage.base import Content, Entry, Folder, ReadRequest, Rooted, Sink, Trouble, Upload, Vanished, not_a_handle, safe

_ticks = itertools.count(1)
_lock = threading.RLock()
_objects: dict[str, tuple[bytes, int]] = {}  # full path → content and the tick at which it was written
_uploads: dict[str, tuple[str, list[bytes]]] = {}  # id → full path and pieces of what is not completed

_IS_HANDLE = re.compile(r"[0-9a-f]{32}")


class MemorySink:
    """An object that is being written: nobody sees it before `close`."""

    def __init__(self, path: str) -> None:
        self.path, self.pieces = path, list[bytes]()

    def write(self, data: bytes | memoryview) -> None:
        self.pieces.append(bytes(data))

    def close(self) -> None:
        with _lock:
            _objects[self.path] = (b"".join(self.pieces), next(_ticks))

    def discard(self) -> None:
        self.pieces.clear()


class MemoryUpload:
    """An object whose pieces wait until somebody completes it."""

    def __init__(self, path: str) -> None:
        self.handle, self._id = "", uuid.uuid4().hex
        self.path = path
        with _lock:
            _uploads[self._id] = (path, [])

    def write(self, data: bytes | memoryview) -> None:
        with _lock:
            if self._id not in _uploads:
                raise StorageError(f"cannot write {self.path}: its upload is not open any more: it was given up.")
            _uploads[self._id][1].append(bytes(data))

    def close(self) -> None:
        self.write(b"")
        self.handle = self._id

    def discard(self) -> None:
        with _lock:
            _uploads.pop(self._id, None)


class MemoryStore(Rooted):
    """Objects below `memory://name`; one name means the same objects everywhere in this process."""

    can_rename = True
    can_upload = True
    pieces_expire = False
    shared = False

    def __init__(self, url: str) -> None:
        self.url = url

    def _path(self, name: str) -> str:
        return f"{self.url}/{safe(name)}" if name else self.url

    def _below(self, folder: str) -> dict[str, tuple[bytes, int]]:
        prefix = self._path(folder) + "/"
        with _lock:
            return {path[len(self.url) + 1 :]: value for path, value in sorted(_objects.items()) if path.startswith(prefix)}

    @staticmethod
    def _entry(name: str, value: tuple[bytes, int]) -> Entry:
        return Entry(name, len(value[0]), f"{value[1]}-{len(value[0])}", value[1])

    def stat(self, name: str) -> Entry | None:
        value = _objects.get(self._path(name))
        return self._entry(name, value) if value else None

    def is_folder(self, name: str = "") -> bool:
        prefix = self._path(name) + "/"
        with _lock:
            return any(path.startswith(prefix) for path in _objects)

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        start = len(folder) + 1 if folder else 0
        seen = set[str]()
        for name, value in self._below(folder).items():
            head, slash, _ = name[start:].partition("/")
            if slash:
                if head not in seen:
                    seen.add(head)
                    yield Folder(name[:start] + head)
            elif head >= after and (not until or head < until):
                yield self._entry(name, value)

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        return slices.names(self.scan(folder))

    def first(self, folder: str, after: str, most: int) -> list[tuple[str, bool]] | None:
        return sorted(item for item in self.peek(folder) if item[0] >= after)[:most]

    def walk(self, folder: str = "") -> Iterator[Entry]:
        for name, value in self._below(folder).items():
            yield self._entry(name, value)

    def _content(self, name: str) -> bytes:
        value = _objects.get(self._path(name))
        if value is None:
            raise NotFoundError(f"cannot read {self.url}/{name}: it is not there")
        return value[0]

    def get(self, name: str) -> bytes:
        return self._content(name)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self._content(name)[start : start + length]

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        for request in requests:
            found = self.stat(request.name)
            if found is None:
                yield request, Vanished("vanished")
            elif found.version != request.version:
                yield request, Vanished("changed")
            else:
                yield request, self._content(request.name)[request.start : request.start + request.length]

    def put(self, name: str, data: bytes) -> None:
        with _lock:
            _objects[self._path(name)] = (data, next(_ticks))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        path = self._path(name)
        with _lock:
            if path in _objects:
                return False
            _objects[path] = (data, next(_ticks))
            return True

    def put_if(self, name: str, data: bytes, version: str) -> bool:
        with _lock:
            found = self.stat(name)
            if found is None or found.version != version:
                return False
            self.put(name, data)
            return True

    def create(self, name: str) -> Sink:
        return MemorySink(self._path(name))

    def upload(self, name: str) -> Upload:
        return MemoryUpload(self._path(name))

    def _waiting(self, name: str, handle: str) -> bool:
        if not _IS_HANDLE.fullmatch(handle):
            raise not_a_handle(handle, self.shown(name))
        return handle in _uploads and _uploads[handle][0] == self._path(name)

    def complete(self, name: str, handle: str) -> bool:
        with _lock:
            if self._waiting(name, handle):
                path, pieces = _uploads.pop(handle)
                _objects[path] = (b"".join(pieces), next(_ticks))
            return self.stat(name) is not None

    def give_up(self, name: str, handle: str) -> None:
        with _lock:
            if self._waiting(name, handle):
                del _uploads[handle]

    def pending(self, folder: str = "") -> Iterator[tuple[str, str]]:
        prefix = self._path(folder) + "/"
        with _lock:
            found = [(path, handle) for handle, (path, _) in _uploads.items() if path.startswith(prefix)]
        for path, handle in sorted(found):
            yield path[len(self.url) + 1 :], handle

    def rename(self, old: str, new: str) -> None:
        source, target = self._path(old), self._path(new)
        with _lock:
            if source not in _objects:
                raise NotFoundError(f"cannot publish {self.url}/{new}: {old} is not there")
            _objects[target] = _objects.pop(source)

    def copy(self, old: str, new: str, version: str = "") -> bool:
        source, target = self._path(old), self._path(new)
        with _lock:
            value = _objects.get(source)
            if value is None or (version and self._entry(old, value).version != version):
                return False
            _objects[target] = (value[0], next(_ticks))
            return True

    def check_writable(self) -> None:
        """Memory can always be written."""

    def remove(self, name: str) -> None:
        with _lock:
            _objects.pop(self._path(name), None)

    def remove_if(self, name: str, version: str) -> bool:
        with _lock:
            found = self.stat(name)
            if found is None or found.version == version:
                self.remove(name)
                return True
        return False

    def remove_tree(self, folder: str) -> None:
        with _lock:
            for name in self._below(safe(folder)):
                del _objects[self._path(name)]

    def sweep(self, folder: str) -> None:
        """Nothing to do: an object appears whole or not at all."""
