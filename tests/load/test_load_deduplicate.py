"""Loads that leave out what is known by its key: two invariants, recomputed from the topic and from the files alone.

Of kept records no two of a key are near enough in time; and each one that was left out has a kept one of its key that is.
"""

from __future__ import annotations

import datetime as dt
import itertools
import json
import random
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from gathering import refused
from loading import load, topic
from quire.commit import names
from quire.commit.checkpoints import KeyRun
from quire.commit.entries import Coverage, Keys, Stats, Task
from quire.commit.log import Log
from quire.coverage import checkpoint, keys, known_keys
from quire.coverage.deduplicate import Prints
from quire.coverage.uncovered import Uncovered
from quire.engine import loader
from quire.errors import UsageError
from quire.ledger import prometheus
from quire.load import check
from quire.sources.kafka.deduplicate import of_values
from quire.storage import connect
from services.kafka import Mock, Record, mock

HOUR = 3_600_000
NOON = 1_790_000_000_000


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def there(dest: Path) -> Any:
    return connect(f"file://{dest}", None)


def kept(dest: Path) -> list[dict[str, Any]]:
    """All rows that the ledger's files hold."""
    names = quire.Ledger(dest).inspect.files()["data_file"]
    return [row for name in names for row in pq.ParquetFile(dest / name).read().to_pylist()]


def hold(cluster: Mock, name: str, dest: Path, within: int, key: Any = lambda record: record["key"]) -> set[tuple[int, int]]:
    """The places of what was kept, after a look at both invariants."""
    there = {(m.partition(), m.offset()): {"key": m.key(), "value": m.value(), "headers": m.headers(), "at": m.timestamp()[1]}
             for m in cluster.read(name)}  # fmt: skip
    places = [(row["partition"], row["offset"]) for row in kept(dest)]
    assert len(places) == len(set(places)), "a record is there twice"
    times = defaultdict[Any, list[int]](list)
    for place in places:
        if key(there[place]) is not None:
            times[key(there[place])].append(there[place]["at"])
    for of in times.values():
        of.sort()
        assert all(b - a > within for a, b in itertools.pairwise(of)), "two of one key are there"
    for place in there.keys() - set(places):
        wanted = there[place]
        assert any(abs(wanted["at"] - at) <= within for at in times[key(wanted)]), f"{place} is lost"
    return set(places)


def drawn(n: int, of: int, seed: int = 1, partitions: int = 3) -> list[Record]:
    """Records of few keys, some without one, at times in no order."""
    rng = random.Random(seed)
    return [
        Record(b"v%d" % i, b"k%d" % rng.randrange(of) if rng.random() < 0.9 else None, partition=rng.randrange(partitions),
               timestamp=NOON + rng.randrange(8 * HOUR))
        for i in range(n)
    ]  # fmt: skip


def only(cluster: Mock, name: str, dest: Path, **settings: Any) -> quire.LoadReport:
    return load(cluster, name, dest, **{"deduplicate": "key", "within": "2 h", **settings})


# ------------------------------------------------------------------------------------------------------------ what is left out
def test_a_key_that_comes_again_within_the_time_is_left_out_and_counted(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 3, drawn(400, 60))
    report = only(kafka, name, tmp_path)
    places = hold(kafka, name, tmp_path, 2 * HOUR)
    assert report.duplicates > 50
    assert report.records + report.duplicates == 400 == report.bytes
    assert f"duplicates={report.duplicates}" in repr(report)
    assert report.as_dict()["duplicates"] == report.duplicates
    assert report.records == len(places)
    assert quire.Ledger(tmp_path).inspect.commits()["duplicates"].sum() == report.duplicates
    assert quire.Ledger(tmp_path).verify(spark=quire.LocalRunner()).ok


def test_whoever_asks_is_told_how_many_were_left_out(kafka: Mock, tmp_path: Path) -> None:
    """Also where a checkpoint stands for the commits, and after an undone one."""
    name, out = topic(kafka, 1, [Record(b"%d" % i, b"k%d" % (i % 4), timestamp=NOON) for i in range(10)]), 0
    for _ in range(2):
        out += only(kafka, name, tmp_path).duplicates
        for _ in range(2):
            ledger = quire.Ledger(tmp_path)
            status, summary = ledger.status(), ledger.summary()
            assert (status.duplicates, summary.duplicates) == (out, out)
            assert status.as_dict()["duplicates"] == out
            for said in (status, summary):
                assert re.search(rf"duplicates left out +{out}\n", str(said)), said
            assert f'quire_duplicates{{dest="{status.dest}"}} {out}\n' in prometheus.text({status.dest: status})
            merge(tmp_path)
        kafka.produce(name, [Record(b"again", b"k1", timestamp=NOON)])
    assert out == 7


def test_nothing_is_said_of_duplicates_where_none_were(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"a", b"k", timestamp=NOON)])
    load(kafka, name, tmp_path)
    ledger = quire.Ledger(tmp_path)
    assert "duplicates" not in f"{ledger.status()}{ledger.summary()}"


def test_later_calls_know_what_earlier_ones_have_kept(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 3, drawn(200, 60))
    reports = [only(kafka, name, tmp_path)]
    for seed in range(2, 6):
        kafka.produce(name, drawn(200, 60, seed))
        reports.append(only(kafka, name, tmp_path))
        hold(kafka, name, tmp_path, 2 * HOUR)
    assert sum(r.records + r.duplicates for r in reports) == 1_000
    assert reports[-1].duplicates > reports[0].duplicates


