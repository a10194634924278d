"""A destination as an Iceberg table: its readers see the ledger's rows after each call, catalogs follow, and what is wrong is one line."""

from __future__ import annotations

import datetime as dt
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import moto
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from catalog_steps import IN_PROD, exported, kept_in_step, known, prod
from exported import play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from iceberg_readers import database, seen, table
from iceberg_table import metadata
from pyiceberg.table import StaticTable
from test_delta_export import TYPES, objects
from test_retire import STEPS, History, Killed, kill, rows
from writes import write as write_rows

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.engine.exports import catalogs, iceberg, iceberg_types
from quire.errors import FormatError, QuireError, RefusedError, StorageError, UsageError
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

LOCAL = LocalRunner()
HERE: dict[str, Any] = {"transform": "raw", "format": "parquet", "exports": "iceberg"}


def contents(dest: Path) -> list[str]:
    return sorted(value.decode() for value in seen(dest).column("content").to_pylist()) if (dest / "_iceberg").exists() else []


def hint(dest: Path) -> Path:
    return dest / "_iceberg/metadata/version-hint.text"


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_any_history_readers_of_iceberg_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "TIER", 2)
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "iceberg", contents, steps, seed)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_very_many_histories_readers_of_iceberg_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "TIER", 2)
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "iceberg", contents, steps, seed)


# ---------------------------------------------------------------------------------------------------------------------- columns
MORE = pa.table(
    {
        "fixed": pa.array([b"abc", None], pa.binary(3)),
        "u32": pa.array([4_000_000_000, 1], pa.uint32()), "ms": pa.array([1, None], pa.timestamp("ms")),
        "code": pa.array(["a", "b"]).dictionary_encode(),
    }
)  # fmt: skip


def test_columns_of_all_types_come_back(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"x"}), tmp_path / "out"
    rows = TYPES
    for name in MORE.column_names:
        rows = rows.append_column(name, MORE.column(name))
    gather(source, dest, transform=lambda content, file: rows, format="parquet", function_version="1", exports="iceberg")
    assert seen(dest).to_pylist() == pq.read_table(next(dest.glob("*.parquet"))).to_pylist() == rows.to_pylist()
    (read,) = database().sql(f"select long, text, price, pair, map, list from iceberg_scan('{dest}/_iceberg') where long = 1").fetchall()
    assert read == (1, "é", TYPES["price"][0].as_py(), {"x": 1, "y": ["z"]}, {"a": 1}, [1, None])


@pytest.mark.parametrize(
    "kind", [pa.time32("ms"), pa.timestamp("ns"), pa.list_(pa.duration("us")), pa.decimal256(40, 2), pa.uint64()], ids=str
)
def test_a_type_that_iceberg_does_not_have_is_one_line(kind: pa.DataType) -> None:
    with refused(RefusedError, 2, "the column 'pair.t' of file:///out", "which Iceberg does not have"):
        iceberg_types.Schema(pa.schema([("pair", pa.struct([("t", kind)]))]), {}, "file:///out", {}, 0)


@pytest.mark.parametrize(
    ("columns", "made"),
    [
        ({"a": pa.struct([("b", pa.int64())]), "a.b": pa.int64()}, {}), ({"a": pa.list_(pa.int64())}, {"a.element": "string"}),
        ({"p": pa.struct([("a", pa.map_(pa.string(), pa.int64())), ("a.key", pa.int64())])}, {}),
    ],
    ids=str,
)  # fmt: skip
def test_two_columns_of_one_name_are_one_line(columns: dict[str, pa.DataType], made: dict[str, str]) -> None:
    with refused(RefusedError, 2, "file:///out has two columns that Iceberg calls ", "another name"):
        iceberg_types.Schema(pa.schema(columns.items()), made, "file:///out")


