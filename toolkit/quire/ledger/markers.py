"""Markers in and out: empty files named by the splits that were processed, as Hadoop jobs keep them, so that both share their state.

In: each marker becomes a row in state `mark` (done elsewhere), all in one commit; nothing is read and no data file is made. Names are read
in the order of the listing, and come together by the paths that they mean: any spelling of them will do. Out: each split
that is done gets its file, put if absent. Both are spread by the runner, and no name of a file stays in the driver.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from quire import display
from quire.commit import names
from quire.commit.entries import CLAIM, UNSAID, Spec
from quire.commit.log import Log
from quire.coverage.finished import PURGED, PURGING
from quire.coverage.fold import Fold, fold
from quire.errors import QuireError, RefusedError, StorageError, UsageError, encodable, printable, quoted, scrub
from quire.ledger.identifiers import PARSERS, identifier, key_of, place_of
from quire.ledger.job import Change, Changed, Dest, PlannedChange
from quire.ledger.own_markers import SIZE, is_own, token
from quire.planning.drops import put_table
from quire.planning.listing import CHUNK, EXAMPLES, PLAN, TaskRun
from quire.planning.pack import PlannedTask, read_rows
from quire.planning.pieces import Piece, pieces, ranges
from quire.sources.files import Root, Selection, among, located
from quire.sources.identity import identified
from quire.spark.runner import Failure, Runner
from quire.storage import Entry, Seeking, Store, Trouble, below, connect, is_safe, normalise, remove_all, remove_version

ASKING = 32  # requests at once
ROWS = 200_000  # in a task
MOST = 10_000  # splits of a file, by the ledger's word alone: HDFS has no more blocks in one
SLOP = 1.1  # of the block size: a file's last split may be so much longer, by Hadoop's rule
_SELECTION = Selection()  # neither `_SUCCESS`, nor what lies in `_temporary`, nor checksum files
_COLUMNS = ["path", "version", "start", "length", "state"]
_COUNT = ("done", "mark", PURGING)  # states of what a job may leave out
EACH = 1_000  # names of which the driver sees one, to cut them into ranges
# Names as they were read: the number of the source, and the key of the file there.
_READ = pa.schema(
    [
        ("path", pa.string()), ("source", pa.int64()), ("start", pa.int64()), ("length", pa.int64()), ("name", pa.string()),
        ("modified", pa.int64()),
    ]
)  # fmt: skip

Span = tuple[int, int]
Parse = Callable[[str], "tuple[str, int, int] | None"]


# --------------------------------------------------------------------------------------------------------------------------- in
@dataclass(frozen=True)
class Importing:
    """All that a task needs."""

    markers: Root
    roots: tuple[Root, ...]
    also: tuple[tuple[str, str], ...]  # a directory as the user has written it, with links in it → as the ledger knows it
    dest: str
    dest_options: Any = field(repr=False)
    fold: Fold
    named: Callable[[str], str]
    content: bool  # the ledger knows files by their content
    whole: bool  # files are parsed as a whole: a part of one cannot be left out
    lines: bool  # a split means the lines that Hadoop reads for it
    parse: Parse = PARSERS["path@offset@length"]


@dataclass
class _Matches:
    runs: list[tuple[str, int]] = field(default_factory=list)  # objects of the plan, and their rows
    read: list[tuple[str, int, str, str]] = field(default_factory=list)  # of names that were read; and their first and last path
    sample: list[str] = field(default_factory=list)  # one path of EACH
    known: int = 0  # markers of what the ledger covers already
    refused: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, name: str, why: str) -> None:
        self.refused += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((name, scrub(why)))


def import_markers(
    dest: Dest, markers: Root, roots: tuple[Root, ...], also: tuple[tuple[str, str], ...], target: int, parse: str | Parse
) -> Changed:  # fmt: skip
    """Take what the markers below a directory say, of files below the sources `roots`, in one commit."""
    said: dict[str, Any] = {"verb": "mark", "markers": markers.url, "sources": [root.url for root in roots]}
    said |= {} if parse == next(iter(PARSERS)) else {"parse": parse if isinstance(parse, str) else "function"}
    reads = PARSERS[parse] if isinstance(parse, str) else parse

    def plan(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        spec, content = log.spec() or UNSAID, log.by_content()
        whole = spec.said and (spec.transform not in ("lines", "raw") or spec.format == "parquet")
        whole = whole and spec.split not in ("lines", "row_groups") and spec.kind != CLAIM
        lines = by_lines(spec)
        job = Importing(markers, roots, also, dest.url, dest.options, fold(log, base), named, content, whole, lines, reads)
        if not markers.store().is_folder():
            raise UsageError(f"no directory of markers at {markers.url}. Check the spelling.")
        total = _Matches()
        _spread(dest, functools.partial(_read, job), pieces((markers,), _SELECTION, dest.runner.parallelism, dest.bars.again), total)
        _spread(dest, functools.partial(_import, job), _ranges(total), total)
        remove_all(dest.store(), [name for name, *_ in total.read])  # nobody cleans up after a plan that is not frozen
        tasks = list[PlannedTask]()
        for name, rows in total.runs:
            if not tasks or tasks[-1].files + rows > ROWS:
                tasks.append(PlannedTask("", 0))
            tasks[-1].marks.append(TaskRun("", 0, name, 0, 0, rows, 0))
        return PlannedChange(tasks, (), tuple(total.examples), total.refused, total.known)

    fresh = not isinstance(parse, str)  # a killed call's plan may be older than the function's repair
    return Change(dest, said, plan, target=target, spec=UNSAID, repeat=True, fresh=fresh).run()


def _spread(dest: Dest, work: Callable[[Any], dict[str, Any]], items: Iterable[Any], total: _Matches) -> None:
    """Do the work on each item, and add what it found."""
    for outcome in dest.runner.run(work, list(items)):
        if isinstance(outcome, Failure):
            raise _failed(outcome, "import markers", "Nothing was changed")
        total.known, total.refused = total.known + outcome["known"], total.refused + outcome["refused"]
        total.examples += [(name, why) for name, why in outcome["examples"]][: EXAMPLES - len(total.examples)]
        total.runs += [(name, rows) for name, rows in outcome["runs"]]
        total.read += [(name, rows, first, last) for name, rows, first, last in outcome["read"]]
        total.sample += outcome["sample"]


def _ranges(found: _Matches) -> Iterator[tuple[str, str, list[tuple[str, int]]]]:
    """Ranges of paths, [first, last), with the objects that hold names of them; the last one has no end."""
    cuts = list(dict.fromkeys(sorted(found.sample)[CHUNK // EACH :: CHUNK // EACH or 1])) if len(found.sample) * EACH > CHUNK else []
    for first, last in pairwise(["", *cuts, ""]):
        objects = [(name, rows) for name, rows, low, high in found.read if high >= first and (not last or low < last)]
        if objects:
            yield first, last, objects


def _read(job: Importing, piece: Piece) -> dict[str, Any]:
    """Read the names of a piece of the markers' directory, and write what they mean to the plan."""
    found, dest = _Matches(), connect(job.dest, job.dest_options)
    for entries in _entries(job.markers, piece, found):
        rows = [
            {"path": key, "source": source, "start": start, "length": length, "name": entry.name, "modified": entry.modified}
            for (source, key), spans in _spans(job, entries, found).items() for start, length, entry in spans
        ]  # fmt: skip
        if rows:
            table = pa.Table.from_pylist(rows, _READ).sort_by("path")
            paths, name = table.column("path"), job.named("read")
            put_table(dest, name, table)
            found.read.append((name, table.num_rows, paths[0].as_py(), paths[-1].as_py()))
            found.sample += paths.take(list(range(0, table.num_rows, EACH))).to_pylist()
    return asdict(found)


