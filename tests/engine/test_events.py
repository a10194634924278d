"""Runs that go by events: nothing is lost when events are, nothing is doubled when they repeat, and a lie costs a look."""

from __future__ import annotations

import functools
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import quire
from fake_queue import QUEUES, FakeQueue
from gathering import documents, gather, refused, write
from quire.engine import listening
from quire.errors import StorageError, TransientError, UsageError
from quire.planning import plan
from quire.sources.events import SOURCES, Event
from quire.storage.local import LocalStore

LOCAL = quire.LocalRunner()
HOUR, DAY = 3600.0, 86400.0
CRASHES = 400  # more operations than any of these runs has


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeQueue]:
    """One of the name `q`."""
    monkeypatch.setitem(SOURCES.own, "fake", "fake_queue:opened")  # type: ignore[arg-type]  # a dictionary
    yield FakeQueue("q")
    QUEUES.clear()


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock by which listings are due."""
    found = [1_800_000_000.0]
    monkeypatch.setattr(listening, "clock", lambda: found[0])
    return found


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories that are listed, of sources alone."""
    found, scan = list[str](), LocalStore.scan_pages

    def scanned(self: LocalStore, folder: str = "", **asked: Any) -> Any:
        if "/_quire" not in f"{self.url}/{folder}" and not folder.startswith("_quire"):
            found.append(f"{self.url}/{folder}")
        return scan(self, folder, **asked)

    monkeypatch.setattr(LocalStore, "scan_pages", scanned)
    return found


def by_events(source: Path, out: Path, **settings: Any) -> quire.Report:
    return gather(source, out, **{"events": "fake://q", **settings})


def said(path: Path, *, folder: bool = False) -> Event:
    return Event(("file", ""), str(path).lstrip("/"), folder)


def names(out: Path) -> list[str]:
    """The files that the ledger has, each as often as it does."""
    return sorted(Path(row["path"]).name for row in quire.Ledger(out).inspect.splits(as_="arrow", spark=LOCAL).to_pylist())


def marks(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "_quire" / "listings").glob("*"))


def test_the_first_run_lists_and_the_next_ones_look_at_what_events_name(
    tmp_path: Path, queue: FakeQueue, now: list[float], listed: list[str]
) -> None:
    source, out = write(tmp_path / "in", documents(20)), tmp_path / "out"
    report = by_events(source, out)
    assert (report.files, report.events.lists, report.events.received) == (20, 1, 0)
    write(source, {"d0/new.txt": b"new\n", "d1/unsaid.txt": b"unsaid\n"})
    queue.send(said(source / "d0/new.txt"), said(source / "d0/f0000.txt"), said(source / "gone"), said(tmp_path / "elsewhere/x"))
    listed.clear()
    report = by_events(source, out)
    assert (report.files, queue.held, len(queue.deleted)) == (1, 0, 4)
    assert report.events == quire.EventCounts(received=4, new=1, known=1, gone=1, outside=1)
    assert f"file://{source}/" not in listed
    assert not any(path.startswith(f"file://{source}") for path in listed), "nothing of the source was listed"
    assert "4 received: 1 new files, 1 known, 1 gone, 1 outside" in str(report)
    assert report.as_dict()["events"]["new"] == 1
    now[0] += DAY
    report = by_events(source, out)
    assert (report.files, report.skipped, report.events.lists) == (1, 21, 1), "what no event has named is found a day later"
    assert names(out) == sorted(p.name for p in source.rglob("*.txt"))


def test_nothing_is_said_of_files_that_no_event_names(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(9)), tmp_path / "out"
    by_events(source, out)
    (source / "d0/f0000.txt").unlink()
    write(source, {"d0/new.txt": b"new\n"})
    queue.send(said(source / "d0/new.txt"))
    report = by_events(source, out)
    assert (report.files, report.deleted, report.changed_count, report.skipped) == (1, 0, 0, 0)
    report = gather(source, out)
    assert (report.files, report.deleted) == (0, 1)