def test_partition_columns_are_typed_and_may_widen(tmp_path: Path) -> None:
    how, dest = HERE | {"layout": "directories"}, tmp_path / "out"
    gather(write(tmp_path / "in", {"k=1/dt=2026-11-26/a": b"a", "k=2/dt=2026-11-27/b": b"b"}), dest, **how)
    assert seen(dest).sort_by("k").select(["k", "dt"]).to_pylist() == [{"k": i, "dt": dt.date(2026, 11, 25 + i)} for i in (1, 2)]
    assert table(dest).scan(row_filter="k == 2").to_arrow()["content"].to_pylist() == [b"b"]
    assert len(list(table(dest).scan(row_filter="dt == '2026-11-26'").plan_files())) == 1, "the partitions say which files to read"
    gather(write(tmp_path / "in", {"k=a%2Fb/dt=__HIVE_DEFAULT_PARTITION__/c": b"c"}), dest, **how)
    assert seen(dest).sort_by("k").select(["k", "dt"]).to_pylist() == [
        {"k": "1", "dt": dt.date(2026, 11, 26)}, {"k": "2", "dt": dt.date(2026, 11, 27)}, {"k": "a/b", "dt": None},
    ]  # fmt: skip
    assert [field.name for spec in table(dest).specs().values() for field in spec.fields] == ["k", "dt"], "Java takes no older ones"
    gather(write(tmp_path / "in", {"k=1/dt=2026-11-27/d": b"d"}), dest, **how)
    gather(write(tmp_path / "in", {"k=1/dt=2026-11-26/a": b"new"}), dest, on_change="reprocess", **how)
    assert contents(dest) == rows(dest) == ["b", "c", "d", "new"]
    ids = [field.field_id for field in table(dest).schema().fields]
    assert len(set(ids)) == len(ids)
    report = gather(write(tmp_path / "in", {"k=1/e": b"e"}), dest, **how)
    assert report.exports == (f"iceberg: version {Ledger(dest).exports()['iceberg']}, behind the newest one",)
    with refused(RefusedError, 2, "does not lie in directories of the columns k, dt", "drop_export('iceberg')"):
        Ledger(dest).export("iceberg")


def test_columns_that_come_later_leave_the_partitions_as_they_were(tmp_path: Path) -> None:
    dest, first = tmp_path / "out", pa.record_batch({"id": [1], "k": ["a"]})
    write_rows(dest, [first], columns=first.schema, by=("k",))
    Ledger(dest).export("iceberg")
    before = table(dest).specs()
    more = pa.record_batch({"id": [2], "k": ["b"], "x": [1.5]})
    write_rows(dest, [more], columns=more.schema, by=("k",), schema_evolution="add")
    assert table(dest).specs() == before
    assert {row["id"]: (row["k"], row["x"]) for row in seen(dest).to_pylist()} == {1: ("a", None), 2: ("b", 1.5)}


def test_directories_of_partition_by_keep_their_values(tmp_path: Path) -> None:
    dest, values = tmp_path / "a b%20é", ["1", None, "x y%/é?#"]
    batch = pa.record_batch({"id": [1, 2, 3], "große 1": values})
    write_rows(dest, [batch], columns=batch.schema, by=("große 1",))
    Ledger(dest).export("iceberg")
    read = database().sql(f"""select id, "große 1" from iceberg_scan('{dest}/_iceberg')""").fetchall()
    assert dict(read) == dict(enumerate(values, 1))
    assert {row["id"]: row["große 1"] for row in seen(dest).to_pylist()} == dict(enumerate(values, 1))


# ------------------------------------------------------------------------------------------------------------------- what it costs
@pytest.mark.seldom
def test_manifests_are_merged_and_snapshots_of_appends_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "TIER", 3)
    monkeypatch.setattr(iceberg, "FILES", 20)
    monkeypatch.setattr(iceberg, "SNAPSHOTS", 12)
    source, dest, most = tmp_path / "in", tmp_path / "out", 0
    for i in range(40):
        gather(write(source, {f"f{i}": b"%d" % i}), dest, **HERE)
        now = table(dest)
        snapshot = now.current_snapshot()
        assert snapshot
        most = max(most, len(snapshot.manifests(now.io)))
    assert most <= 8
    assert contents(dest) == sorted(map(str, range(40)))
    assert len(now.metadata.snapshots) == 12
    assert [now.scan(snapshot_id=each.snapshot_id).to_arrow().num_rows for each in now.metadata.snapshots] == [*range(29, 41)]
    gather(write(source, {"f0": b"new"}), dest, on_change="reprocess", **HERE)
    assert len(table(dest).metadata.snapshots) == 1, "the older ones have a file that has left"
    Ledger(dest).compact(spark=LOCAL)
    now = table(dest)
    snapshot = now.current_snapshot()
    assert snapshot
    assert snapshot.summary
    assert snapshot.summary.operation.value == "replace"
    assert contents(dest) == rows(dest)


