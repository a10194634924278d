"""Tables of version 8 and 9, which newer JVM Hudi writes: read as hudi-rs and JVM Hudi read them, and never written."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import fastavro
import jvm
import pyarrow as pa
import pytest
from test_into import process, put
from test_merge_on_read import LATER, UNREAD, gold
from test_views import same, theirs, unpacked
from test_writes import COLUMNS, LOCAL, create, frame, log_of, ours, write
from test_writes import theirs as by_key

import quire
from gathering import refused, snapshot
from quire.commit import protocol
from quire.errors import FormatError, RefusedError
from quire.table.closer import TableCloser
from quire.table.format import commits, names
from quire.table.table import Table

NEWER = [name for name in jvm.names() if name in LATER or name.endswith("_v9")]
KINDS = UNREAD[:3]  # of rows in logs that quire does not read; of evo_promotion it does by the table's schema


# ------------------------------------------------------------------------------------------------------- tables of JVM Hudi
def test_there_are_tables_of_newer_versions() -> None:
    assert len(NEWER) >= 20


@pytest.mark.nth(3)
@pytest.mark.parametrize("name", NEWER)
def test_a_table_of_a_newer_version_reads_as_jvm_hudi_and_hudi_rs_read_it_at_each_instant(tmp_path: Path, name: str) -> None:
    table = Table(unpacked(name, tmp_path))
    assert table.config.version == 9
    if name.endswith(KINDS):
        with refused(RefusedError, 2, "compact the table"):
            table.snapshot(spark=LOCAL)
        assert table.snapshot(spark=LOCAL, read_optimized=True).num_rows > 0
        return
    found, expected, seen = table.snapshot(spark=LOCAL), gold(name), theirs(tmp_path)
    assert expected is not None
    assert seen is not None
    assert same(found, expected.select(found.column_names))
    assert same(found, seen.select(found.column_names))
    instants = table._timeline(table._store).completed
    assert instants
    for instant in instants:
        then = theirs(tmp_path, instant.time)
        assert then is not None
        now = table.as_of(instant.time).snapshot(spark=LOCAL)
        assert same(now, then.select(now.column_names))


# ------------------------------------------------------------------------------------------------------- upgraded by hand
def avro_schema() -> Any:
    """The one with which JVM Hudi writes its commits."""
    path, content = next((path, data) for path, data in jvm.files(NEWER[0]) if re.search(r"timeline/\d+_\d+\.deltacommit$", path))
    assert path
    found = json.loads(fastavro.reader(io.BytesIO(content)).metadata["avro.schema"])
    replaced = {"type": ["null", {"type": "map", "values": {"type": "array", "items": "string"}}], "default": None}
    found["fields"].append({"name": "partitionToReplaceFileIds", **replaced})  # of a replacecommit
    return fastavro.parse_schema(found)


def as_avro(commit: bytes, codec: str = "null") -> bytes:
    out = io.BytesIO()
    said = json.loads(commit)
    for stats in said["partitionToWriteStats"].values():
        for stat in stats:
            stat.pop("recordsStats", None)
    fastavro.writer(out, avro_schema(), [said], codec=codec)
    return out.getvalue()


def upgrade(folder: Path, version: int) -> None:
    """Move the timeline as JVM Hudi does it: each commit as Avro, with the time at which it completed."""
    home = folder / ".hoodie"
    (home / "timeline/history").mkdir(parents=True)
    for path in sorted(home.iterdir()):
        instant = names.instant(path.name)
        if instant is None:
            continue
        if instant.state == "completed":
            ended = f"{int(instant.time) + 1:017}"
            (home / "timeline" / f"{instant.time}_{ended}.{instant.action}").write_bytes(as_avro(path.read_bytes()))
        else:
            (home / "timeline" / path.name).write_bytes(path.read_bytes())
        path.unlink()
    properties = home / "hoodie.properties"
    text = properties.read_text().replace("table.version=6", f"table.version={version}").replace("layout.version=1", "layout.version=2")
    more = "hoodie.timeline.path=timeline\nhoodie.timeline.history.path=history\nhoodie.record.merge.mode=EVENT_TIME_ORDERING\n"
    properties.write_text(text + more + ("hoodie.table.ordering.fields=ts\nhoodie.table.format=native\n" if version == 9 else ""))


@pytest.fixture(params=[8, 9])
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, list[str]]:
    """A copy-on-write table that quire has written, and its instants: two upserts and a delete, the second of which adds a column."""
    table, more = create(tmp_path / "t"), COLUMNS.append(pa.field("note", pa.string()))
    first = write(table, "upsert", frame(("a", "sf", 1, 1.5), ("b", "sf", 1, 2.5), ("c", "la", 1, 3.5)))
    second = write(table, "upsert", frame(("b", "sf", 2, 9.0, "x"), ("d", "la", 2, 4.5, None), schema=more))
    third = write(table, "delete", frame(("c", "la", 3, 0.0)))
    upgrade(tmp_path / "t", request.param)
    return tmp_path / "t", [first.instant, second.instant, third.instant]


def test_a_copy_on_write_table_that_was_upgraded_is_read_as_it_was(upgraded: tuple[Path, list[str]]) -> None:
    folder, instants = upgraded
    table = Table(folder)
    assert ours(table) == by_key(folder)
    assert {key: row["note"] for key, row in ours(table).items()} == {"a": None, "b": "x", "d": None}
    for instant, keys in zip(instants, ("abc", "abcd", "abd"), strict=True):
        assert set(ours(table.as_of(instant))) == set(keys)
        seen = theirs(folder, instant)
        now = table.as_of(instant).snapshot(spark=LOCAL)
        assert seen is not None
        assert same(now, seen.select(now.column_names))


def test_a_write_that_has_not_completed_is_not_part_of_an_upgraded_table(upgraded: tuple[Path, list[str]]) -> None:
    folder, _ = upgraded
    newest = max(folder.glob("city=sf/*.parquet"), key=lambda path: path.name.rpartition("_")[2])
    later = "20991122100000000"
    newest.with_name(f"{newest.name.rpartition('_')[0]}_{later}.parquet").write_bytes(newest.read_bytes())
    (folder / f".hoodie/timeline/{later}.commit.requested").write_bytes(b"")
    (folder / f".hoodie/timeline/{later}.inflight").write_bytes(b"")
    assert ours(Table(folder)) == by_key(folder)
    assert Table(folder)._timeline(Table(folder)._store).pending[0].time == later


def test_an_instant_on_the_timeline_of_another_layout_does_not_count(upgraded: tuple[Path, list[str]], tmp_path: Path) -> None:
    """As an upgrade that died may leave both."""
    folder, _ = upgraded
    before = ours(Table(folder))
    (newest,) = sorted(folder.glob(".hoodie/timeline/*.commit"))[-1:]
    newest.with_name(f"{newest.name.partition('_')[0]}.commit").write_bytes(b"{}")
    (folder / ".hoodie" / f"{newest.name.partition('_')[0]}.commit").write_bytes(b"{}")
    assert ours(Table(folder)) == before
    older = create(tmp_path / "six")
    write(older, "upsert", frame(("a", "sf", 1, 1.5)))
    (tmp_path / "six/.hoodie/20991122100000000_20991122100000000.commit").write_bytes(b"{}")
    assert set(ours(older)) == {"a"}


def test_groups_that_were_replaced_end(upgraded: tuple[Path, list[str]]) -> None:
    folder, _ = upgraded
    group = next(folder.glob("city=la/*.parquet")).name.partition("_")[0]
    made = commits.CommitMetadata(
        operation_type="DELETE_PARTITION", partition_to_replace_file_ids={"city=la": [group]},
        extra_metadata={"schema": Table(folder)._timeline(Table(folder)._store).schema()},
    )  # fmt: skip
    for name, data in (("20991122100000000.replacecommit.requested", b""), ("20991122100000000.replacecommit.inflight", b""),
                       ("20991122100000000_20991122100000001.replacecommit", as_avro(commits.encode(made)))):  # fmt: skip
        (folder / ".hoodie/timeline" / name).write_bytes(data)
    assert set(ours(Table(folder))) == set(by_key(folder)) == {"a", "b"}


def test_an_upgraded_table_is_not_written_and_nothing_of_it_changes(upgraded: tuple[Path, list[str]]) -> None:
    folder, instants = upgraded
    table, before = Table(folder), snapshot(folder)
    for operation in ("upsert", "insert", "bulk_insert", "delete"):
        with refused(RefusedError, 2, f"of table version {table.config.version}, and quire writes version 6", "JVM Hudi with its defaults"):
            write(table, operation, frame(("a", "sf", 9, 9.0)))
    found = table.changes(instants[0], spark=LOCAL).to_pylist()
    assert sorted((each["op"], each["_hoodie_record_key"]) for each in found) == [("d", "c"), ("i", "d"), ("u", "b")]
    assert snapshot(folder) == before


@pytest.mark.nth(4)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: data[: len(data) // 2], "is damaged"),
        (lambda data: b"{}", "is damaged"),
        (lambda data: as_avro(commits.encode(commits.decode_avro(data, "it")), "deflate"), "compressed with 'deflate'"),
        (lambda data: data.replace(b"city=sf/", b"city=../"), "city="),
    ],
)
def test_a_damaged_commit_is_one_line(upgraded: tuple[Path, list[str]], change: Any, said: str) -> None:
    folder, instants = upgraded
    (last,) = folder.glob(f".hoodie/timeline/{instants[1]}_*")
    (newest,) = folder.glob(f".hoodie/timeline/{instants[2]}_*")
    newest.unlink()
    last.write_bytes(change(last.read_bytes()))
    with refused(FormatError, 2, said):
        Table(folder).snapshot(spark=LOCAL)


def test_a_timeline_elsewhere_is_not_read(upgraded: tuple[Path, list[str]]) -> None:
    folder, _ = upgraded
    properties = folder / ".hoodie/hoodie.properties"
    text = properties.read_text()
    for old, new in (
        ("timeline.path=timeline", "timeline.path=../../elsewhere"),
        ("history.path=history", "history.path=../../elsewhere"),
        ("layout.version=2", "layout.version=1"),
    ):
        assert old in text
        properties.write_text(text.replace(old, new))
        with refused(RefusedError, 2, "its timeline lies where no such table has it"):
            Table(folder).snapshot(spark=LOCAL)


# --------------------------------------------------------------------------- the ledger of a table that was upgraded
def test_the_ledger_of_an_upgraded_table_stays_as_it_was_and_nothing_counts_as_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while another program is moving the timeline, or has died over that."""
    table, place = create(tmp_path / "t"), tmp_path / "t"
    put(tmp_path / "in", "1.json", ("a", "sf", 1, 1.0), ("b", "la", 1, 1.0))
    process(tmp_path / "in", table)
    write(table, "upsert", frame(("a", "sf", 2, 2.0)))
    put(tmp_path / "in", "2.json", ("c", "sf", 1, 1.0))
    with monkeypatch.context() as patched:
        patched.setattr(TableCloser, "close", killed)
        with pytest.raises(KeyboardInterrupt):
            process(tmp_path / "in", table)
    before, rows = quire.Ledger(place).summary(), ours(table)
    properties = (place / ".hoodie/hoodie.properties").read_bytes()
    upgrade(place, 9)
    after = (place / ".hoodie/hoodie.properties").read_bytes()
    for settings in (properties, after, after):  # moved, and the settings do not say it yet; then as it is
        (place / ".hoodie/hoodie.properties").write_bytes(settings)
        done = quire.recover(place)
        assert (done.rolled_back, done.foreign, done.lost_updates, len(done.open)) == ((), (), (), 1)
        assert quire.Ledger(place).summary() == before
    ledger = quire.Ledger(place)
    assert ledger.verify(spark=LOCAL).ok
    assert [each.state for each in ledger.locate(f"file://{tmp_path}/in/1.json")] == ["done"]
    assert ours(Table(place)) == rows
    kept = snapshot(place)
    with refused(RefusedError, 2, "of table version 9, and quire writes version 6"):
        process(tmp_path / "in", place)
    assert snapshot(place) == kept
    assert len(quire.recover(place, abort="open").given_up) == 1
    assert (quire.Ledger(place).summary().open_jobs, ours(Table(place))) == ((), rows)


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def test_a_commit_whose_instant_cannot_appear_since_the_table_was_upgraded_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files do not go where a reader may take them in, and it is not called published. Once it can, it appears."""
    table = create(tmp_path / "t")
    write(table, "upsert", frame(("a", "sf", 1, 1.0)))
    with monkeypatch.context() as patched:
        patched.setattr(protocol, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            write(table, "upsert", frame(("b", "sf", 1, 1.0)), batch="monday")
    shutil.copytree(tmp_path / "t", tmp_path / "six")
    upgrade(tmp_path / "t", 9)
    before = snapshot(tmp_path / "t")
    for _ in range(2):
        with refused(RefusedError, 2, "is committed", "upgraded", "to table version 9", "nothing of it is visible", "call recover"):
            quire.recover(tmp_path / "t")
        assert snapshot(tmp_path / "t") == before
    assert quire.Ledger(tmp_path / "t").summary().unpublished == 1
    assert set(ours(Table(tmp_path / "t"))) == set(by_key(tmp_path / "t")) == {"a"}
    shutil.rmtree(tmp_path / "t")
    (tmp_path / "six").rename(tmp_path / "t")  # as who takes it back
    assert len(quire.recover(tmp_path / "t").published) == 1
    assert set(ours(table)) == set(by_key(tmp_path / "t")) == {"a", "b"}


@pytest.mark.parametrize("version", [8, 9])
def test_a_commit_whose_instant_was_moved_before_the_log_said_so_is_published(tmp_path: Path, version: int) -> None:
    table = create(tmp_path)
    for key in "ab":
        write(table, "upsert", frame((key, "sf", 1, 1.0)))
    log = log_of(tmp_path)
    last = max(entry.name for entry in log.store.walk("_quire/log"))
    assert json.loads(log.store.get(last))["kind"] == "published"
    log.store.remove(last)  # as if the process had died before
    upgrade(tmp_path, version)
    assert len(quire.recover(tmp_path).published) == 1
    assert set(ours(Table(tmp_path))) == set(by_key(tmp_path)) == {"a", "b"}
    assert not [path.name for path in (tmp_path / ".hoodie").iterdir() if names.instant(path.name)], "none where it does not belong"
