"""Archives of a timeline: the oldest instants leave it, and every reader sees the same rows before, meanwhile and after."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from test_clean import clean, files, refused, roll_back, written
from test_compaction import compact, table_with_logs
from test_writes import LOCAL, create, frame, log_of, ours, theirs, write

import quire
from quire.commit.entries import Commit
from quire.errors import FormatError, RefusedError
from quire.storage import connect
from quire.storage.local import LocalStore
from quire.table import archive as archive_module
from quire.table import archived_timeline, rounds, timeline
from quire.table.format import archive as stored
from quire.table.format import lsm
from quire.table.table import Table
from quire.table.upkeep import ArchiveReport


def archive(table: Table, keep: int = 1, **more: Any) -> ArchiveReport:
    return table.archive(keep=keep, progress=False, **more)


BOTH = pytest.mark.parametrize("version", [6, 9])


def place(folder: Path) -> Path:
    """Where the timeline lies."""
    return next(path for path in (folder / ".hoodie/timeline", folder / ".hoodie") if path.is_dir())


def on_timeline(folder: Path) -> list[str]:
    """The names that begin with an instant."""
    return sorted(path.name for path in place(folder).iterdir() if path.name[0].isdigit())


def line_of(folder: Path) -> timeline.Timeline:
    return timeline.current(connect(folder.as_uri()))


def state(folder: Path, instant: str) -> Path:
    """The completed state of a write."""
    return next(place(folder).glob(f"{instant}*.commit"))


def archived(folder: Path) -> list[str]:
    if place(folder).name == "timeline":
        _, files = archived_timeline.newest(connect(folder.as_uri()))
        tables = [pq.read_table(folder / each.name) for each in sorted(files)]
        return [row[lsm.INSTANT] for table in tables for row in table.to_pylist() if row["metadata"]]
    found = sorted((folder / ".hoodie/archived").glob(".commits_.archive.*"))
    return [instant for path in found for instant, _ in stored.decode(path.read_bytes(), path.name)]


@pytest.mark.nth(2)
@BOTH
def test_the_oldest_instants_go_and_no_row_does(tmp_path: Path, version: int) -> None:
    table, instants = written(tmp_path / "trips", 6, version=version)
    now, there = ours(table), files(tmp_path / "trips")
    before, names = ours(table.as_of(instants[4])), on_timeline(tmp_path / "trips")
    planned = archive(table, 2, dry_run=True)
    assert (planned.instants, planned.first, planned.dry_run) == (4, instants[4], True)
    assert on_timeline(tmp_path / "trips") == names, "a dry run archives nothing"
    report = archive(table, 2)
    assert (report.instants, report.first, "the last 2 writes stay" in report.held_by) == (4, instants[4], True)
    assert on_timeline(tmp_path / "trips") == [name for name in names if name[:17] >= instants[4]]
    assert archived(tmp_path / "trips") == instants[:4]
    assert (ours(table), files(tmp_path / "trips")) == (now, there)
    assert theirs(tmp_path / "trips") == now
    assert ours(table.as_of(instants[4])) == before
    assert f"instants before {instants[4]} are archived" in refused(lambda: ours(table.as_of(instants[3])))
    assert "archived" in refused(lambda: table.changes(instants[3], spark=LOCAL))
    assert table.changes(instants[4], spark=LOCAL).num_rows == 3
    done = quire.recover(table.url)
    assert (done.rolled_back, done.lost_updates, done.foreign) == ((), (), ())
    assert archive(table, 2).instants == 0, "a second call finds nothing"
    write(table, "upsert", frame(("a", "sf", 99, 9.0)))
    assert ours(table) == theirs(tmp_path / "trips") == now | {"a": {"id": "a", "city": "sf", "ts": 99, "fare": 9.0}}
    assert archive(table, 2).instants == 1
    assert archived(tmp_path / "trips") == instants[:5]
    assert clean(table).slices == 11
    assert ours(table) == theirs(tmp_path / "trips")
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


def test_logs_and_compactions_are_archived_too(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    compact(table)
    write(table, "upsert", frame(("a", "sf", 50, 5.0)))
    now = ours(table)
    report = archive(table)
    assert report.instants >= 2
    assert ours(table) == theirs(tmp_path / "trips") == now
    write(table, "upsert", frame(("a", "sf", 51, 5.1)))
    compact(table)
    assert ours(table) == theirs(tmp_path / "trips") == now | {"a": {"id": "a", "city": "sf", "ts": 51, "fare": 5.1}}


def held_by_savepoint(table: Table, folder: Path, instants: list[str]) -> Iterator[str]:
    table.savepoint(instants[2])
    yield "savepoint"


def held_by_pin(table: Table, folder: Path, instants: list[str]) -> Iterator[str]:
    version = 1 + next(number for number, commit in log_of(folder).recent() if commit.tasks[-1].instant == instants[2])
    with quire.Ledger(table.url).pin(version):
        yield "pin"


def held_by_a_pending_write(table: Table, folder: Path, instants: list[str]) -> Iterator[str]:
    (place(folder) / f"{int(instants[2]) + 2}.deltacommit.inflight").touch()
    yield "has not completed"


def held_by_a_file_of_nobody(table: Table, folder: Path, instants: list[str]) -> Iterator[str]:
    one = next(path for path in folder.glob("city=sf/*.parquet") if instants[2] in path.name)
    (one.parent / one.name.replace(instants[2], f"{int(instants[2]) + 2}")).write_bytes(one.read_bytes())
    yield "belongs to no completed write"


HOLDS = [held_by_savepoint, held_by_pin, held_by_a_pending_write, held_by_a_file_of_nobody]


@pytest.mark.nth(6)
@pytest.mark.parametrize(("version", "hold"), [*((6, hold) for hold in HOLDS), (9, held_by_savepoint), (9, held_by_a_pending_write)])
def test_what_is_held_stays_and_the_report_says_why(tmp_path: Path, version: int, hold: Any) -> None:
    table, instants = written(tmp_path / "trips", 5, version=version)
    now, held = ours(table), hold(table, tmp_path / "trips", instants)
    why = next(held)
    report = archive(table)
    assert why in report.held_by, report
    assert report.instants == 2
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert archive(table).held_by == report.held_by
    if why == "savepoint":
        assert ours(table.as_of(instants[2]))
        table.delete_savepoint(instants[2])
        assert archive(table).instants == 2
    next(held, None)


def sizes(folder: Path, instants: list[str]) -> list[int]:
    """The bytes of what writes have said."""
    return [state(folder, instant).stat().st_size for instant in instants]


@pytest.mark.nth(2)
@BOTH
def test_what_is_too_much_for_one_archive_goes_in_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Each is held in memory."""
    table, instants = written(tmp_path / "trips", 6, version=version)
    table.rollback(progress=False)
    write(table, "upsert", frame(("a", "sf", 99, 9.0)))
    instants = [each.time for each in line_of(tmp_path / "trips").completed]
    monkeypatch.setattr(archive_module, "LIMIT", sum(sizes(tmp_path / "trips", instants[:2])) - 1)
    planned = archive(table, dry_run=True)
    report = archive(table)
    assert (report.instants, report.first, report.held_by) == (planned.instants, planned.first, planned.held_by)
    assert (report.instants, report.first) == (5, instants[5])
    assert archived(tmp_path / "trips")[:5] == instants[:5]
    kept = [path for path in (tmp_path / "trips/.hoodie").rglob("*") if path.name.startswith((".commits_", "manifest_"))]
    assert len(kept) == 3
    assert line_of(tmp_path / "trips").completed[0].time == instants[5]
    assert ours(table) == theirs(tmp_path / "trips")
    assert archive(table).instants == 0