def _import(job: Importing, paths: tuple[str, str, list[tuple[str, int]]]) -> dict[str, Any]:
    """Write to the plan what the names of a range of paths say that is new."""
    first, last, objects = paths
    found, dest = _Matches(), connect(job.dest, job.dest_options)
    spans = defaultdict[tuple[int, str], list[tuple[int, int, Entry]]](list)
    for table in read_rows(dest, [TaskRun("", 0, name, 0, 0, rows, 0) for name, rows in objects], None, _READ):
        meant = pc.greater_equal(table.column("path"), first)
        for row in table.filter(pc.and_(meant, pc.less(table.column("path"), last)) if last else meant).to_pylist():
            marker = Entry(row["name"], 0, "", row["modified"])
            spans[row["source"], row["path"]].append((row["start"], row["length"], marker))
    rows = _rows(job, spans, dest, found)
    if rows:
        found.runs.append((job.named("marks"), len(rows)))
        put_table(dest, found.runs[-1][0], pa.Table.from_pylist(rows, PLAN))
    return asdict(found)


def _entries(markers: Root, piece: Piece, found: _Matches) -> Iterator[list[Entry]]:
    """The files of a piece, some at a time."""
    store, waiting, chunk = markers.store(), [piece.folder], list[Entry]()
    while waiting:
        here = waiting.pop()
        whole = here != piece.folder or (piece.below and not piece.after and not piece.until)
        bounds = [("", "")] if isinstance(store, Seeking) else ranges(store, here, _SELECTION)
        for after, until in bounds if whole else [(piece.after, piece.until)]:
            for item in store.scan(here, after=after, until=until):
                last = item.name.rpartition("/")[2]
                if isinstance(item, Entry):
                    if _SELECTION.shows(last):
                        chunk.append(item)
                elif isinstance(item, Trouble):
                    if item.name != here or not after:
                        found.refuse(f"{markers.url}/{item.name}", item.reason)
                elif piece.below and _SELECTION.shows(last) and last >= after and (not until or last < until):
                    waiting.append(item.name)
                if len(chunk) >= CHUNK:
                    yield chunk
                    chunk = []
    if chunk:
        yield chunk


