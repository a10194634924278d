"""The rows of a listing in one order, on the driver's disk, cut where a commit is full.

Sorted blocks first, which are merged then: some batches of each are in memory at a time. The files have no names, so they go with the
process, however it ends.
"""

from __future__ import annotations

import tempfile
import weakref
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.arguments import count, parse_target, refuse_needless
from quire.errors import choose
from quire.planning import pack
from quire.planning.listing import CHUNK, PLAN, TaskRun
from quire.storage import Store
from quire.storage.scratch import on_disk

ORDERS = {"oldest": 1, "newest": -1, "name": 0}  # with how a file's time counts
SORTED = 200_000  # rows that are sorted at once
BATCH = 8_192  # rows that are read again at once
KEY = ("at", "path", "start")
ROWS = pa.schema([*PLAN, ("root", pa.int64()), ("at", pa.int64())])
MOST = (1 << 63) - 1


@dataclass(frozen=True)
class Bound:
    """How much one commit takes of what a listing has found, and in which order; None: no bound."""

    bytes: int | None = None  # as they are stored
    files: int | None = None
    order: str = "oldest"

    @classmethod
    def parsed(cls, max_bytes: str | int | None, max_files: int | None, order: str) -> Bound:
        """The same of a call's arguments; UsageError for wrong ones."""
        choose(order, ORDERS, "order")
        found = cls(None if max_bytes is None else parse_target(max_bytes, "max_bytes"), count(max_files, "max_files", 1), order)
        refuse_needless({"order": order}, {"max_bytes= or max_files=": bool(found)})
        return found

    def __bool__(self) -> bool:
        return self.bytes is not None or self.files is not None

    def holds(self, files: int, size: int) -> bool:
        """Whether one commit takes all of that."""
        return files <= (self.files or MOST) and size <= (self.bytes or MOST)


class Ordered:
    """The rows of a listing in the order of `bound`, each commit's after the other's; all rows of a file are in one commit.

    Raises QuireError where the driver's disk is full.
    """

    def __init__(self, runs: Iterable[TaskRun], store: Store, bound: Bound) -> None:
        self._cuts, self._begins = _Cuts(bound), array("q")  # rows before each batch
        with _on_disk(), ExitStack() as blocks:
            self._file = file = tempfile.TemporaryFile()  # noqa: SIM115  # it is read as long as this is there
            weakref.finalize(self, file.close)
            with _writer(file) as writer:
                rows = 0
                for table in _whole_files(_merged(list(_blocks(runs, store, ORDERS[bound.order], blocks)))):
                    self._cuts.add(table)
                    for batch in table.combine_chunks().to_batches(BATCH):
                        self._begins.append(rows)
                        writer.write_batch(batch)
                        rows += batch.num_rows
            self._cuts.close()

    @property
    def commits(self) -> int:
        """How many there are."""
        return len(self._cuts.rows)

    def after(self, commit: int) -> tuple[int, int]:
        """The files and bytes of all that come after a commit."""
        return self._cuts.files[-1] - self._cuts.files[commit], self._cuts.bytes[-1] - self._cuts.bytes[commit]

    def commit(self, number: int) -> Iterator[pa.Table]:
        """The rows of a commit, a bounded number at a time."""
        begin, end = self._cuts.rows[number - 1] if number else 0, self._cuts.rows[number]
        waiting, held = list[pa.Table](), 0
        with _on_disk():
            reader = _reader(self._file)
            for i in range(bisect_right(self._begins, begin) - 1, len(self._begins)):
                if (at := self._begins[i]) >= end:
                    break
                first = max(begin, at) - at
                some = pa.Table.from_batches([reader.get_batch(i)]).slice(first, end - at - first)
                waiting.append(some)
                held += some.num_rows
                if held >= CHUNK:
                    yield pa.concat_tables(waiting)
                    waiting, held = [], 0
        if waiting:
            yield pa.concat_tables(waiting)


