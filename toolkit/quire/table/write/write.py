"""The files of a commit: base files, each merged with the rows that come for it, or log files of these rows, where the runner has put
the task.

They wait where nobody lists them, as a committer keeps output. Each try of a task writes names of its own, and only those count that the
runner has brought an answer for: the others go with the attempt.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names as objects
from quire.commit.committers import committer
from quire.commit.entries import FORMAT, DataFile, Seconds, decode, encode, stored
from quire.engine.job import ATTEMPTS
from quire.errors import FormatError, QuireError, TransientError, scrub
from quire.formats import parquet
from quire.spark.runner import Failure, Runner, Watch, without_collector
from quire.storage import Sink, Store
from quire.storage.retry import Patience
from quire.table import reading
from quire.table.file_groups import Slice
from quire.table.format import base_file, bloom, filled, log_file, names
from quire.table.format.change_file import ChangeFileWriter
from quire.table.format.config import EVENT_TIME
from quire.table.format.names import BaseFile, LogFile
from quire.table.format.schema import META, storable, with_meta
from quire.table.write.append import Appending
from quire.table.write.blocks import DELETES, KEY, Blocks, Closing
from quire.table.write.failures import worst
from quire.table.write.merge import Brought, Changed, Coming, Merged, merge
from quire.table.write.targets import Share, Target

SPARE = 8  # a filter has room for an eighth of its keys more
_HUGE = 4  # as many times as large as a new one: not worth keeping
_TRIES = 1 << 30


@stored
class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="written"):
    """The answer of a task: what it made of a target. `file` None: nothing of what came changed a row, so the slice stays."""

    partition: str
    group: str
    previous: str  # the instant of the slice that the file changes; "": the file group is new
    counts: Merged
    file: DataFile | None
    changes: DataFile | None = None  # its change file: what it changed in the slice before; a new file group needs none
    seconds: Seconds
    format: int = FORMAT

    @property
    def outputs(self) -> tuple[DataFile, ...]:
        """All that waits for the commit."""
        return tuple(file for file in (self.file, self.changes) if file)


def write(
    runner: Runner, closing: Closing, targets: Sequence[Target], instant: str, schema: pa.Schema, *, change_files: bool = False,
    watch: Watch | None = None,
) -> list[Written]:  # fmt: skip
    """Write the files of `instant`, one for each target; what came of them, in their order.

    `schema`: the table's columns after this commit, without meta columns. `change_files`: beside each file that replaces a slice, what it
    changes. A task that fails is tried again; where that does not help, all that was written goes, and a QuireError says why. A caller
    that does not commit it in the end calls `abort`.
    """
    work, found = _Work(closing, instant, storable(schema), change_files), dict[int, Written]()
    tries, patience = 0, Patience()
    try:
        while missing := [i for i in range(len(targets)) if i not in found]:
            outcomes = runner.run(partial(_write, work), [targets[i] for i in missing], watch=watch)
            failed = list[Failure]()
            for i, outcome in zip(missing, outcomes, strict=True):
                if isinstance(outcome, Failure):
                    failed.append(outcome)
                else:
                    found[i] = _checked(work, targets[i], outcome)
            tries += 1
            _again(closing, failed, len(targets), tries, patience)
    except BaseException:
        abort(closing, list(found.values()))
        raise
    return [found[i] for i in range(len(targets))]


def finished(closing: Closing) -> int:
    """How many files of a run wait for its commit, as far as the store shows it."""
    found = closing.store.walk(objects.attempt_folder(closing.job, closing.task, closing.attempt))
    waiting = (names.file(entry.name.rpartition("/")[2].removesuffix(objects.STAGED)) for entry in found)
    return len({file.file_id for file in waiting if file is not None})  # of two tries of a task, one counts


def abort(closing: Closing, written: Sequence[Written]) -> None:
    """Remove all that a run has written, also its blocks: it will not be committed."""
    outputs = {file.name: cast("Sink", _Closed(file.handle)) for each in written for file in each.outputs}
    committer(closing.committer, closing.store).abort_task(closing.store, closing.job, closing.task, closing.attempt, outputs)


@dataclass(frozen=True)
class _Closed:
    """As a committer gives up an output: by its handle."""

    handle: str


def _again(closing: Closing, failed: list[Failure], total: int, tries: int, patience: Patience) -> None:
    """Wait, or raise what another try does not mend."""
    if not failed:
        return
    one, kind = worst(failed)
    said = f"{len(failed):,} of {total:,} files of job {closing.job} could not be written; {scrub(str(one).rstrip('.'), 500)}"
    if kind is TransientError:
        patience.wait(TransientError(said))
    elif kind is not QuireError:
        raise kind(one.text)
    elif tries >= ATTEMPTS:
        raise QuireError(f"{said} ({tries} times). Nothing of it is visible in {closing.store.url}: call again.")


def _checked(work: _Work, target: Target, answer: Mapping[str, Any]) -> Written:
    """An executor's answer, if it is of this attempt and its numbers agree."""
    found: Written = decode(json.dumps(answer).encode(), Written, f"the answer of a task of job {work.closing.job}")
    counts, file = found.counts, found.file
    came = counts.updates + counts.inserts + counts.deletes + counts.stale
    right = (found.partition, found.group, found.previous) == (target.partition, target.group, target.previous)
    right = right and came == target.rows and (file is not None) == (came > counts.stale)
    log = target.log
    if file is not None:
        begun = log.begun if log else work.instant
        right = right and owned(file.name, work.closing.attempt) == (target.partition, target.group, begun, log.number if log else 0)
        right = right and file.records == counts.kept + counts.updates + counts.inserts + (counts.deletes if log else 0)
    right = right and (found.changes is not None) == (work.change_files and target.base is not None and file is not None)
    right = right and (log is None or (came == counts.updates + counts.deletes and not counts.kept))
    if file is not None and found.changes is not None:
        right = right and found.changes.name == names.change_file_of(file.name) and found.changes.records == came - counts.stale
    if not right:
        raise FormatError(
            f"a task of job {work.closing.job} was given {target.rows:,} rows for the file group {target.group} in {target.partition!r}, "
            f"and has answered {str(answer)[:300]}: look who answers for it."
        )
    return found


