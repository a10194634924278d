"""Bloom filters of Parquet: what is there is never ruled out, what is not nearly always is, and damage is an error."""

from __future__ import annotations

import random
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.formats.bloom import Filter
from quire.formats.parquet import ParquetFile
from quire.formats.parquet_options import CAN_FILTER, NEW

RANDOM = random.Random(7)
THERE = ["", "é\U0001f600", "x" * 3_000, *(RANDOM.randbytes(RANDOM.randrange(40)).hex() for _ in range(5_000))]


def file_of(values: list[str], group: int = 2_000) -> pa.Buffer:
    assert CAN_FILTER, "the tests' pyarrow writes them"
    out = pa.BufferOutputStream()
    options = {NEW: {"path": {"ndv": group, "fpp": 0.01}}}
    pq.write_table(pa.table({"path": values, "n": range(len(values))}), out, row_group_size=group, **options)
    return out.getvalue()


def encoded(values: list[str]) -> list[bytes]:
    return [value.encode() for value in values]


def test_what_is_there_is_never_ruled_out_and_what_is_not_nearly_always() -> None:
    file = ParquetFile(pa.BufferReader(file_of(THERE)))
    filters = file.filters("path", range(file.num_row_groups))
    assert list(filters) == [0, 1, 2]
    for group, found in filters.items():
        assert found.may_hold(encoded(THERE[group * 2_000 : (group + 1) * 2_000])).all()
    absent = encoded([f"absent {i}" for i in range(20_000)])
    for found in filters.values():
        assert found.may_hold(absent).mean() < 0.02
    assert not filters[0].may_hold(encoded(THERE[2_000:4_000])).all()
    assert filters[0].may_hold([]).tolist() == []


def test_those_of_some_row_groups_come_by_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = ParquetFile(pa.BufferReader(file_of(THERE, 500)))
    assert len(file.chunks) == 11
    reads, source = list[int](), file._bytes

    class Counting:
        def seek(self, *at: int) -> None:
            source.seek(*at)

        def tell(self) -> int:
            return int(source.tell())

        def read(self, n: int) -> bytes:
            reads.append(n)
            return bytes(source.read(n))

    file._bytes = Counting()
    found = file.filters("path", [2, 3, 7])
    assert (list(found), len(reads)) == ([2, 3, 7], 1)
    assert found[7].may_hold(encoded(THERE[3_500:4_000])).all()


def test_a_file_without_them_has_none() -> None:
    out = pa.BufferOutputStream()
    pq.write_table(pa.table({"path": THERE}), out)
    assert ParquetFile(pa.BufferReader(out.getvalue())).filters("path", [0]) == {}
    assert ParquetFile(pa.BufferReader(file_of(THERE))).filters("n", [0, 1]) == {}


def test_those_of_duckdb_are_read(tmp_path: Path) -> None:
    path = tmp_path / "duck.parquet"
    with duckdb.connect() as db:
        db.sql(f"copy (select 'text ' || (i % 300) as path from range(20000) t(i)) to '{path}' (format parquet, row_group_size 10000)")
    with path.open("rb") as source:
        file = ParquetFile(pa.PythonFile(source))
        filters = file.filters("path", range(file.num_row_groups))
        assert len(filters) == file.num_row_groups > 0
    for found in filters.values():
        assert found.may_hold(encoded([f"text {i}" for i in range(300)])).all()
        assert found.may_hold(encoded([f"absent {i}" for i in range(5_000)])).mean() < 0.05


def test_damage_is_an_error() -> None:
    data = file_of(THERE, 100).to_pybytes()
    at, size = ParquetFile(pa.BufferReader(data)).chunks[0]["path"].filter or (0, 0)
    good = data[at : at + size]
    Filter(good)
    for bad in (b"", good[:10], good[:-1], good + b"\0", good[:17], good[:-32], b"\x15" + good[:50], b"\xff" * 60):
        with pytest.raises(ValueError, match="damaged"):
            Filter(bad)
    other = good.replace(b"\x1c\x1c\x00\x00", b"\x1c\x2c\x00\x00", 1)  # another kind of blocks
    assert other != good
    with pytest.raises(ValueError, match="damaged"):
        Filter(other)
    head = len(good) - len(good) // 32 * 32
    refused = 0
    for i in range(head):
        for bit in range(8):
            broken = bytearray(good)
            broken[i] ^= 1 << bit
            try:
                found = Filter(bytes(broken))
            except ValueError:
                refused += 1
            else:  # a number of another width, say
                assert found.may_hold(encoded(THERE[:100])).all()
    assert refused > 4 * head


def test_a_footer_that_says_filters_lie_anywhere_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ((-5, 100), (10, 1 << 40), (0, -1)):
        file = ParquetFile(pa.BufferReader(file_of(THERE)))
        file.chunks[1]["path"] = file.chunks[1]["path"]._replace(filter=place)
        with pytest.raises(ValueError, match="damaged"):
            file.filters("path", [0, 1, 2])
