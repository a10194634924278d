"""The ledger that users open: which files have been processed, by which commit, where they lie now, or why they were quarantined.

It is what the log says, and no more: opening it reads the log, and only the segments that a question needs.
"""

from __future__ import annotations

import copy
import io
import os
import re
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

import xxhash

from quire import display, skew
from quire.arguments import flag, format_size, whole
from quire.commit import closers, names, retire
from quire.commit.entries import CLAIM, COMMITS, FILES, OFFSETS, PURGE, TABLE, Commit, Task
from quire.commit.held import Held
from quire.commit.kept import with_kept
from quire.commit.log import Log
from quire.commit.protocol import open_jobs
from quire.coverage.finished import FINISHED, GATHERED, UNENDED, generations, how_decoded, how_made
from quire.coverage.fold import fold
from quire.coverage.live import live, totals
from quire.coverage.ranges import Known
from quire.engine.driver import check_destination
from quire.errors import NotFoundError, QuireError, StorageError, UsageError, quoted, scrub
from quire.formats import lines, parquet
from quire.interrupts import all_interruptible
from quire.ledger import members, tables
from quire.ledger.browse import Pages
from quire.ledger.claims import Claims
from quire.ledger.export import Exports
from quire.ledger.inspect import Inspect
from quire.ledger.maintaining import Maintained
from quire.ledger.offsets import OffsetsOf
from quire.ledger.status import Looks
from quire.ledger.verbs import Verbs
from quire.ledger.verify import Item, Verified, strays, verify, wrong_keys
from quire.planning.plan import evenness
from quire.sources.keys import ROWS
from quire.sources.keys import keys as keys_of
from quire.sources.members import identified
from quire.sources.transforms import schemas, text
from quire.spark.runner import runner_of
from quire.storage import connect, destination
from quire.storage.within import is_table


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
    records: int = 0  # rows or lines in the data files that count
    source: str = ""  # likewise: the brokers and topics of the last load
    duplicates: int = 0  # records of topics that loads have left out, as one of their key was kept (deduplicate=)
    superseded: int = 0  # data files still in the directory whose place later ones have taken: a pin holds them, or a call has not ended
    kind: str = FILES  # of what was read first: "commits" where changes of another table are passed on, which `files` counts then

    def _facts(self) -> dict[str, object]:
        made = f"{self.transform} → shuffle {self.reduce}" if self.reduce else self.transform
        return {
            "transform": f"{made} → {self.format}, compression {self.compression}, layout {self.layout}",
            **self._gathered(),
            "quarantined": f"{self.quarantined:,}",
            **({"duplicates left out": f"{self.duplicates:,}"} if self.duplicates else {}),
            **({"last lines held back": f"{self.held_back:,}"} if self.held_back else {}),
            "data files": f"{self.data_files:,} ({format_size(self.bytes_written)}, {self.records:,} records)",
            **({"superseded, in the directory, held by pins or an open call": f"{self.superseded:,}"} if self.superseded else {}),
            "commits": f"{self.commits:,}, the last one {self.last_commit or 'never'}",
            "version": self.version,
            **({"unpublished commits": self.unpublished} if self.unpublished else {}),
            **({"open jobs": ", ".join(self.open_jobs)} if self.open_jobs else {}),
        }

    def _gathered(self) -> dict[str, object]:
        if self.kind == COMMITS:
            return {"commits passed on": f"{self.files:,}"}
        if not self.source:
            return {"files gathered": f"{self.files:,} ({format_size(self.bytes_read)})"}
        return {"source": self.source, "records loaded": f"{self.records:,} (of {self.bytes_read:,} offsets)"}


_PLACE = [name for name in tables.TABLES["locations"].names if name != "commit"]


