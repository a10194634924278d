"""Files that are appended to: each line once, whenever it comes, and nothing of a line before its end."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import gather, not_taken, refused, write
from quire import Ledger
from quire.coverage import tails
from quire.engine import take_up
from quire.errors import UsageError
from quire.read import first_rows
from quire.storage import Unreadable, Vanished
from quire.storage.local import LocalStore

TAIL: dict[str, Any] = {"transform": "lines", "on_append": "tail"}


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
    later = time.time_ns() + 1_000_000  # another version, however coarse the file system's clock is
    os.utime(path, ns=(later, later))


def forbidden(*args: Any, **kwargs: Any) -> Any:
    """In `settle`'s place: the split is not allowed to be read."""
    return Unreadable("no permission")


def lines(dest: Path) -> list[bytes]:
    return sorted(first_rows(Ledger(dest)._store, 1 << 30))


@pytest.mark.nth(2)
@pytest.mark.parametrize("target", ["1 MiB", "40 B", "12 B"], ids=str)
@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_only_what_is_new_is_read_and_each_line_is_there_once(tmp_path: Path, target: Any, compression: str) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntwo\n", "b.log": b"", "c.log": b"x\n"}), tmp_path / "out"
    how = {**TAIL, "target_size": target, "compression": compression}
    gather(source, dest, **how)
    append(source / "a.log", b"three\nfour, and a longer one\n")
    append(source / "b.log", b"first\n")
    report = gather(source, dest, **how)
    assert (report.bytes, not_taken(report), report.held_back) == (35, 0, 0) if target != 12 else not_taken(report) == 0
    append(source / "a.log", b"five\n")
    gather(source, dest, **how)
    assert lines(dest) == sorted([b"one", b"two", b"three", b"four, and a longer one", b"five", b"first", b"x"])
    assert gather(source, dest, **how).bytes == 0
    ledger = Ledger(dest)
    assert ledger.read(source / "a.log") == (source / "a.log").read_bytes()
    assert ledger.summary().files == 3
    assert ledger.summary().bytes_read == sum(p.stat().st_size for p in source.iterdir())
    assert ledger.verify(spark=gather_runner()).ok


def gather_runner() -> Any:
    import quire

    return quire.LocalRunner()


