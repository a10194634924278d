"""Writing into a table: upserts, inserts and deletes against a dictionary, as quire and as hudi-rs read them."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import quire
from gathering import refused
from quire.commit import protocol
from quire.commit.entries import Commit, Foreign, Published
from quire.commit.log import Log
from quire.errors import RefusedError, UsageError
from quire.storage import connect
from quire.storage.local import LocalStore
from quire.table import closer
from quire.table.format import names
from quire.table.format.schema import META
from quire.table.table import Table

LOCAL = quire.LocalRunner()
COLUMNS = pa.schema([("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("fare", pa.float64())])
Rows = dict[str, dict[str, Any]]


USUAL: dict[str, Any] = {"key": "id", "partition_by": "city", "ordering": "ts"}


def create(folder: Path, **more: Any) -> Table:
    return Table.create(folder, **USUAL | more)


def home(folder: Path) -> Path:
    """Where a table has its timeline."""
    return folder / (names.TIMELINE if "hoodie.timeline.path" in (folder / names.PROPERTIES).read_text() else names.FOLDER)


def frame(*rows: tuple[Any, ...], schema: pa.Schema = COLUMNS) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def write(table: Table, operation: str, rows: pa.Table, **more: Any) -> Any:
    return getattr(table, operation)(rows, spark=LOCAL, progress=False, **more)


def ours(table: Table) -> Rows:
    """Key → row, by quire."""
    return _by_key(table.snapshot(spark=LOCAL).drop_columns(list(META)).to_pylist())


def theirs(folder: Path) -> Rows:
    """The same by hudi-rs."""
    batches = HudiTableBuilder.from_base_uri(str(folder)).build().read()
    return _by_key(row for batch in batches for row in batch.drop_columns(list(META)).to_pylist())


def _by_key(rows: Any) -> Rows:
    found = Rows()
    for row in rows:
        assert row["id"] not in found, f"the key {row['id']} is there twice"
        found[row["id"]] = row
    return found


def log_of(folder: Path) -> Log:
    return Log(connect(f"table+file://{folder}")).refresh()


def test_a_table_is_created_filled_updated_and_read(tmp_path: Path) -> None:
    """The first minutes of a user: three calls, and everybody reads the same."""
    table = create(tmp_path / "trips")
    first = write(table, "upsert", frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5)))
    assert (first.inserted, first.updated, first.deleted, first.data_files) == (3, 0, 0, 2)
    second = write(table, "upsert", frame(("b", "sf", 2, 9.0), ("d", "la", 2, 4.5), ("a", "sf", 0, 0.0)))
    assert (second.inserted, second.updated, second.stale) == (1, 1, 1)
    third = write(table, "delete", frame(("c", "la", 3, 0.0)))
    assert (third.deleted, third.inserted, third.updated) == (1, 0, 0)
    expected = {
        "a": {"id": "a", "city": "sf", "ts": 1, "fare": 1.5},
        "b": {"id": "b", "city": "sf", "ts": 2, "fare": 9.0},
        "d": {"id": "d", "city": "la", "ts": 2, "fare": 4.5},
    }
    assert ours(table) == ours(quire_table(tmp_path / "trips")) == theirs(tmp_path / "trips") == expected
    assert set(ours(table.as_of(first.instant))) == {"a", "b", "c"}
    assert first.instant < second.instant < third.instant
    outside = {path.name for path in (tmp_path / "trips").iterdir()}
    assert outside == {".hoodie", "city=sf", "city=la"}, "nothing of quire's lies beside the table"
    assert [type(e) for e in log_of(tmp_path / "trips").entries] == [Commit, Published] * 3


def quire_table(folder: Path) -> Table:
    return Table(folder)


def test_a_batch_is_committed_once_and_a_call_without_rows_changes_nothing(tmp_path: Path) -> None:
    table = create(tmp_path)
    rows = frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 2.0))
    first = write(table, "insert", rows, batch="2026-11-22")
    again = write(table, "insert", rows, batch="2026-11-22")
    assert (first.again, again.again, again.instant, again.inserted) == (False, True, first.instant, 2)
    assert len(ours(table)) == 2
    none = write(table, "upsert", COLUMNS.empty_table())
    assert (none.instant, none.data_files, len(ours(table))) == ("", 0, 2)


def test_a_batch_counts_once_where_two_calls_did_not_see_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has looked for open jobs before the other put its plan, and a commit between has moved the log on, so their jobs differ."""
    table, others, rows = create(tmp_path / "trips"), list[Any](), frame(("x", "sf", 1, 1.0))
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))

    def first(*given: Any) -> Any:
        if not others:
            others.append(None)
            write(table, "upsert", frame(("b", "sf", 1, 1.0)))
            others[0] = write(table, "bulk_insert", rows, batch="monday")
        return freeze(*given)

    freeze = protocol.freeze
    monkeypatch.setattr(protocol, "freeze", first)
    report = write(table, "bulk_insert", rows, batch="monday")
    assert (report.again, report.instant, report.inserted) == (True, others[0].instant, 1)
    assert table.snapshot(spark=LOCAL).column("id").to_pylist().count("x") == 1


