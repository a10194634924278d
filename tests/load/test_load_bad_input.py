"""What is wrong with a load is said in one line, before anything is read where that is possible, and no record is lost by it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError

import quire
from gathering import gather, refused, write
from loading import exact, files, load, numbered, rows, topic
from quire import DataLossError, QuireError, RefusedError, StorageError, TooManyQuarantined, UsageError
from quire.sources.kafka import client as kafka_client
from quire.sources.kafka.offsets import lost_words
from quire.sources.kafka.topics import Key
from services.kafka import Kafka, Mock, mock
from services.ports import free_port


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long."""
    monkeypatch.setattr(kafka_client, "FIRST", 2.0)


# -------------------------------------------------------------------------------------------------------------------------- arguments
@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("kafka://", "no broker"),
        ("kafka://host:9092", "no topic"),
        ("kafka://host:9092/", "no topic"),
        ("kafka://host:99999/t", "is not a broker"),
        ("kafka://ho st/t", "is not a broker"),
        ("kafka://user:hunter2@host:9092/t", "source_options"),
        ("kafka://host:9092/a,,b", "is not a topic"),
        ("kafka://host:9092/(", "regular expression"),
        ("/data/in", "quire.consolidate"),
        ([], "kafka://host:9092/topic"),
        (["kafka://host:9092/t", 5], "kafka://host:9092/topic"),
        (["/data/in"], "quire.consolidate"),
        (["kafka://host:9092/t", "kafka://user:hunter2@host:9092/t"], "source_options"),
        (["kafka://host:9092/t", "kafka://other:9092/t"], "topics of one call are of one cluster"),
    ],
)
def test_a_source_that_is_none(source: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        quire.load(source, tmp_path / "out", spark=quire.LocalRunner())
    assert words in str(caught.value)
    assert str(caught.value).isprintable()
    assert "hunter2" not in str(caught.value)
    assert caught.value.argument == "source"


def test_a_client_that_is_not_installed_is_one_line_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    monkeypatch.setattr(sys.modules["quire.spark.session"], "session", lambda: pytest.fail("Spark was started"))
    kafka_client.library.cache_clear()
    try:
        with refused(UsageError, 2, "needs the package confluent-kafka", "pip install"):
            quire.load("kafka://host:9092/t", tmp_path / "out")
    finally:
        kafka_client.library.cache_clear()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"format": "json"}, "unknown format"),
        ({"format": "lines", "transform": len}, "columns"),
        ({"transform": "lines"}, "is not a function"),
        ({"newlines": "escape"}, "lines"),
        ({"newlines": "keep"}, "unknown newlines"),
        ({"on_data_loss": "ignore"}, "unknown on_data_loss"),
        ({"schema": "a int"}, "transform="),
        ({"until": 5, "every": "1 s"}, "until="),
        ({"until": "yesterday"}, "says no place"),
        ({"until": "2999-01-01"}, "future"),
        ({"start": "2999-01-01"}, "lies in the future: all that is there would count as done"),
        ({"until": -1}, "below 0"),
        ({"until": {0: -3}}, "below 0"),
        ({"until": {}}, "says no place"),
        ({"until": True}, "says no place"),
        ({"max_runs": 3}, "every="),
        ({"partition_by": "headers"}, "makes no directories"),
        ({"partition_by": "nothing"}, "is not a column"),
        ({"partition_by": ".x"}, "names no directory that readers see"),
        ({"max_bytes": "much"}, "max_bytes"),
        ({"consumer_group": 3}, "consumer_group"),
        ({"source_options": {"group.id": "x"}}, "group.id"),
        ({"source_options": {"isolation.level": "read_uncommitted"}}, "isolation.level"),
        ({"source_options": {"no.such.setting": "1"}}, "no.such.setting"),
        ({"source_options": "no"}, "dictionary"),
        ({"max_quarantined": -1}, "max_quarantined"),
    ],
)
def test_a_wrong_argument_is_one_line(kafka: Mock, settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    with refused(UsageError, 2, words):
        load(kafka, "t", tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_kafka_is_no_destination_and_no_source_of_files(kafka: Mock, tmp_path: Path) -> None:
    with refused(UsageError, 2, "writes files and tables"):
        load(kafka, "t", f"kafka://{kafka.address}/t")
    with refused(UsageError, 2, "quire.load"):
        gather(f"kafka://{kafka.address}/t", tmp_path / "out")


# ---------------------------------------------------------------------------------------------------------------------------- brokers
@pytest.mark.usefixtures("quick")
def test_no_broker(tmp_path: Path) -> None:
    with refused(StorageError, 3, "no broker answers", "refused"):
        load(Kafka(f"127.0.0.1:{free_port()}"), "t", tmp_path / "out")
    with refused(StorageError, 3, "no broker answers", "nowhere.invalid"):
        load(Kafka("nowhere.invalid:9092"), "t", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("quick")
def test_a_port_where_something_else_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, refused(StorageError, 3, "no broker answers"):
        load(Kafka(f"127.0.0.1:{server.getsockname()[1]}"), "t", tmp_path / "out")


@pytest.mark.usefixtures("quick")
def test_tls_against_plain_text(kafka: Mock, tmp_path: Path) -> None:
    with refused(StorageError, 3, "security.protocol"):
        load(Kafka(kafka.address, {"security.protocol": "ssl"}), "t", tmp_path / "out")


@pytest.mark.usefixtures("quick")
def test_no_secret_is_ever_shown_or_written(kafka: Mock, tmp_path: Path) -> None:
    word = "hunter2-and-more"
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": word}
    with pytest.raises(QuireError) as caught:
        load(Kafka(kafka.address, options), "t", tmp_path / "out")
    assert word not in str(caught.value)
    with pytest.raises(UsageError) as wrong:
        load(Kafka(kafka.address, {"ssl.key.pem": word, "security.protocol": "ssl"}), "t", tmp_path / "out")
    assert word not in str(wrong.value)
    name = topic(kafka, 1, numbered(10))
    report = load(kafka, name, tmp_path / "out", source_options={"sasl.password": word, "sasl.username": "me"})
    everything = b"".join(p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file())
    assert word.encode() not in everything
    assert word not in f"{report!r} {report} {report.as_dict()}"


def test_a_secret_is_looked_up_by_name(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CLIENT", "from-the-environment")
    name = topic(kafka, 1, numbered(10))
    assert load(kafka, name, tmp_path / "out", source_options={"client.id": quire.secret("KAFKA_CLIENT")}).records == 10
    with refused(UsageError, 2, "KAFKA_NOT_SET"):
        load(kafka, name, tmp_path / "out", source_options={"client.id": quire.secret("KAFKA_NOT_SET")})


# ----------------------------------------------------------------------------------------------------------------------------- topics
def test_an_unknown_topic_names_the_nearest(kafka: Mock, tmp_path: Path) -> None:
    kafka.create("temperatures", 1)
    with refused(UsageError, 2, "'temperature'", "Did you mean 'temperatures'?"):
        load(kafka, "temperature", tmp_path / "out")
    with refused(UsageError, 2, "matches", "nothing-like-this.*"):
        load(kafka, "nothing-like-this.*", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_permission(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(3))
    kafka.refuse(name, KafkaError.TOPIC_AUTHORIZATION_FAILED)
    try:
        with refused(StorageError, 3, name, "permission"):
            load(kafka, name, tmp_path / "out")
    finally:
        kafka.refuse(name)


def test_a_topic_that_was_deleted_and_made_again_is_refused(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(20, 2))
    load(kafka, name, tmp_path / "out")
    kafka.delete(name)
    kafka.create(name, 2)
    kafka.produce(name, numbered(40, 2))
    with refused(RefusedError, 2, name, "deleted and made again"):
        load(kafka, name, tmp_path / "out")
    assert load(kafka, name, tmp_path / "other").records == 40


def test_another_cluster_under_the_same_name_is_refused(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(5))
    load(kafka, name, tmp_path / "out")
    with mock(brokers=1) as other:
        other.create(name, 1)
        other.produce(name, numbered(50))
        with refused(RefusedError, 2, "cluster", "another destination"):
            load(other, name, tmp_path / "out")


def test_without_topic_ids_the_name_is_the_key_and_one_warning_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "TOPIC_IDS", 0.3)
    with mock(brokers=1, topic_ids=False) as old:
        name = topic(old, 1, numbered(10))
        with pytest.warns(UserWarning, match="by its name") as told:
            report = load(old, name, tmp_path / "out", every="10 ms", max_runs=3)
        assert len(told) == 1
        assert "by name" in report.notes[0]
        assert exact(old, tmp_path / "out", name).exact
        assert quire.Ledger(tmp_path / "out").inspect.offsets()["topic_id"].tolist() == [f"name:{name}"]
        old.delete(name)
        old.create(name, 1)
        old.produce(name, numbered(3))
        with pytest.warns(UserWarning, match="by its name"), refused(RefusedError, 2, "ends at 3", "up to 10"):
            load(old, name, tmp_path / "out")


def test_a_destination_of_files_or_of_another_topic_is_refused(kafka: Mock, tmp_path: Path) -> None:
    a, b = (topic(kafka, 1, numbered(5)) for _ in range(2))
    gather(write(tmp_path / "in", {"f.txt": b"line\n"}), tmp_path / "files")
    with refused(RefusedError, 2, "made of files"):
        load(kafka, a, tmp_path / "files")
    load(kafka, a, tmp_path / "out")
    with refused(RefusedError, 2, f"holds topic {a}", f"loads {b}"):
        load(kafka, b, tmp_path / "out")
    with refused(RefusedError, 2, "records"):
        gather(tmp_path / "in", tmp_path / "out")
    assert load(kafka, f"{a},{b}", tmp_path / "out").records == 5  # whoever names all of them brings one more
    write(tmp_path / "theirs", {"f.txt": b"line\n"})
    with refused(RefusedError, 2, "not empty"):
        load(kafka, a, tmp_path / "theirs")


# ------------------------------------------------------------------------------------------------------------------------------- until
def test_until_an_offset(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    assert load(kafka, name, tmp_path / "out", until={0: 10, (name, 1): 20}).records == 30
    assert load(kafka, name, tmp_path / "out", until=15).records == 5  # partition 1 is beyond it already
    with refused(UsageError, 2, "beyond the end", "50"):
        load(kafka, name, tmp_path / "out", until=51)
    with refused(UsageError, 2, "partition 7"):
        load(kafka, name, tmp_path / "out", until={7: 10})
    assert load(kafka, name, tmp_path / "out", until=50).records == 65
    assert exact(kafka, tmp_path / "out", name).exact


def test_until_before_all_that_is_there(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(100))
    kafka.delete_records(name, {0: 50})
    with refused(UsageError, 2, "before the first record", "50"):
        load(kafka, name, tmp_path / "out", until=20)


# ------------------------------------------------------------------------------------------------------------------------------- losses
def test_what_retention_removed_is_a_loud_error_with_the_count(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, numbered(100, 2, first=100))
    kafka.delete_records(name, {0: 70})
    with refused(DataLossError, 2, "20 offsets", f"{name} partition 0", "on_data_loss='record'"):
        load(kafka, name, tmp_path / "out")
    assert len(rows(tmp_path / "out")) == 100
    report = load(kafka, name, tmp_path / "out", on_data_loss="record")
    assert (report.records, report.lost) == (80, 20)
    found = quire.Ledger(tmp_path / "out").inspect.offsets().set_index("partition")
    assert found["lost"].to_dict() == {0: 20, 1: 0}
    assert found["offset"].to_dict() == {0: 100, 1: 100}
    ranges = quire.Ledger(tmp_path / "out").inspect.coverage(f"kafka://{found['cluster'][0]}/{name}/0")
    assert ranges[ranges["state"] == "lost"][["start", "length"]].values.tolist() == [[50, 20]]
    assert load(kafka, name, tmp_path / "out").bytes == 0  # it is said once


def test_the_partitions_that_have_lost_records_are_counted_in_words() -> None:
    lost = {Key("t", 0): 1000, Key("t", 1): 5, Key("t", 2): 1}
    for n, words in [(1, "1,000 offsets of t partition 0 were"), (2, "0 and 1 other were"), (3, "0 and 2 others were")]:
        assert words in lost_words(dict([*lost.items()][:n]))


def test_what_retention_removes_between_plan_and_reading(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))

    def removed(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.delete_records(name, {1: 30})

    with refused(DataLossError, 2, "30 offsets", f"{name} partition 1"):
        load(kafka, name, tmp_path / "out", progress=removed)
    assert not files(tmp_path / "out")
    report = load(kafka, name, tmp_path / "out", on_data_loss="record")  # goes on with the same plan
    assert (report.records, report.lost) == (70, 30)
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_topic_that_goes_while_it_is_read_ends_in_one_line(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(100))

    def gone(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.delete(name)
            kafka.create(name, 1)
            kafka.produce(name, numbered(7))

    report = load(kafka, name, tmp_path / "out", progress=gone)
    assert report.records == 0
    assert report.deferred
    assert not files(tmp_path / "out")


def test_a_topic_that_is_made_again_and_shorter_while_it_is_read(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(100))
    load(kafka, name, tmp_path / "out", until=60)

    def gone(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.delete(name)
            kafka.create(name, 1)
            kafka.produce(name, numbered(7))

    report = load(kafka, name, tmp_path / "out", progress=gone)
    assert (report.records, len(report.deferred)) == (0, 1)
    assert len(rows(tmp_path / "out")) == 60


def test_max_quarantined_commits_nothing(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"good", b"two\nlines", b"three\nmore\nlines"])
    with refused(TooManyQuarantined, 1, "2 records were", "max_quarantined is 1"):
        load(kafka, name, tmp_path / "out", format="lines", max_quarantined=1)
    with refused(TooManyQuarantined, 1, "newline"):
        load(kafka, name, tmp_path / "out", format="lines", max_quarantined=0)
    assert not files(tmp_path / "out")
