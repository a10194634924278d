"""Writing into a merge-on-read table: updates and deletes go into logs, and quire and hudi-rs read the same at each step."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from test_writes import COLUMNS, LOCAL, Rows, create, frame, home, log_of, ours, theirs, write

import quire
from gathering import refused
from quire.errors import RefusedError, UsageError
from quire.storage import connect
from quire.table import closer, file_groups, timeline
from quire.table.format import compaction, log_file, names
from quire.table.format.commits import WriteStat
from quire.table.table import Table

CALL = st.tuples(
    st.sampled_from(["upsert", "upsert", "delete", "insert", "schedule", "compact"]),
    st.lists(
        st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(["sf", "la"]), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=6
    ),
)
HERE: dict[str, Any] = {"spark": LOCAL, "progress": False}
FIRST = frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5))


def logged(folder: Path, **more: Any) -> Table:
    return create(folder, type="merge_on_read", **more)


def files(folder: Path) -> tuple[list[str], list[str]]:
    """The names of its base files and of its logs."""
    found = [path.name for path in folder.rglob("*") if ".hoodie/" not in str(path.relative_to(folder))]
    return sorted(name for name in found if names.base_file(name)), sorted(name for name in found if names.log_file(name))


def stats(table: Table) -> list[WriteStat]:
    """What the newest commit says of its files."""
    line = timeline.read(connect(table.url))
    return [stat for _, stat, _ in line.commit(line.completed[-1]).files()]


def test_updates_and_deletes_go_into_logs_and_base_files_stay(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    write(table, "upsert", FIRST)
    bases, logs = files(tmp_path / "trips")
    assert (len(bases), logs) == (2, [])
    second = write(table, "upsert", frame(("b", "sf", 2, 9.0), ("a", "sf", 0, 0.0)))
    third = write(table, "delete", frame(("b", "sf", 3, 0.0), ("c", "la", 1, 0.0), ("none", "la", 1, 0.0)))
    assert (second.updated, third.deleted, third.stale) == (2, 2, 1)
    assert files(tmp_path / "trips")[0] == bases, "no base file was written anew"
    assert sorted(log.number for name in files(tmp_path / "trips")[1] if (log := names.log_file(name))) == [1, 1, 2]
    expected = {"a": {"id": "a", "city": "sf", "ts": 1, "fare": 1.5}}
    assert ours(table) == theirs(tmp_path / "trips") == expected
    assert set(ours(table.as_of(second.instant))) == {"a", "b", "c"}
    assert ours(table.as_of(second.instant))["b"]["fare"] == 9.0
    optimized = table.snapshot(spark=LOCAL, read_optimized=True)
    assert optimized.num_rows == 3, "the base files alone"
    assert {instant.action for instant in timeline.read(connect(table.url)).completed} == {"deltacommit"}


def test_a_commit_says_of_a_log_what_other_programs_look_for(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    (base,) = files(tmp_path / "trips")[0]
    for number in (1, 2):
        report = write(table, "upsert", frame(("a", "sf", 1 + number, 1.0), ("b", "sf", 1 + number, 1.0)))
        (stat,) = stats(table)
        log = names.log_file(str(stat.path))
        assert log is not None
        assert (log.number, log.file_id, log.instant) == (number, stat.file_id, names.base_file(base).instant)  # type: ignore[union-attr]
        assert (stat.prev_commit, stat.log_version, stat.log_offset, stat.base_file) == (log.instant, number, 0, base)
        assert (stat.num_writes, stat.num_update_writes, stat.num_deletes, stat.num_inserts) == (2, 2, 0, 0)
        assert sorted(stat.log_files or ()) == files(tmp_path / "trips")[1]
        assert stat.file_size_in_bytes == (tmp_path / "trips" / str(stat.path)).stat().st_size == report.written
    whole = table.snapshot(spark=LOCAL)
    row = next(row for row in whole.to_pylist() if row["id"] == "a")
    assert row["_hoodie_commit_time"] == report.instant
    assert row["_hoodie_file_name"] == stat.file_id
    assert row["_hoodie_commit_seqno"].startswith(f"{report.instant}_")


def test_new_keys_fill_small_files_that_have_no_logs(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 9.0), ("d", "sf", 1, 4.5)))
    assert [len(each) for each in files(tmp_path / "trips")] == [2, 0], "a file that is written anyway takes the updates, too"
    write(table, "upsert", frame(("a", "sf", 3, 8.0)))
    write(table, "upsert", frame(("a", "sf", 4, 7.0), ("e", "sf", 1, 5.5)))
    assert [len(each) for each in files(tmp_path / "trips")] == [3, 2], "where logs are, new keys open another file group"
    assert ours(table) == theirs(tmp_path / "trips")
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 7.0, "b": 2.5, "c": 3.5, "d": 4.5, "e": 5.5}


Said = tuple[int, dict[str, Any] | None]  # the ordering of a row, and the row; None: it is deleted


class Known:
    """A dictionary of what should be there: of each key what counts, also a delete, until it was compacted."""

    def __init__(self, *, buckets: bool) -> None:
        self.buckets, self.state, self.pending = buckets, dict[str, Said](), False
        self.planned, self.late = dict[str, Said](), dict[str, Said]()  # deletes in a plan, and older rows that came since

    def plan(self) -> None:
        """Deletes of a plan are forgotten; in a bucket, which a key never leaves, when the plan is carried out."""
        self.planned, self.late = {key: said for key, said in self.state.items() if said[1] is None}, {}
        if not self.buckets:
            self.state = {key: said for key, said in self.state.items() if key not in self.planned}
            self.planned = {}

    def compact(self) -> None:
        """Deletes of the plan that still count are forgotten, and what came too late for them is not late any more."""
        gone = [key for key, said in self.planned.items() if self.pending and self.state[key] == said]
        self.state = {key: said for key, said in self.state.items() if key not in gone} | {k: self.late[k] for k in gone if k in self.late}
        self.pending = False

    def write(self, operation: str, rows: list[tuple[Any, ...]]) -> None:
        last, there = dict[str, tuple[Any, ...]](), {key.partition("-")[0] for key in self.state}
        for row in rows:
            if row[0] not in last or row[2] >= last[row[0]][2]:
                last[row[0]] = row
        for key, row in last.items():
            said = row[2], None if operation == "delete" else dict(zip(COLUMNS.names, row, strict=True))
            if key in self.state and row[2] < self.state[key][0]:
                if key in self.planned and said[1] and row[2] >= self.late.get(key, (0, None))[0]:
                    self.late[key] = said
            # Of a key that nobody has brought a delete says nothing, but for a bucket that is there.
            elif said[1] or key in self.state or (self.buckets and row[1] in there):
                self.state[key] = said

    @property
    def rows(self) -> Rows:
        return {key: row for key, (_, row) in self.state.items() if row is not None}


@pytest.mark.nth(3)
@pytest.mark.parametrize("index", ["bloom", "simple", "bucket"])
@settings(
    max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(calls=st.lists(CALL, min_size=1, max_size=8))
def test_any_history_is_what_a_dictionary_says(tmp_path_factory: pytest.TempPathFactory, index: str, calls: Any) -> None:
    """The greater ordering wins, also that of a delete: a log keeps it, so an older row does not come back until that is compacted."""
    folder = tmp_path_factory.mktemp("table") / "t"
    table, known = logged(folder, index=index, buckets=1 if index == "bucket" else None), Known(buckets=index == "bucket")
    for operation, given_rows in [("upsert", [("z", "sf", 1, 1)]), *calls]:
        rows = [(f"{city}-{key}", city, ts, float(fare)) for key, city, ts, fare in given_rows]
        if operation in ("schedule", "compact"):
            if not known.pending:
                known.pending = bool(table.schedule_compaction().scheduled)
                known.plan()
            if operation == "compact":
                table.compact(schedule=False, **HERE)
                known.compact()
        else:
            if operation == "insert":
                rows = [row for row in {row[0]: row for row in rows}.values() if row[0] not in known.state]
            if rows:
                write(table, operation, frame(*rows))
                known.write(operation, rows)
        assert ours(table) == known.rows
        if not known.pending:  # hudi-rs 0.5 does not read the logs of a slice that a pending plan begins
            assert theirs(folder) == known.rows


ORDERINGS = [
    (pa.int64(), 5, 6, 4), (pa.int32(), 5, 6, 4), (pa.float64(), 5.5, 6.5, 4.5), (pa.float32(), 5.5, 6.5, 4.5),
    (pa.string(), "e", "f", "d"),
    (pa.date32(), dt.date(2026, 1, 5), dt.date(2026, 1, 6), dt.date(2026, 1, 4)),
    (pa.timestamp("us", "UTC"), *(dt.datetime(2026, 1, day, 1, 2, 3, 456789, dt.UTC) for day in (5, 6, 4))),
    (pa.decimal128(20, 5), Decimal("5.00001"), Decimal("6.5"), Decimal(4)),
]  # fmt: skip


@pytest.mark.nth(4)
@pytest.mark.parametrize(("kind", "now", "later", "earlier"), ORDERINGS, ids=[str(each[0]) for each in ORDERINGS])
def test_deletes_are_ordered_by_each_type_of_column(tmp_path: Path, kind: pa.DataType, now: Any, later: Any, earlier: Any) -> None:
    columns = pa.schema([("id", pa.string()), ("at", kind), ("n", pa.int64())])
    table = Table.create(tmp_path / "t", key="id", ordering="at", type="merge_on_read", index="simple")
    write(table, "upsert", frame(("a", now, 1), ("b", now, 1), ("c", now, 1), ("d", now, 1), schema=columns))
    write(table, "delete", frame(("a", later, 0), ("b", earlier, 0), ("c", now, 0), schema=columns))
    write(table, "upsert", frame(("a", now, 2), ("c", later, 2), schema=columns))
    assert {key: row["n"] for key, row in ours(table).items()} == {"b": 1, "c": 2, "d": 1}
    assert {key: row["n"] for key, row in theirs(tmp_path / "t").items()} == {"b": 1, "c": 2, "d": 1}


def test_what_logs_cannot_say_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    for at, (kind, value, said) in enumerate(
        [
            (pa.int32(), 0, "has 0 in the ordering field 'at', an int"),
            (pa.bool_(), True, "is of the type bool, by which Hudi orders no deletes in logs"),
            (pa.decimal128(38, 2), Decimal("1e20"), "has room for 15 digits before the point"),
        ]
    ):
        columns = pa.schema([("id", pa.string()), ("at", kind)])
        table = Table.create(tmp_path / f"t{at}", key="id", ordering="at", type="merge_on_read")
        write(
            table,
            "upsert",
            frame(
                (
                    "a",
                    value,
                ),
                schema=columns,
            ),
        )
        before = ours(table)
        with refused(RefusedError, 2, said):
            write(table, "delete", frame(("a", value), schema=columns))
        assert ours(table) == before
        assert files(tmp_path / f"t{at}")[1] == []


def test_rows_that_are_marked_as_deleted_are_deletes_in_the_log(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    write(table, "bulk_insert", FIRST)
    marked = pa.Table.from_pylist(
        [{"id": "a", "city": "sf", "ts": 2, "fare": 0.0, "_hoodie_is_deleted": True}, {"id": "b", "city": "sf", "ts": 2, "fare": 9.0}]
    )
    report = write(table, "upsert", marked)
    assert (report.deleted, report.updated) == (1, 1)
    (log,) = files(tmp_path / "trips")[1]
    blocks = list(log_file.decode(next((tmp_path / "trips").rglob(log)).read_bytes(), log))
    assert [block.kind for block in blocks] == [log_file.PARQUET, log_file.DELETES]
    assert {block.instant for block in blocks} == {report.instant}
    assert ours(table) == theirs(tmp_path / "trips")
    assert set(ours(table)) == {"b", "c"}


TYPES = pa.schema([
    ("id", pa.string()), ("ts", pa.int64()), ("flag", pa.bool_()), ("n", pa.int32()), ("f", pa.float32()), ("d", pa.float64()),
    ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")), ("price", pa.decimal128(20, 5)), ("raw", pa.binary()),
    ("tags", pa.list_(pa.string())),
    ("named", pa.map_(pa.string(), pa.struct([("on", pa.date32()), ("of", pa.decimal128(9, 2))]))),
    ("deep", pa.struct([("x", pa.struct([("y", pa.list_(pa.int64()))]))])),
])  # fmt: skip
# hudi-rs 0.5 takes such times in Avro for others than those in Parquet, and reads neither.
TIMES = pa.schema([("times", pa.list_(pa.timestamp("us", "UTC"))), ("when", pa.struct([("at", pa.timestamp("us", "UTC"))]))])
AT = dt.datetime(2026, 1, 5, 1, 2, 3, 456789, dt.UTC)
DAY = dt.date(1969, 12, 30)
WHOLE = {
    "flag": True, "n": -7, "f": 1.5, "d": 2.25, "day": DAY, "at": AT, "price": Decimal("-12.34567"), "raw": b"\x00\xff",
    "tags": ["a", None, ""],
    "named": [("k", {"on": DAY, "of": Decimal("1.50")}), ("none", None)], "deep": {"x": {"y": [1, None]}}, "times": [AT, None],
    "when": {"at": AT},
}  # fmt: skip


@pytest.mark.parametrize("times", [False, True], ids=["", "nested times"])
def test_logs_are_avro_where_the_table_says_so(tmp_path: Path, *, times: bool) -> None:
    """Every type of column, whole and null, as quire and hudi-rs read them; also after a compaction."""
    table = Table.create(tmp_path / "t", key="id", ordering="ts", type="merge_on_read", index="simple", log_format="avro")
    columns = pa.schema([*TYPES, *(TIMES if times else ())])
    whole = {name: WHOLE[name] for name in columns.names if name in WHOLE}
    empty = dict.fromkeys(whole)
    write(table, "upsert", pa.Table.from_pylist([{"id": key, "ts": 1, **empty} for key in "abc"], columns))
    write(table, "upsert", pa.Table.from_pylist([{"id": "a", "ts": 2, **whole}, {"id": "b", "ts": 2, **empty}], columns))
    write(table, "delete", pa.Table.from_pylist([{"id": "c", "ts": 2}], columns))
    expected = {"a": {"id": "a", "ts": 2, **whole}, "b": {"id": "b", "ts": 2, **empty}}
    logs = [log for name in files(tmp_path / "t")[1] for log in log_file.decode(next((tmp_path / "t").rglob(name)).read_bytes(), name)]
    assert sorted(block.kind for block in logs) == sorted([log_file.AVRO, log_file.DELETES])
    for _ in range(2):
        assert ours(table) == expected
        assert times or theirs(tmp_path / "t") == expected
        table.compact(**HERE)
    assert theirs(tmp_path / "t") == expected
    assert ours(Table.create(table.url, key="id", ordering="ts", type="merge_on_read", index="simple", log_format="avro")) == expected
    with refused(RefusedError, 2, "is a table already, with other settings"):
        Table.create(table.url, key="id", ordering="ts", type="merge_on_read", index="simple")
    with refused(UsageError, 2, "log_format='avro' is of merge-on-read tables"):
        Table.create(tmp_path / "other", key="id", log_format="avro")
    with refused(UsageError, 2, "log_format"):
        Table.create(tmp_path / "other", key="id", ordering="ts", type="merge_on_read", log_format="orc")


def test_a_new_column_comes_with_a_log(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    more = pa.schema([*COLUMNS, pa.field("tip", pa.float64())])
    write(table, "upsert", frame(("a", "sf", 2, 1.0, 0.5), schema=more))
    rows = ours(table)
    assert (rows["a"]["tip"], rows["b"]["tip"]) == (0.5, None)
    assert len(files(tmp_path / "trips")[1]) == 1


def test_a_batch_comes_once_and_two_writers_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other's commit, though of an earlier instant, takes the number of the log, so the round is repeated with the next one."""
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    asked = list[str]()

    def first(*given: Any, **more: Any) -> Any:
        if not asked:
            asked.append("other")
            with monkeypatch.context() as m:
                m.setattr(closer.names, "next_instant", lambda known, now: drawn(known, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)))
                write(table, "upsert", frame(("a", "sf", 2, 2.0)), batch="other")
        return write_files(*given, **more)

    write_files, drawn = closer.write.write, names.next_instant
    monkeypatch.setattr(closer.write, "write", first)
    write(table, "upsert", frame(("a", "sf", 3, 3.0), ("b", "sf", 3, 3.0)), batch="mine")
    assert write(table, "upsert", frame(("a", "sf", 9, 9.0)), batch="other").again
    found = [names.log_file(name) for name in files(tmp_path / "trips")[1]]
    assert sorted(each.number for each in found if each) == [1, 2]
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 3.0, "b": 3.0, "c": 3.5}
    assert ours(table) == theirs(tmp_path / "trips")
    assert log_of(tmp_path / "trips").tip


