"""What is due at a table is done, in order and in time, and what is refused hinders nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from test_clean import files, refused, written
from test_compaction import table_with_logs
from test_writes import LOCAL, create, frame, ours, theirs, write

import quire
from gathering import refused as fails
from quire.engine import outages
from quire.errors import RefusedError, StorageError
from quire.table import maintaining
from quire.table.table import Table


def maintain(table: Table, **more: Any) -> quire.MaintenanceReport:
    return table.maintain(**{"keep_for": 0, "keep": 2, "spark": LOCAL, "progress": False, **more})


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_what_is_due_is_said_first_and_done_then(tmp_path: Path, version: int) -> None:
    table, instants = written(tmp_path / "trips", 5, version=version)
    now, there = ours(table), files(tmp_path / "trips")
    plan = maintain(table, dry_run=True)
    assert (list(plan.due), plan.dry_run, plan.clean, plan.archive) == (["clean", "archive"], True, None, None)
    assert "8 slices" in plan.due["clean"]
    assert "5 writes are on the timeline, and 2 stay" in plan.due["archive"]
    assert files(tmp_path / "trips") == there, "a dry run does nothing"
    report = maintain(table)
    assert report.clean is not None
    assert report.archive is not None
    assert (report.clean.slices, report.archive.instants, report.archive.first) == (8, 3, instants[3])
    assert (report.compaction, report.hindered, report.left) == (None, {}, ())
    assert maintain(table).due == {}, "a second call finds nothing"
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert "due" in str(maintain(table))
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


def test_logs_are_compacted_first(tmp_path: Path) -> None:
    table = table_with_logs(tmp_path / "trips")
    now = ours(table)
    assert "compact" not in maintain(table, dry_run=True, log_ratio=1e9).due
    report = maintain(table)
    assert next(iter(report.due)) == "compact"
    assert report.compaction is not None
    assert report.compaction.left == 0
    assert table.stats().logs == 0
    assert ours(table) == theirs(tmp_path / "trips") == now
    table.upsert(frame(("a", "sf", 50, 5.0)), spark=LOCAL, progress=False)
    table.schedule_compaction()
    assert maintain(table, log_ratio=1e9).due["compact"] == "1 plan is pending"
    assert not quire.recover(table.url).open


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_many_small_files_are_clustered(tmp_path: Path, version: int) -> None:
    table = create(tmp_path / "trips", version=version)
    for n in range(3):
        write(table, "bulk_insert", frame((f"a{n}", "sf", n, 1.0), (f"b{n}", "la", n, 1.0)))
    now = ours(table)
    assert "cluster" not in maintain(table, dry_run=True, small_files=7).due
    assert "6 small files" in maintain(table, dry_run=True, small_files=6).due["cluster"]
    report = maintain(table, small_files=6)
    assert report.clustering is not None
    assert (report.clustering.file_groups, report.clustering.files, report.hindered) == (6, 2, {})
    assert "6 file groups, which became 2" in str(report)
    assert ours(table) == theirs(tmp_path / "trips") == now
    assert "cluster" not in maintain(table, small_files=1).due
    bucket = create(tmp_path / "bucket", index="bucket", buckets=2)
    write(bucket, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    assert "cluster" not in maintain(bucket, small_files=1).due, "its keys say the file groups"


def test_files_whose_clustering_is_archived_are_not_missed(tmp_path: Path) -> None:
    """A clean has taken them, and what says that they were replaced has left the timeline since."""
    table = create(tmp_path / "trips")
    for n in range(9):
        write(table, "bulk_insert", frame((f"a{n}", "sf", n, 1.0), (f"b{n}", "la", n, 1.0)))
        if n % 3 == 2:
            maintain(table, small_files=3)
    ledger = quire.Ledger(table.url)
    assert len(table.timeline()) < 9
    assert ledger.verify(spark=LOCAL).ok
    lost = max((tmp_path / "trips").rglob("city=sf/*.parquet"), key=lambda path: path.stat().st_mtime)
    lost.unlink()
    assert "the file is gone" in [what for *_, what in ledger.verify(spark=LOCAL).damaged]


def test_a_little_more_than_what_stays_is_not_worth_an_archive(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 5)
    assert "archive" not in maintain(table, keep=4, dry_run=True).due
    assert "archive" in maintain(table, keep=3, dry_run=True).due


def test_what_is_refused_is_named_and_hinders_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path / "trips", 5)

    def refusing(*_: Any, **__: Any) -> Any:
        raise RefusedError("another program is writing: call again.")

    monkeypatch.setattr(Table, "clean", refusing)
    report = maintain(table)
    assert report.hindered == {"clean": "another program is writing: call again."}
    assert report.archive is not None
    assert report.archive.instants == 3
    assert "clean was hindered" in str(report)


def test_nothing_begins_after_the_time_limit(tmp_path: Path) -> None:
    table, _ = written(tmp_path / "trips", 5)
    there = files(tmp_path / "trips")
    report = maintain(table, time_limit=0.001)
    assert (report.clean, report.archive, report.left) == (None, None, ("clean", "archive"))
    assert files(tmp_path / "trips") == there
    assert "left for the next call" in str(report)
    assert maintain(table, time_limit="1 h").left == ()


def test_it_runs_again_and_again_and_a_run_that_fails_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = written(tmp_path / "trips", 5)
    due, runs = maintaining.Maintaining.due, list[int]()

    def failing(self: Any) -> dict[str, str]:
        runs.append(1)
        if len(runs) == 1:
            raise RefusedError("the store is away.")
        return due(self)

    monkeypatch.setattr(maintaining.Maintaining, "due", failing)
    report = maintain(table, every=0.01, max_runs=2)
    assert (len(runs), report.clean is not None) == (2, True)
    assert "the store is away. The next run tries again." in capsys.readouterr().err


def test_an_outage_is_waited_for_with_pauses_that_double_and_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, _ = written(tmp_path / "trips", 5)
    due, runs, waits = maintaining.Maintaining.due, list[int](), list[float]()

    def failing(self: Any) -> dict[str, str]:
        runs.append(1)
        if 1 < len(runs) < 5:
            raise StorageError("nobody answers.")
        return due(self)

    def pause(stopped: threading.Event, seconds: float) -> bool:
        waits.append(seconds)
        return False

    monkeypatch.setattr(maintaining.Maintaining, "due", failing)
    monkeypatch.setattr(outages, "pause", pause)
    report = maintain(table, every=0.01, max_runs=2)
    assert (len(runs), len(waits), report.gap_count, report.gaps[0].away) == (5, 3, 1, "nobody answers.")
    assert max(waits) < 1
    assert "outages outlived" in str(report)
    told = [line for line in capsys.readouterr().err.splitlines() if "nobody answers" in line]
    assert len(told) == 2, "when it begins, and when it is over"


@pytest.mark.parametrize(
    ("times", "waits"),
    [({}, False), ({"every": 0.01}, False), ({"every": 0.01, "outage": "1 s"}, True), ({"outage": "1 s"}, True)], ids=str,
)  # fmt: skip
def test_an_outage_that_lasts_too_long_or_is_there_at_once_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: dict[str, Any], waits: bool
) -> None:
    table, _ = written(tmp_path / "trips", 2)
    asked = list[int]()

    def failing(self: Any) -> dict[str, str]:
        asked.append(1)
        raise StorageError("nobody answers.")

    monkeypatch.setattr(maintaining.Maintaining, "due", failing)
    with fails(StorageError, 3, "nobody answers"):
        maintain(table, **times)
    assert (len(asked) > 1) == waits


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_two_at_once_beside_a_writer_lose_nothing(tmp_path: Path, version: int) -> None:
    table, _ = written(tmp_path / "trips", 6, version=version)
    failed = list[BaseException]()

    def work() -> None:
        try:
            for _ in range(3):
                failed.extend(RuntimeError(why) for why in maintain(table).hindered.values())
        except BaseException as e:  # whatever it is, the test tells it
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for n in range(10, 14):
        write(table, "upsert", frame(("a", "sf", n, float(n)), (f"w{n}", "la", n, 0.0)))
    for thread in threads:
        thread.join()
    assert failed == []
    found = ours(table)
    assert found == theirs(tmp_path / "trips")
    assert found["a"]["ts"] == 13
    assert {f"w{n}" for n in range(10, 14)} <= found.keys()
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


def test_wrong_arguments_are_one_line(tmp_path: Path) -> None:
    table, instants = written(tmp_path / "trips", 1)
    for name, wrong, line in (
        ("keep", 0, "keep takes how many"),
        ("log_ratio", -1, "log_ratio takes bytes of logs"),
        ("log_ratio", float("nan"), "log_ratio takes bytes of logs"),
        ("keep_for", "soon", "is not a time span"),
        ("time_limit", 0, "time_limit is 0"),
        ("max_runs", 2, "every="),
        ("dry_run", "no", "dry_run"),
    ):
        assert line in refused(lambda name=name, wrong=wrong: maintain(table, **{name: wrong}))
    assert "is read, not written" in refused(lambda: maintain(table.as_of(instants[0])))
