"""A store in memory that keeps no more than the promises of its kind, and whose every operation goes through the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from quire.errors import NotFoundError, StorageError
from sim.world import World


class SimSink:
    """A file that is being written: where the kind says so, what was written is seen before it is closed."""

    def __init__(self, store: SimStore, name: str) -> None:
        self.store, self.name, self.there = store, name, b""
        self.seen = store.world.kind.streams == "seen"
        self.sink = store.world.do(store, "create", name, lambda: store.inner.create(name), True)

    def write(self, data: bytes | memoryview) -> None:
        data = bytes(data)
        half = data[: len(data) // 2]
        self.store.world.do(self.store, "write", self.name, lambda: self._write(data), True, lambda: self._write(half))

    def _write(self, data: bytes) -> None:
        granted = self.store.world.take_space(len(data))
        self.sink.write(data[:granted])
        self.there += data[:granted]
        if self.seen:
            self.store.inner.put(self.name, self.there)
        if granted < len(data):
            raise StorageError("the store is full")

    def close(self) -> None:
        self.store.world.do(self.store, "close", self.name, self.sink.close, True)

    def discard(self) -> None:
        self.sink.discard()


class SimUpload:
    """An upload: its pieces are never seen before it is completed."""

    def __init__(self, store: SimStore, name: str) -> None:
        self.store, self.name = store, name
        self.inner = store.world.do(store, "upload", name, lambda: store.inner.upload(name), True)

    @property
    def handle(self) -> str:
        found: str = self.inner.handle
        return found

    def write(self, data: bytes | memoryview) -> None:
        data = bytes(data)
        half = data[: len(data) // 2]
        self.store.world.do(self.store, "write", self.name, lambda: self._write(data), True, lambda: self._write(half))

    def _write(self, data: bytes) -> None:
        if self.store.world.take_space(len(data)) < len(data):
            raise StorageError("the store is full")
        self.inner.write(data)

    def close(self) -> None:
        self.store.world.do(self.store, "close", self.name, self.inner.close, True)

    def discard(self) -> None:
        self.store.world.do(self.store, "give_up", self.name, lambda: self.store.drop(self.inner.discard), True)


class SimStore:
    """A store whose every operation goes through the world."""

    def __init__(self, inner: Any, world: World) -> None:
        self.inner, self.world = inner, world
        self.url, self.shared = inner.url, inner.shared
        self.can_rename = "rename" in world.kind.offers
        self.can_upload, self.pieces_expire = "upload" in world.kind.offers, world.kind.uploads == "blocks"

    def _read(self, op: str, name: str, *args: Any, **options: Any) -> Any:
        return self.world.do(self, op, name, lambda: getattr(self.inner, op)(name, *args, **options), False)

    def _change(self, op: str, name: str, *args: Any) -> Any:
        return self.world.do(self, op, name, lambda: getattr(self.inner, op)(name, *args), True)

    def _put(self, op: str, name: str, data: bytes) -> Any:
        def effect() -> Any:
            if self.world.take_space(len(data)) < len(data):
                raise StorageError("the store is full")
            return getattr(self.inner, op)(name, data)

        return self.world.do(self, op, name, effect, True)

    # ------------------------------------------------------------------------------------------------------- listings
    def _list(self, op: str, folder: str, **options: Any) -> Iterator[Any]:
        """A listing that may miss what is made while it runs: its first half is older than its second."""

        def effect() -> list[Any]:
            above = f"{folder}/" if op == "peek" and folder else ""  # it gives the last parts of the names
            return [x for x in getattr(self.inner, op)(folder, **options) if not self._missed(above + x[0])]

        world = self.world
        found = world.do(self, op, folder, effect, False)
        if world.split_listings and found:
            pivot = world.random.choice(found)[0]
            later = world.do(self, op, folder, effect, False)
            found = [x for x in found if x[0] <= pivot] + [x for x in later if x[0] > pivot]
        if world.kind.reorders and op != "scan":
            world.random.shuffle(found)
        return iter(found)

    def _missed(self, name: str) -> bool:
        """Where listings lag, what another client has just made may not be in them."""
        world = self.world
        if not world.kind.lag or world.actor is None:
            return False
        when, by = world.made.get((self.url, world.known_as(name)), (-world.kind.lag, None))
        return by is not None and by is not world.actor and len(world.history) < when + world.kind.lag and world.random.random() < 0.5

    def scan(self, folder: str = "", **options: Any) -> Iterator[Any]:
        return self._list("scan", folder, **options)

    def peek(self, folder: str = "", **options: Any) -> Iterator[Any]:
        return self._list("peek", folder, **options)

    def walk(self, folder: str = "") -> Iterator[Any]:
        return self._list("walk", folder)

    # -------------------------------------------------------------------------------------------------------- reading
    def stat(self, name: str) -> Any:
        return self._read("stat", name)

    def is_folder(self, name: str = "") -> bool:
        return bool(self._read("is_folder", name))

    def get(self, name: str) -> bytes:
        data: bytes = self._read("get", name)
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        data: bytes = self._read("get_range", name, start, length)
        return data

    def read_many(self, requests: Iterable[Any]) -> Iterator[Any]:
        for request in requests:
            yield self.world.do(self, "read", request.name, lambda r=request: next(iter(self.inner.read_many([r]))), False)

    # -------------------------------------------------------------------------------------------------------- writing
    def put(self, name: str, data: bytes) -> None:
        self._put("put", name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        if self.world.kind.put_if_absent == "atomic":
            return bool(self._put("put_if_absent", name, data))
        if self._read("stat", name) is not None:
            return False
        self._put("put", name, data)
        return True

    def create(self, name: str) -> SimSink:
        return SimSink(self, name)

    def upload(self, name: str) -> SimUpload:
        return SimUpload(self, name)

    def complete(self, name: str, handle: str) -> bool:
        def effect() -> Any:
            done = self.inner.complete(name, handle)
            if self.world.kind.uploads == "blocks" and done:
                for other, waiting in list(self.inner.pending()):
                    if other == name:
                        self.inner.give_up(name, waiting)
            return done

        return bool(self.world.do(self, "complete", name, effect, True))

    def give_up(self, name: str, handle: str) -> None:
        self.world.do(self, "give_up", name, lambda: self.drop(lambda: self.inner.give_up(name, handle)), True)

    def drop(self, effect: Callable[[], None]) -> None:
        """Blocks that wait on a name can only be left to expire."""
        if self.world.kind.uploads != "blocks":
            effect()

    def pending(self, folder: str = "") -> Iterator[Any]:
        return self._list("pending", folder)

    def rename(self, old: str, new: str) -> None:
        if self.world.kind.rename == "atomic":
            self._change("rename", old, new)
            return
        data = self.get(old)

        def copy(data: bytes) -> Callable[[], None]:
            return lambda: self.inner.put(new, data)

        self.world.do(self, "copy half", new, copy(data[: len(data) // 2]), True)
        self.world.do(self, "copy", new, copy(data), True)
        if self._read("stat", old) is None:
            raise NotFoundError(f"{old} is not there")
        self._change("remove", old)

    def copy(self, old: str, new: str, version: str = "") -> bool:
        return bool(self._change("copy", old, new, version))

    def check_writable(self) -> None:
        self.inner.check_writable()

    def remove(self, name: str) -> None:
        self._change("remove", name)

    def remove_if(self, name: str, version: str) -> bool:
        return bool(self._change("remove_if", name, version))

    def remove_tree(self, folder: str) -> None:
        names = [e.name for e in self.inner.walk(folder)]
        self.world.random.shuffle(names)
        for name in names:
            self.remove(name)
        if self.inner.is_folder(folder):
            self._change("remove_tree", folder)

    def sweep(self, folder: str) -> None:
        self.world.do(self, "sweep", folder, lambda: self.inner.sweep(folder), False)
