"""A slice of a merge-on-read table written anew without its logs: its base file merged with what they say.

Source: Hudi's `HoodieCompactor`. Rows keep the instant and the number that the commit gave them which wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from quire.commit.entries import DataFile
from quire.storage import Store
from quire.table import reading, realtime
from quire.table.format.schema import META
from quire.table.realtime import Changes
from quire.table.write.merge import Merged
from quire.table.write.output import Base, Output, Work, filter_for
from quire.table.write.targets import Target

if TYPE_CHECKING:
    import pyarrow as pa

_TIME, _SEQNO, _KEY = META[:3]


def compacted(work: Work, store: Store, target: Target, counts: Merged) -> tuple[DataFile, int, int]:
    """The new base file, and how many rows and deletes, in how many blocks, the logs had.

    A row group of the old file is in memory, and all logs. A slice of which no row is left has a file all the same: without one, its rows
    would be read from the slice before.
    """
    one, merging = target.base, work.merging
    assert one is not None
    assert merging is not None
    reads = merging.reads(work.reads)
    base = Base(store, one, reads) if one.name else None
    changes = realtime.changes_of(store, one, reads, merging)
    rows = (base.footer.rows if base else 0) + (len(changes.keys) if changes else 0)
    output, where = Output(work, store, target, filter_for(rows)), f"{store.url}/{one.name or one.logs[0]}"
    try:
        for batch in _merged(base, changes, work, counts):
            with reading.reading_of(where):
                piece = batch.select(work.columns.names).cast(work.columns)
            output.writer.write(piece, *(batch.column(name) for name in (_KEY, _TIME, _SEQNO)))
        (file,) = output.close()
    except BaseException:
        output.discard()
        raise
    return file, changes.said if changes else 0, changes.blocks if changes else 0


def _merged(base: Base | None, changes: Changes | None, work: Work, counts: Merged) -> Iterator[pa.RecordBatch]:
    """The rows of the new file, in the order of their keys if the old one is."""
    assert work.merging is not None
    before = base.batches() if base else iter(())
    if changes is not None:
        yield from realtime.applied(before, changes, work.merging, in_order=base is None or base.in_order, counts=counts)
        return
    for batch in before:
        counts.kept += batch.num_rows
        yield batch