def test_keys_twice_in_a_call_are_counted_and_the_last_one_wins(tmp_path: Path) -> None:
    table = create(tmp_path, ordering=None)
    report = write(table, "upsert", frame(("a", "sf", 5, 1.0), ("a", "sf", 1, 2.0), ("a", "sf", 3, 3.0)))
    assert (report.inserted, report.duplicates) == (1, 2)
    assert ours(table)["a"]["fare"] == 3.0


def test_pandas_frames_and_marks_of_deletion(tmp_path: Path) -> None:
    """As `_hoodie_is_deleted` is for Hudi."""
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 2.0)).to_pandas())
    marked = pd.DataFrame({"id": ["a", "b"], "city": "sf", "ts": [2, 2], "fare": [5.0, 6.0], "_hoodie_is_deleted": [True, False]})
    report = write(table, "upsert", marked)
    assert (report.deleted, report.updated) == (1, 1)
    assert {key: row["fare"] for key, row in ours(table).items()} == {"b": 6.0}


def test_a_new_column_is_null_in_rows_that_are_older(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    wider = COLUMNS.append(pa.field("tip", pa.int32()))
    write(table, "upsert", frame(("b", "la", 2, 2.0, 7), schema=wider))
    assert {key: row["tip"] for key, row in ours(table).items()} == {"a": None, "b": 7}
    with refused(RefusedError, 2, "'tip'"):
        write(table, "upsert", frame(("a", "sf", 3, 1.0)))


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_decimals_of_fewer_digits_are_stored_in_the_tables_type(tmp_path: Path, kind: str) -> None:
    """A frame that was read from text has only as many digits as its own values need."""
    table = create(tmp_path, type=kind)
    priced, narrow = (COLUMNS.set(3, pa.field("fare", pa.decimal128(digits, 2))) for digits in (12, 5))
    write(table, "upsert", frame(("a", "sf", 1, Decimal("1234567890.12")), ("b", "sf", 1, Decimal("1.00")), schema=priced))
    write(table, "upsert", frame(("b", "sf", 2, Decimal("999.99")), ("c", "la", 2, Decimal("0.01")), schema=narrow))
    assert table.snapshot(spark=LOCAL).schema.field("fare").type == pa.decimal128(12, 2)
    assert {key: str(row["fare"]) for key, row in ours(table).items()} == {"a": "1234567890.12", "b": "999.99", "c": "0.01"}
    assert theirs(tmp_path) == ours(table)


@pytest.mark.nth(3)
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (frame((None, "sf", 1, 1.0)), "no record key in id"),
        (frame(("", "sf", 1, 1.0)), "no record key in id"),
        (frame(("a", "sf", None, 1.0)), "ts"),
        (frame(("a", "x/y", 1, 1.0)), "'x/y'"),
        (frame(("a", "x" * 300, 1, 1.0)), "255 bytes"),
        (frame(("a", "sf", 1, 1.0)).drop_columns("id"), "no column 'id'"),
        (frame(("a", "sf", 1, 1.0)).set_column(3, "fare", pa.array(["much"])), "'fare'"),
        (pa.table({}), "no column"),
        ("rows", "rows"),
    ],
)  # fmt: skip
def test_bad_rows_are_refused_in_one_line_and_nothing_changes(tmp_path: Path, rows: Any, said: str) -> None:
    table = create(tmp_path)
    write(table, "upsert", frame(("z", "sf", 1, 1.0)))
    for named in ({}, {"batch": "one"}):
        with refused((RefusedError, UsageError), 2, said):
            write(table, "upsert", rows, **named)
    assert set(ours(table)) == set(theirs(tmp_path)) == {"z"}
    write(table, "upsert", frame(("y", "sf", 1, 1.0)), batch="one")
    assert set(ours(table)) == {"y", "z"}, "the repaired batch goes in"


