"""Stories whose source and destination lie on a service, which may be killed, started again, or put to sleep as well."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moments import Lies, look_at
from processes import wait_until
from story import Story, told
from tale import Count, Tale, documents, held

from quire.storage import canonical
from services import azurite, s3
from services.hdfs import DATANODE, NAMENODE, Cluster, hdfs
from services.outside import S3, Azure, Hdfs, Outside
from services.server import Server
from sim import witness


@dataclass
class Part:
    """A process of a service."""

    name: str
    kill: Callable[[], object]
    start: Callable[[], object]  # until it answers
    sleep: Callable[[], object]
    wake: Callable[[], object]


@dataclass
class Service:
    """A real one that runs, and places on it."""

    name: str
    place: Callable[[str], tuple[Outside, Outside]]
    parts: list[Part]
    committer: str = "upload"
    drops: bool = True  # uploads that nobody completes are given up by those who clean
    stories: int = field(default=0)


def _of(server: Server, how: signal.Signals = signal.SIGKILL) -> Part:
    name = server.name if how == signal.SIGKILL else f"{server.name} (ended by {how.name})"
    return Part(name, lambda: server.stop(how), server.start, server.sleep, server.wake)


def _takes(cluster: Cluster) -> bool:
    try:
        Hdfs(cluster, "ready").put(f"d/{uuid.uuid4().hex}", b"ready")
    except OSError:
        return False
    return True


def _process(cluster: Cluster, which: str) -> Part:
    def start() -> None:
        cluster.start(which)
        cluster.wait()
        # A datanode has other ports now, and the namenode still names the old ones for a moment.
        wait_until(lambda: _takes(cluster), 60, "HDFS takes a file")

    def send(what: signal.Signals) -> Callable[[], object]:
        return lambda: cluster.running[which].send_signal(what)

    name = "namenode" if which == NAMENODE else "datanode"
    return Part(name, lambda: cluster.stop(which, signal.SIGKILL), start, send(signal.SIGSTOP), send(signal.SIGCONT))


@contextmanager
def running(name: str) -> Iterator[Service]:
    """A service that runs as long as the context lasts."""
    if name == "azurite":
        with azurite.azurite_server() as server:

            def container(story: str) -> tuple[Outside, Outside]:
                Azure(server.endpoint, story).client.create_container()
                return Azure(server.endpoint, story, "in"), Azure(server.endpoint, story, "out")

            # It writes down what it knows when it is asked to end: else an emulator would forget what it has answered.
            yield Service(name, container, [_of(server, signal.SIGTERM)], drops=False)
    elif name == "seaweedfs":
        with s3.seaweedfs_server() as server:
            yield Service(name, lambda story: (S3(server.endpoint, f"{story}/in"), S3(server.endpoint, f"{story}/out")), [_of(server)])
    else:
        with hdfs() as cluster:
            parts = [_process(cluster, DATANODE), _process(cluster, NAMENODE)]
            yield Service(name, lambda story: (Hdfs(cluster, f"{story}/in"), Hdfs(cluster, f"{story}/out")), parts, "rename")


class Remote(Story):
    """A source and a destination on a service."""

    def __init__(self, name: str, base: Path, tale: Tale, service: Service, settings: dict[str, Any] | None = None) -> None:
        self.service = service
        self.inner, self.outer = service.place(f"story-{uuid.uuid4().hex}")
        super().__init__(f"{service.name}, {name}", base, tale, {**(settings or {}), "storage_options": self.outer.options})
        self.place.urls, self.place.roots = (self.inner.url, self.outer.url), (self.inner.path, self.outer.path)
        self.committer = self.settings.get("committer", service.committer)
        self.contents = dict[str, bytes]()
        self.calls, self.lasts = 150, 1.0

    def add(self, files: int) -> None:
        new = {name: text.encode() for name, text in documents(self.waves, files, self.rng)}
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(self.inner.put, new, new.values()))
        self.contents |= new
        self.waves += 1

    def lies(self) -> Lies:
        return look_at(self.outer.objects(), self.outer.waiting() if self.service.drops else ())

    def data(self) -> dict[str, bytes]:
        """What a reader of the plain directory gets."""
        there = self.outer.objects()
        return {name: there[name] for name in there if not name.startswith("_quire/")}

    def count(self) -> Count:
        return held(self.contents.values(), self.data())

    def hold(self, settled: bool) -> None:
        tree = witness.Tree(canonical(self.inner.url, self.inner.options))
        for name, version in self.inner.listed().items():
            path, content = f"{tree.url}/{name}", self.contents[name]
            tree.now[path], tree.ever[path, version] = (version, content), content
        uploads = self.outer.waiting() if self.service.drops else ()
        folders = self.outer.folders()
        witness.check(tree, "lines", there=self.outer.objects(), folders=folders, uploads=uploads, clean=settled)

    def visible(self) -> dict[str, bytes]:
        there = self.outer.objects()
        return self.data() | {name: there[name] for name in there if name.startswith("_quire/log/0")}


@contextmanager
def remote(name: str, base: Path, tale: Tale, service: Service, settings: dict[str, Any] | None = None) -> Iterator[Remote]:
    """A story on a service."""
    service.stories += 1
    folder = base / f"{service.name}-{service.stories}"
    with told(Remote(name, folder, tale, service, settings)) as made:
        yield made
