"""Files that have gone from the source are counted by stretches of the ledger, which are looked through once: the count is the ledger's."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from gathering import gather, write
from quire import Ledger, LocalRunner
from quire.commit import names
from quire.coverage import checkpoint, segments
from quire.coverage.fold import after
from quire.planning import deleted, stretches
from quire.planning.deleted import ListedNames
from quire.planning.stretches import Spans, Stretch

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that is cut is cut after a few files; a checkpoint is written where a test says so."""
    for module, name, value in (
        (segments, "ROW_GROUP", 6), (deleted, "PART", 2), (deleted, "RANGE", 2), (deleted, "NARROW", 9), (checkpoint, "ENTRIES", 9_999),
        (checkpoint, "PIECE_ROWS", 20),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)


def told(source: Path, dest: Path, **how: Any) -> int:
    return len(Ledger(dest).inspect.deleted(source, spark=LocalRunner(), **how))


def test_what_comes_after_a_beginning_comes_after_all_that_begins_so() -> None:
    assert [after(text) for text in ("a/", "a", "a\U0010ffff", "\ud7ff", "a\uffff", "\U0010ffff", "")] == [
        "a0", "b", "b", "\ue000", "a\U00010000", "", "",
    ]  # fmt: skip
    for text in ("file:///a/", "é\U0010ffff", "x\ud7ff"):
        every = [text, f"{text}\U0010ffff", f"{text}\U0010ffff\U0010ffff/q", f"{text}\0", f"{text}/\U0010ffffq", f"{text}z"]
        assert max(every) < after(text)
        assert max(each.encode() for each in every) < after(text).encode()
        assert not after(text).startswith(text)


