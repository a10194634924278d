"""Tables that quire creates in version 9: rows go in and out as in version 6; each other verb works, or says that it does not."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import fastavro
import jvm
import pytest
from test_archived_timeline import archive, lay, leave, line_of
from test_changes import START
from test_changes_by_end import check_by_end
from test_into import process, put
from test_views import same, unpacked
from test_views import theirs as read_by_hudi_rs
from test_writes import LOCAL, create, frame, log_of, ours, theirs, write

import quire
from gathering import refused, snapshot
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.entries import Coverage, Foreign, Stats, Task
from quire.errors import FormatError, RefusedError, UsageError
from quire.table import view
from quire.table.format import commit_avro, commits, config, names
from quire.table.rounds import Round, round_of
from quire.table.table import Table


def filled(folder: Path, **more: Any) -> Table:
    """A table of version 9 with three commits."""
    table = create(folder, version=9, **more)
    write(table, "upsert", frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5)))
    write(table, "upsert", frame(("b", "sf", 2, 9.0), ("d", "la", 2, 4.5), ("a", "sf", 0, 0.0)))
    write(table, "delete", frame(("c", "la", 3, 0.0)))
    return table


@pytest.mark.nth(4)
@pytest.mark.parametrize("how", [{}, {"index": "simple", "ordering": None, "partition_by": None}, {"index": "bucket", "buckets": 2}])
def test_rows_go_into_a_table_of_version_9_and_everybody_reads_them(tmp_path: Path, how: dict[str, Any]) -> None:
    table = filled(tmp_path / "t", **how)
    late = how.get("ordering", "ts") is None
    assert {key: row["ts"] for key, row in ours(table).items()} == {"a": 0 if late else 1, "b": 2, "d": 2}
    assert theirs(tmp_path / "t") == ours(table)
    if "partition_by" not in how:
        write(table, "insert_overwrite", frame(("x", "sf", 1, 1.0)))
        assert theirs(tmp_path / "t") == ours(table)
        table.delete_partitions("la", progress=False)
        assert set(ours(table)) == set(theirs(tmp_path / "t")) == {"x"}
    check_by_end(tmp_path / "t")
    assert quire.Ledger(tmp_path / "t").verify(spark=LOCAL).ok
    assert (table.doctor().healthy, table.config.version, len(table.timeline())) == (True, 9, 3 if "partition_by" in how else 5)


def test_each_instant_ends_before_the_next_one_begins_also_where_a_clock_was_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the order of the log, of instants, and that in which they end is one, and no time stands for two of them."""

    class Clock(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dt.datetime(2026, 11, 22, 10, 30, tzinfo=tz)

    monkeypatch.setattr(view.dt, "datetime", Clock)
    filled(tmp_path)
    there = line_of(tmp_path).completed
    times = [time for each in there for time in (each.time, each.ended)]
    assert len(there) == 3
    assert times == sorted(set(times))


def test_a_commit_of_another_program_that_ends_late_ends_the_round_that_began_before(tmp_path: Path) -> None:
    """Its instant is older than the round's. Whoever has pulled changes up to its end would never see the round's."""
    table = filled(tmp_path)
    first = line_of(tmp_path).completed[0]
    content = (tmp_path / names.TIMELINE / first.name).read_bytes()
    begun = names.after(line_of(tmp_path).completed[-1].ended)
    ended = f"{int(begun[:4]) + 1}{begun[4:]}"
    foreign = commits.decode_avro(content, "it")
    (tmp_path / names.TIMELINE / f"{begun}.commit.requested").touch()
    (tmp_path / names.TIMELINE / f"{begun}_{ended}.commit").write_bytes(
        commit_avro.encode(commits.CommitMetadata(extra_metadata={"schema": foreign.schema}, operation_type="UPSERT"))
    )
    write(table, "upsert", frame(("e", "sf", 1, 1.0)))
    (entry,) = (each for each in log_of(tmp_path).entries if isinstance(each, Foreign))
    assert (entry.instants, entry.ended) == ((begun,), ended)
    assert line_of(tmp_path).completed[-1].time > ended
    assert set(ours(table)) == {"a", "b", "d", "e"}


def test_what_another_program_rolls_back_leaves_the_ledger_and_is_read_again(tmp_path: Path) -> None:
    table = create(tmp_path / "t", version=9)
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0))
    process(tmp_path / "in", table)
    put(tmp_path / "in", "2.json", ("b", "sf", 1, 1.0))
    gone = process(tmp_path / "in", table).instant
    before = snapshot(tmp_path / "t")
    for path in [path for path in (tmp_path / "t").rglob(f"*{gone}*") if path.is_file()]:
        path.unlink()
    assert set(ours(table)) == {"a"}
    assert before != snapshot(tmp_path / "t")
    assert process(tmp_path / "in", table).files == 1
    assert set(ours(table)) == set(theirs(tmp_path / "t")) == {"a", "b"}


