"""The mock cluster shows what the tests of loads take it for."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from services.kafka import LIST_OFFSETS, Mock, Record, mock

READ = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "other"})
print(consumer.get_watermark_offsets(TopicPartition(sys.argv[2], 0), 20))
consumer.close()
"""


@pytest.fixture
def topic() -> str:
    return f"t{uuid.uuid4().hex}"


def test_records_come_back_as_they_were_produced(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic, 2)
    headers = [("a", b"1"), ("a", b"\xff"), ("none", None)]
    told = [Record(b"one", b"k", headers, 1_700_000_000_123, 1), Record(None, b"k", partition=1), Record(b"", None, partition=1)]
    assert kafka_mock.produce(topic, told) == 3
    assert kafka_mock.ends(topic) == {0: (0, 0), 1: (0, 3)}
    with kafka_mock.consumer("read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 1, 0)])
        one, two, three = consumer.consume(3, 20)
    assert (one.value(), one.key(), one.headers(), one.timestamp()) == (b"one", b"k", headers, (1, 1_700_000_000_123))
    assert (two.value(), two.key(), two.headers()) == (None, b"k", None)
    assert (three.value(), three.key()) == (b"", None)


def test_another_process_reaches_it(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic)
    kafka_mock.produce(topic, [b"x"] * 5)
    read = subprocess.run([sys.executable, "-c", READ, kafka_mock.address, topic], capture_output=True, text=True, timeout=60)
    assert (read.stdout, read.stderr) == ("(0, 5)\n", "")


def test_deleted_records_move_the_start(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic, 2)
    kafka_mock.produce(topic, [Record(b"x", partition=i % 2) for i in range(100)])
    kafka_mock.delete_records(topic, {1: 20})
    assert kafka_mock.ends(topic) == {0: (0, 50), 1: (20, 50)}


def test_a_topic_made_again_has_another_id(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic)
    kafka_mock.produce(topic, [b"x"])
    before = kafka_mock.topic_id(topic)
    assert kafka_mock.topic_id(topic) == before
    kafka_mock.delete(topic)
    kafka_mock.create(topic)
    assert kafka_mock.topic_id(topic) != before
    assert kafka_mock.ends(topic) == {0: (0, 0)}


def test_a_partition_without_a_leader_gets_one_elsewhere(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic)
    kafka_mock.produce(topic, [b"x"])
    for broker in (2, 3, 1):
        kafka_mock.lead(topic, 0, broker)
        assert kafka_mock.admin().list_topics(topic, timeout=20).topics[topic].partitions[0].leader == broker
        assert kafka_mock.produce(topic, [b"x"]) == 1
    assert kafka_mock.ends(topic) == {0: (0, 4)}


def test_it_refuses_as_a_broker_does(kafka_mock: Mock, topic: str) -> None:
    kafka_mock.create(topic)
    kafka_mock.refuse(topic, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        kafka_mock.partitions(topic)
    kafka_mock.refuse(topic)
    assert kafka_mock.partitions(topic) == [0]
    kafka_mock.fail(LIST_OFFSETS, *[KafkaError.TOPIC_AUTHORIZATION_FAILED] * 2)  # for a start and an end: the client forgets the one's
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        kafka_mock.ends(topic)
    assert kafka_mock.ends(topic) == {0: (0, 0)}


def test_it_goes_away_and_comes_back_with_its_records() -> None:
    with mock() as cluster:
        cluster.create("t")
        cluster.produce("t", [b"x"] * 3)
        cluster.down()
        with pytest.raises(KafkaException):
            cluster.admin().list_topics(timeout=1)
        cluster.up()
        assert cluster.ends("t") == {0: (0, 3)}
        process = cluster.process
    assert process.poll() is not None


def test_a_cluster_may_tell_no_topic_ids() -> None:
    with mock(topic_ids=False) as cluster:
        cluster.create("t")
        began = time.monotonic()
        with pytest.raises(KafkaException, match="_TIMED_OUT"):
            cluster.topic_id("t", 2)
        assert time.monotonic() - began < 10
        assert cluster.ends("t") == {0: (0, 0)}
