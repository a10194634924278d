"""Splits: a split is a piece of input that must be processed once, with the file that it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quire.errors import UsageError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One source file as the listing saw it.

    path      the normalised URL, the ledger's key: `file:///data/in/a.xml`
    size      bytes
    version   what identifies the content as far as the store can tell (local: `<mtime in ns>-<size>`)
    modified  last change, nanoseconds since 1970 UTC (0 where the store does not tell)

        def function(split: quire.Split, content: bytes) -> list[dict]:
            info: quire.FileInfo = split.file
            return [{"name": info.name, "size": info.size}]
    """

    path: str
    size: int
    version: str
    modified: int = 0

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]


class QuarantineError(UsageError):
    """A function quarantined bytes that are not a record of its split's content.

        split.quarantine(b"not in the content", "no number")    # raises quire.QuarantineError

    The message is quire's own and holds no data.
    """


@dataclass(frozen=True, slots=True)
class Split:
    """One piece of a source file, as `quire.process` gives it to a function.

    path, size, version, modified   of the file, as in `FileInfo`
    start, length   the bytes of the file that this split stands for; the records that begin in them are its content
    attempt         1 where it is read for the first time, more where it was quarantined and is tried again

        def function(split: quire.Split, content: bytes) -> Iterator[dict]:
            for line in content.splitlines(keepends=True):
                try:
                    yield json.loads(line)
                except ValueError as e:
                    split.quarantine(line, e)    # quire.QuarantineError for bytes that are not in the content
    """

    path: str
    start: int
    length: int
    version: str
    size: int
    modified: int = 0
    attempt: int = 1
    _quarantine: Callable[[bytes, str | Exception, int | None], None] | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def file(self) -> FileInfo:
        """The file that it is a piece of."""
        return FileInfo(self.path, self.size, self.version, self.modified)

    def quarantine(self, record: bytes, error: str | Exception, offset: int | None = None) -> None:
        """Quarantine one record and go on: it is kept with the reason, and the rest of the split counts as done.

        record   its bytes as they stand in the content; with split="lines" whole lines, with their ends or without the last one's
        error    the reason: words, or an exception
        offset   where it begins in the content; may be left out if these bytes are there once

        `ledger.inspect.quarantined_records()` shows it, `ledger.retry(function=…)` gives it to the function again, alone. Raises
        QuarantineError, which like any error of the function quarantines the whole split, for bytes that are not a record of this content.
        """
        if self._quarantine is None:
            raise QuarantineError("quarantine works within the function that was given this split.")
        self._quarantine(record, error, offset)
