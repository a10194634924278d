"""An executor on another machine works in a local directory only if it sees there what the driver sees."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gathering import documents, gather, snapshot, write
from quire.spark.visibility import Landmarks, Sight
from quire.storage import normalise


def elsewhere(sight: Sight) -> Sight:
    """The same, as a process on another machine has to take it."""
    return replace(sight, machine="another")


@pytest.fixture
def places(tmp_path: Path) -> Landmarks:
    write(tmp_path / "in", documents(30))
    return Landmarks([normalise(tmp_path / "in"), "s3://bucket/in"], normalise(tmp_path / "out"))


def test_the_drivers_own_machine_looks_at_nothing(places: Landmarks, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "in")
    assert places.unseen().lacking() == ""
    assert "is not the driver's machine" in elsewhere(places.unseen()).lacking()


def test_a_mounted_directory_is_as_good_as_the_drivers(places: Landmarks, tmp_path: Path) -> None:
    with places.taken() as sight:
        assert elsewhere(sight).lacking() == ""
        write(tmp_path / "in", {"d0/f0000.txt": b"rewritten meanwhile"})
        (tmp_path / "in" / "d0" / "f0003.txt").unlink()
        assert elsewhere(sight).lacking() == ""


@pytest.mark.parametrize("name", ["in", "out"])
def test_a_directory_that_is_not_there_or_another_one_is_told(places: Landmarks, tmp_path: Path, name: str) -> None:
    with places.taken() as sight:
        (tmp_path / name).rename(tmp_path / "away")
        assert elsewhere(sight).lacking().startswith(f"file://{tmp_path}/{name} is a directory of this machine's")
        write(tmp_path / name, {f"d{i % 3}/f{i:04}.txt": b"another host's own" for i in range(30)})
        assert elsewhere(sight).lacking().startswith(f"file://{tmp_path}/{name} is a directory of this machine's")
        shutil.rmtree(tmp_path / name)
        (tmp_path / "away").rename(tmp_path / name)
        assert elsewhere(sight).lacking() == ""


def test_what_is_put_into_a_new_destination_goes_again(places: Landmarks, tmp_path: Path) -> None:
    with places.taken():
        assert len(list((tmp_path / "out/_quire/tmp").iterdir())) == 1
    assert [p for p in (tmp_path / "out").rglob("*") if p.is_file()] == []


def test_into_a_destination_with_commits_nothing_is_put(places: Landmarks, tmp_path: Path) -> None:
    """So whoever may only read it can look at it too, and no sweep of another driver takes what is looked for."""
    gather(tmp_path / "in", tmp_path / "out")
    before = snapshot(tmp_path / "out")
    with places.taken() as sight:
        assert snapshot(tmp_path / "out") == before
        assert elsewhere(sight).lacking() == ""


@pytest.mark.parametrize("folders", [(), ("dt=2026-11-21", "dt=2026-11-22")], ids=["empty", "directories"])
def test_a_source_without_files_is_told_by_its_directories(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for folder in ("", *folders):
        (tmp_path / "in" / folder).mkdir()
    with Landmarks([normalise(tmp_path / "in")]).taken() as sight:
        assert elsewhere(sight).lacking() == ""
        (tmp_path / "in").rename(tmp_path / "away")
        assert elsewhere(sight).lacking()


def test_stores_that_all_reach_have_no_landmarks() -> None:
    assert not Landmarks(["s3://bucket/in", "memory://x"], "abfs://container@account.dfs.core.windows.net/out")
