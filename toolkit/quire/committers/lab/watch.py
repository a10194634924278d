"""The readers' view of a destination, watched from outside while a job works on it.

A reader of the directory sees every file with no hidden part in its name (`is_shown`), as Spark, Hive and Hadoop do. A reader of the log
sees what quire's log says is published. Nothing here is computed from what should be there.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from quire.read import live
from quire.sources.files import is_hidden, is_shown
from quire.storage import Store, bare, connect

_LOG = 0.02  # seconds between two looks into the log
_REMAINS = ("_temporary/", "__magic", ".spark-staging", "_quire/jobs/")  # of a job; the log and the ledger stay for good


@dataclass(frozen=True)
class LabPlace:
    """A destination, as quire and as Spark name it; `hadoop` and `options` may hold secrets."""

    url: str
    spark_url: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def kind(self) -> str:
        """How Spark names the kind of store."""
        return self.spark_url.partition(":")[0]

    def at(self, name: str) -> LabPlace:
        """A place below it."""
        return LabPlace(f"{self.url}/{name}", f"{self.spark_url}/{name}", self.options, self.hadoop)

    def store(self) -> Store:
        return connect(self.url, self.options or None)

    def visible(self) -> list[str]:
        """The files that readers of the directory see."""
        if self.kind == "file":
            return list(_below(self.url.removeprefix("file://")))
        return [e.name for e in self.store().walk() if is_shown(e.name)]

    def everything(self) -> list[str]:
        """All names."""
        if self.kind == "file":
            return list(_below(self.url.removeprefix("file://"), hidden=True))
        return [e.name for e in self.store().walk()]

    def logged(self) -> int:
        """How many files readers of the log see."""
        _, files, _ = live(self.store())
        return len(files)


def _below(folder: str, prefix: str = "", hidden: bool = False) -> Iterator[str]:
    """The files below a directory, as fast as this machine lists them."""
    try:
        with os.scandir(folder) as found:
            entries = list(found)
    except (FileNotFoundError, NotADirectoryError):
        return  # it has gone since it was listed
    for entry in entries:
        if hidden or not is_hidden(entry.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path, f"{prefix}{entry.name}/", hidden)
            else:
                yield prefix + entry.name


@dataclass
class Count:
    """The content of a destination after all work on it has ended."""

    files: int = 0  # that readers of the directory see
    rows: int = 0  # in them
    doubled: int = 0  # rows that are there again
    lost: int = 0  # rows that should be there and are not
    remains: int = 0  # files of the job that readers do not see, and uploads that were not completed


def count(place: LabPlace, wanted: set[int]) -> Count:
    """Read every visible file, and count its rows by their numbers; `wanted`: those that jobs have said to be there."""
    names, store = place.visible(), place.store()
    ids: list[int] = []
    for name in names:
        content = _content(place, store, name)
        if name.endswith(".parquet"):
            ids += pq.read_table(pa.BufferReader(content), columns=["id"]).column("id").to_pylist()
        else:
            ids += [json.loads(line)["id"] for line in content.splitlines()]
    there = set(ids)
    remains = sum(name.startswith(_REMAINS) for name in place.everything())
    if store.can_upload:
        remains += sum(1 for _ in store.pending())
    return Count(len(names), len(ids), len(ids) - len(there), len(wanted - there), remains)


def _content(place: LabPlace, store: Store, name: str) -> bytes:
    return Path(place.url.removeprefix("file://"), name).read_bytes() if place.kind == "file" else store.get(name)


class Watcher:
    """Looks at a destination without a pause, and keeps each moment at which readers began to see something else.

    states        (seconds since the start, visible files), one for each change
    log_states    the same of readers of the log, where there is one
    caught        what `then` gave, which was called at once when `sign` was first met
    """

    def __init__(
        self, place: LabPlace, logged: bool = False, sign: str | None = None, then: Callable[[], Any] | None = None
    ) -> None:  # fmt: skip
        self.place, self.logged, self.sign, self.then = place, logged, sign, then
        self.states, self.log_states, self.looks = [(0.0, 0)], [(0.0, 0)], 0
        self.caught: Any = None
        self.met, self._over = threading.Event(), threading.Event()
        self.failed: BaseException | None = None
        self._threads = [threading.Thread(target=self._guard, args=(self._look,), name="lab-watcher", daemon=True)]
        if logged:
            self._threads.append(threading.Thread(target=self._guard, args=(self._look_into_log,), name="lab-log", daemon=True))

    def __enter__(self) -> Watcher:
        self.started = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self.failed is not None and kind is None:
            raise self.failed

    def _guard(self, look: Callable[[], None]) -> None:
        try:
            look()
        except BaseException as e:
            self.failed = self.failed or e  # raised where the watcher ends
            self.met.set()

    def _look(self) -> None:
        store = None if self.place.kind == "file" else bare(self.place.url, self.place.options or None)
        wanted = re.compile(self.sign) if self.sign else None
        while True:
            last = self._over.is_set()  # then one look more
            here = self.place.url.removeprefix("file://")
            names = list(_below(here, hidden=bool(wanted))) if store is None else [e.name for e in store.walk()]
            seen = sum(map(is_shown, names))
            self.looks += 1
            if seen != self.states[-1][1]:
                self.states.append((time.monotonic() - self.started, seen))
            if self.sign is not None and not self.met.is_set() and (any(map(wanted.search, names)) if wanted else seen):
                if self.then is not None:
                    self.caught = self.then()
                self.met.set()
            if last:
                return

    def _look_into_log(self) -> None:
        while True:
            last = self._over.is_set()
            seen = self.place.logged()
            if seen != self.log_states[-1][1]:
                self.log_states.append((time.monotonic() - self.started, seen))
            if last:
                return
            self._over.wait(_LOG)

    # ------------------------------------------------------------------------------------------------------------ afterwards
    def partial(self, whole: int) -> int:
        """How many different listings showed some of the files and not all."""
        return sum(0 < seen < whole for _, seen in self.states)

    def partial_log(self, whole: int) -> int:
        """The same of readers of the log."""
        return sum(0 < seen < whole for _, seen in self.log_states)

    def window(self, whole: int) -> float | None:
        """Milliseconds from the first look that saw a file to the first that saw all; None: they were never all there."""
        return _window(self.states, whole)

    def window_log(self, whole: int) -> float | None:
        """The same of readers of the log."""
        return _window(self.log_states, whole) if self.logged else None


def _window(states: list[tuple[float, int]], whole: int) -> float | None:
    first = next((at for at, seen in states if seen), None)
    full = next((at for at, seen in states if seen >= whole), None)
    return None if first is None or full is None else round((full - first) * 1000, 1)
