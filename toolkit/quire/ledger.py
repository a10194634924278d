"""The ledger that users open: which files have been processed, by which commit, where they lie now, or why they were set aside.

It is what the log says, and no more: opening it reads the log, and only the segments that a question needs.
"""

from __future__ import annotations

import copy
import io
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire import display, inspection
from quire.claims import Claims
from quire.commit import names
from quire.commit.entries import CLAIM, Abort, Commit, Entry, Expired, Pin, Published, Task, Unpin
from quire.commit.log import Log
from quire.commit.protocol import open_jobs
from quire.coverage import segments
from quire.coverage.fold import Source, fold
from quire.coverage.quarantine import rejected
from quire.errors import NotFoundError, QuireError, StorageError, UsageError, about, choose, scrub
from quire.formats import lines, parquet
from quire.options import whole
from quire.paging import Pages
from quire.planning import skew
from quire.planning.listing import Cut, Listing, list_deleted
from quire.planning.pieces import pieces
from quire.planning.plan import evenness
from quire.rounds import check_destination
from quire.runner import OnSpark, guarded
from quire.sizes import format_size
from quire.sources import files
from quire.storage import connect, normalise
from quire.storage.local import to_text
from quire.storage.sight import Landmarks
from quire.upkeep.expire import expired
from quire.upkeep.purge import Purge, purges
from quire.upkeep.verbs import Verbs, runner_of
from quire.verification import Item, Verified, verify

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Ledger", "Location", "Summary", "Verified"]

# What users see of a row. One fixed schema, whatever the job.
COLUMNS = ["path", "version", "start", "length", "state", "reason", "data_file", "offset", "skip", "written", "records", "checksum"]
SPARK_SCHEMA = (
    "path string, version string, start long, length long, state string, reason string, data_file string, offset long, skip long, "
    "written long, records long, checksum string, commit long, attempt string"
)


@dataclass(frozen=True)
class Summary(display.Shown):
    """A destination in numbers. `files` are done (marked ones elsewhere), `set_aside` in quarantine; `open_jobs` have no outcome yet."""

    dest: str
    version: int
    transform: str
    format: str
    compression: str
    layout: str
    commits: int
    files: int
    bytes_read: int
    set_aside: int
    held_back: int
    data_files: int
    bytes_written: int
    ledger_rows: int
    last_commit: str
    unpublished: int
    open_jobs: tuple[str, ...]
    reduce: str = ""  # the function that all rows of a job went through

    def _facts(self) -> dict[str, object]:
        made = f"{self.transform} → shuffle {self.reduce}" if self.reduce else self.transform
        return {
            "transform": f"{made} → {self.format}, compression {self.compression}, layout {self.layout}",
            "files gathered": f"{self.files:,} ({format_size(self.bytes_read)})",
            "set aside": f"{self.set_aside:,}",
            **({"last lines held back": f"{self.held_back:,}"} if self.held_back else {}),
            "data files": f"{self.data_files:,} ({format_size(self.bytes_written)})",
            "commits": f"{self.commits:,}, the last one {self.last_commit or 'never'}",
            "version": self.version,
            **({"unpublished commits": self.unpublished} if self.unpublished else {}),
            **({"open jobs": ", ".join(self.open_jobs)} if self.open_jobs else {}),
        }


@dataclass(frozen=True)
class Location:
    """Where one file, or one range of a long file, is.

    `offset` is the record's byte in the data file (compressed: its frame's; Parquet: its first row's number), `skip` the bytes
    to leave out after it, `written` its bytes there, `checksum` their xxh3-64.
    """

    path: str
    version: str
    start: int
    length: int
    state: str
    reason: str | None
    data_file: str | None
    offset: int | None
    skip: int | None
    written: int | None
    records: int | None
    checksum: str | None
    commit: int
    attempt: str = ""


