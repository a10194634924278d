"""The commit log of a destination: numbered entries from 1 on, each created once at the tip and never rewritten or deleted.

Reading begins at the newest checkpoint and goes to the tip; appending reads, computes the entry from that read, puts it if absent and
reads again, whatever the answer was. `Log` holds entries that it has read, and entries never change, so holding them is not a second truth.
Those below the checkpoint are read one by one where somebody asks for them. A *version* is the number of an entry: version v is what
the entries 1..v say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from quire.commit import checkpoints, names
from quire.commit.checkpoints import Checkpoint
from quire.commit.entries import (
    Abort,
    Commit,
    Entry,
    Expired,
    LeftOut,
    Manifest,
    Part,
    Pin,
    Published,
    Spec,
    Task,
    Unpin,
    check_spec,
    check_task,
    decode,
    encode,
)
from quire.errors import FormatError, NotFoundError, StorageError
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.storage import Store

LONGEST = 1 << 20  # bytes; a longer entry keeps its tasks, and what they have left, in a file of its own
TOGETHER = 1_000  # of what was left, in a row of such a file
_PART = pa.schema([pa.field("task", pa.string(), nullable=False)])


WINDOW = 64  # entries that are asked for at once


class Log:
    """The log of the destination at `store`, read up to `tip`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.base: Checkpoint | None = None  # what is read instead of the entries up to its version
        self._opened = False
        self._start = 0  # the entries up to here are not held
        self._held: list[Entry] = []
        self._outcomes: dict[str, tuple[int, Commit | Abort]] = {}
        self._published: dict[str, tuple[int, Published]] = {}
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

    # ---------------------------------------------------------------------------------------------------------- reading
    def refresh(self) -> Log:
        """Read to the tip, from the newest checkpoint on: the end is where a GET finds nothing."""
        if not self._opened:
            self.base = checkpoints.newest(self.store)
            self._start = self.merged
            if not self.base:
                self._read_listed()
            self._opened = True
        self._read_on()
        return self

    def stands(self) -> bool:
        """Whether the last entry that is held is still there; of one that holds none nobody knows."""
        return bool(self._held) and self._get(self.tip) == self._held[-1]

    def at(self, version: int) -> Log:
        """The log as it was at a version: this one, unless its checkpoint is younger; then one that was read up to there alone."""
        if version >= self.merged:
            return self
        found = Log(self.store)
        found.base = checkpoints.newest(self.store, version)
        found._start, found._opened = found.merged, True
        for entry in found._there(range(found.merged + 1, version + 1)):
            found._take(entry)
        return found

    def cut(self, version: int) -> Log:
        """The log up to a version, as whoever read it then would have seen it."""
        whole = self.at(version)
        found = Log(self.store)
        found.base, found._opened, found._start, found._before = whole.base, True, whole.merged, whole._before
        for number in range(whole.merged + 1, version + 1):
            found._take(whole._held[number - whole._start - 1])
        return found

    def _read_listed(self) -> None:
        """Begin with the entries that a listing shows: without a checkpoint the log is short."""
        for entry in self._there(self._listed()):
            self._take(entry)

    def _listed(self) -> range:
        """The numbers that a listing shows, as far as they have no gap."""
        found = {e.name for e in self.store.walk(names.LOG)}
        if names.FORMER in found:
            raise FormatError(
                f"{self.store.url}/{names.FORMER} begins a log of an earlier quire, which this one does not read: nothing was touched. "
                f"Choose another destination, or read this one with the quire that has written it."
            )
        last = 0
        while names.entry(last + 1) in found:
            last += 1
        return range(1, last + 1)

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
        return FormatError(f"{self.store.url}/{names.entry(number)} was listed and is gone: entries are never deleted. Put it back.")

    def _load(self, after: int) -> None:
        """Hold the entries after a number too, which a checkpoint stands for."""
        if after < self._start:
            held = [*self._there(range(after + 1, self._start + 1)), *self._held]
            self._start, self._held, self._outcomes, self._published = after, [], {}, {}
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
            entry = _whole(entry, self.store, where)
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

    # ----------------------------------------------------------------------------------------------------- what it says
    def outcome(self, job: str) -> Commit | Abort | None:
        """The first commit or abort of a job decides it; later ones say nothing."""
        found = self.decided(job)
        return found[1] if found else None

    def decided(self, job: str) -> tuple[int, Commit | Abort] | None:
        """The same, with the number of the entry."""
        if found := self._outcomes.get(job):
            return found
        number = self._earlier(job)[0]
        if not number:
            return None
        entry = self._entry(number)
        if not isinstance(entry, Commit | Abort) or entry.job != job:
            assert self.base is not None
            raise FormatError(
                f"{self.store.url}/{self.base.head} says that entry {number} decides {job}, which it does not: delete that checkpoint."
            )
        self._outcomes[job] = number, entry
        return number, entry

    def outcomes(self) -> Iterator[Commit | Abort]:
        """The entries that decided each job."""
        self._load(0)
        return (entry for _, entry in self._outcomes.values())

    def published(self, job: str) -> Published | None:
        """The first `published` of a job counts."""
        return self._publication(job)[1]

    def published_at(self, job: str) -> int:
        """The number of that entry; 0 where there is none."""
        return self._publication(job)[0]

    def _publication(self, job: str) -> tuple[int, Published | None]:
        if found := self._published.get(job):
            return found
        number = self._earlier(job)[1]
        if not number:
            return 0, None
        entry = self._entry(number)
        assert isinstance(entry, Published)
        self._published[job] = number, entry
        return number, entry

    def commits(self, after: int = 0, until: int | None = None) -> Iterator[tuple[int, Commit]]:
        """The commits with numbers in (after, until] that decided their job.

        Those up to `merged` are read one by one, when whoever asks goes on after the first one: see what `base` says already.
        """
        until = self.tip if until is None else until
        first = self.base.first if self.base else 0
        if after < first <= min(self._start, until):
            yield first, self.commit(first)
            after = first
        if after < min(self._start, until):
            self._load(after)
        for number, entry in sorted(self._outcomes.values(), key=lambda x: x[0]):
            if after < number <= until and isinstance(entry, Commit):
                yield number, entry

    def ending(self, wanted: str) -> Iterator[Commit]:
        """The commits that decided a job whose name ends so; of merged ones only those that are meant are read."""
        merged = dict.fromkeys(self.base.ending(self.store, wanted) if self.base else ())
        decided = (self.outcome(job) for job in merged)
        yield from (entry for entry in decided if isinstance(entry, Commit))
        yield from (commit for _, commit in self.recent() if commit.job not in merged and commit.job.endswith(f"-{wanted}"))

    def backwards(self, until: int | None = None) -> Iterator[tuple[int, Commit]]:
        """The commits up to `until`, the last one first: of those that a checkpoint stands for, some are read at a time."""
        end, after = self.tip if until is None else until, min(self.merged, self.tip if until is None else until)
        while end:
            yield from reversed(list(self.commits(after, end)))
            end, after = after, max(0, after - 16 * WINDOW)

    def recent(self, until: int | None = None) -> Iterator[tuple[int, Commit]]:
        """The commits that no checkpoint has merged."""
        return self.commits(self.merged, until)

    def saying(self, until: int | None = None) -> Commit | None:
        """The first commit that says what the destination holds: later ones say the same, or nothing."""
        if self.base and self.base.said:
            return self.commit(self.base.said)
        return next((commit for _, commit in self.recent(until) if commit.spec.said), None)

    def spec(self, until: int | None = None, *, reader: bool = False) -> Spec | None:
        """The contents of the destination at a version; None where no commit says it (to a reader: none of which anything counts)."""
        found = self.saying(until)
        if found is None or (reader and not self.holds(until)):
            return None
        return found.spec

    def holds(self, until: int | None = None) -> bool:
        """Whether a commit that says what the destination holds counts for a reader of a version."""
        if self.base and self.base.holds:
            return True
        return any(c.spec.said and self.in_effect(c, until, reader=True) for _, c in self.recent(until))

    def by_content(self) -> bool:
        """Whether files of the sources are known by their content."""
        return bool(self.base and self.base.by_content) or any(c.identity == "content" for _, c in self.recent())

    def schemas(self) -> set[str]:
        """The schemas of rows that users' functions gave, where they count."""
        found = {t.schema for _, commit in self.recent() for t in self.in_effect(commit)}
        return (found | set(self.base.schemas if self.base else ())) - {""}

    def frozen(self) -> str:
        """The columns of the rows, as the last plan with any has frozen them; "" where none has."""
        found = [commit.schema for _, commit in self.recent() if commit.schema]
        return found[-1] if found else self.base.frozen if self.base else ""

    def source(self) -> str:
        """The brokers and topics that the last load has named; "" where there was none."""
        found = [commit.source for _, commit in self.recent() if commit.source]
        return found[-1] if found else self.base.source if self.base else ""

    def transforms(self) -> set[str]:
        """The transforms of all commits; "" of those that say nothing of what the destination holds."""
        return {commit.spec.transform for _, commit in self.recent()} | set(self.base.transforms if self.base else ())

    def filling(self) -> tuple[int, Commit] | None:
        """The first commit that has a data file, with its number."""
        if self.base and self.base.filled:
            return self.base.filled, self.commit(self.base.filled)
        return next(((number, commit) for number, commit in self.recent() if any(task.data_files for task in commit.tasks)), None)

    def commit(self, number: int) -> Commit:
        """The commit with a number that stands in a row of the ledger, or in a checkpoint."""
        entry = self._entry(number)
        if not isinstance(entry, Commit):
            raise FormatError(f"{self.store.url} has rows of commit {number}, which is not a commit: somebody has forged them.")
        return entry

    def target(self) -> int:
        """The target size of the last commit that had one; 0 where none had."""
        found = [commit.target for _, commit in self.recent() if commit.target]
        return found[-1] if found else self.base.target if self.base else 0

    def on_append(self) -> str:
        """The last run's way with files that grow."""
        found = [commit.on_append for _, commit in self.recent() if commit.verb == "run"]
        return found[-1] if found else self.base.on_append if self.base else ""

    def committers(self) -> set[str]:
        """Those whose output jobs that are over may have left; "": any."""
        found = {entry.committer for number, entry in self._outcomes.values() if number > self.merged}
        return found | set(self.base.committers if self.base else ())

    def expired(self) -> int:
        """The first version that can still be read."""
        found = [e.below for e in self.since(self.merged) if isinstance(e, Expired)]
        return max([*found, self.base.expired if self.base else 0])

    def pins(self) -> dict[str, int]:
        """The open pins: id → version."""
        found = dict[str, int](self.base.pins if self.base else {})
        for entry in self.since(self.merged):
            if isinstance(entry, Pin):
                found[entry.id] = entry.version
            elif isinstance(entry, Unpin):
                found.pop(entry.id, None)
        return found

    def began(self, pin: str) -> bool:
        """Whether a pin with this id was ever begun; it may have ended since."""
        recent = any(isinstance(e, Pin) and e.id == pin for e in self.since(self.merged))
        return recent or (self.base is not None and self.base.began(self.store, pin))

    def in_effect(self, commit: Commit, until: int | None = None, *, reader: bool = False) -> tuple[Task, ...]:
        """The tasks of a commit that count at a version: not the lost ones; none of a job that removes files and lost one.

        For a reader a commit counts from its `published` on.
        """
        number, published = self._publication(commit.job)
        if published is None or (until is not None and number > until):
            return () if reader else commit.tasks
        if not published.lost:
            return commit.tasks
        return () if commit.removing else tuple(t for t in commit.tasks if t.task not in published.lost)

    def parts(self) -> Iterator[tuple[str, int]]:
        """The parts of the entries that no checkpoint has merged, with the numbers of the entries."""
        for number, entry in self._outcomes.values():
            if number > self.merged and entry.parts:
                yield entry.parts, number

    def unpublished(self) -> list[Commit]:
        """The commits that somebody still has to publish, oldest first."""
        return [commit for _, commit in self.recent() if self.published(commit.job) is None]

    def settled(self) -> bool:
        """Whether what is folded up to the tip can never change: every commit has its `published`."""
        return not self.unpublished()

    def settled_version(self, at_most: int | None = None) -> int:
        """The greatest settled version."""
        at_most = self.tip if at_most is None else min(at_most, self.tip)
        if at_most < self.merged:
            return self.at(at_most).settled_version()
        open_since = at_most + 1
        for number, commit in self.recent(at_most):
            published_at, there = self._publication(commit.job)
            if there is None or published_at > at_most:
                open_since = min(open_since, number)
        version = open_since - 1
        return version if open_since == at_most + 1 else self.settled_version(version)

    # -------------------------------------------------------------------------------------------------------- appending
    def append(self, compute: Callable[[Log], Entry | None]) -> None:
        """Put what `compute` makes of the log as just read at its tip, until `compute` says None: it is there, or must not be.

        A put whose answer is an error may have taken effect, so the log is read before the error is raised.
        """
        failed: StorageError | None = None
        while True:
            self.refresh()
            entry = compute(self)
            if entry is None:
                return
            if failed is not None:
                raise failed
            try:
                self.store.put_if_absent(names.entry(self.tip + 1), encode(self._short(entry)))
            except StorageError as e:
                failed = e

    def _short(self, entry: Entry) -> Entry:
        if not isinstance(entry, Commit | Abort) or len(encode(entry)) <= LONGEST:
            return entry
        name = names.part(entry.job)
        tasks = entry.tasks if isinstance(entry, Commit) else ()
        rows: list[Part] = [Manifest(job=entry.job, task=task) for task in tasks]
        rows += [LeftOut(left=entry.left[i : i + TOGETHER]) for i in range(0, len(entry.left), TOGETHER)]
        table = pa.table({"task": [encode(row).decode() for row in rows]}, _PART)
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        self.store.put(name, out.getvalue().to_pybytes())
        if isinstance(entry, Commit):
            return replace(entry, tasks=(), left=(), parts=name)
        return replace(entry, left=(), parts=name)


def _whole(entry: Commit | Abort, store: Store, where: str) -> Commit | Abort:
    """An entry with what stands in its part."""
    assert entry.parts is not None
    if names.job_of_part(entry.parts) != entry.job:
        raise FormatError(f"{where} names {entry.parts[:200]!r}, which is not a part of its own: nothing was touched.")
    try:
        table = OwnParquet(store.get(entry.parts), _PART).read()
        rows: list[Part] = [decode(t.encode(), Part, f"{where} ({entry.parts})") for t in table.column("task").to_pylist()]
    except DAMAGED as e:
        raise FormatError(f"{where} names {entry.parts}, which is damaged: {str(e)[:200]}. Put back a good copy.") from e
    left = tuple(item for row in rows if isinstance(row, LeftOut) for item in row.left)
    if isinstance(entry, Abort):
        return replace(entry, left=left)
    return replace(entry, tasks=tuple(row.task for row in rows if isinstance(row, Manifest)), left=left)
