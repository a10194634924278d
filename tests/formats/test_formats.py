"""Data files: any records that go in come out again from their places, and every other reader of the format reads the whole."""

from __future__ import annotations

import gc
import gzip
import io
import random
import subprocess
import sys
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gathering import refused
from quire.errors import QuireError
from quire.formats import PAIRS, compression_for, extension, lines, pair
from quire.formats.folders import FolderWriter
from quire.formats.lines import FRAME, FrameWriter, contents, cursor
from quire.formats.parquet import CONTENT, WHOLE, ParquetWriter, RowReader, checksum, open_file
from quire.storage import Store, connect

COMPRESSIONS = ["none", "gzip", "zstd"]
# (seed, bytes, how well it compresses): records of all sizes without megabytes of examples
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.one_of(st.integers(0, 40), st.integers(0, 5_000), st.sampled_from([FRAME - 1, FRAME, FRAME + 1, 2 * FRAME + 7])),
    ),
    max_size=25,
)


def record(seed: int, size: int) -> bytes:
    return random.Random(seed).randbytes(min(size, 100_000)).ljust(size, b".") if seed else b"a" * size


def memory() -> Store:
    return connect(f"memory://{uuid.uuid4().hex}")


def written(
    store: Store, records: list[bytes], target: int, compression: str, pieces: int | None = None
) -> tuple[FrameWriter, list[tuple[int, int, int]]]:
    writer = FrameWriter(lambda i: store.create(f"{i}"), target, compression)
    for data in records:
        if pieces:
            writer.add_stream((data[i : i + pieces] for i in range(0, len(data), pieces)), len(data))
        else:
            writer.add(data)
    writer.close()
    return writer, list(zip(writer.files, writer.offsets, writer.skips, strict=True))


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(
    groups=st.lists(st.lists(st.integers(0, 3000), max_size=5), max_size=8),
    target=st.sampled_from([1, 100, 10_000, 1 << 30]), header=st.booleans(),
)  # fmt: skip
def test_records_that_are_added_together_lie_as_those_added_one_by_one(
    compression: str, groups: list[list[int]], target: int, header: bool
) -> None:
    found = list[object]()
    for together in (False, True):
        store = memory()
        writer = FrameWriter(lambda i, store=store: store.create(f"{i}"), target, compression, b"a,b\n" if header else b"")
        for i, sizes in enumerate(groups):
            records = [bytes([i]) * size for size in sizes]
            if together:
                writer.add_all(records)
            else:
                for each in records:
                    writer.add(each)
        writer.close()
        files = [store.get(f"{i}") for i in range(len(writer.sizes))]
        found.append((files, writer.sizes, writer.files, writer.offsets, writer.skips))
    assert found[0] == found[1]


@pytest.mark.nth(2)
@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(records=RECORDS, target=st.sampled_from([1, 100, 10_000, 1 << 20, 1 << 30]), order=st.randoms(use_true_random=False))
def test_any_records_come_back_from_their_places_in_any_order(
    compression: str, records: list[tuple[int, int]], target: int, order: random.Random
) -> None:
    store, data = memory(), [record(*r) for r in records]
    writer, places = written(store, data, target, compression)
    assert len(places) == len(data)
    wanted = list(zip(places, data, strict=True))
    for shuffled in (False, True):
        if shuffled:
            order.shuffle(wanted)
        cursors: dict[int, Any] = {}
        for (file, offset, skip), content in wanted:
            taker = cursors.setdefault(file, cursor(store, f"{file}", compression, 1000 if target < 1 << 20 else 1 << 20))
            assert b"".join(taker.take(offset, skip, len(content))) == content
    whole = b"".join(b"".join(contents(store, f"{i}", compression)) for i in range(len(writer.sizes)))
    assert whole == b"".join(data), "the order is kept"
    assert [store.stat(f"{i}").size for i in range(len(writer.sizes))] == writer.sizes  # type: ignore[union-attr]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=15, deadline=None)