@pytest.mark.nth(2)
@BOTH
def test_an_instant_that_is_more_than_an_archive_takes_goes_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:  # fmt: skip
    table, instants = written(tmp_path / "trips", 4, version=version)
    monkeypatch.setattr(archive_module, "LIMIT", 1)
    report = archive(table)
    assert (report.instants, report.first, archived(tmp_path / "trips")) == (3, instants[3], instants[:3])
    assert ours(table) == theirs(tmp_path / "trips")


@BOTH
def test_what_an_archive_holds_in_memory_does_not_grow_with_the_writes_that_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:  # fmt: skip
    """Of ever more writes no more is staged at once, and no more of them are read ahead."""
    monkeypatch.setattr(archive_module, "PARALLEL", 2)
    module: Any = stored if version == 6 else lsm
    held, encode = list[int](), module.encode

    def encoded(*given: Any) -> bytes:
        held.append(len(content := encode(*given)))
        return content

    monkeypatch.setattr(module, "encode", encoded)
    table, instants = written(tmp_path / "trips", 12, version=version)
    size = max(sizes(tmp_path / "trips", instants))
    monkeypatch.setattr(archive_module, "LIMIT", 2 * size)
    assert archive(table).instants == 11
    assert len(held) >= 4
    assert max(held) < 4 * size + (8000 if version == 6 else 4000), "with the schema of an archive"
    assert archived(tmp_path / "trips") == instants[:11]


