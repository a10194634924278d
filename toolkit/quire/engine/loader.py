"""A call of `quire.load`, checked: before each run it asks the brokers which topics there are, and where their stable ends are."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

from quire.commit import protocol
from quire.commit.entries import OFFSETS, Commit
from quire.commit.log import Log
from quire.coverage.deduplicate import stored
from quire.coverage.fold import fold
from quire.coverage.ranges import Known, covered
from quire.engine.driver import check_destination, check_spec
from quire.engine.kinds.distinct import check_decodes
from quire.engine.report import LoadReport, Report
from quire.engine.request import Request
from quire.errors import NotFoundError, RefusedError, UsageError, about
from quire.formats.measure import written
from quire.planning.offsets import Offsets, first_offsets
from quire.planning.plan import Wanted
from quire.progress import Progress
from quire.sources.files import Selection
from quire.sources.kafka import offsets, records
from quire.sources.kafka import topics as kafka
from quire.sources.kafka.client import Cluster, cluster_of
from quire.sources.kafka.deduplicate import changed, check_column
from quire.sources.kafka.positions import mirror
from quire.sources.kafka.records import Loading
from quire.sources.kafka.start import Start
from quire.sources.kafka.topics import Key, Topics, is_kafka, named
from quire.sources.kafka.until import Until
from quire.sources.transforms import schemas
from quire.storage import silent

if TYPE_CHECKING:
    import pyarrow as pa

LOOKED_AT = 64 << 10  # bytes of records by which a function shows its columns
TASKS = 64  # in a job of which tasks are compared with one another


@dataclass
class Share:
    """How many tasks a job of a deduplicated load has. Where tasks keep the same keys all but one are read once more, so the next job has
    one, and each further one twice as many: however often a key is there, each record is read a few times at most.
    """

    tasks: int = TASKS

    def ended(self, commit: Commit) -> None:
        """A job that was committed, perhaps without some of its tasks."""
        self.tasks = 1 if commit.dropped else min(TASKS, 2 * max(self.tasks, 1))


@dataclass(frozen=True)
class LoadRequest(Request):
    """A call as a job. `ends` are of the run under way."""

    ends: Mapping[Key, int] = field(default_factory=dict)
    known: Known = field(default_factory=Known, repr=False)  # of what the ledger covers, by all runs of the call
    most: int | None = None
    start: Start = field(default_factory=Start)
    share: Share = field(default_factory=Share, repr=False, compare=False)  # of the call's jobs

    @property
    def topics(self) -> Topics:
        """The topics that are loaded."""
        (found,) = self.roots
        assert isinstance(found, Topics)
        return found

    def anew(self) -> Self:
        """The same with nothing held that was read before."""
        return replace(super().anew(), known=Known())

    def ended(self, commit: Commit) -> None:
        """Learn how many tasks the next job may have."""
        self.share.ended(commit)

    def wanted(self, without: frozenset[str] = frozenset(), *, supersede: bool = False) -> Wanted:
        """The offsets to plan; nothing is gathered in two versions."""
        loading = self.convert.loading
        assert loading is not None
        measure = functools.partial(_written, loading, self.convert.compression)
        ends, in_step = {} if supersede else self.ends, loading.by not in ("", "topic", "partition")
        tasks = self.share.tasks if loading.deduplicate is not None and loading.deduplicate.by else None
        wanted = Offsets(self.topics, ends, measure, self.most, loading.record_loss, without, in_step, self.known, self.start, tasks)
        return Wanted(self.roots, Selection(), self.cut, self.dest, self.dest_options, None, None, self.policy, wanted)


def _written(loading: Loading, compression: str, some: pa.Table) -> int:
    """Bytes that records become in a data file."""
    parts = [part.made for batch in some.to_batches() for part in loading.made(batch)[0]]
    return written(loading.format, compression, parts)


@dataclass
class LoadCall:
    """A call, checked. Before each run it asks the brokers what there is."""

    request: LoadRequest
    until: Until | None
    group: str | None
    unnamed: set[str] = field(default_factory=set)  # topics whose ids no broker has told this call
    notes: list[str] = field(default_factory=list)
    job: LoadRequest | None = None  # of the run under way
    since: Mapping[Key, int] | None = None  # the ends when the call began

    def decided(self, bars: Progress, request: Request) -> LoadRequest:
        """The job of a run: topics with their ids, the stable ends, and the columns of the rows."""
        assert isinstance(request, LoadRequest)
        self.notes = []
        cluster = cluster_of(request.topics.servers, request.topics.options)
        if self.job is None:
            with about("source"):
                cluster.reach()
        store = request.store()
        with about("dest"):
            check_destination(store, request.allow_nonempty)
            log = request.held.read(store)
            self._check_owner(log)
        with about("source"):
            topics, keys = self._found(cluster, bars)
            check_cluster(log, topics, request.shown)
            ends = cluster.ends(keys, bars.again)
        self.since = ends if self.since is None else self.since
        if self.until is not None:
            with about("until"):
                ends = self.until.ends(cluster, ends, bars.again, first=not log.source())
        self.job = self._deduplicating(
            replace(
                request, roots=(topics,), ends=ends, start=replace(request.start, since=self.since),
                identity=request.named(cluster=topics.cluster).identity,
            ), log,
        )  # fmt: skip
        if request.convert.of_user:
            self.job = self._with_columns(self.job, log, cluster)
        return self.job

    def _found(self, cluster: Cluster, bars: Progress) -> tuple[Topics, list[Key]]:
        """The topics as they are now, and their partitions."""
        asked = self.request.topics
        identity, there = cluster.topics(bars.again)
        found = {name: n for name, n in there.items() if asked.matches(name)}
        for name in asked.names:
            if name not in there:
                _missing(cluster, name, list(there))
        if not found:
            raise none_matches(asked, there)
        versions = {name: named(name) for name in found if name in self.unnamed}
        versions |= cluster.versions(found.keys() - versions.keys(), bars.again)
        unnamed = {name for name, version in versions.items() if version == named(name)}
        if new := unnamed - self.unnamed:
            self.unnamed |= new
            warnings.warn(
                f"no broker of {asked.servers} tells the id of {', '.join(sorted(new)[:3])}: the ledger knows it by its name, and would "
                f"not see that it was deleted and made again.", UserWarning, stacklevel=5,
            )  # fmt: skip
        if self.unnamed:
            self.notes.append(f"known by name, as no broker tells the id: {', '.join(sorted(self.unnamed)[:5])}")
        topics = replace(asked, url=kafka.SCHEME + identity, versions=versions)
        return topics, [Key(name, i) for name, n in found.items() if name in versions for i in range(n)]

    def _check_owner(self, log: Log) -> None:
        """Refuse a destination that holds files, or topics that this call does not load."""
        request, spec = self.request, log.spec()
        if spec is not None and spec.kind != OFFSETS:
            raise RefusedError(
                f"the destination {request.shown} holds what was made of files ({spec.transform} → {spec.format}), and this call loads "
                f"topics: nothing was read. Choose another destination."
            )
        before = log.source()
        if not before or request.allow_nonempty:
            return
        theirs = kafka.parsed(before)
        others = [
            one for one in theirs.asked if one not in request.topics.asked and not (one in theirs.names and request.topics.matches(one))
        ]
        if others:
            raise RefusedError(
                f"the destination {request.shown} holds topic {', '.join(others)}, and this call loads {', '.join(request.topics.asked)}: "
                f"nothing was read. Name all of them, choose another destination, or say allow_nonempty=True to bring them together."
            )

    def _deduplicating(self, request: LoadRequest, log: Log) -> LoadRequest:
        """As the call says which records are the same, else as the destination has it; a change is told."""
        loading = request.convert.loading
        assert loading is not None
        if request.takes is not None:
            return request
        before, said = stored(log.deduplicates()), loading.deduplicate
        if said is None:
            said = before
        elif log.spec() is not None and (note := changed(before, said)):
            self.notes.append(note)
        if said is None:
            return request
        with about("deduplicate"):
            check_decodes(said, loading.function)
        convert = dataclasses.replace(request.convert, loading=replace(loading, deduplicate=said))
        return replace(request, convert=convert, identity=request.named(deduplicate=said.said).identity)

    def _with_columns(self, request: LoadRequest, log: Log, cluster: Cluster) -> LoadRequest:
        """With the columns of the rows as the destination has them, or an open job of the same call, or as the function gives them."""
        loading = request.convert.loading
        assert loading is not None
        columns, there, evolves = loading.schema, None, ""
        if log.spec() is not None:
            with about("dest"):
                check_spec(log, request)
            there = None if request.takes else schemas.frozen(log)
        if not request.takes:
            evolves = schemas.evolving(log, request.convert.evolves)
        # Columns that have grown since a job was planned make it no other job.
        of_job = _of_open_job(request, log) if loading.schema is None and (evolves or there is None) else None
        columns = schemas.agreed(there, columns, request.shown, evolves)
        if columns is None and of_job is None:
            columns = _of_first_records(request, loading, cluster, log)
        if columns is not None and request.takes is not None:
            with about("schema"):
                columns = request.takes(columns)
        if (columns := of_job or columns) is None:
            loading = replace(loading, evolves=evolves)  # no record has come yet
            return replace(request, convert=dataclasses.replace(request.convert, loading=loading))
        with about("partition_by"):
            records.check_by(loading.by, columns)
        if loading.deduplicate is not None:
            with about("deduplicate"):
                check_column(loading.deduplicate.column, columns)
        convert = dataclasses.replace(request.convert, loading=replace(loading, schema=columns, evolves=evolves))
        return replace(request, convert=convert, identity=request.named(schema=schemas.text(columns)).identity)

    def told(self, report: Report) -> LoadReport:
        """The report of a run; after it, the consumer group follows."""
        assert self.job is not None
        if self.group is not None:
            self.notes.append(mirror(self.job.topics, self.job.held.read(self.job.store()), self.group, self.job.known))
        return LoadReport.of(report, self.notes)


def check_cluster(log: Log, topics: Topics, dest: str) -> None:
    """Refuse another cluster's topics: what the ledger knows of offsets would not be about them."""
    for source in fold(log).sources:
        for path in (source.first, source.last):
            if is_kafka(path) and not path.startswith(f"{topics.url}/"):
                other = path.removeprefix(kafka.SCHEME).partition("/")[0]
                raise RefusedError(
                    f"{topics.servers} is cluster {topics.cluster}, and the destination {dest} holds topics of cluster {other}: their "
                    f"offsets mean other records. Nothing was read. Choose another destination."
                )