def test_what_another_program_archives_is_not_taken_for_rolled_back(tmp_path: Path) -> None:
    table = filled(tmp_path)
    archive(tmp_path, 2)
    write(table, "upsert", frame(("e", "sf", 1, 1.0)))
    assert not any(isinstance(each, Foreign) for each in log_of(tmp_path).entries)
    assert set(ours(table)) == set(theirs(tmp_path)) == {"a", "b", "d", "e"}


def test_what_another_program_archives_while_an_older_write_stays_is_not_taken_for_rolled_back(tmp_path: Path) -> None:
    """As a savepoint holds that; and a clean has taken all files of what was archived."""
    table = filled(tmp_path)
    write(table, "upsert", frame(("b", "sf", 5, 5.0), ("d", "la", 5, 5.0)))
    middle = line_of(tmp_path).completed[1]
    lay(tmp_path, [[(middle.time, middle.ended, middle.action)]])
    leave(tmp_path, {middle.time})
    for path in tmp_path.glob(f"*/*_{middle.time}.parquet"):
        path.unlink()
    write(table, "upsert", frame(("e", "sf", 6, 6.0)))
    assert not any(isinstance(each, Foreign) for each in log_of(tmp_path).entries)
    assert set(ours(table)) == set(theirs(tmp_path)) == {"a", "b", "d", "e"}


def test_a_commit_is_avro_with_the_fields_of_jvm_hudi(tmp_path: Path) -> None:
    filled(tmp_path)
    newest = line_of(tmp_path).completed[1]
    data = (tmp_path / names.TIMELINE / newest.name).read_bytes()
    with (tmp_path / names.TIMELINE / newest.name).open("rb") as file:
        reader = fastavro.reader(file)
        said: Any = next(reader)
        assert reader.writer_schema["name"] == "org.apache.hudi.avro.model.HoodieCommitMetadata"  # type: ignore[index,call-overload]
    assert commits.decode_avro(data, "it").operation_type == said["operationType"] == "UPSERT"
    assert commit_avro.encode(commits.decode_avro(data, "it")) == data
    states = {path.name for path in (tmp_path / names.TIMELINE).iterdir() if path.name.startswith(newest.time)}
    assert states == {newest.name, f"{newest.time}.commit.requested", f"{newest.time}.inflight"}
    assert not [path.name for path in (tmp_path / ".hoodie").iterdir() if names.instant(path.name)], "none where version 6 has it"


def test_what_quire_does_not_do_with_a_table_of_version_9_is_one_line_and_changes_nothing(tmp_path: Path) -> None:
    table = filled(tmp_path)
    before = snapshot(tmp_path)
    for call in (lambda: table.compact(spark=LOCAL), table.schedule_compaction):
        with refused(RefusedError, 2, "copy-on-write"):
            call()
    assert len(table.savepoints()) == 0
    table.adopt()
    assert snapshot(tmp_path) == before
    assert table.stats().files == 2


@pytest.mark.parametrize("version", [8, 7, "9", True, None, 9.0])
def test_another_version_is_one_line(tmp_path: Path, version: Any) -> None:
    with refused(UsageError, 2, "version takes 6 or 9"):
        create(tmp_path / "t", version=version)


