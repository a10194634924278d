"""Spreads plain functions over items: on Spark, or in this process one after the other.

Spark is used through the DataFrame API alone, so one code runs on `local[*]`, on clusters and over Spark Connect. A failure of
one item does not end the others: it comes back as a `Failure`.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quire import interrupts
from quire.errors import DataLossError, FormatError, QuireError, RefusedError, TransientError, UsageError, quoted, scrub
from quire.spark import releases
from quire.spark.collector import settle
from quire.spark.jobs import SparkJob
from quire.spark.session import alive
from quire.spark.shipping import Task, is_local, missing_module, portable
from quire.spark.visibility import Landmarks, Sight
from quire.storage.base import STATE
from quire.storage.within import plain, state_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.types import StructType

T = TypeVar("T")
Function = Callable[[T], dict[str, Any]]
Watch = Callable[[], None]
POLL = 0.2  # seconds between two looks at the store
SHARES = 100  # of the work of this process, at the end of each of which it looks, however quick it was
ENDING = 10  # seconds in which Spark may end a job
LOOKS = 3  # at the directories that executors on other machines do not see


@dataclass(frozen=True)
class Failure:
    """An item whose function raised: the error's class and its text, less anything secret."""

    kind: str
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind

    @property
    def transient(self) -> bool:
        """A store was busy or did not answer: the same may go well a moment later."""
        return self.kind == TransientError.__name__

    @property
    def kind_of_error(self) -> type[QuireError]:
        """The exception to raise for it: calling again mends neither what is damaged, nor what is lost, nor what is refused."""
        return {kind.__name__: kind for kind in (FormatError, DataLossError, RefusedError)}.get(self.kind, QuireError)


Outcome = dict[str, Any] | Failure