def appended(place: Path, ours_at: str, instant: str, number: int, row: tuple[Any, ...]) -> None:
    """A log of another program for the slice of the only file group, and its commit; it has not seen ours at `ours_at`."""
    home = place / ".hoodie"
    said = json.loads((home / f"{ours_at}.deltacommit").read_bytes())
    ((stat,),) = said["partitionToWriteStats"].values()
    old = names.log_file(Path(stat["path"]).name)
    assert old is not None
    new = dataclasses.replace(old, number=number, token="1-2-3")
    other = logged(place.parent / f"{place.name}-{instant}", partition_by=None)
    write(other, "upsert", FIRST)
    write(other, "upsert", frame(row))
    (made,) = (path for path in (place.parent / f"{place.name}-{instant}").iterdir() if names.log_file(path.name))
    (theirs_at,) = [report.time for report in timeline.read(connect(other.url)).completed][1:]
    content = made.read_bytes().replace(theirs_at.encode(), instant.encode())
    assert content != made.read_bytes(), "the blocks say their instant"
    (place / new.name).write_bytes(content)
    stat |= {"path": new.name, "logFiles": [new.name], "logVersion": number, "fileSizeInBytes": len(content)}
    said["extraMetadata"] = {"schema": said["extraMetadata"]["schema"]}
    for state in (".requested", ".inflight"):
        (home / f"{instant}.deltacommit{state}").write_bytes(b"")
    (home / f"{instant}.deltacommit").write_text(json.dumps(said))


