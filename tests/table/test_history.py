"""The history of a record: as the snapshots of all instants have it, from few files, and honest about what was cleaned or archived."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jvm
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_merge_on_read import UNREAD
from test_merge_on_read_writes import CALL, HERE
from test_views import unpacked
from test_writes import LOCAL, create, frame, write

from gathering import refused
from quire.errors import RefusedError, UsageError
from quire.storage import connect
from quire.table import overview, timeline
from quire.table.envelope import Envelope
from quire.table.format.schema import META
from quire.table.table import Table

KEY, PARTITION = META[2:4]
Told = list[tuple[str, str, Any, Any]]
CALLS = st.one_of(CALL, st.tuples(st.sampled_from(["insert_overwrite", "delete_partitions"]), CALL.map(lambda call: call[1])))
# Without rows or what tells them apart, of other formats, or (the last two) with a key as two records, which snapshots do not tell apart.
OTHERS = "_empty|_no_metafields|lance|timebased|nonpartitioned_rollback|duplicate_keys"
OF_JVM = [name for name in jvm.names() if not name.endswith(UNREAD) and not re.search(OTHERS, name)]


def told(table: Table, key: str, **more: Any) -> Told:
    found = table.history(key, **more).rows()
    return [(row["instant"], row["op"], row["before"], row["after"]) for row in found]


def expected(table: Table, key: str) -> Told:
    """The same from a snapshot at each instant."""
    found, before = Told(), dict[str, Any]()
    now = dict.fromkeys(table._columns(table._timeline(table._store)).names[5:])
    for instant in table._timeline(connect(table.url)).completed:
        rows = table.as_of(instant.time).snapshot(spark=LOCAL).to_pylist()
        after = {row[PARTITION]: now | {n: v for n, v in row.items() if n not in META} for row in rows if row[KEY] == key}
        for partition in sorted({*before, *after}):
            one, other = before.get(partition), after.get(partition)
            if one != other:
                found.append((instant.time, "d" if other is None else "u" if one else "i", one, other))
        before = after
    return found


def step(table: Table, operation: str, rows: Any, there: dict[str, Any]) -> None:
    """One call of a random history; a row's fare is new each time, so that no update looks like none."""
    if operation == "schedule":
        there["pending"] = there.get("pending") or bool(table.schedule_compaction().scheduled)
        return
    if operation == "compact" or (there.get("pending") and operation in ("insert_overwrite", "delete_partitions")):
        table.compact(**HERE)
        there["pending"] = False
        return
    if operation == "delete_partitions":
        alive = {row["city"] for row in table.snapshot(spark=LOCAL).to_pylist()}
        for city in sorted({row[1] for row in rows} & alive):
            table.delete_partitions(f"city={city}", progress=False)
        return
    given_rows = {}
    for key, city, ts, _ in rows:
        there["fare"] = there.get("fare", 0.0) + 1
        given_rows[key, city] = (key, city, ts, there["fare"])
    if operation == "insert":  # of new keys alone: a key twice is not what this is about
        known = {(row["id"], row["city"]) for row in table.snapshot(spark=LOCAL).to_pylist()}
        given_rows = {key: row for key, row in given_rows.items() if key not in known}
    if given_rows:
        write(table, operation, frame(*given_rows.values()))


@pytest.mark.nth(6)
@pytest.mark.parametrize(
    ("kind", "index", "version"),
    [
        ("copy_on_write", "bloom", 6),
        ("merge_on_read", "bloom", 6),
        ("merge_on_read", "bucket", 6),
        ("copy_on_write", "bloom", 9),
        ("merge_on_read", "bloom", 9),
    ],
)
@settings(
    max_examples=2, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(CALLS, min_size=2, max_size=8))
def test_a_history_is_that_of_the_snapshots_of_all_instants(
    tmp_path_factory: pytest.TempPathFactory, kind: str, index: str, version: int, calls: Any
) -> None:
    """Upserts, deletes, rows that come too late, compactions, partitions that are replaced: of each key each change, once."""
    folder, there = tmp_path_factory.mktemp("table") / "t", dict[str, Any]()
    table = create(folder, type=kind, index=index, buckets=2 if index == "bucket" else None, version=version)
    for operation, rows in [("upsert", [("z", "sf", 1, 1)]), *calls]:
        if kind == "merge_on_read" or operation not in ("schedule", "compact"):
            step(table, operation, rows, there)
    for key in "abcdefgh":
        assert told(table, key) == expected(table, key)
        assert table.history(key).since == ""
    for instant in timeline.current(connect(table.url)).completed[:-1]:
        one = rows_of(calls)[0]
        assert told(table.as_of(instant.time), one) == [row for row in expected(table, one) if row[0] <= instant.time]