def test_increments_ask_the_store_for_as_much_however_long_the_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    for what in ("get", "get_range", "put", "put_if_absent", "walk", "scan", "stat"):
        real = getattr(LocalStore, what)

        def counted(store: LocalStore, *args: Any, _real: Any = real, **how: Any) -> Any:
            if args and str(args[0]).startswith("_iceberg"):
                asked.append(str(args[0]))
            return _real(store, *args, **how)

        monkeypatch.setattr(LocalStore, what, counted)
    costs = []
    for i in range(30):
        asked.clear()
        gather(write(tmp_path / "in", {f"f{i}": b"x"}), tmp_path / "out", **HERE)
        costs.append(len(asked))
    # The metadata and their list are read, a manifest, a list and metadata are put, and the hint is looked at, put and looked at again.
    assert sorted(costs[2:])[:25] == [12] * 25
    assert max(costs) < 40, "each tenth one makes ten manifests one"


# ---------------------------------------------------------------------------------------------------------------------- bad metadata
def test_a_commit_of_another_program_stops_the_export_and_superseded_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    said = metadata(objects(dest))[1]
    (dest / "_iceberg/metadata/v2.metadata.json").write_text(json.dumps(said | {"last-updated-ms": 1}))
    report = gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE)
    assert "behind the newest one" in report.exports[0]
    assert len(list(dest.glob("*.parquet"))) == 2, "what the table names is there"
    assert "the export iceberg of" in capsys.readouterr().err
    with refused(RefusedError, 2, "v2.metadata.json is a commit of another program", "drop_export"):
        Ledger(dest).export("iceberg")
    Ledger(dest).drop_export("iceberg")
    assert not (dest / "_iceberg").exists()
    assert len(list(dest.glob("*.parquet"))) == 1
    Ledger(dest).export("iceberg")
    assert contents(dest) == ["new"]


def test_empty_metadata_are_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    empty = dest / "_iceberg/metadata/v2.metadata.json"
    empty.touch()
    assert "behind" in gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE).exports[0]
    with refused(FormatError, 2, "v2.metadata.json is empty", "Delete it and call again"):
        Ledger(dest).export("iceberg")
    empty.unlink()
    Ledger(dest).export("iceberg")
    assert contents(dest) == ["a", "b"]


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", ["0", "-5", str(10**6), str(1 << 70), "x", None], ids=str)
def test_metadata_that_offer_a_version_that_never_was_do_not_get_into_the_log(tmp_path: Path, version: Any) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    first = dest / "_iceberg/metadata/v1.metadata.json"
    said = json.loads(first.read_text())
    said["snapshots"][0]["summary"]["quire.version"] = version
    first.write_text(json.dumps(said))
    assert "behind" in gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE).exports[0]
    with refused(QuireError, 2, "drop_export('iceberg')"):
        Ledger(dest).export("iceberg")
    assert len(list(dest.glob("*.parquet"))) == 2, "what it may offer stays"
    Ledger(dest).drop_export("iceberg")
    Ledger(dest).export("iceberg")
    assert contents(dest) == rows(dest) == ["new"]


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    "damage",
    [
        {"snapshots": []}, {"last-sequence-number": "1"}, {"location": 7}, {"properties": {}}, {"current-snapshot-id": 4},
        {"last-column-id": -1},
        {"properties": {"quire.number": "1", "quire.partitions": '[["k", "uuid"]]'}}, {"partition-specs": []}, {"schemas": None},
        {"snapshot-log": 3},
    ],
    ids=str,
)  # fmt: skip
def test_damaged_metadata_are_one_line(tmp_path: Path, damage: dict[str, Any]) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    first = dest / "_iceberg/metadata/v1.metadata.json"
    first.write_text(json.dumps(json.loads(first.read_text()) | damage))
    assert "behind" in gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE).exports[0]
    with refused(QuireError, 2, "drop_export('iceberg')"):
        Ledger(dest).export("iceberg")


def test_a_damaged_manifest_is_one_line(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    for path in (dest / "_iceberg/metadata").glob("*-m0.avro"):
        path.write_bytes(b"Obj\x01 nothing")
    assert "behind" in gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE).exports[0]
    with refused(FormatError, 2, "m0.avro is damaged", "drop_export('iceberg')"):
        Ledger(dest).export("iceberg")


