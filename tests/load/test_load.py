"""quire.load: what is in the topics is in the files, each record once, in every shape that it may take."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, not_taken, refused
from loading import exact, files, load, numbered, rows, topic
from quire import RefusedError, UsageError
from quire.sources.kafka import offsets
from services.kafka import Mock, Record, mock
from services.kafka_witness import lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=3) as cluster:
        yield cluster


# ------------------------------------------------------------------------------------------------------------------ each record once
def test_all_records_are_there_once_and_a_second_call_finds_nothing(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 4, numbered(10_000, 4))
    report = load(kafka, name, tmp_path / "out")
    assert (report.records, report.bytes, not_taken(report), report.lost) == (10_000, 10_000, 0, 0)
    assert exact(kafka, tmp_path / "out", name).exact
    again = load(kafka, name, tmp_path / "out")
    assert (again.records, again.jobs, again.version) == (0, (), report.version)


def test_a_call_takes_only_what_is_new(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 3, numbered(1_000, 3))
    load(kafka, name, tmp_path / "out")
    kafka.produce(name, numbered(500, 3, first=1_000))
    assert load(kafka, name, tmp_path / "out").records == 500
    assert exact(kafka, tmp_path / "out", name).exact


def test_on_spark(kafka: Mock, tmp_path: Path, spark: SparkSession) -> None:
    name = topic(kafka, 4, numbered(3_000, 4))
    settings = {"spark": spark, "target_size": "16 KiB", "compression": "none"}
    report = load(kafka, name, tmp_path / "out", **settings)
    assert report.records == 3_000
    assert len(files(tmp_path / "out")) > 1
    assert exact(kafka, tmp_path / "out", name).exact
    found = quire.read(tmp_path / "out", spark=spark)
    assert found.count() == found.select("partition", "offset").distinct().count() == 3_000
    kafka.produce(name, numbered(100, 4))
    assert load(kafka, name, tmp_path / "out", **settings).records == 100  # by workers that have read before
    assert exact(kafka, tmp_path / "out", name).exact


def test_a_record_keeps_all_that_it_has(kafka: Mock, tmp_path: Path) -> None:
    moment = 1_763_800_000_123
    name = topic(kafka, 1, [
        Record(b"\xff\x00not text", None, [("a", b"1"), ("a", b"\xfe"), ("b", None)], moment),
        Record(None, b"key"), Record(b"", b""),
    ])  # fmt: skip
    load(kafka, name, tmp_path / "out")
    first, tombstone, empty = rows(tmp_path / "out").to_pylist()
    assert first == {
        "key": None, "value": b"\xff\x00not text", "topic": name, "partition": 0, "offset": 0, "timestamp_type": "create",
        "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"\xfe"}, {"key": "b", "value": None}],
        "timestamp": dt.datetime.fromtimestamp(moment / 1000, dt.UTC),
    }  # fmt: skip
    assert (tombstone["value"], tombstone["key"], tombstone["headers"]) == (None, b"key", None)
    assert (empty["value"], empty["key"]) == (b"", b"")


def test_several_topics_by_name_and_by_expression(kafka: Mock, tmp_path: Path) -> None:
    a, b, other = (topic(kafka, 2, numbered(100, 2)) for _ in range(3))
    load(kafka, f"{a},{b}", tmp_path / "out")
    assert exact(kafka, tmp_path / "out", a, b).exact
    load(kafka, f"({a}|{other})", tmp_path / "both")
    assert exact(kafka, tmp_path / "both", a, other).exact


def test_a_topic_without_records_is_done_and_loaded_when_it_has_some(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 3)
    assert load(kafka, name, tmp_path / "out").records == 0
    assert load(kafka, name, tmp_path / "columns", even).records == 0  # which nobody can know yet
    kafka.produce(name, [b"1", b"2"])
    assert load(kafka, name, tmp_path / "columns", even).records == 2
    assert load(kafka, name, tmp_path / "out").records == 2
    assert exact(kafka, tmp_path / "out", name).exact


def test_what_comes_after_the_beginning_is_left_to_the_next_call(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(10))

    def more(step: Any) -> None:
        if step.phase == "gathering" and not step.done:
            kafka.produce(name, numbered(5))

    assert load(kafka, name, tmp_path / "out", progress=more).records == 10


def test_partitions_that_begin_late_begin_at_their_earliest_record(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    kafka.delete_records(name, {0: 20, 1: 50})
    report = load(kafka, name, tmp_path / "out")
    assert (report.records, report.lost) == (30, 0)
    assert exact(kafka, tmp_path / "out", name).exact
    assert quire.Ledger(tmp_path / "out").inspect.offsets()["offset"].tolist() == [50, 50]


# -------------------------------------------------------------------------------------------------------------------------- its files
def test_files_have_the_target_size_and_not_one_a_partition(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 16, numbered(16_000, 16, size=100))
    load(kafka, name, tmp_path / "out", compression="none", target_size="500 KB")
    sizes = [p.stat().st_size for p in files(tmp_path / "out")]
    assert len(sizes) <= 1.1 * sum(sizes) / 500_000 + 1
    assert exact(kafka, tmp_path / "out", name).exact


@pytest.mark.nth(5)
@pytest.mark.parametrize(("by", "most"), [("", None), ("date", None), ("partition", None), ("", "500 KB"), ("date", "500 KB")])
def test_batches_write_few_files(kafka: Mock, tmp_path: Path, by: str, most: str | None) -> None:
    """Of each commit at most a tenth more than its bytes fill, and one for each value by which they lie apart."""
    rnd, first, target = random.Random(1), 1_763_800_000_000, 200_000
    day = 86_400_000 // 2_000  # two and a half days
    name = topic(kafka, 8, [Record(rnd.randbytes(300), timestamp=first + i * day, partition=i % 8) for i in range(5_000)])
    settings = {"partition_by": by or None, "max_bytes": most, "target_size": target}
    load(kafka, name, tmp_path / "out", **settings)
    for _, found in quire.Ledger(tmp_path / "out").inspect.files().groupby("commit"):
        values = {str(Path(file).parent) for file in found["data_file"]}
        assert len(found) <= 1.1 * found["bytes"].sum() / target + len(values)
    assert len(rows(tmp_path / "out")) == 5_000


def test_max_bytes_makes_several_commits_of_one_call(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 4, numbered(4_000, 4, size=100))
    report = load(kafka, name, tmp_path / "out", max_bytes="100 KB")
    assert report.records == 4_000
    assert 4 <= len(report.jobs) <= 8
    assert exact(kafka, tmp_path / "out", name).exact


def test_records_in_quarantine_are_tried_again_by_the_next_load(kafka: Mock, tmp_path: Path) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        if not mended and b"bad" in batch.column("value").to_pylist():
            raise ValueError("one is bad")
        return batch.select(["value"])

    mended, name = False, topic(kafka, 1, [b"one", b"bad", b"three"])
    say: dict[str, Any] = {"function_version": "1", "retry_quarantined": "0 s", "max_attempts": 3}
    first = load(kafka, name, tmp_path / "out", function, **say)
    assert (first.records, first.quarantined_count, first.retried) == (2, 1, 0)
    second = load(kafka, name, tmp_path / "out", function, **say)
    assert (second.retried, second.retried_taken, second.given_up_count) == (1, 0, 0)
    mended = True
    third = load(kafka, name, tmp_path / "out", function, **say)
    assert (third.retried, third.retried_taken, third.records) == (1, 1, 0)
    assert sorted(rows(tmp_path / "out").column("value").to_pylist()) == [b"bad", b"one", b"three"]
    assert load(kafka, name, tmp_path / "out", function, **say).retried == 0


def test_a_record_larger_than_a_batch_comes_alone(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "CHUNK", 1_000)
    name = topic(kafka, 1, [b"small", b"x" * 500_000, b"small"])
    load(kafka, name, tmp_path / "out", max_bytes="1000 B", target_size="2000 B")
    assert exact(kafka, tmp_path / "out", name).exact


@pytest.mark.parametrize("compression", ["none", "gzip", "zstd"])
def test_lines_of_values(kafka: Mock, tmp_path: Path, compression: str) -> None:
    name = topic(kafka, 3, numbered(3_000, 3))
    load(kafka, name, tmp_path / "out", format="lines", compression=compression)
    held = [line for p in files(tmp_path / "out") for line in _text(p, compression).splitlines()]
    assert sorted(held) == sorted(b"v%d" % i for i in range(3_000))
    assert quire.Ledger(tmp_path / "out").verify(spark=quire.LocalRunner()).ok


def _text(path: Path, compression: str) -> bytes:
    return pa.input_stream(str(path), compression=None if compression == "none" else compression).read()


def test_lines_set_aside_what_is_no_line(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"one", b"two\nlines", None, b"\xff not text", b"four"])
    report = load(kafka, name, tmp_path / "out", format="lines")
    assert (report.records, not_taken(report)) == (3, 2)
    assert lines(tmp_path / "out") == {b"one": 1, b"\xff not text": 1, b"four": 1}
    found = quire.Ledger(tmp_path / "out").inspect.quarantined_records()
    assert found["offset"].tolist() == [1, 2]
    assert "newline" in found["error"][0]
    assert "tombstone" in found["error"][1]
    assert bytes(found["content"][0]) == b"two\nlines"
    assert load(kafka, name, tmp_path / "out", format="lines").bytes == 0  # they count as seen to


def test_newlines_can_be_escaped_and_come_back(kafka: Mock, tmp_path: Path) -> None:
    value = b"a \\n b \n c \\ d"
    name = topic(kafka, 1, [value, b"plain"])
    assert not_taken(load(kafka, name, tmp_path / "out", format="lines", newlines="escape")) == 0
    (line,) = (one for one in lines(tmp_path / "out") if one != b"plain")
    assert b"\n" not in line
    assert line.decode().encode().decode("unicode_escape").encode() == value
    with refused(RefusedError, 2, "escaped values"):
        load(kafka, name, tmp_path / "out", format="lines")


def test_directories_by_date_and_by_a_column(kafka: Mock, tmp_path: Path, spark: SparkSession) -> None:
    day = 86_400_000
    records = [Record(b"v%d" % i, b"k", timestamp=20_000 * day + i * day // 4, partition=i % 2) for i in range(40)]
    name = topic(kafka, 2, records)
    load(kafka, name, tmp_path / "out", partition_by="date")
    folders = sorted(p.parent.name for p in files(tmp_path / "out"))
    assert folders == sorted(f"date={dt.date(2024, 10, 4) + dt.timedelta(days=i)}" for i in range(10))
    found = quire.read(tmp_path / "out", spark=spark)
    assert found.count() == 40
    assert found.where("date = '2024-10-05'").count() == 4
    assert exact(kafka, tmp_path / "out", name).exact
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert ledger.inspect.offsets()["offset"].tolist() == [20, 20]
    load(kafka, name, tmp_path / "by", partition_by="partition")
    assert sorted({p.parent.name for p in files(tmp_path / "by")}) == ["partition=0", "partition=1"]
    assert quire.read(tmp_path / "by", spark=spark).select("partition", "offset").distinct().count() == 40


def test_compaction_merges_the_files_of_many_commits_in_each_directory(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2)
    for i in range(4):
        kafka.produce(name, [Record(b"v%d" % i, partition=p, timestamp=1_700_000_000_000 + p * 86_400_000) for p in (0, 1)])
        load(kafka, name, tmp_path / "out", partition_by="date")
    ledger, before = quire.Ledger(tmp_path / "out"), quire.Ledger(tmp_path / "out").inspect.offsets()
    assert ledger.compact(spark=quire.LocalRunner(), progress=False).removed == 8
    assert sorted(n.rpartition("/")[0] for n in ledger.inspect.files()["data_file"]) == ["date=2023-11-14", "date=2023-11-15"]
    assert ledger.inspect.offsets().equals(before)
    assert exact(kafka, tmp_path / "out", name).exact
    assert ledger.verify(spark=quire.LocalRunner()).ok
    kafka.produce(name, [b"more"])
    assert load(kafka, name, tmp_path / "out", partition_by="date").records == 1


# ------------------------------------------------------------------------------------------------------------------------- functions
def even(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Two columns of values that are numbers; what is none raises."""
    numbers = [int(v) for v in batch.column("value").to_pylist()]
    return pa.record_batch([batch.column("offset"), pa.array(numbers, pa.int64())], ["offset", "number"])


