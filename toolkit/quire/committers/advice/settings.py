"""The settings and jars that make Spark use a committer at a place: what `advise` gives out, and nothing that decides."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping

from quire.committers.advice import classes as k
from quire.committers.advice.places import SparkPlace
from quire.committers.advice.refusals import Asked
from quire.committers.advice.versions import Versions

_CLOUD = {k.PROTOCOL: k.CLOUD_PROTOCOL, k.PARQUET: k.CLOUD_PARQUET}
_PLAIN = {k.PROTOCOL: k.SQL_PROTOCOL, k.PARQUET: k.PLAIN_PARQUET}
GCS_CONNECTOR = "hadoop3-2.2.26"  # Google's own, for Hadoop before 3.5, which brings one; it goes by no version of Hadoop's


def attempt_id() -> int:
    """A number that no other application has: by it a job knows its own `_temporary` from those of dead ones."""
    return random.SystemRandom().randrange(1, 1 << 31)


def settings(committer: str, place: SparkPlace, asked: Asked) -> dict[str, str]:
    """Spark's settings for a committer at a place; empty for quire's own, which needs none."""
    if committer == "quire":
        return {}
    made = _MADE[committer](place, asked)
    if "speculation" in asked.needs:
        made[k.SPECULATION] = "true"
    made[k.OVERWRITE] = "dynamic" if "dynamic_overwrite" in asked.needs and committer != "partitioned" else "static"
    return made


def _v1(place: SparkPlace, _: Asked) -> dict[str, str]:
    made = {**_PLAIN, k.HADOOP + k.ALGORITHM: "1", k.HADOOP + k.ATTEMPT: str(attempt_id())}
    return made | _factories(place, k.FILE_FACTORY)


def _manifest(place: SparkPlace, asked: Asked) -> dict[str, str]:
    azure = place.kind.startswith("abfs")
    made = _CLOUD | _factories(place, k.AZURE_FACTORY if azure else k.MANIFEST_FACTORY)
    if azure:
        made[k.HADOOP + k.RATE] = "1000"
    if place.kind in ("local", "hdfs"):
        made[k.HADOOP + k.PARALLEL_DELETE] = "false"  # one call deletes a tree there
    if "concurrent_jobs" in asked.needs:
        made[k.HADOOP + k.SKIP_CLEANUP] = "true"  # else the first that ends deletes _temporary with the others' output
    return made


def _s3a(name: str, place: SparkPlace, asked: Asked) -> dict[str, str]:
    made = {**_CLOUD, **_factories(place, k.S3A_FACTORY), k.HADOOP + k.S3A_NAME: name}
    if name == "magic":
        made[k.HADOOP + k.S3A_MAGIC] = "true"
    else:
        made[k.HADOOP + k.S3A_CONFLICT] = "replace" if "dynamic_overwrite" in asked.needs else "append"
        made[k.HADOOP + k.S3A_STAGING] = "tmp/staging"  # without a scheme: in the cluster's file system, below the user's home
    if "concurrent_jobs" in asked.needs:
        made[k.HADOOP + k.S3A_ABORT] = "false"  # else the first that ends aborts the others' uploads
    return made


def _jindo(_: SparkPlace, __: Asked) -> dict[str, str]:
    return {k.PROTOCOL: k.SQL_PROTOCOL, k.OUTPUT: k.JINDO, k.PARQUET: k.JINDO, k.HADOOP + k.OSS_MAGIC: "true"}


def _factories(place: SparkPlace, factory: str) -> dict[str, str]:
    """Settings for both names of Azure's file system: Hadoop binds abfs by itself, and abfss not."""
    schemes = ("abfs", "abfss") if place.kind.startswith("abfs") else (place.scheme,)
    return {f"{k.HADOOP}{k.FACTORY_OF}{scheme}": factory for scheme in schemes}


_MADE: dict[str, Callable[[SparkPlace, Asked], dict[str, str]]] = {
    "v1": _v1,
    "manifest": _manifest,
    "magic": lambda place, asked: _s3a("magic", place, asked),
    "directory": lambda place, asked: _s3a("directory", place, asked),
    "partitioned": lambda place, asked: _s3a("partitioned", place, asked),
    "emr_protocol": lambda _, __: {k.PROTOCOL: k.EMR_PROTOCOL},
    "jindo": _jindo,
    "dbio": lambda _, __: {},  # it is there, and a protocol that is set takes its place
}

# Committers that MapReduce jobs do not use, with the reason.
_SPARKS_ALONE = {
    "quire": "a MapReduce job writes below the path of a claim, c.path, with what its own file system needs",
    "dbio": "Databricks runs no MapReduce jobs",
    "partitioned": "to replace partitions alone is a way of Spark's to write",
    "emr_protocol": "to replace partitions alone is a way of Spark's to write, and EMRFS's committers serve Spark alone",
}


def mapreduce(committer: str, needs: Collection[str], conf: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Hadoop's settings by which MapReduce jobs use a committer, from those of Spark; none, and why."""
    if why := _SPARKS_ALONE.get(committer):
        return {}, why
    if "overwrite" in needs:
        return {}, "a MapReduce job refuses a directory that exists, and replaces nothing: delete it before"
    made = {key.removeprefix(k.HADOOP): value for key, value in conf.items() if key.startswith(k.HADOOP)}
    made.pop(k.ATTEMPT, None)  # its application master has one of its own
    if committer == "jindo":
        made = {k.FACTORY_OF + "oss": k.JINDO_FACTORY, **made}
    speculative = str("speculation" in needs).lower()
    return {**made, k.MAP_SPECULATION: speculative, k.REDUCE_SPECULATION: speculative}, ""


def jars(committer: str, place: SparkPlace, versions: Versions) -> tuple[str, ...]:
    """Maven's coordinates of what a committer and its file system need, in the versions of this Spark and its Hadoop.

    With quire's own, df.write still puts its files where the claim says, so Spark needs the file system.
    """
    found = []
    if committer in ("manifest", "magic", "directory", "partitioned"):
        found.append(f"org.apache.spark:spark-hadoop-cloud_{versions.scala}:{versions.spark}")
    if versions.emr:
        return tuple(found)
    if place.kind == "s3":
        found.append(f"org.apache.hadoop:hadoop-aws:{versions.hadoop}")
    elif place.kind.startswith("abfs"):
        found.append(f"org.apache.hadoop:hadoop-azure:{versions.hadoop}")
    elif place.kind == "gcs":
        own = f"org.apache.hadoop:hadoop-gcp:{versions.hadoop}"
        found.append(own if versions.hadoop_is((3, 5)) else f"com.google.cloud.bigdataoss:gcs-connector:{GCS_CONNECTOR}")
    return tuple(found)


def usage(committer: str, place: SparkPlace, asked: Asked) -> str:
    """How to write, as Python."""
    url = repr(place.url)
    if committer == "quire":
        return (
            f"ledger = quire.Ledger({url}, create=True)\n"
            "with ledger.claim(SOURCE) as c:\n    df.write.parquet(c.path)\n"
            f"df = quire.read({url})"
        )
    partitions = ".partitionBy(COLUMNS)" if "dynamic_overwrite" in asked.needs else ""
    # The partitioned committer replaces by itself: with Spark's overwrite everything would be deleted first.
    replaces = asked.needs & {"overwrite", "dynamic_overwrite"} and committer != "partitioned"
    return f'df.write{partitions}.mode("{"overwrite" if replaces else "append"}").parquet({url})'
