"""The rounds of a table's commit: when one is over, what other programs' instants mean, and how a job goes on with the next one."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

import quire
import sim
from gathering import refused
from quire.commit import names as objects
from quire.commit.entries import TABLE, UNSAID, Commit, Coverage, DataFile, Entry, Foreign, Published, Stats, Task, encode
from quire.commit.log import Log
from quire.engine import driver, request
from quire.engine.closers.shuffle import ShuffleCloser
from quire.errors import FormatError
from quire.packaging import Registry
from quire.progress import Progress
from quire.storage import connect
from quire.table import rounds
from quire.table.format import commits, compaction, names
from quire.table.format.commits import CommitMetadata, WriteStat
from quire.table.format.compaction import Operation
from quire.table.format.config import COPY_ON_WRITE, TableConfig
from quire.table.rounds import Round

A, B = (f"{letter * 8}-0000-0000-0000-000000000000-0" for letter in "ab")
EARLY, MINE, LATE = (f"2026112210300{i}000" for i in (1, 2, 3))


@pytest.fixture
def log() -> Log:
    """An empty one, of a table."""
    store = connect(f"memory://{objects.new_id()}")
    store.put(names.PROPERTIES, TableConfig(name="t", type=COPY_ON_WRITE, key=("id",)).to_properties())
    return Log(store).refresh()


def done(instant: str, *groups: str, inserts: tuple[str, ...] = (), operation: str = "upsert", version: int = 0) -> Task:
    """The manifest of a round that wrote these file groups."""
    attempt = objects.new_id()
    said = Round(instant=instant, action="commit", version=version, operation=operation, inserts=inserts, counts={})
    made = (names.BaseFile(group, names.write_token(1, attempt), instant).name for group in groups)
    files = tuple(DataFile(name, 1, 1, "") for name in made)
    return Task(task=2, attempt=attempt, data_files=files, coverage=Coverage(), stats=Stats(written=said.as_dict()))


def replaces(instant: str, partition: str, *groups: str, action: str = "replacecommit") -> Task:
    """The manifest of a round that takes the rows of a partition, which had these file groups."""
    said = Round(
        instant=instant, action=action, version=0, operation="delete_partition", inserts=(), counts={}, replaced={partition: groups}
    )  # fmt: skip
    return Task(task=2, attempt=objects.new_id(), data_files=(), coverage=Coverage(), stats=Stats(written=said.as_dict()))


def within(partition: str, task: Task) -> Task:
    """The manifest of a round whose files are in a partition."""
    files = tuple(msgspec.structs.replace(file, name=f"{partition}/{file.name}") for file in task.data_files)
    return msgspec.structs.replace(task, data_files=files)


def plan(instant: str, *groups: str) -> Task:
    """The manifest of a round that lays a plan for these file groups."""
    said = Round(instant=instant, action="compaction", version=0, operation="schedule", inserts=(), counts={}, planned=groups)
    return Task(task=2, attempt=objects.new_id(), data_files=(), coverage=Coverage(), stats=Stats(written=said.as_dict()))


def committed(task: Task, number: int = 1) -> Commit:
    return Commit(
        job=f"{number}-{'0' * 16}", base=number, committer="rename", spec=UNSAID, time="", tasks=(task,), dropped=(), left=(), parts=None,
        closer=TABLE,
    )  # fmt: skip


def foreign(instant: str, *groups: str, inserts: tuple[str, ...] = (), undone: tuple[str, ...] = ()) -> Foreign:
    return Foreign(instants=(instant,), undone=undone, groups=groups, inserts=inserts, lost=(), time="")


def ending(entry: Any, ended: str) -> Any:
    """The same of a table of version 9, in which it ends then."""
    if isinstance(entry, Foreign):
        return msgspec.structs.replace(entry, ended=ended)
    return msgspec.structs.replace(
        entry, stats=msgspec.structs.replace(entry.stats, written={**(entry.stats.written or {}), "ended": ended})
    )


def put(log: Log, *entries: Entry) -> Log:
    for entry in entries:
        log.store.put(objects.entry(log.tip + 1), encode(entry))
        log.refresh()
    return log


UPSERT = done(EARLY, A, inserts=("city=sf",))


@pytest.mark.parametrize(
    ("others", "mine", "over"),
    [
        ([], done(MINE, A, inserts=("city=sf",)), False),
        ([committed(done(EARLY, B))], done(MINE, A), False),
        ([committed(done(LATE, B))], done(MINE, A), True),
        ([committed(done(MINE, B))], done(MINE, A), True),
        ([committed(done(EARLY, A))], done(MINE, A), True),
        ([committed(done(EARLY, A))], done(MINE, A, version=1), False),
        ([committed(UPSERT)], done(MINE, B, inserts=("city=sf",)), True),
        ([committed(UPSERT)], done(MINE, B, inserts=("city=la",)), False),
        ([committed(UPSERT)], done(MINE, B, inserts=("city=sf",), operation="insert"), False),
        ([committed(done(EARLY, inserts=("city=sf",), operation="bulk_insert"))], done(MINE, B, inserts=("city=sf",)), False),
        ([committed(done(LATE, A)), Published(job=f"1-{'0' * 16}", time="", lost=(2,))], done(MINE, A), False),
        ([committed(plan(EARLY, B))], done(MINE, A), False),
        ([committed(plan(EARLY, A))], done(MINE, A), True),
        ([committed(plan(LATE, B))], done(MINE, A), True),
        ([committed(done(EARLY, A))], plan(MINE, A), True),
        ([committed(done(EARLY, A))], plan(MINE, B), False),
        ([foreign(EARLY, A)], plan(MINE, A), True),
        ([committed(done(LATE, A, operation="compact"))], done(MINE, A), False),
        ([committed(replaces(EARLY, "city=sf", A))], done(MINE, A), True),
        ([committed(replaces(EARLY, "city=sf", A))], within("city=sf", done(MINE, B, operation="insert")), True),
        ([committed(replaces(EARLY, "city=sf"))], within("city=sf", done(MINE, B)), True),
        ([committed(replaces(EARLY, "city=sf", A))], within("city=la", done(MINE, B)), False),
        ([committed(done(EARLY, A))], replaces(MINE, "city=sf", A), True),
        ([committed(within("city=sf", done(EARLY, B, operation="bulk_insert")))], replaces(MINE, "city=sf", A), True),
        ([committed(within("city=la", done(EARLY, B)))], replaces(MINE, "city=sf", A), False),
        ([committed(replaces(EARLY, "city=sf", A))], replaces(MINE, "city=sf", A), True),
        ([committed(replaces(EARLY, "city=la", A))], replaces(MINE, "city=sf", B), False),
        ([committed(plan(EARLY, A))], replaces(MINE, "city=sf", A), True),
        ([committed(replaces(EARLY, "city=sf", A))], plan(MINE, A), True),
        ([foreign(EARLY, B, inserts=("city=sf",))], replaces(MINE, "city=sf", A), True),
        ([foreign(EARLY, B, inserts=("city=la",))], replaces(MINE, "city=sf", A), False),
        ([foreign(EARLY, B)], done(MINE, A), False),
        ([foreign(EARLY, A)], done(MINE, A), True),
        ([foreign(LATE, B)], done(MINE, A), True),
        ([ending(foreign(EARLY, B), LATE)], done(MINE, A), True),
        ([ending(foreign(EARLY, B), MINE)], done(MINE, A), True),
        ([ending(foreign(EARLY, B), names.after(EARLY))], done(MINE, A), False),
        ([committed(ending(done(EARLY, B), MINE))], done(MINE, A), True),
        ([committed(ending(done(EARLY, B), names.after(EARLY)))], done(MINE, A), False),
        ([foreign(EARLY, B, inserts=("city=sf",))], done(MINE, A, inserts=("city=sf",)), True),
        ([foreign(EARLY, B, inserts=("city=sf",))], done(MINE, A, inserts=("city=sf",), operation="insert"), False),
    ],
)  # fmt: skip
def test_a_round_is_over_where_others_have_changed_what_it_rests_on(log: Log, others: list[Entry], mine: Task, *, over: bool) -> None:
    assert rounds.over(put(log, *others), mine) == over


@pytest.mark.parametrize(("pending", "over"), [("commit.requested", True), ("deltacommit.inflight", True), ("clean.requested", False)])
def test_no_plan_is_committed_beside_a_write_of_another_program(log: Log, pending: str, *, over: bool) -> None:
    log.store.put(f"{names.FOLDER}/{LATE}.{pending}", b"")
    assert rounds.over(log, plan(MINE, A)) == over
    put(log, committed(done(LATE, B), 7))
    assert rounds.over(log, plan(EARLY, A)), "the write is ours, and later"


@pytest.mark.parametrize(("group", "over"), [(A, True), (B, False)])
def test_a_file_group_is_in_no_plan_that_another_program_has_laid(log: Log, group: str, *, over: bool) -> None:
    content = compaction.encode([Operation("city=sf", group, EARLY, "", (f".{group}_{EARLY}.log.1_0-1-2",))])
    log.store.put(f"{names.FOLDER}/{LATE}.compaction.requested", content)
    assert rounds.over(log, plan(MINE, A)) == over


@pytest.mark.parametrize(("group", "over"), [(A, True), (B, False)])
def test_no_file_group_ends_that_another_program_s_plan_has(log: Log, group: str, *, over: bool) -> None:
    content = compaction.encode([Operation("city=sf", group, EARLY, "", (f".{group}_{EARLY}.log.1_0-1-2",))])
    log.store.put(f"{names.FOLDER}/{LATE}.compaction.requested", content)
    assert rounds.over(log, replaces(MINE, "city=sf", A)) == over


@pytest.mark.parametrize(
    ("others", "states", "over"),
    [
        ([], ["compaction.requested"], False),
        ([committed(done(LATE, A)), foreign(LATE, A)], ["compaction.requested"], False),
        ([], [], True),
        ([], ["compaction.requested", "commit"], True),
        ([committed(done(MINE, A, operation="compact"))], ["compaction.requested"], True),
        ([committed(done(EARLY, A, operation="compact"))], ["compaction.requested"], False),
        ([foreign(LATE, A, undone=("1-0",))], ["compaction.requested"], True),
        ([foreign(LATE, B, undone=("1-0",))], ["compaction.requested"], False),
    ],
)
def test_a_plan_is_carried_out_once_whoever_writes(log: Log, others: list[Entry], states: list[str], *, over: bool) -> None:
    for state in states:
        log.store.put(f"{names.FOLDER}/{MINE}.{state}", b"")
    assert rounds.over(put(log, *others), done(MINE, A, operation="compact")) == over


def test_instants_of_other_programs_are_entered_once_all_together(log: Log) -> None:
    """A table that others have written for years costs one entry; and the log knows its own instants, also of void commits."""
    put(log, committed(done(EARLY, A)), Published(job=f"1-{'0' * 16}", time="", lost=(2,)))
    for instant, group in ((EARLY, A), (MINE, A), (LATE, B)):
        path = f"city=sf/{names.BaseFile(group, '0-1-2', instant).name}"
        stats = {"city=sf": [WriteStat(file_id=group, path=path, partition_path="city=sf")]}
        content = commits.encode(CommitMetadata(partition_to_write_stats=stats, extra_metadata={"schema": "{}"}))
        log.store.put(f"{names.FOLDER}/{instant}.commit", content)
    log.store.put(names.PROPERTIES, TableConfig(name="trips", key=("id",)).to_properties())
    entry = rounds.unknown(log)
    assert entry is not None
    assert (entry.instants, entry.groups, entry.inserts) == ((MINE, LATE), (A, B), ("city=sf",))
    assert rounds.unknown(put(log, entry)) is None
    assert {instant for instant, *_ in log.instant_rows()} == {EARLY, MINE, LATE}


@pytest.mark.parametrize(
    "wrong", [{}, {"instant": "now"}, {"version": -1}, {"more": 1}, {"action": "clean.requested"}, {"format": 99}, {"inserts": "city=sf"}]
)
def test_a_manifest_that_says_no_round_is_refused_in_one_line(wrong: dict[str, object]) -> None:
    said = {**done(MINE, A).stats.written, **wrong} if wrong else {}
    task = Task(task=2, attempt="0" * 12, data_files=(), coverage=Coverage(), stats=Stats(written=said))
    with refused(FormatError, 2, "the manifest of task 2"):
        rounds.round_of(task)


# --------------------------------------------------------------------------------------------------------------- a job in rounds
class Outdated(ShuffleCloser):
    """A closer whose rounds are over until an entry of its own stands in the log, and two more have passed."""

    name = "outdated"
    asked = 0

    def ready(self, done: Task, log: Log) -> bool | Entry:
        """An entry first, then "no" twice, then "yes"."""
        type(self).asked += 1
        if not any(isinstance(entry, Foreign) for entry in log.entries):
            return foreign(EARLY)
        return type(self).asked > 3


def test_a_job_closes_again_until_its_round_may_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    sim.forget_all()
    sim.Tree().put("a", b"one\n")
    made = Registry.make
    monkeypatch.setattr(Registry, "make", lambda self, name: Outdated() if name == "outdated" else made(self, name))
    call = request.build(sim.SOURCE, sim.DEST, transform="raw", format="parquet")
    call = request.reducing(call, lambda rows: rows)
    call = dataclasses.replace(call, identity=dataclasses.replace(call.identity, closer="outdated"))
    report = driver.gather(call, quire.LocalRunner(), Progress(False))
    kinds = [type(entry).__name__ for entry in Log(connect(sim.DEST)).refresh().entries]
    assert (report.files, Outdated.asked, kinds) == (1, 4, ["Foreign", "Commit", "Published"])
    sim.forget_all()
