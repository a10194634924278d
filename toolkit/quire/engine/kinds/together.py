"""Small files whose rows are made, checked, hashed and written together: most of the cost of any of that is for a call, not for a row.

Lines are made and checked together, and written for each file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from quire.engine.attempt import Attempt
from quire.engine.kinds.reading import FileSplit
from quire.engine.rows import LedgerRow, Record
from quire.sources.compression import Answer
from quire.sources.transforms.content import BadContent

FILES = 500
BYTES = 4 << 20  # of content; files of more than an eighth of it are read alone

Many = Callable[[Sequence[bytes]], tuple[pa.RecordBatch | list[bytes], list[int]]]


class Waiting(NamedTuple):
    """A file that is read, and waits for others."""

    split: FileSplit
    answer: Answer
    content: bytes
    said: str | None


class Together:
    """Files in the order in which they come, some at a time.

    many  makes the rows of some contents, and says how many each has, or the lines of each; BadContent where one of them is not as it
          should be
    one   takes a file alone, as it takes all others: says what is wrong with it
    """

    def __init__(self, attempt: Attempt, many: Many, one: Callable[[FileSplit, Answer], Any]) -> None:
        self.attempt, self.many, self.one = attempt, many, one
        self.most = min(BYTES, attempt.work.convert.target // 8)  # a data file does not become much longer than it should
        self.waiting, self.bytes, self.key = list[Waiting](), 0, object()

    def takes(self, content: bytes) -> bool:
        """Whether a file of this content is read with others."""
        return len(content) <= self.most // 8

    def add(self, split: FileSplit, answer: Answer, content: bytes, said: str | None, key: object = None) -> None:
        """Take a whole file; those with another `key` are not read with it."""
        if key != self.key or self.bytes + len(content) > self.most or len(self.waiting) >= FILES:
            self.flush()
            self.key = key
        self.waiting.append(Waiting(split, answer, content, said))
        self.bytes += len(content)

    def flush(self) -> None:
        """Write what waits."""
        parts, self.waiting, self.bytes = [self.waiting], [], 0
        while parts:
            files = parts.pop()
            if len(files) < 2:
                for file in files:
                    self.one(file.split, file.answer)
                continue
            try:
                rows, counts = self.many([file.content for file in files])
                rows = rows if isinstance(rows, list) else self.attempt.output.fit(files[0].split.file.path, rows)
            except BadContent:  # one of them is found by halves
                middle = len(files) // 2
                parts += [files[middle:], files[:middle]]
            else:
                self._write(files, rows, counts)

    def _write(self, files: list[Waiting], rows: pa.RecordBatch | list[bytes], counts: list[int]) -> None:
        attempt, tally = self.attempt, self.attempt.tally
        if isinstance(rows, list):
            written = [lines for lines in rows if lines]
            for lines in written:
                attempt.output.writer.add(lines)
            records = (Record.of(lines) for lines in written)
        else:
            attempt.output.writer.add_many(rows, [n for n in counts if n])
            records = (each for each in Record.of_many(rows, [n for n in counts if n]))
        for (split, _, _, said), n in zip(files, counts, strict=True):
            row = LedgerRow(split.file.path, split.file.version, 0, split.length, reason=said)
            attempt.rows.add([row], next(records) if n else None)
            tally.bytes_in += split.length
        tally.gathered += len(files)
        tally.files_in += len(files)
