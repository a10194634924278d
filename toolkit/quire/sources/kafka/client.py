"""Kafka's client: one cluster as a process sees it, kept open for the next task of the same process, and its errors in one line each.

confluent-kafka is imported where it is used, so `import quire` needs it not. A client belongs to the process that has made it: after a fork
another one is made.
"""

from __future__ import annotations

import functools
import json
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from quire import interrupts
from quire.errors import NotFoundError, QuireError, StorageError, TransientError, UsageError, scrub
from quire.sources.files import Options
from quire.sources.kafka.topics import Key, hides, named
from quire.storage.retry import OnRetry, again, silent
from quire.storage.secret import resolved

T = TypeVar("T")

FIRST = 10.0  # seconds in which a broker has to answer first
ANSWER = 30.0  # seconds for any other answer
TOPIC_IDS, TURNS = 5.0, 5  # seconds in which topics' ids have to be told, or none; so often it is asked for them
TELLS = 10_000  # milliseconds between two accounts of the client, of how far it has come
KEPT = 4  # clusters that a process keeps open
ASKED = 1_000  # partitions whose offsets are asked for in one go: each of them has some kilobytes until its answer is there
WAITS = 0.5  # seconds between two looks at what was delivered
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # all zeros: an old broker's answer
# What a broker says of the moment and not of the question: the leader is another one by now, or the broker has just come back, or it knows
# newer things than whoever asks. Kafka's protocol calls these errors retriable; the client tells so of its transactions alone.
_PASSING = (
    "INVALID_MSG", "LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "REQUEST_TIMED_OUT", "BROKER_NOT_AVAILABLE", "REPLICA_NOT_AVAILABLE",
    "NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NOT_CONTROLLER",
    "KAFKA_STORAGE_ERROR", "FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "LISTENER_NOT_FOUND", "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH", "STALE_BROKER_EPOCH", "OFFSET_NOT_AVAILABLE", "PREFERRED_LEADER_NOT_AVAILABLE",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE", "UNSTABLE_OFFSET_COMMIT", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_TOPIC_ID", "INCONSISTENT_TOPIC_ID",
    "REBOOTSTRAP_REQUIRED",
)  # fmt: skip
# The client's words for a host that it could not look up. They repeat the words of the system's library: of glibc, musl and macOS those
# that say that the host does not exist, or that it has no address. With any others, as 'Temporary failure in name resolution', it may come.
_LOOKED_UP = re.compile(r"Failed to resolve '([^']+)': ([^(]*)")
_UNKNOWN = ("Name or service not known", "No address associated with hostname", "Name does not resolve", "Name has no usable address",
            "nodename nor servname provided")  # fmt: skip
_local = threading.local()  # two threads read with two clients


