"""A catalog of Iceberg's behind a service follows an export, as those in a file do."""

from __future__ import annotations

from pathlib import Path

import pytest
from catalog_steps import kept_in_step, prod

from services.iceberg_rest import iceberg_rest

pytestmark = pytest.mark.nightly


def test_a_catalog_behind_rest_is_kept_in_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with iceberg_rest() as address:
        kept_in_step(tmp_path, prod(monkeypatch, type="rest", uri=address))
