"""`advise.check`: which committer a live session would use, what is wrong with it, and what will happen.

Each finding is a small function of what was seen. Over Spark Connect only settings are seen, and each finding that needs the JVM says so.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from quire import display
from quire.committers.advice import classes as k
from quire.committers.advice.binding import S3A_NAMES, Binding, bound
from quire.committers.advice.knowledge import COMMITTERS
from quire.committers.advice.places import EACH_ITS_OWN, KINDS, SparkPlace, place
from quire.committers.advice.session import Session, version_of
from quire.committers.advice.versions import Versions, versions
from quire.errors import UsageError, choose, printable, scrub

__all__ = ["FORMATS", "Check", "Finding", "check"]

FORMATS = ("parquet", "orc", "json", "csv", "text", "avro")
_FAILS = ("file system", "protocol", "factory", "committer")  # where one of these is wrong, a job fails before it writes anything
_SIGNS = {"ok": "✔", "wrong": "✘", "beware": "!", "unseen": "?"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    what, said, do   its name, what was found, and what to do about it
    state            "ok", "wrong", "beware" (right for some jobs), "unseen" (only a JVM would tell)
    """

    what: str
    state: str
    said: str
    do: str = ""

    def __str__(self) -> str:
        return f"{_SIGNS[self.state]} {self.what}: {self.said}" + (f" {self.do}" if self.do else "")


