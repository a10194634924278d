"""Footers of Parquet files: what is read of them is what Arrow says, and no damage of one ends the process."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.formats import footer
from quire.formats.parquet import DAMAGED, OwnParquet, ParquetFile

ROWS = pa.table({"a": ["x", "ü", "z"] * 40, "b": list(range(120)), "c": [None, 1.5, 2.5] * 40})


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def length_of(data: bytes) -> int:
    return int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"write_statistics": False},
        {"column_encoding": {"b": "DELTA_BINARY_PACKED"}, "use_dictionary": ["a"]},
    ],
)
@pytest.mark.parametrize("group", [7, 1000])
def test_chunks_are_what_arrow_says_of_a_good_file(options: dict[str, Any], group: int) -> None:
    nested = ROWS.append_column("n", pa.array([[{"k": "v"}], None, []] * 40, pa.list_(pa.struct([("k", pa.string())]))))
    file = ParquetFile(pa.BufferReader(written(nested, row_group_size=group, **options)))
    assert len(file.chunks) == file.num_row_groups
    for i, found in enumerate(file.chunks):
        told = [file.metadata.row_group(i).column(j) for j in range(file.metadata.num_columns)]
        assert list(found) == [column.path_in_schema for column in told]
        for column in told:
            chunk, said = found[column.path_in_schema], column.statistics
            plain = set(column.encodings) <= {"PLAIN", "RLE", "BIT_PACKED"}
            assert (chunk.size, chunk.repeats) == (column.total_uncompressed_size, column.physical_type == "BYTE_ARRAY" and not plain)
            if column.physical_type == "BYTE_ARRAY":
                assert chunk.ends == ((said.min_raw, said.max_raw) if said is not None and said.has_min_max else None)


def test_no_damage_of_a_footer_ends_the_process() -> None:
    """Arrow aborts at one flipped byte in a hundred when it is asked for the chunk."""
    data, rng = written(ROWS), random.Random(7)
    for at in range(len(data) - 8 - length_of(data), len(data) - 8):
        for value in rng.sample(range(256), 2):
            try:
                file = OwnParquet(data[:at] + bytes([value]) + data[at + 1 :], ROWS.schema)
                file.read()
                assert file.file.chunks
            except DAMAGED:
                continue


def test_a_footer_that_is_filled_up_is_read() -> None:
    data = written(ROWS)
    size = length_of(data)
    filled = data[:-8] + b"\0" * 5 + (size + 5).to_bytes(4, "little") + b"PAR1"
    assert ParquetFile(pa.BufferReader(filled)).chunks == ParquetFile(pa.BufferReader(data)).chunks


def test_the_frame_of_a_footer_is_the_same_for_files_of_the_same_columns_and_for_no_others() -> None:
    more = ROWS.slice(0, 50).set_column(1, "b", pa.array(range(1 << 40, (1 << 40) + 50)))
    said = ROWS.replace_schema_metadata({"by": "somebody"})
    renamed = ROWS.rename_columns(["a", "b", "d"])
    wide = ROWS.set_column(0, "a", ROWS.column("a").cast(pa.large_string()))  # Arrow's own schema alone says so, behind the rows
    required = ROWS.cast(pa.schema([ROWS.field(0), ROWS.field(1).with_nullable(False), ROWS.field(2)]))
    files = [
        footer.held(written(table, **options)) for table, options in ((ROWS, {}), (more, {"row_group_size": 7}), (more.slice(0, 0), {}))
    ]
    others = [footer.held(written(table)) for table in (said, renamed, wide, required)] + [footer.held(written(ROWS, store_schema=False))]
    before, behind = footer.frame(files[0]) or (b"", b"")
    assert len(before) > 20
    assert len(behind) > 100
    assert all(each.startswith(before) and each.endswith(behind) for each in files)
    assert not any(each.startswith(before) and each.endswith(behind) for each in others)


@pytest.mark.parametrize("data", [b"", b"PAR1", b"\xff" * 8, b"PAR1\0\0\0\0PAR1", b"\x07\0\0\0PAR1"])
def test_what_is_not_a_file_has_no_frame(data: bytes) -> None:
    assert footer.frame(footer.held(data)) is None


@given(st.binary(max_size=200))
def test_any_bytes_have_a_frame_of_these_bytes_or_none(data: bytes) -> None:
    if (found := footer.frame(data)) is not None:
        assert data.startswith(found[0])
        assert data.endswith(found[1])


@given(st.binary(max_size=200))
def test_any_bytes_are_a_footer_or_one_error(data: bytes) -> None:
    try:
        footer.chunks(data)
    except ValueError:
        return


def test_lengths_that_lie_cost_nothing() -> None:
    """A list of billions, a number and structs without end."""
    for data in (
        b"\x49\xf8\xff\xff\xff\xff\x0f",
        b"\x15" + b"\xff" * 40,
        b"\x1c" * 5000,
        b"\x49\xfc\xff\xff\xff\xff\x0f" + b"\0" * 9,
        b"\x1b\xff\xff\x7f\x55",
    ):
        with pytest.raises(ValueError, match="footer is damaged"):
            footer.chunks(data)
