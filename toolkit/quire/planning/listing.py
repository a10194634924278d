"""Lists a piece of a tree in a task: what is wanted and not done yet is cut into runs and written as Parquet where it is listed."""

from __future__ import annotations

import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from itertools import chain, islice
from operator import le
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quire.commit import names as objects
from quire.coverage.antijoin import remaining
from quire.coverage.fold import Fold
from quire.errors import FormatError, RefusedError, StorageError
from quire.formats.lines import LONGEST
from quire.formats.partitions import LONGEST as LONGEST_NAME
from quire.planning import columns, routes
from quire.planning.among import looked_up
from quire.planning.changes import Decided, Policy, decide
from quire.planning.deleted import Blind, ListedNames
from quire.planning.drops import DROPS, put_drops
from quire.planning.hashing import parts_of
from quire.planning.pieces import Piece, ranges
from quire.sources import archives, compression
from quire.sources.files import Root, Selection, is_glob
from quire.sources.identity import identified, with_stored
from quire.sources.members import BLOCK
from quire.sources.partition_by import PartitionBy
from quire.sources.ranges import read
from quire.sources.splits import FileInfo
from quire.sources.transforms.content import BadContent
from quire.sources.transforms.text import encodings
from quire.storage import (
    Entry,
    Files,
    Folder,
    Limited,
    Paging,
    ReadRequest,
    Seeking,
    Store,
    Trouble,
    Unreadable,
    Vanished,
    below,
    connect,
    is_safe,
    normalise,
)
from quire.storage.local import to_os

CHUNK = 100_000  # rows that a task holds at once
ROW_GROUP = 5_000
ROWS = 20_000  # of a run, at most
NAMES = 20  # that did not match, among which a nearer one is looked for
EXAMPLES = 1_000  # names that a report may hold
TOLD = 100_000  # names of a kind that all pieces together tell, however many these are
RANGES = 100_000  # of one file: of 256 MiB each, 25 TiB, which no file has that is not sparse or forged
SAMPLE = 8  # files a task reads to estimate how much will be written
MANY, MANY_OF_ROWS = 20_000, 4_000  # files that take a task a second or so: of documents and lines, and of rows in columns
MANY_AFAR = 10_000  # likewise, over a network, where a task waits besides
ESTIMATED = 256 << 20  # bytes that a compressed one of them may decode to

PLAN = pa.schema(
    [
        ("path", pa.string()), ("size", pa.int64()), ("version", pa.string()), ("modified", pa.int64()),
        ("start", pa.int64()), ("length", pa.int64()), ("replaces", pa.string()), ("follows", pa.string()),
    ]
)  # fmt: skip


CHANGED = pa.schema(
    [("path", pa.string()), ("size", pa.int64()), ("version", pa.string()), ("commit", pa.int64()), ("reason", pa.string())]
)

Item = Files | Entry | Folder | Trouble

_REST = {"replaces": None, "follows": None}  # of the ranges of a long file only the first one replaces and follows


@dataclass(frozen=True)
class Cut:
    """How the files of a piece are grouped into runs, which the driver then packs into tasks."""

    planner: str  # balanced | hash | directory
    layout: str
    parts: int
    hash_function: str
    target: int  # bytes; a run of the balanced planner is a small part of it
    streams: bool  # files longer than the target, or than `longest`, are cut into ranges
    longest: int = 0
    uncut: tuple[str, ...] = ()  # what the names of files end with that are not cut all the same
    wide: bool = False  # text that has no line ends which stand alone is not cut, either
    members: bool = False  # compressed files are kept as they are, and cut only where one value could not hold them
    many: int = MANY  # files that are worth a task of their own where a core would stand idle: they take a second or so
    by: PartitionBy = field(default_factory=PartitionBy)  # directories of the destination, in the place of the source's

    @property
    def by_folder(self) -> bool:
        """Whether a task never crosses a directory."""
        return self.planner != "balanced" or self.layout == "directories" or bool(self.by.of_files)

    def folder(self, root: str, name: str, modified: int) -> str:
        """The directory to which the task of a file keeps, that is called `name` below its root."""
        return self.by.folder(root, name, modified) if self.by.of_files else name.rpartition("/")[0]


