"""Packs the runs of a listing into tasks, and refuses a plan in which a listed file would be read by no task."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit.names import ROWS
from quire.errors import FormatError, RefusedError, scrub
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.planning.drops import DROPS, put_table
from quire.planning.listing import PLAN, Cut, TaskRun
from quire.storage import Store, at_once

SMALL = 32 << 20  # bytes that are not worth a task of their own: a task of Spark costs some 50 ms, and a data file its place
FEW = 4_000  # files, likewise
HEADROOM = 0.97  # of the target, so that a task whose output is a little longer than guessed has no tiny second file
TASKS = 500  # that stand in one object of a plan

MARK = "?"  # in the place of a data file's name: the rows are marks

HEAD = pa.schema(
    [
        ("task", pa.int64()), ("folder", pa.string()), ("part", pa.int64()), ("object", pa.string()), ("root", pa.int64()),
        ("row", pa.int64()), ("rows", pa.int64()), ("bytes", pa.int64()), ("removes", pa.string()),
    ]
)  # fmt: skip


@dataclass
class PlannedTask:
    """A task: the runs that it reads in this order; or the data files that it removes and writes again, less the rows in `drops`.

    A task with `drops` and nothing to remove takes those of these rows out of the ledger that have no data file. Splits in `marks` are not
    read: they become rows in state `mark`.
    """

    folder: str
    part: int
    runs: list[TaskRun] = field(default_factory=list)
    removes: dict[str, int] = field(default_factory=dict)  # data file → bytes
    drops: tuple[str, ...] = ()  # objects of the plan
    marks: list[TaskRun] = field(default_factory=list)

    @property
    def files(self) -> int:
        """Splits, that is files or ranges of long ones."""
        return sum(run.rows for run in (*self.runs, *self.marks))

    @property
    def bytes(self) -> int:
        """To be read."""
        return sum(run.bytes for run in self.runs) + sum(self.removes.values())


def pack(runs: Iterable[TaskRun], cut: Cut, ratio: float, accounts: Sequence[str] = (), cores: int = 1) -> list[PlannedTask]:
    """Tasks of about `cut.target` bytes of output (balanced), or one a directory or part (directory, hash).

    Very many files whose output is small make up to one balanced task for each of `cores`, since a task reads files with one core.

    `ratio` is the guess of bytes written for a byte read. `accounts`: of each root. A task reads one account after the other, so that
    it needs one window of reads and its output has one order. Accounts are read at the same time by tasks that run at the same time:
    a balanced task holds one account, unless there is too little of it, and those that must hold several begin with different ones.
    """
    groups = defaultdict[tuple[str, int], list[TaskRun]](list)
    for run in runs:
        groups[run.group, run.part].append(run)
    tasks: list[PlannedTask] = []
    for (folder, part), found in sorted(groups.items()):
        apart = _by_account(found, accounts)
        least = min(cores, sum(run.rows for run in found) // cut.many) if len(groups) == len(apart) == 1 else 1
        if cut.planner == "balanced":
            budget = cut.target * HEADROOM / max(ratio, 0.001)
            for some in _alone(apart):
                even = _fill(folder, some, budget, max(least, math.ceil(sum(run.bytes for run in some) / budget)))
                # Where the runs did not fit into that many, they are spread evenly over as many as it takes.
                tasks += _fill(folder, some, budget, len(even))
        elif 0 <= part < max(cut.parts, 1):  # an input split is handed out for each of [0, parts), as in the article
            turn = len(tasks) % len(apart)
            tasks.append(PlannedTask(folder, part, [run for some in apart[turn:] + apart[:turn] for run in some]))
    return tasks


def _by_account(runs: list[TaskRun], accounts: Sequence[str]) -> list[list[TaskRun]]:
    found = defaultdict[str, list[TaskRun]](list)
    for run in runs:
        found[accounts[run.root] if accounts else ""].append(run)
    return list(found.values())


def _alone(apart: list[list[TaskRun]]) -> Iterator[list[TaskRun]]:
    """The runs that are packed for themselves: an account's runs, or those of several accounts that have little."""
    rest = list[TaskRun]()
    for some in apart:
        if len(apart) > 1 and sum(run.bytes for run in some) < SMALL and sum(run.rows for run in some) < FEW:
            rest += some
        else:
            yield some
    if rest:
        yield rest


