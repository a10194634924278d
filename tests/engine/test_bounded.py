"""Bounded commits of files: one listing serves them all, each is visible at once, nothing is lost or there twice, whoever else writes."""

from __future__ import annotations

import json
import os
import threading
import zipfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from checker import check
from gathering import documents, gather, look, refused, write
from quire.errors import QuireError, UsageError
from quire.planning import backlog
from quire.planning import plan as planning
from quire.planning.backlog import Backlog
from quire.storage.local import LocalStore


def aged(source: Path, names: list[str]) -> Path:
    """The files in this order of their times, the oldest first."""
    for i, name in enumerate(names):
        os.utime(source / name, (1e9 + i, 1e9 + i))
    return source


def commits(dest: Path) -> list[list[str]]:
    """The names of the files of each commit, as the log and its segments tell them."""
    entries = [json.loads(path.read_bytes()) for path in sorted((dest / "_quire/log").glob("*.entry"))]
    found = list[list[str]]()
    for entry in (entry for entry in entries if entry["kind"] == "commit"):
        rows = [pq.read_table(dest / task["coverage"]["segment"]).column("path").to_pylist() for task in entry["tasks"]]
        found.append(sorted({Path(path).name for paths in rows for path in paths}))
    return found


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item a listing of the source."""
    found, list_files = list[int](), planning.list_files

    def counted(look: Any) -> Any:
        found.append(look.base)
        return list_files(look)

    monkeypatch.setattr("quire.engine.kinds.listing.list_files", counted)
    return found


LOCAL = quire.LocalRunner()
SIX = ["e", "c", "a", "f", "b", "d"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("oldest", [["c", "e"], ["a", "f"], ["b", "d"]]),
        ("newest", [["b", "d"], ["a", "f"], ["c", "e"]]),
        ("name", [["a", "b"], ["c", "d"], ["e", "f"]]),
    ],
)
def test_each_commit_takes_the_next_files_in_order_from_one_listing(
    tmp_path: Path, listings: list[int], order: str, expected: list[list[str]]
) -> None:
    source = aged(write(tmp_path / "in", {name: name.encode() for name in SIX}), SIX)
    report = gather(source, tmp_path / "out", max_files=2, order=order)
    assert (report.files, len(report.jobs), report.outstanding) == (6, 3, 0)
    assert commits(tmp_path / "out") == expected
    assert len(listings) == 1, "one listing serves all commits of a call"
    assert "commits                      3" in str(report)
    check(source, tmp_path / "out")
    assert gather(source, tmp_path / "out", max_files=2).skipped == 6


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        ({"max_bytes": "25 B"}, [["f0", "f1", "f2"], ["f3"], ["f4"], ["f5"], ["f6"]]),
        ({"max_bytes": "20 B", "max_files": 1}, [[f"f{i}"] for i in range(7)]),
        ({"max_bytes": "1 B"}, [["f0"], ["f1"], ["f2"], ["f3"], ["f4"], ["f5"], ["f6"]]),
        ({"max_bytes": "10 GiB", "max_files": 7}, [[f"f{i}" for i in range(7)]]),
    ],
)
def test_a_commit_ends_where_the_next_file_does_not_fit_and_a_longer_file_is_one(
    tmp_path: Path, most: dict[str, Any], expected: list[list[str]]
) -> None:
    sizes = [10, 15, 0, 25, 26, 25, 1]
    source = write(tmp_path / "in", {f"f{i}": b"x" * size for i, size in enumerate(sizes)})
    report = gather(source, tmp_path / "out", order="name", **most)
    assert commits(tmp_path / "out") == expected
    assert len(report.jobs) == len(expected)
    check(source, tmp_path / "out")


def test_the_plan_says_how_many_commits_there_will_be_and_its_run_makes_them_of_its_listing(tmp_path: Path, listings: list[int]) -> None:
    source = write(tmp_path / "in", {f"f{i}": b"four" for i in range(10)})
    plan = look(source, tmp_path / "out", max_files=4)
    assert (plan.commits, plan.bytes, len(plan.files())) == (3, 40, 4)
    assert "commits                      3, the first of 4 (16 B), in these tasks" in str(plan)
    assert "to gather                    10 (40 B)" in str(plan)
    assert plan.as_dict()["commits"] == 3
    assert "files=10" in repr(plan)
    report = plan.run(progress=False)
    assert (report.files, len(report.jobs), len(listings)) == (10, 3, 1)
    check(source, tmp_path / "out")
    assert look(source, tmp_path / "out", max_files=4).commits == 1


def test_a_discarded_plan_leaves_nothing_and_runs_anew(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(9))
    plan = look(source, tmp_path / "out", max_files=2)
    plan.discard()
    assert not list((tmp_path / "out").rglob("*.rows"))
    assert len(plan.run(progress=False).jobs) == 5
    check(source, tmp_path / "out")


def test_progress_says_which_commit_is_under_way(tmp_path: Path) -> None:
    source, seen = write(tmp_path / "in", documents(5)), set[tuple[int, int]]()

    def look(event: quire.ProgressEvent) -> None:
        if event.phase == "gathering":
            seen.add((event.commit, event.commits))

    quire.consolidate(source, tmp_path / "out", max_files=2, spark=LOCAL, progress=look)
    assert seen == {(1, 3), (2, 3), (3, 3)}


def test_the_next_run_of_a_loop_begins_with_no_commit_of_the_last_one(tmp_path: Path) -> None:
    source, seen = write(tmp_path / "in", documents(5)), list[tuple[str, int, int]]()

    def look(event: quire.ProgressEvent) -> None:
        seen.append((event.phase, event.commit, event.commits))

    quire.consolidate(source, tmp_path / "out", max_files=2, spark=LOCAL, progress=look, every="1 ms", max_runs=2)
    assert {event[1:] for event in seen if event[0] == "listing"} == {(1, 1)}


def test_a_call_that_is_stopped_ends_after_its_commit_and_the_next_one_takes_the_rest(tmp_path: Path, listings: list[int]) -> None:
    source, stop = write(tmp_path / "in", documents(10)), threading.Event()
    report = quire.consolidate(source, tmp_path / "out", max_files=3, spark=LOCAL, progress=lambda _: stop.set(), stop=stop)
    assert (report.files, report.outstanding) == (3, 7)
    assert "left to the next call        7" in str(report)
    (taken,) = commits(tmp_path / "out")
    check(source, tmp_path / "out", without={str(path) for path in source.rglob("*.txt") if path.name not in taken})
    report = gather(source, tmp_path / "out", max_files=3)
    assert (report.files, len(report.jobs), report.skipped, len(listings)) == (7, 3, 3, 2)
    check(source, tmp_path / "out")


def test_a_killed_call_resumes_its_open_job_and_lists_once_for_the_rest(
    tmp_path: Path, listings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in", documents(10))
    with monkeypatch.context() as m:
        made, run = [0], quire.engine.driver.jobs.run

        def killed(*args: Any, **kwargs: Any) -> None:
            made[0] += 1
            if made[0] == 2:
                raise KeyboardInterrupt
            run(*args, **kwargs)

        m.setattr("quire.engine.driver.jobs.run", killed)
        with pytest.raises(KeyboardInterrupt):
            gather(source, tmp_path / "out", max_files=3)
    (open_job,) = (tmp_path / "out/_quire/jobs").iterdir()
    listings.clear()
    report = gather(source, tmp_path / "out", max_files=4)  # another bound makes it no other call
    assert (report.files, report.jobs[0], len(report.jobs), len(listings)) == (7, open_job.name, 2, 1)
    assert list(map(len, commits(tmp_path / "out"))) == [3, 3, 4]
    check(source, tmp_path / "out")


# ----------------------------------------------------------------------------------------------------------------- others write, too
@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something once, after the commit of a number."""

    def arrange(number: int, act: Callable[[], object]) -> None:
        ended, left = Backlog.ended, [number]

        def wrapped(self: Backlog, job: str, **how: Any) -> bool:
            found = ended(self, job, **how)
            left[0] -= 1
            if left[0] == 0:
                act()
            return found

        monkeypatch.setattr(Backlog, "ended", wrapped)

    return arrange


