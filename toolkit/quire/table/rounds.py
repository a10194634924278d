"""The rounds in which a commit of a table is closed: what the log says of the timeline, and when a round is over.

Source: docs/protocol.md, section 10, checked by tests/model/table_model.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa

from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.entries import FORMAT, TABLE, Commit, Foreign, Natural, Pin, Task, decode, encode, stored
from quire.commit.log import Log
from quire.errors import FormatError, NotFoundError, RefusedError, TransientError
from quire.storage import Entry, Store
from quire.table import lost, timeline
from quire.table.file_groups import Slice
from quire.table.format import commits, names, schema
from quire.table.format.commits import CommitMetadata
from quire.table.format.config import NEWER, VERSION, TableConfig
from quire.table.format.names import BaseFile, Instant, LogFile
from quire.table.timeline import CLEAN, SAVEPOINT, Timeline
from quire.table.write.commit import COMPACT

_MOVED = f"{names.FOLDER}/timeline"  # where instants are once another program has upgraded the table
UPSERTS = ("upsert", "delete")  # of which two may not insert into one partition, as both may hold the same key
OVERWRITE, DROP = "insert_overwrite", "delete_partition"  # which end all file groups of their partitions
CLUSTER = "cluster"  # the operation that lays rows out anew, in other file groups; it changes no row
ARCHIVE = "archive"  # the operation that takes instants off the timeline; its instant is the first that stays
CONTENT = "instant.json"  # in the attempt's folder
ROLLBACK, RESTORE = "rollback", "restore"  # which take writes back
BACK = (ROLLBACK, RESTORE)
SCHEDULE = "schedule"  # the operation that lays a plan of a compaction, which COMPACT carries out


@stored
class Round(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="round"):
    """The words of a round's manifest about itself: `stats.written` of its task.

    instant, action   on the timeline
    version           of the log, when the round read the timeline
    operation         "upsert", "insert", …
    inserts           the partitions into which it inserts
    counts            rows: inserts, updates, deletes, …
    planned           the file groups of the plan that it lays
    held              the savepoints that it has seen
    readable          the first instant as of which the table can be read after a clean
    replaced          partition → file groups of it that end with the instant: all but for a clustering; () where it had none
    taken             the instants of the writes that it takes back
    ended             when the instant ends, where the timeline has it (layout 2); of an archive that of its horizon, of a plan a later time
    saw, columns      the columns of the table that it was computed with, and those after it, each as `columns_id` names them; "": it
                      says nothing of them
    """

    instant: str
    action: str
    version: Natural
    operation: str
    inserts: tuple[str, ...]
    counts: dict[str, Natural]
    planned: tuple[str, ...] = ()
    held: tuple[str, ...] = ()
    readable: str = ""
    replaced: dict[str, tuple[str, ...]] = {}
    taken: tuple[str, ...] = ()
    saw: str = ""
    columns: str = ""
    ended: str = ""
    format: int = FORMAT

    def as_dict(self) -> dict[str, Any]:
        """As the manifest has it."""
        found: dict[str, Any] = json.loads(encode(self))
        return found


def columns_id(columns: pa.Schema | None) -> str:
    """A short name of a table's columns without the meta columns; "" of none."""
    columns = schema.without_meta(columns) if columns is not None else pa.schema([])
    return hashlib.sha256(schema.to_avro(columns, "columns").encode()).hexdigest()[:16] if columns.names else ""


@dataclass(frozen=True)
class _Touched:
    """The instant, file groups and partitions of a commit, ours or another program's.

    inserts      partitions into which an upsert has put new keys
    partitions   all that it has written into, or replaced
    replaced     those of which it has replaced all rows
    """

    instant: str
    groups: frozenset[str]
    inserts: frozenset[str]
    partitions: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    writes: bool = True  # else it only takes what nobody builds on

    def before(self, instant: str) -> bool:
        """Whether a write at an instant may still come: the timeline has the order of the log, and no instant twice."""
        return self.instant < instant if self.writes else self.instant != instant