@dataclass(frozen=True)
class Location:
    """Where one file, or one range of a long file, is.

    `offset` is the record's byte in the data file (compressed: its frame's; Parquet: its first row's number), `skip` the bytes
    to leave out after it, `written` its bytes there, `checksum` their xxh3-64. `member`: of an archive, the document that it is.
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
    member: str | None = None

    @property
    def document(self) -> str:
        """The path, or of a member of an archive `path!member`, as `Ledger.read` takes it."""
        return identified(self.path, self.member)


@all_interruptible
class Ledger(Pages, Verbs, OffsetsOf, Claims, Exports, Looks, Maintained):
    """The ledger of a destination, as its log stands when it is opened; `refresh()` looks again.

        ledger = quire.Ledger("/data/out")
        ledger.status().line, ledger.summary(), ledger.version, ledger.open_jobs(), ledger.pins(), ledger.skew().verdict
        ledger.locate("/data/in/a.xml"), ledger.read("/data/in/a.xml"), ledger.open("/data/in/a.xml")
        ledger.rows("/data/in/dt=2026", "quarantined", limit=20).at(20)
        ledger.inspect.quarantined()                                     # all tables
        ledger.verify().ok
        if not ledger.is_current():
            ledger.refresh()
        ledger.as_of(7).summary()

        ledger.retry("/data/in")                                         # what is quarantined
        ledger.forget("/data/in/a.xml", reason="a wrong file")
        ledger.compact("256 MiB"), ledger.maintain(time_limit="10 min")
        ledger.keep_versions("1 day"), ledger.expire(before_version=7)
        with ledger.pin() as version:                                    # ledger.unpin(id) ends one that a dead reader left
            ...
        ledger.checkpoint()
        ledger.purge_sources("/data/in", dry_run=False)
        ledger.import_markers("/data/done", "/data/in"), ledger.export_markers("/data/done")
        ledger.import_offsets("kafka://host:9092/topic", "group"), ledger.export_offsets()
        ledger.partition_skew(by="bytes").verdict
        with ledger.claim("/data/in") as c:
            ...

    dest, create          as `quire.Ledger(dest, storage_options, create=True)`, which opens a new one, too
    path                  of a source file, as a path or a URL
    spark                 a session, or `quire.LocalRunner()`; left out: `quire.session()`
    progress              False: no bars; or a function that is given each `quire.ProgressEvent`
    committer             as in `quire.consolidate`
    include, exclude, hidden, follow_links, min_age    what is chosen from a source, as in `quire.consolidate`
    storage_options, source_options    of the sources' store; left out: those of the destination

    Calls raise UsageError for wrong arguments and for what is not there, RefusedError where data would be lost, and QuireError or
    one of its children where a store fails or others keep committing. Nothing is half done then: call again.
    """

    def __init__(
        self, dest: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None, *, create: bool = False
    ) -> None:  # fmt: skip
        """Open the ledger of the destination `dest`; `storage_options` are those of its store.

        `create`: also where none is yet, before the first claim, or for what was done elsewhere (`import_markers`).
        """
        self._url, self._options, self._known = destination(dest, storage_options), storage_options, Known()
        self._until: int | None = None  # the version that is looked at, where it is not the last one
        self._store = connect(self._url, storage_options)
        self._spare: list[Held] = []
        if flag(create, "create"):
            check_destination(self._store, allow_nonempty=False)
        elif not self._store.is_folder(names.STATE):
            raise UsageError(
                f"{self._store.url} holds no ledger: nothing was gathered there. Check the spelling, or run quire consolidate first."
            )
        self.refresh()

    def refresh(self) -> Ledger:
        """Read the log to its tip, and return the ledger."""
        log = Log(self._store).refresh()
        self._log = log if self._until is None else log.at(self._until)
        self._fold = fold(self._log, self._until, reader=True)
        return self

    def as_of(self, version: int) -> Ledger:
        """The ledger as it was at a `version`; UsageError if that is not there yet. Its verbs change what is there now."""
        whole(version, "version", 0)
        found = copy.copy(self)
        found._until, found._known = None, Known()
        if version > found.refresh().version:
            raise UsageError(f"version {version} of {self._store.url} is not there yet: the last one is {found.version}.")
        found._until = version
        return found.refresh()

    def is_current(self) -> bool:
        """Whether the log still ends where it was read to: two requests, for whoever looks again and again."""
        last = self._fold.version
        if last and self._store.stat(names.entry(last)) is None:
            return False  # it is archived, and others came; or the destination was deleted, and may have been begun anew
        return self._store.stat(names.entry(last + 1)) is None

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
        spec = self._log.spec(self.version, reader=True)
        topics = spec is not None and spec.kind == OFFSETS
        return Summary(
            dest=self._store.url, version=self.version, transform=spec.transform if spec else "", format=spec.format if spec else "",
            compression=spec.compression if spec else "", layout=spec.layout if spec else "", commits=found.commits,
            files=found.files, bytes_read=found.bytes_read, quarantined=found.quarantined, data_files=found.data_files,
            bytes_written=found.bytes_written, held_back=found.held_back, ledger_rows=found.ledger_rows, last_commit=found.last_commit,
            unpublished=len(self._log.unpublished()), open_jobs=self.open_jobs(),
            reduce=spec.reduce if spec else "", records=found.records, duplicates=found.duplicates,
            source=self._log.source() if topics else "", kind=spec.kind if spec else FILES,
            superseded=0 if is_table(self._store) else len(retire.waiting(self._log)),
        )  # fmt: skip

    def open_jobs(self) -> tuple[str, ...]:
        """The jobs that have a plan and no outcome yet, as they are now: nothing of them stands in the log."""
        now = self._log.cut(self._log.tip)  # is read to its end; what this ledger tells stays that of its version
        return tuple(head.job for head in open_jobs(self._store, now))

    def skew(self) -> skew.SkewResult:
        """Whether the last commit that gathered anything was even: hash plans by files within each directory, others by bytes."""
        for _, commit in self._log.backwards(self.version):
            tasks = self._log.in_effect(commit, self.version, reader=True)
            if commit.verb not in ("mark", PURGE) and any(t.stats.assigned for t in tasks):
                rows = [(t.folder, t.part, t.stats.assigned, t.stats.bytes_in) for t in tasks if t.stats.assigned]
                return evenness(rows, commit.planner, commit.hash_parts, commit.target, None)
        return skew.check([])

    @property
    def inspect(self) -> Inspect:
        """All tables about the destination: `ledger.inspect.files()`, `.history()`, `.quarantined()`, …"""
        return Inspect(self)

    # -------------------------------------------------------------------------------------------------------- from the segments
    def locate(self, path: str | os.PathLike[str]) -> list[Location]:
        """Where a source file is: one `Location`, or one for each range of a long file, or each member of an archive.

        A member alone is `path!member` (of several with one name, `path!member!start`). UsageError if the ledger does not know it.

        Where several files have had that path, as those before were purged, these come first, in their order (state "purged").
        `inspect.locations(path)` is the same as a table.
        """
        keys = self._keys(path)
        for key in keys:
            rows = members.rows(self._fold, self._store, _PLACE, key)
            if rows.num_rows:
                rows = rows.set_column(rows.schema.get_field_index("checksum"), "checksum", tables.in_hex(rows.column("checksum")))
                return [Location(**row) for row in self._said([row for mine in generations(rows.to_pylist()) for row in mine])]
        hint = tables.alike(self._fold, self._store, keys)
        raise UsageError(
            f"{keys[-1]} is not in the ledger of {self._store.url}: it was not gathered, or under another path{hint}. "
            f"Look with ledger.inspect.splits()."
        )

    def _said(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows, where they lie in no file of their own with the reason for it."""
        spec = self._log.spec()
        if spec is None or spec.traced:
            return rows
        for row in rows:
            commit = self._log.commit(row["commit"])
            if row["state"] in (*GATHERED, "mark") and not row["data_file"] and not commit.spec.traced:
                others = sum(t.stats.gathered for t in self._log.in_effect(commit)) - 1
                how = "was processed by a claim together" if commit.spec.kind == CLAIM else "went through a shuffle"
                how = "went into the table" if commit.closer == TABLE else "was written" if ROWS.match(row["path"]) else how
                row["reason"] = f"{how} with {others:,} others in commit {row['commit']}, and its rows have no place of their own"
        return rows

    def _keys(self, path: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> list[str]:
        """The keys that a path may have; `options` (left out: the destination's) say which account it lies in, where it does not."""
        known = (key for source in self._fold.sources for key in (source.first, source.last))
        return keys_of(path, self._options if options is None else options, known)

    def open(self, path: str | os.PathLike[str], *, version: str | None = None) -> io.BufferedReader:
        """The content of a gathered file as a stream: the original bytes of `raw`, `lines` and Parquet content; else the written record.

        Lines of a CSV file come below the header of their data file.

        For `lines` an extra newline appears where a line without its end was taken (`partial_lines="take"`) and the file went on behind it:
        nothing tells any more where it stood. A compressed file gives what it decodes to, with a warning, where the stored bytes were not
        kept (`reason` of its `Location` says so). A member of an archive is `path!member`, and comes as it was in the archive.
        Its checksum is compared on the way: the last read raises StorageError if the data file is damaged.

        version   of several files that have had this path, as those before were purged, the one with this version; left out: the last one
        """
        found = self._one(self.locate(path), version)
        found = members.one(found, self._keys(path), path)
        _check_taken(found)
        together = next((x for x in found if x.reason and not x.data_file and x.state not in FINISHED), None)
        if together is not None and not ((spec := self._log.spec()) is None or spec.traced):
            raise UsageError(f"{scrub(together.path)} {scrub(together.reason or '')}. Read all of them with quire.read(dest).")
        _check_whole(found)
        if how := next(filter(None, (how_decoded(asdict(x)) for x in found)), ""):
            warnings.warn(f"these bytes were {how}: the bytes that are stored at the source were not kept", stacklevel=2)
        pieces = chain((self._header(),), self._pieces(found)) if any(x.data_file for x in found) else self._pieces(found)
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
        if found[0].member is not None:
            return any(how_made(asdict(x)) == UNENDED for x in found)
        spec = self._log.spec(self.version)
        more = [(x.written or 0) - x.length for x in found]
        # Ranges of one version end where lines do, and only the last line may lack its end; of several, any may have been given one.
        last = len({x.version for x in found}) == 1 or more[-1] == 1
        own = not any(how_decoded(asdict(x)) for x in found)
        return spec is not None and spec.transform == "lines" and own and sum(more) == 1 and last

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
                        f"{x.path} cannot be read back: {self._store.url}/{x.data_file} is damaged ({what}). "
                        f"See what else it hit with quire ledger verify."
                    ) from e

    def _gone(self, x: Location, error: NotFoundError) -> QuireError:
        """Why a data file is not there: its version has expired since it was looked at, or somebody has deleted the file."""
        if Log(self._store).refresh().expired() > self.version:
            return QuireError(
                f"{x.path} cannot be read back: version {self.version} of {self._store.url} has expired since it was opened, and "
                f"{x.data_file} is deleted. Look again with ledger.refresh(); ledger.pin() holds a version, keep_versions keeps older ones."
            )
        return error

    def _record(self, x: Location, data_file: str) -> Iterator[bytes]:
        """The written bytes of a file or range; at its end, ValueError if its checksum differs."""
        store = with_kept(self._store)
        if data_file.endswith(".parquet"):
            rows = parquet.RowReader(store, data_file).take(x.offset or 0, x.records or 0)
            if rows.schema.names != parquet.CONTENT.names:
                raise UsageError(f"{x.path} became {x.records} rows with columns of their own. Read them with quire.read(dest).")
            checksum = parquet.checksum(rows)
            parts = rows.column("content").to_pylist()
            yield from (part + b"\n" for part in parts) if len(parts) > 1 else parts
        else:
            compression = self._compression()
            size = min(lines.BUFFER, max((x.written or 0) + (x.skip or 0), 1 << 16))
            digest = xxhash.xxh3_64()
            for piece in lines.cursor(store, data_file, compression, size).take(x.offset or 0, x.skip or 0, x.written or 0):
                digest.update(piece)
                yield piece
            checksum = digest.intdigest()
        if f"{checksum:016x}" != x.checksum:
            raise _Differs

    # ------------------------------------------------------------------------------------------------------------------ verify
    def verify(self, *, spark: Any = None) -> Verified:
        """Read every data file again and compare each record with its checksum, on Spark; return what is damaged.

        Output of a shuffle or a claim is read to its end, as far as its format says what belongs there; it has no checksums.
        """
        compression = self._compression()
        sizes, alone = dict[str, int](), list[dict[str, int]]()
        by_segment = defaultdict[str, dict[str, int]](dict)
        cleaner = closers.cleaner(self._store)
        cleaned = cleaner.cleaned(self._store) if cleaner else None
        for f in live(self._log, self._fold, reader=True):
            if cleaned is not None and cleaned(f.name):
                continue
            sizes[f.name] = f.size
            if f.first:
                by_segment[names.segment_of(f.name)][f.name] = f.size
            else:  # its task has no row of its own: it wrote what others have read
                alone.append({f.name: f.size})
        items: list[Item] = [(source, by_segment.get(source.segment, {}), compression) for source in self._fold.sources]
        items = [item for item in items if item[1] or (item[0] is not None and item[0].piece)]
        items += [(None, some, compression) for some in alone]
        found = verify(runner_of(spark, self._store), self._url, self._options, self._fold, items, len(sizes), self._header())
        if self._until is None and not is_table(self._store):
            found = replace(found, damaged=(*found.damaged, *strays(self._store, self._log, sizes), *wrong_keys(self._log)))
        if not found.ok and Log(self._store).refresh().expired() > self.version:
            raise QuireError(
                f"version {self.version} of {self._store.url} has expired since it was opened. Verify again after ledger.refresh()."
            )
        return found

    def _compression(self) -> str:
        spec = self._log.spec(self.version)
        return spec.compression if spec else "none"

    def _header(self) -> bytes:
        """The beginning of each data file."""
        spec = self._log.spec(self.version)
        return text.header(spec, schemas.there(self._log)) if spec and spec.header else b""

    def __repr__(self) -> str:
        return f"Ledger({self._store.url!r}, version={self.version})"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()


