"""All kinds that read files do this: ask for the splits of a plan, and say in the ledger what became of each.

Records that are quarantined cut a split: `done` before, between and behind them, `quarantined` for each of them. All parts that are done
stand for the one output.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from quire.coverage.tails import Mark, reread
from quire.engine.attempt import Attempt
from quire.engine.rows import LedgerRow, Record
from quire.errors import FormatError
from quire.formats.lines import LONGEST, longer
from quire.planning.listing import TaskRun
from quire.planning.pack import read_rows
from quire.sources import archives
from quire.sources.compression import Answer, Decoded, looks
from quire.sources.files import Root
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import QuarantinedRecord
from quire.storage import Content, ReadRequest, Store, Unreadable, Vanished

Answers = Iterator[tuple[ReadRequest, archives.Answer]]
Span = tuple[int, int]  # start and length, in bytes of a file
APPENDED = 64 << 20  # bytes of a split that is read at once from a file that changes meanwhile


class PlannedSplit(NamedTuple):
    """Rows of a plan, by columns."""

    path: list[str]
    size: list[int]
    version: list[str]
    modified: list[int]
    start: list[int]
    length: list[int]
    replaces: list[str | None]
    follows: list[str | None]


Ask = Callable[[list[str], PlannedSplit], Iterable[ReadRequest]]
Take = Callable[[Store, PlannedSplit, Answers], None]


@dataclass(slots=True)
class FileSplit:
    """A split that was asked for; `follows`: fingerprints of what is gathered of its file and lies before it, as JSON."""

    store: Store
    request: ReadRequest
    file: FileInfo
    start: int
    length: int
    follows: str | None
    member: str | None = None  # of an archive, where it stands for one document of it
    document: FileInfo | None = None  # that document, as a transform sees it

    @property
    def info(self) -> FileInfo:
        """The file, or the document of an archive, of which a transform is told."""
        return self.document or self.file

    @property
    def at(self) -> tuple[str, int]:
        return self.file.path, self.start

    @property
    def span(self) -> Span:
        return self.start, self.length

    @property
    def ends(self) -> bool:
        """Whether its file ends with it."""
        return self.start + self.length == self.file.size

    def settle(self, content: Answer, source: Root, *, beginning: bool = False) -> Answer:
        """Its content, where its file may be appended to while it is read: what was planned of it is there all the same.

        `beginning`: of a long one that has changed, a beginning is taken at once. A compressed file, and an archive, is never followed.
        """
        if isinstance(content, Decoded | BadContent):
            return content
        found = self._settled(content, beginning=beginning)
        other = isinstance(found, bytes) and (looks(found, source.decompress) or (source.archives and archives.looks(found)))
        if content is not found and not self.start and other:
            raise Vanished("changed while it was read")
        return found

    def _settled(self, content: Content, *, beginning: bool) -> Content:
        if self.start + self.length != self.file.size or (self.start and not self.follows):
            return content
        if isinstance(content, Vanished) and beginning:
            self.length = min(self.length, APPENDED)
        # A longer stream is written as it comes: if it changes, the attempt starts again, and takes a beginning.
        if not isinstance(content, bytes | Vanished | Unreadable) and self.length <= APPENDED:
            try:
                content = b"".join(content)
            except Vanished as e:
                content = e
        if isinstance(content, Vanished):
            marks = [Mark(*each) for each in json.loads(self.follows or "[]")]
            seen = reread(self.store, self.request.name, self.file.version, self.file.size, marks, self.span)
            if seen is not None:
                self.file = FileInfo(self.file.path, seen[0].size, seen[0].version, seen[0].modified or self.file.modified)
                content = seen[1]
        self.request = ReadRequest(self.request.name, self.file.version, self.file.size, self.start, self.length)
        return content


def read(attempt: Attempt, source: Root, runs: list[TaskRun], ask: Ask, take: Take) -> None:
    """Read the splits of one source in one go, so that hundreds are in flight all the time, also while the plan's next rows come.

    ask     what to read for some splits: (names of their files in the store, rows of the plan) → requests
    take    writes what becomes of them: (store, rows of the plan, answers)
    """
    prefix, waiting = len(source.url.rstrip("/")) + 1, deque[PlannedSplit]()

    def requests() -> Iterator[ReadRequest]:
        for table in read_rows(attempt.store, runs, list(PlannedSplit._fields)):
            _check_paths(table.column("path"), source, attempt.work.head.job)
            planned = PlannedSplit(*(table.column(c).to_pylist() for c in PlannedSplit._fields))
            waiting.append(planned)
            yield from ask([path[prefix:] for path in planned.path], planned)

    store = source.store(attempt.retries.append)
    decoded = archives.unpacking(store, source.decompress, attempt.work.convert.holds_at_most, archives=source.archives)
    # Closed also where an answer ends the attempt: what is in flight must not go on beside the next one.
    with closing(decoded.read_many(requests())) as answers:
        for first in answers:
            planned = waiting.popleft()
            if any(planned.replaces):
                for path, start, text in zip(planned.path, planned.start, planned.replaces, strict=True):
                    if text:
                        attempt.replace((path, start), text)
            take(store, planned, chain([first], islice(answers, len(planned.path) - 1)))
            attempt.rows.flush()


def _check_paths(paths: pa.ChunkedArray, source: Root, job: str) -> None:
    """Refuse a plan that names what does not lie in the source: plans may be forged, and we may have rights that their writer lacks."""
    outside = pc.or_kleene(pc.invert(pc.starts_with(paths, source.url.rstrip("/") + "/")), pc.match_substring(paths, "\0"))
    for part in ("/../", "/./"):
        outside = pc.or_kleene(outside, pc.match_substring(pc.binary_join_element_wise(paths, "", "/"), part))
    if pc.any(outside).as_py():
        raise FormatError(f"the plan of job {job} names a file that does not lie in {source.url}: nothing was read. Look who wrote it.")


def hold(attempt: Attempt, split: FileSplit, rest: int) -> int:
    """Leave the last `rest` bytes, a line without its end, to a later run; how many lie before them.

    Where the file goes on behind them by now, they are not a last line: the next round reads on from here.
    """
    if rest and not split.ends:
        if rest == split.length:
            raise Vanished("changed while it was read")
    elif rest:
        attempt.tally.held += 1
        attempt.rows.bare.append(LedgerRow(split.file.path, split.file.version, split.start + split.length - rest, rest, "held"))
    return split.length - rest


def write(
    attempt: Attempt, file: FileInfo, done: list[Span], made: bytes | pa.RecordBatch | Record, marks: Mapping[Span, int | None],
    said: str | None = None, member: str | None = None,
) -> None:  # fmt: skip
    """Write what was made of parts of a file, or of a `member` of it, with their rows; a Record is written already.

    They tell by `said` why their records are not the file's own bytes.
    """
    if isinstance(made, bytes) and len(made) > LONGEST and attempt.work.convert.format == "lines" and (n := longer(made)):
        raise BadContent(f"a line of {n:,} bytes would come of it, and one may have {LONGEST:,}. Make shorter ones, or gather it as 'raw'")
    rows = [LedgerRow(file.path, file.version, *span, reason=said, fingerprint=marks[span], member=member) for span in done]
    if isinstance(made, Record):
        attempt.rows.add(rows, made)
        return
    parts: list[tuple[str, bytes | pa.RecordBatch]] = [("", made)] if len(made) else []
    if parts and isinstance(made, pa.RecordBatch) and attempt.work.convert.of_columns:
        parts = [*attempt.output.apart(file.path, made)]
    if not parts:
        attempt.rows.add(rows, None)
    for i, (folder, part) in enumerate(parts):
        attempt.output.add(part, whole=member is not None or done == [(0, file.size)], folder=folder)
        attempt.rows.add(rows if i == 0 else [beside(rows[0])], Record.of(part))


def beside(row: LedgerRow) -> LedgerRow:
    """The row of a part of a record that lies in several data files: it covers nothing, at the end of the first part's range.

    So every byte is counted once, a file where its first byte is, and every data file has a row that says where its records are.
    """
    return row._replace(start=max(1, row.start + row.length), length=0, fingerprint=None)


def quarantine(attempt: Attempt, split: FileSplit, aside: Mapping[Span, QuarantinedRecord], marks: Mapping[Span, int | None]) -> None:
    """Quarantine single records of a split, each with the part that it covers."""
    quarantined = attempt.quarantined
    for span, one in aside.items():
        row = LedgerRow(
            split.file.path, split.file.version, *span, "quarantined", one.reason, quarantined.tries(split.at), marks[span], 1,
            member=split.member,
        )  # fmt: skip
        quarantined.record(row, one.record, one.length, one.message)


def cut(start: int, length: int, records: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """The parts of a split that are done, and those that the `records` cover, which are not; in their order, as (start, length)."""
    at, end = start, start + length
    done, aside = list[Span](), list[Span]()
    for first, covers in records:
        aside.append((first, min(covers, end - first)))
        done += [(at, first - at)] if first > at else []
        at = sum(aside[-1])
    done += [(at, end - at)] if at < end or not aside else []
    return done, aside
