"""A user's function on one split: what it is given, what it returns, and the records that it quarantines."""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import xxhash

from quire.errors import scrub
from quire.sources import ranges, rowgroups
from quire.sources.compression import Answer, Decoded
from quire.sources.decoders import Decoder
from quire.sources.kafka.rows import as_batch, fitted, made
from quire.sources.splits import FileInfo, QuarantineError, Split
from quire.sources.transforms.columns import MORE
from quire.sources.transforms.content import BadContent, NotDecoded
from quire.sources.transforms.functions import WrongTypeError, alone, passes, reason, type_name
from quire.sources.transforms.widening import DiffersError
from quire.storage import ReadRequest, Store, Unreadable, Vanished

if TYPE_CHECKING:
    import pyarrow as pa

SPLITS = ("file", "lines", "row_groups")
# What is compressed has no lines that one could find in the middle of it: as in Hadoop, such a file is one split.
UNCUT = (".gz", ".gzip", ".bz2", ".zst", ".xz", ".lz4", ".snappy", ".deflate", ".br", ".zip")

T = TypeVar("T")
ProcessFunction = Callable[[Split, Any], Any]


class QuarantinedRecord(NamedTuple):
    """A record that the function has quarantined: where it begins in the content, its bytes, and why."""

    offset: int
    record: bytes | None  # None: it could not be read again
    length: int
    reason: str
    message: str | None
    covers: int  # bytes that are as done as it is: with split="lines" the end of its line, too


class Made(NamedTuple):
    """The result of a split."""

    rows: bytes | pa.RecordBatch
    quarantined: tuple[QuarantinedRecord, ...] = ()

    @property
    def vain(self) -> bool:
        """Whether records were quarantined, and nothing came of the rest."""
        return bool(self.quarantined) and not (len(self.rows) if isinstance(self.rows, bytes) else self.rows.num_rows)


@dataclass(frozen=True)
class Processing:
    """How a destination's splits are made and given to a function; travels to the tasks."""

    function: ProcessFunction = field(repr=False)
    split: str  # file | lines | row_groups
    format: str
    schema: pa.Schema | None = None  # None: not known before the rows are
    keep_messages: bool = False
    most: int = 256 << 20  # bytes of a content
    uncut: tuple[str, ...] = UNCUT  # the ends of names of files that have no lines which one could find in the middle of them
    evolves: str = ""  # how the columns of rows go together with `schema` (see `columns.together`)

    streams: ClassVar[bool] = False  # whether a whole file of any length goes through without being held

    def whole(self, path: str) -> bool:
        """Whether a file is one split, however long."""
        return self.split == "file" or (self.split == "lines" and path.endswith(self.uncut))

    # ------------------------------------------------------------------------------------------------------------------ reading
    def request(self, name: str, version: str, size: int, start: int, length: int) -> ReadRequest:
        """The bytes of a file to read for a split."""
        if self.split == "row_groups":
            return rowgroups.request(name, version, size)
        if self.whole(name):
            return ReadRequest(name, version, size, 0, size if size <= self.most and length == size else 0)
        if length > self.most:
            return ReadRequest(name, version, size, 0, 0)
        return ranges.request(name, version, size, start, length)

    def content(
        self, store: Store, asked: ReadRequest, answer: Answer, start: int, length: int
    ) -> tuple[int, bytes | pa.Table | None, ranges.Long | None]:
        """The function's input, and where in the file it begins; None if no record begins in the split.

        The last of its lines is told alone, and not given, where it is too long. Raises BadContent, Vanished and Unreadable.
        """
        size = asked.size
        if isinstance(answer, Vanished | Unreadable | BadContent):
            raise answer
        if isinstance(answer, Decoded):
            found = answer.whole
            return start, found if found or self.split == "file" else None, None
        if self.split == "row_groups":
            return start, rowgroups.row_groups(store, asked, answer, start, length, self.most), None
        whole = self.whole(asked.name)
        if whole and (start or length != size):
            raise BadContent("a part of it is done, and its content is given whole: ledger.forget(path), and the next run reads all of it")
        if length > self.most:
            raise BadContent(f"larger than max_file_size: {length:,} bytes, allowed are {self.most:,}")
        if not whole and size and (asked.start, asked.length) != (start, length):
            begin, found, long = ranges.lines_in(store, asked, answer, start, length, self.most)
            return begin, found or None, long
        found = answer if isinstance(answer, bytes) else b"".join(answer)
        return start, found if found or self.split == "file" else None, None

    def too_long(self, start: int, length: int) -> str:
        """Why a line is quarantined that begins at byte `start`."""
        return f"{ranges.Long(start, length)} is longer than max_file_size: {self.most:,} bytes. Raise it, or break the line at its source"

    # ------------------------------------------------------------------------------------------------------------------ calling
    def call(self, content: bytes | pa.Table, file: FileInfo, span: tuple[int, int], attempt: int, end: int | None = None) -> Made:
        """Give the function a split's content (`span`: start and length of the split); BadContent if it raises, or does not return rows.

        `end`: where the split ends in the content; a quarantined record begins before.
        """
        quarantine = _Quarantine(self, content, len(content) if end is None and isinstance(content, bytes) else end or 0)
        split = Split(file.path, *span, file.version, file.size, file.modified, attempt, quarantine.take)
        rows = self._guarded(lambda: self._rows(made(self._work(split, content))))
        found = tuple(sorted(quarantine.taken()))
        covered = sum(min(r.offset + r.covers, quarantine.end) - r.offset for r in found)
        if found and covered >= quarantine.end and (rows if isinstance(rows, bytes) else rows.num_rows):
            raise BadContent("QuarantineError: the function has quarantined all of the split, and made rows of it")
        return Made(rows, found)

    def sample(self, content: bytes | pa.Table, file: FileInfo, span: tuple[int, int]) -> bytes | pa.Table | None:
        """The function's result for a content, with its own columns; BadContent as `call`."""
        split = Split(file.path, *span, file.version, file.size, file.modified, 1, _Quarantine(self, content, span[1]).take)

        def returned() -> bytes | pa.Table | None:
            rows = made(self.function(split, content))
            return rows if rows is None or isinstance(rows, bytes) else fitted(rows, None)

        return self._guarded(returned)

    def _work(self, split: Split, content: bytes | pa.Table) -> Any:
        """The function's result; a decoder knows the columns."""
        known = None if self.evolves == MORE else self.schema
        return (self.function.reading(known) if isinstance(self.function, Decoder) else self.function)(split, content)

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            with alone():
                return work()
        except WrongTypeError as e:
            raise BadContent(f"TypeError: {e}", differs=str(e) if isinstance(e, DiffersError) else "") from None
        except QuarantineError as e:
            raise BadContent(f"QuarantineError: {e}") from None
        except NotDecoded:
            raise
        except BaseException as e:
            if passes(e):
                raise
            raise BadContent(reason(self.function, e, self.keep_messages)) from None

    def _rows(self, rows: Any) -> bytes | pa.RecordBatch:
        if rows is None:
            return b""
        if isinstance(rows, bytes):
            if self.format != "lines":
                raise WrongTypeError("the function returned bytes, and this destination holds rows. Use format='lines' and another one")
            return rows
        if self.format == "lines":
            raise WrongTypeError("the function returned rows, and format 'lines' takes bytes. Use format='parquet' and another destination")
        return as_batch(fitted(rows, self.schema, self.evolves))


