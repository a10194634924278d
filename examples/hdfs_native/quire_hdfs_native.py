"""HDFS by Hadoop's own protocol, where libhdfs is installed with a Java beside it (`ARROW_LIBHDFS_DIR`, `JAVA_HOME`, `CLASSPATH`).

*Not measured*: no package index has libhdfs, so this was tried against a stand-in alone. `webhdfs://` needs neither and is tested against a
real cluster; take it where the namenode's web server can be reached.

As there, whatever readers must see whole is written below `_quire/tmp` and renamed, and a rename onto a name that is taken fails. The
version of a file is its time of change and its length: libhdfs tells no more, so a file that is rewritten with the same length within one
ms looks the same. Options: `user`, `kerb_ticket`, `extra_conf`, `max_concurrency`.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import partial
from typing import Any

from pyarrow import fs

from quire.errors import NotFoundError, StorageError, TransientError, UsageError, scrub
from quire.storage import window
from quire.storage.base import (
    LARGEST,
    Content,
    Entry,
    Folder,
    ReadRequest,
    Sink,
    Trouble,
    Vanished,
    WithoutUploads,
    fits,
    instant,
    safe,
    too_long,
    walked,
)
from quire.storage.options import spelled
from quire.storage.threads import Threads
from quire.storage.window import Fetch, Steps

__all__ = ["NativeStore", "canonical", "normalise", "opened"]

PORT = "8020"  # of a namenode, unless it is set otherwise
FLIGHT = 32  # reads at once, each in a thread of libhdfs
TRIES = 20  # to write what clean-ups take away at the same time
_PLACE = re.compile(r"//([A-Za-z0-9][A-Za-z0-9._-]*)(?::(\d{1,5}))?(/.*)?", re.DOTALL)
_ADDRESS = re.compile(r"dfs\.namenode\.rpc-address\.([^.]+)\.[^.]+")  # Hadoop's setting for one namenode of a name service
_connected: dict[tuple[Any, ...], Any] = {}


def normalise(scheme: str, rest: str) -> str:
    """One URL for one place, `hdfs://namenode:port/path`; without a port the name is a name service, or the port is Hadoop's own."""
    match = _PLACE.fullmatch(rest)
    said = scrub(f"{scheme}:{rest}", 200)
    if not match or not 0 <= int(match[2] or 0) < 65536:
        raise UsageError(f"{said!r} names no namenode. Write hdfs://namenode:8020/path, or webhdfs://namenode:9870/path.")
    names = (match[3] or "").strip("/").split("/") if (match[3] or "").strip("/") else []
    if any(name in ("", ".", "..") or ":" in name for name in names):
        raise UsageError(f"{said!r} has an empty part, '.', '..' or a ':' in its path. Write the path as it is.")
    return "/".join([f"hdfs://{match[1].lower()}{f':{int(match[2])}' if match[2] and match[2] != PORT else ''}", *names])


def canonical(url: str, options: Mapping[str, object] | None) -> str:
    """A normalised URL by its name service, where `extra_conf` says which one the host belongs to: who is active may change."""
    host, slash, path = url.removeprefix("hdfs://").partition("/")
    conf = (options or {}).get("extra_conf")
    for name, value in conf.items() if isinstance(conf, Mapping) else ():
        found = _ADDRESS.fullmatch(str(name))
        if found and str(value).lower().removesuffix(f":{PORT}") == host:
            host = found[1].lower()
    return f"hdfs://{host}{slash}{path}"


def opened(url: str, options: Mapping[str, object] | None) -> NativeStore:
    """The store at a normalised URL."""
    return NativeStore(url, options)


def _connect(host: str, port: int, options: Mapping[str, Any]) -> Any:
    """Libhdfs' connection, one in each process: its Java does not survive a fork."""
    key = (os.getpid(), host, port, repr(sorted(options.items())))
    if key not in _connected:
        try:
            _connected[key] = fs.HadoopFileSystem(host, port, **options)
        except OSError as e:
            first = str(e).splitlines()[0] if str(e) else type(e).__name__
            raise StorageError(
                f"cannot reach hdfs://{host}: {scrub(first, 200)}. Hadoop's own protocol needs libhdfs and a Java (ARROW_LIBHDFS_DIR, "
                f"JAVA_HOME, CLASSPATH); webhdfs://{host}:9870 needs neither."
            ) from None
    return _connected[key]