def rows_of(calls: Any) -> list[str]:
    return [row[0] for _, rows in calls for row in rows]


def story(folder: Path, **more: Any) -> tuple[Table, list[str]]:
    """A record that came, changed, went and came again, beside others that other commits have changed."""
    table = create(folder, **more)
    calls = [
        ("upsert", [("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0), ("c", "la", 1, 1.0)]), ("upsert", [("b", "sf", 2, 2.0)]),
        ("upsert", [("a", "sf", 2, 3.0)]), ("upsert", [("b", "sf", 3, 4.0), ("c", "la", 2, 4.0)]), ("delete", [("a", "sf", 3, 0.0)]),
        ("upsert", [("b", "sf", 4, 5.0)]), ("upsert", [("a", "sf", 5, 6.0)]),
    ]  # fmt: skip
    return table, [write(table, operation, frame(*rows)).instant for operation, rows in calls]


@pytest.mark.nth(4)
@pytest.mark.parametrize(("kind", "version"), [("copy_on_write", 6), ("merge_on_read", 6), ("copy_on_write", 9), ("merge_on_read", 9)])
def test_each_version_says_its_write_its_row_before_and_after_and_its_file(tmp_path: Path, kind: str, version: int) -> None:
    table, instants = story(tmp_path / "t", type=kind, version=version)
    history = table.history("a")
    rows = list(history.rows())
    assert [(row["instant"], row["op"], row["operation"]) for row in rows] == [
        (instants[0], "i", "upsert"), (instants[2], "u", "upsert"), (instants[4], "d", "delete"), (instants[6], "i", "upsert"),
    ]  # fmt: skip
    assert [row["after"] and row["after"]["fare"] for row in rows] == [1.0, 3.0, None, 6.0]
    assert [row["before"] and row["before"]["fare"] for row in rows] == [None, 1.0, 3.0, None]
    assert [row["partition"] for row in rows] == ["city=sf"] * 4
    assert all((tmp_path / "t" / row["file"]).is_file() for row in rows)
    assert (".log." in rows[1]["file"]) == (kind == "merge_on_read")
    assert (history.key, history.since, history.alive, len(history.versions)) == ("a", "", True, 4)
    assert "are known: all" in str(history)
    assert repr(history) == "RecordHistory('a', changes=4, alive=True)"
    json.dumps(history.as_dict())
    assert table.history("c").versions["op"].tolist() == ["i", "u"]
    nobody = table.history("nobody")
    assert (len(nobody.versions), nobody.alive) == (0, False)
    assert "not in the table" in str(nobody)
    assert not table.as_of(instants[4]).history("a").alive


def test_a_record_moves_with_its_partition_only_where_that_is_looked_into(tmp_path: Path) -> None:
    table, _ = story(tmp_path / "t")
    write(table, "upsert", frame(("a", "la", 1, 9.0)))
    assert [row["partition"] for row in table.history("a").rows()] == ["city=sf"] * 4 + ["city=la"]
    for named in ("city=la", "la", {"city": "la"}):
        assert [row["partition"] for row in table.history("a", partition=named).rows()] == ["city=la"]
    refused(UsageError, "has no partition 'city=rome'", lambda: table.history("a", partition="rome"))


def test_few_files_are_read(tmp_path: Path) -> None:
    """Of a hundred slices those that say something of the record: others are passed over by ranges, filters and commits."""
    table = create(tmp_path / "t", partition_by=None)
    for number in range(6):
        write(table, "bulk_insert", frame(*((f"k{number}{i}", "sf", 1, 1.0) for i in range(3))))
    for turn in range(9):
        write(table, "upsert", frame(("k51", "sf", 2, float(turn))))
    history = table.history("k50")
    assert len(history.versions) == 1, "its neighbour has changed nine times"
    assert history.files == 7, "the footer of each file group, and the slice in which it came"
    other = table.history("k51")
    assert (len(other.versions), other.files) == (10, 15)


@pytest.mark.nth(2)
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_what_was_cleaned_is_said(tmp_path: Path, kind: str) -> None:
    table, instants = story(tmp_path / "t", type=kind)
    if kind == "merge_on_read":
        table.compact(**HERE)
    table.clean(versions=1, progress=False)
    history = table.history("a")
    assert history.since > instants[0]
    (only,) = history.rows()
    assert (only["instant"], only["op"], only["before"], only["after"]["fare"]) == (instants[6], None, None, 6.0)
    assert f"from {history.since} on" in str(history)
    later = write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    assert told(table, "a")[1:] == [(later.instant, "u", only["after"], only["after"] | {"ts": 9, "fare": 9.0})]


def test_what_a_savepoint_has_kept_is_told_and_what_is_between_is_not_made_up(tmp_path: Path) -> None:
    table, instants = story(tmp_path / "t")
    table.savepoint(instants[0])
    table.clean(versions=1, progress=False)
    rows = list(table.history("a").rows())
    assert (rows[0]["instant"], rows[0]["after"]["fare"]) == (instants[0], 1.0)
    assert (rows[-1]["instant"], rows[-1]["op"], rows[-1]["before"]) == (instants[6], None, None)


def test_what_was_archived_is_said(tmp_path: Path) -> None:
    table, instants = story(tmp_path / "t")
    table.archive(keep=2, progress=False)
    history = table.history("a")
    assert history.since == instants[5]
    last = list(history.rows())[-1]
    assert (last["instant"], last["op"], last["operation"]) == (instants[6], "i", "upsert")


def test_keys_of_several_columns_and_of_other_types(tmp_path: Path) -> None:
    columns = pa.schema([("day", pa.date32()), ("number", pa.int32()), ("name", pa.string())])
    table = Table.create(tmp_path / "t", key=["day", "number"])
    day = dt.date(2026, 11, 22)
    write(table, "upsert", pa.Table.from_pylist([{"day": day, "number": 7, "name": "<b>"}], columns))
    for key in ({"number": 7, "day": day}, (day, 7), "day:2026-11-22,number:7"):
        history = table.history(key)
        assert (history.key, len(history.versions)) == ("day:2026-11-22,number:7", 1)
    wrong: list[Any] = [7, (day,), {"day": day}, ("x", 7), None, "", (None, None), (day, "x"), [day, 7]]
    for key in wrong:
        refused(UsageError, "key", lambda key=key: table.history(key))
    single = Table.create(tmp_path / "single", key="number")
    assert len(single.history(7).versions) == 0, "nothing has been written yet"
    write(single, "upsert", pa.Table.from_pylist([{"day": None, "number": 7, "name": None}], columns))
    assert told(single, "7") == told(single, 7) != []  # type: ignore[arg-type]
    assert told(single, "7")[0][3] == {"day": None, "number": 7, "name": None}


def test_a_column_that_came_later_is_null_before(tmp_path: Path) -> None:
    table, _ = story(tmp_path / "t")
    wider = frame(("a", "sf", 7, 7.0)).append_column("tip", pa.array([1.0]))
    write(table, "upsert", wider)
    rows = list(table.history("a").rows())
    assert (rows[0]["after"]["tip"], rows[-1]["after"]["tip"]) == (None, 1.0)


@pytest.mark.nth(8)
@pytest.mark.parametrize(
    "name",
    [name if i % 3 == 0 else pytest.param(name, marks=pytest.mark.nightly) for i, name in enumerate(OF_JVM)],
)
def test_records_of_jvm_hudi_s_tables(tmp_path: Path, name: str) -> None:
    """Of both types, with deletes, logs, rollbacks and overwrites: the history is that of the snapshots."""
    table = Table(str(unpacked(name, tmp_path / "t")))
    for key in sorted({row[KEY] for row in table.snapshot(spark=LOCAL).to_pylist()})[:2]:
        assert told(table, key) == expected(table, key)


def test_a_table_without_meta_fields_is_refused_in_one_line(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    properties = tmp_path / "t/.hoodie/hoodie.properties"
    properties.write_bytes(properties.read_bytes() + b"\nhoodie.populate.meta.fields=false\n")
    refused(RefusedError, "no meta fields", lambda: Table(table.url).history("a"))


def test_a_time_that_python_does_not_have_is_one_line(tmp_path: Path) -> None:
    """The end of the year 9999 somewhere west of Greenwich, which programs on the JVM store for `never`."""
    columns = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("till", pa.timestamp("us", "UTC"))])
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, dt.datetime(2026, 1, 1, tzinfo=dt.UTC)), schema=columns))
    (path,) = tmp_path.rglob("*.parquet")
    rows = pq.read_table(path)
    never = pa.array([253402329599000000], pa.timestamp("us", "UTC"))
    pq.write_table(rows.set_column(rows.schema.get_field_index("till"), "till", never), path)
    changes = table.changes("00000000000000", images="both", spark=LOCAL).to_batches()
    calls: list[Callable[[], Any]] = [
        lambda: table.history("a"), lambda: list(overview.rows(table)), lambda: [list(Envelope("t", ("id",)).messages(b)) for b in changes]
    ]  # fmt: skip
    for call in calls:
        with refused(RefusedError, 2, "outside of the years 1 to 9999"):
            call()
    assert table.snapshot(spark=LOCAL).num_rows == 1
