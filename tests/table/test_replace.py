"""Partitions replaced and taken away: as quire and hudi-rs read them, beside other writers, and as changes and chains tell them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_table_crash import Story, at_the_slot
from test_writes import LOCAL, create, frame, ours, theirs, write

import quire
import sim
from gathering import refused
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.log import Log
from quire.errors import RefusedError, TransientError, UsageError
from quire.storage import connect
from quire.table import closer, file_groups, rounds, timeline
from quire.table.format import names
from quire.table.table import Table
from sim.tables import frame as few
from sim.tables import outside, seen

LOGS = {"type": "merge_on_read"}
HOW = [{}, LOGS, {"index": "bucket", "buckets": 2}, {**LOGS, "index": "bucket", "buckets": 2}]
CALM: dict[str, Any] = {"progress": False}


@pytest.mark.nth(4)
@pytest.mark.parametrize("how", HOW, ids=["base", "logs", "buckets", "logs of buckets"])
def test_the_rows_of_whole_partitions_are_replaced_and_taken_away(tmp_path: Path, how: dict[str, Any]) -> None:
    folder = tmp_path / "t"
    table = create(folder, **how)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), ("c", "la", 1, 1.0), ("d", "ny", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    before = file_groups.newest(connect(table.url), timeline.read(connect(table.url)))
    new = frame(("a", "sf", 2, 2.0), ("e", "sf", 2, 2.0), ("f", "xx", 2, 2.0))
    done = write(table, "insert_overwrite", new, batch="one")
    # The ordering of a row that is replaced does not count.
    assert {key: row["ts"] for key, row in ours(table).items()} == {"a": 2, "e": 2, "c": 1, "d": 1, "f": 2}
    assert theirs(folder) == ours(table)
    ended = sum(one.partition == "city=sf" for one in before)
    assert (done.inserted, done.updated, done.replaced) == (3, 0, ended)
    again = write(table, "insert_overwrite", frame(("z", "la", 9, 9.0)), batch="one")
    assert (again.again, again.replaced, again.instant) == (True, ended, done.instant)

    write(table, "upsert", frame(("a", "sf", 5, 5.0), ("g", "sf", 5, 5.0)))
    write(table, "delete", frame(("e", "sf", 6, 0.0)))
    assert {key: row["ts"] for key, row in ours(table).items()} == {"a": 5, "g": 5, "c": 1, "d": 1, "f": 2}
    gone = table.delete_partitions(["city=la", {"city": "ny"}], batch="two", **CALM)
    assert (gone.replaced, gone.data_files, gone.inserted, bool(gone.instant)) == (2, 0, 0, True)
    assert table.delete_partitions("city=la", batch="two", **CALM).again, "la is gone, and the batch is the same"
    assert theirs(folder) == ours(table)
    assert ours(table).keys() == {"a", "g", "f"}

    write(table, "upsert", frame(("c", "la", 0, 7.0)))
    assert {key: row["ts"] for key, row in ours(table).items()} == {"a": 5, "g": 5, "f": 2, "c": 0}, "a new row, whatever there was"
    assert theirs(folder) == ours(table)
    assert ours(table.as_of(first.instant)).keys() == {"a", "b", "c", "d"}
    if "index" in how:
        last = file_groups.newest(connect(table.url), timeline.read(connect(table.url)))
        assert all(one.group[:8].isdigit() and int(one.group[:8]) < 2 for one in last), "buckets keep their numbers"
        assert not {(one.partition, one.group) for one in before if one.partition != "city=ny"} & {(o.partition, o.group) for o in last}


def test_what_stands_on_the_timeline_is_what_hudi_writes(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    groups = {one.partition: one.group for one in file_groups.newest(connect(table.url), timeline.read(connect(table.url)))}
    done = write(table, "insert_overwrite", frame(("c", "sf", 1, 1.0), ("n", "ny", 1, 1.0)))
    gone = table.delete_partitions("la", **CALM)
    home = tmp_path / "t" / ".hoodie"
    for report, operation, ended in ((done, "INSERT_OVERWRITE", "city=sf"), (gone, "DELETE_PARTITION", "city=la")):
        said = json.loads((home / f"{report.instant}.replacecommit").read_text())
        assert (said["operationType"], said["partitionToReplaceFileIds"]) == (operation, {ended: [groups[ended]]})
        assert json.loads(said["extraMetadata"]["schema"])["fields"], "readers fail without a schema"
        with (home / f"{report.instant}.replacecommit.requested").open("rb") as file:
            assert [record["version"] for record in fastavro.reader(file)] == [1]
        assert (home / f"{report.instant}.replacecommit.inflight").read_bytes() == b""


def test_a_table_without_partitions_is_replaced_as_a_whole(tmp_path: Path) -> None:
    table = create(tmp_path / "t", partition_by=None)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "insert_overwrite", frame(("c", "sf", 1, 1.0)))
    assert ours(table).keys() == theirs(tmp_path / "t").keys() == {"c"}
    with refused(UsageError, 2, "has no partitions"):
        table.delete_partitions("city=sf", **CALM)


def test_a_frame_without_rows_replaces_nothing(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    gone = frame(("a", "sf", 2, 1.0)).append_column("_hoodie_is_deleted", pa.array([True]))
    for rows in (frame(), gone):
        done = write(table, "insert_overwrite", rows)
        assert (done.instant, done.replaced) == ("", 0)
    assert ours(table).keys() == {"a"}


DATES = pa.schema([("id", pa.string()), ("day", pa.date32()), ("n", pa.int32())])


@pytest.mark.parametrize("hive_style", [True, False])
def test_a_partition_has_several_names(tmp_path: Path, *, hive_style: bool) -> None:
    import datetime as dt

    table = create(tmp_path / "t", partition_by=["day", "n"], ordering=None, hive_style=hive_style)
    days = [dt.date(2026, 11, day) for day in (1, 2, 3, 4)]
    rows = frame(*((f"k{i}", day, i) for i, day in enumerate(days)), ("null", None, 9), schema=DATES)
    write(table, "upsert", rows)
    path = "day=2026-11-01/n=0" if hive_style else "2026-11-01/0"
    wanted = [path, {"n": 1, "day": "2026-11-02"}, (days[2], "2"), (None, 9), path]
    assert table.delete_partitions(wanted, **CALM).replaced == 4
    assert ours(table).keys() == {"k3"}


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], ["partitions is empty"]),
        (None, ["partitions is None", "[None]"]),
        ("nowhere", ["no partition", "city=nowhere", "It has: city=la, city=sf"]),
        ("city=nowhere", ["has no partition 'city=nowhere'"]),
        (["sf", {"city": "nowhere"}], ["no partition", "city=nowhere"]),
        ({"town": "sf"}, ["does not name a partition", "city"]),
        (("sf", "la"), ["has 2 values, and a partition", "has 1"]),
        ("../../x", ["no partition"]),
        (".hoodie", ["no partition"]),
        (7, ["no partition"]),
    ],
)
def test_a_partition_that_is_not_there_is_one_line(tmp_path: Path, given: Any, words: list[str]) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    with refused(UsageError, 2, *words):
        table.delete_partitions(given, **CALM)
    assert ours(table).keys() == {"a", "b"}
    assert protocol.open_jobs(connect(f"table+file://{tmp_path / 't'}"), protocol.recover(connect(f"table+file://{tmp_path / 't'}"))) == []


def test_changes_tell_what_was_replaced(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), ("c", "la", 1, 1.0)))
    second = write(table, "insert_overwrite", frame(("a", "sf", 2, 2.0), ("d", "sf", 2, 2.0)))
    third = table.delete_partitions("city=la", **CALM)

    def told(since: str, until: str | None = None) -> set[tuple[str, str, Any, Any]]:
        found = table.changes(since, until, images="both", spark=LOCAL).to_pylist()
        images = [(each["before"] and each["before"]["ts"], each["after"] and each["after"]["ts"]) for each in found]
        return {(each["op"], each["_hoodie_record_key"], *image) for each, image in zip(found, images, strict=True)}

    replaced = {("u", "a", 1, 2), ("d", "b", 1, None), ("i", "d", None, 2)}
    assert told(first.instant, second.instant) == replaced
    assert told(second.instant, third.instant) == {("d", "c", 1, None)}
    assert told(first.instant) == replaced | {("d", "c", 1, None)}


def test_a_chain_passes_on_what_was_replaced(tmp_path: Path) -> None:
    def same(split: quire.Split, changes: pa.Table) -> pa.Table:
        import pyarrow.compute as pc

        rows = pa.Table.from_struct_array(pc.coalesce(changes["after"], changes["before"]).combine_chunks())
        return rows.append_column("_hoodie_is_deleted", pc.equal(changes["op"], "d"))

    table, other = create(tmp_path / "t"), create(tmp_path / "u", ordering=None)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), ("c", "la", 1, 1.0)))
    quire.process(table, other, same, function_version="1", spark=LOCAL, progress=False)
    write(table, "insert_overwrite", frame(("a", "sf", 2, 2.0), ("d", "sf", 2, 2.0)))
    table.delete_partitions("la", **CALM)
    quire.process(table, other, same, function_version="1", spark=LOCAL, progress=False)
    assert ours(other) == ours(table)
    assert ours(other).keys() == {"a", "d"}


@pytest.mark.parametrize("how", [{}, LOGS], ids=["base", "logs"])
def test_a_key_that_inserts_had_brought_twice_is_not_told_as_deleted_beside_its_new_row(tmp_path: Path, how: dict[str, Any]) -> None:
    table = create(tmp_path / "t", **how)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    second = write(table, "bulk_insert", frame(("a", "sf", 2, 2.0), ("b", "sf", 2, 2.0)))
    write(table, "insert_overwrite", frame(("a", "sf", 3, 3.0)))

    def told(since: str) -> list[tuple[str, str, int | None]]:
        found = table.changes(since, images="both", spark=LOCAL).to_pylist()
        return [(each["op"], each["_hoodie_record_key"], each["after"] and each["after"]["ts"]) for each in found]

    assert ours(table).keys() == {"a"}
    assert set(told(second.instant)) == {("u", "a", 3), ("d", "b", None)}
    assert told(first.instant) == [("i", "a", 3)], "the net change of a is not lost: b came and went"


def test_keys_that_stand_twice_in_files_of_another_program_have_each_row_as_it_was(tmp_path: Path) -> None:
    """Its bulk inserts look for no keys, and its updates write each row of a key."""
    table = create(tmp_path / "t", change_files=False)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    for path in (tmp_path / "t").rglob("*.parquet"):
        rows = pq.read_table(path)
        pq.write_table(pa.concat_tables([rows.slice(0, 1), rows]), path)
    told = table.changes(first.instant, images="both", spark=LOCAL).to_pylist()
    assert [(each["op"], each["_hoodie_record_key"], each["before"]["ts"], each["after"]["ts"]) for each in told] == [("u", "a", 1, 2)] * 2


# ---------------------------------------------------------------------------------------------------------------- beside compactions
def test_a_compaction_that_is_pending_is_carried_out_first(tmp_path: Path) -> None:
    """Its new base files would be of file groups that have ended."""
    table = create(tmp_path / "t", type="merge_on_read")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    table.schedule_compaction()
    for call in (
        lambda: write(table, "insert_overwrite", frame(("c", "sf", 3, 3.0))),
        lambda: table.delete_partitions(["sf", "la"], **CALM),
    ):
        with refused(RefusedError, 2, "is pending", "table.compact(schedule=False)"):
            call()
    assert table.delete_partitions("la", **CALM).replaced == 1, "no plan has files of this one"
    table.compact(schedule=False, spark=LOCAL, progress=False)
    assert write(table, "insert_overwrite", frame(("c", "sf", 3, 3.0))).replaced == 1
    assert ours(table).keys() == theirs(tmp_path / "t").keys() == {"c"}


# ---------------------------------------------------------------------------------------------------------------------- and cleaned
@pytest.mark.nth(2)
@pytest.mark.parametrize("how", [{}, LOGS], ids=["base", "logs"])
def test_a_clean_takes_the_files_of_file_groups_that_have_ended(tmp_path: Path, how: dict[str, Any]) -> None:
    """A savepoint holds them; without it older instants are refused in one line, and what is read now stays."""
    table = create(tmp_path / "t", **how)
    first = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "insert_overwrite", frame(("c", "sf", 1, 1.0)))
    gone = table.delete_partitions("la", **CALM)
    table.savepoint(first.instant)
    assert table.clean(versions=1, **CALM).slices == 0
    assert ours(table.as_of(first.instant)).keys() == {"a", "b"}
    table.delete_savepoint(first.instant)
    assert table.clean(versions=1, **CALM).slices == 2
    assert ours(table).keys() == ours(table.as_of(gone.instant)).keys() == theirs(tmp_path / "t").keys() == {"c"}
    with quire.Ledger(table.url).pin(gone.version):
        pass  # the version of the deletion, which has no file, did not expire
    with refused(RefusedError, 2, "the clean", "has deleted"):
        table.as_of(first.instant).snapshot(spark=LOCAL)
    assert write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0))).inserted == 2
    assert ours(table).keys() == theirs(tmp_path / "t").keys() == {"a", "b", "c"}


# -------------------------------------------------------------------------------------------------------------------- beside writers
def overwrite(story: Story, *rows: tuple[str, str, int]) -> Any:
    return Table(story.world.dest).insert_overwrite(few(list(rows)), spark=LOCAL, progress=False)


def drop(story: Story) -> Any:
    return Table(story.world.dest).delete_partitions("sf", progress=False)


def insert(story: Story) -> Any:
    return Table(story.world.dest).bulk_insert(few([("x", "sf", 7)]), spark=LOCAL, progress=False)


@pytest.mark.nth(4)
@pytest.mark.parametrize("logs", [False, True], ids=["base", "logs"])
@pytest.mark.parametrize(
    ("first", "then", "expected"),
    [
        (lambda story: story.call([("a", "sf", 7), ("x", "sf", 7)], None), lambda story: overwrite(story, ("y", "sf", 8)), {"y": 8}),
        (lambda story: overwrite(story, ("y", "sf", 8)), lambda story: story.call([("a", "sf", 7)], None), {"y": 8, "a": 7}),
        (lambda story: overwrite(story, ("y", "sf", 8)), lambda story: story.call([("y", "sf", 9)], None), {"y": 9}),
        (insert, lambda story: overwrite(story, ("y", "sf", 8)), {"y": 8}),
        (insert, drop, {}),
        (drop, lambda story: story.call([("a", "sf", 7)], None), {"a": 7}),
        (drop, drop, {}),
        (lambda story: overwrite(story, ("y", "sf", 8)), lambda story: overwrite(story, ("z", "sf", 9)), {"z": 9}),
    ],
    ids=["upsert first", "upsert after", "upsert of its row", "insert first", "drop after an insert", "upsert after a drop", "two drops",
         "two overwrites"],
)  # fmt: skip
def test_calls_at_once_come_one_after_the_other(
    first: Callable[[Story], Any], then: Callable[[Story], Any], expected: dict[str, int], *, logs: bool
) -> None:
    """The second one has closed its round when the first is committed: it begins anew, and the rows are those of the two in their order."""
    story = Story(sim.TABLES["hdfs"], logs=logs)
    world = story.world
    with world.installed():
        story.begin()

        def other() -> None:
            with world.acting(sim.Actor("other")):
                first(story)

        at_the_slot(story, "driver", other)
        with world.acting(sim.Actor()):
            report = then(story)
        assert seen(outside(world.there())) == {"c": 1, **expected}, world.told()
        assert report.instant or (first, then) == (drop, drop), "the second one finds nothing to take away"


def test_a_plan_that_is_laid_meanwhile_ends_the_round() -> None:
    story = Story(sim.TABLES["hdfs"], logs=True)
    world = story.world
    with world.installed():
        story.begin()
        story.call([("a", "sf", 5)], None)

        def plan() -> None:
            with world.acting(sim.Actor("other")):
                Table(world.dest).schedule_compaction()

        at_the_slot(story, "driver", plan)
        with world.acting(sim.Actor()), refused(RefusedError, 2, "is pending"):
            drop(story)
        assert seen(outside(world.there())) == {"a": 5, "b": 1, "c": 1}


def test_a_round_waits_until_listings_show_that_a_partition_is_gone(tmp_path: Path) -> None:
    """Its file groups would take rows that no reader finds. A call that takes partitions away has no file whose lack would tell."""
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    store = connect(f"table+file://{tmp_path / 't'}")
    old = timeline.read(store)
    gone = table.delete_partitions("sf", **CALM)
    log = protocol.recover(store)
    slices = file_groups.newest(store, old)
    with pytest.raises(TransientError, match=rf"{gone.instant}\.replacecommit is there, and listings do not show it"):
        rounds.check_listed(log, old, slices)
    line = timeline.read(store)
    rounds.check_listed(log, line, file_groups.newest(store, line))


# ------------------------------------------------------------------------------------------------------------- other programs beside
def test_a_partition_that_another_program_brings_back_is_taken_away_again_by_its_batch(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    write(table, "upsert", frame(("b", "la", 1, 1.0)))
    gone = table.delete_partitions("sf", batch="day", **CALM)
    content = (tmp_path / "t" / names.FOLDER / f"{gone.instant}.replacecommit").read_bytes()
    for path in (tmp_path / "t" / names.FOLDER).glob(f"{gone.instant}.*"):
        path.unlink()
    assert ours(table).keys() == {"a", "b"}
    # A publisher that has slept since before it was published finds no file that would be missing.
    store = connect(f"table+file://{tmp_path / 't'}")
    (commit,) = (each for each in Log(store).refresh().outcomes() if each.tasks and each.tasks[-1].instant == gone.instant)
    store.put(objects.staged(commit.job, commit.tasks[-1].task, commit.tasks[-1].attempt, "instant.json"), content)
    closer.TableCloser().before_published(store, commit, 3)
    assert ours(table).keys() == {"a", "b"}, "it does not bring the instant back"
    (undone,) = quire.recover(table.url).rolled_back
    assert undone == commit.job
    later = table.delete_partitions("sf", batch="day", **CALM)
    assert (later.again, later.replaced) == (False, 1)
    assert ours(table).keys() == theirs(tmp_path / "t").keys() == {"b"}