@dataclass(frozen=True)
class Listing:
    """All that listing a piece needs; travels to the tasks."""

    dest: str
    dest_options: Any = field(repr=False)
    job: str
    plan: str
    roots: tuple[Root, ...]
    selection: Selection
    fold: Fold
    cut: Cut
    estimate: Any = field(default=None, repr=False)  # (content, FileInfo) → bytes that would be written
    policy: Policy = field(default_factory=Policy)  # for files that were gathered in another version
    examples: int = EXAMPLES  # names of a kind that one piece may tell
    columns: columns.Columns | None = None  # of files that hold rows, which are looked at
    whole: bool = True  # False: some names are looked at, so what was not listed may be there all the same


@dataclass
class TaskRun:
    """Consecutive rows of a piece's Parquet that go into one task together."""

    group: str
    part: int
    object: str
    root: int
    row: int
    rows: int
    bytes: int


@dataclass
class Some:
    """How many there are, and a few of them."""

    count: int = 0
    examples: list[Any] = field(default_factory=list)
    most: int = EXAMPLES

    def add(self, count: int, found: Sequence[Any]) -> None:
        """So many more; of those that were `found`, as many are kept as there is room for."""
        self.count += count
        self.examples += found[: max(0, self.most - len(self.examples))]

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """The examples, where they are paths with reasons: JSON knows no tuples."""
        return tuple((path, why) for path, why in self.examples)


@dataclass
class Differing:
    """Files that the ledger knows in another version, or whose last line waits for its end; and names without a file."""

    reported: Some = field(default_factory=Some)  # (path, reason) of those that the user wants to hear of
    longer: int = 0  # of them those that are longer now
    outdated: int = 0  # files that a round of their own reads again whole
    held: int = 0  # files with a last line that waits
    missing: int = 0  # names that were to be looked at, and are not there
    looks: list[list[Any]] = field(default_factory=list)  # at files by name: [root, name, its entry, or None where it is not there]


@dataclass
class Written:
    """The rows that were written to the plan: the splits to be read, and rows that leave."""

    splits: int = 0
    bytes: int = 0
    runs: list[dict[str, Any]] = field(default_factory=list)
    drops: list[tuple[str, str]] = field(default_factory=list)  # objects of the plan, and data files, of rows that leave
    sampled: int = 0  # bytes that were read to estimate how many are written for them
    sampled_out: int = 0
    schemas: list[list[Any]] = field(default_factory=list)  # of files that hold rows (see `planning.columns`)
    columns: str = ""  # of their rows, as they are frozen
    routes: list[list[Any]] = field(default_factory=list)  # schemas of which there are new files, and an example (see `planning.routes`)
    strange: list[tuple[str, str]] = field(default_factory=list)  # a few of those files that cannot be read, and why


@dataclass
class Later:
    """The part that a listing leaves to commits after this one, as one may only be so large; files and bytes where they are known."""

    commits: int = 0
    files: int = 0
    bytes: int = 0
    groups: list[str] = field(default_factory=list)  # of all runs that the listing has found, where it was made for this commit


@dataclass
class Listed:
    """The finds of a task in its piece; names only as examples."""

    files: int = 0  # listed and wanted
    done: int = 0
    quarantined: int = 0  # of them those that are in quarantine
    new: int = 0  # files of which something is to be read
    young: int = 0
    hidden: int = 0  # files and directories that were ignored for their names
    links: int = 0
    unwanted: Some = field(default_factory=lambda: Some(most=NAMES))  # names below their roots that do not match what was asked for
    met: list[list[Any]] = field(default_factory=list)  # [root, glob] that matches a name; [root, ""]: the root has names
    differing: Differing = field(default_factory=Differing)
    deleted: Some = field(default_factory=Some)  # gathered files that have gone
    unreadable: Some = field(default_factory=Some)  # (path, reason) of what could not be listed or planned
    written: Written = field(default_factory=Written)
    retries: int = 0  # how often a store could not do something at once
    later: Later = field(default_factory=Later)

    def again(self, why: str) -> None:
        """It is tried again."""
        self.retries += 1

    def add(self, told: dict[str, Any]) -> None:
        """Also the finds of another piece, as its task has told them."""
        _add(self, told)


