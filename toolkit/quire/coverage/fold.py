"""The fold: what the log's commits make of an empty ledger, in order. The rows of each removed data file and of each uncovered
range leave, the segments' rows come.

It is computed without an order of its own: a row counts unless a later commit removed its data file or uncovered its range. So a
piece of the ledger (the paths from `first` to `last`) is folded from the few segments that may hold such paths.

A checkpoint is the fold at a settled version: its pieces are sources as segments are, and later commits take rows of them away as they do
others'.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from quire.commit import names
from quire.commit.checkpoints import FILES, Checkpoint
from quire.commit.entries import Task, Uncover
from quire.commit.log import Log
from quire.coverage import segments
from quire.coverage.finished import KEY, restated
from quire.coverage.uncovered import Uncovered
from quire.errors import NotFoundError
from quire.formats.parquet import DAMAGED
from quire.storage import Store
from quire.storage.once import once
from quire.storage.threads import Pool

AHEAD, PART = 16, 8  # short segments that are asked for at once; so many one after the other
SMALL, TOGETHER, MOST = 1_000, 20_000, 256  # rows of a segment that is read with others, and of all these; how many of them
NEAR = "near"  # in the place of a segment's name: rows that travel with the fold (see `near`)
Get = Callable[[str], bytes]
_LAST = "\U0010ffff"


def after(text: str) -> str:
    """The least text that comes after all that begin with this one: `a0` after what lies below `a/`. Names begin with any character, and
    have more behind it. By code points, whose order UTF-8 keeps; "" where nothing comes after.
    """
    text = text.rstrip(_LAST)
    return text[:-1] + ("\ue000" if text[-1] == "\ud7ff" else chr(ord(text[-1]) + 1)) if text else ""


@dataclass(frozen=True)
class Source:
    """A segment that counts, and the number of the commit that names it; or a piece of a checkpoint, and the checkpoint's version."""

    number: int
    segment: str
    first: str
    last: str
    quarantined: int = 0  # rows that it has in quarantine, or had
    held: int = 0  # of last lines that were not taken
    rows: int = 0  # all of them
    piece: bool = False
    checksum: str = ""  # of a piece (see `CheckpointPiece`)

    @property
    def content(self) -> str:
        """The same for all pieces that are copies of one."""
        return f"{self.checksum}-{self.rows}" if self.checksum else self.segment


