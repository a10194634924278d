"""Plans of compactions: which slices of a merge-on-read table are to be written anew without their logs.

Source: `HoodieCompactionPlan` of Hudi (plan version 2), an Avro container file of one record, `.hoodie/<instant>.compaction.requested`,
and its `CompactionStrategy`, which names the measures.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from quire.errors import FormatError
from quire.table.format import avro_file, names

_VERSION = 2  # names of files, not their paths
_MIB = 1 << 20
_LOG_SIZE = "TOTAL_LOG_FILES_SIZE"


def _or_null(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


_OPERATION = {
    "type": "record",
    "name": "HoodieCompactionOperation",
    "fields": [
        {"name": "baseInstantTime", "type": ["null", "string"]},
        {"name": "deltaFilePaths", **_or_null({"type": "array", "items": "string"})},
        {"name": "dataFilePath", **_or_null("string")},
        {"name": "fileId", "type": ["null", "string"]},
        {"name": "partitionPath", **_or_null("string")},
        {"name": "metrics", **_or_null({"type": "map", "values": "double"})},
        {"name": "bootstrapFilePath", **_or_null("string")},
    ],
}
_STRATEGY = {
    "type": "record",
    "name": "HoodieCompactionStrategy",
    "fields": [
        {"name": "compactorClassName", **_or_null("string")},
        {"name": "strategyParams", **_or_null({"type": "map", "values": "string"})},
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}
_PLAN = {
    "type": "record",
    "name": "HoodieCompactionPlan",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "operations", **_or_null({"type": "array", "items": _OPERATION})},
        {"name": "extraMetadata", **_or_null({"type": "map", "values": "string"})},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "strategy", **_or_null(_STRATEGY)},
        {"name": "preserveHoodieMetadata", "type": ["boolean", "null"], "default": False},
    ],
}


@dataclass(frozen=True)
class Operation:
    """A slice that a plan rewrites: its base file, "" where it has none, and its logs in their order; names without the partition."""

    partition: str
    group: str
    instant: str
    base: str
    logs: tuple[str, ...]
    base_size: int = 0  # bytes; of a plan that was read 0
    log_size: int = 0  # likewise, where the plan does not say it


def encode(operations: Iterable[Operation]) -> bytes:
    """The plan of these slices. Rows keep the instants of the commits that wrote them."""
    return avro_file.of_record(
        {"operations": [_said(one) for one in operations], "version": _VERSION, "preserveHoodieMetadata": True}, _PLAN
    )


def _said(one: Operation) -> dict[str, Any]:
    read, write = (one.base_size + one.log_size) / _MIB, one.base_size / _MIB
    measures = {
        "TOTAL_LOG_FILES": len(one.logs), _LOG_SIZE: one.log_size, "TOTAL_IO_READ_MB": read // 1, "TOTAL_IO_WRITE_MB": write // 1,
        "TOTAL_IO_MB": (read + write) // 1,
    }  # fmt: skip
    return {
        "baseInstantTime": one.instant, "deltaFilePaths": list(one.logs), "dataFilePath": one.base or None, "fileId": one.group,
        "partitionPath": one.partition, "metrics": {name: float(value) for name, value in measures.items()},
    }  # fmt: skip


def groups(data: bytes, where: str) -> list[tuple[str, str]]:
    """Partition and file group of each operation of a plan; FormatError where it is damaged, or leads out of the table."""
    return [(partition, group) for partition, group, _ in _operations(data, where)]


def decode(data: bytes, where: str) -> list[Operation]:
    """The operations of a plan; FormatError also where one names files that are not of its slice."""
    found = list[Operation]()
    for partition, group, said in _operations(data, where):
        instant, base, logs = said.get("baseInstantTime"), said.get("dataFilePath") or "", said.get("deltaFilePaths") or []
        file = names.base_file(base) if isinstance(base, str) else None
        parts = [names.log_file(name) if isinstance(name, str) else None for name in (logs if isinstance(logs, list) else [None])]
        right = isinstance(instant, str) and (base == "" or (file is not None and (file.file_id, file.instant) == (group, instant)))
        if not right or not all(part is not None and part.file_id == group for part in parts) or said.get("bootstrapFilePath"):
            raise FormatError(
                f"{where} names files that are not of the slice {str(instant)[:20]!r} of {group} in {partition[:200]!r}: quire does not "
                "carry it out. Let the program do so that has written it."
            )
        found.append(Operation(partition, group, str(instant), str(base), tuple(logs), log_size=_size(said.get("metrics"))))
    return found


def _size(measures: Any) -> int:
    found = measures.get(_LOG_SIZE) if isinstance(measures, dict) else None
    return int(found) if isinstance(found, float) and 0 <= found < 1 << 62 else 0


def _operations(data: bytes, where: str) -> list[tuple[str, str, dict[str, Any]]]:
    if not data:
        return []
    found = list[tuple[str, str, dict[str, Any]]]()
    operations = avro_file.record(data, where).get("operations") or []
    for each in operations if isinstance(operations, list) else [operations]:
        partition, group = (each.get("partitionPath"), each.get("fileId")) if isinstance(each, dict) else (None, None)
        if not isinstance(partition, str) or not isinstance(group, str) or not names.is_file_id(group):
            raise FormatError(f"{where} is damaged: an operation of the plan names no file group. Restore it from a copy.")
        found.append((names.check_partition(partition, where), group, each))
    return found
