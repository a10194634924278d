"""quire's committers under the promises of all committers, in every kind of store that each serves."""

from __future__ import annotations

import itertools
import uuid
from pathlib import Path
from typing import Any

import pytest

pytest.register_assert_rewrite("services.committing")

import sim  # noqa: E402 (what stands above must come first)
from matrix import COMMITTERS, cases  # noqa: E402
from services import gcs, s3  # noqa: E402
from services.azurite import connection_string  # noqa: E402
from services.committing import *  # noqa: E402, F403 (the tests, by whatever names they have)
from services.committing import Trial  # noqa: E402
from services.example import hdfs_native  # noqa: E402
from services.hdfs import HOME, USER  # noqa: E402
from services.kinds import kind  # noqa: E402
from services.standin import Namenode  # noqa: E402
from sim import ways  # noqa: E402

slow, seldom = pytest.mark.services, pytest.mark.nightly
PLACES: list[Any] = [
    ("memory", "rename"),
    ("memory", "upload"),
    ("local", "rename"),
    ("local", "rename_v2"),
    ("hdfs-native", "rename"),
    pytest.param(("azurite", "upload"), marks=slow),
    pytest.param(("seaweedfs", "upload"), marks=slow),
    pytest.param(("azurite", "copy"), marks=slow),
    pytest.param(("seaweedfs", "copy"), marks=seldom),
    pytest.param(("gcs", "upload"), marks=slow),
    pytest.param(("gcs", "copy"), marks=slow),
    pytest.param(("moto", "upload"), marks=seldom),
    pytest.param(("hdfs", "rename"), marks=slow),
    pytest.param(("hdfs", "rename_v2"), marks=slow),
]


@pytest.fixture(params=list(COMMITTERS))
def committer_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=PLACES, ids="-".join)
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Trial:
    where, name = request.param
    place = f"{uuid.uuid4().hex}/out"
    if where == "local":
        return Trial(name, f"file://{tmp_path}/out")
    if where == "hdfs-native":
        node = Namenode(tmp_path / "hdfs")
        request.getfixturevalue("monkeypatch").setattr(hdfs_native, "_connect", lambda *_: node)
        return Trial(name, f"hdfs://node/{place}")
    if where == "azurite":
        return Trial(name, f"abfs://tests/{place}", {"connection_string": connection_string(request.getfixturevalue("azurite_endpoint"))})
    if where in ("seaweedfs", "moto"):
        return Trial(name, f"s3://{s3.BUCKET}/{place}", s3.options(request.getfixturevalue(where)))
    if where == "gcs":
        return Trial(name, f"gs://{gcs.BUCKET}/{place}", gcs.options(request.getfixturevalue("fake_gcs")))
    if where == "hdfs":
        return Trial(name, f"{request.getfixturevalue('hdfs_cluster').url}{HOME}/{place}", {"user": USER})
    return Trial(name, f"memory://{place}")


def test_a_process_may_die_on_disk() -> None:
    """At the system calls of the local store, also by power cuts, which take what was not synced: some of them, drawn."""
    (case,) = cases(["write"], ["rename"], ["disk"])
    case.fill()
    for scenarios in (ways.crashes(case, reads=False), ways.power(case)):
        for scenario in list(scenarios)[::15]:
            scenario()


@pytest.mark.services
@pytest.mark.parametrize(
    ("service", "name"),
    [
        pytest.param("azurite", "upload", marks=seldom),
        ("seaweedfs", "upload"),
        ("gcs", "upload"),
        pytest.param("hdfs-real", "rename", marks=seldom),
        pytest.param("hdfs-real", "rename_v2", marks=seldom),
    ],
)
def test_a_process_may_die_before_and_after_each_request(service: str, name: str, request: pytest.FixtureRequest) -> None:
    """On real services: each request that changes something may be the last one, also in its middle; then the same name again.

    Every second point is taken here, and of HDFS, which has many more requests and slow ones, every fifth; each one by `make matrix`.
    """
    sim.forget_all()
    fixture = {"azurite": "azurite_endpoint", "gcs": "fake_gcs", "hdfs-real": "hdfs_cluster"}.get(service, service)
    (case,) = cases(["write"], [name], [kind(service, request.getfixturevalue(fixture))])
    for scenario in itertools.islice(ways.crashes(case.fill(), reads=False), 0, None, 5 if service == "hdfs-real" else 2):
        scenario()
    assert case.by.leaks == bool(case.leaked)
