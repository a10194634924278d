"""The reading of a commit log: numbered entries from 1 on, each created once at the tip and never rewritten or deleted.

It begins at the newest checkpoint and goes to the tip. `Reading` holds the entries that it has read, and entries never change, so holding
them is not a second truth. Those below the checkpoint are read one by one where somebody asks for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import Self

from quire.commit import checkpoints, names
from quire.commit.checkpoints import Checkpoint
from quire.commit.entries import Abort, Commit, Entry, Foreign, Published, check_spec, check_task, decode
from quire.commit.parts import whole
from quire.errors import FormatError, NotFoundError
from quire.storage import Store

WINDOW = 64  # entries that are asked for at once


class Reading:
    """The entries of the log at `store`, read up to `tip`, with what decided and published each job."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.base: Checkpoint | None = None  # what is read instead of the entries up to its version
        self._opened = False
        self._start = 0  # the entries up to here are not held
        self._held: list[Entry] = []
        self._outcomes: dict[str, tuple[int, Commit | Abort]] = {}
        self._published: dict[str, tuple[int, Published]] = {}
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

    def entry(self, number: int) -> Entry:
        """One of them, read by itself where it is not held."""
        return self._entry(number)

    # ---------------------------------------------------------------------------------------------------------- reading
    def refresh(self) -> Self:
        """Read to the tip, from the newest checkpoint on: the end is where a GET finds nothing."""
        last = 0
        if not self._opened:
            self.base = checkpoints.newest(self.store)
            self._start = self.merged
            if not self.base:
                last = self._read_listed()
            self._opened = True
        self._read_on()
        if last > self.tip:
            raise self._gone(self.tip + 1)
        return self

    def stands(self) -> bool:
        """Whether the last entry that is held is still there; of one that holds none nobody knows."""
        return bool(self._held) and self._get(self.tip) == self._held[-1]

    def at(self, version: int) -> Self:
        """The log as it was at a version: this one, unless its checkpoint is younger; then one that was read up to there alone."""
        if version >= self.merged:
            return self
        found = type(self)(self.store)
        found.base = checkpoints.newest(self.store, version)
        found._start, found._opened = found.merged, True
        for entry in found._there(range(found.merged + 1, version + 1)):
            found._take(entry)
        return found

    def cut(self, version: int) -> Self:
        """The log up to a version, as whoever read it then would have seen it."""
        whole = self.at(version)
        found = type(self)(self.store)
        found.base, found._opened, found._start, found._before = whole.base, True, whole.merged, whole._before
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
        last = 0
        while names.entry(last + 1) in found:
            last += 1
        for entry in self._there(range(1, last + 1)):
            self._take(entry)
        return max((number for name in found if (number := names.number_of(name))), default=0)

    def _read_on(self) -> None:
        """GETs from the tip on, more and more at once, until one finds nothing."""
        window, gap = 1, 0
        while True:
            found = self._many(range(self.tip + 1, self.tip + 1 + window))
            there = list(takewhile(lambda entry: entry is not None, found))
            for entry in there:
                assert entry is not None
                self._take(entry)
            if len(there) == window:
                window = min(4 * window, WINDOW)
            elif any(entry is not None for entry in found[len(there) :]):
                if gap == self.tip + 1:  # looked at twice: it was not merely written between two GETs
                    raise self._gone(gap)
                gap = self.tip + 1
            else:
                return

    def _there(self, numbers: range) -> Iterator[Entry]:
        """Entries that must be there."""
        for at in range(0, len(numbers), 16 * WINDOW):
            some = numbers[at : at + 16 * WINDOW]
            for number, entry in zip(some, self._many(some), strict=True):
                if entry is None:
                    raise self._gone(number)
                yield entry

    def _many(self, numbers: range) -> list[Entry | None]:
        if len(numbers) == 1:
            return [self._get(numbers[0])]
        with ThreadPoolExecutor(8) as pool:
            return list(pool.map(self._get, numbers))

    def _gone(self, number: int) -> FormatError:
        return FormatError(
            f"{self.store.url}/{names.entry(number)} is gone, and later entries are there: entries are never deleted. Put it back."
        )

    def _load(self, after: int) -> None:
        """Hold the entries after a number too, which a checkpoint stands for."""
        if after < self._start:
            held = [*self._there(range(after + 1, self._start + 1)), *self._held]
            self._start, self._held, self._outcomes, self._published, self._undone = after, [], {}, {}, {}
            for entry in held:
                self._take(entry)

    def _get(self, number: int) -> Entry | None:
        try:
            data = self.store.get(names.entry(number))
        except NotFoundError:
            return None
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
        if isinstance(entry, Commit | Abort):
            if self._earlier(entry.job)[0] in (0, number):  # else the job was decided before what is held
                self._outcomes.setdefault(entry.job, (number, entry))
        elif isinstance(entry, Published) and self._earlier(entry.job)[1] in (0, number):
            self._published.setdefault(entry.job, (number, entry))
        elif isinstance(entry, Foreign):
            for job in entry.undone:
                self._undone.setdefault(job, number)

    def _earlier(self, job: str) -> tuple[int, int]:
        """The checkpoint's numbers of a job of which entries may stand below those that are held: its outcome, its `published`."""
        planned_from = names.base_of(job)
        if self.base is None or planned_from is None or planned_from >= self._start:
            return 0, 0
        if job not in self._before:
            self._before[job] = self.base.numbers(self.store, job)
        return self._before[job]

    def _entry(self, number: int) -> Entry:
        if number > self._start:
            return self._held[number - self._start - 1]
        return next(self._there(range(number, number + 1)))
