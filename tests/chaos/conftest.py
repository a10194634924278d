"""The tale is told while it happens where kills are many (make chaos), and its table at the end."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from tale import Tale

TALE = pytest.StashKey[Tale]()


@pytest.fixture(scope="session")
def whole_tale(request: pytest.FixtureRequest) -> Tale:
    """The kills of this run of the tests. CHAOS_SEED=n repeats one, CHAOS_LOG=path says where each kill is written."""
    config = request.config
    said = os.environ.get("CHAOS_LOG")
    path = Path(said) if said else Path(config.rootpath, ".pytest_cache/d/chaos/kills.jsonl")
    many = "chaos" in (config.option.markexpr or "") and "not" not in config.option.markexpr
    capture = config.pluginmanager.getplugin("capturemanager")

    def show(text: str) -> None:
        if not many:
            print(text)
            return
        with capture.global_and_fixture_disabled():
            print(text, flush=True)

    made = Tale(path.absolute(), int(os.environ.get("CHAOS_SEED") or random.randrange(1_000_000)), show)
    config.stash[TALE] = made
    return made


@pytest.fixture
def tale(whole_tale: Tale) -> Tale:
    whole_tale.open = []
    return whole_tale


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tale = config.stash.get(TALE, None)
    if tale is not None and tale.total() + tale.stops.total():
        terminalreporter.section("kills by victim and moment")
        for line in tale.table():
            terminalreporter.write_line(line)
