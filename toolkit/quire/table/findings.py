"""The looks of `Table.doctor`: what is wrong with a table, where, and the call that mends it. Nothing is written here.

Files are listed once, between two looks at the timeline and before the log is read: so a file of a write that began, ended or was committed
meanwhile is never taken for a leftover.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from quire.commit import names as objects
from quire.commit.entries import TABLE, Foreign
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError
from quire.storage import Entry, Store, plain
from quire.storage.once import once
from quire.table import file_groups, lost, timeline
from quire.table.format import archive, names
from quire.table.format.commits import CommitMetadata
from quire.table.format.config import TableConfig
from quire.table.format.names import BaseFile, Instant, LogFile
from quire.table.timeline import CLEAN, COMPACTION, Timeline

SHOWN = 5  # names of a finding
PATIENCE = dt.timedelta(hours=1)  # after which a write that has not ended may be one of a program that died
WAITS = dt.timedelta(hours=24)  # after which a plan or a clean should have been carried out
LONG = 1_000  # writes on a timeline, which every reader lists

File = tuple[str, BaseFile | LogFile, Entry]
Group = tuple[str, str]  # the partition and the id of a file group


@dataclass(frozen=True)
class Finding:
    """A thing that is wrong.

    kind    "leftover files", "empty instant", "lost update", …
    what    the facts in a line
    mend    the call that mends it, or what to do where none does
    count   of how many files, instants, keys or jobs
    bytes   of the files
    names   the first of them
    """

    kind: str
    what: str
    mend: str
    count: int = 1
    bytes: int = 0
    names: tuple[str, ...] = ()


@dataclass
class Said:
    """The parts that are kept of the completed writes, which are read one after the other.

    errors     those that nobody can read
    replaced   (partition, file group) → the instant at which another took its place
    counts     (partition, file group) → the files of its newest slice, and the sizes that commits say; of a log at least so much
    named      base files that are there, and that a write names
    """

    errors: dict[Instant, FormatError] = field(default_factory=dict)
    replaced: dict[Group, str] = field(default_factory=dict)
    counts: dict[Group, dict[str, int]] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)

    def take(self, instant: Instant, commit: CommitMetadata, there: Set[str]) -> None:
        """Keep what one says; `there`: the base files that are there."""
        self.replaced |= {(partition, group): instant.time for partition, ids in commit.replaced.items() for group in ids}
        for partition, stat, file in commit.files():
            key, name, base = (partition, file.file_id), str(stat.path), isinstance(file, BaseFile)
            if base:
                self.counts[key] = {}
            sizes = self.counts.setdefault(key, {})
            sizes[name] = max(sizes.get(name, 0), stat.file_size_in_bytes)
            if name in there:
                self.named.add(name)


@dataclass(frozen=True)
class Seen:
    """A table at one look; `before`: its timeline before its files were listed, `line`: after that."""

    store: Store = field(repr=False)
    has: TableConfig
    before: Timeline
    files: Sequence[File] = field(repr=False)
    log: Log | None = field(repr=False)
    line: Timeline
    now: dt.datetime

    @property
    def url(self) -> str:
        """The table's address, as users write it."""
        return plain(self.store.url)

    @once
    def said(self) -> Said:
        """The words of the completed writes that the looks need."""
        said, there = Said(), {entry.name for _, file, entry in self.files if isinstance(file, BaseFile)}
        for instant, content in self.contents(self.line.completed):
            if isinstance(content, FormatError):
                said.errors[instant] = content
            else:
                said.take(instant, content, there)
        return said

    def contents(self, instants: Sequence[Instant]) -> Iterator[tuple[Instant, CommitMetadata | FormatError]]:
        """The contents of completed writes, or what is wrong with each, in their order."""

        def content(instant: Instant) -> CommitMetadata | FormatError:
            try:
                return self.line.commit(instant)
            except FormatError as e:
                return e
            except NotFoundError:
                return CommitMetadata()  # archived, or taken back, since

        return zip(instants, timeline.ahead(content, instants), strict=True)

    @once
    def waiting(self) -> dict[str, str]:
        """Instants of commits that are still to appear → their jobs."""
        commits = self.log.unpublished() if self.log else []
        return {commit.tasks[-1].instant: commit.job for commit in commits if commit.closer == TABLE}

    @once
    def begun(self) -> set[str]:
        """The instants that are there and have not completed, at either look."""
        return {instant.time for line in (self.before, self.line) for instant in line.pending}

    @once
    def nowhere(self) -> list[tuple[BaseFile | LogFile, Entry]]:
        """Files of instants of which the timeline knows nothing, nor the log that they are still to appear.

        None, where another program may be archiving: some of these take instants off the timeline in any order.
        """
        if archiving(self.store, self.now):
            return []
        then, now, compactions = self.before.holds(), self.line.holds(), self.line.compactions()
        replaced = self.said.replaced
        return [
            (file, entry)
            for folder, file, entry in self.files
            if not (now(file.instant) or then(file.instant) or file.instant in self.begun or file.instant in self.waiting)
            and not (isinstance(file, LogFile) and file.instant in compactions)
            and (folder, file.file_id) not in replaced
        ]

    def age(self, instant: str) -> dt.timedelta:
        """How long ago it was drawn."""
        return self.now - names.instant_time(instant)


