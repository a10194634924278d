"""Real inotify: whatever happens to hundreds of files and directories at once, each file is told, or a listing is asked for."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from gathering import gather, refused, write
from quire.errors import StorageError, UsageError
from quire.sources import inotify
from quire.sources.files import Root
from quire.sources.inotify import Inotify, opened
from quire.storage.local import to_text

PATIENCE = 20.0


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "in", {"a/old.txt": b"old\n", "b/c/older.txt": b"older\n"})


@pytest.fixture
def watch(source: Path) -> Iterator[Inotify]:
    found = opened("", {}, [Root(f"file://{source}")])
    assert found.lost(), "what came before the watch is listed"
    assert not found.lost()
    yield found
    found.close()


def told(watch: Inotify, *until: str, patience: float = PATIENCE) -> set[str]:
    """The names that are told, relative to nothing, until these are among them; those of directories end with a slash."""
    found, end = set[str](), time.monotonic() + patience
    while not set(until) <= found and time.monotonic() < end:
        found |= {f"/{event.name}{'/' * event.folder}" for one in watch.receive(10_000, lambda _: None) for event in one.events or ()}
        time.sleep(0.01)
    assert set(until) <= found, set(until) - found
    return found


def fence(watch: Inotify, source: Path) -> set[str]:
    """All that is told of what was done before."""
    mark = source / f"fence-{time.monotonic_ns()}"
    mark.touch()
    return told(watch, str(mark)) - {str(mark)}


def test_files_are_told_when_they_are_closed_moved_or_linked(source: Path, watch: Inotify, tmp_path: Path) -> None:
    with (source / "a/open.txt").open("wb") as file:
        file.write(b"1")
        file.flush()
        assert fence(watch, source) == set(), "it is still written"
    (tmp_path / "outside").write_bytes(b"2")
    (tmp_path / "outside").rename(source / "b/moved.txt")
    os.link(source / "a/old.txt", source / "b/linked.txt")
    (source / "a/old.txt").rename(source / "b/c/here.txt")
    (source / "b/c/older.txt").unlink()
    assert fence(watch, source) == {str(source / name) for name in ("a/open.txt", "b/moved.txt", "b/linked.txt", "b/c/here.txt")}


def test_directories_are_told_and_watched_with_all_below(source: Path, watch: Inotify, tmp_path: Path) -> None:
    (source / "new/x/y").mkdir(parents=True)
    told(watch, f"{source}/new/")
    (source / "new/x/y/late.txt").write_bytes(b"1")
    assert str(source / "new/x/y/late.txt") in fence(watch, source)
    shutil.move(source / "new", source / "renamed")
    assert f"{source}/renamed/" in fence(watch, source)
    (source / "renamed/x/y/later.txt").write_bytes(b"1")
    assert fence(watch, source) == {str(source / "renamed/x/y/later.txt")}
    shutil.move(source / "renamed", tmp_path / "away")
    fence(watch, source)
    (tmp_path / "away/x/y/latest.txt").write_bytes(b"1")
    assert fence(watch, source) == set(), "what has left the source is not told"


def test_names_that_are_no_text_are_told_as_the_listing_has_them(source: Path, watch: Inotify) -> None:
    odd = os.fsencode(source) + b"/a/\xff\xfe.txt"
    with open(odd, "wb") as file:
        file.write(b"1")
    assert fence(watch, source) == {to_text(os.fsdecode(odd))}


def test_more_than_the_system_keeps_asks_for_a_listing(source: Path, watch: Inotify, monkeypatch: pytest.MonkeyPatch) -> None:
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    held, real = threading.Event(), Inotify._read

    def reading(self: Inotify, data: bytes) -> None:
        held.wait(PATIENCE)  # the reader is slow, and the system's queue runs over
        real(self, data)

    monkeypatch.setattr(Inotify, "_read", reading)
    (source / "begin").touch()
    time.sleep(0.1)
    for i in range(most // 2 + 100):
        (source / f"a/{i % 7}").open("ab").close()
        (source / f"b/{i % 7}").open("ab").close()
    held.set()
    end = time.monotonic() + PATIENCE
    while not watch.lost() and time.monotonic() < end:
        time.sleep(0.01)
    assert time.monotonic() < end


def test_a_source_that_goes_and_comes_again_is_watched_anew(source: Path, watch: Inotify) -> None:
    shutil.rmtree(source)
    end = time.monotonic() + PATIENCE
    while watch._thread is not None and watch._thread.is_alive() and time.monotonic() < end:
        time.sleep(0.01)
    with refused(StorageError, 3, "cannot watch", str(source), "No such file"):
        watch.lost()
    with refused(StorageError, 3, "cannot watch"):
        watch.receive(1, lambda _: None)
    source.mkdir()
    assert watch.lost()
    (source / "x.txt").write_bytes(b"1")
    assert fence(watch, source) == {str(source / "x.txt")}


def test_what_cannot_be_watched_is_said_in_one_line(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(UsageError, 2, "s3://bucket", "local disk"):
        opened("", {}, [Root("s3://bucket")])
    with refused(UsageError, 2, "events='inotify'"):
        opened("/data", {}, [])
    monkeypatch.setattr(inotify.sys, "platform", "darwin")
    with refused(UsageError, 2, "Linux"):
        opened("", {}, [Root(f"file://{source}")])


def test_a_system_that_watches_no_more_says_so(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Inotify([str(source)])
    monkeypatch.setattr(inotify.ctypes, "get_errno", lambda: 28)
    monkeypatch.setattr(watch, "_libc", type("Full", (), {"inotify_init1": watch._libc.inotify_init1, "inotify_add_watch": lambda *_: -1}))
    with refused(StorageError, 3, "max_user_watches"):
        watch.lost()


def test_a_loop_takes_hundreds_of_files_that_come_go_and_move_at_once(tmp_path: Path) -> None:
    source, out = write(tmp_path / "in", {f"d{i % 5}/f{i:03}.txt": b"x\n" for i in range(50)}), tmp_path / "out"
    stop, reports = threading.Event(), list[quire.Report]()

    def work() -> None:
        reports.append(gather(source, out, events="inotify", every="0.05 s", stop=stop, min_age=0.0))

    loop = threading.Thread(target=work)
    loop.start()
    end = time.monotonic() + PATIENCE
    while not list(out.glob("_quire/listings/*")) and time.monotonic() < end:
        time.sleep(0.02)

    def act(n: int) -> None:
        for i in range(150):
            folder = source / f"w{n}/{i % 10}/deep"
            folder.mkdir(parents=True, exist_ok=True)
            spare = tmp_path / f"spare{n}"
            spare.write_bytes(b"new\n")
            spare.rename(folder / f"{i}.txt")  # whole when it appears
            if i % 10 == 9:
                (source / f"w{n}/{i % 10}").rename(source / f"v{n}-{i}")
            if i % 7 == 3:
                (folder / f"{i}.txt").unlink(missing_ok=True)

    actors = [threading.Thread(target=act, args=[n]) for n in range(3)]
    for actor in actors:
        actor.start()
    for actor in actors:
        actor.join()
    there, end = {str(p.resolve()) for p in source.rglob("*.txt")}, time.monotonic() + PATIENCE
    while not there <= done(out) and time.monotonic() < end:
        time.sleep(0.1)
    stop.set()
    loop.join()
    assert there <= done(out), "each file that is there was taken"
    assert len(list(out.glob("_quire/listings/*"))) == 1
    report = gather(source, out)
    assert (report.files, report.changed_count) == (0, 0), "a listing finds nothing more"


def done(out: Path) -> set[str]:
    rows = quire.Ledger(out).inspect.splits(as_="arrow", spark=quire.LocalRunner()).to_pylist()
    paths = [row["path"].removeprefix("file://") for row in rows]
    assert len(paths) == len(set(paths)), "no file twice"
    return set(paths)
