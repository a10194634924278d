"""Directories by the values of a column: what was written is read back, with the type that it had, and no value stops a topic."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gathering import not_taken, refused
from loading import load, topic
from quire import Ledger, LocalRunner, UsageError
from quire.formats import partitions
from quire.read import first_rows
from quire.sources.kafka.records import check_by
from quire.storage import connect, normalise
from quire.storage.base import safe
from services.kafka import Mock, mock

TEXTS = [
    None, "", "__HIVE_DEFAULT_PARTITION__", "Köln", "北京", "01234", "1.10", "2026-11-22", "a/b", "50%", "%41", "a=b", "a\nb", "trailing.",
    "trailing ", ".hidden", "_quire", "empty", "..", "a", "A", "null", "NaN", "true", "+", "{x}", "a:b", "é" * 124,
]  # fmt: skip


@pytest.fixture(scope="module")
def kafka() -> Iterator[Mock]:
    with mock(brokers=1) as cluster:
        yield cluster


@given(st.none() | st.text(), st.sampled_from(["city", "a/b=", ".x", "%"]))
def test_any_text_is_read_back_from_its_directory(value: str | None, name: str) -> None:
    folder = partitions.directory(name, value)
    assert partitions.values(f"{folder}/part-0") == {name: value}
    assert safe(f"{folder}/part-0")
    assert "\n" not in folder


def test_what_has_no_such_directory_says_nothing_and_numbers_are_read_as_spark_does() -> None:
    assert partitions.values("part-0") == partitions.values("d/part-0") == {}
    assert partitions.typed("+5", pa.int32()).to_pylist() == [5]
    for value, kind in (("x", pa.int32()), (str(2**70), pa.int64()), ("x", pa.date32())):
        with pytest.raises((ValueError, OverflowError)):
            partitions.typed(value, kind)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), TEXTS), (pa.int64(), [None, 0, -(2**63), 2**63 - 1]), (pa.uint64(), [0, 2**64 - 1]),
        (pa.bool_(), [None, True, False]),
        (pa.date32(), [None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2026, 11, 22)]),
    ],
    ids=str,
)  # fmt: skip
def test_values_come_back_from_directories_as_they_were_with_their_type(kafka: Mock, tmp_path: Path, kind: Any, values: list[Any]) -> None:
    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = pa.array([int(v) for v in batch.column("value").to_pylist()])
        return pa.record_batch([numbers, pa.array(values, kind).take(numbers)], ["n", "by"])

    name, dest = topic(kafka, 1, [b"%d" % i for i in range(len(values))]), tmp_path / "out"
    load(kafka, name, dest, function, partition_by="by", function_version="1")
    found = {row["n"]: row["by"] for row in first_rows(connect(normalise(dest)), 999)}
    assert found == dict(enumerate(values))


def test_a_value_too_long_for_a_directory_is_quarantined_alone(kafka: Mock, tmp_path: Path) -> None:
    cities = ["Bonn", "ö" * 126, "x" * 251, "x" * 250]  # city= and 252, 251, 250 bytes

    def function(batch: pa.RecordBatch) -> pa.RecordBatch:
        numbers = [int(v) for v in batch.column("value").to_pylist()]
        return pa.record_batch({"n": numbers, "city": [cities[i] for i in numbers]})

    name, dest = topic(kafka, 1, [b"%d" % i for i in range(4)]), tmp_path / "out"
    report = load(kafka, name, dest, function, partition_by="city", function_version="1")
    assert (report.records, not_taken(report)) == (2, 2)
    assert "'city' makes a directory's name of 257 bytes, and a name may have 255" in str(report.quarantined)
    assert sorted(row["n"] for row in first_rows(connect(normalise(dest)), 9)) == [0, 3]
    assert Ledger(dest).verify(spark=LocalRunner()).ok


@pytest.mark.parametrize("kind", [pa.float64(), pa.binary(), pa.decimal128(5, 2), pa.list_(pa.int8())], ids=str)
def test_a_column_whose_values_have_no_one_name_is_refused(kind: pa.DataType) -> None:
    with refused(UsageError, 2, "partition_by='by'", "makes no directories"):
        check_by("by", pa.schema([("by", kind), ("n", pa.int8())]))
