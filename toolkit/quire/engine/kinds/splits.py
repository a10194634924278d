"""Splits of files that are given to a user's function, which may quarantine single records of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from quire.coverage.quarantine import KEPT
from quire.coverage.tails import Fingerprints, fingerprint, mark
from quire.engine.attempt import Attempt
from quire.engine.kinds import reading
from quire.engine.kinds.archived import Taken, Unpacking
from quire.engine.kinds.listing import OfFiles
from quire.engine.kinds.reading import Answers, FileSplit, PlannedSplit, Span, cut, hold, quarantine, write
from quire.engine.kinds.streamed import Streamed, begun
from quire.engine.kinds.together import Together
from quire.engine.rows import Record
from quire.engine.tally import why
from quire.errors import FormatError
from quire.planning.columns import SAMPLED as BEGINNING
from quire.planning.listing import TaskRun
from quire.sources import magic
from quire.sources.archives import Archive, unpacking
from quire.sources.compression import Answer, Decoded, looks
from quire.sources.files import Root
from quire.sources.ranges import read
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import Made, Processing, QuarantinedRecord
from quire.sources.transforms.text.reading import Reading
from quire.storage import ReadRequest, Store, Unreadable, Vanished

if TYPE_CHECKING:
    import pyarrow as pa


class SplitsKind(OfFiles):
    """Reads splits, and gives each to the function."""

    name = "splits"

    def attempt(self, attempt: Attempt, source: Root, runs: list[TaskRun]) -> None:
        """Read what a task has of one source."""
        process = attempt.work.convert.process
        if process is None:
            raise FormatError(f"the plan of job {attempt.work.head.job} names splits for a function that it lacks: it is damaged.")
        reader = _SplitReader(attempt, process, source)
        reading.read(attempt, source, runs, reader.ask, reader.take)


class _SplitReader:
    def __init__(self, attempt: Attempt, process: Processing, source: Root) -> None:
        self.attempt, self.process, self.convert, self.tally = attempt, process, attempt.work.convert, attempt.tally
        self.source = source
        self.unpacking = Unpacking(attempt, source, self._member) if source.archives else None
        self.group: Together | None = None
        if isinstance(process, Reading) and process.columns is not None:
            self.group = Together(attempt, process.together, self._process)

    def ask(self, names: list[str], planned: PlannedSplit) -> Iterable[ReadRequest]:
        for name, version, size, start, length, follows in zip(
            names, planned.version, planned.size, planned.start, planned.length, planned.follows, strict=True
        ):
            if self.unpacking and length == size > self.process.most:  # it may be an archive
                yield ReadRequest(name, version, size, 0, size)
            elif follows and start + length == size:  # the end of a file, from a line's beginning on: just that
                yield ReadRequest(name, version, size, start, length)
            else:
                yield self.process.request(name, version, size, start, length)

    def take(self, store: Store, planned: PlannedSplit, answers: Answers) -> None:
        for path, modified, start, length, follows, (request, content) in zip(
            planned.path, planned.modified, planned.start, planned.length, planned.follows, answers, strict=True
        ):
            file = FileInfo(path, request.size, request.version, modified)
            split = FileSplit(store, request, file, start, length, follows)
            again = split.at in self.attempt.quarantined.names
            given = self.unpacking.left(split, content) if self.unpacking and not again else content
            if given is None or (self.group is not None and self._grouped(self.group, split, given)):
                continue
            if again:
                if not isinstance(given, bytes | Vanished | Unreadable | BadContent | Decoded):
                    given.close()  # type: ignore[union-attr]  # a stream is a generator
                self._retry(split)
            else:
                self._process(split, given)

        if self.group is not None:
            self.group.flush()
        if self.unpacking:
            self.unpacking.flush()

    def _member(self, split: FileSplit, content: Decoded, room: int) -> Taken:
        """Give a member of an archive to the function."""
        if isinstance(self.process, Reading):
            content, long = begun(self.process, content)
            if long is not None:
                return self._long_member(split, self.process, long, content.said, room)
        given, made = content.whole, Made(b"")
        if given or self.process.split == "file":
            span = 0, len(given)
            made = self.process.call(given, split.info, span, self.attempt.quarantined.tries(split.at), len(given))
        aside = _stand_ins(made.quarantined, room, "the member")
        write(self.attempt, split.file, [split.span], made.rows, {split.span: None}, content.said, split.member)
        return Taken(useful=not made.vain, quarantined=aside)

    def _long_member(
        self, split: FileSplit, process: Reading, content: bytes | Iterator[bytes], said: str | None, room: int
    ) -> Taken:  # fmt: skip
        streamed = Streamed(self.attempt, split, process)
        with streamed.undone():
            record = streamed.write(content)
            aside = _stand_ins(streamed.quarantined, room, "the member")
        write(self.attempt, split.file, [split.span], record or b"", {split.span: None}, said, split.member)
        return Taken(useful=record is not None or not aside, quarantined=aside)

    def _grouped(self, group: Together, split: FileSplit, answer: Answer) -> bool:
        """Let a small whole file wait for others, if its rows can be made with theirs."""
        content, said = (answer.content, answer.said) if isinstance(answer, Decoded) else (answer, None)
        whole = isinstance(content, bytes) and not split.start and split.length == split.file.size
        if not whole or self.convert.marks or split.at in self.attempt.quarantined.names or not group.takes(content):  # type: ignore[arg-type]
            return False
        assert isinstance(content, bytes)
        assert isinstance(self.process, Reading)
        if (key := self.process.key(content)) is None:
            return False
        group.add(split, answer, content, said, (key, split.file.path.rpartition("/")[0] if self.convert.partitions else None))
        return True

    def _process(self, split: FileSplit, content: Answer) -> None:
        """Give a split to the function."""
        process, held, decoded = self.process, 0, isinstance(content, Decoded)
        holds = self.convert.holds and not process.whole(split.file.path) and not decoded
        content = self.attempt.memo.get(split.at, content)
        try:
            if holds:
                content = split.settle(content, self.source, beginning=isinstance(process, Reading))
            if isinstance(process, Reading):
                content, rest = begun(process, content, None if decoded else split)
                if rest is not None:
                    self._long(split, process, rest, content.said if isinstance(content, Decoded) else None, holds=holds)
                    return
            start, length = split.span
            begin, given, long = process.content(split.store, split.request, content, start, length)
            if holds and isinstance(given, bytes):
                if isinstance(process, Reading) and not start:
                    process.check_followed(given)
                held = len(given) - given.rfind(b"\n") - 1  # a line that does not end ends the file, or goes on behind it by now
                given = given[: len(given) - held] or None
            made, taken = Made(b""), length - held
            if given is not None:
                end = begin + len(given) if decoded else start + taken if long is None else long.start
                made = process.call(given, split.file, (start, taken), self.attempt.quarantined.tries(split.at), end - begin)
                made = _last_bytes(made, taken) if decoded else made
            if long is not None:
                aside = QuarantinedRecord(
                    long.start - begin, None, long.length, process.too_long(long.start, long.length), None, long.length
                )
                made = Made(made.rows, (*made.quarantined, aside))
            if taken or not held:
                self._taken(split, (start, taken), made, begin, given, content.said if isinstance(content, Decoded) else None)
            hold(self.attempt, split, held)
        except Vanished as e:
            self.attempt.defer(split.at, e)
        except (BadContent, Unreadable) as e:
            self.attempt.quarantined.split(split.file.path, split.file.version, split.span, e)
        else:
            self.tally.gathered += not held or held < length
            self.tally.vain += made.vain
            self.tally.waiting += bool(held) and held == length

    def _long(
        self, split: FileSplit, process: Reading, content: bytes | Iterator[bytes], said: str | None, *, holds: bool
    ) -> None:  # fmt: skip
        """A long split, which is read as a stream."""
        streamed = Streamed(self.attempt, split, process, holds=holds, marks=self.convert.marks and not said)
        with streamed.undone():
            record = streamed.write(content if said else streamed.of_file(content))
            made = Made(b"", tuple(streamed.quarantined))
            made = _last_bytes(made, split.length) if said else made
            if streamed.held < split.length:
                self._taken(split, streamed.span, made, 0, streamed.marks, said, record)
        hold(self.attempt, split, streamed.held)
        self.tally.gathered += streamed.held < split.length
        self.tally.vain += made.vain and record is None
        self.tally.waiting += streamed.held == split.length

    def _retry(self, split: FileSplit) -> None:
        """Give a record that was quarantined to the function again, alone: from its quarantine file, or if it is long from the source."""
        process, file, request = self.process, split.file, split.request
        start, length = split.span
        quarantined = self.attempt.quarantined
        if (member := quarantined.members.get(split.at)) is not None:
            split.member, split.document = member, replace(file, path=f"{file.path}!{member}")
        found = quarantined.earlier(file.path, file.version, start) or {"content": None, "length": length}
        record, cut_by_lines = found["content"], process.split == "lines"
        try:
            if record is None and found["length"] > process.most:
                raise BadContent(process.too_long(start, found["length"]))
            if record is None:
                self._check_plain(split)
                record = read(split.store, ReadRequest(request.name, file.version, file.size, start, found["length"]))
            end = min(length, len(record))
            if isinstance(process, Reading) and process.needs_beginning(record):
                process = process.following(self._beginning(split))
            made = process.call(record, split.info, split.span, quarantined.tries(split.at), end)
            # The end of its line, which the row covers and the record does not hold.
            records = (r._replace(covers=length - r.offset) if r.offset + r.covers >= end else r for r in made.quarantined)
            made = Made(made.rows, tuple(records)) if cut_by_lines else made
        except (BadContent, Unreadable, Vanished) as e:
            reason = why(e)
            if isinstance(e, Vanished):
                reason = f"it is longer than what is kept in quarantine, and its source has changed or gone ({reason})"
            made = Made(b"", (QuarantinedRecord(0, record, found["length"], reason, None, length),))
        given = record or b""
        if cut_by_lines and record:
            given += (b"", b"\n", b"\r\n")[min(max(0, length - len(record)), 2)]
        if self._taken(split, split.span, made, start, given):
            self.tally.gathered += 1
            self.tally.vain += made.vain
        else:
            quarantined.again()

    def _beginning(self, split: FileSplit) -> bytes:
        """The first bytes of a split's file, or member of one, decoded: they name its columns, and tell its encoding."""
        name, version, size, *_ = split.request
        store = unpacking(split.store, self.source.decompress, archives=self.source.archives)
        with closing(store.read_many([ReadRequest(name, version, size, 0, size)])) as answers:
            _, answer = next(answers)
            if isinstance(answer, Archive):
                return _beginning_of(answer, split)
            content = answer.content if isinstance(answer, Decoded) else answer
            if isinstance(content, Vanished | Unreadable | BadContent):
                raise content
            return _first(content)

    def _check_plain(self, split: FileSplit) -> None:
        """BadContent for a record of a compressed file, or of an archive: its bytes are in quarantine alone."""
        name, version, size, *_ = split.request
        decompress = self.source.decompress
        if split.member or looks(read(split.store, ReadRequest(name, version, size, 0, min(magic.BEGINNING, size))), decompress):
            raise BadContent(
                "it is of a compressed file or an archive, and its quarantine file is gone: forget it, and the next run reads all of it"
            )

    def _taken(
        self, split: FileSplit, span: Span, made: Made, begin: int, given: bytes | pa.Table | Fingerprints | None,
        said: str | None = None, record: Record | None = None,
    ) -> bool:  # fmt: skip
        """The rows of a `span` of a split; whether anything of it is done. The function was `given` what begins at byte `begin`.

        record   of the rows, where they are written already
        """
        file = split.file
        done, aside = cut(*span, [(begin + one.offset, one.covers) for one in made.quarantined])

        def seen(at: int, n: int) -> int | None:
            if not self.convert.marks or said:
                return None
            if isinstance(given, Fingerprints):
                return given.of[at, n]
            if isinstance(given, bytes) and begin <= at and at + n <= begin + len(given):
                return fingerprint(given[at - begin : at - begin + n])
            return None if given == b"" else mark(split.store, split.request.name, file.version, file.size, at, n)

        # Before anything is written: a file that has changed leaves no trace.
        marks = {each: seen(*each) for each in (*done, *aside)}
        if done:
            write(self.attempt, file, done, record or made.rows, marks, said, split.member)
        quarantine(self.attempt, split, dict(zip(aside, made.quarantined, strict=True)), marks)
        self.tally.files_in += span[0] == 0
        self.tally.bytes_in += sum(n for _, n in done)
        return bool(done)


