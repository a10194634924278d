"""Hudi's storage lock: where a JVM writer uses it, calls of quire's come before its commits, or after them."""

from __future__ import annotations

import json
import random
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from test_writes import LOCAL, frame

import quire
from gathering import refused
from quire.commit import protocol
from quire.errors import FormatError, QuireError
from quire.storage import Replacing, Store, connect
from quire.storage.memory import MemoryStore
from quire.table import closer, rounds, storage_lock, timeline
from quire.table.storage_lock import NAME
from quire.table.table import Table


@pytest.fixture
def table() -> Table:
    return Table.create(f"memory://{uuid.uuid4().hex}", key="id", partition_by="city", ordering="ts")


def store_of(table: Table) -> Store:
    return connect(f"table+{table.url}")


def write(table: Table, *rows: Any, **more: Any) -> Any:
    return table.upsert(frame(*rows), spark=LOCAL, **{"progress": False, **more})


def ids(table: Table) -> set[str]:
    if not timeline.read(store_of(table)).completed:
        return set()
    return set(table.snapshot(spark=LOCAL).column("id").to_pylist())


def put(table: Table, owner: str, valid: float, *, expired: bool = False) -> None:
    """As a JVM writer does; `valid`: seconds from now."""
    until = int((time.time() + valid) * 1000)
    store_of(table).put(NAME, json.dumps({"expired": expired, "validUntil": until, "owner": owner}).encode())


def state(table: Table) -> tuple[str, bool]:
    found = json.loads(store_of(table).get(NAME))
    assert set(found) == {"expired", "validUntil", "owner"}
    assert type(found["validUntil"]) is int
    return found["owner"].partition("-")[0], found["expired"]


def test_without_the_lock_of_a_jvm_writer_none_is_made(table: Table) -> None:
    write(table, ("a", "sf", 1, 1.0))
    assert store_of(table).stat(NAME) is None