def test_writing_beside_what_another_program_has_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instants that quire does not know are entered into its log, once, however long it takes to read them."""
    table, ticks = create(tmp_path), itertools.count()
    monkeypatch.setattr(protocol, "now", lambda: f"2026-11-22T10:30:{next(ticks):02d}.000+00:00")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    for path in sorted((tmp_path / ".hoodie/_quire/log").iterdir()):
        if path.is_file():
            path.unlink()  # the table as one that another program has written
    write(table, "upsert", frame(("b", "sf", 1, 1.0)))
    assert set(ours(table)) == {"a", "b"}
    assert [type(e) for e in log_of(tmp_path).entries] == [Foreign, Commit, Published]


def test_quire_does_not_write_beside_a_metadata_table_until_it_is_dropped(tmp_path: Path) -> None:
    """It would say of the table what was true before."""
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    properties = tmp_path / ".hoodie/hoodie.properties"
    properties.write_bytes(
        properties.read_bytes() + b"hoodie.table.metadata.partitions=files\nhoodie.table.metadata.partitions.inflight=\n"
    )
    (tmp_path / ".hoodie/metadata/files").mkdir(parents=True)
    (tmp_path / ".hoodie/metadata/files/some.hfile").write_bytes(b"stale")
    with refused(RefusedError, 2, "it has a metadata table (files)", "table.adopt() drops it"):
        write(Table(tmp_path), "upsert", frame(("b", "sf", 1, 1.0)))
    for _ in range(2):
        with refused(UsageError, 2, "is read, not written"):
            Table(tmp_path).as_of("20261122100000000").adopt()
        adopted = Table(tmp_path).adopt()
        assert not (tmp_path / ".hoodie/metadata").exists()
    write(adopted, "upsert", frame(("b", "sf", 1, 1.0)))
    assert set(ours(adopted)) == set(theirs(tmp_path)) == {"a", "b"}


@pytest.mark.parametrize("index", ["bloom", "simple"])
def test_a_key_in_several_files_is_updated_and_deleted_in_each(tmp_path: Path, index: str) -> None:
    """An insert looks for no key. One key that it brought again would else stop every upsert of it for ever."""
    table = create(tmp_path, index=index)
    for ts in (1, 2, 3):
        write(table, "bulk_insert", frame(("a", "sf", ts, 1.0), (f"b{ts}", "sf", ts, 1.0), ("c", "sf", ts, 1.0)))

    def fares(key: str) -> list[float]:
        batches = HudiTableBuilder.from_base_uri(str(tmp_path)).build().read()
        seen = [row["fare"] for batch in batches for row in batch.to_pylist() if row["id"] == key]
        assert sorted(seen) == sorted(row["fare"] for row in table.snapshot(spark=LOCAL).to_pylist() if row["id"] == key)
        return seen

    report = write(table, "upsert", frame(("a", "sf", 9, 9.0), ("b2", "sf", 9, 2.0), ("new", "sf", 9, 5.0)))
    assert (report.updated, report.inserted, report.stale) == (4, 1, 0)
    assert [fares(key) for key in ("a", "b1", "b2", "c", "new")] == [[9.0] * 3, [1.0], [2.0], [1.0] * 3, [5.0]]
    report = write(table, "delete", frame(("c", "sf", 9, 0.0), ("b1", "sf", 9, 0.0), ("none", "sf", 9, 0.0)))
    assert (report.deleted, report.stale) == (4, 1)
    assert [fares(key) for key in ("a", "b1", "b2", "c", "new")] == [[9.0] * 3, [], [2.0], [], [5.0]]


def test_a_batch_of_upserts_and_one_of_deletes_may_have_one_name(tmp_path: Path) -> None:
    """A day's deletes that were taken for its upserts, done before, would be lost without a word."""
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)), batch="monday")
    report = write(table, "delete", frame(("a", "sf", 2, 1.0)), batch="monday")
    assert (report.again, report.deleted, set(ours(table))) == (False, 1, {"b"})
    assert write(table, "delete", frame(("a", "sf", 2, 1.0)), batch="monday").again


