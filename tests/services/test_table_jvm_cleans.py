"""Cleans and savepoints: JVM Hudi 0.15.0 and 1.2.0 read, write and clean after quire, and quire after them."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import quire
from quire.errors import RefusedError
from quire.table import archived_timeline, timeline
from quire.table.format import lsm
from quire.table.table import Table
from services import jvm_hudi
from services.jvm_hudi import TURNS, VERSIONS, Session
from services.test_table_jvm import NINE, by_id, frame, row
from services.test_table_jvm_logs import SIMPLY, WRITE

pytestmark = pytest.mark.services

LOCAL = quire.LocalRunner()
CLEANS = {
    "hoodie.clean.automatic": "true", "hoodie.clean.async": "false", "hoodie.cleaner.policy": "KEEP_LATEST_FILE_VERSIONS",
    "hoodie.cleaner.fileversions.retained": "1", "hoodie.clean.max.commits": "1", "hoodie.clean.trigger.max.commits": "1",
}  # fmt: skip
NEVER = {"hoodie.clean.automatic": "false"}
CLUSTERS = {"hoodie.clustering.inline": "true", "hoodie.clustering.inline.max.commits": "1"}


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


FORMS = [
    *itertools.product(VERSIONS, ["copy_on_write", "merge_on_read"]), ("1.2.0", "version 9"), ("1.2.0", "version 9, merge_on_read")
]  # fmt: skip


def begun(place: Path, type: str) -> tuple[Table, dict[str, str]]:
    """A table without rows, and the options by which the JVM writes into it; `type`: that of a table, or "version 9", or both."""
    nine, kind = type.startswith("version 9"), "merge_on_read" if type.endswith("merge_on_read") else "copy_on_write"
    logs = {"log_format": "avro"} if kind == "merge_on_read" else {}
    how: dict[str, Any] = {"type": kind, "index": "simple", "name": "t", "version": 9 if nine else 6, **logs}
    table = Table.create(place, key="id", partition_by="city", ordering="ts", **how)
    return table, {
        "hoodie.table.name": "t", f"{WRITE}.table.type": kind.upper(), f"{WRITE}.recordkey.field": "id", f"{WRITE}.precombine.field": "ts",
        f"{WRITE}.partitionpath.field": "city", f"{WRITE}.hive_style_partitioning": "true", "hoodie.compact.inline": "false",
        **(SIMPLY if type == "merge_on_read" else {"hoodie.index.type": "SIMPLE"}), **(NINE if nine else TURNS),
        **({"hoodie.logfile.data.block.format": "avro"} if logs else {}),
    }  # fmt: skip


@pytest.mark.nth(3)
@pytest.mark.parametrize(("version", "type"), FORMS)
def test_both_clean_and_read_after_each_other(tmp_path: Path, sessions: dict[str, Session], version: str, type: str) -> None:
    jvm = sessions[version]
    table, options = begun(tmp_path / "t", type)
    expected, instants = dict[str, object](), list[str]()

    def bring(who: str, n: int, more: dict[str, str]) -> None:
        rows = [row("a", n), row(f"{who}{n}", n), row("l", n, "la")]
        if who == "quire":
            table.upsert(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), {**options, f"{WRITE}.operation": "upsert", **more})
        expected.update({each["id"]: each for each in rows})
        instants.append(timeline.current(quire.storage.connect(table.url)).completed[-1].time)
        agree()

    def agree() -> None:
        assert by_id(table.snapshot(spark=LOCAL)) == expected
        assert by_id(jvm.read(table.url)) == expected

    def compact() -> None:
        if type.endswith("merge_on_read"):
            table.compact(spark=LOCAL, progress=False)
        elif type == "version 9":  # a clustering is written there as the JVM 1.x has it
            assert table.cluster(sort="ts", spark=LOCAL, progress=False).file_groups

    for n in range(1, 4):
        bring("quire", n, NEVER)
    compact()
    agree()
    bring("jvm", 4, {**NEVER, **CLUSTERS} if type == "version 9" else NEVER)
    newest = timeline.current(quire.storage.connect(table.url)).completed[-1].action
    assert (newest == "replacecommit") == (type == "version 9"), "the JVM has clustered what it has written, and what quire has"
    at_savepoint = dict(expected)
    held = table.savepoint(comment="kept")
    assert by_id(jvm.read(table.url, {"as.of.instant": held})) == at_savepoint
    bring("quire", 5, NEVER)
    compact()
    bring("quire", 6, NEVER)
    compact()
    travelled = by_id(jvm.read(table.url, {"as.of.instant": held}))
    # 1.2.0 counts logs of a merge-on-read table that came later, in the slice as of an instant.
    assert travelled == at_savepoint or (version, type) == ("1.2.0", "merge_on_read")
    report = table.clean(versions=1, progress=False)
    assert report.files >= 2
    agree()
    # A clean of the JVM's own knows quire's, and spares the savepoint of quire's.
    bring("jvm", 7, CLEANS)
    bring("jvm", 8, CLEANS)
    compact()
    bring("jvm", 9, CLEANS)
    cleans = timeline.current(quire.storage.connect(table.url)).cleans
    assert len(cleans) >= 2, "the JVM has cleaned, too"
    assert by_id(table.as_of(held).snapshot(spark=LOCAL)) == at_savepoint
    assert by_id(jvm.read(table.url, {"as.of.instant": held})) == travelled
    with pytest.raises(RefusedError, match="cannot be read as of"):
        table.as_of(instants[0]).snapshot(spark=LOCAL)
    table.delete_savepoint(held)
    bring("quire", 10, NEVER)
    table.clean(versions=1, progress=False)
    agree()
    bring("jvm", 11, CLEANS)
    assert not quire.recover(table.url).lost_updates
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


@pytest.mark.nth(3)
@pytest.mark.parametrize(("version", "type"), FORMS)
def test_the_jvm_reads_and_writes_after_an_archive_and_archives_after_it(
    tmp_path: Path, sessions: dict[str, Session], version: str, type: str
) -> None:
    jvm = sessions[version]
    table, options = begun(tmp_path / "t", type)
    options |= NEVER
    expected = dict[str, object]()

    def bring(who: str, n: int, more: dict[str, str] | None = None) -> None:
        rows = [row("a", n), row(f"{who}{n}", n), row("l", n, "la")]
        if who == "quire":
            table.upsert(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), {**options, f"{WRITE}.operation": "upsert", **(more or {})})
        expected.update({each["id"]: each for each in rows})
        agree()

    def agree() -> None:
        assert by_id(table.snapshot(spark=LOCAL)) == expected
        assert by_id(jvm.read(table.url)) == expected

    for n in range(1, 5):
        bring("quire", n)
    bring("jvm", 5)
    first = [instant.time for instant in timeline.current(quire.storage.connect(table.url)).completed][:3]
    assert table.archive(keep=2, progress=False).instants == 3
    told = jvm.archived(table.url)
    assert sorted(told) == first
    assert all(told.values()), "and it reads what they have said"
    agree()
    bring("jvm", 6)
    bring("quire", 7)
    # Its archiver goes on behind quire's archive, and merges both where it does so.
    archives = {
        "hoodie.archive.automatic": "true", "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3",
        "hoodie.clean.automatic": "true", "hoodie.clean.async": "false", "hoodie.cleaner.commits.retained": "1",
    }  # fmt: skip
    if type.startswith("version 9"):
        archives["hoodie.timeline.compaction.batch.size"] = "2"
    for n in range(8, 12):
        bring("jvm", n, archives)
    line = timeline.current(quire.storage.connect(table.url))
    assert len(line.completed) < 8, "the JVM has archived, too"
    if line.left is not None:
        assert any(file.layer > 0 and file.first == first[0] for file in line.left.files), "and merged quire's file with its own"
        assert set(first) < jvm.archived(table.url).keys() == set(archived(table))
    bring("quire", 12)
    table.archive(keep=1, progress=False)
    agree()
    bring("quire", 13)
    done = quire.recover(table.url)
    assert (done.rolled_back, done.lost_updates) == ((), ())
    if line.left is not None:
        for n in range(14, 26):
            bring("quire", n)
            table.archive(keep=1, progress=False)
        line = timeline.current(quire.storage.connect(table.url))
        assert line.left is not None
        assert len(line.left.files) < archived_timeline.BATCH, "quire merges, too"
        assert jvm.archived(table.url).keys() == set(archived(table))
        for n in range(26, 30):
            bring("jvm", n, archives)
        assert jvm.archived(table.url).keys() == set(archived(table))
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok


def archived(table: Table) -> list[str]:
    """The instants that have left the timeline of a table of version 9, each once, as quire reads it."""
    store = quire.storage.connect(table.url)
    files = archived_timeline.newest(store)[1]
    found = [row for file in files for row in pq.read_table(io.BytesIO(store.get(file.name))).to_pylist()]
    assert all(row["metadata"] for row in found)
    times = [row[lsm.INSTANT] for row in found]
    assert len(times) == len(set(times))
    return times
