"""The commit log of a destination: numbered entries from 1 on, each created once at the tip and never rewritten or deleted.

Reading goes to the tip; appending reads, computes the entry from that read, puts it if absent and reads again, whatever the
answer was. `Log` holds entries that it has read, and entries never change, so holding them is no second truth.
A *version* is the number of an entry: version v is what the entries 1..v say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from quire.commit import names
from quire.commit.entries import Abort, Commit, Entry, Manifest, Published, Task, check_task, check_words, decode, encode
from quire.errors import FormatError, NotFoundError, StorageError
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.storage import Store

LONGEST = 1 << 20  # bytes; a longer entry keeps its tasks in a file of its own
_PART = pa.schema([pa.field("task", pa.string(), nullable=False)])


class Log:
    """The log of the destination at `store`, read up to `tip`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.entries: list[Entry] = []
        self._outcomes: dict[str, tuple[int, Commit | Abort]] = {}
        self._published: dict[str, tuple[int, Published]] = {}

    @property
    def tip(self) -> int:
        """The number of the last entry; 0 where there is none."""
        return len(self.entries)

    # ---------------------------------------------------------------------------------------------------------- reading
    def refresh(self) -> Log:
        """Read to the tip: the listing is a first guess, the end is where a GET finds nothing."""
        listed = self._listed()
        with ThreadPoolExecutor(8) as pool:
            for number, entry in zip(listed, pool.map(self._get, listed), strict=True):
                if entry is None:
                    raise FormatError(
                        f"{self.store.url}/{names.entry(number)} was listed and is gone: entries are never deleted. Put it back."
                    )
                self._take(entry)
        while (entry := self._get(self.tip + 1)) is not None:
            self._take(entry)
        return self

    def _listed(self) -> range:
        """The numbers above the tip that a listing shows, as far as they have no gap."""
        if not self.tip:
            found = {e.name for e in self.store.walk(names.LOG)}
            last = 0
            while names.entry(last + 1) in found:
                last += 1
            return range(1, last + 1)
        return range(0)

    def _get(self, number: int) -> Entry | None:
        try:
            data = self.store.get(names.entry(number))
        except NotFoundError:
            return None
        where = f"{self.store.url}/{names.entry(number)}"
        entry: Entry = decode(data, Entry, where)
        if isinstance(entry, Commit):
            check_words(entry.words, where)
            if entry.parts is not None:
                entry = _with_tasks(entry, self.store, where)
            for task in entry.tasks:
                check_task(entry.job, task)
        if isinstance(entry, Commit | Abort | Published):
            names.job_folder(entry.job)
        return entry

    def _take(self, entry: Entry) -> None:
        self.entries.append(entry)
        if isinstance(entry, Commit | Abort):
            self._outcomes.setdefault(entry.job, (self.tip, entry))
        elif isinstance(entry, Published):
            self._published.setdefault(entry.job, (self.tip, entry))

    # ----------------------------------------------------------------------------------------------------- what it says
    def outcome(self, job: str) -> Commit | Abort | None:
        """The first commit or abort of a job decides it; later ones say nothing."""
        found = self._outcomes.get(job)
        return found[1] if found else None

    def outcomes(self) -> Iterator[Commit | Abort]:
        """What decided each job."""
        return (entry for _, entry in self._outcomes.values())

    def published(self, job: str) -> Published | None:
        """The first `published` of a job counts."""
        found = self._published.get(job)
        return found[1] if found else None

    def commits(self, after: int = 0, until: int | None = None) -> Iterator[tuple[int, Commit]]:
        """The commits with numbers in (after, until] that decided their job."""
        until = self.tip if until is None else until
        for number, entry in sorted(self._outcomes.values(), key=lambda x: x[0]):
            if after < number <= until and isinstance(entry, Commit):
                yield number, entry

    def in_effect(self, commit: Commit, until: int | None = None, *, reader: bool = False) -> tuple[Task, ...]:
        """The tasks of a commit that count at a version: not the lost ones; none of a job that removes files and lost one.

        For a reader a commit counts from its `published` on.
        """
        number, published = self._published.get(commit.job, (0, None))
        if published is None or (until is not None and number > until):
            return () if reader else commit.tasks
        if not published.lost:
            return commit.tasks
        return () if commit.removing else tuple(t for t in commit.tasks if t.task not in published.lost)

    def unpublished(self) -> list[Commit]:
        """The commits that somebody still has to publish, oldest first."""
        return [commit for _, commit in self.commits() if self.published(commit.job) is None]

    def settled(self) -> bool:
        """Whether what is folded up to the tip can never change: every commit has its `published`."""
        return not self.unpublished()

    def settled_version(self, at_most: int | None = None) -> int:
        """The greatest settled version."""
        at_most = self.tip if at_most is None else min(at_most, self.tip)
        open_since = at_most + 1
        for number, commit in self.commits(until=at_most):
            there = self._published.get(commit.job)
            if there is None or there[0] > at_most:
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
        if not isinstance(entry, Commit) or len(encode(entry)) <= LONGEST:
            return entry
        name = names.part(entry.job)
        table = pa.table({"task": [encode(Manifest(job=entry.job, task=task)).decode() for task in entry.tasks]}, _PART)
        out = pa.BufferOutputStream()
        pq.write_table(table, out, compression="zstd")
        self.store.put(name, out.getvalue().to_pybytes())
        return replace(entry, tasks=(), parts=name)


def _with_tasks(commit: Commit, store: Store, where: str) -> Commit:
    assert commit.parts is not None
    if names.job_of_part(commit.parts) != commit.job:
        raise FormatError(f"{where} names {commit.parts[:200]!r}, which is not a part of its own: nothing was touched.")
    try:
        table = OwnParquet(store.get(commit.parts), _PART).read()
        tasks = tuple(decode(t.encode(), Manifest, f"{where} ({commit.parts})").task for t in table.column("task").to_pylist())
    except DAMAGED as e:
        raise FormatError(f"{where} names {commit.parts}, which is damaged: {str(e)[:200]}. Put back a good copy.") from e
    return replace(commit, tasks=tasks)
