"""Cleans and savepoints: older slices go, the rows and all that is held stay, whoever reads and writes meanwhile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from test_compaction import compact, table_with_logs
from test_merge_on_read_writes import FIRST
from test_writes import LOCAL, create, frame, log_of, ours, theirs, write

import quire
from quire.commit import protocol
from quire.commit.entries import Expired
from quire.errors import FormatError, RefusedError, StorageError, UsageError
from quire.storage import Entry, connect
from quire.storage.local import LocalStore
from quire.table import cleaning, closer, file_groups, retention, timeline
from quire.table.format import avro_file, names
from quire.table.format import cleaning as stored
from quire.table.retention import Keep
from quire.table.table import Table
from quire.table.upkeep import CleanReport


def clean(table: Table, **more: Any) -> CleanReport:
    return table.clean(**{"versions": 1, **more}, progress=False)


def refused(call: Callable[[], object]) -> str:
    """The one line that a wrong call gets."""
    with pytest.raises(UsageError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def written(folder: Path, count: int = 5, **more: Any) -> tuple[Table, list[str]]:
    """A table of two partitions, both of whose file groups each upsert writes anew; and the instants of the upserts."""
    table = create(folder, **more)
    rows = [frame(("a", "sf", n, float(n)), ("b", "la", n, float(n)), (f"n{n}", "sf", n, 0.0)) for n in range(count)]
    return table, [write(table, "upsert", each).instant for each in rows]


def home(folder: Path) -> Path:
    """Where the timeline lies."""
    nine = folder / names.TIMELINE
    return nine if nine.is_dir() else folder / names.FOLDER


def roll_back(folder: Path, instant: str) -> None:
    """As another program does it."""
    for path in [*home(folder).glob(f"{instant}*"), *folder.rglob(f"*_{instant}.parquet")]:
        path.unlink()


def files(folder: Path) -> list[str]:
    """Base files, logs and change files."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*")
        if names.file(path.name) or (path.suffix == ".rows" and "changes" in path.parts)
    )  # fmt: skip


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_older_slices_go_and_all_that_is_held_stays(tmp_path: Path, version: int) -> None:
    table, instants = written(tmp_path / "trips", version=version)
    now, before = ours(table), [ours(table.as_of(instant)) for instant in instants]
    ledger = quire.Ledger(table.url)
    version = 1 + next(n for n, commit in log_of(tmp_path / "trips").recent() if commit.tasks[-1].instant == instants[3])
    assert table.savepoint(instants[1], comment="before the mistake") == instants[1]
    with ledger.pin(version):
        there = files(tmp_path / "trips")
        planned = clean(table, dry_run=True)
        assert (planned.slices, planned.files, planned.instant, planned.dry_run) == (4, 4, "", True)
        assert files(tmp_path / "trips") == there, "a dry run deletes nothing"
        report = clean(table)
        assert (report.slices, report.files, report.bytes) == (planned.slices, planned.files, planned.bytes)
        assert (report.readable_from, report.savepoints, report.pinned) == (instants[3], (instants[1],), (version,))
        assert ours(table) == theirs(tmp_path / "trips") == now
        for number, instant in enumerate(instants):
            if number in (1, 3, 4):
                assert ours(table.as_of(instant)) == before[number]
            else:
                assert f"cannot be read as of {instant} any more" in refused(lambda at=instant: ours(table.as_of(at)))
        assert clean(table).files == 0, "a second call finds nothing"
        with pytest.raises(UsageError, match="expired"), ledger.refresh().pin(0):
            pass
    gone = clean(table)
    assert (gone.slices, gone.pinned, gone.savepoints) == (2, (), (instants[1],))
    assert ours(table.as_of(instants[1])) == before[1]
    table.delete_savepoint(instants[1])
    assert table.savepoints().empty
    assert clean(table).slices == 2
    left = files(tmp_path / "trips")
    assert len(left) == 2, left  # the newest base file of each of both groups: change files hold older rows
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok, "a file that a clean has taken is not damage"
    assert table.changes(gone.readable_from, spark=LOCAL).num_rows == 0
    with pytest.raises(RefusedError):
        table.changes(instants[3], spark=LOCAL)
    write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    assert table.changes(gone.readable_from, spark=LOCAL).num_rows == 1
    assert ours(table) == theirs(tmp_path / "trips") == now | {"a": {"id": "a", "city": "sf", "ts": 9, "fare": 9.0}}
    quire.recover(table.url)


