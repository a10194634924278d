"""Committers that are never advised: a rule for each way to lose data, with its reason and source.

A rule is asked about a committer that somebody might take for a place and its needs. A committer that
no rule refuses may be advised. The tests derive what is known as broken from the settings alone, not from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quire.committers.advice.knowledge import COMMITTERS, MANIFEST_DOC, MEASURED, S3A_DOC
from quire.committers.advice.places import KINDS
from quire.committers.advice.versions import Versions


@dataclass(frozen=True)
class Asked:
    """The question: the kind of place, its needs, and the session's versions."""

    kind: str
    needs: frozenset[str]
    versions: Versions

    @property
    def appends(self) -> bool:
        """Whether rows may be added to what is there: so it is unless somebody says that they replace it."""
        return not self.needs & {"overwrite", "dynamic_overwrite"}


@dataclass(frozen=True)
class Rule:
    """A way to lose data.

    committers    which of them do so; empty: any
    kinds         on these kinds of places; empty: on all
    needs         for jobs that have one of these needs; empty: for all
    unless        and not for jobs that have one of these
    met           what else must hold of a committer and the question
    reason        with {store}, the kind of place; {needs}, those that it meets; {hadoop}, the version
    """

    source: str
    committers: tuple[str, ...]
    reason: str
    kinds: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    met: Callable[[str, Asked], bool] = lambda *_: True

    def applies(self, committer: str, asked: Asked) -> bool:
        """Whether it is a reason to refuse a committer."""
        fits = (not self.committers or committer in self.committers) and (not self.kinds or asked.kind in self.kinds)
        wanted = (not self.needs or asked.needs & {*self.needs}) and not asked.needs & {*self.unless}
        return bool(fits and wanted and self.met(committer, asked))

    def said(self, asked: Asked) -> str:
        """The reason, for a question."""
        needs = " or ".join(sorted(asked.needs & {*self.needs}))
        return self.reason.format(store=KINDS[asked.kind], needs=needs, hadoop=asked.versions.hadoop)


def refusal(committer: str, asked: Asked) -> tuple[str, str] | None:
    """The reason to refuse a committer and its source, or None."""
    return next(((rule.said(asked), rule.source) for rule in RULES if rule.applies(committer, asked)), None)


def _cannot_write(committer: str, asked: Asked) -> bool:
    known = COMMITTERS.get(committer)
    return known is not None and bool(known.stores) and asked.kind not in known.stores


def _shows_one_by_one(committer: str, _: Asked) -> bool:
    known = COMMITTERS.get(committer)
    return known is not None and not known.keeps.visible


