"""All rows of a call go through one function together: its output and the ledger's rows are one commit, or there is none."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import quire
from gathering import MANY, documents, not_taken, refused, write
from quire import Report
from quire.commit.entries import PlanHead
from quire.commit.log import Log
from quire.engine import driver, request
from quire.engine.attempt import Work
from quire.engine.closers import shuffle, staged
from quire.engine.request import Request
from quire.errors import QuireError, RefusedError, UsageError
from quire.progress import Progress
from quire.read import first_rows
from quire.spark import runner
from quire.spark.runner import OnSpark
from quire.storage import connect, normalise

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def _splitting() -> Any:
    def words(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        """A row a word."""
        found = content.decode().split()
        return pa.record_batch({"word": pa.array(found, pa.string()), "file": pa.array([file.name] * len(found), pa.string())})

    return words


words = _splitting()  # not importable, so that Spark's workers are sent it


def count(rows: pa.Table) -> pa.Table:
    """How often each word is there."""
    return rows.group_by("word", use_threads=False).aggregate([("word", "count")]).sort_by("word").rename_columns(["word", "n"])


def in_order(rows: pa.Table) -> pa.Table:
    return rows.sort_by([("word", "descending"), ("file", "ascending")])


def made(source: Any, dest: Any, reduce: Any = count, **settings: Any) -> Request:
    settings = {"transform": words, "format": "parquet", **settings}
    return request.reducing(request.build(source, dest, **settings), reduce)


def gather(source: Any, dest: Any, reduce: Any = count, on: Any = None, **settings: Any) -> Report:
    return driver.gather(made(source, dest, reduce, **settings), on or quire.LocalRunner(), Progress(False))


def counted(files: dict[str, bytes]) -> Counter[str]:
    return Counter(word for content in files.values() for word in content.decode().split())


def rows(dest: Path) -> list[dict[str, Any]]:
    """What readers of the log see, in the files' order."""
    return [row for name in quire.Ledger(dest).inspect.files()["data_file"] for row in pq.ParquetFile(dest / name).read().to_pylist()]


def test_one_time_finer_than_what_is_stored_is_quarantined_and_the_shuffle_goes_on(tmp_path: Path) -> None:
    def times(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        return pa.record_batch({"at": pa.array([int(content)], pa.int64()).cast(pa.timestamp("ns"))})

    source, dest = write(tmp_path / "in", {"a": b"1000", "b": b"1001", "c": b"3000"}), tmp_path / "out"
    report = gather(source, dest, lambda rows: rows.sort_by("at"), transform=times, max_quarantined=MANY)
    assert [int(row["at"].microsecond) for row in rows(dest)] == [1, 3]
    assert report.quarantined_count == 1
    assert "'at' is timestamp[ns], and would lose data as timestamp[us]" in report.quarantined[0][1]


def test_the_output_of_all_files_together_is_one_commit(tmp_path: Path) -> None:
    files = documents(20)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, target_size="64 B")
    assert {row["word"]: row["n"] for row in rows(dest)} == counted(files)
    assert (report.files, len(report.jobs)) == (20, 1)
    ledger = quire.Ledger(dest)
    assert ledger.inspect.history()["kind"].tolist() == ["commit", "published"]
    assert ledger.summary().files == 20
    assert len(ledger.inspect.tasks()) > 2, "several tasks before it, and the shuffle"
    assert not list((dest / "_quire" / "jobs").glob("*")), "what the tasks made has gone"
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*ledger.inspect.files()["data_file"]}
    again = gather(source, dest, target_size="64 B")
    assert (again.files, again.skipped, again.jobs) == (0, 20, ())


def test_what_is_new_goes_through_the_function_for_itself(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(4)), tmp_path / "out"
    gather(source, dest)
    write(source, {"d9/new.txt": b"line line line"})
    assert gather(source, dest).files == 1
    assert rows(dest)[-1] == {"word": "line", "n": 3}
    assert quire.Ledger(dest).summary().commits == 2