def _add(found: Any, told: dict[str, Any]) -> None:
    """Add up what two tasks have found, field by field."""
    for name, more in told.items():
        here = getattr(found, name)
        if isinstance(here, Some):
            here.add(more["count"], more["examples"])
        elif is_dataclass(here):
            _add(here, more)
        elif isinstance(here, list):
            here += more  # in place: of thousands of pieces each would copy what all before it have brought
        else:
            setattr(found, name, here + more)


def list_piece(listing: Listing, number: int, piece: Piece) -> dict[str, Any]:
    """List a piece, take out what the ledger covers, write the rest to the plan, and tell its runs."""
    found = Listed()
    dest = connect(listing.dest, listing.dest_options, found.again)
    watching = ListedNames if listing.fold.sources and listing.whole and not listing.policy.supersede else Blind
    seen = watching(listing.roots[piece.root], listing.selection, piece)
    for chunk, listed in enumerate(_chunks(listing, piece, found, seen)):
        files, stored = _identified(listing.roots[piece.root], _possible(listing, dest, piece, listed, found), found)
        if not files.num_rows:
            continue
        table = _table(listing.roots[piece.root].url, files)
        found.files += files.num_rows
        root, policy = listing.roots[piece.root], listing.policy
        left = remaining(table, listing.fold, dest, policy.needs)
        if listing.columns and listing.selection.schema and left.files.num_rows:
            left.files = routes.mine(listing.columns.kind, listing.selection.schema, listing.roots[piece.root], left.files, found)
        found.done += left.done
        found.quarantined += left.quarantined
        if policy.supersede:
            left.files, left.uncovers = left.files.slice(0, 0), []
        decided = decide(left.known, policy, functools.partial(root.store, found.again), root.url)
        _count(decided, found.differing)
        if decided.superseded:
            _write_drops(listing, decided.superseded, dest, found.written)
        replaces = dict[str, list[Any]]()
        for u, records in left.uncovers:
            replaces.setdefault(u.path, []).append([u.version, u.ranges, 0, *([""] if records else [])])
        if left.files.num_rows or decided.again:
            rows = _splits(left.files, listing.cut, replaces, decided.again, functools.partial(_whole, listing.cut, root, found))
            if stored:
                planned = [
                    with_stored(v, stored[p]) for p, v in zip(*(rows.column(c).to_pylist() for c in ("path", "version")), strict=True)
                ]
                rows = rows.set_column(rows.schema.get_field_index("version"), "version", pa.array(planned, pa.string()))
            found.new += pc.count_distinct(rows.column("path")).as_py()
            name = objects.plan_parquet(listing.job, listing.plan, f"{number}-{chunk}-{objects.new_id()}")
            write_rows(listing.cut, root, piece.root, name, rows, dest, found.written)
            _estimate(listing, root, rows, found)
            if listing.columns and (listing.columns.said is None or listing.columns.partitions):
                found.written.schemas += listing.columns.look(root, rows, found.written, found.again)
    for count, paths in seen.tally(listing.fold, dest, EXAMPLES):
        found.deleted.add(count, paths)
    for some in (found.unreadable, found.differing.reported, found.deleted):
        del some.examples[listing.examples :]
    return asdict(found)


def _possible(listing: Listing, dest: Store, piece: Piece, files: pa.Table, found: Listed) -> pa.Table:
    """The files of which something can be made; of the others the report tells, so that the job is frozen without them."""
    root, cut = listing.roots[piece.root], listing.cut
    most = RANGES * (cut.longest or cut.target)
    if cut.streams and pc.max(files.column("size")).as_py() > most:
        long = [entry for entry in _entries(files) if entry.size > most and not entry.name.endswith(cut.uncut)]
        for entry in long:
            why = f"{entry.size:,} bytes, which are more than {RANGES:,} ranges to read: exclude it, or use a larger target_size"
            _note(Trouble(entry.name, "unreadable", why), root, found)
        files = files.filter(pc.invert(pc.is_in(files.column("name"), pa.array([entry.name for entry in long], pa.string()))))
    if cut.layout != "directories" and not cut.by.of_files:
        return files
    names, place = files.column("name").to_pylist(), root.url.rstrip("/")
    folders = [cut.folder(place, name, at) for name, at in zip(names, files.column("modified").to_pylist(), strict=True)]
    example = dict(zip(folders, names, strict=True))
    refused = {folder: why for folder in sorted(example) if (why := _refused(listing, dest, folder))}
    for folder, why in refused.items():
        how, where = ("use layout='flat'", folder) if not cut.by else (f"its files would lie in {folder[:100]}", example[folder])
        said = f"no file of it was read, as it cannot be a directory of the destination ({how}): {why}"
        _note(Trouble(where, "unreadable", said), root, found)
    return files.filter(pa.array([folder not in refused for folder in folders], pa.bool_())) if refused else files


