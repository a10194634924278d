"""Loading from real Kafka: what a mock cluster cannot show."""

from __future__ import annotations

import datetime as dt
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation

import quire
from gathering import refused
from loading import exact, files, load, numbered, rows, topic
from quire import DataLossError, QuireError, RefusedError, StorageError, UsageError
from quire.sources.kafka import client as kafka_client
from services.kafka import Kafka, Record
from services.kafka_broker import Cluster, brokers
from services.kafka_witness import account, look, parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.services


# ------------------------------------------------------------------------------------------------------------------- read_committed
def test_aborted_transactions_and_their_markers_are_passed_over(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 2)
    kept = kafka.transactions(name, numbered(900, 2), size=50, abort_every=3)
    report = load(kafka, name, tmp_path / "out")
    assert report.records == kept == 600
    assert report.bytes > 900, "what holds no record is covered, too"
    assert exact(kafka, tmp_path / "out", name).exact
    assert quire.Ledger(tmp_path / "out").inspect.lag(f"kafka://{kafka.address}/{name}")["lag"].tolist() == [0, 0]
    assert load(kafka, name, tmp_path / "out").bytes == 0


def test_records_that_come_again_are_left_out_and_aborted_ones_stand_for_none(kafka: Cluster, tmp_path: Path, spark: SparkSession) -> None:
    """On Spark, in two calls, of transactions of which each third is aborted: each key that was committed is there once."""
    name, dest = topic(kafka, 3), tmp_path / "out"
    asked = {"spark": spark, "deduplicate": "key", "within": "1 day", "target_size": "20 KB", "compression": "none"}
    reports = []
    for turn in range(2):
        records = [Record(b"%d of turn %d" % (i, turn) + b"." * 200, b"k%d" % (i % 150), partition=i % 3) for i in range(600)]
        kafka.transactions(name, records, size=40, abort_every=3)
        kafka.produce(name, [Record(b"later", b"new in turn %d" % turn), Record(b"none"), Record(b"none")])
        reports.append(load(kafka, name, dest, **asked))
    there = look(kafka, name)
    keys = [content.key for _, content in parquet(dest, quire.Ledger(dest).inspect.files()["data_file"])]
    assert sorted(key for key in keys if key is not None) == sorted({content.key for content in there.values()} - {None})
    assert keys.count(None) == 4
    assert sum(report.records + report.duplicates for report in reports) == len(there)
    assert load(kafka, name, dest, spark=spark, compression="none").bytes == 0
    assert quire.Ledger(dest).verify().ok


def test_ranges_that_hold_nothing_but_aborted_records(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 1)
    kafka.transactions(name, numbered(100), size=100, abort_every=1)
    report = load(kafka, name, tmp_path / "out")
    assert (report.records, report.bytes) == (0, 101)
    kafka.produce(name, numbered(5))
    assert load(kafka, name, tmp_path / "out").records == 5


