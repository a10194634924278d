"""A table as users open it: its settings, and views of its rows at an instant."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from quire.errors import NotFoundError, RefusedError, UsageError, quoted
from quire.interrupts import interruptible
from quire.spark.runner import LocalRunner
from quire.storage import Store, canonical, connect
from quire.table import file_groups, reading, timeline
from quire.table.format import config, names, schema
from quire.table.timeline import Timeline


class Table:
    """An incremental table in the format of Apache Hudi at `url`, whoever has written it.

    `storage_options` are those of the store. Raises UsageError for a place without a table, FormatError where its settings are
    damaged or of a version that quire does not read.
    """

    def __init__(self, url: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = canonical(url, storage_options)
        self._options, self._instant = storage_options, ""
        where = f"{self.url}/{names.PROPERTIES}"
        try:
            self.config = config.TableConfig.from_properties(self._store.get(names.PROPERTIES), where)
        except NotFoundError:
            raise UsageError(f"{self.url} is not a table: it does not have {names.PROPERTIES}. Check the spelling, or create it.") from None

    def __repr__(self) -> str:
        at = f" as of {self._instant}" if self._instant else ""
        return f"Table({self.url!r}{at}: {self.config.type.lower()}, key {', '.join(self.config.key) or 'not said'})"

    @property
    def _store(self) -> Store:
        return connect(self.url, self._options)

    def _timeline(self, store: Store) -> Timeline:
        has = self.config
        refused = {
            f"of table version {has.version}, and quire reads rows of version {config.VERSION}": has.version != config.VERSION,
            "a merge-on-read table, and quire reads copy-on-write tables": has.type != config.COPY_ON_WRITE,
            "without the partition columns in its base files (drop.partition.columns): read it with Hudi": has.drops_partitions,
        }
        if why := next((why for why, holds in refused.items() if holds), None):
            raise RefusedError(f"{self.url} is {why}.")
        found = timeline.read(store)
        return found.as_of(self._instant) if self._instant else found

    def _columns(self, line: Timeline) -> pa.Schema:
        """The columns of its rows at that time; none where nothing has been written yet, and its settings name none."""
        text = line.schema() or self.config.schema
        found = schema.from_avro(text, f"the schema of {self.url}") if text else pa.schema([])
        return schema.with_meta(found) if text and self.config.meta_fields else found

    def as_of(self, instant: str) -> Table:
        """The table as it was at an instant (`yyyyMMddHHmmssSSS`, UTC), or just before it if none is there."""
        if not isinstance(instant, str) or not instant.isascii() or not instant.isdigit() or len(instant) not in (14, 17):
            raise UsageError(f"as_of takes an instant of the timeline, as '20261122103000000' (UTC), and not {quoted(instant)}")
        found = Table.__new__(Table)
        found.__dict__ |= self.__dict__
        found._instant = instant.ljust(17, "9")
        return found

    @interruptible
    def snapshot(self, *, spark: Any = None, columns: Sequence[str] | None = None, where: Any = None) -> Any:
        """The rows at the newest instant: each key once.

        A Spark DataFrame in the session `spark` (default: `quire.session()`); with `spark=quire.LocalRunner()` a pyarrow Table.
        `columns`: some of them, in that order (default: all, behind the five that Hudi keeps). `where`: a condition as Spark takes it;
        without Spark one of pyarrow. Raises UsageError for a column that is not there.
        """
        if isinstance(columns, str):
            raise UsageError(f"columns takes a list of names, as [{columns!r}], and not one text.")
        store = self._store
        line = self._timeline(store)
        rows = self._columns(line)
        wanted = rows.names if columns is None else list(columns)
        if unknown := [name for name in wanted if name not in rows.names]:
            raise UsageError(f"{self.url} has no column {unknown[0]!r}. It has: {', '.join(rows.names)[:400]}.")
        if not rows.names:
            raise UsageError(f"there is nothing to read in {self.url}: nothing has been written yet, so it has no columns.")
        found = file_groups.newest(store, line)
        if isinstance(spark, LocalRunner):
            return reading.table(store, found, rows, wanted, where)
        if spark is None:
            from quire.spark.session import session

            spark = session()
        return reading.frame(spark, store, self._options, found, rows, wanted, where)
