"""Partitions that quire replaces, takes away and clusters, as JVM Hudi 0.15.0 and 1.2.0 read them; both write on in their turn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import quire
from quire.table.table import Table
from services import jvm_hudi
from services.jvm_hudi import TURNS, VERSIONS, Session
from services.test_table_jvm import COLUMNS, row
from services.test_table_jvm import frame as whole
from services.test_table_jvm_appends import of_table
from services.test_table_jvm_logs import LOCAL, SIMPLY, WRITE

pytestmark = pytest.mark.services

BUCKETS = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "2"}


NAMES = [name for name in COLUMNS.names if name != "place"]  # hudi-rs does not take times in lists in structs out of the JVM's logs


def frame(*rows: dict[str, Any]) -> pa.Table:
    return whole(*rows).select(NAMES)


def by_id(rows: pa.Table) -> dict[str, dict[str, Any]]:
    found = {each["id"]: each for each in rows.select(NAMES).to_pylist()}
    assert len(found) == rows.num_rows, "a key is there twice"
    return found


@pytest.fixture(scope="module")
def sessions() -> Iterator[dict[str, Session]]:
    with jvm_hudi.sessions() as found:
        yield found


@pytest.mark.nth(3)
@pytest.mark.parametrize("index", ["simple", "bucket"])
@pytest.mark.parametrize("type", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_jvm_reads_what_quire_replaces_and_replaces_on(
    tmp_path: Path, sessions: dict[str, Session], version: str, type: str, index: str
) -> None:  # fmt: skip
    jvm, buckets = sessions[version], 2 if index == "bucket" else None
    table = Table.create(
        tmp_path / "t", key="id", partition_by="city", ordering="ts", type=type, index=index, buckets=buckets, name="t"
    )  # fmt: skip
    by_index = BUCKETS if buckets else SIMPLY
    options = {**of_table("t"), f"{WRITE}.table.type": type.upper(), **by_index, **TURNS}
    expected = dict[str, Any]()

    def step(who: str, operation: str, *rows: dict[str, Any]) -> quire.TableReport | None:
        cities, report = {each["city"] for each in rows}, None
        if operation == "delete_partitions":
            report = table.delete_partitions(sorted(cities), progress=False)
        elif operation == "cluster":
            assert table.cluster(sort=["fare", "ts"], curve="hilbert", spark=LOCAL, progress=False).instants
        elif who == "quire":
            report = getattr(table, operation)(frame(*rows), spark=LOCAL, progress=False)
        else:
            jvm.write(table.url, frame(*rows), {**options, f"{WRITE}.operation": operation})
        if operation in ("insert_overwrite", "delete_partitions"):
            for gone in [key for key, each in expected.items() if each["city"] in cities]:
                del expected[gone]
        if operation not in ("delete_partitions", "cluster"):
            expected.update((each["id"], {name: each[name] for name in NAMES}) for each in rows)
        assert by_id(table.snapshot(spark=LOCAL)) == expected, (who, operation)
        assert by_id(jvm.read(table.url)) == expected, (who, operation)
        read = HudiTableBuilder.from_base_uri(table.url).build().read()
        assert by_id(pa.Table.from_batches(read)) == expected, (who, operation)
        return report

    first = step("quire", "upsert", *(row(key, 3) for key in "abcde"), row("l", 3, "la"), row("n", 3, "ny"))
    assert first is not None
    step("quire", "upsert", row("a", 4), row("l", 4, "la"))
    step("quire", "insert_overwrite", row("a", 1), row("x", 1))
    step("quire", "upsert", row("a", 5), row("y", 5))
    if not buckets:
        step("quire", "cluster")
    step("jvm", "upsert", row("x", 6), row("z", 6))
    if not buckets:
        step("quire", "cluster")
        step("quire", "upsert", row("x", 7), row("z", 7))
    step("quire", "delete_partitions", row("l", 1, "la"))
    step("jvm", "upsert", row("m", 2, "la"), row("a", 7))
    step("quire", "upsert", row("l", 1, "la"))
    step("jvm", "insert_overwrite", row("k", 2), row("x", 2))
    step("quire", "upsert", row("k", 3), row("b", 3))
    step("quire", "insert_overwrite", row("b", 1), row("q", 1, "ny"))
    assert by_id(table.as_of(first.instant).snapshot(spark=LOCAL)).keys() == set("abcdeln")
    then = jvm.read(table.url, {"as.of.instant": first.instant})
    assert by_id(then).keys() == set("abcdeln"), "the JVM reads older instants, too"
