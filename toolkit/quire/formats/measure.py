"""How many bytes records become in a data file, found by writing some where nobody keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from quire.formats.lines import FrameWriter
from quire.formats.parquet import ParquetWriter


class _Nowhere:
    def write(self, data: bytes | memoryview) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is there."""

    def discard(self) -> None:
        """Nothing is there."""


def written(format: str, compression: str, records: Iterable[Any]) -> int:
    """The bytes of a data file of these records, as bytes or batches, less what every file has."""
    records = list(records)
    kind: Any = ParquetWriter if format == "parquet" else FrameWriter
    sizes = []
    for some in (records, records[:1] if format != "parquet" else [record.slice(0, 1) for record in records[:1]]):
        writer = kind(lambda _: _Nowhere(), 1 << 60, compression)
        for record in some:
            writer.add(record)
        writer.close()
        sizes.append(sum(writer.sizes))
    return int(max(1, sizes[0] - sizes[1]) if format == "parquet" else sizes[0])
