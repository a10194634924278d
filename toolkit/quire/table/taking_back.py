"""The rounds of a rollback and of a restore, and how they come into effect.

A round says which instants go, from one look at the log and the timeline. Publication takes them off the timeline, the newest first, then
deletes their files, then their other states. The log's next entry takes them out of the ledger, as if another program had rolled them back.
See docs/protocol.md, section 10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from quire.commit.log import Log
from quire.errors import RefusedError
from quire.storage import Entry, Store, plain, remove_all
from quire.table import cleaning, file_groups, retention, rounds
from quire.table.format import names, rollbacks
from quire.table.format.config import TableConfig
from quire.table.format.names import Instant
from quire.table.format.rollbacks import TakenBack
from quire.table.rounds import CLUSTER, ROLLBACK, Round
from quire.table.timeline import COMPACTION, REPLACE, Timeline
from quire.table.view import View
from quire.table.write.blocks import Closing
from quire.table.write.commit import COMPACT
from quire.table.write.write import Written


class NothingToTakeBack(RefusedError):
    """No write is later than the instant to restore."""


@dataclass(frozen=True)
class TakeBack:
    """The round of a rollback of the write at an instant, or of a restore to it."""

    operation: str
    instant: str

    def write(self, view: View, closing: Closing) -> list[Written]:
        """See `Body`."""
        return []

    def say(self, view: View, closing: Closing, written: list[Written]) -> tuple[Round, bytes]:
        """See `Body`. Raises NothingToTakeBack, UsageError and RefusedError, see `going`."""
        taken = going(view.log, view.line, self.operation, self.instant)
        said = Round(
            instant=view.drawn, action=self.operation, version=view.version, operation=self.operation, inserts=(),
            counts={"files": len(taken.names())}, held=tuple(sorted(view.line.savepoints)), taken=tuple(sorted(taken.writes)),
            ended=view.ended,
        )  # fmt: skip
        return said, rollbacks.encode(taken)


def going(log: Log, line: Timeline, operation: str, instant: str) -> TakenBack:
    """The instants that go, and their files.

    Raises UsageError for an instant without a completed write, RefusedError where what is to be there again is not, or what is to go is
    held; NothingToTakeBack where nothing is later.
    """
    url = plain(line.store.url)
    retention.check_not_archived(line, instant)
    cleaning.check_instant(line, instant, url)
    if other := rounds.pending_elsewhere(log, line):
        raise RefusedError(
            f"another program has begun to write into {url} (a {other.action} at {other.time}): let it end, or roll that back with Hudi, "
            "and call again."
        )
    left = (line.left.writes if line.left else frozenset()) - {each.time for each in line.completed}
    if later := sorted(each for each in left if each > instant):
        raise RefusedError(
            f"another program has archived {later[0]} of {url}, which was written after {instant}: it cannot be taken back any more. "
            "Nothing was changed."
        )
    if operation == ROLLBACK:
        writes, plans = _one(line, instant, url), list[str]()
    else:
        writes = [each for each in line.completed if each.time > instant]
        plans = sorted(each.time for each in line.pending if each.action == COMPACTION and each.time > instant)
        if not writes and not plans:
            raise NothingToTakeBack(f"{url} has no write after {instant}: there is nothing to take back.")
        cleaning.held(line.store, line, instant)
    _check_held(log, line, min([*(each.time for each in writes), *plans]), url)
    return TakenBack(
        writes={each.time: each.action for each in reversed(writes)}, ends={each.time: each.ended for each in writes if each.ended},
        plans=tuple(plans), files=_files(line, writes, plans),
    )  # fmt: skip


def _one(line: Timeline, instant: str, url: str) -> list[Instant]:
    """The write to roll back; RefusedError where another one was built on it, or what it superseded is gone."""
    at = next(each for each in line.completed if each.time == instant)
    before = next((each.time for each in reversed(line.completed) if each.time < instant), "")
    instead = f"table.restore({before!r}) takes all back that came after that one." if before else "Nothing was changed."
    said = line.commit(at)
    if said.compacted or (said.operation_type or "").lower() in (COMPACT, CLUSTER):
        word = "compaction" if at.action != REPLACE else "clustering"
        raise RefusedError(f"{instant} of {url} is a {word}, which has changed no row: there is nothing to roll back. {instead}")
    where = {*said.partition_to_write_stats, *said.replaced}
    later = [each for each in line.completed if each.time > instant]
    for each, other in zip(later, line.commits(later), strict=True):
        if shared := where & {*other.partition_to_write_stats, *other.replaced}:
            raise RefusedError(f"{each.time} of {url} was written after {instant}, into {min(shared)!r}, too. {instead}")
    if plans := sorted(plan for (partition, _), plan in line.compacting().items() if partition in where and plan > instant):
        raise RefusedError(f"the compaction {plans[0]} of {url} is pending, and its plan names files of {instant}. {instead}")
    if not before:
        if line.archived:
            raise RefusedError(f"{instant} is the first write of {url} that is not archived: there is nothing to go back to.")
        return [at]
    # Of the file groups that it has written, or ended, the slices before have to be there.
    ids = {(partition, stat.file_id) for partition, stat, _ in said.files()}
    ids |= {(partition, group) for partition, groups in said.replaced.items() for group in groups}
    then, now = line.as_of(before), file_groups.newest(line.store, line, logs=True)
    slices = [one for one in file_groups.newest(line.store, then, logs=True) if (one.partition, one.group) in ids]
    retention.check_whole(then, [*slices, *(one for one in now if (one.partition, one.group) not in ids)], before)
    return [at]


def _check_held(log: Log, line: Timeline, first: str, url: str) -> None:
    """RefusedError where a savepoint or a pin holds the table as of an instant from `first` on."""
    if held := sorted(saved for saved in line.savepoints if saved >= first):
        raise RefusedError(
            f"the savepoint {held[-1]} of {url} holds what would be taken back: table.delete_savepoint({held[-1]!r}) lets it go. "
            "Nothing was changed."
        )
    for pin, version in sorted(log.pins().items()):
        newest = max((instant for instant, *_ in log.cut(log.settled_version(version)).instant_rows()), default="")
        if newest >= first:
            raise RefusedError(
                f"the pin {pin} of version {version} of {url} holds what would be taken back: Ledger(url).unpin({pin!r}) ends it. "
                "Nothing was changed."
            )


def _files(line: Timeline, writes: Sequence[Instant], plans: Iterable[str]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Instant → partition → the files that go with it."""
    store, found = line.store, dict[str, dict[str, set[str]]]()
    going = {each.time for each in writes} | set(plans)
    for each, said in zip(writes, line.commits(writes), strict=True):
        for partition, _, file in said.files():
            found.setdefault(each.time, {}).setdefault(partition, set()).add(file.name)
    there, named = set[str](), {names.path(p, n) for files in found.values() for p, some in files.items() for n in some}
    for partition, file, entry in file_groups.files(store):
        there.add(entry.name)
        if file.instant in going and entry.name not in named:  # an attempt has left it, which did not count
            found.setdefault(file.instant, {}).setdefault(partition, set()).add(file.name)
    _check_logs(line, going, found)
    kept = {
        at: {p: tuple(sorted(n for n in some if names.path(p, n) in there)) for p, some in sorted(files.items())}
        for at, files in sorted(found.items())
    }
    return {at: {p: some for p, some in files.items() if some} for at, files in kept.items()}


