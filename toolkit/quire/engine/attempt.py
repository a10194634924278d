"""One attempt of a task, where the runner put it: read the splits, write what nobody lists, then the segment, then the manifest.

The order is the promise: the attempt whose manifest is there has won, and by then its output and its ledger rows are durable.
"""

from __future__ import annotations

import functools
import json as json_text
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import xxhash
from msgspec.structs import replace

from quire.commit import names
from quire.commit.committers import Committer, committer
from quire.commit.entries import PURGE, DataFile, Left, PlanHead, Task, Uncover
from quire.commit.log import Log
from quire.commit.protocol import get_manifest, put_manifest
from quire.commit.rename import Rename
from quire.coverage import quarantine
from quire.coverage.carry import Carrying, dropped
from quire.coverage.counts import marked
from quire.coverage.finished import PURGED, SAID
from quire.coverage.fold import fold
from quire.coverage.segments import ROW_GROUP, SCHEMA, SegmentWriter
from quire.coverage.tails import WAITED, fingerprint, mark, unfinished
from quire.engine.loading import OfOffsets, Remade
from quire.engine.splitting import APPENDED, OfSplits, cut, settled, table_of
from quire.errors import FormatError, NotFoundError
from quire.formats import extension
from quire.formats.folders import FolderWriter
from quire.formats.lines import LONGEST, FrameWriter, longer
from quire.formats.parquet import CONTENT, ParquetWriter, checksum
from quire.planning.changes import EMPTY
from quire.planning.listing import Run
from quire.planning.pack import PlannedTask, read_drops, read_rows, read_task
from quire.sources import magic
from quire.sources.files import Root
from quire.sources.kafka.topics import Topics
from quire.sources.ranges import Long, TooLongError, lines_of, read
from quire.sources.splits import FileInfo
from quire.sources.transforms import BadContent, schemas
from quire.sources.transforms.columns import DiffersError, fit
from quire.sources.transforms.convert import Convert
from quire.sources.transforms.functions import WrongTypeError
from quire.sources.transforms.processing import Rejected
from quire.spark.runner import without_collector
from quire.storage import Content, Gone, Request, Sink, Store, Unreadable, connect

_CUT = "Gather such files by identity='store', which cuts them into ranges"  # what to do with a raw file that is one record
_TOO_LONG = f"is longer than one value may be: {LONGEST:,} bytes. Break it at its source, or gather such files with transform='raw'"
_COLUMNS = ["path", "size", "version", "modified", "start", "length", "replaces", "follows"]
_CARRIED = ("path", "version", "start", "length", "written", "records", "checksum", "fingerprint")
digest = xxhash.xxh3_64_intdigest


@dataclass(frozen=True)
class Work:
    """A frozen plan and what its tasks need to know; travels to them."""

    dest: str
    dest_options: Any = field(repr=False)
    roots: tuple[Root, ...]
    head: PlanHead
    convert: Convert


class _Lost(Exception):
    """A long split changed when a part of it was written already: the attempt starts again without it."""

    def __init__(self, at: tuple[str, int], content: Gone | Unreadable) -> None:
        super().__init__(at)
        self.at, self.content = at, content


def attempt(work: Work, task: int) -> dict[str, Any]:
    """Do one task, unless it has a manifest. The answer is for the progress line; what counts is in the store."""
    retries = list[str]()
    store, job = connect(work.dest, work.dest_options, retries.append), work.head.job
    if get_manifest(store, job, task) is not None:
        return {"task": task}
    try:
        planned = read_task(store, names.plan_parquet(job, work.head.plan), task)
    except NotFoundError:
        return {"task": task}  # the job is over and cleaned
    lost: dict[tuple[str, int], Gone | Unreadable] = {}
    long: dict[tuple[str, int], Sequence[Long]] = {}
    remade: dict[str, Gone] = {}
    while True:
        one = _Attempt(work, store, task, planned, lost, long, remade, retries)
        try:
            with nullcontext() if work.convert.of_user else without_collector():
                done = one.run()
        except _Lost as e:
            lost[e.at] = e.content.with_traceback(None)  # which would hold on to all that the attempt had opened
            one.abort()
        except _Long as e:
            long[e.at] = e.lines
            one.abort()
        except Remade as e:
            remade[e.topic] = e.why
            one.abort()
        except BaseException:
            one.abort()
            raise
        else:
            if not put_manifest(store, job, done):
                one.abort()
            return {"task": task}