@dataclass(frozen=True)
class Check:
    """The committer that a session would use.

    url, format        where Spark would write, and what
    committer, title   a key of the table of committers ("v1", "magic", …; "naive": straight into the destination; "unknown"), and its name
    will               what a job will do
    seen               "the JVM and its settings", or "settings alone"
    findings           what was looked at; `ok`: none of them is wrong
    """

    url: str
    format: str
    committer: str
    title: str
    will: str
    seen: str
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, as far as can be seen."""
        return all(found.state != "wrong" for found in self.findings)

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The problems."""
        return tuple(found for found in self.findings if found.state == "wrong")

    def as_dict(self) -> dict[str, Any]:
        """All of it as JSON takes it."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        head = f"{self.url} ({self.format}), seen: {self.seen}\n  {self.committer}: {self.title}\n  {self.will}"
        return "\n".join(map(printable, (*head.splitlines(), *(f"  {found}" for found in self.findings))))

    def __repr__(self) -> str:
        return f"Check({self.url!r}, committer={self.committer!r}, ok={self.ok}, wrong={[found.what for found in self.wrong]})"

    def _repr_html_(self) -> str:
        rows = [(_SIGNS[found.state], found.what, printable(f"{found.said} {found.do}")) for found in self.findings]
        title = f"{self.url} ({self.format}): {self.title}. {self.will} Seen: {self.seen}."
        return display.table(printable(title), ("", "", ""), rows)


@dataclass(frozen=True)
class _Check:
    """The inputs of the findings."""

    session: Session
    place: SparkPlace
    format: str
    versions: Versions
    binding: Binding

    def value(self, key: str) -> str:
        return self.session.settings.value(key, self.place.bucket)

    @property
    def cloud(self) -> bool:
        return self.binding.protocol == k.CLOUD_PROTOCOL

    @property
    def on_s3a(self) -> bool:
        return self.binding.committer in ("magic", "directory", "partitioned")


def check(
    spark: Any,
    url: str | os.PathLike[str] | None = None,
    format: str = "parquet",
    *,
    hierarchical: bool | None = None,
    storage_options: Mapping[str, object] | None = None,
) -> Check:
    """Look into a session: which committer would write `format` below `url` (default: its warehouse), and is anything wrong with it?

    Nothing is written, and no file system is opened. Spark Connect gives no access to the JVM: only the settings are checked, and questions
    that they cannot answer are "unseen". Raises UsageError for anything else than a session, an unknown format or an unknown scheme.
    """
    choose(format, FORMATS, "format")
    if spark is None:
        raise UsageError("check() looks into a session: pass quire.session() or your own SparkSession as spark=.")
    seen = versions(spark)
    session = Session(spark)
    url = url if url is not None else session.settings.spark("spark.sql.warehouse.dir") or "spark-warehouse"
    where = place(url, hierarchical=hierarchical, emr=seen.emr, default=seen.default, options=storage_options)
    binding = bound(session.settings, where.scheme, where.bucket, format)
    look = _Check(session, where, format, seen, binding)
    findings = tuple(found for look_at in _LOOKS if (found := look_at(look)) is not None)
    known = COMMITTERS.get(binding.committer)
    missing = next((f for f in findings if f.what in _FAILS and f.state == "wrong"), None)
    will = known.will if known else f"Not known: {binding.protocol} and {binding.factory} are classes that this check has no facts about."
    if missing is not None:
        will = f"The job will fail before it writes anything: {missing.said}"
    return Check(
        url=where.url,
        format=format,
        committer=binding.committer,
        title=known.title if known else "a committer that is not known here",
        will=will,
        seen="the JVM and its settings" if session.seen else "settings alone: over Spark Connect no JVM can be asked",
        findings=findings,
    )


_LOOKS: list[Callable[[_Check], Finding | None]] = []


def _look(function: Callable[[_Check], Finding | None]) -> Callable[[_Check], Finding | None]:
    _LOOKS.append(function)
    return function


def _jars(look: _Check) -> str:
    from quire.committers.advice.settings import jars

    wanted = ", ".join(jars("manifest", look.place, look.versions))
    return (
        f"Add {wanted} to spark.jars.packages, and start Python (a notebook's kernel) anew: jars are fetched when its first session starts."
    )


@_look
def file_system(look: _Check) -> Finding:
    found = look.session.file_system(look.place.scheme)
    if found is None:
        return Finding("file system", "unseen", f"whether the server can open {look.place.scheme}:// is not told by settings.")
    if found is True:
        return Finding("file system", "ok", f"{look.place.scheme}:// can be opened.")
    return Finding("file system", "wrong", f"{look.place.scheme}:// cannot be opened: {found}.", _jars(look))


@_look
def disk(look: _Check) -> Finding | None:
    if look.place.kind != "local" or look.versions.local is not False:
        return None
    return Finding("disk", "beware", f"right only where all machines share it: else {EACH_ITS_OWN}.", "Write to a store that all reach.")


def _class(look: _Check, what: str, name: str, whose: str) -> Finding:
    there = look.session.loadable(name)
    if there is None:
        return Finding(what, "unseen", f"{name} is set; whether the server can load it is not told by settings.")
    if there:
        return Finding(what, "ok", f"{name} can be loaded.")
    return Finding(what, "wrong", f"{name} is set and cannot be loaded{whose}.", _jars(look))


@_look
def protocol(look: _Check) -> Finding:
    return _class(look, "protocol", look.binding.protocol, "")


@_look
def factory(look: _Check) -> Finding | None:
    if look.session.seen:
        made, why = look.session.factory(look.place.url)
        if why:
            return Finding("factory", "wrong", f"{look.binding.factory} cannot be had: {why}.", _jars(look))
        return Finding("factory", "ok", f"Hadoop gives {made}.")
    return _class(look, "factory", look.binding.factory, "")


@_look
def straight_into_the_destination(look: _Check) -> Finding | None:
    """A factory that Spark's own protocol does not ask."""
    bound_to = look.binding.committer if look.cloud else look.binding.behind
    needs = look.binding.factory != k.FILE_FACTORY and not look.cloud and bound_to not in ("", "v1", "v2")
    if look.binding.committer == "naive" or needs:
        return Finding(
            "binding", "wrong",
            f"{look.binding.factory} is bound without PathOutputCommitProtocol: {look.format} goes straight into the destination.",
            f"Set {k.PROTOCOL}={k.CLOUD_PROTOCOL}.",
        )  # fmt: skip
    if look.format == "parquet" and not look.cloud and look.binding.parquet != k.CLOUD_PARQUET and _other_formats(look) == "naive":
        return Finding(
            "binding", "wrong",
            f"{look.binding.factory} is bound, and parquet silently takes {look.binding.committer} instead; other formats would "
            "go straight into the destination.",
            f"Set {k.PROTOCOL}={k.CLOUD_PROTOCOL} and {k.PARQUET}={k.CLOUD_PARQUET}.",
        )  # fmt: skip
    return Finding("binding", "ok", "the committer is asked where to write.")


def _other_formats(look: _Check) -> str:
    return bound(look.session.settings, look.place.scheme, look.place.bucket, "json").committer


@_look
def parquet(look: _Check) -> Finding | None:
    if look.binding.parquet == k.CLOUD_PARQUET:
        return _class(look, "parquet", k.CLOUD_PARQUET, ": a job that writes parquet fails")
    if look.cloud:
        return Finding(
            "parquet", "wrong", f"parquet's committer is {look.binding.parquet}, which PathOutputCommitProtocol is not bound to.",
            f"Set {k.PARQUET}={k.CLOUD_PARQUET}.",
        )  # fmt: skip
    return None


