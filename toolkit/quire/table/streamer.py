"""The checkpoint with which Hudi Streamer goes on where quire's loads have ended: a word of a commit's extra metadata.

Source: `CheckpointUtils.offsetsToStr` of Hudi, "topic,0:123,1:456", by partition the next offset. It can name one topic, and no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

from quire.commit.entries import OFFSETS, Task
from quire.commit.log import Log
from quire.coverage.fold import Source, fold
from quire.coverage.ranges import Covered, Known, covered
from quire.sources.kafka.topics import SCHEME, key_of

KEY = "deltastreamer.checkpoint.key"
# Log → what the ledger covers: a call holds its log from round to round, and reads only the segments that are new.
_known = WeakKeyDictionary[Log, Known]()


def checkpoint(log: Log, kind: str, tasks: Sequence[Task]) -> dict[str, str]:
    """The words that the tasks of a load add to the extra metadata; nothing where offsets have gaps, or are of several topics."""
    segments = [task for task in tasks if task.coverage.segment]
    if kind != OFFSETS or not segments:
        return {}
    before = fold(log)
    mine = [Source(log.tip + 1, t.coverage.segment or "", t.coverage.first, t.coverage.last) for t in segments]
    cluster = SCHEME + segments[0].coverage.first.removeprefix(SCHEME).partition("/")[0] + "/"
    found = dict[str, Covered]()
    # What is known is the call's: it is added up here, and not changed.
    for each, known in ((before, _known.setdefault(log, Known())), (replace(before, sources=tuple(mine)), None)):
        for path, one in covered(each, log.store, cluster, known).items():
            found.setdefault(path, Covered()).add(one)
    ends = sorted((key_of(path), one.end) for path, one in found.items())
    topics = {key.topic for key, _ in ends}
    if len(topics) != 1 or any(one.ranges and one.end != one.ranges[-1][1] for one in found.values()):
        return {}
    return {KEY: ",".join([*topics, *(f"{key.partition}:{end}" for key, end in ends)])}
