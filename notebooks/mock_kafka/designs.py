"""Two ways to load a topic into files that are not exactly once, each small and honest, with the places where it may die.

They are what "Guaranteeing exactly-once load semantics in moving data from Kafka to HDFS" (2015) tells of: `acknowledged`, as Storm writes
to HDFS, and `beside`, as Camus does. Each call is the life of one process: it goes on from what its forerunners left, until the end of the
topic, or until it dies at the place that `dies` names: by `Died` which it raises, or by what `how` does, as by a signal (see `lives`). What
a dead process left is left: nothing is tidied after it.

Both write lines of values. A file whose name begins with `_` or a dot is not yet meant for readers.
"""

from __future__ import annotations

import itertools
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn

from confluent_kafka import TopicPartition

from mock_kafka import PATIENCE, Kafka

__all__ = ["Died", "acknowledged", "beside", "die"]


class Died(BaseException):
    """As by kill -9: whoever catches it in between is wrong."""


def die() -> NoReturn:
    """Die within one process, for tests."""
    raise Died


def acknowledged(
    cluster: Kafka,
    topic: str,
    dest: Path,
    batch: int = 100,
    rotate: int = 250,
    dies: Literal["", "in a batch", "before the acknowledgement"] = "",
    after: int = 0,
    how: Callable[[], object] = die,
) -> None:
    """At least once: writes a batch, then acknowledges it.

    A worker keeps one file open, of its own, for many batches; once that holds `rotate` records it is closed and gets a name for readers.
    The acknowledged offsets are the consumer group's, in Kafka. It dies in the batch after so many, half of which it has written, or all.
    """
    dest.mkdir(parents=True, exist_ok=True)
    group = f"acknowledged-{dest.name}"
    numbers = itertools.count()
    with cluster.consumer("read_committed", group) as consumer:
        committed = consumer.committed([TopicPartition(topic, p) for p in cluster.partitions(topic)], PATIENCE)
        starts = {found.partition: found.offset for found in committed if found.offset >= 0}
        worker, name, written = uuid.uuid4().hex[:8], "", 0
        messages = cluster.read(topic, starts)
        for number in itertools.count():
            taken = list(itertools.islice(messages, batch))
            if not taken:
                break
            if not name:
                name, written = f"{worker}-{next(numbers)}", 0
            half = len(taken) // 2
            with (dest / f"_open-{name}").open("ab") as file:
                for part, place in ((taken[:half], "in a batch"), (taken[half:], "before the acknowledgement")):
                    file.writelines((message.value() or b"") + b"\n" for message in part)
                    file.flush()
                    if (number, dies) == (after, place):
                        how()
            ends = {message.partition(): message.offset() + 1 for message in taken}
            consumer.commit(offsets=[TopicPartition(topic, p, end) for p, end in ends.items()], asynchronous=False)
            written += len(taken)
            if written >= rotate:
                os.rename(dest / f"_open-{name}", dest / name)
                name = ""
    if name:
        os.rename(dest / f"_open-{name}", dest / name)


def beside(
    cluster: Kafka,
    topic: str,
    dest: Path,
    dies: Literal["", "between two files", "between data and offsets"] = "",
    batch: int = 1000,
    how: Callable[[], object] = die,
) -> None:
    """Offsets beside the data: renames the data files to where readers look, one of each partition, then the offsets, in a second step.

    A file is named by its topic, partition, number of records and last offset; so the same records once more are the same file, but what
    was produced in between makes it another.
    """
    history = dest / "_history"
    history.mkdir(parents=True, exist_ok=True)
    offsets = history / "offsets.json"
    starts = {int(p): offset for p, offset in json.loads(offsets.read_text()).items()} if offsets.exists() else {}
    work = history / uuid.uuid4().hex
    work.mkdir()
    ends, counts = dict(starts), dict[int, int]()
    for message in itertools.islice(cluster.read(topic, starts), batch):
        p = message.partition()
        with (work / str(p)).open("ab") as file:
            file.write((message.value() or b"") + b"\n")
        ends[p], counts[p] = message.offset() + 1, counts.get(p, 0) + 1
    for done, (p, count) in enumerate(counts.items()):
        if done and dies == "between two files":
            how()
        os.rename(work / str(p), dest / f"{topic}.{p}.{count}.{ends[p]}")
    if dies == "between data and offsets":
        how()
    (work / "offsets").write_text(json.dumps(ends))
    os.rename(work / "offsets", offsets)
    work.rmdir()
