"""The base files of a commit: the one that is replaced, as a stream, and the one that is written, with its change file."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.committers import committer
from quire.commit.entries import DataFile
from quire.errors import FormatError
from quire.formats import parquet
from quire.storage import Sink, Store
from quire.table import reading
from quire.table.file_groups import Slice
from quire.table.format import base_file, bloom, names
from quire.table.format.cdc_log import CdcLogWriter
from quire.table.format.change_file import ChangeFileWriter
from quire.table.format.config import EVENT_TIME
from quire.table.format.names import BaseFile
from quire.table.format.schema import META, with_meta
from quire.table.realtime import Merging
from quire.table.settings import NOTHING, Settings
from quire.table.write.blocks import KEY, Closing
from quire.table.write.merge import Changed
from quire.table.write.spills import Spill
from quire.table.write.targets import Target

SPARE = 8  # a filter has room for an eighth of its keys more
TRIES = 1 << 30  # numbers of which a try of a task draws one
_HUGE = 4  # as many times as large as a new one: not worth keeping


@dataclass(frozen=True)
class Work:
    """The same for all tasks of a run; it travels to them.

    `columns`: the table's after this commit, without meta columns, as `schema.storable` has them. `kept`: whether change files are written
    beside base files that replace a slice, and of which kind logs are.
    """

    closing: Closing
    instant: str
    columns: pa.Schema = field(repr=False)
    kept: Settings = NOTHING
    merging: Merging | None = field(default=None, repr=False)  # of a compaction: how it merges logs
    spills: tuple[Spill, ...] = field(default=(), repr=False)  # of a clustering: where its rows are,
    layout: str = ""  # and how they are sorted, as the files are to say

    @property
    def reads(self) -> pa.Schema:
        """The columns that are read of the slice that is replaced: when each row was written, and its key, too."""
        return pa.schema([f for f in with_meta(self.columns) if f.name not in META[3:]])

    @property
    def ordering(self) -> str | None:
        """The field by which stored rows win, where they may."""
        config = self.closing.config
        return config.ordering if config.mode == EVENT_TIME else None


def in_key_order(keys: pa.Array | pa.ChunkedArray, *, twice: bool = False) -> bool:
    """Whether they ascend; one may be there `twice`."""
    before = pc.less_equal if twice else pc.less
    return len(keys) < 2 or bool(pc.all(before(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())


class Base:
    """The base file that is replaced: its rows as a stream, a row group at a time."""

    def __init__(self, store: Store, one: Slice, columns: pa.Schema) -> None:
        self.where, self._columns = f"{store.url}/{one.name}", columns
        self._file = base_file.open_base_file(parquet.stored(store, one.name), self.where)
        self.footer = base_file.footer_of(self._file, self.where)
        if not self.footer.has_meta:
            raise FormatError(f"{self.where} does not have the five columns of Hudi first: look who wrote it")
        self.in_order = self._ascends()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Sorted by key where row groups follow one another, else as they are."""
        for number in range(self._file.num_row_groups):
            rows = reading.row_group(self._file, number, self._columns, self.where)
            if self.in_order and not in_key_order(rows.column(KEY), twice=True):
                rows = rows.take(pc.sort_indices(rows.column(KEY)))
            yield from rows.to_batches()

    def _ascends(self) -> bool:
        """Whether the keys of each row group are greater than those of the one before, as the statistics have it."""
        last = b""
        with reading.reading_of(self.where):
            for chunks in self._file.chunks:
                if KEY not in chunks or (ends := chunks[KEY].ends) is None or ends[0] <= last:
                    return False
                last = ends[1]
        return True


class Output:
    """The file that is written, its change file, and its CDC log."""

    def __init__(
        self, work: Work, store: Store, target: Target, keys_filter: bloom.Filter, *, holds: bool = False, replaces: bool = False
    ) -> None:  # fmt: skip
        """`replaces`: a slice, so that what changes in it is kept where the table says so."""
        closing = work.closing
        self._by, self._store, self._at = committer(closing.committer, store), store, (closing.job, closing.task, closing.attempt)
        name = BaseFile(target.group, names.write_token(secrets.randbelow(TRIES), closing.attempt), work.instant)
        self._sinks = dict[str, Sink]()
        self._final = names.path(target.partition, name.name)
        self._filter, self._holds, self._layout = keys_filter, holds, work.layout
        self.writer = base_file.BaseFileWriter(
            self._create(self._final), name, target.partition, work.columns, table=closing.config.name, keys_filter=self._filter,
            filter_holds_keys=self._holds,
        )  # fmt: skip
        self._changes: ChangeFileWriter | None = None
        self._cdc: CdcLogWriter | None = None
        try:
            if replaces and work.kept.change_files:
                self._changes = ChangeFileWriter(self._create(names.change_file_of(self._final)), work.columns)
            if replaces and (mode := closing.config.cdc):
                log = self._create(names.cdc_log_of(self._final))
                self._cdc = CdcLogWriter(log, work.columns, mode, work.instant, closing.config.name)
        except BaseException:
            self.discard()
            raise

    def _create(self, final: str) -> Sink:
        sink = self._sinks[final] = self._by.create(self._store, *self._at, final)
        return sink

    def changed(self, change: Changed) -> None:
        """Rows of the base file, or new ones, are changed."""
        if self._holds and change.op == "i":
            for keys in change.keys.chunks:
                self._filter.add(keys)
        if self._changes is not None:
            self._changes.write(change.op, change.keys, change.before, change.after)
        if self._cdc is not None:
            self._cdc.write(change.op, change.keys, change.before, change.after)

    def close(self) -> tuple[DataFile, ...]:
        """Make it durable."""
        ended = [self.writer.close(self._layout)] + [each.close() for each in (self._changes, self._cdc) if each]
        for sink in self._sinks.values():
            sink.close()
        return tuple(
            DataFile(final, size, rows, self._by.handle(*self._at, final, sink))
            for (final, sink), (size, rows) in zip(self._sinks.items(), ended, strict=True)
        )

    def discard(self) -> None:
        """Give up what was written."""
        self.writer.stop()
        if self._changes is not None:
            self._changes.stop()
        for sink in self._sinks.values():
            sink.discard()


def filter_of(footer: base_file.Footer | None, target: Target) -> tuple[bloom.Filter, bool]:
    """The filter of the new file, and whether it has the old one's keys: so it has where it has room for those that come.

    Where an index computes the file group of a key, more may be new than are counted here; nobody asks a filter there.
    """
    anew = filter_for((footer.rows if footer else 0) + target.rows)
    old = footer.keys_filter() if footer else None
    # JVM Hudi's has 431,380 characters in every file, even for two rows.
    if old is None or old.room < target.inserts or old.bits * len(old.rows) > _HUGE * anew.bits:
        return anew, False
    return old, True


def filter_for(keys: int) -> bloom.Filter:
    """A new filter, with room for more keys than these."""
    return bloom.Filter.sized(keys + keys // SPARE)
