"""Histories of calls, deaths and recoveries against a dictionary: after each step quire, hudi-rs and Daft say what it says.

A call's process dies at a drawn change of a simulated store. Readers then see all of the call or none of it, and each window of changes,
applied to its first snapshot, gives its last.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import test_cdc_logs
import test_changes
from test_writes import COLUMNS, LOCAL, Rows, frame, ours, theirs

import quire
import sim
from quire.commit import protocol
from quire.coverage import checkpoint
from quire.errors import RefusedError, StorageError
from quire.table import file_groups, timeline
from quire.table.format import cleaning, commits, config, names, schema
from quire.table.format.names import LogFile
from quire.table.format.schema import META
from quire.table.table import Table
from sim.tables import beside

DROP = "delete_partitions"
WIDE = COLUMNS
NARROW = WIDE.set(3, pa.field("fare", pa.float32()))
_DONE = re.compile(r"\.hoodie/(?:timeline/)?([0-9]{17})(?:_[0-9]{17})?\.(commit|deltacommit|replacecommit)")
MERGE_ON_READ, NINE, LOGS_OF_NINE = "merge_on_read", "version 9", "merge_on_read of version 9"


@dataclass(frozen=True)
class Call:
    """A call, the change at which its process dies (0: it lives), and what is done then."""

    operation: str
    rows: list[tuple[str, str, int, int]]
    at: int
    how: str
    then: str


WAYS = ["upsert", "upsert", "delete", "insert", "bulk_insert", "insert_overwrite", DROP]
# Kinds of calls, each with its names, and the last change at which one dies.
WRITES, CLEANS, COMPACTS, CLUSTERS = (WAYS, 60), (["clean"], 40), (["compact"], 40), (["cluster"], 30)
BACK, MORE = (["rollback", "restore", "archive"], 20), (["savepoint", "savepoint", "maintain", "widen"], 40)
OTHERS = ["roll back", "checkpoint"], 0
CALLS = [*[WRITES] * 6, COMPACTS, CLUSTERS, CLEANS, OTHERS, BACK, BACK, MORE, MORE]
TYPES = ["copy_on_write", MERGE_ON_READ, NINE, LOGS_OF_NINE]


def history(type: str, seed: int) -> dict[str, Any]:
    """A history of a table: each kind of call comes as often as any other, which hypothesis does not see to."""
    rng = random.Random(f"{type} {seed}")
    return {
        "kind": rng.choice(list(sim.TABLES)),
        "type": type,
        "index": rng.choice(["bloom", "simple", "bucket"]),
        "ordering": rng.choice(["ts", None]),
        "target_size": rng.choice(["1 KiB", "120 MiB"]),
        "change_files": rng.random() < 0.5,
        "cdc": rng.choice([None, None, *(mode.lower() for mode in config.MODES_OF_CDC)]),  # of a copy-on-write table
        "calls": [_call(rng) for _ in range(rng.randint(1, 6))],
    }


def _call(rng: random.Random) -> Call:
    names, last = rng.choice(CALLS)
    rows = [(rng.choice("abcdefgh"), rng.choice(["sf", "la"]), rng.randint(0, 3), rng.randint(0, 9)) for _ in range(rng.randint(1, 6))]
    at = rng.randint(1, last) if last and rng.random() < 0.5 else 0
    how, then = rng.choice(["before", "after", "torn", "ambiguous", "late"]), rng.choice(["again", "recover", "give up"])
    return Call(rng.choice(names), rows, at, how, then)


def _has_name(name: str) -> bool:
    """Whether a name is that of a base file."""
    return names.base_file(name.rpartition("/")[2]) is not None


def by_daft(folder: Path) -> Rows:
    """Key → row, as Daft has it, which looks at no timeline."""
    os.environ["DAFT_ANALYTICS_ENABLED"] = "0"  # read when it is imported: else it calls its makers
    import daft

    rows = daft.read_hudi(str(folder)).exclude(*META).to_pylist()
    found = {row["id"]: row for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def after(before: Rows, operation: str, rows: list[tuple[Any, ...]], ordering: str | None) -> Rows:
    """The greater ordering wins, in a call and against what is stored, and of equal ones the later; a key is known within its partition."""
    if operation in ("insert_overwrite", DROP):
        cities = {row[1] for row in rows}
        before, rows = {key: row for key, row in before.items() if row["city"] not in cities}, [] if operation == DROP else rows
    found, last = dict(before), dict[str, tuple[Any, ...]]()
    for row in rows:
        if row[0] not in last or ordering is None or row[2] >= last[row[0]][2]:
            last[row[0]] = row
    for key, row in last.items():
        if ordering is not None and key in found and row[2] < found[key]["ts"]:
            continue
        found.pop(key, None)
        if operation != "delete":
            found[key] = dict(zip(COLUMNS.names, row, strict=True))
    return found


@dataclass(frozen=True)
class Known:
    """What a merge-on-read table should say of each key: its ordering and row, or that it is deleted, until that was compacted.

    buckets     whether a file group takes deletes of keys that it never had; `there`: of which partitions it is there then
    """

    buckets: bool
    said: Mapping[str, tuple[int, dict[str, Any] | None]] = field(default_factory=dict)
    there: frozenset[str] = frozenset()

    @property
    def rows(self) -> Rows:
        return {key: row for key, (_, row) in self.said.items() if row is not None}

    def compacted(self) -> Known:
        return replace(self, said={key: each for key, each in self.said.items() if each[1] is not None})

    def after(self, operation: str, rows: list[tuple[Any, ...]]) -> Known:
        said, there, last = dict(self.said), self.there, dict[str, tuple[Any, ...]]()
        if operation in ("insert_overwrite", DROP):
            cities = {row[1] for row in rows}
            said = {key: each for key, each in said.items() if key.partition("-")[0] not in cities}
            there, rows = there - cities, [] if operation == DROP else rows
        for row in rows:
            if row[0] not in last or row[2] >= last[row[0]][2]:
                last[row[0]] = row
        for key, row in last.items():
            if key in said and row[2] < said[key][0]:
                continue
            if operation != "delete":
                said[key], there = (row[2], dict(zip(COLUMNS.names, row, strict=True))), there | {row[1]}
            elif key in said or (self.buckets and row[1] in there):
                said[key] = row[2], None
        return Known(self.buckets, said, there)


@dataclass
class Story:
    """A table on a simulated store, a copy of it for readers of Hudi, and what its rows should be after each instant."""

    world: sim.World
    copy: Path
    ordering: str | None
    now: Rows = field(default_factory=Rows)
    states: dict[str, Rows] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)  # what has happened, and how often
    gone: str = ""  # before it a clean has taken slices
    known: Known | None = None  # of a merge-on-read table
    knew: dict[str, Known] = field(default_factory=dict)  # after each instant
    buckets: bool = False
    nine: bool = False  # of version 9
    cdc: str | None = None  # the mode of Hudi's CDC logs
    told: set[str] = field(default_factory=set)  # instants whose CDC logs were compared
    saved: set[str] = field(default_factory=set)  # instants that savepoints hold

    def count(self, what: str) -> None:
        self.said[what] = self.said.get(what, 0) + 1

    def as_user(self, work: Callable[[], Any]) -> Any:
        with self.world.acting(sim.Actor(f"user {len(self.world.history)}")):
            return work()

    @property
    def table(self) -> Table:
        return Table(self.world.dest)

    def copied(self) -> Mapping[str, bytes]:
        """What lies in the table but for quire's own, laid into a folder."""
        there = beside(self.world.there())
        for path in [path for path in self.copy.rglob("*") if path.is_file() and path.relative_to(self.copy).as_posix() not in there]:
            path.unlink()
        for name, content in there.items():
            if not (path := self.copy / name).exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        return there

    def done(self) -> list[str]:
        """The instants that have completed."""
        return sorted(match[1] for name in self.copied() if (match := _DONE.fullmatch(name)))

    @property
    def decode(self) -> Callable[[bytes, str], commits.CommitMetadata]:
        """How completed instants are read."""
        return commits.decode_avro if self.nine else commits.decode

    def seen(self) -> Rows:
        """By hudi-rs, also while a commit is between its first and its last step."""
        return theirs(self.copy) if self.done() else {}

    def agree(self) -> None:
        """All readers have what should be there."""
        self.world.settle()  # else a listing that lags lacks what another client has made
        found = self.seen()
        assert found == self.now, "hudi-rs has other rows"
        instants = self.done()
        if not instants:
            return
        assert self.as_user(lambda: ours(self.table)) == self.now
        self.states = {instant: rows for instant, rows in self.states.items() if instant in instants}
        self.states.setdefault(instants[-1], self.now)
        assert list(self.states) == instants
        if self.known is not None:
            assert self.known.rows == self.now
            self.knew.setdefault(instants[-1], self.known)
        self.compare_cdc_logs()
        if self.known is not None or self.nine:
            return  # Daft reads no logs, and no table of version 9
        store = quire.storage.connect(self.copy.as_uri())
        slices = file_groups.newest(store, timeline.read(store))
        replaced = any(".replacecommit" in name for name in self.copied())  # Daft goes on reading the file groups that have ended
        if not replaced and all(
            pq.read_metadata(self.copy / one.name).num_rows for one in slices
        ):  # Daft stumbles over a file without rows
            assert by_daft(self.copy) == self.now, "Daft has other rows"
            self.count("Daft")

    def compare_cdc_logs(self) -> None:
        """Each lies beside its base file, and those of a commit tell what it has changed."""
        there, before, all_known = self.copied(), Rows(), not self.said.get("archive")
        logs = {name for name in there if name.endswith(names.CDC)}
        assert bool(self.cdc) or not logs
        assert logs == {name for name in map(names.cdc_log_of, filter(_has_name, there)) if name in there}, (
            "a CDC log without its base file"
        )
        for instant, rows in self.states.items():
            name = next((name for name in there if (found := _DONE.fullmatch(name)) and found.groups() == (instant, "commit")), None)
            content = there[name] if self.cdc and name else None
            stats = [stat for _, stat, _ in self.decode(content, instant).files()] if content is not None else []
            named = {str(stat.path): set(stat.cdc_stats or ()) for stat in stats}
            assert all((path in there) == (log in logs) for path, some in named.items() for log in some)
            own = {log for some in named.values() for log in some}
            assert own >= {log for log in logs if f"_{instant}.log." in log}, "a CDC log that its commit does not name"
            if own <= logs and content is not None and instant not in self.told and all_known:
                self.told.add(instant)
                self.count("CDC logs")
                self.changed([each for log in sorted(own) for each in test_cdc_logs.records(self.copy / log)], before, rows)
            before, all_known = rows, True

    def changed(self, told: list[dict[str, Any]], before: Rows, rows: Rows) -> None:
        """The records of a commit's CDC logs lead from the rows before to those after it; of what is in new files nothing is told."""
        seen = set[str]()
        for each in told:
            key = each["record_key"] if self.cdc != "data_before_after" else (each["after"] or each["before"])["id"]
            assert each["op"] == ("i" if key not in before else "u" if key in rows else "d"), each
            assert key not in seen, "a change is told twice"
            assert key in before or key in rows
            seen.add(key)
            for image, of in (("before", before), ("after", rows)):
                if image in each:
                    found = each[image]
                    assert (found and {name: found[name] for name in COLUMNS.names}) == of.get(key), each
        assert seen >= {key for key, row in before.items() if rows.get(key) != row}, "a change is not told"

    def play(self, number: int, call: Call) -> None:
        """A step, and what readers see during and after it."""
        if (call.operation == "compact" and self.known is None) or (call.operation == "cluster" and self.buckets):
            return
        self.count(call.operation)
        steps: dict[str, Callable[[Call], object]] = {
            "checkpoint": lambda _: self.checkpoint(), "roll back": lambda _: self.roll_back(), "clean": self.clean,
            "rollback": self.take_back, "restore": self.take_back, "compact": self.compact, "cluster": self.cluster,
            "archive": self.archive, "savepoint": self.savepoint, "maintain": self.maintain,
            "widen": lambda call: self.widen(f"batch {number}", call),
        }  # fmt: skip
        steps.get(call.operation, lambda call: self.write(f"batch {number}", call))(call)
        self.agree()

    @property
    def columns(self) -> pa.Schema:
        """Those of the frames that are written: the narrower ones, until the table has become wider."""
        line = self.as_user(lambda: timeline.current(self.world.store(self.world.dest)))
        text = self.as_user(line.schema)
        return WIDE if text and schema.from_avro(text, "").field("fare").type == pa.float64() else NARROW

    def checkpoint(self) -> None:
        """The ledger's state at a version."""
        self.as_user(lambda: checkpoint.write(LOCAL, self.world.dest, None, self.world.store(self.world.dest)))

    def archive(self, call: Call) -> None:
        """The oldest instants leave the timeline, which may die."""
        self.serve(call, lambda: self.table.archive(keep=1 + len(call.rows) % 3, progress=False))
        self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open"))

    def widen(self, batch: str, call: Call) -> None:
        """An upsert of rows of a wider type, which may die."""
        if self.known is not None:  # else its logs are of the narrower type
            self.compact(replace(call, at=0))
            self.agree()
        self.write(batch, replace(call, operation="upsert"), WIDE)

    def write(self, batch: str, call: Call, columns: pa.Schema | None = None) -> None:
        """A call that may die, and what its user does then."""
        columns = columns or self.columns
        rows = [(f"{city}-{key}", city, ts, float(fare)) for key, city, ts, fare in call.rows]
        if call.operation == DROP:
            cities = {row["city"] for row in self.now.values()}
            rows = [row for row in rows if row[1] in cities]
        elif call.operation in ("insert", "bulk_insert"):
            there = self.now if self.known is None else self.known.said
            rows = [row for row in {row[0]: row for row in rows}.values() if row[0] not in there]
        if not rows:
            return
        next_known = self.known and self.known.after(call.operation, rows)
        before, then = self.now, next_known.rows if next_known else after(self.now, call.operation, rows, self.ordering)
        instants = self.done()

        def work() -> Any:
            if call.operation == DROP:
                return self.table.delete_partitions([{"city": row[1]} for row in rows], batch=batch, progress=False)
            return getattr(self.table, call.operation)(frame(*rows, schema=columns), batch=batch, spark=LOCAL, progress=False)

        how = "ambiguous" if call.how == "late" and self.world.disk else call.how  # a disk has no later
        dead = sim.Actor(f"dead {batch}", faults={call.at: how} if call.at else {})
        ended = sim.run(self.world, dead, work)
        assert ended is None or (dead.hit and isinstance(ended, sim.Crash | StorageError)), f"{ended!r}\n{self.world.told()}"
        self.world.settle()
        found = self.seen()
        assert found in ([then] if ended is None else [before, then]), self.world.told()
        if ended is not None:
            self.count(f"died: {call.then}")
            self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open" if call.then == "give up" else None))
            assert self.seen() in ([then] if found != before else [before, then]), "a commit has vanished"
        self.world.land(everything=True)
        if ended is None or call.then == "again":
            self.as_user(work)
            assert self.seen() == then, "a call that was made again does nothing more than what it should have done"
        self.now = self.seen()
        if self.done() != instants:
            self.known = next_known
        if call.then == "recover" and ended is not None:
            self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open"))

    def compact(self, call: Call) -> None:
        """A compaction that may die, and is carried out then: no row changes, and deletes are forgotten."""

        def work() -> Any:
            return self.table.compact(spark=LOCAL, progress=False)

        if not self.now and not self.done():
            return
        self.serve(call, work)
        self.as_user(work)
        assert self.known is not None
        self.known = self.known.compacted()

    def cluster(self, call: Call) -> None:
        """A clustering that may die, and is completed then: no row changes, and deletes in logs are forgotten."""
        sort, curve = [("ts", "linear"), (["fare", "ts"], "hilbert"), (["city", "id"], "z-order")][len(call.rows) % 3]

        def work() -> Any:
            return self.table.cluster(sort=sort, curve=curve, spark=LOCAL, progress=False)

        if not self.done():
            return
        self.serve(call, work)
        self.as_user(work)
        self.known = self.known and self.known.compacted()
        self.world.settle()
        for instant in self.done():
            self.states.setdefault(instant, self.now)
            if self.known is not None:
                self.knew.setdefault(instant, self.known)

    def savepoint(self, call: Call) -> None:
        """The newest instant is held, or the oldest one that is held is not any more; the call may die."""
        if not self.done():
            return
        frees, newest = min(self.saved) if len(call.rows) % 3 == 0 and self.saved else "", max(self.states)

        def work() -> None:
            if not frees:
                assert self.table.savepoint() == newest
            elif frees in self.held():
                self.table.delete_savepoint(frees)

        self.serve(call, work)
        self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open"))
        found = self.as_user(self.held)
        assert found in ([self.saved, self.saved - {frees}] if frees else [self.saved, self.saved | {newest}])
        self.saved = found

    def held(self) -> set[str]:
        """The instants that savepoints hold."""
        return set(self.table.savepoints()["instant"])

    def maintain(self, call: Call) -> None:
        """All that is due, which may die, and is done then: no row changes, and what is superseded and not held is gone."""

        def work() -> Any:
            return self.table.maintain(log_ratio=0.0, small_files=2, keep_for=0, keep=1 + len(call.rows) % 3, spark=LOCAL, progress=False)

        if not self.done():
            return
        self.serve(call, work)
        hindered = self.as_user(work).hindered
        assert not hindered
        self.known = self.known and self.known.compacted()
        self.world.settle()
        for instant in self.done():
            self.states.setdefault(instant, self.now)
            if self.known is not None:
                self.knew.setdefault(instant, self.known)
        self.gone = max(self.states)

    def clean(self, call: Call) -> None:
        """A clean that may die: no row changes, and older instants are read, or refused in one line."""
        self.serve(call, lambda: self.table.clean(versions=1 + len(call.rows) % 3, progress=False))
        line = self.as_user(lambda: timeline.current(self.world.store(self.world.dest)))
        self.gone = max([self.gone, *(cleaning.retained(*line.clean_of(each))[0] for each in line.cleans)])
        self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open"))

    def take_back(self, call: Call) -> None:
        """A rollback of the newest instant, or a restore to an older one, which may die: whole states at a time, or nothing."""
        instants, refused = list(self.states), list[str]()
        if len(instants) < 2:
            return
        newest, saved = instants[-1], max(self.saved, default="")
        to = instants[-2] if call.operation == "rollback" else instants[max(0, len(instants) - 2 - len(call.rows) % 3)]

        def work() -> None:
            try:
                _ = self.table.rollback(newest, progress=False) if call.operation == "rollback" else self.table.restore(to, progress=False)
            except RefusedError as e:
                refused.append(str(e))

        how = "ambiguous" if call.how == "late" and self.world.disk else call.how
        dead = sim.Actor(f"dead {call.operation} {len(self.world.history)}", faults={call.at: how} if call.at else {})
        ended = sim.run(self.world, dead, work)
        assert ended is None or (dead.hit and isinstance(ended, sim.Crash | StorageError)), f"{ended!r}\n{self.world.told()}"
        self.world.settle()
        then = self.states[to]
        assert self.seen() in [self.states[instant] for instant in instants[instants.index(to) :]], self.world.told()
        if ended is not None:
            self.count(f"{call.operation} died: {call.then}")
            self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open" if call.then == "give up" else None))
            assert self.seen() in (self.now, then), "a part was taken back"
        self.world.land(everything=True)
        if ended is None or call.then == "again":
            self.as_user(work)
            assert self.seen() == (self.now if refused else then), (refused, self.world.told())
        assert newest in self.done() or saved <= to, "a savepoint held it"
        self.count(f"{call.operation} refused" if refused else f"{call.operation} done")
        if newest not in self.done():
            self.now = then
            self.known = self.known and self.knew[to]
            self.knew = {instant: known for instant, known in self.knew.items() if instant <= to}
        self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open"))

    def serve(self, call: Call, work: Callable[[], Any]) -> None:
        """A call that may die and changes no row."""
        how = "ambiguous" if call.how == "late" and self.world.disk else call.how
        dead = sim.Actor(f"dead {call.operation} {len(self.world.history)}", faults={call.at: how} if call.at else {})
        ended = sim.run(self.world, dead, work)
        assert ended is None or (dead.hit and isinstance(ended, sim.Crash | StorageError)), f"{ended!r}\n{self.world.told()}"
        self.world.settle()
        assert self.seen() == self.now, self.world.told()
        if ended is not None:
            self.count(f"{call.operation} died: {call.then}")
            self.as_user(lambda: protocol.recover(self.world.store(self.world.dest), "open" if call.then == "give up" else None))
        self.world.land(everything=True)
        if ended is None or call.then == "again":
            self.as_user(work)

    def roll_back(self) -> None:
        """The newest instant, by another program: first itself, then its files. It needs the slices before."""
        if len(self.states) < 2 or list(self.states)[-2] < self.gone:
            return
        *_, before, newest = self.states
        if newest in self.saved:
            return
        self.world.settle()
        ((at, action),) = ((name, found[2]) for name in self.copied() if (found := _DONE.fullmatch(name)) and found[1] == newest)
        if self.known is not None and action == "commit":
            return  # of a compaction a plan would be left
        with self.world.acting(sim.Actor("another program")):
            store = self.world.store(self.world.dest)
            content = store.get(at)
            store.remove(at)
            for name in beside(self.world.there()):
                if newest in name.rpartition("/")[2]:
                    store.remove(name)
            for _, stat, file in self.decode(content, newest).files():
                if isinstance(file, LogFile):  # which is named after the slice that it changes
                    store.remove(str(stat.path))
        self.world.settle()
        done = self.as_user(lambda: quire.recover(self.world.dest))
        assert len(done.rolled_back) == 1
        assert done.lost_updates == ()
        self.now = self.states[before]
        if self.known is not None:
            self.known = self.knew[before]
            del self.knew[newest]

    def read(self, instant: str) -> Rows | None:
        """The rows as of an instant; None: a clean has taken some."""
        try:
            return ours(self.table.as_of(instant))
        except RefusedError:
            return None

    def windows(self) -> None:
        """Each snapshot of the past is what it was, and the changes of each window lead from its first to its last."""
        if self.states:
            assert self.saved <= self.states.keys()
            for instant, rows in self.states.items():
                found = self.as_user(lambda instant=instant: self.read(instant))
                assert found in ([rows] if instant >= self.gone or instant in self.saved else [rows, None])
            there = [instant for instant in self.states if instant >= self.gone]
            archived = self.as_user(lambda: timeline.current(self.world.store(self.world.dest))).archived
            test_changes.check(self.table, there if self.gone or archived else [test_changes.START, *there], self.as_user)