def _spans(job: Importing, entries: Iterable[Entry], found: _Matches) -> dict[tuple[int, str], list[tuple[int, int, Entry]]]:
    """The ranges of the markers: (number of the source, key of the file) → ranges."""
    spans = defaultdict[tuple[int, str], list[tuple[int, int, Entry]]](list)
    entries, store = list(entries), job.markers.store()
    with ThreadPoolExecutor(ASKING) as pool:  # of another ledger's, perhaps
        own = pool.map(lambda entry: entry.size == SIZE and is_own(store, entry.name), entries)
        quires = {entry.name for entry, its in zip(entries, own, strict=True) if its}
    for entry in entries:
        shown = f"{job.markers.url}/{entry.name}"
        try:
            path, start, length = _meant(job.parse, entry.name)
        except UsageError:
            raise  # one of the function's
        except ValueError as e:
            found.refuse(shown, f"no marker: {e}")
            continue
        at = _source(job, path)
        if entry.size and entry.name not in quires:
            found.refuse(shown, f"no marker: it has {entry.size:,} bytes, and markers are empty")
        elif at is None:
            found.refuse(shown, f"{path} does not lie in the source")
        else:
            spans[at].append((start, length, entry))
    return spans


def _meant(parse: Parse, name: str) -> tuple[str, int, int]:
    """The split that a name means; ValueError for one that means none, UsageError for a function that gives anything else."""
    try:
        said = parse(name)
    except ValueError:
        raise
    except Exception as e:
        raise UsageError(
            f"parse= raised {type(e).__name__} for {scrub(name, 200)!r}: {scrub(str(e), 200)}. It raises ValueError, or gives None, for a "
            f"name that means no split."
        ) from e
    if said is None:
        raise ValueError("parse= gives no split for it")
    well = isinstance(said, tuple | list) and len(said) == 3 and isinstance(said[0], str)
    if not well or any(type(n) is not int or not 0 <= n < 1 << 60 for n in said[1:]):
        raise UsageError(f"parse= gave {quoted(said)} for {scrub(name, 200)!r}: it gives (path, first byte, length), or None.")
    if not said[0].startswith("/") and "://" not in said[0]:
        raise UsageError(f"parse= gave the path {quoted(said[0])} for {scrub(name, 200)!r}: it begins with /, or is a URL.")
    return said[0], said[1], said[2]


