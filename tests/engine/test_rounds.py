"""The main job in a changing world: rewritten and vanishing files, failures, users' functions, two drivers, plans, other versions."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import quire
from checker import check, look, tree, unchanged
from gathering import documents, gather, not_taken, refused, write
from quire.commit import protocol
from quire.errors import QuireError, TooManyQuarantined, UsageError
from quire.storage import connect
from quire.storage.local import LocalStore

Acts = Callable[[Path], None]


# ------------------------------------------------------------------------------------------------------- files that change


def test_a_rewritten_file_is_reported_while_the_rest_commits(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(10))
    gather(source, tmp_path / "out")
    before = tree(source)
    write(source, {"new": b"new"})
    (source / "d0/f0000.txt").write_bytes(b"rewritten")
    report = gather(source, tmp_path / "out")
    assert (report.files, not_taken(report), report.skipped) == (1, 1, 9)
    ((path, reason),) = report.changed
    assert path == f"file://{source}/d0/f0000.txt"
    assert "rewritten since it was gathered" in reason
    check({**before, f"{source}/new": b"new"}, tmp_path / "out")
    assert not_taken(gather(source, tmp_path / "out")) == 1, "as long as it is so"
    assert not_taken(gather(source, tmp_path / "out", on_change="ignore")) == 0


def test_a_file_in_quarantine_that_changes_is_read_again(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(5, "xml"), "bad.xml": b"<a>", "worse.xml": b"<"})
    gather(source, tmp_path / "out", transform="xml")
    assert gather(source, tmp_path / "out", transform="xml").files == 0, "it is not tried again as it is"
    (source / "bad.xml").write_bytes(b"<a/>")
    (source / "worse.xml").write_bytes(b"<b")
    report = gather(source, tmp_path / "out", transform="xml")
    assert (report.files, not_taken(report)) == (1, 1)
    found = check(source, tmp_path / "out", None)
    assert [Path(p).name for p in found.quarantined] == ["worse.xml"]
    assert gather(source, tmp_path / "out", transform="xml").skipped == 7


@pytest.fixture
def while_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Do something to a file, a number of times, just before it is read for a task."""

    def arrange(name: str, act: Acts, times: int = 1) -> None:
        left, read_many = [times], LocalStore.read_many

        def wrapped(self: LocalStore, requests: Any) -> Iterator[Any]:
            def watched() -> Iterator[Any]:
                for request in requests:
                    if request.name.endswith(name) and left[0]:
                        left[0] -= 1
                        act(Path(self.root, request.name))
                    yield request

            return read_many(self, watched())

        monkeypatch.setattr(LocalStore, "read_many", wrapped)

    return arrange


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more\n")


@pytest.mark.parametrize("size", [20, 3 << 20])
def test_a_file_that_changes_once_while_it_is_read_is_gathered_by_the_same_call(
    tmp_path: Path, while_reading: Callable[..., None], size: int
) -> None:
    source = write(tmp_path / "in", {**documents(10), "d1/busy": b"x" * size})
    while_reading("busy", grow)
    report = gather(source, tmp_path / "out")
    assert (report.files, report.deferred, len(report.jobs)) == (11, (), 2)
    check(source, tmp_path / "out")


@pytest.mark.parametrize("size", [20, 3 << 20])
@pytest.mark.parametrize("target", ["1 MiB", "256 MiB"])
def test_a_file_that_changes_all_the_time_is_left_out_and_reported(
    tmp_path: Path, while_reading: Callable[..., None], size: int, target: str
) -> None:
    source = write(tmp_path / "in", {**documents(10), "d1/busy": b"x" * size})
    while_reading("busy", grow, 1000)
    report = gather(source, tmp_path / "out", target_size=target)
    assert report.files == 10
    assert [path for path, _ in report.deferred] == [f"file://{source}/d1/busy"]
    assert "changed" in report.deferred[0][1]
    check(source, tmp_path / "out", without={f"{source}/d1/busy"})


@pytest.mark.parametrize("size", [20, 3 << 20])
def test_a_file_that_vanishes_before_it_is_read_is_reported(tmp_path: Path, while_reading: Callable[..., None], size: int) -> None:
    source = write(tmp_path / "in", {**documents(10), "d1/gone": b"x" * size})
    while_reading("gone", Path.unlink)
    report = gather(source, tmp_path / "out")
    assert report.files == 10
    assert report.deferred == ((f"file://{source}/d1/gone", "vanished"),)
    check(source, tmp_path / "out")
    assert gather(source, tmp_path / "out").deferred == ()


