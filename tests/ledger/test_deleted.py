"""Gathered files that are no longer at their source: their output is kept, they are told, and what was just not listed never is."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from checker import check
from gathering import documents, gather, look, refused, write
from quire import Ledger, LocalRunner
from quire.coverage import segments
from quire.errors import UsageError
from quire.planning import pieces
from quire.storage import Trouble, connect
from quire.storage.local import LocalStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def gathered(tmp_path: Path, files: dict[str, bytes], **settings: Any) -> tuple[Path, Path]:
    source, dest = write(tmp_path / "in", files), tmp_path / "out"
    gather(source, dest, **settings)
    return source, dest


def gone(dest: Path, source: Any, **more: Any) -> set[str]:
    found = Ledger(dest).inspect.deleted(source, spark=LocalRunner(), **more)["path"]
    assert len(set(found)) == len(found)
    return {path.partition("/in/")[2] for path in found}


@pytest.mark.parametrize("layout", ["flat", "directories"])
def test_what_is_gone_is_told_and_its_output_kept(tmp_path: Path, layout: str) -> None:
    files = {**documents(9), "top": b"t", "d1/deep/er/x": b"x", "d2/long": b"y\n" * 400}
    source, dest = gathered(tmp_path, files, layout=layout, target_size="300 B")
    content = {str(source / name): data for name, data in files.items()}
    (source / "d0/f0000.txt").unlink()
    (source / "d2/long").unlink()
    shutil.rmtree(source / "d1")
    write(source, {"new": b"n"})
    expected = {"d0/f0000.txt", "d2/long", "d1/deep/er/x", *(f"d1/f{i:04}.txt" for i in (1, 4, 7))}
    assert gone(dest, source) == expected
    report = gather(source, dest, layout=layout, target_size="300 B")
    assert (report.files, report.deleted) == (1, 6)
    assert {path.partition("/in/")[2] for path in report.deleted_examples} == expected
    assert "gone at the source, kept here" in str(report)
    assert report.as_dict()["deleted"] == 6
    check({**content, str(source / "new"): b"n"}, dest)
    shutil.rmtree(source)
    source.mkdir()
    assert gather(source, dest, layout=layout, target_size="300 B").deleted == len(files) + 1
    assert Ledger(dest).read(source / "top") == b"t"


def test_before_anything_is_gone_nothing_is_told(tmp_path: Path) -> None:
    source, dest = gathered(tmp_path, documents(9))
    report = gather(source, dest)
    assert (report.deleted, report.deleted_examples) == (0, ())
    assert "gone at the source" not in str(report)
    assert gone(dest, source) == set()


def test_what_is_there_and_not_taken_is_not_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**documents(6), "_dir/hidden": b"h", ".h": b"h", "locked/x": b"x", "keep.log": b"k"}
    write(tmp_path / "else", {"y": b"y", "deep/z": b"z"})
    source = write(tmp_path / "in", files)
    (source / "link").symlink_to(tmp_path / "else")
    gather(source, tmp_path / "out", hidden=True, follow_links=True)
    assert Ledger(tmp_path / "out").summary().files == 12
    dest, real = tmp_path / "out", LocalStore.scan_pages

    def locked(self: LocalStore, folder: str = "", **more: Any) -> Any:
        if folder == "locked":
            return iter([Trouble("locked", "unreadable", "no permission")])
        return real(self, folder, **more)

    monkeypatch.setattr(LocalStore, "scan_pages", locked)
    for how in ({}, {"min_age": "1 h"}, {"include": "*.log"}, {"exclude": "d0/*"}, {"hidden": True}):
        assert gather(source, dest, **how).deleted == 0, how
    (source / "d0/f0003.txt").unlink()
    (source / ".h").unlink()
    assert gather(source, dest, include="*.log").deleted == 0, "it is not meant"
    assert gather(source, dest, exclude="d0/*").deleted == 0
    assert gather(source, dest).deleted == 1
    assert gone(dest, source) == {"d0/f0003.txt"}
    assert gone(dest, source, hidden=True) == {"d0/f0003.txt", ".h"}
    assert gather(source / "d1", dest).deleted == 0, "another source says nothing of this one"
    assert gather(f"{source}/d*", dest).deleted == 1


@pytest.mark.parametrize("place", ["disk", "memory"])
def test_it_is_the_same_however_the_tree_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    base = f"file://{tmp_path}" if place == "disk" else "memory://deleted-cut"
    store = connect(f"{base}/in")
    tree = [f"{a}{b}" for a in ("", "a/", "a!/", "a/b/", "b/") for b in ("a", "a!", "a.", "b", "c")]
    tree = [name for name in tree if not any(other.startswith(f"{name}/") for other in tree)]
    for name in tree:
        store.put(name, b"x")
    gather(f"{base}/in", f"{base}/out")
    for name in (lost := ["a/a!", "a/b/c", "c", "b/a", "b/a!", "b/a.", "b/b", "b/c"]):
        store.remove(name)
    store.remove_tree("b")
    for settings in ({}, {"SLICE": 2}, {"FOLDERS": 1}, {"ENOUGH_NAMES": 3}, {"GLANCE": 2, "SLICES": 4}):
        with monkeypatch.context() as patch:
            patch.setattr(LocalRunner, "parallelism", 4)
            for name, value in settings.items():
                patch.setattr(pieces, name, value)
            report = gather(f"{base}/in", f"{base}/out")
            assert {path.partition("/in/")[2] for path in report.deleted_examples} == set(lost), settings
            assert report.deleted == len(lost), settings


def test_what_lies_below_a_directory_that_is_there_is_not_read_for_the_one_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"a/{d}/{i}": b"%d" % i for d in ("x", "y", "z") for i in range(3)}
    source, dest = gathered(tmp_path, files, planner="directory")
    shutil.rmtree(source / "a/y")
    read, real = list[str](), segments.read

    def counted(store: Any, name: str, *more: Any, **settings: Any) -> Any:
        read.append(name)
        return real(store, name, *more, **settings)

    monkeypatch.setattr(segments, "read", counted)
    assert gone(dest, source) == {"a/y/0", "a/y/1", "a/y/2"}
    assert len(read) == 3, "each segment once, however deep it lies"


def test_of_very_many_the_first_are_named_and_all_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = gathered(tmp_path, documents(30))
    shutil.rmtree(source / "d1")
    monkeypatch.setattr("quire.planning.listing.EXAMPLES", 2)
    monkeypatch.setattr("quire.planning.plan.EXAMPLES", 2)
    report = gather(source, dest)
    assert (report.deleted, len(report.deleted_examples)) == (10, 2)
    assert look(source, dest).as_dict()["listed"] == 20


def test_on_spark_it_is_a_dataframe(tmp_path: Path, spark: SparkSession) -> None:
    source, dest = gathered(tmp_path, documents(9))
    (source / "d0/f0000.txt").unlink()
    frame = Ledger(dest).inspect.deleted(source, "spark", spark=spark)
    assert [row.path for row in frame.collect()] == [f"file://{source}/d0/f0000.txt"]
    with refused(UsageError, 2, "as_='spark'", "pandas"):
        Ledger(dest).inspect.deleted(source, "spark", spark=LocalRunner())
    with refused(UsageError, 2, "does not exist"):
        Ledger(dest).inspect.deleted(tmp_path / "nothing", spark=LocalRunner())