def _source(job: Importing, path: str) -> tuple[int, str] | None:
    """In which of the sources a file lies, and its key there; `path` from the root of its file system on, or a URL."""
    try:
        at, path = place_of(normalise(path)) if "://" in path else ("", path)
    except UsageError:  # a URL of no store
        return None
    for i, root in enumerate(job.roots):
        place, folder = place_of(root.url)
        for there, known in ((folder, folder), *((a, b) for a, b in job.also if b == folder)):
            if at in ("", place) and below(path, there) and path != there:
                inside = path[len(there.rstrip("/")) :]
                if not (is_safe(inside[1:]) and encodable(inside)):  # a name of no file
                    return None
                if root.wanted == ("",) or _SELECTION.chooser(root).match(inside[1:]):
                    return i, key_of(place, known.rstrip("/") + inside)
    return None


def _rows(job: Importing, spans: dict[tuple[int, str], list[tuple[int, int, Entry]]], dest: Store, found: _Matches) -> list[dict[str, Any]]:
    """The ranges that no row covers yet, of files that are as they were when the markers were written."""
    if not spans:
        return []
    order = sorted(spans, key=lambda at: at[1])
    stores = [root.store() for root in job.roots]

    def look(at: tuple[int, str]) -> Entry | None:
        root = job.roots[at[0]]
        return stores[at[0]].stat(at[1][len(root.url.rstrip("/")) + 1 :])

    with ThreadPoolExecutor(ASKING) as pool:
        there = dict(zip(order, pool.map(look, order), strict=True))
    for i, store in enumerate(stores if job.content else ()):
        mine = [(at, entry) for at, entry in there.items() if at[0] == i and entry is not None]
        known = {item[0].name: item[0] for item in identified(store, [entry for _, entry in mine]) if not isinstance(item, Trouble)}
        there.update({at: known.get(entry.name) for at, entry in mine})
    rows_of = defaultdict[str, list[dict[str, Any]]](list)
    ledger = job.fold.rows(dest, _COLUMNS, order[0][1], order[-1][1])
    keys = pa.array([key for _, key in order], pa.string())
    for row in ledger.filter(pc.is_in(ledger.column("path"), keys)).to_pylist():
        rows_of[row["path"]].append(row)
    rows = list[dict[str, Any]]()
    for at in order:
        file, key, taken = there[at], at[1], list[tuple[int, int, Entry]]()
        versions = {row["version"] for row in rows_of[key]}
        for start, length, marker in sorted(spans[at]):
            why = _stale(start, length, marker, file, versions)
            if why or file is None:
                found.refuse(f"{job.markers.url}/{marker.name}", why)
            else:
                taken.append((start, length, marker))
        if file is not None and taken:
            rows += _uncovered(job, key, file, taken, [(row["start"], row["length"]) for row in rows_of[key]], found)
    return rows


def _stale(start: int, length: int, marker: Entry, file: Entry | None, known: set[str]) -> str:
    """Why a marker does not speak of the file that is there now; nothing where it does."""
    if file is None:
        return "its file is not there"
    if start + length > file.size or (not length and (start or file.size)):
        return f"its file has {file.size:,} bytes now"
    if marker.modified and marker.modified < file.modified:
        return "its file has changed since it was written"
    if known - {file.version}:
        return "the ledger knows its file in another version"
    return ""