def _fill(folder: str, runs: list[TaskRun], budget: float, n: int) -> list[PlannedTask]:
    """Fill about `n` tasks evenly, in the runs' order, none beyond the budget unless a single run is."""
    total = sum(run.bytes for run in runs)
    even = total / max(1, n)
    tasks, size, seen = [PlannedTask(folder, 0)], 0, 0
    for run in runs:
        # Shares are counted from the beginning, so that what tasks have too little does not pile up into one more task.
        full = size + run.bytes > budget or (seen + run.bytes / 2 > even * len(tasks) and seen < total)
        if tasks[-1].runs and full:
            tasks.append(PlannedTask(folder, 0))
            size = 0
        tasks[-1].runs.append(run)
        size += run.bytes
        seen += run.bytes
    return tasks


def check_complete(tasks: list[PlannedTask], files: int, size: int, cut: Cut) -> None:
    """Refuse a plan whose tasks do not hold what was listed, to the file and the byte."""
    assigned, assigned_bytes = sum(t.files for t in tasks), sum(t.bytes for t in tasks)
    if (assigned, assigned_bytes) == (files, size):
        return
    missing = files - assigned
    pattern = ""
    n = cut.parts
    predicted = (n - 1) / (2 * n)
    if (
        cut.planner == "hash"
        and missing > 0
        and (cut.hash_function == "java_without_abs" or abs(missing / files - predicted) < predicted / 5)
    ):
        pattern = (
            f" That is {missing / files:.0%} of all, and (N-1)/2N is {predicted:.0%} with N = {n} parts: the pattern of a missing abs() "
            f"around hash(name) % N."
        )
    raise RefusedError(
        f"the plan is refused: {missing:,} of {files:,} files would be read by no task.{pattern} "
        f"Nothing was read or written. Use hash_function='java' or 'xxh64', or the balanced planner."
    )


def write_head(store: Store, name: str, tasks: list[PlannedTask]) -> None:
    """Write which task reads which rows of which object: `TASKS` tasks in an object, the first ones, who are looked for, at last."""

    def put(first: int) -> None:
        rows = list[tuple[object, ...]]()
        for i, t in enumerate(tasks[first : first + TASKS], first):
            rows += [(i, t.folder, t.part, r.object, r.root, r.row, r.rows, r.bytes, "") for r in t.runs]
            rows += [(i, t.folder, t.part, "", 0, 0, 0, size, file) for file, size in t.removes.items()]
            rows += [(i, t.folder, t.part, object_name, 0, 0, 0, 0, "") for object_name in t.drops]
            rows += [(i, t.folder, t.part, r.object, 0, r.row, r.rows, 0, MARK) for r in t.marks]
        put_table(store, _object(name, first), pa.table(list(map(list, zip(*rows, strict=True))), schema=HEAD))

    at_once(*(partial(put, first) for first in range(TASKS, len(tasks), TASKS)))
    at_once(*(partial(put, first) for first in range(len(tasks))[:1]))


def _object(name: str, task: int) -> str:
    return name if task < TASKS else f"{name.removesuffix(ROWS)}-tasks-{task // TASKS}{ROWS}"


def read_head(store: Store, name: str, tasks: int) -> list[PlannedTask]:
    """All tasks of a plan, by number; fewer than `tasks` where it is damaged. NotFoundError if the plan is not there."""
    found = list[PlannedTask]()
    for first in range(0, tasks, TASKS):
        found += (some := _read_head(store, name, first))
        if len(some) < TASKS:
            break
    return found


