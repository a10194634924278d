"""Directories that `partition_by` makes are columns of an export, with their own types, whatever verb has written the files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import test_delta_export
import test_iceberg_export
from delta_log import commits

import quire
from gathering import gather, write
from quire import Ledger
from quire.engine.exports import step

if TYPE_CHECKING:
    import pyarrow as pa

HERE: dict[str, Any] = {"spark": quire.LocalRunner(), "progress": False}
SEEN: dict[str, Callable[[Path], pa.Table]] = {"delta": test_delta_export.seen, "iceberg": test_iceberg_export.seen}
DAY = dt.date(2026, 11, 21)


def rows(split: quire.Split, content: bytes) -> list[dict[str, Any]]:
    return [{"code": code, "n": len(content)} for code in ("007", "8", None)]


@pytest.mark.parametrize("format", SEEN)
def test_rows_in_directories_are_the_same_rows_in_an_export(tmp_path: Path, format: str) -> None:
    source, dest = write(tmp_path / "in", {f"dt={DAY}/a": b"x", f"dt={DAY}/b": b"xy"}), tmp_path / "out"
    how: dict[str, Any] = {"partition_by": ["path.dt", "code"], "exports": format, "on_change": "reprocess", "function_version": "1"}

    def check(*sizes: int) -> None:
        found = [(row["dt"], row["code"], row["n"]) for row in SEEN[format](dest).to_pylist()]
        wanted = [(DAY, code, n) for n in sizes for code in ("007", "8", None)]
        assert sorted(found, key=str) == sorted(wanted, key=str)

    quire.process(source, dest, rows, **how, **HERE)
    check(1, 2)
    write(source, {f"dt={DAY}/a": b"xyz"})
    quire.process(source, dest, rows, **how, **HERE)
    check(2, 3)
    Ledger(dest).compact(**HERE)
    check(2, 3)
    Ledger(dest).forget(source / f"dt={DAY}" / "b", **HERE)
    check(3)


@pytest.mark.parametrize("format", SEEN)
def test_files_in_directories_are_the_same_files_in_an_export(tmp_path: Path, format: str) -> None:
    source, dest = write(tmp_path / "in", {"s0/a": b"x", "s1/b": b"y"}), tmp_path / "out"
    gather(source, dest, transform="raw", format="parquet", partition_by="path[0] as site", exports=format)
    Ledger(dest).compact(**HERE)
    found = {(row["site"], row["content"]) for row in SEEN[format](dest).to_pylist()}
    assert found == {("s0", b"x"), ("s1", b"y")}


@pytest.mark.parametrize("format", SEEN)
def test_a_column_that_becomes_text_has_the_values_of_the_directories(tmp_path: Path, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, dest = write(tmp_path / "in", {"k=1.50/a": b"a", "k=2/b": b"b", "k=3.0/gone": b"x"}), tmp_path / "out"
    how: dict[str, Any] = {"transform": "raw", "format": "parquet", "partition_by": "path.k", "on_change": "reprocess"}
    gather(source, dest, exports=format, **how)
    assert sorted(row["k"] for row in SEEN[format](dest).to_pylist()) == [1.5, 2.0, 3.0]
    with monkeypatch.context() as patch:  # one commit of the export for a file that comes, one that goes, and the new type
        patch.setattr(step, "keep_up", lambda *_: None)
        patch.setattr(step, "catch_up", lambda *_: None)
        gather(write(source, {"k=x/c": b"c", "k=3.0/gone": b"y"}), dest, **how)
    quire.recover(dest)
    gather(write(source, {"k=1.50/d": b"d"}), dest, **how)
    found = sorted((row["content"].decode(), row["k"]) for row in SEEN[format](dest).to_pylist())
    assert found == [("a", "1.50"), ("b", "2"), ("c", "x"), ("d", "1.50"), ("y", "3.0")]
    if format == "delta":
        changes = [action["add"]["dataChange"] for action in commits(test_delta_export.objects(dest))[1] if "add" in action]
        assert sorted(changes) == [False, False, True, True], "who follows the table hears of nothing twice"
