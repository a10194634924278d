"""A table's changes as a topic of Kafka: every change of every commit is there, and a key's last record is how it is."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from test_other_writers import last_instant, roll_back
from test_writes import LOCAL, create, frame, ours, write

import gathering
import quire
from quire.cli import load
from quire.cli.app import cli
from quire.errors import NotFoundError, QuireError, RefusedError, StorageError, UsageError
from quire.sources.kafka import client
from quire.storage import connect
from quire.storage.within import marked
from quire.table import emit as emitting
from quire.table import emitted
from quire.table.emitted import State
from quire.table.table import Table
from services.kafka import Mock, mock

numbers = count()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Mock]:
    with mock() as found:
        yield found


@pytest.fixture
def topic(cluster: Mock) -> str:
    name = f"t{next(numbers)}"
    cluster.create(name, partitions=3)
    return name


def folder(table: Table) -> Path:
    return Path(table.url.removeprefix("file://"))


def refused(call: Callable[[], object], kind: type[QuireError]) -> str:
    """The one line of an error."""
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value).isprintable()
    return str(caught.value)


def emit(cluster: Mock, table: Any, topic: str, **more: Any) -> quire.EmitReport:
    return quire.emit(table, f"kafka://{cluster.address}/{topic}", **{"spark": LOCAL, "progress": False, **more})


def sent(cluster: Mock, topic: str) -> list[tuple[int, dict[str, Any], dict[str, Any] | None]]:
    """(partition, key, value) of all records, those of a key in their order."""
    return [
        (message.partition(), json.loads(message.key()), None if message.value() is None else json.loads(message.value()))
        for message in cluster.read(topic)
    ]


def followed(cluster: Mock, topic: str) -> dict[str, Any]:
    """The rows that somebody has who follows the topic."""
    rows = dict[str, Any]()
    for _, key, value in sent(cluster, topic):
        if value is None or value["after"] is None:
            rows.pop(str(key), None)
        else:
            rows[str(key)] = value["after"]
    return {row["id"]: row for row in rows.values()}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = create(tmp_path / "a")
    write(made, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    return made


def test_each_change_of_each_commit_is_a_record_in_debeziums_envelope(cluster: Mock, table: Table, topic: str) -> None:
    first = emit(cluster, table, topic)
    assert (first.commits, first.records, first.snapshot, first.source) == (1, 2, True, table.url)
    write(table, "upsert", frame(("a", "sf", 2, 2.0), ("c", "la", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    write(table, "delete", frame(("b", "la", 4, 0.0)))
    second = emit(cluster, table.url, topic, tombstones=True)
    newest = last_instant(folder(table))
    assert (second.commits, second.records, second.snapshot, second.instant) == (3, 5, False, newest)
    found = sent(cluster, topic)
    of = {name: [(p, value) for p, key, value in found if key["id"] == name] for name in "abc"}
    assert {tuple(key) for _, key, _ in found} == {("id", "city")}
    assert [value and value["op"] for _, value in of["a"]] == ["r", "u", "u"]
    assert [value and value["op"] for _, value in of["b"]] == ["r", "d", None], "a tombstone follows"
    assert [value and value["op"] for _, value in of["c"]] == ["c"]
    assert all(len({p for p, _ in those}) == 1 for those in of.values()), "a key has one partition"
    last = of["a"][-1][1]
    assert last is not None
    assert (last["before"]["fare"], last["after"]["fare"]) == (2.0, 3.0)
    assert set(last) == {"before", "after", "source", "op", "ts_ms"}
    source = last["source"]
    assert (source["connector"], source["table"], source["snapshot"]) == ("quire", table.config.name, "false")
    assert source["ts_ms"] // 1000 == int(dt.datetime.strptime(source["instant"][:14] + "+0000", "%Y%m%d%H%M%S%z").timestamp())
    third = emit(cluster, table, topic, every="0 s", max_runs=2)
    assert (third.commits, third.records, third.instant) == (0, 0, newest)
    assert followed(cluster, topic) == ours(table)


def test_changes_of_a_merge_on_read_table_are_emitted_and_a_compaction_emits_nothing(cluster: Mock, tmp_path: Path, topic: str) -> None:
    table = create(tmp_path / "a", type="merge_on_read")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 5, 2.0)))
    assert (emit(cluster, table, topic).records, followed(cluster, topic)) == (2, ours(table))
    write(table, "upsert", frame(("a", "sf", 3, 3.0), ("b", "la", 3, 3.0)))  # the first one comes too late
    write(table, "delete", frame(("b", "la", 4, 0.0)))
    table.compact(spark=LOCAL, progress=False)
    done = emit(cluster, table, topic)
    assert (done.commits, done.records) == (3, 2)
    assert followed(cluster, topic) == ours(table)


def test_values_that_json_does_not_have_are_told_in_debeziums_forms(cluster: Mock, tmp_path: Path, topic: str) -> None:
    at = dt.datetime(2026, 11, 22, 10, 30, 0, 123456, tzinfo=dt.UTC)
    row = {
        "id": 1 << 53, "raw": b"\x00\xff", "price": Decimal("12.340"), "at": at, "day": dt.date(2026, 11, 22), "x": float("nan"),
        "tags": ["a", None], "deep": {"y": float("-inf"), "z": b"z"}, "none": None,
    }  # fmt: skip
    schema = pa.schema([
        ("id", pa.int64()), ("raw", pa.binary()), ("price", pa.decimal128(10, 3)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
        ("x", pa.float64()), ("tags", pa.list_(pa.string())), ("deep", pa.struct([("y", pa.float64()), ("z", pa.binary())])),
        ("none", pa.string()),
    ])  # fmt: skip
    table = quire.Table.create(tmp_path / "t", key="id")
    write(table, "upsert", pa.Table.from_pylist([row], schema))
    emit(cluster, table, topic)
    ((_, key, value),) = sent(cluster, topic)
    assert value is not None
    assert key == {"id": 1 << 53}
    assert value["after"] == {
        "id": 1 << 53, "raw": "AP8=", "price": "12.340", "at": "2026-11-22T10:30:00.123456Z", "day": "2026-11-22", "x": "NaN",
        "tags": ["a", None], "deep": {"y": "-Infinity", "z": "eg=="}, "none": None,
    }  # fmt: skip


def test_a_topic_that_begins_after_an_instant_has_later_changes_alone(cluster: Mock, table: Table, topic: str) -> None:
    begun = last_instant(folder(table))
    assert emit(cluster, table, topic, since=begun).records == 0
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    assert emit(cluster, table, topic).commits == 1
    assert [value and value["op"] for _, _, value in sent(cluster, topic)] == ["u"]


def test_a_row_that_moves_keeps_its_order_where_the_key_says_no_partition(cluster: Mock, table: Table, topic: str) -> None:
    emit(cluster, table, topic, key=["id"])
    moved = frame(("a", "la", 5, 5.0))
    write(table, "delete", frame(("a", "sf", 4, 0.0)))
    write(table, "upsert", moved)
    emit(cluster, table, topic, key=["id"])
    assert followed(cluster, topic) == ours(table)
    assert [value and value["op"] for _, key, value in sent(cluster, topic) if key == {"id": "a"}] == ["r", "d", "c"]


def test_a_call_that_dies_at_any_step_repeats_and_never_loses(
    cluster: Mock, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies at a record, at the end of a task, before the entry is put, after it: at every third of these steps."""
    emit(cluster, table, topic)
    send, flush, mark = client.Sender.send, client.Sender.flush, emitted.mark
    for at in range(0, 20, 3):
        write(table, "upsert", frame(("a", "sf", 10 + at, float(at)), (f"n{at}", "la", 1, 1.0)))
        write(table, "delete", frame(("b", "la", 100 * at + 50, 0.0)))
        write(table, "upsert", frame(("b", "la", 100 * at + 60, float(at))))
        steps = iter(range(at + 1))

        def dying(function: Callable[..., Any], steps: Iterator[int] = steps, at: int = at) -> Callable[..., Any]:
            def step() -> None:
                if next(steps, -1) == at:
                    raise SystemExit(3)

            def made(*args: Any) -> Any:
                step()
                found = function(*args)
                step()
                return found

            return made

        with monkeypatch.context() as patch:
            patch.setattr(client.Sender, "send", dying(send))
            patch.setattr(client.Sender, "flush", dying(flush))
            patch.setattr(emitted, "mark", dying(mark))
            try:
                emit(cluster, table, topic)
            except SystemExit:
                pass
            else:
                assert at == 15, "four records, two flushes and an entry, before and after each"
                break
        emit(cluster, table, topic)
        assert followed(cluster, topic) == ours(table)
    assert followed(cluster, topic) == ours(table)


