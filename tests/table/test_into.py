"""Files and topics into a table: rows and what was read are one commit, and a key that comes again updates its row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from test_writes import LOCAL, create, ours, theirs

import quire
from gathering import KEY, refused
from quire.errors import AllQuarantined, QuireError, RefusedError, UsageError
from quire.table.closer import TableCloser

SCHEMA = "id string, city string, ts long, fare double"


def rows(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    """The records of a file of JSON lines."""
    return [json.loads(line) for line in content.splitlines()]


def put(folder: Path, name: str, *records: tuple[str, str, int, float]) -> None:
    folder.mkdir(exist_ok=True)
    lines = [json.dumps(dict(zip(("id", "city", "ts", "fare"), record, strict=True))) for record in records]
    (folder / name).write_text("\n".join(lines) + "\n")


def process(source: Path, dest: Any, **more: Any) -> Any:
    return quire.process(source, dest, rows, schema=SCHEMA, spark=LOCAL, progress=False, **more)


def test_files_are_processed_into_a_table_once(tmp_path: Path) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0), ("b", "la", 1, 1.0))
    put(source, "2.json", ("c", "la", 1, 1.0), ("b", "la", 2, 2.0))
    first = process(source, table)
    assert (first.files, first.quarantined_count) == (2, 0)
    again = process(source, str(tmp_path / "trips"))
    assert (again.files, again.skipped) == (0, 2)
    put(source, "3.json", ("a", "sf", 3, 3.0), ("d", "sf", 3, 3.0))
    assert process(source, table).files == 1
    fares = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 3.0}
    assert {key: row["fare"] for key, row in ours(table).items()} == fares
    assert {key: row["fare"] for key, row in theirs(tmp_path / "trips").items()} == fares
    ledger = quire.Ledger(tmp_path / "trips")
    assert ledger.summary().files == 3
    assert ledger.verify(spark=LOCAL).ok


def test_a_report_names_the_instant_of_its_commit(tmp_path: Path) -> None:
    """By which the table is read as it was then, and what has changed since is asked for."""
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0), ("b", "la", 1, 1.0))
    first = process(source, table)
    put(source, "2.json", ("b", "la", 2, 2.0))
    second = process(source, table)
    ends = [instant.time for instant in table._timeline(table._store).completed]
    assert [first.instant, second.instant] == ends
    assert ours(table.as_of(first.instant))["b"]["fare"] == 1.0
    (change,) = table.changes(first.instant, spark=LOCAL).to_pylist()
    assert (change["op"], change["instant"], change["after"]["fare"]) == ("u", second.instant, 2.0)
    assert second.as_dict()["instant"] == second.instant
    for shown in (str(second), second._repr_html_()):
        assert "instant" in shown
        assert second.instant in shown
    put(source, "3.json", ("b", "la", 1, 9.0))
    for nothing in (process(source, table), process(source, table), process(source, tmp_path / "files")):
        assert (nothing.instant, "instant" in str(nothing), "instant" in nothing._repr_html_()) == ("", False, False)


def test_a_frame_and_files_go_into_one_table(tmp_path: Path) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0))
    process(source, table)
    table.upsert(pa.Table.from_pylist([{"id": "a", "city": "sf", "ts": 2, "fare": 2.0}]), spark=LOCAL, progress=False)
    put(source, "2.json", ("a", "sf", 3, 3.0))
    process(source, table, operation="upsert")
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 3.0}


def test_rows_without_a_key_are_refused_and_the_job_is_given_up(tmp_path: Path) -> None:
    """Nothing of the call is there, and the next one, with a repaired file, goes in."""
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0), (None, "sf", 1, 1.0))  # type: ignore[arg-type]
    for _ in range(2):
        with refused(RefusedError, 2, "no record key in id"):
            process(source, table)
    put(source, "1.json", ("a", "sf", 1, 1.0))
    assert process(source, table).files == 1
    assert set(ours(table)) == {"a"}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"operation": "merge"}, "unknown operation 'merge'"),
        ({"on_change": "reprocess"}, "rows of a table cannot be replaced by file"),
        ({"reduce": len}, "rows of a table go through no function together"),
        ({"format": "lines", "schema": None}, "a table takes rows with columns"),
        ({"layout": "directories"}, "a table takes rows with columns"),
        ({"committer": "rename_v2"}, "committer='rename_v2' shows files before their commit"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_with_a_table_are_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0))
    with refused(UsageError, 2, said):
        quire.process(source, table, rows, **{"schema": SCHEMA, "spark": LOCAL, "progress": False, **more})


def by_names(split: quire.Split, content: bytes) -> pa.Table:
    """The records with the columns that they have."""
    return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])


def lines(folder: Path, name: str, *records: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))


def named(source: Path, table: Any, **more: Any) -> Any:
    return quire.process(source, table, by_names, spark=LOCAL, progress=False, **more)


def test_a_new_column_of_a_functions_rows_becomes_one_of_the_table_and_is_null_where_later_ones_lack_it(tmp_path: Path) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    a = {"id": "a", "city": "sf", "ts": 1, "fare": 1.5}
    lines(source, "1.json", a)
    named(source, table)
    b = {"id": "b", "city": "sf", "ts": 2, "fare": 2, "note": "new"}  # a whole number where the table has another
    lines(source, "2.json", b)
    assert named(source, table).files == 1
    lines(source, "3.json", {"id": "c", "city": "la", "ts": 3, "fare": 3.5})
    assert named(source, table).files == 1
    found = {"a": {**a, "note": None}, "b": b, "c": {"id": "c", "city": "la", "ts": 3, "fare": 3.5, "note": None}}
    assert ours(table) == theirs(tmp_path / "trips") == found
    assert [str(kind) for kind in table.snapshot(spark=LOCAL).schema.types[-5:]] == ["string", "string", "int64", "double", "string"]


def test_a_column_that_the_table_got_after_the_plan_is_null_in_the_rows_of_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another call adds it while the tasks of this one run."""
    source, table = tmp_path / "in", create(tmp_path / "trips")
    lines(source, "1.json", {"id": "a", "city": "sf", "ts": 1, "fare": 1.5})
    close = TableCloser.close

    def later(*given: Any) -> Any:
        monkeypatch.setattr(TableCloser, "close", close)
        table.upsert(pa.Table.from_pylist([{"id": "b", "city": "la", "ts": 2, "fare": 2.5, "note": "x"}]), spark=LOCAL, progress=False)
        return close(*given)

    monkeypatch.setattr(TableCloser, "close", later)
    named(source, table)
    assert {key: row["note"] for key, row in ours(table).items()} == {"a": None, "b": "x"}


