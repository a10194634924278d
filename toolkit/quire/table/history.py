"""The history of a record: each of its versions that is still there, the write that made it, and the file in which it lies.

A file group is walked from its newest slice back. A row keeps the instant of the write that made it, so the slices between that instant
and the one that was read are passed over; of a base file without the key only the footer is read, and where its commit says that it has
deleted nothing, nothing older of its group.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from quire import display
from quire.errors import NotFoundError, RefusedError, UsageError, encodable, printable, quoted
from quire.formats import parquet
from quire.formats.damage import ARROW
from quire.storage import Entry, Store
from quire.table import changes, file_groups, merged_changes, reading, realtime, replacing
from quire.table import index as indexes
from quire.table.file_groups import Slice
from quire.table.format import cleaning, config, keys
from quire.table.format.change_file import DELETE, INSERT, UPDATE
from quire.table.format.config import TableConfig
from quire.table.format.names import BaseFile, LogFile
from quire.table.format.schema import META
from quire.table.index import Partition
from quire.table.index.lookup import KeyFile, Sought
from quire.table.realtime import Merging
from quire.table.timeline import PARALLEL, Timeline
from quire.table.write.commit import replaces

if TYPE_CHECKING:
    import pandas as pd

    from quire.table.table import Table

TIME, _, KEY = META[:3]
_COLUMNS = ["instant", "op", "operation", "partition", "file", "before", "after"]
_IN_BASE = ("bloom", "simple")  # indexes that look into base files, so each key of a log is in the base file of its slice
Group = tuple[str, str]  # partition and file group
Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class RecordHistory(display.Shown):
    """The history of a record of a table.

    dest      the table
    key       the record key, as Hudi stores it
    since     from this instant on the history is whole: what was before was cleaned or archived, and only some of it is still there;
              "": nothing is missing
    versions  a pandas DataFrame, the oldest first: `instant`, `op` (i, u, d: inserted, updated, deleted; None where nobody can tell any
              more what was there before), `operation` of the write, `partition`, `file` below the table, `before` and `after`:
              dictionaries, None where the row was not there
    files     how many base files and logs were read for it

        history = table.history("trip-7")  # a quire.RecordHistory
        history.versions[["instant", "op", "after"]]
    """

    dest: str
    key: str
    since: str
    versions: pd.DataFrame
    files: int

    def as_dict(self) -> dict[str, Any]:
        """Returns it with its versions as a list of dictionaries.

            json.dumps(table.history("trip-7").as_dict(), default=str)

        Their values are Python's.
        """
        return {**super().as_dict(), "versions": list(self.rows())}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Returns the versions as dictionaries.

            for version in history.rows():
                print(version["instant"], version["op"])

        The oldest comes first.
        """
        return ({str(name): value for name, value in row.items()} for row in self.versions.to_dict("records"))

    @property
    def alive(self) -> bool:
        """Whether the table has the record now."""
        latest = {row["partition"]: row["op"] for row in self.rows()}
        return any(op != DELETE for op in latest.values())

    @property
    def known(self) -> str:
        """From when on the history is known, in a sentence."""
        since = f"from {self.since} on; older ones were cleaned or archived, and some of them may be missing" if self.since else "all"
        if len(self.versions):
            return f"The table's changes of this record are known: {since}."
        return f"The record is not in the table, and was not there at any instant that is known ({since})."

    def __repr__(self) -> str:
        return f"RecordHistory({printable(self.key)!r}, changes={len(self.versions):,}, alive={self.alive})"

    def _facts(self) -> Mapping[str, object]:
        known = {"changes": f"{len(self.versions):,}", "now": "there" if self.alive else "not there", "files read": f"{self.files:,}"}
        return {"key": self.key, **known}

    def _note(self) -> str:
        told = [f"  {row['instant']} {row['op'] or '?'} {row['operation'] or ''} {row['after'] or ''}".rstrip() for row in self.rows()]
        return "\n".join(map(printable, [self.known, *told]))


@dataclass
class _Version:
    """A row that a file group had from the instant `time` on; `ended`: the instant at which it had another, or none; "": it has it.

    sure   nothing between it and its end is missing
    ending the file that has it no more
    """

    time: str
    row: Row
    file: str
    ended: str
    sure: bool = True
    ending: str = ""


