"""Updates that are lost because two programs wrote into one file group at once: both had read the same slice, and one hides the other.

A base file hides the slice before it, whether or not it was built on that. It hides the logs of that slice, too, but for those that its
compaction has merged: its plan names them. A write that replaces a file group hides all that is in it; a clustering has laid out anew
what its plan names. Source: docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from quire.commit.entries import LostUpdate
from quire.errors import FormatError, NotFoundError
from quire.storage.once import once
from quire.table import file_groups
from quire.table.format import clustering, compaction, log_file, names
from quire.table.format.commits import CommitMetadata
from quire.table.format.names import BaseFile, Instant, LogFile
from quire.table.timeline import Timeline

_ROWS = (log_file.AVRO, log_file.HFILE, log_file.PARQUET, log_file.DELETES)  # kinds of blocks that change rows

Made = Mapping[Instant, CommitMetadata]


def updates(line: Timeline, new: Made, waiting: Made) -> list[LostUpdate]:
    """The updates that another program has lost, or that it has hidden.

    new       instants of other programs of which the log does not know yet, with what they say
    waiting   those of ours that are committed, and are still to appear
    """
    writes = {(partition, stat.file_id, instant.time) for instant, commit in new.items() for partition, stat, _ in commit.files()}
    touched = {(partition, group) for partition, group, _ in writes}
    if not touched:
        return []
    groups = file_groups.everything(line.store, line)
    ends = line.ends(file_groups.logged(groups.values())) | {instant.time: instant.ended for instant in waiting if instant.ended}
    looks = _Look(line, new, waiting, ends)
    ours = {names.path(folder, file.name): (folder, file) for commit in waiting.values() for folder, _, file in commit.files()}

    def files_of(partition: str, group: str) -> dict[str, BaseFile | LogFile]:
        there = {names.path(partition, file.name): file for file, _ in groups.get((partition, group), ())}
        return there | {name: file for name, (folder, file) in ours.items() if (folder, file.file_id) == (partition, group)}

    found = Counter[tuple[str, str]]()
    for partition, group in touched:
        there = files_of(partition, group)
        found.update({*looks.base_files(group, there), *looks.logs(partition, group, there)})
    for by, partition, group, read in _clustered(line, new):
        found.update((at, by) for at in looks.not_read(files_of(partition, group), by, read))
    # A write of ours that replaces file groups has read none of what the log does not know yet.
    theirs, ended = {instant.time for instant in new}, _ended(line, waiting)
    found.update((at, by) for folder, group, at in writes if (by := ended.get((folder, group), "")) and by not in theirs)
    return [LostUpdate(lost, by, count) for (lost, by), count in sorted(found.items())]


def _ended(line: Timeline, waiting: Made) -> dict[tuple[str, str], str]:
    """(partition, file group) → the instant that has replaced it, or will."""
    coming = {(folder, group): at.time for at, commit in waiting.items() for folder, ids in commit.replaced.items() for group in ids}
    return {**line.replaced, **coming}


def _clustered(line: Timeline, new: Made) -> Iterator[tuple[str, str, str, frozenset[str] | None]]:
    """The file groups that other programs' clusterings have ended: instant, partition, id, and the names of the files that were read.

    None: no plan tells these.
    """
    for at, commit in new.items():
        if not commit.replaced or (commit.operation_type or "").upper() != "CLUSTER":
            continue
        plan = dict[tuple[str, str], frozenset[str]]()
        for action in ("replacecommit", "clustering"):  # before layout 2, and in it
            name = f"{line.folder}/{Instant(at.time, action, 'requested').name}"
            with suppress(NotFoundError, FormatError):
                plan |= clustering.slices(line.store.get(name), f"{line.store.url}/{name}") or {}
        for partition, ids in commit.replaced.items():
            yield from ((at.time, partition, group, plan.get((partition, group))) for group in ids)


def hidden_by_plan(line: Timeline, at: str, files: Iterable[tuple[str, BaseFile | LogFile]]) -> list[str]:
    """The logs that the plan of a compaction lacks, and whose rows it hides once it is carried out. FormatError for a damaged plan.

    `files`: all that are there, with their partitions. Since a plan was laid logs belong to the slice that it begins.
    """
    name = line.plan_of(at)
    plan = compaction.decode(line.store.get(name), f"{line.store.url}/{name}")
    slices, there = {(each.partition, each.group): each for each in plan}, list(files)
    ends, found = line.ends({file.instant for _, file in there if isinstance(file, LogFile)}), list[str]()
    for folder, file in there:
        one, path = slices.get((folder, file.file_id)), names.path(folder, file.name)
        if one is None or not isinstance(file, LogFile) or file.name in one.logs:
            continue
        end = ends.get(file.instant, "")
        if (one.instant <= end < at if end else file.instant == one.instant) and has_rows(line, path):
            found.append(path)
    return found


def has_rows(line: Timeline, name: str) -> bool:
    """Whether a log has rows, or deletes, of completed writes; also where nobody can read it."""
    try:
        return any(_instants_of(line, name))
    except FormatError:
        return True


def _instants_of(line: Timeline, name: str) -> set[str]:
    """The completed instants whose rows a log has; none of one that is gone. FormatError for a damaged one."""
    holds = line.holds()
    try:
        blocks = list(log_file.decode(line.store.get(name), f"{line.store.url}/{name}"))
    except NotFoundError:
        return set()
    return {block.instant for block in blocks if block.kind in _ROWS and holds(block.instant)}


@dataclass
class _Look:
    """One look at a timeline: (what is lost, by which instant), of a file group."""

    line: Timeline
    new: Made
    waiting: Made
    ends: Mapping[str, str]  # instant → when it ended, where the timeline says it: from then on a log belongs to a slice
    plans: dict[str, frozenset[str] | None] = field(default_factory=dict)

    @once
    def told(self) -> frozenset[str]:
        """The instants of which nobody has told yet."""
        return frozenset(instant.time for instant in self.new)

    @once
    def commits(self) -> dict[str, CommitMetadata]:
        """The content of instants, as far as it was read."""
        return {instant.time: commit for made in (self.new, self.waiting) for instant, commit in made.items()}

    @once
    def actions(self) -> dict[str, Instant]:
        return {instant.time: instant for instant in (*self.line.completed, *self.waiting)}

    def base_files(self, group: str, there: Mapping[str, BaseFile | LogFile]) -> Iterator[tuple[str, str]]:
        """Base files on which the next one was not built."""
        for before, after in pairwise(_begun(there)):
            if not self.told & {before, after}:
                continue
            commit = self._commit(after)
            stats = (stat for _, stat, _ in commit.files()) if commit else ()
            built_on = {stat.prev_commit for stat in stats if stat.file_id == group}
            if built_on and all(each and each.isdigit() and each < before for each in built_on):
                yield before, after

    def _commit(self, at: str) -> CommitMetadata | None:
        """The content of an instant; None: it is not on the timeline."""
        if at not in self.commits and at in self.actions:
            self.commits[at] = self.line.commit(self.actions[at])
        return self.commits.get(at)

    def logs(self, partition: str, group: str, there: Mapping[str, BaseFile | LogFile]) -> Iterator[tuple[str, str]]:
        """Logs of a slice that is not the newest any more, and whose rows no later base file has."""
        begins = _begun(there)
        asked = self._compacting.get((partition, group), "")
        for name, log in there.items():
            if not isinstance(log, LogFile):
                continue
            since = self.ends.get(log.instant, log.instant)
            after = next((each for each in sorted({*begins, asked} - {""}) if each > since), "")
            if after and not self._merged(after, name):
                changed = self._changed_at(name)
                yield from ((at, after) for at in changed if at != after and self.told & {at, after})

    def not_read(self, there: Mapping[str, BaseFile | LogFile], by: str, read: frozenset[str] | None) -> set[str]:
        """The instants whose rows are in files of a group that a clustering has ended, and that it has not read.

        It reads nothing that is later than itself: its instant was drawn when its plan was laid.
        """
        bases = map(names.base_file, read) if read is not None else there.values()
        begins = [file.instant for file in bases if isinstance(file, BaseFile) and file.instant < by]
        since, found = max(begins, default=""), set[str]()
        for name, file in there.items():
            if isinstance(file, BaseFile):
                commit = self._commit(file.instant) if file.instant > since else None
                changed: Iterable[str] = (file.instant,) if commit and not commit.compacted else ()  # a compaction changes no row
            else:
                changed = self._changed_at(name) if self.ends.get(file.instant, file.instant) >= since else ()
            unread = read is not None and file.name not in read
            found.update(at for at in changed if at != by and (unread or at > by))
        return found

    @once
    def _compacting(self) -> Mapping[tuple[str, str], str]:
        with suppress(FormatError):  # a damaged plan is told by whoever needs it
            return self.line.compacting()
        return {}

    def _merged(self, after: str, name: str) -> bool:
        """Whether the base file of an instant has what a log says, or nobody can tell any more."""
        if after not in self.plans:
            self.plans[after] = self._named(after)
        named = self.plans[after]
        if named is not None:
            return name in named
        # A writer that has no plan writes only base files anew that have no logs.
        return after not in self.actions or self.actions[after].action != "deltacommit"

    def _named(self, after: str) -> frozenset[str] | None:
        """The logs that the plan of a compaction names; None: there is none that can be read."""
        name = self.line.plan_of(after)
        try:
            plan = compaction.decode(self.line.store.get(name), f"{self.line.store.url}/{name}")
        except (NotFoundError, FormatError):
            return None
        return frozenset(names.path(each.partition, log) for each in plan for log in each.logs)

    def _changed_at(self, name: str) -> Iterable[str]:
        """The completed instants whose rows a log has."""
        ours = [
            instant.time
            for instant, commit in self.waiting.items()
            for folder, _, file in commit.files()
            if names.path(folder, file.name) == name
        ]
        if ours:
            return ours
        try:
            return _instants_of(self.line, name)
        except FormatError:
            return ()  # whoever reads that slice is told


def _begun(there: Mapping[str, BaseFile | LogFile]) -> list[str]:
    """The instants of the base files, in their order."""
    return sorted(file.instant for file in there.values() if isinstance(file, BaseFile))
