"""Committers that are never advised: one small function for each way to lose data, with its reason and source.

A rule is asked about a committer that somebody might take for a place and its needs; what it returns is the reason to refuse it. A
committer that no rule refuses may be advised. The tests derive what is known as broken from the settings alone, not from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from quire.committers.advice.knowledge import COMMITTERS, MANIFEST_DOC, MEASURED, S3A_DOC
from quire.committers.advice.places import KINDS
from quire.committers.advice.versions import Versions

__all__ = ["RULES", "TEMPTING", "Asked", "Rule", "refusal"]


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
    """A way to lose data."""

    applies: Callable[[str, Asked], str]
    source: str


RULES: list[Rule] = []


def _rule(source: str) -> Callable[[Callable[[str, Asked], str]], Callable[[str, Asked], str]]:
    def add(applies: Callable[[str, Asked], str]) -> Callable[[str, Asked], str]:
        RULES.append(Rule(applies, source))
        return applies

    return add


def refusal(committer: str, asked: Asked) -> tuple[str, str] | None:
    """The reason to refuse a committer and its source, or None."""
    for rule in RULES:
        if reason := rule.applies(committer, asked):
            return reason, rule.source
    return None


# ------------------------------------------------------------------------------------------------------- never, wherever they write
@_rule(f"{MEASURED}; apache/spark #29895, #29541, #33332")
def v2_leaks(committer: str, asked: Asked) -> str:
    if committer != "v2":
        return ""
    if "speculation" in asked.needs:
        return (
            "an attempt that dies while it commits leaves its files beside the other attempt's: 110 doubled rows were measured with an "
            "executor killed just then, where partitions depend on the attempt"
        )
    return "tasks put files into the destination while the job runs: 30 of 40 were visible early, and stayed when the job failed"


@_rule(f"{MEASURED}; apache/incubator-gluten #9993")
def factory_without_protocol(committer: str, _: Asked) -> str:
    if committer != "naive":
        return ""
    return (
        "without PathOutputCommitProtocol a factory is not asked where to write: json, csv, text and orc go straight into the destination "
        "(31 files visible in mid-job, 31 left by a failed one), parquet silently through algorithm 1"
    )


@_rule("Amazon EMR release guide: EMRFS S3-optimized committer and multipart uploads; MagicV2 committer")
def emr_commits_with_the_task(committer: str, _: Asked) -> str:
    return "files are visible as soon as their task commits, as with algorithm 2" if committer == "emrfs" else ""


@_rule("apache/spark #25795, #25863, #26312")
def v1_takes_up_zombies(committer: str, asked: Asked) -> str:
    if committer != "v1 without attempt id" or not asked.appends:
        return ""
    return (
        "a job whose driver was killed leaves _temporary/0, and the next one commits it, too: 3,000 doubled rows of 4,000 were measured, "
        "0 with an id of its own for each application"
    )


# ------------------------------------------------------------------------------------------------------------- not on this store
@_rule(S3A_DOC)
def rename_is_a_copy(committer: str, asked: Asked) -> str:
    if committer not in ("v1", "v1 without attempt id") or asked.kind not in ("s3", "emr", "gcs", "oss", "abfs_flat", "abfs"):
        return ""
    unknown = " (say hierarchical=True if the account has a hierarchical namespace)" if asked.kind == "abfs" else ""
    return f"a rename on {KINDS[asked.kind]} is a copy and a delete, object by object: a commit that stops half-way mixes{unknown}"


@_rule(MANIFEST_DOC)
def manifest_needs_rename(committer: str, asked: Asked) -> str:
    if committer != "manifest" or asked.kind not in ("s3", "emr", "oss"):
        return ""
    return f"it renames each file, and {KINDS[asked.kind]} has no rename of a file"


@_rule("what this committer was written for")
def not_for_this_store(committer: str, asked: Asked) -> str:
    known = COMMITTERS.get(committer)
    if known is None or not known.stores or asked.kind in known.stores:
        return ""
    return f"it does not write to {KINDS[asked.kind]}"


@_rule(S3A_DOC)
def staging_needs_a_cluster(committer: str, asked: Asked) -> str:
    if committer not in ("directory", "partitioned") or asked.versions.shared is not False:
        return ""
    return (
        "its lists of uploads lie in the cluster's file system, and this session's default one is the local disk of each machine: the "
        "driver would commit only what its own machine has written"
    )


# -------------------------------------------------------------------------------------------------------------- not for these needs
@_rule(S3A_DOC)
def s3a_cannot_replace_partitions(committer: str, asked: Asked) -> str:
    if committer not in ("magic", "directory") or "dynamic_overwrite" not in asked.needs:
        return ""
    return "Spark's dynamic overwrite renames partitions, and S3A's committers refuse it in mid-job or add to the old rows"


@_rule(f"{MEASURED}; apache/spark #55622, PathOutputCommitProtocol.scala")
def manifest_does_not_replace_partitions(committer: str, asked: Asked) -> str:
    if committer != "manifest" or "dynamic_overwrite" not in asked.needs:
        return ""
    return (
        "PathOutputCommitProtocol replaces partitions only where the committer is FileOutputCommitter (and before Spark 4.2 not even "
        "there): with this one the new rows are added to the old ones, without a word (15 rows of 10 were measured)"
    )


@_rule(S3A_DOC)
def partitioned_is_for_partitions(committer: str, asked: Asked) -> str:
    if committer != "partitioned" or "dynamic_overwrite" in asked.needs:
        return ""
    return "its documentation says: only to create or update partitioned trees, do not use it in other situations"


@_rule("Amazon EMR release guide: requirements for the EMRFS S3-optimized commit protocol")
def emr_protocol_is_for_partitions(committer: str, asked: Asked) -> str:
    if committer != "emr_protocol" or "dynamic_overwrite" in asked.needs:
        return ""
    return "it is used for dynamic overwrite alone; else EMRFS makes files visible as soon as their task commits"


@_rule("Alibaba Cloud E-MapReduce: Use Jindo Job Committer")
def jindo_is_not_known_for_it(committer: str, asked: Asked) -> str:
    found = sorted(asked.needs & {"dynamic_overwrite", "concurrent_jobs"})
    return f"its documentation does not promise {' or '.join(found)}" if committer == "jindo" and found else ""


@_rule(f"{MEASURED}; apache/spark #25863")
def v1_shares_temporary(committer: str, asked: Asked) -> str:
    if committer != "v1" or "concurrent_jobs" not in asked.needs:
        return ""
    return "all jobs share _temporary, and the first that ends deletes it with the others' output; an attempt id does not change that"


@_rule("Hadoop, HADOOP-18797")
def magic_shares_its_directory(committer: str, asked: Asked) -> str:
    if committer != "magic" or "concurrent_jobs" not in asked.needs or asked.versions.hadoop_is((3, 4)):
        return ""
    return f"Hadoop {asked.versions.hadoop} keeps the lists of all jobs in one __magic, which the first that ends deletes; 3.4 does not"


@_rule("the article; measured by this project: 10 of 800 files with algorithm 1, 1 of 800 with the manifest committer")
def none_is_all_at_once(committer: str, asked: Asked) -> str:
    known = COMMITTERS.get(committer)
    if known is None or known.keeps.visible or "visible_together" not in asked.needs:
        return ""
    return "its files appear one by one while the job commits"


@_rule("docs/ledger.md")
def quire_only_adds(committer: str, asked: Asked) -> str:
    found = sorted(asked.needs & {"overwrite", "dynamic_overwrite"})
    return f"quire's destinations grow, and a call replaces nothing: not for {' or '.join(found)}" if committer == "quire" and found else ""


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
}
