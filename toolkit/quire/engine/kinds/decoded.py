"""Compressed files, and members of archives: each is one record, or many lines, and its ledger row speaks of the stored bytes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import xxhash

from quire.coverage.finished import UNENDED
from quire.engine.attempt import Again, Attempt
from quire.engine.kinds.reading import FileSplit, Span, write
from quire.engine.rows import LedgerRow, Record
from quire.formats.lines import LONGEST
from quire.sources import magic
from quire.sources.compression import Decoded
from quire.sources.transforms.content import BadContent
from quire.storage import Unreadable, Vanished

_LINE = f"a line of it is longer than one value may be: {LONGEST:,} bytes. Break it at its source, or gather it with transform='raw'"
_RECORD = f"it decodes to one record of more than {LONGEST:,} bytes, and no value may have more. Decode and split it at its source"


def gather(attempt: Attempt, split: FileSplit, decoded: Decoded) -> list[Span]:
    """A compressed file, or a member of an archive: all of it is one record, or many, and its rows speak of its stored bytes."""
    convert, content, file, member = attempt.work.convert, decoded.content, split.file, split.member
    ends = convert.transform == "lines" and member is not None and not decoded.codec  # else nobody asks for the bytes that there were
    if isinstance(content, bytes):
        said = UNENDED if ends and content and content[-1] != 10 else decoded.said
        write(attempt, file, [split.span], convert.records(content, split.info), {split.span: None}, said, member)
        return [split.span]
    measured = _Measured(content, lines=convert.transform == "lines")

    def pieces() -> Iterator[bytes]:
        try:
            yield from measured
        except (BadContent, Vanished, Unreadable) as e:
            raise Again(split.at if member is None else (*split.at, member), e) from e

    first = next(coming := pieces(), b"")
    if convert.takes_text:
        magic.check(first, convert.transform)
    attempt.output.add_stream(chain((first,), coming), split.length, whole=True)
    row = LedgerRow(file.path, file.version, *split.span, reason=UNENDED if ends and measured.unended else decoded.said, member=member)
    attempt.rows.add([row], Record(measured.newlines, measured.size, measured.checked.intdigest()))
    return [split.span]


class _Measured:
    """Pieces of one record, or with `lines` of lines of which the last one is ended; counted as they pass. BadContent for a long one."""

    def __init__(self, pieces: Iterator[bytes], *, lines: bool) -> None:
        self._pieces, self._lines = pieces, lines
        self.size, self.newlines, self.checked = 0, 0, xxhash.xxh3_64()
        self.unended = False  # the last line was given a newline

    def __iter__(self) -> Iterator[bytes]:
        begun = 0  # bytes of the record that goes on
        for piece in self._pieces:
            newline = piece.find(b"\n") + 1 if self._lines else 0
            if begun + (newline or len(piece)) > LONGEST:
                raise BadContent(_LINE if self._lines else _RECORD)
            begun = len(piece) - piece.rfind(b"\n") - 1 if newline else begun + len(piece)
            yield self._counted(piece)
        if self._lines and begun:
            self.unended = True
            yield self._counted(b"\n")

    def _counted(self, piece: bytes) -> bytes:
        self.size += len(piece)
        self.newlines += piece.count(b"\n")
        self.checked.update(piece)
        return piece