@pytest.mark.nth(9)
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("later", [True, False])
@pytest.mark.parametrize("ts", [1, 3])
def test_two_programs_that_write_logs_of_one_slice_at_once_lose_nothing(tmp_path: Path, number: int, later: bool, ts: int) -> None:
    """Neither knows of the other, and both may have taken the same number: these are two files, and the ordering says which row counts."""
    place = tmp_path / "trips"
    table = logged(place, partition_by=None)
    write(table, "upsert", FIRST)
    mine = write(table, "upsert", frame(("a", "sf", 2, 2.0), ("b", "sf", 2, 2.0)))
    appended(place, mine.instant, str(int(mine.instant) + (1 if later else -1)), number, ("a", "sf", ts, 9.0))
    found = sorted(log.number for name in files(place)[1] if (log := names.log_file(name)))
    assert found == sorted([1, number])
    expected = {"a": 9.0 if ts == 3 else 2.0, "b": 2.0, "c": 3.5}
    for _ in range(2):
        assert {key: row["fare"] for key, row in ours(table).items()} == expected
        assert ours(table) == theirs(place)
        done = quire.recover(place)
        assert (done.rolled_back, done.lost_updates) == ((), ())
    write(table, "upsert", frame(("b", "sf", 4, 4.0)))
    assert {key: row["fare"] for key, row in ours(table).items()} == {**expected, "b": 4.0}
    assert ours(table) == theirs(place)
    found = [log.number for name in files(place)[1] if (log := names.log_file(name))]
    assert max(found) == number + 1


