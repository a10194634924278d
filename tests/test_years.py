"""Loops that run for a year, on a clock that jumps: what they hold, read and ask for is the same at its end as at its beginning.

`QUIRE_YEAR_RUNS` says in how many runs each year passes (left out: so many as take a quarter of an hour).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parent / "benchmarks/loop_year.py"
RUNS = int(os.environ.get("QUIRE_YEAR_RUNS", "4000"))


@pytest.mark.nightly
@pytest.mark.timeout(0)  # as many runs as are asked for
@pytest.mark.parametrize("every", ["300", "1"], ids=["five minutes", "a second"])
def test_a_loop_is_after_a_year_what_it_was_before(every: str) -> None:
    env = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"}  # as `quire run` has it
    asked = [sys.executable, str(BENCHMARK), "--every", every, "--runs", str(RUNS)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, f"{done.stdout[-6_000:]}\n{done.stderr[-6_000:]}"
    assert "| yes " in done.stdout
    assert "NO" not in done.stdout
