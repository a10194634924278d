"""Kafka for tests: the mock cluster that a notebook starts, too, and what its client does to any cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "notebooks"))

from mock_kafka import FETCH, LIST_OFFSETS, METADATA, PATIENCE, Kafka, Mock, Record, designs

__all__ = ["FETCH", "LIST_OFFSETS", "METADATA", "PATIENCE", "Kafka", "Mock", "Record", "designs", "mock"]


@contextmanager
def mock(brokers: int = 1, topic_ids: bool = True) -> Iterator[Mock]:
    """Run a mock cluster in a process of its own."""
    with Mock(brokers, topic_ids) as cluster:
        yield cluster
