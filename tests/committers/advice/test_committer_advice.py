"""Advice about committers: over every store and every combination of needs none is known as broken, and wrong questions get one line.

What is known as broken stands here once more, as questions to the settings that are given out, with names and defaults of its own:
nothing of it is taken from the tables that make the advice.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from quire.committers import Advice, advise
from quire.committers.advice.binding import bound, from_mapping
from quire.errors import QuireError, RefusedError, UsageError

WORDS = (
    "speculation", "dynamic_overwrite", "append", "overwrite", "concurrent_jobs", "hidden_until_commit", "visible_together", "restartable",
    "many_files",
)  # fmt: skip
SUBSETS = [frozenset(c) for n in range(len(WORDS) + 1) for c in itertools.combinations(WORDS, n)]


class Conf(dict[str, str]):
    """A session's settings."""

    def get(self, key: str, default: Any = None) -> Any:
        return super().get(key, default)


class Server:
    """What a session over Spark Connect lets see: a version and settings."""

    __module__ = "pyspark.sql.connect.session"

    def __init__(self, version: str, **conf: str) -> None:
        self.version, self.conf = version, Conf({key.replace("__", "."): value for key, value in conf.items()})


class Store(NamedTuple):
    url: str
    hierarchical: bool | None = None
    session: Any = None
    flat: bool = False  # a rename is none


AZURE = "container@account.dfs.core.windows.net/out"
EMR = Server("3.5.1-amzn-0")
STORES = {
    "local": Store("/data/out"),
    "hdfs": Store("hdfs://namenode:8020/data/out"),
    "s3a": Store("s3a://bucket/out", flat=True),
    "s3": Store("s3://bucket/out", flat=True),
    "emr s3": Store("s3://bucket/out", session=EMR, flat=True),
    "emr s3a": Store("s3a://bucket/out", session=EMR, flat=True),
    "s3a, Spark 3.5": Store("s3a://bucket/out", session=Server("3.5.3"), flat=True),
    "abfs": Store(f"abfs://{AZURE}", flat=True),
    "abfss": Store(f"abfss://{AZURE}", flat=True),
    "abfss, directories": Store(f"abfss://{AZURE}", True),
    "abfs, flat": Store(f"abfs://{AZURE}", False, flat=True),
    "gcs": Store("gs://bucket/out", flat=True),
    "oss": Store("oss://bucket/out", flat=True),
    "dbfs": Store("dbfs:/out", flat=True),
    "volume": Store("dbfs:/Volumes/main/raw/v/out", flat=True),
}
# The needs for which no committer is safe there; elsewhere there always is one.
HOPELESS = {
    "abfs": {"dynamic_overwrite"},
    "abfss": {"dynamic_overwrite"},
    "abfs, flat": {"dynamic_overwrite"},
    "gcs": {"dynamic_overwrite", "visible_together"},
    "oss": {"dynamic_overwrite", "visible_together", "concurrent_jobs"},
    "dbfs": {"dynamic_overwrite", "visible_together", "concurrent_jobs", "restartable", "hidden_until_commit"},
    "volume": {"dynamic_overwrite", "visible_together", "concurrent_jobs", "restartable", "hidden_until_commit"},
    "s3a, Spark 3.5": set[str](),
}
OPPOSED = [
    {"append", "overwrite"}, {"append", "dynamic_overwrite"}, {"overwrite", "dynamic_overwrite"}, {"overwrite", "concurrent_jobs"},
    {"dynamic_overwrite", "concurrent_jobs"}, {"overwrite", "visible_together"}, {"dynamic_overwrite", "visible_together"},
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ known as broken
CLOUD = "org.apache.spark.internal.io.cloud.PathOutputCommitProtocol"
PARQUET = "org.apache.spark.internal.io.cloud.BindingParquetOutputCommitter"
# What Hadoop 3.4 and 3.5 bind by themselves, in mapred-default.xml.
BOUND = {
    "abfs": "org.apache.hadoop.fs.azurebfs.commit.AzureManifestCommitterFactory",
    "gs": "org.apache.hadoop.mapreduce.lib.output.committer.manifest.ManifestCommitterFactory",
    "s3a": "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory",
}


class Given(NamedTuple):
    """What somebody would paste, and for what."""

    conf: Mapping[str, str]
    url: str
    flat: bool
    needs: frozenset[str]
    usage: str = ""
    said: str = ""

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0]

    def hadoop(self, key: str) -> str:
        return self.conf.get(f"spark.hadoop.{key}", "")

    def factory(self, scheme: str = "") -> str:
        named = self.hadoop(f"mapreduce.outputcommitter.factory.scheme.{scheme or self.scheme}")
        return named or BOUND.get(scheme or self.scheme, "FileOutputCommitterFactory")

    @property
    def cloud(self) -> bool:
        return self.conf.get("spark.sql.sources.commitProtocolClass") == CLOUD

    @property
    def own(self) -> bool:
        """A protocol or class of the cloud's owner decides, and no factory of Hadoop's."""
        said = self.conf.get("spark.sql.sources.commitProtocolClass", "") + self.conf.get("spark.sql.sources.outputCommitterClass", "")
        return "Emr" in said or "Jindo" in said or self.scheme == "dbfs"

    @property
    def renames(self) -> bool:
        """Algorithm 1 or 2 writes."""
        by_name = self.factory().endswith("S3ACommitterFactory") and self.hadoop("fs.s3a.committer.name") in ("", "file")
        return not self.own and (self.factory().endswith("FileOutputCommitterFactory") or by_name)

    @property
    def dynamic(self) -> bool:
        return self.conf.get("spark.sql.sources.partitionOverwriteMode") == "dynamic"

    @property
    def manifest(self) -> bool:
        return self.cloud and "anifestCommitter" in self.factory()

    @property
    def s3a(self) -> bool:
        return self.cloud and "s3a" in self.factory()


