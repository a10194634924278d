"""The reading of a commit log: numbered entries from 1 on, each created once at the tip and never rewritten.

It begins at the newest checkpoint and goes to the tip. Old entries stand in the archive: what a GET gave counts once the archive, looked at
after it, has not got that number. `Reading` holds the entries that it has read, and entries never change, so holding
them is not a second truth. Those below the checkpoint are read one by one where somebody asks for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import takewhile
from operator import itemgetter
from typing import Any, Self, TypeVar

from quire.commit import archive, checkpoints, names
from quire.commit.archive import Archive
from quire.commit.checkpoints import Checkpoint
from quire.commit.entries import Abort, Commit, Entry, Foreign, Published, check_spec, check_task, decode
from quire.commit.parts import whole
from quire.errors import FormatError, NotFoundError
from quire.storage import Store, threads

E = TypeVar("E", bound=Entry)
T = TypeVar("T")

WINDOW, AT_ONCE = 64, 8  # entries that are looked for together, and that are asked for at once


class Reading:
    """The entries of the log at `store`, read up to `tip`, with what decided and published each job."""

    def __init__(self, store: Store) -> None:
        self.store, self.archive = store, Archive(store)
        self.base: Checkpoint | None = None  # what is read instead of the entries up to its version
        self._opened = False
        self._start = 0  # the entries up to here are not held
        self._held: list[Entry] = []
        self._alone: dict[int, Entry] = {}  # some of those before, which were read by themselves
        self._outcomes: dict[str, tuple[int, Commit | Abort]] = {}
        self._published: dict[str, tuple[int, Published]] = {}
        self._kinds: dict[type, list[tuple[int, Any]]] = {}  # those that are held, by their kind, in order
        self._commits: list[tuple[int, Commit]] = []  # those that decided their job, in order
        self._unpublished: dict[str, tuple[int, Commit]] = {}
        self._undone: dict[str, int] = {}  # jobs of a table that another program has rolled back, and the entry that says so
        self._before: dict[str, tuple[int, int]] = {}  # job → what the checkpoint says of it: numbers of its outcome and `published`

    @property
    def tip(self) -> int:
        """The number of the last entry; 0 where there is none."""
        return self._start + len(self._held)

    @property
    def merged(self) -> int:
        """The version of the checkpoint, 0 without one: everything up to it stands in `base`."""
        return self.base.version if self.base else 0

    @property
    def entries(self) -> list[Entry]:
        """All of them, read one by one where a checkpoint stands for them: of a long log, ask for what you need."""
        self._load(0)
        return self._held

    def since(self, version: int) -> list[Entry]:
        """The entries after a version."""
        self._load(version)
        return self._held[version - self._start :]

    def recent_of(self, kind: type[E]) -> list[E]:
        """The entries of one kind that no checkpoint has merged."""
        return [entry for _, entry in _between(self._kinds.get(kind, []), self.merged, self.tip)]

    def deciding(self, after: int, until: int) -> list[tuple[int, Commit]]:
        """The commits that are held, have numbers in (after, until] and decided their job."""
        return _between(self._commits, after, until)

    def entry(self, number: int) -> Entry:
        """One of them, read by itself where it is not held."""
        return self._entry(number)

    # ---------------------------------------------------------------------------------------------------------- reading
    def refresh(self) -> Self:
        """Read to the tip, from the newest checkpoint on: the end is where a GET finds nothing."""
        last = 0
        if not self._opened:
            self._begin(checkpoints.newest(self.store))
            if not self.base:
                last = self._read_listed()
            self._opened = True
        self._read_on()
        if last > self.tip:
            raise self._gone(self.tip + 1)
        return self

    def read_on(self) -> Self:
        """Read what has come since, within a call that began with `refresh`: where nothing has, the archive is not asked.

        The log is then one that there was, as for whoever has slept since the last look. An append reads to the tip.
        """
        if not self._opened:
            return self.refresh()
        self._read_on(glances=True)
        return self

    def _begin(self, base: Checkpoint | None) -> None:
        self.base, self._start = base, base.version if base else 0
        self.archive.head = max(self.archive.head, base.archived if base else 0)

    def stands(self) -> bool:
        """Whether the last entry that is held is still there; of one that holds none nobody knows."""
        data = self._get(self.tip) if self._held else None
        return data is not None and self._decoded((self.tip, data)) == self._held[-1]

    def at(self, version: int) -> Self:
        """The log as it was at a version: this one, unless its checkpoint is younger; then one that was read up to there alone."""
        if version >= self.merged:
            return self
        found = type(self)(self.store)
        found._begin(checkpoints.newest(self.store, version))
        found._opened = True
        for entry in found._there(range(found.merged + 1, version + 1)):
            found._take(entry)
        return found

    def cut(self, version: int) -> Self:
        """The log up to a version, as whoever read it then would have seen it."""
        whole = self.at(version)
        found = type(self)(self.store)
        found._begin(whole.base)
        found._opened, found._before, found.archive = True, whole._before, whole.archive
        for number in range(whole.merged + 1, version + 1):
            found._take(whole._held[number - whole._start - 1])
        return found

    def _read_listed(self) -> int:
        """Begin with the entries that a listing shows, as far as they have no gap: without a checkpoint the log is short.

        Returns the greatest number there: an entry below it that is not listed came during the listing, or is gone.
        """
        found = {e.name for e in self.store.walk(names.LOG)}
        if names.FORMER in found:
            raise FormatError(
                f"{self.store.url}/{names.FORMER} begins a log of an earlier quire, which this one does not read: nothing was touched. "
                f"Choose another destination, or read this one with the quire that has written it."
            )
        self.archive.saw(sorted(found))
        last = self.archive.head
        while names.entry(last + 1) in found:
            last += 1
        for entry in self._there(range(1, last + 1)):
            self._take(entry)
        return max((number for name in found if (number := names.number_of(name))), default=0)

    def _read_on(self, *, glances: bool = False) -> None:
        """Read from the tip on until nothing is there (`glances`: if nothing is, as it was is good enough).

        A log that was left alone for long goes on in the archive: its next entries may be gone, or be what others have put there since.
        """
        gap = 0
        while True:
            first = self.tip + 1
            found, more = self._until_nothing(first, 4 if gap else 1)
            if glances and not found and not more:
                return
            if self.archive.has(first):
                for entry in self._there(range(first, archive.last_of(first) + 1)):
                    self._take(entry)
                continue
            for entry in self._decoded_all(range(first, first + len(found)), found):
                self._take(entry)
            if not more:
                return
            if gap == self.tip + 1:  # looked at twice: it was not merely written between two GETs
                raise self._gone(gap)
            gap = self.tip + 1

    def _until_nothing(self, first: int, window: int) -> tuple[list[bytes], bool]:
        """GETs from a number on, more and more at once, until one finds nothing; and whether a later one has found something."""
        found, alone = list[bytes](), window == 1
        while True:
            some = self._many(range(first + len(found), first + len(found) + window))
            there = list(takewhile(lambda data: data is not None, some))
            found += [data for data in there if data is not None]
            if len(there) < window:
                return found, any(data is not None for data in some[len(there) :])
            window, alone = 1 if alone else min(4 * window, WINDOW), False  # as a rule there is one, which is ours

    def _there(self, numbers: range) -> Iterator[Entry]:
        """Entries that must be there."""
        return (entry for _, entry in self.stored(numbers))

    def stored(self, numbers: range) -> Iterator[tuple[bytes, Entry]]:
        """The same, each with its bytes."""
        at = numbers.start
        while at < numbers.stop:
            some = range(at, min(at + 16 * WINDOW, archive.last_of(at) + 1, numbers.stop))
            at = some.stop
            found = self._many(some) if some.start > self.archive.head else []
            if self.archive.has(some.start):
                found = list(self.archive.entries(some))
            if None in found:
                raise self._gone(some[found.index(None)])
            there = [data for data in found if data is not None]
            yield from zip(there, self._decoded_all(some, there), strict=True)

    def _many(self, numbers: range) -> list[bytes | None]:
        return threads.each(self._get, numbers, AT_ONCE)

    def _gone(self, number: int) -> FormatError:
        return FormatError(
            f"{self.store.url}/{names.entry(number)} is gone, and later entries are there. Entries are deleted once they are archived, "
            f"and {names.archived(archive.last_of(number))} is not there. Put one of the two back."
        )

    def _load(self, after: int) -> None:
        """Hold the entries after a number too, which a checkpoint stands for."""
        if after < self._start:
            held = [*self._there(range(after + 1, self._start + 1)), *self._held]
            self._start, self._held, self._kinds, self._commits = after, [], {}, []
            self._outcomes, self._published, self._unpublished, self._undone = {}, {}, {}, {}
            for entry in held:
                self._take(entry)

    def _get(self, number: int) -> bytes | None:
        try:
            return self.store.get(names.entry(number))
        except NotFoundError:
            return None

    def _decoded_all(self, numbers: range, found: list[bytes]) -> list[Entry]:
        return threads.each(self._decoded, list(zip(numbers, found, strict=True)), AT_ONCE)  # some have parts, which are read

    def _decoded(self, numbered: tuple[int, bytes]) -> Entry:
        number, data = numbered
        where = f"{self.store.url}/{names.entry(number)}"
        entry: Entry = decode(data, Entry, where)
        if isinstance(entry, Commit | Abort) and entry.parts is not None:
            entry = whole(entry, self.store, where)
        if isinstance(entry, Commit):
            check_spec(entry.spec, where)
            for task in entry.tasks:
                check_task(entry.job, task)
        if isinstance(entry, Commit | Abort | Published):
            names.job_folder(entry.job)
        return entry

    def _take(self, entry: Entry) -> None:
        self._held.append(entry)
        number = self.tip
        self._kinds.setdefault(type(entry), []).append((number, entry))
        if isinstance(entry, Commit | Abort):
            decided = entry.job in self._outcomes or self._earlier(entry.job)[0] not in (0, number)  # before what is held
            if not decided:
                self._outcomes[entry.job] = number, entry
                if isinstance(entry, Commit):
                    self._commits.append((number, entry))
                    self._unpublished[entry.job] = number, entry
        elif isinstance(entry, Published) and self._earlier(entry.job)[1] in (0, number):
            self._published.setdefault(entry.job, (number, entry))
            self._unpublished.pop(entry.job, None)
        elif isinstance(entry, Foreign):
            for job in entry.undone:
                self._undone.setdefault(job, number)

    def _earlier(self, job: str) -> tuple[int, int]:
        """The checkpoint's numbers of a job of which entries may stand below those that are held: its outcome, its `published`."""
        planned_from = names.base_of(job)
        if self.base is None or planned_from is None or planned_from >= self._start:
            return 0, 0
        if job not in self._before:
            self._before[job] = self.base.numbers(self.archive, job)
        return self._before[job]

    def _entry(self, number: int) -> Entry:
        if number > self._start:
            return self._held[number - self._start - 1]
        if number not in self._alone:
            found = next(self._there(range(number, number + 1)))
            self._alone = {**self._alone, number: found} if len(self._alone) < WINDOW else {number: found}
        return self._alone[number]


def _between(numbered: list[tuple[int, T]], after: int, until: int) -> list[tuple[int, T]]:
    """Those with numbers in (after, until]; they come in order."""
    first, end = (bisect_right(numbered, number, key=itemgetter(0)) for number in (after, until))
    return numbered[first:end]
