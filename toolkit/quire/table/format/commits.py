"""Commits of a table as the timeline has them: write statistics, one for each file that was written, as JSON, or in layout 2 as Avro.

Source: `HoodieCommitMetadata`, `HoodieReplaceCommitMetadata`, `HoodieWriteStat` and `HoodieDeltaWriteStat` of Hudi, in the order and with
the names in which JVM Hudi 0.14 to 1.2 writes a table of version 6. Fields that are not known here are other writers', and passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from quire.errors import FormatError
from quire.table.format import avro_file, names

LARGEST = 1 << 30  # bytes: far beyond a commit of a million files
_AVRO = b"Obj\x01"
_REQUESTED = {
    "type": "record",
    "name": "HoodieRequestedReplaceMetadata",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "operationType", "type": ["null", "string"], "default": None},
        {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None},
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}
Natural = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class RuntimeStats(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Milliseconds that a file took."""

    total_scan_time: Natural = 0
    total_upsert_time: Natural = 0
    total_create_time: Natural = 0


class WriteStat(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One file of a commit. `path` is relative to the table; the last fields are those of log files alone."""

    file_id: str = ""
    path: str | None = None
    cdc_stats: dict[str, int] | None = None
    prev_commit: str | None = "null"  # the instant of the slice that the file replaces; of a new file group the word
    num_writes: Natural = 0  # rows in the file
    num_deletes: Natural = 0
    num_update_writes: Natural = 0
    num_inserts: Natural = 0
    total_write_bytes: Natural = 0
    total_write_errors: Natural = 0
    temp_path: str | None = None
    partition_path: str | None = None
    total_log_records: Natural = 0
    total_log_files_compacted: Natural = 0
    total_log_size_compacted: Natural = 0
    total_updated_records_compacted: Natural = 0
    total_log_blocks: Natural = 0
    total_corrupt_log_block: Natural = 0
    total_rollback_blocks: Natural = 0
    file_size_in_bytes: Natural = 0
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: RuntimeStats | None = None
    log_version: Natural | UnsetType = UNSET
    log_offset: Natural | UnsetType = UNSET
    base_file: str | UnsetType | None = UNSET
    log_files: list[str] | UnsetType | None = UNSET
    records_stats: dict[str, msgspec.Raw] | UnsetType | None = UNSET


class CommitMetadata(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A completed commit, deltacommit or replacecommit; the last field is a replacecommit's: partition → file groups that ended."""

    partition_to_write_stats: dict[str, list[WriteStat]] = {}
    compacted: bool = False
    extra_metadata: dict[str, str | None] | None = {}
    operation_type: str | None = None
    partition_to_replace_file_ids: dict[str, list[str]] | UnsetType = UNSET

    @property
    def schema(self) -> str | None:
        """The Avro schema of the table at this commit, without meta fields; None where its writer gave none."""
        return (self.extra_metadata or {}).get("schema") or None

    @property
    def replaced(self) -> dict[str, list[str]]:
        """Partition → file groups that ended with this commit."""
        return {} if self.partition_to_replace_file_ids is UNSET else self.partition_to_replace_file_ids

    def files(self) -> Iterator[tuple[str, WriteStat, names.BaseFile | names.LogFile]]:
        """Partition, statistics and parsed name of each file that was written."""
        for partition, stats in self.partition_to_write_stats.items():
            for stat in stats:
                if stat.path is not None:
                    yield partition, stat, names.check_path(stat.path, partition, stat.file_id, "a commit")


# Built here, not at their first use: msgspec builds what it knows of a Struct without a lock, and two threads that do so at once may end
# the process.
_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(CommitMetadata)


def requested(action: str) -> bytes:
    """The content of a write that has been asked for: of a replacecommit a record that plans nothing, as Hudi's overwrites have it."""
    if names.ACTIONS[action] != "replacecommit":
        return b""
    return avro_file.of_record({"version": 1}, _REQUESTED)


def encode(commit: CommitMetadata) -> bytes:
    """The content of a completed instant; always give it a schema: readers need one, also of a commit without a file."""
    if not commit.schema:
        raise ValueError("a commit needs its table's schema")
    return _encoder.encode(commit)


def decode(data: bytes, where: str) -> CommitMetadata:
    """A completed instant's content with each of its paths checked; FormatError in one line where it is damaged or leads astray."""
    _check_size(data, where)
    if data.startswith(_AVRO):
        raise FormatError(f"{where} is Avro, as tables of version 8 and newer have it: it is not a commit of version 6")
    try:
        commit = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise FormatError(f"{where} is damaged: {str(e)[:200]}. Restore it from a copy.") from e
    return _checked(commit, where)


def decode_avro(data: bytes, where: str) -> CommitMetadata:
    """The same of layout 2, whose commits are Avro with the fields of the JSON."""
    _check_size(data, where)
    try:
        commit = _decoder.decode(_encoder.encode(_said(avro_file.record(data, where))))
    except (msgspec.MsgspecError, RecursionError, UnicodeError, TypeError) as e:
        raise FormatError(f"{where} is damaged: {str(e)[:200]}. Restore it from a copy.") from e
    return _checked(commit, where)


def _check_size(data: bytes, where: str) -> None:
    if not data:
        raise FormatError(
            f"{where} is empty: its writer died, and every reader fails on it. Restore it from a copy, or roll the commit back."
        )
    if len(data) > LARGEST:
        raise FormatError(f"{where} has {len(data):,} bytes, and a commit has {LARGEST:,} at most: look who wrote it")


def _said(value: Any) -> Any:
    """A value of Avro without the fields that are null: JSON leaves them out, or has a default for them."""
    if isinstance(value, dict):
        return {name: _said(each) for name, each in value.items() if each is not None}
    return [_said(each) for each in value] if isinstance(value, list) else value


def _checked(commit: CommitMetadata, where: str) -> CommitMetadata:
    for partition, stats in commit.partition_to_write_stats.items():
        names.check_partition(partition, where)
        for stat in stats:
            if stat.path is not None:
                names.check_path(stat.path, partition, stat.file_id, where)
    for partition in commit.replaced:
        names.check_partition(partition, where)
    return commit
