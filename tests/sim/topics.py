"""Topics in memory, as Kafka's client shows them, so that thousands of crashes and interleavings of loaders run in seconds.

Who asks for `SERVERS` within a `World` gets them; every other address leads to the real client. What they answer is what
`tests/services/test_kafka*.py` see of real brokers: the stable end, aborted transactions and their markers, gaps that compaction left,
the loss of what retention removed, another id of a topic that was made again. Every request is an operation of whoever acts, so a process
may die at it, and another may go on before it is answered.
"""

from __future__ import annotations

import operator
import types
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import confluent_kafka as real
import confluent_kafka.admin
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from quire import storage

SERVERS = "memory:9092"
CLUSTER = "cluster-in-memory"
FETCHED = 5  # records that a request brings
PATIENCE = 1_000  # requests in a row that bring nothing
RECORD, ABORTED, MARKER, OPEN = "record", "aborted", "marker", "open"


WITHIN = 3_000_000  # milliseconds in which a record of the same key is left out, where that is asked for


def moment(offset: int) -> int:
    """The time of a record, in milliseconds since 1970."""
    return 1_000_000 * offset


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int


class Entry(NamedTuple):
    """What an offset holds."""

    kind: str
    key: bytes | None = None
    value: bytes | None = None


@dataclass
class Partition:
    log: dict[int, Entry] = field(default_factory=dict)
    low: int = 0
    high: int = 0

    @property
    def stable(self) -> int:
        """The first offset of an open transaction, or the end."""
        return min((at for at, entry in self.log.items() if entry.kind == OPEN), default=self.high)

    def add(self, kind: str, key: bytes | None = None, value: bytes | None = None) -> None:
        self.log[self.high] = Entry(kind, key, value)
        self.high += 1

    def end(self, commit: bool) -> None:
        """Of the open transaction, with its marker."""
        for at, entry in self.log.items():
            if entry.kind == OPEN:
                self.log[at] = entry._replace(kind=RECORD if commit else ABORTED)
        self.add(MARKER)


