"""A loop on local Spark while records come: how long a run takes from its beginning to `published`, and whether late runs take longer.

    python tests/benchmarks/kafka_loop.py                    (four minutes)
    python tests/benchmarks/kafka_loop.py --rate 0 --runs 400 --every "1 ms"      (what grows from run to run, without Spark)

A real broker, one topic of four partitions, a producer that sends evenly; `quire.load(…, every="1 s")` into a directory. A run begins when
the call asks the brokers what there is, and is published when the log's entry says so. What a record waits is counted from its
timestamp to the entry that makes it visible, for the first record of each run.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from common import Verdict, arguments, listed, load, machine, session, table, workplace
from confluent_kafka.admin import NewTopic

sys.path.insert(0, str(Path(__file__).parents[1]))
from services.kafka import Kafka, Record
from services.kafka_broker import broker

PARTITIONS, SIZE = 4, 200
TARGET = 3.0  # seconds, of half of the runs
LATE = 1.25  # times what early runs take


def produce(kafka: Kafka, topic: str, rate: int, over: threading.Event) -> None:
    """So many records a second, a tenth of them at a time, until it is over."""
    sent, began = 0, time.monotonic()
    with kafka.producer({}) as producer:
        while not over.wait(0.1):
            while sent < rate * (time.monotonic() - began):
                producer.produce(topic, b"%d " % sent + b"x" * SIZE, partition=sent % PARTITIONS)
                sent += 1
            producer.poll(0)


def watched(starts: list[float], before: Any) -> None:
    """Note when each run begins, and do what comes before it."""
    from quire.engine.loader import LoadCall

    whole = LoadCall.decided

    def decided(self: LoadCall, *args: Any) -> Any:
        before()
        starts.append(time.time())
        return whole(self, *args)

    LoadCall.decided = decided  # type: ignore[method-assign]


def times(out: Path, starts: list[float]) -> list[tuple[float, float, float, int]]:
    """Of each run that published anything: when it began, its seconds, the age of its first record then, and its records."""
    from quire.commit.entries import Published
    from quire.commit.log import Log
    from quire.storage import connect, normalise

    log, found = Log(connect(normalise(out), None)).refresh(), []
    published = {entry.job: datetime.fromisoformat(entry.time).timestamp() for entry in log.entries if isinstance(entry, Published)}
    ends = [*starts[1:], float("inf")]
    for _, commit in log.commits():
        at = published[commit.job]
        began = next(start for start, end in zip(starts, ends, strict=True) if start <= at < end)
        files = [file for task in commit.tasks for file in task.data_files]
        if not files:
            continue  # of partitions that had no record yet
        stamps = [pq.ParquetFile(out / file.name).read(columns=["timestamp"]).column(0) for file in files]
        first = min(pc.min(column).as_py().timestamp() for column in stamps)
        found.append((began, at - began, at - first, sum(file.records for file in files)))
    return found


def at(part: float, values: list[float]) -> float:
    """The value that this part of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def main() -> int:
    """Run the loop, and print how long its runs took."""
    args = arguments(
        __doc__,
        runs={"type": int, "default": 100},
        rate={"type": int, "default": 1_000, "help": "records a second; 0: a hundred before each run"},
        every={"default": "1 s"},
        address={"help": "a broker that runs already"},
    )
    return run(args)


def run(args: Any) -> int:
    """One loop."""
    import quire

    print(f"{machine()}; {args.runs} runs, every {args.every}, {args.rate or 'no'} records/s of {SIZE} B; load {load()}", flush=True)
    over, starts = threading.Event(), list[float]()
    with workplace(args.at) as place, ExitStack() as stack:
        kafka = Kafka(args.address) if args.address else stack.enter_context(broker())
        topic = f"loop-{time.time_ns()}"
        admin = kafka.admin()  # its answers come as long as it is there
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=30)[topic].result()
        few = [Record(b"x" * SIZE, partition=i % PARTITIONS) for i in range(100)]
        watched(starts, lambda: None if args.rate else kafka.produce(topic, few))
        producer = threading.Thread(target=produce, args=(kafka, topic, args.rate, over), daemon=True)
        spark = quire.LocalRunner() if args.rate == 0 else session()
        if args.rate:
            producer.start()
        began, out = time.monotonic(), place / "out"
        quire.load(f"kafka://{kafka.address}/{topic}", out, spark=spark, every=args.every, max_runs=args.runs, progress=False)
        took = time.monotonic() - began
        over.set()
        found = times(out, starts)
        verified = quire.load(f"kafka://{kafka.address}/{topic}", out, spark=spark, progress=False)
    seconds = [one[1] for one in found[1:]]  # the first one starts the workers
    ages, fifth = [one[2] for one in found[1:]], max(1, len(seconds) // 5)
    early, late = seconds[:fifth], seconds[-fifth:]
    rows = [
        [what, *(f"{at(part, values):.2f} s" for part in (0.5, 0.95)), f"{max(values):.2f} s"]
        for what, values in (
            ("a run, from its beginning to published", seconds), ("the same, the first fifth of the runs", early),
            ("the same, the last fifth", late), ("its first record, from its timestamp to published", ages),
        )
    ]  # fmt: skip
    print(f"{sum(one[3] for one in found):,} records in {len(found)} commits, {took:.0f} s; load {load()}")
    print(f"then {verified.records:,} more; pauses between runs: {listed([b - a for a, b in pairwise(starts)][:5], '{:.2f}')} …\n")
    print(table(["", "p50", "p95", "most"], rows))
    verdict = Verdict()
    verdict.check("half of the runs take", f"≤ {TARGET:.0f} s", f"{at(0.5, seconds):.2f} s", at(0.5, seconds) <= TARGET)
    ratio = at(0.5, late) / at(0.5, early)
    verdict.check("the last fifth takes, to the first", f"≤ {LATE} ×", f"{ratio:.2f} ×", ratio <= LATE)
    return verdict.end()


if __name__ == "__main__":
    sys.exit(main())
