"""`spark.readStream.format("quire")`: what each commit has brought, once, by the numbers of the log.

An offset says through which entry of the log all commits that are published were given: `{"version": 12}`. A stream begins with the rows of
the newest version, a commit's at a time if it has limits: `{"version": 12, "commit": 5}` has given those of commits 1 to 5. Where it begins
is a word, so that the first batch stays the same if it has to be made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from quire.commit import retire
from quire.commit.entries import Commit, Published, Task
from quire.commit.log import Log
from quire.coverage.fold import Fold, Source
from quire.coverage.uncovered import Uncovered
from quire.errors import RefusedError, UsageError, choose
from quire.formats import partition_columns
from quire.read import options
from quire.read.content import Content, content
from quire.read.rows import Piece, Reading, cut, pieces
from quire.read.tasks import rows, together
from quire.sources.transforms import schemas
from quire.spark.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxFiles, SupportsTriggerAvailableNow, datasource
from quire.storage import connect

if TYPE_CHECKING:
    import pyarrow as pa

SNAPSHOT, LATEST = "snapshot", "latest"  # where a stream begins
EVERYTHING = 1 << 62
ONCE = Fold(0, (), {}, Uncovered(()))  # the rows of a segment as its commit has brought them
Offset = dict[str, Any]


@dataclass(frozen=True)
class Arrival:
    """A commit as readers get it: the number of its `published`, and the tasks that have brought rows."""

    version: int
    number: int
    tasks: tuple[Task, ...]

    @property
    def size(self) -> int:
        """Bytes of its data files."""
        return sum(file.size for task in self.tasks for file in task.data_files)


class StreamReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The commits of a destination, one after the other."""

    def __init__(self, held: Content, reading: Reading, given: Mapping[str, str]) -> None:
        options.refuse_of_batches(given)
        self.reading, self.spec, self.columns = reading, held.spec, held.columns()[0]
        self.named = reading.columns.names if "columns" in given else None
        self.commits = options.number(given, "maxCommitsPerTrigger", 1)
        self.bytes = options.size(given, "maxBytesPerTrigger")
        self.changes = choose(given.get("changes", "refuse"), options.CHANGES, "value of changes")
        self.begin = self._begin(given, held.version)
        self.target: int | None = None  # of a query that takes what is there now, and ends
        self._log: Log | None = None
        self._superseded: tuple[int, int, Mapping[str, int]] | None = None
        self._content: Content | None = None

    @staticmethod
    def _begin(given: Mapping[str, str], tip: int) -> int | str:
        said = given.get("startingVersion", SNAPSHOT)
        if said in (SNAPSHOT, LATEST):
            return str(said)
        first = options.number(given, "startingVersion")
        assert first is not None
        if first > tip + 1:
            raise UsageError(f"startingVersion={first} is not there yet: the last version is {tip}. 'latest' begins behind it.")
        return max(0, first - 1)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_log": None, "_superseded": None, "_content": None}

    @property
    def log(self) -> Log:
        """The log as far as it was read."""
        if self._log is None:
            self._log = Log(connect(self.reading.url, self.reading.options)).refresh()
        return self._log

    # ---------------------------------------------------------------------------------------------------------- offsets
    def initialOffset(self) -> Offset:
        """Where a new query begins."""
        return {"version": self.begin}

    def getDefaultReadLimit(self) -> Any:
        """The limit that the options set."""
        if self.bytes:
            return ReadMaxBytes(self.bytes)
        return ReadMaxFiles(self.commits) if self.commits else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Take no later commit than those of now."""
        self.target = self.log.refresh().tip

    def reportLatestOffset(self) -> Offset:
        """The end of the log."""
        return {"version": self.log.refresh().tip}

    def latestOffset(self, start: Offset | None = None, limit: Any = None) -> Offset:
        """How far the next batch goes; `start` again if there is nothing new."""
        until = self.log.refresh().tip if self.target is None else self.target
        self._check_columns()
        if start is None or start["version"] == LATEST:  # Spark 4.0 and 4.1 do not say where the batch begins
            return {"version": until}
        bounded = limit is not None and not isinstance(limit, ReadAllAvailable)
        if start["version"] == SNAPSHOT or "commit" in start:
            at = until if start["version"] == SNAPSHOT else start["version"]
            return self._through_snapshot(at, start.get("commit", 0), bounded)
        if start["version"] > self.log.tip:
            raise RefusedError(
                f"the log of {self.reading.url} ends at {self.log.tip}, and this stream has read up to {start['version']}: it was another "
                "destination. Begin with a new checkpointLocation."
            )
        found = ((one.version, one.size) for one in self._arrivals(start["version"], until) if one.tasks)
        taken = [*self._fitting(found)] if bounded else [version for version, _ in found]
        return {"version": taken[-1]} if taken else start

    def _through_snapshot(self, version: int, done: int, bounded: bool) -> Offset:
        if not bounded:
            return {"version": version}
        sizes = dict[int, int]()
        for piece in pieces(self._at(version)):
            if piece.number > done:
                sizes[piece.number] = sizes.get(piece.number, 0) + piece.size
        taken = [*self._fitting(sorted(sizes.items()))]
        return {"version": version} if len(taken) == len(sizes) else {"version": version, "commit": taken[-1]}

    def _fitting(self, sizes: Iterable[tuple[int, int]]) -> Iterator[int]:
        """The commits that a batch takes, of such with their bytes: one, however large it is. It asks for no more than it needs."""
        total = 0
        for n, (commit, size) in enumerate(islice(sizes, self.commits)):
            total += size
            if n and self.bytes and total > self.bytes:
                return
            yield commit

    def _check_columns(self) -> None:
        """RefusedError where columns have grown since the stream began: it would leave out what new ones hold, and say nothing."""
        grown = schemas.grown(self.log) if self.spec.format == "parquet" else None
        for field in grown or ():
            kind = partition_columns.for_spark(field.type)
            known = field.name in self.columns.names and self.columns.field(field.name).type == kind
            if not known and (self.named is None or field.name in self.named):
                raise RefusedError(
                    f"the columns of {self.reading.url} have grown since this stream began: {field.name!r} is {kind}. Start it again, with "
                    f"the same checkpointLocation: it goes on where it stands, with the columns of now."
                )

    # ------------------------------------------------------------------------------------------------------------- rows
    def partitions(self, start: Offset, end: Offset) -> list[datasource.InputPartition]:
        """The work of the tasks of a batch: the same for the same offsets, whenever Spark asks."""
        if start == end or start["version"] == LATEST:
            return []
        version = int(end["version"])
        if start["version"] == SNAPSHOT or "commit" in start:
            held = self._at(version)
            first, last = start.get("commit", 0), end.get("commit", EVERYTHING)
            found = [piece for piece in pieces(held) if first < piece.number <= last]
            folded = held.folded if self.spec.format == "raw" else None
            return [replace(one, version=version, folded=folded) for one in together(found)]
        if version > self.log.tip:
            self.log.refresh()
        tasks = list[datasource.InputPartition]()
        arrivals = [one for one in self._arrivals(start["version"], version) if one.tasks]
        gone = self._gone(min(one.number for one in arrivals)) if arrivals else {}
        for one in arrivals:
            self._check_there(one, gone)
            tasks += [replace(part, version=one.version, folded=ONCE) for part in together(self._pieces(one))]
        return tasks

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of some pieces."""
        return rows(self.reading, partition)

    def _at(self, version: int) -> Content:
        """The content of a version, which stays as it is for all batches of it; superseded files may have moved since the last one."""
        if self._content is None or self._content.version != version or self.log.refresh().expired() > version:
            self._content = content(self.log.store, self.reading.url, self.reading.options, version)
        else:
            self._content = replace(self._content, kept=retire.places(self.log.store))
        return self._content

    def _arrivals(self, after: int, until: int) -> Iterator[Arrival]:
        """The commits that were published in (after, until], in that order, less what they only write again."""
        for version, entry in enumerate(self.log.since(after)[: max(0, until - after)], after + 1):
            if isinstance(entry, Published) and self.log.published_at(entry.job) == version and (found := self.log.decided(entry.job)):
                number, commit = found
                if isinstance(commit, Commit):
                    yield Arrival(version, number, self._new(number, commit))

    def _new(self, number: int, commit: Commit) -> tuple[Task, ...]:
        kept = self.log.in_effect(commit, reader=True)
        new = tuple(task for task in kept if not task.coverage.removes and not task.stats.restated)
        if commit.verb == "compact" or len(new) == len([task for task in kept if not task.stats.restated]):
            return new
        if self.changes == "refuse":
            raise RefusedError(
                f"commit {number} of {self.reading.url} ({commit.verb}) takes back rows that a stream may have been given. Set the option "
                "changes: 'skip' passes over such commits, 'again' gives what they bring, the rows of rewritten files as they are now."
            )
        return new if self.changes == "again" else ()

    def _pieces(self, one: Arrival) -> list[Piece]:
        if self.spec.format != "raw":
            return [piece for task in one.tasks for file in task.data_files for piece in cut(self.spec, file.name, file.size, one.number)]
        found = list[Piece]()
        for task in one.tasks:
            said = task.coverage
            if said.segment:
                source = Source(one.number, said.segment, said.first, said.last, rows=task.stats.rows)
                size = sum(file.size for file in task.data_files)
                found.append(Piece(f"{task.folder}/", size, one.number, source=source))
        return found

    def _gone(self, after: int) -> Mapping[str, int]:
        """The data files that commits after this one have superseded, and that have expired, each with the last of these commits.

        A stream that is far behind asks for them at each batch, and all commits since are looked at once, until more expires.
        """
        expired = self.log.expired()
        if self._superseded is None or self._superseded[0] != expired or self._superseded[1] > after:
            found = {
                name: number
                for number, commit in self.log.commits(after, expired)
                for task in self.log.in_effect(commit, expired, reader=True)
                for name in task.coverage.removes
            }
            self._superseded = expired, after, found
        return self._superseded[2]

    def _check_there(self, one: Arrival, gone: Mapping[str, int]) -> None:
        """UsageError where data files of a commit were superseded since, and have expired."""
        if any(gone.get(file.name, 0) > one.number for task in one.tasks for file in task.data_files):
            raise UsageError(
                f"the rows of commit {one.number} of {self.reading.url} have expired: their data files were superseded. Begin anew, "
                "without startingVersion and with a new checkpointLocation: a stream starts with the rows of now. keep_versions keeps "
                "superseded files for streams that are behind."
            )
