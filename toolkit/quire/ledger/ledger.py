"""The ledger that users open: which files have been processed, by which commit, where they lie now, or why they were quarantined.

It is what the log says, and no more: opening it reads the log, and only the segments that a question needs.
"""

from __future__ import annotations

import copy
import io
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire import display, skew
from quire.arguments import format_size, whole
from quire.commit import names
from quire.commit.checkpoints import HISTORY, history_row
from quire.commit.entries import CLAIM, OFFSETS, PURGE, Commit, Task
from quire.commit.held import Held
from quire.commit.log import Log
from quire.commit.protocol import open_jobs
from quire.coverage import quarantine, segments
from quire.coverage.finished import FINISHED, GATHERED, generations
from quire.coverage.fold import fold
from quire.coverage.live import live, totals
from quire.coverage.ranges import Known
from quire.engine.driver import check_destination
from quire.errors import NotFoundError, QuireError, StorageError, UsageError, about, choose, quoted, scrub
from quire.formats import lines, parquet
from quire.interrupts import all_interruptible
from quire.ledger import tables as inspection
from quire.ledger.browse import Pages
from quire.ledger.claims import CHANGES, Claims
from quire.ledger.offsets import OffsetsOf
from quire.ledger.verbs import Verbs
from quire.ledger.verify import Item, Verified, verify
from quire.planning.listing import Cut, Listing, list_changed, list_deleted
from quire.planning.pieces import Piece, pieces
from quire.planning.plan import evenness
from quire.sources import files
from quire.sources.files import Selection
from quire.sources.keys import keys as keys_of
from quire.spark.runner import OnSpark, frame_of, runner_of
from quire.storage import canonical, connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# What users see of a row. One fixed schema, whatever the job.
COLUMNS = ["path", "version", "start", "length", "state", "reason", "data_file", "offset", "skip", "written", "records", "checksum"]
SPARK_SCHEMA = (
    "path string, version string, start long, length long, state string, reason string, data_file string, offset long, skip long, "
    "written long, records long, checksum string, commit long, attempt string"
)


@dataclass(frozen=True)
class Summary(display.Shown):
    """A destination in numbers. `files` are done (marked ones elsewhere), `quarantined` in quarantine; `open_jobs` have no outcome yet."""

    dest: str
    version: int
    transform: str
    format: str
    compression: str
    layout: str
    commits: int
    files: int
    bytes_read: int
    quarantined: int
    held_back: int
    data_files: int
    bytes_written: int
    ledger_rows: int
    last_commit: str
    unpublished: int
    open_jobs: tuple[str, ...]
    reduce: str = ""  # the function that all rows of a job went through
    records: int | None = None  # of a destination of topics: rows or lines in the data files that count
    source: str = ""  # likewise: the brokers and topics of the last load

    def _facts(self) -> dict[str, object]:
        made = f"{self.transform} → shuffle {self.reduce}" if self.reduce else self.transform
        return {
            "transform": f"{made} → {self.format}, compression {self.compression}, layout {self.layout}",
            **self._gathered(),
            "quarantined": f"{self.quarantined:,}",
            **({"last lines held back": f"{self.held_back:,}"} if self.held_back else {}),
            "data files": f"{self.data_files:,} ({format_size(self.bytes_written)})",
            "commits": f"{self.commits:,}, the last one {self.last_commit or 'never'}",
            "version": self.version,
            **({"unpublished commits": self.unpublished} if self.unpublished else {}),
            **({"open jobs": ", ".join(self.open_jobs)} if self.open_jobs else {}),
        }

    def _gathered(self) -> dict[str, object]:
        if self.records is None:
            return {"files gathered": f"{self.files:,} ({format_size(self.bytes_read)})"}
        return {"source": self.source, "records loaded": f"{self.records:,} (of {self.bytes_read:,} offsets)"}


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


