"""The tasks of `format("quire")`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from quire.coverage.fold import Fold
from quire.read.rows import Piece, Reading
from quire.spark.collector import settle
from quire.spark.datasource import datasource

if TYPE_CHECKING:
    import pyarrow as pa

TOGETHER = 128 << 20  # bytes of small pieces that one task reads
OPENING = 4 << 20  # bytes that could be read while a file is opened, as Spark counts it


@dataclass
class Pieces(datasource.InputPartition):
    """Pieces that one task reads, one after the other; of a stream with the version that they are of, and what cuts raw content."""

    pieces: tuple[Piece, ...]
    version: int | None = None
    folded: Fold | None = None


def rows(reading: Reading, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task's pieces."""
    assert isinstance(partition, Pieces)
    if partition.version is not None:
        reading = replace(reading, version=partition.version, folded=partition.folded)
    for piece in partition.pieces:
        yield from reading.rows(piece)
    settle()


def together(found: Sequence[Piece]) -> list[Pieces]:
    """Pieces as tasks read them: small ones of one neighbourhood together."""
    tasks, some, weight = list[Pieces](), list[Piece](), 0
    for piece in found:
        if some and weight + piece.size > TOGETHER:
            tasks.append(Pieces(tuple(some)))
            some, weight = [], 0
        some.append(piece)
        weight += piece.size + OPENING
    return [*tasks, Pieces(tuple(some))] if some else tasks
