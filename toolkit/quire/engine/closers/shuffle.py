"""A shuffle as the end of a job: all rows that its tasks have made go through a function of the user's together, in one commit.

The tasks before it are ordinary attempts, whose output waits in the job's folder and never becomes a data file. A shuffle need not come
out the same twice, so the outputs of two runs never mix: each run draws an id, its parts write under names that they alone use, and
only what the engine answers for counts. One manifest lists that, put if absent: the run whose manifest is there has won. A call that was
killed goes on with the tasks that are done, and shuffles again.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import pyarrow as pa
from msgspec.structs import replace

from quire.commit import names
from quire.commit.committers import committer
from quire.commit.entries import Coverage, DataFile, Stats, Task
from quire.commit.log import Log
from quire.commit.protocol import get_manifest, put_manifest
from quire.engine.attempt import Work
from quire.engine.closers import Reduce, staged
from quire.engine.closers.sorting import Sorting
from quire.engine.closers.staged import Part
from quire.errors import FormatError, QuireError, TransientError, UsageError, quoted, scrub
from quire.formats import extension, parquet
from quire.formats.damage import ARROW
from quire.formats.lines import FrameWriter
from quire.formats.parquet import ParquetWriter
from quire.progress import Phase, Progress
from quire.sources.transforms import schemas
from quire.sources.transforms.columns import fit
from quire.sources.transforms.functions import WrongTypeError, passes
from quire.spark.jobs import SparkJob
from quire.spark.runner import OnSpark, Runner, SparkFailed, collected, first_line, guarded
from quire.spark.shipping import missing_module
from quire.storage import Patience, Sink, Store, connect


class ShuffleCloser:
    """Lets all rows that the tasks have made go through `reduce`."""

    name = "shuffle"

    def close(
        self, runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, progress: Progress
    ) -> list[Task] | None:
        """The tasks of a job with the one that closes it, which a run of `reduce` has made, ours or another's; None: the job is over."""
        with progress.phase("shuffling", total=sum(f.size for t in tasks for f in t.data_files), unit="B") as bar:
            return _close(runner, log, work, tasks, reduce, bar)


def _close(runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, bar: Phase) -> list[Task] | None:
    store, head = log.store, work.head
    number = head.tasks
    done = get_manifest(store, head.job, number)
    bar.to(0, tasks=len(tasks))
    patience = Patience(bar.again)
    while done is None:
        try:
            _run(runner, log, work, tasks, reduce, bar)
        except TransientError as e:
            patience.wait(e)  # then all of it again, in a run of its own
        else:
            done = get_manifest(store, head.job, number)
            break
    if log.refresh().outcome(head.job) is not None:
        return None
    if done is None:
        raise QuireError(f"a manifest of job {head.job} in {store.url} is missing: somebody deletes below _quire/. Call again to go on.")
    return [*(replace(task, data_files=(), schema="") for task in tasks), done]


def _run(runner: Runner, log: Log, work: Work, tasks: list[Task], reduce: Reduce | None, bar: Phase) -> None:
    """One run of the shuffle; at its end there is a manifest, ours or another's, or the job is over."""
    store, head = log.store, work.head
    closing, started = Closing(work.dest, work.dest_options, work, names.new_id()), time.time()
    files = list[dict[str, Any]]()
    try:
        if reduce is None:
            raise UsageError(f"job {head.job} ends with a shuffle, and this call has no function for it: reduce=.")
        if parts := staged.parts(head.job, tasks):
            reduce = reduce.of(sum(part.size for part in parts)) if isinstance(reduce, Sorting) else reduce
            files = _spread(runner, closing, parts, reduce, bar) if isinstance(runner, OnSpark) else _here(closing, parts, reduce)
        made = {file["schema"] for file in files}
        done = Task(
            task=head.tasks, attempt=closing.attempt, schema=min(made, default=""), coverage=Coverage(),
            stats=Stats(started=round(started, 3), seconds=round(time.time() - started, 3)),
            data_files=tuple(DataFile(file["name"], file["size"], file["records"], file["handle"]) for file in files),
        )  # fmt: skip
        committer(head.committer, store).commit_task(store, head.job, done)
    except BaseException as e:
        closing.abort(store, files)
        if isinstance(e, Exception) and log.refresh().outcome(head.job) is not None:
            return  # another driver was quicker, and has cleaned away what this one was reading
        raise
    if not put_manifest(store, head.job, done):
        closing.abort(store, files)


