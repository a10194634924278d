"""How files are put into tasks and data files: sizes, evenness, order, directories, the article's hash, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import random
import uuid
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from checker import check, look, tree, unchanged, with_newline
from gathering import documents, gather, refused, write
from gathering import look as plan
from quire.errors import RefusedError
from quire.formats.parquet import OwnParquet
from quire.planning.hashing import java_hashes, parts_of
from quire.planning.listing import MANY_OF_ROWS, PLAN, Cut, TaskRun
from quire.planning.pack import pack, read_rows
from quire.storage import connect

COMPRESSIONS = ["none", "gzip", "zstd"]


def uneven(seed: int = 3) -> dict[str, bytes]:
    """One large directory, many small ones, a few larger files; content that compresses to a third."""
    draw = random.Random(seed)
    sizes = {f"big/f{i:04}": draw.randrange(200, 2000) for i in range(400)}
    sizes |= {f"small{i:02}/f": draw.randrange(0, 500) for i in range(40)}
    sizes |= {f"big/long{i}": draw.randrange(5_000, 15_000) for i in range(6)}
    return {name: draw.randbytes(size // 2).hex().encode() for name, size in sizes.items()}


# ------------------------------------------------------------------------------------------------------------- target_size


@pytest.mark.nth(6)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("transform", ["lines", "raw"])
def test_no_data_file_is_larger_than_the_target_and_no_file_spans_two(tmp_path: Path, transform: str, compression: str) -> None:
    source = write(tmp_path / "in", uneven())
    gather(source, tmp_path / "out", transform=transform, compression=compression, target_size="20000 B")
    found = check(source, tmp_path / "out", with_newline if transform == "lines" else unchanged)
    assert max(found.data.values()) <= 20_000
    assert len(found.data) > 5
    assert set(Counter(row["path"] for row in found.rows).values()) == {1}, "a smaller file is in one data file"


@pytest.mark.nth(3)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("size", [1_000_000, 1_000_001, 2_500_000, 99_999])
def test_a_file_longer_than_the_target_is_cut_into_ranges(tmp_path: Path, size: int, compression: str) -> None:
    content = random.Random(size).randbytes(size)
    source = write(tmp_path / "in", {"a/long": content, "a/short": b"short", "b": b"b"})
    report = gather(source, tmp_path / "out", transform="raw", compression=compression, target_size=300_000)
    found = check(source, tmp_path / "out", unchanged)
    assert report.files == 3, "a range is no file of its own"
    assert report.bytes == size + 6
    rows = [r for r in found.rows if r["path"].endswith("long")]
    assert len(rows) == len({r["data_file"] for r in rows}) == -(-size // 300_000)
    assert max(r["length"] for r in rows) - min(r["length"] for r in rows) <= 1
    assert gather(source, tmp_path / "out", transform="raw", compression=compression, target_size=300_000).files == 0


@pytest.mark.nth(2)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("ends", [b"", b"\n"])
def test_ranges_of_lines_never_split_a_line(tmp_path: Path, ends: bytes, compression: str) -> None:
    draw = random.Random(5)
    lines = [b"%d " % i + b"x" * draw.choice([0, 1, 7, 50, 50, 5_000, 400_000 if i % 300 == 0 else 3]) for i in range(2_000)]
    source = write(tmp_path / "in", {"long": b"\n".join(lines) + ends, "one line": b"y" * 900_000, "newlines": b"\n" * 500_000})
    gather(source, tmp_path / "out", compression=compression, target_size=200_000)
    found = check(source, tmp_path / "out")
    assert len([r for r in found.rows if r["path"].endswith("/long")]) > 5
    for row in found.rows:
        assert row["records"] > 0 or not row["data_file"], "an empty range has no record"
    if compression == "none":
        for name in found.data:
            assert (tmp_path / "out" / name).read_bytes().endswith(b"\n")


@given(st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b" ")), max_size=30), st.integers(1, 60), st.integers(1, 40))
def test_the_ranges_of_any_text_put_together_are_the_text(lines: list[bytes], target: int, piece: int) -> None:
    from quire.sources.ranges import lines_of

    content = b"\n".join(lines)
    size = len(content)
    n = max(1, -(-size // target))
    found = []
    for i in range(n):
        start, end = size * i // n, size * (i + 1) // n
        begin = max(start - 1, 0)
        pieces = (content[at : at + piece] for at in range(begin, size, piece))
        found.append(b"".join(lines_of(pieces, begin, start, end, size)))
    assert b"".join(found) == with_newline(content)
    assert all(part.endswith(b"\n") for part in found if part)


# ---------------------------------------------------------------------------------------------------------- balanced planner


def test_balanced_tasks_are_even_with_big_and_small_directories(tmp_path: Path) -> None:
    source = write(tmp_path / "in", uneven())
    found = plan(source, tmp_path / "out", target_size="30000 B")
    sizes = found.tasks["bytes"]
    assert sizes.sum() == found.bytes == sum(map(len, uneven().values()))
    assert sizes.max() <= 30_000
    assert sizes.max() <= 1.25 * sizes.mean()
    assert len(sizes) <= -(-sizes.sum() // 30_000) + 1, "nearly as few as can be"
    assert found.skew().verdict == "even"


def test_the_order_of_the_input_is_kept_and_runs_give_the_same_bytes(tmp_path: Path) -> None:
    source = write(tmp_path / "in", uneven())
    content = []
    for run in ("1", "2"):
        gather(source, tmp_path / run, target_size="30000 B")
        found = check(source, tmp_path / run)
        order = found.order()
        assert all(paths == sorted(paths) for paths in order.values())
        by_task = sorted(found.data, key=lambda name: int(name.split("-")[3]))
        content.append([(tmp_path / run / name).read_bytes() for name in by_task])
        for name, paths in order.items():
            assert (tmp_path / run / name).read_bytes() == b"".join(with_newline(Path(p).read_bytes()) for p in paths)
    assert content[0] == content[1]


def test_what_xml_and_compression_save_is_guessed_so_that_data_files_come_near_the_target(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"d{i % 3}/{i}.xml": b"<a>\n" + b" " * 900 + b"\n<b>%064d</b>\n</a>" % i for i in range(600)})
    found = plan(source, tmp_path / "out", transform="xml", target_size="20000 B")
    assert 0.5 < found.estimate / (600 * len(b"<a><b></b></a>\n" + b"0" * 64)) < 2
    gather(source, tmp_path / "out", transform="xml", target_size="20000 B")
    assert 3 <= len(look(tmp_path / "out").data) <= 5


# ---------------------------------------------------------------------------------------------------------------- directories


@pytest.mark.nth(4)
@pytest.mark.parametrize("planner", ["balanced", "hash", "directory"])
@pytest.mark.parametrize("transform", ["lines", "raw"])
def test_with_layout_directories_a_data_file_never_mixes_directories(tmp_path: Path, transform: str, planner: str) -> None:
    files = {f"dt=2026-11-{d}/kind={k}/f{i}": b"%d" % i * 50 for d in (20, 21) for k in "ab" for i in range(9)} | {
        "top": b"1",
        "dt=2026-11-20/x": b"2",
    }
    source = write(tmp_path / "in", files)
    gather(source, tmp_path / "out", transform=transform, layout="directories", planner=planner, target_size="200 B")
    found = check(source, tmp_path / "out", with_newline if transform == "lines" else unchanged)
    for row in found.rows:
        assert os.path.dirname(row["path"]).removeprefix(f"file://{source}").strip("/") == os.path.dirname(row["data_file"])
    assert {os.path.dirname(name) for name in found.data} == {os.path.dirname(name) for name in files}


def test_with_layout_flat_all_data_files_lie_at_the_top(tmp_path: Path) -> None:
    source = write(tmp_path / "in", documents(20))
    gather(source, tmp_path / "out", planner="directory")
    assert not [name for name in check(source, tmp_path / "out").data if "/" in name]


def test_the_directory_planner_makes_one_task_a_directory(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {**documents(30, folders=5), "deep/er/x": b"x"})
    found = plan(source, tmp_path / "out", planner="directory")
    assert list(found.tasks["directory"]) == ["d0", "d1", "d2", "d3", "d4", "deep/er"]
    found.run(progress=False)
    assert len(check(source, tmp_path / "out").data) == 6


# ----------------------------------------------------------------------------------------------------------------------- hash


def java_hash(text: str) -> int:
    """String.hashCode, as the Java documentation defines it, in plain Python."""
    units = text.encode("utf-16-be")
    total = 0
    for i in range(0, len(units), 2):
        total = (31 * total + units[i] * 256 + units[i + 1]) & 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


def java_part(text: str, n: int) -> int:
    """Math.abs(hash % n), with Java's remainder, which has the sign of the dividend."""
    h = java_hash(text)
    return abs(h) % n


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=20), st.integers(1, 1000))
def test_java_parts_are_those_of_javas_string_hash_code(names: list[str], n: int) -> None:
    assert java_hashes(names).tolist() == [java_hash(name) for name in names]
    assert parts_of(names, n, "java").tolist() == [java_part(name, n) for name in names]
    without = parts_of(names, n, "java_without_abs").tolist()
    assert without == [
        part if java_hash(name) >= 0 else -part for part, name in zip(parts_of(names, n, "java").tolist(), names, strict=True)
    ]