def owned(name: str, attempt: str) -> tuple[str, str, str, int] | None:
    """Partition, file group, instant and number of a file that this attempt may have written; None: it is another's, or none of a table.

    The number is that of a log file in its slice, and 0 for a base file.
    """
    partition, _, last = name.rpartition("/")
    file = names.file(last)
    found = names.attempt_of(file.token) if file else None
    if file is None or found is None or found[1] != attempt:
        return None
    return partition, file.file_id, file.instant, file.number if isinstance(file, LogFile) else 0


# ------------------------------------------------------------------------------------------------------------------- one target
@dataclass(frozen=True)
class _Work:
    """The same for all tasks of a run; it travels to them."""

    closing: Closing
    instant: str
    columns: pa.Schema = field(repr=False)
    change_files: bool

    @property
    def ordering(self) -> str | None:
        """The field by which stored rows win, where they may."""
        config = self.closing.config
        return config.ordering if config.mode == EVENT_TIME else None


def _write(work: _Work, target: Target) -> dict[str, Any]:
    """Write one file, in names that no other try uses."""
    started, store, counts = time.time(), work.closing.store, Merged()
    with without_collector():
        files = _merged(work, store, target, counts) if target.log is None else _appended(work, store, target, counts)
    took = round(time.time() - started, 3)
    file, changes = (*files, None, None)[:2]
    made = Written(
        partition=target.partition, group=target.group, previous=target.previous, counts=counts, file=file, changes=changes, seconds=took,
    )  # fmt: skip
    return cast("dict[str, Any]", json.loads(encode(made)))


def _merged(work: _Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, ...]:
    """A base file that takes the place of the slice's, and its change file; nothing, where no row has changed."""
    base = _Base(store, target.base, work.columns) if target.base else None
    output = _Output(work, store, target, base)
    try:
        coming = [Coming(share.run.first, partial(_brought, work, store, share)) for share in target.shares]
        before, where, in_order = (base.batches(), base.where, base.in_order) if base else ((), "", True)
        changed = output.changed if base else None
        rows = merge(before, coming, work.ordering, counts, where, in_order=in_order, changed=changed)
        for piece in rows:
            output.writer.write(piece.rows, piece.keys, piece.times, piece.seqnos)
        files = output.close() if counts.updates + counts.inserts + counts.deletes else ()
        if not files:
            output.discard()
    except BaseException:
        output.discard()
        raise
    return files