def test_a_function_makes_columns_and_bad_records_are_set_aside_with_offset_and_reason(kafka: Mock, tmp_path: Path) -> None:
    values: list[bytes | None] = [b"%d" % i for i in range(1_000)]
    values[17], values[500], values[999] = b"no number", None, b"\xff"
    name = topic(kafka, 1, values)
    report = load(kafka, name, tmp_path / "out", even)
    assert (report.records, not_taken(report)) == (997, 3)
    assert report.quarantined[1][0].endswith(f"/{name}/0 offset 500")
    found = quire.Ledger(tmp_path / "out").inspect.quarantined_records()
    assert found["offset"].tolist() == [17, 500, 999]
    assert "ValueError" in found["error"][0]
    assert "test_load.py" in found["error"][0]
    assert rows(tmp_path / "out").schema.names == ["offset", "number"]
    assert sorted(rows(tmp_path / "out")["number"].to_pylist()) == sorted(set(range(1_000)) - {17, 500, 999})
    ledger = quire.Ledger(tmp_path / "out")
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert ledger.inspect.offsets()["offset"].tolist() == [1_000]


def test_retry_gives_bad_records_to_a_repaired_function(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, [Record(b"x%d" % i if i % 100 == 7 else b"%d" % i, partition=i % 2) for i in range(1_000)])
    load(kafka, name, tmp_path / "out", even)
    ledger = quire.Ledger(tmp_path / "out")
    assert len(ledger.inspect.quarantined_records()) == 10

    def repaired(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [int(v.removeprefix(b"x")) for v in batch.column("value").to_pylist()]
        return pa.record_batch([batch.column("offset"), pa.array(numbers, pa.int64())], ["offset", "number"])

    done = ledger.retry(f"kafka://{kafka.address}/{name}", function=repaired, spark=quire.LocalRunner(), progress=False)
    assert (done.gathered, done.quarantined) == (10, 0)
    assert len(ledger.inspect.quarantined_records()) == 0
    assert sorted(rows(tmp_path / "out")["number"].to_pylist()) == list(range(1_000))
    assert ledger.inspect.offsets()["offset"].tolist() == [500, 500]


def test_retry_and_compact_keep_to_the_directories(kafka: Mock, tmp_path: Path) -> None:
    name, out = topic(kafka, 1, [b"x%d" % i if i % 10 == 7 else b"%d" % i for i in range(100)]), tmp_path / "out"

    def thirds(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [int(v) for v in batch.column("value").to_pylist()]
        return pa.record_batch([pa.array(numbers), pa.array([n % 3 for n in numbers])], ["number", "third"])

    def repaired(batch: pa.RecordBatch) -> pa.RecordBatch:
        values = [v.removeprefix(b"x") for v in batch.column("value").to_pylist()]
        return thirds(pa.record_batch([pa.array(values)], ["value"]))

    load(kafka, name, out, thirds, partition_by="third")
    ledger, here = quire.Ledger(out), {"spark": quire.LocalRunner(), "progress": False}
    done = ledger.retry(f"kafka://{kafka.address}/{name}", function=repaired, **here)  # type: ignore[arg-type]
    assert (done.gathered, done.quarantined) == (10, 0)
    assert {path.parent.name: path.parent.parent for path in files(out)} == {f"third={i}": out for i in range(3)}
    ledger.compact(**here)  # type: ignore[arg-type]
    live = ledger.inspect.files()["data_file"].tolist()
    assert len(live) == 3
    found = [(number, int(path[6])) for path in live for number in pq.read_table(out / path)["number"].to_pylist()]
    assert sorted(found) == [(i, i % 3) for i in range(100)]
    assert ledger.verify(spark=quire.LocalRunner()).ok


def test_retry_leaves_set_aside_what_retention_has_removed(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"1", b"bad", b"3", b"worse"])
    load(kafka, name, tmp_path / "out", even)
    kafka.delete_records(name, {0: 3})
    ledger = quire.Ledger(tmp_path / "out")
    done = ledger.retry(f"kafka://{kafka.address}/{name}", function=even, spark=quire.LocalRunner(), progress=False, max_quarantined=MANY)
    assert (done.gathered, done.quarantined) == (0, 1)
    assert "gone at its source" in done.left[0][1]
    assert ledger.inspect.quarantined_records()["offset"].tolist() == [1, 3]
    assert bytes(ledger.inspect.quarantined_records()["content"][0]) == b"bad"


def test_a_function_may_leave_out_records_and_make_several_of_one(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"%d" % i for i in range(10)])

    def odd_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [int(v) for v in batch.column("value").to_pylist()]
        return pa.record_batch([pa.array([n for n in numbers if n % 2 for _ in range(2)], pa.int64())], ["n"])

    report = load(kafka, name, tmp_path / "out", odd_twice)
    assert report.records == 10
    assert sorted(rows(tmp_path / "out")["n"].to_pylist()) == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]
    assert load(kafka, name, tmp_path / "out", odd_twice).bytes == 0