def test_known_hashes_of_java() -> None:
    # from a JDK: "".hashCode(), "a", "polygenelubricants" (the famous Integer.MIN_VALUE), "Größe"
    assert java_hashes(["", "a", "polygenelubricants"]).tolist() == [0, 97, -(2**31)]
    assert parts_of(["polygenelubricants"], 8, "java").tolist() == [0]
    assert java_hashes(["x" * 300]).dtype == np.int32


@pytest.mark.parametrize("hash_function", ["xxh64", "java"])
def test_a_hash_plan_has_the_articles_parts_in_each_directory(tmp_path: Path, hash_function: str) -> None:
    import xxhash

    source = write(tmp_path / "in", documents(200, folders=4))
    part = {"java": lambda name: java_part(name, 5), "xxh64": lambda name: xxhash.xxh64_intdigest(name.encode()) % 5}[hash_function]
    made = {"planner": "hash", "parts": 5, "hash_function": hash_function}
    found = plan(source, tmp_path / "out", **made)
    assert found.tasks["files"].sum() == 200
    gather(source, tmp_path / "out", **made)
    for paths in check(source, tmp_path / "out").order().values():
        assert len({(os.path.dirname(p), part(os.path.basename(p))) for p in paths}) == 1


def test_a_hash_without_abs_is_refused_before_anything_is_lost(tmp_path: Path) -> None:
    source = write(tmp_path / "in", {f"device-{i:05}.xml": b"<a/>" for i in range(2000)})
    lost = sum(java_hash(f"device-{i:05}.xml") < 0 and java_hash(f"device-{i:05}.xml") % 8 != 0 for i in range(2000))
    for act in (plan, gather):
        with refused(RefusedError, 2, f"{lost:,} of 2,000 files would be read by no task", "missing abs()", "hash_function='java'"):
            act(source, tmp_path / "out", planner="hash", hash_function="java_without_abs")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_file()], "nothing is visible and no job is open"
    assert gather(source, tmp_path / "out", planner="hash", hash_function="java").files == 2000
    check(source, tmp_path / "out")


