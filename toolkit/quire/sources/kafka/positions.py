"""How far each partition has been loaded: what the ledger says, what brokers have beyond, and a consumer group that follows.

The committed offset of a partition is the end of its gap-free prefix: everything before has been seen to. Ranges behind a gap, which a
conflict of two loaders may have left for a moment, are loaded too, and do not count until the gap is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.coverage.ranges import LOST, Known, covered
from quire.errors import QuireError
from quire.sources.kafka.client import Cluster, cluster_of
from quire.sources.kafka.topics import SCHEME, Key, Topics, key_of
from quire.storage import Store


@dataclass(frozen=True)
class Position:
    """A partition in the ledger."""

    key: Key
    cluster: str
    version: str  # the topic's id, or its name
    offset: int  # the end of the gap-free prefix
    until: int  # the end of what is covered at all
    lost: int  # offsets that retention had removed before they were read
    quarantined: int
    records: int  # in data files
    written: int  # bytes of them, before they were compressed


def positions(
    folded: Fold, store: Store, cluster: str = "", known: Known | None = None
) -> Iterator[Position]:  # fmt: skip
    """The positions of all partitions of one cluster in the ledger, ordered by topic and number."""
    there = covered(folded, store, SCHEME + (f"{cluster}/" if cluster else ""), known)
    for path, found in sorted(there.items(), key=lambda item: (key_of(item[0]), item[0])):
        until = found.ranges[-1][1] if found.ranges else 0
        where = path.removeprefix(SCHEME).partition("/")[0]
        lost, aside = found.states.get(LOST, 0), found.states.get("quarantined", 0)
        yield Position(key_of(path), where, min(found.versions), found.end, until, lost, aside, found.records, found.written)


def reached(topics: Topics) -> tuple[Cluster, Topics, list[Key]]:
    """A cluster that answers, the topics with its id, and their partitions."""
    cluster = cluster_of(topics.servers, topics.options)
    cluster.reach()
    identity, there = cluster.topics()
    keys = [Key(name, i) for name, n in sorted(there.items()) if topics.matches(name) for i in range(n)]
    return cluster, replace(topics, url=SCHEME + identity), keys


def mirror(topics: Topics, log: Log, group: str, known: Known | None = None) -> str:
    """Let the committed offsets of a consumer group be the ledger's; what went wrong, in one line, or nothing.

    It is for people who watch the group: nothing of quire reads it, so what goes wrong is told, and raises nothing.
    """
    try:
        found = {p.key: p.offset for p in positions(fold(log, reader=True), log.store, topics.cluster, known) if p.offset}
        commit(cluster_of(topics.servers, topics.options), group, found)
    except QuireError as e:
        return f"the consumer group {group} does not follow: {e}"
    return ""


def commit(cluster: Cluster, group: str, offsets: Mapping[Key, int]) -> None:
    """Write the offsets of a group that has no members."""
    if not offsets:
        return
    kafka, consumer = cluster.kafka, cluster.group(group)
    try:
        answers = consumer.commit(offsets=[kafka.TopicPartition(*key, offset) for key, offset in offsets.items()], asynchronous=False)
        error = next((answer.error for answer in answers if answer.error is not None), None)
    except kafka.KafkaException as e:
        error = e
    finally:
        consumer.close()
    if error is not None:
        raise cluster.failed(error, f"cannot commit offsets of group {group}")


def committed(cluster: Cluster, group: str, keys: list[Key]) -> dict[Key, int]:
    """The committed offsets of a group, of the partitions that have one."""
    kafka, consumer = cluster.kafka, cluster.group(group)
    try:
        answers = consumer.committed([kafka.TopicPartition(*key) for key in keys], timeout=30)
    except kafka.KafkaException as e:
        raise cluster.failed(e, f"cannot ask for the offsets of group {group}") from None
    finally:
        consumer.close()
    return {Key(a.topic, a.partition): a.offset for a in answers if a.error is None and a.offset >= 0}
