"""Exports over a destination's files, while drivers die, are slow, or work at once: their readers always find whole versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exported import OPTIONS, offered
from writes import listed, rows, there, write

import quire
import sim
from quire.commit import protocol
from quire.errors import QuireError
from sim.drivers import Scheduler, run
from sim.kinds import KINDS
from sim.ways import changing
from sim.world import Actor, Crash, World

LOCAL = quire.LocalRunner()


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def seen(world: World, format: str) -> list[int]:
    """The ids that a reader of the export finds; AssertionError for a file that is not there."""
    objects = world.there()
    files = offered(format, objects)
    missing = [name for name in files if name not in objects]
    assert not missing, f"the export has files that are gone: {missing}\n{world.told(60)}"
    assert all(size in (None, len(objects[name])) for name, size in files.items())
    return sorted(x for name in files for x in pq.read_table(pa.BufferReader(objects[name])).column("id").to_pylist())


def watched(world: World, states: list[list[int]], format: str) -> World:
    """Look after each change, as any reader may."""

    def look(*_: str) -> None:
        assert seen(world, format) in states

    world.on = look
    return world


def _story(dest: str, format: str) -> None:
    """Rows, the export, then others in their place and some more."""
    write(dest, [rows(1)], [rows(2)], batch="one")
    quire.Ledger(dest).export(format, **OPTIONS[format])
    write(dest, [rows(3)], [rows(4)], batch="two", overwrite=True)
    quire.Ledger(dest).compact(spark=LOCAL, progress=False)
    write(dest, [rows(5)], batch="three")


STATES = [[], [1, 2], [3, 4], [3, 4, 5]]


@pytest.mark.nth(6)
@pytest.mark.parametrize(
    ("format", "kind", "every"),
    [
        *((f, k, 24) for f in OPTIONS for k in ("hdfs", "s3")),
        *(pytest.param(f, k, 1, marks=pytest.mark.chaos) for f in OPTIONS for k in ("hdfs", "s3", "azure", "objects")),
    ],
)  # fmt: skip
def test_a_driver_that_dies_at_any_change_leaves_whole_versions(format: str, kind: str, every: int) -> None:
    def world() -> World:
        sim.forget_all()
        return watched(World(0, observe=False, kind=KINDS[kind]), STATES, format)

    first = world()
    with first.installed():
        assert run(first, Actor(), lambda: _story(first.dest, format)) is None
        assert seen(first, format) == there(first.dest) == listed(first.dest) == [3, 4, 5]
        operations = [op for _, op, _, _ in first.history]
    changes = [k for k, op in enumerate(operations, 1) if changing(op)]
    assert len(changes) > 40
    for k in changes[::every]:
        for how in ("before", "after", "ambiguous"):
            now = world()
            with now.installed():
                ended = run(now, Actor("dead", {k: how}, of_changes=False), lambda now=now: _story(now.dest, format))  # type: ignore[misc]
                assert ended is None or isinstance(ended, Crash | QuireError), ended
                now.settle()
                protocol.recover(now.store(now.dest), "open")
                _story(now.dest, format)
                assert seen(now, format) == there(now.dest) == listed(now.dest) == [3, 4, 5], f"{how} {k} ({operations[k - 1]})"
                assert quire.Ledger(now.dest).exports()[format] > 0


@pytest.mark.nth(6)
@pytest.mark.parametrize("format", OPTIONS)
@pytest.mark.parametrize("first", [0, 2, 4, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(6, 1_000, 20))])
def test_drivers_at_once_add_no_file_twice(first: int, format: str) -> None:
    for seed in range(first, first + (20 if first >= 6 else 2)):
        _race(seed, format)


def _race(seed: int, format: str) -> None:
    sim.forget_all()
    kind = ("hdfs", "s3")[seed % 2]
    world = World(seed, observe=False, kind=KINDS[kind])
    with world.installed():
        write(world.dest, [rows(0)], batch="first")
        quire.Ledger(world.dest).export(format, **OPTIONS[format])

        def looks(*_: str) -> None:
            ids = seen(world, format)
            assert len(set(ids)) == len(ids)

        # A store that replaces nothing on condition shows an older manifest for the moment that a stalled driver needs to mend it.
        if (format, kind) != ("symlinks", "hdfs"):
            world.on = looks
        order = Scheduler(world, (0.2, 0.6, 0.9)[seed % 3], {"a": 20 + seed % 60} if seed % 4 == 0 else {})
        for name, number in (("a", 1), ("b", 2)):
            dies = {world.random.randrange(5, 60): "before"} if seed % 5 == 0 and name == "b" else {}
            order.add(Actor(name, dies), lambda number=number: write(world.dest, [rows(number)], batch=str(number)))  # type: ignore[misc]
        order.add(Actor("c"), lambda: _tried(lambda: quire.Ledger(world.dest).compact(spark=LOCAL, progress=False)))
        ended = order.run()
        assert all(e is None or isinstance(e, Crash) for e in ended.values()), ended
        world.settle()
        for number in (1, 2):
            write(world.dest, [rows(number)], batch=str(number))
        quire.Ledger(world.dest).export(format, **OPTIONS[format])
        assert seen(world, format) == there(world.dest) == listed(world.dest) == [0, 1, 2]


def _tried(work: Any) -> None:
    with suppress(QuireError):
        work()