def _uncovered(
    job: Importing, key: str, file: Entry, taken: list[tuple[int, int, Entry]], covered: list[Span], found: _Matches
) -> list[dict[str, Any]]:  # fmt: skip
    """The rows of a file's markers, in the order of their starts, less what is covered."""
    rows, known, reach = list[dict[str, Any]](), _Spans(covered), 0  # what markers before have said ends at `reach`
    for start, length, _ in taken:
        s, n = read_for((start, length), file.size) if job.lines else (start, length)
        begin, end = max(s, reach), s + n
        new = known.without((begin, end - begin)) if begin < end or not length else []
        found.known += not new
        reach = max(begin, end)
        if not length:
            known.points.add(start)
        rows += [
            {"path": key, "size": file.size, "version": file.version, "modified": file.modified, "start": s, "length": n} for s, n in new
        ]
    if job.whole and rows and _Spans([*covered, *((row["start"], row["length"]) for row in rows)]).without((0, file.size)):
        for *_, marker in taken:
            found.refuse(f"{job.markers.url}/{marker.name}", "a part of its file is not marked, and files are read here as a whole")
        return []
    return rows


class _Spans:
    """Ranges so laid out that what of another one is in none of them is looked up, and not compared with each."""

    def __init__(self, spans: Iterable[Span]) -> None:
        spans = list(spans)
        self.points = {start for start, length in spans if not length}  # an empty range is a point of its own
        self.ranges = merged(span for span in spans if span[1])
        self.starts = [start for start, _ in self.ranges]

    def without(self, span: Span) -> list[Span]:
        start, end = span[0], span[0] + span[1]
        if start == end:
            return [] if start in self.points else [span]
        found, at = list[Span](), start
        for s, n in self.ranges[max(0, bisect_right(self.starts, start) - 1) : bisect_left(self.starts, end)]:
            if s > at:
                found.append((at, s - at))
            at = max(at, s + n)
        return [*found, (at, end - at)] if at < end else found


# -------------------------------------------------------------------------------------------------------------------------- out
@dataclass(frozen=True)
class Exported(display.Shown):
    """The result of `export_markers`: markers written now, those that were there, and own ones removed, of what is not done."""

    dest: str
    directory: str
    written: int = 0
    there: int = 0
    removed: int = 0

    def _facts(self) -> dict[str, object]:
        found: dict[str, object] = {"directory": self.directory, "markers written": f"{self.written:,}", "there already": f"{self.there:,}"}
        return found | {"removed, not done any more": f"{self.removed:,}"}


@dataclass(frozen=True)
class _Exporting:
    dest: str
    dest_options: Any = field(repr=False)
    markers: Root
    fold: Fold
    roots: tuple[Root, ...]  # only what one of these means; none: all of it, in one store
    place: str
    block: int
    lines: bool  # a split means the lines that Hadoop reads for it

    @property
    def places(self) -> list[str]:
        """The stores that it speaks of."""
        return [place_of(root.url)[0] for root in self.roots] or [self.place] * bool(self.place)