def test_a_hash_without_abs_that_loses_nothing_by_luck_runs(tmp_path: Path) -> None:
    name = next(f"f{i}" for i in range(100) if java_hash(f"f{i}") >= 0)
    source = write(tmp_path / "in", {name: b"1"})
    assert gather(source, tmp_path / "out", planner="hash", hash_function="java_without_abs").files == 1


# ----------------------------------------------------------------------------------------------------------------------- skew


def test_the_plan_says_whether_it_is_skewed(tmp_path: Path) -> None:
    heavy = write(tmp_path / "in", {**{f"d{i}/f": b"x" * 100 for i in range(9)}, "huge/f": b"x" * 5000})
    assert plan(heavy, tmp_path / "1", planner="directory").skew().verdict == "skewed"
    assert plan(heavy, tmp_path / "2", target_size="2000 B").skew().verdict == "even"
    fair = write(tmp_path / "fair", {f"device-{i:05}.xml": b"<a/>" for i in range(2000)})
    report = gather(fair, tmp_path / "3", planner="hash")
    assert report.skew is not None
    assert report.skew.verdict == "even"
    same = next(f"{i}" for i in range(100) if java_part(f"f{i}", 4) == 2)
    names = [name for name in (f"f{same}{i}" for i in range(5000)) if java_part(name, 4) == 2]
    skewed = write(tmp_path / "skewed", dict.fromkeys([*names[:300], "a", "b", "c"], b"1"))
    found = plan(skewed, tmp_path / "4", planner="hash", parts=4, hash_function="java")
    assert found.skew().verdict == "skewed"
    assert "skew" in str(found)
    assert len(tree(skewed)) == found.tasks["files"].sum()