@pytest.mark.nth(2)
def test_where_a_compaction_was_asked_for_logs_belong_to_the_slice_that_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:  # fmt: skip
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    store = connect(table.url)
    (one,) = file_groups.newest(store, timeline.current(store), logs=True)
    asked = names.next_instant(timeline.current(store).completed[-1].counts, dt.datetime.now(dt.UTC))
    (home(tmp_path / "trips") / f"{asked}.compaction.requested").write_bytes(b"plan")
    monkeypatch.setattr(compaction, "groups", lambda data, where: [(one.partition, one.group)])
    write(table, "upsert", frame(("a", "sf", 3, 3.0), ("d", "sf", 1, 1.0)))
    logs = [log for name in files(tmp_path / "trips")[1] if (log := names.log_file(name)) and log.instant >= asked]
    assert [log.number for log in logs] == [1]
    assert (logs[0].instant == asked) == (version == 6), "since version 8 a log is called by its own commit"
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 3.0, "b": 2.5, "c": 3.5, "d": 1.0}
    write(table, "upsert", frame(("a", "sf", 4, 4.0)))
    logs = [log for name in files(tmp_path / "trips")[1] if (log := names.log_file(name)) and log.instant >= asked]
    assert sorted(log.number for log in logs) == ([1, 2] if version == 6 else [1, 1])
    assert len({(log.instant, log.number) for log in logs}) == 2
    assert ours(table)["a"]["fare"] == 4.0


