"""Data files in directories by the values of a column: one writer of another format for each directory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from quire.storage import Sink

__all__ = ["FolderWriter"]

MOST = 100  # directories that are written to at the same time


class FolderWriter:
    """Writes records into data files below directories; `files`, `offsets`, `skips` are a value a record, and known when it is closed.

    kind     makes the writer of one directory: (create, target, compression)
    create   (index, directory) → the sink of the next data file there
    """

    def __init__(self, kind: Callable[..., Any], create: Callable[[int, str], Sink], target: int, compression: str) -> None:
        self.kind, self.create, self.target, self.compression = kind, create, target, compression
        self.schema: pa.Schema | None = None
        self.files: list[int] = []
        self.offsets: list[int] = []
        self.skips: list[int] = []
        self._open: dict[str, Any] = {}  # directory → its writer; the one that was used last stands last
        self._all: list[tuple[Any, list[int]]] = []  # with the numbers of its files
        self._order: list[int] = []  # of each record the writer, by its place in `_all`

    def add(self, record: Any, folder: str) -> None:
        """Append a record to a directory."""
        if isinstance(record, pa.RecordBatch):
            self.schema = self.schema or record.schema
        writer = self._open.pop(folder, None) or self._made(folder)
        self._open[folder] = writer
        self._order.append(next(i for i in range(len(self._all) - 1, -1, -1) if self._all[i][0] is writer))
        writer.add(record)

    def _made(self, folder: str) -> Any:
        if len(self._open) >= MOST:
            self._open.pop(next(iter(self._open))).close()
        numbers = list[int]()

        def create(_: int) -> Sink:
            numbers.append(sum(len(n) for _, n in self._all))
            return self.create(numbers[-1], folder)

        self._all.append((made := self.kind(create, self.target, self.compression), numbers))
        return made

    @property
    def sizes(self) -> list[int]:
        """Bytes of each data file, in the order of their numbers."""
        found = {number: size for writer, numbers in self._all for number, size in zip(numbers, writer.sizes, strict=True)}
        return [found[i] for i in sorted(found)]

    def close(self) -> None:
        """Make everything durable; then the records' places are known."""
        for writer in self._open.values():
            writer.close()
        self._open = {}
        places = [iter(zip(writer.files, writer.offsets, writer.skips, strict=True)) for writer, _ in self._all]
        for i in self._order:
            file, offset, skip = next(places[i])
            self.files.append(self._all[i][1][file])
            self.offsets.append(offset)
            self.skips.append(skip)

    def discard(self) -> None:
        """Give up what was written."""
        for writer in self._open.values():
            writer.discard()