def round_of(task: Task) -> Round:
    """The round of a table's last task; FormatError where its manifest or the log's entry is damaged."""
    where = f"the manifest of task {task.task}"
    found: Round = decode(json.dumps(task.stats.written).encode(), Round, where)
    action = "commit" if found.operation == ARCHIVE else found.action
    ended = f"_{found.ended}" if found.ended and found.operation != SCHEDULE else ""
    made = names.instant(f"{found.instant}{ended}.{action}{'.requested' if found.operation == SCHEDULE else ''}")
    if found.ended and (len(found.ended) != 17 or found.ended <= found.instant):
        made = None
    whole = len(found.instant) == 17 or found.operation == SAVEPOINT  # which holds a write that somebody else may have named
    if made is None or (made.state == "completed") == (found.operation == SCHEDULE) or not whole:
        raise FormatError(f"{where} names the instant {found.instant[:40]!r}.{found.action[:40]!r}: it is damaged, or forged.")
    return found


def unknown(log: Log) -> Foreign | None:
    """The entry that the log needs for what other programs have done to the timeline; None: it says it all.

    The log was read before this looks at the timeline, so an instant that the log calls published was there once.
    """
    try:
        has = TableConfig.from_properties(log.store.get(names.PROPERTIES), f"{log.store.url}/{names.PROPERTIES}")
    except NotFoundError:
        return None  # nobody has made a table of it yet
    if has.version != VERSION and has.written == names.FOLDER:
        return None  # another program has upgraded it, and keeps the timeline elsewhere
    there = dict[str, str]()
    for instant, job, undone in log.instant_rows():  # that of a compaction comes again, when it has been carried out
        there[instant] = there.get(instant, "") or ("" if undone else job)
    line = timeline.read(log.store, has.written)
    if line.again and not has.metadata:
        timeline.leave(log.store, line.folder, line.horizon)
    _put_again(log, line, {instant: job for instant, job, undone in log.instant_rows() if job and undone})
    new = [instant for instant in line.completed if instant.time not in there]
    gone = list(_rolled_back(log, line, {instant: job for instant, job in there.items() if job}))
    if not new and not gone:
        return None
    groups, partitions, seen = set[str](), set[str](), lost.Lost(line, new, _waiting(log))
    for written, content in zip(new, line.commits(new), strict=True):
        seen.take(written, content)
        for partition, stat, _ in content.files():
            # Statistics do not tell what was inserted for certain: a rewritten file may have taken in new keys.
            groups.add(stat.file_id)
            partitions.add(partition)
        groups.update(group for ids in content.replaced.values() for group in ids)
        partitions.update(content.replaced)
    for commit in gone:
        groups |= _groups(commit.tasks[-1])  # whose slices are older ones again,
        partitions |= _partitions(commit.tasks[-1])  # and have keys again that it had deleted
    return Foreign(
        instants=tuple(instant.time for instant in new), undone=tuple(commit.job for commit in gone), groups=tuple(sorted(groups)),
        inserts=tuple(sorted(partitions)), lost=tuple(seen.updates()), time=protocol.now(),
        ended=max((instant.ended for instant in new), default=""),
    )  # fmt: skip


def _waiting(log: Log) -> dict[Instant, CommitMetadata]:
    """The instants of commits that are still to appear, and what they will say."""
    found = dict[Instant, CommitMetadata]()
    for commit in log.unpublished():
        if commit.closer == TABLE and commit.tasks[-1].data_files:
            said, name = round_of(commit.tasks[-1]), content_of(commit)
            with suppress(NotFoundError):  # it has appeared since
                found[Instant(said.instant, said.action, ended=said.ended)] = commits.decode(log.store.get(name), f"{log.store.url}/{name}")
    return found


def content_of(commit: Commit) -> str:
    """The object that waits beside the files of a commit: the bytes of its completed instant, or of its plan."""
    done = commit.tasks[-1]
    return objects.staged(commit.job, done.task, done.attempt, CONTENT)


