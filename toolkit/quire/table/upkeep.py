"""The calls that look after a table: clean, archive, and savepoints, which hold what it was.

take up the open job of the same call, or freeze a new one → close it in rounds (`cleaning`, `archive`) → report
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from quire import display
from quire.arguments import format_size, seconds
from quire.commit import names as objects
from quire.commit import protocol
from quire.commit.committers import choice
from quire.commit.entries import TABLE, UNSAID, Commit, PlanHead
from quire.commit.log import Log
from quire.engine.take_up import Identity, with_state
from quire.errors import UsageError, encodable, quoted
from quire.storage import Store, plain
from quire.table import archive, archived_timeline, cleaning, retention, rounds, timeline
from quire.table.archive import NothingToArchive, Stop
from quire.table.cleaning import NothingToClean
from quire.table.format import archive as archived_in
from quire.table.format import cleaning as stored
from quire.table.format import lsm, names
from quire.table.format.names import Instant
from quire.table.retention import Dead
from quire.table.rounds import ARCHIVE
from quire.table.service import Service
from quire.table.settings import opened
from quire.table.timeline import CLEAN, SAVEPOINT
from quire.table.writing import SPEC

if TYPE_CHECKING:
    import pandas as pd

KEEP_FOR = "24 h"
LONGEST = 1_000  # characters of a comment


@dataclasses.dataclass(frozen=True, repr=False)
class CleanReport(display.Shown):
    """The result of a call that cleans a table.

    dest                 the table
    instant              of the clean, on the table's timeline; "" where nothing was to be deleted
    slices, files        how many slices of file groups are deleted, and how many base files and logs these had
    bytes                of these files
    readable_from        the first instant as of which the table can still be read, but for what pins and savepoints hold; "": all
    savepoints, pinned   instants and versions that were held
    dry_run              nothing was deleted: the other numbers say what would be
    version, seconds     the log's number at the end; how long it took

        report = table.clean(keep_for="7 days")
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    instant: str = ""
    slices: int = 0
    files: int = 0
    bytes: int = 0
    readable_from: str = ""
    savepoints: tuple[str, ...] = ()
    pinned: tuple[int, ...] = ()
    dry_run: bool = False
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"CleanReport({'dry_run=True, ' * self.dry_run}slices={self.slices:,}, files={self.files:,}, bytes={self.bytes:,}, "
            f"readable_from={self.readable_from!r}, seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        done = "would be deleted" if self.dry_run else "deleted"
        rows: dict[str, object] = {done: f"{self.slices:,} slices, {self.files:,} files ({format_size(self.bytes)})"}
        if self.readable_from:
            rows["readable as of"] = f"{self.readable_from} or later"
        if self.savepoints:
            rows["savepoints"] = ", ".join(self.savepoints[:3]) + (", …" if len(self.savepoints) > 3 else "")
        if self.pinned:
            rows["pinned versions"] = ", ".join(map(str, self.pinned[:3])) + (", …" if len(self.pinned) > 3 else "")
        return rows | {"version": self.version, "seconds": f"{self.seconds:.1f}"}


def check(keep_for: str | float | None, versions: int | None) -> tuple[float, int]:
    """Seconds that superseded slices stay, or how many versions (else 0); UsageError for what is neither."""
    if keep_for is not None and versions is not None:
        raise UsageError("keep_for= and versions= are two ways to say what stays: give one of them.")
    if versions is not None:
        if type(versions) is not int or versions < 1:
            raise UsageError(f"versions takes how many slices of each file group stay, 1 or more, and not {quoted(versions)}")
        return 0.0, versions
    return seconds(KEEP_FOR if keep_for is None else keep_for, "keep_for"), 0


