"""Compaction of merge-on-read tables: the same rows before, while a plan is pending, and after, whoever writes meanwhile."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_merge_on_read_writes import FIRST, logged
from test_writes import LOCAL, create, frame, home, log_of, ours, theirs, write

import quire
from gathering import refused
from quire.errors import FormatError, RefusedError, UsageError
from quire.storage import connect
from quire.table import closer, compacting, file_groups, timeline
from quire.table.compacting import Candidate, CompactionReport
from quire.table.format import base_file, compaction, names
from quire.table.format.compaction import Operation
from quire.table.table import Table

T = "20261122093015123"

pytestmark = pytest.mark.usefixtures("version")  # each with both versions that quire writes


def compact(table: Table, **more: Any) -> CompactionReport:
    return table.compact(spark=LOCAL, progress=False, **more)


def table_with_logs(folder: Path, **more: Any) -> Table:
    """Three keys, of which two have a newer row in a log, and one is deleted there."""
    table = logged(folder, **more)
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("b", "sf", 2, 9.0), ("a", "sf", 3, 3.0)))
    write(table, "delete", frame(("c", "la", 5, 0.0)))
    return table


def begun(table: Table, instant: str) -> list[int]:
    """The numbers of the logs of the slice that a compaction begins."""
    ends = timeline.current(connect(table.url)).ends(())
    found = (names.log_file(path.name) for path in Path(table.url.removeprefix("file://")).rglob(".*.log.*"))
    return sorted(log.number for log in found if log and (log.instant == instant or ends.get(log.instant, "") > instant))


@pytest.mark.nth(2)
def test_a_plan_is_laid_writers_go_on_and_it_is_carried_out(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    before, instants = ours(table), [instant.time for instant in timeline.current(connect(table.url)).completed]
    laid = table.schedule_compaction()
    (plan,) = laid.scheduled
    assert (laid.pending, laid.completed, laid.left) == ((plan,), (), 0)
    assert ours(table) == theirs(tmp_path / "trips") == before
    assert table.schedule_compaction().scheduled == (), "all that has logs is in a plan"
    write(table, "upsert", frame(("b", "sf", 5, 19.0), ("z", "la", 1, 1.0)))
    assert begun(table, plan) == [1], "the log belongs to the slice that the compaction begins"
    now = ours(table)
    assert now == before | {"b": {"id": "b", "city": "sf", "ts": 5, "fare": 19.0}, "z": {"id": "z", "city": "la", "ts": 1, "fare": 1.0}}
    report = compact(table, schedule=False)
    assert (report.completed, report.pending, report.file_groups, report.logs, report.left) == ((plan,), (), 2, 2, 1)
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert ours(table.as_of(instants[0])).keys() == {"a", "b", "c"}
    assert ours(table.as_of(plan)) == before
    optimized = table.snapshot(spark=LOCAL, read_optimized=True).to_pylist()
    assert {row["id"]: row["fare"] for row in optimized} == {"a": 3.0, "b": 9.0, "z": 1.0}, "the logs of the plan are in base files"
    again = compact(table)
    assert (len(again.completed), again.file_groups, again.left) == (1, 1, 0)
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert compact(table) == compacting.CompactionReport(table.url, version=again.version, seconds=pytest.approx(0, abs=60))  # type: ignore[arg-type]
    assert not quire.recover(table.url).lost_updates
    write(table, "upsert", frame(("a", "sf", 9, 9.0), ("y", "la", 1, 1.0)))
    assert ours(table) == theirs(tmp_path / "trips")


@pytest.mark.nth(2)
def test_rows_keep_their_commits_and_a_base_file_says_what_it_holds(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    whole = {row["id"]: row for row in table.snapshot(spark=LOCAL).to_pylist()}
    (instant,) = compact(table).completed
    line = timeline.current(connect(table.url))
    commit = line.commit(next(each for each in line.completed if each.time == instant))
    assert (commit.operation_type, commit.compacted) == ("COMPACT", True)
    stats = {partition: stat for partition, stat, _ in commit.files()}
    sf, la = stats["city=sf"], stats["city=la"]
    assert (sf.num_writes, sf.num_update_writes, sf.total_log_records, sf.total_log_files_compacted, sf.total_log_blocks) == (2, 2, 2, 1, 1)
    assert (la.num_writes, la.num_deletes, la.total_updated_records_compacted) == (0, 1, 0)
    for row in table.snapshot(spark=LOCAL).to_pylist():
        path = tmp_path / "trips" / row["_hoodie_partition_path"] / row["_hoodie_file_name"]
        was = whole[row["id"]]
        assert [row[name] for name in ("_hoodie_commit_time", "_hoodie_commit_seqno")] == [
            was[name] for name in ("_hoodie_commit_time", "_hoodie_commit_seqno")
        ]
        footer = base_file.read_footer(path.read_bytes(), str(path))
        found = footer.keys_filter()
        assert found is not None
        assert found.might_contain(pa.array([row["id"]])).all()
        assert (footer.min_key, footer.max_key) == ("a", "b")
    asked = home(tmp_path / "trips") / f"{instant}.compaction.requested"
    assert {each.partition for each in compaction.decode(asked.read_bytes(), "plan")} == {"city=sf", "city=la"}
    assert asked.with_name(f"{instant}.compaction.inflight").exists()


@pytest.mark.nth(2)
def test_keys_that_only_logs_have_come_in_the_order_of_keys(tmp_path: Path) -> None:
    """A bucket appends new keys, too; one that has no base file gets one."""
    table = logged(tmp_path / "trips", index="bucket", buckets=1, partition_by=None)
    write(table, "upsert", frame(*((key, "sf", 1, 1.0) for key in "cfi")))
    write(table, "upsert", frame(*((key, "sf", 2, 2.0) for key in "abdfgz")))
    write(table, "delete", frame(("d", "sf", 3, 0.0), ("x", "sf", 3, 0.0)))
    now = ours(table)
    compact(table)
    newest = max((path for path in (tmp_path / "trips").glob("*.parquet")), key=lambda path: path.name[-25:])
    assert pq.read_table(newest, partitioning=None).column("id").to_pylist() == sorted(now) == list("abcfgiz")
    assert ours(table) == now == theirs(tmp_path / "trips")


@pytest.mark.nth(2)
def test_a_writer_whose_logs_are_in_no_plan_begins_its_round_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plans = table_with_logs(tmp_path / "trips"), list[str]()

    def during(*given: Any, **more: Any) -> Any:
        if not plans:
            plans.append("")
            plans[0] = table.schedule_compaction().scheduled[0]
        return write_files(*given, **more)

    write_files = closer.write.write
    monkeypatch.setattr(closer.write, "write", during)
    write(table, "upsert", frame(("a", "sf", 7, 7.0)))
    assert begun(table, plans[0]) == [1]
    compact(table, schedule=False)
    assert ours(table)["a"]["fare"] == theirs(tmp_path / "trips")["a"]["fare"] == 7.0


@pytest.mark.nth(2)
def test_a_plan_lacks_no_log_that_came_while_it_was_laid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, came = table_with_logs(tmp_path / "trips"), list[str]()

    def during(operations: Any) -> bytes:
        if not came:
            came.append("")
            with monkeypatch.context() as m:
                m.setattr(compaction, "encode", encode)
                m.setattr(closer.compaction, "compaction", compaction)
                write(table, "upsert", frame(("a", "sf", 7, 7.0)))
        return encode(operations)

    encode = compaction.encode
    monkeypatch.setattr(compaction, "encode", during)
    (plan,) = table.schedule_compaction().scheduled
    assert begun(table, plan) == []
    compact(table, schedule=False)
    assert ours(table)["a"]["fare"] == theirs(tmp_path / "trips")["a"]["fare"] == 7.0


@pytest.mark.nth(2)
def test_writers_commit_while_a_plan_is_carried_out_and_neither_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, instants = table_with_logs(tmp_path / "trips"), list[str]()

    def during(*given: Any, **more: Any) -> Any:
        instants.append(given[1].instant)
        if len(instants) == 1:
            write(table, "upsert", frame(("a", "sf", 7, 7.0), ("b", "sf", 8, 8.0)))
        return write_files(*given, **more)

    (plan,) = table.schedule_compaction().scheduled
    write_files = closer.write.write
    monkeypatch.setattr(closer.write, "write", during)
    assert compact(table, schedule=False).completed == (plan,)
    assert instants[0] == plan
    assert len(instants) == 2, "each was written once"
    now = {key: row["fare"] for key, row in ours(table).items()}
    assert now == {"a": 7.0, "b": 8.0}
    assert ours(table) == theirs(tmp_path / "trips")


@pytest.mark.nth(6)
@pytest.mark.parametrize("index", ["bloom", "simple", "bucket"])
def test_a_key_that_a_plan_deletes_comes_again_once(tmp_path: Path, index: str) -> None:
    """The new base file has it no more, and no index looks into logs: in the log of its old file group nobody would find it."""
    table = logged(tmp_path / "trips", index=index, buckets=1 if index == "bucket" else None)
    write(table, "upsert", FIRST)
    write(table, "delete", frame(("a", "sf", 2, 0.0), ("c", "la", 0, 0.0)))  # the latter is older than its row
    table.schedule_compaction()
    write(table, "upsert", frame(("a", "sf", 5, 5.0), ("b", "sf", 5, 5.0), ("c", "la", 5, 5.0)))
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 5.0, "b": 5.0, "c": 5.0}
    assert write(table, "delete", frame(("b", "sf", 6, 0.0))).deleted == 1
    compact(table, schedule=False)
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 5.0, "c": 5.0}
    write(table, "upsert", frame(("a", "sf", 7, 7.0), ("b", "sf", 7, 7.0), ("c", "la", 7, 7.0)))
    for _ in range(2):
        assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 7.0, "b": 7.0, "c": 7.0}
        assert ours(table) == theirs(tmp_path / "trips")
        compact(table)


@pytest.mark.nth(2)
def test_two_calls_carry_a_plan_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, others = table_with_logs(tmp_path / "trips"), list[CompactionReport]()
    (plan,) = table.schedule_compaction().scheduled

    def during(*given: Any, **more: Any) -> Any:
        found = write_files(*given, **more)
        if not others:
            with monkeypatch.context() as m:
                m.setattr(closer.write, "write", write_files)
                others.append(compact(table, schedule=False))
        return found

    write_files = closer.write.write
    monkeypatch.setattr(closer.write, "write", during)
    compact(table, schedule=False)
    assert others[0].completed == (plan,)
    bases = [names.base_file(path.name) for path in (tmp_path / "trips").rglob("*.parquet")]
    assert sum(base is not None and base.instant == plan for base in bases) == 2
    assert ours(table) == theirs(tmp_path / "trips")


@pytest.mark.nth(2)
def test_what_other_programs_do_with_a_plan_is_said_and_nothing_is_done_twice(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    (plan,) = table.schedule_compaction().scheduled
    place, before = home(tmp_path / "trips"), ours(table)
    (place / f"{plan}.compaction.inflight").touch()
    report = compact(table)
    assert (report.completed, report.pending) == ((), (plan,)), "another program carries it out"
    (place / f"{plan}.compaction.inflight").unlink()
    content = (place / f"{plan}.compaction.requested").read_bytes()
    (place / f"{plan}.compaction.requested").write_bytes(content[:-20])
    with refused(FormatError, 2, f"{plan}.compaction.requested is damaged"):
        compact(table)
    (place / f"{plan}.compaction.requested").unlink()
    report = compact(table)
    assert plan not in report.completed
    assert (len(report.completed), report.pending) == (1, ()), "it was taken back, and what it had is in a new plan"
    assert ours(table) == theirs(tmp_path / "trips") == before


@pytest.mark.nth(2)
def test_a_plan_that_is_empty_is_neither_completed_nor_tried_without_end(tmp_path: Path) -> None:
    """As another program leaves it that was ended between the creation of the file and its content."""
    table = table_with_logs(tmp_path / "trips")
    before, at = ours(table), names.next_instant([timeline.current(connect(table.url)).completed[-1].time], dt.datetime.now(dt.UTC))
    plan = home(tmp_path / "trips") / f"{at}.compaction.requested"
    plan.touch()
    with refused(RefusedError, 2, f"{at}.compaction.requested is empty: another program is about to lay it"):
        compact(table)
    assert not list(plan.parent.glob(f"{at}*commit"))
    plan.unlink()
    report = compact(table)
    assert (len(report.completed), report.pending, report.left) == (1, (), 0)
    assert ours(table) == theirs(tmp_path / "trips") == before


def test_a_plan_that_stays_pending_is_tried_once_in_a_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, tried = table_with_logs(tmp_path / "trips"), list[str]()
    (plan,) = table.schedule_compaction().scheduled

    def of_another(self: Any, instant: str) -> bool:
        tried.append(instant)
        assert len(tried) == 1
        return False

    monkeypatch.setattr(compacting.Compacting, "_carry_out", of_another)
    assert (compact(table).pending, tried) == ((plan,), [plan])


@pytest.mark.nth(2)
def test_a_plan_that_was_deleted_and_a_log_that_is_gone_are_said(tmp_path: Path, version: int) -> None:
    table = table_with_logs(tmp_path / "trips")
    (plan,) = table.schedule_compaction().scheduled
    asked = home(tmp_path / "trips") / f"{plan}.compaction.requested"
    content, log = asked.read_bytes(), next((tmp_path / "trips/city=la").glob(".*.log.1_*"))
    whole = log.read_bytes()
    log.unlink()
    with refused(RefusedError, 2, f"names city=la/{log.name}, which is gone"):
        compact(table)
    log.write_bytes(whole)
    write(table, "upsert", frame(("a", "sf", 7, 7.0)))
    asked.unlink()
    if version == 6:  # where logs are called by the slice that a compaction was to begin
        with refused(RefusedError, 2, f"the compaction {plan} of {table.url} was taken back, and city=sf/"):
            write(table, "upsert", frame(("b", "sf", 7, 7.0)))
    asked.write_bytes(content)
    write(table, "upsert", frame(("b", "sf", 7, 7.0)))
    assert compact(table).left == 1
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 7.0, "b": 7.0}


def test_beside_another_program_that_writes_no_plan_is_laid(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    at = names.next_instant([timeline.current(connect(table.url)).completed[-1].time], dt.datetime.now(dt.UTC))
    begun_by_another = home(tmp_path / "trips") / f"{at}.deltacommit.inflight"
    begun_by_another.touch()
    with refused(RefusedError, 2, f"another program has begun to write into {table.url} (a deltacommit at {at})"):
        table.schedule_compaction()
    begun_by_another.unlink()
    assert table.schedule_compaction().scheduled
    assert log_of(tmp_path / "trips").tip


@pytest.mark.nth(2)
def test_a_plan_that_listings_do_not_show_yet_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS: a writer that did not see it would add its log to the slice before."""
    table = table_with_logs(tmp_path / "trips")
    (plan,) = table.schedule_compaction().scheduled
    looks = list[int]()

    def late(store: Any, folder: str = names.FOLDER) -> timeline.Timeline:
        found = read(store, folder)
        looks.append(1)
        return dataclasses.replace(found, pending=()) if len(looks) <= 10 else found

    read = timeline.read
    monkeypatch.setattr(timeline, "read", late)
    write(table, "upsert", frame(("a", "sf", 7, 7.0)))
    monkeypatch.undo()
    assert begun(table, plan) == [1]
    assert len(looks) > 10