class Topics:
    """A cluster, and what was ever true of it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """As if nothing had ever been there."""
        self.topics = dict[str, list[Partition]]()
        self.ids = dict[str, str]()
        self.ever = dict[Place, Entry]()  # what readers of committed records may have seen
        self.removed = set[Place]()  # by retention, read or not
        self.compacted = set[Place]()
        self.failing = deque[int]()  # errors with which the next requests for offsets are answered
        self.events = dict[tuple[str, int], deque[int]]()  # and what reading a partition says instead of its next record
        self.age = self.written = 0

    # ------------------------------------------------------------------------------------------------- what happens to them
    def create(self, topic: str, partitions: int = 1) -> None:
        """A new one, or one of the same name again."""
        self.topics[topic] = [Partition() for _ in range(partitions)]
        self.ids[topic] = f"{topic}-{len(self.ids)}-{self.ids.get(topic, '')}"

    def grow(self, topic: str) -> None:
        self.topics[topic].append(Partition())

    def produce(self, topic: str, partition: int, *values: bytes) -> None:
        for value in values:
            self._at(topic, partition).add(RECORD, b"k%d" % (len(value) % 3), value)
        self._note()

    def transaction(self, topic: str, partition: int, *values: bytes, commit: bool | None = True) -> None:
        """Committed, aborted, or (None) still open: then the next one on this partition ends it as well."""
        for value in values:
            self._at(topic, partition).add(OPEN, None, value)
        if commit is not None:
            self._at(topic, partition).end(commit)
        self._note()

    def end(self, topic: str, partition: int, commit: bool) -> None:
        """Of an open transaction, if there is one."""
        if self._at(topic, partition).stable < self._at(topic, partition).high:
            self._at(topic, partition).end(commit)
            self._note()

    def compact(self, topic: str, partition: int, offset: int) -> None:
        """It takes away one record, if that is one and not the last."""
        found = self._at(topic, partition)
        if found.log.get(offset, Entry(OPEN)).kind == RECORD and offset < found.stable - 1:
            del found.log[offset]
            self.compacted.add(Place(topic, partition, offset))

    def retain(self, topic: str, partition: int, start: int) -> None:
        """Retention removes what lies below, as far as that is stable."""
        found = self._at(topic, partition)
        start = min(start, found.stable)
        self.removed |= {Place(topic, partition, at) for at in range(found.low, start)}
        found.low = max(found.low, start)
        for at in [at for at in found.log if at < found.low]:
            del found.log[at]

    def _at(self, topic: str, partition: int) -> Partition:
        return self.topics[topic][partition]

    def _note(self) -> None:
        for topic, partitions in self.topics.items():
            for number, partition in enumerate(partitions):
                stable = partition.stable
                self.ever |= {Place(topic, number, at): e for at, e in partition.log.items() if e.kind == RECORD and at < stable}


TOPICS = Topics()


# --------------------------------------------------------------------------------------------------------------- what must hold
def check(
    there: Mapping[str, bytes], live: Iterable[str], rows: Mapping[str, list[dict[str, Any]]], rows_of: Any, whole: bool,
    within: int | None = None,
) -> None:  # fmt: skip
    """Each offset is covered once; what readers may see of it lies in the files once, or is quarantined, or was removed before it was read.

    `whole`: nothing that is stable by now is left. `within`: of records of one key that are so near one another in time one is there, and
    stands for those that are not.
    """
    found = Counter((Place(r["topic"], r["partition"], r["offset"]), r["key"], r["value"]) for name in live for r in rows_of(there[name]))
    done = set[Place]()
    for path, mine in rows.items():
        scheme, _, cluster, topic, number = path.split("/")
        assert (scheme, cluster) == ("kafka:", CLUSTER), path
        assert {row["version"] for row in mine} == {TOPICS.ids[topic]}, f"{path} is there with the offsets of another topic"
        at = 0
        # What a partition had lost before the ledger knew it is said with each of its first ranges.
        marks = {(row["start"], row["length"]): row for row in mine if row["state"] == "mark" and row["length"]}
        for row in sorted([*marks.values(), *(r for r in mine if r["state"] != "mark" and r["length"])], key=lambda row: row["start"]):
            assert row["start"] >= at, f"{path}: {row['start']} follows {at}: covered twice"
            assert row["start"] == at or not whole, f"{path}: {row['start']} follows {at}: a gap"
            at = row["start"] + row["length"]
            places = {Place(topic, int(number), offset) for offset in range(row["start"], at)}
            _check_row(row, places)
            done |= places if row["state"] == "done" else set()
        stable = TOPICS.topics[topic][int(number)].stable
        assert at <= stable, f"{path}: {at} is covered, and only {stable} is stable"
        assert at == stable or not whole, f"{path}: {at} of {stable} offsets are covered"
    if whole:
        wanted = {f"kafka://{CLUSTER}/{topic}/{i}" for topic, partitions in TOPICS.topics.items() for i in range(len(partitions))}
        assert wanted == set(rows), f"partitions that the ledger does not know: {wanted - set(rows)}"
    must = {place: entry for place, entry in TOPICS.ever.items() if place in done}
    for (place, key, value), n in found.items():
        assert n == 1, f"{place} is there {n} times"
        entry = must.pop(place, None)
        assert entry is not None, f"{place} is in the files, and the ledger does not say that it is done, or nobody may see it"
        assert (entry.key, entry.value) == (key, value), f"{place} is there with another content"
    if within is not None:
        kept = [place for place, _, _ in found]
        for i, place in enumerate(kept):
            twice = [other for other in kept[:i] if _same(place, other, within)]
            assert not twice, f"{place} and {twice} have one key"
        must = {place: entry for place, entry in must.items() if not any(_same(place, other, within) for other in kept)}
    lost = set(must) - TOPICS.compacted
    assert not lost, f"done, by the ledger, and not in the files: {sorted(lost)}"


def _same(one: Place, other: Place, within: int) -> bool:
    """Whether two records have one key, and are near enough to one another."""
    keys = TOPICS.ever[one].key, TOPICS.ever[other].key
    return keys[0] is not None and keys[0] == keys[1] and abs(moment(one.offset) - moment(other.offset)) <= within


def _check_row(row: dict[str, Any], places: set[Place]) -> None:
    if row["state"] in ("lost", "mark"):
        there = places - TOPICS.removed
        assert not there, f"{row['state']}, by the ledger, and never removed: {sorted(there)}"
    elif row["state"] == "quarantined":
        (place,) = places
        assert TOPICS.ever[place].value.startswith(b"-"), f"{place} is quarantined, and nothing is wrong with it"  # type: ignore[union-attr]
        assert row["reason"], f"{place} is quarantined without a reason"
    else:
        assert row["state"] == "done", row["state"]


# ---------------------------------------------------------------------------------------------------------------- their client
def library() -> Any:
    """In the place of the module `confluent_kafka`."""
    return _library


class _Message:
    def __init__(self, topic: str, partition: int, offset: int, entry: Entry | None, error: int | None = None) -> None:
        self._place, self._entry, self._error = (topic, partition, offset), entry, error

    def error(self) -> KafkaError | None:
        return None if self._error is None else KafkaError(self._error)

    def topic(self) -> str:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._place[2]

    def key(self) -> bytes | None:
        return self._entry and self._entry.key

    def value(self) -> bytes | None:
        return self._entry and self._entry.value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, moment(self._place[2])


class _Consumer:
    """Reads partitions in turns; at an end it says so once, and nothing more of one that it cannot read."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.committed_only = settings.get("isolation.level", "read_committed") == "read_committed"
        assert (settings["auto.offset.reset"], settings["enable.partition.eof"]) == ("error", True), settings
        self.at = dict[tuple[str, int], int]()
        self.told = dict[tuple[str, int], int]()  # the end that was told, or -1: of this one nothing more is to be said
        self.nothing = 0  # fetches in a row that brought nothing

    def assign(self, wanted: list[TopicPartition]) -> None:
        self.at = {(one.topic, one.partition): one.offset for one in wanted}
        self.told = {}

    def incremental_unassign(self, ended: list[TopicPartition]) -> None:
        for one in ended:
            del self.at[one.topic, one.partition]

    def unassign(self) -> None:
        self.at = {}

    def close(self) -> None:
        self.at = {}

    def poll(self, _: float) -> _Message | None:
        for message in self._fetched(1):
            return message
        return None

    def consume(self, most: int, _: float) -> list[_Message]:
        return self._fetched(min(most, FETCHED))

    def list_topics(self, *_: Any, **__: Any) -> Any:
        return _listed()

    def _fetched(self, most: int) -> list[_Message]:
        """Of the first partition of which there is something; it is the last one then."""
        for where in list(self.at):
            if self.told.get(where) != -1:
                _step(f"fetch {where[0]}/{where[1]}")
                found = self._of(where, self.at[where], most)
                self.at[where] = self.at.pop(where)
                if found:
                    self.nothing = 0
                    return found
        self.nothing += 1
        assert self.nothing < PATIENCE, f"who reads {self.at} waits for what never comes"
        return []

    def _of(self, where: tuple[str, int], at: int, most: int) -> list[_Message]:
        if TOPICS.events.get(where):
            code = TOPICS.events[where].popleft()
            if code == KafkaError._LOG_TRUNCATION:
                self.told[where] = -1  # as the client does: it reads no further
            return [_Message(*where, at, None, code)]
        partition = TOPICS.topics[where[0]][where[1]]
        end = partition.stable if self.committed_only else partition.high
        if not partition.low <= at <= partition.high:
            self.told[where] = -1
            return [_Message(*where, at, None, KafkaError._AUTO_OFFSET_RESET)]
        found = list[_Message]()
        seen = (RECORD,) if self.committed_only else (RECORD, ABORTED, OPEN)
        for offset in sorted(partition.log):
            entry = partition.log[offset]
            if at <= offset < end and entry.kind in seen and len(found) < most:
                found.append(_Message(*where, offset, entry))
        if found:
            self.at[where] = found[-1].offset() + 1
            return found
        if self.told.get(where) == end:
            return []
        self.at[where] = self.told[where] = end
        return [_Message(*where, end, None, KafkaError._PARTITION_EOF)]


