"""Plans of compactions: which file groups of a merge-on-read table are to be rewritten without their logs.

Source: `HoodieCompactionPlan` of Hudi, an Avro container file of one record, `.hoodie/<instant>.compaction.requested`.
"""

from __future__ import annotations

from quire.errors import FormatError
from quire.table.format import avro_file, names


def groups(data: bytes, where: str) -> list[tuple[str, str]]:
    """Partition and file group of each operation of a plan; FormatError where it is damaged, or leads out of the table."""
    if not data:
        return []
    found = list[tuple[str, str]]()
    operations = avro_file.record(data, where).get("operations") or []
    for each in operations if isinstance(operations, list) else [operations]:
        partition, group = (each.get("partitionPath"), each.get("fileId")) if isinstance(each, dict) else (None, None)
        if not isinstance(partition, str) or not isinstance(group, str) or not names.is_file_id(group):
            raise FormatError(f"{where} is damaged: an operation of the plan names no file group. Restore it from a copy.")
        found.append((names.check_partition(partition, where), group))
    return found
