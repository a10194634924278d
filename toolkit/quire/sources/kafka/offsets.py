"""Reads exact ranges of offsets into Arrow batches, each offset once, of several partitions at the same time.

A range has ended when a record at or behind its end has come, or the partition's end event at or behind it; nothing else ends it but an
error. So what no reader sees (markers of transactions, aborted records, what compaction took away) is passed over, and nothing is passed
over that is only slow. A range that begins below what retention has left is a loss, and never a gap.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from quire.errors import DataLossError, TransientError
from quire.formats.parquet import RECORDS
from quire.sources.ahead import ahead
from quire.sources.kafka.client import Cluster
from quire.sources.kafka.records import OUT_OF_RANGE
from quire.sources.kafka.topics import Key

CHUNK = 8 << 20  # bytes of keys, values and headers in a batch
ROWS = 50_000  # records in one
AT_ONCE = 32  # partitions that are read at the same time
MANY = 10_000  # records that are asked for at once
HOLE = 20_000  # offsets between two spans of a partition that are rather passed over than asked for anew
WAIT = 0.1  # seconds for the next record
PATIENCE = 90.0  # seconds in which nothing at all comes, until the attempt is given up
_HEADERS = RECORDS.field("headers").type
FIRST_TIME, LAST_TIME = -62_135_596_800_000, 253_402_300_799_999  # of the years 1 to 9999, in milliseconds since 1970
UNREADABLE = ((None, None),)  # headers that the client cannot give: one without a name, which no other record has


class Span(NamedTuple):
    """Offsets of a partition, [start, end)."""

    key: Key
    start: int
    end: int


class Fetched(NamedTuple):
    """The result of a span (its number in the caller's list): the records in [start, end), or the loss of that range."""

    span: int
    start: int
    end: int
    records: pa.RecordBatch | None
    lost: bool = False


def read(cluster: Cluster, spans: Sequence[Span], *, record_loss: bool = False) -> Generator[Fetched, None, None]:
    """All of the spans, each in its order, without a gap: every offset of a span is in one answer.

    It reads on, in a thread of its own, while the caller works with what it has.

    Raises DataLossError where retention has removed a part (with `record_loss` that is an answer), NotFoundError where the topic is gone,
    TransientError where nothing comes any more.
    """

    def reading(stopped: Callable[[], bool]) -> Generator[Fetched, None, None]:
        for window in itertools.takewhile(lambda _: not stopped(), _windows(spans)):
            yield from _Reading(cluster, window, record_loss, stopped=stopped).run()

    return ahead(reading)


def sample(cluster: Cluster, spans: Sequence[Span], size: int, seconds: float = 2.0) -> tuple[pa.Table, int]:
    """The first records of the spans, about `size` bytes of them or what comes in time, and how many offsets they take up."""
    batches, offsets, until = list[pa.RecordBatch](), 0, time.monotonic() + seconds
    for window in _windows(spans):
        reading = _Reading(cluster, window, record_loss=True, chunk=max(1, size // AT_ONCE), stopped=lambda: time.monotonic() > until)
        for fetched in reading.run():
            if fetched.records is not None:
                batches.append(fetched.records)
                offsets += fetched.end - fetched.start
                size -= fetched.records.nbytes
            if size <= 0:
                break
        if size <= 0 or time.monotonic() > until:
            break
    cluster.consumer.unassign()
    return pa.Table.from_batches(batches, RECORDS), offsets


@dataclass
class _Chain:
    """Spans of one partition that are read one after the other, as far as that has come."""

    key: Key
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # (number, start, end)
    at: int = 0  # what is not given yet begins here
    next: int = 0  # no offset below is taken
    held: int = 0  # bytes of these keys, values and headers
    rows: int = 0
    parts: list[tuple[Any, ...]] = field(default_factory=list)  # as `_columns` makes them

    @property
    def end(self) -> int:
        return self.spans[-1][2]


def _windows(spans: Sequence[Span]) -> Iterator[list[_Chain]]:
    """Chains that are read at the same time: of one topic, and no two of one partition."""
    chains = list[_Chain]()
    for number, span in sorted(enumerate(spans), key=lambda item: item[1]):
        if span.start == span.end:
            continue  # nothing to read, and offsets that retention removes behind it do not belong to it
        if not chains or chains[-1].key != span.key or span.start - chains[-1].end > HOLE:
            chains.append(_Chain(span.key, [], span.start, span.start))
        chains[-1].spans.append((number, span.start, span.end))
    while chains:
        window, rest = list[_Chain](), list[_Chain]()
        for chain in chains:
            fits = len(window) < AT_ONCE and chain.key.topic == chains[0].key.topic and (not window or window[-1].key != chain.key)
            (window if fits else rest).append(chain)
        yield window
        chains = rest


class _Reading:
    """A window while it is read."""

    def __init__(
        self, cluster: Cluster, window: list[_Chain], record_loss: bool, chunk: int = CHUNK, stopped: Callable[[], bool] = lambda: False
    ) -> None:  # fmt: skip
        self.cluster, self.kafka, self.consumer = cluster, cluster.kafka, cluster.consumer
        self.open = {chain.key.partition: chain for chain in window}
        self.topic, self.record_loss, self.chunk, self.stopped = window[0].key.topic, record_loss, chunk, stopped
        self.moved = False  # whether something came that brings the reading on

    def run(self) -> Iterator[Fetched]:
        self._assign()
        quiet, come = time.monotonic(), self._come()
        try:
            while self.open:
                first, self.moved = self.consumer.poll(WAIT), False
                if self.stopped():
                    return
                if first is not None:
                    # What is there already, without waiting for more.
                    yield from self._take([first, *self.consumer.consume(MANY, 0)])
                # Aborted records arrive, too, and for a long time if there are many; they are neither records nor events.
                if self.moved or self._come() > come:
                    quiet, come = time.monotonic(), self._come()
                elif time.monotonic() - quiet > PATIENCE:
                    raise self._silence()
        finally:
            self.consumer.unassign()

    def _come(self) -> int:
        return self.cluster.fetched(self.topic, self.open)

    def _assign(self) -> None:
        """Read on where each chain is; what has been fetched for other places is not given any more."""
        at = self.kafka.TopicPartition
        self.cluster.meet(self.topic)
        self.consumer.assign([at(self.topic, number, chain.next) for number, chain in self.open.items()])

    def _take(self, messages: list[Any]) -> Iterator[Fetched]:
        """Records in runs of one partition, and events between them."""
        errors = [i for i, error in enumerate(map(self.kafka.Message.error, messages)) if error is not None]
        at = 0
        for i in errors:
            yield from self._runs(messages[at:i])
            if (yield from self._event(messages[i])):
                return  # assigned anew: what else came is of before
            at = i + 1
        yield from self._runs(messages[at:] if errors else messages)

    def _runs(self, messages: list[Any]) -> Iterator[Fetched]:
        if {*map(self.kafka.Message.topic, messages)} != {self.topic}:
            messages = [m for m in messages if m.topic() == self.topic]
        numbers = np.fromiter(map(self.kafka.Message.partition, messages), np.int32, len(messages))
        bounds = np.flatnonzero(np.diff(numbers, prepend=-1, append=-1)).tolist()
        for low, high in itertools.pairwise(bounds):
            chain = self.open.get(int(numbers[low]))
            if chain is not None:
                yield from self._records(chain, messages[low:high])

    def _records(self, chain: _Chain, messages: list[Any]) -> Iterator[Fetched]:
        offsets, self.moved = np.fromiter(map(self.kafka.Message.offset, messages), np.int64, len(messages)), True
        low, high = (int(i) for i in np.searchsorted(offsets, [chain.next, chain.end]))
        for at in range(low, high, ROWS):
            end = min(high, at + ROWS)
            part = _columns(self.kafka.Message, messages[at:end], offsets[at:end])
            chain.parts.append(part)
            chain.held, chain.rows = chain.held + part[0].nbytes + part[1].nbytes + _size(part[2]), chain.rows + end - at
            chain.next = int(offsets[end - 1]) + 1
            if chain.held >= self.chunk or chain.rows >= ROWS:
                yield from self._given(chain, chain.next)
        if high < len(offsets) or chain.next == chain.end:
            yield from self._ended(chain)

    def _ended(self, chain: _Chain) -> Iterator[Fetched]:
        self.moved = True
        del self.open[chain.key.partition]
        if self.open:
            self.consumer.incremental_unassign([self.kafka.TopicPartition(*chain.key)])  # nobody needs what comes behind
        yield from self._given(chain, chain.end)

    def _given(self, chain: _Chain, until: int) -> Iterator[Fetched]:
        """The held records of a chain, up to an offset: an answer for each of its spans."""
        records, offsets = _batch(chain) if chain.parts else (None, np.zeros(0, np.int64))
        for number, start, end in chain.spans:
            first, last = max(start, chain.at), min(end, until)
            if first < last:
                i, j = (int(i) for i in np.searchsorted(offsets, [first, last]))
                yield Fetched(number, first, last, records.slice(i, j - i) if records is not None and i < j else None)
        chain.at = max(chain.at, until)
        chain.parts, chain.held, chain.rows = [], 0, 0

    def _event(self, message: Any) -> Generator[Fetched, None, bool]:
        """Handle an event that is not a record; whether the partitions were assigned anew."""
        error, kinds = message.error(), self.kafka.KafkaError
        chain = self.open.get(message.partition()) if message.topic() == self.topic else None
        if error.code() == kinds._PARTITION_EOF:
            if chain is not None and message.offset() >= chain.end:
                yield from self._ended(chain)
            return False
        if error.code() == kinds._AUTO_OFFSET_RESET:
            if chain is not None:
                yield from self._lost(chain)
            return chain is not None
        failed = self.cluster.failed(error, f"cannot read topic {self.topic}")
        if not isinstance(failed, TransientError) or error.code() == kinds._LOG_TRUNCATION:
            raise failed  # of what was lost behind a leader's back something may have been read: it is all read anew
        return False  # the client goes on by itself

    def _lost(self, chain: _Chain) -> Iterator[Fetched]:
        """Retention was quicker."""
        low = self.cluster.starts([chain.key])[chain.key]
        if low <= chain.next and (end := self.cluster.ends([chain.key])[chain.key]) < chain.next:
            raise TransientError(
                f"topic {self.topic} partition {chain.key.partition} ends at {end:,}, and was to be read from {chain.next:,} on: it was "
                f"made again, or its brokers have lost records"
            )
        if low > chain.next:
            self.moved = True
            yield from self._given(chain, chain.next)
            low = min(low, chain.end)
            if not self.record_loss:
                raise DataLossError(lost_words({chain.key: low - chain.next}))
            for number, start, end in chain.spans:
                if max(start, chain.at) < min(end, low):
                    yield Fetched(number, max(start, chain.at), min(end, low), None, lost=True)
            chain.at = chain.next = low
            if low == chain.end:
                del self.open[chain.key.partition]
        if self.open:
            self._assign()

    def _silence(self) -> TransientError:
        left = ", ".join(f"{chain.key.partition} from {chain.next:,} on" for chain in [*self.open.values()][:3])
        why = self.cluster.failed(self.kafka.KafkaError(self.kafka.KafkaError._TIMED_OUT), "")
        return TransientError(f"topic {self.topic}: nothing has come for {PATIENCE:.0f} s, partition {left} ({why})")


def lost_words(lost: dict[Key, int]) -> str:
    """The error for records that nobody can read any more, with their count."""
    first = next(iter(lost))
    others = f" and {len(lost) - 1:,} other{'s' if len(lost) > 2 else ''}" if len(lost) > 1 else ""
    where = f"{first.topic} partition {first.partition}{others}"
    return (
        f"{sum(lost.values()):,} offsets of {where} were removed by the topic's retention before they were read: nothing of this job is "
        f"visible. Go on without them by on_data_loss='record', which writes the loss into the ledger, and let the topic keep more."
    )


# ------------------------------------------------------------------------------------------------------------------------ batches
_KINDS = {1: "create", 2: "append"}


def _columns(message: Any, some: list[Any], offsets: np.ndarray) -> tuple[Any, ...]:
    """Keys, values, headers (None: nobody has any), offsets, kinds of times and times of some records.

    `message` is the class: its methods are mapped over the records, as a loop of Python's would take twice as long.
    """
    n, headers = len(some), _headers_of(message, some)
    times = np.fromiter(itertools.chain.from_iterable(map(message.timestamp, some)), np.int64, 2 * n)
    return (
        pa.array([*map(message.key, some)], pa.binary()), pa.array([*map(message.value, some)], pa.binary()),
        None if headers.count(None) == n else headers, offsets, times[::2], times[1::2],
    )  # fmt: skip


def _batch(held: _Chain) -> tuple[pa.RecordBatch, np.ndarray]:
    """The records that are held, as `RECORDS` has them, and their offsets."""
    keys, values, headers, *numbers = zip(*held.parts, strict=True)
    offsets, kinds, moments = map(np.concatenate, numbers)
    # A producer may say any number: one outside of the years 1 to 9999 would become another time, or one that nobody can read.
    wrong = (kinds != 0) & ((moments < FIRST_TIME) | (moments > LAST_TIME))
    n, one = len(offsets), int(kinds[0]) if (kinds == kinds[0]).all() and not wrong.any() else None
    none = wrong | (kinds == 0)  # a record of an old format has no time
    stamps = pa.array(np.where(none, 0, moments) * 1000, mask=none if none.any() else None)
    columns = [
        pa.concat_arrays(keys), pa.concat_arrays(values), _headers(headers, [len(part) for part in keys]),
        pa.repeat(pa.scalar(held.key.topic), n), pa.repeat(pa.scalar(held.key.partition, pa.int32()), n), pa.array(offsets),
        stamps.cast(RECORDS.field("timestamp").type),
        pa.repeat(pa.scalar(_KINDS.get(one), pa.string()), n) if one is not None else _kinds_of(kinds, moments, wrong),
    ]  # fmt: skip
    return pa.record_batch(columns, schema=RECORDS), offsets


def _kinds_of(kinds: np.ndarray, moments: np.ndarray, wrong: np.ndarray) -> pa.Array:
    """Each record's time; for a time out of range, the producer's number."""
    each = zip(kinds.tolist(), moments.tolist(), wrong.tolist(), strict=True)
    return pa.array([f"{OUT_OF_RANGE}{moment}" if out else _KINDS.get(kind) for kind, moment, out in each], pa.string())


def _headers_of(message: Any, some: Iterable[Any]) -> list[Any]:
    """The headers of each record; for a header whose name is not UTF-8, `UNREADABLE`: the client cannot give them.

    Its answer is then no whole object and an error at once. So it is asked once, and by `map`, which looks for the error: the interpreter's
    own calls may take such an answer, and end the process.
    """
    found, asked = list[Any](), iter(some)
    while True:
        try:
            found.extend(map(message.headers, asked))
        except (SystemError, UnicodeDecodeError):
            found.append(UNREADABLE)
        else:
            return found


def _size(headers: list[Any] | None) -> int:
    """Bytes of the headers of some records."""
    return sum(len(name or "") + len(value or b"") for one in headers or () for name, value in one or ())


def _headers(parts: Sequence[list[Any] | None], lengths: Sequence[int]) -> pa.Array:
    if not any(parts):
        return pa.nulls(sum(lengths), _HEADERS)
    found = itertools.chain.from_iterable(part or [None] * n for part, n in zip(parts, lengths, strict=True))
    return pa.array([[{"key": k, "value": v} for k, v in one] if one else None for one in found], _HEADERS)
