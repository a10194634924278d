"""Who acts, on what, and what befalls them: the clock-work that every simulated operation goes through."""

from __future__ import annotations

import errno
import functools
import importlib
import pkgutil
import random
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import quire
from quire import storage
from quire.errors import StorageError, TransientError
from quire.sources.kafka import client as kafka_client
from quire.sources.kafka import offsets
from quire.storage import memory, retry, within
from sim import topics
from sim.disk import Disk
from sim.kinds import KINDS, Kind
from sim.wire import Wire

for _found in pkgutil.walk_packages(quire.__path__, "quire."):
    importlib.import_module(_found.name)  # all of them now: one that came later would keep a simulated `connect`

DEST = "memory://dest"
SOURCE = "memory://source"
STEPS = 4_000  # operations of one driver that no honest run needs: it never ends
POWER = {"power: lost": "lost", "power: names": "names", "power: some": "some"}  # fault → what of the unsynced is left


class Crash(BaseException):
    """The process is gone; nothing of it may catch this."""


class Endless(BaseException):
    """A driver that goes on for ever."""


class Seen(BaseException):
    """A witness saw a promise broken in the middle of a request: no client may take that for an error of the service."""


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


def _simulated(store: Any) -> bool:
    """Whether it lies in memory, as the sources do, whatever the destination is."""
    return hasattr(store, "inner")


