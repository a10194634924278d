"""Real Kafka shows what the tests of loads take it for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AclOperation

from services.kafka import Kafka, Record
from services.kafka_broker import Cluster, broker, brokers
from services.kafka_witness import Position, look, values

pytestmark = pytest.mark.services

TEN = [b"%d" % i for i in range(10)]


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """One that a test may kill."""
    with broker() as cluster:
        yield cluster


def soon(found: Callable[[], Any], true: Callable[[Any], bool], within: float = 30) -> Any:
    """What was found, as soon as it is so."""
    end = time.monotonic() + within
    while not true(seen := found()):
        assert time.monotonic() < end, seen
        time.sleep(0.1)
    return seen


def test_aborted_transactions_are_hidden_from_who_reads_committed(kafka: Cluster, topic: str) -> None:
    kafka.create(topic, 2)
    records = [Record(b"%d" % i, partition=i % 2) for i in range(100)]
    assert kafka.transactions(topic, records, 10, abort_every=3) == 70
    committed, all_of_them = look(kafka, topic), look(kafka, topic, isolation="read_uncommitted")
    assert len(all_of_them) == 100
    assert sorted(values(committed)) == sorted(b"%d" % i for i in range(100) if i // 10 % 3 != 2)
    assert {p: end for p, (_, end) in kafka.ends(topic).items()} == {0: 60, 1: 60}  # with ten markers in each


def test_an_open_transaction_holds_back_the_stable_end(kafka: Cluster, topic: str) -> None:
    kafka.create(topic)
    kafka.produce(topic, TEN)
    with kafka.producer({"transactional.id": topic}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush(30)
        kafka.produce(topic, TEN)
        assert kafka.ends(topic) == {0: (0, 10)}
        assert kafka.ends(topic, "read_uncommitted") == {0: (0, 21)}
        assert len(look(kafka, topic)) == 10
        producer.abort_transaction(30)
    assert soon(lambda: kafka.ends(topic), lambda ends: ends[0][1] == 22)
    assert len(look(kafka, topic)) == 20


def test_deleted_records_move_the_start(kafka: Cluster, topic: str) -> None:
    kafka.create(topic, 2)
    kafka.produce(topic, [Record(b"x", partition=i % 2) for i in range(100)])
    kafka.delete_records(topic, {1: 20})
    assert kafka.ends(topic) == {0: (0, 50), 1: (20, 50)}
    assert min(position.offset for position in look(kafka, topic) if position.partition == 1) == 20
    with pytest.raises(KafkaException, match="_AUTO_OFFSET_RESET"):
        list(kafka.read(topic, {1: 19}))


def test_retention_removes_what_is_old(kafka: Cluster, topic: str) -> None:
    kafka.create(topic, retention_ms=1000, segment_ms=100)
    kafka.produce(topic, TEN)
    time.sleep(0.2)
    kafka.produce(topic, [b"newer"])  # closes the segment of the others
    soon(lambda: kafka.ends(topic)[0][0], lambda start: start >= 10)


def test_compaction_leaves_the_last_of_each_key_where_it_was(kafka: Cluster, topic: str) -> None:
    kafka.create(topic, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01)
    kafka.produce(topic, [Record(b"%d" % i, b"key %d" % (i % 10)) for i in range(1000)])
    time.sleep(0.2)
    kafka.produce(topic, [Record(b"newer", b"another")])
    left = soon(lambda: look(kafka, topic), lambda found: len(found) < 1000)
    assert left.keys() >= {Position(topic, 0, offset) for offset in range(990, 1001)}
    assert kafka.ends(topic) == {0: (0, 1001)}


def test_a_topic_made_again_has_another_id(kafka: Cluster, topic: str) -> None:
    kafka.create(topic)
    kafka.produce(topic, TEN)
    before = kafka.topic_id(topic)
    assert kafka.topic_id(topic) == before
    kafka.delete(topic)
    kafka.create(topic)
    assert kafka.topic_id(topic) != before
    assert kafka.ends(topic) == {0: (0, 0)}


def test_partitions_are_added(kafka: Cluster, topic: str) -> None:
    kafka.create(topic)
    kafka.grow(topic, 3)
    kafka.produce(topic, [Record(b"x", partition=2)])
    assert kafka.ends(topic) == {0: (0, 0), 1: (0, 0), 2: (0, 1)}


def test_offsets_are_found_by_time(kafka: Cluster, topic: str) -> None:
    kafka.create(topic, 2)
    kafka.produce(topic, [Record(b"x", timestamp=1_000 + i, partition=0) for i in range(10)])
    assert kafka.offsets_for_times(topic, 1_004) == {0: 4, 1: -1}
    assert kafka.offsets_for_times(topic, 1) == {0: 0, 1: -1}
    assert kafka.offsets_for_times(topic, 2_000) == {0: -1, 1: -1}


def test_who_has_the_password_may_do_what_is_allowed(kafka: Cluster, topic: str) -> None:
    kafka.create(topic)
    kafka.produce(topic, TEN)
    assert len(look(kafka.by_password("alice"), topic)) == 10
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        kafka.by_password("bob").partitions(topic)
    kafka.allow("bob", topic, AclOperation.DESCRIBE)
    assert kafka.by_password("bob").ends(topic) == {0: (0, 10)}
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        look(kafka.by_password("bob"), topic)
    kafka.allow("bob", topic, AclOperation.READ)
    assert len(look(kafka.by_password("bob"), topic)) == 10


def heard(cluster: Kafka) -> str:
    """What a client says that cannot get in."""
    said: list[str] = []
    admin = type(cluster.admin())(cluster.client | {"error_cb": lambda e: said.append(e.str())})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3)
    admin.poll(0)
    return " ".join(said)


def test_a_wrong_password_is_refused(kafka: Cluster) -> None:
    assert "invalid credentials with SASL mechanism SCRAM-SHA-256" in heard(kafka.by_password("alice", "wrong"))


def test_a_certificate_is_believed_only_by_who_was_told_of_it(kafka: Cluster, topic: str) -> None:
    kafka.create(topic)
    assert kafka.by_tls().ends(topic) == {0: (0, 0)}
    assert "certificate verify failed" in heard(kafka.by_tls(trusted=False))


def test_tls_against_plaintext_is_told(kafka: Cluster) -> None:
    assert "connecting to a PLAINTEXT broker listener?" in heard(Kafka(kafka.address, kafka.by_tls().settings))


def test_kill_and_restart_keep_the_records(own: Cluster, topic: str) -> None:
    own.create(topic)
    for i in range(2):
        own.produce(topic, TEN)
        own.kill()
        with pytest.raises(KafkaException):
            own.admin().list_topics(timeout=1)
        own.start()
        assert own.ends(topic) == {0: (0, 10 * (i + 1))}
    identity = own.topic_id(topic), own.admin().list_topics(timeout=20).cluster_id
    own.restart()
    assert (own.topic_id(topic), own.admin().list_topics(timeout=20).cluster_id) == identity
    assert values(look(own, topic)) == dict.fromkeys(TEN, 2)


def test_a_sleeping_broker_answers_when_it_wakes(own: Cluster, topic: str) -> None:
    own.create(topic)
    own.produce(topic, TEN)
    own.sleep()
    with pytest.raises(KafkaException):
        own.admin().list_topics(timeout=1)
    own.wake()
    assert soon(lambda: own.ends(topic), bool) == {0: (0, 10)}


@pytest.mark.nightly
def test_a_leader_change_rides_through() -> None:
    with brokers(3) as cluster:
        cluster.create("events", 3)
        cluster.produce("events", [Record(value, partition=p) for p in range(3) for value in TEN])
        reading, seen = cluster.read("events"), []
        seen.append(next(reading))
        old = cluster.leader("events", 0)
        cluster.kill(old)
        assert cluster.produce("events", [Record(b"later", partition=0)]) == 1
        assert soon(lambda: cluster.leader("events", 0), lambda leader: leader not in (old, -1)) != old
        seen.extend(reading)
        assert len(seen) == 30
        cluster.start()
        assert len(look(cluster, "events")) == 31
