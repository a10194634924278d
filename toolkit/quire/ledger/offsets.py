"""Offsets in and out of a ledger: how far topics are loaded, how far that is behind, and what another loader has done before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from quire.commit.entries import OFFSETS, UNSAID
from quire.commit.log import Log
from quire.coverage.fold import Fold, fold
from quire.coverage.live import live
from quire.coverage.ranges import Known, covered
from quire.engine.loader import check_cluster
from quire.errors import RefusedError, UsageError, about, choose, quoted, scrub
from quire.interrupts import all_interruptible
from quire.ledger.job import Change, Changed, Dest, PlannedChange, not_named
from quire.ledger.refusals import not_of_tables
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, TaskRun
from quire.planning.offsets import as_known, check_version
from quire.planning.pack import PlannedTask
from quire.progress import ProgressEvent
from quire.skew import SkewResult, check
from quire.sources.kafka import topics as kafka
from quire.sources.kafka.positions import committed, positions, reached
from quire.sources.kafka.topics import Key, Topics
from quire.spark.runner import Runner
from quire.storage import Store


@all_interruptible
class OffsetsOf:
    """A ledger's calls for Kafka's topics."""

    _url: str
    _options: Mapping[str, Any] | None
    _store: Store
    _log: Log
    _fold: Fold
    _known: Known  # what was read of partitions when they were looked at last

    def refresh(self) -> Any:
        """Read the log to its tip."""
        raise NotImplementedError

    def _dest(self, runner: Runner, progress: bool | Callable[[ProgressEvent], object], committer: str) -> Dest:
        raise NotImplementedError

    def _runner(self, spark: Any) -> Runner:
        raise NotImplementedError

    def _target(self) -> int:
        raise NotImplementedError

    def partition_skew(self, by: str = "records") -> SkewResult:
        """Whether the partitions of each topic became equally much: a `quire.skew.check` of their "records" or "bytes" (`by`).

        `plots.partitions` draws it. A key that many records have makes its partition heavy, and each load as slow as that one. The
        partitions of a destination of files are its directories.
        """
        choose(by, ("records", "bytes"), "by")
        if (spec := self._log.spec()) is not None and spec.kind != OFFSETS:
            sizes = Counter[str]()
            for file in live(self._log, self._fold):
                sizes[file.name.rpartition("/")[0] or "."] += file.records if by == "records" else file.size
            return check(dict(sizes), unit=by)
        found = list(positions(self._fold, self._store, known=self._known))
        several = len({p.key.topic for p in found}) > 1
        topics = {f"{p.key.topic}/{p.key.partition}" if several else str(p.key.partition): p.key.topic for p in found}
        counts = dict.fromkeys(topics, 0)
        for name, p in zip(topics, found, strict=True):
            counts[name] = p.records if by == "records" else p.written
        return check(counts, groups=topics if several else None, unit=by)

    def export_offsets(self) -> dict[tuple[str, int], int]:
        """The committed offset of each partition, {(topic, partition): offset}: where another loader would go on."""
        return {tuple(p.key): p.offset for p in positions(self._fold, self._store, known=self._known)}  # type: ignore[misc]  # a Key is such a pair

    @not_of_tables
    def import_offsets(
        self, source: str, offsets: str | Mapping[Any, int], *, spark: Any = None, committer: str = "auto",
        source_options: Mapping[str, Any] | None = None, progress: bool | Callable[[ProgressEvent], object] = True,
    ) -> Changed:  # fmt: skip
        """Take over from another loader: what it has loaded is done elsewhere, and `quire.load` goes on behind it.

        source   "kafka://host:9092/topic", as in `quire.load`
        offsets  {(topic, partition): offset}, or {partition: offset}: the first one that is still to be loaded; or a consumer group's name,
                 whose committed offsets say so

        Each becomes a range in state `mark`, all in one commit; nothing is read. Covered ranges stay as they are. Returns a `Changed`.
        """
        with about("source"):
            topics = self._topics(source, source_options)
            cluster, topics, keys = reached(topics)
        with about("offsets"):
            if isinstance(offsets, str):
                wanted = committed(cluster, offsets, keys)
                if not wanted:
                    raise UsageError(f"the consumer group {offsets!r} has committed no offset of {topics.shown}. Check the spelling.")
            else:
                wanted = _checked(offsets, keys)
            for key, end in cluster.ends(wanted).items():
                if wanted[key] > end:
                    raise UsageError(
                        f"offset {wanted[key]:,} lies beyond the end of {key.topic} partition {key.partition}, which is {end:,}."
                    )
        topics = replace(topics, versions=cluster.versions({key.topic for key in wanted}))
        said = {"verb": "mark", "cluster": topics.cluster, "offsets": sorted([*key, offset] for key, offset in wanted.items())}

        def plan(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
            spec = log.spec()
            if spec is not None and spec.kind != OFFSETS:
                raise RefusedError(
                    f"{self._store.url} holds what was made of files, and offsets mean nothing to it. Choose another destination."
                )
            check_cluster(log, topics, self._store.url)
            known = covered(fold(log, base), log.store, f"{topics.url}/")
            rows, new = list[dict[str, Any]](), set[str]()
            mine = as_known(topics, known)
            for key, offset in sorted(wanted.items()):
                path = topics.path(key)
                if path in known:
                    check_version(mine, key.topic, known[path].versions)
                for start, end in known[path].gaps(offset) if path in known else [(0, offset)] if offset else []:
                    version = mine.versions[key.topic]
                    new.add(path)
                    rows.append({"path": path, "size": offset, "version": version, "modified": 0, "start": start, "length": end - start})
            if not rows:
                return PlannedChange([], known=len(wanted))
            put_table(log.store, name := named("marks"), pa.Table.from_pylist(rows, PLAN))
            return PlannedChange([PlannedTask("", 0, marks=[TaskRun("", 0, name, 0, 0, len(rows), 0)])], known=len(wanted) - len(new))

        dest = self._dest(self._runner(spark), progress, committer)
        done = Change(dest, said, plan, target=self._target(), spec=UNSAID, repeat=True).run()
        self.refresh()
        return done

    def _topics(self, source: str | None, source_options: Mapping[str, Any] | None) -> Topics:
        if source is None:
            if not (there := scrub(self._log.source(), 200)):
                raise UsageError(
                    f"no topic was loaded into {self._store.url} yet: say which, source='kafka://host:9092/topic', in a shell --source kafka://…."
                )
            raise not_named(self._store.url, "the end of a topic is asked of its brokers", there, "lag")
        return kafka.parsed(source, kafka.client_options(self._options, source_options))


def offsets(ledger: OffsetsOf) -> Iterator[tuple[Any, ...]]:
    """How far each partition is loaded, as `quire.ledger.tables.TABLES["offsets"]` has it."""
    for p in positions(ledger._fold, ledger._store, known=ledger._known):
        yield *p.key, p.offset, p.until, p.records, p.written, p.lost, p.quarantined, p.cluster, p.version


def lag(ledger: OffsetsOf, source: str | None, source_options: Mapping[str, Any] | None) -> Iterator[tuple[Any, ...]]:
    """How far each partition is behind, as `quire.ledger.tables.TABLES["lag"]` has it: the brokers are asked now."""
    with about("source"):
        topics = ledger._topics(source, source_options)
        cluster, topics, keys = reached(topics)
    known = {p.key: p for p in positions(ledger._fold, ledger._store, known=ledger._known) if p.cluster == topics.cluster}
    starts, ends, highs = cluster.starts(keys), cluster.ends(keys), cluster.highs(keys)
    for key in keys:
        offset, lost = (max(known[key].offset, 0), known[key].lost) if key in known else (starts[key], 0)
        yield *key, offset, ends[key], max(0, ends[key] - offset), lost, max(0, highs[key] - ends[key])


def _checked(offsets: object, keys: list[Key]) -> dict[Key, int]:
    if not isinstance(offsets, Mapping) or not offsets:
        raise UsageError(f"offsets={quoted(offsets, 80)} are not offsets: give {{(topic, partition): offset}}, or a consumer group's name.")
    found = dict[Key, int]()
    topics = {key.topic for key in keys}
    for given, offset in offsets.items():
        key = Key(*given) if isinstance(given, tuple) and len(given) == 2 else Key(next(iter(topics)), given) if len(topics) == 1 else None
        if key not in keys:
            raise UsageError(f"offsets name partition {quoted(str(given), 80)}, which is not there. Give {{(topic, partition): offset}}.")
        if isinstance(offset, int) and offset.bit_length() > 63:
            raise UsageError(f"the offset of {key.topic} partition {key.partition} is not an offset: they end below 2**63.")
        if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise UsageError(f"the offset {quoted(offset, 80)} of {key.topic} partition {key.partition} is not a whole number from 0 on.")
        found[key] = offset
    return found
