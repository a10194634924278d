"""Checkpoints, as the log reads them: what a settled version holds, so that a reader goes on from it and needs no entry before it.

A checkpoint is a head and pieces, written by `coverage.checkpoint`: the ledger's rows by ranges of paths (`rows`), one row an entry
of the log that is not archived (`history`), the live data files (`files`), what was merged (`merged`: segments, and parts of entries),
and a table's instants (`instants`). It says nothing that the log does not: whoever finds none, reads the log from its beginning. It
counts when its head is there and every piece that the head names; one that lacks a piece is passed over, since a writer may have slept
while its pieces were swept. One that is there and damaged is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from quire.commit import names
from quire.commit.archive import Archive
from quire.commit.entries import FORMAT, Export, Keep, Natural, decode, stored
from quire.commit.history import HISTORY, pinned
from quire.errors import FormatError, NotFoundError
from quire.formats.parquet import DAMAGED, OwnParquet
from quire.storage import Entry as File
from quire.storage import Store

HISTORY_ROWS = 50_000  # entries in a piece: piece i holds those from i * HISTORY_ROWS + 1 on
FILES = pa.schema(
    [
        pa.field(name, pa.int64() if name in ("bytes", "records", "commit", "task") else pa.string(), False)
        for name in ("data_file", "bytes", "records", "commit", "verb", "task", "directory", "first", "last")
    ]
)
# Of a table: `job` has written it ("": another program has, or nothing of it appeared); `undone`: the entry that says so, or 0.
INSTANTS = pa.schema([pa.field("instant", pa.string(), False), pa.field("job", pa.string(), False), pa.field("undone", pa.int64(), False)])
MERGED = pa.schema([pa.field("name", pa.string(), False), pa.field("commit", pa.int64(), False)])


class CheckpointPiece(msgspec.Struct, frozen=True, array_like=True):
    """An object of a checkpoint: its bytes and rows; of `rows` also the paths at its ends, and how many are in quarantine, or held back.

    `checksum`: see `digest`; "": it does not say.
    """

    size: Natural
    rows: Natural
    first: str = ""
    last: str = ""
    quarantined: Natural = 0
    held: Natural = 0
    checksum: str = ""


class KeyRun(msgspec.Struct, frozen=True, array_like=True):
    """An object of keys that counts (see `coverage.keys`): how many it has, what tells records apart, the latest time of a record, the
    commit or version that it is of, and when that was committed; times in milliseconds since 1970.
    """

    name: str
    count: Natural
    by: str
    last: int
    number: Natural
    time: int


class Totals(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The numbers of a version."""

    commits: Natural = 0
    files: int = 0
    bytes_read: int = 0
    quarantined: int = 0
    held_back: int = 0
    data_files: int = 0
    bytes_written: int = 0
    records: int = 0  # lines or rows in the data files
    ledger_rows: int = 0
    duplicates: int = 0  # records of topics that were left out
    last_commit: str = ""