def clean(service: Service, keep_for: str | float | None, versions: int | None, *, dry_run: bool) -> CleanReport:
    """See `Table.clean`."""
    began, (span, kept) = time.monotonic(), check(keep_for, versions)
    opened(service.store)
    asked = {"versions": kept} if kept else {"keep_for": span}
    with with_state("Call again: it completes what is committed, and deletes what is left."):
        if dry_run:
            service.log = protocol.recover(service.store)
            return _report(service, began, _dead(service, service.log, asked))

        def plan(log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
            return _plan(log, identity) if _dead(service, log, asked).files else None

        identity = Identity(
            {"verb": CLEAN, "operation": CLEAN, "dest": service.dest, **asked}, SPEC, choice("auto", service.store), closer=TABLE,
            empty=UNSAID,
        )  # fmt: skip
        try:
            done = service.run(identity, plan, "clean", keep=False)
        except NothingToClean:
            done = None
        if done is not None:
            cleaning.check_done(service.store, rounds.round_of(done.tasks[-1]))
    return _report(service, began, done)


def _dead(service: Service, log: Log, asked: Mapping[str, object]) -> Dead:
    """The files that may go, as it looks now."""
    line = timeline.current(service.store)
    return retention.dead(service.store, line, cleaning.keep_of(asked), line.savepoints, cleaning.pinned(log))


def _report(service: Service, began: float, found: Dead | Commit | None) -> CleanReport:
    """The report of files that would be deleted, of a commit, or of nothing."""
    assert service.log is not None
    report = CleanReport(
        plain(service.dest), savepoints=tuple(sorted(timeline.current(service.store).savepoints)),
        pinned=tuple(sorted({*service.log.pins().values()})), dry_run=isinstance(found, Dead), version=service.log.tip,
        seconds=time.monotonic() - began,
    )  # fmt: skip
    if isinstance(found, Dead):
        files = sum(map(len, found.files.values()))
        return dataclasses.replace(report, slices=found.slices, files=files, bytes=found.size, readable_from=found.readable)
    if found is None:
        return report
    said = rounds.round_of(found.tasks[-1])
    counts: dict[str, Any] = {**said.counts}
    return dataclasses.replace(report, instant=said.instant, readable_from=said.readable, savepoints=said.held, **counts)


# --------------------------------------------------------------------------------------------------------------------- archives
@dataclasses.dataclass(frozen=True, repr=False)
class ArchiveReport(display.Shown):
    """The result of a call that archives a table's timeline.

    dest              the table
    instants          how many completed writes have left the timeline
    first             the first instant that stays: the table cannot be read as of older ones any more; "": all stay
    held_by           why no later one is the first
    dry_run           nothing was archived: the other numbers say what would be
    version, seconds  the log's number at the end; how long it took

        report = table.archive(keep=100)
        print(report), json.dumps(report.as_dict())
    """

    dest: str
    instants: int = 0
    first: str = ""
    held_by: str = ""
    dry_run: bool = False
    version: int = 0
    seconds: float = 0.0

    def __repr__(self) -> str:
        return (
            f"ArchiveReport({'dry_run=True, ' * self.dry_run}instants={self.instants:,}, first={self.first!r}, held_by={self.held_by!r}, "
            f"seconds={self.seconds:.1f}, version={self.version})"
        )

    def _facts(self) -> Mapping[str, object]:
        rows: dict[str, object] = {"would be archived" if self.dry_run else "archived": f"{self.instants:,} instants"}
        if self.first:
            rows["readable as of"] = f"{self.first} or later"
        return rows | {"held by": self.held_by, "version": self.version, "seconds": f"{self.seconds:.1f}"}


def archived(service: Service, keep: int, *, dry_run: bool) -> ArchiveReport:
    """See `Table.archive`."""
    began = time.monotonic()
    if type(keep) is not int or keep < 1:
        raise UsageError(f"keep takes how many completed writes stay on the timeline, 1 or more, and not {quoted(keep)}")
    has, _ = opened(service.store)
    with with_state("Call again: it completes what is committed."):
        if dry_run:
            service.log = protocol.recover(service.store)
            stop, going = _to_archive(service, service.log, keep)
            dest, tip, first = plain(service.dest), service.log.tip, stop.horizon if going else ""
            return ArchiveReport(dest, going, first, stop.why, dry_run=True, version=tip, seconds=time.monotonic() - began)
        of_layout_2 = has.written == names.TIMELINE
        service.store.put_if_absent(lsm.MARKER if of_layout_2 else f"{archived_in.FOLDER}/{archived_in.MARKER}", b"")
        intent = {"verb": ARCHIVE, "operation": ARCHIVE, "dest": service.dest, "keep": keep}
        identity = Identity(intent, SPEC, choice("auto", service.store), closer=TABLE, empty=UNSAID)

        why = ""

        def plan(log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
            nonlocal why
            stop, going = _to_archive(service, log, keep)
            why = stop.why
            return _plan(log, identity) if going else None

        count, first = 0, ""
        with suppress(NothingToArchive):
            while (done := service.run(identity, plan, "archive", keep=False)) is not None:
                said = rounds.round_of(done.tasks[-1])
                archive.check_done(service.store, said)
                count, first = count + said.counts["instants"], said.instant
                if not said.counts.get(archive.FULL):
                    break  # beside a writer there would be one more to archive, again and again
        if of_layout_2:
            archived_timeline.keep_small(service.store)
    assert service.log is not None
    return ArchiveReport(plain(service.dest), count, first, why, version=service.log.tip, seconds=time.monotonic() - began)


def _to_archive(service: Service, log: Log, keep: int) -> tuple[Stop, int]:
    """How far an archive may go, as it looks now, and how many writes go."""
    line = timeline.current(service.store)
    stop = archive.stop(log, line, keep)
    return stop, sum(each.time < stop.horizon for each in line.completed)


def _plan(log: Log, identity: Identity) -> tuple[PlanHead, None] | None:
    return identity.head(log.tip, objects.new_id(), 0), None


# -------------------------------------------------------------------------------------------------------------------- savepoints
def savepoint(service: Service, instant: str | None, comment: str) -> str:
    """See `Table.savepoint`."""
    if not isinstance(comment, str) or len(comment) > LONGEST or not encodable(comment):
        raise UsageError(f"comment takes a text of at most {LONGEST:,} characters, and not {quoted(comment)}")
    opened(service.store)
    with with_state("Call again."):
        protocol.recover(service.store)
        line = timeline.current(service.store)
        at = instant if instant is not None else next((each.time for each in reversed(line.completed)), "")
        if not at:
            raise UsageError(f"nothing has been written into {plain(service.dest)} yet: there is nothing to hold.")
        cleaning.check_instant(line, at, plain(service.dest))
        if cleaning.saved_at(service.store, line.folder, at):
            return at
        intent = {"verb": SAVEPOINT, "operation": SAVEPOINT, "dest": service.dest, "instant": at, "comment": comment}
        identity = Identity(intent, SPEC, choice("auto", service.store), closer=TABLE, empty=UNSAID)
        if (done := service.run(identity, _plan, "savepoint", keep=False)) is not None:
            cleaning.check_done(service.store, rounds.round_of(done.tasks[-1]))
    return at


def delete_savepoint(store: Store, instant: str) -> None:
    """See `Table.delete_savepoint`."""
    opened(store)
    protocol.recover(store)  # one that is committed is made first
    line = timeline.current(store)
    if instant not in line.savepoints:
        saved = sorted(line.savepoints)
        has = f"It has: {', '.join(saved[:5])}{', …' if len(saved) > 5 else ''}." if saved else "It has none."
        raise UsageError(f"{plain(store.url)} has no savepoint at {quoted(instant, 40)}. {has}")
    for state in (*cleaning.saved_at(store, line.folder, instant), Instant(instant, SAVEPOINT, "inflight")):
        store.remove(f"{line.folder}/{state.name}")


def savepoints(store: Store, folder: str) -> pd.DataFrame:
    """See `Table.savepoints`."""
    import pandas as pd

    rows = list[tuple[str, str, dt.datetime, str]]()
    for instant in cleaning.saved_at(store, folder):
        name = f"{folder}/{instant.name}"
        by, at, comment = stored.saved(store.get(name), f"{store.url}/{name}")
        rows.append((instant.time, comment, dt.datetime.fromtimestamp(at / 1000, dt.UTC), by))
    return pd.DataFrame(rows, columns=["instant", "comment", "made", "by"])
