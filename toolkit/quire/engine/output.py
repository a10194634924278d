"""The data files of one attempt: they are written where nobody lists them, until the job is committed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from quire.commit import names
from quire.commit.committers import Committer, committer
from quire.commit.entries import DataFile
from quire.commit.rename import Rename
from quire.errors import UsageError
from quire.formats import extension
from quire.formats.folders import FolderWriter
from quire.formats.lines import FrameWriter
from quire.formats.members import MembersApart
from quire.formats.parquet import USUAL, ParquetWriter
from quire.sources import partition_by
from quire.sources.transforms import BadContent, directories, schemas
from quire.sources.transforms.columns import fit
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.widening import DiffersError
from quire.storage import Sink, Store

if TYPE_CHECKING:
    from quire.engine.attempt import Work
    from quire.planning.pack import PlannedTask


class DataFiles:
    """A committer, the sinks that it gives, and the writer that fills them."""

    def __init__(self, work: Work, store: Store, task: int, attempt: str, planned: PlannedTask) -> None:
        self.store, self.convert = store, work.convert
        self.owner = work.head.job, task, attempt
        self.waits = bool(work.head.closer)  # another task reads these files, and nobody else: no row says where a record lies
        # They wait as plain objects, whatever the store and its committer.
        self.committer: Committer = Rename() if self.waits else committer(work.head.committer, store)
        spec, by = work.head.spec, work.convert.by
        # Of rows in directories by a column, the plan's directory is that of the source, but where it names data files.
        apart = spec.layout == "directories" and (bool(planned.removes) or not spec.by or bool(by.of_files))
        self.folder = planned.folder if apart else ""
        self.by = () if planned.removes else by.columns
        self.sinks: dict[str, Sink] = {}  # by final names, in the writer's order
        self.records = Counter[int]()  # of each file, by its place
        self.schema_of = ""  # the first file whose rows are in the writer
        kind: Callable[..., Any] = partial(ParquetWriter, options=USUAL if self.waits else self.convert.parquet)
        if self.convert.format != "parquet":
            kind = partial(FrameWriter, header=self.convert.header)
        if self.by or (self.convert.loading is not None and self.convert.loading.by and not planned.removes):
            kind = partial(FolderWriter, kind)
        self.members = self.convert.format == "raw" and self.convert.compression == "none"
        self.writer: Any
        if self.members:
            self.writer = MembersApart(self._create_raw, self.convert.target)
        else:
            self.writer = kind(self._create, self.convert.target, self.convert.compression)

    def add(self, made: Any, *, whole: bool, folder: str = "") -> None:
        """Write a record, of a whole file or of a part of it, where columns name directories into one of them."""
        if self.members:
            self.writer.add(made, whole)
        else:
            self.writer.add(made, *[folder] if self.by else [])

    def add_all(self, records: Sequence[bytes]) -> None:
        """Write records of bytes, of whole files."""
        if isinstance(self.writer, FrameWriter):
            self.writer.add_all(records)
        else:
            for record in records:
                self.writer.add(record)

    def add_stream(self, pieces: Iterable[bytes], expected: int, *, whole: bool) -> None:
        """The same of one that comes in pieces, of about `expected` bytes."""
        if self.members:
            self.writer.add_stream(pieces, expected, whole)
        else:
            self.writer.add_stream(pieces, expected)

    def _create_raw(self, index: int, gzip: bool) -> Sink:
        return self._create(index, compression="gzip" if gzip else "none")

    def _create(self, index: int, folder: str | None = None, compression: str = "") -> Sink:
        ending = extension(self.convert.format, compression or self.convert.compression, self.convert.transform)
        within = "/".join(filter(None, (self.folder, folder)))
        final = names.data_file(within, *self.owner, index, ending)
        sink = self.sinks[final] = self.committer.create(self.store, *self.owner, final)
        return sink

    def fit(self, path: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """A function's rows in the columns of the destination, or of the first rows of the task; BadContent where they do not fit."""
        try:
            rows = directories.filled(path, rows) if self.convert.partitions else rows
            found = fit(rows, self.writer.schema or self.convert.by.without(self.convert.columns), self.convert.evolves)
        except DiffersError as e:
            raise BadContent(f"TypeError: the rows have another schema: {e}", differs=str(e)) from None
        except WrongTypeError as e:
            raise BadContent(f"TypeError: {e}") from None
        if name := self.convert.by.clash(found.schema.names):
            raise BadContent(f"TypeError: the rows have a column {name!r}, which the directories {name}=… of partition_by make, too")
        self.schema_of = self.schema_of or path
        return found

    def apart(self, path: str, rows: pa.RecordBatch) -> list[tuple[str, pa.RecordBatch]]:
        """The same by the directories that columns of the rows name; BadContent also where these are not there, or name none."""
        if not self.by:
            return [("", self.fit(path, rows))]
        for name in self.by if self.convert.evolves else ():
            if name not in rows.schema.names:  # a row without a value there lies beside those that have none
                rows = rows.append_column(name, pa.nulls(rows.num_rows, pa.string()))
        try:
            self.convert.by.check(rows.schema)
        except UsageError as e:
            raise BadContent(f"TypeError: {e}") from None
        columns = [(name, rows.column(name)) for name in self.by]
        if why := next(filter(None, (partition_by.unfit(*each) for each in columns)), ""):
            raise BadContent(f"TypeError: {why}")
        return list(partition_by.apart(self.fit(path, rows.drop_columns(list(self.by))), columns))

    def places(self, records: Sequence[int]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Data files, offsets and skips of the next records that have their place; each holds so many lines or rows."""
        n, writer, final = len(records), self.writer, list(self.sinks)
        files, offsets, skips = writer.files[:n], writer.offsets[:n], writer.skips[:n]
        del writer.files[:n], writer.offsets[:n], writer.skips[:n]
        for i, count in zip(files, records, strict=True):
            self.records[i] += count
        if self.waits:
            return [None] * n, [None] * n, [None] * n
        return [final[i] for i in files], offsets, skips

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The closed files, as a manifest lists them."""
        sizes = self.writer.sizes
        return tuple(
            DataFile(final, sizes[i], self.records[i], self.committer.handle(*self.owner, final, sink))
            for i, (final, sink) in enumerate(self.sinks.items())
        )

    @property
    def schema(self) -> str:
        """The columns of a function's rows, or of lines below a header: all tasks of a destination must have the same."""
        schema = None
        if self.convert.format == "parquet":
            schema = self.writer.schema if self.convert.of_columns else None
        elif self.convert.has_columns and self.sinks:
            schema = self.convert.columns
        return "" if schema is None else schemas.text(schema)

    def abort(self) -> None:
        """Remove what only this attempt can have written."""
        self.writer.discard()
        self.committer.abort_task(self.store, *self.owner, self.sinks)