def test_columns_are_frozen_and_what_does_not_fit_is_set_aside(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"1", b"2"])

    def typed(batch: pa.RecordBatch) -> pa.RecordBatch:
        texts = [v.decode() for v in batch.column("value").to_pylist()]
        kind = pa.int64() if all(t.isdigit() for t in texts) else pa.string()
        return pa.record_batch([pa.array([int(t) if kind == pa.int64() else t for t in texts], kind)], ["n"])

    load(kafka, name, tmp_path / "out", typed)
    kafka.produce(name, [b"3", b"four", b"5"])
    report = load(kafka, name, tmp_path / "out", typed)
    assert (report.records, not_taken(report)) == (2, 1)
    assert rows(tmp_path / "out")["n"].to_pylist() == [1, 2, 3, 5]
    assert "'n'" in quire.Ledger(tmp_path / "out").inspect.quarantined_records()["error"][0]
    with refused(RefusedError, 2, "schema="):
        load(kafka, name, tmp_path / "out", typed, schema="n string")


def test_a_function_that_returns_no_batch_sets_everything_aside_and_says_what_it_should(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"1", b"2"])
    report = load(kafka, name, tmp_path / "out", lambda batch: batch.to_pylist())
    assert (report.records, not_taken(report)) == (0, 2)
    assert "RecordBatch" in report.quarantined[0][1]


