"""The commit log of a destination: what its entries say together, and how one is appended.

Appending reads, computes the entry from that read, puts it if absent and reads again, whatever the answer was. A *version* is the
number of an entry: version v is what the entries 1..v say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quire.commit import names
from quire.commit.checkpoints import INSTANTS
from quire.commit.entries import (
    TABLE,
    Abort,
    Commit,
    Entry,
    Expired,
    Foreign,
    Pin,
    Published,
    Spec,
    Task,
    Unpin,
    encode,
)
from quire.commit.parts import shortened
from quire.commit.reading import WINDOW, Reading
from quire.errors import FormatError, StorageError
from quire.storage.once import once


class Log(Reading):
    """The log of the destination at `store`: its entries, what they say, and the next one."""

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
        yield from self.deciding(after, until)

    def ending(self, wanted: str) -> Iterator[Commit]:
        """The commits that decided a job whose name ends so; of merged ones only those that are meant are read."""
        merged = dict.fromkeys(self.base.ending(self.archive, wanted) if self.base else ())
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

    def schemas(self, until: int | None = None) -> set[str]:
        """The schemas of rows that users' functions gave, or that files have, where they count at a version."""
        found = {t.schema for _, commit in self.recent(until) for t in self.in_effect(commit)}
        return (found | set(self.base.schemas if self.base else ())) - {""}

    def frozen(self) -> str:
        """The columns of the rows, as the last plan with any has frozen them; "" where none has."""
        found = [commit.schema for _, commit in self.recent() if commit.schema]
        return found[-1] if found else self.base.frozen if self.base else ""

    def source(self) -> str:
        """The brokers and topics that the last load has named; "" where there was none."""
        found = [commit.source for _, commit in self.recent() if commit.source]
        return found[-1] if found else self.base.source if self.base else ""

    def reads(self) -> str:
        """How the last call that said it has read text with rows, as JSON; "" where none has read any."""
        found = [commit.reads for _, commit in self.recent() if commit.reads]
        return found[-1] if found else self.base.reads if self.base else ""

    def writes(self) -> str:
        """How the last call that said it wants Parquet files to be written, as JSON; "": as usual."""
        found = [commit.writes for _, commit in self.recent() if commit.writes]
        return found[-1] if found else self.base.writes if self.base else ""

    def deduplicates(self) -> str:
        """Which records of a topic are the same, as the last load that said it has it; "": none has."""
        found = [commit.deduplicate for _, commit in self.recent() if commit.deduplicate]
        return found[-1] if found else self.base.deduplicates if self.base else ""

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
        found = [e.below for e in self.recent_of(Expired)]
        return max([*found, self.base.expired if self.base else 0])

    def pins(self) -> dict[str, int]:
        """The open pins: id → version."""
        found = (self.base.pins if self.base else {}) | {entry.id: entry.version for entry in self.recent_of(Pin)}
        ended = {entry.id for entry in self.recent_of(Unpin)}
        return {pin: version for pin, version in found.items() if pin not in ended}

    def began(self, pin: str) -> bool:
        """Whether a pin with this id was ever begun; it may have ended since."""
        recent = any(e.id == pin for e in self.recent_of(Pin))
        return recent or (self.base is not None and self.base.began(self.archive, pin))

    def in_effect(self, commit: Commit, until: int | None = None, *, reader: bool = False) -> tuple[Task, ...]:
        """The tasks of a commit that count at a version: not the lost ones; none of a job that removes files and lost one.

        For a reader a commit counts from its `published` on. One that another program has rolled back does not count from there on.
        """
        undone = self._undone_at(commit)
        return () if undone and (until is None or undone <= until) else self.kept(commit, until, reader=reader)

    def kept(self, commit: Commit, until: int | None = None, *, reader: bool = False) -> tuple[Task, ...]:
        """The same, also of one that was rolled back since: earlier versions need what it has brought to the ledger."""
        number, published = self._publication(commit.job)
        if published is None or (until is not None and number > until):
            return () if reader else commit.tasks
        if not published.lost:
            return commit.tasks
        return () if commit.removing else tuple(t for t in commit.tasks if t.task not in published.lost)

    def _undone_at(self, commit: Commit) -> int:
        """The number of the entry by which a commit into a table does not count any more; 0: it does."""
        if commit.closer != TABLE:
            return 0
        if found := self._undone.get(commit.job):
            return found
        known = self.merged and (decided := self.decided(commit.job)) and decided[0] <= self.merged
        return self._merged_jobs.get(commit.job, 0) if known else 0

    def instant_rows(self) -> Iterator[tuple[str, str, int]]:
        """All instants of a table as rows of `INSTANTS`, in no order."""
        yield from ((instant, job, undone or self._undone.get(job, 0)) for instant, job, undone in self._merged_instants)
        for entry in self.recent_of(Foreign):
            yield from ((instant, "", 0) for instant in entry.instants)
        for _, commit in self.recent():
            # A plan is not a write: its instant is known when that was carried out, by whoever does so.
            if commit.closer == TABLE and not commit.tasks[-1].stats.written.get("planned"):
                last = commit.tasks[-1]
                appeared = (last.data_files or last.stats.written.get("replaced")) and self.kept(commit)
                yield last.instant, commit.job if appeared else "", self._undone.get(commit.job, 0)

    def undone_since(self, merged: int, until: int) -> frozenset[int]:
        """The numbers of the commits up to `merged` that were rolled back after it, at `until` or before."""
        jobs = (job for job, at in self._undone.items() if merged < at <= until)
        found = (self.decided(job) for job in jobs)
        return frozenset(decided[0] for decided in found if decided and decided[0] <= merged)

    @once
    def _merged_instants(self) -> list[tuple[str, str, int]]:
        if not self.base:
            return []
        tables = self.base.tables(self.store, "instants", INSTANTS)
        return [row for table in tables for row in zip(*(column.to_pylist() for column in table.columns), strict=True)]

    @once
    def _merged_jobs(self) -> dict[str, int]:
        return {job: undone for _, job, undone in self._merged_instants if undone}

    def parts(self) -> Iterator[tuple[str, int]]:
        """The parts of the entries that no checkpoint has merged, with the numbers of the entries."""
        for number, entry in self._outcomes.values():
            if number > self.merged and entry.parts:
                yield entry.parts, number

    def unpublished(self) -> list[Commit]:
        """The commits that somebody still has to publish, oldest first."""
        return [commit for number, commit in self._unpublished.values() if number > self.merged]

    def settled(self) -> bool:
        """Whether what is folded up to the tip can never change: every commit has its `published`."""
        return not self.unpublished()

    def settled_version(self, at_most: int | None = None) -> int:
        """The greatest settled version."""
        at_most = self.tip if at_most is None else min(at_most, self.tip)
        if at_most < self.merged:
            return self.at(at_most).settled_version()
        open_since = at_most + 1
        there = self._unpublished.values() if at_most == self.tip else self.recent(at_most)  # in order, both
        for number, commit in there:
            if number > self.merged and not 0 < self.published_at(commit.job) <= at_most:
                open_since = number
                break
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
                self.store.put_if_absent(names.entry(self.tip + 1), encode(shortened(entry, self.store)))
            except StorageError as e:
                failed = e
