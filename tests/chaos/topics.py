"""Stories whose source is topics of a real Kafka, which may be killed and started again, or fall asleep, while drivers load them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hudi import HudiTableBuilder
from remote import Part
from story import Story, told
from tale import Count, Tale

import quire
from services.kafka import Record
from services.kafka_broker import Cluster
from services.kafka_witness import Account, Content, Position, account, look, parquet
from sim import witness

__all__ = ["Loaded", "LoadedIntoTable", "broker_part", "loaded"]

PROGRAM = """
import json, sys, quire
said = json.loads(sys.argv[1])
spark = quire.session(said["confs"], master=said["master"]) if said["master"] else quire.LocalRunner()
quire.load(said["source"], said["dest"], spark=spark, progress=False, **said["settings"])
print("done")
"""
SETTINGS = {"target_size": "12000 B", "on_data_loss": "record"}
KEYS = 40  # of the compacted topic


def broker_part(cluster: Cluster) -> Part:
    return Part("Kafka", cluster.kill, cluster.start, cluster.sleep, cluster.wake)


class Loaded(Story):
    """Four topics: one as it comes, one in transactions, of which every third is aborted, one that is compacted, and one whose first
    records are removed, loaded or not; into files."""

    function: tuple[Any, ...] = ()
    program = PROGRAM

    def __init__(self, name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, base, tale, {**SETTINGS, **(settings or {})})
        self.cluster, mark = cluster, uuid.uuid4().hex
        self.plain, self.bound, self.compacted, self.short = self.topics = [
            f"{kind}-{mark}" for kind in ("plain", "bound", "compacted", "short")
        ]
        self.place.program = self.program
        self.place.urls = f"kafka://{cluster.address}/{','.join(self.topics)}", str(self.dest)
        cluster.create(self.plain, 4)
        cluster.create(self.bound, 2)
        # Not before the witness has seen them.
        cluster.create(self.compacted, cleanup_policy="compact", segment_ms=200, min_cleanable_dirty_ratio=0.01, min_compaction_lag_ms=3000)
        cluster.create(self.short, 2)
        self.now = dict[Position, Content]()  # what a consumer of its own saw last
        self.seen = dict[Position, Content]()  # whatever it has ever seen
        self.excused = set[Position]()  # what was removed before a reader saw it in the destination
        self.written, self.told, self.calls, self.lasts = 0, 0, 150, 1.0

    def add(self, files: int) -> None:
        """So many records in each topic; sometimes the oldest ones of one go."""
        rng = self.rng
        for topic in self.topics:
            records = [self._record() for _ in range(files)]
            if topic == self.bound:
                self.cluster.transactions(topic, records, size=max(1, files // 6), abort_every=3)
            else:
                self.cluster.produce(topic, records)
        self._look()
        if rng.random() < 0.3:
            self._remove_oldest()
        self.waves += 1

    def _look(self) -> None:
        self.now = look(self.cluster, *self.topics)
        self.seen |= self.now

    def _record(self) -> Record:
        self.written += 1
        text = b"record %d %s" % (self.written, b"x" * self.rng.randrange(400))
        return Record(text if self.rng.random() < 0.95 else None, b"key %d" % self.rng.randrange(KEYS))

    def _remove_oldest(self) -> None:
        """What nobody sees in the destination by now may be lost, and must be said to be; what somebody sees stays."""
        loaded = {position for position, _ in parquet(self.dest)}
        ends = self.cluster.ends(self.short).items()
        before = {p: self.rng.randint(start if self.rng.random() < 0.5 else max(start, end - 20), end) for p, (start, end) in ends}
        self.cluster.delete_records(self.short, before)
        gone = {one for one in self.seen if one.topic == self.short and one.offset < before[one.partition]}
        self.excused |= gone - loaded

    def account(self) -> Account:
        """By the topics as they were at the last look, and by what was seen in them before."""
        now = self.now
        # A broker that was killed forgets that it has removed records: then they are there again, and nobody has to load them.
        must = {one: what for one, what in self.seen.items() if (one in now if one.topic == self.compacted else one not in self.excused)}
        return account(must, parquet(self.dest), may=self.seen)

    def count(self) -> Count:
        self._look()
        found = self.account()
        size = sum(len(content.value or b"") for content in self.seen.values())
        return Count(len(found.lost), len(found.double) + len(found.other), found.expected, size, "records")

    def covered(self, state: str) -> set[Position]:
        """What the ledger has in a state, as independent eyes see its segments: "lost", or "mark": removed before it knew the topic."""
        there = {str(p.relative_to(self.dest)): p.read_bytes() for p in (self.dest / "_quire").rglob("*") if p.is_file()}
        return {
            Position(path.split("/")[-2], int(path.split("/")[-1]), offset)
            for path, rows in witness.fold(there, witness.Log(there)).items()
            for row in rows
            if row["state"] == state
            for offset in range(row["start"], row["start"] + row["length"])
        }

    def hold(self, settled: bool) -> None:
        """Nothing is lost or double; when all is settled, nothing but the log and the ledger is left over, and the ledger says of exactly
        those records that they are lost that were removed before anybody had loaded them."""
        found = self.account()
        assert found.exact, found
        if settled:
            held, lost, before = {position for position, _ in parquet(self.dest)}, self.covered("lost"), self.covered("mark")
            wrong = (lost | before) - self.excused
            assert not wrong, f"lost, by the ledger, and not removed before it was read: {sorted(wrong)[:5]}"
            assert not held & (lost | before), f"lost, by the ledger, and loaded: {sorted(held & (lost | before))[:5]}"
            silent = self.excused - held - lost - before
            assert not silent, f"removed before it was read, and the ledger does not say so: {sorted(silent)[:5]}"
            if len(lost) != self.told:
                self.told = len(lost)
                self.tale.say(
                    f"     {self.name}: {self.told} records were removed before they were read; the ledger says so of exactly these"
                )
            left = [str(p) for kind in ("jobs", "tmp") for p in (self.dest / "_quire" / kind).rglob("*") if p.is_file()]
            assert not left, f"left over: {left[:5]}"

    def recover(self, by: str = "quire.load") -> Count:
        """Go on in this process where the killed ones stopped, and count."""
        source, dest = self.place.urls
        quire.load(source, dest, *self.function, spark=quire.LocalRunner(), progress=False, **self.settings)
        if not self.lies().at_rest():
            quire.recover(dest, abort="open")
            by += ", then quire.recover(abort='open')"
        return self.check(by)


TO_ROWS = """
def to_rows(batch):
    import pyarrow as pa
    columns = {name: batch.column(name) for name in ("topic", "partition", "offset", "key", "value")}
    places = zip(*(columns[name].to_pylist() for name in ("topic", "partition", "offset")))
    return pa.record_batch({"id": ["/".join(map(str, place)) for place in places], **columns})