@functools.cache
def library() -> Any:
    """The module `confluent_kafka`; UsageError where it is missing."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as e:
        raise UsageError(
            f"Kafka needs the package confluent-kafka, here and on the executors ({scrub(str(e), 100)}): pip install it."
        ) from e
    return confluent_kafka


def cluster_of(servers: str, options: Options) -> Cluster:
    """The cluster there; within one thread of one process the same as before, as long as it is one of the last few."""
    if getattr(_local, "process", None) != os.getpid():
        # What a process was forked with is neither used here nor closed: the threads that do its work are not there.
        _local.inherited = getattr(_local, "open", None)
        _local.process, _local.open = os.getpid(), dict[tuple[object, ...], Cluster]()
    settings, kept = resolved(dict(options or {})), _local.open
    key = (servers, *sorted((name, value if callable(value) else str(value)) for name, value in settings.items()))
    found: Cluster = kept.pop(key, None) or Cluster(servers, settings)
    kept[key] = found
    while len(kept) > KEPT:
        kept.pop(next(iter(kept))).close()
    return found


class Cluster:
    """A cluster and the clients that are open to it."""

    def __init__(self, servers: str, settings: Mapping[str, Any]) -> None:
        self.servers, self.kafka = servers, library()
        self._hidden = [str(value) for name, value in settings.items() if hides(name) and len(str(value)) > 2]
        self._heard = deque[str](maxlen=3)  # what the client says of its connections
        self._unknown = set[str]()  # servers whose hosts DNS did not know, since a broker answered last
        self._refused: QuireError | None = None
        self._settings = {
            "client.id": "quire", "log_level": 0, "socket.keepalive.enable": True, "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 2_000, **settings, "bootstrap.servers": servers, "error_cb": self._hear,
        }  # fmt: skip
        self._admin: Any = None
        self._consumer: Any = None
        self._fetched = dict[Key, int]()  # of each partition the next offset that the consumer will ask for, as it has told last
        self._met = set[str]()  # topics that the consumer has heard of

    # -------------------------------------------------------------------------------------------------------------- clients
    @property
    def admin(self) -> Any:
        """Asks about topics; made when it is needed first."""
        if self._admin is None:
            self._admin = self._made(self.kafka.admin.AdminClient, self._settings)
        return self._admin

    @property
    def consumer(self) -> Any:
        """Reads partitions that are assigned to it; it has no group, and commits nothing."""
        if self._consumer is None:
            self._consumer = self._made(self.kafka.Consumer, {
                # Large fetches; but a broker that has nothing answers at once, since the next range may be asked for already. And where
                # enough waits here, the client looks again soon: by itself it would rest for a second, longer than all of that takes.
                "fetch.wait.max.ms": 50, "fetch.message.max.bytes": 4 << 20, "queued.max.messages.kbytes": 64 << 10,
                "queued.min.messages": 200_000, "fetch.queue.backoff.ms": 10, "fetch.error.backoff.ms": 100, "check.crcs": True,
                **self._settings, "group.id": "quire", "enable.auto.commit": False, "enable.auto.offset.store": False,
                "auto.offset.reset": "error", "enable.partition.eof": True, "isolation.level": "read_committed",
                "statistics.interval.ms": TELLS, "stats_cb": self._count,
            })  # fmt: skip
        return self._consumer

    def _made(self, kind: Any, settings: Mapping[str, Any], argument: str = "source_options") -> Any:
        try:
            return kind(dict(settings))
        except (self.kafka.KafkaException, ValueError, TypeError) as e:
            text = e.args[0].str() if isinstance(e, self.kafka.KafkaException) else str(e)
            raise UsageError(f"{argument}: {self.clean(text)}. They have librdkafka's names.") from None

    def _count(self, statistics: str) -> None:
        """Records of aborted transactions do not reach the caller, but the client's own count includes them."""
        for topic, found in json.loads(statistics).get("topics", {}).items():
            for number, partition in found.get("partitions", {}).items():
                self._fetched[Key(topic, int(number))] = int(partition.get("next_offset", -1))

    def fetched(self, topic: str, partitions: Iterable[int]) -> int:
        """Grows while anything comes of some partitions, be it nothing that a reader sees; told every few seconds."""
        return sum(max(0, self._fetched.get(Key(topic, number), 0)) for number in partitions)

    def group(self, name: str) -> Any:
        """A consumer that reads and writes the committed offsets of a group; the caller closes it."""
        return self._made(self.kafka.Consumer, {**self._settings, "group.id": name, "enable.auto.commit": False})

    def sender(self, topic: str) -> Sender:
        """Writes to a topic; the caller flushes or drops it."""
        return Sender(self, topic)

    def close(self) -> None:
        """Give up what is open."""
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._admin = None
        self._met.clear()

    # ---------------------------------------------------------------------------------------------------------------- errors
    def _hear(self, error: Any) -> None:
        text = self.clean(error.str())
        if text not in self._heard:
            self._heard.append(text)
        if (looked_up := _LOOKED_UP.search(error.str())) and looked_up[2].startswith(_UNKNOWN):
            self._unknown.add(looked_up[1].lower())
        if error.code() in (self.kafka.KafkaError._AUTHENTICATION, self.kafka.KafkaError._SSL):
            self._refused = StorageError(f"{self.servers} does not let us in: {text}. Look at security.protocol, and who signs in.")

    def clean(self, text: str) -> str:
        """The client's message, in one line and without its secrets."""
        for hidden in self._hidden:
            text = text.replace(hidden, "***")
        return scrub(text, 200).rstrip(".")

    def _nowhere(self) -> StorageError | None:
        """The error to raise where DNS knows none of the hosts that we were given, so that no patience helps.

        A name that the cluster gives of one of its brokers is another matter: it may come and go with its machine.
        """
        given = [_with_port(server) for server in self.servers.split(",") if server.strip()]
        if not given or not self._unknown.issuperset(given):
            return None
        hosts = " or ".join(dict.fromkeys(repr(server.rpartition(":")[0]) for server in given))
        return StorageError(f"no broker answers: unknown host {hosts}. Check the hosts' spelling, or this machine's network.")

    def failed(self, error: Any, what: str) -> QuireError:
        """The exception to raise for a KafkaException or a KafkaError of the client."""
        error = error.args[0] if isinstance(error, self.kafka.KafkaException) else error
        if self._refused is not None:
            found, self._refused = self._refused, None
            return found
        if (unknown := self._nowhere()) is not None:
            return unknown
        return _error_of(self.kafka, error, f"{what} ({self.servers})", self.clean("; ".join([error.str(), *self._heard])))

    def ask(self, question: Callable[[], T], what: str, on_retry: OnRetry = silent) -> T:
        """A broker's answer; transient errors are retried for a minute."""

        def asked() -> T:
            try:
                found = question()
            except self.kafka.KafkaException as e:
                self.admin.poll(0)  # hears why
                raise self.failed(e, what) from None
            self._unknown.clear()
            return found

        return again(asked, on_retry)

    # ------------------------------------------------------------------------------------------------------------- questions
    def reach(self) -> None:
        """Wait for the first answer of any broker. Raises StorageError in one line, after a few seconds, where there is none."""
        until, failed, patience = time.monotonic() + FIRST, None, 0.5
        while time.monotonic() < until:
            patience *= 2  # what refuses us is heard between two tries; and a broker that is far away answers one of them
            try:
                self.admin.list_topics(timeout=min(patience, max(1.0, until - time.monotonic())))
            except self.kafka.KafkaException as e:
                failed = e
                self.admin.poll(0)
                if self._refused is not None or self._nowhere() is not None:
                    raise self.failed(e, "") from None
            else:
                self._heard.clear()
                self._unknown.clear()
                return
        assert failed is not None
        why = self.clean("; ".join(self._heard) or failed.args[0].str())
        raise StorageError(f"no broker answers at {self.servers} within {FIRST:.0f} s: {why}. Look at host, port and security.protocol.")

    def topics(self, on_retry: OnRetry = silent) -> tuple[str, dict[str, int]]:
        """The cluster's id, and of each topic how many partitions it has; those that nobody may see are not among them."""
        found = self.ask(lambda: self.admin.list_topics(timeout=ANSWER), "cannot list topics", on_retry)
        return str(found.cluster_id or ""), {
            name: len(topic.partitions) for name, topic in found.topics.items() if topic.error is None and not name.startswith("__")
        }

    def look(self, topic: str) -> None:
        """Raise what a broker says of one topic, if that is anything: that it is not there, or that we may not read it."""
        found = self.ask(lambda: self.consumer.list_topics(topic, timeout=ANSWER), f"cannot look at topic {topic}").topics[topic]
        if found.error is not None:
            raise self.failed(found.error, f"cannot read topic {topic}")

    def meet(self, topic: str) -> None:
        """Let the consumer hear where a topic's partitions are, before it reads there first: by itself it may look only a second later."""
        if topic not in self._met:
            self.ask(lambda: self.consumer.list_topics(topic, timeout=ANSWER), f"cannot look at topic {topic}")
            self._met.add(topic)

    def versions(self, topics: Iterable[str], on_retry: OnRetry = silent) -> dict[str, str]:
        """The topics' ids, `named` of all where they are not told in time; a topic that is gone is missing."""
        wanted, found = list(topics), dict[str, str]()
        for turn in range(TURNS if wanted else 0):
            if turn:
                # The client asks the controller, and waits for one that is away; with news of the cluster it may be another broker.
                self.ask(lambda: self.admin.list_topics(timeout=TOPIC_IDS), "cannot list topics", on_retry)
            found = self.ask(lambda: self._described(wanted), "cannot ask for topics' ids", on_retry)
            if not any(version == named(topic) for topic, version in found.items()):
                break
        return found

    def _described(self, wanted: list[str]) -> dict[str, str]:
        kinds, found = self.kafka.KafkaError, dict[str, str]()
        asked = self.admin.describe_topics(self.kafka.TopicCollection(wanted), request_timeout=TOPIC_IDS / TURNS)
        for topic, future in asked.items():
            try:
                text = str(future.result().topic_id)
            except self.kafka.KafkaException as e:
                code = e.args[0].code()
                if code == kinds.UNKNOWN_TOPIC_OR_PART:
                    continue
                if code not in (kinds._TIMED_OUT, kinds._UNSUPPORTED_FEATURE, kinds.UNSUPPORTED_VERSION):
                    raise
                text = _NO_ID
            found[topic] = named(topic) if text == _NO_ID else text
        return found

    def starts(self, keys: Iterable[Key], on_retry: OnRetry = silent) -> dict[Key, int]:
        """The first offset that each partition still has."""
        return self._offsets(keys, self.kafka.admin.OffsetSpec.earliest(), on_retry)

    def ends(self, keys: Iterable[Key], on_retry: OnRetry = silent) -> dict[Key, int]:
        """The stable end of each: one more than the last offset that no open transaction can still change."""
        return self._offsets(keys, self.kafka.admin.OffsetSpec.latest(), on_retry)

    def highs(self, keys: Iterable[Key], on_retry: OnRetry = silent) -> dict[Key, int]:
        """The end of each with what open transactions can still change."""
        return self._offsets(keys, self.kafka.admin.OffsetSpec.latest(), on_retry, self.kafka.IsolationLevel.READ_UNCOMMITTED)

    def at(self, keys: Iterable[Key], moment: int, on_retry: OnRetry = silent) -> dict[Key, int]:
        """The first offset with a timestamp (ms since 1970) from `moment` on; -1: there is none."""
        return self._offsets(keys, self.kafka.admin.OffsetSpec.for_timestamp(moment), on_retry)

    def _offsets(self, keys: Iterable[Key], spec: Any, on_retry: OnRetry, isolation: Any = None) -> dict[Key, int]:
        isolation = self.kafka.IsolationLevel.READ_COMMITTED if isolation is None else isolation
        wanted, found = list(keys), dict[Key, int]()
        for at in range(0, len(wanted), ASKED):
            asked = {self.kafka.TopicPartition(*key): spec for key in wanted[at : at + ASKED]}

            def answers(asked: dict[Any, Any] = asked) -> dict[Key, int]:
                answers = self.admin.list_offsets(asked, isolation_level=isolation, request_timeout=ANSWER)
                return {Key(at.topic, at.partition): future.result().offset for at, future in answers.items()}

            found |= self.ask(answers, "cannot ask for offsets", on_retry)
        return found