def _rolled_back(log: Log, line: Timeline, ours: Mapping[str, str]) -> Iterator[Commit]:
    """The commits whose instants have left the timeline, unless they were archived, or are being moved to where a newer version has them.

    Archiving takes the oldest instants and leaves their files; a JVM before Hudi 0.15 may for a moment take a later one first. To roll one
    back takes its files. Readers pass over files of an instant that is missing between others, and read those of older ones.
    """
    store, there = line.store, {instant.time for instant in line.completed}
    missing = sorted(instant for instant in ours if instant not in there)
    if not missing or (line.folder == names.FOLDER and store.is_folder(_MOVED)):
        return
    for instant in missing:
        if instant < line.horizon or (line.left is not None and instant in line.left.writes):
            continue
        between = not line.first or instant > line.first
        if line.archived and not between:
            continue
        commit = log.outcome(ours[instant])
        if not isinstance(commit, Commit) or log.published(commit.job) is None:
            continue  # it is still to appear
        if store.stat(_completed(commit.tasks[-1])) is not None:
            continue  # the listing is an old one
        if (between and not line.archived) or not _there(store, commit.tasks[-1]):
            yield commit


def _put_again(log: Log, line: Timeline, undone: Mapping[str, str]) -> None:
    """Take instants away that had left the timeline, and that a publisher has put there again who had slept meanwhile: without files."""
    there = {instant.time for instant in (*line.completed, *line.pending)}
    for time in sorted(undone.keys() & there):
        commit = log.outcome(undone[time])
        if not isinstance(commit, Commit) or round_of(commit.tasks[-1]).operation == COMPACT:
            continue  # a plan that was carried out, and rolled back, may be carried out again
        if not _there(line.store, commit.tasks[-1]):
            remove_states(line.store, {time}, line.folder)


def remove_states(store: Store, times: set[str], folder: str = names.FOLDER) -> None:
    """Take all that is there of some writes off the timeline, a plan last."""
    found = [names.instant(entry.name.rpartition("/")[2]) for entry in store.scan(folder) if isinstance(entry, Entry)]
    ours = [each for each in found if each and each.time in times and names.ACTIONS[each.action] in timeline.WRITES]
    left = [each for each in ours if each.state != "completed" or bool(each.ended) == (folder == names.TIMELINE)]
    for each in sorted(left, key=lambda each: (each.state == "requested", each.time)):
        store.remove(f"{folder}/{each.name}")


def _completed(done: Task) -> str:
    """The name of the completed instant of a round."""
    said = round_of(done)
    return f"{folder_of(said)}/{Instant(said.instant, said.action, ended=said.ended).name}"


def folder_of(said: Round) -> str:
    """Where the timeline lies of the table for which a round was made."""
    return names.TIMELINE if said.ended else names.FOLDER


def fits(has: TableConfig, said: Round) -> bool:
    """Whether a table is still of the version for which a round was made, and has its timeline where that looks."""
    return has.version == (NEWER if said.ended else VERSION) and has.written == folder_of(said)


def ends(log: Log) -> set[str]:
    """When the instants end of the commits that are still to appear."""
    said = (round_of(commit.tasks[-1]) for commit in log.unpublished() if commit.closer == TABLE)
    return {each.ended for each in said if each.ended}


def appeared(store: Store, commit: Commit) -> bool:
    """Whether the instant of a commit stands on the timeline.

    RefusedError where it does not, and cannot: another program has upgraded the table since, and moved the timeline.
    """
    done = commit.tasks[-1]
    if store.stat(_completed(done)) is not None:
        return True
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    if fits(has, round_of(done)):
        return False
    if has.timeline and any(instant.time == done.instant for instant in timeline.read(store, has.timeline).completed):
        return True
    raise RefusedError(
        f"job {commit.job} is committed, and before its instant {done.instant} had appeared, another program upgraded {store.url} to table "
        f"version {has.version}, which quire does not write: nothing of it is visible, and its files wait. Take the table back to version "
        f"{VERSION} with Hudi (hudi-cli: downgrade table) and call recover, or read the sources into a new table."
    )


