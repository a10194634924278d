"""Small Parquet files that are read as one: the rows of each are those that it has alone, and no file shifts the rows of another."""

from __future__ import annotations

import io
import random
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from quire.formats import footer, joined
from quire.formats.shapes import Shape
from quire.sources.transforms import BadContent, columnar

MOST = 1 << 27
PLAIN = {"use_dictionary": False, "compression": "none", "write_statistics": False}


def rows_of(n: int, first: int = 0) -> pa.Table:
    ids = range(first, first + n)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([None if i % 5 == 0 else f"name {i % 7}" for i in ids], pa.string()),
            "fare": [i / 8 for i in ids],
            "ok": [i % 3 == 0 for i in ids],
            "at": pa.array([i * 1_000_000 for i in ids], pa.timestamp("us", "UTC")),
            "in": [{"a": i, "b": f"{i}"} for i in ids],
        }
    )


def written(table: pa.Table, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **options)
    return out.getvalue()


def shape_of(content: bytes) -> Shape:
    return Shape(footer.held(content))


def parts(contents: list[bytes], most: int = MOST) -> list[list[int]]:
    """The rows of files by part, when the shapes of all that have one are known; an empty part is a file that is read alone."""
    shapes = list[Shape]()
    for content in contents:
        with suppress(ValueError):
            shapes.append(shape_of(content))
    alike = [shape for shape in shapes if (shape.before, shape.behind) == (shapes[0].before, shapes[0].behind)]
    told = [next(filter(None, (shape.read(footer.held(content)) for shape in alike)), None) for content in contents]
    return [part.rows for part in joined.join(contents, told, most).parts]


def alone(contents: list[bytes]) -> list[pa.RecordBatch]:
    own = columnar.schema_of("parquet", pa.BufferReader(contents[0]))
    return [columnar.rows("parquet", each, own) for each in contents]


def check(contents: list[bytes]) -> None:
    """Files read together have the rows that each has alone."""
    each = alone(contents)
    for _ in range(2):  # the first time their writer is met
        rows, counts = columnar.together("parquet", contents, each[0].schema)
        rows.validate(full=True)
        assert counts == [one.num_rows for one in each]
        assert rows.equals(pa.Table.from_batches(each).combine_chunks().to_batches()[0])


@pytest.mark.parametrize(
    "options",
    [
        {},
        PLAIN,
        {"compression": "zstd", "write_page_checksum": True},
        {"use_dictionary": ["name"], "write_page_index": True, "store_schema": False},
        {"column_encoding": {"id": "DELTA_BINARY_PACKED", "name": "DELTA_BYTE_ARRAY"}, "use_dictionary": False},
        {"sorting_columns": [pq.SortingColumn(0)], "version": "1.0"},
    ],
)
def test_files_of_a_writer_are_read_as_one(options: dict[str, Any]) -> None:
    contents = [written(rows_of(n, 100 * n), **options) for n in (3, 90, 1, 7, 7, 200)]
    check(contents)
    assert parts(contents) == [[3, 90, 1, 7, 7, 200]]


@pytest.mark.parametrize("writer", ["duckdb", "delta", "spark"])
def test_files_of_other_writers_are_read_as_one(writer: str, tmp_path: Any, request: pytest.FixtureRequest) -> None:
    table = rows_of(40)
    if writer == "duckdb":
        import duckdb

        connection = duckdb.connect()
        connection.register("rows", table)
        for i in range(4):
            connection.execute(f"copy (select * from rows offset {i}) to '{tmp_path}/{i}.parquet' (format parquet)")
    elif writer == "delta":
        import deltalake

        for i in range(4):
            deltalake.write_deltalake(tmp_path, table.slice(i), mode="append")
    else:
        spark = request.getfixturevalue("spark")
        for i in range(4):
            spark.createDataFrame(table.slice(i)).coalesce(1).write.mode("append").parquet(str(tmp_path))
    contents = [path.read_bytes() for path in tmp_path.rglob("*.parquet") if path.is_file()]
    assert len(contents) == 4
    check(contents)
    (found,) = parts(contents)
    assert sorted(found) == [37, 38, 39, 40]


