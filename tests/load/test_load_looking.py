"""What a ledger tells of a load to people who watch it, and a load that somebody stops."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import quire
from gathering import refused
from loading import exact, load, numbered, rows, topic
from quire import UsageError, plots
from services.kafka import Mock, Record, mock

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def picky(batch: Any) -> Any:
    """Takes no record that begins with bad."""
    if any((value or b"").startswith(b"bad") for value in batch.column("value").to_pylist()):
        raise ValueError("a bad record")
    return batch.select(["value", "topic", "partition", "offset"])


# -------------------------------------------------------------------------------------------------------------------------- partitions
def test_offsets_tell_what_each_partition_became(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 3, numbered(90, 3))
    kafka.produce(name, [Record(b"bad", partition=1), Record(b"x" * 1000, partition=1)])
    load(kafka, name, tmp_path / "out", picky)
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.inspect.offsets()["records"].tolist() == [30, 31, 30]
    kafka.produce(name, numbered(12, 2))
    load(kafka, name, tmp_path / "out", picky)
    found = ledger.refresh().inspect.offsets()
    there = pd.Series([row["partition"] for row in rows(tmp_path / "out").to_pylist()]).value_counts().sort_index()
    assert found["records"].tolist() == there.tolist() == [36, 37, 30]
    assert found["quarantined"].tolist() == [0, 1, 0]
    assert found["bytes"][1] > found["bytes"][0] + 900
    assert ledger.as_of(2).inspect.offsets()["records"].tolist() == [30, 31, 30]
    assert ledger.inspect.offsets().equals(found)


def test_what_is_told_of_partitions_follows_all_that_happens_to_them(kafka: Mock, tmp_path: Path) -> None:
    """What was read before is not read again, and is never told after it has left."""
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    cluster = ledger.inspect.offsets()["cluster"][0]

    def told() -> list[int]:
        found: list[int] = ledger.refresh().inspect.offsets()["records"].tolist()
        assert found == quire.Ledger(tmp_path / "out").inspect.offsets()["records"].tolist(), "as whoever opens it now sees it"
        return found

    kafka.produce(name, numbered(10, 2))
    load(kafka, name, tmp_path / "out")
    assert told() == [55, 55]
    ledger.compact(**HERE)
    assert told() == [55, 55]
    ledger.forget(f"kafka://{cluster}/{name}/1", **HERE)
    assert told() == [55]
    load(kafka, name, tmp_path / "out")
    assert told() == [55, 55]
    ledger.checkpoint(spark=quire.LocalRunner())
    assert told() == [55, 55]
    kafka.produce(name, numbered(4, 2))
    load(kafka, name, tmp_path / "out")
    assert told() == [57, 57]


def test_a_heavy_partition_stands_out(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 4, numbered(400, 4))
    load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.partition_skew().verdict == "even"
    kafka.produce(name, [Record(b"%d" % i, partition=2) for i in range(300)])
    load(kafka, name, tmp_path / "out")
    found = ledger.refresh().partition_skew()
    assert (found.verdict, found.heaviest[0][:2], found.unit) == ("skewed", ("2", 400.0), "records")
    picture = plots.partitions(found)
    assert picture.title == "Skewed: 4 parts, 700 records"
    assert picture.table.set_index("part")["flag"]["2"] == "heavy"
    assert ledger.partition_skew("bytes").unit == "bytes"
    with refused(UsageError, 2, "by", "records"):
        ledger.partition_skew("files")


def test_topics_of_different_sizes_are_even_if_each_of_them_is(kafka: Mock, tmp_path: Path) -> None:
    small, large = topic(kafka, 2, numbered(20, 2)), topic(kafka, 2, numbered(2000, 2))
    load(kafka, f"{small},{large}", tmp_path / "out")
    found = quire.Ledger(tmp_path / "out").partition_skew()
    assert (found.verdict, found.parts) == ("even", 4)
    assert set(found.table()["group"]) == {small, large}


def test_a_first_partition_with_twice_the_records_is_heavy_and_says_nothing_of_abs() -> None:
    assert quire.skew.check([2000, 1000, 1000, 1000], unit="records").verdict == "skewed"


# ------------------------------------------------------------------------------------------------------------- commits and quarantine
def test_commits_tell_records_and_losses_and_are_drawn_at_their_times(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(50))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, [*numbered(30), Record(b"a\nb")])
    kafka.delete_records(name, {0: 60})
    load(kafka, name, tmp_path / "out", on_data_loss="record")
    ledger = quire.Ledger(tmp_path / "out")
    ledger.compact(**HERE)
    found = ledger.inspect.commits()
    assert found[["verb", "records", "bytes", "lost"]].values.tolist()[:2] == [["run", 50, 50, 0], ["run", 21, 31, 10]]
    assert found["records"].sum() == 50 + 21 + 71, "compacting has written all of them again"
    picture = plots.loads(ledger)
    assert picture.title.startswith("3 commits: 71 records, the last one at ")
    assert picture.note == "At most 50 records at once, 1 × compact, 10 lost to retention."
    assert picture.table["lost"].tolist() == [0, 10, 0]
    assert picture.svg() == plots.loads(ledger.refresh()).svg()


def test_the_first_rejected_records_are_those_of_the_newest_commits(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2)
    for turn in range(3):
        kafka.produce(name, [Record(b"bad %d %d" % (turn, i), partition=i % 2) for i in range(6)])
        load(kafka, name, tmp_path / "out", picky)
    ledger = quire.Ledger(tmp_path / "out")
    everything = ledger.inspect.quarantined_records()
    assert len(everything) == 18
    assert ledger.inspect.quarantined_records(limit=100).equals(everything)
    for limit in (1, 4, 6, 7):
        some = ledger.inspect.quarantined_records(limit=limit)
        assert len(some) == limit
        assert all(content.startswith((b"bad 2", b"bad 1")[: 1 + (limit > 6)]) for content in some["content"])
    assert ledger.inspect.quarantined_records(as_="arrow", limit=1).num_rows == 1
    ledger.checkpoint(spark=quire.LocalRunner())
    assert set(ledger.refresh().inspect.quarantined_records(limit=6)["commit"]) == {everything["commit"].max()}
    with refused(UsageError, 2, "limit"):
        ledger.inspect.quarantined_records(limit=0)


def test_whoever_looks_again_learns_by_one_question_whether_there_is_news(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.is_current()
    before = (ledger.version, ledger.summary(), ledger.inspect.offsets())
    kafka.produce(name, numbered(1))
    load(kafka, name, tmp_path / "out")
    assert not ledger.is_current()
    assert (ledger.summary(), ledger.open_jobs(), ledger.version) == (before[1], (), before[0]), "it tells of its version, all of it"
    assert ledger.inspect.offsets().equals(before[2])
    assert not ledger.is_current()
    assert ledger.refresh().is_current()
    assert ledger.inspect.offsets()["offset"].tolist() == [11]


# ---------------------------------------------------------------------------------------------------------------------------- stopping
def test_an_event_ends_a_loop_after_a_whole_commit_in_any_thread(kafka: Mock, tmp_path: Path) -> None:
    name, stop, told = topic(kafka, 2, numbered(100, 2)), threading.Event(), list[Any]()

    def gathering(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering":
            stop.set()

    loop = threading.Thread(
        target=lambda: told.append(load(kafka, name, tmp_path / "out", every="1 h", stop=stop, progress=gathering)), daemon=True
    )
    loop.start()
    loop.join(60)
    assert [report.records for report in told] == [100]
    summary = quire.Ledger(tmp_path / "out").summary()
    assert (summary.commits, summary.open_jobs, summary.unpublished) == (1, (), 0)


def test_a_stop_does_not_wait_for_what_is_left_of_a_long_call(kafka: Mock, tmp_path: Path) -> None:
    """With max_bytes a call makes many commits; it ends after the one that is under way, and the next call takes the rest."""
    name, stop = topic(kafka, 1, numbered(1000, size=100)), threading.Event()

    def gathering(step: quire.ProgressEvent) -> None:
        if step.phase == "gathering":
            stop.set()

    report = load(kafka, name, tmp_path / "out", max_bytes="20 KiB", stop=stop, progress=gathering)
    assert 0 < report.records < 400
    assert quire.Ledger(tmp_path / "out").summary().commits == 1
    assert load(kafka, name, tmp_path / "out").records == 1000 - report.records
    assert exact(kafka, tmp_path / "out", name).exact


def test_what_is_no_event_is_refused(kafka: Mock, tmp_path: Path) -> None:
    with refused(UsageError, 2, "stop="):
        load(kafka, "any", tmp_path / "out", stop=True)


def test_a_step_of_a_load_counts_ranges_and_not_files(kafka: Mock, tmp_path: Path) -> None:
    told = list[quire.ProgressEvent]()
    load(kafka, topic(kafka, 3, numbered(30, 3)), tmp_path / "out", progress=told.append)
    assert {step.what for step in told} == {"range"}
    assert max(step.files for step in told) == 3
