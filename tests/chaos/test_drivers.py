"""Drivers without Spark, which start in less than a second: killed at every step and anywhere, asleep, and two at once."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from moments import ALL, CLEAN_UP, FREEZING, JOB_COMMIT, PUBLISHED, RENAMES, TASK_COMMIT, Moment
from processes import driver, send
from story import SETTINGS, Story, story

import quire

if TYPE_CHECKING:
    from tale import Tale

KILLS = 12  # of a story


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_a_hundred_kills(tmp_path: Path, tale: Tale) -> None:
    """Killed at each step of the protocol, before calls and at times that are drawn; also while another one is at work, and
    also those who recover. After each recovery every byte is there once."""
    cards: list[Moment | str] = [*ALL, *ALL, *["call"] * 40, *["time"] * 16]
    tale.rng("cards").shuffle(cards)
    killed = 0
    for number, start in enumerate(range(0, len(cards), KILLS)):
        with story(f"drivers {number}", tmp_path, tale, SETTINGS[number % len(SETTINGS)]) as s:
            s.add(120)
            for card in cards[start : start + KILLS]:
                killed += kill(s, card)
            s.recover()
    assert killed >= 100


def kill(s: Story, card: Moment | str) -> bool:
    """One kill, and often a recovery after it: else the next kill meets one who recovers."""
    for _ in range(8):
        s.add(s.rng.randint(30, 90))
        s.order(card)
        with ExitStack() as all_ended:
            drivers = [all_ended.enter_context(driver(s.place, s.settings))]
            if s.rng.random() < 0.2:  # of the same intent, or of another one and so with a job of its own
                target = s.rng.choice((s.settings["target_size"], "7000 B"))
                drivers.append(all_ended.enter_context(driver(s.place, s.settings | {"target_size": target})))
            killed = s.strike(drivers, card)
            for other in drivers:
                if other is not killed:
                    other.end()
        if killed:
            if s.rng.random() < 0.6:
                s.recover()
            return True
        s.calls = max(50, s.hook.last(drivers[0].pid)[0])
        s.recover("a driver that came through")
    return False


SLEEPS = [*FREEZING, *TASK_COMMIT, *JOB_COMMIT, *RENAMES, *PUBLISHED, *CLEAN_UP]


def _sleep(s: Story, moment: Moment) -> None:
    """A driver falls asleep at a moment, others end its job and one more; then it wakes up, or is killed."""
    s.add(80)
    s.order(moment)
    with driver(s.place, s.settings) as asleep:
        found = s.hook.wait([asleep])
        assert found, f"it never came to {moment}"
        others = s.rng.choice(("the same", "another intent", "recover"))
        settings = s.settings | ({"target_size": "7000 B"} if others == "another intent" else {})
        if others == "recover":
            quire.recover(s.dest, abort=s.rng.choice((None, "open")))
        for _ in range(2):
            quire.consolidate(s.source, s.dest, spark=quire.LocalRunner(), progress=False, **settings)
            s.add(20)
        quire.consolidate(s.source, s.dest, spark=quire.LocalRunner(), progress=False, **settings)
        before = s.visible()
        if s.committer == "rename":
            s.check("another driver, while the first is asleep", settled=False)
        send(asleep.pid, signal.SIGCONT)
        asleep.end(60)
    s.struck("driver", found[1], moment, stopped=True, pid=asleep.pid)
    after = s.visible()
    assert {name: after.get(name) for name in before} == before, "what was visible has changed"
    assert {name for name in after.keys() - before if not name.startswith("_quire/log/")} == set(), "data that was there already"
    s.recover("the sleeper itself")


def test_a_driver_that_sleeps_while_another_ends_its_job(tmp_path: Path, tale: Tale) -> None:
    with story("sleeper", tmp_path, tale) as s:
        _sleep(s, JOB_COMMIT[0])


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_drivers_that_sleep_at_each_step(tmp_path: Path, tale: Tale) -> None:
    for number, moment in enumerate(SLEEPS):
        with story(f"sleeper {number}", tmp_path, tale, SETTINGS[number % 2]) as s:
            _sleep(s, moment)
