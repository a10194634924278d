"""The rows that commits have changed, in a window of the timeline, with those that they have deleted, and as they were before.

Commits of quire's name change files, of which only these rows are read. For other writers' commits the base file that was written is
compared with the one that it replaced. Source of the rules: Hudi's CDC query, and its handles, which keep a row's commit time where the row
stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quire.errors import FormatError, NotFoundError, RefusedError, UsageError, scrub
from quire.formats import parquet
from quire.spark.releases import from_arrow_schema
from quire.spark.runner import frame_of, parallelism
from quire.spark.shipping import portable
from quire.storage import Store, connect
from quire.storage.within import marked
from quire.table import file_groups, merged_changes, reading, window
from quire.table.file_groups import Slice
from quire.table.format import change_file, names
from quire.table.format.change_file import AFTER, BEFORE, CHANGED_KEY, DELETE, INSERT, OP, UPDATE
from quire.table.format.commits import CommitMetadata, WriteStat
from quire.table.format.config import TableConfig
from quire.table.format.names import Instant
from quire.table.format.schema import META, with_meta
from quire.table.merged_changes import Past, Sides
from quire.table.realtime import Merging
from quire.table.timeline import Timeline
from quire.table.write.commit import has_change_file, replaces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Images = Literal["after", "both"]
IMAGES: tuple[str, ...] = get_args(Images)
TIME, _, KEY, PARTITION, _ = META
INSTANT = "instant"
_CLUSTER = "CLUSTER"  # moves rows and changes none
_ELSE = ". Ask for changes since "
SHARE = 2 << 20  # bytes of files that one task reads at least
TOGETHER = 32 << 20  # bytes of the files of a partition, whose changes one task brings together; some four times as many as rows
_Taken = Mapping[tuple[str, str], Sequence[names.BaseFile | names.LogFile]]  # files, by their partition and file group


@dataclass(frozen=True)
class Look:
    """Where some changes of one commit are found: in a change file of so many rows, else by comparing base files with others.

    size   bytes that its rows may have in files, with both images
    ended  when the commit ended, where that orders it
    """

    instant: str
    partition: str
    file: str = ""
    rows: int = 0
    size: int = 0
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    sides: Sides | None = None  # of a merge-on-read table: slices to compare
    ended: str = ""


def schema_of(columns: pa.Schema, images: Images) -> pa.Schema:
    """The columns of changes: what happened, at which instant, to which key of which partition, and its row before and after."""
    kind = change_file.image(columns)
    said = [(OP, pa.string()), (INSTANT, pa.string()), (PARTITION, pa.string()), (KEY, pa.string())]
    return pa.schema([*said, *([(BEFORE, kind)] if images == "both" else []), (AFTER, kind)])


def check(has: TableConfig, url: str) -> None:
    """RefusedError for a table whose changes quire does not give."""
    if not has.meta_fields:
        raise RefusedError(f"{url} has no meta fields in its rows (populate.meta.fields=false), so nothing says what changed.")


def looks(store: Store, line: Timeline, since: str, until: str, merging: Merging | None = None) -> list[Look]:
    """All places of changes after `since`, up to `until`, in the order in which they count. Raises RefusedError where some are gone.

    `merging`: how a merge-on-read table merges its logs.
    """
    return looks_of(store, line, window.writes(line, since, until), merging)


def looks_of(store: Store, line: Timeline, asked: Sequence[Instant], merging: Merging | None = None) -> list[Look]:
    """The places of the changes of some completed instants, in their order."""
    ended, found = {each.time: each.ended for each in asked}, _looks_of(store, line, asked, merging)
    return [replace(look, ended=ended[look.instant]) if ended[look.instant] else look for look in found]


def _looks_of(store: Store, line: Timeline, asked: Sequence[Instant], merging: Merging | None) -> list[Look]:
    known: dict[tuple[str, str], list[Slice]] | None = None
    taken: _Taken = {}
    found = list[Look]()
    pairs = zip(asked, line.commits(asked), strict=True)
    if merging is not None:
        past = Past(store, line, lambda instant, what: _gone(store, instant, what)) if asked else None
        return [look for each in pairs if past and not merged_changes.moves(*each) for look in _of_sides(past, *each, merging)]
    for instant, commit in pairs:
        if commit.operation_type == _CLUSTER:
            continue
        rest = list[tuple[str, WriteStat]]()
        for partition, stat, name in commit.files():
            if not isinstance(name, names.BaseFile):
                raise RefusedError(f"{store.url} has log files at the instant {instant.time}: quire reads changes of copy-on-write tables.")
            if instant.action == "commit" and replaces(stat) is None:
                found.append(Look(instant.time, partition, size=stat.total_write_bytes, after=(str(stat.path),)))
            elif has_change_file(commit, stat):
                found.append(_changed_in(instant, partition, stat))
            else:
                rest.append((partition, stat))
        if rest or commit.replaced:
            if known is None:
                known, taken = file_groups.history(store, line), merged_changes.cleaned(line)
            found += _compared(store, known, taken, instant, commit, rest)
    return found


def _of_sides(past: Past, instant: Instant, commit: CommitMetadata, merging: Merging) -> Iterator[Look]:
    """The places of changes of one commit of a merge-on-read table: a change file, or the slices before it and after it."""
    groups = dict[tuple[str, str], list[WriteStat]]()
    for partition, stat, name in commit.files():
        groups.setdefault((partition, name.file_id), []).append(stat)
    for partition in sorted(commit.replaced):
        own = [group for each, group in groups if each == partition]
        sides = past.replaced(instant, partition, own, commit.replaced[partition], merging)
        yield Look(instant.time, partition, size=sides.size, sides=sides)
    for (partition, group), stats in groups.items():
        if partition in commit.replaced:
            continue
        if len(stats) == 1 and names.base_file(str(stats[0].path).rpartition("/")[2]) and has_change_file(commit, stats[0]):
            yield _changed_in(instant, partition, stats[0])
        else:
            sides = past.sides(instant, (partition, group), stats, merging)
            yield Look(instant.time, partition, size=sides.size, sides=sides)


def _changed_in(instant: Instant, partition: str, stat: WriteStat) -> Look:
    rows = stat.num_inserts + stat.num_update_writes + stat.num_deletes
    size = 2 * rows * stat.total_write_bytes // max(1, stat.num_writes)
    return Look(instant.time, partition, names.change_file_of(str(stat.path)), rows, size)


def _compared(
    store: Store, known: Mapping[tuple[str, str], list[Slice]], taken: _Taken, instant: Instant, commit: CommitMetadata,
    rest: list[tuple[str, WriteStat]],
) -> Iterator[Look]:  # fmt: skip
    """Base files to compare: each with the one that it replaced; where groups end, all of a partition together, as rows move.

    `taken`: the files that cleans have taken. A savepoint may hold one that is older than these.
    """

    def last(partition: str, group: str, at: str | None) -> Slice:
        key = partition, group
        before = [each for each in known.get(key, ()) if each.instant < instant.time]
        if (
            not before or (at is not None and before[-1].instant != at)
            or any(before[-1].instant < file.instant < instant.time for file in taken.get(key, ()))
        ):  # fmt: skip
            raise _gone(store, instant.time, f"the file of {group} in {partition!r} before it")
        return before[-1]

    if instant.action == "commit":
        for partition, stat in rest:
            yield _comparing(instant, partition, [last(partition, stat.file_id, replaces(stat))], [stat])
        return
    for partition in sorted({partition for partition, _ in rest} | commit.replaced.keys()):
        own = [stat for each, stat in rest if each == partition]
        ended = [last(partition, group, None) for group in commit.replaced.get(partition, ())]
        rewritten = [last(partition, stat.file_id, at) for stat in own if (at := replaces(stat)) is not None]
        yield _comparing(instant, partition, [*ended, *rewritten], own)


def _comparing(instant: Instant, partition: str, before: Sequence[Slice], after: Sequence[WriteStat]) -> Look:
    size = sum(one.size for one in before) + sum(stat.total_write_bytes for stat in after)
    return Look(instant.time, partition, size=size, before=tuple(one.name for one in before), after=tuple(str(stat.path) for stat in after))


def _gone(store: Store, instant: str, what: str) -> RefusedError:
    return RefusedError(
        f"the changes of {store.url} at the instant {instant} cannot be read any more: {what} was cleaned{_ELSE}{instant} or later, or "
        f"read a snapshot."
    )


def without_advice(e: RefusedError) -> str:
    """The words of such an error about what has happened, for a call that gives other advice."""
    return str(e).partition(_ELSE)[0]


# ------------------------------------------------------------------------------------------------------------------ the rows of a look
def batches(store: Store, look: Look, columns: pa.Schema, images: Images) -> Iterator[pa.RecordBatch]:
    """The changes of one place, as `schema_of` has them; of one commit, so each key once.

    Where commits are ordered by when they ended, that stands before their instant, so that these ascend, too: `told` takes it away.
    """
    wanted, instant = schema_of(columns, images), f"{look.ended}_{look.instant}" if look.ended else look.instant
    try:
        if look.sides is not None:
            found = merged_changes.rows(store, look.sides, columns)
        else:
            found = _of_file(store, look, columns, images) if look.file else _of_slices(store, look, columns)
        for op, keys, before, after in found:
            n, kind = len(keys), wanted.field(AFTER).type
            ops = pa.repeat(pa.scalar(op), n) if isinstance(op, str) else op
            made = [ops, *(pa.repeat(pa.scalar(each), n) for each in (instant, look.partition)), keys]
            shown = (before, after) if images == "both" else (after,)
            made += [each if isinstance(each, pa.ChunkedArray) else change_file.as_image(each, n, kind) for each in shown]
            yield from pa.table(made, schema=wanted).to_batches()
    except NotFoundError as e:
        raise _gone(store, look.instant, f"what they lie in ({scrub(str(e).rstrip('.'), 300)})") from e


_Found = Iterator[tuple[Any, Any, Any, Any]]  # op or ops, keys, before, after: rows, structs, or None


def _of_file(store: Store, look: Look, columns: pa.Schema, images: Images) -> _Found:
    where, kind = f"{store.url}/{look.file}", change_file.image(columns)
    with reading.reading_of(where):
        file = parquet.open_file(store, look.file)
        if file.schema_arrow.names != [OP, CHANGED_KEY, BEFORE, AFTER]:
            raise FormatError(f"{where} has the columns {file.schema_arrow.names[:9]}, and is not a change file: look who writes there")
        if file.metadata.num_rows != look.rows:
            raise FormatError(
                f"{where} holds {file.metadata.num_rows:,} rows, and its commit has changed {look.rows:,}: look who writes there"
            )
        shown = [BEFORE, AFTER] if images == "both" else [AFTER]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group, [OP, CHANGED_KEY, *shown])
            made = {name: _as_now(rows.column(name), kind) for name in shown}
            yield rows.column(OP).cast(pa.string()), rows.column(CHANGED_KEY).cast(pa.string()), made.get(BEFORE), made[AFTER]


def _as_now(structs: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Images with the columns that the table has now: one that came later is null."""
    if structs.type == kind:
        return structs
    there = [structs.type.field(i).name for i in range(structs.type.num_fields)]
    made = []
    for chunk in structs.chunks:
        fields = [kind.field(i) for i in range(kind.num_fields)]
        values = [chunk.field(there.index(f.name)).cast(f.type) if f.name in there else pa.nulls(len(chunk), f.type) for f in fields]
        made.append(pa.StructArray.from_arrays(values, fields=fields, mask=pc.is_null(chunk)))
    return pa.chunked_array(made, kind)