def look(store: Store, has: TableConfig) -> Seen:
    """Look at a table. Raises FormatError for a timeline that nobody can order."""
    folder = has.timeline or names.FOLDER
    before, files = timeline.read(store, folder), list(file_groups.files(store))
    log = Log(store).refresh() if store.is_folder(objects.STATE) else None
    return Seen(store, has, before, files, log, timeline.read(store, folder), dt.datetime.now(dt.UTC))


def archiving(store: Store, now: dt.datetime) -> bool:
    """Whether another program has written an archive lately. quire's own say which instants go before any does."""
    there = (entry for entry in store.walk(archive.FOLDER) if archive.is_archive(entry.name) and not archive.numbered([entry.name])[1])
    return any(entry.modified > (now - PATIENCE).timestamp() * 1e9 for entry in there)


def found(seen: Seen) -> list[Finding]:
    """All that is wrong, the gravest first."""
    looks = (_instants, _missing, _unnamed, _lost, _plans, _not_writable, _unpublished, _pending, _leftovers, _jobs, _savepoints, _long)
    return [finding for each in looks for finding in each(seen)]


def _of(kind: str, what: str, mend: str, entries: Iterable[Entry]) -> Finding:
    listed = sorted(entries)
    return Finding(kind, what, mend, len(listed), sum(each.size for each in listed), tuple(each.name for each in listed[:SHOWN]))


def _told(kind: str, what: str, mend: str, said: Iterable[str]) -> Finding:
    listed = sorted(said)
    return Finding(kind, what, mend, len(listed), names=tuple(listed[:SHOWN]))


# --------------------------------------------------------------------------------------------------------------- rows that may be wrong
def _instants(seen: Seen) -> Iterator[Finding]:
    """Completed writes that nobody can read."""
    for instant, error in seen.said.errors.items():
        name = f"{seen.line.folder}/{instant.name}"
        entry = seen.store.stat(name)
        empty = entry is not None and not entry.size
        yield Finding(
            "empty instant" if empty else "damaged instant", _first(error),
            f"put back {name} from a copy; without one delete all that {seen.line.folder} has of {instant.time}: its rows are not read "
            "then, and quire reads their sources again",
            bytes=entry.size if entry else 0, names=(name,),
        )  # fmt: skip


def _missing(seen: Seen) -> Iterator[Finding]:
    """Files that hold rows now, by the commits that wrote them, and are not there, or are not whole."""
    there = {entry.name: entry for *_, entry in seen.files}
    wanted = {name: size for key, files in seen.said.counts.items() if key not in seen.said.replaced for name, size in files.items()}
    if gone := [name for name in wanted if name not in there and seen.store.stat(name) is None]:
        yield _told(
            "missing files", "commits name files that are gone, with their rows",
            "put them back from a copy, or table.restore(instant) to one that does not name them", gone,
        )  # fmt: skip
    if cut := [there[name] for name, size in wanted.items() if size and name in there and _is_cut(there[name], size)]:
        what = "files have other sizes than their commits say, and of a log that was cut no reader misses the rows"
        yield _of("files of another size", what, "put them back from a copy, before anybody compacts the table", cut)