def test_the_end_of_the_time_belongs_to_it(kafka: Mock, tmp_path: Path) -> None:
    times = [0, 2 * HOUR, 2 * HOUR + 1, 4 * HOUR + 1, 4 * HOUR + 2, -2 * HOUR, -2 * HOUR - 1]
    name = topic(kafka, 1, [Record(b"v", b"k", timestamp=NOON + at) for at in times])
    only(kafka, name, tmp_path)
    assert sorted(place[1] for place in hold(kafka, name, tmp_path, 2 * HOUR)) == [0, 2, 4, 6]


def test_a_duplicate_does_not_lengthen_the_time(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"v", b"k", timestamp=NOON + i * HOUR) for i in range(7)])
    only(kafka, name, tmp_path)
    assert {place[1] for place in hold(kafka, name, tmp_path, 2 * HOUR)} == {0, 3, 6}


def test_records_without_a_key_are_all_loaded(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"same", None, timestamp=NOON) for _ in range(5)])
    report = only(kafka, name, tmp_path)
    assert (report.records, report.duplicates) == (5, 0)


def test_an_empty_key_is_a_key(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"a", b"", timestamp=NOON), Record(b"b", b"", timestamp=NOON), Record(b"c", None, timestamp=NOON)])
    assert only(kafka, name, tmp_path).duplicates == 1


def test_the_last_header_of_a_name_tells_it(kafka: Mock, tmp_path: Path) -> None:
    sent = [
        [("id", b"1")],
        [("id", b"2"), ("id", b"1")],
        [("id", b"1"), ("id", b"2")],
        [("other", b"1")],
        (),
        [("id", None)],
        [("id", None)],
    ]
    name = topic(kafka, 1, [Record(b"v", b"k", headers=each, timestamp=NOON) for each in sent])

    def last(record: dict[str, Any]) -> Any:
        return next((value for key, value in reversed(record["headers"] or []) if key == "id"), None)

    report = only(kafka, name, tmp_path, deduplicate="header:id")
    assert report.duplicates == 1
    assert {place[1] for place in hold(kafka, name, tmp_path, 2 * HOUR, last)} == {0, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("by", ["order_id", "column:order_id"])
def test_a_column_of_what_the_values_hold_tells_it(kafka: Mock, tmp_path: Path, by: str) -> None:
    values = [{"order_id": i % 7, "n": i} for i in range(40)] + [{"order_id": None, "n": i} for i in range(3)]
    sent = [Record(json.dumps(value).encode(), partition=i % 2, timestamp=NOON) for i, value in enumerate(values)]
    name = topic(kafka, 2, [*sent, Record(b"no json", timestamp=NOON)])
    settings = {"decode": "json", "schema": "order_id long, n long", "metadata": ["partition", "offset"], "deduplicate": by}
    report = only(kafka, name, tmp_path, **settings)
    assert (report.records, report.duplicates, report.quarantined_count) == (10, 33, 1)
    kafka.produce(name, sent)
    again = only(kafka, name, tmp_path, **settings)
    assert (again.records, again.duplicates) == (3, 40)
    assert {row["order_id"] for row in kept(tmp_path)} == {*range(7), None}


@pytest.mark.parametrize(
    ("value", "kind", "wider"),
    [
        (Decimal("1.50"), pa.decimal128(10, 2), pa.decimal128(14, 5)),
        (Decimal(-100), pa.decimal128(10, 0), pa.decimal128(38, 10)),
        (Decimal(0), pa.decimal128(4, 2), pa.decimal128(38, 12)),
        (Decimal("9" * 38), pa.decimal128(38, 0), pa.decimal256(76, 20)),
        (dt.date(2026, 11, 22), pa.date32(), pa.timestamp("us")),
        (7, pa.int16(), pa.int64()),
        (None, pa.null(), pa.decimal128(10, 2)),
    ],
)
def test_a_column_that_becomes_wider_tells_the_same_records_apart(value: Any, kind: pa.DataType, wider: pa.DataType) -> None:
    column, times = pa.array([value], kind), pa.array([NOON], pa.timestamp("ms", "UTC"))
    assert all(map(np.array_equal, of_values(column, times), of_values(column.cast(wider), times)))


def test_values_that_differ_are_never_one_as_a_column_becomes_wider() -> None:
    times = pa.array([NOON] * 3, pa.timestamp("ms", "UTC"))
    midnight = 20_779 * 86_400_000_000
    moments = pa.array([midnight, midnight + 36_000_000_000, midnight + 1], pa.timestamp("us"))
    for values in (pa.array([1, 10, 100], pa.decimal128(38, 0)), moments):
        assert len({*of_values(values, times).high.tolist()}) == 3


def test_lines_are_told_apart_by_their_keys(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"v%d" % i, b"k%d" % (i % 4), timestamp=NOON) for i in range(20)])
    report = only(kafka, name, tmp_path, format="lines")
    assert (report.records, report.duplicates) == (4, 16)
    assert not only(kafka, name, tmp_path, format="lines").records


# --------------------------------------------------------------------------------------------------------------- in quarantine
def some(batch: pa.RecordBatch) -> pa.RecordBatch:
    """It does not take values that begin with a minus."""
    if any(value.startswith(b"-") for value in batch.column("value").to_pylist()):
        raise ValueError("a minus")
    return batch.select(["partition", "offset", "key", "value"])


def every(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["partition", "offset", "key", "value"])


def test_a_record_in_quarantine_stands_for_no_other_one(kafka: Mock, tmp_path: Path) -> None:
    values = [b"-a", b"-b", b"c", b"d", b"-e"]
    name = topic(kafka, 1, [Record(value, b"k", timestamp=NOON) for value in values])
    report = only(kafka, name, tmp_path, transform=some, function_version="1")
    assert [row["value"] for row in kept(tmp_path)] == [b"c"]
    assert report.records + report.duplicates + report.quarantined_count == 5
    assert report.quarantined_count >= 2


