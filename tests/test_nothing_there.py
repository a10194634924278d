"""A place or a glob that is misspelt is one line, exit code 2, and nothing is written; a source that is empty is no mistake."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

import quire
from gathering import documents, gather, look, refused, write
from quire.errors import UsageError
from quire.sources import files

FUNCTIONS: list[Any] = [
    gather, look, lambda source, dest, **more: quire.process(source, lambda *_: [{"a": 1}], dest, spark=quire.InProcess(), **more),
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