def read_task(store: Store, name: str, task: int) -> PlannedTask:
    """One task of a plan, from the object that it stands in: an attempt's work does not grow with the number of tasks."""
    return _read_head(store, name, task // TASKS * TASKS, task)[0]


def _read_head(store: Store, name: str, first: int, task: int | None = None) -> list[PlannedTask]:
    tasks: dict[int, PlannedTask] = {}
    with _damaged(store, _object(name, first)):
        table = OwnParquet(store.get(_object(name, first)), _filled(HEAD)).read()
        if task is not None:
            table = table.filter(pc.equal(table.column("task"), task))
        for r in table.to_pylist():
            planned = tasks.setdefault(r["task"], PlannedTask(r["folder"], r["part"]))
            if r["removes"] and r["removes"] != MARK:
                planned.removes[r["removes"]] = r["bytes"]
                continue
            if not r["object"].startswith(name.removesuffix(ROWS) + "-"):
                raise ValueError(f"{r['object'][:200]!r} is not an object of its own")
            if not r["rows"]:  # a run has rows
                planned.drops += (r["object"],)
                continue
            (planned.marks if r["removes"] else planned.runs).append(
                TaskRun(r["folder"], r["part"], r["object"], r["root"], r["row"], r["rows"], r["bytes"])
            )
        if sorted(tasks) != (list(range(first, first + len(tasks))) if task is None else [task]) or len(tasks) > TASKS:
            raise ValueError("its tasks are not numbered from 0 on")
    return [tasks[i] for i in sorted(tasks)]


def _filled(schema: pa.Schema) -> pa.Schema:
    """The columns that we write, which have a value in every row; what a split replaces and follows has not."""
    return pa.schema([field.with_nullable(field.name in ("replaces", "follows", "fingerprint")) for field in schema])


@contextmanager
def _damaged(store: Store, name: str) -> Iterator[None]:
    try:
        yield
    except DAMAGED as e:
        raise FormatError(
            f"the plan {store.url}/{name} is damaged ({scrub(str(e), 200)}): give up its job with `quire recover --abort`, then run again."
        ) from e


def read_drops(store: Store, objects: Iterable[str]) -> pa.Table:
    """The rows that leave the ledger, by the objects of a plan that name them."""
    tables = []
    for name in objects:
        with _damaged(store, name):
            tables.append(OwnParquet(store.get(name), _filled(DROPS)).read())
    # Each row once: where rows leave together, two objects may name one of them.
    rows = pa.concat_tables(tables) if tables else DROPS.empty_table()
    return rows.group_by(DROPS.names, use_threads=False).aggregate([]).select(DROPS.names)


def read_rows(store: Store, runs: list[TaskRun], columns: list[str] | None = None, schema: pa.Schema = PLAN) -> Iterator[pa.Table]:
    """The rows of runs, in their order, a piece of a plan's object at a time."""
    opened: tuple[str, OwnParquet] | None = None
    known: tuple[int, pa.Table] | None = None  # the row group that was read last: a task's runs often share one
    for run in _joined(runs):
        if opened is None or opened[0] != run.object:
            with _damaged(store, run.object):
                opened, known = (run.object, OwnParquet(store.get(run.object), _filled(schema))), None
        file, at = opened[1], 0
        for number, group in enumerate(file.groups):
            first, end = max(run.row, at), min(run.row + run.rows, at + group.num_rows)
            if first < end:
                if known is None or known[0] != number:
                    with _damaged(store, run.object):
                        known = number, file.read(columns, [number])
                yield known[1].slice(first - at, end - first)
            at += group.num_rows


def _joined(runs: Iterable[TaskRun]) -> Iterator[TaskRun]:
    """The same rows in fewer runs, where one goes on where the one before it ends."""
    before: TaskRun | None = None
    for run in runs:
        if before is not None and (before.object, before.row + before.rows) == (run.object, run.row):
            before = replace(before, rows=before.rows + run.rows, bytes=before.bytes + run.bytes)
            continue
        if before is not None:
            yield before
        before = run
    if before is not None:
        yield before
