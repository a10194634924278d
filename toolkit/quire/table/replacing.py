"""The rows of whole partitions replaced, or taken away: their file groups end with an instant, and stay for whoever reads an older one.

Source: Hudi's `insert_overwrite` and `delete_partition`. See docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa

from quire.errors import RefusedError, UsageError, quoted
from quire.formats.damage import ARROW
from quire.table.format import commits, schema
from quire.table.format.config import TableConfig
from quire.table.format.keys import partition_paths
from quire.table.rounds import DROP, Round, columns_id
from quire.table.timeline import REPLACE
from quire.table.view import View, there
from quire.table.write import commit as made
from quire.table.write.blocks import Closing
from quire.table.write.write import Written

_SHOWN = 5  # partitions in an error


def ending(view: View, partitions: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Partition → its file groups, which are to end.

    RefusedError where a plan of a compaction has some of them: whoever carries that out would write slices that no reader finds.
    """
    if planned := sorted(instant for (partition, _), instant in view.line.compacting().items() if partition in partitions):
        raise RefusedError(
            f"the compaction {planned[0]} of {view.log.store.url} is pending, and its plan names files of these partitions: carry it out "
            "(table.compact(schedule=False)), and call again."
        )
    found: dict[str, list[str]] = {partition: [] for partition in sorted(partitions)}
    for one in view.slices:
        if one.partition in found:
            found[one.partition].append(one.group)
    return {partition: tuple(groups) for partition, groups in found.items()}


@dataclass
class Drop:
    """The round that takes partitions away; those that others have taken away since they were named are passed over."""

    config: TableConfig
    partitions: Sequence[str]
    replaced: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of the last round

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`. RefusedError where a compaction is pending there."""
        self.replaced = {partition: groups for partition, groups in ending(view, set(self.partitions)).items() if groups}
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`."""
        said = Round(
            instant=view.drawn, action=REPLACE, version=view.version, operation=DROP, inserts=(), counts={}, replaced=self.replaced,
            ended=view.ended,
        )  # fmt: skip
        if not self.replaced:
            return said, b""
        columns = schema.without_meta(there(view.line, self.config) or pa.schema([]))
        said = msgspec.structs.replace(said, saw=columns_id(columns), columns=columns_id(columns))
        content = made.metadata([], self.config.name, columns, DROP, {made.JOB: closing.job}, replaced=self.replaced)
        return said, commits.encode(content)


def asked_for(intent: Mapping[str, Any]) -> list[str]:
    """The partitions that a frozen job is to take away."""
    return [str(partition) for partition in intent.get("partitions", ())]


# ------------------------------------------------------------------------------------------------------- partitions as users name them
def check(given: Any, config: TableConfig, url: str) -> list[Any]:
    """The partitions that a caller names, one by one: paths, dicts, and values; UsageError for what can name none."""
    fields = config.partition_by
    if not fields:
        raise UsageError(f"{url} has no partitions: name none. Delete its rows by their keys, or replace all with insert_overwrite.")
    many = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping | tuple)
    found = list(given) if many else [given]
    if given is None:  # as a setting that is not there
        raise UsageError("partitions is None: name at least one. That of missing values is [None].")
    if not found:
        raise UsageError("partitions is empty: name at least one.")
    for each in found:
        if isinstance(each, Mapping) and set(each) != set(fields):
            raise UsageError(f"{quoted(each)} does not name a partition of {url}, which needs a value for each of: {', '.join(fields)}.")
        if isinstance(each, tuple) and len(each) != len(fields):
            raise UsageError(f"{quoted(each)} has {len(each)} values, and a partition of {url} has {len(fields)}: {', '.join(fields)}.")
        if not isinstance(each, str | Mapping | tuple) and len(fields) > 1:
            raise UsageError(f"{quoted(each)} does not name a partition of {url}: give a path, or a value for each of {', '.join(fields)}.")
    return found


def paths(named: Sequence[Any], config: TableConfig, columns: pa.Schema, known: Collection[str], url: str) -> list[str]:
    """The paths of the partitions that a caller names, in order, each once; UsageError for one that the table does not have."""
    found = set[str]()
    for each in named:
        meant = list(_candidates(each, config, columns))
        path = next((path for path in meant if path in known), None)
        if path is None:
            wanted = each if not meant or (isinstance(each, str) and "=" in each) else meant[-1]
            some, more = ", ".join(sorted(known)[:_SHOWN])[:400], f" and {len(known) - _SHOWN:,} more" if len(known) > _SHOWN else ""
            raise UsageError(f"{url} has no partition {quoted(wanted)}. It has: {some or 'none'}{more}.")
        found.add(path)
    return sorted(found)


def _candidates(each: Any, config: TableConfig, columns: pa.Schema) -> Iterator[str]:
    """The paths that a caller may mean: text is a path first, and then the value of the one column."""
    fields = config.partition_by
    if isinstance(each, str):
        yield each
    values = tuple(each[name] for name in fields) if isinstance(each, Mapping) else each if isinstance(each, tuple) else (each,)
    if len(values) != len(fields):
        return
    try:
        arrays = [pa.array([value]).cast(columns.field(name).type) for name, value in zip(fields, values, strict=True)]
        row = pa.record_batch(arrays, names=list(fields))
        made = partition_paths(row, fields, hive_style=config.hive_style, url_encode=config.url_encode)
    except (*ARROW, ValueError, TypeError, KeyError, OverflowError, RefusedError):
        return  # no value of this column, so no partition of it
    yield made.cast(pa.string())[0].as_py()
