"""Commits of layout 2 as bytes: an Avro record with the fields of the JSON.

Source: `HoodieCommitMetadata` and `HoodieReplaceCommitMetadata` of Hudi's Avro models, as JVM Hudi 1.2 writes them.
"""

from __future__ import annotations

import json
from typing import Any

from quire.table.format import avro_file, commits
from quire.table.format.avro_file import STRING, map_of, or_null
from quire.table.format.commits import CommitMetadata

_STRINGS = {"type": "array", "items": STRING, "default": None}
_RUNTIME = {
    "type": "record",
    "name": "HoodieRuntimeStats",
    "fields": [{"name": name, **or_null("long")} for name in ("totalScanTime", "totalCreateTime", "totalUpsertTime")],
}
_STAT = {
    "type": "record",
    "name": "HoodieWriteStat",
    "fields": [
        {"name": name, **or_null(kind)}
        for name, kind in (
            ("fileId", STRING), ("path", STRING), ("prevCommit", STRING), ("numWrites", "long"), ("numDeletes", "long"),
            ("numUpdateWrites", "long"), ("totalWriteBytes", "long"), ("totalWriteErrors", "long"), ("partitionPath", STRING),
            ("totalLogRecords", "long"), ("totalLogFiles", "long"), ("totalUpdatedRecordsCompacted", "long"), ("numInserts", "long"),
            ("totalLogBlocks", "long"), ("totalCorruptLogBlock", "long"), ("totalRollbackBlocks", "long"), ("fileSizeInBytes", "long"),
            ("logVersion", "int"), ("logOffset", "long"), ("baseFile", STRING), ("logFiles", _STRINGS), ("cdcStats", map_of("long")),
            ("prevBaseFile", STRING), ("minEventTime", "long"), ("maxEventTime", "long"), ("runtimeStats", _RUNTIME),
            ("totalLogFilesCompacted", "long"), ("totalLogReadTimeMs", "long"), ("totalLogSizeCompacted", "long"), ("tempPath", STRING),
            ("numUpdates", "long"),
        )
    ],
}  # fmt: skip
_FIELDS = [
    {"name": "partitionToWriteStats", **or_null(map_of({"type": "array", "items": _STAT}))},
    {"name": "compacted", **or_null("boolean")},
    {"name": "extraMetadata", **or_null(map_of(STRING))},
    {"name": "version", "type": ["int", "null"], "default": 1},
    {"name": "operationType", **or_null(STRING)},
]
_REPLACED = {"name": "partitionToReplaceFileIds", **or_null(map_of({"type": "array", "items": STRING}))}
_NAMESPACE = "org.apache.hudi.avro.model"
_COMMIT = {"type": "record", "name": "HoodieCommitMetadata", "namespace": _NAMESPACE, "fields": _FIELDS}
_REPLACE = {"type": "record", "name": "HoodieReplaceCommitMetadata", "namespace": _NAMESPACE, "fields": [*_FIELDS, _REPLACED]}


def encode(commit: CommitMetadata) -> bytes:
    """The content of a completed instant of layout 2; the same bytes for the same commit."""
    said: dict[str, Any] = json.loads(commits.encode(commit))
    for stats in said["partitionToWriteStats"].values():
        for stat in stats:
            stat.pop("recordsStats", None)
    said["extraMetadata"] = {name: text for name, text in (said["extraMetadata"] or {}).items() if text is not None}
    replaced = "partitionToReplaceFileIds" in said
    return avro_file.of_record({**said, "version": 1}, _REPLACE if replaced else _COMMIT)