def test_spark_writes_and_reads_the_same(tmp_path: Path, spark: Any) -> None:
    table = logged(tmp_path / "trips")
    table.upsert(spark.createDataFrame(FIRST.to_pandas()), progress=False)
    table.upsert(spark.createDataFrame([("b", "sf", 2, 9.0)], ["id", "city", "ts", "fare"]), progress=False)
    table.delete(spark.createDataFrame([("c", "la", 2)], ["id", "city", "ts"]), progress=False)
    rows = {row["id"]: row["fare"] for row in table.snapshot(spark=spark).collect()}
    assert rows == {"a": 1.5, "b": 9.0}
    assert {key: row["fare"] for key, row in theirs(tmp_path / "trips").items()} == rows
    assert len(files(tmp_path / "trips")[1]) == 2


@pytest.mark.parametrize("form", ["parquet", "avro"])
def test_logs_are_verified(tmp_path: Path, form: str) -> None:
    table = logged(tmp_path / "trips", log_format=form)
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    write(table, "delete", frame(("c", "la", 2, 2.0)))
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
    for name in files(tmp_path / "trips")[1]:
        place = next((tmp_path / "trips").rglob(name))
        whole = place.read_bytes()
        for at in (3, 10, len(whole) - 2):  # its magic bytes, and the lengths of its block
            place.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            assert [one[0].rpartition("/")[2] for one in quire.Ledger(table.url).verify(spark=LOCAL).damaged] == [name], (name, at)
        place.write_bytes(whole)