def test_values_that_are_all_null_have_the_tables_type_and_a_struct_with_fewer_fields_is_filled(tmp_path: Path) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    lines(source, "1.json", {"id": "a", "city": "sf", "ts": 1, "at": {"x": 1, "y": 2.5}})
    quire.process(source, table, rows, spark=LOCAL, progress=False)
    lines(source, "2.json", {"id": "b", "city": None, "ts": 2, "at": {"y": 1}})
    report = quire.process(source, table, rows, spark=LOCAL, progress=False)
    assert (report.files, report.quarantined_count) == (1, 0)
    assert ours(table)["b"] == {"id": "b", "city": None, "ts": 2, "at": {"x": None, "y": 1.0}}


@pytest.mark.parametrize(
    ("record", "more", "said"),
    [
        ({"id": "b", "city": "sf", "ts": 2, "fare": "two"}, {}, "the column 'fare' is string, and double in the table"),
        ({"city": "sf", "ts": 2, "fare": 2.5}, {}, "no column 'id', which is the record key of the table"),
        ({"id": "b", "city": "sf", "ts": 2}, {"schema": "id string, city string, ts long, at timestamp_ntz"}, "local timestamps"),
    ],
)  # fmt: skip
def test_rows_that_a_table_does_not_take_are_refused_in_one_line_before_anything_is_read(
    tmp_path: Path, record: dict[str, Any], more: dict[str, Any], said: str
) -> None:
    source, table = tmp_path / "in", create(tmp_path / "trips")
    lines(source, "1.json", {"id": "a", "city": "sf", "ts": 1, "fare": 1.5})
    named(source, table)
    lines(source, "2.json", record)
    with refused(QuireError, 2, said) as caught:
        named(source, table, **more)
    assert "table+" not in str(caught.value)
    assert set(ours(table)) == {"a"}
    assert quire.Ledger(tmp_path / "trips").summary().open_jobs == ()


def test_files_with_other_columns_are_quarantined_and_the_rest_goes_in(tmp_path: Path) -> None:
    source = tmp_path / "in"
    lines(source, "1.json", {"id": "a", "v": 1})
    lines(source, "2.json", {"id": "b", "w": "x"})
    table = quire.Table.create(tmp_path / "t", key="id")

    def columns(content: bytes, file: Any) -> pa.Table:
        return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])

    report = quire.consolidate(source, table, transform=columns, format="parquet", spark=LOCAL, progress=False)
    assert (report.files, report.quarantined_count) == (1, 1)
    assert set(ours(table)) == {"a"}


def test_what_is_wrong_with_a_call_is_said_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def starts(*_: Any, **__: Any) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr("quire.spark.session.session", starts)
    table = create(tmp_path / "trips")
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0))
    never = {"every": "1 s", "max_runs": 0}
    bad: list[dict[str, Any]] = [{"operation": "merge"}, {"every": "often"}, {"max_runs": 2}, never, {"progress": 3}]
    for more in bad:
        for call in (
            lambda more=more: quire.consolidate(tmp_path / "in", table, transform="raw", format="parquet", **more),
            lambda more=more: quire.process(tmp_path / "in", table, rows, schema=SCHEMA, **more),
        ):
            with pytest.raises(UsageError):
                call()