@_look
def both_names_of_azure(look: _Check) -> Finding | None:
    if not look.place.kind.startswith("abfs"):
        return None
    one, other = (look.value(k.FACTORY_OF + scheme) or k.FILE_FACTORY for scheme in ("abfs", "abfss"))
    if one == other:
        return Finding("abfs and abfss", "ok", "both have one factory.")
    return Finding(
        "abfs and abfss", "wrong", f"abfs has {one}, abfss has {other}: a URL's s decides which committer writes.",
        f"Set {k.HADOOP}{k.FACTORY_OF}abfs and …abfss to one of them.",
    )  # fmt: skip


@_look
def algorithm(look: _Check) -> Finding | None:
    if look.binding.committer not in ("v1", "v2", "emrfs"):
        return None
    if look.binding.committer == "v1":
        return Finding("algorithm", "ok", "algorithm 1.") if look.value(k.ALGORITHM) == "1" else None  # `known` says what it is else
    return Finding("algorithm", "wrong", COMMITTERS[look.binding.committer].will, f"Set {k.HADOOP}{k.ALGORITHM}=1.")


@_look
def known(look: _Check) -> Finding | None:
    """A committer that Hadoop has not, or that nobody here knows."""
    name, version = look.value(k.S3A_NAME), look.value(k.ALGORITHM)
    if look.binding.committer in ("v1", "v2") and version not in ("1", "2"):
        return Finding(
            "committer", "wrong", f"FileOutputCommitter would write, and it has no algorithm {scrub(version, 100)}.",
            f"Set {k.HADOOP}{k.ALGORITHM}=1, or bind the committer that was meant.",
        )  # fmt: skip
    if look.binding.committer != "unknown":
        return None
    if look.binding.factory == k.S3A_FACTORY and name not in S3A_NAMES:
        return Finding(
            "committer", "wrong", f"S3A has no committer {scrub(name, 100)!r}.",
            f"Set {k.HADOOP}{k.S3A_NAME} to magic, directory or partitioned.",
        )  # fmt: skip
    return Finding("committer", "beware", "what it guarantees is not known here.", "Try it with quire.committers.lab.")


@_look
def rename(look: _Check) -> Finding | None:
    """A committer that renames, where a rename is none."""
    if look.binding.committer in ("v1", "v2") and look.place.kind in ("s3", "emr", "gcs", "oss", "abfs_flat"):
        return Finding(
            "rename", "wrong", f"a rename on {KINDS[look.place.kind]} is a copy and a delete: a commit that stops half-way mixes.",
            f"Take the settings of quire.committers.advise({look.place.url!r}).",
        )  # fmt: skip
    if look.binding.committer in ("v1", "v2") and look.place.kind == "abfs":
        return Finding("rename", "beware", "right only if the account has a hierarchical namespace.", "Say hierarchical=True if it has.")
    if look.binding.committer == "manifest" and look.place.kind in ("s3", "emr", "oss"):
        return Finding("rename", "wrong", "the manifest committer renames files, and this store cannot.", "Take S3A's magic committer.")
    return None


@_look
def speculation(look: _Check) -> Finding | None:
    if (look.session.settings.spark(k.SPECULATION) or "false").lower() != "true":
        return Finding("speculation", "ok", "off.")
    known = COMMITTERS.get(look.binding.committer)
    if known is not None and (not known.keeps.one_copy or look.binding.committer == "naive"):
        naive = look.binding.committer == "naive"
        how = "two attempts of a task write one file of the destination" if naive else "this committer may keep two attempts of a task"
        return Finding("speculation", "wrong", f"on, and {how}.", "Turn it off.")
    if look.versions.local:
        return Finding("speculation", "beware", "on, but a local master never starts a task twice.", "It needs two hosts or more.")
    if look.versions.too_few_hosts:
        return Finding("speculation", "beware", f"on, but {look.versions.too_few_hosts}.", "Add executors on another host.")
    return Finding("speculation", "ok", "on, and this committer keeps one attempt.")