def test_what_is_repaired_is_left_out_where_one_of_its_key_was_kept_since(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"-a", b"k", timestamp=NOON), Record(b"-b", b"l", timestamp=NOON), Record(b"-c", b"l", timestamp=NOON)])
    only(kafka, name, tmp_path, transform=some, function_version="1")
    kafka.produce(name, [Record(b"d", b"k", timestamp=NOON)])
    only(kafka, name, tmp_path, transform=some, function_version="1")
    ledger = quire.Ledger(tmp_path)
    source = f"kafka://{kafka.address}/{name}"
    ledger.retry(source, function=every, spark=quire.LocalRunner(), progress=False, storage_options=dict(kafka.settings))
    assert sorted(row["value"] for row in kept(tmp_path)) == [b"-b", b"d"]
    assert ledger.summary().quarantined == 0
    assert ledger.verify(spark=quire.LocalRunner()).ok


def test_many_records_of_one_key_that_all_fail_are_asked_for_few_times(kafka: Mock, tmp_path: Path) -> None:
    calls = list[int]()

    def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        raise ValueError("never")

    name = topic(kafka, 1, [Record(b"v", b"k", timestamp=NOON) for _ in range(64)])
    report = only(kafka, name, tmp_path, transform=failing, function_version="1", schema="value binary")
    assert report.quarantined_count == 64
    assert len(calls) < 3 * 128


# ---------------------------------------------------------------------------------------------------- several tasks and writers
def test_tasks_that_keep_one_key_are_told_apart_and_the_rest_is_read_again(kafka: Mock, tmp_path: Path) -> None:
    """Many tasks hold the same keys: the first one stays, and each further one is planned again."""
    records = [Record(b"%d" % i + b"." * 400, b"k%d" % (i % 50), partition=i % 4, timestamp=NOON + i) for i in range(4_000)]
    name = topic(kafka, 4, records)
    report = only(kafka, name, tmp_path, target_size="20 KB", compression="none")
    hold(kafka, name, tmp_path, 2 * HOUR)
    assert report.records + report.duplicates == 4_000
    assert report.records == 50
    commits = list(Log(there(tmp_path)).refresh().commits())
    assert any(commit.dropped for _, commit in commits)
    assert len(commits) < 30
    assert quire.Ledger(tmp_path).verify(spark=quire.LocalRunner()).ok


def test_a_job_learns_how_many_tasks_it_may_have() -> None:
    share, sizes = loader.Share(), list[int]()

    class Ended:
        dropped: tuple[int, ...] = ()

    for dropped in [(), (1,), (), (), (3,), *[()] * 8]:
        Ended.dropped = dropped
        share.ended(Ended)  # type: ignore[arg-type]
        sizes.append(share.tasks)
    assert sizes == [64, 1, 2, 4, 1, 2, 4, 8, 16, 32, 64, 64, 64]


# --------------------------------------------------------------------------------------------------------------- what changes it
def test_what_is_forgotten_may_come_again(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, [Record(b"a", b"k", partition=0, timestamp=NOON)])
    only(kafka, name, tmp_path)
    (path,) = {p for p in quire.Ledger(tmp_path).inspect.offsets().apply(_path, axis=1) if p.endswith("/0")}
    kafka.produce(name, [Record(b"b", b"k", partition=1, timestamp=NOON)])
    quire.Ledger(tmp_path).forget(path, spark=quire.LocalRunner(), progress=False)
    only(kafka, name, tmp_path)
    assert len(kept(tmp_path)) == 1
    hold(kafka, name, tmp_path, 2 * HOUR)


def _path(row: Any) -> str:
    return f"kafka://{row['cluster']}/{row['topic']}/{row['partition']}"


def test_the_destination_remembers_it(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"a", b"k", timestamp=NOON)])
    only(kafka, name, tmp_path)
    kafka.produce(name, [Record(b"b", b"k", timestamp=NOON), Record(b"c", b"l", timestamp=NOON)])
    report = load(kafka, name, tmp_path)
    assert (report.records, report.duplicates) == (1, 1)
    kafka.produce(name, [Record(b"d", b"l", timestamp=NOON)])
    off = load(kafka, name, tmp_path, deduplicate="off")
    assert (off.records, off.duplicates) == (1, 0)
    assert "not deduplicated any more" in off.notes[0]
    kafka.produce(name, [Record(b"e", b"l", timestamp=NOON)])
    assert load(kafka, name, tmp_path).records == 1


def test_a_change_is_told_once(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"a", b"k", timestamp=NOON)])
    assert load(kafka, name, tmp_path).notes == ()
    kafka.produce(name, [Record(b"b", b"k", timestamp=NOON)])
    report = only(kafka, name, tmp_path)
    assert report.records == 1
    assert "exact for what is loaded from now on" in report.notes[0]
    kafka.produce(name, [Record(b"c", b"k", timestamp=NOON)])
    report = only(kafka, name, tmp_path)
    assert (report.records, report.duplicates, report.notes) == (0, 1, ())
    kafka.produce(name, [Record(b"d", b"k", timestamp=NOON + 3 * HOUR)])
    wider = only(kafka, name, tmp_path, within="1 day")
    assert "within was 2 h and is 1 d" in wider.notes[0]
    assert wider.duplicates == 1


# --------------------------------------------------------------------------------------------------------------------- merged
def merge(dest: Path) -> None:
    checkpoint.write(quire.LocalRunner(), f"file://{dest}", None, there(dest))


