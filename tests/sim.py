"""A simulated store, for tests of the protocol: it counts operations, breaks at the one asked for, and hands over between drivers.

`World` wraps every store that quire opens. An `Actor` is a process: one driver with its attempts. A fault may hit an actor at its
k-th operation (or at its k-th change, since nothing happens between changes that another could see):

    before, after   the process dies before or after the effect; every later operation of it fails as well
    torn            a write into an open file: half of the bytes are there when the process dies
    ambiguous       the effect happened, the answer is an error
    transient       no effect, the answer is an error
    late            no effect yet, the answer is an error; the effect comes when others have gone on

An observer looks at the destination after each change, and `check` at the end; neither shares code with quire.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import re
import sys
import threading
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import quire
from quire.errors import StorageError
from quire.storage import memory

for _found in pkgutil.walk_packages(quire.__path__, "quire."):
    importlib.import_module(_found.name)  # all of them now: one that came later would keep a simulated `connect`

DEST = "memory://dest"
SOURCE = "memory://source"
STEPS = 4_000  # operations of one driver that no honest run needs: it never ends


class Crash(BaseException):
    """The process is gone; nothing of it may catch this."""


class Endless(BaseException):
    """A driver that goes on for ever."""


def always(*_: object) -> bool:
    """Every operation."""
    return True


def never(*_: object) -> None:
    """Nothing happens."""


def doing(wanted: str) -> Callable[[str, str], bool]:
    """Operations of a kind: "rename", "create" …"""
    return lambda *step: step[0] == wanted


def about(end: str) -> Callable[[str, str], bool]:
    """Operations on a name that ends so."""
    return lambda *step: step[1].endswith(end)


def below(folder: str) -> Callable[[str, str], bool]:
    """Operations on a name that begins so."""
    return lambda *step: step[1].startswith(folder)


def first_writes() -> Callable[[str, str], bool]:
    """All operations, but of the writes into one open file only the first: the others leave nothing else."""
    seen = set[tuple[str, ...]]()

    def counts(*step: str) -> bool:
        if step[0] == "write" and step in seen:
            return False
        seen.add(step)
        return True

    return counts


class Serial:
    """In the place of a pool of threads: one thing after the other, so that a run can be repeated."""

    def __init__(self, n: int) -> None:
        pass

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
        return list(map(function, *items))


@dataclass(eq=False)
class Actor:
    """A process."""

    name: str = "driver"
    faults: dict[int, str] = field(default_factory=dict)  # number → what happens there
    of_changes: bool = True  # numbers count changes, not all operations
    only: Callable[[str, str], bool] = always  # which operations are counted for faults
    operations: int = 0
    counted: int = 0
    dead: bool = False
    hit: list[str] = field(default_factory=list)


class World:
    """The stores of a run, who uses them, and what happened."""

    def __init__(self, seed: int = 0, observe: bool = True) -> None:
        self.random = random.Random(seed)
        self.observe_changes = observe
        self.history: list[tuple[str, str, str, str]] = []
        self.turn: Callable[[Actor, str, str], None] = never
        self.split_listings = False
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.watched: dict[str, Observer] = {}
        self.on: Callable[[str, str], None] = never  # called after each change, with the actor's rights of nobody
        self._local = threading.local()

    @property
    def actor(self) -> Actor | None:
        return getattr(self._local, "actor", None)

    @contextmanager
    def acting(self, actor: Actor | None) -> Iterator[Actor | None]:
        before, self._local.actor = self.actor, actor
        try:
            yield actor
        finally:
            self._local.actor = before

    @contextmanager
    def installed(self) -> Iterator[World]:
        """Every module of quire opens stores here, and runs its threads one after the other."""
        real = sys.modules["quire.storage"].connect
        changed = []

        def connect(url: str, options: Any = None) -> SimStore:
            return SimStore(real(url, options), self)

        for name, module in list(sys.modules.items()):
            if name == "quire" or name.startswith("quire."):
                for attribute, new in (("connect", connect), ("ThreadPoolExecutor", Serial)):
                    if attribute in vars(module):
                        changed.append((module, attribute, getattr(module, attribute)))
                        setattr(module, attribute, new)
        try:
            yield self
        finally:
            for module, attribute, old in changed:
                setattr(module, attribute, old)

    def store(self, url: str) -> SimStore:
        return SimStore(memory.MemoryStore(url), self)

    def do(
        self, store: SimStore, op: str, name: str, effect: Callable[[], Any], changes: bool, half: Callable[[], Any] | None = None
    ) -> Any:
        """One operation of whoever acts, with what befalls it."""
        actor = self.actor
        if actor is None:
            return self._effect(store, op, name, effect, changes)
        if actor.dead:
            raise Crash(actor.name)
        self.turn(actor, op, name)
        if actor.dead:
            raise Crash(actor.name)
        actor.operations += 1
        if actor.operations > STEPS:
            raise Endless(f"{actor.name} has made {STEPS} operations")
        fault = self._fault(actor, op, name, changes)
        self._note(actor, op, name, fault or "")
        if fault == "before":
            actor.dead = True
            raise Crash(actor.name)
        if fault == "torn" and half is not None:
            half()
            actor.dead = True
            raise Crash(actor.name)
        if fault == "transient":
            raise StorageError("the network is slow today")
        if fault == "late":
            self.late.append((len(self.history) + self.random.choice((3, 30, 300)), lambda: self._effect(store, op, name, effect, changes)))
            raise StorageError("no answer; it may come to pass later")
        result = self._effect(store, op, name, effect, changes)
        if fault in ("after", "torn"):
            actor.dead = True
            raise Crash(actor.name)
        if fault == "ambiguous":
            raise StorageError("no answer; it came to pass")
        return result

    def _fault(self, actor: Actor, op: str, name: str, changes: bool) -> str | None:
        if (actor.of_changes and not changes) or not actor.only(op, name):
            return None
        actor.counted += 1
        if fault := actor.faults.get(actor.counted):
            actor.hit.append(f"{fault} {op} {name}")
        return fault

    def land(self, everything: bool = False) -> None:
        """Let the late effects happen whose time has come."""
        due = [x for x in self.late if everything or x[0] <= len(self.history)]
        self.late = [x for x in self.late if x not in due]
        for _, effect in due:
            with suppress(StorageError):
                effect()
            self.history.append(("", "a late effect", "", ""))

    def _note(self, actor: Actor, op: str, name: str, fault: str) -> None:
        self.history.append((actor.name, op, name, fault))

    def _effect(self, store: SimStore, op: str, name: str, effect: Callable[[], Any], changes: bool) -> Any:
        result = effect()
        if changes:
            with self.acting(None):
                self.on(op, name)
                if self.observe_changes and store.url in self.watched:
                    self.watched[store.url].look(op, name)
        return result

    def told(self, last: int = 400) -> str:
        """The history, for a failure's message."""
        return "\n".join(" ".join(x for x in step if x) for step in self.history[-last:])


