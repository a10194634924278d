"""Archives of a timeline: log files that hold what completed instants have said, which then leave the timeline.

Source: `HoodieArchivedMetaEntry` and `HoodieTimelineArchiver` of Hudi: `.hoodie/archived/.commits_.archive.<n>_<token>`, a log file with a
block of Avro. The token of quire's has the horizon: all instants before it have left the timeline.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro

from quire.errors import FormatError
from quire.table.format import avro_file, cleaning, commits, log_file, names
from quire.table.format.avro_file import STRING, map_of, or_null
from quire.table.format.commits import CommitMetadata
from quire.table.format.log_content import AVRO_ERRORS, VERSION
from quire.table.format.log_file import Block
from quire.table.format.lsm import Left

FOLDER = f"{names.FOLDER}/archived"
MARKER = ".quire"  # lets readers see that there may be an archive, from before the first one is there
_NAME = re.compile(r"\.commits_\.archive\.(\d{1,9})_(\d{1,10})-(\d{1,10})-(\d{1,10})", re.ASCII)
_INT, _TWO = struct.Struct(">i"), struct.Struct(">ii")
_COUNTS = (
    "numWrites", "numDeletes", "numUpdateWrites", "totalWriteBytes", "totalWriteErrors", "totalLogRecords", "totalUpdatedRecordsCompacted",
    "numInserts", "totalLogBlocks", "totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes",
)  # fmt: skip


def _or_null(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, **or_null(kind)}


_STAT = {
    "type": "record", "name": "HoodieWriteStat",
    "fields": [
        *(_or_null(name, STRING) for name in ("fileId", "path", "prevCommit", "partitionPath")),
        *(_or_null(name, "long") for name in _COUNTS),
    ],
}  # fmt: skip


def _written(name: str, stat: Any, *more: Any) -> dict[str, Any]:
    fields = [_or_null("partitionToWriteStats", map_of({"type": "array", "items": stat})), _or_null("extraMetadata", map_of(STRING))]
    version = {"name": "version", "type": ["int", "null"], "default": 1}
    return {"type": "record", "name": name, "fields": [*fields, version, _or_null("operationType", STRING), *more]}


_REPLACED = _or_null("partitionToReplaceFileIds", map_of({"type": "array", "items": STRING}))
# Readers resolve it against the whole schema of Hudi: what is not here is null to them.
_ENTRY = {
    "type": "record", "name": "HoodieArchivedMetaEntry", "namespace": "org.apache.hudi.avro.model",
    "fields": [
        _or_null("hoodieCommitMetadata", _written("HoodieCommitMetadata", _STAT)),
        _or_null("hoodieCleanMetadata", cleaning.CLEANED),
        *(_or_null(name, STRING) for name in ("commitTime", "actionType")),
        {"name": "version", "type": ["int", "null"], "default": 1},
        _or_null("actionState", STRING),
        _or_null("hoodieReplaceCommitMetadata", _written("HoodieReplaceCommitMetadata", "HoodieWriteStat", _REPLACED)),
        _or_null("stateTransitionTime", STRING),
    ],
}  # fmt: skip
_PARSED = fastavro.parse_schema(_ENTRY)


@dataclass(frozen=True)
class Archived:
    """An instant that leaves the timeline, and what it has said; of actions other than writes and cleans nothing is kept but the name."""

    instant: str
    action: str
    commit: CommitMetadata | None = None
    clean: dict[str, Any] | None = None

    @classmethod
    def of(cls, left: Left, where: str) -> Archived:
        """The same of an instant's bytes, as the timeline has them; FormatError where they are damaged."""
        if left.action in names.WRITES:
            return cls(left.time, left.action, commits.decode(left.said, where))
        return cls(left.time, left.action, clean=avro_file.record(left.said, where) if left.said else None)


def name(number: int, horizon: str) -> str:
    """The name of the archive with a number, of which all instants are before the `horizon`, an instant of 17 digits."""
    return f"{FOLDER}/.commits_.archive.{number}_0-{int(horizon[:8])}-{int(horizon[8:])}"