class Runner(Protocol):
    """The interface that spreads the work."""

    parallelism: int
    shared: bool  # the function runs in other processes: a store must be visible there

    def run(
        self, function: Function[T], items: Sequence[T], *, groups: Sequence[Sequence[int]] | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """Call `function` with each item; the outcomes in the items' order.

        `groups` says which items (by index) are done one after the other in one place; `watch` is called now and then meanwhile.
        """
        ...


def call(function: Function[T], item: T) -> Outcome:
    """One item, with its failure as a value."""
    try:
        return function(item)
    except Exception as e:
        frame = traceback.extract_tb(e.__traceback__)[-1]
        return Failure(type(e).__name__, scrub(str(e)), f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}")


class LocalRunner:
    """One item after the other, here: for tests, for stores in memory, and where Spark is too much.

        quire.consolidate("memory://in", "memory://out", spark=quire.LocalRunner())
        outcomes = quire.LocalRunner().run(function, items)    # what quire's calls do with it

    An error of one item comes back as a `Failure`, and the others go on.
    """

    parallelism = 1
    shared = False

    def run(
        self, function: Function[T], items: Sequence[T], *, groups: Sequence[Sequence[int]] | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """Call `function` with each of the `items`, and return the outcomes in their order.

        groups   is for runners that spread the items; all of them are done here
        watch    is called now and then meanwhile; what it raises, a QuireError, ends the run
        """
        found, looked, took = list[Outcome](), 0.0, 0.0
        for i, item in enumerate(items):
            found.append(call(function, item))
            interrupts.check()
            # A look lists what all items have left behind, so there are not as many looks as items.
            now, steps = time.monotonic(), (SHARES * i // len(items), SHARES * (i + 1) // len(items))
            if watch and (steps[0] < steps[1] or now > looked + POLL + 10 * took):
                watch()
                looked = time.monotonic()
                took = looked - now
        return found


class _Elsewhere(Exception):
    """An executor does not see what the driver sees: the item was not touched."""


class OnSpark:
    """Items spread over Spark's tasks; `landmarks`: the local directories that they work in."""

    shared = True

    def __init__(self, spark: SparkSession, landmarks: Landmarks | None = None) -> None:
        if not hasattr(type(spark), "range"):
            raise UsageError(f"spark= takes a SparkSession, not {quoted(spark)}. Leave it out, or pass quire.session().")
        if not alive(spark):
            raise UsageError("this Spark session was stopped. Start another with quire.session(), or leave spark= out.")
        releases.check()
        self.spark = spark
        self.parallelism = parallelism(spark)
        self._landmarks = None if is_local(spark) else landmarks
        self._abroad = False  # whether an executor was met on another machine

    def run(
        self, function: Function[T], items: Sequence[T], *, groups: Sequence[Sequence[int]] | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """See `Runner.run`. Raises UsageError for what no other try mends: what executors lack, a directory that they do not see."""
        groups = [[i] for i in range(len(items))] if groups is None else groups
        outcomes: dict[int, Outcome] = {}
        for _ in range(LOOKS):
            with self._sight() as sight:
                outcomes |= self._run(function, items, groups, watch, sight)
            away = {i for i, o in outcomes.items() if isinstance(o, Failure) and o.kind == _Elsewhere.__name__}
            if not away:
                break
            self._abroad = True
            groups = [left for group in groups if (left := [i for i in group if i in away])]
        for outcome in outcomes.values():
            _raise_what_stays(outcome)
        return [outcomes[i] for i in range(len(items))]

    @contextmanager
    def _sight(self) -> Iterator[Sight | None]:
        if self._landmarks and self._abroad:
            with self._landmarks.taken() as sight:
                yield sight
        else:
            yield self._landmarks.unseen() if self._landmarks else None

    def _run(
        self, function: Function[T], items: Sequence[T], groups: Sequence[Sequence[int]], watch: Watch | None, sight: Sight | None
    ) -> dict[int, Outcome]:
        if not groups:
            return {}
        job = SparkJob(self.spark)
        work = portable(self.spark, _task(function, items, groups, sight))
        frame = job.session.range(0, len(groups), 1, len(groups)).mapInArrow(work, _answers())
        outcomes: dict[int, Outcome] = {}
        try:
            for row in collected(job, frame, watch or _nobody):
                answer = json.loads(row["answer"])
                outcomes[row["item"]] = Failure(**answer) if row["failed"] else answer
        except SparkFailed as e:
            if error := missing_module(str(e)):
                raise error from e
            lost = Failure("SparkError", scrub(first_line(str(e))))
        else:
            lost = Failure("SparkError", "Spark has ended its job and returned nothing for it")
        return {i: outcomes.get(i, lost) for group in groups for i in group}


def _answers() -> StructType:
    """The columns of what tasks return; a text that says them would be parsed by the JVM, which takes 60 ms the first time."""
    from pyspark.sql import types

    return types.StructType().add("item", types.LongType()).add("failed", types.BooleanType()).add("answer", types.StringType())


def _nobody() -> None:
    """Nobody watches."""


class Reachable(Protocol):
    """A store, or what a source names in one."""

    @property
    def url(self) -> str: ...

    @property
    def shared(self) -> bool:
        """Whether other processes reach it."""
        ...


def runner_of(spark: Any, dest: Reachable, sources: Iterable[Reachable] = ()) -> Runner:
    """The runner for work between these places: on the session given, else on quire's own; or the runner that was given."""
    sources = list(sources)
    if not isinstance(spark, LocalRunner) and not all(place.shared for place in (dest, *sources)):
        raise UsageError(
            "a memory:// store lives in one process, and Spark's workers are others. Use a directory, or spark=quire.LocalRunner()."
        )
    if isinstance(spark, LocalRunner | OnSpark):
        return spark
    if spark is None:
        from quire.spark.session import session

        spark = session()
    return OnSpark(spark, Landmarks([source.url for source in sources], dest.url, getattr(dest, "state", STATE)))


class SparkFailed(Exception):
    """Spark's job failed, or nothing is known of it; the text is Spark's."""


def collected(job: SparkJob, frame: DataFrame, watch: Watch) -> list[Row]:
    """The rows of a frame of the job's session; `watch` is called now and then meanwhile, and whatever it raises ends Spark's job, too.

    Raises SparkFailed unless Spark has returned them: an answer that did not come is never taken for an empty one.
    """
    answer, over = Future[list["Row"]](), threading.Event()

    def collect() -> None:
        try:  # around all of it: what ends this thread anywhere else is seen by nobody
            with job:
                rows = frame.collect()
            answer.set_result(rows)
        except BaseException as e:
            answer.set_exception(e)
        finally:
            over.set()

    thread = threading.Thread(target=collect, name="quire-spark-job", daemon=True)
    try:
        thread.start()
        # Not by join: an interrupt in there lets a thread look dead that runs on (up to Python 3.12), and Spark's job with it.
        while thread.is_alive() and not over.wait(POLL):
            interrupts.check()
            watch()
    except BaseException:
        # In a thread of its own, as a second Ctrl-C would break it off here.
        ended = threading.Event()
        threading.Thread(target=_end, args=(job, over, ended), name="quire-spark-end", daemon=True).start()
        ended.wait()
        raise
    if not answer.done():
        raise SparkFailed("the thread that waited for Spark's job has ended without an answer")
    if failed := answer.exception():
        raise SparkFailed(str(failed)) from failed
    return answer.result()


def _end(job: SparkJob, over: threading.Event, ended: threading.Event) -> None:
    """End Spark's job: it would run all tasks to their end. Tasks may still write for some seconds; the protocol allows it."""
    until = time.monotonic() + ENDING
    while not over.is_set() and time.monotonic() < until:
        with suppress(Exception):  # what is interrupted is what the user should hear of, not that the server is gone
            job.interrupt()  # again: a job that had not begun yet would begin now
        over.wait(0.5)
    ended.set()


def frame_of(
    spark: SparkSession, n: int, rows: Callable[[int], Iterator[pa.RecordBatch]], schema: Any, dest: str, sources: Iterable[str] = (),
    tasks: int | None = None,
) -> DataFrame:  # fmt: skip
    """The rows of each number below n, computed by Spark's tasks (`tasks`, or one a number) where the frame is used.

    `dest` and `sources` are the URLs that the tasks must see.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for i in batch.column(0).to_pylist():
                yield from rows(i)
        settle()

    work.__name__ = rows.__name__
    return spark.range(0, n, 1, max(1, n if tasks is None else tasks)).mapInArrow(guarded(spark, work, dest, sources), schema)


def guarded(spark: SparkSession, work: Task, dest: str, sources: Iterable[str] = ()) -> Task:
    """The same task for any executor of the session; on one that does not see the directories it fails, and says so."""
    if is_local(spark):
        return work
    with Landmarks(sources, plain(dest), state_of(dest)).taken() as found:
        sight = found

    def looking(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if lacking := sight.lacking():
            raise UsageError(lacking)
        yield from work(batches)

    looking.__name__ = work.__name__  # as plans show it
    return portable(spark, looking)


def _raise_what_stays(outcome: Outcome) -> None:
    """Raise what trying again does not mend, in a line about the executors."""
    if not isinstance(outcome, Failure):
        return
    if outcome.kind in (UsageError.__name__, _Elsewhere.__name__):
        raise UsageError(outcome.text if "executor" in outcome.text else f"on the executors: {outcome.text}")
    if outcome.kind == ModuleNotFoundError.__name__ and (error := missing_module(outcome.text)):
        raise error


def parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, from the settings alone (Spark Connect has no more)."""
    if found := spark.conf.get("spark.default.parallelism", None):
        return max(1, int(found))
    local = re.match(r"local(?:\[(\*|[0-9]+)[],]|$)", spark.conf.get("spark.master", None) or "")
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    if found := spark.conf.get("spark.cores.max", None):
        return max(1, int(found))
    instances, cores = (int(spark.conf.get(f"spark.executor.{key}", None) or 2) for key in ("instances", "cores"))
    return max(1, instances * cores)


def _task(function: Function[T], items: Sequence[T], groups: Sequence[Sequence[int]], sight: Sight | None) -> Task:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        lacking = sight.lacking() if sight else ""
        for batch in batches:
            for group in batch.column(0).to_pylist():
                for i in groups[group]:
                    outcome = Failure(_Elsewhere.__name__, lacking) if lacking else call(function, items[i])
                    bad = isinstance(outcome, Failure)
                    answer = json.dumps(vars(outcome) if isinstance(outcome, Failure) else outcome)
                    yield pa.RecordBatch.from_pydict({"item": [i], "failed": [bad], "answer": [answer]})
        settle()

    return work


def first_line(text: str) -> str:
    """The cause, out of Spark's many lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            return next((x for x in lines[i + 1 :] if not x.startswith(" ")), line)
        if "most recent failure: " in line:
            return line.partition("most recent failure: ")[2]
    return lines[0] if lines else "no text"