def _of_slices(store: Store, look: Look, columns: pa.Schema) -> _Found:
    """Rows inserted, updated and deleted between base files and others."""
    whole = pa.schema([f for f in with_meta(columns) if f.name in columns.names or f.name == KEY])
    if not look.before:
        for name in look.after:
            for batch in reading.batches(store, name, whole):
                rows = pa.Table.from_batches([batch])
                yield INSERT, rows.column(KEY), None, rows
        return
    narrow = pa.schema([(KEY, pa.string()), (TIME, pa.string())])
    old, new = (_read(store, names, narrow) for names in (look.before, look.after))
    if old.column(KEY).null_count or new.column(KEY).null_count:
        raise FormatError(f"{store.url}/{(look.before + look.after)[0]} has rows without a key: look who wrote it.")
    at = pc.index_in(new.column(KEY), value_set=old.column(KEY)).combine_chunks()
    there = np.asarray(pc.is_valid(at))
    gone = ~np.asarray(pc.is_in(old.column(KEY), value_set=new.column(KEY)), bool)  # also of a key that was there twice
    met = np.asarray(at.drop_null(), np.int64)
    same = np.asarray(pc.equal(new.column(TIME).filter(pa.array(there)), old.column(TIME).take(pa.array(met))).fill_null(False), bool)
    updated = np.zeros(new.num_rows, bool)
    updated[np.flatnonzero(there)[~same]] = True
    was = np.zeros(old.num_rows, bool)
    was[met[~same]] = True
    for op, before, after in ((UPDATE, was, updated), (INSERT, None, ~there), (DELETE, gone, None)):
        past, now = (
            None if which is None else _read(store, files, whole, which).sort_by(KEY)
            for files, which in ((look.before, before), (look.after, after))
        )  # fmt: skip
        if past is not None and now is not None:  # a key that is there twice has its row before twice
            past = past.take(pc.index_in(now.column(KEY), value_set=past.column(KEY)))
        some = past if now is None else now
        if some is not None and some.num_rows:
            yield op, some.column(KEY), past, now


