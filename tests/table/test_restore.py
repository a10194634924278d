"""Rollbacks and restores by quire: the table is what it was, the ledger knows it, and readers of Hudi agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_compaction import compact
from test_writes import LOCAL, create, frame, log_of, ours, theirs, write

import quire
import sim
from quire.commit import protocol
from quire.errors import UsageError
from quire.storage import connect
from quire.table import closer, taking_back, timeline
from quire.table.format import avro_file, names
from quire.table.table import Table
from sim.tables import FIRST, SECOND, outside, seen
from sim.tables import frame as sim_frame

FORMS: list[Any] = [
    pytest.param({}, id="copy_on_write"), pytest.param({"type": "merge_on_read"}, id="merge_on_read"),
    pytest.param({"version": 9}, id="version 9"), pytest.param({"version": 9, "type": "merge_on_read"}, id="version 9, merge_on_read"),
]  # fmt: skip
LOGS, NINE = {"type": "merge_on_read", "ordering": "n"}, {"version": 9}  # of the simulated tables


def refused(call: Callable[[], object]) -> str:
    """The one line that a wrong call gets."""
    with pytest.raises(UsageError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, count: int = 4, **more: Any) -> tuple[Table, list[str], list[Any]]:
    """A table of two partitions into which each upsert writes; the instants, and the rows after each."""
    table = create(folder, **more)
    instants, after = list[str](), list[Any]()
    for n in range(count):
        rows = frame(("a", "sf", n, float(n)), ("b", "la", n, float(n)), (f"n{n}", "sf", n, 0.0))
        instants.append(write(table, "upsert", rows, batch=f"batch {n}").instant)
        after.append(ours(table))
    return table, instants, after


def files(folder: Path) -> list[str]:
    """Base files, logs and change files, and the instants of writes in whatever state."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
        if names.file(path.name) or (path.suffix == ".rows" and "changes" in path.parts) or "commit" in path.name
    )  # fmt: skip


def back(table: Table, verb: str, *given: Any) -> Any:
    return getattr(table, verb)(*given, progress=False)


def said(table: Table, instant: str, action: str) -> Any:
    """The words of a rollback, or of a restore, on the timeline."""
    line = timeline.current(connect(table.url))
    (done,) = (each for each in line.others if (each.time, each.action) == (instant, action))
    assert bool(done.ended) == (table.config.version == 9)
    return avro_file.record(line.store.get(f"{line.folder}/{done.name}"), "it")


@pytest.mark.nth(4)
@pytest.mark.parametrize("how", FORMS)
def test_a_restore_takes_later_writes_back_and_their_batches_come_again(tmp_path: Path, how: dict[str, Any]) -> None:
    table, instants, after = written(tmp_path / "t", **how)
    report = back(table, "restore", instants[1])
    assert (report.taken_back, report.batches, report.splits) == ((instants[3], instants[2]), 2, 0)
    assert report.files >= 4
    assert ours(table) == theirs(tmp_path / "t") == after[1]
    assert not [name for name in files(tmp_path / "t") if instants[2] in name or instants[3] in name]
    assert said(table, report.instant, "restore")["instantsToRollback"] == [instants[3], instants[2]]
    assert not timeline.current(connect(table.url)).pending
    for n in (2, 3):
        again = write(
            table, "upsert", frame(("a", "sf", n, float(n)), ("b", "la", n, float(n)), (f"n{n}", "sf", n, 0.0)), batch=f"batch {n}"
        )
        assert (again.again, again.instant > report.instant) == (False, True)
        assert ours(table) == theirs(tmp_path / "t") == after[n]
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
    assert back(table, "restore", again.instant).taken_back == ()


