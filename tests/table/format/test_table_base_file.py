"""Base files: rows behind their meta columns, a footer that an index reads, and memory for a row group."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trips import COLUMNS, GROUP, T1, T2, TOKEN, rows

from quire.errors import FormatError, UsageError
from quire.formats import dictionaries
from quire.table.format import base_file, names, schema
from quire.table.format.base_file import BaseFileWriter, read_footer
from quire.table.format.bloom import Filter
from quire.table.format.keys import record_keys


def written(
    *batches: pa.RecordBatch, name: names.BaseFile | None = None, partition: str = "city=sf", **more: Any
) -> tuple[bytes, BaseFileWriter]:
    sink = io.BytesIO()
    count = sum(batch.num_rows for batch in batches)
    of = name or names.BaseFile(GROUP, TOKEN, T1)
    writer = BaseFileWriter(sink, of, partition, COLUMNS, table="trips", keys_filter=Filter.sized(count), **more)
    for batch in batches:
        writer.write(batch, record_keys(batch, ["id"]))
    assert writer.close() == (len(sink.getvalue()), count)
    return sink.getvalue(), writer


def test_rows_stand_behind_their_meta_columns() -> None:
    data, _ = written(rows(1, 2), rows(3))
    found = pq.read_table(io.BytesIO(data))
    assert found.column_names == [*schema.META, *COLUMNS.names]
    name = f"{GROUP}_{TOKEN}_{T1}.parquet"
    assert found.select(schema.META).to_pylist() == [
        {"_hoodie_commit_time": T1, "_hoodie_commit_seqno": f"{T1}_3_{i}", "_hoodie_record_key": f"key-{i + 1:03d}",
         "_hoodie_partition_path": "city=sf", "_hoodie_file_name": name} for i in range(3)
    ]  # fmt: skip
    assert found.select(COLUMNS.names).to_pylist() == pa.Table.from_batches([rows(1, 2), rows(3)]).to_pylist()


def test_rows_of_an_earlier_commit_keep_its_time_and_number() -> None:
    sink = io.BytesIO()
    bloom = Filter.sized(3)
    writer = BaseFileWriter(sink, names.BaseFile(GROUP, TOKEN, T2), "city=sf", COLUMNS, table="trips", keys_filter=bloom)
    batch = rows(1, 2, 3)
    writer.write(batch, record_keys(batch, ["id"]), pa.array([T1, None, T1]), pa.array([f"{T1}_0_7", "x", f"{T1}_0_8"]))
    writer.close()
    found = pq.read_table(io.BytesIO(sink.getvalue()))
    assert found.column("_hoodie_commit_time").to_pylist() == [T1, T2, T1]
    assert found.column("_hoodie_commit_seqno").to_pylist() == [f"{T1}_0_7", f"{T2}_3_1", f"{T1}_0_8"]
    assert set(found.column("_hoodie_file_name").to_pylist()) == {f"{GROUP}_{TOKEN}_{T2}.parquet"}


def test_the_footer_has_what_an_index_and_other_readers_need() -> None:
    data, writer = written(rows(2, 5, 9))
    footer = read_footer(data, "it")
    assert (footer.rows, footer.min_key, footer.max_key, footer.has_meta) == (3, "key-002", "key-009", True)
    bloom = footer.keys_filter()
    assert bloom is not None
    assert bloom.serialise() == writer.filter.serialise()
    assert bloom.might_contain(pa.array(["key-002", "key-005", "key-009", "key-003"])).tolist() == [True, True, True, False]
    assert footer.avro == schema.to_avro(COLUMNS, "trips", meta=True)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.metadata[b"writer.model.name"] == b"avro"
    assert metadata.metadata[b"hoodie_bloom_filter_type_code"] == b"SIMPLE"
    assert b"ARROW:schema" not in metadata.metadata
    assert {metadata.row_group(0).column(i).compression for i in range(metadata.num_columns)} == {"ZSTD"}
    encodings = {
        metadata.row_group(0).column(i).path_in_schema: metadata.row_group(0).column(i).encodings for i in range(metadata.num_columns)
    }
    assert not any("DICTIONARY" in e for e in encodings["_hoodie_record_key"])
    assert all(
        any("DICTIONARY" in e for e in encodings[leaf]) for leaf in ("_hoodie_file_name", "where.more.key_value.key", "tags.list.element")
    )


def test_only_columns_whose_values_come_again_have_a_dictionary() -> None:
    n, sink = 2 * dictionaries.SAMPLE, io.BytesIO()
    kinds = pa.schema([("id", pa.string()), ("at", pa.timestamp("us", "UTC")), ("often", pa.int64()), ("null", pa.string())])
    ids = pa.array([f"{i:06d}" for i in range(n)])
    batch = pa.record_batch(
        [ids, pa.array(range(n), kinds.field("at").type), pa.array([i % 5000 for i in range(n)]), pa.nulls(n, pa.string())], schema=kinds
    )
    writer = BaseFileWriter(sink, names.BaseFile(GROUP, TOKEN, T1), "", kinds, table="t", keys_filter=Filter.sized(n))
    writer.write(batch, ids)
    writer.close()
    group = pq.read_metadata(io.BytesIO(sink.getvalue())).row_group(0)
    found = {group.column(i).path_in_schema for i in range(group.num_columns) if group.column(i).has_dictionary_page}
    assert found >= {"often", "_hoodie_commit_time", "_hoodie_file_name"}
    assert not found & {"id", "at", "_hoodie_record_key", "_hoodie_commit_seqno"}
    assert pq.read_table(io.BytesIO(sink.getvalue())).select(kinds.names).to_batches() == [batch]


def test_a_file_whose_rows_are_all_deleted_has_no_keys() -> None:
    data, _ = written()
    footer = read_footer(data, "it")
    assert (footer.rows, footer.min_key, footer.max_key) == (0, None, None)
    assert footer.keys_filter() is not None


def test_keys_are_compared_by_their_bytes() -> None:
    batch = pa.RecordBatch.from_pylist([{"id": key} for key in ("\uffee", "😀", "a")], COLUMNS)
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, names.BaseFile(GROUP, TOKEN, T1), "", COLUMNS, table="t", keys_filter=Filter.sized(3))
    for i in range(3):
        writer.write(batch.slice(i, 1), batch.column("id").slice(i, 1))
    writer.close()
    assert (read_footer(sink.getvalue(), "it").min_key, read_footer(sink.getvalue(), "it").max_key) == ("a", "😀")


def test_a_filter_that_holds_the_keys_already_is_left_as_it_is() -> None:
    bloom = Filter.sized(100)
    bloom.add(pa.array(["key-001", "gone"]))
    sink, before = io.BytesIO(), bloom.serialise()
    writer = BaseFileWriter(sink, names.BaseFile(GROUP, TOKEN, T1), "", COLUMNS, table="t", keys_filter=bloom, filter_holds_keys=True)
    writer.write(rows(1), pa.array(["key-001"]))
    writer.close()
    assert read_footer(sink.getvalue(), "it").filter_text == before


def test_memory_is_that_of_a_row_group() -> None:
    count, size = 200_000, 1 << 20
    random = np.random.default_rng(1)
    columns = pa.schema([("id", pa.string()), ("x", pa.int64())])
    batch = pa.record_batch([pa.array(range(10**9, 10**9 + count)).cast(pa.string()), random.integers(0, 2**62, count)], schema=columns)

    class Sink:
        size = 0

        def write(self, data: Any) -> None:
            self.size += len(data)

    before = pa.total_allocated_bytes()
    most = 0
    writer = BaseFileWriter(
        sink := Sink(), names.BaseFile(GROUP, TOKEN, T1), "", columns, table="t", keys_filter=Filter.sized(count), group=size
    )
    for start in range(0, count, 10_000):
        writer.write(batch.slice(start, 10_000), batch.column("id").slice(start, 10_000))
        most = max(most, pa.total_allocated_bytes() - before)
    total, _ = writer.close()
    assert sink.size == total
    assert most < 6 * size < batch.nbytes * 3


def test_a_large_batch_is_cut_into_row_groups() -> None:
    data, _ = written(rows(*range(500)), group=10_000)
    metadata = pq.read_metadata(io.BytesIO(data))
    assert metadata.num_row_groups > 5
    assert metadata.num_rows == 500
    assert pq.read_table(io.BytesIO(data)).column("_hoodie_commit_seqno").to_pylist()[-1] == f"{T1}_3_499"


def test_a_writer_that_was_stopped_writes_nothing_more() -> None:
    sink = io.BytesIO()
    writer = BaseFileWriter(sink, names.BaseFile(GROUP, TOKEN, T1), "", COLUMNS, table="t", keys_filter=Filter.sized(1))
    writer.write(rows(1), pa.array(["key-001"]))
    writer.stop()
    size = len(sink.getvalue())
    del writer
    assert len(sink.getvalue()) == size


def test_rows_without_keys_and_columns_without_a_place_are_refused() -> None:
    writer = BaseFileWriter(io.BytesIO(), names.BaseFile(GROUP, TOKEN, T1), "", COLUMNS, table="t", keys_filter=Filter.sized(1))
    for keys in (pa.array(["a"]), pa.array(["a", None])):
        with pytest.raises(ValueError, match="2 rows have 1 keys"):
            writer.write(rows(1, 2), keys)
    with pytest.raises(UsageError, match="local timestamps"):
        BaseFileWriter(io.BytesIO(), writer.name, "", pa.schema([("a", pa.timestamp("us"))]), table="t", keys_filter=Filter.sized(1))


def with_footer(**more: str) -> bytes:
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, pa.schema([("a", pa.int32())])) as writer:
        writer.write_table(pa.table({"a": pa.array([1], pa.int32())}))
        writer.add_key_value_metadata(more)
    return sink.getvalue()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not end as"), (b"PAR1" * 4, "does not end as"),
        (b"PAR1" + b"x" * 100 + (50).to_bytes(4, "little") + b"PAR1", "cannot be read"),
        (b"PAR1" + (2**31 - 1).to_bytes(4, "little") + b"PAR1", "does not end as"), (written(rows(1))[0][:-1], "does not end as"),
        (with_footer(hoodie_min_record_key="a"), "its keys are from 'a' to 'None'"),
        (with_footer(hoodie_min_record_key="b", hoodie_max_record_key="a"), "from 'b' to 'a'"),
    ],
    ids=lambda each: str(each)[:20],
)  # fmt: skip
def test_a_damaged_footer_is_one_line(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=rf"^it is damaged: .*{why}"):
        read_footer(data, "it")


def test_a_footer_of_any_length_is_not_read() -> None:
    class Long(io.BytesIO):
        def seek(self, offset: int, whence: int = 0) -> int:
            return (1 << 30) if whence == 2 else super().seek(0)

    long = Long((base_file.LARGEST_FOOTER + 1).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(FormatError, match="a footer of 67,108,865 bytes"):
        read_footer(long, "it")


def test_another_file_of_parquet_has_neither_keys_nor_meta_columns() -> None:
    footer = read_footer(with_footer(), "it")
    assert (footer.min_key, footer.keys_filter(), footer.has_meta, footer.rows) == (None, None, False, 1)
    broken = read_footer(with_footer(**{"org.apache.hudi.bloomfilter": "?"}), "it")
    with pytest.raises(FormatError, match=r"^it has a damaged bloom filter"):
        broken.keys_filter()
