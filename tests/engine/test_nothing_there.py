"""A place or a glob that is misspelt is one line, exit code 2, and nothing is written; a source that is empty is no mistake."""

from __future__ import annotations

import errno
import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, look, not_taken, refused, write
from quire.errors import StorageError, UsageError
from quire.planning.listing import EXAMPLES
from quire.sources import files
from quire.storage.base import Trouble
from quire.storage.local import LocalStore

FUNCTIONS: list[Any] = [
    gather, look, lambda source, dest, **more: quire.process(source, dest, lambda *_: [{"a": 1}], spark=quire.LocalRunner(), **more),
]  # fmt: skip


@pytest.mark.parametrize("call", FUNCTIONS, ids=["consolidate", "plan", "process"])
@pytest.mark.parametrize(
    ("place", "settings", "words"),
    [
        ("in", {"include": "*.xlm"}, ("include='*.xlm' matches none", "(files: 6)", "did you mean '*.xml'?")),
        ("in", {"include": ["q*"], "exclude": "z*"}, ("and exclude='z*'", "there is for example 'd")),
        ("in/e*/*.xml", {}, ("/in/e*/*.xml' matches none", "there is for example 'd")),
        ("in/d0/*.txt", {}, ("did you mean '*.xml'?",)),
        ("inn", {}, ("does not exist", "Check the spelling: did you mean", "/in?")),
        ("completely/other", {}, ("does not exist", "'completely' in it is not")),
    ],
)
def test_what_matches_nothing_that_is_there_is_refused(
    tmp_path: Path, call: Any, place: str, settings: dict[str, Any], words: tuple[str, ...]
) -> None:
    write(tmp_path / "in", documents(6, "xml"))
    with refused(UsageError, 2, *words):
        call(f"{tmp_path}/{place}", tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("call", FUNCTIONS, ids=["consolidate", "plan", "process"])
def test_one_of_several_that_matches_nothing_is_named(tmp_path: Path, call: Any) -> None:
    a, b = write(tmp_path / "a", {"1.xml": b"1", "2.json": b"2"}), write(tmp_path / "b", {"1.txt": b"1"})
    empty, dest = write(tmp_path / "empty", {}), tmp_path / "out"
    with refused(UsageError, 2, f"source='file://{a}/*.jsno' matches none of the names in file://{a} (", "did you mean '*.json'?"):
        call([f"{a}/*.xml", f"{a}/*.jsno"], dest)
    with refused(UsageError, 2, f"source='file://{b}/*.xml' matches none of the names in file://{b} (files: 3)"):
        call([f"{a}/*.xml", f"{b}/*.xml"], dest)
    with refused(UsageError, 2, "include='*.jsno', '*.csv' matches none", "did you mean '*.json'?"):
        call([a, b], dest, include=["*.jsno", "*.csv"])
    assert not [path for path in dest.rglob("*") if path.is_file()], "nothing of a plan stays"
    call([f"{a}/*.xml", f"{a}/*.json", f"{empty}/*.csv", b], dest, include=["*", "*.csv"], exclude="*.json")


def test_a_name_that_looks_like_a_glob_is_told_with_how_to_write_it(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"d/[z]": b"1", "y": b"2"})
    with refused(UsageError, 2, "The name '[z]' is there", f"write 'file://{source}/d/[[]z]'"):
        gather(f"{source}/d/[z]", tmp_path / "out")
    with refused(UsageError, 2, "The name '[z]' is there", "write '[[]z]'"):
        gather(source, tmp_path / "out", include="[z]")
    assert gather(f"{source}/d/[[]z]", tmp_path / "out").files == 1
    assert gather(source, tmp_path / "included", include="[[]z]").files == 1


def test_what_could_not_be_listed_is_counted_though_examples_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scan = LocalStore.scan_pages

    def troubled(store: LocalStore, folder: str = "", **more: Any) -> Any:
        yield from scan(store, folder, **more)
        if store.url.endswith("/in") and folder == "":
            yield from (Trouble(f"f{i}", "unreadable", "no") for i in range(EXAMPLES + 5))

    source = write(tmp_path / "in", {"y": b"2"})
    monkeypatch.setattr(LocalStore, "scan_pages", troubled)
    report = gather(source, tmp_path / "out")
    assert (len(report.unreadable), report.unreadable_count, not_taken(report)) == (EXAMPLES, EXAMPLES + 5, EXAMPLES + 5)
    assert f"could not be read or planned  {EXAMPLES + 5:,}" in str(report)