@pytest.mark.nth(4)
@pytest.mark.parametrize("how", FORMS)
def test_a_rollback_takes_the_newest_write_back(tmp_path: Path, how: dict[str, Any]) -> None:
    table, instants, after = written(tmp_path / "t", **how)
    report = back(table, "rollback")
    assert (report.taken_back, report.batches) == ((instants[3],), 1)
    assert ours(table) == theirs(tmp_path / "t") == after[2]
    assert back(table, "rollback", instants[3]).taken_back == (), "it is rolled back already"
    assert said(table, report.instant, "rollback")["commitsRollback"] == [instants[3]]
    assert ours(table) == after[2]
    for n in (1, 0):
        back(table, "rollback")
        assert ours(table) == theirs(tmp_path / "t") == after[n]
    back(table, "rollback")
    assert "nothing has been written yet" in refused(lambda: ours(table))
    assert "nothing has been written" in refused(lambda: back(table, "rollback"))
    write(table, "upsert", frame(("a", "sf", 0, 1.0)), batch="batch 0")
    assert set(ours(table)) == set(theirs(tmp_path / "t")) == {"a"}


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_what_a_rolled_back_call_had_read_is_processed_again(tmp_path: Path, version: int) -> None:
    source, table = tmp_path / "in", create(tmp_path / "t", ordering=None, version=version)
    source.mkdir()

    def to_rows(split: Any, content: bytes) -> pa.Table:
        return pa.Table.from_pylist([dict(zip(("id", "city"), line.split(","), strict=True)) for line in content.decode().split()])

    def gather() -> Any:
        return quire.process(str(source), table, to_rows, schema="id string, city string", spark=LOCAL, progress=False)

    (source / "one.txt").write_text("a,sf\nb,la\n")
    first = gather()
    for name, lines in (("two.txt", "c,sf\nd,la\ne,ny\n"), ("three.txt", "f,sf\n")):
        (source / name).write_text(lines)
    gather()
    expected = ours(table)
    report = back(table, "restore", first.instant)
    assert (report.splits, report.source_files, report.records, report.batches) == (2, 2, 4, 0)
    assert set(ours(table)) == set(theirs(tmp_path / "t")) == {"a", "b"}
    assert gather().files == 2
    assert ours(table) == theirs(tmp_path / "t") == expected
    assert gather().files == 0
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


@pytest.mark.parametrize("version", [6, 9])
def test_a_write_below_others_in_other_partitions_is_rolled_back(tmp_path: Path, version: int) -> None:
    table = create(tmp_path / "t", version=version)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    second = write(table, "upsert", frame(("a", "sf", 2, 2.0), ("c", "sf", 2, 2.0)))
    third = write(table, "upsert", frame(("b", "la", 3, 3.0)))
    line = refused(lambda: back(table, "rollback", first.instant))
    assert "was written after" in line
    back(table, "rollback", second.instant)
    rows = {key: row["fare"] for key, row in ours(table).items()}
    assert rows == {key: row["fare"] for key, row in theirs(tmp_path / "t").items()} == {"a": 1.0, "b": 3.0}
    assert table.as_of(third.instant).snapshot(spark=LOCAL).num_rows == 2


def test_a_compaction_goes_with_the_writes_that_a_restore_takes_back(tmp_path: Path) -> None:
    table, instants, after = written(tmp_path / "t", type="merge_on_read")
    compact(table)
    done = timeline.read(connect(table.url)).completed[-1].time
    line = refused(lambda: back(table, "rollback"))
    assert f"{done} of" in line
    assert "is a compaction" in line
    assert f"table.restore('{instants[3]}')" in line
    write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    table.schedule_compaction()
    write(table, "upsert", frame(("a", "sf", 10, 10.0)))
    report = back(table, "restore", instants[1])
    assert done in report.taken_back
    now = timeline.read(connect(table.url))
    assert not now.pending
    assert ours(table) == theirs(tmp_path / "t") == after[1]
    write(table, "upsert", frame(("a", "sf", 11, 11.0)))
    compact(table)
    assert ours(table) == theirs(tmp_path / "t") == after[1] | {"a": {"id": "a", "city": "sf", "ts": 11, "fare": 11.0}}


def test_a_pending_compaction_stays_where_only_later_logs_go(tmp_path: Path) -> None:
    table, instants, after = written(tmp_path / "t", type="merge_on_read")
    (plan,) = table.schedule_compaction().scheduled
    assert plan in refused(lambda: back(table, "rollback", instants[3]))
    last = write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    back(table, "rollback", last.instant)
    assert timeline.read(connect(table.url)).compactions() == {plan}
    assert ours(table) == after[3]
    compact(table)
    assert ours(table) == theirs(tmp_path / "t") == after[3]


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_replaced_partitions_come_back(tmp_path: Path, version: int) -> None:
    table, instants, after = written(tmp_path / "t", version=version)
    table.delete_partitions("city=sf", progress=False)
    assert set(ours(table)) == {"b"}
    back(table, "rollback")
    assert ours(table) == theirs(tmp_path / "t") == after[3]
    write(table, "insert_overwrite", frame(("z", "sf", 1, 1.0)))
    back(table, "restore", instants[3])
    assert ours(table) == theirs(tmp_path / "t") == after[3]


