"""A call that writes into a table dies at each change: readers of Hudi see all of a commit or none of it, and it comes once."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, KeysView
from typing import Any

import pytest

import quire
import sim
from matrix import COMMITTERS, KINDS, fit
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import StorageError
from quire.table.table import Table
from sim import loads, table_races, tables
from sim.races import Driver
from sim.tables import FIRST, SECOND, frame, outside, seen

LOCAL = quire.LocalRunner()
ONE, TWO = ({row[0]: row[2] for row in rows} for rows in (FIRST, FIRST + SECOND))
FORMS = [(False, 6), (True, 6), (False, 9), (True, 9)]  # logs, version
NAMES = ["base", "logs", "version 9", "logs of version 9"]
_DONE = re.compile(r"\.hoodie/([0-9]{17})\.commit")


class Story:
    """A table with one commit, and a call that writes a second one."""

    def __init__(self, kind: sim.Kind, *, logs: bool = False, version: int = 6) -> None:
        """`logs`: it is a merge-on-read table."""
        sim.forget_all()
        self.how: dict[str, Any] = {"version": version, **({"type": "merge_on_read", "ordering": "n"} if logs else {})}
        self.world = sim.World(kind=kind, observe=False)
        self.states, self.last = list[dict[str, int]](), KeysView[str]({})

    def call(self, rows: list[tuple[str, str, int]], batch: str | None) -> Any:
        return Table(self.world.dest).upsert(frame(rows), batch=batch, spark=LOCAL, progress=False)

    def begin(self) -> None:
        self.create()
        self.call(FIRST, "first")

    def create(self) -> None:
        Table.create(self.world.dest, key="id", partition_by="city", index="simple", **self.how)

    def look(self, op: str = "", name: str = "") -> None:
        """What readers see now; it never goes back, and is never something between two commits."""
        there = outside(self.world.there())
        if there.keys() == self.last:
            return  # an object outside of quire's own never changes
        self.last = there.keys()
        now = seen(there)
        assert now in (ONE, TWO), f"after {op} {name}: {now}"
        assert not self.states or self.states[-1] != TWO or now == TWO, f"{op} {name}: the commit has vanished"
        self.states.append(now)


def crash(kind: sim.Kind, at: int, fault: str, *, logs: bool = False, version: int = 6) -> bool:
    """The second call dies at its change number `at`, and is called again; False: it came to its end before that."""
    story = Story(kind, logs=logs, version=version)
    world = story.world
    with world.installed():
        story.begin()
        world.on = story.look
        dead = sim.Actor(faults={at: fault})
        ended = sim.run(world, dead, lambda: story.call(SECOND, "second"))
        if fault in ("before", "after", "torn"):
            assert dead.hit == [] or isinstance(ended, sim.Crash), world.told()
        elif not isinstance(ended, StorageError):
            assert not isinstance(ended, BaseException), f"{ended!r}\n{world.told()}"
        with world.acting(sim.Actor("next")):
            report = story.call(SECOND, "second")
            log = Log(world.store(world.dest)).refresh()
        story.look()
        assert story.states[-1] == TWO, world.told()
        assert (report.inserted, report.updated) == (1, 2)
        assert sum(entry.why == "" for entry in log.outcomes()) == 2, "each batch once"
        with world.acting(sim.Actor("cleaner")):
            protocol.recover(world.store(world.dest), "open")
        left = [name for name in world.there() if re.search(r"/jobs/", name)]
        assert (left, world.waiting()) == ([], []), "nothing is left of what died"
    return bool(dead.hit)


@pytest.mark.nth(12)
@pytest.mark.parametrize("logs", [False, True], ids=["base", "logs"])
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous"])
@pytest.mark.parametrize("name", ["hdfs", "s3"])
def test_a_call_that_dies_at_a_change_is_there_whole_or_not_at_all(name: str, fault: str, *, logs: bool) -> None:
    """Some changes; the chaos lane takes each of them, on every kind of store."""
    for at in range(1 + len(fault), 1000, 19):
        if not crash(sim.TABLES[name], at, fault, logs=logs):
            assert at > 40
            return


@pytest.mark.nth(2)
@pytest.mark.parametrize(("name", "fault"), [("hdfs", "ambiguous"), ("s3", "after")])
def test_a_call_into_a_table_of_version_9_that_dies_is_there_whole_or_not_at_all(name: str, fault: str) -> None:
    for at in range(1 + len(fault), 1000, 47):
        if not crash(sim.TABLES[name], at, fault, version=9):
            assert at > 40
            return


@pytest.mark.chaos
@pytest.mark.parametrize(("logs", "version"), FORMS, ids=NAMES)
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous", "transient", "late"])
@pytest.mark.parametrize("kind", sim.TABLES.values(), ids=str)
def test_a_call_may_die_at_each_change_on_every_kind_of_store(kind: sim.Kind, fault: str, version: int, *, logs: bool) -> None:
    for at in range(1, 1000):
        if not crash(kind, at, fault, logs=logs, version=version):
            assert at > 20
            return


@pytest.mark.nth(8)
@pytest.mark.parametrize(("logs", "version"), FORMS, ids=NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_writers_at_once_lose_no_update(seed: int, version: int, *, logs: bool) -> None:
    """Of three calls that update the same keys each comes in whole, one after the other, in the order of their instants."""
    story = Story(sim.TABLES["hdfs"], logs=logs, version=version)
    world = story.world
    world.random.seed(seed)
    with world.installed():
        story.create()
        story.call([("a", "sf", 0), ("b", "la", 0)], None)
        order = sim.Scheduler(world, sticky=0.7, sleeps={})
        reports = dict[int, Any]()

        def write(n: int) -> None:
            reports[n] = story.call([("a", "sf", n), ("b", "la", n), (f"own{n}", "sf", n)], None)

        for n in (1, 2, 3):
            order.add(sim.Actor(f"writer{n}"), lambda n=n: write(n))
        ended = order.run()
        assert not any(ended.values()), ended
        last = max(reports, key=lambda n: reports[n].instant)
        latest = 3 if logs else last  # there the greatest n counts
        expected = {"a": latest, "b": latest, "own1": 1, "own2": 2, "own3": 3}
        assert seen(outside(world.there())) == expected, world.told()
        assert all((r.inserted, r.updated + r.stale) == (1, 2) for r in reports.values()), reports


@pytest.mark.parametrize("at", [1, 2])
def test_a_table_whose_creation_failed_says_how_to_go_on(at: int) -> None:
    """Of its settings the first, or the second part was not put."""
    sim.forget_all()
    world = sim.World(kind=sim.TABLES["hdfs"], observe=False)
    with world.installed():
        with world.acting(sim.Actor("unlucky", {at: "away"})), pytest.raises(StorageError, match="call again with the same settings"):
            tables.opened(world.dest)
        assert tables.opened(world.dest).config.key == ("id",)


@pytest.mark.nth(6)
@pytest.mark.parametrize("fault", ["transient", "ambiguous", "late"])
@pytest.mark.parametrize("name", ["hdfs", "s3"])
def test_what_a_busy_store_does_not_take_is_sent_again(name: str, fault: str) -> None:
    """Also the rows of a frame, which are written as a stream."""
    for at in range(1, 7):
        story = Story(sim.TABLES[name])
        with story.world.installed():
            story.begin()
            with story.world.acting(sim.Actor("unlucky", {at: fault})):
                assert story.call(SECOND, "second").updated == 2
            story.world.land(everything=True)
            assert seen(outside(story.world.there())) == TWO, story.world.told()


FITTING = [(by, kind) for by in COMMITTERS.values() for kind in KINDS.values() if fit(by, kind)]


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.chaos) for n in (10, 110))])
def test_races_of_calls_that_sleep_die_and_hear_wrong_answers(first: int) -> None:
    """On every kind of store; readers look after each change."""
    for number in range(first, first + (100 if first else 4)):
        table_races.play(table_races.draw(number, FITTING))


@pytest.mark.nth(8)
@pytest.mark.parametrize(("seed", "sticky"), [(4, 0.0), (5, 0.5), (7, 0.0), (41, 0.5), (1, 0.0), (8, 0.5), (18, 0.0), (21, 0.0)])
def test_writers_at_once_lose_no_update_where_listings_lag(seed: int, sticky: float) -> None:
    """In these races a round meets a listing that does not have the other's slice, or its instant, yet: it waits."""
    drivers = (Driver("writer 1", ()), Driver("writer 2", ()))
    table_races.play(table_races.Race(seed, COMMITTERS["rename"], KINDS["nfs"], drivers, sticky))