def objects(dest: Path) -> set[str]:
    return {path.name for path in (dest / "_quire" / "ledger").glob("*.keys")}


def test_merged_keys_are_known_as_those_of_tasks(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "ROWS", 40)
    monkeypatch.setattr(keys, "LESS", 100)
    name, merged = topic(kafka, 3, drawn(200, 60)), set[str]()
    only(kafka, name, tmp_path)
    for seed in range(2, 7):
        kafka.produce(name, drawn(200, 60, seed))
        only(kafka, name, tmp_path)
        merge(tmp_path)
        log = Log(there(tmp_path)).refresh()
        assert log.base is not None
        merged |= {run.name for run in log.base.keys if names.merged_group(run.name)}
        hold(kafka, name, tmp_path, 2 * HOUR)
        assert checkpoint.sweep(there(tmp_path), 0.0) >= 0
        assert quire.Ledger(tmp_path).verify(spark=quire.LocalRunner()).ok
    kafka.produce(name, drawn(200, 60, 7))
    only(kafka, name, tmp_path)
    hold(kafka, name, tmp_path, 2 * HOUR)
    assert len({names.merged_group(each) for each in merged}) > 1
    assert len(merged) > len({names.merged_group(each) for each in merged}), "no group has several pieces"


def test_merged_keys_of_what_is_forgotten_are_gone(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b"%d" % i, b"k%d" % i, timestamp=NOON) for i in range(3)])
    only(kafka, name, tmp_path)
    kafka.produce(name, [Record(b"more", b"more", timestamp=NOON)])
    only(kafka, name, tmp_path)
    merge(tmp_path)
    (path,) = quire.Ledger(tmp_path).inspect.offsets().apply(_path, axis=1)
    quire.Ledger(tmp_path).forget(path, spark=quire.LocalRunner(), progress=False)
    assert only(kafka, name, tmp_path).records == 4
    merge(tmp_path)
    assert only(kafka, name, tmp_path).records == 0
    hold(kafka, name, tmp_path, 2 * HOUR)


def test_keys_of_what_was_forgotten_before_a_checkpoint_are_gone_after_it(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the objects that have them would stay as they are."""
    monkeypatch.setattr(keys, "LESS", 0)
    name = topic(kafka, 1, [Record(b"%d" % i, b"k%d" % i, timestamp=NOON) for i in range(3)])
    only(kafka, name, tmp_path)
    merge(tmp_path)
    (path,) = quire.Ledger(tmp_path).inspect.offsets().apply(_path, axis=1)
    quire.Ledger(tmp_path).forget(path, spark=quire.LocalRunner(), progress=False)
    merge(tmp_path)
    assert only(kafka, name, tmp_path).records == 3
    hold(kafka, name, tmp_path, 2 * HOUR)


def test_what_was_merged_is_swept_and_what_is_named_stays(kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, store = topic(kafka, 1), there(tmp_path)
    for i in range(3):
        kafka.produce(name, [Record(b"%d" % j, b"k%d" % j, timestamp=NOON) for j in range(i, i + 3)])
        only(kafka, name, tmp_path)
    tasks = objects(tmp_path)
    assert len(tasks) == 3
    merge(tmp_path)
    assert len(objects(tmp_path)) == 4
    quire.Ledger(tmp_path).expire()
    checkpoint.sweep(store, 0.0)
    (left,) = objects(tmp_path)
    assert left not in tasks
    kafka.produce(name, [Record(b"again", b"k1", timestamp=NOON)])
    assert only(kafka, name, tmp_path).duplicates == 1
    (tmp_path / "_quire" / "ledger" / f"{7:020d}-{'0' * 12}-0.keys").write_bytes(b"of a writer that died")
    checkpoint.sweep(store, 0.0)
    assert len(objects(tmp_path)) == 1
    for least in ("LESS", "ROWS"):  # objects stay as they are
        monkeypatch.setattr(keys, least, 0)
    kafka.produce(name, [Record(b"more", b"more", timestamp=NOON)])
    only(kafka, name, tmp_path)
    merge(tmp_path)
    quire.Ledger(tmp_path).expire()
    checkpoint.sweep(store, 0.0)
    assert len(objects(tmp_path)) == 2


def test_keys_whose_checkpoint_is_still_to_come_are_there_with_it_or_it_never_comes(
    kafka: Mock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A head names keys by their names alone: what sweeps them makes sure that the head cannot be put any more."""
    name, real = topic(kafka, 1), checkpoint._pieces
    for i in range(3):
        kafka.produce(name, [Record(b"%d" % j, b"k%d" % j, timestamp=NOON) for j in range(i, i + 3)])
        only(kafka, name, tmp_path)
    merge(tmp_path)
    kafka.produce(name, [Record(b"more", b"more", timestamp=NOON)])
    only(kafka, name, tmp_path)
    quire.Ledger(tmp_path).expire()

    def pieces(*given: Any) -> Any:
        made = real(*given)
        checkpoint.sweep(there(tmp_path), 0.0)
        return made

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "_pieces", pieces)
        merge(tmp_path)
    kafka.produce(name, [Record(b"again", key, timestamp=NOON) for key in (b"k0", b"k4", b"more")])
    assert only(kafka, name, tmp_path).duplicates == 3
    merge(tmp_path)
    hold(kafka, name, tmp_path, 2 * HOUR)


