"""A table as users open it: its settings, and views of its rows at an instant."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.arguments import flag
from quire.errors import NotFoundError, RefusedError, UsageError, choose, quoted, scrub
from quire.interrupts import interruptible
from quire.progress import Progress, ProgressEvent
from quire.spark.runner import LocalRunner, OnSpark, runner_of
from quire.storage import Store, canonical, connect, plain
from quire.storage.within import marked
from quire.table import catalog, changes, doctor, file_groups, overview, reading, realtime, replacing, retention, stats, timeline
from quire.table import create as creating
from quire.table import history as records
from quire.table.changes import Images
from quire.table.create import Asked
from quire.table.doctor import TableHealth
from quire.table.file_groups import Slice
from quire.table.format import config, names, schema
from quire.table.history import RecordHistory
from quire.table.hive import sync
from quire.table.hive.sync import MetastoreReport
from quire.table.realtime import Merging
from quire.table.rounds import DROP
from quire.table.services import Services, Watched, check_instant
from quire.table.stats import TableStats
from quire.table.timeline import Timeline
from quire.table.writing import Dropping, TableReport, Writing, check_batch

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame


class Table(Services):
    """An incremental table in the format of Apache Hudi at `url`, whoever has written it.

        table = quire.Table.create("/data/trips", key="id", partition_by="city", ordering="at")
        report = table.upsert(df, batch="2026-11-22")           # a batch is committed once
        table.insert(df); table.bulk_insert(df); table.delete(df); table.adopt(); table.savepoints()
        table.insert_overwrite(df); table.delete_partitions("city=sf")
        df = table.snapshot()                   # or table.as_of(report.instant).snapshot()
        changes = table.changes(report.instant) # what later commits have changed, deleted rows among them

    `storage_options` are those of the store. Raises UsageError for a place without a table, FormatError where its settings are
    damaged or of a version that quire does not read.
    """

    def __init__(self, url: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.url = plain(canonical(url, storage_options))
        self._options, self._instant = storage_options, ""
        where = f"{self.url}/{names.PROPERTIES}"
        try:
            self.config = config.TableConfig.from_properties(self._store.get(names.PROPERTIES), where)
        except NotFoundError:
            raise UsageError(f"{self.url} is not a table: it does not have {names.PROPERTIES}. Check the spelling, or create it.") from None

    @classmethod
    @interruptible
    def create(
        cls, url: str | os.PathLike[str], *, key: str | Sequence[str], partition_by: str | Sequence[str] | None = None,
        ordering: str | None = None, type: str = "copy_on_write", index: str = "bloom", buckets: int | None = None, hive_style: bool = True,
        change_files: bool = True, target_size: str | int = "120 MiB", log_format: str = "parquet", name: str | None = None,
        cdc: str | None = None, version: int = 6, storage_options: Mapping[str, Any] | None = None,
    ) -> Table:  # fmt: skip
        """Create an empty table at `url` in the format of Apache Hudi; one that is there with the same settings is opened.

        key           the column, or columns, by which a row is known: its value is never null
        type          "copy_on_write": each commit writes the files anew that it changes; "merge_on_read": updates and deletes go into logs
                      beside them, which readers merge, and `ordering` is needed
        name          of the table, as catalogs show it; left out: that of its directory
        hive_style    directories are called `city=sf`, and not `sf`
        partition_by  the columns whose values name the directories; left out: there are none
        ordering      a column whose greatest value wins where a key comes again, in a call and against what is stored ("event time");
                      left out: the later call wins, and within a call the later row
        index         how the file of a key is found: "bloom" (key ranges, then filters, then keys), "simple" (keys), "bucket" (the key's
                      hash says it; `buckets` file groups in each partition, for ever)
        change_files  keep what each commit changed beside the data, so that `changes` reads no base file (copy_on_write)
        cdc           also write Hudi's CDC logs, for its CDC query: "data_before_after", "data_before" or "op_key_only" (copy_on_write)
        target_size   bytes of a base file: smaller ones take in new rows first
        version       of the table's format: 6, or 9, which JVM Hudi from 1.1 on writes without an upgrade
        log_format    of the rows in logs: "parquet", or "avro", which Trino reads too, and which takes longer (merge_on_read)

        Returns the table. Raises UsageError for settings that do not go together, RefusedError for a place that holds something else.
        """
        to = plain(canonical(url, storage_options))
        asked = Asked(
            key, partition_by, ordering, type, index, buckets, hive_style, change_files, target_size, name, log_format, cdc, version
        )
        made, wanted = creating.check(to, asked)
        creating.create(marked(to), storage_options, made, wanted)
        return cls(to, storage_options=storage_options)

    def __repr__(self) -> str:
        at = f" as of {self._instant}" if self._instant else ""
        return f"Table({self.url!r}{at}: {self.config.type.lower()}, key {', '.join(self.config.key) or 'not said'})"

    def _timeline(self, store: Store) -> Timeline:
        has = self.config
        refused = {
            f"of table version {has.version}, and its timeline lies where no such table has it (hoodie.timeline.path, "
            "history.path or layout.version): read it with Hudi": has.timeline is None,
            "without the partition columns in its base files (drop.partition.columns): read it with Hudi": has.drops_partitions,
        }
        if why := next((why for why, holds in refused.items() if holds), None):
            raise RefusedError(f"{self.url} is {why}.")
        found = timeline.read(store, has.timeline or names.FOLDER)
        return found.as_of(self._instant) if self._instant else found

    def _columns(self, line: Timeline) -> pa.Schema:
        """The columns of its rows at that time; none where nothing has been written yet, and its settings name none."""
        text = line.schema() or self.config.schema
        found = schema.without_meta(schema.from_avro(text, f"the schema of {self.url}")) if text else pa.schema([])
        return schema.with_meta(found) if text and self.config.meta_fields else found

    def as_of(self, instant: str) -> Table:
        """The table as it was at an `instant` (yyyyMMddHHmmssSSS, UTC), or just before it if none is there. UsageError for other text."""
        found = Table.__new__(Table)
        found.__dict__ |= self.__dict__
        found._instant = check_instant(instant, "as_of")
        return found

    @interruptible
    def snapshot(
        self, *, spark: Any = None, columns: Sequence[str] | None = None, where: Any = None, read_optimized: bool = False
    ) -> Any:  # fmt: skip
        """The rows at the newest instant: each key once.

        A Spark DataFrame in the session `spark` (default: `quire.session()`); with `spark=quire.LocalRunner()` a pyarrow Table.
        `columns`: some of them, in that order (default: all, behind the five that Hudi keeps). `where`: a condition as Spark takes it;
        without Spark one of pyarrow. `read_optimized`: of a merge-on-read table the base files alone, without what is still in logs;
        else each task merges the logs of a file group, which it holds in memory, with its base file. Raises UsageError for a column that is
        not there, RefusedError for a table, or a log, of a kind that quire does not read.
        """
        store, found, rows, wanted, merging = self._newest(columns, read_optimized=read_optimized)
        runner = runner_of(spark, store)
        if isinstance(runner, OnSpark):
            return reading.frame(runner.spark, store, self._options, found, rows, wanted, where, merging)
        return reading.table(store, found, rows, wanted, where, merging)

    @interruptible
    def create_view(self, name: str, *, read_optimized: bool = False, spark: Any = None) -> DataFrame:
        """Give the rows at the newest instant a name in the catalog of a Spark session, for SQL there.

            table.create_view("trips")
            quire.session().sql("SELECT city, count(*) FROM trips GROUP BY city").show()

        `name`: of a temporary view, which one of that name gives way to. `read_optimized` and `spark` are those of `snapshot`. The view has
        the rows of this moment for as long as the session lives, and no later ones: the same call renews it. A clean may take its files.
        Returns the DataFrame that it shows. Raises UsageError for what is not a name, and for a `LocalRunner`.
        """
        return catalog.create_view(self, name, spark, read_optimized=flag(read_optimized, "read_optimized"))

    @interruptible
    def sync_metastore(
        self, uri: str, *, database: str = "default", name: str | None = None, location: str | None = None
    ) -> MetastoreReport:  # fmt: skip
        """Register the table in a Hive metastore, as Hudi's own sync does: Hive, Trino, and Spark with Hudi's bundle read it by its name.

            table.sync_metastore("thrift://metastore:9083", database="lake")

        uri        of the metastore's service; several with commas: the first that answers is asked
        database   it has to be there
        name       default: that of the table. A merge-on-read table gets two more, `name_ro` for its base files alone, and `name_rt`
        location   the table's URL as Hadoop knows it; default: that of the table, with s3a: for s3:

        Call it again after commits: columns and partitions follow the table, and what is right stays. The table itself is not changed.
        Returns a `MetastoreReport`. Raises TransientError where no metastore answers, RefusedError where it has another table of that name
        or refuses a change, UsageError for wrong arguments and a table without columns.
        """
        if self._instant:
            raise UsageError(f"{self.url} as of {self._instant} is read, not registered. Open it with quire.Table.")
        return sync.sync(self, uri, database, name, location)

    def _newest(
        self, columns: Sequence[str] | None, *, read_optimized: bool = False
    ) -> tuple[Store, list[Slice], pa.Schema, list[str], Merging]:
        """Where its rows are, in which columns, those of them that are wanted, and how logs are merged."""
        if isinstance(columns, str):
            raise UsageError(f"columns takes a list of names, as ['{scrub(columns, 60)}'], and not one text.")
        if columns is not None and not (isinstance(columns, Sequence) and all(isinstance(name, str) for name in columns)):
            raise UsageError(f"columns takes a list of names, as ['id'], and not {quoted(columns)}.")
        store = self._store
        line = self._timeline(store)
        if self._instant:
            retention.check_not_archived(line, self._instant)
        rows = self._columns(line)
        if not rows.names:
            when = f"nothing had been written by {self._instant}" if self._instant else "nothing has been written yet"
            raise UsageError(f"there is nothing to read in {self.url}: {when}, so it has no columns.")
        wanted = rows.names if columns is None else list(columns)
        if unknown := [name for name in wanted if name not in rows.names]:
            raise UsageError(f"{self.url} has no column {unknown[0]!r}. It has: {', '.join(rows.names)[:400]}.")
        logs = self.config.type == config.MERGE_ON_READ and not read_optimized
        slices = file_groups.newest(store, line, logs=logs)
        if self._instant:
            retention.check_whole(line, slices, self._instant)
        merging = realtime.merging_of(self.config, line, rows, self.url) if any(one.logs for one in slices) else Merging(line.holds())
        return store, slices, rows, wanted, merging

    @interruptible
    def changes(
        self, since: str, until: str | None = None, *, images: Images = "after", net: bool = True, spark: Any = None
    ) -> Any:  # fmt: skip
        """The rows that commits after the instant `since` have changed, up to `until` (default: the newest), deleted ones among them.

        since, until   instants of the timeline, as `as_of` takes them; all there is: since="00000000000000". In a table of version 8 or 9 a
                       commit is in the window in which it ended: an instant stands for when it ended, another time for itself
        images         "both": also the rows as they were before
        net            one change for each key, from its row at `since` to that at `until`; False: each change of each commit
        spark          as in `snapshot`, in whose forms it returns

        Columns: `op` (i, u, d: inserted, updated, deleted), `instant` of its commit, the key and its partition by the names that Hudi
        gives them, `before` where it is asked for, and `after`: structs of the table's columns, null where the row was not there.
        Raises RefusedError where files that are needed were cleaned, or instants archived.
        """
        choose(images, changes.IMAGES, "images")
        start, end = check_instant(since, "since"), "~" if until is None else check_instant(until, "until")
        changes.check(self.config, self.url)
        store = connect(marked(self.url), self._options)  # change files are quire's own
        line = self._timeline(store)
        rows = self._columns(line)
        columns = schema.without_meta(rows)
        logs = self.config.type == config.MERGE_ON_READ and rows.names
        found = changes.looks(store, line, start, end, realtime.merging_of(self.config, line, rows, self.url) if logs else None)
        runner = runner_of(spark, store)
        if isinstance(runner, OnSpark):
            return changes.frame(runner.spark, store, self._options, found, columns, images, net=net)
        return changes.table(store, found, columns, images, net=net)

    @interruptible
    def timeline(self, *, last: int | None = None) -> pd.DataFrame:
        """All that is on the timeline, the oldest first, also what is under way: all of it, or the `last` ones.

            table.timeline(last=10)

        Returns a pandas DataFrame: instant, action, state (completed, inflight, requested), operation, and of completed writes the files,
        their bytes, and the rows inserted, updated, deleted; of cleans the `deleted_files`. Rollbacks, restores and savepoints stand among
        them. Raises UsageError for a wrong number.
        """
        if last is not None and (type(last) is not int or last < 0):
            raise UsageError(f"last takes how many instants, 0 or more, and not {quoted(last)}")
        return overview.frame(self._timeline(self._store), last)

    @interruptible
    def stats(self) -> TableStats:
        """The health of the table: sizes, small files, logs, skew by partition, what a clean could take, and what its commits have cost.

            table.stats().partitions

        Returns a `TableStats`. No base file is read. Raises RefusedError for a table of a kind that quire does not read.
        """
        store = connect(marked(self.url), self._options)
        return stats.stats(store, self._timeline(store), self.url)

    @interruptible
    def doctor(self, *, records: bool = False, spark: Any = None) -> TableHealth:
        """Say what is wrong with the table now, and the call that mends it; nothing is changed.

        records   also compare the keys of all rows, which reads these columns of the whole table
        spark     where they are compared, as in `snapshot`; with `quire.LocalRunner()` they are held in memory

            print(table.doctor())

        Returns a `TableHealth`: leftover files, instants that are empty or damaged, files that are gone, lost updates, plans that would
        hide rows, writes that never ended, jobs that are open. Raises RefusedError for a table of a kind that quire does not read.
        """
        return doctor.doctor(self, self._options, records=flag(records, "records"), spark=spark)

    @interruptible
    def history(self, key: Any, *, partition: Any = None) -> RecordHistory:
        """The history of a record: each write that has changed it, its row before and after, and the file in which that lies.

            table.history("trip-7").versions

        key        its value; of a key of several columns a dictionary, a tuple in their order, or the text as Hudi stores it
        partition  look there alone, named as in `delete_partitions`: with the bloom index it is quicker

        Read are the footers of base files, and of those that may hold the key the part with it; of logs those of its file group. Returns
        a `RecordHistory`, which says from which instant on it is known. Raises UsageError for what is not a key, RefusedError for a table
        of a kind that quire does not read.
        """
        return records.history(self, key, partition)

    # ------------------------------------------------------------------------------------------------------------------- writing

    @interruptible
    def upsert(self, df: Any, *, batch: str | None = None, spark: Any = None, progress: Watched = True) -> TableReport:
        """Insert rows whose key is not there, and update those whose key is, in one commit.

        df        a Spark DataFrame, a pandas DataFrame, a pyarrow Table or Dataset, with all columns of the table; it is computed once. New
                  columns become columns of the table. A true `_hoodie_is_deleted` deletes the row of that key
        batch     a name: the same batch is committed once, however often it is called, and a call that was killed goes on
        spark     the session (default: that of `df`, else `quire.session()`), or `quire.LocalRunner()`
        progress  True: bars | False | function(step), as in `quire.consolidate`

        Returns a `TableReport`. Raises RefusedError for a row without key or ordering, UsageError for columns that do not fit; then nothing
        was changed.
        """
        return self._write("upsert", df, batch, spark, progress)

    @interruptible
    def insert(self, df: Any, *, batch: str | None = None, spark: Any = None, progress: Watched = True) -> TableReport:
        """Add rows, without a look whether their keys are there: small files are filled first.

        `df`, `batch`, `spark` and `progress` are those of `upsert`. Returns a `TableReport`; the errors are those of `upsert`, too.
        RefusedError for a row without key or ordering.
        """
        return self._write("insert", df, batch, spark, progress)

    @interruptible
    def bulk_insert(self, df: Any, *, batch: str | None = None, spark: Any = None, progress: Watched = True) -> TableReport:
        """Add rows as `insert` does, in new files alone: for the first load.

        `df`, `batch`, `spark` and `progress` are those of `upsert`. Returns a `TableReport`. RefusedError for a row without key.
        """
        return self._write("bulk_insert", df, batch, spark, progress)

    @interruptible
    def insert_overwrite(self, df: Any, *, batch: str | None = None, spark: Any = None, progress: Watched = True) -> TableReport:
        """Replace all rows of the partitions to which rows of `df` belong by these rows, in one commit; other partitions stay.

        A table without partitions is replaced as a whole. An empty `df` belongs to no partition, and changes nothing. `df`, `batch`,
        `spark` and `progress` are those of `upsert`; rows with a true `_hoodie_is_deleted` are left out. Older instants keep the rows that
        were replaced. Returns a `TableReport`, whose `replaced` counts the file groups that ended. Raises what `upsert` raises, and
        RefusedError where a compaction of these partitions is pending.
        """
        return self._write("insert_overwrite", df, batch, spark, progress)

    @interruptible
    def delete_partitions(
        self, partitions: Any, *, batch: str | None = None, progress: bool | Callable[[ProgressEvent], object] = True
    ) -> TableReport:
        """Take away all rows of some partitions, in one commit that reads and writes no data file.

            report = table.delete_partitions(["city=sf", {"city": "la"}], batch="closed")

        partitions   one or a list, each as the path of its directory ("city=sf"), a dict of the columns' values ({"city": "sf"}), a tuple
                     of these values in their order, or the one value where there is one column
        batch        a name: the same batch is committed once, however often it is called; the first call says which partitions
        progress     True: bars | False | function(step), as in `quire.consolidate`

        Older instants keep the rows. Returns a `TableReport`, whose `replaced` counts the file groups that ended. Raises UsageError for a
        partition that is not there, and a table without any; RefusedError where a compaction of these partitions is pending.
        """
        self._check_newest()
        named, to = check_batch(batch), marked(self.url)
        wanted = replacing.check(partitions, self.config, self.url)
        return Dropping(to, self._options, DROP, wanted, named, LocalRunner(), Progress(progress)).run()

    @interruptible
    def delete(self, df: Any, *, batch: str | None = None, spark: Any = None, progress: Watched = True) -> TableReport:
        """Delete the rows of these keys: `df` needs the columns of key and partition, and of the ordering.

        `df`, `batch`, `spark` and `progress` are those of `upsert`. Returns a `TableReport`. RefusedError for a row without key.
        """
        return self._write("delete", df, batch, spark, progress)

    @interruptible
    def adopt(self) -> Table:
        """Drop the metadata table that another program keeps of this one, so that quire may write: it would be outdated by that.

        Nobody else should write meanwhile. Readers list the directories again, and JVM writers go on with `hoodie.metadata.enable=false`.
        Returns the table, also where there is nothing to drop. Raises RefusedError for what hinders quire from writing beside.
        """
        self._check_newest()
        self.config = creating.adopt(connect(marked(self.url), self._options), self.url)
        return self

    def _write(self, operation: str, df: Any, batch: str | None, spark: Any, progress: Any) -> TableReport:
        self._check_newest()
        named, to = check_batch(batch), marked(self.url)
        runner = runner_of(getattr(df, "sparkSession", None) if spark is None else spark, connect(to, self._options))
        return Writing(to, self._options, operation, df, named, runner, Progress(progress)).run()
