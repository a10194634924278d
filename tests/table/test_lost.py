"""Two programs that write into one file group of a table with logs at once: the next recover tells what one hides of the other."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_compaction import compact
from test_merge_on_read_writes import FIRST, logged
from test_writes import LOCAL, frame, log_of, ours, theirs, write

import quire
from quire.commit import protocol
from quire.storage import connect
from quire.table import file_groups, rounds, timeline
from quire.table.file_groups import Slice
from quire.table.format import avro_file
from quire.table.table import Table

A, B, NEW = (frame((key, "sf", 2, 2.0)) for key in ("a", "b", "z"))


def change(rows: Any) -> Callable[[Table], str]:
    return lambda table: str(write(table, "upsert", rows).instant)


def compacted(table: Table) -> str:
    (instant,) = compact(table).completed
    return instant


def scheduled(table: Table) -> str:
    (instant,) = table.schedule_compaction().scheduled
    return instant


def beside(place: Path, *steps: tuple[str, Callable[[Table], str]]) -> tuple[str, ...]:
    """The instants of two programs that began with the same table: "ours" writes into it, "theirs" into a copy, whose files come here."""
    copy = place.with_name("copy")
    shutil.copytree(place, copy)
    before = {path.relative_to(copy) for path in copy.rglob("*")}
    instants = tuple(step(Table(place if who == "ours" else copy)) for who, step in steps)
    for path in sorted(copy.rglob("*"), reverse=True):  # the data first
        name = path.relative_to(copy)
        if path.is_file() and name not in before and "_quire" not in name.parts:
            assert not (place / name).exists()
            shutil.copy(path, place / name)
    return instants


def table_of(place: Path) -> Table:
    table = logged(place, partition_by=None)
    write(table, "upsert", FIRST)
    return table


@pytest.mark.nth(12)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    ("before", "keeps", "hides"),
    [
        pytest.param(A, ("ours", change(B)), ("theirs", compacted), id="our log by their compaction"),
        pytest.param(A, ("theirs", change(B)), ("ours", compacted), id="their log by our compaction"),
        pytest.param(None, ("ours", change(B)), ("theirs", change(NEW)), id="our log by their base file"),
        pytest.param(None, ("theirs", change(B)), ("ours", change(NEW)), id="their log by our base file"),
    ],
)
def test_a_log_that_the_other_program_hides_is_told(
    tmp_path: Path, before: Any, keeps: Any, hides: Any, first: int, version: int
) -> None:  # fmt: skip
    place = tmp_path / "trips"
    table = table_of(place)
    if before is not None:
        write(table, "upsert", before)
    instants = beside(place, *((keeps, hides) if first == 0 else (hides, keeps)))
    lost, by = instants if first == 0 else reversed(instants)
    done = quire.recover(place)
    if first and version == 9:  # the log has ended after the new slice was begun, and belongs to it
        assert done.lost_updates == ()
        assert ours(table)["b"]["fare"] == 2.0
        return
    (line,) = done.lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    assert line in str(done)
    assert ours(table)["b"]["fare"] == 2.5, "the row is hidden"
    assert ours(table) == theirs(place)
    assert ours(table)["a"]["fare"] == (1.5 if before is None else 2.0), "and those that the plan names are not"
    again = quire.recover(place)
    assert (again.foreign, again.lost_updates) == ((), (line,)), "it stays in the log, and is not entered again"


def clustered(table: Table) -> str:
    (instant,) = table.cluster(sort="ts", spark=LOCAL, progress=False).instants
    return instant


def overwritten(table: Table) -> str:
    return str(table.insert_overwrite(NEW, spark=LOCAL, progress=False).instant)


@pytest.mark.nth(2)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("replaces", [clustered, overwritten])
def test_what_the_other_program_writes_into_replaced_file_groups_is_told(tmp_path: Path, replaces: Any, first: int) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    steps = (("theirs", change(B)), ("ours", replaces))
    instants = beside(place, *(steps if first == 0 else reversed(steps)))
    lost, by = instants if first == 0 else reversed(instants)
    (line,) = quire.recover(place).lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    assert ours(table) == theirs(place)
    assert ours(table).get("b", {"fare": 2.5})["fare"] == 2.5, "the row is hidden"
    write(table, "upsert", A)
    assert quire.recover(place).lost_updates == (line,), "what comes later has seen it all"


PLAN = {
    "type": "record", "name": "HoodieRequestedReplaceMetadata", "fields": [{"name": "clusteringPlan", "type": {
        "type": "record", "name": "HoodieClusteringPlan", "fields": [{"name": "inputGroups", "type": {"type": "array", "items": {
            "type": "record", "name": "HoodieClusteringGroup", "fields": [{"name": "slices", "type": {"type": "array", "items": {
                "type": "record", "name": "HoodieSliceInfo", "fields": [
                    {"name": "dataFilePath", "type": ["null", "string"]}, {"name": "fileId", "type": "string"},
                    {"name": "deltaFilePaths", "type": {"type": "array", "items": "string"}}, {"name": "partitionPath", "type": "string"},
                ],
            }}}],
        }}}],
    }}],
}  # fmt: skip


def lay_plan(place: Path, at: str, slices: list[Slice]) -> None:
    """The plan of a clustering, as JVM Hudi has it, which names files by their whole paths."""
    inputs = [
        {"slices": [{
            "dataFilePath": f"file:{place}/{one.name}", "fileId": one.group, "partitionPath": one.partition,
            "deltaFilePaths": [f"file:{place}/{log}" for log in one.logs],
        }]} for one in slices
    ]  # fmt: skip
    said = avro_file.of_record({"clusteringPlan": {"inputGroups": inputs}}, PLAN)
    (place / f".hoodie/{at}.replacecommit.requested").write_bytes(said)


@pytest.mark.nth(2)
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("ours_writes", [change(B), compacted], ids=["log", "base file"])
def test_what_another_program_s_clustering_has_not_read_is_told(tmp_path: Path, ours_writes: Any, first: int) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    store = connect(table.url)
    seen = file_groups.newest(store, timeline.read(store), logs=True)
    steps = (("ours", ours_writes), ("theirs", clustered))
    instants = beside(place, *(steps if first == 0 else reversed(steps)))
    lost, by = instants if first == 0 else reversed(instants)
    lay_plan(place, by, seen)
    done = quire.recover(place)
    if ours_writes is compacted:
        assert done.lost_updates == (), "the rows of its logs are in what the clustering has read"
    else:
        (line,) = done.lost_updates
        assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
        assert [each.names for each in table.doctor().findings if each.kind == "lost update"] == [(lost,)]
        assert ours(table)["b"]["fare"] == 2.5, "the row is hidden"
    assert ours(table) == theirs(place)


def test_logs_that_another_program_s_clustering_has_not_read_are_told_though_a_compaction_has_merged_them(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    store = connect(table.url)
    seen = file_groups.newest(store, timeline.read(store), logs=True)
    lost, _, by = beside(place, ("ours", change(B)), ("ours", compacted), ("theirs", clustered))
    lay_plan(place, by, seen)
    (line,) = quire.recover(place).lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    assert ours(table) == theirs(place)


def test_a_compaction_of_the_program_that_clusters_loses_nothing(tmp_path: Path) -> None:
    """Its base files are not in the clustering's plan, and their rows are in the logs that the plan names."""
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    store = connect(table.url)
    seen = file_groups.newest(store, timeline.read(store), logs=True)
    _, by = beside(place, ("theirs", compacted), ("theirs", clustered))
    lay_plan(place, by, seen)
    done = quire.recover(place)
    assert (len(done.foreign), done.lost_updates) == (2, ())
    assert ours(table) == theirs(place)


