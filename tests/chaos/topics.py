"""Stories whose source is topics of a real Kafka, which may be killed and started again, or fall asleep, while drivers load them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

from hudi import HudiTableBuilder
from remote import Part
from story import Story, told
from tale import Count, Tale

import quire
from services.kafka import Record
from services.kafka_broker import Cluster
from services.kafka_witness import Account, Content, Position, account, look, parquet
from sim import witness

__all__ = ["Loaded", "LoadedIntoTable", "LoggedIntoTable", "LookedAfter", "broker_part", "loaded"]

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
        loaded = {position for position, _ in self.held()}
        ends = self.cluster.ends(self.short).items()
        before = {p: self.rng.randint(start if self.rng.random() < 0.5 else max(start, end - 20), end) for p, (start, end) in ends}
        self.cluster.delete_records(self.short, before)
        gone = {one for one in self.seen if one.topic == self.short and one.offset < before[one.partition]}
        self.excused |= gone - loaded

    def account(self) -> Account:
        """By the topics as they were at the last look, and by what was seen in them before."""
        return account(self.must(), self.held(), may=self.seen)

    def must(self) -> dict[Position, Content]:
        """What must be there."""
        now = self.now
        # A broker that was killed forgets that it has removed records: then they are there again, and nobody has to load them.
        return {one: what for one, what in self.seen.items() if (one in now if one.topic == self.compacted else one not in self.excused)}

    def held(self) -> Counter[tuple[Position, Content]]:
        """What is there, by a reader that knows nothing of quire."""
        return parquet(self.dest)

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
            held, lost, before = {position for position, _ in self.held()}, self.covered("lost"), self.covered("mark")
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
    operation = "bulk_insert"
    kind: ClassVar[dict[str, Any]] = {}

    def __init__(self, name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, base, tale, cluster, {"operation": self.operation, "function_version": "1", **(settings or {})})
        made = dict[str, Any]()
        exec(TO_ROWS, made)
        self.function = (made["to_rows"],)
        quire.Table.create(self.dest, key="id", partition_by="topic", **self.kind)
        (self.dest / "_quire").symlink_to(".hoodie/_quire")  # where these tests look; quire does not

    def seen_by_hudi_rs(self) -> list[dict[str, Any]]:
        """All rows, as another program reads the table."""
        if not list((self.dest / ".hoodie").glob("*.*commit")):
            return []  # nothing has been written yet
        return [row for batch in HudiTableBuilder.from_base_uri(str(self.dest)).build().read() for row in batch.to_pylist()]

    def hold(self, settled: bool) -> None:
        """Hudi's readers see the same rows as whoever reads all files."""
        super().hold(settled)
        if settled and (held := parquet(self.dest)):
            rows = (row["id"] for row in self.seen_by_hudi_rs())
            assert Counter(rows) == Counter(f"{at.topic}/{at.partition}/{at.offset}" for at, _ in held.elements())


UPKEEP = """
import json, sys, quire
table = quire.Table(json.loads(sys.argv[1])["dest"])
for _ in range(2):
    table.compact(spark=quire.LocalRunner(), progress=False)
    table.clean(versions=1, progress=False)
print("done")
"""
TO_ROWS_BY_KEY = TO_ROWS.replace("to_rows", "by_key").replace(
    'return pa.record_batch({"id": ["/".join(map(str, place)) for place in places], **columns})',
    'return pa.record_batch({"id": [key.decode() for key in columns["key"].to_pylist()], **columns})',
)


class LoggedIntoTable(LoadedIntoTable):
    """Into a merge-on-read table: the four topics are inserted, so a record that came twice would be there twice; a fifth topic changes
    its keys again and again, in logs; and somebody compacts and cleans beside. hudi-rs says which rows are there."""

    operation = "insert"
    kind: ClassVar[dict[str, Any]] = {"type": "merge_on_read", "ordering": "offset"}

    def __init__(self, name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, base, tale, cluster, {"allow_nonempty": True, **(settings or {})})  # topics come by two calls
        self.changing = f"changing-{uuid.uuid4().hex}"
        cluster.create(self.changing, 1)  # one partition, so that offsets order all changes of a key
        self.topics.append(self.changing)
        made = dict[str, Any]()
        exec(TO_ROWS_BY_KEY, made)
        self.by_key = made["by_key"]
        self.changes = f"kafka://{cluster.address}/{self.changing}"
        changes = TO_ROWS_BY_KEY + PROGRAM.replace('said["source"], said["dest"], spark', f'"{self.changes}", said["dest"], by_key, spark')
        upserts = {**self.settings, "operation": "upsert"}
        self.roles: dict[str, tuple[dict[str, Any], str]] = {
            "loader": (self.settings, self.program), "updater": (upserts, changes), "upkeep": ({}, UPKEEP),
        }  # fmt: skip

    def held(self) -> Counter[tuple[Position, Content]]:
        """Once for each row."""
        rows = self.seen_by_hudi_rs()
        ids = Counter((row["topic"], row["id"]) for row in rows)
        assert max(ids.values(), default=1) == 1, f"keys that are there twice: {[key for key, n in ids.items() if n > 1][:5]}"
        return Counter(
            (Position(row["topic"], row["partition"], row["offset"]), Content(row["key"], row["value"])) for row in rows
        )  # fmt: skip

    def must(self) -> dict[Position, Content]:
        """Of a key that changes, the last record."""
        every = super().must()
        last = {content.key: at for at, content in sorted(every.items()) if at.topic == self.changing}
        return {at: content for at, content in every.items() if at.topic != self.changing or last[content.key] == at}

    def hold(self, settled: bool) -> None:
        """The ledger has each offset of each topic once, and none is left out."""
        Loaded.hold(self, settled)
        if not settled:
            return
        there = {str(p.relative_to(self.dest)): p.read_bytes() for p in (self.dest / "_quire").rglob("*") if p.is_file()}
        found = witness.fold(there, witness.Log(there))
        for topic in self.topics:
            for partition, (_, end) in self.cluster.ends(topic).items():
                path = next((path for path in found if path.endswith(f"{topic}/{partition}")), "")
                rows = [(row["start"], row["start"] + row["length"], row["state"] == "mark") for row in found.get(path, ())]
                # Each load says again what had been removed before the first one.
                ranges = sorted([*{row[:2] for row in rows if row[2]}, *(row[:2] for row in rows if not row[2])])
                gaps = [(a, b) for (_, a), (b, _) in pairwise(ranges) if a != b]
                assert not gaps, f"{topic}/{partition}: offsets that the ledger has twice, or not: {gaps[:5]}"
                assert (ranges[-1][1] if ranges else 0) == end, f"{topic}/{partition}: the ledger ends at {ranges[-1:]}, the topic at {end}"

    def recover(self, by: str = "two loads, compact, clean") -> Count:
        """Go on in this process where the killed ones stopped, and count."""
        local: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
        table = quire.Table(self.dest)
        quire.load(self.place.urls[0], self.dest, *self.function, **local, **self.settings)
        quire.load(self.changes, self.dest, self.by_key, **local, **self.settings | {"operation": "upsert"})
        table.compact(**local)
        table.clean(versions=1, progress=False)
        if not self.lies().at_rest():
            quire.recover(self.dest, abort="open")
            by += ", then quire.recover(abort='open')"
        return self.check(by)