def _read(store: Store, files: Sequence[str], columns: pa.Schema, which: Any = None) -> pa.Table:
    """Rows of base files one after another; `which`: flags of those that are wanted."""
    found, start = list[pa.RecordBatch](), 0
    for name in files:
        for batch in reading.batches(store, name, columns):
            end = start + batch.num_rows
            found.append(batch if which is None else batch.filter(pa.array(which[start:end])))
            start = end
    return pa.Table.from_batches(found, columns)


# --------------------------------------------------------------------------------------------------------------------- all of them
def table(store: Store, found: Sequence[Look], columns: pa.Schema, images: Images, *, net: bool) -> pa.Table:
    """The changes in this process."""
    rows = pa.Table.from_batches((b for look in found for b in batches(store, look, columns, images)), schema_of(columns, images))
    return net_of(rows) if net and len({look.instant for look in found}) > 1 else told(rows)


def told(rows: Any) -> Any:
    """Rows of a table or a batch with their instant alone."""
    at = rows.schema.get_field_index(INSTANT)
    if not rows.num_rows or "_" not in rows.column(at)[0].as_py():
        return rows
    return rows.set_column(at, rows.schema.field(at), pc.replace_substring_regex(rows.column(at), r"^\d+_", ""))


def net_of(rows: pa.Table) -> pa.Table:
    """One change for each key, from how it was before the first one to how it is after the last one."""
    n = rows.num_rows
    if not n:
        return rows
    by = rows.select([PARTITION, KEY, INSTANT])
    order = pc.sort_indices(by, [(name, "ascending") for name in (PARTITION, KEY, INSTANT)])
    by, begins = by.take(order), np.ones(n, bool)
    for i, name in enumerate((PARTITION, KEY)):
        column = by.column(name)
        other = np.asarray(pc.not_equal(column.slice(1), column.slice(0, n - 1)))
        begins[1:] = other if i == 0 else begins[1:] | other
    places, first = np.asarray(order), np.flatnonzero(begins)
    ends = np.append(first[1:], n) - 1
    starts, ends = pa.array(places[first]), pa.array(places[ends])
    was, stays = pc.not_equal(rows.column(OP).take(starts), INSERT), pc.not_equal(rows.column(OP).take(ends), DELETE)
    stands = pc.or_(was, stays)
    starts, ends, was, stays = (each.filter(stands.combine_chunks()) for each in (starts, ends, was, stays))
    made = rows.take(ends).set_column(0, OP, pc.if_else(was, pc.if_else(stays, UPDATE, DELETE), INSERT))
    if BEFORE in made.column_names and not starts.equals(ends):
        made = made.set_column(made.column_names.index(BEFORE), BEFORE, rows.column(BEFORE).take(starts))
    return told(made)


