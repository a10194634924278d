"""Data files in directories by the values of a column: one writer of another format for each directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from quire.storage import Sink

MOST = 100  # directories that are written to at the same time
HELD = 128 << 20  # bytes that all of their writers hold together


class FolderWriter:
    """Writes records into data files below directories; `files`, `offsets`, `skips` are a value a record, and known when it is closed.

    kind     makes the writer of one directory: (create, target, compression)
    create   (index, directory) → the sink of the next data file there

    However many directories there are, they hold `HELD` bytes together: the writer that holds most ends its row group, and where that is
    not enough, since its sink holds bytes until they are a part, its file. The next record goes into another file then.
    """

    def __init__(self, kind: Callable[..., Any], create: Callable[[int, str], Sink], target: int, compression: str) -> None:
        self.kind, self.create, self.target, self.compression = kind, create, target, compression
        self.schema: pa.Schema | None = None
        self.files: list[int] = []
        self.offsets: list[int] = []
        self.skips: list[int] = []
        self._open: dict[str, int] = {}  # directory → its writer, by its place in `_all`; the one that was used last stands last
        self._all: list[tuple[Any, list[int]]] = []  # with the numbers of its files
        self._order: list[int] = []  # of each record the writer, likewise
        self.early = 0  # data files that were ended before they had their size, as too much was open
        self._made_files = 0
        self._held = 0  # bytes that the open writers hold, at most

    def add(self, record: Any, folder: str) -> None:
        """Append a record to a directory."""
        if isinstance(record, pa.RecordBatch):
            self.schema = record.schema
        place = self._open.pop(folder, -1)
        self._open[folder] = place = self._made(folder) if place < 0 else place
        self._order.append(place)
        writer = self._all[place][0]
        before = writer.held
        writer.add(record)
        self._held += writer.held - before
        if self._held > HELD:
            self._release()

    def _release(self) -> None:
        """Let writers hold half of what they may together, so that the next look is far away: those that hold most give way first."""
        held = {folder: self._all[place][0].held for folder, place in self._open.items()}
        for folder in sorted(held, key=lambda folder: -held[folder]):
            if sum(held.values()) <= HELD // 2:
                break
            self._all[self._open[folder]][0].spill()
            held[folder] = self._all[self._open[folder]][0].held
        for folder in sorted(held, key=lambda folder: -held[folder]):
            if sum(held.values()) <= HELD // 2:
                break
            self._all[self._open.pop(folder)][0].close()
            self.early += 1
            del held[folder]
        self._held = sum(held.values())

    def _made(self, folder: str) -> int:
        if len(self._open) >= MOST:
            oldest = self._all[self._open.pop(next(iter(self._open)))][0]
            self._held -= oldest.held
            oldest.close()
            self.early += 1
        numbers = list[int]()

        def create(_: int) -> Sink:
            numbers.append(self._made_files)
            self._made_files += 1
            return self.create(numbers[-1], folder)

        self._all.append((self.kind(create, self.target, self.compression), numbers))
        return len(self._all) - 1

    @property
    def sizes(self) -> list[int]:
        """Bytes of each data file, in the order of their numbers."""
        found = {number: size for writer, numbers in self._all for number, size in zip(numbers, writer.sizes, strict=True)}
        return [found[i] for i in sorted(found)]

    def close(self) -> None:
        """Make everything durable; then the records' places are known."""
        for place in self._open.values():
            self._all[place][0].close()
        self._open = {}
        places = [iter(zip(writer.files, writer.offsets, writer.skips, strict=True)) for writer, _ in self._all]
        for i in self._order:
            file, offset, skip = next(places[i])
            self.files.append(self._all[i][1][file])
            self.offsets.append(offset)
            self.skips.append(skip)

    def discard(self) -> None:
        """Give up what was written."""
        with ExitStack() as every:  # also where one of them fails; what was closed has nothing to give up
            for writer, _ in self._all:
                every.callback(writer.discard)
