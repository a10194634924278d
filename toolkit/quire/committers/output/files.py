"""The files that a task attempt writes: through quire, or by others into its folder. Their kind is checked before they count."""

from __future__ import annotations

import io
import posixpath
from types import TracebackType
from typing import Any, cast

from quire.commit import names
from quire.commit.committers import Adopting, Committer
from quire.commit.entries import DataFile
from quire.engine import own_files
from quire.errors import RefusedError, UsageError, quoted
from quire.sources import magic
from quire.storage import Entry, Sink, Store, Syncing
from quire.storage.base import safe

PIECE = 1 << 20  # bytes that are handed to the store at once
FOOTER = 8 << 20  # bytes of a Parquet file's end that are kept to look at it, since nobody can read it before it is published


class Output(io.RawIOBase):
    """A data file that is being written, as `open(…, "wb")` gives one; nobody sees it before its job is committed.

    `discard()` takes it out of the attempt. One that is left by an exception, or cannot be closed, keeps the attempt from being committed.
    """

    def __init__(self, name: str, final: str, sink: Sink) -> None:
        super().__init__()
        self.name, self.final, self.sink = name, final, sink
        self.size, self.records, self.schema = 0, 0, ""
        self.discarded, self.failed = False, ""  # on purpose; why not
        self._held, self._end, self._begins = bytearray(), bytearray(), b""

    def __repr__(self) -> str:
        return f"<{self.name!r}, {self.size:,} bytes, {'closed' if self.closed else 'open'}>"

    def __del__(self) -> None:
        """A file that was not closed is not made durable in passing."""

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.size

    def write(self, data: Any) -> int:
        if self.closed:
            raise ValueError(f"{self.name!r} is closed already")
        view = memoryview(data).cast("B")
        self._held += view
        self.size += len(view)
        if len(self._held) >= PIECE:
            self._send()
        return len(view)

    def _send(self) -> None:
        if self._held:
            piece = bytes(self._held)
            self._held.clear()
            try:
                self.sink.write(piece)
            except BaseException as e:
                self.failed = type(e).__name__  # these bytes are lost, whoever caught it goes on or not
                raise
            if self.name.endswith(".parquet"):
                self._end += piece
                del self._end[:-FOOTER]
            elif not self._begins:
                self._begins = piece[: magic.BEGINNING]

    def close(self) -> None:
        """Make it durable, and look whether it is what its name says; QuireError if not."""
        if self.closed:
            return
        try:
            if not self.discarded:
                self._send()
                self.sink.close()
                seen = cast("Store", _FileEnd(self._begins, bytes(self._end), self.size))
                self.records, self.schema = own_files.rows_and_columns(seen, Entry(self.name, self.size, "", 0), "the task")
        except BaseException as e:
            self.failed = type(e).__name__
            raise
        finally:
            super().close()

    def discard(self) -> None:
        """Stop: the file does not count."""
        self.discarded, self.failed = True, ""
        if not self.closed:
            self.sink.discard()
        super().close()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.discard()
            self.failed = kind.__name__
        else:
            self.close()


class _FileEnd:
    """The end of a file, or its beginning, as a store that holds nothing else."""

    def __init__(self, begins: bytes, data: bytes, size: int) -> None:
        self.begins, self.data, self.size = begins, data, size

    def stat(self, name: str) -> Entry:
        return Entry(name, self.size, "", 0)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        if self.begins:
            return self.begins[start : start + length]
        at = start - (self.size - len(self.data))
        if at < 0:
            raise ValueError(f"its footer has more than {FOOTER:,} bytes")
        return self.data[at : at + length]


def inside(name: object) -> str:
    """A user's name of a data file, below the destination; UsageError for one that leads elsewhere or that no reader would see."""
    text = name if isinstance(name, str) else ""
    if not text or posixpath.normpath(text) != text or text.startswith(("/", "..")) or not _sayable(text):
        raise UsageError(f"{quoted(name)} is not a name of a data file below the destination. Write for example 'day=1/orders.parquet'.")
    if not own_files.counts(f"/{text}", ""):
        raise UsageError(f"{quoted(name)} begins with '_' or '.', or a directory of it does: readers would pass over it. Choose another.")
    return safe(text)


def _sayable(text: str) -> bool:
    """Whether a store can have a name like this."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False  # half of a character
    return "\0" not in text


def ending(name: str) -> str:
    """The ending of a data file's name; RefusedError for a kind that cannot be read through the ledger."""
    match = own_files.KINDS.search(name)
    if not match:
        raise RefusedError(
            f"the task writes {quoted(name)}, which is neither Parquet nor text, CSV or JSON (plain, .gz or .zst) by its name: nothing is "
            f"visible. Write another format, or let names of what does not count begin with '_'."
        )
    return match[0][1:]


def adopted(by: Committer, store: Store, job: str, task: int, attempt: str, written: list[Output]) -> tuple[list[DataFile], set[str]]:
    """The files of others in the attempt's folder, as data files, and their schemas; `written` has its own way."""
    assert isinstance(by, Adopting)
    folder, ours = names.attempt_folder(job, task, attempt), {names.staged(job, task, attempt, file.final) for file in written}
    found, schemas = list[DataFile](), set[str]()
    for entry in sorted(store.walk(folder)):
        if entry.name in ours or not own_files.counts(entry.name, folder):
            continue
        name = entry.name.removeprefix(f"{folder}/")
        final = names.data_file(name.rpartition("/")[0], job, task, attempt, len(written) + len(found), ending(name))
        records, schema = own_files.rows_and_columns(store, entry, "the task")
        if isinstance(store, Syncing):
            store.sync(entry.name)  # whoever wrote it may not have waited for the disk
        found.append(DataFile(final, entry.size, records, by.adopt(store, entry)))
        schemas.add(schema)
    return found, schemas
