"""Loaders that die at any operation, or beside one another, or while topics change under them: on topics in memory (`sim/topics.py`).

The whole of it is `make matrix`; here are samples.
"""

from __future__ import annotations

import io
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pyarrow.parquet as pq
import pytest
from confluent_kafka import KafkaError

import quire
import sim
from matrix import COMMITTERS, KINDS, cases, fit, race_lines
from quire.errors import RefusedError, TransientError
from quire.sources.kafka import client as kafka_client
from sim import load_races, loads, races, ways
from sim.topics import TOPICS, Place
from sim.ways import Case, Scenario
from sim.witness import Log, check
from sim.world import Actor, World

FITTING = [(by, kind) for by in COMMITTERS.values() for kind in KINDS.values() if fit(by, kind)]
ON_S3 = pytest.mark.services


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    loads.fill()
    yield
    sim.forget_all()


@pytest.fixture
def world() -> Iterator[World]:
    """A store and topics, and one who acts."""
    with World(kind=KINDS["hdfs"]).installed() as made, made.acting(Actor("loader")):
        yield made


def load(**settings: Any) -> quire.LoadReport:
    return loads.load(sim.DEST, "rename", **settings)


def hold(world: World, whole: bool = True) -> Log:
    """Every offset once, by the witness."""
    return check(sim.Tree(), "load", there=world.there(), all_taken=whole, clean=whole)


def loaded(world: World) -> set[Place]:
    """What lies in the data files."""
    found = set[Place]()
    for name, content in world.there().items():
        if not name.startswith("_quire/"):
            table = pq.read_table(io.BytesIO(content), columns=["topic", "partition", "offset"])
            found |= {Place(*row.values()) for row in table.to_pylist()}
    return found


def sample(scenarios: Iterator[Scenario], n: int, seed: int) -> list[Scenario]:
    found = list(scenarios)
    return random.Random(seed).sample(found, min(n, len(found)))


# --------------------------------------------------------------------------------------------------- what changes while it is loaded
def meanwhile(world: World, what: str, happens: Callable[[], object]) -> None:
    """Before the first request of such a name something happens."""
    done = list[bool]()

    def turn(_actor: Actor, _op: str, name: str) -> None:
        if name == what and not done:
            done.append(True)
            happens()

    world.turn = turn


def test_records_that_retention_removes_between_plan_and_reading_are_said_to_be_lost(world: World) -> None:
    load(until={("short", 0): 3})
    meanwhile(world, "fetch short/0", lambda: TOPICS.retain("short", 0, 6))
    assert load(target_size="1 MiB").lost == 3  # 3, 4 and 5
    hold(world)
    assert quire.Ledger(sim.DEST).inspect.offsets().set_index("topic")["lost"].to_dict()["short"] == 3


def test_such_a_loss_is_an_error_with_its_count_where_nobody_has_said_otherwise(world: World) -> None:
    load(until={("short", 0): 3})
    before = loaded(world)
    meanwhile(world, "fetch short/0", lambda: TOPICS.retain("short", 0, 6))
    with pytest.raises(quire.DataLossError, match="3 offsets of short partition 0 were removed"):
        load(target_size="1 MiB", on_data_loss="fail")
    assert loaded(world) == before


def test_what_comes_after_the_plan_is_left_to_the_next_call(world: World) -> None:
    """The plan's ranges are frozen: an attempt that comes late reads no further."""
    load(until={("events", 0): 3})  # by now it knows the columns, and looks at no record before it reads them
    meanwhile(world, "fetch events/0", lambda: TOPICS.produce("events", 0, b"late", b"later"))
    load()
    assert Place("events", 0, 8) not in loaded(world)
    load()
    hold(world)
    assert Place("events", 0, 9) in loaded(world)


def test_an_open_transaction_is_neither_waited_for_nor_read(world: World) -> None:
    load()
    hold(world)
    assert max(place.offset for place in loaded(world) if place.topic == "bound") == 7
    TOPICS.end("bound", 0, commit=True)
    load()
    hold(world)
    assert Place("bound", 0, 9) in loaded(world)


def test_a_topic_that_is_made_again_while_it_is_read_leaves_nothing(world: World) -> None:
    """Not even what was read before: the attempt starts again without it, and the next call refuses the other topic."""
    load(until={("events", 0): 3})
    before = loaded(world)

    def again() -> None:
        TOPICS.create("events", 2)
        for partition in (0, 1):  # so far that their ends tell nothing
            TOPICS.produce("events", partition, *(b"another %d" % i for i in range(20)))

    meanwhile(world, "fetch events/0", again)
    report = load()
    assert any("made again" in why for _, why in report.deferred)
    assert {place for place in loaded(world) if place.topic == "events"} == {place for place in before if place.topic == "events"}
    with pytest.raises(RefusedError, match="deleted and made again"):
        load()