# ------------------------------------------------------------------------------------------------------- a topic into a table
def crash_while_loading(kind: sim.Kind, at: int, fault: str) -> bool:
    """A load into new files alone dies, and is called again: a record that came twice would be there twice."""
    story = Story(kind)
    world = story.world
    loads.fill()

    def load() -> None:
        tables.load("", world.dest, "")

    with world.installed():
        Table.create(world.dest, key="id", partition_by="city", index="simple")
        world.on = lambda op, name: seen(outside(world.there())) if ".commit" in name else None  # always readable
        dead = sim.Actor(faults={at: fault}, only=lambda *step: not step[0].startswith("kafka"))
        sim.run(world, dead, load)
        with world.acting(sim.Actor("next")):
            load()
            protocol.recover(world.store(world.dest), "open")
        loaded = tables.loaded(sim.Tree())[-1].keys()
        assert seen(outside(world.there())).keys() == loaded, world.told()
        assert ([name for name in world.there() if "/jobs/" in name], world.waiting()) == ([], [])
    return bool(dead.hit)


@pytest.mark.nth(3)
@pytest.mark.parametrize(("name", "fault"), [("hdfs", "before"), ("s3", "after"), ("hdfs", "ambiguous")])
def test_a_load_that_dies_loses_and_doubles_no_record(name: str, fault: str) -> None:
    """Some changes; the chaos lane takes each of them, on every kind of store."""
    for at in range(1 + len(fault), 1000, 37):
        if not crash_while_loading(sim.TABLES[name], at, fault):
            assert at > 40
            return


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous", "transient", "late"])
@pytest.mark.parametrize("kind", sim.TABLES.values(), ids=str)
def test_a_load_may_die_at_each_change_on_every_kind_of_store(kind: sim.Kind, fault: str) -> None:
    for at in range(1, 1000):
        if not crash_while_loading(kind, at, fault):
            assert at > 40
            return


