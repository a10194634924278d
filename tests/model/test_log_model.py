"""The archive of the log holds in every order of small cases (`log_model.py`), and each mistake that docs/protocol.md names breaks it."""

from __future__ import annotations

from dataclasses import replace

import log_model
import pytest

MOST = 3_000_000  # states


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in log_model.SCENARIOS])
@pytest.mark.timeout(600)
def test_the_history_never_changes_in_any_order(case: log_model.Config) -> None:
    _, why, way = log_model.check(case, MOST)
    assert why is None, "\n".join([str(why), *way])


@pytest.mark.parametrize("name", log_model.BUGS)
@pytest.mark.timeout(600)
def test_a_mistake_of_the_archive_is_found(name: str) -> None:
    _, why, _ = log_model.check(replace(log_model.BUGS[name][1], bug=name), MOST)
    assert why is not None, "it was not found"
    assert not why.startswith("LIMIT"), why
