"""Merge-on-read tables that JVM Hudi 0.15.0 and 1.2.0 write, with deletes, late rows and compactions, as quire reads them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder
from test_archived_timeline import late_base, lay, leave, line_of
from test_changes import START
from test_views import same

import quire
from quire.table import timeline
from quire.table.format import log_file, lsm, names
from quire.table.table import Table
from services import jvm_hudi
from services.jvm_hudi import TURNS, VERSIONS, Session
from services.test_table_jvm import by_id, frame, row

pytestmark = pytest.mark.services

LOCAL = quire.LocalRunner()
WRITE, PAYLOAD = "hoodie.datasource.write", "org.apache.hudi.common.model"
SIMPLY = {
    "hoodie.index.type": "SIMPLE",
    "hoodie.logfile.data.block.format": "avro",
    f"{WRITE}.payload.class": f"{PAYLOAD}.DefaultHoodieRecordPayload",
}
# Inserts into buckets go to logs, so that there are slices of logs alone.
BUCKETS = {
    "hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2", "hoodie.logfile.data.block.format": "parquet",
    f"{WRITE}.payload.class": f"{PAYLOAD}.OverwriteWithLatestAvroPayload",
}  # fmt: skip
KINDS = {
    "avro by event time": (SIMPLY, {log_file.AVRO, log_file.DELETES}),
    "parquet by commit time": (BUCKETS, {log_file.PARQUET, log_file.DELETES}),
}
SCHEDULE = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
COMPACT = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


@pytest.mark.nth(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_logs_of_a_writer_on_the_jvm_are_read_as_it_reads_them(
    tmp_path: Path, sessions: dict[str, Session], version: str, kind: str
) -> None:  # fmt: skip
    jvm, (how, expected) = sessions[version], KINDS[kind]
    options = {
        "hoodie.table.name": "t", f"{WRITE}.table.type": "MERGE_ON_READ", f"{WRITE}.recordkey.field": "id",
        f"{WRITE}.precombine.field": "ts", f"{WRITE}.partitionpath.field": "city", f"{WRITE}.hive_style_partitioning": "true",
        "hoodie.compact.inline": "false", **how, **TURNS,
    }  # fmt: skip
    steps: list[tuple[str, list[dict[str, Any]], dict[str, str]]] = [
        ("upsert", [row(key, 3) for key in "abcde"], {}),
        ("upsert", [row("a", 4), row("f", 1)], {}),
        ("delete", [row("c", 3)], {}),
        ("upsert", [row("d", 5), row("g", 1)], SCHEDULE),
        ("upsert", [row("a", 6), row("e", 7), row("h1", 1)], {}),
        ("delete", [row("d", 6)], {}),
        ("upsert", [row("b", 8)], COMPACT),
        ("upsert", [row("f", 9)], {}),
    ]
    if kind == "avro by event time":
        steps.insert(2, ("upsert", [row("b", 2), row("e", 1)], {}))  # too late
    known, waiting, blocks = dict[str, Any](), 0, set[int]()
    for operation, rows, more in steps:
        jvm.write(tmp_path / "t", frame(*rows), {**options, f"{WRITE}.operation": operation, **more})
        table = Table(tmp_path / "t")
        line = timeline.read(quire.storage.connect(table.url))
        found = by_id(table.snapshot(spark=LOCAL))
        assert found == jvm_rows(jvm, table), (operation, rows)
        # hudi-rs 0.5 does not find the logs since a compaction was asked for, and reads no lists of times from Avro.
        if how is BUCKETS and not line.compactions():
            assert found == by_hudi_rs(table), (operation, rows)
        base = by_id(table.snapshot(spark=LOCAL, read_optimized=True))
        assert base == jvm_rows(jvm, table, "read_optimized"), (operation, rows)
        waiting += bool(line.compactions())
        blocks |= {
            block.kind
            for path in tmp_path.rglob("*")
            if names.log_file(path.name)
            for block in log_file.decode(path.read_bytes(), path.name)
        }
        known[line.completed[-1].time] = found
    assert blocks >= expected
    assert waiting
    assert any(instant.action == "commit" for instant in line.completed)
    for instant, rows_then in known.items():
        assert by_id(table.as_of(instant).snapshot(spark=LOCAL)) == rows_then
    if how is BUCKETS:
        # By commit time the later row counts, as for 1.x and hudi-rs; 0.15 takes the greater ordering among rows in logs.
        for ts in (5, 2):
            jvm.write(table.url, frame(row("y", ts)), {**options, f"{WRITE}.operation": "upsert"})
        assert jvm_rows(jvm, table)["y"]["ts"] == {"0.15.0": 5, "1.2.0": 2}[version]
        assert by_id(table.snapshot(spark=LOCAL))["y"]["ts"] == by_hudi_rs(table)["y"]["ts"] == 2


NINE = {
    "hoodie.table.name": "t", f"{WRITE}.table.type": "MERGE_ON_READ", f"{WRITE}.recordkey.field": "id", f"{WRITE}.precombine.field": "ts",
    f"{WRITE}.partitionpath.field": "city", "hoodie.index.type": "SIMPLE", "hoodie.metadata.enable": "false",
    "hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "3", "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", "hoodie.timeline.compaction.batch.size": "2",
}  # fmt: skip


def test_a_table_of_version_9_is_read_as_jvm_hudi_reads_it_while_it_archives_its_timeline(
    tmp_path: Path, sessions: dict[str, Session]
) -> None:  # fmt: skip
    jvm, merged, then = sessions["1.2.0"], 0, START
    for step in range(9):
        operation, rows = (
            ("delete", [row("c", step + 1)]) if step == 4 else ("upsert", [row(key, step + 1) for key in "abc"[: 1 + step % 3]])
        )
        jvm.write(tmp_path, frame(*rows), {**NINE, f"{WRITE}.operation": operation})
        table = Table(tmp_path)
        line = table._timeline(table._store)
        if step in (4, 8):
            assert by_id(table.snapshot(spark=LOCAL)) == jvm_rows(jvm, table)
        if step in (3, 4, 7):
            assert changed_since(table, then) == jvm_changed(jvm, table, then)
        then = max(each.ended for each in line.completed)
        assert line.archived == bool(line.left and line.left.files)
        merged += any(file.name.endswith("_1.parquet") for file in (line.left.files if line.left else ()))
    assert merged
    assert line.left is not None
    known = jvm.archived(table.url)
    assert line.left.ends(known).keys() == {time for time in known if time < line.first} - line.cleans - cleans_of(tmp_path)


KEPT = {"hoodie.compact.inline": "false", "hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}


def changed_since(table: Table, then: str) -> dict[str, dict[str, Any]]:
    """The rows that commits have inserted and updated that ended after a time: an incremental query has no deletes."""
    found = table.changes(then, spark=LOCAL).to_pylist()
    return {each["after"]["id"]: each["after"] for each in found if each["op"] != "d"}


def jvm_changed(jvm: Session, table: Table, then: str) -> dict[str, dict[str, Any]]:
    """The same by JVM Hudi."""
    options = {"hoodie.datasource.query.type": "incremental", "hoodie.datasource.read.begin.instanttime": then}
    found = jvm.read(table.url, options)
    return by_id(found)


@pytest.mark.parametrize("kind", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_commit_is_in_the_window_in_which_it_ended_as_for_jvm_hudi(tmp_path: Path, sessions: dict[str, Session], kind: str) -> None:
    """The one that was begun first ends last."""
    jvm, options = sessions["1.2.0"], {**NINE, **KEPT, f"{WRITE}.table.type": kind}
    cities = [[{**row(key, 1), "city": city} for key in "ab"] for city in ("sf", "la")]
    jvm.write(tmp_path, frame(*cities[0], *[{**each, "id": f"{each['id']}2"} for each in cities[1]]), options)
    for city in ("la", "sf"):
        key = "a" if city == "sf" else "a2"
        jvm.write(tmp_path, frame({**row("a", 2), "id": key, "city": city}), options)
    first, late, last = line_of(tmp_path).completed
    path = tmp_path / names.TIMELINE / late.name
    path.rename(path.with_name(path.name.replace(late.ended, f"{int(last.ended) + 1}")))
    table = Table(tmp_path)
    for then, expected in ((first.ended, {"a", "a2"}), (last.ended, {"a2"}), (f"{int(last.ended) + 1}", set())):
        found = changed_since(table, then)
        assert found == jvm_changed(jvm, table, then)
        assert found.keys() == expected


def cleans_of(folder: Path) -> set[str]:
    """The cleans of an archived timeline."""
    tables = [pq.read_table(path, columns=lsm.COLUMNS) for path in (folder / lsm.FOLDER).glob("*.parquet")]
    return {one[lsm.INSTANT] for table in tables for one in table.to_pylist() if one[lsm.ACTION] == "clean"}


@pytest.mark.parametrize("late", [True, False])
def test_an_archived_log_counts_by_when_it_completed_as_for_jvm_hudi(tmp_path: Path, sessions: dict[str, Session], late: bool) -> None:
    before, log, _ = late_base(tmp_path)
    ended = line_of(tmp_path).ends({log})[log]
    lay(tmp_path, [[(log, ended if late else log, "deltacommit")]])
    leave(tmp_path, {log})
    found = Table(tmp_path).snapshot(spark=LOCAL)
    assert same(found, sessions["1.2.0"].read(f"file://{tmp_path}").select(found.column_names))
    assert same(found, before) == late


def jvm_rows(jvm: Session, table: Table, query: str = "snapshot") -> dict[str, dict[str, Any]]:
    return by_id(jvm.read(table.url, {"hoodie.datasource.query.type": query}))


def by_hudi_rs(table: Table) -> dict[str, dict[str, Any]]:
    return by_id(pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.url).build().read(HudiReadOptions())))
