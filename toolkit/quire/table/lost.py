"""Updates that are lost because two programs wrote into one file group at once: both had read the same slice, and one hides the other.

A base file hides the slice before it, whether or not it was built on that. It hides the logs of that slice, too, but for those that its
compaction has merged: its plan names them. A write that replaces a file group hides all that is in it; a clustering has laid out anew
what its plan names. Source: docs/protocol.md, section 10.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise

from quire.commit.entries import LostUpdate
from quire.errors import FormatError, NotFoundError
from quire.storage import Entry
from quire.storage.once import once
from quire.table import file_groups
from quire.table.format import clustering, compaction, log_file, names
from quire.table.format.commits import CommitMetadata
from quire.table.format.names import BaseFile, Instant, LogFile
from quire.table.timeline import Timeline

_ROWS = (log_file.AVRO, log_file.HFILE, log_file.PARQUET, log_file.DELETES)  # kinds of blocks that change rows

Made = Mapping[Instant, CommitMetadata]
Key = tuple[str, str]  # the partition and the id of a file group


@dataclass(frozen=True)
class _Clustered:
    """A file group that another program's clustering has ended, and the names of the files that it has read; None: no plan tells these."""

    by: str
    key: Key
    read: frozenset[str] | None


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


class Lost:
    """The updates that another program has lost, or that it has hidden, by its commits one after the other.

    new       the instants of other programs of which the log does not know yet: each is given to `take`, which keeps little of it
    waiting   those of ours that are committed, and are still to appear, with what they will say
    """

    def __init__(self, line: Timeline, new: Iterable[Instant], waiting: Made) -> None:
        self.line, self.waiting = line, waiting
        self._told, self._written = frozenset(instant.time for instant in new), set[Key]()
        self._found, self._clustered = Counter[tuple[str, str]](), list[_Clustered]()
        self._compacted = dict[str, bool | None]()  # of the new ones those alone that are compactions
        self._plans = dict[str, frozenset[str] | None]()

    def take(self, instant: Instant, commit: CommitMetadata) -> None:
        """Look at a new commit; what it says is not kept."""
        built_on = dict[Key, set[str | None]]()
        for partition, stat, _ in commit.files():
            built_on.setdefault((partition, stat.file_id), set()).add(stat.prev_commit)
        self._written.update(built_on)
        if commit.compacted:
            self._compacted[instant.time] = True
        for key, instants in built_on.items():
            # A write of ours that replaces file groups has read none of what the log does not know yet.
            by = self._ending.get(key) or self.line.replaced.get(key)
            if by and by not in self._told:
                self._found[instant.time, by] += 1
            self._built(key, instant.time, instants)
        if commit.replaced and (commit.operation_type or "").upper() == "CLUSTER":
            self._keep_clustered(instant.time, commit.replaced)

    def updates(self) -> list[LostUpdate]:
        """All that is lost, once each new commit was taken."""
        self._after_ours()
        for key in self._written:
            self._found.update(self._hidden_logs(key, self._there(key)))
        for each in self._clustered:
            self._found.update((at, each.by) for at in self._not_read(self._there(each.key), each.by, each.read))
        return [LostUpdate(lost, by, count) for (lost, by), count in sorted(self._found.items())]

    # ------------------------------------------------------------------------------------------------------ what lies in the table
    @once
    def _groups(self) -> dict[Key, list[tuple[BaseFile | LogFile, Entry]]]:
        return file_groups.everything(self.line.store, self.line)

    @once
    def _coming(self) -> dict[Key, dict[str, BaseFile | LogFile]]:
        """The files that are still to appear, by their file groups and names."""
        found = dict[Key, dict[str, BaseFile | LogFile]]()
        for commit in self.waiting.values():
            for folder, _, file in commit.files():
                found.setdefault((folder, file.file_id), {})[names.path(folder, file.name)] = file
        return found

    def _there(self, key: Key) -> dict[str, BaseFile | LogFile]:
        """The files of a file group, by their names."""
        return {names.path(key[0], file.name): file for file, _ in self._groups.get(key, ())} | self._coming.get(key, {})

    @once
    def _begins(self) -> dict[Key, list[str]]:
        """The instants of the base files of each file group, in their order."""
        there = ((key, self._there(key).values()) for key in self._groups.keys() | self._coming.keys())
        return {key: sorted(file.instant for file in files if isinstance(file, BaseFile)) for key, files in there}

    @once
    def _ends(self) -> dict[str, str]:
        """Instant of a log → when it ended, where the timeline says it: from then on a log belongs to a slice."""
        ends = self.line.ends(file_groups.logged(self._groups.values()))
        return ends | {instant.time: instant.ended for instant in self.waiting if instant.ended}

    @once
    def _ending(self) -> dict[Key, str]:
        """(partition, file group) → the instant of ours that will replace it."""
        return {(folder, group): at.time for at, commit in self.waiting.items() for folder, ids in commit.replaced.items() for group in ids}

    @once
    def _instants(self) -> dict[str, Instant]:
        return {instant.time: instant for instant in (*self.line.completed, *self.waiting)}

    @once
    def _compacting(self) -> Mapping[Key, str]:
        with suppress(FormatError):  # a damaged plan is told by whoever needs it
            return self.line.compacting()
        return {}

    # ------------------------------------------------------------------------------------------------------------------ base files
    def _built(self, key: Key, after: str, built_on: Collection[str | None]) -> None:
        """Count a base file that was not built on the one before it; `built_on`: the instants that its commit names for its file group."""
        begins = self._begins.get(key, [])
        i = bisect_left(begins, after)
        if not 0 < i < len(begins) or begins[i] != after:
            return
        before = begins[i - 1]
        if self._told & {before, after} and built_on and all(each and each.isdigit() and each < before for each in built_on):
            self._found[before, after] += 1

    def _after_ours(self) -> None:
        """The same of the base files of commits that are not new, and that follow new ones."""
        follow = dict[str, list[Key]]()
        for key in self._written:
            for before, after in pairwise(self._begins.get(key, [])):
                if before in self._told and after not in self._told:
                    follow.setdefault(after, []).append(key)
        known = [instant for time in sorted(follow) if (instant := self._instants.get(time))]
        for instant, commit in self._contents(known):
            for key in follow[instant.time]:
                self._built(key, instant.time, {stat.prev_commit for _, stat, _ in commit.files() if stat.file_id == key[1]})

    def _contents(self, instants: Sequence[Instant]) -> Iterator[tuple[Instant, CommitMetadata]]:
        """The contents of commits that are not new."""
        yield from ((instant, self.waiting[instant]) for instant in instants if instant in self.waiting)
        written = [instant for instant in instants if instant not in self.waiting]
        yield from zip(written, self.line.commits(written), strict=True)

    # ------------------------------------------------------------------------------------------------------------------------ logs
    def _hidden_logs(self, key: Key, there: Mapping[str, BaseFile | LogFile]) -> Iterator[tuple[str, str]]:
        """Logs of a slice that is not the newest any more, and whose rows no later base file has."""
        asked, begins = self._compacting.get(key, ""), self._begins.get(key, [])
        for name, log in there.items():
            if not isinstance(log, LogFile):
                continue
            since = self._ends.get(log.instant, log.instant)
            after = next((each for each in sorted({*begins, asked} - {""}) if each > since), "")
            if after and not self._merged(after, name):
                changed = self._changed_at(name)
                yield from ((at, after) for at in changed if at != after and self._told & {at, after})

    def _merged(self, after: str, name: str) -> bool:
        """Whether the base file of an instant has what a log says, or nobody can tell any more."""
        if after not in self._plans:
            self._plans[after] = self._named(after)
        named = self._plans[after]
        if named is not None:
            return name in named
        # A writer that has no plan writes only base files anew that have no logs.
        return after not in self._instants or self._instants[after].action != "deltacommit"

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

    # ----------------------------------------------------------------------------------------------------------------- clusterings
    def _keep_clustered(self, by: str, replaced: Mapping[str, Sequence[str]]) -> None:
        """Keep what a clustering has read, as its plan says, of file groups of which something is there."""
        plan = dict[Key, frozenset[str]]()
        for action in ("replacecommit", "clustering"):  # before layout 2, and in it
            name = f"{self.line.folder}/{Instant(by, action, 'requested').name}"
            with suppress(NotFoundError, FormatError):
                plan |= clustering.slices(self.line.store.get(name), f"{self.line.store.url}/{name}") or {}
        keys = ((partition, group) for partition, ids in replaced.items() for group in ids)
        self._clustered.extend(_Clustered(by, key, plan.get(key)) for key in keys if self._there(key))

    def _not_read(self, there: Mapping[str, BaseFile | LogFile], by: str, read: frozenset[str] | None) -> set[str]:
        """The instants whose rows are in files of a group that a clustering has ended, and that it has not read.

        It reads nothing that is later than itself: its instant was drawn when its plan was laid.
        """
        bases = map(names.base_file, read) if read is not None else there.values()
        begins = [file.instant for file in bases if isinstance(file, BaseFile) and file.instant < by]
        since, found = max(begins, default=""), set[str]()
        for name, file in there.items():
            if isinstance(file, BaseFile):
                # A compaction changes no row.
                changed: Iterable[str] = (file.instant,) if file.instant > since and self._compacts(file.instant) is False else ()
            else:
                changed = self._changed_at(name) if self._ends.get(file.instant, file.instant) >= since else ()
            unread = read is not None and file.name not in read
            found.update(at for at in changed if at != by and (unread or at > by))
        return found

    def _compacts(self, at: str) -> bool | None:
        """Whether a commit is a compaction; None: it is not on the timeline."""
        if at in self._told:
            return at in self._compacted
        if at not in self._compacted:
            instant = self._instants.get(at)
            self._compacted[at] = next(commit.compacted for _, commit in self._contents([instant])) if instant else None
        return self._compacted[at]