@pytest.mark.nth(2)
def test_a_file_group_is_in_one_plan_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other call laid its plan after this one had chosen."""
    table = table_with_logs(tmp_path / "trips")
    chosen = compacting.Compacting._chosen
    laid = list[str]()

    def slow(self: Any, found: Any) -> Any:
        groups = chosen(self, found)
        if not laid:
            laid.append("")
            laid[0] = table.schedule_compaction().scheduled[0]
        return groups

    monkeypatch.setattr(compacting.Compacting, "_chosen", slow)
    report = table.schedule_compaction()
    assert (report.scheduled, report.pending) == ((), (laid[0],))
    assert compact(table).left == 0


@pytest.mark.nth(2)
def test_the_most_urgent_come_first_in_plans_of_a_size(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    cities = ("la", "ny", "sf")
    write(table, "upsert", frame(*((city, city, 1, 1.0) for city in cities)))
    for n, some in enumerate((cities, ("ny", "sf"), ("ny",)), 2):
        write(table, "upsert", frame(*((city, city, n, 1.0) for city in some)))

    def order(found: list[Candidate]) -> list[Candidate]:
        seen.append([one.partition for one in found])
        assert all(one.log_size > 0 and one.base_size > 0 and one.logs for one in found)
        return [one for one in found if one.partition != "city=la"][::-1]

    seen = list[list[str]]()
    (first,) = table.schedule_compaction(strategy="logs", plan_size=1).scheduled
    plan = (home(tmp_path / "trips") / f"{first}.compaction.requested").read_bytes()
    assert [one.partition for one in compaction.decode(plan, "plan")] == ["city=ny"], "one at least, and the one with most logs"
    report = compact(table, strategy=order, plan_size=1)
    assert [len(report.scheduled), len(report.completed), report.left] == [1, 2, 1]
    assert seen == [["city=la", "city=sf"], ["city=la"]]
    write(table, "upsert", frame(*((city, city, 7, 1.0) for city in cities)))
    report = compact(table, plan_size=1, time_limit="0.000001 s")
    assert (len(report.completed), report.left) == (1, 2), "the time is over after the first"
    slices = file_groups.newest(connect(table.url), timeline.current(connect(table.url)), logs=True)
    assert [one.partition for one in slices if not one.logs] == ["city=la"], "its logs are the largest, as nobody has compacted it"
    assert compact(table, strategy="oldest").left == 0
    for wrong, said in (
        ({"strategy": "size"}, "strategy='size' is not one of 'log_size', 'logs', 'oldest', nor a function"),
        ({"plan_size": 0}, "plan_size is 0, which is not a size"),
        ({"time_limit": "0 s"}, "time_limit is 0, and has to be longer"),
        ({"time_limit": "soon"}, "time_limit='soon' is not a time span"),
        ({"schedule": "no"}, "schedule"),
    ):
        with refused(UsageError, 2, said):
            compact(table, **wrong)  # type: ignore[arg-type]
    write(table, "upsert", frame(("la", "la", 8, 1.0)))
    with refused(UsageError, 2, "strategy has returned"):
        compact(table, strategy=lambda found: [*found, Candidate("", "it", 1, 1, 1, T)])
    assert compact(table).left == 0


@pytest.mark.nth(2)
def test_only_a_merge_on_read_table_as_it_is_now_is_compacted(tmp_path: Path) -> None:
    table = create(tmp_path / "base")
    with refused(RefusedError, 2, "is a copy-on-write table: it has no logs"):
        compact(table)
    merged = table_with_logs(tmp_path / "trips")
    with refused(UsageError, 2, "is read, not compacted"):
        compact(merged.as_of(T))
    report = compact(merged)
    assert json.loads(json.dumps(report.as_dict()))["completed"] == list(report.completed)
    assert "2 file groups, 2 logs" in str(report)
    assert repr(report).startswith("CompactionReport(scheduled=1, completed=1, pending=0, file_groups=2, logs=2, left=0, seconds=")


@pytest.mark.nth(2)
def test_a_new_column_is_in_the_base_files_of_later_compactions_alone(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    (plan,) = table.schedule_compaction().scheduled
    more = pa.schema([*FIRST.schema, pa.field("tip", pa.float64())])
    write(table, "upsert", frame(("a", "sf", 9, 1.0, 0.5), schema=more))
    compact(table)
    assert "tip" not in ours(table.as_of(plan))["a"]
    rows = ours(table)
    assert (rows["a"]["tip"], rows["b"]["tip"]) == (0.5, None)
    compact(table)
    assert ours(table) == rows == theirs(tmp_path / "trips")


@pytest.mark.nth(2)
def test_spark_compacts(tmp_path: Path, spark: Any) -> None:
    table = table_with_logs(tmp_path / "trips")
    before = ours(table)
    report = table.compact(spark=spark, progress=False)
    assert (report.file_groups, report.left) == (2, 0)
    assert ours(table) == before == theirs(tmp_path / "trips")


# ---------------------------------------------------------------------------------------------------------------------- the plan
OPERATION = Operation(
    "city=sf", "it-0", T, f"it-0_0-1-2_{T}.parquet", (f".it-0_{T}.log.1_0-1-2", f".it-0_{T}.log.2_0-1-2"), 5 << 20, 7 << 20
)


def test_a_plan_is_read_as_it_was_written() -> None:
    whole, without = OPERATION, Operation("", "that-0", T, "", (f".that-0_{T}.log.1_0-1-2",), 0, 9)
    data = compaction.encode([whole, without])
    assert data == compaction.encode([whole, without])
    assert [(one.partition, one.group, one.instant, one.base, one.logs, one.log_size) for one in compaction.decode(data, "plan")] == [
        (one.partition, one.group, one.instant, one.base, one.logs, one.log_size) for one in (whole, without)
    ]
    assert compaction.groups(data, "plan") == [("city=sf", "it-0"), ("", "that-0")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": f"other-0_0-1-2_{T}.parquet"}, {"base": "it-0_0-1-2_20200101000000000.parquet"}, {"base": "../it"},
        {"logs": (f".other-0_{T}.log.1_0-1-2",)}, {"logs": ("../../x",)},
    ],
)  # fmt: skip
def test_a_plan_with_names_of_others_is_not_carried_out(wrong: dict[str, Any]) -> None:
    data = compaction.encode([Operation(**{**OPERATION.__dict__, **wrong})])
    with refused(FormatError, 2, "names files that are not of the slice"):
        compaction.decode(data, "plan")


def test_a_plan_that_leads_out_of_the_table_is_damaged() -> None:
    for wrong in ({"partition": "../x"}, {"group": "a/b"}):
        with pytest.raises(FormatError):
            compaction.decode(compaction.encode([Operation(**{**OPERATION.__dict__, **wrong})]), "plan")
