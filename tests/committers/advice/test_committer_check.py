"""The live check finds each misconfiguration that is planted in a session, and says what settings alone cannot tell."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import IllegalArgumentException
from test_committer_advice import AZURE, BOUND, CLOUD, PARQUET, Server

from quire.committers import Check, advise
from quire.committers.advice.session import Session
from quire.committers.advice.versions import Versions
from quire.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FACTORY = "mapreduce.outputcommitter.factory.scheme."
PROTOCOL, BINDING = "spark.sql.sources.commitProtocolClass", "spark.sql.parquet.output.committer.class"
ALGORITHM, ATTEMPT = "mapreduce.fileoutputcommitter.algorithm.version", "mapreduce.job.application.attempt.id"
MODE, NAME, MAGIC = "spark.sql.sources.partitionOverwriteMode", "fs.s3a.committer.name", "fs.s3a.committer.magic.enabled"
BUCKET = "s3a://bucket/out"
PLAIN = "org.apache.parquet.hadoop.ParquetOutputCommitter"  # said, since Spark binds its own where it finds spark-hadoop-cloud

# (what is set after the start, where, format, the finding, words of it)
PLANTED: list[tuple[dict[str, str], str, str, str, str]] = [
    ({PROTOCOL: CLOUD, BINDING: PARQUET}, "/data", "json", "protocol", "cannot be loaded"),
    ({BINDING: PARQUET}, "/data", "parquet", "parquet", "cannot be loaded"),
    ({PROTOCOL: CLOUD, BINDING: PLAIN}, "/data", "parquet", "parquet", "not bound to"),
    ({FACTORY + "file": BOUND["abfs"]}, "/data", "json", "factory", "cannot be had"),
    ({FACTORY + "file": BOUND["gs"]}, "/data", "json", "binding", "straight into the destination"),
    ({FACTORY + "file": BOUND["gs"]}, "/data", "parquet", "binding", "parquet silently takes v1"),
    ({"mapreduce.outputcommitter.factory.class": BOUND["gs"]}, "/data", "csv", "binding", "straight into the destination"),
    ({}, f"abfs://{AZURE}", "json", "binding", "straight into the destination"),
    ({}, "gs://bucket/out", "orc", "binding", "straight into the destination"),
    ({}, BUCKET, "parquet", "file system", "cannot be opened"),
    ({}, f"abfss://{AZURE}", "parquet", "abfs and abfss", "a URL's s decides"),
    ({ALGORITHM: "2"}, "/data", "parquet", "algorithm", "when it ends"),
    ({ALGORITHM: "10"}, "/data", "json", "committer", "no algorithm 10"),
    ({PROTOCOL: CLOUD, NAME: "magick"}, BUCKET, "json", "committer", "no committer 'magick'"),
    ({"spark.sql.sources.outputCommitterClass": "com.example.Mine"}, "/data", "json", "committer", "not known here"),
    ({}, "/data", "parquet", "restart", "no attempt id"),
    ({}, BUCKET, "parquet", "rename", "a copy and a delete"),
    ({FACTORY + "abfss": "", FACTORY + "abfs": ""}, f"abfss://{AZURE}", "parquet", "rename", "hierarchical"),
    ({PROTOCOL: CLOUD, FACTORY + "s3a": BOUND["gs"]}, BUCKET, "parquet", "rename", "cannot"),
    ({PROTOCOL: CLOUD, NAME: "magic", MODE: "dynamic"}, BUCKET, "parquet", "dynamic overwrite", "S3A's committers do not know it"),
    ({PROTOCOL: CLOUD, MODE: "DYNAMIC"}, "/data", "parquet", "dynamic overwrite", "stay beside the new"),
    ({PROTOCOL: CLOUD, NAME: "magic", MAGIC: "false"}, BUCKET, "json", "magic", "off"),
    ({PROTOCOL: CLOUD, "fs.s3a.bucket.bucket.committer.name": "magic", MAGIC: "false"}, BUCKET, "json", "magic", "off"),
    ({f"spark.hadoop.{ALGORITHM}": "2"}, "/data", "parquet", "set too late", "what counts is 1"),
    ({"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}, "/data", "parquet", "_SUCCESS", "switched off"),
]  # fmt: skip


@pytest.fixture
def session(spark: SparkSession) -> SparkSession:
    """A session with settings of its own in the JVM of all tests."""
    own = spark.newSession()
    own.conf.set(PROTOCOL, "org.apache.spark.sql.execution.datasources.SQLHadoopMapReduceCommitProtocol")
    return own


def plant(session: SparkSession, conf: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Set them in the session; Spark 4.3 itself refuses a protocol that it cannot load, which a session of an older one has silently."""
    refused = {}
    for key, value in conf.items():
        try:
            session.conf.set(key, value)
        except IllegalArgumentException:
            refused[key] = value
    real = Session._of_spark
    monkeypatch.setattr(Session, "_of_spark", lambda self, key: refused.get(key) or real(self, key))


