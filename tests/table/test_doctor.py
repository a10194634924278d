"""The doctor of a table: it changes nothing, finds what is wrong, and its advice mends that."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_archived_timeline import lay, leave, line_of
from test_clean import clean, home, written
from test_lost import NEW, A, B, beside, change, compacted, scheduled, table_of
from test_writes import LOCAL, create, frame, ours, write

import quire
from gathering import snapshot
from quire.errors import RefusedError, UsageError
from quire.storage.local import LocalStore
from quire.table.format import names
from quire.table.table import Table

OLD = "20200101000000000"


def kinds(table: Table, **more: Any) -> list[str]:
    return [each.kind for each in table.doctor(**more).findings]


def finding(table: Table, kind: str) -> Any:
    (found,) = (each for each in table.doctor().findings if each.kind == kind)
    return found


def base_files(place: Path) -> list[Path]:
    return sorted(path for path in place.rglob("*.parquet") if names.base_file(path.name))


def aged(path: Path) -> Path:
    os.utime(path, (0, time.time() - 10 * 86_400))
    return path


def left_by_a_dead_program(place: Path, instant: str = "20990101000000000") -> Path:
    """A base file of a write of which the timeline knows nothing."""
    there = base_files(place)[0]
    made = there.with_name(f"{names.new_file_id()}_0-1-2_{instant}.parquet")
    shutil.copy(there, made)
    return aged(made)


def test_a_healthy_table_has_no_finding_and_the_doctor_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 3)
    clean(table)
    table.savepoint()
    before = snapshot(tmp_path)
    for name in ("put", "put_if_absent", "put_if_match", "remove", "remove_tree", "rename", "create"):
        if hasattr(LocalStore, name):
            monkeypatch.setattr(LocalStore, name, lambda *_, name=name, **__: pytest.fail(f"the doctor calls {name}"))
    health = table.doctor(records=True, spark=quire.LocalRunner())
    assert (health.healthy, health.findings, health.instants, health.records) == (True, (), 3, 5)
    assert health.files == len(base_files(place))
    assert "nothing that is wrong" in str(health)
    assert json.loads(json.dumps(health.as_dict()))["healthy"] is True
    assert snapshot(tmp_path) == before


def test_a_table_without_a_write_is_healthy(tmp_path: Path) -> None:
    table = quire.Table.create(tmp_path / "new", key="id")
    assert table.doctor().healthy
    assert table.doctor(records=True, spark=quire.LocalRunner()).records == 0


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_an_empty_instant_is_found_and_its_advice_mends_it(tmp_path: Path, version: int) -> None:
    place = tmp_path / "trips"
    table, instants = written(place, 3, version=version)
    (done,) = (path for path in home(place).glob(f"{instants[-1]}*.commit"))
    done.write_bytes(b"")
    found = finding(table, "empty instant")
    assert instants[-1] in found.names[0]
    assert f"delete all that {home(place).relative_to(place)} has of {instants[-1]}" in found.mend
    for path in home(place).glob(f"{instants[-1]}*"):
        path.unlink()
    quire.recover(place)
    table.remove_leftovers(older_than=0)
    quire.recover(place)
    assert kinds(table) == []
    assert set(ours(table)) == {"a", "b", "n0", "n1"}


def test_a_damaged_instant_is_found(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 3)
    name = tmp_path / f"trips/.hoodie/{instants[1]}.commit"
    kept = name.read_bytes()
    name.write_bytes(kept[:100])
    assert "is damaged" in finding(table, "damaged instant").what
    name.write_bytes(kept)
    assert table.doctor().healthy


def test_files_that_are_gone_or_cut_are_found(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table, instants = written(place, 2)
    newest = next(path for path in base_files(place) if instants[-1] in path.name)
    kept = newest.read_bytes()
    newest.unlink()
    found = finding(table, "missing files")
    assert found.names == (str(newest.relative_to(place)),)
    newest.write_bytes(kept[:-7])
    assert finding(table, "files of another size").names == found.names
    newest.unlink()
    table.restore(instants[0], progress=False)
    assert table.doctor().healthy


@pytest.mark.parametrize("version", [6, 9])
def test_a_log_that_was_cut_is_found_and_one_that_another_program_has_appended_to_is_not(tmp_path: Path, version: int) -> None:
    """No reader fails on it: it looks like what a writer that died has left."""
    place = tmp_path / "trips"
    table = create(place, type="merge_on_read", version=version)
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    (log,) = (path for path in place.rglob(".*") if names.log_file(path.name))
    kept = log.read_bytes()
    log.write_bytes(kept[: len(kept) // 2])
    assert ours(table)["a"]["ts"] == 1
    assert finding(table, "files of another size").names == (str(log.relative_to(place)),)
    log.write_bytes(kept + kept[:7])
    assert ours(table)["a"]["ts"] == 2
    assert table.doctor().healthy


def test_superseded_files_that_a_clean_took_are_not_missed(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 4)
    clean(table)
    assert table.doctor().healthy


@pytest.mark.parametrize("version", [6, 9])
def test_leftovers_of_a_dead_program_are_found_and_deleted(tmp_path: Path, version: int) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 2, version=version)
    left = left_by_a_dead_program(place)
    found = finding(table, "leftover files")
    assert (found.count, found.bytes, found.mend) == (1, left.stat().st_size, "table.remove_leftovers()")
    assert str(left.relative_to(place)) in str(table.doctor())
    before = ours(table)
    assert table.remove_leftovers(older_than="11 days") == 0
    assert left.exists()
    assert table.remove_leftovers() == 1
    assert not left.exists()
    assert (table.doctor().healthy, ours(table)) == (True, before)


@pytest.mark.parametrize("version", [6, 9])
def test_files_of_a_write_that_is_under_way_are_nobodys_leftovers(tmp_path: Path, version: int) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 2, version=version)
    now = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
    at = names.next_instant((), now)
    left = left_by_a_dead_program(place, at)
    for state in ("requested", "inflight"):
        (home(place) / names.Instant(at, "commit", state).name).write_bytes(b"")  # type: ignore[arg-type]
    assert table.doctor().healthy
    assert table.remove_leftovers(older_than=0) == 0
    assert left.exists()


def test_a_write_that_begins_or_ends_between_the_looks_is_not_accused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 1)
    from quire.table import file_groups

    listing, rows = file_groups.files, frame(("new", "sf", 9, 9.0))

    def beside_a_writer(store: Any) -> Any:
        if rows:
            monkeypatch.setattr(file_groups, "files", listing)
            write(Table(place), "upsert", rows)
        yield from listing(store)

    monkeypatch.setattr(file_groups, "files", beside_a_writer)
    assert table.doctor().healthy


def test_a_file_that_its_commit_does_not_name_is_found(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table, instants = written(place, 1)
    there = base_files(place)[0]
    again = there.with_name(f"{names.new_file_id()}_0-1-2_{instants[0]}.parquet")
    shutil.copy(there, again)
    assert finding(table, "files beside their commit").names == (str(again.relative_to(place)),)
    assert "duplicate keys" in kinds(table, records=True, spark=quire.LocalRunner())
    again.unlink()
    assert table.doctor(records=True, spark=quire.LocalRunner()).healthy


def test_keys_that_stand_twice_are_found_and_its_advice_mends_them(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 1)
    write(table, "bulk_insert", frame(("a", "sf", 7, 7.0)))
    assert table.doctor().healthy
    (found,) = table.doctor(records=True, spark=quire.LocalRunner()).findings
    assert (found.kind, found.count) == ("duplicate keys", 1)
    assert "'a'" in found.names[0]
    write(table, "delete", frame(("a", "sf", 8, 0.0)))
    write(table, "insert", frame(("a", "sf", 9, 7.0)))
    assert table.doctor(records=True, spark=quire.LocalRunner()).healthy


def test_its_advice_mends_keys_that_stand_twice_in_a_base_file_beside_logs(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 1, type="merge_on_read")
    write(table, "bulk_insert", frame(("a", "sf", 7, 7.0)))
    table.cluster(spark=LOCAL, progress=False)
    (found,) = table.doctor(records=True, spark=LOCAL).findings
    assert "table.compact(), again until none of them is there" in found.mend
    for _ in range(2):
        assert "a" in table.snapshot(spark=LOCAL).column("id").to_pylist()
        write(table, "delete", frame(("a", "sf", 8, 0.0)))
        table.compact(spark=LOCAL, progress=False)
    write(table, "insert", frame(("a", "sf", 9, 7.0)))
    assert ours(table)["a"]["ts"] == 9
    assert table.doctor(records=True, spark=LOCAL).healthy


def test_on_spark_keys_are_compared_alike(spark: Any, tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 1)
    assert table.doctor(records=True, spark=spark).records == 3
    write(table, "bulk_insert", frame(("a", "sf", 7, 7.0)))
    (found,) = table.doctor(records=True, spark=spark).findings
    assert (found.kind, found.count) == ("duplicate keys", 1)


def test_updates_that_another_program_loses_are_found_before_and_after_recover(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    lost, _ = beside(place, ("ours", change(B)), ("theirs", compacted))
    assert lost in finding(table, "lost update").what
    quire.recover(place)
    assert lost in finding(table, "lost update").what


def test_a_plan_that_lacks_our_log_is_found_and_its_advice_mends_it(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    _, at = beside(place, ("ours", change(B)), ("theirs", scheduled))
    found = finding(table, "plan without logs")
    assert at in found.what
    (place / f".hoodie/{at}.compaction.requested").unlink()
    table.compact(spark=LOCAL, progress=False)
    assert "plan without logs" not in kinds(table)
    assert ours(table)["b"]["fare"] == 2.0


def test_a_plan_that_is_carried_out_later_is_not_accused(tmp_path: Path) -> None:
    table = table_of(tmp_path / "trips")
    write(table, "upsert", A)
    table.schedule_compaction()
    write(table, "upsert", B)
    assert table.doctor().healthy
    write(table, "upsert", NEW)
    assert table.doctor().healthy


@pytest.mark.parametrize(
    ("action", "kind"), [("commit", "write without an end"), ("clean", "waiting plan"), ("compaction", "waiting plan")]
)
def test_what_was_begun_long_ago_is_found(tmp_path: Path, action: str, kind: str) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 1)
    (place / f".hoodie/{OLD}.{action}.requested").write_bytes(b"")
    assert kind in kinds(table)


def test_a_plan_that_nobody_can_read_is_found(tmp_path: Path) -> None:
    table = table_of(tmp_path / "trips")
    write(table, "upsert", A)
    (at,) = table.schedule_compaction().scheduled
    (tmp_path / f"trips/.hoodie/{at}.compaction.requested").write_bytes(b"Obj")
    assert "is damaged" in finding(table, "damaged plan").what


def test_a_savepoint_of_nothing_and_a_metadata_table_are_found_with_their_calls(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 1)
    (place / f".hoodie/{OLD}.savepoint").write_bytes(b"")
    assert finding(table, "savepoint of nothing").mend == f"table.delete_savepoint({OLD!r})"
    table.delete_savepoint(OLD)
    properties = place / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text() + "hoodie.table.metadata.partitions=files\n")
    table = Table(place)
    assert finding(table, "not writable").mend == "table.adopt()"
    table.adopt()
    assert table.doctor().healthy


def test_a_commit_that_is_still_to_appear_is_found_and_no_file_of_it_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 1)
    real = LocalStore.put_if_absent

    def dies(self: LocalStore, name: str, data: bytes) -> Any:
        if name.endswith(".commit"):
            raise KeyboardInterrupt
        return real(self, name, data)

    monkeypatch.setattr(LocalStore, "put_if_absent", dies)
    with pytest.raises(KeyboardInterrupt):
        write(table, "upsert", frame(("a", "sf", 5, 5.0)), batch="one")
    monkeypatch.undo()
    assert "leftover files" not in kinds(table)
    for path in (place / ".hoodie").glob("*.inflight"):
        path.unlink()
        (path.parent / f"{path.name.partition('.')[0]}.commit.requested").unlink()
    assert "leftover files" not in kinds(table), "the log knows it, though another program has taken its states away"
    assert "quire.recover" in finding(table, "unpublished commits").mend
    assert table.remove_leftovers(older_than=0) == 0
    assert table.doctor().healthy
    assert ours(table)["a"]["fare"] == 5.0


def test_a_job_that_nobody_goes_on_with_is_found_once_it_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "trips"
    table, _ = written(place, 1)
    monkeypatch.setattr("quire.table.writing.jobs.close", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write(table, "upsert", frame(("a", "sf", 5, 5.0)), batch="one")
    monkeypatch.undo()
    assert table.doctor().healthy, "its call may be at it"
    for path in (place / ".hoodie/_quire/jobs").rglob("*"):
        aged(path)
    assert "abort='open'" in finding(table, "open jobs").mend
    quire.recover(place, abort="open")
    assert table.doctor().healthy


def test_a_long_timeline_is_found_and_archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.table import findings

    table, _ = written(tmp_path / "trips", 4)
    monkeypatch.setattr(findings, "LONG", 3)
    assert finding(table, "long timeline").mend == "table.archive()"
    table.archive(keep=1, progress=False)
    assert table.doctor().healthy


def test_wrong_calls_are_one_line(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 1)
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: table.remove_leftovers(older_than="soon"), "older_than"),
        (lambda: table.as_of(instants[0]).remove_leftovers(), "is read, not written"),
        (lambda: table.doctor(records=1), "records"),  # type: ignore[arg-type]
    ]
    for call, said in calls:
        with pytest.raises((UsageError, RefusedError), match=said):
            call()


# ------------------------------------------------------------------------------------------- what must never go as a leftover
def test_rows_in_logs_whose_plan_was_deleted_are_told_and_stay(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table = table_of(place)
    write(table, "upsert", A)
    (at,) = table.schedule_compaction().scheduled
    write(table, "upsert", B)
    plan = place / f".hoodie/{at}.compaction.requested"
    kept = plan.read_bytes()
    plan.unlink()
    for path in place.rglob("*.log.*"):
        aged(path)
    there = sorted(path.name for path in place.rglob("*.log.*"))
    assert str(plan.relative_to(place)) in finding(table, "logs without a slice").mend
    assert "leftover files" not in kinds(table)
    assert table.remove_leftovers(older_than=0) == 0
    assert sorted(path.name for path in place.rglob("*.log.*")) == there
    plan.write_bytes(kept)
    table.compact(spark=LOCAL, progress=False)
    assert ours(table)["b"]["fare"] == 2.0
    assert table.doctor().healthy


@pytest.mark.parametrize("version", [6, 9])
def test_a_table_whose_timeline_was_lost_loses_no_file(tmp_path: Path, version: int) -> None:
    place = tmp_path / "trips"
    table, instants = written(place, 2, version=version)
    for path in base_files(place):
        aged(path)
    kept = {path: path.read_bytes() for at in instants for path in home(place).glob(f"{at}*")}
    for path in kept:
        path.unlink()
    assert f"put back {home(place).relative_to(place)} from a copy" in finding(table, "files without a timeline").mend
    there = base_files(place)
    assert table.remove_leftovers(older_than=0) == 0
    assert base_files(place) == there


def test_an_upgrade_between_the_looks_takes_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timeline then lies elsewhere, and where it was nothing is left."""
    from quire.table import findings

    place = tmp_path / "trips"
    table, instants = written(place, 2)
    look, there = findings.look, base_files(place)

    def upgraded(*args: Any) -> Any:
        (place / ".hoodie" / f"{instants[0]}.commit").unlink()
        properties = place / ".hoodie/hoodie.properties"
        properties.write_text(properties.read_text().replace("hoodie.table.version=6", "hoodie.table.version=8"))
        return look(*args)

    monkeypatch.setattr(findings, "look", upgraded)
    with pytest.raises(RefusedError, match="table version 8"):
        table.remove_leftovers(older_than=0)
    assert base_files(place) == there


def test_instants_that_another_program_is_archiving_are_not_missed(tmp_path: Path) -> None:
    """JVM Hudi before 0.15 may take a later instant away before an older one."""
    place = tmp_path / "trips"
    table, instants = written(place, 4)
    (place / ".hoodie/archived").mkdir(exist_ok=True)
    archive = place / ".hoodie/archived/.commits_.archive.1_1-0-1"
    archive.write_bytes(b"")
    for path in (place / ".hoodie").glob(f"{instants[1]}*"):
        path.unlink()
    there = base_files(place)
    assert "leftover files" not in kinds(table)
    assert table.remove_leftovers(older_than=0) == 0
    assert base_files(place) == there


def test_what_was_archived_between_others_in_version_9_is_nobodys_leftover(tmp_path: Path) -> None:
    place = tmp_path / "trips"
    table, instants = written(place, 4, version=9)
    done = {each.time: each for each in line_of(place).completed}[instants[1]]
    lay(place, [[(done.time, done.ended, done.action)]])
    leave(place, {done.time})
    there = base_files(place)
    assert "leftover files" not in kinds(table)
    assert table.remove_leftovers(older_than=0) == 0
    assert base_files(place) == there
