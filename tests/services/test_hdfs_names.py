"""A real HDFS: whatever a file or a value is called, it is read back as that; and a purge there finishes a file's version as on a disk."""

from __future__ import annotations

import uuid
from typing import Any

import pyarrow as pa
import pytest

import sums
from gathering import gather
from loading import load, topic
from quire import Ledger, LocalRunner
from quire.read import first_rows
from quire.storage import Entry, aside, bare, connect, normalise
from quire.storage.hdfs import store as hdfs_store
from services.hdfs import HOME, USER, Cluster
from services.kafka import Mock

pytestmark = pytest.mark.services

ALICE = {"user": USER}
SPARK = LocalRunner()
NAMES = [
    "Köln.txt", "KÃ¶ln.txt", "e\u0301", "\u00e9", "北京/上海.txt", "😀", "a b", " a", "a ", "50%", "%41", "p%20q", "%2F", "h#x", "q?*",
    "a+b", "a=b", "[1]{2}", "back\\slash", "it's", "-a", "~", "~a", "x" * 255, "ö" * 120,
    "/".join(["d" * 100] * 8) + "/f", "dt=2026-11-23/f",
]  # fmt: skip
VALUES = [
    None, "", "__HIVE_DEFAULT_PARTITION__", "Köln", "KÃ¶ln", "北京", "01234", "2026-11-22 10:00:00", "a/b", "50%", "%41", "a=b", "a b",
    "a\nb", "trailing.", ".hidden", "_quire", "..", "a", "A", "null", "+", "{x}", "q?*", "back\\slash", "é" * 120, "x" * 240,
]  # fmt: skip


@pytest.fixture
def home(hdfs_cluster: Cluster) -> str:
    """A place that nobody has used."""
    return f"{hdfs_cluster.url}{HOME}/{uuid.uuid4().hex}"


def records(dest: str) -> list[Any]:
    return sorted(first_rows(connect(normalise(dest), ALICE), 999))


def test_files_of_any_name_are_gathered_located_and_forgotten(home: str) -> None:
    source, dest = f"{home}/in", f"{home}/out – Köln 50%"
    store = bare(normalise(source), ALICE)
    for name in NAMES:
        store.put(name, name.encode() + b"\n")
    report = gather(source, dest, storage_options=ALICE, hidden=True)
    assert (report.files, report.quarantined, report.unreadable_count) == (len(NAMES), (), 0)
    assert gather(source, dest, storage_options=ALICE, hidden=True).skipped == len(NAMES)
    ledger = Ledger(dest, storage_options=ALICE)
    for name in NAMES:
        path = f"{store.url}/{name}"
        assert [found.state for found in ledger.locate(path)] == ["done"], name
        assert ledger.read(path) == name.encode() + b"\n"
    assert ledger.verify(spark=SPARK).ok
    done = ledger.forget([f"{store.url}/{name}" for name in NAMES[:9]], spark=SPARK, progress=False)
    assert done.files_out == 9
    sums.check(ledger._store)
    assert gather(source, f"{home}/again", storage_options=ALICE, hidden=True, layout="directories").files == len(NAMES)
    assert records(f"{home}/again") == sorted(name.encode() for name in NAMES)


def test_values_come_back_from_directories_as_they_were(home: str, kafka_mock: Mock) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = pa.array([int(v) for v in batch.column("value").to_pylist()])
        return pa.record_batch([numbers, pa.array(VALUES, pa.string()).take(numbers)], ["n", "by"])

    name, dest = topic(kafka_mock, 1, [b"%d" % i for i in range(len(VALUES))]), f"{home}/out"
    given: Any = {"partition_by": "by", "function_version": "1", "dest_options": ALICE}
    assert load(kafka_mock, name, dest, function, **given).records == len(VALUES)
    store = connect(normalise(dest), ALICE)
    assert {row["n"]: row["by"] for row in first_rows(store, 999)} == dict(enumerate(VALUES))
    assert Ledger(dest, storage_options=ALICE).verify(spark=SPARK).ok


@pytest.mark.parametrize("policy", ["report", "reprocess"])
def test_a_purge_finishes_a_files_version(home: str, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that dies in the middle of a deletion: the next one gives the file its name back, and deletes it."""
    source, dest = f"{home}/in", f"{home}/out"
    store = bare(normalise(source), ALICE)

    def purge() -> Any:
        return Ledger(dest, storage_options=ALICE).purge_sources(source, min_age=0, dry_run=False, spark=SPARK)

    def there() -> list[str]:
        return [item.name for item in store.scan("") if isinstance(item, Entry)]

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    store.put("daily.csv", b"monday\n")
    store.put("kept.csv", b"kept\n")
    gather(source, dest, storage_options=ALICE, on_change=policy)
    with monkeypatch.context() as patch:
        patch.setattr(hdfs_store._HdfsDirectory, "drop", die)
        patch.setattr(hdfs_store._HdfsDirectory, "give", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            purge()
    assert any(aside.is_private(name) for name in there())
    assert purge().files == 2
    assert there() == []
    for content in (b"tuesday\n", b"wednesday\n"):
        store.put("daily.csv", content)
        assert gather(source, dest, storage_options=ALICE, on_change=policy).files == 1
        assert purge().files == 1
    ledger = Ledger(dest, storage_options=ALICE)
    ledger.compact("1 MiB", spark=SPARK, progress=False)
    ledger.refresh().expire(grace=0)
    assert records(dest) == [b"kept", b"monday", b"tuesday", b"wednesday"]
    assert [found.state for found in ledger.refresh().locate(f"{store.url}/daily.csv")] == ["purged"] * 3
    sums.check(ledger._store)
    assert ledger.verify(spark=SPARK).ok
