"""What a job has staged, sorted: equal to a dictionary that takes row after row, however little fits into one task."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from staging import CONFIG, HERE, closing, rows, sort_all, staged

from gathering import refused
from quire.commit.entries import Coverage, Stats, Task
from quire.engine.closers import staged as staged_files
from quire.errors import DataLossError, FormatError, QuireError, RefusedError, StorageError, TransientError, UsageError
from quire.spark.runner import Failure
from quire.table.write import sort as sorting
from quire.table.write import spills
from quire.table.write.columns import OPERATIONS
from quire.table.write.rows import prepare
from quire.table.write.sort import decode, encode, sort

Row = tuple[str, str | None, int, bool | None]
keys, cities, marks = (st.sampled_from(each) for each in (["a", "b", "bb", "é", "~"], ["x", "y", None], [None, False, True]))
some_rows = st.lists(st.tuples(keys, cities, st.integers(0, 3), marks), max_size=8)


def frame(said: list[Row]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array([row[0] for row in said], pa.string()), "city": pa.array([row[1] for row in said], pa.string()),
            "at": pa.array([row[2] for row in said], pa.int64()), "_hoodie_is_deleted": pa.array([row[3] for row in said], pa.bool_()),
            "n": pa.array(range(len(said)), pa.int32()),
        }
    )  # fmt: skip


def expected(frames: list[list[Row]], operation: str) -> list[tuple[str, str, bool, int]]:
    """(partition, key, deletes, n) of the rows that stay."""
    found = list[tuple[str, str, bool, int, int]]()
    for each in frames:
        for n, (key, city, at, gone) in enumerate(each):
            partition = f"city={city or '__HIVE_DEFAULT_PARTITION__'}"
            deletes = operation == "delete" or bool(gone)
            if operation in ("insert", "bulk_insert", "insert_overwrite") and deletes:
                continue
            before = next((row for row in found if row[:2] == (partition, key)), None)
            if before is None or before[4] <= at:
                found = [row for row in found if row is not before] + [(partition, key, deletes, n, at)]
    return sorted((row[:4] for row in found), key=lambda row: row[:2])


def small(patched: pytest.MonkeyPatch, block: int) -> None:
    """Let a block have so many bytes."""
    for module in (sorting, spills):
        patched.setattr(module, "BLOCK", block)
    patched.setattr(spills, "STEP", max(1, block // 8))
    patched.setattr(spills, "PIECE", max(1, block // 2))
    patched.setattr(sorting, "SHARE", max(1_000, block // 4))


@given(
    frames=st.lists(some_rows, min_size=1, max_size=3),
    operation=st.sampled_from(OPERATIONS),
    block=st.sampled_from([1, 300, 1 << 20]),
)
@settings(max_examples=60, deadline=None)
def test_sorted_rows_equal_a_dictionary(frames: list[list[Row]], operation: str, block: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        small(patched, block)
        patched.setattr(staged_files, "ROWS", 3)
        found = sort_all(Path(folder), [frame(each) for each in frames], operation)
        kept = rows(Path(folder), found)
    assert [(partition, key, deletes, row.get("n")) for partition, key, deletes, row in kept] == [
        (*row[:3], None if operation == "delete" else row[3]) for row in expected(frames, operation)
    ]
    assert found.rows_in == sum(map(len, frames))


# ------------------------------------------------------------------------------------------------------------------------- skew
def wide(keys: list[str], city: str = "x") -> pa.Table:
    """Rows of some 130 bytes."""
    n = len(keys)
    return pa.table({"id": keys, "city": [city] * n, "at": pa.array(range(n), pa.int64()), "text": [f"{i:0100}" for i in range(n)]})


@pytest.mark.nth(3)
@pytest.mark.parametrize("operation", ["upsert", "insert"])
@pytest.mark.parametrize(
    "frames",
    [
        [wide(["one"] * 20_000)],
        [wide([f"{'same' * 20}{i:06}" for i in range(10_000)])],
        [wide([f"{i:05}" for i in range(2_500)])] * 5,  # of which each spill has the same keys
        [wide([f"{i % 50:05}" for i in range(2_500)]), wide([f"{i:05}" for i in range(9_000)], "y")],
    ],
    ids=["one key", "one partition and prefix", "the same keys in all", "some keys often"],
)
def test_no_block_is_larger_than_said_however_the_keys_are_skewed(
    frames: list[pa.Table], operation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = 400_000
    small(monkeypatch, block)
    monkeypatch.setattr(staged_files, "ROWS", 500)
    tasks = staged(tmp_path, frames, operation)
    taken, asked = spills.taken, list[int]()

    def measured(*given: Any) -> dict[str, Any]:
        found = taken(*given)
        asked.append(sum(run["size"] for run in found["runs"]))
        return found

    monkeypatch.setattr(sorting, "taken", measured)
    found = sort(HERE, closing(tmp_path), tasks, operation)
    kept = rows(tmp_path, found)
    given = [(f"city={city}", key) for each in frames for city, key in zip(each["city"].to_pylist(), each["id"].to_pylist(), strict=True)]
    assert [row[:2] for row in kept] == sorted(set(given))
    assert max(run.size for run in found.runs) <= block // 2
    sizes = Counter[str]()
    for run in found.runs:
        sizes[run.name] += run.size
    assert max(sizes.values()) <= block
    assert sum(asked) == sum(run.size for run in found.runs)


def test_spills_of_the_same_rows_are_cut_at_different_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = set[str]()
    monkeypatch.setattr(spills, "STEP", 20_000)
    block = prepare(wide([f"{i:05}" for i in range(1_000)]).to_batches()[0], pa.schema([("id", pa.string())]), CONFIG, "upsert")
    for _ in range(10):
        found = spills.spill_of(closing(tmp_path), pa.Table.from_batches([block]))
        assert sum(batch.rows for batch in found.batches) == 1_000
        firsts.update(batch.key for batch in found.batches[1:])
    assert len(firsts) > 2 * len(found.batches)


def test_a_key_that_comes_again_and_again_with_large_rows_is_not_held_as_often(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 20_000)
    monkeypatch.setattr(spills, "PARALLEL", 2)
    seen, in_order = list[int](), spills.in_order

    def looking(table: pa.Table, *more: Any) -> pa.Table:
        seen.append(table.nbytes)
        return in_order(table, *more)

    monkeypatch.setattr(spills, "in_order", looking)
    found = sort_all(tmp_path, [pa.table({"id": ["k"], "city": ["x"], "at": [i % 7], "text": ["x" * 25_000]}) for i in range(20)])
    (row,) = rows(tmp_path, found)
    assert (row[3]["at"], found.duplicates) == (6, 19)
    assert max(seen) < 100_000


# ------------------------------------------------------------------------------------------------------------------- what is kept
def test_rows_of_every_type_come_back(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([2, 1], pa.int64()), "city": pa.array([None, "x"], pa.string()),
            "at": pa.array([1, 1], pa.timestamp("us", "UTC")), "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
            "tags": pa.array([["a", None], None], pa.list_(pa.string())),
            "deep": pa.array([None, {"x": [1.5], "y": {"z": True}}]),
            "named": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int32())), "bytes": pa.array([b"\0\xff", b""]),
        }
    )  # fmt: skip
    found = sort_all(tmp_path, [table])
    assert [row[3] for row in rows(tmp_path, found)] == [{**row, "bytes": row["bytes"]} for row in table.to_pylist()]
    again = decode(encode(found), closing(tmp_path).job, done(tmp_path), "there")
    assert again == found
    assert rows(tmp_path, again) == rows(tmp_path, found)


def test_columns_that_no_function_has_made_are_read_of_the_files(tmp_path: Path) -> None:
    tasks = [structs.replace(task, schema="") for task in staged(tmp_path, [frame([("a", "x", 1, None)]), frame([("b", "x", 1, None)])])]
    found = sort(HERE, closing(tmp_path), tasks, "upsert")
    assert [row[1] for row in rows(tmp_path, found)] == ["a", "b"]
    assert found.columns == frame([]).schema


def test_a_job_without_rows_gives_an_empty_sort(tmp_path: Path) -> None:
    found = sort_all(tmp_path, [frame([]), frame([])])
    assert (found.runs, found.rows_in) == ([], 0)
    assert decode(encode(found), closing(tmp_path).job, done(tmp_path), "there") == found
    assert not (tmp_path / "_quire").exists()


def done(place: Path) -> Task:
    run = closing(place)
    return Task(task=run.task, attempt=run.attempt, data_files=(), coverage=Coverage(), stats=Stats())


def test_ten_thousand_runs_are_read_back(tmp_path: Path) -> None:
    found = sort_all(tmp_path, [frame([("a", "x", 1, None)])])
    many = sorting.Sorted(found.runs * 10_000, found.columns, 10_000)
    assert decode(encode(many), closing(tmp_path).job, done(tmp_path), "there") == many


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("runs", 0, "name"), "_quire/jobs/3-0123456789abcdef/attempts/9-000000000009/../../x.arrow.staged"),
        (("runs", 0, "name"), "_quire/jobs/3-0123456789abcdef/attempts/8-000000000008/0123456789ab.arrow.staged"),
        (("runs", 0, "name"), "other.parquet"), (("runs", 0, "partition"), "../x"), (("runs", 0, "partition"), "/x"),
        (("runs", 0, "partition"), ".hoodie/x"), (("runs", 0, "partition"), "_quire"), (("runs", 0, "rows"), 0), (("runs", 0, "rows"), -1),
        (("runs", 0, "rows"), "1"), (("runs", 0, "deletes"), 2), (("runs", 0, "size"), 2**63), (("runs", 0, "batch"), 1.5),
        (("runs", 0, "first"), "b"), (("runs", 0, "group"), "g"), (("rows_in",), 5), (("duplicates",), None), (("columns",), "{"),
        (("format",), 2), (("kind",), "commit"), (("more",), 1), (("runs",), {}),
    ],
)  # fmt: skip
def test_a_forged_sort_is_refused(where: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    found = json.loads(encode(sort_all(tmp_path, [frame([("a", "x", 1, None)])])))
    at = found
    for step in where[:-1]:
        at = at[step]
    at[where[-1]] = value
    with refused(FormatError, 2, "there"):
        decode(json.dumps(found).encode(), closing(tmp_path).job, done(tmp_path), "there")


# ------------------------------------------------------------------------------------------------------------------------ failures
def test_staged_rows_that_are_not_what_their_task_counted_are_refused(tmp_path: Path) -> None:
    one, other = staged(tmp_path, [frame([("a", "x", 1, None)]), frame([("a", "x", 1, None)] * 2)])
    where, there = (tmp_path / task.data_files[0].handle for task in (one, other))
    where.write_bytes(there.read_bytes())
    with refused(FormatError, 2, "holds 2 rows", "counted 1"):
        sort(HERE, closing(tmp_path), [one, other], "upsert")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"key": ("city",)}, "1 of 2 rows have no record key in city"), ({"ordering": "w"}, "1 of 2 rows have no value"),
        ({"partition_by": ("id",)}, "'a/b' of 'id' makes no partition"), ({"key": ("more",)}, "no column 'more'"),
    ],
)  # fmt: skip
def test_rows_that_tasks_have_staged_without_a_look_are_refused_by_the_sort(config: dict[str, Any], said: str, tmp_path: Path) -> None:
    tasks = staged(tmp_path, [pa.table({"id": ["a/b", "c"], "city": ["x", None], "at": [1, 2], "w": [None, 1]})])
    with refused(UsageError, 2, said):
        sort(HERE, closing(tmp_path, config=replace(CONFIG, **config)), tasks, "upsert")


def test_lines_are_not_rows_of_a_table(tmp_path: Path) -> None:
    (task,) = staged(tmp_path, [frame([("a", "x", 1, None)])])
    lines = structs.replace(task.data_files[0], name=task.data_files[0].name.replace(".parquet", ".jsonl"))
    with refused(UsageError, 2, "format='parquet'"):
        sort(HERE, closing(tmp_path), [structs.replace(task, data_files=(lines,), schema="")], "upsert")


@pytest.mark.parametrize(
    ("kinds", "raised"),
    [
        (["ValueError"], QuireError), (["TransientError", "ValueError"], QuireError), (["TransientError", "RefusedError"], RefusedError),
        (["TransientError"], TransientError), (["ValueError", "FormatError"], FormatError), (["DataLossError"], DataLossError),
        (["ValueError", "UsageError"], UsageError), (["StorageError"], StorageError),
    ],
)  # fmt: skip
def test_the_error_that_no_other_call_mends_is_told_first(
    kinds: list[str], raised: type[QuireError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = staged(tmp_path, [frame([("a", "x", 1, None)])])

    class Failing:
        def run(self, *_: Any, **__: Any) -> list[Failure]:
            return [Failure(kind, "said") for kind in kinds]

    with pytest.raises(raised, match="said") as caught:
        sort(Failing(), closing(tmp_path), tasks, "upsert")  # type: ignore[arg-type]  # all that is asked of it
    assert type(caught.value) is raised
