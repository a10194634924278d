"""A table as a source: a kind of input whose splits are commits of its timeline, each passed on once.

    read the timeline → take out the commits that the ledger covers → the places of their changes → tasks: each key's net change → function

A commit counts once it has completed, whatever its place on the timeline: one that ends after later ones is still to come. The first
call of a destination passes on the rows that are there, as inserts, and covers all commits that have made them; so old commits need not
be there any more. In the ledger a commit is `<table>/.hoodie/<instant>`: its first row covers it, the others are places of its changes.
All of a job is one commit of the destination, which is a table, too.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names as objects
from quire.commit.entries import COMMITS
from quire.commit.log import Log
from quire.coverage.ranges import covered
from quire.engine.attempt import Attempt
from quire.engine.kinds import Calling
from quire.engine.rows import LedgerRow, Record
from quire.errors import FormatError, RefusedError, TransientError
from quire.planning.drops import put_table
from quire.planning.listing import PLAN, Later, Listed, TaskRun
from quire.planning.pack import read_rows
from quire.planning.plan import Look as Looking
from quire.sources.files import Root
from quire.sources.kafka.topics import is_kafka
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.storage import OnRetry, Store, connect, plain, silent
from quire.storage.base import is_safe
from quire.storage.within import marked
from quire.table import changes, file_groups, realtime, timeline
from quire.table.changes import Look
from quire.table.file_groups import Slice
from quire.table.format import config, names, schema
from quire.table.merged_changes import Sides
from quire.table.realtime import Merging
from quire.table.table import Table
from quire.table.timeline import Timeline
from quire.table.window import archived_since, last_of

if TYPE_CHECKING:
    from quire.coverage.fold import Fold

Repair = Callable[[Sequence[str]], str]  # of instants that are gone
MOST = 64  # commits of one job
LISTINGS = 5  # of a snapshot, where another program cleans meanwhile
BEGIN = "0" * 14  # stands for what a table was before all of its commits
_COLUMNS = "columns"  # of the plan: the columns that its changes have
_READ = ["path", "version", "start", "length", "follows"]
_INSTANT = re.compile(r"[0-9]{14}|[0-9]{17}", re.ASCII)
_look = msgspec.json.Decoder(Look)  # built here: two threads at its first use would end the process


@dataclass(frozen=True)
class Commits(Root):
    """The commits of the table at `url`."""

    def store(self, on_retry: OnRetry = silent) -> Store:
        """The table's store, with the change files that quire keeps there."""
        return connect(marked(self.url), self.options, on_retry)

    def path(self, instant: str) -> str:
        """The key of a commit in the ledger."""
        return f"{self.url}/{names.FOLDER}/{instant}"

    def passed_on(self, fold: Fold, store: Store) -> frozenset[str]:
        """The instants that a destination's ledger has, of which `store` holds the state."""
        before = self.path("")
        there = (path.removeprefix(before) for path in covered(fold, store, before))
        return frozenset(instant for instant in there if _INSTANT.fullmatch(instant))


@dataclass(frozen=True)
class Window:
    """The part of a table's changes that one job passes on.

    commits   the instants that it covers
    runs      places of changes; those of one run are brought together, a change for each key
    columns   of the rows, as Avro
    listed    commits on the timeline; `done` of them the ledger has covered
    more      whether commits are left for another job
    """

    commits: tuple[str, ...] = ()
    runs: tuple[tuple[Look, ...], ...] = ()
    columns: str = ""
    listed: int = 0
    done: int = 0
    more: bool = False


def window(source: Commits, done: Collection[str], dest: str, anew: str = "", repair: Repair | None = None) -> Window:
    """The next commits that are not `done`; without any that are, the rows of a snapshot. `anew`: how to begin again, for errors; `repair`:
    how to go on where some of those that are done were taken back.

    Raises RefusedError where `dest` cannot follow the table any more, or its changes cannot be read.
    """
    table = Table(source.url, storage_options=source.options)
    changes.check(table.config, source.url)
    store = source.store()
    if not done:
        line, slices = _snapshot(table, store)
        merging = merging_of(table, line)
        looks = [_of_slice(one, line, merging) for one in slices]
        there = [instant.time for instant in line.completed]
        # Also covered is the beginning: of two that begin at once one conflicts, whatever was archived between them.
        commits = (BEGIN, *there) if there else ()
        return Window(commits, tuple((look,) for look in looks), line.schema() or table.config.schema, len(there))
    line = table._timeline(store)
    _check_follows(store, line, done, dest, anew or _ANEW, repair)
    waiting = sorted((each for each in line.completed if each.time not in done), key=lambda each: each.counts)
    listed = len(line.completed)
    if not waiting:
        return Window(listed=listed, done=listed)
    try:
        looks = changes.looks_of(store, line, waiting[:MOST], merging_of(table, line))
    except RefusedError as e:
        raise _ends(e, dest, anew or _ANEW) from e
    commits = _together([instant.time for instant in waiting[:MOST]], looks)
    columns = line.as_of(max(commits)).schema() or table.config.schema
    return Window(
        commits, _runs([look for look in looks if look.instant in commits]), columns, listed, listed - len(waiting),
        len(commits) < len(waiting),
    )  # fmt: skip