def test_what_cannot_be_taken_back_is_one_line_and_nothing_changes(tmp_path: Path) -> None:
    table, instants, after = written(tmp_path / "t", count=5)
    ledger, there = quire.Ledger(table.url), files(tmp_path / "t")
    assert "table.timeline() lists them" in refused(lambda: back(table, "restore", "20200101000000000"))
    assert "instant takes an instant" in refused(lambda: back(table, "restore", "today"))
    assert "is read, not restored" in refused(lambda: back(table.as_of(instants[2]), "restore", instants[1]))
    assert "is read, not rolled back" in refused(lambda: back(table.as_of(instants[2]), "rollback"))
    table.savepoint(instants[3])
    assert f"table.delete_savepoint('{instants[3]}')" in refused(lambda: back(table, "restore", instants[1]))
    assert back(table, "rollback").taken_back == (instants[4],), "that of the savepoint stays"
    assert f"table.delete_savepoint('{instants[3]}')" in refused(lambda: back(table, "rollback"))
    table.delete_savepoint(instants[3])
    there = files(tmp_path / "t")
    with ledger.pin(ledger.refresh().version):
        assert "holds what would be taken back" in refused(lambda: back(table, "restore", instants[1]))
    assert files(tmp_path / "t") == there
    table.clean(versions=1, progress=False)
    line = refused(lambda: back(table, "restore", instants[1]))
    assert f"It can from {instants[3]} on" in line
    assert f"It can from {instants[3]} on" in refused(lambda: back(table, "rollback"))
    for n in range(2):
        write(table, "upsert", frame(("a", "sf", 10 + n, 1.0)))
    table.archive(keep=1, progress=False)
    assert "are archived" in refused(lambda: back(table, "restore", instants[1]))
    assert "nothing to go back to" in refused(lambda: back(table, "rollback"))
    assert ours(table).keys() == after[3].keys()
    assert not protocol.open_jobs(connect(f"table+{table.url}"), log_of(tmp_path / "t"))


def test_a_chain_whose_first_table_was_restored_says_so_and_names_the_repair(tmp_path: Path) -> None:
    first, instants, _ = written(tmp_path / "one", count=2, ordering=None)
    second = Table.create(tmp_path / "two", key="id", partition_by="city")

    def passed_on(split: Any, changes: pa.Table) -> pa.Table:
        return pa.Table.from_struct_array(changes["after"].combine_chunks())

    def chain(into: Table = second) -> Any:
        return quire.process(first, into, passed_on, spark=LOCAL, progress=False)

    chain()
    followed = str(second.timeline(last=1)["instant"].iloc[0])
    gone = write(first, "upsert", frame(("a", "sf", 5, 5.0)))
    chain()
    write(first, "upsert", frame(("a", "sf", 6, 6.0)))
    chain()
    back(first, "restore", instants[1])
    write(first, "upsert", frame(("z", "la", 6, 6.0)))
    line = refused(chain)
    assert f"has no commit {gone.instant} any more (nor 1 of the later ones)" in line
    assert "it was rolled back" in line
    assert f"quire.Table({second.url!r}).restore({followed!r}) takes these changes back" in line
    assert "pass it on into a new table" in line
    assert ours(second) != ours(first)
    back(second, "restore", followed)
    chain()
    assert ours(second) == ours(first) == theirs(tmp_path / "two"), "what the line says has repaired it"
    back(first, "restore", instants[0])
    assert ".restore(" not in (line := refused(chain)), "it has no state from before the rows that it began with"
    assert "pass it on into a new table" in line
    new = Table.create(tmp_path / "three", key="id", partition_by="city")
    chain(new)
    assert ours(new) == ours(first) == theirs(tmp_path / "three")


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_a_publisher_that_slept_does_not_bring_a_write_back(tmp_path: Path, version: int) -> None:
    table, instants, after = written(tmp_path / "t", version=version)
    store = connect(f"table+{table.url}")
    line = timeline.current(store)
    name = f"{line.folder}/{line.completed[-1].name}"
    put = store.get(name)
    back(table, "rollback")
    store.put(name, put)
    quire.recover(table.url)
    assert not [name for name in files(tmp_path / "t") if instants[3] in name]
    assert ours(table) == theirs(tmp_path / "t") == after[2]