def test_another_program_s_table_is_left_alone(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, transform="raw", format="parquet")
    (dest / "_iceberg/metadata").mkdir(parents=True)
    (dest / "_iceberg/metadata/v1.metadata.json").write_text('{"format-version": 2}')
    with refused(RefusedError, 2, "holds an Iceberg table of another program"):
        Ledger(dest).export("iceberg")
    assert (dest / "_iceberg/metadata/v1.metadata.json").read_text() == '{"format-version": 2}'
    assert Ledger(dest).exports() == {}


def test_a_hint_that_is_lost_or_old_is_written_again(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    for name in "abc":
        gather(write(tmp_path / "in", {name: name.encode()}), dest, **HERE)
    for wrong in (None, "1"):
        hint(dest).unlink() if wrong is None else hint(dest).write_text(wrong)
        Ledger(dest).export("iceberg")
        assert hint(dest).read_text() == "3"
        assert contents(dest) == ["a", "b", "c"]


def test_a_destination_that_was_moved_is_stated_anew(tmp_path: Path) -> None:
    dest, moved = tmp_path / "out", tmp_path / "moved"
    for name in "ab":
        gather(write(tmp_path / "in", {name: name.encode()}), dest, **HERE)
    dest.rename(moved)
    with pytest.raises(FileNotFoundError):
        contents(moved)
    Ledger(moved).export("iceberg")
    assert contents(moved) == ["a", "b"]
    gather(write(tmp_path / "in", {"c": b"c"}), moved, **HERE)
    assert contents(moved) == ["a", "b", "c"]


def test_readers_may_know_it_by_another_address(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, transform="raw", format="parquet")
    Ledger(dest).export("iceberg", location="s3://lake/out/")
    (said,) = metadata(objects(dest)).values()
    assert said["location"] == "s3://lake/out/_iceberg"
    gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE)
    with refused(UsageError, 2, "has this export already, with location='s3://lake/out/'", "drop_export"):
        Ledger(dest).export("iceberg", location="s3://lake/other")


def test_all_rows_may_go_and_come_again(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    Ledger(dest).forget(file=next(dest.glob("*.parquet")).name, spark=LOCAL)
    assert contents(dest) == []
    for name in "bc":
        gather(write(tmp_path / "in", {name: name.encode()}), dest, **HERE)
    assert contents(dest) == rows(dest)


# -------------------------------------------------------------------------------------------------------------------------- catalogs
@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """A catalog in SQLite that pyiceberg's configuration calls `prod`."""
    (tmp_path / "catalog").mkdir()
    return prod(monkeypatch, type="sql", uri=f"sqlite:///{tmp_path}/catalog/catalog.db", warehouse=f"file://{tmp_path}/catalog")


def test_a_catalog_is_kept_in_step(tmp_path: Path, catalog: Catalog) -> None:
    kept_in_step(tmp_path, catalog)


@pytest.mark.seldom
def test_a_catalog_of_glue_is_kept_in_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"glue.access-key-id": "a test's", "glue.secret-access-key": "a test's", "glue.region": "us-east-1"}
    with moto.mock_aws():
        kept_in_step(tmp_path, prod(monkeypatch, type="glue", warehouse=f"file://{tmp_path}", **keys))


@pytest.mark.seldom
def test_a_catalog_that_takes_no_tables_of_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"dynamodb.access-key-id": "a test's", "dynamodb.secret-access-key": "a test's", "dynamodb.region": "us-east-1"}
    with moto.mock_aws():
        prod(monkeypatch, type="dynamodb", **keys)
        with refused(RefusedError, 2, "the catalog prod is of a kind into which pyiceberg brings no tables of others"):
            exported(tmp_path)
    assert Ledger(tmp_path / "out").exports() == {}
    assert not (tmp_path / "out/_iceberg").exists()


@pytest.mark.parametrize("how", [{"type": "in-memory"}, {"type": "sql", "uri": "sqlite://"}], ids=str)
def test_a_catalog_in_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, str]) -> None:
    prod(monkeypatch, **how)
    with refused(UsageError, 2, "the catalog prod lies in this process's memory", "sqlite:////lake/catalog.db"):
        exported(tmp_path)
    assert Ledger(tmp_path / "out").exports() == {}


