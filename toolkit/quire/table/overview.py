"""A table at a glance: its settings, its files and rows by partition, its instants, and its first rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire import display
from quire.arguments import format_size
from quire.errors import printable
from quire.storage import connect
from quire.storage.within import marked
from quire.table import file_groups, reading, replacing, settings
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.format import cleaning, config
from quire.table.format.commits import CommitMetadata
from quire.table.format.names import Instant
from quire.table.rounds import CLUSTER
from quire.table.timeline import CLEAN, PARALLEL, WRITES, Timeline
from quire.table.view import there

if TYPE_CHECKING:
    import pandas as pd

    from quire.table.table import Table

SHOWN = 20  # partitions as text; all are in `partitions`
LAST = 5  # instants
_WORDS = {"inserted": "num_inserts", "updated": "num_update_writes", "deleted": "num_deletes"}
_NUMBERS = ["files", "bytes", *_WORDS, "deleted_files"]


@dataclasses.dataclass(frozen=True)
class Overview(display.Shown):
    """A table's settings, by the names that `Table.create` has for them, and how much it holds now.

    columns           name → type, of Arrow; none where nothing has been written yet
    files, bytes      base files that count, and their size
    logs, log_bytes   logs that count, and their size: `Table.compact` takes them into base files
    rows              of the table; None where a commit that knows it has been archived, or logs change a base file
    partitions        for each its path, files, bytes and rows
    instants          the last ones, as `instants` has them
    """

    dest: str
    name: str
    type: str
    version: int
    key: list[str]
    partition_by: list[str]
    ordering: str | None
    index: str
    buckets: int | None
    hive_style: bool
    change_files: bool
    target_size: int
    log_format: str
    cdc: str | None
    columns: dict[str, str]
    files: int
    bytes: int
    logs: int
    log_bytes: int
    rows: int | None
    partitions: list[dict[str, Any]]
    instants: list[dict[str, Any]]

    def _facts(self) -> Mapping[str, object]:
        return {
            "name": self.name, "type": f"{self.type}, version {self.version}", "key": ", ".join(self.key) or "not said",
            "partition_by": ", ".join(self.partition_by) or "nothing", "ordering": self.ordering or "none: the later call wins",
            "index": self.index if self.buckets is None else f"{self.index}, {self.buckets:,} buckets",
            "hive_style": self.hive_style, "change_files": self.change_files, **({"cdc": self.cdc} if self.cdc else {}),
            "target_size": format_size(self.target_size),
            "columns": ", ".join(f"{name} {kind}" for name, kind in self.columns.items())[:1_000] or "none: nothing has been written yet",
            "rows": _count(self.rows),
            "base files": f"{self.files:,} ({format_size(self.bytes)})",
            **({"logs": f"{self.logs:,} ({format_size(self.log_bytes)})"} if self.logs else {}), "partitions": f"{len(self.partitions):,}",
        }  # fmt: skip

    def _note(self) -> str:
        largest = sorted(self.partitions, key=lambda each: -each["bytes"])[:SHOWN]
        said = [
            f"  {one['partition'] or '(none)'}: rows {_count(one['rows'])}, base files {one['files']:,} ({format_size(one['bytes'])})"
            for one in largest
        ]
        if len(self.partitions) > SHOWN:
            said.append(f"  and {len(self.partitions) - SHOWN:,} smaller partitions")
        said += [f"  {each['instant']} {each['operation'] or each['action']} {each['state']}" for each in self.instants]
        return "\n".join(map(printable, said))


def _count(number: int | None) -> str:
    return "not known" if number is None else f"{number:,}"


def overview(table: Table, options: Mapping[str, Any] | None = None) -> Overview:
    """A table at a glance, without a look into base files; `options`: its store's. RefusedError for one that quire does not read."""
    store = connect(marked(table.url), options)
    has, more, line = table.config, settings.read(store), table._timeline(store)
    slices = file_groups.newest(store, line, logs=has.type == config.MERGE_ON_READ)
    parts = dict[str, dict[str, Any]]()
    for one, count in zip(slices, rows_in(line, slices), strict=True):
        part = parts.setdefault(one.partition, {"partition": one.partition, "files": 0, "bytes": 0, "rows": 0})
        part["files"] += bool(one.name)
        part["bytes"] += one.size
        part["rows"] = _sum([part["rows"], count])
    columns, said = there(line, has), dict(has.others)
    buckets = int(said[indexes.BUCKETS]) if said.get(indexes.BUCKETS, "").isdecimal() else None
    return Overview(
        table.url, has.name, has.type.lower(), has.version, list(has.key), list(has.partition_by), has.ordering,
        said.get(indexes.TYPE, "bloom").lower(), buckets,
        has.hive_style, more.change_files, more.target, more.log_format, has.cdc.lower() or None,
        {f.name: str(f.type) for f in columns or []}, len(slices),
        sum(one.size for one in slices), sum(len(one.logs) for one in slices), sum(one.logged for one in slices),
        _sum([part["rows"] for part in parts.values()]), list(parts.values()), _instants(line, LAST),
    )  # fmt: skip


