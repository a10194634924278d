"""Commits: written as JVM Hudi writes them, read with what other writers add, and refused in one line where they are damaged or forged."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from gathering import refused
from quire.errors import FormatError
from quire.table.format import commits, names
from quire.table.format.commits import CommitMetadata, RuntimeStats, WriteStat

GROUP, T = "88163884-fef0-4aab-865d-c72327a8a1d5-0", "20240707001301554"
PATH = f"20/{GROUP}_0-74-110_{T}.parquet"
# As section "Commits" of Hudi's format has it.
WRITTEN = {
    "partitionToWriteStats": {
        "20": [
            {
                "fileId": GROUP, "path": PATH, "cdcStats": None, "prevCommit": "null", "numWrites": 1, "numDeletes": 0,
                "numUpdateWrites": 0,
                "numInserts": 1, "totalWriteBytes": 441367, "totalWriteErrors": 0, "tempPath": None, "partitionPath": "20",
                "totalLogRecords": 0,
                "totalLogFilesCompacted": 0, "totalLogSizeCompacted": 0, "totalUpdatedRecordsCompacted": 0, "totalLogBlocks": 0,
                "totalCorruptLogBlock": 0, "totalRollbackBlocks": 0, "fileSizeInBytes": 441367, "minEventTime": None, "maxEventTime": None,
                "runtimeStats": {"totalScanTime": 0, "totalUpsertTime": 0, "totalCreateTime": 90},
            }
        ]
    },
    "compacted": False,
    "extraMetadata": {"schema": "{}"},
    "operationType": "UPSERT",
}  # fmt: skip
COMMIT = CommitMetadata(
    partition_to_write_stats={
        "20": [
            WriteStat(
                file_id=GROUP, path=PATH, num_writes=1, num_inserts=1, total_write_bytes=441367, file_size_in_bytes=441367,
                partition_path="20",
                runtime_stats=RuntimeStats(total_create_time=90),
            )
        ]
    },
    extra_metadata={"schema": "{}"}, operation_type="UPSERT",
)  # fmt: skip


def changed(**stat: Any) -> bytes:
    copy = json.loads(json.dumps(WRITTEN))
    copy["partitionToWriteStats"]["20"][0] |= stat
    return json.dumps(copy).encode()


def test_a_commit_is_written_as_the_jvm_writes_it() -> None:
    assert commits.encode(COMMIT) == json.dumps(WRITTEN, separators=(",", ":")).encode()
    assert commits.decode(commits.encode(COMMIT), "it") == COMMIT
    (found,) = COMMIT.files()
    assert found == ("20", COMMIT.partition_to_write_stats["20"][0], names.BaseFile(GROUP, "0-74-110", T))


def test_log_files_and_replaced_groups_have_fields_of_their_own() -> None:
    log = f".{GROUP}_{T}.log.1_0-1-2"
    stat = WriteStat(file_id=GROUP, path=log, log_version=1, log_offset=0, base_file="", log_files=[log])
    commit = CommitMetadata(
        partition_to_write_stats={"": [stat]}, extra_metadata={"schema": "{}"}, partition_to_replace_file_ids={"": [GROUP]},
        operation_type="CLUSTER",
    )  # fmt: skip
    text = commits.encode(commit).decode()
    assert text.endswith(f'"operationType":"CLUSTER","partitionToReplaceFileIds":{{"":["{GROUP}"]}}}}')
    assert f'"runtimeStats":null,"logVersion":1,"logOffset":0,"baseFile":"","logFiles":["{log}"]}}' in text
    assert commits.decode(text.encode(), "it") == commit
    assert (commit.replaced, COMMIT.replaced) == ({"": [GROUP]}, {})


def test_avro_by_which_few_bytes_mean_very_many_values_is_refused_unread() -> None:
    """An array of a thousand million records without a field has ten bytes."""
    sink, nothing = io.BytesIO(), {"type": "array", "items": {"type": "record", "name": "n", "fields": []}}
    fastavro.writer(sink, {"type": "record", "name": "r", "fields": [{"name": "x", "type": nothing}]}, [{"x": [{}] * 3}])
    data = sink.getvalue()
    assert data.count(b"\x06\0") == 1
    with refused(FormatError, 2, "a list of structs without a field"):
        commits.decode_avro(data.replace(b"\x04\x06\0", b"\x0e\x80\xa8\xd6\xb9\x07\0"), "it")


def test_a_commit_needs_a_schema_as_its_readers_do() -> None:
    with pytest.raises(ValueError, match="schema"):
        commits.encode(CommitMetadata())


def test_fields_of_other_writers_are_passed_over_and_missing_ones_are_their_defaults() -> None:
    assert commits.decode(changed(somethingNew={"a": [1]}), "it") == COMMIT
    least = commits.decode(json.dumps({"partitionToWriteStats": {"20": [{"fileId": GROUP, "path": PATH}]}}).encode(), "it")
    assert [(stat.num_writes, stat.path) for _, stat, _ in least.files()] == [(0, PATH)]
    assert least.schema is None
    assert commits.decode(b"{}", "it") == CommitMetadata()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", r"is empty: its writer died"), (b"Obj\x01x", "is Avro"), (b"{", "is damaged"), (b"[]", "is damaged"), (b"\xff", "is damaged"),
        (b'{"partitionToWriteStats":{"":[{"path":1}]}}', "is damaged"), (changed(numWrites=-1), "is damaged"),
        (changed(numWrites=2**63), "is damaged"), (changed(path=f"../{PATH}"), "nothing was touched"),
        (changed(fileId="other"), "nothing was touched"),
        (changed(path="20/x"), "nothing was touched"), (b'{"partitionToWriteStats":{"..":[]}}', "leads out of the table"),
        (b'{"partitionToWriteStats":{".hoodie/_quire":[]}}', "leads out of the table"),
        (b'{"partitionToReplaceFileIds":{"/etc":[]}}', "leads out of the table"), (b'{"a":' * 100_000, "is damaged"),
    ],
)  # fmt: skip
def test_a_damaged_or_forged_commit_is_one_line(data: bytes, why: str) -> None:
    with pytest.raises(FormatError, match=rf"^{T}\.commit .*{why}"):
        commits.decode(data, f"{T}.commit")
