"""How an attempt gives a split to a user's function, and what the ledger says of it then.

Records that the function rejects cut the split: `done` before, between and behind them, `bad` for each of them. All pieces that are done
stand for the one output. The first one names its place and what was written; the others, the riders, name the same place and that
nothing was written for them alone, so that they leave together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import xxhash

from quire.coverage import quarantine
from quire.coverage.segments import SCHEMA
from quire.coverage.tails import Mark, fingerprint, mark, reread
from quire.sources.ranges import read
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import Made, Processing, Rejected
from quire.storage import Content, Gone, Request, Store, Unreadable

if TYPE_CHECKING:
    from quire.sources.transforms.convert import Convert

__all__ = ["APPENDED", "OfSplits", "cut", "settled", "table_of"]

Span = tuple[int, int]  # start and length, in bytes of a file

APPENDED = 64 << 20  # bytes of a split that is read at once from a file that changes meanwhile


class OfSplits:
    """The part of an attempt that knows users' functions on splits."""

    store: Store
    convert: Convert
    rejects: quarantine.Shelf
    quarantine: quarantine.QuarantineWriter
    others: list[tuple[Any, ...]]  # path, version, start, length, state, reason, tries, mark, records: without a record
    riders: dict[tuple[str, str, int], list[tuple[Any, ...]]]  # path, version, start of a row → the pieces that ride with it
    records: dict[tuple[str, int], str]  # path, start of a split that is one rejected record → its quarantine file
    tried: dict[tuple[str, int], int]  # path, start of a split → how often it was read before
    gathered: int
    bad: int
    rejected: int
    vain: int
    waiting: int
    files: int
    bytes_in: int

    def _write(self, made: bytes | pa.RecordBatch, file: FileInfo, start: int, length: int, mark: int | None) -> bool:
        """Write what was made of a range, and its row."""
        raise NotImplementedError

    def _hold(self, file: FileInfo, start: int, length: int, rest: int) -> int:
        """Leave the last `rest` bytes to a later run."""
        raise NotImplementedError

    def _leave_out(self, file: FileInfo, start: int, e: Gone) -> None:
        """A split that changed or vanished."""
        raise NotImplementedError

    def _set_aside(self, file: FileInfo, start: int, length: int, e: BadContent | Unreadable) -> None:
        """A split that cannot be read, or that the function does not take."""
        raise NotImplementedError

    def _process(
        self, store: Store, request: Request, content: Content, file: FileInfo, start: int, length: int, after: str | None
    ) -> None:
        """A split, or a record that was rejected, for the user's function."""
        process, record, held = self.convert.process, self.records.get((file.path, start)), 0
        assert process is not None
        holds = self.convert.holds and not process.whole(file.path)
        try:
            if record is not None:
                if not isinstance(content, bytes | Gone | Unreadable):
                    content.close()  # type: ignore[attr-defined]  # a stream is a generator
                self._retry(process, store, request, file, start, length, record)
                return
            if holds and start + length == file.size and (after or not start):
                file, content = settled(store, request, content, file, (start, length), after)
                request = Request(request.name, file.version, file.size, start, length)
            begin, given, long = process.content(store, request, content, start, length)
            if holds and isinstance(given, bytes):
                held = len(given) - given.rfind(b"\n") - 1  # a line that does not end ends the file, or goes on behind it by now
                given = given[: len(given) - held] or None
            made, taken = Made(b""), length - held
            if given is not None:
                end = start + taken if long is None else long.start
                made = process.call(given, file, (start, taken), self.tried.get((file.path, start), 0) + 1, end - begin)
            if long is not None:
                why = process.too_long(long.start, long.length)
                aside = Rejected(long.start - begin, None, long.length, why, None, long.length)
                made = Made(made.rows, (*made.rejected, aside))
            if taken or not held:
                self._taken(made, store, request, file, start, taken, begin, given)
            self._hold(file, start, length, held)
        except Gone as e:
            self._leave_out(file, start, e)
        except (BadContent, Unreadable) as e:
            self._set_aside(file, start, length, e)
        else:
            self.gathered += not held or held < length
            self.vain += made.vain
            self.waiting += bool(held) and held == length

    def _retry(self, process: Processing, store: Store, request: Request, file: FileInfo, start: int, length: int, name: str) -> None:
        """Give a record that was rejected to the function again, alone: from its quarantine file, or if it is long from the source."""
        found = self.rejects.one(name, file.path, file.version, start) or {"content": None, "length": length}
        record, cut = found["content"], process.split == "lines"
        try:
            if record is None and found["length"] > process.most:
                raise BadContent(process.too_long(start, found["length"]))
            if record is None:
                record = read(store, Request(request.name, file.version, file.size, start, found["length"]))
            end = min(length, len(record))
            made = process.call(record, file, (start, length), self.tried.get((file.path, start), 0) + 1, end)
            # The end of its line, which the row covers and the record does not hold.
            rejected = (r._replace(covers=length - r.offset) if r.offset + r.covers >= end else r for r in made.rejected)
            made = Made(made.rows, tuple(rejected)) if cut else made
        except (BadContent, Unreadable, Gone) as e:
            reason = e.reason if isinstance(e, BadContent) else str(e)
            if isinstance(e, Gone):
                reason = f"it is longer than what is kept in quarantine, and its source has changed or gone ({reason})"
            made = Made(b"", (Rejected(0, record, found["length"], reason, None, length),))
        given = (record or b"") + (b"", b"\n", b"\r\n")[min(max(0, length - len(record or b"")), 2) if cut and record else 0]
        if self._taken(made, store, request, file, start, length, start, given):
            self.gathered, self.vain = self.gathered + 1, self.vain + made.vain
        else:
            self.bad, self.rejected = self.bad + 1, self.rejected - 1

    def _taken(
        self, made: Made, store: Store, request: Request, file: FileInfo, start: int, length: int, begin: int,
        given: bytes | pa.Table | None,
    ) -> bool:  # fmt: skip
        """The rows of a split for the ledger; whether anything of it is done.

        Records that were rejected cut it. All its pieces that are done stand for the one output: the first one names it, others ride.
        """
        key = file.path, file.version
        done, aside = cut(start, length, [(begin + rejected.offset, rejected.covers) for rejected in made.rejected])

        def seen(at: int, n: int) -> int | None:
            if not self.convert.marks:
                return None
            if isinstance(given, bytes) and begin <= at and at + n <= begin + len(given):
                return fingerprint(given[at - begin : at - begin + n])
            return None if given == b"" else mark(store, request.name, *key[1:], file.size, at, n)

        # Before anything is written: a file that has changed leaves no trace.
        marks = {span: seen(*span) for span in (*done, *aside)}
        written = bool(done) and self._write(made.rows, file, *done[0], marks[done[0]])
        self._pieces(file, start, done, dict(zip(aside, made.rejected, strict=True)), marks, written=written)
        self.files += any(s == 0 for s, _ in done)
        self.bytes_in += sum(n for _, n in done)
        return bool(done)

    def _pieces(
        self, file: FileInfo, start: int, done: list[Span], aside: dict[Span, Rejected], marks: Mapping[Span, int | None], *, written: bool
    ) -> None:  # fmt: skip
        """The rows of a split's pieces, but for the first one that is done, which has its own: others ride with it, if it was `written`."""
        key, tries = (file.path, file.version), self.tried.get((file.path, start), 0) + 1
        if written and len(done) > 1:
            self._rides(*key, done[0][0], [{"start": s, "length": n, "fingerprint": marks[s, n]} for s, n in done[1:]])
        elif not written:
            self.others += [(*key, *span, "done", None, None, marks[span], 0) for span in done[1:]]
        for span, rejected in aside.items():
            self.others.append((*key, *span, "bad", rejected.reason, tries, marks[span], 1))
            self.quarantine.add(*key, span[0], rejected.record, rejected.length, rejected.reason, rejected.message, tries)
        self.rejected += len(aside)

    def _rides(self, path: str, version: str, start: int, riders: list[dict[str, Any]]) -> None:
        """Pieces of a split that name the record of its first piece, so that all of them leave with it."""
        self.riders[path, version, start] = [(path, version, r["start"], r["length"], r["fingerprint"]) for r in riders]

    def _riding(
        self, rows: list[tuple[Any, ...]], names_: list[str], offsets: list[int], skips: list[int], carried: bool
    ) -> list[pa.Table]:
        """The rows of the pieces that stand for the same records as `rows` do."""
        found = [
            (*rider[:4], "done", None, name, offset, skip, 0, 0, xxhash.xxh3_64_intdigest(b""), carried, None, rider[4])
            for row, name, offset, skip in zip(rows, names_, offsets, skips, strict=True)
            for rider in (self.riders.pop(row[:3], ()) if self.riders else ())
        ]
        return [table_of(*zip(*found, strict=True))] if found else []


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


def table_of(*columns: Any) -> pa.Table:
    """Rows of a segment, by their columns."""
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def settled(
    store: Store, request: Request, content: Content, file: FileInfo, span: tuple[int, int], after: str | None
) -> tuple[FileInfo, Content]:
    """A split of a file that may be appended to while it is read: what was planned of it is there all the same."""
    if isinstance(content, bytes | Unreadable):
        return file, content
    if not isinstance(content, Gone):
        if span[1] > APPENDED:
            return file, content  # its stream is written as it comes; if it changes, the attempt begins again and takes a beginning
        try:
            return file, b"".join(content)
        except Gone as e:
            content = e
    marks = [Mark(*each) for each in json.loads(after or "[]")]
    seen = reread(store, request.name, file.version, file.size, marks, span)
    if seen is None:
        return file, content if isinstance(content, Gone) else Gone("changed")
    return FileInfo(file.path, seen[0].size, seen[0].version, seen[0].modified or file.modified), seen[1]
