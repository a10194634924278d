"""Which committer a Spark with these settings would use, worked out as Spark and Hadoop do it.

From Spark's HadoopMapReduceCommitProtocol, SQLHadoopMapReduceCommitProtocol, ParquetUtils and PathOutputCommitProtocol, and Hadoop's
PathOutputCommitterFactory and S3ACommitterFactory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from quire.committers.advice import classes as k

Get = Callable[[str], "str | None"]


@dataclass(frozen=True)
class CommitterSettings:
    """A session's values of Spark's keys, and of Hadoop's (without `spark.hadoop.`); a key that nobody has set is None."""

    spark: Get
    hadoop: Get

    def value(self, key: str, bucket: str = "") -> str:
        """A setting of Hadoop's, for a bucket of S3 where one has its own, or what counts where there is none."""
        own = self.hadoop(f"fs.s3a.bucket.{bucket}.{key.removeprefix('fs.s3a.')}") if bucket and key.startswith("fs.s3a.") else None
        return (own or self.hadoop(key) or k.DEFAULTS.get(key) or "").strip()


@dataclass(frozen=True)
class Binding:
    """The committer that would write: a key of knowledge.COMMITTERS or "unknown"; `behind`: whose factory is bound, but not asked
    ("naive").
    """

    committer: str
    protocol: str
    factory: str
    parquet: str
    behind: str = ""


def from_mapping(conf: Mapping[str, str]) -> CommitterSettings:
    """Settings as they are given when a session is started."""
    return CommitterSettings(conf.get, lambda key: conf.get(k.HADOOP + key))


def bound(settings: CommitterSettings, scheme: str, bucket: str = "", format: str = "parquet") -> Binding:
    """The committer that would write this format at this scheme."""
    protocol = settings.spark(k.PROTOCOL) or k.SQL_PROTOCOL
    parquet = settings.spark(k.PARQUET) or k.PLAIN_PARQUET
    factory = settings.value(k.FACTORY) or settings.value(k.FACTORY_OF + scheme) or k.FILE_FACTORY
    algorithm = "v2" if settings.value(k.ALGORITHM) == "2" else "v1"
    of_factory = _of_factory(settings, factory, bucket, algorithm)
    behind = ""
    if scheme == "dbfs" and (not settings.spark(k.PROTOCOL) or protocol.startswith("com.databricks.")):
        committer = "dbio"  # that platform's own default
    elif protocol == k.CLOUD_PROTOCOL:
        committer = of_factory
    elif protocol == k.EMR_PROTOCOL:
        dynamic = (settings.spark(k.OVERWRITE) or "static").lower() == "dynamic"
        committer = "emr_protocol" if dynamic else "emrfs"
    elif protocol in (k.SQL_PROTOCOL, k.PLAIN_PROTOCOL):
        named = settings.spark(k.OUTPUT) or ""
        if format == "parquet":
            named = parquet
        committer = _of_class(named, of_factory, algorithm)
        if committer == "naive":
            behind = of_factory
    else:
        committer = "unknown"
    return Binding(committer, protocol, factory, parquet, behind)


def _of_factory(settings: CommitterSettings, factory: str, bucket: str, algorithm: str) -> str:
    if factory == k.S3A_FACTORY:
        name = settings.value(k.S3A_NAME, bucket)
        return {"file": algorithm, "": algorithm, "magicv2": "emrfs"}.get(name, name if name in _S3A else "unknown")
    return {k.FILE_FACTORY: algorithm, k.MANIFEST_FACTORY: "manifest", k.AZURE_FACTORY: "manifest", **_OWN}.get(factory, "unknown")


_S3A = ("magic", "directory", "partitioned")
S3A_NAMES = (*_S3A, "file", "magicv2", "")  # all that its factory takes; magicv2 is EMR's
_OWN = {k.MAGIC_FACTORY: "magic", k.DIRECTORY_FACTORY: "directory", k.PARTITIONED_FACTORY: "partitioned"}


def _of_class(named: str, of_factory: str, algorithm: str) -> str:
    """The choice of Spark's own protocol: only FileOutputCommitter and its children are asked where to write."""
    if named == k.CLOUD_PARQUET:
        return of_factory
    if named == k.JINDO:
        return "jindo"
    if named in (k.PLAIN_PARQUET, "org.apache.hadoop.mapreduce.lib.output.FileOutputCommitter"):
        return algorithm
    if named:
        return "unknown"
    return of_factory if of_factory in ("v1", "v2", "unknown") else "naive"
