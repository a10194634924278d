"""Single records in quarantine leave with the file that is forgotten: no version keeps what they held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import quire
from quire import Ledger, Split
from quire.commit import names
from quire.commit.log import Log
from quire.coverage import quarantine
from quire.storage import connect

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}


def numbers(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
    for line in content.splitlines(keepends=True):
        if line.startswith(b"SECRET"):
            split.quarantine(line, "not a number")
        else:
            yield {"n": int(line)}


def write(source: Path, *files: str) -> None:
    source.mkdir(exist_ok=True)
    for name in files:
        (source / f"{name}.txt").write_text(f"1\nSECRET of {name}\n2\n")


def run(source: Path, dest: Path) -> None:
    quire.process(source, dest, numbers, split="lines", schema="n long", function_version="1", keep_versions="1 day", **HERE)


def held(dest: Path) -> list[str]:
    """The content of all records that any quarantine file has."""
    files = (dest / names.QUARANTINE).rglob("*")
    return sorted(value.decode().strip() for path in files if path.is_file() for value in pq.read_table(path).column("content").to_pylist())


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Two commits, of which the first has the records of three files in one quarantine file."""
    source, dest = tmp_path / "in", tmp_path / "out"
    write(source, "a", "b", "c")
    run(source, dest)
    write(source, "d")
    run(source, dest)
    assert held(dest) == [f"SECRET of {name}" for name in "abcd"]
    return source, dest


def test_a_forgotten_files_records_are_in_no_quarantine_file(places: tuple[Path, Path]) -> None:
    source, dest = places
    ledger, before = Ledger(dest), Log(connect(f"file://{dest}")).refresh().settled_version()
    with ledger.pin():  # privacy goes before it
        ledger.forget(source / "a.txt", **HERE)
        assert held(dest) == ["SECRET of b", "SECRET of c", "SECRET of d"]
    ledger.forget(source / "d.txt", **HERE)
    assert held(dest) == ["SECRET of b", "SECRET of c"]
    assert ledger.as_of(before).inspect.quarantined_records()["content"].to_list() == [b"SECRET of b\n", b"SECRET of c\n"]
    ledger.expire()
    assert len([path for path in (dest / names.QUARANTINE).rglob("*") if path.is_file()]) == 1, "nothing is left of the other"
    assert ledger.inspect.quarantined_records()["content"].to_list() == [b"SECRET of b\n", b"SECRET of c\n"]
    assert ledger.verify(spark=HERE["spark"]).ok


def test_the_others_can_still_be_retried(places: tuple[Path, Path]) -> None:
    source, dest = places
    Ledger(dest).forget(source / "a.txt", **HERE)
    for name in "bcd":
        (source / f"{name}.txt").unlink()

    def repaired(split: Split, content: bytes) -> Iterator[dict[str, Any]]:
        yield {"n": len(content)}

    repaired.__qualname__ = numbers.__qualname__
    changed = Ledger(dest).retry(function=repaired, **HERE)
    assert changed.quarantined_out == 3
    assert Ledger(dest).verify(spark=HERE["spark"]).ok


@pytest.mark.parametrize("heals", ["forget", "recover"])
def test_a_call_that_dies_before_it_took_them_out_is_made_good(
    heals: str, places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = places
    with monkeypatch.context() as patched:
        patched.setattr(quarantine, "forget", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            Ledger(dest).forget(source / "a.txt", **HERE)
    assert "SECRET of a" in held(dest)
    if heals == "recover":
        quire.recover(dest)
    else:
        Ledger(dest).forget(source / "b.txt", **HERE)
    assert "SECRET of a" not in held(dest)


def test_of_two_at_once_no_record_comes_back(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one sleeps between its look and its put, while the second one forgets another file."""
    source, dest = places
    compute, slept = quarantine._those, list[int]()

    def slow(*args: Any, **how: Any) -> Any:
        found = compute(*args, **how)
        if not slept:
            slept.append(1)
            Ledger(dest).forget(source / "b.txt", **HERE)
        return found

    monkeypatch.setattr(quarantine, "_those", slow)
    Ledger(dest).forget(source / "a.txt", **HERE)
    assert slept
    assert held(dest) == ["SECRET of c", "SECRET of d"]