class _Long(Exception):
    """A line is longer than a value may be, and a part of it was written already: the attempt starts again without such lines."""

    def __init__(self, at: tuple[str, int], lines: Sequence[Long]) -> None:
        super().__init__(at)
        self.at, self.lines = at, lines


class _Attempt(OfSplits, OfOffsets):
    """The state of one attempt."""

    def __init__(
        self, work: Work, store: Store, task: int, planned: PlannedTask, lost: dict[tuple[str, int], Gone | Unreadable],
        long: dict[tuple[str, int], Sequence[Long]], remade: dict[str, Gone], retries: list[str],
    ) -> None:  # fmt: skip
        self.work, self.store, self.task, self.planned, self.lost, self.retries = work, store, task, planned, lost, retries
        self.long, self.remade = long, remade
        self.id = names.new_id()
        # What another task reads, and nobody else, waits as plain objects, whatever the store and its committer.
        self.by: Committer = Rename() if work.head.closer else committer(work.head.committer, store)
        self.convert = work.convert
        self.folder = planned.folder if work.head.words.layout == "directories" else ""
        self.outputs: dict[str, Sink] = {}  # final names, in the writer's order
        kind: Any = ParquetWriter if self.convert.format == "parquet" else FrameWriter
        apart = self.convert.loading is not None and self.convert.loading.by and not planned.removes
        kind = functools.partial(FolderWriter, kind) if apart else kind
        self.writer = kind(self._create, self.convert.target, self.convert.compression)
        self.segment = SegmentWriter()
        self.rows: list[tuple[Any, ...]] = []  # path, version, start, length, written, records, checksum: in the writer's order
        self.others: list[tuple[Any, ...]] = []  # path, version, start, length, state, reason, tries, mark, records: without a record
        self.riders: dict[tuple[str, str, int], list[tuple[Any, ...]]] = {}  # path, version, start of a row → what it stands for, too
        self.quarantine = quarantine.QuarantineWriter()
        self.rejects = quarantine.Shelf(store)
        self.records: dict[tuple[str, int], str] = {}  # path, start of a split that is one rejected record → its quarantine file
        self.tried: dict[tuple[str, int], int] = {}  # path, start of a split → how often it was read before
        self.left: list[Left] = []
        self.uncovers: list[Uncover] = []
        self.taken = 0  # records in the writer whose rows are in the segment
        self.file_records: dict[int, int] = {}
        self.gathered = self.bad = self.rejected = self.vain = self.bytes_in = self.bytes_replaced = self.files = self.lost_offsets = 0
        self.removes: tuple[str, ...] = ()
        self.states: dict[tuple[str, str, int], tuple[str, str]] = {}  # path, version, start of carried rows that are not just done
        self.restated = 0  # rows that say what is the state of others
        self.tries: dict[tuple[str, str], int] = {}  # path, version of rows that give way: how often the file was tried
        self.brought: dict[tuple[str, int], set[tuple[Any, ...]]] = {}  # path, start of a split → what it takes out of the ledger
        self.withdrawn = set[tuple[Any, ...]]()  # of that, what stays after all
        self.replaced = Counter[int]()  # rows that give way to what was read: of quarantine (0), WAITED, EMPTY
        self.schema_of = self.differs = ""  # the first file whose rows are in the writer; the first one with other columns
        self.held = self.waiting = 0  # last lines that are held back; splits that are nothing else
        self.out = dropped(read_drops(store, planned.drops), planned.removes or [""])
        self.uncovers += self.out.uncovers

    def _create(self, index: int, folder: str | None = None) -> Sink:
        ending = extension(self.convert.format, self.convert.compression)
        final = names.data_file(self.folder if folder is None else folder, self.work.head.job, self.task, self.id, index, ending)
        sink = self.outputs[final] = self.by.create(self.store, self.work.head.job, self.task, self.id, final)
        return sink

    def abort(self) -> None:
        """Remove what only this attempt can have written."""
        self.writer.discard()
        self.by.abort_task(self.store, self.work.head.job, self.task, self.id, self.outputs)

    # ---------------------------------------------------------------------------------------------------------- the way through
    def run(self) -> Task:
        """Read, write, make durable; the manifest's content."""
        began, started = time.time(), time.monotonic()
        for root, runs in groupby(self.planned.runs, key=lambda run: run.root):
            if root >= len(self.work.roots):
                raise FormatError(f"the plan of job {self.work.head.job} reads from a source that the job does not have: it is damaged.")
            source = self.work.roots[root]
            if isinstance(source, Topics):
                self._load(source, list(runs), self.work.head.job)
            else:
                self._read_all(source, list(runs))
        if self.planned.marks and self.work.head.verb == PURGE:
            self._say()
        elif self.planned.marks:
            self._mark()
        if self.planned.removes:
            self._carry()
        self.writer.close()
        self._flush(last=True)
        segment = self.segment.finish()
        name = names.segment(self.work.head.job, self.task, self.id) if segment else None
        rejected = self.quarantine.finish()
        aside = names.quarantine(self.work.head.job, self.task, self.id) if rejected else None
        out = self.out.counts
        done = Task(
            task=self.task, attempt=self.id, files=self._files(), folder=self.planned.folder, part=self.planned.part, segment=name,
            quarantine=aside,
            first=self.segment.first, last=self.segment.last,
            assigned=self.planned.files, gathered=self.gathered, bad=self.bad, rejected=self.rejected, vain=self.vain,
            lost=self.lost_offsets,
            pieces=0 if self.removes else self.segment.rows - self.gathered - self.bad - self.held,
            files_in=self.files, bytes_in=self.bytes_in,
            removes=self.removes, carried=self.segment.rows if self.removes else 0, restated=self.restated,
            files_out=out.files + self.replaced[EMPTY] + (self.files if self.restated else 0),
            bytes_out=out.bytes + self.bytes_replaced + (self.bytes_in if self.restated else 0), bad_out=out.bad + self.replaced[0],
            held=self.held, held_out=out.held + self.replaced[WAITED], waiting=self.waiting,
            schema=self._schema(), schema_of=self.schema_of, differs=self.differs,
            uncovers=tuple(u for u in self.uncovers if (u.path, u.version, u.ranges) not in self.withdrawn), left=tuple(self.left),
            started=round(began, 3), seconds=round(time.monotonic() - started, 3),
        )  # fmt: skip
        if aside and rejected:
            self.store.put(aside, rejected)
        if name and segment:
            self.store.put(name, segment)
        self.by.commit_task(self.store, self.work.head.job, done)
        return replace(done, retries=len(self.retries))

    def _mark(self) -> None:
        """Rows for what was done elsewhere: nothing is read or written for them."""
        for table in read_rows(self.store, self.planned.marks, ["path", "version", "start", "length"]):
            n = table.num_rows
            own = {**{c: table.column(c) for c in table.schema.names}, "state": pa.array(["mark"] * n), "carried": pa.array([False] * n)}
            self.segment.add(pa.table([own[f.name] if f.name in own else pa.nulls(n, f.type) for f in SCHEMA], schema=SCHEMA))
            self.gathered += n
            counted = marked(table)
            self.files, self.bytes_in = self.files + counted.files, self.bytes_in + counted.bytes

    def _say(self) -> None:
        """Rows that say what is the state of rows that are there: of files that are purged. They add nothing, and nothing leaves."""
        for table in read_rows(self.store, self.planned.marks, schema=SAID):
            n, own = table.num_rows, {name: table.column(name) for name in table.schema.names}
            for name in ("data_file", "reason"):
                own[name] = pc.if_else(pc.equal(own[name], ""), pa.scalar(None, pa.string()), own[name])
            own["carried"] = pa.array([False] * n)
            self.segment.add(pa.table([own[f.name] if f.name in own else pa.nulls(n, f.type) for f in SCHEMA], schema=SCHEMA))
            self.gathered, self.restated = self.gathered + n, self.restated + n
            gone = table.filter(pc.equal(table.column("state"), PURGED))
            # As many are in it afterwards as before: the history tells of them.
            self.files += pc.sum(pc.equal(gone.column("start"), 0)).as_py() or 0
            self.bytes_in += pc.sum(gone.column("length")).as_py() or 0

    def _carry(self) -> None:
        """Write again what stays of the data files that go."""
        folded = fold(Log(self.store).refresh(), self.work.head.base)
        files = self.planned.removes if self.work.head.words.traced else ()  # else all rows of a file leave with it
        carrying = Carrying(self.store, folded, files, self.work.head.words.compression, self.out)
        for name in files:
            try:
                for row, record in carrying.carried(name):
                    if isinstance(record, pa.RecordBatch):
                        self.writer.add(fit(record, self.writer.schema or self.convert.columns))
                    elif isinstance(record, bytes):
                        self.writer.add(record)
                    else:
                        self.writer.add_stream(record, row["written"])
                    self.rows.append(tuple(row[c] for c in _CARRIED))
                    for each in (row, *row["riders"]):
                        if each["state"] != "done":
                            self.states[row["path"], row["version"], each["start"]] = each["state"], each["reason"]
                    if row["riders"]:
                        self._rides(row["path"], row["version"], row["start"], row["riders"])
            except NotFoundError as e:
                self.left.append(Left(name, str(e)))
            except WrongTypeError as e:
                raise FormatError(
                    f"the data file {name} holds columns that cannot lie beside those of the others: {e}. Nothing was changed: give it up "
                    f"with ledger.forget(file={name!r}), and run again."
                ) from e
            except FormatError as e:
                if fold(Log(self.store).refresh()).source_of(self.store, name) is not None:
                    raise
                self.left.append(Left(name, str(e)))  # damaged, and given up by another job meanwhile: this one is planned again
            self._flush()
        self.removes = tuple(self.planned.removes)

    def _files(self) -> tuple[DataFile, ...]:
        job = self.work.head.job
        sizes = self.writer.sizes
        return tuple(
            DataFile(final, sizes[i], self.file_records.get(i, 0), self.by.handle(job, self.task, self.id, final, sink))
            for i, (final, sink) in enumerate(self.outputs.items())
        )

    def _schema(self) -> str:
        """The columns of a function's rows: all tasks of a destination must have the same."""
        schema = self.writer.schema if self.convert.format == "parquet" and self.convert.of_user else None
        return "" if schema is None else schemas.text(schema)

    def _read_all(self, source: Root, runs: list[Run]) -> None:
        """Read the splits of one source in one go, so that hundreds are in flight all the time, also while the plan's next rows come."""
        prefix, waiting = len(source.url.rstrip("/")) + 1, deque[list[list[Any]]]()

        def requests() -> Iterator[Request]:
            for table in read_rows(self.store, runs, _COLUMNS):
                _check_paths(table.column("path"), source, self.work.head.job)
                columns = [table.column(c).to_pylist() for c in _COLUMNS]
                waiting.append(columns)
                paths, sizes, versions, _, starts, lengths, _, follows = columns
                yield from self._requests([path[prefix:] for path in paths], versions, sizes, starts, lengths, follows)

        store = source.store(self.retries.append)
        # Closed also where an answer ends the attempt: what is in flight must not go on beside the next one.
        with closing(store.read_many(requests())) as answers:  # type: ignore[type-var]  # a store's answers are a generator
            for first in answers:
                columns = waiting.popleft()
                self._read(store, columns, chain([first], islice(answers, len(columns[0]) - 1)))

    def _read(self, store: Store, columns: list[list[Any]], answers: Iterator[tuple[Request, Content]]) -> None:
        paths, _, _, modified, starts, lengths, replaces, follows = columns
        if any(replaces):
            given = [(path, *each[:3]) for path, text in zip(paths, replaces, strict=True) if text for each in json_text.loads(text)]
            found = [Uncover(path, version, tuple((s, n) for s, n in ranges)) for path, version, ranges, _ in given]
            self.tries |= {(path, version): tries for path, version, _, tries in given}
            self.uncovers += found
            self._replace(found, 1)
            for path, start, text in zip(paths, starts, replaces, strict=True):
                if text:
                    each_of = json_text.loads(text)
                    self.brought[path, start] = {(path, each[0], tuple(map(tuple, each[1]))) for each in each_of}
                    self.tried[path, start] = max(0, *(each[2] for each in each_of))
                    for each in each_of:
                        if len(each) > 3:
                            self.records[path, start] = each[3]
        plain = self.convert.format != "parquet" and self.convert.transform in ("lines", "raw")
        add_newline, add, row, lost = self.convert.transform == "lines", self.writer.add, self.rows.append, self.lost
        other = magic.is_other
        gathered = files = bytes_in = 0
        take = self._take if self.convert.process is None else self._process
        holds, mark = self.convert.holds, fingerprint if self.convert.marks else _no_mark
        for path, start, length, at, after, (request, answer) in zip(paths, starts, lengths, modified, follows, answers, strict=True):
            content = answer
            if (
                content.__class__ is bytes and plain and content and request.length == length
                and not (lost and (path, start) in lost) and not (holds and content[-1] != 10)
                and not (add_newline and (start or other(content)))
            ):  # fmt: skip
                # The hot path of the main job.
                seen = mark(content)
                if add_newline and content[-1] != 10:
                    content += b"\n"
                add(content)
                # Most small documents are one line, and looking for a newline is many times faster than counting.
                lines = content.count(b"\n") if content.find(b"\n", 0, -1) >= 0 else content[-1] == 10
                row((path, request.version, start, length, len(content), int(lines), digest(content), seen))
                gathered += 1
                files += start == 0
                bytes_in += length
            else:
                take(store, request, content, FileInfo(path, request.size, request.version, at), start, length, after)
        self.gathered, self.files, self.bytes_in = self.gathered + gathered, self.files + files, self.bytes_in + bytes_in
        self._flush()

    def _requests(
        self, names: list[str], versions: list[str], sizes: list[int], starts: list[int], lengths: list[int], follows: list[str | None]
    ) -> Iterable[Request]:
        """What to read for some splits."""
        splits = names, versions, sizes, starts, lengths
        if any(follows):  # the end of a file, from a line's beginning on: just that
            return (self._end(*split) if after else self._request(*split) for *split, after in zip(*splits, follows, strict=True))
        whole = self.convert.process is None or self.convert.process.split != "row_groups"
        if whole and sizes == lengths and (self.convert.streams or max(sizes) <= self.convert.max_file_size):
            return map(Request, *splits)  # nearly always: whole files
        return map(self._request, *splits)

    def _end(self, name: str, version: str, size: int, start: int, length: int) -> Request:
        """Of a file that was appended to, from a line's beginning on; if that is so long that it was cut, a range as any other."""
        return Request(name, version, size, start, length) if start + length == size else self._request(name, version, size, start, length)

    def _request(self, name: str, version: str, size: int, start: int, length: int) -> Request:
        if self.convert.process is not None:
            return self.convert.process.request(name, version, size, start, length)
        if self.convert.transform == "lines" and self.convert.streams and (start or length != size):
            # A line belongs to the range in which it begins: look one byte back, and read on to the line's end.
            begin = max(start - 1, 0)
            return Request(name, version, size, begin, size - begin)
        if not self.convert.streams and size > self.convert.max_file_size:
            return Request(name, version, size, 0, 0)
        return Request(name, version, size, start, length)

    def _take(self, store: Store, request: Request, content: Content, file: FileInfo, start: int, length: int, after: str | None) -> None:
        """Any other split: set aside, left out, empty, long, parsed or given to the user's function."""
        content = self.lost.get((file.path, start), content)
        try:
            if self.convert.holds and start + length == file.size and (after or not start):
                if isinstance(content, Gone):  # of a long one a beginning is taken at once
                    length = min(length, APPENDED)
                file, content = settled(store, request, content, file, (start, length), after)
                request = Request(request.name, file.version, file.size, start, length)
            if isinstance(content, Gone | Unreadable):
                raise content
            self._check(store, request, file, start, length)
            if self.convert.streams and (not isinstance(content, bytes) or request.length != length):
                content = _after(content, iter(())) if isinstance(content, bytes) else content
                with closing(content):  # type: ignore[type-var]  # a stream is a generator
                    length, done = self._stream(store, request, content, file, start, length)
            else:
                whole = content if isinstance(content, bytes) else b"".join(content)
                if self.convert.holds and not whole.endswith(b"\n"):
                    length = self._hold(file, start, length, len(whole) - whole.rfind(b"\n") - 1)
                    whole = whole[:length]
                if whole or not file.size or not self.convert.holds:
                    self._write(self.convert.records(whole, file), file, start, length, fingerprint(whole) if self.convert.marks else None)
                done = [(start, length)]
            if self.convert.holds and not length and file.size:
                self.waiting += 1
                return
        except Gone as e:
            self._leave_out(file, start, e)
        except (BadContent, Unreadable) as e:
            self._set_aside(file, start, length, e)
        else:
            again = not done and (file.path, start) in self.records  # a line that was too long is so still
            self.gathered, self.bad, self.rejected = self.gathered + (not again), self.bad + again, self.rejected - again
            self.files += any(s == 0 for s, _ in done)
            self.bytes_in += sum(n for _, n in done)

    def _check(self, store: Store, request: Request, file: FileInfo, start: int, length: int) -> None:
        """Quarantine a range of a file of another kind, and what has to be held and parsed as a whole, and is a part or too long."""
        if self.convert.transform == "raw" and length > LONGEST and self.convert.streams:
            raise BadContent(f"it is one record of {length:,} bytes, and a value may have {LONGEST:,}. {_CUT}")
        if self.convert.streams:
            if start and self.convert.takes_text and not self.convert.holds:  # files that are followed are not cut: the rest is lines, too
                beginning = Request(request.name, file.version, file.size, 0, min(magic.BEGINNING, file.size))
                magic.check(read(store, beginning), self.convert.transform)
            return
        if length != file.size:
            raise BadContent(
                "only a part of it is left to read (others have marked the rest), and it is parsed as a whole: forget the marks"
            )
        if file.size > self.convert.max_file_size:
            raise BadContent(f"larger than max_file_size: {file.size:,} bytes, allowed are {self.convert.max_file_size:,}")

    def _leave_out(self, file: FileInfo, start: int, e: Gone) -> None:
        """A split that changed or vanished, with what it takes out of the ledger."""
        self.left.append(Left(file.path, str(e)))
        brought = self.brought.pop((file.path, start), set())  # by this split, not by another range of the file
        self._replace([Uncover(*each) for each in brought], -1)
        self.withdrawn |= brought

    def _set_aside(self, file: FileInfo, start: int, length: int, e: BadContent | Unreadable) -> None:
        """A split that cannot be read or parsed, or that the user's function does not take."""
        reason = e.reason if isinstance(e, BadContent) else str(e)
        self.bad += 1
        self.others.append((file.path, file.version, start, length, "bad", reason, self.tried.get((file.path, start), 0) + 1, None, 0))

    def _hold(self, file: FileInfo, start: int, length: int, rest: int) -> int:
        """Leave the last `rest` bytes, a line without its end, to a later run; the bytes before them.

        Where the file goes on behind them by now, they are no last line: the next round reads on from here.
        """
        if rest and start + length < file.size:
            if rest == length:
                raise Gone("changed while it was read")
        elif rest:
            self.held += 1
            self.others.append((file.path, file.version, start + length - rest, rest, "held", None, None, None, 0))
        return length - rest

    def _replace(self, uncovers: list[Uncover], sign: int) -> None:
        for uncover in uncovers:
            self.replaced[min(self.tries[uncover.path, uncover.version], 0)] += sign * len(uncover.ranges)

    def _write(self, made: bytes | pa.RecordBatch, file: FileInfo, start: int, length: int, mark: int | None) -> bool:
        """Write what was made of a range, and its row; whether there was anything to write."""
        key = (file.path, file.version, start, length)
        if isinstance(made, bytes) and len(made) > LONGEST and self.convert.format == "lines" and (n := longer(made)):
            raise BadContent(
                f"a line of {n:,} bytes would come of it, and one may have {LONGEST:,}. Make shorter ones, or gather it as 'raw'"
            )
        if isinstance(made, bytes):
            if made:
                self.writer.add(made)
                self.rows.append((*key, len(made), made.count(b"\n"), digest(made), mark))
        elif made.num_rows:
            made = self._fit(made, file) if self.convert.of_user else made
            self.writer.add(made)
            written = sum(map(len, made.column("content").to_pylist())) if made.schema.equals(CONTENT) else made.nbytes
            self.rows.append((*key, written, made.num_rows, checksum(made), mark))
        written = bool(made if isinstance(made, bytes) else made.num_rows)
        if not written:
            self.others.append((*key, "done", None, None, mark, 0))

        return written

    def _fit(self, made: pa.RecordBatch, file: FileInfo) -> pa.RecordBatch:
        """A function's rows in the columns of the destination, or of the first rows of the task; BadContent where they do not fit."""
        try:
            found = fit(made, self.writer.schema or self.convert.columns)
        except DiffersError as e:
            self.differs = self.differs or f"{file.path}: {e}"
            raise BadContent(f"TypeError: the rows have another schema: {e}") from None
        except WrongTypeError as e:
            raise BadContent(f"TypeError: {e}") from None
        self.schema_of = self.schema_of or file.path
        return found

    def _stream(
        self, store: Store, request: Request, content: Iterator[bytes], file: FileInfo, start: int, length: int
    ) -> tuple[int, list[tuple[int, int]]]:
        """A long split, in pieces; how much of it was taken, and what of that is done: all but lines that are too long."""
        at, checked, size, lines = (file.path, start), xxhash.xxh3_64(), 0, 0
        long = self.long.get(at, ())
        holds = self.convert.holds and start + length == file.size
        held = _unfinished(store, request, file, start) if holds else 0

        def pieces() -> Iterator[bytes]:
            nonlocal size, lines
            found = _first(content, start + length - held - request.start) if holds else content
            if self.convert.transform == "lines":
                found = lines_of(found, request.start, start, start + length, file.size + holds, long)
            try:
                for piece in found:
                    checked.update(piece)
                    size += len(piece)
                    lines += piece.count(b"\n")
                    yield piece
            except TooLongError as e:
                raise _Long(at, e.lines) from e

        first = next(coming := pieces(), b"")
        if not start and self.convert.takes_text:
            magic.check(first, self.convert.transform)
        try:
            if first:
                self.writer.add_stream(_after(first, coming), length)
                entry = store.stat(request.name)  # a range of lines ends before its stream does, which looks only at its end
                if entry is None or entry.version != file.version:
                    raise Gone("changed while it was read")
            length = self._hold(file, start, length, held)
            if held and not length:
                return 0, []
            done, aside = cut(start, length, long)
            marks = {
                span: mark(store, request.name, file.version, file.size, *span) if self.convert.marks else None for span in done + aside
            }
        except (Gone, Unreadable) as e:
            raise _Lost(at, e) from e
        if first:
            self.rows.append((*at[:1], file.version, *done[0], size, lines, checked.intdigest(), marks[done[0]]))
        elif done:
            self.others.append((file.path, file.version, *done[0], "done", None, None, marks[done[0]], 0))
        rejected = (Rejected(line.start - start, None, line.length, f"{line} {_TOO_LONG}", None, line.length) for line in long)
        self._pieces(file, start, done, dict(zip(aside, rejected, strict=True)), marks, written=bool(first))
        self.vain += bool(long and done and not first)
        return length, done

    def _marks(self, store: Store, request: Request, file: FileInfo, spans: list[tuple[int, int]]) -> dict[tuple[int, int], int | None]:
        """The fingerprints of parts of a file, where they are asked for; Gone and Unreadable as in reading."""
        if not self.convert.marks:
            return dict.fromkeys(spans)
        return {span: mark(store, request.name, file.version, file.size, *span) for span in spans}

    # ---------------------------------------------------------------------------------------------------------- its ledger rows
    def _flush(self, last: bool = False) -> None:
        """Move the rows whose records have their place into the segment."""
        known = len(self.writer.files)
        if not last and known < ROW_GROUP:
            return
        rows, self.rows = self.rows[:known], self.rows[known:]
        files, offsets = self.writer.files[:known], self.writer.offsets[:known]
        skips = self.writer.skips[:known]
        del self.writer.files[:known], self.writer.offsets[:known], self.writer.skips[:known]
        for i, row in zip(files, rows, strict=True):
            self.file_records[i] = self.file_records.get(i, 0) + row[5]
        tables, carried = [], bool(self.planned.removes)
        if rows:
            path, version, start, length, written, records, sums, marks = zip(*rows, strict=True)
            finals = list(self.outputs)
            names_, none = [finals[i] for i in files], [None] * known
            places: tuple[Any, ...] = (names_, offsets, skips, written, records, sums)
            if self.work.head.closer:  # the last task's files hold them, nobody knows where
                places = (none, none, none, none, records, none)
            tables.append(
                table_of(path, version, start, length, ["done"] * known, none, *places, [carried] * known, none, marks)
            )  # fmt: skip
            tables += self._riding(rows, places[0], places[1], places[2], carried)
            if self.states:
                tables = [self._stated(table) for table in tables]
        if self.others:
            path, version, start, length, state, reason, tries, marks, alone = zip(*self.others, strict=True)
            n, none, zero = len(path), [None] * len(path), [0] * len(path)
            tables.append(
                table_of(path, version, start, length, state, reason, none, none, none, zero, alone, [digest(b"")] * n,
                       [carried] * n, tries, marks)
            )  # fmt: skip
        if tables:
            table = pa.concat_tables(tables)
            self.segment.add(table.sort_by([("path", "ascending"), ("start", "ascending")]) if len(tables) > 1 else table)
        self.others = []

    def _stated(self, table: pa.Table) -> pa.Table:
        """Rows that are carried over, in the state that they had."""
        keys = zip(*(table.column(c).to_pylist() for c in ("path", "version", "start")), strict=True)
        found = [self.states.pop(key, ("done", None)) for key in keys]
        for name, values in zip(("state", "reason"), zip(*found, strict=True), strict=True):
            table = table.set_column(table.schema.get_field_index(name), SCHEMA.field(name), pa.array(values, pa.string()))
        return table


