"""How an attempt reads ranges of offsets, and what the ledger says of them then.

A batch of records is written at once and has a row of its own, so a range becomes several rows that follow one another. Records that are
set aside cut it: `done` before, between and behind them, `bad` for each; all pieces that are done stand for one output (see `splitting`).
Where records of a batch lie in several files, as they have several dates, the first file's row has the range, and each other one has an
empty range where that begins: so every offset is counted once, and every file has a row that says where its records are. They leave the
ledger together (see `upkeep.forget`).
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import xxhash

from quire.commit.entries import Left, Uncover
from quire.coverage import quarantine
from quire.coverage.ranges import LOST
from quire.errors import FormatError, RefusedError, TransientError, UsageError
from quire.formats.folders import FolderWriter
from quire.formats.parquet import checksum
from quire.planning.listing import Run
from quire.planning.pack import read_rows
from quire.sources.kafka import offsets
from quire.sources.kafka.client import Cluster, cluster_of
from quire.sources.kafka.offsets import Fetched, Span
from quire.sources.kafka.records import Loading, Part, Rejected, check_by
from quire.sources.kafka.topics import Key, Topics, key_of, named
from quire.storage import Gone, Store

if TYPE_CHECKING:
    from quire.sources.transforms.convert import Convert

__all__ = ["OfOffsets", "Remade"]

_COLUMNS = ["path", "version", "start", "length", "replaces", "follows"]
_STATES = ("mark", LOST)
_GONE = " (gone at its source since then)"
_WHY = {LOST: "removed by the topic's retention before it was read", "mark": None}


class Remade(Exception):
    """A topic was deleted or made again when a part of it was written already: the attempt starts again without it."""

    def __init__(self, topic: str, why: Gone) -> None:
        super().__init__(topic)
        self.topic, self.why = topic, why


class _Planned(NamedTuple):
    """A row of the plan."""

    path: str
    version: str
    key: Key
    start: int
    end: int
    before: tuple[str, int, int] | None  # what lies before it, and is written with it: a state, and a range
    replaces: str | None  # what of the quarantine gives way to it


class OfOffsets:
    """The part of an attempt that knows Kafka."""

    store: Store
    convert: Convert
    planned: Any
    writer: Any
    rows: list[tuple[Any, ...]]
    others: list[tuple[Any, ...]]
    left: list[Left]
    uncovers: list[Uncover]
    tries: dict[tuple[str, str], int]
    tried: dict[tuple[str, int], int]
    rejects: quarantine.Shelf
    quarantine: quarantine.QuarantineWriter
    remade: dict[str, Gone]  # topics that are left out
    gathered: int
    bad: int
    rejected: int
    vain: int
    fruitful: set[int]  # spans of the load under way of which a record was taken
    bytes_in: int
    bytes_replaced: int
    lost_offsets: int

    def _flush(self, last: bool = False) -> None:
        raise NotImplementedError

    def _rides(self, path: str, version: str, start: int, riders: list[dict[str, Any]]) -> None:
        raise NotImplementedError

    def _replace(self, uncovers: list[Uncover], sign: int) -> None:
        raise NotImplementedError

    def _load(self, source: Topics, runs: list[Run], job: str) -> None:
        """Read the ranges of one cluster."""
        cluster = cluster_of(source.servers, source.options)
        planned = self._same(cluster, self._ranges(source, runs, job))
        for one in planned:
            if one.replaces:
                self._replaces(one)
            if one.before is not None:
                state, start, end = one.before
                self.others.append((one.path, one.version, start, end - start, state, _WHY[state], None, None, 0))
                if state == LOST:
                    self.bytes_in, self.lost_offsets = self.bytes_in + end - start, self.lost_offsets + end - start
        spans = [Span(one.key, one.start, one.end) for one in planned]
        self.fruitful, stayed = set(), self.bad
        passed = self._loading.record_loss or any(one.replaces for one in planned)
        with closing(offsets.read(cluster, spans, record_loss=passed)) as found:
            for fetched in found:
                if planned[fetched.span].replaces and fetched.records is None:
                    self._stays(planned[fetched.span])
                else:
                    self._fetched(planned[fetched.span], fetched)
                self._flush()
        self.gathered += len(planned)
        self.vain += len(planned) - len(self.fruitful) - (self.bad - stayed)
        if len(self._same(cluster, planned)) < len(planned):
            topic = self.left[-1].path.split("/")[-2]
            raise Remade(topic, Gone("deleted or made again while it was read"))

    @property
    def _loading(self) -> Loading:
        if self.convert.loading is None:
            raise FormatError("the plan names Kafka's partitions, and its job reads files: it is damaged. Give the job up.")
        return self.convert.loading

    def _ranges(self, source: Topics, runs: list[Run], job: str) -> list[_Planned]:
        """The rows of the plan; FormatError for what no planner of ours has written."""
        found = list[_Planned]()
        for table in read_rows(self.store, runs, _COLUMNS):
            for path, version, start, length, replaces, follows in zip(*(table.column(c).to_pylist() for c in _COLUMNS), strict=True):
                try:
                    if not path.startswith(f"{source.url}/"):
                        raise ValueError(f"{path[:200]!r} is not in {source.url}")
                    if not source.matches(key_of(path).topic):
                        raise ValueError(f"{path[:200]!r} is of no topic of {source.shown}")
                    before = None if follows is None else _before(json.loads(follows))
                    found.append(_Planned(path, version, key_of(path), start, start + length, before, replaces))
                except ValueError as e:
                    raise FormatError(f"the plan of job {job} is damaged ({e}): nothing was read. Look who wrote it.") from e
        return found

    def _replaces(self, one: _Planned) -> None:
        """What of the quarantine gives way to a range that is read again."""
        given = json.loads(one.replaces or "[]")
        out = [Uncover(one.path, version, tuple((s, n) for s, n in ranges)) for version, ranges, *_ in given]
        self.tries |= {(one.path, each[0]): each[2] for each in given}
        self.tried[one.path, one.start] = max(0, *(each[2] for each in given))
        self.uncovers += out
        self._replace(out, 1)
        self.bytes_replaced += sum(n for uncover in out for _, n in uncover.ranges)  # an offset counts once, in quarantine or not

    def _stays(self, one: _Planned) -> None:
        """What is in quarantine, and gone at its source since then: there its value is still, and so it is left there."""
        ((_, _, _, name),) = json.loads(one.replaces or "[]")
        old = self.rejects.one(name, one.path, one.version, one.start)
        error, content, message = (old["error"], old["content"], old["message"]) if old else ("", None, None)
        self._set_record_aside(one, Rejected(one.start, content, error if error.endswith(_GONE) else error + _GONE, message))
        self.bytes_in += one.end - one.start
        self.gathered, self.bad, self.rejected = self.gathered - 1, self.bad + 1, self.rejected - 1

    def _same(self, cluster: Cluster, planned: list[_Planned]) -> list[_Planned]:
        """Those whose topic is still the one that was planned; the others are left out."""
        known = {one.key.topic: one.version for one in planned if one.version != named(one.key.topic)}
        now = cluster.versions(known) if known else {}
        for topic, version in known.items():
            if now.get(topic) == named(topic):
                raise TransientError(f"no broker of {cluster.servers} tells the id of topic {topic}, by which it was planned")
            if now.get(topic) != version:
                self.remade.setdefault(topic, Gone("made again" if topic in now else "gone"))
        for one in planned:
            if one.key.topic in self.remade:
                self.left.append(Left(one.path, f"its topic is {self.remade[one.key.topic]}"))
        return [one for one in planned if one.key.topic not in self.remade]

    # ----------------------------------------------------------------------------------------------------------- what has come
    def _fetched(self, one: _Planned, found: Fetched) -> None:
        """Write a batch, and its rows."""
        key, length = (one.path, one.version), found.end - found.start
        self.bytes_in += length
        if found.lost:
            self.lost_offsets += length
            self.others.append((*key, found.start, length, LOST, _WHY[LOST], None, None, 0))
            return
        parts, rejected = list[Part](), list[Rejected]()
        if found.records is not None:
            self._fix_columns(found.records)
            parts, rejected = self._loading.made(found.records)
            if len(rejected) < found.records.num_rows:
                self.fruitful.add(found.span)
        done = _between(found.start, found.end, sorted(record.offset for record in rejected))
        for record in rejected:
            self._set_record_aside(one, record)
        if one.replaces and not done:  # a record that is set aside once more: it counts as the split that it is
            self.gathered, self.bad, self.rejected = self.gathered - 1, self.bad + 1, self.rejected - 1
        if not parts:
            self.others += [(*key, *span, "done", None, None, None, 0) for span in done]
            return
        for i, part in enumerate(parts):
            self._put(part, (*key, done[0][0], done[0][1] if i == 0 else 0))
        if len(done) > 1:
            self._rides(*key, done[0][0], [{"start": s, "length": n, "fingerprint": None} for s, n in done[1:]])

    def _fix_columns(self, some: pa.RecordBatch) -> None:
        """Take the columns of the first records, where nobody could tell before what a function gives: one file has one schema."""
        loading = self._loading
        if loading.function is not None and loading.schema is None and (columns := loading.columns(some)) is not None:
            try:
                check_by(loading.by, columns)
            except UsageError as e:
                raise RefusedError(f"{e} Or let the function give it.") from None
            self.convert = dataclasses.replace(self.convert, loading=dataclasses.replace(loading, schema=columns))

    def _put(self, part: Part, key: tuple[Any, ...]) -> None:
        made = part.made
        if isinstance(self.writer, FolderWriter):
            self.writer.add(made, part.folder)
        else:
            self.writer.add(made)
        if isinstance(made, pa.RecordBatch):
            self.rows.append((*key, made.nbytes, made.num_rows, checksum(made), None))
        else:
            self.rows.append((*key, len(made), made.count(b"\n"), xxhash.xxh3_64_intdigest(made), None))

    def _set_record_aside(self, one: _Planned, record: Rejected) -> None:
        tries = self.tried.get((one.path, one.start), 0) + 1
        self.others.append((one.path, one.version, record.offset, 1, "bad", record.reason, tries, None, 1))
        length = len(record.value or b"")
        self.quarantine.add(one.path, one.version, record.offset, record.value, length, record.reason, record.message, tries)
        self.rejected += 1


def _before(found: Any) -> tuple[str, int, int]:
    state, start, end = found
    if state not in _STATES or not 0 <= start <= end < 1 << 62:
        raise ValueError(f"what lies before a range is {str(found)[:100]}")
    return state, start, end


def _between(start: int, end: int, aside: list[int]) -> list[tuple[int, int]]:
    """The ranges (start, length) of [start, end) that lie before, between and behind single offsets."""
    found, at = list[tuple[int, int]](), start
    for offset in aside:
        found += [(at, offset - at)] if at < offset else []
        at = offset + 1
    return [*found, (at, end - at)] if at < end else found
