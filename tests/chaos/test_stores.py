"""Drivers whose source and destination are on real services: killed at each kind of request; and the services themselves, which are
killed and started again, or fall asleep, while drivers are at work.

Whoever meets a service that is away rides it out, or ends with one clear line, and the next call makes it good.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moments import REQUESTS, Moment
from processes import Driver, driver, one_line, send
from remote import Part, Remote, Service, remote, running
from test_drivers import kill
from test_spark import FOREVER, kill_driver, kill_worker

if TYPE_CHECKING:
    from tale import Tale

SLEEP = 6.0  # seconds
PATIENCE = 180.0  # seconds until Spark is up, and has gathered


def moments(name: str, after: bool = False) -> list[Moment]:
    """The first ones of a run: a small job has no third task."""
    return [replace(moment, most=0) for moment in REQUESTS if moment.name == name and moment.after == after]


@pytest.fixture(scope="module", params=["azurite", "seaweedfs", "hdfs"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    with running(request.param) as found:
        yield found


def away(s: Remote, d: Driver, card: Moment, part: Part, *, asleep: bool, seconds: float) -> None:
    """A driver comes to a moment; a part of the service goes away before it goes on, and comes back after some time."""
    found = s.hook.wait([d], PATIENCE)
    assert found, f"no process came to {card}: {d.said()[-3000:]}"
    if asleep:
        part.sleep()
    else:
        part.kill()
    send(found[0], signal.SIGCONT)
    time.sleep(seconds)
    if asleep:
        part.wake()
    else:
        part.start()
    s.struck(part.name, found[1], card, stopped=asleep)


def rides_or_says(s: Remote, d: Driver) -> None:
    """It comes to its end, or ends with one clear line."""
    code = d.popen.wait(200)
    said = d.said()
    if code == 0:
        s.tale.say("     the driver rode it out")
        return
    line = one_line(said)
    s.tale.say(f"     the driver ended: {line}")
    assert said.rstrip().splitlines()[-1].startswith("quire.errors."), f"no clear line: {said[-3000:]}"


def go_away(s: Remote, card: Moment, part: Part, *, asleep: bool, seconds: float) -> None:
    """One driver without Spark, and a service that is away for some time."""
    s.add(s.rng.randint(40, 80))
    s.order(card)
    with driver(s.place, s.settings) as d:
        away(s, d, card, part, asleep=asleep, seconds=seconds)
        rides_or_says(s, d)
    s.recover("the next call")


# ---------------------------------------------------------------------------------------------------------------- in make test
@pytest.mark.services
def test_kills_and_a_service_that_goes_away(tmp_path: Path, tale: Tale) -> None:
    """On Azurite: a driver killed in a task and when it publishes; the service ended and started again, and asleep."""
    with running("azurite") as service, remote("short", tmp_path, tale, service) as s:
        for card in (moments("task commit")[1], moments("publish", after=True)[0]):
            s.add(30)
            s.order(card)
            with driver(s.place, s.settings) as d:
                assert s.strike([d], card), f"it never came to {card}"
        s.recover()
        go_away(s, moments("in a task")[0], service.parts[0], asleep=False, seconds=0.5)
        go_away(s, moments("job commit")[0], service.parts[0], asleep=True, seconds=1)


# --------------------------------------------------------------------------------------------------------------- in make chaos
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_drivers_killed_at_each_request(service: Service, tmp_path: Path, tale: Tale) -> None:
    """Before and after each kind of request, before any, and at times that are drawn; also while another one is at work."""
    cards: list[Moment | str] = [*REQUESTS, *["call"] * 8, *["time"] * 6]
    tale.rng(f"cards {service.name}").shuffle(cards)
    killed = 0
    for number in range(3):
        settings = {"compression": "gzip"} if number == 1 else {}
        with remote(f"drivers {number}", tmp_path, tale, service, settings) as s:
            s.add(80)
            for card in cards[number::3]:
                killed += kill(s, card)
            s.recover()
    assert killed >= 30


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_workers_and_drivers_on_spark(service: Service, tmp_path: Path, tale: Tale) -> None:
    """Python workers, drivers and whole sessions of local Spark."""
    with remote("spark", tmp_path, tale, service) as s:
        s.add(100)
        cards = [*moments("in a task"), *moments("in a task", after=True), *moments("task commit"), *moments("task commit", after=True)]
        with driver(s.place, s.settings | FOREVER, "local[2,4]") as d:
            s.wait_gathered(d, PATIENCE)
            for card in cards:
                kill_worker(s, d, card)
            kill_driver(s, d, moments("job commit")[0], "driver and all its processes")
        for card, victim in (
            (moments("publish")[0], "driver"),
            (moments("publish", after=True)[0], "driver and all its processes"),
            (moments("clean-up")[0], "JVM"),
        ):
            with driver(s.place, s.settings | FOREVER, "local[2]") as d:
                s.wait_gathered(d, PATIENCE)
                s.check("the next driver", late=20)
                kill_driver(s, d, card, victim)
        s.recover()


@pytest.mark.chaos
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("asleep", [False, True], ids=["killed", "asleep"])
def test_the_service_goes_away(service: Service, asleep: bool, tmp_path: Path, tale: Tale) -> None:
    """Killed and started again, or asleep for some seconds, when a driver is about to ask for something."""
    cards = [
        moments("listing")[0], moments("plan frozen")[0], moments("in a task")[0], moments("task commit")[0], moments("task commit")[1],
        moments("job commit")[0], moments("job commit", after=True)[0], moments("publish")[0], moments("publish")[1],
        moments("clean-up")[0],
    ]  # fmt: skip
    with remote("asleep" if asleep else "killed", tmp_path, tale, service) as s:
        for number, card in enumerate(cards):
            part = service.parts[number % len(service.parts)]
            go_away(s, card, part, asleep=asleep, seconds=SLEEP if asleep else s.rng.uniform(0, 3))


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_the_service_goes_away_from_spark(service: Service, tmp_path: Path, tale: Tale) -> None:
    """The same while workers of Spark write and commit."""
    with remote("spark, away", tmp_path, tale, service) as s:
        for number, card in enumerate((moments("in a task")[0], moments("task commit")[1], moments("publish")[0])):
            for asleep in (False, True):
                s.add(100)
                s.order(card)
                with driver(s.place, s.settings, "local[2]") as d:
                    away(s, d, card, service.parts[number % len(service.parts)], asleep=asleep, seconds=SLEEP if asleep else 1)
                    rides_or_says(s, d)
                s.recover("the next call")