def test_what_others_commit_meanwhile_is_taken_out_of_the_listing(
    tmp_path: Path, between: Callable[..., None], listings: list[int]
) -> None:
    source = write(tmp_path / "in", documents(12))
    between(2, lambda: gather(source, tmp_path / "out", include="*f000[6-9]*"))
    report = gather(source, tmp_path / "out", max_files=2, order="name")
    assert report.files == 10
    check(source, tmp_path / "out")
    # The other call lists, and this one once more at its end, as others have touched what it had planned.
    assert len(listings) == 3


def test_all_that_is_left_may_be_done_by_others(tmp_path: Path, between: Callable[..., None]) -> None:
    source = write(tmp_path / "in", documents(12))
    between(1, lambda: gather(source, tmp_path / "out"))
    report = gather(source, tmp_path / "out", max_files=5)
    assert (report.files, len(report.jobs)) == (5, 1)
    check(source, tmp_path / "out")


def test_what_others_gather_and_forget_meanwhile_is_taken_once(tmp_path: Path, between: Callable[..., None]) -> None:
    source = write(tmp_path / "in", documents(9))
    last = sorted(source.rglob("*.txt"))[-2:]

    def others() -> None:
        gather(source, tmp_path / "out", include=[path.name for path in last])
        quire.Ledger(tmp_path / "out").forget(last[0], spark=LOCAL, progress=False)

    between(1, others)
    gather(source, tmp_path / "out", max_files=3, order="name")
    check(source, tmp_path / "out")