def test_keys_leave_once_no_record_looks_them_up(kafka: Mock, tmp_path: Path) -> None:
    """Both must be long ago: the record's time, and the commit; and a time far ahead makes nothing older than it is."""
    name = topic(kafka, 1, [Record(b"old", b"old", timestamp=NOON - 100 * HOUR)])
    only(kafka, name, tmp_path)
    kafka.produce(name, [Record(b"new", b"new", timestamp=NOON), Record(b"far", b"far", timestamp=NOON + 10**11)])
    only(kafka, name, tmp_path)

    def left(now: int) -> int:
        log = Log(there(tmp_path)).refresh()
        stay, work = keys.merge(log, "0" * 12, now)
        made = [keys.merged(there(tmp_path), work, piece) for piece in range(work.pieces)] if work else []
        return sum(run.count for run in [*stay, *filter(None, made)])

    committed = max(run.time for run in keys.in_effect(Log(there(tmp_path)).refresh(), 10**6))
    assert left(committed) == 3
    assert left(committed + 3 * HOUR) == 2  # the old record leaves; the others are as new as the clock, at least


# --------------------------------------------------------------------------------------------------------------- fingerprints alone
def printed(*each: tuple[int, int, int]) -> Prints:
    high, low, at = zip(*each, strict=True)
    return Prints(np.array(high, np.uint64), np.array(low, np.uint64), np.array(at, np.int64), np.ones(len(each), np.bool_))


def test_all_bits_of_a_fingerprint_decide(tmp_path: Path) -> None:
    """Of keys that agree in the bits that are held, or in all of the first half, none stands for another one."""
    held_bits, half = 7 << 24, (3 << 56) + 5
    kept = printed((held_bits + 1, 1, 0), (half, 1, 0), (half, 2, 50), (half, 2, 900))
    own = known_keys.OwnKeys(10)
    rows = known_keys.rows_of(kept, np.arange(4), 0)
    own.add(rows)
    keys.put(there(tmp_path), "_quire/ledger/x.keys", keys.sorted_rows([rows]), [("path", "version")])
    window = keys.Window("key", 10, (KeyRun("_quire/ledger/x.keys", 4, "key", 900, 1, 0),), Uncovered())
    asked = [
        (held_bits + 1, 1, 10), (held_bits + 2, 1, 0), (held_bits + 1, 2, 0), (half, 1, 11), (half, 2, 0), (half, 2, 60), (half, 3, 0),
        (half, 2, 890),
    ]  # fmt: skip
    wanted = printed(*asked)
    order = np.lexsort((wanted.low, wanted.high))
    expected = np.array([True, False, False, False, False, True, False, True])[order].tolist()
    assert own.known(wanted.take(order)).tolist() == expected
    known = known_keys.KnownKeys()
    known.add(there(tmp_path), window)
    assert known.known(window, wanted.take(order)).tolist() == expected


@pytest.mark.parametrize("seed", range(3))
def test_levels_of_many_objects_say_what_one_set_says(tmp_path: Path, seed: int) -> None:
    rng, known, runs, all_ = np.random.default_rng(seed), known_keys.KnownKeys(), list[KeyRun](), set[tuple[int, int]]()
    for number in range(12):
        n = int(rng.integers(1, 3_000))
        drawn_now = [
            (int(h), int(w)) for h, w in zip(rng.integers(0, 1 << 63, n, np.uint64) * np.uint64(2), rng.integers(0, 3, n), strict=True)
        ]
        all_ |= {*drawn_now}
        rows = known_keys.rows_of(printed(*((h, w, 0) for h, w in drawn_now)), np.arange(n), 0)
        runs.append(KeyRun(f"_quire/ledger/{number}.keys", n, "key", 0, 1, 0))
        keys.put(there(tmp_path), runs[-1].name, keys.sorted_rows([rows]), [("path", "version")])
        window = keys.Window("key", 0, tuple(runs), Uncovered())
        known.add(there(tmp_path), window)
        asked = [
            *random.Random(seed).sample(sorted(all_), min(500, len(all_))),
            *((int(h), 1) for h in rng.integers(0, 1 << 63, 200, np.uint64)),
        ]
        wanted = printed(*sorted((h, w, 0) for h, w in asked))
        said = known.known(window, wanted).tolist()
        assert said == [(h, w) in all_ for h, w in zip(wanted.high.tolist(), wanted.low.tolist(), strict=True)]
    assert len(known.levels) < 6


def drawn_prints(rng: np.random.Generator, n: int, *, of: int = 1 << 40) -> list[tuple[int, int, int]]:
    """Fingerprints of few first halves, which lie all over, and of fewer second ones."""
    step = (1 << 64) // of
    high, low = rng.integers(0, of, n), rng.integers(0, 2, n)
    return [(int(h) * step, int(w), int(at)) for h, w, at in zip(high, low, rng.integers(-2_000, 2_000, n), strict=True)]