def history(table: Table, key: Any, partition: Any) -> RecordHistory:
    """See `Table.history`."""
    import pandas as pd

    changes.check(table.config, table.url)
    logs = table.config.type == config.MERGE_ON_READ
    store = table._store
    line = table._timeline(store)
    columns = table._columns(line)
    text = key_of(key, table.config, columns, table.url)
    if not columns.names:  # nothing has been written yet
        return RecordHistory(table.url, text, "", pd.DataFrame(columns=_COLUMNS), 0)
    merging = realtime.merging_of(table.config, line, columns, table.url) if logs else Merging(line.holds())
    places = _Places(line, table.config, pa.array([text], pa.string()))
    reader = _Reader(store, table.config, line, merging, places.keys, merging.reads(columns))
    try:
        places.look(None if partition is None else replacing.check(partition, table.config, table.url), columns)
        rows = _told(places, reader)
    except NotFoundError as e:
        raise RefusedError(f"a file of {table.url} was cleaned while its history was read. Call again.") from e
    found = pd.DataFrame(rows, columns=_COLUMNS, dtype=object)
    return RecordHistory(table.url, text, places.since, found, len(reader.files))


def key_of(key: Any, has: TableConfig, columns: pa.Schema, url: str) -> str:
    """The record key as it is stored: text is taken as it is, other values as the columns of the key have them."""
    fields = has.key
    if isinstance(key, str) and key and encodable(key):
        return key
    values = key if isinstance(key, Mapping) else dict(zip(fields, key if isinstance(key, tuple) else (key,), strict=False))
    given = len(key) if isinstance(key, Mapping | tuple) else 1
    whole = not isinstance(key, str) or encodable(key)
    if key is None or key == "" or not whole or set(values) != set(fields) or given != len(fields):
        raise UsageError(f"key takes a value for each of the columns {', '.join(fields)} of {url}, and not {quoted(key)}.")
    try:
        types = {name: columns.field(name).type for name in fields if name in columns.names}
        row = pa.table({name: pa.array([values[name]], types.get(name)) for name in fields})
        return str(keys.record_keys(row, fields)[0].as_py())
    except (*ARROW, ValueError, TypeError, OverflowError, RefusedError) as e:
        raise UsageError(f"{quoted(key)} is not a key of {url}, which is made of {', '.join(fields)}.") from e


class _Places:
    """The file groups in which a key may be, or may have been.

    there    (partition, file group) → its files, also of slices that were superseded
    cleaned  the same → the instants of files that a clean has taken
    ends     instant → when it ended, where the timeline says it: from then on a log belongs to a slice
    since    the first instant as of which nothing of them is missing
    """

    def __init__(self, line: Timeline, has: TableConfig, keys: pa.Array) -> None:
        self.line, self.config, self.keys, self.since = line, has, keys, ""
        self.ends: Mapping[str, str] = {}
        self.there = dict[Group, list[tuple[BaseFile | LogFile, Entry]]]()
        self.cleaned = dict[Group, list[str]]()
        self._by_bucket = dict(has.others).get(indexes.TYPE, "").lower() == "bucket"
        self._buckets = dict[str, str]()

    def look(self, named: Sequence[Any] | None, columns: pa.Schema) -> None:
        """Find them in the partitions that are named, or in all."""
        there = file_groups.everything(self.line.store, self.line)
        self.ends = self.line.ends(file_groups.logged(there.values()))
        partitions = {partition for partition, _ in there}
        if named is not None:
            partitions = set(replacing.paths(named, self.config, columns, partitions, self.line.store.url))
        self.there = {group: files for group, files in there.items() if group[0] in partitions and self._may_hold(group)}
        left = self.line.left.writes if self.line.left else ()
        self.since = max([self.line.first, *left]) if self.line.archived else ""
        with ThreadPoolExecutor(PARALLEL) as pool:
            plans = list(pool.map(self.line.clean_of, cleans := sorted(self.line.cleans)))
        for clean, plan in zip(cleans, plans, strict=True):
            for partition, files in cleaning.planned(*plan).items():
                for file in files if partition in partitions or named is None else ():
                    self._took(clean, (partition, file.file_id), file.instant)

    def _may_hold(self, group: Group) -> bool:
        """Whether a file group may hold the key: of buckets the key says which."""
        partition, name = group
        if self._by_bucket and partition not in self._buckets:
            seen = Partition(self.line.store, self.config, partition, ())
            self._buckets[partition] = str(indexes.named("bucket").lookup(seen, self.keys)[0].as_py())[:8]
        return not self._by_bucket or name[:8] == self._buckets[partition]

    def _took(self, clean: str, group: Group, instant: str) -> None:
        """A clean has taken a file of a slice: the group is whole from its next slice on that is there."""
        if self._may_hold(group):
            self.cleaned.setdefault(group, []).append(instant)
            later = (each for each in self.begun(group) if each > instant)
            self.since = max(self.since, next(later, self.line.replaced.get(group, clean)))

    def begun(self, group: Group) -> list[str]:
        """The instants at which the slices of a file group begin; "" for logs before its first base file."""
        there = self.there.get(group, ())
        begun = sorted({file.instant for file, _ in there if isinstance(file, BaseFile)})
        first = min((self.time_of(file) for file, _ in there), default="")
        return ["", *begun] if there and (not begun or first < begun[0]) else begun

    def time_of(self, file: BaseFile | LogFile) -> str:
        """The time by which a file belongs to a slice."""
        return self.ends.get(file.instant, file.instant) if isinstance(file, LogFile) else file.instant

    def base_of(self, group: Group, instant: str) -> str:
        """The base file of a slice; "": it has logs alone."""
        return next((entry.name for file, entry in self.there[group] if isinstance(file, BaseFile) and file.instant == instant), "")

    def missing(self, group: Group, begin: str, end: str) -> bool:
        """Whether a clean has taken files between two slices that follow one another now."""
        return any(begin < instant < end for instant in self.cleaned.get(group, ()))