class _Quarantine:
    """Takes the records that a function quarantines; bytes that are not a record of the content are an error of the function."""

    def __init__(self, processing: Processing, content: bytes | pa.Table, end: int) -> None:
        self.processing, self.content, self.end = processing, content, end
        self.found: list[QuarantinedRecord] = []
        self.over = False  # the function has returned
        # Block of the content → the records that lie in it, in their order: in whichever order they come, each finds a short list.
        self.spans: dict[int, list[tuple[int, int]]] = {}
        self.looks = self.searched = 0  # records that were looked for, and bytes that were looked through
        self.lines: dict[int, int] | None = None  # hash of a line → where it begins, or AGAIN

    def taken(self) -> list[QuarantinedRecord]:
        """The records that were quarantined until the function returned; from now on none is."""
        self.over = True
        return self.found

    def take(self, record: bytes, error: str | Exception, offset: int | None) -> None:
        content = self.content
        if self.over:
            raise QuarantineError(
                "a record was quarantined after the function had returned, and would be lost: let it wait for its threads"
            )
        if not isinstance(content, bytes):
            raise QuarantineError("of row groups single rows cannot be quarantined: raise an error, and the split is quarantined whole")
        if not isinstance(record, bytes | bytearray | memoryview) or not len(record):
            raise QuarantineError(
                f"quarantine takes the bytes of a record, not {'none' if isinstance(record, bytes) else type_name(record)}"
            )
        record = bytes(record)
        at = self._place(content, record) if offset is None else _whole(offset)
        if at < 0 or content[at : at + len(record)] != record:
            raise QuarantineError("the record that was quarantined is not at that offset of the content")
        end = at + len(record)
        if self.processing.split == "lines" and not ((at == 0 or content[at - 1 : at] == b"\n") and _ends(content, record, end)):
            raise QuarantineError("with split='lines' a quarantined record is one or more whole lines")
        if at >= self.end:
            raise QuarantineError("a quarantined record begins behind the end of its split")
        blocks = range(at // BLOCK, (end - 1) // BLOCK + 1)
        if any(at < e and s < end for block in blocks for s, e in _near(self.spans.get(block, []), at, end)):
            raise QuarantineError("the function has quarantined the same bytes twice")
        why, message = str(error), None
        if isinstance(error, Exception):
            keep = self.processing.keep_messages
            why, message = reason(self.processing.function, error, keep), scrub(str(error)) if keep else None
        why = BadContent(why).reason or "quarantined"
        covers = len(record) + (_line_end(content, end) if self.processing.split == "lines" else 0)
        self.found.append(QuarantinedRecord(at, record, len(record), why, message, covers))
        for block in blocks:
            insort(self.spans.setdefault(block, []), (at, end))

    def _place(self, content: bytes, record: bytes) -> int:
        """Where a record is that is in the content once; with split="lines" what counts are whole lines."""
        first, second = self._lines(content, record) if self.processing.split == "lines" else self._anywhere(content, record)
        if first < 0:
            first = content.find(record)  # within a line
        if first < 0:
            raise QuarantineError("the record that was quarantined is not in the content: quarantine its bytes as they stand there")
        if second >= 0:
            raise QuarantineError("the record that was quarantined is in the content several times: say which by offset=")
        return first

    def _anywhere(self, content: bytes, record: bytes) -> tuple[int, int]:
        """The same of any bytes; of many records those that are one line are looked up among the lines."""
        if self.looks >= LOOKS and b"\n" not in _bare(record):
            first, second = self._lines(content, record)
            if first >= 0:
                return first, second
        self.looks += 1
        self._search(content)
        return _twice(content, record)

    def _search(self, content: bytes) -> None:
        """Note that all of the content is looked through for one record: for any number of them that would have no end."""
        self.searched += len(content)
        if self.looks > LOOKS and self.searched > SEARCHED:
            raise QuarantineError(
                f"{self.looks:,} records were quarantined without offset=, and each is looked for in all of it: say where"
            )

    def _lines(self, content: bytes, record: bytes) -> tuple[int, int]:
        """Where the first two lines, or groups of lines, begin that are the record; -1 where there is none."""
        self.looks += 1
        body = _bare(record)
        if self.looks > LOOKS and b"\n" not in body:
            if self.lines is None:
                self.lines = _by_hash(content)
            at = self.lines.get(xxhash.xxh3_64_intdigest(body), -1)
            if at != AGAIN:
                return at, -1
        self._search(content)
        found = [0] if content.startswith(record) and _ends(content, record, len(record)) else []
        at = content.find(b"\n" + record)
        while at >= 0 and len(found) < 2:
            found += [at + 1] if _ends(content, record, at + 1 + len(record)) else []
            at = content.find(b"\n" + record, at + 1)
        first, second = (*found, -1, -1)[:2]
        return first, second


BLOCK = 4 << 10  # bytes of the content; no more records can lie in it
LOOKS = 100  # after so many records that were quarantined it pays to know where each line is
SEARCHED = 4 << 30  # bytes that are looked through at most: some seconds
AGAIN = -2  # the line is there several times


def _near(spans: list[tuple[int, int]], at: int, end: int) -> list[tuple[int, int]]:
    """The neighbours of a span among others that do not overlap."""
    i = bisect_left(spans, (at, end))
    return spans[max(0, i - 1) : i + 1]


def _whole(offset: object) -> int:
    try:
        return -1 if isinstance(offset, bool) else operator.index(offset)  # type: ignore[arg-type]  # of numpy, too
    except TypeError:
        return -1


def _ends(content: bytes, record: bytes, end: int) -> bool:
    """Whether a line ends with a record that ends at `end`."""
    return record.endswith(b"\n") or end == len(content) or content[end : end + 1] == b"\n" or content[end : end + 2] == b"\r\n"


def _line_end(content: bytes, end: int) -> int:
    """How many bytes from `end` on, where a record ends, still belong to its line."""
    if content[end - 1 : end] == b"\n":
        return 0
    return 1 if content[end : end + 1] == b"\n" else 2 if content[end : end + 2] == b"\r\n" else 0


def _bare(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _by_hash(content: bytes) -> dict[int, int]:
    found, at = dict[int, int](), 0
    while at < len(content):
        end = content.find(b"\n", at) + 1 or len(content)
        key = xxhash.xxh3_64_intdigest(_bare(content[at:end]))
        found[key] = AGAIN if key in found else at
        at = end
    return found


def _twice(content: bytes, record: bytes) -> tuple[int, int]:
    first = content.find(record)
    return first, content.find(record, first + 1) if first >= 0 else -1