def _refused(listing: Listing, dest: Store, folder: str) -> str:
    """Why no data file can be written for a directory of the source; empty: it can."""
    if folder.split("/", maxsplit=1)[0].casefold() == objects.STATE:
        return f"quire's own state lies in {objects.STATE}"
    if listing.cut.by and (longest := max(len(part.encode()) for part in folder.split("/"))) > LONGEST_NAME:
        return f"a name has {longest:,} bytes, and may have {LONGEST_NAME}"
    last, attempt = 99_999_999, objects.new_id()
    final = objects.data_file(folder, listing.job, last, attempt, last, "parquet.gzip")
    try:
        if isinstance(dest, Limited):
            dest.check_name(final)
            dest.check_name(objects.staged(listing.job, last, attempt, final))
        elif not is_safe(objects.staged(listing.job, last, attempt, final)):
            return "its path is too long"
    except (StorageError, FormatError) as e:
        return str(e)
    return ""


def _identified(root: Root, files: pa.Table, found: Listed) -> tuple[pa.Table, dict[str, str]]:
    """The files with the versions that the ledger knows; by path the store's, where that is another one."""
    if root.identity == "store":
        if (at := pc.index(files.column("version"), "").as_py()) >= 0:
            raise RefusedError(
                f"{root.url}/{files.column('name')[at]}: its store tells neither a time of change nor a checksum, so a file that was "
                f"rewritten looks as before. Give change_detection='content', which reads every listed file to know it."
            )
        return files, {}
    known, stored, prefix = list[Entry](), dict[str, str](), root.url.rstrip("/") + "/"
    for item in identified(root.store(found.again), _entries(files)):
        if isinstance(item, Trouble):
            _note(item, root, found)
        else:
            known.append(item[0])
            stored[prefix + item[0].name] = item[1]
    return _columns(Files.of(known)), stored


def list_deleted(listing: Listing, piece: Piece) -> Iterator[pa.Table]:
    """The gathered files that have gone from a piece of the source, as `DELETED` has them."""
    seen = ListedNames(listing.roots[piece.root], listing.selection, piece)
    for _ in _chunks(listing, piece, Listed(), seen):
        pass
    yield from seen.gone(listing.fold, connect(listing.dest, listing.dest_options))


def list_changed(listing: Listing, piece: Piece) -> Iterator[pa.Table]:
    """The files of a piece of the source that were rewritten or appended to since they were done, as `CHANGED` has them."""
    root, dest, policy = listing.roots[piece.root], connect(listing.dest, listing.dest_options), Policy(told=True)
    for listed in _chunks(listing, piece, Listed(), Blind(root, listing.selection, piece)):
        files, _ = _identified(root, listed, Listed())
        known = remaining(_table(root.url, files), listing.fold, dest, policy.needs).known
        there = {file["path"]: {**file, "commit": max(row["commit"] for row in rows)} for file, rows in known}
        reported = decide(known, policy, root.store, root.url).reported
        if reported:
            yield pa.Table.from_pylist([{**there[path], "reason": why} for path, why in reported], CHANGED)


def _count(decided: Decided, found: Differing) -> None:
    found.reported.add(len(decided.reported), decided.reported)
    found.longer += decided.longer
    found.outdated += decided.outdated
    found.held += decided.held


def _write_drops(listing: Listing, rows: list[dict[str, Any]], dest: Store, written: Written) -> None:
    """Write the rows that leave, and note the data files that they are in."""
    table = pa.Table.from_pylist([{**row, "data_file": row["data_file"] or "", "records": row["records"] or 0} for row in rows], DROPS)
    written.drops += put_drops(dest, table, lambda kind: objects.plan_parquet(listing.job, listing.plan, f"{kind}-{objects.new_id()}"))