class _Cuts:
    """Where one commit ends: rows, files and bytes up to there."""

    def __init__(self, bound: Bound) -> None:
        self.rows, self.files, self.bytes = array("q"), array("q"), array("q")
        self._bound, self._seen, self._size, self._row = bound, 0, 0, 0  # so far
        self._files = self._bytes = 0  # of the commit that is not full yet

    def add(self, table: pa.Table) -> None:
        """More rows, those of a file all together."""
        paths = table.column("path").combine_chunks()
        first = np.ones(len(paths), bool)
        first[1:] = pc.not_equal(paths[1:], paths[:-1]).to_numpy(zero_copy_only=False)
        begins = np.flatnonzero(first)
        sizes = np.cumsum(np.add.reduceat(table.column("length").to_numpy(), begins))
        at, total = 0, len(begins)
        while at < total:
            before = int(sizes[at - 1]) if at else 0
            room = min(MOST, before + (self._bound.bytes or MOST) - self._bytes)
            until = min(total, at + (self._bound.files or MOST) - self._files, int(np.searchsorted(sizes, room, "right")))
            if until <= at and self._files:
                self._end(int(begins[at]), at, before)
                continue
            until = max(until, at + 1)  # a file that is larger than the bound is a commit of its own
            self._files, self._bytes = self._files + until - at, self._bytes + int(sizes[until - 1]) - before
            at = until
        self._row, self._seen, self._size = self._row + table.num_rows, self._seen + total, self._size + int(sizes[-1])

    def _end(self, rows: int, files: int, size: int) -> None:
        self.rows.append(self._row + rows)
        self.files.append(self._seen + files)
        self.bytes.append(self._size + size)
        self._files = self._bytes = 0

    def close(self) -> None:
        """The last commit ends with the last row."""
        if self._files:
            self._end(0, 0, 0)


def _blocks(runs: Iterable[TaskRun], store: Store, sign: int, opened: ExitStack) -> Iterator[Iterator[pa.Table]]:
    """The rows that runs of a plan name, in sorted blocks, each of which can be read once while their files are `opened`."""
    waiting, held = list[pa.Table](), 0
    for (_, root), some in groupby(runs, key=lambda run: (run.object, run.root)):
        for table in pack.read_rows(store, list(some)):
            at = pc.multiply(table.column("modified"), pa.scalar(sign, pa.int64()))
            more = table.append_column("root", pa.array([root] * table.num_rows, pa.int64())).append_column("at", at).cast(ROWS)
            waiting.append(more)
            held += more.num_rows
            if held >= SORTED:
                yield _spilled(_in_order(waiting), opened)
                waiting, held = [], 0
    if waiting:
        yield _spilled(_in_order(waiting), opened)


def _in_order(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables).combine_chunks().sort_by([(name, "ascending") for name in KEY])


def _spilled(table: pa.Table, opened: ExitStack) -> Iterator[pa.Table]:
    """Write a sorted block now, and read it again a batch at a time."""
    file: IO[bytes] = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    with _writer(file) as writer:
        writer.write_table(table, max_chunksize=BATCH)

    def read() -> Iterator[pa.Table]:
        reader = _reader(file)
        for i in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(i)])

    return read()


def _reader(file: IO[bytes]) -> Any:
    file.seek(0)
    return pa.ipc.open_file(pa.PythonFile(file, "r"))


def _writer(file: IO[bytes]) -> Any:
    return pa.ipc.new_file(pa.PythonFile(file, "w"), ROWS, options=pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False))


def _merged(blocks: list[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """All rows of sorted blocks in order: what comes before the end of the batch that ends first is complete."""
    heads = [(head, block) for block in blocks if (head := next(block, None)) is not None]
    while heads:
        last = min(_key(head, -1) for head, _ in heads)
        ready, ahead = list[pa.Table](), list[tuple[pa.Table, Iterator[pa.Table]]]()
        for head, block in heads:
            n = _before(head, last)
            ready.append(head.slice(0, n))
            rest = head.slice(n) if n < head.num_rows else next(block, None)
            if rest is not None:
                ahead.append((rest, block))
        yield _in_order(ready)
        heads = ahead


def _key(table: pa.Table, row: int) -> tuple[int, str, int]:
    at, path, start = (table.column(name)[row].as_py() for name in KEY)
    return at, path, start


def _before(head: pa.Table, last: tuple[int, str, int]) -> int:
    """How many rows of a batch come no later than a key."""
    low, high = 0, head.num_rows
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if _key(head, middle) <= last else (low, middle)
    return low


def _whole_files(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """The same rows, cut where a file ends."""
    waiting = list[pa.Table]()
    for table in tables:
        path = table.column("path")
        rest = pc.sum(pc.equal(path, path[-1])).as_py()
        done = table.num_rows - rest
        if done:
            yield pa.concat_tables([*waiting, table.slice(0, done)])
            waiting = []
        elif waiting and waiting[-1].column("path")[-1] != path[-1]:
            yield pa.concat_tables(waiting)
            waiting = []
        waiting.append(table.slice(done))
    if waiting:
        yield pa.concat_tables(waiting)


def _on_disk() -> AbstractContextManager[None]:
    return on_disk("the listing waits for its commits", "what was committed is safe")
