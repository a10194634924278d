"""A timeline of very many instants: what opening a table reads of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_clean import written
from test_writes import ours

from quire.errors import FormatError
from quire.storage.local import LocalStore


def test_opening_a_table_lists_the_names_of_its_timeline_once_and_looks_none_of_them_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, _ = written(tmp_path / "trips", 3)
    rows, scan, peek, looked, named = ours(table), LocalStore.scan, LocalStore.peek, list[str](), list[str]()

    def scanned(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        looked.append(folder)
        return scan(self, folder, **more)

    def peeked(self: Any, folder: str = "", **more: Any) -> Iterator[Any]:
        named.append(folder)
        return peek(self, folder, **more)

    monkeypatch.setattr(LocalStore, "scan", scanned)
    monkeypatch.setattr(LocalStore, "peek", peeked)
    assert ours(table) == rows
    assert named == [".hoodie"]
    assert "" in looked, "partitions are listed"
    assert ".hoodie" not in looked, "a look at each name took longer than all else"


def test_an_instant_that_became_a_link_is_not_passed_over(tmp_path: Path) -> None:
    """A commit that somebody has moved away, and linked: its rows are not left out without a word."""
    table, instants = written(tmp_path / "trips", 3)
    there = tmp_path / f"trips/.hoodie/{instants[-1]}.commit"
    there.rename(tmp_path / "moved")
    there.symlink_to(tmp_path / "moved")
    with pytest.raises(FormatError, match=f"{there.name} is a symbolic link"):
        ours(table)