def test_a_table_of_version_9_that_was_made_otherwise_or_upgraded_is_not_written(tmp_path: Path) -> None:
    table = filled(tmp_path)
    path = tmp_path / names.PROPERTIES
    text = path.read_text()
    for old, new, said in (
        ("ordering.fields=ts", "ordering.fields=ts,fare", "ordering.fields=ts,fare"),
        ("initial.version=9", "initial.version=6", "quire writes version 6"),
        ("layout.version=2", "layout.version=1", "layout.version=1"),
        ("timeline.path=timeline", "timeline.path=elsewhere", "timeline.path=elsewhere"),
        ("history.path=history", "history.path=elsewhere", "history.path=elsewhere"),
    ):
        assert old in text
        path.write_text(text.replace(old, new))
        with refused(RefusedError, 2, said):
            write(table, "upsert", frame(("e", "sf", 1, 1.0)))


def test_a_commit_of_a_table_that_another_program_took_to_another_version_does_not_appear_where_nobody_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(tmp_path)

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(protocol, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            write(table, "upsert", frame(("e", "sf", 1, 1.0)), batch="monday")
    path = tmp_path / names.PROPERTIES
    text = path.read_text()
    path.write_text(text.replace("table.version=9", "table.version=6").replace("layout.version=2", "layout.version=1"))
    with refused(RefusedError, 2, "is committed", "nothing of it is visible"):
        quire.recover(tmp_path)
    path.write_text(text)
    assert len(quire.recover(tmp_path).published) == 1
    assert set(ours(table)) == set(theirs(tmp_path)) == {"a", "b", "d", "e"}


def task(said: dict[str, Any]) -> Task:
    return Task(task=2, attempt=objects.new_id(), data_files=(), coverage=Coverage(), stats=Stats(written=said))


def test_a_forged_end_of_a_round_is_refused() -> None:
    said = Round(instant="20261122103000000", action="commit", version=1, operation="upsert", inserts=(), counts={}).as_dict()
    for ended in ("20261122103000000", "20261122102959999", "2026112210300000", "../20261122103000001", "x"):
        with refused(FormatError, 2, "it is damaged, or forged"):
            round_of(task({**said, "ended": ended}))
    assert round_of(task({**said, "ended": "20261122103000001"})).ended


def test_it_is_created_once_and_its_settings_are_those_of_jvm_hudi(tmp_path: Path) -> None:
    create(tmp_path, version=9)
    before = snapshot(tmp_path)
    assert create(tmp_path, version=9).config.version == 9
    with refused(RefusedError, 2, "is a table already, with other settings"):
        create(tmp_path)
    assert snapshot(tmp_path) == before
    said = dict(line.split("=", 1) for line in (tmp_path / names.PROPERTIES).read_text().splitlines() if not line.startswith("#"))
    expected = {
        "hoodie.table.version": "9", "hoodie.table.initial.version": "9", "hoodie.timeline.layout.version": "2",
        "hoodie.record.merge.mode": "EVENT_TIME_ORDERING", "hoodie.table.ordering.fields": "ts", "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history", "hoodie.table.keygenerator.type": "SIMPLE", "hoodie.table.format": "native",
    }  # fmt: skip
    assert {name: said[name] for name in expected} == expected
    assert not {"hoodie.table.precombine.field", "hoodie.compaction.payload.class", "hoodie.table.keygenerator.class"} & said.keys()
    assert config.TableConfig.from_properties((tmp_path / names.PROPERTIES).read_bytes(), "it").unwritable is None
    assert Table(tmp_path).timeline().empty
    assert Table(tmp_path).changes(START, spark=LOCAL).num_rows == 0


@pytest.mark.nth(2)
@pytest.mark.parametrize("name", [name for name in jvm.names() if "-cow-v9_txns_" in name and name.endswith("_nometa")])
def test_a_table_of_version_9_that_jvm_hudi_has_created_without_a_metadata_table_is_written(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    before = table.snapshot(spark=LOCAL)
    rows = before.drop_columns([each for each in before.column_names if each.startswith("_hoodie_")])
    assert write(table, "delete", rows.slice(0, 1)).deleted == 1
    write(table, "upsert", rows.slice(1, 2))
    found, seen = table.snapshot(spark=LOCAL), read_by_hudi_rs(tmp_path)
    assert seen is not None
    assert found.num_rows == before.num_rows - 1
    assert same(found, seen.select(found.column_names))
