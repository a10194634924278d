"""Plans of cleans, which files of older slices they delete; what a clean says when it has completed; and savepoints, which hold files.

Source: `HoodieCleanerPlan`, `HoodieCleanMetadata` and `HoodieSavepointMetadata` of Hudi, Avro container files of one record each:
`.hoodie/<instant>.clean.requested` and `.inflight` (the plan), `.clean`, and `<instant>.savepoint`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from quire.errors import FormatError
from quire.table.format import avro_file, names
from quire.table.format.avro_file import STRING, map_of, or_null
from quire.table.format.names import BaseFile, LogFile

_NAMESPACE = "org.apache.hudi.avro.model"
_LATEST = 253_402_300_800_000  # milliseconds since 1970: the year 10000
_VERSION = 2  # paths, not names, of the files to be deleted
_POLICY = "KEEP_LATEST_BY_HOURS"  # Hudi asks for one of its own; nobody decides by what a plan says here
_OTHERS = (".cdc", ".orc", ".hfile", ".lance")
_ACTION = {
    "type": "record",
    "name": "HoodieActionInstant",
    "fields": [{"name": name, "type": STRING} for name in ("timestamp", "action", "state")],
}
_FILE = {
    "type": "record",
    "name": "HoodieCleanFileInfo",
    "fields": [{"name": "filePath", **or_null(STRING)}, {"name": "isBootstrapBaseFile", **or_null("boolean")}],
}
_PLAN = {
    "type": "record",
    "name": "HoodieCleanerPlan",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "earliestInstantToRetain", **or_null(_ACTION)},
        {"name": "lastCompletedCommitTimestamp", "type": STRING, "default": ""},
        {"name": "policy", "type": STRING},
        {"name": "filesToBeDeletedPerPartition", **or_null(map_of({"type": "array", "items": STRING}))},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "filePathsToBeDeletedPerPartition", **or_null(map_of({"type": "array", "items": _FILE}))},
        {"name": "partitionsToBeDeleted", **or_null({"type": "array", "items": STRING})},
        {"name": "extraMetadata", **or_null(map_of(STRING))},
    ],
}
_LISTS = ("deletePathPatterns", "successDeleteFiles", "failedDeleteFiles")
_OF_PARTITION = {
    "type": "record",
    "name": "HoodieCleanPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": STRING},
        {"name": "policy", "type": STRING},
        *({"name": name, "type": {"type": "array", "items": STRING}} for name in _LISTS),
        {"name": "isPartitionDeleted", **or_null("boolean")},
    ],
}  # fmt: skip
CLEANED = {
    "type": "record",
    "name": "HoodieCleanMetadata",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "startCleanTime", "type": STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "earliestCommitToRetain", "type": STRING},
        {"name": "lastCompletedCommitTimestamp", "type": STRING, "default": ""},
        {"name": "partitionMetadata", "type": map_of(_OF_PARTITION)},
        {"name": "version", "type": ["int", "null"], "default": 1},
        {"name": "bootstrapPartitionMetadata", **or_null(map_of(f"{_NAMESPACE}.HoodieCleanPartitionMetadata"))},
        {"name": "extraMetadata", **or_null(map_of(STRING))},
    ],
}
_SAVED_PARTITION = {
    "type": "record",
    "name": "HoodieSavepointPartitionMetadata",
    "fields": [{"name": "partitionPath", "type": STRING}, {"name": "savepointDataFile", "type": {"type": "array", "items": STRING}}],
}
_SAVEPOINT = {
    "type": "record",
    "name": "HoodieSavepointMetadata",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "savepointedBy", "type": STRING},
        {"name": "savepointedAt", "type": "long"},
        {"name": "comments", "type": STRING},
        {"name": "partitionMetadata", "type": map_of(_SAVED_PARTITION)},
        {"name": "version", "type": ["int", "null"], "default": 1},
    ],
}

Files = Mapping[str, Sequence[str]]  # partition → names of files in it


def plan(url: str, files: Files, retained: tuple[str, str], newest: str) -> bytes:
    """The plan that deletes `files` of the table at `url`.

    `retained`: the first instant of which all files stay, and its action ("": none is known). `newest`: the newest completed write.
    """
    paths = {p: [{"filePath": f"{url}/{names.path(p, n)}", "isBootstrapBaseFile": False} for n in files[p]] for p in sorted(files)}
    instant = {"timestamp": retained[0], "action": retained[1], "state": "COMPLETED"} if retained[0] else None
    said: dict[str, Any] = {
        "earliestInstantToRetain": instant, "lastCompletedCommitTimestamp": newest, "policy": _POLICY, "version": _VERSION,
        "filePathsToBeDeletedPerPartition": paths, "partitionsToBeDeleted": [], "filesToBeDeletedPerPartition": {},
    }  # fmt: skip
    return avro_file.of_record(said, _PLAN)


def planned(data: bytes, where: str) -> dict[str, list[BaseFile | LogFile]]:
    """Partition → the files that a plan deletes; FormatError where it is damaged, or names what is not a file of a partition."""
    if not data:
        return {}  # another program is about to lay it
    said = avro_file.record(data, where)
    paths, older = said.get("filePathsToBeDeletedPerPartition") or {}, said.get("filesToBeDeletedPerPartition") or {}
    found = dict[str, list[BaseFile | LogFile]]()
    for by_partition in (paths, older):
        if not isinstance(by_partition, dict):
            raise FormatError(f"{where} is damaged: it names no partitions. Restore it from a copy.")
        for partition, entries in by_partition.items():
            checked = names.check_partition(partition, where)
            for entry in entries or []:
                file = _file(entry.get("filePath") if isinstance(entry, dict) else entry, where)
                found.setdefault(checked, []).extend([file] if file else [])
    return found


def _file(path: Any, where: str) -> BaseFile | LogFile | None:
    """The file at a path; None: one of a kind that quire neither writes nor reads, as Hudi's own change logs."""
    found = names.file(path.rpartition("/")[2]) if isinstance(path, str) else None
    if found is None and not (isinstance(path, str) and path.endswith(_OTHERS) and ".." not in path.split("/")):
        raise FormatError(f"{where} names {str(path)[:300]!r}, which is not a file of a table: nothing was touched. Look who wrote it.")
    return found


