"""One JupyterLab, one browser and one folder of notebooks for all browser tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab
import pytest

import quire

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where JupyterLab looks: copies of the notebooks, with the sample data beside them, and room for trees."""
    place = tmp_path_factory.mktemp("lab") / "notebooks"
    place.mkdir()
    shutil.copytree(ROOT / "sample_data", place.parent / "sample_data")
    for notebook in (ROOT / "notebooks").glob("*.ipynb"):
        shutil.copy(notebook, place)
    for package in ("azurite", "mock_kafka"):
        shutil.copytree(ROOT / "notebooks" / package, place / package, ignore=shutil.ignore_patterns("__pycache__"))
    return place


@pytest.fixture(scope="session")
def tree(folder: Path) -> Path:
    """Some thousand small files."""
    quire.populate(folder / "in", 6_000, "5KB", 10, dirty=0, progress=False)
    return folder / "in"


@pytest.fixture(scope="session")
def address(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with lab.server(folder, tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=lab.chromium(), args=lab.ARGUMENTS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1400, "height": 2600})
    yield context.new_page()
    context.close()
