"""A first-time user's way: ask, paste the settings into a fresh Spark, write; on local disk, HDFS, SeaweedFS and Azurite.

Jars: those that `make test-services` has got by Maven, in the newest versions that there are. Their spark-hadoop-cloud is older than
Spark itself, which the live check says.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_committer_check import CLOUD, PLANTED

from quire import committers
from quire.committers.advice import classes as k
from quire.storage import bare, normalise
from services import s3
from services.azurite import ACCOUNT, KEY, connection_string
from services.hdfs import HOME, USER, Cluster, hdfs
from services.spark import HOSTS, ConnectServer, Driver, Standalone, environment, running

JARS = Path(os.environ.get("QUIRE_COMMITTER_JARS") or Path(sys.prefix) / "committers" / "jars")
FRESH = Path(__file__).parent / "fresh.py"

pytestmark = pytest.mark.services
seldom = pytest.mark.nightly


@pytest.fixture(scope="module")
def jars() -> str:
    found = sorted(JARS.glob("*.jar"))
    assert found, "the jars of the committers are not there: `make test-services` gets them with Maven"
    return ",".join(map(str, found))


def pasted(advice: committers.Advice, place: Path, jars: str = "", user: str = "", **more: Any) -> dict[str, Any]:
    """What a fresh Spark does whose spark-defaults.conf is the advice's text; of its packages the jars are there already."""
    conf, signs = place / "conf", place / "signs"
    conf.mkdir(parents=True)
    signs.mkdir()
    text = [line for line in advice.defaults.splitlines() if not line.startswith("spark.jars.packages")]
    (conf / "spark-defaults.conf").write_text("\n".join([*text, *([f"spark.jars  {jars}"] if jars else [])]) + "\n")
    wanted = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    wanted |= {"spark.driver.memory": "1g", "spark.log.level": "ERROR", **more.pop("conf", {})}
    wanted |= {key: value for key, value in advice.conf.items() if key.endswith("attempt.id")}  # the line that is a comment
    told = {"url": advice.url, "format": "parquet", "folder": str(signs), "conf": wanted, **more}
    environment = {**os.environ, "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    environment |= {"HADOOP_USER_NAME": user} if user else {}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(FRESH), json.dumps(told)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        cwd=place,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def safe(found: dict[str, Any], committer: str) -> None:
    """Hidden until the commit, nothing left by a failed job, one copy of a task that was run twice."""
    assert (found["ok"], found["wrong"], found["committer"]) == (True, [], committer)
    assert found["during"] == 0, "nothing is visible while three of four tasks have committed"
    assert found["after"] == 4
    assert found["failed"]
    assert found["after the failed one"] == 4
    assert (found["rows"], found["distinct"]) == (2000, 2000), "two jobs, one of them with a task that was tried twice"


def tidy(url: str, options: Any = None) -> committers.Inspection:
    """Nothing is left behind."""
    found = committers.inspect_success(url, storage_options=options)
    assert found.state == "committed"
    assert (found.folders, found.uploads, found.doubled) == ((), (), ()), str(found)
    assert found.files == found.jobs * 4, sorted(entry.name for entry in bare(found.url, options).walk())
    return found


@pytest.mark.parametrize("format", ["parquet", pytest.param("json", marks=seldom)])
def test_settings_for_local_disk_are_safe_as_pasted(tmp_path: Path, format: str) -> None:
    advice = committers.advise(str(tmp_path / "out"), {"append", "restartable"})
    assert not advice.jars
    safe(pasted(advice, tmp_path / "spark", format=format), "v1")
    assert "FileOutputCommitter" in tidy(advice.url).committer


@pytest.mark.nightly
def test_settings_for_jobs_at_once_on_local_disk_are_safe_as_pasted(tmp_path: Path, jars: str) -> None:
    advice = committers.advise(str(tmp_path / "out"), {"append", "concurrent_jobs", "many_files"})
    found = pasted(advice, tmp_path / "spark", jars, format="json", concurrent=True)
    safe(found, "manifest")
    assert found["rows of all"] == 4000
    left = committers.inspect_success(advice.url)
    assert left.committer.endswith("ManifestCommitter")
    assert [item.kind for item in left.folders] == ["_temporary"], "as the advice says"
    committers.sweep(advice.url, dry_run=False, min_age=0)
    assert tidy(advice.url).files == 16


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with hdfs() as running:
        yield running


@pytest.mark.parametrize("needs", [pytest.param({"append"}, marks=seldom, id="v1"), pytest.param({"append", "many_files"}, id="manifest")])
def test_settings_for_hdfs_are_safe_as_pasted(cluster: Cluster, tmp_path: Path, jars: str, needs: set[str]) -> None:
    name = "-".join(sorted(needs))
    advice = committers.advise(f"hdfs://127.0.0.1:{cluster.rpc}{HOME}/{name}", needs)
    assert advice.committer == ("manifest" if "many_files" in needs else "v1")
    found = pasted(advice, tmp_path / "spark", jars if advice.jars else "", USER, conf={"spark.hadoop.dfs.replication": "1"})
    safe(found, advice.committer)
    tidy(f"{cluster.url}{HOME}/{name}", {"user": USER})


@pytest.mark.parametrize("format", ["parquet", pytest.param("csv", marks=seldom)])
def test_settings_for_s3_are_safe_as_pasted(seaweedfs: str, tmp_path: Path, jars: str, format: str) -> None:
    advice = committers.advise(f"s3://{s3.BUCKET}/{tmp_path.name}/out", {"append", "speculation"})
    assert advice.committer == "magic"
    reach = {
        "endpoint": seaweedfs, "endpoint.region": "us-east-1", "path.style.access": "true", "access.key": s3.KEY, "secret.key": s3.SECRET,
        "connection.ssl.enabled": "false", "buffer.dir": str(tmp_path / "buffer"),
    }  # fmt: skip
    found = pasted(advice, tmp_path / "spark", jars, format=format, conf={f"spark.hadoop.fs.s3a.{key}": v for key, v in reach.items()})
    safe(found, "magic")
    assert tidy(normalise(advice.url), s3.options(seaweedfs)).committer == "magic"


@pytest.mark.nightly
def test_settings_for_a_flat_azure_account_are_safe_as_pasted(azurite_endpoint: str, tmp_path: Path, jars: str) -> None:
    host = azurite_endpoint.split("/")[2]
    advice = committers.advise(f"abfs://tests@{ACCOUNT}.dfs.core.windows.net/{tmp_path.name}/out", {"append"}, hierarchical=False)
    assert advice.committer == "manifest"
    reach = {
        f"account.key.{ACCOUNT}.dfs.core.windows.net": KEY, f"account.key.{ACCOUNT}.blob.core.windows.net": KEY, "abfs.endpoint": host,
        "account.hns.enabled": "false", "fns.account.service.type": "BLOB", "always.use.https": "false",
        "networking.library": "JDK_HTTP_URL_CONNECTION",  # the other one cannot do without TLS
    }  # fmt: skip
    found = pasted(
        advice, tmp_path / "spark", jars, hierarchical=False, conf={f"spark.hadoop.fs.azure.{key}": v for key, v in reach.items()}
    )
    safe(found, "manifest")
    options = {"connection_string": connection_string(azurite_endpoint)}
    assert bare(f"abfs://tests/{tmp_path.name}/out", options).is_folder()
    assert tidy(f"abfs://tests/{tmp_path.name}/out", options).committer.endswith("ManifestCommitter")


@pytest.mark.nightly
def test_over_connect_the_settings_alone_are_checked_and_that_is_said(tmp_path: Path) -> None:
    advice = committers.advise(str(tmp_path / "out"), {"append"})
    own = environment(tmp_path / "tmp") | {"PYTHONPATH": str(Path(committers.__file__).parents[2])}
    with (
        running(ConnectServer(tmp_path, own, "local[2]", advice.conf)) as server,
        running(Driver(tmp_path / "d", own, server.url, {})) as run,
    ):
        said = json.loads(run(f"print(json.dumps(quire.committers.advise.check(spark, {advice.url!r}, 'json').as_dict()))"))
        assert (said["ok"], said["committer"]) == (True, "v1")
        assert said["seen"].startswith("settings alone")
        assert {found["what"] for found in said["findings"] if found["state"] == "unseen"} == {"file system", "protocol", "factory"}
        run("spark.conf.set('mapreduce.fileoutputcommitter.algorithm.version', '2')")
        assert "algorithm" in run(f"print(repr(quire.committers.advise.check(spark, {advice.url!r})))")
        run(f"quire.committers.advise({advice.url!r}, spark=spark)")


@pytest.mark.nightly
@pytest.mark.parametrize("hosts", [1, 2])
def test_speculation_needs_a_cluster_of_two_hosts_and_one_is_told(tmp_path: Path, hosts: int) -> None:
    own = environment(tmp_path / "tmp") | {"PYTHONPATH": str(Path(committers.__file__).parents[2])}
    conf = {"spark.speculation": "true", "spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1"}
    with (
        running(Standalone(tmp_path / "cluster", own, HOSTS[:hosts])) as cluster,
        running(Driver(tmp_path / "driver", own, cluster.url, conf)) as run,
    ):
        seen = "quire.committers.advice.versions.versions(spark)"
        run(f"import time, quire.committers.advice.versions; [time.sleep(0.2) for _ in range(300) if {seen}.hosts < {hosts}]")
        said = run("print(*quire.committers.advise.check(spark, '/data').findings, sep='\\n')")
        assert ("executors run on 1 host now" in said) == (hosts == 1), said
        assert ("✔ speculation" in said) == (hosts == 2), said


def test_each_misconfiguration_that_needs_the_jars_is_found_in_a_live_session(tmp_path: Path, jars: str) -> None:
    planted = [one for one in PLANTED if CLOUD in one[0].values() and "cannot be" not in one[4]]
    assert len(planted) >= 6
    own = environment(tmp_path / "tmp") | {"PYTHONPATH": str(Path(committers.__file__).parents[2])}
    with running(Driver(tmp_path / "driver", own, "local[2]", {"spark.jars": jars})) as run:
        run("import json")
        for conf, url, kind, what, words in planted:
            run(f"own = spark.newSession(); [own.conf.set(*item) for item in {conf!r}.items()]")
            said = json.loads(run(f"print(json.dumps(quire.committers.advise.check(own, {url!r}, {kind!r}).as_dict()))"))
            (one,) = (found for found in said["findings"] if found["what"] == what)
            assert one["state"] in ("wrong", "beware"), (conf, one)
            assert words in one["said"], (conf, one)
            assert {found["state"] for found in said["findings"] if found["what"] in ("protocol", "factory", "file system")} == {"ok"}
        (older,) = (found for found in said["findings"] if found["what"] == "Spark's jar")
        assert older["state"] == "beware", "the jar is older than this Spark, and that is said"


@pytest.mark.nightly
def test_a_protocol_without_its_jar_ends_a_session_of_spark_before_it_writes(tmp_path: Path) -> None:
    """So nothing is written by another committer in its place."""
    started = f"S.builder.master('local[1]').config({k.PROTOCOL!r}, {CLOUD!r}).getOrCreate().range(1).count()"
    command = [sys.executable, "-c", f"from pyspark.sql import SparkSession as S; {started}"]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert done.returncode
    assert "PathOutputCommitProtocol" in done.stderr
