"""Clustering: fewer, larger files, sorted as asked, of the same rows, as quire and hudi-rs read them, whoever writes meanwhile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_chain import doubled, twice
from test_table_crash import FORMS, NAMES, Story
from test_writes import LOCAL, create, frame, ours, theirs, write

import quire
import sim
from gathering import refused
from quire.commit import protocol
from quire.errors import RefusedError, StorageError, UsageError
from quire.storage import connect
from quire.storage.within import marked
from quire.table import file_groups, timeline
from quire.table.file_groups import Slice
from quire.table.format import base_file, names
from quire.table.table import Table
from quire.table.write import cluster as tasks
from sim.tables import frame as few
from sim.tables import outside, seen

PLACES = (("a", "la"), ("b", "la"), ("c", "sf"), ("d", "sf"))
LOGS = {"type": "merge_on_read"}
NINE = {"version": 9}
HOW = pytest.mark.parametrize("how", [{}, LOGS, NINE], ids=["base", "logs", "version 9"])


def cluster(table: Table, **more: Any) -> Any:
    return table.cluster(spark=LOCAL, progress=False, **more)


def test_a_call_reads_each_footer_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To choose files, and to say what is left: of a table of very many files, most of them sorted, these are the requests of a call."""
    table = create(tmp_path)
    for n in range(3):
        table.bulk_insert(frame((f"a{n}", "sf", n, 1.0), (f"b{n}", "la", n, 1.0)), spark=LOCAL, progress=False)
    cluster(table, sort="ts")
    table.bulk_insert(frame(("z", "sf", 9, 1.0)), spark=LOCAL, progress=False)
    read, asked = base_file.read_footer, list[str]()

    def counted(file: Any, where: str) -> Any:
        asked.append(where.rpartition("/")[2])
        return read(file, where)

    monkeypatch.setattr(base_file, "read_footer", counted)
    before = {one.name.rpartition("/")[2] for one in slices(table)}
    report = cluster(table, sort="ts")
    assert (report.file_groups, report.left) == (2, 0)
    after = {one.name.rpartition("/")[2] for one in slices(table)}
    assert len(before & after) == 1, "the partition in which nothing has changed stays as it is"
    assert sorted(asked) == sorted(before | after)


def slices(table: Table) -> list[Slice]:
    store = connect(table.url)
    return file_groups.newest(store, timeline.current(store), logs=True)


def scattered(folder: Path, **how: Any) -> Table:
    """Twelve rows in six files of two partitions; of a merge-on-read table two have logs, of others two are of later commits."""
    table = create(folder, **how)
    for n in range(3):
        write(table, "bulk_insert", frame(*((f"{letter}{n}", city, 1, float(n)) for letter, city in PLACES)))
    write(table, "upsert", frame(("c0", "sf", 5, 50.0), ("a1", "la", 5, 51.0)))
    write(table, "delete", frame(("b2", "la", 6, 0.0)))
    return table


def cluster_times(table: Table) -> dict[str, tuple[str, str]]:
    rows = table.snapshot(spark=LOCAL).to_pylist()
    return {row["id"]: (row["_hoodie_commit_time"], row["_hoodie_commit_seqno"]) for row in rows}