@dataclass(frozen=True)
class Fold:
    """The part of the log that decides the ledger at a version: plain data that travels to the tasks."""

    version: int
    sources: tuple[Source, ...]
    removed: dict[str, int]  # data file → number of the commit that removed it
    uncovered: Uncovered
    base: Checkpoint | None = None
    only: Source | None = None  # of the pieces, only the rows that came from this segment, which they have merged
    undone: frozenset[int] = frozenset()  # commits of which the pieces have rows, and that another program has rolled back since
    said: tuple[Source, ...] = ()  # segments that add no row, and say what is the state of rows before them (see `finished`)
    near: pa.Table | None = field(default=None, repr=False, compare=False)  # rows as a piece has them, of the source `NEAR`

    def rows(self, store: Store, columns: Sequence[str] = segments.SCHEMA.names, first: str = "", last: str = "",
             among: pa.Array | None = None, *, narrow: bool = False) -> pa.Table:  # fmt: skip
        """The ledger's rows for the paths in [first, last], with the column `commit` added.

        `attempt`, `folder` and `quarantine` may be asked for too.

        `among`: of these paths alone, in any order. The rows of one source are held at a time, but for those that are wanted.
        `narrow`: [first, last] is a small part of a checkpoint's piece, of which the rest is not asked for.

        `folder` is known of rows of a checkpoint alone, and only where they have no data file.
        """
        if among is not None:
            among = _in_order(among)
            first, last = among[0].as_py(), among[-1].as_py()
        if self.only is not None:
            first, last = max(first, self.only.first), min(last or self.only.last, self.only.last)
        aside = ["state", "records"] if "quarantine" in columns else []
        needed = list(dict.fromkeys([*columns, *aside, *self._also()]))
        tables = []
        wanted = [source for source in self.sources if not last or (source.first <= last and source.last >= first)]
        if among is not None:
            wanted = [source for source in wanted if segments.holds_any(among, source.first, source.last)]
        for some in _prefetched(store, wanted, alone=bool(self.said)):
            table = self._together(store, some, needed, first, last, among, narrow=narrow)
            tables.append(table.select([*columns, "commit"]))
        if not tables:
            schema = pa.schema([segments.PIECE.field(c) for c in columns]).append(segments.PIECE.field("commit"))
            return schema.empty_table()
        return pa.concat_tables(tables)

    def beginning(self, store: Store, columns: Sequence[str], text: str) -> pa.Table:
        """The rows for all paths that begin with this text; `columns` has the path."""
        rows = self.rows(store, columns, text, after(text))
        return rows.filter(pc.starts_with(rows.column("path"), text))

    def _together(
        self, store: Store, some: Sequence[tuple[Source, Get]], needed: list[str], first: str, last: str, among: pa.Array | None, *,
        narrow: bool,
    ) -> pa.Table:  # fmt: skip
        """The rows of some small segments, each of which is decoded, and all of them are checked once; or of one source."""
        if len(some) == 1:
            ((source, get),) = some
            table = self._counting(self._read(store, source, needed, first, last, among, get, narrow=narrow))
            return self._as_said(store, table, source.number)
        columns = [c for c in needed if c in segments.SCHEMA.names]
        try:
            table, at = segments.read_together([get(source.segment) for source, get in some], columns, first, last, among)
        except (NotFoundError, *DAMAGED):  # read alone, it is known which one it is
            return pa.concat_tables([self._together(store, [one], needed, first, last, among, narrow=narrow) for one in some])

        def of_segment(name: str, values: Sequence[object]) -> pa.Array:
            return pa.array(values, segments.PIECE.field(name).type).take(at)

        table = table.append_column(segments.PIECE.field("commit"), of_segment("commit", [source.number for source, _ in some]))
        if "attempt" in needed:
            attempts = [names.attempt_of_segment(source.segment) for source, _ in some]
            table = table.append_column(segments.PIECE.field("attempt"), of_segment("attempt", attempts))
        table = _with(table, "folder", None) if "folder" in needed else table
        if "quarantine" in needed:
            table = _with_quarantine(table, of_segment("quarantine", [names.quarantine_of(source.segment) for source, _ in some]))
        return self._counting(table)

    def _read(
        self, store: Store, source: Source, needed: list[str], first: str, last: str, among: pa.Array | None, get: Get, *, narrow: bool
    ) -> pa.Table:  # fmt: skip
        if source.segment == NEAR:
            assert self.near is not None
            path = self.near.column("path")
            among_them = (
                pc.is_in(path, among) if among is not None else pc.and_(pc.greater_equal(path, first), pc.less_equal(path, last or _LAST))
            )
            return self.near.select([*needed, "commit"]).filter(among_them)
        if not source.piece:
            of = f"commit {source.number}: {source.first[:100]} … {source.last[:100]}"
            table = segments.read(store, source.segment, [c for c in needed if c in segments.SCHEMA.names], first, last, of, among, get)
            table = _with(table, "commit", source.number)
            for name, value in (("attempt", names.attempt_of_segment(source.segment)), ("folder", None)):
                table = _with(table, name, value) if name in needed else table
            if "quarantine" in needed:
                table = _with_quarantine(table, names.quarantine_of(source.segment))
            return table
        one = ["attempt"] if self.only is not None else []
        columns = list(dict.fromkeys([*needed, "commit", *one]))
        if narrow and among is None:
            table = segments.read_part(store, source.segment, columns, first, last)
        else:
            table = segments.read(store, source.segment, columns, first, last, among=among)
        if self.only is not None:
            attempt = names.attempt_of_segment(self.only.segment)
            mine = pc.and_(pc.equal(table.column("commit"), self.only.number), pc.equal(table.column("attempt"), attempt))
            table = table.filter(mine)
        if self.undone:
            table = table.filter(pc.invert(pc.is_in(table.column("commit"), pa.array(self.undone, pa.int64()))))
        return table

    def of(self, source: Source) -> Fold:
        """The same, of one source alone; of a segment that a checkpoint has merged, those of its rows that have stayed."""
        if source.piece or self.base is None or source.number > self.base.version:
            return replace(self, sources=(source,))
        return replace(self, sources=self._pieces, only=source)

    @once
    def _pieces(self) -> tuple[Source, ...]:
        return tuple(s for s in self.sources if s.piece)

    def source_of(self, store: Store, data_file: str) -> Source | None:
        """The source of the rows of a data file that counts; None: no such file does."""
        return self.sources_of(store, [data_file]).get(data_file)

    def sources_of(self, store: Store, data_files: Iterable[str]) -> dict[str, Source]:
        """The same of many, by their names: what a checkpoint says of files is read once for all of them."""
        segments_of = {file: names.segment_of(file) for file in data_files}
        by_segment = {source.segment: source for source in self.sources}
        counting = {file: segment for file, segment in segments_of.items() if file not in self.removed}
        found = {file: by_segment[segment] for file, segment in counting.items() if segment in by_segment}
        rest = pa.array([file for file in counting if file not in found], pa.string())
        for table in self.base.tables(store, "files", FILES) if self.base and len(rest) else ():
            for row in table.filter(pc.is_in(table.column("data_file"), rest)).to_pylist():
                if row["commit"] not in self.undone:
                    found[row["data_file"]] = Source(row["commit"], counting[row["data_file"]], row["first"], row["last"])
        return found

    def _also(self) -> list[str]:
        """The columns that deciding needs."""
        return (["data_file"] if self.removed else []) + (list(KEY) if self.uncovered or self.said else [])

    def _as_said(self, store: Store, table: pa.Table, number: int) -> pa.Table:
        """Rows of a commit, with what later ones say of their state."""
        if not table.num_rows or not self.said or not {"state", "reason", "fingerprint"} & set(table.schema.names):
            return table
        first, last = pc.min_max(table.column("path")).as_py().values()
        for source in self.said:
            if source.number > number and source.first <= last and source.last >= first:
                columns = [*KEY, "state", "reason", "fingerprint"]
                table = restated(table, segments.read(store, source.segment, columns, first, last, f"commit {source.number}"))
        return table

    def _counting(self, table: pa.Table) -> pa.Table:
        """The rows that no later commit has taken away; those of a checkpoint's piece have been looked at up to its version."""
        # Of what has left those are looked up that are here, however many there are in all.
        if self.removed and table.num_rows:
            file = table.column("data_file")
            gone = {name: by for name in pc.unique(file).to_pylist() if (by := self.removed.get(name)) is not None}
            if gone:
                by = pa.array(gone.values(), pa.int64()).take(pc.index_in(file, pa.array(list(gone), pa.string())))
                table = table.filter(pc.fill_null(pc.less_equal(by, table.column("commit")), True))
        if self.uncovered and table.num_rows:
            here, least = pc.unique(table.column("path")).to_pylist(), pc.min(table.column("commit")).as_py()
            later = [path for path in here if any(by > least for by, _ in self.uncovered.get(path, ()))]
            some = pc.indices_nonzero(pc.is_in(table.column("path"), pa.array(later, pa.string())))
            rows = table.select(["commit", "path", "version", "start", "length"]).take(some).to_pylist()
            out = [i for i, row in zip(some.to_pylist(), rows, strict=True) if self.uncovered.since(row.pop("commit"), **row)]
            if out:
                table = table.filter(pc.invert(pc.is_in(pa.array(range(table.num_rows)), pa.array(out))))
        return table


