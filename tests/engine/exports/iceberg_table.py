"""An Iceberg table as its specification says to read it: what its newest metadata offer. It shares no code with quire."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro

METADATA = re.compile(r"_iceberg/metadata/v([0-9]+)\.metadata\.json")


def metadata(there: Mapping[str, bytes]) -> dict[int, dict[str, Any]]:
    """All metadata by their numbers. An empty object is a write that was cut off."""
    found = {int(at[1]): json.loads(there[name]) for name in there if (at := METADATA.fullmatch(name)) and there[name]}
    assert sorted(found) == list(range(1, len(found) + 1)), f"the metadata have a gap: {sorted(found)}"
    return found


def records(data: bytes) -> list[Any]:
    return list(fastavro.reader(io.BytesIO(data)))


def entries(said: dict[str, Any], snapshot: dict[str, Any], there: Mapping[str, bytes]) -> Iterator[dict[str, Any]]:
    """The entries of a snapshot's manifests, with what the list says of each checked."""

    def get(address: str) -> bytes:
        assert address.startswith(said["location"])
        return there["_iceberg" + address.removeprefix(said["location"])]

    for each in records(get(snapshot["manifest-list"])):
        data = get(each["manifest_path"])
        assert len(data) == each["manifest_length"]
        assert each["sequence_number"] <= snapshot["sequence-number"] <= said["last-sequence-number"]
        found = records(data)
        counts = [sum(entry["status"] == status for entry in found) for status in (0, 1, 2)]
        assert counts == [each[f"{kind}_files_count"] for kind in ("existing", "added", "deleted")]
        assert min(entry["sequence_number"] for entry in found) == each["min_sequence_number"]
        for entry in found:
            assert entry["status"] == 0 or entry["snapshot_id"] == each["added_snapshot_id"]
            assert entry["file_sequence_number"] <= each["sequence_number"]
        yield from found


def offered(there: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    """Data file → what is said of it, of the newest metadata, and of each older snapshot that these still have."""
    found = metadata(there)
    if not found:
        return {}
    versions = [int(_current(said)["summary"]["quire.version"]) for _, said in sorted(found.items())]
    assert versions == sorted(set(versions)), "each version once, in their order"
    said = found[max(found)]
    assert len({each["snapshot-id"] for each in said["snapshots"]}) == len(said["snapshots"])
    files = {each["snapshot-id"]: _files(said, each, there) for each in said["snapshots"]}
    for of in files.values():
        assert set(of) <= set(there), "each snapshot that is there is whole"
    now = files[said["current-snapshot-id"]]
    assert int(_current(said)["summary"]["total-data-files"]) == len(now)
    return now


def _files(said: dict[str, Any], snapshot: dict[str, Any], there: Mapping[str, bytes]) -> dict[str, dict[str, Any]]:
    root, files = said["location"].removesuffix("/_iceberg"), dict[str, dict[str, Any]]()
    for entry in entries(said, snapshot, there):
        if entry["status"] == 2:
            continue
        file = entry["data_file"]
        assert file["file_path"].startswith(f"{root}/")
        name = file["file_path"].removeprefix(f"{root}/")
        assert name not in files, f"{name} is there twice"
        files[name] = file
    return files


def _current(said: dict[str, Any]) -> dict[str, Any]:
    (found,) = [each for each in said["snapshots"] if each["snapshot-id"] == said["current-snapshot-id"]]
    return dict(found)