@pytest.mark.parametrize("within", [0, 7, 10_000])
@pytest.mark.parametrize("memory", [16, 300, 1 << 21])
def test_what_a_task_keeps_is_known_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: int, memory: int) -> None:
    """In memory and on the disk, whatever the times are; its object has all of it, in order."""
    if memory < 1 << 21:
        monkeypatch.setattr(known_keys, "HELD", memory)
        monkeypatch.setattr(known_keys, "_SLOTS", memory.bit_length() + 1)
    monkeypatch.setattr(known_keys, "SOME", 100)
    rng, own, model = np.random.default_rng(within + memory), known_keys.OwnKeys(within), defaultdict[tuple[int, int], list[int]](list)
    for number in range(12):
        some = sorted(drawn_prints(rng, 90, of=40))
        wanted = printed(*some)
        expected = [any(abs(at - there) <= within for there in model[h, w]) for h, w, at in some]
        assert own.known(wanted).tolist() == expected
        new = list[int]()
        for i, (h, w, at) in enumerate(some):
            if not any(abs(at - there) <= within for there in model[h, w]):
                model[h, w].append(at)
                new.append(i)
        own.add(known_keys.rows_of(wanted.take(np.array(new, np.int64)), np.array(new, np.int64), number % 3))
    count = sum(map(len, model.values()))
    assert len(own) == count
    last = own.put(there(tmp_path), "_quire/ledger/own.keys", [("a", "1"), ("b", "1"), ("c", "1")])
    assert last == max(at for times in model.values() for at in times)
    one = keys.KeyObject(there(tmp_path), "_quire/ledger/own.keys", count)
    rows = one.rows(0, count)
    assert np.array_equal(rows["high"], np.sort(rows["high"]))
    assert np.array_equal(one.heads(), keys.heads_of(rows["high"]))
    assert sorted(rows[["high", "low", "at"]].tolist()) == sorted((h, w, at) for (h, w), times in model.items() for at in times)
    buckets = (rows["high"] >> np.uint64(64 - one.bits)).astype(np.int64)
    assert one.bounds.tolist() == np.searchsorted(buckets, np.arange((1 << one.bits) + 1)).tolist()


def test_a_disk_without_room_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_keys, "HELD", 4)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(known_keys.tempfile, "TemporaryFile", full)
    own = known_keys.OwnKeys(1)
    with refused(quire.QuireError, 3, "No space left on device", "TMPDIR"):
        own.add(known_keys.rows_of(printed(*((i << 60, 1, 0) for i in range(4))), np.arange(4), 0))


def test_a_key_that_was_kept_very_often_is_looked_up_in_few_steps(tmp_path: Path) -> None:
    """Its times are searched, and not looked through: in a task, and in what others have kept."""
    n = 100_000
    wanted = printed(*((9 << 60, 1, 10 * i) for i in range(n)))
    rows, own = known_keys.rows_of(wanted, np.arange(n), 0), known_keys.OwnKeys(4)
    began = time.monotonic()
    own.add(rows)
    asked = printed(*((9 << 60, 1, 10 * i + i % 10) for i in range(n)))
    expected = [i % 10 != 5 for i in range(n - 1)] + [False]
    assert own.known(asked).tolist() == expected
    runs = [KeyRun(f"_quire/ledger/{i}.keys", n, "key", 0, 1, 0) for i in range(3)]
    for run in runs:
        keys.put(there(tmp_path), run.name, rows, [("path", "version")])
    window, known = keys.Window("key", 4, tuple(runs), Uncovered()), known_keys.KnownKeys()
    known.add(there(tmp_path), window)
    assert known.known(window, asked).tolist() == expected
    assert time.monotonic() - began < 60


def test_a_key_that_several_objects_have_is_looked_for_in_each(tmp_path: Path) -> None:
    """Each has kept it at another time; those of one group, those of others, and what is held of both together."""
    known, runs, asked = known_keys.KnownKeys(), list[KeyRun](), printed(*((9 << 60, 1, 1_000 * i + 7) for i in range(9)))
    for i in range(6):
        rows = known_keys.rows_of(printed((5 << 60, 1, 0), (9 << 60, 1, 1_000 * i)), np.arange(2), 0)
        runs.append(KeyRun(f"_quire/ledger/{i}.keys", 2, "key", 0, 1, 0))
        keys.put(there(tmp_path), runs[-1].name, rows, [("path", "version")])
        if i % 3 == 2:
            known.add(there(tmp_path), window := keys.Window("key", 10, tuple(runs), Uncovered()))
            assert known.known(window, asked).tolist() == [j <= i for j in range(9)]


@pytest.mark.parametrize("seed", range(4))
def test_rows_of_a_window_match_as_if_each_were_looked_at(seed: int) -> None:
    rng = np.random.default_rng(seed)
    some, asked = sorted(drawn_prints(rng, 200, of=20)), sorted(drawn_prints(rng, 300, of=25))
    rows = keys.sorted_rows([known_keys.rows_of(printed(*some), np.arange(len(some)), 0)])
    for within in (0, 5, 100, 5_000):
        expected = [any((h, w) == (a, b) and abs(at - t) <= within for a, b, t in some) for h, w, at in asked]
        assert keys.matching(rows, printed(*asked), within).tolist() == expected
        untold = printed(*asked)._replace(told=np.zeros(len(asked), np.bool_))
        assert not keys.matching(rows, untold, within).any()
    assert not keys.matching(rows[:0], printed(*asked), 5).any()