MAINTAIN = """
import json, sys, quire
table, hindered = quire.Table(json.loads(sys.argv[1])["dest"]), []
for _ in range(3):
    report = table.maintain(log_ratio=0.0, keep_for=0, keep=4, spark=quire.LocalRunner(), progress=False)
    hindered += report.hindered.values()
print(hindered)
"""
TAKE_BACK = """
def take_back(table, number, restores):
    import pyarrow as pa, quire
    local, before = {"spark": quire.LocalRunner(), "progress": False}, None
    if restores:
        saved = sorted(table.savepoints()["instant"])  # that of one who died
        before = saved[0] if saved else table.savepoint()
    names, kinds = ("id", "topic", "partition", "offset", "key", "value"), ("string", "string", "int32", "int64", "binary", "binary")
    values = ("never", f"mistake {number}", 0, 0, b"never", b"never")
    rows = pa.table({name: pa.array([value], kind) for name, value, kind in zip(names, values, kinds)})
    done = table.upsert(rows, batch=f"mistake {number}", **local)
    if restores:
        table.restore(before, progress=False)
        table.delete_savepoint(before)
        return "restored"
    try:
        table.rollback(done.instant, progress=False)
        return "rolled back"
    except quire.RefusedError as e:  # who died was away for so long that the write was archived, or compacted
        table.delete(rows.set_column(3, "offset", pa.array([1], pa.int64())), **local)
        return str(e)
"""
TAKING_BACK = (
    TAKE_BACK
    + """
import json, sys, quire
said = json.loads(sys.argv[1])
print(take_back(quire.Table(said["dest"]), **said["settings"]))
"""
)


class LookedAfter(LoggedIntoTable):
    """The same, which `maintain` looks after: it compacts, cleans and archives; and others make mistakes beside it, which they roll back,
    or after which they restore what was before, loads and all: these read their records again."""

    def __init__(self, name: str, base: Path, tale: Tale, cluster: Cluster, settings: dict[str, Any] | None = None) -> None:
        super().__init__(name, base, tale, cluster, settings)
        made = dict[str, Any]()
        exec(TAKE_BACK, made)
        self.take_back, self.mistakes, self.told_by = made["take_back"], 0, Counter[str]()
        self.roles |= {"upkeep": ({}, MAINTAIN), "rollback": ({}, TAKING_BACK), "restore": ({}, TAKING_BACK)}

    def role(self, name: str) -> tuple[dict[str, Any], str]:
        """What a driver is told, and its program; who takes back makes the mistake again that the one before him has died of."""
        settings, program = self.roles[name]
        return ({"number": self.mistakes, "restores": name == "restore"} if program == TAKING_BACK else settings), program

    def _remove_oldest(self) -> None:
        """They stay: what a restore has taken back is loaded again."""

    def held(self) -> Counter[tuple[Position, Content]]:
        found = super().held()
        assert not (wrong := [at for at, _ in found if at.topic.startswith("mistake")]), f"a mistake was not taken back: {wrong[:3]}"
        return found

    def recover(self, by: str = "a rollback, two loads, maintain") -> Count:
        """Go on in this process where the killed ones stopped, and count."""
        table = quire.Table(self.dest)
        if not table.timeline(last=1).empty:
            for saved in table.savepoints()["instant"]:
                table.delete_savepoint(saved)
            self.told_by[self.take_back(table, self.mistakes, False)[:40]] += 1
            self.mistakes += 1
            table.maintain(log_ratio=0.0, keep_for=0, keep=4, spark=quire.LocalRunner(), progress=False)
        return super().recover(by)


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