class _Chunk:
    """The wanted files that a listing has shown since the last ones were handed on: some by themselves, others as columns."""

    def __init__(self) -> None:
        self.entries, self.columns = list[Entry](), Files.of(())

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.entries) + len(self.columns.names)

    def add(self, item: Entry | Files, seen: ListedNames, takes: Callable[[Entry], bool] | None) -> None:
        """Take in files that were listed, as far as they are wanted."""
        if isinstance(item, Files):
            seen.files(item.names)
            self.columns.add(item if takes is None else Files.of(list(filter(takes, item.entries()))))
            return
        seen.file(item.name)
        if takes is None or takes(item):
            self.entries.append(item)

    def taken(self, most: int) -> pa.Table:
        """The first ones that have come, sorted by name; the others stay."""
        self.columns.add(Files.of(self.entries))
        self.entries.clear()
        first = self.columns.cut(most)
        names = first.names
        if not all(map(le, names, islice(names, 1, None))):
            first = first.take(sorted(range(len(names)), key=names.__getitem__))
        return _columns(first)


def _columns(files: Files) -> pa.Table:
    names, sizes, versions, modified = files
    return pa.table(
        [pa.array(names, pa.string()), pa.array(sizes, pa.int64()), pa.array(versions, pa.string()), pa.array(modified, pa.int64())],
        ["name", "size", "version", "modified"],
    )


def _entries(files: pa.Table) -> list[Entry]:
    return list(map(Entry, *(column.to_pylist() for column in files.columns)))


def _chunks(listing: Listing, piece: Piece, found: Listed, seen: ListedNames) -> Iterator[pa.Table]:
    """The wanted files of a piece as columns, sorted by name, a bounded number at a time; where it is cut depends on the tree alone."""
    root = listing.roots[piece.root]
    takes = _taker(root, listing.selection, found, listing.dest, piece.root)
    if not piece.names:
        yield from _below(listing, piece, found, seen, takes)
    elif chunk := sorted(_named(listing, piece, found, takes)):
        yield _columns(Files.of(chunk))


def _below(
    listing: Listing, piece: Piece, found: Listed, seen: ListedNames, takes: Callable[[Entry], bool] | None
) -> Iterator[pa.Table]:  # fmt: skip
    root = listing.roots[piece.root]
    store = root.store(found.again)
    waiting, chunk = [piece.folder], _Chunk()
    most = CHUNK if isinstance(store, Seeking) else sys.maxsize  # where names come in order, all of a directory are one range
    while waiting:
        folders, here = list[str](), waiting.pop()
        if listing.selection.links and below(normalise(f"{root.url}/{here}"), listing.dest):
            found.links += 1  # a link into the destination: what was gathered must not be gathered again
            seen.blind.append(here)
            continue
        for after, until in _ranges(store, listing.selection, piece, here):
            for item in _shown_together(store, listing.selection, here, after, until, seen, found):
                if isinstance(item, Entry | Files):
                    chunk.add(item, seen, takes)
                    while chunk.rows >= most:
                        yield chunk.taken(most)
                elif isinstance(item, Trouble):
                    _note(item, root, found)
                elif piece.below:
                    folders.append(item.name)
            if chunk.rows >= CHUNK:
                yield chunk.taken(most)
        waiting += sorted(folders, reverse=True)
    if chunk.rows:
        yield chunk.taken(most)


def _shown_together(
    store: Store, selection: Selection, folder: str, after: str, until: str, seen: ListedNames, found: Listed
) -> Iterator[Item]:  # fmt: skip
    """As `_shown`, with files that come together as columns where the store has them so."""
    if not isinstance(store, Paging):
        yield from _shown(store, selection, folder, after, until, seen, found)
        return
    for item in store.scan_pages(folder, after=after, until=until, follow=selection.links):
        if isinstance(item, Files):
            hidden = selection.hides(item.names, len(folder) + 1 if folder else 0)
            found.hidden += len(hidden)
            yield item.without(hidden) if hidden else item
        else:
            yield from _visible((item,), selection, folder, after, until, seen, found)


