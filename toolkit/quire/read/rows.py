"""The rows of a version, piece by piece, in any process: of Parquet only the columns and row groups that are needed, of raw content what
the ledger cuts out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from quire.commit import names
from quire.commit.entries import Spec
from quire.commit.kept import with_kept
from quire.coverage.finished import gathered
from quire.coverage.fold import Fold, Source
from quire.errors import FormatError, scrub
from quire.formats import lines, parquet, partition_columns
from quire.formats.damage import ARROW
from quire.read.content import Content, of_version
from quire.read.filters import Bounds, Filters, may_hold
from quire.sources.transforms.widening import filled
from quire.storage import Store, connect

CURSORS = 16  # data files that are being read at once in a task
BATCH = 8 << 20  # bytes of rows that travel to Spark at once
PIECE = 64 << 20  # bytes of a Parquet file that are read as one, as far as its row groups allow
WHOLE = 1 << 30  # bytes for which a checkpoint's piece is taken, whose rows are of many tasks: nothing is read with it


@dataclass(frozen=True)
class Piece:
    """A data file, or of a large one of Parquet the row groups that begin in [start, end); of raw content the rows of a segment."""

    name: str
    size: int
    number: int  # of the commit
    start: int = 0
    end: int = 1 << 62
    source: Source | None = None


@dataclass(frozen=True)
class Reading:
    """How the pieces of a version are read: plain data that travels to the tasks. `columns`: the wanted ones, as Spark takes them."""

    url: str
    options: Mapping[str, Any] | None
    version: int
    format: str
    compression: str
    columns: pa.Schema
    made: Mapping[str, pa.DataType]
    filters: Filters = ()
    folded: Fold | None = None
    kept: Mapping[str, str] | None = None  # superseded files, and where they are kept
    headed: bool = False  # each file of lines begins with a header

    def rows(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece; UsageError where the version has expired, FormatError for a file with other columns."""
        store = with_kept(connect(self.url, self.options), self.kept)
        with of_version(store, self.version):
            if self.format == "parquet":
                yield from self._of_parquet(store, piece)
            elif self.format == "lines":
                for batch in lines.batches(store, piece.name, self.compression, headed=self.headed):
                    yield self._as_wanted(batch, piece.name)
            else:
                assert piece.source is not None
                assert self.folded is not None
                for folder, batch in of_raw(store, (piece.source, piece.name), self.compression, self.folded):
                    yield self._as_wanted(batch, folder)

    def _of_parquet(self, store: Store, piece: Piece) -> Iterator[pa.RecordBatch]:
        file = parquet.open_file(store, piece.name)
        there = [name for name in self.columns.names if name in file.schema_arrow.names]
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            if not group.num_rows or not piece.start <= _begin(group) < piece.end:
                continue
            if not may_hold(self.filters, _bounds(file.metadata, number).get):
                continue
            if there:
                batches: Iterable[pa.RecordBatch] = file.read_row_group(number, there).to_batches()
            else:  # only columns that the directories make: nothing of the file is read
                batches = [pa.record_batch({"": pa.nulls(group.num_rows)})]
            for batch in batches:
                yield self._as_wanted(batch, piece.name)

    def _as_wanted(self, batch: pa.RecordBatch, name: str) -> pa.RecordBatch:
        arrays = list[pa.Array]()
        for field in self.columns:
            if field.name in batch.schema.names:
                found = batch.column(field.name)
            elif field.name in self.made:
                one = partition_columns.value(name, field.name, self.made[field.name])
                found = one.take(pa.array(np.zeros(batch.num_rows, np.int64)))
            else:  # a file that is older than the column, as Spark reads it
                found = pa.nulls(batch.num_rows, field.type)
            try:
                arrays.append(filled(found, field.type))
            except ARROW as e:
                raise FormatError(
                    f"the column {field.name!r} of {self.url}/{name} is {found.type}, and not {field.type} ({scrub(str(e), 100)}). "
                    "Look who wrote that file."
                ) from e
        return pa.record_batch(arrays, schema=self.columns)


