"""Markers in and out: empty files named by the splits that were processed, as Hadoop jobs keep them, so that both share their state.

In: each marker becomes a row in state `mark` (done elsewhere), all in one commit; nothing is read and no data file is made. Out: each split
that is done gets its empty file, put if absent. Both are spread by the runner, and no name of a file stays in the driver.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
from quire.errors import RefusedError, UsageError, printable, scrub
from quire.ledger.identifiers import identifier, key_of, parsed, place_of, stem
from quire.ledger.job import Change, Changed, Dest, PlannedChange
from quire.planning.drops import put_table
from quire.planning.listing import CHUNK, EXAMPLES, PLAN, TaskRun
from quire.planning.pack import PlannedTask
from quire.planning.pieces import Piece, pieces, ranges
from quire.sources.files import Root, Selection, among, located
from quire.sources.identity import identified
from quire.spark.runner import Failure, Runner
from quire.storage import Entry, Seeking, Store, Trouble, below, connect

ASKING = 32  # requests at once
ROWS = 200_000  # in a task
MOST = 10_000  # splits of a file, by the ledger's word alone: HDFS has no more blocks in one
SLOP = 1.1  # of the block size: a file's last split may be so much longer, by Hadoop's rule
_SELECTION = Selection()  # neither `_SUCCESS`, nor what lies in `_temporary`, nor checksum files
_COLUMNS = ["path", "version", "start", "length", "state"]

Span = tuple[int, int]


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


@dataclass
class _Matches:
    runs: list[tuple[str, int]] = field(default_factory=list)  # objects of the plan, and their rows
    known: int = 0  # markers of what the ledger covers already
    refused: int = 0
    examples: list[tuple[str, str]] = field(default_factory=list)

    def refuse(self, name: str, why: str) -> None:
        self.refused += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append((name, scrub(why)))


def import_markers(dest: Dest, markers: Root, roots: tuple[Root, ...], also: tuple[tuple[str, str], ...], target: int) -> Changed:
    """Take what the markers below a directory say, of files below the sources `roots`, in one commit."""
    said = {"verb": "mark", "markers": markers.url, "sources": [root.url for root in roots]}

    def plan(log: Log, base: int, named: Callable[[str], str]) -> PlannedChange:
        spec, content = log.spec() or UNSAID, log.by_content()
        whole = spec.said and (spec.transform not in ("lines", "raw") or spec.format == "parquet")
        whole = whole and spec.split not in ("lines", "row_groups") and spec.kind != CLAIM
        lines = by_lines(spec)
        job = Importing(markers, roots, also, dest.url, dest.options, fold(log, base), named, content, whole, lines)
        if not markers.store().is_folder():
            raise UsageError(f"no directory of markers at {markers.url}. Check the spelling.")
        places = list(pieces((markers,), _SELECTION, dest.runner.parallelism, dest.bars.again))
        tasks, total = list[PlannedTask](), _Matches()
        for outcome in dest.runner.run(functools.partial(_import, job), places):
            if isinstance(outcome, Failure):
                raise outcome.kind_of_error(f"cannot import {markers.url}: {str(outcome).rstrip('.')}. Nothing was changed: call again.")
            total.known, total.refused = total.known + outcome["known"], total.refused + outcome["refused"]
            total.examples += [(name, why) for name, why in outcome["examples"]][: EXAMPLES - len(total.examples)]
            for name, rows in outcome["runs"]:
                if not tasks or tasks[-1].files + rows > ROWS:
                    tasks.append(PlannedTask("", 0))
                tasks[-1].marks.append(TaskRun("", 0, name, 0, 0, rows, 0))
        return PlannedChange(tasks, (), tuple(total.examples), total.refused, total.known)

    return Change(dest, said, plan, target=target, spec=UNSAID, repeat=True).run()


def _import(job: Importing, piece: Piece) -> dict[str, Any]:
    """Read the names of a piece of the markers' directory, and write what they say that is new to the plan."""
    found, dest = _Matches(), connect(job.dest, job.dest_options)
    for entries in _entries(job, piece, found):
        rows = _rows(job, _spans(job, entries, found), dest, found)
        if rows:
            found.runs.append((job.named("marks"), len(rows)))
            put_table(dest, found.runs[-1][0], pa.Table.from_pylist(rows, PLAN))
    return asdict(found)


def _entries(job: Importing, piece: Piece, found: _Matches) -> Iterator[list[Entry]]:
    """The files of a piece, some at a time; all markers of a path come together, and in one piece."""
    store, waiting = job.markers.store(), [piece.folder]
    in_order = isinstance(store, Seeking)
    while waiting:
        here = waiting.pop()
        whole = here != piece.folder or (piece.below and not piece.after and not piece.until)
        for bounds in ([("", "")] if in_order else ranges(store, here, _SELECTION)) if whole else [(piece.after, piece.until)]:
            after, until = map(stem, bounds)
            chunk = list[Entry]()
            for item in store.scan(here, after=after, until=until) if after < until or not until else ():
                last = item.name.rpartition("/")[2]
                if isinstance(item, Entry):
                    if _SELECTION.shows(last):
                        chunk.append(item)
                elif isinstance(item, Trouble):
                    if item.name != here or not after:
                        found.refuse(f"{job.markers.url}/{item.name}", item.reason)
                elif piece.below and _SELECTION.shows(last) and last >= after and (not until or last < until):
                    waiting.append(item.name)
                if in_order and len(chunk) >= CHUNK and stem(chunk[-1].name) != stem(chunk[0].name):
                    cut = next(i for i in range(len(chunk), 0, -1) if stem(chunk[i - 1].name) != stem(chunk[-1].name))
                    yield chunk[:cut]
                    chunk = chunk[cut:]
            if chunk:
                yield chunk


