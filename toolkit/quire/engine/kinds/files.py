"""Whole files, and ranges of long ones: a built-in transform, or a user's function on a file's content, makes their records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import chain

import xxhash

from quire.coverage.tails import fingerprint, mark, unfinished
from quire.engine.attempt import Again, Attempt
from quire.engine.kinds import reading
from quire.engine.kinds.archived import Taken, Unpacking
from quire.engine.kinds.decoded import gather
from quire.engine.kinds.listing import OfFiles
from quire.engine.kinds.reading import Answers, FileSplit, PlannedSplit, Span, cut, hold, quarantine, write
from quire.engine.kinds.together import Together
from quire.engine.rows import LedgerRow, Record
from quire.formats.lines import LONGEST
from quire.planning.listing import TaskRun
from quire.sources import magic
from quire.sources.compression import Answer, Decoded
from quire.sources.files import Root
from quire.sources.ranges import TooLongError, lines_of, read, up_to
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import QuarantinedRecord
from quire.storage import ReadRequest, Store, Unreadable, Vanished

_CUT = "Gather such files with change_detection='store', which cuts them into ranges"  # what to do with a raw file that is one record
TOGETHER = 1 << 20  # bytes of whole files that the writer gets at once
_TOO_LONG = f"is longer than one value may be: {LONGEST:,} bytes. Break it at its source, or gather such files with transform='raw'"
_REQUEST = partial(tuple.__new__, ReadRequest)  # takes half of the time of ReadRequest(…)
digest = xxhash.xxh3_64_intdigest


class FilesKind(OfFiles):
    """Reads files, and writes what the transform makes of each."""

    name = "files"

    def attempt(self, attempt: Attempt, source: Root, runs: list[TaskRun]) -> None:
        """Read what a task has of one source."""
        reader = _FileReader(attempt, source)
        reading.read(attempt, source, runs, reader.ask, reader.take)


class _FileReader:
    def __init__(self, attempt: Attempt, source: Root) -> None:
        self.attempt, self.convert, self.tally, self.source = attempt, attempt.work.convert, attempt.tally, source
        many = None if attempt.output.by else self.convert.together  # rows of several files would lie in one directory
        self.group = Together(attempt, many, self._take) if many else None
        self.unpacking = Unpacking(attempt, source, self._member) if source.archives else None

    # ------------------------------------------------------------------------------------------------------------------ requests
    def ask(self, names: list[str], planned: PlannedSplit) -> Iterable[ReadRequest]:
        splits = names, planned.version, planned.size, planned.start, planned.length
        if planned.size == planned.length and (self.convert.streams or max(planned.size) <= self.convert.max_file_size):
            return map(_REQUEST, zip(*splits, strict=True))  # nearly always: whole files
        return map(self._request, *splits, planned.follows)

    def _request(self, name: str, version: str, size: int, start: int, length: int, follows: str | None) -> ReadRequest:
        if follows and start + length == size:  # the end of a file that was appended to, from a line's beginning on: just that
            return ReadRequest(name, version, size, start, length)
        if self.convert.transform == "lines" and self.convert.streams and (start or length != size):
            # A line belongs to the range in which it begins: look one byte back, and read on to the line's end.
            begin = max(start - 1, 0)
            return ReadRequest(name, version, size, begin, size - begin)
        if not self.convert.streams and size > self.convert.max_file_size and not (self.unpacking and length == size):
            return ReadRequest(name, version, size, 0, 0)
        return ReadRequest(name, version, size, start, length)

    # -------------------------------------------------------------------------------------------------------------------- answers
    def take(self, store: Store, planned: PlannedSplit, answers: Answers) -> None:
        convert, memo, other = self.convert, self.attempt.memo, magic.is_other
        plain = convert.format != "parquet" and convert.transform in ("lines", "raw")
        add_newline, add, row = convert.transform == "lines", self.attempt.output.add_all, self.attempt.rows.written.append
        gathered = files = bytes_in = size = 0
        contents = list[bytes]()  # of those that have a row, and that the writer has not got
        apart, group = self.attempt.output.members or self.unpacking is not None, self.group
        holds, marks, new = convert.holds, convert.marks, tuple.__new__  # which takes a quarter of the time of Row(…)
        for path, start, length, at, after, (request, answer) in zip(
            planned.path, planned.start, planned.length, planned.modified, planned.follows, answers, strict=True
        ):
            content, said = (answer.content, answer.said) if answer.__class__ is Decoded else (answer, None)
            if (
                content.__class__ is bytes and plain and content and request.length == length
                and not (memo and (path, start) in memo) and not (holds and content[-1] != 10 and not said)
                and not (add_newline and (start or other(content))) and not (apart and length != request.size)
            ):  # fmt: skip
                # The hot path of the main job.
                seen = fingerprint(content) if marks and not said else None
                if add_newline and content[-1] != 10:
                    content += b"\n"
                contents.append(content)
                # Most small documents are one line, and looking for a newline is many times faster than counting.
                lines = content.count(b"\n") if content.find(b"\n", 0, -1) >= 0 else content[-1] == 10
                made = int(lines), len(content), digest(content)
                row(new(LedgerRow, (path, request.version, start, length, "done", said, None, seen, *made, None, None, None, None)))
                gathered += 1
                files += start == 0
                bytes_in += length
                size += length
                if size > TOGETHER:
                    add(contents)
                    contents, size = [], 0
            else:
                add(contents)
                contents, size = [], 0
                file = FileInfo(path, request.size, request.version, at)
                split = FileSplit(store, request, file, start, length, after)
                given = self.unpacking.left(split, answer) if self.unpacking else answer
                if given is None:
                    continue
                alone = marks or length != request.size or split.at in memo
                if group and content.__class__ is bytes and not alone and group.takes(content):
                    group.add(split, given, content, said, path.rpartition("/")[0] if convert.partitions else None)
                else:
                    self._take(split, given)
        add(contents)
        if group:
            group.flush()
        if self.unpacking:
            self.unpacking.flush()
        self.tally.gathered, self.tally.files_in = self.tally.gathered + gathered, self.tally.files_in + files
        self.tally.bytes_in += bytes_in

    def _member(self, split: FileSplit, content: Decoded, _: int) -> Taken:
        """A member of an archive."""
        gather(self.attempt, split, content)
        return Taken(useful=True)

    def _take(self, split: FileSplit, content: Answer) -> None:
        """Any other split: quarantined, deferred, empty, long, or parsed."""
        convert, tally, known = self.convert, self.tally, self.attempt.memo.get(split.at)
        content = known if isinstance(known, Vanished | Unreadable | BadContent) else content
        try:
            if convert.holds:
                content = split.settle(content, self.source, beginning=True)
            if isinstance(content, Vanished | Unreadable | BadContent):
                raise content
            done = gather(self.attempt, split, content) if isinstance(content, Decoded) else self._as_it_is(split, content)
        except Vanished as e:
            self.attempt.defer(split.at, e)
        except (BadContent, Unreadable) as e:
            self.attempt.quarantined.split(split.file.path, split.file.version, split.span, e)
        else:
            if convert.holds and not split.length and split.file.size:
                tally.waiting += 1
                return
            if not done and split.at in self.attempt.quarantined.names:  # a line that was too long is so still
                self.attempt.quarantined.again()
            else:
                tally.gathered += 1
            tally.files_in += split.start == 0
            tally.bytes_in += sum(n for _, n in done)

    def _as_it_is(self, split: FileSplit, content: bytes | Iterator[bytes]) -> list[Span]:
        """A split of a file that is not compressed; what of it is done."""
        self._check(split)
        if not self.convert.streams or (isinstance(content, bytes) and split.request.length == split.length):
            return self._whole(split, content if isinstance(content, bytes) else b"".join(content))
        stream = (piece for piece in (content,)) if isinstance(content, bytes) else content
        with closing(stream):  # type: ignore[type-var]  # a stream is a generator
            return self._stream(split, stream)

    def _whole(self, split: FileSplit, content: bytes) -> list[Span]:
        """A split that is held as a whole; what of it is done. Its length becomes what was taken."""
        if self.convert.holds and not content.endswith(b"\n"):
            split.length = hold(self.attempt, split, len(content) - content.rfind(b"\n") - 1)
            content = content[: split.length]
        if content or not split.file.size or not self.convert.holds:
            seen = fingerprint(content) if self.convert.marks else None
            write(self.attempt, split.file, [split.span], self.convert.records(content, split.file), {split.span: seen})
        return [split.span]

    def _check(self, split: FileSplit) -> None:
        """Quarantine a range of a file of another kind, and what has to be held and parsed as a whole, and is a part or too long."""
        convert, file, request = self.convert, split.file, split.request
        if convert.transform == "raw" and split.length > LONGEST and convert.streams:
            raise BadContent(f"it is one record of {split.length:,} bytes, and a value may have {LONGEST:,}. {_CUT}")
        if convert.streams:
            if split.start and convert.takes_text and not convert.holds:  # files that are followed are not cut: the rest is lines, too
                beginning = ReadRequest(request.name, file.version, file.size, 0, min(magic.BEGINNING, file.size))
                magic.check(read(split.store, beginning), convert.transform)
            return
        if split.length != file.size:
            raise BadContent(
                "only a part of it is left to read (others have marked the rest), and it is parsed as a whole: forget the marks"
            )
        if file.size > convert.max_file_size:
            raise BadContent(f"larger than max_file_size: {file.size:,} bytes, allowed are {convert.max_file_size:,}")

    def _stream(self, split: FileSplit, content: Iterator[bytes]) -> list[Span]:
        """A long split, in pieces; what of it is done: all but lines that are too long. Its length becomes what was taken."""
        attempt, convert, store, request, file, start = self.attempt, self.convert, split.store, split.request, split.file, split.start
        checked, size, lines = xxhash.xxh3_64(), 0, 0
        long, holds = attempt.memo.get(split.at, ()), convert.holds and split.ends
        held = self._unfinished(split) if holds else 0

        def pieces() -> Iterator[bytes]:
            nonlocal size, lines
            found = up_to(content, start + split.length - held - request.start) if holds else content
            if convert.transform == "lines":
                found = lines_of(found, request.start, start, start + split.length, file.size + holds, long)
            try:
                for piece in found:
                    checked.update(piece)
                    size += len(piece)
                    lines += piece.count(b"\n")
                    yield piece
            except TooLongError as e:
                raise Again(split.at, e.lines) from e

        first = next(coming := pieces(), b"")
        if not start and convert.takes_text:
            magic.check(first, convert.transform)
        try:
            if first:
                attempt.output.add_stream(chain((first,), coming), split.length, whole=split.length == file.size)
                entry = store.stat(request.name)  # a range of lines ends before its stream does, which looks only at its end
                if entry is None or entry.version != file.version:
                    raise Vanished("changed while it was read")
            split.length = hold(attempt, split, held)
            if held and not split.length:
                return []
            done, aside = cut(*split.span, long)
            marks = {span: mark(store, request.name, file.version, file.size, *span) if convert.marks else None for span in done + aside}
        except (Vanished, Unreadable) as e:
            raise Again(split.at, e) from e
        attempt.rows.add(
            [LedgerRow(file.path, file.version, *span, fingerprint=marks[span]) for span in done],
            Record(lines, size, checked.intdigest()) if first else None,
        )
        quarantined = (QuarantinedRecord(line.start - start, None, line.length, f"{line} {_TOO_LONG}", None, line.length) for line in long)
        quarantine(attempt, split, dict(zip(aside, quarantined, strict=True)), marks)
        self.tally.vain += bool(long and done and not first)
        return done

    def _unfinished(self, split: FileSplit) -> int:
        """How many bytes come after the last newline of a file that is read from the split on."""
        try:
            return unfinished(split.store, split.request.name, split.file.version, split.file.size, split.start)
        except (Vanished, Unreadable) as e:
            raise Again(split.at, e) from e
