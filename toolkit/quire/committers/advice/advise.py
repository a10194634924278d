"""`advise`: which committer for a destination and what its jobs need, as settings to paste, with reasons, prices and sources."""

from __future__ import annotations

import html
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from quire import display
from quire.committers.advice import classes as k
from quire.committers.advice import settings as made
from quire.committers.advice.checking import check
from quire.committers.advice.knowledge import COMMITTERS, CONTRADICTIONS, NEEDS, ORDER
from quire.committers.advice.places import EACH_ITS_OWN, KINDS, SparkPlace, place
from quire.committers.advice.refusals import TEMPTING, Asked, refusal
from quire.committers.advice.versions import Versions, versions
from quire.errors import RefusedError, UsageError, about, choose, printable, quoted


@dataclass(frozen=True)
class Alternative:
    """Another `committer` that would be safe here, by its short name and its `title`, its `price` and the `evidence` for it."""

    committer: str
    title: str
    price: str
    evidence: str


@dataclass(frozen=True)
class Refusal:
    """A `committer` that is not advised here, the `reason`, and the `source` that says so."""

    committer: str
    reason: str
    source: str


@dataclass(frozen=True)
class Advice:
    """The answer of `advise`.

    url, kind, needs    what Spark must be given; the kind of store as words; what was asked for
    committer, title    its short name (v1, manifest, magic, …) and its long one
    conf                Spark's settings, to be set before a session starts; `apply` sets them on a builder
    jars                Maven's coordinates, in the versions of the session
    usage               how to write, as Python
    why                 what decided, a sentence each
    not_guaranteed      what may still happen, a sentence each
    alternatives        what else would be safe, with its price
    refused             what would not be, with reason and source
    sources             who says what is said here
    evidence            "measured", or "read, not measured"
    versions            of Spark and Hadoop, that the advice is for
    """

    url: str
    kind: str
    needs: tuple[str, ...]
    committer: str
    title: str
    conf: Mapping[str, str]
    jars: tuple[str, ...]
    usage: str
    why: tuple[str, ...]
    not_guaranteed: tuple[str, ...]
    alternatives: tuple[Alternative, ...]
    refused: tuple[Refusal, ...]
    sources: tuple[str, ...]
    evidence: str
    versions: Versions = field(repr=False)

    @property
    def mapreduce(self) -> Mapping[str, str]:
        """Hadoop's settings for MapReduce jobs at the same place; empty, where `mapreduce_note` says why. Read, not measured."""
        return made.mapreduce(self.committer, self.needs, self.conf)[0]

    @property
    def mapreduce_note(self) -> str:
        """The MapReduce jobs that the settings serve; where there are none, the reason."""
        if why := made.mapreduce(self.committer, self.needs, self.conf)[1]:
            return why
        emr = "; through s3a, since EMRFS's committer (s3://) serves Spark alone" * self.versions.emr
        return f"for jobs of org.apache.hadoop.mapreduce: those of org.apache.hadoop.mapred take FileOutputCommitter, whatever is set{emr}"

    @property
    def mapreduce_options(self) -> str:
        """The settings as options of `hadoop jar`, a line each; comments say what they are not for."""
        lines = [f"# MapReduce jobs below {printable(self.url)}, read, not measured: {COMMITTERS[self.committer].source}"]
        if not self.mapreduce:
            return "\n".join([*lines, f"# no settings: {self.mapreduce_note}"]) + "\n"
        lines += [f"# {self.mapreduce_note}", "# the output directory must not exist: FileOutputFormat refuses it"]
        return "\n".join([*lines, *(f"-D {key}={value}" for key, value in self.mapreduce.items())]) + "\n"

    @property
    def defaults(self) -> str:
        """The settings as lines of spark-defaults.conf. The id of an application is a comment there, since a file is for all of them."""
        lines = [f"# {self.title} for {printable(self.url)}"]  # a line break in it would begin a setting
        if self.jars:
            lines.append(f"spark.jars.packages  {','.join(self.jars)}")
        for key, value in self.conf.items():
            if key == k.HADOOP + k.ATTEMPT:
                lines.append(f"# and a number of its own for each application: --conf {key}=<unique number>")
            else:
                lines.append(f"{key}  {value}")
        if not self.conf:
            lines.append("# nothing to set: quire writes by itself")
        return "\n".join(lines) + "\n"

    def apply(self, builder: Any, *, packages: bool = True) -> Any:
        """Set everything on a SparkSession.Builder, `builder`, and return it; the id of an application is drawn anew.

        `packages=False` leaves out `spark.jars.packages`, where the jars are there by other means; packages that the builder has stay.
        It is for the first session of a Python: one that runs would be given back as it is, and jars are fetched only as its JVM starts.
        AttributeError for anything that is not such a builder.
        """
        for key, value in self.conf.items():
            builder = builder.config(key, str(made.attempt_id()) if key == k.HADOOP + k.ATTEMPT else value)
        if packages and self.jars:
            has = str(getattr(builder, "_options", {}).get("spark.jars.packages", ""))
            wanted = dict.fromkeys([*filter(None, has.split(",")), *self.jars])
            builder = builder.config("spark.jars.packages", ",".join(wanted))
        return builder

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        more = {"defaults": self.defaults, "mapreduce": dict(self.mapreduce), "mapreduce_options": self.mapreduce_options}
        return {**asdict(self), "conf": dict(self.conf), **more}

    def _lines(self) -> list[tuple[str, str]]:
        rows = [("committer", f"{self.committer}: {self.title} ({self.evidence})"), ("store", self.kind), ("write", self.usage)]
        rows += [("needs", ", ".join(self.needs) or "none said")]
        rows += [("why", text) for text in self.why]
        rows += [("not guaranteed", text) for text in self.not_guaranteed]
        rows += [("or", f"{a.committer}: {a.price} ({a.evidence})") for a in self.alternatives]
        options = "settings: mapreduce_options" if self.mapreduce else "no settings"
        rows += [("MapReduce", f"{options}; {self.mapreduce_note} (read, not measured)")]
        rows += [("refused", f"{r.committer}: {r.reason} [{r.source}]") for r in self.refused]
        return rows + [("source", text) for text in self.sources]

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self._lines())
        body = "\n".join(f"  {name:<{width}}  {printable(line)}" for name, text in self._lines() for line in text.splitlines())
        return f"{printable(self.url)}\n{body}\n\n{self.defaults.rstrip()}"

    def __repr__(self) -> str:
        return f"Advice({self.url!r}, committer={self.committer!r}, needs={self.needs!r})"

    def _repr_html_(self) -> str:
        table = display.table(printable(self.url), ("", ""), [(name, printable(text)) for name, text in self._lines()])
        return f"{table}<pre>{html.escape(self.defaults)}</pre>"