def test_a_long_file_that_changes_when_half_of_it_is_written_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write(tmp_path / "in", {**documents(10), "d1/long": b"x" * (9 << 20)})
    pread, calls = os.pread, [0]

    def changed(fd: int, n: int, at: int) -> bytes:
        calls[0] += 1
        if calls[0] == 2:
            grow(source / "d1/long")
        return pread(fd, n, at)

    monkeypatch.setattr(os, "pread", changed)
    for transform in ("raw", "lines"):
        calls[0] = 0
        report = gather(source, tmp_path / transform, transform=transform)
        assert (report.files, report.deferred) == (11, ())
        check(source, tmp_path / transform, *([unchanged] if transform == "raw" else []))


def test_when_nothing_is_left_to_commit_the_call_ends(tmp_path: Path, while_reading: Callable[..., None]) -> None:
    source = write(tmp_path / "in", {"busy": b"x"})
    while_reading("busy", grow, 1000)
    report = gather(source, tmp_path / "out")
    assert (report.files, len(report.deferred)) == (0, 1)
    check(source, tmp_path / "out", without={f"{source}/busy"})


# --------------------------------------------------------------------------------------------------------------- max_quarantined


@pytest.mark.parametrize("limit", [{"max_quarantined": 1}, {"max_quarantined": 0}])
def test_with_more_failures_than_allowed_nothing_is_committed_and_the_next_run_works(tmp_path: Path, limit: dict[str, Any]) -> None:
    source = write(tmp_path / "in", {**documents(5, "xml"), "bad.xml": b"<a>", "worse.xml": b"<"})
    with refused(TooManyQuarantined, 1, "2 files were to be quarantined", "bad.xml", "malformed", "nothing was committed"):
        gather(source, tmp_path / "out", transform="xml", **limit)
    assert not look(tmp_path / "out").data
    assert not [p for p in (tmp_path / "out").iterdir() if p.name != "_quire"]
    report = gather(source, tmp_path / "out", transform="xml", max_quarantined=2)
    assert (report.files, not_taken(report)) == (5, 2)
    check(source, tmp_path / "out", None)


# ---------------------------------------------------------------------------------------------------------------- two drivers


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(acts)
    barrier = threading.Barrier(len(acts))

    def run(i: int) -> None:
        barrier.wait()
        try:
            results[i] = acts[i]()
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a driver never ends"
    return results


@pytest.mark.nth(2)
@pytest.mark.parametrize("committer", ["rename", "rename_v2"])
def test_two_drivers_of_one_job_leave_each_byte_once(tmp_path: Path, committer: str) -> None:
    source = write(tmp_path / "in", documents(60, folders=5))
    for _ in range(4):
        act = lambda: gather(source, tmp_path / "out", target_size="300 B", committer=committer)  # noqa: E731
        results = at_once(act, act, act)
        assert not [r for r in results if isinstance(r, Exception)], results
        protocol.recover(connect(f"file://{tmp_path}/out"))
        check(source, tmp_path / "out")
        write(source, {f"late/{len(tree(source))}/{i}": b"%d" % i for i in range(20)})


def test_drivers_of_overlapping_sources_leave_each_byte_once(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(60, folders=3))
    results = at_once(
        lambda: gather(source, tmp_path / "out", target_size="300 B"),
        lambda: gather(source / "d1", tmp_path / "out"),
        lambda: gather([source / "d0", source / "d1"], tmp_path / "out", planner="directory"),
    )
    assert not [r for r in results if isinstance(r, Exception)], results
    protocol.recover(connect(f"file://{tmp_path}/out"), "open")
    check(source, tmp_path / "out")
    assert sum(r.files for r in results) >= 60, "a job that two drivers finish is counted by both"


def test_of_two_drivers_with_other_transforms_one_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(30))
    results = at_once(lambda: gather(source, tmp_path / "out"), lambda: gather(source, tmp_path / "out", transform="raw"))
    (won,) = (r for r in results if isinstance(r, quire.Report))
    (lost,) = (r for r in results if isinstance(r, QuireError))
    assert won.files == 30
    assert "transform" in str(lost)


# ------------------------------------------------------------------------------------------------------------------- for ever


def test_with_every_new_files_are_gathered_as_they_come(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(5))
    timer = threading.Timer(0.15, lambda: write(source, {"late": b"1"}))
    timer.start()
    report = gather(source, tmp_path / "out", every="0.4 s", max_runs=2)
    timer.join()
    assert report.files == 1, "the report of the last run"
    check(source, tmp_path / "out")
    with refused(UsageError, 2, "every"):
        gather(source, tmp_path / "out", max_runs=2)
