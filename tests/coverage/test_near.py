"""The newest rows of the ledger, held by a loop: what the ledger says, whatever happens between two runs, and each segment read once."""

from __future__ import annotations

import os
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
import quire.coverage.fold
from gathering import gather, write
from quire import Ledger
from quire.commit import names
from quire.commit.log import Log
from quire.coverage import checkpoint, near, segments
from quire.coverage.fold import fold
from quire.coverage.near import Near
from quire.storage import connect, local, normalise

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
COLUMNS = [name for name in segments.PIECE.names if name != "commit"]


def told(held: Near, dest: Path) -> list[dict[str, Any]]:
    """The ledger's rows by what is held, which are those that it has."""
    store = connect(normalise(dest))
    log = Log(store).refresh()
    plain = fold(log, log.settled_version())
    mine = held.of(plain, log)

    def rows(of: Any, **some: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = of.rows(store, COLUMNS, **some).to_pylist()
        return sorted(found, key=str)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quire.coverage.fold, "MOST", 1)
        wanted = rows(plain)  # a segment at a time
    assert rows(plain) == rows(mine) == wanted
    paths = sorted({row["path"] for row in wanted})
    if paths:
        assert rows(mine, first=paths[len(paths) // 2], last=paths[-1]) == rows(plain, first=paths[len(paths) // 2], last=paths[-1])
        among = pa.array([*paths[::2], "nowhere"])
        assert rows(mine, among=among) == rows(plain, among=among) == [row for row in wanted if row["path"] in among.to_pylist()]
        assert sorted((row for source in mine.sources for row in rows(mine.of(source))), key=str) == wanted
    return wanted


@pytest.mark.nth(2)
@pytest.mark.parametrize("seed", range(2))
def test_it_is_what_the_ledger_says_whatever_happens_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(near, "MOST", 9)
    chance, held, source, dest = random.Random(seed), Near(), tmp_path / "in", tmp_path / "out"
    for n in range(9):
        for i in range(chance.randrange(1, 4)):
            write(source, {f"d{chance.randrange(3)}/f{n}-{i}.xml": b"<a>%d</a>" % n if chance.random() < 0.8 else b"<a>"})
        gather(source, dest, transform="xml", on_change=chance.choice(["report", "reprocess"]))
        ledger, what = Ledger(dest), chance.randrange(8)
        if what == 0:
            ledger.compact("1 MiB", **HERE)
        elif what == 1:
            ledger.forget(ledger.inspect.splits()["path"].iloc[0], last_copy=True, **HERE)
        elif what == 2:
            ledger.retry(source, max_quarantined=99, **HERE)
        elif what == 3:
            ledger.checkpoint(spark=HERE["spark"])
        elif what == 4:
            found = sorted(path for path in source.rglob("*.xml"))
            write(source, {str(found[0].relative_to(source)): b"<b>changed %d</b>" % n})
        elif what == 5:
            ledger.purge_sources(source / "d0", dry_run=False, derived=True, min_age=0, spark=HERE["spark"])
        told(held, dest)
    assert told(held, dest)


def test_a_destination_that_was_made_again_is_read_anew(tmp_path: Path) -> None:
    held, source, dest = Near(), write(tmp_path / "in", {"a": b"one\n", "b": b"two\n"}), tmp_path / "out"
    for _ in range(2):
        gather(source, dest)
        assert len(told(held, dest)) == 2
    shutil.rmtree(dest)
    gather(source, dest, include="a")
    assert [row["path"].rpartition("/")[2] for row in told(held, dest)] == ["a"]


def test_a_segment_that_is_too_long_is_left_to_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "SMALL", 3)
    held, source, dest = Near(), write(tmp_path / "in", {f"f{i}": b"x\n" for i in range(4)}), tmp_path / "out"
    gather(source, dest)
    told(held, dest)
    write(source, {"g": b"y\n"})
    gather(source, dest)
    assert len(told(held, dest)) == 5
    assert held._rows.num_rows == 1


@pytest.mark.parametrize("how", ["missing", "cut", "negative", "no offset"])
def test_of_segments_that_are_read_together_the_one_that_is_damaged_is_named(tmp_path: Path, how: str) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for n in range(5):
        gather(write(source, {f"f{n}": b"line %d\n" % n}), dest)
    third = sorted((dest / "_quire/ledger").iterdir(), key=lambda path: path.stat().st_mtime_ns)[2]
    row = pq.read_table(third, schema=segments.SCHEMA).to_pylist()[0]
    forged = segments.SegmentWriter()
    forged.add(pa.Table.from_pylist([{**row, **({"length": -1} if how == "negative" else {"offset": None})}], segments.SCHEMA))
    if how == "missing":
        third.unlink()
    else:
        third.write_bytes(third.read_bytes()[:-9] if how == "cut" else forged.finish() or b"")
    store = connect(normalise(dest))
    with pytest.raises(quire.errors.FormatError, match=rf"{third.name} is (missing|damaged).* is done of commit .*f2"):
        fold(Log(store).refresh()).rows(store)


class Loop(threading.Event):
    """A file comes while the loop waits, and what else is to happen then."""

    def __init__(self, place: Path, times: int, also: Any = lambda _: None) -> None:
        super().__init__()
        self.place, self.times, self.done, self.also = place, times, 0, also

    def wait(self, timeout: float | None = None) -> bool:
        self.done += 1
        self.also(self.done)
        write(self.place, {f"f{self.done:03}": b"line %d\n" % self.done})
        return self.done > self.times


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The segments that were asked for, in their order."""
    real, found = local.LocalStore.get, list[str]()

    def get(self: Any, name: str) -> bytes:
        if name.startswith(f"{names.LEDGER}/"):
            found.append(name)
        return real(self, name)

    monkeypatch.setattr(local.LocalStore, "get", get)
    return found


def test_a_loop_reads_each_segment_at_most_twice_however_often_it_runs(tmp_path: Path, asked: list[str]) -> None:
    """Once by the second run's tasks, which hold nothing yet, or when it begins to hold; never again."""
    source = write(tmp_path / "in", {"f000": b"line 0\n"})
    gather(source, tmp_path / "out", every=1, stop=Loop(source, 12), maintain=False)
    assert Ledger(tmp_path / "out").summary().files == 13
    counts = {name: asked.count(name) for name in asked}
    assert len(counts) == 12
    assert max(counts.values()) == 1


def test_what_others_change_between_two_runs_counts(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"f000": b"line 0\n"}), tmp_path / "out"

    def also(n: int) -> None:
        if n == 3:
            Ledger(dest).forget(source / "f001", **HERE)
        if n == 5:
            Ledger(dest).compact("1 MiB", **HERE)
        if n == 6:
            os.remove(source / "f002")

    report = gather(source, dest, every=1, stop=Loop(source, 8, also), maintain=False)
    assert Ledger(dest).summary().files == 9
    assert report.deleted == 1
    lines = sorted(line for path in dest.glob("part-*") for line in path.read_bytes().splitlines())
    assert lines == sorted(b"line %d" % n for n in range(9)), "what was forgotten was read again, once"


