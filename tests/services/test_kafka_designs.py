"""What the two designs that are not exactly once lose and double, by the witness; and that the witness sees each of it."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from services.kafka import Mock, Record
from services.kafka_designs import Died, acknowledged, beside
from services.kafka_witness import Account, Content, Position, account, by_value, lines, look, parquet


@pytest.fixture
def topic(kafka_mock: Mock) -> str:
    """A thousand records in two partitions, each unlike all others."""
    name = f"t{uuid.uuid4().hex}"
    kafka_mock.create(name, 2)
    produce(kafka_mock, name, 0, 1000)
    return name


def produce(cluster: Mock, topic: str, start: int, end: int) -> None:
    cluster.produce(topic, [Record(b"%d" % i, b"k%d" % i, partition=i % 2) for i in range(start, end)])


def told(cluster: Mock, topic: str, dest: Path, orphans: bool = False) -> Account:
    """Of the files that are meant for readers, or of orphans, too."""
    open_ones = [path.name for path in dest.glob("_open-*")] if orphans else []
    return by_value(look(cluster, topic), lines(dest) + lines(dest, open_ones))


def counts(found: Account) -> tuple[int, int, int, int]:
    return found.expected, len(found.lost), len(found.double), len(found.other)


def test_both_are_exact_as_long_as_nothing_dies(kafka_mock: Mock, topic: str, tmp_path: Path) -> None:
    acknowledged(kafka_mock, topic, tmp_path / "a")
    beside(kafka_mock, topic, tmp_path / "b")
    assert told(kafka_mock, topic, tmp_path / "a").exact
    assert told(kafka_mock, topic, tmp_path / "b").exact
    produce(kafka_mock, topic, 1000, 1100)
    acknowledged(kafka_mock, topic, tmp_path / "a")
    beside(kafka_mock, topic, tmp_path / "b")
    assert counts(told(kafka_mock, topic, tmp_path / "a")) == (1100, 0, 0, 0)
    assert counts(told(kafka_mock, topic, tmp_path / "b")) == (1100, 0, 0, 0)


@pytest.mark.parametrize(("dies", "double"), [("in a batch", 50), ("before the acknowledgement", 100)])
def test_the_acknowledged_batch_is_lost_with_the_orphan_or_double(
    kafka_mock: Mock, topic: str, tmp_path: Path, dies: str, double: int
) -> None:
    with pytest.raises(Died):
        acknowledged(kafka_mock, topic, tmp_path, dies=dies, after=4)  # in the second file, whose first batch was acknowledged
    acknowledged(kafka_mock, topic, tmp_path)
    assert counts(told(kafka_mock, topic, tmp_path)) == (1000, 100, 0, 0)
    assert counts(told(kafka_mock, topic, tmp_path, orphans=True)) == (1000, 0, double, 0)


@pytest.mark.parametrize(("dies", "double"), [("between two files", 500), ("between data and offsets", 1000)])
def test_what_was_renamed_before_its_offsets_is_double(kafka_mock: Mock, topic: str, tmp_path: Path, dies: str, double: int) -> None:
    with pytest.raises(Died):
        beside(kafka_mock, topic, tmp_path, dies=dies, batch=2000)
    produce(kafka_mock, topic, 1000, 1100)  # life goes on
    beside(kafka_mock, topic, tmp_path, batch=2000)
    assert counts(told(kafka_mock, topic, tmp_path)) == (1100, 0, double, 0)


def rows(path: Path, found: list[tuple[Position, Content]]) -> None:
    names = [*Position._fields, *Content._fields]
    pq.write_table(pa.table({name: [(*p, *c)[i] for p, c in found] for i, name in enumerate(names)}), path)


def test_the_witness_sees_what_is_lost_double_or_another(kafka_mock: Mock, topic: str, tmp_path: Path) -> None:
    must = look(kafka_mock, topic)
    first, second, third, *others = must.items()
    rows(tmp_path / "a.parquet", [second, third, *others])
    (tmp_path / "_quire").mkdir()
    shutil.copy(tmp_path / "a.parquet", tmp_path / "_quire/b.parquet")  # not for readers
    assert account(must, parquet(tmp_path)) == Account(1000, [first], [], [])

    rows(tmp_path / "c.parquet", [first, third, third])
    assert account(must, parquet(tmp_path)) == Account(1000, [], [third, third], [])
    assert account(must, parquet(tmp_path, ["a.parquet"])).lost == [first]

    changed, unheard = (first[0], Content(b"k0", b"another")), (Position(topic, 0, 5000), Content(None, b"unheard of"))
    rows(tmp_path / "c.parquet", [changed, unheard])
    assert account(must, parquet(tmp_path)) == Account(1000, [first], [], [changed, unheard])
    assert not account(must, parquet(tmp_path)).exact


def test_what_retention_took_away_may_be_there_once(kafka_mock: Mock, topic: str, tmp_path: Path) -> None:
    before = look(kafka_mock, topic)
    kafka_mock.delete_records(topic, {0: 100})
    must = look(kafka_mock, topic)
    rows(tmp_path / "a.parquet", list(before.items()))
    gone = (Position(topic, 0, 7), before[Position(topic, 0, 7)])
    assert account(must, parquet(tmp_path)).other.count(gone) == 1
    assert account(must, parquet(tmp_path), may=before) == Account(900, [], [], [])
    rows(tmp_path / "b.parquet", [gone])
    assert account(must, parquet(tmp_path), may=before) == Account(900, [], [gone], [])
