"""Exports of copy-on-write tables: their readers see the newest snapshot after each call, also where files of it are taken back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, KeysView, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import deltalake
import iceberg_readers
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from exported import OPTIONS, offered
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import load_catalog
from test_writes import COLUMNS, LOCAL, create, frame, ours, write

import quire
import sim
from gathering import refused
from quire import Ledger
from quire.commit import protocol
from quire.commit.entries import Export
from quire.commit.exports import exports
from quire.commit.log import Log
from quire.engine.exports import delta, iceberg, step
from quire.errors import FormatError, QuireError, RefusedError, UsageError
from quire.storage import connect
from quire.table import timeline
from quire.table.table import Table
from sim import tables
from sim.ways import changing
from sim.world import Actor, Crash, World

FORMATS = tuple(OPTIONS)


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def by_delta(folder: Path) -> pa.Table:
    return deltalake.DeltaTable(str(folder)).to_pyarrow_table()


def by_manifest(folder: Path) -> pa.Table:
    names = (folder / "_symlinks/manifest").read_text().splitlines()
    found = [pq.read_table(name.removeprefix("file://")) for name in names]
    return pa.concat_tables(found, promote_options="permissive") if found else pa.table({"id": []})


READERS = {"delta": by_delta, "iceberg": iceberg_readers.seen, "symlinks": by_manifest}


def agree(table: Table, folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of the table, which all readers of exports find."""
    try:
        rows = ours(table)
    except UsageError:
        assert not timeline.current(connect(table.url)).completed, "only a table without any commit has no columns"
        rows = {}
    for name, read in READERS.items():
        found = {row["id"]: {column: row.get(column) for column in next(iter(rows.values()), {})} for row in read(folder).to_pylist()}
        assert found == rows, name
    assert set(Ledger(folder).exports().values()) != {0}
    return rows


def exported(folder: Path, **how: Any) -> Table:
    """A table of two commits with all exports."""
    table = create(folder, **how)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    write(table, "upsert", frame(("b", "la", 2, 2.0), ("c", "la", 2, 2.0)))
    for each in FORMATS:
        assert Ledger(folder).export(each).version > 0
    return table


@pytest.mark.parametrize("how", [{}, {"version": 9}, {"partition_by": None}], ids=["flat", "version 9", "no partitions"])
def test_each_call_keeps_the_exports_in_step(tmp_path: Path, how: dict[str, Any]) -> None:
    folder = tmp_path / "t"
    table = exported(folder, **how)
    assert set(agree(table, folder)) == {"a", "b", "c"}
    kept = write(table, "upsert", frame(("d", "ny", 3, 3.0), ("a", "sf", 3, 3.0))).instant
    agree(table, folder)
    write(table, "delete", frame(("b", "la", 9, 0.0)))
    assert set(agree(table, folder)) == {"a", "c", "d"}
    write(table, "bulk_insert", frame(("e", "ny", 3, 3.0)))
    table.cluster(sort="ts", spark=LOCAL, progress=False)
    assert set(agree(table, folder)) == {"a", "c", "d", "e"}
    table.restore(kept, progress=False)
    assert set(agree(table, folder)) == {"a", "b", "c", "d"}
    last = write(table, "upsert", frame(("f", "ny", 9, 9.0)))
    table.rollback(last.instant, progress=False)
    assert set(agree(table, folder)) == {"a", "b", "c", "d"}
    write(table, "insert_overwrite", frame(("g", "sf", 9, 9.0)))
    agree(table, folder)
    assert table.clean(versions=1, progress=False).files > 0
    table.archive(keep=1, progress=False)
    agree(table, folder)
    assert table.doctor(spark=LOCAL).healthy
    tip = Log(connect(f"table+file://{folder}")).refresh()
    assert not step.behind(tip)