@pytest.mark.parametrize(
    "other",
    [
        written(rows_of(50), row_group_size=20),
        written(rows_of(1).slice(1)),
        written(rows_of(5000), data_page_size=1000),
        written(rows_of(50), data_page_version="2.0"),
    ],
    ids=["two row groups", "no rows", "many pages", "pages of the second version"],
)
def test_other_files_of_the_same_columns_are_read_alone_between_them(other: bytes) -> None:
    good = [written(rows_of(n, n)) for n in (3, 4, 5, 6)]
    contents = [*good[:2], other, *good[2:]]
    check(contents)
    assert parts(contents) == [[3, 4], [], [5, 6]]


def test_files_of_several_shapes_and_of_several_writers_are_read_in_their_order() -> None:
    nothing = rows_of(9).set_column(1, "name", pa.array([None] * 9, pa.string()))
    contents = [written(rows_of(3)), written(nothing), written(rows_of(5)), written(nothing), written(rows_of(4), store_schema=False)]
    assert parts(contents) == [[3, 9, 5, 9], []]
    check(contents)
    turned = rows_of(7).select([*reversed(rows_of(1).column_names)])
    check([*contents, written(turned), written(turned.drop(["name"])), *contents])


@pytest.mark.parametrize("nested", [False, True])
def test_files_with_required_columns_are_read_as_one(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows_of(9).drop(["name", "in"])
    if nested:
        table = table.append_column("in", pa.array([{"a": i} for i in range(9)], pa.struct([pa.field("a", pa.int64(), nullable=False)])))
    required = table.cast(pa.schema([field.with_nullable(False) for field in table.schema]))
    monkeypatch.setattr(columnar, "_WRITERS", columnar._Writers())
    contents = [written(required.slice(n)) for n in range(4)]
    check([*contents, written(table)])
    found = columnar._WRITERS.find(footer.held(contents[1]))
    assert found
    assert (found[0].plain, found[0].joins) == (False, not nested)


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"version": "1.0"}])
def test_ends_of_any_length_and_no_ends_are_of_one_shape(options: dict[str, Any]) -> None:
    shape, table = shape_of(written(rows_of(30), **options)), rows_of(40)
    names = [["x" * n] * 40 for n in (0, 1, 126, 127, 128, 129, 3000)] + [[None] * 40]
    tables = [table.set_column(1, "name", pa.array(name, pa.string())) for name in names]
    tables += [table.set_column(i, table.column_names[i], pa.nulls(40, table.schema.field(i).type)) for i in (0, 2, 4)]
    for each in tables:
        told = shape.read(footer.held(written(each, **options)))
        assert told is not None, each.column_names
        assert told.numbers[0] == told.numbers[-1] == bytes([80])
    check([written(each, **options) for each in tables])


