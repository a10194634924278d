"""Archives of tables of version 9: Hudi's LSM timeline takes what quire's rounds bring, once, and stays small."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from test_archive import archive, archived, line_of, place
from test_archived_timeline import ROWS
from test_clean import written
from test_writes import LOCAL, frame, ours, theirs, write

import quire
import sim
from gathering import refused, snapshot
from quire.commit.log import Log
from quire.errors import FormatError
from quire.formats import parquet
from quire.storage import connect
from quire.table import archive as archiving
from quire.table import archived_timeline, timeline
from quire.table.format import lsm
from quire.table.table import Table
from sim.tables import FIRST, SECOND, outside, seen
from sim.tables import frame as sim_frame


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four files are merged: the tests with ten take twice as long."""
    monkeypatch.setattr(archived_timeline, "BATCH", 4)


def history(folder: Path) -> list[str]:
    """The objects of the archived timeline."""
    return sorted(path.name for path in (folder / lsm.FOLDER).iterdir())


def more(table: Table, count: int, begin: int = 100) -> None:
    """So many writes, each archived by the next one."""
    for n in range(begin, begin + count):
        write(table, "upsert", frame(("a", "sf", n, float(n))))
        archive(table)


def test_an_archive_is_a_file_as_jvm_hudi_writes_it(tmp_path: Path) -> None:
    table, instants = written(tmp_path, 2, version=9)
    write(table, "insert_overwrite", frame(("z", "ny", 1, 1.0)))
    table.rollback(progress=False)
    write(table, "insert_overwrite", frame(("z", "ny", 1, 1.0)))
    write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    going = line_of(tmp_path)
    said = {each.time: (place(tmp_path) / each.name).read_bytes() for each in (*going.completed[:-1], *going.others)}
    archive(table)
    assert history(tmp_path) == [
        ".quire", f".quire_{going.completed[-1].time}_{going.completed[-2].ended}",
        f"{instants[0]}_{going.completed[-2].time}_0.parquet", "manifest_1",
    ]  # fmt: skip
    (path,) = (tmp_path / lsm.FOLDER).glob("*.parquet")
    file = pq.ParquetFile(path)
    assert file.schema_arrow.remove_metadata() == ROWS
    footer = {name.decode(): text.decode() for name, text in file.metadata.metadata.items()}
    assert fastavro.parse_schema(json.loads(footer["parquet.avro.schema"]))
    rows = file.read().to_pylist()
    assert {row["instantTime"]: row["metadata"] for row in rows} == said
    assert [row["action"] for row in rows] == ["commit", "commit", "rollback", "replacecommit"]
    ends = {each.time: each.ended for each in (*going.completed, *going.others)}
    assert all(row["completionTime"] == ends[row["instantTime"]] and row["version"] == 1 for row in rows)
    assert table.doctor().healthy
    named = json.loads((tmp_path / lsm.FOLDER / "manifest_1").read_bytes())["files"]
    assert named == [{"fileName": path.name, "fileLen": path.stat().st_size}]


def test_archives_are_merged_and_what_readers_do_for_them_stays_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path, 1, version=9)
    more(table, 9)
    _, files = archived_timeline.newest(connect(table.url))
    assert sorted(file.layer for file in files) == [0, 1, 1]
    times = archived(tmp_path)
    assert times == sorted(set(times))
    assert len(times) == 9, "each instant that has left the timeline, once"
    kept = [name for name in history(tmp_path) if name.startswith("manifest")]
    assert len(kept) == archived_timeline.KEPT
    assert len([name for name in history(tmp_path) if name.startswith(".quire_")]) == archived_timeline.KEPT
    assert len(history(tmp_path)) <= 14, "four of them are those that were merged last"
    first, reading = line_of(tmp_path).completed[-1], list[str]()
    monkeypatch.setattr(parquet, "open_file", lambda store, name: reading.append(name))
    line = line_of(tmp_path)
    assert line.left is not None
    assert (line.horizon, line.first, line.left.last() < first.time, reading) == (first.time, first.time, True, []), "no file is read"
    monkeypatch.undo()
    with refused(quire.errors.RefusedError, 2, "archived instants before"):
        table.changes(times[-1], spark=LOCAL)
    write(table, "upsert", frame(("b", "la", 200, 1.0)))
    assert table.changes(first.time, spark=LOCAL).num_rows == 1
    assert ours(table) == theirs(tmp_path)


