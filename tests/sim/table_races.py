"""Races of calls into one table: each updates the same two rows and inserts one of its own; some sleep, die or hear wrong answers.

Readers see all of a call or none of it at each moment, no call vanishes, and at the end the last instant has the two rows.
"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow.parquet as pq

import quire
from quire.commit import protocol
from quire.errors import StorageError
from sim import tables
from sim.drivers import Scheduler
from sim.kinds import TABLES, Kind
from sim.races import Driver, troubled
from sim.tables import HERE, Readers, Rows
from sim.ways import By, Finding
from sim.witness import forget_all
from sim.world import DEST, Actor, Crash, Endless, World

__all__ = ["Race", "draw", "play"]

BEFORE = [("a", "sf", 0), ("b", "la", 0)]


@dataclass(frozen=True)
class Race:
    """Who writes, on which store; a driver's name ends with the number that it writes."""

    seed: int
    by: By
    kind: Kind
    drivers: tuple[Driver, ...]
    sticky: float
    compactors: tuple[Driver, ...] = ()  # where there are any, it is a merge-on-read table
    clusterers: tuple[Driver, ...] = ()
    nine: bool = False  # a table of version 9

    @property
    def servants(self) -> tuple[Driver, ...]:
        """Those that write no row."""
        return (*self.compactors, *self.clusterers)


def draw(seed: int, fitting: Sequence[tuple[By, Kind]]) -> Race:
    """A race of that seed."""
    rng = random.Random(f"table {seed}")
    by, kind = rng.choice([(by, kind) for by, kind in fitting if by.name in ("rename", "upload")])
    faulty = rng.random() < 0.4
    drivers = tuple(troubled(rng, TABLES[kind.name], f"writer {n}", (), faulty) for n in range(1, rng.choice((3, 3, 4))))
    sticky, most = rng.choice((0.0, 0.5, 0.9, 0.97)), rng.choice((0, 1, 2))
    compactors = tuple(troubled(rng, TABLES[kind.name], f"compactor {n}", (), faulty) for n in range(1, most + 1))
    clusterers = tuple(troubled(rng, TABLES[kind.name], f"clusterer {n}", (), faulty) for n in range(1, rng.choice((1, 1, 1, 2, 3))))
    return Race(seed, by, kind, drivers, sticky, compactors, clusterers, nine=rng.random() < 0.5)


class Together(Readers):
    """Readers for whom any order of whole calls is right."""

    def __init__(self) -> None:
        super().__init__([{}])
        self.own = set[int]()

    def hold(self, said: str, rows: Rows) -> None:
        own = {n for key, n in rows.items() if key.startswith("own")}
        assert own >= self.own, f"after {said} a commit has vanished"
        assert rows.get("a") == rows.get("b"), f"after {said} a reader sees a part of a commit: {rows}"
        assert not rows or rows["a"] in (own or {0}), f"after {said} a reader sees a part of a commit: {rows}"
        self.own = own

    def forget(self) -> None:
        super().forget()
        self.own = set()


def play(race: Race) -> None:
    """Let it run; each call is made again at its end, and counts once."""
    forget_all()
    world = World(race.seed, kind=TABLES[race.kind.name])
    world.watched[DEST] = Together()
    order = Scheduler(world, race.sticky, {d.name: d.sleeps for d in (*race.drivers, *race.clusterers) if d.sleeps})

    def opened() -> quire.Table:
        return tables.opened(world.dest, logs=bool(race.compactors), nine=race.nine)

    def write(n: int) -> None:
        opened().upsert(tables.frame([("a", "sf", n), ("b", "la", n), (f"own{n}", "sf", n)]), batch=f"batch {n}", **HERE)

    for n, driver in enumerate(race.drivers, 1):
        order.add(Actor(driver.name, dict(driver.faults)), lambda n=n: write(n))  # type: ignore[misc]
    for driver in race.servants:
        order.add(Actor(driver.name, dict(driver.faults)), lambda driver=driver: _serve(opened(), driver))  # type: ignore[misc]
    try:
        with world.installed():
            with world.acting(Actor("before")):
                for batch in ("before", "logs") if race.compactors else ("before",):
                    opened().upsert(tables.frame(BEFORE), batch=batch, **HERE)
            world.settle()
            _run(order)
            world.land(everything=True)
            world.settle()
            with world.acting(Actor("last")):
                for n, _ in enumerate(race.drivers, 1):
                    write(n)
                for driver in race.servants:
                    _serve(opened(), driver)
                protocol.recover(world.store(world.dest), "open")
            there = world.there()
            rows = tables.seen(tables.outside(there))
            numbers = range(1, len(race.drivers) + 1)
            last = max(numbers) if race.compactors else _last(there, numbers)
            wanted = {"a": last, "b": last, **{f"own{n}": n for n in numbers}}
            tables.check(
                [{}] * (len(race.drivers) + 1) + [wanted], there, world.folders(), world.waiting(), all_taken=not race.servants
            )  # fmt: skip
            assert rows == wanted, f"{rows} instead of {wanted}"
    except (Exception, Crash, Endless) as e:
        raise Finding(f"{race!r}: {type(e).__name__}: {e}\n{world.told(1000)}") from e
    finally:
        forget_all()


def _serve(table: quire.Table, driver: Driver) -> None:
    """Let a driver that writes no row do its work, twice.

    Another one may be carrying out the same plan, or writing while a plan is laid: a compaction says so, and is made again. A clustering
    sorts by something else each time, so that there is something to do.
    """
    for sort in ("n", ["id", "n"]):
        if driver.name.startswith("compactor"):
            table.compact(**HERE)
        else:
            table.cluster(sort=sort, **HERE)


def _run(order: Scheduler) -> None:
    """Let all drivers run to their end, which only the store may spoil."""
    for name, ended in order.run().items():
        hit = order.scripts[name][0].hit
        by_store = isinstance(ended, Crash | StorageError) or StorageError.__name__ in str(ended)
        assert ended is None or (hit and by_store), f"{name} ended with {ended!r}"


def _last(there: object, numbers: range) -> int:
    """Who wrote last: each row has the instant of the commit that wrote it."""
    found = dict[str, str]()
    for name, data in tables.outside(there).items():  # type: ignore[arg-type]
        if re.search(r"[0-9]{17}\.parquet$", name) and not name.startswith(".hoodie/"):
            for row in pq.read_table(io.BytesIO(data)).to_pylist():
                found[row["id"]] = max(found.get(row["id"], ""), row["_hoodie_commit_time"])
    return max(numbers, key=lambda n: found[f"own{n}"])
