"""Plans ranges of offsets: what no row of the ledger covers of each partition, up to its end, cut so that tasks fill data files.

The driver asks brokers for the first and the last offset of each partition, a request a broker, and holds a few numbers of each; records
are read by the tasks alone, but for a few that show how large they are.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from quire.commit import names
from quire.coverage.fold import Fold
from quire.coverage.ranges import LOST, Covered, Known, covered
from quire.errors import DataLossError, RefusedError, TransientError
from quire.planning.drops import put_table
from quire.planning.listing import CHUNK, PLAN, Cut, Listed, TaskRun, Written
from quire.sources.kafka import offsets
from quire.sources.kafka.client import Cluster, cluster_of
from quire.sources.kafka.start import Start
from quire.sources.kafka.topics import Key, Topics, named, topic_of
from quire.storage import OnRetry, Store

FEW = 2_000  # offsets in all that are not worth a look at how large records are
GUESS = 1_000  # bytes of a record that nobody has looked at
SAMPLE = 1 << 20  # bytes of records of one topic that are looked at
SAMPLED = 4  # partitions of it
FINE = 16  # ranges that fill a task
MOST = 200_000  # ranges, where partitions are cut so that each task has a piece of each


@dataclass(frozen=True)
class Measure:
    """How large the records of a topic are: bytes of keys and values an offset, and bytes written for each of these."""

    size: float = GUESS
    ratio: float = 1.0


@dataclass(frozen=True)
class Offsets:
    """The offsets to plan: the partitions of the topics, up to these ends."""

    topics: Topics
    ends: Mapping[Key, int]
    written: Callable[[pa.Table], int] = field(repr=False)  # bytes that some records become in a data file
    max_bytes: int | None = None  # of records in one job
    record_loss: bool = False
    without: frozenset[str] = frozenset()  # partitions that this call has taken up often enough
    in_step: bool = False  # a task reads all partitions side by side, since files are kept apart by what changes with time
    known: Known = field(default_factory=Known, repr=False)  # see `covered`
    start: Start = field(default_factory=Start)  # of partitions that are new to the ledger
    tasks: int | None = None  # in one job, about


@dataclass
class _Range:
    """The offsets of a partition that are to be done: `before` says what lies before it, and is written with it: a state, and a range."""

    key: Key
    start: int
    end: int
    before: tuple[str, int, int] | None = None

    @property
    def offsets(self) -> int:
        return self.end - self.start


def listed(wanted: Offsets, fold: Fold, dest: Store, cut: Cut, job: str, plan: str, on_retry: OnRetry) -> tuple[Listed, float]:
    """Find the ranges, write them to the plan, tell its runs; with bytes written for a byte read.

    Raises DataLossError for what retention has removed since it was known of, RefusedError where a topic is another one than the ledger's.
    """
    found = Listed()
    known = covered(fold, dest, f"{wanted.topics.url}/", wanted.known)
    wanted = replace(wanted, topics=as_known(wanted.topics, known))
    ranges = _ranges(wanted, known, found, on_retry)
    if not ranges:
        return found, 1.0
    measures = _measures(wanted, ranges)
    most = wanted.max_bytes
    if wanted.tasks is not None:
        most = min(most or sys.maxsize, max(1, int(wanted.tasks * cut.target / _ratio(ranges, measures))))
    ranges = _bounded(ranges, measures, most, found)
    total, ratio = sum(r.offsets * measures[r.key.topic].size for r in ranges), _ratio(ranges, measures)
    step = max(1.0, cut.target / ratio / FINE)
    rows, when = list[tuple[str, str, _Range, int]](), list[float]()
    pieces = min(FINE * math.ceil(total * ratio / cut.target), MOST // len(ranges)) if wanted.in_step else 1
    for r in ranges:
        path, version = wanted.topics.path(r.key), wanted.topics.versions[r.key.topic]
        size = measures[r.key.topic].size
        n = min(max(1, pieces, round(r.offsets * size / step)), max(1, r.offsets))
        for i in range(n):
            start, end = r.start + r.offsets * i // n, r.start + r.offsets * (i + 1) // n
            # What was there before a partition's first record goes with all of its ranges: any of them may be dropped alone.
            before = r.before if i == 0 or (r.before and r.before[0] == "mark") else None
            rows.append((path, version, _Range(r.key, start, end, before), max(1, int((end - start) * size))))
            when.append((i + 0.5) / n)
    if wanted.in_step:
        rows = [rows[i] for i in sorted(range(len(rows)), key=when.__getitem__)]
    for at in range(0, len(rows), CHUNK):
        _write(rows[at : at + CHUNK], names.plan_parquet(job, plan, f"offsets-{names.new_id()}"), step, dest, found.written)
    return found, ratio


def _ranges(wanted: Offsets, known: Mapping[str, Covered], found: Listed, on_retry: OnRetry) -> list[_Range]:
    """The offsets that no row covers, in the order of topics and partitions."""
    topics = wanted.topics
    cluster = cluster_of(topics.servers, topics.options)
    _check_ends(wanted, known, cluster, on_retry)
    starts = cluster.starts(wanted.ends, on_retry)
    begins = first_offsets(wanted.start, wanted.ends, topics, known, cluster, on_retry)
    ranges, lost = list[_Range](), dict[Key, int]()
    for key, end in sorted(wanted.ends.items()):
        path, low = topics.path(key), max(starts[key], begins.get(key, 0))
        found.files += 1
        if path in wanted.without:
            continue
        before = len(ranges)
        if path not in known:
            # From now on the ledger knows it, also an empty one: what retention removes from here on is a loss.
            mark = ("mark", 0, low) if low or low >= end else None
            ranges.append(_Range(key, low, max(low, end), mark))
        else:
            check_version(topics, key.topic, known[path].versions)
            for start, until in known[path].gaps(end):
                gone = min(low, until)
                if start < gone:
                    lost[key] = lost.get(key, 0) + gone - start
                    ranges.append(_Range(key, gone, until, (LOST, start, gone)))
                else:
                    ranges.append(_Range(key, start, until))
        found.new += len(ranges) > before
        found.done += len(ranges) == before
    if lost and not wanted.record_loss:
        raise DataLossError(offsets.lost_words(lost))
    return ranges


def first_offsets(
    start: Start, ends: Mapping[Key, int], topics: Topics, known: Mapping[str, Covered], cluster: Cluster, on_retry: OnRetry
) -> dict[Key, int]:  # fmt: skip
    """Where those partitions begin that are new to the ledger, as far as that is not their earliest record."""
    new = [key for key in ends if topics.path(key) not in known]
    return start.begins(cluster, new, ends, map(topic_of, known), on_retry) if new else {}


def _check_ends(wanted: Offsets, known: Mapping[str, Covered], cluster: Cluster, on_retry: OnRetry) -> None:
    """Refuse a partition that ends before what was loaded of it: the offsets that come now would mean other records."""
    reached = {key: known[path].ranges[-1][1] for key in wanted.ends if (path := wanted.topics.path(key)) in known and known[path].ranges}
    # Of some the end was put lower, or asked for before another loader went on.
    beyond = [key for key, until in reached.items() if until > wanted.ends[key]]
    for key, end in cluster.ends(beyond, on_retry).items():
        if end < reached[key]:
            raise RefusedError(
                f"topic {key.topic} partition {key.partition} ends at {end:,}, and was loaded up to {reached[key]:,}: it was made again, "
                f"or its brokers have lost records, and what comes now has offsets that are loaded. Load it into another destination."
            )


def as_known(topics: Topics, known: Mapping[str, Covered]) -> Topics:
    """Topics that the ledger knows by their names, as no broker has told their ids, by these, though one tells them now."""
    ids = {topic_of(path): min(found.versions) for path, found in known.items() if found.versions}
    by_name = {topic: named(topic) for topic in topics.versions if ids.get(topic) == named(topic)}
    return replace(topics, versions={**topics.versions, **by_name}) if by_name else topics


def check_version(topics: Topics, topic: str, versions: Iterable[str]) -> None:
    """Refuse a topic that is another one than that of the ledger's rows."""
    now = topics.versions[topic]
    others = [version for version in versions if version != now]
    if not others:
        return
    if now == named(topic):
        raise TransientError(
            f"the ledger knows topic {topic} by its id {others[0]}, which no broker of {topics.servers} tells now: call again"
        )
    raise RefusedError(
        f"topic {topic} is not the one that was loaded: it was deleted and made again (its id is {now}, and the ledger's {others[0]}), so "
        f"its offsets mean other records. Nothing was read. Load it into another destination."
    )


