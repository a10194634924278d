"""Rollbacks and restores as the timeline has them: which instants are taken back, and which files that deletes.

Source: `HoodieRollbackPlan`, `HoodieRollbackMetadata`, `HoodieRestorePlan` and `HoodieRestoreMetadata` of Hudi, Avro container files of one
record each, on the timeline: `<instant>.rollback.requested` and `.restore.requested` (the plan), `.rollback` and `.restore` (what was
done).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from quire.errors import FormatError
from quire.table.format import avro_file, names

_NAMESPACE = "org.apache.hudi.avro.model"
_STRING = {"type": "string", "avro.java.string": "String"}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values, "avro.java.string": "String"}


def _or_null(kind: Any) -> dict[str, Any]:
    return {"type": ["null", kind], "default": None}


_VERSION = {"name": "version", "type": ["int", "null"], "default": 1}
_INFO = {
    "type": "record",
    "name": "HoodieInstantInfo",
    "fields": [{"name": "commitTime", "type": _STRING}, {"name": "action", "type": _STRING}],
}
_REQUEST = {
    "type": "record",
    "name": "HoodieRollbackRequest",
    "fields": [
        {"name": "partitionPath", "type": _STRING},
        {"name": "fileId", **_or_null(_STRING)},
        {"name": "latestBaseInstant", **_or_null(_STRING)},
        {"name": "filesToBeDeleted", "type": _array(_STRING), "default": []},
        {"name": "logBlocksToBeDeleted", **_or_null(_map("long"))},
    ],
}
_ROLLBACK_PLAN = {
    "type": "record",
    "name": "HoodieRollbackPlan",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "instantToRollback", **_or_null(_INFO)},
        {"name": "RollbackRequests", **_or_null(_array(_REQUEST))},
        _VERSION,
    ],
}
_PARTITION = {
    "type": "record",
    "name": "HoodieRollbackPartitionMetadata",
    "fields": [
        {"name": "partitionPath", "type": _STRING},
        {"name": "successDeleteFiles", "type": _array(_STRING)},
        {"name": "failedDeleteFiles", "type": _array(_STRING)},
        {"name": "rollbackLogFiles", **_or_null(_map("long"))},
    ],
}
_ROLLBACK = {
    "type": "record",
    "name": "HoodieRollbackMetadata",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "startRollbackTime", "type": _STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "totalFilesDeleted", "type": "int"},
        {"name": "commitsRollback", "type": _array(_STRING)},
        {"name": "partitionMetadata", "type": _map(_PARTITION)},
        _VERSION,
        {"name": "instantsRollback", "type": _array(_INFO), "default": []},
    ],
}
_RESTORE_PLAN = {
    "type": "record",
    "name": "HoodieRestorePlan",
    "namespace": _NAMESPACE,
    "fields": [{"name": "instantsToRollback", "type": _array(_INFO), "default": []}, _VERSION],
}
_RESTORE = {
    "type": "record",
    "name": "HoodieRestoreMetadata",
    "namespace": _NAMESPACE,
    "fields": [
        {"name": "startRestoreTime", "type": _STRING},
        {"name": "timeTakenInMillis", "type": "long"},
        {"name": "instantsToRollback", "type": _array(_STRING)},
        {"name": "hoodieRestoreMetadata", "type": _map(_array(_ROLLBACK))},
        _VERSION,
        {"name": "restoreInstantInfo", "type": _array(f"{_NAMESPACE}.HoodieInstantInfo"), "default": []},
    ],
}


class TakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """The instants that are taken back, with the newest first, and for each of them partition → names of the files that go with it.

    writes   instant → action, of completed writes
    ends     instant → when it ended, of those writes for which the timeline says it (layout 2)
    plans    instants of compactions that have not run
    """

    writes: dict[str, str]
    ends: dict[str, str] = {}
    plans: tuple[str, ...] = ()
    files: dict[str, dict[str, tuple[str, ...]]] = {}

    def names(self) -> list[str]:
        """The files, by their names below the table."""
        return [names.path(partition, name) for files in self.files.values() for partition, some in files.items() for name in some]


_encoder, _decoder = msgspec.json.Encoder(), msgspec.json.Decoder(TakenBack)


def encode(taken: TakenBack) -> bytes:
    """The bytes by which a job keeps it."""
    return _encoder.encode(taken)


def decode(data: bytes, where: str) -> TakenBack:
    """The same read; FormatError where it is damaged, or names what is neither a write nor a file of a table."""
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as e:
        raise FormatError(f"{where} is damaged: {str(e)[:200]}. Restore it from a copy.") from e
    for time, action in (*found.writes.items(), *((plan, "compaction") for plan in found.plans)):
        if names.instant(f"{time}.{action}.requested") is None:
            raise FormatError(f"{where} names the instant {time[:40]!r}.{action[:40]!r}: nothing was touched. Look who wrote it.")
    for time, ended in found.ends.items():
        if names.instant(f"{time}_{ended}.{found.writes.get(time, '')}") is None:
            raise FormatError(f"{where} says that {time[:40]!r} ended at {ended[:40]!r}: nothing was touched. Look who wrote it.")
    for files in found.files.values():
        for partition, some in files.items():
            names.check_partition(partition, where)
            if bad := next((name for name in some if names.file(name) is None), None):
                raise FormatError(f"{where} names {bad[:300]!r}, which is not a file of a table: nothing was touched. Look who wrote it.")
    return found


def _infos(taken: TakenBack) -> list[dict[str, str]]:
    found = {**dict.fromkeys(taken.plans, "compaction"), **taken.writes}
    return [{"commitTime": time, "action": found[time]} for time in sorted(found, reverse=True)]


def rollback_plan(taken: TakenBack) -> bytes:
    """The plan of a rollback of one write."""
    requests = [
        {"partitionPath": partition, "fileId": "", "latestBaseInstant": "", "filesToBeDeleted": [names.path(partition, name)]}
        for files in taken.files.values() for partition, some in files.items() for name in some
    ]  # fmt: skip
    return avro_file.of_record({"instantToRollback": _infos(taken)[0], "RollbackRequests": requests, "version": 1}, _ROLLBACK_PLAN)


def restore_plan(taken: TakenBack) -> bytes:
    """The plan of a restore."""
    return avro_file.of_record({"instantsToRollback": _infos(taken), "version": 1}, _RESTORE_PLAN)


def _rolled_back(info: Mapping[str, str], files: Mapping[str, Sequence[str]], began: str) -> dict[str, Any]:
    partitions = {
        partition: {"partitionPath": partition, "successDeleteFiles": [names.path(partition, n) for n in some], "failedDeleteFiles": []}
        for partition, some in sorted(files.items())
    }
    return {
        "startRollbackTime": began, "timeTakenInMillis": 0, "totalFilesDeleted": sum(map(len, files.values())),
        "commitsRollback": [info["commitTime"]], "partitionMetadata": partitions, "version": 1, "instantsRollback": [dict(info)],
    }  # fmt: skip


def rolled_back(taken: TakenBack, began: str) -> bytes:
    """The words of a rollback that is done, which began at an instant."""
    (info,) = _infos(taken)
    return avro_file.of_record(_rolled_back(info, taken.files.get(info["commitTime"], {}), began), _ROLLBACK)


def restored(taken: TakenBack, began: str) -> bytes:
    """The words of a restore that is done, which began at an instant."""
    infos = _infos(taken)
    each = {info["commitTime"]: [_rolled_back(info, taken.files.get(info["commitTime"], {}), began)] for info in infos}
    said = {
        "startRestoreTime": began, "timeTakenInMillis": 0, "instantsToRollback": list(each), "hoodieRestoreMetadata": each, "version": 1,
        "restoreInstantInfo": infos,
    }  # fmt: skip
    return avro_file.of_record(said, _RESTORE)
