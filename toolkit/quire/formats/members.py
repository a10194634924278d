"""Data files of records kept as they are: gzip members lie apart from other bytes, so that what holds them is a gzip file for everybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain

from quire.formats.lines import FrameWriter
from quire.storage import Sink

GZIP = b"\x1f\x8b\x08"  # so begins each member (RFC 1952)


class MembersApart:
    """Writes records into two rows of data files; `files`, `offsets`, `skips` are a value a record, known at once.

    create(index, gzip) → the sink of the next data file, of members or of anything else
    """

    def __init__(self, create: Callable[[int, bool], Sink], target: int) -> None:
        self.files: list[int] = []
        self.offsets: list[int] = []
        self.skips: list[int] = []
        self._numbers: tuple[list[int], list[int]] = ([], [])  # of the files of either row

        def made(gzip: bool) -> FrameWriter:
            def created(_: int) -> Sink:
                number = sum(map(len, self._numbers))
                self._numbers[gzip].append(number)
                return create(number, gzip)

            return FrameWriter(created, target, "none")

        self._writers = made(False), made(True)

    def add(self, data: bytes, whole: bool = True) -> None:
        """Append a record; one that is not `whole`, but a range of a file, is not a member."""
        gzip = whole and data.startswith(GZIP)
        self._writers[gzip].add(data)
        self._placed(gzip)

    def add_stream(self, pieces: Iterable[bytes], expected: int, whole: bool = True) -> None:
        """Append a record that comes in pieces, of about `expected` bytes."""
        rest = iter(pieces)
        first = b""
        while len(first) < len(GZIP) and (piece := next(rest, None)) is not None:
            first += piece
        gzip = whole and first.startswith(GZIP)
        self._writers[gzip].add_stream(chain((first,), rest), expected)
        self._placed(gzip)

    def _placed(self, gzip: bool) -> None:
        writer = self._writers[gzip]
        self.files.append(self._numbers[gzip][writer.files.pop()])
        self.offsets.append(writer.offsets.pop())
        self.skips.append(writer.skips.pop())

    @property
    def sizes(self) -> list[int]:
        """Bytes of each data file, in the order of their numbers."""
        found = {
            n: size for writer, row in zip(self._writers, self._numbers, strict=True) for n, size in zip(row, writer.sizes, strict=True)
        }
        return [found[n] for n in sorted(found)]

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return sum(writer.held for writer in self._writers)

    def spill(self) -> None:
        """Give the sinks all that waits."""
        for writer in self._writers:
            writer.spill()

    def close(self) -> None:
        """Make everything durable."""
        for writer in self._writers:
            writer.close()

    def discard(self) -> None:
        """Give up what was written."""
        for writer in self._writers:
            writer.discard()
