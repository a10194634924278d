"""The checksum of rows: the same however Parquet laid them out, another one for any other value, and quick."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from quire.formats import running
from quire.formats.parquet import RowReader, checksum
from quire.formats.running import Running
from quire.storage import bare

DAYS = [dt.date(1, 1, 1), dt.date(2026, 1, 1), dt.date(1970, 1, 1)]
PAIR, NESTED = pa.struct([("a", pa.int8()), ("b", pa.string())]), pa.list_(pa.struct([("x", pa.list_(pa.string()))]))
KINDS = (
    (pa.int8(), [1, -1, 0]),
    (pa.uint64(), [2**63, 0, 1]),
    (pa.float32(), [0.5, -0.0, 1e30]),
    (pa.float64(), [float("nan"), 0.0, -1.5]),
    (pa.bool_(), [True, False, True]),
    (pa.string(), ["", "a", "äö"]),
    (pa.binary(), [b"", b"\0", b"ab"]),
    (pa.date32(), DAYS),
    (pa.timestamp("us", "UTC"), [0, -1, 10**15]),
    (pa.decimal128(20, 3), [decimal.Decimal("1.5"), decimal.Decimal(-7), decimal.Decimal(0)]),
    (pa.list_(pa.int32()), [[1, 2], [], [None]]),
    (PAIR, [{"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": 0, "b": None}]),
    (pa.map_(pa.string(), pa.int64()), [[("k", 1)], [], [("a", None), ("b", 2)]]),
    (NESTED, [[{"x": ["a"]}], [], [{"x": None}, {"x": []}]]),
)


def through_parquet(table: pa.Table, **how: object) -> pa.Table:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return pq.read_table(sink)


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda value: str(value)[:30])
def test_it_is_of_the_values_alone(kind: pa.DataType, values: list[object]) -> None:
    draw = random.Random(3)
    column = [draw.choice([*values, None]) for _ in range(500)]
    table = pa.table({"c": pa.array(column, kind), "n": range(500)})
    want = checksum(table)
    assert checksum(through_parquet(table)) == want
    assert checksum(through_parquet(table, row_group_size=7, use_dictionary=False, compression="none")) == want
    assert checksum(pa.concat_tables([table.slice(0, 3), table.slice(3, 200), table.slice(203)])) == want
    padded = pa.concat_tables([table, table, table]).combine_chunks()
    assert checksum(padded.slice(500, 500)) == want
    assert checksum(padded.slice(500, 500).to_batches()[0]) == want
    for i, other in ((0, values[0]), (250, values[1]), (499, None), (7, values[2])):
        changed = [*column[:i], other, *column[i + 1 :]]
        same = repr(changed) == repr(column)
        assert (checksum(pa.table({"c": pa.array(changed, kind), "n": range(500)})) == want) == same
    swapped = pa.table({"c": pa.array(column[::-1], kind), "n": range(500)})
    assert checksum(swapped) != want


def of_parts(table: pa.Table, *cuts: int) -> int:
    found = Running()
    for first, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        found.update(table.slice(first, end - first))
    return found.intdigest()


@pytest.mark.parametrize(("kind", "values"), KINDS, ids=lambda value: str(value)[:30])
def test_a_running_one_is_the_same_however_the_rows_are_cut(kind: pa.DataType, values: list[object]) -> None:
    draw = random.Random(4)
    for column in ([draw.choice([*values, None]) for _ in range(60)], [values[0]] * 60, [None] * 60, [None] * 59 + [values[1]]):
        table = pa.table({"c": pa.array(column, kind), "n": range(60)})
        want = of_parts(table)
        assert of_parts(through_parquet(table, row_group_size=7), 13, 14, 50) == want
        for _ in range(5):
            assert of_parts(table, *sorted(draw.choices(range(61), k=4))) == want
        for i in (0, 30, 59):
            for other in (*values, None):
                changed = [*column[:i], other, *column[i + 1 :]]
                same = repr(changed) == repr(column)
                assert (of_parts(pa.table({"c": pa.array(changed, kind), "n": range(60)}), 30) == want) == same
        assert of_parts(table.rename_columns(["d", "n"])) != want
        assert of_parts(table.slice(1)) != want
        assert of_parts(table.slice(0, 59)) != want


def test_values_of_a_running_one_do_not_run_into_one_another() -> None:
    tables = [
        {"a": ["ab", "c"]}, {"a": ["a", "bc"]}, {"a": ["abc", ""]}, {"a": ["abc", None]}, {"a": [None, "abc"]}, {"b": ["ab", "c"]},
        {"a": [["a"], ["b"]]}, {"a": [["a", "b"], []]}, {"a": [[], ["a", "b"]]}, {"a": [["a", "b"], None]},
        {"a": [1, 2]}, {"a": [1, 2], "b": [1, 2]}, {"a": ["x", "y"], "b": ["", ""]}, {"a": ["", ""], "b": ["x", "y"]},
        {"a": [{"x": 1}, None]}, {"a": [{"x": 1}, {"x": None}]}, {"a": [None, {"x": 1}]},
    ]  # fmt: skip
    assert len({of_parts(pa.table(each), 1) for each in tables}) == len(tables)


def test_a_record_is_compared_with_both_and_held_only_if_it_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"n": range(1_000), "t": [f"text {i}" for i in range(1_000)]})
    sink, store, taken = io.BytesIO(), bare("memory://running"), list[int]()
    pq.write_table(table, sink, row_group_size=100)
    store.put("x.parquet", sink.getvalue())
    reader, real = RowReader(store, "x.parquet"), RowReader.take

    def take(self: RowReader, start: int, n: int) -> pa.Table:
        taken.append(n)
        return real(self, start, n)

    monkeypatch.setattr(RowReader, "take", take)
    part = table.slice(150, 600)
    for written, kind, right, held in (
        (10, of_parts(part), True, True), (10, checksum(part), True, True), (10, 7, False, True),
        (running.SHORT + 1, of_parts(part), True, False), (running.SHORT + 1, checksum(part), True, True),
        (running.SHORT + 1, 7, False, True), (running.LONG + 1, of_parts(part), True, False), (running.LONG + 1, 7, False, False),
    ):  # fmt: skip
        taken.clear()
        found = running.read_back(reader, {"offset": 150, "records": 600, "written": written, "checksum": kind})
        assert ((found == kind), bool(taken)) == (right, held), (written, kind)


def test_values_do_not_run_into_one_another() -> None:
    tables = [
        {"a": ["ab", "c"]}, {"a": ["a", "bc"]}, {"a": ["abc", ""]}, {"a": ["abc", None]}, {"a": [None, "abc"]}, {"b": ["ab", "c"]},
        {"a": [["a"], ["b"]]}, {"a": [["a", "b"], []]}, {"a": [[], ["a", "b"]]}, {"a": [["a", "b"], None]},
        {"a": [1, 2]}, {"a": [1, 2], "b": [1, 2]},
        {"a": [{"x": 1}, None]}, {"a": [{"x": 1}, {"x": None}]}, {"a": [None, {"x": 1}]},
    ]  # fmt: skip
    assert len({checksum(pa.table(each)) for each in tables}) == len(tables)


def test_what_lies_behind_a_null_does_not_count() -> None:
    mask = pa.array([False, True])
    one = pa.StructArray.from_arrays([pa.array([1, 2])], ["x"], mask=mask)
    two = pa.StructArray.from_arrays([pa.array([1, 99])], ["x"], mask=mask)
    assert checksum(pa.table({"c": one})) == checksum(pa.table({"c": two}))
    texts = pa.Array.from_buffers(pa.string(), 2, [pa.py_buffer(b"\x01"), pa.py_buffer(b"\0\0\0\0\1\0\0\0\3\0\0\0"), pa.py_buffer(b"abc")])
    assert checksum(pa.table({"c": texts})) == checksum(pa.table({"c": ["a", None]}))


def test_one_of_an_earlier_quire_is_right_too() -> None:
    table = pa.table({"n": [1, 2], "t": ["x", None]})
    digest = xxhash.xxh3_64()
    for name in table.column_names:
        digest.update(repr((name, table.column(name).to_pylist())).encode())
    assert checksum(table, digest.intdigest()) == digest.intdigest()
    assert checksum(table, checksum(table)) == checksum(table)
    assert checksum(table, 5) == checksum(table) != digest.intdigest()


def test_it_costs_no_object_a_value() -> None:
    table = pa.table({f"c{i}": range(200_000) for i in range(5)} | {"t": [f"text {i}" for i in range(200_000)]})
    began = time.process_time()
    checksum(table)
    assert time.process_time() - began < 0.5
