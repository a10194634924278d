"""Files of a few bytes that mean many, and memory that runs out: time and memory are bounded, and nothing is called what it is not."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import quire
from quire.formats.lines import UNREADABLE
from quire.formats.parquet import DAMAGED
from quire.sources import rowgroups
from quire.sources.transforms.content import BadContent
from quire.storage import bare

MOST = 1 << 20
WORD = "x" * 1000


def packed(table: pa.Table, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, compression="zstd", row_group_size=max(1, table.num_rows), **how)
    return out.getvalue()


def rows(data: bytes, most: int = MOST) -> pa.Table | None:
    """What a function is given of a file."""
    store = bare("memory://bombs")
    store.put("x.parquet", data)
    entry = store.stat("x.parquet")
    assert entry is not None
    asked = rowgroups.request("x.parquet", entry.version, entry.size)
    ((_, content),) = store.read_many([asked])
    return rowgroups.row_groups(store, asked, content, 0, entry.size, most)


def dictionary(n: int, words: list[str] | None = None) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), words or [WORD])


def number(n: int) -> bytes:
    """A number as a footer holds it."""
    n, found = n << 1, b""
    while n >= 128:
        found, n = found + bytes([n & 127 | 128]), n >> 7
    return found + bytes([n])


def lying(data: bytes, said: int, instead: int) -> bytes:
    """The same file, in whose footer another number stands."""
    at, old, new = len(data) - 8 - int.from_bytes(data[-8:-4], "little"), number(said), number(instead)
    assert old in data[at:]
    if len(new) < len(old):
        new = bytes([*(b | 128 for b in new), *repeat(128, len(old) - len(new) - 1), 0])
    return data[:at] + data[at:].replace(old, new)


def deltas() -> bytes:
    """Each text repeats the one before."""
    return packed(pa.table({"a": [WORD] * 100_000}), use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})


ONE_ROW = pa.ListArray.from_arrays(pa.array([0, 100_000], pa.int32()), dictionary(100_000))
BOMBS = {
    "a dictionary": lambda: packed(pa.table({"a": dictionary(100_000)})),
    "a dictionary in a list of one row": lambda: packed(pa.table({"a": ONE_ROW})),
    "a dictionary in a struct": lambda: packed(pa.table({"a": pa.StructArray.from_arrays([dictionary(100_000)], ["b"])})),
    "texts that repeat one another": deltas,
    "run lengths": lambda: packed(pa.table({"a": pa.nulls(1_000_000, pa.int64())})),
    "empty texts": lambda: packed(pa.table({"a": [""] * 1_000_000})),
    "many columns": lambda: packed(pa.table({f"c{i}": pa.nulls(1000, pa.int64()) for i in range(400)})),
    "a long footer": lambda: packed(pa.table({"a": [1]}).replace_schema_metadata({"x": "y" * 500_000})),
    "pages that are longer than the footer says": lambda: lying(p := packed(pa.table({"a": [b"\0" * (8 << 20)]}), use_dictionary=False,
                                                                        write_statistics=False), _unpacked(p), 100),
}  # fmt: skip


def _unpacked(data: bytes) -> int:
    return int(pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0).column(0).total_uncompressed_size)


@pytest.fixture
def decoded() -> Iterator[Any]:
    """Arrow's memory, counted from here on."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    yield pool
    pa.set_memory_pool(before)
    KEPT.append(pool)  # as arrays may that were made of it


KEPT = list[Any]()


@pytest.mark.nth(2)
@pytest.mark.parametrize("bomb", BOMBS)
def test_parquet_that_means_many_times_its_bytes_is_refused_before_they_are_there(bomb: str, decoded: Any) -> None:
    data = BOMBS[bomb]()
    assert len(data) < 2 * MOST
    before, most = decoded.bytes_allocated(), decoded.max_memory()
    with pytest.raises(BadContent, match="larger than max_file_size"):
        rows(data)
    assert decoded.max_memory() <= max(most, before + 4 * MOST)


def test_a_footer_that_lies_is_called_damaged() -> None:
    """Memory for as many rows as it says is not asked for: that there is not so much would look like a fault of the machine."""
    data = packed(pa.table({"a": pa.array(range(77_777), pa.int64())}))
    assert rows(data, 8 << 20) is not None
    with pytest.raises(BadContent, match="damaged"):
        rows(lying(data, 77_777, 1_000_000), 8 << 20)


def test_what_parquet_holds_is_given_as_it_is(tmp_path: Path) -> None:
    n = 3000
    table = pa.table(
        {
            "text": [f"w{i % 50}" if i % 7 else None for i in range(n)], "lists": [[f"x{i % 7}"] * (i % 3) for i in range(n)],
            "map": pa.array([[(f"k{i % 3}", b"v")] for i in range(n)], pa.map_(pa.string(), pa.binary())),
            "struct": [{"k": f"y{i % 5}", "v": i} for i in range(n)], "large": pa.array([["z"]] * n, pa.large_list(pa.large_string())),
            "dictionary": pa.array([f"q{i % 9}" for i in range(n)]).dictionary_encode(), "none": pa.nulls(n),
            "fixed": pa.array([[b"abcd", b"efgh"]] * n, pa.list_(pa.binary(4), 2)), "truth": [i % 2 == 0 for i in range(n)],
        }
    ).replace_schema_metadata({"own": "words"})  # fmt: skip
    view = table.append_column("view", pa.array([f"v{i % 9}" for i in range(n)], pa.string_view()))
    for given in (table, view):
        for how in ({}, {"data_page_version": "2.0"}, {"use_dictionary": False}, {"store_schema": False}):
            data = packed(given, **how)  # type: ignore[arg-type]
            found, wanted = rows(data, 64 << 20), pq.ParquetFile(io.BytesIO(data)).read_row_group(0, use_threads=False)
            assert found is not None
            assert found.schema.equals(wanted.schema, check_metadata=True)
            assert found.equals(wanted)


def test_a_lack_of_memory_is_not_a_damaged_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job fails with a line and sets nothing aside; the next call reads the file."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.parquet").write_bytes(packed(pa.table({"n": [1, 2, 3]})))

    def full(*_: object, **__: object) -> None:
        raise pa.ArrowMemoryError("malloc of size 1 failed")

    def taken(_: object, table: pa.Table) -> list[dict[str, int]]:
        return [{"n": table.num_rows}]

    def process() -> Any:
        how: Any = {"split": "row_groups", "function_version": "1", "schema": "n long", "spark": quire.LocalRunner(), "progress": False}
        return quire.process(tmp_path / "in", tmp_path / "out", taken, **how)

    with monkeypatch.context() as patch:
        patch.setattr(rowgroups, "_decoded", full)
        with pytest.raises(quire.QuireError, match="malloc of size 1 failed"):
            process()
    report = process()
    assert (report.files, report.quarantined_count) == (1, 0)


def test_no_handler_takes_a_lack_of_memory_for_damage() -> None:
    assert not issubclass(pa.ArrowMemoryError, (*DAMAGED, *UNREADABLE))
    assert not issubclass(MemoryError, (*DAMAGED, *UNREADABLE))
    for path in Path(quire.__file__).parent.rglob("*.py"):
        caught = [ast.unparse(h.type) for h in ast.walk(ast.parse(path.read_text())) if isinstance(h, ast.ExceptHandler) and h.type]
        assert not [what for what in caught if "ArrowException" in what], path
