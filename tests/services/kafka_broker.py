"""Real Kafka: brokers that are controllers, too, each a process, on free loopback ports. `make test-services` got their jars."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from quire.spark.java import find_java
from services.kafka import PATIENCE, Kafka
from services.ports import free_ports
from services.server import Server

__all__ = ["JARS", "Cluster", "broker", "brokers"]

JARS = Path(sys.prefix) / "kafka" / "jars"
START = 120.0  # seconds until they answer
PASSWORDS = {"alice": "of-alice-alone", "bob": "of-bob-alone"}  # of servers that run here and are gone afterwards; Bob may do nothing
STORE = "of-tests-alone"

_TOOL = "kafka.tools.StorageTool"
_MAIN = "kafka.Kafka"


class Cluster(Kafka):
    """Kafka of its own; what a test does to its processes, it does by these. Brokers are numbered from 1.

    Who comes by its address may do everything; who comes by `by_password` may do what `allow` says; `by_tls` is encrypted.
    """

    def __init__(self, place: Path, nodes: int) -> None:
        self.place, self.ca = place, place / "ca.pem"
        ports = free_ports(4 * nodes)
        self._plain, self._sasl, self._tls, self._quorum = (ports[i * nodes : (i + 1) * nodes] for i in range(4))
        super().__init__(_listed(self._plain))
        self.nodes: dict[int, Server] = {}
        _certify(place, self.ca)
        voters = ",".join(f"{i + 1}@127.0.0.1:{port}" for i, port in enumerate(self._quorum))
        cluster = _run(place, _TOOL, "random-uuid").strip()
        for i in range(nodes):
            self._format(i + 1, cluster, {**_settings(nodes), "controller.quorum.voters": voters})

    def _format(self, node: int, cluster: str, settings: Mapping[str, object]) -> None:
        data = self.place / f"node-{node}"
        data.mkdir()
        listeners = {"PLAINTEXT": self._plain, "SASL": self._sasl, "TLS": self._tls, "CONTROLLER": self._quorum}
        said = ",".join(f"{name}://127.0.0.1:{ports[node - 1]}" for name, ports in listeners.items())
        own = {
            "node.id": node,
            "listeners": said,
            "advertised.listeners": said,
            "log.dirs": data / "records",
            "ssl.keystore.location": self.place / "key.p12",
        }
        conf = data / "server.properties"
        conf.write_text("".join(f"{name}={value}\n" for name, value in {**settings, **own}.items()))
        users = [f"--add-scram=SCRAM-SHA-256=[name={name},password={word}]" for name, word in PASSWORDS.items()]
        _run(self.place, _TOOL, "format", "-t", cluster, "-c", str(conf), *users)
        address = f"127.0.0.1:{self._plain[node - 1]}"
        self.nodes[node] = Server(f"Kafka {node}", _java(data, _MAIN, str(conf)), address, data, lambda: _lists(address, node), START)

    # --- its processes

    def start(self, *which: int) -> None:
        """These, or all that do not run."""
        found = [node for number, node in self.nodes.items() if number in which or (not which and node.process is None)]
        for node in found:  # one alone is no quorum of three: all of them, then wait
            node.launch()
        for node in found:
            node.wait()

    def kill(self, *which: int) -> None:
        """These, or all, with no time to tidy."""
        self._end(which, signal.SIGKILL)

    def stop(self, *which: int) -> None:
        """These, or all, as their administrator does; what they do not do within ten seconds they do not do."""
        self._end(which, signal.SIGTERM)

    def restart(self, *which: int) -> None:
        self.stop(*which)
        self.start(*which)

    def sleep(self, *which: int) -> None:
        """These, or all, do nothing until `wake`, but their connections stay."""
        for number in which or self.nodes:
            self.nodes[number].sleep()

    def wake(self, *which: int) -> None:
        for number in which or self.nodes:
            self.nodes[number].wake()

    def _end(self, which: tuple[int, ...], how: signal.Signals) -> None:
        for number in which or self.nodes:
            self.nodes[number].stop(how)

    # --- what its administrator does

    def create(self, topic: str, partitions: int = 1, replication: int = -1, **config: object) -> None:
        """On as many brokers as there are, at most three, or on so many.

        `config` is Kafka's, with `_` for each dot: `retention_ms=1000`, `cleanup_policy="compact"`.
        """
        told = {name.replace("_", "."): str(value) for name, value in config.items()}
        admin = self.admin()
        _done(admin.create_topics([NewTopic(topic, partitions, replication, config=told)], operation_timeout=PATIENCE))
        self._until(lambda: len(self._known(topic)) == partitions and all(leader > 0 for leader in self._known(topic).values()), topic)

    def grow(self, topic: str, partitions: int) -> None:
        """Until it has so many."""
        admin = self.admin()
        _done(admin.create_partitions([NewPartitions(topic, partitions)], operation_timeout=PATIENCE))
        self._until(lambda: len(self._known(topic)) == partitions, topic)

    def delete(self, topic: str) -> None:
        admin = self.admin()
        _done(admin.delete_topics([topic], operation_timeout=PATIENCE))
        self._until(lambda: not self._known(topic), topic)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> None:
        """As retention does: of these partitions, all below these offsets. A broker that is killed within a minute forgets it."""
        admin = self.admin()
        _done(admin.delete_records([TopicPartition(topic, p, offset) for p, offset in before.items()]))

    def leader(self, topic: str, partition: int = 0) -> int:
        return self._known(topic)[partition]

    def allow(self, user: str, topic: str, *operations: AclOperation) -> None:
        """Give one more right on one topic (`*`: on every one), and on every consumer group."""
        admin = self.admin()
        rights = [(ResourceType.TOPIC, topic, operation) for operation in operations]
        _done(
            admin.create_acls(
                [
                    AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
                    for kind, name, operation in [*rights, (ResourceType.GROUP, "*", AclOperation.ALL)]
                ]
            )
        )

    def _known(self, topic: str) -> dict[int, int]:
        """Its partitions' leaders; of a topic that is not there, none."""
        found = self.admin().list_topics(timeout=PATIENCE).topics
        return {p: one.leader for p, one in found[topic].partitions.items()} if topic in found else {}

    def _until(self, true: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + PATIENCE
        while not true():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: its brokers do not agree within {PATIENCE} s")
            time.sleep(0.05)

    # --- other ways to it

    def by_password(self, user: str = "alice", password: str | None = None) -> Kafka:
        """As this user, by SASL."""
        word = PASSWORDS[user] if password is None else password
        sasl = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": user, "sasl.password": word}
        return Kafka(_listed(self._sasl), {"security.protocol": "SASL_PLAINTEXT", **sasl})

    def by_tls(self, trusted: bool = True) -> Kafka:
        """Encrypted; who does not trust its certificate gets nowhere."""
        return Kafka(_listed(self._tls), {"security.protocol": "SSL", **({"ssl.ca.location": str(self.ca)} if trusted else {})})


@contextmanager
def brokers(nodes: int) -> Iterator[Cluster]:
    """Run so many brokers with nothing in them."""
    if not JARS.is_dir():
        raise RuntimeError("Kafka's jars are not there: `make test-services` gets them with Maven")
    place = Path(tempfile.mkdtemp(prefix="quire-kafka-"))
    try:
        cluster = Cluster(place, nodes)
        try:
            cluster.start()
            cluster.allow("alice", "*", AclOperation.ALL)
            yield cluster
        finally:
            cluster.kill()
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def broker() -> Iterator[Cluster]:
    """The same, one."""
    with brokers(1) as cluster:
        yield cluster


def _settings(nodes: int) -> dict[str, Any]:
    copies = min(3, nodes)
    return {
        "process.roles": "broker,controller",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # who comes without a name
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": copies // 2 + 1,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": copies // 2 + 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # A broker that was killed is missed soon, so that another one leads, and so that it may come back.
        "broker.session.timeout.ms": 2000,
        "broker.heartbeat.interval.ms": 500,
        # What retention and compaction may remove, they remove soon, and nothing else.
        "log.retention.ms": -1,  # but what a topic says
        "log.initial.task.delay.ms": 500,
        "log.retention.check.interval.ms": 500,
        "log.segment.delete.delay.ms": 500,
        "log.cleaner.backoff.ms": 200,
        "log.cleaner.dedupe.buffer.size": 4 << 20,  # instead of 128 MiB of its heap
    }


def _java(data: Path, main: str, *words: str) -> list[str]:
    # The quick compiler alone: they live for a minute.
    flags = ["-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Djava.io.tmpdir={data}", "-Dorg.apache.logging.log4j.level=WARN"]
    return [os.path.join(find_java().home, "bin", "java"), *flags, "-cp", f"{JARS}/*", main, *words]


def _run(place: Path, main: str, *words: str) -> str:
    done = subprocess.run(_java(place, main, *words), capture_output=True, text=True, timeout=START, cwd=place)
    if done.returncode:
        raise RuntimeError(f"{main} {words[0]}: {done.stdout[-1000:]} {done.stderr[-2000:]}")
    return done.stdout


def _certify(place: Path, ca: Path) -> None:
    """A key of their own, and the certificate that says so."""
    tool = os.path.join(find_java().home, "bin", "keytool")
    store = ["-alias", "kafka", "-keystore", str(place / "key.p12"), "-storepass", STORE]
    made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-storetype", "PKCS12"]
    for words in (made, ["-exportcert", "-rfc", "-file", str(ca)]):
        subprocess.run([tool, *words, *store], capture_output=True, text=True, check=True, timeout=START)


def _lists(address: str, node: int) -> str:
    """Why a broker is not there yet; "": it is."""
    try:
        found = Kafka(address).admin().list_topics(timeout=2).brokers
    except KafkaException as e:
        return str(e)
    return "" if node in found else f"it knows {sorted(found)}"


def _listed(ports: list[int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports)


def _done(asked: Mapping[Any, Any]) -> None:
    for answer in asked.values():
        answer.result(PATIENCE)