def test_an_end_that_is_told_too_early_ends_no_range(world: World) -> None:
    """A broker that has just come back, or leads for the first time, may not know yet how far its log goes."""
    TOPICS.events["events", 0] = deque([KafkaError._PARTITION_EOF] * 2)
    load()
    hold(world)


# ------------------------------------------------------------------------------------------------------------------- errors that pass
PASSING = [
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT, KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REPLICA_NOT_AVAILABLE, KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR, KafkaError.FETCH_SESSION_ID_NOT_FOUND, KafkaError.INVALID_FETCH_SESSION_EPOCH,
    KafkaError.STALE_BROKER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.NOT_CONTROLLER, KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.INVALID_MSG, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT,
]  # fmt: skip
LASTING = [
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNSUPPORTED_VERSION, KafkaError.UNSUPPORTED_COMPRESSION_TYPE, KafkaError.INVALID_REQUEST,
]  # fmt: skip


@pytest.mark.parametrize("code", PASSING + LASTING)
def test_what_passes_with_a_leader_is_tried_again_and_nothing_else(code: int) -> None:
    error = kafka_client._error_of(confluent_kafka, KafkaError(code), "cannot ask", "why")
    assert isinstance(error, TransientError) == (code in PASSING)


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH, KafkaError.OFFSET_NOT_AVAILABLE])
def test_a_load_rides_through_a_leader_change(world: World, code: int) -> None:
    """Whether a broker says so when it is asked for offsets, or while it is read."""
    TOPICS.failing.extend([code] * 3)
    TOPICS.events["events", 0] = deque([code] * 3)
    load()
    assert not TOPICS.failing and not TOPICS.events["events", 0], "all of it was said"  # noqa: PT018
    hold(world)


def test_a_leader_that_has_lost_records_ends_the_attempt(world: World) -> None:
    """What was read of them before may be no more: it is all read anew."""
    load(until={("events", 0): 3})
    TOPICS.events["events", 0] = deque([KafkaError._LOG_TRUNCATION])
    load()
    assert not TOPICS.events["events", 0]
    hold(world)


# --------------------------------------------------------------------------------------------------------------------------- crashes
@pytest.mark.parametrize(
    "case",
    [
        *cases(["load"], ["rename"], ["hdfs"]),
        *cases(["distinct loads"], ["rename"], ["hdfs"]),
        *(pytest.param(case, marks=pytest.mark.nightly) for case in cases(["loads"], ["rename"], ["hdfs"])),
        *(pytest.param(case, marks=ON_S3) for case in cases(["distinct loads"], ["upload"], ["s3", "azure"])),
        *(pytest.param(case, marks=ON_S3) for case in cases(["loads"], ["upload"], ["s3"])),
        *(pytest.param(case, marks=ON_S3) for case in cases(["loads"], ["rename_v2"], ["objects"])),
    ],
    ids=lambda case: str(case).replace(" × ", "-"),
)
def test_a_loader_dies_anywhere(case: Case) -> None:
    """Dead at an operation of a load, a retry, a merge or an expiry, or told a wrong answer: the next ones make it good."""
    case.fill()
    for scenario in [
        *sample(ways.crashes(case), 10, seed=1), *sample(ways.answers(case), 6, seed=2), *sample(ways.expiries(case), 4, seed=3),
        *ways.some_pairs(case, 5, seed=4),
    ]:  # fmt: skip
        scenario()


# ----------------------------------------------------------------------------------------------------------------------------- races
@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.services) for n in (10, 34))])
def test_races_of_loaders(first: int) -> None:
    """Two or three at once, on one job or on overlapping ones, beside verbs of the ledger, while topics grow and shrink."""
    for number in range(first, first + (24 if first else 5)):
        races.play(load_races.draw(number, FITTING))


@pytest.mark.parametrize("first", [0, *(pytest.param(n, marks=pytest.mark.services) for n in (10, 34))])
def test_races_of_loaders_that_leave_out_what_is_known(first: int) -> None:
    """Of two loaders that keep the same key one drops that work, and knows the key at its next try."""
    for number in range(first, first + (24 if first else 5)):
        races.play(load_races.draw(number, FITTING, "distinct"))


def test_races_of_loaders_are_in_the_matrix() -> None:
    """A quarter as many as of files, and so of calls into a table; each pair of a committer and a store has its line."""
    lines = list(race_lines(4, first=4))
    assert sum(line.counts.get("races", 0) for line in lines) == 6
    for who in ("loaders", "tables"):
        assert [line for line in lines if line.said.startswith(f"{who} ×") and line.counts.get("races")]
    assert not any(line.findings for line in lines)