class _Reader:
    """The rows of the key in slices, and what commits say of them; `files`: all that were read."""

    def __init__(
        self, store: Store, has: TableConfig, line: Timeline, merging: Merging, keys: pa.Array, reads: pa.Schema
    ) -> None:  # fmt: skip
        self.store, self.config, self.line, self.merging, self.keys, self.reads = store, has, line, merging, keys, reads
        self.files = set[str]()
        self._compactions = line.compactions()
        self._in_base = dict(has.others).get(indexes.TYPE, "bloom").lower() in _IN_BASE
        self._writes = {each.time: each for each in line.completed}
        self._deleting = dict[str, frozenset[str] | None]()

    def states(
        self, group: Group, there: Iterable[tuple[BaseFile | LogFile, Entry]], ends: Mapping[str, str]
    ) -> list[tuple[str, Row | None, str]]:  # fmt: skip
        """The states of the key in the newest slice of some files, the oldest first: an instant, the row or None, and its file."""
        one = file_groups.slice_at(group, there, self.merging.holds, self._compactions, ends)
        if one is None:
            return []
        base = self._of_base(one) if one.name else self.reads.empty_table()
        found = [(one.instant, self._row(base), one.name)] if one.name else []
        if not one.logs or (self._in_base and one.name and not base.num_rows):
            return found
        self.files.update(one.logs)
        said = realtime.said_of(self.store, one, self.keys, self.reads, self.merging)
        for instant in sorted({instant for instant, _, _ in said}, key=lambda each: ends.get(each, each)):
            parts = [part for time, _, part in said if ends.get(time, time) <= ends.get(instant, instant)]
            file = next(name for time, name, _ in reversed(said) if time == instant)
            merged = realtime.together(parts, self.merging, self.store.url)
            rows = list(realtime.applied(base.to_batches(), merged, self.merging)) if merged else []
            found.append((instant, self._row(pa.Table.from_batches(rows, self.reads)), file))
        return found

    def _row(self, rows: pa.Table) -> Row | None:
        found: list[Row] = reading.as_python(rows.slice(0, 1), self.store.url)
        return found[0] if found else None

    def _of_base(self, one: Slice) -> pa.Table:
        """The row of the key in a base file, or none."""
        self.files.add(one.name)
        file, sought = KeyFile(self.store, one), Sought(Partition(self.store, self.config, one.partition, ()), self.keys)
        places = file.near(sought)
        if len(places) and (keys_filter := file.footer.keys_filter()) is not None:
            places = places[keys_filter.might_contain(self.keys)]
        groups = file.groups(sought, places) if len(places) else {}
        if not groups:
            return self.reads.empty_table()
        where = f"{self.store.url}/{one.name}"
        with reading.reading_of(where):
            opened = parquet.open_file(self.store, one.name)
        rows = reading.row_group(opened, min(groups), self.reads, where)
        return rows.filter(pc.equal(rows.column(KEY), self.keys[0])).slice(0, 1)

    def deletes_none(self, group: Group, instant: str) -> bool:
        """Whether the commit of a base file says that it has deleted no row of its file group."""
        if instant not in self._deleting:
            self._deleting[instant] = self._deletes_of(instant)
        deletes = self._deleting[instant]
        return deletes is not None and group[1] not in deletes

    def _deletes_of(self, instant: str) -> frozenset[str] | None:
        """The file groups in which a commit has deleted rows; None: any of them, as nobody knows or it has merged logs."""
        if (completed := self._writes.get(instant)) is None:
            return None
        commit = self.line.commit(completed)
        if self.config.type == config.MERGE_ON_READ and merged_changes.moves(completed, commit):
            return None
        return frozenset(stat.file_id for _, stat, _ in commit.files() if stat.num_deletes)

    def follows(self, group: Group, before: str, instant: str) -> bool:
        """Whether a slice has followed the one before it at once; where instants are archived, cleans may be, too: its commit says it."""
        if not self.line.archived:
            return True
        completed = self._writes.get(instant)
        commit = self.line.commit(completed) if completed else None
        own = [stat for partition, stat, _ in commit.files() if (partition, stat.file_id) == group] if commit else []
        return any(replaces(stat) in (before, None) for stat in own)

    def operations(self, instants: set[str]) -> dict[str, str]:
        """Instant → the operation of its commit, where that is on the timeline and says it."""
        known = [self._writes[instant] for instant in sorted(instants) if instant in self._writes]
        pairs = zip(known, self.line.commits(known), strict=True)
        return {each.time: commit.operation_type.lower() for each, commit in pairs if commit.operation_type}