def merging_of(table: Table, line: Timeline) -> Merging | None:
    """How a merge-on-read table merges its logs; None: it has none, or nothing has been written yet."""
    if table.config.type != config.MERGE_ON_READ:
        return None
    rows = table._columns(line)
    if not rows.names:
        return None
    return replace(realtime.merging_of(table.config, line, rows, table.url), holds=line.holds(by_end=True))


def _of_slice(one: Slice, line: Timeline, merging: Merging | None) -> Look:
    """The rows of a slice, as inserts."""
    if merging is None or not one.logs:
        return Look(one.instant, one.partition, size=one.size, after=(one.name,))
    sides = Sides((), (one,), "", max(each.counts[0] for each in line.completed), merging)
    return Look(one.instant, one.partition, size=sides.size, sides=sides)


def _snapshot(table: Table, store: Store) -> tuple[Timeline, list[Slice]]:
    """A timeline with the newest slices that it has: all of them were there when it was read."""
    line = table._timeline(store)
    for _ in range(LISTINGS):
        slices = file_groups.newest(store, line, logs=True)
        again = table._timeline(store)
        if again.cleans <= line.cleans:
            return line, slices
        line = again  # one that was asked for since may have taken slices away before they were listed
    raise TransientError(f"{store.url} was cleaned each of {LISTINGS} times while it was listed: nothing was read. Call again")


def _check_follows(store: Store, line: Timeline, done: Collection[str], dest: str, anew: str, repair: Repair | None = None) -> None:
    """Refuse a timeline that has lost what was passed on, or may have lost what was not."""
    there, (counts, newest) = {BEGIN, *(instant.time for instant in line.completed)}, last_of(line, done)
    if archived_since(line, counts):
        raise RefusedError(
            f"{store.url} has archived instants before {line.first}, and {dest} has its changes up to {newest}: those between cannot be "
            f"read any more. Nothing was read: {anew}"
        )
    there |= line.left.writes if line.left else frozenset()
    missing = sorted(instant for instant in done if instant not in there)
    gone = [instant for instant in missing if instant > line.first]  # older ones were archived, if any that is done has stayed
    if not gone and not any(instant.time in done for instant in line.completed):
        gone = missing
    if gone:
        more = f" (nor {len(gone) - 1:,} of the later ones)" if len(gone) > 1 else ""
        raise RefusedError(
            f"{store.url} has no commit {gone[0]} any more{more}, and {dest} has its changes: it was rolled back, or the table was made "
            f"again. Nothing was read: {(repair and repair(gone)) or anew}"
        )


def repair_of(source: Commits, fold: Fold, log: Log) -> Repair:
    """How a destination, whose state `log` and `fold` have, takes back what it has of commits that are gone; "": it cannot."""

    def repair(gone: Sequence[str]) -> str:
        rows = fold.rows(log.store, ["path", "version"], among=pa.array([source.path(instant) for instant in gone]))
        numbers = rows.column("commit").unique().to_pylist()
        line = timeline.current(log.store)
        since = min((log.commit(number).tasks[-1].instant for number in numbers), default="")
        before = max((each.time for each in line.completed if each.time < since), default="")
        if not before or before < line.horizon:
            return ""
        url = plain(log.store.url)
        return f"quire.Table({url!r}).restore({before!r}) takes these changes back, and those after them come again. Or {_ANEW}"

    return repair


_ANEW = "pass it on into a new table, which begins with the rows that are there."


def _ends(e: RefusedError, dest: str, anew: str) -> RefusedError:
    return RefusedError(f"{changes.without_advice(e)}, and {dest} lacks them. Nothing was read: {anew}")