def frame(
    spark: SparkSession, store: Store, options: Mapping[str, Any] | None, found: Sequence[Look], columns: pa.Schema, images: Images, *,
    net: bool,
) -> DataFrame:  # fmt: skip
    """The changes as a Spark DataFrame, read by its tasks."""
    url = store.url
    try:
        kinds = from_arrow_schema(schema_of(columns, images))
    except Exception as e:  # of pyspark
        raise UsageError(f"Spark has no such columns as {url} has: {scrub(str(e), 200)}. Read it with spark=quire.LocalRunner().") from e

    netted = net and len({look.instant for look in found}) > 1
    apart = netted and max(sum(look.size for look in some) for some in _by_partition(found)) > TOGETHER
    shares = _shares(_by_partition(found) if netted and not apart else [[look] for look in found], parallelism(spark))

    def read(i: int) -> Iterator[pa.RecordBatch]:
        opened = connect(marked(url), options)
        rows = (batch for look in shares[i] for batch in batches(opened, look, columns, images))
        if netted and not apart:
            return iter(net_of(pa.Table.from_batches(rows, schema_of(columns, images))).to_batches())
        return rows if apart else map(told, rows)

    rows = frame_of(spark, len(shares), read, kinds, url)
    if not apart:
        return rows
    # Too many for one task: Spark brings the changes of a key together.
    near = rows.repartition(PARTITION, KEY).sortWithinPartitions(PARTITION, KEY, INSTANT)
    return near.mapInArrow(portable(spark, net_of_sorted), kinds)