@pytest.mark.nth(2)
@BOTH
def test_a_replaced_file_group_does_not_come_back(tmp_path: Path, version: int) -> None:
    table, _ = written(tmp_path / "trips", 2, version=version)
    replaced = table.insert_overwrite(frame(("z", "sf", 9, 9.0)), spark=LOCAL, progress=False)
    for n in range(3):
        write(table, "upsert", frame((f"m{n}", "sf", n, 0.0)))
    now = ours(table)
    assert "a" not in now
    report = archive(table)
    assert (report.first, "was replaced at" in report.held_by) == (replaced.instant, True)
    assert ours(table) == theirs(tmp_path / "trips") == now
    clean(table)
    assert archive(table).instants == 3
    assert ours(table) == theirs(tmp_path / "trips") == now


@BOTH
def test_what_an_archived_write_has_replaced_is_not_missed(tmp_path: Path, version: int) -> None:
    """A clean after the last write has taken it, and nothing on the timeline says that it was replaced before."""
    table, _ = written(tmp_path / "trips", 2, version=version)
    table.insert_overwrite(frame(("z", "sf", 9, 9.0)), spark=LOCAL, progress=False)
    last = write(table, "upsert", frame(("m", "sf", 1, 0.0)))
    clean(table)
    assert archive(table).first == last.instant
    now = ours(table)
    assert ours(table.as_of(last.instant)) == now
    table.savepoint(last.instant)
    write(table, "upsert", frame(("n", "sf", 1, 0.0)))
    clean(table)
    assert ours(table.as_of(last.instant)) == now


WHILE = ["savepoint", "another program's savepoint", "pending", "pin", "rolled back", "another archive"]


@pytest.mark.nth(8)
@pytest.mark.parametrize(("version", "kind"), [*((6, kind) for kind in WHILE), (9, "savepoint"), (9, "another archive")])
def test_what_comes_while_an_archive_is_planned_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, kind: str
) -> None:  # fmt: skip
    table, instants = written(tmp_path / "trips", 5, version=version)
    module: Any = stored if version == 6 else lsm
    folder, encode, done = tmp_path / "trips", module.encode, list[Any]()
    before = ours(table.as_of(instants[1]))

    def during(*given: Any) -> bytes:
        if not done:
            done.append(1)
            if kind == "savepoint":
                table.savepoint(instants[1])
            elif kind == "another program's savepoint":
                (place(folder) / f"{instants[1]}.savepoint.inflight").touch()
            elif kind == "pending":
                (place(folder) / f"{int(instants[1]) + 2}.deltacommit.inflight").touch()
            elif kind == "pin":
                done.append(pin := quire.Ledger(table.url).pin(quire.Ledger(table.url).version))
                pin.__enter__()
            elif kind == "another archive":
                done.append(archive(table, 2))
            else:
                roll_back(folder, instants[4])
        return encode(*given)

    monkeypatch.setattr(module, "encode", during)
    report = archive(table)
    assert ours(table) == theirs(folder)
    if "savepoint" in kind:
        assert ours(table.as_of(instants[1])) == before
        assert report.instants == 1
    elif kind == "pending":
        assert report.instants == 1
    elif kind == "another archive":
        assert (done[1].instants, report.instants) == (3, 1)
    elif kind == "rolled back":
        assert report.instants == 3, "the write before is the newest again"