@pytest.mark.nth(3)
@HOW
def test_small_files_become_few_and_each_row_stays_as_it_was(tmp_path: Path, how: dict[str, Any]) -> None:
    folder = tmp_path / "t"
    table = scattered(folder, **how)
    rows, times, groups = ours(table), cluster_times(table), {one.group for one in slices(table)}
    before = list(timeline.current(connect(table.url)).completed)[-1].time
    foreseen = cluster(table, dry_run=True)
    assert (foreseen.file_groups, foreseen.dry_run, foreseen.files, len(slices(table))) == (6, True, 0, 6)
    report = cluster(table)
    assert (report.file_groups, report.files, report.rows, report.left, len(report.instants)) == (6, 2, 11, 0, 1)
    assert (report.read, report.dest) == (foreseen.read, table.url)
    assert ours(table) == theirs(folder) == rows
    assert cluster_times(table) == times, "rows keep the commits that wrote them"
    now = slices(table)
    assert [(one.partition, one.logs) for one in now] == [("city=la", ()), ("city=sf", ())]
    assert not groups & {one.group for one in now}
    for one in now:
        keys = pq.read_table(folder / one.name).column("_hoodie_record_key").to_pylist()
        assert keys == sorted(keys), "by record keys, where no sort is asked for"
    assert ours(table.as_of(before)) == rows, "older instants keep the old files"
    line = timeline.current(connect(table.url))
    said = line.commit(line.completed[-1])
    assert (line.completed[-1].time, line.completed[-1].action) == (report.instants[0], "replacecommit")
    assert (said.operation_type, said.replaced.keys()) == ("CLUSTER", {"city=la", "city=sf"})
    assert {group for ids in said.replaced.values() for group in ids} == groups
    asked = "clustering" if how == NINE else "replacecommit"  # as JVM Hudi 1.x calls it until it has completed
    assert {f"{report.instants[0]}.{asked}.{state}" for state in ("requested", "inflight")} < {
        p.name for p in (folder / line.folder).iterdir()
    }
    assert cluster(table).instants == (), "there is nothing left to do"
    last = table.timeline().iloc[-1]
    assert (last.operation, last.inserted, last.updated, last.deleted) == ("cluster", 0, 0, 0)

    write(table, "upsert", frame(("c0", "sf", 7, 70.0), ("n", "sf", 7, 7.0), ("b1", "la", 7, 71.0)))
    write(table, "delete", frame(("b0", "la", 9, 0.0)))
    assert ours(table) == theirs(folder)
    fares = {key: row["fare"] for key, row in ours(table).items()}
    assert fares == {key: row["fare"] for key, row in rows.items() if key != "b0"} | {"c0": 70.0, "n": 7.0, "b1": 71.0}
    table.clean(versions=1, progress=False)
    assert ours(table) == theirs(folder)
    assert not [one for one in (folder / "city=sf").iterdir() if names.file(one.name) and names.file(one.name).file_id in groups]  # type: ignore[union-attr]


@pytest.mark.nth(3)
@HOW
def test_changes_and_chains_tell_nothing_of_a_clustering(tmp_path: Path, how: dict[str, Any]) -> None:
    table = scattered(tmp_path / "t", **how)
    copy = create(tmp_path / "copy")
    feed = {"spark": LOCAL, "progress": False}
    quire.process(table, copy, doubled, **feed)
    before = list(timeline.current(connect(table.url)).completed)[-1].time
    cluster(table)
    assert table.changes(before, spark=LOCAL).num_rows == 0
    quire.process(table, copy, doubled, **feed)
    assert len(timeline.current(connect(copy.url)).completed) == 1, "there was nothing to pass on"
    write(table, "upsert", frame(("c0", "sf", 7, 70.0)))
    changed = table.changes(before, spark=LOCAL).to_pylist()
    assert [row["after"]["id"] for row in changed] == ["c0"]
    quire.process(table, copy, doubled, **feed)
    assert ours(copy) == twice(ours(table))


ROWS = 4_000


def spread(folder: Path, files: int = 4, **how: Any) -> Table:
    """Rows of two columns that know nothing of one another, in files of which each has all of their values."""
    table = create(folder, partition_by=None, **how)
    for n in range(files):
        ids = range(n, ROWS, files)
        columns = {
            "id": [f"{i:05}" for i in ids], "city": [f"c{i * 7919 % 64:02}" for i in ids], "ts": [i * 104_729 % 64 for i in ids],
            "fare": [float(i) for i in ids],
        }  # fmt: skip
        write(table, "bulk_insert", pa.table(columns))
    return table


