"""Long files of text that hold rows: chunk by chunk into a data file, so that memory is flat.

All rows of a file are one record, as those of a short one are, and lie in one data file. If the file turns out to be damaged, or of another
kind, when some of its rows are written, the attempt starts again, and knows it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar, cast

from quire.coverage.tails import Fingerprints, unfinished
from quire.engine.attempt import Again, Attempt
from quire.engine.kinds.reading import FileSplit, Span
from quire.engine.rows import Growing, Record
from quire.formats.lines import LONGEST, longer
from quire.sources import compression, ranges
from quire.sources.compression import Answer, Decoded
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import QuarantinedRecord
from quire.sources.transforms.text import chunks, encodings
from quire.sources.transforms.text.reading import Reading
from quire.storage import Unreadable, Vanished

ASIDE = 128 << 20  # bytes that the quarantined records of one file may have, which are held to its end
_EACH = 400  # bytes that each of them takes beside its content
A = TypeVar("A", bound=Answer)


class Streamed:
    """The rows of one long split, or member of an archive, on their way to a data file.

    held    bytes at its end that are a line without its end, which waits
    marks   the fingerprints of its parts, where the ledger keeps them
    """

    def __init__(self, attempt: Attempt, split: FileSplit, process: Reading, *, holds: bool = False, marks: bool = False) -> None:
        self.attempt, self.split, self.process, self.holds = attempt, split, process, holds
        self.grown, self.held = Growing(), 0
        self.quarantined = list[QuarantinedRecord]()
        self.marks = Fingerprints(split.start, split.request.start) if marks else None
        self._at, self._ends_early = split.start, False

    @property
    def key(self) -> tuple[Any, ...]:
        """As the attempt that starts again knows it."""
        return self.split.at if self.split.member is None else (*self.split.at, self.split.member)

    @property
    def span(self) -> Span:
        """The part of the split that was taken."""
        return self.split.start, self.split.length - self.held

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever goes wrong with the file behind its first rows, none of them counts; a part is taken of one that is written to."""
        try:
            yield
        except (BadContent, Vanished, Unreadable) as e:
            if self.grown.record is None and not (self.holds and isinstance(e, Vanished)):
                raise
            raise Again(self.key, e) from e

    def of_file(self, content: bytes | Iterator[bytes]) -> Iterator[bytes]:
        """The part of a plain file's content that is the split's: all of it, or the lines that begin in a range, or only those that end."""
        split, request, (start, length) = self.split, self.split.request, self.split.span
        pieces = iter((content,)) if isinstance(content, bytes) else content
        if self.holds:
            if not start:
                beginning, pieces = compression.begun(pieces, encodings.MARK)
                self.process.check_followed(beginning)
            if isinstance(content, bytes):
                self.held = len(content) - content.rfind(b"\n") - 1
            elif split.ends:
                self.held = unfinished(split.store, request.name, split.file.version, split.file.size, start)
            pieces = ranges.up_to(pieces, start + length - self.held - request.start)
        pieces = self.marks.passing(pieces) if self.marks else pieces
        self._ends_early = not isinstance(content, bytes) and (bool(self.held) or request.length != length)
        if request.length == length:
            return pieces
        lines = ranges.begun(pieces, request.start, start, start + length, split.file.size + 1)
        if (found := next(lines, None)) is None:
            return iter(())
        self._at, piece = found
        return chain((piece,), (each for _, each in lines))

    def write(self, content: bytes | Iterator[bytes]) -> Record | None:
        """Write the rows that fit, and keep the records that do not; None where nothing fits."""
        split, coming = self.split, self._rows(iter((content,)) if isinstance(content, bytes) else content)
        if (rows := next(coming, None)) is not None:
            expected = split.length if split.member is None else split.info.size
            self.attempt.output.add_stream(chain((rows,), coming), expected, whole=True)
        if self._ends_early:  # before the stream, which looks at its end alone whether the file is as it was
            entry = split.store.stat(split.request.name)
            if entry is None or entry.version != split.file.version:
                raise Vanished("changed while it was read")
        if self.marks:
            self.marks.last(sum(self.span))
        return self.grown.record

    def _rows(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        fit, path, held = self.attempt.output.fit, self.split.file.path, 0
        for made, rejected, end in self.process.stream(pieces, self._at):
            self.quarantined += rejected
            held += sum(_EACH + each.length for each in rejected)
            if held > ASIDE:
                raise BadContent(
                    f"its records that do not fit have more than {ASIDE >> 20} MiB ({len(self.quarantined):,} so far); of the first: "
                    f"{self.quarantined[0].reason}"
                )
            if self.marks:
                self.marks.settle(min(end, sum(self.span)), ((each.offset, each.covers) for each in rejected))
            for rows in made:
                if isinstance(rows, bytes) and len(rows) > LONGEST and (n := longer(rows)):
                    raise BadContent(f"a line of {n:,} bytes would come of it, and one may have {LONGEST:,}. Make shorter ones")
                yield self.grown.add(rows if isinstance(rows, bytes) else fit(path, rows))


def begun(process: Reading, answer: A, split: FileSplit | None = None) -> tuple[A, bytes | Iterator[bytes] | None]:
    """A content, held if it is short; and where it is long, that alone. `split`: of a plain file, of which it may be a range of lines."""
    content = answer.content if isinstance(answer, Decoded) else answer
    if isinstance(content, Vanished | Unreadable | BadContent):
        return answer, None
    if split is not None and (split.request.start, split.request.length) != split.span:
        return answer, content if split.length > process.longest and not process.whole(split.file.path) else None
    most = min(chunks.HELD, process.most)
    if isinstance(content, bytes):
        return answer, content if len(content) > most else None
    found = chunks.held(content, most)
    if isinstance(found, bytes):
        return cast("A", answer._replace(content=found) if isinstance(answer, Decoded) else found), None
    return answer, found