def play(folder: Path, kind: str, ordering: str | None, index: str, calls: list[Call], **more: Any) -> dict[str, int]:
    """A whole history; how often what has happened."""
    logs = more.get("type") in (MERGE_ON_READ, LOGS_OF_NINE)
    if logs:
        more.pop("cdc", None)
    ordering = "ts" if logs else ordering
    sim.forget_all()
    world = sim.World(kind=sim.TABLES[kind], observe=False)
    story = Story(world, folder, ordering, known=Known(index == "bucket") if logs else None, buckets=index == "bucket", cdc=more.get("cdc"))
    story.nine = more.get("type") in (NINE, LOGS_OF_NINE)
    how = {**more, "type": MERGE_ON_READ if logs else "copy_on_write", "version": 9} if story.nine else more
    with world.installed():
        with world.acting(sim.Actor("first")):
            buckets = (1 if logs else 2) if index == "bucket" else None
            Table.create(world.dest, key="id", partition_by="city", ordering=ordering, index=index, buckets=buckets, **how)
        for number, call in enumerate(calls):
            story.play(number, call)
        story.windows()
    sim.forget_all()
    story.count(more.get("type", "copy_on_write"))
    return story.said


def told(tmp_path_factory: pytest.TempPathFactory, type: str, seeds: Iterable[int]) -> dict[str, int]:
    """How often what has happened in these histories of a type."""
    said = dict[str, int]()
    for seed in seeds:
        drawn = history(type, seed)
        try:
            found = play(tmp_path_factory.mktemp("table"), **drawn)
        except BaseException as e:
            e.add_note(f"history({type!r}, {seed}): {drawn}")
            raise
        for what, times in found.items():
            said[what] = said.get(what, 0) + times
    return said


