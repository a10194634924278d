"""Merge-on-read tables that quire writes: JVM Hudi 0.15.0 and 1.2.0 read them, write into them and compact them, and quire goes on.

The sessions are their own: a JVM that has written instants of a time zone ahead of UTC waits for hours before it writes here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from quire.table import timeline
from quire.table.format import names
from quire.table.table import Table
from services import jvm_hudi
from services.jvm_hudi import TURNS, VERSIONS, Session
from services.test_table_jvm import by_id, frame, row
from services.test_table_jvm_logs import COMPACT, LOCAL, SCHEDULE, SIMPLY, WRITE, jvm_rows

pytestmark = pytest.mark.services


# The versions of the JVM, with those of tables that it writes into.
FORMS = [*((version, 6) for version in VERSIONS), ("1.2.0", 9)]
NINE = {"hoodie.index.type": "SIMPLE", "hoodie.logfile.data.block.format": "avro", "hoodie.metadata.enable": "false"}


def of_table(name: str) -> dict[str, str]:
    return {
        "hoodie.table.name": name, f"{WRITE}.table.type": "MERGE_ON_READ", f"{WRITE}.recordkey.field": "id",
        f"{WRITE}.precombine.field": "ts", f"{WRITE}.partitionpath.field": "city", f"{WRITE}.hive_style_partitioning": "true",
        "hoodie.compact.inline": "false",
    }  # fmt: skip


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


@pytest.mark.nth(2)
@pytest.mark.parametrize(("version", "written"), FORMS)
def test_the_jvm_reads_writes_and_compacts_what_quire_writes_and_quire_goes_on(
    tmp_path: Path, sessions: dict[str, Session], version: str, written: int
) -> None:  # fmt: skip
    jvm = sessions[version]
    table = Table.create(
        tmp_path / "t", key="id", partition_by="city", ordering="ts", type="merge_on_read", index="simple", name="t", version=written
    )  # fmt: skip
    options = {**of_table("t"), **(SIMPLY | TURNS if written == 6 else NINE)}
    expected, logs, asked_for = dict[str, Any](), 0, 0

    def step(who: str, operation: str, *rows: dict[str, Any], more: dict[str, str] | None = None) -> None:
        nonlocal logs, asked_for
        if who == "quire":
            getattr(table, operation)(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), {**options, f"{WRITE}.operation": operation, **(more or {})})
        for each in rows:
            before = expected.get(each["id"])
            if before is not None and before["ts"] > each["ts"]:
                continue
            expected.pop(each["id"], None)
            if operation != "delete":
                expected[each["id"]] = each
        line = timeline.current(quire.storage.connect(table.url))
        asked_for += bool(line.compactions())
        assert by_id(table.snapshot(spark=LOCAL)) == expected, (who, operation)
        assert jvm_rows(jvm, table) == expected, (who, operation)
        base = by_id(table.snapshot(spark=LOCAL, read_optimized=True))
        assert base == jvm_rows(jvm, table, "read_optimized"), (who, operation)
        found = [names.log_file(path.name) for path in (tmp_path / "t").rglob("*")]
        assert len({(each.file_id, each.instant, each.number) for each in found if each}) == sum(map(bool, found)), "a number comes once"
        logs = max(logs, sum(map(bool, found)))

    step("quire", "bulk_insert", *(row(key, 3) for key in "abcde"), row("l", 3, "la"))
    step("quire", "upsert", row("a", 4), row("b", 2), row("l", 5, "la"))
    # 0.15 takes a delete that comes too late for a row of the base file for one that counts.
    step("quire", "delete", row("c", 3), *([row("d", 2)] if version != "0.15.0" else []))
    step("jvm", "upsert", row("b", 5), row("f", 1))
    step("quire", "upsert", row("b", 6), row("g", 1))
    step("jvm", "delete", row("e", 3))
    step("jvm", "upsert", row("d", 7), more=SCHEDULE)
    step("quire", "upsert", row("d", 8), row("a", 8))
    step("quire", "delete", row("b", 8))
    step("jvm", "upsert", row("g", 8), more=COMPACT)
    step("quire", "upsert", row("g", 9), row("a", 9), row("m", 1, "la"))
    assert logs >= 5
    if version == "0.15.0":  # 1.2.0 schedules no compaction of a table of version 6 that others write, too
        assert asked_for
        assert any(instant.action == "commit" for instant in timeline.current(quire.storage.connect(table.url)).completed)
    assert not quire.recover(table.url).lost_updates


@pytest.mark.nth(2)
@pytest.mark.parametrize(("version", "written"), FORMS)
def test_the_jvm_reads_and_writes_beside_quire_s_compactions_and_carries_one_out(
    tmp_path: Path, sessions: dict[str, Session], version: str, written: int
) -> None:  # fmt: skip
    jvm = sessions[version]
    table = Table.create(
        tmp_path / "t", key="id", partition_by="city", ordering="ts", type="merge_on_read", index="simple", name="t", log_format="avro",
        version=written,
    )  # fmt: skip
    options = {**of_table("t"), **(SIMPLY | TURNS if written == 6 else NINE)}
    expected = dict[str, Any]()

    def agree(said: str) -> None:
        assert by_id(table.snapshot(spark=LOCAL)) == expected, said
        assert jvm_rows(jvm, table) == expected, said
        base = by_id(table.snapshot(spark=LOCAL, read_optimized=True))
        assert base == jvm_rows(jvm, table, "read_optimized"), said

    def bring(who: str, *rows: dict[str, Any], more: dict[str, str] | None = None) -> None:
        if who == "quire":
            table.upsert(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), {**options, f"{WRITE}.operation": "upsert", **(more or {})})
        expected.update({each["id"]: each for each in rows})
        agree(f"{who} {rows[0]}")

    bring("quire", *(row(key, 3) for key in "abcde"), row("l", 3, "la"))
    bring("quire", row("a", 4), row("l", 4, "la"))
    table.delete(frame(row("c", 4)), spark=LOCAL, progress=False)
    del expected["c"]
    (first,) = table.schedule_compaction().scheduled
    agree("a plan of quire's is pending")
    bring("quire", row("a", 5))
    bring("jvm", row("b", 5), row("f", 5))
    report = table.compact(schedule=False, spark=LOCAL, progress=False)
    assert (report.completed, report.file_groups) == ((first,), 2)
    agree("quire has carried out its plan")
    bring("jvm", row("a", 6), row("l", 6, "la"))
    (second,) = table.schedule_compaction().scheduled
    bring("jvm", row("b", 7), more=COMPACT)
    done = {instant.time for instant in timeline.current(quire.storage.connect(table.url)).completed if instant.action == "commit"}
    assert {first, second} <= done, "the JVM has carried out a plan of quire's"
    bring("quire", row("a", 8), row("m", 1, "la"))
    table.compact(spark=LOCAL, progress=False)
    agree("quire has compacted what the JVM and quire have written since")
    bring("jvm", row("a", 9))
    assert not quire.recover(table.url).lost_updates