def concurrent(given: Given) -> bool:
    if "concurrent_jobs" not in given.needs:
        return False
    alone = given.manifest and given.hadoop("mapreduce.fileoutputcommitter.cleanup.skipped") != "true"
    return given.renames or alone or (given.s3a and given.hadoop("fs.s3a.committer.abort.pending.uploads") != "false")


def unmet(given: Given) -> bool:
    """Partitions were to be replaced, and are not; or everything is deleted where partitions were meant."""
    if "dynamic_overwrite" not in given.needs:
        return given.dynamic
    if given.hadoop("fs.s3a.committer.name") == "partitioned":
        return given.hadoop("fs.s3a.committer.staging.conflict-mode") != "replace" or 'mode("append")' not in given.usage
    return not given.dynamic or 'mode("overwrite")' not in given.usage


BROKEN: dict[str, Callable[[Given], bool]] = {
    "algorithm 2": lambda g: g.hadoop("mapreduce.fileoutputcommitter.algorithm.version") == "2",
    "a factory that Spark does not ask": lambda g: not g.cloud and not g.renames and not g.own,
    "EMRFS without its protocol for partitions": lambda g: g.scheme == "s3" and not g.dynamic,
    "parquet not bound": lambda g: g.cloud and g.conf.get("spark.sql.parquet.output.committer.class") != PARQUET,
    "manifest on S3": lambda g: "anifest" in g.factory() and g.scheme in ("s3", "s3a", "oss"),
    "a rename that is none": lambda g: g.flat and g.renames,
    "partitions replaced through the protocol": lambda g: g.cloud and g.dynamic,
    "partitions not replaced": unmet,
    "only one of abfs and abfss": lambda g: g.scheme.startswith("abfs") and not g.own and g.factory("abfs") != g.factory("abfss"),
    "zombies": lambda g: g.renames and "overwrite" not in g.needs and g.hadoop("mapreduce.job.application.attempt.id") in ("", "0"),
    "lists of uploads on a local disk": lambda g: g.hadoop("fs.s3a.committer.staging.tmp.path").startswith("file:"),
    "magic off": lambda g: g.hadoop("fs.s3a.committer.name") == "magic" and g.hadoop("fs.s3a.committer.magic.enabled") != "true",
    "jobs that delete each other's work": concurrent,
    "not all at one moment": lambda g: "visible_together" in g.needs,
    "overwrite without a warning": lambda g: "overwrite" in g.needs and "deletes the old rows before the job begins" not in g.said,
    "replaced though it was to be added to": lambda g: "append" in g.needs and ('mode("append")' not in g.usage or g.dynamic),
    "no file system of Spark's": lambda g: g.scheme in ("az", "wasb", "wasbs", "webhdfs+"),
}  # fmt: skip


