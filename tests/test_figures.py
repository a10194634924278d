"""The figures that README tells are those that were measured: each stands in RESULTS.md, and one side alone cannot change."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = re.sub(r"\s+", " ", (ROOT / "README.md").read_text())
RESULTS = (ROOT / "tests/benchmarks/RESULTS.md").read_text()


def rate(records: str, way: str) -> float:
    """Records a second, as the table of loads has them."""
    (found,) = re.findall(rf"^\| {re.escape(records)} +\| {way} +\| ([0-9,]+) +\|.* × ", RESULTS, re.MULTILINE)
    return float(found.replace(",", ""))


def test_loads_from_kafka_are_as_fast_as_it_says() -> None:
    kinds = "1,000,000 of 200 B", "100,000 of 5,000 B"
    told = re.search(r"200 B come in ([0-9.]+) × as fast .*? 5 KB ([0-9.]+) × .*? two cores, ([0-9.]+) × and ([0-9.]+) ×", README)
    assert told
    measured = [rate(kind, way) / rate(kind, "connector") for way in ("quire", "one") for kind in kinds]
    assert [float(n) for n in told.groups()] == [round(n, 1) for n in measured]


def test_the_drivers_memory_is_told_for_numbers_of_files_that_were_measured() -> None:
    told = re.search(r"so ([0-9,]+) files or ([0-9,]+) need the same memory", README)
    assert told
    section = RESULTS[RESULTS.index("## The driver's memory") :].partition("\n## ")[0]
    assert set(told.groups()) <= set(re.findall(r"^\| ([0-9,]+) +\| +[0-9.]+ s", section, re.MULTILINE))
