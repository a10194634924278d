"""The rows that a job has staged, sorted by partition and key, each key once: what every round of the job starts from.

    staged files → spills (sorted, about a block each) → ranges of partition and key (one task each) → runs

A task reads its share of the staged files, sorts as much of it as a block holds, and writes that as a spill: a file of short batches whose
first keys are its index. The driver cuts ranges of at most half a block by these alone, and a task for each range takes its rows out of
all spills. So no task holds more than a few blocks however the keys are skewed, rows never pass through the driver, and one code runs
on Spark and without it. One task sorts what fits into one block.

Where a key comes twice, the last by ordering wins, and of equal ones the later one in the order of tasks, files and rows. `insert`,
`bulk_insert` and `insert_overwrite` leave out rows that say they are deleted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import msgspec
import pyarrow as pa

from quire.commit import names as objects
from quire.commit.entries import FORMAT, Natural, Task, stored
from quire.commit.entries import decode as loads
from quire.commit.entries import encode as dumps
from quire.engine.closers import staged
from quire.errors import FormatError, UsageError
from quire.formats import parquet
from quire.sources.transforms import schemas
from quire.spark.runner import Runner
from quire.storage.base import safe
from quire.table.format import names
from quire.table.format.schema import from_avro, to_avro
from quire.table.write import columns
from quire.table.write.blocks import BLOCK, Closing, Run
from quire.table.write.failures import answers
from quire.table.write.spills import Batch, Place, Range, Spill, spilled, taken

_FAILING = "the rows could not be sorted"
SHARE = 48 << 20  # bytes of staged files that one task reads: as rows of a frame about a block


# ------------------------------------------------------------------------------------------------------------------- what comes of it
@dataclass(frozen=True)
class Sorted:
    """The rows of a job, sorted.

    runs         in the order of partitions and keys
    columns      those of the rows
    rows_in      staged rows = rows of the runs + duplicates + left_out
    duplicates   rows whose key came again, later by ordering
    left_out     rows of an insert that say they are deleted
    """

    runs: list[Run]
    columns: pa.Schema
    rows_in: int = 0
    duplicates: int = 0
    left_out: int = 0


class _Run(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    batch: Natural
    partition: str
    rows: Natural
    deletes: Natural
    size: Natural
    first: str
    last: str


@stored
class _Stored(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="sorted"):
    runs: tuple[_Run, ...]
    columns: str
    rows_in: Natural
    duplicates: Natural
    left_out: Natural
    format: int = FORMAT


def encode(found: Sorted) -> bytes:
    """Sorted rows as another driver reads them back."""
    runs = tuple(_Run(**{name: value for name, value in asdict(run).items() if name != "group"}) for run in found.runs)
    said = to_avro(found.columns, "rows") if found.columns.names else ""
    return dumps(
        _Stored(runs=runs, columns=said, rows_in=found.rows_in, duplicates=found.duplicates, left_out=found.left_out)
    )  # fmt: skip


def decode(data: bytes, job: str, done: Task, where: str) -> Sorted:
    """The sorted rows of a job, which its task `done` has written; FormatError where names or numbers cannot be its own."""
    found: _Stored = loads(data, _Stored, where)
    own = re.compile(re.escape(objects.attempt_folder(job, done.task, done.attempt)) + r"/[0-9a-f]{12}\.arrow\.staged")
    for run in found.runs:
        if not own.fullmatch(run.name):
            raise FormatError(f"{where} names {run.name[:200]!r}, which is not a block of its attempt: it is damaged, or forged.")
        if not run.rows > 0 or run.deletes > run.rows or not run.first <= run.last or not _is_partition(run.partition):
            raise FormatError(f"{where} has a run of {run.partition[:80]!r} that cannot be: it is damaged, or forged.")
    if sum(run.rows for run in found.runs) + found.duplicates + found.left_out != found.rows_in:
        raise FormatError(f"{where} does not say where each of its {found.rows_in:,} rows is: it is damaged, or forged.")
    runs = [Run(**{name: getattr(run, name) for name in run.__struct_fields__}) for run in found.runs]
    there = from_avro(found.columns, where) if found.columns else pa.schema([])
    return Sorted(runs, there, found.rows_in, found.duplicates, found.left_out)


def _is_partition(path: str) -> bool:
    """Whether it is a directory below the table's data."""
    try:
        return path == "" or safe(path).partition("/")[0] not in (names.FOLDER, objects.STATE)
    except FormatError:
        return False


def sort(runner: Runner, closing: Closing, tasks: Sequence[Task], operation: str) -> Sorted:
    """The rows that `tasks` have staged, in runs of one partition each. See the first lines of this module.

    Raises UsageError or RefusedError for rows that make no row of the table: without a key, say. Nothing is changed then.
    """
    tasks = sorted((task for task in tasks if task.data_files), key=lambda task: task.task)
    if not tasks:
        return Sorted([], pa.schema([]))
    parts = staged.parts(closing.job, tasks, SHARE)
    if other := next((part.name for part in parts if not part.parquet), None):
        raise UsageError(f"{closing.store.url} is a table, and {other} holds no columns: load rows into it, with format='parquet'.")
    wanted = _columns(closing, tasks, operation)
    shares = list(_shares(parts))
    found = answers(runner.run(partial(spilled, closing, wanted, operation, len(shares) == 1), shares), _FAILING)
    counts = [sum(each[what] for each in found) for what in ("rows_in", "duplicates", "left_out")]
    spills = tuple(Spill(s["name"], tuple(Batch(**b) for b in s["batches"])) for each in found for s in each["spills"])
    if spills:
        ends = list(_ranges(spills))
        found = answers(runner.run(partial(taken, closing, spills), ends), _FAILING)
        counts[1] += sum(each["duplicates"] for each in found)
    return Sorted([Run(**run) for each in found for run in each["runs"]], wanted, *counts)


def _columns(closing: Closing, tasks: Sequence[Task], operation: str) -> pa.Schema:
    """The columns that all tasks bring. Where no function of a user's has made them, their files alone say them, and are alike."""
    wanted = None
    for said, task in sorted({task.schema: task for task in tasks}.items()):
        first = objects.staged(closing.job, task.task, task.attempt, task.data_files[0].name)
        there = schemas.parse(said) if said else parquet.open_file(closing.store, first).schema_arrow
        comes = columns.brought(there, closing.config, operation)
        wanted = comes if wanted is None else columns.after(wanted, comes, operation)
    assert wanted is not None
    return wanted


def _shares(parts: Sequence[staged.Part]) -> Iterator[list[staged.Part]]:
    """Parts that follow one another, of about `SHARE` bytes together."""
    share, size = list[staged.Part](), 0
    for part in parts:
        if share and size + part.size > SHARE:
            yield share
            share, size = [], 0
        share.append(part)
        size += part.size
    yield share


def _ranges(spills: Sequence[Spill]) -> Iterator[Range]:
    """Ranges of about half a block each."""
    places = sorted((Place(batch.partition, batch.key), batch.size) for spill in spills for batch in spill.batches)
    begin, size = None, 0
    for place, more in places:
        if size and size + more > BLOCK // 2 and place != begin:
            yield Range(begin, place)
            begin, size = place, 0
        size += more
    yield Range(begin, None)