def is_archive(path: str) -> bool:
    """Whether an object in the folder says that instants were archived: all of other writers do."""
    return not path.endswith(f"/{MARKER}")


def numbered(names_there: Iterable[str]) -> tuple[int, str]:
    """The greatest number of the archives with these names, and the latest horizon that one of quire's gives; 0 and "": there is none."""
    last, horizon = 0, ""
    for each in names_there:
        found = _NAME.fullmatch(each.rpartition("/")[2])
        if found is None:
            continue
        last = max(last, int(found[1]))
        until = f"{found[3]:>08}{found[4]:>09}"
        if found[2] == "0" and names.is_instant(until):
            horizon = max(horizon, until)
    return last, horizon


def encode(entries: Iterable[Archived]) -> bytes:
    """The bytes of an archive; of the entries one at a time is looked at."""
    content, count = io.BytesIO(), 0
    content.write(bytes(_TWO.size))
    for each in entries:
        count += 1
        record = io.BytesIO()
        fastavro.schemaless_writer(record, _PARSED, _said(each))
        content.write(_INT.pack(record.tell()) + record.getvalue())
    content.seek(0)
    content.write(_TWO.pack(VERSION, count))
    return log_file.encode(Block(log_file.AVRO, {log_file.SCHEMA: json.dumps(_ENTRY)}, content.getvalue()))


def decode(data: bytes, where: str) -> Iterator[tuple[str, str]]:
    """The instants of an archive of quire's, and their actions; FormatError where it is damaged."""
    for block in log_file.decode(data, where):
        try:
            version, count = _TWO.unpack_from(block.content)
            if block.kind != log_file.AVRO or version != VERSION:
                raise ValueError(f"a block of the kind {block.kind} and version {version}")
            at = _TWO.size
            for _ in range(count):
                (length,) = _INT.unpack_from(block.content, at)
                at += _INT.size
                said: Any = fastavro.schemaless_reader(io.BytesIO(block.content[at : at + length]), _PARSED, None)
                at += length
                yield said["commitTime"], said["actionType"]
        except AVRO_ERRORS as e:
            raise FormatError(f"{where} is damaged ({type(e).__name__}): restore it from a copy.") from e


def _said(each: Archived) -> dict[str, Any]:
    found: dict[str, Any] = {
        "commitTime": each.instant, "actionType": each.action, "actionState": "COMPLETED", "version": 1,
        "stateTransitionTime": each.instant, "hoodieCleanMetadata": each.clean,
    }  # fmt: skip
    if each.commit is not None:
        replaces = each.action == "replacecommit"
        found["hoodieReplaceCommitMetadata" if replaces else "hoodieCommitMetadata"] = _commit(each.commit, replaces=replaces)
    return found


def _commit(commit: CommitMetadata, *, replaces: bool) -> dict[str, Any]:
    stats = {
        partition: [
            {
                "fileId": stat.file_id, "path": stat.path, "prevCommit": stat.prev_commit, "partitionPath": stat.partition_path,
                "numWrites": stat.num_writes, "numDeletes": stat.num_deletes, "numUpdateWrites": stat.num_update_writes,
                "totalWriteBytes": stat.total_write_bytes, "totalWriteErrors": stat.total_write_errors,
                "totalLogRecords": stat.total_log_records, "totalUpdatedRecordsCompacted": stat.total_updated_records_compacted,
                "numInserts": stat.num_inserts, "totalLogBlocks": stat.total_log_blocks,
                "totalCorruptLogBlock": stat.total_corrupt_log_block, "totalRollbackBlocks": stat.total_rollback_blocks,
                "fileSizeInBytes": stat.file_size_in_bytes,
            }
            for stat in of_partition
        ]
        for partition, of_partition in commit.partition_to_write_stats.items()
    }  # fmt: skip
    extra = {key: value for key, value in (commit.extra_metadata or {}).items() if value is not None}
    found = {"partitionToWriteStats": stats, "extraMetadata": extra, "version": 1, "operationType": commit.operation_type}
    return found | ({"partitionToReplaceFileIds": commit.replaced} if replaces else {})