def _together(waiting: Sequence[str], looks: Sequence[Look]) -> tuple[str, ...]:
    """The first instants of those that wait of which a task can bring the changes of each partition together; the first one in any case."""
    sizes, last = Counter[str](), ""
    for instant, places in groupby(looks, key=lambda look: look.instant):
        for look in places:
            sizes[look.partition] += look.size
        if last and max(sizes.values()) > changes.TOGETHER:
            return tuple(waiting[: waiting.index(last) + 1])
        last = instant
    return tuple(waiting)


def _runs(looks: Sequence[Look]) -> tuple[tuple[Look, ...], ...]:
    """Places that are read together: of several commits those of a partition, where a key may come again."""
    if len({look.instant for look in looks}) < 2:
        return tuple((look,) for look in looks)
    parts = dict[str, list[Look]]()
    for look in looks:
        parts.setdefault(look.partition, []).append(look)
    return tuple(map(tuple, parts.values()))


def rows_of(store: Store, looks: Sequence[Look], columns: pa.Schema) -> Iterator[pa.Table]:
    """The changes of a run, both images, each key in at most one row of all; a table of some rows at a time.

    Raises RefusedError where files are gone.
    """
    found = (batch for look in looks for batch in changes.batches(store, look, columns, "both"))
    kind = changes.schema_of(columns, "both")
    try:
        if len({look.instant for look in looks}) > 1:
            found = iter(changes.net_of(pa.Table.from_batches(found, kind)).to_batches())
        yield from (changes.told(pa.Table.from_batches([batch], kind)) for batch in found if batch.num_rows)
    except RefusedError as e:
        raise RefusedError(f"{changes.without_advice(e)}. Call again; if that ends in the same way, {_ANEW}") from e


def newest_in(some: pa.Table) -> str:
    """The newest instant of some changes."""
    return str(pc.max(some.column(changes.INSTANT)).as_py())


def columns_of(text: str, where: str) -> pa.Schema:
    """The columns of the table's rows; none where nothing has been written yet."""
    return schema.without_meta(schema.from_avro(text, where)) if text else pa.schema([])


class CommitsKind:
    """Reads the changes of commits, and gives them to the function."""

    name, phase, noun = COMMITS, "reading changes", "commits"

    def plan(self, look: Looking) -> tuple[Listed, float]:
        """Read the timeline, and write the places of what is not done."""
        (source,) = look.wanted.roots
        assert isinstance(source, Commits)
        store = look.log.store
        with look.progress.phase("listing", total=1, unit="timeline") as bar:
            found = window(source, source.passed_on(look.fold, store), store.url, repair=repair_of(source, look.fold, look.log))
            bar.to(1)
        listed = Listed(files=found.listed, done=found.done, new=len(found.commits), later=Later(int(found.more)))
        if found.commits:
            _write(look, source, found, listed)
        return listed, 1.0

    def owns(self, path: str) -> bool:
        """Whether a path of the ledger is a commit's, or a file's."""
        return not is_kafka(path)

    def split(self, path: str, start: int) -> str:
        """A commit is named by its path."""
        return path

    def taken(self, files: int, records: int) -> str:
        """How much a call has taken."""
        return f"{files:,} commits were passed on"

    def report(self, roots: Sequence[Root], call: Calling, log: Log) -> dict[str, str]:
        """Where changes come from; none is ever quarantined."""
        return {"source": ", ".join(root.url for root in roots), "failure": "", "noun": self.noun}

    def attempt(self, attempt: Attempt, source: Root, runs: list[TaskRun]) -> None:
        """Read the changes of some runs."""
        head, process = attempt.work.head, attempt.work.convert.process
        if process is None or not isinstance(source, Commits):
            raise FormatError(f"the plan of job {head.job} names commits of a table, and this call reads none: it is damaged, or forged.")
        name = objects.plan_parquet(head.job, head.plan, _COLUMNS)
        columns = columns_of(attempt.store.get(name).decode(), f"{attempt.store.url}/{name}")
        store = source.store(attempt.retries.append)
        merging: Merging | None = None
        for run in runs:
            given, looks = _planned(attempt, source, run)
            if merging is None and any(look.sides for look in looks):
                table = Table(source.url, storage_options=source.options)
                merging = merging_of(table, table._timeline(store))
                if merging is None:
                    raise RefusedError(f"{source.url} was made again while its changes were read: nothing was passed on. Call again.")
            looks = [replace(look, sides=replace(look.sides, merging=merging)) if look.sides else look for look in looks]
            rows, written = [LedgerRow(*row) for row in given], False
            try:
                for some in rows_of(store, looks, columns) if looks else ():
                    last = newest_in(some)
                    made = process.call(some, FileInfo(source.url, 0, last), (0, some.num_rows), 1).rows
                    if isinstance(made, pa.RecordBatch) and made.num_rows:
                        made = attempt.output.fit(source.url, made)
                        attempt.output.writer.add(made)
                        attempt.rows.add([rows[0]._replace(length=0)] if written else rows, Record.of(made))
                        written = True
                        attempt.rows.flush()
            except BadContent as e:
                raise RefusedError(
                    f"the function failed at changes of {source.url} up to the instant {last}: {e.reason}. Later changes would overtake "
                    f"these, so none is passed on: repair it, and call again."
                ) from None
            if not written:
                attempt.rows.add(rows, None)
            attempt.tally.gathered += len(rows)
            attempt.tally.files_in += sum(row.start == 0 for row in rows)
            attempt.tally.bytes_in += sum(row.length for row in rows)


