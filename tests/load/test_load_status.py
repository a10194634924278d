"""Whether a destination of topics is well: its lag is asked of the brokers, where they are named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quire
from gathering import refused
from loading import load, numbered, topic
from quire import StorageError, UsageError
from quire.ledger import prometheus
from services.kafka import Mock, mock


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


def test_the_lag_is_told_and_late_when_commits_stay_out(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 2, numbered(100, 2))
    source = f"kafka://{kafka.address}/{name}"
    load(kafka, name, tmp_path / "out", until={0: 50, 1: 20})
    found = quire.status(tmp_path / "out", source, source_options=dict(kafka.settings))
    assert (found.ok, found.lag, found.unprocessed, found.records) == (True, 30, None, 70)
    assert "\nquire_lag_offsets{" in prometheus.text({"out": found})
    late = quire.status(tmp_path / "out", source, max_age="0 s", source_options=dict(kafka.settings))
    assert [each.kind for each in late.findings] == ["late"]
    assert "and 30 offsets wait" in late.line
    load(kafka, name, tmp_path / "out")
    done = quire.status(tmp_path / "out", source, max_age="0 s", source_options=dict(kafka.settings))
    assert (done.ok, done.lag) == (True, 0), "nothing is there that could be late"
    assert quire.status(tmp_path / "out").lag is None, "nobody is asked by the word of a log"


def test_the_share_in_quarantine_is_of_records(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, [b"good"] * 19 + [b"two\nlines"])
    load(kafka, name, tmp_path / "out", format="lines")
    found = quire.status(tmp_path / "out")
    assert (found.quarantined, found.quarantined_share) == (1, 0.05)
    assert [each.kind for each in found.findings] == ["quarantined"]


def test_wrong_sources_are_a_line(kafka: Mock, tmp_path: Path) -> None:
    name = topic(kafka, 1, numbered(3))
    load(kafka, name, tmp_path / "out")
    with refused(UsageError, 2, "the source is topics"):
        quire.status(tmp_path / "out", f"kafka://{kafka.address}/{name}", include="*.txt")
    with refused(StorageError, 3):
        quire.status(tmp_path / "out", f"kafka://127.0.0.1:1/{name}", source_options={"socket.connection.setup.timeout.ms": 1000})