# ------------------------------------------------------------------------------------------------------------------ on Spark
def test_on_spark_a_function_groups_sorts_and_joins(tmp_path: Path, spark: Any) -> None:
    files = documents(30)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    names = spark.createDataFrame([(word, word.upper()) for word in counted(files)], "word string, shout string")

    def joined(found: Any) -> Any:
        return found.groupBy("word").count().join(names, "word").orderBy("shout")

    report = gather(source, dest, joined, OnSpark(spark), target_size="64 B")
    expected = counted(files)
    found = [row.asDict() for row in quire.read(dest, spark=spark).collect()]
    assert {row["word"]: row["count"] for row in found} == expected
    assert [row["shout"] for row in rows(dest)] == sorted(word.upper() for word in expected), "sorted, as the function has sorted"
    assert (report.files, len(report.jobs)) == (30, 1)
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*quire.Ledger(dest).inspect.files()["data_file"]}
    assert gather(source, dest, joined, OnSpark(spark), target_size="64 B").skipped == 30


def test_a_function_that_fails_on_spark_ends_the_call_in_one_line_and_its_tasks_stay_done(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", documents(6)), tmp_path / "out"
    with refused(QuireError, 3, "reduce failed", "no_such_column", "call again", "recover(dest, abort="):
        gather(source, dest, lambda found: found.select("no_such_column"), OnSpark(spark))
    with refused(QuireError, 3, "the shuffle failed", "call again"):
        gather(source, dest, lambda found: found.selectExpr("raise_error(word) as word"), OnSpark(spark))
    assert rows(dest) == []
    assert {p.name for p in dest.iterdir()} == {"_quire"}


# ------------------------------------------------------------------------------------------- no commit without a result that came
def _same(found: Any) -> Any:
    return found


def _lost(*_: object) -> None:
    raise ConnectionError("Connection refused")


def test_a_lost_connection_never_looks_like_a_shuffle_without_rows(tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    with monkeypatch.context() as patched, refused(QuireError, 3, "the shuffle failed", "Connection refused", "call again"):
        patched.setattr(shuffle.SparkJob, "__enter__", _lost)
        gather(source, dest, _same, _Gathered(spark))
    assert Log(connect(normalise(dest))).refresh().entries == []
    assert gather(source, dest, _same, _Gathered(spark)).files == 3
    assert len(rows(dest)) == sum(counted(documents(3)).values())


def test_a_thread_that_dies_before_it_has_an_answer_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "run", lambda _: None)
    with pytest.raises(runner.SparkFailed, match="ended without an answer"):
        runner.collected(None, None, lambda: None)  # type: ignore[arg-type]  # nothing is asked of them


class _Gathered(OnSpark):
    """Spark does the shuffle alone, so that its tests are quick."""

    def run(self, *given: Any, **named: Any) -> Any:
        return quire.LocalRunner().run(*given, **named)


def test_an_answer_that_did_not_come_is_a_failure(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "collected", lambda *_: [])
    found = OnSpark(spark).run(lambda item: {"item": item}, [1, 2])
    assert [str(each) for each in found] == ["SparkError: Spark has ended its job and returned nothing for it"] * 2


def _file(records: int) -> dict[str, Any]:
    return {"name": f"f{records}", "records": records}


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ([(0, 3, [_file(3)]), (2, 1, [_file(1)])], "part 1 has answered nothing"),
        ([(0, 3, [_file(3)]), (0, 3, [_file(3)])], "part 0 has answered twice"),
        ([(0, 5, [_file(3), _file(1)])], "part 0 was given 5 rows, and 4 have come of it"),
        ([(0, 1, [])], "part 0 was given 1 rows, and 0 have come of it"),
    ],
)
def test_parts_that_do_not_agree_with_what_they_were_given_are_refused(tmp_path: Path, answers: list[Any], said: str) -> None:
    with refused(QuireError, 3, said, "call again"):
        shuffle._agreed(_work(tmp_path), answers)