def _named(
    listing: Listing, piece: Piece, found: Listed, takes: Callable[[Entry], bool] | None, later: list[str] | None = None
) -> Iterator[Entry]:
    """The wanted files among the names of a piece; `later` takes those that are wanted and cannot be taken yet."""
    root, seen = listing.roots[piece.root], {name for name, _ in piece.seen}
    names = [name for name in piece.names if name not in seen]
    for name, item in chain(piece.seen, looked_up(root.store(found.again), root, listing.selection, names, listing.dest)):
        young = found.young
        if not isinstance(item, Trouble):
            found.differing.looks.append([piece.root, name, item])
        if item is None:
            found.differing.missing += 1
        elif isinstance(item, Trouble):
            _note(item, root, found)
            found.hidden += item.kind == "hidden"
        elif takes is None or takes(item):
            yield item
        if later is not None and (found.young > young or (isinstance(item, Trouble) and item.kind == "unreadable")):
            later.append(name)


def _shown(
    store: Store, selection: Selection, folder: str, after: str, until: str, seen: ListedNames, found: Listed
) -> Iterator[Entry | Folder | Trouble]:  # fmt: skip
    """The part of a directory that is not hidden and has a name in [after, until)."""
    return _visible(store.scan(folder, after=after, until=until, follow=selection.links), selection, folder, after, until, seen, found)


def _visible(
    items: Iterable[Entry | Folder | Trouble], selection: Selection, folder: str, after: str, until: str, seen: ListedNames, found: Listed
) -> Iterator[Entry | Folder | Trouble]:  # fmt: skip
    for item in items:
        if item.__class__ is Entry:  # nearly all; the store has kept to the range
            if selection.shows(item.name[item.name.rfind("/") + 1 :]):
                yield item
            else:
                found.hidden += 1
            continue
        # Of all that is there, hidden or in another slice.
        seen.folder(item.name) if item.__class__ is Folder else seen.blind.append(item.name.rstrip("/"))
        if item.name == folder:  # the directory itself cannot be listed: one of its slices says so
            if not after:
                yield item
            continue
        last = item.name[len(folder) + 1 if folder else 0 :]  # of what no path can say it ends with a slash
        if isinstance(item, Trouble) and last.endswith("/"):
            if not after:
                yield item
        elif last >= after and (not until or last < until):
            if selection.shows(last):
                yield item
            else:
                found.hidden += 1


def globs_of(root: Root) -> list[str]:
    """The part of a root that was asked for by globs: not by the names of directories, which are there."""
    return [wanted for wanted in root.wanted if is_glob(wanted)]


def _unmet(root: Root, number: int) -> dict[tuple[int, str], re.Pattern[str]]:
    """The globs that no name has matched so far."""
    every = {(number, glob): Selection().chooser(Root("", (glob,))) for glob in globs_of(root)}
    return {(number, ""): re.compile(""), **every} if every else {}


def _taker(root: Root, selection: Selection, found: Listed, dest: str = "", number: int = 0) -> Callable[[Entry], bool] | None:
    """Whether a file that is not hidden is wanted; None if all are."""
    wanted, prefix = selection.chooser(root), root.url.rstrip("/") + "/"
    linked = selection.links and dest and root.url.startswith("file://")
    everything = root.wanted == ("",) and not selection.include and not selection.exclude
    if everything and selection.newest is None and not selection.without and not linked:
        return None
    unmet = _unmet(root, number)

    def takes(entry: Entry) -> bool:
        if unmet:  # as a rule each glob has matched soon
            for met in [glob for glob, pattern in unmet.items() if pattern.match(entry.name)]:
                del unmet[met]
                found.met.append(list(met))
        if not everything and not wanted.match(entry.name):
            found.unwanted.add(1, [entry.name])
            return False
        if selection.newest is not None and entry.modified > selection.newest:
            found.young += 1
            return False
        if linked and _is_own(root, entry.name, dest):
            found.links += 1  # as of a directory: what was gathered must not be gathered again
            return False
        return not selection.without or prefix + entry.name not in selection.without

    return takes