@pytest.mark.parametrize("type", TYPES)
def test_any_history_is_what_a_dictionary_says(tmp_path_factory: pytest.TempPathFactory, type: str) -> None:
    said = told(tmp_path_factory, type, range(10))
    assert type != "copy_on_write" or said["Daft"] > 2, said


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", TYPES)
def test_many_histories_of_each_type_are_what_a_dictionary_says(tmp_path_factory: pytest.TempPathFactory, type: str) -> None:
    """Each night others."""
    most, logs, nine, first = 1000, type in (MERGE_ON_READ, LOGS_OF_NINE), type in (NINE, LOGS_OF_NINE), random.randrange(1 << 40)
    said = told(tmp_path_factory, type, range(first, first + most))
    assert said[type] >= most, (first, said)
    often = ["upsert", "delete", "insert", "cluster", "clean", "roll back", "checkpoint", *(["compact"] if logs else ["CDC logs"])]
    often += [f"died: {then}" for then in ("again", "recover", "give up")] + ([] if logs or nine else ["Daft"])
    assert all(said.get(what, 0) >= most // 20 for what in often), (first, said)
    seldom = ["rollback done", "restore done", "archive", "savepoint", "maintain", "widen"]
    assert all(said.get(what, 0) >= most // 200 for what in seldom), (first, said)
