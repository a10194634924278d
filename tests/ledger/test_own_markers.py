"""Markers that a ledger takes back, those of others that it leaves alone, and names that are spelled in other ways."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from test_markers import mark, read, shown, whole

from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.errors import UsageError
from quire.ledger import markers
from quire.ledger.identifiers import identifier
from quire.planning import pieces
from quire.storage import connect
from sim.drivers import Scheduler, run
from sim.witness import forget_all
from sim.world import DEST, SOURCE, Actor, World

HERE: dict[str, Any] = {"spark": LocalRunner(), "progress": False}
WITHOUT: dict[str, Any] = {"spark": LocalRunner()}
MARKS = "memory://m"


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    """Whatever another test has left in memory is gone."""
    forget_all()
    yield
    forget_all()


def named(folder: Path, source: Path) -> list[str]:
    """The names of the files that are marked."""
    return sorted(path.removeprefix(f"{source}/") for path, *_ in shown(folder))


# ------------------------------------------------------------------------------------------------------------ not done any more
def test_markers_of_what_was_forgotten_quarantined_or_purged_since_are_removed(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"{n}.xml": b"<a/>" for n in ("forgotten", "worse", "p/purged", "stays")})
    dest, folder = tmp_path / "out", tmp_path / "m"
    gather(source, dest, transform="xml")
    ledger = Ledger(dest)
    assert ledger.export_markers(folder, **WITHOUT).written == 4
    ledger.purge_sources(source / "p", dry_run=False, min_age=0, spark=LocalRunner())
    ledger.forget(source / "forgotten.xml", **HERE)
    ledger.forget(source / "worse.xml", **HERE)
    write(source, {"worse.xml": b"<a>broken"})
    gather(source, dest, transform="xml", include="worse.xml", max_quarantined=1)
    assert ledger.refresh().summary().quarantined == 1
    found = ledger.export_markers(folder, **WITHOUT)
    assert (found.written, found.there, found.removed) == (0, 1, 3)
    assert "removed" in str(found)
    assert named(folder, source) == ["stays.xml"]
    ledger.forget(source, **HERE, last_copy=True)
    assert ledger.export_markers(folder, **WITHOUT).removed == 1, "also by a ledger in which nothing is left"
    assert named(folder, source) == []


def test_markers_of_others_stay_whatever_they_say(tmp_path: Path) -> None:
    source, dest, folder = write(tmp_path / "in", dict.fromkeys("abcde", b"x")), tmp_path / "out", tmp_path / "m"
    gather(source, dest, include="[ab]")
    other = tmp_path / "other"
    gather(source, other, include="c")
    mark(folder, *whole(source / "a", source / "d"))
    (folder / "README").write_bytes(b"x" * 40)
    (folder / identifier(str(source / "e"), 0, 1)).write_bytes(b"y" * 40)
    assert Ledger(other).export_markers(folder, **WITHOUT).written == 1
    ledger = Ledger(dest)
    assert (ledger.export_markers(folder, **WITHOUT).written, ledger.export_markers(folder, **WITHOUT).there) == (1, 2)
    ledger.forget(source, **HERE)
    assert ledger.export_markers(folder, **WITHOUT).removed == 1, "b alone: a is a Hadoop job's, and c another ledger's"
    left = {p.name.partition("@")[0].rpartition("%2F")[2] for p in folder.iterdir() if p.is_file() and p.name[0] not in "._"}
    assert left == {"a", "c", "d", "e", "README"}
    Ledger(other).forget(source, **HERE)
    elsewhere = write(tmp_path / "elsewhere", {"x": b"1"})
    assert Ledger(other).export_markers(folder, source=elsewhere, **WITHOUT).removed == 0, "not meant"
    assert Ledger(other).export_markers(folder, source=source, **WITHOUT).removed == 1


def test_a_marker_of_another_ledger_may_be_imported(tmp_path: Path) -> None:
    source, dest, folder = write(tmp_path / "in", {"a": b"x", "b": b"y"}), tmp_path / "out", tmp_path / "m"
    gather(source, dest, include="a")
    Ledger(dest).export_markers(folder, **WITHOUT)
    (folder / identifier(str(source / "b"), 0, 1)).write_bytes(b"z" * 40)
    found = Ledger(tmp_path / "other", create=True).import_markers(folder, source, **HERE)
    assert (found.gathered, found.left_count) == (1, 1)
    assert "markers are empty" in found.left[0][1]


@pytest.mark.parametrize("fault", ["before", "after"])
def test_an_export_that_is_killed_at_any_operation_is_ended_by_the_next(fault: str) -> None:
    for n in itertools.count(1):
        world, actor = World(n), Actor("killed", {n: fault})
        with world.installed():
            for name in "abc":
                connect(SOURCE).put(name, b"x")
            gather(SOURCE, DEST)
            ledger = Ledger(DEST)
            ledger.export_markers(MARKS, **WITHOUT)
            ledger.forget(f"{SOURCE}/a", **HERE)
            connect(SOURCE).put("d", b"x")
            gather(SOURCE, DEST, exclude="a")
            run(world, actor, lambda ledger=ledger: ledger.export_markers(MARKS, **WITHOUT))
            connect(MARKS).put(identifier("/e", 0, 1), b"")
            ledger.forget(f"{SOURCE}/b", **HERE)
            ledger.export_markers(MARKS, **WITHOUT)
            left = sorted(entry.name for entry in connect(MARKS).walk())
            assert left == [identifier(f"/{x}", 0, 1) for x in "cde"], (n, actor.hit)
        forget_all()
        if not actor.hit:
            break
    assert n > 2


@pytest.mark.parametrize("seed", range(12))
def test_exports_beside_each_other_and_beside_changes_leave_what_the_ledger_says(seed: int) -> None:
    """Nothing is lost or stale once all have ended, whoever was the last one."""
    world = World(seed)
    with world.installed():
        for name in "abc":
            connect(SOURCE).put(name, b"x")
        gather(SOURCE, DEST)
        Ledger(DEST).export_markers(MARKS, **WITHOUT)

        def changes() -> None:
            Ledger(DEST).forget(f"{SOURCE}/a", **HERE)
            Ledger(DEST).export_markers(MARKS, **WITHOUT)
            gather(SOURCE, DEST)
            Ledger(DEST).export_markers(MARKS, **WITHOUT)

        drivers = Scheduler(world, 0.5, {"b": world.random.randrange(3, 60)})
        drivers.add(Actor("a"), changes)
        drivers.add(Actor("b"), lambda: Ledger(DEST).export_markers(MARKS, **WITHOUT))
        drivers.add(Actor("c"), lambda: Ledger(DEST).export_markers(MARKS, **WITHOUT))
        ended = drivers.run()
        assert all(e is None for e in ended.values()), ended
        left = sorted(entry.name for entry in connect(MARKS).walk())
        assert left == [identifier(f"/{x}", 0, 1) for x in "abc"]
    forget_all()


# ---------------------------------------------------------------------------------------------------------------- other spellings
@pytest.mark.parametrize("escaped", [False, True])
def test_the_articles_own_identifiers_are_read(tmp_path: Path, escaped: bool) -> None:
    source = write(tmp_path / "in", {"a": b"1\n" * 50, "a_5": b"2\n" * 50, "d/ü b%2F.txt": b"3\n", "left": b"4\n"})
    folder = tmp_path / "m"
    folder.mkdir()
    for name, start, length in (("a", 0, 64), ("a", 64, 36), ("a_5", 0, 100), ("d/ü b%2F.txt", 0, 2), ("a", 0, 10)):
        path = quote(str(source / name), safe="") if escaped else str(source / name)[1:]
        marker = folder / f"{path}_{start}_{length}"
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    (folder / "no-marker").touch()
    found = Ledger(tmp_path / "out", create=True).import_markers(folder, source, parse="path_offset_length", **HERE)
    assert (found.known, found.left_count) == (0, 1)
    assert "_, the first byte, _ and the length" in found.left[0][1]
    gather(source, tmp_path / "out")
    assert read(tmp_path / "out") == [b"4"]


def test_a_function_reads_any_spelling_also_where_it_scatters_the_names_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "SLICE", 7)
    monkeypatch.setattr(markers, "CHUNK", 5)
    monkeypatch.setattr(markers, "EACH", 2)
    monkeypatch.setattr(LocalRunner, "parallelism", 8)
    source, folder = write(tmp_path / "in", dict.fromkeys("abc", b"x\n" * 100)), tmp_path / "m"
    folder.mkdir()
    splits = [(name, start) for start in range(0, 190, 4) for name in "abc"]
    known = {f"{i * 7919 % 1000:04}": (f"file://{source}/{name}", start, 10) for i, (name, start) in enumerate(splits)}
    for name in [*known, "x"]:
        (folder / name).touch()
    dest = tmp_path / "out"
    found = Ledger(dest, create=True).import_markers(folder, source, parse=known.get, **HERE)
    assert (found.left_count, found.left[0][1]) == (1, "no marker: parse= gives no split for it")
    for name in "abc":
        rows = Ledger(dest).inspect.coverage(source / name)
        assert list(rows["start"][1:]) == list((rows["start"] + rows["length"])[:-1]), "no byte twice, and no gap"
        assert (rows["start"].min(), rows["length"].sum()) == (0, 199)
    assert Ledger(dest).import_markers(folder, source, parse=known.get, **HERE).gathered == 0
    assert [p for p in (dest / "_quire/jobs").rglob("*") if p.is_file()] == [], "nothing of what was read stays"


@pytest.mark.parametrize(
    ("parse", "said"),
    [
        (lambda name: name, "it gives (path, first byte, length)"),
        (lambda _: ("in/a", 0, 1), "begins with /"),
        (lambda _: ("/in/a", -1, 1), "it gives (path, first byte, length)"),
        (lambda _: ("/in/a", 0, True), "it gives (path, first byte, length)"),
        (lambda name: {}[name], "KeyError"),
        ("path-offset", "path_offset_length"),
        (7, "parse"),
    ],
    ids=["text", "relative", "negative", "flag", "raises", "unknown word", "number"],
)
def test_what_reads_no_identifiers_is_told_in_one_line_and_nothing_is_changed(tmp_path: Path, parse: Any, said: str) -> None:
    source, folder = write(tmp_path / "in", {"a": b"x"}), tmp_path / "m"
    mark(folder, *whole(source / "a"))
    with refused(UsageError, 2, said):
        Ledger(tmp_path / "out", create=True).import_markers(folder, source, parse=parse, **HERE)
    assert not list((tmp_path / "out").glob("_quire/log/*"))
