"""A host that DNS does not know is told at once, in one line; a host that is away, or cannot be looked up just now, is tried again."""

from __future__ import annotations

import base64
import socket
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from gathering import refused
from quire import StorageError
from quire.errors import TransientError
from quire.sources.kafka import client
from quire.storage import connect, normalise, retry, window
from quire.storage.base import ReadRequest, Store
from quire.storage.hdfs import rest as hdfs_rest
from quire.storage.http import unanswered
from quire.storage.place import NameResolutionFailed
from quire.storage.s3 import account as s3_account

NAMENODES = {"namenodes": {"cluster": ["nn1.invalid", "nn2.invalid:9871"]}}
AZURE = {"account_name": "mispelt", "account_key": base64.b64encode(b"0" * 32).decode()}
S3 = {"key": "k", "secret": "hunter2", "endpoint_url": "https://mispelt.invalid"}
PLACES = [
    pytest.param("webhdfs://mispelt.invalid/x", {}, ("'mispelt.invalid'", "Check the URL"), id="webhdfs"),
    pytest.param("webhdfs://cluster/x", NAMENODES, ("'nn1.invalid' or 'nn2.invalid'", "Check the option namenodes"), id="namenodes"),
    pytest.param("abfs://container/x", AZURE, ("'mispelt.blob.core.windows.net'", "Check the account's name"), id="abfs"),
    pytest.param("s3://bucket/x", S3, ("mispelt.invalid", "Check endpoint_url"), id="s3"),
]
Asked = list[str]


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What is tried again; nobody waits for it."""
    told: Asked = []

    def pause(seconds: float) -> None:
        told.append(f"{seconds:.1f} s")

    monkeypatch.setattr(retry, "pause", pause)
    monkeypatch.setattr(retry, "PATIENCE", 2.0)
    monkeypatch.setattr(retry, "clock", lambda: float(len(told)))
    monkeypatch.setattr(window, "PATIENCE", 0.05)
    return told


def looked_up(monkeypatch: pytest.MonkeyPatch, *errors: BaseException) -> Asked:
    """Each name's lookup fails: the first ones as the errors say, all others as the last of them. Gives the names."""
    asked: Asked = []

    def lookup(host: Any, *_: object, **__: object) -> None:
        asked.append(str(host))
        raise errors[min(len(asked), len(errors)) - 1]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    for module, shared in ((s3_account, "_accounts"), (hdfs_rest, "_rests")):  # whose connections know for a second what has no address
        monkeypatch.setattr(module, shared, {})
    return asked


UNKNOWN = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
NO_ADDRESS = socket.gaierror(socket.EAI_NODATA, "No address associated with hostname")
NOT_NOW = socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
NOT_HERE = OSError(24, "Too many open files")


def acts(store: Store) -> list[Any]:
    return [lambda: store.get("a"), lambda: store.put("a", b""), lambda: list(store.read_many([ReadRequest("a", "1-1-1", 1, 0, 1)]))]


@pytest.mark.parametrize(("url", "options", "words"), PLACES)
@pytest.mark.parametrize("error", [UNKNOWN, NO_ADDRESS], ids=["name", "address"])
def test_a_misspelt_host_is_told_at_once(
    url: str, options: dict[str, Any], words: tuple[str, ...], error: OSError, monkeypatch: pytest.MonkeyPatch, patience: Asked
) -> None:
    asked = looked_up(monkeypatch, error)
    for act in acts(connect(normalise(url), options)):
        asked.clear()
        patience.clear()
        with refused(StorageError, StorageError.exit_code, "unknown host", *words) as caught:
            act()
        assert not isinstance(caught.value, TransientError)
        assert len(asked) <= 2, "one lookup for each host"
        assert len(patience) <= (url == "webhdfs://cluster/x"), "nothing is tried again but the other namenode"


@pytest.mark.parametrize(("url", "options", "words"), PLACES)
@pytest.mark.parametrize("error", [NOT_NOW, NOT_HERE], ids=["resolver", "files"])
def test_a_host_that_cannot_be_looked_up_just_now_is_tried_again(
    url: str, options: dict[str, Any], words: tuple[str, ...], error: OSError, monkeypatch: pytest.MonkeyPatch, patience: Asked
) -> None:
    looked_up(monkeypatch, error)
    for act in acts(connect(normalise(url), options)):
        with pytest.raises(TransientError, match="tried"):
            act()


