"""A driver of the lab, run as a program: it starts Spark, is told jobs in lines of JSON, and tells what becomes of them.

    in:   {"master", "conf", "hadoop"}, then {"do": "write" | "gather", "id", …}
    out:  {"event": "up"}, {"event": "tasks", "done"}, {"event": "end", "id", "error", "seconds"}

The planted faults stand in the job's `plan`: `scratch` (a directory of this machine's, in which attempts leave their marks), `files`,
`rows` (of a file), `tasks`, `first` (the first row's number), and the words of `disturb` for each task that is to be disturbed.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

WAIT = 240.0  # seconds for a gate: far longer than the lab waits
BETWEEN = 0.02


class Planted(BaseException):
    """The exception of a task here: no `Exception`, so that nobody takes it for a fault of the data."""


# ------------------------------------------------------------------------------------------------- in the tasks (sent by value)
def begin(scratch: str, task: int) -> int:
    """Which attempt of a task this is, from 0 on, whoever has started it; its process stands in the mark."""
    number = 0
    while True:
        try:
            mark = os.open(f"{scratch}/began-{task}-{number}", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            number += 1
            continue
        os.write(mark, str(os.getpid()).encode())
        os.close(mark)
        return number


def disturb(plan: Mapping[str, Any], task: int, attempt: int) -> None:
    """Do to this attempt what was planted for its task: words, one after the other.

    wait=NAME: until the file NAME is in `scratch` | first=NAME: the first attempt alone waits so | raise, exit: the first attempt fails,
    or its process dies | fail: every attempt fails
    """
    for what in plan["disturb"].get(str(task), ()):
        if what == "fail" or (what == "raise" and attempt == 0):
            raise Planted(f"planted: attempt {attempt} of task {task} fails")
        if what == "exit" and attempt == 0:
            os._exit(1)
        word, _, name = what.partition("=")
        if word == "wait" or (word == "first" and attempt == 0):
            open(f"{plan['scratch']}/waits-{task}-{attempt}", "w").close()
            end = time.monotonic() + WAIT
            while not os.path.exists(f"{plan['scratch']}/{name}") and time.monotonic() < end:
                time.sleep(BETWEEN)


def batch_of(plan: Mapping[str, Any], task: int, attempt: int, ids: range) -> Any:
    """The rows of a file."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {"id": list(ids), "task": [task] * len(ids)}
    if plan["vary"]:
        columns["by"] = [f"attempt{attempt}"] * len(ids)
    return pa.RecordBatch.from_pydict(columns)


def spark_rows(plan: Mapping[str, Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task of a Spark job: a batch of rows for each file that it is to write."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                attempt = begin(plan["scratch"], task)
                pieces = range(task, plan["files"], plan["tasks"])
                for place, piece in enumerate(pieces):
                    start = plan["first"] + piece * plan["rows"]
                    made = batch_of(plan, task, attempt, range(start, start + plan["rows"]))
                    if plan["waits"] and place == 0:
                        # Who waits has a file open by then: the first half has gone through when the second one is there.
                        yield made.slice(0, plan["rows"] // 2)
                        yield made.slice(plan["rows"] // 2)
                        disturb(plan, task, attempt)
                        continue
                    if not plan["waits"] and place == len(pieces) // 2:
                        disturb(plan, task, attempt)
                    yield made

    return work


def quire_rows(plan: Mapping[str, Any]) -> Callable[[Any, bytes], bytes]:
    """The function of a pipeline of quire's: the same marks and disturbances, a source file for each file that is to be written."""

    def work(split: Any, content: bytes) -> bytes:
        task = int(split.path.rpartition("-")[2].partition(".")[0])
        disturb(plan, task, begin(plan["scratch"], task))
        return content

    return work


# ------------------------------------------------------------------------------------------------------------------ in the driver
def write(spark: Any, job: Mapping[str, Any]) -> None:
    """A job of Spark's, as a user writes it."""
    plan = job["plan"]
    schema = "id long, task long" + (", by string" if plan["vary"] else "")
    frame = spark.range(0, plan["tasks"], 1, plan["tasks"]).mapInArrow(spark_rows(plan), schema)
    writer = frame.write.mode("append").options(**job["options"])
    if job["format"] == "quire":
        import quire

        quire.session()  # in this thread, where Spark looks for the format
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", plan["rows"])
        (writer.option("partition_by", "by") if plan["vary"] else writer).format("quire").save(job["url"])
        return
    writer = writer.option("maxRecordsPerFile", plan["rows"])
    (writer.partitionBy("by") if plan["vary"] else writer).format(job["format"]).save(job["url"])


def gather(spark: Any, job: Mapping[str, Any]) -> None:
    """A job of quire's own."""
    import quire

    quire.process(
        job["source"], job["url"], quire_rows(job["plan"]), spark=spark, format="lines", target_size=f"{job['target']} B",
        committer=job["committer"], function_version="lab", max_quarantined=0, dest_options=job["options"] or None, progress=False,
    )  # fmt: skip


def say(**what: Any) -> None:
    """A line for the lab."""
    with _LOCK:
        print(json.dumps(what), flush=True)


_LOCK = threading.Lock()


def run(spark: Any, job: Mapping[str, Any]) -> None:
    """One job to its end, good or bad."""
    from quire.errors import scrub
    from quire.spark.runner import first_line

    started, error = time.monotonic(), None
    try:
        (write if job["do"] == "write" else gather)(spark, job)
    except BaseException as e:
        error = scrub(f"{type(e).__name__}: {first_line(str(e))}")
        print(f"{type(e).__name__}: {e}", file=sys.stderr, flush=True)
    say(event="end", id=job["id"], error=error, seconds=round(time.monotonic() - started, 3))


def report(spark: Any) -> None:
    """Tell how many tasks of the stages under way are done, whenever that changes."""
    tracker, told = spark.sparkContext.statusTracker(), -1
    while True:
        done = 0
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            done += info.numCompletedTasks if info else 0
        if done != told:
            say(event="tasks", done=done)
            told = done
        time.sleep(BETWEEN)


def main() -> None:
    """Until the input ends."""
    import quire

    told = json.loads(sys.stdin.readline())
    spark = quire.session(told["conf"], master=told["master"])
    for key, value in told["hadoop"].items():
        spark.sparkContext._jsc.hadoopConfiguration().set(key, value)
    spark.range(2).count()  # a session with its start behind it
    threading.Thread(target=report, args=(spark,), daemon=True).start()
    say(event="up")
    for line in sys.stdin:
        threading.Thread(target=run, args=(spark, json.loads(line)), daemon=True).start()
    os._exit(0)  # whoever started it has gone; its JVM goes with it


if __name__ == "__main__":
    main()
