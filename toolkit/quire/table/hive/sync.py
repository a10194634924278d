"""The call that registers a table in a Hive metastore.

look at the table → create or change each of its names → partitions → the instant → look again, until nothing is left to do

A step follows from what is there, so that a call that dies is completed by the next one, and of two at once each leaves what is right,
or sees that it is not.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from quire import display
from quire.errors import TransientError, UsageError
from quire.storage.address import readable
from quire.table import file_groups
from quire.table.catalog import identifier
from quire.table.format.config import MERGE_ON_READ
from quire.table.hive import definition
from quire.table.hive.definition import Definition
from quire.table.hive.metastore import Metastore

if TYPE_CHECKING:
    from quire.table.table import Table

LOOKS = 5


@dataclasses.dataclass(frozen=True, repr=False)
class MetastoreReport(display.Shown):
    """The result of a call that registers a table in a Hive metastore.

    dest            the table
    tables          the names that it has there, with their database
    created         those of them that are new
    changed         those whose columns or settings have changed
    added, dropped  how many partitions came and went, over all of these names
    instant         as of which the metastore has its partitions; "": nothing has been written into the table yet
    seconds         how long it took

        report = table.sync_metastore("thrift://metastore:9083")
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    tables: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    added: int = 0
    dropped: int = 0
    instant: str = ""
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"MetastoreReport(tables={self.tables!r}, created={len(self.created)}, changed={len(self.changed)}, added={self.added:,}, "
            f"dropped={self.dropped:,}, seconds={self.seconds:.1f})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {"tables": ", ".join(self.tables)}
        rows |= {word: ", ".join(those) for word, those in (("created", self.created), ("changed", self.changed)) if those}
        return rows | {"partitions": f"{self.added:,} added, {self.dropped:,} dropped", "seconds": f"{self.seconds:.1f}"}


class Look(NamedTuple):
    """A table at an instant: the definitions of its names, and its partitions by their values."""

    instant: str
    wanted: list[Definition]
    partitions: dict[tuple[str, ...], str]


class Work:
    """One call."""

    def __init__(self, store: Metastore) -> None:
        self.store = store
        self.created, self.changed, self.added, self.dropped = list[str](), list[str](), 0, 0

    def sync(self, one: Definition, seen: Look) -> bool:
        """Bring a name to what was looked at; whether anything was to do."""
        name, did = f"{one.database}.{one.name}", False
        while (there := self.store.table(one.database, one.name)) is None:
            if self.store.create(one.fresh(int(time.time())), name):
                self.created.append(name)
                did = True
        if wanted := one.changed(there):
            self.store.alter(one.database, one.name, wanted)
            self.changed.append(name)
            did = True
        did = (bool(one.keys) and self._partitions(one, seen)) or did
        if seen.instant and (wanted := one.changed(self._there(one), seen.instant)):
            self.store.alter(one.database, one.name, wanted)  # the last step: all of it is there
            did = True
        return did

    def _there(self, one: Definition) -> Any:
        found = self.store.table(one.database, one.name)
        if found is None:
            raise TransientError(f"{one.database}.{one.name} was dropped from the metastore meanwhile: call again.")
        return found

    def _partitions(self, one: Definition, seen: Look) -> bool:
        there = {definition.parsed(each) for each in self.store.partitions(one.database, one.name)}
        new, gone = sorted(seen.partitions.keys() - there), sorted(there - seen.partitions.keys())
        now = int(time.time())
        self.store.add(one.database, one.name, [one.partition(each, seen.partitions[each], now) for each in new])
        for each in gone:
            self.store.drop(one.database, one.name, each)
        self.added, self.dropped = self.added + len(new), self.dropped + len(gone)
        return bool(new or gone)


def look(table: Table, database: str, name: str, location: str) -> Look:
    """The table as it is now."""
    store = table._store
    line = table._timeline(store)
    rows = table._columns(line)
    if not rows.names:
        raise UsageError(f"{table.url} has no columns yet: nothing has been written into it. Write first.")
    wanted = definition.definitions(table.config, rows, database, name, location)
    slices = file_groups.newest(store, line, logs=table.config.type == MERGE_ON_READ)
    paths = sorted({one.partition for one in slices}) if table.config.partition_by else []
    instant = line.completed[-1].time if line.completed else ""
    return Look(instant, wanted, {definition.values(table.config, path): path for path in paths})


def sync(table: Table, uri: Any, database: Any, name: Any, location: Any) -> MetastoreReport:
    """See `Table.sync_metastore`."""
    began, connection = time.monotonic(), Metastore(uri)
    identifier(database, "database")
    place = readable(table.url, location)
    known = identifier(table.config.name if name is None else name, "name")
    first = look(table, database, known, place)
    with connection as store:
        if not store.has_database(database):
            raise UsageError(f"the metastore {store.where} has no database {database}: create it, or give another database=.")
        work, seen = Work(store), first
        for _ in range(LOOKS):
            did = [work.sync(one, seen) for one in seen.wanted]
            if not any(did):
                break
            seen = look(table, database, known, place)
    names = tuple(f"{one.database}.{one.name}" for one in first.wanted)
    return MetastoreReport(
        table.url, names, tuple(work.created), tuple(dict.fromkeys(work.changed)), work.added, work.dropped, seen.instant,
        time.monotonic() - began,
    )  # fmt: skip