def _check_logs(line: Timeline, going: set[str], found: dict[str, dict[str, set[str]]]) -> None:
    """RefusedError where a log that would go holds rows of a write that stays, as another program has appended to it."""
    logs = {names.path(p, n) for files in found.values() for p, some in files.items() for n in some if names.log_file(n)}
    if not logs:
        return
    staying = [each for each in line.completed if each.time not in going and each.action == "deltacommit"]
    for each, said in zip(staying, line.commits(staying), strict=True):
        if shared := logs & {stat.path or "" for _, stat, _ in said.files()}:
            raise RefusedError(
                f"{line.store.url}/{min(shared)} holds rows of {each.time}, too, which stays: another program has appended to it. "
                "Let Hudi roll back what it has written. Nothing was changed."
            )


# ------------------------------------------------------------------------------------------------------------------- publication
def carry_out(store: Store, said: Round, content: bytes, where: str, before_files_go: Callable[[], None]) -> None:
    """Let a rollback or a restore come into effect; anybody may, again and again: neither instants nor names of files come twice.

    `before_files_go`: called when no reader of the timeline finds them any more.

    Readers see the newest write go first, and each that is gone is gone whole: while its files are deleted, it is a write that has not
    completed. Nothing happens where another program has upgraded the table, or keeps a metadata table of it.
    """
    has = TableConfig.from_properties(store.get(names.PROPERTIES), f"{store.url}/{names.PROPERTIES}")
    if not rounds.fits(has, said) or has.metadata or store.stat(_completed(said)) is not None:
        return
    taken, folder = rollbacks.decode(content, where), rounds.folder_of(said)
    one = said.operation == ROLLBACK
    asked = Instant(said.instant, said.operation, "requested")
    store.put_if_absent(f"{folder}/{asked.name}", (rollbacks.rollback_plan if one else rollbacks.restore_plan)(taken))
    store.put(f"{folder}/{replace(asked, state='inflight').name}", b"")
    for time in sorted(taken.writes, reverse=True):
        store.remove(f"{folder}/{Instant(time, taken.writes[time], ended=taken.ends.get(time, '')).name}")
    before_files_go()
    folders = [f"{names.CHANGES}/{time}" for time in taken.writes]
    changes = [entry.name for folder in folders for entry in store.walk(folder) if isinstance(entry, Entry)]
    remove_all(store, [*taken.names(), *changes, *(file_groups.cdc_logs(store, taken.names()) if has.cdc else ())])
    rounds.remove_states(store, {*taken.writes, *taken.plans}, folder)
    store.put_if_absent(_completed(said), (rollbacks.rolled_back if one else rollbacks.restored)(taken, said.instant))


def _completed(said: Round) -> str:
    return f"{rounds.folder_of(said)}/{Instant(said.instant, said.operation, ended=said.ended).name}"


def check_done(store: Store, said: Round) -> None:
    """RefusedError where a rollback or a restore that was committed has changed nothing."""
    if store.stat(_completed(said)) is None:
        raise RefusedError(
            f"the {said.operation} {said.instant} of {plain(store.url)} has changed nothing: another program has upgraded the table "
            "meanwhile, or keeps a metadata table of it. table.adopt() drops a metadata table; then call again."
        )