def test_a_later_update_of_clustered_file_groups_is_told_where_no_plan_is(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    by, lost = beside(place, ("theirs", clustered), ("ours", change(B)))
    (line,) = quire.recover(place).lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    assert ours(table) == theirs(place)


def test_what_comes_into_a_file_group_after_another_program_has_clustered_it_is_read_by_nobody(tmp_path: Path) -> None:
    """A base file of ours is later than the instant at which its file group has ended: its keys would be there twice."""
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    by, _ = beside(place, ("theirs", clustered), ("ours", compacted))
    assert ours(table) == theirs(place)
    assert ours(table.as_of(by)) == ours(table)
    for n in range(3):
        write(table, "upsert", frame((f"n{n}", "sf", n, 0.0)))
    now = ours(table)
    assert f"was replaced at {by}" in table.archive(keep=1, progress=False).held_by, "else it would be read again"
    table.clean(versions=1, progress=False)
    assert table.archive(keep=1, progress=False).first > by
    assert ours(table) == theirs(place) == now


def test_clusterings_of_programs_that_take_turns_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    for n in range(3):
        write(table, "upsert", A)
        store = connect(table.url)
        seen = file_groups.newest(store, timeline.read(store), logs=True)
        (by,) = beside(place, ("theirs", clustered))
        lay_plan(place, by, seen)
        shutil.rmtree(place.with_name("copy"))
        write(table, "upsert", B)
        if n:
            compact(table)
        assert quire.recover(place).lost_updates == ()
    assert ours(table) == theirs(place)


def test_a_log_that_our_plan_lacks_is_told_before_it_is_hidden(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    by, lost = beside(place, ("ours", scheduled), ("theirs", change(B)))
    assert ours(table)["b"]["fare"] == 2.0
    (line,) = quire.recover(place).lost_updates
    assert f"updates of {lost} are lost in 1 file group: {by} was built without them" in line
    compact(table, schedule=False)
    assert ours(table)["b"]["fare"] == 2.5
    assert quire.recover(place).lost_updates == (line,)


def test_a_log_of_ours_that_is_still_to_appear_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its writer died, or is asleep, and whoever sees the other program's base file enters it before that log is there."""
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)

    def dies(*args: Any) -> None:
        raise KeyboardInterrupt

    def killed(table: Table) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(protocol, "publish", dies)
            with pytest.raises(KeyboardInterrupt):
                write(table, "upsert", B, batch="killed")
        return ""

    _, by = beside(place, ("ours", killed), ("theirs", compacted))
    log = log_of(place)
    (waits,) = log.unpublished()
    entry = rounds.unknown(log)
    assert entry is not None
    assert [(each.lost, each.by, each.groups) for each in entry.lost] == [(rounds.round_of(waits.tasks[-1]).instant, by, 1)]


def test_programs_that_take_turns_lose_no_log(tmp_path: Path) -> None:
    """Whoever compacts, and whoever writes base files of a table with logs."""
    place = tmp_path / "trips"
    table = table_of(place)
    for step in (change(A), compacted, change(B), compacted, change(NEW), change(A)):
        beside(place, ("theirs", step))
        shutil.rmtree(place.with_name("copy"))
        done = quire.recover(place)
        assert (len(done.foreign), done.lost_updates) == (1, ())
        write(table, "upsert", frame(("c", "la", 9, 9.0)))
        if step is compacted:
            compact(table)
    assert quire.recover(place).lost_updates == ()
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 2.0, "b": 2.0, "c": 9.0, "z": 2.0}
    assert ours(table) == theirs(place)


def test_what_a_damaged_log_or_plan_would_tell_does_not_keep_anybody_from_recovering(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    beside(place, ("ours", change(B)), ("theirs", compacted))
    for log in place.glob(".*.log.2_*"):
        log.write_bytes(b"not a log")
    done = quire.recover(place)
    assert (len(done.foreign), done.lost_updates) == (1, ())
    assert timeline.read(connect(table.url)).completed