def missed(table: Table, column: str, wanted: Any) -> float:
    """The share of row groups that a reader of one value passes over."""
    ends, name = list[tuple[Any, Any]](), table.url.removeprefix("file://")
    for one in slices(table):
        file = pq.ParquetFile(f"{name}/{one.name}")
        at = file.schema_arrow.names.index(column)
        stats = [file.metadata.row_group(i).column(at).statistics for i in range(file.num_row_groups)]
        ends += [(each.min, each.max) for each in stats]
    return sum(not low <= wanted <= high for low, high in ends) / len(ends)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups, and ranges of a sort, of a hundred rows or so."""
    from quire.table.format import base_file
    from quire.table.write import spills

    init = base_file.BaseFileWriter.__init__
    monkeypatch.setattr(base_file.BaseFileWriter, "__init__", lambda *args, **more: init(*args, **{**more, "group": 16 << 10}))
    monkeypatch.setattr(tasks, "BLOCK", 64 << 10)
    monkeypatch.setattr(spills, "STEP", 4 << 10)


@pytest.mark.nth(3)
@pytest.mark.usefixtures("small_groups")
@pytest.mark.parametrize("curve", ["linear", "z-order", "hilbert"])
def test_readers_of_few_values_pass_over_most_row_groups(tmp_path: Path, curve: str) -> None:
    table = spread(tmp_path / "t")
    rows = ours(table)
    assert max(missed(table, "city", "c07"), missed(table, "ts", 7)) < 0.2
    report = cluster(table, sort=["city", "ts"], curve=curve)
    assert (report.file_groups, report.rows, report.sort, report.curve) == (4, ROWS, ("city", "ts"), curve)
    assert ours(table) == theirs(tmp_path / "t") == rows
    shares = missed(table, "city", "c07"), missed(table, "ts", 7)
    if curve == "linear":
        assert shares[0] > 0.9
        whole = pa.concat_tables(pq.read_table(tmp_path / "t" / one.name) for one in slices(table))
        places = list(zip(*(whole.column(name).to_pylist() for name in ("city", "ts", "id")), strict=True))
        assert places == sorted(places)
    else:
        assert min(shares) > 0.5, shares
    assert cluster(table, sort=["city", "ts"], curve=curve).instants == (), "the files say how they are sorted"
    assert cluster(table).instants == (), "as the newest clustering has it"
    write(table, "upsert", pa.table({"id": ["00007"], "city": ["c64"], "ts": [99], "fare": [0.0]}))
    again = cluster(table, sort=["city", "ts"], curve=curve)
    assert (again.file_groups, again.rows) == (1, ROWS)
    assert cluster(table, sort="ts").file_groups == 1, "another order is another clustering"


def test_large_files_are_sorted_in_pieces_and_small_ones_gathered(tmp_path: Path) -> None:
    table = spread(tmp_path / "t", target_size="20 KB")
    sizes = [one.size for one in slices(table)]
    whole = ours(table)
    piece = cluster(table, sort="ts", plan_size=sum(sizes) * 7 // 10)  # of three files, and of two
    assert (piece.file_groups, len(piece.instants) > 1, piece.rows) == (len(sizes), True, ROWS)
    assert min(one.size for one in slices(table)) > max(sizes)
    limited = cluster(table, sort="city", plan_size=1, time_limit=0.001)
    assert (limited.file_groups, limited.left > 0) == (1, True)
    assert cluster(table, sort="city").left == 0
    assert ours(table) == theirs(tmp_path / "t") == whole


def test_a_clustering_of_another_program_changes_no_row(tmp_path: Path) -> None:
    table = scattered(tmp_path / "t")
    (instant,) = cluster(table).instants
    theirs = tmp_path / "t" / ".hoodie" / f"{instant}.replacecommit"
    said = json.loads(theirs.read_text())
    for stats in said["partitionToWriteStats"].values():
        stats[0]["numInserts"] = stats[0]["numWrites"]  # as JVM Hudi has it
    theirs.write_text(json.dumps(said))
    last = table.timeline().iloc[-1]
    assert (last.operation, last.inserted, last.updated, last.deleted) == ("cluster", 0, 0, 0)


@pytest.mark.nth(5)
@pytest.mark.parametrize("sort", [["gone", "ts"], ["ts"], ["tags", "ts"], ["ts", "ts"], list("abcdefghi")], ids=str)
def test_what_another_program_says_of_the_last_clustering_is_not_believed(tmp_path: Path, sort: list[str]) -> None:
    table = create(tmp_path / "t")
    write(table, "upsert", pa.table({"id": ["a"], "city": ["sf"], "ts": [1], "fare": [1.0], "tags": [["x"]]}))
    write(table, "bulk_insert", pa.table({"id": ["b"], "city": ["sf"], "ts": [1], "fare": [1.0], "tags": [["y"]]}))
    (instant,) = cluster(table, sort=["ts", "fare"], curve="hilbert").instants
    forged = tmp_path / "t" / ".hoodie" / f"{instant}.replacecommit"
    said = json.loads(forged.read_text())
    said["extraMetadata"]["quire.layout"] = json.dumps({"curve": "hilbert", "sort": sort})
    forged.write_text(json.dumps(said))
    write(table, "bulk_insert", pa.table({"id": ["c"], "city": ["sf"], "ts": [1], "fare": [1.0], "tags": [["z"]]}))
    report = cluster(table)
    assert (report.file_groups, report.sort, report.curve, len(ours(table))) == (2, (), "linear", 3)


def killed(table: Table, monkeypatch: pytest.MonkeyPatch, **more: Any) -> None:
    """A clustering whose process dies while it sorts: nothing of it is cleaned."""

    def dies(*_: Any, **__: Any) -> Any:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(tasks, "sort", dies)
        patch.setattr(protocol, "abort", lambda *_: None)
        with pytest.raises(SystemExit):
            cluster(table, **more)
    assert len(open_ones(table)) == 1


def open_ones(table: Table) -> list[str]:
    store = connect(marked(table.url))
    return [head.job for head in protocol.open_jobs(store, protocol.recover(store))]


@pytest.mark.nth(4)
@pytest.mark.parametrize("then", [{}, {"partitions": "sf"}, {"sort": "ts"}], ids=str)
def test_a_call_that_died_is_completed_and_the_next_one_does_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, then: dict[str, Any]
) -> None:
    table = scattered(tmp_path / "t")
    rows = ours(table)
    killed(table, monkeypatch, partitions="la")
    cluster(table, **then)
    assert open_ones(table) == []
    assert [one.partition for one in slices(table)] == ["city=la", "city=sf"]
    if "sort" in then:
        assert cluster(table, **then).instants == ()
    assert ours(table) == theirs(tmp_path / "t") == rows


def test_a_call_without_a_sort_goes_on_as_the_one_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = scattered(tmp_path / "t")
    killed(table, monkeypatch, sort=["ts", "fare"], curve="hilbert")
    report = cluster(table)
    assert (report.sort, report.curve, report.file_groups, report.left) == (("ts", "fare"), "hilbert", 6, 0)


def test_a_clustering_whose_columns_a_restore_took_away_hinders_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = scattered(tmp_path / "t")
    before = list(timeline.current(connect(table.url)).completed)[-1].time
    write(table, "bulk_insert", pa.table({"id": ["n"], "city": ["la"], "ts": [1], "fare": [1.0], "late": [1]}))
    killed(table, monkeypatch, sort=["late", "ts"], curve="hilbert")
    table.restore(before, progress=False)
    rows = ours(table)
    assert cluster(table).file_groups == 6
    assert (open_ones(table), ours(table)) == ([], rows)
    assert theirs(tmp_path / "t") == rows


def test_a_clustering_whose_file_groups_have_ended_hinders_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = scattered(tmp_path / "t")
    killed(table, monkeypatch, partitions="la")
    table.insert_overwrite(frame(("z", "la", 1, 1.0)), spark=LOCAL, progress=False)
    assert "has not ended" in table.maintain(dry_run=True).due["cluster"]
    report = table.maintain(spark=LOCAL, progress=False)
    assert (report.hindered, open_ones(table)) == ({}, [])
    assert [one.partition for one in slices(table)] == ["city=la", "city=sf"]


def test_a_piece_of_small_files_is_never_one_file_alone(tmp_path: Path) -> None:
    table = create(tmp_path / "t", partition_by=None, target_size="20 KB")
    for n in range(5):
        count = 300 + n
        ids = [f"{n}-{i:05}" for i in range(count)]
        write(table, "bulk_insert", pa.table({"id": ids, "city": ["x"] * count, "ts": [n] * count, "fare": [1.0] * count}))
    report = cluster(table, plan_size=1)
    assert (report.file_groups, report.files < 5, report.left) == (5, True, 0)
    assert cluster(table, plan_size=1).instants == ()
    assert "cluster" not in table.maintain(dry_run=True, small_files=1).due


@pytest.mark.usefixtures("small_groups")
def test_a_curve_sees_all_of_a_file_whose_rows_ascend(tmp_path: Path) -> None:
    table = create(tmp_path / "t", partition_by=None)
    columns = {
        "id": [f"{i:05}" for i in range(ROWS)],
        "city": ["x"] * ROWS,
        "ts": list(range(ROWS)),
        "fare": [float(i * 7919 % 1000) for i in range(ROWS)],
    }
    write(table, "bulk_insert", pa.table(columns))
    cluster(table, sort=["ts", "fare"], curve="hilbert")
    assert missed(table, "ts", ROWS - 5) > 0.5
    assert missed(table, "fare", 5.0) > 0.5


@pytest.mark.nth(2)
@pytest.mark.parametrize("curve", ["linear", "z-order"])
def test_slices_of_logs_alone_are_clustered(tmp_path: Path, curve: str) -> None:
    table = create(tmp_path / "t", **LOGS)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "la", 1, 2.0)))
    write(table, "upsert", frame(("a", "sf", 2, 3.0), ("b", "la", 2, 4.0)))
    for one in slices(table):
        (tmp_path / "t" / one.name).unlink()
    rows = ours(table)
    assert cluster(table, sort=["ts", "fare"], curve=curve).rows == 2
    assert ours(table) == theirs(tmp_path / "t") == rows


def test_the_order_is_known_when_its_instant_was_archived(tmp_path: Path) -> None:
    table = scattered(tmp_path / "t")
    cluster(table, sort="fare")
    write(table, "bulk_insert", frame(("n", "sf", 1, 1.0)))
    table.clean(versions=1, progress=False)
    assert table.archive(keep=1, progress=False).instants
    assert cluster(table).sort == ("fare",)


@pytest.mark.parametrize("how", [{}, {"cdc": "data_before_after"}], ids=["plain", "with CDC logs"])
def test_a_key_that_stands_twice_in_one_file_is_updated_and_deleted(tmp_path: Path, how: dict[str, Any]) -> None:
    table = create(tmp_path / "t", **how)
    write(table, "upsert", frame(("a", "sf", 1, 1.0), ("b", "sf", 1, 1.0)))
    last = write(table, "bulk_insert", frame(("a", "sf", 2, 2.0), ("c", "sf", 2, 2.0)))
    assert cluster(table).files == 1

    def there() -> list[tuple[str, int]]:
        rows = table.snapshot(spark=LOCAL)
        return sorted(zip(rows.column("id").to_pylist(), rows.column("ts").to_pylist(), strict=True))

    assert there() == [("a", 1), ("a", 2), ("b", 1), ("c", 2)]
    done = write(table, "upsert", frame(("a", "sf", 3, 3.0), ("d", "sf", 3, 3.0)))
    assert (done.inserted, done.updated, done.stale) == (1, 2, 0)
    late = write(table, "upsert", frame(("a", "sf", 2, 0.0)))
    assert (late.updated, late.stale, there()) == (0, 2, [("a", 3), ("a", 3), ("b", 1), ("c", 2), ("d", 3)])
    assert write(table, "delete", frame(("a", "sf", 4, 0.0))).deleted == 2
    assert there() == [("b", 1), ("c", 2), ("d", 3)]
    told = table.changes(last.instant, spark=LOCAL).to_pylist()
    assert sorted((each["op"], each["_hoodie_record_key"]) for each in told) == [("d", "a"), ("i", "d")]


def test_one_partition_alone_may_be_clustered(tmp_path: Path) -> None:
    table = scattered(tmp_path / "t")
    assert cluster(table, partitions="sf").file_groups == 3
    assert [one.partition for one in slices(table)] == ["city=la"] * 3 + ["city=sf"]
    with pytest.raises(UsageError, match="has no partition 'city=xx'"):
        cluster(table, partitions="xx")


def test_all_rows_may_be_deleted_by_logs(tmp_path: Path) -> None:
    table = create(tmp_path / "t", **LOGS)
    for n in range(2):
        write(table, "bulk_insert", frame((f"a{n}", "sf", 1, 1.0)))
    write(table, "delete", frame(("a0", "sf", 2, 0.0), ("a1", "sf", 2, 0.0)))
    report = cluster(table)
    assert (report.file_groups, report.files, report.rows) == (2, 0, 0)
    assert ours(table) == theirs(tmp_path / "t") == {}
    write(table, "upsert", frame(("a0", "sf", 1, 4.0)))
    assert ours(table) == theirs(tmp_path / "t") == {"a0": {"id": "a0", "city": "sf", "ts": 1, "fare": 4.0}}


@pytest.mark.nth(2)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sort": "nothing"}, ["'nothing'", "not a column", "id, city, ts, fare"]),
        ({"sort": ["ts", "ts"]}, ["twice"]),
        ({"sort": 7}, ["sort takes the name of a column"]),
        ({"sort": ["tags"]}, ["'tags'", "cannot be sorted by list"]),
        ({"sort": "ts", "curve": "hilbert"}, ["2 to 8 columns"]),
        ({"curve": "peano"}, ["curve", "'peano'", "hilbert"]),
        ({"plan_size": "much"}, ["plan_size"]),
        ({"time_limit": 0}, ["time_limit is 0"]),
    ],
    ids=str,
)  # fmt: skip
def test_wrong_arguments_are_one_line(tmp_path: Path, given: dict[str, Any], words: list[str]) -> None:
    table = create(tmp_path / "t")
    rows = pa.table({"id": ["a"], "city": ["sf"], "ts": [1], "fare": [1.0], "tags": [["x"]]})
    write(table, "upsert", rows)
    with pytest.raises(UsageError) as e:
        cluster(table, **given)
    refused(str(e.value), *words)


def test_tables_that_cannot_be_clustered_say_so(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as e:
        cluster(create(tmp_path / "b", index="bucket", buckets=2))
    refused(str(e.value), "index bucket", "cannot be laid out anew")
    table = scattered(tmp_path / "t")
    with pytest.raises(UsageError, match="is read, not written"):
        cluster(table.as_of(list(timeline.current(connect(table.url)).completed)[-1].time))
    (tmp_path / "t" / ".hoodie" / "20990101000000000.deltacommit.requested").touch()
    with pytest.raises(RefusedError) as e:
        cluster(table)
    refused(str(e.value), "another program has begun to write", "20990101000000000")
    assert len(slices(table)) == 6
    assert cluster(create(tmp_path / "empty")).instants == ()


def test_a_file_group_of_a_pending_plan_is_left_to_its_compaction(tmp_path: Path) -> None:
    table = scattered(tmp_path / "t", **LOGS)
    planned = table.schedule_compaction()
    report = cluster(table)
    assert (report.file_groups, len(planned.scheduled)) == (2, 1), "of the six three have logs, and one is alone in its partition"
    rows = ours(table)
    table.compact(spark=LOCAL, progress=False)
    assert ours(table) == theirs(tmp_path / "t") == rows
    assert cluster(table).file_groups == 5
    assert ours(table) == theirs(tmp_path / "t") == rows


@pytest.mark.nth(2)
@pytest.mark.parametrize("version", [6, 9])
def test_a_clustering_is_not_rolled_back_and_a_restore_passes_it(tmp_path: Path, version: int) -> None:
    table = scattered(tmp_path / "t", version=version)
    rows, before = ours(table), list(timeline.current(connect(table.url)).completed)[-1].time
    (instant,) = cluster(table).instants
    with pytest.raises(RefusedError) as e:
        table.rollback(progress=False)
    refused(str(e.value), f"{instant}", "is a clustering", "nothing to roll back")
    write(table, "upsert", frame(("c0", "sf", 9, 90.0)))
    report = table.restore(before, progress=False)
    assert (len(report.taken_back), report.batches) == (2, 1)
    assert ours(table) == theirs(tmp_path / "t") == rows
    assert not [path for path in (tmp_path / "t/.hoodie").rglob(f"{instant}*") if path.is_file()], "also what it was called before"
    assert cluster(table).file_groups == 6


# ----------------------------------------------------------------------------------------------------- beside others, and deaths
def many(story: Story) -> None:
    for n in range(4):
        table = Table(story.world.dest)
        table.bulk_insert(few([(f"{letter}{n}", "sf", n) for letter in "ab"]), spark=LOCAL, progress=False)
    story.call([("a1", "sf", 1)], None)


def crash(kind: sim.Kind, at: int, fault: str, *, logs: bool = False, version: int = 6) -> bool:
    """A clustering dies at its change number `at`, and is called again; False: it came to its end before that."""
    story = Story(kind, logs=logs, version=version)
    world = story.world
    with world.installed():
        story.create()
        many(story)
        whole = seen(outside(world.there()))
        assert len(whole) == 8

        def look(op: str = "", name: str = "") -> None:
            assert seen(outside(world.there())) == whole, f"after {op} {name}"

        world.on = look
        dead = sim.Actor(faults={at: fault})
        ended = sim.run(world, dead, lambda: cluster(Table(world.dest)))
        if fault in ("before", "after", "torn"):
            assert dead.hit == [] or isinstance(ended, sim.Crash), world.told()
        elif not isinstance(ended, StorageError):
            assert not isinstance(ended, BaseException), f"{ended!r}\n{world.told()}"
        with world.acting(sim.Actor("next")):
            cluster(Table(world.dest))
            store = world.store(world.dest)
            assert len(file_groups.newest(store, timeline.current(store))) == 1, world.told()
            protocol.recover(store, "open")
        look()
        assert ([name for name in world.there() if "/jobs/" in name], world.waiting()) == ([], []), "nothing is left of what died"
    return bool(dead.hit)


@pytest.mark.nth(12)
@pytest.mark.parametrize("logs", [False, True], ids=["base", "logs"])
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous"])
@pytest.mark.parametrize("name", ["hdfs", "s3"])
def test_a_clustering_that_dies_at_a_change_takes_no_row_and_doubles_none(name: str, fault: str, *, logs: bool) -> None:
    """Some changes; the chaos lane takes each of them, on every kind of store."""
    for at in range(1 + len(fault), 1000, 23):
        if not crash(sim.TABLES[name], at, fault, logs=logs):
            assert at > 15
            return


@pytest.mark.seldom
def test_a_clustering_of_a_table_of_version_9_that_dies_takes_no_row_and_doubles_none() -> None:
    for at in range(5, 1000, 31):
        if not crash(sim.TABLES["s3"], at, "after", version=9):
            assert at > 15
            return


@pytest.mark.chaos
@pytest.mark.parametrize(("logs", "version"), FORMS, ids=NAMES)
@pytest.mark.parametrize("fault", ["before", "after", "ambiguous", "transient", "late"])
@pytest.mark.parametrize("kind", sim.TABLES.values(), ids=str)
def test_a_clustering_may_die_at_each_change_on_every_kind_of_store(kind: sim.Kind, fault: str, version: int, *, logs: bool) -> None:
    for at in range(1, 1000):
        if not crash(kind, at, fault, logs=logs, version=version):
            assert at > 12
            return


@pytest.mark.nth(6)
@pytest.mark.parametrize(("logs", "version"), FORMS, ids=NAMES)
@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(n, marks=pytest.mark.chaos) for n in range(3, 60))])
def test_writers_and_clusterings_at_once_lose_no_update(seed: int, version: int, *, logs: bool) -> None:
    story = Story(sim.TABLES["hdfs"], logs=logs, version=version)
    world = story.world
    world.random.seed(seed)
    with world.installed():
        story.create()
        many(story)
        order = sim.Scheduler(world, sticky=0.7, sleeps={})
        for n in (10, 20):
            rows = [("a0", "sf", n), (f"b{n // 10}", "sf", n), (f"own{n}", "sf", n)]
            order.add(sim.Actor(f"writer{n}"), lambda rows=rows: story.call(rows, None))
        order.add(sim.Actor("first"), lambda: cluster(Table(world.dest)))
        order.add(sim.Actor("second"), lambda: cluster(Table(world.dest), sort="n"))
        ended = order.run()
        assert not any(ended.values()), ended
        now = seen(outside(world.there()))
        assert now["a0"] in (10, 20), world.told()
        assert {**now, "a0": 0} == {
            "a0": 0, "a1": 1, "a2": 2, "a3": 3, "b0": 0, "b1": 10, "b2": 20, "b3": 3, "own10": 10, "own20": 20,
        }, world.told()  # fmt: skip


@pytest.mark.parametrize("name", ["_quire_place", "_quire_deletes"])
def test_a_name_that_rows_have_on_their_way_is_refused_as_they_come(tmp_path: Path, name: str) -> None:
    table = create(tmp_path / "t")
    with pytest.raises(UsageError) as e:
        write(table, "upsert", pa.table({"id": ["a"], "city": ["sf"], "ts": [1], "fare": [1.0], name: [1]}))
    refused(str(e.value), f"'{name}'", "give it one without '_quire_'")
