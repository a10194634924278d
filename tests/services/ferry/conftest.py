"""What the writer of a committer gives to the conformance tests: its name, and new and empty places in stores that it serves."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

pytest.register_assert_rewrite("services.committing")

from services import s3  # noqa: E402 (what stands above must come first)
from services.committing import Trial  # noqa: E402


@pytest.fixture
def committer_name() -> str:
    return "ferry"


@pytest.fixture(params=["local", "seaweedfs"])
def trial(request: pytest.FixtureRequest, committer_name: str, tmp_path: Path) -> Trial:
    if request.param == "seaweedfs":
        return Trial(committer_name, f"s3://{s3.BUCKET}/{uuid.uuid4().hex}", s3.options(request.getfixturevalue("seaweedfs")))
    return Trial(committer_name, f"file://{tmp_path}/out")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """In simulated stores, at every operation: as long as for a committer of quire's own, so with what takes long."""
    for item in items:
        if item.path.parent == Path(__file__).parent and item.name.startswith(("test_a_process_may_die", "test_a_store_that_answers")):
            item.add_marker(pytest.mark.services)