def test_an_older_write_that_another_program_has_let_wait_ends_an_archive(tmp_path: Path) -> None:
    """A file of it, if it is void, would be older than the timeline, and every reader would take it for committed."""
    table, instants = written(tmp_path / "trips", 4)
    archive(table)
    log = log_of(tmp_path / "trips")
    done = next(entry.tasks[-1] for entry in reversed(list(log.since(0))) if isinstance(entry, Commit))
    version = log.tip
    write(table, "upsert", frame(("a", "sf", 99, 9.0)))
    newer = str(int(max(instant for instant, *_ in log.refresh().instant_rows())) + 1)
    for horizon, over in ((instants[3], False), (newer, True)):
        said = {**done.stats.written, "instant": horizon, "version": version}
        stats = msgspec.structs.replace(done.stats, written=said)
        assert rounds.over(log, msgspec.structs.replace(done, stats=stats)) == over


def test_a_savepoint_of_what_is_being_archived_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.table import cleaning

    table, instants = written(tmp_path / "trips", 4)
    save, done = cleaning.cleaning.savepoint, list[int]()

    def during(*given: Any) -> bytes:
        if not done:
            done.append(archive(table).instants)
        return save(*given)

    monkeypatch.setattr(cleaning.cleaning, "savepoint", during)
    assert "has no completed write at" in refused(lambda: table.savepoint(instants[0]))
    assert (done, table.savepoints().empty) == ([3], True)


@pytest.mark.nth(2)
@BOTH
def test_an_archive_that_died_is_completed_by_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """It dies when two of four writes are gone."""
    table, instants = written(tmp_path / "trips", 5, version=version)
    now, remove, last = ours(table), LocalStore.remove, state(tmp_path / "trips", instants[2]).name

    def dying(self: Any, name: str) -> None:
        if name.endswith(last):
            raise KeyboardInterrupt
        remove(self, name)

    with monkeypatch.context() as m:
        m.setattr(LocalStore, "remove", dying)
        with pytest.raises(KeyboardInterrupt):
            archive(table)
    assert last in on_timeline(tmp_path / "trips")
    left = [each for each in instants if any(place(tmp_path / "trips").glob(f"{each}*.commit"))]
    assert left == instants[2:], "the oldest go first: what lies between others counts for nobody"
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert line_of(tmp_path / "trips").first == instants[4], "quire takes them for archived from the first moment on"
    quire.recover(table.url)
    assert {name[:17] for name in on_timeline(tmp_path / "trips")} == {instants[4]}
    assert ours(table) == theirs(tmp_path / "trips") == now


@BOTH
def test_what_another_program_holds_since_an_archive_was_committed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:  # fmt: skip
    table, instants = written(tmp_path / "trips", 4, version=version)
    leave, before = timeline.leave, ours(table)

    def during(*given: Any) -> None:
        (place(tmp_path / "trips") / f"{instants[1]}.savepoint.inflight").touch()
        leave(*given)

    with monkeypatch.context() as m:
        m.setattr(timeline, "leave", during)
        archive(table)
    for _ in range(2):
        left = [each for each in instants if any(place(tmp_path / "trips").glob(f"{each}*.commit"))]
        assert left == instants[1:]
        quire.recover(table.url)
    assert ours(table) == theirs(tmp_path / "trips") == before


