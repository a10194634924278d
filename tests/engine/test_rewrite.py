"""Data files whose rows belong to their commits are written again line by line, however their pieces come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quire.engine import rewrite

NOWHERE: Any = None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(st.text("ab\n", max_size=9).map(str.encode)))
def test_lines_are_whole_however_pieces_come(pieces: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rewrite.lines, "contents", lambda *_: iter(pieces))
    found, data = list(rewrite._lines(NOWHERE, "", "")), b"".join(pieces)
    assert b"".join(found) == data + b"\n" * (data != b"" and not data.endswith(b"\n"))
    assert all(each.endswith(b"\n") for each in found)


@pytest.mark.timeout(60)
def test_the_work_for_a_long_line_does_not_grow_with_its_square(monkeypatch: pytest.MonkeyPatch) -> None:
    def contents(*_: object) -> Iterator[bytes]:
        yield from (b"x" * 1024 for _ in range(1 << 16))

    monkeypatch.setattr(rewrite.lines, "contents", contents)
    (line,) = rewrite._lines(NOWHERE, "", "")
    assert len(line) == (64 << 20) + 1