def check_listed(log: Log, line: Timeline, slices: Iterable[Slice]) -> None:
    """TransientError where listings do not show yet what the log's commits have shown, as on NFS another client's files.

    A round that began with older slices would take the rows of these commits out again.
    """
    there = {instant.time for instant in line.completed}
    newest = {(one.partition, one.group): one for one in slices}
    for _, commit in log.recent():
        if commit.closer != TABLE or not log.in_effect(commit):
            continue
        done = commit.tasks[-1]
        if (said := round_of(done)).planned and said.instant not in there | line.compactions():
            _check_shown(line.store, line.plan_of(said.instant))
        if not leaves_instant(done):
            continue
        if done.instant not in there and done.instant >= line.horizon:
            _check_shown(line.store, _completed(done))
            continue  # it is being taken back: its files go next
        lacking = list[str]()
        for folder, file in _files(done):
            key, name = (folder, file.file_id), names.path(folder, file.name)
            since = said.ended if said.ended and isinstance(file, LogFile) else file.instant
            if key not in line.replaced and not _shows(newest.get(key), since, name):
                lacking.append(name)
                if not said.ended:
                    _check_begun(line, newest.get(key), file, name)
        for name in lacking:
            _check_shown(line.store, name)


def _check_begun(line: Timeline, one: Slice | None, file: BaseFile | LogFile, name: str) -> None:
    """RefusedError for a log that is there, and whose slice nobody begins any more: its plan was deleted."""
    if not isinstance(file, LogFile) or (one is not None and one.instant == file.instant) or line.store.stat(name) is None:
        return
    plan, done = line.plan_of(file.instant), (f"{names.FOLDER}/{Instant(file.instant, action).name}" for action in timeline.WRITES)
    if all(line.store.stat(state) is None for state in (plan, *done)):
        raise RefusedError(
            f"the compaction {file.instant} of {line.store.url} was taken back, and {name} belongs to the slice that it was to begin: no "
            f"reader finds its rows. Put back {plan} from a copy, and let table.compact() carry it out."
        )


def _check_shown(store: Store, lacks: str) -> None:
    """TransientError where a name is there that a listing lacks; one that is not there at all was archived, cleaned or taken back."""
    if store.stat(lacks) is not None:
        raise TransientError(f"{store.url}/{lacks} is there, and listings do not show it yet")


def _shows(one: Slice | None, since: str, name: str) -> bool:
    """Whether the newest slice of a file group has a file, or came after it. A log may be of a slice that a compaction is to begin."""
    return one is not None and (one.instant > since or name in (one.name, *one.logs))


def _there(store: Store, done: Task) -> bool:
    """Whether any of the files that a round has shown is still in its place."""
    return any(store.stat(file.name) is not None for file in done.data_files if not objects.is_changes(file.name))


def over(log: Log, done: Task) -> bool:
    """Whether a round cannot be committed any more: what it was computed from has changed."""
    mine = round_of(done)
    if any(other.operation in BACK for other in _rounds(log, mine.version)):
        return True
    if mine.operation in BACK:
        return _outdated(log, mine)
    if mine.operation == COMPACT:
        return _carried_out(log, mine, _groups(done))
    if mine.operation in (CLEAN, SAVEPOINT):
        return _holds_others(log, mine)
    if mine.operation == ARCHIVE:
        return _takes_what_is_held(log, mine)
    if (mine.operation in (SCHEDULE, CLUSTER) and _hindered(log, mine)) or (mine.columns and _other_columns(log, mine)):
        return True
    groups, inserts = _groups(done), set(mine.inserts) if mine.operation in UPSERTS else set()
    if any(
        not other.before(mine.instant) or other.groups & groups or other.inserts & inserts or _replaces(done, other)
        for other in _since(log, mine.version)
    ):
        return True
    return _planned_since(log, done)


def _planned_since(log: Log, done: Task) -> bool:
    """Whether a compaction was asked for that a round does not know, and that would pass over its logs; or of a group that it ends.

    A compaction takes no log of the slice before it but those that its plan names.
    """
    mine = round_of(done)
    held = {(folder, file.file_id): file.instant for folder, file in _files(done) if isinstance(file, LogFile)}
    held |= {(partition, group): "" for partition, ids in mine.replaced.items() for group in ids}
    compacting = timeline.read(log.store, folder_of(mine)).compacting() if held else {}
    if mine.ended:  # a log is of the slice that was begun last when it ended
        return any(key in compacting and (not begun or compacting[key] > mine.ended) for key, begun in held.items())
    return any(compacting.get(key, begun) != begun for key, begun in held.items())


