"""A write of rows is one commit, whatever dies and however many write at once; a batch counts once."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from writes import begin, end, listed, read, rows, there, write

import quire
import sim
from gathering import refused
from quire.commit import names, protocol
from quire.commit.log import Log
from quire.errors import QuireError, RefusedError, UsageError
from quire.read.content import content
from quire.sources.splits import FileInfo
from quire.storage import connect, destination
from quire.write import columns
from quire.write import writing as steps
from quire.write.attempt import attempt
from sim.drivers import run
from sim.kinds import KINDS
from sim.ways import changing
from sim.world import Actor, Crash, World

LOCAL = quire.LocalRunner()


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    sim.forget_all()
    yield
    sim.forget_all()


def test_modes(tmp_path: Path) -> None:
    write(tmp_path, [rows(1, 2)], [rows(3)], [])
    write(tmp_path, [rows(4)])
    assert there(tmp_path) == listed(tmp_path) == [1, 2, 3, 4]
    write(tmp_path, [rows(5)], [rows(6)], overwrite=True)
    assert there(tmp_path) == listed(tmp_path) == [5, 6], "what was superseded has left the directory"
    write(tmp_path, [], overwrite=True)
    assert there(tmp_path) == listed(tmp_path) == []
    write(tmp_path, [rows(7)])
    assert there(tmp_path) == listed(tmp_path) == [7]
    assert quire.Ledger(tmp_path).verify().ok


def test_partitions_are_directories_and_only_those_touched_are_superseded(tmp_path: Path) -> None:
    mixed = pa.concat_batches([rows(1, k="a"), rows(2, 3, k="b/c"), rows(4, k="a")])
    missing = pa.record_batch({"id": [5], "k": pa.array([None], pa.string())})
    write(tmp_path, [mixed, missing], by=("k",))
    folders = {p.name for p in tmp_path.iterdir() if p.name != "_quire"}
    assert folders == {"k=a", "k=b%2Fc", "k=__HIVE_DEFAULT_PARTITION__"}
    write_partitions(tmp_path, [rows(6, k="a")])
    assert there(tmp_path) == listed(tmp_path) == [2, 3, 5, 6]
    write_partitions(tmp_path, [])
    assert there(tmp_path) == [2, 3, 5, 6], "no rows touch no partition"


def write_partitions(dest: Path, *tasks: Any) -> None:
    write(dest, *tasks, by=("k",), mode="partitions")


def test_a_batch_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, [rows(1)], batch="monday")
    write(tmp_path, [rows(1)], batch="monday")
    assert "batch 'monday' was committed before: skipped" in capsys.readouterr().err
    assert there(tmp_path) == [1]
    write(tmp_path, [rows(2)], batch="tuesday", overwrite=True)
    write(tmp_path, [rows(1)], batch="monday")
    assert there(tmp_path) == [2], "a late repetition does not bring back what was overwritten"
    assert [x.path for x in quire.Ledger(tmp_path).locate("batch:monday")] == ["batch:monday"]
    quire.Ledger(tmp_path).forget("batch:tuesday", spark=LOCAL)
    assert there(tmp_path) == listed(tmp_path) == []
    write(tmp_path, [rows(2)], batch="tuesday")
    assert there(tmp_path) == listed(tmp_path) == [2], "and what was forgotten can be written again"


def test_two_drivers_with_one_batch_leave_one_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = begin(tmp_path, batch="b"), begin(tmp_path, batch="b")
    assert one is not None
    assert other is not None
    mine, theirs = [attempt(one, 0, [rows(1)]), attempt(one, 1, [rows(2)])], [attempt(other, 0, [rows(2, 1)])]
    end(other, theirs)
    end(one, mine)
    assert "batch:b was committed before, or by another call: skipped" in capsys.readouterr().err
    assert there(tmp_path) == listed(tmp_path) == [1, 2]
    assert quire.Ledger(tmp_path).open_jobs() == ()
    assert not list((tmp_path / "_quire/jobs").rglob("*.staged"))


def test_two_drivers_that_overwrite_leave_the_rows_of_the_last_one(tmp_path: Path) -> None:
    write(tmp_path, [rows(1)])
    one, other = begin(tmp_path, overwrite=True), begin(tmp_path, overwrite=True)
    assert one is not None
    assert other is not None
    results = [attempt(one, 0, [rows(2)])], [attempt(other, 0, [rows(3)])]
    write(tmp_path, [rows(4)])
    end(one, results[0])
    assert there(tmp_path) == [2]
    end(other, results[1])
    assert there(tmp_path) == listed(tmp_path) == [3]


def test_an_append_between_the_look_and_the_entry_is_superseded_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [rows(1)])
    begun = begin(tmp_path, overwrite=True)
    assert begun is not None
    done, before, once = [attempt(begun, 0, [rows(2)])], steps.live, list[int]()

    def looks(*given: Any) -> Any:
        found = list(before(*given))
        if not once:
            once.append(1)
            write(tmp_path, [rows(3)])
        return iter(found)

    monkeypatch.setattr(steps, "live", looks)
    end(begun, done)
    assert there(tmp_path) == listed(tmp_path) == [2]


@pytest.mark.parametrize("lost", [False, True])
def test_files_that_are_put_together_while_their_columns_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool) -> None:
    write(tmp_path, [rows(1)], [rows(2)])
    before, once = columns.live, list[str]()

    def looks(*given: Any) -> Any:
        found = list(before(*given))
        if not once:
            once.extend(file.name for file in found)
            if lost:
                (tmp_path / found[0].name).unlink()
            else:
                quire.Ledger(tmp_path).compact(spark=LOCAL, progress=False)
                assert not any((tmp_path / name).exists() for name in once)
        return iter(found)

    monkeypatch.setattr(columns, "live", looks)
    if lost:
        with pytest.raises(QuireError, match="it is not there"):
            write(tmp_path, [rows(3)])
    else:
        write(tmp_path, [rows(3)])
        assert there(tmp_path) == listed(tmp_path) == [1, 2, 3]


def test_of_two_attempts_that_which_spark_names_counts(tmp_path: Path) -> None:
    begun = begin(tmp_path)
    assert begun is not None
    _, second, other = attempt(begun, 0, [rows(1)]), attempt(begun, 0, [rows(1)]), attempt(begun, 1, [rows(2)])
    end(begun, [other, second])
    assert there(tmp_path) == listed(tmp_path) == [1, 2]
    late = attempt(begun, 0, [rows(1)])  # of a task that nobody waits for
    assert late.data_files
    protocol.recover(connect(destination(tmp_path), None))
    assert listed(tmp_path) == [1, 2]
    assert not (tmp_path / "_quire/jobs" / begun.job).exists()


def test_a_task_that_fails_leaves_nothing_and_runs_again(tmp_path: Path) -> None:
    begun = begin(tmp_path)
    assert begun is not None

    def breaks() -> Iterator[pa.RecordBatch]:
        yield rows(*range(1000))
        raise OSError("the shuffle is gone")

    with pytest.raises(OSError, match="shuffle"):
        attempt(begun, 0, breaks())
    assert not list(tmp_path.rglob("*.staged"))
    end(begun, [attempt(begun, 0, [rows(1)])])
    assert there(tmp_path) == [1]


def test_a_write_that_is_given_up_leaves_nothing(tmp_path: Path) -> None:
    begun = begin(tmp_path)
    assert begun is not None
    done = attempt(begun, 0, [rows(1)])
    assert quire.Ledger(tmp_path).open_jobs() == (begun.job,)
    steps.give_up(begun.store, begun.job, "the job that wrote has failed")
    assert quire.Ledger(tmp_path).open_jobs() == ()
    assert not list(tmp_path.rglob("*.staged"))
    with pytest.raises(QuireError, match=r"was given up \(the job that wrote has failed\): nothing of it is visible. Write again."):
        end(begun, [done])
    assert there(tmp_path) == []


def test_a_dead_write_is_in_nobodys_way_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [rows(1)])
    dead = [begin(tmp_path), begin(tmp_path, batch="b")]
    for each in dead:
        assert each is not None
        attempt(each, 0, [rows(9)])
    write(tmp_path, [rows(2)])
    quire.Ledger(tmp_path).compact(spark=LOCAL)
    assert len(quire.Ledger(tmp_path).open_jobs()) == 2
    write(tmp_path, [rows(3)], batch="b")
    assert len(quire.Ledger(tmp_path).open_jobs()) == 1, "the same batch again takes its dead forerunner away"
    monkeypatch.setattr(steps, "STALE", steps.STALE * 0)
    write(tmp_path, [rows(4)])
    assert quire.Ledger(tmp_path).open_jobs() == ()
    assert there(tmp_path) == listed(tmp_path) == [1, 2, 3, 4]
    assert not list(tmp_path.rglob("*.staged"))


def test_results_that_are_missing_are_an_error(tmp_path: Path) -> None:
    begun = begin(tmp_path)
    assert begun is not None
    with pytest.raises(QuireError, match=r"results of tasks of job .* are missing"):
        end(begun, [attempt(begun, 1, [rows(1)])])


def test_the_ledger_tells_of_writes(tmp_path: Path) -> None:
    write(tmp_path, [rows(1), rows(2)], batch="b")
    ledger = quire.Ledger(tmp_path)
    assert next((e["verb"], e["note"]) for e in ledger.inspect.history().to_dict("records")) == ("write", "batch:b")
    assert ledger.summary().records == 2
    assert ledger.verify().ok
    ledger.compact(spark=LOCAL)
    with ledger.pin():
        assert ledger.expire().data_files == 0
    assert ledger.locate("batch:b")[0].reason == "was written with 0 others in commit 1, and its rows have no place of their own"
    ledger.forget("batch:b", spark=LOCAL)
    assert there(tmp_path) == listed(tmp_path) == []
    ledger.checkpoint(spark=LOCAL)
    write(tmp_path, [rows(1)], batch="b")
    write(tmp_path, [rows(1)], batch="b")
    assert there(tmp_path) == [1]


def test_kept_versions(tmp_path: Path) -> None:
    write(tmp_path, [rows(1)], keep_versions="2")
    write(tmp_path, [rows(2)], overwrite=True)
    assert listed(tmp_path) == [2]
    assert list((tmp_path / "_quire/kept").rglob("*.kept"))
    with pytest.raises(UsageError, match="keep_versions"):
        begin(tmp_path, keep_versions="soon")


def test_exports_begin_with_a_write_and_stay_in_step(tmp_path: Path) -> None:
    def by_delta() -> list[int]:
        return sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().column("id").to_pylist())

    with pytest.raises(UsageError, match="exports"):
        begin(tmp_path, exports="delta, ice")
    write(tmp_path, [rows(1)], exports="delta, iceberg")
    assert by_delta() == [1]
    write(tmp_path, [rows(2)])
    write(tmp_path, [rows(3)], overwrite=True, exports="delta")
    assert by_delta() == listed(tmp_path) == [3]
    assert quire.Ledger(tmp_path).exports().keys() == {"delta", "iceberg"}


def test_a_batch_that_was_committed_before_gets_the_exports_that_its_driver_died_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    def dies(*_: Any) -> None:
        raise Crash("killed between the commit and what it wants")

    with monkeypatch.context() as patch:
        patch.setattr(steps.exports, "want", dies)
        with pytest.raises(Crash):
            write(tmp_path, [rows(1)], batch="monday", exports="delta")
    for _ in range(2):
        write(tmp_path, [rows(1)], batch="monday", exports="delta")
        assert quire.Ledger(tmp_path).exports().keys() == {"delta"}
        assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().column("id").to_pylist() == [1]


def test_another_programs_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    write(tmp_path, [rows(1)])
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text('{"commitInfo": {"operation": "WRITE"}}\n')
    with pytest.raises(RefusedError, match="another program"):
        begin(tmp_path, exports="delta")
    assert quire.Ledger(tmp_path).exports() == {}


def own(content: bytes, file: FileInfo) -> pa.RecordBatch:
    return rows(len(content))


def test_what_a_destination_does_not_take_is_one_line(tmp_path: Path) -> None:
    write(tmp_path / "flat", [rows(1)])
    other = pa.schema([("id", pa.int32()), ("k", pa.string())])
    with pytest.raises(RefusedError, match=r"'id' is bigint there and int here. Nothing was written"):
        begin(tmp_path / "flat", other)
    with pytest.raises(RefusedError, match=r"'k' is missing here; 'x' is not there"):
        begin(tmp_path / "flat", pa.schema([("id", pa.int64()), ("x", pa.string())]))
    with pytest.raises(RefusedError, match=r"in one directory, and this write would give parquet, in directories. Leave partition_by out"):
        begin(tmp_path / "flat", by=("k",))
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a").write_bytes(b"x\n")
    quire.consolidate(tmp_path / "in", tmp_path / "lines", spark=LOCAL, progress=False)
    with pytest.raises(RefusedError, match="holds what quire has made itself"):
        begin(tmp_path / "lines")
    with pytest.raises(RefusedError, match="is not empty and not quire's"):
        begin(tmp_path / "in")
    write(tmp_path / "in", [rows(1)], allow_nonempty="true")
    assert there(tmp_path / "in") == [1]
    assert not (tmp_path / "new").exists()


def test_a_destination_that_was_emptied_keeps_its_columns(tmp_path: Path) -> None:
    write(tmp_path, [rows(1)])
    write(tmp_path, [], overwrite=True)
    other = pa.record_batch({"id": [2], "x": ["a"]})
    with refused(RefusedError, 2, "'k' is missing here; 'x' is not there"):
        begin(tmp_path, other.schema)
    write(tmp_path, [rows(2).select(["k", "id"])], columns=rows(2).select(["k", "id"]).schema)
    assert read(tmp_path) == [{"id": 2, "k": "a"}]
    write(tmp_path, [], overwrite=True)
    write(tmp_path, [other], columns=other.schema, schema_evolution="add")
    assert read(tmp_path) == [{"id": 2, "k": None, "x": "a"}]


def test_a_destination_that_was_emptied_of_others_files_keeps_their_columns(tmp_path: Path) -> None:
    committer = quire.committers.OutputCommitter(tmp_path)
    job = committer.setup_job(1)
    task = committer.setup_task(job, 0)
    with task.create("x.parquet") as file:
        pq.write_table(pa.table({"id": [1], "x": pa.array([b"ab"], pa.binary(2))}), file)  # a type without a name of Spark's
    committer.commit_task(task)
    committer.commit_job(job)
    own = pa.record_batch({"id": [2], "x": [b"cd"]})
    write(tmp_path, columns=own.schema, overwrite=True)
    with refused(RefusedError, 2, "there they are id: int64, x: fixed_size_binary[2]"):
        begin(tmp_path, own.schema)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"batch": ""}, r"batch='' is not a name"),
    ({"batch": "a\nb"}, r"is not a name, in one line"),
    ({"batch": "//host/a"}, r"without '/' at its ends"),
    ({"batch": "a/"}, r"without '/' at its ends"),
    ({"target_size": "big"}, "target_size"),
    ({"compression": "zst"}, "Did you mean 'zstd'"),
    ({"committer": "magic"}, "committer"),
    ({"allow_nonempty": "yes"}, "neither true nor false"),
    ({"by": ("kk",)}, "Did you mean 'k'"),
    ({"by": ("k", "k")}, "names a column twice"),
    ({"by": ("id", "k")}, "names all columns"),
    ({"columns": pa.schema([("id", pa.int64()), ("_x", pa.string())]), "by": ("_x",)}, "'_x' names no directory that readers see"),
    ({"columns": pa.schema([])}, "the frame has no columns"),
    (
        {"columns": pa.schema([("id", pa.int64()), ("a", pa.list_(pa.struct([("b", pa.struct([]))])))])},
        r"the column 'a\[\].b' is struct<>, and Parquet holds no struct without fields. Leave the column out, or give text",
    ),
    ({"target_size": "256"}, "Did you mean '256 MiB'"),
    ({"columns": pa.schema([("a", pa.int64()), ("A", pa.int64())])}, "two columns of the frame"),
    ({"columns": pa.schema([("a", pa.null())])}, "has no type"),
    ({"columns": pa.schema([("a", pa.float64()), ("b", pa.int64())]), "by": ("a",)}, "directories are named by"),
]


@pytest.mark.parametrize(("how", "said"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_wrong_values(tmp_path: Path, how: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        begin(tmp_path / "out", **how)
    assert not (tmp_path / "out").exists(), "nothing is written before it is known what is wanted"


# ------------------------------------------------------------------------------------------------------- crashes and stores
def _story(dest: str) -> None:
    """A batch, and another one in its place; what was done is skipped, as after a restart."""
    write(dest, [rows(1)], [rows(2)], batch="one")
    write(dest, [rows(3)], [rows(4)], batch="two", overwrite=True)


@pytest.mark.nth(3)
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", ["hdfs", "s3", "azure"])
def test_a_driver_that_dies_at_any_change_leaves_one_copy(kind: str, every: int) -> None:
    def world() -> World:
        sim.forget_all()
        return World(0, kind=KINDS[kind])

    first = world()
    with first.installed():
        assert run(first, Actor(), lambda: _story(first.dest)) is None
        operations = [op for _, op, _, _ in first.history]
    changes = [k for k, op in enumerate(operations, 1) if changing(op)]
    assert len(changes) > 20
    for k in changes[::every]:
        for how in ("before", "after"):
            now = world()
            with now.installed():
                died = run(now, Actor("dead", {k: how}, of_changes=False), lambda now=now: _story(now.dest))  # type: ignore[misc]
                assert isinstance(died, Crash)
                now.settle()
                assert there(now.dest) in ([], [1, 2], [3, 4]), f"{how} {k}: a version is whole"
                protocol.recover(now.store(now.dest), "open")
                _story(now.dest)
                assert there(now.dest) == listed(now.dest) == [3, 4], f"{how} {k} ({operations[k - 1]})"
                assert now.waiting() == []
                left = [name for name in now.there() if name.startswith(names.JOBS)]
                assert left == [], f"{how} {k}"


def test_lost_uploads_are_not_half_a_write() -> None:
    world = World(0, kind=KINDS["s3"])
    with world.installed():
        write(world.dest, [rows(1)])
        begun = begin(world.dest, overwrite=True)
        assert begun is not None
        done = [attempt(begun, 0, [rows(2)]), attempt(begun, 1, [rows(3)])]
        name = done[0].data_files[0]
        world.store(world.dest).give_up(name.name, name.handle)
        with pytest.raises(QuireError, match=r"the store has lost output of job .* Write again"):
            end(begun, done)
        assert there(world.dest) == listed(world.dest) == [1]


def test_nothing_of_the_ledger_is_needed_twice(tmp_path: Path) -> None:
    """A segment that somebody deleted is an error and not a batch that was never written."""
    write(tmp_path, [rows(1)], batch="b")
    shutil.rmtree(tmp_path / "_quire/ledger")
    with pytest.raises(QuireError, match=re.escape("the ledger segment")):
        write(tmp_path, [rows(1)], batch="b")
    assert Log(connect(destination(tmp_path), None)).refresh().tip == 2


# ------------------------------------------------------------------------------------------------------------ columns of directories
def keyed(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array([1], pa.int64()), **{name: [value] for name, value in columns.items()}})


def put(dest: Path, frame: pa.RecordBatch, *by: str, **how: Any) -> None:
    write(dest, [frame], columns=frame.schema, by=by, **how)


@pytest.mark.parametrize(
    ("columns", "by", "said"),
    [
        (keyed(day="a"), ("day",), ["in directories by dt, and", "in directories by day.", "Say option('partition_by', 'dt') as before"]),
        (keyed(dt="a", k=1), ("dt", "k"), ["in directories by dt, and", "in directories by dt, k."]),
        (keyed(dt=7), ("dt",), ["in directories by dt string, and", "in directories by dt bigint.", "Cast the columns of partition_by"]),
    ],
)
def test_other_directories_than_those_that_are_there_are_refused(
    tmp_path: Path, columns: pa.RecordBatch, by: tuple[str, ...], said: list[str]
) -> None:  # fmt: skip
    put(tmp_path, keyed(dt="a"), "dt")
    for mode in ("", "rows", "partitions"):
        with refused(RefusedError, 2, *said):
            put(tmp_path, columns, *by, mode=mode)
    assert read(tmp_path) == [{"id": 1, "dt": "a"}]


def test_directories_in_another_order_are_refused(tmp_path: Path) -> None:
    put(tmp_path, keyed(a="x", b="y"), "a", "b")
    with refused(RefusedError, 2, "in directories by a, b, and", "in directories by b, a.", "option('partition_by', 'a,b') as before"):
        put(tmp_path, keyed(a="x", b="y"), "b", "a", mode="partitions")
    put(tmp_path, keyed(a="x", b="y"), "a", "b", mode="partitions")
    assert read(tmp_path) == [{"id": 1, "a": "x", "b": "y"}]


def test_values_of_directories_keep_their_types(tmp_path: Path) -> None:
    def one(text: str | None, **how: Any) -> None:
        put(tmp_path, keyed(text=text, long=5, yes=True).cast(KEYS), "text", "long", "yes", **how)

    def by_delta() -> list[dict[str, Any]]:
        return deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().to_pylist()

    for text in ("007", None):
        one(text)
    ledger, texts = quire.Ledger(tmp_path), ["007", "7", "7", "9", None]
    for _ in range(2):
        one("7", mode="partitions")
        one("7")
        one("9", batch="monday")
        ledger.compact(spark=LOCAL, progress=False)
        ledger.checkpoint(spark=LOCAL)
        assert [row["text"] for row in sorted(read(tmp_path), key=str)] == sorted(texts, key=repr)
        _, made = content(connect(destination(tmp_path), None), destination(tmp_path)).columns()
        assert made == {"text": pa.string(), "long": pa.int64(), "yes": pa.bool_()}
    ledger.export("delta", progress=False)
    assert sorted(by_delta(), key=str) == sorted(read(tmp_path), key=str)
    assert min(read(tmp_path), key=str) == {"id": 1, "text": "007", "long": 5, "yes": True}


KEYS = pa.schema([("id", pa.int64()), ("text", pa.string()), ("long", pa.int64()), ("yes", pa.bool_())])


def test_of_two_first_writes_into_other_directories_one_counts(tmp_path: Path) -> None:
    begun = [(begin(tmp_path, batch.schema, by=by), batch) for batch, by in ((keyed(dt="7"), ("dt",)), (keyed(dt=7), ("dt",)))]
    done = [(one, [attempt(one, 0, [batch])]) for one, batch in begun if one is not None]
    end(*done[1])
    with pytest.raises(QuireError, match=r"holds parquet, in directories by dt bigint, and this job made .* by dt string"):
        end(*done[0])
    assert read(tmp_path) == [{"id": 1, "dt": 7}]


def test_directories_that_no_write_has_said_are_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of an earlier quire, or of a claim: readers infer their types."""
    with monkeypatch.context() as patch:
        patch.setattr(steps.schemas, "text", lambda _: "")
        put(tmp_path, keyed(dt="007"), "dt")
    put(tmp_path, keyed(dt="8"), "dt")
    assert sorted(row["dt"] for row in read(tmp_path)) == [7, 8]
    for frame, by in ((keyed(day="a"), ["day"]), (keyed(dt="a", k="b"), ["dt", "k"])):
        with refused(RefusedError, 2, "in directories by dt, and", "Say option('partition_by', …) as before"):
            put(tmp_path, frame, *by)
    put(tmp_path, keyed(dt="8"), "dt", mode="partitions")
    assert sorted(row["dt"] for row in read(tmp_path)) == [7, 8]


