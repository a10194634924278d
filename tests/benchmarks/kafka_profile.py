"""Where the processor time of a load goes: one task after the other in one process, so that nothing overlaps.

    python tests/benchmarks/kafka_profile.py --topics small large

Each part's time is what its functions take of the thread's processor time, less what parts within them take; it hardly depends on the load
of the machine. Kafka's client works in threads of its own: their share is what the process takes beyond that thread. What Spark adds is
the difference to `kafka.py`, whose "gathering" holds Spark's scheduling, its workers' start and the waits of all of them.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from common import arguments, load, machine, median, table, workplace
from kafka import TOPICS, fill

PARTS = (
    "the client's threads: sockets, CRC", "records as objects of Python's", "columns of Arrow's", "checksums of rows", "Parquet, zstd",
    "the store", "a look at records", "plan, log, commit, publish, clean",
)  # fmt: skip


class Shares:
    """The processor time of each part."""

    def __init__(self) -> None:
        self.taken = defaultdict[str, float](float)
        self.stack: list[str] = []
        self.at = time.thread_time()

    def switch(self) -> None:
        """What has gone by belongs to the part on top."""
        now = time.thread_time()
        self.taken[self.stack[-1] if self.stack else PARTS[-1]] += now - self.at
        self.at = now

    def timed(self, part: str, whole: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time."""

        @functools.wraps(whole)
        def call(*args: Any, **more: Any) -> Any:
            self.switch()
            self.stack.append(part)
            try:
                return whole(*args, **more)
            finally:
                self.switch()
                self.stack.pop()

        return call


class Consumer:
    """Kafka's, with its time."""

    def __init__(self, whole: Any, shares: Shares) -> None:
        self._whole = whole
        self.poll, self.consume = (shares.timed(PARTS[1], getattr(whole, name)) for name in ("poll", "consume"))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whole, name)


def patched(shares: Shares) -> None:
    """Time what is to be told apart, and let nothing overlap."""
    from quire.engine import rows
    from quire.formats import parquet
    from quire.planning import offsets as planning
    from quire.sources.kafka import offsets

    class Reading(offsets._Reading):
        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, **more)
            self.consumer = Consumer(self.consumer, shares)

    offsets._Reading = Reading  # type: ignore[misc]
    offsets.ahead = lambda make: make(lambda: False)
    offsets._columns, offsets._batch = (shares.timed(PARTS[2], f) for f in (offsets._columns, offsets._batch))
    Reading._runs = _kept(shares, Reading._runs)  # type: ignore[method-assign]
    rows.checksum = shares.timed(PARTS[3], rows.checksum)
    for name in ("add", "close"):
        setattr(parquet.ParquetWriter, name, shares.timed(PARTS[4], getattr(parquet.ParquetWriter, name)))
    parquet._SinkFile.write = shares.timed(PARTS[5], parquet._SinkFile.write)  # type: ignore[method-assign]
    planning.offsets.sample = shares.timed(PARTS[6], planning.offsets.sample)


def _kept(shares: Shares, whole: Callable[..., Any]) -> Callable[..., Any]:
    """A generator, each step of which is timed as columns are."""

    def steps(*args: Any) -> Any:
        items, end = whole(*args), object()
        step = shares.timed(PARTS[2], lambda: next(items, end))
        while (item := step()) is not end:
            yield item

    return steps


def main() -> int:
    """A table for each topic."""
    args = arguments(
        __doc__,
        rounds={"type": int, "default": 3},
        topics={"nargs": "*", "choices": tuple(TOPICS), "default": tuple(TOPICS)},
        address={"help": "a broker that has the topics already, filled by an earlier run"},
    )
    import quire

    print(f"{machine()}; {args.rounds} rounds; load {load()}", flush=True)
    shares, found = Shares(), {(topic, part): list[float]() for topic in args.topics for part in PARTS}
    patched(shares)
    with workplace(args.at) as place, ExitStack() as stack:
        address = args.address
        if not address:
            from services.kafka_broker import broker

            cluster = stack.enter_context(broker())
            fill(cluster, args.topics)
            address = cluster.address
        for turn in range(args.rounds + 1):
            for topic in args.topics:
                shares.taken.clear()
                shares.at, whole = time.thread_time(), time.process_time()
                quire.load(f"kafka://{address}/{topic}", place / f"{turn}-{topic}", spark=quire.LocalRunner(), progress=False)
                shares.switch()
                shares.taken[PARTS[0]] = time.process_time() - whole - sum(shares.taken.values())
                for part in PARTS if turn else ():  # the first one warms
                    found[topic, part].append(shares.taken[part])
    for topic in args.topics:
        middle = {part: median(found[topic, part]) for part in PARTS}
        total = sum(middle.values())
        rows = [[part, f"{seconds:.2f} s", f"{seconds / total:.0%}"] for part, seconds in middle.items()]
        print(f"\n{TOPICS[topic][0]:,} records of {TOPICS[topic][1]:,} B: {total:.2f} s of processor time; load {load()}\n")
        print(table(["part", "processor time", "share"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