class Sender:
    """Writes records to one topic: each once while it lives, those of a key in the order in which they are sent.

    Records that wait take a bounded memory. Nothing counts before `flush` has ended.
    """

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._cluster, self._topic, self._failed = cluster, topic, None
        self._producer = cluster._made(cluster.kafka.Producer, {
            # Java's clients place a key by murmur2, too. Records that wait longer than a minute are a failure.
            "partitioner": "murmur2_random", "linger.ms": 20, "message.timeout.ms": 60_000, "queue.buffering.max.kbytes": 32 << 10,
            **cluster._settings, "enable.idempotence": True, "acks": "all",
        }, "producer_options")  # fmt: skip

    def send(self, key: bytes, value: bytes | None) -> None:
        """Hand on a record; it waits for room where the brokers are slower."""
        while True:
            try:
                self._producer.produce(self._topic, value=value, key=key, on_delivery=self._told)
            except BufferError:
                self._producer.poll(WAITS)
                interrupts.check()
                self._check()
            except self._cluster.kafka.KafkaException as e:
                raise self._error(e) from None
            else:
                self._producer.poll(0)
                self._check()
                return

    def flush(self) -> None:
        """Wait until the brokers have all that was sent. Raises one error for records that they do not have."""
        while self._producer.flush(WAITS):
            interrupts.check()
            self._check()
        self._check()

    def drop(self) -> None:
        """Send nothing more of what waits."""
        self._producer.purge(blocking=False)

    def _told(self, error: Any, _: Any) -> None:
        self._failed = self._failed or error

    def _check(self) -> None:
        if self._failed is not None:
            raise self._error(self._failed)

    def _error(self, error: Any) -> QuireError:
        return self._cluster.failed(error, f"cannot write to topic {self._topic}")