def _measures(wanted: Offsets, ranges: list[_Range]) -> dict[str, Measure]:
    """How large records are, by a look at the first ones of each topic's longest ranges, where there is so much that it matters."""
    by_topic = defaultdict[str, list[_Range]](list)
    for r in ranges:
        by_topic[r.key.topic].append(r)
    if wanted.max_bytes is None and sum(r.offsets for r in ranges) < FEW:
        return dict.fromkeys(by_topic, Measure())
    cluster, measures = cluster_of(wanted.topics.servers, wanted.topics.options), dict[str, Measure]()
    for topic, mine in by_topic.items():
        longest = {r.key: r for r in sorted(mine, key=lambda r: r.offsets)}  # one of each partition: its longest
        chosen = sorted(longest.values(), key=lambda r: -r.offsets)[:SAMPLED]
        spans = [offsets.Span(r.key, r.start, r.end) for r in chosen if r.offsets]
        records, n = offsets.sample(cluster, spans, SAMPLE) if spans else (None, 0)
        if records is None or not records.num_rows:
            measures[topic] = Measure()
            continue
        size = sum(records.column(c).nbytes for c in ("key", "value", "headers"))
        measures[topic] = Measure(max(1.0, size / n), max(0.01, wanted.written(records) / max(1, size)))
    return measures