def test_a_catalog_that_is_away_holds_the_files_that_it_names_and_is_caught_up(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    how, dest = HERE | {"layout": "directories"}, exported(tmp_path)
    place = tmp_path / "catalog/catalog.db"
    place.rename(place.with_suffix(".away"))
    place.mkdir()
    for name, content in (("a", b"new"), ("c", b"c")):
        report = gather(write(tmp_path / "in", {f"k=1/{name}": content}), dest, on_change="reprocess", **how)
        assert "behind the newest one" in report.exports[0]
        assert "the catalog prod of Iceberg gives no answer about db.events (OperationalError" in capsys.readouterr().err
    with refused(QuireError, 3, "the catalog prod", "drop_export('iceberg', force=True)"):
        Ledger(dest).drop_export("iceberg")
    place.rmdir()
    place.with_suffix(".away").rename(place)
    assert known(catalog) == ["a", "b"], "what it names is there"
    report = gather(tmp_path / "in", dest, **how)
    assert "behind" not in report.exports[0]
    assert known(catalog) == rows(dest) == ["b", "c", "new"]
    assert len(list(dest.rglob("*.parquet"))) == 3


def test_a_driver_that_died_before_the_catalog_is_made_good(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = exported(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(catalogs, "bring", kill)
        with pytest.raises(Killed):
            gather(write(tmp_path / "in", {"k=1/a": b"new"}), dest, on_change="reprocess", **HERE, layout="directories")
    assert known(catalog) == ["a", "b"]
    quire.recover(dest)
    assert known(catalog) == rows(dest) == ["b", "new"]


def test_a_driver_that_died_while_it_registered_a_table_anew_is_made_good(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest, how = exported(tmp_path), HERE | {"layout": "directories"}
    with monkeypatch.context() as patch:
        patch.setattr(type(catalog), "register_table", kill)
        with pytest.raises(Killed):
            gather(write(tmp_path / "in", {"k=x/c": b"c"}), dest, **how)  # another type of the column
    assert catalog.list_tables("db") == []
    quire.recover(dest)
    assert known(catalog) == rows(dest) == ["a", "b", "c"]


def test_who_registers_a_table_anew_looks_whether_another_driver_has_gone_on(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest, how, register = exported(tmp_path), HERE | {"layout": "directories"}, type(catalog).register_table

    def slow(catalog: Catalog, name: str, address: str) -> Any:
        monkeypatch.setattr(type(catalog), "register_table", register)
        gather(write(tmp_path / "in", {"k=1/a": b"new"}), dest, on_change="reprocess", **how)  # another driver, meanwhile
        catalog.drop_table("db.events")
        return register(catalog, name, address)

    monkeypatch.setattr(type(catalog), "register_table", slow)
    gather(write(tmp_path / "in", {"k=x/c": b"c"}), dest, **how)
    assert known(catalog) == rows(dest) == ["b", "c", "new"]


def test_of_two_drivers_the_second_one_reads_what_the_first_has_done(
    tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest, loaded, other = exported(tmp_path), catalogs._loaded, [False]

    def slow(catalog: Any, name: str) -> Any:
        found = loaded(catalog, name)
        if not other[0]:
            other[0] = True
            quire.recover(dest)  # another driver, meanwhile
        return found

    monkeypatch.setattr(catalogs, "_loaded", slow)
    gather(write(tmp_path / "in", {"k=1/c": b"c"}), dest, **HERE, layout="directories")
    assert other == [True]
    assert known(catalog) == rows(dest) == ["a", "b", "c"]


def test_an_export_ends_without_a_catalog_that_is_gone_for_good(tmp_path: Path, catalog: Catalog) -> None:
    dest = exported(tmp_path)
    place = tmp_path / "catalog/catalog.db"
    place.rename(place.with_suffix(".gone"))
    place.mkdir()
    with refused(UsageError, 2, "force"):
        Ledger(dest).drop_export("iceberg", force="yes")  # type: ignore[arg-type]
    Ledger(dest).drop_export("iceberg", force=True)
    assert (Ledger(dest).exports(), (dest / "_iceberg").exists()) == ({}, False)
    gather(write(tmp_path / "in", {"k=1/a": b"new"}), dest, transform="raw", format="parquet", layout="directories", on_change="reprocess")
    assert len(list(dest.rglob("*.parquet"))) == 2, "nothing holds superseded files any more"


def test_a_table_that_took_the_place_of_ours_in_the_catalog_stays_there(tmp_path: Path, catalog: Catalog) -> None:
    dest = exported(tmp_path)
    catalog.drop_table("db.events")
    gather(write(tmp_path / "in2", {"a": b"other"}), tmp_path / "out2", transform="raw", format="parquet")
    Ledger(tmp_path / "out2").export("iceberg", **IN_PROD)
    Ledger(dest).drop_export("iceberg")
    assert known(catalog) == ["other"]


def test_commits_of_others_in_the_catalog_stop_the_export(tmp_path: Path, catalog: Catalog) -> None:
    dest = exported(tmp_path)
    there = catalog.load_table("db.events")
    there.append(there.scan().to_arrow())
    report = gather(write(tmp_path / "in", {"k=1/a": b"new"}), dest, on_change="reprocess", **HERE, layout="directories")
    assert "behind" in report.exports[0]
    with refused(RefusedError, 2, "the table db.events of the catalog prod is another one, or another program has committed to it"):
        Ledger(dest).export("iceberg")
    assert len(list(dest.rglob("*.parquet"))) >= 3, "what it names is there"


def test_a_table_of_another_program_in_the_catalog_is_left_alone(tmp_path: Path, catalog: Catalog) -> None:
    catalog.create_namespace("db")
    catalog.create_table("db.events", pa.schema([("x", pa.int64())]))
    with refused(RefusedError, 2, "the table db.events of the catalog prod is another one"):
        exported(tmp_path)
    assert Ledger(tmp_path / "out").exports() == {}
    exported(tmp_path, table="db.ours")
    gather(write(tmp_path / "in2", {"a": b"a"}), tmp_path / "out2", transform="raw", format="parquet")
    with refused(RefusedError, 2, "the table db.ours of the catalog prod is another one"):
        Ledger(tmp_path / "out2").export("iceberg", catalog="prod", table="db.ours")
    assert Ledger(tmp_path / "out2").exports() == {}


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"catalog": "nope"}, "pyiceberg's configuration has no usable catalog 'nope'"), ({"catalog": None}, "go together"),
        ({"catalog": "postgresql://me:sesame@host/db"}, "and not an address"),
        ({"table": None}, "go together"), ({"table": "events"}, "as catalog='prod', table='db.events'"),
        ({"table": 7}, "table takes a text"),
        ({"table": "x" * 2000}, "table takes a text"), ({"location": "lake"}, "location takes"),
        ({"location": "s3://key:secret@lake/x"}, "without a secret"),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_options_are_one_line(tmp_path: Path, catalog: Catalog, how: dict[str, Any], said: str) -> None:
    with refused(UsageError, 2, said):
        exported(tmp_path, **how)
    assert Ledger(tmp_path / "out").exports() == {}


def test_a_catalog_needs_pyiceberg(tmp_path: Path, catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("pyiceberg.catalog", "pyiceberg.exceptions"):
        monkeypatch.setitem(sys.modules, module, None)
    with refused(UsageError, 2, "pip install 'quire-spark[iceberg]'"):
        exported(tmp_path)
    options = {"catalog": "prod", "table": "db.events"}
    for verb in (lambda: catalogs.bring(options, lambda: ({}, "")), lambda: catalogs.drop(options, "")):
        with refused(UsageError, 2, "pip install 'quire-spark[iceberg]'"):
            verb()
    gather(write(tmp_path / "in", {"k=1/c": b"c"}), tmp_path / "out", **HERE, layout="directories")
    assert StaticTable.from_metadata(str(tmp_path / "out/_iceberg")).scan().to_arrow().num_rows == 3


def test_an_export_that_cannot_be_written_lags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest, put = tmp_path / "out", LocalStore.put
    gather(write(tmp_path / "in", {"a": b"a", "b": b"b"}), dest, **HERE)

    def away(store: LocalStore, name: str, data: bytes) -> None:
        if name.startswith("_iceberg"):
            raise StorageError("the disk is full")
        put(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put", away)
        report = gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE)
        assert "behind the newest one" in report.exports[0]
        assert contents(dest) == ["a", "b"], "what it offers is whole, and there"
    assert "behind" not in gather(tmp_path / "in", dest, **HERE).exports[0]
    assert contents(dest) == rows(dest) == ["b", "new"]
