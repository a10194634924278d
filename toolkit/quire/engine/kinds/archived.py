"""Archives: each member is a document of its own, and has a row of its own.

A row speaks of stored bytes, as all rows do, so that what is done of an archive, what is left of it and what leaves is found as of any
file: the byte with a member's number stands for that member, and one row for all bytes that are left. Single records of members that are
quarantined are told by the last bytes. So a part of an archive, which a retry reads again, means the same members each time.

An archive that is damaged is quarantined whole, and nothing of it is taken. A member that is damaged, or refused, is quarantined alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from quire.engine.attempt import Again, Attempt
from quire.engine.kinds.reading import FileSplit, quarantine
from quire.engine.rows import LedgerRow
from quire.engine.tally import why
from quire.sources import compression
from quire.sources.archives import Answer, Archive, BrokenArchive, Member, is_archive, unpacking
from quire.sources.compression import Decoded
from quire.sources.files import Root
from quire.sources.identity import by_content, with_stored
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.processing import QuarantinedRecord
from quire.storage import ReadRequest, Unreadable, Vanished


class Taken(NamedTuple):
    """A member that was taken: whether anything was written of it, and its records that are quarantined."""

    useful: bool
    quarantined: Sequence[QuarantinedRecord] = ()


# Writes what becomes of a member, of which at most so many records can be quarantined alone. BadContent where nothing was written.
One = Callable[[FileSplit, Decoded, int], Taken]


@dataclass
class _Part:
    """A split of an archive, and what has become of its members so far."""

    split: FileSplit
    free: int  # where the bytes end that still stand for members
    next: int  # the first byte that stands for none of those that have come
    done: int = 0
    useful: bool = False
    records: int = 0
    aside: list[tuple[int, str, str]] = field(default_factory=list)  # numbers, names and reasons of members that are quarantined


class Unpacking:
    """Takes the archives among the files that a task reads; splits of one archive that follow one another are read together."""

    def __init__(self, attempt: Attempt, source: Root, one: One) -> None:
        self.attempt, self.source, self.one = attempt, source, one
        self._waiting = list[FileSplit]()
        self._plain = ""  # the file that was looked at last, and is not an archive

    def left(self, split: FileSplit, answer: Answer) -> compression.Answer | None:
        """Take a split, if it is of an archive (a part of one waits for others); else its content, and nothing of one that is too long."""
        if isinstance(answer, Archive):
            self.flush()
            self._take([split], answer)
            return None
        if isinstance(answer, Vanished | Unreadable | BadContent | Decoded):
            return answer
        size, most = split.file.size, self.attempt.work.convert.holds_at_most
        part = split.length != size and self._is_archive(split)
        if not part and (isinstance(answer, bytes) or most is None or split.request.length <= most):
            return answer
        if not isinstance(answer, bytes):
            answer.close()  # type: ignore[attr-defined]  # a stream is a generator
        if not part:
            return b""
        if self._waiting and self._waiting[0].file.path != split.file.path:
            self.flush()
        self._waiting.append(split)
        return None

    def _is_archive(self, split: FileSplit) -> bool:
        path = split.file.path
        if path != self._plain and not (self._waiting and self._waiting[0].file.path == path):
            try:
                if is_archive(split.store, split.request):
                    return True
            except (Vanished, Unreadable):
                return False  # whoever reads the split says so
            self._plain = path
        return path != self._plain

    def flush(self) -> None:
        """Take the parts that wait."""
        parts, self._waiting = self._waiting, []
        if parts:
            first = parts[0]
            name, version, size = first.request.name, first.file.version, first.file.size
            there = first.store.stat(name) if by_content(version) else None
            if there is not None and not by_content(there.version):  # it is not being read any more
                version = with_stored(version, there.version)
            store = unpacking(first.store, self.source.decompress, archives=True)
            with closing(store.read_many([ReadRequest(name, version, size, 0, size)])) as answers:
                self._take(sorted(parts, key=lambda split: split.start), next(answers)[1])

    def _take(self, splits: list[FileSplit], answer: Answer) -> None:
        first, quarantined = splits[0], self.attempt.quarantined
        known = self.attempt.memo.get((*first.at, None), answer)
        parts = [_Part(split, split.start + split.length, split.start) for split in splits]
        try:
            if isinstance(known, Vanished | Unreadable | BadContent):
                raise known
            if not isinstance(known, Archive):
                raise BrokenArchive("it was gathered as an archive, and now it is not one: forget it, and the next run reads all of it")
            try:
                self._members(parts, known)
            except (BrokenArchive, Vanished, Unreadable) as e:
                if any(part.done for part in parts):
                    raise Again((*first.at, None), e) from e
                raise
        except Vanished as e:
            for split in splits:
                self.attempt.defer(split.at, e)
        except (BadContent, Unreadable) as e:
            for split in splits:
                quarantined.split(split.file.path, split.file.version, split.span, e)
        else:
            for part in parts:
                self._end(part)
        finally:
            if isinstance(answer, Archive):
                answer.close()

    def _members(self, parts: list[_Part], archive: Archive) -> None:
        size, at, members = parts[0].split.file.size, 0, archive.members()
        for member in members:
            if member.number >= size:
                raise BrokenArchive(f"it has more than {size:,} members, and {size:,} bytes: too few to stand for them")
            while at < len(parts) and member.number >= parts[at].split.start + parts[at].split.length:
                at += 1
            if at == len(parts):
                return
            if member.number >= parts[at].split.start:
                try:
                    self._member(parts[at], archive, member)
                except Again as e:
                    if isinstance(e.known, BadContent) and not isinstance(e.known, BrokenArchive):
                        self._look_on(archive, members, parts[at].split.file.path)
                    raise

    def _look_on(self, archive: Archive, members: Iterator[Member], path: str) -> None:
        """Note which of the other members are damaged, too, before the attempt starts again: so it does that once for all of them."""
        with suppress(BrokenArchive, Vanished, Unreadable):  # whoever takes it says so
            for member in members:
                try:
                    content = archive.content(member, self.attempt.work.convert.holds_at_most).content
                    for _ in () if isinstance(content, bytes) else content:
                        pass
                except BrokenArchive:
                    raise
                except BadContent as e:
                    self.attempt.memo[path, member.number, member.name] = e.with_traceback(None)

    def _member(self, part: _Part, archive: Archive, member: Member) -> None:
        split, convert, number = part.split, self.attempt.work.convert, member.number
        if number >= part.free:
            raise BrokenArchive("it has more members, and records of them in quarantine, than bytes: too few to stand for them")
        part.next = number + 1
        file = split.file
        document = FileInfo(f"{file.path}!{member.name}", member.size, file.version, file.modified)
        one = FileSplit(split.store, split.request, file, number, 1, None, member.name, document)
        try:
            known = self.attempt.memo.get((*one.at, member.name))
            if known is not None:
                raise known
            content = archive.content(member, convert.holds_at_most)
            room = part.free - part.next if split.ends else 0  # of a part all bytes may stand for members
            taken = self.one(one, content, room)
        except BrokenArchive:
            raise
        except BadContent as e:
            part.aside.append((number, member.name, why(e)))
            return
        part.done, part.useful = part.done + 1, part.useful or taken.useful
        part.records += len(taken.quarantined)
        part.free -= len(taken.quarantined)
        spans = {(part.free + i, 1): record for i, record in enumerate(taken.quarantined)}
        quarantine(self.attempt, one, spans, dict.fromkeys(spans))

    def _end(self, part: _Part) -> None:
        """Say what became of a split; one of which no member could be taken is quarantined as a whole."""
        split, tally, rows = part.split, self.attempt.tally, self.attempt.rows
        path, version = split.file.path, split.file.version
        if part.aside and not part.done:
            n, (_, name, reason) = len(part.aside), part.aside[0]
            alone = split.length == 1
            e = BrokenArchive(reason if alone else f"none of its {n:,} members could be taken; the first one, {name[:100]}: {reason}")
            self.attempt.quarantined.split(path, version, split.span, e, name if alone else None)
            return
        tries = self.attempt.quarantined.tries(split.at)
        rows.bare += [LedgerRow(path, version, number, 1, "quarantined", reason, tries, member=name) for number, name, reason in part.aside]
        if part.next < part.free:
            rows.bare.append(LedgerRow(path, version, part.next, part.free - part.next, member=""))
        tally.quarantined_records += len(part.aside)
        tally.gathered += 1
        tally.vain += bool(part.records) and not part.useful
        tally.files_in += split.start == 0 and not (part.aside and part.aside[0][0] == 0)
        tally.bytes_in += split.length - len(part.aside) - part.records