class SimSink:
    """A file that is being written: as on a disk, what was written is there before it is closed."""

    def __init__(self, store: SimStore, name: str) -> None:
        self.store, self.name, self.there = store, name, b""
        self.sink = store.world.do(store, "create", name, lambda: store.inner.create(name), True)

    def write(self, data: bytes | memoryview) -> None:
        data = bytes(data)
        half = data[: len(data) // 2]
        self.store.world.do(self.store, "write", self.name, lambda: self._write(data), True, lambda: self._write(half))

    def _write(self, data: bytes) -> None:
        self.sink.write(data)
        self.there += data
        if isinstance(self.store.inner, memory.MemoryStore):
            self.store.inner.put(self.name, self.there)

    def close(self) -> None:
        self.store.world.do(self.store, "close", self.name, self.sink.close, True)

    def discard(self) -> None:
        self.sink.discard()


class SimStore:
    """A store whose every operation goes through the world."""

    def __init__(self, inner: Any, world: World) -> None:
        self.inner, self.world = inner, world
        self.url, self.can_rename, self.shared = inner.url, inner.can_rename, inner.shared

    def _read(self, op: str, name: str, *args: Any, **options: Any) -> Any:
        return self.world.do(self, op, name, lambda: getattr(self.inner, op)(name, *args, **options), False)

    def _change(self, op: str, name: str, *args: Any) -> Any:
        return self.world.do(self, op, name, lambda: getattr(self.inner, op)(name, *args), True)

    def _list(self, op: str, folder: str, **options: Any) -> Iterator[Any]:
        """A listing that may miss what is made while it runs: its first half is older than its second."""
        found = self.world.do(self, op, folder, lambda: list(getattr(self.inner, op)(folder, **options)), False)
        if self.world.split_listings and found:
            pivot = self.world.random.choice(found)[0]
            later = self.world.do(self, op, folder, lambda: list(getattr(self.inner, op)(folder, **options)), False)
            found = [x for x in found if x[0] <= pivot] + [x for x in later if x[0] > pivot]
        return iter(found)

    def stat(self, name: str) -> Any:
        return self._read("stat", name)

    def is_folder(self, name: str = "") -> bool:
        return bool(self._read("is_folder", name))

    def scan(self, folder: str = "", **options: Any) -> Iterator[Any]:
        return self._list("scan", folder, **options)

    def peek(self, folder: str = "", **options: Any) -> Iterator[Any]:
        return self._list("peek", folder, **options)

    def walk(self, folder: str = "") -> Iterator[Any]:
        return self._list("walk", folder)

    def get(self, name: str) -> bytes:
        data: bytes = self._read("get", name)
        return data

    def get_range(self, name: str, start: int, length: int) -> bytes:
        data: bytes = self._read("get_range", name, start, length)
        return data

    def read_many(self, requests: Iterable[Any]) -> Iterator[Any]:
        for request in requests:
            yield self.world.do(self, "read", request.name, lambda r=request: next(iter(self.inner.read_many([r]))), False)

    def put(self, name: str, data: bytes) -> None:
        self._change("put", name, data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return bool(self._change("put_if_absent", name, data))

    def create(self, name: str) -> SimSink:
        return SimSink(self, name)

    def rename(self, old: str, new: str) -> None:
        self._change("rename", old, new)

    def check_writable(self) -> None:
        self.inner.check_writable()

    def remove(self, name: str) -> None:
        self._change("remove", name)

    def remove_tree(self, folder: str) -> None:
        names = [e.name for e in self.inner.walk(folder)]
        self.world.random.shuffle(names)
        for name in names:
            self.remove(name)
        if self.inner.is_folder(folder):
            self._change("remove_tree", folder)

    def sweep(self, folder: str) -> None:
        self.world.do(self, "sweep", folder, lambda: self.inner.sweep(folder), not isinstance(self.inner, memory.MemoryStore))


# --------------------------------------------------------------------------------------------------------------- independent eyes
def objects(url: str) -> dict[str, bytes]:
    """What lies in a store in memory."""
    prefix = url + "/"
    with memory._lock:
        return {path[len(prefix) :]: value[0] for path, value in memory._objects.items() if path.startswith(prefix)}


def forget_all() -> None:
    """Empty the memory stores."""
    with memory._lock:
        memory._objects.clear()


class Log:
    """What the entries of a destination say."""

    def __init__(self, there: dict[str, bytes]) -> None:
        self.entries: list[dict[str, Any]] = []
        while (data := there.get(f"_quire/log/{len(self.entries) + 1:020d}.json")) is not None:
            self.entries.append(json.loads(data))
        listed = [name for name in there if re.fullmatch(r"_quire/log/[0-9]{20}\.json", name)]
        assert len(listed) == len(self.entries), f"the log has a gap: {sorted(listed)}"
        self.outcome: dict[str, dict[str, Any]] = {}
        self.published: dict[str, dict[str, Any]] = {}
        for entry in self.entries:
            if entry["kind"] in ("commit", "abort"):
                if entry.get("parts"):
                    column = pq.read_table(pa.BufferReader(there[entry["parts"]])).column("task").to_pylist()
                    entry["tasks"] = [json.loads(text)["task"] for text in column]
                self.outcome.setdefault(entry["job"], entry)
            elif entry["kind"] == "published":
                self.published.setdefault(entry["job"], entry)

    def tasks(self, only_published: bool = False) -> Iterator[dict[str, Any]]:
        for job, entry in self.outcome.items():
            there = self.published.get(job)
            if entry["kind"] == "commit" and (there or not only_published):
                yield from (t for t in entry["tasks"] if not there or t["task"] not in there["lost"])


class Observer:
    """Looks at a destination after each change: what readers of the directory and of the log see at that moment."""

    def __init__(self, url: str, leaks: bool = False) -> None:
        self.url, self.leaks = url, leaks
        self.known: dict[str, bytes] = {}
        self.log = Log({})
        self.named: set[str] = set()
        self.live: list[tuple[str, int | None]] = []

    def look(self, op: str, name: str) -> None:
        there = objects(self.url)
        entries = {n: data for n, data in there.items() if n.startswith("_quire/log/0")}
        if entries != self.known:
            assert self.known.items() <= entries.items(), f"{op} {name} rewrote or deleted an entry of the log"
            self.known, self.log = entries, Log(there)
            self.named = {f["name"] for e in self.log.outcome.values() for t in e.get("tasks", ()) for f in t["files"]}
            self.live = [(f["name"], f["size"]) for t in self.log.tasks(only_published=True) for f in t["files"]]
            self.live += [(t["segment"], None) for t in self.log.tasks() if t["segment"]]
        for file, size in self.live:
            assert file in there, f"after {op} {name} the file {file} is missing, which readers of the log are told of"
            assert size is None or len(there[file]) == size, f"after {op} {name} the file {file} is not whole"
        if not self.leaks:
            seen = [n for n in there if not n.startswith("_quire/") and n not in self.named]
            assert not seen, f"after {op} {name} a reader of the directory sees {seen}, which nobody committed"


@dataclass
class Tree:
    """A source in memory, with every content that its files ever had."""

    url: str = SOURCE
    now: dict[str, tuple[str, bytes]] = field(default_factory=dict)  # path → version, content
    ever: dict[tuple[str, str], bytes] = field(default_factory=dict)

    def put(self, name: str, content: bytes) -> None:
        store = memory.MemoryStore(self.url)
        store.put(name, content)
        entry = store.stat(name)
        assert entry is not None
        path = f"{self.url}/{name}"
        self.now[path] = entry.version, content
        self.ever[path, entry.version] = content

    def remove(self, name: str) -> None:
        memory.MemoryStore(self.url).remove(name)
        del self.now[f"{self.url}/{name}"]


def expected(transform: str, content: bytes) -> bytes | None:
    """What must be written for a file; None: it must be set aside."""
    if transform == "xml":
        return None if b"BROKEN" in content or not content else content.strip() + b"\n"
    if transform == "lines" and content and not content.endswith(b"\n"):
        return content + b"\n"
    return content


def record(there: dict[str, bytes], row: dict[str, Any]) -> bytes:
    """What was written for a row of the ledger."""
    name = row["data_file"]
    if name is None:
        return b""
    data = there[name]
    if name.endswith(".parquet"):
        rows = pq.read_table(pa.BufferReader(data)).slice(row["offset"], row["records"])
        assert set(rows.column("path").to_pylist()) == {row["path"]}
        return b"".join(rows.column("content").to_pylist())
    if name.endswith(".gz"):
        data, out = data[row["offset"] :], b""
        while data and len(out) < row["skip"] + row["written"]:
            member = zlib.decompressobj(31)
            out += member.decompress(data)
            data = member.unused_data
        return out[row["skip"] :][: row["written"]]
    return data[row["offset"] + row["skip"] :][: row["written"]]


def total(name: str, data: bytes) -> int:
    """The bytes of content that a data file holds."""
    if name.endswith(".parquet"):
        return sum(map(len, pq.read_table(pa.BufferReader(data)).column("content").to_pylist()))
    size = 0
    while name.endswith(".gz") and data:
        member = zlib.decompressobj(31)
        size += len(member.decompress(data))
        data = member.unused_data
    return size if name.endswith(".gz") else len(data)


def check(tree: Tree, transform: str, *, url: str = DEST, all_taken: bool = True, clean: bool = True, leaks: bool = False) -> Log:
    """Hold a destination against its source: each file exactly once or set aside, in one version, and nothing left over."""
    there = objects(url)
    log = Log(there)
    assert {job for job, e in log.outcome.items() if e["kind"] == "commit"} == set(log.published), "a commit is not published"
    tasks = list(log.tasks())
    live = {f["name"]: f["size"] for t in tasks for f in t["files"]}
    segments = {t["segment"] for t in tasks if t["segment"]}
    seen = {name for name in there if not name.startswith("_quire/")}
    if leaks:  # rename v2 shows what open jobs have written
        open_jobs = {m[1] for name in there if (m := re.match(r"_quire/jobs/([^/]+)/", name)) and m[1] not in log.outcome}
        seen = {name for name in seen if not any(job in name for job in open_jobs)}
    lost = {f["name"] for e in log.outcome.values() for t in e.get("tasks", ()) for f in t["files"]} - set(live)
    assert seen - lost == set(live), f"data files that nobody committed or that are missing: {(seen - lost) ^ set(live)}"
    if clean:
        parts = {e["parts"] for e in log.entries if e.get("parts")}
        left = {n for n in there if n.startswith("_quire/") and not n.startswith("_quire/log/0")} - segments - parts
        assert not left, f"left over: {sorted(left)}"
    uncovered = {(u[0], u[1]) for t in tasks for u in t["uncovers"]}
    rows = defaultdict[str, list[dict[str, Any]]](list)
    for name in segments:
        for row in pq.read_table(pa.BufferReader(there[name])).to_pylist():
            if not (row["state"] == "bad" and (row["path"], row["version"]) in uncovered):
                rows[row["path"]].append(row)
    written = 0
    for path, found in rows.items():
        (version,) = {row["version"] for row in found}
        content = tree.ever[path, version]
        found.sort(key=lambda row: row["start"])
        at = 0
        for row in found:
            current = tree.now.get(path, ("", b""))[0] == version
            assert row["start"] == at or not current, f"{path}: {row['start']} follows {at}: double or missing"
            assert row["start"] >= at, f"{path}: {row['start']} follows {at}: double"
            at = row["start"] + row["length"]
        assert len(found) == 1 or content, f"{path} is empty and there {len(found)} times"
        wanted = expected(transform, content)
        if wanted is None:
            assert [row["state"] for row in found] == ["bad"], path
            continue
        assert {row["state"] for row in found} == {"done"}, path
        out = b"".join(record(there, row) for row in found)
        written += len(out)
        if at == len(content) and sum(row["length"] for row in found) == len(content):
            assert out == wanted, f"{path}: {out!r} instead of {wanted!r}"
    sizes = {name: total(name, there[name]) for name in live}
    assert sum(sizes.values()) == written, f"{sum(sizes.values())} bytes in the data files, {written} in the ledger"
    if all_taken:
        for path in tree.now:
            assert path in rows, f"{path} was never taken"
    return log


class Scheduler:
    """Drivers as threads of which one runs at a time; who goes on after an operation is drawn from a seed.

    `sleeps`: actor → the number of its operations after which it sleeps (a zombie) until everybody else has ended or sleeps too.
    `sticky`: how probable it is that the same driver goes on.
    """

    def __init__(self, world: World, sticky: float, sleeps: dict[str, int]) -> None:
        self.world, self.sticky, self.sleeps = world, sticky, sleeps
        self.scripts: dict[str, tuple[Actor, Callable[[], Any]]] = {}
        self.gates: dict[str, threading.Semaphore] = {}
        self.awake: list[str] = []
        self.asleep: list[str] = []
        self.ended: dict[str, BaseException | None] = {}
        self.over = threading.Event()
        self.stuck = False

    def add(self, actor: Actor, work: Callable[[], Any]) -> None:
        self.scripts[actor.name] = actor, work

    def run(self) -> dict[str, BaseException | None]:
        """Let them all run to their end; what each one raised."""
        self.world.turn = self._turn
        self.awake = list(self.scripts)
        self.gates = {name: threading.Semaphore(0) for name in self.scripts}
        threads = [threading.Thread(target=self._thread, args=(name,), daemon=True) for name in self.scripts]
        for thread in threads:
            thread.start()
        self.gates[self.world.random.choice(self.awake)].release()
        assert self.over.wait(120), f"stuck\n{self.world.told()}"
        for thread in threads:
            thread.join()
        self.world.turn = never
        return self.ended

    def _thread(self, name: str) -> None:
        actor, work = self.scripts[name]
        self.gates[name].acquire()
        with self.world.acting(actor):
            try:
                work()
                self.ended[name] = None
            except BaseException as e:
                self.ended[name] = e
        self.awake.remove(name)
        self._wake()
        if self.awake:
            self.gates[self.world.random.choice(self.awake)].release()
        else:
            self.over.set()

    def _wake(self) -> None:
        if not self.awake and self.asleep:
            self.awake.append(self.asleep.pop(self.world.random.randrange(len(self.asleep))))

    def _turn(self, actor: Actor, op: str, name: str) -> None:
        self.world.land()
        if self.sleeps.get(actor.name, -1) == actor.operations and actor.name in self.awake:
            del self.sleeps[actor.name]
            self.awake.remove(actor.name)
            self.asleep.append(actor.name)
            self._wake()
            self.world.history.append((actor.name, "sleeps", "", ""))
        elif self.world.random.random() < self.sticky:
            return
        follows = self.world.random.choice(self.awake)
        if follows != actor.name:
            self.gates[follows].release()
            self.gates[actor.name].acquire()


def run(world: World, actor: Actor, work: Callable[[], Any]) -> BaseException | None:
    """Let an actor work; what ended it."""
    with world.acting(actor):
        try:
            work()
        except (Crash, StorageError) as e:
            return e
    return None