def test_a_segment_that_is_gone_is_told_by_the_run_that_would_begin_to_hold_it(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {"f000": b"line 0\n"}), tmp_path / "out"

    def also(n: int) -> None:
        if n == 1:
            for path in (dest / "_quire/ledger").iterdir():
                path.unlink()

    with pytest.raises(quire.errors.FormatError, match="is missing, and the log names it"):
        gather(source, dest, every=1, stop=Loop(source, 4, also), maintain=False, outage="0 s")


def test_a_checkpoint_in_a_loop_takes_what_is_held_and_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]) -> None:
    monkeypatch.setattr(checkpoint, "ENTRIES", 6)
    source, dest = write(tmp_path / "in", {"f000": b"line 0\n"}), tmp_path / "out"
    gather(source, dest, every=1, stop=Loop(source, 12), maintain=False)
    assert {asked.count(name) for name in asked} == {1}
    assert Ledger(dest).summary().files == 13
    log = Log(connect(normalise(dest))).refresh()
    assert log.merged > 18, "three of them, at least"
    pieces = fold(log).rows(log.store)
    shutil.rmtree(dest / "_quire/checkpoints")
    log = Log(connect(normalise(dest))).refresh()
    assert log.merged == 0
    every = [("path", "ascending")]
    assert pieces.sort_by(every).to_pylist() == fold(log).rows(log.store).sort_by(every).to_pylist()
    assert pieces.num_rows == 13
