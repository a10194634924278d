"""Spark's processes: Python workers, their daemon, JVMs and whole drivers, on this machine and on a small cluster.

To start Spark takes seconds, so a driver goes on and on while files arrive and its workers are killed.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from moments import CLEAN_UP, FREEZING, IN_A_TASK, JOB_COMMIT, LISTING, OF_A_TASK, PUBLISHED, RENAMES, TASK_COMMIT, Moment
from processes import Driver, ancestor, cluster, driver, members, one_line, process, send, wait_until
from story import Story, story

import quire

if TYPE_CHECKING:
    from tale import Tale

FOREVER = {"every": 0.02}
LATE = 20  # seconds, for attempts that lost, or whose driver or executor is dead


def kill_worker(s: Story, d: Driver, card: Moment, victim: str = "Python worker", role: str = "worker") -> None:
    """Kill a worker, or what started it, at a moment of a worker; the same driver must go on."""
    pid, call = s.wait_stopped(d, card, role)
    killed = ancestor(pid, victim) if victim != "Python worker" else pid
    assert killed, f"{pid} has no {victim} above it"
    send(killed, signal.SIGKILL)
    s.struck(victim, call, card, pid=killed)
    if killed != pid and s.committer == "rename" and s.rng.random() < 0.5:
        send(pid, signal.SIGCONT)  # it goes on, and nobody waits for it any more
    else:
        send(pid, signal.SIGKILL)
    s.wait_gathered(d)
    s.check("the same driver", late=LATE)


def _any_worker(s: Story, d: Driver) -> None:
    """The same at a time that is drawn, or as soon as there is a worker."""
    s.add(s.rng.randint(80, 160))
    time.sleep(s.rng.uniform(0, 0.8))
    wait_until(lambda: d.find("Python worker"), 60, "there is a worker")
    workers = d.find("Python worker")
    calls = {pid: s.hook.last(pid) for pid in workers}
    pid = max(workers, key=lambda pid: (calls[pid][0], pid)) if s.rng.random() < 0.7 else s.rng.choice(workers)
    send(pid, signal.SIGKILL)
    s.struck("Python worker", calls[pid][1], pid=pid)
    s.wait_gathered(d)
    s.check("the same driver", late=LATE)


def kill_driver(s: Story, d: Driver, card: Moment, victim: str) -> None:
    """Kill a driver at a moment: its Python alone, its JVM alone, or the whole session. The next driver goes on."""
    found = s.wait_stopped(d, card, "driver")
    if victim == "driver and all its processes":
        d.kill()
    elif victim == "driver":
        send(d.pid, signal.SIGKILL)
    else:
        (jvm,) = d.find("JVM")
        send(jvm, signal.SIGKILL)
        send(d.pid, signal.SIGCONT)
    s.struck(victim, found[1], card, pid=found[0])
    _ends(s, d, victim)


def _in_a_task(s: Story, d: Driver, card: Moment, victim: str) -> None:
    """The same while a worker is in the middle of something."""
    found = s.wait_stopped(d, card, "worker")
    killed = d.pid if victim == "driver" else d.find("JVM")[0]
    send(killed, signal.SIGKILL)
    s.struck(victim, found[1], card, pid=killed)
    send(found[0], signal.SIGCONT)  # the worker goes on without a driver
    _ends(s, d, victim)


def _asleep(s: Story, d: Driver, card: Moment) -> None:
    """A driver, or its only worker at work, falls asleep; another driver ends the job; then it wakes up and goes on."""
    pid, call = s.wait_stopped(d, card, "any")
    quire.consolidate(s.source, s.dest, spark=quire.LocalRunner(), progress=False, **s.settings)
    before = s.visible()
    send(pid, signal.SIGCONT)
    s.struck("driver" if pid == d.pid else "Python worker", call, card, stopped=True, pid=pid)
    s.add(30)
    s.wait_gathered(d)
    after = s.visible()
    assert {name: after.get(name) for name in before} == before, "what was visible has changed"
    s.check("both drivers", late=LATE)


def _ends(s: Story, d: Driver, victim: str) -> None:
    """What a killed process leaves ends by itself: a driver without a JVM says why in one line, a JVM without a driver goes."""
    if victim != "JVM":
        d.popen.wait(30)
        wait_until(lambda: not members(d.pid), 60, f"the rest of the session has ended: {members(d.pid)}")
        return
    assert d.popen.wait(90) not in (0, None)
    assert one_line(d.said()), d.said()[-3000:]
    s.tale.say(f"     the driver without its JVM said: {one_line(d.said())}")
    d.kill()


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_workers_and_drivers_on_spark(tmp_path: Path, tale: Tale) -> None:
    """Forty kills on local Spark; once with Spark's own retries, once with quire's alone, once with rename_v2."""
    before = tale.total()
    drivers: list[tuple[Callable[..., None], Moment, str]] = [
        (kill_driver, m, v)
        for m, v in [
            (FREEZING[1], "driver"), (JOB_COMMIT[0], "JVM"), (JOB_COMMIT[1], "driver and all its processes"), (RENAMES[0], "driver"),
            (RENAMES[1], "JVM"), (PUBLISHED[0], "driver and all its processes"), (CLEAN_UP[2], "driver"),
        ]
    ]  # fmt: skip
    drivers += [(_in_a_task, IN_A_TASK[0], "driver"), (_in_a_task, TASK_COMMIT[2], "JVM"), (_in_a_task, TASK_COMMIT[0], "driver")]
    turns: list[tuple[str, dict[str, Any], list[Moment]]] = [
        ("local[2,4]", {}, [*LISTING, *OF_A_TASK]),
        ("local[2]", {}, [*OF_A_TASK]),
        ("local[2,4]", {"committer": "rename_v2"}, [*TASK_COMMIT, RENAMES[0], RENAMES[1]]),
    ]
    for number, (master, settings, cards) in enumerate(turns):
        with story(f"spark {number}", tmp_path, tale, settings) as s:
            s.add(200)
            s.rng.shuffle(cards)
            with driver(s.place, s.settings | FOREVER, master) as d:
                s.wait_gathered(d)
                for card in cards:
                    kill_worker(s, d, card)
                for card in IN_A_TASK[: 2 if "4" in master else 0]:
                    kill_worker(s, d, card, "Python daemon")
                for _ in range(4 if "4" in master else 0):
                    _any_worker(s, d)
                for card in (TASK_COMMIT[2], JOB_COMMIT[number % 2], CLEAN_UP[number]):
                    _asleep(s, d, card)
                d.finish()
            for strike, card, victim in drivers[number :: len(turns)]:
                with driver(s.place, s.settings | FOREVER, master) as d:
                    s.wait_gathered(d)
                    if tale.open:
                        s.check("the next driver", late=LATE)
                    strike(s, d, card, victim)
            s.recover()
    assert tale.total() - before >= 40


@pytest.mark.chaos
@pytest.mark.timeout(900)
def test_executors_and_zombies_on_a_cluster(tmp_path: Path, tale: Tale) -> None:
    """Executors and workers killed on a standalone cluster; tasks that fall asleep, are done by others, and wake up."""
    with story("cluster", tmp_path, tale) as s, cluster(s.place) as spark:
        s.add(200)
        with driver(s.place, s.settings | FOREVER, spark.url, spark.confs()) as d:
            s.wait_gathered(d)
            for card in s.rng.sample(OF_A_TASK, 6):
                kill_worker(s, d, card)
                kill_worker(s, d, card, "executor JVM")
            for card in [*IN_A_TASK, *TASK_COMMIT]:
                _zombie(s, d, card)
            for card in (IN_A_TASK[0], TASK_COMMIT[0], TASK_COMMIT[2]):
                _frozen(s, d, card)
            found = s.wait_stopped(d, JOB_COMMIT[0], "driver")
            d.kill()
            s.struck("driver and all its processes", found[1], JOB_COMMIT[0], pid=d.pid)
        wait_until(lambda: not spark.find("executor JVM") + spark.find("Python worker"), 60, "the executors have ended")
        s.recover()


def _zombie(s: Story, d: Driver, card: Moment) -> None:
    """A worker falls asleep, speculation does its task, the job is committed and cleaned; then it wakes up."""
    pid, call = s.wait_stopped(d, card, "worker")
    s.wait_gathered(d)
    s.check("a second attempt, while the first is asleep", settled=False)
    before = s.visible()
    asleep = process(pid)
    assert asleep is not None, "it ended before it could wake up"
    assert asleep.state == "T", "it was not asleep until the job was cleaned"
    send(pid, signal.SIGCONT)
    seen = -1
    while process(pid) is not None and seen != (seen := s.hook.last(pid)[0]):
        time.sleep(0.5)
    s.struck("Python worker", call, card, stopped=True, pid=pid)
    assert s.visible() == before, "a zombie changed what is visible"
    s.add(30)
    s.wait_gathered(d)
    s.check("the same driver", settled=False)  # it lists on and on; what is left at its end is looked at then


def _frozen(s: Story, d: Driver, card: Moment) -> None:
    """An executor's JVM falls asleep while its worker writes; speculation does the task elsewhere; then the JVM wakes up."""
    pid, call = s.wait_stopped(d, card, "worker")
    jvm = ancestor(pid, "executor JVM")
    assert jvm
    send(jvm, signal.SIGSTOP)
    send(pid, signal.SIGCONT)
    s.wait_gathered(d)
    s.check("a second attempt, while an executor is asleep", settled=False)
    before = s.visible()
    send(jvm, signal.SIGCONT)
    s.struck("executor JVM", call, card, stopped=True, pid=jvm)
    s.add(60)
    s.wait_gathered(d)
    after = s.visible()
    assert {name: after.get(name) for name in before} == before, "what was visible has changed"
    s.check("the same driver", settled=False)