@given(
    records=RECORDS.filter(lambda r: all(n for _, n in r)),
    target=st.sampled_from([1, 10_000, 1 << 20]),
    pieces=st.sampled_from([1000, FRAME * 3]),
)
def test_streams_come_back_as_records_do(compression: str, records: list[tuple[int, int]], target: int, pieces: int) -> None:
    store, data = memory(), [record(*r) for r in records]
    _, places = written(store, data, target, compression, pieces)
    for (file, offset, skip), content in zip(places, data, strict=True):
        assert b"".join(cursor(store, f"{file}", compression).take(offset, skip, len(content))) == content


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=60), target=st.integers(1, 10_000))
def test_no_data_file_is_larger_than_the_target_unless_one_record_is(compression: str, sizes: list[int], target: int) -> None:
    store, data = memory(), [random.Random(i).randbytes(n) for i, n in enumerate(sizes)]
    writer, places = written(store, data, target, compression)
    for i, size in enumerate(writer.sizes):
        inside = [p for p in places if p[0] == i]
        assert inside
        assert size <= target or len({offset for _, offset, _ in inside}) == 1, "one record, or one frame"
    if compression == "none":
        full = writer.sizes[:-1]
        assert all(size + max(sizes) > target for size in full), "no new file before the old one is full"


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_record_that_compresses_worse_than_those_before_does_not_pass_the_target(compression: str) -> None:
    store, target = memory(), 3 << 20
    data = [b"a" * (2 << 20)] * 3 + [record(i, 100_000) * 15 for i in range(1, 4)] + [random.Random(i).randbytes(2 << 20) for i in range(4)]
    writer, places = written(store, data, target, compression)
    assert max(writer.sizes) <= target
    assert len(writer.sizes) < len(data)
    for (file, offset, skip), content in zip(places, data, strict=True):
        assert b"".join(cursor(store, f"{file}", compression).take(offset, skip, len(content))) == content


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_frames_hold_at_most_one_mebibyte_and_end_where_files_end(compression: str) -> None:
    store = memory()
    data = [record(i % 4, n) for i, n in enumerate([10, 300_000, 700_000, 50_000, FRAME, 3 * FRAME + 5, 1, 1, FRAME + 1, 9])]
    _, places = written(store, data, 1 << 40, compression)
    raw, frames, offset = store.get("0"), {}, 0
    while offset < len(raw):
        unpacker: Any = zlib.decompressobj(31) if compression == "gzip" else zstandard.ZstdDecompressor().decompressobj()
        frames[offset] = len(unpacker.decompress(raw[offset:]))
        offset = len(raw) - len(unpacker.unused_data)
    assert max(frames.values()) <= FRAME
    assert {offset for _, offset, _ in places} <= set(frames)
    for (_, offset, skip), content in zip(places, data, strict=True):
        assert skip + len(content) <= frames[offset] or (skip == 0 and len(content) > FRAME)


def test_compressed_files_are_valid_for_every_other_reader(tmp_path: Path) -> None:
    data = [record(i % 3, n) for i, n in enumerate([5, 2 * FRAME, 100_000, 1_000_000, 1])]
    for compression in COMPRESSIONS[1:]:
        store = connect(f"file://{tmp_path}/{compression}")
        written(store, data, 1 << 40, compression)
    path = tmp_path / "gzip" / "0"
    assert gzip.decompress(path.read_bytes()) == b"".join(data)
    assert subprocess.run(["gzip", "-dc"], input=path.read_bytes(), capture_output=True, check=True).stdout == b"".join(data)
    assert pa.input_stream(str(path), compression="gzip").read() == b"".join(data)
    packed = (tmp_path / "zstd" / "0").read_bytes()
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as reader:
        assert reader.read() == b"".join(data)
    assert pa.input_stream(pa.BufferReader(packed), compression="zstd").read() == b"".join(data)


def test_equal_input_gives_equal_bytes() -> None:
    data = [record(i, 10_000) for i in range(5)]
    for compression in COMPRESSIONS:
        one, two = memory(), memory()
        written(one, data, 20_000, compression)
        written(two, data, 20_000, compression)
        assert [one.get(e.name) for e in one.walk()] == [two.get(e.name) for e in two.walk()]


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_data_file_that_was_cut_off_is_an_error_and_never_a_short_record(compression: str) -> None:
    store, data = memory(), [record(1, 5000), record(2, 5000)]
    _, places = written(store, data, 1 << 30, compression)
    store.put("cut", store.get("0")[:-100])
    with pytest.raises(EOFError, match="ends"):
        b"".join(cursor(store, "cut", compression).take(places[1][1], places[1][2], 5000))
    if compression != "none":
        with pytest.raises(EOFError, match="ends within"):
            b"".join(contents(store, "cut", compression))