def _ratio(ranges: list[_Range], measures: Mapping[str, Measure]) -> float:
    """Bytes that are written for a byte that is read."""
    total = sum(r.offsets * measures[r.key.topic].size for r in ranges)
    return sum(r.offsets * measures[r.key.topic].size * measures[r.key.topic].ratio for r in ranges) / max(1.0, total) or 1.0


def _bounded(ranges: list[_Range], measures: Mapping[str, Measure], most: int | None, found: Listed) -> list[_Range]:
    """The beginnings of the ranges, as much of each in its measure as goes into one job."""
    total = sum(r.offsets * measures[r.key.topic].size for r in ranges)
    if most is None or total <= most:
        return ranges
    found.later.commits = 1  # or more
    return [_Range(r.key, r.start, r.start + min(r.offsets, max(1, int(r.offsets * most / total))), r.before) for r in ranges]


def _write(rows: list[tuple[str, str, _Range, int]], name: str, step: float, dest: Store, written: Written) -> None:
    """Write rows of the plan, and note their runs."""
    columns: dict[str, list[Any]] = {f.name: [] for f in PLAN}
    run = TaskRun("", 0, name, 0, 0, 0, 0)
    for i, (path, version, r, size) in enumerate(rows):
        follows = None if r.before is None else json.dumps(r.before)
        values = {"path": path, "version": version, "start": r.start, "length": r.offsets, "size": r.end, "modified": 0, "follows": follows}
        for column, found_values in columns.items():
            found_values.append(values.get(column))
        if run.rows and run.bytes + size > step:
            written.runs.append(asdict(run))
            run = TaskRun("", 0, name, 0, i, 0, 0)
        run.rows += 1
        run.bytes += size
    written.runs.append(asdict(run))
    written.splits += len(rows)
    written.bytes += sum(size for *_, size in rows)
    put_table(dest, name, pa.table(columns, PLAN))
