"""The numbers of one attempt; what gives way to the splits that it reads, and what it quarantines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from quire.commit.entries import Uncover
from quire.coverage.carry import Dropped
from quire.coverage.counts import begins
from quire.coverage.quarantine import QuarantineWriter, Shelf
from quire.coverage.tails import WAITED
from quire.engine.rows import LedgerRow, SegmentRows
from quire.planning.changes import EMPTY
from quire.sources.members import BrokenArchive
from quire.sources.transforms.content import BadContent
from quire.storage import Store

At = tuple[str, int]  # path and start of a split


@dataclass(slots=True)
class Tally:
    """The fields of `Stats` that count, while they grow."""

    gathered: int = 0
    quarantined_files: int = 0
    quarantined_records: int = 0
    vain: int = 0
    lost: int = 0
    held: int = 0
    waiting: int = 0
    restated: int = 0
    files_in: int = 0
    bytes_in: int = 0
    files_out: int = 0
    bytes_out: int = 0
    quarantined_out: int = 0
    held_out: int = 0
    duplicates: int = 0


class Replaced:
    """The rows that leave the ledger for what a task reads or removes."""

    def __init__(self, dropped: Dropped, tally: Tally) -> None:
        self.tally, self._uncovers = tally, [*dropped.uncovers]
        self._of: dict[At, list[tuple[Uncover, int, bool]]] = {}  # by a split, with how often each was tried, and whether it was a record
        self._withdrawn = set[Uncover]()
        counts = dropped.counts
        tally.files_out, tally.bytes_out, tally.quarantined_out, tally.held_out = (
            counts.files,
            counts.bytes,
            counts.quarantined,
            counts.held,
        )

    def add(self, at: At, given: list[list[Any]]) -> list[Uncover]:
        """Let rows give way to a split: [version, [[start, length], …], tries, …] each, and of single records their file, or ""."""
        found = [Uncover(at[0], version, tuple((s, n) for s, n in ranges)) for version, ranges, *_ in given]
        self._of[at] = [(uncover, each[2], len(each) > 3) for uncover, each in zip(found, given, strict=True)]
        self._uncovers += found
        self._count(at, 1)
        return found

    def withdraw(self, at: At) -> None:
        """Keep what would give way to a split that was not taken: to this one, not to another range of its file."""
        self._count(at, -1)
        self._withdrawn.update(uncover for uncover, *_ in self._of.pop(at, ()))

    def _count(self, at: At, sign: int) -> None:
        for uncover, tries, record in self._of.get(at, ()):
            self.tally.files_out += sign * sum(record and begins(uncover.path, start) for start, _ in uncover.ranges)
            name = {WAITED: "held_out", EMPTY: "files_out"}.get(tries, "quarantined_out")
            setattr(self.tally, name, getattr(self.tally, name) + sign * len(uncover.ranges))

    @property
    def uncovers(self) -> tuple[Uncover, ...]:
        """The rows that leave the ledger."""
        return tuple(uncover for uncover in self._uncovers if uncover not in self._withdrawn)


class Quarantined:
    """The splits and single records that an attempt quarantines, and what quarantine knew of the splits that it reads."""

    def __init__(self, store: Store, rows: SegmentRows, tally: Tally) -> None:
        self.rows, self.tally, self.differs = rows, tally, ""  # the first split whose rows have other columns, and which
        self.writer, self.shelf = QuarantineWriter(), Shelf(store)
        self.tried: dict[At, int] = {}  # how often a split was read before
        self.names: dict[At, str] = {}  # of a split that is one quarantined record: its quarantine file
        self.members: dict[At, str] = {}  # and the member of an archive that it is of

    def tries(self, at: At) -> int:
        """How often a split was read, with this time."""
        return self.tried.get(at, 0) + 1

    def earlier(self, path: str, version: str, start: int) -> dict[str, Any] | None:
        """The quarantined record that a split is, as its quarantine file has it; None where that has gone."""
        return self.shelf.one(self.names[path, start], path, version, start)

    def split(self, path: str, version: str, span: tuple[int, int], e: Exception, member: str | None = None) -> None:
        """A split that cannot be read or parsed, or that the user's function does not take; of an archive it may be a `member`."""
        member = "" if member is None and isinstance(e, BrokenArchive) else member
        row = LedgerRow(path, version, *span, "quarantined", why(e), self.tries((path, span[0])), member=member)
        self.rows.bare.append(row)
        self.tally.quarantined_files += 1
        if isinstance(e, BadContent) and e.differs:
            self.differs = self.differs or f"{path}: {e.differs}"

    def record(self, row: LedgerRow, content: bytes | None, length: int, message: str | None) -> None:
        """A record that was quarantined; `row` says where it lies, and why."""
        self.rows.bare.append(row)
        self.writer.add(*row[:3], content, length, row.reason or "", message, row.tries or 1)
        self.tally.quarantined_records += 1

    def again(self) -> None:
        """A record that was a split, and is quarantined once more, counts as the split that it is."""
        self.tally.quarantined_files, self.tally.quarantined_records = self.tally.quarantined_files + 1, self.tally.quarantined_records - 1


def why(e: Exception) -> str:
    """The reason that the ledger gives."""
    return e.reason if isinstance(e, BadContent) else str(e)