def test_rows_that_a_task_has_staged_and_the_shuffle_does_not_find_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"1\n2\n3\n"}), tmp_path / "out"
    real = staged.parts

    def shorter(job: str, tasks: Any) -> Any:
        parts = real(job, tasks)
        (dest / parts[0].name).write_bytes(b"1\n2\n")
        return parts

    monkeypatch.setattr(staged, "parts", shorter)
    with refused(QuireError, 3, "holds 2 rows", "counted 3", "abort="):
        gather(source, dest, lambda found: found, transform="lines", format="lines")
    assert Log(connect(normalise(dest))).refresh().entries == []


# ------------------------------------------------------------------------------------------------------- what is quarantined, retried
def _choosy(ok: bool) -> Any:
    def words(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        if not ok and b"BROKEN" in content:
            raise ValueError("broken")
        found = content.decode().split()
        return pa.record_batch({"word": pa.array(found, pa.string()), "file": pa.array([file.name] * len(found), pa.string())})

    return words


def test_what_is_set_aside_goes_through_the_function_when_it_is_retried(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"x y", "b": b"x BROKEN", "c": b""}), tmp_path / "out"
    assert not_taken(gather(source, dest, transform=_choosy(ok=False))) == 1
    assert {row["word"]: row["n"] for row in rows(dest)} == {"x": 1, "y": 1}
    ledger = quire.Ledger(dest)
    with refused(UsageError, 2, "count", "reduce="):
        ledger.retry(source, function=_choosy(ok=True), **HERE)
    done = ledger.retry(source, function=_choosy(ok=True), reduce=count, **HERE)
    assert (done.gathered, done.quarantined) == (1, 0)
    assert sorted((row["word"], row["n"]) for row in rows(dest)) == [("BROKEN", 1), ("x", 1), ("x", 1), ("y", 1)]
    assert ledger.inspect.quarantined().empty
    assert gather(source, dest, transform=_choosy(ok=False)).skipped == 3


def test_files_without_a_row_are_done_and_make_no_file(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"", "b": b" \n"}), tmp_path / "out"
    assert gather(source, dest).files == 2
    ledger = quire.Ledger(dest)
    assert ledger.inspect.files().empty
    assert ledger.summary().files == 2
    assert gather(source, dest).skipped == 2
    assert gather(write(tmp_path / "more", {"c": b"word"}), tmp_path / "none", lambda found: found.slice(0, 0)).files == 1
    assert quire.Ledger(tmp_path / "none").inspect.files().empty


# ---------------------------------------------------------------------------------------------------------- what a ledger says of it
def test_a_ledger_tells_that_rows_went_through_a_shuffle(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(5)), tmp_path / "out"
    report = gather(source, dest)
    ledger = quire.Ledger(dest)
    assert ledger.summary().reduce == report.reduce == "test_shuffle.count"
    assert "shuffle test_shuffle.count" in str(ledger.summary())
    assert ledger.inspect.history()["note"][0] == "through test_shuffle.count"
    (found,) = ledger.locate(source / "d0/f0000.txt")
    assert (found.state, found.data_file, found.records) == ("done", None, 5)
    assert "went through a shuffle with 4 others in commit 1" in (found.reason or "")
    with refused(UsageError, 2, "shuffle with 4 others", "quire.read"):
        ledger.read(source / "d0/f0000.txt")
    assert ledger.verify(spark=quire.LocalRunner()).ok
    assert ledger.verify(spark=quire.LocalRunner()).data_files == 1
    name = ledger.inspect.files()["data_file"][0]
    content = (dest / name).read_bytes()
    for damaged, what in [(content[:-1], "bytes instead of"), (content[:4] + bytes(40) + content[44:], "cannot be read back")]:
        (dest / name).write_bytes(damaged)
        assert what in ledger.verify(spark=quire.LocalRunner()).damaged[0][2]
    (dest / name).unlink()
    assert ledger.verify(spark=quire.LocalRunner()).damaged == ((name, "", "the file is gone"),)


