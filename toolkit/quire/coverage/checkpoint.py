"""Writes checkpoints, and sweeps what they have merged.

A checkpoint is the fold at a settled version: what of it was folded can never change. The rows of all segments, and of the checkpoint
before, are merged by ranges of paths, a range a task of the runner, so the driver holds no row but the newest ones, where a loop has them.
A piece that is long enough and that nothing has touched since is copied as it is: a loop for years appends, and need not sort its old rows
again and again. Pieces come first, under names that this writer alone uses, the head last: a writer that dies has written nothing that
counts. Anyone may write one at any time.

Segments stay as long as a version may be read for which no checkpoint stands in, and for a time after that, for those who had begun to
read before (`sweep`).
"""

from __future__ import annotations

import bisect
import functools
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import archive, checkpoints, names, protocol, retire
from quire.commit.checkpoints import FILES, HISTORY_ROWS, INSTANTS, MERGED, Checkpoint, CheckpointPiece, KeyRun, Totals, digest, intact
from quire.commit.entries import encode
from quire.commit.exports import exports
from quire.commit.history import HISTORY, history_row
from quire.commit.log import Log
from quire.coverage import keys, segments
from quire.coverage.fold import Fold, Source, fold
from quire.coverage.live import live, totals
from quire.coverage.near import Near
from quire.errors import QuireError
from quire.spark.runner import Failure, Runner
from quire.storage import Store, connect, remove_all

PIECE_ROWS = 500_000  # about that many in a piece: some 150 MB of a task's memory
TABLE_ROWS = 100_000  # in a piece of the driver's tables
GRACE = 24 * 3600.0  # seconds for which those who had begun to read may go on
# When enough has gathered since the last one: so that opening reads few entries, and a row is written few times again.
ENTRIES, SEGMENTS, ROWS, SHARE = 1_000, 1_000, 500_000, 4
SOON, AGE = 100, 3600.0  # segments that are enough where the last one is so many seconds old: planning may read each of them
LONG = 20_000_000  # rows
LOOK = 10_000  # entries after which a checkpoint looks which segments are gone


