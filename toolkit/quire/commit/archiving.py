"""Moves old entries of a log into its archive.

read ten thousand entries → put them if absent, as one object → read that back → delete the entries

Anybody may do it, at any time, and again: entries never change, so each call puts the same, and an object that is there decides. The
next call deletes what one that died has left, and what a writer that had slept has put under a number that is archived.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from quire.commit import archive, names
from quire.commit.archive import ARCHIVED
from quire.commit.exports import needed
from quire.commit.history import history_row
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
        table = _rows(log, range(last - archive.BLOCK + 1, last + 1))
        log.store.put_if_absent(names.archived(last), _encoded(table))
        log.archive.check(last, table.column("entry"))
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


def _rows(log: Log, numbers: range) -> pa.Table:
    """Entries as the archive has them, some at a time: all at once as objects of Python's would take ten times the memory."""
    stored, tables = enumerate(log.stored(numbers), numbers.start), list[pa.Table]()
    while some := list(islice(stored, archive.GROUP)):
        rows = [(*history_row(number, entry), data) for number, (data, entry) in some]
        tables.append(
            pa.table([pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), ARCHIVED, strict=True)], ARCHIVED)
        )
    return pa.concat_tables(tables)


def _encoded(table: pa.Table) -> bytes:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", row_group_size=archive.GROUP)
    data: bytes = out.getvalue().to_pybytes()
    return data
