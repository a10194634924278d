"""A destination as a Delta table: readers of Delta see the ledger's rows after each call, and what is wrong is one line."""

from __future__ import annotations

import datetime as dt
import decimal
import json
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import iceberg_table
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from delta_log import commits, offered
from exported import play
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_retire import STEPS, History, Killed, kill, rows
from writes import write as write_rows

import quire
from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.engine.exports import delta, delta_types
from quire.errors import FormatError, RefusedError, StorageError, UsageError
from quire.formats import partition_columns
from quire.storage.local import LocalStore

LOCAL = LocalRunner()
HERE: dict[str, Any] = {"transform": "raw", "format": "parquet", "exports": "delta"}


def objects(dest: Path) -> dict[str, bytes]:
    return {str(path.relative_to(dest)): path.read_bytes() for path in dest.rglob("*") if path.is_file()}


def seen(dest: Path) -> pa.Table:
    """The rows that a reader of Delta finds; two readers agree on how many there are."""
    table = deltalake.DeltaTable(str(dest)).to_pyarrow_table()
    assert sum(json.loads(said["stats"])["numRecords"] for said in offered(objects(dest)).values()) == table.num_rows
    return table


def contents(dest: Path) -> list[str]:
    return sorted(value.decode() for value in seen(dest).column("content").to_pylist())


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_any_history_readers_of_delta_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "EVERY", 3)
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "delta", contents, steps, seed)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, seed=st.integers(0, 4))
def test_after_very_many_histories_readers_of_delta_agree_with_the_ledger(
    steps: list[str], seed: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta, "EVERY", 3)
    play(History(tmp_path_factory.mktemp("history"), monkeypatch), "delta", contents, steps, seed)


NOON = dt.datetime(2026, 11, 26, 12)  # noqa: DTZ001 (of no zone)
TYPES = pa.table(
    {
        "long": pa.array([1, None], pa.int64()), "small": pa.array([1, 2], pa.int8()), "u": pa.array([200, 1], pa.uint8()),
        "text": ["é", None], "large": pa.array(["a", "b"], pa.large_string()), "bytes": [b"x", b""], "yes": [True, None],
        "day": [dt.date(2026, 11, 26), None], "price": [decimal.Decimal("1.50"), None], "real": pa.array([0.5, None], pa.float32()),
        "at": pa.array([dt.datetime(2026, 11, 26, 10, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "wall": pa.array([NOON, None], pa.timestamp("us")),
        "list": [[1, None], None], "pair": [{"x": 1, "y": ["z"]}, None],
        "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
)  # fmt: skip


def test_columns_of_all_types_come_back(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"x"}), tmp_path / "out"
    gather(source, dest, transform=lambda content, file: TYPES, format="parquet", function_version="1", exports="delta")
    assert seen(dest).to_pylist() == pq.read_table(next(dest.glob("*.parquet"))).to_pylist()
    (protocol,) = [a["protocol"] for a in commits(objects(dest))[0] if "protocol" in a]
    assert (protocol["minReaderVersion"], protocol["readerFeatures"]) == (3, ["timestampNtz"])


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.timestamp("ns"), pa.list_(pa.duration("us")), pa.decimal256(40, 2)], ids=str)
def test_a_type_that_delta_does_not_have_is_one_line(kind: pa.DataType) -> None:
    with refused(RefusedError, 2, "the column 'pair.t' of file:///out", "which Delta does not have"):
        delta_types.fields(pa.schema([("pair", pa.struct([("t", kind)]))]), {}, "file:///out")


def test_partition_columns_are_typed_and_may_widen(tmp_path: Path) -> None:
    how = HERE | {"layout": "directories"}
    gather(write(tmp_path / "in", {"k=1/dt=2026-11-26/a": b"a", "k=2/dt=2026-11-27/b": b"b"}), tmp_path / "out", **how)
    found = seen(tmp_path / "out").sort_by("k")
    assert found.select(["k", "dt"]).to_pylist() == [{"k": i, "dt": dt.date(2026, 11, 25 + i)} for i in (1, 2)]
    gather(write(tmp_path / "in", {"k=a%2Fb/dt=__HIVE_DEFAULT_PARTITION__/c": b"c"}), tmp_path / "out", **how)
    found = seen(tmp_path / "out").sort_by("k")
    assert found.select(["k", "dt"]).to_pylist() == [
        {"k": "1", "dt": dt.date(2026, 11, 26)}, {"k": "2", "dt": dt.date(2026, 11, 27)}, {"k": "a/b", "dt": None},
    ]  # fmt: skip
    report = gather(write(tmp_path / "in", {"k=1/d": b"d"}), tmp_path / "out", **how)
    assert report.exports == (f"delta: version {Ledger(tmp_path / 'out').exports()['delta']}, behind the newest one",)
    assert seen(tmp_path / "out").num_rows == 3
    with refused(RefusedError, 2, "does not lie in directories of the columns k, dt", "drop_export"):
        Ledger(tmp_path / "out").export("delta")


def test_directories_of_partition_by_keep_their_type(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1, 2, 3], "k": ["1", "", "x y%/é"]})
    write_rows(tmp_path, [batch], columns=batch.schema, by=("k",))
    Ledger(tmp_path).export("delta")
    found = {row["id"]: row["k"] for row in seen(tmp_path).to_pylist()}
    assert found == {1: "1", 2: None, 3: "x y%/é"}, "Delta knows no empty text in a partition"