def test_a_namenode_that_is_away_is_tried_again_though_the_other_one_is_misspelt(monkeypatch: pytest.MonkeyPatch, patience: Asked) -> None:
    asked = looked_up(monkeypatch, UNKNOWN, ConnectionRefusedError(), UNKNOWN, TimeoutError())
    with pytest.raises(TransientError, match="tried"):
        connect(normalise("webhdfs://cluster/x"), NAMENODES).get("a")
    assert set(asked[:2]) == {"nn1.invalid", "nn2.invalid"}


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NameResolutionFailed(24, "Too many open files"), "no name"), (NOT_NOW, "no name"), (socket.gaierror(12, "x"), "no name"),
        (UNKNOWN, "no host"), (NO_ADDRESS, "no host"), (NOT_HERE, "lost"),
    ],
)  # fmt: skip
def test_why_a_name_was_not_found_decides(error: OSError, why: str) -> None:
    """As it is, and as a client wraps it."""

    class Wrapped(OSError):
        pass

    wrapped = Wrapped()
    wrapped.__cause__ = error
    assert {unanswered(error)[0], unanswered(wrapped)[0]} == {why}


def test_a_name_that_no_host_can_have_is_told_at_once(patience: Asked) -> None:
    with refused(StorageError, StorageError.exit_code, "unknown host 'aaaa", "Check the URL"):
        connect(normalise(f"webhdfs://{'a' * 70}/x")).get("a")
    assert not patience


# ------------------------------------------------------------------------------------------------------------------------------ Kafka
class Resolving:
    """A client of Kafka that can look up no host; it tells so when it is polled."""

    def __init__(self, cluster: client.Cluster, *words: str) -> None:
        self.cluster, self.words, self.asked = cluster, words, 0

    def list_topics(self, timeout: float) -> None:
        self.asked += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure"))

    def poll(self, _: float) -> None:
        for words in self.words:
            self.cluster._hear(KafkaError(KafkaError._RESOLVE, words))


def brokers(servers: str, *words: str) -> tuple[client.Cluster, Resolving]:
    cluster = client.Cluster(servers, {})
    cluster._admin = found = Resolving(cluster, *words)
    return cluster, found


ONE = "sasl_ssl://one.invalid:9092/bootstrap: Failed to resolve 'one.invalid:9092': Name or service not known (after 2ms in state CONNECT)"
TWO = "two.invalid:9093/bootstrap: Failed to resolve 'two.invalid:9093': No address associated with hostname (after 2ms in state CONNECT)"
LATER = (
    "one.invalid:9092/bootstrap: Failed to resolve 'one.invalid:9092': Temporary failure in name resolution (after 2ms in state CONNECT)"
)


def test_misspelt_brokers_are_told_at_once(patience: Asked) -> None:
    cluster, asked = brokers("SASL_SSL://One.invalid, two.invalid:9093", ONE, TWO)
    for act in (cluster.reach, lambda: cluster.ask(lambda: asked.list_topics(1), "cannot list topics")):
        asked.asked = 0
        with refused(StorageError, StorageError.exit_code, "unknown host 'one.invalid' or 'two.invalid'", "spelling") as caught:
            act()
        assert not isinstance(caught.value, TransientError)
        assert (asked.asked, patience) == (1, [])


@pytest.mark.parametrize(("servers", "words"), [("one.invalid", LATER), ("one.invalid,two.invalid:9093", ONE)], ids=["resolver", "other"])
def test_brokers_that_may_come_are_tried_again(servers: str, words: str, monkeypatch: pytest.MonkeyPatch, patience: Asked) -> None:
    monkeypatch.setattr(client, "FIRST", 0.05)
    cluster, asked = brokers(servers, words)
    with refused(StorageError, StorageError.exit_code, "no broker answers at", "Failed to resolve"):
        cluster.reach()
    assert asked.asked > 1
    with pytest.raises(TransientError, match="tried"):
        cluster.ask(lambda: asked.list_topics(1), "cannot list topics")


def test_a_broker_that_the_cluster_names_may_come_though_it_is_unknown(patience: Asked) -> None:
    """Its name may come and go with its machine; the hosts that the call gave are known."""
    cluster, asked = brokers("three.invalid:9092", ONE)
    with pytest.raises(TransientError, match=r"Failed to resolve 'one\.invalid:9092'"):
        cluster.ask(lambda: asked.list_topics(1), "cannot list topics")