def claimed(dest: Path, batch: pa.RecordBatch, folder: str) -> None:
    source = dest.with_name("in")
    source.mkdir(exist_ok=True)
    (source / f"{folder.replace('/', ',')} {len(list(source.iterdir()))}").write_bytes(b"1\n")
    with quire.Ledger(dest, create=not dest.exists()).claim(source, progress=False, spark=LOCAL) as c:
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table(batch), sink)
        connect(c.path).put(f"{folder}/x.parquet", sink.getvalue().to_pybytes())


def test_claims_and_writes_agree_on_directories(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    put(mine, keyed(k=7), "k")
    claimed(mine, keyed(), "k=8")
    for folder in ("day=8", "k=8/a=1", "k=x"):
        with refused(RefusedError, 2, "in directories by k", "of earlier claims, and this block has written", folder.partition("=")[0]):
            claimed(mine, keyed(), folder)
    assert sorted(row["k"] for row in read(mine)) == [7, 8]
    claimed(theirs, keyed(), "k=7")
    with refused(RefusedError, 2, "in directories by k of earlier claims, and this block has written parquet, in directories by day"):
        claimed(theirs, keyed(), "day=8")
    put(theirs, keyed(k=8), "k")
    assert sorted(row["k"] for row in read(theirs)) == [7, 8]


def test_a_committer_keeps_to_the_directories_of_a_write(tmp_path: Path) -> None:
    put(tmp_path, keyed(k="7"), "k")
    committer = quire.committers.OutputCommitter(tmp_path)
    for folder, said in (("k=07", ""), ("day=8", "in directories by k, and job")):
        job = committer.setup_job(1)
        task = committer.setup_task(job, 0)
        with task.create(f"{folder}/x.parquet") as file:
            pq.write_table(pa.table(keyed()), file)
        committer.commit_task(task)
        if said:
            with refused(RefusedError, 2, said, "in directories by day: nothing of it is visible"):
                committer.commit_job(job)
        else:
            committer.commit_job(job)
    assert sorted(row["k"] for row in read(tmp_path)) == ["07", "7"]


def test_a_day_of_no_year_that_readers_know_names_no_directory(tmp_path: Path) -> None:
    batch = pa.record_batch({"id": [1], "d": pa.array([3_000_000], pa.int32()).cast(pa.date32())})
    with pytest.raises(UsageError, match="lies in no year from 1 to 9999"):
        put(tmp_path, batch, "d")


# ---------------------------------------------------------------------------------------------------------------- columns that grow
def test_columns_of_a_frame_are_added_where_one_says_so_and_may_be_fewer_from_then_on(tmp_path: Path, spark: Any) -> None:
    write(tmp_path, [rows(1)])
    more = pa.record_batch({"id": pa.array([2], pa.int64()), "k": ["b"], "price": [1.5], "s": [{"x": 1}]})
    with pytest.raises(RefusedError, match=r"'price' is not there.*option\('schema_evolution', 'add'\)"):
        begin(tmp_path, more.schema)
    with pytest.raises(UsageError, match="schema_evolution"):
        begin(tmp_path, more.schema, schema_evolution="yes")
    write(tmp_path, [more], columns=more.schema, schema_evolution="add")
    fewer = pa.record_batch({"s": [{"x": 3}], "id": pa.array([3], pa.int64())})
    write(tmp_path, [fewer], columns=fewer.schema)
    other = pa.record_batch({"id": ["text"]})
    for options in ({}, {"schema_evolution": "add"}):
        with pytest.raises(RefusedError, match="'id' is string, and int64"):
            begin(tmp_path, other.schema, **options)
    ledger = quire.Ledger(tmp_path)
    for _ in range(2):
        found = sorted(quire.read(tmp_path, spark=spark).collect())
        assert [tuple(row[:3]) for row in found] == [(1, "a", None), (2, "b", 1.5), (3, None, None)]
        assert listed(tmp_path) == [1, 2, 3]
        ledger.compact(spark=LOCAL)
        assert ledger.verify(spark=LOCAL).ok


def test_of_two_frames_that_add_a_column_of_two_types_one_wins(tmp_path: Path) -> None:
    write(tmp_path, [rows(1)])
    frames = [pa.record_batch({"id": pa.array([i], pa.int64()), "k": ["b"], "new": [value]}) for i, value in ((2, 1), (3, "text"))]
    begun = [begin(tmp_path, frame.schema, schema_evolution="add") for frame in frames]
    done = [(one, [attempt(one, 0, [frame])]) for one, frame in zip(begun, frames, strict=True) if one is not None]
    end(*done[0])
    with pytest.raises(QuireError, match=r"rows of two schemas.*'new' is string, and int64"):
        end(*done[1])
    assert there(tmp_path) == listed(tmp_path) == [1, 2]


def test_a_dictionary_is_made_of_values_that_come_twice(tmp_path: Path) -> None:
    n = 40_000
    batch = pa.record_batch(
        {
            "id": range(n), "name": [f"name {i}" for i in range(n)], "city": ["sf", "nyc"] * (n // 2), "yes": [True, False] * (n // 2),
            "tags": [["a", "b"]] * n, "by.day": pa.array([i % 7 for i in range(n)], pa.int32()),
            "at": pa.array(range(n), pa.timestamp("us", "UTC")),
        }
    )  # fmt: skip
    write(tmp_path / "out", [batch.slice(0, n // 2), batch.slice(n // 2)], columns=batch.schema)
    (file,) = (tmp_path / "out").glob("*.parquet")
    group = pq.ParquetFile(file).metadata.row_group(0)
    made = {group.column(i).path_in_schema for i in range(group.num_columns) if "RLE_DICTIONARY" in group.column(i).encodings}
    assert made == {"city", "tags.list.element", "by.day"}
    assert pq.read_table(file).to_batches()[0].to_pylist() == batch.to_pylist()