def test_the_clean_that_took_a_version_is_named_and_the_first_version_that_can_be_read(tmp_path: Path) -> None:
    """Cleans before it took older slices of its file groups, and one after it what a savepoint had held."""
    table, instants = written(tmp_path, 4)
    table.savepoint(instants[0])
    assert clean(table, versions=2).files
    taken = clean(table, versions=1)
    for held in (True, False):
        line = refused(lambda: ours(table.as_of(instants[2])))
        assert f"the clean {taken.instant} has deleted " in line
        assert f"{instants[2]}.parquet" in line
        assert f"It can from {instants[3]} on." in line
        if held:
            table.delete_savepoint(instants[0])
            assert clean(table).files
    ours(table.as_of(instants[3]))


def test_a_lost_file_of_the_newest_slice_is_damage(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 3)
    clean(table)
    (tmp_path / "trips" / next(name for name in files(tmp_path / "trips") if name.startswith("city=sf"))).unlink()
    assert not quire.Ledger(table.url).verify(spark=LOCAL).ok


def test_changes_stay_as_long_as_the_table_can_be_read(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips")
    before = table.changes(instants[2], net=False, spark=LOCAL).to_pylist()
    report = table.clean(keep_for=0, versions=None, dry_run=True, progress=False)
    assert report.readable_from == instants[4]
    assert table.clean(versions=3, progress=False).readable_from == instants[2]
    assert table.changes(instants[2], net=False, spark=LOCAL).to_pylist() == before
    assert "cleaned" in refused(lambda: table.changes(instants[1], spark=LOCAL))


@pytest.mark.parametrize("replaces", [True, False], ids=["overwrite", "drop"])
def test_changes_are_not_told_of_an_older_slice_that_a_savepoint_holds(tmp_path: Path, *, replaces: bool) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    table.savepoint()
    last = write(table, "upsert", frame(("a", "sf", 2, 2.0), ("b", "sf", 2, 2.0))).instant
    if replaces:
        write(table, "insert_overwrite", frame(("c", "sf", 3, 3.0)))
    else:
        table.delete_partitions("sf", progress=False)
    gone = {("d", "a"), ("d", "b")} | ({("i", "c")} if replaces else set())
    assert {(each["op"], each["_hoodie_record_key"]) for each in table.changes(last, spark=LOCAL).to_pylist()} == gone
    assert clean(table).files == 1
    assert "was cleaned" in refused(lambda: table.changes(last, spark=LOCAL))


def test_no_row_that_was_deleted_stays_anywhere(tmp_path: Path) -> None:
    table = create(tmp_path / "trips", ordering=None)
    write(table, "upsert", frame(("secret", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    write(table, "delete", frame(("secret", "sf", 2, 0.0)))
    clean(table)
    for path in (path for path in (tmp_path / "trips").rglob("*") if path.suffix in (".parquet", ".rows")):
        assert "secret" not in str(pq.read_table(path, partitioning=None).to_pylist()), path


def test_a_lost_log_of_the_newest_slice_is_damage(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    (tmp_path / "trips" / next(name for name in files(tmp_path / "trips") if ".log." in name)).unlink()
    assert len(quire.Ledger(table.url).verify(spark=LOCAL).damaged) == 1


def test_what_stays_by_time_and_by_versions(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips")
    store = connect(table.url)
    line = timeline.read(store)

    def going(keep: Keep, *held: str) -> list[str]:
        found = retention.dead(store, line, keep, held)
        assert found.readable == ("" if not found.files else max(found.readable, ""))
        return sorted(
            {file.instant for entries in found.files.values() for e in entries if (file := names.file(e.name[-300:].rpartition("/")[2]))}
        )

    assert going(Keep(since=instants[0])) == []
    assert going(Keep(since=instants[2])) == instants[:2], "what was the newest at that instant stays"
    assert going(Keep(since="9" * 17)) == instants[:4]
    assert going(Keep(versions=2)) == instants[:3]
    assert going(Keep(versions=9)) == []
    assert going(Keep(versions=1), instants[1], "0" * 17) == [instants[0], *instants[2:4]]
    begun = dt.datetime.now(dt.UTC) - names.instant_time(cleaning.keep_of({"keep_for": 3600.0}).since)
    assert dt.timedelta(seconds=3590) < begun < dt.timedelta(seconds=3700)
    assert clean(table, versions=None).files == 0, "all of it is of the last 24 hours"
    assert clean(table, versions=None, keep_for=0).slices == 8


def test_a_slice_stays_as_long_as_since_the_commit_that_superseded_it_has_ended(tmp_path: Path) -> None:
    """Of a commit that another program began long before: readers of the slice are as new as its end."""
    table, instants = written(tmp_path / "trips", 3, version=9)
    (late,) = home(tmp_path / "trips").glob(f"{instants[2]}_*")
    late.rename(late.with_name(f"{instants[2]}_{int(instants[2][:4]) + 1}{instants[2][4:]}.commit"))
    store = connect(table.url)
    for since, slices in ((instants[2], 2), (f"{int(instants[2][:4]) + 2}{instants[2][4:]}", 4)):
        assert retention.dead(store, timeline.current(store), Keep(since=since), ()).slices == slices


@pytest.mark.timeout(60)
def test_a_file_group_of_very_many_slices_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A work that grows with the square would take hours."""
    instants = [f"{2026_01_01_000000000 + n:017d}" for n in range(100_000)]
    there = [
        (file, Entry(file.name, 1, "", 0))
        for instant in instants
        for file in (names.BaseFile("f-0", "0-0-0", instant), names.LogFile("f-0", instant, 1, "0-0-0"))
    ]
    monkeypatch.setattr(file_groups, "everything", lambda *_: {("p", "f-0"): there})
    line = timeline.Timeline(None, (), ())  # type: ignore[arg-type]
    found = retention.dead(None, line, Keep(versions=1), instants[::2])  # type: ignore[arg-type]
    assert (found.slices, len(found.files["p", "f-0"])) == (49_999, 99_998)


def test_a_replaced_file_group_goes_as_a_whole(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 2)
    store = connect(table.url)
    line = timeline.read(store)
    group = next(key for key in {(one, file.file_id) for one in ("city=sf",) for file, _ in _of(store, line, one)})
    line.__dict__["replaced"] = {group: "20990101000000000"}
    found = retention.dead(store, line, Keep(versions=1), ())
    assert found.files[group] and found.slices == 3  # noqa: PT018
    assert retention.dead(store, line, Keep(since="2098"), ()).slices == 2, "it is read as of each instant before"
    assert retention.dead(store, line, Keep(versions=1), (instants[1],)).slices == 2


def _of(store: Any, line: Any, partition: str) -> Any:
    from quire.table import file_groups

    return next(files for key, files in file_groups.everything(store, line).items() if key[0] == partition)


def test_logs_go_with_their_slice_and_a_pending_plan_keeps_its_files(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    write(table, "upsert", frame(("b", "sf", 3, 8.0)))
    before = ours(table)
    assert clean(table).files == 0, "logs of the newest slice are what it says"
    table.schedule_compaction()
    write(table, "upsert", frame(("a", "sf", 5, 5.0)))
    assert clean(table).files == 0
    now = ours(table)
    assert now != before
    compact(table, schedule=False)
    assert ours(table) == theirs(tmp_path / "trips") == now
    report = clean(table)
    assert report.slices == 2
    assert report.files > 2, "base files and their logs"
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert [name for name in files(tmp_path / "trips") if ".log." in name], "the log of the newest slice stays"
    compact(table)
    clean(table)
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


@pytest.mark.nth(5)
@pytest.mark.parametrize("version", [6, 9])
@pytest.mark.parametrize("kind", ["pin", "savepoint", "another program's savepoint", "another clean", "rolled back"])
def test_what_comes_while_a_clean_is_planned_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, version: int) -> None:
    table, instants = written(tmp_path / "trips", 4, version=version)
    before, done, plan = ours(table.as_of(instants[1])), list[Any](), stored.plan

    def during(*given: Any) -> bytes:
        said = plan(*given)
        if not done:
            done.append(1)
            if kind == "pin":
                version = 1 + next(n for n, commit in log_of(tmp_path / "trips").recent() if commit.tasks[-1].instant == instants[1])
                done.append(pin := quire.Ledger(table.url).pin(version))
                pin.__enter__()
            elif kind == "savepoint":
                table.savepoint(instants[1])
            elif kind == "another program's savepoint":
                (home(tmp_path / "trips") / f"{instants[1]}.savepoint.inflight").touch()
            elif kind == "another clean":
                done.append(clean(table, versions=2))
            else:
                roll_back(tmp_path / "trips", instants[3])
        return said

    monkeypatch.setattr(stored, "plan", during)
    report = clean(table)
    if kind in ("pin", "savepoint", "another program's savepoint"):
        assert ours(table.as_of(instants[1])) == before
        assert report.slices == (2 if kind == "pin" else 4), "later versions may be pinned, too, as long as an older one is"
    elif kind == "another clean":
        assert (done[1].slices, report.slices) == (4, 2)
    else:
        assert report.slices == 4, "the slice before the one that was rolled back is the newest again"
        assert ours(table) == theirs(tmp_path / "trips")


@pytest.mark.parametrize("version", [6, 9])
def test_a_clean_beside_a_savepoint_wins_or_loses_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    table, instants = written(tmp_path / "trips", 3, version=version)
    save, done = stored.savepoint, list[int]()

    def during(*given: Any) -> bytes:
        said = save(*given)
        if not done:
            done.append(clean(table).slices)
        return said

    monkeypatch.setattr(stored, "savepoint", during)
    assert "cannot be read as of" in refused(lambda: table.savepoint(instants[0]))
    assert done == [4]
    assert table.savepoints().empty
    assert table.savepoint() == instants[2]


@pytest.mark.parametrize("version", [6, 9])
def test_a_writer_whose_slices_were_cleaned_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    table, _ = written(tmp_path / "trips", 2, version=version)
    write_files, done = closer.write.write, list[int]()

    def during(*given: Any, **more: Any) -> Any:
        if not done:
            done.append(1)
            write(table, "upsert", frame(("a", "sf", 7, 7.0), ("b", "la", 7, 7.0)))
            clean(table)
        return write_files(*given, **more)

    monkeypatch.setattr(closer.write, "write", during)
    write(table, "upsert", frame(("a", "sf", 8, 8.0)))
    assert ours(table)["a"]["fare"] == theirs(tmp_path / "trips")["a"]["fare"] == 8.0
    assert ours(table)["b"]["fare"] == 7.0


def test_a_clean_beside_a_writer_ends_none_of_its_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path / "trips", 3)
    write_files, rounds = closer.write.write, list[int]()

    def during(*given: Any, **more: Any) -> Any:
        rounds.append(1)
        found = write_files(*given, **more)
        if len(rounds) == 1:
            assert clean(table).slices == 4
        return found

    monkeypatch.setattr(closer.write, "write", during)
    write(table, "upsert", frame(("a", "sf", 8, 8.0)))
    assert rounds == [1]
    assert ours(table)["a"]["fare"] == theirs(tmp_path / "trips")["a"]["fare"] == 8.0


@pytest.mark.parametrize("version", [6, 9])
def test_a_clean_that_died_is_completed_by_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    table, _ = written(tmp_path / "trips", 4, version=version)
    now = ours(table)
    remove, left = LocalStore.remove, [3]

    def dying(self: Any, name: str) -> None:
        if names.file(name.rpartition("/")[2]):
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
        remove(self, name)

    with monkeypatch.context() as m:
        m.setattr(LocalStore, "remove", dying)
        with pytest.raises(KeyboardInterrupt):
            clean(table)
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert not list(home(tmp_path / "trips").glob("*.clean"))
    write(table, "upsert", frame(("a", "sf", 8, 8.0)))
    assert len(list(home(tmp_path / "trips").glob("*.clean"))) == 1
    assert [isinstance(e, Expired) for e in log_of(tmp_path / "trips").entries].count(True) == 1, "once is enough"
    assert clean(table).slices == 1


@pytest.mark.parametrize("version", [6, 9])
def test_a_slice_that_is_read_again_is_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Between the slot and the deletion another program rolls the newest commit back."""
    table, instants = written(tmp_path / "trips", 3, version=version)
    before = ours(table.as_of(instants[1]))
    carry_out = cleaning.carry_out

    def after(*given: Any) -> None:
        roll_back(tmp_path / "trips", instants[2])
        carry_out(*given)

    monkeypatch.setattr(cleaning, "carry_out", after)
    clean(table)
    assert ours(table) == theirs(tmp_path / "trips") == before


@pytest.mark.parametrize(
    "change", [("hoodie.table.version=6", "hoodie.table.version=8"), ("\n", "\nhoodie.table.metadata.partitions=files\n")]
)
def test_a_clean_does_nothing_in_a_table_that_another_program_keeps_differently_by_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: tuple[str, str]
) -> None:  # fmt: skip
    table, _ = written(tmp_path / "trips", 3)
    there, carry_out = files(tmp_path / "trips"), cleaning.carry_out
    properties = tmp_path / "trips/.hoodie/hoodie.properties"

    def after(*given: Any) -> None:
        text = properties.read_text()
        properties.write_text("\n".join(line for line in text.splitlines() if "checksum" not in line).replace(*change, 1) + "\n")
        carry_out(*given)

    monkeypatch.setattr(cleaning, "carry_out", after)
    assert "has changed nothing: another program has upgraded the table" in refused(lambda: clean(table))
    assert files(tmp_path / "trips") == there


def test_a_savepoint_that_was_not_made_is_not_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path / "trips", 1)
    carry_out = cleaning.carry_out

    def after(*given: Any) -> None:
        with (tmp_path / "trips/.hoodie/hoodie.properties").open("a") as properties:
            properties.write("\nhoodie.table.metadata.partitions=files\n")
        carry_out(*given)

    monkeypatch.setattr(cleaning, "carry_out", after)
    assert "has changed nothing" in refused(table.savepoint)
    assert table.savepoints().empty


@pytest.mark.parametrize("version", [6, 9])
def test_a_file_that_the_store_does_not_delete_is_told_and_hinders_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """A lake with a legal hold: every writer publishes the clean before it begins."""
    table, instants = written(tmp_path / "trips", 3, version=version)
    remove = LocalStore.remove

    def refusing(self: Any, name: str) -> None:
        if names.file(name.rpartition("/")[2]) and f"_{instants[0]}." in name and name.startswith("city=sf"):
            raise StorageError(f"cannot remove {name}: it is held")
        remove(self, name)

    with monkeypatch.context() as m:
        m.setattr(LocalStore, "remove", refusing)
        with pytest.raises(StorageError, match="refuses to delete 1 files that the clean"):
            clean(table)
        write(table, "upsert", frame(("a", "sf", 9, 9.0)))
        with pytest.raises(StorageError, match="call again"):
            clean(table)
    (done, *_) = sorted(home(tmp_path / "trips").glob("*.clean"))
    said = avro_file.record(done.read_bytes(), "clean")["partitionMetadata"]
    assert [len(part["failedDeleteFiles"]) for _, part in sorted(said.items())] == [0, 1]
    assert clean(table).files == 1
    assert ours(table)["a"]["fare"] == theirs(tmp_path / "trips")["a"]["fare"] == 9.0


def test_versions_after_a_pin_can_be_pinned(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips")
    before, ledger = ours(table.as_of(instants[2])), quire.Ledger(table.url)
    version = {commit.tasks[-1].instant: number + 1 for number, commit in log_of(tmp_path / "trips").recent()}
    with ledger.pin(version[instants[1]]):
        assert clean(table).readable_from == instants[1]
        with ledger.refresh().pin(version[instants[2]]):
            pass
        clean(table)
        assert ours(table.as_of(instants[2])) == before


def test_versions_that_a_checkpoint_stands_for_stay_pinnable_where_a_clean_has_left_them(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 4)
    ledger = quire.Ledger(table.url)
    ledger.checkpoint(spark=LOCAL)
    version = log_of(tmp_path / "trips").tip
    assert clean(table, versions=2).readable_from == instants[2]
    with ledger.refresh().pin(version):
        assert clean(table).readable_from == instants[3]
        assert ours(table.as_of(instants[3])) == ours(table)


def test_plans_of_others_are_read_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 2)
    old = next(name for name in files(tmp_path / "trips") if instants[0] in name and name.endswith(".parquet"))
    (tmp_path / "trips" / old).unlink()
    partition, _, name = old.rpartition("/")
    plan = tmp_path / "trips/.hoodie/20990101000000000.clean.requested"
    said = avro_file.record(stored.plan("file:/elsewhere", {}, ("", ""), ""), "plan") | {
        "filesToBeDeletedPerPartition": {partition: [name]}
    }
    plan.write_bytes(avro_file.of_record(said, stored._PLAN))
    assert "cannot be read as of" in refused(lambda: ours(table.as_of(instants[0])))
    assert ours(table.as_of(instants[1])) == ours(table)
    plan.write_bytes(b"")
    assert list(ours(table.as_of(instants[0]))), "nothing was planned yet, so nobody can tell"
    for wrong in (stored.plan("x", {"..": ["a"]}, ("", ""), ""), stored.plan("x", {"p": ["../../etc/passwd"]}, ("", ""), ""), b"not Avro"):
        plan.write_bytes(wrong)
        with pytest.raises(FormatError, match=r"clean\.requested"):
            ours(table.as_of(instants[0]))


def test_files_of_kinds_that_quire_does_not_write_are_passed_over_in_plans_of_others(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 1)
    plan = tmp_path / "trips/.hoodie/20990101000000000.clean.requested"
    plan.write_bytes(stored.plan("file:/x", {"city=sf": [".a_20260101000000000.log.1_0-1-0.cdc"]}, ("", ""), ""))
    assert ours(table.as_of(instants[0])) == ours(table)
    assert table.timeline()["deleted_files"].tolist()[-1] == 0


@pytest.mark.parametrize("at", [1 << 62, -5, 253_402_300_800_000])
def test_a_savepoint_of_no_year_is_read(tmp_path: Path, at: int) -> None:
    table, instants = written(tmp_path / "trips", 1)
    (tmp_path / f"trips/.hoodie/{instants[0]}.savepoint").write_bytes(stored.savepoint({}, "somebody", at, "odd"))
    assert table.savepoints()["comment"].tolist() == ["odd"]


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    table = create(tmp_path / "trips")
    assert "nothing has been written" in refused(table.savepoint)
    assert clean(table).files == 0
    write(table, "upsert", FIRST)
    for wrong in (0, -1, True, "2", 1.5):
        assert "versions takes" in refused(lambda value=wrong: table.clean(versions=value, progress=False))
    assert "two ways" in refused(lambda: table.clean(versions=1, keep_for="1 h"))
    assert "keep_for" in refused(lambda: table.clean(keep_for="soon"))
    assert "dry_run" in refused(lambda: table.clean(dry_run="no"))  # type: ignore[arg-type]
    assert "no completed write at 20200101000000000" in refused(lambda: table.savepoint("20200101000000000"))
    assert "instant takes" in refused(lambda: table.savepoint("yesterday"))
    assert "comment takes" in refused(lambda: table.savepoint(comment="x" * 1001))
    assert "comment takes" in refused(lambda: table.savepoint(comment="half of a character: \ud800"))
    assert "It has none" in refused(lambda: table.delete_savepoint("20200101000000000"))
    older = table.as_of("20990101000000000")
    assert "read, not cleaned" in refused(lambda: older.clean(progress=False))
    assert "read, not held" in refused(older.savepoint)


@pytest.mark.parametrize("version", [6, 9])
def test_a_savepoint_is_made_once_and_holds_what_another_program_has_saved(tmp_path: Path, version: int) -> None:
    table, instants = written(tmp_path / "trips", 3, version=version)
    assert table.savepoint(comment="Größe") == table.savepoint(comment="again") == instants[2]
    assert table.savepoints()[["instant", "comment", "by"]].to_numpy().tolist() == [[instants[2], "Größe", "quire"]]
    (home(tmp_path / "trips") / f"{instants[0]}.savepoint.inflight").touch()  # of a program that is just making it
    assert len(table.savepoints()) == 1
    assert clean(table).slices == 2
    assert set(ours(table.as_of(instants[0]))) == {"a", "b", "n0"}
    table.delete_savepoint(instants[0])
    assert clean(table).slices == 2
    assert not protocol.open_jobs(connect(f"table+{table.url}"), log_of(tmp_path / "trips"))


@pytest.mark.parametrize("version", [6, 9])
def test_of_two_calls_that_hold_one_instant_at_once_one_makes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """In version 9 its name says when it was made: two of them would be two savepoints of one instant."""
    table, instants = written(tmp_path / "trips", 2, version=version)
    save, done = stored.savepoint, list[str]()

    def during(*given: Any) -> bytes:
        said = save(*given)
        if not done:
            done.append("")
            done[0] = table.savepoint(comment="the first one")
        return said

    monkeypatch.setattr(stored, "savepoint", during)
    assert table.savepoint(comment="the second one") == done[0] == instants[1]
    assert len(list(home(tmp_path / "trips").glob("*.savepoint"))) == 1
    assert table.savepoints()["comment"].tolist() == ["the first one"]
    table.delete_savepoint(instants[1])
    assert not list(home(tmp_path / "trips").glob("*.savepoint*"))


def test_a_clean_and_a_savepoint_of_version_9_say_when_they_ended_and_what_jvm_hudi_asks(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 4, version=9)
    table.savepoint(instants[1])
    report = clean(table)
    there = {path.name for path in home(tmp_path / "trips").iterdir() if path.name.startswith(report.instant)}
    ended = names.after(report.instant)
    assert there == {f"{report.instant}.clean.requested", f"{report.instant}.clean.inflight", f"{report.instant}_{ended}.clean"}
    (saved,) = home(tmp_path / "trips").glob("*.savepoint")
    assert instants[3] < saved.name.partition("_")[2][:17] < report.instant
    said = avro_file.record((home(tmp_path / "trips") / f"{report.instant}_{ended}.clean").read_bytes(), "it")
    assert (said["startCleanTime"], said["earliestCommitToRetain"], said["totalFilesDeleted"]) == (
        report.instant,
        instants[3],
        report.files,
    )
    assert ended < write(table, "upsert", frame(("z", "sf", 9, 9.0))).instant
    assert table.doctor().healthy
    assert table.timeline()["action"].tolist().count("clean") == 1
