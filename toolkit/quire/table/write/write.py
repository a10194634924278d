"""The files of a commit: base files, each merged with the rows that come for it, or log files of these rows, where the runner has put
the task.

They wait where nobody lists them, as a committer keeps output. Each try of a task writes names of its own, and only those count that the
runner has brought an answer for: the others go with the attempt.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import msgspec
import pyarrow as pa

from quire.commit import names as objects
from quire.commit.committers import committer
from quire.commit.entries import FORMAT, DataFile, Natural, Seconds, decode, encode, stored
from quire.engine.job import ATTEMPTS
from quire.errors import FormatError, QuireError, StorageError, TransientError, scrub
from quire.progress import Phase, Progress
from quire.spark.collector import without_collector
from quire.spark.runner import Failure, Runner
from quire.storage import Sink, Store
from quire.storage.retry import Patience
from quire.table import reading
from quire.table.format import filled, log_file, names
from quire.table.format.names import LogFile
from quire.table.settings import AVRO
from quire.table.write.append import Appending
from quire.table.write.blocks import DELETES, KEY, Blocks, Closing
from quire.table.write.cluster import clustered
from quire.table.write.compact import compacted
from quire.table.write.failures import worst
from quire.table.write.merge import Brought, Coming, Merged, merge
from quire.table.write.output import TRIES, Base, Output, Work, filter_of, in_key_order
from quire.table.write.targets import Share, Target


@stored
class Written(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="written"):
    """The answer of a task: what it made of a target. `file` None: nothing of what came changed a row, so the slice stays."""

    partition: str
    group: str
    previous: str  # the instant of the slice that the file changes; "": it has no base file before
    counts: Merged
    said: Natural = 0  # of a compaction: rows and deletes in the logs that it merged, however often they name a key,
    blocks: Natural = 0  # and in how many blocks
    file: DataFile | None
    changes: DataFile | None = None  # its change file: what it changed in the slice before; a new file group needs none
    cdc: DataFile | None = None  # the same as Hudi's CDC log, where the table has them
    seconds: Seconds
    format: int = FORMAT

    @property
    def outputs(self) -> tuple[DataFile, ...]:
        """All that waits for the commit."""
        return tuple(file for file in (self.file, self.changes, self.cdc) if file)


def write(
    runner: Runner, work: Work, targets: Sequence[Target], *, progress: Progress | None = None
) -> list[Written]:  # fmt: skip
    """Write the files of an instant, one for each target; what came of them, in their order.

    A task that fails is tried again; where that does not help, all that was written goes, and a QuireError says why. A caller that does not
    commit it in the end calls `abort`.
    """
    closing, found = work.closing, dict[int, Written]()
    tries, patience = 0, Patience()
    try:
        with (progress or Progress(False)).phase("writing", total=len(targets)) as bar:
            while missing := [i for i in range(len(targets)) if i not in found]:
                outcomes = runner.run(partial(_write, work), [targets[i] for i in missing], watch=partial(_watch, closing, bar))
                failed = list[Failure]()
                for i, outcome in zip(missing, outcomes, strict=True):
                    if isinstance(outcome, Failure):
                        failed.append(outcome)
                    else:
                        found[i] = _checked(work, targets[i], outcome)
                tries += 1
                _again(closing, failed, len(targets), tries, patience)
            bar.to(len(targets))
    except BaseException:
        abort(closing, list(found.values()))
        raise
    return [found[i] for i in range(len(targets))]


def _watch(closing: Closing, bar: Phase) -> None:
    """Move the bar by the files that the store shows; those of uploads are seen at their end alone."""
    try:
        bar.to(finished(closing))
    except StorageError:
        bar.update(0)  # a store that stays away is said by those who need it


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


def _checked(work: Work, target: Target, answer: Mapping[str, Any]) -> Written:
    """An executor's answer, if it is of this attempt and its numbers agree."""
    found: Written = decode(json.dumps(answer).encode(), Written, f"the answer of a task of job {work.closing.job}")
    counts, file = found.counts, found.file
    came = counts.updates + counts.inserts + counts.deletes + counts.stale
    right = (found.partition, found.group, found.previous) == (target.partition, target.group, target.previous)
    if target.compacts:
        right = right and file is not None and found.said >= came
    elif target.ranges:
        right = right and not came and (file is not None) == (counts.kept > 0)
    else:
        right = right and came - counts.again == target.rows and (file is not None) == (came > counts.stale)
    log = target.log
    if file is not None:
        begun = log.begun if log else work.instant
        right = right and owned(file.name, work.closing.attempt) == (target.partition, target.group, begun, log.number if log else 0)
        right = right and file.records == counts.kept + counts.updates + counts.inserts + (counts.deletes if log else 0)
    right = right and (found.changes is not None) == (work.kept.change_files and target.base is not None and file is not None)
    right = right and (found.cdc is not None) == (bool(work.closing.config.cdc) and target.base is not None and file is not None)
    right = right and (log is None or (came == counts.updates + counts.deletes and not counts.kept))
    if file is not None and found.changes is not None:
        right = right and found.changes.name == names.change_file_of(file.name) and found.changes.records == came - counts.stale
    if file is not None and found.cdc is not None:
        right = right and found.cdc.name == names.cdc_log_of(file.name) and found.cdc.records == came - counts.stale
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
def _write(work: Work, target: Target) -> dict[str, Any]:
    """Write one file, in names that no other try uses."""
    started, store, counts = time.time(), work.closing.store, Merged()
    said = blocks = 0
    with without_collector():
        if target.compacts:
            file, said, blocks = compacted(work, store, target, counts)
            files: tuple[DataFile, ...] = (file,)
        elif target.ranges:
            files = clustered(work, store, target, counts)
        else:
            files = _merged(work, store, target, counts) if target.log is None else _appended(work, store, target, counts)
    took = round(time.time() - started, 3)
    made = Written(
        partition=target.partition, group=target.group, previous=target.previous, counts=counts, said=said, blocks=blocks,
        file=next(iter(files), None), changes=next((f for f in files[1:] if not f.name.endswith(names.CDC)), None),
        cdc=next((f for f in files[1:] if f.name.endswith(names.CDC)), None), seconds=took,
    )  # fmt: skip
    return cast("dict[str, Any]", json.loads(encode(made)))


def _merged(work: Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, ...]:
    """A base file that takes the place of the slice's, and its change file; nothing, where no row has changed."""
    base = Base(store, target.base, work.reads) if target.base else None
    keys_filter, holds = filter_of(base.footer if base else None, target)
    output = Output(work, store, target, keys_filter, holds=holds, replaces=base is not None)
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


def _appended(work: Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, ...]:
    """A log file of the slice. Rows are counted as updates and deletes: readers tell what they meet."""
    closing, place = work.closing, target.log
    assert place is not None
    assert closing.config.ordering is not None
    task = secrets.randbelow(TRIES)
    name = LogFile(target.group, place.begun, place.number, names.write_token(task, closing.attempt))
    final, at = names.path(target.partition, name.name), (closing.job, closing.task, closing.attempt)
    appending = Appending(
        work.instant,
        str(task),
        target.partition,
        target.group,
        work.columns,
        closing.config.name,
        closing.config.ordering,
        work.kept.log_format == AVRO,
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


def _brought(work: Work, store: Store, share: Share) -> Brought:
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
    if keys.null_count or deletes.null_count or not in_key_order(keys):
        raise FormatError(f"{where} does not hold rows sorted by key in batch {run.batch}: look who writes there")
    return Brought(pa.table(rows, work.columns.names), keys, deletes)