# ------------------------------------------------------------------------------------------------------------------ parquet


def batch(name: str, contents: list[bytes]) -> pa.RecordBatch:
    n = len(contents)
    return pa.record_batch(
        [pa.array([name] * n), pa.array([1] * n, pa.timestamp("us", "UTC")), pa.array(contents, pa.binary())], schema=CONTENT
    )


@pytest.mark.parametrize("compression", COMPRESSIONS)
@settings(max_examples=20, deadline=None)
@given(files=st.lists(st.lists(st.binary(max_size=200), max_size=6), max_size=20), target=st.sampled_from([1, 2_000, 1 << 30]))
def test_rows_come_back_from_their_places_and_stay_together(compression: str, files: list[list[bytes]], target: int) -> None:
    store, batches = memory(), [batch(f"{i}", rows) for i, rows in enumerate(files)]
    writer = ParquetWriter(lambda i: store.create(f"{i}"), target, compression)
    for b in batches:
        writer.add(b)
    writer.close()
    opened = {i: RowReader(store, f"{i}") for i in range(len(writer.sizes))}
    for file, offset, b in zip(writer.files, writer.offsets, batches, strict=True):
        rows = opened[file].take(offset, b.num_rows)
        assert rows.to_pylist() == b.to_pylist()
        assert checksum(rows) == checksum(b)
    tables = [pq.read_table(pa.BufferReader(store.get(f"{i}"))) for i in opened]
    assert [r for t in tables for r in t.to_pylist()] == [r for b in batches for r in b.to_pylist()]
    assert [len(store.get(f"{i}")) for i in opened] == writer.sizes


def test_large_contents_make_row_groups_that_are_read_one_by_one() -> None:
    store = memory()
    writer = ParquetWriter(lambda i: store.create(f"{i}"), 1 << 30, "zstd")
    data = [record(i + 1, 3 << 20) for i in range(7)]
    for i, content in enumerate(data):
        writer.add(batch(f"{i}", [content]))
    writer.close()
    rows = RowReader(store, "0")
    assert rows.file.num_row_groups > 1
    for i in (6, 0, 3, 2, 5):
        assert rows.take(i, 1).column("content").to_pylist() == [data[i]]
    assert rows.take(1, 5).column("content").to_pylist() == data[1:6]
    assert rows.take(7, 0).num_rows == 0


def test_data_files_in_parquet_come_near_the_target() -> None:
    store = memory()
    writer = ParquetWriter(lambda i: store.create(f"{i}"), 100_000, "none")
    for i in range(400):
        writer.add(batch(f"{i}", [random.Random(i).randbytes(1000)]))
    writer.close()
    assert max(writer.sizes) <= 110_000
    assert len(writer.sizes) <= 6