def test_a_mark_of_another_call_does_not_count(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6) | {"d0/x.dat": b"x\n"}), tmp_path / "out"
    assert by_events(source, out, include="*.txt").files == 6
    assert by_events(source, out, include="*.txt").events.lists == 0
    report = by_events(source, out)
    assert (report.files, report.events.lists) == (1, 1), "this call never listed"


def test_marks_are_few(tmp_path: Path, queue: FakeQueue, now: list[float]) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    for _ in range(4):
        assert by_events(source, out, relist="1 h").events.lists == 1
        assert len(marks(out)) == 1
        assert by_events(source, out, relist="1 h").events.lists == 0
        now[0] += HOUR


@pytest.mark.parametrize("jump", [-50 * 365 * DAY, 300 * 365 * DAY], ids=["back", "ahead"])
def test_a_clock_that_jumps_lets_a_listing_come_early_and_no_more(tmp_path: Path, queue: FakeQueue, now: list[float], jump: float) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    now[0] += jump
    assert [by_events(source, out).events.lists for _ in range(3)] == [1, 0, 0]
    now[0] -= jump
    assert [by_events(source, out).events.lists for _ in range(3)] == [1, 0, 0]


def test_what_was_forgotten_is_listed_for(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    quire.Ledger(out).forget(str(source / "d0/f0000.txt"), spark=LOCAL, progress=False)
    report = by_events(source, out)
    assert (report.files, report.events.lists) == (1, 1)
    assert by_events(source, out).events.lists == 0


def test_a_compaction_makes_no_listing(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    by_events(source, out)
    quire.Ledger(out).compact(spark=LOCAL, progress=False)
    assert by_events(source, out).events.lists == 0


def test_a_queue_that_repeats_and_names_things_twice_doubles_nothing(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {f"n{i}.txt": b"n\n" for i in range(5)})
    for _ in range(3):
        queue.send(*([said(source / f"n{i}.txt"), said(source / f"n{i}.txt")] for i in range(5)), said(source, folder=True))
        by_events(source, out)
        queue.waiting |= {f"again{i}": queue_message for i, queue_message in enumerate(queue.given.values())}
    assert names(out) == sorted(p.name for p in source.rglob("*.txt"))


def test_a_queue_without_an_end_does_not_hold_up_a_run_for_ever(tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    monkeypatch.setattr(listening, "MOST", 10)
    queue.before["receive"] = lambda: queue.send(*(said(source / "d0/f0000.txt") for _ in range(10)))
    report = by_events(source, out)
    assert (report.events.received, report.files) == (10 * listening.TURNS, 0)


def test_many_messages_are_taken_some_at_a_time_by_one_call(tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    monkeypatch.setattr(listening, "MOST", 10)
    write(source, {f"n{i:02}.txt": b"n\n" for i in range(25)})
    queue.send(*(said(source / f"n{i:02}.txt") for i in range(25)))
    report = by_events(source, out)
    assert (report.files, report.events.new, len(report.jobs), queue.held) == (25, 25, 3, 0)
    assert report.version == quire.Ledger(out).summary().version


def test_an_event_waits_until_its_file_is_taken(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out, min_age="30 s")
    (source / "young.txt").write_bytes(b"young\n")
    queue.send(said(source / "young.txt"))
    report = by_events(source, out, min_age="30 s")
    assert (report.files, report.young, report.events.waiting, queue.held) == (0, 1, 1, 1)
    before = time.time() - HOUR
    os.utime(source / "young.txt", (before, before))
    queue.expire()
    report = by_events(source, out, min_age="30 s")
    assert (report.files, report.events.waiting, queue.held) == (1, 0, 0)


def test_a_loop_keeps_what_waits_and_asks_for_it_no_more(tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out, min_age="30 s")
    (source / "young.txt").write_bytes(b"young\n")
    queue.send(said(source / "young.txt"))
    runs = iter(range(9))

    def old(*_: Any) -> None:
        if next(runs) == 2:
            before = time.time() - HOUR
            os.utime(source / "young.txt", (before, before))

    queue.before["receive"] = old
    report = by_events(source, out, min_age="30 s", every="0.01 s", max_runs=4)
    assert (queue.held, len(queue.deleted)) == (0, 1)
    assert "young.txt" in names(out)
    assert report.events.received == 0


@pytest.mark.parametrize("hidden", [600.0, math.inf])
def test_a_file_that_was_too_young_before_there_were_events_is_listed_again_once(
    tmp_path: Path, queue: FakeQueue, now: list[float], listed: list[str], hidden: float
) -> None:
    """Nobody tells of it any more. Files that come later have events, and no listing is made for them."""
    source, out = write(tmp_path / "in", documents(3)), tmp_path / "out"
    now[0], queue.hidden = time.time(), hidden
    (source / "early.txt").write_bytes(b"early\n")
    for path in source.iterdir():
        os.utime(path, (now[0] - HOUR,) * 2)
    os.utime(source / "early.txt", (now[0],) * 2)
    run = functools.partial(by_events, source, out, min_age="30 s", every="0.01 s")

    def passes(*steps: float) -> None:
        """Time passes before each run, for files, too."""
        left = iter(steps)

        def receive() -> None:
            step = next(left, 0.0)
            now[0] += step
            for path in source.iterdir():
                os.utime(path, (path.stat().st_mtime - step,) * 2)

        queue.before["receive"] = receive

    def late(*_: Any) -> None:
        if queue.asked == 3:
            (source / "late.txt").write_bytes(b"late\n")
            queue.send(said(source / "late.txt"))

    passes(0, 10, 15, 10, 1, 20, 20, 0)
    inner = queue.before["receive"]
    queue.before["receive"] = lambda: (inner(), late())
    report = run(max_runs=8)
    assert {"early.txt", "late.txt"} <= {*names(out)}
    assert listed.count(f"{quire.storage.normalise(source)}/") == 2
    assert (report.events.waiting, len(marks(out)), queue.held) == (0, 1, 0)


def test_a_directory_is_looked_at_with_all_that_lies_below(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new/a/b/one.txt": b"1\n", "new/two.txt": b"2\n", "new/_hidden.txt": b"no\n", "other/three.txt": b"3\n"})
    queue.send(said(source / "new", folder=True), said(source / "new/a", folder=True), said(source / "new/two.txt"))
    report = by_events(source, out)
    assert (report.files, queue.held) == (2, 0)
    queue.send(said(tmp_path, folder=True))
    assert by_events(source, out).files == 1, "what lies above the source, too"


def test_what_the_call_does_not_mean_is_passed_over(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", {"a.xml": b"<a/>", "d/b.xml": b"<b/>"}), tmp_path / "out"
    settings = {"include": "*.xml", "exclude": "not*"}
    by_events(source, out, **settings)
    outside = write(tmp_path / "secret", {"x.xml": b"<x/>"})
    write(source, {"c.txt": b"c", "not.xml": b"<n/>", "_h/d.xml": b"<d/>", ".e.xml": b"<e/>", "good.xml": b"<g/>"})
    (source / "link").symlink_to(outside)
    (source / "l.xml").symlink_to(outside / "x.xml")
    os.mkfifo(source / "pipe.xml")
    lies = ["c.txt", "not.xml", "_h/d.xml", ".e.xml", "link/x.xml", "l.xml", "pipe.xml", "../secret/x.xml", "d", "d/../a.xml", "good.xml"]
    queue.send(*(said(source / name) if ".." not in name else Event(("file", ""), f"{source}/{name}".lstrip("/")) for name in lies))
    queue.send(
        Event(("s3", "bucket"), "a.xml"),
        Event(("file", ""), ""),
        Event(("file", ""), "x" * 5000),
        Event(("file", ""), f"{source}/a\0".lstrip("/")),
    )
    queue.send(Event(("file", ""), f"{source}/{'n' * 300}.xml".lstrip("/")))
    report = by_events(source, out, **settings)
    assert (report.files, queue.held) == (1, 1), "a name that no disk can have is told as unreadable"
    assert names(out) == ["a.xml", "b.xml", "good.xml"]
    assert gather(source, out, **settings).files == 0


def test_messages_that_are_not_understood_stay_and_are_told_once(
    tmp_path: Path, queue: FakeQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    queue.send_nonsense("it is not JSON: 'hello'")
    queue.send_nonsense("it is not JSON: 'world'")
    capsys.readouterr()
    report = by_events(source, out)
    assert (report.events.not_understood, queue.held, queue.deleted) == (2, 2, [])
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "not understood" in line]
    assert told == (
        "fake://q: 2 messages are not understood and stay there, for the queue's dead-letter rule or whoever it is for. For example: it is "
        "not JSON: 'hello'"
    )


def test_a_file_that_has_changed_is_what_the_call_says(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    for on_change, files in (("report", 0), ("reprocess", 1)):
        by_events(source, out, on_change=on_change)
        (source / "d0/f0000.txt").write_bytes(on_change.encode() + b" anew\n")
        queue.send(said(source / "d0/f0000.txt"))
        report = by_events(source, out, on_change=on_change)
        assert (report.files, report.changed_count, queue.held) == (files, 1 - files, 0)
    assert b"reprocess anew" in b"".join(p.read_bytes() for p in out.glob("part-*"))


def test_lines_that_come_to_files_are_taken(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", {"a.log": b"1\n2\n"}), tmp_path / "out"
    by_events(source, out, on_append="tail")
    with (source / "a.log").open("ab") as file:
        file.write(b"3\n4")
    queue.send(said(source / "a.log"))
    assert (by_events(source, out, on_append="tail").records, queue.held) == (1, 0)
    with (source / "a.log").open("ab") as file:
        file.write(b"4\n")
    queue.send(said(source / "a.log"))
    by_events(source, out, on_append="tail")
    assert b"".join(sorted(b"".join(p.read_bytes() for p in out.glob("part-*")).splitlines(keepends=True))) == b"1\n2\n3\n44\n"


def test_one_quarantined_file_that_is_named_again_fails_nothing(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", {"a.xml": b"<a/>", "bad.xml": b"<"}), tmp_path / "out"
    by_events(source, out, transform="xml", max_quarantined=None)
    queue.send(said(source / "bad.xml"))
    report = by_events(source, out, transform="xml", max_quarantined=None)
    assert (report.events.known, report.failure, queue.held) == (1, "", 0)


def test_a_queue_that_is_away_lets_the_listing_come_that_is_due(
    tmp_path: Path, queue: FakeQueue, now: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    away = [False]

    def receive() -> None:
        now[0] += HOUR
        if away[0]:
            raise TransientError("cannot receive events from fake://q: nobody listens there")
        if queue.asked == 3:
            away[0] = True
            write(source, {"new.txt": b"new\n"})

    queue.before["receive"] = receive
    with refused(StorageError, 3, "nobody listens there", "outage="):
        by_events(source, out, every="0.001 s", relist="5 h", outage="2 s")
    assert "new.txt" in names(out)
    assert "waits" in capsys.readouterr().err


def test_a_queue_that_never_answered_is_said_before_anything_is_read(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"

    def receive() -> None:
        raise StorageError("cannot receive events from fake://q: such a queue is not there. Check the URL.")

    queue.before["receive"] = receive
    with refused(StorageError, 3, "such a queue is not there"):
        by_events(source, out, every="1 s")
    assert not out.exists()


def test_lost_events_are_made_up_for_by_a_listing_that_comes_to_its_end(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.overflown = True
    report = by_events(source, out)
    assert (report.files, report.events.lists) == (1, 1)


class Crash(BaseException):
    """The process is gone."""


@pytest.fixture
def crash(monkeypatch: pytest.MonkeyPatch, queue: FakeQueue) -> Callable[[int], None]:
    """Let the process die before the n-th change of the destination or the queue."""
    left = [CRASHES * 1000]

    def change(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Crash

    for name in ("put", "put_if_absent", "rename", "remove", "create"):
        real = getattr(LocalStore, name)

        def changing(self: LocalStore, *args: Any, real: Any = real, **kwargs: Any) -> Any:
            change()
            return real(self, *args, **kwargs)

        monkeypatch.setattr(LocalStore, name, changing)
    queue.before["delete"] = change

    def die(n: int) -> None:
        left[0] = n

    return die


def test_a_kill_at_any_change_loses_nothing_and_doubles_nothing(
    tmp_path: Path, queue: FakeQueue, now: list[float], crash: Callable[[int], None]
) -> None:
    source, out, n, died = write(tmp_path / "in", documents(4)), tmp_path / "out", 0, 0
    by_events(source, out)
    for n in range(CRASHES):
        new = source / f"new{n:03}.txt"
        write(source, {new.name: b"new\n"})
        queue.send([said(new), said(source / "gone")], said(source / "d0/f0000.txt"))
        crash(n)
        try:
            by_events(source, out)
        except Crash:
            died += 1
        else:
            break
        finally:
            crash(CRASHES * 1000)
        assert new.name in names(out) or queue.held, "the queue has forgotten what the ledger does not have"
        queue.expire()
        by_events(source, out)
        assert queue.held == 0
        assert names(out) == sorted(p.name for p in source.rglob("*.txt"))
    assert died == n > 10
    assert names(out) == sorted(p.name for p in source.rglob("*.txt"))


def test_a_kill_in_the_full_listing_lets_it_come_again(
    tmp_path: Path, queue: FakeQueue, now: list[float], crash: Callable[[int], None]
) -> None:
    source, out, n = write(tmp_path / "in", documents(4)), tmp_path / "out", 0
    for n in range(CRASHES):
        write(source, {f"new{n:03}.txt": b"new\n"})
        now[0] += DAY
        crash(n)
        try:
            by_events(source, out)
        except Crash:
            pass
        else:
            break
        finally:
            crash(CRASHES * 1000)
        if out.exists() and f"new{n:03}.txt" not in names(out):
            assert by_events(source, out).events.lists == 1, "no event has named it, so the listing is still owed"
        else:
            by_events(source, out)
        assert names(out) == sorted(p.name for p in source.rglob("*.txt"))
    assert n > 10
    assert names(out) == sorted(p.name for p in source.rglob("*.txt"))


def test_two_calls_on_one_queue_take_each_file_once(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(4)), tmp_path / "out"
    by_events(source, out)
    write(source, {f"n{i}.txt": b"n\n" for i in range(6)})
    queue.send(*(said(source / f"n{i}.txt") for i in range(6)))
    inner = list[quire.Report]()

    def other() -> None:
        queue.before.clear()
        queue.expire()
        inner.append(by_events(source, out))

    queue.before["delete"] = other
    report = by_events(source, out)
    assert (report.files, inner[0].files, queue.held) == (6, 0, 0)
    assert names(out) == sorted(p.name for p in source.rglob("*.txt"))


def test_a_message_is_deleted_after_its_commit_cannot_change_any_more(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(4)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    seen = list[bool]()
    queue.before["delete"] = lambda: seen.append("new.txt" in names(out) and not list((out / "_quire" / "jobs").glob("*")))
    by_events(source, out)
    assert seen == [True]


class Slow:
    """Looks at a file that take as long as a test says: until the queue was asked to hold its messages so often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, queue: FakeQueue, times: int) -> None:
        self.held, self.times, stat = 0, times, LocalStore.stat
        queue.before["hold"] = self.noted

        def slowly(store: LocalStore, name: str) -> Any:
            end = time.monotonic() + 20
            while name == "new.txt" and self.held < self.times and time.monotonic() < end:
                time.sleep(0.005)
            return stat(store, name)

        monkeypatch.setattr(LocalStore, "stat", slowly)

    def noted(self) -> None:
        self.held += 1


def keepers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "quire-events-held"]


def test_messages_are_held_while_a_run_works_and_not_after_it(tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"), said(source / "gone"))
    queue.hidden = 0.06
    slow = Slow(monkeypatch, queue, 4)
    report = by_events(source, out)
    assert (report.files, queue.held, sorted(queue.deleted)) == (1, 0, ["m0", "m1"]), "deleted by the handles that they have by then"
    assert (slow.held >= 4, set(queue.handles), keepers()) == (True, {"m0", "m1"}, [])


def test_a_message_that_still_waits_is_hidden_from_when_it_was_held(
    tmp_path: Path, queue: FakeQueue, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out, min_age="30 s")
    write(source, {"new.txt": b"new\n"})
    os.utime(source / "new.txt")
    queue.send(said(source / "new.txt"))
    queue.hidden = 0.06

    def later() -> None:
        slow.noted()
        now[0] += 0.05

    slow = Slow(monkeypatch, queue, 3)
    queue.before["hold"] = later
    runs = list[int]()
    queue.before["receive"] = lambda: runs.append(len(queue.given))
    report = by_events(source, out, min_age="30 s", every="0 s", max_runs=2)
    assert (runs, report.events.waiting, queue.held) == ([0, 1], 1, 1)


AWAY = StorageError("cannot hold events of fake://q: it is away.")


@pytest.mark.parametrize("error", [AWAY, ZeroDivisionError("a mistake of ours")], ids=str)
def test_what_befalls_the_holding_of_messages_is_seen_and_no_work_is_lost(
    tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    queue.hidden = 0.06
    slow = Slow(monkeypatch, queue, 2 if isinstance(error, StorageError) else 1)

    def away() -> None:
        slow.noted()
        raise error

    queue.before["hold"] = away
    capsys.readouterr()
    if isinstance(error, StorageError):
        assert (by_events(source, out).files, queue.held) == (1, 0)
        (told,) = [line for line in capsys.readouterr().err.splitlines() if "not held" in line]
        assert "it is away" in told
    else:
        with pytest.raises(ZeroDivisionError):
            by_events(source, out)
    assert ("new.txt" in names(out), keepers()) == (True, [])


def test_a_run_that_fails_holds_nothing_any_more(tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    queue.hidden = 0.03
    slow = Slow(monkeypatch, queue, 2)

    def failing(*_: Any, **__: Any) -> Any:
        raise StorageError("the disk is full.")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "put_if_absent", failing)
        with refused(StorageError, 3, "disk is full"):
            by_events(source, out)
    assert (slow.held >= 2, keepers(), queue.held) == (True, [], 1)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of sources that are looked up."""
    found, stat = list[str](), LocalStore.stat

    def stated(self: LocalStore, name: str) -> Any:
        if not self.url.endswith("/out"):
            found.append(name)
        return stat(self, name)

    monkeypatch.setattr(LocalStore, "stat", stated)
    return found


def test_each_name_is_looked_up_once(tmp_path: Path, queue: FakeQueue, looked: list[str]) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n", "other.txt": b"other\n"})
    looked.clear()
    queue.send(*(said(source / name) for name in ("new.txt", "other.txt", "d0/f0000.txt", "gone", "new.txt")))
    report = by_events(source, out)
    assert (report.files, queue.held) == (2, 0)
    assert sorted(looked) == ["d0/f0000.txt", "gone", "new.txt", "other.txt"]


def test_a_file_that_changes_while_it_is_read_is_looked_at_again_and_its_message_settled_by_what_was_taken(
    tmp_path: Path, queue: FakeQueue, looked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out, on_change="reprocess")
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    make, plans = plan.make, list[int]()

    def changing(*args: Any) -> Any:
        found = make(*args)
        plans.append(1)
        if len(plans) == 1:
            (source / "new.txt").write_bytes(b"newer than the plan\n")
        return found

    monkeypatch.setattr(plan, "make", changing)
    looked.clear()
    report = by_events(source, out, on_change="reprocess")
    assert (report.files, queue.held, looked.count("new.txt") >= 2) == (1, 0, True)
    assert b"newer than the plan\n" in b"".join(p.read_bytes() for p in out.glob("part-*"))


def test_a_file_that_changes_each_time_it_is_read_keeps_its_message(
    tmp_path: Path, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write(tmp_path / "in", documents(6)), tmp_path / "out"
    by_events(source, out)
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    make, plans = plan.make, list[int]()

    def changing(*args: Any) -> Any:
        found = make(*args)
        plans.append(1)
        (source / "new.txt").write_bytes(b"n" * len(plans))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(plan, "make", changing)
        report = by_events(source, out)
    assert (report.files, report.events.waiting, queue.held) == (0, 1, 1)
    queue.expire()
    assert (by_events(source, out).files, queue.held) == (1, 0)


def ids(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    return [{"id": split.path.rpartition("/")[2], "city": "sf", "size": len(content)}]


def test_into_a_table_the_columns_are_those_of_the_files_that_events_name(
    tmp_path: Path, queue: FakeQueue, listed: list[str], looked: list[str]
) -> None:
    source, out = write(tmp_path / "in", documents(4)), tmp_path / "out"
    table = quire.Table.create(out, key="id")
    call = {"spark": LOCAL, "progress": False, "events": "fake://q"}
    assert quire.process(source, table, ids, **call).files == 4
    write(source, {f"n{i}.txt": b"new\n" for i in range(3)})
    queue.send(*(said(source / f"n{i}.txt") for i in range(3)), said(source / "d0/f0000.txt"), said(source / "gone"))
    listed.clear()
    looked.clear()
    report = quire.process(source, table, ids, **call)
    assert (report.files, report.events.new, report.events.lists, queue.held) == (3, 3, 0, 0)
    assert [path for path in listed if path.startswith(f"file://{source}")] == [], "nothing of the source was listed"
    assert max(map(looked.count, looked)) <= 2
    assert table.snapshot(spark=LOCAL).num_rows == 7
    assert [quire.process(source, table, ids, **call).events.lists for _ in range(2)] == [0, 0], "also where nothing is new"


def test_where_all_was_quarantined_the_columns_are_those_of_the_files_that_events_name(
    tmp_path: Path, queue: FakeQueue, listed: list[str]
) -> None:
    source, out = write(tmp_path / "in", {"bad.txt": b"bad"}), tmp_path / "out"

    def strict(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
        return [{"n": int(content)}]

    call = {"spark": LOCAL, "progress": False, "events": "fake://q", "max_quarantined": 9}
    assert quire.process(source, out, strict, **call).quarantined_count == 1
    write(source, {"good.txt": b"7"})
    queue.send(said(source / "good.txt"))
    listed.clear()
    report = quire.process(source, out, strict, **call)
    assert (report.files, report.events.lists, queue.held) == (1, 0, 0)
    assert [path for path in listed if path.startswith(f"file://{source}")] == []
    assert [pq.read_table(path).to_pylist() for path in out.glob("part-*")] == [[{"n": 7}]]


def rows(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    return [{"name": split.path.rpartition("/")[2], "size": len(content)}]


def test_a_function_goes_by_events_too(tmp_path: Path, queue: FakeQueue) -> None:
    source, out = write(tmp_path / "in", documents(4)), tmp_path / "out"
    call = {"spark": LOCAL, "progress": False, "events": "fake://q", "schema": "name string, size long"}
    assert quire.process(source, out, rows, **call).files == 4
    write(source, {"new.txt": b"new\n"})
    queue.send(said(source / "new.txt"))
    report = quire.process(source, out, rows, **call)
    assert (report.files, report.events.new, report.events.lists) == (1, 1, 0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"events": "kafka://x"}, ("events", "kafka", "sqs")),
        ({"events": "sqss://x/1/q"}, ("sqss", "sqs")),
        ({"events": "queue"}, ("names no source of events", "sqs://")),
        ({"events": 7}, ("names no source of events",)),
        ({"events": ""}, ("names no source of events",)),
        ({"events": "inotify"}, ("every=",)),
        ({"relist": "1 h"}, ("relist", "events=")),
        ({"events": "fake://q", "relist": "often"}, ("relist", "often")),
        ({"events": "sqs://AKIA:secret@sqs.eu-west-1.amazonaws.com/1/q"}, ("carries credentials",)),
        ({"events": "fake://q", "split_by_schema": True, "transform": "parquet"}, ("split_by_schema",)),
    ],
    ids=str,
)
def test_wrong_words_are_said_in_one_line(tmp_path: Path, queue: FakeQueue, settings: dict[str, Any], words: tuple[str, ...]) -> None:
    source = write(tmp_path / "in", documents(2))
    with refused(UsageError, 2, *words) as e:
        gather(source, tmp_path / "out", **settings)
    assert "secret" not in str(e.value)
    assert not (tmp_path / "out").exists()