def rows_in(line: Timeline, slices: Sequence[Slice]) -> list[int | None]:
    """How many rows each slice has; None where its commit has been archived, or logs change it."""
    wanted = {one.instant for one in slices}
    return totals(line, slices, [instant for instant in line.completed if instant.time in wanted])[0]


def totals(line: Timeline, slices: Sequence[Slice], writes: Sequence[Instant]) -> tuple[list[int | None], int, int]:
    """How many rows each slice has, by those of some completed writes that wrote it; the bytes and the rows that all of these wrote."""
    there, counts, written, changed = {one.name for one in slices}, dict[str | None, int](), 0, 0
    for instant, commit in zip(writes, line.commits(writes), strict=True):
        counts |= {stat.path: stat.num_writes for _, stat, _ in commit.files() if stat.path in there}
        row = _row(instant, commit)
        written, changed = written + row["bytes"], changed + sum(row[word] for word in _WORDS)
    return [None if one.logs else counts.get(one.name) for one in slices], written, changed


def partitions(table: Table, options: Mapping[str, Any] | None, named: Sequence[Any]) -> pd.DataFrame:
    """Path, files, bytes and rows of some partitions, named as in `Table.delete_partitions`, which has the same errors."""
    import pandas as pd

    there = {one["partition"]: one for one in overview(table, options).partitions}
    wanted = replacing.check(named, table.config, table.url)
    line = table._timeline(connect(marked(table.url), options))
    chosen = replacing.paths(wanted, table.config, table._columns(line), there.keys(), table.url)
    return pd.DataFrame([there[path] for path in chosen]).astype({"rows": "Int64"})


def _sum(numbers: Sequence[int | None]) -> int | None:
    return None if None in numbers else sum(each for each in numbers if each is not None)


def rows(table: Table, columns: Sequence[str] | None = None, *, read_optimized: bool = False) -> Iterator[dict[str, Any]]:
    """The rows of `table.snapshot`, a part of a base file at a time: whoever stops early reads no more. The same errors, at once."""
    store, found, there, wanted, merging = table._newest(columns, read_optimized=read_optimized)
    shown = pa.schema([there.field(name) for name in wanted])
    batches = (batch for one in found for batch in reading.rows_of(store, one, shown, merging))
    return (row for batch in batches for row in reading.as_python(batch, table.url))


def instants(table: Table, options: Mapping[str, Any] | None = None, *, last: int | None = None) -> pd.DataFrame:
    """See `Table.timeline`."""
    return frame(table._timeline(connect(marked(table.url), options)), last)


def frame(line: Timeline, last: int | None) -> pd.DataFrame:
    """See `Table.timeline`."""
    return framed(_instants(line, last))


def framed(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of `told` in the columns of `Table.timeline`."""
    import pandas as pd

    found = pd.DataFrame(rows, columns=["instant", "action", "state", "operation", *_NUMBERS], dtype=object)
    return found.astype(dict.fromkeys(_NUMBERS, "Int64"))


def _instants(line: Timeline, last: int | None) -> list[dict[str, Any]]:
    found = every(line)
    return told(line, found if last is None else found[max(0, len(found) - last) :])


def every(line: Timeline) -> list[Instant]:
    """All that `Table.timeline` has, the oldest first; nothing is read for it."""
    cleans = {i.time for i in line.pending if i.action == CLEAN}
    done_with = (Instant(time, CLEAN) for time in line.cleans - cleans if time <= line.until)
    others = (instant for instant in line.others if instant.time <= line.until)
    return sorted([*line.completed, *line.pending, *done_with, *others])


def told(line: Timeline, chosen: Sequence[Instant]) -> list[dict[str, Any]]:
    """Some instants with their numbers; one request for each write and clean."""
    done = [instant for instant in chosen if instant.state == "completed" and instant.action in WRITES]
    rows = {each: _row(each, commit) for each, commit in zip(done, line.commits(done), strict=True)}
    with ThreadPoolExecutor(PARALLEL) as pool:
        cleaned = pool.map(lambda each: _clean(line, each), (each for each in chosen if each.action == CLEAN))
        return [next(cleaned) if each.action == CLEAN else rows.get(each) or _row(each, None) for each in chosen]


def _clean(line: Timeline, instant: Instant) -> dict[str, Any]:
    plan, where = line.clean_of(instant.time)
    files = sum(map(len, cleaning.planned(plan, where).values()))
    return {**_row(instant, None), "operation": CLEAN, "deleted_files": files}


def _row(instant: Instant, commit: CommitMetadata | None) -> dict[str, Any]:
    said: dict[str, Any] = {"instant": instant.time, "action": instant.action, "state": instant.state, "operation": None}
    if commit is None and instant.state == "completed":
        said["operation"] = instant.action
    if commit is None:
        return said | dict.fromkeys(_NUMBERS)
    stats = [stat for _, stat, _ in commit.files()]
    moved = commit.compacted or (commit.operation_type or "").lower() == CLUSTER
    changes = () if moved else stats  # what a compaction brings into base files had been changed before
    counts = {word: sum(getattr(stat, name) for stat in changes) for word, name in _WORDS.items()}
    operation = (commit.operation_type or "").lower() or None
    return said | {
        "operation": operation,
        "files": len(stats),
        "bytes": sum(stat.file_size_in_bytes for stat in stats),
        **counts,
        "deleted_files": None,
    }
