"""Whether executors see the local directories that the driver sees: a disk that all have mounted will do, each host's own will not.

A process with the driver's kernel, mounts and root sees what the driver sees. Any other has to find files there that the driver has
found; host names say nothing. In a destination that is still empty the driver puts one for it, where quire's temporary files lie: the next
run sweeps what a killed driver has left.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from quire.storage.base import STATE
from quire.storage.local import LocalStore, to_os, version_of

ENOUGH = 4  # files; one that is found again will do
LOOKS = 100  # directories that are looked into for them

# Printable ASCII, of which Spark takes some for a glob. Its Java opens other letters in some locales only.
_LITERAL = re.compile(r"file:///[ -~]*")
_GLOB = re.compile(r"[\\\[\]{}*?]")
Landmark = tuple[str, str]  # a path below the directory, its version ("" of a directory)


def is_literal(url: str) -> bool:
    """Whether Spark's own readers see the file at a URL, and do not take its name for a glob."""
    return _LITERAL.fullmatch(url) is not None and _GLOB.search(url) is None


def machine() -> str:
    """The same text in two processes: a path means the same to both."""
    root = os.stat("/")
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        mounts = os.readlink("/proc/self/ns/mnt")
    except OSError:  # not Linux
        kernel, mounts = f"{platform.node()} {uuid.getnode():x}", ""
    return f"{kernel} {mounts} {root.st_dev}:{root.st_ino}"


@dataclass(frozen=True)
class Sight:
    """The driver's view; travels to the tasks. Without `places`: nobody has looked yet."""

    machine: str
    places: tuple[tuple[str, tuple[Landmark, ...]], ...] = ()

    def lacking(self) -> str:
        """The part of it that this process does not see, as an error's text; empty if all is well."""
        if machine() == self.machine:
            return ""
        for url, landmarks in self.places:
            if not any(_version(f"{_path(url)}/{name}") == version for name, version in landmarks):
                return (
                    f"{url} is a directory of this machine's, and the executor on {socket.gethostname()} does not see it. Use a store that "
                    "all hosts reach (abfs://, s3://, webhdfs://, a directory mounted everywhere), or quire.session(master='local[*]')."
                )
        return "" if self.places else f"{socket.gethostname()} is not the driver's machine"


class Landmarks:
    """The local directories of a call, on the driver: what others are to find there. `state`: quire's directory in the destination."""

    def __init__(self, sources: Iterable[str], dest: str | None = None, state: str = STATE) -> None:
        self.sources = [url for url in sources if url.startswith("file://")]
        self.dest, self._state = dest if dest and dest.startswith("file://") else None, state

    def __bool__(self) -> bool:
        return bool(self.sources or self.dest)

    def unseen(self) -> Sight:
        """Enough for those on the driver's machine."""
        return Sight(machine())

    @contextmanager
    def taken(self) -> Iterator[Sight]:
        """For others, what can be found in each directory as long as this lasts."""
        places = [(url, tuple(_found([_path(url)], _path(url)))) for url in self.sources]
        if self.dest is None:
            yield Sight(machine(), tuple(places))
            return
        path, store, put = _path(self.dest), LocalStore(self.dest.removeprefix("file://")), ""
        store.state = self._state
        try:
            known = _found([f"{path}/{self._state}/log", f"{path}/{self._state}/jobs"], path)
            if not any(version for _, version in known):
                put = f"{store.temporary}/{uuid.uuid4().hex}"
                store.put(put, put.encode())
                known = [(put, _version(f"{path}/{put}") or "")]
            yield Sight(machine(), (*places, (self.dest, tuple(known))))
        finally:
            if put:
                store.remove(put)


def _path(url: str) -> str:
    return to_os(url.removeprefix("file://"))


def _version(path: str) -> str | None:
    try:
        return "" if os.path.isdir(path) else version_of(os.stat(path))
    except OSError:
        return None


def _found(folders: Sequence[str], root: str) -> list[Landmark]:
    """Some files below the folders; where a bounded search finds none, some directories; else the root itself."""
    waiting, files, seen = deque(folders), list[Landmark](), list[Landmark]()
    for _ in range(LOOKS):
        if not waiting or len(files) >= ENOUGH:
            break
        try:
            with os.scandir(waiting.popleft()) as items:
                for item in items:
                    name = os.path.relpath(item.path, root)
                    if item.is_file() and len(files) < ENOUGH:
                        files.append((name, version_of(item.stat())))
                    elif item.is_dir() and len(waiting) < LOOKS:
                        waiting.append(item.path)
                        seen.append((name, ""))
                    if len(files) >= ENOUGH:
                        break
        except OSError:
            continue
    return files or seen[:ENOUGH] or [(".", "")]