def export_markers(
    runner: Runner, url: str, options: Any, log: Log, markers: Root, roots: Sequence[Root], block: int, spec: Spec
) -> Exported:  # fmt: skip
    """Put the marker of each split, as Hadoop makes them of blocks of `block` bytes, that is wholly done; remove own ones of others.

    Own ones are removed by a ledger that is read after all were put, and where some were, and others have committed since, all are put once
    more: of two exports at once, the one that ends last leaves what the ledger says.
    """
    written = removed = 0
    while True:
        job = _exporting(url, options, log, markers, roots, block, spec)
        firsts = sorted({source.first for source in job.fold.sources})
        n = min(len(firsts), 4 * runner.parallelism)
        bounds = [*dict.fromkeys(firsts[len(firsts) * i // n] for i in range(n)), ""] if n else []
        done = _counted(runner, functools.partial(_export, job), list(pairwise(bounds)), markers)
        written += done["written"]
        if markers.store().is_folder():
            job = _exporting(url, options, log.refresh(), markers, roots, block, spec)
            tip, places = log.tip, list(pieces((markers,), _SELECTION, runner.parallelism))
            gone = _counted(runner, functools.partial(_remove, job), places, markers)["removed"]
            removed += gone
            if gone and log.refresh().tip != tip:
                continue
        if written:
            markers.store().sweep(names.STATE)  # where a disk has them written before they are put in their places
        return Exported(url, printable(markers.url), written, done["there"], removed)


def _exporting(url: str, options: Any, log: Log, markers: Root, roots: Sequence[Root], block: int, spec: Spec) -> _Exporting:
    folded = fold(log, reader=True)
    first = min((source.first for source in folded.sources), default="")
    return _Exporting(url, options, markers, folded, tuple(roots), place_of(first)[0] if first else "", block, by_lines(spec))


def _counted(runner: Runner, work: Callable[[Any], dict[str, int]], items: list[Any], markers: Root) -> dict[str, int]:
    """The sums of what the work counts."""
    total = dict.fromkeys(("written", "there", "removed"), 0)
    for outcome in runner.run(work, items):
        if isinstance(outcome, Failure):
            raise _failed(outcome, f"export to {markers.url}", "What is there stays")
        for name, n in outcome.items():
            total[name] += n
    return total


def _export(job: _Exporting, span: tuple[str, str]) -> dict[str, int]:
    """The markers of the paths in [first, last)."""
    first, last = span
    rows = job.fold.rows(connect(job.dest, job.dest_options), _COLUMNS, first, last or "\U0010ffff")
    if last:
        rows = rows.filter(pc.less(rows.column("path"), last))
    store, rows = job.markers.store(), rows.sort_by([("path", "ascending"), ("start", "ascending")])
    written = there = 0

    def put(split: tuple[str, str, int, int]) -> bool:
        return store.put_if_absent(identifier(*split[1:]), token(job.dest, split[0]))

    with ThreadPoolExecutor(ASKING) as pool:
        for batch in _batches(_identifiers(job, rows)):
            for new in pool.map(put, batch):
                written, there = written + new, there + (not new)
    return {"written": written, "there": there}


def _remove(job: _Exporting, piece: Piece) -> dict[str, int]:
    """Remove this ledger's own markers of a piece of the directory whose splits are not done, or not any more."""
    dest, store, found, removed = connect(job.dest, job.dest_options), job.markers.store(), _Matches(), 0
    for entries in _entries(job.markers, piece, found):
        splits = dict[str, tuple[Entry, Span, list[str]]]()
        for entry in entries:
            with suppress(ValueError):
                path, start, length = PARSERS["path@offset@length"](entry.name)
                if entry.size == SIZE:
                    splits[entry.name] = entry, (start, length), [key_of(place, path) for place in job.places]
        done = _done(job, dest, [key for _, _, keys in splits.values() for key in keys])
        meant = among(job.roots) if job.roots else None
        for entry, span, keys in splits.values():
            mine = [key for key in keys if meant is None or meant(key)]
            if job.roots and not mine:
                continue
            if not any(key in done and _is_done(job, span, *done[key]) for key in mine):
                places = [place_of(key)[0] for key in mine] if job.roots else None
                removed += is_own(store, entry.name, job.dest, places) and remove_version(store, entry.name, entry.version)
    if found.examples:
        name, why = found.examples[0]
        raise StorageError(f"{name} cannot be listed ({why})")
    return {"removed": removed}


def _done(job: _Exporting, dest: Store, keys: list[str]) -> dict[str, tuple[_Spans, int]]:
    """The ranges that are done of files, and their lengths."""
    if not keys:
        return {}
    covered, ends = defaultdict[str, list[Span]](list), defaultdict[str, int](int)
    for row in job.fold.rows(dest, _COLUMNS, among=pa.array(keys, pa.string())).to_pylist():
        if row["state"] != PURGED:
            ends[row["path"]] = max(ends[row["path"]], row["start"] + row["length"])
            covered[row["path"]] += [(row["start"], row["length"])] * (row["state"] in _COUNT)
    return {path: (_Spans(spans), ends[path]) for path, spans in covered.items()}


def _is_done(job: _Exporting, split: Span, done: _Spans, size: int) -> bool:
    """Whether all of a split is, as the job reads it."""
    lines = read_for(split, size) if job.lines else split
    return sum(split) <= size and not done.without(lines if lines[1] else split)


def _batches(splits: Iterator[tuple[str, str, int, int]]) -> Iterator[list[tuple[str, str, int, int]]]:
    batch = list[tuple[str, str, int, int]]()
    for split in splits:
        batch.append(split)
        if len(batch) >= 100 * ASKING:
            yield batch
            batch = []
    if batch:
        yield batch


def _identifiers(job: _Exporting, rows: pa.Table) -> Iterator[tuple[str, str, int, int]]:
    path, covered, end, meant = "", list[Span](), 0, among(job.roots) if job.roots else None
    for batch in rows.to_batches(max_chunksize=20_000):
        for key, start, length, state in zip(*(batch.column(c).to_pylist() for c in ("path", "start", "length", "state")), strict=True):
            if key != path:
                if meant is None or meant(path):
                    yield from _splits(job, path, covered, end)
                path, covered, end = key, [], 0
            if state == PURGED:
                continue  # a new file of that name is new, and a marker would say that it is done
            end = max(end, start + length)
            if state in _COUNT:
                covered.append((start, length))
    if meant is None or meant(path):
        yield from _splits(job, path, covered, end)


def _splits(job: _Exporting, key: str, covered: list[Span], size: int) -> Iterator[tuple[str, str, int, int]]:
    if not covered:
        return
    place, path = place_of(key)
    if size > MOST * job.block:
        _check_size(job, key, size)
    if not job.roots and place != job.place:
        raise UsageError(f"the ledger holds files of {job.place} and of {place}: markers name paths alone. Say which, with source=.")
    done = _Spans(covered)
    for split in hadoop_splits(size, job.block):
        if _is_done(job, split, done, size):
            yield place, path, *split


def _check_size(job: _Exporting, key: str, size: int) -> None:
    """Compare a length that would take very many markers with its source: a row of a ledger may say anything."""
    said = f"the ledger says that {scrub(key, 200)} has {size:,} bytes, or more than {MOST:,} splits of {job.block:,}"
    found = located(job.roots)(key)
    if found is None:
        raise RefusedError(f"{said}. Name its source, source=, so that its length can be compared, or give a larger split_size.")
    entry = found[0].store().stat(found[1])
    if entry is None or entry.size < size:
        there = "is gone" if entry is None else f"has {entry.size:,} bytes"
        raise RefusedError(f"{said}, and at its source it {there}. Look who wrote it, and forget the file, or give a larger split_size.")


def _failed(outcome: Failure, what: str, state: str) -> QuireError:
    """The error of a task that has failed; where the call is wrong, in the task's own words."""
    wrong = {error.__name__: error for error in (UsageError, RefusedError)}.get(outcome.kind)
    return wrong(outcome.text) if wrong else outcome.kind_of_error(f"cannot {what}: {str(outcome).rstrip('.')}. {state}: call again.")


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same bytes, in as few ranges as possible."""
    found = list[Span]()
    for start, length in sorted(spans):
        if found and start <= sum(found[-1]):
            found[-1] = found[-1][0], max(found[-1][1], start + length - found[-1][0])
        else:
            found.append((start, length))
    return found


def by_lines(spec: Spec) -> bool:
    """Whether a split means lines in such a destination: in every one but that of bytes as they are."""
    return spec.transform != "raw" and spec.split != "row_groups"


def read_for(split: Span, size: int) -> Span:
    """Where the lines begin that Hadoop's LineRecordReader reads for a split: one that begins with a split is read with the one before."""
    start, end = split[0], split[0] + split[1]
    start = min(start + 1, size) if start else 0
    return start, max(0, (min(end + 1, size) if end else 0) - start)


def hadoop_splits(size: int, block: int) -> Iterator[Span]:
    """The splits that Hadoop's FileInputFormat makes of a file."""
    at = 0
    while size - at > block * SLOP:
        yield at, block
        at += block
    if at < size or not size:
        yield at, size - at
