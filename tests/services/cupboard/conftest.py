"""What the writer of a store gives to the conformance tests: a new and empty place."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.register_assert_rewrite("services.conformance")

from quire.storage import Store, bare, normalise  # noqa: E402 (what stands above must come first)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return bare(normalise(f"cupboard://{tmp_path}/a.cupboard/root"), {"durable": False})
