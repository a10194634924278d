"""A disk that forgets: the real system calls of the local store, with a model beside them of what was made durable.

POSIX promises no more than this: `fsync` of a file keeps its bytes, `fsync` of a directory keeps the names in it, and what was not
synced may be there after a power cut or not, each for itself: new names, removed names, bytes. Only a rename is one step.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from quire.storage import durable, local

LEFT = ("lost", "names", "some")


class Watch(Protocol):
    """Who is asked at each system call."""

    def do(self, store: Any, op: str, name: str, effect: Callable[[], Any], changes: bool, half: Callable[[], Any] | None) -> Any: ...

    def take_space(self, wanted: int) -> int: ...


class File:
    """The bytes that processes see, and those that are safe."""

    def __init__(self) -> None:
        self.now, self.safe = b"", b""


class Folder:
    """The names that processes see, and those that are safe."""

    def __init__(self) -> None:
        self.now: dict[str, File | Folder] = {}
        self.safe: dict[str, File | Folder] = {}


class Disk:
    """All below one directory. It stands in the place of the module `os` in the local store."""

    def __init__(self, root: str, watch: Watch) -> None:
        self.root, self.watch = os.path.realpath(root), watch
        self.url = f"file://{self.root}/dest"  # whose operations these are
        self.top = Folder()
        self._open: dict[int, File | Folder] = {}
        self._names: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)  # what changes nothing goes to the real one

    @contextmanager
    def installed(self) -> Iterator[Disk]:
        before = local.os, local.shutil
        local.os = local.shutil = durable.os = self  # type: ignore[assignment]
        try:
            yield self
        finally:
            local.os, local.shutil = before
            durable.os = before[0]
            for fd in list(self._open):
                self._forget(fd)

    # ------------------------------------------------------------------------------------------------------ the model
    def _at(self, path: str) -> File | Folder | None:
        node: File | Folder | None = self.top
        for part in self._short(path).split("/"):
            if part:
                node = node.now.get(part) if isinstance(node, Folder) else None
        return node

    def _short(self, path: str) -> str:
        return path[len(self.root) :].strip("/") if self._ours(path) else path

    def _ours(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def _parent(self, path: str) -> tuple[dict[str, File | Folder], str]:
        folder, _, name = path.rpartition("/")
        node = self._at(folder)
        assert isinstance(node, Folder), path
        return node.now, name

    def objects(self, below: str) -> dict[str, bytes]:
        """What processes see below a directory."""
        node = self._at(f"{self.root}/{below}")
        return dict(_files(node, "")) if isinstance(node, Folder) else {}

    def folders(self, below: str) -> list[str]:
        """The directories below one."""
        node = self._at(f"{self.root}/{below}")
        return list(_folders(node, "")) if isinstance(node, Folder) else []

    def keep(self) -> None:
        """All that is there now is durable."""
        _keep(self.top)

    def cut(self, left: str, rng: random.Random) -> None:
        """A power cut. Left of what was not synced: nothing ("lost"), the names without their bytes ("names"), or "some"."""
        _cut(self.top, left, rng, {})
        shutil.rmtree(self.root)
        os.mkdir(self.root)
        _write(self.top, self.root)

    def _forget(self, fd: int) -> None:
        del self._open[fd], self._names[fd]
        os.close(fd)

    # ------------------------------------------------------------------------------------------------ the system calls
    def _do(self, op: str, path: str, effect: Callable[[], Any], changes: bool = True, half: Callable[[], Any] | None = None) -> Any:
        return self.watch.do(self, op, self._short(path).removeprefix("dest/"), effect, changes, half)

    @staticmethod
    def _whole(path: str, dir_fd: int | None) -> str:
        """The path of a name in a directory that is open."""
        return path if dir_fd is None else os.path.join(os.readlink(f"/proc/self/fd/{dir_fd}"), path)

    def open(self, path: str, flags: int, mode: int = 0o777, dir_fd: int | None = None) -> int:
        path = self._whole(path, dir_fd)
        if not self._ours(path):
            return os.open(path, flags, mode)
        creates = bool(flags & os.O_CREAT)

        def effect() -> int:
            fd = os.open(path, flags, mode)
            if creates:
                names, name = self._parent(path)
                names.setdefault(name, File())
            if creates or flags & os.O_DIRECTORY:
                node = self._at(path)
                assert node is not None
                self._open[fd], self._names[fd] = node, path
            return fd

        if flags & os.O_DIRECTORY:
            return effect()  # the fsync that follows is the step
        fd: int = self._do("create" if creates else "open", path, effect, creates)
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        node = self._open.get(fd)
        if node is None:
            return os.write(fd, data)
        assert isinstance(node, File)
        data = bytes(data)

        def effect(data: bytes = data) -> int:
            granted = self.watch.take_space(len(data))
            if data and not granted:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.write(fd, data[:granted])
            node.now += data[:granted]
            return granted

        n: int = self._do("write", self._names[fd], effect, True, lambda: effect(data[: len(data) // 2]))
        return n

    def fsync(self, fd: int) -> None:
        node = self._open.get(fd)
        if node is None:
            return  # of a directory above: there is no power cut for it

        def effect() -> None:
            if isinstance(node, File):
                node.safe = node.now
            else:
                node.safe = dict(node.now)

        self._do("fsync", self._names[fd], effect)

    def close(self, fd: int) -> None:
        if fd in self._open:
            self._forget(fd)
        else:
            os.close(fd)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        def effect() -> None:
            os.mkdir(path, mode)
            names, name = self._parent(path)
            names[name] = Folder()

        self._do("mkdir", path, effect)

    def link(self, old: str, new: str) -> None:
        def effect() -> None:
            os.link(old, new)
            (source, from_), (target, to) = self._parent(old), self._parent(new)
            target[to] = source[from_]

        self._do("link", new, effect)

    def rename(self, old: str, new: str, op: str = "rename") -> None:
        def effect() -> None:
            os.rename(old, new)
            (source, from_), (target, to) = self._parent(old), self._parent(new)
            target[to] = source.pop(from_)

        self._do(op, new, effect)

    def replace(self, old: str, new: str) -> None:
        self.rename(old, new, "replace")

    def unlink(self, path: str, dir_fd: int | None = None) -> None:
        path = self._whole(path, dir_fd)

        def effect() -> None:
            os.unlink(path)
            names, name = self._parent(path)
            del names[name]

        self._do("unlink", path, effect)

    def rmdir(self, path: str) -> None:
        def effect() -> None:
            os.rmdir(path)
            names, name = self._parent(path)
            del names[name]

        self._do("rmdir", path, effect)

    def scandir(self, path: str) -> Any:
        return self._do("scandir", path, lambda: os.scandir(path), False) if self._ours(path) else os.scandir(path)

    def walk(self, path: str, topdown: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
        return os.walk(path, topdown)  # what it finds is no step; what is done with it is

    def stat(self, path: str, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
        path = self._whole(path, dir_fd)

        def look() -> os.stat_result:
            return os.stat(path, follow_symlinks=follow_symlinks)

        found: os.stat_result = self._do("stat", path, look, False) if self._ours(path) else look()
        return found

    def rmtree(self, path: str, dir_fd: int | None = None) -> None:
        """As `shutil.rmtree` does it, by the calls above."""
        path = self._whole(path, dir_fd)
        with self.scandir(path) as found:
            items = sorted(found, key=lambda item: item.name)
        for item in items:
            if item.is_dir(follow_symlinks=False):
                self.rmtree(item.path)
            else:
                self.unlink(item.path)
        self.rmdir(path)


def _files(folder: Folder, prefix: str) -> Iterator[tuple[str, bytes]]:
    for name, node in folder.now.items():
        if isinstance(node, File):
            yield prefix + name, node.now
        else:
            yield from _files(node, f"{prefix}{name}/")


def _folders(folder: Folder, prefix: str) -> Iterator[str]:
    for name, node in folder.now.items():
        if isinstance(node, Folder):
            yield prefix + name
            yield from _folders(node, f"{prefix}{name}/")


def _keep(folder: Folder) -> None:
    folder.safe = dict(folder.now)
    for node in folder.now.values():
        if isinstance(node, Folder):
            _keep(node)
        else:
            node.safe = node.now


def _cut(folder: Folder, left: str, rng: random.Random, kept: dict[int, bool]) -> None:
    chosen = {}
    for name in sorted(folder.now.keys() | folder.safe.keys()):
        now, safe = folder.now.get(name), folder.safe.get(name)
        # A rename is one step: its new name is there or its old one. So there is one answer for a file, wherever it is named.
        keep = kept.setdefault(id(now or safe), rng.random() < 0.5 if left == "some" else left == "names")
        if node := now if keep else safe:
            chosen[name] = node
    folder.now, folder.safe = chosen, dict(chosen)
    for node in chosen.values():
        if isinstance(node, Folder):
            _cut(node, left, rng, kept)
        elif left == "some" and node.now.startswith(node.safe):
            node.now = node.safe = node.now[: rng.randint(len(node.safe), len(node.now))]
        else:
            node.now = node.safe


def _write(folder: Folder, path: str) -> None:
    for name, node in folder.now.items():
        if isinstance(node, Folder):
            os.mkdir(f"{path}/{name}")
            _write(node, f"{path}/{name}")
        else:
            with open(f"{path}/{name}", "wb") as file:
                file.write(node.now)