def test_a_function_can_be_loaded_by_date(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"%d" % i, timestamp=1_700_000_000_000 + i * 86_400_000) for i in range(3)])

    def with_day(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch([batch.column("value"), batch.column("timestamp").cast(pa.date32(), safe=False)], ["value", "day"])

    load(kafka, name, tmp_path / "out", with_day, partition_by="day")
    assert [p.parent.name for p in files(tmp_path / "out")] == ["day=2023-11-14", "day=2023-11-15", "day=2023-11-16"]
    assert pq.ParquetFile(files(tmp_path / "out")[0]).schema_arrow.names == ["value"]
    with refused(UsageError, 2, "partition_by='nothing'", "value, day"):
        load(kafka, name, tmp_path / "other", with_day, partition_by="nothing")


# ------------------------------------------------------------------------------------------------------------------------- the reading
def test_ranges_are_exact_wherever_they_are_cut(kafka: Mock) -> None:
    name = topic(kafka, 3, numbered(3_000, 3))
    from quire.sources.kafka.client import cluster_of
    from quire.sources.kafka.topics import Key

    cluster = cluster_of(kafka.address, None)
    for turn in range(20):  # the same client, from another place each time
        spans = [offsets.Span(Key(name, p), (turn * 37 + p) % 400, 500 + turn * 20 + p) for p in range(3)]
        spans += [offsets.Span(Key(name, p), 950 - turn, 1_000) for p in range(3)]
        spans += [offsets.Span(Key(name, 0), 910, 911), offsets.Span(Key(name, 0), 913, 914)]
        at = [span.start for span in spans]
        for found in offsets.read(cluster, spans):
            assert found.start == at[found.span]
            at[found.span] = found.end
            assert found.records is not None
            assert found.records["offset"].to_pylist() == list(range(found.start, found.end))
            assert pc.all(pc.equal(found.records["partition"], spans[found.span].key.partition)).as_py()
        assert at == [span.end for span in spans]
