"""A base file merged with what a commit brings equals a dictionary that is updated row by row."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gathering import refused
from quire.errors import FormatError
from quire.table.format.schema import META
from quire.table.write.merge import Brought, Changed, Coming, Merged, merge

COLUMNS = pa.schema([("at", pa.int64()), ("tags", pa.list_(pa.string())), ("deep", pa.struct([("x", pa.decimal128(9, 2))]))])
Row = tuple[int, int, bool]  # key, ordering, whether it deletes


def columns(rows: list[Row]) -> dict[str, Any]:
    return {
        "at": pa.array([at for _, at, _ in rows], pa.int64()),
        "tags": pa.array([[f"{key}", None][: at % 3] for key, at, _ in rows], COLUMNS.field("tags").type),
        "deep": pa.array([{"x": key} if key % 2 else None for key, _, _ in rows], COLUMNS.field("deep").type),
    }


def stored(rows: list[Row]) -> pa.RecordBatch:
    keys = [f"k{key}" for key, *_ in rows]
    meta = [
        pa.array(each, pa.string()) for each in (["t0"] * len(rows), [f"t0_{k}" for k in keys], keys, [""] * len(rows), ["f"] * len(rows))
    ]
    return pa.record_batch([*meta, *columns(rows).values()], [*META, *COLUMNS.names])


def coming(rows: list[Row]) -> Coming:
    """Rows of one run."""
    rows = sorted(rows, key=lambda row: f"k{row[0]}")
    brought = Brought(
        pa.table(list(columns(rows).values()), COLUMNS.names),
        pa.array([f"k{key}" for key, *_ in rows], pa.string()),
        pa.array([deletes for *_, deletes in rows], pa.bool_()),
    )
    return Coming(f"k{rows[0][0]}" if rows else "", lambda: brought)


def distinct(rows: list[Row]) -> list[Row]:
    return list({row[0]: row for row in rows}.values())


def plain(row: Row) -> dict[str, Any]:
    return {name: column.to_pylist()[0] for name, column in columns([row]).items()}


def tell(told: dict[str, Any]) -> Any:
    """Keeps what changes, by key."""

    def changed(change: Changed) -> None:
        keys = change.keys.to_pylist()
        before, after = ([None] * len(keys) if image is None else image.to_pylist() for image in (change.before, change.after))
        assert not told.keys() & set(keys)
        told.update({key: (change.op, was, now) for key, was, now in zip(keys, before, after, strict=True)})

    return changed


some = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5), st.booleans()), max_size=12).map(distinct)


@given(base=some, comes=some, by_time=st.booleans(), cut=st.integers(1, 5), runs=st.integers(1, 4), in_order=st.booleans())
@settings(max_examples=150, deadline=None)
def test_a_merge_equals_a_dictionary(base: list[Row], comes: list[Row], by_time: bool, cut: int, runs: int, in_order: bool) -> None:
    base = sorted(base, key=lambda row: f"k{row[0]}") if in_order else base
    expected = {f"k{key}": ("t0", row) for row in base for key in row[:1]}
    counted = Merged()
    for row in comes:
        key, at, deletes = f"k{row[0]}", row[1], row[2]
        before = expected.get(key)
        if (before is None and deletes) or (before is not None and by_time and at < before[1][1]):
            counted.stale += 1
        elif deletes:
            counted.deletes += 1
            del expected[key]
        else:
            counted.inserts += before is None
            counted.updates += before is not None
            expected[key] = ("now", row)
    counted.kept = sum(time == "t0" for time, _ in expected.values())
    counts, found, told = Merged(), dict[str, Any](), dict[str, Any]()
    batches = [stored(base[i : i + cut]) for i in range(0, len(base), cut)]
    order = list[str]()
    some_runs = [coming(part) for i in range(runs) if (part := comes[i::runs])]
    for piece in merge(batches, some_runs, "at" if by_time else None, counts, "a file", in_order=in_order, changed=tell(told)):
        assert piece.rows.schema.names == COLUMNS.names
        for key, time, number, row in zip(*(x.to_pylist() for x in (piece.keys, piece.times, piece.seqnos, piece.rows)), strict=True):
            assert key not in found
            assert (time is None) == (number is None)
            assert time is None or number == f"t0_{key}"
            found[key] = (time or "now", row)
            order.append(key)
    assert counts == counted
    assert found.keys() == expected.keys()
    for key, (time, row) in expected.items():
        assert found[key] == (time, plain(row))
    before = {f"k{row[0]}": plain(row) for row in base}
    after = {key: row for key, (_, row) in found.items()}
    images = {key: (before.get(key), after.get(key)) for key in (*before, *after)}
    assert told == {
        key: ("d" if now is None else "i" if was is None else "u", was, now)
        for key, (was, now) in images.items()
        if now is None or was is None or found[key][0] == "now"
    }
    if in_order:
        assert order == sorted(order)
    assert [key for key in order if found[key][0] == "t0" or key in {f"k{r[0]}" for r in base}] == [
        f"k{row[0]}" for row in base if f"k{row[0]}" in found
    ], "rows of the base file keep their order"


def test_a_file_that_breaks_the_rule_of_keys_is_one_line() -> None:
    twice = stored([(1, 0, False), (2, 0, False)])
    broken = twice.set_column(2, META[2], pa.array(["k1", None]))
    with refused(FormatError, 2, "a file", "without a key"):
        list(merge([broken], [coming([(2, 1, False)])], None, Merged(), "a file"))

    with refused(FormatError, 2, "a file", "out of the order"):
        list(merge([twice, twice], [coming([(3, 1, False)])], None, Merged(), "a file", in_order=True))


@pytest.mark.parametrize("ordering", [None, "at"])
def test_a_batch_of_which_nothing_is_left_gives_no_rows(ordering: str | None) -> None:
    counts = Merged()
    assert list(merge([stored([(1, 0, False)])], [coming([(1, 1, True)])], ordering, counts, "a file")) == []
    assert counts == Merged(deletes=1)


def test_of_runs_in_order_only_those_that_are_needed_are_in_memory() -> None:
    read = list[int]()

    def later(i: int) -> Coming:
        run = coming([(i, 1, False), (i + 1, 1, False)])
        return Coming(run.first, lambda: (read.append(i), run.read())[1])

    base = (stored([(i, 0, False), (i + 1, 0, False)]) for i in range(10, 90, 2))
    counts, seen = Merged(), list[int]()
    for piece in merge(base, [later(i) for i in range(80, 9, -10)], None, counts, "a file", in_order=True):
        seen += [int(key.removeprefix("k")) for key in piece.keys.to_pylist()]
        assert all(i <= max(seen) + 10 for i in read)
    assert seen == list(range(10, 90))
    assert (counts.updates, counts.kept, read) == (16, 64, list(range(10, 90, 10)))