"""


class LoadedIntoTable(Loaded):
    """The same into an incremental table, in new files alone: a record that came twice would be there twice."""

    program = TO_ROWS + PROGRAM.replace('said["dest"], spark', 'said["dest"], to_rows, spark')

    def __init__(self, name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, base, tale, cluster, {"operation": "bulk_insert", "function_version": "1", **(settings or {})})
        made = dict[str, Any]()
        exec(TO_ROWS, made)
        self.function = (made["to_rows"],)
        quire.Table.create(self.dest, key="id", partition_by="topic")
        (self.dest / "_quire").symlink_to(".hoodie/_quire")  # where these tests look; quire does not

    def hold(self, settled: bool) -> None:
        """Hudi's readers see the same rows as whoever reads all files."""
        super().hold(settled)
        if settled and (held := parquet(self.dest)):
            rows = (
                key for batch in HudiTableBuilder.from_base_uri(str(self.dest)).build().read() for key in batch.column("id").to_pylist()
            )
            assert Counter(rows) == Counter(f"{at.topic}/{at.partition}/{at.offset}" for at, _ in held.elements())


@contextmanager
def loaded(
    name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None, kind: type[Loaded] = Loaded
) -> Iterator[Loaded]:  # fmt: skip
    """A story of topics of its own."""
    made = kind(name, base / name.replace(" ", "-"), tale, cluster, settings)
    try:
        with told(made) as story:
            yield story
    finally:
        for topic in made.topics:
            cluster.delete(topic)