class _Advise:
    """The type of `quire.committers.advise`: a function, with `check` beside it."""

    check = staticmethod(check)

    def __call__(
        self,
        url: str | os.PathLike[str],
        needs: Iterable[str] = (),
        spark: Any = None,
        hierarchical: bool | None = None,
        *,
        storage_options: Mapping[str, object] | None = None,
    ) -> Advice:
        """The committer for Spark jobs that write below `url` and have these `needs` (the keys of `NEEDS`), as an `Advice`.

        `spark`: the session whose versions and machines count; without it, those of the Spark that is installed here. `hierarchical`:
        whether an account of Azure storage has a hierarchical namespace; None asks it with `storage_options` (named as adlfs names
        them), and where it does not answer, the advice is safe for both.

        Raises UsageError for a scheme or need that is not known and for two needs that no job can have together, RefusedError where no
        committer is safe, with the reason for each.
        """
        wanted = _needs(needs)
        seen = versions(spark)
        where = place(url, hierarchical=hierarchical, emr=seen.emr, default=seen.default, options=storage_options)
        asked = Asked(where.kind, wanted, seen)
        refused = {name: said for name in dict.fromkeys((*ORDER[where.kind], *TEMPTING[where.kind])) if (said := refusal(name, asked))}
        safe = [name for name in _order(asked) if name not in refused]
        told = tuple(Refusal(name, *said) for name, said in refused.items())
        if not safe:
            ours = [item for item in told if item.committer in ORDER[where.kind]]
            reasons = "; ".join(f"{item.committer}: {item.reason}" for item in ours)
            unknown = " Or say hierarchical=True, if the account has a hierarchical namespace." if where.kind == "abfs" else ""
            raise RefusedError(
                f"no committer is safe for {', '.join(sorted(wanted))} at {where.url} ({KINDS[where.kind]}). {reasons}. "
                f"Leave out a need, or write to another store.{unknown}"
            )
        return _advice(safe, where, asked, told)

    def __repr__(self) -> str:
        return "quire.committers.advise"


advise = _Advise()


def known_needs(needs: object) -> frozenset[str]:
    """Needs as a set of words that are known, whether or not a job can have all of them."""
    with about("needs"):
        if isinstance(needs, str) or not isinstance(needs, Iterable):
            raise UsageError(
                f"needs= takes a set of words, as {{'append', 'speculation'}}, not {quoted(needs)}. Words: {', '.join(NEEDS)}."
            )
        return frozenset(choose(need, NEEDS, "need") for need in needs)


def _needs(needs: object) -> frozenset[str]:
    found = known_needs(needs)
    with about("needs"):
        for one, other, why in CONTRADICTIONS:
            if one in found and other in found:
                raise UsageError(f"the needs {one} and {other} contradict each other: {why}. Leave out one of the two.")
    return found


def _order(asked: Asked) -> tuple[str, ...]:
    """The committers in the order of preference."""
    order = ORDER[asked.kind]
    if asked.kind in ("local", "hdfs") and "many_files" in asked.needs:
        return ("manifest", *(name for name in order if name != "manifest"))
    return order


def _evidence(committer: str, kind: str) -> str:
    return "measured" if kind in COMMITTERS[committer].measured else "read, not measured"


