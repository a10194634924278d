"""The page on monitoring says what there is: its metrics exist, each one is on it, and its rules ask for nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from quire.ledger import prometheus
from quire.ledger.status import KINDS
from quire.progress.counters import NUMBERS

PAGE = (Path(__file__).parents[1] / "docs/monitoring.md").read_text()
METRICS = {prometheus.REACHABLE, prometheus.FINDING, *prometheus.METRICS}
COUNTERS = {"quire_runs_total", "quire_run_seconds_total", "quire_phase_seconds_total", *(f"{name}_total" for name in NUMBERS)}


def test_the_page_names_each_metric_and_no_other() -> None:
    gauges, _, counters = PAGE.partition("## Prometheus")[2].partition("## Follow runs")
    assert set(re.findall(r"\bquire_\w+", gauges)) == METRICS
    assert set(re.findall(r"\bquire_\w+_total\b", counters)) == COUNTERS


def test_the_page_has_each_thing_that_may_be_to_do_in_their_order() -> None:
    rows = re.findall(r"^\| ([a-z][a-z ]+) \| ", PAGE, re.MULTILINE)
    assert tuple(row for row in rows if row in KINDS) == KINDS


def test_the_rules_ask_for_metrics_and_kinds_that_there_are() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    rules = [rule for group in yaml.safe_load(block)["groups"] for rule in group["rules"]]
    assert len({rule["alert"] for rule in rules}) == len(rules) == 10
    asked = " ".join(rule["expr"] for rule in rules)
    assert set(re.findall(r"quire_\w+", asked)) <= METRICS
    assert {kind for text in re.findall(r'kind=~?"([^"]+)"', asked) for kind in text.split("|")} <= set(KINDS)
    assert all({"expr", "labels", "annotations"} <= set(rule) for rule in rules)
