"""The shell in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import quire
from quire.cli import app, table, upkeep

if TYPE_CHECKING:
    from commands import Run


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call main() as the console script does: (exit code, output, errors). Spark's place is taken by this process."""

    @contextmanager
    def here(master: str | None) -> Iterator[Any]:
        yield quire.LocalRunner()

    for module in (app, table, upkeep):
        monkeypatch.setattr(module, "spark_of", here)

    def call(*arguments: object) -> tuple[int, str, str]:
        code = 0
        try:
            app.main([str(a) for a in arguments])
        except SystemExit as e:
            code = int(e.code or 0)
        out, err = capfdbinary.readouterr()
        return code, out.decode("utf-8", "surrogateescape"), err.decode()

    return call