def _but_last(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """All bytes but the last one."""
    before = b""
    for piece in pieces:
        yield before
        before = piece
    yield before[:-1]


class _Differs(ValueError):
    """A checksum is another one than the ledger's."""


# Versions that say how long the file is: on a disk, of HDFS, and those of content. An object's etag may end with the number of its parts.
_SIZED = re.compile(r"(?:-?[0-9]{1,20}|xxh3-128:[0-9a-f]+)-([0-9]{1,20})(?:-[0-9]+)?")


def _check_taken(found: list[Location]) -> None:
    """QuireError for a file that is in quarantine, or a part of it."""
    part = next((x for x in found if x.state == "quarantined"), None)
    if part is not None and any(x.state in GATHERED and x.data_file for x in found):
        raise QuireError(
            f"{part.document} is here but for a part from byte {part.start:,} on, which is quarantined ({part.reason}). Read the rest "
            f"with quire.read(dest), and that part at its source."
        )
    if part is not None:
        raise QuireError(f"{part.document} is quarantined ({part.reason}): its content was never gathered. Read it at its source.")


def _check_whole(found: list[Location]) -> None:
    """Refuse to give a part of a file for all of it: a range may be done elsewhere, or of a long file not be gathered yet."""
    mark = next((x for x in found if x.state == "mark" and x.length), None)
    if mark is not None:
        raise QuireError(
            f"{mark.document} is not here from byte {mark.start:,} to {mark.start + mark.length:,}: the ledger marks that as done "
            f"elsewhere. Read it at its source."
        )
    if found[0].member is not None:  # which is whole or not at all
        return
    done = [x for x in found if x.state != "held"]
    at, said = 0, _SIZED.fullmatch(found[-1].version)
    for x in done:
        if x.start != at:
            break
        at += x.length
    size = int(said[1]) if said and len(done) == len(found) else 0  # lines that are held back do not belong to it yet
    if at != sum(x.length for x in done) or at < size:
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