def test_a_line_without_its_end_is_held_back_until_it_is_whole(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntw", "b.log": b"no end", "c.log": b"whole\n"}), tmp_path / "out"
    report = gather(source, dest, **TAIL)
    assert (report.files, report.held_back) == (2, 2)
    assert "last lines held back" in str(report)
    assert lines(dest) == [b"one", b"whole"]
    again = gather(source, dest, **TAIL)
    assert (again.bytes, again.held_back, again.jobs) == (0, 2, ())
    append(source / "a.log", b"o\nthr")
    append(source / "b.log", b" yet\n")
    gather(source, dest, **TAIL)
    assert lines(dest) == [b"no end yet", b"one", b"two", b"whole"]
    assert Ledger(dest).summary().held_back == 1
    report = gather(source, dest, partial_lines="take", **TAIL)
    assert report.held_back == 0
    assert lines(dest) == [b"no end yet", b"one", b"thr", b"two", b"whole"]
    assert Ledger(dest).summary().held_back == 0
    assert Ledger(dest).summary().files == 3
    assert gather(source, dest, **TAIL).jobs == ()


@pytest.mark.nth(3)
@pytest.mark.parametrize("more", [b"o\n", b"\n", b"o\nthree\n", b"\nthree\n", b"o\nthr", b"o"])
@pytest.mark.parametrize("flush", ["hold", "take"])
def test_what_is_appended_to_a_line_that_was_flushed_is_not_taken_for_a_line(tmp_path: Path, more: bytes, flush: str) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntw", "b.log": b"1\n2"}), tmp_path / "out"
    gather(source, dest, partial_lines="take", **TAIL)
    append(source / "a.log", more)
    (source / "b.log").write_bytes(b"1\n3\n4")
    for _ in range(2):
        report = gather(source, dest, partial_lines=flush, **TAIL)
        assert (report.files, not_taken(report), report.longer_count) == (0, 2, 1)
        (_, grown), (_, rewritten) = sorted(report.changed)
        assert grown.startswith("appended to since its last line was taken without a newline")
        assert rewritten.startswith("rewritten")
        assert lines(dest) == [b"1", b"2", b"one", b"tw"]
    report = gather(source, dest, on_change="reprocess", partial_lines="take", **TAIL)
    assert not_taken(report) == 0
    whole = (b"one\ntw" + more).splitlines()
    assert lines(dest) == sorted([*whole, b"1", b"3", b"4"]), "each line once, as it is now"
    if more.endswith(b"\n"):
        append(source / "a.log", b"next\n")
        assert gather(source, dest, **TAIL).bytes == 5, "from its last whole line on it is followed again"
        assert lines(dest) == sorted([*whole, b"next", b"1", b"3", b"4"])


def test_a_rewritten_file_is_no_appended_one(tmp_path: Path) -> None:
    content = b"".join(b"line %05d\n" % i for i in range(3_000))  # 33 KB: more than both ends
    source, dest = write(tmp_path / "in", {"a.log": content, "b.log": b"1\n2\n", "c.log": b"1\n2\n3\n"}), tmp_path / "out"
    gather(source, dest, **TAIL)
    for name, new in (("a.log", b"other" + content[5:] + b"more\n"), ("b.log", b"1\n3\n4\n"), ("c.log", b"1\n")):
        (source / name).write_bytes(new)
    report = gather(source, dest, **TAIL)
    assert (report.files, not_taken(report)) == (0, 3)
    assert all("rewritten" in why for _, why in report.changed)
    report = gather(source, dest, on_change="reprocess", **TAIL)
    assert not_taken(report) == 0
    assert lines(dest) == sorted(b"".join((source / n).read_bytes() for n in ("a.log", "b.log", "c.log")).splitlines())
    append(source / "a.log", b"tail\n")
    assert gather(source, dest, **TAIL).bytes == 5


def test_by_default_an_appended_file_is_reported_and_the_rest_is_gathered(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\n"}), tmp_path / "out"
    gather(source, dest)
    append(source / "a.log", b"two\n")
    write(source, {"b.log": b"other\n"})
    told = str(quire.plan(source, dest, transform="lines", spark=quire.LocalRunner(), progress=False))
    report = gather(source, dest)
    assert (report.files, not_taken(report), report.changed_count, report.longer_count) == (1, 1, 1, 1)
    for words in (told, str(report)):
        assert re.search(r"changed since, not read +1 \(1 of them longer now\)\n", words), words
        assert f"quire ledger changed {dest} {source} names all; on_change='reprocess' reads their new content" in words
    assert lines(dest) == [b"one", b"other"]


def test_an_appended_file_can_be_read_again_whole(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.xml": b"<a/>", "b.xml": b"<b/>"}), tmp_path / "out"
    gather(source, dest, transform="xml", on_append="reprocess")
    append(source / "a.xml", b"\n<!-- more -->")
    (source / "b.xml").write_bytes(b"<c/>")
    report = gather(source, dest, transform="xml", on_append="reprocess")
    assert (report.files, not_taken(report)) == (1, 1), "b.xml was rewritten: that is another matter"


def test_what_was_taken_in_tails_can_be_compacted_forgotten_and_superseded(tmp_path: Path) -> None:
    import quire

    source, dest = write(tmp_path / "in", {"a.log": b"one\nhel", "b.log": b"x\n"}), tmp_path / "out"
    gather(source, dest, **TAIL)
    append(source / "a.log", b"d\ntwo\n")
    gather(source, dest, **TAIL)
    here: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
    ledger = Ledger(dest)
    assert ledger.compact(**here).removed == 2
    append(source / "a.log", b"three\n")
    assert gather(source, dest, **TAIL).bytes == 6, "fingerprints are carried over"
    (source / "a.log").write_bytes(b"new\n")
    gather(source, dest, on_change="reprocess", **TAIL)
    assert lines(dest) == [b"new", b"x"]
    ledger.refresh().forget(source / "a.log", **here)
    assert lines(dest) == [b"x"]
    gather(source, dest, **TAIL)
    assert lines(dest) == [b"new", b"x"]
    assert ledger.refresh().summary().files == 2


def test_every_line_once_while_a_writer_appends(tmp_path: Path) -> None:
    """The writer writes half lines, lines and many lines at once, and never waits; jobs run against it all the time."""
    source, dest = write(tmp_path / "in", {f"{i}.log": b"" for i in range(3)}), tmp_path / "out"
    stop, written = threading.Event(), [0, 0, 0]

    def writer() -> None:
        n = 0
        files = [(source / f"{i}.log").open("ab", buffering=0) for i in range(3)]
        while not stop.is_set():
            for i, file in enumerate(files):
                text = b"".join(b"%d line %d %s\n" % (i, written[i] + k, b"x" * (n % 40)) for k in range(1 + n % 3))
                half = len(text) // 2
                file.write(text[:half])
                time.sleep(0.002)
                file.write(text[half:])
                written[i] += 1 + n % 3
                n += 1
        for file in files:
            file.close()

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        taken = [gather(source, dest, **TAIL).bytes for _ in range(12)]
    finally:
        stop.set()
        thread.join()
    assert sum(n > 0 for n in taken) >= 6, "a file that is always being written to was never read"
    for _ in range(3):
        gather(source, dest, **TAIL)
    assert lines(dest) == sorted(b"".join((source / f"{i}.log").read_bytes() for i in range(3)).splitlines())
    assert len(set(lines(dest))) == sum(written)


def test_a_line_that_gets_its_end_between_the_listing_and_the_reading_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntw"}), tmp_path / "out"
    real = take_up._freeze

    def freeze(*args: Any) -> Any:
        head = real(*args)
        monkeypatch.undo()
        append(source / "a.log", b"o\nthree\n")
        return head

    monkeypatch.setattr("quire.engine.take_up._freeze", freeze)
    gather(source, dest, **TAIL)
    gather(source, dest, **TAIL)
    assert lines(dest) == [b"one", b"three", b"two"]
    gather(source, dest, partial_lines="take", **TAIL)
    assert lines(dest) == [b"one", b"three", b"two"]


@pytest.mark.nth(2)
@pytest.mark.parametrize("planner", ["balanced", "hash"])
def test_a_long_file_that_grows_while_it_is_read_is_taken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planner: str
) -> None:
    content = b"".join(b"line %03d %s\n" % (i, b"x" * (i % 17)) for i in range(200))
    source, dest = write(tmp_path / "in", {"a.log": content[:900]}), tmp_path / "out"
    how = {**TAIL, "target_size": "50 B", "planner": planner}
    monkeypatch.setattr("quire.engine.kinds.reading.APPENDED", 300)
    real, grown = LocalStore.read_many, [900]

    def growing(self: LocalStore, requests: Any) -> Any:
        for answer in real(self, requests):
            if grown[0] < len(content):
                append(source / "a.log", content[grown[0] : grown[0] + 170])
                grown[0] += 170
            yield answer

    monkeypatch.setattr(LocalStore, "read_many", growing)
    for _ in range(40):
        gather(source, dest, **how)
    monkeypatch.undo()
    assert (source / "a.log").read_bytes() == content
    gather(source, dest, **how)
    assert lines(dest) == sorted(content.splitlines())


def test_a_long_line_without_its_end_is_held_back_whole(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\n" + b"x" * 40}), tmp_path / "out"
    gather(source, dest, target_size="16 B", **TAIL)
    assert lines(dest) == [b"one"]
    append(source / "a.log", b"y\n")
    gather(source, dest, target_size="16 B", **TAIL)
    assert lines(dest) == [b"one", b"x" * 40 + b"y"]


def test_a_range_that_is_gone_leaves_what_another_range_of_its_file_takes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntw"}), tmp_path / "out"
    how = {**TAIL, "planner": "hash", "parts": 1, "target_size": "12 B"}
    gather(source, dest, **how)
    append(source / "a.log", b"o\nthree\nfour\nfive\nsix\nseven\n")
    real, n = LocalStore.read_many, [0]

    def gone(self: LocalStore, requests: Any) -> Any:
        for request, content in real(self, requests):
            n[0] += 1
            yield request, Vanished("changed") if request.name == "a.log" and request.start > 12 and n[0] < 5 else content

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, "read_many", gone)
        gather(source, dest, **how)
    append(source / "a.log", b"more\n")
    gather(source, dest, **how)
    assert lines(dest) == sorted((source / "a.log").read_bytes().splitlines())


def test_an_end_that_was_set_aside_is_read_again_when_the_file_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\n"}), tmp_path / "out"
    gather(source, dest, **TAIL)
    append(source / "a.log", b"two\n")
    with monkeypatch.context() as patch:
        patch.setattr("quire.engine.kinds.reading.FileSplit.settle", forbidden)
        assert not_taken(gather(source, dest, **TAIL)) == 1
    append(source / "a.log", b"three\n")
    assert not_taken(gather(source, dest, **TAIL)) == 0
    assert lines(dest) == [b"one", b"three", b"two"]
    assert Ledger(dest).summary().quarantined == 0


def test_what_was_retried_is_followed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\ntw"}), tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr("quire.engine.kinds.reading.FileSplit.settle", forbidden)
        assert not_taken(gather(source, dest, **TAIL)) == 1
    assert Ledger(dest).retry(source, spark=gather_runner(), progress=False).gathered == 1
    assert lines(dest) == [b"one"]
    append(source / "a.log", b"o\n")
    gather(source, dest, **TAIL)
    assert lines(dest) == [b"one", b"two"]


def test_a_part_whose_data_file_was_lost_is_read_again_though_the_file_has_grown_since(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"a.log": b"one\n"}), tmp_path / "out"
    for more in (b"two\n", b"three\n", b"four\n"):
        gather(source, dest, **TAIL)
        append(source / "a.log", more)
    ledger = Ledger(dest)
    for at, rest in ((0, [b"two", b"three"]), (4, [b"one", b"three", b"four", b"five"])):
        lost = next(x.data_file for x in ledger.refresh().locate(source / "a.log") if x.start == at)
        assert lost is not None
        (dest / lost).unlink()
        ledger.forget(file=lost, spark=gather_runner(), progress=False)
        assert lines(dest) == sorted(rest)
        append(source / "a.log", b"five\n" if not at else b"six\n")
        assert not_taken(gather(source, dest, **TAIL)) == 0, "it is no rewritten file"
        assert lines(dest) == sorted((source / "a.log").read_bytes().splitlines())
        assert gather(source, dest, **TAIL).jobs == ()
    assert ledger.refresh().read(source / "a.log") == (source / "a.log").read_bytes()


def test_a_line_without_its_end_may_be_longer_than_what_is_held_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"one\ntwo\n" + b"x" * 3_000_000
    source, dest = write(tmp_path / "in", {"a.log": content}), tmp_path / "out"
    held, real = [0], tails._read

    def read(store: Any, entry: Any, start: int, length: int) -> bytes:
        held.append(length)
        return real(store, entry, start, length)

    monkeypatch.setattr(tails, "_read", read)
    monkeypatch.setattr(tails, "PIECE", 1000)
    assert gather(source, dest, **TAIL).held_back == 1
    assert max(held) <= 8192
    assert lines(dest) == [b"one", b"two"]
    append(source / "a.log", b"y\nthree")
    gather(source, dest, **TAIL)
    assert [len(line) for line in lines(dest)] == [3, 3, 3_000_001]


def test_wrong_use_is_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a": b"1"})
    with refused(UsageError, 2, "on_append", "lines"):
        gather(source, tmp_path / "out", transform="xml", on_append="tail")
    with refused(UsageError, 2, "partial_lines"):
        gather(source, tmp_path / "out", partial_lines="take")
    with refused(UsageError, 2, "on_append"):
        gather(source, tmp_path / "out", on_append="tails")