def _by_partition(found: Sequence[Look]) -> list[list[Look]]:
    """The places of each partition, where all changes of its keys are."""
    partitions = dict[str, list[Look]]()
    for look in found:
        partitions.setdefault(look.partition, []).append(look)
    return list(partitions.values())


def _shares(parts: Sequence[list[Look]], at_once: int) -> list[list[Look]]:
    """The places that each task reads, of whole parts: little goes to few tasks, as to start one takes longer than to read a megabyte."""
    shares, most = list[list[Look]](), max(SHARE, min(TOGETHER // 4, sum(look.size for part in parts for look in part) // at_once))
    size = most
    for part in parts:
        if size >= most:
            shares.append([])
            size = 0
        shares[-1].extend(part)
        size += sum(look.size for look in part)
    return shares


def net_of_sorted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The net changes of rows that are sorted by partition, key and instant; held are those of a batch, and of the key before it."""
    left: pa.Table | None = None
    for batch in batches:
        rows = pa.Table.from_batches([batch])
        rows = pa.concat_tables([left, rows]) if left is not None else rows
        if not rows.num_rows:
            continue
        last = pc.and_(*(pc.equal(rows.column(name), rows.column(name)[-1]) for name in (PARTITION, KEY)))
        ends = rows.num_rows - pc.sum(last).as_py()
        yield from net_of(rows.slice(0, ends)).to_batches()
        left = rows.slice(ends)
    if left is not None:
        yield from net_of(left).to_batches()