def fold(log: Log, version: int | None = None, *, reader: bool = False) -> Fold:
    """The ledger at a version: of all commits (for planning, at a settled version) or of the published ones (for readers)."""
    version = log.tip if version is None else version
    log = log.at(version)
    sources, said, removed = list[Source](), list[Source](), dict[str, int]()
    if log.base:
        pieces = log.base.pieces("rows")
        sources = [Source(log.base.version, name, p.first, p.last, p.quarantined, p.held, p.rows, True, p.checksum) for name, p in pieces]
    uncovered = defaultdict[str, list[tuple[int, Uncover]]](list)
    for number, commit in log.recent(version):
        for task in log.in_effect(commit, version, reader=reader):
            if task.coverage.segment and task.stats.restated:
                said.append(Source(number, task.coverage.segment, task.coverage.first, task.coverage.last, rows=task.stats.restated))
            elif task.coverage.segment:
                sources.append(
                    Source(
                        number,
                        task.coverage.segment,
                        task.coverage.first,
                        task.coverage.last,
                        task.stats.quarantined,
                        task.stats.held,
                        task.stats.rows,
                    )
                )
            for file in task.coverage.removes:
                removed.setdefault(file, number)
            # The rows that a task uncovers in files that it removes leave with these.
            for uncover in () if task.coverage.removes else task.coverage.uncovers:
                uncovered[uncover.path].append((number, uncover))
    by_path = Uncovered((path, tuple(found)) for path, found in uncovered.items())
    undone = log.undone_since(log.merged, version)
    return Fold(version, tuple(sources), removed, by_path, log.base, said=tuple(said), undone=undone)