def _failed(work: Work, what: str) -> QuireError:
    job = work.head.job
    return QuireError(
        f"{what}. Nothing of job {job} is visible in {work.dest}, and its {work.head.tasks:,} tasks before the shuffle are done and kept: "
        f"call again to go on, or give it up with recover(dest, abort={job!r})."
    )


# --------------------------------------------------------------------------------------------------------------- what comes of it
@dataclass(frozen=True)
class Closing:
    """One run of a job's last task; travels to its parts."""

    dest: str
    options: Any = field(repr=False)
    work: Work
    attempt: str

    def abort(self, store: Store, files: Sequence[Mapping[str, Any]]) -> None:
        """Remove what only this run can have written."""
        head = self.work.head
        outputs = {file["name"]: cast("Sink", _Closed(file["handle"])) for file in files}
        committer(head.committer, store).abort_task(store, head.job, head.tasks, self.attempt, outputs)


@dataclass(frozen=True)
class _Closed:
    """As a committer gives up an output: by its handle."""

    handle: str


class _Output:
    """The data files that one part of a run writes."""

    def __init__(self, closing: Closing, store: Store, part: int) -> None:
        self.head, self.attempt, self.store, self.part = closing.work.head, closing.attempt, store, part
        self.format, target = self.head.spec.format, closing.work.convert.target
        self.by = committer(self.head.committer, store)
        # Nobody else's, also not those of another try of the same part, which an engine may make at the same time.
        self.first = ((10**6 + part) * 10**12 + secrets.randbelow(10**12)) * 10**4
        self.outputs: dict[str, Sink] = {}
        kind: Any = partial(ParquetWriter, options=closing.work.convert.parquet) if self.format == "parquet" else FrameWriter
        self.writer: Any = kind(self._create, target, self.head.spec.compression)
        self.counts = list[int]()  # rows of each record that the writer was given
        self.most = max(1, min(parquet.GROUP, target // 4))

    def _create(self, index: int) -> Sink:
        ending = extension(self.format, self.head.spec.compression)
        final = names.data_file("", self.head.job, self.head.tasks, self.attempt, self.first + index, ending)
        sink = self.outputs[final] = self.by.create(self.store, self.head.job, self.head.tasks, self.attempt, final)
        return sink

    def add(self, batch: pa.RecordBatch) -> None:
        if unknown := [f.name for f in batch.schema if pa.types.is_null(f.type)]:
            raise UsageError(f"reduce gave the column {unknown[0]!r} without any value or type: let it say the type")
        if batch.num_columns == 0 or len(set(batch.schema.names)) < batch.num_columns:
            raise UsageError(f"reduce gave the columns {batch.schema.names}: a data file needs some, each with a name of its own.")
        try:
            rows = pa.Table.from_batches([fit(batch, self.writer.schema if self.format == "parquet" else None)])
        except WrongTypeError as e:
            raise UsageError(f"what reduce gave cannot be written: {e}") from None
        step = max(1, rows.num_rows * self.most // max(1, rows.nbytes))
        for piece in rows.to_batches(max_chunksize=step):
            if piece.num_rows:
                self.writer.add(piece if self.format == "parquet" else _lines(piece))
                self.counts.append(piece.num_rows)

    def close(self) -> list[dict[str, Any]]:
        """Make it durable; what a manifest needs of each file."""
        self.writer.close()
        records = Counter[int]()
        for file, count in zip(self.writer.files, self.counts, strict=True):
            records[file] += count
        schema = self.writer.schema if isinstance(self.writer, ParquetWriter) else None
        said = "" if schema is None else schemas.text(schema)
        return [
            {"part": self.part, "name": final, "size": self.writer.sizes[i], "records": records[i], "schema": said,
             "handle": self.by.handle(self.head.job, self.head.tasks, self.attempt, final, sink)}
            for i, (final, sink) in enumerate(self.outputs.items())
        ]  # fmt: skip

    def discard(self) -> None:
        self.writer.discard()


def _lines(rows: pa.RecordBatch) -> bytes:
    if rows.num_columns != 1 or not (pa.types.is_binary(rows.schema.types[0]) or pa.types.is_string(rows.schema.types[0])):
        shown = ", ".join(f"{f.name}: {f.type}" for f in rows.schema)
        raise UsageError(f"format 'lines' takes one column of text or bytes, and reduce gave ({shown}). Use format='parquet'.")
    if rows.column(0).null_count:
        raise UsageError("reduce gave a missing value, which no line can be. Leave it out, or use format='parquet'.")
    values = rows.column(0).cast(pa.binary()).to_pylist()
    return b"".join(value if value.endswith(b"\n") else value + b"\n" for value in values)


def _written(closing: Closing, store: Store, part: int, batches: Iterator[pa.RecordBatch]) -> tuple[int, list[dict[str, Any]]]:
    """How many rows a part was given, and the files that it has made of them."""
    output, rows = _Output(closing, store, part), 0
    try:
        for batch in batches:
            rows += batch.num_rows
            output.add(batch)
        return rows, output.close()
    except BaseException:
        output.discard()
        raise


# -------------------------------------------------------------------------------------------------------------------- in this process
def _here(closing: Closing, parts: list[Part], reduce: Reduce) -> list[dict[str, Any]]:
    store = connect(closing.dest, closing.options)
    batches = (batch for part in parts for batch in staged.batches(store, part, closing.work.convert.compression))
    try:
        rows = pa.Table.from_batches(batches)
    except (*ARROW, FormatError) as e:
        raise _failed(closing.work, f"the shuffle failed: {scrub(str(e).rstrip('.'), 400)}") from e
    found = _given(closing.work, reduce, rows)
    if not isinstance(found, pa.Table):
        raise _failed(closing.work, f"without Spark reduce takes and gives a pyarrow.Table, and it gave {quoted(found)}")
    try:
        _, files = _written(closing, store, 0, iter(found.to_batches(max_chunksize=staged.ROWS)))
    except (UsageError, *ARROW) as e:
        raise _failed(closing.work, scrub(str(e).rstrip("."))) from e
    return _agreed(closing.work, [(0, found.num_rows, files)])


def _given(work: Work, reduce: Reduce, rows: Any) -> Any:
    try:
        return reduce(rows)
    except BaseException as e:
        if passes(e):
            raise
        raise _failed(work, f"the function reduce failed: {type(e).__name__}: {scrub(str(e).rstrip('.'))}") from e


# -------------------------------------------------------------------------------------------------------------------- on Spark
def _spread(runner: OnSpark, closing: Closing, parts: list[Part], reduce: Reduce, bar: Phase) -> list[dict[str, Any]]:
    spark, work = runner.spark, closing.work
    try:
        frame = staged.frame(spark, closing.dest, closing.options, parts, work.convert.compression)
    except UsageError as e:
        raise _failed(work, str(e)) from e
    found = _given(work, reduce, frame)
    if not hasattr(found, "mapInArrow"):
        raise _failed(work, f"reduce takes and gives a Spark DataFrame, and it gave {quoted(found)}")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        part = context.partitionId()
        rows, files = _written(closing, connect(closing.dest, closing.options), part, batches)
        yield pa.RecordBatch.from_pydict({"part": [part], "rows": [rows], "files": [json.dumps(files)]})

    try:
        written = found.mapInArrow(guarded(spark, write, closing.dest), "part long, rows long, files string")
        rows = collected(SparkJob(spark, within=True), written, lambda: bar.update(0))
        answers = [(int(row["part"]), int(row["rows"]), json.loads(row["files"])) for row in rows]
        if not answers and not found.isEmpty():
            raise SparkFailed("Spark has returned no answer of any part, and there are rows")
    except Exception as e:
        if error := missing_module(str(e)):
            raise error from e
        said = scrub(first_line(str(e)).rstrip("."))
        if TransientError.__name__ in said:
            raise TransientError(said) from e
        raise _failed(work, f"the shuffle failed: {said}") from e
    return _agreed(work, answers)


def _agreed(work: Work, answers: Sequence[tuple[int, int, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """The files of all parts, in a sorted frame's order; each part has answered once, and its files hold the rows that it was given."""
    found = list[dict[str, Any]]()
    for expected, (part, rows, files) in enumerate(sorted(answers, key=lambda answer: answer[0])):
        if part != expected:
            raise _failed(work, f"the shuffle failed: part {min(part, expected)} has answered {'twice' if part < expected else 'nothing'}")
        if (collected := sum(file["records"] for file in files)) != rows:
            raise _failed(work, f"the shuffle failed: part {part} was given {rows:,} rows, and {collected:,} have come of it")
        found += sorted(files, key=lambda file: file["name"])
    return found
