"""Plans of clusterings that other programs have laid: the slices whose rows they lay out anew.

Source: Hudi's `HoodieRequestedReplaceMetadata`, `HoodieClusteringPlan` and `HoodieSliceInfo`. Nothing is opened by the names in a plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from quire.table.format import avro_file


def slices(data: bytes, where: str) -> dict[tuple[str, str], frozenset[str]] | None:
    """(partition, file group) → the names of the files that a plan reads of it; None: it plans nothing, as quire's do.

    FormatError where it is damaged.
    """
    plan = avro_file.record(data, where).get("clusteringPlan") if data else None
    if not isinstance(plan, dict):
        return None
    found = dict[tuple[str, str], frozenset[str]]()
    for one in _slices(plan):
        paths = [one.get("dataFilePath"), *(one.get("deltaFilePaths") or ())]
        files = frozenset(path.rpartition("/")[2] for path in paths if isinstance(path, str) and path)
        found[str(one.get("partitionPath") or ""), str(one.get("fileId"))] = files
    return found


def _slices(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for group in plan.get("inputGroups") or ():
        yield from (one for one in (group.get("slices") or () if isinstance(group, dict) else ()) if isinstance(one, dict))