@pytest.mark.nth(2)
@BOTH
def test_an_instant_that_a_sleeper_puts_again_hides_nothing(tmp_path: Path, version: int) -> None:
    """A publisher that slept before its last put wakes when its instant is archived: those after it seem to be missing."""
    table, instants = written(tmp_path / "trips", 5, version=version)
    now, folder = ours(table), tmp_path / "trips"
    name = state(folder, instants[0])
    again = name.read_bytes()
    clean(table)
    archive(table)
    name.write_bytes(again)
    (place(folder) / f"{instants[1]}.inflight").touch()
    assert ours(table) == now
    assert quire.recover(table.url).rolled_back == ()
    assert not name.exists(), "the next look takes it away"
    assert ours(table) == theirs(folder) == now
    write(table, "upsert", frame(("b", "la", 99, 9.0)))
    assert archive(table).instants == 1
    assert {name[:17] for name in on_timeline(folder)} == {line_of(folder).first}
    assert ours(table) == theirs(folder)


@pytest.mark.nth(2)
@BOTH
def test_a_listing_under_way_misses_no_instant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """It has seen the first instant before an archive took the first four, and comes to the second one after that."""
    table, instants = written(tmp_path / "trips", 5, version=version)
    archive(table, 5)  # there is nothing to archive yet; from now on listings show that there may be
    now, peek, done = ours(table), LocalStore.peek, list[int]()

    def slow(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        found = list(peek(self, folder, **more))
        if folder == place(tmp_path / "trips").relative_to(tmp_path / "trips").as_posix() and not done:
            done.append(0)
            done[0] = archive(table).instants
            found = [item for item in found if instants[1] not in item[0]]
        return iter(found)

    monkeypatch.setattr(LocalStore, "peek", slow)
    assert ours(table) == now
    assert done == [4]


@pytest.mark.nth(2)
@BOTH
def test_a_listing_that_ends_before_all_that_stayed_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:  # fmt: skip
    """It was so slow that all writes which it saw are archived by its end: the table looked empty."""
    table, instants = written(tmp_path / "trips", 5, version=version)
    archive(table, 5)
    now, peek, done = ours(table), LocalStore.peek, list[int]()

    def slow(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        found = list(peek(self, folder, **more))
        if folder == place(tmp_path / "trips").relative_to(tmp_path / "trips").as_posix() and not done:
            done.append(0)
            done[0] = archive(table, 2).instants
            found = [item for item in found if not item[0].startswith(tuple(instants[2:]))]
        return iter(found)

    monkeypatch.setattr(LocalStore, "peek", slow)
    assert ours(table) == now
    assert done == [3]


@BOTH
def test_an_archive_of_all_that_is_there_is_not_believed(tmp_path: Path, version: int) -> None:
    table, _ = written(tmp_path / "trips", 2, version=version)
    name = lsm.horizon_name("99991231235959999", "20261122093015123") if version == 9 else stored.name(1, "99991231235959999")
    (tmp_path / "trips" / name).parent.mkdir()
    (tmp_path / "trips" / name).touch()
    with pytest.raises(FormatError, match="no later one is on the timeline"):
        ours(table)


def test_wrong_calls_are_one_line_and_change_nothing(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 2)
    there = on_timeline(tmp_path / "trips")
    for wrong in (0, -1, True, "10", None, 1.5):
        assert "keep takes how many completed writes" in refused(lambda wrong=wrong: archive(table, wrong))
    assert "is read, not archived" in refused(lambda: archive(table.as_of(instants[0])))
    properties = tmp_path / "trips/.hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "\nhoodie.table.metadata.partitions=files\n")
    with pytest.raises(RefusedError, match="adopt"):
        archive(Table(table.url))
    assert on_timeline(tmp_path / "trips") == there
    empty = create(tmp_path / "empty")
    assert archive(empty).instants == 0


def test_archives_are_numbered_and_named_by_their_horizon() -> None:
    name = stored.name(3, "20261125030729062")
    assert name == ".hoodie/archived/.commits_.archive.3_0-20261125-30729062"
    assert stored.numbered([name, ".hoodie/archived/.commits_.archive.7_1-0-1", ".hoodie/archived/.quire"]) == (7, "20261125030729062")
    assert stored.numbered([".commits_.archive.7_0-99999999-999999999"]) == (7, ""), "a forged one is not a time"
    assert not stored.is_archive(f"{stored.FOLDER}/{stored.MARKER}")