def test_a_directory_is_no_glob_whatever_its_name(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"[a]*/b/x": b"1", "y": b"2"})
    assert gather([f"{source}/[a]*", f"{source}/y*", source / "[a]*/b"], tmp_path / "out").files == 2


@pytest.mark.parametrize("call", FUNCTIONS, ids=["consolidate", "plan", "process"])
def test_a_source_that_cannot_be_listed_is_not_an_empty_one(tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    source, scandir = write(tmp_path / "in", {"d/a.xml": b"1", "e/a.xml": b"2"}), os.scandir

    def closed(path: Any) -> Any:
        if os.fspath(path).startswith((f"{source}/d", f"{source}/e")):
            raise PermissionError(errno.EACCES, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with refused(StorageError, 3, f"nothing could be listed or planned in file://{source}", "cannot list the directory: Permission denied"):
        call(source, tmp_path / "out")


def test_a_plan_of_nothing_is_one_line(tmp_path: Path) -> None:
    found = quire.plan(write(tmp_path / "in", {}), tmp_path / "out", spark=quire.LocalRunner())
    assert str(found) == f"plan for file://{tmp_path}/out: nothing is there to gather."


@pytest.mark.parametrize("place", ["", "/*.xml"])
def test_an_empty_source_is_one_line(tmp_path: Path, place: str) -> None:
    write(tmp_path / "in", {})
    report = gather(f"{tmp_path / 'in'}{place}", tmp_path / "out", include="*.xml")
    assert "nothing is there to gather" in str(report)
    assert "\n" not in str(report)
    assert not (tmp_path / "out").exists()


def test_a_loop_waits_for_names_that_are_not_there_yet(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(3))
    assert gather(source, tmp_path / "out", include="*.xml", every="1 ms", max_runs=2).files == 0
    with refused(UsageError, 2, "does not exist"):
        gather(tmp_path / "inn", tmp_path / "out", every="1 ms", max_runs=2)


def test_what_was_gathered_before_and_is_gone_by_now_is_no_mistake(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {"a.xml": b"<a/>", "b.txt": b"b"})
    gather(source, tmp_path / "out", include="*.xml")
    (source / "a.xml").unlink()
    assert gather(source, tmp_path / "out", include="*.xml").deleted == 1
    with refused(UsageError, 2, "matches none"):
        gather(source, tmp_path / "out", include="*.xlm")


def test_in_a_store_without_directories_a_loop_may_wait_for_the_first_object(monkeypatch: pytest.MonkeyPatch) -> None:
    class Empty:
        url = "s3://bucket/in"

        def is_folder(self, name: str = "") -> bool:
            return False

        def stat(self, name: str) -> None:
            return None

    monkeypatch.setattr(files, "connect", lambda *_, **__: Empty())
    with refused(UsageError, 2, "does not exist, or holds nothing", "Check the spelling"):
        files.roots("s3://bucket/in")
    (root,) = files.roots("s3://bucket/in", waits=True)
    assert root.url == "s3://bucket/in"
    monkeypatch.undo()
    assert "nothing is there" in str(gather(f"memory://{uuid.uuid4().hex}", f"memory://{uuid.uuid4().hex}"))


@pytest.mark.parametrize("error", [errno.EIO, errno.EACCES, errno.ENOMEM])
def test_a_place_that_cannot_be_looked_up_is_not_said_to_be_missing(tmp_path: Path, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest, stat = write(tmp_path / "in", {"a.xml": b"1"}), tmp_path / "out", os.stat
    gather(source, dest, transform="raw", format="parquet")
    for place in (source, dest):

        def away(path: Any, *args: Any, place: Path = place, **how: Any) -> os.stat_result:
            if isinstance(path, str) and path.startswith(str(place)):
                raise OSError(error, os.strerror(error))
            return stat(path, *args, **how)

        with monkeypatch.context() as patched:
            patched.setattr(os, "stat", away)
            with pytest.raises(StorageError, match=f"file://{place}.*: "):
                gather(source, dest, transform="raw", format="parquet")
            if place == dest:
                with pytest.raises(StorageError, match="cannot look up"):
                    quire.Ledger(dest)