def test_a_gathered_file_has_dictionaries_of_values_that_come_twice_alone() -> None:
    n = 20_000
    rows = pa.record_batch(
        {
            "id": range(n), "text": [f"text {i}" for i in range(n)], "city": ["sf", "nyc"] * (n // 2),
            "large": pa.array([["a", "b"]] * n, pa.large_list(pa.string())), "fixed": pa.array([[1, 2]] * n, pa.list_(pa.int64(), 2)),
            "in": [{"of": [{"word": "x"}]}] * n,
        }
    )  # fmt: skip
    store = memory()
    writer = ParquetWriter(lambda i: store.create(f"{i}"), 1 << 30, "zstd")
    writer.add(rows)
    writer.close()
    file = pq.ParquetFile(pa.BufferReader(store.get("0")))
    group = file.metadata.row_group(0)
    made = {group.column(i).path_in_schema for i in range(group.num_columns) if "RLE_DICTIONARY" in group.column(i).encodings}
    assert made == {"city", "large.list.element", "fixed.list.element", "in.of.list.element.word"}
    assert file.read().to_pylist() == rows.to_pylist()


def test_columns_of_one_name_are_written_as_they_are() -> None:
    rows = pa.record_batch([pa.array(["a"] * 200), pa.array(range(200))], names=["x", "x"])
    store = memory()
    writer = ParquetWriter(lambda i: store.create(f"{i}"), 1 << 30, "zstd")
    writer.add(rows)
    writer.close()
    assert pq.ParquetFile(pa.BufferReader(store.get("0"))).read().to_batches() == [rows]


def test_giving_up_a_parquet_file_makes_no_noise(tmp_path: Path) -> None:
    store = connect(f"file://{tmp_path}")
    writer = ParquetWriter(lambda i: store.create(f"{i}"), 1 << 30, "zstd")
    writer.add(batch("1", [b"1"]))
    writer.spill()
    written = [e.size for e in store.walk()]
    writer.discard()
    writer.discard()
    del writer
    gc.collect()
    assert [e.size for e in store.walk()] == written, "what was written stays, without an end, until its attempt's folder is cleaned"
    assert not store.get("0").endswith(b"PAR1")


# -------------------------------------------------------------------------------------------------------------------- pairs


def test_every_transform_has_a_format_that_is_its_own() -> None:
    for transform, formats in PAIRS.items():
        assert pair(transform, None) == formats[0]
        for format in formats:  # noqa: A001
            assert pair(transform, format) == format
            for compression in COMPRESSIONS:
                assert compression_for(format, compression) == compression
                assert extension(format, compression).isascii()
    assert (compression_for("lines", None), compression_for("raw", None), compression_for("parquet", None)) == ("none", "none", "zstd")
    assert extension("lines", "gzip") == "txt.gz"


# ----------------------------------------------------------------------------------------------------------------------- growth
class _Nowhere:
    def write(self, data: bytes | memoryview) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is there."""

    def discard(self) -> None:
        """Nothing is there."""


def _steps(work: Callable[[], object]) -> int:
    """Calls and lines that Python makes: work that does not depend on the machine."""
    count = 0

    def seen(*_: Any) -> Any:
        nonlocal count
        count += 1
        return seen

    before = sys.gettrace()
    sys.settrace(seen)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def test_twice_the_directories_are_twice_the_work() -> None:
    def into(n: int) -> None:
        writer = FolderWriter(FrameWriter, lambda index, folder: _Nowhere(), 1 << 20, "none")
        for i in range(n):
            writer.add(b"x\n", f"k={i}")
        writer.close()

    few, many = _steps(lambda: into(300)), _steps(lambda: into(600))
    assert many < 2.3 * few


def test_a_long_line_is_joined_once(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = list[int]()
    monkeypatch.setattr(lines, "contents", lambda *_: [b"x" * 1000] * 100 + [b"y\nz"])
    monkeypatch.setattr(lines, "_split", lambda data: joined.append(len(data)))
    list(lines.batches(connect("memory://long"), "f", "gzip"))
    assert joined == [100_002, 2]


def test_a_line_that_no_value_can_hold_is_said_and_never_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "LONGEST", 1000)
    for pieces in ([b"x" * 600, b"x" * 600, b"\n"], [b"x" * 600, b"x" * 600 + b"\n"]):
        monkeypatch.setattr(lines, "contents", lambda *_, pieces=pieces: pieces)
        with refused(QuireError, 3, "a line of memory://long/f has more than 1,000 bytes", "transform='raw'"):
            list(lines.batches(connect("memory://long"), "f", "gzip"))
    monkeypatch.setattr(lines, "contents", lambda *_: [b"x" * 900, b"\n" + b"y" * 900 + b"\n"])
    assert [b.to_pylist() for b in lines.batches(connect("memory://long"), "f", "gzip")] == [[{"value": c * 900}] for c in (b"x", b"y")]


@pytest.mark.parametrize(("rows", "requests"), [(1_000, 1), (100_000, 2 + 4)])
def test_a_small_parquet_file_is_one_request_and_a_long_one_what_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, requests: int
) -> None:
    """A change file has a few kilobytes in a dozen columns: a request for each would cost more than a scan, where a store is far away."""
    table = pa.table({name: random.Random(name).sample(range(10**9), rows) for name in "abcdefgh"})
    pq.write_table(table, tmp_path / "some.parquet")
    assert ((tmp_path / "some.parquet").stat().st_size <= WHOLE) == (requests == 1)
    store, asked = connect(f"file://{tmp_path}"), list[tuple[int, int]]()
    read = store.get_range
    monkeypatch.setattr(store, "get_range", lambda name, start, length: asked.append((start, length)) or read(name, start, length))
    found = open_file(store, "some.parquet").read_row_group(0, ["a", "c", "e", "g"])
    assert found.equals(table.select(["a", "c", "e", "g"]))
    assert len(asked) <= requests
    assert sum(length for _, length in asked) < WHOLE + table.nbytes * 3 // 4