def _groups(sources: Iterable[Source], most: int, rows: int) -> Iterator[list[Source]]:
    """Sources in their order: small segments that follow one another together, at most so many of so many `rows`; each other one alone."""
    some, held = list[Source](), 0
    for source in sources:
        small = not source.piece and source.rows <= SMALL
        if some and (not small or len(some) == most or held + source.rows > rows):
            yield some
            some, held = [], 0
        if small:
            some.append(source)
            held += source.rows
        else:
            yield [source]
    if some:
        yield some


def _prefetched(store: Store, sources: list[Source], *, alone: bool) -> Iterator[Sequence[tuple[Source, Get]]]:
    """The sources in groups, each with what gives its bytes: of many short segments some are asked for before their turn."""
    short = [source for source in sources if not source.piece and source.rows <= segments.ROW_GROUP]
    if len(short) < 2:
        yield from ([(source, store.get)] for source in sources)
        return
    size = max(1, min(PART, len(short) // (2 * AHEAD)))  # to hand over one takes as long as a short answer
    parts = _groups(short, size, SMALL)
    with Pool(AHEAD) as pool:
        coming = deque((pool.submit(_bytes, store, part), len(part)) for part in islice(parts, AHEAD))
        answers = deque[Get]()

        def bytes_of(source: Source) -> Get:
            if source.piece or source.rows > segments.ROW_GROUP:
                return store.get
            if not answers:
                coming.extend((pool.submit(_bytes, store, part), len(part)) for part in islice(parts, 1))
                asked, n = coming.popleft()
                answers.extend(partial(_answer, asked, i) for i in range(n))
            return answers.popleft()

        for some in _groups(sources, 1 if alone else MOST, TOGETHER):
            yield [(source, bytes_of(source)) for source in some]


def _bytes(store: Store, sources: list[Source]) -> list[bytes | Exception]:
    """The bytes of some segments; in the place of those that cannot be had, why."""
    found = list[bytes | Exception]()
    for source in sources:
        try:
            found.append(store.get(source.segment))
        except Exception as e:  # it belongs to who asks for this one
            found.append(e)
    return found


def _answer(asked: Future[list[bytes | Exception]], at: int, _: str) -> bytes:
    found = asked.result()[at]
    if isinstance(found, Exception):
        raise found
    return found


def _in_order(paths: pa.Array) -> pa.Array:
    """Sorted: as a rule a listing is, and looking costs a hundredth of sorting."""
    return paths if pc.all(pc.less_equal(paths[:-1], paths[1:])).as_py() else paths.take(pc.sort_indices(paths))


def _with(table: pa.Table, name: str, value: object) -> pa.Table:
    field = segments.PIECE.field(name)
    return table.append_column(field, pa.repeat(pa.scalar(value, field.type), table.num_rows))


def _with_quarantine(table: pa.Table, file: object) -> pa.Table:
    """With the column `quarantine`: the file of the rows' attempt, or of each row's, where the row stands for a record that it holds."""
    aside = pc.if_else(segments.is_record(table), file, pa.scalar(None, pa.string()))
    return table.append_column(segments.PIECE.field("quarantine"), aside)


def touched(store: Store, task: Task) -> dict[str, list[tuple[str, int, int]]]:
    """A task's covered and uncovered ranges: path → [(version, start, length)]. Carried rows do not count."""
    found = defaultdict[str, list[tuple[str, int, int]]](list)
    if task.coverage.segment:
        rows = segments.read(store, task.coverage.segment, ["path", "version", "start", "length", "carried"])
        rows = rows.filter(pc.invert(rows.column("carried")))
        for path, version, start, length in zip(*(rows.column(c).to_pylist() for c in ("path", "version", "start", "length")), strict=True):
            found[path].append((version, start, length))
    for uncover in task.coverage.uncovers:
        found[uncover.path].extend((uncover.version, start, length) for start, length in uncover.ranges)
    return found