@stored
class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="checkpoint"):
    """The head: which pieces there are, and what of the log is asked for again and again."""

    version: Natural
    id: str
    time: str
    totals: Totals
    first: Natural = 0  # the number of the first commit; 0: there is none
    said: Natural = 0  # the number of the first one that says what the destination holds
    filled: Natural = 0  # the number of the first one that has a data file
    holds: bool = False  # whether anything of such a commit counts
    by_content: bool = False  # whether a commit knows files of the sources by their content
    target: Natural = 0  # of the last commit that had one
    on_append: str = ""  # of the last run
    schemas: tuple[str, ...] = ()
    frozen: str = ""  # the columns that the first plan with any has frozen
    source: str = ""  # the brokers and topics that the last load has named
    reads: str = ""  # how the last call has read text with rows
    writes: str = ""  # how the last call that said it has written Parquet files
    deduplicates: str = ""  # which records are the same, as the last call that said it has it
    keys: tuple[KeyRun, ...] = ()  # those of the records that were kept
    transforms: tuple[str, ...] = ()  # of all commits; "": of one that says nothing of what the destination holds
    committers: tuple[str, ...] = ()
    expired: Natural = 0
    away: Natural = 0  # what was superseded up to here leaves the directory
    retired: tuple[Natural, Natural] = (0, 0)  # of which versions all files are deleted, and up to where they have left the directory
    superseding: tuple[Natural, ...] | None = None  # the commits after these of which files leave; None: it does not say
    keep: Keep | None = None  # as the user has set it last
    pins: dict[str, Natural] = {}
    exports: tuple[Export, ...] = ()  # the last entry of each that is wanted
    archived: Natural = 0  # the rows of the history up to here stand in the log's archive
    rows: tuple[CheckpointPiece, ...] = ()
    history: tuple[CheckpointPiece, ...] = ()
    files: tuple[CheckpointPiece, ...] = ()
    merged: tuple[CheckpointPiece, ...] = ()
    instants: tuple[CheckpointPiece, ...] = ()
    format: int = FORMAT

    @property
    def head(self) -> str:
        """Its name."""
        return names.checkpoint_head(self.version, self.id)

    def pieces(self, kind: str, first: int = 0) -> list[tuple[str, CheckpointPiece]]:
        """The pieces of a kind from a number on, with their names; one without rows has no object."""
        found: tuple[CheckpointPiece, ...] = getattr(self, kind)[first:]
        return [(names.checkpoint_piece(self.version, self.id, kind, i), piece) for i, piece in enumerate(found, first) if piece.rows]

    def tables(self, store: Store, kind: str, schema: pa.Schema, columns: list[str] | None = None, first: int = 0) -> Iterator[pa.Table]:
        """The pieces of a kind as tables, one after the other, from the number `first` on."""
        for name, piece in self.pieces(kind, first):
            try:
                table = OwnParquet(store.get(name), schema).read(columns)
            except (NotFoundError, *DAMAGED) as e:
                raise damaged(store, name, e) from e
            if table.num_rows != piece.rows:
                raise damaged(store, name, ValueError("it has another number of rows than its head says"))
            yield table

    def table(self, store: Store, kind: str, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
        """All of them in one."""
        empty = pa.schema([schema.field(c) for c in columns or schema.names]).empty_table()
        return pa.concat_tables([empty, *self.tables(store, kind, schema, columns)])

    def history_rows(self, archive: Archive, columns: list[str], after: int = 0) -> Iterator[pa.Table]:
        """The rows of the history up to this version, those of an object at a time; from one on that has entries after a version."""
        yield from archive.tables(columns, after, self.archived)
        yield from self.tables(archive.store, "history", HISTORY, columns, after // HISTORY_ROWS)

    def ending(self, archive: Archive, wanted: str) -> Iterator[str]:
        """The jobs with a commit, as the log's entries name them, whose names end so."""
        for table in self.history_rows(archive, ["kind", "job"]):
            mine = pc.and_(pc.equal(table.column("kind"), "commit"), pc.ends_with(table.column("job"), f"-{wanted}"))
            yield from table.filter(mine).column("job").to_pylist()

    def began(self, archive: Archive, pin: str) -> bool:
        """Whether a pin with this id began before it."""
        for table in self.history_rows(archive, ["kind", "note"]):
            notes = table.filter(pc.equal(table.column("kind"), "pin")).column("note")
            if pc.any(pc.ends_with(notes, pinned(pin))).as_py():
                return True
        return False

    def numbers(self, archive: Archive, job: str) -> tuple[int, int]:
        """The numbers of the entry that decided a job, and of its first `published`; 0 where there is none."""
        base = names.base_of(job)
        outcome = 0
        if base is None or base >= self.version:
            return 0, 0  # an entry stands above the version that its job was planned from
        for table in self.history_rows(archive, ["version", "kind", "job"], base):
            mine = table.filter(pc.equal(table.column("job"), job)).sort_by("version")
            for row in mine.to_pylist():
                if row["kind"] == "published" and outcome:
                    return outcome, row["version"]
                if row["kind"] in ("commit", "abort") and not outcome:
                    outcome = row["version"]
                    if row["kind"] == "abort":
                        return outcome, 0
        return outcome, 0


digest = xxhash.xxh3_64_hexdigest  # of a piece's bytes


def intact(store: Store, piece: str, checksum: str) -> bytes:
    """The bytes of a piece, which are those that its writer has put."""
    try:
        data = store.get(piece)
        if digest(data) != checksum:
            raise ValueError("it has other bytes than its head says")
    except (NotFoundError, ValueError) as e:
        raise damaged(store, piece, e) from e
    return data


def damaged(store: Store, piece: str, why: BaseException) -> FormatError:
    """The error for a piece that does not hold what it should, or is gone since the head was read."""
    what = "missing" if isinstance(why, NotFoundError) else f"damaged ({type(why).__name__})"
    head = names.head_of_piece(piece)
    if what == "missing" and head and store.stat(head) is None:
        return FormatError(
            f"{store.url}/{piece}, a piece of a checkpoint of the ledger, was deleted while it was read: upkeep has found a newer one in "
            f"its place for the whole of grace=. Nothing was changed: call again"
        )
    return FormatError(
        f"{store.url}/{piece}, a piece of a checkpoint of the ledger, is {what}. Nothing was changed, and the log has all it needs to do "
        f"without: delete {head or piece}, then call again: the ledger is read from an older checkpoint, or from its segments"
    )


# ------------------------------------------------------------------------------------------------------------------ finding one
def seek(store: Store, before: float = math.inf) -> list[tuple[int, str]]:
    """The versions and ids of all checkpoints that have a head, which was there `before` (ns since 1970), the newest first."""
    found = [names.checkpoint_of_head(e.name) for e in store.scan(names.CHECKPOINTS) if isinstance(e, File) and e.modified <= before]
    return sorted((x for x in found if x is not None), reverse=True)


def newest(store: Store, at_most: int | None = None, before: float = math.inf) -> Checkpoint | None:
    """The newest checkpoint that counts, of a version not above `at_most`; None: the log is read from its beginning.

    `before`: of those whose heads were there at a time, in ns since 1970.
    """
    for version, checkpoint in seek(store, before):
        if at_most is None or version <= at_most:
            found = _head(store, version, checkpoint)
            if found is not None and complete(store, found):
                return found
    return None


def replaced(store: Store, base: Checkpoint | None) -> bool:
    """Whether another checkpoint counts than the one that a log was opened from, so that what is missing may have been swept."""
    found = newest(store)
    return found is not None and (base is None or found.head != base.head)


def heads(store: Store, at_least: int) -> Iterator[Checkpoint]:
    """The heads of all checkpoints of a version or later ones, whether or not their pieces are there."""
    found = (_head(store, version, checkpoint) for version, checkpoint in seek(store) if version >= at_least)
    return (head for head in found if head is not None)


def _head(store: Store, version: int, checkpoint: str) -> Checkpoint | None:
    name = names.checkpoint_head(version, checkpoint)
    where = f"{store.url}/{name}"
    try:
        found: Checkpoint = decode(store.get(name), Checkpoint, where)
    except NotFoundError:
        return None  # a newer one has taken its place meanwhile
    except FormatError as e:
        raise FormatError(f"{str(e).rstrip('.')}. Or delete it, it is a checkpoint: the log has all it needs to do without.") from e
    if (found.version, found.id) != (version, checkpoint):
        raise FormatError(
            f"{where} says that it is version {found.version} and another name's: it is damaged. Delete it, it is a checkpoint."
        )
    return found


def complete(store: Store, checkpoint: Checkpoint) -> bool:
    """Whether all pieces are there, at their length."""
    folder = names.checkpoint_folder(checkpoint.version, checkpoint.id)
    there = {e.name: e.size for e in store.walk(folder)}
    named = [x for kind in ("rows", "history", "files", "merged", "instants") for x in checkpoint.pieces(kind)]
    return all(there.get(name) == piece.size for name, piece in named)
