"""How far a load has come, in the ledger and for other tools; and taking over from other loaders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

import quire
import sim
from gathering import gather, refused, write
from loading import exact, load, numbered, rows, topic
from quire import RefusedError, StorageError, UsageError
from quire.cli import load as cli_load
from quire.cli import upkeep
from quire.cli.app import cli
from quire.ledger.identifiers import identifier
from quire.sources.kafka.until import Until
from quire_widgets import LoadMonitor
from quire_widgets.load_pages import facts, partitions
from services.kafka import Mock, mock
from sim.topics import SERVERS, TOPICS


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def committed(kafka: Mock, group: str, name: str, partitions: int) -> list[int]:
    consumer = Consumer({**kafka.client, "group.id": group})
    try:
        return [p.offset for p in consumer.committed([TopicPartition(name, i) for i in range(partitions)], timeout=10)]
    finally:
        consumer.close()


def commit(kafka: Mock, group: str, name: str, offsets: list[int]) -> None:
    consumer = Consumer({**kafka.client, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=[TopicPartition(name, i, offset) for i, offset in enumerate(offsets)], asynchronous=False)
    finally:
        consumer.close()


def source(kafka: Mock, name: str) -> str:
    return f"kafka://{kafka.address}/{name}"


def test_lag_says_what_is_still_to_be_loaded(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out", until={0: 50, 1: 20})
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.inspect.offsets()["offset"].tolist() == [50, 20]
    found = ledger.inspect.lag(source(kafka, name))
    assert list(found.columns) == ["topic", "partition", "offset", "end", "lag", "lost", "open"]
    assert found["lag"].tolist() == [0, 30]
    kafka.produce(name, numbered(10, 2))
    assert ledger.inspect.lag(source(kafka, name))["lag"].tolist() == [5, 35]
    load(kafka, name, tmp_path / "out")
    assert ledger.refresh().inspect.lag(source(kafka, name), as_="arrow")["lag"].to_pylist() == [0, 0]


def test_a_partition_that_was_never_loaded_lags_by_all_that_it_has(kafka: Mock, tmp_path: Path) -> None:
    a, b = topic(kafka, 1, numbered(10)), topic(kafka, 1, numbered(30))
    kafka.delete_records(b, {0: 10})
    load(kafka, a, tmp_path / "out")
    found = quire.Ledger(tmp_path / "out").inspect.lag(source(kafka, f"{a},{b}")).set_index("topic")
    assert found.loc[b, ["offset", "lag"]].tolist() == [10, 20]


def test_a_consumer_group_follows(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    report = load(kafka, name, tmp_path / "out", consumer_group=f"of-{name}")
    assert report.notes == ()
    assert committed(kafka, f"of-{name}", name, 2) == [50, 50]
    kafka.produce(name, numbered(10, 2))
    load(kafka, name, tmp_path / "out", consumer_group=f"of-{name}", every="10 ms", max_runs=2)
    assert committed(kafka, f"of-{name}", name, 2) == [55, 55]


def test_a_consumer_group_that_does_not_follow_is_told_and_nothing_else(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quire.sources.kafka import positions

    def fails(*_: object) -> None:
        raise StorageError("the coordinator is away")

    monkeypatch.setattr(positions, "commit", fails)
    name = topic(kafka, 1, numbered(10))
    report = load(kafka, name, tmp_path / "out", consumer_group="watched")
    assert report.records == 10
    assert report.notes == ("the consumer group watched does not follow: the coordinator is away",)
    assert "does not follow" in str(report)


def test_taking_over_from_another_loader_by_offsets(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    ledger = quire.Ledger(tmp_path / "out", create=True)
    done = ledger.import_offsets(source(kafka, name), {(name, 0): 30, (name, 1): 0}, spark=quire.LocalRunner(), progress=False)
    assert done.gathered == 1
    assert ledger.export_offsets() == {(name, 0): 30}
    assert load(kafka, name, tmp_path / "out").records == 70
    assert min(r["offset"] for r in rows(tmp_path / "out").to_pylist() if r["partition"] == 0) == 30
    assert quire.Ledger(tmp_path / "out").export_offsets() == {(name, 0): 50, (name, 1): 50}
    again = ledger.import_offsets(source(kafka, name), {(name, 0): 40}, spark=quire.LocalRunner(), progress=False)
    assert (again.gathered, again.known) == (0, 1), "what is covered stays as it is"


def test_taking_over_from_a_consumer_group(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    commit(kafka, f"old-{name}", name, [10, 50])
    ledger = quire.Ledger(tmp_path / "out", create=True)
    ledger.import_offsets(source(kafka, name), f"old-{name}", spark=quire.LocalRunner(), progress=False)
    assert load(kafka, name, tmp_path / "out").records == 40
    with refused(UsageError, 2, "no offset", "nobody"):
        ledger.import_offsets(source(kafka, name), "nobody", spark=quire.LocalRunner(), progress=False)


def test_marks_of_offsets_and_of_files_do_not_mix(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    here = {"spark": quire.LocalRunner(), "progress": False}
    quire.Ledger(tmp_path / "topics", create=True).import_offsets(source(kafka, name), {0: 5}, **here)  # type: ignore[arg-type]
    folder = write(tmp_path / "in", {"f.txt": b"line\n"})
    with refused(RefusedError, 2, "marks of 'kafka://", "this call reads files"):
        gather(folder, tmp_path / "topics")
    write(tmp_path / "markers", {identifier(str(folder / "f.txt"), 0, 5): b""})
    quire.Ledger(tmp_path / "files", create=True).import_markers(tmp_path / "markers", folder, **here)  # type: ignore[arg-type]
    with refused(RefusedError, 2, "marks of 'file:///", "this call reads topics"):
        load(kafka, name, tmp_path / "files")


def test_wrong_offsets_are_refused(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    ledger = quire.Ledger(tmp_path / "out", create=True)
    here = {"spark": quire.LocalRunner(), "progress": False}
    for offsets, words in [
        ({(name, 0): -1}, "from 0 on"), ({(name, 0): 11}, "beyond the end"), ({(name, 5): 1}, "not there"),
        ({("other", 0): 1}, "not there"), ({}, "are not offsets"), ({(name, 0): "3"}, "whole number"),
    ]:  # fmt: skip
        with refused(UsageError, 2, words):
            ledger.import_offsets(source(kafka, name), offsets, **here)  # type: ignore[arg-type]  # that is what is tried
    gather(write(tmp_path / "in", {"f.txt": b"line\n"}), tmp_path / "files")
    with refused(RefusedError, 2, "made of files"):
        quire.Ledger(tmp_path / "files").import_offsets(source(kafka, name), {0: 5}, **here)
    with refused(UsageError, 2, "no topic was loaded"):
        quire.Ledger(tmp_path / "files").inspect.lag()


def test_forgetting_a_partition_lets_the_next_call_load_it_again(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    path = f"kafka://{ledger.inspect.offsets()['cluster'][0]}/{name}/1"
    ledger.forget(path, spark=quire.LocalRunner(), progress=False)
    assert len(rows(tmp_path / "out")) == 50
    assert load(kafka, name, tmp_path / "out").records == 50
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_checkpoint_keeps_what_is_known_of_offsets(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2)
    for i in range(3):
        kafka.produce(name, numbered(10, 2, first=10 * i))
        load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    before = ledger.inspect.offsets()
    ledger.checkpoint(spark=quire.LocalRunner())
    assert ledger.inspect.offsets().equals(before)
    assert ledger.inspect.lag(source(kafka, name))["lag"].sum() == 0
    assert load(kafka, name, tmp_path / "out").bytes == 0
    kafka.produce(name, numbered(4, 2))
    assert load(kafka, name, tmp_path / "out").records == 4
    assert exact(kafka, tmp_path / "out", name).exact


def test_verbs_that_are_about_files_say_so(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(5))
    load(kafka, name, tmp_path / "out")
    ledger = quire.Ledger(tmp_path / "out")
    with refused(UsageError, 2, "retention"):
        ledger.purge_sources(spark=quire.LocalRunner())
    with refused(UsageError, 2, "export_offsets"):
        ledger.export_markers(tmp_path / "markers", spark=quire.LocalRunner())
    assert "records loaded" in str(ledger.summary())


def test_in_a_shell(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_load, "spark_of", lambda _: nullcontext(quire.LocalRunner()))
    name, run = topic(kafka, 2, numbered(100, 2)), CliRunner()
    out = str(tmp_path / "out")
    done = run.invoke(cli, ["load", source(kafka, name), out, "--json", "--quiet", "--option", "client.id=shell"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["records"] == 100
    lag = run.invoke(cli, ["ledger", "lag", out, "--source", source(kafka, name), "--json"])
    assert [row["lag"] for row in json.loads(lag.output)] == [0, 0]
    offsets = run.invoke(cli, ["ledger", "offsets", out, "--json"])
    assert [row["offset"] for row in json.loads(offsets.output)] == [50, 50]
    wrong = run.invoke(cli, ["load", source(kafka, name), out, "--option", "nothing"])
    assert isinstance(wrong.exception, UsageError)
    assert "NAME=VALUE" in str(wrong.exception)


def test_a_retry_in_a_shell_takes_options_for_the_brokers(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "spark_of", lambda _: nullcontext(quire.LocalRunner()))
    name, run, out = topic(kafka, 1, [b"a", b"b\nc"]), CliRunner(), str(tmp_path / "out")
    load(kafka, name, tmp_path / "out", format="lines")
    done = run.invoke(cli, ["ledger", "retry", out, "--source", source(kafka, name), "--json", "--quiet", "--option", "client.id=shell"])
    assert json.loads(done.output)["quarantined"] == 1
    wrong = run.invoke(cli, ["ledger", "retry", out, "--source", source(kafka, name), "--quiet", "--option", "sasl.pasword=x"])
    assert "sasl.pasword" in str(wrong.exception)


def test_a_moment_is_never_a_brokers_word_for_an_end() -> None:
    """To a broker -1 is the end of a partition, and -2 its beginning; and no record before a moment is left to the next call."""
    assert [Until.parsed(text).moment for text in ("1969-12-31T23:59:59.999", "0001-01-01T00:00+14:00", "1970-01-01")] == [0, 0, 0]
    assert Until.parsed("2026-11-22T08:00:00.001+01:00").moment == 1_795_330_800_001
    assert Until.parsed("2026-11-22T08:00:00.001001+01:00").moment == 1_795_330_800_002
    with refused(UsageError, 2, "not an offset"):
        Until.parsed(10**5000)


def test_a_transaction_that_hangs_shows_though_the_lag_is_nothing() -> None:
    sim.forget_all()
    with sim.World(kind=sim.KINDS["s3"]).installed():
        TOPICS.clear()
        TOPICS.create("held")
        TOPICS.produce("held", 0, b"one", b"two")
        TOPICS.transaction("held", 0, b"three", b"four", commit=None)
        url = f"kafka://{SERVERS}/held"
        quire.load(url, sim.DEST, spark=quire.LocalRunner(), progress=False)
        (row,) = quire.Ledger(sim.DEST).inspect.lag(url, as_="arrow").to_pylist()
        assert (row["offset"], row["end"], row["lag"], row["open"]) == (2, 2, 0, 2)
        monitor = LoadMonitor(sim.DEST, url, watch=False)
        assert monitor.wait(60)
        (line,) = (table := partitions(monitor.seen.offsets, 0, 10, several=False)).rows
        assert dict(zip(table.header, line, strict=True))["open"] == "2"
        assert "in open transactions" in facts(monitor.seen)
        monitor.close()
        TOPICS.end("held", 0, True)
        (row,) = quire.Ledger(sim.DEST).inspect.lag(url, as_="arrow").to_pylist()
        assert (row["lag"], row["open"]) == (3, 0)
    sim.forget_all()


# ------------------------------------------------------------------------------------------------------------- where a topic begins
def test_latest_loads_what_comes_from_now_on_and_nothing_before_it_ever(kafka: Mock, tmp_path: Path) -> None:
    dest, name = tmp_path / "out", topic(kafka, 2, numbered(10, 2))
    assert load(kafka, name, dest, start="latest").records == 0
    kafka.produce(name, numbered(4, 2, first=10))
    assert load(kafka, name, dest, start="latest").records == 4
    kafka.produce(name, numbered(2, 2, first=14))
    assert load(kafka, name, dest).records == 2, "what lies before was marked, whatever a later call says"
    assert sorted(rows(dest)["offset"].to_pylist()) == [5, 5, 6, 6, 7, 7]
    (first, *_) = [row for row in quire.Ledger(dest).inspect.offsets(as_="arrow").to_pylist() if row["partition"] == 0]
    assert first["offset"] == 8


def test_a_function_shows_its_columns_by_records_that_are_loaded(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"not a number"])

    def number(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"n": [int(value) for value in batch.column("value").to_pylist()]})

    load(kafka, name, tmp_path / "out", number, start="latest")
    kafka.produce(name, [b"7"])
    assert load(kafka, name, tmp_path / "out", number, start="latest").quarantined_count == 0
    assert rows(tmp_path / "out").to_pylist() == [{"n": 7}]


@pytest.mark.parametrize(
    ("start", "words"), [("newest", "latest"), ("yesterday at 5", "start='yesterday at 5'"), (5, "start=5"), (True, "start=True")]
)
def test_a_start_that_says_no_place_is_refused(kafka: Mock, tmp_path: Path, start: object, words: str) -> None:
    with refused(UsageError, 2, words):
        load(kafka, topic(kafka), tmp_path / "out", start=start)