def test_checkpoints_stand_for_all_commits_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "EVERY", 4)
    for i in range(11):
        gather(write(tmp_path / "in", {f"k={i % 3}/f{i}": b"%d" % i}), tmp_path / "out", layout="directories", **HERE)
    Ledger(tmp_path / "out").compact(spark=LOCAL)
    log = tmp_path / "out/_delta_log"
    assert json.loads((log / "_last_checkpoint").read_text())["version"] == 8
    for number in range(8):
        (log / f"{number:020}.json").unlink()
    found = deltalake.DeltaTable(str(tmp_path / "out"))
    assert found.version() == 11
    assert sorted(map(bytes.decode, found.to_pyarrow_table().column("content").to_pylist())) == sorted(map(str, range(11)))


def test_others_cannot_write(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", {"a": b"old"}), tmp_path / "out", **HERE)
    gather(write(tmp_path / "in", {"a": b"a"}), tmp_path / "out", on_change="reprocess", **HERE)
    table = deltalake.DeltaTable(str(tmp_path / "out"))
    with pytest.raises(deltalake.exceptions.DeltaError, match="quireExport"):
        deltalake.write_deltalake(table, table.to_pyarrow_table(), mode="append")
    with pytest.raises(deltalake.exceptions.DeltaError, match="quireExport"):
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert contents(tmp_path / "out") == ["a"]


def test_a_commit_of_another_program_stops_the_export_and_superseded_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    (dest / "_delta_log" / f"{1:020}.json").write_text('{"commitInfo": {"engineInfo": "another"}}\n')
    report = gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE)
    assert "behind the newest one" in report.exports[0]
    assert "the export delta has not come so far" in str(report)
    assert len(list(dest.glob("*.parquet"))) == 2, "what the Delta table names is there"
    assert "the export delta of" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="ends it"):
        assert quire.recover(dest).version
    with refused(RefusedError, 2, f"{1:020}.json is a commit of another program", "drop_export"):
        Ledger(dest).export("delta")
    Ledger(dest).drop_export("delta")
    assert not (dest / "_delta_log").exists()
    assert len(list(dest.glob("*.parquet"))) == 1
    Ledger(dest).export("delta")
    assert contents(dest) == ["new"]


def test_an_empty_commit_is_one_line_and_nothing_is_lost(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    empty = dest / "_delta_log" / f"{1:020}.json"
    empty.touch()
    assert "behind" in gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE).exports[0]
    with refused(FormatError, 2, f"{1:020}.json is empty", "Delete it and call again"):
        Ledger(dest).export("delta")
    empty.unlink()
    Ledger(dest).export("delta")
    assert contents(dest) == ["a", "b"]


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [0, -5, 10**6, 1 << 70, "x"], ids=str)
def test_a_commit_that_offers_a_version_that_never_was_does_not_get_into_the_log(tmp_path: Path, version: Any) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    first = dest / "_delta_log" / f"{0:020}.json"
    info, *rest = map(json.loads, first.read_text().splitlines())
    info["commitInfo"]["quire"]["version"] = version
    first.write_text("".join(json.dumps(action) + "\n" for action in (info, *rest)))
    assert "behind" in gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE).exports[0]
    with refused(quire.QuireError, 2, "drop_export('delta')"):
        Ledger(dest).export("delta")
    assert len(list(dest.glob("*.parquet"))) == 2, "what it may offer stays"
    Ledger(dest).drop_export("delta")
    Ledger(dest).export("delta")
    assert contents(dest) == rows(dest) == ["new"]