def test_compaction_by_others_takes_nothing_out(tmp_path: Path, between: Callable[..., None], listings: list[int]) -> None:
    source = write(tmp_path / "in", documents(9))
    between(2, lambda: quire.Ledger(tmp_path / "out").compact("1 MiB", spark=LOCAL, progress=False))
    report = gather(source, tmp_path / "out", max_files=3, keep_versions=0)
    assert (report.files, len(listings)) == (9, 1)
    check(source, tmp_path / "out")


def test_two_drivers_of_one_call_share_its_commits(tmp_path: Path, between: Callable[..., None], listings: list[int]) -> None:
    source = write(tmp_path / "in", documents(12))
    between(1, lambda: gather(source, tmp_path / "out", max_files=3))
    gather(source, tmp_path / "out", max_files=3)
    assert list(map(len, commits(tmp_path / "out"))) == [3, 3, 3, 3]
    check(source, tmp_path / "out")


def test_the_open_job_of_a_dead_driver_beside_this_one_is_ended_and_counts_as_others(
    tmp_path: Path, between: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in", documents(12))

    def dies() -> None:
        with monkeypatch.context() as m:
            m.setattr("quire.engine.driver.jobs.run", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                gather(source, tmp_path / "out", max_files=5, order="newest")

    between(1, dies)
    report = gather(source, tmp_path / "out", max_files=3, order="name")
    assert report.files == 12
    assert list(map(len, commits(tmp_path / "out")))[:2] == [3, 5]
    check(source, tmp_path / "out")


def test_a_file_that_changes_after_the_listing_is_taken_by_a_second_listing(
    tmp_path: Path, between: Callable[..., None], listings: list[int]
) -> None:
    source = write(tmp_path / "in", documents(9))
    late = max(source.rglob("*.txt"))
    between(1, lambda: late.write_bytes(b"changed\n"))
    report = gather(source, tmp_path / "out", max_files=3, order="name")
    assert (report.files, report.deferred, len(listings)) == (9, (), 2)
    check(source, tmp_path / "out")


def test_planning_reads_the_ledger_once_whatever_the_number_of_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(40))
    gather(source, tmp_path / "out", include="d0/*")
    read = list[str]()
    get = LocalStore.get

    def seen(self: LocalStore, name: str) -> bytes:
        if name.startswith("_quire/ledger/"):
            read.append(name)
        return get(self, name)

    monkeypatch.setattr(LocalStore, "get", seen)
    report = gather(source, tmp_path / "out", max_files=2)
    assert len(report.jobs) == 13
    assert len(read) <= 2, "segments of commits are not joined with the listing again for each commit"


# ------------------------------------------------------------------------------------------------------------ kinds of input and output
def test_what_is_read_again_whole_is_replaced_in_one_commit_after_what_is_new(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(6))
    gather(source, tmp_path / "out")
    changed = {name: b"changed " + content for name, content in documents(6).items()}
    write(source, {**changed, "new/a": b"a", "new/b": b"b", "new/c": b"c"})
    report = gather(source, tmp_path / "out", on_change="reprocess", max_files=2, keep_versions=0)
    assert (report.files, len(report.jobs)) == (9, 3)
    check(source, tmp_path / "out")


def test_new_ends_of_files_are_bounded_too(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"f{i}": b"one\n" for i in range(6)})
    gather(source, tmp_path / "out", on_append="tail", max_files=4)
    for i in range(6):
        with (source / f"f{i}").open("ab") as file:
            file.write(b"two\n" * i + b"half")
    report = gather(source, tmp_path / "out", on_append="tail", max_bytes="12 B", order="name")
    assert len(report.jobs) > 2
    gather(source, tmp_path / "out", on_append="tail", partial_lines="take", max_files=2)
    lines = b"".join(path.read_bytes() for path in (tmp_path / "out").iterdir() if path.is_file()).splitlines()
    assert sorted(lines) == sorted([b"one"] * 6 + [b"two"] * 15 + [b"half"] * 6)


def test_archives_and_long_files_stay_whole(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"long": b"0123456789\n" * 3000, "short": b"s\n"})
    for i in range(3):
        with zipfile.ZipFile(source / f"a{i}.zip", "w") as archive:
            for n in range(4):
                archive.writestr(f"m{n}", f"{i} {n}\n")
    report = gather(source, tmp_path / "out", archives=True, target_size="4 KiB", max_files=1, order="name")
    assert [set(names) for names in commits(tmp_path / "out")] == [{"a0.zip"}, {"a1.zip"}, {"a2.zip"}, {"long"}, {"short"}]
    assert report.records == 3 * 4 + 3000 + 1