@pytest.mark.parametrize(
    "column", [pa.array([[i] for i in range(6)]), pa.array([[("k", i)] for i in range(6)], pa.map_("string", "int64"))]
)
def test_files_with_lists_are_read_alone(column: pa.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [written(rows_of(6).append_column("many", column))] * 3
    monkeypatch.setattr(joined, "_groups", None)
    check(contents)


def test_a_part_means_no_more_values_than_it_may() -> None:
    contents = [written(rows_of(100, i), use_dictionary=["name"]) for i in range(9)]
    many = parts(contents, 30_000)
    assert len(many) > 3
    assert [rows for part in many for rows in part] == [100] * 9
    assert parts(contents, 100) == [[]] * 9, "each of them means more"
    long = written(pa.table({"s": ["x" * 1000] * 5000}))
    assert len(long) < 10_000
    assert parts([long] * 3, 4_000_000) == [[]] * 3, "a value that stands there once"


# ------------------------------------------------------------------------------------------------------------------ what lies
def varint(number: int) -> bytes:
    return bytes([2 * number & 127 | 128, 2 * number >> 7])


def claiming(rows: int, claim: int) -> bytes:
    """A file whose footer claims other rows than its pages do."""
    content = written(pa.table({"a": pa.array(range(rows), pa.int64()), "b": pa.array(range(rows), pa.int32())}), **PLAIN)
    said = footer.held(content)
    assert said.count(b"\x16" + varint(rows)) == 4, "of the file, of its row group and of its columns"
    return content.replace(said, said.replace(b"\x16" + varint(rows), b"\x16" + varint(claim)))


def test_a_file_that_claims_other_rows_than_it_has_shifts_nothing() -> None:
    """One has ten rows too few for its footer, and another ten too many: together they have as many as they claim."""
    good = claiming(150, 150)
    assert parts([good, claiming(100, 110), good, claiming(100, 90), good]) == [[150], [], [150], [], [150]]


@pytest.mark.parametrize("by", [10, -10])
def test_a_page_that_claims_what_it_does_not_hold_is_not_read(by: int) -> None:
    """Its header and its footer agree, and its bytes do not."""
    content = claiming(100, 100 + by)
    assert content.count(b"\x15" + varint(100)) == 2, "the headers of its two pages"
    lying = content.replace(b"\x15" + varint(100), b"\x15" + varint(100 + by))
    assert parts([lying]) == [[100 + by]]
    good = claiming(150, 150)
    try:
        rows, counts = columnar.together("parquet", [good, lying, good], columnar.schema_of("parquet", pa.BufferReader(good)))
    except BadContent:
        return
    assert counts == [150, 100 + by, 150]
    assert rows.column(0).to_pylist()[-150:] == rows.column(1).to_pylist()[-150:] == [*range(150)]
    assert rows.column(0).to_pylist()[:150] == [*range(150)]


def test_a_page_behind_the_dictionary_that_the_footer_hides_is_found() -> None:
    """Arrow reads on from the dictionary, and not from where the footer says that the data begins."""
    content = written(pa.table({"a": ["x", "y"] * 80}), compression="none", write_statistics=False)
    said = footer.held(content)
    (chunk,) = pq.read_metadata(io.BytesIO(content)).row_group(0).to_dict()["columns"]
    first, data = chunk["dictionary_page_offset"], chunk["data_page_offset"]
    page = content[data : first + chunk["total_compressed_size"]]
    longer = content[:data] + page + content[data:]  # the page twice, of which the footer shows the second
    old, new = (b"\x26" + bytes([2 * at]) if at < 64 else b"\x26" + varint(at) for at in (data, data + len(page)))
    size = chunk["total_compressed_size"]
    lies = said.replace(old, new).replace(b"\x16" + varint(size), b"\x16" + varint(size + len(page)))
    longer = longer[: -len(said) - 8] + lies + len(lies).to_bytes(4, "little") + b"PAR1"
    assert parts([content]) == [[160]]
    assert parts([longer, content]) == [[], [160]]


@pytest.mark.parametrize("seed", range(3))
def test_no_damage_of_a_file_changes_the_rows_of_others(seed: int) -> None:
    rng, good = random.Random(seed), [written(rows_of(n, 10 * n)) for n in (30, 40)]
    want, own = alone(good), columnar.schema_of("parquet", pa.BufferReader(good[0]))
    bad = written(rows_of(50, 900), compression=("none", "snappy", "zstd")[seed])
    columnar.together("parquet", [good[0], bad], own)
    tail, taken = len(footer.held(bad)) + 8, 0
    for n in range(500):
        at = rng.randrange(len(bad) - tail, len(bad)) if n % 3 else rng.randrange(len(bad))
        damaged = bad[:at] + bytes([rng.randrange(256)]) + bad[at + 1 :]
        try:
            rows, counts = columnar.together("parquet", [good[0], damaged, good[1]], own)
        except BadContent:
            continue
        taken += 1
        assert [counts[0], counts[2]] == [30, 40]
        assert [rows.slice(0, 30), rows.slice(rows.num_rows - 40)] == want
        assert rows.slice(30, counts[1]).equals(columnar.rows("parquet", damaged, own)), at
    assert taken > 50


def test_no_damage_of_a_footer_is_more_than_one_error_and_none_is_taken_for_the_end_of_another() -> None:
    """What is damaged so that its end is shorter is a shape of its own, which files with this end do not have."""
    said, rng = footer.held(written(rows_of(20))), random.Random(3)
    good, shapes = Shape(said), list[Shape]()
    for _ in range(1000):
        at = rng.randrange(len(said))
        byte = rng.choice([rng.randrange(256), said[at] ^ 1 << rng.randrange(8)])
        for damaged in (said[:at] + bytes([byte]) + said[at + 1 :], said[:at]):
            good.read(damaged)
            with suppress(ValueError):
                shapes.append(Shape(damaged))
    assert good.read(said) is not None
    assert good.read(said[: -len(good.behind)] + b"\0\0" + good.behind) is None, "there is more"
    for encoding in ("PLAIN", "DELTA_BYTE_ARRAY"):  # which may mean many values by few bytes
        other = written(rows_of(20), use_dictionary=False, column_encoding={"name": encoding})
        plain = Shape(footer.held(written(rows_of(9), use_dictionary=False)))
        assert (plain.read(footer.held(other)) is None) == (encoding != "PLAIN")
    assert len(shapes) > 100
    for zone in ("UTC", "Europe/Berlin"):
        other = rows_of(20).set_column(4, "at", pa.array([1] * 20, pa.timestamp("us", zone)))
        said = footer.held(written(other))
        assert all((shape.before, shape.behind) == footer.frame(said) for shape in shapes if shape.read(said))


def test_what_is_of_a_shape_is_what_arrow_takes() -> None:
    content = written(rows_of(20), compression="none")
    said, taken = footer.held(content), 0
    good, begin = Shape(said), len(content) - 8 - len(said)
    for at in range(len(good.before), len(said) - len(good.behind)):
        for byte in {said[at] & 15, said[at] & 240, said[at] ^ 1, said[at] ^ 16, said[at] ^ 128} - {said[at]}:
            damaged = said[:at] + bytes([byte]) + said[at + 1 :]
            if good.read(damaged):
                pq.ParquetFile(pa.BufferReader(content[:begin] + damaged + content[-8:]))
                taken += 1
    assert taken > 100


def test_a_file_that_ends_as_others_do_is_not_taken_for_one_of_them() -> None:
    """A text in its row group holds Arrow's schema: behind the rows it has the name of its writer alone, as others have behind theirs."""
    content = written(pa.table({"at": pa.array([1, 2], pa.timestamp("us", "Europe/Berlin"))}))
    said = footer.held(content)
    before, behind = footer.frame(said) or (b"", b"")
    name = behind.index(b"\x18 parquet-cpp")
    text = b"\xd8" + bytes([name & 127 | 128, name >> 7]) + behind[:name]  # of a field that nobody knows
    lying = said[: -len(behind) - 1] + text + b"\0" + behind[name:]
    hostile = content[: -len(said) - 8] + lying + len(lying).to_bytes(4, "little") + b"PAR1"
    own = columnar.schema_of("parquet", pa.BufferReader(hostile))
    assert own.field(0).type == pa.timestamp("us", "UTC")
    rows, counts = columnar.together("parquet", [hostile, content, content, hostile], own)
    assert (counts, rows.schema) == ([2] * 4, own)
    assert footer.frame(lying) == (before, behind[name:])
