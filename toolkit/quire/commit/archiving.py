"""Moves old entries of a log into its archive.

read ten thousand entries → put them if absent, as one object → read that back → delete the entries

Anybody may do it, at any time, and again: entries never change, so each call puts the same, and an object that is there decides. The
next call deletes what one that died has left, and what a writer that had slept has put under a number that is archived.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit import archive, names
from quire.commit.archive import ARCHIVED
from quire.commit.entries import Entry as AnEntry
from quire.commit.exports import needed
from quire.commit.history import HISTORY, history_row
from quire.commit.log import Log
from quire.storage import Entry, remove_all


def horizon(log: Log) -> int:
    """The last entry that goes: no readable version is older, none that a pin or an export holds, and the checkpoint stands for it."""
    last = min([log.expired(), log.merged, *needed(log)])
    return last - last % archive.BLOCK


def due(log: Log) -> int:
    """How many entries go, as the archive is now."""
    return max(0, horizon(log) - log.archive.look())


def move(log: Log, goes_on: Callable[[], bool] = lambda: True) -> int:
    """Move the entries that go, ten thousand at a time, while `goes_on` says so; how many. FormatError where one of them is damaged."""
    moved = 0
    for last in range(log.archive.look() + archive.BLOCK, horizon(log) + 1, archive.BLOCK):
        if not goes_on():
            break
        found = list(log.stored(range(last - archive.BLOCK + 1, last + 1)))
        log.store.put_if_absent(names.archived(last), _made(found, last))
        log.archive.check(last, [data for data, _ in found])
        log.archive.saw([names.archived(last)])
        moved += archive.BLOCK
        sweep(log)
    return moved


def sweep(log: Log) -> int:
    """Delete the entries that are archived, and what was put in their places since; how many. FormatError where the archive lacks one."""
    head = log.archive.look()
    found = log.store.scan(names.LOG, until=names.entry(head + 1).rpartition("/")[2]) if head else ()
    gone = {item.name: number for item in found if isinstance(item, Entry) and 0 < (number := names.number_of(item.name)) <= head}
    for last in {archive.last_of(number) for number in gone.values()}:
        log.archive.check(last)  # who has put it may have died before a look
    remove_all(log.store, [*gone])
    return len(gone)


def _made(found: Sequence[tuple[bytes, AnEntry]], last: int) -> bytes:
    rows = [history_row(number, entry) for number, (_, entry) in enumerate(found, last - archive.BLOCK + 1)]
    columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), HISTORY, strict=True)]
    table = pa.table([*columns, pa.array([data for data, _ in found], pa.binary())], ARCHIVED)
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", row_group_size=archive.GROUP)
    data: bytes = out.getvalue().to_pybytes()
    return data