def _told(places: _Places, reader: _Reader) -> list[dict[str, Any]]:
    """Each change of the record, in the order in which instants count."""
    found, groups = dict[str, list[_Version]](), sorted(places.there)
    with ThreadPoolExecutor(PARALLEL) as pool:
        for (partition, _), versions in zip(groups, pool.map(lambda group: _walk(places, reader, group), groups), strict=True):
            found.setdefault(partition, []).extend(versions)
    rows = [row for partition in sorted(found) for row in _changes(partition, _once(found[partition], places.ends), places.since)]
    operations = reader.operations({row["instant"] for row in rows})
    told = [row | {"operation": operations.get(row["instant"])} for row in rows]
    ends = places.line.ends(())
    return sorted(told, key=lambda row: (ends.get(row["instant"], row["instant"]), row["partition"]))


def _walk(places: _Places, reader: _Reader, group: Group) -> list[_Version]:
    """The versions that one file group has, or had, the newest first."""
    begun, found = places.begun(group), list[_Version]()
    at, end, ending, sure = len(begun) - 1, places.line.replaced.get(group, ""), "", True
    while at >= 0:
        until = begun[at + 1] if at + 1 < len(begun) else "~"
        oldest: _Version | None = None  # the row at the beginning of the slice
        there = [each for each in places.there[group] if places.time_of(each[0]) < until]
        for time, row, file in reversed(reader.states(group, there, places.ends)):
            if row is None:
                oldest, end, ending = None, time, file
                continue
            made = str(row[TIME])
            if found and found[-1].time == made:
                found[-1].file = file
            else:
                shown = {name: value for name, value in row.items() if name not in META}
                found.append(_Version(made, shown, file, end, sure, ending))
            oldest, end, ending, sure = found[-1], made, "", True
        if oldest is not None and (since := places.ends.get(oldest.time, oldest.time)) < begun[at]:
            at = min(at - 1, bisect_right(begun, since) - 1)  # it is the same in all slices between
            continue
        if oldest is None:  # where a commit has deleted nothing, the slice before it lacks the key, too
            while at and not places.missing(group, begun[at - 1], begun[at]) and reader.deletes_none(group, begun[at]):
                at -= 1
                end, ending = begun[at], places.base_of(group, begun[at])
        if at:
            follows = not places.missing(group, begun[at - 1], begun[at]) and reader.follows(group, begun[at - 1], begun[at])
            sure = sure and follows
        at -= 1
    return found


def _once(versions: Iterable[_Version], ends: Mapping[str, str]) -> list[_Version]:
    """The versions of a partition in their order, each once: clustering has moved some into other file groups."""
    found = dict[str, _Version]()
    for one in sorted(versions, key=lambda each: ends.get(each.time, each.time)):
        other = found.setdefault(one.time, one)
        if other is not one:
            last = one if not one.ended or (other.ended and one.ended > other.ended) else other
            first = min(one, other, key=lambda each: each.file.rpartition("_")[2])
            found[one.time] = dataclasses.replace(last, file=first.file)
    return list(found.values())


def _changes(partition: str, versions: Sequence[_Version], since: str) -> Iterator[dict[str, Any]]:
    begun = {one.time for one in versions}
    for one in versions:
        before = next((each for each in versions if each.ended == one.time), None)
        whole = before.sure if before else one.time > since
        op = None if not whole else UPDATE if before else INSERT
        was = before.row if before and whole else None
        yield {"instant": one.time, "op": op, "partition": partition, "file": one.file, "before": was, "after": one.row}
        if one.ended and one.ended not in begun:
            gone = {"op": DELETE, "file": one.ending or None, "before": one.row, "after": None}
            yield {"instant": one.ended, "partition": partition, **gone}
