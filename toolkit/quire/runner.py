"""Spreads plain functions over items: on Spark, or in this process one after the other.

Spark is used through the DataFrame API alone, so one code runs on `local[*]`, on clusters and over Spark Connect. A failure of
one item does not end the others: it comes back as a `Failure`.
"""

from __future__ import annotations

import gc
import json
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from quire.errors import FormatError, QuireError, TransientError, UsageError, scrub
from quire.session import alive

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

T = TypeVar("T")
Function = Callable[[T], dict[str, Any]]
Watch = Callable[[], None]
POLL = 0.2  # seconds between two looks at the store


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
        """What to raise for it: calling again does not mend what is damaged."""
        return FormatError if self.kind == FormatError.__name__ else QuireError


Outcome = dict[str, Any] | Failure


class Runner(Protocol):
    """What spreads the work."""

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


@contextmanager
def without_collector() -> Iterator[None]:
    """Keep the cyclic garbage collector from going through millions of rows again and again: they are in no cycle.

    Worth a fifth of the time of a task that copies small files. Not for functions of users', whose objects may be in cycles.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class InProcess:
    """One item after the other, here: for tests, for stores in memory, and where Spark is too much."""

    parallelism = 1
    shared = False

    def run(
        self, function: Function[T], items: Sequence[T], *, groups: Sequence[Sequence[int]] | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """See `Runner.run`."""
        found = []
        for item in items:
            found.append(call(function, item))
            if watch:
                watch()
        return found


class OnSpark:
    """Items spread over Spark's tasks."""

    shared = True

    def __init__(self, spark: SparkSession) -> None:
        if not alive(spark):
            raise UsageError("this Spark session was stopped. Start another with quire.session(), or leave spark= out.")
        self.spark = spark
        self.parallelism = _parallelism(spark)

    def run(
        self, function: Function[T], items: Sequence[T], *, groups: Sequence[Sequence[int]] | None = None, watch: Watch | None = None
    ) -> list[Outcome]:
        """See `Runner.run`."""
        if not items:
            return []
        groups = [[i] for i in range(len(items))] if groups is None else groups
        outcomes: dict[int, Outcome] = {}
        # A session of its own: interruptAll() then stops this job and none of the user's.
        own = self.spark.newSession()
        frame = own.range(0, len(groups), 1, len(groups)).mapInArrow(
            _task(function, items, groups), "item long, failed boolean, answer string"
        )
        failed: list[BaseException] = []

        def collect() -> None:
            try:
                for row in frame.collect():
                    answer = json.loads(row["answer"])
                    outcomes[row["item"]] = Failure(**answer) if row["failed"] else answer
            except BaseException as e:
                failed.append(e)

        thread = threading.Thread(target=collect, name="quire-spark-job", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(POLL)
                if watch:
                    watch()
        except BaseException:
            # Ctrl-C: Spark would run all tasks to their end. Tasks may still write for some seconds; the protocol allows it.
            own.interruptAll()
            thread.join(10)
            raise
        if failed:
            lost = Failure("SparkError", scrub(_first_line(str(failed[0]))))
            return [outcomes.get(i, lost) for i in range(len(items))]
        return [outcomes[i] for i in range(len(items))]


def _parallelism(spark: SparkSession) -> int:
    """How many tasks run at once, from the settings alone (Spark Connect has no more)."""
    if found := spark.conf.get("spark.default.parallelism", None):
        return max(1, int(found))
    local = re.match(r"local(?:\[(\*|[0-9]+)[],]|$)", spark.conf.get("spark.master", None) or "")
    if local:
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
    instances, cores = (int(spark.conf.get(f"spark.executor.{key}", None) or 2) for key in ("instances", "cores"))
    return max(1, instances * cores)


def _task(
    function: Function[T], items: Sequence[T], groups: Sequence[Sequence[int]]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for group in batch.column(0).to_pylist():
                for i in groups[group]:
                    outcome = call(function, items[i])
                    bad = isinstance(outcome, Failure)
                    answer = json.dumps(vars(outcome) if isinstance(outcome, Failure) else outcome)
                    yield pa.RecordBatch.from_pydict({"item": [i], "failed": [bad], "answer": [answer]})

    return work


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if line.startswith("Traceback (most recent call last)"):
            return next((x for x in lines[i + 1 :] if not x.startswith(" ")), line)
        if "most recent failure: " in line:
            return line.partition("most recent failure: ")[2]
    return lines[0] if lines else "no text"
