"""Kafka topics as a source: which are meant, by what they are known, and how the options of their client travel.

A source is `kafka://host:9092[,host:9092…]/topic[,topic…]`; a name that is not legal for a topic is a regular expression that whole names
must match. In the ledger a partition is `kafka://<cluster id>/<topic>/<partition>` in the version that is its topic's id, and its ranges
are offsets. Only `client.py` knows the client (librdkafka, by confluent-kafka).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from quire.errors import UsageError, quoted, scrub
from quire.sources.files import Options, Root
from quire.storage import OnRetry, Store, silent

SCHEME = "kafka://"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVER = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?")
_COMMA = re.compile(r",(?![^\[{(]*[\]})])")  # not one within a regular expression's brackets
_NAMED = "name:"  # the version of a topic of which no broker tells an id
# What quire sets by itself: another value would lose or double records.
_OURS = (
    "bootstrap.servers", "metadata.broker.list", "group.id", "enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset",
    "enable.partition.eof", "isolation.level", "default.topic.config", "error_cb", "on_commit", "log_cb", "logger",
    "statistics.interval.ms", "stats_cb",
)  # fmt: skip
_OURS_WRITING = ("enable.idempotence", "acks", "request.required.acks", "transactional.id", "on_delivery", "dr_cb")


class Key(NamedTuple):
    """A topic partition."""

    topic: str
    partition: int


@dataclass(frozen=True)
class Topics(Root):
    """Topics of one cluster; `url` is what the ledger's keys of all their partitions begin with, `options` are librdkafka's."""

    servers: str = ""
    asked: tuple[str, ...] = ()  # names and regular expressions
    versions: Mapping[str, str] = field(default_factory=dict)  # topic → its id, or `named`

    shared = True

    def store(self, on_retry: OnRetry = silent) -> Store:
        """Topics are not files."""
        raise UsageError(f"{self.shown} is Kafka, and no store of files. Topics are loaded by quire.load.")

    @property
    def cluster(self) -> str:
        """Its id."""
        return self.url.removeprefix(SCHEME)

    @property
    def account(self) -> str:
        """As a progress line names it."""
        return self.servers

    @property
    def shown(self) -> str:
        """As the user has written it, less what may be a secret."""
        return f"{SCHEME}{self.servers}/{','.join(self.asked)}"

    def path(self, key: Key) -> str:
        """A partition's key in the ledger."""
        return f"{self.url}/{key.topic}/{key.partition}"

    def matches(self, topic: str) -> bool:
        """Whether a topic is meant."""
        return any(topic == one if _NAME.fullmatch(one) else re.fullmatch(one, topic) is not None for one in self.asked)

    @property
    def names(self) -> tuple[str, ...]:
        """The names among the requested topics."""
        return tuple(one for one in self.asked if _NAME.fullmatch(one))


def is_kafka(source: object) -> bool:
    """Whether a source, or a key of the ledger, is Kafka's."""
    return isinstance(source, str) and source.startswith(SCHEME)


def key_of(path: str) -> Key:
    """The partition that a key of the ledger means; ValueError for any other text."""
    parts = path.removeprefix(SCHEME).split("/")
    if not is_kafka(path) or len(parts) != 3 or not _NAME.fullmatch(parts[1]) or not re.fullmatch(r"[0-9]{1,9}", parts[2]):
        raise ValueError(f"{path[:200]!r} is not a partition")
    return Key(parts[1], int(parts[2]))


def topic_of(path: str) -> str:
    """The topic in a key of the ledger."""
    return key_of(path).topic


def named(topic: str) -> str:
    """The version of a topic that has no id."""
    return _NAMED + topic


def parsed(source: object, options: Options = None) -> Topics:
    """The meaning of a source, or of a list of them, before any broker is asked; UsageError if it does not name topics."""
    if isinstance(source, list | tuple) and source:
        every = [parsed(one, options) for one in source]
        if other := next((one.servers for one in every if one.servers != every[0].servers), ""):
            raise UsageError(f"the sources name the brokers {every[0].servers} and {other}: topics of one call are of one cluster.")
        return replace(every[0], asked=tuple(sorted({asked for one in every for asked in one.asked})))
    if not is_kafka(source):
        raise UsageError(f"the source is topics, 'kafka://host:9092/topic', not {quoted(source, 200)}. Files are for quire.consolidate.")
    assert isinstance(source, str)
    servers, slash, rest = source.removeprefix(SCHEME).partition("/")
    shown = scrub(source, 200)
    if "@" in servers:
        raise UsageError(f"{shown!r}: who signs in stands in source_options, by sasl.username and sasl.password, not in the URL.")
    if not slash or not rest.strip("/") or not servers:
        raise UsageError(f"{shown!r} names {'no topic' if servers else 'no broker'}. Write 'kafka://host:9092/topic'.")
    for server in servers.split(","):
        found = _SERVER.fullmatch(server)
        if not found or not 0 < int(found[2] or 9092) < 65536:
            raise UsageError(f"{shown!r}: {scrub(server, 80)!r} is not a broker. Write host:port, several with commas.")
    asked = tuple(dict.fromkeys(one.strip() for one in _COMMA.split(rest)))
    for one in asked:
        _check_topic(one, shown)
    return Topics(SCHEME, options=options, servers=servers, asked=tuple(sorted(asked)))


def _check_topic(one: str, shown: str) -> None:
    if one in ("", ".", ".."):
        raise UsageError(f"{shown!r}: {one!r} is not a topic. Write names with commas between them, or a regular expression.")
    if not _NAME.fullmatch(one):
        try:
            re.compile(one)
        except re.error as e:
            raise UsageError(f"{shown!r}: {scrub(one, 80)!r} is neither a topic's name nor a regular expression ({e}).") from e


def hides(name: str) -> bool:
    """Whether an option of the client's is likely to hold a secret, by its name."""
    return any(word in name for word in ("password", "secret", "key", "token", "jaas", "sasl.oauthbearer"))


def producer_options(options: Options) -> dict[str, object]:
    """The options for Kafka's producer."""
    return _checked(options, "producer_options", (*_OURS, *_OURS_WRITING))


def client_options(storage: Options, source: Options) -> dict[str, object]:
    """The options for Kafka's client: `source_options`, and those of `storage_options` that have a dot in their names, as librdkafka's."""
    _checked(source, "source_options", _OURS)
    found = {**{name: value for name, value in (storage or {}).items() if "." in str(name)}, **(source or {})}
    return _checked(found, "source_options", _OURS)


def _checked(options: Options, argument: str, ours: tuple[str, ...]) -> dict[str, object]:
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"{argument} is a dictionary of options for Kafka's client, not {type(options).__name__}.")
    for name in options or {}:
        if not isinstance(name, str):
            raise UsageError(f"{argument}: {quoted(name)} is not the name of an option, which is text as 'client.id'.")
        if name in ours:
            raise UsageError(f"{argument}: {name!r} is set by quire itself: with another value records would be lost or double.")
    return dict(options or {})


def topic_asked(url: object) -> Topics:
    """The one topic that is written to; UsageError for anything else."""
    if not is_kafka(url):
        raise UsageError(f"the target is a topic, 'kafka://host:9092/topic', not {quoted(url, 200)}.")
    found = parsed(url)
    if len(found.names) != 1 or len(found.asked) != 1:
        raise UsageError(f"{found.shown!r} is not one topic. Write 'kafka://host:9092/topic' with its name.")
    return found