def _spans(job: Importing, entries: Iterable[Entry], found: _Matches) -> dict[tuple[int, str], list[tuple[int, int, Entry]]]:
    """The ranges of the markers: (number of the source, key of the file) → ranges."""
    spans = defaultdict[tuple[int, str], list[tuple[int, int, Entry]]](list)
    for entry in entries:
        shown = f"{job.markers.url}/{entry.name}"
        try:
            path, start, length = parsed(entry.name)
        except ValueError as e:
            found.refuse(shown, f"no marker: {e}")
            continue
        at = _source(job, path)
        if entry.size:
            found.refuse(shown, f"no marker: it has {entry.size:,} bytes, and markers are empty")
        elif at is None:
            found.refuse(shown, f"{path} does not lie in the source")
        else:
            spans[at].append((start, length, entry))
    return spans


def _source(job: Importing, path: str) -> tuple[int, str] | None:
    """In which of the sources a file lies, and its key there."""
    for i, root in enumerate(job.roots):
        place, folder = place_of(root.url)
        for there, known in ((folder, folder), *((a, b) for a, b in job.also if b == folder)):
            if below(path, there) and path != there:
                inside = path[len(there.rstrip("/")) :]
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
    """The result of `export_markers`: markers written now, and those that were there already."""

    dest: str
    directory: str
    written: int = 0
    there: int = 0

    def _facts(self) -> dict[str, object]:
        return {"directory": self.directory, "markers written": f"{self.written:,}", "there already": f"{self.there:,}"}


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


def export_markers(
    runner: Runner, url: str, options: Any, folded: Fold, markers: Root, roots: Sequence[Root], block: int, spec: Spec
) -> Exported:  # fmt: skip
    """Put the marker of each split, as Hadoop makes them of blocks of `block` bytes, that is wholly done."""
    firsts = sorted({source.first for source in folded.sources})
    n = min(len(firsts), 4 * runner.parallelism)
    bounds = [*dict.fromkeys(firsts[len(firsts) * i // n] for i in range(n)), ""] if n else []
    job = _Exporting(url, options, markers, folded, tuple(roots), place_of(firsts[0])[0] if firsts else "", block, by_lines(spec))
    written = there = 0
    for outcome in runner.run(functools.partial(_export, job), list(pairwise(bounds))):
        if isinstance(outcome, Failure) and outcome.kind in (UsageError.__name__, RefusedError.__name__):
            raise (RefusedError if outcome.kind == RefusedError.__name__ else UsageError)(outcome.text)
        if isinstance(outcome, Failure):
            raise outcome.kind_of_error(f"cannot export to {markers.url}: {str(outcome).rstrip('.')}. What is there stays: call again.")
        written, there = written + outcome["written"], there + outcome["there"]
    if written:
        markers.store().sweep(names.STATE)  # where a disk has them written before they are put in their places
    return Exported(url, printable(markers.url), written, there)


def _export(job: _Exporting, span: tuple[str, str]) -> dict[str, Any]:
    """The markers of the paths in [first, last)."""
    first, last = span
    rows = job.fold.rows(connect(job.dest, job.dest_options), _COLUMNS, first, last or "\U0010ffff")
    if last:
        rows = rows.filter(pc.less(rows.column("path"), last))
    store, rows = job.markers.store(), rows.sort_by([("path", "ascending"), ("start", "ascending")])
    written = there = 0
    with ThreadPoolExecutor(ASKING) as pool:
        for batch in _batches(_identifiers(job, rows)):
            for new in pool.map(lambda name: store.put_if_absent(name, b""), batch):
                written, there = written + new, there + (not new)
    return {"written": written, "there": there}


def _batches(names: Iterator[str]) -> Iterator[list[str]]:
    batch = list[str]()
    for name in names:
        batch.append(name)
        if len(batch) >= 100 * ASKING:
            yield batch
            batch = []
    if batch:
        yield batch


def _identifiers(job: _Exporting, rows: pa.Table) -> Iterator[str]:
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
            if state in ("done", "mark", PURGING):
                covered.append((start, length))
    if meant is None or meant(path):
        yield from _splits(job, path, covered, end)


def _splits(job: _Exporting, key: str, covered: list[Span], size: int) -> Iterator[str]:
    if not covered:
        return
    place, path = place_of(key)
    if size > MOST * job.block:
        _check_size(job, key, size)
    if not job.roots and place != job.place:
        raise UsageError(f"the ledger holds files of {job.place} and of {place}: markers name paths alone. Say which, with source=.")
    done = _Spans(covered)
    for start, length in hadoop_splits(size, job.block):
        lines = read_for((start, length), size) if job.lines else (start, length)
        if not done.without(lines if lines[1] else (start, length)):
            yield identifier(path, start, length)


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