@_look
def dynamic_overwrite(look: _Check) -> Finding | None:
    if (look.session.settings.spark(k.OVERWRITE) or "static").lower() != "dynamic":
        return None
    if look.on_s3a:
        return Finding(
            "dynamic overwrite", "wrong", "S3A's committers do not know it: the job fails, or the old rows stay beside the new.",
            f"Set {k.OVERWRITE}=static; to replace partitions: advise(url, needs={{'dynamic_overwrite'}}).",
        )  # fmt: skip
    if look.cloud:
        return Finding(
            "dynamic overwrite", "wrong", "through PathOutputCommitProtocol the old rows of a partition stay beside the new.",
            f"Set {k.PROTOCOL}={k.SQL_PROTOCOL} where a rename is one.",
        )  # fmt: skip
    return Finding("dynamic overwrite", "ok", "partitions are replaced, and kept if the job fails.")


@_look
def attempt(look: _Check) -> Finding | None:
    """Zombies of a killed driver."""
    if look.binding.committer not in ("v1", "v2"):
        return None
    said = look.value(k.ATTEMPT)
    if said not in ("", "0"):
        return Finding("restart", "ok", f"attempt id {said}. It must be another one in each application.")
    return Finding(
        "restart", "wrong", "no attempt id: after a killed driver the next job that appends commits the dead one's tasks, too.",
        f"Set {k.HADOOP}{k.ATTEMPT} to a number of its own for each application, as Advice.apply does.",
    )  # fmt: skip


@_look
def magic(look: _Check) -> Finding | None:
    if look.binding.committer != "magic":
        return None
    if look.value(k.S3A_MAGIC).lower() == "true":
        return Finding("magic", "ok", "the file system has it on.")
    return Finding("magic", "wrong", f"{k.S3A_MAGIC} is off: the job will fail.", f"Set {k.HADOOP}{k.S3A_MAGIC}=true.")


@_look
def staging(look: _Check) -> Finding | None:
    if look.binding.committer not in ("directory", "partitioned"):
        return None
    at = look.value(k.S3A_STAGING)
    local = at.startswith("file:") and look.versions.local is not True
    if local or look.versions.shared is False:
        return Finding(
            "staging", "wrong", f"the lists of uploads go to {scrub(at, 100)} on each machine's own disk: the driver commits only its own.",
            f"Set {k.HADOOP}{k.S3A_STAGING} to a file system that all machines share.",
        )  # fmt: skip
    return Finding("staging", "ok", f"the lists of uploads go to {scrub(at, 100)}.")


@_look
def hadoop_jar(look: _Check) -> Finding | None:
    """A jar of another Hadoop."""
    name = {"s3": "org.apache.hadoop.fs.s3a.S3AFileSystem", "emr": ""}.get(look.place.kind, "")
    if look.place.kind.startswith("abfs"):
        name = "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"
    found = version_of(look.session.jar(name)) if name else ""
    if not found:
        return None
    if found == look.versions.hadoop:
        return Finding("Hadoop's jar", "ok", f"{look.session.jar(name)} is of this Hadoop.")
    return Finding(
        "Hadoop's jar", "wrong",
        f"{look.session.jar(name)} is of another Hadoop than this Spark's, {look.versions.hadoop}: calls will fail.",
        f"Take version {look.versions.hadoop}.",
    )  # fmt: skip


@_look
def cloud_jar(look: _Check) -> Finding | None:
    """A jar of another Spark."""
    found = version_of(look.session.jar(k.CLOUD_PROTOCOL)) if look.cloud else ""
    if not found:
        return None
    if found == look.versions.spark:
        return Finding("Spark's jar", "ok", f"{look.session.jar(k.CLOUD_PROTOCOL)} is of this Spark.")
    return Finding(
        "Spark's jar", "beware", f"{look.session.jar(k.CLOUD_PROTOCOL)} is of another Spark than this one, {look.versions.spark}.",
        f"Take version {look.versions.spark}.",
    )  # fmt: skip


@_look
def too_late(look: _Check) -> Finding | None:
    late = look.session.too_late()
    if not late:
        return None
    key, given, counts = late[0]
    more = f", and {len(late) - 1} more" if len(late) > 1 else ""
    return Finding(
        "set too late", "wrong",
        f"{key}={scrub(given, 100)} was set after the start, where nobody reads it; what counts is {counts}{more}.",
        f"Set it before the session starts, or {key.removeprefix(k.HADOOP)} in spark.conf.",
    )  # fmt: skip


@_look
def marker(look: _Check) -> Finding | None:
    if look.value(k.MARK).lower() == "true":
        return None
    return Finding("_SUCCESS", "beware", "is switched off: nothing will tell afterwards which committer wrote.", f"Set {k.MARK}=true.")
