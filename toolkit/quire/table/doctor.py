"""`Table.doctor`: what is wrong with a table, and the call that mends it; and the call that deletes what died programs have left."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from quire import display
from quire.arguments import format_size, seconds
from quire.commit import protocol
from quire.errors import RefusedError, printable
from quire.spark.runner import LocalRunner
from quire.storage import connect, remove_all
from quire.storage.within import marked
from quire.table import file_groups, findings
from quire.table.findings import SHOWN, Finding
from quire.table.format.config import MERGE_ON_READ
from quire.table.settings import opened

if TYPE_CHECKING:
    from quire.table.services import Services
    from quire.table.table import Table

OLD = "24 h"


@dataclasses.dataclass(frozen=True, repr=False)
class TableHealth(display.Shown):
    """The state of a table, as a look finds it that changes nothing.

    dest       the table
    findings   what is wrong, the gravest first: each has `kind`, `what`, `mend` (the call that mends it), `count`, `bytes` and `names`
    files      base files and logs that are there
    instants   completed writes on the timeline
    records    rows whose keys were compared; None: they were not
    seconds    how long it took

        health = table.doctor()  # a quire.TableHealth
        health.healthy, [(each.kind, each.mend) for each in health.findings]
    """

    dest: str
    findings: tuple[Finding, ...] = ()
    files: int = 0
    instants: int = 0
    records: int | None = None
    seconds: float = 0.0

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def as_dict(self) -> dict[str, Any]:
        """Returns it as JSON takes it, findings as a list of dictionaries.

            json.dumps(table.doctor().as_dict())

        `healthy` is among them.
        """
        shown = super().as_dict() | {"findings": [dataclasses.asdict(each) for each in self.findings]}
        return {"healthy": self.healthy, **shown}

    def __repr__(self) -> str:
        return f"TableHealth(healthy={self.healthy}, findings={[each.kind for each in self.findings]}, files={self.files:,})"

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {"found": f"{len(self.findings):,} things that are wrong" if self.findings else "nothing that is wrong"}
        rows["looked at"] = f"{self.files:,} files, {self.instants:,} writes"
        if self.records is not None:
            rows["keys compared"] = f"{self.records:,}"
        return rows | {"seconds": f"{self.seconds:.1f}"}

    def _note(self) -> str:
        said = []
        for each in self.findings:
            size = f", {format_size(each.bytes)}" if each.bytes else ""
            said.append(printable(f"{each.kind} ({each.count:,}{size}): {each.what}."))
            said += [printable(f"    {name}") for name in each.names]
            if each.count > len(each.names) >= SHOWN:
                said.append(f"    and {each.count - len(each.names):,} more")
            said.append(printable(f"  {each.mend}"))
        return "\n".join(said)


def doctor(table: Table, options: Mapping[str, Any] | None, *, records: bool, spark: Any) -> TableHealth:
    """See `Table.doctor`."""
    began, store = time.monotonic(), connect(marked(table.url), options)
    table._timeline(store)  # RefusedError for one that quire does not read
    seen = findings.look(store, table.config)
    found, rows = findings.found(seen), None
    if records and not seen.line.completed:
        rows = 0
    elif records:
        rows, twice = _compared(table, spark)
        found = [*twice, *found]
    return TableHealth(table.url, tuple(found), len(seen.files), len(seen.line.completed), rows, time.monotonic() - began)


def _compared(table: Table, spark: Any) -> tuple[int, list[Finding]]:
    """How many rows there are, and keys that stand in several of them: of a partition, as every index looks there for a key."""
    columns = list(dict.fromkeys([*table.config.key, *table.config.partition_by]))
    if not table.config.key:
        raise RefusedError(f"{table.url} names no record key, so nobody can tell whether one is there twice: leave records= out.")
    if isinstance(spark, LocalRunner):
        rows = table.snapshot(spark=spark, columns=columns)
        counts = rows.group_by(columns).aggregate([([], "count_all")])
        more = counts.filter(pc.greater(counts.column("count_all"), 1))
        total, keys, some = rows.num_rows, more.num_rows, more.slice(0, SHOWN).select(columns).to_pylist()
    else:
        from pyspark.sql import functions as f

        frame = table.snapshot(spark=spark, columns=columns)
        counts = frame.groupBy(*[frame[f"`{name}`"] for name in columns]).agg(f.count(f.lit(1)).alias("_quire_count"))
        more = counts.where("_quire_count > 1")
        total, keys = frame.count(), more.count()
        some = [{name: row[name] for name in columns} for row in more.limit(SHOWN).collect()] if keys else []
    if not keys:
        return total, []
    what = "record keys stand in several rows: `insert` does not look for keys, or two programs have inserted at once"
    # Logs delete the first row alone of a key that a base file has twice, as Hudi reads them.
    until = " and table.compact(), again until none of them is there" if table.config.type == MERGE_ON_READ else ""
    mend = f"table.delete(rows with these keys){until}, then table.insert(one row of each)"
    return total, [Finding("duplicate keys", what, mend, keys, names=tuple(str(each) for each in some))]


def remove_leftovers(table: Services, options: Mapping[str, Any] | None, older_than: str | float) -> int:
    """See `Table.remove_leftovers`."""
    store, age = connect(marked(table.url), options), seconds(older_than, "older_than")
    opened(store)
    protocol.recover(store)  # what is committed appears first
    seen = findings.look(store, table.config)
    opened(store)  # again: had another program upgraded the table meanwhile, its timeline would look empty
    old = seen.now.timestamp() - age
    going = [entry for entry in findings.leftovers(seen) if 0 < entry.modified / 1e9 <= old]
    gone = [entry.name for entry in going]
    if table.config.cdc:  # first: the files that are left name them, if this call dies
        remove_all(store, file_groups.cdc_logs(store, gone))
    remove_all(store, gone)
    return len(going)