class Ledger(Pages, Verbs, Claims):
    """The ledger of a destination, as its log stands when it is opened; `refresh()` looks again."""

    def __init__(
        self, dest: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, create: bool = False
    ) -> None:  # fmt: skip
        """Open the ledger of a destination.

        `create`: also where none is yet, before the first claim, or for what was done elsewhere (`import_markers`).
        """
        self._url, self._options = normalise(dest), storage_options
        self._until: int | None = None  # the version that is looked at, where it is not the last one
        self._store = connect(self._url, storage_options)
        if create:
            check_destination(self._store, append=False)
        elif not self._store.is_folder(names.STATE):
            raise UsageError(
                f"{self._url} holds no ledger: nothing was gathered there. Look for a typing mistake, or run quire consolidate first."
            )
        self.refresh()

    def refresh(self) -> Ledger:
        """Read the log to its tip."""
        self._log = Log(self._store).refresh()
        self._fold = fold(self._log, self._until, reader=True)
        return self

    def as_of(self, version: int) -> Ledger:
        """The ledger as it was at a version; UsageError if that is not there yet. Its verbs change what is there now."""
        whole(version, "version", 0)
        found = copy.copy(self)
        found._until = None
        if version > found.refresh().version:
            raise UsageError(f"version {version} of {self._url} is not there yet: the last one is {found.version}.")
        found._until = version
        return found.refresh()

    @property
    def version(self) -> int:
        """The number of the log's last entry, or the version that `as_of` was asked for."""
        return self._log.tip if self._until is None else self._until

    # ------------------------------------------------------------------------------------------------------------ from the log
    def _tasks(self) -> Iterator[tuple[int, Commit, Task]]:
        for number, commit in self._log.commits(until=self.version):
            for task in self._log.in_effect(commit, self.version, reader=True):
                yield number, commit, task

    def summary(self) -> Summary:
        """The destination in numbers, from the log alone."""
        found = list(self._tasks())
        tasks, commits = [t for _, _, t in found], list({number: c for number, c, _ in found}.values())
        words = next((c.words for c in commits if c.words.said), None)
        live = [f for t in tasks for f in t.files if f.name not in self._fold.removed]
        uncovered = sum(len(u.ranges) for t in tasks for u in t.uncovers)
        return Summary(
            dest=self._url, version=self.version, transform=words.transform if words else "", format=words.format if words else "",
            compression=words.compression if words else "", layout=words.layout if words else "", commits=len(commits),
            files=sum(t.files_in - t.files_out for t in tasks), bytes_read=sum(t.bytes_in - t.bytes_out for t in tasks),
            set_aside=sum(t.set_aside - t.bad_out for t in tasks), data_files=len(live), bytes_written=sum(f.size for f in live),
            held_back=sum(t.held - t.held_out for t in tasks),
            ledger_rows=sum(t.gathered + t.bad + t.held + t.pieces for t in tasks) - uncovered,
            last_commit=commits[-1].time if commits else "",
            unpublished=len(self._log.unpublished()), open_jobs=tuple(h.job for h in open_jobs(self._store, self._log)),
            reduce=words.reduce if words else "",
        )  # fmt: skip

    def history(self, as_: str = "pandas") -> Any:
        """One row an entry of the log: version, kind, verb, job, time, tasks, files, bytes, data_files, set_aside, left_out, note.

        `as_`: here and below, "pandas", "arrow" or "spark". The schemas are fixed: `quire.inspection.TABLES`.
        """
        rows = [_entry_row(number, entry) for number, entry in enumerate(self._log.entries[: self.version], 1)]
        rows += [_purge_row(*found) for found in purges(self._store) if found[0].version <= self.version]
        rows.sort(key=lambda row: (row[0], row[1] == "purge", row[4]))
        return inspection.given("history", rows, as_)

    def skew(self) -> skew.SkewResult:
        """Whether the last commit that gathered anything was even: hash plans by files within each directory, others by bytes."""
        for _, commit in reversed(list(self._log.commits(until=self.version))):
            tasks = self._log.in_effect(commit, self.version, reader=True)
            if commit.verb != "mark" and any(t.assigned for t in tasks):
                rows = [(t.folder, t.part, t.assigned, t.bytes_in) for t in tasks if t.assigned]
                return evenness(rows, commit.planner, commit.hash_parts, commit.target, None)
        return skew.check([])

    def tasks(self, as_: str = "pandas") -> Any:
        """One row a task: commit, task, directory, part, files, bytes, data_files, bytes_written, started (UTC), seconds."""
        return inspection.given("tasks", inspection.task_rows(self._tasks()), as_)

    def files(self, as_: str = "pandas") -> Any:
        """The data files that count, one row each: data_file, bytes, records, commit, verb, task, directory of the source."""
        rows = [
            (f.name, f.size, f.records, number, commit.verb, task.task, task.folder)
            for number, commit, task in self._tasks() for f in task.files if f.name not in self._fold.removed
        ]  # fmt: skip
        return inspection.given("files", rows, as_)

    # -------------------------------------------------------------------------------------------------------- from the segments
    def coverage(self, path: str | os.PathLike[str], as_: str = "pandas") -> Any:
        """Which bytes of a source file are accounted for, in their order: start, length, state, version, commit, data_file, reason.

        A range in state "gap" lies between others and is not covered: the next run takes it.
        """
        rows, at = list[tuple[Any, ...]](), 0
        for x in self.locate(path):
            if x.start > at:
                rows.append((at, x.start - at, "gap", None, None, None, None))
            rows.append((x.start, x.length, x.state, x.version, x.commit, x.data_file, x.reason))
            at = x.start + x.length
        return inspection.given("coverage", rows, as_)

    def sizes(self, as_: str = "pandas") -> Any:
        """How large files were and are, one row a class: up_to (bytes, a power of two), files and bytes before and after."""
        after = inspection.classed(f.size for _, _, t in self._tasks() for f in t.files if f.name not in self._fold.removed)
        return inspection.given("sizes", inspection.size_rows(inspection.file_lengths(self._store, self._fold), after), as_)

    def failed(self, as_: str = "pandas") -> Any:
        """What is in quarantine: path, version, start, length, reason, tries (how often it was read), attempt, commit.

        A row is a file, a split of one, or a single record that a function has rejected: `rejected()` has these with their bytes.
        """
        with_bad: set[str | None] = {t.segment for _, _, t in self._tasks() if t.set_aside and t.segment}
        rows = self._rows(["path", "version", "start", "length", "reason", "tries", "state"], only=with_bad, attempt=True)
        return inspection.given("failed", rows.filter(pc.equal(rows.column("state"), "bad")), as_)

    def rejected(self, as_: str = "pandas") -> Any:
        """The records that a function has rejected: path, version, offset, length, error, message, tries, content, attempt, commit.

        `content` is the record's bytes; None for one of more than 1 MiB, which is kept at its source alone.
        """
        return inspection.given("rejected", rejected(self._store, self._fold, self._tasks()), as_)

    def _rows(
        self, columns: list[str], first: str = "", last: str = "", only: set[str | None] | None = None, attempt: bool = False
    ) -> pa.Table:
        tables = []
        for source in self._fold.sources:
            if only is None or source.segment in only:
                table = self._fold.of(source).rows(self._store, columns, first, last)
                tables.append(_with_attempt(table, source.segment) if attempt else table)
        empty = pa.schema([segments.SCHEMA.field(c) for c in columns] + [pa.field("commit", pa.int64())]).empty_table()
        return pa.concat_tables([_with_attempt(empty, "") if attempt else empty, *tables])

    def splits(self, spark: SparkSession, where: str | None = None) -> DataFrame:
        """Every row as a Spark DataFrame; `where` is a condition in SQL: `"state = 'bad'"`, `"path like '%/dt=2026-11-21/%'"`."""
        from pyspark.errors import PySparkException

        sources = list(self._fold.sources)
        url, options, folded = self._url, self._options, self._fold

        def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            store = connect(url, options)
            for batch in batches:
                for i in batch.column(0).to_pylist():
                    table = folded.of(sources[i]).rows(store, COLUMNS)
                    table = table.set_column(table.schema.get_field_index("checksum"), "checksum", pa.array(_hex(table.column("checksum"))))
                    yield from _with_attempt(table, sources[i].segment).to_batches(max_chunksize=10_000)

        n = len(sources)
        work = guarded(spark, read, Landmarks([], url))
        frame = spark.range(0, n, 1, max(n, 1)).mapInArrow(work, SPARK_SCHEMA)
        try:
            return frame.where(where) if where else frame
        except PySparkException as e:
            raise UsageError(
                f"where={where!r} is no condition about the ledger's columns ({scrub(str(e), 200)}). They are: {SPARK_SCHEMA}."
            ) from e

    def deleted(
        self, spark: Any, source: Any, as_: str = "spark", *, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, storage_options: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """The gathered files that are no longer at `source`: path, version, commit. Their output is kept; nothing is changed.

        `source` and what chooses from it are as in `quire.consolidate`: of what that does not list, nothing is said. Of millions,
        as_="spark" is a DataFrame that is computed where it is used. `storage_options`: of the source; left out: the destination's.
        """
        choose(as_, inspection.KINDS, "as_")
        with about("source"):
            roots = tuple(files.roots(source, self._options if storage_options is None else storage_options))
        selection = files.Selection(files.patterns(include, "include"), files.patterns(exclude, "exclude"), hidden, follow_links)
        listing = Listing(self._url, self._options, "", "", roots, selection, self._fold, Cut("balanced", "flat", 1, "xxh64", 1, False))
        runner = runner_of(spark, self._url)
        found = list(pieces(roots, selection, runner.parallelism, every=True))

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for i in batch.column(0).to_pylist():
                    for table in list_deleted(listing, found[i]):
                        yield from table.to_batches(max_chunksize=10_000)

        if not isinstance(runner, OnSpark):
            if as_ == "spark":
                raise UsageError("as_='spark' needs a SparkSession. Say as_='pandas' or 'arrow'.")
            tables = [table for piece in found for table in list_deleted(listing, piece)]
            return inspection.given("deleted", pa.concat_tables([inspection.TABLES["deleted"].empty_table(), *tables]), as_)
        task = guarded(runner.spark, work, Landmarks([root.url for root in roots], self._url))
        frame = runner.spark.range(0, len(found), 1, max(len(found), 1)).mapInArrow(task, "path string, version string, commit long")
        return frame if as_ == "spark" else inspection.given("deleted", frame.toArrow(), as_)

    @overload
    def locate(self, path: str | os.PathLike[str]) -> list[Location]: ...

    @overload
    def locate(self, path: str | os.PathLike[str], as_: str) -> Any: ...

    def locate(self, path: str | os.PathLike[str], as_: str = "locations") -> Any:
        """Where a source file is: one `Location`, or one for each range of a long file. UsageError if the ledger does not know it.

        `as_`: "locations", a list of them; or "pandas", "arrow", "spark".
        """
        choose(as_, ("locations", *inspection.KINDS), "as_")
        keys = _keys(path)
        for key in keys:
            rows = self._rows(COLUMNS, key, key, attempt=True)
            if rows.num_rows:
                rows = rows.set_column(
                    rows.schema.get_field_index("checksum"), "checksum", pa.array(_hex(rows.column("checksum")), pa.string())
                )
                found = self._said(rows.sort_by([("start", "ascending")]).to_pylist())
                if as_ == "locations":
                    return [Location(**row) for row in found]
                return inspection.given("locate", pa.Table.from_pylist(found, inspection.TABLES["locate"]), as_)
        hint = inspection.alike(self._fold, self._store, keys)
        raise UsageError(
            f"{keys[-1]} is not in the ledger of {self._url}: it was not gathered, or under another path{hint}. Look with .splits(spark)."
        )

    def _said(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows, where they lie in no file of their own with the reason for it."""
        commits = dict(self._log.commits())
        for row in rows:
            commit = commits[row["commit"]]
            if row["state"] in ("done", "mark") and not row["data_file"] and not commit.words.traced:
                others = sum(t.gathered for t in self._log.in_effect(commit)) - 1
                how = "was processed by a claim together" if commit.words.transform == CLAIM else "went through a shuffle"
                row["reason"] = f"{how} with {others:,} others in commit {row['commit']}, and its rows have no place of their own"
        return rows

    def _keys(self, path: str | os.PathLike[str]) -> list[str]:
        return _keys(path)

    def open(self, path: str | os.PathLike[str]) -> io.BufferedReader:
        """The content of a gathered file as a stream: the original bytes of `raw` (and of Parquet content); else the written record.

        Its checksum is compared on the way: the last read raises StorageError if the data file is damaged.
        """
        found = self.locate(path)
        bad = next((x for x in found if x.state == "bad"), None)
        if bad is not None:
            raise QuireError(f"{bad.path} was set aside ({bad.reason}): its content was never gathered. Read it at its source.")
        together = next((x for x in found if x.reason and not x.data_file), None)
        if together is not None and not all(commit.words.traced for _, commit in self._log.commits()):
            raise UsageError(f"{scrub(together.path)} {scrub(together.reason or '')}. Read all of them with quire.read(spark, dest).")
        _check_whole(found)
        return io.BufferedReader(_Pieces(self._pieces(found)))

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """All of what `open` gives."""
        with self.open(path) as stream:
            return stream.read()

    def _pieces(self, found: list[Location]) -> Iterator[bytes]:
        for x in found:
            if x.data_file is not None:  # an empty file has none
                try:
                    yield from self._record(x, x.data_file)
                except NotFoundError as e:
                    raise self._gone(x, e) from e
                except QuireError:
                    raise
                except lines.UNREADABLE as e:
                    what = "its checksum differs" if isinstance(e, _Differs) else type(e).__name__
                    raise StorageError(
                        f"{x.path} cannot be read back: {self._url}/{x.data_file} is damaged ({what}). "
                        f"See what else it hit with quire ledger verify."
                    ) from e

    def _gone(self, x: Location, error: NotFoundError) -> QuireError:
        """Why a data file is not there: its version has expired since it was looked at, or somebody has deleted the file."""
        if expired(Log(self._store).refresh()) > self.version:
            return QuireError(
                f"{x.path} cannot be read back: version {self.version} of {self._url} has expired since it was opened, and {x.data_file} "
                f"is deleted. Look again with ledger.refresh(), and keep a version readable with ledger.pin()."
            )
        return error

    def _record(self, x: Location, data_file: str) -> Iterator[bytes]:
        """What was written for a file or range; at its end, ValueError if its checksum differs."""
        if data_file.endswith(".parquet"):
            rows = parquet.Rows(self._store, data_file).take(x.offset or 0, x.records or 0)
            if rows.schema.names != parquet.CONTENT.names:
                raise UsageError(f"{x.path} became {x.records} rows of a function's own columns. Read them with quire.read(spark, dest).")
            checksum = parquet.checksum(rows)
            parts = rows.column("content").to_pylist()
            yield from (part + b"\n" for part in parts) if len(parts) > 1 else parts
        else:
            compression = next(c.words.compression for _, c in self._log.commits() if c.words.said)
            size = min(lines.BUFFER, max((x.written or 0) + (x.skip or 0), 1 << 16))
            digest = xxhash.xxh3_64()
            for piece in lines.cursor(self._store, data_file, compression, size).take(x.offset or 0, x.skip or 0, x.written or 0):
                digest.update(piece)
                yield piece
            checksum = digest.intdigest()
        if f"{checksum:016x}" != x.checksum:
            raise _Differs

    # ------------------------------------------------------------------------------------------------------------------ verify
    def verify(self, spark: Any = None) -> Verified:
        """Read every data file again and compare each record with its checksum, on Spark.

        What a shuffle or a claim has written is read to its end, as far as its format says what belongs there; it has no checksums.
        """
        items: list[Item] = [
            (Source(number, task.segment, task.first, task.last), files, commit.words.compression)
            for number, commit, task in self._tasks()
            if task.segment and (files := {f.name: f.size for f in task.files if f.name not in self._fold.removed})
        ]
        items += [
            (None, {f.name: f.size for f in some}, commit.words.compression)
            for _, commit, task in self._tasks() if not task.segment
            if (some := [f for f in task.files if f.name not in self._fold.removed])
        ]  # fmt: skip
        found = verify(runner_of(spark, self._url), self._url, self._options, self._fold, items)
        if not found.ok and expired(Log(self._store).refresh()) > self.version:
            raise QuireError(f"version {self.version} of {self._url} has expired since it was opened. Verify again after ledger.refresh().")
        return found

    def __repr__(self) -> str:
        return f"Ledger({self._url!r}, version={self.version})"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def _entry_row(number: int, entry: Entry) -> tuple[Any, ...]:
    """What the history says of an entry."""
    tasks = entry.tasks if isinstance(entry, Commit) else ()
    note = entry.why if isinstance(entry, Abort | Commit) else ""
    if isinstance(entry, Commit) and entry.words.reduce and entry.whole:
        note = f"through {entry.words.reduce}" + (f": {note}" if note else "")
    if isinstance(entry, Published) and entry.lost:
        note = f"lost tasks: {', '.join(map(str, entry.lost))}"
    if isinstance(entry, Expired):
        note = f"versions before {entry.below} can no longer be read"
    if isinstance(entry, Pin | Unpin):
        note = f"version {entry.version}, pin {entry.id}"
    return (
        number, type(entry).__name__.lower(), getattr(entry, "verb", ""), getattr(entry, "job", ""), entry.time, len(tasks),
        sum(t.files_in for t in tasks), sum(t.bytes_in for t in tasks), sum(len(t.files) for t in tasks), sum(t.bad for t in tasks),
        sum(len(t.left) for t in tasks) + len(getattr(entry, "left", ())), note,
    )  # fmt: skip


def _purge_row(said: Purge, ended: bool) -> tuple[Any, ...]:
    """What the history says of sources that were deleted, at the version by which they were verified."""
    where = f"below {', '.join(said.sources)}" if said.sources else "of all that is done"
    note = f"sources deleted {where}; {said.stayed:,} stayed" if ended else f"sources deleted {where}: it has not come to its end"
    return said.version, "purge", "purge_sources", "", said.time, 0, said.files, said.bytes, 0, 0, 0, note


def _with_attempt(table: pa.Table, segment: str) -> pa.Table:
    attempt = segment.removesuffix(".parquet").rpartition("-")[2]
    return table.append_column("attempt", pa.array([attempt] * table.num_rows, pa.string()))


def _hex(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else f"{value:016x}" for value in column.to_pylist()]


def _keys(path: str | os.PathLike[str]) -> list[str]:
    """The keys that a path may have: as the ledger shows it, and with its links resolved: all, or only those it is found through.

    (A link that was followed below a source keeps its own name, while the links above the source are resolved.)
    """
    resolved = normalise(os.fsdecode(path) if isinstance(path, bytes) else path)
    text = os.fsdecode(path)
    shown = [text] if text.startswith(("file:///", "memory://")) else [f"file://{text}"] if text.startswith("/") else []
    shown = [key for key in shown if key.isascii() or _is_utf8(key)]  # a name as Python gives it is no key of the ledger
    if not resolved.startswith("file://"):
        return list(dict.fromkeys([*shown, resolved]))
    plain = os.path.abspath(os.path.expanduser(text.removeprefix("file://")))
    parts = plain.split("/")
    through = [os.path.join(os.path.realpath("/".join(parts[:i]) or "/"), *parts[i:]) for i in range(1, len(parts))]
    return list(dict.fromkeys([*shown, *("file://" + to_text(p) for p in through), resolved]))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Differs(ValueError):
    """A checksum is another one than the ledger's."""


def _check_whole(found: list[Location]) -> None:
    """Refuse to give the beginning of a file for all of it: of a long file, a range may not have been gathered."""
    done = [x for x in found if x.state != "held"]
    at, size = 0, found[-1].version.rpartition("-")[2]  # a local version ends with the size; another store's may not say it
    for x in done:
        if x.start != at:
            break
        at += x.length
    size = "" if len(done) < len(found) else size  # what is held back is no part of it yet
    if at != sum(x.length for x in done) or (size.isascii() and size.isdigit() and at < int(size[:30])):
        raise QuireError(
            f"only a part of {found[0].path} was gathered (it changed meanwhile, or the rest comes with the next run). "
            f"Its ranges: ledger.locate(path). Read it at its source."
        )


class _Pieces(io.RawIOBase):
    """An iterator of bytes as a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._source, self._rest = pieces, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._source, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        n = min(len(buffer), len(self._rest))
        buffer[:n], self._rest = self._rest[:n], self._rest[n:]
        return n