# ------------------------------------------------------------------------------------------------------------- several writers
def at_the_slot(story: Story, name: str, action: Callable[[], object]) -> None:
    """Once, when this actor is about to put its commit into the log, something else happens first."""
    waiting = [action]

    def turn(actor: sim.Actor, op: str, where: str) -> None:
        if actor.name == name and op == "put_if_absent" and "/log/" in where and waiting:
            waiting.pop()()

    story.world.turn = turn


def test_a_commit_that_comes_before_the_slot_repeats_the_round() -> None:
    """It touched the same file: what the round was merged with is outdated, and its update would be lost."""
    story = Story(sim.TABLES["hdfs"])
    world = story.world
    with world.installed():
        story.begin()

        def other() -> None:
            with world.acting(sim.Actor("other")):
                story.call([("b", "sf", 7)], None)

        at_the_slot(story, "driver", other)
        with world.acting(sim.Actor()):
            report = story.call([("a", "sf", 8)], None)
        assert seen(outside(world.there())) == {"a": 8, "b": 7, "c": 1}
        assert (report.updated, report.inserted) == (1, 0)


def test_commits_appear_in_the_order_of_the_log() -> None:
    """The one before ours was committed by a writer that died: who pulls changes up to our instant must have it."""
    story = Story(sim.TABLES["hdfs"])
    world = story.world
    with world.installed():
        story.begin()
        at_slot, go, ended = threading.Event(), threading.Event(), dict[str, Any]()

        def dying() -> None:
            def stop(actor: sim.Actor, op: str, where: str) -> None:
                if actor.name == "first" and op == "put_if_absent" and "/log/" in where and not at_slot.is_set():
                    at_slot.set()
                    go.wait(60)

            world.turn = stop
            ended["first"] = sim.run(
                world, sim.Actor("first", faults={1: "after"}, only=lambda *step: "/log/" in step[1]),
                lambda: story.call([("a", "sf", 7)], None),
            )  # fmt: skip

        thread = threading.Thread(target=dying)
        thread.start()
        assert at_slot.wait(60), "the first one has closed its round, and waits before its slot"

        def commit_and_die() -> None:
            go.set()
            thread.join(60)

        at_the_slot(story, "second", commit_and_die)
        order = list[str]()
        world.on = lambda op, name: order.append(name) if _DONE.fullmatch(name) else None
        with world.acting(sim.Actor("second")):
            report = story.call([("c", "la", 8)], None)
        assert isinstance(ended["first"], sim.Crash)
        assert len(order) == 2
        assert order == sorted(order), "the earlier instant appears first"
        assert order[-1].endswith(f"{report.instant}.commit")
        assert seen(outside(world.there())) == {"a": 7, "b": 1, "c": 8}


def test_a_commit_that_lost_a_file_never_appears_and_its_batch_comes_again() -> None:
    """The process died between two files, and the store has dropped the other uploads: the one in its place goes."""
    story = Story(sim.TABLES["s3"])
    world = story.world
    with world.installed():
        story.begin()
        dead = sim.Actor(faults={2: "before"}, only=lambda *step: step[0] == "complete" and step[1].endswith(".parquet"))
        assert isinstance(sim.run(world, dead, lambda: story.call(SECOND, "second")), sim.Crash)
        world.expire()
        before = {name for name in outside(world.there()) if name.endswith(".parquet")}
        with world.acting(sim.Actor("next")):
            log = protocol.recover(world.store(world.dest))
        assert len(before) == 3, "two of the first commit, and one that is in its place"
        assert len({name for name in outside(world.there()) if name.endswith(".parquet")}) == 2
        assert (seen(outside(world.there())), log.unpublished()) == (ONE, [])
        with world.acting(sim.Actor("again")):
            report = story.call(SECOND, "second")
        assert (seen(outside(world.there())), report.again) == (TWO, False)