@pytest.mark.nth(6)
@pytest.mark.parametrize("seed", range(6))
def test_it_is_what_the_ledger_says_whatever_has_happened_since(tmp_path: Path, seed: int) -> None:
    chance, source, dest = random.Random(seed), tmp_path / "in", tmp_path / "out"
    for n in range(16):
        day = n // 3
        for i in range(chance.randrange(1, 5)):
            name = f"{chance.choice(['', '_'])}{day:02}/{chance.choice(['', 'deep/'])}{n:02}-{i}.{chance.choice(['xml', 'log'])}"
            write(source, {name: b"<a>%d</a>" % n if chance.random() < 0.9 else b"<a>"})
        there = sorted(path for path in source.rglob("*.*") if path.parent != source)
        for path in chance.sample(there, len(there) // 4):
            write(source, {str(path.relative_to(source)): b"<other>%d</other>" % n}) if chance.random() < 0.3 else path.unlink()
        if n % 3 == 0 and day > 1:
            shutil.rmtree(source / f"{day - 2:02}", ignore_errors=True)
        write(source, {"one.log": b"<a/>"})
        for how in chance.sample([{}, {"hidden": True}, {"include": "*.log"}, {"exclude": "0*/deep/*"}], 2):
            report = gather(source, dest, transform="xml", on_change=chance.choice(["report", "reprocess"]), target_size="60 B", **how)
            assert report.deleted == told(source, dest, **how)
        ledger, what, splits = Ledger(dest), chance.randrange(5), Ledger(dest).inspect.splits(spark=LocalRunner())["path"]
        if what == 0:
            ledger.compact("1 MiB", **HERE)
        elif what == 1:
            ledger.forget(sorted({*splits.iloc[: len(splits) // 5]}) or splits.iloc[0], last_copy=True, **HERE)
        elif what == 2:
            ledger.retry(source, max_quarantined=99, **HERE)
        if n in (3, 6, 9, 12):
            ledger.checkpoint(spark=HERE["spark"])


def test_rows_that_have_moved_are_counted_where_they_are(tmp_path: Path) -> None:
    source, dest = tmp_path / "in", tmp_path / "out"
    for day in range(4):
        write(source, {f"{day:02}/{i}": b"x\n" for i in range(7)})
        gather(source, dest)
    Ledger(dest).checkpoint(spark=HERE["spark"])
    for day in range(3):
        shutil.rmtree(source / f"{day:02}")
    for _ in range(3):
        assert gather(source, dest).deleted == 21
    Ledger(dest).compact("1 MiB", **HERE)
    assert gather(source, dest).deleted == 21, "each has moved to another data file"
    Ledger(dest).forget([f"file://{source}/01/{i}" for i in range(3)], last_copy=True, **HERE)
    for _ in range(2):
        assert gather(source, dest).deleted == 18


def test_a_file_without_rows_in_a_data_file_is_counted_until_it_is_forgotten(tmp_path: Path) -> None:
    source, dest = write(tmp_path / "in", {f"00/{i}": b"" for i in range(9)} | {"01/there": b"x\n"}), tmp_path / "out"
    gather(source, dest)
    Ledger(dest).checkpoint(spark=HERE["spark"])
    shutil.rmtree(source / "00")
    for _ in range(3):
        assert gather(source, dest).deleted == 9
    Ledger(dest).forget(f"file://{source}/00/4", last_copy=True, **HERE)
    assert gather(source, dest).deleted == 8


def test_each_call_counts_the_files_that_it_means(tmp_path: Path) -> None:
    files = {f"{folder}/{i}.{kind}": b"x\n" for folder in ("00", "_h") for i in range(4) for kind in ("log", "txt")}
    source, dest = write(tmp_path / "in", {**files, "there.log": b"x\n"}), tmp_path / "out"
    gather(source, dest, hidden=True)
    Ledger(dest).checkpoint(spark=HERE["spark"])
    shutil.rmtree(source / "00")
    shutil.rmtree(source / "_h")
    for _ in range(2):
        for how, gone in (({}, 8), ({"hidden": True}, 16), ({"include": "*.log"}, 4), ({"exclude": "*0.*"}, 6)):
            assert gather(source, dest, **how).deleted == gone, how


def test_a_stretch_is_read_once_and_its_files_are_counted_in_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, read = tmp_path / "in", tmp_path / "out", list[str]()
    for day in range(9):
        write(source, {f"{day:02}/{i}": b"x" for i in range(9)})
        gather(source, dest)
    Ledger(dest).checkpoint(spark=HERE["spark"])
    for day in range(7):
        shutil.rmtree(source / f"{day:02}")
    for way in ("read", "read_part"):
        real = getattr(segments, way)

        def counted(*given: Any, real: Any = real, **more: Any) -> Any:
            read.append(given[4] if len(given) > 4 else "")
            return real(*given, **more)

        monkeypatch.setattr(segments, way, counted)
    for _ in range(2):
        found = list[int]()
        for _ in range(3):
            read.clear()
            assert gather(source, dest).deleted == 63
            found.append(sum(f"{source}/0" in last and last < f"file://{source}/07" for last in read))
        assert found[0], "it was looked through"
        assert not found[2], "nothing is listed there any more, and nobody has said anything of it"
        Ledger(dest).compact("1 MiB", **HERE)  # all rows move to another data file
    (source / "08/4").unlink()
    assert gather(source, dest).deleted == 64
    write(source, {"03/4": b"y"})
    assert gather(source, dest).deleted == 63, "it is there again"


@pytest.mark.parametrize("copied", [False, True])
def test_a_new_checkpoint_has_the_stretches_of_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: bool) -> None:
    if not copied:
        monkeypatch.setattr(checkpoint, "_untouched", lambda *_: frozenset())
        monkeypatch.setattr(checkpoint, "digest", lambda _: names.new_id())
    source, dest, looked, within = tmp_path / "in", tmp_path / "out", list[str](), list[str]()
    write(source, {f"{day:02}/{i}": b"x" for day in range(9) for i in range(9)})
    gather(source, dest)
    for day in range(7):
        shutil.rmtree(source / f"{day:02}")
    remembered, meant = ListedNames._remembered, ListedNames._meant

    def counted(self: ListedNames, *given: Any, **more: Any) -> Any:
        within.append("")
        try:
            return remembered(self, *given, **more)
        finally:
            within.pop()
            looked.append("")

    def asked(self: ListedNames, name: str) -> bool:
        looked.extend([name] if within else [])
        return meant(self, name)

    monkeypatch.setattr(ListedNames, "_remembered", counted)
    monkeypatch.setattr(ListedNames, "_meant", asked)
    for n in range(3):
        write(source, {f"08/new{n}": b"y"})
        gather(source, dest)
        Ledger(dest).checkpoint(spark=HERE["spark"])
        looked.clear()
        for _ in range(2):
            assert gather(source, dest).deleted == 63
        assert bool(looked) == (n == 0 or not copied), "another checkpoint has other pieces, or copies of the same ones"
        assert any(looked) == (n == 0), "each path is looked at once"


def test_rows_below_a_directory_that_is_there_are_looked_through_by_whoever_lists_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest, looked = tmp_path / "in", tmp_path / "out", list[tuple[str, str]]()
    write(source, {f"{day:02}/{i}": b"x" for day in range(9) for i in range(9)})
    gather(source, dest)
    Ledger(dest).checkpoint(spark=HERE["spark"])
    for day in range(4):
        shutil.rmtree(source / f"{day:02}")
    real = ListedNames._looked_through

    def through(self: ListedNames, fold: Any, store: Any, of: Any, some: list[Stretch], most: int, *, still: bool) -> Any:
        if not self.piece.folder:
            looked.extend((stretch.first, stretch.end) for stretch in some)
        return real(self, fold, store, of, some, most, still=still)

    monkeypatch.setattr(ListedNames, "_looked_through", through)
    for n in range(4):
        looked.clear()
        write(source, {f"08/new{n}": b"y"})
        assert gather(source, dest).deleted == 36
    there = [f"file://{source}/{day:02}/" for day in range(4, 9)]
    assert looked, "parts in which one directory ends and another begins"
    assert not [each for each in looked if any(folder <= each[0] and each[1] <= after(folder) for folder in there)]
    shutil.rmtree(source / "05")
    write(source, {"05": b"a file in its place"})
    assert gather(source, dest).deleted == 45


def test_spans_meet_what_they_have_a_path_of() -> None:
    chance = random.Random(7)
    letters = "abcdefgh"
    for _ in range(300):
        ranges = [sorted(chance.choices(letters, k=2)) for _ in range(chance.randrange(5))]
        first, end = sorted(chance.sample(letters, 2))
        expected = any(low < end and high >= first for low, high in ranges)
        assert Spans((low, high) for low, high in ranges).meet(Stretch(first, end)) == expected, (ranges, first, end)
        apart = [(letters[i], letters[i + 1]) for i in range(0, 8, 2) if chance.random() < 0.6]
        expected = any(low <= first and end <= high for low, high in apart)
        assert Spans(apart).hold(Stretch(first, end)) == expected, (apart, first, end)
    assert stretches.divided(Stretch("b", "f"), "abcxf") == [Stretch("b", "c"), Stretch("c", "f")]
    assert stretches.divided(Stretch("f", "f"), "a") == []