def test_an_export_that_is_refused_at_once_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, transform="raw", format="parquet")

    def refusing(*_: Any) -> Any:
        raise RefusedError("no such type")

    with monkeypatch.context() as patch:
        patch.setattr(delta_types, "fields", refusing)
        with refused(RefusedError, 2, "no such type"):
            Ledger(dest).export("delta")
    assert Ledger(dest).exports() == {}
    gather(write(tmp_path / "in", {"a": b"new"}), dest, transform="raw", format="parquet", on_change="reprocess")
    assert len(list(dest.glob("*.parquet"))) == 1


def test_a_damaged_data_file_is_one_line(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, transform="raw", format="parquet")
    next(dest.glob("*.parquet")).write_bytes(b"PAR1 nothing PAR1")
    with refused(FormatError, 2, "is damaged (ArrowInvalid)"):
        Ledger(dest).export("delta")


def test_a_call_that_died_while_it_ended_an_export_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    with monkeypatch.context() as patch:
        patch.setattr(delta, "remove", kill)
        with pytest.raises(Killed):
            Ledger(dest).drop_export("delta")
    assert (Ledger(dest).exports(), (dest / "_delta_log").exists()) == ({}, True)
    Ledger(dest).drop_export("delta")
    assert not (dest / "_delta_log").exists()
    with refused(UsageError, 2, "has no export 'delta'"):
        Ledger(dest).drop_export("delta")


@pytest.mark.parametrize(
    ("value", "kind", "text"), [("5", pa.uint64(), "5"), ("+5", pa.uint8(), "5"), ("2026-11-26", pa.date64(), "2026-11-26")]
)
def test_values_of_all_types_that_make_directories_have_a_text(value: str, kind: pa.DataType, text: str) -> None:
    named = delta_types.of(partition_columns.for_spark(kind), "k", "")
    assert delta._add(f"k={value}/f", 1, 1, {"k": named}, change=True)["partitionValues"] == {"k": text}


def test_another_program_s_log_is_left_alone(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, transform="raw", format="parquet")
    deltalake.write_deltalake(str(tmp_path / "other"), pa.table({"x": [1]}))
    (tmp_path / "other/_delta_log").rename(dest / "_delta_log")
    before = objects(dest)
    with refused(RefusedError, 2, "holds a Delta table of another program"):
        Ledger(dest).export("delta")
    assert {n: d for n, d in objects(dest).items() if n.startswith("_delta_log")} == {n: d for n, d in before.items() if "_delta_log" in n}
    assert Ledger(dest).exports() == {}


def test_an_export_that_cannot_be_written_lags_and_the_next_call_brings_it_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest, put = tmp_path / "out", LocalStore.put_if_absent
    gather(write(tmp_path / "in", {"a": b"a", "b": b"b"}), dest, **HERE)

    def away(store: LocalStore, name: str, data: bytes) -> bool:
        if name.startswith("_delta_log"):
            raise StorageError("the disk is full")
        return put(store, name, data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "put_if_absent", away)
        report = gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE)
        assert report.files == 1
        assert "behind the newest one" in report.exports[0]
        assert contents(dest) == ["a", "b"], "what it offers is whole, and there"
        for content in (b"came", b"went"):
            gather(write(tmp_path / "in", {"c": content}), dest, on_change="reprocess", **HERE)
    report = gather(tmp_path / "in", dest, **HERE)
    assert report.files == 0
    assert "behind" not in report.exports[0]
    assert contents(dest) == rows(dest) == ["b", "new", "went"], "and nothing of what came and went meanwhile"
    assert len(list(dest.glob("*.parquet"))) == 3


