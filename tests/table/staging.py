"""Rows staged as the tasks of a job leave them, and what a sort makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import quire
from quire.commit.entries import Coverage, Stats, Task
from quire.spark.runner import Runner
from quire.storage import connect
from quire.table.format.config import EVENT_TIME, TableConfig
from quire.table.write.blocks import Blocks, Closing, taken
from quire.table.write.sort import Sorted, sort
from quire.table.write.stage import stage

if TYPE_CHECKING:
    import pyarrow as pa

JOB = "3-0123456789abcdef"
HERE = quire.LocalRunner()
CONFIG = TableConfig(name="t", key=("id",), partition_by=("city",), ordering="at", mode=EVENT_TIME)


def closing(place: Path, task: int = 9, config: TableConfig = CONFIG) -> Closing:
    """One run of a job's task; each task has one attempt."""
    return Closing(place.as_uri(), None, JOB, task, f"{task:012x}", "rename", config)


def staged(
    place: Path, frames: list[Any], operation: str = "upsert", config: TableConfig = CONFIG, there: pa.Schema | None = None,
    runner: Runner = HERE,
) -> list[Task]:  # fmt: skip
    """A task for each frame."""
    found = list[Task]()
    for number, frame in enumerate(frames):
        run = closing(place, number, config)
        files, schema = stage(runner, run, frame, there, operation)
        found.append(Task(task=number, attempt=run.attempt, data_files=files, schema=schema, coverage=Coverage(), stats=Stats()))
    return found


def sort_all(
    place: Path, frames: list[Any], operation: str = "upsert", config: TableConfig = CONFIG, there: pa.Schema | None = None,
    runner: Runner = HERE,
) -> Sorted:  # fmt: skip
    """Stage the frames, and sort them."""
    return sort(runner, closing(place, config=config), staged(place, frames, operation, config, there, runner), operation)


def rows(place: Path, found: Sorted) -> list[tuple[str, str, bool, dict[str, Any]]]:
    """(partition, key, whether it deletes, the row) for all rows of the runs, in their order; each run is what it says of itself."""
    store, said = connect(place.as_uri()), list[tuple[str, str, bool, dict[str, Any]]]()
    for run in found.runs:
        batch = Blocks(store, run.name).batch(run.batch, run.rows)
        keys, deletes, each = taken(batch)
        assert each.schema == found.columns
        assert (run.first, run.last, run.deletes) == (keys[0].as_py(), keys[-1].as_py(), sum(deletes.to_pylist()))
        assert 0 <= run.size - batch.nbytes <= batch.num_rows * batch.num_columns  # without what says that nothing is null
        said += [(run.partition, *row) for row in zip(keys.to_pylist(), deletes.to_pylist(), each.to_pylist(), strict=True)]
    assert [row[:2] for row in said] == sorted(row[:2] for row in said)
    assert found.rows_in == len(said) + found.duplicates + found.left_out
    return said
