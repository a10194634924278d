"""The checkpoint with which Hudi Streamer goes on where quire's loads have ended: a word of a commit's extra metadata.

Source: `CheckpointUtils.offsetsToStr` of Hudi, "topic,0:123,1:456", by partition the next offset. It can name one topic, and no gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from quire.commit.entries import OFFSETS, Task
from quire.commit.log import Log
from quire.coverage.fold import Source, fold
from quire.sources.kafka.positions import positions
from quire.sources.kafka.topics import SCHEME

KEY = "deltastreamer.checkpoint.key"


def checkpoint(log: Log, kind: str, tasks: Sequence[Task]) -> dict[str, str]:
    """The words that the tasks of a load add to the extra metadata; nothing where offsets have gaps, or are of several topics."""
    segments = [task for task in tasks if task.coverage.segment]
    if kind != OFFSETS or not segments:
        return {}
    cluster = segments[0].coverage.first.removeprefix(SCHEME).partition("/")[0]
    before = fold(log)
    mine = [Source(log.tip + 1, t.coverage.segment or "", t.coverage.first, t.coverage.last) for t in segments]
    found = list(positions(replace(before, sources=(*before.sources, *mine)), log.store, cluster))
    topics = {position.key.topic for position in found}
    if len(topics) != 1 or any(position.offset != position.until for position in found):
        return {}
    return {KEY: ",".join([*topics, *(f"{position.key.partition}:{position.offset}" for position in found)])}