def _unfinished(store: Store, request: Request, file: FileInfo, start: int) -> int:
    """How many bytes come after the last newline of a file that is read from `start` on."""
    try:
        return unfinished(store, request.name, file.version, file.size, start)
    except (Gone, Unreadable) as e:
        raise _Lost((file.path, start), e) from e


def _check_paths(paths: pa.ChunkedArray, source: Root, job: str) -> None:
    """Refuse a plan that names what does not lie in the source: plans may be forged, and we may have rights that their writer lacks."""
    outside = pc.or_kleene(pc.invert(pc.starts_with(paths, source.url.rstrip("/") + "/")), pc.match_substring(paths, "\0"))
    for part in ("/../", "/./"):
        outside = pc.or_kleene(outside, pc.match_substring(pc.binary_join_element_wise(paths, "", "/"), part))
    if pc.any(outside).as_py():
        raise FormatError(f"the plan of job {job} names a file that does not lie in {source.url}: nothing was read. Look who wrote it.")


def _no_mark(_: bytes) -> None:
    """Nobody will ask whether the file has grown."""


def _after(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _first(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    """The first `size` bytes."""
    for piece in pieces:
        if size < len(piece):
            if size:
                yield piece[:size]
            return
        size -= len(piece)
        yield piece


__all__ = ["Convert", "Work", "attempt"]