def _is_own(root: Root, name: str, dest: str) -> bool:
    """Whether a link leads to a file of the destination."""
    path = f"{root.url.removeprefix('file://').rstrip('/')}/{name}"
    return os.path.islink(to_os(path)) and below(normalise(to_os(path)), dest)


def _ranges(store: Store, selection: Selection, piece: Piece, folder: str) -> list[tuple[str, str]]:
    """The ranges of names in which a task lists a directory: one, but for a very large one that the driver has not looked at."""
    if folder == piece.folder and (piece.after or piece.until or not piece.below):
        return [(piece.after, piece.until)]
    if isinstance(store, Seeking):
        return [("", "")]
    return ranges(store, folder, selection)


def _note(trouble: Trouble, root: Root, found: Listed) -> None:
    if trouble.kind == "link":
        found.links += 1
    elif trouble.kind == "unreadable":
        found.unreadable.add(1, [(f"{root.url}/{trouble.name}", trouble.reason)])


def _table(root: str, files: pa.Table) -> pa.Table:
    """The files by their paths."""
    path = pc.binary_join_element_wise(root.rstrip("/") + "/", files.column("name"), "")
    return files.set_column(0, "path", path)


def _splits(
    files: pa.Table, cut: Cut, replaces: dict[str, list[Any]], again: list[dict[str, Any]], whole: Callable[[dict[str, Any]], bool]
) -> pa.Table:
    """The rows of the plan: files, with what each replaces; those longer than the target are cut into ranges, but for `whole` ones.

    `again`: rows as they are.
    """
    longest, most = pc.max(files.column("length")).as_py() or 0, cut.longest or min(cut.target, LONGEST)
    if not replaces and not again and (not cut.streams or longest <= most):
        # Nearly always so: the columns stay what they are, and no value passes through Python.
        for name in ("replaces", "follows"):
            files = files.append_column(name, pa.nulls(files.num_rows, pa.string()))
        return files.select(PLAN.names).cast(PLAN)
    rows = files.to_pydict()
    rows["replaces"] = [json.dumps(replaces.pop(p)) if p in replaces else None for p in rows["path"]]
    rows["follows"] = [None] * files.num_rows
    for split in again:
        for key, value in rows.items():
            value.append(split[key])
    longest = max([longest, *(split["length"] for split in again)])
    if not cut.streams or longest <= most:
        return pa.table({f.name: rows[f.name] for f in PLAN}, PLAN)
    found: dict[str, list[Any]] = {key: [] for key in rows}
    for row in zip(*rows.values(), strict=True):
        split = dict(zip(rows, row, strict=True))
        start, end = split["start"], split["start"] + split["length"]
        n = max(1, -(-split["length"] // most))
        n = 1 if n == 1 or split["path"].endswith(cut.uncut) or whole(split) else n
        for i in range(n):
            s, e = start + (end - start) * i // n, start + (end - start) * (i + 1) // n
            for key, value in {**split, "start": s, "length": e - s, **(_REST if i else {})}.items():
                found[key].append(value)
    return pa.table({f.name: found[f.name] for f in PLAN}, PLAN)


def _whole(cut: Cut, root: Root, found: Listed, split: dict[str, Any]) -> bool:
    """Whether a long file is compressed, or an archive, though its name does not say so, or text with no lines to be found from the middle.

    A file that cannot be read now says later why.
    """
    kept = cut.members and split["length"] <= LONGEST
    if root.decompress == compression.NONE and not kept and not cut.wide and not root.archives:
        return False
    size, name = split["size"], split["path"][len(root.url.rstrip("/")) + 1 :]
    try:
        beginning = read(root.store(found.again), ReadRequest(name, split["version"], size, 0, min(size, BLOCK)))
    except (Vanished, Unreadable):
        return False
    if root.archives and archives.looks(beginning):
        return True
    return compression.looks(beginning, compression.AUTO) or (cut.wide and encodings.is_wide(beginning))


def write_rows(cut: Cut, source: Root, root: int, object_name: str, table: pa.Table, dest: Store, written: Written) -> None:
    """Write rows of a plan that are of one source, sorted by group, and note their runs; `root`: the source's number."""
    place = source.url.rstrip("/")
    paths = table.column("path").to_pylist() if cut.by_folder else []
    groups, numbers = [""] * table.num_rows, [0] * table.num_rows
    if cut.by_folder:
        times = table.column("modified").to_pylist()
        groups = [cut.folder(place, path[len(place) + 1 :], at) for path, at in zip(paths, times, strict=True)]
    if cut.planner == "hash":
        numbers = parts_of([path[path.rfind("/") + 1 :] for path in paths], cut.parts, cut.hash_function).tolist()
    if cut.by_folder:
        order = sorted(range(table.num_rows), key=lambda i: (groups[i], numbers[i]))
        table, groups, numbers = table.take(order), [groups[i] for i in order], [numbers[i] for i in order]
    before = np.cumsum(np.concatenate([[0], table.column("length").to_numpy()]))  # bytes before each row, and of all
    most = max(1, cut.target // 32) if cut.planner == "balanced" else None
    first = 0
    while first < table.num_rows:
        group, part, end = groups[first], numbers[first], table.num_rows
        if most is not None:
            end = min(end, first + ROWS, max(first + 1, int(np.searchsorted(before, before[first] + most, "right")) - 1))
        if cut.by_folder:
            end = next((i for i in range(first, end) if groups[i] != group or numbers[i] != part), end)
        run = TaskRun(group, part, object_name, root, first, end - first, int(before[end] - before[first]))
        written.runs.append(asdict(run))
        first = end
    written.splits += table.num_rows
    written.bytes += int(before[-1])
    out = pa.BufferOutputStream()
    encoding = {"path": "DELTA_BYTE_ARRAY", "version": "DELTA_BYTE_ARRAY"}
    pq.write_table(
        table,
        out,
        row_group_size=ROW_GROUP,
        compression="zstd",
        use_dictionary=["replaces"],
        column_encoding=encoding,
        write_statistics=False,
    )
    dest.put(object_name, out.getvalue().to_pybytes())


def _estimate(listing: Listing, root: Root, rows: pa.Table, found: Listed) -> None:
    """Read a few small files to see how many bytes would be written for those read."""
    if listing.estimate is None or found.written.sampled >= SAMPLE:
        return
    if not listing.estimate.of_all:  # what is not compressed is written as it is
        decoded = pc.match_substring_regex(rows.column("path"), compression.named(root.decompress))
        if root.archives:
            decoded = pc.or_(decoded, pc.match_substring_regex(rows.column("path"), archives.NAMED))
        plain = pc.sum(rows.filter(pc.invert(decoded)).column("length")).as_py() or 0
        found.written.sampled, found.written.sampled_out = found.written.sampled + plain, found.written.sampled_out + plain
        rows = rows.filter(decoded)
    if not rows.num_rows:
        return
    prefix = len(root.url.rstrip("/")) + 1
    some = rows.take(list(range(0, rows.num_rows, max(1, rows.num_rows // (4 * SAMPLE)))))
    values = (some.column(c).to_pylist() for c in ("path", "version", "size", "modified"))
    chosen = [row for row in zip(*values, strict=True) if 0 < row[2] <= 1 << 20][:SAMPLE]
    requests = [ReadRequest(path[prefix:], version, size, 0, size) for path, version, size, _ in chosen]
    store = archives.unpacking(root.store(found.again), root.decompress, ESTIMATED, archives=root.archives)
    answers: Iterator[tuple[ReadRequest, archives.Answer]] = store.read_many(requests)
    taken = made = 0
    for (path, version, size, modified), (_, answer) in zip(chosen, answers, strict=True):
        content = answer.content if isinstance(answer, compression.Decoded) else answer
        if isinstance(content, archives.Archive):
            taken += size
            made += _estimated(content)
        elif isinstance(content, bytes):
            taken += size
            made += listing.estimate(content, FileInfo(path, size, version, modified))
        elif not isinstance(content, Vanished | Unreadable | BadContent):
            for _ in content:
                pass
    weight = 1 if listing.estimate.of_all else (pc.sum(rows.column("length")).as_py() or 0) / max(taken, 1)
    found.written.sampled += int(taken * weight)
    found.written.sampled_out += int(made * weight)


def _estimated(archive: archives.Archive) -> int:
    """The bytes of the members of an archive."""
    try:
        return sum(member.size for member in archive.members())
    except BadContent:
        return 0