def faults(given: Given) -> list[str]:
    return [name for name, broken in BROKEN.items() if broken(given)]


def of(advice: Advice, store: Store) -> Given:
    return Given(advice.conf, advice.url, store.flat, frozenset(advice.needs), advice.usage, "\n".join(advice.not_guaranteed))


def every() -> Iterator[tuple[str, Store, frozenset[str], Advice | QuireError]]:
    for name, store in STORES.items():
        for needs in SUBSETS:
            try:
                yield name, store, needs, advise(store.url, needs, store.session, store.hierarchical)
            except QuireError as e:
                yield name, store, needs, e


@pytest.fixture(scope="module")
def all_advice() -> list[tuple[str, Store, frozenset[str], Advice | QuireError]]:
    return list(every())


def test_no_advice_for_any_store_and_needs_is_known_as_broken(all_advice: Any) -> None:
    assert len(all_advice) == len(STORES) * 2 ** len(WORDS)
    seen = set()
    for name, store, needs, advice in all_advice:
        if isinstance(advice, Advice) and advice.committer != "quire":
            assert faults(of(advice, store)) == [], (name, sorted(needs), advice.conf)
        seen.add(getattr(advice, "committer", type(advice).__name__))
    assert seen == {
        "v1",
        "manifest",
        "magic",
        "directory",
        "partitioned",
        "emr_protocol",
        "jindo",
        "dbio",
        "quire",
        "UsageError",
        "RefusedError",
    }


def test_quires_own_needs_no_settings_and_is_read_by_its_log(all_advice: Any) -> None:
    for name, _, needs, advice in all_advice:
        if isinstance(advice, Advice) and advice.committer == "quire":
            assert "visible_together" in needs, name
            assert not advice.conf
            assert "quire.read(" in advice.usage
            needed = {"s3a": ["hadoop-aws"], "abfs": ["hadoop-azure"], "abfss": ["hadoop-azure"]}.get(advice.url.partition(":")[0], [])
            own = [] if name.startswith("emr") else needed
            assert [jar.split(":")[1] for jar in advice.jars] == own, "df.write in the claim needs the file system"


def test_there_is_an_answer_wherever_there_is_a_safe_one_and_a_refusal_where_not(all_advice: Any) -> None:
    for name, _, needs, advice in all_advice:
        opposed = [pair for pair in OPPOSED if pair <= needs]
        if opposed:
            assert type(advice) is UsageError, (name, needs)
            assert any(all(word in str(advice) for word in pair) for pair in opposed)
        elif HOPELESS.get(name, set()) & needs:
            assert type(advice) is RefusedError, (name, needs)
        else:
            assert isinstance(advice, Advice), (name, sorted(needs), str(advice))


def test_spark_would_use_the_committer_that_was_advised(all_advice: Any) -> None:
    for name, _, needs, advice in all_advice:
        if isinstance(advice, Advice) and advice.committer != "quire":
            scheme = advice.url.partition(":")[0]
            for kind in ("parquet", "json"):
                would = bound(from_mapping(advice.conf), scheme, "bucket", kind).committer
                assert would == advice.committer, (name, sorted(needs), kind)


def test_every_advice_says_why_at_what_price_and_what_it_does_not_guarantee(all_advice: Any) -> None:
    for name, _, needs, advice in all_advice:
        if not isinstance(advice, Advice):
            continue
        assert advice.why, name
        assert advice.not_guaranteed, name
        assert advice.sources, name
        assert all(item.reason and item.source for item in advice.refused), name
        assert {item.committer for item in advice.alternatives}.isdisjoint({advice.committer, *(r.committer for r in advice.refused)})
        assert needs == set(advice.needs)
        json.dumps(advice.as_dict())
        assert advice.url in str(advice)
        assert advice.committer in advice._repr_html_()