def due(log: Log) -> bool:
    """Whether so much has gathered since the newest checkpoint that another one is worth its writing."""
    rows = log.base.totals.ledger_rows if log.base else 0
    commits = [commit for _, commit in log.recent()]
    recent = [t for commit in commits for t in commit.tasks]
    new = sum(t.stats.rows + t.stats.restated for t in recent)
    often = max(1, rows // LONG)  # a long ledger is written again less often
    many = log.tip - log.merged >= ENTRIES * often or len(recent) >= (SOON if _old(log.base) else SEGMENTS) * often
    # Entries of readers' pins count as any: whoever opens the ledger reads them all.
    return bool(commits or log.base) and (many or new >= max(ROWS, rows // SHARE))


def _old(base: Checkpoint | None) -> bool:
    try:
        return base is None or time.time() - datetime.fromisoformat(base.time).timestamp() > AGE
    except (ValueError, OverflowError):
        return True  # it does not say when it was written


def keep_up(runner: Runner, url: str, options: Any, log: Log, say: Callable[[str], object], near: Near | None = None) -> None:
    """Write a checkpoint where one is due. The call that asks for it has done its work: what goes wrong here is told, and tried again."""
    if due(log):
        try:
            write(runner, url, options, log.store, near)
        except QuireError as e:
            say(f"the ledger's checkpoint was not written, the next call tries again: {e}")


def write(runner: Runner, url: str, options: Any, store: Store, near: Near | None = None) -> Checkpoint | None:
    """Write a checkpoint of the newest settled version; the newest one that there is then. None: nothing was ever committed.

    `near`: the newest rows, of a call that holds them; else the segments are read.
    """
    while True:
        log = Log(store).refresh()
        version = log.settled_version()
        if version <= log.merged or not any(True for _ in log.commits(until=version)):
            return log.base
        try:
            head = _pieces(runner, url, options, log.cut(version), names.new_id(), near or Near())
        except QuireError:
            if not checkpoints.replaced(store, log.base):
                raise
            continue  # others have written one, and what this one would have been made of is swept
        if not checkpoints.replaced(store, log.base):  # else it may name keys that another one has merged
            store.put_if_absent(head.head, encode(head))
            return checkpoints.newest(store)


def _pieces(runner: Runner, url: str, options: Any, log: Log, made: str, near: Near) -> Checkpoint:
    folded = fold(log)
    version, store = log.tip, log.store
    rows = _merged(runner, url, options, log, folded, made, near)

    def put(kind: str, tables: Iterable[pa.Table]) -> tuple[CheckpointPiece, ...]:
        return tuple(_put(store, names.checkpoint_piece(version, made, kind, i), table) for i, table in enumerate(tables))

    archived = min(log.archive.look(), version - version % archive.BLOCK)
    saying = log.saying()
    decided = log.decided(saying.job) if saying else None
    said, filling = decided[0] if decided else 0, log.filling()
    return Checkpoint(
        version=version, id=made, time=protocol.now(), totals=totals(log, folded), first=next((n for n, _ in log.commits()), 0),
        said=said, filled=filling[0] if filling else 0, holds=log.holds(), by_content=log.by_content(), target=log.target(),
        on_append=log.on_append(), schemas=tuple(sorted(log.schemas())), committers=tuple(sorted(log.committers())),
        frozen=log.frozen(), source=log.source(), reads=log.reads(), writes=log.writes(),
        deduplicates=log.deduplicates(), keys=_keys(runner, url, options, log, made),
        transforms=tuple(sorted(log.transforms())),
        expired=log.expired(), away=retire.away(log), retired=retire.retired(log),
        superseding=tuple(each.number for each in retire.superseding(log)),
        keep=retire.wish(log), pins=log.pins(), exports=tuple(exports(log).values()), rows=rows, archived=archived,
        history=tuple(_history(log, made, archived)),
        files=put("files", _tables(FILES, (tuple(getattr(f, c) for c in _LIVE) for f in live(log, folded)))),
        merged=put("merged", _named(log)), instants=put("instants", _tables(INSTANTS, log.instant_rows())),
    )  # fmt: skip


_OF_PIECE = ("rows", "first", "last", "quarantined", "held", "checksum")
_LIVE = ("name", "size", "records", "number", "verb", "task", "directory", "first", "last")  # as `FILES` has them


def _tables(schema: pa.Schema, rows: Iterator[tuple[Any, ...]]) -> Iterator[pa.Table]:
    while some := list(itertools.islice(rows, TABLE_ROWS)):
        yield pa.table([pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), schema, strict=True)], schema=schema)


def _history(log: Log, made: str, archived: int) -> Iterator[CheckpointPiece]:
    """The pieces of the history, which has the rows of the entries that are not archived."""
    base, full = log.base, log.merged // HISTORY_ROWS
    for i, piece in enumerate(base.history[:full] if base else ()):  # they can never change, but for what is archived since
        if archived >= (i + 1) * HISTORY_ROWS or not piece.rows:
            yield CheckpointPiece(0, 0)
        elif base is not None and (archived > max(base.archived, i * HISTORY_ROWS) or not piece.checksum):
            yield _put_history(log, made, i, archived, next(base.tables(log.store, "history", HISTORY, first=i)))
        elif base is not None:
            copied = intact(log.store, base.pieces("history", i)[0][0], piece.checksum)
            log.store.put(names.checkpoint_piece(log.tip, made, "history", i), copied)
            yield piece
    before = list(base.tables(log.store, "history", HISTORY, first=full)) if base else []
    recent = (history_row(number, entry) for number, entry in enumerate(log.since(log.merged), log.merged + 1))
    table = pa.concat_tables([HISTORY.empty_table(), *before, *_tables(HISTORY, recent)])
    for i in range(full, -(-log.tip // HISTORY_ROWS)):
        yield _put_history(log, made, i, archived, table)


def _put_history(log: Log, made: str, number: int, archived: int, table: pa.Table) -> CheckpointPiece:
    """A piece of the history, of a table that has its rows."""
    version = table.column("version")
    after = max(number * HISTORY_ROWS, archived)
    mine = table.filter(pc.and_(pc.greater(version, after), pc.less_equal(version, (number + 1) * HISTORY_ROWS)))
    return _put(log.store, names.checkpoint_piece(log.tip, made, "history", number), mine) if mine.num_rows else CheckpointPiece(0, 0)


def _named(log: Log) -> Iterator[pa.Table]:
    """The segments, quarantine files and parts that the log names up to its tip and that are still there, with the naming commits.

    A loop leaves one in each of its runs for a day, and all of them are listed to learn which are gone: now and then, as nobody is misled
    by the name of one that is gone.
    """
    before = log.base.table(log.store, "merged", MERGED) if log.base else MERGED.empty_table()
    if before.num_rows and log.tip // LOOK != log.merged // LOOK:
        there = [e.name for folder in (names.LEDGER, names.QUARANTINE, names.PARTS) for e in log.store.walk(folder)]
        before = before.filter(pc.is_in(before.column("name"), pa.array(there, pa.string())))
    since = itertools.chain(
        log.parts(), ((name, number) for number, commit in log.recent() for task in log.kept(commit) for name in task.coverage.objects)
    )
    named = pa.concat_tables([before, *_tables(MERGED, since)])
    yield from (named.slice(at, TABLE_ROWS) for at in range(0, named.num_rows, TABLE_ROWS))


def _folders(log: Log) -> dict[str, str]:
    """The directories that the tasks of attempts were kept apart for."""
    return {t.attempt: t.folder for _, commit in log.recent() for t in log.in_effect(commit) if t.folder and t.coverage.segment}


def _put(store: Store, name: str, table: pa.Table) -> CheckpointPiece:
    out = pa.BufferOutputStream()
    pq.write_table(table, out, compression="zstd", row_group_size=segments.ROW_GROUP)
    data = out.getvalue().to_pybytes()
    store.put(name, data)
    return CheckpointPiece(len(data), table.num_rows, checksum=digest(data))


# ------------------------------------------------------------------------------------------------------------------------ rows
def _merged(runner: Runner, url: str, options: Any, log: Log, folded: Fold, made: str, near: Near) -> tuple[CheckpointPiece, ...]:
    """The rows of the ledger, sorted by path, in pieces of about `PIECE_ROWS`."""
    same = _untouched(log.store, folded)
    ranges = _ranges(runner, url, options, folded, same)
    work = functools.partial(_merge, url, options, near.of(folded, log), made, _folders(log), same)
    return tuple(CheckpointPiece(**found) for found in _answers(runner.run(work, list(enumerate(ranges)))))


def _untouched(store: Store, folded: Fold) -> frozenset[str]:
    """The checkpoint's pieces that are long enough, and of which no commit since has added, taken away or restated a row."""
    if folded.base is None or folded.undone:
        return frozenset()
    touched = [(s.first, s.last) for s in (*folded.sources, *folded.said) if not s.piece] + [(path, path) for path in folded.uncovered]
    removed = pa.array(list(folded.removed), pa.string())
    for table in folded.base.tables(store, "files", FILES, ["data_file", "first", "last"]) if len(removed) else ():
        gone = table.filter(pc.is_in(table.column("data_file"), removed))
        touched += zip(gone.column("first").to_pylist(), gone.column("last").to_pylist(), strict=True)
    # Sorted by where they begin: a piece is touched if, of those that begin before its end, one ends behind its beginning.
    touched.sort()
    begins = [first for first, _ in touched]
    furthest = list(itertools.accumulate((last for _, last in touched), max))
    # Shorter ones are merged with their neighbours, and those of which nobody could tell that they are damaged are read.
    whole = (s for s in folded.sources if s.checksum and s.rows >= PIECE_ROWS // 2)
    return frozenset(s.segment for s in whole if not (n := bisect.bisect_right(begins, s.last)) or furthest[n - 1] < s.first)


def _answers(outcomes: Sequence[dict[str, Any] | Failure]) -> Iterator[dict[str, Any]]:
    for outcome in outcomes:
        if isinstance(outcome, Failure):
            raise outcome.kind_of_error(f"cannot write a checkpoint of the ledger: {outcome}")
        yield outcome


def _ranges(runner: Runner, url: str, options: Any, folded: Fold, same: Collection[str] = ()) -> list[tuple[str, str]]:
    """Ranges of paths [first, end) of about `PIECE_ROWS` rows, the last one has no end; those of some pieces hold nothing else."""
    found = [(s.first, max(s.rows, 1)) for s in folded.sources if not s.piece and s.rows <= segments.ROW_GROUP]
    found += [(s.first, max(s.rows, PIECE_ROWS)) for s in folded.sources if s.segment in same]
    long = [s for s in folded.sources if (s.piece or s.rows > segments.ROW_GROUP) and s.segment not in same]
    n = 4 * runner.parallelism
    some = [long[i::n] for i in range(min(n, len(long)))]
    for answer in _answers(runner.run(functools.partial(_steps, url, options), some)):
        found += [(path, rows) for path, rows in answer["steps"]]
    bounds, rows = [""], 0
    for path, n in sorted(found):
        if rows and rows + n > PIECE_ROWS and path > bounds[-1]:
            bounds.append(path)
            rows = 0
        rows += n
    return list(zip(bounds, [*bounds[1:], ""], strict=True))


def _steps(url: str, options: Any, sources: list[Source]) -> dict[str, Any]:
    """The first path and the rows of each row group of some sources."""
    store, steps = connect(url, options), list[tuple[str, int]]()
    for source in sources:
        steps += segments.steps(store, source.segment)
    return {"steps": steps}


def _merge(
    url: str, options: Any, folded: Fold, made: str, folders: dict[str, str], same: Collection[str], item: tuple[int, tuple[str, str]]
) -> dict[str, Any]:  # fmt: skip
    """Write the piece of a range of paths."""
    number, (first, end) = item
    store, name = connect(url, options), names.checkpoint_piece(folded.version, made, "rows", number)
    for source in folded.sources:
        if source.segment in same and first <= source.first and (not end or source.last < end):
            copied = intact(store, source.segment, source.checksum)
            store.put(name, copied)
            return {"size": len(copied), **{key: getattr(source, key) for key in _OF_PIECE}}
    last = end or max((s.last for s in folded.sources), default="")
    columns = [c for c in segments.PIECE.names if c != "commit"]
    rows = folded.rows(store, columns, first, last).select(segments.PIECE.names)
    if end:
        rows = rows.filter(pc.less(rows.column("path"), end))
    rows = _with_folders(rows, folders).sort_by([("path", "ascending"), ("start", "ascending")])
    writer = segments.SegmentWriter(segments.PIECE)
    writer.add(rows)
    data = writer.finish()
    if data is None:
        return {"size": 0, "rows": 0}
    store.put(name, data)
    quarantined, held = (pc.sum(pc.equal(rows.column("state"), state)).as_py() for state in ("quarantined", "held"))
    return {
        "size": len(data), "rows": rows.num_rows, "first": writer.first, "last": writer.last, "quarantined": quarantined, "held": held,
        "checksum": digest(data),
    }  # fmt: skip


def _with_folders(rows: pa.Table, folders: dict[str, str]) -> pa.Table:
    """Rows without a data file keep the directory of their task, which no name says."""
    known = pa.array([folders.get(a) for a in rows.column("attempt").to_pylist()], pa.string()) if folders else None
    folder = rows.column("folder") if known is None else pc.coalesce(rows.column("folder"), known)
    folder = pc.if_else(pc.is_null(rows.column("data_file")), folder, pa.scalar(None, pa.string()))
    return rows.set_column(rows.schema.get_field_index("folder"), segments.PIECE.field("folder"), folder)


# ------------------------------------------------------------------------------------------------------------------------ keys
def _keys(runner: Runner, url: str, options: Any, log: Log, made: str) -> tuple[KeyRun, ...]:
    """The objects whose keys count: those that stay as they are, and what becomes of many small ones."""
    stay, work = keys.merge(log, made, int(time.time() * 1000))
    if work is None:
        return tuple(stay)
    found = _answers(runner.run(functools.partial(_merge_keys, url, options, work), list(range(work.pieces))))
    return (*stay, *(KeyRun(*run) for answer in found if (run := answer["run"])))


def _merge_keys(url: str, options: Any, work: keys.Merge, piece: int) -> dict[str, Any]:
    run = keys.merged(connect(url, options), work, piece)
    return {"run": run and [getattr(run, name) for name in KeyRun.__struct_fields__]}


# ----------------------------------------------------------------------------------------------------------------------- sweep
def outdated(log: Log, grace: float) -> int:
    """How many checkpoints `sweep` would delete, with what they have merged, as another stands for them since `grace` seconds."""
    young = (time.time() - grace) * 1e9
    old = [names.checkpoint_head(*head) for head in checkpoints.seek(log.store, young) if head[0] <= log.expired()]
    # The last of them may be one that is not complete, which stands for none.
    keep = checkpoints.newest(log.store, log.expired(), young) if len(old) > 1 else None
    return sum(name < keep.head for name in old) if keep is not None else 0


def sweep(store: Store, grace: float = GRACE) -> int:
    """Delete older checkpoints, pieces that no head names, and merged segments, once no readable version needs them; how many.

    The first version that can still be read must have a checkpoint below it or at it, which stands for the segments; and that must have
    been there for `grace` seconds, since others may read what it merges. Where checkpoints come more often than that, younger ones wait.
    """
    log = Log(store).refresh()
    young = (time.time() - grace) * 1e9
    heads = {e.name: e.modified for e in store.walk(names.CHECKPOINTS)}
    ages = {e: heads[e] for e in heads if names.checkpoint_of_head(e)}
    keep = checkpoints.newest(store, log.expired(), young)
    gone = list[str]()
    if keep is not None:
        gone += [head for head in sorted(ages) if head < keep.head]
        # Quarantine files stay as long as one of their records counts: they are not merged.
        there = {e.name: e.modified for e in store.walk(names.LEDGER)}
        for table in keep.tables(store, "merged", MERGED, ["name"]):
            gone += [name for name in table.column("name").to_pylist() if name in there and names.job_of_segment(name)]
        gone = [*_without_keys(store, keep, gone, {name: at for name, at in there.items() if at <= young})]
    remove_all(store, gone)
    # Pieces go after their head: what has none is of a writer that died, or that is slower than the grace.
    left = set(ages) - set(gone)
    old = ((name, names.head_of_piece(name)) for name, at in heads.items() if name not in ages and at <= young)
    stray = {name: head for name, head in old if head not in left}
    ended = _end(store, keep, (head for head in stray.values() if head))
    stray = {name: head for name, head in stray.items() if not head or head in ended}
    remove_all(store, list(stray))
    return len(gone) + len(stray)


def _end(store: Store, keep: Checkpoint | None, heads: Iterable[str]) -> set[str]:
    """Those of some heads, none of which is there, that can mean nothing any more, whenever their writers put them.

    One before the checkpoint that is kept is asked by nobody. In the place of a later one stands now a head whose pieces can never be
    there, or its writer has been quicker, and it counts.
    """
    ended = set[str]()
    for head in set(heads):
        found = names.checkpoint_of_head(head)
        if found is None or (keep is not None and head < keep.head):
            ended.add(head)
            continue
        none = Checkpoint(version=found[0], id=found[1], time=protocol.now(), totals=Totals(), rows=(CheckpointPiece(0, 1),))
        if store.put_if_absent(head, encode(none)):
            ended.add(head)
    return ended


def _without_keys(store: Store, keep: Checkpoint, gone: list[str], old: Iterable[str]) -> Iterator[str]:
    """The names of `gone`, but for objects of keys that a checkpoint names, this one or a later one; with merged ones that none names."""
    merged = [name for name in old if names.merged_group(name)]
    if not merged and not any(name.endswith(names.KEYS) for name in gone):
        yield from gone
        return
    used = {run.name for head in checkpoints.heads(store, keep.version) for run in head.keys}
    unnamed = {name: names.head_of_merged(name) for name in merged if name not in used}
    ended = _end(store, keep, unnamed.values())
    yield from (name for name in gone if name not in used)
    yield from (name for name, head in unnamed.items() if head in ended)
