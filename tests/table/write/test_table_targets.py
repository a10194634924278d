"""Which file the rows of a commit go into."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.table.file_groups import Slice
from quire.table.write.blocks import Run
from quire.table.write.targets import targets

TARGET, ROW = 1000, 10.0  # a file of 100 rows


def run(rows: int, group: str = "", partition: str = "a", first: str = "k", deletes: int = 0) -> Run:
    return Run("block", 0, partition, rows, deletes, rows * 20, first, first, group)


def slice_of(group: str, size: int, partition: str = "a") -> Slice:
    return Slice(partition, group, "20261122100000000", f"{partition}/{group}.parquet", size)


def test_keys_that_are_there_go_where_they_are() -> None:
    there = [slice_of("x", 5000), slice_of("y", 900)]
    found = targets([run(5, "x"), run(7, "y"), run(3, "x"), run(2, "new")], there, TARGET, ROW)
    assert [(t.group, t.base, t.rows, t.inserts) for t in found] == [("new", None, 2, 0), ("x", there[0], 8, 0), ("y", there[1], 7, 0)]


def test_inserts_fill_small_files_that_are_written_anyway_then_the_smallest_and_the_rest_opens_new_ones() -> None:
    there = [slice_of("full", 751), slice_of("tiny", 100), slice_of("half", 500), slice_of("tiny", 100, "b")]
    found = {t.group: t for t in targets([run(5, "half"), run(60)], there, TARGET, ROW)}
    assert {group: t.rows for group, t in found.items()} == {"half": 55, "tiny": 10}
    assert {t.partition for t in found.values()} == {"a"}
    found = {t.group: t for t in targets([run(500)], there, TARGET, ROW)}
    new = [t for t in found.values() if t.base is None]
    assert (found["tiny"].rows, found["half"].rows) == (90, 50)
    assert [t.rows for t in new] == [90] * 4, "new files are of one size"
    assert all(t.base is None for t in targets([run(50)], there, TARGET, ROW, fill=False)), "bulk_insert opens files of its own"


def test_rows_of_unknown_length_are_guessed_and_deletes_of_nothing_open_no_file() -> None:
    assert [t.rows for t in targets([run(200)], [], TARGET, 0.0)] == [100, 100], "half of 20 bytes a row"
    assert targets([run(3, deletes=3)], [slice_of("x", 1)], TARGET, ROW) == []
    assert [t.rows for t in targets([run(1)], [slice_of("x", 1)], 1, 1e9)] == [1], "a row longer than a file has one"


@given(
    st.lists(st.tuples(st.integers(1, 300), st.sampled_from(["", "", "g0", "g1"]), st.sampled_from("ab")), max_size=12),
    st.lists(st.integers(0, 2000), max_size=4),
)
@settings(max_examples=100, deadline=None)
def test_each_row_goes_into_one_file_of_its_partition(wanted: list[tuple[int, str, str]], sizes: list[int]) -> None:
    runs = [run(rows, group, partition, f"{i:03d}") for i, (rows, group, partition) in enumerate(wanted)]
    found = targets(runs, [slice_of(f"g{i}", size, "ab"[i % 2]) for i, size in enumerate(sizes)], TARGET, ROW)
    assert len({(t.partition, t.group) for t in found}) == len(found)
    rows = [(s.run, i) for t in found for s in t.shares for i in range(s.start, s.start + s.rows)]
    assert sorted(rows, key=str) == sorted([(each, i) for each in runs for i in range(each.rows)], key=str)
    for target in found:
        assert {share.run.partition for share in target.shares} == {target.partition}
        assert {share.run.group for share in target.shares} <= {"", target.group}
        if target.base is None and not any(share.run.group for share in target.shares):
            assert target.rows <= 100
