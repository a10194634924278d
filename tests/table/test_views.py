"""Views of a table: its rows at an instant, as every reader of Hudi sees them, whoever has written it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jvm
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hudi import HudiReadOptions, HudiTableBuilder

import quire
from gathering import refused
from quire.errors import FormatError, RefusedError, UsageError
from quire.table import reading, timeline
from quire.table.format import config, names, schema
from quire.table.table import Table

LOCAL = quire.LocalRunner()
COPY_ON_WRITE = [name for name in jvm.names() if "-cow-v6_" in name or name == "v6_none"]
ROWS = pa.schema([("id", pa.int64()), ("name", pa.string())])
ONE, TWO, THREE = (f"2026112210300{i}000" for i in (1, 2, 3))
A, B = "aaaaaaaa-0000-0000-0000-000000000000-0", "bbbbbbbb-0000-0000-0000-000000000000-0"


def unpacked(name: str, folder: Path) -> Path:
    for path, content in jvm.files(name):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def same(one: pa.Table, other: pa.Table) -> bool:
    """Equal rows, in whatever order."""
    assert set(one.column_names) == set(other.column_names)
    lists = [sorted(str(row) for row in table.select(sorted(one.column_names)).to_pylist()) for table in (one, other)]
    return lists[0] == lists[1]


def theirs(folder: Path, at: str = "") -> pa.Table | None:
    """The same by hudi-rs; None: it sees no row."""
    options = HudiReadOptions().with_as_of_timestamp(at) if at else HudiReadOptions()
    found = HudiTableBuilder.from_base_uri(str(folder)).build().read(options)
    return pa.Table.from_batches(found) if found else None


# ------------------------------------------------------------------------------------------------------- tables of JVM Hudi
@pytest.mark.parametrize("name", COPY_ON_WRITE)
def test_a_table_of_jvm_hudi_reads_as_hudi_rs_reads_it_at_each_instant(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    found = table.snapshot(spark=LOCAL)
    expected = theirs(tmp_path)
    if expected is None:
        assert found.num_rows == 0
        return
    if not table.config.meta_fields:
        expected = expected.select(found.column_names)
    assert same(found, expected)
    for instant in timeline.read(quire.storage.connect(table.url)).completed[:-1]:
        then = theirs(tmp_path, instant.time)
        assert then is not None
        assert same(table.as_of(instant.time).snapshot(spark=LOCAL), then.select(found.column_names))


def test_there_are_tables_of_jvm_hudi() -> None:
    assert len(COPY_ON_WRITE) >= 7


def test_spark_gives_the_same_rows(tmp_path: Path, spark: Any) -> None:
    table = Table(unpacked("sample_table-cow-v6_complexkeygen_hivestyle", tmp_path))
    assert same(table.snapshot(spark=spark).toArrow(), table.snapshot(spark=LOCAL))
    some = table.snapshot(spark=spark, columns=["name", "id"], where="id > 2")
    assert some.columns == ["name", "id"]
    assert sorted(row.name for row in some.collect()) == ["Carol", "Diana"]
    odd = unpacked("sample_table-cow-v6_nonpartitioned", tmp_path / "a {glob} *")
    assert same(Table(odd).snapshot(spark=spark).toArrow(), Table(odd).snapshot(spark=LOCAL)), "a name that Spark takes for a glob"


# ------------------------------------------------------------------------------------------------------ tables made by hand
def created(folder: Path, **settings: Any) -> Path:
    (folder / ".hoodie").mkdir(parents=True)
    made = config.TableConfig(name="t", key=("id",), schema=schema.to_avro(ROWS, "t"), **settings)
    (folder / names.PROPERTIES).write_bytes(made.to_properties())
    return folder


def base(folder: Path, group: str, instant: str, rows: dict[int, str], token: str = "0-1-2") -> str:
    """A base file; its commit may come later, or never."""
    name = f"{group}_{token}_{instant}.parquet"
    meta = {column: [f"{key}" if "key" in column else instant for key in rows] for column in schema.META}
    pq.write_table(pa.table({**meta, "id": list(rows), "name": list(rows.values())}), folder / name)
    return name


def completed(folder: Path, instant: str, *files: str, action: str = "commit", **more: Any) -> None:
    stats = [{"fileId": name.partition("_")[0], "path": name, "partitionPath": ""} for name in files]
    said = {"partitionToWriteStats": {"": stats}, "compacted": False, "operationType": "UPSERT", **more}
    said["extraMetadata"] = {"schema": schema.to_avro(ROWS, "t")}
    for state in (f"{action}.requested", "inflight" if action == "commit" else f"{action}.inflight"):
        (folder / f".hoodie/{instant}.{state}").write_bytes(b"")
    (folder / f".hoodie/{instant}.{action}").write_text(json.dumps(said))


def rows(folder: Path, at: str = "") -> dict[int, str]:
    table = Table(folder).as_of(at) if at else Table(folder)
    found = table.snapshot(spark=LOCAL, columns=["id", "name"]).to_pydict()
    assert len(set(found["id"])) == len(found["id"]), "a key twice"
    return dict(zip(found["id"], found["name"], strict=True))


def test_the_newest_completed_slice_of_each_group_counts(tmp_path: Path) -> None:
    folder = created(tmp_path)
    assert rows(folder) == {}
    completed(folder, ONE, base(folder, A, ONE, {1: "a", 2: "b"}))
    assert rows(folder) == {1: "a", 2: "b"}
    completed(folder, TWO, base(folder, A, TWO, {1: "A", 2: "b"}), base(folder, B, TWO, {3: "c"}))
    base(folder, A, THREE, {1: "never"})
    assert rows(folder) == {1: "A", 2: "b", 3: "c"}, "a file without its instant is not part of the table"
    (folder / f".hoodie/{THREE}.commit.requested").write_bytes(b"")
    (folder / f".hoodie/{THREE}.inflight").write_bytes(b"")
    assert rows(folder) == {1: "A", 2: "b", 3: "c"}, "neither is one whose instant has not completed"
    assert [i.time for i in timeline.read(quire.storage.connect(f"file://{folder}")).pending] == [THREE]
    assert rows(folder, ONE) == rows(folder, f"{ONE[:-3]}999") == {1: "a", 2: "b"}
    assert rows(folder, "20261122103000999") == {}
    assert same(theirs(folder) or ROWS.empty_table(), Table(folder).snapshot(spark=LOCAL))


def test_a_file_older_than_the_timeline_counts_as_every_reader_takes_it(tmp_path: Path) -> None:
    """Its instant has been archived."""
    folder = created(tmp_path)
    base(folder, A, ONE, {1: "a"})
    assert rows(folder) == {}
    completed(folder, TWO, base(folder, B, TWO, {2: "b"}))
    assert rows(folder) == {1: "a", 2: "b"}
    assert rows(folder, ONE) == {1: "a"}


def test_a_group_that_was_replaced_ends(tmp_path: Path) -> None:
    folder = created(tmp_path)
    completed(folder, ONE, base(folder, A, ONE, {1: "a"}))
    completed(folder, TWO, base(folder, B, TWO, {1: "b"}), action="replacecommit", partitionToReplaceFileIds={"": [A]})
    assert rows(folder) == {1: "b"}
    assert rows(folder, ONE) == {1: "a"}


def test_a_column_that_came_later_is_null_in_older_files(tmp_path: Path) -> None:
    folder = created(tmp_path)
    name = f"{A}_0-1-2_{ONE}.parquet"
    pq.write_table(pa.table({**{column: ["x"] for column in schema.META}, "id": pa.array([1], pa.int32())}), folder / name)
    completed(folder, ONE, name)
    assert rows(folder) == {1: None}, "and a whole number that was smaller is as wide as it is now"


def test_what_no_reader_can_read_is_one_line(tmp_path: Path) -> None:
    with refused(UsageError, 2, "is not a table", "hoodie.properties"):
        Table(tmp_path / "nowhere")
    folder = created(tmp_path / "t")
    table = Table(folder)
    assert repr(table) == f"Table('file://{folder}': copy_on_write, key id)"
    completed(folder, ONE, base(folder, A, ONE, {1: "a"}))
    with refused(UsageError, 2, "no column 'nmae'", "name"):
        table.snapshot(spark=LOCAL, columns=["nmae"])
    with refused(UsageError, 2, "a list of names", "['id']"):
        table.snapshot(spark=LOCAL, columns="id")
    with refused(UsageError, 2, "where cannot be computed", "nmae"):
        table.snapshot(spark=LOCAL, where=pc.field("nmae") > 1)
    for wrong in ("yesterday", 7, "2026", "２０２６１１２２１０３００１"):
        with refused(UsageError, 2, "as_of takes an instant"):
            table.as_of(wrong)  # type: ignore[arg-type]
    with refused(UsageError, 2, "pyarrow.compute.field"):
        table.snapshot(spark=LOCAL, where="id > 1")
    other = base(folder, A, ONE, {1: "b"}, token="0-3-4")
    with refused(FormatError, 2, other, "one file group and instant"):
        table.snapshot(spark=LOCAL)
    (folder / other).unlink()
    (folder / f".hoodie/{ONE}.replacecommit").write_text("{}")
    with refused(FormatError, 2, "two writes at the instant"):
        table.snapshot(spark=LOCAL)
    (folder / f".hoodie/{ONE}.replacecommit").unlink()
    (folder / f".hoodie/{TWO}.commit").write_bytes(b"")
    with refused(FormatError, 2, f"{TWO}.commit", "empty"):
        table.snapshot(spark=LOCAL)
    (folder / f".hoodie/{TWO}.commit").unlink()
    (name,) = (path for path in folder.iterdir() if path.suffix == ".parquet")
    whole = name.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for damaged in (whole[:-9], b"", whole[:footer] + b"\xff" * (len(whole) - 8 - footer) + whole[-8:]):
        name.write_bytes(damaged)
        with refused(FormatError, 2, name.name, "cannot be read"):
            table.snapshot(spark=LOCAL)


def test_a_session_that_is_none_is_one_line(tmp_path: Path) -> None:
    table = Table(created(tmp_path / "t"))
    completed(tmp_path / "t", ONE, base(tmp_path / "t", A, ONE, {1: "a"}))
    for read in (lambda: table.snapshot(spark="local"), lambda: table.changes("00000000000000", spark="local")):
        with refused(UsageError, 2, "spark= takes a SparkSession, not 'local'"):
            read()


def test_a_missing_value_in_a_column_that_needs_one_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = created(tmp_path)
    name = f"{A}_0-1-2_{ONE}.parquet"
    pq.write_table(pa.table({**{column: ["x"] for column in schema.META}, "id": pa.array([1])}), folder / name)
    monkeypatch.setitem(globals(), "ROWS", pa.schema([ROWS.field("id"), ROWS.field("name").with_nullable(False)]))
    completed(folder, ONE, name)
    with refused(FormatError, 2, name, "cannot be read"):
        Table(folder).snapshot(spark=LOCAL)


def test_columns_that_spark_lacks_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.sql.pandas import types

    def lacks(*_: object) -> None:
        raise TypeError("no such type")

    folder = created(tmp_path)
    completed(folder, ONE, base(folder, A, ONE, {1: "a"}))
    monkeypatch.setattr(types, "from_arrow_schema", lacks)
    store, found, rows, wanted, merging = Table(folder)._newest(None)
    with refused(UsageError, 2, "Spark has no such columns", "LocalRunner"):
        reading.frame(object(), store, None, found, rows, wanted, None, merging)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"hoodie.table.version": "8"}, "version 8"),
        ({"hoodie.datasource.write.drop.partition.columns": "true"}, "partition columns"),
    ],
)
def test_a_table_that_quire_does_not_read_says_why(tmp_path: Path, setting: dict[str, str], said: str) -> None:
    """A null in place of a value, or a row without its newest update, would be worse."""
    folder = created(tmp_path)
    path = folder / names.PROPERTIES
    lines = [line for line in path.read_text().splitlines() if line.partition("=")[0] not in setting]
    path.write_text("\n".join([*lines, *(f"{key}={value}" for key, value in setting.items())]))
    with refused(RefusedError, 2, said):
        Table(folder).snapshot(spark=LOCAL)