def _advice(safe: list[str], where: SparkPlace, asked: Asked, refused: tuple[Refusal, ...]) -> Advice:
    chosen, known = safe[0], COMMITTERS[safe[0]]
    where = _through(chosen, where)
    others = tuple(Alternative(name, COMMITTERS[name].title, COMMITTERS[name].cost, _evidence(name, where.kind)) for name in safe[1:])
    sources = dict.fromkeys([known.source, *(item.source for item in refused)])
    return Advice(
        url=where.url,
        kind=KINDS[where.kind],
        needs=tuple(need for need in NEEDS if need in asked.needs),
        committer=chosen,
        title=known.title,
        conf=made.settings(chosen, where, asked),
        jars=made.jars(chosen, where, asked.versions),
        usage=made.usage(chosen, where, asked),
        why=tuple(_why(chosen, where, asked)),
        not_guaranteed=tuple(_limits(chosen, where, asked)),
        alternatives=others,
        refused=refused,
        sources=tuple(sources),
        evidence=_evidence(chosen, where.kind),
        versions=asked.versions,
    )


def _through(chosen: str, where: SparkPlace) -> SparkPlace:
    """On EMR the scheme decides which file system writes: s3 is EMRFS, s3a is Hadoop's."""
    scheme = "s3" if chosen == "emr_protocol" else "s3a"
    if where.kind != "emr" or where.scheme == scheme:
        return where
    return replace(where, url=scheme + where.url[where.url.index("://") :], scheme=scheme, note=f"on EMR that is {scheme}://")


def _why(chosen: str, where: SparkPlace, asked: Asked) -> Iterable[str]:
    known, seen = COMMITTERS[chosen], asked.versions
    yield f"{known.title}: {known.will}"
    yield f"cost: {known.cost}"
    if where.note:
        yield where.note
    if where.kind == "abfs":
        yield "whether the account has a hierarchical namespace is not known: both abfs and abfss are set, and it is safe with and without"
    elif where.kind.startswith("abfs") and chosen in ("manifest", "v1"):
        yield "Hadoop binds abfs by itself and abfss not: both are set"
    if chosen == "v1" and asked.appends:
        yield "a number of its own for each application keeps what a killed one has left out of its commits"
    if "many_files" in asked.needs and chosen == "manifest":
        yield "it renames many files at a time, where algorithm 1 renames one after the other"
    if chosen == "quire":
        yield "it is the one whose readers see all files at one moment, and whose killed jobs are finished or taken back by the next"
    if made.jars(chosen, where, seen):
        said = {"session": "of this session", "server": "Spark's of the server, Hadoop's assumed", "installed": "installed here"}[seen.seen]
        yield f"jars for Spark {seen.spark} and Hadoop {seen.hadoop} ({said})"


def _limits(chosen: str, where: SparkPlace, asked: Asked) -> Iterable[str]:
    yield from _of_machines(chosen, where, asked)
    if "restartable" in asked.needs and asked.appends and not COMMITTERS[chosen].keeps.restart:
        other = ", or write with quire's own, which finishes or takes back what a killed job began" * ("quire" in ORDER[where.kind])
        yield (
            "one copy after a driver that was killed while it committed: before the job is run again, look with inspect_success(url) "
            f"and remove what that run has made visible{other}"
        )
    yield from COMMITTERS[chosen].lacks
    if "overwrite" in asked.needs:
        yield "overwrite deletes the old rows before the job begins: if it fails or is killed, the destination stays empty"
    if "dynamic_overwrite" in asked.needs and chosen == "v1":
        yield "partitions are deleted and filled one after the other: a driver killed in between leaves some replaced and one empty"
    if "dynamic_overwrite" in asked.needs:
        yield "_SUCCESS is not refreshed by a dynamic overwrite (apache/spark #47439)"
    if where.kind == "abfs_flat" and chosen == "manifest":
        yield "a rename is a copy by the service there: committing takes longer with the bytes, and a killed one leaves both files"
    if "concurrent_jobs" in asked.needs and chosen == "manifest":
        yield "_temporary is left behind, since it is everybody's: sweep() it when no job runs. Hadoop's documentation calls this untested"
    if "concurrent_jobs" in asked.needs and chosen in ("magic", "directory"):
        yield "uploads of killed jobs are not aborted by the next one: give the bucket a life-cycle rule, or sweep() when no job runs"
    if chosen != "quire":
        yield "anything for the RDD API with a path without a scheme: it takes another committer, so write the URL in full"


def _of_machines(chosen: str, where: SparkPlace, asked: Asked) -> Iterable[str]:
    """Advice that depends on the session's machines."""
    seen = asked.versions
    if where.kind == "local" and seen.local is False:
        yield f"anything, unless all machines of the cluster share this directory: {EACH_ITS_OWN}"
    if chosen in ("directory", "partitioned") and seen.shared is None:
        yield "anything, unless all machines share the default file system (fs.defaultFS), where the lists of uploads lie"
    if "speculation" in asked.needs and seen.local:
        yield "speculation itself: a local master never starts a task twice"
    if "speculation" in asked.needs and seen.too_few_hosts:
        yield f"speculation itself: {seen.too_few_hosts}"
