"""Only an export's own objects lie where its metadata do: it takes no other place, and takes nothing else away when it ends."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from exported import OPTIONS

from gathering import gather, refused, write
from quire import Ledger, LocalRunner
from quire.commit.names import EXPORTS
from quire.errors import RefusedError

HERE: dict[str, Any] = {"transform": "raw", "format": "parquet", "layout": "directories", "hidden": True}


def healthy(dest: Path) -> bool:
    return Ledger(dest).verify(spark=LocalRunner()).ok


def below(dest: Path, folder: str) -> list[Path]:
    return sorted(path for path in (dest / folder).rglob("*") if path.is_file())


@pytest.mark.parametrize("format", OPTIONS)
def test_directories_of_that_name_are_gathered_beside_it(tmp_path: Path, format: str) -> None:
    """They stay hidden, and no data file is ever written where metadata lie, be the export on or not."""
    dest, folder = tmp_path / "out", EXPORTS[format]
    gather(write(tmp_path / "in", {f"{folder}/k=1/a": b"a", f"{folder}/b": b"b", "c": b"c"}), dest, **HERE)
    assert not (dest / folder).exists()
    assert [len(below(dest, f"_{folder}{inside}")) for inside in ("", "/k=1")] == [2, 1]
    if format == "symlinks":
        return  # these are no directories of one partition
    Ledger(dest).export(format, **OPTIONS[format])
    metadata = len(below(dest, folder))
    gather(write(tmp_path / "in", {f"{folder}/d": b"d"}), dest, **HERE)
    Ledger(dest).compact(spark=LocalRunner(), progress=False)
    assert len(below(dest, folder)) > metadata
    assert not [path for path in below(dest, folder) if path.name.startswith("part-")]
    Ledger(dest).drop_export(format)
    assert not (dest / folder).exists()
    assert healthy(dest)


@pytest.mark.parametrize("format", OPTIONS)
def test_a_data_file_in_its_place_is_left_alone(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier quire has written it there."""
    dest, folder = tmp_path / "out", EXPORTS[format]
    with monkeypatch.context() as patch:
        patch.setattr("quire.commit.names.EXPORTS", {})
        gather(write(tmp_path / "in", {f"{folder}/a": b"a"}), dest, **HERE)
    (file,) = below(dest, folder)
    with refused(RefusedError, 2, f"{folder}/part-", "a data file, where the metadata of an export would lie"):
        Ledger(dest).export(format, **OPTIONS[format])
    assert Ledger(dest).exports() == {}
    assert below(dest, folder) == [file]
    assert healthy(dest)


@pytest.mark.parametrize("format", OPTIONS)
def test_whatever_came_among_its_own_stays_when_it_ends(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dest, folder = tmp_path / "out", EXPORTS[format]
    gather(write(tmp_path / "in", {"b": b"b"}), dest, **HERE)
    Ledger(dest).export(format, **OPTIONS[format])
    with monkeypatch.context() as patch:
        patch.setattr("quire.commit.names.EXPORTS", {})
        gather(write(tmp_path / "in", {f"{folder}/a": b"a"}), dest, **HERE)
    (dest / folder / "notes.txt").write_bytes(b"mine")
    Ledger(dest).drop_export(format)
    assert [path.name.partition("-")[0] for path in below(dest, folder)] == ["notes.txt", "part"]
    assert healthy(dest)
