"""Librdkafka's mock cluster, for a notebook and for the tests: Kafka that needs nothing but the client's wheel.

    cluster = Mock()                       # a process of its own, on a free loopback port
    cluster.create("orders", partitions=2)
    cluster.produce("orders", [b"one", b"two"])
    cluster.address                        # for any client: "127.0.0.1:…"
    cluster.stop()

It ends at the latest with the process that has started it, however that one ends. `Kafka` is what a client does to any cluster, a real one,
too; `designs` are loaders that are not exactly once, and `lives` runs and kills loaders.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

__all__ = ["FETCH", "LIST_OFFSETS", "METADATA", "PATIENCE", "Kafka", "Mock", "Record"]

PATIENCE = 30.0  # seconds until a request is answered
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3  # requests of Kafka's protocol that a mock cluster can be told to fail


class Record(NamedTuple):
    """As it is produced."""

    value: bytes | None = None  # None: a tombstone
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0  # milliseconds since 1970; 0: now
    partition: int = -1  # -1: by the key's hash, or any


class Kafka:
    """A cluster that is reached there, by these settings of librdkafka."""

    def __init__(self, address: str, settings: Mapping[str, str] | None = None) -> None:
        self.address, self.settings = address, dict(settings or {})
        # A client says on stderr whatever it cannot reach, again and again; here it is an exception that says so.
        self.client: dict[str, Any] = {"bootstrap.servers": address, "log_level": 0, **self.settings}

    def admin(self) -> AdminClient:
        return AdminClient(self.client)

    def produce(self, topic: str, records: Iterable[Record | bytes | None], **settings: Any) -> int:
        """Write these, in this order within a partition, and wait until the brokers have them; returns how many.

        `settings` are librdkafka's, with `_` for each dot: `compression_type="zstd"`.
        """
        with self.producer(settings) as producer:
            return _send(producer, topic, records)

    @contextmanager
    def producer(self, settings: Mapping[str, Any]) -> Iterator[Producer]:
        """For more than one topic; what was not delivered is an error at its end."""
        failed: list[tuple[KafkaError, Message]] = []
        made = {name.replace("_", "."): value for name, value in settings.items()}
        quick = {"linger.ms": 5, "queue.buffering.max.messages": 1_000_000, "delivery.report.only.error": True}
        producer = Producer(self.client | quick | made, on_delivery=lambda e, m: failed.append((e, m)))
        yield producer
        left = producer.flush(PATIENCE)
        if failed or left:
            why = failed[0][0] if failed else f"not within {PATIENCE} s"
            raise RuntimeError(f"{len(failed) + left} records were not delivered: {why}")

    def transactions(self, topic: str, records: Iterable[Record | bytes | None], size: int, abort_every: int = 3) -> int:
        """Write them in transactions of so many records, of which every so manyth is aborted; returns how many were committed."""
        waiting, kept, done = list(records), 0, 0
        with self.producer({"transactional.id": f"tests-{topic}"}) as producer:
            producer.init_transactions(PATIENCE)
            while waiting:
                batch, waiting = waiting[:size], waiting[size:]
                producer.begin_transaction()
                _send(producer, topic, batch)
                producer.flush(PATIENCE)  # so that an aborted one, too, lies in the log
                done += 1
                if done % abort_every:
                    producer.commit_transaction(PATIENCE)
                    kept += len(batch)
                else:
                    producer.abort_transaction(PATIENCE)
        # A broker answers before it has written the last marker.
        end = time.monotonic() + PATIENCE
        while self.ends(topic) != self.ends(topic, "read_uncommitted") and time.monotonic() < end:
            time.sleep(0.05)
        return kept

    def partitions(self, topic: str) -> list[int]:
        found = self.admin().list_topics(topic, timeout=PATIENCE).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    def ends(self, topic: str, isolation: str = "read_committed") -> dict[int, tuple[int, int]]:
        """Of each partition the first offset, and the one after the last that such a reader sees."""
        with self.consumer(isolation) as consumer:
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), PATIENCE) for p in self.partitions(topic)}

    def offsets_for_times(self, topic: str, timestamp: int) -> dict[int, int]:
        """Of each partition the first offset at or after this time; -1: there is none."""
        with self.consumer("read_committed") as consumer:
            asked = [TopicPartition(topic, p, timestamp) for p in self.partitions(topic)]
            return {found.partition: found.offset for found in consumer.offsets_for_times(asked, PATIENCE)}

    def topic_id(self, topic: str, patience: float = PATIENCE) -> str:
        """Its UUID, another one for each topic of the same name."""
        admin = self.admin()  # its answers come as long as it is there
        return str(admin.describe_topics(TopicCollection([topic]), request_timeout=patience)[topic].result().topic_id)

    def read(self, topic: str, starts: Mapping[int, int] | None = None, isolation: str = "read_committed") -> Iterator[Message]:
        """What such a reader sees from these offsets (without: from its first ones) to the ends of now; in each partition in its order."""
        ends = self.ends(topic, isolation)
        begin = {p: first if starts is None else starts.get(p, first) for p, (first, _) in ends.items()}
        left = {p: end for p, (_, end) in ends.items() if begin[p] < end}
        with self.consumer(isolation) as consumer:
            consumer.assign([TopicPartition(topic, p, begin[p]) for p in left])
            quiet = time.monotonic()
            while left:
                for message in (found := consumer.consume(1000, 0.1)):
                    error, p = message.error(), message.partition()
                    if error is not None and error.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(error)
                    if error is None and message.offset() < ends[p][1]:
                        yield message
                    # The last ones may be of no reader's concern: an aborted transaction, its marker, what compaction took away.
                    if message.offset() >= ends[p][1] - (error is None):
                        left.pop(p, None)
                if found:
                    quiet = time.monotonic()
                elif time.monotonic() - quiet > PATIENCE:
                    raise RuntimeError(f"{topic}: nothing within {PATIENCE} s, with {left} not reached")

    @contextmanager
    def consumer(self, isolation: str, group: str = "tests") -> Iterator[Consumer]:
        """One that commits only what it is told to."""
        fixed = {"group.id": group, "enable.auto.commit": False, "auto.offset.reset": "error", "enable.partition.eof": True}
        consumer = Consumer(self.client | fixed | {"isolation.level": isolation})
        try:
            yield consumer
        finally:
            consumer.close()


class Mock(Kafka):
    """librdkafka's mock cluster. It keeps all in memory, of each partition the newest 5 MB; it knows no timestamps' offsets, and hides no
    aborted records. A topic that is not there is made with four partitions by whoever asks for it with leave to make topics.
    """

    def __init__(self, brokers: int = 1, topic_ids: bool = True) -> None:
        """Without `topic_ids` it never answers who asks for a topic's id, as old clusters do: it names no controller."""
        command = [sys.executable, str(Path(__file__).with_name("server.py")), str(brokers)]
        # What interrupts this process, as a notebook's stop button does, does not reach it.
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
        try:
            super().__init__(self._answer())
            if topic_ids:
                self._do("set_controller_id", 1)
        except BaseException:
            self.stop()
            raise

    def __repr__(self) -> str:
        return f"Mock({'running' if self.process.poll() is None else 'stopped'})"

    def __enter__(self) -> Mock:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it; what was in it is gone."""
        self.process.kill()
        with self.process:  # closes its pipes
            self.process.wait()

    def create(self, topic: str, partitions: int = 1, replication: int = 1) -> None:
        self._do("topic_create", topic, partitions, replication)

    def delete(self, topic: str) -> None:
        self._do("topic_delete", topic)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """As retention does: of these partitions, all below these offsets."""
        for partition, offset in before.items():
            self._do("partition_delete_records", topic, partition, offset)

    def lead(self, topic: str, partition: int, broker: int) -> None:
        """Make a broker (1, 2, …) the leader of a partition; -1: it has none."""
        self._do("partition_set_leader", topic, partition, broker)

    def down(self, broker: int = -1) -> None:
        """Cut every connection to a broker (-1: to all) and refuse new ones."""
        self._do("broker_set_down", broker)

    def up(self, broker: int = -1) -> None:
        self._do("broker_set_up", broker)

    def delay(self, milliseconds: int) -> None:
        """Of each answer."""
        self._do("broker_set_rtt", -1, milliseconds)

    def fail(self, request: int, *errors: int) -> None:
        """Answer the next requests of this kind with these errors of KafkaError; its `_TRANSPORT` cuts the connection."""
        self._do("fail", request, errors)

    def refuse(self, topic: str, error: int = 0) -> None:
        """Say this error wherever somebody asks for the topic's metadata; 0: not any more."""
        self._do("topic_set_error", topic, error)

    def _do(self, name: str, *args: Any) -> None:
        assert self.process.stdin is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"the mock cluster is gone ({self.process.returncode})")
        print(json.dumps([name, args]), file=self.process.stdin, flush=True)
        if error := int(self._answer()):
            raise RuntimeError(f"{name}{args}: {KafkaError(error)}")

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline().strip()
        if not answer:
            raise RuntimeError(f"the mock cluster is gone ({self.process.wait()})")
        return answer


def _send(producer: Producer, topic: str, records: Iterable[Record | bytes | None]) -> int:
    sent = 0
    for one in records:
        record = one if isinstance(one, Record) else Record(one)
        while True:
            try:
                producer.produce(
                    topic, record.value, record.key, record.partition, timestamp=record.timestamp, headers=list(record.headers) or None
                )
                break
            except BufferError:  # its queue is full
                producer.poll(0.1)
        sent += 1
    return sent