def _appended(work: _Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, ...]:
    """A log file of the slice. Rows are counted as updates and deletes: readers tell what they meet."""
    closing, place = work.closing, target.log
    assert place is not None
    assert closing.config.ordering is not None
    task = secrets.randbelow(_TRIES)
    name = LogFile(target.group, place.begun, place.number, names.write_token(task, closing.attempt))
    final, at = names.path(target.partition, name.name), (closing.job, closing.task, closing.attempt)
    appending = Appending(
        work.instant, str(task), target.partition, target.group, work.columns, closing.config.name, closing.config.ordering
    )
    by, size = committer(closing.committer, store), 0
    sink = by.create(store, *at, final)
    try:
        for block, rows, deletes in appending.blocks(_brought(work, store, share) for share in target.shares):
            data = log_file.encode(block)
            sink.write(data)
            size += len(data)
            counts.updates += rows
            counts.deletes += deletes
        sink.close()
    except BaseException:
        sink.discard()
        raise
    return (DataFile(final, size, counts.updates + counts.deletes, by.handle(*at, final, sink)),)


def _brought(work: _Work, store: Store, share: Share) -> Brought:
    """The rows of a share, in the table's columns: one that they lack is null."""
    run = share.run
    batch = Blocks(store, run.name).batch(run.batch, run.rows).slice(share.start, share.rows)
    where = f"{store.url}/{run.name}"
    there = set(batch.schema.names)
    with reading.reading_of(where):
        rows = [
            filled.cast(batch.column(f.name), f.type) if f.name in there else filled.nulls(batch.num_rows, f.type) for f in work.columns
        ]
        keys, deletes = batch.column(KEY).cast(pa.string()), batch.column(DELETES).cast(pa.bool_())
    if keys.null_count or deletes.null_count or not _sorted(keys):
        raise FormatError(f"{where} does not hold rows sorted by key in batch {run.batch}: look who writes there")
    return Brought(pa.table(rows, work.columns.names), keys, deletes)


def _sorted(keys: pa.Array | pa.ChunkedArray, *, twice: bool = False) -> bool:
    """Whether they ascend; one may be there `twice`."""
    before = pc.less_equal if twice else pc.less
    return len(keys) < 2 or bool(pc.all(before(keys.slice(0, len(keys) - 1), keys.slice(1))).as_py())


class _Base:
    """The base file that is replaced: its rows as a stream, a row group at a time."""

    def __init__(self, store: Store, one: Slice, columns: pa.Schema) -> None:
        self.where = f"{store.url}/{one.name}"
        self._columns = pa.schema([f for f in with_meta(columns) if f.name not in META[3:]])
        self._file = base_file.open_base_file(parquet.stored(store, one.name), self.where)
        self.footer = base_file.footer_of(self._file, self.where)
        if not self.footer.has_meta:
            raise FormatError(f"{self.where} does not have the five columns of Hudi first: look who wrote it")
        self.in_order = self._ascends()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Sorted by key where row groups follow one another, else as they are."""
        for number in range(self._file.num_row_groups):
            rows = reading.row_group(self._file, number, self._columns, self.where)
            if self.in_order and not _sorted(rows.column(KEY), twice=True):
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


class _Output:
    """The file that is written, and its change file."""

    def __init__(self, work: _Work, store: Store, target: Target, base: _Base | None) -> None:
        closing = work.closing
        self._by, self._store, self._at = committer(closing.committer, store), store, (closing.job, closing.task, closing.attempt)
        name = BaseFile(target.group, names.write_token(secrets.randbelow(_TRIES), closing.attempt), work.instant)
        self._sinks = dict[str, Sink]()
        self._final = names.path(target.partition, name.name)
        self._filter, self._holds = _filter(base.footer if base else None, target)
        self.writer = base_file.BaseFileWriter(
            self._create(self._final), name, target.partition, work.columns, table=closing.config.name, keys_filter=self._filter,
            filter_holds_keys=self._holds,
        )  # fmt: skip
        self._changes: ChangeFileWriter | None = None
        try:
            if base and work.change_files:
                self._changes = ChangeFileWriter(self._create(names.change_file_of(self._final)), work.columns)
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

    def close(self) -> tuple[DataFile, ...]:
        """Make it durable."""
        ended = [self.writer.close()] + ([self._changes.close()] if self._changes else [])
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


def _filter(footer: base_file.Footer | None, target: Target) -> tuple[bloom.Filter, bool]:
    """The filter of the new file, and whether it has the old one's keys: so it has where it has room for those that come.

    Where an index computes the file group of a key, more may be new than are counted here; nobody asks a filter there.
    """
    keys = (footer.rows if footer else 0) + target.rows
    anew = bloom.Filter.sized(keys + keys // SPARE)
    old = footer.keys_filter() if footer else None
    # JVM Hudi's has 431,380 characters in every file, even for two rows.
    if old is None or old.room < target.inserts or old.bits * len(old.rows) > _HUGE * anew.bits:
        return anew, False
    return old, True