def test_a_single_file_cannot_leave_and_its_whole_commit_can(tmp_path: Path, spark: Any) -> None:
    source, dest = write(tmp_path / "in", documents(5)), tmp_path / "out"
    gather(source, dest)
    write(source, {"new/a.txt": b"late late", "new/b.txt": b"late"})
    gather(source, dest)
    ledger = quire.Ledger(dest)
    before = rows(dest)
    late = ledger.inspect.files()["data_file"][1]
    with refused(RefusedError, 2, "commit 3", "1 of them", "where='commit = 3'"):
        ledger.forget(source / "new/a.txt", **HERE)
    with refused(RefusedError, 2, "commit 3", "where='commit = 3'"):
        ledger.forget(file=late, **HERE)
    assert rows(dest) == before
    assert ledger.forget(where="commit = 3", spark=spark, progress=False).files_out == 2
    assert rows(dest) == before[:-1]
    assert ledger.summary().files == 5
    assert gather(source, dest).files == 2
    assert sorted(map(str, rows(dest))) == sorted(map(str, before))
    (dest / ledger.refresh().inspect.files()["data_file"][1]).unlink()
    assert ledger.forget(source / "new", **HERE).files_out == 2, "all paths of a commit are all of it; what is lost need not be read"
    assert gather(source, dest).files == 2
    assert sorted(map(str, rows(dest))) == sorted(map(str, before))
    ledger.refresh().expire()
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*ledger.refresh().inspect.files()["data_file"]}