def pieces(held: Content, made: Mapping[str, pa.DataType] | None = None, filters: Filters = ()) -> list[Piece]:
    """The pieces of a version, less those whose directories say that a filter leaves nothing of them."""
    if held.spec.format == "raw":
        sizes = Counter[str]()
        for file in held.files:
            sizes[names.segment_of(file.name)] += file.size
        found = [
            Piece(f"{held.folders.get(s.segment, '')}/", WHOLE if s.piece else sizes[s.segment], s.number, source=s)
            for s in held.folded.sources
        ]
    else:
        found = [piece for file in held.files for piece in cut(held.spec, file.name, file.size, file.number)]
    if not filters or not made:
        return found
    # A checkpoint's piece of raw content has rows of many directories.
    return [p for p in found if (p.source and p.source.piece) or may_hold(filters, _values(p.name, made).get)]


def cut(spec: Spec, name: str, size: int, number: int) -> list[Piece]:
    """The pieces of a data file of a commit: one, unless it is Parquet and large."""
    if spec.format != "parquet" or size <= 2 * PIECE:
        return [Piece(name, size, number)]
    return [Piece(name, min(PIECE, size - at), number, at, at + PIECE) for at in range(0, size, PIECE)]


def _values(name: str, made: Mapping[str, pa.DataType]) -> dict[str, Bounds]:
    """The one value that each column has in a directory."""
    found = {key: partition_columns.value(name, key, kind)[0].as_py() for key, kind in made.items()}
    return {key: Bounds(value, value, nulls=value is None, others=value is not None) for key, value in found.items()}


def _begin(group: Any) -> int:
    """The first byte of a row group."""
    first = group.column(0)
    return int(first.dictionary_page_offset or first.data_page_offset) if group.num_columns else 0


def _bounds(metadata: Any, number: int) -> dict[str, Bounds]:
    """The statistics of each column of a row group, which lies in no other one: the path of `b` in `a` reads as a column `a.b` does."""
    found = dict[str, Bounds]()
    group = metadata.row_group(number)
    for i in range(group.num_columns):
        chunk, column = group.column(i), metadata.schema.column(i)
        if column.name != column.path or column.max_repetition_level:
            continue  # a path is longer than its last name where anything lies around it
        if chunk.is_stats_set and (said := chunk.statistics) is not None:
            known = said.has_null_count
            least, most = (said.min, said.max) if said.has_min_max else (None, None)
            nulls = said.null_count
            found[column.name] = Bounds(least, most, nulls=not known or nulls > 0, others=not known or nulls < group.num_rows)
    return found


def of_raw(store: Store, item: tuple[Source, str], compression: str, folded: Fold) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records of a task's data files, cut by the ledger, with the task's directory; of a checkpoint's piece, with each row's."""
    source, folder = item
    rows = folded.of(source).rows(store, ["path", "state", "data_file", "offset", "skip", "written", "folder"])
    cursors: dict[str, Any] = {}
    paths, contents, size = list[str](), list[bytes](), 0
    for row in rows.filter(gathered(rows)).to_pylist():
        name, data = row["data_file"], b""
        if name:
            if name not in cursors:
                if len(cursors) >= CURSORS:  # a piece has rows of many tasks
                    cursors.pop(next(iter(cursors)))
                cursors[name] = lines.cursor(store, name, compression)
            data = b"".join(cursors[name].take(row["offset"], row["skip"], row["written"]))
        here = folder if not source.piece else f"{name.rpartition('/')[0] if name else row['folder'] or ''}/"
        if paths and (size + len(data) > BATCH or here != folder):
            yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])
            paths, contents, size = [], [], 0
        folder = here
        paths.append(row["path"])
        contents.append(data)
        size += len(data)
    if paths:
        yield folder, pa.record_batch([pa.array(paths), pa.array(contents, pa.binary())], ["path", "content"])
