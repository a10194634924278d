"""`spark.read.format("quire")`: Spark's own door to a destination, on all stores of quire's, with pruning. A Python data source of Spark 4.
`df.write.format("quire")` is the way in: its writers are in `quire.write`.

    spark.dataSource.register(quire.DataSource)            # `quire.session` has done so
    spark.read.format("quire").option("columns", "dt, value").load("s3://lake/events").where("dt = '2026-11-21'")

Spark asks for the columns in one process and plans in another, so what was found first, the version, stays in the source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.errors import RefusedError, UsageError, choose, quoted
from quire.read import options
from quire.read.content import Content, content
from quire.read.filters import Filters, condition
from quire.read.rows import Reading, pieces
from quire.read.tasks import Pieces, rows, together
from quire.spark.datasource import datasource
from quire.spark.releases import from_arrow_schema, to_arrow_schema
from quire.spark.shipping import at_home
from quire.storage import connect, destination
from quire.storage.within import is_marked, plain

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from quire.read.stream import StreamReader


class DataSource(datasource.DataSource):
    """The committed rows of a destination for `spark.read.format("quire")` and `spark.readStream.format("quire")`, and the way into one:
    `df.write.format("quire").mode("append").save(url)`, and `df.writeStream`.

        spark.dataSource.register(quire.DataSource)

    `options`: `version` (default: the newest when the frame is made), `columns` (names between commas), `pushdown` ("true": filters prune,
    where each query of the frame has the same filter), `storage.NAME` and `secret.NAME` for the store; of a stream `startingVersion`,
    `maxCommitsPerTrigger`, `maxBytesPerTrigger`, `changes`; of a writer `partition_by`, `overwrite`, `batch`, `target_size`, `compression`,
    `committer`, `keep_versions`, `exports`, `schema_evolution`, `allow_nonempty`.
    """

    def __init__(self, options: Any, version: int | None = None) -> None:
        super().__init__(options)
        self.version = version  # once it is known

    def __reduce__(self) -> tuple[Any, ...]:
        """With the place of this quire: Spark plans a stream in a process on the driver's machine that has no files of the session."""
        return at_home("quire.read.source", "DataSource", self.options, self.version)

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "quire"

    def schema(self) -> StructType:
        """The columns of the destination, or those of them that the option `columns` names."""
        held = self._content()
        own, made = held.columns()
        found = pa.schema([*own, *(pa.field(name, kind) for name, kind in made.items())])
        wanted = options.columns(self.options)
        if wanted is not None:
            for name in wanted:
                choose(name, found.names, f"column of {held.url}")
            found = pa.schema([found.field(name) for name in dict.fromkeys(wanted)])
        return from_arrow_schema(pa.schema([field.with_nullable(True) for field in found]))

    def _content(self) -> Content:
        """The content of the version that this source has taken."""
        options.check(self.options)
        store_options = options.of_store(self.options)
        url = destination(options.place(self.options), store_options)
        if is_marked(url):
            raise RefusedError(
                f"{plain(url)} is a table, which format('quire') does not read: quire.Table({plain(url)!r}).snapshot() is its rows, "
                ".changes() what commits have changed."
            )
        version = self.version if self.version is not None else options.number(self.options, "version")
        found = content(connect(url, store_options), url, store_options, version)
        self.version = found.version
        return found

    def _reading(self, held: Content, schema: StructType) -> Reading:
        """How rows of these columns are read; UsageError for columns that the destination has not, or not so."""
        own, made = held.columns()
        known = pa.schema([*own, *(pa.field(name, kind) for name, kind in made.items())])
        there = from_arrow_schema(known)
        for field in schema.fields:
            choose(field.name, known.names, f"column of {held.url}")
            if there[field.name].dataType != field.dataType:
                raise UsageError(
                    f"the column {field.name!r} of {held.url} is {there[field.name].dataType.simpleString()}, and not "
                    f"{quoted(field.dataType.simpleString(), 80)}: leave .schema() out, or cast the column afterwards."
                )
        columns = to_arrow_schema(schema)
        folded = held.folded if held.spec.format == "raw" else None
        return Reading(
            held.url, held.options, held.version, held.spec.format, held.spec.compression, columns, made, folded=folded, kept=held.kept,
            headed=held.spec.header,
        )  # fmt: skip

    def reader(self, schema: StructType) -> BatchReader:
        """For `spark.read`."""
        options.refuse_of_streams(self.options)
        held = self._content()
        kind = PruningReader if options.flag(self.options, "pushdown") else BatchReader
        return kind(held, self._reading(held, schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        """For `spark.readStream`."""
        from quire.read.stream import StreamReader

        held = self._content()
        return StreamReader(held, self._reading(held, schema), self.options)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.write`."""
        return self._writer(schema, overwrite=overwrite, streaming=False)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        """For `df.writeStream`."""
        return self._writer(schema, overwrite=overwrite, streaming=True)

    def _writer(self, schema: StructType, *, overwrite: bool, streaming: bool) -> Any:
        from quire.write.asked import OF_SPARK, OPTIONS
        from quire.write.spark import writer  # what readers are spared

        options.check(self.options, (*OPTIONS, *(OF_SPARK if streaming else ())))
        store_options = options.of_store(self.options)
        url = destination(options.place(self.options, 'df.write.format("quire").save("/data/out")'), store_options)
        if is_marked(url):
            raise RefusedError(
                f"{plain(url)} is a table, which format('quire') does not write: quire.Table({plain(url)!r}).write(df, …) upserts rows."
            )
        columns = options.columns(self.options, "partition_by")
        return writer(url, store_options, self.options, columns, schema, overwrite=overwrite, streaming=streaming)


class BatchReader(datasource.DataSourceReader):
    """One version of a destination."""

    def __init__(self, held: Content, reading: Reading) -> None:
        self.held: Content | None = held
        self.reading = reading

    def partitions(self) -> list[datasource.InputPartition]:
        """The pieces that the filters leave; what was planned stays here, and not with the tasks."""
        assert self.held is not None
        found = together(pieces(self.held, self.reading.made, self.reading.filters))
        return [*found] or [Pieces(())]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some pieces."""
        return rows(self.reading, partition)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "held": None}  # the list of all files


class PruningReader(BatchReader):
    """The same, less what filters leave nothing of.

    Spark 4.1 to 4.3 keep that for later queries of the same frame, also for those without a filter, whose rows would be missing: so it is
    for who asks for it.
    """

    def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
        """Keep what can be said of directories and row groups. Spark computes all filters once more, on the rows that are read."""
        found: Filters = tuple(one for one in map(condition, filters) if one is not None)
        self.reading = replace(self.reading, filters=found)
        return iter(filters)
