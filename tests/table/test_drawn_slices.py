"""A table as it is drawn: its slices are those that snapshots read, and a window of its instants costs what is in the window."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jvm
import pytest
from test_merge_on_read_writes import FIRST, HERE
from test_views import unpacked
from test_writes import create, frame, write

import quire
from gathering import refused
from quire.errors import RefusedError
from quire.table import file_groups, slices, timeline
from quire.table.format.names import Instant
from quire.table.slices import Drawn
from quire.table.table import Table


def story(folder: Path, kind: str) -> Table:
    """Upserts, deletes, a partition that is replaced, a compaction, a savepoint, and a plan of a compaction with logs behind it."""
    table = create(folder, type=kind)
    write(table, "upsert", FIRST)
    for ts in (2, 3):
        write(table, "upsert", frame(("a", "sf", ts, 1.0 * ts), ("c", "la", ts, 2.0 * ts)))
    table.savepoint()
    if kind == "merge_on_read":
        table.compact(**HERE)
        write(table, "upsert", frame(("a", "sf", 4, 4.0)))
    write(table, "insert_overwrite", frame(("d", "la", 1, 1.0)))
    write(table, "delete", frame(("b", "sf", 5, 0.0)))
    if kind == "merge_on_read":
        table.schedule_compaction()
        write(table, "upsert", frame(("a", "sf", 6, 6.0)))
    return table


def counting(drawn: Drawn, instant: str) -> set[str]:
    """The base files of the slices that are drawn over an instant."""
    periods = [period for group in drawn.groups for period in group.periods]
    return {one.slice.name for one in periods if one.slice.name and one.slice.instant <= instant < one.end}


def assert_read(drawn: Drawn) -> None:
    """At each instant the slices that are drawn are those that a snapshot reads."""
    line, store = drawn.line, drawn.line.store
    for instant in line.completed:
        read = {one.name for one in file_groups.newest(store, line.as_of(instant.time), logs=True) if one.name}
        assert counting(drawn, instant.time) == read, instant
    now = [period.slice for group in drawn.groups for period in group.periods if period.counts]
    assert sorted(now) == file_groups.newest(store, line, logs=True)


@pytest.mark.nth(2)
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_at_each_instant_the_slices_that_are_drawn_are_those_that_a_snapshot_reads(tmp_path: Path, kind: str) -> None:
    drawn = slices.look(story(tmp_path / "t", kind))
    assert_read(drawn)
    old = [period for group in drawn.groups for period in group.periods if not period.counts]
    assert {period.replaced for period in old} == {True, False}
    files = {entry.name for _, _, entry in file_groups.files(drawn.line.store)}
    assert {name for group in drawn.groups for period in group.periods for name in period.files} == files, "each file is in one slice"
    assert sum(len(period.files) for group in drawn.groups for period in group.periods) == len(files)


def test_a_compaction_has_its_own_lane_planned_or_done(tmp_path: Path) -> None:
    window = slices.look(story(tmp_path / "t", "merge_on_read")).window(100)
    rows = window.told()
    assert slices.lanes(rows) == ["deltacommit", "replacecommit", "compaction", "savepoint"]
    states = [(row["state"], row["action"]) for row in rows if slices.lane(row) == "compaction"]
    assert states == [("completed", "commit"), ("requested", "compaction")]


def test_a_slice_gives_some_keys_and_reads_no_log_beside_a_base_file(tmp_path: Path) -> None:
    drawn = slices.look(story(tmp_path / "t", "merge_on_read"))
    ((old, new),) = (group.periods for group in drawn.groups if group.partition == "city=sf")
    assert drawn.keys(new, 10) == ["a", "b"], "the log has deleted b, whose history can be asked for"
    assert drawn.keys(old, 1) == ["a"]
    for name in new.slice.logs:
        (tmp_path / "t" / name).unlink()
    assert drawn.keys(new, 10) == ["a", "b"]
    (tmp_path / "t" / new.slice.name).unlink()
    with refused(RefusedError, 2, new.slice.name, "was cleaned since the table was looked at. Refresh."):
        drawn.keys(new, 10)


@pytest.mark.nth(9)
@pytest.mark.parametrize("name", jvm.names())
def test_tables_of_jvm_hudi_are_drawn_as_they_are_read(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    drawn = slices.look(table)
    assert_read(drawn)
    if name.endswith("_log_only"):
        (period,) = drawn.groups[0].periods
        assert (period.slice.name, drawn.keys(period, 10)) == ("", ["k1", "k2"])


def test_a_window_of_twenty_thousand_instants_reads_its_own_commits_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = create(tmp_path / "t")
    for ts in range(4):
        write(table, "upsert", frame(("a", "sf", ts, 1.0)))
    asked, real = list[Any](), timeline.Timeline.commit
    monkeypatch.setattr(timeline.Timeline, "commit", lambda line, instant: (asked.append(instant.time), real(line, instant))[1])
    drawn = slices.look(table)
    before = tuple(Instant(f"202001010000{i:05}", "rollback") for i in range(20_000))
    drawn = dataclasses.replace(drawn, instants=(*before, *drawn.instants))
    newest = drawn.window(16)
    assert (len(newest.times), newest.newer, newest.total, len(asked)) == (16, 0, 20_004, 4)
    assert newest.last == len(newest.rows) == 16
    older = drawn.window(16, newest.newer + 16)
    assert older.times[-1] < newest.times[0]
    assert len(asked) == 4, "no write is in it"
    oldest = drawn.window(16, 30_000)
    assert oldest.times == tuple(sorted({one.time for one in drawn.instants})[:16])
    assert {newest.columns(period) for period in drawn.groups[0].periods} == {(i, i + 1) for i in range(12, 16)}
    assert {oldest.columns(period) for period in drawn.groups[0].periods} == {None}, "they came later"
    assert (older.last, oldest.last) == (32, 20_004)


def test_a_table_of_an_instant_is_drawn_as_it_was(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    first = write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 1.0)))
    drawn = slices.look(quire.Table(table.url).as_of(first.instant))
    assert [one.time for one in drawn.instants] == [first.instant]
    assert all(period.counts for group in drawn.groups for period in group.periods)
    assert len(slices.look(create(tmp_path / "empty")).window(3).times) == 0
