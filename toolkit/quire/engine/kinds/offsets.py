"""Ranges of offsets of Kafka's partitions.

A batch of records is written at once and has a row of its own, so a range becomes several rows that follow one another. Records that are
quarantined cut it, as they cut splits of files (see `reading`). Where records of a batch lie in several files, as they have several dates,
the first file's row has the range, and each other one has an empty range where that begins: so every offset is counted once, and every
file has a row that says where its records are. They leave the ledger together (see `ledger.forget`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple

from quire.commit.entries import Deferred
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.coverage.live import totals
from quire.coverage.ranges import LOST
from quire.engine.attempt import Again, Attempt
from quire.engine.kinds import Calling, nothing_useful
from quire.engine.kinds.distinct import Kept
from quire.engine.kinds.reading import cut
from quire.engine.rows import LedgerRow, Record
from quire.errors import FormatError, RefusedError, TransientError, UsageError
from quire.formats.folders import FolderWriter
from quire.planning.listing import Listed, TaskRun
from quire.planning.pack import read_rows
from quire.planning.plan import Look, list_offsets
from quire.sources.kafka import offsets
from quire.sources.kafka.client import Cluster, cluster_of
from quire.sources.kafka.deduplicate import check_column
from quire.sources.kafka.offsets import Fetched
from quire.sources.kafka.records import FolderOutput, Growing, Loading, QuarantinedMessage, check_by
from quire.sources.kafka.topics import Key, Topics, is_kafka, key_of, named
from quire.storage import Vanished

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ["path", "version", "start", "length", "replaces", "follows"]
_STATES = ("mark", LOST)
_GONE = " (gone at its source since then)"
_WHY = {LOST: "removed by the topic's retention before it was read", "mark": None}


class _Planned(NamedTuple):
    """A row of the plan."""

    path: str
    version: str
    key: Key
    start: int
    end: int
    before: tuple[str, int, int] | None  # what lies before it, and is written with it: a state, and a range
    replaces: str | None  # what of the quarantine gives way to it


class OffsetsKind:
    """Reads ranges of offsets, and writes the records in them."""

    name, phase, noun = "offsets", "gathering", "topics"

    def plan(self, look: Look) -> tuple[Listed, float]:
        """Ask for the offsets that are not done."""
        return list_offsets(look)

    def owns(self, path: str) -> bool:
        """Whether a path of the ledger is a partition's."""
        return is_kafka(path)

    def split(self, path: str, start: int) -> str:
        """A record is named by its offset."""
        return f"{path} offset {start:,}"

    def taken(self, files: int, records: int) -> str:
        """How much a call has taken."""
        return f"{records:,} records were loaded"

    def report(self, roots: Sequence[Topics], call: Calling, log: Log) -> dict[str, str]:
        """Where records come from, and whether all of them are quarantined."""
        if call.jobs:
            failure = nothing_useful(call, 0, call.stats.quarantined)
        else:  # only the ledger tells what became of what is there
            found = totals(log, fold(log))
            failure = "nothing is new, and all that was read before is quarantined" if found.quarantined and not found.data_files else ""
        return {"source": ", ".join(topics.shown for topics in roots), "failure": failure}

    def attempt(self, attempt: Attempt, source: Topics, runs: list[TaskRun]) -> None:
        """Read what a task has of one cluster."""
        job, loading = attempt.work.head.job, attempt.work.convert.loading
        if loading is None or not isinstance(source, Topics):
            raise FormatError(f"the plan of job {job} names Kafka's partitions, and it reads files: it is damaged. Give the job up.")
        planned = _planned(attempt, source, runs)
        _Loader(attempt, loading, cluster_of(source.servers, source.options)).load(planned)


