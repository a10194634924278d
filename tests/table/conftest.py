"""What the tests of tables share."""

from __future__ import annotations

import pytest
import test_writes


@pytest.fixture(params=[6, 9], ids=["version 6", "version 9"])
def version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of the tables that `create` makes: the test runs with both that quire writes."""
    monkeypatch.setitem(test_writes.USUAL, "version", request.param)
    found: int = request.param
    return found