def found(check: Check, what: str) -> Any:
    (one,) = (item for item in check.findings if item.what == what)
    return one


@pytest.mark.parametrize(("conf", "url", "kind", "what", "words"), PLANTED)
def test_each_planted_misconfiguration_is_found(
    session: SparkSession, monkeypatch: pytest.MonkeyPatch, conf: dict[str, str], url: str, kind: str, what: str, words: str
) -> None:
    plant(session, conf, monkeypatch)
    check = advise.check(session, url=url, format=kind)
    one = found(check, what)
    assert one.state in ("wrong", "beware")
    assert words in one.said
    assert one.do, "and what to do"
    assert ("start Python" in one.do) == ("spark.jars.packages" in one.do), "a session of a Python that runs fetches no jars"
    assert check.ok == (not check.wrong)
    assert check.seen == "the JVM and its settings"
    json.dumps(check.as_dict())
    assert words in str(check)
    assert ("✘" if one.state == "wrong" else "!") in check._repr_html_()


def test_what_was_advised_is_found_right(session: SparkSession) -> None:
    advice = advise("/data/out", {"append"}, session)
    for key, value in advice.conf.items():
        session.conf.set(key.removeprefix("spark.hadoop."), value)
    check = advise.check(session, advice.url)
    assert (check.ok, check.committer, check.wrong) == (True, "v1", ())
    assert {item.state for item in check.findings} == {"ok"}


def test_the_check_says_what_will_happen(session: SparkSession) -> None:
    session.conf.set(FACTORY + "file", BOUND["gs"])
    check = advise.check(session, "/data", "json")
    assert check.committer == "naive"
    assert "straight into the destination" in check.will
    assert advise.check(session, BUCKET).will.startswith("The job will fail before it writes anything")
    session.conf.set(ALGORITHM, "10")
    assert advise.check(session, "/data").will == (
        "The job will fail before it writes anything: FileOutputCommitter would write, and it has no algorithm 10."
    )


def test_a_path_means_what_it_means_to_spark(session: SparkSession) -> None:
    session.conf.set("fs.defaultFS", "hdfs://namenode:8020/")
    for ask in (lambda url: advise.check(session, url), lambda url: advise(url, (), session)):
        with pytest.raises(UsageError, match="hdfs://namenode:8020/data/out: write that URL"):
            ask("/data/out")
        with pytest.raises(UsageError, match="hdfs://namenode:8020/…/out"):
            ask("out")
    assert advise("file:///data/out", (), session).kind == "local disk"
    assert advise("hdfs://namenode:8020/data/out", (), session).kind == "HDFS"


def test_what_is_checked_by_default_is_the_warehouse(session: SparkSession) -> None:
    assert advise.check(session).url.startswith("file:///")


def test_the_check_agrees_with_what_a_job_really_does(session: SparkSession, tmp_path: Any) -> None:
    """The naive binding: Spark takes the factory, and its marker lies."""
    from quire.committers import inspect_success

    session.conf.set(FACTORY + "file", BOUND["gs"])
    out = tmp_path / "out"
    assert advise.check(session, str(out), "json").committer == "naive"
    session.range(10).write.json(str(out))
    told = inspect_success(str(out))
    assert told.claimed.endswith("ManifestCommitter")
    assert told.committer.startswith("not ")
    assert "Spark was not bound to it" in told.warnings[0]