def _of_open_job(request: LoadRequest, log: Log) -> pa.Schema | None:
    """The columns that an unfinished job of the same call has frozen."""
    for head in protocol.open_jobs(request.store(), log):
        if {k: v for k, v in head.intent.items() if k != "schema"} == request.identity.intent and head.intent.get("schema"):
            return schemas.parse(str(head.intent["schema"]))
    return None


def _of_first_records(request: LoadRequest, loading: Loading, cluster: Cluster, log: Log) -> pa.Schema | None:
    """The columns that the function gives for some of the first records, of a table the first new ones; None where there is none yet."""
    starts, topics = cluster.starts(request.ends), request.topics
    known = covered(fold(log), request.store(), f"{topics.url}/", request.known)
    begins = first_offsets(request.start, request.ends, topics, known, cluster, silent)
    starts = {key: max(at, begins.get(key, 0)) for key, at in starts.items()}
    if request.takes is not None:
        starts = {key: max(at, known[path].end if (path := topics.path(key)) in known else 0) for key, at in starts.items()}
    spans = [offsets.Span(key, starts[key], end) for key, end in sorted(request.ends.items()) if starts[key] < end]
    some, _ = offsets.sample(cluster, spans[: offsets.AT_ONCE], LOOKED_AT, seconds=offsets.PATIENCE)
    return next((columns for batch in some.to_batches() if (columns := loading.columns(batch)) is not None), None)


def none_matches(asked: Topics, there: Iterable[str]) -> UsageError:
    """The error where no topic is one of those that are asked for."""
    return UsageError(f"no topic of {asked.servers} matches {', '.join(map(repr, asked.asked))}: it has {_some(list(there))}.")


def _missing(cluster: Cluster, name: str, there: list[str]) -> None:
    """Say that a topic is not there, with the nearest one that is, or why it cannot be seen."""
    with suppress(NotFoundError):  # that is what is said here, and more of it
        cluster.look(name)
    near = difflib.get_close_matches(name, there, n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else f" It has {_some(there)}."
    raise UsageError(f"{cluster.servers} has no topic {name!r} that we may see.{hint}")


def _some(names: list[str]) -> str:
    return (", ".join(sorted(names)[:5]) + (" …" if len(names) > 5 else "")) if names else "none"