def test_the_columns_of_the_first_commit_are_those_of_all_files_of_the_listing(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {})
    for i in range(6):
        pq.write_table(pa.table({"n": [i], **({"late": ["x"]} if i > 3 else {})}), source / f"f{i}.parquet")
    report = gather(source, tmp_path / "out", transform="parquet", max_files=2, order="name")
    assert (report.files, len(report.jobs), report.quarantined_count) == (6, 3, 0)
    table = pa.concat_tables(pq.read_table(p) for p in (tmp_path / "out").glob("*.parquet"))
    assert min(table.to_pylist(), key=lambda r: r["n"]) == {"n": 0, "late": None}
    assert table.num_rows == 6


def test_process_is_bounded_likewise(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(7))
    report = quire.process(source, tmp_path / "out", lambda split, content: [{"n": len(content)}], max_files=3, spark=LOCAL, progress=False)
    assert (report.files, len(report.jobs)) == (7, 3)


def test_rows_go_into_a_table_commit_by_commit(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {})
    for i in range(5):
        pq.write_table(pa.table({"id": [i, i + 1], "at": [i, i]}), source / f"f{i}.parquet")
    aged(source, [f"f{i}.parquet" for i in range(5)])
    table = quire.Table.create(tmp_path / "table", key="id", ordering="at")
    report = gather(source, table, transform="parquet", max_files=2)
    assert (report.files, len(report.jobs)) == (5, 3)
    assert len(table.timeline()) == 3


def test_hash_plans_and_directories_are_bounded(tmp_path: Path) -> None:
    for planner, layout in (("hash", "flat"), ("directory", "directories")):
        source = write(tmp_path / planner, documents(20, folders=4))
        parts = {"parts": 2} if planner == "hash" else {}
        report = gather(source, tmp_path / f"out-{planner}", planner=planner, layout=layout, max_files=6, **parts)
        assert len(report.jobs) == 4
        check(source, tmp_path / f"out-{planner}")


def test_a_loop_is_bounded_in_each_of_its_runs(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    report = gather(source, tmp_path / "out", max_files=2, every="1 ms", max_runs=2)
    assert (report.files, report.skipped) == (0, 5)
    assert list(map(len, commits(tmp_path / "out"))) == [2, 2, 1]


# ------------------------------------------------------------------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"max_files": 0}, "max_files=0 is not a whole number from 1 on"),
        ({"max_files": -1}, "max_files=-1 is not a whole number from 1 on"),
        ({"max_files": "abc"}, "max_files='abc' is not a whole number"),
        ({"max_files": True}, "max_files=True is not a whole number"),
        ({"max_bytes": 0}, "max_bytes is 0, which is not a size in bytes of at least 1"),
        ({"max_bytes": "-1 B"}, "which is not a size in bytes of at least 1"),
        ({"max_bytes": "abc"}, "max_bytes is 'abc'"),
        ({"max_bytes": 200}, "Did you mean '200 MiB'?"),
        ({"max_files": 1, "order": "modified"}, "order"),
        ({"order": "name"}, "without max_bytes= or max_files= it does nothing"),
        ({"max_file": 1}, "Did you mean 'max_files'?"),
    ],
)
def test_a_wrong_bound_is_one_line(tmp_path: Path, wrong: dict[str, Any], words: str) -> None:
    source = write(tmp_path / "in", documents(1))
    with refused(UsageError, 2, words):
        gather(source, tmp_path / "out", **wrong)
    assert not (tmp_path / "out").exists()


def test_a_full_temporary_directory_is_said_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", documents(5))
    with monkeypatch.context() as m:
        m.setattr("quire.planning.ordered.tempfile.TemporaryFile", lambda: (tmp_path / "nowhere/file").open("w+b"))
        with refused(QuireError, 3, "let TMPDIR name a larger directory"):
            gather(source, tmp_path / "out", max_files=2)
    assert gather(source, tmp_path / "out", max_files=2).files == 5
    check(source, tmp_path / "out")


@pytest.mark.parametrize("looks", [False, True])
def test_another_call_that_ends_the_job_while_its_listing_is_put_in_order_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: bool
) -> None:
    """It cleans what was planned under the same name: the call, or the plan, begins anew, and finds nothing left."""
    source, dest = aged(write(tmp_path / "in", {name: name.encode() for name in SIX}), SIX), tmp_path / "out"
    whole, met, here = backlog.Ordered, list[int](), {"spark": LOCAL, "progress": False}

    def ordered(*args: Any) -> Any:
        if not met:
            met.append(gather(source, dest).files)
        return whole(*args)

    monkeypatch.setattr(backlog, "Ordered", ordered)
    report = quire.plan(source, dest, max_files=2, **here).run() if looks else gather(source, dest, max_files=2)
    assert met == [6]
    assert report.files == 0
    assert sorted(chain.from_iterable(commits(dest))) == sorted(SIX)
    check(source, dest)
