"""Loaders that die, and loaders beside one another: whatever befalls them, each record is there once."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError

import quire
import sim
from loading import dead, exact, files, load, numbered, topic
from quire.commit import protocol
from quire.errors import QuireError
from services.kafka import FETCH, LIST_OFFSETS, Mock, Record, mock
from services.kafka_witness import Content, Position, account, look
from sim.drivers import Scheduler
from sim.ways import changing
from sim.world import Actor, World


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def held(world: World) -> Counter[tuple[Position, Content]]:
    """What lies in the data files that a plain reader of the directory sees."""
    found = Counter[tuple[Position, Content]]()
    for name, content in world.there().items():
        if not name.startswith("_quire/"):
            for r in pq.read_table(io.BytesIO(content)).to_pylist():
                found[Position(r["topic"], r["partition"], r["offset"]), Content(r["key"], r["value"])] += 1
    return found


def tidy(world: World) -> None:
    """Nothing is left of jobs that are over."""
    assert not [name for name in world.there() if name.startswith("_quire/jobs/")]


# ---------------------------------------------------------------------------------------------------------------------------- crashes
@pytest.mark.parametrize("kind", ["hdfs", pytest.param("s3", marks=pytest.mark.services)])
def test_a_loader_that_dies_at_any_change_is_made_good_by_the_next(kafka: Mock, kind: str) -> None:
    name = topic(kafka, 2, numbered(60, 2))
    must = look(kafka, name)
    committer = "rename" if kind == "hdfs" else "upload"

    def work() -> None:
        load(kafka, name, sim.DEST, target_size="30000 B", compression="none", committer=committer)

    with World(kind=sim.KINDS[kind]).installed() as world:
        with world.acting(quiet := Actor("quiet")):
            work()
        changes = sum(changing(op) for who, op, *_ in world.history if who == quiet.name)
        assert account(must, held(world)).exact
    assert changes > 10
    for k in range(1, changes + 1, 2 if kind == "hdfs" else 1):  # `make matrix` disturbs each one
        sim.forget_all()
        with World(seed=k, kind=sim.KINDS[kind]).installed() as world:
            assert isinstance(sim.run(world, Actor("dead", {k: "after"}), work), sim.Crash)
            seen = account(must, held(world))
            assert (seen.double, seen.other) == ([], []), f"dead after change {k}: {seen}"
            with world.acting(Actor("next")):
                work()
            assert account(must, held(world)).exact, f"dead after change {k}: {account(must, held(world))}"
            tidy(world)


def test_a_restarted_loader_takes_up_the_plan_of_the_dead_one(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    job = dead(kafka, name, tmp_path / "out", monkeypatch)
    assert not files(tmp_path / "out")
    kafka.produce(name, numbered(50, 2))
    report = load(kafka, name, tmp_path / "out", target_size="256 MiB")
    assert report.jobs[0] == job
    assert len(report.jobs) == 2, "what has come since is a job of its own"
    assert report.records == 150
    assert exact(kafka, tmp_path / "out", name).exact


# ----------------------------------------------------------------------------------------------------------------------------- races
@pytest.mark.nth(6)
@pytest.mark.parametrize("seed", range(12))
def test_two_loaders_at_once_leave_one_copy(kafka: Mock, seed: int) -> None:
    """On one job, on overlapping ones, and with a third that dies; who goes on after an operation is drawn."""
    name = topic(kafka, 3, numbered(90, 3))
    other = topic(kafka, 1, numbered(20))
    with World(seed=seed, kind=sim.KINDS["hdfs"]).installed() as world:
        scheduler = Scheduler(world, 0.7, {"b": 12} if seed % 3 == 0 else {})
        sizes = {"a": 40_000, "b": 40_000 if seed % 2 else 25_000, "c": 60_000}

        def worker(who: str) -> Any:
            return lambda: load(kafka, f"{name},{other}", sim.DEST, target_size=f"{sizes[who]} B", compression="none")

        for who in ("a", "b", "c"):
            scheduler.add(Actor(who, {9 + seed: "after"} if who == "c" else {}), worker(who))
        ended = scheduler.run()
        assert not [e for e in ended.values() if e is not None and not isinstance(e, sim.Crash)], ended
        kafka.produce(name, [Record(b"late", partition=1)])
        with world.acting(Actor("next")):
            protocol.recover(world.store(sim.DEST), "open")  # the job of the dead one, which has another target size
            worker("a")()
        assert account(look(kafka, name, other), held(world)).exact, world.told()
        tidy(world)


def test_a_conflict_drops_the_work_and_plans_the_rest(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = topic(kafka, 1, numbered(100))
    commit, ours = protocol.commit, threading.current_thread()

    def late(*args: Any) -> None:
        monkeypatch.setattr(protocol, "commit", commit)
        load(kafka, name, tmp_path / "out", until=60, target_size="1 MiB")  # somebody else is quicker, with a part of it
        commit(*args)

    monkeypatch.setattr(protocol, "commit", late)
    report = load(kafka, name, tmp_path / "out")
    assert threading.current_thread() is ours
    assert report.records == 40
    assert exact(kafka, tmp_path / "out", name).exact


# ------------------------------------------------------------------------------------------------------------------------------ loops
def test_a_loop_loads_what_comes_until_its_runs_are_over(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(10, 2))
    reports = list[int]()

    def more(step: Any) -> None:
        if step.phase == "publishing" and step.done == step.total:
            kafka.produce(name, numbered(5, 2))
            reports.append(step.done)

    report = load(kafka, name, tmp_path / "out", every="10 ms", max_runs=4, progress=more)
    assert report.version == 8
    assert len(quire.Ledger(tmp_path / "out").inspect.files()) == 4
    load(kafka, name, tmp_path / "out")
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_signal_lets_the_commit_under_way_end(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))

    def stop(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            os.kill(os.getpid(), signal.SIGTERM)

    began = time.monotonic()
    report = load(kafka, name, tmp_path / "out", every="1 h", progress=stop)
    assert time.monotonic() - began < 60
    assert report.records == 10
    assert exact(kafka, tmp_path / "out", name).exact


def test_partitions_and_topics_that_are_added_are_found_by_the_next_run(kafka: Mock, tmp_path: Path) -> None:
    first = topic(kafka, 1, numbered(10))
    second: list[str] = []

    def more(step: Any) -> None:
        if step.phase == "publishing" and not second:
            second.append(topic(kafka, 2, numbered(10, 2)))

    load(kafka, "t[0-9]+", tmp_path / "out", every="10 ms", max_runs=2, progress=more)
    known = {topic for topic, _ in quire.Ledger(tmp_path / "out").export_offsets()}
    assert {first, *second} <= known


# ----------------------------------------------------------------------------------------------------------------- brokers that go away
def test_brokers_that_are_away_for_a_moment_are_waited_for(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 4, numbered(2_000, 4))
    away: list[threading.Timer] = []

    def cut(step: Any) -> None:
        if step.phase == "gathering" and not away:
            kafka.down()
            away.append(threading.Timer(1.5, kafka.up))
            away[0].start()

    report = load(kafka, name, tmp_path / "out", progress=cut)
    away[0].join()
    assert report.records == 2_000
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_broker_that_has_another_leader_in_mind_is_asked_again(kafka: Mock, tmp_path: Path) -> None:
    """Both for where a topic ends, and for its records: its leader's epoch may be older, or newer."""
    name = topic(kafka, 2, numbered(100, 2))
    for request in (LIST_OFFSETS, FETCH):
        kafka.fail(request, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH)
    assert load(kafka, name, tmp_path / "out").records == 100
    assert exact(kafka, tmp_path / "out", name).exact


def test_brokers_that_stay_away_end_the_call_in_one_line_and_the_next_goes_on(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quire.sources.kafka import client as kafka_client
    from quire.sources.kafka import offsets
    from quire.storage import retry

    monkeypatch.setattr(kafka_client, "ANSWER", 1.0)
    monkeypatch.setattr(offsets, "PATIENCE", 0.5)
    monkeypatch.setattr(kafka_client, "TOPIC_IDS", 0.5)
    monkeypatch.setattr(retry, "PATIENCE", 1.0)
    name = topic(kafka, 2, numbered(100, 2))

    def cut(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.down()

    try:
        with pytest.raises(QuireError) as caught:
            load(kafka, name, tmp_path / "out", progress=cut)
    finally:
        kafka.up()
    text = str(caught.value)
    assert text.isprintable()
    assert "call again" in text.lower()
    assert not files(tmp_path / "out")
    assert load(kafka, name, tmp_path / "out").records == 100
    assert exact(kafka, tmp_path / "out", name).exact
