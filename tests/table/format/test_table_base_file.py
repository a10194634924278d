"""Base files: rows behind their meta columns, a footer that an index reads, memory for a row group, and hudi-rs as a reader of it all."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from quire.errors import FormatError, UsageError
from quire.table.format import base_file, names, schema
from quire.table.format.base_file import BaseFileWriter, read_footer
from quire.table.format.bloom import Filter
from quire.table.format.commits import Commit, WriteStat, encode
from quire.table.format.config import EVENT_TIME, TableConfig, partition_metadata
from quire.table.format.keys import partition_paths, record_keys

T1, T2, T3 = "20261122093015123", "20261122093016123", "20261122093017123"
GROUP, TOKEN = "88163884-fef0-4aab-865d-c72327a8a1d5-0", "3-8388607-16777215"
COLUMNS = pa.schema(
    [
        ("id", pa.string()), ("ts", pa.int64()), ("fare", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("where", pa.struct([("x", pa.float64()), ("more", pa.map_(pa.string(), pa.int32()))])), ("city", pa.string()),
    ]
)  # fmt: skip


def rows(*ids: int, city: str = "sf", ts: int = 1) -> pa.RecordBatch:
    some = [
        {
            "id": f"key-{i:03d}",
            "ts": ts,
            "fare": None,
            "at": None,
            "tags": ["a", None],
            "where": {"x": i / 2, "more": [("m", i)]},
            "city": city,
        }
        for i in ids
    ]
    return pa.RecordBatch.from_pylist(some, COLUMNS)


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


# --------------------------------------------------------------------------------------------------------------- hudi-rs reads it
def stat(path: str, partition: str, count: int, size: int, **more: Any) -> WriteStat:
    return WriteStat(
        file_id=path.rpartition("/")[2].partition("_")[0], path=path, partition_path=partition, num_writes=count, total_write_bytes=size,
        file_size_in_bytes=size, **more,
    )  # fmt: skip


class Folder:
    """A table that is made by the codecs alone."""

    def __init__(self, at: Path, config: TableConfig) -> None:
        self.at, self.config = at, config
        (at / names.FOLDER).mkdir(parents=True)
        (at / names.PROPERTIES).write_bytes(config.to_properties())

    def commit(
        self, instant: str, *files: tuple[names.BaseFile, pa.RecordBatch, list[str] | None], operation: str = "UPSERT", **more: Any
    ) -> None:
        stats: dict[str, list[WriteStat]] = {}
        for name, batch, times in files:
            fields = self.config.partition_by
            paths = partition_paths(batch, fields, hive_style=self.config.hive_style, url_encode=self.config.url_encode)
            (partition,) = set(paths.to_pylist()) or {""}
            sink = io.BytesIO()
            writer = BaseFileWriter(sink, name, partition, COLUMNS, table=self.config.name, keys_filter=Filter.sized(batch.num_rows))
            at = pa.array(times, pa.string()) if times else None
            writer.write(batch, record_keys(batch, self.config.key), at, at)
            size, count = writer.close()
            folder = self.at / partition
            folder.mkdir(parents=True, exist_ok=True)
            (folder / names.PARTITION_METADATA).write_bytes(partition_metadata(instant, len(fields)))
            (folder / name.name).write_bytes(sink.getvalue())
            stats.setdefault(partition, []).append(stat(f"{partition}/{name.name}".lstrip("/"), partition, count, size))
        commit = Commit(
            partition_to_write_stats=stats,
            operation_type=operation,
            extra_metadata={"schema": schema.to_avro(COLUMNS, self.config.name)},
            **more,
        )
        action = "replacecommit" if more else "commit"
        for state in ("requested", "inflight", "completed"):
            content = encode(commit) if state == "completed" else b""
            (self.at / names.FOLDER / names.Instant(instant, action, state).name).write_bytes(content)  # type: ignore[arg-type]

    def read(self, **since: str) -> dict[str, int]:
        """Key → ts, as hudi-rs reads the table."""
        table, options = HudiTableBuilder.from_base_uri(str(self.at)).build(), HudiReadOptions()
        if "as_of" in since:
            options = options.with_as_of_timestamp(since["as_of"])
        if "start" in since:
            options = options.with_query_type(HudiQueryType.Incremental).with_start_timestamp(since["start"])
        found = [row for batch in table.read(options) for row in pa.record_batch(batch).to_pylist()]
        assert len({row["_hoodie_record_key"] for row in found}) == len(found)
        return {row["_hoodie_record_key"]: row["ts"] for row in found}


CONFIGS = [
    TableConfig(name="trips", key=("id",), partition_by=("city",), ordering="ts", mode=EVENT_TIME),
    TableConfig(name="trips", key=("id", "city"), partition_by=("city", "ts"), hive_style=False),
    TableConfig(name="trips", key=("id",), partition_by=("city",), url_encode=True),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["hive style", "composite", "encoded"])
def test_hudi_rs_reads_a_partitioned_table_of_these_codecs(tmp_path: Path, config: TableConfig) -> None:
    table = Folder(tmp_path / "t", config)
    here, there = (names.BaseFile(names.new_file_id(), TOKEN, T1) for _ in range(2))
    city = "a/b é" if config.url_encode else "x:y=é"
    table.commit(T1, (here, rows(1, 2), None), (there, rows(7, city=city), None))
    first = table.read()
    assert (len(first), set(first.values())) == (3, {1})
    table.commit(T2, (names.BaseFile(here.file_id, "0-1-2", T2), rows(1, 2, 3), [T1, None, None]))
    assert len(table.read()) == 4
    assert table.read(as_of=T1) == first
    changed = set(table.read(start=T1))
    assert {key.partition(",")[0].removeprefix("id:") for key in changed} == {"key-002", "key-003"}


def test_hudi_rs_reads_a_table_without_partitions_and_one_whose_groups_were_replaced(tmp_path: Path) -> None:
    table = Folder(tmp_path / "t", TableConfig(name="t", key=("id",)))
    group = names.BaseFile(names.new_file_id(), TOKEN, T1)
    table.commit(T1, (group, rows(1, 2), None))
    assert table.read() == {"key-001": 1, "key-002": 1}
    table.commit(T2, (names.BaseFile(group.file_id, TOKEN, T2), rows(), None), operation="DELETE")
    assert table.read() == {}
    other = names.BaseFile(names.new_file_id(), TOKEN, T3)
    table.commit(T3, (other, rows(9, ts=5), None), operation="INSERT_OVERWRITE", partition_to_replace_file_ids={"": [group.file_id]})
    assert table.read() == {"key-009": 5}
    assert table.read(as_of=T1) == {"key-001": 1, "key-002": 1}


def test_hudi_rs_gives_each_type_back_as_it_was_also_where_a_partition_is_missing(tmp_path: Path) -> None:
    table = Folder(tmp_path / "t", CONFIGS[0])
    more = {
        "id": "é", "ts": 2**62, "fare": Decimal("-12345678.90"), "at": dt.datetime(1969, 12, 31, 23, 59, 59, 1, dt.UTC), "tags": [],
        "where": {"x": None, "more": None}, "city": None,
    }  # fmt: skip
    batch = pa.RecordBatch.from_pylist([more, {"id": "b"}], COLUMNS)
    table.commit(T1, (names.BaseFile(names.new_file_id(), TOKEN, T1), batch, None))
    found = [pa.record_batch(each) for each in HudiTableBuilder.from_base_uri(str(table.at)).build().read(HudiReadOptions())]
    rows = [row for each in found for row in each.select(COLUMNS.names).to_pylist()]
    assert rows == batch.to_pylist()
    assert found[0].column("_hoodie_partition_path").to_pylist() == ["city=__HIVE_DEFAULT_PARTITION__"] * 2


def test_a_commit_that_wrote_nothing_is_read(tmp_path: Path) -> None:
    table = Folder(tmp_path / "t", TableConfig(name="t", key=("id",)))
    table.commit(T1)
    assert table.read() == {}