@pytest.mark.parametrize("how", ["free", "dead"])
def test_a_free_lock_is_held_from_the_last_look_at_the_timeline_until_the_instant_is_there(
    table: Table, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put(table, "jvm-1", 300 if how == "free" else -60, expired=how == "free")
    seen, look, shown, owners = list[tuple[str, bool]](), rounds.over, protocol._publish, set[str]()

    def over(*args: Any) -> bool:
        seen.append(state(table))
        owners.add(json.loads(store_of(table).get(NAME))["owner"])
        return look(*args)

    def publish(*args: Any) -> None:
        seen.append(state(table))
        owners.add(json.loads(store_of(table).get(NAME))["owner"])
        shown(*args)
        seen.append(state(table))

    monkeypatch.setattr(rounds, "over", over)
    monkeypatch.setattr(protocol, "_publish", publish)
    write(table, ("a", "sf", 1, 1.0))
    assert seen[-3:] == [("quire", False)] * 3
    assert len(owners - {"jvm-1"}) == 1, "it is not let go in between"
    assert state(table) == ("quire", True)
    assert ids(table) == {"a"}


def test_a_call_waits_for_a_writer_that_holds_the_lock_and_says_for_whom(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table, "jvm-7", 300)
    waited, told = list[float](), list[str]()

    def pause(seconds: float) -> None:
        waited.append(seconds)
        assert ids(table) == set()
        if len(waited) == 3:
            put(table, "jvm-7", 300, expired=True)

    monkeypatch.setattr(storage_lock, "pause", pause)
    write(table, ("a", "sf", 1, 1.0), progress=lambda step: told.append(step.waits))
    said = {each for each in told if each}
    assert len(waited) == 3
    assert len(said) == 1, "it is said once"
    assert f"'jvm-7' holds the lock {table.url}/{NAME} until 20" in said.pop()
    assert (ids(table), state(table)) == ({"a"}, ("quire", True))


def test_a_call_that_is_the_second_to_take_a_free_lock_waits(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table, "jvm-1", 0, expired=True)
    real, waited = MemoryStore.put_if, list[float]()

    def late(self: MemoryStore, name: str, data: bytes, version: str) -> bool:
        if not waited:
            put(table, "jvm-2", 300)
        return real(self, name, data, version)

    def pause(seconds: float) -> None:
        waited.append(seconds)
        assert state(table) == ("jvm", False)
        if len(waited) == 2:
            put(table, "jvm-2", 300, expired=True)

    monkeypatch.setattr(MemoryStore, "put_if", late)
    monkeypatch.setattr(storage_lock, "pause", pause)
    write(table, ("a", "sf", 1, 1.0))
    assert len(waited) == 2
    assert (ids(table), state(table)) == ({"a"}, ("quire", True))


def test_a_lock_that_is_renewed_for_ever_ends_the_call_with_one_line_and_nothing_is_visible(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [time.time()]
    monkeypatch.setattr(storage_lock, "clock", lambda: now[0])

    def pause(seconds: float) -> None:
        now[0] += seconds
        store_of(table).put(NAME, json.dumps({"expired": False, "validUntil": int(now[0] * 1000) + 300_000, "owner": "jvm-7"}).encode())

    monkeypatch.setattr(storage_lock, "pause", pause)
    pause(0)
    with refused(QuireError, 3, "'jvm-7' holds the lock", "Call again when that program is done"):
        write(table, ("a", "sf", 1, 1.0), batch="monday")
    assert ids(table) == set()
    put(table, "jvm-7", 0, expired=True)
    write(table, ("a", "sf", 1, 1.0), batch="monday")
    assert ids(table) == {"a"}


def test_a_call_that_slept_beyond_its_lock_shows_nothing_before_it_has_it_again(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table, "jvm-7", 0, expired=True)
    now, real = [0.0], closer.commits.requested
    monkeypatch.setattr(storage_lock, "clock", lambda: time.time() + now[0])

    def slept(pending: str) -> bytes:
        now[0] += storage_lock.VALID + 10
        return real(pending)

    monkeypatch.setattr(closer.commits, "requested", slept)
    with refused(QuireError, 3, "was stopped for so long"):
        write(table, ("a", "sf", 1, 1.0))
    assert ids(table) == set()
    monkeypatch.setattr(closer.commits, "requested", real)
    quire.recover(table.url)
    assert (ids(table), state(table)) == ({"a"}, ("quire", True))


def test_what_is_not_a_lock_is_one_line(table: Table) -> None:
    store_of(table).put(NAME, b'{"owner": 3}')
    with refused(FormatError, 2, "table_lock.json is not a lock of Hudi's"):
        write(table, ("a", "sf", 1, 1.0))
    assert ids(table) == set()


def jvm_turn(store: Any, owner: str, inside: Callable[[], None], dies: Callable[[], bool]) -> bool:
    """One try of `StorageBasedLockProvider`; whether it has had the lock. One that dies leaves it."""
    found = store.stat(NAME)
    there = json.loads(store.get(NAME))
    now = int(time.time() * 1000)
    if not there["expired"] and now <= there["validUntil"] + storage_lock.DRIFT * 1000:
        return False
    mine = {"expired": False, "validUntil": now + int(storage_lock.VALID * 1000), "owner": owner}
    if not store.put_if(NAME, json.dumps(mine).encode(), found.version):
        return False
    inside()
    if not dies():
        assert store.put_if(NAME, json.dumps(mine | {"expired": True}).encode(), store.stat(NAME).version)
    return True


class Race:
    """Calls of quire's and writers on the JVM, some of which die while they hold the lock."""

    def __init__(self, store: Store, rng: random.Random, turns: int) -> None:
        self.store, self.rng, self.turns = store, rng, turns
        self.within, self.trouble, self.deaths = list[str](), list[str](), 2
        self.died = 0
        store.put(NAME, b'{"expired":true,"validUntil":0,"owner":"jvm-0"}')

    def inside(self, who: str) -> None:
        self.within.append(who)
        time.sleep(self.rng.uniform(0, 0.01))
        if self.within != [who]:
            self.trouble.append(f"{self.within} at once")
        self.within.remove(who)

    def dies(self) -> bool:
        self.deaths -= (dies := self.deaths > 0 and self.rng.random() < 0.2)
        self.died += dies
        return dies

    def ours(self, who: str) -> None:
        for _ in range(self.turns):
            with storage_lock.held(self.store):
                self.inside(who)
                hold = (storage_lock._held.get() or {})[self.store.url]
                assert hold is not None
                if self.dies():
                    hold._ended.set()
                    hold.release = lambda: None  # type: ignore[method-assign]

    def theirs(self, who: str) -> None:
        for _ in range(self.turns):
            while not jvm_turn(self.store, who, lambda: self.inside(who), self.dies):
                time.sleep(self.rng.uniform(0, 0.02))

    def run(self) -> list[str]:
        """How often two were inside."""
        players = [threading.Thread(target=run, args=(f"{run.__name__}-{i}",)) for i in range(3) for run in (self.ours, self.theirs)]
        for player in players:
            player.start()
        for player in players:
            player.join()
        return self.trouble


def test_never_are_two_inside_also_where_some_die(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_lock, "VALID", 1.0)
    monkeypatch.setattr(storage_lock, "DRIFT", 0.1)
    monkeypatch.setattr(storage_lock, "pause", lambda seconds: time.sleep(seconds / 20))
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    assert isinstance(store, Replacing)
    race = Race(store, random.Random(7), 8)
    assert (race.run(), race.died) == ([], 2)
