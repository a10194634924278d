"""Long files of text that hold rows: chunk by chunk into a data file, so that memory is flat.

All rows of a file are one record, as those of a short one are, and lie in one data file. If the file turns out to be damaged, or of another
kind, when some of its rows are written, the attempt starts again, and knows it then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar, cast

from quire.engine.attempt import Again, Attempt
from quire.engine.kinds.reading import FileSplit
from quire.engine.rows import Growing, Record
from quire.formats.lines import LONGEST, longer
from quire.sources.compression import Answer, Decoded
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import QuarantinedRecord
from quire.sources.transforms.text import chunks
from quire.sources.transforms.text.reading import Reading
from quire.storage import Unreadable, Vanished

ASIDE = 128 << 20  # bytes that the quarantined records of one file may have, which are held to its end
_EACH = 400  # bytes that each of them takes beside its content
A = TypeVar("A", bound=Answer)


class Streamed:
    """The rows of one long file, or member of an archive, on their way to a data file."""

    def __init__(self, attempt: Attempt, split: FileSplit, process: Reading) -> None:
        self.attempt, self.split, self.process = attempt, split, process
        self.grown = Growing()
        self.quarantined = list[QuarantinedRecord]()

    @property
    def key(self) -> tuple[Any, ...]:
        """As the attempt that starts again knows it."""
        return self.split.at if self.split.member is None else (*self.split.at, self.split.member)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Whatever goes wrong with the file behind its first rows, none of them counts."""
        try:
            yield
        except (BadContent, Vanished, Unreadable) as e:
            if self.grown.record is None:
                raise
            raise Again(self.key, e) from e

    def write(self, pieces: Iterator[bytes]) -> Record | None:
        """Write the rows that fit, and keep the records that do not; None where nothing fits."""
        coming = self._rows(pieces)
        if (first := next(coming, None)) is not None:
            self.attempt.output.add_stream(chain((first,), coming), self.split.info.size, whole=True)
        return self.grown.record

    def _rows(self, pieces: Iterator[bytes]) -> Iterator[Any]:
        fit, path, held = self.attempt.output.fit, self.split.file.path, 0
        for made, rejected in self.process.stream(pieces):
            self.quarantined += rejected
            held += sum(_EACH + each.length for each in rejected)
            if held > ASIDE:
                raise BadContent(
                    f"its records that do not fit have more than {ASIDE >> 20} MiB ({len(self.quarantined):,} so far); of the first: "
                    f"{self.quarantined[0].reason}"
                )
            for rows in made:
                if isinstance(rows, bytes) and len(rows) > LONGEST and (n := longer(rows)):
                    raise BadContent(f"a line of {n:,} bytes would come of it, and one may have {LONGEST:,}. Make shorter ones")
                yield self.grown.add(rows if isinstance(rows, bytes) else fit(path, rows))


def begun(process: Reading, answer: A) -> tuple[A, Iterator[bytes] | None]:
    """The content of a whole file, held if it is short; and its pieces, where it is long."""
    content = answer.content if isinstance(answer, Decoded) else answer
    if isinstance(content, Vanished | Unreadable | BadContent):
        return answer, None
    most = min(chunks.HELD, process.most)
    found = chunks.held(iter((content,)) if isinstance(content, bytes) else content, most)
    if isinstance(found, bytes):
        return cast("A", answer._replace(content=found) if isinstance(answer, Decoded) else found), None
    return answer, found
