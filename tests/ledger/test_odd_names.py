"""A quarantined file can be named, and retried, whatever it is called."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import quire
from quire import Ledger, LocalRunner
from quire.cli import app, upkeep

ODD = [
    "a\nb",
    "a'b",
    'a"b',
    "a*b",
    "a?b",
    "a[b]",
    "a%41",
    "%",
    "a ",
    " a",
    "!a",
    "#a",
    "a\\b",
    "-a",
    "a:b",
    "~",
    "x" * 250,
    "e\u0301",
    "\udcff",
]
REPAIRED = "def mend(content, file):\n    return content\n"


def _odd(name: str) -> bool:
    return name not in (".", "..") and len(os.fsencode(name)) <= 255


letters = st.characters(exclude_categories=["Cs"], exclude_characters="/\0") | st.sampled_from("*?[]%!# '\"\n\\\udcff")


@settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.sampled_from(ODD) | st.text(letters, min_size=1, max_size=12).filter(_odd), min_size=2, max_size=3, unique=True))
def test_a_file_of_any_name_is_retried_by_its_path_and_from_a_shell(names: list[str]) -> None:
    def broken(content: bytes, file: quire.FileInfo) -> bytes:
        raise ValueError("bad")

    @contextmanager
    def here(_: str | None) -> Iterator[Any]:
        yield LocalRunner()

    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        work, source, dest = Path(place) / "work.py", Path(place) / "in", Path(place) / "out"
        work.write_text(REPAIRED)
        source.mkdir()
        for name in names:
            (source / name).write_bytes(b"1\n")
        broken.__module__, broken.__qualname__ = "work", "mend"
        how: Any = {"spark": LocalRunner(), "progress": False}
        quire.consolidate(source, dest, transform=broken, function_version="1", hidden=True, max_quarantined=9, **how)
        ledger = Ledger(dest)
        assert len(ledger.inspect.quarantined()) == len(names)
        done = ledger.retry(source, paths=[source / names[0]], function=lambda content, file: content, **how)
        assert (done.gathered, done.quarantined, done.left) == (1, 0, ()), names[0]
        assert ledger.read(source / names[0]) == b"1\n"
        patch.setattr(upkeep, "spark_of", here)
        arguments = ["ledger", "retry", str(dest), "--source", str(source), "--function", f"{work}:mend", "--quiet"]
        app.cli.main(arguments, standalone_mode=False)
        assert ledger.refresh().summary().quarantined == 0
        for name in names:
            assert ledger.read(source / name) == b"1\n", name