def test_a_table_by_commit_time_is_read_and_not_written(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    write(table, "upsert", FIRST)
    place = tmp_path / "trips/.hoodie/hoodie.properties"
    text = place.read_text()
    place.write_text(text.replace("DefaultHoodieRecordPayload", "OverwriteWithLatestAvroPayload"))
    with refused(RefusedError, 2, "is a merge-on-read table in which the later commit wins"):
        write(quire.Table(tmp_path / "trips"), "upsert", FIRST)
    assert len(ours(quire.Table(tmp_path / "trips"))) == 3


def test_a_compaction_that_is_asked_for_during_a_round_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    """Its plan would not name the log, whose rows would be gone with the slice before it."""
    table = logged(tmp_path / "trips", partition_by=None)
    write(table, "upsert", FIRST)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    store, asked = connect(table.url), list[str]()
    (one,) = file_groups.newest(store, timeline.current(store), logs=True)
    monkeypatch.setattr(compaction, "groups", lambda data, where: [(one.partition, one.group)])

    def during(*given: Any, **more: Any) -> Any:
        found = write_files(*given, **more)
        if not asked:
            asked.append(names.next_instant([timeline.current(store).completed[-1].time], dt.datetime.now(dt.UTC)))
            (home(tmp_path / "trips") / f"{asked[0]}.compaction.requested").write_bytes(b"plan")
        return found

    write_files = closer.write.write
    monkeypatch.setattr(closer.write, "write", during)
    write(table, "upsert", frame(("a", "sf", 3, 3.0)))
    logs = [log for name in files(tmp_path / "trips")[1] if (log := names.log_file(name))]
    if version == 6:
        assert sorted((log.instant == asked[0], log.number) for log in logs) == [(False, 1), (True, 1)]
    else:
        assert sorted((log.instant > asked[0], log.number) for log in logs) == [(False, 1), (True, 1)]
    assert ours(table)["a"]["fare"] == 3.0


def test_files_are_processed_into_logs(tmp_path: Path) -> None:
    table = logged(tmp_path / "trips")
    write(table, "upsert", FIRST)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/one").write_text("a,sf,2\nd,sf,1")

    def rows(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
        lines = (line.split(",") for line in content.decode().splitlines())
        return [{"id": key, "city": city, "ts": int(ts), "fare": 7.0} for key, city, ts in lines]

    for _ in range(2):
        (tmp_path / "in/two").write_text("c,la,3")
        report = quire.process(
            tmp_path / "in", table, rows, schema="id string, city string, ts long, fare double", function_version="1", progress=False,
            spark=LOCAL,
        )  # fmt: skip
    assert report.files == 0, "each file once"
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 7.0, "b": 2.5, "c": 7.0, "d": 7.0}
    assert ours(table) == theirs(tmp_path / "trips")
    assert len(files(tmp_path / "trips")[1]) == 1, "the row of la; a new key in sf has its file written anew"
    assert quire.Ledger(table.url).summary().files == 2
    assert not quire.recover(table.url).published