def test_a_jar_of_another_hadoop_is_found(session: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = {"org.apache.hadoop.fs.s3a.S3AFileSystem": "hadoop-aws-3.3.4.jar", CLOUD: "spark-hadoop-cloud_2.13-3.5.1.jar"}
    monkeypatch.setattr(Session, "jar", lambda _, name: jars.get(name, ""))
    plant(session, {PROTOCOL: CLOUD}, monkeypatch)
    check = advise.check(session, BUCKET)
    assert found(check, "Hadoop's jar").state == "wrong"
    assert "hadoop-aws-3.3.4.jar" in found(check, "Hadoop's jar").said
    assert found(check, "Spark's jar").state == "beware"


# ---------------------------------------------------------------------------------------------------------- without a JVM
UNSEEN = {"file system", "protocol", "factory"}


def test_over_connect_settings_are_looked_at_and_what_they_cannot_tell_is_said() -> None:
    check = advise.check(Server("4.3.0"), BUCKET)
    assert check.seen.startswith("settings alone")
    assert {item.what for item in check.findings if item.state == "unseen"} == UNSEEN
    assert not check.ok
    assert check.committer == "v1"
    assert found(check, "rename").state == "wrong"


@pytest.mark.parametrize(("conf", "url", "kind", "what", "words"), PLANTED)
def test_over_connect_each_is_found_that_settings_tell(conf: dict[str, str], url: str, kind: str, what: str, words: str) -> None:
    server = Server("4.3.0")
    server.conf.update(conf)
    check = advise.check(server, url, kind)
    if "cannot be" in words:
        assert {item.what for item in check.findings if item.state == "unseen"} >= {what} & UNSEEN
    elif what != "set too late":  # over Connect it cannot be told from a setting of the start
        assert words in found(check, what).said


@pytest.mark.parametrize(
    ("conf", "state", "words"),
    [
        ({}, "ok", "off"),
        ({"spark.speculation": "true"}, "ok", "keeps one attempt"),
        ({"spark.speculation": "true", ALGORITHM: "2"}, "wrong", "two attempts"),
        ({"spark.speculation": "true", FACTORY + "file": BOUND["gs"]}, "wrong", "two attempts"),
    ],
)
def test_speculation_is_wrong_only_with_a_committer_that_doubles(conf: dict[str, str], state: str, words: str) -> None:
    server = Server("4.3.0")
    server.conf.update(conf)
    one = found(advise.check(server, "/data", "json"), "speculation")
    assert one.state == state
    assert words in one.said


@pytest.mark.parametrize(("hosts", "words"), [(0, "no hosts"), (1, "1 host"), (2, "")])
def test_a_cluster_that_cannot_speculate_is_told(monkeypatch: pytest.MonkeyPatch, hosts: int, words: str) -> None:
    seen = Versions("4.3.0", "3.5.0", seen="session", hosts=hosts, local=False)
    for module in ("checking", "advise"):
        monkeypatch.setattr(f"quire.committers.advice.{module}.versions", lambda _: seen)
    server = Server("4.3.0")
    server.conf["spark.speculation"] = "true"
    one = found(advise.check(server, "/data", "json"), "speculation")
    told = [line for line in advise("/data", {"speculation"}, server).not_guaranteed if line.startswith("speculation itself")]
    assert one.state == ("beware" if words else "ok")
    assert words in one.said
    assert [words in line for line in told] == [True] * bool(words)


def test_local_disk_on_a_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for local in (False, True):
        seen = Versions("4.3.0", "3.5.0", seen="session", hosts=2, local=local)
        for module in ("checking", "advise"):
            monkeypatch.setattr(f"quire.committers.advice.{module}.versions", lambda _, seen=seen: seen)
        told = [item.said for item in advise.check(Server("4.3.0"), "/data").findings if item.what == "disk"]
        told += [line for line in advise("/data", (), Server("4.3.0")).not_guaranteed if "share" in line]
        assert ["on the disk of its own machine" in text for text in told] == [True, True] * (not local)


def test_settings_given_at_the_start_count_over_connect() -> None:
    server = Server("4.3.0")
    server.conf.update(advise(BUCKET).conf)
    check = advise.check(server, BUCKET, "csv")
    assert (check.ok, check.committer) == (True, "magic")


@pytest.mark.parametrize(
    ("spark", "url", "kind", "words"),
    [
        (Server("4.3.0"), "/x", "parquett", "unknown format"),
        (Server("4.3.0"), "ftp://x", "parquet", "kind of store"),
        (None, "/x", "parquet", "SparkSession"),
        ("local", "/x", "parquet", "SparkSession"),
    ],
)
def test_a_wrong_question_to_the_check_gets_one_line(spark: Any, url: str, kind: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        advise.check(spark, url, kind)