def test_brokers_that_are_away_are_waited_for_and_what_was_emitted_counts(
    cluster: Mock, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, calls = emitted.mark, list[int]()

    def failing(*args: Any) -> Any:
        calls.append(1)
        if len(calls) in (2, 3):
            raise StorageError("nobody answers.")
        if len(calls) == 1:
            write(table, "upsert", frame(("a", "sf", 2, 2.0)))
        return mark(*args)

    monkeypatch.setattr(emitted, "mark", failing)
    with gathering.refused(StorageError, 3, "nobody answers"):
        emit(cluster, table, topic, every="0 s", max_runs=1)
    assert len(calls) == 2, "a loop that has not gone well once waits for nothing"
    report = emit(cluster, table, topic, every="0 s", max_runs=2, outage="1 min")
    assert (len(calls), report.gap_count, report.gaps[0].away, report.commits) == (4, 1, "nobody answers.", 1)
    assert "outages outlived" in str(report)
    assert followed(cluster, topic) == ours(table)
    calls.clear()
    other = f"{topic}-other"
    cluster.create(other, partitions=3)
    whole = emit(cluster, table, other, every="0 s", max_runs=1, outage="1 min")
    assert (whole.gap_count, whole.commits, whole.snapshot) == (1, 3, True), "also what was emitted before the outage"


def test_of_two_calls_at_once_the_last_record_of_a_key_is_how_it_is(
    cluster: Mock, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that another has overtaken emits all since it began again."""
    emit(cluster, table, topic)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    mark, met = emitted.mark, list[quire.EmitReport]()

    def late(*args: Any) -> Any:
        if not met:
            monkeypatch.setattr(emitted, "mark", mark)
            write(table, "upsert", frame(("a", "sf", 3, 3.0)))
            met.append(emit(cluster, table, topic))
            # The records of the first one arrive only now, as those of a slow producer.
            old = [m for m in cluster.read(topic) if b'"fare":2.0' in (m.value() or b"") and json.loads(m.value())["after"]["fare"] == 2.0]
            with cluster.producer({"partitioner": "murmur2_random"}) as producer:
                producer.produce(topic, value=old[0].value(), key=old[0].key())
            assert followed(cluster, topic)["a"]["fare"] == 2.0
        return mark(*args)

    monkeypatch.setattr(emitted, "mark", late)
    assert (emit(cluster, table, topic).commits, met[0].commits) == (2, 2)
    assert followed(cluster, topic) == ours(table)
    assert emit(cluster, table, topic).commits == 0


def test_old_entries_go_and_the_state_does_not_grow(cluster: Mock, table: Table, topic: str) -> None:
    for at in range(4):
        write(table, "upsert", frame(("a", "sf", 2 + at, 2.0)))
        emit(cluster, table, topic)
    (only,) = (folder(table) / ".hoodie/_quire/emitted").iterdir()
    assert sorted(path.name for path in only.iterdir()) == [f"{n:020}.entry" for n in (3, 4)]
    store, line = connect(marked(table.url)), table._timeline(table._store)
    of = emitted.Target("c", "t", "i")
    old = [f"2001010100000{n}000" for n in range(5)]
    state = emitted.mark(store, of, State(), ("0" * 14, *old), line)
    assert state is not None
    assert emitted.mark(store, of, state, [line.first], line) == (2, frozenset({"0" * 14, line.first}))


def test_a_topic_that_is_made_anew_begins_with_the_rows_that_are_there(cluster: Mock, table: Table, topic: str) -> None:
    emit(cluster, table, topic)
    cluster.delete(topic)
    cluster.create(topic, partitions=2)
    assert emit(cluster, table, topic).snapshot
    assert followed(cluster, topic) == ours(table)


def test_what_cannot_be_emitted_is_one_line_and_nothing_is_marked(
    cluster: Mock, table: Table, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FIRST", 0.2)
    gone = refused(lambda: emit(cluster, table, "nothere"), NotFoundError)
    assert "the topic 'nothere' is not at" in gone
    with mock() as other:
        away = other.address
    said = refused(lambda: quire.emit(table, f"kafka://{away}/t", spark=LOCAL, progress=False), StorageError)
    assert "no broker answers" in said
    secret = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_PLAINTEXT", "sasl.username": "u", "sasl.password": "hunter222"}
    told = refused(lambda: emit(cluster, table, topic, producer_options=secret), StorageError)
    assert "hunter222" not in told
    assert "hunter222" not in repr(emitting.check(table, f"kafka://h/{topic}", producer_options=secret))
    for wrong in (
        {"producer_options": {"acks": "1"}}, {"producer_options": {"no.such": "x"}}, {"producer_options": 3}, {"key": "id"}, {"key": []},
        {"key": ["nope"]}, {"since": "yesterday"}, {"tombstones": 1}, {"max_runs": 1}, {"storage_options": 3},
    ):  # fmt: skip
        refused(lambda wrong=wrong: emit(cluster, table, topic, **wrong), UsageError)  # type: ignore[misc]
    for target in ("file:///x", "kafka://h/a,b", "kafka://h/a.*", 3):
        refused(lambda target=target: quire.emit(table, target, spark=LOCAL), UsageError)  # type: ignore[misc]
    refused(lambda: emit(cluster, tmp_path / "none", topic), UsageError)
    refused(lambda: emit(cluster, table.as_of("2" * 17), topic), UsageError)
    assert sent(cluster, topic) == []
    assert not (folder(table) / ".hoodie/_quire/emitted").exists()


def test_records_that_brokers_do_not_take_are_one_line_and_come_again(
    cluster: Mock, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(client.Sender, "_told", lambda self, error, _: setattr(self, "_failed", client.library().KafkaError(10)))
        said = refused(lambda: emit(cluster, table, topic), QuireError)
    assert f"cannot write to topic {topic}" in said
    assert "Nothing of these commits is marked as emitted: call again." in said
    assert emit(cluster, table, topic).snapshot
    assert followed(cluster, topic) == ours(table)


def test_a_commit_that_was_rolled_back_later_is_one_line(cluster: Mock, table: Table, topic: str) -> None:
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    emit(cluster, table, topic)
    roll_back(folder(table), last_instant(folder(table)))
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    said = refused(lambda: emit(cluster, table, topic), RefusedError)
    assert "it was rolled back" in said
    assert emitting.ANEW in said


def test_a_shell_emits_and_says_how_much(cluster: Mock, table: Table, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "spark_of", lambda _: nullcontext(LOCAL))
    done = CliRunner().invoke(cli, ["emit", table.url, f"kafka://{cluster.address}/{topic}", "--key", "id", "--json", "--quiet"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["records"] == 2
    assert {tuple(key) for _, key, _ in sent(cluster, topic)} == {("id",)}
