"""A session's facts: the versions of Spark and Hadoop, whether its JVM can be asked, and whether its machines share a file system."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from quire.errors import UsageError, about, quoted

# Which Hadoop pip's Spark carries, for where neither its jars nor its JVM can be looked at.
_CARRIED = {
    (3, 2): "3.3.1", (3, 3): "3.3.2", (3, 4): "3.3.4", (3, 5): "3.3.4", (4, 0): "3.4.1", (4, 1): "3.4.2", (4, 2): "3.5.0", (4, 3): "3.5.0",
}  # fmt: skip


@dataclass(frozen=True)
class Versions:
    """`seen`: "session" (its JVM has said it), "server" (Spark Connect says Spark's version, Hadoop's is assumed) or "installed"."""

    spark: str
    hadoop: str
    scala: str = "2.13"
    seen: str = "installed"
    emr: bool = False
    shared: bool | None = None  # whether all machines share the default file system; None: not known
    default: str = ""  # the file system of paths without a scheme; empty: not known
    hosts: int | None = None  # on which executors run now; None: not known, or the master is local
    local: bool | None = None

    def hadoop_is(self, at_least: tuple[int, int]) -> bool:
        """Whether Hadoop is of this version or a later one."""
        return _pair(self.hadoop) >= at_least

    @property
    def too_few_hosts(self) -> str:
        """Why speculation would do nothing, where that is so."""
        if self.hosts is None or self.hosts > 1:
            return ""
        return (
            f"executors run on {self.hosts or 'no'} host{'' if self.hosts else 's'} now, and Spark tries a task again on another one only"
        )


def versions(spark: Any = None) -> Versions:
    """The versions of a session; without one those that are installed here. Raises UsageError for anything else than a session."""
    if spark is None:
        return _installed()
    with about("spark"):
        if not hasattr(spark, "version") or not hasattr(spark, "conf"):
            raise UsageError(f"spark= takes a SparkSession, not {quoted(spark)}: pass quire.session() or your own.")
    said = str(spark.version)
    emr = "amzn" in said
    jvm = jvm_of(spark)
    plain = re.match(r"\d+\.\d+\.\d+(?:\.?[A-Za-z]+\d*)?", said)
    number = plain[0] if plain else said
    if jvm is None:
        return Versions(number, _carried(number), _scala(number), "server", emr)
    hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion()).partition("-amzn")[0]
    local = str(spark.conf.get("spark.master", "local")).startswith("local")
    default = str(hadoop_conf(spark).get("fs.defaultFS", "file:///"))
    shared = True if local else not default.startswith("file:")
    return Versions(number, hadoop, _scala(number), "session", emr, shared, default, None if local else _hosts(spark), local)


def _hosts(spark: Any) -> int:
    """On how many hosts executors run now. The parallelism that Spark says tells nothing: on a cluster it is never below 2."""
    found = [str(info.host()) for info in spark._jsparkSession.sparkContext().statusTracker().getExecutorInfos()]
    driver = str(spark.conf.get("spark.driver.host", ""))
    if driver in found:
        found.remove(driver)  # it is listed as one of them
    return len(set(found))


def jvm_of(spark: Any) -> Any:
    """The session's JVM, or None over Spark Connect."""
    # Connect's class raises for `_jvm`; asked by its name, so that a session without pyspark's Connect packages needs none of them.
    return None if ".connect." in type(spark).__module__ else getattr(spark, "_jvm", None)


def hadoop_conf(spark: Any) -> Any:
    """Hadoop's settings as the next job of this session would have them."""
    jvm_of(spark).org.apache.hadoop.mapreduce.util.ConfigUtil.loadResources()  # else mapred-default.xml is read by the first job only
    return spark._jsparkSession.sessionState().newHadoopConf()


@lru_cache(maxsize=1)
def _installed() -> Versions:
    try:
        spark = version("pyspark")
    except PackageNotFoundError:  # it came with a Spark of the machine's own
        import pyspark

        spark = str(pyspark.__version__)
    import importlib.util

    found = importlib.util.find_spec("pyspark")
    places = found.submodule_search_locations if found else None
    names = (jar.name for place in places or () for jar in (Path(place) / "jars").glob("hadoop-client-api-*.jar"))
    hadoop = next((name.removeprefix("hadoop-client-api-").removesuffix(".jar") for name in names), _carried(spark))
    return Versions(spark, hadoop, _scala(spark))


def _carried(spark: str) -> str:
    """For a Spark that is not in the table, the nearest earlier one's: it must not get abilities of a newer Hadoop."""
    earlier = [pair for pair in _CARRIED if pair <= _pair(spark)]
    return _CARRIED[max(earlier) if earlier else min(_CARRIED)]


def _scala(spark: str) -> str:
    return "2.12" if _pair(spark) < (4, 0) else "2.13"


def _pair(number: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", number)
    return (int(match[1]), int(match[2])) if match else (0, 0)
