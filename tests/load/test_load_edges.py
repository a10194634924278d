"""Loads at their edges: what stands in several files, what nobody can read any more, what is known by its name, what is slow."""

from __future__ import annotations

import inspect
import json
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

import quire
from gathering import not_taken, refused
from loading import exact, load, numbered, rows, topic
from quire import RefusedError, StorageError, UsageError
from quire.cli import main
from quire.engine import loader
from quire.engine.request import Settings, build
from quire.errors import TransientError
from quire.formats.parquet import RECORDS
from quire.load import LoadSettings, check
from quire.sources.kafka import client as kafka_client
from quire.sources.kafka import offsets, positions
from quire.sources.kafka.offsets import Fetched, Span
from services import kafka_raw
from services.kafka import Mock, Record, mock

DAY = 86_400_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def ledger(dest: Path) -> quire.Ledger:
    return quire.Ledger(dest)


def as_it_is(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns(["headers"])


def rejecting(*values: bytes) -> Any:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if set(batch.column("value").to_pylist()) & set(values):
            raise ValueError("not this one")
        return as_it_is(batch)

    return function


# -------------------------------------------------------------------------------------------------------------- in several files
@pytest.mark.nth(2)
@pytest.mark.parametrize("function", [None, rejecting(b"v0", b"v3", b"v4")], ids=["all", "some rejected"])
def test_a_data_file_of_one_date_is_forgotten_with_all_that_was_read_with_it(kafka: Mock, tmp_path: Path, function: Any) -> None:
    dates = [Record(b"v%d" % i, partition=0, timestamp=1_700_000_000_000 + i % 3 * DAY) for i in range(30)]
    name, dest = topic(kafka, 1, dates[:15]), tmp_path / "out"
    version = {"function_version": "1"} if function else {}
    load(kafka, name, dest, function, partition_by="date", **version)
    kafka.produce(name, dates[15:])
    load(kafka, name, dest, function, partition_by="date", **version)
    for i in (0, 2):  # the one that has the range of offsets in its row, and one that has none
        ledger(dest).forget(file=sorted(ledger(dest).inspect.files()["data_file"])[i], spark=quire.LocalRunner(), progress=False)
        assert ledger(dest).inspect.files()["records"].sum() < 30
        load(kafka, name, dest, function, partition_by="date", **version)
        found = exact(kafka, dest, name)
        aside = {0, 3, 4} if function else set()
        assert (found.double, found.other) == ([], [])
        assert {position.offset for position, _ in found.lost} == aside
    ledger(dest).compact(spark=quire.LocalRunner(), progress=False)
    ledger(dest).forget(file=sorted(ledger(dest).inspect.files()["data_file"])[1], spark=quire.LocalRunner(), progress=False)
    load(kafka, name, dest, function, partition_by="date", **version)
    assert {position.offset for position, _ in exact(kafka, dest, name).lost} == aside
    assert not exact(kafka, dest, name).double
    assert ledger(dest).verify(spark=quire.LocalRunner()).ok


# ------------------------------------------------------------------------------------------------- what a producer may say
NOW = 1_795_000_000_000  # milliseconds since 1970


@pytest.mark.parametrize(
    "settings",
    [{}, {"partition_by": "date"}, {"transform": as_it_is}, {"format": "lines", "partition_by": "date"}],
    ids=["rows", "by date", "function", "lines by date"],
)
def test_a_time_out_of_range_is_quarantined_and_never_another_time(kafka: Mock, tmp_path: Path, settings: dict[str, Any]) -> None:
    wrong = [NOW * 1000, NOW * 10**6, (1 << 63) - 1]
    name = topic(kafka, 1, [Record(b"%d" % ts, timestamp=ts) for ts in (NOW, *wrong)])
    report = load(kafka, name, tmp_path / "out", **settings)
    assert (report.records, not_taken(report)) == (1, 3)
    kept = ledger(tmp_path / "out").inspect.quarantined_records("arrow").to_pylist()
    assert [one["content"] for one in kept] == [b"%d" % ts for ts in wrong]
    assert all(f"{ts} milliseconds" in one["error"] for ts, one in zip(wrong, kept, strict=True))


def test_a_time_that_nothing_is_made_of_keeps_no_line_away(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"line", timestamp=NOW * 10**6)])
    assert load(kafka, name, tmp_path / "out", format="lines").records == 1