def test_columns_that_come_later_and_become_wider(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    for kind in (pa.int32(), pa.int64()):
        write(
            table, "upsert", frame((f"of {kind}", "sf", 3, 3.0, 7), ("x", "la", 3, 3.0, None), schema=COLUMNS.append(pa.field("tip", kind)))
        )
        rows = agree(table, folder)
        assert (rows[f"of {kind}"]["tip"], rows["b"]["tip"]) == (7, None)


def test_a_column_that_readers_of_iceberg_do_not_widen_ends_that_export_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    narrow, wide = (COLUMNS.append(pa.field("tip", kind)) for kind in (pa.int32(), pa.float64()))
    write(table, "upsert", frame(("d", "sf", 3, 3.0, 7), ("e", "la", 3, 3.0, 7), schema=narrow))
    write(table, "upsert", frame(("d", "sf", 4, 3.0, 0.5), schema=wide))
    with refused(RefusedError, 2, "'tip'", "is int32", "double"):
        Ledger(folder).export("iceberg")
    assert by_delta(folder).num_rows == by_manifest(folder).num_rows == len(ours(table))
    write(table, "upsert", frame(("e", "la", 4, 3.0, 0.5), schema=wide))
    Ledger(folder).export("iceberg")
    agree(table, folder)


def test_a_clean_leaves_what_an_export_that_lags_still_names(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    for other in ("iceberg", "symlinks"):
        Ledger(folder).drop_export(other)
    before = by_delta(folder).num_rows
    newest = max(folder.glob("_delta_log/*.json"))
    foreign = newest.with_name(f"{int(newest.stem) + 1:020}.json")
    foreign.write_text(json.dumps({"commitInfo": {"operation": "WRITE"}}) + "\n")
    for n in range(3, 6):
        write(table, "upsert", frame(("a", "sf", n, float(n)), ("b", "la", n, float(n))))
    with suppress(RefusedError):  # nothing may go
        table.clean(versions=1, progress=False)
    assert by_delta(folder).num_rows == before, "each file that it names is there"
    foreign.unlink()
    Ledger(folder).export("delta")
    assert table.clean(versions=1, progress=False).files > 0
    assert {row["id"]: row["fare"] for row in by_delta(folder).to_pylist()} == {key: row["fare"] for key, row in ours(table).items()}


@pytest.mark.parametrize("name", ["delta", "iceberg"])
def test_a_step_that_began_before_a_rollback_offers_nothing_that_it_has_taken(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback goes back to what the export offers, so that nothing in it changes but its number."""
    folder = tmp_path / "t"
    table, asleep, found = exported(folder), [True], list[set[str]]()
    module, of, step_of = (delta, delta, "_next") if name == "delta" else (iceberg, iceberg._Writer, "increment")
    compute, bring = getattr(of, step_of), module.bring

    def slow(*args: Any, **more: Any) -> Any:
        made = compute(*args, **more)
        if asleep:
            asleep.clear()
            Table(folder).rollback(progress=False)
        return made

    def looked_at(*args: Any, **more: Any) -> tuple[int, int]:
        done = bring(*args, **more)
        found.append({row["id"] for row in READERS[name](folder).to_pylist()})
        return done

    monkeypatch.setattr(of, step_of, slow)
    monkeypatch.setattr(module, "bring", looked_at)
    write(table, "upsert", frame(("a", "sf", 9, 9.0), ("z", "ny", 9, 9.0)), batch="z")  # what was taken back comes again
    assert {"a", "b", "c"} in found
    assert found[-1] == {"a", "b", "c", "z"} == set(agree(table, folder))


def test_what_another_program_writes_is_offered_by_the_next_call(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    shutil.copytree(folder, tmp_path / "copy")
    write(Table(tmp_path / "copy"), "upsert", frame(("b", "la", 5, 5.0), ("o", "ny", 5, 5.0)))
    for path in sorted((tmp_path / "copy").rglob("*")):
        own = {"_quire", "_delta_log", "_iceberg", "_symlinks"} & set(path.relative_to(tmp_path / "copy").parts)
        if path.is_file() and not own and not (there := folder / path.relative_to(tmp_path / "copy")).exists():
            there.parent.mkdir(exist_ok=True)
            shutil.copy(path, there)
    assert set(ours(table)) == {"a", "b", "c", "o"}
    quire.recover(folder)
    agree(table, folder)


def test_what_no_file_holds_alone_is_refused_in_one_line(tmp_path: Path) -> None:
    table = create(tmp_path / "t", type="merge_on_read")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    with refused(RefusedError, 2, "are logs, too"):
        Ledger(tmp_path / "t").export("delta")
    assert Ledger(tmp_path / "t").exports() == {}


def test_a_checkpoint_holds_the_files_of_its_own_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta, "EVERY", 2)
    table = exported(tmp_path / "t")
    for n in range(3, 10):
        write(table, "upsert", frame(("a", "sf", n, float(n)), (f"n{n}", "ny", n, 0.0)))
        agree(table, tmp_path / "t")
    assert len(list((tmp_path / "t/_delta_log").glob("*.checkpoint.parquet"))) == 3
    for one in (tmp_path / "t/_delta_log").glob("*.checkpoint.parquet"):
        one.unlink()  # as after drivers that died before they wrote them
    (tmp_path / "t/_delta_log/_last_checkpoint").unlink()
    write(table, "upsert", frame(("z", "sf", 99, 0.0)))
    agree(table, tmp_path / "t")


@pytest.mark.parametrize("text", [b"1", b"{", b'{"add": 1}', b'{"add": {"path": "x"}}', b'{"add": {"path": "x", "size": 1, "stats": "["}}'])
def test_a_damaged_commit_of_a_table_is_one_line_and_the_tables_commits_stand(text: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    write(table, "upsert", frame(("d", "ny", 3, 3.0)))
    first = min((folder / "_delta_log").glob("*.json"))
    first.write_bytes(text)
    assert write(table, "upsert", frame(("e", "ny", 4, 3.0))).inserted == 1
    with refused(FormatError, 2, "drop_export('delta')"):
        Ledger(folder).export("delta")
    Ledger(folder).drop_export("delta")
    Ledger(folder).export("delta")
    assert set(agree(table, folder)) == {"a", "b", "c", "d", "e"}


def test_a_damaged_base_file_is_one_line(tmp_path: Path) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0)))
    base = next((tmp_path / "t").rglob("*sf*/*.parquet"), None) or next((tmp_path / "t").rglob("sf/*.parquet"))
    base.write_bytes(base.read_bytes()[:-4] + b"none")
    with refused(FormatError, 2, base.name, "is damaged", "Put back a copy"):
        Ledger(tmp_path / "t").export("delta")


def test_an_export_of_a_newer_quire_hinders_no_rollback(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "t"
    table = exported(folder)
    log = Log(connect(f"table+file://{folder}")).refresh()
    log.append(lambda log: None if "lance" in exports(log) else Export(name="lance", version=0, time=protocol.now()))
    table.rollback(progress=False)
    assert "Update quire" in capfd.readouterr().err
    assert set(agree(table, folder)) == {"a", "b"}


def test_a_catalog_goes_past_a_restore_with_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, said = tmp_path / "t", {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    (tmp_path / "lake").mkdir()
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG.config", {"catalog": {"prod": said}})
    table = create(folder)
    kept = write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 1.0))).instant
    Ledger(folder).export("iceberg", catalog="prod", table="lake.t")
    write(table, "upsert", frame(("b", "la", 2, 2.0), ("c", "la", 2, 2.0)))
    table.restore(kept, progress=False)
    found = load_catalog("prod").load_table("lake.t").scan().to_arrow()
    assert {row["id"]: row["fare"] for row in found.to_pylist()} == {"a": 1.0, "b": 1.0}


CITIES = ("sf", "la", "ny", "sf")
VERBS = st.sampled_from(["upsert", "delete", "overwrite", "restore", "rollback", "clean", "cluster", "archive"])


class Tale:
    """A table with exports, and calls into it."""

    def __init__(self, folder: Path, version: int) -> None:
        self.folder, self.table, self.n = folder, exported(folder, version=version), 10

    def play(self, verb: str) -> None:
        """One call; where it is refused, nothing has changed."""
        self.n += 1
        n, table = self.n, self.table
        with suppress(QuireError):
            if verb == "upsert":
                write(table, "upsert", frame((f"k{n % 4}", CITIES[n % 4], n, 1.0), (f"n{n}", "sf", n, 2.0)))
            elif verb == "delete":
                write(table, "delete", frame((f"k{n % 4}", CITIES[n % 4], n, 1.0)))
            elif verb == "overwrite":
                write(table, "insert_overwrite", frame((f"o{n}", CITIES[n % 3], n, 1.0)))
            elif verb == "restore":
                done = timeline.current(connect(table.url)).completed
                if done:  # else all of it was rolled back
                    table.restore(done[len(done) // 2].time, progress=False)
            elif verb == "rollback":
                table.rollback(progress=False)
            elif verb == "clean":
                table.clean(versions=1, progress=False)
            elif verb == "cluster":
                table.cluster(sort="ts", spark=LOCAL, progress=False)
            else:
                table.archive(keep=2, progress=False)


def _history(verbs: list[str], version: int, folder: Path) -> None:
    tale = Tale(folder, version)
    for verb in verbs:
        tale.play(verb)
        agree(tale.table, folder)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verbs=st.lists(VERBS, min_size=3, max_size=8), version=st.sampled_from([6, 9]))
def test_after_any_history_readers_of_exports_agree_with_the_table(
    verbs: list[str], version: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _history(verbs, version, tmp_path_factory.mktemp("history") / "t")


@pytest.mark.chaos
@pytest.mark.timeout(3_600)
@settings(max_examples=1_000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(verbs=st.lists(VERBS, min_size=3, max_size=12), version=st.sampled_from([6, 9]))
def test_after_very_many_histories_readers_of_exports_agree_with_the_table(
    verbs: list[str], version: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    _history(verbs, version, tmp_path_factory.mktemp("history") / "t")


# ------------------------------------------------------------------------------------------------------------- drivers that die
SCRIPT = (*tables.RESTORES, (tables.CLEAN, []), ("upsert", [("a", "sf", 6)]))


def seen(there: Mapping[str, bytes], format: str) -> dict[str, int]:
    """Key → n by the export; AssertionError for a file that is not there."""
    files = offered(format, there)
    missing = [name for name in files if name not in there]
    assert not missing, f"the export has files that are gone: {missing}"
    rows = [row for name in files for row in pq.read_table(pa.BufferReader(there[name])).to_pylist()]
    found = {row["id"]: row["n"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def _story(dest: str, format: str) -> None:
    tables.calls(SCRIPT[0])("", dest, "")
    Ledger(dest).export(format, **OPTIONS[format])
    tables.calls(*SCRIPT)("", dest, "")


@pytest.mark.parametrize(
    ("format", "kind", "every"),
    [
        *((f, k, 400) for f, k in (("delta", "s3"), ("iceberg", "hdfs"))),
        *(pytest.param(f, k, 1, marks=pytest.mark.chaos) for f in FORMATS for k in ("hdfs", "s3", "azure", "objects")),
    ],
)  # fmt: skip
def test_a_driver_that_dies_at_any_change_leaves_whole_snapshots(format: str, kind: str, every: int) -> None:
    states = [*tables.states(*SCRIPT)({})]

    def world() -> World:
        sim.forget_all()
        made, last = World(0, observe=False, kind=sim.TABLES[kind]), KeysView[str]({})

        def look(*_: str) -> None:
            nonlocal last
            there = made.there()
            if there.keys() == last and format != "symlinks":
                return  # only manifests are written over in place
            last = there.keys()
            now = seen(there, format)
            assert now in states, f"{now}\n{made.told(40)}"

        made.on = look
        return made

    first = world()
    with first.installed():
        assert sim.run(first, Actor(), lambda: _story(first.dest, format)) is None
        assert seen(first.there(), format) == states[-1]
        changes = [k for k, (_, op, _, _) in enumerate(first.history, 1) if changing(op)]
    assert len(changes) > 100
    for k in changes[7::every]:
        for how in ("before", "after", "ambiguous"):
            now = world()
            with now.installed():
                ended = sim.run(now, Actor("dead", {k: how}, of_changes=False), lambda now=now: _story(now.dest, format))  # type: ignore[misc]
                assert ended is None or isinstance(ended, Crash | QuireError), ended
                now.settle()
                protocol.recover(now.store(now.dest), "open")
                _story(now.dest, format)
                assert seen(now.there(), format) == states[-1], f"{how} {k}"
