"""The part of an entry: its tasks and what they have left, in a file of its own where they would make it too long."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from quire.commit import names
from quire.commit.entries import Abort, Commit, Entry, LeftOut, Manifest, Part, decode, encode
from quire.errors import FormatError
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.storage import Store

LONGEST = 1 << 20  # bytes; a longer entry keeps its tasks, and what they have left, in a file of its own
TOGETHER = 1_000  # of what was left, in a row of such a file
_PART = pa.schema([pa.field("task", pa.string(), nullable=False)])


def shortened(entry: Entry, store: Store) -> Entry:
    """An entry as it stands in the log: where it would be too long, its part holds its tasks, and what they have left."""
    if not isinstance(entry, Commit | Abort) or len(encode(entry)) <= LONGEST:
        return entry
    name = names.part(entry.job)
    tasks = entry.tasks if isinstance(entry, Commit) else ()
    rows: list[Part] = [Manifest(job=entry.job, task=task) for task in tasks]
    rows += [LeftOut(left=entry.left[i : i + TOGETHER]) for i in range(0, len(entry.left), TOGETHER)]
    table = pa.table({"task": [encode(row).decode() for row in rows]}, _PART)
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd")
    store.put(name, out.getvalue().to_pybytes())
    if isinstance(entry, Commit):
        return replace(entry, tasks=(), left=(), parts=name)
    return replace(entry, left=(), parts=name)


def whole(entry: Commit | Abort, store: Store, where: str) -> Commit | Abort:
    """An entry with what stands in its part."""
    assert entry.parts is not None
    if names.job_of_part(entry.parts) != entry.job:
        raise FormatError(f"{where} names {entry.parts[:200]!r}, which is not a part of its own: nothing was touched.")
    try:
        table = OwnParquet(store.get(entry.parts), _PART).read()
        rows: list[Part] = [decode(t.encode(), Part, f"{where} ({entry.parts})") for t in table.column("task").to_pylist()]
    except DAMAGED as e:
        raise FormatError(f"{where} names {entry.parts}, which is damaged: {str(e)[:200]}. Put back a good copy.") from e
    left = tuple(item for row in rows if isinstance(row, LeftOut) for item in row.left)
    if isinstance(entry, Abort):
        return replace(entry, left=left)
    return replace(entry, tasks=tuple(row.task for row in rows if isinstance(row, Manifest)), left=left)
