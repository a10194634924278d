"""Files that are made so that their bytes say one thing here and another one to Arrow: no row of other files moves, and one error comes."""

from __future__ import annotations

import io
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_joined import PLAIN, parts, written

from quire.formats import footer, joined
from quire.formats.shapes import Shape
from quire.sources.transforms import BadContent, columnar


def stored(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def signed(number: int) -> bytes:
    return stored(2 * number)


def numbers(n: int, first: int = 0) -> pa.Table:
    return pa.table({"a": pa.array(range(first, first + n), pa.int64())})


def put_together(body: bytes, said: bytes) -> bytes:
    return body + said + len(said).to_bytes(4, "little") + b"PAR1"


def with_page(claim: int, rows: int, header: str) -> bytes:
    """A file whose footer claims other rows than its page holds, whose header says both."""
    content = written(numbers(claim), **PLAIN)
    said, column = footer.held(content), pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    levels = stored(2 * rows) + b"\1"  # all of them are there
    data = len(levels).to_bytes(4, "little") + levels + b"".join(i.to_bytes(8, "little") for i in range(9000, 9000 + rows))
    size = signed(len(data))
    page = {
        "a field comes again": (
            b"\x15\0\x15" + size + b"\x15" + size + b"\x2c\x15" + signed(claim) + b"\x15\0\x15\6\x15\6" + b"\5\2" + signed(rows)
        ),
        "a number is cut off": (
            b"\x15\0\x15" + bytes([size[0] | 128, *(each | 128 for each in size[1:]), *[128] * (5 - len(size)), 0x15])
            + b"\x15" + size + b"\x15" + signed(claim) + b"\x1c\x15" + signed(rows) + b"\x15\0\x15\6\x15\6"
        ),
    }[header] + b"\0\0" + data  # fmt: skip
    old = b"\x16" + signed(column.total_compressed_size)
    assert old in said
    return put_together(b"PAR1" + page, said.replace(old, b"\x16" + signed(len(page))))


def agree(contents: list[bytes]) -> None:
    """Read together they are what they are alone, or one of them is said to be wrong."""
    own = columnar.schema_of("parquet", pa.BufferReader(contents[-1]))
    try:
        alone = [columnar.rows("parquet", each, own) for each in contents]
    except BadContent:
        alone = []
    for _ in range(2):
        try:
            rows, counts = columnar.together("parquet", contents, own)
        except BadContent:
            continue
        assert counts == [each.num_rows for each in alone]
        assert rows.equals(pa.Table.from_batches(alone).combine_chunks().to_batches()[0])


@pytest.mark.parametrize("header", ["a field comes again", "a number is cut off"])
def test_a_page_says_to_arrow_what_it_says_here(header: str) -> None:
    """One file has fewer rows than it claims, and another more: what lies between them would be shifted."""
    few, many = with_page(110, 100, header), with_page(90, 100, header)
    good = written(numbers(100, 100), **PLAIN)
    assert parts([good, few, good, many, good]) == [[100], [], [100], [], [100]]
    agree([few, good, many, good])


def test_a_list_that_names_other_elements_is_of_no_shape() -> None:
    """Arrow takes them for what they have to be, and would read on elsewhere."""
    content = written(pa.table({"a": ["x", "y"] * 9, "b": [1.5] * 18}))
    said = footer.held(content)
    lists = [at for at in range(len(said) - 1) if said[at] & 15 == 9 and said[at + 1] & 15 in (5, 6, 8, 12)]
    assert len(lists) > 8
    for at in lists:
        for kind in {5, 6, 8, 9, 12} - {said[at + 1] & 15}:
            damaged = said[: at + 1] + bytes([said[at + 1] & 240 | kind]) + said[at + 2 :]
            with pytest.raises(ValueError, match=r"its footer|a number of it|a chunk of it"):
                Shape(damaged)
            agree([put_together(content[: -len(said) - 8], damaged), content])


@pytest.mark.parametrize("more", [b"\x29\x26\x08\x08", b"\x28\2xy", b"\x25\x08"], ids=["a list", "a text", "a short number"])
def test_a_dictionary_s_place_is_one_number(more: bytes) -> None:
    content = written(numbers(100), **PLAIN)
    said = footer.held(content)
    at = said.index(b"\x26\x08", 20) + 2  # behind where the data begins
    bad = put_together(content[: -len(said) - 8], said[:at] + more + said[at:])
    assert columnar.rows("parquet", bad, None).num_rows == 100, "Arrow passes over it"
    assert parts([content, bad]) == [[100], []]
    agree([bad, bad, content])


def test_a_dictionary_that_arrow_does_not_see_is_not_seen() -> None:
    content = written(pa.table({"a": ["x", "y"] * 9}))
    said, column = footer.held(content), pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    place = b"\x26" + signed(column.data_page_offset) + b"\x26" + signed(column.dictionary_page_offset)
    assert place in said
    bad = put_together(content[: -len(said) - 8], said.replace(place, place[:-2] + b"\x25" + place[-1:]))
    with pytest.raises(ValueError, match="of another order"):
        Shape(footer.held(bad))
    agree([bad, content])


def test_a_field_whose_number_follows_its_head_is_of_no_shape() -> None:
    """Arrow takes one byte more for the field than a look at its head shows."""
    content = written(numbers(9))
    said = footer.held(content)
    behind = said[:-1] + b"\x09\x1c\0" + said[-1:]
    assert pq.ParquetFile(pa.BufferReader(put_together(content[: -len(said) - 8], behind))).read().num_rows == 9
    with pytest.raises(ValueError, match="of another order"):
        Shape(behind)
    agree([put_together(content[: -len(said) - 8], behind), content])


def test_what_no_file_has_is_not_learnt() -> None:
    """A list of a million numbers, which a pattern would hold one by one; and ends without end."""
    said = footer.held(written(numbers(100)))
    shape, began = Shape(said), time.process_time()
    end = len(said) - len(shape.behind) - 1
    many = said[:end] + b"\xd9\xf5" + stored(1_000_000) + b"\2" * 1_000_000 + said[end:]
    with pytest.raises(ValueError, match="a value of kind 9"):
        Shape(many)
    at = said.index(b"\x08", said.index(b"\x1c\x18")) - 1  # in the statistics
    assert shape.read(said[:at] + b"\x11" * 4_000_000 + said[at:]) is None
    assert time.process_time() - began < 1


@pytest.mark.parametrize("claim", ["encodings", "bytes"])
def test_values_are_counted_as_the_pages_have_them(claim: str) -> None:
    content = written(pa.table({"s": [f"{i % 7}" + "x" * 1000 for i in range(5000)]}))
    said, column = footer.held(content), pq.read_metadata(io.BytesIO(content)).row_group(0).column(0)
    old, new = {
        "encodings": (b"\0\6\x10", b"\0\6\0"),
        "bytes": (b"\x16" + signed(column.total_uncompressed_size), b"\x16" + signed(128)),
    }[claim]
    assert old in said
    lying = put_together(content[: -len(said) - 8], said.replace(old, new))
    assert parts([lying] * 3, 1 << 30) == [[5000] * 3]
    assert parts([lying] * 3, 20_000_000) == [[]] * 3, "25 MB each"


def test_the_files_of_one_other_writer_do_not_keep_those_of_most_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    rare, common = written(numbers(3), store_schema=False), [written(numbers(n)) for n in range(1, 8)]
    own = columnar.schema_of("parquet", pa.BufferReader(rare))
    real, joins = joined.join, list[int]()

    def join(contents: Any, told: Any, most: int) -> Any:
        joins.append(sum(each is not None for each in told))
        return real(contents, told, most)

    monkeypatch.setattr(joined, "join", join)
    monkeypatch.setattr(columnar, "_WRITERS", columnar._Writers())
    columnar.together("parquet", [common[0], rare], own)
    joins.clear()
    assert columnar.together("parquet", [rare, *common], own)[1] == [3, *range(1, 8)]
    assert joins == [7]