def test_before_its_first_commit_a_table_has_nothing_to_read(tmp_path: Path) -> None:
    table = create(tmp_path)
    with refused(UsageError, 2, "nothing has been written yet"):
        table.snapshot(spark=LOCAL, columns=["id"])
    first = write(table, "upsert", frame(("a", "sf", 5, 1.0)))
    with refused(UsageError, 2, "nothing had been written by 20260101000000000"):
        table.as_of("20260101000000000").snapshot(spark=LOCAL, columns=["id"])
    assert table.as_of(first.instant).snapshot(spark=LOCAL, columns=["id"]).to_pylist() == [{"id": "a"}]


def test_a_call_that_changes_nothing_says_so(tmp_path: Path) -> None:
    table = create(tmp_path)
    write(table, "upsert", frame(("a", "sf", 5, 1.0)))
    report = write(table, "delete", frame(("nobody", "sf", 9, 1.0)))
    assert (report.instant, report.deleted, report.stale) == ("", 0, 1)
    assert "nothing changed in the table" in str(report)


def test_a_table_is_not_created_where_quire_keeps_another_destination(tmp_path: Path) -> None:
    """Its ledger would be hidden by that of the table."""
    (tmp_path / "_quire/log").mkdir(parents=True)
    with refused(RefusedError, 2, "is a destination of quire's", "Choose another place"):
        create(tmp_path)
    assert not (tmp_path / ".hoodie").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"key": ["a", "a"]}, "key[1] is 'a', as key[0] is: name each column once"),
        ({"key": []}, "key is an empty list: name a column."),
        ({"key": [1]}, "key[0] is 1, and not text"),
        ({"key": 1}, "key takes a column's name, or a list of them, and not 1"),
        ({"key": b"id"}, "key takes a column's name, or a list of them"),
        ({"key": ""}, "key is empty: give the column's name."),
        ({"key": ["id", " "]}, "key[1] is empty: give the column's name."),
        ({"key": "a,b"}, "key is 'a,b': Hudi takes no name with a comma"),
        ({"partition_by": ""}, "partition_by is empty: give the column's name, or leave it out for a table without partitions."),
        ({"partition_by": []}, "partition_by is an empty list: name a column, or leave it out for a table without partitions."),
        ({"partition_by": ["city", "city"]}, "partition_by[1] is 'city', as partition_by[0] is"),
        ({"partition_by": ["city", None]}, "partition_by[1] is None, and not text"),
        ({"ordering": ["ts"]}, "ordering takes one column's name, and not a list"),
        ({"ordering": ""}, "ordering is empty"),
        ({"type": "merge_on_read", "ordering": None}, "a merge-on-read table needs ordering=, a column whose greatest value wins"),
    ],
)
def test_settings_that_make_no_table_say_which_one_and_where(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with refused(UsageError, 2, said):
        create(tmp_path / "trips", **settings)
    assert not (tmp_path / "trips").exists()


def test_progress_tells_how_many_of_the_files_are_written(tmp_path: Path) -> None:
    table, steps = create(tmp_path / "trips"), list[quire.ProgressEvent]()
    cities = frame(*((f"k{i}", f"c{i % 5}", 1, 1.0) for i in range(50)))
    table.upsert(cities, spark=LOCAL, progress=steps.append)
    writing = [(step.done, step.total, step.unit) for step in steps if step.phase == "writing"]
    assert sorted(set(writing)) == [(done, 5, "file") for done in range(6)]
    assert writing == sorted(writing)
    sorting = [step for step in steps if step.phase == "sorting"]
    assert (sorting[-1].done, sorting[-1].unit) == (50, "row")
    assert steps.index(sorting[-1]) < [step.phase for step in steps].index("writing")


def test_a_report_is_one_line_of_numbers(tmp_path: Path) -> None:
    """A notebook compares it: no byte that the digits of an instant change, and seconds with one digit."""
    table = create(tmp_path / "trips")
    rows = frame(*((f"k{i}", "sf", 1, 1.0) for i in range(1200)), ("k0", "sf", 2, 2.0))
    counts = r"inserted=1,200, updated=0, deleted=0, stale=0, duplicates=1, data_files=1, seconds=\d+\.\d, version=2\)"
    assert re.fullmatch(r"TableReport\(upsert, " + counts, repr(write(table, "upsert", rows, batch="monday")))
    assert re.fullmatch(r"TableReport\(upsert, again=True, " + counts, repr(write(table, "upsert", rows, batch="monday")))


def together(monkeypatch: pytest.MonkeyPatch, *calls: Callable[[], Any]) -> list[Any]:
    """Results of calls that are in their closing runs at once: they have drawn their instants in order, and end so."""
    write, arrived, let = closer._Rows.write, [threading.Event() for _ in calls], [threading.Event() for _ in calls]
    found: list[Any] = [None] * len(calls)

    def waiting(self: Any, view: Any, closing: Any) -> Any:
        made, i = write(self, view, closing), int(threading.current_thread().name)
        arrived[i].set()
        assert let[i].wait(60)
        return made

    def call(i: int) -> None:
        found[i] = calls[i]()

    monkeypatch.setattr(closer._Rows, "write", waiting)
    threads = [threading.Thread(target=call, args=(i,), name=str(i)) for i in range(len(calls))]
    for thread, event in zip(threads, arrived, strict=True):
        thread.start()
        assert event.wait(60)
    for thread, event in zip(threads, let, strict=True):
        event.set()
        thread.join(60)
    monkeypatch.undo()
    return found


def test_a_column_that_came_meanwhile_stays_though_a_later_instant_was_computed_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    wide = frame(("a", "sf", 2, 2.0)).append_column("more", [["x"]])
    none = pa.array([None], pa.string())
    first, second = together(
        monkeypatch,
        lambda: write(Table(tmp_path / "t"), "upsert", wide),
        lambda: write(Table(tmp_path / "t"), "upsert", frame(("b", "la", 2, 2.0)).append_column("more", none)),
    )
    assert first.instant < second.instant
    assert ours(table)["a"]["more"] == "x"
    other = frame(("b", "la", 3, 3.0)).append_column("more", none)
    first, second = together(
        monkeypatch,
        lambda: write(Table(tmp_path / "t"), "upsert", frame(("a", "sf", 3, 3.0)).append_column("more", [["y"]]).append_column("n", [[7]])),
        lambda: table.delete(frame(("b", "la", 3, 3.0)), spark=LOCAL, progress=False),
    )
    assert first.instant < second.instant
    assert ours(table) == theirs(tmp_path / "t")
    assert (ours(table)["a"]["n"], ours(table)["a"]["more"]) == (7, "y")
    with pytest.raises(RefusedError, match="no column 'n'"):
        write(table, "upsert", other)


def test_two_first_writes_of_the_same_columns_are_computed_once_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rounds = create(tmp_path / "t"), list[str]()
    real = closer._Rows.say
    monkeypatch.setattr(closer._Rows, "say", lambda self, *args: (rounds.append("round"), real(self, *args))[1])
    with pytest.MonkeyPatch.context() as patch:
        together(
            patch,
            lambda: write(Table(tmp_path / "t"), "bulk_insert", frame(("a", "sf", 1, 1.0))),
            lambda: write(Table(tmp_path / "t"), "bulk_insert", frame(("b", "la", 1, 1.0))),
        )
    assert (len(rounds), set(ours(table))) == (2, {"a", "b"})


def test_the_partitions_of_a_commit_are_looked_at_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a request: one after the other, those of some thousand partitions would keep an instant back for minutes."""
    table, two, stat = create(tmp_path / "t"), threading.Barrier(2), LocalStore.stat

    def meeting(store: LocalStore, name: str) -> Any:
        if name.endswith(names.PARTITION_METADATA):
            two.wait(30)
        return stat(store, name)

    monkeypatch.setattr(LocalStore, "stat", meeting)
    write(table, "upsert", frame(*((f"k{i}", f"c{i}", 1, 1.0) for i in range(4))))
    assert len(ours(table)) == len(theirs(tmp_path / "t")) == 4