def test_what_people_reach_for_is_refused_with_a_reason(all_advice: Any) -> None:
    """Algorithm 2 and a factory alone everywhere; v1 as it comes where a dead job's files would be taken up with an append."""
    for name, _, needs, advice in all_advice:
        if isinstance(advice, Advice) and STORES[name].session is not EMR and not name.startswith("oss"):
            refused = {item.committer for item in advice.refused}
            assert {"v2", "naive"} <= refused, name
            if name in ("local", "hdfs") and not needs & {"overwrite", "dynamic_overwrite"}:
                assert "v1 without attempt id" in refused, (name, sorted(needs))


def test_who_restarts_jobs_that_append_is_told_what_a_kill_during_the_commit_leaves(all_advice: Any) -> None:
    for name, _, needs, advice in all_advice:
        if isinstance(advice, Advice):
            told = [line for line in advice.not_guaranteed if line.startswith("one copy after a driver that was killed")]
            replaces = needs & {"overwrite", "dynamic_overwrite"}
            assert bool(told) == ("restartable" in needs and not replaces and advice.committer != "quire"), (name, sorted(needs))
            assert all(("quire's own" in line) == (name not in ("gcs", "oss")) for line in told), name


def test_magic_is_not_for_jobs_at_once_on_a_spark_whose_hadoop_is_too_old() -> None:
    needs, url = {"concurrent_jobs"}, "s3a://bucket/x"
    assert advise(url, needs, Server("4.0.1")).committer == "magic"
    old = advise(url, needs, Server("3.5.3"))
    assert old.committer == "directory"
    assert any(item.committer == "magic" and "Hadoop 3.3.4" in item.reason for item in old.refused)
    assert any("share the default file system" in line for line in old.not_guaranteed), "over Connect nobody tells"


GOOD = {
    "spark.sql.sources.commitProtocolClass": CLOUD, "spark.sql.parquet.output.committer.class": PARQUET,
    "spark.sql.sources.partitionOverwriteMode": "static",
}  # fmt: skip
S3A = GOOD | {
    "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": BOUND["s3a"], "spark.hadoop.fs.s3a.committer.name": "magic",
    "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
}  # fmt: skip
PLAIN = {"spark.hadoop.mapreduce.job.application.attempt.id": "7"}
STAGED = S3A | {"spark.hadoop.fs.s3a.committer.name": "partitioned", "spark.hadoop.fs.s3a.committer.staging.tmp.path": "file:///tmp"}
FILE_ = "spark.hadoop.mapreduce.outputcommitter.factory.scheme.file"
MODE = "spark.sql.sources.partitionOverwriteMode"
WRITE = 'df.write.mode("append")'