class NativeSink:
    """A file that is written piece by piece, below the attempt's folder."""

    def __init__(self, store: NativeStore, name: str) -> None:
        self.store, self.name = store, name
        self._file: Any = None
        self._sent = 0

    def write(self, data: bytes | memoryview) -> None:
        with self.store.explained("write", self.name):
            if self._file is None:
                self._file = self.store.begun(self.name)
            self._file.write(data)
        self._sent += memoryview(data).nbytes

    def close(self) -> None:
        if self._file is None:
            self.write(b"")
        with self.store.explained("write", self.name):
            self._file.close()
        found = self.store.stat(self.name)
        if found is None or found.size != self._sent:
            raise TransientError(f"cannot write {self.store.shown(self.name)}: it is not there as it was written")

    def discard(self) -> None:
        if self._file is not None:
            with self.store.explained("write", self.name):
                self._file.close()


class NativeStore(WithoutUploads):
    """Files below one directory of HDFS."""

    can_rename = True
    shared = True

    def __init__(self, url: str, options: Mapping[str, object] | None = None) -> None:
        self.url = url
        host, slash, path = url.removeprefix("hdfs://").partition("/")
        self.root = slash + path
        given = {name: value for name, value in (options or {}).items() if value is not None}
        spelled(given, ("user", "kerb_ticket", "extra_conf"), "HDFS")
        self.flight = window.flight(options, FLIGHT)
        self._place = host.partition(":")[0], int(host.partition(":")[2] or 0)
        self._options: dict[str, Any] = {name: given[name] for name in ("user", "kerb_ticket", "extra_conf") if name in given}

    def __repr__(self) -> str:
        return f"NativeStore({self.url!r})"

    @property
    def fs(self) -> Any:
        """The connection of this process."""
        return _connect(*self._place, self._options)

    def shown(self, name: str) -> str:
        """As errors name it."""
        return f"{self.url}/{name}" if name else self.url

    def path(self, name: str) -> str:
        """Where an object lies in HDFS."""
        return f"{self.root}/{safe(name)}" if name else self.root or "/"

    @contextmanager
    def explained(self, doing: str, name: str) -> Iterator[None]:
        """Errors of libhdfs as ours. It tells kinds apart by their text alone, so what is not known is tried again."""
        try:
            yield
        except FileNotFoundError:
            raise NotFoundError(f"cannot {doing} {self.shown(name)}: it is not there") from None
        except PermissionError as e:
            raise StorageError(f"cannot {doing} {self.shown(name)}: {scrub(str(e), 200)}. Ask for the right to.") from None
        except OSError as e:
            if "UnknownHostException" in str(e):
                raise StorageError(
                    f"cannot {doing} {self.shown(name)}: DNS does not know a host ({scrub(str(e), 200)}). Look at the URL or at extra_conf."
                ) from None
            raise TransientError(f"cannot {doing} {self.shown(name)}: {scrub(str(e), 200)}") from None

    # ---------------------------------------------------------------------------------------------------------- reading
    def _info(self, name: str) -> Any:
        with self.explained("look up", name):
            return self.fs.get_file_info(self.path(name))

    def stat(self, name: str) -> Entry | None:
        found = self._info(name)
        return _entry(name, found) if found.type == fs.FileType.File else None

    def is_folder(self, name: str = "") -> bool:
        return bool(self._info(name).type == fs.FileType.Directory)

    def scan(self, folder: str = "", *, after: str = "", until: str = "", follow: bool = False) -> Iterator[Entry | Folder | Trouble]:
        below = f"{folder}/" if folder else ""
        try:
            with self.explained("list", folder):
                found = self.fs.get_file_info(fs.FileSelector(self.path(folder), allow_not_found=True))
        except NotFoundError:
            return  # it was deleted, or a file took its place, since its parent was listed
        except TransientError:
            raise
        except StorageError as e:  # no right to: one directory, not all of them
            yield Trouble(folder, "unreadable", f"cannot list the directory: {e}")
            return
        for info in found:
            name = info.base_name
            if info.type == fs.FileType.Directory:
                yield Folder(below + name)
            elif info.type == fs.FileType.File and name >= after and (not until or name < until):
                yield _entry(below + name, info)

    def peek(self, folder: str = "", *, follow: bool = False) -> Iterator[tuple[str, bool]]:
        for item in self.scan(folder):
            if isinstance(item, Trouble):
                raise StorageError(f"{self.shown(item.name)}: {item.reason}")
            yield item.name.rsplit("/", 1)[-1], isinstance(item, Folder)

    def walk(self, folder: str = "") -> Iterator[Entry]:
        return walked(self.scan, folder, self.shown)

    def get(self, name: str) -> bytes:
        found = self.stat(name)
        if found is None:
            raise NotFoundError(f"cannot read {self.shown(name)}: it is not there")
        if found.size > LARGEST:
            raise too_long(self.shown(name))
        return self.get_range(name, 0, found.size)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with self.explained("read", name), self.fs.open_input_file(self.path(name)) as file:
            length = min(length, file.size() - start)
            return bytes(file.read_at(length, start)) if length > 0 else b""

    def read_many(self, requests: Iterable[ReadRequest]) -> Iterator[tuple[ReadRequest, Content]]:
        with closing(window.read(requests, self._opened, self.flight)) as answers:  # type: ignore[type-var]
            yield from answers

    def _opened(self) -> tuple[Threads, Fetch]:
        def fetch(request: ReadRequest) -> Steps:
            return (yield partial(self._fetch, request))

        return Threads(self.flight), fetch

    def _fetch(self, request: ReadRequest) -> bytes:
        try:
            data = self.get_range(request.name, request.start, request.length) if request.length else b""
        except NotFoundError:
            raise Vanished("vanished") from None
        found = self.stat(request.name)  # after reading, against what was listed: bytes of another version are not given
        if found is None or found.version != request.version:
            raise Vanished("vanished" if found is None else "changed")
        return data

    # ---------------------------------------------------------------------------------------------------------- writing
    def _new(self, name: str) -> None:
        if ":" in safe(name):
            raise StorageError(f"cannot write {self.shown(name)}: HDFS takes no ':' in names. Use another name.")

    def begun(self, name: str) -> Any:
        """A file that is written, with the directory that it lies in."""
        path = self.path(name)
        self.fs.create_dir(path.rpartition("/")[0], recursive=True)
        return self.fs.open_output_stream(path)

    def _placed(self, name: str, data: bytes) -> bool:
        """Write a temporary file and rename it; False: the name is taken."""
        self._new(name)
        fits(self.shown(name), data)
        for _ in range(TRIES):
            temporary = f"{self.temporary}/{uuid.uuid4().hex}"
            try:
                with self.explained("write", name), self.begun(temporary) as file:
                    file.write(data)
                moved = self._moved(temporary, name, "write")
            except NotFoundError:
                continue  # a sweep took the temporary file: write it again
            if not moved:
                self.remove(temporary)
            return moved
        raise TransientError(f"cannot write {self.shown(name)}: clean-ups took it away {TRIES} times")

    def _moved(self, old: str, new: str, doing: str) -> bool:
        """Rename in one step; False: the name is taken. NotFoundError: `old` is not there."""
        for _ in range(TRIES):
            if self._info(new).type != fs.FileType.NotFound:
                return False  # else a directory there would take it in
            try:
                with self.explained(doing, new):
                    self.fs.create_dir(self.path(new).rpartition("/")[0], recursive=True)
                    self.fs.move(self.path(old), self.path(new))
                return True
            except (NotFoundError, TransientError):
                # It says no more than "no": the name was taken meanwhile, a clean-up took something away, or something else is wrong.
                if self.stat(old) is None:
                    raise NotFoundError(f"cannot {doing} {self.shown(new)}: {old} is not there") from None
        raise TransientError(f"cannot {doing} {self.shown(new)}: the namenode refuses to rename {old}")

    def put(self, name: str, data: bytes) -> None:
        while not self._placed(name, data):
            self.remove(name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._placed(name, data)

    def create(self, name: str) -> Sink:
        self._new(name)
        return NativeSink(self, name)

    def rename(self, old: str, new: str) -> None:
        self._new(new)
        if not self._moved(old, new, "publish"):
            if self.stat(old) is None:
                raise NotFoundError(f"cannot publish {self.shown(new)}: {old} is not there")
            raise StorageError(f"cannot publish {self.shown(new)}: something else has its name. Look who made it, and move it away.")

    def check_name(self, name: str) -> None:
        self._new(name)

    def check_writable(self) -> None:
        if self._info("").type == fs.FileType.File:
            raise StorageError(f"cannot write below {self.url}: it is a file. Choose another destination.")

    def remove(self, name: str) -> None:
        if self.stat(name) is not None:
            self._deleted(name, self.fs.delete_file)

    def remove_tree(self, folder: str) -> None:
        if self.is_folder(folder):
            self._deleted(folder, self.fs.delete_dir)

    def _deleted(self, name: str, delete: Callable[[str], None]) -> None:
        with suppress(NotFoundError), self.explained("remove", name):  # somebody else may be quicker
            delete(self.path(name))

    def sweep(self, folder: str) -> None:
        """Temporary files lie in one directory and their writers write them again if they are gone: all can go."""
        if f"{folder}/".startswith(f"{self.state}/"):
            self.remove_tree(self.temporary)


def _entry(name: str, info: Any) -> Entry:
    changed = info.mtime_ns or 0
    return Entry(name, info.size, f"{changed // 1_000_000}-{info.size}", instant(changed))
