"""Changes of merge-on-read tables: those of any window, applied to its first snapshot, give its last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_changes import START, check
from test_merge_on_read import SIX
from test_merge_on_read_writes import CALL, FIRST, HERE, files, logged
from test_views import unpacked
from test_writes import LOCAL, frame, write

from gathering import refused
from quire.errors import FormatError, RefusedError
from quire.storage import connect
from quire.table import changes, merged_changes, timeline
from quire.table.table import Table


def instants(table: Table) -> list[str]:
    return [instant.time for instant in timeline.read(connect(table.url)).completed]


def told(table: Table, since: str, **more: Any) -> list[tuple[Any, ...]]:
    """What changed: op, key, fare before and after."""
    found = table.changes(since, images="both", spark=LOCAL, **more).to_pylist()
    fares = [[image and image["fare"] for image in (each["before"], each["after"])] for each in found]
    return sorted((each["op"], each["_hoodie_record_key"], *two) for each, two in zip(found, fares, strict=True))


STEP = st.one_of(CALL, st.tuples(st.sampled_from(["insert_overwrite", "delete_partitions"]), CALL.map(lambda call: call[1])))


@pytest.mark.nth(2)
@pytest.mark.parametrize("index", ["bloom", "bucket"])
@settings(
    max_examples=3, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(STEP, min_size=2, max_size=7), change_files=st.booleans(), form=st.sampled_from(["parquet", "avro"]))
def test_changes_lead_from_any_snapshot_to_any_later_one(
    tmp_path_factory: pytest.TempPathFactory, index: str, calls: Any, *, change_files: bool, form: Any
) -> None:
    """Upserts, deletes, rows that come too late, compactions, and partitions that are replaced."""
    folder = tmp_path_factory.mktemp("table") / "t"
    table = logged(folder, index=index, buckets=1 if index == "bucket" else None, change_files=change_files, log_format=form)
    there, pending = set[str](), False
    for operation, given_rows in [("upsert", [("z", "sf", 1, 1)]), *calls]:
        rows = {key: (f"{city}-{key}", city, ts, float(fare)) for key, city, ts, fare in given_rows}
        if operation == "schedule":
            pending = pending or bool(table.schedule_compaction().scheduled)
        elif operation == "compact" or (pending and operation in ("insert_overwrite", "delete_partitions")):
            table.compact(**HERE)
            pending = False
        elif operation == "delete_partitions":
            alive = {row["city"] for row in table.snapshot(spark=LOCAL).to_pylist()}
            for city in sorted({row[1] for row in rows.values()} & alive):
                table.delete_partitions({"city": city}, progress=False)
        else:
            some = [row for row in rows.values() if operation != "insert" or row[0] not in there]
            if some:
                write(table, operation, frame(*some))
                there |= {row[0] for row in some}
    check(table, [START, *instants(table)])


@pytest.mark.nth(3)
@pytest.mark.parametrize("name", [name for name in SIX if "no_meta" not in name])
def test_changes_of_tables_of_jvm_hudi_with_logs(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    check(table, [START, *instants(table)])


def test_updates_deletes_and_inserts_are_told_and_a_row_that_comes_too_late_is_not(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    first = write(table, "upsert", FIRST).instant
    second = write(table, "upsert", frame(("b", "sf", 2, 9.0), ("a", "sf", 0, 0.0), ("d", "la", 1, 4.5))).instant
    third = write(table, "delete", frame(("b", "sf", 3, 0.0), ("c", "la", 0, 0.0))).instant
    assert told(table, START, until=first) == [("i", "a", None, 1.5), ("i", "b", None, 2.5), ("i", "c", None, 3.5)]
    assert told(table, first, until=second) == [("i", "d", None, 4.5), ("u", "b", 2.5, 9.0)]
    assert told(table, second, until=third) == [("d", "b", 9.0, None)]
    assert told(table, first) == [("d", "b", 2.5, None), ("i", "d", None, 4.5)]
    write(table, "upsert", frame(("b", "sf", 2, 8.0)))
    assert told(table, third) == [], "a delete in a log is newer"
    after = table.changes(first, spark=LOCAL, net=False)
    assert after.column_names == ["op", "instant", "_hoodie_partition_path", "_hoodie_record_key", "after"]
    check(table, [START, *instants(table)])


def test_a_compaction_a_clean_and_a_savepoint_change_nothing(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 9.0)))
    write(table, "delete", frame(("b", "sf", 2, 0.0)))
    last = instants(table)[-1]
    before = told(table, START, net=False)
    table.schedule_compaction()
    assert told(table, START, net=False) == before
    table.compact(schedule=False, **HERE)
    compacted = instants(table)[-1]
    assert compacted > last
    assert told(table, last) == told(table, compacted) == []
    table.savepoint()
    write(table, "upsert", frame(("a", "sf", 3, 8.0), ("b", "sf", 1, 7.0)))
    assert told(table, last) == [("i", "b", None, 7.0), ("u", "a", 9.0, 8.0)], "older than the delete, which is forgotten"
    check(table, [START, *instants(table)])
    table.clean(versions=1, progress=False)
    assert told(table, last) == told(table, compacted) == [("i", "b", None, 7.0), ("u", "a", 9.0, 8.0)], "needs no slice before"
    with refused(RefusedError, 2, "was cleaned", "Ask for changes since"):
        told(table, START)


def test_what_was_taken_away_without_a_clean_is_one_line(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    first = write(table, "upsert", FIRST).instant
    write(table, "upsert", frame(("a", "sf", 2, 9.0)))
    (log,) = files(tmp_path / "trips")[1]
    (path,) = tmp_path.glob(f"trips/*/{log}")
    content = path.read_bytes()
    path.unlink()
    with refused(RefusedError, 2, "was cleaned"):
        told(table, first)
    path.write_bytes(content[:-9])
    assert told(table, first) == [], "what a writer has left that died does not count"
    path.write_bytes(content.replace(b"PAR1", b"PAR2"))
    with pytest.raises(FormatError):
        told(table, first)


def test_of_a_base_file_the_rows_that_a_log_does_not_touch_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", frame(*((f"k{i:03d}", "sf", 1, 1.0) for i in range(200))))
    (base,) = (tmp_path / "trips").glob("*.parquet")
    meta = pq.read_schema(base).metadata
    whole = pq.read_table(base)
    pq.write_table(whole.replace_schema_metadata(meta), base, row_group_size=20)
    first = instants(table)[-1]
    write(table, "upsert", frame(("k007", "sf", 2, 2.0), ("k191", "sf", 2, 2.0)))
    read, real = list[tuple[int, int]](), merged_changes.reading.row_group

    def counted(file: Any, number: int, schema: Any, where: str) -> Any:
        read.append((number, len(schema.names)))
        return real(file, number, schema, where)

    monkeypatch.setattr(merged_changes.reading, "row_group", counted)
    assert told(table, first) == [("u", "k007", 1.0, 2.0), ("u", "k191", 1.0, 2.0)]
    assert {number for number, columns in read if columns > 1} == {0, 9}


def test_spark_gives_the_same_changes_of_logs(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "SHARE", 1)
    table = logged(tmp_path / "trips")
    first = write(table, "upsert", FIRST).instant
    write(table, "upsert", frame(("b", "sf", 2, 9.0), ("d", "la", 1, 4.5)))
    table.compact(**HERE)
    write(table, "delete", frame(("b", "sf", 3, 0.0), ("c", "la", 0, 0.0)))
    for asked, most in (({"images": "both"}, changes.TOGETHER), ({"net": False}, changes.TOGETHER), ({"images": "both"}, 0)):
        monkeypatch.setattr(changes, "TOGETHER", most)
        found, expected = table.changes(first, spark=spark, **asked), table.changes(first, spark=LOCAL, **asked)  # type: ignore[arg-type]
        assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, expected.to_pylist()))
        assert expected.num_rows