# ---------------------------------------------------------------------------------------------------------- as many tasks as cores
@pytest.mark.parametrize(("files", "cores", "tasks"), [(39_999, 2, 1), (40_000, 2, 2), (100_000, 2, 2), (100_000, 64, 5), (100_000, 1, 1)])
def test_very_many_small_files_have_a_task_for_each_core_although_their_output_is_small(files: int, cores: int, tasks: int) -> None:
    cut = Cut("balanced", "flat", 1, "xxh64", 1 << 30, True)
    runs = [TaskRun("", 0, f"run{i}", 0, 0, files // 100, 1_000) for i in range(100)]
    runs[0] = dataclasses.replace(runs[0], rows=files - 99 * (files // 100))
    found = pack(runs, cut, 1.0, ["a"], cores)
    assert [run.object for task in found for run in task.runs] == [run.object for run in runs]
    assert len(found) == tasks
    assert max(task.files for task in found) <= 1.1 * files / tasks + files // 100
    assert len(pack(runs, dataclasses.replace(cut, many=MANY_OF_ROWS), 1.0, ["a"], cores)) == min(cores, files // MANY_OF_ROWS)
    # More than one place of output has tasks enough, and a plan that the target cuts into more stays as it is.
    apart = [*runs, dataclasses.replace(runs[0], group="other")]
    assert len(pack(apart, cut, 1.0, ["a"], cores)) == 2
    small = dataclasses.replace(cut, target=10_000)
    assert len(pack(runs, small, 1.0, ["a"], cores)) == len(pack(runs, small, 1.0, ["a"]))


@given(st.data())
def test_the_rows_of_a_tasks_runs_come_in_their_order_and_each_row_group_is_read_once_in_a_row(data: st.DataObject) -> None:
    """Two objects of three row groups each; runs that follow one another, overlap a group's end, go back, or lie apart."""
    store = connect(f"memory://{uuid.uuid4().hex}")
    held = dict[str, list[str]]()
    for name in ("a", "b"):
        held[name] = [f"{name}{i}" for i in range(30)]
        sink = pa.BufferOutputStream()
        columns = {f.name: held[name] if f.name == "path" else ["v"] * 30 if f.type == pa.string() else [1] * 30 for f in PLAN}
        pq.write_table(pa.table(columns, PLAN), sink, row_group_size=10)
        store.put(name, sink.getvalue().to_pybytes())
    run = st.tuples(st.sampled_from("ab"), st.integers(0, 29), st.integers(1, 15))
    runs = [TaskRun("", 0, name, 0, at, min(n, 30 - at), 1) for name, at, n in data.draw(st.lists(run, max_size=8))]
    runs += [TaskRun("", 0, "a", 0, 0, 10, 1), TaskRun("", 0, "b", 0, 10, 5, 1)]
    if data.draw(st.booleans()):  # as the planner cuts an object
        runs = [TaskRun("", 0, name, 0, at, 6, 1) for name in "ab" for at in range(0, 30, 6)]
    read, times = OwnParquet.read, list[object]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OwnParquet, "read", lambda self, columns, groups: times.append(groups) or read(self, columns, groups))
        tables = list(read_rows(store, runs, ["path"]))
    assert [path for t in tables for path in t.column("path").to_pylist()] == [
        p for r in runs for p in held[r.object][r.row : r.row + r.rows]
    ]
    if len(runs) == 10 and {r.rows for r in runs} == {6}:
        assert times == [[0], [1], [2]] * 2
