"""Loaders of a real Kafka's topics, killed at every step of a commit and anywhere; the broker, killed and started again, or asleep; and
what the two designs that are not exactly once make of the same.

Meanwhile transactions are aborted, a topic is compacted, and another one's oldest records are removed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moments import (
    ARCHIVES,
    CLEAN_UP,
    FREEZING,
    IN_A_TASK,
    JOB_COMMIT,
    LOGS,
    PUBLISHED,
    RENAMES,
    ROUNDS,
    TAKING_BACK,
    TASK_COMMIT,
    UPKEEP,
    Moment,
)
from processes import Driver, driver
from test_drivers import kill
from test_spark import FOREVER, kill_driver, kill_worker
from test_stores import PATIENCE, go_away
from topics import LoadedIntoTable, LoggedIntoTable, LookedAfter, broker_part, loaded

from services.kafka_broker import Cluster, broker
from services.kafka_designs import Died, acknowledged, beside
from services.kafka_witness import by_value, lines, look

if TYPE_CHECKING:
    from tale import Tale

OPENING = IN_A_TASK[2:]  # its data file, which it fills while it reads
STEPS: list[Moment] = [*FREEZING, *OPENING, *TASK_COMMIT, *JOB_COMMIT, *RENAMES, *PUBLISHED, *CLEAN_UP]
WITH_LOGS = [FREEZING[0], *TASK_COMMIT, *JOB_COMMIT, *RENAMES, PUBLISHED[0], *ROUNDS[:2], *LOGS, *UPKEEP]
INTO_A_TABLE = [*FREEZING, *TASK_COMMIT, *JOB_COMMIT, *RENAMES, *PUBLISHED, *ROUNDS]


@pytest.fixture(scope="module")
def kafka() -> Iterator[Cluster]:
    """One that is killed."""
    with broker() as cluster:
        yield cluster


@pytest.mark.services
def test_a_loader_killed_and_a_broker_that_goes_away(kafka: Cluster, tmp_path: Path, tale: Tale) -> None:
    with loaded("short load", tmp_path, tale, kafka) as s:
        for card in (TASK_COMMIT[2], RENAMES[1]):
            s.add(60)
            s.order(card)
            with driver(s.place, s.settings) as d:
                assert s.strike([d], card), f"it never came to {card}"
        s.recover()
        go_away(s, OPENING[1], broker_part(kafka), asleep=False, seconds=0.5)


@pytest.mark.chaos
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(3))
def test_loaders_killed_at_each_step(kafka: Cluster, number: int, tmp_path: Path, tale: Tale) -> None:
    """Also while another one is at work, and also those who recover."""
    cards: list[Moment | str] = [*STEPS, *["call"] * 12, *["time"] * 6]
    tale.rng("cards of loads").shuffle(cards)
    with loaded(f"loads {number}", tmp_path, tale, kafka) as s:
        s.add(100)
        killed = sum(kill(s, card) for card in cards[number::3])
        s.recover()
    assert killed >= 10


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", range(3))
def test_loaders_into_a_table_killed_at_each_step(kafka: Cluster, number: int, tmp_path: Path, tale: Tale) -> None:
    """Also of the sort, of a round and of the publication of an instant."""
    cards: list[Moment | str] = [*INTO_A_TABLE, *INTO_A_TABLE, *["call"] * 13, *["time"] * 13]
    tale.rng("cards of tables").shuffle(cards)
    with loaded(f"loads into a table {number}", tmp_path, tale, kafka, kind=LoadedIntoTable) as s:
        s.add(100)
        killed = sum(kill(s, card) for card in cards[number::3])
        s.recover()
    assert killed >= 17


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("number", range(3))
def test_loaders_into_a_table_with_logs_killed_beside_compactions_and_cleans(
    kafka: Cluster, number: int, tmp_path: Path, tale: Tale
) -> None:  # fmt: skip
    """One inserts four topics, one changes keys by a fifth, one compacts and cleans, all at once: whoever comes to the moment dies."""
    cards: list[Moment | str] = [*WITH_LOGS, *UPKEEP, *["call"] * 10, *["time"] * 10]
    tale.rng("cards of logs").shuffle(cards)
    with loaded(f"loads into logs {number}", tmp_path, tale, kafka, kind=LoggedIntoTable) as s:
        s.add(60)
        killed = sum(_kill_one(s, card) for card in cards[number::3])
        s.recover()
    assert killed >= 15


def _kill_one(s: LoggedIntoTable, card: Moment | str) -> bool:
    """Kill one of several that work at once, and often recover after it: else the next kill meets those who do."""
    for _ in range(4):
        s.add(s.rng.randint(15, 40))
        s.order(card)
        roles, drivers = s.rng.sample([*s.roles.items()], 3), list[Driver]()
        with ExitStack() as all_ended:
            for name, (settings, program) in roles:
                # Of a moment that all have, as a commit, it is a load that dies: looking after the table starts faster.
                s.place.hooked = not isinstance(card, Moment) or (name == "upkeep") == (card in UPKEEP)
                drivers.append(all_ended.enter_context(driver(s.place, settings, program=program)))
                s.names[drivers[-1].pid] = name
            killed = s.strike(drivers, card)
            for other in drivers:
                if other is not killed:
                    other.end()
        if killed:
            if s.rng.random() < 0.5:
                s.recover()
            return True
    return False


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("number", range(3))
def test_whoever_looks_after_a_table_killed_beside_loads(kafka: Cluster, number: int, tmp_path: Path, tale: Tale) -> None:
    """Compactions, cleans, archives, rollbacks and restores die at each of their steps and anywhere, while topics are loaded."""
    anywhere = ["call"] * 5 + ["time"] * 2
    cards = [("upkeep", card) for card in (*UPKEEP, *ARCHIVES, *anywhere)]
    cards += [(role, card) for role in ("rollback", "restore") for card in (*TAKING_BACK, *anywhere)]
    tale.rng("cards of upkeep").shuffle(cards)
    with loaded(f"upkeep beside loads {number}", tmp_path, tale, kafka, kind=LookedAfter) as s:
        s.add(40)
        s.recover()
        s.recover()
        killed = sum(_kill_of_upkeep(s, role, card) for role, card in cards[number::3])
        s.recover()
        tale.say(f"     {s.name}: {killed} killed of upkeep; who came through said {dict(s.told_by)}")
        assert list((s.dest / ".hoodie/archived").glob(".commits*")), "nothing was archived"
    assert killed >= 17


def _kill_of_upkeep(s: LookedAfter, role: str, card: Moment | str) -> bool:
    """Kill one who looks after the table, while two load, and often recover after it."""
    for _ in range(4):
        s.add(s.rng.randint(15, 40))
        s.order(card)
        drivers = list[Driver]()
        with ExitStack() as all_ended:
            for name in (role, "loader", "updater"):
                s.place.hooked = name == role
                settings, program = s.role(name)
                drivers.append(all_ended.enter_context(driver(s.place, settings, program=program)))
                s.names[drivers[-1].pid] = name
            killed = s.strike(drivers, card)
            for other in drivers:
                if other is not killed:
                    said = other.end()
                    s.told_by[said[:40]] += s.names[other.pid] == role
        if killed:
            if s.rng.random() < 0.5:
                s.recover()
            return True
        s.mistakes += role != "upkeep"
    s.tale.say(f"     {s.name}: {role} never came to {card}")
    return False


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("asleep", [False, True], ids=["killed", "asleep"])
def test_the_broker_goes_away(kafka: Cluster, asleep: bool, tmp_path: Path, tale: Tale) -> None:
    cards = [FREEZING[0], OPENING[0], OPENING[1], TASK_COMMIT[0], TASK_COMMIT[2], JOB_COMMIT[0], JOB_COMMIT[1], RENAMES[0]]
    with loaded(f"the broker {'asleep' if asleep else 'killed'}", tmp_path, tale, kafka) as s:
        for card in cards:
            go_away(s, card, broker_part(kafka), asleep=asleep, seconds=s.rng.uniform(0, 3))


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_workers_and_drivers_on_spark(kafka: Cluster, tmp_path: Path, tale: Tale) -> None:
    with loaded("loads on spark", tmp_path, tale, kafka) as s:
        s.add(100)
        with driver(s.place, s.settings | FOREVER, "local[2,4]") as d:
            s.wait_gathered(d, PATIENCE)
            for card in (*OPENING, *TASK_COMMIT):
                kill_worker(s, d, card)
            kill_driver(s, d, JOB_COMMIT[0], "driver and all its processes")
        for card, victim in ((RENAMES[0], "driver"), (CLEAN_UP[0], "JVM")):
            with driver(s.place, s.settings | FOREVER, "local[2]") as d:
                s.wait_gathered(d, PATIENCE)
                s.check("the next driver", late=20)
                kill_driver(s, d, card, victim)
        s.recover()


@pytest.mark.chaos
def test_the_other_designs_lose_or_double(kafka: Cluster, tmp_path: Path, tale: Tale) -> None:
    """On the records of such a story: dead between the same two steps, data first and what is remembered of it after."""
    with loaded("the other designs", tmp_path, tale, kafka) as s:
        s.add(300)
        with pytest.raises(Died):
            acknowledged(kafka, s.plain, tmp_path / "a", dies="before the acknowledgement", after=1)
        with pytest.raises(Died):
            beside(kafka, s.plain, tmp_path / "b", dies="between data and offsets")
        s.add(10)
        acknowledged(kafka, s.plain, tmp_path / "a")
        beside(kafka, s.plain, tmp_path / "b")
        must = look(kafka, s.plain)
        for design, found, lost, double in (
            ("at least once, without orphans", lines(tmp_path / "a"), True, False),
            ("at least once", lines(tmp_path / "a") + lines(tmp_path / "a", _orphans(tmp_path / "a")), False, True),
            ("offsets beside data", lines(tmp_path / "b"), False, True),
        ):
            # A tombstone is an empty line there.
            told = by_value(must, {value: n for value, n in found.items() if value})
            tale.say(f"     {design}: {told.expected} expected, {len(told.lost)} lost, {len(told.double)} double")
            assert (bool(told.lost), bool(told.double)) == (lost, double), f"{design}: {told}"
        s.recover()


def _orphans(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("_open-*")]
