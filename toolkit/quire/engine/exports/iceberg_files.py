"""Iceberg's manifests (which data files there are) and lists of manifests, in Avro (its table spec, version 2).

Only whole files of data are in them, without deletes of rows and without statistics of columns.
"""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException

EXISTING, ADDED, DELETED = 0, 1, 2


class DataFile(NamedTuple):
    """A data file: its address, its values of the partition columns by their Avro names, and the snapshot that added it."""

    path: str
    partition: dict[str, Any]
    records: int
    size: int
    snapshot: int
    sequence: int
    status: int = ADDED


_FIELDS = {
    "manifest_path": ("string", 500), "manifest_length": ("long", 501), "partition_spec_id": ("int", 502), "content": ("int", 517),
    "sequence_number": ("long", 515), "min_sequence_number": ("long", 516), "added_snapshot_id": ("long", 503),
    "added_files_count": ("int", 504), "existing_files_count": ("int", 505), "deleted_files_count": ("int", 506),
    "added_rows_count": ("long", 512), "existing_rows_count": ("long", 513), "deleted_rows_count": ("long", 514),
}  # fmt: skip
_LIST = {
    "type": "record", "name": "manifest_file",
    "fields": [{"name": name, "type": kind, "field-id": number} for name, (kind, number) in _FIELDS.items()],
}  # fmt: skip


def _optional(name: str, kind: str, number: int) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None, "field-id": number}


def _entry(partition: Any) -> dict[str, Any]:
    file = [
        {"name": "content", "type": "int", "field-id": 134}, {"name": "file_path", "type": "string", "field-id": 100},
        {"name": "file_format", "type": "string", "field-id": 101}, {"name": "partition", "type": partition, "field-id": 102},
        {"name": "record_count", "type": "long", "field-id": 103}, {"name": "file_size_in_bytes", "type": "long", "field-id": 104},
    ]  # fmt: skip
    fields = [
        {"name": "status", "type": "int", "field-id": 0}, _optional("snapshot_id", "long", 1), _optional("sequence_number", "long", 3),
        _optional("file_sequence_number", "long", 4),
        {"name": "data_file", "type": {"type": "record", "name": "r2", "fields": file}, "field-id": 2},
    ]  # fmt: skip
    return {"type": "record", "name": "manifest_entry", "fields": fields}


def manifest(files: Iterable[DataFile], partition: Any, schema: Any, spec: Any) -> bytes:
    """A manifest of data files; `partition`: the Avro record of their values."""
    said = {
        "schema": json.dumps(schema), "schema-id": str(schema["schema-id"]), "partition-spec": json.dumps(spec["fields"]),
        "partition-spec-id": str(spec["spec-id"]), "format-version": "2", "content": "data",
    }  # fmt: skip
    entries = (
        {
            "status": file.status, "snapshot_id": file.snapshot, "sequence_number": file.sequence, "file_sequence_number": file.sequence,
            "data_file": {
                "content": 0, "file_path": file.path, "file_format": "PARQUET", "partition": file.partition, "record_count": file.records,
                "file_size_in_bytes": file.size,
            },
        }
        for file in files
    )  # fmt: skip
    return _written(_entry(partition), entries, said)


def listed(path: str, data: bytes, files: Sequence[DataFile], spec: int, snapshot: int, sequence: int) -> dict[str, Any]:
    """A manifest as its list has it."""
    counts, rows = [0, 0, 0], [0, 0, 0]
    for file in files:
        counts[file.status] += 1
        rows[file.status] += file.records
    return {
        "manifest_path": path, "manifest_length": len(data), "partition_spec_id": spec, "content": 0, "sequence_number": sequence,
        "min_sequence_number": min((file.sequence for file in files), default=sequence), "added_snapshot_id": snapshot,
        "added_files_count": counts[ADDED], "existing_files_count": counts[EXISTING], "deleted_files_count": counts[DELETED],
        "added_rows_count": rows[ADDED], "existing_rows_count": rows[EXISTING], "deleted_rows_count": rows[DELETED],
    }  # fmt: skip


def manifest_list(manifests: Iterable[dict[str, Any]], snapshot: int, parent: int | None, sequence: int) -> bytes:
    """The list of a snapshot's manifests."""
    said = {
        "snapshot-id": str(snapshot), "parent-snapshot-id": "null" if parent is None else str(parent), "sequence-number": str(sequence),
        "format-version": "2",
    }  # fmt: skip
    return _written(_LIST, manifests, said)


def manifests(data: bytes) -> list[dict[str, Any]]:
    """The manifests of a list; ValueError where it is damaged."""
    return [{name: each[name] for name in _FIELDS} for each in _read(data)]


def living(data: bytes) -> list[DataFile]:
    """The data files that a manifest has, as ones that are there already; ValueError where it is damaged."""
    return [
        DataFile(
            entry["data_file"]["file_path"], entry["data_file"]["partition"], entry["data_file"]["record_count"],
            entry["data_file"]["file_size_in_bytes"], entry["snapshot_id"], entry["sequence_number"], EXISTING,
        )
        for entry in _read(data) if entry["status"] != DELETED
    ]  # fmt: skip


def _read(data: bytes) -> list[Any]:
    try:
        return list(fastavro.reader(io.BytesIO(data)))
    except (EOFError, LookupError, TypeError, ArithmeticError, RecursionError, struct.error, zlib.error, SchemaParseException) as e:
        raise ValueError(f"{type(e).__name__}") from e


def _written(schema: Any, records: Iterable[Any], said: dict[str, str]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), records, codec="deflate", metadata=said)
    return sink.getvalue()