def _other_columns(log: Log, mine: Round) -> bool:
    """Whether the table has other columns than a round was computed with: its instant, if a later one, would take them away again."""
    same = ("", mine.saw, mine.columns)  # two that bring the same new column agree
    if any(other.columns not in same for other in _rounds(log, mine.version)):
        return True
    if not any(isinstance(entry, Foreign) and entry.instants for entry in log.since(mine.version)):
        return False
    text = timeline.read(log.store, folder_of(mine)).schema()
    return columns_id(schema.from_avro(text, f"the schema of {log.store.url}") if text else None) not in same


def _replaces(done: Task, other: _Touched) -> bool:
    """Whether a round or another commit replaces all rows of a partition into which the other one of them writes, in whatever files."""
    mine = round_of(done)
    ends = () if mine.operation == CLUSTER else mine.replaced
    return not (other.replaced.isdisjoint(_partitions(done)) and other.partitions.isdisjoint(ends))


def pending_elsewhere(log: Log, line: Timeline) -> Instant | None:
    """A write that another program has begun: its logs may be in slices that are to be planned, and no listing tells."""
    pending = [i for i in line.pending if i.action in (*timeline.WRITES, "clustering")]
    # Read anew, and apart: whoever appends to this log has computed from what it says now.
    ours = {instant for instant, *_ in Log(log.store).refresh().instant_rows()} if pending else set()
    return next((i for i in pending if i.time not in ours), None)


def _hindered(log: Log, mine: Round) -> bool:
    """Whether a plan, or a clustering, would lack logs that another program is writing; or a plan name what another plan names."""
    line = timeline.current(log.store)
    plans = {group for (_, group), instant in line.compacting().items() if instant != mine.instant}
    return bool(plans & set(mine.planned)) or pending_elsewhere(log, line) is not None


def _outdated(log: Log, mine: Round) -> bool:
    """Whether a rollback or a restore does not know all that has become of the table: each write beside it comes before it, or after."""
    if any(isinstance(entry, Foreign | Pin) for entry in log.since(mine.version)) or any(_rounds(log, mine.version)):
        return True
    line = timeline.current(log.store)
    return pending_elsewhere(log, line) is not None or bool(line.savepoints - set(mine.held))


def taken_back(log: Log, version: int) -> set[str]:
    """The instants that were rolled back, or that a restore is about to take back, since a version."""
    undone = {instant for instant, _, undone in log.instant_rows() if undone > version}
    return undone.union(*(said.taken for said in _rounds(log, version) if said.operation in BACK))


def cleaned(log: Log, version: int) -> bool:
    """Whether slices that were the newest at a version may be gone since: a clean was committed, or what takes writes back."""
    return any(said.operation in (CLEAN, *BACK) for said in _rounds(log, version))


def _rounds(log: Log, version: int) -> Iterator[Round]:
    """The rounds of the commits after a version that count."""
    entries = (entry for entry in log.since(version) if isinstance(entry, Commit) and entry.closer == TABLE)
    return (round_of(entry.tasks[-1]) for entry in entries if log.in_effect(entry))


def _holds_others(log: Log, mine: Round) -> bool:
    """Whether another slice is to be held, or counts, than a clean has seen; or a clean may have taken what a savepoint is to hold."""
    entries = list(log.since(mine.version))
    if any((isinstance(entry, Foreign) and entry.undone) or (mine.operation == CLEAN and isinstance(entry, Pin)) for entry in entries):
        return True
    others = list(_rounds(log, mine.version))
    if any(other.operation == CLEAN or (mine.operation == CLEAN and other.operation == SAVEPOINT) for other in others):
        return True
    if mine.operation == SAVEPOINT:
        return any(other.operation == ARCHIVE and other.instant > mine.instant for other in others)
    # Other programs make savepoints, too, of which the log knows nothing.
    return any(other.instant == mine.instant for other in others) or bool(timeline.current(log.store).savepoints - set(mine.held))