def _write(look: Looking, source: Commits, found: Window, listed: Listed) -> None:
    """Write the rows of a plan: first those of its commits, then each run of places."""
    store, written = look.log.store, listed.written
    object_name, numbers = objects.plan_parquet(look.job, look.plan, f"commits-{objects.new_id()}"), Counter[str]()
    rows: dict[str, list[Any]] = {f.name: [] for f in PLAN}

    def add(instant: str, size: int, follows: str | None) -> None:
        values = {
            "path": source.path(instant), "size": size, "version": instant, "modified": 0, "start": numbers[instant], "length": 1,
            "follows": follows,
        }  # fmt: skip
        for column, those in rows.items():
            those.append(values.get(column))
        numbers[instant] += 1

    def run(first: int, size: int) -> None:
        written.runs.append(asdict(TaskRun("", 0, object_name, 0, first, len(rows["path"]) - first, size)))
        written.bytes += size

    numbers[BEGIN] = 1  # it does not count as a commit
    for instant in found.commits:
        add(instant, 0, None)
    run(0, 1)
    for some in found.runs:
        first = len(rows["path"])
        for one in some:
            numbers[one.instant] = numbers[one.instant] or 1  # of a slice whose commit was archived, which has no row
            bare = replace(one, sides=replace(one.sides, merging=None)) if one.sides else one  # whoever reads it looks at the timeline
            add(one.instant, one.size, json.dumps(asdict(bare)))
        run(first, max(1, sum(one.size for one in some)))
    written.splits = len(rows["path"])
    put_table(store, object_name, pa.table(rows, PLAN))
    store.put(objects.plan_parquet(look.job, look.plan, _COLUMNS), found.columns.encode())


def _planned(attempt: Attempt, source: Commits, run: TaskRun) -> tuple[list[tuple[str, str, int, int]], list[Look]]:
    """The rows of a run, and the places of changes that they name; FormatError for what no planner of ours has written."""
    rows, looks = list[tuple[str, str, int, int]](), list[Look]()
    for found in read_rows(attempt.store, [run], _READ):
        for path, version, start, length, follows in zip(*(found.column(name).to_pylist() for name in _READ), strict=True):
            rows.append((path, version, start, length))
            try:
                look = None if follows is None else _look.decode(follows)
                if path != source.path(version) or not _INSTANT.fullmatch(version):
                    raise ValueError(f"{path[:200]!r} is not a commit of {source.url}")
                if look is not None:
                    looks.append(_checked(look, version))
            except ValueError as e:
                job = attempt.work.head.job
                raise FormatError(f"the plan of job {job} is damaged ({e}): nothing was read. Look who wrote it.") from e
    return rows, looks


def _checked(look: Look, instant: str) -> Look:
    for name in (look.file, *look.before, *look.after):
        if name and not (is_safe(name) and (name.startswith(f"{names.CHANGES}/") if name == look.file else _is_base(name))):
            raise ValueError(f"{name[:200]!r} is not a file of a table")
    for one in (*look.sides.before, *look.sides.after) if look.sides else ():
        for name in (*([one.name] if one.name else []), *one.logs):
            if not (is_safe(name) and names.file(name.rpartition("/")[2])):
                raise ValueError(f"{name[:200]!r} is not a file of a table")
    if look.sides and look.sides.merging is not None:
        raise ValueError("a place says how logs are merged, which the table says")
    if look.ended and not _INSTANT.fullmatch(look.ended):
        raise ValueError(f"a place ended at {look.ended[:40]!r}")
    if look.instant != instant:
        raise ValueError(f"a place of {look.instant[:40]!r} stands at {instant}")
    return look


def _is_base(name: str) -> bool:
    return names.base_file(name.rpartition("/")[2]) is not None
