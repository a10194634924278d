"""Loops of loads outlive brokers that are away and tokens that expire, on a simulated clock; a topic that was made again ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError

import quire
import sim
from gathering import refused
from matrix import KINDS
from quire.engine import outages
from quire.errors import RefusedError, StorageError
from quire.storage import retry
from sim import loads
from sim.topics import TOPICS
from sim.witness import check
from sim.world import Actor, World

HOUR = 3600.0


@pytest.fixture
def world() -> Iterator[World]:
    """A store and topics, and one who acts."""
    sim.forget_all()
    loads.fill()
    with World(kind=KINDS["hdfs"]).installed() as made, made.acting(Actor("loader")):
        yield made
    sim.forget_all()


class Time:
    """It passes where somebody waits; brokers answer with an error until the time comes that a test says."""

    def __init__(self) -> None:
        self.now, self.code, self.until = 1_764_244_800.0, 0, 0.0

    def read(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        TOPICS.failing.clear()
        if self.now < self.until:
            TOPICS.failing.append(self.code)

    def fail(self, code: int, seconds: float) -> None:
        self.code, self.until = code, self.now + seconds
        TOPICS.failing.append(code)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    found = Time()

    def pause(stopped: threading.Event, seconds: float) -> bool:
        found.wait(seconds)
        return stopped.is_set()

    for module, name, value in ((retry, "clock", found.read), (retry, "pause", found.wait), (outages, "clock", found.read)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(outages, "pause", pause)
    return found


def loop(then: Callable[[int], object], **settings: Any) -> quire.LoadReport:
    """Runs that are a millisecond apart; `then` happens when one begins to list."""
    number, last = 0, ""

    def progress(step: quire.ProgressEvent) -> None:
        nonlocal number, last
        if step.phase == "listing" != last:
            number += 1
            then(number)
        last = step.phase

    return loads.load(sim.DEST, "rename", **{"every": "1 ms", "max_runs": 3, "progress": progress, **settings})


AWAY = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.SASL_AUTHENTICATION_FAILED)


@pytest.mark.parametrize("code", AWAY)
def test_brokers_that_are_away_for_an_hour_or_refuse_a_token_are_outlived(world: World, clock: Time, code: int) -> None:
    def then(run: int) -> None:
        if run == 2:
            clock.fail(code, HOUR)
            TOPICS.produce("events", 0, b"late")

    report = loop(then)
    check(sim.Tree(), "load", there=world.there(), all_taken=True, clean=True)
    assert report.gap_count == 1
    assert HOUR - 120 < report.gaps[0].seconds < HOUR + 120
    assert "cannot ask for offsets" in report.gaps[0].away


def test_brokers_that_stay_away_end_the_loop_and_the_next_one_goes_on(world: World, clock: Time) -> None:
    def then(run: int) -> None:
        if run == 1:
            clock.fail(KafkaError.SASL_AUTHENTICATION_FAILED, 50 * HOUR)
            TOPICS.produce("events", 0, b"late")

    with refused(StorageError, 3, "outage='2 h' allows no more", "security.protocol"):
        loop(then, outage="2 h")
    assert clock.now < clock.until - 47 * HOUR
    TOPICS.failing.clear()
    assert loop(lambda _: None).gaps == ()
    check(sim.Tree(), "load", there=world.there(), all_taken=True, clean=True)


def test_a_topic_that_was_made_again_ends_the_loop_with_one_line(world: World, clock: Time) -> None:
    def then(run: int) -> None:
        if run == 2:
            TOPICS.create("events", 2)
            for partition in (0, 1):
                TOPICS.produce("events", partition, *(b"another %d" % i for i in range(20)))

    before = clock.now
    with refused(RefusedError, 2, "deleted and made again"):
        loop(then, max_runs=9, outage="9 d")
    assert clock.now == before, "nobody has waited"