@pytest.mark.parametrize("scattered", [True, False])
def test_places_of_an_object_are_read_at_once_and_all_of_them(tmp_path: Path, scattered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a store that reads many places by one call, and by one that does not; also where a place is longer than what is asked for."""
    monkeypatch.setattr(keys, "AT_ONCE", 50)
    monkeypatch.setattr(keys, "PIECE", 5_000)
    rng, n = np.random.default_rng(3), 5_000
    high = np.sort(rng.integers(0, 1 << 63, n, np.uint64) * np.uint64(2))
    high[100:400] = high[100]
    rows = known_keys.rows_of(Prints(high, np.arange(n, dtype=np.uint64), np.zeros(n, np.int64), np.ones(n, np.bool_)), np.arange(n), 0)
    store = there(tmp_path)
    keys.put(store, "_quire/ledger/x.keys", rows, [("path", "version")])
    one = keys.KeyObject(store if scattered else Bare(store), "_quire/ledger/x.keys", n)
    for size in (1, 7, 400):
        wanted = np.unique(high[rng.integers(0, n, size)])
        there_ = set[int]()
        for found, which in one.among(wanted):
            assert np.array_equal(found["high"], np.sort(found["high"]))
            assert set(wanted[which].tolist()) <= set(found["high"].tolist())
            there_ |= set(found["low"].tolist())
        assert set(rows["low"][np.isin(high, wanted)].tolist()) <= there_


@pytest.mark.parametrize("shared", range(9))
def test_bounds_of_a_range_of_fingerprints_are_as_fine_as_those_of_all(tmp_path: Path, shared: int) -> None:
    rng, n = np.random.default_rng(shared), 20_000
    begin = 0b10110011 >> (8 - shared)
    high = np.sort(rng.integers(0, 1 << 63, n, np.uint64) * np.uint64(2)) >> np.uint64(shared)
    high |= np.uint64(begin << (64 - shared) if shared else 0)
    high[0] = np.uint64(begin << (64 - shared) if shared else 0)  # the first and the last one share no further bit
    high[-1] = high[0] | np.uint64((1 << (64 - shared)) - 1)
    rows = known_keys.rows_of(Prints(high, high, np.zeros(n, np.int64), np.ones(n, np.bool_)), np.arange(n), 0)
    keys.put(there(tmp_path), "_quire/ledger/x.keys", rows, [("path", "version")])
    one = keys.KeyObject(there(tmp_path), "_quire/ledger/x.keys", n)
    assert np.diff(one.bounds).max() < 3 * keys.IN_BUCKET
    assert one.starts().tolist() == np.append((high >> np.uint64(56)).searchsorted(np.arange(256, dtype=np.uint64)), n).tolist()
    for i in rng.integers(0, n, 50).tolist():
        ((found, _),) = one.among(high[i : i + 1])
        assert high[i] in found["high"]
        assert len(found) < 3 * keys.IN_BUCKET
    window = keys.Window("key", 0, (KeyRun("_quire/ledger/x.keys", n, "key", 0, 1, 0),), Uncovered())
    known = known_keys.KnownKeys()
    known.add(there(tmp_path), window)
    asked = np.sort(np.concatenate([high[:500], high[:500] ^ np.uint64(1)]))
    wanted = Prints(asked, asked, np.zeros(1_000, np.int64), np.ones(1_000, np.bool_))
    assert known.known(window, wanted).tolist() == np.isin(asked, high).tolist()


class Bare:
    """A store that reads one place by one call."""

    def __init__(self, store: Any) -> None:
        self.url, self.create, self.get_range = store.url, store.create, store.get_range


def test_of_tasks_with_one_key_the_first_is_kept_and_each_other_one_that_is_near(tmp_path: Path) -> None:
    def task(number: int, *times: int) -> Task:
        name = f"_quire/ledger/{next(numbers)}.keys"
        rows = keys.sorted_rows(
            [known_keys.rows_of(printed(*((9, 9, at) for at in times), (number << 40, 0, 0)), np.arange(len(times) + 1), 0)]
        )
        keys.put(there(tmp_path), name, rows, [("path", "version")])
        of = Keys(name=name, count=len(rows), by="key", within=5, last=max(times))
        return Task(task=number, attempt="a" * 12, data_files=(), coverage=Coverage(keys=of), stats=Stats())

    store, numbers = there(tmp_path), itertools.count()
    assert keys.clashing(store, [task(1, 0), task(2, 4), task(3, 8)], []) == {2}
    assert keys.clashing(store, [task(1, 0), task(2, 3), task(3, 5)], []) == {2, 3}, "the third one is near the first"
    assert keys.clashing(store, [task(1, 0), task(2, 6), task(3, 11)], []) == {3}
    assert keys.clashing(store, [task(1, 0, 6, 12), task(2, 18), task(3, 17)], []) == {3}
    assert keys.clashing(store, [task(1, 0)], [task(7, 5)]) == {1}
    assert keys.clashing(store, [task(1, 0)], [task(7, 6)]) == set()
    other = task(8, 100)
    assert other.coverage.keys is not None
    (tmp_path / other.coverage.keys.name).unlink()
    assert keys.clashing(store, [task(1, 0), task(2, 50)], [other]) == {1, 2}, "it may have been merged and swept"


# ------------------------------------------------------------------------------------------------------------------- what is wrong
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"within": "1 day"}, "within= says for how long deduplicate= holds"),
        ({"deduplicate": "key"}, "needs within="),
        ({"deduplicate": ""}, "is not one of 'key'"),
        ({"deduplicate": 7, "within": "1 day"}, "is not one of 'key'"),
        ({"deduplicate": "Key", "within": "1 day"}, "Did you mean 'key'"),
        ({"deduplicate": "header", "within": "1 day"}, "write header:NAME"),
        ({"deduplicate": "header:", "within": "1 day"}, "write header:NAME"),
        ({"deduplicate": "column:", "within": "1 day"}, "write column:NAME"),
        ({"deduplicate": "order_id", "within": "1 day"}, "this call has no decode="),
        ({"deduplicate": "column:order_id", "within": "1 day"}, "this call has no decode="),
        ({"deduplicate": "off", "within": "1 day"}, "Leave one of them out"),
        ({"deduplicate": "key", "within": "1 dya"}, "dya"),
        ({"deduplicate": "key", "within": 0}, "shorter than a millisecond"),
        ({"deduplicate": "key", "within": True}, "is not a time span"),
        ({"deduplicate": "ordr_id", "within": "1 d", "decode": "json", "schema": "order_id long"}, "Did you mean 'order_id'"),
        ({"deduplicate": "a", "within": "1 d", "decode": "json", "schema": "a double"}, "is of type double"),
    ],
)  # fmt: skip
def test_what_says_nothing_is_refused_in_one_line(tmp_path: Path, words: dict[str, Any], said: str) -> None:
    with refused(UsageError, 2, said):
        check("kafka://nowhere:1/topic", tmp_path / "out", **words)
    assert not (tmp_path / "out").exists()


def test_a_column_is_told_by_decoders_alone(kafka: Mock, tmp_path: Path) -> None:
    """Also in a retry, where the function may be another one."""
    name = topic(kafka, 1, [Record(b'{"id": 1}', timestamp=NOON), Record(b"no json", timestamp=NOON)])
    only(kafka, name, tmp_path, decode="json", deduplicate="id", schema="id long")
    ledger = quire.Ledger(tmp_path)
    with pytest.raises(quire.RefusedError, match="only a decoder makes"):
        ledger.retry(
            f"kafka://{kafka.address}/{name}", function=every, spark=quire.LocalRunner(), progress=False,
            storage_options=dict(kafka.settings),
        )  # fmt: skip
    assert ledger.refresh().summary().quarantined == 1


def test_what_a_column_has_told_apart_is_compacted_and_forgotten_without_a_decoder(kafka: Mock, tmp_path: Path) -> None:
    """No record is read for it."""
    name = topic(kafka, 2)
    how = {"decode": "json", "deduplicate": "id", "schema": "id long", "metadata": ["partition", "offset"]}
    sent = [Record(b'{"id": %d}' % i, partition=i % 2, timestamp=NOON) for i in range(8)]
    for at in range(0, 8, 4):
        kafka.produce(name, sent[at : at + 4])
        only(kafka, name, tmp_path, **how)
    ledger = quire.Ledger(tmp_path)
    assert ledger.compact(spark=quire.LocalRunner(), progress=False).jobs
    (path,) = {p for p in ledger.refresh().inspect.offsets().apply(_path, axis=1) if p.endswith("/1")}
    assert ledger.forget(path, spark=quire.LocalRunner(), progress=False).jobs
    assert sorted(row["id"] for row in kept(tmp_path)) == [0, 2, 4, 6]
    kafka.produce(name, sent)
    report = only(kafka, name, tmp_path, **how)
    assert (report.records, report.duplicates) == (4, 8)
    assert sorted(row["id"] for row in kept(tmp_path)) == [*range(8)]


def test_a_column_that_the_first_records_lack_is_refused(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [Record(b'{"order": 1}', timestamp=NOON)])
    with refused(UsageError, 2, "deduplicate='order_id' is not a column"):
        only(kafka, name, tmp_path, decode="json", deduplicate="order_id")
    assert not kept_files(tmp_path)


def kept_files(dest: Path) -> Sequence[Path]:
    return [*dest.glob("part-*")]


@pytest.mark.parametrize("harm", ["gone", "short", "other"])
def test_keys_that_are_damaged_or_gone_are_said_and_nothing_is_loaded(kafka: Mock, tmp_path: Path, harm: str) -> None:
    name = topic(kafka, 1, [Record(b"a", b"k", timestamp=NOON)])
    only(kafka, name, tmp_path)
    (path,) = (tmp_path / "_quire" / "ledger").glob("*.keys")
    data = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-20] if harm == "short" else b"x" * len(data))
    kafka.produce(name, [Record(b"b", b"k", timestamp=NOON)])
    known_keys._HELD.clear()
    ((said, _, why),) = quire.Ledger(tmp_path).verify(spark=quire.LocalRunner()).damaged
    assert said.endswith(path.name)
    assert why.startswith("missing" if harm == "gone" else "damaged")
    with pytest.raises(quire.QuireError, match="keys of the ledger"):
        only(kafka, name, tmp_path)
    assert len(kept(tmp_path)) == 1
    path.write_bytes(data)
    assert only(kafka, name, tmp_path).duplicates == 1


def test_keys_that_a_process_holds_are_read_with_the_store_of_the_task_that_asks(tmp_path: Path) -> None:
    """The credentials of the store by which they were first read may have expired since."""
    known_keys._HELD.clear()
    first, second = there(tmp_path), there(tmp_path)
    rows = known_keys.rows_of(printed((1, 1, 0)), np.arange(1), 0)
    keys.put(first, "_quire/ledger/1.keys", rows, [("path", "version")])
    window = keys.Window("key", 10, (KeyRun("_quire/ledger/1.keys", 1, "key", 0, 1, 0),), Uncovered())
    try:
        assert known_keys.held(first, window).objects[0].store is first
        assert known_keys.held(second, window).objects[0].store is second
    finally:
        known_keys._HELD.clear()


def test_a_long_number_beside_a_fraction_is_known(kafka: Mock, tmp_path: Path) -> None:
    """Columns that grow are those of each batch: there a fraction would make it another number."""
    long, dest = 2**53 + 1, tmp_path / "out"
    how = {"decode": "json", "schema_evolution": "add", "deduplicate": "id"}
    name = topic(kafka, 1, [Record(json.dumps({"id": i}).encode(), timestamp=NOON) for i in (1, 2, long)])
    only(kafka, name, dest, **how)
    kafka.produce(name, [Record(json.dumps({"id": i}).encode(), timestamp=NOON) for i in (2, 2.5, long, long + 2, 3.0)])
    report = only(kafka, name, dest, **how)
    assert (report.duplicates, report.quarantined_count) == (2, 1)
    assert sorted(row["id"] for row in kept(dest)) == [1, 2, 3, long, long + 2]