def _with_port(server: str) -> str:
    """A server as the client names it in its errors, from `host`, `host:port` or `protocol://host:port`."""
    address = server.strip().rpartition("://")[2].lower()
    return address if re.search(r":\d+$", address) else f"{address}:9092"


def _error_of(kafka: Any, error: Any, what: str, text: str) -> QuireError:
    """The error of ours for one of the client's."""
    code, kinds = error.code(), kafka.KafkaError
    if code in (kinds.TOPIC_AUTHORIZATION_FAILED, kinds.GROUP_AUTHORIZATION_FAILED, kinds.CLUSTER_AUTHORIZATION_FAILED):
        return StorageError(f"{what}: no permission ({text}). Ask for the right to use it.")
    if code in (kinds._AUTHENTICATION, kinds.SASL_AUTHENTICATION_FAILED, kinds._SSL):
        return StorageError(f"{what}: {text}. Look at security.protocol, and who signs in.")
    if code in (kinds.UNKNOWN_TOPIC_OR_PART, kinds._UNKNOWN_TOPIC, kinds._UNKNOWN_PARTITION):
        return NotFoundError(f"{what}: the topic or partition does not exist")
    if error.retriable() or code < 0 or code in {getattr(kinds, name, None) for name in _PASSING}:
        return TransientError(f"{what}: {text}")
    return StorageError(f"{what}: {text}")