@all_interruptible
class Ledger(Pages, Verbs, OffsetsOf, Claims):
    """The ledger of a destination, as its log stands when it is opened; `refresh()` looks again."""

    def __init__(
        self, dest: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, create: bool = False
    ) -> None:  # fmt: skip
        """Open the ledger of a destination.

        `create`: also where none is yet, before the first claim, or for what was done elsewhere (`import_markers`).
        """
        self._url, self._options, self._known = canonical(dest, storage_options), storage_options, Known()
        self._until: int | None = None  # the version that is looked at, where it is not the last one
        self._store = connect(self._url, storage_options)
        self._spare: list[Held] = []
        if create:
            check_destination(self._store, allow_nonempty=False)
        elif not self._store.is_folder(names.STATE):
            raise UsageError(
                f"{self._url} holds no ledger: nothing was gathered there. Check the spelling, or run quire consolidate first."
            )
        self.refresh()

    def refresh(self) -> Ledger:
        """Read the log to its tip."""
        log = Log(self._store).refresh()
        self._log = log if self._until is None else log.at(self._until)
        self._fold = fold(self._log, self._until, reader=True)
        return self

    def as_of(self, version: int) -> Ledger:
        """The ledger as it was at a version; UsageError if that is not there yet. Its verbs change what is there now."""
        whole(version, "version", 0)
        found = copy.copy(self)
        found._until, found._known = None, Known()
        if version > found.refresh().version:
            raise UsageError(f"version {version} of {self._url} is not there yet: the last one is {found.version}.")
        found._until = version
        return found.refresh()

    def is_current(self) -> bool:
        """Whether nothing was appended to the log since it was read: one request, for whoever looks again and again."""
        return self._store.stat(names.entry(self._fold.version + 1)) is None

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
        found = totals(self._log, self._fold)
        words = self._log.words(self.version, reader=True)
        records = None
        if words is not None and words.kind == OFFSETS:
            records = sum(f.records for f in live(self._log, self._fold, reader=True))
        return Summary(
            dest=self._url, version=self.version, transform=words.transform if words else "", format=words.format if words else "",
            compression=words.compression if words else "", layout=words.layout if words else "", commits=found.commits,
            files=found.files, bytes_read=found.bytes_read, quarantined=found.quarantined, data_files=found.data_files,
            bytes_written=found.bytes_written, held_back=found.held_back, ledger_rows=found.ledger_rows, last_commit=found.last_commit,
            unpublished=len(self._log.unpublished()), open_jobs=self.open_jobs(),
            reduce=words.reduce if words else "", records=records, source="" if records is None else self._log.source(),
        )  # fmt: skip

    def open_jobs(self) -> tuple[str, ...]:
        """The jobs that have a plan and no outcome yet, as they are now: nothing of them stands in the log."""
        now = self._log.cut(self._log.tip)  # is read to its end; what this ledger tells stays that of its version
        return tuple(head.job for head in open_jobs(self._store, now))

    def history(self, as_: str = "pandas") -> Any:
        """One row an entry of the log: version, kind, verb, job, time, tasks, files, bytes, data_files, quarantined, deferred, note.

        `as_`: here and below, "pandas", "arrow" or "spark". The schemas are fixed: `quire.ledger.tables.TABLES`.
        """
        recent = self._log.since(self._log.merged)[: self.version - self._log.merged]
        rows = [history_row(number, entry) for number, entry in enumerate(recent, self._log.merged + 1)]
        found = inspection.given("history", rows, "arrow")
        if self._log.base is not None:
            before = self._log.base.table(self._store, "history", HISTORY)
            found = pa.concat_tables([before.cast(found.schema), found])
        return inspection.given("history", found, as_)

    def skew(self) -> skew.SkewResult:
        """Whether the last commit that gathered anything was even: hash plans by files within each directory, others by bytes."""
        for _, commit in self._log.backwards(self.version):
            tasks = self._log.in_effect(commit, self.version, reader=True)
            if commit.verb not in ("mark", PURGE) and any(t.assigned for t in tasks):
                rows = [(t.folder, t.part, t.assigned, t.bytes_in) for t in tasks if t.assigned]
                return evenness(rows, commit.planner, commit.hash_parts, commit.target, None)
        return skew.check([])

    def tasks(self, as_: str = "pandas") -> Any:
        """One row a task: commit, task, directory, part, files, bytes, data_files, bytes_written, started (UTC), seconds."""
        return inspection.given("tasks", inspection.task_rows(self._tasks()), as_)

    def files(self, as_: str = "pandas") -> Any:
        """The data files that count, one row each: data_file, bytes, records, commit, verb, task, directory of the source."""
        rows = [(f.name, f.size, f.records, f.number, f.verb, f.task, f.directory) for f in live(self._log, self._fold, reader=True)]
        return inspection.given("files", rows, as_)

    # -------------------------------------------------------------------------------------------------------- from the segments
    def coverage(self, path: str | os.PathLike[str], as_: str = "pandas") -> Any:
        """Which bytes of a source file are accounted for, in their order: start, length, state, version, commit, data_file, reason.

        A range in state "gap" lies between others and is not covered: the next run takes it. If several files had this path, as earlier
        ones were purged, it is the last one.
        """
        rows, at = list[tuple[Any, ...]](), 0
        for x in self._one(self.locate(path), None):
            if x.start > at:
                rows.append((at, x.start - at, "gap", None, None, None, None))
            rows.append((x.start, x.length, x.state, x.version, x.commit, x.data_file, x.reason))
            at = x.start + x.length
        return inspection.given("coverage", rows, as_)

    def sizes(self, as_: str = "pandas") -> Any:
        """How large files were and are, one row a class: up_to (bytes, a power of two), files and bytes before and after."""
        after = inspection.classed(f.size for f in live(self._log, self._fold, reader=True))
        return inspection.given("sizes", inspection.size_rows(inspection.file_lengths(self._store, self._fold), after), as_)

    def failed(self, as_: str = "pandas") -> Any:
        """Quarantined files and records: path, version, start, length, reason, tries (how often it was read), attempt, commit.

        A row is a file, a split of one, or a single record that a function has rejected: `quarantine.records()` has these with their bytes.
        """
        columns = ["path", "version", "start", "length", "reason", "tries"]
        tables = [segments.PIECE.empty_table().select([*columns, "attempt", "commit"])]
        for source in self._fold.sources:
            if source.quarantined:
                rows = self._fold.of(source).rows(self._store, [*columns, "state", "attempt"])
                tables.append(rows.filter(pc.equal(rows.column("state"), "quarantined")).select(tables[0].schema.names))
        return inspection.given("failed", pa.concat_tables(tables), as_)

    def rejected(self, as_: str = "pandas", *, limit: int | None = None) -> Any:
        """The records that a function has rejected: path, version, offset, length, error, message, tries, content, attempt, commit.

        `content` is the record's bytes; None for one of more than 1 MiB, which is kept at its source alone. `limit`: so many of the newest
        commits, which reads little, however many there are.
        """
        limit = None if limit is None else whole(limit, "limit", 1)
        return inspection.given("rejected", quarantine.records(self._store, self._fold, limit), as_)

    def splits(self, where: str | None = None, *, spark: SparkSession | None = None) -> DataFrame:
        """Every row as a Spark DataFrame; `where` is a condition in SQL: `"state = 'quarantined'"`, `"path like '%/dt=2026-11-21/%'"`."""
        from pyspark.errors import PySparkException

        from quire.spark.session import session

        sources = list(self._fold.sources)
        url, options, folded = self._url, self._options, self._fold

        def read(i: int) -> Iterator[pa.RecordBatch]:
            table = folded.of(sources[i]).rows(connect(url, options), [*COLUMNS, "attempt"]).select([*COLUMNS, "commit", "attempt"])
            table = table.set_column(table.schema.get_field_index("checksum"), "checksum", pa.array(_hex(table.column("checksum"))))
            yield from table.to_batches(max_chunksize=10_000)

        frame = frame_of(spark or session(), len(sources), read, SPARK_SCHEMA, url)
        try:
            return frame.where(where) if where else frame
        except PySparkException as e:
            raise UsageError(
                f"where={where!r} is not a condition on the ledger's columns ({scrub(str(e), 200)}). They are: {SPARK_SCHEMA}."
            ) from e

    def deleted(
        self, source: Any, as_: str = "spark", *, spark: Any = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, storage_options: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """The gathered files that are gone from `source`: path, version, commit. Their output is kept; nothing is changed.

        `source` and what chooses from it are as in `quire.consolidate`: files that it does not list do not count. With millions,
        as_="spark" is a DataFrame that is computed where it is used. `storage_options`: of the source; left out: the destination's.
        """
        chosen = Selection(files.patterns(include, "include"), files.patterns(exclude, "exclude"), hidden, follow_links)
        return self._listed(
            "deleted", list_deleted, "path string, version string, commit long", spark, source, as_, chosen, storage_options
        )

    def changed(
        self, source: Any, as_: str = "spark", *, spark: Any = None, include: Any = None, exclude: Any = None, hidden: bool = False,
        follow_links: bool = False, storage_options: Mapping[str, Any] | None = None,
    ) -> Any:  # fmt: skip
        """The files at `source` that were rewritten or appended to since they were processed: path, size (bytes), version, commit, reason.

        Size and version are those of the source now, `commit` is the last one that has rows of the file. All of them are told, whatever
        `on_change` and `on_append` a run has; nothing is changed. A run with on_change="reprocess" reads them again; what a claim has made
        leaves with its whole commit, by forget(where="commit = 7"), and the next claim has them. The parameters are those of `deleted`.
        """
        chosen = Selection(files.patterns(include, "include"), files.patterns(exclude, "exclude"), hidden, follow_links)
        return self._listed("changed", list_changed, CHANGES, spark, source, as_, chosen, storage_options)

    def _listed(
        self, name: str, tables: Callable[[Listing, Piece], Iterator[pa.Table]], kinds: str, spark: Any, source: Any, as_: str,
        selection: Selection, storage_options: Mapping[str, Any] | None,
    ) -> Any:  # fmt: skip
        """The table `name`: what `tables` gives of each piece of a source, found by tasks."""
        choose(as_, inspection.KINDS, "as_")
        with about("source"):
            identity = "content" if self._log.by_content() else "store"
            found_at = files.roots(source, self._options if storage_options is None else storage_options)
            roots = tuple(replace(root, identity=identity, links=selection.links) for root in found_at)
        listing = Listing(self._url, self._options, "", "", roots, selection, self._fold, Cut("balanced", "flat", 1, "xxh64", 1, False))
        runner = runner_of(spark, self._store, roots)
        found = list(pieces(roots, selection, runner.parallelism, every=True))

        def rows(i: int) -> Iterator[pa.RecordBatch]:
            for table in tables(listing, found[i]):
                yield from table.to_batches(max_chunksize=10_000)

        if not isinstance(runner, OnSpark):
            if as_ == "spark":
                raise UsageError("as_='spark' needs a SparkSession. Say as_='pandas' or 'arrow'.")
            told = [table for piece in found for table in tables(listing, piece)]
            return inspection.given(name, pa.concat_tables([inspection.TABLES[name].empty_table(), *told]), as_)
        frame = frame_of(runner.spark, len(found), rows, kinds, self._url, [root.url for root in roots])
        return frame if as_ == "spark" else inspection.given(name, frame.toArrow(), as_)

    @overload
    def locate(self, path: str | os.PathLike[str]) -> list[Location]: ...

    @overload
    def locate(self, path: str | os.PathLike[str], as_: str) -> Any: ...

    def locate(self, path: str | os.PathLike[str], as_: str = "locations") -> Any:
        """Where a source file is: one `Location`, or one for each range of a long file. UsageError if the ledger does not know it.

        Where several files have had that path, as those before were purged, these come first, in their order (state "purged").

        `as_`: "locations", a list of them; or "pandas", "arrow", "spark".
        """
        choose(as_, ("locations", *inspection.KINDS), "as_")
        keys = self._keys(path)
        for key in keys:
            rows = self._fold.rows(self._store, [*COLUMNS, "attempt"], key, key)
            if rows.num_rows:
                rows = rows.set_column(
                    rows.schema.get_field_index("checksum"), "checksum", pa.array(_hex(rows.column("checksum")), pa.string())
                )
                found = self._said([row for mine in generations(rows.to_pylist()) for row in mine])
                if as_ == "locations":
                    return [Location(**row) for row in found]
                return inspection.given("locate", pa.Table.from_pylist(found, inspection.TABLES["locate"]), as_)
        hint = inspection.alike(self._fold, self._store, keys)
        raise UsageError(
            f"{keys[-1]} is not in the ledger of {self._url}: it was not gathered, or under another path{hint}. Look with .splits()."
        )

    def _said(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows, where they lie in no file of their own with the reason for it."""
        words = self._log.words()
        if words is None or words.traced:
            return rows
        for row in rows:
            commit = self._log.commit(row["commit"])
            if row["state"] in (*GATHERED, "mark") and not row["data_file"] and not commit.words.traced:
                others = sum(t.gathered for t in self._log.in_effect(commit)) - 1
                how = "was processed by a claim together" if commit.words.kind == CLAIM else "went through a shuffle"
                row["reason"] = f"{how} with {others:,} others in commit {row['commit']}, and its rows have no place of their own"
        return rows

    def _keys(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> list[str]:
        """The keys that a path may have; `options` (left out: the destination's) say which account it lies in, where it does not."""
        known = (key for source in self._fold.sources for key in (source.first, source.last))
        return keys_of(path, self._options if options is None else options, known)

    def open(self, path: str | os.PathLike[str], *, version: str | None = None) -> io.BufferedReader:
        """The content of a gathered file as a stream: the original bytes of `raw`, `lines` and Parquet content; else the written record.

        For `lines` an extra newline appears where a line without its end was taken (`partial_lines="take"`) and the file went on behind it:
        nothing
        tells any more where it stood. Its checksum is compared on the way: the last read raises StorageError if the data file is damaged.

        version   of several files that have had this path, as those before were purged, the one with this version; left out: the last one
        """
        found = self._one(self.locate(path), version)
        bad = next((x for x in found if x.state == "quarantined"), None)
        if bad is not None and any(x.state in GATHERED and x.data_file for x in found):
            raise QuireError(
                f"{bad.path} is here but for a part from byte {bad.start:,} on, which is quarantined ({bad.reason}). Read the rest with "
                f"quire.read(dest), and that part at its source."
            )
        if bad is not None:
            raise QuireError(f"{bad.path} is quarantined ({bad.reason}): its content was never gathered. Read it at its source.")
        together = next((x for x in found if x.reason and not x.data_file and x.state not in FINISHED), None)
        if together is not None and not ((words := self._log.words()) is None or words.traced):
            raise UsageError(f"{scrub(together.path)} {scrub(together.reason or '')}. Read all of them with quire.read(dest).")
        _check_whole(found)
        pieces = self._pieces(found)
        return io.BufferedReader(_Pieces(_but_last(pieces) if self._ended(found) else pieces))

    def read(self, path: str | os.PathLike[str], *, version: str | None = None) -> bytes:
        """All of what `open` gives."""
        with self.open(path, version=version) as stream:
            return stream.read()

    def _one(self, found: list[Location], version: str | None) -> list[Location]:
        """The ranges of one file, of those that have had a path."""
        files = [[Location(**row) for row in mine] for mine in generations([asdict(x) for x in found])]
        chosen = [mine for mine in files if version is None or any(x.version == version for x in mine)]
        if not chosen:
            known = ", ".join(repr(mine[-1].version) for mine in files[-5:])
            raise UsageError(f"no file with the version {quoted(version)} was gathered from {found[0].path}. Known are: {known}.")
        return chosen[-1]

    def _ended(self, found: list[Location]) -> bool:
        """Whether the last line of a file had no newline, and was given one."""
        words = self._log.words(self.version)
        more = [(x.written or 0) - x.length for x in found]
        # Ranges of one version end where lines do, and only the last line may lack its end; of several, any may have been given one.
        last = len({x.version for x in found}) == 1 or more[-1] == 1
        return words is not None and words.transform == "lines" and sum(more) == 1 and last

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
        if Log(self._store).refresh().expired() > self.version:
            return QuireError(
                f"{x.path} cannot be read back: version {self.version} of {self._url} has expired since it was opened, and {x.data_file} "
                f"is deleted. Look again with ledger.refresh(), and keep a version readable with ledger.pin()."
            )
        return error

    def _record(self, x: Location, data_file: str) -> Iterator[bytes]:
        """The written bytes of a file or range; at its end, ValueError if its checksum differs."""
        if data_file.endswith(".parquet"):
            rows = parquet.Rows(self._store, data_file).take(x.offset or 0, x.records or 0)
            if rows.schema.names != parquet.CONTENT.names:
                raise UsageError(f"{x.path} became {x.records} rows of a function's own columns. Read them with quire.read(dest).")
            checksum = parquet.checksum(rows)
            parts = rows.column("content").to_pylist()
            yield from (part + b"\n" for part in parts) if len(parts) > 1 else parts
        else:
            compression = self._compression()
            size = min(lines.BUFFER, max((x.written or 0) + (x.skip or 0), 1 << 16))
            digest = xxhash.xxh3_64()
            for piece in lines.cursor(self._store, data_file, compression, size).take(x.offset or 0, x.skip or 0, x.written or 0):
                digest.update(piece)
                yield piece
            checksum = digest.intdigest()
        if f"{checksum:016x}" != x.checksum:
            raise _Differs

    # ------------------------------------------------------------------------------------------------------------------ verify
    def verify(self, *, spark: Any = None) -> Verified:
        """Read every data file again and compare each record with its checksum, on Spark.

        Output of a shuffle or a claim is read to its end, as far as its format says what belongs there; it has no checksums.
        """
        compression = self._compression()
        sizes, alone = dict[str, int](), list[dict[str, int]]()
        by_segment = defaultdict[str, dict[str, int]](dict)
        for f in live(self._log, self._fold, reader=True):
            sizes[f.name] = f.size
            if f.first:
                by_segment[names.segment_of(f.name)][f.name] = f.size
            else:  # its task has no row of its own: it wrote what others have read
                alone.append({f.name: f.size})
        items: list[Item] = [(source, by_segment.get(source.segment, {}), compression) for source in self._fold.sources]
        items = [item for item in items if item[1] or (item[0] is not None and item[0].piece)]
        items += [(None, some, compression) for some in alone]
        found = verify(runner_of(spark, self._store), self._url, self._options, self._fold, items, len(sizes))
        if not found.ok and Log(self._store).refresh().expired() > self.version:
            raise QuireError(f"version {self.version} of {self._url} has expired since it was opened. Verify again after ledger.refresh().")
        return found

    def _compression(self) -> str:
        words = self._log.words(self.version)
        return words.compression if words else "none"

    def __repr__(self) -> str:
        return f"Ledger({self._url!r}, version={self.version})"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def _hex(column: pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else f"{value:016x}" for value in column.to_pylist()]


def _but_last(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """All bytes but the last one."""
    before = b""
    for piece in pieces:
        yield before
        before = piece
    yield before[:-1]


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
    size = "" if len(done) < len(found) else size  # lines that are held back do not belong to it yet
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