class Serial:
    """In the place of a pool of threads: one thing after the other, so that a run can be repeated."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[..., Any], *items: Iterable[Any]) -> list[Any]:
        return list(map(function, *items))

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done = Future[Any]()
        try:
            done.set_result(function(*arguments))
        except Exception as e:
            done.set_exception(e)
        return done

    def shutdown(self, **_: object) -> None:
        pass


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
    away: bool = False  # no operation of it reaches the store any more
    hit: list[str] = field(default_factory=list)


class World:
    """The stores of a run, who uses them, and what happened."""

    def __init__(self, seed: int = 0, observe: bool = True, kind: Kind = KINDS["hdfs"]) -> None:
        self.random = random.Random(seed)
        self.kind = kind
        self.observe_changes = observe
        self.history: list[tuple[str, str, str, str]] = []
        self.turn: Callable[[Actor, str, str], None] = never
        self.split_listings = False
        self.late: list[tuple[int, Callable[[], object]]] = []
        self.watched: dict[str, Any] = {}  # place → what looks at it after each change
        self.on: Callable[[str, str], None] = never  # called after each change, with the actor's rights of nobody
        self.space: int | None = None  # bytes that can still be written; None: as many as you like
        self.made: dict[tuple[str, str], tuple[int, Actor | None]] = {}  # url, name → when, by whom (for listings that lag)
        self.disk: Disk | None = None
        self.wire: Wire | None = None
        self.dest = kind.url
        self.time = 0.0  # seconds that were waited
        self._alive = list[Actor]()
        self._unnamed = 0  # operations of nobody in particular
        self._local = threading.local()

    @property
    def actor(self) -> Actor | None:
        return getattr(self._local, "actor", None)

    @contextmanager
    def acting(self, actor: Actor | None) -> Iterator[Actor | None]:
        if actor is not None and actor not in self._alive:
            self._alive.append(actor)
        before, self._local.actor = self.actor, actor
        try:
            yield actor
        finally:
            self._local.actor = before

    @contextmanager
    def installed(self) -> Iterator[World]:
        """Every module of quire opens stores here, and runs its threads one after the other."""
        real = storage.bare
        changed: list[tuple[Any, str, Any]] = [(retry, "clock", retry.clock), (retry, "pause", retry.pause)]
        retry.clock, retry.pause = lambda: self.time, self._pass
        changed.append((kafka_client, "library", kafka_client.library))
        kafka_client.library = topics.library
        # Who acts is known by the thread, so the records are read in that one.
        changed.append((offsets, "ahead", offsets.ahead))
        offsets.ahead = lambda make: make(lambda: False)

        def connect(url: str, options: Any = None, on_retry: storage.OnRetry = storage.silent, *, links: bool = False) -> Any:
            return self._opened(functools.partial(real, links=links), url, options, on_retry)

        for name, module in list(sys.modules.items()):
            if name == "quire" or name.startswith("quire."):
                for attribute, new in (("connect", connect), ("ThreadPoolExecutor", Serial)):
                    if attribute in vars(module):
                        changed.append((module, attribute, getattr(module, attribute)))
                        setattr(module, attribute, new)
        with ExitStack() as stack:
            if self.kind.disk:
                where = stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-sim-"))
                self.disk = stack.enter_context(Disk(where, self).installed())
                self.dest = self.kind.marked(f"file://{self.disk.root}/dest")
            if self.kind.service is not None:
                self.wire = stack.enter_context(Wire(stack.enter_context(self.kind.service()), self).installed())
                self.dest = self.kind.marked(self.wire.url)
            if (self.kind.real or self.kind.table) and (observer := self.watched.pop(DEST, None)):
                observer.see(within.plain(self.dest), self.there)
                self.watched[within.plain(self.dest)] = observer
            try:
                yield self
            finally:
                for module, attribute, old in changed:
                    setattr(module, attribute, old)

    def _pass(self, seconds: float) -> None:
        self.time += seconds

    def store(self, url: str) -> Any:
        """A store as a driver opens it."""
        return self._opened(storage.bare, url, None, storage.silent)

    def _opened(self, bare: Callable[..., Any], url: str, options: Any, on_retry: storage.OnRetry) -> Any:
        from sim.stores import SimStore

        if self.wire is not None and storage.below(url, self.dest):
            options = self.wire.place.options
        if url.startswith("table+memory://"):
            store: Any = within.Within(SimStore(bare(within.plain(url), options), self))
        else:
            store = SimStore(bare(url, options), self) if url.startswith("memory://") else bare(url, options)
        return retry.Retrying(store, on_retry)

    def there(self) -> Mapping[str, bytes]:
        """What lies in the destination, seen by nobody; in a table what is quire's by the names that it goes by."""
        from sim.witness import objects

        if self.wire is not None:
            found: Mapping[str, bytes] = self.wire.place.objects()
        else:
            found = objects(within.plain(self.dest)) if self.disk is None else self.disk.objects("dest")
        return {self.known_as(name): data for name, data in found.items()}

    def folders(self) -> list[str]:
        """The directories in it, where there is such a thing."""
        if self.wire is not None:
            found: list[str] = self.wire.place.folders()
        else:
            found = [] if self.disk is None else self.disk.folders("dest")
        return [self.known_as(name) for name in found if not (self.kind.table and name == within.HOME)]

    def known_as(self, name: str) -> str:
        """The name of what lies in the destination. In a table nothing of quire's lies anywhere else than it should."""
        if not self.kind.table:
            return name
        assert name.partition("/")[0] != "_quire", f"{name} is written into a table, where readers take it for data"
        return re.sub(r"^\.hoodie/(?=_quire(?:/|$))", "", name)

    def do(self, store: Any, op: str, name: str, effect: Callable[[], Any], changes: bool, half: Callable[..., Any] | None = None) -> Any:
        """One operation of whoever acts, with what befalls it."""
        name = self.known_as(name)
        actor = self.actor
        if actor is None:
            self._unnamed += 1
            if self._unnamed > 5 * STEPS:
                raise Endless(f"{self._unnamed} operations")
            return self._effect(store, op, name, effect, changes)
        self._go_on(actor)
        self.turn(actor, op, name)
        self._go_on(actor)
        actor.operations += 1
        if actor.operations > STEPS * (10 if self.kind.real else 1):
            raise Endless(f"{actor.name} has made {actor.operations} operations")
        fault = self._fault(actor, op, name, changes)
        self.history.append((actor.name, op, name, fault or ""))
        self._befall(actor, fault, half)
        self._go_on(actor)
        actor.away |= fault == "away"
        if actor.away or fault == "transient":
            raise self._error(store, "503: the network is slow today")
        if fault == "refused":
            raise OSError(errno.EIO, "not you") if self.disk is not None and not _simulated(store) else StorageError("403: not you")
        if fault == "late":
            self.late.append((len(self.history) + self.random.choice((3, 30, 300)), lambda: self._effect(store, op, name, effect, changes)))
            raise self._error(store, "connection reset; it may come to pass later")
        result = self._effect(store, op, name, effect, changes)
        if fault in ("after", "torn"):
            actor.dead = True
            self._go_on(actor)
        if fault == "ambiguous":
            raise self._error(store, "connection reset; it came to pass")
        return result

    def _befall(self, actor: Actor, fault: str | None, half: Callable[..., Any] | None) -> None:
        if fault in POWER:
            self.power_cut(POWER[fault])
        if fault == "before":
            actor.dead = True
        if fault in ("begun", "torn") and half is not None:
            half(*((0,) if fault == "begun" else ()))
            actor.dead = True

    def _error(self, store: Any, said: str) -> Exception:
        if _simulated(store):
            return TransientError(said)
        if self.wire is not None:
            return ConnectionAbortedError(errno.ECONNABORTED, said)
        return TransientError(said) if self.disk is None else OSError(errno.ETIMEDOUT, said)

    @staticmethod
    def _go_on(actor: Actor) -> None:
        if actor.dead:
            raise Crash(actor.name)

    def _fault(self, actor: Actor, op: str, name: str, changes: bool) -> str | None:
        if (actor.of_changes and not changes) or not actor.only(op, name):
            return None
        actor.counted += 1
        if fault := actor.faults.get(actor.counted):
            actor.hit.append(f"{fault} {op} {name}")
        return fault

    def power_cut(self, left: str) -> None:
        """The machine stops: every process is gone, and of what was not fsynced there is only what is `left`."""
        for actor in self._alive:
            actor.dead = True
        self.history.append(("", "power cut", left, ""))
        if self.disk is not None:
            self.disk.cut(left, self.random)
            for observer in self.watched.values():
                observer.rewind()

    def take_space(self, wanted: int) -> int:
        """How many of so many bytes can still be written."""
        if self.space is None or self.actor is None:
            return wanted
        granted = min(wanted, self.space)
        self.space -= granted
        return granted

    def waiting(self) -> list[str]:
        """The uploads into the destination that are open, and that somebody has to give up."""
        if self.wire is not None:
            return self.wire.place.waiting() if self.kind.uploads == "apart" else []
        return [name for name, _ in memory.MemoryStore(within.plain(self.dest)).pending()] if self.kind.uploads == "apart" else []

    def expire(self) -> None:
        """So much time passes that the store drops all uploads that are open."""
        if self.wire is not None:
            self.wire.place.expire()
        else:
            store = memory.MemoryStore(within.plain(self.dest))
            for name, handle in list(store.pending()):
                store.give_up(name, handle)
        self.history.append(("", "all uploads expire", "", ""))

    def settle(self) -> None:
        """Time passes: listings show what is there."""
        self.made.clear()

    def land(self, everything: bool = False) -> None:
        """Let the late effects happen whose time has come."""
        due = [x for x in self.late if everything or x[0] <= len(self.history)]
        self.late = [x for x in self.late if x not in due]
        for _, effect in due:
            with suppress(StorageError):
                effect()
            self.history.append(("", "a late effect", "", ""))

    def _effect(self, store: Any, op: str, name: str, effect: Callable[[], Any], changes: bool) -> Any:
        result = effect()
        if changes:
            by = self.actor
            if self.kind.lag:
                self.made.setdefault((store.url, name), (len(self.history), by))
            with self.acting(None):
                self.on(op, name)
                observer = next((o for place, o in self.watched.items() if f"{store.url}/".startswith(f"{place}/")), None)
                if self.observe_changes and observer is not None:
                    try:
                        observer.look(op, name)
                    except Exception as e:
                        if self.wire is None:
                            raise
                        raise Seen(str(e)) from e
        return result

    def told(self, last: int = 400) -> str:
        """The history, for a failure's message."""
        return "\n".join(" ".join(x for x in step if x) for step in self.history[-last:])