@pytest.mark.nth(4)
@pytest.mark.parametrize(("verb", "version"), [("rollback", 6), ("restore", 6), ("rollback", 9), ("restore", 9)])
def test_a_writer_beside_comes_before_it_or_after_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, version: int
) -> None:  # fmt: skip
    """A write lands between the round's look and its slot: a restore takes it back, too, a rollback is refused, as it is the newest."""
    table, instants, after = written(tmp_path / "t", version=version)
    say, met = taking_back.TakeBack.say, list[str]()

    def beside(self: Any, view: Any, closing: Any, done: Any) -> Any:
        found = say(self, view, closing, done)
        if not met:
            met.append("")
            met[0] = write(table, "upsert", frame(("b", "la", 9, 9.0), ("x", "la", 9, 9.0))).instant
        return found

    monkeypatch.setattr(taking_back.TakeBack, "say", beside)
    if verb == "restore":
        assert back(table, "restore", instants[1]).taken_back == (met[0], instants[3], instants[2])
        assert ours(table) == theirs(tmp_path / "t") == after[1]
    else:
        line = refused(lambda: back(table, "rollback"))
        assert f"{met[0]} of" in line
        assert set(ours(table)) == {*after[3], "x"}


@pytest.mark.nth(4)
@pytest.mark.parametrize("how", FORMS)
def test_a_writer_whose_round_was_built_on_what_goes_begins_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:  # fmt: skip
    table, instants, after = written(tmp_path / "t", **how)
    say, met = closer._Rows.say, list[None]()

    def beside(self: Any, view: Any, closing: Any, done: Any) -> Any:
        found = say(self, view, closing, done)
        if not met:
            met.append(None)
            back(table, "restore", instants[1])
        return found

    monkeypatch.setattr(closer._Rows, "say", beside)
    write(table, "upsert", frame(("b", "la", 9, 9.0)))
    expected = after[1] | {"b": {"id": "b", "city": "la", "ts": 9, "fare": 9.0}}
    assert ours(table) == theirs(tmp_path / "t") == expected


def dies(verb: str, fault: str, at: int, how: Mapping[str, Any]) -> bool:
    """A call dies at its change number `at`, and a next one completes it; False: it came to its end before that."""
    sim.forget_all()
    world = sim.World(kind=sim.TABLES["hdfs"], observe=False)
    rows = [FIRST, SECOND, [("b", "sf", 3), ("e", "la", 3)]]
    with world.installed():
        table = Table.create(world.dest, key="id", partition_by="city", index="simple", **how)
        instants, states = list[str](), list[Any]()
        for n, each in enumerate(rows):
            instants.append(table.upsert(sim_frame(each), batch=f"{n}", spark=LOCAL, progress=False).instant)
            states.append(seen(outside(world.there())))
        wanted, given = (0, instants[0]) if verb == "restore" else (1, instants[2])
        shown = [2]

        def look(op: str = "", name: str = "") -> None:
            now = states.index(seen(outside(world.there())))
            assert now in (shown[-1], shown[-1] - 1), f"{op} {name}: {shown} {now}"
            shown.append(now)

        world.on = look
        dead = sim.Actor(faults={at: fault})
        sim.run(world, dead, lambda: back(table, verb, given))
        with world.acting(sim.Actor("next")):
            back(table, verb, given)
            look()
            assert shown[-1] == wanted
            world.on = lambda *_: None
            for n in range(wanted + 1, 3):
                again = table.upsert(sim_frame(rows[n]), batch=f"{n}", spark=LOCAL, progress=False)
                assert not again.again, "a batch that was taken back comes again"
        assert seen(outside(world.there())) == states[2]
        assert not [name for name in world.there() if "/jobs/" in name]
    return bool(dead.hit)


@pytest.mark.nth(6)
@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize(("verb", "how"), [("restore", {}), ("rollback", LOGS), ("restore", NINE)], ids=["base", "logs", "version 9"])
def test_a_call_that_dies_at_a_change_is_completed_by_the_next(verb: str, how: dict[str, Any], fault: str) -> None:
    """Some changes; the chaos lane takes each of them."""
    for at in range(1 + len(fault) % 2, 1000, 11):
        if not dies(verb, fault, at, how):
            assert at > 15
            return


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous"])
@pytest.mark.parametrize("how", [{}, LOGS, NINE], ids=["base", "logs", "version 9"])
@pytest.mark.parametrize("verb", ["restore", "rollback"])
def test_a_call_may_die_at_each_change(verb: str, fault: str, how: dict[str, Any]) -> None:
    for at in range(1, 1000):
        if not dies(verb, fault, at, how):
            assert at > 15
            return