def _is_cut(entry: Entry, size: int) -> bool:
    """Whether a file is not as long as its commit says; other programs append to logs."""
    return entry.size < size if names.log_file(entry.name.rpartition("/")[2]) else entry.size != size


def _unnamed(seen: Seen) -> Iterator[Finding]:
    """Base files of a completed write that does not name them: every reader takes their rows in."""
    known = {instant.time for instant in seen.line.completed if instant not in seen.said.errors}
    beside = [e for _, file, e in seen.files if isinstance(file, BaseFile) and file.instant in known and e.name not in seen.said.named]
    if beside:
        yield _of(
            "files beside their commit", "a try that failed has left files that their commit does not name, and readers take their rows in",
            "delete these files", beside,
        )  # fmt: skip


def _lost(seen: Seen) -> Iterator[Finding]:
    """Updates that one of two programs has lost, told before or not."""
    known = {instant for instant, *_ in seen.log.instant_rows()} if seen.log else set()
    told = [e for e in seen.log.since(seen.log.merged) if isinstance(e, Foreign)] if seen.log else []
    mine = seen.log and seen.has.timeline == seen.has.written
    new = [each for each in seen.line.completed if each.time not in known and each not in seen.said.errors] if mine else []
    found, look = {each for entry in told for each in entry.lost}, lost.Lost(seen.line, new, {})
    with suppress(FormatError):  # of an instant that nobody can read, which is told by itself
        for instant, commit in seen.contents(new):
            if isinstance(commit, CommitMetadata):
                look.take(instant, commit)
        found.update(look.updates())
    for each in sorted(found, key=lambda each: (each.lost, each.by)):
        yield Finding(
            "lost update", f"{each.by} was built without the updates of {each.lost}, as two programs wrote at once",
            f"table.upsert(rows of {each.lost}) again, and let the programs take turns", each.groups, names=(each.lost,),
        )  # fmt: skip


def _plans(seen: Seen) -> Iterator[Finding]:
    """Plans of compactions that nobody can read, or that lack logs: their rows are hidden once such a plan is carried out."""
    files = [(folder, file) for folder, file, _ in seen.files]
    for at in sorted(seen.line.compactions()):
        name = seen.line.plan_of(at)
        try:
            lacks = lost.hidden_by_plan(seen.line, at, files)
        except NotFoundError:
            continue  # it was taken back since
        except FormatError as e:
            yield Finding("damaged plan", _first(e), f"put back {name} from a copy", names=(name,))
            continue
        if lacks:
            yield _told(
                "plan without logs", f"the compaction {at} would hide rows: its plan lacks logs that were there when it was laid",
                f"delete {name} before anybody carries it out, and call table.compact()", lacks,
            )  # fmt: skip


def _first(e: FormatError) -> str:
    """The words of such an error about what has happened, without its advice."""
    return str(e).partition(". ")[0].rstrip(".")


# ------------------------------------------------------------------------------------------------------------------ what hinders
def _not_writable(seen: Seen) -> Iterator[Finding]:
    if why := seen.has.unwritable:
        call = "table.adopt()" if seen.has.metadata else "write with the program that has changed it, or read it into a new table"
        yield Finding("not writable", f"quire does not write into it: {why}", call)


def _unpublished(seen: Seen) -> Iterator[Finding]:
    if seen.waiting:
        what = "commits are still to appear: their calls are at it, or have died"
        yield _told("unpublished commits", what, f"quire.recover({seen.url!r})", seen.waiting.values())


