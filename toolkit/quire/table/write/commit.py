"""The words of a commit about the files that it has written: its completed instant's content, the sums for a report, and partitions.

Source: `HoodieWriteStat` of Hudi, as its handles that merge and append fill it in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import msgspec

from quire.commit.entries import DataFile
from quire.table.file_groups import Slice
from quire.table.format import config, names, schema
from quire.table.format.commits import CommitMetadata, RuntimeStats, WriteStat
from quire.table.write.merge import Merged
from quire.table.write.write import Written

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "schema"
JOB, ENTRY = "quire.job", "quire.entry"  # who has written a commit, and the number of the log's entry, known when that has its slot
COMPACT = "compact"  # the operation that writes slices anew without their logs
CHANGE_FILES = "quire.changes"  # in the extra metadata of a commit whose changes lie in change files
_FORMAT = "1"


def metadata(
    written: Sequence[Written], table: str, columns: pa.Schema, operation: str, extra: Mapping[str, str] | None = None,
    slices: Iterable[Slice] = (), replaced: Mapping[str, Sequence[str]] | None = None,
) -> CommitMetadata:  # fmt: skip
    """The commit of the files that were written: `operation` as "upsert", `columns` those of the table after it, without meta columns.

    `extra`: more of its extra metadata. `slices`: those to which log files were added, or that were compacted. `replaced`: of a
    replacecommit, partition → the file groups that end. Also a commit without a file needs the schema: readers fail without one.
    """
    there, compacts = {(one.partition, one.group): one for one in slices}, operation == COMPACT
    stats = dict[str, list[WriteStat]]()
    for each in written:
        if each.file is not None:
            one = there.get((each.partition, each.group))
            stat = _of_log(each, each.file, log, one) if (log := _log(each)) else _of_base(each, each.file, one if compacts else None)
            stats.setdefault(each.partition, []).append(stat)
    said: dict[str, str | None] = {**(extra or {}), SCHEMA: schema.to_avro(columns, table)}
    if all(each.changes or not each.previous for each in written if each.file):
        said[CHANGE_FILES] = _FORMAT
    found = CommitMetadata(partition_to_write_stats=stats, compacted=compacts, extra_metadata=said, operation_type=operation.upper())
    if replaced is None:
        return found
    return msgspec.structs.replace(
        found, partition_to_replace_file_ids={partition: list(groups) for partition, groups in replaced.items() if groups}
    )


def _log(each: Written) -> names.LogFile | None:
    """The log file that was written; None: it is a base file, or nothing."""
    return names.log_file(each.file.name.rpartition("/")[2]) if each.file else None


def _of_log(each: Written, file: DataFile, log: names.LogFile, one: Slice | None) -> WriteStat:
    logs, counts = [name.rpartition("/")[2] for name in (one.logs if one else ())], each.counts
    own = [name for name in logs if (found := names.log_file(name)) and found.instant == log.instant]
    return WriteStat(
        file_id=each.group, path=file.name, prev_commit=log.instant, num_writes=counts.updates, num_deletes=counts.deletes,
        num_update_writes=counts.updates, total_write_bytes=file.size, partition_path=each.partition, file_size_in_bytes=file.size,
        runtime_stats=RuntimeStats(total_upsert_time=_milliseconds(each)), log_version=log.number, log_offset=0,
        base_file=one.name.rpartition("/")[2] if one and one.instant == log.instant else "", log_files=[*own, log.name],
        records_stats={"val": msgspec.Raw(b"null")},
    )  # fmt: skip


def _of_base(each: Written, file: DataFile, compacted: Slice | None) -> WriteStat:
    counts, took = each.counts, _milliseconds(each)
    stat = WriteStat(
        file_id=each.group, path=file.name, prev_commit=each.previous or "null", num_writes=file.records, num_deletes=counts.deletes,
        num_update_writes=counts.updates, num_inserts=counts.inserts, total_write_bytes=file.size, partition_path=each.partition,
        file_size_in_bytes=file.size,
        runtime_stats=RuntimeStats(total_upsert_time=took) if each.previous else RuntimeStats(total_create_time=took),
        cdc_stats={each.cdc.name: each.cdc.size} if each.cdc else None,
    )  # fmt: skip
    if compacted is None:
        return stat
    return msgspec.structs.replace(
        stat, total_log_records=each.said, total_log_blocks=each.blocks, total_log_files_compacted=len(compacted.logs),
        total_log_size_compacted=compacted.logged, total_updated_records_compacted=counts.updates,
    )  # fmt: skip


def _milliseconds(each: Written) -> int:
    return round(each.seconds * 1000)


def numbered(commit: CommitMetadata, number: int) -> CommitMetadata:
    """The same commit with the number of its entry: that of every publisher."""
    return msgspec.structs.replace(commit, extra_metadata={**(commit.extra_metadata or {}), ENTRY: str(number)})


def files(written: Iterable[Written]) -> tuple[DataFile, ...]:
    """All that is to be published, before the instant."""
    return tuple(file for each in written for file in each.outputs)


def named(commit: CommitMetadata) -> set[str]:
    """All files that a commit needs, by what its completed instant says."""
    found = set[str]()
    for _, stat, name in commit.files():
        if stat.path:
            has_changes = isinstance(name, names.BaseFile) and has_change_file(commit, stat)
            found |= {stat.path, names.change_file_of(stat.path)} if has_changes else {stat.path}
        found |= set(stat.cdc_stats or ())
    return found


def has_change_file(commit: CommitMetadata, stat: WriteStat) -> bool:
    """Whether a file of the commit has a change file; that of a new file group has none, as each of its rows is inserted."""
    return (commit.extra_metadata or {}).get(CHANGE_FILES) == _FORMAT and replaces(stat) is not None


def replaces(stat: WriteStat) -> str | None:
    """The instant of the slice that a file replaces; None: its file group is new."""
    return None if stat.prev_commit in (None, "", "null") else stat.prev_commit


def totals(written: Iterable[Written]) -> dict[str, int]:
    """The sums of what happened to rows."""
    total = asdict(Merged())
    for each in written:
        total = {name: count + getattr(each.counts, name) for name, count in total.items()}
    return total


def partitions(of: Iterable[str], instant: str) -> dict[str, bytes]:
    """Name → content of the partitions' own metadata, put if absent: JVM Hudi lists only what has it."""
    return {names.path(p, names.PARTITION_METADATA): config.partition_metadata(instant, p.count("/") + 1 if p else 0) for p in sorted(of)}
