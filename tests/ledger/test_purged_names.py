"""A purge finishes a file's version: its content stays for ever, and a new file of that name is new, whatever happened in between."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import quire
from checker import look
from gathering import gather, not_taken, refused, write
from quire import Ledger, LocalRunner
from quire.commit import protocol
from quire.commit.log import Log
from quire.coverage.fold import fold
from quire.errors import QuireError, RefusedError
from quire.ledger import comparing, forget, purge, purging
from quire.planning import drops
from quire.planning.pack import read_drops
from quire.planning.rewriting import Live, rewriting
from quire.storage import aside, connect, local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
POLICIES: list[dict[str, Any]] = [
    {}, {"on_change": "reprocess"}, {"on_change": "ignore"}, {"on_append": "tail"}, {"on_append": "reprocess", "on_change": "reprocess"},
]  # fmt: skip


def go(dest: Path, **more: Any) -> purge.Purged:
    return Ledger(dest).purge_sources(**{"source": dest.parent / "in", "spark": LocalRunner(), "dry_run": False, "min_age": 0, **more})


def new(folder: Path, name: str, content: bytes, age: float = 30.0) -> Path:
    """Another file of a name, with another time."""
    write(folder, {name: content})
    at = time.time() - age
    os.utime(folder / name, (at, at))
    return folder / name


def lines(dest: Path) -> list[bytes]:
    return sorted(line for file in Ledger(dest).inspect.files()["data_file"] for line in (dest / file).read_bytes().splitlines())


def states(dest: Path, path: Path) -> list[str]:
    return [x.state for x in Ledger(dest).locate(path)]


@pytest.mark.nth(18)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("later", [b"tuesday\n", b"monday\ntuesday\n", b""], ids=["another", "begins alike", "empty"])
def test_a_new_file_of_a_purged_name_is_new_and_both_contents_stay(tmp_path: Path, policy: dict[str, Any], later: bytes) -> None:
    source, dest = write(tmp_path / "in", {"daily.csv": b"monday\n", "other": b"o\n"}), tmp_path / "out"
    gather(source, dest, **policy)
    assert go(dest).files == 2
    path = new(source, "daily.csv", later)
    plan = quire.plan(source, dest, spark=LocalRunner(), progress=False, **policy)
    assert sum(task.files for task in plan._planned.tasks) == 1
    assert Ledger(dest).inspect.unprocessed(source, "arrow", spark=LocalRunner()).column("path").to_pylist() == [f"file://{path}"]
    report = gather(source, dest, **policy)
    assert (report.files, not_taken(report), report.deleted) == (1, 0, 0)
    assert states(dest, path) == ["purged", "done"]
    ledger = Ledger(dest)
    first = ledger.locate(path)[0].version
    assert (ledger.read(path), ledger.read(path, version=first)) == (later, b"monday\n")
    write(source, {"more": b"m\n"})
    gather(source, dest, **policy)
    ledger.refresh().compact(**HERE)
    ledger.checkpoint(spark=LocalRunner())
    ledger.expire(grace=0)
    assert (ledger.read(path), ledger.read(path, version=first)) == (later, b"monday\n")
    assert states(dest, path) == ["purged", "done"]
    assert gather(source, dest, **policy).jobs == ()
    assert ledger.refresh().verify(spark=LocalRunner()).ok
    assert go(dest).files == 2, "and the second file of that name goes as the first"
    new(source, "daily.csv", b"wednesday\n", 20)
    assert gather(source, dest, **policy).files == 1
    assert states(dest, path) == ["purged", "purged", "done"]
    assert Ledger(dest).read(path) == b"wednesday\n"
    assert Ledger(dest).read(path, version=first) == b"monday\n"
    with refused(quire.UsageError, 2, "no file with the version", "Known are"):
        Ledger(dest).read(path, version="none")


@pytest.mark.nth(2)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_a_later_version_of_the_new_file_takes_nothing_of_the_purged_one(tmp_path: Path, policy: dict[str, Any]) -> None:
    source, dest = write(tmp_path / "in", {"a": b"one\n"}), tmp_path / "out"
    gather(source, dest, **policy)
    go(dest)
    new(source, "a", b"two\n", 30)
    gather(source, dest, **policy)
    new(source, "a", b"three\n", 20)
    gather(source, dest, **policy)
    Ledger(dest).expire()
    kept = Ledger(dest).locate(source / "a")[0]
    assert (kept.state, Ledger(dest).read(source / "a", version=kept.version)) == ("purged", b"one\n")


def test_the_history_at_each_version_and_the_totals_agree(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a": b"one\n", "b": b"two\n"}), tmp_path / "out"
    gather(source, dest)
    before = Ledger(dest).summary()
    go(dest)
    ledger = Ledger(dest)
    after = ledger.summary()
    assert (after.files, after.bytes_read, after.ledger_rows) == (before.files, before.bytes_read, before.ledger_rows)
    assert [x.state for x in ledger.as_of(2).locate(source / "a")] == ["done"]
    assert [x.state for x in ledger.as_of(4).locate(source / "a")] == ["purging"]
    assert [x.state for x in ledger.locate(source / "a")] == ["purged"]
    assert len(ledger.rows(state="purged").table) == 2


def stopped(monkeypatch: pytest.MonkeyPatch, where: str) -> Callable[[], Any]:
    """Let a purge die at a place."""
    real, commits, removed = protocol.commit, list[int](), list[int]()

    def commit(*given: Any) -> None:
        commits.append(1)
        if where == f"before commit {len(commits)}":
            raise KeyboardInterrupt
        real(*given)
        if where == f"after commit {len(commits)}":
            raise KeyboardInterrupt

    def remove(*given: Any) -> bool:
        removed.append(1)
        if where == f"before delete {len(removed)}":
            raise KeyboardInterrupt
        return deleting(*given)

    deleting = purging.remove_version
    monkeypatch.setattr(protocol, "commit", commit)
    monkeypatch.setattr(purging, "remove_version", remove)
    for module in (comparing, purging):
        monkeypatch.setattr(module, "ASKING", 1)
    return monkeypatch.undo


MOMENTS = ["before commit 1", "after commit 1", "before delete 1", "before delete 2", "before commit 2", "after commit 2"]


@pytest.mark.nth(40)
@pytest.mark.parametrize("policy", [{}, {"on_append": "tail", "on_change": "reprocess"}], ids=str)
@pytest.mark.parametrize("where", MOMENTS)
@pytest.mark.parametrize("then", ["nothing", "a new file", "it grows"])
def test_wherever_a_purge_dies_nothing_is_lost_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, then: str, policy: dict[str, Any]
) -> None:
    files = {"a": b"a1\n", "b": b"b1\n", "c": b"c1\n"}
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, **policy)
    undo = stopped(monkeypatch, where)
    with pytest.raises(KeyboardInterrupt):
        go(dest)
    undo()
    there = {p.name for p in source.iterdir()}
    for name in ("a", "b", "c") if then != "nothing" else ():
        grows = then == "it grows" and name in there
        new(source, name, files[name] + f"{name}more\n".encode() if grows else f"{name}2\n".encode())
    rewritten = then == "a new file" and policy == {}
    for _ in range(3):
        gather(source, dest, **policy)
        go(dest)
    gather(source, dest, **policy)
    found = lines(dest)
    assert len(found) == len(set(found)), "nothing is there twice"
    replaced = {f"{name}1".encode() for name in there} if then == "a new file" and policy and where in MOMENTS[:1] else set()
    assert {f"{name}1".encode() for name in files} - replaced <= set(found), "what was gathered stays"
    if then == "nothing":
        assert (len(found), list(source.iterdir())) == (3, [])
    elif policy or not rewritten:
        assert {f"{name}2".encode() for name in files if then == "a new file" or name not in there} <= set(found)
    if policy and then == "it grows":
        assert {f"{name}more".encode() for name in there} <= set(found)


def test_what_changes_just_before_it_is_deleted_is_neither_lost_nor_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy: dict[str, Any] = {"on_append": "tail", "on_change": "reprocess"}
    source, dest = write(tmp_path / "in", {"grown": b"g1\n", "rewritten": b"r1\n", "same": b"s\n"}), tmp_path / "out"
    gather(source, dest, **policy)
    real = purging.remove_version

    def late(store: Any, name: str, version: str) -> bool:
        if name.endswith("grown"):
            new(source, "grown", b"g1\ng2\n")
        if name.endswith("rewritten"):
            new(source, "rewritten", b"r2\n")
        return real(store, name, version)

    with monkeypatch.context() as patch:
        patch.setattr(purging, "remove_version", late)
        found = go(dest)
    assert (found.files, found.stays) == (1, {comparing.CHANGED: 2})
    assert states(dest, source / "grown") == ["done"], "it is gathered as before"
    assert states(dest, source / "rewritten") == ["purged"], "its old content is nowhere else"
    gather(source, dest, **policy)
    assert lines(dest) == [b"g1", b"g2", b"r1", b"r2", b"s"]
    assert Ledger(dest).read(source / "grown") == b"g1\ng2\n"


def test_of_two_purges_that_died_the_last_one_tells_whether_a_file_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"monday\n"}), tmp_path / "out"
    for content in (b"monday\n", b"tuesday\n"):
        new(source, "a", content)
        gather(source, dest)
        undo = stopped(monkeypatch, "before delete 1")
        monkeypatch.setattr(purging._Task, "_another", lambda *_: None)  # what is there cannot be looked at just then
        with pytest.raises(KeyboardInterrupt):
            go(dest)
        undo()
    new(source, "a", b"tuesday\nwednesday\n", 20)
    for _ in range(2):
        gather(source, dest)
        go(dest)
    gather(source, dest)
    assert lines(dest) == [b"monday", b"tuesday"], "what was appended is told, and waits for on_append"
    gather(source, dest, on_append="tail")
    assert lines(dest).count(b"tuesday") == 1


def test_two_purges_at_once_and_a_compaction_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {f"f{i}": b"%d\n" % i for i in range(6)}), tmp_path / "out"
    gather(source, dest)
    write(source, {"g": b"g\n"})
    gather(source, dest)
    real = protocol.commit
    acts = [lambda: go(dest), lambda: Ledger(dest).compact(**HERE), lambda: go(dest)]

    def meanwhile(*given: Any) -> None:
        if acts:
            acts.pop(0)()
        real(*given)

    monkeypatch.setattr(protocol, "commit", meanwhile)
    go(dest)
    monkeypatch.undo()
    go(dest)
    assert list(source.iterdir()) == []
    assert {row["state"] for row in look(dest).rows} == {"purged"}
    assert lines(dest) == sorted([b"%d" % i for i in range(6)] + [b"g"])


def test_a_compaction_that_was_planned_before_does_not_forget_that_a_file_was_purged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = write(tmp_path / "in", {"a": b"a\n"}), tmp_path / "out"
    gather(source, dest)
    write(source, {"b": b"b\n"})
    gather(source, dest)
    real = protocol.commit

    def meanwhile(*given: Any) -> None:
        monkeypatch.undo()
        go(dest)
        real(*given)

    monkeypatch.setattr(protocol, "commit", meanwhile)
    Ledger(dest).compact(**HERE)
    assert len(Ledger(dest).inspect.files()) == 1
    assert {row["state"] for row in look(dest).rows} == {"purged"}


def test_the_last_copy_is_forgotten_only_by_who_says_so(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"d/a": b"a\n", "b": b"b\n"}), tmp_path / "out"
    gather(source, dest)
    go(dest, source=source / "d")
    ledger = Ledger(dest)
    data = ledger.inspect.files()["data_file"][0]
    for given in ({"paths": source / "d"}, {"paths": source / "d/a"}, {"file": data}):
        with refused(RefusedError, 2, "last copy", "last_copy=True", "d/a"):
            ledger.forget(**given, **HERE)
    assert ledger.forget(source / "b", **HERE).files_out == 1
    assert gather(source, dest).files == 1
    done = Ledger(dest).forget(source / "d/a", last_copy=True, **HERE)
    assert done.files_out == 1
    with refused(QuireError, 2, "is not in the ledger"):
        Ledger(dest).read(source / "d/a")


@pytest.mark.parametrize("how", ["paths", "file"])
def test_what_a_dead_purge_was_about_to_delete_is_not_forgotten(tmp_path: Path, how: str) -> None:
    """Only its rows let the next purge find the file, which lies under a private name."""
    source, dest = write(tmp_path / "in", {"a": b"a\n"}), tmp_path / "out"
    gather(source, dest)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local._OpenDirectory, "drop", die)
        patch.setattr(local._OpenDirectory, "give", lambda *_: True)
        with pytest.raises(KeyboardInterrupt):
            go(dest)
    assert [aside.is_private(path.name) for path in source.iterdir()] == [True]
    ledger = Ledger(dest)
    given = {"paths": source / "a", "file": ledger.inspect.files()["data_file"][0]}[how]
    for last_copy in (False, True):
        with refused(RefusedError, 2, "1 of the files", "purge_sources", "has not ended", "/a"):
            ledger.forget(**{how: given}, last_copy=last_copy, **HERE)
    go(dest)
    assert (list(source.iterdir()), states(dest, source / "a")) == ([], ["purged"])
    assert Ledger(dest).forget(source / "a", last_copy=True, **HERE).files_out == 1


def test_a_source_that_a_writer_may_still_hold_open_stays(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"app.log": b"one\n"}), tmp_path / "out"
    new(source, "old.log", b"old\n", 7200)
    gather(source, dest)
    found = Ledger(dest).purge_sources(source, spark=LocalRunner(), dry_run=False)
    assert (found.files, found.stays) == (1, {comparing.YOUNG: 1})
    assert [p.name for p in source.iterdir()] == ["app.log"]
    assert Ledger(dest).purge_sources(source, spark=LocalRunner(), dry_run=False, min_age="30s").files == 1


def test_a_purged_file_does_not_leave_with_another_one_of_its_name_in_one_data_file(tmp_path: Path) -> None:
    def function(split: quire.Split, content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        for i, line in enumerate(lines):
            if line.startswith(b"-"):
                split.quarantine(line, "no", sum(map(len, lines[:i])))
        return b"".join(line for line in lines if not line.startswith(b"-"))

    source, dest = write(tmp_path / "in", {"a": b"one\n"}), tmp_path / "out"
    for content in (b"one\n", b"two\n-\nthree\n"):
        new(source, "a", content)
        quire.process(source, dest, function, split="lines", format="lines", function_version="1", **HERE)
        go(dest, derived=True)
    Ledger(dest).compact("1000 B", **HERE)
    log = Log(connect(f"file://{dest}")).refresh()
    folded = fold(log)
    rows = folded.rows(log.store, drops.DROPS.names).drop_columns(["commit"])
    done = rows.filter(pc.equal(rows.column("state"), "done")).slice(0, 1)
    assert len(set(rows.column("data_file").drop_null().to_pylist())) == 1, "both lie in one data file"
    leaving = forget.with_riders(log.store, folded, done)
    assert set(leaving.column("state").to_pylist()) == {"done"}
    assert leaving.num_rows == 2, "what was cut around a rejected record leaves together"


def test_what_chooses_rows_by_a_condition_refuses_the_last_copy(tmp_path: Path, spark: SparkSession) -> None:
    source, dest = write(tmp_path / "in", {"d/a": b"a\n", "b": b"b\n"}), tmp_path / "out"
    gather(source, dest)
    go(dest, source=source / "d")
    with refused(RefusedError, 2, "1 of the files", "last copy", "last_copy=True", "d/a"):
        Ledger(dest).forget(where="length > 0", spark=spark, progress=False)
    assert lines(dest) == [b"a", b"b"]
    assert Ledger(dest).forget(where="length > 0", last_copy=True, spark=spark, progress=False).files_out == 2


def test_a_task_that_takes_rows_out_reads_those_of_its_own_data_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drops, "PIECE", 10)
    store, n = connect("memory://drops"), 100
    rows = [
        {"data_file": f"f{i % n:03}", "path": f"p{i}", "version": "v", "start": 0, "length": 1, "state": "done", "records": 1}
        for i in range(3 * n)
    ]
    named = count()
    put = drops.put_drops(store, pa.Table.from_pylist(rows, drops.DROPS), lambda kind: f"{kind}-{next(named)}")
    tasks = rewriting(put, {f"f{i:03}": Live(f"f{i:03}", 1, "", 1) for i in range(n)}, 1)
    assert len(tasks) == n
    assert max(len(task.drops) for task in tasks) <= 2
    for task in tasks:
        mine = [row for row in read_drops(store, task.drops).to_pylist() if row["data_file"] in task.removes]
        assert len(mine) == 3, "and all of them"


def test_a_purge_that_died_before_its_end_was_planned_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a": b"one\n", "b": b"two\n"}), tmp_path / "out"
    gather(source, dest)
    freezes, real = count(1), protocol.freeze

    def freeze(*given: Any) -> None:
        if next(freezes) == 2:
            raise KeyboardInterrupt
        real(*given)

    with monkeypatch.context() as patch:
        patch.setattr(protocol, "freeze", freeze)
        patch.setattr("quire.ledger.job.discard", lambda *_: None)  # a process that is killed tidies nothing up
        with pytest.raises(KeyboardInterrupt):
            go(dest)
    assert list(source.iterdir()) == []
    assert list((dest / "_quire/jobs").rglob("*said*"))
    assert go(dest).gone == 2
    assert states(dest, source / "a") == ["purged"]
    assert not [p for p in (dest / "_quire").rglob("*") if p.is_file() and "jobs" in p.parts]