@pytest.mark.parametrize(
    ("fault", "conf", "url", "needs"),
    [
        ("algorithm 2", PLAIN | {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2"}, "file:///x", "speculation"),
        ("a factory that Spark does not ask", {}, "gs://bucket/x", ""),
        ("a factory that Spark does not ask", {FILE_: BOUND["gs"]}, "file:///x", ""),
        ("EMRFS without its protocol for partitions", {}, "s3://bucket/x", ""),
        ("parquet not bound", {"spark.sql.sources.commitProtocolClass": CLOUD}, "gs://bucket/x", ""),
        ("manifest on S3", S3A | {"spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": BOUND["gs"]}, "s3a://bucket/x", ""),
        ("a rename that is none", S3A | {"spark.hadoop.fs.s3a.committer.name": "file"}, "s3a://bucket/x", ""),
        ("partitions replaced through the protocol", S3A | {MODE: "dynamic"}, "s3a://bucket/x", "dynamic_overwrite"),
        ("partitions not replaced", S3A, "s3a://bucket/x", "dynamic_overwrite"),
        ("only one of abfs and abfss", GOOD, f"abfss://{AZURE}", ""),
        ("zombies", {}, "file:///x", "append"),
        ("lists of uploads on a local disk", STAGED, "s3a://bucket/x", ""),
        ("magic off", S3A | {"spark.hadoop.fs.s3a.committer.magic.enabled": "false"}, "s3a://bucket/x", ""),
        ("jobs that delete each other's work", PLAIN, "file:///x", "concurrent_jobs"),
        ("jobs that delete each other's work", S3A, "s3a://bucket/x", "concurrent_jobs"),
        ("not all at one moment", S3A, "s3a://bucket/x", "visible_together"),
        ("overwrite without a warning", PLAIN, "file:///x", "overwrite"),
        ("replaced though it was to be added to", PLAIN | {MODE: "dynamic"}, "file:///x", "append"),
        ("no file system of Spark's", {}, "az://container/x", ""),
    ],
)  # fmt: skip
def test_what_is_broken_would_be_found(fault: str, conf: dict[str, str], url: str, needs: str) -> None:
    wanted = frozenset(filter(None, [needs]))
    assert fault in faults(Given(conf, url, url[:2] in ("s3", "gs"), wanted, WRITE))


# ------------------------------------------------------------------------------------------------------------------ what is given
def test_each_application_gets_a_number_of_its_own_and_a_file_for_all_of_them_gets_none() -> None:
    key = "spark.hadoop.mapreduce.job.application.attempt.id"
    one, other = advise("/data/out", {"append"}), advise("/data/out", {"append"})
    assert one.conf[key] != other.conf[key]
    built = [dict(one.apply(Builder())._options)[key] for _ in range(2)]
    assert len({one.conf[key], *built}) == 3
    assert all(0 < int(number) < 1 << 31 for number in built), "Hadoop reads an int"
    (line,) = (line for line in one.defaults.splitlines() if key in line)
    assert line.startswith("#")


class Builder:
    """What takes settings as Spark's own does."""

    def __init__(self, **options: str) -> None:
        self._options = {key.replace("_", "."): value for key, value in options.items()}

    def config(self, key: str, value: str) -> Builder:
        self._options[key] = value
        return self


def test_settings_and_packages_are_put_beside_those_that_are_there() -> None:
    advice = advise("s3a://bucket/x", spark=Server("4.1.1"))
    assert advice.jars == ("org.apache.spark:spark-hadoop-cloud_2.13:4.1.1", "org.apache.hadoop:hadoop-aws:3.4.2")
    built = advice.apply(Builder(spark_jars_packages="a:b:1", spark_ui_enabled="false"))._options
    assert built["spark.jars.packages"] == ",".join(("a:b:1", *advice.jars))
    assert dict(advice.conf).items() <= built.items()
    assert built["spark.ui.enabled"] == "false"
    assert "spark.jars.packages" not in advice.apply(Builder(), packages=False)._options
    lines = dict(re.fullmatch(r"(spark\.\S+)  (\S+)", line).groups() for line in advice.defaults.splitlines() if line[0] != "#")  # type: ignore[union-attr]
    assert lines == {**advice.conf, "spark.jars.packages": ",".join(advice.jars)}


@pytest.mark.parametrize(
    ("version", "scala", "hadoop"),
    [
        ("4.3.0", "2.13", "3.5.0"),
        ("4.9.0", "2.13", "3.5.0"),
        ("3.5.3", "2.12", "3.3.4"),
        ("3.4.1", "2.12", "3.3.4"),
        ("3.0.2", "2.12", "3.3.1"),
        ("4.0.1", "2.13", "3.4.1"),
        ("4.1.0-SNAPSHOT", "2.13", "3.4.2"),
    ],
)
def test_jars_are_of_the_versions_of_the_session(version: str, scala: str, hadoop: str) -> None:
    advice = advise(f"abfss://{AZURE}", spark=Server(version))
    cloud, azure = advice.jars
    assert cloud.startswith(f"org.apache.spark:spark-hadoop-cloud_{scala}:{version[:5]}")
    assert azure == f"org.apache.hadoop:hadoop-azure:{hadoop}"
    assert any("assumed" in text for text in advice.why), "over Connect nobody tells Hadoop's version"


def test_without_a_session_the_installed_spark_counts() -> None:
    import pyspark

    assert advise("gs://bucket/x").jars[0].endswith(f":{pyspark.__version__}")
    assert any("installed here" in text for text in advise("gs://bucket/x").why)


def test_an_account_that_is_not_known_gets_what_is_safe_for_both_kinds() -> None:
    both, flat, tree = (advise(f"abfss://{AZURE}", hierarchical=known) for known in (None, False, True))
    assert any("not known" in text for text in both.why)
    assert both.conf == flat.conf == tree.conf
    for scheme in ("abfs", "abfss"):
        assert both.conf[f"spark.hadoop.mapreduce.outputcommitter.factory.scheme.{scheme}"] == BOUND["abfs"]
    with pytest.raises(RefusedError, match="hierarchical=True"):
        advise(f"abfss://{AZURE}", {"dynamic_overwrite"})
    assert advise(f"abfss://{AZURE}", {"dynamic_overwrite"}, hierarchical=True).committer == "v1"


@pytest.mark.parametrize(
    ("url", "gives"),
    [
        ("s3://bucket/x", "s3a://bucket/x"), (f"az://{AZURE}", f"abfss://{AZURE}"), (f"wasbs://{AZURE}", f"abfss://{AZURE}"),
        (f"abfs://{AZURE}", f"abfs://{AZURE}"), ("/data/out/", "file:///data/out"), ("gs://bucket/x/", "gs://bucket/x"),
        ("GS://bucket", "gs://bucket"), ("S3A://bucket/x/", "s3a://bucket/x"), ("/data/s3a:x", "file:///data/s3a:x"),
    ],
)  # fmt: skip
def test_a_url_becomes_the_one_that_spark_must_be_given(url: str, gives: str) -> None:
    assert advise(url).url == gives


# -------------------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("url", "needs", "more", "words"),
    [
        ("ftp://host/x", (), {}, ["kind of store", "ftp", "s3a"]),
        ("memory://x", (), {}, ["kind of store", "memory"]),
        ("gs://x?token=hunter2", (), {}, ["names no bucket"]),
        ("oss:///x", (), {}, ["names no bucket", "oss://bucket/path"]),
        ("gs://bucket/x\ny", (), {}, ["no path", "gs://bucket/path"]),
        ("gs:/bucket/x", (), {}, ["names no bucket"]),
        ("s3a:bucket/x", (), {}, ["not a URL", "write s3a://bucket/x", "./"]),
        ("S3A:bucket/x", (), {}, ["write S3A://bucket/x"]),
        ("s3a//bucket/x", (), {}, ["not a URL", "write s3a://bucket/x"]),
        ("gs;//bucket/x", (), {}, ["write gs://bucket/x"]),
        ("hdfs:", (), {}, ["not a URL"]),
        ("s3a:key:hunter2@bucket/x", (), {}, ["write s3a://***@bucket/x"]),
        ("s3a://key:hunter2@bucket/x", (), {}, ["carries credentials, and a URL is written"]),
        (" s3a://bucket/x", (), {}, ["blank"]),
        ("s3a://bucket/x\n", (), {}, ["blank"]),
        ("   ", (), {}, ["blank"]),
        ("abfss://container@a.dfs.core.windows.net/x?sig=hunter2&se=1", (), {}, ["signature"]),
        ("s3://", (), {}, ["bucket"]),
        ("", (), {}, ["expected a URL"]),
        (7, (), {}, ["expected a URL"]),
        ("/x", "append", {}, ["set of words"]),
        ("/x", None, {}, ["set of words"]),
        ("/x", ["appendd"], {}, ["unknown need", "'append'"]),
        ("/x", [7], {}, ["unknown need"]),
        ("/x", ["append", "overwrite"], {}, ["append", "overwrite", "contradict"]),
        ("/x", ["dynamic_overwrite", "visible_together"], {}, ["dynamic_overwrite", "visible_together", "contradict"]),
        ("/x", (), {"spark": "local[2]"}, ["SparkSession"]),
        ("s3a://bucket/x", (), {"hierarchical": True}, ["hierarchical=", "Azure"]),
        ("az://container/x", (), {}, ["write abfss://container@ACCOUNT.dfs.core.windows.net/x"]),
        ("abfs://container@mine/x", (), {}, ["write abfs://container@mine.dfs.core.windows.net/x"]),
        ("abfss://container", (), {"storage_options": {"account_name": "mine"}}, ["write abfss://container@mine.dfs.core.windows.net,"]),
        (f"abfss://{AZURE}", ["dynamic_overwrite"], {"hierarchical": "no"}, ["True, False or None"]),
        (f"abfss://{AZURE}", (), {"storage_options": "hunter2"}, ["storage_options=", "dictionary"]),
        ("gs://bucket/x", ["visible_together"], {}, ["no committer is safe", "one by one"]),
    ],
)  # fmt: skip
def test_a_wrong_question_gets_one_line_that_says_what_to_do(url: Any, needs: Any, more: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        advise(url, needs, **more)
    said = str(caught.value)
    assert said.isprintable()
    assert "hunter2" not in said
    for word in words:
        assert word in said, said


def test_a_path_is_taken_as_everywhere() -> None:
    found, same = advise(Path("/data/out")), advise("/data/out")
    assert (found.url, found.committer, found.usage) == (same.url, same.committer, same.usage)


# ------------------------------------------------------------------------------------------------------- MapReduce, and Databricks
@pytest.mark.parametrize("store", STORES)
def test_mapreduce_jobs_get_settings_of_hadoops_alone_that_are_marked_as_read(store: str) -> None:
    place = STORES[store]
    for needs in ({"append"}, {"append", "speculation"}, {"overwrite"}, {"append", "many_files"}):
        advice = advise(place.url, needs, place.session, place.hierarchical)
        said = advice.mapreduce_options
        assert "read, not measured" in said
        assert all(line.startswith(("# ", "-D ")) for line in said.splitlines())
        assert not any("spark" in key for key in advice.mapreduce), "nothing of Spark's"
        assert "mapreduce.job.application.attempt.id" not in advice.mapreduce
        if "overwrite" in needs or advice.committer == "dbio":
            assert (dict(advice.mapreduce), "no settings" in said) == ({}, True)
            continue
        assert advice.mapreduce["mapreduce.map.speculative"] == str("speculation" in needs).lower()
        assert "org.apache.hadoop.mapred take" in advice.mapreduce_note
        given = {f"spark.hadoop.{key}": value for key, value in advice.mapreduce.items()}
        scheme = advice.url.partition(":")[0]
        factory = advice.mapreduce.get(f"mapreduce.outputcommitter.factory.scheme.{scheme}", "")
        assert factory, "else what the cluster binds would count"
        if factory.endswith("FileOutputCommitterFactory"):
            assert not place.flat
            assert given["spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version"] == "1", "MapReduce's own default is 2"
        if factory.endswith("S3ACommitterFactory"):
            assert advice.mapreduce["fs.s3a.committer.name"] in ("magic", "directory")


def test_mapreduce_on_jindo_and_on_emr() -> None:
    oss = advise("oss://bucket/out", {"append"}).mapreduce
    assert oss["mapreduce.outputcommitter.factory.scheme.oss"] == "com.aliyun.emr.fs.oss.commit.JindoOssCommitterFactory"
    assert oss["fs.oss.committer.magic.enabled"] == "true"
    emr = advise("s3://bucket/out", {"append"}, EMR)
    assert emr.url.startswith("s3a://")
    assert "EMRFS's committer (s3://) serves Spark alone" in emr.mapreduce_note
    replaced = advise("s3://bucket/out", {"dynamic_overwrite"}, EMR)
    assert (replaced.mapreduce, "way of Spark's" in replaced.mapreduce_note) == ({}, True)


def test_on_databricks_nothing_is_set_and_what_is_not_guaranteed_is_said() -> None:
    advice = advise("dbfs:/Volumes/main/raw/v/out", {"append"})
    assert (advice.committer, advice.evidence) == ("dbio", "read, not measured")
    assert set(advice.conf) == {"spark.sql.sources.partitionOverwriteMode"}
    assert "13.3" in str(advice)
    assert "VACUUM" in str(advice)
    assert {item.committer for item in advice.refused} == {"v1", "v2", "manifest", "naive"}
    for wrong, word in (
        ("dbfs:/", "names no directory"),
        ("dbfs://host/x", "names no directory"),
        ("dbfs:/Volumes/main/raw", "names no volume"),
    ):
        with pytest.raises(UsageError, match=word):
            advise(wrong)