def test_an_open_transaction_ends_what_can_be_loaded(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    with kafka.producer({"transactional.id": f"open-{name}"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(name, b"open")
        producer.flush(30)
        kafka.produce(name, numbered(5, first=10))  # behind it, and stable only when it is over
        assert load(kafka, name, tmp_path / "out").records == 10
        producer.commit_transaction(30)
    assert load(kafka, name, tmp_path / "out").records == 6
    assert exact(kafka, tmp_path / "out", name).exact


def test_gaps_that_compaction_has_left(kafka: Cluster, tmp_path: Path) -> None:
    kafka.create(name := "compacted", 1, cleanup_policy="compact", segment_ms=100, min_cleanable_dirty_ratio=0.01, delete_retention_ms=0)
    before = look(kafka, name)
    for turn in range(4):
        kafka.produce(name, [Record(b"v%d-%d" % (turn, i), b"k%d" % (i % 7), partition=0) for i in range(200)])
        before |= look(kafka, name)
        time.sleep(0.3)
    until = time.monotonic() + 60
    while len(look(kafka, name)) >= 800 and time.monotonic() < until:
        kafka.produce(name, [Record(b"roll", b"k0", partition=0)])
        before |= look(kafka, name)
        time.sleep(0.5)
    assert len(look(kafka, name)) < 800, "the cleaner has not run"
    report = load(kafka, name, tmp_path / "out")
    assert report.records < report.bytes
    assert report.lost == 0
    held = parquet(tmp_path / "out")
    assert account(look(kafka, name), held, may=before).exact


# ---------------------------------------------------------------------------------------------------------------------------- until
def test_until_a_time(kafka: Cluster, tmp_path: Path) -> None:
    start = 1_763_800_000_000
    name = topic(kafka, 2, [Record(b"%d" % i, timestamp=start + i * 1_000, partition=i % 2) for i in range(100)])
    moment = dt.datetime.fromtimestamp((start + 30_000) / 1_000, dt.UTC)
    assert load(kafka, name, tmp_path / "out", until=moment).records == 30
    assert max(rows(tmp_path / "out")["timestamp"].to_pylist()) < moment
    assert load(kafka, name, tmp_path / "out", until="2025-11-22").records == 0  # a day that is loaded already
    assert load(kafka, name, tmp_path / "out", until=moment + dt.timedelta(days=1)).records == 70
    kafka.delete_records(name, {0: 10, 1: 10})
    with refused(UsageError, 2, "before the first record"):
        load(kafka, name, tmp_path / "other", until=dt.datetime.fromtimestamp(start / 1_000, dt.UTC))
    late = tmp_path / "late"
    assert load(kafka, name, late, start=moment).records == 70, "the first load begins at the first record of that time"
    assert load(kafka, name, late).records == 0, "and no later one loads what lies before"
    assert load(kafka, name, tmp_path / "later", start=moment + dt.timedelta(days=1)).records == 0


# ------------------------------------------------------------------------------------------------------------------------ retention
def test_what_was_removed_is_counted(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, numbered(100, 2, first=100))
    kafka.delete_records(name, {1: 80})
    with refused(DataLossError, 2, "30 offsets", f"{name} partition 1"):
        load(kafka, name, tmp_path / "out")
    report = load(kafka, name, tmp_path / "out", on_data_loss="record")
    assert (report.records, report.lost) == (70, 30)


# ------------------------------------------------------------------------------------------------------------------------- identity
def test_a_topic_made_again_is_refused_by_its_id(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    load(kafka, name, tmp_path / "out")
    kafka.delete(name)
    kafka.create(name, 1)
    kafka.produce(name, numbered(20))
    with refused(RefusedError, 2, name, "deleted and made again", kafka.topic_id(name)):
        load(kafka, name, tmp_path / "out")


def test_partitions_that_are_added_begin_at_their_earliest(kafka: Cluster, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))
    load(kafka, name, tmp_path / "out")
    kafka.grow(name, 3)
    kafka.produce(name, numbered(30, 3, first=10))
    assert load(kafka, name, tmp_path / "out").records == 30
    assert exact(kafka, tmp_path / "out", name).exact


# --------------------------------------------------------------------------------------------------------------------------- signing in
def test_by_password(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    name, alice = topic(kafka, 2, numbered(100, 2)), kafka.by_password()
    assert load(alice, name, tmp_path / "out").records == 100
    monkeypatch.setenv("ALICE", alice.settings["sasl.password"])
    options = {**alice.settings, "sasl.password": quire.secret("ALICE")}
    assert load(alice, name, tmp_path / "secret", source_options=options).records == 100
    assert load(alice, name, tmp_path / "spark", spark=spark).records == 100
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert alice.settings["sasl.password"].encode() not in everything


def test_a_wrong_password(kafka: Cluster, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="who signs in") as caught:
        load(kafka.by_password(password="not-hers-at-all"), "t", tmp_path / "out")
    assert str(caught.value).isprintable()
    assert "not-hers-at-all" not in str(caught.value)


def test_no_permission(kafka: Cluster, tmp_path: Path) -> None:
    hidden, seen = topic(kafka, 1, numbered(5)), topic(kafka, 1, numbered(5))
    bob = kafka.by_password("bob")
    with refused(StorageError, 3, hidden, "permission"):
        load(bob, hidden, tmp_path / "out")
    kafka.allow("bob", seen, AclOperation.DESCRIBE)
    with refused(QuireError, 3, seen, "permission"):
        load(bob, seen, tmp_path / "out")
    assert not files(tmp_path / "out")


def test_tls(kafka: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "FIRST", 4.0)
    name = topic(kafka, 1, numbered(10))
    assert load(kafka.by_tls(), name, tmp_path / "out").records == 10
    with refused(StorageError, 3, "security.protocol"):
        load(kafka.by_tls(trusted=False), name, tmp_path / "other")
    with refused(StorageError, 3, "security.protocol"):
        load(Kafka(kafka.by_tls().address), name, tmp_path / "other")  # plain text against TLS
    with refused(StorageError, 3, "security.protocol"):
        load(Kafka(kafka.address, {"security.protocol": "ssl"}), name, tmp_path / "other")  # TLS against plain text


# -------------------------------------------------------------------------------------------------------------- brokers that come and go
def test_a_broker_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    with brokers(1) as cluster:
        name = topic(cluster, 2, numbered(2_000, 2))
        back: list[threading.Thread] = []

        def kill(step: Any) -> None:
            if step.phase == "gathering" and not back:
                cluster.kill()
                back.append(threading.Thread(target=cluster.start))
                back[0].start()

        report = load(cluster, name, tmp_path / "out", progress=kill)
        back[0].join()
        assert report.records == 2_000
        assert exact(cluster, tmp_path / "out", name).exact


def test_another_broker_leads(tmp_path: Path) -> None:
    with brokers(3) as cluster:
        name = topic(cluster, 3, numbered(3_000, 3))
        killed = list[int]()

        def kill(step: Any) -> None:
            if step.phase == "gathering" and not killed:
                killed.append(cluster.leader(name))
                cluster.kill(killed[0])

        report = load(cluster, name, tmp_path / "out", progress=kill)
        assert report.records == 3_000
        cluster.start(killed[0])
        assert exact(cluster, tmp_path / "out", name).exact