class _Loader:
    def __init__(self, attempt: Attempt, loading: Loading, cluster: Cluster) -> None:
        self.attempt, self.cluster = attempt, cluster
        self.kept = None if loading.window is None else Kept(attempt, loading.window)
        by_rows = self.kept.rows if self.kept is not None and self._by_column(loading) else None
        self.loading = dataclasses.replace(loading, growing=Growing(), distinct=by_rows)
        self.tally, self.rows, self.quarantined = attempt.tally, attempt.rows, attempt.quarantined
        self.fruitful = set[int]()  # ranges of which a record was taken

    @staticmethod
    def _by_column(loading: Loading) -> bool:
        return loading.deduplicate is not None and bool(loading.deduplicate.column)

    def load(self, planned: list[_Planned]) -> None:
        planned = self._same(planned)
        for one in planned:
            if one.replaces:
                out = self.attempt.replace((one.path, one.start), one.replaces)
                self.tally.bytes_out += sum(n for uncover in out for _, n in uncover.ranges)  # an offset counts once, in quarantine or not
            if one.before is not None:
                state, start, end = one.before
                self.rows.bare.append(LedgerRow(one.path, one.version, start, end - start, state, _WHY[state]))
                if state == LOST:
                    self._count(end - start, lost=True)
        spans, stayed = [offsets.Span(one.key, one.start, one.end) for one in planned], self.tally.quarantined_files
        passed = self.loading.record_loss or any(one.replaces for one in planned)
        with closing(offsets.read(self.cluster, spans, record_loss=passed)) as found:
            for fetched in found:
                one = planned[fetched.span]
                if one.replaces and fetched.records is None:
                    self._stays(one)
                else:
                    self._fetched(one, fetched)
                self.rows.flush()
        self.tally.gathered += len(planned)
        self.tally.vain += len(planned) - len(self.fruitful) - (self.tally.quarantined_files - stayed)
        if len(self._same(planned)) < len(planned):
            topic = self.attempt.left[-1].path.split("/")[-2]
            raise Again(topic, Vanished("deleted or made again while it was read"))
        if self.kept is not None:
            self.attempt.keys = self.kept.finish()

    def _same(self, planned: list[_Planned]) -> list[_Planned]:
        """Those whose topic is still the one that was planned; the others are deferred."""
        memo = self.attempt.memo
        known = {one.key.topic: one.version for one in planned if one.version != named(one.key.topic)}
        now = self.cluster.versions(known) if known else {}
        for topic, version in known.items():
            if now.get(topic) == named(topic):
                raise TransientError(f"no broker of {self.cluster.servers} tells the id of topic {topic}, by which it was planned")
            if now.get(topic) != version:
                memo.setdefault(topic, Vanished("made again" if topic in now else "gone"))
        self.attempt.left += [Deferred(one.path, f"its topic is {memo[one.key.topic]}") for one in planned if one.key.topic in memo]
        return [one for one in planned if one.key.topic not in memo]

    def _count(self, offsets: int, *, lost: bool = False) -> None:
        self.tally.bytes_in += offsets
        self.tally.lost += offsets if lost else 0

    # ----------------------------------------------------------------------------------------------------------- what has come
    def _fetched(self, one: _Planned, found: Fetched) -> None:
        """Write a batch, and its rows."""
        key, length = (one.path, one.version), found.end - found.start
        self._count(length, lost=found.lost)
        if found.lost:
            self.rows.bare.append(LedgerRow(*key, found.start, length, LOST, _WHY[LOST]))
            return
        parts, quarantined = list[FolderOutput](), list[QuarantinedMessage]()
        if found.records is not None:
            self._fix_columns(found.records)
            parts, quarantined = self._made(key, found.records)
            if differs := self.loading.growing.differs:
                self.quarantined.differs = f"{one.path}: {differs}"
            if len(quarantined) < found.records.num_rows:
                self.fruitful.add(found.span)
        done, _ = cut(found.start, length, [(offset, 1) for offset in sorted(record.offset for record in quarantined)])
        for record in quarantined:
            self._quarantine(one, record)
        if one.replaces and not done:
            self._again()
        rows, writer = [LedgerRow(*key, *span) for span in done], self.attempt.output.writer
        if not parts:
            self.rows.add(rows, None)
        for i, part in enumerate(parts):
            writer.add(part.made, *[part.folder] if isinstance(writer, FolderWriter) else [])
            self.rows.add(rows if i == 0 else [rows[0]._replace(length=0)], Record.of(part.made))

    def _made(self, key: tuple[str, str], records: pa.RecordBatch) -> tuple[list[FolderOutput], list[QuarantinedMessage]]:
        if self.kept is None:
            return self.loading.made(records)
        self.kept.of(*key)
        return self.kept.made(self.loading, records) if self.loading.distinct is None else self.loading.made(records)

    def _stays(self, one: _Planned) -> None:
        """Leave a record in quarantine that has gone at its source since: only there its value still is."""
        old = self.quarantined.earlier(one.path, one.version, one.start)
        error, content, message = (old["error"], old["content"], old["message"]) if old else ("", None, None)
        self._quarantine(one, QuarantinedMessage(one.start, content, error if error.endswith(_GONE) else error + _GONE, message))
        self._count(one.end - one.start)
        self._again()

    def _quarantine(self, one: _Planned, record: QuarantinedMessage) -> None:
        tries = self.quarantined.tries((one.path, one.start))
        row = LedgerRow(one.path, one.version, record.offset, 1, "quarantined", record.reason, tries, None, 1)
        self.quarantined.record(row, record.value, len(record.value or b""), record.message)

    def _again(self) -> None:
        self.quarantined.again()
        self.tally.gathered -= 1  # as each range is counted at the end

    def _fix_columns(self, some: pa.RecordBatch) -> None:
        """Take the columns of the first records, where nobody could tell before what a function gives: one file has one schema."""
        loading = self.loading
        if loading.function is not None and loading.schema is None and (columns := loading.columns(some)) is not None:
            try:
                check_by(loading.by, columns)
                if loading.deduplicate is not None:
                    check_column(loading.deduplicate.column, columns)
            except UsageError as e:
                raise RefusedError(f"{e} Or let the function give it.") from None
            self.loading = dataclasses.replace(loading, schema=columns)


def _planned(attempt: Attempt, source: Topics, runs: list[TaskRun]) -> list[_Planned]:
    """The rows of the plan; FormatError for what no planner of ours has written."""
    found = list[_Planned]()
    for table in read_rows(attempt.store, runs, _COLUMNS):
        for path, version, start, length, replaces, follows in zip(*(table.column(c).to_pylist() for c in _COLUMNS), strict=True):
            try:
                if not path.startswith(f"{source.url}/"):
                    raise ValueError(f"{path[:200]!r} is not in {source.url}")
                if not source.matches(key_of(path).topic):
                    raise ValueError(f"{path[:200]!r} is of no topic of {source.shown}")
                before = None if follows is None else _before(json.loads(follows))
                found.append(_Planned(path, version, key_of(path), start, start + length, before, replaces))
            except ValueError as e:
                job = attempt.work.head.job
                raise FormatError(f"the plan of job {job} is damaged ({e}): nothing was read. Look who wrote it.") from e
    return found


def _before(found: Any) -> tuple[str, int, int]:
    state, start, end = found
    if state not in _STATES or not 0 <= start <= end < 1 << 62:
        raise ValueError(f"what lies before a range is {str(found)[:100]}")
    return state, start, end