class _Admin:
    def __init__(self, settings: dict[str, Any]) -> None:
        pass

    def poll(self, _: float) -> int:
        return 0

    def list_topics(self, timeout: float) -> Any:
        _step("topics")
        return _listed()

    def describe_topics(self, wanted: Any, request_timeout: float) -> dict[str, Future[Any]]:
        _step("ids")
        gone = KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        names: list[str] = wanted.topic_names
        return {name: _answer(types.SimpleNamespace(topic_id=TOPICS.ids[name]) if name in TOPICS.topics else gone) for name in names}

    def list_offsets(self, asked: Mapping[TopicPartition, Any], isolation_level: Any, request_timeout: float) -> dict[Any, Future[Any]]:
        _step("offsets")
        if TOPICS.failing:
            error = KafkaException(KafkaError(TOPICS.failing.popleft()))
            return {one: _answer(error) for one in asked}
        found = dict[Any, Future[Any]]()
        for one, spec in asked.items():
            partition = TOPICS.topics[one.topic][one.partition]
            end = partition.stable if isolation_level == real.IsolationLevel.READ_COMMITTED else partition.high
            first = spec is confluent_kafka.admin.OffsetSpec.earliest()
            found[one] = _answer(types.SimpleNamespace(offset=partition.low if first else end))
        return found


def _answer(what: Any) -> Future[Any]:
    future = Future[Any]()
    if isinstance(what, Exception):
        future.set_exception(what)
    else:
        future.set_result(what)
    return future


def _listed() -> Any:
    found = {name: types.SimpleNamespace(partitions=dict.fromkeys(range(len(parts))), error=None) for name, parts in TOPICS.topics.items()}
    return types.SimpleNamespace(cluster_id=CLUSTER, topics=found)


def _step(what: str) -> None:
    """A request: an operation of whoever acts, at which others may go on."""
    storage.connect("memory://brokers").stat(what)


def _either(ours: Callable[[dict[str, Any]], Any], theirs: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda settings: (ours if settings["bootstrap.servers"] == SERVERS else theirs)(settings)


_library = types.SimpleNamespace(
    **{name: getattr(real, name) for name in ("KafkaError", "KafkaException", "TopicPartition", "TopicCollection", "IsolationLevel")},
    # Its methods are mapped over messages, and here these are of two kinds.
    Message=types.SimpleNamespace(
        **{name: operator.methodcaller(name) for name in ("error", "topic", "partition", "offset", "key", "value", "headers", "timestamp")}
    ),
    Consumer=_either(_Consumer, real.Consumer),
    admin=types.SimpleNamespace(
        AdminClient=_either(_Admin, confluent_kafka.admin.AdminClient), OffsetSpec=confluent_kafka.admin.OffsetSpec
    ),
)
