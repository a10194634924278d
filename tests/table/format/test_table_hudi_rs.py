"""Tables that the codecs make, in a directory, as hudi-rs reads them: snapshots, as of a time, changes since one."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder
from trips import COLUMNS, T1, T2, T3, TOKEN, rows

from quire.table.format import names, schema
from quire.table.format.base_file import BaseFileWriter
from quire.table.format.bloom import Filter
from quire.table.format.commits import CommitMetadata, WriteStat, encode
from quire.table.format.config import EVENT_TIME, TableConfig, partition_metadata
from quire.table.format.keys import partition_paths, record_keys


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
        commit = CommitMetadata(
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
