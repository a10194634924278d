"""Chains, topics and histories of tables of version 9: a commit counts from when it ended, and comes once, whatever its instant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_archived_timeline import archive, lay, leave, line_of
from test_chain import passed, plainly, twice
from test_changes_by_end import LOGS, ended, reorder, slow
from test_emit import cluster, emit, followed, sent, topic
from test_views import same, unpacked
from test_writes import LOCAL, create, frame, ours, write

from gathering import refused
from quire.errors import RefusedError
from quire.storage import connect
from quire.storage.within import marked
from quire.table import emitted, source
from quire.table.emitted import State, Target
from quire.table.format import names
from quire.table.format.names import Instant
from quire.table.format.schema import META
from quire.table.table import Table

__all__ = ["cluster", "slow", "topic"]  # fixtures


def hidden(folder: Path, at: Instant) -> Path:
    """A write that has not ended yet."""
    path = folder / names.TIMELINE / at.name
    return path.rename(folder.with_name(path.name))


def nine(folder: Path) -> Table:
    """A table of version 9 with two commits."""
    table = create(folder, version=9)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    return table


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_a_table_of_version_9_follows_one_and_is_followed_with_deletes_and_replaced_partitions(tmp_path: Path, version: int) -> None:
    a, b = nine(tmp_path / "a"), create(tmp_path / "b", ordering=None, version=version)
    assert (passed(a, b, plainly).files, ours(b)) == (2, ours(a))
    write(a, "upsert", frame(("a", "sf", 3, 3.0), ("c", "la", 1, 1.0)))
    write(a, "delete", frame(("b", "la", 4, 0.0)))
    write(a, "insert_overwrite", frame(("x", "sf", 1, 7.0)))
    seen = list[str]()
    report = passed(a, b, lambda split, found: seen.append(split.version) or plainly(split, found))
    assert (report.files, ours(b)) == (3, ours(a))
    assert set(seen) <= {each.time for each in line_of(tmp_path / "a").completed}, "instants, without their ends"
    assert passed(a, b, plainly).files == 0


def test_a_commit_that_ends_after_later_ones_is_passed_on_then_and_once(slow: Path) -> None:
    a, b, late = Table(slow), create(slow.with_name("b"), ordering=None), ended(slow)[-1]
    waits = hidden(slow, late)
    assert (passed(a, b).files, ours(b)) == (3, twice(ours(a)))
    assert "d" not in ours(b)
    waits.rename(slow / names.TIMELINE / late.name)
    assert (passed(a, b).files, ours(b)) == (1, twice(ours(a)))
    assert "d" in ours(b)
    assert passed(a, b).files == 0


def test_commits_that_wait_are_taken_in_the_order_in_which_they_end(slow: Path) -> None:
    first, *later = ended(slow)
    found = source.window(source.Commits(Table(slow).url), {first.time}, "b")
    assert found.commits == tuple(each.time for each in later) != tuple(sorted(found.commits))


@pytest.mark.nth(4)
@pytest.mark.parametrize("name", [name for name in LOGS if "delete_ord" not in name])  # of that a column is called as deletes are
@pytest.mark.parametrize("seed", [None, 3])
def test_logs_that_were_written_at_once_are_passed_on_in_the_order_in_which_they_end(tmp_path: Path, name: str, seed: int | None) -> None:
    """Two at a time, so that one job has commits whose instants have the other order."""
    unpacked(name, tmp_path / "a")
    reorder(tmp_path / "a", seed)
    a, line = Table(tmp_path / "a"), ended(tmp_path / "a")
    has = a.config
    b = Table.create(tmp_path / "b", key=list(has.key), partition_by=list(has.partition_by) or None, hive_style=has.hive_style)
    waiting = [(hidden(tmp_path / "a", each), each) for each in line[1:]]
    for path, each in [(None, line[0]), *waiting]:
        if path is not None:
            path.rename(tmp_path / "a" / names.TIMELINE / each.name)
        if each in line[::2] or each == line[-1]:
            passed(a, b, plainly)
            left, right = (table.snapshot(spark=LOCAL).drop_columns(list(META)) for table in (a, b))
            assert same(left, right)


def test_what_was_archived_was_passed_on_or_the_chain_says_that_it_cannot_follow(tmp_path: Path) -> None:
    a, b, c = nine(tmp_path / "a"), create(tmp_path / "b", ordering=None), create(tmp_path / "c", ordering=None)
    passed(a, b), passed(a, c)
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    assert passed(a, b).files == 1
    write(a, "upsert", frame(("a", "sf", 4, 4.0)))
    archive(tmp_path / "a", 2)
    assert (passed(a, b).files, ours(b)) == (1, twice(ours(a))), "what it has is archived"
    write(a, "upsert", frame(("a", "sf", 5, 5.0)))
    archive(tmp_path / "a", 1)
    with refused(RefusedError, 2, "has archived instants before", "pass it on into a new table"):
        passed(a, c)
    assert (passed(a, b).files, ours(b)) == (1, twice(ours(a)))


def test_a_commit_that_is_archived_while_an_older_one_stays_was_not_rolled_back(tmp_path: Path) -> None:
    a, b = nine(tmp_path / "a"), create(tmp_path / "b", ordering=None)
    write(a, "upsert", frame(("a", "sf", 3, 3.0)))
    passed(a, b)
    middle = line_of(tmp_path / "a").completed[1]
    lay(tmp_path / "a", [[(middle.time, middle.ended, middle.action)]])
    leave(tmp_path / "a", {middle.time})
    write(a, "upsert", frame(("a", "sf", 4, 4.0)))
    assert (passed(a, b).files, ours(b)) == (1, twice(ours(a)))
    leave(tmp_path / "a", {(gone := line_of(tmp_path / "a").completed[-1]).time})
    with refused(RefusedError, 2, f"has no commit {gone.time} any more", "rolled back"):
        passed(a, b)


def test_a_commit_that_ends_late_is_emitted_then_and_once(cluster: Any, slow: Path, topic: str) -> None:
    table, late = Table(slow), ended(slow)[-1]
    waits = hidden(slow, late)
    assert (emit(cluster, table, topic).commits, followed(cluster, topic)) == (3, ours(table))
    waits.rename(slow / names.TIMELINE / late.name)
    report = emit(cluster, table, topic)
    assert (report.commits, report.records, followed(cluster, topic)) == (1, 2, ours(table))
    assert {key["id"] for _, key, value in sent(cluster, topic) if value and value["source"]["instant"] == late.time} == {"c", "d"}
    assert emit(cluster, table, topic).records == 0


@pytest.mark.nth(2)
@pytest.mark.parametrize("at", ["time", "ended"])
def test_a_topic_that_begins_after_an_instant_has_what_ended_after_it(cluster: Any, slow: Path, topic: str, at: str) -> None:
    """The last one but one, by its instant or by when it ended: the late one was begun before both."""
    since = getattr(ended(slow)[-2], at)
    assert emit(cluster, Table(slow), topic, since=since).commits == 1
    found = {(value["op"], key["id"]) for _, key, value in sent(cluster, topic) if value}
    assert found == {("u", "c"), ("c", "d")}


def test_the_state_of_a_topic_keeps_the_commit_that_ended_last(tmp_path: Path) -> None:
    """By it a call tells later whether all since were there to read; the newest instant may have ended long before."""
    create(tmp_path, version=9)
    begun, first, second, third, now = (f"2026112210000{number:04}" for number in (0, 1, 2, 3, 9))
    lay(
        tmp_path,
        [[(first, f"{first[:-4]}0004", "commit"), (second, f"{first[:-4]}0008", "commit"), (third, f"{first[:-4]}0005", "commit")]],
    )
    (tmp_path / names.TIMELINE / f"{now}_{first[:-4]}0010.commit").touch()
    store = connect(marked(tmp_path.as_uri()))
    found = emitted.mark(store, Target("c", "t", "1"), State(), (begun, first, second, third), line_of(tmp_path))
    assert found is not None
    assert found.instants == {begun, second}


def test_a_history_follows_a_table_of_version_9_from_what_is_there(tmp_path: Path) -> None:
    table = nine(tmp_path)
    write(table, "delete", frame(("a", "sf", 3, 0.0)))
    assert [row["op"] for row in table.history("a").rows()] == ["i", "u", "d"]
    first, second, _ = line_of(tmp_path).completed
    lay(tmp_path, [[(second.time, second.ended, second.action)]])
    leave(tmp_path, {second.time})
    assert table.history("a").since == second.time, "archives may be without their cleans, and go up to here"
    assert line_of(tmp_path).first == first.time