@pytest.mark.parametrize("group", [1, 250, 1 << 20])
def test_a_merge_has_each_row_once_in_row_groups_of_a_size(monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr(lsm, "GROUP", group)
    left = [lsm.Left(f"202611221030000{n:02}", f"202611221030001{n:02}", "commit", b"x" * 90) for n in range(12)]
    files = [lsm.encode(left[at : at + 3], left[-1].ended) for at in range(0, 12, 3)]
    file = pq.ParquetFile(io.BytesIO(lsm.merged(iter(files), "it")))
    assert [row["instantTime"] for row in file.read().to_pylist()] == [each.time for each in left]
    assert file.num_row_groups == {1: 4, 250: 4, 1 << 20: 1}[group]


def test_an_archive_that_comes_beside_a_merge_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, _ = written(tmp_path, 1, version=9)
    more(table, 3)
    merged, done = lsm.merged, list[int]()

    def during(*given: Any) -> bytes:
        if not done:
            done.append(1)
            with monkeypatch.context() as patched:
                patched.setattr(archived_timeline, "keep_small", lambda _: None)  # it has not come to that yet
                more(table, 1, 200)
        return merged(*given)

    monkeypatch.setattr(lsm, "merged", during)
    more(table, 1, 150)
    assert done
    times = archived(tmp_path)
    assert (len(times), times) == (5, sorted(set(times)))
    assert ours(table) == theirs(tmp_path)


def test_an_archive_goes_on_behind_one_of_another_program(tmp_path: Path) -> None:
    from test_archived_timeline import archive as jvm_archive

    table, instants = written(tmp_path, 6, version=9)
    jvm_archive(tmp_path, 2)  # one file each, and `_version_`
    before, now = line_of(tmp_path), ours(table)
    assert before.left is not None
    archive(table, 2)
    assert archived(tmp_path)[-2:] == instants[2:4]
    line = line_of(tmp_path)
    assert line.left is not None
    assert not (tmp_path / lsm.VERSION).exists(), "it would say an older number"
    assert (len(line.left.files), line.left.last(), line.first) == (3, line.left.ended, instants[4])
    assert line.left.last() > before.left.last()
    assert quire.recover(table.url).rolled_back == ()
    assert ours(table) == theirs(tmp_path) == now


@pytest.mark.parametrize("manifests", [1, 4])
def test_files_of_another_program_are_merged_also_where_nothing_is_to_be_archived(tmp_path: Path, manifests: int) -> None:
    """It has left `_version_`, which would lead readers to a manifest that is gone."""
    from test_archived_timeline import lay

    table, _ = written(tmp_path, 1, version=9)
    rows = [[(f"202501010000{n:02}000", f"202501010000{n:02}001", "commit")] for n in range(6)]
    for number in range(1, manifests + 1):
        lay(tmp_path, rows, number)
    assert archive(table).instants == 0
    line = line_of(tmp_path)
    assert line.left is not None
    assert [file.layer for file in line.left.files] == [0, 0, 1]
    assert not (tmp_path / lsm.VERSION).exists()
    assert line.left.last() == rows[-1][0][1]
    assert ours(table) == theirs(tmp_path)


@pytest.mark.nth(2)
@pytest.mark.parametrize("merged", [False, True])
def test_a_call_that_has_slept_brings_no_archive_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    table, instants = written(tmp_path, 4, version=9)
    carry_out, calls = archiving.carry_out, list[tuple[Any, ...]]()

    def carried(*given: Any) -> None:
        calls.append(given)
        carry_out(*given)

    store = connect(table.url)
    before = archived_timeline.newest(store)
    with monkeypatch.context() as patched:
        patched.setattr(archiving, "carry_out", carried)
        archive(table)
    more(table, 5 if merged else 1)
    there, times, now = snapshot(tmp_path), archived(tmp_path), ours(table)
    carry_out(*calls[0])
    assert snapshot(tmp_path) == there, "a call that begins late finds its horizon"

    # One that has looked before, and sleeps from then on.
    newest, looks = archived_timeline.newest, [before]
    monkeypatch.setattr(archived_timeline, "_horizon", lambda _: ("", ""))
    monkeypatch.setattr(archived_timeline, "newest", lambda store: looks.pop() if looks else newest(store))
    carry_out(*calls[0])
    monkeypatch.undo()
    assert looks == []
    assert archived(tmp_path) == times
    assert line_of(tmp_path).horizon > instants[3]
    assert ours(table) == theirs(tmp_path) == now
    more(table, 2, 200)
    assert archived(tmp_path) == sorted(set(archived(tmp_path)))
    assert ours(table) == theirs(tmp_path)


def test_what_another_program_has_archived_before_older_writes_is_not_left_out_of_a_restore(tmp_path: Path) -> None:
    """As a savepoint holds these: its rows would stay where all that came later goes."""
    from test_archived_timeline import lay, leave

    table, instants = written(tmp_path, 4, version=9)
    middle = line_of(tmp_path).completed[2]
    lay(tmp_path, [[(middle.time, middle.ended, middle.action)]])
    assert table.restore(instants[2], progress=False).taken_back == (instants[3],), "it is on the timeline, too"
    leave(tmp_path, {middle.time})
    now = ours(table)
    for call in (lambda: table.restore(instants[1], progress=False), lambda: table.rollback(instants[1], progress=False)):
        with refused(quire.errors.RefusedError, 2, f"has archived {middle.time}", instants[1]):
            call()
    assert ours(table) == now, "hudi-rs does not look into archives"


def test_an_archive_comes_where_a_program_has_died_while_it_wrote_one(tmp_path: Path) -> None:
    """A part of a file of the same name is there, which no manifest names."""
    table, instants = written(tmp_path, 3, version=9)
    (tmp_path / lsm.FOLDER).mkdir()
    (tmp_path / lsm.FOLDER / f"{instants[0]}_{instants[1]}_0.parquet").write_bytes(b"PAR1")
    archive(table)
    assert archived(tmp_path) == instants[:2]


def test_a_damaged_archived_timeline_is_said_before_anything_is_committed(tmp_path: Path) -> None:
    """The program died while it wrote a manifest: readers follow `_version_`, and writers go on."""
    from test_archived_timeline import archive as jvm_archive

    table, _ = written(tmp_path, 5, version=9)
    jvm_archive(tmp_path, 1)
    (tmp_path / lsm.manifest(2)).write_bytes(b"{")
    for _ in range(2):
        with refused(FormatError, 2, "manifest_2 is damaged"):
            archive(table)
        write(table, "upsert", frame(("a", "sf", 9, 9.0)))
    (tmp_path / lsm.manifest(2)).unlink()
    assert archive(table, 2).instants == 4
    assert ours(table) == theirs(tmp_path)


def test_what_a_job_keeps_of_an_archive_is_not_believed() -> None:
    good = lsm.encode([lsm.Left("20261122103000000", "20261122103000001", "commit", b"x")], "20261122103000001")
    assert lsm.file_of(good, "it")[2] == "20261122103000001"
    for wrong in (
        b"", b"PAR1 no PAR1", lsm.encode([lsm.Left("../x", "", "commit", b"")], "20261122103000001"),
        lsm.encode([lsm.Left("20261122103000000", "", "commit", b"")], "../x"),
    ):  # fmt: skip
        with refused(FormatError, 2, "is damaged"):
            lsm.file_of(wrong, "it")
    assert lsm.horizons([lsm.MARKER, f"{lsm.FOLDER}/.quire_99999999999999999_20261122103000001"]) == [], "a forged one is not a time"
    assert lsm.horizons([lsm.horizon_name("20261122103000000", "20261122103000001")]) == [("20261122103000000", "20261122103000001")]


def test_what_a_load_has_read_is_not_read_again_once_it_is_archived(tmp_path: Path) -> None:
    from test_into import process, put

    table = Table.create(tmp_path / "t", key="id", partition_by="city", ordering="ts", version=9)
    for n in range(4):
        put(tmp_path / "in", f"{n}.json", (f"k{n}", "sf", n, 1.0))
        process(tmp_path / "in", table)
    archive(table)
    assert process(tmp_path / "in", table).files == 0
    assert quire.Ledger(table.url).verify(spark=LOCAL).ok
    assert len(ours(table)) == 4


# ---------------------------------------------------------------------------------------------------------- deaths and races
def dies(fault: str, at: int) -> bool:
    """An archive dies at its change number `at`, and a next one completes it; False: it came to its end before that."""
    sim.forget_all()
    world = sim.World(kind=sim.TABLES["hdfs"], observe=False)
    with world.installed():
        table = Table.create(world.dest, key="id", partition_by="city", index="simple", version=9)
        for n, rows in enumerate([FIRST, SECOND, *([("b", "sf", n)] for n in range(3, 9))]):
            table.upsert(sim_frame(rows), spark=LOCAL, progress=False)
            if 2 < n < 6:
                table.archive(keep=2, progress=False)  # the next one is the fourth, and they are merged
        rows = seen(outside(world.there()))

        def look(op: str = "", name: str = "") -> None:
            assert seen(outside(world.there())) == rows, f"{op} {name}"

        world.on = look
        dead = sim.Actor(faults={at: fault})
        sim.run(world, dead, lambda: table.archive(keep=1, progress=False))
        with world.acting(sim.Actor("next")):
            table.archive(keep=1, progress=False)
            world.on = lambda *_: None
            table.upsert(sim_frame([("b", "sf", 99)]), spark=LOCAL, progress=False)
            hold(world)
        assert seen(outside(world.there())) == rows | {"b": 99}
        assert not [name for name in world.there() if "/jobs/" in name]
    return bool(dead.hit)


def hold(world: sim.World) -> None:
    """What the log says is on the timeline or archived, each once, and nothing was rolled back."""
    store = world.store(world.dest)
    line = timeline.current(store)
    files = archived_timeline.newest(store)[1]
    left = [row for file in files for row in pq.read_table(io.BytesIO(store.get(file.name))).to_pylist()]
    times = [row[lsm.INSTANT] for row in left]
    assert len(times) == len(set(times)), "an instant is archived twice"
    assert set(times) == {time for time in times if time < line.horizon}
    done = quire.recover(world.dest)
    assert (done.rolled_back, done.lost_updates, done.foreign) == ((), (), ())
    known = {instant for instant, *_ in Log(store).refresh().instant_rows()}
    writes = {row[lsm.INSTANT] for row in left if row[lsm.ACTION] == "commit"} | {each.time for each in line.completed}
    assert writes <= known
    assert len(files) < 2 * archived_timeline.BATCH


@pytest.mark.nth(2)
@pytest.mark.parametrize("fault", ["before", "ambiguous"])
def test_an_archive_that_dies_at_a_change_is_completed_by_the_next(fault: str) -> None:
    """Some changes; the chaos lane takes each of them."""
    for at in range(1 + len(fault) % 2, 1000, 23):
        if not dies(fault, at):
            assert at > 15
            return


@pytest.mark.chaos
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous"])
def test_an_archive_may_die_at_each_change(fault: str) -> None:
    for at in range(1, 1000):
        if not dies(fault, at):
            assert at > 15
            return


def race(seed: int) -> None:
    """Two archive again and again beside a writer; of every other race the first one sleeps somewhere until all others have ended."""
    sim.forget_all()
    world = sim.World(kind=sim.TABLES[list(sim.TABLES)[seed % len(sim.TABLES)]], observe=False)
    world.random.seed(seed)
    with world.installed():
        with world.acting(sim.Actor("first")):
            table = Table.create(world.dest, key="id", partition_by="city", index="simple", version=9)
            for n in range(4):
                table.upsert(sim_frame([("a", "sf", n), ("b", "la", n)]), spark=LOCAL, progress=False)
        order = sim.Scheduler(world, sticky=0.5, sleeps={"archiver 0": world.random.randrange(1, 250)} if seed % 2 else {})

        def keep(archiver: int) -> None:
            for _ in range(3):
                Table(world.dest).archive(keep=1 + archiver, progress=False)

        def writing() -> None:
            for n in range(10, 14):
                Table(world.dest).upsert(sim_frame([("a", "sf", n), (f"w{n}", "la", n)]), spark=LOCAL, progress=False)

        order.add(sim.Actor("archiver 0"), lambda: keep(0))
        order.add(sim.Actor("archiver 1"), lambda: keep(1))
        order.add(sim.Actor("writer"), writing)
        ended = order.run()
        assert not any(ended.values()), ended
        world.settle()
        with world.acting(sim.Actor("last")):
            Table(world.dest).archive(keep=1, progress=False)
            hold(world)
        assert seen(outside(world.there())) == {"a": 13, "b": 3, "w10": 10, "w11": 11, "w12": 12, "w13": 13}, world.told()


@pytest.mark.parametrize("seed", [0, 1])
def test_archives_beside_each_other_and_a_writer_lose_nothing(seed: int) -> None:
    race(seed)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_archives_lose_nothing_in_any_order() -> None:
    for seed in range(2, 150):
        race(seed)