def test_an_operation_is_for_a_table(tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0))
    with refused(UsageError, 2, "operation= is for a table"):
        process(tmp_path / "in", tmp_path / "out", operation="upsert")


def test_files_with_a_transform_of_columns_are_gathered_into_a_table(tmp_path: Path) -> None:
    """As consolidate has it: path, modified and content are columns, and the path is the key."""
    source = tmp_path / "in"
    put(source, "1.json", ("a", "sf", 1, 1.0))
    table = quire.Table.create(tmp_path / "t", key="path", ordering="modified")
    report = quire.consolidate(source, table, transform="raw", format="parquet", spark=LOCAL, progress=False)
    assert (report.files, table.snapshot(spark=LOCAL).num_rows) == (1, 1)


def test_a_table_goes_on_from_a_checkpoint_of_its_ledger(tmp_path: Path) -> None:
    """The log before it need not be read again to know what is done, and which instants are quire's own."""
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json", ("a", "sf", 1, 1.0))
    process(source, table)
    table.upsert(pa.Table.from_pylist([{"id": "b", "city": "sf", "ts": 2, "fare": 2.0}]), spark=LOCAL, progress=False, batch="b")
    quire.Ledger(tmp_path / "trips").checkpoint(spark=LOCAL)
    put(source, "2.json", ("a", "sf", 3, 3.0))
    report = process(source, table)
    assert (report.files, report.skipped) == (1, 1)
    again = table.upsert(pa.Table.from_pylist([{"id": "b", "city": "sf", "ts": 9, "fare": 9.0}]), spark=LOCAL, progress=False, batch="b")
    assert again.again
    assert {key: row["fare"] for key, row in ours(table).items()} == {"a": 3.0, "b": 2.0}
    kinds = set(quire.Ledger(tmp_path / "trips").inspect.history().kind)
    assert kinds == {"commit", "published"}, "no instant of ours was taken for another program's"


def test_what_is_quarantined_is_done_and_changes_nothing_in_the_table(tmp_path: Path) -> None:
    """Also where it is all that there is, into a table that has no columns yet."""
    source, table = tmp_path / "in", create(tmp_path / "trips")
    put(source, "1.json")
    (source / "1.json").write_bytes(b"not JSON")
    with refused(AllQuarantined, 4, "1.json"):
        process(source, table).checked()
    put(source, "2.json", ("a", "sf", 1, 1.0))
    report = process(source, table)
    assert (report.files, report.skipped) == (1, 1)
    assert set(ours(table)) == set(theirs(tmp_path / "trips")) == {"a"}
    assert len(list((tmp_path / "trips/.hoodie").glob("*.commit"))) == 1, "nothing changed in the first call, so it has no instant"


def gathered(source: Any, dest: Any, **more: Any) -> Any:
    return quire.consolidate(source, dest, transform=by_path, format="parquet", spark=LOCAL, progress=False, **more)


def by_path(content: bytes, file: Any) -> pa.Table:
    return pa.Table.from_pylist([json.loads(line) for line in content.splitlines()])


@pytest.mark.parametrize("verb", [process, gathered])
def test_a_table_that_is_given_as_such_is_opened_with_its_own_options(tmp_path: Path, vault: str, verb: Any) -> None:
    """Those of the call for all stores are less than these, and those for its destination more."""
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0))
    table = create(vault, storage_options=KEY)  # type: ignore[arg-type]  # a URL
    assert verb(tmp_path / "in", table).files == 1
    put(tmp_path / "in", "2.json", ("b", "sf", 1, 1.0))
    assert verb(tmp_path / "in", table, storage_options={"key": "wrong", "other": "1"}).files == 1
    put(tmp_path / "in", "3.json", ("c", "sf", 1, 1.0))
    with refused(RefusedError, 2, "is not opened without its key"):
        verb(tmp_path / "in", table, dest_options={"key": "wrong"})
    with refused(RefusedError, 2, "is not opened without its key"):
        verb(tmp_path / "in", table.url)
    with refused(UsageError, 2, "dest_options is a dictionary"):
        verb(tmp_path / "in", table, dest_options="open sesame")
    assert verb(tmp_path / "in", quire.Table(table.url, storage_options=KEY), dest_options={"other": "1"}).files == 1
    assert set(ours(table)) == set("abc")


def test_a_table_as_of_an_instant_is_not_written(tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0))
    table = create(tmp_path / "trips")
    for verb in (process, gathered):
        with refused(UsageError, 2, "as of 20261122100000000 is read, not written"):
            verb(tmp_path / "in", table.as_of("20261122100000000"))