_REPLACES = ("overwrite", "dynamic_overwrite")
_COPY = "a rename on {store} is a copy and a delete, object by object: a commit that stops half-way mixes"
# The first that applies gives the reason: those of a committer wherever it writes, those of a store, those of a job's needs.
RULES = (
    Rule(
        f"{MEASURED}; apache/spark #29895, #29541, #33332", ("v2",),
        "an attempt that dies while it commits leaves its files beside the other attempt's: 110 doubled rows were measured with an "
        "executor killed just then, where partitions depend on the attempt",
        needs=("speculation",),
    ),
    Rule(
        f"{MEASURED}; apache/spark #29895, #29541, #33332", ("v2",),
        "tasks put files into the destination while the job runs: 30 of 40 were visible early, and stayed when the job failed",
    ),
    Rule(
        f"{MEASURED}; apache/incubator-gluten #9993", ("naive",),
        "without PathOutputCommitProtocol a factory is not asked where to write: json, csv, text and orc go straight into the destination "
        "(31 files visible in mid-job, 31 left by a failed one), parquet silently through algorithm 1",
    ),
    Rule(
        "Amazon EMR release guide: EMRFS S3-optimized committer and multipart uploads; MagicV2 committer", ("emrfs",),
        "files are visible as soon as their task commits, as with algorithm 2",
    ),
    Rule(
        "apache/spark #25795, #25863, #26312", ("v1 without attempt id",),
        "a job whose driver was killed leaves _temporary/0, and the next one commits it, too: 3,000 doubled rows of 4,000 were measured, 0 "
        "with an id of its own for each application",
        unless=_REPLACES,
    ),
    Rule(S3A_DOC, ("v1", "v1 without attempt id"), _COPY, kinds=("s3", "emr", "gcs", "oss", "abfs_flat", "dbfs")),
    Rule(
        S3A_DOC, ("v1", "v1 without attempt id"), f"{_COPY} (say hierarchical=True if the account has a hierarchical namespace)",
        kinds=("abfs",),
    ),
    Rule(MANIFEST_DOC, ("manifest",), "it renames each file, and {store} has no rename of a file", kinds=("s3", "emr", "oss", "dbfs")),
    Rule("what this committer was written for", (), "it does not write to {store}", met=_cannot_write),
    Rule(
        S3A_DOC, ("directory", "partitioned"),
        "its lists of uploads lie in the cluster's file system, and this session's default one is the local disk of each machine: the "
        "driver would commit only what its own machine has written",
        met=lambda _, asked: asked.versions.shared is False,
    ),
    Rule(
        S3A_DOC, ("magic", "directory"),
        "Spark's dynamic overwrite renames partitions, and S3A's committers refuse it in mid-job or add to the old rows",
        needs=("dynamic_overwrite",),
    ),
    Rule(
        f"{MEASURED}; apache/spark #55622, PathOutputCommitProtocol.scala", ("manifest",),
        "PathOutputCommitProtocol replaces partitions only where the committer is FileOutputCommitter (and before Spark 4.2 not even "
        "there): with this one the new rows are added to the old ones, without a word (15 rows of 10 were measured)",
        needs=("dynamic_overwrite",),
    ),
    Rule(
        S3A_DOC, ("partitioned",),
        "its documentation says: only to create or update partitioned trees, do not use it in other situations",
        unless=("dynamic_overwrite",),
    ),
    Rule(
        "Amazon EMR release guide: requirements for the EMRFS S3-optimized commit protocol", ("emr_protocol",),
        "it is used for dynamic overwrite alone; else EMRFS makes files visible as soon as their task commits",
        unless=("dynamic_overwrite",),
    ),
    Rule(
        "Alibaba Cloud E-MapReduce: Use Jindo Job Committer", ("jindo",), "its documentation does not promise {needs}",
        needs=("dynamic_overwrite", "concurrent_jobs"),
    ),
    Rule(
        "Databricks: Transactional writes to cloud storage with DBIO", ("dbio",),
        "its documentation promises it to readers on Databricks alone: {needs}", needs=("hidden_until_commit",),
    ),
    Rule(
        "Databricks: Transactional writes to cloud storage with DBIO", ("dbio",), "its documentation does not promise {needs}",
        needs=("dynamic_overwrite", "concurrent_jobs", "restartable"),
    ),
    Rule(
        f"{MEASURED}; apache/spark #25863", ("v1",),
        "all jobs share _temporary, and the first that ends deletes it with the others' output; an attempt id does not change that",
        needs=("concurrent_jobs",),
    ),
    Rule(
        "Hadoop, HADOOP-18797", ("magic",),
        "Hadoop {hadoop} keeps the lists of all jobs in one __magic, which the first that ends deletes; 3.4 does not",
        needs=("concurrent_jobs",), met=lambda _, asked: not asked.versions.hadoop_is((3, 4)),
    ),
    Rule(
        "the article; measured by this project: 10 of 800 files with algorithm 1, 1 of 800 with the manifest committer", (),
        "its files appear one by one while the job commits",
        needs=("visible_together",), met=_shows_one_by_one,
    ),
    Rule("docs/ledger.md", ("quire",), "quire's destinations grow, and a call replaces nothing: not for {needs}", needs=_REPLACES),
)  # fmt: skip

# What users find in blogs and answers for each kind of place. These are asked about even though nothing would advise them, so that the
# reason is said before somebody tries.
TEMPTING = {
    "local": ("v2", "naive", "v1 without attempt id"),
    "hdfs": ("v2", "naive", "v1 without attempt id"),
    "s3": ("v1", "v2", "manifest", "naive"),
    "emr": ("emrfs", "v1", "v2", "manifest", "naive"),
    "abfs": ("v1", "v2", "naive"),
    "abfs_hns": ("v2", "naive", "v1 without attempt id"),
    "abfs_flat": ("v1", "v2", "naive"),
    "gcs": ("v1", "v2", "naive"),
    "oss": ("v1", "v2", "manifest"),
    "dbfs": ("v1", "v2", "manifest", "naive"),
}