def completed(files: Files, refused: Files, instant: str, retained: str, newest: str) -> bytes:
    """The words of a clean that has deleted `files`, and was to delete those that the store has `refused` to delete."""
    partitions = {
        partition: {
            "partitionPath": partition, "policy": _POLICY, "deletePathPatterns": [*files.get(partition, ()), *refused.get(partition, ())],
            "successDeleteFiles": list(files.get(partition, ())), "failedDeleteFiles": list(refused.get(partition, ())),
            "isPartitionDeleted": False,
        }
        for partition in sorted({*files, *refused})
    }  # fmt: skip
    said = {
        "startCleanTime": instant, "timeTakenInMillis": 0, "totalFilesDeleted": sum(map(len, files.values())),
        "earliestCommitToRetain": retained, "lastCompletedCommitTimestamp": newest, "partitionMetadata": partitions, "version": _VERSION,
    }  # fmt: skip
    return avro_file.of_record(said, CLEANED)


def retained(data: bytes, where: str) -> tuple[str, str]:
    """The first instant of which a plan lets all files stay, and the newest one that it knew; "": it does not say."""
    said = avro_file.record(data, where) if data else {}
    first = said.get("earliestInstantToRetain")
    return (str(first.get("timestamp") or "") if isinstance(first, dict) else "", str(said.get("lastCompletedCommitTimestamp") or ""))


def savepoint(files: Files, by: str, at: int, comment: str) -> bytes:
    """A savepoint that holds `files`; `at`: milliseconds since 1970."""
    partitions = {partition: {"partitionPath": partition, "savepointDataFile": list(files[partition])} for partition in sorted(files)}
    said = {"savepointedBy": by, "savepointedAt": at, "comments": comment, "partitionMetadata": partitions, "version": 1}
    return avro_file.of_record(said, _SAVEPOINT)


def saved(data: bytes, where: str) -> tuple[str, int, str]:
    """The maker of a savepoint, its time (milliseconds since 1970), and the comment."""
    said = avro_file.record(data, where)
    by, at, comment = said.get("savepointedBy"), said.get("savepointedAt"), said.get("comments")
    return str(by or ""), at if isinstance(at, int) and 0 <= at < _LATEST else 0, str(comment or "")


def names_of(files: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Partition → names in their order, of pairs of both."""
    found = dict[str, list[str]]()
    for partition, name in sorted(files):
        found.setdefault(partition, []).append(name)
    return found