def test_compaction_merges_what_went_through_a_shuffle(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for i in range(3):
        gather(write(source, {f"{i}.txt": b"word %d" % i}), dest)
    before, ledger = rows(dest), quire.Ledger(dest)
    assert ledger.compact(**HERE).removed == 3
    assert sorted(map(str, rows(dest))) == sorted(map(str, before))
    assert len(ledger.refresh().inspect.files()) == 1
    assert ledger.verify(spark=HERE["spark"]).ok


# ---------------------------------------------------------------------------------------------------------------------- bad input
def test_shuffled_and_plain_rows_do_not_mix(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    gather(source, dest)
    more = write(tmp_path / "more", {"x.txt": b"x"})
    for other in (
        lambda: quire.consolidate(more, dest, transform=words, format="parquet", **HERE),
        lambda: gather(more, dest, in_order),
    ):
        with refused(RefusedError, 2, "reduce='test_shuffle.count'", "choose another destination"):
            other()
    assert len(Log(connect(normalise(dest))).refresh().entries) == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"transform": "raw", "format": "raw"}, "raw"),
        ({"layout": "directories"}, "layout"),
        ({"on_change": "reprocess"}, "cannot be taken apart"),
        ({"reduce": "count"}, "function"),
    ],
)
def test_what_does_not_go_with_a_shuffle_is_refused_before_anything_is_read(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with refused(UsageError, 2, said):
        made(write(tmp_path / "in", {"a": b"1"}), tmp_path / "out", **settings)


@pytest.mark.nth(3)
@pytest.mark.parametrize(
    ("reduce", "settings", "said"),
    [
        (lambda found: found.to_pandas(), {}, "pyarrow.Table"),
        (lambda found: found.no_such_method(), {}, "no_such_method"),
        (lambda found: pa.Table.from_arrays([found.column(0)] * 2, ["a", "a"]), {}, "name of its own"),
        (lambda found: found, {"format": "lines", "transform": "lines"}, ""),
        (lambda found: found.append_column("n", found.column(0)), {"format": "lines", "transform": "lines"}, "one column"),
        (lambda _: pa.table({"n": [1]}), {"format": "lines", "transform": "lines"}, "one column"),
        (lambda _: pa.table({"value": pa.array([None, b"1"])}), {"format": "lines", "transform": "lines"}, "missing value"),
    ],
)
def test_what_the_function_cannot_give_is_one_line_and_nothing_is_committed(
    tmp_path: Path, reduce: Any, settings: dict[str, Any], said: str
) -> None:
    source, dest = write(tmp_path / "in", documents(3)), tmp_path / "out"
    if not said:
        gather(source, dest, reduce, **settings)
        return
    with pytest.raises(QuireError, match=said) as caught:
        gather(source, dest, reduce, **settings)
    assert str(caught.value).isprintable()
    assert "abort=" in str(caught.value), "what to do with what was begun"
    assert Log(connect(normalise(dest))).refresh().entries == []
    assert {p.name for p in dest.iterdir()} == {"_quire"}
    quire.recover(dest, abort="open")
    assert gather(source, dest, transform=words, format="parquet").files == 3


def test_tasks_with_rows_of_two_schemas_are_refused(tmp_path: Path) -> None:
    def moody(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        return pa.record_batch({"a" if file.name < "b" else "z": pa.array([1])})

    with refused(RefusedError, 2, "two schemas"):
        gather(write(tmp_path / "in", {"a": b"1", "z": b"2"}), tmp_path / "out", in_order, transform=moody, target_size="1 B")


# ------------------------------------------------------------------------------------------------------------------ other shapes
def test_lines_go_through_the_function_as_values_and_come_out_as_lines(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"3\n1\n", "b": b"2\n1"}), tmp_path / "out"

    def distinct(found: pa.Table) -> pa.Table:
        return pa.table({"value": pc.unique(found.column("value")).sort()})

    report = gather(source, dest, distinct, transform="lines", format="lines", compression="gzip", target_size="4 B")
    (name, *_) = names = list(quire.Ledger(dest).inspect.files()["data_file"])
    assert name.endswith(".txt.gz")
    assert report.data_files == len(names)
    assert list(first_rows(connect(normalise(dest)), 9)) == [b"1", b"2", b"3"]


def test_output_is_cut_into_files_of_about_the_target(tmp_path: Path) -> None:
    files = {f"{i:03}.txt": " ".join(f"{i}-{j}-{j * i * 7919 % 1000003}" for j in range(200)).encode() for i in range(20)}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, in_order, target_size="8 KiB", compression="none")
    found = quire.Ledger(dest).inspect.files()
    assert len(found) > 5
    assert found["bytes"].max() < 24 << 10
    assert found["records"].sum() == 4000
    assert [row["word"] for row in rows(dest)] == sorted(counted(files), reverse=True), "the order goes through all files"


# ------------------------------------------------------------------------------------------------------------- killed, and not alone
CALLS: list[str] = []  # of the functions below: what they close over would be part of what they are


def _telling() -> Any:
    def words(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        CALLS.append(file.name)
        found = content.decode().split()
        return pa.record_batch({"word": pa.array(found, pa.string()), "file": pa.array([file.name] * len(found), pa.string())})

    return words


@pytest.fixture(autouse=True)
def _quiet() -> None:
    CALLS.clear()


def dying(found: pa.Table) -> pa.Table:
    CALLS.append("reduce")
    if CALLS.count("reduce") == 1:
        raise KeyboardInterrupt
    return count(found)


def test_a_call_killed_while_it_shuffles_keeps_what_its_tasks_have_done(tmp_path: Path) -> None:
    files = documents(8)
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        gather(source, dest, dying, transform=_telling(), target_size="64 B")
    assert rows(dest) == []
    write(source, {"late.txt": b"late"})
    report = gather(source, dest, dying, transform=_telling(), target_size="64 B")
    assert sorted(CALLS) == sorted([*(name.rpartition("/")[2] for name in files), "late.txt", *["reduce"] * 3]), "each file once"
    assert (report.files, len(report.jobs)) == (9, 2)
    assert sum(row["n"] for row in rows(dest)) == sum(counted(files).values()) + 1


PLACE: list[Any] = []


def tagging(found: pa.Table) -> pa.Table:
    """Comes out another way each time; the first time another driver comes to its end meanwhile."""
    CALLS.append("reduce")
    tag = CALLS.count("reduce")
    if tag == 1:
        gather(*PLACE, tagging, target_size="1 KiB")
    return found.append_column("tag", pa.array([tag] * found.num_rows))


def test_of_two_runs_of_a_shuffle_one_counts_and_nothing_of_the_other(tmp_path: Path) -> None:
    files = documents(40)
    source, dest = PLACE[:] = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, tagging, target_size="1 KiB")
    assert CALLS == ["reduce"] * 2
    assert {row["tag"] for row in rows(dest)} == {2}
    assert Counter(row["word"] for row in rows(dest)) == counted(files)
    assert len(names := list(quire.Ledger(dest).inspect.files()["data_file"])) > 1
    assert {p.name for p in dest.iterdir()} - {"_quire"} == {*names}
    assert not list((dest / "_quire" / "jobs").glob("*"))