def _beginning_of(archive: Archive, split: FileSplit) -> bytes:
    """The same of a member; BadContent where its archive has none, or several of that name that begin otherwise."""
    with closing(archive):
        found = list[bytes]()
        for member in archive.members():
            if member.name == split.member and not member.why:
                found.append(_first(archive.content(member, None).content)[:BEGINNING])
    if len(set(found)) != 1:
        raise BadContent(f"its archive has {len(found)} members of that name: forget the archive, and the next run reads all of it")
    return found[0]


def _first(content: bytes | Iterator[bytes]) -> bytes:
    """The beginning of a content, as far as it comes at once."""
    return content if isinstance(content, bytes) else next(content, b"")


def _last_bytes(made: Made, length: int) -> Made:
    """The same of a compressed file of `length` bytes: one of its last bytes stands for each record that was quarantined.

    The ledger speaks of stored bytes, and a record has none of its own there.
    """
    found = _stand_ins(made.quarantined, max(length, 1) - 1, "what the file decodes to")
    first = length - len(found)
    return Made(made.rows, tuple(each._replace(offset=first + i) for i, each in enumerate(found)))


def _stand_ins(found: Sequence[QuarantinedRecord], room: int, of: str) -> tuple[QuarantinedRecord, ...]:
    """Records that have no stored bytes of their own, each of which one byte stands for; BadContent where there are not so many."""
    if len(found) > room:
        raise BadContent(
            f"the function has quarantined {len(found):,} records of it, and there are {room:,} bytes: too few to stand for them"
        )
    if (longest := max((each.length for each in found), default=0)) > KEPT:
        raise BadContent(f"the function has quarantined a record of {longest:,} bytes: of a compressed file one of {KEPT:,} can be kept")
    said = (f"{each.reason} (at byte {each.offset:,} of {of})" for each in found)
    return tuple(each._replace(covers=1, reason=why) for each, why in zip(found, said, strict=True))