def test_rows_that_came_before_a_compaction_and_were_not_offered_are_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call dies before the export, and the next one is a compaction: who follows the table hears of the rows."""
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    Ledger(dest).export("iceberg")
    with monkeypatch.context() as patch:
        patch.setattr(delta, "bring", lambda *_, **__: kill())
        with pytest.raises(Killed):
            gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE)
    Ledger(dest).compact(spark=LOCAL, progress=False)
    assert contents(dest) == ["a", "b"]
    last = commits(objects(dest))[-1]
    assert [action["add"]["dataChange"] for action in last if "add" in action] == [True]
    assert [action["remove"]["dataChange"] for action in last if "remove" in action] == [True]
    said = iceberg_table.metadata(objects(dest))[2]
    assert said["snapshots"][-1]["summary"]["operation"] == "overwrite"


def test_rows_that_were_compacted_and_forgotten_before_they_were_offered_are_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = tmp_path / "out"
    for name in "ab":
        gather(write(tmp_path / "in", {name: name.encode()}), dest, **HERE)

    def away(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(delta, "bring", away)
        Ledger(dest).compact(spark=LOCAL, progress=False)
    Ledger(dest).forget(tmp_path / "in" / "a", spark=LOCAL, progress=False)
    assert contents(dest) == ["b"]
    last = commits(objects(dest))[-1]
    assert [action["add"]["dataChange"] for action in last if "add" in action] == [True]
    assert [action["remove"]["dataChange"] for action in last if "remove" in action] == [True, True]


def test_a_log_that_was_deleted_is_made_anew_and_a_gap_is_one_line(tmp_path: Path) -> None:
    dest = tmp_path / "out"
    for i in range(3):
        gather(write(tmp_path / "in", {f"f{i}": b"%d" % i}), dest, **HERE)
    for path in (dest / "_delta_log").iterdir():
        path.unlink()
    gather(write(tmp_path / "in", {"f3": b"3"}), dest, **HERE)
    assert contents(dest) == ["0", "1", "2", "3"]
    gather(write(tmp_path / "in", {"f4": b"4"}), dest, **HERE)
    (dest / "_delta_log" / f"{0:020}.json").unlink()
    (dest / "_delta_log" / f"{1:020}.json").rename(dest / "_delta_log" / f"{7:020}.json")
    with refused(quire.QuireError, 2, "lacks commits before number 7", "makes them anew"):
        gather(write(tmp_path / "in", {"f5": b"5"}), dest, **HERE)
        Ledger(dest).export("delta")


def test_recover_brings_an_export_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dest = tmp_path / "out"
    gather(write(tmp_path / "in", {"a": b"a"}), dest, **HERE)
    with monkeypatch.context() as patch:
        patch.setattr("quire.engine.job.exports.keep_up", lambda *_: None)
        patch.setattr("quire.engine.driver.exports.behind", lambda *_: [])
        gather(write(tmp_path / "in", {"a": b"new"}), dest, on_change="reprocess", **HERE)
    assert contents(dest) == ["a"]
    quire.recover(dest)
    assert contents(dest) == ["new"]
    assert len(list(dest.glob("*.parquet"))) == 1


def test_increments_ask_the_store_for_as_much_however_long_the_log_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()
    for what in ("get", "get_range", "put", "put_if_absent", "walk", "scan", "stat"):
        real = getattr(LocalStore, what)

        def counted(store: LocalStore, *args: Any, _real: Any = real, **how: Any) -> Any:
            if args and str(args[0]).startswith("_delta_log"):
                asked.append(str(args[0]))
            return _real(store, *args, **how)

        monkeypatch.setattr(LocalStore, what, counted)
    costs = []
    for i in range(30):
        asked.clear()
        gather(write(tmp_path / "in", {f"f{i}": b"x"}), tmp_path / "out", **HERE)
        costs.append(len(asked))
    assert costs[2:] == [2] * 28, "the last commit is read, and the next one put"


def test_duckdb_reads_it(tmp_path: Path) -> None:
    extension = pytest.importorskip("duckdb_extension_delta")
    (found,) = Path(extension.__file__).parent.rglob("delta.duckdb_extension")
    gather(write(tmp_path / "in", {f"k={i}/f": b"%d" % i for i in range(3)}), tmp_path / "out", layout="directories", **HERE)
    gather(write(tmp_path / "in", {"k=0/f": b"new"}), tmp_path / "out", layout="directories", on_change="reprocess", **HERE)
    with duckdb.connect() as db:
        db.sql(f"load '{found}'")
        read = db.sql(f"select k, content from delta_scan('{tmp_path / 'out'}') order by k").fetchall()
    assert read == [(0, b"new"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize(
    ("exports", "said"), [("dleta", "Did you mean 'delta'"), (7, "are not names of formats"), (["delta", "x"], "exports")], ids=str
)
def test_a_wrong_name_is_one_line(tmp_path: Path, exports: Any, said: str) -> None:
    with refused(UsageError, 2, said):
        gather(write(tmp_path / "in", {"a": b"a"}), tmp_path / "out", transform="raw", format="parquet", exports=exports)
    with refused(UsageError, 2, "is a table of Parquet files, and this gives lines"):
        gather(tmp_path / "in", tmp_path / "out", exports="delta")
    assert not (tmp_path / "out").exists()


def test_what_has_no_export_is_one_line(tmp_path: Path) -> None:
    gather(write(tmp_path / "in", {"a": b"a\n"}), tmp_path / "out")
    ledger = Ledger(tmp_path / "out")
    with refused(RefusedError, 2, "holds lines, and delta is a table of Parquet files"):
        ledger.export("delta")
    with refused(UsageError, 2, "has no export 'delta'"):
        ledger.drop_export("delta")
    with refused(UsageError, 2, "Did you mean 'delta'"):
        ledger.export("detla")
    assert ledger.exports() == {}