def overtaken(found: pa.Table) -> pa.Table:
    CALLS.append("reduce")
    if CALLS.count("reduce") == 1:
        gather(PLACE[0] / "d1", PLACE[1], overtaken)
    return count(found)


def test_what_another_job_commits_meanwhile_is_not_there_twice(tmp_path: Path) -> None:
    """A shuffle's rows cannot be taken apart, so all of it is done again with what is left."""
    files = documents(9)
    source, dest = PLACE[:] = write(tmp_path / "in", files), tmp_path / "out"
    report = gather(source, dest, overtaken, planner="directory")  # a task each for d0, d1 and d2, of which one is overtaken
    assert [type(entry).__name__ for entry in Log(connect(normalise(dest))).refresh().entries] == [
        "Commit", "Published", "Abort", "Commit", "Published"
    ]  # fmt: skip
    assert sum((Counter({row["word"]: row["n"]}) for row in rows(dest)), Counter()) == counted(files)
    assert (report.files, len(CALLS)) == (6, 3)


def test_a_file_that_vanishes_meanwhile_is_left_out_and_the_rest_goes_on(tmp_path: Path) -> None:
    files = {"a": b"x", "b": b"x y", "z": b"gone"}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"

    def removing(content: bytes, file: quire.FileInfo) -> pa.RecordBatch:
        (Path(file.path.removeprefix("file://")).parent / "z").unlink(missing_ok=True)
        return pa.record_batch({"word": content.decode().split()})

    report = gather(source, dest, transform=removing, target_size="1 B")
    assert report.files == 2
    assert {row["word"]: row["n"] for row in rows(dest)} == {"x": 2, "y": 1}


def test_more_failures_than_allowed_commit_nothing(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"x", "b": b"BROKEN"}), tmp_path / "out"
    with refused(quire.TooManyQuarantined, 1, "max_quarantined"):
        gather(source, dest, transform=_choosy(ok=False), max_quarantined=0)
    assert rows(dest) == []


def test_a_part_that_an_engine_runs_twice_writes_under_two_names(tmp_path: Path) -> None:
    work = _work(tmp_path)
    closing = shuffle.Closing(work.dest, None, work, "c" * 12)
    store, batch = connect(work.dest), pa.record_batch({"word": ["x"]})
    files = [file for _ in range(20) for file in shuffle._written(closing, store, 7, iter([batch]))[1]]
    assert len({file["name"] for file in files}) == 20
    assert all(store.stat(file["handle"]) for file in files)


def _work(tmp_path: Path) -> Work:
    options_ = made(write(tmp_path / "in", {}), tmp_path / "out")
    head = PlanHead(
        job=f"0-{'a' * 16}",
        base=0,
        plan="b" * 12,
        tasks=3,
        committer="rename",
        spec=options_.spec,
        intent=options_.identity.intent,
        closer="shuffle",
    )
    return Work(options_.dest, None, (), head, options_.convert)