def test_a_value_that_names_no_directory_is_quarantined_and_the_topic_goes_on(kafka: Mock, tmp_path: Path) -> None:
    def cities(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch({"city": pa.array([v.decode() for v in batch.column("value").to_pylist()]), "n": batch.column("offset")})

    def days(batch: pa.RecordBatch) -> pa.RecordBatch:
        days = pa.array([int(v) for v in batch.column("value").to_pylist()], pa.int32()).cast(pa.date32())
        return pa.record_batch({"day": days, "n": batch.column("offset")})

    name = topic(kafka, 1, [b"Bonn", "ö".encode() * 126, b"x" * 250, b"x" * 251, b""])
    report = load(kafka, name, tmp_path / "cities", cities, partition_by="city")
    assert (report.records, not_taken(report)) == (3, 2)
    assert "bytes, and a name may have 255" in report.quarantined[0][1]
    name = topic(kafka, 1, [b"0", b"2932897", b"-719163", b"2932896"])
    report = load(kafka, name, tmp_path / "days", days, partition_by="day")
    assert (report.records, not_taken(report)) == (2, 2)


@pytest.mark.parametrize("late", [False, True], ids=["seen before", "seen in a task"])
def test_a_column_for_directories_that_the_function_does_not_give_is_refused_and_leaves_nothing_open(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    name, dest, calls = topic(kafka, 2, numbered(6, 2)), tmp_path / "out", list[int]()
    if late:  # no broker has given a record in time, so that nobody could ask the function before
        monkeypatch.setattr(offsets, "sample", lambda *_, **__: (RECORDS.empty_table(), 0))

    def without(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        return batch.select(["value", "offset"])

    for _ in range(2):
        calls.clear()
        with refused(UsageError, 2, "partition_by='city' is not a column. The columns are value, offset"):
            load(kafka, name, dest, without, partition_by="city", function_version="1")
        assert len(calls) <= 2, "it is not tried again"
        assert not list(dest.glob("_quire/jobs/*")), "nothing is frozen, and nothing is open"
        assert not list(dest.glob("**/part-*"))
    assert load(kafka, name, dest, without, partition_by="offset", function_version="1").records == 6


def test_the_longest_and_the_emptiest_of_a_record_come_through(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = [
        Record(b"", b"", headers=[("", b""), ("", None), ("x" * 10_000, b"")]),
        Record(None, None, headers=[("h", b"\0")] * 1_000),
        Record(b"v" * 900_000, b"k"),
        Record(b"v", b"k" * 90_000),
    ]
    name = "t." + "x" * 247  # as long as a topic's name may be
    kafka.create(name, 40)
    kafka.produce(name, [one._replace(partition=39) for one in [*long, *([Record(b"", None, [("h", b"x" * 60_000)])] * 10)]])
    assert load(kafka, name, tmp_path / "topics", partition_by="topic").records == 14
    assert load(kafka, name, tmp_path / "out").records == 14
    assert exact(kafka, tmp_path / "out", name).exact
    monkeypatch.setattr(offsets, "MANY", 1)
    (window,) = offsets._windows([Span(kafka_client.Key(name, 39), 0, 14)])
    cluster = kafka_client.cluster_of(kafka.address, dict(kafka.settings))
    assert len([*offsets._Reading(cluster, window, False, chunk=100_000).run()]) > 5, "headers fill a batch, too"


# ------------------------------------------------------------------------------------------------------- what is gone at its source
def test_a_record_in_quarantine_stays_there_when_compaction_has_removed_it(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, dest = topic(kafka, 1, numbered(10)), tmp_path / "out"
    load(kafka, name, dest, rejecting(b"v3", b"v5"))
    read = offsets.read

    def without_the_third(cluster: Any, spans: list[Span], **settings: Any) -> Iterator[Fetched]:
        for found in read(cluster, spans, **settings):
            yield found._replace(records=None) if found.start == 3 else found

    with monkeypatch.context() as patched:
        patched.setattr(offsets, "read", without_the_third)
        done = ledger(dest).retry(f"kafka://{kafka.address}/{name}", function=as_it_is, spark=quire.LocalRunner(), progress=False)
    assert (done.gathered, done.quarantined) == (1, 1)
    (left,) = ledger(dest).inspect.quarantined_records("arrow").to_pylist()
    assert (left["offset"], left["content"]) == (3, b"v3")
    assert "gone at its source" in left["error"]
    assert [position.offset for position, _ in exact(kafka, dest, name).lost] == [3]
    ledger(dest).retry(f"kafka://{kafka.address}/{name}", function=as_it_is, spark=quire.LocalRunner(), progress=False)
    assert exact(kafka, dest, name).exact


def test_an_empty_partition_that_retention_goes_over_is_no_loss(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(20))
    kafka.delete_records(name, {0: 20})

    def goes_on(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.produce(name, numbered(10))
            kafka.delete_records(name, {0: 25})

    assert load(kafka, name, tmp_path / "out", progress=goes_on).records == 0
    report = load(kafka, name, tmp_path / "out", on_data_loss="record")
    assert (report.records, report.lost) == (5, 5)


def test_retry_reads_topics_that_the_last_load_has_not_named(kafka: Mock, tmp_path: Path) -> None:
    a, b, dest = topic(kafka, 1, numbered(5)), topic(kafka, 1, numbered(5)), tmp_path / "out"
    load(kafka, a, dest, rejecting(b"v1"))
    load(kafka, b, dest, rejecting(b"v2"), allow_nonempty=True)
    done = ledger(dest).retry(f"kafka://{kafka.address}/{a},{b}", function=as_it_is, spark=quire.LocalRunner(), progress=False)
    assert (done.gathered, done.left) == (2, ())
    assert exact(kafka, dest, a, b).exact


# -------------------------------------------------------------------------------------------------------------------- other names
def test_a_topic_known_by_its_name_goes_on_when_a_broker_tells_its_id(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when old brokers are replaced: its records are the same."""
    name, dest = topic(kafka, 2, numbered(10, 2)), tmp_path / "out"
    with monkeypatch.context() as patched:
        patched.setattr(kafka_client.Cluster, "versions", lambda _, topics, *__: {one: kafka_client.named(one) for one in topics})
        with pytest.warns(UserWarning, match="by its name"):
            load(kafka, name, dest, rejecting(b"v3"))
    kafka.produce(name, numbered(10, 2, first=10))
    assert load(kafka, name, dest, rejecting(b"v3")).records == 10
    kafka.produce(name, numbered(10, 2, first=20))
    ledger(dest).import_offsets(f"kafka://{kafka.address}/{name}", {0: 12}, spark=quire.LocalRunner(), progress=False)
    assert load(kafka, name, dest, rejecting(b"v3")).records == 8
    assert ledger(dest).retry(f"kafka://{kafka.address}/{name}", function=as_it_is, spark=quire.LocalRunner(), progress=False).gathered == 1
    assert ledger(dest).inspect.offsets()["topic_id"].tolist() == [f"name:{name}"] * 2


def test_offsets_of_another_cluster_are_not_imported(kafka: Mock, tmp_path: Path) -> None:
    name, dest = topic(kafka, 1, numbered(10)), tmp_path / "out"
    load(kafka, name, dest)
    with mock() as other:
        theirs = topic(other, 1, numbered(5))
        with refused(RefusedError, 2, "holds topics of cluster", "Choose another destination"):
            ledger(dest).import_offsets(f"kafka://{other.address}/{theirs}", {0: 3}, spark=quire.LocalRunner(), progress=False)
    kafka.produce(name, numbered(5))
    assert load(kafka, name, dest).records == 5


# ------------------------------------------------------------------------------------------------------------- records and columns
def test_headers_that_are_no_utf8_set_their_record_aside(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(3))
    kafka_raw.produce(kafka.address, name, b"odd", [(b"\xff\xfe", b"1"), (b"fine", b"2")])
    kafka_raw.produce(kafka.address, name, b"good", [(b"fine", b"2")])
    for number, function in enumerate((None, as_it_is, rejecting(b"odd", b"v1"))):
        dest = tmp_path / str(number)
        report = load(kafka, name, dest, function)
        assert (report.records, not_taken(report)) == ((4, 1), (4, 1), (3, 2))[number]
        odd = ledger(dest).inspect.quarantined_records("arrow").to_pylist()[-1]
        assert (odd["offset"], odd["content"], odd["error"]) == (3, b"odd", "a header's name is not UTF-8")
    assert rows(tmp_path / "0").column("headers").to_pylist()[-1] == [{"key": "fine", "value": b"2"}]


def test_columns_are_those_of_the_first_records_however_slow_these_come(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, slow = offsets._Reading._assign, iter([2.2])

    def slowly(reading: Any) -> None:
        time.sleep(next(slow, 0))
        asked(reading)

    monkeypatch.setattr(offsets._Reading, "_assign", slowly)
    load(kafka, topic(kafka, 1, numbered(100)), tmp_path / "out", as_it_is)
    assert "offset" in ledger(tmp_path / "out")._log.frozen()


def test_columns_that_nobody_knew_beforehand_are_those_of_the_first_records_that_are_taken(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all of the records that are looked at before a job begins are bad ones."""

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        found = [int(value) for value in batch.column("value").to_pylist()]
        return pa.RecordBatch.from_pydict({"n": [f"n{n}" if len(found) == 1 and n > 5 else n for n in found]})

    monkeypatch.setattr(loader, "_of_first_records", lambda *_: None)
    name = topic(kafka, 1, [b"bad", *(b"%d" % n for n in range(7)), b"bad", b"7", b"bad"])
    report = load(kafka, name, tmp_path / "out", function)
    assert report.records + not_taken(report) == 11
    assert rows(tmp_path / "out").schema.field("n").type == pa.int64()
    assert "TypeError: the column 'n'" in str(ledger(tmp_path / "out").inspect.quarantined_records()["error"].tolist())


def test_another_default_for_topics_is_refused_as_it_would_pass_over_records(kafka: Mock, tmp_path: Path) -> None:
    with refused(UsageError, 2, "default.topic.config", "lost or double"):
        load(kafka, "any", tmp_path / "out", source_options={"default.topic.config": {"auto.offset.reset": "latest"}})


def test_a_broker_that_takes_more_than_a_second_to_answer_is_waited_for() -> None:
    class Slow:
        def list_topics(self, timeout: float) -> None:
            if timeout < 1.5:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

        def poll(self, _: float) -> None:
            """Nothing to tell."""

    far = kafka_client.Cluster("far:9092", {})
    far._admin = Slow()
    far.reach()


# ------------------------------------------------------------------------------------------------------------------- what is said
@pytest.mark.nth(6)
@pytest.mark.parametrize("given", ["ssl.key.pem=hunter2", "sasl.oauthbearer.config=hunter2", "sasl.password=hunter2 and 3"])
@pytest.mark.parametrize("form", ["apart", "together"])
def test_the_command_to_say_again_has_no_secret(
    kafka: Mock, given: str, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kafka_client, "FIRST", 0.3)
    options = ["--option", given] if form == "apart" else [f"--option={given}"]
    arguments = ["ledger", "lag", str(tmp_path / "out"), "--source", "kafka://127.0.0.1:1/t", *options, "--option", "client.id=me"]
    load(kafka, topic(kafka, 1, numbered(1)), tmp_path / "out")
    monkeypatch.setattr("sys.argv", ["quire", *arguments])
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err
    assert ended.value.code == 3
    assert "The same command" in said
    assert f"{given.partition('=')[0]}=***" in said
    assert "client.id=me" in said
    assert not {"hunter2", "and 3"} & {word for word in ("hunter2", "and 3") if word in said}


def test_what_a_call_has_loaded_before_it_failed_is_counted_in_records(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, asked = topic(kafka, 1, numbered(3000, size=100)), kafka_client.Cluster.starts

    def fails(cluster: Any, keys: Any, told: Any) -> Any:
        if (tmp_path / "out" / "_quire" / "log").exists():
            raise StorageError("the broker is away")
        return asked(cluster, keys, told)

    monkeypatch.setattr(kafka_client.Cluster, "starts", fails)
    with pytest.raises(StorageError, match=r"away\. [0-9,]+ records were loaded by this call and stay") as told:
        load(kafka, name, tmp_path / "out", max_bytes=150_000)
    assert " 0 records" not in str(told.value)


def test_a_group_that_cannot_follow_since_the_ledger_cannot_be_read_is_told(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise StorageError("the store is away")

    monkeypatch.setattr(positions, "positions", fails)
    report = load(kafka, topic(kafka, 1, numbered(5)), tmp_path / "out", consumer_group="follower")
    assert report.records == 5
    assert "follower does not follow: the store is away" in report.notes[0]


def test_many_small_topics_do_not_take_a_second_each(kafka: Mock, tmp_path: Path) -> None:
    names = [topic(kafka, 1, numbered(2)) for _ in range(15)]
    started = time.monotonic()
    assert load(kafka, "|".join(names), tmp_path / "out").records == 30
    assert time.monotonic() - started < 10


# ------------------------------------------------------------------------------------------------------------- what nobody sees
class _Event:
    """The end of a partition, as the client tells it."""

    error, topic, partition, offset = lambda _: KafkaError(KafkaError._PARTITION_EOF), lambda _: "t", lambda _: 0, lambda _: 100


class _Aborted(kafka_client.Cluster):
    """A partition that holds nothing but aborted records: they are fetched for a long time, and none is given."""

    def __init__(self, goes_on: bool) -> None:
        super().__init__("nowhere:1", {})
        self.kafka = types.SimpleNamespace(
            Message=_Event, KafkaError=KafkaError, KafkaException=KafkaException, TopicPartition=TopicPartition
        )
        self.began, self.goes_on, self._met = time.monotonic(), goes_on, {"t"}
        self._consumer = types.SimpleNamespace(
            poll=self.poll, consume=lambda *_: [], assign=lambda _: None, unassign=lambda: None, close=lambda: None
        )

    def poll(self, _: float) -> _Event | None:
        took = time.monotonic() - self.began
        if self.goes_on:
            self._count(json.dumps({"topics": {"t": {"partitions": {"0": {"next_offset": int(took * 100)}, "-1": {}}}}}))
        time.sleep(0.01)
        return _Event() if took > 0.6 else None


def test_a_long_stretch_of_aborted_records_is_gone_past_and_silence_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "PATIENCE", 0.2)
    spans = [Span(kafka_client.Key("t", 0), 0, 100)]
    (found,) = offsets.read(_Aborted(goes_on=True), spans)
    assert (found.start, found.end, found.records) == (0, 100, None)
    with pytest.raises(TransientError, match="nothing has come"):
        list(offsets.read(_Aborted(goes_on=False), spans))


def test_the_client_tells_how_far_it_has_come(kafka: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_client, "TELLS", 50)
    name = topic(kafka, 1, numbered(50))
    cluster = kafka_client.Cluster(kafka.address, dict(kafka.settings))
    cluster.consumer.assign([TopicPartition(name, 0, 0)])
    until = time.monotonic() + 10
    while cluster.fetched(name, [0]) < 50 and time.monotonic() < until:
        cluster.consumer.poll(0.05)
    assert cluster.fetched(name, [0]) == 50
    cluster.close()


def test_an_option_that_does_not_exist_is_named_with_the_nearest_one(tmp_path: Path) -> None:
    for given, words in (({"max_byte": 1}, "'max_byte'. Did you mean 'max_bytes'?"), ({"ever": 1}, "'ever'. Did you mean 'every'?")):
        with refused(UsageError, 2, f"unknown option {words}"):
            quire.load("kafka://127.0.0.1:1/t", tmp_path / "out", **given)  # type: ignore[arg-type]  # that is the point


def test_the_settings_that_are_typed_are_those_that_are_checked_and_shown() -> None:
    def keywords(function: Any) -> set[str]:
        return {name for name, p in inspect.signature(function).parameters.items() if p.kind is p.KEYWORD_ONLY}

    assert {*LoadSettings.__annotations__, "every"} == keywords(check)
    assert keywords(quire.load) == keywords(check) | {"spark", "max_runs", "outage", "progress", "stop", "maintain"}
    assert {*Settings.__annotations__, "waits", "of_splits"} == keywords(build)
    assert keywords(quire.plan) | {"split_by_schema"} == {*Settings.__annotations__, "spark", "progress", "operation"}