def _takes_what_is_held(log: Log, mine: Round) -> bool:
    """Whether an archive would take an instant off the timeline that somebody has asked to hold since, begun, or rolled back."""
    entries, others = list(log.since(mine.version)), list(_rounds(log, mine.version))
    if any((isinstance(entry, Foreign) and entry.undone) or isinstance(entry, Pin) for entry in entries):
        return True
    if any(other.operation in (ARCHIVE, SAVEPOINT) for other in others):
        return True
    # Another program may have written at the horizon before an older commit of ours took its slot. If that is void, a file that it leaves
    # would be older than the timeline.
    made = (entry for entry in entries if isinstance(entry, Commit) and entry.closer == TABLE)
    if any(round_of(entry.tasks[-1]).instant < mine.instant for entry in made):
        return True
    line = timeline.current(log.store)
    begun = {instant.time for instant in line.pending}
    return any(time < mine.instant for time in begun | (line.savepoints - set(mine.held)))


def _carried_out(log: Log, mine: Round, groups: frozenset[str]) -> bool:
    """Whether a compaction was carried out by another one, or its plan taken back, or a commit rolled back that it has merged.

    The files that it merges never change, whoever writes meanwhile.
    """
    if any(isinstance(entry, Foreign) and entry.undone and groups & set(entry.groups) for entry in log.since(mine.version)):
        return True
    if any((other.operation, other.instant) == (COMPACT, mine.instant) for other in _rounds(log, mine.version)):
        return True
    done, plan = (f"{folder_of(mine)}/{Instant(mine.instant, *state).name}" for state in (("commit",), (timeline.COMPACTION, "requested")))
    ended = bool(mine.ended) and timeline.read(log.store, folder_of(mine)).has_compacted(mine.instant)
    return ended or log.store.stat(done) is not None or log.store.stat(plan) is None


def _since(log: Log, version: int) -> Iterator[_Touched]:
    """The commits after a version that count, ours and other programs'."""
    for entry in log.since(version):
        if isinstance(entry, Foreign):
            yield _Touched(
                max((*entry.instants, entry.ended), default=""), frozenset(entry.groups), frozenset(entry.inserts), frozenset(entry.inserts)
            )
        elif isinstance(entry, Commit) and entry.closer == TABLE and log.outcome(entry.job) is entry and log.in_effect(entry):
            said = round_of(entry.tasks[-1])
            if said.operation in (COMPACT, SAVEPOINT, ARCHIVE, *BACK):
                continue  # its logs' slice was begun when it was scheduled; and the others change nothing
            if said.operation == CLEAN:
                yield _Touched(said.instant, frozenset(), frozenset(), writes=False)
                continue
            done, inserts = entry.tasks[-1], frozenset(said.inserts if said.operation in UPSERTS else ())
            ends = frozenset(() if said.operation == CLUSTER else said.replaced)  # whose rows are in other files as they were
            last = said.instant if said.operation == SCHEDULE else said.ended or said.instant
            yield _Touched(last, _groups(done), inserts, _partitions(done), ends)


def ended(store: Store) -> dict[tuple[str, str], str]:
    """Partition and file group → the instant of the write of quire's that has replaced it, also where that is archived: by the log."""
    log, found = Log(store).refresh(), dict[tuple[str, str], str]()
    for _, commit in log.commits():
        if commit.closer == TABLE and log.in_effect(commit):
            said = round_of(commit.tasks[-1])
            found |= {(partition, group): said.instant for partition, ids in said.replaced.items() for group in ids}
    return found


def leaves_instant(done: Task) -> bool:
    """Whether a round has changed the table, and so is a write on the timeline."""
    return bool(done.data_files or round_of(done).replaced)


def _groups(done: Task) -> frozenset[str]:
    """The file groups that a round has written, planned to compact or replaced; the id of a new one is nobody else's."""
    said = round_of(done)
    return frozenset(file.file_id for _, file in _files(done)).union(said.planned, *said.replaced.values())


def _partitions(done: Task) -> frozenset[str]:
    """The partitions into which a round has written, or which it has replaced."""
    return frozenset(folder for folder, _ in _files(done)).union(round_of(done).replaced)


def _files(done: Task) -> Iterator[tuple[str, BaseFile | LogFile]]:
    """The partitions and names of the base and log files that a round has written."""
    for each in done.data_files:
        folder, _, name = each.name.rpartition("/")
        if (file := names.file(name)) is not None:
            yield folder, file