def _pending(seen: Seen) -> Iterator[Finding]:
    """Plans, cleans and writes that have not ended."""
    ours = {instant for instant, _, undone in seen.log.instant_rows() if not undone} if seen.log else set()
    for instant in seen.line.pending:
        if instant.time in seen.waiting:
            continue
        name, age = f"{instant.action} {instant.time}", seen.age(instant.time)
        if instant.action in (COMPACTION, CLEAN):
            if age > WAITS:
                call = "table.compact()" if instant.action == COMPACTION else "table.clean()"
                yield Finding("waiting plan", f"the {name} was asked for {age.days:,} days ago and not carried out", call, names=(name,))
        elif age > PATIENCE and instant.time not in ours:
            yield Finding(
                "write without an end", f"another program began a {name} {int(age.total_seconds() // 3600):,} h ago and has not ended it",
                "if that program is dead, roll its write back with Hudi (hudi-cli: commit rollback); quire leaves it alone", names=(name,),
            )  # fmt: skip


def _leftovers(seen: Seen) -> Iterator[Finding]:
    """Files of writes that never completed: no reader counts them, and an archive stops before them."""
    if seen.nowhere and not seen.line.completed:
        what = "no write is on the timeline, and files are there: the first write has died, or the timeline was lost"
        mend = f"put back {seen.line.folder} from a copy, or delete these files"
        yield _of("files without a timeline", what, mend, (entry for _, entry in seen.nowhere))
        return
    if left := leftovers(seen):
        what = "no completed write has them, and no reader counts them: a program that died has left them, or a write was taken back"
        yield _of("leftover files", what, "table.remove_leftovers()", left)
    logs = [(file, entry) for file, entry in seen.nowhere if entry not in left]
    if logs:
        plans = ", ".join(sorted({seen.line.plan_of(file.instant) for file, _ in logs})[:SHOWN])
        what = "logs with rows of completed writes belong to slices that nothing begins: the plan of their compaction was deleted"
        yield _of("logs without a slice", what, f"put back {plans} from a copy, and call table.compact()", (entry for _, entry in logs))


def leftovers(seen: Seen) -> list[Entry]:
    """Files that hold nothing of a completed write. None, where no write is on the timeline: it may have been lost."""
    if not seen.line.completed:
        return []
    return [entry for file, entry in seen.nowhere if isinstance(file, BaseFile) or not lost.has_rows(seen.line, entry.name)]


def _jobs(seen: Seen) -> Iterator[Finding]:
    """Jobs of quire's that are open, and what jobs that are over have left, where nothing of theirs has changed for long."""
    if seen.log is None:
        return
    changed, planned = dict[str, int](), set[str]()
    for entry in seen.store.walk(objects.JOBS):
        job = entry.name.removeprefix(f"{objects.JOBS}/").partition("/")[0]
        if objects.base_of(job) is not None:
            changed[job] = max(changed.get(job, 0), entry.modified)
            planned |= {job} if entry.name == objects.plan_head(job) else set()
    seen.log.refresh()
    before = (seen.now - PATIENCE).timestamp() * 1e9
    asleep = [job for job, at in changed.items() if 0 < at < before and job not in seen.waiting.values()]
    if over := [job for job in asleep if seen.log.outcome(job) is not None]:
        yield _told("leftovers of jobs", "jobs that are over have left work of theirs", f"quire.recover({seen.url!r})", over)
    if asleep := [job for job in asleep if job in planned and job not in over]:
        yield _told(
            "open jobs", "jobs have not ended, and nothing of theirs has changed for an hour",
            f"make the same call again, which goes on with its job, or give them up: quire.recover({seen.url!r}, abort='open')", asleep,
        )  # fmt: skip


def _savepoints(seen: Seen) -> Iterator[Finding]:
    known = {instant.time for instant in seen.line.completed} | seen.begun | seen.waiting.keys()
    for time in sorted(seen.line.savepoints & seen.before.savepoints):
        if time not in known and not (seen.line.archived and time < seen.line.first):
            what = f"the savepoint {time} holds a write that is not on the timeline"
            yield Finding("savepoint of nothing", what, f"table.delete_savepoint({time!r})", names=(time,))


def _long(seen: Seen) -> Iterator[Finding]:
    if (count := len(seen.line.completed)) > LONG:
        yield Finding("long timeline", f"{count:,} writes are on the timeline, which each call lists", "table.archive()", count)
